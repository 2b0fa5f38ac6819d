"""Messages, configurations and snapshots as bytes: there and back, golden, and hostile.

``PYROUTE_WRITE_GOLDEN=1 python -m pytest tests/protocol/test_codec.py`` writes golden files that
are missing; one that exists is never written again.
"""

import os
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from effort import effort
from pyroute import protocol
from pyroute.protocol import (
    MANAGER,
    Abort,
    Aborted,
    Ack,
    Done,
    GetMetrics,
    Hold,
    Instance,
    Message,
    Metrics,
    Migrate,
    Moved,
    Probe,
    Propagate,
    Reconfigure,
    Refuse,
    Resume,
    Resumed,
    RouterChange,
    Task,
    Transfer,
    decode,
    encode,
)
from pyroute.protocol.configuration import Configuration
from reference.keys import hash_bytes

from .net import CHAIN, Net, router

GOLDEN = Path(__file__).parent.parent / "golden" / "protocol"
WORDS = st.integers(0, 2**64 - 1)

tasks = st.builds(Task, st.text(max_size=5), st.integers(0, 2**31 - 1))
epochs = st.integers(0, 2**63 - 1)
common = {"epoch": epochs, "source": tasks, "target": tasks}


@st.composite
def moved(draw):
    keys = sorted(draw(st.sets(WORDS, max_size=5)))
    ends = sorted(draw(st.sets(WORDS, max_size=8)))
    ends = ends[: len(ends) // 2 * 2]
    return Moved(tuple(keys), tuple(zip(ends[::2], ends[1::2], strict=True)))


transfers = st.builds(Transfer, st.integers(0, 2**31 - 1), moved())
changes = st.builds(RouterChange, st.text(max_size=5), epochs, WORDS, st.binary(max_size=20))


def tuples(of):
    return st.lists(of, max_size=4).map(tuple)


messages = st.one_of(
    *(
        st.builds(kind, **common)
        for kind in (GetMetrics, Ack, Propagate, Done, Resume, Resumed, Abort, Aborted, Probe)
    ),
    st.builds(Metrics, **common, data=st.binary(max_size=50)),
    st.builds(Refuse, **common, reason=st.text(max_size=20)),
    st.builds(
        Migrate,
        **common,
        part=epochs,
        last=st.booleans(),
        states=tuples(st.tuples(WORDS, st.binary(max_size=20))),
    ),
    st.builds(
        Reconfigure,
        **common,
        routers=tuples(changes),
        send=tuples(transfers),
        receive=tuples(transfers),
        pauses=st.none() | tuples(st.tuples(st.text(max_size=5), moved())),
    ),
)


@given(messages)
def test_there_and_back(message):
    assert decode(encode(message)) == message


def test_every_message_has_bytes():
    kinds = {type(message) for message in EXAMPLES.values() if isinstance(message, Message)}
    named = [value for value in vars(protocol).values() if isinstance(value, type)]
    assert kinds == {kind for kind in named if issubclass(kind, Message)} - {Message}


def test_messages_are_values():
    message = Ack(1, Task("a", 0), MANAGER)
    assert len({message, Ack(1, Task("a", 0), MANAGER)}) == 1
    with pytest.raises(AttributeError):
        message.epoch = 2


def test_no_message():
    with pytest.raises(TypeError, match="message: expected a message, got Hold"):
        encode(Hold(1))
    with pytest.raises(TypeError, match="data: expected bytes, got str"):
        decode("text")


# golden --------------------------------------------------------------------------------------

KEY = 5 << 60
A0, A1 = Task("a", 0), Task("a", 1)
ROUTERS = {"a": router(2, {KEY: 0}), "b": router(3)}
NEXT = {"a": router(2, {KEY: 1}, version=1)}


def moving():
    """A task in the middle, with a held record and state that came in part."""
    net = Net(CHAIN, ROUTERS, pause=True)
    net.propose(NEXT)
    net.run(lambda m: isinstance(m, Migrate))
    machine = net.tasks[A1]
    assert machine.record(KEY, b"held") == Hold(KEY)
    assert net.tasks["s", 1].route("a", KEY, b"kept") == Hold(KEY)
    return net


def reconfigure(pause):
    net = Net(CHAIN, ROUTERS, pause=pause)
    net.propose(NEXT)
    return next(m for m in net.queue if m.target == (A1 if not pause else Task("s", 0)))


EXAMPLES = {
    "get_metrics": GetMetrics(1, MANAGER, A0),
    "metrics": Metrics(1, A0, MANAGER, b"counts"),
    "reconfigure": reconfigure(False),
    "reconfigure_pause": reconfigure(True),
    "reconfigure_ranges": Reconfigure(
        *(9, MANAGER, A0, (), (Transfer(1, Moved((3, 4), ((8, 9), (11, 2**64 - 1)))),), ())
    ),
    "ack": Ack(300, A0, MANAGER),
    "refuse": Refuse(1, A0, MANAGER, "routers: expected żółw"),
    "propagate": Propagate(1, Task("s", 1), A0),
    "migrate": Migrate(1, A0, A1, 2, True, ((KEY, b"state"), (2**64 - 1, b""))),
    "done": Done(1, A0, MANAGER),
    "resume": Resume(1, MANAGER, A0),
    "resumed": Resumed(1, A0, MANAGER),
    "abort": Abort(1, MANAGER, A0),
    "aborted": Aborted(1, A0, MANAGER),
    "probe": Probe(1, MANAGER, A0),
    "configuration": Configuration(7, CHAIN, False, ROUTERS, {**ROUTERS, **NEXT}),
    "snapshot": moving().tasks[A1],
    "snapshot_kept": moving().tasks["s", 1],
    "snapshot_settled": Net(CHAIN, ROUTERS).tasks[A0],
}


def to_bytes(example):
    if isinstance(example, Message):
        return encode(example)
    return example.snapshot() if isinstance(example, Instance) else example.to_bytes()


def read(name, data):
    if name == "configuration":
        return Configuration.from_bytes(data)
    if name.startswith("snapshot"):
        return Instance.restore(data, topology=CHAIN)
    return decode(data)


@pytest.mark.parametrize("name", EXAMPLES)
def test_golden(name):
    path = GOLDEN / f"{name}.1.bin"
    data = to_bytes(EXAMPLES[name])
    if not path.exists() and os.environ.get("PYROUTE_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    assert path.read_bytes() == data
    found = read(name, data)
    assert to_bytes(found) == data
    if not isinstance(found, Instance):
        assert found == EXAMPLES[name]


def test_golden_are_all_known():
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.1.bin" for name in EXAMPLES}


# hostile -------------------------------------------------------------------------------------


def sealed(data):
    """With a checksum that is right, so that the rest is looked at."""
    return data + struct.pack("<Q", hash_bytes(data))


@pytest.mark.parametrize("name", EXAMPLES)
def test_hostile(name):
    data = to_bytes(EXAMPLES[name])
    rng = random.Random(name)
    for _ in range(effort(300)):
        body = bytearray(data[:-8])
        for _ in range(rng.randrange(1, 4)):
            kind = rng.randrange(4)
            at = rng.randrange(len(body))
            if kind == 0:
                body[at] = rng.randrange(256)
            elif kind == 1:
                del body[at : at + rng.randrange(1, 9)]
            elif kind == 2:
                body[at:at] = rng.randbytes(rng.randrange(1, 9))
            else:
                body[at] ^= 1 << rng.randrange(8)
            if not body:
                break
        try:
            found = read(name, sealed(bytes(body)))
        except pr.FormatError:
            continue
        again = read(name, to_bytes(found))
        assert to_bytes(again) == to_bytes(found)


@pytest.mark.parametrize("name", EXAMPLES)
def test_damaged(name):
    data = to_bytes(EXAMPLES[name])
    for i in range(len(data)):
        damaged = data[:i] + bytes([data[i] ^ 0x20]) + data[i + 1 :]
        with pytest.raises(pr.FormatError):
            read(name, damaged)
        with pytest.raises(pr.FormatError):
            read(name, data[:i])


def header(kind=128, version=1, zero=0):
    return struct.pack("<4sBBH", b"PYRT", kind, version, zero)


@pytest.mark.parametrize(
    "data",
    [
        header(kind=9) + b"\x04\x01\0\0\0\0",
        header(version=0) + b"\x04\x01\0\0\0\0",
        header(version=2) + b"\x04\x01\0\0\0\0",
        header(zero=1) + b"\x04\x01\0\0\0\0",
        header() + b"\x00\x01\0\0\0\0",
        header() + b"\x0e\x01\0\0\0\0",
        header() + b"\x04\x01\0\0\0\0more",
        header() + b"\x04" + b"\xff" * 10 + b"\x01\0\0\0\0",
        header() + b"\x04\x01\x01\xff\0\0\0",
        header() + b"\x07\x01\0\0\0\0\0\x02\0",
        header() + b"\x07\x01\0\0\0\0\0\x01\xff\xff\xff\x7f",
    ],
)
def test_wrong(data):
    with pytest.raises(pr.FormatError):
        decode(sealed(data))


def test_keys_ascend():
    message = Reconfigure(1, MANAGER, A0, (), (Transfer(1, Moved((4, 3), ())),), ())
    with pytest.raises(pr.FormatError, match="keys: expected them ascending"):
        decode(encode(message))
    for ranges in [((5, 4),), ((1, 3), (3, 4)), ((7, 8), (1, 2))]:
        message = Reconfigure(1, MANAGER, A0, (), (Transfer(1, Moved((), ranges)),), ())
        with pytest.raises(pr.FormatError, match="ranges: expected intervals ascending"):
            decode(encode(message))
