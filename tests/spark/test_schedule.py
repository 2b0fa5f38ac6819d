"""Rows of unequal cost: in balance, alike in every framing and order, and after a stage retry."""

import re

import numpy as np
import pyarrow as pa
import pytest
from helpers import partitions, plan_text
from pyspark.sql import functions as F
from test_house import run

import pyroute as pr
import spark_udf as su
from pyroute.posg import Scheduler
from spark_udf import _convert

COSTS = (np.arange(60) % 13 + 1.0) ** 2


def sketch():
    made = pr.CostSketch(0.001)
    made.observe([f"op{i}" for i in range(60)] * 3, np.tile(COSTS, 3))
    return made


SCHEDULER = Scheduler.from_sketch(5, sketch())


def column(size):
    return pa.array([f"op{i * i % 60}" for i in range(size)], pa.string())


# -- without Spark


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_conversions_without_spark(size):
    values, data = column(1000), SCHEDULER.to_bytes()
    expected = SCHEDULER.offline(7).schedule(values, 0.0).tolist()
    batches = [values.slice(begin, size) for begin in range(0, 1000, size)]
    got = list(_convert.schedule(data, 7, iter(batches)))
    assert {part.type for part in got} == {pa.int32()}
    assert [task for part in got for task in part.to_pylist()] == expected
    ids = [_convert.key(batch).to_numpy() for batch in batches]
    assert np.concatenate(list(_convert.schedule_ids(data, 7, ids))).tolist() == expected
    numbers = pa.array(range(1000), pa.int64())
    pairs = [(values.slice(b, size), numbers.slice(b, size)) for b in range(0, 1000, size)]
    both = SCHEDULER.offline(7).schedule(pr.keys(values, numbers), 0.0).tolist()
    got = list(_convert.schedule(data, 7, iter(pairs)))
    assert [task for part in got for task in part.to_pylist()] == both


def test_partitions_without_rows_and_their_rotation():
    data = SCHEDULER.to_bytes()
    assert list(_convert.schedule(data, 0, iter([]))) == []
    firsts = [
        next(_convert.schedule(data, p, iter([pa.array(["op1"])])))[0].as_py() for p in range(7)
    ]
    assert firsts == [0, 1, 2, 3, 4, 0, 1]


def test_cost_sketch_without_spark():
    batch = pa.record_batch({"k": ["a", "b", "a"], "t": [1.0, 5.0, 3.0]})
    made = pr.CostSketch.from_bytes(_convert.cost_sketch(0.01, 0.1, 3, [batch, batch[:0]]))
    assert made.mean_time(["a", "b"]).tolist() == [2.0, 5.0]
    assert made.seed == 3
    missing = pa.record_batch({"k": ["a"], "t": pa.array([None], pa.float64())})
    with pytest.raises(ValueError, match="times"):
        _convert.cost_sketch(0.01, 0.1, 0, [missing])


def test_wrong_arguments():
    with pytest.raises(TypeError, match="scheduler: expected a Scheduler, got CostSketch"):
        su.schedule_udf(sketch())
    with pytest.raises(ValueError, match="flavour: expected arrow or pandas, got numpy"):
        su.schedule_udf(SCHEDULER, "numpy")
    with pytest.raises(ValueError, match="expected one that has received reports"):
        su.schedule_udf(Scheduler(3))


# -- with Spark


def rows(spark, number=4000, parts=3):
    """Operations in an order of their own, the last partition without rows."""
    operation = F.concat(F.lit("op"), (F.col("id") * F.col("id")) % 60).alias("op")
    return (
        spark.range(0, number * 4 // 3, 1, parts + 1)
        .filter(f"id < {number}")
        .select("id", operation)
    )


@pytest.mark.parametrize("flavour", ["arrow", "pandas"])
@pytest.mark.parametrize("batch", [1, 3, 10_000])
def test_framing(spark, flavour, batch):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch))
    try:
        df = rows(spark, 400).withColumn("task", su.schedule_udf(SCHEDULER, flavour)("op"))
        got = partitions(df, "id", "op", "task")
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    assert len(got) == 400
    for partition, part in got.groupby("partition"):
        expected = SCHEDULER.offline(int(partition)).schedule(part.op.tolist(), 0.0)
        assert part.task.tolist() == expected.tolist()


def test_schedule_balances(spark):
    df = rows(spark)
    got = partitions(su.schedule(df, SCHEDULER, "op"), "id", "op")
    assert sorted(got.id) == list(range(4000))
    costs = COSTS[got.op.str.removeprefix("op").astype(int)]
    loads = np.bincount(got.partition, costs, 5)
    # Each of the three partitions leaves at most one record between any two tasks.
    assert loads.max() - loads.min() <= 3 * COSTS.max()
    assert su.schedule(df, SCHEDULER, "op").columns == ["id", "op"]


def test_tasks_of_any_number(spark):
    scheduler = Scheduler.from_sketch([3, 8, 11], sketch())
    df = rows(spark, 500)
    tasks = partitions(
        df.sortWithinPartitions(F.xxhash64("id", "op")).withColumn(
            "task", su.schedule_udf(scheduler)("op")
        ),
        "id",
        "task",
    ).set_index("id")
    got = partitions(su.schedule(df, scheduler, "op"), "id").set_index("id")
    assert got.partition.map([3, 8, 11].__getitem__).to_dict() == tasks.task.to_dict()


def test_order_of_rows_does_not_matter(spark):
    """What comes over an exchange may come in another order when a stage runs again."""
    df = rows(spark)
    up = partitions(su.schedule(df.sortWithinPartitions("id"), SCHEDULER, "op"), "id")
    down = partitions(su.schedule(df.sortWithinPartitions(F.desc("id")), SCHEDULER, "op"), "id")
    assert dict(zip(up.id, up.partition, strict=True)) == dict(
        zip(down.id, down.partition, strict=True)
    )


def test_sort_is_never_taken_away(spark):
    """By what follows: a group, another sort, a join."""
    placed = su.schedule(rows(spark, 400), SCHEDULER, "op")
    for df in (
        placed.groupBy("op").count(),
        placed.orderBy("id"),
        placed.join(placed.groupBy("op").count(), "op"),
    ):
        assert re.search(r"Sort \[xxhash64", plan_text(df))


def test_cost_sketch(spark):
    df = rows(spark, 600).withColumn("took", F.length("op").cast("int"))
    made = su.cost_sketch(df, "op", time="took")
    assert made.mean_time(["op1", "op25"]).tolist() == [3.0, 4.0]
    tasks = su.schedule(df, Scheduler.from_sketch(4, made), "op")
    assert tasks.count() == 600
    with pytest.raises(TypeError, match="time: expected numbers, got string"):
        su.cost_sketch(df, "id", time="op")


RETRY = """
    import glob, json, os
    import numpy as np, pyarrow as pa
    import pyroute as pr, spark_udf as su
    from pyspark import TaskContext
    from pyspark.sql import functions as F
    from spark_udf.session import local_session

    spark = local_session("local[1]", {"spark.local.dir": FOLDER, "spark.ui.enabled": "false",
        "spark.sql.adaptive.enabled": "false", "spark.stage.maxConsecutiveAttempts": "20",
        "spark.sql.shuffle.partitions": "4"})
    spark.sparkContext.setLogLevel("OFF")
    sketch = pr.CostSketch(0.001)
    sketch.observe([f"op{i}" for i in range(60)], [float(i % 13 + 1) for i in range(60)])
    scheduler = pr.posg.Scheduler.from_sketch(4, sketch)

    def reading(lose):
        # One task after the other; the first one loses what was exchanged for the others. Tasks are
        # numbered as they start, so that those of one stage attempt have numbers in a row.
        def body(batches):
            table = pa.Table.from_batches(batches)
            context = TaskContext.get()
            if lose and context.partitionId() == 0:
                for path in glob.glob(FOLDER + "/**/shuffle_*.data", recursive=True):
                    os.remove(path)
            n = table.num_rows
            attempt = context.taskAttemptId() - context.partitionId()
            yield pa.RecordBatch.from_pydict({
                "partition": pa.array([context.partitionId()] * n, pa.int32()),
                "attempt": pa.array([attempt] * n, pa.int32()),
                "id": table.column("id").combine_chunks(),
            })
        return body

    operation = F.concat(F.lit("op"), (F.col("id") * F.col("id")) % 60).alias("op")
    df = spark.range(0, 3000, 1, 3).select("id", operation)

    def outcome(placed, lose):
        found = placed.mapInArrow(reading(lose), "partition int, attempt int, id bigint")
        return sorted(map(tuple, found.collect()), key=lambda row: row[2])

    def whim(column):
        import secrets
        return pa.array([secrets.randbelow(4) for _ in range(len(column))], pa.int32())
    whim.__annotations__ = {"column": pa.Array, "return": pa.Array}

    def by(task):
        return df.withColumn("t", task).repartitionById(4, F.col("t"))

    out = {}
    out["plain"] = outcome(su.schedule(df, scheduler, "op"), False)
    out["lost"] = outcome(su.schedule(df, scheduler, "op"), True)
    out["unsorted"] = outcome(su.schedule(df, scheduler, "op", sort=False), True)
    try:
        out["whim"] = outcome(by(F.arrow_udf(whim, "int")("op")), True)
    except Exception as error:
        out["whim"] = str(error)
    # The order of what came over an exchange, and then a retry.
    again = df.repartition(3)
    out["exchanged"] = outcome(su.schedule(again, scheduler, "op"), True)
    print("OUT" + json.dumps(out))
"""


def test_stage_retry(tmp_path):
    """Rows whose exchange is lost half-way come out as if nothing had happened."""
    import json

    folder = tmp_path / "local"
    folder.mkdir()
    done = run(RETRY.replace("FOLDER", repr(str(folder))), tmp_path)
    found = re.search(r"OUT(.*)", done.stdout)
    assert found, done.stdout[-1000:] + done.stderr[-3000:]
    out = json.loads(found[1])
    everything = list(range(3000))
    for name in ("lost", "unsorted", "exchanged"):
        attempts = {attempt for _, attempt, _ in out[name]}
        assert len(attempts) > 1, f"{name}: no stage ran again"
        assert [row for _, _, row in out[name]] == everything, name
    assert len({attempt for _, attempt, _ in out["plain"]}) == 1
    assert [p for p, _, _ in out["lost"]] == [p for p, _, _ in out["plain"]]
    # A choice that is no pure function loses rows and sends others twice, or Spark finds out by
    # itself and fails the job: this test can tell.
    if isinstance(out["whim"], str):
        assert "indeterminate output was failed and retried" in out["whim"]
    else:
        assert [row for _, _, row in out["whim"]] != everything
