"""The interface of all policies.

A policy is asked batch by batch, each time with what it may know then:

>>> class Odd(Policy):
...     name = "odd keys to the last task"
...
...     def route(self, records):
...         return np.where(records.ids % 2 == 1, self.tasks - 1, 0).astype(np.int32)

or, where every decision needs the queues as they are then, record by record in a function that the
arena compiles with numba:

>>> class Shortest(Compiled):
...     name = "join the shortest queue, the last one first"
...
...     @staticmethod
...     def choose(state, lengths, key, now, cost, record):
...         best = lengths.size - 1
...         for task in range(lengths.size - 1, -1, -1):
...             if lengths[task] < lengths[best]:
...                 best = task
...         return best

Tasks are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pyroute._arrays import count, numbers, word
from pyroute.keys import Keys

__all__ = ["Compiled", "Done", "Policy", "Records", "Setting"]

Tasks = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """What a policy is told before the first record.

    Parameters
    ----------
    tasks
        How many.
    seed
        Of whatever it draws.
    delays
        Time that a record is on its way to each task; none by default.
    servers
        Server of each task; by default one of its own.
    refresh
        Time between two looks at the queues, for a policy that looks periodically.
    """

    tasks: int
    seed: int = 0
    delays: Any = None
    servers: Any = None
    refresh: float = 1.0

    def __post_init__(self) -> None:
        tasks = count(self.tasks, "tasks", 1 << 16)
        if tasks < 1:
            raise ValueError(f"tasks: expected at least one task, got {tasks}")
        word(self.seed, "seed")
        delays = np.zeros(tasks) if self.delays is None else numbers(self.delays, "delays")
        if len(delays) != tasks or not (np.isfinite(delays).all() and (delays >= 0).all()):
            raise ValueError(f"delays: expected {tasks} finite numbers >= 0, got {self.delays}")
        servers = np.arange(tasks) if self.servers is None else np.asarray(self.servers, np.int64)
        if len(servers) != tasks:
            raise ValueError(f"servers: expected {tasks}, got {len(servers)}")
        object.__setattr__(self, "delays", delays)
        object.__setattr__(self, "servers", servers)


@dataclass(frozen=True)
class Records:
    """A batch that asks for tasks."""

    ids: npt.NDArray[np.uint64]
    """Keys."""
    now: Reals
    """When each came."""
    lengths: Ints
    """Records waiting or under way at each task, as far as known when the first one came."""
    sources: npt.NDArray[np.int64] | None = None
    """Server where each comes from, where the trace says so."""
    costs: Reals = field(default_factory=lambda: np.empty(0))
    """What each will cost: for full knowledge alone."""

    @property
    def keys(self) -> Keys:
        """As every call of the package takes them."""
        return Keys.from_ids(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Done:
    """Records that were executed since the last batch, in the order they were done."""

    ids: npt.NDArray[np.uint64]
    tasks: Tasks
    times: Reals
    finish: Reals

    def __len__(self) -> int:
        return len(self.ids)


class Policy:
    """One way to choose tasks; a subclass says `name` and `route`."""

    name: ClassVar[str] = ""
    every: int | None = None
    """Records in a batch; None for all of an interval."""
    splits: ClassVar[bool] = False
    """Whether records of one key may be on several tasks at once, so that results are merged."""
    keyed: ClassVar[bool] = False
    """Whether a task holds the state of its keys: what changes its task, moves."""

    tasks: int
    setting: Setting

    def begin(self, setting: Setting) -> None:
        """Forget everything; `start` is what a subclass adds."""
        self.setting, self.tasks = setting, setting.tasks
        self.start()

    def start(self) -> None:
        """Prepare for the first record."""

    def route(self, records: Records) -> Tasks:
        """The task of each record."""
        raise NotImplementedError

    def done(self, records: Done) -> None:
        """Take note of records that were executed."""

    def interval(self) -> None:
        """Take note that an interval ends."""

    def messages(self, records: int, duration: float) -> tuple[int, int]:  # noqa: ARG002
        """Messages and their bytes, besides the records themselves."""
        return 0, 0


class Compiled(Policy):
    """A policy that decides record by record, by a function that numba can compile."""

    choose: ClassVar[Callable[..., int]]
    """(state, lengths, key, now, cost, record) -> task; a static method."""
    noted: ClassVar[Callable[..., None] | None] = None
    """(state, task, key, time, now): a record was executed; a static method, or None."""

    def state(self) -> Reals:
        """What the function may read and write, for a new replay."""
        return np.zeros(1)

    def route(self, records: Records) -> Tasks:
        """Without numba, where a policy is used by itself."""
        state: Any = getattr(self, "_state", None)
        if state is None:
            self._state = state = self.state()
        lengths = records.lengths.copy()
        out = np.empty(len(records), np.int32)
        costs = records.costs if len(records.costs) else np.zeros(len(records))
        for i in range(len(records)):
            out[i] = type(self).choose(state, lengths, records.ids[i], records.now[i], costs[i], i)
            lengths[out[i]] += 1
        return out
