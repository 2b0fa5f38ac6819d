"""A real cluster of two workers under control: a task that is slowed down gets less, loses none."""

import json

import pytest

from bench.storm import cluster, hog

TIMES = hog.Times(before=4.0, hog=20.0, after=2.0)


@pytest.mark.usefixtures("storm_jars")
def test_a_slow_task_is_relieved(tmp_path):
    """Counters of the bolts, `pyroute control`, ZooKeeper and a `DynamicBolt`, all of them real."""
    lines = "".join(f"machine-{n % 40}\t{n % 100}\n" for n in range(1000))
    with cluster.Cluster(slots=2) as storm, cluster.logged(storm):
        found = hog.run(storm, tmp_path / "run", "queries", "water-filling, 1 s", lines, TIMES)
    assert found["failed"] == 0
    assert found["taken"] == found["sent"]
    statuses = [json.loads(line) for line in (tmp_path / "run" / "status").read_text().splitlines()]
    assert {len(each["ratio"]) for each in statuses} == {hog.TASKS}
    first = [share for at, share, *_ in found["ratios"] if at > TIMES.before]
    assert min(first) < 0.5 / hog.TASKS, found["ratios"]
    # Once it is relieved, it takes less than the share that it had.
    taken = [(at, count) for at, _, count in found["counts"]]
    (begun, before), (ended, after) = taken[0], taken[-1]
    assert after - before < (ended - begun) * hog.RATE / hog.TASKS
