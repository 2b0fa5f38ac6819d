"""What becomes of the claims of paper 002 (Fang et al., workload skewness and variance)?

    python -m bench.papers.fang [--quick] [--only NAME ...]

Runs the paper's figures on its generator and its arms on real streams, and judges every claim and
goal. A full run writes FANG.md and the plots in fang/; --quick and --only print only. Real streams
are looked for in the folder PYROUTE_DATA, else in ../shared/data beside the repository.
"""

import time
from collections.abc import Callable
from pathlib import Path

from bench.papers import figures, streams
from bench.papers.page import Figure, claims_table, draw
from bench.papers.paper import parser_of
from bench.peers import Scale
from bench.report import goals_table, surroundings

PAGE = Path(__file__).with_name("FANG.md")
ABOUT = (
    "Written by the command below. Times are CPU times of one run on a shared machine: compare them"
    " within a table only. A cell is the mean over the intervals, in brackets the least and the"
    " greatest; times are medians."
)
SETTINGS = (
    "The paper's defaults, as far as its text has kept them: z = 0.85, f = 1.0, theta_max = 0.08,"
    " 15 tasks, a table of 3,000, beta = 1.5, w = 1 and 5, 50 intervals. Its default number of keys"
    " is lost; 100,000 is used here. f is reached by the task whose load changes most"
    " (`pyroute.workloads.fluctuating_zipf` says how). 'ms of the call' is `rebalance` from"
    " snapshot to plan, 'ms of planning' the planner alone, as the plan says. 'Next' is the"
    " interval after the one that was planned from: with f = 1.0 the generator moves a whole mean"
    " load onto one task, or off it, each time, which no plan can foresee. Skewness is max/mean of"
    " the loads; migration is the share of all state. Where a claim of the paper has no number, the"
    " bound in brackets is ours; a claim holds where its worst point does."
)
# Rows of the figure index by the number of the figure, then what goes beyond it.
FIGURES: dict[str, Callable[[Scale], Figure]] = {
    "fig7": figures.figure_7,
    "fig8": figures.figure_8,
    "fig9": figures.figure_9,
    "fig10": figures.figure_10,
    "fig11": figures.figure_11,
    "fig12": figures.figure_12,
    "fig15": streams.figure_15,
    "fig17": figures.figure_17,
    "fig18": figures.figure_18,
    "fig19": figures.figure_19,
    "fig20": figures.figure_20,
    "fig21": figures.figure_21,
}
STREAMS: dict[str, Callable[[Scale], Figure]] = {
    "words": streams.stream_words,
    "ticks": streams.stream_ticks,
    "contracts": streams.stream_contracts,
    "trades": streams.stream_trades,
    "bursts": streams.stream_bursts,
}
SECTIONS = {**FIGURES, **STREAMS}
TRIED = Path(__file__).with_name("TRIED.md")


def main() -> None:
    parser = parser_of("fang", __doc__, SECTIONS)
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
    if scale.missing:
        print(f"\nnot installed, so not compared: {', '.join(scale.missing)}")

    output = arguments.output
    if output is None and not (arguments.quick or arguments.only):
        output = PAGE
    if output is None:
        return
    command = "python -m bench.papers.fang" + " --quick" * arguments.quick
    command += f" --only {' '.join(arguments.only)}" if arguments.only else ""
    lines = ["# Paper 002: workload skewness and variance", "", ABOUT, ""]
    lines += surroundings(command, scale.seed, scale.missing)
    lines += [f"- took {minutes:.1f} minutes of CPU time", "", SETTINGS, "", "## Goals", ""]
    lines += [*goals.lines(), "", "## Claims", "", *claims.lines()]
    for section in sections:
        lines += ["", *section.lines()]
    if not arguments.only:
        lines += ["", *TRIED.read_text().splitlines()]
    output.write_text("\n".join(lines) + "\n")
    if scale.peer("matplotlib"):
        for section in sections:
            for name, panels in section.plots.items():
                draw(output.parent / "fang" / f"{name}.png", panels)
    print(f"\nwritten: {output.name}")


if __name__ == "__main__":
    main()
