"""How does what was measured become RESULTS.md?

A section is measured into one JSON file of raw figures under results/, and its part of the page is
made from that file alone: a section that is measured again leaves the others as they were.
"""

import datetime as dt
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Goal, Section, Table, goals_table, memory, processor

HERE = Path(__file__).parent
PAGE = HERE / "RESULTS.md"
RAW = HERE / "results"
TRIED = HERE / "TRIED.md"
ABOUT = (
    "Written by `python -m bench.spark --write`, each section from its own run. Only ratios within"
    " one section mean something: the machine is shared, and absolute figures are context."
)
READING = (
    "A figure is the median over the repetitions, in brackets the least and the greatest. A ratio"
    " is taken within each repetition, where the arms ran one after the other, and then the same. A"
    " goal is met when the worse end of its spread meets it. 'Cores of others' is what the rest of"
    " the machine used while an arm ran: where it is high, wall times are noise."
)

Raw = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """Figures of the repetitions."""

    each: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    def text(self, form: str = ".2f") -> str:
        if not self.each:
            return "-"
        return f"{self.median:{form}} [{min(self.each):{form}}..{max(self.each):{form}}]"

    def over(self, other: "Spread") -> "Spread":
        return Spread([a / b for a, b in zip(self.each, other.each, strict=True)])

    def minus(self, other: "Spread") -> "Spread":
        return Spread([a - b for a, b in zip(self.each, other.each, strict=True)])

    def times(self, factor: float) -> "Spread":
        return Spread([a * factor for a in self.each])


def least(*spreads: Spread) -> Spread:
    """The best of several arms in each repetition."""
    return Spread([min(values) for values in zip(*(s.each for s in spreads), strict=True)])


def at_most(name: str, bound: float, got: Spread | None, form: str = ".2f") -> Goal:
    if got is None:
        return Goal(name, f"<= {bound:g}", "-", None)
    return Goal(name, f"<= {bound:g}", got.text(form), max(got.each) <= bound)


def at_least(name: str, bound: float, got: Spread | None, form: str = ".2f") -> Goal:
    if got is None:
        return Goal(name, f">= {bound:g}", "-", None)
    return Goal(name, f">= {bound:g}", got.text(form), min(got.each) >= bound)


def wall(arms: Raw, name: str) -> Spread:
    return Spread(arms[name]["wall"])


def cpu(arms: Raw, name: str) -> Spread:
    return Spread(arms[name]["cpu"])


def arms_table(section: Section, arms: Raw, against: str) -> None:
    """Wall and CPU time and load of each arm, and the wall time of `against` relative to it."""
    table = section.table(
        "arm",
        "wall s",
        f"wall of {against} to it",
        "CPU s",
        "max/mean rows",
        "max/mean task time",
        "tasks",
        "cores of others",
    )
    for name, arm in arms.items():
        loads = stages_of(arm)
        table.add(
            name,
            wall(arms, name).text(),
            "1" if name == against else wall(arms, against).over(wall(arms, name)).text(),
            cpu(arms, name).text(".1f"),
            " / ".join(f"{one['max_rows']:.3f}" for one in loads) or "-",
            " / ".join(f"{one['max_time']:.2f}" for one in loads) or "-",
            " / ".join(f"{one['tasks']:,}" for one in loads) or "-",
            Spread(arm["others"]).text(".1f"),
        )


def stages_of(arm: Raw) -> list[Raw]:
    """Loads of an arm's stages that read most rows."""
    found: list[Raw] = arm.get("load") or []
    return found


def surroundings(quick: bool, seed: int) -> Raw:
    """Where and with what a section was measured."""
    import pyroute as pr

    return {
        "date": str(dt.datetime.now(dt.UTC).date()),
        "quick": quick,
        "seed": seed,
        "commit": commit(),
        "machine": f"{processor()}, {os.cpu_count()} CPUs, {memory()}, {platform.system()}",
        "versions": (
            f"Python {platform.python_version()}, pyroute {pr.__version__} ({pr.simd()}), PySpark"
            f" {importlib.metadata.version('pyspark')}, pyarrow"
            f" {importlib.metadata.version('pyarrow')}"
        ),
    }


def commit() -> str:
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=HERE,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()


def save(name: str, raw: Raw) -> None:
    RAW.mkdir(exist_ok=True)
    (RAW / f"{name}.json").write_text(json.dumps(raw, indent=1) + "\n")


def saved(name: str) -> Raw | None:
    path = RAW / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def section_of(show: Callable[[Raw], Section], raw: Raw) -> Section:
    """A section's part of the page, with where it was measured."""
    if "absent" in raw["result"]:
        section: Section = Section(raw["title"], raw["result"]["absent"])
    else:
        section = show(raw["result"])
    at = raw["at"]
    section.say(
        f"Measured {at['date']} on {at['commit']}, seed {at['seed']}"
        f"{', quick: rougher figures' if at['quick'] else ''}, {raw['minutes']:.0f} minutes;"
        f" {at['machine']}; {at['versions']}. Load average {raw['busy']}."
    )
    return section


def write(shows: Mapping[str, Callable[[Raw], Section]]) -> None:
    """The page, of all sections that were ever measured."""
    sections = []
    for name, show in shows.items():
        raw = saved(name)
        if raw is not None:
            sections.append(section_of(show, raw))
    lines = ["# Spark: what routing costs and gains", "", ABOUT, "", READING, ""]
    lines += ["## Goals", "", *goals_table(sections).lines()]
    for section in sections:
        lines += ["", *with_goals(section)]
    if TRIED.exists():
        lines += ["", *TRIED.read_text().splitlines()]
    PAGE.write_text("\n".join(lines) + "\n")


def with_goals(section: Section) -> list[str]:
    lines = section.lines()
    if section.goals:
        table = Table(("goal", "wanted", "measured", "verdict"))
        for goal in section.goals:
            table.add(goal.name, goal.wanted, goal.measured, goal.verdict)
        lines += ["", *table.lines()]
    return lines
