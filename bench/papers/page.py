"""A figure on the page: its tables, its plots, and what becomes of the paper's claims."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import Section, Table


@dataclass(frozen=True)
class Panel:
    """Lines over one axis: label -> (x, y)."""

    title: str
    x: str
    y: str
    lines: dict[str, tuple[Sequence[float], Sequence[float]]]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured, and whether it holds (None: not measured)."""

    figure: str
    text: str
    measured: str
    holds: bool | None


@dataclass
class Figure(Section):
    """A section with plots and claims."""

    plots: dict[str, list[Panel]] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    folder: str = "fang"  # of the plots, beside the page

    def claim(self, text: str, measured: str, holds: bool | None) -> None:
        self.claims.append(Claim(self.title, text, measured, holds))

    def plot(self, name: str, *panels: Panel) -> None:
        self.plots[name] = list(panels)
        self.say(f"![{self.title}]({self.folder}/{name}.png)")

    def lines(self) -> list[str]:
        out = super().lines()
        if self.claims:
            out += ["", *claims_table(self.claims, with_figure=False).lines()]
        if self.goals:
            table = Table(("goal", "wanted", "measured", "verdict"))
            for goal in self.goals:
                table.add(goal.name, goal.wanted, goal.measured, goal.verdict)
            out += ["", *table.lines()]
        return out


def claims_table(claims: Sequence[Claim], *, with_figure: bool) -> Table:
    verdicts = {True: "yes", False: "no", None: "not measured"}
    table = Table((*(["figure"] if with_figure else []), "claim of the paper", "measured", "holds"))
    for claim in claims:
        first = [claim.figure.split(":")[0]] if with_figure else []
        table.add(*first, claim.text, claim.measured, verdicts[claim.holds])
    return table


def mean_range(values: Sequence[float], form: str = ".3f") -> str:
    """The mean, in brackets the least and the greatest."""
    if not len(values):
        return "-"
    array = np.asarray(values, float)
    return f"{array.mean():{form}} ({array.min():{form}}..{array.max():{form}})"


def percent(values: Sequence[float]) -> str:
    return mean_range(100 * np.asarray(values, float), ".2f")


def milliseconds(values: Sequence[float]) -> str:
    """The median, in brackets the least and the greatest."""
    if not len(values):
        return "-"
    array = 1000 * np.asarray(values, float)
    return f"{np.median(array):.2f} ({array.min():.2f}..{array.max():.2f})"


def draw(path: Path, panels: Sequence[Panel]) -> None:
    """One PNG, panels side by side; small enough to be kept with the page."""
    import matplotlib as mpl
    from PIL import Image

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.0), squeeze=False)
    for panel, axis in zip(panels, axes[0], strict=True):
        axis.set_prop_cycle(_cycle(plt))
        for label, (x, y) in panel.lines.items():
            axis.plot(x, y, label=label, markersize=3, linewidth=1.2)
        axis.set_title(panel.title, fontsize=9)
        axis.set_xlabel(panel.x, fontsize=8)
        axis.set_ylabel(panel.y, fontsize=8)
        if panel.log_x:
            axis.set_xscale("log", base=2)
        if panel.log_y:
            axis.set_yscale("log")
        axis.tick_params(labelsize=7)
        axis.grid(visible=True, linewidth=0.3)
        axis.legend(fontsize=6)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80)
    plt.close(figure)
    # A palette instead of true colours makes a third of the file; and no date or version of the
    # drawing library: equal figures are equal files.
    Image.open(drawn).convert("RGB").quantize(48).save(path, optimize=True)


def _cycle(plt: Any) -> Any:
    colours = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    from cycler import cycler

    return cycler(color=colours[:8], marker=list("os^vDxP*"))
