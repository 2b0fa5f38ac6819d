"""What does `su.route` cost in the JVM, against a bare scan, a hash alone and the UDFs?

Every arm reads the key from Parquet and hands its rows to a sink that drops them (`noop`); the bare
scan does so with the key alone, the others with the key and one column more, so that their
difference to the scan is that column and nothing else.
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from bench.peers import Scale
from bench.report import Goal, Section
from bench.spark import generate, harness
from bench.spark.harness import Arm, explained, progress
from bench.spark.page import Raw, Spread, at_least, at_most, cpu, wall

TITLE = "route: what a routed row costs"
TASKS = 40
ENTRIES = (0, 3_000, 50_000)
# What Spark keeps of past queries for its UI, so that what grows beyond it is kept by someone else.
REMEMBERED = {
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.ui.retainedProgressUpdates": "20",
}
PYTHON_NODES = ("EvalPython", "InArrow", "InPandas", "PythonUDF", "pythonUDF")


def router(keys: np.ndarray, entries: int, seed: int, tasks: int = TASKS) -> pr.Router:
    """A table of half of the heaviest keys, as a plan would have it."""
    random = np.random.default_rng([seed, entries])
    chosen = random.permutation(keys[: 2 * entries])[:entries]
    return pr.Router(tasks, (chosen, random.integers(0, tasks, entries).astype(np.int32)))


def sink(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


def measure(scale: Scale) -> Raw:
    spark = harness.session("local[2]", {"spark.sql.shuffle.partitions": "8", **REMEMBERED})
    keys = scale.pick(1_000_000, 200_000)
    rows = scale.pick(10_000_000, 1_000_000)
    path = generate.keyed(rows, keys, 1.0, scale.seed, 4, text=True)
    frame, empty = spark.read.parquet(path), spark.read.parquet(generate.one_row(scale.seed))
    ids = generate.heaviest_first(keys, scale.seed)
    out: Raw = {"rows": rows, "keys": keys, "tasks": TASKS}
    out["kinds"] = {
        kind: per_row(spark, scale, frame, empty, name, values)
        for kind, name, values in (
            ("bigint", "k", ids),
            ("string", "s", np.array(generate.as_text(ids).to_pylist(), object)),
        )
    }
    out["plan"] = plan_text(frame, router(ids, 50_000, scale.seed))
    out["group_by"] = grouped(spark, scale)
    out["heap"] = {
        name: heap(spark, scale, routed=name == "routed") for name in ("plain", "routed")
    }
    return out


# -- per row


def columns_of(name: str, values: np.ndarray, seed: int) -> dict[str, Callable[[], list[Any]]]:
    """What each arm selects."""
    routers = {n: router(values, n, seed) for n in ENTRIES}
    large = routers[3_000]
    arms: dict[str, Callable[[], list[Any]]] = {
        "scan": lambda: [F.col(name)],
        "xxhash64": lambda: [F.col(name), F.xxhash64(name)],
    }
    for n, made in routers.items():
        arms[f"route {n:,}"] = lambda made=made: [F.col(name), su.route(made, name)]
    arms["route_udf 3,000"] = lambda: [F.col(name), su.route_udf(large)(name)]
    arms["route_udf 3,000, pandas"] = lambda: [F.col(name), su.route_udf(large, "pandas")(name)]
    return arms


def per_row(spark: Any, scale: Scale, frame: Any, empty: Any, name: str, values: np.ndarray) -> Raw:
    """CPU seconds of each arm: of all processes, and of the threads of the tasks alone.

    In each repetition an arm runs three times (a UDF once) and its least figure counts.
    """
    arms = columns_of(name, values, scale.seed)
    check(frame.limit(100_000), name, router(values, 3_000, scale.seed))
    found: Raw = {arm: {"cpu": [], "task_cpu": [], "once_cpu": [], "once": []} for arm in arms}
    for turn in range(scale.pick(3, 2)):  # the compiler of the JVM needs several calls
        for arm, columns in arms.items():
            if turn == 0 or "udf" not in arm:
                sink(frame.select(*columns()))
                sink(empty.select(*columns()))
    order = list(arms)
    for repetition in range(harness.REPETITIONS or scale.pick(9, 3)):
        start = repetition % len(order)
        each: Raw = {arm: {"cpu": [], "task_cpu": []} for arm in arms}
        for turn in range(3):
            for arm in [*order[start:], *order[:start]]:
                if turn == 0 or "udf" not in arm:
                    one_run(spark, frame, arms[arm], each[arm])
        for arm in order:
            for figure, seconds in each[arm].items():
                found[arm][figure].append(round(min(seconds), 4))
            before, started = harness.cpu_seconds(), time.perf_counter()
            sink(empty.select(*arms[arm]()))
            found[arm]["once"].append(round(time.perf_counter() - started, 4))
            found[arm]["once_cpu"].append(round(harness.cpu_seconds() - before, 2))
        progress(f"route: {name}: repetition {repetition}: {each}")
    return found


def one_run(spark: Any, frame: Any, columns: Callable[[], list[Any]], to: Raw) -> None:
    group = f"route {time.time_ns()}"
    spark.sparkContext.setJobGroup(group, group)
    harness.collect_garbage(spark)
    before = harness.cpu_seconds()
    sink(frame.select(*columns()))
    to["cpu"].append(harness.cpu_seconds() - before)
    to["task_cpu"].append(harness.task_cpu_seconds(spark, group))


def check(frame: Any, name: str, made: pr.Router) -> None:
    """The routed column and the UDFs' are the library's own."""
    ways = [su.route(made, name), su.route_udf(made)(name), su.route_udf(made, "pandas")(name)]
    table = frame.select(name, *(way.alias(f"way{i}") for i, way in enumerate(ways))).toArrow()
    expected = made.route(table.column(0))
    for i in range(len(ways)):
        assert np.array_equal(expected, table.column(i + 1).to_numpy()), f"way {i} differs"


# -- the plan, many partitions, many routers


def plan_text(frame: Any, made: pr.Router) -> Raw:
    df = frame.select("k", su.route(made, "k"))
    text = explained(df)
    return {
        "simple_bytes": len(text.encode()),
        "formatted_bytes": len(explained(df, "formatted").encode()),
        "extended_bytes": len(explained(df, "extended").encode()),
        "python_nodes": [node for node in PYTHON_NODES if node in text],
    }


def grouped(spark: Any, scale: Scale) -> Raw:
    """1,000 partitions and a groupBy, with and without routing."""
    n, rows, keys = 1_000, scale.pick(2_000_000, 200_000), 200_000
    frame = spark.read.parquet(generate.keyed(rows, keys, 1.0, scale.seed, 4))
    made = router(generate.heaviest_first(keys, scale.seed), 50_000, scale.seed, n)

    def plain() -> Any:
        return frame.repartition(n, "k").groupBy("k").agg(F.sum("v")).agg(F.count("*")).collect()

    def routed() -> Any:
        named = frame.withColumn("task", su.route(made, "k")).repartitionById(n, F.col("task"))
        return named.groupBy("task", "k").agg(F.sum("v")).agg(F.count("*")).collect()

    arms = [Arm("plain", plain, harness.AQE_OFF), Arm("routed", routed, harness.AQE_OFF)]
    arms += [
        Arm("plain, AQE", plain, harness.AQE_ON),
        Arm("routed, AQE", routed, harness.AQE_ON),
    ]
    return harness.interleave(spark, arms, scale.pick(7, 2), say="groupBy")


def heap(spark: Any, scale: Scale, *, routed: bool) -> Raw:
    """Used heap of the driver after collections, over micro-batches with a new router each.

    Spark itself keeps the last executions for its UI: here few (`REMEMBERED`).
    """
    batches = scale.pick(200, 20)
    keys = generate.heaviest_first(200_000, scale.seed)
    beans = spark.sparkContext._jvm.java.lang.management.ManagementFactory
    figures: list[tuple[int, float]] = []
    done = threading.Event()

    def batch(df: Any, number: int) -> None:
        if routed:
            made = router(keys, 50_000, scale.seed + number)
            df = df.withColumn("task", su.route(made, "value"))
        else:
            df = df.withColumn("task", F.pmod(F.hash("value"), F.lit(TASKS)))
        df.groupBy("task").count().collect()
        if number % 10 == 9:
            for _ in range(3):
                harness.collect_garbage(spark)
                time.sleep(0.2)  # references are cleared by a thread of Spark
            used = beans.getMemoryMXBean().getHeapMemoryUsage().getUsed() / 2**20
            figures.append((number + 1, round(used, 2)))
        if number + 1 >= batches:
            done.set()

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
    query = source.writeStream.foreachBatch(batch).start()
    try:
        while not done.wait(1.0):
            if query.exception() is not None:
                raise RuntimeError(f"heap: {query.exception()}")
    finally:
        query.stop()
    progress(f"heap: routed {routed}: {figures}")
    return {"after": [n for n, _ in figures], "mb": [mb for _, mb in figures]}


# -- the page


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__.split("\n")[0])
    rows = raw["rows"]
    section.say(
        f"{rows:,} rows from Parquet, {raw['keys']:,} keys, Zipf 1.0, a ring of {raw['tasks']}"
        " tasks, the table half of the heaviest keys; local[2]. 'Tasks' is the CPU time of the"
        " tasks' own threads, as Spark counts it; 'all' that of every process and thread, with"
        " planning, the JVM's compiler and collector and the Python workers. The least of three"
        " runs within a repetition (one for UDFs). 'Once' is the same query over one row."
    )
    for kind, arms in raw["kinds"].items():
        per_row_table(section, kind, arms, rows)
        judge_per_row(section, kind, arms)
    judge_plan(section, raw["plan"])
    judge_group_by(section, raw["group_by"])
    judge_heap(section, raw["heap"])
    return section


def over_scan(arms: Raw, arm: str, figure: str, rows: int = 1) -> Spread:
    scan = Spread(arms["scan"][figure])
    return Spread(arms[arm][figure]).minus(scan).times(1e9 / rows)


def per_row_table(section: Section, kind: str, arms: Raw, rows: int) -> None:
    table = section.table(
        f"{kind} key",
        "tasks, ns/row over the scan",
        "all, ns/row over the scan",
        "once, ms of wall",
        "once, ms of CPU",
    )
    for arm, got in arms.items():
        own = arm == "scan"
        table.add(
            f"{arm} (whole)" if own else arm,
            Spread(got["task_cpu"]).times(1e9 / rows).text(".0f")
            if own
            else ("-" if "udf" in arm else over_scan(arms, arm, "task_cpu", rows).text(".1f")),
            Spread(got["cpu"]).times(1e9 / rows).text(".0f")
            if own
            else over_scan(arms, arm, "cpu", rows).text(".0f"),
            Spread(got["once"]).times(1e3).text(".0f"),
            Spread(got["once_cpu"]).times(1e3).text(".0f"),
        )


def judge_per_row(section: Section, kind: str, arms: Raw) -> None:
    hashed = over_scan(arms, "xxhash64", "task_cpu")
    whole = Spread(arms["xxhash64"]["task_cpu"])
    for arm, bound in (("route 3,000", 2.5), ("route 50,000", 3.0)):
        to_whole = Spread(arms[arm]["task_cpu"]).over(whole)
        name = f"{kind}: query with {arm}, to query with xxhash64 alone (CPU of tasks)"
        section.goals.append(at_most(name, bound, to_whole))
        got = over_scan(arms, arm, "task_cpu").over(hashed)
        name = f"{kind}: {arm} over the scan, to xxhash64 over the scan (CPU of tasks)"
        section.goals.append(positive(at_most(name, bound, got), hashed))
    routed = over_scan(arms, "route 3,000", "cpu")
    for arm in ("route_udf 3,000", "route_udf 3,000, pandas"):
        got = over_scan(arms, arm, "cpu").over(routed)
        name = f"{kind}: {arm} over the scan, to route 3,000 over the scan (all CPU)"
        section.goals.append(positive(at_least(name, 3.0, got), routed))


def positive(goal: Goal, below: Spread) -> Goal:
    """A ratio to what is within the noise of nothing means nothing: not met."""
    if min(below.each) > 0:
        return goal
    text = f"{goal.measured}, what it is compared with is within the noise of 0"
    return Goal(goal.name, goal.wanted, text, False)


def judge_plan(section: Section, plan: Raw) -> None:
    # Formatted is what the UI and the event log keep; extended has the three logical plans too.
    sizes = {mode: plan[f"{mode}_bytes"] for mode in ("simple", "formatted", "extended")}
    section.goals += [
        Goal(
            "route 50,000: Python nodes in the plan",
            "none",
            ", ".join(plan["python_nodes"]) or "none",
            not plan["python_nodes"],
        ),
        Goal(
            "route 50,000: text of the physical plan (extended: with the logical ones)",
            "< 20,000 bytes",
            ", ".join(f"{mode} {size:,}" for mode, size in sizes.items()),
            max(sizes["simple"], sizes["formatted"]) < 20_000,
        ),
    ]


def judge_group_by(section: Section, arms: Raw) -> None:
    table = section.table("1,000 partitions and a groupBy, 50,000 entries", "wall s", "CPU s")
    for arm in arms:
        table.add(arm, wall(arms, arm).text(), cpu(arms, arm).text(".1f"))
    for suffix in ("", ", AQE"):
        got = wall(arms, f"routed{suffix}").over(wall(arms, f"plain{suffix}"))
        section.goals.append(at_most(f"1,000 partitions and a groupBy, wall{suffix}", 1.5, got))


def judge_heap(section: Section, heap: Raw) -> None:
    table = section.table("driver heap after collection, MB, at batch", *map(str, marks(heap)))
    for name, got in heap.items():
        table.add(name, *(f"{mb:.1f}" for mb in got["mb"][: len(marks(heap))]))
    got = {name: growth(one) for name, one in heap.items()}
    section.goals.append(
        Goal(
            "driver heap, a new router of 50,000 entries in each micro-batch",
            "flat: < 0.05 MB per batch",
            f"{got['routed']:+.4f} MB per batch; without routing {got['plain']:+.4f}",
            got["routed"] < 0.05,
        )
    )


def marks(heap: Raw) -> Sequence[int]:
    marked: Sequence[int] = min((one["after"] for one in heap.values()), key=len)
    return marked


def growth(one: Raw) -> float:
    """MB per batch after the first quarter: the median slope between two figures (Theil-Sen)."""
    points = list(zip(one["after"], one["mb"], strict=True))
    points = points[len(points) // 4 :]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :]]
    return statistics.median(slopes) if slopes else 0.0
