"""A spout that routes its own records: it follows the manager, and may be late."""

import json
import random
import time
from collections import Counter

import pytest

import pyroute as pr
from pyroute.control import ConfigStore
from pyroute.storm.bolt import Context
from pyroute.storm.reconfigure import Wiring

from .jvm import Jvm, setup
from .pipes import Cluster, Component
from .test_reconfigure import PYTHON, TASKS, Mover, counts, steps, words

SPOUT = """
import json
from pyroute.storm import RoutedSpout


class Words(RoutedSpout):
    def initialize(self, conf, context):
        super().initialize(conf, context)
        self.words = conf["words"]

    def next(self):
        for i, word in enumerate(self.words):
            self.emit_keyed(word, [0], id=json.dumps(["s", i]))


Words({operator}).run()
"""
NAMES = {"1": "words", "2": "split", "3": "count", "4": "count", "5": "count"}
MANY = [f"word{i}" for i in range(50)] + [["x", i] for i in range(20)] + [7, None, True]


def spout(folder, conf, operator='"count"'):
    jvm = Jvm(SPOUT.replace("{operator}", operator), folder, start=False)
    names = {"task->component": NAMES, "taskid": 1, "source->stream->fields": {}}
    conf = {"pyroute.operators": ["split", "count"], "words": MANY, "topology.name": "t", **conf}
    jvm.say(setup(folder, conf, **names))
    assert "pid" in jvm.hear()
    return jvm


def asked(jvm):
    """The tasks that the next records go to, and what else is said."""
    jvm.say({"command": "next"})
    heard = jvm.hear_until(lambda m: m["command"] == "sync")[:-1]
    emits = [m for m in heard if m["command"] == "emit"]
    assert [m["id"] for m in emits] == [json.dumps(["s", i]) for i in range(len(MANY))]
    assert [m["tuple"][0] for m in emits] == [m["id"] for m in emits]
    return [m["task"] - 2**32 - 3 for m in emits], [m for m in heard if m["command"] == "log"]


def routed(router):
    return [router.route_one(tuple(key) if isinstance(key, list) else key) for key in MANY]


def first():
    context = Context({"task->component": NAMES, "taskid": 1})
    return Wiring(context, ["split", "count"], None).first_routers()["count"]


def test_follows_the_manager(tmp_path):
    url = f"dir:{tmp_path / 'store'}"
    with ConfigStore.open(url) as store, spout(tmp_path, {"pyroute.store": url}) as jvm:
        assert asked(jvm)[0] == routed(first())
        ring = first().home
        second = pr.Router(ring, dict.fromkeys(MANY[:30], 2), version=1)
        store.put("t/split->count", second.to_bytes(), 0)
        deadline = time.monotonic() + 60
        while asked(jvm)[0] != routed(second):
            assert time.monotonic() < deadline, jvm.errors()
        for bad, why in ((b"no router", "expected"), (pr.Router(9, version=9).to_bytes(), "tasks")):
            store.put("t/split->count", bad, None)
            while not (logs := asked(jvm)[1]):
                assert time.monotonic() < deadline, jvm.errors()
            assert why in logs[0]["msg"]
            assert "stays in force" in logs[0]["msg"]
        store.put("t/split->count", first().to_bytes(), None)  # an older one
        time.sleep(0.2)
        assert asked(jvm) == (routed(second), [])


def test_without_a_store(tmp_path):
    with spout(tmp_path, {}) as jvm:
        assert asked(jvm)[0] == routed(first())


@pytest.mark.parametrize(
    ("conf", "operator", "error"),
    [
        ({}, '"nobody"', "operator: expected one of ['count'], got 'nobody'"),
        ({}, '"split"', "operator: expected one of ['count'], got 'split'"),
        ({"pyroute.operators": None}, '"count"', "operators: expected the components"),
    ],
)
def test_bad_set_up(tmp_path, conf, operator, error):
    with spout(tmp_path, conf, operator) as jvm:
        message = jvm.hear()
        assert message["command"] == "error"
        assert error in message["msg"]
        assert jvm.wait() == 1


class Late(Cluster):
    """Its spout sends to the tasks of `count` itself, by the first router for ever."""

    router = None

    def deliver(self, source, stream, values, task, attempts):
        if source == 1:
            if self.router is None:
                context = Context({"task->component": self.names, "taskid": 1})
                self.router = Wiring(context, ["split", "count"], None).first_routers()["count"]
            task = self.tasks("count")[self.router.route_one(values[1])].task
        super().deliver(source, stream, values, task, attempts)


@pytest.mark.parametrize("kills", [False, True])
def test_late_spouts_lose_nothing(tmp_path, kills):
    """Keys move, tasks are killed, the spout never hears of it: every count is exact."""
    rng = random.Random(9)
    records = words(100_000, seed=9)
    control = {"pyroute": ["kind", "data"]}
    components = {
        "split": Component([*PYTHON, "source"], 1, [("manager", "pyroute", "direct")], control),
        "count": Component(
            [*PYTHON, "task", "--commit-every", "0.05"],
            TASKS,
            [
                ("spout", "default", "direct"),
                *((name, "pyroute", "direct") for name in ("split", "count", "manager")),
            ],
            control,
        ),
        "manager": Component(
            [*PYTHON, "manager", "--plan-every", "0", "--resend-after", "0.5"],
            1,
            [("split", "pyroute", "direct"), ("count", "pyroute", "direct")],
            control,
        ),
    }
    conf = {
        "pyroute.operators": ["split", "count"],
        "pyroute.manager": "manager",
        "pyroute.state": str(tmp_path / "state"),
        "pyroute.store": f"dir:{tmp_path / 'store'}",
    }
    rows = [[json.dumps(["s", i]), word, "LOW"] for i, word in enumerate(records)]
    mover = Mover(tmp_path, seed=9)
    with Late(tmp_path, components, rows, ["id", "key", "low"], conf=conf, seed=9) as cluster:
        cluster.timeout = 1.5 if kills else 60.0
        cluster.run(lambda: len(cluster.completed) > 500)
        for _ in range(3):
            mover.ask(share=0.3)
            steps(cluster, rng.random() * 0.3)
            if kills:
                cluster.kill(rng.choice(list(cluster.children.values())), delay=0.1)
            cluster.run(lambda: mover.done)
        assert mover.status()["epoch"] >= 3
        published = pr.Router.from_bytes(mover.store.get("test/split->count").value)
        moved = [w for w in set(records) if published.route_one(w) != cluster.router.route_one(w)]
        assert len(moved) > 30  # what the spout does not know
        flowed = len(cluster.completed)
        cluster.run(lambda: len(cluster.completed) > flowed + 500)
        del cluster.records[cluster.next :]
        del records[cluster.next :]
        cluster.run(lambda: cluster.done)
        assert (cluster.replays > 0) == kills
        assert not cluster.errors, cluster.story()
    assert counts(tmp_path) == Counter(records)
