"""The event loop, compiled with numba: queues of tasks that a policy fills."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
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
    told_at: Any  # events by which known lengths follow the true ones: a queue
    told_task: Any
    told_more: Any
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


def _jit(function: Callable[..., Any], **options: Any) -> Any:
    try:
        import numba
    except ImportError as error:
        raise ImportError(
            "numba: expected it for the arena, got none: pip install 'pyroute-core[arena]'"
        ) from error
    return numba.njit(nogil=True, **options)(function)


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


def _tell(t: Any, at: float, task: int, more: int) -> None:
    """A queue became longer or shorter, which is known at once or after a while."""
    if t.amounts[AGE] > 0:
        tail = t.counts[TAIL]
        t.told_at[tail], t.told_task[tail], t.told_more[tail] = at + t.amounts[AGE], task, more
        t.counts[TAIL] += 1
    else:
        t.lengths[task] += more


def _follow(t: Any, now: float) -> None:
    """What is known by now."""
    while t.counts[HEAD] < t.counts[TAIL] and t.told_at[t.counts[HEAD]] <= now:
        head = t.counts[HEAD]
        t.lengths[t.told_task[head]] += t.told_more[head]
        t.counts[HEAD] += 1


def _merges(t: Any, key: int, task: int) -> float:
    """Time for the partial result of a task that is not the first to hold one, this interval."""
    interval = t.counts[INTERVAL] + 1
    if t.held[key, task] == interval:
        return 0.0
    t.held[key, task] = interval
    if t.merged_by[key] != interval:
        t.merged_by[key] = interval
        return 0.0
    t.amounts[MERGES] += 1
    return float(t.amounts[MERGE])


def _moves(t: Any, record: int, task: int, now: float) -> float:
    """The state of a key follows it; when it is there."""
    key = t.positions[record]
    if t.holder[key] >= 0 and t.holder[key] != task:
        size = t.state_size[key]
        t.amounts[MOVED_BYTES] += size
        t.counts[MOVED] += 1
        t.ready[key] = max(t.ready[key], now) + size / t.amounts[BANDWIDTH]
    t.holder[key] = task
    t.state_size[key] += t.sizes[record]
    return float(t.ready[key])


class _Parts(NamedTuple):
    sink: Any
    enqueue: Any
    tell: Any
    follow: Any
    merges: Any
    moves: Any


@cache
def _parts() -> _Parts:
    sink, rise = _jit(_sink), _jit(_rise)

    def enqueue(t: Any, record: int, task: int, finish: float) -> None:
        """At the end of its task's queue."""
        t.following[record] = -1
        if t.first[task] < 0:
            t.first[task] = record
            rise(t.heap_time, t.heap_task, t.counts[HEAP], finish, task)
            t.counts[HEAP] += 1
        else:
            t.following[t.last[task]] = record
        t.last[task] = record

    return _Parts(sink, _jit(enqueue), _jit(_tell), _jit(_follow), _jit(_merges), _jit(_moves))


def _settling(note: Any, notes: bool) -> Any:
    parts = _parts()
    sink, tell = parts.sink, parts.tell

    def settle(t: Any, state: Any, until: float) -> None:
        """Everything that is done by then, in order."""
        while t.counts[HEAP] > 0 and t.heap_time[0] <= until:
            time, task = t.heap_time[0], t.heap_task[0]
            record = t.first[task]
            t.order[t.counts[DONE]] = record
            t.counts[DONE] += 1
            if notes:
                note(state, task, t.ids[record], t.service[record], time)
            tell(t, time, task, -1)
            t.first[task] = t.following[record]
            if t.first[task] < 0:
                t.counts[HEAP] -= 1
                size = t.counts[HEAP]
                t.heap_time[0], t.heap_task[0] = t.heap_time[size], t.heap_task[size]
            else:
                t.heap_time[0] = t.finish[t.first[task]]
            sink(t.heap_time, t.heap_task, t.counts[HEAP])

    return _jit(settle)


@cache
def play(choose: Callable[..., int], noted: Callable[..., None] | None) -> Any:
    """The loop for a policy's functions: (tables, state, begin, end) plays records in between.

    Where begin is end it only settles what is done when that record comes.
    """
    _, enqueue, tell, follow, merges, moves = _parts()
    chosen = _compiled(choose)
    settle = _settling(_compiled(noted or _nothing), noted is not None)

    def loop(t: Any, state: Any, begin: int, end: int) -> None:
        period = np.searchsorted(t.change_at, begin, side="right") - 1
        for record in range(begin, end):
            now = t.arrivals[record]
            settle(t, state, now)
            follow(t, now)
            if period + 1 < t.change_at.size and record >= t.change_at[period + 1]:
                period += 1
            task = chosen(state, t.lengths, t.ids[record], now, t.costs[record], record)
            service = t.costs[record] * t.speeds[period, task]
            start = max(t.free[task], now + t.delays[task])
            if t.held.shape[0] > 0:
                service += merges(t, t.positions[record], task)
            if t.holder.size > 0:
                start = max(start, moves(t, record, task, now))
            finish = start + service
            t.tasks[record], t.finish[record], t.service[record] = task, finish, service
            t.free[task] = finish
            enqueue(t, record, task, finish)
            tell(t, now, task, 1)
        if end == t.ids.size:
            settle(t, state, np.inf)
        elif begin == end:
            settle(t, state, t.arrivals[begin])
            follow(t, t.arrivals[begin])

    return _jit(loop)


def _compiled(function: Any) -> Any:
    return function if hasattr(function, "py_func") else _jit(function)


def _nothing(state: Any, task: int, key: Any, time: float, now: float) -> None:
    pass


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

    return _jit(choose), _jit(noted)
