"""Policies and their guard: pure, bounded, and never without a worker."""

import dataclasses
import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyroute.control import policies as p

NAN = math.nan


def seen(*service, **others):
    """Statistics of workers a, b, c, ... with these seconds per record."""
    return p.Statistics(
        0.0,
        {
            chr(97 + i): p.Measurement(
                service=each, arrived=100.0, completed=100.0 * (each == each), **others
            )
            for i, each in enumerate(service)
        },
    )


def even_of(statistics):
    return p.even(statistics.workers)


NAMED = [p.make(name) for name in p.ALL]


@pytest.mark.parametrize("policy", NAMED)
def test_alike_is_even(policy):
    statistics = seen(0.005, 0.0051, 0.0049, 0.006)
    proposal = policy(statistics, None, even_of(statistics), 0.0)
    assert proposal.shares == pytest.approx(even_of(statistics))
    assert not proposal.sick


def test_proportional():
    statistics = seen(0.005, 0.005, 0.005, 0.02)
    proposal = p.Proportional()(statistics, None, even_of(statistics), 0.0)
    assert proposal.shares == pytest.approx({"a": 4 / 13, "b": 4 / 13, "c": 4 / 13, "d": 1 / 13})


def test_forecast_comes_before_what_was_measured():
    statistics = seen(0.005, 0.005, 0.005)
    forecast = p.Forecast({"c": 0.02})
    for policy in (p.Proportional(), p.WaterFilling()):
        shares = policy(statistics, forecast, even_of(statistics), 0.0).shares
        assert shares["c"] == pytest.approx(1 / 9)
    assert p.PredictedValue()(statistics, forecast, even_of(statistics), 0.0).sick == {"c"}
    broken = p.Forecast({"c": NAN, "b": -1.0, "nobody": 7.0})
    shares = p.Proportional()(statistics, broken, even_of(statistics), 0.0).shares
    assert shares == pytest.approx(even_of(statistics))


@given(
    st.lists(st.tuples(st.floats(1e-4, 10), st.floats(0, 1e4)), min_size=1, max_size=12),
    st.floats(1, 1e5),
)
def test_fill_levels(workers, amount):
    """All that get something end together; the others end later than that."""
    seconds = {str(i): each[0] for i, each in enumerate(workers)}
    waiting = {str(i): each[1] for i, each in enumerate(workers)}
    gets = p.fill(seconds, waiting, amount)
    assert math.fsum(gets.values()) == pytest.approx(amount)
    ends = {name: (waiting[name] + gets[name]) * seconds[name] for name in seconds}
    level = max(ends[name] for name in gets if gets[name] > 0)
    for name in gets:
        if gets[name] > 1e-9 * amount:
            assert ends[name] == pytest.approx(level, rel=1e-6)
        else:
            assert ends[name] >= level * (1 - 1e-6)


def test_water_filling_never_floods_one():
    """All but one have a long queue: that one does not get everything."""
    workers = {
        name: p.Measurement(0.005, 100.0, 100.0, backlog=0 if name == "a" else 4000)
        for name in "abcdefgh"
    }
    statistics = p.Statistics(0.0, workers)
    shares = p.WaterFilling()(statistics, None, even_of(statistics), 0.0).shares
    assert shares["a"] < 2 / 8
    assert math.fsum(shares.values()) == pytest.approx(1.0)


def test_paper_bans_the_machine():
    workers = {
        "a": p.Measurement(0.025, 100.0, 20.0, host="h1"),
        "b": p.Measurement(0.005, 100.0, 100.0, host="h1"),
        "c": p.Measurement(0.005, 100.0, 100.0, host="h2"),
        "d": p.Measurement(0.005, 100.0, 100.0, host="h2"),
    }
    quiet = [0.0001, -0.0001, 0.0, 0.0002]
    residuals = {name: [*quiet, 0.02 if name == "a" else 0.0] for name in workers}
    statistics = p.Statistics(0.0, workers, residuals)
    proposal = p.BanOnResidual()(statistics, None, p.even(workers), 0.0)
    assert proposal.sick == {"a", "b"}
    assert proposal.shares == {"a": 0.0, "b": 0.0, "c": 0.5, "d": 0.5}
    better = {**residuals, "a": [*quiet, -0.02]}  # faster than was expected
    statistics = p.Statistics(0.0, workers, better)
    assert not p.BanOnResidual()(statistics, None, p.even(workers), 0.0).sick


def test_one_machine_for_all_is_not_bypassed():
    workers = {name: p.Measurement(0.005, 100.0, 100.0, host="h1") for name in "abcd"}
    residuals = {name: [0.0, 0.0, 0.0, 0.02 if name == "a" else 0.0] for name in workers}
    workers["a"] = p.Measurement(0.025, 100.0, 20.0, host="h1")
    for hosts, sick in (("1111", "a"), ("1112", "a"), ("1122", "ab"), ("1222", "a")):
        placed = {
            name: dataclasses.replace(each, host=f"h{host}")
            for (name, each), host in zip(workers.items(), hosts, strict=True)
        }
        statistics = p.Statistics(0.0, placed, residuals)
        assert p.BanOnResidual()(statistics, None, p.even(workers), 0.0).sick == set(sick)


def test_residual_threshold_grows_with_the_noise():
    workers = {name: p.Measurement(0.005, 100.0, 100.0) for name in "abc"}
    noisy = [0.002 * (-1) ** i for i in range(20)]
    for past, sick in (([0.0] * 20, {"a"}), (noisy, set())):
        residuals = {"a": [*past, 0.004]}
        statistics = p.Statistics(0.0, workers, residuals)
        proposal = p.BanOnResidual(least=0.1)(statistics, None, p.even(workers), 0.0)
        assert proposal.sick == sick


@pytest.mark.parametrize("policy", NAMED)
def test_nothing_known_changes_nothing(policy):
    statistics = seen(NAN, NAN, NAN)
    ratio = {"a": 0.5, "b": 0.3, "c": 0.2}
    if isinstance(policy, p.Even | p.BanOnResidual | p.PredictedValue):
        return  # they have one ratio for all who are not sick
    assert policy(statistics, None, ratio, 0.0).shares == pytest.approx(ratio)


def test_nan_keeps_its_share():
    statistics = seen(0.005, 0.005, NAN, 0.02)
    ratio = {"a": 0.3, "b": 0.3, "c": 0.2, "d": 0.2}
    for policy in (p.Proportional(), p.WaterFilling()):
        proposal = policy(statistics, None, ratio, 0.0)
        assert proposal.shares["c"] == pytest.approx(0.2)
        assert proposal.unknown == {"c"}
        assert math.fsum(proposal.shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("policy", NAMED[1:])
@pytest.mark.parametrize("workers", [2, 10])
def test_exactly_half_is_sick(policy, workers):
    """The middle between the sick and the well is neither."""
    half = workers // 2
    statistics = seen(*[0.005] * half, *[0.0074] * half)  # not much slower: nobody is
    assert policy(statistics, None, even_of(statistics), 0.0).shares == even_of(statistics)
    turns = Turns(policy=policy, workers=workers)
    well = seen(*[0.005] * workers)
    for slow in (0.05, 0.5):
        statistics = seen(*[0.005] * half, *[slow] * half)
        residuals = {
            name: [0.0, 0.0, 0.0, each.service - 0.005] for name, each in well.workers.items()
        }
        residuals |= {
            name: [0.0, 0.0, 0.0, each.service - 0.005] for name, each in statistics.workers.items()
        }
        for _ in range(2):
            turns.turn(dataclasses.replace(statistics, residuals=residuals))
        sick = [chr(97 + half + i) for i in range(half)]
        assert max(turns.ratio[name] for name in sick) < 0.2 / workers


def test_silence_is_slow():
    workers = {
        "a": p.Measurement(NAN, 100.0, 0.0, backlog=50, silent=2.0),
        "b": p.Measurement(0.005, 100.0, 100.0),
        "c": p.Measurement(0.005, 100.0, 100.0, backlog=1, silent=0.01),  # one longer record
    }
    statistics = p.Statistics(0.0, workers)
    for policy in (p.Proportional(), p.WaterFilling(), p.PredictedValue(), p.BanOnResidual()):
        assert policy(statistics, None, p.even(workers), 0.0).sick == {"a"}


def test_policies_are_pure():
    statistics = seen(0.005, 0.03, 0.005)
    ratio = even_of(statistics)
    for policy in NAMED:
        before = repr((statistics, ratio))
        one, two = (policy(statistics, None, ratio, 5.0) for _ in range(2))
        assert one == two
        assert repr((statistics, ratio)) == before


def test_make():
    assert p.make("water-filling", horizon=2.0) == p.WaterFilling(horizon=2.0)
    with pytest.raises(ValueError, match=r"^policy: expected one of .+, got nonsense"):
        p.make("nonsense")


# The guard -------------------------------------------------------------------------------------


class Turns:
    """A guard turned by hand."""

    def __init__(self, guard=None, policy=None, workers=4):
        self.guard, self.policy = guard or p.Guard(), policy or p.Proportional()
        self.memory, self.now = p.Memory(), 0.0
        self.ratio = p.even(chr(97 + i) for i in range(workers))
        self.changes = []

    def turn(self, statistics):
        proposal = self.policy(statistics, None, self.ratio, self.now)
        self.memory, decision = self.guard.step(
            self.memory, statistics, proposal, self.ratio, self.now
        )
        if decision.changed:
            self.changes.append(self.now)
            self.ratio = dict(decision.ratio)
        self.now += self.guard.period
        return decision


def test_dead_band():
    turns = Turns(p.Guard(dead_band=0.9))
    assert not turns.turn(seen(0.005, 0.005, 0.005, 0.0125)).changed
    turns = Turns()
    assert turns.turn(seen(0.005, 0.005, 0.005, 0.0125)).changed


def test_a_small_change_needs_a_second_opinion():
    turns = Turns()
    assert not turns.turn(seen(0.005, 0.005, 0.005, 0.009)).changed
    assert not turns.turn(seen(0.005, 0.005, 0.009, 0.005)).changed  # another one: noise
    assert not turns.turn(seen(0.005, 0.005, 0.005, 0.009)).changed
    assert turns.turn(seen(0.005, 0.005, 0.005, 0.009)).changed


def test_hold():
    turns = Turns()
    assert turns.turn(seen(0.005, 0.005, 0.005, 0.02)).changed
    low = turns.ratio["d"]
    for _ in range(2):
        turns.turn(seen(0.005, 0.005, 0.005, 0.005))
        assert turns.ratio["d"] == pytest.approx(low)
    turns.turn(seen(0.005, 0.005, 0.005, 0.005))
    assert turns.ratio == pytest.approx(p.even("abcd"))


def test_back_to_even_exactly():
    turns = Turns()
    turns.turn(seen(0.005, 0.005, 0.005, 0.02))
    for _ in range(5):
        turns.turn(seen(0.005, 0.0051, 0.0049, 0.0058))
    assert len({round(share, 12) for share in turns.ratio.values()}) == 1


def gone(silent):
    """Worker d does not answer."""
    workers = {name: p.Measurement(0.005, 100.0, 100.0) for name in "abc"}
    workers["d"] = p.Measurement(NAN, 0.0, 0.0, backlog=5, silent=silent)
    return p.Statistics(0.0, workers)


def test_probing_with_back_off():
    turns = Turns(p.Guard(ban=2, longest_ban=8))
    trials, bans = [], []
    for turn in range(60):
        before = turns.ratio["d"]
        turns.turn(gone(turn + 1.0))
        if turns.ratio["d"] > 0 and not before:
            trials.append(turn)
        if before and not turns.ratio["d"]:
            bans.append(turn)
    assert bans[0] == 0
    gaps = [trial - ban for ban, trial in zip(bans, trials, strict=False)]
    assert gaps[:4] == [2, 4, 8, 8]
    assert len(turns.changes) <= 10 * 60 / 60 + 1


def test_re_admission():
    turns = Turns(p.Guard(ban=2))
    turns.turn(gone(5.0))
    assert turns.ratio["d"] == 0
    well = seen(0.005, 0.005, 0.005, 0.005)
    asleep = p.Statistics(0.0, {**well.workers, "d": p.Measurement(arrived=0.0, completed=0.0)})
    for _ in range(2):
        turns.turn(asleep)
    assert turns.ratio["d"] == pytest.approx(turns.guard.probe)
    for _ in range(2):
        turns.turn(well)
    assert turns.ratio == pytest.approx(p.even("abcd"))


def on_trial(*, per_second):
    """Turns until worker d is on trial, and what is seen of it when it looks well."""
    turns = Turns(p.Guard(ban=2))
    turns.turn(gone(5.0))
    well = seen(0.005, 0.005, 0.005, 0.005).workers
    asleep = p.Statistics(0.0, {**well, "d": p.Measurement(arrived=0.0, completed=0.0)})
    for _ in range(2):
        turns.turn(asleep)
    assert turns.ratio["d"] == pytest.approx(turns.guard.probe)
    quick = p.Measurement(0.005, per_second, per_second)
    return turns, p.Statistics(0.0, {**well, "d": quick})


def test_a_trial_takes_enough_records():
    """Two quick records are luck: twenty, or ten periods, end a trial."""
    for per_second, periods in ((4.0, 5), (10.0, 2), (100.0, 2), (0.5, 10)):
        turns, well = on_trial(per_second=per_second)
        for _ in range(periods - 1):
            turns.turn(well)
            assert turns.ratio["d"] == pytest.approx(turns.guard.probe)
        turns.turn(well)
        assert turns.ratio == pytest.approx(p.even("abcd"))


def test_a_slow_record_begins_the_trial_anew():
    turns, well = on_trial(per_second=4.0)
    slow = p.Statistics(0.0, {**well.workers, "d": p.Measurement(0.5, 4.0, 2.0)})
    for _ in range(5):
        for statistics in (well, well, well, slow):
            turns.turn(statistics)
    assert turns.ratio["d"] == pytest.approx(turns.guard.probe)


def test_a_relapse_makes_the_next_trial_longer():
    """A worker that looks well on trial and is not comes back less and less often."""
    turns = Turns(p.Guard(ban=2, hold=0, changes_per_minute=None), p.PredictedValue())
    back = []
    for turn in range(200):
        slow = 0.05 if turns.ratio["d"] > 0.1 else 0.005
        before = turns.ratio["d"]
        turns.turn(seen(0.005, 0.005, 0.005, slow))
        if before <= turns.guard.probe and turns.ratio["d"] > 0.1:
            back.append(turn)
    gaps = [b - a for a, b in itertools.pairwise(back)]
    assert gaps[0] > back[0]
    assert gaps[0] < gaps[1] < gaps[2]
    assert max(gaps) <= turns.guard.longest_ban + 2 + 2**p.RELAPSES * p.LONG


def test_a_slow_one_on_trial_stays_on_trial():
    """It answers what little it gets: nothing changes until it is well."""
    turns = Turns(p.Guard(ban=2), p.PredictedValue())
    slow = seen(0.005, 0.005, 0.005, 0.05)
    for _ in range(30):
        turns.turn(slow)
    assert len(turns.changes) == 2
    assert turns.ratio["d"] == pytest.approx(turns.guard.probe)


def test_new_worker_is_tried_first():
    turns = Turns(workers=3)
    statistics = seen(0.005, 0.005, 0.005, NAN)
    turns.ratio["d"] = 0.0
    turns.turn(statistics)
    assert turns.ratio["d"] == pytest.approx(turns.guard.probe)
    for _ in range(3):
        turns.turn(seen(0.005, 0.005, 0.005, 0.005))
    assert turns.ratio == pytest.approx(p.even("abcd"))


@pytest.mark.parametrize("policy", NAMED)
def test_all_sick_at_once(policy):
    turns = Turns(policy=policy)
    turns.turn(seen(0.005, 0.005, 0.005, 0.005))
    for slow in (0.05, 0.5):
        turns.turn(seen(slow, slow, slow, slow))
        assert turns.ratio == pytest.approx(p.even("abcd"))


def test_minimum_healthy_capacity():
    class AllSick:
        def __call__(self, statistics, forecast, ratio, now):
            shares = dict.fromkeys(statistics.workers, 0.0)
            return p.Proposal(p.normalised(shares), frozenset(shares), reason="")

    for least, needed in ((0.5, 2), (0.75, 3), (0.0, 1), (1.0, 4)):
        turns = Turns(p.Guard(min_healthy=least), AllSick())
        for _ in range(20):
            decision = turns.turn(seen(0.02, 0.01, 0.03, 0.04))
            served = [share for share in turns.ratio.values() if share > turns.guard.probe]
            assert len(served) >= needed
            assert math.fsum(turns.ratio.values()) == pytest.approx(1.0)
        assert any("stay in service" in reason for reason in decision.reasons)
        assert turns.ratio["b"] > 0.1  # the least sick


@given(st.integers(0, 2**32), st.integers(2, 9), st.sampled_from([2, 5, 10]))
def test_bound_on_changes(seed, workers, most):
    """Whatever is measured, and at any cadence."""
    rng = random.Random(seed)
    guard = p.Guard(period=rng.choice([0.1, 1.0, 5.0]), changes_per_minute=most, hold=0)
    policy = rng.choice([p.Proportional(), p.WaterFilling(), p.PredictedValue()])
    turns = Turns(guard, policy, workers)
    for _ in range(150):
        values = [rng.choice([0.005, 0.02, 0.3, NAN]) for _ in range(workers)]
        turns.turn(seen(*values, backlog=rng.choice([0, 3, 500]), silent=rng.choice([0.0, 9.0])))
        assert math.fsum(turns.ratio.values()) == pytest.approx(1.0)
        assert all(share >= 0 for share in turns.ratio.values())
        assert sum(share > 0 for share in turns.ratio.values()) >= math.ceil(workers / 2)
    for when in turns.changes:
        assert sum(when <= other < when + 60 for other in turns.changes) <= most


def test_clock_that_goes_back():
    turns = Turns(p.Guard(ban=2))
    turns.turn(gone(5.0))
    turns.now = -1e6
    decision = turns.turn(gone(6.0))
    assert any("clock went back" in reason for reason in decision.reasons)
    for _ in range(8):
        turns.turn(seen(0.005, 0.005, 0.005, 0.005))
    assert turns.ratio == pytest.approx(p.even("abcd"))


def test_guard_is_pure():
    statistics = gone(5.0)
    proposal = p.Proportional()(statistics, None, p.even("abcd"), 0.0)
    memory = p.Memory()
    one = p.Guard().step(memory, statistics, proposal, p.even("abcd"), 1.0)
    assert one == p.Guard().step(memory, statistics, proposal, p.even("abcd"), 1.0)
    assert memory == p.Memory()


# Per record ------------------------------------------------------------------------------------


def test_least_delay_follows_the_circle_without_trouble():
    chooser = p.LeastDelay(3)
    for number in range(300):
        task = chooser.choose(number % 3, number * 0.01)
        assert task == number % 3
        chooser.done(task, 0.001, number * 0.01 + 0.001)


def test_least_delay_avoids_a_queue_and_probes():
    chooser = p.LeastDelay(3, probe=1.0)
    for now in range(20):  # task 0 never answers
        task = chooser.choose(0, now * 0.1)
        if task:
            chooser.done(task, 0.001, now * 0.1)
    assert chooser.backlog[0] <= 2
    for _ in range(chooser.backlog[0]):
        chooser.done(0, 5.0, 2.0)
    assert chooser.choose(0, 2.1) == 0  # nothing for a second: a look
    chooser.done(0, 5.0, 2.2)
    assert chooser.choose(0, 2.3) != 0  # known to be slow
    assert chooser.choose(0, 4.0) == 0
    assert chooser.choose(0, 9.0) != 0  # one is still with it


def test_least_delay_with_one_task_and_nonsense():
    chooser = p.LeastDelay(1)
    assert chooser.choose(0, 0.0) == 0
    chooser.done(0, NAN, 0.0)
    chooser.done(0, -1.0, 0.0)
    chooser.done(0, 0.5, 0.0)
    assert chooser.backlog == [0]
    assert chooser.service == [0.5]
    with pytest.raises(ValueError, match=r"^tasks: expected"):
        p.LeastDelay(0)
