"""What does a hog do to worker processes on this machine, with control and without?

    python -m bench.control.hog [--quick] [--hog cpu|stop] [--only NAME ...] [--write]

Paired runs: every policy gets the same records at the same times (one seed). How it is built and
what is measured: bench/control/processes.py. Every run is a row. A policy that decides once a
second can know of a hog after anything up to a second, by chance: the peak is mostly the records of
that time (bench/control/PHASES.md).
"""

import argparse
import json
import math
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.control.processes import POLICIES, RATIOS, RATIOS_AT_1S, Run, Setup, run
from bench.report import Goal, Section, Table, goals_table, surroundings

HERE = Path(__file__).parent
KEPT, PAGE = HERE / "hog.json", HERE / "RESULTS.md"
PER_RECORD, PAPER, NONE = "least delay of two", "the paper's, 30 s", "none"


def figures(name: str, result: Run) -> dict[str, Any]:
    """What is kept of a run."""
    costs = [status["cost"] for status in result.statuses[-1:]]
    return {
        "policy": name,
        "setup": asdict(result.setup),
        "load": os.getloadavg()[0],
        "served": served(),
        "usual_ms": result.usual,
        "peak_ms": result.peak,
        "affected_ms": result.affected,
        "failed": result.failed,
        "failed_per_s": result.failed_rate(),
        "lost": result.lost,
        "twice": result.duplicates,
        "slow": result.slow,
        "changes": len(result.changes),
        "changes_per_minute": result.most_changes,
        "recovered_s": result.recovered(),
        "source_late_ms": 1000.0 * result.lag,
        "monitor_cost": costs[0] if costs else math.nan,
        "each_second": [round(float(value), 2) for value in result.each_second()],
        "affected_each_second": [round(float(v), 2) for v in result.each_second(affected=True)],
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def served() -> str:
    """How the scheduler of the machine serves this process and those it starts."""
    if not hasattr(os, "sched_getscheduler"):
        return "as usual"
    names = {os.SCHED_RR: "before others (chrt --rr)", os.SCHED_FIFO: "before others (chrt --fifo)"}
    return names.get(os.sched_getscheduler(0), "as usual")


def row(each: dict[str, Any]) -> list[object]:
    return [
        each["policy"],
        each["usual_ms"],
        each["peak_ms"],
        each["affected_ms"],
        each["failed"],
        each["failed_per_s"],
        each["lost"],
        each["slow"],
        each["changes"],
        each["changes_per_minute"],
        each["recovered_s"],
        each["load"],
    ]


COLUMNS = (
    "policy", "usual ms", "peak ms", "peak of the slow worker ms", "failed",
    "most failed/s of the slow worker", "lost", "slow-down", "changes", "most changes/min",
    "even again after s", "load of machine",
)  # fmt: skip


def goals(runs: list[dict[str, Any]]) -> list[Goal]:
    """The bounds that were set beforehand, judged by the worst run."""

    def of(*names: str) -> list[dict[str, Any]]:
        return [each for each in runs if each["policy"] in names]

    def peak(found: list[dict[str, Any]], least: bool = False) -> float:
        values = [each["peak_ms"] for each in found]
        return (min if least else max)(values) if values else math.nan

    def ratio(name: str, wanted: float, ours: float, theirs: float) -> Goal:
        known = math.isfinite(ours) and math.isfinite(theirs)
        text = f"{theirs:,.0f} / {ours:,.0f} ms = {theirs / ours:.1f}x" if known else "-"
        met = theirs / ours >= wanted if known else None
        return Goal(name, f">= {wanted:g}x less", text, met)

    none, paper = peak(of(NONE), True), peak(of(PAPER), True)
    ours = of(PER_RECORD, *RATIOS_AT_1S)
    out = [
        ratio("peak, per record, against no control", 50, peak(of(PER_RECORD)), none),
        *(
            ratio(f"peak, {name}, against no control", 20, peak(of(name)), none)
            for name in RATIOS_AT_1S
        ),
        ratio("peak, worst of ours, against the paper's at 30 s", 5, peak(ours), paper),
    ]
    lost = [each["lost"] for each in runs]
    out.append(Goal("records lost", "0", str(sum(lost)), sum(lost) == 0 if lost else None))
    after = [periods(each) for each in of(PER_RECORD, *RATIOS) if each["policy"] != PAPER]
    out.append(
        Goal(
            "control periods until all shares are within 5 % of even, and stay",
            "<= 30",
            f"{max(after):.0f}" if after else "-",
            max(after) <= 30 if after else None,
        )
    )
    most = [each["changes_per_minute"] for each in of(*RATIOS)]
    out.append(
        Goal(
            "changes of a ratio in any minute",
            "<= 10",
            str(max(most)) if most else "-",
            max(most) <= 10 if most else None,
        )
    )
    return out


def periods(each: dict[str, Any]) -> float:
    """Control periods until shares were even again; of a choice per record, seconds."""
    seconds: float = each["recovered_s"]
    return seconds / (POLICIES[each["policy"]][1] or 1.0)


def section(runs: list[dict[str, Any]]) -> Section:
    out = Section("Hog", "What becomes of completion times when one worker is slowed down?")
    table = out.table(*COLUMNS)
    for name in POLICIES:
        for each in runs:
            if each["policy"] == name:
                table.add(*row(each))
    out.goals += goals(runs)
    return out


def page(runs: list[dict[str, Any]], setup: Setup) -> str:
    lines = ["# Control: what was measured", ""]
    lines += surroundings("python -m bench.control.hog --write", setup.seed, [])
    lines += ["", *(__doc__ or "").strip().splitlines()[4:]]
    for hog, seconds, length in sorted({kind(each) for each in runs}):
        chosen = [each for each in runs if kind(each) == (hog, seconds, length)]
        how = ", ".join(sorted({each.get("served", "as usual") for each in chosen}))
        lines += [
            "",
            f"## Hog `{hog}`, runs of {seconds:.0f} s, the hog for {length:.0f} s of them",
            "",
            f"`--hog {hog} --seconds {seconds:.0f}`; the processes were served {how}; last column:",
            "the load of the machine.",
            "",
            *goals_table([section(chosen)]).lines(),
            "",
            *section(chosen).lines()[2:],
        ]
    return "\n".join(lines).rstrip() + "\n"


def kind(each: dict[str, Any]) -> tuple[str, float, float]:
    """Runs that can be compared: the same hog for the same time."""
    return each["setup"]["hog"], each["setup"]["seconds"], each["setup"]["length"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="40 s a run; rough figures")
    parser.add_argument("--hog", choices=("cpu", "stop"), default="cpu")
    parser.add_argument("--only", nargs="+", choices=POLICIES, metavar="NAME")
    parser.add_argument("--seconds", type=float, default=300.0, help="of a run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="keep the results, write the page")
    options = parser.parse_args()
    setup = Setup(hog=options.hog, seed=options.seed, seconds=options.seconds)
    # The hog for 40 % of the run, from a fifth of it on: what is left is for the way back.
    if options.quick:
        setup = replace(setup, seconds=40.0)
    setup = replace(setup, start=setup.seconds / 5, length=0.4 * setup.seconds)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else []
    runs = []
    for name in options.only or POLICIES:
        found = figures(name, run(setup, name))
        runs.append(found)
        table = Table(COLUMNS)
        table.add(*row(found))
        print("\n".join(table.lines()), flush=True)
        if options.write and not options.quick:
            # The latest run of a policy on a stream takes the place of the one before.
            kept = [
                each for each in kept if (each["policy"], each["setup"]) != (name, found["setup"])
            ] + [found]
            KEPT.write_text(json.dumps(kept, indent=None, default=float).replace("}, {", "},\n{"))
            PAGE.write_text(page(kept, setup))
    for goal in goals(runs):
        print(f"{goal.name}: wanted {goal.wanted}, measured {goal.measured}: {goal.verdict}")


if __name__ == "__main__":
    main()
