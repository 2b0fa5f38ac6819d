"""Twin of csrc/plan/planner.hpp: the planners, and the steps that follow each of them."""

from collections import Counter
from dataclasses import dataclass, replace

from reference import llfd
from reference.bound import least_migration, lower_bound
from reference.llfd import (
    Placement,
    Problem,
    by_level,
    dearest_first,
    expand,
    greatest_level,
    keys_away,
    limits,
    loads,
    state_moved,
)
from reference.readj import readj
from reference.search import lift, search

ENOUGH = 1.01  # times the lower bound on migration


@dataclass
class Plan:
    """What pyroute._core.solve answers."""

    parts: list[tuple[int, int, int]]  # (record, count, target), ascending; all records are there
    load: list[float]
    table_size: int
    migration: int
    stuck: int
    trials: int
    table_full: bool
    budget_spent: bool
    giants: list[tuple[int, int]]  # (record, task)
    lower_bound: float
    least_migration: int


def plan(problem: Problem, algorithm: str, search_moves: int = 0, sigma: float = 0) -> Plan:
    keys, record = expand(problem)
    placement = place(problem, keys, algorithm, sigma)
    if algorithm in ("mixed", "mixed_bf"):
        bring_back(keys, placement)
    bound_table(keys, placement)
    if algorithm in ("mixed", "mixed_bf"):
        placement = fall_back(keys, placement)
    bound_migration(keys, placement)
    if algorithm in ("mixed", "mixed_bf"):
        placement = stay(keys, placement)
    search(keys, placement, search_moves)
    if problem.two_sided:
        lift(keys, placement)
    count = Counter(zip(record, placement.where, strict=True))
    return Plan(
        parts=[(r, n, target) for (r, target), n in sorted(count.items())],
        load=loads(keys, placement.where),
        table_size=keys_away(keys, placement.where),
        migration=state_moved(keys, placement.where),
        stuck=placement.stuck,
        trials=placement.trials,
        table_full=placement.table_full,
        budget_spent=placement.budget_spent,
        giants=[(record[key], task) for key, task in placement.giants],
        lower_bound=lower_bound(keys),
        least_migration=least_migration(keys),
    )


def place(problem: Problem, keys: Problem, algorithm: str, sigma: float) -> Placement:
    match algorithm:
        case "simple":
            return simple(keys)
        case "llfd":
            return llfd.run(problem, "cost", 0)
        case "min_table":
            return llfd.run(problem, "cost", llfd.count_entries(problem))
        case "min_mig":
            return llfd.run(problem, "gamma", 0)
        case "mixed":
            return mixed(problem, keys)
        case "mixed_bf":
            return mixed_bf(problem, keys)
        case "readj":
            return readj(problem, sigma)
    raise ValueError(algorithm)


def simple(keys: Problem) -> Placement:
    start = llfd.find_start(keys, [])
    where = [
        -1 if cost > 0 or at is None else at for cost, at in zip(keys.cost, start, strict=True)
    ]
    load = list(keys.base)
    for key in dearest_first(keys, [key for key in keys.records() if where[key] == -1]):
        where[key] = by_level(keys, load, keys.open_tasks())[0]
        load[where[key]] += keys.cost[key]
    return Placement(list(keys.records()), where, load, trials=1)


def clean_until_it_fits(
    problem: Problem, keys: Problem, clean: int, gently: bool
) -> tuple[Placement, int]:
    """Return the first run by gamma whose table fits, or that of all entries, and its number."""
    entries = llfd.count_entries(problem)
    trials = 0
    while True:
        placement = llfd.run(problem, "gamma", clean, gently)
        trials += 1
        excess = 0
        if problem.max_table is not None:
            excess = keys_away(keys, placement.where) - problem.max_table
        if excess <= 0 or clean == entries:
            return replace(placement, trials=trials), clean
        clean = min(entries, clean + excess)


def mixed(problem: Problem, keys: Problem) -> Placement:
    placement, clean = clean_until_it_fits(problem, keys, 0, gently=False)
    if problem.max_table is not None and keys_away(keys, placement.where) > problem.max_table:
        return replace(llfd.run(problem, "cost", clean), trials=placement.trials + 1)
    return gently(problem, keys, placement, clean)


def mixed_bf(problem: Problem, keys: Problem) -> Placement:
    runs = [llfd.run(problem, "gamma", n) for n in range(llfd.count_entries(problem) + 1)]
    best = least_moving(keys, runs)
    if best is None:
        placement = mixed(problem, keys)
        return replace(placement, trials=placement.trials + len(runs))
    # The kernel runs what it chose once more.
    return gently(problem, keys, replace(runs[best], trials=len(runs) + 1), best)


def least_moving(keys: Problem, runs: list[Placement]) -> int | None:
    """Return the first run of least migration, of those with nothing stuck and the table right."""
    good = [
        (state_moved(keys, run.where), i)
        for i, run in enumerate(runs)
        if run.stuck == 0
        and (keys.max_table is None or keys_away(keys, run.where) <= keys.max_table)
    ]
    return min(good)[1] if good else None


def gently(problem: Problem, keys: Problem, first: Placement, clean: int) -> Placement:
    """Return the best of a run and the gentle ones from as many entries on, or all useful ones."""
    _, useful = llfd.cleaning(problem)
    counts = [clean, useful] if useful > clean else [clean]
    bound = least_migration(keys)
    runs = [first]
    for beta in dict.fromkeys([problem.beta, 1]):
        for count in counts:
            best = least_moving(keys, runs)
            if best is not None and state_moved(keys, runs[best].where) <= ENOUGH * bound:
                break
            weighed = replace(problem, beta=beta)
            runs.append(clean_until_it_fits(weighed, keys, count, gently=True)[0])
    best = least_moving(keys, runs) or 0
    return replace(runs[best], trials=sum(run.trials for run in runs))


def breaks_table(keys: Problem, away_before: int, away_after: int) -> bool:
    return keys.max_table is not None and away_after > away_before and away_after > keys.max_table


def bring_back(keys: Problem, placement: Placement) -> None:
    """Return: moved keys go back where the limit and the table have room for them."""
    where, given, giants = placement.where, placement.given(), dict(placement.giants)
    load, limit, away = loads(keys, where), limits(keys), keys_away(keys, where)
    moved = [key for key in keys.records() if where[key] != keys.current[key] and key not in giants]
    for key in sorted(moved, key=lambda key: (-keys.size[key], keys.id[key], where[key], key)):
        back, cost = keys.current[key], keys.cost[key]
        then = away + (back != keys.home[key]) - (where[key] != keys.home[key])
        if (
            keys.open[back]
            and back not in given
            and load[back] + cost <= limit[back]
            and not breaks_table(keys, away, then)
        ):
            load[where[key]] -= cost
            load[back] += cost
            where[key], away = back, then
    placement.load = load


def fall_back(keys: Problem, placement: Placement) -> Placement:
    """Fallback: with keys stuck, the simple plan where it is better."""
    if placement.stuck == 0:
        return placement
    other = simple(keys)
    bound_table(keys, other)
    level = greatest_level(keys, loads(keys, placement.where))
    if greatest_level(keys, loads(keys, other.where)) < level - 1e-9 * level:
        return replace(other, trials=placement.trials + other.trials)
    return placement


def stay(keys: Problem, placement: Placement) -> Placement:
    """Stay: where the limits do not hold, everything stays if it may and that is better."""
    level = greatest_level(keys, loads(keys, placement.where))
    away = keys_away(keys, keys.current)
    if (
        level <= (1 + keys.max_imbalance) * llfd.mean_level(keys) * (1 + 1e-9)
        or not all(keys.open[task] for task in keys.current)
        or (keys.max_table is not None and away > keys.max_table)
        or greatest_level(keys, loads(keys, keys.current)) >= level - 1e-9 * level
    ):
        return placement
    return replace(placement, where=list(keys.current), giants=[])


def bound_table(keys: Problem, placement: Placement) -> None:
    """Table: the cheapest keys go home until the bound holds."""
    where = placement.where
    if keys.max_table is None:
        return
    excess = keys_away(keys, where) - keys.max_table
    away = [
        key for key in keys.records() if where[key] != keys.home[key] and keys.open[keys.home[key]]
    ]
    given = placement.given()
    away.sort(
        key=lambda key: (
            keys.home[key] in given,
            keys.cost[key],
            keys.id[key],
            where[key],
            key,
        )
    )
    for key in away[: max(0, excess)]:
        where[key] = keys.home[key]
    placement.table_full = excess > 0


def bound_migration(keys: Problem, placement: Placement) -> None:
    """Budget: moves of least cost per byte are left out until it holds."""
    where = placement.where
    if keys.max_migration is None:
        return
    moved, away = state_moved(keys, where), keys_away(keys, where)
    placement.budget_spent = moved > keys.max_migration
    changed = True
    while changed:
        changed, passed = False, 0
        moves = [
            key
            for key in keys.records()
            if where[key] != keys.current[key]
            and keys.open[keys.current[key]]
            and keys.size[key] > 0
        ]
        for key in sorted(
            moves, key=lambda key: (keys.cost[key] / keys.size[key], keys.id[key], where[key], key)
        ):
            if moved <= keys.max_migration:
                return
            back, home = keys.current[key], keys.home[key]
            then = away + (back != home) - (where[key] != home)
            if breaks_table(keys, away, then):
                passed += 1
                continue
            where[key], away, changed = back, then, True
            moved -= keys.size[key]
        stateless = [
            key
            for key in keys.records()
            if where[key] != keys.current[key] == keys.home[key]
            and keys.open[keys.current[key]]
            and keys.size[key] == 0
        ]
        stateless.sort(key=lambda key: (keys.cost[key], keys.id[key], where[key], key))
        for key in stateless[:passed]:
            where[key], away, changed = keys.current[key], away - 1, True
