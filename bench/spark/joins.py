"""Is a balanced join faster than Spark's own where that does not split what is skewed?

AQE splits a partition that is large and much larger than the median, for the joins whose result
allows it. Its thresholds are left as they are, so that nothing here is large enough; `split_joins`
lowers them. Joins alone, and with work on each row of the result (waiting, so that 8 tasks overlap
on any number of cores).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

import spark_udf as su
from bench.peers import Scale
from bench.report import Section
from bench.spark import generate, harness
from bench.spark.harness import AQE_OFF, AQE_ON, NO_BROADCAST, Arm, explained
from bench.spark.page import Raw, arms_table, at_most, wall

TITLE = "joins: skewed joins against AQE"
TASKS, SALTS = 8, 8
WAIT = 40e-6
SMALL = {
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "200KB",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.5",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "200KB",
}


@dataclass(frozen=True)
class Case:
    """A join, and whether AQE is told that small partitions are large."""

    name: str
    shape: str
    how: str
    splits: bool

    @property
    def wait(self) -> float:
        return SHAPES[self.shape].wait


@dataclass(frozen=True)
class Shape:
    """Rows and skew of the left and of the right; a skew of 0 is one row for each key."""

    keys: int
    left: tuple[int, float]
    right: tuple[int, float]
    wait: float = 0.0  # seconds for each row of the result


SHAPES = {
    "one side": Shape(100_000, (24_000_000, 1.2), (100_000, 0.0)),
    "both sides": Shape(20_000, (800_000, 1.0), (120_000, 1.0)),
    "one side, work": Shape(20_000, (600_000, 1.2), (20_000, 0.0), WAIT),
    "one side, mild, work": Shape(20_000, (600_000, 0.9), (20_000, 0.0), WAIT),
    "both sides, work": Shape(20_000, (20_000, 1.0), (2_000, 1.0), WAIT),
}


def cases(splits: bool, *wanted: tuple[str, str]) -> tuple[Case, ...]:
    """Shapes and kinds of join, with AQE's thresholds lowered or not."""
    return tuple(Case(f"{shape}, {how}", shape, how, splits) for shape, how in wanted)


CASES = cases(
    False,
    ("one side, work", "inner"),
    ("one side, work", "left"),
    ("one side, mild, work", "full"),
    ("both sides, work", "inner"),
    ("one side", "inner"),
    ("both sides", "inner"),
)


def side(rows: int, keys: int, skew: float, seed: int, column: str) -> str:
    """Rows (k, id, column); with a skew of 0 each key once."""

    def tables() -> Iterator[pa.Table]:
        ids = generate.heaviest_first(keys, seed=0)  # the same keys on both sides
        random = np.random.default_rng([seed, rows])
        for i in range(4):
            k = ids[generate.zipf(random, rows // 4, keys, skew)] if skew else ids[i::4]
            own = np.arange(len(k)) * 4 + i
            yield pa.table({"k": k, f"{column}_id": own, column: own % 1000})

    return generate.made(f"side-{rows}-{keys}-{skew:g}-{seed}-{column}", tables)


def frames(spark: Any, scale: Scale, case: Case) -> tuple[Any, Any]:
    """Left and right."""
    shape = SHAPES[case.shape]
    smaller = scale.pick(1, 20 if shape.left[0] >= 600_000 else 2)
    paths = []
    for (rows, skew), seed, column in ((shape.left, 0, "v"), (shape.right, 1, "w")):
        some = rows // smaller if skew else rows
        paths.append(side(some, shape.keys, skew, scale.seed + seed, column))
    return spark.read.parquet(paths[0]), spark.read.parquet(paths[1])


def waiting(wait: float) -> Callable[..., Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: waits for each row and adds up."""

    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        n = total = 0
        for batch in batches:
            time.sleep(wait * batch.num_rows)
            n += batch.num_rows
            total += pc.sum(batch.column("x")).as_py() or 0
        yield pa.RecordBatch.from_pydict({"n": [n], "total": [total]})

    return partition


def finish(joined: Any, case: Case) -> tuple[int, int]:
    """Count and sum of the result."""
    x = F.coalesce(F.col("v"), F.lit(1)) * F.coalesce(F.col("w"), F.lit(1))
    if case.wait:
        parts = joined.select(x.alias("x")).mapInArrow(waiting(case.wait), "n bigint, total bigint")
        row = parts.agg(F.sum("n"), F.sum("total")).collect()[0]
    else:
        row = joined.agg(F.count("*"), F.sum(x)).collect()[0]
    return int(row[0]), int(row[1])


def arms(spark: Any, scale: Scale, case: Case) -> list[Arm]:
    def plain() -> Any:
        left, right = frames(spark, scale, case)
        return finish(left.join(right, "k", case.how), case)

    def salted() -> Any:
        left, right = frames(spark, scale, case)
        left = left.withColumn("salt", F.pmod(F.xxhash64("v_id"), F.lit(SALTS)).cast("int"))
        right = right.withColumn("salt", F.explode(F.sequence(F.lit(0), F.lit(SALTS - 1))))
        return finish(left.join(right, ["k", "salt"], case.how), case)

    def routed() -> Any:
        left, right = frames(spark, scale, case)
        return finish(su.balance_join(left, right, "k", TASKS, case.how).df, case)

    off = {**AQE_OFF, **NO_BROADCAST}
    out = [Arm("hash", plain, off), Arm("AQE", plain, adaptive(case))]
    if case.how != "full":  # copies without a partner would be in the result
        out.append(Arm("salting", salted, off))
    return [*out, Arm("routed", routed, {**AQE_ON, **NO_BROADCAST})]


def adaptive(case: Case) -> dict[str, str]:
    return {**AQE_ON, **NO_BROADCAST, **(SMALL if case.splits else {})}


def aqe_splits(spark: Any, scale: Scale, case: Case) -> bool:
    """Whether AQE splits a partition of this join; it decides while the join runs."""
    with harness.conf(spark, adaptive(case)):
        left, right = frames(spark, scale, case)
        counted = left.join(right, "k", case.how).agg(F.count("*"))
        counted.collect()
        return "skew=true" in explained(counted)


def measure(scale: Scale) -> Raw:
    return measured(scale, CASES)


def show(raw: Raw) -> Section:
    return shown(raw, Section(TITLE, __doc__.split("\n")[0]), CASES)


def measured(scale: Scale, all_cases: tuple[Case, ...]) -> Raw:
    spark = harness.session("local[8]", {"spark.sql.shuffle.partitions": str(TASKS)})
    out: Raw = {}
    for case in all_cases:
        split = aqe_splits(spark, scale, case)
        found = harness.interleave(
            spark,
            arms(spark, scale, case),
            scale.pick(5, 2),
            partitions=TASKS,
            say=case.name,
        )
        out[case.name] = {"arms": found, "split": split}
    return out


def shown(raw: Raw, section: Section, all_cases: tuple[Case, ...]) -> Section:
    used = dict.fromkeys(case.shape for case in all_cases)
    shapes = "; ".join(
        f"{name}: {of.left[0]:,} rows (Zipf {of.left[1]:g}) and"
        f" {of.right[0]:,} ({f'Zipf {of.right[1]:g}' if of.right[1] else 'one for each key'}),"
        f" {of.keys:,} keys"
        for name, of in ((name, SHAPES[name]) for name in used)
    )
    lowered = "lowered to 200 KB and 1.5 times the median"
    limits = lowered if all_cases[0].splits else "256 MB and 5 times the median, as Spark has them"
    section.say(
        f"{TASKS} partitions on local[8], no broadcast joins, AQE's thresholds {limits}. {shapes}."
        f" Work: {WAIT * 1e6:g} us of waiting for each row of the result. Salting: 8 salts on the"
        " left and 8 copies of the right. Routed: `su.balance_join`, statistics and plan included,"
        " with AQE on. Equal counts and sums in every run. Without work the machine's 2 cores are"
        " the limit: they hide a straggler that has less than half of the rows."
    )
    for name in (case.name for case in all_cases):
        case = raw[name]
        did = "AQE split a partition" if case["split"] else "AQE did not split"
        section.say(f"**{name}** ({did}):")
        arms_table(section, case["arms"], "routed")
        to_aqe = wall(case["arms"], "routed").over(wall(case["arms"], "AQE"))
        bound = 1.05 if case["split"] else 1.0
        section.goals.append(at_most(f"{name}: wall, routed to AQE ({did})", bound, to_aqe))
    return section
