"""Readj, the baseline: returns and pairwise exchanges, against the twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import llfd, planner
from reference.llfd import Problem, find_start, loads
from test_llfd import FIGURE_4, any_problems, assert_complete, assert_equal, problems, solve

pytestmark = pytest.mark.kernel

sigmas = st.sampled_from([0.0, 0.0, 0.125, 0.5, 1.0, 4.0])


@given(problems(bounds=True), sigmas)
def test_matches_reference(problem, sigma):
    plan = solve(problem, "readj", sigma=sigma)
    assert_equal(plan, planner.plan(problem, "readj", sigma=sigma))


@given(any_problems, sigmas)
def test_nothing_lost(problem, sigma):
    assert_complete(problem, solve(problem, "readj", sigma=sigma))


@given(any_problems, sigmas)
def test_never_above_start(problem, sigma):
    """Keys go home only within the limit, and exchanges only lower: start or limit bound all."""
    start = find_start(problem, [])
    if None in start:
        return  # keys that have no start go somewhere, however full it is
    load, limit = loads(problem, start), llfd.limits(problem)
    before = max(load[task] / problem.capacity[task] for task in problem.open_tasks())
    allowed = max(limit[task] / problem.capacity[task] for task in problem.open_tasks())
    plan = solve(problem, "readj", sigma=sigma)
    for task in problem.open_tasks():
        assert plan.load[task] / problem.capacity[task] <= max(before, allowed) * (1 + 1e-9)


def skewed(**options) -> Problem:
    columns = {
        "capacity": [1.0, 1.0],
        "base": [0.0, 0.0],
        "open": [1, 1],
        "id": [1, 2, 3],
        "cost": [5.0, 4.0, 1.0],
        "size": [1, 1, 1],
        "current": [0, 0, 1],
        "home": [0, 0, 1],
        "max_imbalance": 0.0,
    }
    return Problem(**(columns | options))


def test_moves_the_key_that_lowers_most():
    plan = solve(skewed(), "readj", sigma=0.1)
    assert plan.load == [5.0, 5.0]
    assert plan.parts == [(0, 1, 0), (1, 1, 1), (2, 1, 1)]


def test_exchanges():
    """Moving 4 would leave 6 and 8; 6 for 3 makes both tasks equal."""
    columns = {"id": [1, 2, 3, 4], "cost": [6.0, 4.0, 3.0, 1.0], "size": [1] * 4}
    places = {"current": [0, 0, 1, 1], "home": [0, 0, 1, 1]}
    plan = solve(skewed(**columns, **places), "readj", sigma=0.1)
    assert plan.load == [7.0, 7.0]
    assert plan.parts == [(0, 1, 1), (1, 1, 0), (2, 1, 0), (3, 1, 1)]


def test_keys_below_sigma_stay():
    """The mean is 5.5: with a sigma of 4 no key takes part, with less the dear one does."""
    problem = skewed(cost=[9.0, 1.0, 1.0], current=[0, 0, 0], home=[0, 0, 0])
    assert solve(problem, "readj", sigma=4.0).load == [11.0, 0.0]
    assert solve(problem, "readj", sigma=1.0).load == [2.0, 9.0]


def test_entries_go_home_first():
    problem = skewed(cost=[5.0, 4.0, 1.0], home=[1, 0, 1], max_imbalance=0.25)
    plan = solve(problem, "readj", sigma=4.0)
    assert plan.parts == [(0, 1, 1), (1, 1, 0), (2, 1, 1)]
    assert plan.table_size == 0


def test_figure_4():
    """From the paper's example; returns alone leave 11 and 9, which no single change betters."""
    plan = solve(FIGURE_4, "readj")
    assert_equal(plan, planner.plan(FIGURE_4, "readj"))
    assert sorted(plan.load) == [9.0, 11.0]


def test_groups_are_refused():
    with pytest.raises(ValueError, match=r"expected .+, got .+"):
        solve(skewed(count=[1, 2, 1]), "readj")
