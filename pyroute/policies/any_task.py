"""Policies for records that any task may take."""

# A function that numba compiles has the arguments of the interface, used or not.
# ruff: noqa: ARG004

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from pyroute import _core, posg
from pyroute.dynamic_grouping import DynamicGrouping
from pyroute.policies.base import Compiled, Policy, Reals, Records, Tasks

__all__ = [
    "Dynamic",
    "FullKnowledge",
    "JoinShortestQueue",
    "LeastDelay",
    "LoadAware",
    "LocalOrShuffle",
    "Pooled",
    "Posg",
    "Shuffle",
    "TwoChoices",
]

_QUEUE_MESSAGE = 12  # bytes that tell a task's queue length: its id and a number


class Shuffle(Policy):
    """The tasks in turn: Storm's shuffle grouping before it knew loads."""

    name: ClassVar[str] = "shuffle"

    def start(self) -> None:
        """Begin at the first task."""
        self._next = 0

    def route(self, records: Records) -> Tasks:
        """One after the other."""
        out = (self._next + np.arange(len(records))) % self.tasks
        self._next = (self._next + len(records)) % self.tasks
        return out.astype(np.int32)


class LocalOrShuffle(Policy):
    """The tasks of the record's own server in turn; all of them where it has none."""

    name: ClassVar[str] = "local-or-shuffle"

    def start(self) -> None:
        """The tasks of each server."""
        servers = self.setting.servers
        self._of = {int(server): np.flatnonzero(servers == server) for server in set(servers)}
        self._all = np.arange(self.tasks)
        self._next = dict.fromkeys([*self._of, -1], 0)

    def route(self, records: Records) -> Tasks:
        """In turn, server by server."""
        if records.sources is None:
            sources = np.full(len(records), -1)
        else:
            sources = np.where(np.isin(records.sources, list(self._of)), records.sources, -1)
        out = np.empty(len(records), np.int32)
        for source in np.unique(sources).tolist():
            at = np.flatnonzero(sources == source)
            tasks = self._of.get(source, self._all)
            out[at] = tasks[(self._next[source] + np.arange(len(at))) % len(tasks)]
            self._next[source] = (self._next[source] + len(at)) % len(tasks)
        return out


class Dynamic(Policy):
    """Dynamic grouping (paper 003) at a ratio of weights, by default all alike."""

    name: ClassVar[str] = "dynamic grouping"

    def __init__(self, ratio: Any = None, bits: int = 10) -> None:
        self._ratio, self._bits = ratio, bits

    def start(self) -> None:
        """The circle."""
        ratio = [1.0] * self.tasks if self._ratio is None else list(self._ratio)
        self._grouping = DynamicGrouping.from_ratio(ratio, self._bits)
        self._next = 0

    def route(self, records: Records) -> Tasks:
        """The owner of each record's number."""
        out = self._grouping.assign(range(self._next, self._next + len(records)))
        self._next += len(records)
        return out


class _Queues(Compiled):
    """What tells queue lengths: one message for each record that was executed."""

    def messages(self, records: int, duration: float) -> tuple[int, int]:  # noqa: ARG002
        """One from the task for each record."""
        return records, records * _QUEUE_MESSAGE


class JoinShortestQueue(_Queues):
    """The task with the fewest records, the first of equals."""

    name: ClassVar[str] = "join shortest queue"

    @staticmethod
    def choose(state: Any, lengths: Any, key: Any, now: float, cost: float, record: int) -> int:
        """The first least."""
        best = 0
        for task in range(1, lengths.size):
            if lengths[task] < lengths[best]:
                best = task
        return best


class TwoChoices(_Queues):
    """The shorter queue of two tasks drawn at random."""

    name: ClassVar[str] = "power of two choices"

    def state(self) -> Reals:
        """The state of a 31-bit generator, which every double holds exactly."""
        return np.array([float(self.setting.seed * 7919 % 2147483646 + 1)])

    @staticmethod
    def choose(state: Any, lengths: Any, key: Any, now: float, cost: float, record: int) -> int:
        """Lehmer's generator, twice."""
        drawn = (int(state[0]) * 48271) % 2147483647
        one = (drawn >> 8) % lengths.size
        drawn = (drawn * 48271) % 2147483647
        two = (drawn >> 8) % lengths.size
        state[0] = drawn
        best: int = two if lengths[two] < lengths[one] else one
        return best


class LeastDelay(_Queues):
    """The least queue length times the task's usual service time, plus the way there."""

    name: ClassVar[str] = "least estimated delay"

    def state(self) -> Reals:
        """Usual service time of each task (0: not known yet), then the ways."""
        return np.concatenate([np.zeros(self.tasks), self.setting.delays])

    @staticmethod
    def choose(state: Any, lengths: Any, key: Any, now: float, cost: float, record: int) -> int:
        """The first least."""
        best, least = 0, np.inf
        for task in range(lengths.size):
            delay = (lengths[task] + 1) * state[task] + state[lengths.size + task]
            if delay < least:
                best, least = task, delay
        return best

    @staticmethod
    def noted(state: Any, task: int, key: Any, time: float, now: float) -> None:
        """The usual time follows, a twentieth at a time."""
        state[task] = time if state[task] == 0 else 0.95 * state[task] + 0.05 * time


class LoadAware(Compiled):
    """Load-aware shuffle as Storm 2 does it: weights that follow queue lengths, periodically.

    Every `refresh` the weight of a task, 0 to 100 and 100 to begin with, falls by ten where its
    load exceeds the least one by more than 0.05, else rises by one. A thousand slots are then dealt
    to the tasks in proportion to their weights, what is left to those drawn from them, and
    shuffled; records take the slots in turn, from the first one after every look.

    Compared with LoadAwareShuffleGrouping.java of apache/storm (at 01bd4f8): the same, without the
    scopes that prefer a near task. Storm's load is the fill of a receive queue, or min(pending,
    1024) / 1024 for what waits for another worker, whichever is more; here queue length by 1024 for
    all. Storm looks every second (WorkerState.java), other workers tell it every five.
    """

    name: ClassVar[str] = "load-aware shuffle"
    CAPACITY = 1024.0
    SLOTS = 1000

    def state(self) -> Reals:
        """Next look, period, capacity, a generator's state, last slot; then weights and slots."""
        seed = float(self.setting.seed * 7919 % 2147483646 + 1)
        head = [-np.inf, self.setting.refresh, self.CAPACITY, seed, -1.0]
        slots = max(self.SLOTS, 10 * self.tasks)
        return np.concatenate([head, np.full(self.tasks, 100.0), np.zeros(slots)])

    @staticmethod
    def choose(state: Any, lengths: Any, key: Any, now: float, cost: float, record: int) -> int:
        """The next slot; they are dealt anew where it is time to."""
        tasks = lengths.size
        slots = state[5 + tasks :]
        if now >= state[0]:
            weights = state[5 : 5 + tasks]
            least = min(lengths.min() / state[2], 1.0) + 0.05
            for task in range(tasks):
                high = min(lengths[task] / state[2], 1.0) > least
                weights[task] = max(weights[task] - 10, 0) if high else min(weights[task] + 1, 100)
            total, filled = weights.sum(), 0
            for task in range(tasks):
                dealt = int(weights[task] / total * slots.size)
                slots[filled : filled + dealt] = task
                filled += dealt
            drawn = int(state[3])
            for at in range(filled, slots.size):
                drawn = (drawn * 48271) % 2147483647
                slots[at] = slots[(drawn >> 8) % at]
            for at in range(slots.size - 1, 0, -1):
                drawn = (drawn * 48271) % 2147483647
                other = (drawn >> 8) % (at + 1)
                swapped = slots[at]
                slots[at] = slots[other]
                slots[other] = swapped
            state[0], state[3], state[4] = now + state[1], drawn, -1.0
        state[4] = (state[4] + 1) % slots.size
        return int(slots[int(state[4])])

    def messages(self, records: int, duration: float) -> tuple[int, int]:  # noqa: ARG002
        """One per task and look."""
        sent = int(duration / self.setting.refresh + 1) * self.tasks
        return sent, sent * _QUEUE_MESSAGE


class FullKnowledge(Compiled):
    """The task that will be done first, by exact costs and speeds: the ceiling."""

    name: ClassVar[str] = "full knowledge"

    def state(self) -> Reals:
        """Finish time and speed of each task, then the ways; the arena keeps the speeds."""
        return np.concatenate([np.zeros(self.tasks), np.ones(self.tasks), self.setting.delays])

    @staticmethod
    def choose(state: Any, lengths: Any, key: Any, now: float, cost: float, record: int) -> int:
        """The first least."""
        tasks = lengths.size
        best, least = 0, np.inf
        for task in range(tasks):
            begin = max(state[task], now + state[2 * tasks + task])
            finish = begin + cost * state[tasks + task]
            if finish < least:
                best, least = task, finish
        state[best] = least
        return best


class _Loop(Policy):
    """A scheduler and trackers of `pyroute.posg`, joined by a channel."""

    mode: ClassVar[str]

    def __init__(
        self,
        *,
        window: int | None = None,
        tolerance: float = 0.05,
        epsilon: float | None = None,
        delta: float = 0.1,
        delay: float = 0.0,
        **options: Any,
    ) -> None:
        self._tracker = {"window": window, "tolerance": tolerance, "delta": delta}
        self._epsilon, self._delay, self._options = epsilon, delay, options

    def start(self) -> None:
        """New ones."""
        seed = self.setting.seed
        tracker: dict[str, Any] = dict(self._tracker)
        if self._epsilon is not None and self.mode == "posg":
            tracker["epsilon"] = self._epsilon
        options = dict(self._options)
        if self.mode == "pooled" and self.setting.delays.any():
            options.setdefault("latencies", dict(enumerate(self.setting.delays.tolist())))
        scheduler = posg.Scheduler(
            self.tasks, self.mode, self._epsilon, tracker["delta"], seed, **options
        )
        trackers = [
            posg.Tracker(task, seed=seed, mode=self.mode, **tracker) for task in range(self.tasks)
        ]
        self.loop = _core.ClosedLoop(
            scheduler._core, [each._core for each in trackers], self._delay
        )

    @property
    def scheduler(self) -> posg.Scheduler:
        """A copy of the scheduler as it is."""
        return posg.Scheduler._wrap(self.loop.scheduler())

    def route(self, records: Records) -> Tasks:
        """Record by record."""
        out = np.empty(len(records), np.int32)
        for i, (key, now) in enumerate(
            zip(records.ids.tolist(), records.now.tolist(), strict=True)
        ):
            out[i] = self.loop.choose(key, now)
        return out

    def messages(self, records: int, duration: float) -> tuple[int, int]:  # noqa: ARG002
        """Reports, and their bytes; requests travel with records."""
        return self.loop.messages, self.loop.bytes


class Posg(_Loop):
    """Proactive online shuffle grouping (paper 004)."""

    name: ClassVar[str] = "POSG"
    mode: ClassVar[str] = "posg"


class Pooled(_Loop):
    """One sketch for all tasks and a speed for each."""

    name: ClassVar[str] = "pooled"
    mode: ClassVar[str] = "pooled"
