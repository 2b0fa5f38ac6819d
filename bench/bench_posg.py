"""How long does a scheduler take per record, by its mode and the number of tasks?"""

import pytest

import pyroute as pr
from bench import workloads

N = 500_000


@pytest.fixture(scope="module")
def records():
    values, costs = pr.workloads.timed_items(N, seed=workloads.SEED)
    return pr.keys(values), costs


def running(records, mode, tasks):
    values, costs = records
    scheduler = pr.posg.Scheduler(tasks, mode)
    first = pr.Keys.from_ids(values.ids[:10_000])
    for task in range(tasks):
        tracker = pr.posg.Tracker(task, 5000, 0.9, mode=mode)
        scheduler.receive(tracker.observe(first, costs[:10_000], 0.0), 0.0)
    return scheduler


@pytest.mark.parametrize("mode", ["posg", "pooled"])
@pytest.mark.parametrize("tasks", [5, 10, 64, 500])
def test_posg_schedule(benchmark, records, mode, tasks):
    benchmark(running(records, mode, tasks).schedule, records[0], 1.0)


@pytest.mark.parametrize("tasks", [10, 64])
def test_posg_schedule_offline(benchmark, records, tasks):
    scheduler = running(records, "pooled", tasks)
    benchmark(lambda: scheduler.offline(3).schedule(records[0], 0.0))


@pytest.mark.parametrize("mode", ["posg", "pooled"])
def test_posg_observe(benchmark, records, mode):
    tracker = pr.posg.Tracker(0, mode=mode)
    benchmark(tracker.observe, *records, 1.0)
