"""Engine homes: the task that Spark, Storm, Kafka and Flink themselves give a key."""

import pickle
import uuid
from collections import defaultdict
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from reference import golden, untyped
from reference import homes as twin

pytestmark = pytest.mark.kernel

SHAPE = r"^\w[\w .\[\]()]*: expected .+, got .+"
ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "bytes": pa.binary(),
    "uuid": pa.string(),
}
texts = st.text(st.characters(codec="utf-8"))


def ints(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


STRATEGIES = {
    "boolean": st.booleans(),
    "tinyint": ints(8),
    "byte": ints(8),
    "smallint": ints(16),
    "short": ints(16),
    "int": ints(32),
    "integer": ints(32),
    "bigint": ints(64),
    "long": ints(64),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "string": texts,
    "binary": st.binary(max_size=40),
    "bytes": st.binary(max_size=40),
    "uuid": st.uuids(),
}
SPARK = ["boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "string", "binary"]
STORM = ["string", "long", "int", "short", "byte", "boolean", "bytes"]
FLINK = ["string", "long", "int", "short", "byte", "boolean"]
KAFKA = ["string", "long", "integer", "short", "bytes", "uuid"]
HOMES = {
    "spark": (pr.SparkHash, SPARK),
    "storm": (pr.StormHash, STORM),
    "flink": (pr.FlinkKeyGroup, FLINK),
}


def arrow_column(type_, values):
    if type_ in ("date", "timestamp"):
        width = pa.int32() if type_ == "date" else pa.int64()
        return pa.array(values, width).cast(ARROW[type_])
    return pa.array(values, ARROW[type_])


def of_vector(engine, vector):
    """Return the home of one vector as hashable arguments, and its types."""
    if engine == "kafka":
        return (vector["tasks"], vector["serializer"]), (vector["serializer"],)
    types = tuple(vector["types"])
    return (vector["tasks"], types, vector.get("max_parallelism")), types


def make(engine, arguments):
    if engine == "kafka":
        tasks, serializer = arguments
        return pr.KafkaHash(tasks, serializer=serializer)
    tasks, types, max_parallelism = arguments
    key_type = types[0] if len(types) == 1 else types
    if engine == "flink":
        return pr.FlinkKeyGroup(tasks, max_parallelism=max_parallelism, key_type=key_type)
    return HOMES[engine][0](tasks, key_type=key_type)


def twin_home(engine, arguments, row):
    if engine == "kafka":
        tasks, serializer = arguments
        return twin.kafka(row[0], serializer, tasks)
    tasks, types, max_parallelism = arguments
    if engine == "flink":
        return twin.flink(row, types, tasks, max_parallelism)
    return getattr(twin, engine)(row, types, tasks)


@pytest.mark.parametrize("engine", ["spark", "storm", "kafka", "flink"])
def test_engine_vectors(engine):
    groups = defaultdict(list)
    for vector in golden(f"home_{engine}"):
        values = vector["values"] if "values" in vector else [vector["value"]]
        arguments, types = of_vector(engine, vector)
        groups[arguments, types].append(([untyped(v) for v in values], vector["home"]))
    for (arguments, types), rows in groups.items():
        expected = [home for _, home in rows]
        assert [twin_home(engine, arguments, row) for row, _ in rows] == expected
        columns = zip(*(row for row, _ in rows), strict=True)
        keys = pr.keys(*(arrow_column(t, list(c)) for t, c in zip(types, columns, strict=True)))
        assert make(engine, arguments).homes(keys).tolist() == expected, arguments


@given(st.sampled_from(sorted(HOMES)), st.data(), st.integers(1, 100), st.booleans())
def test_matches_reference(engine, data, tasks, nullable):
    names = HOMES[engine][1]
    types = tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))
    fields = [STRATEGIES[type_] for type_ in types]
    if nullable and engine != "flink":
        fields = [st.none() | field for field in fields]
    rows = data.draw(st.lists(st.tuples(*fields)))
    arguments = (tasks, types, 128)
    expected = [twin_home(engine, arguments, row) for row in rows]
    home = make(engine, arguments)
    assert home.homes(rows if len(types) > 1 else [row[0] for row in rows]).tolist() == expected
    if rows:
        keys = pr.keys(*(list(column) for column in zip(*rows, strict=True)))
        assert home.homes(keys).tolist() == expected


@given(st.sampled_from(KAFKA), st.data(), st.integers(1, 2**31 - 1))
def test_kafka_matches_reference(serializer, data, tasks):
    values = data.draw(st.lists(STRATEGIES[serializer]))
    home = pr.KafkaHash(tasks, serializer=serializer)
    assert home.homes(values).tolist() == [twin.kafka(v, serializer, tasks) for v in values]


@given(st.integers(1, 32768), st.data(), st.lists(texts))
def test_flink_max_parallelism(max_parallelism, data, values):
    tasks = data.draw(st.integers(1, max_parallelism))
    home = pr.FlinkKeyGroup(tasks, max_parallelism=max_parallelism)
    expected = [twin.flink([v], ["string"], tasks, max_parallelism) for v in values]
    assert home.homes(values).tolist() == expected


def each_home():
    return [
        pr.SparkHash(8, key_type="string"),
        pr.StormHash(8),
        pr.KafkaHash(8),
        pr.FlinkKeyGroup(8),
    ]


def test_ids_alone_are_refused():
    bare = pr.Keys.from_ids(np.array([1, 2], np.uint64))
    for home in each_home():
        with pytest.raises(TypeError, match=SHAPE):
            home.homes(bare)
        with pytest.raises(TypeError, match=SHAPE):
            pr.Router(home).route(bare)
    assert pr.Router(pr.Ring(8)).route(bare).shape == (2,)


def test_null():
    assert pr.SparkHash(8, key_type="string").homes([None, "a"]).tolist() == [
        twin.spark([None], ["string"], 8),
        twin.spark(["a"], ["string"], 8),
    ]
    assert pr.SparkHash(50).homes([None]).tolist() == [42]
    assert pr.StormHash(8).homes([None]).tolist() == [twin.storm([None], ["string"], 8)]
    for home in (pr.KafkaHash(8), pr.FlinkKeyGroup(8)):
        for values in (["a", None], [None], pa.array(["a", None])):
            with pytest.raises(ValueError, match=SHAPE):
                home.homes(values)


@pytest.mark.parametrize("rows", [0, 1, 511, 512, 513, 1025])
def test_block_borders(rows):
    numbers = list(range(-5, rows - 5))
    words = [f"é {n}" for n in numbers]
    for column in (numbers, np.array(numbers, np.int64), pa.array(numbers, pa.int64())):
        expected = [twin.spark([n], ["bigint"], 7) for n in numbers]
        assert pr.SparkHash(7).homes(column).tolist() == expected
        expected = [twin.flink([n], ["long"], 7) for n in numbers]
        assert pr.FlinkKeyGroup(7, key_type="long").homes(column).tolist() == expected
    for column in (words, pa.array(words, pa.string()), pa.array(words, pa.string_view())):
        expected = [twin.storm([word], ["string"], 7) for word in words]
        assert pr.StormHash(7).homes(column).tolist() == expected
        expected = [twin.kafka(word, "string", 7) for word in words]
        assert pr.KafkaHash(7).homes(column).tolist() == expected


def test_empty():
    two = pr.StormHash(4, key_type=["string", "long"])
    for home, column in ((pr.SparkHash(4), []), (pr.KafkaHash(4), []), (two, []), (two, ())):
        assert home.homes(column).shape == (0,)
        assert pr.Router(home).route(column).shape == (0,)
    assert two.homes(pr.keys(pa.array([], pa.string()), np.array([], np.int64))).shape == (0,)


def test_dictionaries_and_slices():
    words = ["x", None, "é", "", "x"] * 300
    expected = [twin.spark([word], ["string"], 9) for word in words]
    home = pr.SparkHash(9, key_type="string")
    column = pa.array(words).dictionary_encode()
    assert home.homes(column).tolist() == expected
    assert home.homes(column.slice(7, 600)).tolist() == expected[7:607]
    assert home.homes(pa.chunked_array([column.slice(0, 3), column.slice(3)])).tolist() == expected


def test_numbers_of_any_width_that_fit():
    for width in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        column = np.array([0, 1, 127], width)
        for type_ in ("tinyint", "smallint", "int", "bigint"):
            expected = [twin.spark([n], [type_], 100) for n in (0, 1, 127)]
            assert pr.SparkHash(100, key_type=type_).homes(column).tolist() == expected


@pytest.mark.parametrize(
    ("home", "number"),
    [
        (pr.SparkHash(8, key_type="tinyint"), 128),
        (pr.SparkHash(8, key_type="smallint"), -(2**15) - 1),
        (pr.SparkHash(8, key_type="int"), 2**31),
        (pr.StormHash(8, key_type="byte"), -129),
        (pr.StormHash(8, key_type="int"), 2**31),
        (pr.KafkaHash(8, serializer="short"), 2**15),
        (pr.KafkaHash(8, serializer="integer"), -(2**31) - 1),
        (pr.FlinkKeyGroup(8, key_type="int"), 2**31),
    ],
)
def test_number_outside_its_type(home, number):
    for values in ([0, number], np.array([number]), pa.array([0, number])):
        with pytest.raises(ValueError, match=SHAPE):
            home.homes(values)
        with pytest.raises(ValueError, match=SHAPE):
            pr.Router(home, {5: 1}).route(values)


WRONG_KINDS = {
    "text for bigint": (pr.SparkHash(8), ["a"]),
    "ints for string": (pr.SparkHash(8, key_type="string"), [1]),
    "bytes for string": (pr.StormHash(8), [b"a"]),
    "text for bytes": (pr.KafkaHash(8, serializer="bytes"), ["a"]),
    "ints for text": (pr.KafkaHash(8), [1]),
    "bool for int": (pr.SparkHash(8, key_type="int"), [True]),
    "int for boolean": (pr.SparkHash(8, key_type="boolean"), [1]),
    "date for timestamp": (pr.SparkHash(8, key_type="timestamp"), [date(2024, 1, 1)]),
    "timestamp for date": (pr.SparkHash(8, key_type="date"), [datetime(2024, 1, 1, tzinfo=UTC)]),
    "two columns for one": (pr.StormHash(8), [("a", "b")]),
    "one column for two": (pr.StormHash(8, key_type=["string", "string"]), ["a"]),
    "wrong second column": (pr.StormHash(8, key_type=["string", "long"]), [("a", "b")]),
    "float": (pr.SparkHash(8), [1.5]),
}


@pytest.mark.parametrize("name", WRONG_KINDS)
def test_wrong_kind(name):
    home, values = WRONG_KINDS[name]
    with pytest.raises(TypeError, match=SHAPE):
        home.homes(values)
    with pytest.raises(TypeError, match=SHAPE):
        pr.Router(home).route(values)


@pytest.mark.parametrize("make_home", [pr.SparkHash, pr.StormHash, pr.KafkaHash, pr.FlinkKeyGroup])
def test_wrong_tasks(make_home):
    for tasks in (0, -1, 2**31):
        with pytest.raises(ValueError, match=SHAPE):
            make_home(tasks)
    for tasks in ("4", 2.5, None):
        with pytest.raises(TypeError):
            make_home(tasks)


def test_wrong_options():
    for call in (
        lambda: pr.SparkHash(8, key_type="double"),
        lambda: pr.SparkHash(8, key_type="long"),
        lambda: pr.SparkHash(8, key_type=[]),
        lambda: pr.StormHash(8, key_type="bigint"),
        lambda: pr.KafkaHash(8, serializer="double"),
        lambda: pr.FlinkKeyGroup(8, key_type="bytes"),
        lambda: pr.FlinkKeyGroup(8, max_parallelism=7),
        lambda: pr.FlinkKeyGroup(8, max_parallelism=32769),
        lambda: pr.FlinkKeyGroup(8, max_parallelism=0),
    ):
        with pytest.raises(ValueError, match=SHAPE):
            call()


def test_uuids():
    values = [uuid.UUID(int=i**30) for i in range(1, 9)]
    home = pr.KafkaHash(12, serializer="uuid")
    expected = [twin.kafka(str(value), "uuid", 12) for value in values]
    assert home.homes(values).tolist() == expected
    assert home.homes([str(value) for value in values]).tolist() == expected
    raw = pa.array([value.bytes for value in values], pa.binary(16))
    assert home.homes(pa.ExtensionArray.from_storage(pa.uuid(), raw)).tolist() == expected


def test_accessors():
    homes = [
        *each_home(),
        pr.SparkHash(9, key_type="string"),
        pr.SparkHash(8, key_type=["string", "bigint"]),
        pr.StormHash(8, key_type="long"),
        pr.FlinkKeyGroup(8, max_parallelism=256),
    ]
    assert len({home.fingerprint for home in homes}) == len(homes)
    for home in homes:
        again = pickle.loads(pickle.dumps(home))
        assert again == home
        assert again.fingerprint == home.fingerprint
        assert type(home).from_bytes(home.to_bytes()) == home
        assert type(home).__name__ in repr(home)
        assert tuple(home.tasks) == tuple(range(9 if home == homes[4] else 8))
    assert all((a == b) == (a is b) for a in homes for b in homes)


@given(st.lists(texts), st.dictionaries(texts, st.integers(0, 6), max_size=5))
def test_router_over_an_engine(values, table):
    for engine, home in (("storm", pr.StormHash(7)), ("spark", pr.SparkHash(7, key_type="string"))):
        router = pr.Router(home, table)
        probes = [*values, *table]
        expected = [table.get(v, getattr(twin, engine)([v], ["string"], 7)) for v in probes]
        assert router.route(probes).tolist() == expected
        assert [router.route_one(value) for value in probes] == expected
