"""Statistics of a DataFrame's keys, against counting by hand."""

import datetime as dt
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from helpers import zipf
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from spark_udf import stats


@pytest.fixture(scope="module")
def skewed(spark):
    keys = zipf()
    frame = pd.DataFrame({"k": keys, "c": (keys % 5) / 2.0, "b": (keys % 9) * 100})
    return spark.createDataFrame(frame).repartition(5).cache()


def counted(skewed):
    return Counter(skewed.toPandas().k.tolist())


def as_dict(snapshot):
    return dict(zip(snapshot.values, snapshot.costs.tolist(), strict=True))


def test_exact(skewed):
    assert as_dict(su.collect_stats(skewed, "k", method="exact")) == counted(skewed)


def test_auto_says_why(skewed, caplog):
    with caplog.at_level("INFO", "pyroute.spark"):
        snapshot = su.collect_stats(skewed, "k")
    assert as_dict(snapshot) == counted(skewed)
    assert "statistics: exact (about" in caplog.text


def test_auto_sketches_many_keys(skewed, monkeypatch):
    monkeypatch.setattr(stats, "EXACT_KEYS", 100)
    measured = stats.measure(skewed, ["k"])
    assert measured.method == "sketched"
    assert "more than 100" in measured.reason
    sized = stats.measure(skewed, ["k"], state_size="b")
    assert sized.snapshot.state_sizes.max() == 800


def test_costs_and_sizes(skewed):
    frame = skewed.toPandas()
    snapshot = su.collect_stats(skewed, "k", cost="c", state_size="b", method="exact")
    assert as_dict(snapshot) == pytest.approx(frame.groupby("k").c.sum().to_dict())
    sizes = dict(zip(snapshot.values, snapshot.state_sizes.tolist(), strict=True))
    assert sizes == frame.groupby("k").b.max().to_dict()


def test_sketched_is_within_its_error(skewed, monkeypatch):
    monkeypatch.setattr(stats, "CAPACITY", 200)
    router = pr.Router(4)
    measured = stats.measure(skewed, ["k"], method="sketched", router=router)
    exact, total = counted(skewed), 20_000
    for key, cost in as_dict(measured.snapshot).items():
        assert abs(cost - exact[key]) <= measured.error * total
    background = measured.snapshot.background
    assert sum(background.values()) == pytest.approx(measured.rest)
    assert measured.snapshot.costs.sum() + measured.rest == pytest.approx(total)


def test_sketched_costs(skewed, monkeypatch):
    frame = skewed.toPandas()
    measured = stats.measure(skewed, ["k"], cost="c", method="sketched")
    exact = frame.groupby("k").c.sum().to_dict()
    for key, cost in as_dict(measured.snapshot).items():
        assert cost == pytest.approx(exact[key], rel=1e-3, abs=1e-3)


def test_sampled(skewed, monkeypatch):
    monkeypatch.setattr(stats, "SAMPLE_ROWS", 5000)
    measured = stats.measure(skewed, ["k"], method="sampled")
    assert measured.method == "sampled"
    exact = counted(skewed)
    for key, cost in as_dict(measured.snapshot).items():
        assert abs(cost - exact[key]) <= 3 * measured.error * 20_000
    assert measured.snapshot.costs.sum() == pytest.approx(20_000, rel=0.1)


def test_bad_costs(skewed):
    for cost, kind in ((F.col("c") - 1, "cost: expected at least 0, got -1.0"),):
        for method in ("exact", "sketched"):
            with pytest.raises(ValueError, match=kind):
                su.collect_stats(skewed, "k", cost=cost, method=method)
    nullable = F.when(F.col("c") > 0, F.col("c"))
    for method in ("exact", "sketched"):
        with pytest.raises(ValueError, match=r"cost: expected numbers, got null in [0-9]+ rows"):
            su.collect_stats(skewed, "k", cost=nullable, method=method)
    with pytest.raises(TypeError, match="cost: expected numbers, got string"):
        su.collect_stats(skewed, "k", cost=F.lit("x"))
    with pytest.raises(ValueError, match="cost: expected one of k, c, b, got x"):
        su.collect_stats(skewed, "k", cost="x")
    with pytest.raises(ValueError, match="method: expected one of auto, exact"):
        su.collect_stats(skewed, "k", method="fast")


@pytest.mark.parametrize("method", ["exact", "sketched"])
@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-Infinity", None])
def test_one_bad_cost(spark, method, bad):
    """One of many rows, and its key has others that are fine."""
    cost = F.when(F.col("id") != 7, 2.5).otherwise(F.lit(bad).cast("double"))
    df = spark.range(100).select((F.col("id") % 10).alias("k"), cost.alias("c"))
    got = {None: "null in 1 rows", "NaN": "nan", "Infinity": "inf"}.get(bad, "-inf")
    with pytest.raises(ValueError, match=f"^cost: expected .*, got {got}"):
        su.collect_stats(df, "k", cost="c", method=method)


def test_empty(spark):
    empty = spark.range(0)
    assert len(su.collect_stats(empty, "id")) == 0
    assert len(su.collect_stats(empty, "id", method="sketched")) == 0
    assert su.top_keys(empty, "id").count() == 0
    assert su.sketch(empty, "id", capacity=5).total == 0
    assert su.collect_pairs(empty, "id", "id", 5).total == 0


def test_top_keys(skewed):
    exact = counted(skewed)
    rows = su.top_keys(skewed, "k", k=5).collect()
    assert [row.k for row in rows] == [key for key, _ in exact.most_common(5)]
    for row in rows:
        assert row["count"] - row.error <= exact[row.k] <= row["count"]
        assert row.share == pytest.approx(row["count"] / 20_000)


def test_top_keys_of_other_types(spark):
    day = dt.date(2020, 1, 2)
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    df = spark.createDataFrame(
        [(day, moment, True, "x")] * 3 + [(None, None, None, None)],
        "d date, t timestamp, b boolean, s string",
    ).withColumn("n", F.lit(7).cast("decimal(20, 0)"))
    for name in "dtbsn":
        top = su.top_keys(df, name, k=1)
        assert top.schema[name].dataType == df.schema[name].dataType
        assert top.first()[name] == df.first()[name]
    assert tuple(su.top_keys(df, "s", "d", k=1).first())[:2] == ("x", day)


@pytest.mark.parametrize("name", ["count", "Error", "share"])
def test_top_keys_under_a_name_of_the_result(skewed, name):
    """Two columns of one name: neither could be selected."""
    renamed = skewed.withColumnRenamed("k", name)
    with pytest.raises(ValueError, match=f"cols: expected names beside .*, got {name}: rename"):
        su.top_keys(renamed, name)
    assert su.top_keys(renamed, F.col(name).alias("key"), k=1).columns[0] == "key"


def test_sketch_is_merged_in_order(skewed):
    one, other = su.sketch(skewed, "k", capacity=50), su.sketch(skewed, "k", capacity=50)
    assert one == other
    assert one.total == 20_000


def test_many_partitions_are_merged_in_tasks_first(spark, monkeypatch):
    """What the driver collects is a sketch of each group, in the order of the partitions."""
    df = spark.range(0, 3000, 1, 10).select((F.col("id") % 700).alias("k"))
    direct = stats._merged(df, "sketch", (1000, False), pr.SpaceSaving(1000), 10)
    collected = []
    plain = stats.to_arrow
    monkeypatch.setattr(stats, "DIRECT", 4)
    monkeypatch.setattr(stats, "to_arrow", lambda df: collected.append(plain(df)) or collected[-1])
    for reckoned, rows in ((10, 3), (7, 3), (100, 1)):
        merged = stats._merged(df, "sketch", (1000, False), pr.SpaceSaving(1000), reckoned)
        assert collected[-1].num_rows == rows
        assert merged.total == direct.total == 3000
        top, other = merged.top(), direct.top()
        assert (top.values, top.counts.tolist()) == (other.values, other.counts.tolist())
    again = [stats._merged(df, "sketch", (50, False), pr.SpaceSaving(50), 10) for _ in range(2)]
    assert again[0] == again[1]
    assert again[0].total == 3000
    monkeypatch.setattr(stats, "_SMALL", 10)
    assert su.collect_pairs(df, "k", "k", 1000).total == 3000


def test_pairs(skewed):
    pairs = su.collect_pairs(skewed, "k", "b", capacity=5000)
    frame = skewed.toPandas()
    exact = Counter(zip(frame.k, frame.b, strict=True))
    top = pairs.top(3)
    for a, b, count in zip(top.in_values, top.out_values, top.counts, strict=True):
        assert exact[a, b] == count


def test_same_column_twice(skewed):
    snapshot = su.collect_stats(skewed, "k", "k", method="exact")
    assert all(a == b for a, b in snapshot.values)
    assert np.isclose(snapshot.costs.sum(), 20_000)
