"""The event loop that numba compiles; imported when a replay needs it."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

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

__all__ = ["CHOOSE", "NOTED", "loop"]

_of = nb.types
_REALS, _INTS = _of.float64[::1], _of.int64[::1]
CHOOSE = _of.int64(_REALS, _INTS, _of.uint64, _of.float64, _of.float64, _of.int64)
NOTED = _of.void(_REALS, _of.int64, _of.uint64, _of.float64, _of.float64)

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


@_call
def loop(t: Any, state: Any, begin: int, end: int, choose: Any, noted: Any, notes: bool) -> None:
    """Records from begin to end; where they are the same, what is done when that one comes."""
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
