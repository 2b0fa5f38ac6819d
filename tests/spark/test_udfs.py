"""The vectorized UDFs: framing never shows, and what they do is tested without Spark."""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from spark_udf import _convert

ROUTER = pr.Router(8, {"user3": 5, None: 6, "user4": 1})
SPLIT = pr.Router(8, {"user3": 5}, splits={"user4": [1, 6, 2]})


def sketch():
    made = pr.CostSketch(0.01, 0.05)
    made.observe([f"user{i % 50}" for i in range(1000)], [float(i % 50) for i in range(1000)])
    return made


UDFS = {
    "route": (lambda flavour: su.route_udf(ROUTER, flavour), ("s",), ROUTER.route),
    "split": (
        lambda flavour: su.route_udf(SPLIT, flavour),
        ("s", "k"),
        lambda s, k: SPLIT.route(s, salt=k.to_numpy()),
    ),
    "key": (
        lambda flavour: su.key_udf(flavour),
        ("s", "k"),
        lambda *columns: np.array(pr.keys(*columns).ids).view(np.int64),
    ),
    "mean_time": (lambda flavour: su.mean_time_udf(sketch(), flavour), ("s",), sketch().mean_time),
}


@pytest.fixture(params=[1, 3, 10_000])
def batch(request, spark):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(request.param))
    yield request.param
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")


@pytest.mark.parametrize("flavour", ["arrow", "pandas"])
@pytest.mark.parametrize("name", list(UDFS))
def test_framing(spark, batch, name, flavour):
    make, names, reference = UDFS[name]
    # Nulls, and partitions without rows: the filter leaves most of them empty.
    df = (
        spark.range(0, 4000, 1, 8)
        .filter("id < 400")
        .select(
            F.when(F.col("id") % 7 != 0, F.concat(F.lit("user"), F.col("id") % 60)).alias("s"),
            F.col("id").alias("k"),
        )
    )
    table = df.withColumn("out", make(flavour)(*names)).toArrow()
    columns = [table.column(n).combine_chunks() for n in names]
    assert table.num_rows == 400
    assert np.array_equal(table.column("out").to_numpy(), reference(*columns))


def test_in_sql(spark):
    spark.udf.register("task_of", su.route_udf(ROUTER))
    assert spark.sql("SELECT task_of('user3') AS t").first().t == 5


@pytest.mark.parametrize("flavour", ["arrow", "pandas"])
def test_collated_text_is_refused(spark, flavour):
    """Texts that Spark takes for one key would go to several tasks: Arrow has no collations."""
    df = spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS s, 5L AS k")
    for made in (
        su.route_udf(ROUTER, flavour)("s"),
        su.route_udf(ROUTER, flavour)("k", F.col("s")),
        su.key_udf(flavour)("s"),
        su.mean_time_udf(sketch(), flavour)("s"),
        su.route(pr.Router(pr.KafkaHash(3)), "s"),
    ):
        with pytest.raises(Exception, match=r"key: expected .*, got string collate UTF8_LCASE"):
            df.select(made).collect()


def test_wrong_arguments():
    with pytest.raises(TypeError, match="router: expected a Router, got int"):
        su.route_udf(8)
    with pytest.raises(TypeError, match="sketch: expected a CostSketch, got int"):
        su.mean_time_udf(8)
    with pytest.raises(ValueError, match="flavour: expected arrow or pandas, got numpy"):
        su.route_udf(ROUTER, "numpy")


@pytest.mark.parametrize("size", [0, 1, 3, 1000])
def test_conversions_without_spark(size):
    values = pa.array([None if i % 7 == 0 else f"user{i % 60}" for i in range(size)], pa.string())
    salts = pa.array(range(size), pa.int64())
    data, split = ROUTER.to_bytes(values=False), SPLIT.to_bytes(values=False)
    assert _convert.route(data, values).to_pylist() == ROUTER.route(values).tolist()
    expected = SPLIT.route(values, salt=salts.to_numpy()).tolist()
    assert _convert.route(split, values, salts).to_pylist() == expected
    ids = _convert.key(values)
    assert ids.type == pa.int64()
    assert _convert.route_ids(data, ids.to_numpy()).tolist() == ROUTER.route(values).tolist()
    assert _convert.route_ids(split, ids.to_numpy(), salts.to_numpy()).tolist() == expected
    times = _convert.mean_time(sketch().to_bytes(), values)
    assert times.to_pylist() == sketch().mean_time(values).tolist()


def test_null_salt_is_refused():
    with pytest.raises(ValueError, match="expected integers, got 1 nulls"):
        _convert.route(SPLIT.to_bytes(), pa.array(["a"]), pa.array([None], pa.int64()))


def test_sketches_without_spark():
    batches = [
        pa.record_batch({"k": ["a", "b", None], "w": [5, 1, 2]}),
        pa.record_batch({"k": pa.array([], pa.string()), "w": pa.array([], pa.int64())}),
        pa.record_batch({"k": ["a", None, None], "w": [1, 1, 1]}),
    ]
    heavy = pr.SpaceSaving.from_bytes(_convert.sketch(10, True, batches))
    assert dict(zip(heavy.top().values, heavy.top().counts.tolist(), strict=True)) == {
        "a": 6,
        None: 4,
        "b": 1,
    }
    heavy = pr.SpaceSaving.from_bytes(
        _convert.sketch(10, False, [b.select(["k"]) for b in batches])
    )
    assert heavy.total == 6
    pairs = pr.PairSpaceSaving.from_bytes(
        _convert.pairs(10, [pa.record_batch({"a": ["x", "x"], "b": [1, 1]})])
    )
    assert pairs.top().counts.tolist() == [2]
