"""Behind `rebalance` and `elastic`: what is asked is checked, the kernel plans, the plan is told.

Here, and not beside them, so that `import pyroute` has the functions and not what they need.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute import _core, metrics
from pyroute._arrays import count, numbers, real, task_id, task_ids
from pyroute.homes import EngineHome
from pyroute.key_stats import Snapshot
from pyroute.keys import Keys, as_core
from pyroute.plan import Exceptions, Facts, Migrations, Named, Plan, State
from pyroute.ring import Ring, Tasks
from pyroute.router import Router

_TOLERANCE = 1e-9


def made_elastic(snapshot: Snapshot, router: Router, tasks: Tasks, **wishes: Any) -> Plan:
    """The plan for other tasks."""
    _expect(router, Router, "router")
    if not isinstance(router.home, Ring):
        raise TypeError(
            f"router: expected one over a Ring, got one over {type(router.home).__name__}:"
            " the home of an engine cannot change its tasks"
        )
    return made(snapshot, router, router.home.with_tasks(tasks), **wishes)


def made(
    snapshot: Snapshot,
    router: Router,
    ring: Ring | None,
    *,
    capacities: Any,
    pins: Any,
    drained: Any,
    **wishes: Any,
) -> Plan:
    """The plan; with `ring` for its tasks instead of the router's."""
    _expect(snapshot, Snapshot, "snapshot")
    _expect(router, Router, "router")
    options = _options(**wishes)
    started = time.perf_counter()
    home = router.home
    after, closed = _drain(home if ring is None else ring, drained)
    if isinstance(after, Ring):  # a weight of 0 stays empty, unless a capacity says otherwise
        named = capacities if isinstance(capacities, Mapping) else ()
        closed = sorted(
            {*closed, *(t for t, w in after.weights.items() if w == 0 and t not in named)}
        )
    tasks = np.union1d(task_ids(router.tasks, "tasks"), task_ids(after.tasks, "tasks"))
    is_open = np.isin(tasks, after.tasks) & ~np.isin(tasks, closed)
    stray = set(snapshot.background) - set(tasks.tolist())
    if stray:
        raise ValueError(f"background: expected tasks of the router, got {min(stray)}")
    pinned, pinned_to = _pins(pins, tasks[is_open])
    core = _core.PlanInput(snapshot._core, router._core, as_core(pinned, "pins"), pinned_to)
    before_homes = _homes(home, core)
    native = core.plan(
        tasks,
        before_homes,
        before_homes if after is home else _homes(after, core),
        open=is_open.astype(np.uint8),
        capacities=_capacities(capacities, after, tasks),
        **_native(options),
    )
    seconds = time.perf_counter() - started
    rings: tuple[Ring | None, Ring | None] = (None, None)
    if isinstance(home, Ring) and isinstance(after, Ring) and after != home:
        rings = (home, after)
    return _wrap(
        native,
        router,
        snapshot,
        options | {"drained": closed},
        seconds,
        rings,
    )


def _drain(home: Ring | EngineHome, drained: Any) -> tuple[Ring | EngineHome, list[int]]:
    """The home without the drained tasks, and those."""
    if isinstance(drained, str | bytes) or not isinstance(drained, Iterable):
        raise TypeError(f"drained: expected task ids, got {type(drained).__name__}")
    closed = sorted({task_id(task, "drained") for task in drained})
    tasks = set(home.tasks)
    for task in closed:
        if task not in tasks:
            raise ValueError(f"drained: expected tasks of the router, got {task}")
    if closed and not tasks - set(closed):
        raise ValueError("drained: expected a task to be left, got all of them")
    if closed and isinstance(home, Ring):
        weights = {task: 0.0 if task in closed else w for task, w in home.weights.items()}
        if not any(weights.values()):
            raise ValueError("drained: expected a task with a weight to be left, got none")
        if weights != home.weights:
            home = home.with_tasks(weights)
    return home, closed


def _homes(home: Ring | EngineHome, core: _core.PlanInput) -> npt.NDArray[np.int32]:
    if isinstance(home, Ring):
        return home._core.homes(_core.Keys.from_ids(core.ids))  # type: ignore[no-any-return]
    # An engine hashes values, and refuses keys that have none.
    return home.homes(core.values() if core.named else Keys.from_ids(core.ids))


def _pins(pins: Any, tasks: npt.NDArray[np.int32]) -> tuple[Any, npt.NDArray[np.int32]]:
    if pins is None:
        return [], np.empty(0, np.int32)
    if not isinstance(pins, Mapping):
        raise TypeError(f"pins: expected a mapping of value to task, got {type(pins).__name__}")
    to = task_ids(list(pins.values()), "pins")
    wrong = to[~np.isin(to, tasks)]
    if len(wrong):
        raise ValueError(f"pins: expected tasks that are there and not drained, got {wrong[0]}")
    return list(pins), to


def _capacities(
    capacities: Any,
    home: Ring | EngineHome,
    tasks: npt.NDArray[np.int32],
) -> npt.NDArray[np.float64]:
    out = np.ones(len(tasks))
    if capacities is None:
        if isinstance(home, Ring):
            weights = home.weights
            mean = np.mean([weight for weight in weights.values() if weight > 0])
            for i, task in enumerate(tasks.tolist()):
                out[i] = weights.get(task, 0.0) or mean
        return out
    known = {task: i for i, task in enumerate(tasks.tolist())}
    if isinstance(capacities, Mapping):
        given = {
            task_id(task, "capacities"): real(capacity, "capacities")
            for task, capacity in capacities.items()
        }
    else:
        column = numbers(capacities, "capacities").tolist()
        if len(column) != len(tasks):
            raise ValueError(f"capacities: expected {len(tasks)} of them, got {len(column)}")
        given = dict(zip(tasks.tolist(), column, strict=True))
    for task, capacity in given.items():
        if task not in known:
            raise ValueError(f"capacities: expected tasks of the router, got {task}")
        if not 0 < capacity < math.inf:
            raise ValueError(f"capacities: expected finite numbers above 0, got {capacity}")
        out[known[task]] = capacity
    return out


def _options(
    *,
    max_imbalance: Any,
    max_table: Any,
    algorithm: Any,
    beta: Any,
    degree: Any,
    max_migration: Any,
    mergeable: Any,
    search_moves: Any,
    sigma: Any,
    two_sided: Any,
) -> dict[str, Any]:
    if not isinstance(algorithm, str):
        raise TypeError(f"algorithm: expected a name, got {type(algorithm).__name__}")
    for name, flag in (("mergeable", mergeable), ("two_sided", two_sided)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name}: expected True or False, got {type(flag).__name__}")
    theta = real(max_imbalance, "max_imbalance")
    if not 0 <= theta <= 1e9:
        raise ValueError(f"max_imbalance: expected a number from 0 to 1e9, got {theta}")
    return {
        "algorithm": algorithm,
        "max_imbalance": theta,
        "max_table": None if max_table is None else count(max_table, "max_table"),
        "beta": _positive(beta, "beta"),
        "degree": None if degree is None else _degree(degree),
        "max_migration": None if max_migration is None else count(max_migration, "max_migration"),
        "mergeable": mergeable,
        "search_moves": count(search_moves, "search_moves"),
        "sigma": None if sigma is None else _positive(sigma, "sigma"),
        "two_sided": two_sided,
    }


def _native(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the kernel takes them: numbers instead of None."""
    return {
        **options,
        "max_table": -1 if options["max_table"] is None else options["max_table"],
        "max_migration": -1 if options["max_migration"] is None else options["max_migration"],
        "degree": options["degree"] or 0,
        "sigma": options["sigma"] or 0.0,
    }


def _wrap(
    native: _core.Plan,
    router: Router,
    snapshot: Snapshot,
    options: dict[str, Any],
    seconds: float,
    homes: tuple[Ring | None, Ring | None],
) -> Plan:
    table = router.table
    items = router._core.split_items()
    new_items = native.split_items()
    named, was_named = native.named, router._core.named
    before = State(
        Exceptions(Named(table.ids, lambda: list(table), was_named), table.targets),
        _split_keys([value for value, _ in items], was_named),
        [tasks for _, tasks in items],
        homes[0],
        router.version,
        router.fingerprint,
    )
    after = State(
        Exceptions(Named(native.table_ids, native.table_values, named), native.table_targets),
        _split_keys([value for value, _ in new_items], named),
        [tasks for _, tasks in new_items],
        homes[1],
        router.version + 1,
        None,
    )
    facts = Facts(
        tasks=native.tasks,
        open=native.open,
        capacities=native.capacities,
        loads_before=native.loads_before,
        loads_after=native.loads_after,
        estimated_loads=native.estimated_loads,
        mean=native.mean,
        limit=native.limit,
        lower_bound=native.lower_bound,
        least_migration=native.least_migration,
        state_total=native.state_total,
        trials=native.trials,
        groups=native.groups,
        giants=native.giants(),
        named=named,
        pinned_moves=native.pinned_moves,
        seconds=seconds - native.group_seconds,
        group_seconds=native.group_seconds,
        interval=snapshot.interval,
        options=options,
    )
    plan = Plan(
        before=before,
        after=after,
        migrations=Migrations(
            Named(native.ids, native.values, named),
            native.sources,
            native.targets,
            native.state_sizes,
            native.costs,
        ),
        facts=facts,
        reasons=(),
        router=router,
        snapshot=snapshot,
    )
    plan.reasons = _reasons(plan, native)
    metrics.PLANS.add(1, algorithm=options["algorithm"])
    metrics.PLAN_SECONDS.add(max(0.0, plan.seconds), algorithm=options["algorithm"])
    return plan


def _split_keys(values: list[Any], named: bool) -> Named:
    if named:
        return Named(as_core(values, "splits").ids, lambda: values)
    return Named(np.array(values, np.uint64), lambda: values, named=False)


def _reasons(plan: Plan, native: _core.Plan) -> list[str]:
    """What keeps the plan from being better."""
    return [*_of_giants(plan), *_of_bounds(plan, native), *_of_tasks(plan)]


def _of_giants(plan: Plan) -> Iterator[str]:
    limit = plan.facts.limit
    advice = "" if plan.options["mergeable"] else "; mergeable work could be split"
    background = plan.snapshot.background if plan.snapshot is not None else {}
    for value, task, cost in plan.giants:
        load = plan.loads_after[plan.tasks.index(task)]
        alone = load <= (cost + background.get(task, 0.0)) * (1 + _TOLERANCE)
        where = f"has task {task} to itself" if alone else f"is on task {task}"
        yield (
            f"key {value!r} costs {cost:g}, more than the {limit:g} that a task may carry:"
            f" it {where}{advice}"
        )


def _of_bounds(plan: Plan, native: _core.Plan) -> Iterator[str]:
    options, limit = plan.options, plan.facts.limit
    over = plan.level_after > limit * (1 + _TOLERANCE)
    most, budget = options["max_table"], options["max_migration"]
    said = bool(plan.giants)
    if native.table_full:
        said = True
        yield (
            f"max_table: with {most} keys away from their home no better plan was found"
            if len(plan.table) <= most
            else f"max_table: {len(plan.table)} keys have to be away from a home that is closed"
        )
    if native.budget_spent or (budget is not None and plan.migration_cost > budget):
        said = True
        yield (
            f"max_migration: with {budget} bytes that move no better plan was found"
            if plan.migration_cost <= budget
            else f"max_migration: {plan.migration_cost} bytes have to leave closed tasks, or go"
            " where pins and the bound on the table want them"
        )
    if not over:
        return
    if plan.lower_bound > limit * (1 + _TOLERANCE):
        yield (
            f"max_imbalance: no plan has a greatest load below {plan.lower_bound:g},"
            f" and {limit:g} is allowed"
        )
    elif options["degree"] is not None and not said and not native.stuck:
        worst = (plan.loads_after / np.maximum(plan.estimated_loads, 1e-300)).max() - 1
        yield f"degree: loads are up to {worst:.3%} above what the key groups said"
    elif not said or native.stuck:
        yield (
            f"max_imbalance: no placement within {limit:g} was found, the best has"
            f" {plan.level_after:g}; search_moves may find a better one"
        )


def _of_tasks(plan: Plan) -> Iterator[str]:
    options, levels = plan.options, plan.levels_after
    least = (1 - options["max_imbalance"]) * plan.mean * (1 - _TOLERANCE)
    if options["two_sided"] and levels.min() < least:
        yield (
            f"two_sided: a task carries {levels.min():g}, and no key, table entry or byte is left"
            " that could lift it"
        )
    left = plan.loads_after[(plan.facts.open == 0) & (plan.loads_after > 0)]
    if len(left):
        yield f"drained: background load of {left.sum():g} is on tasks that are closed"
    if len(options["drained"]) and plan.home is None and _engine(plan):
        yield (
            "drained: the home is an engine's and stays, so keys that were not seen still go to"
            f" tasks {options['drained']}"
        )


def _engine(plan: Plan) -> bool:
    return plan.router is not None and isinstance(plan.router.home, EngineHome)


def _expect(value: object, kind: type, name: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected a {kind.__name__}, got {type(value).__name__}")


def _positive(value: Any, name: str) -> float:
    number = real(value, name)
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: expected a finite number above 0, got {number}")
    return number


def _degree(value: Any) -> int:
    degree = count(value, "degree", 1 << 30)
    if degree < 1 or degree & (degree - 1):
        raise ValueError(f"degree: expected a power of two from 1 to 2^30, got {degree}")
    return degree
