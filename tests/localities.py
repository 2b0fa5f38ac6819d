"""Small colocation problems, and the kernel on them."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pyroute import _core
from reference.locality import NEAR, PENALTY, Problem


def small_problem(
    random: Random,
    *,
    most: int = 8,
    history: bool = True,
    bounds: bool = True,
    fixed: bool = False,
) -> Problem:
    """Return a problem of a few keys of two or three operators on a few servers."""
    servers, operators = random.randint(2, 4), random.choice([2, 2, 3])
    member = [{o} for o in range(operators) for _ in range(random.randint(1, most // operators))]
    n = len(member)
    load = [
        [random.choice([0, 1, 2, 3, 7, 20]) if o in member[v] else 0 for o in range(operators)]
        for v in range(n)
    ]
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n) if member[a] != member[b]]
    chosen = random.sample(pairs, random.randint(0, len(pairs)))
    totals = [sum(row[o] for row in load) for o in range(operators)]
    spread = random.choice([0.0, 0.1, 0.5, 1.0])
    limit = [
        [
            random.choice([-1] + [int((1 + spread) * total / servers)] * 9)
            if random.random() < 0.2
            else int((1 + spread) * total / servers)
            for _ in range(servers)
        ]
        for total in totals
    ]
    near = [[NEAR if a == b else 0 for b in range(servers)] for a in range(servers)]
    if random.random() < 0.3:
        for a in range(servers):
            for b in range(a):
                near[a][b] = near[b][a] = random.choice([0, 64, 128, 256])

    def places() -> list[int]:
        return [random.randrange(servers) for _ in range(n)]

    current = places()
    return Problem(
        servers=servers,
        operators=operators,
        load=load,
        member=member,
        size=[random.choice([0, 1, 5, 30]) for _ in range(n)] if history else [0] * n,
        stake=[random.choice([0, 0, 64, 700]) for _ in range(n)] if history else [0] * n,
        current=current,
        origin=current if random.random() < 0.5 else places(),
        home=places(),
        edges={pair: random.choice([1, 1, 2, 5, 9]) for pair in chosen},
        limit=limit,
        near=near,
        penalty=[random.choice([PENALTY, PENALTY, 1]) for _ in range(operators)],
        max_table=[
            random.choice([None, None, 0, 1, 2]) if bounds else None for _ in range(operators)
        ],
        max_migration=random.choice([None, None, 0, 6, 40]) if bounds else None,
        fixed=frozenset(v for v in range(n) if random.random() < 0.4) if fixed else frozenset(),
    )


def problems(**options: Any) -> st.SearchStrategy[Problem]:
    return st.randoms(use_true_random=False).map(lambda random: small_problem(random, **options))


def native(problem: Problem, *, with_home: bool = True, fee: int = 0) -> _core.Locality:
    """Return the kernel's form of it."""
    ends: list[list[tuple[int, int]]] = [[] for _ in problem.vertices]
    for (a, b), weight in problem.edges.items():
        ends[a].append((b, weight))
        ends[b].append((a, weight))
    flat = [pair for row in ends for pair in row]
    return _core.Locality(
        servers=problem.servers,
        operators=problem.operators,
        load=np.array(problem.load, np.int64).ravel(),
        member=np.array([sum(1 << o for o in each) for each in problem.member], np.uint64),
        size=np.array(problem.size, np.int64),
        stake=np.array(problem.stake, np.int64),
        current=np.array(problem.current, np.int32),
        origin=np.array(problem.origin, np.int32),
        home=np.array(problem.home if with_home else [], np.int32),
        offsets=np.cumsum([0, *map(len, ends)]).astype(np.uint64),
        neighbour=np.array([end for end, _ in flat], np.uint32),
        weight=np.array([weight for _, weight in flat], np.int64),
        limit=np.array(problem.limit, np.int64).ravel(),
        penalty=np.array(problem.penalty, np.int64),
        near=np.array(problem.near, np.int64).ravel(),
        max_table=np.array([-1 if x is None else x for x in problem.max_table], np.int64),
        max_migration=-1 if problem.max_migration is None else problem.max_migration,
        fixed=np.array([v in problem.fixed for v in problem.vertices], np.uint8),
        fee=fee,
    )


def at(problem: Problem, where: list[int]) -> Problem:
    """Return the same problem with everything there."""
    return replace(problem, current=list(where), origin=list(where))


def array(where: list[int]) -> np.ndarray:
    return np.array(where, np.int32)
