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
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from pyroute import _core, _plan_text, _typed_json
from pyroute._arrays import count, integers, numbers, real, task_id, task_ids, word
from pyroute.keys import Keys, as_core
from pyroute.ring import Ring

if TYPE_CHECKING:
    from pyroute.key_stats import Snapshot
    from pyroute.router import Router

_FORMAT = "pyroute.plan"
_TOLERANCE = 1e-9

Ids = npt.NDArray[np.uint64]
Tasks = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float64]


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
        costs: Reals,
    ) -> None:
        self.named_keys = keys
        self.sources = sources
        self.targets = targets
        self.state_sizes = state_sizes
        self.costs = costs

    @property
    def values(self) -> list[Any]:
        """The keys by name."""
        return self.named_keys.values

    @property
    def ids(self) -> Ids:
        """Their 64-bit identities."""
        return self.named_keys.ids

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[Any, int, int, int]]:
        rows = (self.sources.tolist(), self.targets.tolist(), self.state_sizes.tolist())
        return iter(zip(self.values, *rows, strict=True))

    def reversed(self) -> Migrations:
        """The way back."""
        return Migrations(self.named_keys, self.targets, self.sources, self.state_sizes, self.costs)

    def __repr__(self) -> str:
        return f"Migrations({len(self)} keys, {int(self.state_sizes.sum())} bytes)"


class Exceptions(Mapping[Any, int]):
    """A routing table as a plan holds it: value -> task, read-only."""

    def __init__(self, keys: Named, targets: Tasks) -> None:
        self.named_keys = keys
        self.targets = targets

    @property
    def ids(self) -> Ids:
        """Identities of the tabled keys, ascending."""
        return self.named_keys.ids

    @cached_property
    def _by_value(self) -> dict[Any, int]:
        return dict(zip(self.named_keys.values, self.targets.tolist(), strict=True))

    def __getitem__(self, value: Any) -> int:
        try:
            return self._by_value[value]
        except TypeError:
            raise KeyError(value) from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.named_keys.values)

    def __len__(self) -> int:
        return len(self.named_keys)

    def by_id(self) -> dict[int, int]:
        """The same by identity."""
        return dict(zip(self.ids.tolist(), self.targets.tolist(), strict=True))

    def __repr__(self) -> str:
        return f"Exceptions({len(self)} keys)"


@dataclass(frozen=True, eq=False, repr=False)
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
        table = zip(self.table.named_keys.typed(), self.table.targets.tolist(), strict=True)
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


@dataclass(frozen=True, eq=False, repr=False)
class Facts:
    """What a plan says of tasks and of itself; arrays by task."""

    tasks: Tasks
    open: npt.NDArray[np.uint8]
    capacities: Reals
    loads_before: Reals
    loads_after: Reals
    estimated_loads: Reals
    mean: float
    limit: float
    lower_bound: float
    least_migration: int
    state_total: int
    trials: int
    groups: int
    giants: list[tuple[Any, int, float]]
    named: bool
    pinned_moves: int
    seconds: float
    group_seconds: float
    interval: int
    options: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        encode = _typed_json.encode if self.named else _typed_json.encode_id
        giants = [[encode(value), task, cost] for value, task, cost in self.giants]
        return {
            field.name: value.tolist() if isinstance(value, np.ndarray) else value
            for field in fields(self)
            for value in [giants if field.name == "giants" else getattr(self, field.name)]
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read what `to_json` gave."""
        tasks = task_ids(document["tasks"], "tasks")
        is_open = integers(document["open"], "open")
        reals = {
            name: numbers(document[name], name)
            for name in ("capacities", "loads_before", "loads_after", "estimated_loads")
        }
        lengths = {name: len(column) for name, column in reals.items()} | {"open": len(is_open)}
        if lengths["estimated_loads"] == 0:
            del lengths["estimated_loads"]
        amounts = {name: real(document[name], name) for name in _AMOUNTS}
        if (
            len(tasks) == 0
            or not (np.diff(tasks) > 0).all()
            or set(lengths.values()) != {len(tasks)}
            or not all(np.isfinite(column).all() for column in reals.values())
            or not (reals["capacities"] > 0).all()
            or not set(is_open.tolist()) <= {0, 1}
            or not is_open.any()
            or not all(math.isfinite(amount) for amount in amounts.values())
        ):
            raise _core.FormatError("facts: expected one of each for every task, got others")
        named = document["named"]
        if not isinstance(named, bool):
            raise _core.FormatError("named: expected true or false, got another")
        plain: dict[str, Any] = {**reals, **amounts}
        plain |= {name: count(document[name], name) for name in _COUNTS}
        options = dict(document["options"])
        if not real(options["max_imbalance"], "max_imbalance") >= 0:
            raise _core.FormatError("max_imbalance: expected 0 or more, got another")
        for name in ("max_table", "max_migration"):
            if options[name] is not None:
                count(options[name], name)
        if not isinstance(options["algorithm"], str):
            raise _core.FormatError("algorithm: expected a name, got another")
        return cls(
            tasks=tasks,
            open=is_open.astype(np.uint8),
            giants=[
                (
                    _typed_json.decode(value) if named else _typed_json.decode_id(value),
                    task_id(task, "giants"),
                    real(cost, "giants"),
                )
                for value, task, cost in document["giants"]
            ],
            named=named,
            options=options,
            **plain,
        )


_AMOUNTS = ("mean", "limit", "lower_bound", "seconds", "group_seconds")
_COUNTS = ("least_migration", "pinned_moves", "state_total", "trials", "groups", "interval")


@dataclass(frozen=True)
class PlanDiff:
    """How another plan differs from this one."""

    only_here: dict[Any, int]
    only_there: dict[Any, int]
    elsewhere: dict[Any, tuple[int, int]]  # tabled in both: the task here, the task there
    imbalance: tuple[float, float]
    migration_cost: tuple[int, int]

    def __str__(self) -> str:
        moved = [_plan_text.in_bytes(cost) for cost in self.migration_cost]
        change = f"imbalance {self.imbalance[0]:.4f} -> {self.imbalance[1]:.4f}"
        lines = [f"{change}, state moved {moved[0]} -> {moved[1]}"]
        for sign, keys in (("-", self.only_here), ("+", self.only_there)):
            lines += [f"{sign} {value!r}: task {task}" for value, task in keys.items()]
        lines += [f"~ {v!r}: task {here} -> {there}" for v, (here, there) in self.elsewhere.items()]
        return "\n".join(lines)


class Plan:
    """A proposal, made for one version of one router; `Router.apply` takes it or refuses.

    Not made by hand: `rebalance`, `elastic` and `Plan.from_json` give plans. `before` and `after`
    are what routes on either side of it; `router` and `snapshot`, what it was made from, are None
    in one that was read from JSON.
    """

    def __init__(
        self,
        *,
        before: State,
        after: State,
        migrations: Migrations,
        facts: Facts,
        reasons: Sequence[str],
        extra: Mapping[str, Any] | None = None,
        router: Router | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.before = before
        self.after = after
        self.migrations = migrations
        self.facts = facts
        self.reasons = list(reasons)
        self._extra = dict(extra or {})
        self.router = router
        self.snapshot = snapshot

    # what it changes -------------------------------------------------------------------------

    @property
    def table(self) -> Exceptions:
        """The next routing table, whole."""
        return self.after.table

    @property
    def splits(self) -> dict[Any, tuple[int, ...]]:
        """The next splits, all of them: value -> tasks."""
        return self.after.splits

    @property
    def home(self) -> Ring | None:
        """The next ring, where it changes."""
        return self.after.home

    @property
    def circle_moves(self) -> npt.NDArray[np.int64]:
        """(identifier, source, target) of every identifier of the ring that changes its owner."""
        if self.after.home is None or self.before.home is None:
            return np.empty((0, 3), np.int64)
        old, new = self.before.home.owners, self.after.home.owners
        changed = np.flatnonzero(old != new)
        return np.stack([changed, old[changed], new[changed]], axis=1).astype(np.int64)

    @property
    def version(self) -> int:
        """Version of the router that it was made for."""
        return self.before.version

    @property
    def fingerprint(self) -> int:
        """Fingerprint of the router that it was made for."""
        assert self.before.fingerprint is not None
        return self.before.fingerprint

    @property
    def changes(self) -> bool:
        """Whether applying it changes anything."""
        return (
            bool(len(self.migrations))
            or self.home is not None
            or self.before.table.by_id() != self.table.by_id()
            or self.before.splits != self.splits
        )

    @property
    def forced(self) -> bool:
        """Whether it does what balance did not ask for.

        Keys leave tasks that are drained or removed, or go where a pin wants them, or the table was
        larger than it may be.
        """
        closed = self.facts.tasks[self.facts.open == 0]
        most = self.options["max_table"]
        return (
            bool(np.isin(self.migrations.sources, closed).any())
            or self.facts.pinned_moves > 0
            or (most is not None and len(self.before.table) > most >= len(self.table))
        )

    # what it costs and gains -----------------------------------------------------------------

    @property
    def tasks(self) -> tuple[int, ...]:
        """Tasks of before and after, ascending; the order of the loads."""
        return tuple(self.facts.tasks.tolist())

    @property
    def capacities(self) -> Reals:
        """Relative speed of each task; the mean over the open ones is 1."""
        return self.facts.capacities

    @property
    def loads_before(self) -> Reals:
        """Load of each task under the router as it is."""
        return self.facts.loads_before

    @property
    def loads_after(self) -> Reals:
        """Load of each task once the plan is applied."""
        return self.facts.loads_after

    @property
    def estimated_loads(self) -> Reals:
        """With a degree: what the key groups said the loads would be; else empty."""
        return self.facts.estimated_loads

    @property
    def levels_after(self) -> Reals:
        """Load per capacity of each open task, once the plan is applied."""
        is_open = self.facts.open != 0
        levels: Reals = self.loads_after[is_open] / self.capacities[is_open]
        return levels

    @property
    def mean(self) -> float:
        """Mean load of the tasks that are open."""
        return self.facts.mean

    @property
    def level_before(self) -> float:
        """Greatest load per capacity before; tasks that close count too."""
        return float((self.loads_before / self.capacities).max())

    @property
    def level_after(self) -> float:
        """Greatest load per capacity after."""
        return float(self.levels_after.max())

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
        return float(np.abs(self.levels_after / self.mean - 1).max())

    @property
    def max_over_min(self) -> float:
        """Greatest level / least level after; infinite where a task has nothing to do."""
        levels = self.levels_after
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
        return self.facts.state_total

    @property
    def migration_share(self) -> float:
        """Share of all state that moves."""
        return self.migration_cost / self.state_total if self.state_total else 0.0

    # how good it is --------------------------------------------------------------------------

    @property
    def lower_bound(self) -> float:
        """A greatest level that no plan for these keys can be below, whatever table and budget."""
        return self.facts.lower_bound

    @property
    def least_migration(self) -> int:
        """Bytes of state that any plan within the limits has to move, whatever the table."""
        return self.facts.least_migration

    @property
    def gap(self) -> float:
        """How far the greatest level is above the lower bound, as a share of it."""
        return max(0.0, self.level_after / self.lower_bound - 1) if self.lower_bound > 0 else 0.0

    @property
    def feasible(self) -> bool:
        """Whether every constraint that was asked for holds."""
        options = self.options
        most, budget = options["max_table"], options["max_migration"]
        least = (1 - options["max_imbalance"]) * self.mean * (1 - _TOLERANCE)
        return (
            self.level_after <= self.facts.limit * (1 + _TOLERANCE)
            and (not options.get("two_sided") or bool(self.levels_after.min() >= least))
            and (most is None or len(self.table) <= most)
            and (budget is None or self.migration_cost <= budget)
        )

    @property
    def options(self) -> dict[str, Any]:
        """What was asked for."""
        return dict(self.facts.options)

    @property
    def giants(self) -> list[tuple[Any, int, float]]:
        """Keys dearer than any task may carry: (value, its own task, cost)."""
        return list(self.facts.giants)

    @property
    def trials(self) -> int:
        """Runs of the three phases."""
        return self.facts.trials

    @property
    def groups(self) -> int:
        """With a degree: the number of key groups."""
        return self.facts.groups

    @property
    def seconds(self) -> float:
        """Time that planning took, homes included and the making of groups left out."""
        return self.facts.seconds

    @property
    def group_seconds(self) -> float:
        """With a degree: time that making the groups took."""
        return self.facts.group_seconds

    # words -----------------------------------------------------------------------------------

    def summary(self) -> str:
        """The plan as a table that a person reads."""
        return _plan_text.summary(self)

    def explain(self, value: Any) -> str:
        """Why a key goes where it goes."""
        return _plan_text.explain(self, value)

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
        if self.after.fingerprint is not None:
            return self.after.fingerprint
        assert self.router is not None
        return self.router.apply(self).fingerprint

    def inverse(self) -> Plan:
        """The plan that takes the router back, once this one is applied."""
        facts = replace(
            self.facts,
            loads_before=self.loads_after,
            loads_after=self.loads_before,
            open=np.ones_like(self.facts.open),
            estimated_loads=np.empty(0),
            giants=[],
            options={**self.options, "max_table": None, "max_migration": None},
        )
        return Plan(
            before=replace(
                self.after, version=self.version + 1, fingerprint=self._fingerprint_after()
            ),
            after=replace(self.before, version=self.version + 2),
            migrations=self.migrations.reversed(),
            facts=facts,
            reasons=[f"takes back the plan for version {self.version}"],
        )

    def to_json(self) -> str:
        """The plan as JSON; fields that `from_json` did not know are written again."""
        moves = self.migrations
        return json.dumps(
            {
                **self._extra,
                "format": _FORMAT,
                "format_version": 1,
                "before": self.before.to_json(self.fingerprint),
                "after": self.after.to_json(self._fingerprint_after()),
                "migrations": [
                    list(row)
                    for row in zip(
                        moves.named_keys.typed(),
                        moves.sources.tolist(),
                        moves.targets.tolist(),
                        moves.state_sizes.tolist(),
                        moves.costs.tolist(),
                        strict=True,
                    )
                ],
                "facts": self.facts.to_json(),
                "reasons": self.reasons,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote; anything else raises `FormatError`."""
        return _typed_json.read(text, _FORMAT, "plan", cls._from_document)

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        rows = document["migrations"]
        columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * 5
        facts = Facts.from_json(document["facts"])
        costs = numbers(columns[4], "migrations")
        known = set(facts.tasks.tolist())
        if not np.isfinite(costs).all() or not known.issuperset((*columns[1], *columns[2])):
            raise _core.FormatError("migrations: expected tasks and costs of the plan, got others")
        if not isinstance(document["reasons"], list):
            raise _core.FormatError("reasons: expected a list, got another")
        return cls(
            before=State.from_json(document["before"]),
            after=State.from_json(document["after"]),
            migrations=Migrations(
                Named.from_typed(list(columns[0])),
                task_ids(columns[1], "migrations"),
                task_ids(columns[2], "migrations"),
                integers(columns[3], "migrations"),
                costs,
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
