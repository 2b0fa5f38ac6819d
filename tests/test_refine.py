"""Refinement of a colocation: the twin, and what it promises whatever the problem."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import effort
from localities import array, native, problems, small_problem
from reference import locality
from reference.refine import refine

pytestmark = pytest.mark.kernel

STEPS = [
    {"repair": True, "trim": False, "exchange": False, "passes": 0},
    {"repair": False, "trim": True, "exchange": False, "passes": 0},
    {"repair": False, "trim": False, "exchange": False, "passes": 1},
    {"repair": False, "trim": False, "exchange": True, "passes": 1},
    {"repair": True, "trim": True, "exchange": True, "passes": 16},
]


@pytest.mark.parametrize("steps", STEPS)
@given(problem=problems())
def test_matches_reference(steps, problem):
    got = native(problem).refine(array(problem.current), **steps)
    assert got["where"].tolist() == refine(problem, problem.current, **steps)


@pytest.mark.parametrize("steps", STEPS)
@given(problem=problems(fixed=True))
def test_fixed_stay(steps, problem):
    got = native(problem).refine(array(problem.current), **steps)["where"].tolist()
    assert got == refine(problem, problem.current, **steps)
    assert all(got[v] == problem.current[v] for v in problem.fixed)


def test_matches_reference_on_many():
    random = Random(7)
    for _ in range(effort(300)):
        problem = small_problem(random, most=12)
        got = native(problem).refine(array(problem.current))
        assert got["where"].tolist() == refine(problem, problem.current), problem


@given(problem=problems(most=14))
def test_sums_are_those_of_the_answer(problem):
    got = native(problem).refine(array(problem.current))
    where = got["where"].tolist()
    assert got["value"] == locality.value(problem, where)
    assert got["stakes"] == locality.stakes(problem, where)
    assert got["migration"] == locality.migration(problem, where)
    assert got["tabled"].tolist() == locality.tabled(problem, where)
    assert got["load"].tolist() == [x for row in locality.loads(problem, where) for x in row]


@given(problem=problems(most=14), exchange=st.booleans())
def test_never_worse(problem, exchange):
    before = locality.worth(problem, problem.current)
    got = native(problem).refine(
        array(problem.current), repair=False, trim=False, exchange=exchange
    )
    assert locality.worth(problem, got["where"].tolist()) >= before


@given(problem=problems(most=14))
def test_limits_hold(problem):
    before = locality.overload(problem, problem.current)
    got = native(problem).refine(array(problem.current), repair=False, trim=False)
    assert locality.overload(problem, got["where"].tolist()) <= before


@given(problem=problems(most=14))
def test_bounds_hold(problem):
    where = native(problem).refine(array(problem.current))["where"].tolist()
    for most, before, after in zip(
        problem.max_table,
        locality.tabled(problem, problem.current),
        locality.tabled(problem, where),
        strict=True,
    ):
        assert most is None or after <= max(most, before)
    # Repair comes before trim: what it does is trimmed too. The table is trimmed first, and what it
    # sends home may be away from its origin.
    if problem.max_migration is not None and not any(x is not None for x in problem.max_table):
        stateless = locality.migration(problem, problem.current)
        assert locality.migration(problem, where) <= max(problem.max_migration, stateless)


def test_exchange_makes_room():
    """Two heavy keys on the wrong servers, both full: neither can move alone."""
    problem = locality.Problem(
        servers=2,
        operators=2,
        load=[[10, 0], [10, 0], [0, 10], [0, 10]],
        member=[{0}, {0}, {1}, {1}],
        size=[0] * 4,
        stake=[0] * 4,
        current=[0, 1, 1, 0],
        origin=[0, 1, 1, 0],
        home=[0] * 4,
        edges={(0, 2): 10, (1, 3): 10},
        limit=[[10, 10], [10, 10]],
        near=[[256, 0], [0, 256]],
        penalty=[locality.PENALTY] * 2,
        max_table=[None, None],
    )
    stuck = native(problem).refine(array(problem.current), exchange=False)
    assert stuck["value"] == 0
    assert native(problem).refine(array(problem.current))["value"] == 20 * 256
