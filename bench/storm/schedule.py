"""Does a scheduler that learns what records cost beat Storm's own groupings on work that differs?

Paper 004, figures 11 and 12, on a real Storm: the first 500,000 hashtags of congress_hashtags, in a
seeded order (in that of time the mean cost drifts, and with it what is full load), each takes 25, 5
or 1 ms by a seeded hash. A spout sends them evenly, a first bolt (a child in Python in every arm)
sends them on to k tasks (children too) that work, and a record's time is from the spout to its ack.
Round robin is Storm's shuffle grouping without load-aware messaging, load-aware is the same with
it. Real work takes a CPU, and there are two, which Storm needs too: with it k is 2; with more tasks
the work is waiting, as for a service. What k tasks can do is measured before each repetition (round
robin, as many records as go through), and 85 % of that is sent. At most two records wait inside a
shell bolt, so that Storm sees its queues. POSG's tasks look at their sketches every 64 records
instead of 1,024, since they do some hundred in a second: the paper's condition is met after ten
windows or more. The first records go one by one, since what comes while children start would be a
queue that takes minutes to go away at such a load.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import pyroute as pr
from bench.papers.streams import data
from bench.peers import Scale
from bench.report import Section
from bench.spark.page import Spread, at_least
from bench.storm import cluster, jars
from bench.storm import topology as t

TITLE = "Scheduling: work that differs"
SCRIPT = jars.ROOT / "bench" / "storm" / "children" / "scheduler.py"
CLASSES, SHARES = (25.0, 5.0, 1.0), {0: 0.2, 1: 0.4, 2: 0.4}
ROWS = 500_000
TIMEOUT = 30
WINDOW = 64
LOAD = 0.85
"""Of what round robin carries."""
ROBIN, AWARE, POSG, POOLED = "round robin", "load-aware shuffle", "POSG", "pooled"
ARMS = (ROBIN, AWARE, POSG, POOLED)
MODES = {ROBIN: "none", AWARE: "none", POSG: "posg", POOLED: "pooled"}
ABSENT = "Not measured: congress_hashtags.parquet; PYROUTE_DATA names its folder."


def costs_of(tags: Any, seed: int) -> np.ndarray:
    """Milliseconds of each hashtag, by a seeded hash."""
    drawn = pr.Ring(SHARES, salt=seed).homes(pr.keys(tags))
    return np.array(CLASSES)[drawn]


def stream(path: Path, seed: int) -> str:
    """Lines for the spout."""
    import pyarrow.parquet as pq

    tags = pq.read_table(path, columns=["hashtag"]).column("hashtag")[:ROWS].combine_chunks()
    costs = costs_of(tags, seed)
    names = [str(tag).replace("\t", " ") for tag in tags.to_pylist()]
    order = np.random.default_rng(seed).permutation(len(names)).tolist()
    return "".join(f"{names[i]}\t{costs[i]:g}\n" for i in order)


def description(folder: Path, arm: str, tasks: int, rate: float, busy: bool) -> dict[str, Any]:
    """The topology of an arm; a rate of 0 is as many records as go through."""
    mode = MODES[arm]
    fields = ["pyroute", *t.FIELDS]
    work = ["-m", "pyroute.storm", "busy", "--fields", "key", "--milliseconds", "padding"]
    work += {
        "posg": ["--mode", "posg", "--window", str(WINDOW)],
        "pooled": ["--mode", "pooled"],
    }.get(mode, [])
    work += [] if busy else ["--wait"]
    return t.topology(
        folder.name,
        t.spout(file=str(folder / "lines"), rate=rate, folder=str(folder), again=False,
                gentle=20 * tasks),
        t.python(
            "first", t.by("shuffle", "spout"), script=[str(SCRIPT), mode, str(folder)],
            direct=mode != "none", fields=fields,
        ),
        t.python(
            "work", t.by("shuffle" if mode == "none" else "direct", "first"),
            script=work, parallelism=tasks, direct=False,
        ),
        conf={
            "topology.max.spout.pending": 100_000 if rate else 20 * tasks,
            "topology.message.timeout.secs": TIMEOUT,
            "topology.shellbolt.max.pending": 2,
            "topology.disable.loadaware.messaging": arm != AWARE,
        },
    )  # fmt: skip


def times_of(rows: list[list[int]], since: float, until: float) -> dict[str, float]:
    """Records, mean and worst p99 in milliseconds, of the seconds in between."""
    inside = [row for row in rows if since < row[0] / 1000 <= until and row[1]]
    count = sum(row[1] for row in inside)
    return {
        "records": count,
        "seconds": len(inside),
        "mean": sum(row[1] * row[5] for row in inside) / max(count, 1) / 1000,
        "p99": max((row[3] for row in inside), default=0) / 1000,
    }


def read_times(folder: Path) -> list[list[int]]:
    path = folder / "spout-0.times"
    lines = path.read_text().splitlines() if path.exists() else []
    return [[int(part) for part in line.split()] for line in lines]


def failed_of(folder: Path) -> int:
    return int((folder / "spout-0").read_text().split()[3])


def run(
    storm: cluster.Cluster,
    folder: Path,
    arm: str,
    lines: str,
    load: tuple[int, float, bool],
    scale: Scale,
) -> dict[str, Any]:
    """One arm; `load`: tasks, records per second, whether it is real work."""
    folder.mkdir()
    (folder / "lines").write_text(lines)
    tasks, rate, busy = load
    span = 15.0 if scale.quick or not rate else 25.0
    storm.submit(description(folder, arm, tasks, rate, busy))
    cluster.wait_for("records", lambda: any(row[1] for row in read_times(folder)))
    time.sleep(10.0 if scale.quick or not rate else 20.0)
    start, failed = time.time(), failed_of(folder)
    time.sleep(span)
    found = times_of(read_times(folder), start, time.time())
    found["failed"] = failed_of(folder) - failed
    reports = folder / "reports"
    found["reports"] = json.loads(reports.read_text())["reports"] if reports.exists() else 0
    storm.kill_topology(folder.name)
    cluster.wait_for("the end of its workers", lambda: not storm.workers())
    print(f"{arm}, k = {tasks}: {found}", flush=True)
    return {"arm": arm, "tasks": tasks, "busy": busy, "rate": rate, **found}


def loads(scale: Scale) -> list[tuple[int, bool, int]]:
    """Tasks, whether it is real work, repetitions."""
    return [(2, True, 1)] if scale.quick else [(2, True, scale.often(3, 1)), (10, False, 1)]


def measure(scale: Scale) -> dict[str, Any]:
    path = data("congress_hashtags")
    if path is None:
        return {"absent": ABSENT}
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="pyroute-schedule-") as name,
        cluster.Cluster(slots=1) as storm,
        cluster.logged(storm),
    ):
        for tasks, busy, repetitions in loads(scale):
            for turn in range(repetitions):
                lines = stream(path, scale.seed + turn)
                folder = Path(name) / f"most-{tasks}-{turn}"
                most = run(storm, folder, ROBIN, lines, (tasks, 0.0, busy), scale)
                rate = LOAD * most["records"] / most["seconds"]
                for place in range(len(ARMS)):
                    arm = ARMS[(place + turn) % len(ARMS)]
                    folder = Path(name) / f"{MODES[arm]}{ARMS.index(arm)}-{tasks}-{turn}"
                    found = run(storm, folder, arm, lines, (tasks, rate, busy), scale)
                    rows.append({**found, "turn": turn})
    return {"rows": rows}


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    if "absent" in result:
        section.say(result["absent"])
        return section
    kinds = sorted({(row["tasks"], row["busy"]) for row in result["rows"]})
    table = section.table(
        *("tasks", "work", "arm", "records/s", "mean ms", "over round robin", "worst p99 ms"),
        *("time-outs", "reports"),
    )
    gains: dict[tuple[int, bool, str, str], Spread] = {}
    for kind in kinds:
        arms = {
            arm: [r for r in result["rows"] if (r["tasks"], r["busy"]) == kind and r["arm"] == arm]
            for arm in ARMS
        }
        means = {arm: Spread([row["mean"] for row in found]) for arm, found in arms.items()}
        for arm, found in arms.items():
            for peer in (ROBIN, AWARE):
                gains[(*kind, arm, peer)] = means[peer].over(means[arm])
            table.add(
                kind[0],
                "CPU" if kind[1] else "waiting",
                arm,
                Spread([row["rate"] for row in found]).text(".0f"),
                means[arm].text(".1f"),
                means[arm].over(means[ROBIN]).text(".2f"),
                Spread([row["p99"] for row in found]).text(".0f"),
                sum(row["failed"] for row in found),
                Spread([float(row["reports"]) for row in found]).text(".0f"),
            )
    for peer in (ROBIN, AWARE):
        for arm in (POSG, POOLED):
            if (2, True, arm, peer) in gains:
                name = f"{peer}'s mean time over that of {arm}, real work, k = 2"
                section.goals.append(at_least(name, 1.0, gains[2, True, arm, peer]))
    return section
