"""What becomes of the claims of paper 004 (Rivetti et al., proactive online shuffle grouping)?

    python -m bench.papers.rivetti [--quick] [--only NAME ...] [--write]

Replays the paper's streams and real service times in the arena, and judges every claim and goal. A
full run writes RIVETTI.md and the plots in rivetti/; --quick and --only print only, unless --write
says otherwise. Real streams are looked for in the folder PYROUTE_DATA, else in ../shared/data
beside the repository.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from bench import workloads
from bench.papers import scheduling
from bench.papers.page import Figure, claims_table, draw
from bench.peers import Scale
from bench.report import goals_table, surroundings

PAGE = Path(__file__).with_name("RIVETTI.md")
ABOUT = (
    "Written by the command below. Completion times are simulated, so they do not depend on the"
    " machine; times of decisions and rates do: compare those within a table only."
)
# Rows of the figure index by the number of the figure, then what goes beyond it.
FIGURES: dict[str, Callable[[Scale], Figure]] = {
    "fig4": scheduling.figure_4,
    "fig5": scheduling.figure_5,
    "fig6": scheduling.figure_6,
    "fig7": scheduling.figure_7,
    "fig8": scheduling.figure_8,
    "fig9": scheduling.figure_9,
    "fig10": scheduling.figure_10,
    "fig11": scheduling.figure_11,
    "fig12": scheduling.figure_12,
}
BEYOND: dict[str, Callable[[Scale], Figure]] = {
    "spans": scheduling.real_spans,
    "requests": scheduling.real_requests,
    "decision": scheduling.decision_cost,
    "rate": scheduling.event_rate,
}
SECTIONS = {**FIGURES, **BEYOND}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.papers.rivetti", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="less work, rougher figures, no file")
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, metavar="NAME", help=", ".join(SECTIONS)
    )
    parser.add_argument("--seed", type=int, default=workloads.SEED)
    parser.add_argument("--write", action="store_true", help="also where --quick or --only")
    parser.add_argument("--output", type=Path, help="file to write instead of RIVETTI.md")
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
    if output is None and (arguments.write or not (arguments.quick or arguments.only)):
        output = PAGE
    if output is None:
        return
    command = "python -m bench.papers.rivetti" + " --quick" * arguments.quick
    command += f" --only {' '.join(arguments.only)}" if arguments.only else ""
    lines = ["# Paper 004: proactive online shuffle grouping", "", ABOUT, ""]
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
