"""Which policy, at which cadence, with which forecast? Simulated queues under the paper's CPU hog.

    python -m bench.control.simulated [--quick] [--write]

9 workers, 10,000 records a second, one worker five times slower for 300 s, 30 s time-out. Absolute
figures depend on the load (55 % here) and on what becomes of failed records (they are not sent
again here): compare rows. "affected" is over the records of the slow worker. At a cadence of 1 s
the peak depends on when within a period the hog begins: each seed has its own phase (the next
decision is 0.31, 0.62, 0.93 s after the start of the hog for the first three).
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.control.queueing import Control, Outcome, Scenario, simulate, simulate_records, small
from bench.papers.page import mean_range
from bench.report import Table, surroundings
from pyroute.control import policies as p

PAGE = Path(__file__).parent / "SIMULATED.md"
FREE = p.Guard(period=0.1, changes_per_minute=None, dead_band=0.0, hold=0.0)
AT_ONCE = replace(FREE, dead_band=0.05)
SHORT = p.WaterFilling(horizon=0.3, small=0.01, differs=0.05, alike=0.05)


def ratios(
    policy: p.Policy, guard: p.Guard | None = None, **more: object
) -> Callable[..., Outcome]:
    control = Control(policy, guard or p.Guard(), **more)  # type: ignore[arg-type]

    def play(scenario: Scenario) -> Outcome:
        return simulate(scenario, replace(control, phase=0.31 * (scenario.seed + 1) % 1))

    return play


ROWS: dict[str, Callable[[Scenario], Outcome]] = {
    "none": ratios(p.Even()),
    "the paper: 30 s reports, ban the machine": ratios(p.BanOnResidual(), p.Guard(period=30.0)),
    "the same decision at 1 s": ratios(p.BanOnResidual()),
    "predicted value, 1 s": ratios(p.PredictedValue()),
    "proportional to measured speed, 1 s": ratios(p.Proportional()),
    "water-filling on backlog and speed, 1 s": ratios(p.WaterFilling()),
    "water-filling, 0.1 s, horizon 0.3 s, unguarded": ratios(SHORT, FREE),
    "perfect forecast, 1 s": ratios(p.Proportional(), forecast="true"),
    "perfect forecast, 0.1 s": ratios(p.Proportional(), AT_ONCE, forecast="true"),
    "forecast with 10 % error, 1 s": ratios(p.Proportional(), forecast="true", error=0.1),
    "forecast with 30 % error, 1 s": ratios(p.Proportional(), forecast="true", error=0.3),
    "forecast with 60 % error, 1 s": ratios(p.Proportional(), forecast="true", error=0.6),
    "shorter of two queues (exact lengths)": lambda s: simulate_records(s, exact=True),
    "least estimated delay of two": simulate_records,
    "the same, acknowledgements 50 ms old, 8 sources": lambda s: simulate_records(
        s, age=0.05, sources=8
    ),
}


def table(scenario: Scenario, seeds: int) -> Table:
    out = Table(("policy", "peak ms", "affected ms", "failed", "changes", "most in a minute",
                 "even again after s"))  # fmt: skip
    for name, play in ROWS.items():
        found = [play(replace(scenario, seed=seed)) for seed in range(seeds)]
        last = [each.recovered() for each in found]
        out.add(
            name,
            mean_range([each.peak for each in found], ".1f"),
            mean_range([each.affected for each in found], ".0f"),
            mean_range([each.failed for each in found], ".0f"),
            mean_range([len(each.changes) for each in found], ".0f"),
            mean_range([each.most_changes for each in found], ".0f"),
            mean_range(last, ".0f"),
        )
        print(out.lines()[-1], flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rate, a shorter hog")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write the page")
    options = parser.parse_args()
    scenario = small() if options.quick else Scenario()
    found = table(scenario, options.seeds)
    print("\n".join(["", *found.lines()]))
    if options.write:
        lines = ["# Control, simulated", "", *(__doc__ or "").strip().splitlines()[4:], ""]
        lines += surroundings("python -m bench.control.simulated --write", 0, [])
        lines += [f"- mean (least..greatest) over {options.seeds} seeds", "", *found.lines()]
        PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
