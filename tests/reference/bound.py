"""Twin of csrc/plan/bound.hpp, and the optimum that it must not exceed."""

from functools import cache

import numpy as np
import numpy.typing as npt

from reference.llfd import Problem, expand, mean_level


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
