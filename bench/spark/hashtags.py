"""Does routing help two keyed operators in a row: tweets by state, then by hashtag?

Every record passes through both: the first waits for it with the records of its state and passes it
on, the second waits for it with those of its hashtag and counts.
"""

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

import spark_udf as su
from bench.peers import Scale
from bench.report import Section
from bench.spark import harness, keyed
from bench.spark.harness import AQE_OFF, AQE_ON, Arm
from bench.spark.keyed import TASKS
from bench.spark.page import Raw

TITLE = "hashtags: two keyed operators in a row"
WAIT = 20e-6
PASSED = "hashtag string, ts bigint, account string"
COUNTED = "hashtag string, n bigint"


def passing(wait: float) -> Callable[[pa.Table], pa.Table]:
    """The first operator: waits for the records of a state and passes them on."""

    def one_state(table: pa.Table) -> pa.Table:
        time.sleep(wait * table.num_rows)
        return table.select(["hashtag", "ts", "account"])

    return one_state


def as_they_are(table: pa.Table) -> pa.Table:
    return table


def arms(read: Callable[[], Any]) -> list[Arm]:
    first, second = passing(WAIT), keyed.counter("hashtag", WAIT)

    def by(place: Callable[[Any, str], Any]) -> Any:
        passed = keyed.on_placed(place(read(), "state"), ["state"], first, PASSED)
        return keyed.on_placed(place(passed, "hashtag"), ["hashtag"], second, COUNTED).toArrow()

    def by_hash() -> Any:
        return by(lambda df, key: df.repartition(TASKS, key))

    def adaptive() -> Any:
        return by(lambda df, key: df.repartition(key))

    def by_salt() -> Any:
        placed = keyed.salted(read()).repartition(TASKS, "state", "salt")
        passed = keyed.on_placed(placed, ["state", "salt"], first, PASSED)
        placed = keyed.salted(passed).repartition(TASKS, "hashtag", "salt")
        parts = keyed.on_placed(placed, ["hashtag", "salt"], second, COUNTED)
        return parts.groupBy("hashtag").agg(F.sum("n").alias("n")).toArrow()

    def routed(**options: Any) -> Any:
        df = read()
        pass_on = {"merge": as_they_are} if options else {}
        add_up = {"merge": keyed.added_up} if options else {}
        states = su.balance(df, "state", tasks=TASKS, **options)
        router = su.balance(df, "hashtag", tasks=TASKS, **options).router
        passed = states.apply_by_key(first, PASSED, **pass_on)
        return su.apply_by_key(
            passed, router, "hashtag", func=second, schema=COUNTED, **add_up
        ).toArrow()

    return [
        Arm("hash", by_hash, AQE_OFF),
        Arm("AQE", adaptive, AQE_ON),
        Arm("salting", by_salt, AQE_OFF),
        Arm("routed", routed, AQE_ON),
        Arm("routed, split", lambda: routed(mergeable=True), AQE_ON),
    ]


def measure(scale: Scale) -> Raw:
    source = harness.data("congress_hashtags")
    if source is None:
        return keyed.absent("congress_hashtags")
    spark = keyed.session()
    path = keyed.spread_out(source, scale.pick(10**9, 80_000))

    def read() -> Any:
        return spark.read.parquet(path).select("state", "hashtag", "ts", "account")

    return {
        "rows": read().count(),
        "arms": keyed.compare(spark, scale, arms(read), "hashtags"),
    }


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__.split("\n")[0])
    section.say(
        f"{raw['rows']:,} hashtags, 57 states ('' has 17 % of the records, more than a task may"
        f" carry) and 55,000 hashtags, 8 partitions on local[8], {WAIT * 1e6:g} us per record in"
        f" each operator. {keyed.ABOUT} Loads: by state / by hashtag. 'Split': `mergeable=True`"
        " for both; what the first operator answers to split keys is exchanged once more. No goal"
        " was set."
    )
    keyed.show_arms(section, "Both operators, from Parquet to counts:", raw["arms"])
    return section
