"""How does pyroute compare with its peers and with what the machine allows?

    python -m bench.compare [--quick] [--only NAME ...]

One run, contenders in turn, CPU time. Prints tables and, for every goal, whether it is met. A full
run writes them to bench/RESULTS.md; --quick and --only print only.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from bench import workloads
from bench.peers import Scale
from bench.report import Section, goals_table, surroundings
from bench.sections import (
    cost_sketch,
    growth,
    heavy_hitters,
    memory,
    one_record,
    planner,
    ring,
    router,
)

RESULTS = Path(__file__).with_name("RESULTS.md")
TRIED = Path(__file__).with_name("TRIED.md")
ABOUT = (
    "Written by the command below. Only ratios within one run mean something: machines are shared,"
    " and absolute figures are context."
)
READING = (
    "A figure is the least CPU time over the repetitions, in brackets how much slower the slowest"
    " one was. A ratio is that of the least figures, in brackets the median of the ratios within a"
    " repetition. Goals are judged by the former, in their worst case."
)
SECTIONS: dict[str, Callable[[Scale], Section]] = {
    "heavy_hitters": heavy_hitters.run,
    "heavy_hitters_cpp": heavy_hitters.run_cpp,
    "cost_sketch": cost_sketch.run,
    "ring": ring.run,
    "router": router.run,
    "strings": router.run_strings,
    "one_record": one_record.run,
    "memory": memory.run,
    "planner": planner.run,
    "growth": growth.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description=__doc__.split("\n")[0]
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
    started = time.monotonic()
    for name in arguments.only or SECTIONS:
        sections.append(SECTIONS[name](scale))
        print("\n".join([*sections[-1].lines(), ""]), flush=True)
    goals = goals_table(sections)
    print("\n".join(["## Goals", "", *goals.lines()]), flush=True)
    if scale.missing:
        print(f"\nnot installed, so not compared: {', '.join(scale.missing)}")

    output = arguments.output
    if output is None and not (arguments.quick or arguments.only):
        output = RESULTS
    if output is not None:
        command = "python -m bench.compare" + " --quick" * arguments.quick
        command += f" --only {' '.join(arguments.only)}" if arguments.only else ""
        minutes = (time.monotonic() - started) / 60
        lines = ["# Results", "", ABOUT, ""]
        lines += surroundings(command, scale.seed, scale.missing)
        lines += [f"- took {minutes:.0f} minutes", "", READING, "", "## Goals", "", *goals.lines()]
        for section in sections:
            lines += ["", *section.lines()]
        if not arguments.only:
            lines += ["", *TRIED.read_text().splitlines()]
        output.write_text("\n".join(lines) + "\n")
        print(f"\nwritten: {output.name}")


if __name__ == "__main__":
    main()
