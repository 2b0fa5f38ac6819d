"""What does routing cost on a LocalCluster: by a child in JSON, by a child in frames, in the JVM?

One spout sends (sequence, key, padding) as fast as its 5,000 pending records allow, a router sends
each record to one of four counting tasks, and an acker follows all. The arms run one after the
other in one JVM, each from its own start, in every repetition in another order; a rate is that of
the counting tasks over a span after the warm-up. The table has 3,000 keys of 20,000. The peers
route by the same router (pystorm) or by the key's hash code (the Java bolt). CPU times per record
are steadier than rates on a machine that others use too.
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

TITLE = "LocalCluster: routers"
CHILDREN = jars.ROOT / "bench" / "storm" / "children"
KEYS = 20_000
PENDING = 5_000


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
            failed = result["counters"].get("spout.failed")
            print(f"{arm}: {result['rate']:,.0f}/s, failed {failed}", flush=True)
            if place >= len(names):
                for figure, values in found[arm].items():
                    values.append(result[figure])
    return found


def measure(scale: Scale) -> dict[str, Any]:
    names = ["pystorm", "RouterBolt, JSON", "RouterShellBolt", "Java bolt"]
    return arms_of(names, scale, 2 if scale.quick else 5)


def table_of(section: Section, arms: dict[str, Any]) -> tuple[dict[str, Spread], dict[str, Spread]]:
    """Rates, and CPU of the child over that of the JVM."""
    rates: dict[str, Spread] = {}
    shares: dict[str, Spread] = {}
    table = section.table(
        *("arm", "records/s", "CPU of the JVM, us per record", "CPU of the child, us per record"),
        "child / JVM",
    )
    for name, arm in arms.items():
        rates[name] = Spread(arm["rate"])
        done = [rate * span for rate, span in zip(arm["rate"], arm["seconds"], strict=True)]
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
    return rates, shares


def over(rates: dict[str, Spread], one: str, other: str, bound: float) -> Goal:
    return at_least(f"{one} over {other}", bound, rates[one].over(rates[other]))


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    rates, shares = table_of(section, result)
    name = "CPU of the child of RouterBolt, JSON, over the JVM's"
    section.goals += [
        over(rates, "RouterBolt, JSON", "pystorm", 4),
        at_most(name, 0.1, shares["RouterBolt, JSON"], ".3f"),
        over(rates, "RouterShellBolt", "Java bolt", 0.9),
        over(rates, "RouterShellBolt", "pystorm", 8),
    ]
    return section
