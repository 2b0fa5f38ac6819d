"""Local search: never worse, within its moves, and the twin's every step."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import planner
from reference.llfd import Problem
from test_llfd import any_problems, assert_complete, assert_equal, levels, problems, solve
from test_llfd import whole_costs as skewed

pytestmark = pytest.mark.kernel

algorithms = st.sampled_from(["mixed", "llfd", "simple", "min_table"])
budgets = st.integers(0, 4) | st.sampled_from([8, 50])


@given(problems(bounds=True) | problems(count=3), algorithms, budgets)
def test_matches_reference(problem, algorithm, moves):
    plan = solve(problem, algorithm, search_moves=moves)
    assert_equal(plan, planner.plan(problem, algorithm, search_moves=moves))


@pytest.mark.parametrize("moves", [7, 60])
@pytest.mark.parametrize("bounds", [{}, {"max_table": 40}, {"max_migration": 900}])
def test_matches_reference_at_size(moves, bounds):
    """With more keys on a task than are looked at, many of them of one cost."""
    problem = skewed(8, 600, 5, max_imbalance=0.02, **bounds)
    plan = solve(problem, "llfd", search_moves=moves)
    assert_equal(plan, planner.plan(problem, "llfd", search_moves=moves))


@given(any_problems | problems(bounds=True, count=3), algorithms, budgets)
def test_never_worse(problem, algorithm, moves):
    before = solve(problem, algorithm)
    after = solve(problem, algorithm, search_moves=moves)
    assert_complete(problem, after)
    greatest = max(levels(problem, before).values())
    assert max(levels(problem, after).values()) <= greatest * (1 + 1e-12)
    for bound, name in (problem.max_table, "table_size"), (problem.max_migration, "migration"):
        if bound is not None:
            assert getattr(after, name) <= max(bound, getattr(before, name))


def keys_that_differ(one: planner.Plan, other: planner.Plan) -> int:
    """Return how many keys are on another task, at least."""
    first, second = (
        Counter({(record, task): count for record, count, task in plan.parts})
        for plan in (one, other)
    )
    return (second - first).total()


@given(any_problems | problems(bounds=True, count=3), algorithms, budgets)
def test_within_moves(problem, algorithm, moves):
    before = solve(problem, algorithm)
    after = solve(problem, algorithm, search_moves=moves)
    assert keys_that_differ(before, after) <= moves


def two_tasks(cost, current, **options) -> Problem:
    n = len(cost)
    columns = {"size": [1] * n, "home": current, "max_imbalance": 1.0} | options
    return Problem([1.0, 1.0], [0.0, 0.0], [1, 1], list(range(n)), cost, current=current, **columns)


def test_moves_the_key_nearest_to_the_ideal():
    problem = two_tasks([4.0, 2.0, 1.0, 1.0], [0, 0, 0, 1])
    assert solve(problem, "llfd").load == [7.0, 1.0]
    plan = solve(problem, "llfd", search_moves=1)
    assert plan.load == [3.0, 5.0]  # 4 leaves 5 at most, as 2 does; 4 is the smaller id
    assert solve(problem, "llfd", search_moves=9).load == [4.0, 4.0]


def test_exchanges_take_two_moves():
    problem = two_tasks([5.0, 5.0, 4.0, 4.0], [0, 0, 1, 1])
    assert solve(problem, "llfd", search_moves=1).load == [10.0, 8.0]
    plan = solve(problem, "llfd", search_moves=2)
    assert plan.load == [9.0, 9.0]
    assert plan.table_size == 2


def test_bounds_forbid():
    problem = two_tasks([5.0, 5.0, 4.0, 4.0], [0, 0, 1, 1], max_table=1)
    assert solve(problem, "llfd", search_moves=9).load == [10.0, 8.0]
    problem = two_tasks([4.0, 4.0, 1.0], [0, 0, 0], size=[9, 9, 9], max_migration=8)
    assert solve(problem, "llfd", search_moves=9).load == [9.0, 0.0]


def test_less_state_on_a_tie():
    problem = two_tasks([3.0, 3.0], [0, 0], size=[10, 2])
    plan = solve(problem, "llfd", search_moves=1)
    assert plan.parts == [(0, 1, 0), (1, 1, 1)]


def test_giants_and_their_tasks_are_left_alone():
    problem = Problem(
        capacity=[1.0] * 3,
        base=[0.0] * 3,
        open=[1] * 3,
        id=[1, 2, 3, 4],
        cost=[100.0, 3.0, 2.0, 1.0],
        size=[1] * 4,
        current=[0, 1, 1, 1],
        home=[0, 1, 1, 1],
        max_imbalance=0.2,
    )
    plan = solve(problem, "llfd", search_moves=9)
    assert plan.giants == [(0, 0)]
    assert plan.load == [100.0, 3.0, 3.0]


@given(problems(bounds=True) | problems(count=3), algorithms, budgets)
def test_lifts(problem, algorithm, moves):
    one_sided = solve(problem, algorithm, search_moves=moves)
    problem = replace(problem, two_sided=True)
    plan = solve(problem, algorithm, search_moves=moves)
    assert_equal(plan, planner.plan(problem, algorithm, search_moves=moves))
    before, after = levels(problem, one_sided).values(), levels(problem, plan).values()
    assert max(after) <= max(before) * (1 + 1e-12)
    assert min(after) >= min(before) * (1 - 1e-12)


def test_lifts_a_task_with_nothing_to_do():
    """Within the limit above, far below the mean: only the two-sided constraint asks for more."""
    problem = Problem(
        capacity=[1.0] * 3,
        base=[0.0] * 3,
        open=[1] * 3,
        id=list(range(12)),
        cost=[1.0] * 12,
        size=[1] * 12,
        current=[0] * 6 + [1] * 6,
        home=[0] * 6 + [1] * 6,
        max_imbalance=0.5,
    )
    assert solve(problem, "mixed").load == [6.0, 6.0, 0.0]
    assert solve(replace(problem, two_sided=True), "mixed").load == [5.0, 5.0, 2.0]
