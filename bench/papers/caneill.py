"""What becomes of the claims of paper 001 (Caneill et al., locality-aware routing)?

    python -m bench.papers.caneill [--quick] [--only NAME ...] [--write]

Counts the bytes that the paper's synthetic stream puts on links, replays real pairs week by week,
and judges every claim and goal. --write keeps what was found in caneill/NAME.json, and makes
CANEILL.md and the plots in caneill/ of all that is kept. Real streams are looked for in the folder
PYROUTE_DATA, else in ../shared/data beside the repository.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import workloads
from bench.papers import colocating
from bench.papers.page import Claim, Figure, Panel, claims_table, draw
from bench.peers import Scale
from bench.report import Goal, Table, goals_table, surroundings

PAGE = Path(__file__).with_name("CANEILL.md")
FOLDER = Path(__file__).with_name(colocating.FOLDER)
ABOUT = (
    "Written by the command below. Localities, bytes and moves are counted, so they do not depend"
    " on the machine; times do: compare those within a table only. A cell is the mean over the"
    " weeks, in brackets the least and the greatest."
)
# Rows of the figure index by the number of the figure, then what goes beyond it.
FIGURES = colocating.FIGURES
BEYOND = colocating.BEYOND
SECTIONS = {**FIGURES, **BEYOND}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.papers.caneill", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="less work, rougher figures, no file")
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, metavar="NAME", help=", ".join(SECTIONS)
    )
    parser.add_argument("--seed", type=int, default=workloads.SEED)
    parser.add_argument("--write", action="store_true", help="keep the results, write the page")
    arguments = parser.parse_args()
    if arguments.quick and arguments.write:
        parser.error("--write: rough figures are not kept")
    scale = Scale(arguments.quick, arguments.seed)

    for name in arguments.only or SECTIONS:
        before = time.process_time()
        section = SECTIONS[name](scale)
        took = time.process_time() - before
        print("\n".join([*section.lines(), "", f"({name}: {took:.0f} s)", ""]), flush=True)
        if arguments.write:
            keep(name, section, scale, took)
            write(scale)


def keep(name: str, section: Figure, scale: Scale, seconds: float) -> None:
    """Write down what a section found."""
    command = f"python -m bench.papers.caneill --only {name} --write"
    about = surroundings(command, scale.seed, scale.missing)
    document = {"about": about, "seconds": round(seconds), "section": as_document(section)}
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(document, indent=1, default=float)
    (FOLDER / f"{name}.json").write_text(text + "\n")


def as_document(section: Figure) -> dict[str, Any]:
    parts = [part if isinstance(part, str) else asdict(part) for part in section.parts]
    return {
        "title": section.title,
        "question": section.question,
        "parts": parts,
        "goals": [asdict(goal) for goal in section.goals],
        "claims": [asdict(claim) for claim in section.claims],
        "plots": {
            name: [asdict(panel) for panel in panels] for name, panels in section.plots.items()
        },
    }


def from_document(document: dict[str, Any]) -> Figure:
    return Figure(
        document["title"],
        document["question"],
        parts=[part if isinstance(part, str) else Table(**part) for part in document["parts"]],
        goals=[Goal(**goal) for goal in document["goals"]],
        claims=[Claim(**claim) for claim in document["claims"]],
        plots={
            name: [Panel(**panel) for panel in panels] for name, panels in document["plots"].items()
        },
        folder=FOLDER.name,
    )


def write(scale: Scale) -> None:
    """The page and its plots, of everything that is kept."""
    kept = {
        name: json.loads(path.read_text())
        for name in SECTIONS
        if (path := FOLDER / f"{name}.json").exists()
    }
    sections = [from_document(document["section"]) for document in kept.values()]
    claims = claims_table([claim for each in sections for claim in each.claims], with_figure=True)
    command = "python -m bench.papers.caneill --write"
    lines = ["# Paper 001: locality-aware routing", "", ABOUT, ""]
    lines += surroundings(command, scale.seed, [])
    minutes = sum(document["seconds"] for document in kept.values()) / 60
    lines.append(f"- took {minutes:.1f} minutes of CPU time")
    absent = [name for name in SECTIONS if name not in kept]
    if absent:
        lines.append(f"- not measured yet: {', '.join(absent)}")
    lines += ["", "## Goals", "", *goals_table(sections).lines()]
    lines += ["", "## Claims", "", *claims.lines()]
    for section in sections:
        lines += ["", *section.lines()]
    PAGE.write_text("\n".join(lines) + "\n")
    if scale.peer("matplotlib"):
        for section in sections:
            for name, panels in section.plots.items():
                draw(FOLDER / f"{name}.png", panels)


if __name__ == "__main__":
    main()
