"""ColocationPlan: tables of consecutive operators that keep records on their server, as one plan.

>>> from pyroute import TopPairs, colocate
>>> import numpy as np
>>> top = TopPairs(["a", "b"], ["x", "y"], np.array([3, 3]), np.array([0, 0]))
>>> plan = colocate(top, 2)
>>> plan.operators, plan.locality
(('in', 'out'), 1.0)
>>> sorted(plan.apply(plan.routers_before)) == ["in", "out"]
True
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from pyroute import _core, _plan_text, _typed_json
from pyroute._arrays import count, real
from pyroute.plan import Exceptions, Facts, Migrations, Named, Plan, PlanDiff, State
from pyroute.router import Router

if TYPE_CHECKING:
    from pyroute._colocating import Side
    from pyroute.locality_forecast import Forecast, LocalityForecast

_FORMAT = "pyroute.colocation"
_TOLERANCE = 1e-9

_SHARES = (
    "locality_before",
    "locality_after",
    "assured_before",
    "assured_after",
    "distance_before",
    "distance_after",
    "coverage",
    "traffic",
    "seconds",
    "prepared",
)


class ColocationPlan:
    """A proposal for the routers of several operators; made by `colocate`, taken by `apply`.

    What is said of one operator is in `plans[op]`, a `Plan` like those of `rebalance`, made for one
    version of that operator's router; this object holds them together with what they share.
    """

    def __init__(
        self,
        *,
        plans: Mapping[str, Plan],
        servers: Mapping[str, Mapping[int, int | str]],
        measures: Mapping[str, Any],
        options: Mapping[str, Any],
        reasons: Sequence[str],
        routers: Mapping[str, Router] | None = None,
        forecast: Forecast | None = None,
        partners: Callable[[str, Any], list[str]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.plans = dict(plans)
        self.servers = {name: dict(tasks) for name, tasks in servers.items()}
        self._measures = dict(measures)
        self._options = dict(options)
        self.reasons = list(reasons)
        self._routers = None if routers is None else dict(routers)
        self.forecast = forecast
        self._partners = partners
        self._extra = dict(extra or {})

    # what it changes -------------------------------------------------------------------------

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators, each after those that lead to it."""
        return tuple(self.plans)

    @property
    def tables(self) -> dict[str, Exceptions]:
        """The next routing table of each operator, whole."""
        return {name: plan.table for name, plan in self.plans.items()}

    @property
    def migrations(self) -> dict[str, Migrations]:
        """Keys of each operator that change their task; those that leave the table, too."""
        return {name: plan.migrations for name, plan in self.plans.items()}

    @property
    def routers_before(self) -> dict[str, Router]:
        """The routers that it was made for."""
        if self._routers is None:
            raise ValueError("routers: a plan that was read has none; apply it to those in force")
        return dict(self._routers)

    @property
    def routers(self) -> dict[str, Router]:
        """The routers that it makes."""
        return self.apply(self.routers_before)

    @property
    def in_router(self) -> Router:
        """That of the first of two operators."""
        return self.routers[self._two()[0]]

    @property
    def out_router(self) -> Router:
        """That of the second of two operators."""
        return self.routers[self._two()[1]]

    def _two(self) -> tuple[str, ...]:
        if len(self.plans) != 2:
            raise ValueError(f"plan: expected one for two operators, got {len(self.plans)}")
        return self.operators

    def apply(self, routers: Mapping[str, Router]) -> dict[str, Router]:
        """The routers that it makes of those in force, each at its next version.

        All of them are checked before any is made: a plan for another version or another state of
        one of them is refused with `ValueError`.
        """
        if not isinstance(routers, Mapping):
            raise TypeError(f"routers: expected {{op: router}}, got {type(routers).__name__}")
        if set(routers) != set(self.plans):
            raise ValueError(
                f"routers: expected those of {', '.join(self.plans)}, got {', '.join(routers)}"
            )
        return {name: routers[name].apply(plan) for name, plan in self.plans.items()}

    @property
    def versions(self) -> dict[str, int]:
        """Versions of the routers that it was made for."""
        return {name: plan.version for name, plan in self.plans.items()}

    @property
    def fingerprints(self) -> dict[str, int]:
        """Fingerprints of the routers that it was made for."""
        return {name: plan.fingerprint for name, plan in self.plans.items()}

    @property
    def changes(self) -> bool:
        """Whether applying it changes anything."""
        return any(plan.changes for plan in self.plans.values())

    # what it costs and gains -----------------------------------------------------------------

    @property
    def locality(self) -> float:
        """Share of the traffic that stays on its server, on the statistics it was made from.

        What comes next has other pairs and new keys: `LocalityForecast` says how much of this has
        been left of the plans before.
        """
        return float(self._measures["locality_after"])

    @property
    def locality_before(self) -> float:
        """The same under the routers as they are."""
        return float(self._measures["locality_before"])

    @property
    def assured_locality(self) -> float:
        """The same with the least that the counts can have been: count - error, unknown keys 0."""
        return float(self._measures["assured_after"])

    @property
    def assured_gain(self) -> float:
        """How much locality grows, by the least that the counts can have been (C12)."""
        return float(self._measures["assured_after"] - self._measures["assured_before"])

    @property
    def localities(self) -> dict[tuple[str, str], float]:
        """Locality between each two operators."""
        return dict(self._measures["relations"])

    @property
    def distance(self) -> float:
        """Mean distance of a record's way between operators; without `distances`, 1 - locality."""
        return float(self._measures["distance_after"])

    @property
    def distance_before(self) -> float:
        """The same under the routers as they are."""
        return float(self._measures["distance_before"])

    @property
    def coverage(self) -> float:
        """Share of the traffic whose both keys have the place that the plan wants for them.

        They are in a table, or at home because that is the place. The rest is traffic that the
        statistics do not name, and keys that a full table leaves at home.
        """
        return float(self._measures["coverage"])

    @property
    def imbalance(self) -> dict[str, float]:
        """Greatest load / mean - 1 of each operator after the plan."""
        return {name: plan.imbalance for name, plan in self.plans.items()}

    @property
    def imbalance_before(self) -> dict[str, float]:
        """The same under the routers as they are."""
        return {name: plan.imbalance_before for name, plan in self.plans.items()}

    @property
    def migration_cost(self) -> int:
        """Bytes of state that move, in all operators."""
        return sum(plan.migration_cost for plan in self.plans.values())

    @property
    def state_total(self) -> int:
        """Bytes of all state."""
        return sum(plan.state_total for plan in self.plans.values())

    @property
    def migration_share(self) -> float:
        """Share of all state that moves."""
        return self.migration_cost / self.state_total if self.state_total else 0.0

    @property
    def feasible(self) -> bool:
        """Whether every constraint that was asked for holds."""
        budget = self._options["max_migration"]
        return all(plan.feasible for plan in self.plans.values()) and (
            budget is None or self.migration_cost <= budget
        )

    @property
    def options(self) -> dict[str, Any]:
        """What was asked for."""
        return dict(self._options)

    @property
    def rounds(self) -> int:
        """How often the search went over everything; the last time it found nothing."""
        return int(self._measures["rounds"])

    @property
    def from_scratch(self) -> bool:
        """Whether a partition from scratch was taken, not what was there refined."""
        return bool(self._measures["from_scratch"])

    @property
    def seconds(self) -> float:
        """Time that planning took."""
        return float(self._measures["seconds"])

    # whether to do it ------------------------------------------------------------------------

    def with_forecast(self, forecast: LocalityForecast) -> ColocationPlan:
        """The same plan with what is expected of it in the next interval, for a gate to weigh."""
        return self._replace(forecast=forecast.predict(self))

    def for_gate(self) -> GateView:
        """As `Gate.decide` reads it: one list of migrations, one gain."""
        return GateView.of(self)

    # words -----------------------------------------------------------------------------------

    def summary(self) -> str:
        """The plan as a table that a person reads."""
        moved = f"{_plan_text.in_bytes(self.migration_cost)}, {self.migration_share:.2%} of all"
        rows = [f"colocation of {' -> '.join(self.operators)} on {self._servers()} servers"]
        rows.append(
            f"  locality     {self.locality_before:8.2%} -> {self.locality:.2%} of the statistics"
            f" (at least {self.assured_locality:.2%}, coverage {self.coverage:.2%})"
        )
        if self.forecast is not None:
            rows.append(
                f"  expected     {self.forecast.stay:8.2%} -> {self.forecast.apply:.2%} of the next"
                f" interval ({self.forecast.reason})"
            )
        if abs(self.distance - (1 - self.locality)) > _TOLERANCE:
            rows.append(f"  distance     {self.distance_before:8.3f} -> {self.distance:.3f}")
        rows.append(f"  state moved  {moved}")
        start = "a partition from scratch" if self.from_scratch else "what was there"
        rows.append(f"  found        from {start}, in {self.rounds} rounds")
        rows.append(f"  {'operator':<12} {'imbalance':>20} {'table':>18} {'keys moved':>12}")
        for name, plan in self.plans.items():
            balance = f"{plan.imbalance_before:.2%} -> {plan.imbalance:.2%}"
            table = f"{len(plan.before.table):,} -> {len(plan.table):,}"
            rows.append(f"  {name:<12} {balance:>20} {table:>18} {len(plan.migrations):>12,}")
        rows.append("feasible" if self.feasible else "not feasible")
        return "\n".join([*rows, *(f"  because {reason}" for reason in self.reasons)])

    def _servers(self) -> int:
        return len({server for tasks in self.servers.values() for server in tasks.values()})

    def explain(self, operator: str, value: Any) -> str:
        """Why a key of an operator goes where it goes."""
        if operator not in self.plans:
            raise ValueError(f"operator: expected one of {', '.join(self.plans)}, got {operator!r}")
        lines = _plan_text.explain(self.plans[operator], value).split("\n")
        if self._partners is not None:
            lines += self._partners(operator, value)
        return "\n".join(lines)

    def diff(self, other: ColocationPlan) -> dict[str, PlanDiff]:
        """How the tables of another plan differ, by operator."""
        if not isinstance(other, ColocationPlan):
            raise TypeError(f"other: expected a ColocationPlan, got {type(other).__name__}")
        if set(self.plans) != set(other.plans):
            raise ValueError(
                f"other: expected a plan for {', '.join(self.plans)}, got one for"
                f" {', '.join(other.plans)}"
            )
        return {name: plan.diff(other.plans[name]) for name, plan in self.plans.items()}

    def __repr__(self) -> str:
        return (
            f"ColocationPlan({' -> '.join(self.operators)},"
            f" {sum(map(len, self.migrations.values()))} keys moved,"
            f" locality {self.locality_before:.4f} -> {self.locality:.4f},"
            f" {'feasible' if self.feasible else 'not feasible'})"
        )

    # there and back --------------------------------------------------------------------------

    def _replace(self, **changes: Any) -> ColocationPlan:
        parts: dict[str, Any] = {
            "plans": self.plans,
            "servers": self.servers,
            "measures": self._measures,
            "options": self._options,
            "reasons": self.reasons,
            "routers": self._routers,
            "forecast": self.forecast,
            "partners": self._partners,
            "extra": self._extra,
        }
        return ColocationPlan(**{**parts, **changes})

    def inverse(self) -> ColocationPlan:
        """The plan that takes the routers back, once this one is applied."""
        measures = dict(self._measures)
        for word in ("locality", "assured", "distance"):
            measures[f"{word}_before"] = self._measures[f"{word}_after"]
            measures[f"{word}_after"] = self._measures[f"{word}_before"]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return self._replace(
            plans={name: plan.inverse() for name, plan in self.plans.items()},
            measures={**measures, "relations": {}},
            options={**self._options, "max_migration": None},
            reasons=[f"takes back the plan for versions {versions}"],
            routers=None if self._routers is None else self.routers,
            forecast=None,
            partners=None,
            extra={},
        )

    def to_json(self) -> str:
        """The plan as JSON; fields that `from_json` did not know are written again."""
        measures = {**self._measures}
        relations = measures.pop("relations")
        return json.dumps(
            {
                **self._extra,
                "format": _FORMAT,
                "format_version": 1,
                "operators": list(self.operators),
                "plans": {name: json.loads(plan.to_json()) for name, plan in self.plans.items()},
                "servers": {
                    name: [[task, server] for task, server in tasks.items()]
                    for name, tasks in self.servers.items()
                },
                "measures": measures,
                "relations": [[*names, share] for names, share in relations.items()],
                "options": self._options,
                "reasons": self.reasons,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote; anything else raises `FormatError`."""
        return _typed_json.read(text, _FORMAT, "colocation", cls._from_document)

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        operators, plans = document["operators"], document["plans"]
        if (
            not isinstance(operators, list)
            or len(operators) < 2
            or len(set(operators)) != len(operators)
            or set(operators) != set(plans)
        ):
            raise _core.FormatError("operators: expected those of the plans, got others")
        measures: dict[str, Any] = {
            name: real(document["measures"][name], name) for name in _SHARES
        }
        measures["rounds"] = count(document["measures"]["rounds"], "rounds")
        measures["from_scratch"] = bool(document["measures"]["from_scratch"])
        measures["relations"] = {
            (str(start), str(end)): real(share, "relations")
            for start, end, share in document["relations"]
        }
        if not all(np.isfinite(measures[name]) for name in _SHARES):
            raise _core.FormatError("measures: expected finite numbers, got others")
        options, reasons = document["options"], document["reasons"]
        if options["max_migration"] is not None:
            count(options["max_migration"], "max_migration")
        if not isinstance(reasons, list):
            raise _core.FormatError("reasons: expected a list, got another")
        return cls(
            plans={name: Plan.from_json(json.dumps(plans[name])) for name in operators},
            servers={name: _read_servers(document["servers"][name]) for name in operators},
            measures=measures,
            options=dict(options),
            reasons=[str(reason) for reason in reasons],
            extra={key: value for key, value in document.items() if key not in _KNOWN},
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ColocationPlan):
            return NotImplemented
        return self.plans == other.plans and self.servers == other.servers

    def __hash__(self) -> int:
        return hash(tuple(self.plans.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return ColocationPlan.from_json, (self.to_json(),)


_KNOWN = frozenset(
    (
        "format",
        "format_version",
        "operators",
        "plans",
        "servers",
        "measures",
        "relations",
        "options",
        "reasons",
    )
)


def _read_servers(rows: Any) -> dict[int, int | str]:
    out: dict[int, int | str] = {}
    for task, server in rows:
        if isinstance(server, bool) or not isinstance(server, int | str):
            raise _core.FormatError("servers: expected ints or texts, got others")
        out[count(task, "servers")] = server
    return out


@dataclass(frozen=True)
class _AllMigrations:
    """Migrations of all operators: ids are those of (operator, key)."""

    ids: npt.NDArray[np.uint64]
    sources: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    state_sizes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class GateView:
    """A colocation plan as a gate reads it."""

    changes: bool
    forced: bool
    home: None
    migrations: _AllMigrations
    migration_cost: int
    imbalance_before: float
    level_before: float
    level_after: float
    locality_gain: float
    expected: str  # where the gain comes from

    @classmethod
    def of(cls, plan: ColocationPlan) -> Self:
        """What balance and locality gain, and what moves."""
        worst = max(plan.plans.values(), key=lambda each: each.imbalance_before)
        mean = max(worst.mean, 1e-300)
        moves = [each.migrations for each in plan.plans.values()]
        mixed = [
            # Another multiplier for each operator: the same key in two of them is two keys.
            move.ids * np.uint64(0x9E3779B97F4A7C15 + 2 * i)
            for i, move in enumerate(moves)
        ]
        forecast = plan.forecast
        return cls(
            changes=plan.changes,
            forced=any(each.forced for each in plan.plans.values()),
            home=None,
            migrations=_AllMigrations(
                np.concatenate(mixed),
                np.concatenate([move.sources for move in moves]),
                np.concatenate([move.targets for move in moves]),
                np.concatenate([move.state_sizes for move in moves]),
            ),
            migration_cost=plan.migration_cost,
            imbalance_before=worst.imbalance_before,
            level_before=worst.level_before / mean,
            level_after=worst.level_after / mean,
            locality_gain=plan.assured_gain if forecast is None else forecast.gain,
            expected="in the statistics" if forecast is None else forecast.reason,
        )


def make_plan(
    sides: Sequence[Side],
    servers: Sequence[int | str],
    measures: dict[str, Any],
    options: dict[str, Any],
    graph: _core.PairGraph,
) -> ColocationPlan:
    """Write down what was found."""
    plans = {side.name: _plan_of(side, measures, graph) for side in sides}
    shown = {
        **options,
        "max_imbalance": {side.name: side.options["max_imbalance"] for side in sides},
    }
    shown["max_table"] = {side.name: side.options["max_table"] for side in sides}
    plan = ColocationPlan(
        plans=plans,
        servers={
            side.name: {task: servers[at] for task, at in side.tasks.items()} for side in sides
        },
        measures=measures,
        options=shown,
        reasons=(),
        routers={side.name: side.router for side in sides},
        partners=_Partners(sides, servers, graph),
    )
    plan.reasons = [
        *(f"{name}: {reason}" for name, each in plans.items() for reason in each.reasons),
        *_of_budget(plan),
    ]
    return plan


def _plan_of(side: Side, measures: Mapping[str, Any], graph: _core.PairGraph) -> Plan:
    router, tasks = side.router, side.task_ids
    table = router.table
    items = router._core.split_items()
    was_named = router._core.named
    splits = Named(router.split_ids, lambda: [value for value, _ in items], was_named)
    owners = [list(map(int, each)) for _, each in items]
    tabled = np.flatnonzero(side.target != side.home)
    moved = np.flatnonzero(side.target != side.current)
    before, after = (_loads(side, placed) for placed in (side.current, side.target))
    mean = side.mean
    level = (1 + side.options["max_imbalance"]) * mean
    giants = np.flatnonzero(side.loads > level * side.capacities.max() * (1 + _TOLERANCE))
    values = _values(graph, side)
    facts = Facts(
        tasks=tasks,
        open=(side.capacities > 0).astype(np.uint8),
        capacities=np.where(side.capacities > 0, side.capacities, 1.0),
        loads_before=before,
        loads_after=after,
        estimated_loads=np.empty(0),
        mean=mean,
        limit=level,
        lower_bound=_lower_bound(side),
        least_migration=0,
        state_total=int(side.sizes.sum()),
        trials=int(measures["rounds"]),
        groups=0,
        giants=[
            (value, int(tasks[side.target[row]]), float(side.loads[row]))
            for value, row in zip(values(giants), giants.tolist(), strict=True)
        ],
        named=side.named,
        pinned_moves=0,
        seconds=float(measures["seconds"]),
        group_seconds=0.0,
        interval=0,
        options={
            "algorithm": "colocate",
            "max_imbalance": side.options["max_imbalance"],
            "max_table": side.options["max_table"],
            "max_migration": None,
            "mergeable": False,
            "drained": [],
            "two_sided": False,
        },
    )
    plan = Plan(
        before=State(
            Exceptions(Named(table.ids, lambda: list(table), was_named), table.targets),
            splits,
            owners,
            None,
            router.version,
            router.fingerprint,
        ),
        after=State(
            Exceptions(
                Named(side.ids[tabled], lambda: values(tabled), side.named),
                tasks[side.target[tabled]],
            ),
            splits,
            owners,
            None,
            router.version + 1,
            None,
        ),
        migrations=Migrations(
            Named(side.ids[moved], lambda: values(moved), side.named),
            tasks[side.current[moved]],
            tasks[side.target[moved]],
            side.sizes[moved],
            side.loads[moved],
        ),
        facts=facts,
        reasons=(),
        router=router,
    )
    plan.reasons = list(_of_side(plan, side))
    return plan


def _values(graph: _core.PairGraph, side: Side) -> Any:
    """Makes values of rows when they are asked for."""

    def values(rows: npt.NDArray[np.int64]) -> list[Any]:
        if not side.named:
            return list(side.ids[rows].tolist())
        return graph.values(side.index, rows.astype(np.uint64))

    return values


def _loads(side: Side, placed: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    return side.background + np.bincount(placed, side.loads, len(side.tasks))


def _lower_bound(side: Side) -> float:
    """A greatest level that no plan is below."""
    takes = side.capacities > 0
    heaviest = side.loads.max() if len(side.loads) else 0.0
    alone = ((side.background + heaviest)[takes] / side.capacities[takes]).min()
    fixed = (side.background[takes] / side.capacities[takes]).max()
    return float(max(side.mean, alone, fixed) * (1 - 1e-12))


def _of_side(plan: Plan, side: Side) -> list[str]:
    """What keeps an operator from being better placed."""
    out = [
        f"key {value!r} brings {load:g}, more than the {plan.facts.limit:g} that a task may carry:"
        f" it is on task {task}"
        for value, task, load in plan.giants
    ]
    most = side.options["max_table"]
    if most is not None and len(plan.table) >= most:
        out.append(f"max_table: all {most} entries are in use")
    if plan.level_after > plan.facts.limit * (1 + _TOLERANCE) and not plan.giants:
        text = f"max_imbalance: no placement within {plan.facts.limit:g} was found"
        if side.background.max() > plan.facts.limit:
            text = f"background: {side.background.max():g} is on one task already"
        out.append(f"{text}, the best has {plan.level_after:g}")
    return out


def _of_budget(plan: ColocationPlan) -> list[str]:
    budget = plan.options["max_migration"]
    if budget is None:
        return []
    if plan.migration_cost > budget:
        return [f"max_migration: {plan.migration_cost} bytes have to move for the table's bound"]
    if budget and plan.migration_cost > 0.95 * budget:
        return [f"max_migration: {plan.migration_cost} of {budget} bytes are used"]
    return []


class _Partners:
    """With which keys a key shares most traffic, and where those go."""

    def __init__(
        self, sides: Sequence[Side], servers: Sequence[int | str], graph: _core.PairGraph
    ) -> None:
        self.sides, self.servers, self.graph = list(sides), servers, graph

    def __call__(self, operator: str, value: Any) -> list[str]:
        [side] = [each for each in self.sides if each.name == operator]
        key = _plan_text.identity(value, side.named)
        at = int(np.searchsorted(side.ids, key))
        if at == len(side.ids) or side.ids[at] != key:
            return ["  in no pair of the statistics"]
        begin, end = (int(x) for x in self.graph.offsets[side.begin + at : side.begin + at + 2])
        ends = self.graph.neighbours[begin:end].astype(np.int64)
        counts = self.graph.counts[begin:end]
        here = side.server_of[side.target[at]]
        order = np.lexsort((ends, -counts))[:5]
        total = max(1, int(counts.sum()))
        where = np.array([self._server(int(end)) for end in ends], np.int64)
        local = int(counts[where == here].sum())
        share = f"{local / total:.2%} of its {total:,} records in {len(ends):,} pairs"
        lines = [f"  on server {self.servers[here]}, {share} stay there"]
        for i in order.tolist():
            name, partner = self._name(int(ends[i]))
            lines.append(
                f"  {counts[i]:,} with {partner!r} of {name}, on server {self.servers[where[i]]}"
            )
        return lines

    def _side(self, vertex: int) -> Side:
        return next(each for each in self.sides if each.begin <= vertex < each.end)

    def _server(self, vertex: int) -> int:
        side = self._side(vertex)
        return int(side.server_of[side.target[vertex - side.begin]])

    def _name(self, vertex: int) -> tuple[str, Any]:
        side = self._side(vertex)
        row = np.array([vertex - side.begin])
        return side.name, _values(self.graph, side)(row)[0]
