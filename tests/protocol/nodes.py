"""What the simulator is made of: stores, channels, tasks, and what a task was when it committed."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import Any, ClassVar

import pyroute as pr
from pyroute.protocol import Inbox, Instance, Outbox, Task
from pyroute.protocol.routes import Routes

RECORD = struct.Struct("<HIQQ")
"""Producer, its count of records for this operator and key, record, key of the operator before."""
STATE = struct.Struct("<IQ")
SEEN = struct.Struct("<HI")


class CachedRoutes(Routes):
    """Made once per router, for all machines: they do not change it."""

    made: ClassVar[dict[bytes, Routes]] = {}

    def __new__(cls, router: pr.Router) -> Any:
        return cls.from_bytes(router.to_bytes(values=False))

    def __init__(self, router: pr.Router) -> None:
        pass

    @classmethod
    def from_bytes(cls, data: bytes) -> Any:
        found = cls.made.get(data)
        if found is None:
            if len(cls.made) > 1000:
                cls.made.clear()
            found = cls.made[data] = Routes(pr.Router.from_bytes(data))
        return found


class ViolationError(AssertionError):
    """A guarantee does not hold."""


class States:
    """The store of a task: for each key how many records, their sum, and the next per producer."""

    __slots__ = ("of",)

    def __init__(self, of: dict[int, tuple[int, int, dict[int, int]]] | None = None) -> None:
        self.of = {} if of is None else of

    def copy(self) -> States:
        return States({key: (n, total, dict(seen)) for key, (n, total, seen) in self.of.items()})

    def keys(self, first: int, last: int) -> Iterable[int]:
        return [key for key in self.of if first <= key <= last]

    def take(self, key: int) -> bytes | None:
        state = self.of.pop(key, None)
        if state is None:
            return None
        n, total, seen = state
        return STATE.pack(n, total) + b"".join(SEEN.pack(*pair) for pair in seen.items())

    def put(self, key: int, state: bytes) -> None:
        seen = dict(SEEN.iter_unpack(state[STATE.size :]))
        self.of[key] = (*STATE.unpack_from(state), seen)


_NO_OUTBOX, _NO_INBOX = Outbox(), Inbox()
"""Of channels that keep their order by themselves."""


class Channel:
    """What one task sent to another and that one has not taken, in order."""

    __slots__ = ("inbox", "items", "node", "outbox", "ready", "slot", "slow", "source")

    def __init__(self, source: int, node: Node, slow: bool, ready: list[Channel]) -> None:
        self.source = source
        self.ready = ready
        """Those of its kind that have something."""
        self.node = node
        self.items: deque[Any] = deque()
        self.slot = -1  # where in that list, -1: not there
        self.slow = slow
        self.outbox = _NO_OUTBOX
        self.inbox = _NO_INBOX


class Window:
    """What a task was when it committed last, while it is about to crash."""

    __slots__ = ("boxes", "counts", "machine", "sent", "states", "stuck", "taken")

    def __init__(self, node: Node) -> None:
        self.machine = node.machine.snapshot()
        self.states = node.states.copy()
        self.counts = dict(node.counts)
        self.stuck = list(node.stuck)
        self.taken: list[tuple[Channel, Any]] = []
        self.sent: list[Any] = []
        self.boxes: list[tuple[Channel, int]] = []


class Node:
    """A task: its machine, its state, and what an engine would do around them."""

    __slots__ = (
        "blocked",
        "counts",
        "crashes",
        "index",
        "machine",
        "next",
        "out",
        "peers",
        "states",
        "steps",
        "stuck",
        "task",
        "window",
    )

    def __init__(self, index: int, task: Task, machine: Instance, states: States) -> None:
        self.index = index
        self.task = task
        self.machine = machine
        self.states = states
        self.counts: dict[tuple[str, int], int] = {}
        """Records that it sent, by operator and key."""
        self.stuck: list[tuple[str, int, bytes]] = []
        """What it has to send before it takes another record."""
        self.blocked: list[Channel] = []
        self.steps = 0
        self.crashes: list[tuple[int, str, int]] = []
        """After so many steps, as soon as it is so, and so many steps after the last commit."""
        self.window: Window | None = None
        self.out: list[Channel] = []
        self.peers: list[Node] = []
        self.next: list[tuple[str, int, bool, tuple[Task, ...]]] = []
