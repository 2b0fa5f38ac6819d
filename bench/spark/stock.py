"""Does routing help the self-join of trades per window, on real ticks and on a bursty generator?

Each trade meets the trades of its key in its window, so that a burst costs its square. The key of a
join is (symbol, exchange, window); bursts are keys that no task could carry alone.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

import spark_udf as su
from bench.peers import Scale
from bench.report import Section
from bench.spark import generate, harness, keyed
from bench.spark.harness import AQE_OFF, AQE_ON, NO_BROADCAST, Arm
from bench.spark.keyed import SALTS, TASKS
from bench.spark.page import Raw, arms_table
from pyroute import workloads

TITLE = "stock: self-join of trades per window"
SECONDS = 10
KEY = ["stock", "window"]


def ticks(source: Any, scale: Scale) -> str:
    """Trades: stock (symbol and exchange), window, id, size."""
    rows = scale.pick(10**9, 100_000)

    def tables() -> Iterator[pa.Table]:
        table = pq.read_table(source).slice(0, rows)
        stock = pa.compute.binary_join_element_wise(
            table.column("symbol").cast("string"), table.column("exchange").cast("string"), "/"
        )
        window = table.column("ts_ms").to_numpy() // (1000 * SECONDS)
        size = table.column("size").cast("int64")
        columns = {"stock": stock, "window": window, "id": np.arange(len(window)), "size": size}
        yield from in_parts(pa.table(columns))

    return generate.made(f"ticks-{rows}-{SECONDS}", tables)


def bursts(scale: Scale) -> str:
    """Trades of the generator: in each interval as many as it says, sizes from 0 to 99."""
    intervals, records = scale.pick(78, 10), 4_000

    def tables() -> Iterator[pa.Table]:
        counts = np.array(
            list(workloads.bursty(intervals=intervals, records=records, seed=scale.seed))
        )
        window, stock = np.nonzero(counts)
        each = counts[window, stock]
        window, stock = np.repeat(window, each), np.repeat(stock, each)
        random = np.random.default_rng(scale.seed)
        order = random.permutation(len(window))
        columns = {
            "stock": pa.array(stock[order]).cast("string"),
            "window": window[order],
            "id": np.arange(len(window)),
            "size": random.integers(0, 100, len(window)),
        }
        yield from in_parts(pa.table(columns))

    return generate.made(f"bursts-{intervals}-{records}-{scale.seed}", tables)


def in_parts(table: pa.Table) -> Iterator[pa.Table]:
    step = -(-table.num_rows // TASKS)
    yield from (table.slice(i * step, step) for i in range(TASKS))


def counted(joined: Any) -> Any:
    """Pairs of trades and their volume, for each stock."""
    each = joined.groupBy("stock").agg(
        F.count("*").alias("pairs"), F.sum(F.col("size") * F.col("size2")).alias("volume")
    )
    return each.toArrow()


def arms(read: Callable[[], Any]) -> list[Arm]:
    def sides() -> tuple[Any, Any]:
        left = read()
        right = read().select(*KEY, F.col("id").alias("id2"), F.col("size").alias("size2"))
        return left, right

    def plain() -> Any:
        left, right = sides()
        return counted(left.join(right, KEY))

    def by_salt() -> Any:
        left, right = sides()
        left = left.withColumn("salt", F.pmod(F.xxhash64("id"), F.lit(SALTS)).cast("int"))
        right = right.withColumn("salt", F.explode(F.sequence(F.lit(0), F.lit(SALTS - 1))))
        return counted(left.join(right, [*KEY, "salt"]))

    def routed() -> Any:
        left, right = sides()
        return counted(su.balance_join(left, right, KEY, TASKS).df)

    on, off = {**AQE_ON, **NO_BROADCAST}, {**AQE_OFF, **NO_BROADCAST}
    return [
        Arm("hash", plain, off),
        Arm("AQE", plain, on),
        Arm("salting", by_salt, off),
        Arm("routed", routed, on),
    ]


def measure(scale: Scale) -> Raw:
    spark = keyed.session()
    out: Raw = {}
    source = harness.data("us_equity_trade_ticks")
    paths = {} if source is None else {"us_equity_trade_ticks": ticks(source, scale)}
    for name, path in {**paths, "bursty": bursts(scale)}.items():

        def read(path: str = path) -> Any:
            return spark.read.parquet(path)

        pairs = read().groupBy(*KEY).count().agg(F.sum(F.col("count") ** 2), F.max("count"))
        total, most = pairs.collect()[0]
        out[name] = {
            "rows": read().count(),
            "pairs": int(total),
            "most": int(most),
            "arms": keyed.compare(spark, scale, arms(read), name),
        }
    return out


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__.split("\n")[0])
    section.say(
        f"Joined and aggregated in the JVM, {TASKS} partitions on local[8], no broadcast joins;"
        f" windows of {SECONDS} s (ticks) or one interval (generator). Salting: 8 salts on one side"
        " and 8 copies of the other. Routed: `su.balance_join`, statistics and plan included. All"
        " answers are equal, asserted in every run. Two cores hide a straggler that has less than"
        " half of the work. No goal was set."
    )
    if "us_equity_trade_ticks" not in raw:
        section.say(keyed.absent("us_equity_trade_ticks")["absent"])
    for name, got in raw.items():
        share = got["most"] ** 2 / got["pairs"]
        section.say(
            f"{name}: {got['rows']:,} trades, {got['pairs']:,} pairs, the heaviest key has"
            f" {share:.0%} of them:"
        )
        arms_table(section, got["arms"], "routed")
    return section
