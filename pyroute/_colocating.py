"""How `colocate` is made: statistics, a problem, its answer, a plan.

Imported when the first plan is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute import _core, metis
from pyroute._arrays import integers
from pyroute._colocate_options import (
    Given,
    Pairs,
    Server,
    expect_operators,
    in_order,
    of_operator,
    read_background,
    read_movable,
    read_nearness,
    read_options,
    read_partitioners,
    read_per_key,
    read_placement,
    read_relations,
    read_routers,
)
from pyroute.colocation import ColocationPlan, make_plan
from pyroute.key_stats import Snapshot
from pyroute.keys import Keys, as_core
from pyroute.ring import Ring
from pyroute.router import Router
from pyroute.space_saving import PairSpaceSaving, TopPairs

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
PerKey = Mapping[Any, float] | Snapshot | tuple[Any, Any]

_TOLERANCE = 1e-9


def made(
    pairs: Pairs | Mapping[tuple[str, str], Pairs],
    placement: int | Mapping[str, Mapping[int, Server]],
    *,
    routers: Mapping[str, Router] | Sequence[Router] | None,
    max_imbalance: float | Mapping[str, float],
    max_table: int | Mapping[str, int | None] | None,
    state_sizes: Mapping[str, PerKey] | None,
    max_migration: int | None,
    background: Mapping[str, Mapping[int, float]] | None,
    distances: Mapping[Any, Any] | npt.ArrayLike | None,
    seed: int,
    loads: Mapping[str, PerKey] | None,
    migration_weight: float,
    hysteresis: float,
    partitioner: str | Sequence[str],
    movable: str | Mapping[str, Any] | None,
) -> ColocationPlan:
    """What `colocate` answers; its docstring has the parameters."""
    started = time.perf_counter()
    options = read_options(
        max_imbalance, max_table, max_migration, migration_weight, hysteresis, seed
    )
    options["partitioner"] = read_partitioners(partitioner) if movable is None else []
    options["movable"] = movable if movable is None or isinstance(movable, str) else "given"
    relations = read_relations(pairs)
    operators = in_order(relations)
    tasks, servers = read_placement(placement, operators)
    sides = [
        Side(name, tasks[name], servers, router, of_operator(options, name))
        for name, router in read_routers(routers, operators, tasks).items()
    ]
    expect_operators(options["max_imbalance"], operators, "max_imbalance")
    expect_operators(options["max_table"], operators, "max_table")
    given = Given(
        read_per_key(state_sizes, operators, "state_sizes"),
        read_per_key(loads, operators, "loads"),
        read_background(background, tasks),
        read_movable(movable, operators),
    )
    near = read_nearness(distances, servers)
    graph = _graph(relations, sides)
    totals = _totals(relations, graph)
    for side in sides:
        side.fill(graph, given, totals)
    for side in sides:
        side.retire(graph)
    live = _Live(graph, sides)
    left = options["max_migration"]
    left = None if left is None else max(0, left - sum(side.retired_bytes for side in sides))
    problem = _problem(graph, live, sides, near, {**options, "max_migration": left})
    prepared = time.perf_counter()
    starts = _starts(graph, live, sides, len(servers), options)
    made = problem.colocate(starts, "native" in options["partitioner"], options["seed"])
    left = None if left is None else max(0, left - made["migration"])
    where = live.everywhere(made["where"], sides)
    for side in sides:
        left = side.settle(where[side.begin : side.end], left)
    measures = _measures(graph, sides, near, totals)
    measures |= {"rounds": made["rounds"], "from_scratch": made["start"] >= 0}
    measures |= {"prepared": prepared - started, "seconds": time.perf_counter() - started}
    return make_plan(sides, servers, measures, options, graph)


# from statistics to a problem -------------------------------------------------------------------


@dataclass
class Side:
    """One operator: its tasks and servers, its keys, and where they are and go."""

    name: str
    tasks: dict[int, int]  # task -> position of its server
    servers: list[Server]
    router: Router
    options: dict[str, Any]
    index: int = 0
    begin: int = 0  # of its vertices
    end: int = 0
    named: bool = True
    ids: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    loads: Reals = field(default_factory=lambda: np.empty(0))
    units: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # the loads, whole
    unit: float = 1.0
    penalty: int = 0
    sizes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    split: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    fixed: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    idle: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    current: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    rest: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    home: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    target: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    background: Reals = field(default_factory=lambda: np.empty(0))
    capacities: Reals = field(default_factory=lambda: np.empty(0))

    @property
    def task_ids(self) -> npt.NDArray[np.int32]:
        """The tasks, ascending."""
        return np.array(sorted(self.tasks), np.int32)

    @property
    def server_of(self) -> npt.NDArray[np.int32]:
        """The server of each task."""
        return np.array([self.tasks[task] for task in sorted(self.tasks)], np.int32)

    @property
    def mean(self) -> float:
        """Load of a task of capacity 1."""
        return float((self.loads.sum() + self.background.sum()) / self.capacities.sum())

    def fill(self, graph: _core.PairGraph, given: Given, totals: Totals) -> None:
        """Read what is known of the keys."""
        self.begin = graph.begin(self.index)
        self.ids = graph.ids(self.index)
        self.end = self.begin + len(self.ids)
        self.named = graph.named(self.index)
        self.capacities = _capacities(self.router, self.task_ids)
        self.current, self.home = self._route(graph)
        self.split = np.isin(self.ids, self.router.split_ids)
        self.fixed = self._fixed(given)
        self._fill_loads(graph, given, totals)
        self._fill_sizes(given)

    def _route(self, graph: _core.PairGraph) -> tuple[Any, Any]:
        """Where keys are and where they would be without a table, as positions of tasks."""
        if isinstance(self.router.home, Ring):
            core = _core.Keys.from_ids(self.ids)
        else:  # an engine hashes values
            rows = np.arange(len(self.ids), dtype=np.uint64)
            core = as_core(graph.values(self.index, rows), "values")
        home = self.router.home._core.homes(core)
        current = home.copy()
        table = self.router.table
        at = np.searchsorted(self.ids, table.ids)  # all of them are there
        current[at] = table.targets
        tasks = self.task_ids
        return (
            np.searchsorted(tasks, current).astype(np.int32),
            np.searchsorted(tasks, home).astype(np.int32),
        )

    def _fixed(self, given: Given) -> npt.NDArray[np.bool_]:
        """The keys that have to stay where they are."""
        if given.movable is None:
            return np.zeros(len(self.ids), np.bool_)
        if isinstance(given.movable, str):
            return np.isin(self.ids, self.router.table.ids)
        named = given.movable.get(self.name)
        free = np.empty(0, np.uint64) if named is None else named.ids
        return np.isin(self.ids, free, invert=True)

    def _look_up(self, found: tuple[Keys, Any], dtype: Any) -> Any:
        """A number for each key of the operator, 0 where none is given."""
        out = np.zeros(len(self.ids), dtype)
        named, values = found
        at = np.searchsorted(self.ids, named.ids)
        at[at == len(self.ids)] = 0
        there = self.ids[at] == named.ids
        np.add.at(out, at[there], np.asarray(values)[there])
        return out

    def _fill_loads(self, graph: _core.PairGraph, given: Given, totals: Totals) -> None:
        counted = graph.loads[self.begin : self.end]
        self.units, self.penalty = counted.copy(), _core.PENALTY
        self.loads = counted.astype(np.float64)
        self.background = totals.unnamed[self.name] * _shares(self.router, self.task_ids)
        if given.loads is not None and self.name in given.loads:
            self.loads = self._look_up(given.loads[self.name], np.float64)
            self.background = self._others(given.loads[self.name])
            self._scale(graph.total)
        if given.background is not None:
            listed = given.background.get(self.name, {})
            self.background = np.array([listed.get(t, 0.0) for t in self.task_ids.tolist()])
        self._spread_splits()

    def _others(self, found: tuple[Keys, Any]) -> Reals:
        """Load of keys that are in no pair: they stay where they are."""
        named, values = found
        others = ~np.isin(named.ids, self.ids)
        if not others.any():
            return np.zeros(len(self.tasks))
        if named.columns is None and not isinstance(self.router.home, Ring):
            raise TypeError(
                f"loads: expected values for {self.name!r}, whose home is an engine's, got ids"
            )
        at = np.searchsorted(self.task_ids, self.router.route(named, salt=0))
        out = np.zeros(len(self.tasks))
        np.add.at(out, at[others], np.asarray(values, np.float64)[others])
        return out

    def _scale(self, traffic: int) -> None:
        """Loads in whole units, fine enough that one of them does not matter."""
        total = self.loads.sum()
        if total <= 0:
            raise ValueError(f"loads: expected some load for {self.name!r}, got none")
        self.unit = total / (_core.PENALTY * max(1, traffic))
        self.units = np.rint(self.loads / self.unit).astype(np.int64)
        self.penalty = 1

    def _spread_splits(self) -> None:
        """The load of split keys is on all their tasks, and moves with none."""
        for key, owners in zip(
            self.router.split_ids.tolist(), self.router.splits.values(), strict=True
        ):
            at = int(np.searchsorted(self.ids, np.uint64(key)))
            if at < len(self.ids) and self.ids[at] == key:
                positions = np.searchsorted(self.task_ids, owners)
                self.background[positions] += self.loads[at] / len(owners)
        self.loads[self.split] = 0
        self.units[self.split] = 0

    def _fill_sizes(self, given: Given) -> None:
        if given.sizes is None:
            self.sizes = np.rint(self.loads).astype(np.int64)
        elif self.name in given.sizes:
            self.sizes = self._look_up(given.sizes[self.name], np.int64)
        else:
            self.sizes = np.zeros(len(self.ids), np.int64)
        self.sizes[self.split] = 0

    def retire(self, graph: _core.PairGraph) -> None:
        """Say where keys of the table that are in no pair go: they stay, or go home for room.

        They are no part of the problem, so that a plan made again, when some of them have left the
        table, is made for the same one. Home go as many as the bound on the table has no room for
        if every other key had an entry, those with the least state first.
        """
        self.idle = np.diff(graph.offsets[self.begin : self.end + 1]) == 0
        self.rest = self.current.copy()
        most = self.options["max_table"]
        if most is None:
            return
        away = np.flatnonzero(self.idle & ~self.fixed & (self.current != self.home))
        beyond = int((~self.idle).sum()) + len(away) - most
        order = np.lexsort((self.ids[away], self.sizes[away]))
        sent = away[order[: max(0, beyond)]]
        self.rest[sent] = self.home[sent]

    @property
    def retired_bytes(self) -> int:
        """State of keys in no pair that go home."""
        return int(self.sizes[self.rest != self.current].sum())

    @property
    def entries_left(self) -> int:
        """What keys in no pair leave of the bound on the table; -1: any number."""
        most = self.options["max_table"]
        if most is None:
            return -1
        return max(0, int(most) - int((self.rest != self.home)[self.idle].sum()))

    def limits(self) -> Ints:
        """Units of load that keys may bring to each server; below 0: it takes none."""
        n = len(self.servers)
        shared = np.bincount(self.server_of, minlength=n)[self.server_of] > 1
        # Several tasks of a server need some room to be balanced within the limit of each.
        imbalance = self.options["max_imbalance"] * np.where(shared, 0.9, 1.0)
        level = (1 + imbalance) * self.mean * (1 + _TOLERANCE)
        allowed = np.bincount(self.server_of, level * self.capacities, n)
        taken = np.bincount(self.server_of, self.background, n)
        taken += np.bincount(self.server_of[self.rest[self.idle]], self.loads[self.idle], n)
        limit = np.floor((allowed - taken) / self.unit)
        closed = np.bincount(self.server_of, self.capacities, n) == 0
        out: Ints = np.where(closed, -1, np.maximum(limit, -(2.0**60))).astype(np.int64)
        return out

    def settle(self, where: npt.NDArray[np.int32], left: int | None) -> int | None:
        """Choose tasks inside the servers; what is left of the budget for moves inside."""
        stays = self.fixed | self.idle
        free, most = ~stays, self.options["max_table"]
        tabled = int((self.rest != self.home)[stays].sum())
        self.target = self.rest.copy()
        self.target[free] = _core.place_inside(
            self.server_of,
            self.capacities,
            self.background
            + np.bincount(self.rest[stays], self.loads[stays], len(self.background)),
            self.ids[free],
            self.loads[free],
            self.sizes[free],
            where[free],
            self.current[free],
            self.home[free],
            self.mean,
            self.options["max_imbalance"],
            -1 if most is None else max(0, most - tabled),
            -1 if left is None else left,
        )
        self.target[self.split] = self.current[self.split]
        inside = self.server_of[self.target] == self.server_of[self.current]
        moved = self.sizes[inside & (self.target != self.current)].sum()
        return None if left is None else max(0, left - int(moved))


def _capacities(router: Router, tasks: npt.NDArray[np.int32]) -> Reals:
    """Relative speed of tasks, their mean 1; 0: takes nothing."""
    if not isinstance(router.home, Ring):
        return np.ones(len(tasks))
    weights = router.home.weights
    out: Reals = np.array([weights[task] for task in tasks.tolist()])
    out /= out[out > 0].mean()
    return out


def _shares(router: Router, tasks: npt.NDArray[np.int32]) -> Reals:
    """The share of unknown keys that each task gets."""
    if not isinstance(router.home, Ring):
        return np.full(len(tasks), 1 / len(tasks))
    shares = router.home.shares()
    return np.array([shares[task] for task in tasks.tolist()])


def _graph(relations: Mapping[tuple[str, str], Pairs], sides: Sequence[Side]) -> _core.PairGraph:
    graph = _core.PairGraph(len(sides))
    bare = any(len(side.router.table) and not side.router._core.named for side in sides)
    number = {side.name: i for i, side in enumerate(sides)}
    for (start, end), found in relations.items():
        at = number[start], number[end]
        if isinstance(found, PairSpaceSaving) and not bare:
            graph.add_sketch(*at, found._core)
            continue
        top = found.top() if isinstance(found, PairSpaceSaving) else found
        ins, outs = (as_core(values, "pairs") for values in (top.in_values, top.out_values))
        if bare:  # names of tabled keys are not known
            ins, outs = _core.Keys.from_ids(ins.ids), _core.Keys.from_ids(outs.ids)
        graph.add(*at, ins, outs, integers(top.counts, "counts"), integers(top.errors, "errors"))
    for side in sides:
        side.index = number[side.name]
        table = side.router.table
        if len(table):
            graph.add_keys(side.index, _table_keys(side.router, bare))
    graph.finish()
    return graph


def _table_keys(router: Router, bare: bool) -> _core.Keys:
    if bare:
        return _core.Keys.from_ids(router.table.ids)
    return as_core(list(router.table), "routers")


@dataclass
class Totals:
    """Traffic of each relation, named or not, and what is not named."""

    relations: dict[tuple[str, str], float]
    unnamed_pairs: dict[tuple[str, str], float]
    unnamed: dict[str, float]  # by operator


def _totals(relations: Mapping[tuple[str, str], Pairs], graph: _core.PairGraph) -> Totals:
    everything = {}
    rest = {}
    for relation, found in relations.items():
        named = float(np.sum(found.counts)) if isinstance(found, TopPairs) else 0.0
        if isinstance(found, PairSpaceSaving):
            named = float(graph.total) if len(relations) == 1 else float(found.top().counts.sum())
            rest[relation] = max(0.0, found.total - named)
        everything[relation] = named + rest.setdefault(relation, 0.0)
    names = dict.fromkeys(name for relation in relations for name in relation)
    unnamed = {}
    for name in names:
        came = [rest[relation] for relation in relations if relation[1] == name]
        went = [rest[relation] for relation in relations if relation[0] == name]
        unnamed[name] = max(sum(came), *went, 0.0)
    return Totals(everything, rest, unnamed)


class _Live:
    """The vertices that have pairs, numbered without the others."""

    def __init__(self, graph: _core.PairGraph, sides: Sequence[Side]) -> None:
        self.mask = ~np.concatenate([side.idle for side in sides])
        self.offsets = graph.offsets
        self.neighbours = graph.neighbours
        if not self.mask.all():
            self.offsets = np.append(graph.offsets[:-1][self.mask], graph.offsets[-1])
            number = np.cumsum(self.mask) - 1
            self.neighbours = number[graph.neighbours].astype(np.uint32)

    def everywhere(
        self, where: npt.NDArray[np.int32], sides: Sequence[Side]
    ) -> npt.NDArray[np.int32]:
        """The servers of all vertices, from those of the live ones."""
        out = np.concatenate([side.server_of[side.rest] for side in sides])
        out[self.mask] = where
        return out


def _problem(
    graph: _core.PairGraph,
    live: _Live,
    sides: Sequence[Side],
    near: Ints,
    options: Mapping[str, Any],
) -> _core.Locality:
    n, m = graph.vertices, len(sides)
    load = np.zeros((n, m), np.int64)
    member = np.empty(n, np.uint64)
    for i, side in enumerate(sides):
        load[side.begin : side.end, i] = side.units
        member[side.begin : side.end] = np.uint64(1 << i)
    sizes = np.concatenate([side.sizes for side in sides])[live.mask]
    price = options["migration_weight"] * graph.total * _core.NEAR / max(1, int(sizes.sum()))
    current = np.concatenate([side.server_of[side.current] for side in sides])[live.mask]
    budget = options["max_migration"]
    return _core.Locality(
        servers=len(near),
        operators=m,
        load=load[live.mask].ravel(),
        member=member[live.mask],
        size=sizes,
        stake=np.minimum(np.rint(sizes * price), 2.0**56).astype(np.int64),
        current=current,
        origin=current,
        home=np.concatenate([side.server_of[side.home] for side in sides])[live.mask],
        offsets=live.offsets,
        neighbour=live.neighbours,
        weight=_weights(graph, sides),
        limit=np.concatenate([side.limits() for side in sides]),
        penalty=np.array([side.penalty for side in sides]),
        near=near.ravel(),
        max_table=np.array([side.entries_left for side in sides]),
        max_migration=-1 if budget is None else budget,
        fixed=_fixed_of(live, sides, options),
        fee=round(options["hysteresis"] * graph.total * _core.NEAR),
    )


def _fixed_of(
    live: _Live, sides: Sequence[Side], options: Mapping[str, Any]
) -> npt.NDArray[np.uint8]:
    """Which vertices stay; empty where all may move."""
    if options["movable"] is None:
        return np.empty(0, np.uint8)
    out: npt.NDArray[np.uint8] = np.concatenate([side.fixed for side in sides])[live.mask].astype(
        np.uint8
    )
    return out


def _weights(graph: _core.PairGraph, sides: Sequence[Side]) -> Ints:
    """Traffic of the pairs; none for keys that are split, which are everywhere."""
    split = np.concatenate([side.split for side in sides])
    if not split.any():
        return graph.counts
    rows = np.repeat(split, np.diff(graph.offsets).astype(np.int64))
    return np.where(rows | split[graph.neighbours], 0, graph.counts)


def _starts(
    graph: _core.PairGraph,
    live: _Live,
    sides: Sequence[Side],
    servers: int,
    options: Mapping[str, Any],
) -> list[npt.NDArray[np.int32]]:
    if "metis" not in options["partitioner"]:
        return []
    # One weight for each vertex: the operators count alike (C1; the refinement holds each limit).
    weights = [
        np.rint(side.loads / max(side.loads.sum(), 1e-300) * 2.0**40).astype(np.int64)
        for side in sides
    ]
    parts = metis.partition(
        live.offsets,
        live.neighbours,
        graph.counts,
        np.concatenate(weights)[live.mask],
        servers,
        max_imbalance=min(side.options["max_imbalance"] for side in sides),
        seed=options["seed"] % (1 << 31),
    )
    return [parts]


# from the answer to a plan ----------------------------------------------------------------------


def _measures(
    graph: _core.PairGraph, sides: Sequence[Side], near: Ints, totals: Totals
) -> dict[str, Any]:
    """Shares of the traffic: local before and after, at least, by relation; covered."""
    everything = max(sum(totals.relations.values()), 1e-300)
    out: dict[str, Any] = {"traffic": everything}
    for side_of, placed in (("before", "current"), ("after", "target")):
        label = np.concatenate(
            [np.where(side.split, -1, side.server_of[getattr(side, placed)]) for side in sides]
        ).astype(np.int32)
        local = _by_relation(graph.shared(label, False), sides, totals)
        assured = _by_relation(graph.shared(label, True), sides, totals)
        guessed = {name: _chance(sides, name, rest) for name, rest in totals.unnamed_pairs.items()}
        out[f"locality_{side_of}"] = (sum(local.values()) + sum(guessed.values())) / everything
        out[f"assured_{side_of}"] = sum(assured.values()) / everything
        reached = graph.nearness(np.maximum(label, 0), near.ravel(), len(near)) / _core.NEAR
        out[f"distance_{side_of}"] = 1 - (reached + sum(guessed.values())) / everything
        if side_of == "after":
            out["relations"] = {
                name: (local[name] + guessed[name]) / max(total, 1e-300)
                for name, total in totals.relations.items()
            }
    covered = np.concatenate([_covered(side) for side in sides])
    both = graph.shared(np.where(covered, 0, -1).astype(np.int32), False)
    out["coverage"] = float(both.sum()) / everything
    return out


def _by_relation(sums: Ints, sides: Sequence[Side], totals: Totals) -> dict[tuple[str, str], float]:
    square = sums.reshape(len(sides), len(sides))
    number = {side.name: i for i, side in enumerate(sides)}
    return {
        (start, end): float(square[number[start], number[end]]) for start, end in totals.relations
    }


def _chance(sides: Sequence[Side], relation: tuple[str, str], rest: float) -> float:
    """Traffic of keys without a name that is local by chance."""
    shares = [
        np.bincount(side.server_of, _shares(side.router, side.task_ids), len(side.servers))
        for name in relation
        for side in sides
        if side.name == name
    ]
    return rest * float(shares[0] @ shares[1])


def _covered(side: Side) -> npt.NDArray[np.bool_]:
    """Keys that have the place that the plan wants: all, unless a full table keeps them home."""
    tabled = side.target != side.home
    most = side.options["max_table"]
    covered: npt.NDArray[np.bool_] = ~side.split
    return covered if most is None or tabled.sum() < most else covered & tabled
