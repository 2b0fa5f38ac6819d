"""The event loop that numba compiles; imported when a replay needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from pyroute.arena._loop import (
    AGE,
    BANDWIDTH,
    DONE,
    HEAD,
    HEAP,
    INTERVAL,
    MERGE,
    MERGES,
    MOVED,
    MOVED_BYTES,
    TAIL,
)

__all__ = ["chooser", "loop", "noter"]

# A policy's functions are called by address, so that the loop is compiled only once, and arrays go
# there as addresses and sizes: an array as such would be counted, atomically, at every call.
_of = nb.types
_CHOOSE = _of.int64(
    *(_of.uintp, _of.int64, _of.uintp, _of.int64),
    *(_of.uint64, _of.float64, _of.float64, _of.int64),
)
_NOTED = _of.void(_of.uintp, _of.int64, _of.int64, _of.uint64, _of.float64, _of.float64)


def _inttoptr(_: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return _of.voidptr(address), code


_pointer: Any = intrinsic(_inttoptr)


def chooser(function: Callable[..., int]) -> Any:
    """What the loop calls for a policy's `choose`."""
    choose = nb.njit(nogil=True)(function)

    @nb.cfunc(_CHOOSE)
    def call(
        state: int,
        size: int,
        lengths: int,
        tasks: int,
        key: int,
        now: float,
        cost: float,
        record: int,
    ) -> Any:
        reals = carray(_pointer(state), size, np.float64)
        counts = carray(_pointer(lengths), tasks, np.int64)
        return choose(reals, counts, key, now, cost, record)

    return call


def noter(function: Callable[..., None]) -> Any:
    """What the loop calls for a policy's `noted`."""
    noted = nb.njit(nogil=True)(function)

    @nb.cfunc(_NOTED)
    def call(state: int, size: int, task: int, key: int, time: float, now: float) -> None:
        noted(carray(_pointer(state), size, np.float64), task, key, time, now)

    return call


_call = nb.njit(nogil=True, cache=True)
# Inlined: the arrays of the loop stay where they are instead of travelling with every call.
_inline = nb.njit(nogil=True, cache=True, inline="always")


@_inline
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


@_inline
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


@_inline
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


@_inline
def _follow(told: Any, more: Any, lengths: Any, counts: Any, now: float) -> None:
    """What is known by now."""
    while counts[HEAD] < counts[TAIL] and told[counts[HEAD]] <= now:
        head = counts[HEAD]
        lengths[more[head, 0]] += more[head, 1]
        counts[HEAD] += 1


@_call
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


@_call
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


@_inline
def _settle(
    heap_time: Any,
    heap_task: Any,
    counts: Any,
    first: Any,
    following: Any,
    finish: Any,
    order: Any,
    told: Any,
    more: Any,
    lengths: Any,
    age: float,
    ids: Any,
    service: Any,
    state: int,
    size: int,
    noted: Any,
    notes: bool,
    until: float,
) -> None:
    """Everything that is done by then, in order."""
    while counts[HEAP] > 0 and heap_time[0] <= until:
        time, task = heap_time[0], heap_task[0]
        record = first[task]
        order[counts[DONE]] = record
        counts[DONE] += 1
        if notes:
            noted(state, size, task, ids[record], service[record], time)
        _tell(told, more, lengths, counts, time, age, task, -1)
        follower = following[record]
        first[task] = follower
        if follower < 0:
            counts[HEAP] -= 1
            heap_time[0], heap_task[0] = heap_time[counts[HEAP]], heap_task[counts[HEAP]]
        else:
            heap_time[0] = finish[follower]
        _sink(heap_time, heap_task, counts[HEAP])


@_call
def loop(t: Any, state: Any, begin: int, end: int, choose: Any, noted: Any, notes: bool) -> None:
    """Records from begin to end; where they are the same, what is done when that one comes."""
    # Taken out once: each look into the tuple would count a reference.
    ids, arrivals, costs, positions, sizes = t.ids, t.arrivals, t.costs, t.positions, t.sizes
    delays, change_at, speeds, tasks = t.delays, t.change_at, t.speeds, t.tasks
    ends, service_of, free, following = t.finish, t.service, t.free, t.following
    first, last, heap_time, heap_task = t.first, t.last, t.heap_time, t.heap_task
    lengths, told, more, counts, order = t.lengths, t.told, t.more, t.counts, t.order
    state_size, holder, ready = t.state_size, t.holder, t.ready
    held, merged_by, amounts = t.held, t.merged_by, t.amounts
    period = np.searchsorted(change_at, begin, side="right") - 1
    age, merging, moving = amounts[AGE], held.shape[0] > 0, holder.size > 0
    at_state, at_lengths = state.ctypes.data, lengths.ctypes.data
    for record in range(begin, end + 1):
        if record < end:
            now = arrivals[record]
        elif end == ids.size:
            now = np.inf
        elif begin == end:
            now = arrivals[begin]
        else:
            break
        _settle(
            heap_time,
            heap_task,
            counts,
            first,
            following,
            ends,
            order,
            told,
            more,
            lengths,
            age,
            ids,
            service_of,
            at_state,
            state.size,
            noted,
            notes,
            now,
        )
        _follow(told, more, lengths, counts, now)
        if record == end:
            break
        if period + 1 < change_at.size and record >= change_at[period + 1]:
            period += 1
        key = ids[record]
        task = choose(
            at_state, state.size, at_lengths, lengths.size, key, now, costs[record], record
        )
        service = costs[record] * speeds[period, task]
        start = max(free[task], now + delays[task])
        at = positions[record]
        if merging:
            service += _merges(held, merged_by, counts, amounts, at, task)
        if moving:
            there = _moves(holder, state_size, ready, counts, amounts, at, sizes[record], task, now)
            start = max(start, there)
        finish = start + service
        tasks[record], ends[record], service_of[record] = task, finish, service
        free[task] = finish
        following[record] = -1
        if first[task] < 0:
            first[task] = record
            _rise(heap_time, heap_task, counts[HEAP], finish, task)
            counts[HEAP] += 1
        else:
            following[last[task]] = record
        last[task] = record
        _tell(told, more, lengths, counts, now, age, task, 1)
