"""A split ratio that changes while records flow: shares are as the document says."""

import base64
import sys

import pytest

import pyroute as pr
from pyroute.control import ConfigStore
from pyroute.storm.dynamic_bolt import grouping_of
from zookeeper import zookeeper  # noqa: F401 - a fixture

from .pipes import Cluster, Component

PYTHON = [sys.executable, "-m", "pyroute.storm"]
SINK = """
from pyroute.storm.bolt import Bolt


class Sink(Bolt):
    def process(self, records):
        pass


Sink().run()
"""


class Counted(Cluster):
    """Counts what goes to each task."""

    def deliver(self, source, stream, values, task, attempts):
        if task:
            self.shares[task] = self.shares.get(task, 0) + 1
        super().deliver(source, stream, values, task, attempts)


def topology(tmp_path, url, n):
    script = tmp_path / "sink.py"
    script.write_text(SINK)
    components = {
        "split": Component(
            [*PYTHON, "dynamic", "work"],
            1,
            [("spout", "default", "shuffle")],
            {"default": ["n"]},
        ),
        "work": Component([sys.executable, str(script)], 3, [("split", "default", "direct")]),
    }
    cluster = Counted(
        tmp_path / "c", components, [[i] for i in range(n)], ["n"], conf={"pyroute.store": url}
    )
    cluster.shares = {}
    cluster.timeout = 60.0
    return cluster


def shares_of(cluster, n):
    """How many of the next n records each task gets."""
    cluster.shares = {}
    cluster.run(lambda: sum(cluster.shares.values()) >= n)
    total = sum(cluster.shares.values())
    return [cluster.shares.get(child.task, 0) / total for child in cluster.tasks("work")]


@pytest.mark.parametrize("place", ["dir", "zk"])
def test_follows_the_document(tmp_path, place, request):
    if place == "dir":
        url = f"dir:{tmp_path / 'store'}"
    else:
        url = f"zk://{request.getfixturevalue('zookeeper').hosts}/{tmp_path.name}"
    with ConfigStore.open(url) as store, topology(tmp_path, url, 1_000_000) as cluster:
        assert shares_of(cluster, 1024) == pytest.approx([1 / 3] * 3, abs=0.01)
        version = 0
        for ratio in ([7, 3, 2], [0, 1, 1], [1, 1, 1]):
            version = store.put("test/split->work", {"ratio": ratio}, version)
            wanted = [weight / sum(ratio) for weight in ratio]
            for _ in range(100):  # until it is in force
                if shares_of(cluster, 1024) == pytest.approx(wanted, abs=0.01):
                    break
            assert shares_of(cluster, 4096) == pytest.approx(wanted, abs=0.01)
            if 0 in ratio:
                assert cluster.shares.get(cluster.tasks("work")[0].task, 0) == 0
        store.put("test/split->work", {"ratio": "nonsense"}, version)
        cluster.run(lambda: any("stays in force" in text for _, text in cluster.logs))
        assert shares_of(cluster, 2048) == pytest.approx([1 / 3] * 3, abs=0.01)
        assert cluster.deaths == 0


def test_documents():
    circle = pr.DynamicGrouping.from_ratio([1, 1, 1], bits=6).reassign(0, to=2)
    text = base64.b64encode(circle.to_bytes()).decode()
    assert grouping_of({"ratio": [0, 1, 2], "grouping": text}, 3) == circle
    assert grouping_of({"ratio": [7, 3, 2]}, 3) == pr.DynamicGrouping.from_ratio([7, 3, 2])
    for bad in (
        None,
        [1, 2, 3],
        {},
        {"ratio": [1, 2]},
        {"ratio": [0, 0, 0]},
        {"ratio": [1, -1, 1]},
        {"ratio": [1, 1, "x"]},
        {"ratio": [1, 1, 1], "bits": "x"},
        {"ratio": [1, 1, 1], "grouping": "?"},
        {"ratio": [1, 1, 1], "grouping": "AAAA"},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - several texts
            grouping_of(bad, 3)
    with pytest.raises(ValueError, match="expected tasks below 2"):
        grouping_of({"ratio": [1, 1], "grouping": text}, 2)
