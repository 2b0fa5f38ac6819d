"""Router: splits over a table over a home, one task for every record."""

import json
import pickle
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal

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
from reference import keys as key_twin
from reference import ring as ring_twin
from reference import router as twin

pytestmark = pytest.mark.kernel

SHAPE = r"^\w[\w .\[\]()]*: expected .+, got .+"
TASKS = 5
RING = pr.Ring(TASKS, bits=8, replicas=8)
OWNERS = RING.owners.tolist()
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
task = st.integers(0, TASKS - 1)
KINDS = {
    "int": int64,
    "str": texts,
    "bytes": st.binary(max_size=40),
    "bool": st.booleans(),
    "date": st.dates(),
    "datetime": st.datetimes(),
    "tuple": st.tuples(texts | st.none(), st.integers(2, 9)),
}
ONE_OF_EACH = {
    "int": [0, 1, -1, 2**63 - 1, -(2**63)],
    "str": ["", "a", "é", "😀", "x" * 31, "x" * 32, "x" * 500, "a\0b"],
    "bytes": [b"", b"a", b"\xff\0", b"y" * 64],
    "bool": [True, False],
    "None": [None],
    "date": [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)],
    "datetime": [datetime(2024, 1, 1, 2, 3, 4, 5, tzinfo=UTC)],
    "naive datetime": [datetime(2024, 1, 1, 2, 3, 4, 5)],  # noqa: DTZ001
    "uuid": [uuid.UUID(int=5)],
    "decimal": [Decimal(7), Decimal("1E+3")],
    "NumPy int": [np.int8(-5), np.uint64(5), np.int64(2**62)],
    "NumPy str": [np.str_("a")],
    "NumPy bytes": [np.bytes_(b"a")],
    "NumPy bool": [np.bool_(True)],
    "NumPy datetime": [np.datetime64("2024-02-29T01:02:03")],
    "tuple": [("x", 2), ("x", None), (None, 2)],
    "tuple of three": [("x", b"y", True), (None, None, None)],
}


def home(key):
    return ring_twin.home(OWNERS, key)


@st.composite
def routers(draw):
    """Draw values, a table and splits of one kind, the tabled and split values among the values."""
    strategy = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    pool = draw(st.lists(strategy, max_size=30, unique=True))
    roles = draw(st.lists(st.sampled_from("hts"), min_size=len(pool), max_size=len(pool)))
    table = {v: draw(task) for v, role in zip(pool, roles, strict=True) if role == "t"}
    splits = {
        v: draw(st.lists(task, min_size=1, max_size=TASKS, unique=True))
        for v, role in zip(pool, roles, strict=True)
        if role == "s"
    }
    values = draw(st.lists(st.sampled_from(pool), max_size=60)) if pool else []
    return values, table, splits


@given(routers(), st.data())
def test_matches_reference(case, data):
    values, table, splits = case
    salts = data.draw(st.lists(int64, min_size=len(values), max_size=len(values)))
    router = pr.Router(RING, table, splits)
    expected = twin.route(values, home, table, splits, salts)
    assert router.route(values, salt=np.array(salts, np.int64)).tolist() == expected
    assert dict(router.table) == table
    assert router.splits == {value: tuple(tasks) for value, tasks in splits.items()}


@given(routers())
def test_matches_dict(case):
    values, table, _ = case
    homes = dict(zip(values, RING.homes(values).tolist(), strict=True))
    router = pr.Router(RING, table)
    expected = [table.get(value, homes[value]) for value in values]
    assert router.route(values).tolist() == expected
    assert router.route(pr.keys(values)).tolist() == expected
    assert [router.route_one(value) for value in values] == expected


@given(st.dictionaries(int64, task, max_size=300), st.lists(int64, max_size=50))
def test_exact(table, others):
    router = pr.Router(RING, table)
    assert router.route(list(table)).tolist() == list(table.values())
    assert dict(router.table) == table
    assert len(router.table) == len(table)
    for value in others:
        assert (value in router.table) == (value in table)
        assert router.table.get(value) == table.get(value)


@pytest.mark.parametrize("size", [0, 1, 2, 5, 511, 512, 513, 3000, 100_000])
def test_exact_at_size(size):
    rng = np.random.default_rng(size)
    values = np.unique(rng.integers(-(2**63), 2**63 - 1, size))
    targets = rng.integers(0, TASKS, len(values)).astype(np.int32)
    router = pr.Router(RING, (values, targets))
    assert len(router.table) == len(values)
    assert (router.route(values) == targets).all()
    strangers = np.setdiff1d(rng.integers(-(2**63), 2**63 - 1, 2000), values)
    assert (router.route(strangers) == RING.homes(strangers)).all()


@given(routers(), st.lists(int64, max_size=20), st.lists(texts, max_size=20))
def test_total(case, numbers, words):
    _, table, _ = case
    router = pr.Router(RING, table)
    for values in (numbers, words, [None], list(table), [v.encode() for v in words]):
        tasks = router.route(values)
        assert tasks.dtype == np.int32
        assert set(tasks.tolist()) <= set(range(TASKS))


def test_total_without_surprise_ids():
    # Ids that an empty slot of the table might hold.
    for ids in ([0], [2**64 - 1], [42], [1]):
        keys = pr.Keys.from_ids(np.array(ids, np.uint64))
        for router in (pr.Router(RING), pr.Router(RING, {"x": 1}), pr.Router(RING, {7: 1, 8: 2})):
            assert router.route(keys).tolist() == [home(id_) for id_ in ids]


@settings(max_examples=effort(40))
@given(st.lists(task, min_size=1, max_size=TASKS, unique=True), st.lists(int64, max_size=40), texts)
def test_salted(tasks, salts, value):
    router = pr.Router(RING, splits={value: tasks})
    salt = np.array(salts, np.int64)
    routed = router.route([value] * len(salts), salt=salt)
    assert set(routed.tolist()) <= set(tasks)
    assert routed.tolist() == router.route([value] * len(salts), salt=salt).tolist()
    assert routed.tolist() == [twin.pick(key_twin.key(value), s, tasks) for s in salts]


def test_salts_spread_evenly():
    router = pr.Router(8, splits={"hot": [1, 4, 6, 7]})
    routed = router.route(pa.array(["hot"] * 40_000), salt=np.arange(40_000))
    counts = np.bincount(routed, minlength=8)
    assert counts[[0, 2, 3, 5]].tolist() == [0, 0, 0, 0]
    assert counts[[1, 4, 6, 7]] == pytest.approx([10_000] * 4, rel=0.05)


def test_stable():
    # Written down once, from the twin, and never regenerated.
    for vector in golden("splits"):
        value = untyped(vector["value"])
        salts = [int(salt) for salt in vector["salts"]]
        router = pr.Router(8, splits={value: vector["tasks"]})
        assert pr.keys([value]).ids.tolist() == [int(vector["id"])]
        routed = router.route([value] * len(salts), salt=np.array(salts, np.int64))
        assert routed.tolist() == vector["routes"]


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_route_one(kind):
    values = ONE_OF_EACH[kind]
    table = {values[0]: 3}
    for router in (pr.Router(RING), pr.Router(RING, table), pr.Router(RING, table, version=7)):
        assert [router.route_one(value) for value in values] == router.route(values).tolist()
    assert pr.Router(RING, table).route_one(values[0]) == 3
    assert isinstance(pr.Router(RING).route_one(values[0]), int)


def test_route_one_of_subclasses():
    class Text(str):
        __slots__ = ()

    class Number(int):
        pass

    router = pr.Router(RING, {"a": 3})
    assert router.route_one(Text("a")) == router.route([Text("a")])[0] == 3
    assert router.route_one(Number(5)) == router.route([5])[0]


def test_route_one_refuses():
    router = pr.Router(RING)
    for value in (1.5, float("nan"), [1], {}, object(), np.array([1, 2]), Decimal("1.5")):
        with pytest.raises(TypeError, match=SHAPE):
            router.route_one(value)
    for value in (2**63, -(2**63) - 1, "\ud800", np.datetime64(1, "ns")):
        with pytest.raises(ValueError, match=SHAPE):
            router.route_one(value)
    with pytest.raises(ValueError, match=SHAPE):
        pr.Router(RING, splits={"a": [1]}).route_one("a")


COLUMNS = {
    "list": ["a", "b", "c"],
    "object": np.array(["a", "b", "c"], object),
    "U": np.array(["a", "b", "c"]),
    "StringDType": np.array(["a", "b", "c"], np.dtypes.StringDType()),
    "pandas": pd.Series(["a", "b", "c"]),
    "category": pd.Series(["a", "b", "c"], dtype="category"),
    "polars": pl.Series(["a", "b", "c"]),
    "arrow": pa.array(["a", "b", "c"]),
    "view": pa.array(["a", "b", "c"], pa.string_view()),
    "dictionary": pa.array(["a", "b", "c"]).dictionary_encode(),
    "chunks": pa.chunked_array([["a"], [], ["b", "c"]]),
    "keys": pr.keys(["a", "b", "c"]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_table_from_columns(name):
    router = pr.Router(RING, (COLUMNS[name], np.array([4, 3, 2])))
    assert dict(router.table) == {"a": 4, "b": 3, "c": 2}
    assert router.route(COLUMNS[name]).tolist() == [4, 3, 2]
    assert router == pr.Router(RING, {"c": 2, "a": 4, "b": 3})


def test_table_gives_values_back():
    for kind in ("int", "str", "bytes", "bool", "None", "date", "tuple"):
        table = {value: i % TASKS for i, value in enumerate(ONE_OF_EACH[kind])}
        router = pr.Router(RING, table)
        assert dict(router.table) == table
        assert {type(value) for value in router.table} == {type(value) for value in table}
        assert dict(pickle.loads(pickle.dumps(router)).table) == table
        splits = dict.fromkeys(table, (1, 2))
        assert pr.Router(RING, splits=splits).splits == splits


def test_table_of_timestamps():
    moment = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    router = pr.Router(RING, {moment: 3})
    assert router.route([moment]).tolist() == [3]
    (value,) = router.table
    assert router.route([value]).tolist() == [3]


def test_table_is_read_only():
    router = pr.Router(RING, {"a": 1})
    with pytest.raises(TypeError):
        router.table["a"] = 2
    assert "a" in router.table
    assert "b" not in router.table
    assert router.table["a"] == 1
    with pytest.raises(KeyError):
        router.table["b"]


def test_unknown_tasks():
    for wrong in (TASKS, -1, 2**31 - 1):
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(RING, {"a": 1, "b": wrong})
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(RING, splits={"a": [1, wrong]})
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(pr.StormHash(TASKS), {"a": wrong})
    with pytest.raises(ValueError, match=SHAPE):
        pr.Router(pr.Ring([1, 3, 5]), {"a": 2})


def test_beyond_int32_is_no_other_task():
    for wrong in (2**32, 2**32 + 1, -(2**32) + 1):
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(RING, {"a": wrong})
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(RING, (["a"], np.array([wrong])))
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(RING, splits={"a": [wrong]})
    for wrong in (1.5, "1", None):
        with pytest.raises(TypeError, match=SHAPE):
            pr.Router(RING, {"a": wrong})
        with pytest.raises(TypeError, match=SHAPE):
            pr.Router(RING, splits={"a": [wrong]})


def test_duplicates():
    for values in (["a", "b", "a"], [1, 1], np.array([3, 3]), [("a", 1), ("a", 1)], [None, None]):
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(RING, (values, [0] * len(values)))
    with pytest.raises(ValueError, match=SHAPE):
        pr.Router(RING, {"a": 1}, splits={"a": [1, 2]})


def test_two_values_of_one_id():
    left = ("x", 7)
    right = ("y", key_twin.unhash_int(key_twin.key(*left), key_twin.key("y")))
    assert key_twin.key(*left) == key_twin.key(*right)
    assert pr.keys([left]).ids.tolist() == pr.keys([right]).ids.tolist()
    for table in ({left: 1, right: 2}, {left: 1, right: 1}):
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(RING, table)
    with pytest.raises(ValueError, match=SHAPE):
        pr.Router(RING, splits={left: [1], right: [2]})
    with pytest.raises(ValueError, match=SHAPE):
        pr.Router(RING, {left: 1}, splits={right: [2]})
    # Routing compares ids alone, everywhere.
    router = pr.Router(RING, {left: 3})
    assert router.route([right]).tolist() == router.route([left]).tolist() == [3]


def test_null_and_one_share_an_id_in_composites():
    with pytest.raises(ValueError, match=SHAPE):
        pr.Router(RING, {(None, "x"): 1, (1, "x"): 2})


def test_wrong_splits():
    for splits in ({"a": []}, {"a": [1, 1]}, {"a": [1, 2, 1]}):
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(RING, splits=splits)
    for splits in ({"a": 1}, {"a": "12"}, {"a": None}, ["a"], 5):
        with pytest.raises(TypeError, match=SHAPE):
            pr.Router(RING, splits=splits)


def test_kinds_of_table_and_splits():
    with pytest.raises(TypeError, match=SHAPE):
        pr.Router(RING, {"a": 1}, splits={5: [1]})
    with pytest.raises(TypeError, match=SHAPE):
        pr.Router(RING, {"a": 1, 5: 2})
    assert pr.Router(RING, {"a": 1, None: 2}).route([None, "a"]).tolist() == [2, 1]
    assert pr.Router(RING, {None: 2}, splits={"a": [1]}).route([None], salt=[0]).tolist() == [2]


def test_wrong_arguments():
    for table in (5, "ab", ["a"], (["a"],), (["a"], [1], [2])):
        with pytest.raises(TypeError, match=SHAPE):
            pr.Router(RING, table)
    for tasks in ([1], [1, 2, 3]):
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(RING, (["a", "b"], tasks))
    for wrong in ("ring", 2.5, None, [0, 1]):
        with pytest.raises(TypeError, match=SHAPE):
            pr.Router(wrong)
    for wrong in (0, -3):
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(wrong)
    with pytest.raises(ValueError, match=r"^version: expected .+, got .+"):
        pr.Router(RING, version=-1)
    with pytest.raises(TypeError, match=SHAPE):
        pr.Router(RING, version="1")


def test_salt_is_needed_where_there_are_splits():
    router = pr.Router(RING, {"b": 1}, splits={"a": [1, 2]})
    for values in (["a"], ["b"], ["z"]):
        with pytest.raises(ValueError, match=r"^salt: expected .+, got .+"):
            router.route(values)


def test_wrong_salt():
    router = pr.Router(RING, splits={"a": [1, 2]})
    for salt in ([], [1, 2], np.arange(3)):
        with pytest.raises(ValueError, match=r"^salt: expected .+, got .+"):
            router.route(["a"], salt=salt)
    for salt in ([1.5], np.array([1.5]), ["x"], "x", {1: 2}):
        with pytest.raises(TypeError, match=r"^salt: expected .+, got .+"):
            router.route(["a"], salt=salt)
    for salt in (np.zeros((1, 1), np.int64), [2**63], np.array([2**63], np.uint64)):
        with pytest.raises(ValueError, match=r"^salt: expected .+, got .+"):
            router.route(["a"], salt=salt)


def test_salt_of_every_width():
    router = pr.Router(RING, splits={"a": [0, 1, 2, 3, 4]})
    numbers = list(range(100))
    expected = [twin.pick(key_twin.key("a"), n, [0, 1, 2, 3, 4]) for n in numbers]
    for salt in (
        numbers,
        *(np.array(numbers, f"{sign}{width}") for sign in "iu" for width in (1, 2, 4, 8)),
    ):
        assert router.route(["a"] * 100, salt=salt).tolist() == expected


def test_one_salt_for_all():
    router = pr.Router(RING, splits={"a": [0, 1, 2, 3, 4]})
    for salt in (0, 5, -1, 2**63 - 1, -(2**63), np.int32(7)):
        expected = twin.pick(key_twin.key("a"), int(salt), [0, 1, 2, 3, 4])
        assert router.route(["a", "a"], salt=salt).tolist() == [expected] * 2


def test_salt_without_splits_changes_nothing():
    router = pr.Router(RING, {"a": 3})
    assert router.route(["a", "b"], salt=[1, 2]).tolist() == router.route(["a", "b"]).tolist()
    with pytest.raises(ValueError, match=r"^salt: expected .+, got .+"):
        router.route(["a", "b"], salt=[1])


@pytest.mark.parametrize("rows", [0, 1, 511, 512, 513, 1025])
def test_block_borders(rows):
    numbers = np.arange(rows)
    table = {n: n % TASKS for n in range(0, rows, 3)}
    splits = {n: [n % TASKS, (n + 1) % TASKS] for n in range(1, rows, 100) if n not in table}
    router = pr.Router(RING, table, splits)
    expected = twin.route(numbers.tolist(), home, table, splits, numbers.tolist())
    assert router.route(numbers, salt=numbers).tolist() == expected
    assert router.route(pr.keys(numbers), salt=numbers).tolist() == expected
    chunks = pa.chunked_array([pa.array(numbers[:7]), pa.array(numbers[7:])])
    assert router.route(chunks, salt=numbers).tolist() == expected


def test_empty():
    for router in (pr.Router(4), pr.Router(4, {}), pr.Router(4, ([], [])), pr.Router(4, {}, {})):
        assert dict(router.table) == {}
        assert router.splits == {}
        assert router == pr.Router(pr.Ring(4))
        for values in ([], np.array([], np.int64), pa.array([], pa.string()), pr.keys([])):
            routed = router.route(values)
            assert routed.shape == (0,)
            assert routed.dtype == np.int32
    salted = pr.Router(4, splits={"a": [1]})
    assert salted.route([], salt=[]).shape == (0,)


def test_accessors():
    ring = pr.Ring({1: 1, 3: 2, 5: 0})
    router = pr.Router(ring, {"a": 1}, {"b": [3, 5]}, version=7)
    assert router.home == ring
    assert router.version == 7
    assert list(router.tasks) == [1, 3, 5]
    assert router.nbytes > 0
    assert "Router" in repr(router)
    assert list(pr.Router(pr.SparkHash(3)).tasks) == [0, 1, 2]
    assert pr.Router(3).home == pr.Ring(3)


def test_fingerprint():
    base = pr.Router(4, {"a": 1}, {"b": [1, 2]}, version=3)
    same = pr.Router(4, {"a": 1}, {"b": [1, 2]}, version=4)
    assert base.fingerprint == same.fingerprint
    assert base != same
    others = [
        pr.Router(4),
        pr.Router(5, {"a": 1}, {"b": [1, 2]}),
        pr.Router(4, {"a": 2}, {"b": [1, 2]}),
        pr.Router(4, {"c": 1}, {"b": [1, 2]}),
        pr.Router(4, {"a": 1}, {"b": [2, 1]}),
        pr.Router(4, {"a": 1}),
        pr.Router(4, {}, {"b": [1, 2]}),
        pr.Router(pr.Ring(4, salt=1), {"a": 1}, {"b": [1, 2]}),
        pr.Router(pr.StormHash(4), {"a": 1}, {"b": [1, 2]}),
        pr.Router(pr.KafkaHash(4), {"a": 1}, {"b": [1, 2]}),
    ]
    assert len({router.fingerprint for router in (base, *others)}) == len(others) + 1
    # Text and bytes of one content are one key, so the routers route alike.
    assert pr.Router(4, {"a": 1}).fingerprint == pr.Router(4, {b"a": 1}).fingerprint


SAVED = [
    pr.Router(4),
    pr.Router(pr.Ring({3: 1, 9: 2}, salt=5).with_tasks([3, 9, 11]), {5: 9, -(2**63): 3}, version=8),
    pr.Router(4, {"a": 1, "é": 2, "": 3, None: 0}, {"b": [3, 1], "😀": [0]}),
    pr.Router(4, {b"\xff\x00": 1, b"": 2}),
    pr.Router(4, {("x", 2): 1, (None, 3): 2}, {("y", None): [1, 2]}),
    pr.Router(4, {True: 1, False: 2}),
    pr.Router(4, {date(2024, 2, 29): 1}),
    pr.Router(4, {datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC): 1}),
    pr.Router(pr.SparkHash(4), {5: 1}),
    pr.Router(pr.SparkHash(4, key_type=["string", "bigint"]), {("a", 5): 1}),
    pr.Router(pr.StormHash(4), {"a": 1}, {"b": [0, 3]}),
    pr.Router(pr.KafkaHash(4, serializer="bytes"), {b"a": 1}),
    pr.Router(pr.FlinkKeyGroup(4, max_parallelism=64, key_type="long"), {7: 1}),
]


@pytest.mark.parametrize("router", SAVED, ids=range(len(SAVED)))
def test_saved(router):
    for again in (
        pr.Router.from_json(router.to_json()),
        pr.Router.from_bytes(router.to_bytes()),
        pickle.loads(pickle.dumps(router)),
    ):
        assert again == router
        assert again.fingerprint == router.fingerprint
        assert again.version == router.version
        assert again.home == router.home
        assert dict(again.table) == dict(router.table)
        assert again.splits == router.splits
        assert again.to_bytes() == router.to_bytes()
        assert again.to_json() == router.to_json()


@pytest.mark.parametrize("router", SAVED, ids=range(len(SAVED)))
def test_bytes_without_values(router):
    bare = pr.Router.from_bytes(router.to_bytes(values=False))
    assert bare.fingerprint == router.fingerprint
    assert bare.version == router.version
    values = [*router.table, *router.splits]
    salts = np.arange(len(values))
    assert bare.route(values, salt=salts).tolist() == router.route(values, salt=salts).tolist()
    assert len(bare.table) == len(router.table)


def test_names_are_left_out():
    router = pr.Router(4, {"secret name": 1}, {"hidden name": [1, 2]})
    assert b"secret name" in router.to_bytes()
    assert b"hidden name" in router.to_bytes()
    bare = router.to_bytes(values=False)
    assert b"name" not in bare
    again = pr.Router.from_bytes(bare)
    assert again.to_bytes() == again.to_bytes(values=False) == bare


def test_a_table_without_names_is_a_mapping_still():
    table = pr.Router.from_bytes(pr.Router(4, {"a": 1, "b": 2}).to_bytes(values=False)).table
    assert len(table) == len(list(table)) == 2
    assert sorted(table.values()) == [1, 2]
    assert all(table[key] in (1, 2) for key in table)
    assert table["a"] == 1


def test_a_table_of_ids():
    ids = np.array([5, 2**64 - 1], np.uint64)
    router = pr.Router(RING, (pr.Keys.from_ids(ids), [3, 4]))
    assert router.route(pr.Keys.from_ids(ids)).tolist() == [3, 4]
    assert router.table.ids.tolist() == ids.tolist()
    assert sorted(router.table.values()) == [3, 4]


def test_a_table_of_another_router():
    router = pr.Router(RING, {"a": 3, "b": 4}, version=1)
    assert pr.Router(RING, router.table, version=1) == router
    assert dict(pr.Router(RING, router.table).table) == {"a": 3, "b": 4}
    bare = pr.Router.from_bytes(router.to_bytes(values=False))
    assert pr.Router(RING, bare.table, version=1) == router


def test_json_names_types():
    for value, typed in (
        (5, {"t": "i", "v": "5"}),
        (-(2**63), {"t": "i", "v": "-9223372036854775808"}),
        ("é", {"t": "s", "v": "é"}),
        (b"\xff\x00", {"t": "b", "v": "/wA="}),
        (None, {"t": "n"}),
        (True, {"t": "o", "v": True}),
        (date(1970, 1, 3), {"t": "d", "v": "2"}),
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), {"t": "t", "v": "2000000"}),
        (("x", 2), {"t": "tuple", "v": [{"t": "s", "v": "x"}, {"t": "i", "v": "2"}]}),
        (("x", None), {"t": "tuple", "v": [{"t": "s", "v": "x"}, {"t": "n"}]}),
    ):
        assert json.loads(pr.Router(4, {value: 3}).to_json())["table"] == [[typed, 3]]
        assert json.loads(pr.Router(4, splits={value: [3, 1]}).to_json())["splits"] == [
            [typed, [3, 1]]
        ]


def test_json_identifies_itself():
    router = pr.Router(4, {"a": 1}, version=6)
    document = json.loads(router.to_json())
    assert document["version"] == 6
    assert document["fingerprint"] == str(router.fingerprint)


def test_json_keeps_unknown_fields():
    document = json.loads(pr.Router(4, {"a": 1}).to_json())
    document["later"] = {"deep": [1, None, "é"]}
    again = pr.Router.from_json(json.dumps(document))
    assert json.loads(again.to_json()) == document
    assert again == pr.Router(4, {"a": 1})


def test_json_keeps_unknown_fields_of_the_home():
    document = json.loads(pr.Router(4).to_json())
    document["home"]["later"] = 5
    assert json.loads(pr.Router.from_json(json.dumps(document)).to_json()) == document


def test_json_without_names():
    router = pr.Router(4, {"a": 1}, {"b": [1, 2]}, version=3)
    bare = pr.Router.from_bytes(router.to_bytes(values=False))
    again = pr.Router.from_json(bare.to_json())
    assert again == bare
    assert again.fingerprint == router.fingerprint
    assert again.route(["a", "b", "c"], salt=[1, 2, 3]).tolist() == (
        router.route(["a", "b", "c"], salt=[1, 2, 3]).tolist()
    )


def damaged(change):
    document = json.loads(pr.Router(4, {"a": 1}, {"b": [1, 2]}).to_json())
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        "{}",
        "[" * 100_000,
        damaged(lambda d: d.pop("home")),
        damaged(lambda d: d.update(format="other")),
        damaged(lambda d: d.update(format_version=999)),
        damaged(lambda d: d.update(version=-1)),
        damaged(lambda d: d.update(version="x")),
        damaged(lambda d: d.update(fingerprint="1")),
        damaged(lambda d: d["home"].update(bytes="AAAA")),
        damaged(lambda d: d["home"].update(bytes="?")),
        damaged(lambda d: d["table"][0].__setitem__(1, 4)),
        damaged(lambda d: d["table"][0].__setitem__(1, "1")),
        damaged(lambda d: d["table"][0].__setitem__(0, "a")),
        damaged(lambda d: d["table"][0].__setitem__(0, {"t": "?", "v": "a"})),
        damaged(lambda d: d["table"][0].__setitem__(0, {"t": "i", "v": "9223372036854775808"})),
        damaged(lambda d: d["table"][0].__setitem__(0, {"t": "s", "v": "\ud800"})),
        damaged(lambda d: d["table"].append(d["table"][0])),
        damaged(lambda d: d["splits"][0].__setitem__(1, [])),
        damaged(lambda d: d["splits"][0].__setitem__(1, [1, 1])),
    ],
    ids=lambda text: text[:20],
)
def test_wrong_json(text):
    with pytest.raises(pr.FormatError, match=SHAPE):
        pr.Router.from_json(text)
