"""What a pass over a source found: skew, hot keys, loads of tasks, and what tables would give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute._typed_json import encode
from pyroute.analyze.scan import Pass
from pyroute.homes import EngineHome
from pyroute.key_profile import HotKeys, KeyProfile
from pyroute.key_stats import Snapshot
from pyroute.plan import Plan
from pyroute.rebalance import rebalance
from pyroute.ring import Ring
from pyroute.router import Router

__all__ = ["Findings", "HashLoad", "TableLoad", "find", "max_by_mean", "snapshot_of"]

FITTED = 1000
"""Ranks that the exponent of Zipf's law is fitted to."""


@dataclass(frozen=True)
class HashLoad:
    """The greatest load of a task by the mean load, where a hash chooses tasks."""

    name: str
    max_by_mean: float
    exact: bool
    """False where the keys that are not hot were sampled."""
    loads: tuple[float, ...]
    doubt: float = 0.0
    """So much of `max_by_mean` may be the chance of a sample."""


@dataclass(frozen=True)
class TableLoad:
    """The same with a routing table over the ring."""

    entries: int
    max_by_mean: float
    split: int = 0
    """Keys that have several tasks."""


@dataclass(frozen=True)
class Findings:
    """What there is to say of a stream of keys."""

    records: int
    total: float
    """Cost of all records; their number where they have none."""
    distinct: float
    exact: bool
    exponent: float | None
    """Of Zipf's law, fitted to the hottest keys; None where there are too few."""
    hot: HotKeys
    unlisted: float
    """No key that is not among the hot ones has more load than this."""
    tasks: int
    hashes: tuple[HashLoad, ...]
    tables: tuple[TableLoad, ...]
    plan: Plan

    @property
    def loads(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Loads of hot keys: what is certain, and what is possible beyond."""
        if len(self.hot.costs):
            return self.hot.costs, self.hot.cost_errors
        return self.hot.records.astype(np.float64), self.hot.record_errors.astype(np.float64)

    def share(self, keys: int) -> float:
        """Share of the load that the so many hottest keys have, at least."""
        if not self.total:
            return 0.0
        return float(self.loads[0][:keys].sum()) / self.total

    @property
    def skewed(self) -> bool:
        """Whether a hash, of those that are shown, leaves a task with much more than the mean."""
        return any(one.max_by_mean - one.doubt > 1.1 for one in self.hashes)

    def _beside(self, listed: int) -> float:
        """The most load of a key that is not among the first, whether it was followed or not."""
        low, error = self.loads
        return max(self.unlisted, float((low + error)[listed:].max(initial=0.0)))

    def document(self, top: int, name: Any = encode) -> dict[str, Any]:
        """As JSON; `name` says how a key is written."""
        low, error = self.loads
        listed = range(min(top, len(low)))
        return {
            "records": self.records,
            "total": self.total,
            "distinct": round(self.distinct),
            "exact": self.exact,
            "zipf_exponent": self.exponent,
            "top_shares": {str(k): self.share(k) for k in (1, 10, 100, 1000)},
            "hot_keys": [
                {
                    "key": name(self.hot.values[i]),
                    "load": float(low[i]),
                    "load_at_most": float(low[i] + error[i]),
                    "records": int(self.hot.records[i]),
                    "records_at_most": int(self.hot.records[i] + self.hot.record_errors[i]),
                    "share": float(low[i]) / self.total if self.total else 0.0,
                }
                for i in listed
            ],
            "unlisted_at_most": self._beside(len(listed)),
            "tasks": self.tasks,
            "hash": [
                {"by": one.name, "max_by_mean": one.max_by_mean, "exact": one.exact}
                for one in self.hashes
            ],
            "tables": [
                {"entries": one.entries, "max_by_mean": one.max_by_mean, "split": one.split}
                for one in self.tables
            ],
            "feasible": self.plan.feasible,
        }


def max_by_mean(loads: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """The greatest load by the mean; 1 where there is none."""
    array = np.asarray(loads, np.float64)
    mean = float(array.mean()) if array.size else 0.0
    return float(array.max()) / mean if mean > 0 else 1.0


def snapshot_of(profile: KeyProfile, ring: Ring, interval: int = 0) -> Snapshot:
    """Hot keys with the load that is certain, and the rest as background of the ring's tasks."""
    hot = profile.hot()
    costs = hot.costs if len(hot.costs) else hot.records.astype(np.float64)
    sizes = np.round(hot.state_sizes).astype(np.int64) if len(hot.state_sizes) else None
    return Snapshot(
        hot.values, costs, sizes, background=profile.background(ring), interval=interval
    )


def find(one: Pass, ring: Ring, *, max_imbalance: float, max_table: int) -> Findings:
    """What a pass found, for the tasks of a ring."""
    profile = one.profile
    hot = profile.hot()
    snapshot = snapshot_of(profile, ring)
    router = Router(ring)
    plan = rebalance(snapshot, router, max_imbalance=max_imbalance, max_table=max_table)
    hashes = [
        HashLoad("ring", 1 + plan.imbalance_before, True, tuple(plan.loads_before.tolist())),
    ]
    if one.home is not None:
        try:
            hashes.append(_engine(one, snapshot, one.home))
        except (TypeError, ValueError):  # of a hot key that the sample had not
            one.no_home()
    return Findings(
        records=profile.records,
        total=profile.total,
        distinct=profile.distinct,
        exact=profile.exact,
        exponent=_exponent(snapshot.costs, profile.total),
        hot=hot,
        unlisted=0.0 if profile.exact else _unlisted(profile),
        tasks=len(ring.tasks),
        hashes=tuple(hashes),
        tables=tuple(_tables(snapshot, router, plan, max_imbalance)),
        plan=plan,
    )


def _unlisted(profile: KeyProfile) -> float:
    rest = profile.rest()
    return float(rest.max()) if rest.size else 0.0


def _engine(one: Pass, snapshot: Snapshot, home: EngineHome) -> HashLoad:
    """Hot keys as they are, the rest by the sample."""
    loads = np.zeros(one.tasks)
    if len(snapshot):
        homes = home.homes(snapshot.values)
        loads += np.bincount(homes, snapshot.costs, minlength=one.tasks)
    rest = one.profile.total - float(snapshot.costs.sum())
    seen = float(one.sampled.sum())
    exact = rest <= 1e-9 * max(1.0, one.profile.total)
    doubt = 0.0
    if not exact:
        loads += one.sampled * (rest / seen) if seen > 0 else rest / one.tasks
    if not exact and seen > 0:
        # The greatest of so many normal errors, of records that are spread evenly.
        chance = math.sqrt(2 * math.log(max(2, one.tasks)) * one.tasks * one.squares) / seen
        doubt = chance * rest / one.profile.total
    return HashLoad(str(one.engine), max_by_mean(loads), exact, tuple(loads.tolist()), doubt)


def _tables(
    snapshot: Snapshot, router: Router, plan: Plan, max_imbalance: float
) -> list[TableLoad]:
    """What fewer entries would give, then the plan, then what splitting keys adds."""
    found = []
    entries = len(plan.table)
    for most in (1, 3, 10, 30, 100, 300, 1000):
        if most >= entries:
            break
        fewer = rebalance(snapshot, router, max_imbalance=max_imbalance, max_table=most)
        found.append(TableLoad(len(fewer.table), 1 + fewer.imbalance))
    found.append(TableLoad(entries, 1 + plan.imbalance))
    if plan.giants:
        split = rebalance(
            snapshot,
            router,
            max_imbalance=max_imbalance,
            max_table=plan.options["max_table"],
            mergeable=True,
        )
        if split.splits and split.imbalance < plan.imbalance:
            found.append(TableLoad(len(split.table), 1 + split.imbalance, len(split.splits)))
    return found


def _exponent(costs: npt.NDArray[np.float64], total: float) -> float | None:
    """Slope of log load over log rank, each octave of ranks counted alike."""
    loads = np.sort(costs[costs > 0])[::-1][:FITTED]
    if len(loads) < 10 or not total > 0:
        return None
    ranks = np.unique(np.geomspace(1, len(loads), 60).round().astype(np.int64))
    x, y = np.log(ranks), np.log(loads[ranks - 1])
    slope = float(np.polyfit(x, y, 1)[0])
    return max(0.0, -slope) if math.isfinite(slope) else None
