"""Which ways are there to do one piece of keyed work in Spark, with only the placement different?

Two kinds of work. Counting in the JVM (`groupBy().count()`), which Spark combines before the
exchange, so that a hot key is one row per map task there and skew does no harm. And a Python
function per key that waits for each record, as an operator with state would work on it: nothing can
be combined, every record meets its key. Its arms run the same function in the same way
(`spark_udf.by_key`), on rows that were placed by hash, by Spark with adaptive execution, by key and
salt, or by a plan.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from bench.peers import Scale
from bench.report import Section
from bench.spark import harness
from bench.spark.harness import AQE_OFF, AQE_ON, Arm
from bench.spark.page import Raw, arms_table
from spark_udf.by_key import Work

SALTS = 8
TASKS = 8
ABOUT = (
    "hash: AQE off, rows placed by Spark's own hash. AQE: `repartition` without a number, so that"
    " Spark may put partitions together. Salting: 8 salts from a hash of the row, partial answers"
    " summed in the JVM. Routed: `su.balance`, its statistics and plan included. All answers are"
    " equal, asserted in every run. Rows and times of tasks are over the mean of 8 tasks, in the"
    " stages that read most rows."
)


def counter(key: str, wait: float) -> Callable[[pa.Table], pa.Table]:
    """The function per key: waits for its records and counts them."""

    def one_key(table: pa.Table) -> pa.Table:

        time.sleep(wait * table.num_rows)
        return pa.table({key: table.column(key)[:1], "n": pa.array([table.num_rows], "int64")})

    return one_key


def added_up(table: pa.Table) -> pa.Table:
    """The partial counts of one key as one row."""
    total = pc.sum(table.column("n")).as_py()
    return pa.table({table.column_names[0]: table.column(0)[:1], "n": pa.array([total], "int64")})


def salted(df: Any) -> Any:
    return df.withColumn("salt", F.pmod(F.xxhash64("*"), F.lit(SALTS)).cast("int"))


def on_placed(placed: Any, cols: Sequence[str], func: Any, schema: str) -> Any:
    """The function on each key of rows that are already where they belong."""
    return Work(pr.Router(TASKS), func, schema, None).of(placed, cols)


def counted_in_python(read: Callable[[], Any], key: str, wait: float) -> list[Arm]:
    """Every way to place rows for a Python function per key."""
    func, schema = counter(key, wait), f"{key} string, n bigint"

    def by_hash() -> Any:
        return on_placed(read().repartition(TASKS, key), [key], func, schema).toArrow()

    def adaptive() -> Any:
        return on_placed(read().repartition(key), [key], func, schema).toArrow()

    def by_salt() -> Any:
        placed = salted(read()).repartition(TASKS, key, "salt")
        parts = on_placed(placed, [key, "salt"], func, schema)
        return parts.groupBy(key).agg(F.sum("n").alias("n")).toArrow()

    def routed(**options: Any) -> Any:
        merge = {"merge": added_up} if options else {}
        made = su.balance(read(), key, tasks=TASKS, **options)
        return made.apply_by_key(func, schema, **merge).toArrow()

    return [
        Arm("hash", by_hash, AQE_OFF),
        Arm("AQE", adaptive, AQE_ON),
        Arm("salting", by_salt, AQE_OFF),
        Arm("routed", routed, AQE_ON),
        Arm("routed, split", lambda: routed(mergeable=True), AQE_ON),
    ]


def counted_in_jvm(read: Callable[[], Any], *key: str) -> list[Arm]:
    """Every way to count in the JVM."""

    def plain() -> Any:
        return read().groupBy(*key).agg(F.count("*").alias("n")).toArrow()

    def by_salt() -> Any:
        parts = salted(read()).groupBy(*key, "salt").agg(F.count("*").alias("n"))
        return parts.groupBy(*key).agg(F.sum("n").alias("n")).toArrow()

    def routed() -> Any:
        made = su.balance(read(), *key, tasks=TASKS)
        return made.group_by().agg(F.count("*").alias("n")).drop("pyroute_task").toArrow()

    return [
        Arm("hash", plain, AQE_OFF),
        Arm("AQE", plain, AQE_ON),
        Arm("salting", by_salt, AQE_OFF),
        Arm("routed", routed, AQE_ON),
    ]


def session() -> Any:
    return harness.session("local[8]", {"spark.sql.shuffle.partitions": str(TASKS)})


def spread_out(path: Any, rows: int | None = None) -> str:
    """A data set of one file as eight, so that as many tasks read it."""
    import pyarrow.parquet as pq

    from bench.spark import generate

    table = pq.read_table(path)
    if rows is not None:
        table = table.slice(0, rows)
    step = -(-table.num_rows // TASKS)
    parts = [table.slice(i * step, step) for i in range(TASKS)]
    return generate.made(f"{path.stem}-{table.num_rows}-{TASKS}", lambda: iter(parts))


def compare(spark: Any, scale: Scale, arms: Sequence[Arm], say: str) -> Raw:
    return harness.interleave(spark, arms, scale.pick(5, 2), partitions=TASKS, say=say)


def show_arms(section: Section, title: str, arms: Raw) -> None:
    section.say(title)
    arms_table(section, arms, "routed")


def absent(name: str) -> Raw:
    text = f"Not measured: {name}.parquet was not found; PYROUTE_DATA names the folder it is in."
    return {"absent": text}
