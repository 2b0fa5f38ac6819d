"""RouterBolt as a process: the native loop with Python around it."""

import json
import random
import textwrap

import pytest

import pyroute as pr
from pyroute.control.config_store import ConfigStore
from storm.jvm import Jvm, framed, heartbeat, record, tick

SCRIPT = """
    import sys
    from pyroute.storm import RouterBolt

    class Tested(RouterBolt):
        control_streams = frozenset({"ctl"})

        def tick(self):
            top = self.statistics(reset=True).top(2)
            self.emit([top.counts.tolist(), self.records], stream="stats")

        def control(self, record):
            print("control", record.values)

    OPTIONS
"""

TYPES = """
    from pyroute.storm import RouterBolt

    class Tested(RouterBolt):
        def tick(self):
            counts = self.statistics()
            top = counts.top()
            rows = [[n, repr(value)] for value, n in zip(top.values, top.counts.tolist())]
            self.emit([rows, counts.total, counts.estimate([1]).tolist()[0]], stream="stats")

    OPTIONS
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def start(router, options, script=SCRIPT):
        folder = tmp_path / str(len(started))
        folder.mkdir()
        (folder / "router.json").write_text("" if router is None else router.to_json())
        path = None if router is None else str(folder / "router.json")
        call = f"Tested({path!r}, **{options!r}).run()"
        jvm = Jvm(textwrap.dedent(script).replace("OPTIONS", call), folder)
        started.append(jvm)
        return jvm

    yield start
    for jvm in started:
        jvm.__exit__()


ROUTER = pr.Router(2, {"anna": 1, "a/b": 0})


def answers(jvm, count):
    """Emits and acks by id."""
    emits, acks, others = {}, [], []
    while len(acks) < count:
        message = jvm.hear()
        assert message is not None, jvm.errors()
        if message["command"] == "ack":
            acks.append(message["id"])
        elif message["command"] == "emit" and "anchors" in message:
            emits[message["anchors"][0]] = message
        else:
            others.append(message)
    return emits, acks, others


@pytest.mark.parametrize("stream", ["default", "out"])
def test_routes(start, stream):
    jvm = start(ROUTER, {"key": "word", "capacity": 10, "stream": stream, "target": "count"})
    rng = random.Random(1)
    words = [rng.choice(["anna", "a/b", "é\n", "\U0001f600", "x" * 50]) for _ in range(2_000)]
    messages = [record(i, word, i) for i, word in enumerate(words)]
    data = framed(*messages)
    jvm.write(data[:100])
    jvm.write(data[100:])
    emits, acks, _ = answers(jvm, len(words))
    assert sorted(acks, key=int) == [str(i) for i in range(len(words))]
    tasks = [(5, 6)[task] + 2**32 for task in ROUTER.route(words).tolist()]
    for i, (word, task) in enumerate(zip(words, tasks, strict=True)):
        assert (emits[str(i)]["tuple"], emits[str(i)]["task"]) == ([word, i], task)
        assert emits[str(i)].get("stream", "default") == stream
    jvm.say(tick("t"))
    [ack_or_emit, _] = [jvm.hear(), jvm.hear()]
    [counts, native] = ack_or_emit["tuple"]
    ordered = sorted((words.count(word) for word in set(words)), reverse=True)
    assert counts == ordered[:2]
    assert native >= len(words) - 10


@pytest.mark.parametrize("together", [True, False])
def test_statistics_of_several_types(start, together):
    """A router routes any mix, and its statistics do not mind; some come with the set-up."""
    values = ["anna", 7, "anna", True, None, 1, "7", 7, "anna", None, None, None]
    jvm = start(ROUTER, {"key": 0, "capacity": 10}, TYPES)
    messages = [record(i, value, i) for i, value in enumerate(values)]
    if together:
        jvm.say(*messages)
    else:
        for message in messages:
            jvm.say(message)
            assert jvm.hear_until(lambda m: m["command"] == "ack")
    jvm.say(tick("t"))
    heard = jvm.hear_until(lambda m: m.get("stream") == "stats")
    top, total, estimate = heard[-1]["tuple"]
    assert total == len(values)
    assert sorted(top) == sorted(
        [count, repr(value)]
        for value, count in [("anna", 3), (7, 2), (True, 1), (None, 4), (1, 1), ("7", 1)]
    )
    assert [count for count, _ in top] == [4, 3, 2, 1, 1, 1]
    assert estimate >= 2  # 1 and True have one identity


def test_control_heartbeats_and_the_end(start):
    jvm = start(ROUTER, {"key": 0})
    jvm.say(heartbeat(1), record(2, "anna", 0), record(3, "go", stream="ctl"), record(4, "b", 0))
    heard = [jvm.hear() for _ in range(7)]
    commands = [(m["command"], m.get("id")) for m in heard]
    assert commands[0] == ("sync", None)
    assert commands[1:3] == [("emit", None), ("ack", "2")]
    assert heard[3]["msg"] == "control ['go']"
    assert commands[4:] == [("ack", "3"), ("emit", None), ("ack", "4")]
    assert jvm.close() == 3
    assert "stdin: expected messages of Storm, got the end of the stream" in jvm.errors()


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (record(1, 1.5, 0), "0.1 + 0.2 is not 0.3"),
        (record(1, 2**63, 0), "expected integers of 64 bits"),
        (record(1, [1], 0), "got list in row 0"),
        (record(1), "tuple: expected a key in field 0, got 0 fields"),
        (record(1, "a", stream="nowhere"), "stream: expected one that this bolt reads"),
        (b'{"tuple":[1,}', "message: expected JSON"),
        (b"[1]", "task ids: expected none"),
    ],
)
def test_what_cannot_be_routed(start, message, error):
    jvm = start(ROUTER, {"key": 0})
    jvm.say(record(0, "anna", 0), message, record(2, "anna", 0))
    heard = jvm.hear_until(lambda m: m["command"] == "error")
    assert error in heard[-1]["msg"]
    assert [m["id"] for m in heard if m["command"] == "ack"] == ["0"]
    assert jvm.hear() is None
    assert jvm.wait() == 1


def test_pipes_that_close(start):
    jvm = start(ROUTER, {"key": 0})
    jvm.write(b'{"comp":"wor')
    assert jvm.close() == 1
    assert "got the end of the stream after 12 bytes" in jvm.errors()
    jvm = start(ROUTER, {"key": 0})
    jvm.child.stdout.close()
    jvm.say(record(1, "anna", 0))
    assert jvm.wait() == 3
    assert "stdout: expected Storm to read, got a closed pipe" in jvm.errors()


def test_split_keys(start):
    router = pr.Router(2, splits={"hot": [0, 1]})
    jvm = start(router, {"key": 0})
    jvm.say(*(record(i, "hot" if i % 2 else "cold", i) for i in range(200)))
    emits, _, _ = answers(jvm, 200)
    hot = {emits[str(i)]["task"] - 2**32 for i in range(1, 200, 2)}
    cold = {emits[str(i)]["task"] - 2**32 for i in range(0, 200, 2)}
    assert hot == {5, 6}
    assert cold == {5 + int(pr.Router(2).route(["cold"])[0])}


def test_composite_key_by_name(start):
    jvm = start(ROUTER, {"key": ["n", "word"]})
    jvm.say(*(record(i, f"w{i}", i % 7) for i in range(100)))
    emits, _, _ = answers(jvm, 100)
    routed = ROUTER.route([(i % 7, f"w{i}") for i in range(100)]).tolist()
    assert [emits[str(i)]["task"] - 2**32 for i in range(100)] == [(5, 6)[t] for t in routed]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"key": "nobody"},
            "key: expected a field of 'default' of 'words' (word, n), got 'nobody'",
        ),
        ({"key": 2}, "key: expected a position below 2"),
        ({"key": 0, "target": "nobody"}, "target: expected a component with tasks"),
        ({"key": 0, "stream": "unread"}, "target: expected one component that reads 'unread'"),
    ],
)
def test_bad_set_up(start, options, error):
    jvm = start(ROUTER, options)
    message = jvm.hear()
    assert message["command"] == "error"
    assert error in message["msg"]
    assert jvm.wait() == 1


def test_router_of_another_size(start):
    jvm = start(pr.Router(3), {"key": 0})
    assert "router: expected 2 tasks, as count has, got 3" in jvm.hear()["msg"]


def test_newer_routers_come_from_the_config_store(start, tmp_path):
    url = f"dir:{tmp_path / 'store'}"
    first = pr.Router(2, {"moves": 0})
    with ConfigStore.open(url) as store:
        store.put("edge", first.to_bytes(), expect_version=0)
        jvm = start(None, {"key": 0, "config": url, "document": "edge"})
        jvm.say(record(1, "moves", 0))
        assert answers(jvm, 1)[0]["1"]["task"] == 5 + 2**32
        store.put("edge", b"not a router", expect_version=1)  # is ignored
        heard = jvm.hear()
        assert heard["command"] == "log"
        assert "edge: version 2 is ignored" in heard["msg"]
        second = pr.Router(2, {"moves": 1}, version=1)
        store.put("edge", json.loads(second.to_json()), expect_version=2)
        for i in range(2, 100_000):
            jvm.say(record(i, "moves", 0))
            if answers(jvm, 1)[0][str(i)]["task"] == 6 + 2**32:
                break
        else:
            pytest.fail("the new router never came")
        store.put("edge", first.to_bytes(), expect_version=3)  # an older one
        jvm.say(record("last", "moves", 0))
        assert answers(jvm, 1)[0]["last"]["task"] == 6 + 2**32


@pytest.mark.parametrize("home", [pr.StormHash(2, key_type="string"), pr.Ring(2)])
def test_a_home_for_other_keys_is_ignored(start, tmp_path, home):
    """It would have ended the bolt with the next record."""
    url = f"dir:{tmp_path / 'store'}"
    with ConfigStore.open(url) as store:
        store.put("edge", pr.Router(home, {"moves": 0}).to_bytes(), expect_version=0)
        jvm = start(None, {"key": 0, "config": url, "document": "edge"})
        jvm.say(record(1, "moves", 0))
        assert answers(jvm, 1)[0]["1"]["task"] == 5 + 2**32
        other = pr.Router(pr.StormHash(2, key_type="long"), version=1)
        store.put("edge", other.to_bytes(), expect_version=1)
        heard = jvm.hear()
        assert "edge: version 2 is ignored: expected a ring, or a home like" in heard["msg"]
        jvm.say(record(2, "moves", 0))
        assert answers(jvm, 1)[0]["2"]["task"] == 5 + 2**32


@pytest.mark.parametrize("place", ["damaged", "away"])
def test_a_router_of_its_own_needs_no_store(start, tmp_path, place):
    """The store is damaged or away at the start: the bolt routes, and follows what comes later."""
    url = f"dir:{tmp_path / 'store'}"
    with ConfigStore.open(url) as store:
        store.put("edge", pr.Router(2, version=5).to_bytes(), expect_version=0)
        (file,) = (path for path in (tmp_path / "store").rglob("*1") if path.is_file())
        file.write_bytes(file.read_bytes()[:-20])
        if place == "away":
            pytest.importorskip("kazoo")
            url = "zk://127.0.0.1:1/nobody"
        jvm = start(pr.Router(2, {"moves": 0}), {"key": 0, "config": url, "document": "edge"})
        heard = jvm.hear()
        assert heard["command"] == "log"
        assert "the router that was given stays in force" in heard["msg"]
        jvm.say(record(1, "moves", 0))
        assert answers(jvm, 1)[0]["1"]["task"] == 5 + 2**32
        if place == "away":
            return
        store.put("edge", pr.Router(2, {"moves": 1}, version=6).to_bytes(), expect_version=1)
        for i in range(2, 100_000):
            jvm.say(record(i, "moves", 0))
            if answers(jvm, 1)[0][str(i)]["task"] == 6 + 2**32:
                break
        else:
            pytest.fail("the new router never came")


def test_a_damaged_store_alone_is_an_error(start, tmp_path):
    url = f"dir:{tmp_path / 'store'}"
    with ConfigStore.open(url) as store:
        store.put("edge", pr.Router(2).to_bytes(), expect_version=0)
    (file,) = (path for path in (tmp_path / "store").rglob("*1") if path.is_file())
    file.write_bytes(file.read_bytes()[:-20])
    jvm = start(None, {"key": 0, "config": url, "document": "edge"})
    heard = jvm.hear_until(lambda m: m["command"] == "error")
    assert "version 1: document: expected" in heard[-1]["msg"]
    assert jvm.wait() == 1
