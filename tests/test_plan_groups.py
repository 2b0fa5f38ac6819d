"""Planning where the keys stay at their tasks: the plan of one place, and what is refused."""

import numpy as np
import pytest

import pyroute as pr

pytestmark = pytest.mark.kernel


def workload(keys=3000, seed=0):
    random = np.random.default_rng(seed)
    costs = np.ceil(keys * random.permutation(np.arange(1, keys + 1)) ** -0.9)
    return np.arange(keys), costs, (costs * random.integers(1, 5, keys)).astype(np.int64)


def grouped(values, costs, sizes, router, background=None, degree=8):
    at = router.route(values)
    return {
        task: pr.KeyGroups(
            pr.Snapshot(
                values[at == task],
                costs[at == task],
                sizes[at == task],
                background={task: background[task]} if background else None,
            ),
            router,
            task,
            degree=degree,
        )
        for task in router.tasks
    }


def planned(groups, router, **options):
    """The plan, everything having travelled as bytes."""
    reports = [pr.GroupReport.from_bytes(each.report.to_bytes()) for each in groups.values()]
    plan = pr.plan_groups(reports, router, **options)
    orders = [pr.GroupOrders.from_bytes(each.to_bytes()) for each in plan.orders]
    return plan.complete([groups[each.task].pick(each) for each in orders])


@pytest.mark.parametrize("background", [None, {0: 0.0, 1: 4000.0, 2: 100.0, 3: 0.0, 4: 7.5}])
@pytest.mark.parametrize("max_table", [None, 3000, 20])
def test_equals_planning_in_one_place(background, max_table):
    router = pr.Router(5)
    for seed in range(3):
        values, costs, sizes = workload(seed=seed)
        options = {"max_imbalance": 0.04, "max_table": max_table}
        whole = pr.rebalance(
            pr.Snapshot(values, costs, sizes, background=background), router, degree=8, **options
        )
        plan = planned(grouped(values, costs, sizes, router, background), router, **options)
        assert dict(plan.table) == dict(whole.table)
        assert sorted(plan.migrations) == sorted(whole.migrations)
        assert plan.loads_before == pytest.approx(whole.loads_before)
        assert plan.loads_after == pytest.approx(whole.loads_after)
        assert plan.estimated_loads == pytest.approx(whole.estimated_loads)
        assert router.apply(plan) == router.apply(whole)
        router = router.apply(plan)


def test_keys_that_no_task_reported_count_against_the_table():
    router = pr.Router(3, table={10**6 + n: n % 3 for n in range(100)})
    plan = planned(grouped(*workload(), router), router, max_table=120)
    assert len(plan.table) <= 120
    assert {10**6 + n for n in range(100)} <= set(plan.table)


def test_a_task_of_weight_0_stays_empty():
    router = pr.Router(pr.Ring({0: 1, 1: 1, 2: 0}))
    plan = planned(grouped(*workload(), router), router, max_imbalance=0)
    assert plan.loads_after[2] == 0


def test_tasks_without_keys():
    router = pr.Router(3)
    values, costs, sizes = (column[:0] for column in workload())
    assert not planned(grouped(values, costs, sizes, router), router).changes


def test_refused():
    router = pr.Router(2)
    groups = grouped(*workload(200), router)
    reports = [each.report for each in groups.values()]
    later = router.apply(pr.rebalance(pr.Snapshot(*workload(200)), router, max_imbalance=0))
    with pytest.raises(ValueError, match="reports: expected those under version 1"):
        pr.plan_groups(reports, later)
    with pytest.raises(ValueError, match="reports: expected one of each of 2 tasks"):
        pr.plan_groups(reports[:1], router)
    with pytest.raises(ValueError, match="router: expected one without splits"):
        pr.plan_groups(reports, pr.Router(2, splits={1: [0, 1]}))
    coarse = grouped(*workload(200), router, degree=64)
    with pytest.raises(ValueError, match="reports: expected one degree"):
        pr.plan_groups([reports[0], coarse[1].report], router)
    with pytest.raises(TypeError, match="options: expected those of rebalance on groups"):
        pr.plan_groups(reports, router, pins={1: 0})
    plan = pr.plan_groups(reports, router, max_imbalance=0)
    picks = [groups[orders.task].pick(orders) for orders in plan.orders]
    with pytest.raises(ValueError, match="picks: expected one of every task"):
        plan.complete(picks[:1])
    moved = next(pick for pick in picks if len(pick.values))
    moved.targets[0] = 7
    with pytest.raises(ValueError, match="picks: expected what task"):
        plan.complete(picks)
    with pytest.raises(ValueError, match="orders: expected those of 0"):
        groups[0].pick(plan.orders[1])
    with pytest.raises(ValueError, match="snapshot: expected keys of task 0 alone"):
        pr.KeyGroups(pr.Snapshot(*workload(200)), router, 0)
