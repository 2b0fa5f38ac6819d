"""The native splicer of Storm's multilang, and its loop between two pipes."""

import itertools
import json
import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from effort import effort
from pyroute import _storm_loop as native
from reference import multilang as reference

pytestmark = pytest.mark.kernel

END = b"\nend\n"
GOLDEN = sorted((Path(__file__).parent / "golden" / "storm").glob("*.bin"))
ROUTER = pr.Router(pr.Ring(8, salt=3), {"anna": 1, "a/b": 2, "\U0001f600": 3})
TASKS = [11, 12, 13, 15, 17, 21, 22, 99]


def splicer(fields=(1,), *, streams=("default",), stream=b"", capacity=0, router=ROUTER):
    sources = [("spout", name, fields) for name in streams]
    made = native.Splicer(sources, stream=stream, capacity=capacity)
    made.set_router(router._core.capsule(), TASKS[: len(router.tasks)])
    return made


def twin_route(router=ROUTER):
    def route(key):
        values = key if len(key) == 1 else [tuple(key)]
        task = int(router.route(values)[0])
        return TASKS[router.tasks.index(task)]

    return route


def sources(fields=(1,), streams=("default",)):
    return {("spout", name): fields for name in streams}


def all_of(made, data):
    """Output, messages handed back, and the rest, of one call after another."""
    out, back = b"", []
    while True:
        more, done, message = made.splice(data)
        out += more
        data = data[done:]
        if message is None:
            return out, back, data
        back.append(message)


def framed(*messages):
    return b"".join(message + END for message in messages)


def tuple_of(*values, order=("comp", "tuple", "task", "stream", "id"), **fields):
    message = {
        "comp": "spout",
        "tuple": list(values),
        "task": 5,
        "stream": "default",
        "id": "-6917529027641081856",
        **fields,
    }
    text = json.dumps({name: message[name] for name in order}, separators=(",", ":"))
    return text.encode()


# Against the twin ----------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["anna", "a/b", "\U0001f600", "", "\x7f", "\u2028", 'quo"te', "back\\slash", "\nend\n"]
)
scalars = texts | st.integers(-(2**64), 2**64) | st.booleans() | st.none() | st.floats()
nested = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def messages(draw):
    """A message much like Storm's: any order, spaces, escapes, and now and then something odd."""
    fields = {
        "comp": draw(st.sampled_from(["spout", "spout", "spout", "other", None])),
        "tuple": draw(st.lists(nested, max_size=4)),
        "task": draw(st.integers(-1, 99)),
        "stream": draw(st.sampled_from(["default", "default", "ctl", "__heartbeat", "é/x"])),
        "id": draw(st.integers(-(2**63), 2**63 - 1).map(str) | texts),
    }
    if draw(st.integers(0, 9)) == 0:
        fields.pop(draw(st.sampled_from(sorted(fields))))
    if draw(st.integers(0, 9)) == 0:
        fields["more"] = draw(scalars)
    names = draw(st.permutations(sorted(fields)))
    text = json.dumps(
        {name: fields[name] for name in names},
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\r: ")])),
    )
    if draw(st.booleans()):
        text = text.replace("/", "\\/")
    return text.encode("utf-8", "surrogatepass")


@given(
    st.lists(messages(), max_size=8),
    st.sampled_from([(0,), (1,), (0, 1), (1, 0)]),
    st.sampled_from([None, "out", 'quo"te']),
    st.sampled_from([b"", b'{"comp":"spout"', b"\nen"]),
)
def test_matches_json(given_messages, fields, stream, rest):
    streams = ("default", "é/x")
    data = framed(*given_messages) + rest
    name = b"" if stream is None else json.dumps(stream).encode()
    made = splicer(fields, streams=streams, stream=name)
    found = all_of(made, data)
    assert found == reference.splice(data, sources(fields, streams), twin_route(), stream)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("fields", [(0,), (1,), (2, 0)])
def test_matches_json_on_what_storm_writes(golden, fields):
    data = golden.read_bytes()
    found = all_of(splicer(fields), data)
    assert found == reference.splice(data, sources(fields), twin_route())
    routed = found[0].count(b'"command":"emit"')
    assert routed >= (50 if fields == (0,) else 30)
    assert found[0].count(b'"command":"ack"') == routed
    assert found[0].count(b'"command":"sync"') == 2


KEYS = [
    *("anna", "", "a/b", 'quo"te', "\\", "\b\f\n\r\t", "\x00\x1f\x7f\x80", "\u2028\u2029", "é"),
    *("\U0001f600", "\U0010ffff", "\ufeff\uffff", "end", "x" * 7, "x" * 8, "x" * 31, "x" * 32),
    *("x" * 33, "é" * 20, "x" * 100, "中文" * 50, "tail\\"),
    *(0, 1, -1, 7, 10**18, 2**63 - 1, -(2**63), True, False, None),
]


def test_key_identity():
    """Whatever way a value is escaped, its key is that of `pr.keys`."""
    for value in KEYS:
        plain = json.dumps(value, ensure_ascii=False)
        spellings = {plain, json.dumps(value), plain.replace("/", "\\/")}
        if isinstance(value, str):
            units = value.encode("utf-16-be")
            pairs = [units[i : i + 2].hex() for i in range(0, len(units), 2)]
            spellings |= {'"' + "".join(f"\\u{pair}" for pair in pairs) + '"'}
            spellings |= {'"' + "".join(f"\\u{pair.upper()}" for pair in pairs) + '"'}
        key = int(pr.keys([value]).ids[0])
        for spelling in sorted(spellings):
            made = splicer((0,), capacity=8)
            message = tuple_of(0).replace(b"[0]", f"[{spelling}]".encode())
            for _ in range(2):  # the slow way, which learns, and the fast one
                out, done, back = made.splice(framed(message))
                assert (done, back) == (len(message) + len(END), None), spelling
                task = TASKS[int(ROUTER.route([value])[0])]
                assert f'"task":{task + 2**32},'.encode() in out
            counted = statistics(made)
            assert counted.top().values == [value], spelling
            assert counted.estimate(pr.Keys.from_ids([key]))[0] == 2


def test_key_identity_of_composites():
    values = [("x", None), (None, "x"), (1, "x"), ("x", True), (None, None), (2**60, "\u2028")]
    for value in values:
        made = splicer((0, 2), capacity=8)
        out, _, back = made.splice(framed(tuple_of(value[0], "between", value[1])) * 2)
        assert back is None
        task = TASKS[int(ROUTER.route([value])[0])]
        assert out.count(f'"task":{task + 2**32},'.encode()) == 2
        assert statistics(made).top().values == [value]


@pytest.mark.parametrize(
    "value",
    [
        *(b"1.5", b"1.0", b"1e3", b"-0.0", b"NaN", b"Infinity", b"-Infinity", b"[1]", b"{}"),
        *(b"9223372036854775808", b"-9223372036854775809"),
        *(b'"\\ud800"', b'"\\udc00x"', b'"\\ud800\\u0041"'),
    ],
)
def test_values_without_identity_are_handed_back(value):
    made = splicer((0,))
    message = tuple_of(0).replace(b"[0]", b"[" + value + b"]")
    for _ in range(2):
        assert made.splice(framed(message)) == (b"", len(message) + len(END), message)
        made.splice(framed(tuple_of("learn")))
    # The same elsewhere in the tuple is nobody's business.
    message = tuple_of(0, "anna").replace(b"[0,", b"[" + value + b",")
    out, _, back = splicer((1,)).splice(framed(message))
    assert back is None
    assert b'"tuple":[' + value + b',"anna"]}' in out


# Framing -------------------------------------------------------------------------------------


def pieces_of(made, data, cuts):
    """As a reader sees it: bytes come in pieces, and what is left over stays in front."""
    out, back, buffer, seen = b"", [], b"", 0
    borders = sorted({0, len(data), *cuts})
    for begin, end in itertools.pairwise(borders):
        buffer += data[begin:end]
        while True:
            more, done, message = made.splice(buffer, seen)
            out += more
            buffer = buffer[done:]
            seen = len(buffer)
            if message is None:
                break
            back.append(message)
            seen = 0
    return out, back, buffer


def transcript(golden):
    """What follows the set-up."""
    data = golden.read_bytes()
    return data[data.index(END) + len(END) :]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_framing(golden):
    data = transcript(golden)
    whole = all_of(splicer(), data)
    assert pieces_of(splicer(), data, range(len(data))) == whole
    ends = [i + len(END) for i in range(len(data)) if data.startswith(END, i)]
    assert pieces_of(splicer(), data, ends) == whole
    assert pieces_of(splicer(), data, [end + 9 for end in ends]) == whole  # the next one attached
    rng = random.Random(5)
    for _ in range(effort(20)):
        cuts = rng.choices(range(len(data)), k=rng.randrange(40))
        assert pieces_of(splicer(), data, cuts) == whole


# Hostile input -------------------------------------------------------------------------------

ODD = [
    *(b"", b"{}", b"[]", b"null", b"{", b'{"comp"', b'{"comp":"spout"}', b"\x00", b"\xff\xfe"),
    tuple_of("a").replace(b'"a"', b'"\xff"'),
    tuple_of("a").replace(b'"a"', b'"\xed\xa0\x80"'),
    tuple_of("a").replace(b'"a"', b'"\xc0\x80"'),
    tuple_of("a").replace(b'"a"', b'"\xf4\x90\x80\x80"'),
    tuple_of("a").replace(b'"a"', b'"\\x41"'),
    tuple_of("a").replace(b'"a"', b'"\\u00g0"'),
    tuple_of("a").replace(b'"a"', b'"\n"'),
    tuple_of("a").replace(b'"a"', b"01"),
    tuple_of("a").replace(b'"a"', b"-"),
    tuple_of("a").replace(b'"a"', b"1."),
    tuple_of("a").replace(b'"a"', b"nul"),
    tuple_of("a").replace(b'"a"', b"1,,2"),
    tuple_of("a").replace(b'"a"', b"1,"),
    tuple_of("a").replace(b'"a"]', b'"a"]]'),
    tuple_of("a").replace(b'"a"', b'"a",{"b"}'),
    tuple_of("a").replace(b'"a"', b"[" * 5000 + b"]" * 5000),
    tuple_of("a").replace(b'"task":5', b'"task":5.0'),
    tuple_of("a").replace(b'"task":5', b'"task":true'),
    tuple_of("a").replace(b'"task":5', b'"task":5,"task":6'),
    tuple_of("a").replace(b'"comp"', b'"com\\u0070"'),
    tuple_of("a").replace(b'"comp":"spout"', b'"comp":5'),
    tuple_of("a") + b"x",
    tuple_of("a", id=5),
]


@pytest.mark.parametrize("message", ODD)
def test_hostile(message):
    for learned in (b"", framed(tuple_of("learn"))):
        made = splicer((0,))
        made.splice(learned)
        out, done, back = made.splice(framed(message, tuple_of("after")))
        if back is None:  # good enough for a JSON library, too
            assert reference.reply(message, sources((0,)), twin_route()) is not None
        else:
            assert (out, done, back) == (b"", len(message) + len(END), message)


def mutated(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(6)
        if how == 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif how == 1:
            data[at : at + 1] = rng.choice((b'"', b"\\", b"[", b"]", b"{", b"}", b",", b"\n", b"0"))
        elif how == 2:
            del data[at : at + rng.choice((1, 2, 8, 40))]
        elif how == 3:
            data[at:at] = rng.choice(
                (END, b"\\u", b"\\ud83d", b'"', b"-", b"1e", b"\xf0\x9f", b" ")
            )
        elif how == 4:
            other = rng.randrange(len(data) + 1)
            data[at:at] = data[other : other + rng.choice((3, 10, 60))]
        else:
            del data[at + len(END) :]
        if not data:
            break
    return bytes(data)


def test_hostile_mutations():
    """100,000 mutated transcripts; every tenth is compared with the twin."""
    rng = random.Random(7)
    lines = [m for g in GOLDEN for m in transcript(g).split(END)[:-1] if len(m) < 400]
    made = {fields: splicer(fields) for fields in ((0,), (1,), (1, 2))}
    route = twin_route()
    for i in range(effort(100_000)):
        data = mutated(framed(*rng.choices(lines, k=rng.choice((1, 2, 3)))), rng)
        fields = rng.choice(list(made))
        done = made[fields].splice(data)[1]
        assert done <= len(data)
        if i % 10:
            continue
        found = all_of(made[fields], data)
        assert found == reference.splice(data, sources(fields), route)


def test_large_record():
    made = splicer((0,))
    for size in (1 << 20, 10 << 20):
        message = tuple_of("anna", "x" * size)
        out, _, back = made.splice(framed(message))
        assert back is None
        assert len(out) > size


def test_many_shapes():
    """More sources than shapes are remembered."""
    streams = tuple(f"s{i}" for i in range(20))
    made = splicer((0,), streams=streams)
    rng = random.Random(3)
    data = framed(
        *(
            tuple_of(rng.choice("abc"), i, stream=rng.choice(streams), task=rng.randrange(9))
            for i in range(500)
        )
    )
    assert all_of(made, data) == reference.splice(data, sources((0,), streams), twin_route())


# Statistics ----------------------------------------------------------------------------------


def statistics(made):
    """Of keys of one type."""
    [data] = made.statistics()
    return pr.SpaceSaving.from_bytes(data)


def test_counts():
    rng = random.Random(11)
    values = [f"user/{int(rng.paretovariate(1.1))}" for _ in range(5_000)]
    made = splicer((0,), capacity=50)
    data = framed(*(tuple_of(value, "x").replace(b"/", b"\\/") for value in values))
    _, back, rest = all_of(made, data)
    assert (back, rest) == ([], b"")
    counted = statistics(made)
    exact = pr.SpaceSaving(50)
    exact.observe(values)
    assert counted.total == exact.total == made.records == sum(made.sent) == len(values)
    top, expected = counted.top(), exact.top()
    assert top.values == expected.values
    assert top.counts.tolist() == expected.counts.tolist()
    assert top.errors.tolist() == expected.errors.tolist()
    routed = ROUTER.route(values).tolist()
    assert made.sent == [routed.count(task) for task in ROUTER.tasks]


def test_types():
    """Keys of any mix of types are counted, each among its like: 1 is not True."""
    rng = random.Random(12)
    values = [rng.choice(["anna", "1", 1, 0, True, None, "bert", 7]) for _ in range(3_000)]
    values += ["anna"] * 1_000  # of one type again
    made = splicer((0,), capacity=50)
    _, back, rest = all_of(made, framed(*(tuple_of(value, "x") for value in values)))
    assert (back, rest) == ([], b"")
    tops = [pr.SpaceSaving.from_bytes(data).top() for data in made.statistics()]
    named = [
        (repr(value), count)
        for top in tops
        for value, count in zip(top.values, top.counts.tolist(), strict=True)
    ]
    assert sorted(named) == sorted(Counter(map(repr, values)).items())
    made = splicer((0, 1), capacity=50)
    pairs = [(rng.choice(["a", 5, None]), rng.choice(["a", 5, None])) for _ in range(1_000)]
    all_of(made, framed(*(tuple_of(*pair) for pair in pairs)))
    tops = [pr.SpaceSaving.from_bytes(data).top() for data in made.statistics()]
    found = Counter()
    for top in tops:
        assert not found.keys() & set(top.values)
        found.update(dict(zip(top.values, top.counts.tolist(), strict=True)))
    assert found == Counter(pairs)


def test_bad_parameters():
    with pytest.raises(ValueError, match="sources: expected at least one"):
        native.Splicer([])
    with pytest.raises(ValueError, match="fields: expected 1 to 255, got 0"):
        native.Splicer([("a", "b", [])])
    with pytest.raises(ValueError, match="fields: expected distinct ones, got 3 twice"):
        native.Splicer([("a", "b", [3, 3])])
    with pytest.raises(ValueError, match="sources: expected distinct ones, got a b twice"):
        native.Splicer([("a", "b", [0]), ("a", "b", [1])])
    made = native.Splicer([("a", "b", [0])])
    with pytest.raises(ValueError, match="storm_tasks: expected 8, one for each"):
        made.set_router(ROUTER._core.capsule(), [1])
    with pytest.raises(ValueError, match="storm_tasks: expected ids of 1 and more, got 0"):
        made.set_router(ROUTER._core.capsule(), range(8))


def test_homes_of_engines():
    rng = random.Random(2)
    values = [rng.choice(["anna", "bert", "é/x", None, "x" * 40]) for _ in range(600)]
    router = pr.Router(pr.StormHash(8, key_type="string"), {"bert": 5})
    data = framed(*(tuple_of(i, value) for i, value in enumerate(values)))
    made = splicer((1,), router=router, capacity=10)
    assert all_of(made, data) == reference.splice(data, sources((1,)), twin_route(router))
    assert statistics(made).total == len(values)
    router = pr.Router(pr.StormHash(8, key_type=["long", "string"]))
    data = framed(*(tuple_of(value, i) for i, value in enumerate(values)))
    found = all_of(splicer((1, 0), router=router), data)
    assert found == reference.splice(data, sources((1, 0)), twin_route(router))
    made = splicer((0,), router=pr.Router(pr.StormHash(8, key_type="string")))
    with pytest.raises(TypeError, match="values: expected text for this home, got integer"):
        made.splice(framed(tuple_of(5)))


def test_split_keys():
    router = pr.Router(8, splits={"hot": [1, 4, 6]})
    rng = random.Random(4)
    values = [rng.choice(["hot", "hot", "cold", 5, True, None]) for _ in range(500)]
    ids = [str(rng.randrange(-(2**63), 2**63)) for _ in values]
    data = framed(*(tuple_of(v, id=i) for v, i in zip(values, ids, strict=True)))
    out, back, _ = all_of(splicer((0,), router=router), data)
    assert back == []
    emits = [json.loads(line) for line in out.split(END)[:-1] if b'"emit"' in line]
    for value, identifier, emit in zip(values, ids, emits, strict=True):
        salt = int(pr.keys([identifier]).ids.view("int64")[0])
        assert emit["task"] - 2**32 == TASKS[int(router.route([value], salt)[0])]


# The loop ------------------------------------------------------------------------------------


class Piped:
    """A loop, with the other ends of its pipes."""

    def __init__(self, **options):
        self.reads, self.feed = os.pipe()
        self.drain, self.writes = os.pipe()
        self.loop = native.Loop(self.reads, self.writes, [("spout", "default", (1,))], **options)
        self.loop.set_router(ROUTER._core.capsule(), TASKS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in (self.reads, self.feed, self.drain, self.writes):
            self.close(end)

    def close(self, end):
        if end >= 0:
            os.close(end)
        for name in ("reads", "feed", "drain", "writes"):
            if getattr(self, name) == end:
                setattr(self, name, -1)


def test_linger_bound():
    with Piped(linger=0.01) as piped:
        os.write(piped.feed, framed(tuple_of(1, "anna"))[:-3])
        assert piped.loop.run(0.05) == (native.TIMEOUT, None)
        os.write(piped.feed, END[-3:])
        runner = threading.Thread(target=piped.loop.run, args=(30.0,))
        runner.start()
        out = os.read(piped.drain, 1 << 16)  # though no more input comes
        assert out == reference.reply(tuple_of(1, "anna"), sources(), twin_route())
        os.write(piped.feed, framed(b"[3,4]"))
        runner.join()


def test_loop_equals_splicer():
    data = b"".join(transcript(golden) for golden in GOLDEN) * 20
    expected, handed_back, _ = all_of(splicer(), data)
    with Piped() as piped:

        def feed():
            rng, at = random.Random(1), 0
            while at < len(data):
                at += os.write(piped.feed, data[at : at + rng.choice((1, 50, 5_000, 100_000))])
            piped.close(piped.feed)

        heard = []

        def drain():
            while block := os.read(piped.drain, 1 << 16):
                heard.append(block)

        threads = [threading.Thread(target=feed), threading.Thread(target=drain)]
        for thread in threads:
            thread.start()
        back = []
        while (outcome := piped.loop.run(60.0))[0] == native.MESSAGE:
            back.append(outcome[1])
        piped.close(piped.writes)
        for thread in threads:
            thread.join()
        assert outcome == (native.CLOSED, None)
        assert piped.loop.left == 0
        assert back == handed_back
        assert b"".join(heard) == expected


def test_closed_pipe():
    with Piped() as piped:
        os.write(piped.feed, framed(tuple_of(1, "anna")) + b'{"comp":')
        piped.close(piped.feed)
        assert piped.loop.run() == (native.CLOSED, None)
        assert piped.loop.left == 8
        assert os.read(piped.drain, 1 << 16).startswith(b'{"command":"emit"')
    with Piped() as piped:
        piped.close(piped.drain)
        os.write(piped.feed, framed(tuple_of(1, "anna")))
        assert piped.loop.run() == (native.UNREAD, None)


def test_too_long_message():
    with Piped(max_message=1000) as piped:
        os.write(piped.feed, b"x" * 2000)
        assert piped.loop.run() == (native.TOO_LONG, None)


def test_bytes_read_before():
    with Piped() as piped:
        data = framed(tuple_of(1, "anna"), b"[3]")
        piped.loop.push(data[:30])
        os.write(piped.feed, data[30:])
        assert piped.loop.run() == (native.MESSAGE, b"[3]")
        assert piped.loop.records == 1


def test_timeout_comes_also_when_input_never_pauses():
    with Piped(linger=10.0) as piped:
        stop = threading.Event()

        def feed():
            while not stop.is_set():
                os.write(piped.feed, framed(tuple_of(1, "anna")))

        def drain():
            while os.read(piped.drain, 1 << 16):
                pass

        threads = [threading.Thread(target=feed), threading.Thread(target=drain)]
        for thread in threads:
            thread.start()
        assert piped.loop.run(0.2) == (native.TIMEOUT, None)
        stop.set()
        while threads[0].is_alive():
            piped.loop.run(0.01)
        piped.close(piped.writes)
        threads[1].join()


def test_gil_is_released():
    """The thread that feeds the loop runs while the loop does, or the loop would wait in vain."""
    with Piped() as piped:
        feeder = threading.Timer(0.05, os.write, (piped.feed, framed(b"[1]")))
        feeder.start()
        assert piped.loop.run(60.0) == (native.MESSAGE, b"[1]")
        feeder.join()
