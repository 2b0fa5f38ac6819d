"""Scheduling on Storm: reports come back out of band, and better choices come of them."""

import json
import random
import socket
import sys
import time
from collections import Counter

import pytest

from pyroute.posg import Tracker
from pyroute.protocol.errors import ProtocolError
from pyroute.storm.protocol import Tuple
from pyroute.storm.scheduler_bolt import SchedulerBolt, TrackedBolt

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


class View:
    """What a topology looks like from a task."""

    task = 7
    component = "work"

    def tasks(self, name):
        return (7, 8, 9) if name == "work" else ()

    def fields(self, component, stream):
        return ("pyroute", "kind") if component == "schedule" else ("kind",)


STARTED = []


@pytest.fixture(autouse=True)
def finished():
    yield
    while STARTED:
        STARTED.pop().finish()


class Shown(SchedulerBolt):
    """Keeps what it would send."""

    def start(self, conf=None):
        STARTED.append(self)
        self.context, self.logged, self.sent = View(), [], []
        self.initialize(conf or {}, self.context)
        return self

    def log(self, message, level=2):
        self.logged.append(message)

    def emit(self, values, **_):
        self.sent.append(values)

    def head(self):
        self.process([Tuple("1", "spout", "default", 1, ["a"])])
        return json.loads(self.sent[-1][0])


class Worker(TrackedBolt):
    def start(self):
        STARTED.append(self)
        self.context, self.logged = View(), []
        self.initialize({}, self.context)
        return self

    def log(self, message, level=2):
        self.logged.append(message)

    def apply(self, record):
        pass

    def _done(self, record, taken):
        pass


def wait_for(bolt, reports=0, refused=0):
    deadline = time.monotonic() + 60
    while (bolt.reports, bolt.refused) != (reports, refused):
        bolt.on_idle()
        assert time.monotonic() < deadline, (bolt.reports, bolt.refused)


def test_datagrams_that_are_none():
    """Anybody may send something: it is counted and ignored."""
    bolt = Shown("work", fields="kind", host="127.0.0.1").start()
    report = Tracker(0, window=1, mode="pooled").observe(["a"], [0.1], 1.0, []).to_bytes()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        # The last is a report of somebody who never saw a record of this scheduler.
        for data in (b"", b"x", b"PYRT" + bytes(100), report, bytes(16) + report):
            sender.sendto(data, ("127.0.0.1", bolt._port))
    wait_for(bolt, refused=5)
    with pytest.raises(ValueError, match="target: expected a component"):
        SchedulerBolt("nobody").initialize({}, View())


def test_where_reports_go(monkeypatch):
    """Tasks may be on other hosts: they are told a name that all hosts know, not 127.0.0.1."""
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    for options, conf, host, bound in [
        ({}, {}, "localhost", "0.0.0.0"),
        ({}, {"storm.local.hostname": "127.0.0.2"}, "127.0.0.2", "0.0.0.0"),
        ({"host": "127.0.0.3"}, {"storm.local.hostname": "x"}, "127.0.0.3", "127.0.0.3"),
        ({"host": "localhost", "bind": "127.0.0.1"}, {}, "localhost", "127.0.0.1"),
    ]:
        bolt = Shown("work", fields="kind", **options).start(conf)
        assert bolt._socket.getsockname()[0] == bound
        told = bolt.head()
        assert told[:2] == [host, bolt._port]
        assert bolt.logged == []
        worker = Worker(fields="kind", options={"window": 1}).start()
        worker.process([Tuple("1", "schedule", "default", 1, [json.dumps(told), "a"])])
        wait_for(bolt, reports=1)


def test_a_name_that_nobody_knows(monkeypatch):
    """It is said, once, by whoever finds out."""
    monkeypatch.setattr(socket, "gethostname", lambda: "nobody.invalid")
    bolt = Shown("work", fields="kind").start()
    assert bolt.head()[0] == "127.0.0.1"
    assert len(bolt.logged) == 1
    assert "host: expected a name with an address, got 'nobody.invalid'" in bolt.logged[0]
    worker = Worker(fields="kind", options={"window": 1}).start()
    for _ in range(3):
        head = json.dumps(["nobody.invalid", 1, 7, None, "00" * 16])
        worker.process([Tuple("1", "schedule", "default", 1, [head, "a"])])
    assert len(worker.logged) == 1
    assert "nobody.invalid" in worker.logged[0]


def test_silence_is_said():
    """Records flow and no report ever comes: the log says which address to look at, once."""
    bolt = Shown("work", fields="kind", host="127.0.0.1").start()
    bolt.silent_seconds = 0.0
    for _ in range(4 * 3 * 64):
        bolt.process([Tuple("1", "spout", "default", 1, ["a"])])
    assert len(bolt.logged) == 1
    assert f"no task reported to 127.0.0.1:{bolt._port}" in bolt.logged[0]


def test_short_records():
    bolt = Shown("work", fields="kind", host="127.0.0.1").start()
    with pytest.raises(ProtocolError, match="tuple: expected 1 fields, got 0"):
        bolt.process([Tuple("1", "spout", "default", 1, [])])
    worker = Worker(fields="kind").start()
    for values in ([], [None]):
        with pytest.raises(ProtocolError, match=f"tuple: expected 2 fields, got {len(values)}"):
            worker.process([Tuple("1", "schedule", "default", 1, values)])
    with pytest.raises(ValueError, match="fields: expected some of"):
        Worker(fields="x").start().process([Tuple("1", "schedule", "default", 1, [None, "a"])])
