"""Policies that keep a key on one task, or on few."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pyroute.key_stats import KeyStats
from pyroute.keys import Keys
from pyroute.policies.base import Done, Policy, Records, Tasks
from pyroute.rebalance import rebalance
from pyroute.ring import Ring
from pyroute.router import Router
from pyroute.space_saving import SpaceSaving

__all__ = [
    "ConsistentGrouping",
    "DChoices",
    "Dkg",
    "Hash",
    "Kip",
    "Locality",
    "MinMig",
    "MinTable",
    "Mixed",
    "MixedBF",
    "PartialKeyGrouping",
    "Readj",
    "WChoices",
]

Ids = npt.NDArray[np.uint64]
_ALL = 0  # choices: every task


def _mixed(ids: Ids, salt: int) -> Ids:
    """Another hash of keys, for each salt."""
    h = ids ^ np.uint64((salt * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
    h = (h ^ h >> np.uint64(33)) * np.uint64(0xC2B2AE3D27D4EB4F)
    h = (h ^ h >> np.uint64(29)) * np.uint64(0x165667B19E3779F9)
    return h ^ h >> np.uint64(32)


def _spread(candidates: Any, choices: Any, loads: Any, out: Any) -> None:
    """Each record to the least loaded of its first so many candidates; 0: of all tasks."""
    for i in range(out.size):
        if choices[i] == 0:
            best = 0
            for task in range(1, loads.size):
                if loads[task] < loads[best]:
                    best = task
        else:
            best = candidates[i, 0]
            for j in range(1, choices[i]):
                if loads[candidates[i, j]] < loads[best]:
                    best = candidates[i, j]
        loads[best] += 1
        out[i] = best


def _first_with_room(ids: Any, loads: Any, seen: int, slack: float, tries: int, out: Any) -> None:
    """Each record to its key's first choice below the mean load, else to the least loaded tried.

    Choice j of a key is as `_mixed` with salt j + 1 has it.
    """
    number = np.uint64(loads.size)
    for i in range(out.size):
        room = (1 + slack) * (seen + i + 1) / loads.size
        best = np.int64(-1)
        salt = np.uint64(0x632BE59BD9B4E019)
        for _ in range(tries):
            salt += np.uint64(0x9E3779B97F4A7C15)
            h = ids[i] ^ salt
            h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC2B2AE3D27D4EB4F)
            h = (h ^ (h >> np.uint64(29))) * np.uint64(0x165667B19E3779F9)
            at = np.int64((h ^ (h >> np.uint64(32))) % number)
            if best < 0 or loads[at] < loads[best]:
                best = at
            if loads[at] < room:
                best = at
                break
        loads[best] += 1
        out[i] = best


# Loops over records: compiled where numba is there, the same without it.
_numba: Any = None


def _fast(function: Any) -> Any:
    global _numba
    if _numba is None:
        _numba = import_module("numba") if find_spec("numba") else False
    if _numba is False:
        return function
    compiled = _COMPILED.get(function)
    if compiled is None:
        compiled = _COMPILED[function] = _numba.njit(nogil=True, cache=True)(function)
    return compiled


_COMPILED: dict[Any, Any] = {}


class Hash(Policy):
    """The home of the key: consistent hashing."""

    name: ClassVar[str] = "hash"
    keyed: ClassVar[bool] = True

    def start(self) -> None:
        """The ring."""
        self._ring = Ring(self.tasks)

    def route(self, records: Records) -> Tasks:
        """Each record to its home."""
        return self._ring.homes(records.keys)


class PartialKeyGrouping(Policy):
    """The less loaded of the two tasks of a key, by records sent (PKG).

    Compared with PartialKeyGrouping.java of nathanmarz/storm: the same, with other hashes.
    """

    name: ClassVar[str] = "partial key grouping"
    splits: ClassVar[bool] = True

    def start(self) -> None:
        """Nothing sent yet."""
        self._loads = np.zeros(self.tasks, np.int64)

    def _choices(self, records: Records) -> tuple[npt.NDArray[np.int64], int]:
        """Candidates of each record, and how many the most has."""
        return np.full(len(records), 2), 2

    def route(self, records: Records) -> Tasks:
        """One by one, as loads grow."""
        choices, most = self._choices(records)
        candidates = np.empty((len(records), most), np.int32)
        for j in range(most):
            candidates[:, j] = _mixed(records.ids, j + 1) % np.uint64(self.tasks)
        out = np.empty(len(records), np.int32)
        _fast(_spread)(candidates, choices, self._loads, out)
        return out


class _HeavyKeys(PartialKeyGrouping):
    """Two choices for most keys, more for the heavy ones, which are counted on the way.

    Compared with LBDChoice.java and LBWChoice.java of anisnasir/SLBSimulator (at b170293) and
    DChoiceGrouping.java of anisnasir/SLBStorm (at 782c188). The same: heavy from 2 / (10 n) of the
    records, counted by Space Saving, least loaded by records sent. Theirs has 100 counters, adds a
    counter's error to its count a second time, and looks at every record, where this looks once in
    `every` records.
    """

    every: int | None = 1000

    def __init__(self, threshold: float | None = None, capacity: int | None = None) -> None:
        self._threshold, self._capacity = threshold, capacity

    def start(self) -> None:
        """Heavy: above a fifth of a task's share."""
        super().start()
        self._least = self._threshold or 1 / (5 * self.tasks)
        self._counts = SpaceSaving(self._capacity or max(100, 10 * self.tasks))

    def _heavy(self) -> tuple[Ids, npt.NDArray[np.float64]]:
        """Heavy keys, ascending, and their shares, descending by share."""
        top = self._counts.top()
        shares = top.counts / max(self._counts.total, 1)
        ids = np.array(top.values, np.int64).view(np.uint64) if len(top.values) else np.empty(0)
        heavy = shares > self._least
        return np.asarray(ids, np.uint64)[heavy], shares[heavy]

    def _number(self, shares: npt.NDArray[np.float64]) -> int:
        """Choices of a heavy key."""
        raise NotImplementedError

    def _choices(self, records: Records) -> tuple[npt.NDArray[np.int64], int]:
        ids, shares = self._heavy()
        self._counts.observe(records.ids.view(np.int64))
        number = self._number(shares) if len(ids) else 2
        choices = np.where(np.isin(records.ids, ids), number, 2)
        return choices, max(2, number)


class DChoices(_HeavyKeys):
    """Heavy keys on as few tasks as balance needs (D-Choices).

    As few as meet the condition of Nasir et al. (2016) for every number of heaviest keys, with a
    slack of 0.0001; the authors' code (`_HeavyKeys`) asks it of one and of all, starts at the
    heaviest key's share times n, below which it cannot hold, and does not multiply the slack.
    """

    name: ClassVar[str] = "D-Choices"

    def _number(self, shares: npt.NDArray[np.float64]) -> int:
        n, slack, rest = self.tasks, 1e-4, 1 - float(shares.sum())
        before = np.cumsum(shares)
        heads = np.arange(1, len(shares) + 1)
        for d in range(2, n):
            reached = n - n * ((n - 1) / n) ** (heads * d)
            load = before + (reached / n) ** d * (before[-1] - before) + (reached / n) ** 2 * rest
            if (load <= reached * (1 / n + slack)).all():
                return d
        return _ALL


class WChoices(_HeavyKeys):
    """Heavy keys on any task (W-Choices)."""

    name: ClassVar[str] = "W-Choices"

    def _number(self, shares: npt.NDArray[np.float64]) -> int:  # noqa: ARG002
        return _ALL


class _Measured(Policy):
    """A plan per interval, from the time that keys took."""

    keyed: ClassVar[bool] = True

    def start(self) -> None:
        """Statistics of the interval."""
        self._stats = KeyStats(window=5)

    def done(self, records: Done) -> None:
        """The time each key took, and a unit of state for each record."""
        self._stats.observe(Keys.from_ids(records.ids), records.times, np.ones(len(records), int))


class _Rebalanced(_Measured):
    """A routing table over a ring, planned anew after every interval."""

    algorithm: ClassVar[str]

    def __init__(self, max_imbalance: float = 0.08, **options: Any) -> None:
        self._options = {"max_imbalance": max_imbalance, **options}

    def start(self) -> None:
        """A ring alone."""
        super().start()
        self.router = Router(self.tasks)

    def route(self, records: Records) -> Tasks:
        """By table and ring."""
        return self.router.route(records.keys)

    def interval(self) -> None:
        """Plan for what was measured."""
        snapshot = self._stats.close_interval()
        if len(snapshot.costs):
            plan = rebalance(snapshot, self.router, algorithm=self.algorithm, **self._options)
            self.router = self.router.apply(plan)


class Readj(_Rebalanced):
    """Rebalancing by pairs of tasks (Readj)."""

    name: ClassVar[str] = "Readj"
    algorithm: ClassVar[str] = "readj"


class MinTable(_Rebalanced):
    """The smallest routing table (paper 002)."""

    name: ClassVar[str] = "MinTable"
    algorithm: ClassVar[str] = "min_table"


class MinMig(_Rebalanced):
    """The least state moved (paper 002)."""

    name: ClassVar[str] = "MinMig"
    algorithm: ClassVar[str] = "min_mig"


class Mixed(_Rebalanced):
    """Little state moved by a table of bounded size (paper 002)."""

    name: ClassVar[str] = "Mixed"
    algorithm: ClassVar[str] = "mixed"


class MixedBF(_Rebalanced):
    """Mixed, every number of keys that move back tried (paper 002)."""

    name: ClassVar[str] = "MixedBF"
    algorithm: ClassVar[str] = "mixed_bf"


def _by_name(ids: Ids, named: Ids, tasks: Tasks, others: Tasks) -> Tasks:
    """The task of each key that is named, ascending, and of all others the one given."""
    if not len(named):
        return others
    at = np.searchsorted(named, ids) % len(named)
    return np.where(named[at] == ids, tasks[at], others).astype(np.int32)


class _Explicit(_Measured):
    """A few keys by name, all others by buckets of a hash, each bucket with an owner."""

    def __init__(self, buckets_per_task: int = 10) -> None:
        self._per_task = buckets_per_task

    def start(self) -> None:
        """Buckets in turn."""
        super().start()
        self._owners = np.arange(self._per_task * self.tasks, dtype=np.int32) % self.tasks
        self._named = np.empty(0, np.uint64)
        self._tasks_of = np.empty(0, np.int32)

    def _bucket(self, ids: Ids) -> npt.NDArray[np.int64]:
        return (_mixed(ids, 1) % np.uint64(len(self._owners))).astype(np.int64)

    def route(self, records: Records) -> Tasks:
        """By name, else by bucket."""
        others = self._owners[self._bucket(records.ids)]
        return _by_name(records.ids, self._named, self._tasks_of, others)

    def _set(self, named: dict[int, int]) -> None:
        self._named = np.array(sorted(named), np.uint64)
        self._tasks_of = np.array([named[key] for key in sorted(named)], np.int32)

    def _costs(self) -> tuple[Ids, npt.NDArray[np.float64]]:
        """Keys of the interval by cost, descending, ties by id."""
        snapshot = self._stats.close_interval()
        order = np.lexsort((snapshot.ids, -snapshot.costs))
        return snapshot.ids[order], snapshot.costs[order]


class Dkg(_Explicit):
    """Heavy keys and buckets of the rest, placed greedily after the first interval (DKG).

    Compared with DKGBuilder.java, GreedyMultiProcessorScheduler.java and DKGStorm.java of
    rivetti/dkg_storm (at d460889). The same: learn once, then the heaviest first, be it a key or a
    bucket, to the least loaded task; at equal weight buckets first, the last one first. There the
    threshold and the number of buckets are the caller's, weights are counts of records by Space
    Saving, and the records it learns from go nowhere; here a tenth of a task's share, ten buckets a
    task, the time that keys took, as all planners here, and those records go by hash.
    """

    name: ClassVar[str] = "DKG"

    def start(self) -> None:
        """Hash until then."""
        super().start()
        self._learned = False

    def interval(self) -> None:
        """Learn once."""
        if self._learned:
            return
        ids, costs = self._costs()
        if not len(ids):
            return
        heavy = costs >= costs.sum() / (10 * self.tasks)
        buckets = np.bincount(self._bucket(ids[~heavy]), costs[~heavy], len(self._owners))
        items = [(-cost, 1, int(key)) for cost, key in zip(costs[heavy], ids[heavy], strict=True)]
        items += [(-cost, 0, -bucket) for bucket, cost in enumerate(buckets.tolist())]
        loads, named = np.zeros(self.tasks), {}
        for cost, is_key, which in sorted(items):
            task = int(loads.argmin())
            loads[task] -= cost
            if is_key:
                named[which] = task
            else:
                self._owners[-which] = task
        self._set(named)
        self._learned = True


class Kip(_Explicit):
    """Key isolator partitioning: heavy keys by name, the rest by weighted buckets (KIP).

    After every interval the heaviest keys, 2 for each task, are placed in order: a key stays where
    it is if that leaves the task within the mean or the heaviest key, or if it is the task's first
    one, else it goes where its bucket is on the same conditions, else to the least loaded task.
    What the tasks still lack of an even level is their weight, and buckets go from those with too
    many to those with too few for it: light keys are taken to be spread evenly over the buckets.

    Compared with KeyIsolatorPartitioner.scala, PartitioningInfo.scala and
    ConsistentHashPartitioner.scala of g-jozsef/dr-microbenchmarks (at b5a511c): the same, with 100
    buckets a task and 0.001 of slack. There weights are shares of records, here of the time that
    keys took, as all planners here; the level there takes the tasks in any order, here the fullest
    first, as its comment asks; and its first buckets are runs, here they are dealt in turn.
    """

    name: ClassVar[str] = "KIP"

    def __init__(self, buckets_per_task: int = 100, slack: float = 0.001) -> None:
        super().__init__(buckets_per_task)
        self._slack = slack

    def interval(self) -> None:
        """Place anew."""
        ids, costs = self._costs()
        if not len(ids) or not costs.sum() > 0:
            return
        shares = costs / costs.sum()
        heavy = ids[: 2 * self.tasks]
        allowed = max(float(shares[0]), 1 / self.tasks) + self._slack
        now = self.route(Records(heavy, np.zeros(len(heavy)), np.zeros(self.tasks, np.int64)))
        homes = self._owners[self._bucket(heavy)]
        loads, named = np.zeros(self.tasks), {}
        for key, share, current, home in zip(heavy, shares, now, homes, strict=False):
            task = next(
                (
                    each
                    for each in (int(current), int(home))
                    if loads[each] == 0 or loads[each] + share <= allowed
                ),
                int(loads.argmin()),
            )
            loads[task] += share
            named[int(key)] = task
        self._set(named)
        self._weigh(np.maximum(_level(loads) - loads, 0))

    def _weigh(self, weights: npt.NDArray[np.float64]) -> None:
        """Buckets in proportion to the weights, as few as that takes to another task."""
        if not weights.sum() > 0:
            return
        number = len(self._owners)
        borders = np.round(np.cumsum(weights) / weights.sum() * number).astype(np.int64)
        lacking = np.diff(borders, prepend=0) - np.bincount(self._owners, minlength=self.tasks)
        to = np.repeat(np.arange(self.tasks), np.maximum(lacking, 0))
        given = [
            np.flatnonzero(self._owners == task)[: -lacking[task]]
            for task in np.flatnonzero(lacking < 0)
        ]
        if given:
            self._owners[np.sort(np.concatenate(given))] = to


def _level(loads: npt.NDArray[np.float64]) -> float:
    """Up to where tasks with these shares of the load are filled by what is left of it."""
    fullest = -np.sort(-loads)
    above, level = 0.0, 1 / len(loads)
    for i, load in enumerate(fullest[:-1].tolist()):
        if load < level:
            break
        above += load
        level = (1 - above) / (len(loads) - i - 1)
    return level


class ConsistentGrouping(Policy):
    """Virtual workers of bounded load, dealt to tasks by how busy they are (CG).

    A record goes to the first choice of its key, one virtual worker after the other, that is below
    the mean load; after every interval the task with the longest queue gives one of its virtual
    workers to the one with the shortest.

    Compared with ConsistentGroupingPoRCSingleSource.java of anisnasir/storm-simulator (at 0ffff0f):
    the same choices, with 10 virtual workers a task and a slack of 0.01 as its run-simulation.sh;
    it tries on until one has room, this four times as often as there are virtual workers, and then
    takes the least loaded of them. There a task that says it has too much is paired with the first
    that said it has too little, and gives its last virtual worker; who says so is not in the code.
    """

    name: ClassVar[str] = "consistent grouping"
    splits: ClassVar[bool] = True
    every: int | None = 1000

    def __init__(self, per_task: int = 10, slack: float = 0.01) -> None:
        self._per_task, self._slack = per_task, slack

    def start(self) -> None:
        """Virtual workers in turn."""
        number = self._per_task * self.tasks
        self._owners = np.arange(number, dtype=np.int32) % self.tasks
        self._loads, self._seen = np.zeros(number, np.int64), 0
        self._lengths = np.zeros(self.tasks, np.int64)

    def route(self, records: Records) -> Tasks:
        """One by one, as loads grow."""
        self._lengths = records.lengths
        virtual = np.empty(len(records), np.int32)
        tries = 4 * len(self._owners)
        with np.errstate(over="ignore"):
            _fast(_first_with_room)(
                records.ids, self._loads, self._seen, self._slack, tries, virtual
            )
        self._seen += len(records)
        return self._owners[virtual]

    def interval(self) -> None:
        """From the busiest to the idlest."""
        busy, idle = int(self._lengths.argmax()), int(self._lengths.argmin())
        owned = np.flatnonzero(self._owners == busy)
        if self._lengths[busy] > self._lengths[idle] + 1 and len(owned) > 1:
            self._owners[owned[-1]] = idle

    def messages(self, records: int, duration: float) -> tuple[int, int]:  # noqa: ARG002
        """A queue length of each task, with every batch."""
        sent = -(-records // (self.every or 1)) * self.tasks
        return sent, 12 * sent


class Locality(_Measured):
    """A key where most of its records come from, as far as balance allows.

    Greedy, the keys of most records first: a key that finds no room goes elsewhere for good.
    """

    name: ClassVar[str] = "locality"

    def __init__(self, max_imbalance: float = 0.03) -> None:
        self._slack = max_imbalance

    def start(self) -> None:
        """Hash until something is known."""
        super().start()
        self._ring = Ring(self.tasks)
        self._named, self._tasks_of = np.empty(0, np.uint64), np.empty(0, np.int32)
        self._ids: list[Ids] = []
        self._sources: list[npt.NDArray[np.int64]] = []

    def route(self, records: Records) -> Tasks:
        """By table and ring."""
        if records.sources is not None:
            self._ids.append(records.ids)
            self._sources.append(records.sources)
        homes = self._ring.homes(records.keys)
        return _by_name(records.ids, self._named, self._tasks_of, homes)

    def interval(self) -> None:
        """Place anew, the keys of most records first."""
        if not self._ids:
            return
        servers = np.unique(self.setting.servers)
        ids, sources = np.concatenate(self._ids), np.concatenate(self._sources)
        self._ids, self._sources = [], []
        keys, at = np.unique(ids, return_inverse=True)
        counts = np.zeros((len(keys), len(servers)), np.int64)
        known = np.isin(sources, servers)
        np.add.at(counts, (at[known], np.searchsorted(servers, sources[known])), 1)
        total = np.bincount(at, minlength=len(keys))
        room = np.full(self.tasks, total.sum() / self.tasks * (1 + self._slack))
        out = np.empty(len(keys), np.int32)
        for key in np.argsort(-total, kind="stable").tolist():
            near = np.flatnonzero(self.setting.servers == servers[counts[key].argmax()])
            task = int(near[room[near].argmax()])
            if room[task] < total[key]:
                task = int(room.argmax())
            room[task] -= total[key]
            out[key] = task
        self._named, self._tasks_of = keys, out
