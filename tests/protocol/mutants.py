"""Machines that are wrong in one place each; the simulator has to find every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pyroute as pr
from pyroute.protocol import (
    MANAGER,
    Abort,
    Aborted,
    Ack,
    Apply,
    Done,
    Full,
    Hold,
    Inbox,
    Instance,
    Manager,
    Migrate,
    Outbox,
    Propagate,
    Send,
    configuration,
    routes,
)
from pyroute.protocol import manager as manager_module
from pyroute.protocol.instance import Phase
from pyroute.protocol.move import Lookup


class NoEpochCheck(Instance):
    """Takes a message of an older epoch for one of this epoch."""

    def receive(self, message, now=0.0):
        if message.epoch < self.epoch:
            message = replace(message, epoch=self.epoch)
        return super().receive(message, now)


class MigrateOfAnyEpoch(Instance):
    """Misses the epoch check for state alone."""

    def receive(self, message, now=0.0):
        if message.epoch < self.epoch and isinstance(message, Migrate):
            message = replace(message, epoch=self.epoch)
        return super().receive(message, now)


class PropagateOfAnyEpoch(Instance):
    """Misses the epoch check for Propagate alone."""

    def receive(self, message, now=0.0):
        if message.epoch < self.epoch and isinstance(message, Propagate):
            message = replace(message, epoch=self.epoch)
        return super().receive(message, now)


class FlushedEarly(Instance):
    """Gives held records back when it acts, before their state came."""

    def _act(self, move):
        out = super()._act(move)
        for key, payloads in self._held.items():
            out += [Apply(key, payload) for payload in payloads]
        self._held.clear()
        self.buffered = 0
        return out


class FlushedByAnyState(Instance):
    """Takes the first part of state for all of it."""

    def _install(self, message):
        if self._move is not None and message.source.number in self._move.parts:
            message = replace(message, last=True)
        return super()._install(message)


class FlushedBackwards(Instance):
    """Gives held records back in the wrong order."""

    def _release(self):
        return super()._release()[::-1]


class AckLost(Instance):
    """Acknowledges once: an Ack that is lost is never said again."""

    def _acknowledge(self, message):
        if self.phase is Phase.STAGED and getattr(self, "acknowledged", 0) == message.epoch:
            return []
        self.acknowledged = message.epoch
        return super()._acknowledge(message)


class DoneLost(Instance):
    """Says Done once."""

    def _report(self, message):
        return [m for m in super()._report(message) if not isinstance(m, Done)]


class ActsOnFirstPropagate(Instance):
    """Does not wait for all of its predecessors."""

    def _propagate(self, message):
        assert self._move is not None
        self._move.waiting &= {message.source}
        return super()._propagate(message)


class CountsPropagates(Instance):
    """Counts messages instead of senders, so that a doubled one counts twice."""

    def _propagate(self, message):
        assert self._move is not None
        if message.source not in self._move.waiting:
            message = replace(message, source=min(self._move.waiting))
        return super()._propagate(message)


class MigratesBeforeRouting(Instance):
    """Sends state away and goes on as before until all of its own came."""

    def _act(self, move):
        before = dict(self._routes)
        out = super()._act(move)
        if self._move is not None:
            self._routes.update(before)
        return out

    def _settle(self, move):
        if not move.parts:
            self._routes.update(move.after)
        return super()._settle(move)


class PropagatesFirst(Instance):
    """Propagates as soon as one predecessor did, but still routes as before."""

    def _propagate(self, message):
        first = self._move is not None and len(self._move.waiting) == len(self._before)
        out = super()._propagate(message)
        if first and self._move is not None and self._move.waiting:
            out += [Propagate(self.epoch, self.task, task) for task in self._after]
        return out


class StateTwice(Instance):
    """Installs state again when it comes again."""

    def _install(self, message):
        for key, state in message.states:
            if self._move is not None and message.source.number not in self._move.parts:
                self.store.put(key, state)
        return super()._install(message)

    def _ignore(self, message):
        if isinstance(message, Migrate):
            for key, state in message.states:
                self.store.put(key, state)
        return super()._ignore(message)


class NothingToMigrate(Instance):
    """Says nothing where a key that leaves has no state."""

    def _act(self, move):
        return [m for m in super()._act(move) if not isinstance(m, Migrate) or m.states]


class DoneEarly(Instance):
    """Says Done when it acts, with state still on its way."""

    def _act(self, move):
        out = super()._act(move)
        return (
            out if self.phase is not Phase.MOVING else [*out, Done(self.epoch, self.task, MANAGER)]
        )


class ForgetsHeld(Instance):
    """A crash loses the held records."""

    @classmethod
    def restore(cls, data, **options):
        self = super().restore(data, **options)
        self._held.clear()
        self.buffered = len(self._kept)
        return self


class ForgetsKept(Instance):
    """A crash loses the records that were kept back."""

    @classmethod
    def restore(cls, data, **options):
        self = super().restore(data, **options)
        self.buffered -= len(self._kept)
        self._kept.clear()
        return self


class ForgetsPropagates(Instance):
    """A crash loses which predecessors propagated."""

    @classmethod
    def restore(cls, data, **options):
        self = super().restore(data, **options)
        if self._move is not None and self.phase is Phase.STAGED:
            self._move.waiting = set(self._before)
        return self


class ForgetsArrived(Instance):
    """A crash loses which state came."""

    @classmethod
    def restore(cls, data, **options):
        self = super().restore(data, **options)
        if self._move is not None:
            self._move.parts = {t.task: 0 for t in self._move.message.receive}
        return self


class ForgetsEpoch(Instance):
    """A crash loses which epoch it was."""

    @classmethod
    def restore(cls, data, **options):
        self = super().restore(data, **options)
        if self.phase is Phase.SETTLED:
            self.epoch = 0
        return self


class DropsWhenFull(Instance):
    """Says Hold where the buffer is full."""

    def record(self, key, payload):
        answer = super().record(key, payload)
        return Hold(key) if isinstance(answer, Full) else answer


class KeepsForeign(Instance):
    """Applies the record of a key that is another's."""

    def record(self, key, payload):
        answer = super().record(key, payload)
        return answer if isinstance(answer, Hold | Full) else Apply(key, payload)


class SendsOnWhilePaused(Instance):
    """Keeps back the first record of a key only."""

    def route(self, operator, key, payload):
        if any(kept[:2] == (operator, key) for kept in self._kept):
            return Send(self._targets[operator][self.owner(operator, key)], operator, key, payload)
        return super().route(operator, key, payload)


class ResumesBackwards(Instance):
    """Sends on what it kept back in the wrong order."""

    def _resume(self, message):
        self._kept.reverse()
        return super()._resume(message)


class StaysStaged(Instance):
    """Answers an abort, and stays ready."""

    def receive(self, message, now=0.0):
        if isinstance(message, Abort) and self.phase is Phase.STAGED:
            return [Aborted(message.epoch, self.task, MANAGER)]
        return super().receive(message, now)


class ForgetsAbort(Instance):
    """Does not remember an abort that came before its configuration."""

    def _note_abort(self, message):
        before = self.epoch
        out = super()._note_abort(message)
        self.epoch, self.aborted = before, False
        return out


class NoResend(Manager):
    """Asks once."""

    def tick(self, now):
        return []


class OneAckMissing(Manager):
    """Decides before the last Ack."""

    def _count_ack(self, message, now):
        if len(self._waiting) == 2:
            self._waiting = {message.source}
        return super()._count_ack(message, now)


class AnyEpoch(Manager):
    """Takes an answer of an older epoch for one of this epoch."""

    def receive(self, message, now):
        if message.epoch < self.epoch:
            message = replace(message, epoch=self.epoch)
        return super().receive(message, now)


class CountsAnswers(Manager):
    """Counts messages instead of senders."""

    def _answered(self, message):
        if message.source not in self._waiting and self._waiting:
            message = replace(message, source=min(self._waiting))
        return super()._answered(message)


class StoresLate(Manager):
    """Sends the configuration and stores it when the first Ack comes."""

    def _prepare(self, plan, now):
        storage, self.storage = self.storage, _Later(self.storage)
        try:
            return super()._prepare(plan, now)
        finally:
            self.later, self.storage = self.storage.kept, storage

    def _count_ack(self, message, now):
        for name, data in getattr(self, "later", ()):
            self.storage.create(name, data)
        self.later = []
        return super()._count_ack(message, now)


class _Later:
    """A storage that puts off what is created."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.kept: list[tuple[str, bytes]] = []

    def create(self, name: str, data: bytes) -> bool:
        self.kept.append((name, data))
        return True

    def names(self) -> list[str]:
        return [*self.storage.names(), *(name for name, _ in self.kept)]


class DecidesInMemory(Manager):
    """Acts on a decision that it did not store."""

    def _decide(self, outcome):
        return outcome


class EndsEarly(Manager):
    """Ends without waiting for the last Done."""

    def _count_done(self, message, now):
        if len(self._waiting) == 2:
            self._waiting = {message.source}
        return super()._count_done(message, now)


class ResumesEarly(Manager):
    """Resumes without waiting for all to be Done."""

    def _count_done(self, message, now):
        if self._configuration.pause and len(self._waiting) > 1:
            self._waiting = {message.source}
        return super()._count_done(message, now)


class AbortsDecided(Manager):
    """Aborts what was decided, after a restart."""

    def start(self, now):
        if self._configuration is not None and not self.redo:
            self.phase = manager_module.Phase.ABORTING
            self._waiting = set(self.topology.all_tasks)
            return [Abort(self.epoch, MANAGER, task) for task in self.topology.all_tasks]
        return super().start(now)


class AcksForAll(Manager):
    """Takes silence for an Ack after a restart."""

    def start(self, now):
        out = super().start(now)
        if self.phase is manager_module.Phase.PREPARING:
            for task in self.topology.all_tasks[1:]:
                out += self.receive(Ack(self.epoch, task, MANAGER), now)
        return out


def _only_new_table(before: pr.Router, after: pr.Router) -> Any:
    """Forgets keys that leave the table for their home."""
    found = {}
    named = set(after.table.ids.tolist())
    for pair, moved in routes.moves(before, after).items():
        keys = tuple(key for key in moved.keys if key in named)
        if keys or moved.ranges:
            found[pair] = replace(moved, keys=keys)
    return found


def _no_ring(before: pr.Router, after: pr.Router) -> Any:
    """Forgets the intervals of the ring."""
    found = {}
    for pair, moved in routes.moves(before, after).items():
        if moved.keys:
            found[pair] = replace(moved, ranges=())
    return found


def _never_tabled(self: Lookup, key: int) -> bool:
    return False


def _takes_again(self: Inbox, position: int, data: Any) -> Any:
    if position > self.position:
        return None
    self.position = max(self.position, position + 1)
    return data


def _takes_early(self: Inbox, position: int, data: Any) -> Any:
    if position < self.position:
        return None
    self.position = position + 1
    return data


def _forgets_one_more(self: Outbox, position: int) -> None:
    for _ in range(min(len(self._frames), position + 1 - (self.position - len(self._frames)))):
        self._frames.popleft()


@dataclass(frozen=True)
class Mutant:
    name: str
    says: str
    instance: type[Instance] = Instance
    manager: type[Manager] = Manager
    patch: tuple[Any, str, Any] | None = None

    @contextmanager
    def alive(self) -> Iterator[dict[str, Any]]:
        """The classes to use, with everything else as it has to be."""
        classes = {"instance": self.instance, "manager": self.manager}
        if self.patch is None:
            yield classes
        else:
            with mock.patch.object(*self.patch):
                yield classes


def _of(kind: type[Instance | Manager]) -> Mutant:
    says = (kind.__doc__ or "").splitlines()[0]
    if issubclass(kind, Instance):
        return Mutant(kind.__name__, says, instance=kind)
    return Mutant(kind.__name__, says, manager=kind)


MUTANTS = [
    *(_of(kind) for kind in Instance.__subclasses__()),
    *(_of(kind) for kind in Manager.__subclasses__()),
    *(
        Mutant(name, says, patch=patch)
        for name, says, patch in [
            (
                "OnlyNewTable",
                "Leaves out keys that the new table does not name.",
                (configuration, "moves", _only_new_table),
            ),
            (
                "NoRing",
                "Leaves out what the ring moves.",
                (configuration, "moves", _no_ring),
            ),
            (
                "TabledWithRing",
                "Takes keys of the tables along with their interval of the ring.",
                (Lookup, "tabled", _never_tabled),
            ),
            ("InboxTakesAgain", "Takes a frame that it took.", (Inbox, "take", _takes_again)),
            ("InboxTakesEarly", "Takes a frame too early.", (Inbox, "take", _takes_early)),
            (
                "OutboxForgets",
                "Forgets a frame that is not acknowledged.",
                (Outbox, "acknowledged", _forgets_one_more),
            ),
        ]
    ),
]
