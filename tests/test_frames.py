"""Frames of the RouterShellBolt: the guarantees of csrc/storm/frames.hpp, and the loop on pipes."""

import json
import os
import random
import struct
import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from effort import effort
from pyroute._storm_frames import FrameLoop, Frames, message_frame
from pyroute._storm_loop import CLOSED, MESSAGE, TIMEOUT, TOO_LONG

pytestmark = pytest.mark.kernel

TASKS = [11, 12, 13, 15]
ROUTER = pr.Router(4, table={"anna": 3, "bert": 1})

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)
key_values = st.one_of(scalars, st.lists(scalars, min_size=2, max_size=4).map(tuple))


def encode(value):
    """A key, written from the definition in docs/storm-frames.md."""
    if value is None:
        return b"\0"
    if isinstance(value, bool):
        return b"\5" if value else b"\4"
    if isinstance(value, int):
        return struct.pack("<Bq", 1, value)
    if isinstance(value, str):
        data = value.encode()
        return struct.pack("<BI", 2, len(data)) + data
    if isinstance(value, bytes):
        return struct.pack("<BI", 3, len(value)) + value
    return struct.pack("<BB", 6, len(value)) + b"".join(map(encode, value))


def record(sequence, value):
    return struct.pack("<BI", 1, sequence) + encode(value)


def routed(sequence, value, router=ROUTER):
    return struct.pack("<BIi", 1, sequence, TASKS[router.route_one(value)])


def frames(capacity=0, router=ROUTER):
    made = Frames(capacity=capacity)
    made.set_router(router._core.capsule(), TASKS)
    return made


def consume_all(made, pieces):
    """What comes out of input in pieces, and the messages."""
    pending, out, messages = b"", b"", []
    for piece in pieces:
        pending += piece
        while True:
            more, done, message = made.consume(pending)
            out += more
            pending = pending[done:]
            if message is None:
                break
            messages.append(message)
    return out, messages, pending


@given(st.lists(key_values, max_size=20))
def test_routes(values):
    data = b"".join(record(n, v) for n, v in enumerate(values))
    out, messages, left = consume_all(frames(), [data])
    assert out == b"".join(routed(n, v) for n, v in enumerate(values))
    assert (messages, left) == ([], b"")


@given(
    st.lists(
        st.one_of(
            key_values.map(lambda v: ("record", v)),
            st.binary(max_size=30).map(lambda b: ("message", b)),
            st.just(("heartbeat", None)),
        ),
        max_size=12,
    ),
    st.integers(1, 40),
)
def test_framing(events, size):
    data, expected, messages = b"", b"", []
    for n, (kind, value) in enumerate(events):
        if kind == "record":
            data += record(n, value)
            expected += routed(n, value)
        elif kind == "message":
            data += message_frame(value)
            messages.append(value)
        else:
            data += b"\3"
            expected += b"\5"
    whole = consume_all(frames(), [data])
    assert whole == (expected, messages, b"")
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert consume_all(frames(), pieces) == whole


def test_hostile():
    rng = random.Random(3)
    good = b"".join(
        [record(1, "anna"), message_frame(b"{}"), b"\3", record(2, ("a", 1, None)), record(3, b"x")]
    )
    for _ in range(effort(100_000)):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = bytes(data[: rng.randint(0, len(data))])
        try:
            out, messages, left = consume_all(frames(capacity=10), [data])
        except (pr.FormatError, TypeError):
            continue
        assert len(out) <= 9 * len(data)
        assert len(left) <= len(data)
        assert sum(map(len, messages)) <= len(data)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\0", "frame: expected kind 1 to 3, got 0"),
        (b"\x09", "frame: expected kind 1 to 3, got 9"),
        (struct.pack("<BIB", 1, 0, 7), "key: expected kind 0 to 6, got 7"),
        (struct.pack("<BIBBB", 1, 0, 6, 2, 6), "key: expected kind 0 to 5, got 6"),
        (struct.pack("<BIBB", 1, 0, 6, 1), "key: expected at least 2 columns, got 1"),
        (struct.pack("<BI", 2, 2**31), "frame: expected at most 268435456 bytes, got 2147483648"),
    ],
)
def test_says_what_is_wrong(data, error):
    with pytest.raises(pr.FormatError, match=error):
        frames().consume(data)


def counted(made):
    """The statistics of keys of one type."""
    [data] = made.statistics()
    return pr.SpaceSaving.from_bytes(data)


@given(
    st.lists(st.one_of(st.none(), st.sampled_from(["anna", "bert", "c", "d", "é"])), max_size=60)
)
def test_counts(values):
    made = frames(capacity=4)
    consume_all(made, [b"".join(record(n, v) for n, v in enumerate(values))])
    expected = pr.SpaceSaving(4)
    if values:
        expected.observe(values)
    got = counted(made)
    assert got.total == expected.total == len(values)
    top, wanted = got.top(), expected.top()
    assert (top.values, top.counts.tolist()) == (wanted.values, wanted.counts.tolist())


def test_counts_composite_and_integers():
    for values in ([("a", 1), ("a", None), ("b", 2), ("a", 1)], [5, 5, -1, None, 5], [True, False]):
        made = frames(capacity=10)
        consume_all(made, [b"".join(record(n, v) for n, v in enumerate(values))])
        expected = pr.SpaceSaving(10)
        expected.observe(values)
        assert counted(made) == expected


@given(st.lists(key_values, max_size=40), st.integers(0, 40))
def test_types(values, cut):
    """Keys of any mix of types are counted, each among its like: 1 is not True."""
    made = frames(capacity=100)
    lines = [record(n, value) for n, value in enumerate(values)]
    consume_all(made, [b"".join(lines[:cut]), b"".join(lines[cut:])])
    parts = [pr.SpaceSaving.from_bytes(data) for data in made.statistics()]
    named = [
        (repr(value), count)
        for part in parts
        for value, count in zip(part.top().values, part.top().counts.tolist(), strict=True)
    ]
    assert sorted(named) == sorted(Counter(map(repr, values)).items())


def test_types_without_number():
    """Beyond 16 types the rest is counted by identity: nothing is lost but names."""
    kinds = ["a", 1, True]
    values = [(a, b, c) for a in kinds for b in kinds for c in kinds] * 3
    made = frames(capacity=100)
    consume_all(made, [b"".join(record(n, value) for n, value in enumerate(values))])
    parts = [pr.SpaceSaving.from_bytes(data) for data in made.statistics()]
    assert len(parts) == 17
    assert sum(part.total for part in parts) == len(values)
    assert [part.top().values for part in parts[:16]] == [[value] for value in values[:16]]
    last = parts[16].estimate(pr.keys(*([column] for column in values[26])))
    assert last[0] >= 3


def test_set_router_refuses():
    made = Frames()
    with pytest.raises(ValueError, match="set_router first"):
        made.consume(b"")
    with pytest.raises(ValueError, match="expected 4, got 3"):
        made.set_router(ROUTER._core.capsule(), [1, 2, 3])
    with pytest.raises(ValueError, match="ids from 1, got 0"):
        made.set_router(ROUTER._core.capsule(), [0, 1, 2, 3])
    split = pr.Router(4, splits={"a": [0, 1]})
    with pytest.raises(ValueError, match="without split keys"):
        made.set_router(split._core.capsule(), TASKS)


def loop():
    (to_read, feeds), (reads, writes) = os.pipe(), os.pipe()
    made = FrameLoop(to_read, writes, max_message=1 << 20)
    made.set_router(ROUTER._core.capsule(), TASKS)
    return made, feeds, reads, (to_read, writes)


def test_loop_on_pipes():
    made, feeds, reads, own = loop()
    values = [f"key-{n % 100}" for n in range(50_000)]
    data = b"".join(record(n, v) for n, v in enumerate(values)) + message_frame(b"last")
    got = bytearray()

    def drain():
        while len(got) < 9 * len(values):
            got.extend(os.read(reads, 1 << 16))

    def feed():
        view = memoryview(data)
        while view:
            view = view[os.write(feeds, view[:70_001]) :]

    threads = [threading.Thread(target=drain), threading.Thread(target=feed)]
    for thread in threads:
        thread.start()
    assert made.run(60.0) == (MESSAGE, b"last")
    for thread in threads:
        thread.join()
    found = np.frombuffer(bytes(got), np.dtype([("k", "u1"), ("s", "<u4"), ("t", "<i4")]))
    assert found["s"].tolist() == list(range(len(values)))
    assert found["t"].tolist() == [TASKS[t] for t in ROUTER.route(values)]
    assert made.records == len(values)
    assert made.run(0.0) == (TIMEOUT, None)
    made.push(record(1, "x")[:4])
    assert made.left == 4
    os.close(feeds)
    assert made.run(1.0) == (CLOSED, None)
    for end in (reads, *own):
        os.close(end)


def test_timeout_comes_also_when_input_never_pauses():
    made, feeds, reads, own = loop()
    stop = threading.Event()

    def feed():
        while not stop.is_set():
            os.write(feeds, record(1, "anna") * 500)

    def drain():
        while os.read(reads, 1 << 16):
            pass

    threads = [threading.Thread(target=feed), threading.Thread(target=drain)]
    for thread in threads:
        thread.start()
    assert made.run(0.2) == (TIMEOUT, None)
    stop.set()
    while threads[0].is_alive():
        made.run(0.01)
    os.close(own[1])
    threads[1].join()
    for end in (feeds, reads, own[0]):
        os.close(end)


def test_loop_refuses_what_is_too_long():
    made, feeds, reads, own = loop()
    made.push(struct.pack("<BI", 2, 1 << 21) + b"x" * ((1 << 20) + 10))
    assert made.run(0.0)[0] == TOO_LONG
    for end in (feeds, reads, *own):
        os.close(end)


CHILD = """
import pyroute as pr
from pyroute.storm.router_bolt import RouterBolt

class Router(RouterBolt):
    def initialize(self, conf, context):
        super().initialize(conf, context)
        self.log("hello")

    def tick(self):
        self.emit([self.records], stream="count")

Router(pr.Router(2, table={"anna": 1}), key="word", target="count").run()
"""


def test_router_bolt_in_frames(tmp_path):
    """A whole child: greeting in text, then frames; log, tick and heartbeat in between."""
    (tmp_path / "child.py").write_text(CHILD)
    setup = {
        "pidDir": str(tmp_path),
        "conf": {"topology.multilang.serializer": "pyroute.storm.RouterSerializer"},
        "context": {
            "taskid": 4,
            "task->component": {"3": "words", "4": "bolt", "5": "count", "6": "count"},
            "source->stream->fields": {"words": {"default": ["word"]}},
        },
    }
    tick = {"comp": "__system", "stream": "__tick", "task": -1, "tuple": [1], "id": "77"}
    data = json.dumps(setup).encode() + b"\nend\n" + record(0, "anna") + record(1, "anna") + b"\3"
    data += message_frame(json.dumps(tick).encode()) + record(2, "anna")
    done = subprocess.run(
        [sys.executable, tmp_path / "child.py"], input=data, capture_output=True, timeout=60
    )
    assert done.returncode == 3, done.stderr  # the pipe was closed
    greeting, _, rest = done.stdout.partition(b"\nend\n")
    assert list(json.loads(greeting)) == ["pid"]
    found = []
    while rest:
        if rest[0] == 1:
            found.append(struct.unpack_from("<BIi", rest))
            rest = rest[9:]
        elif rest[0] == 2:
            size = struct.unpack_from("<I", rest, 1)[0]
            found.append(json.loads(rest[5 : 5 + size]))
            rest = rest[5 + size :]
        else:
            found.append(rest[0])
            rest = rest[1:]
    assert {"command": "log", "msg": "hello"}.items() <= found.pop(0).items()
    assert found[:3] == [(1, 0, 6), (1, 1, 6), 5]
    assert found[3]["command"] == "emit"
    assert (found[3]["stream"], found[3]["tuple"]) == ("count", [2])
    assert found[4] == {"command": "ack", "id": "77"}
    assert found[5] == (1, 2, 6)
