"""Do rows of unequal cost, spread by what an earlier run cost, take less time than spread evenly?

Every row is a leaf span of trainticket_spans and is waited for as long as it took, scaled, inside a
Python function per partition. Waiting overlaps in 8 tasks whatever the cores do, so that the wall
time is that of the longest task. What operations cost is learned from the first half of the file,
rows are a stretch of the second half.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from bench.papers.scheduling import leaf_spans
from bench.peers import Scale
from bench.report import Section
from bench.spark import generate, harness
from bench.spark.harness import AQE_OFF, Arm
from bench.spark.keyed import absent
from bench.spark.page import Raw, Spread, arms_table, at_most, wall
from pyroute.posg import Scheduler

TITLE = "schedule: rows of unequal cost"
TASKS = 8
SECONDS = 3.0  # of waiting for each task, were all alike
SIZE, ROBIN = "size", "round robin"
SCHEDULED, UNSORTED, EXACT = "scheduled", "scheduled, unsorted", "scheduled, exact times"


def waiting(scale: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function per partition: waits for its rows, and says how many and how long."""

    def partition(batches: Any) -> Any:
        count, total = 0, 0
        for batch in batches:
            took = int(batch.column("duration_us").to_numpy().sum())
            time.sleep(took * scale)
            count, total = count + batch.num_rows, total + took
        yield pa.RecordBatch.from_pydict({"n": [count], "took": [total]})

    return partition


def arms(read: Callable[[], Any], earlier: Any, scale: float, loads: Raw) -> list[Arm]:
    learned = Scheduler.from_sketch(TASKS, su.cost_sketch(earlier, "operation", time="duration_us"))
    # A row's own time as its key: what a scheduler could do that knew all.
    every = np.unique(read().select("duration_us").toPandas()["duration_us"].to_numpy(np.int64))
    exact = pr.CostSketch(1e-5)
    exact.observe(every, every.astype(np.float64))
    known = Scheduler.from_sketch(TASKS, exact)

    def arm(name: str, placed: Callable[[], Any]) -> Arm:
        def run() -> list[int]:
            found = placed().mapInArrow(waiting(scale), "n bigint, took bigint").toPandas()
            loads[name] = found["took"].tolist()
            return [int(found["n"].sum()), int(found["took"].sum())]

        return Arm(name, run, AQE_OFF)

    def by_time() -> Any:
        return su.schedule(
            read().withColumn("us", F.col("duration_us").cast("bigint")), known, "us"
        )

    return [
        arm(SIZE, read),
        arm(ROBIN, lambda: read().repartition(TASKS)),
        arm(SCHEDULED, lambda: su.schedule(read(), learned, "operation")),
        arm(UNSORTED, lambda: su.schedule(read(), learned, "operation", sort=False)),
        arm(EXACT, by_time),
    ]


def measure(scale: Scale) -> Raw:
    table = leaf_spans()
    if table is None:
        return absent("trainticket_spans")
    half = table.num_rows // 2
    spark = harness.session("local[8]", {"spark.sql.shuffle.partitions": str(TASKS)})
    step = -(-half // TASKS)
    first = generate.made(
        f"spans-first-{half}", lambda: (table.slice(i * step, step) for i in range(TASKS))
    )
    out: Raw = {"sizes": {}}
    for rows in (400,) if scale.quick else (400, 4_000, 40_000):
        chosen = table.slice(half, rows)
        part = -(-rows // TASKS)
        path = generate.made(
            f"spans-second-{rows}",
            lambda t=chosen, s=part: (t.slice(i * s, s) for i in range(TASKS)),
        )
        took = chosen.column("duration_us").to_numpy()
        seconds = 0.5 if scale.quick else SECONDS
        factor = seconds * TASKS / float(took.sum())
        loads: Raw = {}
        ways = arms(lambda p=path: spark.read.parquet(p), spark.read.parquet(first), factor, loads)
        found = harness.interleave(spark, ways, scale.pick(5, 2), say=f"schedule {rows}")
        out["sizes"][str(rows)] = {
            "arms": found,
            "loads": loads,
            "seconds": seconds,
            "variation": float(took.std() / took.mean()),
            "largest": float(took.max() * TASKS / took.sum()),
        }
    return out


# -- the page


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__.split("\n")[0])
    section.say(
        f"Leaf spans of trainticket_spans, a stretch of the second half in {TASKS} files of equally"
        f" many rows, {TASKS} tasks on local[8]; durations are scaled so that the waiting, spread"
        " evenly, is as said. `size`: a partition per file, no exchange. Round robin:"
        " `repartition(8)`. Scheduled: `su.schedule` by operation, with a `su.cost_sketch` of the"
        " first half that an earlier run would have left; its exchange and sort are counted. Exact"
        " times: the same, were every row's time known. Load is the longest waiting of a task over"
        " the mean: it does not depend on the machine."
    )
    for rows, one in raw["sizes"].items():
        section.say(
            f"{int(rows):,} rows, {one['seconds']:g} s of waiting for each task, coefficient of"
            f" variation {one['variation']:.2f}; the longest row alone is {one['largest']:.2f} of a"
            " task's share:"
        )
        table = section.table("arm", "max/mean load")
        for name, loads in one["loads"].items():
            table.add(name, f"{load(loads):.3f}")
        arms_table(section, one["arms"], SCHEDULED)
        for arm in (ROBIN, SIZE):
            section.goals.append(
                at_most(
                    f"{int(rows):,} rows: wall, scheduled to {arm}",
                    1.0,
                    wall(one["arms"], SCHEDULED).over(wall(one["arms"], arm)),
                )
            )
        section.goals.append(
            at_most(
                f"{int(rows):,} rows: load, scheduled to round robin",
                1.0,
                Spread([load(one["loads"][SCHEDULED]) / load(one["loads"][ROBIN])]),
                ".3f",
            )
        )
    return section


def load(loads: list[int]) -> float:
    """Over the mean of all tasks: one that got nothing counts too."""
    return max(loads) * TASKS / sum(loads)
