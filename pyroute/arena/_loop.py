"""What the event loop works on, and how a policy gets into it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

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


def _module() -> Any:
    try:
        import numba  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "numba: expected it for the arena, got none: pip install 'pyroute-core[arena]'"
        ) from error
    from pyroute.arena import _compiled

    return _compiled


@cache
def _as_pointer(function: Callable[..., Any], chooses: bool) -> Any:
    """A function that the loop calls by its address."""
    compiled = _module()
    return compiled.chooser(function) if chooses else compiled.noter(function)


def play(choose: Callable[..., int], noted: Callable[..., None] | None) -> Any:
    """The loop for a policy's functions: (tables, state, begin, end) plays records in between.

    Where begin is end it only settles what is done when that record comes.
    """
    compiled = _module()
    chosen, note = _as_pointer(choose, True), _as_pointer(noted or _nothing, False)

    def run(t: Tables, state: Any, begin: int, end: int) -> None:
        compiled.loop(t, state, begin, end, chosen, note, noted is not None)

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
