"""Policies in simulated queues: hogs of many strengths, several loads and random seeds.

The bars are those of the project's goals: after the hog all shares are within 5 % of even in at
most 30 control periods and stay there, a ratio changes at most 10 times in any minute.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from effort import effort
from pyroute.control import policies as p

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
from bench.control.queueing import Control, Scenario, simulate, simulate_records, small  # noqa: E402

RATIOS = {name: p.make(name) for name in ("ban", "predicted", "proportional", "water-filling")}
SLOW = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0)
LOADS = (0.4, 0.55, 0.7, 0.8)
SEEDS = effort(1)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("slow", SLOW)
def test_ratios(slow, load):
    for seed in range(SEEDS):
        scenario = small(slow=slow, utilisation=load, seed=int(100 * slow) + seed)
        even = simulate(scenario, Control(p.Even()))
        for name, policy in RATIOS.items():
            outcome = simulate(scenario, Control(policy, phase=(seed + 1) / 3 % 1))
            assert outcome.changes or slow < 5.0, name  # one that never reacts is even, too
            assert outcome.recovered(0.05) <= 30 * 1.0, name
            assert outcome.most_changes <= 10, name
            assert np.isfinite(outcome.latencies).all(), name
            # Never much worse than no control, however weak the hog.
            assert outcome.peak <= 1.3 * even.peak + 25, name


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("slow", SLOW)
def test_least_delay(slow, load):
    for seed in range(SEEDS):
        scenario = small(slow=slow, utilisation=load, seed=int(100 * slow) + seed)
        even = simulate(scenario, Control(p.Even()))
        outcome = simulate_records(scenario)
        assert outcome.recovered(0.05) <= 30 * 1.0
        assert outcome.peak <= max(even.peak / 50, 1.1 * even.each_second()[:29].max() + 25)
        assert outcome.failed == 0


@pytest.mark.parametrize("seed", range(2))
def test_goals_of_the_paper_s_hog(seed):
    """Five times slower, as measured: 1/20 for ratios at 1 s, 1/50 per record."""
    scenario = small(seed=seed)
    even = simulate(scenario, Control(p.Even()))
    for name, policy in RATIOS.items():
        outcome = simulate(scenario, Control(policy, phase=0.3 * seed))
        assert outcome.peak <= even.peak / 20, name
        assert outcome.failed == 0
    assert simulate_records(scenario).peak <= even.peak / 50


def test_cadence_is_the_largest_lever():
    scenario = Scenario(rate=900.0, start=120.0, length=120.0, seconds=300.0)
    slow = simulate(scenario, Control(p.BanOnResidual(), p.Guard(period=30.0)))
    fast = simulate(scenario, Control(p.BanOnResidual()))
    assert slow.changes  # it does react
    assert fast.peak <= slow.peak / 5


def test_several_victims_keep_enough_in_service():
    for victims in (2, 4, 9):
        scenario = small(victims=victims, utilisation=0.3)
        for name, policy in RATIOS.items():
            outcome = simulate(scenario, Control(policy))
            for _, shares in outcome.ratios:
                assert sum(share > 0.01 for share in shares) >= 4, name
            if victims < 9:  # else nobody had room, and queues of minutes must drain first
                assert outcome.recovered(0.05) <= 30, name


def test_a_wrong_forecast_is_worse_than_none():
    """Why a forecast must earn its place."""
    scenario = small()
    right = simulate(scenario, Control(p.Proportional(), forecast="true"))
    none = simulate(scenario, Control(p.Proportional()))
    wrong = simulate(scenario, Control(p.Proportional(), forecast="true", error=0.6))
    assert right.peak <= none.peak < wrong.peak


def test_same_seed_same_run():
    one, two = (simulate(small(seed=5), Control(p.WaterFilling())) for _ in range(2))
    assert one.changes == two.changes
    assert (one.latencies == two.latencies).all()
