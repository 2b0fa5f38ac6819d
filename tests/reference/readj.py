"""Twin of csrc/plan/readj.hpp: returns and pairwise exchanges."""

from reference.llfd import (
    Placement,
    Problem,
    by_level,
    dearest_first,
    expand,
    find_entries,
    find_start,
    greatest_level,
    limits,
    loads,
    mean_level,
    state_moved,
)

MANY = 2048
WORTHWHILE = 1e-9


def readj(problem: Problem, sigma: float) -> Placement:
    """Run with one sigma, or with the best of 1, 1/2, 1/4, ... where it is 0."""
    keys, record = expand(problem)
    tried = [sigma] if sigma > 0 else sigmas(keys)
    where = best_run(keys, tried)
    return Placement(record, where, loads(keys, where), trials=len(tried))


def best_run(keys: Problem, tried: list[float]) -> list[int]:
    limit = limits(keys)
    outcomes = []
    for sigma in tried:
        where = run(keys, sigma)
        load = loads(keys, where)
        over = any(load[task] > limit[task] for task in keys.open_tasks())
        measure = greatest_level(keys, load) if over else state_moved(keys, where)
        outcomes.append((over, measure, -sigma, where))
    return min(outcomes)[-1]


def sigmas(keys: Problem) -> list[float]:
    """Return 1, 1/2, ... to the first at which many take part, or all that cost something."""
    least = mean_level(keys)
    positive = sum(cost > 0 for cost in keys.cost)
    tried = [1.0]
    while (part := sum(cost >= tried[-1] * least for cost in keys.cost)) <= MANY:
        if part >= positive:
            break
        tried.append(tried[-1] / 2)
    return tried


def run(keys: Problem, sigma: float) -> list[int]:
    limit = limits(keys)
    start = find_start(keys, [])
    for key in dearest_first(keys, [key for key in keys.records() if start[key] is None]):
        start[key] = by_level(keys, loads(keys, start), keys.open_tasks())[0]
    where = [task for task in start if task is not None]
    load = loads(keys, where)
    least = sigma * mean_level(keys)
    part = [key for key in keys.records() if keys.cost[key] >= least]
    for key in dearest_first(keys, find_entries(keys, start, [])):
        home = keys.home[key]
        if load[home] + keys.cost[key] <= limit[home]:
            load[where[key]] -= keys.cost[key]
            load[home] += keys.cost[key]
            where[key] = home
    while (change := best_change(keys, part, where, load, limit)) is not None:
        key, other, source, target = change
        for moved, task in ((key, target), (other, source)):
            if moved is not None:
                load[where[moved]] -= keys.cost[moved]
                load[task] += keys.cost[moved]
                where[moved] = task
    return where


def best_change(
    keys: Problem, part: list[int], where: list[int], load: list[float], limit: list[float]
) -> tuple[int, int | None, int, int] | None:
    """Return (key, other or None, source, target) of the change that lowers the pair most."""
    on_task = {task: [key for key in part if where[key] == task] for task in keys.open_tasks()}
    best = None
    for i in keys.open_tasks():
        if load[i] <= limit[i]:
            continue
        for j in keys.open_tasks():
            if i == j:
                continue
            before = max(load[i] / keys.capacity[i], load[j] / keys.capacity[j])
            for key in on_task[i]:
                for other in [None, *on_task[j]]:
                    back, state = 0.0, state_added(keys, where, key, j)
                    ids = keys.id[key], key, -1, -1
                    if other is not None:
                        back = keys.cost[other]
                        state += state_added(keys, where, other, i)
                        ids = keys.id[key], key, keys.id[other], other
                    level_i = (load[i] - keys.cost[key] + back) / keys.capacity[i]
                    level_j = (load[j] + keys.cost[key] - back) / keys.capacity[j]
                    lowered = before - max(level_i, level_j)
                    rank = (-lowered, state, i, j, ids)
                    if lowered > WORTHWHILE * before and (best is None or rank < best[0]):
                        best = rank, (key, other, i, j)
    return None if best is None else best[1]


def state_added(keys: Problem, where: list[int], key: int, task: int) -> int:
    """Return how much more state is moved in all, once the key is on the task."""
    current = keys.current[key]
    return keys.size[key] * ((task != current) - (where[key] != current))
