"""What a comparison found: tables, goals, and the page RESULTS.md."""

import datetime as dt
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.timing import Ratio, Timing

PEERS = ("numpy", "numba", "pandas", "polars", "pyarrow", "datasketches", "uhashring")


@dataclass
class Table:
    """Rows of text under a heading."""

    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append([cell if isinstance(cell, str) else figure(cell) for cell in cells])

    def lines(self) -> list[str]:
        """As Markdown with aligned columns, which reads as plain text too."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]

        def line(cells: Iterable[str]) -> str:
            padded = [
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            return f"| {' | '.join(padded)} |"

        rules = [
            "-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)
        ]
        return [line(self.columns), line(rules), *map(line, self.rows)]


@dataclass(frozen=True)
class Goal:
    """A bound that was set beforehand, and what was measured."""

    name: str
    wanted: str
    measured: str
    met: bool | None  # None: not measured

    @property
    def verdict(self) -> str:
        return {True: "met", False: "not met", None: "not measured"}[self.met]


@dataclass
class Section:
    """One question, answered by tables and judged by goals."""

    title: str
    question: str
    parts: list[Table | str] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)

    def table(self, *columns: str) -> Table:
        table = Table(columns)
        self.parts.append(table)
        return table

    def say(self, text: str) -> None:
        self.parts.append(text)

    def lines(self) -> list[str]:
        out = [f"## {self.title}", "", self.question]
        for part in self.parts:
            out += ["", *(part.lines() if isinstance(part, Table) else [part])]
        return out


def figure(value: object) -> str:
    """Numbers with three digits that mean something."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    if isinstance(value, Timing):
        return f"{figure(value.best)} (+{value.spread:.0%})"
    if isinstance(value, Ratio):
        return f"{value.value:.2f}x ({value.paired:.2f}x)"
    return str(value)


def at_least(name: str, bound: float, ratios: Sequence[tuple[str, Ratio]]) -> Goal:
    """A goal that the slow one takes at least `bound` times as long, judged by its worst case."""
    wanted = f">= {bound:g}x"
    if not ratios:
        return Goal(name, wanted, "-", None)
    case, worst = min(ratios, key=lambda pair: pair[1].value)
    return Goal(name, wanted, f"{figure(worst)}{named(case)}", worst.value >= bound)


def at_most(name: str, bound: float, ratios: Sequence[tuple[str, Ratio]]) -> Goal:
    """A goal that the slow one takes at most `bound` times as long, judged by its worst case."""
    wanted = f"<= {bound:g}x"
    if not ratios:
        return Goal(name, wanted, "-", None)
    case, worst = max(ratios, key=lambda pair: pair[1].value)
    return Goal(name, wanted, f"{figure(worst)}{named(case)}", worst.value <= bound)


def named(case: str) -> str:
    return f" at {case}" if case else ""


def goals_table(sections: Iterable[Section]) -> Table:
    table = Table(("goal", "wanted", "measured", "verdict"))
    for section in sections:
        for goal in section.goals:
            table.add(goal.name, goal.wanted, goal.measured, goal.verdict)
    return table


def surroundings(command: str, seed: int, missing: Sequence[str]) -> list[str]:
    """Command, seed, machine, versions and date."""
    import pyroute as pr

    versions = [f"Python {platform.python_version()}", f"pyroute {pr.__version__} ({pr.simd()})"]
    for peer in PEERS:
        try:
            versions.append(f"{peer} {importlib.metadata.version(peer)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    lines = [
        f"- command: `{command}`",
        f"- date: {dt.datetime.now(dt.UTC).date()}",
        f"- machine: {processor()}, {os.cpu_count()} CPUs, {memory()}, {platform.system()}",
        f"- compiler of the C++ comparison: {compiler()}",
        f"- versions: {', '.join(versions)}",
        f"- seed: {seed}",
    ]
    if missing:
        lines.append(f"- not installed, so not compared: {', '.join(missing)}")
    return lines


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return "memory unknown"
    return f"{size / 2**30:.0f} GiB"


def compiler() -> str:
    command = os.environ.get("CXX") or "c++"
    try:
        answer = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return answer.stdout.splitlines()[0]
