"""A split ratio that changes while records flow: shares are as the document says."""

import base64
import contextlib
import json
import signal
import socket
import subprocess
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


# Tells control once in a while what its records take, as the jar's hook does for a task of Storm;
# not by a clock, or a machine that does something else would be taken for a slow worker.
WORKER = """
import json, socket, statistics, sys, threading, time
from collections import deque
from pathlib import Path

from pyroute.storm.bolt import Bolt

PORT, SLOW = int(sys.argv[1]), Path(sys.argv[2])


class Worker(Bolt):
    def initialize(self, conf, context):
        self.task, self.is_first = context.task, context.task == context.tasks("work")[0]
        self.took, self.count = deque(maxlen=8), 0
        threading.Thread(target=self.report, daemon=True).start()

    def report(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while True:
                time.sleep(0.1)
                done, self.count = self.count, 0
                told = {"component": "work", "task": self.task, "seconds": 0.1, "records": done}
                if done:
                    told["service_ms"] = 1000 * statistics.fmean(list(self.took))
                sender.sendto(json.dumps(told).encode(), ("127.0.0.1", PORT))

    def process(self, records):
        for _ in records:
            self.took.append(0.2 if self.is_first and SLOW.exists() else 0.002)
            time.sleep(self.took[-1])
            self.count += 1


Worker().run()
"""


class Counted(Cluster):
    """Counts what goes to each task."""

    def deliver(self, source, stream, values, task, attempts):
        if task:
            self.shares[task] = self.shares.get(task, 0) + 1
        super().deliver(source, stream, values, task, attempts)


def topology(tmp_path, url, n, sink=SINK, *words):
    script = tmp_path / "sink.py"
    script.write_text(sink)
    components = {
        "split": Component(
            [*PYTHON, "dynamic", "work"],
            1,
            [("spout", "default", "shuffle")],
            {"default": ["n"]},
        ),
        "work": Component(
            [sys.executable, str(script), *words], 3, [("split", "default", "direct")]
        ),
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


@contextlib.contextmanager
def control(tmp_path, url, port, workers):
    """`pyroute control` of the edge, in a process of its own; the file that it writes to."""
    words = [sys.executable, "-m", "pyroute", "control", "test", "split->work", "--json"]
    words += ["--config", url, "--hook", str(port), "--period", "0.5"]
    for worker in workers:
        words += ["--worker", worker]
    shown = tmp_path / "status.jsonl"
    with (
        shown.open("w") as out,
        (tmp_path / "errors.txt").open("w") as errors,
        subprocess.Popen(words, stdout=out, stderr=errors) as process,
    ):
        try:
            yield shown
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (tmp_path / "errors.txt").read_text()
        finally:
            process.kill()


def last(shown):
    """What the command said last, whole lines alone."""
    return json.loads(shown.read_text().rpartition("\n")[0].rpartition("\n")[2])


def test_control_relieves_a_task_through_zookeeper(tmp_path, zookeeper):  # noqa: F811
    """Real children, the real command, a real ZooKeeper: slow, relieved, away, well, even."""
    pytest.importorskip("typer")
    url = f"zk://{zookeeper.hosts}/{tmp_path.name}"
    slow = tmp_path / "slow"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with topology(tmp_path, url, 1_000_000, WORKER, str(port), str(slow)) as cluster:
        cluster.rate = 300.0
        names = [f"work/{child.task}" for child in cluster.tasks("work")]
        with control(tmp_path, url, port, names) as shown:
            # The command is there, and every task has told it something.
            cluster.run(lambda: shown.exists() and shown.read_text().count("\n") >= 3)
            assert shares_of(cluster, 256) == pytest.approx([1 / 3] * 3, abs=0.02)
            slow.touch()
            for _ in range(200):
                if shares_of(cluster, 64)[0] < 0.1:
                    break
            assert shares_of(cluster, 256)[0] < 0.1
            zookeeper.kill()
            slow.unlink()
            cluster.run(lambda: "config" in last(shown)["problems"])  # it wants to go back to even
            assert shares_of(cluster, 256)[0] < 0.1  # the last ratio stays in force
            zookeeper.start()
            for _ in range(200):
                if shares_of(cluster, 256) == pytest.approx([1 / 3] * 3, abs=0.02):
                    break
            assert shares_of(cluster, 512) == pytest.approx([1 / 3] * 3, abs=0.02)
        cluster.rate = 0.0  # no more: what is on its way arrives
        cluster.run(lambda: not cluster.live and not cluster.again)
        assert len(cluster.completed) == cluster.next  # nothing is lost
        assert cluster.deaths == 0
    said = [json.loads(line) for line in shown.read_text().splitlines()]
    assert "config" not in said[-1]["problems"]
    assert any("work/3" in reason for status in said for reason in status["reasons"])


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
