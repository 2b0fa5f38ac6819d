"""Twin of csrc/plan/bound.hpp, and the optimum that it must not exceed."""

from functools import cache

import numpy as np
import numpy.typing as npt

from reference.llfd import Problem, expand, limits, loads, mean_level


def lower_bound(problem: Problem) -> float:
    """Return a level that no placement on the open tasks stays below."""
    keys, _ = expand(problem)
    tasks = keys.open_tasks()
    costs = sorted(keys.cost, reverse=True)
    widths = sorted((keys.capacity[task] for task in tasks), reverse=True)
    bounds = [mean_level(keys)]
    bounds += [keys.base[task] / keys.capacity[task] for task in tasks]
    if costs:
        bounds.append(min((keys.base[task] + costs[0]) / keys.capacity[task] for task in tasks))
    for j in range(1, min(len(tasks) - 1, len(costs)) + 1):
        bounds.append(sum(costs[:j]) / sum(widths[:j]))
    for q in range(1, 9):
        last = q * len(tasks) + 1
        if last <= len(costs):
            bounds.append(sum(costs[last - q - 1 : last]) / widths[0])
    return max(bounds)


def least_migration(problem: Problem) -> int:
    """Return a number of bytes below which no placement within the limits stays."""
    keys, _ = expand(problem)
    limit, load = limits(keys), loads(keys, keys.current)
    closed = sum(
        size for size, task in zip(keys.size, keys.current, strict=True) if not keys.open[task]
    )
    moved = 0.0
    for task in keys.open_tasks():
        over = load[task] - limit[task]
        on_task = [k for k in keys.records() if keys.current[k] == task and keys.cost[k] > 0]
        for key in sorted(on_task, key=lambda key: (keys.size[key] / keys.cost[key], key)):
            part = min(1.0, max(0.0, over / keys.cost[key]))
            moved += part * keys.size[key]
            over -= part * keys.cost[key]
    return closed + int(moved * (1 - 1e-9))


def least_migrations(problem: Problem) -> int | None:
    """Return the least state moved by any placement within the limits; None: there is none."""
    keys, _ = expand(problem)
    tasks = keys.open_tasks()
    placed = all_placements(len(tasks), len(keys.id))
    base, limit = (np.array([c[t] for t in tasks]) for c in (keys.base, limits(keys)))
    within = (placed @ np.array(keys.cost, np.float64) + base <= limit).all(axis=1)
    stays = np.array([[at == task for at in keys.current] for task in tasks], np.float64)
    moved = ((1 - (placed * stays).sum(axis=1)) * np.array(keys.size, np.float64)).sum(axis=1)
    return int(moved[within].min()) if within.any() else None


@cache
def all_placements(tasks: int, keys: int) -> npt.NDArray[np.float64]:
    """Return [placement, task, key]: 1 where the placement has the key on the task."""
    where = np.indices((tasks,) * keys).reshape(keys, tasks**keys)
    return (where.T[:, None, :] == np.arange(tasks)[None, :, None]).astype(np.float64)


def optimum(problem: Problem) -> float:
    """Return the least greatest level of all placements on open tasks, by trying each."""
    keys, _ = expand(problem)
    tasks = keys.open_tasks()
    base, capacity = (np.array([c[t] for t in tasks]) for c in (keys.base, keys.capacity))
    load = all_placements(len(tasks), len(keys.id)) @ np.array(keys.cost, np.float64) + base
    return float((load / capacity).max(axis=1).min())
