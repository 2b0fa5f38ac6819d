"""Plan: what to change, what it costs, why, and how good it could be; data that is applied later.

>>> from pyroute import Router, Snapshot, rebalance
>>> router = Router(2)
>>> snapshot = Snapshot(["anna", "bert", "carl", "dora"], costs=[40, 30, 20, 10])
>>> plan = rebalance(snapshot, router, max_imbalance=0)
>>> plan.loads_after.tolist(), plan.feasible
([50.0, 50.0], True)
>>> router.apply(plan).version
1
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from pyroute import _core, _typed_json
from pyroute._arrays import count, integers, numbers, task_ids, word
from pyroute.keys import Keys, as_core
from pyroute.ring import Ring

if TYPE_CHECKING:
    from pyroute.key_stats import Snapshot
    from pyroute.router import Router

_FORMAT = "pyroute.plan"
_SHOWN = 40  # tasks and keys that a summary lists at most
_TOLERANCE = 1e-9

Ids = npt.NDArray[np.uint64]
Tasks = npt.NDArray[np.int32]


class Named:
    """Keys by id and, unless they are ids alone, by value; values are made when asked for."""

    def __init__(self, ids: Ids, values: Callable[[], list[Any]], named: bool = True) -> None:
        self.ids = ids
        self.named = named
        self._make = values

    @cached_property
    def values(self) -> list[Any]:
        """The values, or the ids where they have no names."""
        return self._make()

    def keys(self) -> Any:
        """What routers and kernels take for them."""
        return self.values if self.named else Keys.from_ids(self.ids)

    def typed(self) -> list[dict[str, Any]]:
        """As JSON writes them."""
        if self.named:
            return [_typed_json.encode(value) for value in self.values]
        return [_typed_json.encode_id(key) for key in self.ids.tolist()]

    @classmethod
    def from_typed(cls, typed: list[Any]) -> Self:
        """Read what `typed` wrote."""
        keys = _typed_json.decode_keys(typed)
        ids = as_core(keys, "keys").ids
        if isinstance(keys, Keys):
            return cls(ids, ids.tolist, named=False)
        return cls(ids, lambda: keys)

    def __len__(self) -> int:
        return len(self.ids)


class Migrations:
    """Keys that leave a task for another, with their state; a split key may come several times."""

    def __init__(
        self,
        keys: Named,
        sources: Tasks,
        targets: Tasks,
        state_sizes: npt.NDArray[np.int64],
        costs: npt.NDArray[np.float64],
    ) -> None:
        self.keys_ = keys
        self.sources = sources
        self.targets = targets
        self.state_sizes = state_sizes
        self.costs = costs

    @property
    def values(self) -> list[Any]:
        """The keys by name."""
        return self.keys_.values

    @property
    def ids(self) -> Ids:
        """Their 64-bit identities."""
        return self.keys_.ids

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[Any, int, int, int]]:
        rows = (self.sources.tolist(), self.targets.tolist(), self.state_sizes.tolist())
        return iter(zip(self.values, *rows, strict=True))

    def reversed(self) -> Migrations:
        """The way back."""
        return Migrations(self.keys_, self.targets, self.sources, self.state_sizes, self.costs)

    def __repr__(self) -> str:
        return f"Migrations({len(self)} keys, {int(self.state_sizes.sum())} bytes)"


class Exceptions(Mapping[Any, int]):
    """A routing table as a plan holds it: value -> task, read-only."""

    def __init__(self, keys: Named, targets: Tasks) -> None:
        self.keys_ = keys
        self.targets = targets

    @property
    def ids(self) -> Ids:
        """Identities of the tabled keys, ascending."""
        return self.keys_.ids

    @cached_property
    def _by_value(self) -> dict[Any, int]:
        return dict(zip(self.keys_.values, self.targets.tolist(), strict=True))

    def __getitem__(self, value: Any) -> int:
        try:
            return self._by_value[value]
        except TypeError:
            raise KeyError(value) from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys_.values)

    def __len__(self) -> int:
        return len(self.keys_)

    def by_id(self) -> dict[int, int]:
        """The same by identity."""
        return dict(zip(self.ids.tolist(), self.targets.tolist(), strict=True))

    def __repr__(self) -> str:
        return f"Exceptions({len(self)} keys)"


@dataclass(frozen=True)
class State:
    """What routes on one side of a plan: table, splits, and the ring where it changes."""

    table: Exceptions
    split_keys: Named
    split_tasks: list[list[int]]
    home: Ring | None
    version: int
    fingerprint: int | None  # None: not computed yet

    @property
    def splits(self) -> dict[Any, tuple[int, ...]]:
        """Split keys: value -> tasks."""
        return dict(zip(self.split_keys.values, map(tuple, self.split_tasks), strict=True))

    def to_json(self, fingerprint: int) -> dict[str, Any]:
        """As a document."""
        home = self.home
        table = zip(self.table.keys_.typed(), self.table.targets.tolist(), strict=True)
        splits = zip(self.split_keys.typed(), self.split_tasks, strict=True)
        return {
            "version": self.version,
            "fingerprint": str(fingerprint),
            "home": None if home is None else base64.b64encode(home.to_bytes()).decode(),
            "table": [list(row) for row in table],
            "splits": [list(row) for row in splits],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read what `to_json` gave."""
        home, rows, splits = (document[name] for name in ("home", "table", "splits"))
        return cls(
            Exceptions(
                Named.from_typed([row[0] for row in rows]),
                task_ids(_typed_json.expect_ints([row[1] for row in rows], "table"), "table"),
            ),
            Named.from_typed([row[0] for row in splits]),
            [_typed_json.expect_ints(row[1], "splits") for row in splits],
            None if home is None else Ring.from_bytes(base64.b64decode(home, validate=True)),
            count(document["version"], "version"),
            word(int(document["fingerprint"]), "fingerprint"),
        )


@dataclass(frozen=True)
class PlanDiff:
    """How another plan differs from this one."""

    only_here: dict[Any, int]
    only_there: dict[Any, int]
    elsewhere: dict[Any, tuple[int, int]]  # tabled in both: the task here, the task there
    imbalance: tuple[float, float]
    migration_cost: tuple[int, int]

    def __str__(self) -> str:
        lines = [
            f"imbalance {self.imbalance[0]:.4f} -> {self.imbalance[1]:.4f}, state moved"
            f" {_bytes(self.migration_cost[0])} -> {_bytes(self.migration_cost[1])}"
        ]
        for sign, keys in (("-", self.only_here), ("+", self.only_there)):
            lines += [f"{sign} {value!r}: task {task}" for value, task in keys.items()]
        lines += [f"~ {v!r}: task {here} -> {there}" for v, (here, there) in self.elsewhere.items()]
        return "\n".join(lines)


class Plan:
    """A proposal, made for one version of one router; `Router.apply` takes it or refuses.

    Not made by hand: `rebalance`, `elastic` and `Plan.from_json` give plans.
    """

    def __init__(
        self,
        *,
        before: State,
        after: State,
        migrations: Migrations,
        facts: dict[str, Any],
        reasons: Sequence[str],
        extra: Mapping[str, Any] | None = None,
        router: Router | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._before = before
        self._after = after
        self.migrations = migrations
        self._facts = facts
        self.reasons = list(reasons)
        self._extra = dict(extra or {})
        self._router = router
        self._snapshot = snapshot

    # what it changes -------------------------------------------------------------------------

    @property
    def table(self) -> Exceptions:
        """The next routing table, whole."""
        return self._after.table

    @property
    def splits(self) -> dict[Any, tuple[int, ...]]:
        """The next splits, all of them: value -> tasks."""
        return self._after.splits

    @property
    def home(self) -> Ring | None:
        """The next ring, where it changes."""
        return self._after.home

    @property
    def circle_moves(self) -> npt.NDArray[np.int64]:
        """(identifier, source, target) of every identifier of the ring that changes its owner."""
        if self._after.home is None or self._before.home is None:
            return np.empty((0, 3), np.int64)
        old, new = self._before.home.owners, self._after.home.owners
        changed = np.flatnonzero(old != new)
        return np.stack([changed, old[changed], new[changed]], axis=1).astype(np.int64)

    @property
    def version(self) -> int:
        """Version of the router that it was made for."""
        return self._before.version

    @property
    def fingerprint(self) -> int:
        """Fingerprint of the router that it was made for."""
        assert self._before.fingerprint is not None
        return self._before.fingerprint

    @property
    def after(self) -> State:
        """What routes once it is applied."""
        return self._after

    @property
    def changes(self) -> bool:
        """Whether applying it changes anything."""
        return (
            bool(len(self.migrations))
            or self.home is not None
            or self._before.table.by_id() != self.table.by_id()
            or self._before.splits != self.splits
        )

    @property
    def forced(self) -> bool:
        """Whether tasks are drained or removed: it is not a matter of balance alone."""
        return bool((self._facts["open"] == 0).any())

    # what it costs and gains -----------------------------------------------------------------

    @property
    def tasks(self) -> tuple[int, ...]:
        """Tasks of before and after, ascending; the order of the loads."""
        return tuple(self._facts["tasks"].tolist())

    @property
    def capacities(self) -> npt.NDArray[np.float64]:
        """Relative speed of each task; the mean over the open ones is 1."""
        return self._fact("capacities")

    @property
    def loads_before(self) -> npt.NDArray[np.float64]:
        """Load of each task under the router as it is."""
        return self._fact("loads_before")

    @property
    def loads_after(self) -> npt.NDArray[np.float64]:
        """Load of each task once the plan is applied."""
        return self._fact("loads_after")

    @property
    def estimated_loads(self) -> npt.NDArray[np.float64]:
        """With a degree: what the key groups said the loads would be; else empty."""
        return self._fact("estimated_loads")

    def _fact(self, name: str) -> Any:
        return self._facts[name]

    def _levels(self, loads: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        is_open = self._facts["open"] != 0
        levels: npt.NDArray[np.float64] = loads[is_open] / self.capacities[is_open]
        return levels

    @property
    def mean(self) -> float:
        """Mean load of the tasks that are open."""
        return float(self._facts["mean"])

    @property
    def level_before(self) -> float:
        """Greatest load per capacity before; tasks that close count too."""
        return float((self.loads_before / self.capacities).max())

    @property
    def level_after(self) -> float:
        """Greatest load per capacity after."""
        return float(self._levels(self.loads_after).max())

    @property
    def imbalance_before(self) -> float:
        """Greatest level / mean - 1 before."""
        return self.level_before / self.mean - 1 if self.mean > 0 else 0.0

    @property
    def imbalance(self) -> float:
        """Greatest level / mean - 1 after."""
        return self.level_after / self.mean - 1 if self.mean > 0 else 0.0

    @property
    def two_sided_imbalance(self) -> float:
        """The greatest distance of a level from the mean, over or under, as a share of it."""
        if self.mean == 0:
            return 0.0
        return float(np.abs(self._levels(self.loads_after) / self.mean - 1).max())

    @property
    def max_over_min(self) -> float:
        """Greatest level / least level after; infinite where a task has nothing to do."""
        levels = self._levels(self.loads_after)
        if levels.max() == 0:
            return 1.0
        return float(levels.max() / levels.min()) if levels.min() > 0 else float("inf")

    @property
    def migration_cost(self) -> int:
        """Bytes of state that move."""
        return int(self.migrations.state_sizes.sum())

    @property
    def state_total(self) -> int:
        """Bytes of all state."""
        return int(self._facts["state_total"])

    @property
    def migration_share(self) -> float:
        """Share of all state that moves."""
        return self.migration_cost / self.state_total if self.state_total else 0.0

    # how good it is --------------------------------------------------------------------------

    @property
    def lower_bound(self) -> float:
        """A greatest level that no plan for these keys can be below, whatever table and budget."""
        return float(self._facts["lower_bound"])

    @property
    def gap(self) -> float:
        """How far the greatest level is above the lower bound, as a share of it."""
        return max(0.0, self.level_after / self.lower_bound - 1) if self.lower_bound > 0 else 0.0

    @property
    def feasible(self) -> bool:
        """Whether every constraint that was asked for holds."""
        options = self.options
        most, budget = options["max_table"], options["max_migration"]
        return (
            self.level_after <= float(self._facts["limit"]) * (1 + _TOLERANCE)
            and (most is None or len(self.table) <= most)
            and (budget is None or self.migration_cost <= budget)
        )

    @property
    def options(self) -> dict[str, Any]:
        """What was asked for."""
        return dict(self._facts["options"])

    @property
    def giants(self) -> list[tuple[Any, int, float]]:
        """Keys dearer than any task may carry: (value, its own task, cost)."""
        return list(self._facts["giants"])

    @property
    def trials(self) -> int:
        """Runs of the three phases."""
        return int(self._facts["trials"])

    @property
    def groups(self) -> int:
        """With a degree: the number of key groups."""
        return int(self._facts["groups"])

    @property
    def seconds(self) -> float:
        """Time that planning took, homes included and the making of groups left out."""
        return float(self._facts["seconds"])

    @property
    def group_seconds(self) -> float:
        """With a degree: time that making the groups took."""
        return float(self._facts["group_seconds"])

    # words -----------------------------------------------------------------------------------

    def summary(self) -> str:
        """The plan as a table that a person reads."""
        scale = max(self.loads_before.max(), self.loads_after.max()) or 1.0
        rows = [
            f"plan for router version {self.version}: {self.options['algorithm']},"
            f" max_imbalance {self.options['max_imbalance']:g}",
            f"  imbalance      {self.imbalance_before:8.2%} -> {self.imbalance:.2%}"
            f" (lower bound {self._over_mean(self.lower_bound):.2%}, gap {self.gap:.2%})",
            f"  keys moved     {len(self.migrations):8,} ({_bytes(self.migration_cost)},"
            f" {self.migration_share:.2%} of all state)",
            f"  table          {len(self._before.table):8,} -> {len(self.table):,} keys"
            + ("" if self.options["max_table"] is None else f" of {self.options['max_table']:,}"),
            f"  time           {self.seconds * 1e3:8.1f} ms",
        ]
        if self.splits:
            rows.append(f"  split          {len(self.splits):8,} keys")
        if self.home is not None:
            rows.append(f"  ring           {len(self.circle_moves):8,} identifiers change owner")
        rows.append(f"  {'task':>6}  {'before':>12}  {'after':>12}")
        order = np.argsort(-np.maximum(self.loads_before, self.loads_after), kind="stable")
        shown = np.sort(order[:_SHOWN])
        for i in shown.tolist():
            closed = "" if self._facts["open"][i] else "  closed"
            bar = "#" * round(24 * self.loads_after[i] / scale)
            rows.append(
                f"  {self.tasks[i]:>6}  {self.loads_before[i]:>12,.6g}"
                f"  {self.loads_after[i]:>12,.6g}  {bar}{closed}"
            )
        if len(order) > len(shown):
            rows.append(f"  ... and {len(order) - len(shown)} tasks with less load")
        rows.append("feasible" if self.feasible else "not feasible")
        rows += [f"  because {reason}" for reason in self.reasons]
        return "\n".join(rows)

    def _over_mean(self, level: float) -> float:
        return max(0.0, level / self.mean - 1) if self.mean > 0 else 0.0

    def explain(self, value: Any) -> str:
        """Why a key goes where it goes."""
        key = int(as_core([value], "value").ids[0])
        lines = [f"{value!r}"]
        lines += self._explain_cost(key)
        moves = np.flatnonzero(self.migrations.ids == np.uint64(key)).tolist()
        for at in moves:
            lines.append(self._explain_move(at))
        lines += [
            f"it costs more than a task may carry ({self._facts['limit']:g}):"
            f" it has task {task} to itself"
            for name, task, _ in self.giants
            if as_core([name], "value").ids[0] == np.uint64(key)
        ]
        lines += self._explain_place(key, value, bool(moves))
        return "\n  ".join(lines)

    def _explain_cost(self, key: int) -> list[str]:
        if self._snapshot is None:
            return []
        rows = np.flatnonzero(self._snapshot.ids == np.uint64(key))
        if not len(rows):
            return ["nothing was seen of it: cost 0, state size 0"]
        cost = float(self._snapshot.costs[rows].sum())
        size = int(self._snapshot.state_sizes[rows].sum())
        rank = int((self._snapshot.costs > cost).sum()) + 1
        of_mean = f" ({cost / self.mean:.2%} of a task's mean load)" if self.mean > 0 else ""
        return [
            f"cost {cost:g}{of_mean}, rank {rank} of {len(self._snapshot)},"
            f" state size {_bytes(size)}"
        ]

    def _explain_move(self, at: int) -> str:
        source, target = int(self.migrations.sources[at]), int(self.migrations.targets[at])
        i, j = self.tasks.index(source), self.tasks.index(target)
        limit = float(self._facts["limit"])
        if not self._facts["open"][i]:
            why = f"task {source} takes keys no more"
        elif self.loads_before[i] > limit * self.capacities[i] * (1 + _TOLERANCE):
            why = (
                f"task {source} carried {self.loads_before[i]:g},"
                f" more than the {limit * self.capacities[i]:g} allowed"
            )
        else:
            why = f"to make room on task {source}, or to keep the table small"
        return (
            f"moves from task {source} to task {target}"
            f" with {_bytes(int(self.migrations.state_sizes[at]))}: {why}"
            f" (load {self.loads_before[i]:g} -> {self.loads_after[i]:g};"
            f" task {target}: {self.loads_before[j]:g} -> {self.loads_after[j]:g})"
        )

    def _explain_place(self, key: int, value: Any, moved: bool) -> list[str]:
        tabled = self.table.by_id().get(key)
        if tabled is not None:
            return [f"in the table: task {tabled}"]
        for name, tasks in self.splits.items():
            if int(as_core([name], "value").ids[0]) == key:
                return [f"split over tasks {', '.join(map(str, tasks))}"]
        home = self.home or (self._router.home if self._router is not None else None)
        where = "" if home is None else f", task {int(home.homes([value])[0])}"
        return [f"{'then ' if moved else ''}at its home{where}; no entry in the table"]

    def diff(self, other: Plan) -> PlanDiff:
        """How another plan differs: what the tables hold, imbalance and state moved."""
        if not isinstance(other, Plan):
            raise TypeError(f"other: expected a Plan, got {type(other).__name__}")
        here, there = self.table, other.table
        return PlanDiff(
            {value: task for value, task in here.items() if value not in there},
            {value: task for value, task in there.items() if value not in here},
            {
                value: (task, there[value])
                for value, task in here.items()
                if value in there and there[value] != task
            },
            (self.imbalance, other.imbalance),
            (self.migration_cost, other.migration_cost),
        )

    def __repr__(self) -> str:
        return (
            f"Plan(for version {self.version}, {len(self.migrations)} keys moved,"
            f" imbalance {self.imbalance_before:.4f} -> {self.imbalance:.4f},"
            f" {'feasible' if self.feasible else 'not feasible'})"
        )

    # there and back --------------------------------------------------------------------------

    def _fingerprint_after(self) -> int:
        if self._after.fingerprint is not None:
            return self._after.fingerprint
        assert self._router is not None
        return self._router.apply(self).fingerprint

    def inverse(self) -> Plan:
        """The plan that takes the router back, once this one is applied."""
        facts = dict(self._facts)
        facts["loads_before"], facts["loads_after"] = self.loads_after, self.loads_before
        facts["open"] = np.ones_like(facts["open"])
        facts["estimated_loads"] = np.empty(0)
        facts["giants"] = []
        facts["options"] = {**self.options, "max_table": None, "max_migration": None}
        return Plan(
            before=replace(
                self._after, version=self.version + 1, fingerprint=self._fingerprint_after()
            ),
            after=replace(self._before, version=self.version + 2),
            migrations=self.migrations.reversed(),
            facts=facts,
            reasons=[f"takes back the plan for version {self.version}"],
        )

    def to_json(self) -> str:
        """The plan as JSON; fields that `from_json` did not know are written again."""
        facts = {
            name: fact.tolist() if isinstance(fact, np.ndarray) else fact
            for name, fact in self._facts.items()
        }
        facts["giants"] = [[_typed_json.encode(v), task, cost] for v, task, cost in self.giants]
        moves = self.migrations
        return json.dumps(
            {
                **self._extra,
                "format": _FORMAT,
                "format_version": 1,
                "before": self._before.to_json(self.fingerprint),
                "after": self._after.to_json(self._fingerprint_after()),
                "migrations": [
                    list(row)
                    for row in zip(
                        moves.keys_.typed(),
                        moves.sources.tolist(),
                        moves.targets.tolist(),
                        moves.state_sizes.tolist(),
                        moves.costs.tolist(),
                        strict=True,
                    )
                ],
                "facts": facts,
                "reasons": self.reasons,
            },
            default=_plain,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote; anything else raises `FormatError`."""
        document = _typed_json.document(text, _FORMAT, "plan")
        try:
            return cls._from_document(document)
        except _core.FormatError:
            raise
        except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise _core.FormatError(f"text: expected a plan, got {error!r}") from error

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        facts = dict(document["facts"])
        for name, kind in _ARRAYS.items():
            facts[name] = np.asarray(facts[name], kind)
        tasks = len(facts["tasks"])
        if tasks == 0 or any(
            len(facts[name]) not in (tasks, 0 if name == "estimated_loads" else tasks)
            for name in _ARRAYS
        ):
            raise _core.FormatError("facts: expected one of each for every task, got others")
        if not all(np.isfinite(facts[name]).all() for name in _ARRAYS):
            raise _core.FormatError("facts: expected finite numbers, got others")
        if not (facts["capacities"] > 0).all() or not (facts["open"] != 0).any():
            raise _core.FormatError("facts: expected capacities above 0, got others")
        for name in _NUMBERS:
            facts[name] = float(facts[name])
        for name in ("max_table", "max_migration", "algorithm", "max_imbalance"):
            facts["options"][name]
        facts["giants"] = [
            (_typed_json.decode(value), int(task), float(cost))
            for value, task, cost in facts["giants"]
        ]
        rows = document["migrations"]
        columns = list(zip(*rows, strict=True)) if rows else [[]] * 5
        _typed_json.expect_ints([*columns[1], *columns[2], *columns[3]], "migrations")
        return cls(
            before=State.from_json(document["before"]),
            after=State.from_json(document["after"]),
            migrations=Migrations(
                Named.from_typed(list(columns[0])),
                task_ids(columns[1], "migrations"),
                task_ids(columns[2], "migrations"),
                integers(columns[3], "migrations"),
                numbers(columns[4], "migrations"),
            ),
            facts=facts,
            reasons=[str(reason) for reason in document["reasons"]],
            extra={key: value for key, value in document.items() if key not in _KNOWN},
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((self.version, self.fingerprint, len(self.table), len(self.migrations)))

    def _compared(self) -> tuple[object, ...]:
        moves = self.migrations
        return (
            self.version,
            self.fingerprint,
            self.table.by_id(),
            self.splits,
            self.home,
            moves.ids.tolist(),
            moves.sources.tolist(),
            moves.targets.tolist(),
            moves.state_sizes.tolist(),
            self.loads_before.tolist(),
            self.loads_after.tolist(),
            self.lower_bound,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Plan.from_json, (self.to_json(),)


_KNOWN = frozenset(
    ("format", "format_version", "before", "after", "migrations", "facts", "reasons")
)
_ARRAYS: dict[str, type[np.generic]] = {
    "tasks": np.int32,
    "open": np.uint8,
    "capacities": np.float64,
    "loads_before": np.float64,
    "loads_after": np.float64,
    "estimated_loads": np.float64,
}
_NUMBERS = ("mean", "limit", "lower_bound", "state_total", "trials", "groups", "seconds")


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"facts: expected plain values, got {type(value).__name__}")


def _bytes(size: int) -> str:
    """Bytes as a person reads them."""
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"
