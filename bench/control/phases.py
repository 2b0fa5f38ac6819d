"""How much of a peak is chance: when, within a control period, does the hog begin?

    python -m bench.control.phases [--quick] [--write]

The queues of bench/control/queueing.py with the stream of bench/control/hog.py (9 workers, 900
records a second, 50 % busy, one worker 4.8 times slower for 120 of 300 s). Each policy meets the
hog at every phase of its period. At a cadence of 1 s the first decision comes up to 1 s late, and
the records of that time make the peak: at the worst phase all policies of a cadence are alike. All
keep to 10 changes a minute.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.control.queueing import Control, Scenario, simulate
from bench.report import Table, surroundings
from pyroute.control import policies as p

PAGE = Path(__file__).parent / "PHASES.md"
STREAM = Scenario(
    rate=900.0, utilisation=0.5, spread=0.0, slow=4.8, start=60.0, length=120.0, seconds=300.0,
    wire=0.001,
)  # fmt: skip
POLICIES: dict[str, tuple[p.Policy, float]] = {
    "ban on residual": (p.BanOnResidual(), 1.0),
    "predicted value": (p.PredictedValue(), 1.0),
    "proportional": (p.Proportional(), 1.0),
    "water-filling": (p.WaterFilling(horizon=6.0), 1.0),
    "water-filling, twice as often": (p.WaterFilling(horizon=6.0), 0.5),
    "water-filling, five times": (p.WaterFilling(horizon=6.0), 0.2),
}


def table(stream: Scenario, phases: int, seeds: range) -> Table:
    out = Table(
        (
            "policy",
            "period s",
            "peak ms, best phase",
            "median",
            "worst",
            "worst, times less",
            "most changes/min",
            "even again after periods, most",
        )
    )
    none = min(simulate(replace(stream, seed=seed), Control(p.Even())).peak for seed in seeds)
    out.add("none", "-", none, none, none, 1.0, 0, 0)
    for name, (policy, period) in POLICIES.items():
        guard = p.Guard(period=period)
        found = [
            simulate(replace(stream, seed=seed), Control(policy, guard, phase=phase))
            for seed in seeds
            for phase in (np.arange(phases) + 0.5) / phases
        ]
        peaks = [each.peak for each in found]
        out.add(
            name, period, min(peaks), float(np.median(peaks)), max(peaks), none / max(peaks),
            max(each.most_changes for each in found),
            max(each.recovered() for each in found) / period,
        )  # fmt: skip
        print(out.lines()[-1], flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four phases of one seed")
    parser.add_argument("--phases", type=int, default=20, metavar="N")
    parser.add_argument("--first", type=int, default=100, metavar="SEED")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write the page")
    options = parser.parse_args()
    seeds = range(options.first, options.first + (1 if options.quick else options.seeds))
    phases = 4 if options.quick else options.phases
    found = table(STREAM, phases, seeds)
    print("\n".join(["", *found.lines()]))
    if options.write:
        lines = ["# Control: the peak by phase", "", *(__doc__ or "").strip().splitlines()[4:], ""]
        lines += surroundings("python -m bench.control.phases --write", options.first, [])
        lines += [f"- {phases} phases of each of {len(seeds)} seeds", "", *found.lines()]
        PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
