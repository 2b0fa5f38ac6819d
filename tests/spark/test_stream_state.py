"""Keyed state: levels, their files, tiers, and the state of a task against a dict."""

import json
import re
import zlib
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import pyroute as pr
from effort import effort
from reference import keyed_state as twin
from spark_udf.stream import cache as caches
from spark_udf.stream import files as formats
from spark_udf.stream import levels, schema, tiers
from spark_udf.stream.cache import LevelCache
from spark_udf.stream.files import LevelFile, TaskFiles
from spark_udf.stream.levels import Level
from spark_udf.stream.manifest import Job, Log, Manifest, RouterFile
from spark_udf.stream.schema import StateSchema, row_bytes
from spark_udf.stream.state import Moved, open_state

SHAPE = r"^.+: expected .+, got .+"
SCHEMA = StateSchema(
    pa.schema([("a", pa.int64()), ("b", pa.string())]),
    pa.schema([("n", pa.int64()), ("s", pa.string())]),
)
USERS = StateSchema(pa.schema([("user", pa.string())]), pa.schema([("n", pa.int64())]))


class MemoryStore:
    """A store in memory, with what was read and when it was written."""

    def __init__(self):
        self.url = f"memory:{id(self)}"
        self.files = {}
        self.times = {}
        self.reads = []
        self.now = 0.0

    def write(self, name, data):
        assert name not in self.files
        self.files[name] = pa.py_buffer(bytes(data))
        self.times[name] = self.now
        return len(data)

    create_if_absent = write

    def read(self, name):
        self.reads.append(name)
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def list(self, prefix):
        return sorted(name for name in self.files if name.startswith(prefix))

    def delete(self, *names):
        for name in names:
            self.files.pop(name, None)

    def modified(self, name):
        return self.times[name]

    def clean(self, older_than_seconds, now):
        return []


def key_table(keys, of=SCHEMA):
    return pa.table([*zip(*keys, strict=True)] or [[] for _ in of.keys], schema=of.keys)


def row_table(rows, of=SCHEMA):
    return pa.Table.from_arrays(
        [
            pa.array([(*key, *value)[i] for key, value in rows], field.type)
            for i, field in enumerate(of.rows)
        ],
        schema=of.rows,
    )


def rows_of(batches, of=SCHEMA):
    """Return a dict of the rows of scanned batches; a key that comes twice fails."""
    found = {}
    width = len(of.keys)
    for batch in batches:
        assert batch.schema == of.rows
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            assert row[:width] not in found
            found[row[:width]] = row[width:]
    return found


def values_of(rows, found):
    assert len(rows) == len(found)
    values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    pairs = list(zip(values, found.to_pylist(), strict=True))
    assert all(here or value == (None,) * len(value) for value, here in pairs)
    return [value if here else None for value, here in pairs]


def users(store, names, task=0, files=None, batch=0, **options):
    """Write one row per user to a task and return its state and files."""
    opened = open_state(store, files or {}, task, schema=USERS, **options)
    opened.write(pa.table({"user": names, "n": range(len(names))}, schema=USERS.rows))
    return opened, opened.flush(store, batch, 0)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture(autouse=True)
def _cache():
    yield
    caches.CACHE.clear()


@pytest.fixture
def small(monkeypatch):
    """Batches and tiers of a few rows, so that a few rows make many of them."""
    monkeypatch.setattr(levels, "BATCH_ROWS", 4)
    monkeypatch.setattr(tiers, "_SMALLEST_TIER", 4)


@pytest.fixture
def collide(monkeypatch):
    """Only three identities for all keys."""
    true = schema.identities
    monkeypatch.setattr(schema, "identities", lambda columns: true(columns) % np.uint64(3))


# State of one task


def test_instants_of_any_zone():
    schema = StateSchema(
        pa.schema([("t", pa.timestamp("us", "UTC"))]), pa.schema([("n", pa.int64())])
    )
    times = pa.array([0, 5], pa.timestamp("us", "America/New_York"))
    rows = schema.row_batches(pa.table({"t": times, "n": [1, 2]}))
    assert rows[0].column("t").type == pa.timestamp("us", "UTC")
    assert rows[0].column("t").cast(pa.int64()).to_pylist() == [0, 5]
    with pytest.raises(TypeError, match=r"rows\.t: expected timestamp"):
        schema.row_batches(pa.table({"t": times.cast(pa.timestamp("us")), "n": [1, 2]}))


def test_upsert_read_delete(store):
    s = open_state(store, {}, 0, schema=SCHEMA)
    s.write(row_table([((1, "x"), (10, "p")), ((2, "y"), (20, None)), ((1, "x"), (11, "q"))]))
    keys = [(2, "y"), (9, "x"), (1, "x"), (2, "y")]
    assert values_of(*s.read(key_table(keys))) == [(20, None), None, (11, "q"), (20, None)]
    s.delete(key_table([(1, "x"), (7, "z")]))
    s.write(row_table([((2, "y"), (21, "r"))]))
    assert values_of(*s.read(key_table(keys))) == [(21, "r"), None, None, (21, "r")]
    assert len(s) == 1
    assert rows_of(s.scan()) == {(2, "y"): (21, "r")}


def test_reads_give_types(store):
    s = open_state(store, {}, 0, schema=SCHEMA)
    for keys in (key_table([]), key_table([(1, "x")])):
        rows, found = s.read(keys)
        assert rows.schema == SCHEMA.values
        assert found.type == pa.bool_()
        assert rows.num_rows == len(found) == keys.num_rows


def test_null_keys(store):
    s = open_state(store, {}, 0, schema=SCHEMA)
    keys = [(None, None), (None, "x"), (1, None), (1, "x"), (None, "")]
    s.write(row_table([(key, (i, None)) for i, key in enumerate(keys)]))
    files = {0: s.flush(store, 0, 0)}
    s = open_state(store, files, 0, schema=SCHEMA)
    assert values_of(*s.read(key_table(keys))) == [(i, None) for i in range(5)]
    s.delete(key_table([(None, None), (None, "x")]))
    assert rows_of(s.scan()) == {key: (i, None) for i, key in enumerate(keys) if i > 1}


def test_collision_by_value(store):
    # A null and the integer 1 in a key of several columns have one identity.
    assert len(np.unique(pr.keys([None, 1], [5, 5]).ids)) == 1
    pair = StateSchema(
        pa.schema([("a", pa.int32()), ("b", pa.int32())]), pa.schema([("n", pa.int64())])
    )
    s = open_state(store, {}, 0, schema=pair)
    s.write(row_table([((None, 5), (1,)), ((1, 5), (2,)), ((None, 5), (3,))], pair))
    files = {0: s.flush(store, 0, 0)}
    assert files[0].rows == 2
    s = open_state(store, files, 0, schema=pair, cache=LevelCache(0))
    assert values_of(*s.read(key_table([(1, 5), (None, 5), (1, None)], pair))) == [(2,), (3,), None]
    s.delete(key_table([(None, 5)], pair))
    files = {0: s.flush(store, 1, 0)}
    s = open_state(store, files, 0, schema=pair, cache=LevelCache(0))
    assert rows_of(s.scan(), pair) == {(1, 5): (2,)}
    assert len(s) == 1


@pytest.mark.usefixtures("collide", "small")
def test_collision_forced(store):
    keys = [(i % 7, f"k{i}") for i in range(40)]
    s = open_state(store, {}, 0, schema=SCHEMA)
    s.write(row_table([(key, (i, None)) for i, key in enumerate(keys * 2)]))
    files = {0: s.flush(store, 0, 0)}
    assert files[0].levels[0].rows == 40
    s = open_state(store, files, 0, schema=SCHEMA, cache=LevelCache(0))
    s.delete(key_table(keys[::3]))
    s.write(row_table([(key, (-i, "w")) for i, key in enumerate(keys[::2])]))
    expected = {key: (i + 40, None) for i, key in enumerate(keys) if i % 3}
    expected |= {key: (-i, "w") for i, key in enumerate(keys[::2])}
    assert rows_of(s.scan()) == expected
    files = {0: s.flush(store, 1, 0)}
    s = open_state(store, files, 0, schema=SCHEMA, cache=LevelCache(0))
    assert values_of(*s.read(key_table(keys))) == [expected.get(key) for key in keys]
    assert len(s) == len(expected)


def test_text_and_bytes_of_one_identity(store):
    # 'a' and b'a' are one identity; a column has one type, so they meet in two columns only.
    assert (pr.keys(["a"]).ids == pr.keys([b"a"]).ids).all()
    both = StateSchema(
        pa.schema([("t", pa.string()), ("b", pa.binary())]), pa.schema([("n", pa.int64())])
    )
    s = open_state(store, {}, 0, schema=both)
    keys = [("a", None), (None, b"a"), ("a", b"a")]
    s.write(row_table([(key, (i,)) for i, key in enumerate(keys)], both))
    assert values_of(*s.read(key_table(keys, both))) == [(0,), (1,), (2,)]


KINDS = [
    (pa.int8(), [1, -1, None]),
    (pa.uint64(), [0, 2**63 - 1, None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [date(2024, 1, 1), date(1970, 1, 2), None]),
    (pa.timestamp("us"), [datetime(2024, 1, 1), datetime(1, 1, 1), None]),  # noqa: DTZ001
    (pa.timestamp("ms", "UTC"), [1_000_000, 2_000_000, None]),
    (pa.decimal128(12, 0), [1, 2, None]),
    (pa.string(), ["", "żółw", None]),
    (pa.large_string(), ["a", "b" * 100, None]),
    (pa.binary(), [b"", b"\xff", None]),
    (pa.large_binary(), [b"a", b"b", None]),
    (pa.binary(3), [b"abc", b"abd", None]),
]


@pytest.mark.parametrize(("type_", "values"), KINDS, ids=lambda kind: str(kind)[:20])
@pytest.mark.parametrize("forced", [False, True])
def test_key_types(store, type_, values, forced, monkeypatch):
    if forced:
        one = lambda columns: np.zeros(len(columns[0]), np.uint64)  # noqa: E731
        monkeypatch.setattr(schema, "identities", one)
    of = StateSchema(pa.schema([("k", type_)]), pa.schema([("n", pa.int64())]))
    column = pa.array(values, type_)
    s = open_state(store, {}, 0, schema=of)
    s.write(pa.table([column, [0, 1, 2]], schema=of.rows))
    s.write(pa.table([column.slice(1), [11, 12]], schema=of.rows))
    s = open_state(store, {0: s.flush(store, 0, 0)}, 0, schema=of, cache=LevelCache(0))
    assert values_of(*s.read(column)) == [(0,), (11,), (12,)]
    assert values_of(*s.read(pa.chunked_array([column.slice(2), column]))) == [
        (12,),
        (0,),
        (11,),
        (12,),
    ]


VALUES = pa.table(
    {
        "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
        "strings": pa.array([["ab", "c"], [None], None], pa.large_list(pa.string())),
        "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)),
        "map": pa.array([[("k", 1)], None, [("xy", 2), ("z", 3)]], pa.map_(pa.string(), pa.int8())),
        "struct": pa.array([{"x": 1, "y": "abc"}, None, {"x": 2, "y": None}]),
        "float": pa.array([1.5, float("nan"), None]),
        "bool": pa.array([True, None, False]),
        "null": pa.nulls(3),
        "decimal": pa.array([1, None, 3], pa.decimal128(20, 2)),
        "uuid": pa.array([b"0" * 16, None, b"1" * 16], pa.uuid()),
        "text": pa.array(["é", None, ""]),
    }
)


def test_value_types(store):
    of = StateSchema(pa.schema([("k", pa.int64())]), VALUES.schema)
    table = VALUES.add_column(0, "k", pa.array([3, 1, 2]))
    s = open_state(store, {}, 0, schema=of)
    s.write(table.slice(1))
    s.write(table.slice(0, 1))
    s = open_state(store, {0: s.flush(store, 0, 0)}, 0, schema=of, cache=LevelCache(0))
    rows, found = s.read(pa.array([3, 1, 4, 2]))
    assert found.to_pylist() == [True, True, False, True]
    assert str(rows.take([0, 1, 3]).to_pylist()) == str(VALUES.to_pylist())  # a NaN among them
    assert set(rows.take([2]).to_pylist()[0].values()) == {None}


def test_row_bytes():
    # list 4 each; text its bytes; a fixed list 2 * 2; map key + 1; struct 8 + text; a decimal 16
    by_hand = [
        8 + 3 + 4 + 2 + (8 + 3) + 8 + 1 + 0 + 16 + 16 + 2,
        0 + 0 + 4 + 0 + 8 + 8 + 1 + 0 + 16 + 16 + 0,
        0 + 0 + 4 + (3 + 2) + 8 + 8 + 1 + 0 + 16 + 16 + 0,
    ]
    assert row_bytes(VALUES).tolist() == by_hand
    for start in range(3):
        assert row_bytes(VALUES.slice(start)).tolist() == by_hand[start:]
        assert row_bytes(VALUES.slice(start).to_batches()[0]).tolist() == by_hand[start:]
    twice = pa.concat_tables([VALUES, VALUES.slice(1)])
    assert row_bytes(twice).tolist() == by_hand + by_hand[1:]
    assert row_bytes(VALUES.slice(3)).dtype == np.int64


def test_same_values_other_layout(store):
    s = open_state(store, {}, 0, schema=USERS)
    names = pa.array(["a", "b", "a"]).dictionary_encode()
    s.write(pa.table({"n": pa.array([1, 2, 3]), "user": names}))
    assert values_of(*s.read(pa.array(["b", "a"], pa.large_string()))) == [(2,), (3,)]
    assert values_of(*s.read(pa.array(["b", "a"], pa.string_view()))) == [(2,), (3,)]
    # Keys may come with the rest of the batch.
    assert values_of(*s.read(pa.record_batch({"x": [1], "user": ["b"]}))) == [(2,)]


BAD = {
    "missing": (lambda s: s.write(pa.table({"user": ["a"]})), ValueError, "'n'"),
    "extra": (lambda s: s.write(pa.table({"user": ["a"], "n": [1], "m": [1]})), ValueError, "'m'"),
    "type": (lambda s: s.write(pa.table({"user": ["a"], "n": [1.5]})), TypeError, "double"),
    "key type": (lambda s: s.read(pa.array([1])), TypeError, "int64"),
    "twice": (
        lambda s: s.delete(pa.table([["a"], ["b"]], names=["user", "user"])),
        ValueError,
        "2 of that name",
    ),
    "list": (lambda s: s.read(["a"]), TypeError, "list"),
    "rows": (lambda s: s.write([("a", 1)]), TypeError, "list"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(store, case):
    call, error, word = BAD[case]
    s = open_state(store, {}, 0, schema=USERS)
    with pytest.raises(error, match=SHAPE) as caught:
        call(s)
    assert word in str(caught.value)
    assert len(s) == 0


def test_array_for_two_columns(store):
    with pytest.raises(TypeError, match=r"keys: expected columns .'a', 'b'., got one array"):
        open_state(store, {}, 0, schema=SCHEMA).read(pa.array([1]))


BAD_SCHEMAS = [
    ([("k", pa.float64())], [("n", pa.int64())], TypeError),
    ([("k", pa.list_(pa.int64()))], [("n", pa.int64())], TypeError),
    ([("k", pa.dictionary(pa.int32(), pa.string()))], [("n", pa.int64())], TypeError),
    ([("k", pa.uuid())], [("n", pa.int64())], TypeError),
    ([("k", pa.int64())], [("n", pa.dictionary(pa.int32(), pa.string()))], TypeError),
    ([("k", pa.int64())], [("n", pa.list_(pa.string_view()))], TypeError),
    ([("k", pa.int64())], [("n", pa.dense_union([pa.field("x", pa.int64())]))], TypeError),
    ([("k", pa.int64())], [], ValueError),
    ([], [("n", pa.int64())], ValueError),
    ([("k", pa.int64())], [("k", pa.int64())], ValueError),
    ([("k", pa.int64())], [("pyroute.id", pa.int64())], ValueError),
]


@pytest.mark.parametrize(("keys", "values", "error"), BAD_SCHEMAS)
def test_schemas_refused(keys, values, error):
    with pytest.raises(error, match=SHAPE):
        StateSchema(pa.schema(keys), pa.schema(values))


def test_schema_of():
    given_ = pa.schema([pa.field("n", pa.int64(), nullable=False), ("b", pa.string())])
    of = StateSchema.of(given_.with_metadata({"x": "y"}), ["b"])
    assert of == StateSchema(pa.schema([("b", pa.string())]), pa.schema([("n", pa.int64())]))
    assert all(field.nullable for field in of.rows)
    with pytest.raises(ValueError, match=r"keys: expected one of .*, got 'z'"):
        StateSchema.of(given_, ["z"])


# Files


def test_names(store):
    _, files = users(store, ["a"], task=3, batch=12)
    assert list(store.files) == [files.levels[0].name]
    assert files.levels[0].name.startswith("state/00003/000000000012-0-")
    assert files.levels[0].bytes == files.written_bytes == store.files[files.levels[0].name].size
    _, again = users(store, ["a"], task=3, batch=12)
    assert again.levels[0].name != files.levels[0].name


def test_other_readers(store):
    _, files = users(store, ["a", "b"])
    with pa.ipc.open_file(store.files[files.levels[0].name]) as reader:
        table = reader.read_all()
    assert table.column_names == ["pyroute.id", "pyroute.deleted", "user", "n"]
    ids = table["pyroute.id"].to_numpy()
    assert (ids == pr.keys(table["user"]).ids).all()
    assert (np.diff(ids.astype(object)) > 0).all()
    header = json.loads(table.schema.metadata[b"pyroute.state"])
    assert header["format"] == "pyroute.state"
    assert (header["format_version"], header["task"], header["rows"]) == (1, 0, 2)


def whole(data):
    """Read every batch of a file and return its rows."""
    level = formats.decode(pa.py_buffer(data), "state/x.arrow", USERS)
    return rows_of((run.rows for run in level.runs()), USERS)


@pytest.mark.usefixtures("small")
def test_damage(store):
    _, files = users(store, [f"user{i}" for i in range(10)])
    good = store.files[files.levels[0].name].to_pybytes()
    expected = whole(good)
    assert len(expected) == 10
    refused = 0
    for i in range(len(good)):
        data = bytearray(good)
        data[i] ^= 1 << i % 8
        try:
            found = whole(bytes(data))
        except pr.FormatError as error:
            refused += str(error).startswith("state/x.arrow: ")
        else:
            assert found == expected  # Arrow's footer and padding are not used
    assert refused > len(good) / 2
    for size in range(len(good)):
        with pytest.raises(pr.FormatError, match=r"^state/x.arrow: "):
            whole(good[:size])
    with pytest.raises(pr.FormatError, match=r"^state/x.arrow: expected \d+ bytes, got \d+"):
        whole(good + b"\0")
    with pytest.raises(pr.FormatError, match=r"^state/x.arrow: .* checksum, got a damaged one"):
        whole(good.replace(b'"task":0', b'"task":1', 1))


def with_header(data, **changes):
    """Return a file with another header, its checksums right."""
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    metadata = dict(table.schema.metadata)
    header = json.loads(metadata[b"pyroute.state"]) | changes
    text = json.dumps(header).encode()
    metadata |= {
        b"pyroute.state": text,
        b"pyroute.state.checksum": f"{zlib.crc32(text):08x}".encode(),
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_newer_version(store):
    _, files = users(store, ["a"])
    data = with_header(store.files[files.levels[0].name], format_version=2)
    with pytest.raises(pr.FormatError, match=r"^state/x.arrow: format_version: expected <= 1, got"):
        whole(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "other"},
        {"format_version": None},
        {"batches": None},
        {"batches": []},
        {"batches": [[1, 2]]},
        {"batches": [[0, 8, 1, -1, 0]]},
        {"batches": [[0, 1 << 40, 1, 5, 0]]},
        {"rows": "x"},
        {"rows": 7},
        {"bytes": 1 << 70},
    ],
)
def test_hostile_header(store, changes):
    _, files = users(store, ["a"])
    with pytest.raises(pr.FormatError, match=r"^state/x.arrow: "):
        whole(with_header(store.files[files.levels[0].name], **changes))


def test_other_schema(store):
    _, files = users(store, ["a"])
    other = StateSchema(USERS.keys, pa.schema([("n", pa.int32())]))
    message = r"state/.*: expected columns .*n int32, got .*n int64"
    for cache in (LevelCache(0), caches.CACHE):
        with pytest.raises(pr.FormatError, match=message):
            open_state(store, {0: files}, 0, schema=other, cache=cache)


def test_not_arrow(store):
    for data in (b"", b"x", b"ARROW1\0\0", b"\0" * 100):
        with pytest.raises(pr.FormatError, match=r"^state/x.arrow: "):
            whole(data)


def test_missing_file(store):
    files = {0: TaskFiles((LevelFile("state/gone.arrow", 1, 1),), 1)}
    with pytest.raises(FileNotFoundError, match="gone"):
        open_state(store, files, 0, schema=USERS)


@pytest.mark.usefixtures("small")
def test_reads_only_what_it_needs(store, monkeypatch):
    names = [f"user{i}" for i in range(100)]
    _, files = users(store, names)
    ids = np.sort(pr.keys(names).ids)
    level = formats.decode(store.files[files.levels[0].name], "x", USERS)
    assert level.firsts.tolist() == ids[::4].tolist()
    touched = []
    read = formats._read_run
    monkeypatch.setattr(
        formats, "_read_run", lambda *a: touched.append(a[1].rsplit(" ", 1)[1]) or read(*a)
    )
    s = open_state(store, {0: files}, 0, schema=USERS, cache=LevelCache(0))
    assert touched == []
    s.read(pa.array(["user7"]))
    at = int(np.searchsorted(ids, pr.keys(["user7"]).ids[0]))
    assert touched == [str(at // 4)]
    s.read(pa.array(["user7"]))
    assert len(touched) == 1
    assert [run.ids.tolist() for run in level.between(ids[8], ids[12])] == [ids[8:12].tolist()]
    assert touched[1:] == ["2"]


def test_bounded_batches(monkeypatch):
    monkeypatch.setattr(levels, "BATCH_ROWS", 10)
    monkeypatch.setattr(levels, "BATCH_BYTES", 2000)
    of = StateSchema(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.binary())]))
    sizes = [1] * 100 + [900] * 20 + [5000] * 3
    table = pa.record_batch([range(123), [b"x" * n for n in sizes]], schema=of.rows)
    level = Level.of(of, [levels.sort_rows(of, table)])
    assert level.rows == 123
    for run in level.runs():
        assert len(run) <= 10
        assert len(run) == 1 or row_bytes(run.rows).sum() <= 2000
    again = Level.of(of, level.runs())
    assert [key for run in again.runs() for key in run.rows.column(0).to_pylist()] == [
        key for run in level.runs() for key in run.rows.column(0).to_pylist()
    ]
    assert len(again.firsts) <= len(level.firsts) < 40


def test_joined_batches(monkeypatch):
    monkeypatch.setattr(levels, "BATCH_ROWS", 10)
    table = pa.record_batch([[str(i) for i in range(40)], range(40)], schema=USERS.rows)
    level = Level.of(USERS, [levels.sort_rows(USERS, table)])
    thin = Level.of(USERS, (run.where(np.arange(len(run)) < 1) for run in level.runs()))
    assert len(level.firsts) == 4
    assert len(thin.firsts) == 1


# Flushing and tiers


def test_no_change(store):
    s, files = users(store, ["a", "b"])
    s = open_state(store, {0: files}, 0, schema=USERS)
    s.read(pa.array(["a"]))
    s.delete(pa.array(["absent"]))
    s.write(USERS.rows.empty_table())
    after = s.flush(store, 1, 0)
    assert after == TaskFiles(files.levels, 2, 0)
    assert len(store.files) == 1
    empty = open_state(store, {}, 0, schema=USERS)
    empty.delete(pa.array(["absent"]))
    assert empty.flush(store, 0, 0) == TaskFiles()


def test_everything_deleted(store):
    _, files = users(store, ["a", "b"])
    s = open_state(store, {0: files}, 0, schema=USERS)
    s.delete(pa.array(["a", "b"]))
    assert s.flush(store, 1, 0) == TaskFiles((), 0, 0)
    assert len(store.files) == 1


def test_flush_again(store):
    s, files = users(store, ["a"])
    again = s.flush(store, 0, 1)
    assert len({files.levels[0].name, again.levels[0].name}) == 2
    one, other = (store.files[one.levels[0].name] for one in (files, again))
    assert one == other
    s.write(pa.table({"user": ["b"], "n": [2]}))
    assert s.flush(store, 0, 2).rows == 2


def test_failed_attempt(store):
    # Whatever an attempt did before it failed, the next one sees the state of the manifest.
    _, files = users(store, ["a", "b", "c"])
    before = rows_of(open_state(store, {0: files}, 0, schema=USERS).scan(), USERS)
    s = open_state(store, {0: files}, 0, schema=USERS)
    s.write(pa.table({"user": ["a", "z"], "n": [7, 8]}))
    s.delete(pa.array(["b"]))
    s.flush(store, 1, 0)
    retry = open_state(store, {0: files}, 0, schema=USERS)
    assert rows_of(retry.scan(), USERS) == before
    assert len(retry) == 3
    run = retry._levels[0].run(0)
    for array in (run.ids, run.deleted):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_many_small_writes(store):
    s = open_state(store, {}, 0, schema=USERS)
    for i in range(300):
        s.write(pa.table({"user": [str(i % 100)], "n": [i]}))
        assert len(s._changes) <= 10
    assert len(s) == 100
    assert rows_of(s.scan(), USERS) == {(str(i % 100),): (i,) for i in range(200, 300)}


def test_scan_is_of_the_call(store):
    s, _ = users(store, ["a", "b"])
    scan = s.scan()
    s.delete(pa.array(["a"]))
    assert len(rows_of(scan, USERS)) == 2
    assert len(rows_of(s.scan(), USERS)) == 1


def after(sizes, batch, task=0, live=10**12):
    """Return the levels after a flush, nothing overwritten."""
    start = tiers.merge_from(sizes, min(live, sum(sizes)), task, batch)
    return [*sizes[:start], sum(sizes[start:])]


@given(
    st.lists(st.sampled_from([1, 100, 5000, 40_000, 10**6, 10**8]), max_size=200),
    st.integers(0, 100),
)
def test_few_levels(deltas, task):
    sizes = []
    for batch, delta in enumerate(deltas):
        sizes = after([*sizes, delta], batch, task)
        assert sum(sizes) == sum(deltas[: batch + 1])
        assert len(sizes) <= tiers.MOST_LEVELS
        order = [tiers._tier(rows) for rows in sizes]
        assert order == sorted(order, reverse=True)


@pytest.mark.parametrize("last", [11, 8])
def test_few_levels_of_many_tiers(last):
    # In batches that are no task's turn, tiers fill up: the cheapest ones are merged early.
    sizes = []
    for delta in [*[300_000] * 8, *[40_000] * 8, *[5000] * last, *[10] * 11]:
        sizes = after([*sizes, delta], batch=1)
        assert len(sizes) <= tiers.MOST_LEVELS
        assert sizes[:8] == [300_000] * min(8, len(sizes))


@given(st.lists(st.integers(1, 5), max_size=100), st.integers(0, 9))
def test_few_dead_rows(deltas, task):
    # Every batch overwrites: 5 rows are live, whatever is stored.
    sizes = []
    for batch, delta in enumerate(deltas):
        sizes = [*sizes, delta]
        live = min(5, sum(sizes))
        start = tiers.merge_from(sizes, live, task, batch)
        sizes = [*sizes[:start], sum(sizes[start:])] if start else [live]
        assert sum(sizes) <= 2 * live


def test_factor():
    # Deltas of one tier: 8 become one of the next tier, 64 one of the tier after.
    sizes = [10**6]
    counts = []
    for batch in range(1, 129):
        sizes = after([*sizes, 1000], batch)
        counts.append([sum(tiers._tier(rows) == tier for rows in sizes) for tier in range(3)])
    assert counts[6] == [7, 0, 0]
    assert counts[7] == [0, 1, 0]
    assert counts[55] == [0, 7, 0]
    assert counts[63] == [0, 0, 1]
    assert counts[127] == [0, 0, 2]


@pytest.mark.parametrize("tasks", [8, 64])
def test_not_all_at_once(tasks):
    sizes = {task: [10**6] for task in range(tasks)}
    most = []
    for batch in range(1, 257):
        merged = 0
        for task in sizes:
            levels_ = after([*sizes[task], 1000], batch, task)
            merged += len(levels_) <= len(sizes[task])
            sizes[task] = levels_
        most.append(merged)
    assert max(most[16:]) <= tasks // 8
    assert max(most) <= tasks // 2


@pytest.mark.usefixtures("small")
def test_tombstones_dropped_at_the_bottom(store):
    files = {}
    _, files[0] = users(store, [f"user{i}" for i in range(60)])
    for batch in range(1, 4):
        s = open_state(store, files, 0, schema=USERS)
        s.delete(pa.array([f"user{batch}"]))
        files[0] = s.flush(store, batch, 0)
    assert files[0].stored_rows == 63
    assert files[0].rows == 57
    s = open_state(store, files, 0, schema=USERS)
    s.delete(pa.array([f"user{i}" for i in range(40)]))
    files[0] = s.flush(store, 4, 0)
    assert files[0].stored_rows == files[0].rows == 20
    assert len(files[0].levels) == 1


@pytest.mark.usefixtures("small")
def test_tombstones_kept_above_the_bottom(store):
    """A merge of the newer levels does not forget what it deletes in the older ones."""
    files = {}
    names = [f"user{i}" for i in range(300)]
    _, files[0] = users(store, names)
    bottom = files[0].levels[0]
    most = 0
    for batch in range(1, 41):
        s = open_state(store, files, 0, schema=USERS)
        s.delete(pa.array([names[batch]]))
        files[0] = s.flush(store, batch, 0)
        most = max(most, *(level.rows for level in files[0].levels[1:]))
        assert files[0].levels[0] == bottom
        s = open_state(store, files, 0, schema=USERS, cache=LevelCache(0))
        assert s.read(pa.array(names))[1].to_pylist() == [not 1 <= i <= batch for i in range(300)]
    assert most >= 8


def test_write_amplification():
    """A batch that touches 1 % of 10^6 keys in 8 tasks writes at most 5 % of the state's bytes."""
    count, tasks, batches = 1_000_000, 8, 72
    of = StateSchema(
        pa.schema([("key", pa.int64())]),
        pa.schema([("n", pa.int64()), ("total", pa.float64()), ("text", pa.string())]),
    )
    random = np.random.default_rng(5)

    words = pa.array([f"value{i:06d}" for i in range(1000)])
    latest = np.zeros(count)

    def rows(keys):
        latest[keys] = random.random(len(keys))
        text = words.take(pa.array(keys % 1000))
        return pa.table([keys, keys, latest[keys], text], schema=of.rows)

    store, cache = MemoryStore(), LevelCache(1 << 30)
    files = {}
    for task in range(tasks):
        s = open_state(store, {}, task, schema=of, cache=cache)
        s.write(rows(np.arange(task, count, tasks)))
        files[task] = s.flush(store, 0, 0)
    state_bytes = sum(one.bytes for one in files.values())
    shares = []
    for batch in range(1, batches + 1):
        touched = random.choice(count, count // 100, replace=False)
        for task in range(tasks):
            s = open_state(store, files, task, schema=of, cache=cache)
            s.write(rows(touched[touched % tasks == task]))
            old = {level.name for level in files[task].levels}
            files[task] = s.flush(store, batch, 0)
            assert files[task].rows == count // tasks
            assert len(files[task].levels) <= tiers.MOST_LEVELS
            store.delete(*(old - {level.name for level in files[task].levels}))
        shares.append(sum(one.written_bytes for one in files.values()) / state_bytes)
    for task in range(tasks):
        s = open_state(store, files, task, schema=of, cache=cache)
        table = pa.Table.from_batches(s.scan())
        keys = table["key"].to_numpy()
        assert (np.sort(keys) == np.arange(task, count, tasks)).all()
        assert (table["total"].to_numpy() == latest[keys]).all()
        values = s.read(table)[0]
        assert values.equals(table.drop_columns("key"))
    assert np.mean(shares) <= 0.05
    assert np.median(shares) <= 0.05
    assert sum(one.bytes for one in files.values()) <= 2.2 * state_bytes
    assert store.reads == []


# Moving


def halves(names):
    """Return the owner that gives the named users to task 1 and all others to task 0."""
    return lambda column: np.array([name in names for name in column.to_pylist()], np.int32)


def move(store, files, owner, batch, **options):
    """Open both tasks under an owner, flush, and return the files and counters."""
    opened = {
        task: open_state(store, files, task, owner, [1 - task], schema=USERS, **options)
        for task in (0, 1)
    }
    after = {task: s.flush(store, batch, 0) for task, s in opened.items()}
    return after, {task: s.moved for task, s in opened.items()}


def state_of(store, files, task):
    return rows_of(open_state(store, files, task, schema=USERS).scan(), USERS)


def test_move(store):
    _, first = users(store, ["a", "b", "c"])
    files, moved = move(store, {0: first}, halves({"b"}), 1)
    assert moved == {0: Moved(0, 0, 1), 1: Moved(1, 9, 0)}
    assert state_of(store, files, 0) == {("a",): (0,), ("c",): (2,)}
    assert state_of(store, files, 1) == {("b",): (1,)}
    assert (files[0].rows, files[1].rows) == (2, 1)


def test_no_resurrection(store):
    """A key that leaves, changes or is deleted there, and returns, has no old row."""
    _, first = users(store, ["a", "b", "c", "d", "e"])
    files, _ = move(store, {0: first}, halves({"b", "c"}), 1)
    s = open_state(store, files, 1, schema=USERS)
    s.delete(pa.array(["b"]))
    s.write(pa.table({"user": ["c"], "n": [77]}))
    files[1] = s.flush(store, 2, 0)
    files, moved = move(store, files, halves(set()), 3)
    assert moved == {0: Moved(1, 9, 0), 1: Moved(0, 0, 1)}
    assert state_of(store, files, 0) == {("a",): (0,), ("c",): (77,), ("d",): (3,), ("e",): (4,)}
    assert state_of(store, files, 1) == {}
    assert values_of(*open_state(store, files, 0, schema=USERS).read(pa.array(["b"]))) == [None]


def test_no_routing_change_reads_nothing(store, monkeypatch):
    _, first = users(store, ["a", "b"])
    monkeypatch.setattr(formats, "_read_run", None)
    s = open_state(store, {0: first}, 0, schema=USERS, cache=LevelCache(0))
    assert s.moved == Moved()
    assert len(s) == 2
    assert s.flush(store, 1, 0).levels == first.levels


@pytest.mark.usefixtures("small")
def test_moved_ids(store, monkeypatch):
    names = [f"user{i}" for i in range(200)]
    _, first = users(store, names)
    touched = []
    read = formats._read_run
    monkeypatch.setattr(formats, "_read_run", lambda *a: touched.append(a[1]) or read(*a))
    ids = pr.keys(["user3", "user5", "absent"]).ids
    cold = {"cache": LevelCache(0)}
    files, moved = move(
        store, {0: first}, halves({"user3", "user5"}), 1, moved_ids=np.append(ids, ids[0]), **cold
    )
    assert moved[0].keys_out == moved[1].keys_in == 2
    assert len(set(touched)) <= 3
    assert state_of(store, files, 1) == {("user3",): (3,), ("user5",): (5,)}
    assert len(state_of(store, files, 0)) == 198
    after, moved = move(
        store, files, halves({"user3", "user5"}), 2, moved_ids=np.empty(0, np.uint64), **cold
    )
    assert moved == {0: Moved(), 1: Moved()}
    assert {task: one.levels for task, one in after.items()} == {
        task: one.levels for task, one in files.items()
    }


def test_state_in_two_tasks(store):
    # Only a task that was not opened when its keys left can leave them behind.
    _, first = users(store, ["a", "b"])
    _, second = users(store, ["b"], task=1)
    with pytest.raises(ValueError, match=r"sources: expected .* one task's files, got 1 of task 0"):
        open_state(store, {0: first, 1: second}, 0, halves(set()), [1], schema=USERS)


def test_bad_opening(store):
    _, first = users(store, ["a", "b"])
    with pytest.raises(ValueError, match=r"sources: expected none without an owner, got .1."):
        open_state(store, {0: first}, 0, sources=[1], schema=USERS)
    for wrong in (lambda c: np.zeros(5, np.int32), lambda c: np.zeros(2), lambda c: 0):
        with pytest.raises(ValueError, match="owner: expected 2 tasks, got"):
            open_state(store, {0: first}, 0, wrong, schema=USERS)
    for ids in (np.zeros(2, np.int64), np.zeros((1, 1), np.uint64)):
        with pytest.raises(TypeError, match="moved_ids: expected uint64 of one dimension, got"):
            open_state(store, {0: first}, 0, halves(()), schema=USERS, moved_ids=ids)


# Cache


def test_cache_reads_nothing(store):
    files = {}
    for batch in range(5):
        _, files[0] = users(store, [f"user{batch}", "a"], files=files, batch=batch)
    assert store.reads == []
    cold = LevelCache(1 << 20)
    for _ in range(3):
        open_state(store, files, 0, schema=USERS, cache=cold).read(pa.array(["a"]))
    assert sorted(store.reads) == sorted(level.name for level in files[0].levels)


def test_cache_is_bounded(store):
    _, files = users(store, ["a"] * 5)
    level = formats.decode(store.files[files.levels[0].name], "x", USERS)
    other = MemoryStore()
    cache = LevelCache(3 * level.nbytes)
    for i in range(5):
        cache.put(store, str(i), level)
        assert cache.get(store, "0") is level  # used, so not the one that goes
        assert cache.get(other, "0") is None
    assert [cache.get(store, str(i)) is level for i in range(5)] == [True, False, False, True, True]
    assert (len(cache), cache.nbytes) == (3, 3 * level.nbytes)
    cache.put(store, "4", level)
    assert cache.nbytes == 3 * level.nbytes
    small = LevelCache(level.nbytes - 1)
    small.put(store, "0", level)
    assert len(small) == small.nbytes == 0
    cache.clear()
    assert len(cache) == cache.nbytes == 0


# All of it against a dict

keys = st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from(["", "x", "y", "zz"]))
values = st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text(max_size=3))
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.tuples(keys, values), max_size=8)),
        st.tuples(st.just("delete"), st.lists(keys, max_size=5)),
        st.tuples(st.just("read"), st.lists(keys, max_size=12)),
        st.tuples(st.just("look"), st.just(())),
    ),
    max_size=6,
)


def owner_of(seed, tasks):
    """Return the task of a key: some function of its value."""
    return lambda key: zlib.crc32(repr((seed, key)).encode()) % tasks


def as_columns(owner):
    def of(*columns):
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return np.array([owner(key) for key in rows], np.int32)

    return of


class Stream(RuleBasedStateMachine):
    """Batches on tasks whose number and keys change, committed to a log, against the twin."""

    identities = 0

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(levels, "BATCH_ROWS", 3)
        self.patch.setattr(tiers, "_SMALLEST_TIER", 2)
        self.patch.setattr(tiers, "FACTOR", 2)
        if self.identities:
            true, most = schema.identities, np.uint64(self.identities)
            self.patch.setattr(schema, "identities", lambda columns: true(columns) % most)
        self.store = MemoryStore()
        self.cache = LevelCache(1 << 20)
        self.twin = twin.Tasks()
        self.log = Log(self.store)
        self.batch = 0
        self.routing = None

    def teardown(self):
        self.patch.undo()

    @initialize(seed=st.integers(0, 9), tasks=st.integers(1, 3), rows=st.sampled_from([0, 50]))
    def start(self, seed, tasks, rows):
        """Begin with rows that no batch touches: then not every merge is one of all levels."""
        self.routing = seed, tasks
        rows = [((100 + i, "old"), (i, None)) for i in range(rows)]
        self.run_batch(None, [[("write", rows)]] * 3, [False] * 3, False)

    def files(self):
        last = self.log.last()
        return {} if last is None else last.tasks

    @rule(
        routing=st.none() | st.tuples(st.integers(0, 9), st.integers(1, 3)),
        work=st.lists(operations, min_size=3, max_size=3),
        fails=st.lists(st.booleans(), min_size=3, max_size=3),
        hint=st.booleans(),
    )
    def run_batch(self, routing, work, fails, hint):
        before = owner_of(*self.routing)
        self.routing = routing or self.routing
        owner = owner_of(*self.routing)
        ids = None
        if hint:
            known = [key for rows in self.twin.tasks.values() for key in rows]
            moving = [key for key in known if before(key) != owner(key)]
            ids = schema.identities(key_table(moving).columns)
        states, files = {}, {}
        for task in range(self.routing[1]):
            for attempt in range(2 if fails[task] else 1):
                opened = self.open(task, as_columns(owner) if routing else None, ids)
                state, came, left = self.twin.open(task, owner)
                assert (opened.moved.keys_in, opened.moved.keys_out) == (came, left)
                for operation, rows in work[task]:
                    write = operation == "write"
                    mine = [row for row in rows if owner(row[0] if write else row) == task]
                    self.apply(opened, state, operation, mine)
                files[task] = opened.flush(self.store, self.batch, attempt)
                assert files[task].rows == len(opened) == len(state)
            states[task] = state
        self.commit(files)
        self.twin.commit(states)

    def open(self, task, owner, ids):
        files = self.files()
        sources = list(files) if owner else ()
        hint = ids if owner else None
        return open_state(
            self.store, files, task, owner, sources, schema=SCHEMA, moved_ids=hint, cache=self.cache
        )

    def apply(self, opened, state, operation, rows):
        if operation == "write":
            opened.write(row_table(rows))
            state.write(rows)
        elif operation == "delete":
            opened.delete(key_table(rows))
            state.delete(rows)
        elif operation == "read":
            assert values_of(*opened.read(key_table(rows))) == state.read(rows)
        else:
            assert len(opened) == len(state)
            assert rows_of(opened.scan()) == state.rows

    def commit(self, files):
        last = self.log.last()
        router = RouterFile("routers/0", 0, 0)
        manifest = Manifest(
            job=Job("test", 3, SCHEMA),
            query_id="q",
            sequence=0 if last is None else last.sequence + 1,
            batch_id=self.batch,
            previous=None if last is None else last.reference,
            tasks=files,
            router=router,
            next_router=router,
        )
        self.log.commit(manifest)
        self.batch += 1
        for one in files.values():
            assert len(one.levels) <= tiers.MOST_LEVELS
            assert one.stored_rows <= 2 * one.rows

    @rule()
    def forget(self):
        self.cache.clear()

    @rule()
    def clean_up(self):
        self.log.keep(2)
        self.log.sweep(10, now=self.store.now + 11)
        kept = set()
        for sequence in self.log._sequences():
            kept |= self.log.read(sequence).files
        assert {*self.store.list("state/"), "routers/0"} == kept | {"routers/0"}

    @invariant()
    def same(self):
        for task, rows in self.twin.tasks.items():
            opened = open_state(self.store, self.files(), task, schema=SCHEMA, cache=self.cache)
            assert len(opened) == len(rows)
            assert rows_of(opened.scan()) == rows


class CollidingStream(Stream):
    """The same where all keys share eleven identities."""

    identities = 11


effort_settings = settings(max_examples=effort(25), stateful_step_count=12)
TestStream = Stream.TestCase
TestStream.settings = effort_settings
TestCollidingStream = CollidingStream.TestCase
TestCollidingStream.settings = effort_settings


def test_owner_is_router(store):
    # As the stream uses it: a router, and the identities of the keys that its plan moves.
    names = [f"user{i}" for i in range(300)]
    before = pr.Router(3)
    tasks = before.route(names)
    files = {}
    for task in range(3):
        mine = [name for name, at in zip(names, tasks, strict=True) if at == task]
        _, files[task] = users(store, mine, task=task)
    table = dict.fromkeys(names[:20], 2)
    router = pr.Router(3, table=table)
    ids = pr.keys(names[:20]).ids
    moved = [
        open_state(store, files, task, router.route, [0, 1, 2], schema=USERS, moved_ids=ids).moved
        for task in range(3)
    ]
    away = int((tasks[:20] != 2).sum())
    assert sum(one.keys_in for one in moved) == moved[2].keys_in == away
    assert sum(one.keys_out for one in moved) == away


def test_no_spark():
    folder = Path(levels.__file__).parent
    for name in ("schema", "levels", "files", "tiers", "cache", "state", "store", "manifest"):
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        imports = re.findall(r"^\s*(?:from|import) (\w+(?:\.\w+)?)", text, re.MULTILINE)
        assert {one for one in imports if "spark" in one} <= {"spark_udf.stream"}
