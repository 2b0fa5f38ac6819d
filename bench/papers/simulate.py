"""Policies over streams cut into intervals: what each plans, moves and meets.

A stream is how often each of its keys comes in each interval. After an interval a policy plans from
its snapshot (costs: records, smoothed where asked for; state: records of the last `window`
intervals), and the plan is judged by the interval it was made from ("planned") and by the one that
follows ("next").
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

import pyroute as pr
from pyroute import workloads

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# From a snapshot and a router, a plan and the CPU seconds it took.
Planner = Callable[[Any, Any], tuple[Any, float]]


@dataclass(frozen=True, eq=False)
class Stream:
    """Records per key and interval."""

    name: str
    ids: npt.NDArray[np.uint64]
    counts: Sequence[Ints]

    @cached_property
    def keys(self) -> pr.Keys:
        return pr.Keys.from_ids(self.ids)

    def snapshots(self, window: int, smoothing: float = 0.0) -> list[pr.Snapshot]:
        """What planners read after each interval; the same for every policy."""
        stats = pr.KeyStats(window=window, smoothing=smoothing)
        out = []
        for counts in self.counts:
            there = np.flatnonzero(counts)
            records = counts[there]
            stats.observe(pr.Keys.from_ids(self.ids[there]), costs=records, state_sizes=records)
            out.append(stats.close_interval())
        return out


@dataclass(frozen=True)
class Setting:
    """Parameters of the generator; the defaults are the paper's, as far as they are known."""

    keys: int = 100_000
    tasks: int = 15
    skew: float = 0.85
    fluctuation: float = 1.0
    intervals: int = 50
    seed: int = 1


def trace(setting: Setting) -> Iterator[Ints]:
    """Counts of the keys 0, 1, ... by interval."""
    return workloads.fluctuating_zipf(
        setting.keys,
        homes=pr.Ring(setting.tasks).homes(np.arange(setting.keys)),
        tasks=setting.tasks,
        skew=setting.skew,
        fluctuation=setting.fluctuation,
        intervals=setting.intervals,
        seed=setting.seed,
    )


@lru_cache(maxsize=2)
def generated(setting: Setting) -> Stream:
    return Stream("generator", pr.keys(np.arange(setting.keys)).ids, list(trace(setting)))


@lru_cache(maxsize=3)
def snapshots(setting: Setting, window: int) -> list[pr.Snapshot]:
    return generated(setting).snapshots(window)


@dataclass
class Outcome:
    """What a policy did, interval by interval."""

    planned: list[float] = field(default_factory=list)  # max / mean, of the interval planned from
    following: list[float] = field(default_factory=list)  # max / mean of the next interval
    moved: list[float] = field(default_factory=list)  # share of all state
    table: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # CPU, of the call
    kernel: list[float] = field(default_factory=list)  # of planning proper
    to_bound: list[float] = field(default_factory=list)  # greatest load / lower bound
    reasons: list[list[str]] = field(default_factory=list)
    over: list[int] = field(default_factory=list)  # intervals whose plan is over the limit
    least: list[float] = field(default_factory=list)  # share of all state that had to move


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    out = call()
    return out, time.process_time() - start


def planner(**options: Any) -> Planner:
    def make(snapshot: Any, router: Any) -> tuple[Any, float]:
        return timed(lambda: pr.rebalance(snapshot, router, **options))

    return make


def sigmas(snapshot: Any, tasks: int, most: int = 2048) -> list[float]:
    """1, 1/2, ... until more than `most` keys take part, or all do."""
    costs = snapshot.costs
    mean = costs.sum() / tasks
    out = [1.0]
    while (costs >= out[-1] * mean).sum() < min(most, (costs > 0).sum()):
        out.append(out[-1] / 2)
    return out


def best_readj(**options: Any) -> Planner:
    """Readj at its best parameter, and the time of that one alone."""

    def make(snapshot: Any, router: Any) -> tuple[Any, float]:
        found = []
        for sigma in sigmas(snapshot, len(router.tasks)):
            make_one = planner(**{**options, "algorithm": "readj", "sigma": sigma})
            found.append(make_one(snapshot, router))

        return min(found, key=lambda pair: worth(pair[0], options["max_imbalance"]))

    return make


def worth(plan: Any, max_imbalance: float) -> tuple[bool, float]:
    """Less is better: within the limit with little migration, else the lower greatest load."""
    fits = max_over_mean(plan.loads_after) <= 1 + max_imbalance + 1e-9
    return not fits, plan.migration_cost if fits else plan.loads_after.max()


def max_over_mean(loads: Any) -> float:
    return float(np.max(loads) / np.mean(loads))


def loads_of(stream: Stream, router: Any, tasks: int, interval: int) -> Floats:
    """Records on each task."""
    return np.bincount(router.route(stream.keys), stream.counts[interval], tasks)


def drive(
    stream: Stream,
    seen: Sequence[Any],
    tasks: int,
    make: Planner,
    *,
    allowed: float,
    intervals: Iterable[int] | None = None,
    ring: Any = None,
    bound: bool = False,
) -> tuple[Outcome, Any]:
    """Plan after every interval and apply it; also the router at the end.

    `allowed` is the imbalance that plans may leave. With `bound`, what had to move is noted too.
    """
    outcome = Outcome()
    router = pr.Router(pr.Ring(tasks) if ring is None else ring)
    for interval in range(len(seen)) if intervals is None else intervals:
        if bound:
            at = router.route(pr.Keys.from_ids(seen[interval].ids))
            outcome.least.append(unavoidable(seen[interval], at, tasks, allowed))
        plan, seconds = make(seen[interval], router)
        router = router.apply(plan)
        outcome.planned.append(max_over_mean(plan.loads_after))
        outcome.moved.append(float(plan.migration_share))
        outcome.table.append(len(plan.table))
        outcome.seconds.append(seconds)
        outcome.kernel.append(float(plan.seconds))
        outcome.to_bound.append(float(np.max(plan.loads_after) / plan.lower_bound))
        outcome.reasons.append([str(reason) for reason in plan.reasons])
        if outcome.planned[-1] > 1 + allowed + 1e-9:
            outcome.over.append(len(outcome.planned) - 1)
        if interval + 1 < len(stream.counts):
            following = loads_of(stream, router, tasks, interval + 1)
            outcome.following.append(max_over_mean(following))
    return outcome, router


def unavoidable(snapshot: Any, at: npt.NDArray[np.int32], tasks: int, allowed: float) -> float:
    """Least share of all state that has to move, whatever the plan, for no load above the limit.

    A task that is over the limit has to shed the excess. Where keys could be cut, it would best
    shed those of least state per cost, the last one in part (the fractional knapsack); whole keys
    never do with less. Where they go is not looked at, nor the table, so the true least may be
    more.
    """
    costs, sizes = snapshot.costs, snapshot.state_sizes.astype(np.float64)
    loads = np.bincount(at, costs, tasks)
    limit = (1 + allowed) * costs.sum() / tasks
    least = 0.0
    for task in np.flatnonzero(loads > limit):
        keys = np.flatnonzero((at == task) & (costs > 0))
        keys = keys[np.argsort(sizes[keys] / costs[keys], kind="stable")]
        cost, size = (np.concatenate([[0], np.cumsum(of[keys])]) for of in (costs, sizes))
        least += float(np.interp(loads[task] - limit, cost, size))
    return least / float(sizes.sum())


def hash_skewness(stream: Stream, tasks: int, ring: Any = None) -> list[float]:
    """Max / mean of each interval with every key at home."""
    homes = (pr.Ring(tasks) if ring is None else ring).homes(stream.keys)
    return [max_over_mean(np.bincount(homes, counts, tasks)) for counts in stream.counts]


def pkg_skewness(pkg: Any, stream: Stream, tasks: int, seed: int) -> list[float]:
    """Max / mean of each interval with partial key grouping."""
    first = pr.Ring(tasks).homes(stream.keys)
    second = pr.Ring(tasks, salt=1).homes(stream.keys)
    return [
        max_over_mean(pkg.loads(counts, first, second, tasks, seed + interval))
        for interval, counts in enumerate(stream.counts)
    ]
