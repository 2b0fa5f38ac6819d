"""What does routing cost on a LocalCluster: by a child in JSON, by a child in frames, in the JVM?

One spout sends (sequence, key, padding) as fast as its 1,000 pending records allow, a router sends
each record to one of four counting tasks, and an acker follows all. The arms run one after the
other in one JVM, each from its own start, in every repetition in another order; a rate is that of
the counting tasks over a span after the warm-up. The table has 3,000 keys of 20,000. The peers
route by the same router (pystorm) or by the key's hash code (the Java bolt); the groupings need no
router, and the counting tasks read the spout.
"""

import tempfile
from pathlib import Path
from typing import Any

import pyroute as pr
from bench.peers import Scale
from bench.report import Goal, Section
from bench.spark.page import Spread, at_least, at_most
from bench.storm import cluster, jars
from bench.storm import topology as t

TITLE = "LocalCluster"
CHILDREN = jars.ROOT / "bench" / "storm" / "children"
KEYS = 20_000
PENDING = 1_000


def router(folder: Path) -> Path:
    """A router with 3,000 tabled keys, in a file."""
    path = folder / "router"
    table = {f"key-{i}": i % 4 for i in range(3_000)}
    path.write_bytes(pr.Router(4, table=table).to_bytes(values=False))
    return path


def description(arm: str, file: Path, scale: Scale) -> dict[str, Any]:
    """The topology of an arm."""
    spout = t.spout(keys=KEYS)
    shuffle, direct = t.by("shuffle", "spout"), t.by("direct", "router")
    ours, theirs = str(CHILDREN / "router.py"), str(CHILDREN / "pystorm_router.py")
    middle = {
        "pystorm": lambda: [t.python("router", shuffle, script=[theirs, str(file), "count"])],
        "RouterBolt, JSON": lambda: [t.python("router", shuffle, script=[ours, str(file)])],
        "RouterShellBolt": lambda: [
            t.python("router", shuffle, kind="router", script=[ours, str(file)])
        ],
        "Java bolt": lambda: [t.hashing("router", shuffle, target="count")],
    }
    last = {
        "fieldsGrouping": lambda: t.by("fields", "spout", fields=["key"]),
        "RoutedGrouping": lambda: t.routed("spout", f"file:{file}"),
    }
    parts = middle[arm]() if arm in middle else []
    into = last[arm]() if arm in last else direct
    return t.topology(
        "bench",
        spout,
        *parts,
        t.count("count", into),
        conf={"topology.max.spout.pending": PENDING},
        counter="count",
        warm=2.0 if scale.quick else 4.0,
        seconds=2.0 if scale.quick else 4.0,
    )


def arms_of(names: list[str], scale: Scale, repetitions: int) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {
        name: {"rate": [], "jvm_cpu": [], "child_cpu": [], "seconds": []} for name in names
    }
    with tempfile.TemporaryDirectory() as name:
        file = router(Path(name))
        order = []
        for turn in range(repetitions + 1):  # the first warms the JVM
            order += [names[(i + turn) % len(names)] for i in range(len(names))]
        runs = [description(arm, file, scale) for arm in order]
        results = cluster.local(*runs, patience=60.0 + 40.0 * len(runs), heap="2g")
        for place, (arm, result) in enumerate(zip(order, results, strict=True)):
            print(
                f"{arm}: {result['rate']:,.0f}/s, failed {result['counters'].get('spout.failed')}"
            )
            if place >= len(names):
                for figure, values in found[arm].items():
                    values.append(result[figure])
    return found


def measure(scale: Scale) -> dict[str, Any]:
    repetitions = 2 if scale.quick else 3
    return {
        "routers": arms_of(
            ["pystorm", "RouterBolt, JSON", "RouterShellBolt", "Java bolt"], scale, repetitions
        ),
        "groupings": arms_of(["fieldsGrouping", "RoutedGrouping"], scale, repetitions + 2),
    }


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    rates: dict[str, Spread] = {}
    table = section.table(
        "arm", "records/s", "CPU of the JVM, us per record", "CPU of the child", "child / JVM"
    )
    shares: dict[str, Spread] = {}
    for arms in result.values():
        for name, arm in arms.items():
            rates[name] = Spread(arm["rate"])
            records = Spread(arm["seconds"]).each
            done = [rate * span for rate, span in zip(arm["rate"], records, strict=True)]
            jvm = Spread([1e6 * c / n for c, n in zip(arm["jvm_cpu"], done, strict=True)])
            child = Spread([1e6 * c / n for c, n in zip(arm["child_cpu"], done, strict=True)])
            shares[name] = child.over(jvm)
            has = max(arm["child_cpu"]) > 0
            table.add(
                name,
                rates[name].text(",.0f"),
                jvm.text(".1f"),
                child.text(".2f") if has else "-",
                shares[name].text(".1%") if has else "-",
            )

    def over(one: str, other: str, bound: float) -> Goal:
        return at_least(f"{one} over {other}", bound, rates[one].over(rates[other]))

    section.goals += [
        over("RouterBolt, JSON", "pystorm", 4),
        share_goal(shares["RouterBolt, JSON"]),
        over("RouterShellBolt", "Java bolt", 0.9),
        over("RouterShellBolt", "pystorm", 8),
        over("RoutedGrouping", "fieldsGrouping", 0.95),
    ]
    return section


def share_goal(share: Spread) -> Goal:
    return at_most("CPU of the child of RouterBolt (JSON) over the JVM's", 0.1, share, ".3f")
