"""Plans in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyroute.keys import Keys, as_core

if TYPE_CHECKING:
    from pyroute.plan import Plan

_SHOWN = 40  # tasks that a summary lists at most
_TOLERANCE = 1e-9


def in_bytes(size: int) -> str:
    """Bytes as a person reads them."""
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"


def summary(plan: Plan) -> str:
    """Loads before and after, what moves, what it costs and why it is not better."""
    most = plan.options["max_table"]
    bound = max(0.0, plan.lower_bound / plan.mean - 1) if plan.mean > 0 else 0.0
    moved = f"{in_bytes(plan.migration_cost)}, {plan.migration_share:.2%} of all state"
    if plan.feasible and plan.least_migration > 0:
        moved += f", {plan.migration_cost / plan.least_migration:.2f}x the least possible"
    facts = {
        "imbalance": f"{plan.imbalance_before:8.2%} -> {plan.imbalance:.2%}"
        f" (lower bound {bound:.2%}, gap {plan.gap:.2%})",
        "keys moved": f"{len(plan.migrations):8,} ({moved})",
        "table": f"{len(plan.before.table):8,} -> {len(plan.table):,} keys"
        + ("" if most is None else f" of {most:,}"),
        "time": f"{plan.seconds * 1e3:8.1f} ms",
    }
    if plan.groups:
        facts["key groups"] = f"{plan.groups:8,}, made in {plan.group_seconds * 1e3:.1f} ms"
    if plan.splits:
        facts["split"] = f"{len(plan.splits):8,} keys"
    if plan.home is not None:
        facts["ring"] = f"{len(plan.circle_moves):8,} identifiers change their owner"
    asked = f"{plan.options['algorithm']}, max_imbalance {plan.options['max_imbalance']:g}"
    rows = [f"plan for router version {plan.version}: {asked}"]
    rows += [f"  {name:<12} {fact}" for name, fact in facts.items()]
    rows += _loads(plan)
    rows.append("feasible" if plan.feasible else "not feasible")
    return "\n".join([*rows, *(f"  because {reason}" for reason in plan.reasons)])


def _loads(plan: Plan) -> list[str]:
    before, after = plan.loads_before, plan.loads_after
    scale = max(before.max(), after.max()) or 1.0
    rows = [f"  {'task':>6}  {'before':>12}  {'after':>12}"]
    order = np.argsort(-np.maximum(before, after), kind="stable")
    for i in np.sort(order[:_SHOWN]).tolist():
        bar = "#" * round(24 * after[i] / scale)
        closed = "" if plan.facts.open[i] else "closed"
        row = f"  {plan.tasks[i]:>6}  {before[i]:>12,.6g}  {after[i]:>12,.6g}  {bar}{closed}"
        rows.append(row.rstrip())
    if len(order) > _SHOWN:
        rows.append(f"  ... and {len(order) - _SHOWN} tasks with less load")
    return rows


def explain(plan: Plan, value: Any, home: Any = None) -> str:
    """Cost of a key, where it goes, and by which rule; `home` is that of a plan without one."""
    key = _identity(plan, value)
    moves = np.flatnonzero(plan.migrations.ids == key).tolist()
    lines = [repr(value), *_cost(plan, key)]
    lines += [_move(plan, at) for at in moves]
    for name, task, cost in plan.giants:
        if _identity(plan, name) == key:
            limit = plan.facts.limit
            lines.append(f"dearer than a task may be loaded ({cost:g} > {limit:g}): on task {task}")
    lines.append(("then " if moves else "") + _place(plan, int(key), value, home))
    return "\n  ".join(lines)


def _identity(plan: Plan, value: Any) -> np.uint64:
    return identity(value, plan.facts.named)


def identity(value: Any, named: bool) -> np.uint64:
    """The id of a value; of a plan that knows ids alone, an integer is one."""
    if not named and isinstance(value, int | np.integer):
        return np.uint64(value)
    if isinstance(value, Keys):
        return value.ids[0]  # type: ignore[no-any-return]
    return as_core([value], "value").ids[0]  # type: ignore[no-any-return]


def _cost(plan: Plan, key: np.uint64) -> list[str]:
    snapshot = plan.snapshot
    if snapshot is None:
        return _cost_of_moves(plan, key)
    rows = np.flatnonzero(snapshot.ids == key)
    if not len(rows):
        return ["nothing was seen of it: cost 0, state size 0"]
    cost, size = float(snapshot.costs[rows].sum()), int(snapshot.state_sizes[rows].sum())
    rank = int((snapshot.costs > cost).sum()) + 1
    share = f" ({cost / plan.mean:.2%} of the mean load)" if plan.mean > 0 else ""
    return [f"cost {cost:g}{share}, rank {rank} of {len(snapshot)}, state {in_bytes(size)}"]


def _cost_of_moves(plan: Plan, key: np.uint64) -> list[str]:
    """Of a plan that was read, which knows what those keys cost that move."""
    moves = plan.migrations
    rows = np.flatnonzero(moves.ids == key)
    if len(rows) != 1:  # several are parts of a split key
        return []
    cost = float(moves.costs[rows[0]])
    share = f" ({cost / plan.mean:.2%} of the mean load)" if plan.mean > 0 else ""
    return [f"cost {cost:g}{share}"]


def _move(plan: Plan, at: int) -> str:
    moves = plan.migrations
    source, target = int(moves.sources[at]), int(moves.targets[at])
    i, j = plan.tasks.index(source), plan.tasks.index(target)
    before, after = plan.loads_before, plan.loads_after
    limit = plan.facts.limit * plan.capacities[i]
    key = int(moves.ids[at])
    if not plan.facts.open[i]:
        why = f"task {source} is closed"
    elif key in plan.before.table.by_id() and key not in plan.table.by_id():
        why = "it goes home, which makes the table smaller"
    elif before[i] > limit * (1 + _TOLERANCE):
        why = f"task {source} had a load of {before[i]:g}, and {limit:g} is allowed"
    else:
        why = f"task {source} was not overloaded: a pin, the search, or room for a dearer key"
    return (
        f"moves from task {source} (load {before[i]:g} -> {after[i]:g}) to task {target}"
        f" (load {before[j]:g} -> {after[j]:g}) with {in_bytes(int(moves.state_sizes[at]))}: {why}"
    )


def _place(plan: Plan, key: int, value: Any, home: Any) -> str:
    tabled = plan.table.by_id().get(key)
    if tabled is not None:
        return f"in the table: task {tabled}"
    splits = dict(zip(plan.after.split_keys.ids.tolist(), plan.after.split_tasks, strict=True))
    if key in splits:
        return f"split over tasks {', '.join(map(str, splits[key]))}"
    home = plan.home or (plan.router.home if plan.router is not None else home)
    if home is None or not plan.facts.named:
        return "at its home"
    return f"at its home, task {int(home.homes([value])[0])}"
