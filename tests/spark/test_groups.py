"""Groups of sorted rows, without Spark."""

import datetime as dt
import decimal
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from spark_udf import _groups

LENGTHS = (1, 3, 10_000)


def framed(table, length):
    """The rows in batches of a length, with an empty one between any two."""
    for start in range(0, table.num_rows, length):
        batch = table.slice(start, length).combine_chunks().to_batches()[0]
        yield batch.slice(0, 0)
        yield batch
    yield pa.RecordBatch.from_pylist([], table.schema)


def found(batches, keys, own, by=None):
    """Key and rows of each group."""
    return [
        (tuple(part.as_py() for part in group.key), group.table.to_pylist())
        for group in _groups.groups(batches, keys, own, by)
        if group is not None
    ]


def expected(table, keys):
    rows = table.to_pylist()
    names = [table.schema.names[at] for at in keys]
    runs = itertools.groupby(rows, key=lambda row: tuple(row[name] for name in names))
    return [(key, list(group)) for key, group in runs]


def order(values):
    return [(value is not None, value) for value in values]


KEYS = {
    "text": pa.array(["", "", "a", "ab", "ab", "b", None, None]),
    "bytes": pa.array([b"", b"\0", b"\0", b"\0\0", b"a", b"a", b"a", None]),
    "large text": pa.array(["a", "a", "b", "b", "b", "c", None, None], pa.large_string()),
    "integers": pa.array([-1, 0, 0, 1, 1, 2**60, 2**60 + 1, None]),
    "booleans": pa.array([None, False, False, False, True, True, True, True]),
    "dates": pa.array([None, None, *[dt.date(2024, 1, day) for day in (1, 1, 2, 3, 3, 3)]]),
    "instants": pa.array([0, 0, 1, 1, 1, 2, None, None], pa.timestamp("us", "UTC")),
    "decimals": pa.array([decimal.Decimal(x) for x in (1, 1, 2, 3, 3, 3, 4, 5)]),
    "nulls": pa.nulls(8),
    "one": pa.array([7] * 8),
    "each": pa.array(range(8)),
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", KEYS)
def test_framing(kind, length):
    table = pa.table({"v": pa.array(range(8)), "k": KEYS[kind]})
    assert found(framed(table, length), [1], 2) == expected(table, [1])


@pytest.mark.parametrize("length", LENGTHS)
def test_over_many_batches(length):
    table = pa.table({"k": np.repeat([1, 2, 3], [5000, 1, 25_000]), "v": np.arange(30_001)})
    assert found(framed(table, length), [0], 2) == expected(table, [0])


@pytest.mark.parametrize("length", LENGTHS)
def test_composite(length):
    columns = {
        "a": [None, None, None, "x", "x", "x", "y"],
        "b": [None, None, 1, None, 1, 1, 1],
        "v": range(7),
    }
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    groups = found(framed(table, length), [0, 1], 3)
    assert groups == expected(table, [0, 1])
    assert [key for key, _ in groups] == [
        *((None, None), (None, 1)),
        *(("x", None), ("x", 1), ("y", 1)),
    ]


parts = st.lists(
    st.tuples(st.none() | st.integers(-2, 2), st.none() | st.sampled_from(["", "a", "b"])),
    max_size=60,
)


@given(parts, st.lists(st.integers(0, 7), min_size=1, max_size=60))
def test_matches_itertools(rows, lengths):
    rows = sorted(rows, key=order)
    table = pa.table(
        {
            "v": pa.array(range(len(rows)), pa.int64()),
            "a": pa.array([a for a, _ in rows], pa.int64()),
            "b": pa.array([b for _, b in rows], pa.string()),
        }
    )
    batches, start = [], 0
    for length in itertools.cycle([*lengths, 1]):
        if start >= len(rows):
            break
        batches += table.slice(start, length).combine_chunks().to_batches()
        start += length
    assert found(batches, [1, 2], 3) == expected(table, [1, 2])
    assert found(batches, [1], 3) == expected(table, [1])


def test_by_value():
    # Null has the identity 42; it is no text.
    table = pa.table({"k": pa.array([None, None, "42", "null"])})
    assert [key for key, _ in found(framed(table, 2), [0], 1)] == [(None,), ("42",), ("null",)]


@pytest.mark.parametrize("length", LENGTHS)
def test_by_identity(length):
    # Sorted by an identity that several values have: they come in any order, and more than once.
    keys = ["c", "a", "b", "a", "a", None, "b", "b", "x", "y"]
    ids = [-5, 1, 1, 1, 1, 1, 1, 1, 2, 3]
    table = pa.table({"v": range(10), "k": keys, "id": ids})
    groups = {
        key: [row["v"] for row in rows] for key, rows in found(framed(table, length), [1], 2, 2)
    }
    assert groups == {
        ("c",): [0],
        ("a",): [1, 3, 4],
        ("b",): [2, 6, 7],
        (None,): [5],
        ("x",): [8],
        ("y",): [9],
    }


def test_own_columns_alone():
    table = pa.table({"v": [1, 2, 3], "helper": [5, 5, 6]})
    groups = found(framed(table, 2), [1], 1)
    assert groups == [((5,), [{"v": 1}, {"v": 2}]), ((6,), [{"v": 3}])]


def test_zero_copy():
    batch = pa.record_batch({"k": np.repeat(np.arange(4), 250), "v": np.arange(1000)})
    addresses = [column.buffers()[1].address for column in batch.columns]
    for group in _groups.groups([batch], [0], 2):
        if group is not None:
            (piece,) = group.pieces
            assert [column.buffers()[1].address for column in piece.columns] == addresses


def test_bounded():
    pool = pa.default_memory_pool()
    size, per_batch, batches_per_key = 1 << 20, 1 << 17, 8
    start = pool.bytes_allocated()

    def batches():
        for i in range(20 * batches_per_key):
            values = pa.array(np.zeros(per_batch))  # 1 MiB, and as much of keys
            keys = pa.array(np.full(per_batch, i // batches_per_key))
            yield pa.record_batch([keys, pa.concat_arrays([values, values[:0]])], ["k", "v"])

    held = []

    def watch(table):
        held.append(pool.bytes_allocated() - start)
        return table.slice(0, 1)  # which holds the buffers of all its rows

    answers = [
        batch.num_rows
        for batch in _groups.applied(watch, False, [0], 2, None, SCHEMA_OF_BOUNDED, batches())
    ]
    assert sum(answers) == 20
    assert max(held) <= (batches_per_key + 3) * 2 * size


SCHEMA_OF_BOUNDED = pa.schema([("k", pa.int64()), ("v", pa.float64())])
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
ROWS = pa.table({"k": ["a", "a", "b", "c", "c", "c", None], "v": [1, 2, 3, 4, 5, 6, 7]})


def counted(table):
    return pa.table({"n": [table.num_rows], "k": table["k"].slice(0, 1)})


def with_key(key, table):
    return pa.table({"k": pa.array([key[0].as_py()], pa.string()), "n": [table.num_rows]})


ANSWERS = {
    "table": (counted, False),
    "key and table": (with_key, True),
    "batch": (lambda table: counted(table).to_batches()[0], False),
    "iterator": (lambda table: iter(counted(table).to_batches()), False),
    "generator": (lambda table: (batch for batch in counted(table).to_batches()), False),
    "wider": (lambda table: counted(table).cast(WIDE), False),
    "dictionary": (
        lambda table: counted(table).set_column(
            1, "k", pa.chunked_array([table["k"].slice(0, 1).combine_chunks().dictionary_encode()])
        ),
        False,
    ),
}
WIDE = pa.schema([("n", pa.int32()), ("k", pa.large_string())])


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ANSWERS)
def test_answers(kind, length):
    function, keyed = ANSWERS[kind]
    out = list(_groups.applied(function, keyed, [0], 2, None, SCHEMA, framed(ROWS, length)))
    assert all(batch.schema == SCHEMA for batch in out)
    rows = pa.Table.from_batches(out).to_pylist()
    assert [(row["k"], row["n"]) for row in rows] == [("a", 2), ("b", 1), ("c", 3), (None, 1)]


@pytest.mark.parametrize("nothing", [pa.table({}), SCHEMA.empty_table(), []])
def test_no_rows_answered(nothing):
    assert not list(
        _groups.applied(lambda t: nothing, False, [0], 2, None, SCHEMA, framed(ROWS, 3))
    )


def test_answers_together():
    # Thousands of groups in a batch give one batch (the last group is complete only after it); a
    # group of many rows gives several.
    table = pa.table({"k": np.arange(4000).astype(str), "n": np.arange(4000)})
    out = list(_groups.applied(lambda t: t, False, [0], 2, None, SCHEMA, table.to_batches()))
    assert [batch.num_rows for batch in out] == [3999, 1]
    assert pa.Table.from_batches(out) == table
    table = pa.table({"k": ["a"] * 25_000, "n": np.arange(25_000)})
    out = list(_groups.applied(lambda t: t, False, [0], 2, None, SCHEMA, table.to_batches()))
    assert [batch.num_rows for batch in out] == [10_000, 10_000, 5000]
    assert pa.Table.from_batches(out) == table


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (None, TypeError, "func: expected a Table, a RecordBatch or an iterator .* got NoneType"),
        ({"k": 1}, TypeError, "got dict"),
        ([1], TypeError, "got an iterator of int"),
        (pa.table({"k": ["a"]}), ValueError, "func: expected the columns k, n, got k"),
        (pa.table({"k": ["a"]}).slice(1), ValueError, "func: expected the columns k, n, got k"),
        (pa.table({"k": ["a"], "m": [1]}), ValueError, "expected the columns k, n, got k, m"),
        (
            pa.table([["a"], [1], [2]], ["k", "n", "n"]),
            ValueError,
            "expected the columns k, n, got k, n, n",
        ),
        (
            pa.table({"k": ["a"], "n": ["1"]}),
            TypeError,
            "func: expected n as int64, got string",
        ),
        (
            pa.table({"k": ["a"], "n": pa.array([2**63], pa.uint64())}),
            ValueError,
            "func: expected n as int64, got uint64: ",
        ),
    ],
)
def test_wrong_answers(answer, kind, text):
    with pytest.raises(kind, match=text):
        list(_groups.applied(lambda t: answer, False, [0], 2, None, SCHEMA, framed(ROWS, 3)))


def test_wrong_nulls():
    schema = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64(), nullable=False)])
    answer = pa.table({"k": ["a", "b"], "n": pa.array([1, None])})
    with pytest.raises(ValueError, match="func: expected n without nulls, got 1"):
        list(_groups.applied(lambda t: answer, False, [0], 2, None, schema, framed(ROWS, 3)))


@pytest.mark.parametrize("length", LENGTHS)
def test_merged(length):
    # Two partitions answer; "a" and null are split, "c" is whole.
    ids = pr.keys(pa.array(["a", None])).ids.tolist()
    places = {ids[0]: 1, ids[1]: 0}
    parts = [
        pa.table({"k": ["a", "a", "c", None], "v": [1, 2, 3, 4]}),
        pa.table({"k": ["a", "b", None, None], "v": [5, 6, 7, 8]}),
    ]
    marked = [
        batch
        for number, part in enumerate(parts)
        for batch in _groups.marked(
            *(with_key, True, [0], 2, None, SCHEMA, places, framed(part, length), number)
        )
    ]
    rows = pa.Table.from_batches(marked)
    assert rows.schema.names == ["k", "n", "pyroute_key_0", "pyroute_part", "pyroute_to"]
    assert sorted(map(str, rows.to_pylist())) == sorted(
        str(dict(zip(rows.schema.names, row, strict=True)))
        for row in [
            *(("a", 2, "a", 0, 1), ("c", 1, None, None, 0), (None, 1, None, 0, 0)),
            *(("a", 1, "a", 1, 1), ("b", 1, None, None, 1), (None, 2, None, 1, 0)),
        ]
    )
    # As the exchange and the sort before it give them: whole keys first, then by key and partition.
    sort_key = ("pyroute_key_0", "pyroute_part")
    ordered = sorted(
        rows.to_pylist(),
        key=lambda row: (row["pyroute_part"] is not None, order(row[name] for name in sort_key)),
    )
    rows = pa.Table.from_pylist(ordered, rows.schema)
    calls = []

    def merge(key, table):
        calls.append((key[0].as_py(), table["n"].to_pylist()))
        return with_key(key, table).set_column(1, "n", [[sum(table["n"].to_pylist())]])

    out = _groups.merged(merge, True, 1, SCHEMA, framed(rows, length))
    found = {row["k"]: row["n"] for batch in out for row in batch.to_pylist()}
    assert found == {"a": 3, "b": 1, "c": 1, None: 3}
    assert calls == [(None, [1, 2]), ("a", [2, 1])]
