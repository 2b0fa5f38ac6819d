"""`balance`: what it promises about partitions, plans and the user's own next line."""

import numpy as np
import pandas as pd
import pytest
from helpers import exchanges, partitions, plan_text, zipf
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su


@pytest.fixture(scope="module")
def skewed(spark):
    frame = pd.DataFrame({"k": zipf(60_000), "v": np.arange(60_000)})
    return spark.createDataFrame(frame).cache()


def loads(df, n):
    counts = partitions(df, "k").partition.value_counts()
    return np.array([counts.get(i, 0) for i in range(n)])


def test_balanced_partitions(skewed):
    made = su.balance(skewed, "k", tasks=8)
    got = loads(made.df, 8)
    assert got.sum() == 60_000
    assert got.max() / got.mean() <= 1.02
    assert loads(skewed.repartition(8, "k"), 8).max() / got.mean() > 1.2
    assert got.tolist() == made.plan.loads_after.tolist()
    assert made.plan.feasible
    assert made.statistics.method == "exact"
    assert made.df.columns == ["k", "v", "pyroute_task"]


def test_in_a_chain(skewed, caplog):
    with caplog.at_level("INFO", "pyroute.spark"):
        out = skewed.transform(su.balanced("k", tasks=8)).filter("v >= 0")
    assert loads(out, 8).max() <= 1.02 * 60_000 / 8
    assert "imbalance" in caplog.text


def test_by_cost(skewed):
    costly = skewed.withColumn("c", F.col("k") % 3)
    made = su.balance(costly, "k", tasks=6, cost="c")
    got = made.df.groupBy("pyroute_task").agg(F.sum("c").alias("c")).toPandas()
    assert got.c.max() / got.c.mean() <= 1.02


def test_group_by_has_one_exchange(skewed):
    made = su.balance(skewed, "k", tasks=8)
    grouped = made.group_by().agg(F.sum("v").alias("s"))
    assert exchanges(grouped) == 1
    mine = {row.k: row.s for row in grouped.collect()}
    assert mine == {
        row.k: row.s for row in skewed.groupBy("k").agg(F.sum("v").alias("s")).collect()
    }


def test_window_has_one_exchange(skewed):
    made = su.balance(skewed, "k", tasks=8)
    ranked = made.df.withColumn("r", F.row_number().over(made.window().orderBy("v")))
    assert exchanges(ranked) == 1
    assert ranked.filter("r = 1").count() == skewed.select("k").distinct().count()


def test_join_has_two_exchanges(spark, skewed):
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    other = spark.range(0, 3000).select(F.col("id").alias("k"), (F.col("id") * 2).alias("w"))
    made = su.balance(skewed, "k", tasks=8)
    for how in ("inner", "left", "full", "leftsemi", "left_anti"):
        joined = made.join(other, how=how)
        assert exchanges(joined) == 2
        filters = [line for line in plan_text(joined).splitlines() if " Filter " in line]
        assert not any("xxhash64" in line for line in filters)
        assert joined.count() == skewed.join(other, "k", how).count()
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_join_of_other_types_is_refused(spark, skewed):
    """Spark would compare 5 with '5', which have other identities and other tasks."""
    made = su.balance(skewed, "k", tasks=8)
    text = spark.range(0, 3000).select(F.col("id").cast("string").alias("k"))
    with pytest.raises(TypeError, match="cols: expected k in one type on both sides, got bigint"):
        made.join(text)
    with pytest.raises(ValueError, match=r"cols: expected one of v \(other\), got k"):
        made.join(text.withColumnRenamed("k", "v"))
    narrow = spark.range(0, 3000).select(F.col("id").cast("int").alias("k"))
    assert made.join(narrow).count() == 60_000


def test_giant_key(spark):
    df = spark.range(10_000).select(
        F.when(F.col("id") % 2 == 0, F.lit("giant"))
        .otherwise(F.concat(F.lit("k"), F.col("id") % 100))
        .alias("k"),
        F.col("id").alias("v"),
    )
    made = su.balance(df, "k", tasks=8)
    assert not made.plan.feasible
    assert any("'giant'" in reason for reason in made.plan.reasons)
    assert made.plan.lower_bound == pytest.approx(5000)
    split = su.balance(df, "k", tasks=8, mergeable=True, max_imbalance=0.05)
    assert set(split.router.splits) == {"giant"}
    assert len(split.router.splits["giant"]) < 8
    got = loads(split.df, 8)
    assert got.max() / got.mean() <= 1.15  # a hash of the row spreads within its own noise
    assert sum(got) == 10_000
    with pytest.raises(ValueError, match="window: expected keys that are whole, got 1 split"):
        split.window()
    with pytest.raises(ValueError, match="join: expected keys that are whole"):
        split.join(df)


def test_over_a_router_in_force(skewed):
    first = su.balance(skewed, "k", tasks=8)
    again = su.balance(skewed, "k", tasks=first.router)
    assert again.router.version == first.router.version + 1
    assert len(again.plan.migrations.values) == 0


def test_empty_and_one_row(spark):
    empty = spark.range(0).select(F.col("id").alias("k"))
    made = su.balance(empty, "k", tasks=4)
    assert made.df.count() == 0
    one = su.balance(spark.range(1).select(F.col("id").alias("k")), "k", tasks=4)
    assert one.df.count() == 1
    assert one.group_by().count().count() == 1


def test_nulls_are_a_key(spark):
    df = spark.range(1000).select(F.when(F.col("id") % 3 != 0, F.col("id") % 10).alias("k"))
    made = su.balance(df, "k", tasks=4)
    got = partitions(made.df, "k")
    assert got[got.k.isna()].partition.nunique() == 1
    assert len(got) == 1000


def test_composite(spark, skewed):
    made = su.balance(skewed, "k", (F.col("v") % 3).alias("m"), tasks=8, method="exact")
    assert loads(made.df, 8).sum() == 60_000
    by_name = su.balance(skewed.withColumn("m", F.col("v") % 3), "k", "m", tasks=8)
    assert exchanges(by_name.group_by().count()) == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((("x",), {"tasks": 8}), "cols: expected one of k, v, got x"),
        ((("k",), {"tasks": 0}), "tasks"),
        ((("k",), {"tasks": 8, "cost": "x"}), "cost: expected one of k, v, got x"),
        ((("k",), {"tasks": 8, "max_imbalance": -1}), "max_imbalance"),
        ((("k",), {"tasks": 8, "method": "no"}), "method: expected one of"),
        ((("k",), {"tasks": 8, "colour": 1}), "colour"),
    ],
)
def test_bad_input(skewed, arguments, error):
    (cols, options) = arguments
    with pytest.raises((ValueError, TypeError), match=error):
        su.balance(skewed, *cols, **options)


def test_no_frame():
    with pytest.raises(TypeError, match="df: expected a DataFrame, got list"):
        su.balance([1], "k", tasks=8)


def test_float_key(spark):
    with pytest.raises(TypeError, match="f: expected integers, text"):
        su.balance(spark.range(5).select(F.rand().alias("f")), "f", tasks=8)


def test_router_of_another_column_type(skewed):
    with pytest.raises(TypeError, match="home"):
        su.balance(skewed, "k", tasks="8")


def test_unknown_task_in_a_table():
    with pytest.raises(ValueError, match="9"):
        pr.Router(4, {"a": 9})
