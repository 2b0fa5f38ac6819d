"""What machines say to each other, and what they say of a record: immutable values.

Every message carries the epoch of the reconfiguration that it belongs to, its sender and its
target. Words of paper 001 in brackets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pyroute.protocol.topology import Task

Range: TypeAlias = tuple[int, int]
"""First and last key of an interval, both inclusive."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Keys that move: by name of key, and by intervals where the ring changes.

    An interval stands for the keys in it that neither routing table nor a split names.
    """

    keys: tuple[int, ...] = ()
    ranges: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Transfer:
    """What goes to, or comes from, one task of the same operator."""

    task: int
    moved: Moved


@dataclass(frozen=True, slots=True)
class RouterChange:
    """The next router of an operator, and which one it takes the place of."""

    operator: str
    version: int
    """Of the router before; so is the fingerprint."""
    fingerprint: int
    router: bytes
    """The next one, by `Router.to_bytes(values=False)`."""


@dataclass(frozen=True, slots=True)
class Message:
    """What every message has."""

    epoch: int
    source: Task
    target: Task


@dataclass(frozen=True, slots=True)
class GetMetrics(Message):
    """Manager to all: report your statistics [GET_METRICS]."""


@dataclass(frozen=True, slots=True)
class Metrics(Message):
    """Task to manager: what it counted, in the engine's own form [SEND_METRICS]."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Reconfigure(Message):
    """Manager to all: be ready for these routers and migrations [SEND_RECONF]."""

    routers: tuple[RouterChange, ...]
    """Of the task's own operator and of those it sends to, where they change."""
    send: tuple[Transfer, ...]
    receive: tuple[Transfer, ...]
    pauses: tuple[tuple[str, Moved], ...] | None = None
    """In the pause/resume variant: what to keep back, by operator; None in the other."""


@dataclass(frozen=True, slots=True)
class Ack(Message):
    """Task to manager: ready, durably [ACK_RECONF]."""


@dataclass(frozen=True, slots=True)
class Refuse(Message):
    """Task to manager: not ready, because another router is in force."""

    reason: str


@dataclass(frozen=True, slots=True)
class Propagate(Message):
    """Manager to sources, task to successors: what follows is routed by the next routers."""


@dataclass(frozen=True, slots=True)
class Migrate(Message):
    """Task to task of one operator: the state of keys that move; sent even where there is none."""

    part: int
    """0, 1, 2, ... of one sender to one target."""
    last: bool
    states: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Done(Message):
    """Task to manager: routing changed, all state sent and received."""


@dataclass(frozen=True, slots=True)
class Resume(Message):
    """Manager to all, in the pause/resume variant: send on what you kept back."""


@dataclass(frozen=True, slots=True)
class Resumed(Message):
    """Task to manager: nothing is kept back any more."""


@dataclass(frozen=True, slots=True)
class Abort(Message):
    """Manager to all: forget this reconfiguration; nobody acted on it."""


@dataclass(frozen=True, slots=True)
class Aborted(Message):
    """Task to manager: forgotten."""


@dataclass(frozen=True, slots=True)
class Probe(Message):
    """Manager to task: say again how far you are; answers may have been lost with a manager."""


@dataclass(frozen=True, slots=True)
class Apply:
    """The task owns the key and has its state: process the record now."""

    key: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Forward:
    """The key belongs to another task now: send it there, on a channel that has no `Migrate`."""

    target: Task
    key: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Send the record to this task of the next operator; `target` None: by the engine's hash."""

    target: Task | None
    operator: str
    key: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Hold:
    """The machine took the record and gives it back, as `Apply` or `Send`, when it may go on."""

    key: int


@dataclass(frozen=True, slots=True)
class Full:
    """The buffer is full and the record was not taken: stop reading where it came from.

    Offer it again after the next `receive`, before anything that follows it there.
    """

    key: int


Output: TypeAlias = Message | Apply | Forward | Send
"""What a machine gives back; an engine treats a list of them in its order."""
