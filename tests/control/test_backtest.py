"""The back-test: a forecast is in force only while it beats persistence."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyroute.control.backtest import Backtest, error_ratio, judge, replay, standard_errors

numbers = st.floats(-1e3, 1e3)
tables = st.integers(1, 30).flatmap(
    lambda steps: st.lists(st.tuples(numbers, numbers, numbers), min_size=steps, max_size=steps)
)


@given(tables)
def test_ratio_is_that_of_the_errors(rows):
    forecast, actual, last = (list(column) for column in zip(*rows, strict=True))
    ratio, steps = error_ratio(forecast, actual, last)
    theirs = math.sqrt(sum((f - a) ** 2 for f, a in zip(forecast, actual, strict=True)))
    naive = math.sqrt(sum((p - a) ** 2 for p, a in zip(last, actual, strict=True)))
    assert steps == len(rows)
    if naive > 1e-100:
        assert ratio == pytest.approx(theirs / naive, rel=1e-9, abs=1e-12)


@given(tables)
def test_sure_is_the_mean_gain_by_its_standard_error(rows):
    gains = [(last - actual) ** 2 - (forecast - actual) ** 2 for forecast, actual, last in rows]
    found = standard_errors(*(list(column) for column in zip(*rows, strict=True)))
    if len(rows) < 2:
        assert math.isnan(found)
        return
    mean = statistics.fmean(gains)
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    if error > 1e-6 * abs(mean) and max(map(abs, gains)) > 1e-100:
        assert found == pytest.approx(mean / error, rel=1e-6, abs=1e-9)


def test_one_lucky_step_is_not_enough():
    """A gain of one step out of many is luck; the same gain in every step is not."""
    actual, last = np.ones(60), np.zeros(60)
    actual[30] = 100.0
    lucky = last.copy()
    lucky[30] = 99.0
    assert error_ratio(lucky, actual, last)[0] < 0.1
    verdict = judge(lucky, actual, last)
    assert not verdict
    assert "sure by 1.00 standard errors, expected 1.5" in verdict.reason
    assert judge(lucky, actual, last, was_in_force=True)
    assert judge(lucky, actual, last, sure=0.5)
    assert judge(np.full(60, 0.9), np.ones(60), last)


def test_fails_all_at_once():
    """One step far off, after a hundred good ones, is the last that is used for a while."""
    chance = np.random.default_rng(5)
    actual = np.cumsum(chance.normal(size=300))
    last, following = actual[:-1], actual[1:]
    forecast = following + chance.normal(scale=0.5, size=299)
    forecast[150] += 50.0
    gate = Backtest(window=120)
    sources = [gate.step(*pair).source for pair in zip(last, forecast, strict=True)]
    assert set(sources[40:151]) == {"forecast"}
    assert set(sources[151:260]) == {"persistence"}


def test_workers_count_alike():
    actual = np.array([[1.0, 1000.0], [2.0, 2000.0]])
    last = np.zeros((2, 2))
    half = np.stack([actual[:, 0], last[:, 1]], axis=1)  # right about the small one alone
    other = np.stack([last[:, 0], actual[:, 1]], axis=1)
    assert error_ratio(half, actual, last)[0] == pytest.approx(math.sqrt(0.5))
    assert error_ratio(other, actual, last)[0] == pytest.approx(math.sqrt(0.5))


def test_what_is_not_finite_does_not_count():
    nan, inf = math.nan, math.inf
    ratio, steps = error_ratio([1, nan, 5, 3], [1, 1, nan, 3], [0, 0, 0, inf])
    assert (ratio, steps) == (0.0, 1)
    assert math.isnan(error_ratio([nan], [1], [1])[0])
    assert error_ratio([], [], [])[1] == 0
    assert error_ratio([1, 1], [1, 1], [1, 1]) == (1.0, 2)
    assert error_ratio([2, 1], [1, 1], [1, 1]) == (math.inf, 2)
    with pytest.raises(ValueError, match="expected one shape"):
        error_ratio([1], [1, 2], [1])


def test_hysteresis():
    actual, last = np.full(40, 1.0), np.zeros(40)
    between = np.full(40, 1 - 0.99)
    assert not judge(between, actual, last)
    assert judge(between, actual, last, was_in_force=True)
    assert not judge(between * 0 - 0.01, actual, last, was_in_force=True)
    assert judge(between * 0 + 0.9, actual, last)
    assert not judge(actual[:29], actual[:29], last[:29])
    assert "29 of 30 steps" in judge(actual[:29], actual[:29], last[:29]).reason


def test_comes_and_goes():
    chance = np.random.default_rng(1)
    actual = np.cumsum(chance.normal(size=(600, 3)), axis=0)
    last, following = actual[:-1], actual[1:]
    good = following + chance.normal(scale=0.3, size=following.shape)
    bad = following + chance.normal(scale=5, size=following.shape)
    forecast = np.concatenate([good[:300], bad[300:]])
    gate = Backtest(window=60, least=20)
    sources = [gate.step(*pair).source for pair in zip(last, forecast, strict=True)]
    assert sources[:20] == ["persistence"] * 20
    assert set(sources[30:300]) == {"forecast"}
    assert set(sources[320:]) == {"persistence"}
    used, share = replay(forecast, following, last, window=60, least=20)
    assert share == sources.count("forecast") / len(sources)
    error = np.sqrt(((used - following) ** 2).mean())
    assert error < np.sqrt(((last - following) ** 2).mean())


@pytest.mark.parametrize("seed", range(5))
def test_useless_forecast_costs_little(seed):
    """A forecast that is sometimes right by luck: persistence's error, up to 2 %."""
    chance = np.random.default_rng(seed)
    actual = np.cumsum(chance.standard_t(3, size=(2000, 4)), axis=0)
    last, following = actual[:-1], actual[1:]
    forecast = last + chance.normal(scale=1.0, size=last.shape)
    used, _ = replay(forecast, following, last)
    naive = np.sqrt(((last - following) ** 2).mean())
    assert np.sqrt(((used - following) ** 2).mean()) <= 1.02 * naive


def test_missing_reports_and_models():
    gate = Backtest(window=5, least=2)
    assert gate.step([1.0, math.nan]).source == "persistence"
    outlook = gate.step([math.nan, 2.0], [3.0, 4.0])
    assert outlook.values.tolist() == [1.0, 2.0]
    assert gate.step([3.0, 4.0], [5.0, 6.0]).source == "persistence"
    outlook = gate.step([5.0, 6.0], [7.0, math.nan])
    assert outlook.source == "forecast"
    assert outlook.values.tolist() == [7.0, 6.0]
    assert gate.step([7.0, 8.0]).reason == "persistence: no forecast"
    assert gate.step([7.0, 8.0, 9.0], [1, 2, 3]).verdict.steps == 0  # another number of workers
    with pytest.raises(ValueError, match="expected 2 workers"):
        gate.step([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="expected one number per worker"):
        gate.step([[1.0]])


def test_swapped_model_starts_with_its_own_past():
    gate = Backtest(window=50, least=10)
    for value in range(30):
        gate.step([float(value)], [float(value) - 5])
    assert not gate.verdict
    past = np.arange(1.0, 31)
    assert gate.swap(past, past, past - 1)
    assert gate.step([30.0], [31.0]).source == "forecast"


def test_deterministic_and_inputs_kept():
    chance = np.random.default_rng(3)
    arrays = [chance.normal(size=(50, 2)) for _ in range(3)]
    copies = [array.copy() for array in arrays]
    first, second = replay(*arrays), replay(*arrays)
    assert np.array_equal(first[0], second[0])
    assert all(np.array_equal(a, b) for a, b in zip(arrays, copies, strict=True))


@pytest.mark.parametrize(
    "options", [{"least": 0}, {"least": 121}, {"enter": 1.1}, {"sure": -1}, {"enter": 0}]
)
def test_bad_options(options):
    with pytest.raises(ValueError, match="expected"):
        Backtest(**options)
