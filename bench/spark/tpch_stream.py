"""What does a continuous Q5 do while its foreign keys drift (figure 16 of paper 002)?

Line items come in micro-batches; order and customer are joined to them in the JVM. The join with
the supplier and the window are one keyed operator (`su.RoutedStream`): it waits for each record,
keeps those of its supplier's own nation, and holds the revenue of the window per supplier. The
paper's times are scaled: a batch is 2.5 minutes, so that the window of 5 minutes is two batches,
and the suppliers' load changes every six (15 minutes), with f = 1 and z = 0.8.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from bench.peers import Scale
from bench.report import Section
from bench.spark import generate, harness, stream, tpch
from bench.spark.harness import GENERATED
from bench.spark.page import Raw, Spread, at_least
from pyroute import workloads

TITLE = "tpch_stream: continuous Q5, figure 16 of paper 002"
TASKS, SKEW, WINDOW, CHANGE = 8, 0.8, 2, 6
WAIT = 400e-6
STATE = "batch bigint, now bigint, before bigint"
ARMS: dict[str, dict[str, Any]] = {
    "hash": {"balanced": False},
    "Readj, theta_max = 0.1": {"algorithm": "readj", "max_imbalance": 0.1, "gate": None},
    "Mixed, theta_max = 0.1": {"algorithm": "mixed", "max_imbalance": 0.1, "gate": None},
    "Mixed, theta_max = 0.02": {"algorithm": "mixed", "max_imbalance": 0.02, "gate": None},
}


def line_items(paths: dict[str, str], batches: int, rows: int, seed: int) -> Iterator[pa.Table]:
    """Line items of orders of 1994: Zipf orders, suppliers that drift, prices in cents."""
    orders = pq.read_table(paths["orders"])
    year = np.asarray(orders["o_orderdate"]).astype("datetime64[Y]") == np.datetime64("1994")
    keys = np.random.default_rng([seed, 7]).permutation(orders["o_orderkey"].to_numpy()[year])
    suppliers = np.sort(pq.read_table(paths["supplier"])["s_suppkey"].to_numpy())
    homes = pr.Ring(TASKS).homes(suppliers)
    trace = workloads.fluctuating_zipf(
        len(suppliers),
        homes=homes,
        tasks=TASKS,
        skew=SKEW,
        records=rows,
        intervals=-(-batches // CHANGE),
        seed=seed,
    )
    random = np.random.default_rng([seed, 8])
    number = 0
    for counts in trace:
        whole = np.repeat(suppliers.astype(np.int64), counts)
        for _ in range(min(CHANGE, batches - number)):
            yield pa.table(
                {
                    "orderkey": keys[generate.zipf(random, rows, len(keys), SKEW)].astype(np.int64),
                    "suppkey": random.permutation(whole),
                    "cents": random.integers(90_000, 10_000_000, rows),
                    "batch": np.full(rows, number, np.int64),
                }
            )
            number += 1


def operator(nations: np.ndarray, asia: np.ndarray, wait: float) -> Callable[..., pa.Table | None]:
    """The keyed operator. Answers with the revenue of the window, per nation, of its suppliers."""

    def func(state: Any, batches: Any) -> pa.Table | None:
        rows = list(batches)
        if not rows:
            return None
        table = pa.Table.from_batches(rows)
        time.sleep(wait * table.num_rows)
        number = int(table["batch"][0].as_py())
        nation = nations[table["suppkey"].to_numpy()]
        joined = (nation == table["c_nationkey"].to_numpy()) & asia[nation]
        sold = table.filter(pa.array(joined)).group_by("suppkey").aggregate([("cents", "sum")])
        keys = sold.select(["suppkey"])
        last, _ = state.read(keys)
        age = number - np.asarray(last["batch"].fill_null(-9))
        before = np.where(age == 1, np.asarray(last["now"].fill_null(0)), 0)
        full = np.full(len(before), number, np.int64)
        state.write(
            pa.table(
                {
                    "suppkey": sold["suppkey"],
                    "batch": full,
                    "now": sold["cents_sum"],
                    "before": before.astype(np.int64),
                }
            )
        )
        totals = np.zeros(len(asia), np.int64)
        for batch in state.scan():
            age = number - batch["batch"].to_numpy()
            now, then = batch["now"].to_numpy(), batch["before"].to_numpy()
            value = np.select([age == 0, age == 1], [now + then, now], 0)
            np.add.at(totals, nations[batch["suppkey"].to_numpy()], value)
        found = np.flatnonzero(totals)
        columns = {"nation": found.astype(np.int64), "cents": totals[found]}
        return pa.table({**columns, "batch": np.full(len(found), number, np.int64)})

    return func


def answers(directory: str) -> pa.Table:
    """Revenue of the window, by batch and nation."""
    table = pq.read_table(Path(directory) / "state" / "outputs", partitioning=None)
    summed = table.group_by(["batch", "nation"]).aggregate([("cents", "sum")])
    return summed.sort_by([("batch", "ascending"), ("nation", "ascending")])


def measure(scale: Scale) -> Raw:
    factor = 0.02 if scale.quick else 1.0
    folder = tpch.dbgen(factor)
    if folder is None:
        return {"absent": "Not measured: tpchgen-cli is missing: pip install tpchgen-cli"}
    paths = tpch.table_paths(folder, factor, scale.seed)
    batches, rows = scale.pick(4 * CHANGE, CHANGE + 2), scale.pick(20_000, 2_000)
    source = GENERATED / "streams" / "line-items"
    stream.files(source, line_items(paths, batches, rows, scale.seed))
    spark = harness.session("local[8]", {"spark.sql.shuffle.partitions": str(TASKS)})
    func = operator(*suppliers_of(folder, paths), WAIT)

    def query(options: dict[str, Any]) -> Callable[..., Any]:
        def make(df: Any, **where: Any) -> Any:
            orders = spark.read.parquet(paths["orders"]).filter("year(o_orderdate) = 1994")
            customer = spark.read.parquet(paths["customer"])
            bought = orders.join(customer, F.col("o_custkey") == F.col("c_custkey"))
            bought = bought.select(F.col("o_orderkey").alias("orderkey"), "c_nationkey")
            joined = df.join(F.broadcast(bought), "orderkey")
            return su.RoutedStream(
                joined.select("suppkey", "c_nationkey", "cents", "batch"),
                "suppkey",
                tasks=TASKS,
                func=func,
                state_schema=STATE,
                output_schema="nation bigint, cents bigint, batch bigint",
                **{**options, **where},
            )

        return make

    found: Raw = {arm: [] for arm in ARMS}
    stream.run(spark, source, "warm", query(ARMS["hash"]))
    first: pa.Table | None = None
    for repetition in range(harness.REPETITIONS or scale.pick(5, 1)):
        names = list(ARMS)
        start = repetition % len(names)
        for arm in [*names[start:], *names[:start]]:
            got = stream.run(spark, source, arm.replace(",", ""), query(ARMS[arm]))
            first = harness.same(first, answers(got.pop("directory")), arm)
            found[arm].append(got)
    return {"factor": factor, "batches": batches, "rows": rows, "arms": found}


def suppliers_of(folder: Path, paths: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Nation of each supplier, and whether a nation is in Asia."""
    suppliers = pq.read_table(paths["supplier"])
    nations = np.zeros(suppliers["s_suppkey"].to_numpy().max() + 1, np.int64)
    nations[suppliers["s_suppkey"].to_numpy()] = suppliers["s_nationkey"].to_numpy()
    regions = pq.read_table(folder / "region.parquet")
    at = regions["r_name"].to_pylist().index("ASIA")
    nation = pq.read_table(folder / "nation.parquet")
    asia = np.zeros(nation["n_nationkey"].to_numpy().max() + 1, bool)
    asia[nation["n_nationkey"].to_numpy()] = (
        nation["n_regionkey"].to_numpy() == regions["r_regionkey"][at].as_py()
    )
    return nations, asia


# -- the page


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__.split("\n")[0])
    rows, arms = raw["rows"], raw["arms"]
    section.say(
        f"Scale factor {raw['factor']:g}, {raw['batches']} micro-batches of {rows:,} line items,"
        f" a batch is 2.5 minutes of the paper's time: window {WINDOW} batches, change (f = 1, z ="
        f" {SKEW}) every {CHANGE}. {WAIT * 1e6:g} us of waiting per record in the keyed operator"
        f" (alone: {rows * WAIT / TASKS:.2f} s a batch), {TASKS} tasks on local[8]. Every arm is"
        " `su.RoutedStream`, planning after every batch; revenues per window and nation are equal"
        " in every run. Readj at its default parameter. Throughput is records per second of the"
        " batches' jobs."
    )
    table = section.table(
        "arm",
        "records/s",
        "max/mean",
        "wall s",
        "keys moved",
        "table at the end",
        "cores of others",
    )
    speed = {}
    for arm, runs in arms.items():
        seconds = stream.by_batch(runs, "seconds")
        speed[arm] = Spread((rows / seconds.mean(axis=1)).tolist())
        level = 1 + stream.by_batch(runs, "imbalance")
        table.add(
            arm,
            speed[arm].text(",.0f"),
            Spread(level.mean(axis=1).tolist()).text(".3f"),
            Spread([one["wall"] for one in runs]).text(".1f"),
            Spread([sum(one["keys_moved"]) for one in runs]).text(",.0f"),
            Spread([one["table"][-1] for one in runs]).text(",.0f"),
            Spread([one["others"] for one in runs]).text(".1f"),
        )
    section.say("Throughput over time, records per second (median of the runs):")
    timeline = section.table("minute", *arms)
    for i in range(raw["batches"]):
        cells = [
            f"{rows / np.median(stream.by_batch(runs, 'seconds')[:, i]):,.0f}"
            for runs in arms.values()
        ]
        changed = " (change)" if i and i % CHANGE == 0 else ""
        timeline.add(f"{i * 2.5:g}{changed}", *cells)
    for arm in list(arms)[2:]:
        for other in list(arms)[:2]:
            name = f"figure 16: throughput of {arm} to {other}"
            section.goals.append(at_least(name, 1.0, speed[arm].over(speed[other])))
    return section
