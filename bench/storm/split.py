"""Does a split ratio that is changed in ZooKeeper reach a running topology, and is it kept exactly?

Paper 003, figure 8, on a real Storm of two workers, ten times as fast: 7:3:2 between 15 and 33 s,
the third task bypassed in favour of the first between 50 and 69 s, even otherwise. Windowed URL
count (blog_access_log: requests, counts of each URL every 500 ms, their sum over two minutes) and
continuous queries (bitbrains_vms: which machine's CPU is above 20, 50, 80 %?). A `DynamicBolt`
splits the records; the ratios are documents that another process puts into the ZooKeeper that Storm
itself uses. A share is that of the records between 2 s after a change and the next one; tasks write
twice a second what they have taken and when, and what lies between is interpolated.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.papers.streams import data
from bench.peers import Scale
from bench.report import Goal, Section
from bench.storm import cluster, jars
from bench.storm import topology as t

TITLE = "A split ratio, changed while records flow"
SCRIPT = jars.ROOT / "bench" / "storm" / "children" / "streams.py"
EVEN, SPLIT, BYPASS = [1, 1, 1], [7, 3, 2], [2, 1, 0]
PHASES = ((EVEN, 15.0), (SPLIT, 18.0), (EVEN, 17.0), (BYPASS, 19.0), (EVEN, 10.0))
SETTLING = 2.0
RATE = 1_000.0
ROWS = 200_000
PUBLISH = """
import json, sys
from pyroute.control import ConfigStore
url, name, value = sys.argv[1:]
store = ConfigStore.open(url)
print(store.put(name, json.loads(value), None))
store.close()
"""
TOPOLOGIES = {"urls": ("count", "total"), "queries": ("query", "answers")}
OUTPUTS = {"count": ["url", "count"], "query": ["machine", "limit"]}


def lines(kind: str) -> str | None:
    """What the spout sends: URLs, or machines and readings; None where the data is absent."""
    import pyarrow.parquet as pq

    if kind == "urls":
        path = data("blog_access_log")
        if path is None:
            return None
        urls = pq.read_table(path, columns=["path"]).column("path")[:ROWS].to_pylist()
        return "".join(f"{str(url).replace(chr(9), ' ')}\n" for url in urls)
    path = data("bitbrains_vms")
    if path is None:
        return None
    table = pq.read_table(path, columns=["vm", "cpu_pct"])[:ROWS].to_pydict()
    return "".join(f"{vm}\t{cpu}\n" for vm, cpu in zip(table["vm"], table["cpu_pct"], strict=True))


def description(
    folder: Path,
    kind: str,
    store: str,
    *,
    tasks: int = 3,
    rate: float = RATE,
    cost: Sequence[float] = (),
    again: bool = True,
    conf: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The topology; a record may have a cost, waiting and work in seconds, at the first bolt."""
    first, last = TOPOLOGIES[kind]
    script = [str(SCRIPT)]
    return t.topology(
        kind,
        t.spout(file=str(folder / "lines"), rate=rate, folder=str(folder), again=again),
        t.python(
            "split", t.by("shuffle", "spout"),
            script=["-m", "pyroute.storm", "dynamic", first, "--store", store],
        ),
        t.python(
            first, t.by("direct", "split"),
            script=[*script, first, str(folder), *map(str, cost)],
            parallelism=tasks, direct=False, fields=OUTPUTS[first],
        ),
        t.python(
            last, t.by("fields", first, fields=OUTPUTS[first][:1]), direct=False,
            script=[*script, last, str(folder)],
        ),
        conf={"topology.workers": 2, "topology.max.spout.pending": 5_000, **(conf or {})},
    )  # fmt: skip


Said = tuple[float, int]
"""When a task wrote, and what it had taken until then."""


def said(folder: Path, component: str, tasks: int) -> list[Said]:
    """What each task wrote last."""
    out = []
    for task in range(tasks):
        path = folder / f"{component}-{task}"
        count, when = path.read_text().split() if path.exists() else (0, 0.0)
        out.append((float(when), int(count)))
    return out


def taken(folder: Path, component: str, tasks: int) -> list[int]:
    """Records that each task has taken so far."""
    return [count for _, count in said(folder, component, tasks)]


def shares(rows: list[list[Said]], since: float) -> list[float]:
    """Of the records from a moment until the last one that every task has told of."""
    until = min(when for when, _ in rows[-1])
    counts = []
    for of_task in zip(*rows, strict=True):
        whens, numbers = zip(*of_task, strict=True)
        first, last = np.interp([since, until], whens, numbers)
        counts.append(float(last - first))
    return [count / max(sum(counts), 1.0) for count in counts]


def run(storm: cluster.Cluster, folder: Path, kind: str, text: str, scale: Scale) -> dict[str, Any]:
    folder.mkdir()
    (folder / "lines").write_text(text)
    store = f"zk://127.0.0.1:{storm.zookeeper_port}/pyroute"
    first, last = TOPOLOGIES[kind]
    storm.submit(description(folder, kind, store))
    cluster.wait_for("records", lambda: sum(taken(folder, first, 3)) > 1000)
    rows: list[list[Said]] = []
    phases = []
    start = time.monotonic()
    for number, (ratio, seconds) in enumerate(PHASES):
        if number:
            value = json.dumps({"ratio": ratio})
            storm.run([sys.executable, "-c", PUBLISH, store, f"{kind}/split->{first}", value])
        begun = time.monotonic()
        while time.monotonic() < begun + (seconds if not scale.quick else seconds / 2):
            rows.append(said(folder, first, 3))
            time.sleep(0.2)
        got = shares(rows, begun + SETTLING)
        phases.append({"ratio": ratio, "shares": got})
        print(f"{kind}, {ratio}: {[f'{share:.4f}' for share in got]}", flush=True)
    (folder / "stop").touch()
    cluster.wait_for("all acked", lambda: " done " in (folder / "spout-0").read_text())
    sent, failed = (int((folder / "spout-0").read_text().split()[i]) for i in (0, 3))
    cluster.wait_for("the last counts", lambda: sum(taken(folder, first, 3)) >= sent, 30.0)
    if kind == "urls":
        cluster.wait_for("the sums", lambda: sum(taken(folder, last, 1)) >= sent, 30.0)
    out = {"kind": kind, "phases": phases, "sent": sent, "failed": failed,
           "taken": sum(taken(folder, first, 3)), "last": sum(taken(folder, last, 1)),
           "rows": [[[round(when - start, 2), count] for when, count in row] for row in rows[::5]],
    }  # fmt: skip
    storm.kill_topology(kind)
    cluster.wait_for("the end of its workers", lambda: not storm.workers())
    return out


def measure(scale: Scale) -> dict[str, Any]:
    found, absent = [], []
    with (
        tempfile.TemporaryDirectory(prefix="pyroute-split-") as name,
        cluster.Cluster(slots=2) as storm,
        cluster.logged(storm),
    ):
        for kind in TOPOLOGIES:
            text = lines(kind)
            if text is None:
                absent.append(kind)
                continue
            found.append(run(storm, Path(name) / kind, kind, text, scale))
    return {"runs": found, "missing": absent}


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    for kind in result["missing"]:
        section.say(f"Not measured: {kind}; PYROUTE_DATA names the folder of its data.")
    table = section.table("topology", "ratio", "shares", "furthest off")
    worst = 0.0
    for each in result["runs"]:
        for phase in each["phases"]:
            total = sum(phase["ratio"])
            off = max(
                abs(share - part / total)
                for share, part in zip(phase["shares"], phase["ratio"], strict=True)
            )
            worst = max(worst, off)
            table.add(
                each["kind"],
                ":".join(map(str, phase["ratio"])),
                " / ".join(f"{share:.4f}" for share in phase["shares"]),
                f"{off:.4f}",
            )
        section.say(
            f"{each['kind']}: {each['sent']:,} records sent and acked, {each['failed']} failed,"
            f" {each['taken']:,} taken by the three tasks, {each['last']:,} by the last bolt."
        )
    if result["runs"]:
        section.goals.append(
            Goal("shares from the ratio in ZooKeeper", "<= 0.01 off", f"{worst:.4f}", worst <= 0.01)
        )
        exact = all(each["sent"] == each["taken"] for each in result["runs"])
        text = ", ".join(f"{each['taken']:,} of {each['sent']:,}" for each in result["runs"])
        section.goals.append(Goal("records taken", "each once", text, exact))
    return section
