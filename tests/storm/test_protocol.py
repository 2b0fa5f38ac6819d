"""Multilang without I/O: transcripts of real serializers, cut every way; what must not be said."""

import itertools
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import effort
from pyroute.protocol.errors import ProtocolError
from pyroute.storm import protocol as ml
from pyroute.storm.protocol import Multilang, Role, State
from storm.jvm import framed, heartbeat, record, setup, tick

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "storm").glob("*.json"))


def opened(role=Role.BOLT, **options):
    storm = Multilang(role, **options)
    storm.receive(framed(setup("/tmp")))
    storm.send(ml.Pid(1))
    return storm


def decode(data, cuts, expect_ids=1):
    """Events of a transcript that comes in pieces, and the fault that ended it."""
    storm = Multilang()
    storm.task_ids_due = expect_ids  # the transcript holds the answer to one emit
    events, fault = [], None
    borders = sorted({0, len(data), *cuts})
    try:
        for begin, end in itertools.pairwise(borders):
            events += storm.receive(data[begin:end])
        storm.receive(b"")
        storm.closed()
    except ProtocolError as error:
        fault = str(error)
    return events, fault


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_transcripts_decode_alike_however_they_are_cut(golden):
    data = golden.with_suffix(".bin").read_bytes()
    whole = decode(data, [])
    assert repr(decode(data, range(len(data)))) == repr(whole)  # repr: NaN is not NaN
    ends = [i + len(ml.END) for i in range(len(data)) if data.startswith(ml.END, i)]
    assert repr(decode(data, ends)) == repr(whole)
    assert repr(decode(data, [end + 9 for end in ends])) == repr(whole)
    assert whole[1] is None
    assert len(whole[0]) == len(ends)


def plain(typed):
    """The Python value of a recorded Java value."""
    kind, value = typed["t"], typed.get("v")
    if kind == "list":
        return [plain(v) for v in value]
    if kind == "map":
        return {k: plain(v) for k, v in (value.items() if isinstance(value, dict) else value)}
    if kind == "i":
        return int(value)
    return value


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_transcripts_say_what_java_sent(golden):
    recorded = json.loads(golden.read_text())["messages"]
    events, _ = decode(golden.with_suffix(".bin").read_bytes(), [])
    kinds = {
        "setup": ml.Setup,
        "tuple": ml.Tuple,
        "tick": ml.Tick,
        "heartbeat": ml.Heartbeat,
        "task_ids": ml.TaskIds,
        "taskids": ml.TaskIds,
    }
    assert len(events) == len(recorded)
    compared = 0
    for event, message in zip(events, recorded, strict=True):
        expected = kinds[message["kind"]]
        assert isinstance(event, expected)
        if not isinstance(event, ml.Tuple):
            continue
        assert (event.id, event.component, event.stream, event.task) == (
            message["id"],
            message["comp"],
            message["stream"],
            message["task"],
        )
        values = message["values"]["v"]
        if all(v["t"] in ("i", "s", "n") for v in values) and "?" not in str(event.values):
            assert event.values == [plain(v) for v in values]
            compared += 1
    assert compared > 25


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_storm_reads_what_we_send(golden):
    """Replies that the real serializer parsed are the ones that we would send."""
    replies = {r["reply"]: r for r in json.loads(golden.read_text())["replies"]}
    storm = opened()
    storm.receive(framed(record("-69", "a")))
    sync = storm.send(ml.Sync())
    emit = storm.send(ml.Emit(["a"], anchors=("-69",), task=7))
    ack = storm.send(ml.Ack("-69"))
    assert sync.removesuffix(ml.END).decode() in replies
    assert ack.removesuffix(ml.END).decode() in replies
    number = json.loads(emit.removesuffix(ml.END))["task"]
    assert number == 7 + 2**32
    direct = [r for r in replies.values() if f'"task":{number}' in r["reply"]]
    assert direct
    assert {r["task"] for r in direct} == {7}  # whatever the parser makes of small numbers


MESSAGES = framed(
    setup("/tmp", {"a": [1.5, None]}),
    record(1, "a/b", None, 2**60),
    heartbeat(2),
    tick(3),
    [5, 6],
    record(4, float("nan"), "\U0001f600"),
)


@given(st.lists(st.integers(0, len(MESSAGES)), max_size=30))
def test_pieces(cuts):
    assert repr(decode(MESSAGES, cuts)) == repr(decode(MESSAGES, []))


@given(st.lists(st.integers(0, len(MESSAGES) + 40), max_size=30), st.integers(0, 6))
def test_pieces_with_a_fault(cuts, at):
    """What comes before a fault is heard, wherever the bytes are cut; nothing after it is."""
    messages = MESSAGES.split(ml.END)[:-1]
    messages.insert(min(at, len(messages)), b'{"tuple":[1,}')
    data = framed(*messages)
    events, fault = decode(data, cuts)
    assert len(events) == min(at, len(messages) - 1)
    assert fault == decode(data, [])[1]
    assert "message: expected JSON" in fault


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"", "message: expected JSON, got ''"),
        (b"7", "message: expected an object or a list, got '7'"),
        (b"{}", "message: expected set-up, tuple, task ids or command"),
        (b'{"tuple":[1]}', "id: expected str, got nothing"),
        (framed(record(1, "a")).replace(b'"1"', b"1")[:-5], "id: expected str, got '1'"),
        (framed(record(1, "a", task=True))[:-5], "task: expected int, got 'True'"),
        (framed(record(1, "a", comp=7))[:-5], "comp: expected str, got '7'"),
        (b'{"command":"explode"}', "command: expected next, ack, fail"),
        (b'{"command":"next"}', "expected Tuple or Tick or Heartbeat or TaskIds of a bolt"),
        (b"[1,2]", "task ids: expected none, got"),
        (b'["a"]', "task ids: expected integers"),
        (b"\xff", "UnicodeDecodeError"),
        (b"[" * 100_000, "RecursionError"),
        (b"1" * 5000, "message: expected JSON"),
        (framed(setup("/tmp"))[:-5], "in state open, got Setup"),
    ],
)
def test_faults(message, error):
    storm = opened()
    with pytest.raises(ProtocolError, match=error.replace("(", r"\(")):
        storm.receive(framed(message))
    with pytest.raises(ProtocolError):
        storm.receive(framed(record(9, "a")))


def test_duplicate_id():
    storm = opened()
    storm.receive(framed(record(1, "a")))
    with pytest.raises(ProtocolError, match="id: expected one that is new, got '1' again"):
        storm.receive(framed(record(1, "b")))
    storm = opened()
    storm.receive(framed(record(1, "a")))
    storm.send(ml.Fail("1"))
    assert storm.receive(framed(record(1, "b")))[0].values == ["b"]


def test_too_long():
    storm = opened(max_message=20_000)
    with pytest.raises(ProtocolError, match="expected at most 20000 bytes"):
        storm.receive(b"x" * 20_001 + ml.END)
    storm = opened(max_message=20_000)
    with pytest.raises(ProtocolError, match="expected at most 20000 bytes"):
        storm.receive(b"x" * 20_010)


def test_truncated():
    storm = opened()
    storm.receive(b'{"tuple"')
    with pytest.raises(ProtocolError, match="got the end of the stream after 8 bytes"):
        storm.closed()
    storm = opened()
    storm.closed()
    assert storm.receiving is State.CLOSED
    with pytest.raises(ProtocolError, match="expected nothing of a bolt in state closed"):
        storm.receive(framed(record(1, "a")))


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (ml.Ack("7"), "ack: expected the id of a tuple that waits, got '7'"),
        (ml.Fail("7"), "fail: expected the id of a tuple that waits, got '7'"),
        (ml.Emit([1], anchors=("7",)), "anchors: expected the id of a tuple that waits"),
        (ml.Emit([1], task=0), "task: expected 1 to"),
        (ml.Emit([1], task=2**31), "task: expected 1 to"),
        (ml.Emit([1], task=5, need_task_ids=True), "need_task_ids: expected False"),
        (ml.Emit([1], id="x"), "id: expected none from a bolt"),
        (ml.Emit([float("nan")]), "command: expected what JSON can say"),
        (ml.Emit([b"bytes"]), "command: expected what JSON can say"),
        (ml.Log("x", 5), "level: expected 0 to 4, got 5"),
        (ml.Pid(5), "in state open, got Pid"),
    ],
)
def test_commands_that_storm_would_punish(command, error):
    storm = opened()
    with pytest.raises(ProtocolError, match=error):
        storm.send(command)


def test_nothing_before_the_pid():
    storm = Multilang()
    storm.receive(framed(setup("/tmp")))
    with pytest.raises(ProtocolError, match="expected Pid of a bolt in state start, got Log"):
        storm.send(ml.Log("early"))


def test_a_refused_command_changes_nothing():
    storm = opened()
    storm.receive(framed(record(1, "a")))
    with pytest.raises(ProtocolError):
        storm.send(ml.Emit([float("inf")], need_task_ids=True))
    assert (storm.task_ids_due, storm.waiting) == (0, {"1"})


def test_spouts_speak_when_they_are_asked():
    storm = opened(Role.SPOUT)
    assert storm.send(ml.Emit([0])).startswith(b'{"command":"emit",')  # in initialize
    with pytest.raises(ProtocolError, match="expected a request of the JVM before it"):
        storm.send(ml.Sync())
    names = ("next", "ack", "fail", "activate", "deactivate")
    events = storm.receive(framed(*({"command": name, "id": 5} for name in names)))
    assert events == [ml.Next(), ml.Acked(5), ml.Failed(5), ml.Activate(), ml.Deactivate()]
    assert storm.asked == 5
    assert storm.send(ml.Emit([1], id=5)).startswith(b'{"command":"emit","id":5,')
    for _ in names:
        storm.send(ml.Sync())
    for command in (ml.Emit([1], id=5), ml.Sync()):
        with pytest.raises(ProtocolError, match="expected a request of the JVM before it"):
            storm.send(command)
    with pytest.raises(ProtocolError, match="in state open, got Ack"):
        storm.send(ml.Ack("5"))


def test_every_transition_is_used():
    """The table holds what the two sides can say, and every kind is read or written."""
    kinds = {"receive": set(), "send": set()}
    for (_, way), rows in ml.TRANSITIONS.items():
        kinds[way] |= {kind for row in rows.values() for kind in row} - {ml.Closed}
    assert kinds["receive"] == set(ml.Event.__args__)
    assert kinds["send"] == set(ml.Command.__args__) == set(ml._WRITERS)


def test_the_page_shows_the_table():
    page = Path(__file__).parents[2] / "docs" / "storm-bolts.md"
    assert ml.diagram() in page.read_text()


def test_mutated_transcripts():
    rng = random.Random(3)
    data = MESSAGES[MESSAGES.index(ml.END) + len(ml.END) :]
    faults = 0
    for _ in range(effort(100_000)):
        mutated = bytearray(data)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(mutated))
            mutated[at : at + rng.choice((0, 1, 5))] = rng.choice(
                (b"", b'"', b"\\", b"[", b"}", b"\nend\n", b"\xff", b"0", b"null")
            )
        storm = opened()
        storm.task_ids_due = 1
        try:
            for event in storm.receive(bytes(mutated)):
                assert isinstance(event, ml.Event)
            storm.receive(b"")
        except ProtocolError:
            faults += 1
    assert faults > 0
