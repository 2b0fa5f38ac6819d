"""The command of one paper: sections measured one by one, kept, and made a page of."""

import argparse
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import workloads
from bench.papers.page import Claim, Figure, Panel, claims_table, draw
from bench.peers import Scale
from bench.report import Goal, Table, goals_table, surroundings

HERE = Path(__file__).parent
Sections = Mapping[str, Callable[[Scale], Figure]]


def parser_of(name: str, description: str | None, sections: Sections) -> argparse.ArgumentParser:
    """What every paper's command takes."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.papers.{name}", description=(description or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="less work, rougher figures, no file")
    parser.add_argument(
        "--only", nargs="+", choices=sections, metavar="NAME", help=", ".join(sections)
    )
    parser.add_argument("--seed", type=int, default=workloads.SEED)
    return parser


@dataclass(frozen=True)
class Paper:
    """Its sections, and where what they find is kept."""

    name: str  # of the module, and of the folder with figures and plots
    title: str
    about: str
    sections: Sections

    @property
    def page(self) -> Path:
        return HERE / f"{self.name.upper()}.md"

    @property
    def folder(self) -> Path:
        return HERE / self.name

    def main(self, description: str | None) -> None:
        parser = parser_of(self.name, description, self.sections)
        parser.add_argument("--write", action="store_true", help="keep the results, write the page")
        arguments = parser.parse_args()
        if arguments.quick and arguments.write:
            parser.error("--write: rough figures are not kept")
        scale = Scale(arguments.quick, arguments.seed)
        for name in arguments.only or self.sections:
            before = cpu_seconds()
            section = self.sections[name](scale)
            took = cpu_seconds() - before
            print("\n".join([*section.lines(), "", f"({name}: {took:.0f} s)", ""]), flush=True)
            if arguments.write:
                self._keep(name, section, scale, took)
                self.write(scale)

    def _keep(self, name: str, section: Figure, scale: Scale, seconds: float) -> None:
        """Write down what a section found."""
        command = f"python -m bench.papers.{self.name} --only {name} --write"
        document = {
            "about": surroundings(command, scale.seed, scale.missing),
            "seconds": round(seconds),
            "section": as_document(section),
        }
        self.folder.mkdir(exist_ok=True)
        text = json.dumps(document, indent=1, default=float)
        (self.folder / f"{name}.json").write_text(text + "\n")

    def write(self, scale: Scale) -> None:
        """The page and its plots, of everything that is kept."""
        kept = {
            name: json.loads(path.read_text())
            for name in self.sections
            if (path := self.folder / f"{name}.json").exists()
        }
        sections = [from_document(each["section"], self.name) for each in kept.values()]
        claims = [claim for each in sections for claim in each.claims]
        lines = [f"# {self.title}", "", self.about, ""]
        lines += surroundings(f"python -m bench.papers.{self.name} --write", scale.seed, [])
        minutes = sum(document["seconds"] for document in kept.values()) / 60
        lines.append(f"- took {minutes:.1f} minutes of CPU time")
        absent = [name for name in self.sections if name not in kept]
        if absent:
            lines.append(f"- not measured yet: {', '.join(absent)}")
        lines += ["", "## Goals", "", *goals_table(sections).lines()]
        lines += ["", "## Claims", "", *claims_table(claims, with_figure=True).lines()]
        for section in sections:
            lines += ["", *section.lines()]
        self.page.write_text("\n".join(lines) + "\n")
        if scale.peer("matplotlib"):
            for section in sections:
                for name, panels in section.plots.items():
                    draw(self.folder / f"{name}.png", panels)


def cpu_seconds() -> float:
    """CPU time so far, of processes that this one started and waited for too."""
    return sum(os.times()[:4])


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


def from_document(document: dict[str, Any], folder: str) -> Figure:
    return Figure(
        document["title"],
        document["question"],
        parts=[part if isinstance(part, str) else Table(**part) for part in document["parts"]],
        goals=[Goal(**goal) for goal in document["goals"]],
        claims=[Claim(**claim) for claim in document["claims"]],
        plots={
            name: [Panel(**panel) for panel in panels] for name, panels in document["plots"].items()
        },
        folder=folder,
    )
