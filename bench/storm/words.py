"""Does balancing by key pay on a real Storm, on words whose topics drift?

Paper 002, figure 14 (a): word count on congress_words, one word in 20, in the order of time, so
that weeks pass within a run.
"""

import tempfile
from pathlib import Path
from typing import Any

from bench.papers.streams import data
from bench.peers import Scale
from bench.report import Section
from bench.spark.page import Spread
from bench.storm import cluster, keyed
from bench.storm.keyed import Arm

TITLE = "Words with drift: throughput over theta_max"
EVERY = 20
TOLERANCES = (0.02, 0.3)
ABSENT = "Not measured: congress_words.parquet was not found; PYROUTE_DATA names its folder."


def lines_of(path: Path) -> list[str]:
    """The words, one in EVERY."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["ts", "word"])
    return [str(word) for word in table.column("word").to_pylist()[::EVERY]]


def span(scale: Scale) -> tuple[int, int]:
    """Records before, and those that are measured."""
    return 25_000, scale.pick(30_000, 20_000)


def arms(scale: Scale) -> list[Arm]:
    return [*keyed.UNPLANNED, *keyed.planned(TOLERANCES[:1] if scale.quick else TOLERANCES)]


def measure(scale: Scale) -> dict[str, Any]:
    path = data("congress_words")
    if path is None:
        return {"absent": ABSENT}
    with (
        tempfile.TemporaryDirectory(prefix="pyroute-words-") as name,
        cluster.Cluster(slots=1) as storm,
        cluster.logged(storm),
    ):
        folder, turns = Path(name) / "words", scale.often(2, 1)
        return keyed.measured(storm, folder, arms(scale), lines_of(path), span(scale), turns)


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    section.say(keyed.counted_text(result))
    section.say(keyed.SETTING)
    rates = keyed.table_of(section, result["rows"])
    means = keyed.spreads(result["rows"], "mean")
    keyed.claims_of(section, claims(rates, means))
    return section


def claims(rates: dict[Arm, Spread], means: dict[Arm, Spread]) -> keyed.Claims:
    """Those of figure 14 (a) in the paper's text."""
    mixed, pkg = Arm("Mixed", TOLERANCES[0]), Arm("PKG")
    found = [
        keyed.at_least(
            "Mixed at 0.02 has 1.1 times the throughput of PKG", 1.1, rates[mixed].over(rates[pkg])
        ),
        keyed.at_least(
            "and 0.6 times its latency (latency of PKG over that of Mixed >= 1.67)",
            1 / 0.6,
            means[pkg].over(means[mixed]),
        ),
        best(rates, mixed),
    ]
    loose = Arm("Readj", TOLERANCES[-1])
    if loose in rates:
        at = rates[loose].over(rates[Arm("Mixed", TOLERANCES[-1])])
        found.append(keyed.at_least("Readj catches up at 0.3 (0.95 times Mixed there)", 0.95, at))
        strict = rates[Arm("Readj", TOLERANCES[0])].over(rates[mixed])
        text = "and not at 0.02 (at most 0.9 times Mixed there)"
        found.append((text, strict.text(), max(strict.each) <= 0.9))
    return found


def best(rates: dict[Arm, Spread], mixed: Arm) -> tuple[str, str, bool | None]:
    """Whether no other keyed arm is faster, in the median."""
    others = {arm: each.median for arm, each in rates.items() if arm.name not in ("ideal", "PKG")}
    first = max(others, key=lambda arm: others[arm])
    text = f"the best keyed arm is {first} with {others[first]:,.0f} records/s"
    return "Mixed at 0.02 has the best throughput of all keyed arms", text, first == mixed
