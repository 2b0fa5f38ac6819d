"""`route` as a JVM expression equals `Router.route`, without a Python worker."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from helpers import exchanges, partitions, plan_text
from pyspark.sql import functions as F
from test_key import frame_of

import pyroute as pr
import spark_udf as su
from spark_udf.route import exchange

GOLDEN = Path(__file__).parent.parent / "golden" / "home_spark.json"


@pytest.fixture(scope="module")
def rows(spark):
    df = spark.range(20_000).select(
        F.col("id").alias("k"),
        (F.col("id") % 97).cast("int").alias("i"),
        F.when(F.col("id") % 11 != 0, F.concat(F.lit("user"), F.col("id") % 500)).alias("s"),
    )
    return df.cache()


def expected(router, df, *names, salt=None):
    table = df.toArrow()
    salts = None if salt is None else table.column(salt).to_numpy()
    return router.route(pr.keys(*(table.column(n).combine_chunks() for n in names)), salt=salts)


@pytest.mark.parametrize("entries", [0, 1, 3000, 50_000])
def test_ring(rows, entries):
    router = pr.Router(8, {k: k % 8 for k in range(entries)})
    got = rows.select(su.route(router, "k")).toPandas()
    assert list(got.columns) == ["pyroute_task"]
    assert got.pyroute_task.dtype == np.int32
    assert (got.pyroute_task.to_numpy() == expected(router, rows, "k")).all()


def test_tasks_with_gaps(rows):
    router = pr.Router(pr.Ring({3: 1.0, 70: 2.0, 1000: 0.5}), {5: 3, 6: 70})
    got = rows.select(su.route(router, "k")).toPandas().pyroute_task.to_numpy()
    assert (got == expected(router, rows, "k")).all()


def test_strings_nulls_and_composites(rows):
    router = pr.Router(5, {"user7": 1, "user8": 2})
    got = rows.select(su.route(router, "s")).toPandas().pyroute_task.to_numpy()
    assert (got == expected(router, rows, "s")).all()
    pairs = pr.Router(5, {("user7", 3): 1, (None, 5): 2})
    got = rows.select(su.route(pairs, "s", "i")).toPandas().pyroute_task.to_numpy()
    assert (got == expected(pairs, rows, "s", "i")).all()


def test_null_key_in_the_table(rows):
    router = pr.Router(5, {None: 4, "user7": 1})
    got = rows.select("s", su.route(router, "s").alias("t")).toPandas()
    assert set(got[got.s.isna()].t) == {4}


def test_splits(rows):
    router = pr.Router(8, {"user1": 2}, splits={"user5": [1, 2, 3], "user7": [0, 4], None: [6, 7]})
    salted = rows.select("s", F.xxhash64("s", "k").alias("salt"))
    got = salted.select(su.route(router, "s", salt="salt")).toPandas().pyroute_task.to_numpy()
    assert (got == expected(router, salted, "s", salt="salt")).all()
    with pytest.raises(ValueError, match="salt: expected a column, got none"):
        su.route(router, "s")


def test_spark_hash_vectors(spark):
    groups = defaultdict(list)
    for vector in json.loads(GOLDEN.read_text())["vectors"]:
        if not any(kind.startswith("decimal") for kind in vector["types"]):
            groups[tuple(vector["types"])].append({**vector, "id": json.dumps(vector)})
    for types, vectors in groups.items():
        df, names = frame_of(spark, types, vectors)
        kinds = [kind.replace("timestamp_ntz", "timestamp") for kind in types]
        counts = sorted({vector["tasks"] for vector in vectors})
        homes = {n: pr.SparkHash(n, kinds[0] if len(kinds) == 1 else kinds) for n in counts}
        routes = [su.route(pr.Router(homes[n]), *names).alias(f"t{n}") for n in counts]
        for row in df.select("id", *routes).collect():
            vector = json.loads(row.id)
            assert row[f"t{vector['tasks']}"] == vector["home"], vector


def test_spark_hash_is_sparks_own(rows):
    router = pr.Router(pr.SparkHash(7, "string"), {"user3": 5})
    ours = partitions(su.repartition(rows, router, "s"), "s")
    theirs = partitions(rows.repartition(7, "s"), "s").groupby("s", dropna=False).partition.first()
    for name, part in ours.groupby("s", dropna=False).partition.first().items():
        assert part == (5 if name == "user3" else theirs[name])


def test_spark_hash_refuses_other_types(rows):
    router = pr.Router(pr.SparkHash(7, "int"))
    with pytest.raises(Exception, match="expected int, as the home has, got bigint"):
        rows.select(su.route(router, "k")).collect()
    with pytest.raises(ValueError, match="cols: expected 1 columns"):
        su.route(router, "k", "i")


@pytest.mark.parametrize(
    ("home", "column"),
    [
        (pr.StormHash(6, "string"), "s"),
        (pr.KafkaHash(6), "u"),
        (pr.FlinkKeyGroup(6, key_type="long"), "k"),
    ],
)
def test_other_homes_use_a_udf(rows, home, column):
    df = rows.withColumn("u", F.coalesce("s", F.lit("none")))
    router = pr.Router(home)
    routed = df.select(su.route(router, column))
    assert "Python" in plan_text(routed) or "Arrow" in plan_text(routed)
    assert (routed.toPandas().pyroute_task.to_numpy() == expected(router, df, column)).all()


def test_no_python_in_the_plan(rows):
    router = pr.Router(200, {k: k % 200 for k in range(50_000)})
    for df in (
        rows.select(su.route(router, "k")),
        rows.groupBy(su.route(router, "s")).count(),
        su.repartition(rows, router, "k"),
    ):
        text = plan_text(df)
        assert "Python" not in text
        assert "ArrowEval" not in text
        assert len(text) < 20_000


def test_repartition_is_exact(rows):
    for ring in (pr.Ring(6), pr.Ring([2, 5, 11])):
        router = pr.Router(ring, dict.fromkeys(range(100), ring.tasks[0]))
        out = su.repartition(rows, router, "k")
        assert out.columns == rows.columns
        got = partitions(out, "k")
        tasks = np.array(router.tasks)[got.partition.to_numpy()]
        assert (tasks == router.route(got.k.to_numpy())).all()
        assert len(got) == 20_000
        assert exchanges(out) == 1


def test_repartition_by_preimages(rows):
    # What Spark before 4.1 does, which has no repartitionById.
    class Old:
        def __init__(self, df):
            self.sparkSession, self.repartition = df.sparkSession, df.repartition

    for n in (1, 2, 7, 64):
        index = (F.col("k") % n).cast("int")
        got = partitions(exchange(Old(rows), n, index), "k")
        assert (got.partition == got.k % n).all()


def test_filter_sort_and_write(rows, tmp_path):
    router = pr.Router(4, {1: 2})
    path = str(tmp_path / "out")
    routed = rows.withColumn("t", su.route(router, "k"))
    routed.filter("t = 2").sort("t", "k").write.parquet(path)
    back = rows.sparkSession.read.parquet(path).toPandas()
    assert (router.route(back.k.to_numpy()) == 2).all()
    assert len(back) == (expected(router, rows, "k") == 2).sum()


def test_streaming(rows, tmp_path):
    router = pr.Router(4, {1: 2})
    path = str(tmp_path / "in")
    rows.limit(500).write.parquet(path)
    spark = rows.sparkSession
    query = (
        spark.readStream.schema(rows.schema)
        .parquet(path)
        .withColumn("t", su.route(router, "k"))
        .writeStream.format("memory")
        .queryName("routed")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    got = spark.table("routed").toPandas()
    assert len(got) == 500
    assert (got.t.to_numpy() == router.route(got.k.to_numpy())).all()


def test_router_is_checked(rows):
    with pytest.raises(TypeError, match="router: expected a Router, got int"):
        su.route(8, "k")
