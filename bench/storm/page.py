"""How does what was measured become RESULTS.md? As on Spark's page, each section by itself."""

import datetime as dt
import importlib.metadata
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.report import Section, goals_table, memory, processor
from bench.spark.page import Raw, commit, section_of, with_goals
from bench.storm import jars

HERE = Path(__file__).parent
PAGE = HERE / "RESULTS.md"
RAW = HERE / "results"
TRIED = HERE / "TRIED.md"
ABOUT = (
    "Written by `python -m bench.storm --write`, each section from its own run. Only ratios within"
    " one section mean something: the machine is shared, and absolute figures are context."
)
READING = (
    "A figure is the median over the repetitions, in brackets the least and the greatest. A ratio"
    " is taken within each repetition, and then the same. A goal is met when the worse end of its"
    " spread meets it."
)


def surroundings(quick: bool, seed: int) -> Raw:
    """Where and with what a section was measured."""
    import pyroute as pr

    try:
        peer = importlib.metadata.version("pystorm")
    except importlib.metadata.PackageNotFoundError:
        peer = "none"
    return {
        "date": str(dt.datetime.now(dt.UTC).date()),
        "quick": quick,
        "seed": seed,
        "commit": commit(),
        "machine": f"{processor()}, {os.cpu_count()} CPUs, {memory()}, {platform.system()}",
        "versions": (
            f"Python {platform.python_version()}, pyroute {pr.__version__} ({pr.simd()}), Storm"
            f" {jars.VERSION}, pystorm {peer}"
        ),
    }


def write(
    shows: Mapping[str, Callable[[Raw], Section]], saved: Callable[[str], Raw | None]
) -> None:
    """The page, of all sections that were ever measured."""
    sections = []
    for name, show in shows.items():
        raw = saved(name)
        if raw is not None:
            sections.append(section_of(show, raw))
    sections = [*extra(), *sections]
    lines = ["# Storm: what routing costs and gains", "", ABOUT, "", READING, ""]
    lines += ["## Goals", "", *goals_table(sections).lines()]
    for section in sections:
        lines += ["", *with_goals(section)]
    if TRIED.exists():
        lines += ["", *TRIED.read_text().splitlines()]
    PAGE.write_text("\n".join(lines) + "\n")


def extra() -> list[Section]:
    """The child alone has a runner and a file of its own."""
    from bench.storm import child

    return [child.page()] if child.RESULTS.exists() else []
