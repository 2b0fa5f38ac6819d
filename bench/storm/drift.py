"""Does balancing by key keep up on a real Storm when the load changes more and more?

Paper 002, figure 13: the generator's 10,000 keys, Zipf 0.85, whose frequencies are swapped between
tasks from interval to interval so that the load of some task changes by f of the mean. An interval
is 15,000 records, some five seconds at full speed; theta_max 0.08.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import pyroute as pr
from bench.peers import Scale
from bench.report import Section
from bench.spark.page import Spread
from bench.storm import cluster, keyed
from bench.storm.keyed import Arm
from pyroute import workloads

TITLE = "Load that changes: throughput over f"
KEYS, INTERVALS, RECORDS = 10_000, 5, 15_000
CHANGES = (0.0, 0.5, 1.0)
ALLOWED = 0.08
ARMS = (Arm("hash"), Arm("Readj", ALLOWED), Arm("Mixed", ALLOWED), Arm("ideal"))


def lines_of(change: float, seed: int) -> list[str]:
    """A line for each record; homes are those of the ring that the managed arms begin with."""
    names = [f"key{number}" for number in range(KEYS)]
    homes = pr.Ring(keyed.TASKS).homes(names)
    rng = np.random.default_rng(seed)
    lines: list[str] = []
    trace = workloads.fluctuating_zipf(
        KEYS, homes=homes, fluctuation=change, records=RECORDS, intervals=INTERVALS, seed=seed
    )
    for counts in trace:
        numbers = rng.permutation(np.repeat(np.arange(KEYS), counts))
        lines += [names[number] for number in numbers.tolist()]
    return lines


def measure(scale: Scale) -> dict[str, Any]:
    out: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="pyroute-drift-") as name,
        cluster.Cluster(slots=1) as storm,
        cluster.logged(storm),
    ):
        for change in CHANGES[1:2] if scale.quick else CHANGES:
            print(f"f = {change:g}", flush=True)
            folder = Path(name) / f"f{10 * change:.0f}"
            lines = lines_of(change, scale.seed)
            span = 20_000, scale.pick(40_000, 20_000)
            out[f"{change:g}"] = keyed.measured(storm, folder, ARMS, lines, span, scale.often(2, 1))
    return out


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    section.say(keyed.SETTING)
    to_ideal: dict[str, dict[str, Spread]] = {}
    for change, found in result.items():
        section.say(f"f = {change}: {keyed.counted_text(found)}")
        rates = keyed.table_of(section, found["rows"])
        to_ideal[change] = {arm.name: rates[arm].over(rates[Arm("ideal")]) for arm in rates}
    claims: keyed.Claims = []
    for change, found in to_ideal.items():
        text = f"Mixed is very close to ideal at f = {change} (0.9 times)"
        claims.append(keyed.at_least(text, 0.9, found["Mixed"]))
    if len(to_ideal) > 1:
        first, *_, last = to_ideal
        lost = to_ideal[first]["Readj"].minus(to_ideal[last]["Readj"])
        text = f"Readj works well only with little change: it loses 0.1 of ideal by f = {last}"
        claims.append(keyed.at_least(text, 0.1, lost))
    keyed.claims_of(section, claims)
    return section
