"""Queue and send times of a RouterShellBolt on a real Storm, as control's hook takes them."""

import json
import math
import socket
import textwrap
import time

import pytest

import pyroute as pr
from bench.storm import cluster
from bench.storm import topology as t

RECORDS = 6000
RATE = 2000
PENDING = 2000
pytestmark = pytest.mark.usefixtures("storm_jars")
# The child of the bolt listens: it is on the bolt's machine, which may have a network of its own.
CHILD = """
import json
import sys
import time
from pathlib import Path

from pyroute.control import Hook
from pyroute.storm.router_bolt import RouterBolt


class Listening(RouterBolt):
    def on_idle(self):
        super().on_idle()
        time.sleep(float(sys.argv[5]))
        with Path(sys.argv[3]).open("a") as out:
            for sample in hook.collect():
                out.write(json.dumps([sample.time, sample.worker, sample.features]) + "\\n")
            assert hook.problem is None, hook.problem


hook = Hook.storm(int(sys.argv[4]))
Listening(sys.argv[1], key=["key", "padding"], target=sys.argv[2]).run()
"""


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Of topologies that run one after the other: all quick, a slow child, slow consumers."""
    folder = tmp_path_factory.mktemp("hook")
    (folder / "child.py").write_text(textwrap.dedent(CHILD))
    (folder / "router").write_bytes(pr.Router(2).to_bytes(values=False))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    descriptions = []
    for name, stop, wait in (("quick", 0.0, 0), ("child", 0.5, 0), ("consumer", 0.0, 2000)):
        script = [folder / "child.py", folder / "router", "count", folder / name, port, stop]
        descriptions.append(
            t.topology(
                name,
                t.spout(records=RECORDS, rate=RATE, keys=60, padding=1000),  # few fit in a pipe
                t.python(
                    "route",
                    t.by("shuffle", "spout"),
                    kind="router",
                    key=["key", "padding"],
                    script=[str(each) for each in script],
                    hook=port,
                ),
                t.count("count", t.by("direct", "route"), parallelism=2, wait=wait),
                until={"spout.acked": RECORDS},
                deadline=150,
                conf={
                    "topology.max.spout.pending": PENDING,
                    # Short queues, so that a slow consumer is felt by who sends to it.
                    "topology.executor.receive.buffer.size": 64,
                    "topology.producer.batch.size": 1,
                },
            )
        )
    began = time.time()
    results = cluster.local(*descriptions)
    wall = time.time() - began
    assert all("late" not in result for result in results), results
    found = {
        name: [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("quick", "child", "consumer")
    }
    return began, wall, found


@pytest.mark.parametrize("name", ["quick", "child", "consumer"])
def test_plausible(samples, name):
    began, wall, found = samples
    rows = found[name]
    assert rows
    records = 0.0
    for when, worker, features in rows:
        assert began <= when <= began + wall
        component, _, task = worker.partition("/")
        assert component == "route"
        assert int(task) > 0
        assert all(math.isfinite(value) and value >= 0 for value in features.values())
        for kind in ("queue", "send"):
            assert features[f"{kind}_ms"] <= features[f"{kind}_max_ms"] <= 1000 * wall
        if features["samples"]:
            assert features["queue_ms"] > 0
        records += features["records_per_s"]
    assert records > 0
    assert max(features["queue_max_ms"] for _, _, features in rows) > 0
    assert max(features["send_max_ms"] for _, _, features in rows) > 0


def mean(rows, feature):
    """Of what was timed."""
    weights = sum(features["samples"] for _, _, features in rows)
    return sum(features[feature] * features["samples"] for _, _, features in rows) / weights


def test_a_slow_child_shows(samples):
    """Its pipe is full for half a second at a time: records wait for it."""
    quick, slow = samples[2]["quick"], samples[2]["child"]
    assert max(features["queue_max_ms"] for _, _, features in slow) > 200
    assert mean(slow, "queue_ms") > 2 * mean(quick, "queue_ms")


def test_a_slow_consumer_shows(samples):
    """Two tasks take a record each in 2 ms. Storm 2 holds back what comes, and no emit waits."""
    quick, slow = samples[2]["quick"], samples[2]["consumer"]
    rates = [features["records_per_s"] for _, _, features in slow]
    assert sorted(rates)[len(rates) // 2] < 1500
    assert mean(slow, "send_ms") < 100
    assert len(slow) > len(quick)  # one datagram a second: it took longer
