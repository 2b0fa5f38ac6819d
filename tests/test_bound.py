"""The lower bound: no placement is below it, and each of its parts can be the greatest."""

from random import Random

import pytest
from hypothesis import given

from effort import effort
from reference import bound as reference
from reference.llfd import Problem
from test_llfd import any_problems, problems, solve

pytestmark = pytest.mark.kernel


def small_problem(random: Random) -> Problem:
    """Return 2 or 3 tasks and up to 7 keys, of all kinds."""
    tasks, keys = random.randint(2, 3), random.randint(0, 7)
    is_open = [1] * tasks
    if random.random() < 0.3:
        is_open[random.randrange(tasks)] = 0
    open_tasks = [task for task in range(tasks) if is_open[task]]
    current = [random.randrange(tasks) for _ in range(keys)]
    home = [at if random.random() < 0.5 else random.randrange(tasks) for at in current]
    for key in range(keys):
        if not is_open[home[key]] and (not is_open[current[key]] or random.random() < 0.8):
            home[key] = random.choice(open_tasks)
    costs = random.choice(
        [range(10), [0, 1, 1, 2], [n / 4 for n in range(60)], [0, 1, 3, 90, 100], [5]]
    )
    widths = random.choice([[1.0], [1.0, 2.0, 0.5], [0.3, 1.0, 7.0]])
    size = [random.choice([0, 1, 1, random.randint(0, 50)]) for _ in range(keys)]
    return Problem(
        capacity=[random.choice(widths) for _ in range(tasks)],
        base=[random.choice([0.0, 0.0, 1.0, 7.25]) for _ in range(tasks)],
        open=is_open,
        id=random.sample(range(100), keys),
        cost=[float(random.choice(costs)) for _ in range(keys)],
        size=size,
        current=current,
        home=home,
        max_imbalance=random.choice([0.0, 0.08, 0.3, 1.0]),
        max_table=random.choice([None, None, 0, 1, 2, keys]),
        max_migration=random.choice([None, None, 0, 3, sum(size) // 2]),
    )


def test_never_above_optimum():
    random = Random(20)
    met = 0
    instances = effort(20_000)
    for _ in range(instances):
        problem = small_problem(random)
        plan = solve(problem, "mixed")
        optimum = reference.optimum(problem)
        assert plan.lower_bound <= optimum * (1 + 1e-12), problem
        level = max(plan.load[task] / problem.capacity[task] for task in problem.open_tasks())
        assert optimum <= level * (1 + 1e-12), problem
        met += plan.lower_bound >= optimum * (1 - 1e-9)
    assert met > instances / 2


def test_never_above_any_migration():
    random = Random(21)
    met = instances = 0
    while instances < effort(5_000):
        problem = small_problem(random)
        least = reference.least_migrations(problem)
        if least is None:
            continue
        instances += 1
        plan = solve(problem, "mixed")
        assert plan.least_migration <= least, problem
        met += plan.least_migration == least
    assert met > instances / 2


@given(problems() | problems(count=4))
def test_matches_reference(problem):
    plan, expected = solve(problem, "simple"), reference.lower_bound(problem)
    assert plan.lower_bound == pytest.approx(expected, rel=1e-11)
    assert abs(plan.least_migration - reference.least_migration(problem)) <= 1


@given(any_problems)
def test_never_above_an_answer(problem):
    for algorithm in ("mixed", "simple", "readj"):
        plan = solve(problem, algorithm)
        level = max(plan.load[task] / problem.capacity[task] for task in problem.open_tasks())
        assert plan.lower_bound <= level * (1 + 1e-9)


def bound_of(cost, capacity=(1.0, 1.0), base=(0.0, 0.0), is_open=None):
    n = len(cost)
    problem = Problem(
        capacity=list(capacity),
        base=list(base),
        open=[1] * len(capacity) if is_open is None else is_open,
        id=list(range(n)),
        cost=cost,
        size=[1] * n,
        current=[0] * n,
        home=[0] * n,
    )
    if n <= 7:
        assert reference.optimum(problem) >= reference.lower_bound(problem)
    return solve(problem, "simple").lower_bound


@pytest.mark.parametrize(
    ("expected", "arguments"),
    {
        "no key": (0.0, {"cost": []}),
        "mean": (5.0, {"cost": [3.0, 2.0, 3.0, 2.0]}),
        "mean of the open": (10.0, {"cost": [5.0] * 2, "base": (9.0, 0.0), "is_open": [0, 1]}),
        "base": (9.0, {"cost": [1.0], "base": (9.0, 1.0)}),
        "one key": (8.0, {"cost": [6.0], "base": (3.0, 2.0)}),
        "one key, by capacity": (3.0, {"cost": [6.0], "capacity": (1.0, 2.0)}),
        "few keys": (4.0, {"cost": [8.0, 8.0], "capacity": (2.0, 2.0, 0.5), "base": (0.0,) * 3}),
        "pigeonhole of 1": (8.0, {"cost": [4.0, 4.0, 4.0]}),
        "pigeonhole of 2": (9.0, {"cost": [3.0] * 5}),
        "pigeonhole of 8": (9.0, {"cost": [1.0] * 17}),
    }.values(),
    ids=lambda value: "",
)
def test_each_part(expected, arguments):
    assert bound_of(**arguments) == pytest.approx(expected, rel=1e-11)


def test_optimum_by_hand():
    """The brute force itself: 7 5 4 3 1 on capacities 2 and 1 is 14 and 6 at best."""
    problem = Problem(
        capacity=[2.0, 1.0],
        base=[0.0, 0.0],
        open=[1, 1],
        id=[1, 2, 3, 4, 5],
        cost=[7.0, 5.0, 4.0, 3.0, 1.0],
        size=[1] * 5,
        current=[0] * 5,
        home=[0] * 5,
    )
    assert reference.optimum(problem) == 7.0  # {5, 1} and {7, 4, 3}
    problem.open = [1, 0]
    assert reference.optimum(problem) == 10.0
