"""How are Spark jobs timed side by side on a machine that others use too?

Every arm of a comparison runs in one session, one after the other, in each repetition starting with
another one, and waits a while for a quiet moment; settings of an arm (adaptive execution, say) are
set around its call and taken back.
What an arm answers is compared with the first arm's answer outside the clock. Wall time is that of
the call on the driver, planning included; CPU time is that of the driver, the JVM and all Python
workers together (Linux). Which task got how many rows is read from Spark's own REST service, of a
run that is not timed.
"""

import contextlib
import gc
import io
import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent.parent
GENERATED = ROOT / "build" / "bench-spark"
AQE_OFF = {"spark.sql.adaptive.enabled": "false"}
AQE_ON = {"spark.sql.adaptive.enabled": "true"}
REPETITIONS: int | None = None  # of every section, where --repetitions says so
NO_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}


def session(master: str, options: Mapping[str, str] | None = None) -> Any:
    """A session whose REST service answers."""
    from spark_udf.session import local_session

    GENERATED.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.local.dir": str(GENERATED / "local"),
        "spark.sql.warehouse.dir": str(GENERATED / "warehouse"),
        **(options or {}),
    }
    spark = local_session(master, settings, "bench.spark")
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def data(name: str) -> Path | None:
    """A file of the folder with the real streams, where there is one."""
    from bench.papers.streams import data as found

    return found(name)


@contextlib.contextmanager
def conf(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session, for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def explained(df: Any, mode: str = "simple") -> str:
    """A plan, as `explain` prints it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        df.explain(mode)
    return out.getvalue()


# -- time


def cpu_seconds() -> float:
    """CPU time of this process and all below it: the JVM, and Python workers, also ended ones."""
    ticks: dict[int, int] = {}
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:  # it ended meanwhile
            continue
        fields = text.rsplit(")", 1)[1].split()
        pid = int(entry.name)
        below.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    todo, total = [os.getpid()], 0
    while todo:
        pid = todo.pop()
        total += ticks.get(pid, 0)
        todo += below.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def all_cpu_seconds() -> float:
    """CPU time that the whole machine has spent, also for other guests of its host."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(patience: float = 90.0) -> None:
    """Until others leave most of the machine alone for a second, or patience ends."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        before = all_cpu_seconds() - cpu_seconds()
        time.sleep(1.0)
        if all_cpu_seconds() - cpu_seconds() - before < 0.3 * (os.cpu_count() or 1):
            return


@dataclass(frozen=True)
class Arm:
    """One way to do the work: `run` answers with what is compared, an Arrow table or a value."""

    name: str
    run: Callable[[], Any]
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One call: seconds of wall and CPU time, cores that others used meanwhile, and its answer."""

    wall: float
    cpu: float
    others: float
    answer: Any


def timed(spark: Any, arm: Arm) -> Sample:
    with conf(spark, arm.conf):
        every, cpu, wall = all_cpu_seconds(), cpu_seconds(), time.perf_counter()
        answer = arm.run()
        wall = time.perf_counter() - wall
        cpu = cpu_seconds() - cpu
        others = max(0.0, (all_cpu_seconds() - every - cpu) / wall)
        return Sample(wall, cpu, others, answer)


def interleave(
    spark: Any,
    arms: Sequence[Arm],
    repetitions: int,
    *,
    partitions: int | None = None,
    warm: int = 1,
    patience: float = 5.0,
    say: str = "",
) -> dict[str, dict[str, Any]]:
    """Times every arm `repetitions` times, after calls that are not counted.

    Gives wall and CPU seconds for each arm, the cores that others used meanwhile, and where
    `partitions` is given the load of its tasks in the first call. Raises where two arms answer
    differently.
    """
    figures = ("wall", "cpu", "others")
    found: dict[str, dict[str, Any]] = {arm.name: {f: [] for f in figures} for arm in arms}
    first: Any = None
    for turn in range(warm):
        for arm in arms:
            group = f"{say} {arm.name} {time.time_ns()}"
            spark.sparkContext.setJobGroup(group, arm.name)
            sample = timed(spark, arm)
            progress(f"{say}: {arm.name}: warm, {sample.wall:.1f} s")
            first = same(first, sample.answer, arm.name)
            if partitions is not None and turn == 0:
                found[arm.name]["load"] = load(spark, group, partitions)
    spark.sparkContext.setJobGroup("timed", "timed")
    for repetition in range(REPETITIONS or repetitions):
        start = repetition % len(arms)
        for arm in [*arms[start:], *arms[:start]]:
            collect_garbage(spark)
            wait_for_quiet(patience)
            sample = timed(spark, arm)
            same(first, sample.answer, arm.name)
            for figure in figures:
                found[arm.name][figure].append(round(getattr(sample, figure), 3))
            progress(
                f"{say}: {arm.name}: {sample.wall:.2f} s, {sample.cpu:.1f} s of CPU, others"
                f" {sample.others:.1f} cores"
            )
    return found


def collect_garbage(spark: Any) -> None:
    """So that an arm does not pay for what the one before it left."""
    gc.collect()
    spark.sparkContext._jvm.java.lang.System.gc()


def progress(text: str) -> None:
    print(text, flush=True)


def same(first: Any, answer: Any, name: str) -> Any:
    """The first answer; raises where this one differs. Rows may be in any order."""
    answer = in_order(answer)
    if first is None:
        return answer
    first = in_order(first)
    if isinstance(first, pa.Table):
        equal = first.num_rows == answer.num_rows and first.equals(answer)
    else:
        equal = first == answer
    if not equal:
        raise AssertionError(f"{name}: expected the answer of the first arm, got another")
    return first


def in_order(answer: Any) -> Any:
    """A table with its rows in the order of all its columns, and no metadata."""
    if not isinstance(answer, pa.Table):
        return answer
    plain = answer.replace_schema_metadata(None)
    plain = plain.cast(pa.schema([pa.field(f.name, f.type) for f in plain.schema]))
    by = [(name, "ascending") for name in plain.column_names]
    return plain.sort_by(by).combine_chunks() if plain.num_rows else plain


# -- what Spark says about its own tasks


def rest(spark: Any, path: str) -> Any:
    context = spark.sparkContext
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{path}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def stages(spark: Any, group: str) -> list[dict[str, Any]]:
    """The stages of a job group that ran; waits until Spark has told its own listeners."""
    for _ in range(100):
        jobs = [job for job in rest(spark, "jobs") if job.get("jobGroup") == group]
        if jobs and all(job["status"] == "SUCCEEDED" for job in jobs):
            break
        time.sleep(0.05)
    else:
        raise RuntimeError(f"jobs of {group}: expected them to have succeeded, got {jobs}")
    wanted = {stage for job in jobs for stage in job["stageIds"]}
    every = rest(spark, "stages")
    return [s for s in every if s["stageId"] in wanted and s["status"] == "COMPLETE"]


def task_cpu_seconds(spark: Any, group: str) -> float:
    """CPU time of the threads of all tasks of a group: no planning, compiler, collector, Python."""
    return sum(stage["executorCpuTime"] for stage in stages(spark, group)) * 1e-9


def load(spark: Any, group: str, partitions: int) -> list[dict[str, float]]:
    """Load of the tasks of the stages of a group that read most rows from an exchange.

    Those that read at least half as many as the one that reads most, in their order. Most rows and
    longest time of a task, each over the mean of as many tasks as were asked for: partitions that
    were put together do not make a load more even.
    """
    readers = [s for s in stages(spark, group) if s["shuffleReadRecords"] > 0]
    most = max((s["shuffleReadRecords"] for s in readers), default=0)
    chosen = [s for s in readers if 2 * s["shuffleReadRecords"] >= most]
    return [stage_load(spark, s, partitions) for s in sorted(chosen, key=lambda s: s["stageId"])]


def stage_load(spark: Any, stage: dict[str, Any], partitions: int) -> dict[str, float]:
    path = f"stages/{stage['stageId']}/{stage['attemptId']}/taskList?length=100000"
    tasks = [t["taskMetrics"] for t in rest(spark, path) if t["status"] == "SUCCESS"]
    rows = [t["shuffleReadMetrics"]["recordsRead"] for t in tasks]
    times = [t["executorRunTime"] for t in tasks]
    return {
        "tasks": len(tasks),
        "rows": sum(rows),
        "max_rows": round(max(rows) * partitions / sum(rows), 4),
        "max_time": round(max(times) * partitions / max(sum(times), 1), 4),
    }
