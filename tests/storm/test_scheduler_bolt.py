"""Scheduling on Storm: reports come back out of band, and better choices come of them."""

import random
import sys
from collections import Counter

import pytest

from pyroute.storm.scheduler_bolt import SchedulerBolt

from .pipes import Cluster, Component

PYTHON = [sys.executable, "-m", "pyroute.storm"]
SCHEDULE = """
import sys
from pyroute.storm.scheduler_bolt import SchedulerBolt


class Shown(SchedulerBolt):
    def process(self, records):
        super().process(records)
        self.log(f"{self.scheduler.state} {self.reports} {self.refused}")


Shown("work", fields="kind", mode=sys.argv[1]).run()
"""


def topology(tmp_path, mode, rows, window="16"):
    script = tmp_path / "schedule.py"
    script.write_text(SCHEDULE)
    components = {
        "schedule": Component(
            [sys.executable, str(script), mode],
            1,
            [("spout", "default", "shuffle")],
            {"default": ["pyroute", "kind", "milliseconds"]},
        ),
        "work": Component(
            [*PYTHON, "busy", "--fields", "kind", "--mode", mode, "--window", window],
            2,
            [("schedule", "default", "direct")],
        ),
    }
    return Cluster(tmp_path / "c", components, rows, ["kind", "milliseconds"], pending=50)


@pytest.mark.parametrize("mode", ["posg", "pooled"])
def test_reports_come_back(tmp_path, mode):
    """Every record is done once; the scheduler leaves round robin by what tasks tell it."""
    rng = random.Random(1)
    kinds = {"quick": 0.1, "slow": 3.0}
    rows = [[kind, kinds[kind]] for kind in rng.choices(["quick", "slow"], [9, 1], k=1200)]
    with topology(tmp_path, mode, rows) as cluster:
        cluster.timeout = 60.0
        cluster.run(lambda: cluster.done)
        states = [msg.split() for name, msg in cluster.logs if name == "schedule"]
        assert cluster.replays == 0
        assert not cluster.errors
    assert int(states[-1][1]) > 5, states[-1]  # reports that were taken
    assert states[-1][0] != "ROUND_ROBIN", states[-1]


def test_values_of_several_types(tmp_path):
    """Which records meet in one batch is chance: it does not matter what types they have."""
    rng = random.Random(2)
    rows = [[rng.choice(["a", 7, None, True, "7"]), 0.1] for _ in range(400)]
    with topology(tmp_path, "pooled", rows) as cluster:
        cluster.timeout = 60.0
        cluster.run(lambda: cluster.done or cluster.deaths)
        assert cluster.deaths == 0, cluster.story()
        assert not cluster.errors


def test_killed(tmp_path):
    """A task or the scheduler dies: what was not acked comes again, reports find their way."""
    rows = [["quick", 0.2] for _ in range(2500)]
    with topology(tmp_path, "pooled", rows) as cluster:
        cluster.timeout = 2.0
        cluster.run(lambda: len(cluster.completed) > 500)
        cluster.kill(cluster.tasks("work")[0])
        cluster.run(lambda: len(cluster.completed) > 1000)
        cluster.kill(cluster.tasks("schedule")[0])
        before = len(cluster.logs)
        cluster.run(lambda: cluster.done)
        states = [msg.split() for name, msg in cluster.logs[before:] if name == "schedule"]
        assert not cluster.errors, cluster.story()
    assert int(states[-1][1]) > 5  # the new scheduler heard of both
    assert Counter(len(row) for row in rows) == {2: 2500}


def test_datagrams_that_are_none(tmp_path):
    """Anybody may send something: it is counted and ignored."""
    import socket

    class Context:
        task = 7

        def tasks(self, name):
            return (3, 4) if name == "work" else ()

    bolt = SchedulerBolt("work", fields="kind")
    bolt.initialize({}, Context())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for data in (b"", b"x", b"PYRT" + bytes(100)):
            sender.sendto(data, ("127.0.0.1", bolt._port))
    deadline = 200
    while bolt.refused < 3 and deadline:
        bolt.on_idle()
        deadline -= 1
    assert (bolt.reports, bolt.refused) == (0, 3)
    bolt.finish()
    with pytest.raises(ValueError, match="target: expected a component"):
        SchedulerBolt("nobody").initialize({}, Context())
