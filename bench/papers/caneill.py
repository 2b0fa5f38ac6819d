"""What becomes of the claims of paper 001 (Caneill et al., locality-aware routing)?

    python -m bench.papers.caneill [--quick] [--only NAME ...]

Counts the bytes that the paper's synthetic stream puts on links, replays real pairs week by week,
and judges every claim and goal. A full run writes CANEILL.md and the plots in caneill/; --quick and
--only print only. Real streams are looked for in the folder PYROUTE_DATA, else in ../shared/data
beside the repository.
"""

import argparse
import time
from pathlib import Path

from bench import workloads
from bench.papers import colocating
from bench.papers.page import claims_table, draw
from bench.peers import Scale
from bench.report import goals_table, surroundings

PAGE = Path(__file__).with_name("CANEILL.md")
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
    parser.add_argument("--output", type=Path, help="file to write, also where --quick or --only")
    arguments = parser.parse_args()
    scale = Scale(arguments.quick, arguments.seed)

    sections = []
    started = time.process_time()
    for name in arguments.only or SECTIONS:
        before = time.process_time()
        sections.append(SECTIONS[name](scale))
        print("\n".join([*sections[-1].lines(), ""]), flush=True)
        print(f"({name}: {time.process_time() - before:.0f} s)\n", flush=True)
    minutes = (time.process_time() - started) / 60
    goals = goals_table(sections)
    claims = claims_table([claim for each in sections for claim in each.claims], with_figure=True)
    print("\n".join(["## Goals", "", *goals.lines(), "", "## Claims", "", *claims.lines()]))

    output = arguments.output
    if output is None and not (arguments.quick or arguments.only):
        output = PAGE
    if output is None:
        return
    command = "python -m bench.papers.caneill" + " --quick" * arguments.quick
    command += f" --only {' '.join(arguments.only)}" if arguments.only else ""
    lines = ["# Paper 001: locality-aware routing", "", ABOUT, ""]
    lines += surroundings(command, scale.seed, scale.missing)
    lines += [f"- took {minutes:.1f} minutes of CPU time", "", "## Goals", ""]
    lines += [*goals.lines(), "", "## Claims", "", *claims.lines()]
    for section in sections:
        lines += ["", *section.lines()]
    output.write_text("\n".join(lines) + "\n")
    if scale.peer("matplotlib"):
        for section in sections:
            for name, panels in section.plots.items():
                draw(output.parent / section.folder / f"{name}.png", panels)
    print(f"\nwritten: {output.name}")


if __name__ == "__main__":
    main()
