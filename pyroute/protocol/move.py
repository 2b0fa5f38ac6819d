"""One reconfiguration as one task sees it: what it waits for, what comes and what goes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from pyroute.protocol.messages import Migrate, Moved, Reconfigure
from pyroute.protocol.routes import Routes
from pyroute.protocol.store import Store
from pyroute.protocol.topology import Task

NOBODY = -1


class Lookup:
    """Which of several `Moved` a key is in: a dict, and intervals by bisection."""

    def __init__(
        self, parts: Iterable[tuple[int, Moved]], before: Routes | None, after: Routes | None
    ) -> None:
        parts = list(parts)
        self._keys = {key: number for number, moved in parts for key in moved.keys}
        rows = sorted((*interval, number) for number, moved in parts for interval in moved.ranges)
        self._firsts = [first for first, _, _ in rows]
        self._rows = rows
        self._before = before.table if before is not None else {}
        self._after = after.table if after is not None else {}

    def find(self, key: int) -> int:
        """The number that came with it, or `NOBODY`."""
        number = self._keys.get(key)
        if number is not None:
            return number
        if not self._rows or self.tabled(key):
            return NOBODY
        at = bisect_right(self._firsts, key) - 1
        if at < 0 or key > self._rows[at][1]:
            return NOBODY
        return self._rows[at][2]

    def tabled(self, key: int) -> bool:
        """Whether a table names the key, so that no interval stands for it."""
        return key in self._before or key in self._after


class Move:
    """A `Reconfigure` that a task acknowledged, and how far it is.

    Parameters
    ----------
    message
        What the manager sent.
    task
        The task.
    before
        Routers in force when it was sent, by operator.
    after
        The ones that it brings.
    waiting
        Who has to propagate before this task acts.
    """

    def __init__(
        self,
        message: Reconfigure,
        task: Task,
        before: Mapping[str, Routes],
        after: Mapping[str, Routes],
        waiting: Iterable[Task],
    ) -> None:
        self.message = message
        self.before = {name: before[name] for name in after}
        self.after = dict(after)
        self.waiting = set(waiting)
        self.parts = {transfer.task: 0 for transfer in message.receive}
        """The next part of `Migrate` from each task that has not sent its last."""
        self.present: set[int] = set()
        """Keys whose state came in parts so far."""
        own = self.before.get(task.operator), self.after.get(task.operator)
        self.arriving = Lookup([(t.task, t.moved) for t in message.receive], *own)
        self.pauses = {
            name: Lookup([(0, moved)], self.before.get(name), self.after.get(name))
            for name, moved in message.pauses or ()
        }

    def awaits(self, key: int) -> bool:
        """Whether the state of a key is still on its way."""
        return self.arriving.find(key) in self.parts and key not in self.present

    def migrations(self, task: Task, store: Store, chunk: int) -> list[Migrate]:
        """Take the state that leaves out of the store, for each target at least one message."""
        out: list[Migrate] = []
        for transfer in self.message.send:
            target = Task(task.operator, transfer.task)
            states: list[tuple[int, bytes]] = []
            size, part = 0, 0
            for key in self._leaving_keys(transfer.moved, store):
                state = store.take(key)
                if state is None:
                    continue
                if states and size + len(state) > chunk:
                    out.append(
                        Migrate(self.message.epoch, task, target, part, False, tuple(states))
                    )
                    states, size, part = [], 0, part + 1
                states.append((key, state))
                size += len(state)
            out.append(Migrate(self.message.epoch, task, target, part, True, tuple(states)))
        return out

    def _leaving_keys(self, moved: Moved, store: Store) -> list[int]:
        keys = list(moved.keys)
        for first, last in moved.ranges:
            keys += sorted(key for key in store.keys(first, last) if not self.arriving.tabled(key))
        return keys
