"""How do the papers' streams run on a real Storm, by one way of routing or another?

Shared by the sections on figures 13, 14 and 15 of paper 002. A spout sends the keys of a file as
fast as its pending records allow, two bolts send them on to the tasks, and each task counts by key
and waits WORK milliseconds for each record: it stands for a service of its own, since on two cores
no more than two tasks could be busy at once, and an uneven load would cost nothing.

The planned arms are the whole system: `SourceBolt`, durable `TaskBolt` and `ManagerBolt`, which
plans every few seconds from what the tasks measured, asks its gate, and moves keys with their
state. The others have the same tasks, and a bolt in place of the source whose reader has one of
Storm's groupings: fields, shuffle, or partial key with a stage that adds the partial counts up.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import Section
from bench.spark.page import Spread
from bench.storm import cluster, jars
from bench.storm import topology as t
from pyroute.control import ConfigStore
from pyroute.storm.state import read_state

SCRIPT = jars.ROOT / "bench" / "storm" / "children" / "waiting.py"
TASKS = 10
WORK = 3.0
"""Milliseconds of a record at its task."""
PENDING = 500
PLAN_EVERY, WINDOW = 5.0, 10.0
ALGORITHMS = {"Readj": "readj", "MinTable": "min_table", "Mixed": "mixed"}
GROUPINGS = {"hash": "fields", "PKG": "partial_key", "ideal": "shuffle"}
CAPACITY = 1000 * TASKS / WORK
SETTING = (
    f"{TASKS} tasks that wait {WORK:g} ms for each record, so that all together take"
    f" {CAPACITY:,.0f} records/s at most; {PENDING} records pending, a plan every"
    f" {PLAN_EVERY:g} s, of the last {WINDOW:g} s. Hash is Storm's fields grouping, ring the"
    " managed system without a plan, PKG Storm's partial key grouping with two tasks that merge"
    " partial counts, which leave with every commit; ideal Storm's shuffle grouping, whose tasks"
    " share every key. Tasks commit every 50 ms in all arms, to disk, so the paper's period of"
    " 10 ms and its 50 pending records would be what limits PKG. With so many pending records, mean"
    " time times throughput is their number: latency at saturation says what throughput says. Every"
    " count was exact at the end: a run whose counts are not fails."
)


@dataclass(frozen=True)
class Arm:
    """A way of routing; planned arms have a tolerance, the managed one without a plan has 0."""

    name: str
    allowed: float | None = None

    @property
    def managed(self) -> bool:
        return self.name not in GROUPINGS

    def __str__(self) -> str:
        return f"{self.name}, {self.allowed:g}" if self.allowed else self.name


def planned(tolerances: Sequence[float]) -> list[Arm]:
    return [Arm(name, allowed) for allowed in tolerances for name in ALGORITHMS]


UNPLANNED = [Arm("hash"), Arm("ring"), Arm("PKG"), Arm("ideal")]


# The topology -----------------------------------------------------------------------------------


def description(folder: Path, arm: Arm, *, first: int | None = None) -> dict[str, Any]:
    """The topology of an arm; `first`: tasks that have keys at first."""
    spout = t.spout(file=str(folder / "lines"), folder=str(folder / "spout"))
    conf = {
        "topology.max.spout.pending": PENDING,
        "topology.message.timeout.secs": 60,
        "topology.shellbolt.max.pending": 8,
        "topology.disable.loadaware.messaging": True,
        "pyroute.state": str(folder / "state"),
    }
    parts = managed(arm) if arm.managed else grouped(folder, arm)
    if arm.managed:
        conf |= {
            "pyroute.operators": ["split", "count"],
            "pyroute.manager": "manager",
            "pyroute.store": f"dir:{folder / 'store'}",
        }
    if first is not None:
        conf["pyroute.tasks"] = {"count": first}
    return t.topology(folder.name, spout, *parts, conf=conf)


def managed(arm: Arm) -> list[t.Component]:
    control: dict[str, Any] = {
        "streams": {"pyroute": ["kind", "data"]},
        "direct_streams": ["pyroute"],
    }
    module = ["-m", "pyroute.storm"]
    every = PLAN_EVERY if arm.allowed else 0.0
    plan = ["--plan-every", f"{every:g}", "--window", f"{WINDOW:g}"]
    plan += ["--algorithm", ALGORITHMS.get(arm.name, "mixed")]
    if arm.allowed:
        plan += ["--max-imbalance", f"{arm.allowed:g}"]
    return [
        t.python(
            "split",
            t.by("shuffle", "spout"),
            t.by("direct", "manager", "pyroute"),
            script=[*module, "source", "--key", "key", "--id", "sequence"],
            parallelism=2,
            **{**control, "fields": ["id", "key", "padding"]},
        ),
        t.python(
            "count",
            t.by("direct", "split"),
            *(t.by("direct", name, "pyroute") for name in ("split", "count", "manager")),
            script=[str(SCRIPT), "task", f"{WORK:g}"],
            parallelism=TASKS,
            **control,
        ),
        t.python(
            "manager",
            *(t.by("direct", name, "pyroute") for name in ("split", "count")),
            script=[*module, "manager", *plan],
            **control,
        ),
    ]


def grouped(folder: Path, arm: Arm) -> list[t.Component]:
    grouping = GROUPINGS[arm.name]
    keyed: dict[str, Any] = {} if grouping == "shuffle" else {"fields": ["key"]}
    kind = "partial" if arm.name == "PKG" else "task"
    parts = [
        t.python(
            "split",
            t.by("shuffle", "spout"),
            script=[str(SCRIPT), "pass"],
            parallelism=2,
            direct=False,
            fields=["id", "key", "padding"],
        ),
        t.python(
            "count",
            t.by(grouping, "split", **keyed),
            script=[str(SCRIPT), kind, f"{WORK:g}"],
            parallelism=TASKS,
            streams={"partials": ["count", "key"]},
        ),
    ]
    if arm.name == "PKG":
        merged = t.by("fields", "count", "partials", fields=["key"])
        parts.append(t.count("merge", merged, parallelism=2, folder=str(folder)))
    return parts


# What came out ----------------------------------------------------------------------------------


def read_times(folder: Path) -> list[list[float]]:
    """A row per second: when, records acked, p50, p99, most and mean in milliseconds."""
    path = folder / "spout" / "spout-0.times"
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        at, count, *parts = map(int, line.split())
        rows.append([at / 1000, count, *(part / 1000 for part in parts)])
    return rows


def acked(rows: Sequence[Sequence[float]]) -> float:
    return sum(row[1] for row in rows)


def between(rows: Sequence[Sequence[float]], first: int, last: int) -> dict[str, float]:
    """Throughput from one acked record to another, mean and worst p99 of those seconds."""
    done = np.cumsum([row[1] for row in rows])
    at = np.array([row[0] for row in rows])
    start, end = np.interp([first, last], done, at)
    inside = [row for row in rows if start < row[0] <= end + 1.0 and row[1]]
    count = sum(row[1] for row in inside)
    return {
        "rate": (last - first) / float(end - start),
        "mean": sum(row[1] * row[5] for row in inside) / max(count, 1),
        "p99": max((row[3] for row in inside), default=0.0),
        "start": float(start),
        "end": float(end),
    }


def progress(folder: Path) -> tuple[int, bool, int]:
    """Lowest sequence that is not acked, whether all is done, failed."""
    try:
        lowest, state, _, failed = (folder / "spout" / "spout-0").read_text().split()
    except (OSError, ValueError):
        return 0, False, 0
    return int(lowest), state == "done", int(failed)


def merged(folder: Path) -> Counter[str]:
    """What was merged of partial counts."""
    total: Counter[str] = Counter()
    for path in folder.glob("merge-*"):
        for line in path.read_text().splitlines():
            count, _, key, _ = line.split("\t")
            total[key] += int(count)
    return total


def counted(folder: Path, arm: Arm) -> Counter[str]:
    """What all tasks together have counted; a key of two owners is an error, but in ideal."""
    total: Counter[str] = Counter()
    for number in range(TASKS):
        for key, state in read_state(folder / "state" / "count" / str(number)).items():
            if state is not None:
                if key in total and arm.name != "ideal":
                    raise cluster.StormError(f"{key}: expected it in one task, got two")
                total[key] += state
    return total


def check(folder: Path, arm: Arm, lines: Sequence[str], records: int) -> None:
    """Every count is exact; `StormError` otherwise."""
    rounds, rest = divmod(records, len(lines))
    wanted = Counter(lines[:rest])
    for key, count in Counter(lines).items() if rounds else ():
        wanted[key] += rounds * count
    found = merged(folder) if arm.name == "PKG" else counted(folder, arm)
    if found != wanted:
        wrong = [(key, wanted[key], found[key]) for key in wanted if wanted[key] != found[key]]
        raise cluster.StormError(f"counts: expected {records}, got {wrong[:5]} of {len(wrong)}")


# A run ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(
    storm: cluster.Cluster, folder: Path, arm: Arm, lines: Sequence[str], **options: Any
) -> Any:
    """A topology from its first acked record until all of its records are acked and counted."""
    (folder / "spout").mkdir(parents=True)
    (folder / "lines").write_text("".join(f"{key}\tx\n" for key in lines))
    storm.submit(description(folder, arm, **options))
    cluster.wait_for("records", lambda: acked(read_times(folder)))
    yield
    (folder / "spout" / "stop").touch()
    cluster.wait_for("all records acked", lambda: progress(folder)[1])
    records, _, failed = progress(folder)
    if arm.allowed:
        wait_for_moves(folder)
    storm.kill_topology(folder.name)
    cluster.wait_for("the end of its workers", lambda: not storm.workers())
    if failed:
        raise cluster.StormError(f"{arm}: expected no record to fail, got {failed}")
    check(folder, arm, lines, records)


def wait_for_moves(folder: Path) -> None:
    """Until none is under way, nor will be: what moves is in messages, and in no task's state."""
    still_since: float | None = None

    def over() -> bool:
        nonlocal still_since
        still = status_of(folder, folder.name).get("phase") in ("idle", "collecting", "planning")
        still_since = (still_since or time.monotonic()) if still else None
        return still_since is not None and time.monotonic() > still_since + PLAN_EVERY + 1

    cluster.wait_for("the last move", over)


def status_of(folder: Path, name: str) -> dict[str, Any]:
    """What the manager says, or nothing."""
    with ConfigStore.open(f"dir:{folder / 'store'}") as store:
        found = store.get(f"{name}/status")
        return {} if found is None else dict(found.value)


def run(
    storm: cluster.Cluster, folder: Path, arm: Arm, lines: Sequence[str], warm: int, records: int
) -> dict[str, Any]:
    """One arm over the same records as all others: `records` after the first `warm`."""
    started = time.monotonic()
    with running(storm, folder, arm, lines):
        cluster.wait_for("the last record", lambda: acked(read_times(folder)) >= warm + records)
        found: dict[str, Any] = between(read_times(folder), warm, warm + records)
        plans = status_of(folder, folder.name).get("plans", {}) if arm.managed else {}
    found |= {"arm": arm.name, "allowed": arm.allowed, **plans.get("count", {})}
    seconds = time.monotonic() - started
    print(
        f"{arm}: {found['rate']:,.0f}/s, mean {found['mean']:.0f} ms, p99 {found['p99']:.0f} ms,"
        f" {found.get('plans', 0)} plans; {seconds:.0f} s",
        flush=True,
    )
    return found


def compare(
    storm: cluster.Cluster,
    folder: Path,
    arms: Sequence[Arm],
    lines: Sequence[str],
    span: tuple[int, int],
    turns: int,
) -> list[dict[str, Any]]:
    """Every arm, in every turn, in another order each time; `span`: records before and measured."""
    rows = []
    for turn in range(turns):
        for place in range(len(arms)):
            number = (place + turn * (1 + len(arms) // max(turns, 1))) % len(arms)
            below = folder / f"{folder.name}-{number}-{turn}"
            found = run(storm, below, arms[number], lines, *span)
            rows.append({**found, "turn": turn})
    return rows


# The page ---------------------------------------------------------------------------------------


def java_hash(text: str) -> int:
    """`String.hashCode`."""
    out = 0
    for unit in np.frombuffer(text.encode("utf-16-be"), ">u2").tolist():
        out = 31 * out + unit & 0xFFFFFFFF
    return out - (1 << 32) if out >> 31 else out


def storm_skew(lines: Sequence[str], tasks: int = TASKS) -> float:
    """The most loaded task over the mean, by the fields grouping of Storm."""
    each = Counter(lines)
    loads = [0] * tasks
    for key, count in each.items():
        loads[(31 + java_hash(key)) % tasks] += count
    return max(loads) * tasks / sum(loads)


def spreads(rows: Sequence[dict[str, Any]], figure: str) -> dict[Arm, Spread]:
    """A figure of every arm, in the order of the turns."""
    out: dict[Arm, list[float]] = {}
    for row in sorted(rows, key=lambda row: int(row["turn"])):
        out.setdefault(Arm(row["arm"], row["allowed"]), []).append(float(row.get(figure, 0.0)))
    return {arm: Spread(each) for arm, each in out.items()}


def counted_text(result: dict[str, Any]) -> str:
    """What was measured, in a sentence."""
    return (
        f"{result['records']:,} records of {result['keys']:,} keys after the first"
        f" {result['warm']:,}, the same in every arm. By Storm's hash the most loaded task has"
        f" {result['skew']:.2f} times the mean of them."
    )


def measured(
    storm: cluster.Cluster,
    folder: Path,
    arms: Sequence[Arm],
    lines: Sequence[str],
    span: tuple[int, int],
    turns: int,
) -> dict[str, Any]:
    """The rows of `compare`, and what the stream is like."""
    warm, records = span
    part = lines[warm : warm + records]
    return {
        "rows": compare(storm, folder, arms, lines, span, turns),
        "warm": warm,
        "records": records,
        "keys": len(set(part)),
        "skew": storm_skew(part),
    }


def table_of(section: Section, rows: Sequence[dict[str, Any]]) -> dict[Arm, Spread]:
    """Throughput and latency of each arm; the throughputs."""
    rates, means, worst = (spreads(rows, name) for name in ("rate", "mean", "p99"))
    plans, moved, planning = (spreads(rows, name) for name in ("plans", "keys", "seconds"))
    table = section.table(
        *("arm", "theta_max", "records/s", "over hash", "to ideal", "mean ms", "worst p99 ms"),
        *("plans carried out", "keys moved", "ms of planning"),
    )
    for arm in sorted(rates, key=lambda arm: (arm.allowed is not None, arm.allowed or 0)):
        table.add(
            arm.name,
            "-" if arm.allowed is None else f"{arm.allowed:g}",
            rates[arm].text(",.0f"),
            rates[arm].over(rates[Arm("hash")]).text(),
            rates[arm].over(rates[Arm("ideal")]).text(),
            means[arm].text(".0f"),
            worst[arm].text(".0f"),
            *(("-",) * 3 if arm.allowed is None else (
                plans[arm].text(".0f"),
                moved[arm].text(",.0f"),
                planning[arm].times(1000).text(".1f"),
            )),
        )  # fmt: skip
    return rates


Claims = list[tuple[str, str, bool | None]]


def claims_of(section: Section, claims: Claims) -> None:
    """What the paper says, and whether it was so here."""
    table = section.table("claim of the paper", "measured", "holds")
    for text, measured, holds in claims:
        table.add(text, measured, {True: "yes", False: "no", None: "not measured"}[holds])


def at_least(text: str, bound: float, got: Spread) -> tuple[str, str, bool | None]:
    """A claim that holds where the worse end of the spread does."""
    return text, got.text(), min(got.each) >= bound
