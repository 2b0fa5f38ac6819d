"""What does keeping pairs of keys on one host give, where the link between hosts is slow?

Paper 001, figures 7, 8 and 9. Two hosts (network namespaces, joined by a link of 20 Mbit/s in each
direction), a worker each. One source per host sends records whose first key belongs to its own
host; the first stage sends each record to the task of its second key. A pair's second key is the
partner of the first with the given probability, else any. Both stages route in the JVM by
RoutedGrouping, with salts of their own; the arms differ in the routers: rings (hash), tables that
part every pair (worst), and the tables of `pr.colocate`, planned on another sample. With one host
there is one source and one task of each stage, and nothing crosses the link. Locality is the share
of records that came from a task of the same worker, as the second stage saw it; bytes are those
that the two ends of the link sent, acks and heartbeats included.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import pyroute as pr
from bench.peers import Scale
from bench.report import Goal, Section
from bench.spark.page import Spread, at_least
from bench.storm import cluster
from bench.storm import topology as t

TITLE = "Two hosts, a slow link"
KEYS = 1_000
RECORDS = 40_000
PADDING = 4_000
LINK = 20e6 / 8
OVERHEAD = 120  # of a tuple beside its padding: keys, ids, framing; an estimate
LOCALITIES = (60, 80, 100)
PADDINGS = (0, 4_000, 12_000, 20_000)
ARMS = ("hash", "worst", "colocated")
ONE = "one host"


@dataclass(frozen=True)
class Case:
    """What is run: `free` ones without a limit of the link, others than `acked` without ackers."""

    arm: str
    locality: int
    padding: int = PADDING
    free: bool = False
    acked: bool = True

    @property
    def hosts(self) -> int:
        return 1 if self.arm == ONE else 2

    def __str__(self) -> str:
        free = ", no limit" if self.free else ""
        return f"{self.arm}, {self.locality} %, {self.padding} B{free}"


def sample(locality: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first = rng.integers(KEYS, size=RECORDS)
    second = np.where(rng.random(RECORDS) * 100 < locality, first, rng.integers(KEYS, size=RECORDS))
    return first, second


def names(prefix: str, numbers: np.ndarray) -> list[str]:
    return [f"{prefix}{n}" for n in numbers]


def routers(arm: str, locality: int, seed: int) -> tuple[pr.Router, pr.Router]:
    """Of the first and the second stage."""
    if arm == ONE:
        return pr.Router(1), pr.Router(1)
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


def write_pairs(
    folder: Path, prefix: str, router: pr.Router, ins: list[str], outs: list[str]
) -> None:
    """The pairs of each host's source: those whose first key belongs there."""
    owners = router.route(ins).tolist()
    for host in router.tasks:
        rows = (f"{a}\t{b}\n" for a, b, own in zip(ins, outs, owners, strict=True) if own == host)
        fresh = folder / f".{prefix}-{host}"
        fresh.write_text("".join(rows))
        fresh.replace(folder / f"{prefix}-{host}")


def stages(
    folder: Path,
    by_in: t.Component,
    by_out: t.Component,
    hosts: int,
    padding: int,
    acked: bool = True,
) -> dict[str, Any]:
    """A source, a first and a second stage on each host."""
    stage = {"kind": "stage", "parallelism": hosts, "folder": str(folder)}
    return t.topology(
        folder.name,
        {"id": "source", "kind": "pairs", "parallelism": hosts, "pairs": str(folder),
         "near": "first", "padding": padding},
        {"id": "first", "field": "in", "inputs": [by_in], **stage},
        {"id": "second", "field": "out", "inputs": [by_out], "last": True, **stage},
        conf={"topology.workers": hosts, "topology.acker.executors": hosts if acked else 0,
              "topology.max.spout.pending": 200},
    )  # fmt: skip


def description(folder: Path, case: Case, seed: int) -> dict[str, Any]:
    made = routers(case.arm, case.locality, seed)
    for number, router in enumerate(made):
        (folder / f"router{number}").write_bytes(router.to_bytes(values=False))
    first, second = sample(case.locality, seed)
    write_pairs(folder, "pairs", made[0], names("a", first), names("b", second))
    by_in = t.routed("source", f"file:{folder / 'router0'}", fields=["in"])
    by_out = t.routed("first", f"file:{folder / 'router1'}", fields=["out"])
    return stages(folder, by_in, by_out, case.hosts, case.padding, case.acked)


def read(folder: Path, hosts: int = 2) -> tuple[int, int] | None:
    """Records of the second stage so far, and local ones; None before all tasks had some."""
    total = [0, 0]
    for task in range(hosts):
        path = folder / f"second-{task}"
        if not path.exists():
            return None
        count, local, _ = map(int, path.read_text().split())
        total = [total[0] + count, total[1] + local]
    return total[0], total[1]


def run(storm: cluster.Cluster, folder: Path, case: Case, scale: Scale) -> dict[str, Any]:
    folder.mkdir()
    storm.limit(None if case.free else "20mbit")
    storm.submit(description(folder, case, scale.seed))
    cluster.wait_for("records", lambda: read(folder, case.hosts))
    time.sleep(2.0 if scale.quick else 5.0)
    before, sent, start = read(folder, case.hosts), storm.link_bytes(), time.monotonic()
    time.sleep(4.0 if scale.quick else 8.0)
    after, seconds = read(folder, case.hosts), time.monotonic() - start
    sent = storm.link_bytes() - sent
    assert before is not None
    assert after is not None
    storm.kill_topology(folder.name)
    cluster.wait_for("the end of its workers", lambda: not storm.workers())
    count = max(after[0] - before[0], 1)
    found = {"arm": case.arm, "locality": case.locality, "padding": case.padding,
             "free": case.free, "acked": case.acked, "rate": count / seconds, "bytes": sent / count,
             "local": (after[1] - before[1]) / count}  # fmt: skip
    print(
        f"{case}: {found['rate']:,.0f}/s, {found['local']:.1%} local, {found['bytes']:,.0f} B on"
        " the link for a record",
        flush=True,
    )
    return found


def cases(scale: Scale) -> list[tuple[Case, int]]:
    """What is run, and how often: the judged ones three times, the others at 4 KB twice."""
    free = Case("colocated", 100, free=True)
    if scale.quick:
        both = [Case(arm, 100, size) for size in (PADDING, 20_000) for arm in ("hash", "colocated")]
        return [(case, 1) for case in [*both, Case("worst", 100), Case(ONE, 100, 20_000), free]]
    base = [
        (Case(arm, locality), 3 if locality == 100 and arm != "worst" else 2)
        for locality in LOCALITIES
        for arm in ARMS
    ]
    swept = [
        (Case(arm, locality, padding), 1)
        for padding in PADDINGS
        for locality in LOCALITIES[1:]
        for arm in ARMS
        if padding != PADDING
    ]
    alone = [(Case(ONE, 100, padding), 1) for padding in PADDINGS]
    return [*base, *swept, *alone, (free, 3)]


def measure(scale: Scale) -> dict[str, Any]:
    return measured(cases(scale), scale)


def measured(chosen: Sequence[tuple[Case, int]], scale: Scale) -> dict[str, Any]:
    """Every case as often as it says, in turns."""
    if not cluster.Namespace.possible():
        return {"absent": "Not measured: it takes network namespaces."}
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="pyroute-hosts-") as name,
        cluster.Cluster(slots=1, supervisors=2, rate="20mbit") as storm,
        cluster.logged(storm),
    ):
        for turn in range(max(times for _, times in chosen)):
            for number, (case, times) in enumerate(chosen):
                if turn < times:
                    found = run(storm, Path(name) / f"hosts-{number}-{turn}", case, scale)
                    rows.append({**found, "turn": turn})
    return {"rows": rows}


# The page ---------------------------------------------------------------------------------------


class Rows:
    """What was measured, by case; rows of an older form are of 4 KB, and counted no bytes."""

    def __init__(self, result: dict[str, Any]) -> None:
        old = [{**result["free"], "free": True}] if "free" in result else []
        self.by_case: dict[Case, list[dict[str, Any]]] = {}
        for row in [*result["rows"], *old]:
            case = Case(
                row["arm"],
                row["locality"],
                row.get("padding", PADDING),
                row.get("free", False),
                row.get("acked", True),
            )
            self.by_case.setdefault(case, []).append(row)

    def spread(self, case: Case, figure: str = "rate") -> Spread:
        return Spread([float(row[figure]) for row in self.by_case[case] if figure in row])

    def ratio(self, one: Case, other: Case) -> Spread:
        """Of the turns that both have."""
        a, b = self.spread(one).each, self.spread(other).each
        return Spread([x / y for x, y in zip(a, b, strict=False)])


def hash_localities(rows: Rows, padding: int) -> list[float]:
    """Of each run of the hash arm with such records."""
    return [
        row["local"]
        for case, each in rows.by_case.items()
        if case.arm == "hash" and case.padding == padding
        for row in each
    ]


def order(case: Case) -> tuple[Any, ...]:
    return case.padding, case.locality, case.free, (*ARMS, ONE).index(case.arm)


def table_of(section: Section, rows: Rows) -> None:
    table = section.table(
        *("padding", "pairs together", "arm", "records/s", "over hash", "local records"),
        "bytes on the link for a record",
    )
    for case in sorted(rows.by_case, key=order):
        hashed = replace(case, arm="hash", free=False)
        table.add(
            f"{case.padding:,} B",
            f"{case.locality} %",
            f"{case.arm}{', no limit' if case.free else ''}",
            rows.spread(case).text(",.0f"),
            rows.ratio(case, hashed).text() if hashed in rows.by_case else "-",
            rows.spread(case, "local").text(".1%"),
            rows.spread(case, "bytes").text(",.0f"),
        )


def judge(section: Section, rows: Rows, acked: bool) -> None:
    """The gain of colocation, by what the link allows."""
    predicted = 4 * LINK / (PADDING + OVERHEAD)
    ours = Case("colocated", 100, acked=acked)
    free = rows.spread(replace(ours, free=True))
    section.say(
        f"With no limit on the link the colocated arm makes {free.text(',.0f')} records/s. The link"
        f" lets the hash arm make {predicted:,.0f}: half of the records of each host cross it, in"
        f" both directions, at {PADDING + OVERHEAD} bytes each. The goal is of the throughput of"
        " colocated over hash, as a share of the first figure over the second."
    )
    got = rows.ratio(ours, replace(ours, arm="hash"))
    share = Spread([g * predicted / f for g, f in zip(got.each, free.each, strict=False)])
    name = "colocated over hash, all pairs together, to local rate over link-bound rate"
    section.goals.append(at_least(name if acked else f"{name}, no acks", 0.8, share))


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    rows = Rows(result)
    table_of(section, rows)
    judge(section, rows, acked=True)
    local = Spread(hash_localities(rows, PADDING))
    fits = all(abs(each - 0.5) <= 0.02 for each in local.each)
    goal = Goal("locality of hash, 4 KB", "0.5 +- 0.02", local.text(".3f"), fits)
    section.goals.append(goal)
    others = [each for padding in PADDINGS for each in hash_localities(rows, padding)]
    section.say(
        f"Over all paddings the runs of hash had localities of {min(others):.3f} to"
        f" {max(others):.3f}: the larger the records, the fewer cross in a run (some 3,000 of 20"
        " kB), and those that stay come first."
    )
    claims(section, rows)
    return section


def claims(section: Section, rows: Rows) -> None:
    """What the paper says of one and two hosts, as far as it was measured."""
    table = section.table("claim of the paper", "measured", "holds")

    def add(text: str, case: Case, against: Case, holds: Callable[[float], bool]) -> None:
        if case not in rows.by_case or against not in rows.by_case:
            table.add(text, "-", "not measured")
            return
        got = rows.ratio(case, against)
        table.add(text, got.text(), "yes" if all(map(holds, got.each)) else "no")

    most = PADDINGS[-1]
    alone, ours = Case(ONE, 100, most), Case("colocated", 100, most)
    for locality in LOCALITIES[1:]:
        text = f"20 kB, {locality} %: hash drops from 1 to 2 hosts (below 1)"
        add(text, Case("hash", locality, most), alone, lambda each: each < 1)
    text = "20 kB, 100 %: locality-aware scales from 1 to 2 hosts (1 or more)"
    add(text, ours, alone, lambda each: each >= 1)
    text = "20 kB, 80 %: hash is near the worst case (worst over hash 0.8 or more)"
    add(text, Case("worst", 80, most), Case("hash", 80, most), lambda each: each >= 0.8)
    text = "100 %: padding has no effect on locality-aware (20 kB over none, 0.8 to 1.25)"
    add(text, ours, Case("colocated", 100, 0), lambda each: 0.8 <= each <= 1.25)
