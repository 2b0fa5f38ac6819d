"""Does a stream whose keys drift stay balanced when its keyed state may move (`su.RoutedStream`)?

Counts per key, with waiting for each record, in micro-batches. Every few batches the load of the
keys changes as in paper 002: some task gets a whole mean load more, or loses it. Both arms are the
same job; one keeps its first router, which is plain consistent hashing.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pyroute as pr
import spark_udf as su
from bench.peers import Scale
from bench.report import Section
from bench.spark import harness
from bench.spark.harness import GENERATED, progress
from bench.spark.page import Raw, Spread
from pyroute import workloads

TITLE = "stream: keyed state under drift"
TASKS, KEYS, SKEW = 8, 10_000, 0.85
WAIT = 200e-6
FIGURES = ("seconds", "slowest_seconds", "imbalance", "keys_moved", "bytes_moved", "table")


def files(folder: Path, tables: Iterator[pa.Table]) -> None:
    """One file for each batch, which a stream takes in this order."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for i, table in enumerate(tables):
        path = folder / f"{i:04d}.parquet"
        pq.write_table(table, path, row_group_size=max(1, table.num_rows // TASKS))
        os.utime(path, (1e9 + i, 1e9 + i))


def drifting(phases: int, batches: int, rows: int, seed: int) -> Iterator[pa.Table]:
    """Keys of each batch; they drift after every `batches`."""
    homes = pr.Ring(TASKS).homes(np.arange(KEYS))
    trace = workloads.fluctuating_zipf(
        KEYS, homes=homes, tasks=TASKS, skew=SKEW, records=rows, intervals=phases, seed=seed
    )
    random = np.random.default_rng(seed)
    for counts in trace:
        whole = np.repeat(np.arange(KEYS, dtype=np.int64), counts)
        for _ in range(batches):
            yield pa.table({"k": random.permutation(whole)})


def counting(wait: float) -> Callable[[Any, Any], pa.Table | None]:
    """The function of a task: waits for its records and adds them to the counts of their keys."""

    def func(state: Any, batches: Any) -> pa.Table | None:
        rows = list(batches)
        if not rows:
            return None
        table = pa.Table.from_batches(rows)
        time.sleep(wait * table.num_rows)
        seen = table.group_by("k").aggregate([([], "count_all")]).rename_columns(["k", "n"])
        before, _ = state.read(seen.select(["k"]))
        after = seen.set_column(1, "n", pc.add(seen["n"], pc.fill_null(before["n"], 0)))
        state.write(after)
        return None

    return func


def run(spark: Any, source: Path, name: str, make: Callable[..., Any]) -> Raw:
    """One stream to its end, in folders of its own: wall seconds and the metrics of each batch."""
    folder = GENERATED / "streams" / name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    schema = pq.read_schema(next(iter(sorted(source.glob("*.parquet")))))
    ddl = ", ".join(f"{f.name} {'bigint' if f.type == pa.int64() else f.type}" for f in schema)
    df = spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(str(source))
    made = make(df, directory=folder / "state", checkpoint=folder / "checkpoint")
    harness.wait_for_quiet(5.0)
    every, cpu, wall = harness.all_cpu_seconds(), harness.cpu_seconds(), time.perf_counter()
    query = made.start(availableNow=True)
    query.awaitTermination()
    wall = time.perf_counter() - wall
    cpu = harness.cpu_seconds() - cpu
    others = (harness.all_cpu_seconds() - every - cpu) / wall
    rows = pq.read_table(folder / "state" / "metrics").sort_by("batch_id")
    out: Raw = {name: rows.column(name).to_pylist() for name in (*FIGURES, "rows")}
    progress(f"{name}: {wall:.1f} s, imbalance {[round(i, 2) for i in out['imbalance']]}")
    return {**out, "wall": wall, "cpu": cpu, "others": others, "directory": str(folder)}


def final_counts(directory: str) -> np.ndarray:
    state = su.read_state(Path(directory) / "state")
    counts = np.zeros(KEYS, np.int64)
    counts[state["k"].to_numpy()] = state["n"].to_numpy()
    return counts


def measure(scale: Scale) -> Raw:
    phases, batches, rows = scale.pick(4, 2), scale.pick(6, 3), scale.pick(40_000, 4_000)
    source = GENERATED / "streams" / "drifting"
    files(source, drifting(phases, batches, rows, scale.seed))
    tables = [pq.read_table(path)["k"].to_numpy() for path in sorted(source.glob("*.parquet"))]
    expected = np.bincount(np.concatenate(tables), minlength=KEYS)
    spark = harness.session("local[8]", {"spark.sql.shuffle.partitions": str(TASKS)})

    def stream(balanced: bool) -> Callable[..., Any]:
        def make(df: Any, **where: Any) -> Any:
            options = {"state_schema": "n bigint", "balanced": balanced, **where}
            return su.RoutedStream(df, "k", tasks=TASKS, func=counting(WAIT), **options)

        return make

    arms = {"hash": stream(False), "routed": stream(True)}
    found: Raw = {arm: [] for arm in arms}
    run(spark, source, "warm", arms["routed"])
    for repetition in range(harness.REPETITIONS or scale.pick(5, 1)):
        order = list(arms) if repetition % 2 else list(arms)[::-1]
        for arm in order:
            got = run(spark, source, arm, arms[arm])
            assert np.array_equal(final_counts(got.pop("directory")), expected), f"{arm}: counts"
            found[arm].append(got)
    return {"phases": phases, "batches": batches, "rows": rows, "arms": found}


# -- the page


def by_batch(runs: list[Raw], figure: str) -> np.ndarray:
    """Runs by batches."""
    return np.array([one[figure] for one in runs], float)


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__.split("\n")[0])
    rows, batches, arms = raw["rows"], raw["batches"], raw["arms"]
    section.say(
        f"{raw['phases'] * batches} micro-batches of {rows:,} records, {KEYS:,} keys, Zipf {SKEW},"
        f" f = 1.0 after every {batches} batches, {WAIT * 1e6:g} us of waiting per record (alone:"
        f" {rows * WAIT / TASKS:.2f} s a batch), {TASKS} tasks on local[8]. Both arms are"
        " `su.RoutedStream`; 'hash' is `balanced=False`. Final counts equal those of the input in"
        " every run. Seconds are those of a batch's job: route, exchange, pull of moved keys,"
        " function, files. No goal was set."
    )
    first = np.arange(raw["phases"] * batches) % batches == 0
    table = section.table(
        "arm",
        "max/mean, first batch of a phase",
        "max/mean, later ones",
        "s a batch, first of a phase",
        "s a batch, later ones",
        "wall s",
        "keys moved",
        "cores of others",
    )
    for arm, runs in arms.items():
        level, seconds = 1 + by_batch(runs, "imbalance"), by_batch(runs, "seconds")
        table.add(
            arm,
            Spread(level[:, first].mean(axis=1).tolist()).text(".3f"),
            Spread(level[:, ~first].mean(axis=1).tolist()).text(".3f"),
            Spread(np.median(seconds[:, first], axis=1).tolist()).text(),
            Spread(np.median(seconds[:, ~first], axis=1).tolist()).text(),
            Spread([one["wall"] for one in runs]).text(".1f"),
            Spread([sum(one["keys_moved"]) for one in runs]).text(",.0f"),
            Spread([one["others"] for one in runs]).text(".1f"),
        )
    each = section.table("batch", *(f"{arm}, max/mean and s" for arm in arms))
    for i in range(len(first)):
        cells = []
        for runs in arms.values():
            level = np.median(1 + by_batch(runs, "imbalance")[:, i])
            cells.append(f"{level:.3f}, {np.median(by_batch(runs, 'seconds')[:, i]):.2f}")
        each.add(f"{i}{' (drift)' if first[i] and i else ''}", *cells)
    return section
