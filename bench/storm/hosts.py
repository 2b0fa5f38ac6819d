"""What does keeping pairs of keys on one host give, where the link between hosts is slow?

Two hosts (network namespaces, joined by a link of 20 Mbit/s in each direction), a worker each. One
source per host sends records of 4 KB whose first key belongs to its own host; the first stage sends
each record to the task of its second key. A pair's second key is the partner of the first with the
given probability, else any. Both stages route in the JVM by RoutedGrouping, with salts of their
own; the arms differ in the routers: rings (hash), tables that part every pair (worst), and the
tables of `pr.colocate`, planned on another sample. Locality is the share of records that came from
a task of the same worker, as the second stage saw it.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import pyroute as pr
from bench.peers import Scale
from bench.report import Goal, Section
from bench.spark.page import Spread
from bench.storm import cluster
from bench.storm import topology as t

TITLE = "Two hosts, a slow link"
KEYS = 1_000
RECORDS = 40_000
PADDING = 4_000
LINK = 20e6 / 8
OVERHEAD = 120  # of a tuple beside its padding: keys, ids, framing; an estimate
LOCALITIES = (60, 80, 100)


def sample(locality: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first = rng.integers(KEYS, size=RECORDS)
    second = np.where(rng.random(RECORDS) * 100 < locality, first, rng.integers(KEYS, size=RECORDS))
    return first, second


def names(prefix: str, numbers: np.ndarray) -> list[str]:
    return [f"{prefix}{n}" for n in numbers]


def routers(arm: str, locality: int, seed: int) -> tuple[pr.Router, pr.Router]:
    """Of the first and the second stage."""
    rings = pr.Router(pr.Ring(2, salt=1)), pr.Router(pr.Ring(2, salt=2))
    if arm == "hash":
        return rings
    every = np.arange(KEYS)
    if arm == "worst":
        homes = rings[0].route(names("a", every))
        table = dict(zip(names("b", every), (1 - homes).tolist(), strict=True))
        return rings[0], pr.Router(rings[1].home, table=table)
    first, second = sample(locality, seed + 1)
    pairs = pr.PairSpaceSaving(4 * KEYS)
    pairs.observe(names("a", first), names("b", second))
    plan = pr.colocate(pairs, 2, routers=rings)
    return plan.in_router, plan.out_router


def description(folder: Path, arm: str, locality: int, seed: int) -> dict[str, Any]:
    made = routers(arm, locality, seed)
    for number, router in enumerate(made):
        (folder / f"router{number}").write_bytes(router.to_bytes(values=False))
    first, second = sample(locality, seed)
    owners = made[0].route(names("a", first))
    for host in range(2):
        rows = zip(
            names("a", first[owners == host]), names("b", second[owners == host]), strict=True
        )
        (folder / f"pairs-{host}").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    stage = {"kind": "stage", "parallelism": 2, "folder": str(folder)}
    by_in = t.routed("source", f"file:{folder / 'router0'}", fields=["in"])
    by_out = t.routed("first", f"file:{folder / 'router1'}", fields=["out"])
    return t.topology(
        folder.name,
        {"id": "source", "kind": "pairs", "parallelism": 2, "pairs": str(folder), "near": "first",
         "padding": PADDING},
        {"id": "first", "field": "in", "inputs": [by_in], **stage},
        {"id": "second", "field": "out", "inputs": [by_out], "last": True, **stage},
        conf={"topology.workers": 2, "topology.acker.executors": 2,
              "topology.max.spout.pending": 200},
    )  # fmt: skip


def read(folder: Path) -> tuple[int, int] | None:
    """Records of the second stage so far, and local ones; None before both tasks had some."""
    total = [0, 0]
    for task in range(2):
        path = folder / f"second-{task}"
        if not path.exists():
            return None
        count, local, _ = map(int, path.read_text().split())
        total = [total[0] + count, total[1] + local]
    return total[0], total[1]


def run(
    storm: cluster.Cluster, folder: Path, arm: str, locality: int, scale: Scale
) -> dict[str, Any]:
    folder.mkdir()
    storm.submit(description(folder, arm, locality, scale.seed))
    cluster.wait_for("records", lambda: read(folder))
    time.sleep(2.0 if scale.quick else 5.0)
    before, start = read(folder), time.monotonic()
    time.sleep(4.0 if scale.quick else 8.0)
    after, seconds = read(folder), time.monotonic() - start
    assert before is not None
    assert after is not None
    storm.kill_topology(folder.name)
    cluster.wait_for("the end of its workers", lambda: not storm.workers())
    count = after[0] - before[0]
    found = {"arm": arm, "locality": locality, "rate": count / seconds,
             "local": (after[1] - before[1]) / max(count, 1)}  # fmt: skip
    print(f"{arm}, {locality} %: {found['rate']:,.0f}/s, {found['local']:.1%} local", flush=True)
    return found


def measure(scale: Scale) -> dict[str, Any]:
    if not cluster.Namespace.possible():
        return {"absent": "Not measured: it takes network namespaces."}
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="pyroute-hosts-") as name,
        cluster.Cluster(slots=1, supervisors=2, rate="20mbit") as storm,
        cluster.logged(storm),
    ):
        for locality in (60, 100) if scale.quick else LOCALITIES:
            rows += [
                run(storm, Path(name) / f"{arm}-{locality}", arm, locality, scale)
                for arm in ("hash", "worst", "colocated")
            ]
        storm.limit(None)
        free = run(storm, Path(name) / "free", "colocated", 100, scale)
    return {"rows": rows, "free": free}


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    table = section.table("pairs together", "arm", "records/s", "over hash", "local records")
    rates = {(row["locality"], row["arm"]): row["rate"] for row in result["rows"]}
    for row in result["rows"]:
        over = row["rate"] / rates[row["locality"], "hash"]
        table.add(
            f"{row['locality']} %",
            row["arm"],
            f"{row['rate']:,.0f}",
            f"{over:.2f}",
            f"{row['local']:.1%}",
        )
    predicted = 4 * LINK / (PADDING + OVERHEAD)
    free = result["free"]["rate"]
    bound = 0.8 * free / predicted
    section.say(
        f"With no limit on the link the colocated arm makes {free:,.0f} records/s. The link lets"
        f" the hash arm make {predicted:,.0f}: half of the records of each host cross it, in"
        f" both directions, at {PADDING + OVERHEAD} bytes each."
    )
    got = rates[100, "colocated"] / rates[100, "hash"]
    section.goals.append(
        Goal(
            "colocated over hash, all pairs together", f">= {bound:.2f}", f"{got:.2f}", got >= bound
        )
    )
    local = Spread([row["local"] for row in result["rows"] if row["arm"] == "hash"])
    fits = all(abs(each - 0.5) <= 0.02 for each in local.each)
    section.goals.append(Goal("locality of hash", "0.5 +- 0.02", local.text(".3f"), fits))
    return section
