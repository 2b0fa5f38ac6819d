"""Does routing take the straggler out of keyed Python work, its own statistics and plan counted?

Each row of a key asks for 40 us of waiting (a call to a service, say), inside a function per key.
Waiting overlaps in 8 tasks whatever the cores do, so that the wall time is that of the greatest
task and not of the machine.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from bench.peers import Scale
from bench.report import Section
from bench.spark import generate, harness
from bench.spark.harness import AQE_OFF, AQE_ON, Arm
from bench.spark.page import Raw, Spread, arms_table, at_most, least, stages_of, wall

TITLE = "skewed: keyed work with a straggler"
TASKS, KEYS, SALTS = 8, 2_000, 8
WAIT = 40e-6
SCHEMA = "k bigint, n bigint, total bigint"
BY_VALUE = ("hash", "hash, AQE", "hash, same function")
SALTING = ("salting, merged in Python", "salting", "salting, same function")
ROUTED = "routed"


def work(wait: float) -> Callable[[pa.Table], pa.Table]:
    """The function per key: its rows are waited for, counted and summed."""

    def one_key(table: pa.Table) -> pa.Table:
        time.sleep(wait * table.num_rows)
        total = pc.sum(table.column("v")).as_py()
        columns = {"k": table.column("k")[:1], "n": [table.num_rows], "total": [total]}
        types = pa.schema([("k", "int64"), ("n", "int64"), ("total", "int64")])
        return pa.table(columns, schema=types)

    return one_key


def merged(table: pa.Table) -> pa.Table:
    """One row of the partial answers to one key."""
    return (
        table.group_by("k")
        .aggregate([("n", "sum"), ("total", "sum")])
        .rename_columns({"n_sum": "n", "total_sum": "total"})
    )


def summed(df: Any) -> Any:
    return df.groupBy("k").agg(F.sum("n").alias("n"), F.sum("total").alias("total"))


def arms(spark: Any, path: str, *, mergeable: bool) -> list[Arm]:
    """Every way to do it, from Parquet to the answers on the driver."""
    func = work(WAIT)
    by_value = pr.Router(pr.SparkHash(TASKS, "bigint"))

    def read() -> Any:
        return spark.read.parquet(path)

    def grouped() -> Any:
        return read().groupBy("k").applyInArrow(func, SCHEMA).toArrow()

    def per_partition() -> Any:
        return su.apply_by_key(read(), by_value, "k", func=func, schema=SCHEMA).toArrow()

    def salted_parts() -> Any:
        salt = F.pmod(F.xxhash64("*"), F.lit(SALTS))
        return read().withColumn("salt", salt).groupBy("k", "salt").applyInArrow(func, SCHEMA)

    def salted() -> Any:
        return summed(salted_parts()).toArrow()

    def salted_in_python() -> Any:
        return salted_parts().groupBy("k").applyInArrow(merged, SCHEMA).toArrow()

    def salted_per_partition() -> Any:
        df = read().withColumn("salt", F.pmod(F.xxhash64("*"), F.lit(SALTS)))
        placed = df.repartition(TASKS, "k", "salt").sortWithinPartitions("k", "salt")
        return summed(placed.mapInArrow(runs_of(func), SCHEMA)).toArrow()

    def routed() -> Any:
        made = su.balance(read(), "k", tasks=TASKS, mergeable=mergeable)
        merge = {"merge": merged} if mergeable else {}
        return made.apply_by_key(func, SCHEMA, **merge).toArrow()

    return [
        Arm("hash", grouped, AQE_OFF),
        Arm("hash, AQE", grouped, AQE_ON),
        Arm("hash, same function", per_partition, AQE_OFF),
        Arm("salting, merged in Python", salted_in_python, AQE_OFF),
        Arm("salting", salted, AQE_OFF),
        Arm("salting, same function", salted_per_partition, AQE_OFF),
        Arm(ROUTED, routed, AQE_OFF),
    ]


def runs_of(func: Callable[[pa.Table], pa.Table]) -> Callable[..., Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: the function on each run of rows with one k and one salt."""

    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:

        rows = [pa.Table.from_batches([batch]) for batch in batches]
        if not rows:
            return
        table = pa.concat_tables(rows)
        mark = table.column("k").to_numpy() * 64 + table.column("salt").to_numpy()
        edges = np.flatnonzero(np.diff(mark, prepend=mark[0] - 1, append=mark[-1] + 1))
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            yield from func(table.slice(start, end - start)).to_batches()

    return partition


def measure(scale: Scale) -> Raw:
    options = {"spark.sql.shuffle.partitions": str(TASKS)}
    spark = harness.session("local[8]", options)
    rows = scale.pick(1_000_000, 50_000)
    out: Raw = {"rows": rows}
    for skew, mergeable in ((1.0, False), (1.5, True)):
        path = generate.keyed(rows, KEYS, skew, scale.seed, TASKS)
        ways = arms(spark, path, mergeable=mergeable)
        out[f"{skew:g}"] = harness.interleave(
            spark, ways, scale.pick(5, 2), partitions=TASKS, say=f"skewed {skew:g}"
        )
    return out


# -- the page


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__.split("\n")[0])
    section.say(
        f"{raw['rows']:,} rows, {KEYS:,} keys, {TASKS} partitions on local[8], {WAIT * 1e6:.0f} us"
        " of waiting per row; from Parquet to all answers on the driver. `hash`:"
        " `groupBy(k).applyInArrow`. 'Same function': rows placed by Spark's own hash, or by key"
        " and salt, and one Python function per partition that calls the work for each key, as"
        " `apply_by_key` does. Salting: 8 salts from a hash of the row, partial answers merged"
        " by a Python function per key, as a user's own merge is, or summed in the JVM. Routed:"
        " `su.balance`, statistics and plan included, and `apply_by_key`; at Zipf"
        " 1.5 with `mergeable=True`. The waiting alone, spread evenly, is"
        f" {raw['rows'] * WAIT / TASKS:.2f} s."
    )
    for skew in ("1", "1.5"):
        section.say(f"Zipf {float(skew):.1f}:")
        arms_table(section, raw[skew], ROUTED)
    one, steep = raw["1"], raw["1.5"]
    best = least(*(wall(one, arm) for arm in BY_VALUE))
    section.goals += [
        at_most("Zipf 1.0: max/mean rows, routed", 1.02, rows_of(one, ROUTED), ".3f"),
        at_most(
            f"Zipf 1.0: wall, routed to the best of {', '.join(BY_VALUE)}",
            0.8,
            wall(one, ROUTED).over(best),
        ),
        *(
            at_most(
                f"Zipf 1.0: wall, routed to {arm}", 0.35, wall(one, ROUTED).over(wall(one, arm))
            )
            for arm in SALTING
        ),
        *(
            at_most(
                f"Zipf 1.5: wall, routed and split, to {arm}",
                1.0,
                wall(steep, ROUTED).over(wall(steep, arm)),
            )
            for arm in SALTING
        ),
    ]
    return section


def rows_of(arms: Raw, name: str) -> Spread:
    return Spread([one["max_rows"] for one in stages_of(arms[name])])
