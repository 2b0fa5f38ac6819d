"""The planners: each against its twin, and the bounds against the answer alone."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import effort
from reference import planner as reference
from reference.llfd import Problem
from reference.planner import Plan
from test_bound import small_problem
from test_llfd import (
    FIGURE_4,
    any_problems,
    assert_complete,
    assert_equal,
    levels,
    problems,
    solve,
    whole_costs,
)

pytestmark = pytest.mark.kernel

ALGORITHMS = ("mixed", "mixed_bf", "min_table", "min_mig", "llfd", "simple", "readj")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(problem=problems(bounds=True), moves=st.sampled_from([0, 0, 1, 5]))
def test_matches_reference(algorithm, problem, moves):
    expected = reference.plan(problem, algorithm, search_moves=moves)
    assert_equal(solve(problem, algorithm, search_moves=moves), expected)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "readj"])
@given(problem=problems(count=4), moves=st.sampled_from([0, 3]))
def test_matches_reference_on_groups(algorithm, problem, moves):
    expected = reference.plan(problem, algorithm, search_moves=moves)
    assert_equal(solve(problem, algorithm, search_moves=moves), expected)


@pytest.mark.parametrize("bounds", [{}, {"max_table": 30}, {"max_table": 5, "max_migration": 2000}])
@pytest.mark.parametrize("algorithm", ["mixed", "min_table", "min_mig", "llfd", "simple"])
def test_matches_reference_at_size(algorithm, bounds):
    problem = whole_costs(1, 4000, 8, max_imbalance=0.02, **bounds)
    assert_equal(solve(problem, algorithm), reference.plan(problem, algorithm))


def test_mixed_bf_matches_reference_at_size():
    problem = whole_costs(2, 800, 5, max_imbalance=0.05, max_table=12)
    plan = solve(problem, "mixed_bf")
    assert_equal(plan, reference.plan(problem, "mixed_bf"))
    assert plan.trials > 10


def assert_table_holds(problem: Problem, plan: Plan) -> None:
    """No more keys are away than the bound allows, but for those whose home is closed."""
    if problem.max_table is not None:
        away = sum(n for record, n, task in plan.parts if task != problem.home[record])
        homeless = sum(
            problem.keys_of(record)
            for record in problem.records()
            if not problem.open[problem.home[record]]
        )
        assert away <= max(problem.max_table, homeless), problem


def moved_state(problem: Problem, plan: Plan) -> int:
    return sum(
        n * problem.size[record]
        for record, n, task in plan.parts
        if task != problem.current[record]
    )


def assert_budget_holds(problem: Problem, plan: Plan) -> None:
    """No more state moves than the budget, but from closed tasks; where staying suits the table."""
    away = sum(
        problem.keys_of(record)
        for record in problem.records()
        if problem.current[record] != problem.home[record]
    )
    closed = any(not problem.open[task] for task in problem.current)
    fits = problem.max_table is None or (away <= problem.max_table and not closed)
    if problem.max_migration is not None and fits:
        forced = sum(
            problem.size[record] * problem.keys_of(record)
            for record in problem.records()
            if not problem.open[problem.current[record]]
        )
        assert moved_state(problem, plan) <= max(problem.max_migration, forced), problem


def test_constraints_hold():
    random = Random(3)
    for number in range(effort(20_000)):
        problem = small_problem(random)
        moves = random.choice([0, 0, 3])
        others = ALGORITHMS[1:] if number % 10 == 0 else ()
        for algorithm in ("mixed", *others):
            plan = solve(problem, algorithm, search_moves=moves)
            assert_complete(problem, plan)
            assert_table_holds(problem, plan)
            assert_budget_holds(problem, plan)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(problem=any_problems, table=st.none() | st.integers(0, 5), moves=st.integers(0, 3))
def test_constraints_hold_for_any_costs(algorithm, problem, table, moves):
    problem = replace(problem, max_table=table, max_migration=sum(problem.size) // 3)
    plan = solve(problem, algorithm, search_moves=moves)
    assert_complete(problem, plan)
    assert_table_holds(problem, plan)
    assert_budget_holds(problem, plan)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "readj"])
@given(problem=problems(bounds=True, count=4), moves=st.sampled_from([0, 3]))
def test_constraints_hold_on_groups(algorithm, problem, moves):
    plan = solve(problem, algorithm, search_moves=moves)
    assert_complete(problem, plan)
    assert_table_holds(problem, plan)
    assert_budget_holds(problem, plan)


def test_budget_holds_beside_the_table():
    """Nothing moves that could stay: leaving it out would need an entry beyond the bound."""
    problem = Problem(
        capacity=[1.0] * 4,
        base=[0.0] * 4,
        open=[1] * 4,
        id=[92, 25],
        cost=[3.75, 2.25],
        size=[1, 43],
        current=[2, 3],
        home=[2, 0],
        max_imbalance=0.5,
        max_table=1,
        max_migration=0,
    )
    plan = solve(problem, "simple")
    assert plan.table_size <= 1
    assert plan.migration == 0  # all stay: one key is away from its home, none moves


def test_keys_of_one_record_go_by_task():
    """Of two keys of one record, on tasks 0 and 2, the one on the smaller task stays at home."""
    problem = Problem(
        capacity=[1.0] * 3,
        base=[4.75, 4.75, 2.5],
        open=[1] * 3,
        id=[11],
        cost=[7.0],
        size=[2],
        current=[1],
        home=[1],
        count=[2],
        max_imbalance=0.25,
        max_migration=3,
    )
    for algorithm in ("llfd", "simple"):
        assert solve(problem, algorithm).parts == [(0, 1, 1), (0, 1, 2)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(problem=problems(bounds=True), moves=st.sampled_from([0, 4]), random=st.randoms())
def test_deterministic(algorithm, problem, moves, random):
    """Equal problems give equal answers, and the order of the records does not show."""
    plan = solve(problem, algorithm, search_moves=moves)
    assert solve(problem, algorithm, search_moves=moves) == plan
    order = list(problem.records())
    random.shuffle(order)
    columns = {
        name: [getattr(problem, name)[record] for record in order]
        for name in ("id", "cost", "size", "current", "home")
    }
    shuffled = solve(replace(problem, **columns), algorithm, search_moves=moves)
    assert sorted((order[record], n, task) for record, n, task in shuffled.parts) == plan.parts
    giants = [(order[record], task) for record, task in shuffled.giants]
    parts, bound = plan.parts, plan.lower_bound
    assert replace(shuffled, parts=parts, giants=giants, lower_bound=bound) == plan
    assert shuffled.lower_bound == pytest.approx(bound, rel=1e-12)


def test_figure_4_min_table():
    plan = solve(FIGURE_4, "min_table")
    assert plan.load == [10.0, 10.0]
    assert plan.table_size == 2
    assert [task for _, _, task in plan.parts] == [0, 1, 0, 0, 1, 1]


def test_figure_4_mixed_cleans_until_the_table_fits():
    assert solve(FIGURE_4, "mixed").table_size == 4
    plan = solve(replace(FIGURE_4, max_table=2), "mixed")
    assert plan.load == [10.0, 10.0]
    assert plan.table_size <= 2
    assert plan.trials > 1
    assert not plan.table_full


@pytest.mark.parametrize("algorithm", ["mixed", "mixed_bf"])
@given(problem=problems(count=3))
def test_stuck_is_never_worse_than_simple(algorithm, problem):
    plan = solve(problem, algorithm)
    if plan.stuck:
        simple = max(levels(problem, solve(problem, "simple")).values())
        assert max(levels(problem, plan).values()) <= simple * (1 + 2e-9)


def test_fallback():
    """No run is within the limit of 8.125, but the simple plan comes nearer to it."""
    problem = line([0.5, 6.25, 4.0, 5.5], [0, 0, 1, 0], size=[0, 0, 1, 1], home=[0, 1, 0, 0])
    stuck = solve(problem, "min_mig")
    assert (stuck.stuck > 0, stuck.load) == (True, [10.0, 6.25])
    plan = solve(problem, "mixed")
    assert (plan.stuck, plan.load) == (0, [6.75, 9.5])
    assert plan.parts == solve(problem, "simple").parts


def line(cost, current, tasks=2, **options) -> Problem:
    n = len(cost)
    columns = {"size": [1] * n, "home": current, "max_imbalance": 0.0} | options
    return Problem(
        capacity=[1.0] * tasks,
        base=[0.0] * tasks,
        open=[1] * tasks,
        id=list(range(n)),
        cost=cost,
        current=current,
        **columns,
    )


def test_simple_is_lpt():
    plan = solve(line([5.0, 4.0, 3.0, 3.0, 3.0, 0.0], [1, 0, 1, 0, 1, 1]), "simple")
    assert plan.load == [8.0, 10.0]
    assert plan.parts == [(0, 1, 0), (1, 1, 1), (2, 1, 1), (3, 1, 0), (4, 1, 1), (5, 1, 1)]


def test_table_sends_the_cheapest_home():
    problem = line([4.0, 3.0, 3.0, 2.0], [0, 0, 0, 0], max_table=1)
    unbound = solve(replace(problem, max_table=None), "llfd")
    assert (unbound.table_size, unbound.load) == (2, [6.0, 6.0])
    plan = solve(problem, "llfd")
    assert plan.table_size == 1
    assert plan.table_full
    assert plan.load == [8.0, 4.0]  # 2 went home, 4 stays away


def test_budget_keeps_the_dearest_moves():
    problem = line([4.0, 3.0, 3.0, 2.0], [0, 0, 0, 0], size=[10, 1, 1, 20], max_migration=10)
    unbound = solve(replace(problem, max_migration=None), "llfd")
    assert unbound.migration == 30
    plan = solve(problem, "llfd")
    assert (plan.migration, plan.budget_spent) == (10, True)
    assert plan.load == [8.0, 4.0]
    none = solve(replace(problem, max_migration=0), "llfd")
    assert (none.migration, none.load) == (0, [12.0, 0.0])


def test_unknown_algorithm():
    with pytest.raises(ValueError, match="best"):
        solve(FIGURE_4, "best")
