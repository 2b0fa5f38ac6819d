"""The event loop, compiled with numba: queues of tasks that a policy fills."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Tables", "native", "play", "taken"]


class Tables(NamedTuple):
    """What the loop reads and writes; one object for a whole replay, chunk after chunk."""

    ids: Any
    arrivals: Any
    costs: Any
    positions: Any  # of the key of each record
    sizes: Any  # bytes by which a record makes its key's state grow; empty: none
    delays: Any  # way to each task
    change_at: Any  # records at which speeds change, ascending; the first is 0
    speeds: Any  # by change and task
    tasks: Any  # out: of each record
    finish: Any  # out: when it was done
    service: Any  # out: how long it took
    free: Any  # by task: when its records are done
    following: Any  # by record: the next one of its task
    first: Any  # by task: its oldest record not done; -1: none
    last: Any
    heap_time: Any  # finish of each busy task's oldest record, a binary heap
    heap_task: Any
    lengths: Any  # by task: records not done, as known
    told: Any  # when known lengths follow the true ones: a queue
    more: Any  # task, and by how much
    counts: Any  # size of the heap, head and tail of that queue, interval, moved keys, done
    state_size: Any  # by key: bytes of its state; empty: no state
    holder: Any  # by key: its task; empty: nothing moves
    ready: Any  # by key: when its state has arrived
    held: Any  # by key and task: interval + 1 of the last record; empty: nothing is merged
    merged_by: Any  # by key: interval + 1 and task of its first record there
    amounts: Any  # merge time, bytes per time of a migration, age of lengths, moved bytes, merges
    order: Any  # out: records in the order they were done


HEAP, HEAD, TAIL, INTERVAL, MOVED, DONE = range(6)
MERGE, BANDWIDTH, AGE, MOVED_BYTES, MERGES = range(5)


def taken(state: Any, lengths: Any, key: Any, now: float, cost: float, record: int) -> int:  # noqa: ARG001
    """A task that was chosen before."""
    return int(state[record])


def _nothing(state: Any, task: int, key: Any, time: float, now: float) -> None:
    pass


def _sink(times: Any, tasks: Any, size: int) -> None:
    """Move the top of the heap to its place; ties to the smaller task."""
    time, task = times[0], tasks[0]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            times[other] < times[child]
            or (times[other] == times[child] and tasks[other] < tasks[child])
        ):
            child = other
        if times[child] > time or (times[child] == time and tasks[child] > task):
            break
        times[at], tasks[at] = times[child], tasks[child]
        at = child
    times[at], tasks[at] = time, task


def _rise(times: Any, tasks: Any, size: int, time: float, task: int) -> None:
    """Add to the heap."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if times[parent] < time or (times[parent] == time and tasks[parent] < task):
            break
        times[at], tasks[at] = times[parent], tasks[parent]
        at = parent
    times[at], tasks[at] = time, task


def _tell(
    told: Any, more: Any, lengths: Any, counts: Any, at: float, age: float, task: int, by: int
) -> None:
    """A queue became longer or shorter, which is known at once or after a while."""
    if age > 0:
        tail = counts[TAIL]
        told[tail] = at + age
        more[tail, 0] = task
        more[tail, 1] = by
        counts[TAIL] += 1
    else:
        lengths[task] += by


def _follow(told: Any, more: Any, lengths: Any, counts: Any, now: float) -> None:
    """What is known by now."""
    while counts[HEAD] < counts[TAIL] and told[counts[HEAD]] <= now:
        head = counts[HEAD]
        lengths[more[head, 0]] += more[head, 1]
        counts[HEAD] += 1


def _merges(held: Any, merged_by: Any, counts: Any, amounts: Any, key: int, task: int) -> float:
    """Time for the partial result of a task that is not the first to hold one, this interval."""
    interval = counts[INTERVAL] + 1
    if held[key, task] == interval:
        return 0.0
    held[key, task] = interval
    if merged_by[key] != interval:
        merged_by[key] = interval
        return 0.0
    amounts[MERGES] += 1
    return float(amounts[MERGE])


def _moves(
    holder: Any,
    state_size: Any,
    ready: Any,
    counts: Any,
    amounts: Any,
    key: int,
    grows: int,
    task: int,
    now: float,
) -> float:
    """The state of a key follows it; when it is there."""
    if holder[key] >= 0 and holder[key] != task:
        size = state_size[key]
        amounts[MOVED_BYTES] += size
        counts[MOVED] += 1
        ready[key] = max(ready[key], now) + size / amounts[BANDWIDTH]
    holder[key] = task
    state_size[key] += grows
    return float(ready[key])


# Where it is missing the arena asks for it, with the command that adds it.
nb: Any = import_module("numba") if find_spec("numba") else None
if nb is not None:
    # Inlined: the arrays of the loop stay in registers instead of travelling with every call.
    _sink = nb.njit(nogil=True, cache=True)(_sink)
    _rise = nb.njit(nogil=True, cache=True)(_rise)
    _tell = nb.njit(nogil=True, cache=True, inline="always")(_tell)
    _follow = nb.njit(nogil=True, cache=True, inline="always")(_follow)
    _merges = nb.njit(nogil=True, cache=True)(_merges)
    _moves = nb.njit(nogil=True, cache=True)(_moves)


def _settle(t: Any, state: Any, until: float, noted: Any, notes: bool) -> None:
    """Everything that is done by then, in order."""
    heap_time, heap_task, counts = t.heap_time, t.heap_task, t.counts
    first, age = t.first, t.amounts[AGE]
    while counts[HEAP] > 0 and heap_time[0] <= until:
        time, task = heap_time[0], heap_task[0]
        record = first[task]
        t.order[counts[DONE]] = record
        counts[DONE] += 1
        if notes:
            noted(state, task, t.ids[record], t.service[record], time)
        _tell(t.told, t.more, t.lengths, counts, time, age, task, -1)
        follower = t.following[record]
        first[task] = follower
        if follower < 0:
            counts[HEAP] -= 1
            heap_time[0], heap_task[0] = heap_time[counts[HEAP]], heap_task[counts[HEAP]]
        else:
            heap_time[0] = t.finish[follower]
        _sink(heap_time, heap_task, counts[HEAP])


if nb is not None:
    _settle = nb.njit(nogil=True, cache=True, inline="always")(_settle)


def _loop(t: Any, state: Any, begin: int, end: int, choose: Any, noted: Any, notes: bool) -> None:
    first, last, counts, lengths = t.first, t.last, t.counts, t.lengths
    period = np.searchsorted(t.change_at, begin, side="right") - 1
    age, merging, moving = t.amounts[AGE], t.held.shape[0] > 0, t.holder.size > 0
    for record in range(begin, end):
        now = t.arrivals[record]
        _settle(t, state, now, noted, notes)
        _follow(t.told, t.more, lengths, counts, now)
        if period + 1 < t.change_at.size and record >= t.change_at[period + 1]:
            period += 1
        task = choose(state, lengths, t.ids[record], now, t.costs[record], record)
        service = t.costs[record] * t.speeds[period, task]
        start = max(t.free[task], now + t.delays[task])
        key = t.positions[record]
        if merging:
            service += _merges(t.held, t.merged_by, counts, t.amounts, key, task)
        if moving:
            there = _moves(
                t.holder, t.state_size, t.ready, counts, t.amounts, key, t.sizes[record], task, now
            )
            start = max(start, there)
        finish = start + service
        t.tasks[record], t.finish[record], t.service[record] = task, finish, service
        t.free[task] = finish
        t.following[record] = -1
        if first[task] < 0:
            first[task] = record
            _rise(t.heap_time, t.heap_task, counts[HEAP], finish, task)
            counts[HEAP] += 1
        else:
            t.following[last[task]] = record
        last[task] = record
        _tell(t.told, t.more, lengths, counts, now, age, task, 1)
    if end == t.ids.size:
        _settle(t, state, np.inf, noted, notes)
    elif begin == end:
        _settle(t, state, t.arrivals[begin], noted, notes)
        _follow(t.told, t.more, lengths, counts, t.arrivals[begin])


if nb is not None:
    _loop = nb.njit(nogil=True, cache=True)(_loop)


def _numba() -> Any:
    if nb is None:
        raise ImportError(
            "numba: expected it for the arena, got none: pip install 'pyroute-core[arena]'"
        )
    return nb


def _signatures() -> tuple[Any, Any]:
    of = _numba().types
    reals, ints, word, real, number = (
        of.float64[::1],
        of.int64[::1],
        of.uint64,
        of.float64,
        of.int64,
    )
    return (
        of.int64(reals, ints, word, real, real, number),
        of.void(reals, number, word, real, real),
    )


@cache
def _as_pointer(function: Callable[..., Any], chooses: bool) -> Any:
    """A function that the loop calls by its address, so that the loop is compiled only once."""
    choose, noted = _signatures()
    return _numba().cfunc(choose if chooses else noted)(function)


def play(choose: Callable[..., int], noted: Callable[..., None] | None) -> Any:
    """The loop for a policy's functions: (tables, state, begin, end) plays records in between.

    Where begin is end it only settles what is done when that record comes.
    """
    chosen, note = _as_pointer(choose, True), _as_pointer(noted or _nothing, False)

    def run(t: Tables, state: Any, begin: int, end: int) -> None:
        _loop(t, state, begin, end, chosen, note, noted is not None)

    return run


@cache
def native() -> tuple[Any, Any]:
    """What asks a `_core.ClosedLoop` whose address is state[0]."""
    from ctypes import CFUNCTYPE, c_double, c_int32, c_size_t, c_uint64

    from pyroute import _core

    choose_at, done_at = _core.ClosedLoop.functions()
    ask = CFUNCTYPE(c_int32, c_size_t, c_uint64, c_double)(choose_at)
    tell = CFUNCTYPE(None, c_size_t, c_int32, c_uint64, c_double, c_double)(done_at)

    def choose(state: Any, lengths: Any, key: Any, now: float, cost: float, record: int) -> int:  # noqa: ARG001
        return int(ask(int(state[0]), key, now))

    def noted(state: Any, task: int, key: Any, time: float, now: float) -> None:
        tell(int(state[0]), task, key, time, now)

    return choose, noted
