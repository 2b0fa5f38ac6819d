"""keys: every kind of column gives the id that Spark gives, and nothing else gets one."""

import datetime as dt
import os
import pickle
import subprocess
import sys
import uuid
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyroute as pr
from effort import effort
from reference import golden, untyped
from reference import keys as twin

pytestmark = pytest.mark.kernel

TEXTS = ["", "a", "anna", "a\0b", "é", "日本語", "😀", "x" * 31, "x" * 32, "y" * 33, "z" * 100]
BYTES = [text.encode() for text in TEXTS] + [b"\xff\x00\xfe", bytes(range(1, 65))]
DATES = [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31)]
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
TIMES = [EPOCH + dt.timedelta(seconds=s) for s in (0, 1, -1, 86_399, -86_401, 10**9, -(10**9))]
MICROS = [*TIMES, EPOCH + dt.timedelta(microseconds=1), EPOCH - dt.timedelta(microseconds=999)]
UUIDS = [
    uuid.UUID(int=0),
    uuid.UUID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
    uuid.UUID(int=2**128 - 1),
]
BIG = [-(2**63), -(2**53) - 1, -1, 0, 1, 2**53 + 1, 2**63 - 1]
WIDTHS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
UTC = dt.UTC
Sources = dict[str, tuple[Any, list[Any]]]


def edges(dtype: str) -> list[int]:
    info = np.iinfo(dtype)
    top = min(int(info.max), 2**63 - 1)
    return sorted({int(info.min), 0, 1, 5, top - 1, top, *([-1] if info.min else [])})


def with_nulls(values: list[Any]) -> list[Any]:
    return [None, *values, None, *values[:3]]


def aware(times: list[dt.datetime]) -> list[dt.datetime]:
    return [time.replace(tzinfo=UTC) for time in times]


def numpy_sources() -> Sources:
    sources: Sources = {w: (np.array(edges(w), w), edges(w)) for w in WIDTHS}
    sources |= {
        f">{w}": (np.array(edges(w), np.dtype(w).newbyteorder(">")), edges(w)) for w in WIDTHS
    }
    sources["strided"] = (np.array(BIG).repeat(3)[::3], BIG)
    sources["reversed"] = (np.array(BIG)[::-1], BIG[::-1])
    sources["read only"] = (np.frombuffer(np.array(BIG).tobytes(), np.int64), BIG)
    sources["field of a record"] = (np.array([(1, 2), (3, 4)], "i4,i8")["f1"], [2, 4])
    sources["unaligned"] = (np.array([(1, 2), (3, 4)], "i1,i8")["f1"], [2, 4])
    sources["bool"] = (np.array([True, False, True]), [True, False, True])
    sources["U"] = (np.array(TEXTS), TEXTS)
    sources["U strided"] = (np.array(TEXTS)[::-2], TEXTS[::-2])
    sources[">U"] = (np.array(TEXTS, np.dtype("U100").newbyteorder(">")), TEXTS)
    sources["U0"] = (np.array(["", ""]), ["", ""])
    sources["S"] = (np.array(BYTES), BYTES)
    sources["S ends in zeros"] = (np.array([b"a\0\0", b"\0"]), [b"a", b""])
    strings = np.dtypes.StringDType()
    sources["StringDType"] = (np.array(TEXTS, strings), TEXTS)
    sources["StringDType strided"] = (np.array(TEXTS, strings)[::-2], TEXTS[::-2])
    nullable = np.dtypes.StringDType(na_object=None)
    sources["StringDType nulls"] = (np.array(with_nulls(TEXTS), nullable), with_nulls(TEXTS))
    for name, values in KINDS.items():
        array = np.empty(len(values), object)
        array[:] = values
        sources[f"object {name}"] = (array, values)
    for unit in ("s", "ms", "us", "ns"):
        times = MICROS if unit in ("us", "ns") else TIMES
        array = np.array(with_nulls(times), f"M8[{unit}]")
        sources[f"M8[{unit}]"] = (array, with_nulls(times))
    sources["M8[D]"] = (np.array(with_nulls(DATES), "M8[D]"), with_nulls(DATES))
    for unit, steps in (("Y", "years"), ("M", "months"), ("W", "weeks")):
        array = np.array([0, 1, -1, 700, "NaT"], f"M8[{unit}]")
        sources[steps] = (array, [*array[:-1].astype("M8[D]").tolist(), None])
    for unit, seconds in (("h", 3600), ("m", 60)):
        moments = [EPOCH + dt.timedelta(seconds=n * seconds) for n in (0, 1, -1, 10**6)]
        sources[f"M8[{unit}]"] = (
            np.array([0, 1, -1, 10**6, "NaT"], f"M8[{unit}]"),
            [*moments, None],
        )
    return sources


def python_sources() -> Sources:
    return {
        f"{make.__name__} {name}": (make(v), v)
        for make in (list, tuple)
        for name, v in KINDS.items()
    }


def pandas_sources() -> Sources:
    sources: Sources = {}
    for width in WIDTHS:
        sources[width] = (pd.Series(edges(width), dtype=width), edges(width))
        nullable = width.replace("i", "I").replace("uI", "UI")
        values = with_nulls(edges(width))
        sources[nullable] = (pd.Series(values, dtype=nullable), values)
    bools = [True, False]
    sources["bool"] = (pd.Series(bools), bools)
    sources["boolean"] = (pd.Series(with_nulls(bools), dtype="boolean"), with_nulls(bools))
    for storage in ("python", "pyarrow"):
        dtype = f"string[{storage}]"
        sources[dtype] = (pd.Series(with_nulls(TEXTS), dtype=dtype), with_nulls(TEXTS))
    sources["object"] = (pd.Series(with_nulls(TEXTS), dtype=object), with_nulls(TEXTS))
    sources["odd index"] = (pd.Series(TEXTS, index=range(len(TEXTS), 0, -1))[::-1], TEXTS[::-1])
    # pandas takes texts for C strings when it looks for categories: none with a zero inside.
    words = with_nulls([text for text in TEXTS if "\0" not in text])
    sources["category of text"] = (pd.Series(words, dtype="category"), words)
    sources["category of ints"] = (
        pd.Series(with_nulls(BIG[1:]), dtype=pd.CategoricalDtype(BIG[1:])),
        with_nulls(BIG[1:]),
    )
    dates = pd.to_datetime(pd.Series(TIMES))
    sources["category of times"] = (dates.astype("category"), TIMES)
    sources["Categorical"] = (
        pd.Categorical(with_nulls(TEXTS), categories=TEXTS),
        with_nulls(TEXTS),
    )
    sources["CategoricalIndex"] = (pd.CategoricalIndex(words), words)
    sources["Index"] = (pd.Index(TEXTS), TEXTS)
    sources["RangeIndex"] = (pd.RangeIndex(5, 50, 7), list(range(5, 50, 7)))
    sources["DatetimeIndex"] = (pd.DatetimeIndex(MICROS), MICROS)
    for unit in ("s", "ms", "us", "ns"):
        times = with_nulls(MICROS if unit in ("us", "ns") else TIMES)
        series = pd.Series(times, dtype=f"datetime64[{unit}]")
        sources[f"datetime64[{unit}]"] = (series, times)
        for zone in ("UTC", "Europe/Berlin"):
            sources[f"datetime64[{unit}, {zone}]"] = (
                series.dt.tz_localize("UTC").dt.tz_convert(zone),
                times,
            )
    for type_ in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        column = pa.array(with_nulls(TEXTS), pa.string()).cast(type_)
        series = pd.Series(pd.arrays.ArrowExtensionArray(column))
        sources[f"ArrowDtype {type_}"] = (series, with_nulls(TEXTS))
    for type_, values in (
        (pa.int64(), BIG),
        (pa.timestamp("us"), MICROS),
        (pa.date32(), DATES),
        (pa.binary(), BYTES),
    ):
        series = pd.Series(with_nulls(values), dtype=pd.ArrowDtype(type_))
        sources[f"ArrowDtype {type_}"] = (series, with_nulls(values))
    return sources


def polars_sources() -> Sources:
    sources: Sources = {}
    for width in WIDTHS:
        dtype = getattr(pl, width.replace("i", "I").replace("uI", "UI"))
        sources[width] = (
            pl.Series(with_nulls(edges(width)), dtype=dtype),
            with_nulls(edges(width)),
        )
    for name, values, dtype in (
        ("bool", [True, False], pl.Boolean),
        ("text", TEXTS, pl.String),
        ("bytes", BYTES, pl.Binary),
        ("date", DATES, pl.Date),
        ("time ms", TIMES, pl.Datetime("ms")),
        ("time us", MICROS, pl.Datetime("us")),
        ("time ns", MICROS, pl.Datetime("ns")),
        ("time zone", aware(MICROS), pl.Datetime("us", "Europe/Berlin")),
        ("categorical", TEXTS, pl.Categorical),
        ("enum", TEXTS, pl.Enum(TEXTS)),
        ("decimal", [Decimal(i) for i in BIG], pl.Decimal(38, 0)),
    ):
        sources[name] = (pl.Series(with_nulls(values), dtype=dtype), with_nulls(values))
    sources["null"] = (pl.Series([None, None]), [None, None])
    sources["sliced"] = (pl.Series(TEXTS).slice(2, 5), TEXTS[2:7])
    sources["chunks"] = (pl.Series(TEXTS).append(pl.Series(TEXTS)), TEXTS * 2)
    return sources


def arrow_sources() -> Sources:
    sources: Sources = {}
    types: list[tuple[pa.DataType, list[Any]]] = [
        *((getattr(pa, width)(), edges(width)) for width in WIDTHS),
        *((type_(), TEXTS) for type_ in (pa.string, pa.large_string, pa.string_view)),
        *((type_(), BYTES) for type_ in (pa.binary, pa.large_binary, pa.binary_view)),
        (pa.binary(3), [b"abc", b"\0\0\0", b"a\0\0"]),
        (pa.bool_(), [True, False]),
        (pa.date32(), DATES),
        (pa.date64(), DATES),
        *((pa.timestamp(unit), TIMES) for unit in ("s", "ms", "us", "ns")),
        *((pa.timestamp(unit), MICROS) for unit in ("us", "ns")),
        *(
            (pa.timestamp(u, z), aware(TIMES))
            for u, z in product(("s", "ms", "us", "ns"), ("UTC", "Asia/Tokyo"))
        ),
        *(
            (type_, [Decimal(i) for i in BIG])
            for type_ in (pa.decimal128(20, 0), pa.decimal256(50, 0))
        ),
        (pa.decimal128(5, 0), [Decimal(-99999), Decimal(0), Decimal(7)]),
        (pa.decimal32(5, 0), [Decimal(-99999), Decimal(0), Decimal(7)]),
        (pa.decimal64(15, 0), [Decimal(-99999), Decimal(0), Decimal(10**14)]),
        (pa.null(), []),
    ]
    for type_, values in types:
        sources[f"{type_} {len(sources)}"] = (pa.array(values, type_), values)
        sources[f"{type_} {len(sources)}"] = (
            pa.array(with_nulls(values), type_),
            with_nulls(values),
        )
    for width in WIDTHS:
        codes = pa.array([2, None, 0, 1, 3, 0], getattr(pa, width)())
        for words in (
            pa.array(["x", None, "z", ""]),
            pa.array(["x", None, "z", ""], pa.string_view()),
        ):
            column = pa.DictionaryArray.from_arrays(codes, words)
            sources[f"{column.type}"] = (column, ["z", None, "x", None, "", "x"])
    codes = pa.array([1, 0, None], pa.int8())
    numbers = pa.DictionaryArray.from_arrays(codes, pa.array([10, -10], pa.int16()))
    sources["dictionary of ints"] = (numbers, [-10, 10, None])
    days = pa.DictionaryArray.from_arrays(codes, pa.array(DATES[:2], pa.date32()))
    sources["dictionary of dates"] = (days, [DATES[1], DATES[0], None])
    sliced = pa.DictionaryArray.from_arrays(codes, pa.array(["no", "x", "y"]).slice(1))
    sources["dictionary with an offset"] = (sliced, ["y", "x", None])
    raw = pa.array([*(u.bytes for u in UUIDS), None], pa.binary(16))
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), raw)
    sources["uuid"] = (uuids, [*UUIDS, None])
    encoded = pa.DictionaryArray.from_arrays(codes, uuids)
    sources["dictionary of uuids"] = (encoded, [UUIDS[1], UUIDS[0], None])
    instants = pa.py_buffer(np.array([-1, 0, 86_399_999, 86_400_000]))
    within = pa.Array.from_buffers(pa.date64(), 4, [None, instants])
    sources["date64 within days"] = (within, [-1, 0, 0, 1])
    return sources


KINDS: dict[str, list[Any]] = {
    "int": [*BIG, None],
    "str": with_nulls(TEXTS),
    "bytes": with_nulls(BYTES),
    "bool": [True, None, False],
    "date": with_nulls(DATES),
    "datetime": with_nulls(MICROS),
    "datetime with a zone": aware(MICROS),
    "datetime elsewhere": [
        t.astimezone(dt.timezone(dt.timedelta(hours=5.5))) for t in aware(MICROS)
    ],
    "uuid": with_nulls(UUIDS),
    "decimal": [Decimal("-7"), Decimal("1E+3"), Decimal("5.00"), None, Decimal(2**63 - 1)],
    "None": [None, None],
    "tuples": [("x", 1), ("x", None), (None, 1), (None, None), ("", -1)],
    "tuples of three": [("x", b"y", True), (None, None, None), ("a", None, False)],
    "tuples of one": [("x",), ("y",), (None,)],
}
SOURCES = {
    f"{library}: {name}": source
    for library, sources in (
        ("numpy", numpy_sources()),
        ("python", python_sources()),
        ("pandas", pandas_sources()),
        ("polars", polars_sources()),
        ("arrow", arrow_sources()),
    )
    for name, source in sources.items()
}
ARROW = {name: source for name, source in SOURCES.items() if isinstance(source[0], pa.Array)}
each_source = pytest.mark.parametrize("name", SOURCES)
each_arrow = pytest.mark.parametrize("name", ARROW)


def ids(*columns: Any) -> list[int]:
    result: list[int] = pr.keys(*columns).ids.tolist()
    return result


@each_source
def test_matches_reference(name):
    column, values = SOURCES[name]
    assert ids(column) == twin.keys(values)


@each_source
def test_columns_of_a_composite(name):
    column, values = SOURCES[name]
    parts = [value if isinstance(value, tuple) else (value,) for value in values]
    other = list(range(len(values)))
    assert ids(column, other) == [twin.key(*p, o) for p, o in zip(parts, other, strict=True)]
    assert ids(other, column) == [twin.key(o, *p) for p, o in zip(parts, other, strict=True)]


SPARK_TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_column(type_: str, values: list[Any]) -> pa.Array:
    if type_.startswith("decimal"):
        precision = int(type_[8:].split(",")[0])
        return pa.array(
            [v if v is None else Decimal(v) for v in values], pa.decimal128(precision, 0)
        )
    if type_ in ("date", "timestamp", "timestamp_ntz"):
        width = pa.int32() if type_ == "date" else pa.int64()
        return pa.array(values, width).cast(SPARK_TYPES[type_])
    return pa.array(values, SPARK_TYPES[type_])


def test_spark_vectors():
    groups = defaultdict(list)
    for vector in golden("keys_spark"):
        groups[tuple(vector["types"])].append(vector)
    for types, vectors in groups.items():
        rows = [[untyped(value) for value in vector["values"]] for vector in vectors]
        columns = [
            arrow_column(t, list(c)) for t, c in zip(types, zip(*rows, strict=True), strict=True)
        ]
        expected = [int(vector["id"]) for vector in vectors]
        assert [twin.key(*row) for row in rows] == expected, types
        assert ids(*columns) == expected, types


def test_null_is_42():
    for column in ([None], pa.nulls(1), pa.array([None], pa.string()), np.array(["NaT"], "M8[us]")):
        assert ids(column) == [42]


def test_null_and_one_share_an_id_in_composites():
    # Accepted: the mark of a null is the bigint 1, by contract with Spark (SPARK.md).
    assert ids([(None, "x")]) == ids([(1, "x")])
    assert ids([("x", None)]) == ids([("x", 1)])
    assert ids([None]) != ids([1])


def test_nulls_in_composites_differ():
    assert (
        len(
            set(
                ids(
                    [("x", None), (None, "x"), (None, None)],
                )
            )
        )
        == 3
    )
    assert ids(["x"])[0] not in ids([("x", None), (None, "x")])


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1))
def test_one_to_one(value, seed):
    assert twin.unhash_int(twin.hash_int(value, seed), seed) == value
    assert twin.hash_int(twin.unhash_int(seed, 7), 7) == seed
    # A table of integers keeps ids alone, so the kernel's own inverse gives the values back.
    assert list(pr.Router(4, {value: 1}).table) == [value]


SIMD = """
import hashlib, numpy as np, pyroute as pr
rng = np.random.default_rng(7)
digest = hashlib.sha256()
for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 511, 512, 513, 5000):
    numbers = rng.integers(-2**63, 2**63 - 1, n)
    for width in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32):
        digest.update(pr.keys(numbers.astype(width)).ids.tobytes())
    holes = [None if v % 3 == 0 else v for v in numbers.tolist()]
    digest.update(pr.keys(holes).ids.tobytes())
    texts = ["t" * int(k) for k in numbers % 70]
    digest.update(pr.keys(texts).ids.tobytes())
    router = pr.Router(5, {int(v): int(v) % 5 for v in numbers[::3]})
    digest.update(router.route(numbers).tobytes())
    digest.update(router.route(texts).tobytes())
print(pr.simd(), digest.hexdigest())
"""


def test_simd_equal():
    answers = {}
    for path in ("portable", "avx2", "avx512"):
        command = [sys.executable, "-c", SIMD]
        environment = {**os.environ, "PYROUTE_SIMD": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            assert "PYROUTE_SIMD: expected" in done.stderr, done.stderr
            assert path != "portable"
        else:
            in_force, digest = done.stdout.split()
            assert in_force == path
            answers[path] = digest
    assert len(set(answers.values())) == 1, answers


@each_arrow
def test_framing(name):
    array, values = ARROW[name]
    expected = twin.keys(values)
    size = len(array)
    for start in range(min(size, 11)):
        length = max(0, size - start - 1)
        assert ids(array.slice(start, length)) == expected[start : start + length]
    for cut in range(size + 1):
        parts = [array.slice(0, 0), array.slice(0, cut), array.slice(0, 0), array.slice(cut)]
        assert ids(pa.chunked_array(parts, array.type)) == expected
    if size:
        copies = 1030 // size + 1
        many = pa.chunked_array([array] * copies, array.type)
        for rows in (511, 512, 513, 1025):
            assert ids(many.slice(3, rows)) == (expected * copies)[3 : 3 + rows]
            assert ids(many.slice(3, rows), range_column(rows)) == [
                twin.key(v, i) for i, v in enumerate((values * copies)[3 : 3 + rows])
            ]


def range_column(rows: int) -> np.ndarray:
    return np.arange(rows, dtype=np.int32)


@pytest.mark.parametrize("rows", [0, 1, 511, 512, 513, 1024, 1025])
def test_block_borders(rows):
    numbers = list(range(-3, rows - 3))
    texts = [f"key {i}" for i in numbers]
    assert ids(np.array(numbers, np.int64)) == twin.keys(numbers)
    assert ids(pa.array(texts, pa.string())) == twin.keys(texts)
    assert ids(numbers, texts) == [twin.key(n, t) for n, t in zip(numbers, texts, strict=True)]
    assert ids(np.array(texts, np.dtypes.StringDType())) == twin.keys(texts)


EMPTY = {
    "list": [],
    "tuple": (),
    "int64": np.array([], np.int64),
    "object": np.array([], object),
    "U": np.array([], "U5"),
    "S": np.array([], "S5"),
    "StringDType": np.array([], np.dtypes.StringDType()),
    "M8": np.array([], "M8[us]"),
    "pandas": pd.Series([], dtype="int64"),
    "pandas string": pd.Series([], dtype="string"),
    "category": pd.Series([], dtype="category"),
    "polars": pl.Series([], dtype=pl.String),
    "arrow": pa.array([], pa.string()),
    "arrow view": pa.array([], pa.string_view()),
    "dictionary": pa.array([], pa.dictionary(pa.int32(), pa.string())),
    "no chunks": pa.chunked_array([], pa.string()),
    "empty chunks": pa.chunked_array([[], []], pa.int8()),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty(name):
    keys = pr.keys(EMPTY[name])
    assert len(keys) == 0
    assert keys.ids.dtype == np.uint64
    assert keys.ids.shape == (0,)
    assert pr.Ring(4).homes(EMPTY[name]).shape == (0,)
    assert pr.keys(EMPTY[name], []).ids.shape == (0,)


texts = st.text(st.characters(codec="utf-8"))
dates = st.dates()
times = st.datetimes()
KIND_STRATEGIES = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "str": texts,
    "bytes": st.binary(max_size=80),
    "date": dates,
    "datetime": times,
    "uuid": st.uuids(),
    "decimal": st.integers(-(2**63), 2**63 - 1).map(Decimal),
}
columns = st.sampled_from(sorted(KIND_STRATEGIES)).flatmap(
    lambda kind: st.lists(st.none() | KIND_STRATEGIES[kind])
)


@given(columns)
def test_lists(values):
    assert ids(values) == twin.keys(values)
    array = np.empty(len(values), object)
    array[:] = values
    assert ids(array) == twin.keys(values)


@given(st.lists(st.sampled_from(sorted(KIND_STRATEGIES)), min_size=2, max_size=4), st.data())
def test_tuples(kinds, data):
    rows = data.draw(st.lists(st.tuples(*(st.none() | KIND_STRATEGIES[kind] for kind in kinds))))
    assert ids(rows) == twin.keys(rows)
    if rows:
        assert ids(*(list(column) for column in zip(*rows, strict=True))) == twin.keys(rows)


@given(st.lists(st.none() | texts), st.lists(st.integers(0, 40)), st.data())
def test_arrow_texts(values, cuts, data):
    type_ = data.draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
    array = pa.array(values, type_)
    borders = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    chunks = [array.slice(a, b - a) for a, b in pairwise(borders)]
    assert ids(pa.chunked_array(chunks, type_)) == twin.keys(values)
    encoded = pa.array(values, pa.string()).dictionary_encode()
    assert ids(encoded) == twin.keys(values)


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_numpy_texts(values):
    array = np.array(values)
    trimmed = [value.rstrip("\0") for value in values]
    assert ids(array) == twin.keys(trimmed)
    assert ids(np.array(values, np.dtypes.StringDType())) == twin.keys(values)


@given(st.sampled_from(WIDTHS), st.data())
def test_numpy_ints(width, data):
    info = np.iinfo(width)
    bounds = (int(info.min), min(int(info.max), 2**63 - 1))
    values = data.draw(st.lists(st.integers(*bounds)))
    assert ids(np.array(values, width)) == twin.keys(values)


def test_numpy_scalars_in_lists():
    for scalars, values in (
        ([np.int8(-5), np.uint64(5), 7], [-5, 5, 7]),
        ([np.str_("a"), "b"], ["a", "b"]),
        ([np.bytes_(b"a"), b"b"], [b"a", b"b"]),
        ([np.bool_(True), False], [True, False]),
        ([np.datetime64("2024-02-29"), None], [dt.date(2024, 2, 29), None]),
        ([np.datetime64(1500, "ms"), np.datetime64(-7, "us")], [1_500_000, -7]),
        ([np.datetime64(3000, "ns")], [3]),
        ([np.datetime64("NaT", "us"), np.datetime64(1, "us")], [None, 1]),
    ):
        assert ids(scalars) == twin.keys(values)


def test_not_a_time_is_null():
    assert ids([np.datetime64("NaT")]) == [42]
    assert ids([np.datetime64("NaT"), np.datetime64(1, "us")]) == [42, twin.key(1)]
    assert ids([pd.NaT, dt.date(1970, 1, 2)]) == [42, twin.key(1)]
    assert ids(np.array(["NaT", "NaT"], "M8")) == [42, 42]


class OnlyArray:
    """Offers the array capsule of the Arrow PyCapsule interface and nothing else."""

    def __init__(self, array):
        self._array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self._array.__arrow_c_array__(requested_schema)


class OnlyStream:
    """Offers the stream capsule of the Arrow PyCapsule interface and nothing else."""

    def __init__(self, array):
        self._array = array

    def __arrow_c_stream__(self, requested_schema=None):
        return self._array.__arrow_c_stream__(requested_schema)


def test_capsules():
    array = pa.array(TEXTS)
    assert ids(OnlyArray(array)) == twin.keys(TEXTS)
    assert ids(OnlyStream(pa.chunked_array([array, array]))) == twin.keys(TEXTS * 2)


def test_text_and_bytes_are_one_key():
    assert ids(["a"]) == ids([b"a"])
    assert ids([UUIDS[1]]) == ids([str(UUIDS[1])])


SHAPE = r"^\w[\w .\[\]()]*: expected .+, got .+"
TYPE_ERRORS = {
    "float64": np.array([1.0]),
    "float32": np.array([1.0], np.float32),
    "complex": np.array([1j]),
    "timedelta64": np.array([1], "m8[s]"),
    "record": np.array([(1, 2)], "i4,i4"),
    "void": np.array([b"ab"], "V2"),
    "float in a list": [1.0],
    "NaN in a list": ["a", float("nan")],
    "NumPy float in a list": [np.float64(1)],
    "list in a list": [[1]],
    "dict in a list": [{}],
    "set in a list": [{1}],
    "object in a list": [object()],
    "array in a list": [np.array([1, 2])],
    "time in a list": [dt.time(1)],
    "timedelta in a list": [dt.timedelta(1)],
    "float in an object array": np.array(["a", 1.5], object),
    "nested tuple": [("a", ("b", "c"))],
    "tuples of two lengths": [("a", "b"), ("a",)],
    "Decimal with a fraction": [Decimal("1.5")],
    "Decimal NaN": [Decimal("NaN")],
    "Decimal infinity": [Decimal("Infinity")],
    "int and str": [1, "a"],
    "str and bytes": ["a", b"a"],
    "bool and int": [True, 1],
    "int and bool": [1, True],
    "date and datetime": [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=UTC)],
    "int and date": [1, dt.date(2024, 1, 1)],
    "tuple and str": [("a", "b"), "a"],
    "str and tuple": ["a", ("a", "b")],
    "mixed in a column of tuples": [("a", 1), ("b", "c")],
    "mixed objects": np.array([1, "a"], object),
    "str": "anna",
    "bytes": b"anna",
    "bytearray": bytearray(b"anna"),
    "int": 5,
    "None": None,
    "dict": {"a": 1},
    "set": {1, 2},
    "generator": (i for i in range(3)),
    "scalar": np.int64(5),
    "pandas float": pd.Series([1.5]),
    "pandas float with NaN": pd.Series([1, None]),
    "pandas Float64": pd.Series([1.5], dtype="Float64"),
    "pandas timedelta": pd.Series([pd.Timedelta(1, "s")]),
    "pandas period": pd.Series([pd.Period("2024", "Y")]),
    "pandas interval": pd.Series([pd.Interval(0, 1)]),
    "pandas category of floats": pd.Series([1.5, 2.5], dtype="category"),
    "pandas frame": pd.DataFrame({"a": [1], "b": [2]}),
    "polars float": pl.Series([1.5]),
    "polars list": pl.Series([[1]]),
    "polars struct": pl.Series([{"a": 1}]),
    "polars duration": pl.Series([dt.timedelta(1)]),
    "polars time": pl.Series([dt.time(1)]),
    "polars frame": pl.DataFrame({"a": [1]}),
    "arrow half": pa.array([np.float16(1)], pa.float16()),
    "arrow float": pa.array([1.5], pa.float32()),
    "arrow double": pa.array([1.5]),
    "arrow list": pa.array([[1]]),
    "arrow large list": pa.array([[1]], pa.large_list(pa.int8())),
    "arrow fixed list": pa.array([[1]], pa.list_(pa.int8(), 1)),
    "arrow struct": pa.array([{"a": 1}]),
    "arrow map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    "arrow time": pa.array([dt.time(1)]),
    "arrow duration": pa.array([dt.timedelta(1)]),
    "arrow interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "arrow decimal": pa.array([Decimal("1.5")]),
    "arrow decimal, whole": pa.array([Decimal("1.00")], pa.decimal128(10, 2)),
    "arrow dictionary of floats": pa.array([1.5]).dictionary_encode(),
    "arrow float chunks": pa.chunked_array([[1.5]]),
    "arrow table": pa.table({"a": [1]}),
    "arrow scalar": pa.scalar(5),
}
NOT_UTF8 = pa.StringArray.from_buffers(
    2, pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"a\xff\xfe")
)
VALUE_ERRORS = {
    "0-d": np.array(5),
    "2-d": np.zeros((2, 2), np.int64),
    "2-d text": np.array([["a"]]),
    "uint64 beyond": np.array([0, 2**63], np.uint64),
    "int beyond": [2**63],
    "int below": [-(2**63) - 1],
    "int far beyond": [10**5000],
    "NumPy uint64 beyond": [np.uint64(2**63)],
    "Decimal beyond": [Decimal(2**63)],
    "Decimal far beyond": [Decimal("1E+100000")],
    "object uint64 beyond": np.array([2**63], object),
    "nanoseconds": np.array([1500], "M8[ns]"),
    "a nanosecond before 1970": np.array([-1], "M8[ns]"),
    "hours beyond": np.array([2**60], "M8[h]"),
    "minutes beyond": np.array([-(2**60)], "M8[m]"),
    "seconds beyond": np.array([2**50], "M8[s]"),
    "milliseconds beyond": np.array([2**62], "M8[ms]"),
    "years beyond": np.array([2**62], "M8[Y]"),
    "months beyond": np.array([2**62], "M8[M]"),
    "weeks beyond": np.array([2**62], "M8[W]"),
    "nanoseconds in a list": [np.datetime64(1, "ns")],
    "pandas nanoseconds": pd.Series([pd.Timestamp(1)]),
    "pandas UInt64 beyond": pd.Series([2**63], dtype="UInt64"),
    "polars nanoseconds": pl.Series([1]).cast(pl.Datetime("ns")),
    "polars uint64 beyond": pl.Series([2**64 - 1], dtype=pl.UInt64),
    "arrow nanoseconds": pa.array([None, 1], pa.timestamp("ns")),
    "arrow uint64 beyond": pa.array([None, 2**63], pa.uint64()),
    "arrow decimal128 beyond": pa.array([None, Decimal(2**63)], pa.decimal128(38, 0)),
    "arrow decimal128 below": pa.array([Decimal(-(2**63) - 1)], pa.decimal128(38, 0)),
    "arrow decimal256 beyond": pa.array([Decimal(2**64)], pa.decimal256(50, 0)),
    "arrow seconds beyond": pa.array([2**62], pa.int64()).cast(pa.timestamp("s")),
    "dictionary of uint64 beyond": pa.array([2**63], pa.uint64()).dictionary_encode(),
    "lone surrogate": ["a", "\ud800"],
    "lone surrogate in U": np.array(["a", "\ud800"]),
    "lone surrogate in objects": np.array(["a", "\udfff"], object),
}


@pytest.mark.parametrize("name", TYPE_ERRORS)
def test_wrong_type(name):
    with pytest.raises(TypeError, match=SHAPE):
        pr.keys(TYPE_ERRORS[name])


@pytest.mark.parametrize("name", VALUE_ERRORS)
def test_wrong_value(name):
    with pytest.raises(ValueError, match=SHAPE):
        pr.keys(VALUE_ERRORS[name])


@pytest.mark.parametrize("name", [*TYPE_ERRORS, *VALUE_ERRORS])
def test_wrong_everywhere(name):
    column = TYPE_ERRORS[name] if name in TYPE_ERRORS else VALUE_ERRORS[name]
    error = TypeError if name in TYPE_ERRORS else ValueError
    for call in (pr.Ring(4).homes, pr.Router(4).route, pr.SpaceSaving(8).estimate):
        with pytest.raises(error, match=SHAPE):
            call(column)


def test_masked_values_are_null():
    masked = np.ma.array([1, 2, 3], mask=[False, True, False])
    assert pr.keys(masked) == pr.keys([1, None, 3])
    assert pr.keys(masked, ["a", "b", "c"]) == pr.keys([1, None, 3], ["a", "b", "c"])


def test_arrow_text_is_hashed_as_its_bytes():
    assert pr.keys(NOT_UTF8) == pr.keys(NOT_UTF8.cast(pa.binary()))


CHANGING = """
import pyroute as pr
class Changes:
    def __index__(self):
        values.clear()
        return 1
values = [Changes(), *range(10**6, 10**6 + 200_000)]
try:
    pr.keys(values)
except (TypeError, ValueError, RuntimeError):
    pass
"""


def test_a_list_that_changes_meanwhile():
    done = subprocess.run([sys.executable, "-c", CHANGING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_lengths_differ():
    with pytest.raises(ValueError, match=SHAPE):
        pr.keys([1, 2], [1])
    with pytest.raises(ValueError, match=SHAPE):
        pr.keys([], pa.array(["a"]))


def test_no_columns():
    with pytest.raises((TypeError, ValueError), match=SHAPE):
        pr.keys()


def test_error_leaves_nothing():
    sketch = pr.SpaceSaving(8)
    sketch.observe(["a"])
    for column in (["a", "\ud800"], ["a", 1.5], [1]):
        with pytest.raises((TypeError, ValueError), match=SHAPE):
            sketch.observe(column)
    assert sketch.total == 1
    assert sketch.top().values == ["a"]


def test_keys_are_identity_and_arrays_are_values():
    values = np.arange(100)
    keys = pr.keys(values)
    ring = pr.Ring(8)
    small = keys.ids[keys.ids < 2**63]
    assert isinstance(keys, pr.Keys)
    assert ring.homes(keys).tolist() == ring.homes(values).tolist()
    assert ids(small) == [twin.hash_int(int(id_)) for id_ in small]
    assert ids(small) != small.tolist()
    again = pr.Keys.from_ids(keys.ids)
    assert again.ids.tolist() == keys.ids.tolist()
    assert ring.homes(again).tolist() == ring.homes(values).tolist()


def test_from_ids():
    given_ids = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    assert pr.Keys.from_ids(given_ids).ids.tolist() == given_ids.tolist()
    assert len(pr.Keys.from_ids(np.array([], np.uint64))) == 0
    with pytest.raises(TypeError, match=SHAPE):
        pr.Keys.from_ids(np.array([1.5]))
    with pytest.raises(TypeError, match=SHAPE):
        pr.Keys.from_ids(["a"])


def test_ids_are_read_only():
    keys = pr.keys([1, 2, 3])
    assert keys.ids.dtype == np.uint64
    with pytest.raises(ValueError, match="read-only"):
        keys.ids[0] = 1


def test_keys_keep_their_columns():
    column, other = pa.array(["a", "b"]), np.array([1, 2])
    keys = pr.keys(column, other)
    assert keys.columns[0] is column
    assert keys.columns[1] is other
    assert len(keys.columns) == 2


def test_keys_outlive_their_source():
    keys = pr.keys(pa.array([f"value {i}" for i in range(1000)]))
    assert keys.ids.tolist() == twin.keys([f"value {i}" for i in range(1000)])
    view = pr.keys(np.arange(1000)).ids
    assert view.tolist() == twin.keys(list(range(1000)))


@pytest.mark.parametrize(
    "columns", [[["a", "b"]], [["a", "b"], [1, 2]], [np.arange(3)], [pa.array(["a", None])]]
)
def test_keys_pickle(columns):
    keys = pr.keys(*columns)
    again = pickle.loads(pickle.dumps(keys))
    assert again.ids.tolist() == keys.ids.tolist()
    assert len(again) == len(keys)


def test_from_ids_pickle():
    keys = pr.Keys.from_ids(np.array([1, 2**64 - 1], np.uint64))
    assert pickle.loads(pickle.dumps(keys)).ids.tolist() == [1, 2**64 - 1]


def test_inputs_are_not_modified():
    numbers = np.arange(1000)
    pr.keys(numbers).ids  # noqa: B018
    assert numbers.tolist() == list(range(1000))


@settings(max_examples=effort(20))
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30),
    st.text(max_size=5),
    st.text(max_size=5),
)
def test_collisions_can_be_made(values, first, second):
    seeds = [twin.hash_value(text) for text in (first, second)]
    partners = [twin.unhash_int(twin.hash_int(value, seeds[0]), seeds[1]) for value in values]
    left = [(first, value) for value in values]
    right = [(second, value) for value in partners]
    assert ids(left) == ids(right)


def peak() -> int:
    """Return the highest resident size since the last reset, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif("PYROUTE_SANITIZE" in os.environ, reason="the sanitizer keeps shadow memory")
@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(50)])
def test_arrow_buffers_are_not_copied(type_):
    rows, width = 1_000_000, 50
    data = np.random.default_rng(1).integers(97, 123, rows * width, np.uint8)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(data)])
    column = fixed if type_ == fixed.type else fixed.cast(pa.binary()).cast(pa.string()).cast(type_)
    router = pr.Router(8, {"x" * width: 1}) if type_ != fixed.type else pr.Router(8)
    router.route(column.slice(0, 1000))
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    tasks = router.route(column)
    assert peak() - before <= 1.2 * tasks.nbytes + 4e6
