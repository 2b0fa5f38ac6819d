"""Hooks: datagrams of the Storm jar, and Spark's status API as it was once answered."""

import http.client
import json
import math
import re
import socket
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from unittest.mock import Mock

import pytest

from pyroute.control.hook import Hook, SparkHook, StormHook

RECORDED = json.loads((Path(__file__).parent.parent / "golden" / "spark_status.json").read_text())
# As bindings/storm writes it.
DATAGRAM = (
    b'{"component":"count","task":3,"seconds":2.000000,"records":812,"queue_ms":0.400000,'
    b'"queue_max_ms":9.100000,"send_ms":0.100000,"send_max_ms":2.000000,"samples":12}'
)


def test_datagram():
    sample = StormHook.parse(DATAGRAM, 17.0, "h1")
    assert (sample.time, sample.host, sample.worker) == (17.0, "h1", "count/3")
    assert sample.features == {
        "queue_ms": 0.4,
        "queue_max_ms": 9.1,
        "send_ms": 0.1,
        "send_max_ms": 2.0,
        "samples": 12.0,
        "records_per_s": 406.0,
    }


def test_the_jar_writes_what_is_read_here():
    """The format in its source, filled in: nothing that it tells is lost, and the names agree."""
    root = Path(__file__).resolve().parent.parent.parent
    source = root / "bindings/storm/src/main/java/pyroute/storm/Traffic.java"
    if not source.exists():
        pytest.skip("bindings/storm is not here")
    after = source.read_text().partition("String.format(Locale.ROOT,")[2]
    literals = re.findall(r'"((?:[^"\\]|\\.)*)"', after.partition("component.replace(")[0])
    text = "".join(literals).replace('\\"', '"')
    filled = text % ("count", 3, 2.0, 812, 0.4, 9.1, 0.1, 2.0, 12)
    assert filled.encode() == DATAGRAM
    assert StormHook.parse(filled.encode(), 0.0).features.keys() >= {"queue_ms", "send_ms"}


def test_names_of_its_own():
    text = b'{"component":"c","task":0,"seconds":1,"worker":"w","host":"h","time":5,"x":NaN}'
    sample = StormHook.parse(text, 17.0)
    assert (sample.time, sample.host, sample.worker) == (5.0, "h", "w")
    assert math.isnan(sample.features["x"])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b"{",
        b'{"task":1}',
        b'{"task":1,"seconds":0}',
        b'{"task":1,"seconds":-1}',
        b'{"task":"1","seconds":1}',
        b'{"task":true,"seconds":1}',
        b'{"task":1,"seconds":1,"time":"x"}',
        b'{"task":1,"seconds":1,"time":NaN}',
        b'{"task":1,"seconds":1,"worker":7}',
        b"[" * 5000,
        b'{"task":1,"seconds":1' + b"0" * 400 + b"}",
        b'{"task":1,"seconds":1,"time":1' + b"0" * 400 + b"}",
        b'{"task":1,"seconds":1,"worker":"\\ud800"}',
        b'{"task":1,"seconds":1,"host":"a\\u0000b"}',
    ],
)
def test_hostile_datagrams(data):
    with pytest.raises(ValueError, match="expected"):
        StormHook.parse(data, 0.0)


def test_numbers_that_no_float_can_hold_are_left_out():
    data = b'{"task":1,"seconds":1,"records":1' + b"0" * 400 + b',"x":-1' + b"0" * 400 + b',"y":2}'
    assert StormHook.parse(data, 0.0).features == {"y": 2.0}


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_over_loopback():
    with Hook.storm() as hook, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", hook.port))
        came = []
        sender.send(DATAGRAM)
        sender.send(b"nonsense")
        sender.send(DATAGRAM)
        wait_for(lambda: came.extend(hook.collect()) or len(came) >= 2)
        wait_for(lambda: hook.refused == 1)
        assert [sample.worker for sample in came] == ["count/3"] * 2
        assert hook.collect() == []


def test_no_datagram_ends_the_listening(monkeypatch):
    """Also one that the reader of datagrams does not know to refuse."""

    def parse(data, now, host=""):
        if data == b"odd":
            raise ArithmeticError("odd")
        return real(data, now, host)

    real = StormHook.parse
    monkeypatch.setattr(StormHook, "parse", staticmethod(parse))
    with Hook.storm() as hook, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", hook.port))
        sender.send(b"odd")
        wait_for(lambda: hook.refused == 1)
        hook.collect()
        assert hook.problem == "datagram: odd"
        sender.send(DATAGRAM)
        wait_for(lambda: [sample.worker for sample in hook.collect()] == ["count/3"])


def test_port_in_use():
    with (
        Hook.storm() as hook,
        pytest.raises(OSError, match=rf"port: expected a free one, got {hook.port}"),
    ):
        Hook.storm(hook.port)
    with pytest.raises(ValueError, match=r"^port: expected"):
        Hook.storm(70000)


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        document = RECORDED.get(self.path)
        self.send_response(200 if document is not None else 404)
        self.end_headers()
        if document is not None:
            self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def status_api():
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_recorded_answer_of_spark(status_api):
    with Hook.spark(status_api) as hook:
        [first] = hook.collect(now=0.0)
        assert hook.problem is None
        assert first.worker == "driver"  # local mode
        assert math.isnan(first.features["service_ms"])
        assert first.features["cores"] > 0
        assert first.features["heap_bytes"] > 0


def executor(name, **counts):
    base = {"id": name, "hostPort": "h1:4711", "isActive": True, "activeTasks": 2}
    return {**base, "totalDuration": 0, "completedTasks": 0, "failedTasks": 0, **counts}


def test_rates_of_executors():
    answers = [
        [executor("driver"), executor("1", completedTasks=10, totalDuration=1000, totalGCTime=10)],
        [executor("driver"), executor("1", completedTasks=20, totalDuration=3000, totalGCTime=110)],
        [executor("driver"), executor("1")],  # another executor of that name
        [],
    ]
    hook = SparkHook("http://x", app="a", get=lambda path: answers.pop(0))
    [first] = hook.collect(now=10.0)
    assert first.worker == "1"
    [second] = hook.collect(now=12.0)
    assert second.host == "h1"
    assert second.features["completed_per_s"] == 5.0
    assert second.features["service_ms"] == 200.0
    assert second.features["gc_percent"] == 5.0
    assert second.features["backlog"] == 2.0
    [third] = hook.collect(now=14.0)
    assert math.isnan(third.features["completed_per_s"])
    assert hook.collect(now=16.0) == []


def test_executors_that_ended_are_forgotten():
    """Dynamic allocation makes a new name for each: what is remembered must not grow."""
    names = iter(range(1000))
    hook = SparkHook("http://x", app="a", get=lambda path: [executor(str(next(names)))])
    for turn in range(1000):
        hook.collect(now=float(turn))
    assert list(hook._before) == ["999"]


def test_spark_that_does_not_answer(status_api):
    hook = Hook.spark("http://127.0.0.1:1", timeout=0.5)
    assert hook.collect() == []
    assert hook.problem.startswith("http://127.0.0.1:1: ")
    wrong = Hook.spark(status_api, app="no such application")
    assert wrong.collect() == []
    assert "404" in wrong.problem
    torn = http.client.IncompleteRead(b"")
    broken = SparkHook("http://x", app="a", get=Mock(side_effect=torn))
    assert broken.collect() == []
    assert "0 bytes read" in broken.problem
    odd = SparkHook("http://x", get=lambda path: {"not": "a list"})
    assert odd.collect() == []
    assert odd.problem


def test_wrong_url():
    with pytest.raises(ValueError, match=r"^url: expected"):
        Hook.spark("localhost:4040")


def test_a_socket_that_fails_for_a_moment():
    """What is out of memory for a moment is no reason to be deaf from then on."""
    with Hook.storm() as hook:
        inner, failing = hook._socket, Mock()
        failing.recv.side_effect = OSError("No buffer space available")
        hook._socket = failing
        deadline, seen = time.monotonic() + 60, None
        while seen is None:
            assert time.monotonic() < deadline
            hook.collect()
            seen = hook.problem
            time.sleep(0.02)
        assert "No buffer space available" in seen
        hook._socket = inner
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.sendto(DATAGRAM, ("127.0.0.1", hook.port))
        came = []
        while not came:
            assert time.monotonic() < deadline
            came = hook.collect()
            time.sleep(0.02)
        assert came[0].worker == "count/3"


def test_a_spark_that_does_not_answer_is_not_asked_each_time():
    """A loop that decides once a second must not wait for it twice a second."""
    now, asked = [0.0], []

    def get(path):
        asked.append(now[0])
        if len(asked) < 3:
            now[0] += 2.0
            raise TimeoutError("timed out")
        return [{"id": "app"}] if path == "/applications" else []

    hook = SparkHook("http://127.0.0.1:1", get=get, ticks=lambda: now[0])
    for _ in range(30):
        assert hook.collect(0.0) == []
        assert "timed out" in hook.problem
        now[0] += 1.0
    assert asked == [0.0, 22.0]
    now[0] = 44.0
    assert hook.collect(0.0) == []
    assert hook.problem is None
