"""Key groups: alike keys planned as one, in one place or by each task for itself."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyroute import _core
from reference import key_group as reference
from reference.key_group import KeyGroups
from reference.llfd import Problem
from test_llfd import exact_capacities, problems, solve

pytestmark = pytest.mark.kernel

costs = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.0, 1.25, 2.0, 3.0, 3.5, 7.0, 12.0, 40.0])
alike = problems(costs=costs, capacities=exact_capacities)
any_keys = problems(costs=st.floats(0, 1e6) | costs)
degrees = st.integers(0, 6).map(lambda r: 2**r)

COLUMNS = ("capacity", "base", "open", "id", "cost", "size", "current", "home")
TYPES = {
    "current": np.int32,
    "count": np.uint32,
    "key": np.uint32,
    "cost": np.float64,
    "key_cost": np.float64,
}


def group(problem: Problem, degree: int) -> KeyGroups:
    columns = problem.columns()
    groups = _core.group(
        **{name: columns[name] for name in COLUMNS}, beta=problem.beta, degree=degree
    )
    return KeyGroups(**{name: column.tolist() for name, column in groups.items()})


def pick(groups: KeyGroups, parts):
    columns = {name: np.array(getattr(groups, name), kind) for name, kind in TYPES.items()}
    record, count, target = (
        np.array([part[i] for part in parts], kind)
        for i, kind in enumerate((np.uint32, np.uint32, np.int32))
    )
    keys, targets = _core.pick(columns, record, count, target)
    return list(zip(keys.tolist(), targets.tolist(), strict=True))


def moved_parts(groups: KeyGroups, plan):
    return [part for part in plan.parts if part[2] != groups.current[part[0]]]


@given(alike, degrees)
def test_matches_reference(problem, degree):
    groups = group(problem, degree)
    assert groups == reference.group_keys(problem, degree)
    plan = solve(reference.grouped_problem(problem, groups), "mixed")
    parts = moved_parts(groups, plan)
    assert pick(groups, parts) == reference.pick(groups, parts)


@given(alike, degrees, st.data())
def test_pick_matches_reference(problem, degree, data):
    """Whatever parts are ordered, and not only those of plans."""
    groups = group(problem, degree)
    parts = []
    for position, count in enumerate(groups.count):
        for target in problem.tasks():
            if target != groups.current[position]:
                n = data.draw(st.integers(0, count))
                count -= n
                parts += [(position, n, target)] if n else []
    assert pick(groups, parts) == reference.pick(groups, parts)


def members(groups: KeyGroups):
    """Yield each group's position and keys."""
    first = 0
    for position, count in enumerate(groups.count):
        yield position, groups.key[first : first + count]
        first += count


@given(any_keys, degrees)
def test_partition(problem, degree):
    groups = group(problem, degree)
    assert sorted(groups.key) == list(problem.records())
    assert groups.key_cost == [problem.cost[key] for key in groups.key]
    for position, keys in members(groups):
        assert keys
        assert {problem.current[key] for key in keys} == {groups.current[position]}
        assert {problem.home[key] for key in keys} == {groups.home[position]}
        assert groups.id[position] == problem.id[keys[0]]
        order = [(-problem.cost[key], problem.id[key]) for key in keys]
        assert order == sorted(order)
        mean = sum(problem.cost[key] for key in keys) / len(keys)
        assert groups.cost[position] == pytest.approx(mean, rel=1e-12)
        size = sum(problem.size[key] for key in keys) / len(keys)
        assert size - 0.5 < groups.size[position] <= size + 0.5
    order = [
        (groups.current[i], groups.home[i], -groups.cost_level[i], -groups.size_level[i])
        for i in range(len(groups.id))
    ]
    assert order == sorted(set(order))


@given(any_keys, degrees)
def test_loads_are_exact(problem, degree):
    """Means times counts are the loads of tasks, which levels are not."""
    groups = group(problem, degree)
    load = defaultdict(float)
    for task, cost, count in zip(groups.current, groups.cost, groups.count, strict=True):
        load[task] += cost * count
    for task in problem.tasks():
        here = [c for c, at in zip(problem.cost, problem.current, strict=True) if at == task]
        assert load[task] == pytest.approx(sum(here), rel=1e-9)


@given(alike, degrees, st.sampled_from(["mixed", "llfd", "min_table"]))
def test_picks_cost_what_the_plan_counted_on(problem, degree, algorithm):
    """From a task to a target the picked keys deviate from their means by about one key."""
    groups = group(problem, degree)
    plan = solve(reference.grouped_problem(problem, groups), algorithm)
    parts = moved_parts(groups, plan)
    deviation = defaultdict(float)
    for key, target in pick(groups, parts):
        deviation[problem.current[key], target] += problem.cost[key]
    for position, count, target in parts:
        deviation[groups.current[position], target] -= count * groups.cost[position]
    most = max(
        (
            abs(problem.cost[key] - groups.cost[position])
            for position, keys in members(groups)
            for key in keys
        ),
        default=0.0,
    )
    assert all(abs(excess) <= 2 * most + 1e-9 for excess in deviation.values())


@given(alike, degrees, st.sampled_from(["mixed", "llfd", "min_table"]))
def test_distributed_equal(problem, degree, algorithm):
    """Each task groups its own keys, the plan is made of reports, each task picks its own keys."""
    whole = group(problem, degree)
    joined, own = KeyGroups(), {}
    for task in problem.tasks():
        keys = [key for key in problem.records() if problem.current[key] == task]
        columns = {
            name: [getattr(problem, name)[key] for key in keys]
            for name in ("id", "cost", "size", "current", "home")
        }
        report = group(replace(problem, **columns), degree)
        own[task] = len(joined.id), report, keys
        for name, column in vars(report).items():
            getattr(joined, name).extend(column if name != "key" else [keys[i] for i in column])
    assert joined == whole

    plan = solve(reference.grouped_problem(problem, joined), algorithm)
    parts = moved_parts(joined, plan)
    picked = []
    for first, report, keys in own.values():
        last = first + len(report.id)
        mine = [(r - first, n, target) for r, n, target in parts if first <= r < last]
        picked += [(keys[i], target) for i, target in pick(report, mine)]
    assert picked == pick(whole, parts)
    assert len({key for key, _ in picked}) == len(picked) == sum(n for _, n, _ in parts)


def on_task_0(cost, size):
    n = len(cost)
    return Problem(
        capacity=[1.0] * 3,
        base=[0.0] * 3,
        open=[1] * 3,
        id=list(range(n, 0, -1)),
        cost=cost,
        size=size,
        current=[0] * n,
        home=[0] * n,
    )


def test_pick_by_hand():
    """4, 5, 5, 6 and 6 are one group of mean 5.2: the dearest first, then what makes up for it."""
    problem = on_task_0([5.0, 4.0, 6.0, 5.0, 6.0], [1] * 5)
    groups = group(problem, 8)
    assert (groups.cost, groups.count, groups.id) == ([5.2], [5], [1])
    assert groups.key == [4, 2, 3, 0, 1]
    assert pick(groups, [(0, 3, 1)]) == [(4, 1), (1, 1), (2, 1)]
    assert pick(groups, [(0, 1, 1), (0, 2, 2)]) == [(4, 1), (2, 2), (1, 2)]


def test_mean_sizes_are_whole_bytes():
    """3 and 4 bytes are one level, 3, with degree 8; their mean is half up."""
    groups = group(on_task_0([1.0, 1.0], [3, 4]), 8)
    assert (groups.count, groups.size_level, groups.size) == ([2], [3.0], [4])


reports = st.tuples(
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
    st.integers(0, 2**64 - 1),
    st.integers(0, 30).map(lambda bits: 1 << bits),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.lists(
        st.tuples(
            st.integers(0, 2**31 - 1),
            st.floats(0, 1e9),
            st.integers(0, 2**62),
            st.integers(1, 2**32 - 1),
            st.integers(0, 2**64 - 1),
        ),
        max_size=20,
    ),
)
orders = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 2**32 - 1), st.integers(0, 2**31 - 1)),
    max_size=20,
    unique_by=lambda row: (row[0], row[2]),
).map(lambda rows: sorted(rows, key=lambda row: (row[0], row[2])))


def columns_of(rows, *types):
    return [np.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]


@given(reports, st.integers(0, 2**31 - 1), orders)
def test_round_trip(report, task, rows):
    *facts, groups = report
    columns = columns_of(groups, np.int32, np.float64, np.int64, np.uint32, np.uint64)
    one = _core.GroupReport(*facts, *columns)
    two = _core.GroupReport.from_bytes(one.to_bytes())
    assert two.equals(one)
    assert two.to_bytes() == one.to_bytes()
    names = "task", "version", "fingerprint", "degree", "background", "load", "greatest"
    assert [getattr(two, name) for name in names] == facts
    for column, name in zip(columns, ("home", "cost", "size", "count", "id"), strict=True):
        assert getattr(two, name).tolist() == column.tolist()

    columns = columns_of(rows, np.uint32, np.uint32, np.int32)
    one = _core.GroupOrders(task, *columns)
    two = _core.GroupOrders.from_bytes(one.to_bytes())
    assert two.equals(one)
    assert two.task == task
    for column, name in zip(columns, ("group", "count", "target"), strict=True):
        assert getattr(two, name).tolist() == column.tolist()
