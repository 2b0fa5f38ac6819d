"""`apply_by_key`: equal to `groupBy(key).applyInArrow`, on partitions that a router makes."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers import exchanges, plan_text, zipf
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark.sql import functions as F
from pyspark.sql import types as T

import pyroute as pr
import spark_udf as su
from spark_udf.udfs import shipped

ALIKE = "customer-0000042", "user-ofg)!'_qdXC"  # two texts of one id
TOTALS = "k bigint, n bigint, s bigint"


@pytest.fixture(scope="module")
def skewed(spark):
    frame = pd.DataFrame({"k": zipf(20_000, 300), "v": np.arange(20_000)})
    return spark.createDataFrame(frame).cache()


def make_totals():
    # Made here, so that workers get it by value: they cannot import this file.
    def totals(key, table):
        return pa.table(
            {
                "k": pa.array([key[0].as_py()], pa.int64()),
                "n": [table.num_rows],
                "s": [pc.sum(table["v"]).as_py()],
            }
        )

    return totals


def make_merge():
    def merge(table):
        return pa.table(
            {
                "k": table["k"].slice(0, 1),
                "n": [pc.sum(table["n"]).as_py()],
                "s": [pc.sum(table["s"]).as_py()],
            }
        )

    return merge


def rows(df):
    return Counter(map(tuple, df.collect()))


def test_equals_spark(skewed):
    totals = make_totals()
    router = pr.Router(5, {0: 3, 1: 4})
    mine = su.apply_by_key(skewed, router, "k", func=totals, schema=TOTALS)
    assert mine.columns == ["k", "n", "s"]
    assert exchanges(mine) == 1
    assert rows(mine) == rows(skewed.groupBy("k").applyInArrow(totals, TOTALS))


def test_where_the_router_says(skewed):
    def where(key, table):
        from pyspark import TaskContext

        return pa.table({"k": [key[0].as_py()], "p": [TaskContext.get().partitionId()]})

    router = pr.Router(5, {0: 3})
    got = su.apply_by_key(skewed, router, "k", func=where, schema="k bigint, p int").toPandas()
    assert (router.route(got.k.to_numpy()) == got.p.to_numpy()).all()
    ring = pr.Router(pr.Ring([3, 7, 8]), {0: 3})
    got = su.apply_by_key(skewed, ring, "k", func=where, schema="k bigint, p int").toPandas()
    assert (ring.route(got.k.to_numpy()) == np.array([3, 7, 8])[got.p.to_numpy()]).all()


def test_of_balanced(skewed):
    totals = make_totals()
    made = su.balance(skewed, "k", tasks=6)
    mine = made.apply_by_key(totals, TOTALS)
    assert exchanges(mine) == 1  # that of balance
    wanted = rows(skewed.groupBy("k").applyInArrow(totals, TOTALS))
    assert rows(mine) == wanted
    again = su.apply_by_key(made.df, made.router, "k", func=totals, schema=TOTALS)
    assert rows(again) == wanted
    with pytest.raises(TypeError, match="df: expected a DataFrame, got Balanced: use its own"):
        su.apply_by_key(made, made.router, "k", func=totals, schema=TOTALS)


@pytest.mark.parametrize("length", [1, 3, 10_000])
def test_framing(spark, length):
    df = spark.createDataFrame(
        [(k, None if k == "" else k[:1] or None, i) for i, k in enumerate(["", "b", "a", "b"] * 3)],
        "a string, b string, v bigint",
    )

    def count(key, table):
        assert table.schema.names == ["a", "b", "v"], table.schema
        parts = [part.as_py() for part in key]
        return pa.table({"key": [str(parts)], "v": [sorted(table["v"].to_pylist())]})

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(length))
    try:
        made = su.apply_by_key(
            df, pr.Router(2), "a", "b", func=count, schema="key string, v array<bigint>"
        )
        assert {row.key: row.v for row in made.collect()} == {
            "['', None]": [0, 4, 8],
            "['a', 'a']": [2, 6, 10],
            "['b', 'b']": [1, 3, 5, 7, 9, 11],
        }
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")


def test_by_value(spark):
    texts = 20 * [*ALIKE, None]
    df = spark.createDataFrame([*enumerate(texts), (60, "42")], "v int, k string")

    def count(key, table):
        return pa.table({"k": pa.array([key[0].as_py()], pa.string()), "n": [table.num_rows]})

    def merge(key, table):
        n = pc.sum(table["n"]).as_py()
        return pa.table({"k": pa.array([key[0].as_py()], pa.string()), "n": [n]})

    wanted = {ALIKE[0]: 20, ALIKE[1]: 20, None: 20, "42": 1}
    for router in (pr.Router(3), pr.Router(3, splits={ALIKE[0]: [0, 1, 2], None: [2, 0]})):
        got = su.apply_by_key(
            df, router, "k", func=count, merge=merge, schema="k string, n bigint"
        ).collect()
        assert len(got) == 4
        assert {row.k: row.n for row in got} == wanted


KEYS = {
    "int": "cast(id % 3 as int)",
    "boolean": "id % 2 = 0",
    "date": "date_add(date '2024-01-01', cast(id % 3 as int))",
    "timestamp": "timestamp_micros(id % 3)",
    "timestamp_ntz": "cast(timestamp_micros(id % 3) as timestamp_ntz)",
    "decimal(20,0)": "cast(id % 3 as decimal(20, 0))",
    "binary": "cast(cast(id % 3 as string) as binary)",
    "void": "null",
}


@pytest.mark.parametrize("kind", KEYS)
def test_types_of_keys(spark, kind):
    def count(table):
        return pa.table({"k": table["k"].slice(0, 1), "n": [table.num_rows]})

    def merge(table):
        return pa.table({"k": table["k"].slice(0, 1), "n": [pc.sum(table["n"]).as_py()]})

    df = spark.range(30).select(F.expr(KEYS[kind]).alias("k"), F.col("id").alias("v"))
    keys = df.toArrow()["k"]
    value = pr.Snapshot(pr.keys(keys[:1]), [1.0]).values[0]
    router = pr.Router(3, splits={value: [0, 2]})
    got = su.apply_by_key(df, router, "k", func=count, merge=merge, schema=f"k {kind}, n bigint")
    got = {str(row["k"]): row["n"] for row in got.toArrow().to_pylist()}
    assert got == Counter(map(str, keys.to_pylist()))


def test_expression_as_key(skewed):
    def count(key, table):
        assert table.schema.names == ["k", "v"], table.schema
        assert len(set(table["v"].to_numpy() % 7)) == 1
        return pa.table({"m": [key[0].as_py()], "n": [table.num_rows]})

    schema = "m bigint, n bigint"
    got = su.apply_by_key(skewed, pr.Router(3), F.col("v") % 7, func=count, schema=schema)
    assert rows(got) == rows(skewed.groupBy(F.col("v") % 7).count())
    split = pr.Router(3, splits={4: [0, 1, 2]})
    got = su.apply_by_key(
        skewed, split, skewed["v"] % 7, func=count, schema=schema, merge=lambda table: table
    )
    assert {row.m for row in got.collect()} == set(range(7))
    assert rows(got.groupBy("m").agg(F.sum("n"))) == rows(skewed.groupBy(F.col("v") % 7).count())


def test_split_keys(spark, skewed):
    calls, merges = spark_count(spark), spark_count(spark)
    totals, merge = make_totals(), make_merge()

    def func(key, table):
        calls.append(key[0].as_py())
        return totals(key, table)

    def final(key, table):
        merges.append((key[0].as_py(), table["k"].to_pylist()))
        return merge(table)

    router = pr.Router(5, {7: 1}, splits={0: [0, 1, 2, 3, 4], 1: [4, 2]})
    mine = su.apply_by_key(skewed, router, "k", func=func, schema=TOTALS, merge=final)
    assert exchanges(mine) == 2
    assert plan_text(mine).count("MapInArrow") == 2
    wanted = rows(skewed.groupBy("k").applyInArrow(make_totals(), TOTALS))
    assert rows(mine) == wanted
    keys = Counter(calls.read())
    assert keys.pop(0) == 5
    assert keys.pop(1) == 2
    assert set(keys.values()) == {1}
    assert sorted(merges.read()) == [(0, [0] * 5), (1, [1, 1])]


def spark_count(spark):
    """A list that tasks of this machine append to, a line each."""
    import json
    import tempfile

    path = tempfile.mkstemp(prefix="pyroute-calls-")[1]

    class Lines:
        def append(self, value):
            with open(path, "a") as out:  # noqa: PTH123
                out.write(json.dumps(value) + "\n")

        def read(self):
            with open(path) as lines:  # noqa: PTH123
                values = [json.loads(line) for line in lines]
            os.unlink(path)  # noqa: PTH108
            return [tuple(value) if isinstance(value, list) else value for value in values]

    return Lines()


def test_split_of_balanced(spark):
    df = spark.range(6000).select(
        F.when(F.col("id") % 2 == 0, F.lit(-1)).otherwise(F.col("id") % 50).alias("k"),
        F.col("id").alias("v"),
    )
    made = su.balance(df, "k", tasks=6, mergeable=True)
    assert set(made.router.splits) == {-1}
    with pytest.raises(ValueError, match=r"merge: expected a function, got none: .* 1 split"):
        made.apply_by_key(make_totals(), TOTALS)
    mine = made.apply_by_key(make_totals(), TOTALS, make_merge())
    assert exchanges(mine) == 2  # that of balance, and that of the answers
    assert rows(mine) == rows(df.groupBy("k").applyInArrow(make_totals(), TOTALS))


def test_partial_answers_in_order(spark):
    df = spark.range(1000).select(F.lit("a").alias("k"), F.col("id").alias("v"))

    def place(table):
        from pyspark import TaskContext

        return pa.table({"places": [[TaskContext.get().partitionId()]]})

    def merge(table):
        return pa.table({"places": [[one for part in table["places"].to_pylist() for one in part]]})

    router = pr.Router(5, splits={"a": [3, 0, 4, 1]})
    got = su.apply_by_key(
        df, router, "k", func=place, schema="places array<int>", merge=merge
    ).collect()
    assert [row.places for row in got] == [[0, 1, 3, 4]]


def test_answers_of_many_kinds(skewed):
    def batch(table):
        return table.slice(0, 1).to_batches()[0]

    def batches(table):
        yield from table.slice(0, 1).to_batches()
        yield from table.slice(0, 0).to_batches()

    class Counted:
        def __call__(self, table):
            return table.slice(0, 1)

        def method(self, key, table):
            return table.slice(0, 1)

    keys = {(row.k,) for row in skewed.select("k").distinct().collect()}
    for func in (batch, batches, Counted(), Counted().method):
        got = su.apply_by_key(skewed, pr.Router(3), "k", func=func, schema=skewed.schema)
        assert {(row.k,) for row in got.collect()} == keys


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("splits", [None, {0: [0, 2]}])
def test_few_rows(spark, n, splits):
    df = spark.range(n).select(F.col("id").alias("k"), F.col("id").alias("v"))
    got = su.apply_by_key(
        df,
        pr.Router(4, splits=splits),
        "k",
        func=make_totals(),
        schema=TOTALS,
        merge=make_merge(),
    )
    assert [tuple(row) for row in got.collect()] == [(0, 1, 0)][:n]


def test_answers_without_rows(skewed):
    def nothing(table):
        return table.slice(0, 0)

    router = pr.Router(4, splits={0: [0, 2]})
    got = su.apply_by_key(
        skewed, router, "k", func=nothing, schema=skewed.schema, merge=lambda table: table / 0
    )
    assert got.count() == 0


def test_larger_than_memory(spark):
    """A partition of four times what a worker may grow by, in groups of a megabyte."""
    limit, size, per_key, keys = 32 << 20, 1 << 10, 1 << 10, 128
    assert size * per_key * keys == 4 * limit

    def watch(key, table):
        with open("/proc/self/statm") as numbers:  # noqa: PTH123
            resident = int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        length = pc.sum(pc.binary_length(table["v"])).as_py()
        return pa.table({"pid": [os.getpid()], "rss": [resident], "bytes": [length]})

    def run(rows):
        payload = F.rpad(F.col("id").cast("string"), size, "x")
        df = spark.range(rows).repartition(2).select((F.col("id") % keys).alias("k"), payload)
        schema = "pid bigint, rss bigint, bytes bigint"
        named = df.toDF("k", "v")
        return su.apply_by_key(named, pr.Router(1), "k", func=watch, schema=schema).toPandas()

    before = run(keys).rss.max()  # a worker that has all code and next to no data
    got = run(keys * per_key)
    assert got.pid.nunique() == 1
    assert len(got) == keys
    assert got.bytes.sum() == 4 * limit
    print(f"grew by {(got.rss.max() - before) >> 20} MiB of {limit >> 20}")
    assert got.rss.max() - before < limit


UNDER_A_LIMIT = """
import sys

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from spark_udf.session import local_session

LIMIT, SIZE = int(sys.argv[1]), 1 << 12
conf = {
    "spark.executor.pyspark.memory": f"{LIMIT >> 20}m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}
spark = local_session("local[1]", conf)
keys = 256
rows = 4 * LIMIT // SIZE
payload = F.rpad(F.col("id").cast("string"), SIZE, "x")
df = spark.range(rows).repartition(2).select((F.col("id") % keys).alias("k"), payload.alias("v"))
schema = "bound bigint, bytes bigint"


def size(table):
    import resource

    total = pc.sum(pc.binary_length(table["v"])).as_py()
    return pa.table({"bound": [resource.getrlimit(resource.RLIMIT_AS)[0]], "bytes": [total]})


def whole(batches):
    yield from size(pa.Table.from_batches(batches)).to_batches()


got = su.apply_by_key(df, pr.Router(1), "k", func=size, schema=schema).toPandas()
assert len(got) == keys
assert set(got.bound) == {LIMIT}, "Spark has to impose the limit"
assert got.bytes.sum() == 4 * LIMIT
try:
    df.coalesce(1).mapInArrow(whole, schema).collect()
except Exception as error:
    assert "MemoryError" in str(error) or "malloc" in str(error), error
else:
    sys.exit("a whole partition has to be more than the limit allows")
print("passed")
"""


def test_four_times_the_memory_of_a_worker(tmp_path):
    """Under the limit that Spark imposes on its workers, where a whole partition does not fit."""
    script = tmp_path / "job.py"
    script.write_text(UNDER_A_LIMIT)
    # The limit is of addresses: threads of libraries take many that nobody uses.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, str(768 << 20)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("passed\n"), done.stderr[-3000:]


def test_worker_without_pyroute(monkeypatch):
    """What is shipped needs nothing of this package to be read, and says what is missing."""
    work = shipped("applied", lambda table: table, False, module="_groups")
    data = cloudpickle.dumps(work)
    monkeypatch.setitem(sys.modules, "spark_udf._groups", None)
    with pytest.raises(ImportError, match="pyroute is not installed for the Python of this exec"):
        cloudpickle.loads(data)(iter(()))


def test_needs_no_state_of_the_driver(skewed):
    factor = 3

    def scaled(table):
        return pa.table({"s": [factor * pc.sum(table["v"]).as_py()]})

    got = su.apply_by_key(skewed, pr.Router(3), "k", func=scaled, schema="s bigint")
    total = skewed.agg(F.sum("v")).first()[0]
    assert got.agg(F.sum("s")).first()[0] == 3 * total


def test_schema_as_type(skewed):
    schema = T.StructType([T.StructField("s", T.DoubleType(), nullable=False)])

    def double(table):
        return pa.table({"s": pc.cast(table["v"].slice(0, 1), pa.float64())})

    got = su.apply_by_key(skewed, pr.Router(3), "k", func=double, schema=schema)
    assert got.dtypes == [("s", "double")]
    assert got.count() == skewed.select("k").distinct().count()


def test_wrong_answers(skewed):
    def other(table):
        return table.rename_columns(["k", "w"])

    got = su.apply_by_key(skewed, pr.Router(3), "k", func=other, schema="k bigint, v bigint")
    with pytest.raises(PythonException, match="func: expected the columns k, v, got k, w"):
        got.collect()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"func": 3}, TypeError, "func: expected a function, got int"),
        ({"func": lambda: 0}, ValueError, r"func: expected the parameters \(table\) .* got 0"),
        ({"func": lambda a, b, c: 0}, ValueError, "func: expected the parameters .* got 3"),
        ({"merge": lambda a, b, c: 0}, ValueError, "merge: expected the parameters .* got 3"),
        ({"schema": 3}, TypeError, "schema: expected a StructType or a string, got int"),
        ({"schema": "a int, a int"}, ValueError, "schema: expected distinct names, got a, a"),
        ({"router": 3}, TypeError, "router: expected a Router, got int"),
        ({"df": [1]}, TypeError, "df: expected a DataFrame, got list"),
        ({"router": pr.Router(3, splits={1: [0, 1]})}, ValueError, "merge: expected a function"),
        (
            {
                "router": pr.Router(3, splits={1: [0, 1]}),
                "merge": lambda table: table,
                "schema": "pyroute_part int",
            },
            ValueError,
            "schema: expected other names than .* got pyroute_part",
        ),
    ],
)
def test_bad_input(skewed, arguments, error, text):
    arguments = {
        "df": skewed,
        "router": pr.Router(3),
        "func": lambda table: table,
        "schema": "k bigint, v bigint",
        **arguments,
    }
    with pytest.raises(error, match=text):
        su.apply_by_key(arguments.pop("df"), arguments.pop("router"), "k", **arguments)
