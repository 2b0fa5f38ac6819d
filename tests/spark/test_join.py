"""`balance_join`: the result of Spark's own join, in partitions that are alike."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers import exchanges, partitions, plan_text
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from spark_udf import _spark, join

HOWS = list(join.HOWS)
PLACE = "pyroute_place"


@pytest.fixture(autouse=True)
def no_broadcast(request):
    if "spark" in request.fixturenames:
        spark = request.getfixturevalue("spark")
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        yield
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    else:
        yield


def rows_of(df):
    return Counter(map(tuple, df.collect()))


def check(left, right, on, how, tasks=6, **options):
    """The join equals Spark's; returns what was made."""
    made = su.balance_join(left, right, on, tasks, how, **{"min_gain": 0.0, **options})
    wanted = left.join(right, on, how)
    assert exchanges(made.df) == 2
    shown = made.df.drop(PLACE)
    assert shown.columns == wanted.columns
    assert rows_of(shown) == rows_of(wanted)
    return made


def side(seed, n, hot, name, nulls=0.15, keys=25):
    """Rows of which `hot` have key 1, half as many key 2."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, keys, n)
    k[: int(hot * n)] = 1
    k[int(hot * n) : int(1.5 * hot * n)] = 2
    return pa.table({"k": pa.array(k, mask=rng.random(n) < nulls), name: np.arange(n)})


def as_text(table):
    text = pc.binary_join_element_wise("customer-000", pc.cast(table["k"], pa.string()), "")
    return table.set_column(0, "k", text)


def composite(table, seed):
    rng = np.random.default_rng(seed)
    more = pa.array(rng.integers(0, 2, len(table)), mask=rng.random(len(table)) < 0.1)
    return table.add_column(2, "j", more)


CASES = {
    "left hot": (lambda: (side(0, 300, 0.5, "a"), side(1, 50, 0.1, "b")), "k"),
    "right hot": (
        lambda: (as_text(side(2, 50, 0.1, "a")), as_text(side(3, 300, 0.5, "a"))),
        ["k"],
    ),
    "composite": (
        lambda: (composite(side(4, 200, 0.3, "a", 0.3), 0), composite(side(5, 120, 0.5, "b"), 1)),
        ["j", "k"],
    ),
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("case", CASES)
def test_equals_spark(spark, case, how):
    tables, on = CASES[case]
    left, right = map(spark.createDataFrame, tables())
    made = check(left, right, on, how)
    split = made.router.splits
    if case == "left hot" and how in ("inner", "left", "leftsemi", "leftanti"):
        assert 1 in split
    if case == "right hot" and how in ("inner", "right"):
        assert "customer-0001" in split
    if how == "full":
        assert not split
    assert made.plan.imbalance < made.plan.imbalance_before
    assert made.plan.mean * 6 == pytest.approx(made.plan.loads_after.sum())


@pytest.mark.parametrize("how", HOWS)
def test_without_aqe(spark, how):
    left, right = map(spark.createDataFrame, CASES["left hot"][0]())
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        check(left, right, "k", how)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


@pytest.mark.parametrize("how", ["inner", "left"])
def test_broadcast_at_run_time(spark, how):
    """AQE may still broadcast a side that turns out small; rows stay where the router puts them."""
    left, right = map(spark.createDataFrame, CASES["left hot"][0]())
    spark.conf.set("spark.sql.adaptive.autoBroadcastJoinThreshold", "10MB")
    try:
        made = check(left, right, "k", how)
        got = partitions(made.df.filter("k not in (1, 2)"), "k")
        assert (made.router.route(got.k.to_numpy(), salt=0) == got.partition.to_numpy()).all()
    finally:
        spark.conf.unset("spark.sql.adaptive.autoBroadcastJoinThreshold")


@pytest.mark.parametrize("how", ["inner", "full", "leftanti"])
def test_empty_sides(spark, how):
    full = spark.createDataFrame(side(0, 20, 0.5, "a"))
    none = spark.range(0).select(F.col("id").alias("k"), F.col("id").alias("b"))
    for left, right in ((full, none), (none, full), (none, none)):
        made = su.balance_join(left, right, "k", 3, how, min_gain=0)
        assert rows_of(made.df.drop(PLACE)) == rows_of(left.join(right, "k", how))


@pytest.mark.parametrize("how", HOWS)
def test_whatever_the_statistics_said(spark, how, monkeypatch):
    """They decide where rows meet, never whether: here they are of other rows."""
    keys = [*range(3), None, 99]
    rows = [[9000, 4000, 1, 9000, 2000], [3, 2, 1, 1, 1]]
    made_up = counted(
        *(dict(zip(keys, n, strict=True)) for n in (rows[::-1] if how == "right" else rows))
    )
    monkeypatch.setattr(join, "_count", lambda *_: made_up)
    left = spark.createDataFrame(side(6, 90, 0.3, "a", 0.3))
    right = spark.createDataFrame(side(7, 70, 0.2, "b", 0.3))
    made = check(left, right, "k", how, tasks=5)
    assert set(made.router.splits) >= ({None} if how == "full" else {0})


@pytest.fixture
def samples(monkeypatch):
    """Sides of this size are sampled."""
    monkeypatch.setattr(join, "SAMPLE_ROWS", 20_000)
    monkeypatch.setattr(join, "LEAST_ROWS", 500)


def test_sampled(spark, samples):
    """The large side is sampled, the small one is not; the hot keys' rows are right about."""
    left = spark.createDataFrame(side(20, 40_000, 0.3, "a", 0.0, keys=500))
    right = spark.createDataFrame(pa.table({"k": np.arange(500), "b": np.arange(500)}))
    made = check(left, right, "k", "inner")
    assert made.statistics.method == "sampled"
    assert "100.00% of the right" in made.statistics.reason
    exact = check(left, right, "k", "inner", method="exact")
    assert exact.statistics.method == "exact"
    costs = [
        dict(zip(one.snapshot.values, one.snapshot.costs.tolist(), strict=True))
        for one in (made.statistics, exact.statistics)
    ]
    for key in (1, 2):
        assert costs[0][key] == pytest.approx(costs[1][key], rel=0.2)
    found = partitions(made.df, "k").partition.value_counts()
    assert len(found) == 6
    assert found.max() / found.mean() < 1.15  # about 5,000 rows were counted


@pytest.fixture
def jobs(monkeypatch):
    """The shares of the left and of the right that each job counted."""
    seen, counted_by = [], join._counted

    def noted(frames, shares):
        seen.append(list(shares))
        return counted_by(frames, shares)

    monkeypatch.setattr(join, "_counted", noted)
    return seen


def few_of_many(spark, name, at=0):
    """400 rows, some of them without a key; Spark does not know how few a filter leaves."""
    ids = spark.range(200_000).filter(f"id % 500 = {at}")
    nth = F.floor(F.col("id") / 500)
    k = F.when(nth % 10 != 0, nth).cast("int")
    return ids.select(k.alias("k"), F.col("id").alias(name))


def test_a_wrong_size_is_found_out(spark, samples, jobs):
    """The samples are too small, and all rows of both are counted."""
    left, right = few_of_many(spark, "a"), few_of_many(spark, "b", at=1)
    made = su.balance_join(left, right, "k", 6, min_gain=0)
    assert made.statistics.method == "exact"
    assert max(jobs[0]) < 1
    assert jobs[1:] == [[1.0, 1.0]]
    assert rows_of(made.df.drop(PLACE)) == rows_of(left.join(right, "k"))


@pytest.mark.parametrize("small", ["left", "right"])
def test_a_wrong_size_of_one_side_leaves_the_other_sampled(spark, samples, jobs, small):
    """All rows of that side are counted, and no row of the other once more."""
    many = spark.createDataFrame(side(20, 40_000, 0.3, "a", 0.0, keys=500))
    few = few_of_many(spark, "b")
    left, right = (few, many) if small == "left" else (many, few)
    made = su.balance_join(left, right, "k", 6, "full", min_gain=0)
    assert made.statistics.method == "sampled"
    assert f"100.00% of the {small}" in made.statistics.reason
    assert made.statistics.reason.count("100.00%") == 1
    assert jobs[1] == ([1.0, 0.0] if small == "left" else [0.0, 1.0])
    assert max(jobs[0]) < 1
    assert rows_of(made.df.drop(PLACE)) == rows_of(left.join(right, "k", "full"))
    # Every key once, and the rows of the small side as they are.
    found = join._count([few.select("k"), many.select("k")], "auto")
    exact = join._count([few.select("k"), many.select("k")], "exact")
    assert len(set(found.ids.tolist())) == len(found.ids)
    wanted = dict(zip(exact.ids.tolist(), exact.left.tolist(), strict=True))
    assert dict(zip(found.ids.tolist(), found.left.tolist(), strict=True)) == {
        one: wanted[one] for one in found.ids.tolist()
    }
    lone = dict(zip(exact.ids.tolist(), exact.lone_left.tolist(), strict=True))
    assert found.lone_left.sum() == exact.lone_left.sum() == max(lone.values()) > 0


def test_a_join_is_as_large_as_its_largest_side(spark, samples, jobs):
    """Spark takes it for the product of its sides; one job jobs what there is."""
    left = spark.createDataFrame(side(20, 40_000, 0.3, "a", 0.0, keys=500))
    few = spark.createDataFrame(pa.table({"k": np.arange(500), "b": np.arange(500)}))
    right = few.join(few.select("k"), "k")
    made = su.balance_join(left, right, "k", 6, min_gain=0)
    assert len(jobs) == 1
    assert "100.00% of the right" in made.statistics.reason
    assert "100.00% of the left" not in made.statistics.reason
    assert rows_of(made.df.drop(PLACE)) == rows_of(left.join(right, "k"))


def test_one_side_counted_again():
    """Its counts take the place of those of its sample; a null key is one key."""
    sample = pa.table(
        {
            "pyroute_key_0": pa.array([1, 2, None]),
            "pyroute_left": [600, 3, 0],
            "pyroute_right": [2, 0, 1],
        }
    )
    whole = pa.table(
        {
            "pyroute_key_0": pa.array([1, None, 9]),
            "pyroute_left": [0, 0, 0],
            "pyroute_right": [40, 7, 3],
        }
    )
    table = join._instead(sample, whole, [False, True])
    assert [column.to_pylist() for column in table.columns] == [
        [1, 2, None, 9],
        [600, 3, 0, 0],
        [40, 0, 7, 3],
    ]


def test_size_of_a_query():
    def plan(*lines):
        shown = [f"{line}, Statistics(sizeInBytes={size})" for line, size in lines]
        rest = ["", "== Physical Plan ==", "Scan, Statistics(sizeInBytes=9.0 EiB)"]
        return "\n".join(["== Optimized Logical Plan ==", *shown, *rest])

    table = ("Relation spark_catalog.default.t[k#1] parquet", "3.0 MiB")
    assert join._size(plan(table)) == 3 * 1024**2
    assert join._size(plan(("Project [k#1]", "1.5 KiB"), (f"+- {table[0]}", "3.0 MiB"))) == 1536
    product = ("Join Inner, (k#1 = k#2)", "9.1E+4 TiB")
    sides = (":- Filter isnotnull(k#1)", "2.0 KiB"), (":  +- LocalRelation [k#1]", "6.0 KiB")
    other = ("+- Relation [k#2] parquet", "512.0 B")
    assert join._size(plan(product, *sides, other)) == 2048
    deeper = [("Project [k#1]", "4.0 EiB"), ("+- " + product[0], product[1])]
    deeper += [("   " + line, size) for line, size in (*sides, other)]
    assert join._size(plan(*deeper)) == 2048
    small = [("LocalLimit 5", "80.0 B"), *(("+- " + product[0], product[1]),), *deeper[2:]]
    assert join._size(plan(*small)) == 80
    assert join._size("no statistics") is None


def test_counted_elsewhere(spark):
    """Keys are counted in the frames that are given; the result is that of the join."""
    left, right = map(spark.createDataFrame, CASES["left hot"][0]())
    other = spark.range(100).select(F.lit(3).cast("bigint").alias("k"))
    made = check(left, right, "k", "inner", statistics=(other, None))
    assert set(made.router.splits) == {3}
    with pytest.raises(ValueError, match="on: expected one of id"):
        su.balance_join(left, right, "k", 4, statistics=(None, spark.range(3)))
    with pytest.raises(TypeError, match="statistics: expected a pair of DataFrames or None"):
        su.balance_join(left, right, "k", 4, statistics=left)


def test_left_to_spark_where_little_is_gained(spark):
    number = F.col("id")
    left = spark.range(3000).select((number % 1000).alias("k"), number.alias("a"))
    made = su.balance_join(left, left.withColumnRenamed("a", "b"), "k", 4)
    assert not made.placed
    assert "left to Spark: balance would make its 4 tasks, 2 at a time," in made.plan.reasons[-1]
    assert PLACE not in made.df.columns
    assert made.df.count() == 9000
    assert su.balance_join(left, left, "k", 4, min_gain=0).placed


class Settings:
    """A session, as far as `slots` asks for it."""

    def __init__(self, **settings):
        self.conf = self
        self.settings = {f"spark.{name.replace('_', '.')}": v for name, v in settings.items()}

    def get(self, name, default):
        return self.settings.get(name, default)


def test_slots(spark):
    assert _spark.slots(spark, 100) == 2
    assert _spark.slots(Settings(master="local"), 9) == 1
    assert _spark.slots(Settings(master="local[4,2]"), 9) == 4
    assert _spark.slots(Settings(master="local[4]"), 3) == 3
    assert _spark.slots(Settings(master="yarn"), 9) == 9
    cluster = {"master": "k8s://x", "executor_instances": "3", "executor_cores": "2"}
    assert _spark.slots(Settings(**cluster), 9) == 6
    assert _spark.slots(Settings(**cluster, task_cpus="4"), 9) == 1
    cluster["dynamicAllocation_enabled"] = "true"
    assert _spark.slots(Settings(**cluster), 9) == 9


def test_span_is_sparks():
    """Tasks begin in their order, each where one ended first."""
    assert join._span([3, 1, 1, 1], 2) == 3
    assert join._span([1, 1, 1, 3], 2) == 4
    assert join._span([5, 1], 4) == 5
    assert join._span([], 4) == 0


def test_hot_nulls(spark):
    """A null key has no partner: it is spread in any join that keeps it."""
    left = spark.createDataFrame(side(8, 600, 0.0, "a", nulls=0.7))
    right = spark.createDataFrame(side(9, 500, 0.0, "b", nulls=0.7))
    for how in ("left", "full"):
        made = check(left, right, "k", how)
        assert len(made.router.splits[None]) > 1
        nulls = partitions(made.df.filter("k is null"), "k").partition.value_counts()
        assert len(nulls) == len(made.router.splits[None])
    assert None not in check(left, right, "k", "inner").router.splits


@pytest.mark.parametrize("how", HOWS)
def test_null_beside_one(spark, how):
    """(0, null) and (0, 1) have one identity: the first is spread, and the second still meets."""
    assert len(set(pr.keys([0, 0], [None, 1]).ids)) == 1
    rows = [(0, None)] * 60 + [(0, 1)] * 15 + [(0, 2)] * 10 + [(3, None)] * 5
    left = spark.createDataFrame([(*key, i) for i, key in enumerate(rows)], "j int, k int, a int")
    right = left.filter("a % 2 = 0").withColumnRenamed("a", "b")
    made = check(left, right, ["j", "k"], how, tasks=7)
    parts = made.group_by().count().groupBy("j", "k").agg(F.sum("count"))
    plain = left.join(right, ["j", "k"], how)
    assert rows_of(parts) == rows_of(plain.groupBy("j", "k").count())


def test_null_keys_meet_nothing(spark):
    """Not even each other: a place for each side, so that Spark compares no pair of them."""
    left, right = (
        spark.createDataFrame(composite(side(seed, 80, 0.2, "a", 0.5), seed)) for seed in (14, 15)
    )
    router, places = pr.Router(4), []
    for df, number in ((left, join.LEFT), (right, join.RIGHT)):
        one = join.Side(df, ["k", "j"], number, join.HOWS["full"])
        placed = one.placed(router, {}, 20).toDF("k", "a", "j", "place").toPandas()
        nulls = placed.k.isna() | placed.j.isna()
        places += [set(placed.place[nulls]), set(placed.place[~nulls])]
        whole = placed[~nulls].astype({"k": int, "j": int})
        assert ((whole.place % 4) == router.route(pr.keys(whole.k, whole.j))).all()
    assert all(places)
    assert not places[0] & (places[2] | places[3])
    assert not places[2] & (places[0] | places[1])
    assert places[1] & places[3]


def test_balanced_work(spark):
    number = F.col("id")
    hot = F.when(number % 2 == 0, F.lit(7)).otherwise(number % 500)
    left = spark.range(20_000).select(hot.alias("k"), number.alias("a"))
    right = spark.range(1500).select((number % 500).alias("k"), number.alias("b"))
    made = su.balance_join(left, right, "k", 8, min_gain=0)
    found = partitions(made.df, "k").partition.value_counts()
    assert len(found) == 8
    assert found.max() / found.mean() < 1.1
    assert found.sum() == 60_000
    assert made.plan.imbalance < 0.02
    assert made.plan.imbalance_before > 2
    assert made.plan.feasible
    plain = partitions(left.repartition(8, "k").join(right.repartition(8, "k"), "k"), "k")
    assert plain.partition.value_counts().max() / found.mean() > 3


def test_no_filter_computes_the_place(spark):
    number = F.col("id")
    left = spark.range(900).select((number % 9).alias("k"), number.alias("a"))
    right = spark.range(90).select((number % 7).alias("k"), number.alias("b"))
    made = su.balance_join(left, right, "k", 20, min_gain=0)
    assert made.router.splits
    text = plan_text(made.df)
    filters = [line for line in text.splitlines() if " Filter " in line]
    assert len(filters) == 2
    assert not any("xxhash64" in line or "ubquery" in line for line in filters)
    assert text.count("SortMergeJoin [pyroute_l_place#") == 1  # and no other column to sort by
    assert text.count("Sort [pyroute_l_place#") == text.count("Sort [pyroute_r_place#") == 1


def test_types(spark):
    """Equal numbers are one key whatever their width; names are found in any case."""
    number = F.col("id")
    left = spark.range(40).select((number % 9).cast("int").alias("K"), number.alias("v"))
    for kind in ("smallint", "decimal(20,0)"):
        right = spark.range(30).select((number % 5).cast(kind).alias("k"), number.alias("v"))
        check(left, right, "k", "left", tasks=4)
    texts = {
        "b": "id % 2 = 0",
        "d": "date_add(date '2024-01-01', cast(id % 2 as int))",
        "t": "timestamp_micros(id % 2)",
        "x": "cast(hex(id % 2) as binary)",
    }
    key = [F.expr(text).alias(name) for name, text in texts.items()]
    left = spark.range(40).select(*key, number.alias("a"))
    right = spark.range(9).select(number.alias("a"), *key)
    made = su.balance_join(left, right, list(texts), 8, min_gain=0)
    assert made.router.splits
    assert made.df.count() == left.join(right, list(texts)).count() == 180


def test_one_identity(spark):
    """Two values of one id meet in one place, and are not joined."""
    alike = "customer-0000042", "user-ofg)!'_qdXC"
    assert len(set(pr.keys(list(alike)).ids)) == 1
    left = spark.createDataFrame([(alike[i % 2], i) for i in range(40)], "k string, a int")
    right = spark.createDataFrame([(alike[i % 2], i) for i in range(4)], "k string, b int")
    made = check(left, right, "k", "inner")
    assert len(made.router.splits) == 1
    check(left.filter(f"k = '{alike[0]}'"), right, "k", "full")


def test_self_join(spark):
    df = spark.createDataFrame(side(10, 80, 0.3, "a"))
    check(df, df.filter("a > 20"), "k", "inner")


def test_homes(spark):
    left, right = map(spark.createDataFrame, CASES["left hot"][0]())
    for tasks in (
        *(pr.Ring([3, 7, 8]), pr.SparkHash(5, "bigint")),
        pr.Router(pr.Ring([1, 4, 6]), {3: 4}, splits={5: [1, 6]}, version=2),
    ):
        made = check(left, right, "k", "inner", tasks=tasks)
        assert made.router.tasks == tuple(tasks.tasks)
        got = partitions(made.df.filter("k != 1 and k != 2"), "k")
        where = made.router.route(got.k.to_numpy(), salt=0)
        whole = ~got.k.isin([key for key in made.router.splits if key is not None])
        assert (np.array(made.router.tasks)[got.partition] == where)[whole].all()
        assert 5 not in made.router.splits
    with pytest.raises(TypeError, match="tasks: expected a number, or a home that the JVM"):
        su.balance_join(left, right, "k", pr.StormHash(4, "long"))


def test_next_lines(spark):
    """Group, window and join on the same key need no exchange of what was joined."""
    left = spark.createDataFrame(side(11, 200, 0.0, "a"))
    right = spark.createDataFrame(side(12, 60, 0.0, "b"))
    third = spark.createDataFrame(side(13, 60, 0.0, "c"))
    made = su.balance_join(left, right, "k", 4, "left", min_gain=0)
    assert not made.router.splits
    plain = left.join(right, "k", "left")
    grouped = made.group_by().agg(F.count("b").alias("n")).drop(PLACE)
    assert exchanges(grouped) == 2
    assert rows_of(grouped) == rows_of(plain.groupBy("k").agg(F.count("b").alias("n")))
    ranked = made.df.withColumn("r", F.row_number().over(made.window().orderBy("a", "b")))
    assert exchanges(ranked) == 2
    assert ranked.filter("r = 1").count() == plain.select("k").distinct().count()
    for how in ("leftsemi", "right", "full"):
        again = made.join(third, how)
        assert exchanges(again) == 3
        assert again.drop(PLACE).columns == plain.join(third, "k", how).columns
        assert rows_of(again.drop(PLACE)) == rows_of(plain.join(third, "k", how))


def count_by_key():
    def count(key, table):
        assert table.schema.names == ["k", "a", "b"], table.schema
        return pa.table({"k": pa.array([key[0].as_py()], pa.int64()), "n": [table.num_rows]})

    def merge(table):
        return pa.table({"k": table["k"].slice(0, 1), "n": [pc.sum(table["n"]).as_py()]})

    return count, "k bigint, n bigint", merge


def test_split_next_lines(spark):
    left, right = map(spark.createDataFrame, CASES["left hot"][0]())
    made = su.balance_join(left, right, "k", 6, min_gain=0)
    wanted = rows_of(left.join(right, "k").groupBy("k").count())
    parts = made.group_by().count()
    assert rows_of(parts.groupBy("k").agg(F.sum("count"))) == wanted
    for line in (made.window, lambda: made.join(right)):
        with pytest.raises(ValueError, match="expected keys that are whole"):
            line()
    func, schema, merge = count_by_key()
    with pytest.raises(ValueError, match="merge: expected a function"):
        made.apply_by_key(func, schema)
    applied = made.apply_by_key(func, schema, merge)
    assert exchanges(applied) == 3
    assert rows_of(applied) == wanted


def test_broadcast_is_left_to_spark(spark):
    left, right = map(spark.createDataFrame, CASES["left hot"][0]())
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "10MB")
    made = su.balance_join(left, right, "k", 4, min_gain=0)
    plain = left.join(right, "k")
    assert not made.placed
    assert made.df.columns == plain.columns
    assert "BroadcastHashJoin" in plan_text(made.df)
    assert made.statistics.method == "none"
    assert "left to Spark, which joins by broadcast (BroadcastHashJoin)" in made.plan.summary()
    assert rows_of(made.df) == rows_of(plain)
    assert rows_of(made.group_by().count()) == rows_of(plain.groupBy("k").count())
    assert made.df.withColumn("r", F.row_number().over(made.window().orderBy("a"))).count()
    func, schema, _ = count_by_key()
    assert rows_of(made.apply_by_key(func, schema)) == rows_of(plain.groupBy("k").count())
    assert made.join(right, "leftsemi").count() == plain.count()
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1")
    assert su.balance_join(left, right, "k", 4, min_gain=0).placed
    assert not su.balance_join(left, right.hint("broadcast"), "k", 4, "leftanti").placed
    # A broadcast elsewhere is not this join's.
    wide = left.join(right.withColumnRenamed("b", "c").hint("broadcast"), "k")
    assert su.balance_join(wide, right, "k", 4, "leftsemi", min_gain=0).placed


def test_nothing_to_spread_by(spark):
    """A row that is its key alone cannot be told from its likes: such a side is not spread."""
    left = spark.range(100).select((F.col("id") % 2).alias("k"))
    right = spark.range(4).select((F.col("id") % 2).alias("k"))
    made = check(left, right, "k", "inner", tasks=4)
    assert not made.router.splits
    assert made.plan.giants
    left = spark.range(100).select(
        (F.col("id") % 2).alias("k"), F.create_map("id", "id").alias("m")
    )
    assert not su.balance_join(left, right, "k", 4, min_gain=0).router.splits
    made = su.balance_join(left, right, "k", 4, min_gain=0, salt=(F.map_keys("m")[0], None))
    assert len(made.router.splits) == 2
    assert partitions(made.df, "k").partition.nunique() == 4
    assert made.df.count() == 200


def test_says_what_stands_in_the_way(spark):
    left, right = map(spark.createDataFrame, CASES["left hot"][0]())
    plan = su.balance_join(left, right, "k", 6, "full", min_gain=0).plan
    assert not plan.feasible
    assert "key 1 costs" in plan.reasons[0]
    assert "full join keeps unmatched rows of both sides" in plan.reasons[0]
    plan = su.balance_join(right, left, "k", 6, "left", min_gain=0).plan
    assert any("a left join can spread only the left" in reason for reason in plan.reasons)
    plan = su.balance_join(left, right, "k", 6, min_gain=0, mergeable=False).plan
    assert not plan.splits
    assert "mergeable work could be split" in plan.reasons[0]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"left": 3}, TypeError, "left: expected a DataFrame, got int"),
        ({"right": 3}, TypeError, "right: expected a DataFrame, got int"),
        ({"on": []}, TypeError, "on: expected names of columns"),
        ({"on": [3]}, TypeError, "on: expected names of columns"),
        ({"on": "x"}, ValueError, r"on: expected one of k, a \(left\), got x"),
        ({"on": "a"}, ValueError, r"on: expected one of k, b, t \(right\), got a"),
        ({"on": ["k", "k"]}, ValueError, "on: expected distinct names, got k, k"),
        ({"how": "cross"}, ValueError, "how: expected one of inner, left, .* got cross"),
        ({"how": 3}, TypeError, "how: expected a name, got int"),
        ({"tasks": "8"}, TypeError, "home"),
        ({"salt": "a"}, TypeError, "salt: expected a pair, for left and right, got str"),
        ({"method": "no"}, ValueError, "method: expected one of"),
        ({"colour": 1}, TypeError, "colour"),
    ],
)
def test_bad_input(spark, arguments, error, text):
    left = spark.range(3).select(F.col("id").alias("k"), F.col("id").alias("a"))
    right = left.withColumnRenamed("a", "b").withColumn("t", F.col("k").cast("string"))
    arguments = {"left": left, "right": right, "on": "k", "tasks": 4, **arguments}
    with pytest.raises(error, match=text):
        su.balance_join(**arguments)


def test_other_types(spark):
    left = spark.range(3).select(F.col("id").alias("k"))
    text = left.select(F.col("k").cast("string"))
    with pytest.raises(TypeError, match="on: expected k in one type on both sides, got bigint and"):
        su.balance_join(left, text, "k", 4)
    with pytest.raises(TypeError, match="k: expected integers, text"):
        su.balance_join(left.select(F.rand().alias("k")), left, "k", 4)


# without Spark ---------------------------------------------------------------------------------

counts = st.dictionaries(st.none() | st.integers(0, 12), st.integers(1, 60), max_size=12)


def counted(left, right):
    """Rows of each key on both sides."""
    values = list({**left, **right})
    rows = [np.array([of.get(v, 0) for v in values], float) for of in (left, right)]
    lone = [
        np.array([n if v is None else 0.0 for v, n in zip(values, r, strict=True)]) for r in rows
    ]
    return join.Counts(values, pr.keys(values).ids, *rows, *lone, "exact", "", 0.0)


def joined_rows(left, right, how):
    """Rows in the result, from the definition of each join."""
    both = left and right
    return {
        "inner": left * right,
        "left": left * right if both else left,
        "right": left * right if both else right,
        "full": left * right if both else left + right,
        "leftsemi": left if both else 0,
        "leftanti": left if not right else 0,
    }[how]


@given(counts, counts, st.sampled_from(HOWS), st.integers(1, 9))
def test_costs_and_loads(left, right, how, tasks):
    kind = join.HOWS[how]
    if not kind.keeps & join.LEFT:
        left.pop(None, 0)
    if not kind.keeps & join.RIGHT:
        right.pop(None, 0)
    work = join.Work.of(counted(left, right), kind, join.BOTH)
    found = dict(zip(work.counts.keys, work.cost.tolist(), strict=True))
    assert found == {
        key: left.get(key, 0)
        + right.get(key, 0)
        + (
            left.get(key, 0) + right.get(key, 0)
            if key is None
            else joined_rows(left.get(key, 0), right.get(key, 0), how)
        )
        for key in {*left, *right}
    }
    options = {"max_imbalance": 0.01, "max_table": 100}
    placing = work.place(pr.Router(tasks), True, options)
    loads = dict.fromkeys(range(tasks), 0.0)
    splits = placing.router.splits
    for key, cost in found.items():
        owners = splits.get(key) or [int(placing.router.route([key], salt=0)[0])]
        spread_left = kind.spreads & join.LEFT and (
            not kind.spreads & join.RIGHT or left.get(key, 0) >= right.get(key, 0)
        )
        copied = (right if spread_left else left).get(key, 0) if len(owners) > 1 else 0
        copied = copied if key is not None else 0
        for owner in owners:
            loads[owner] += (cost - copied) / len(owners) + copied
    assert placing.plan.loads_after.tolist() == pytest.approx(list(loads.values()))
    assert set(placing.directions) == set(placing.router.split_ids.tolist())
    copies = (work.copied * (work.owners(tasks, 0.01) - 1)).sum()
    assert copies <= join.COPIES * work.spread.sum()
    if how == "full":
        assert set(splits) <= {None}


def test_owners():
    """As few as hold the share, copies included; none where copies would cost too much."""
    kind = join.HOWS["inner"]
    rest = dict.fromkeys(range(100, 1000), 10)
    work = join.Work.of(
        counted({1: 30_000, 2: 120, **rest}, {1: 2, 2: 120, **rest}), kind, join.BOTH
    )
    owners = dict(zip(work.counts.keys, work.owners(20, 0.01).tolist(), strict=True))
    mean = (work.cost + work.copied * (work.owners(20, 0.01) - 1)).sum() / 20
    assert owners[1] == int(np.ceil(90_000 / (1.01 * mean - 2)))
    assert owners[2] == 2
    assert set(owners.values()) == {1, 2, owners[1]}
    semi = join.Work.of(counted({1: 1000, **rest}, {1: 900_000, **rest}), join.HOWS["leftsemi"], 3)
    assert semi.owners(20, 0.01).max() == 1  # 900,000 copies for 1,000 rows


def test_home_leaves_room():
    """Tasks that a split key fills are no one's home, so that the table stays small."""
    rest = dict.fromkeys(range(50000), 1)
    work = join.Work.of(
        counted({-1: 40_000, **rest}, {-1: 1, **rest}), join.HOWS["inner"], join.BOTH
    )
    placing = work.place(pr.Router(40), True, {"max_imbalance": 0.01, "max_table": 50_000})
    assert placing.plan.feasible
    assert len(placing.router.table) < 5000
    full = sum(share < 0.002 for share in placing.router.home.shares().values())
    assert full >= len(placing.router.splits[-1]) - 1
