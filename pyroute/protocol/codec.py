"""Messages as bytes: `encode` and `decode`; no pickle, and `FormatError` for anything else.

    frame of kind 128 (_wire.py) | message u8 | epoch | source | target | its own fields

Numbers are varints, texts and bytes follow their length, a task is its operator's name and its
number, keys are 8 bytes each. The numbers of messages are fixed for ever.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pyroute._core import FormatError
from pyroute.protocol import _wire
from pyroute.protocol.messages import (
    Abort,
    Aborted,
    Ack,
    Done,
    GetMetrics,
    Message,
    Metrics,
    Migrate,
    Moved,
    Probe,
    Propagate,
    Reconfigure,
    Refuse,
    Resume,
    Resumed,
    RouterChange,
    Transfer,
)
from pyroute.protocol.topology import Task

_NUMBERS: dict[type[Message], int] = {
    GetMetrics: 1,
    Metrics: 2,
    Reconfigure: 3,
    Ack: 4,
    Refuse: 5,
    Propagate: 6,
    Migrate: 7,
    Done: 8,
    Resume: 9,
    Resumed: 10,
    Abort: 11,
    Aborted: 12,
    Probe: 13,
}
_TYPES = {number: kind for kind, number in _NUMBERS.items()}
_TASK = (1 << 31) - 1


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    number = _NUMBERS.get(type(message))
    if number is None:
        raise TypeError(f"message: expected a message, got {type(message).__name__}")
    out = _wire.Writer(_wire.MESSAGE)
    out.byte(number)
    out.number(message.epoch)
    write_task(out, message.source)
    write_task(out, message.target)
    if isinstance(message, Metrics):
        out.data(message.data)
    elif isinstance(message, Refuse):
        out.text(message.reason)
    elif isinstance(message, Migrate):
        out.number(message.part)
        out.flag(message.last)
        out.items(message.states, _write_state)
    elif isinstance(message, Reconfigure):
        _write_reconfigure(out, message)
    return out.finish()


def decode(data: bytes) -> Message:
    """The message that `encode` wrote; anything else raises `FormatError`."""
    into = _wire.Reader(data, _wire.MESSAGE)
    number = into.byte()
    kind = _TYPES.get(number)
    if kind is None:
        raise FormatError(f"message: expected 1 to {len(_TYPES)}, got {number}")
    common = (into.number(), read_task(into), read_task(into))
    own: tuple[Any, ...] = ()
    if kind is Metrics:
        own = (into.data(),)
    elif kind is Refuse:
        own = (into.text(),)
    elif kind is Migrate:
        own = (into.number(), into.flag(), into.items(_read_state))
    elif kind is Reconfigure:
        own = _read_reconfigure(into)
    into.end()
    return kind(*common, *own)


def write_task(out: _wire.Writer, task: Task) -> None:
    """A task, or the manager."""
    out.text(task.operator)
    out.number(task.number)


def read_task(into: _wire.Reader) -> Task:
    """What `write_task` wrote."""
    return Task(into.text(), into.number(_TASK))


def write_moved(out: _wire.Writer, moved: Moved) -> None:
    """Keys and intervals."""
    out.words(moved.keys)
    out.words([end for interval in moved.ranges for end in interval])


def read_moved(into: _wire.Reader) -> Moved:
    """What `write_moved` wrote: both ascending, intervals apart."""
    keys, ends = into.words(), into.words()
    if any(a >= b for a, b in pairwise(keys)):
        raise FormatError("keys: expected them ascending, got others")
    ranges = tuple(zip(ends[::2], ends[1::2], strict=False))
    if (
        len(ends) % 2
        or any(first > last for first, last in ranges)
        or any(a[1] >= b[0] for a, b in pairwise(ranges))
    ):
        raise FormatError("ranges: expected intervals ascending, got others")
    return Moved(keys, ranges)


def _write_reconfigure(out: _wire.Writer, message: Reconfigure) -> None:
    out.items(message.routers, _write_router)
    out.items(message.send, _write_transfer)
    out.items(message.receive, _write_transfer)
    out.flag(message.pauses is not None)
    if message.pauses is not None:
        out.items(message.pauses, _write_pause)


def _read_reconfigure(into: _wire.Reader) -> tuple[Any, ...]:
    return (
        into.items(_read_router),
        into.items(_read_transfer),
        into.items(_read_transfer),
        into.items(_read_pause) if into.flag() else None,
    )


def _write_router(out: _wire.Writer, change: RouterChange) -> None:
    out.text(change.operator)
    out.number(change.version)
    out.word(change.fingerprint)
    out.data(change.router)


def _read_router(into: _wire.Reader) -> RouterChange:
    return RouterChange(into.text(), into.number(), into.word(), into.data())


def _write_transfer(out: _wire.Writer, transfer: Transfer) -> None:
    out.number(transfer.task)
    write_moved(out, transfer.moved)


def _read_transfer(into: _wire.Reader) -> Transfer:
    return Transfer(into.number(_TASK), read_moved(into))


def _write_pause(out: _wire.Writer, pause: tuple[str, Moved]) -> None:
    out.text(pause[0])
    write_moved(out, pause[1])


def _read_pause(into: _wire.Reader) -> tuple[str, Moved]:
    return into.text(), read_moved(into)


def _write_state(out: _wire.Writer, state: tuple[int, bytes]) -> None:
    out.word(state[0])
    out.data(state[1])


def _read_state(into: _wire.Reader) -> tuple[int, bytes]:
    return into.word(), into.data()
