"""Workloads: the same for the same arguments, and what their docstrings say of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from pyroute import workloads

KEYS, TASKS = 2000, 8
HOMES = np.arange(KEYS, dtype=np.int32) % TASKS


def zipf(keys=KEYS, **options):
    options = {"homes": HOMES, "intervals": 6, **options}
    return np.array(list(workloads.fluctuating_zipf(keys, **options)))


def bursty(**options):
    return np.array(list(workloads.bursty(**options)))


def loads(trace, homes=HOMES, tasks=TASKS):
    return np.array([np.bincount(homes, counts, tasks) for counts in trace])


def changes(trace, homes=HOMES, tasks=TASKS):
    """Of the most changed load, as a share of the mean: as the paper has it, for the worst task."""
    by_interval = loads(trace, homes, tasks)
    return np.abs(np.diff(by_interval, axis=0)).max(axis=1) / by_interval[0].mean()


@pytest.mark.parametrize("make", [zipf, bursty])
def test_seeded(make):
    assert np.array_equal(make(seed=3), make(seed=3))
    assert not np.array_equal(make(seed=3), make(seed=4))
    assert make(seed=3).dtype == np.int64


def test_intervals_are_copies():
    first, second = workloads.fluctuating_zipf(
        KEYS, homes=HOMES, fluctuation=0, intervals=2, seed=1
    )
    kept = second.copy()
    first[:] = 0
    assert np.array_equal(second, kept)


@pytest.mark.parametrize("skew", [0.0, 0.5, 0.85, 1.0])
def test_zipf_shape(skew):
    records = 1_000_003
    [counts] = zipf(skew=skew, records=records, intervals=1)
    assert counts.sum() == records
    weights = np.arange(1, KEYS + 1) ** -skew
    expected = weights / weights.sum() * records
    assert np.abs(np.sort(counts)[::-1] - expected).max() < 1
    assert skew == 0 or not np.array_equal(np.sort(counts)[::-1], counts)  # dealt, not in order


def test_default_records():
    assert (zipf().sum(axis=1) == 10 * KEYS).all()


@given(
    st.integers(0, 2**64 - 1),
    st.floats(0.01, 2.0),
    st.sampled_from([0.7, 0.85, 1.0]),
    st.sampled_from([2, 8, 15]),
)
def test_fluctuation_is_reached(seed, fluctuation, skew, tasks):
    homes = np.random.default_rng(seed).integers(0, tasks, KEYS)
    trace = zipf(
        homes=homes, tasks=tasks, skew=skew, fluctuation=min(fluctuation, tasks / 4), seed=seed
    )
    assert (changes(trace, homes, tasks) >= min(fluctuation, tasks / 4)).all()
    assert (np.sort(trace, axis=1) == np.sort(trace[0])).all()  # swaps alone: nothing is lost


@pytest.mark.parametrize("fluctuation", [0.1, 0.5, 1.0, 2.0])
def test_overshoots_by_less_than_a_swap(fluctuation):
    trace = zipf(fluctuation=fluctuation, intervals=20)
    largest = trace[0].max() / loads(trace)[0].mean()
    assert (changes(trace) < fluctuation + largest).all()


def test_loads_stay_about_the_mean():
    trace = zipf(fluctuation=0.5, intervals=300)
    by_interval = loads(trace) / loads(trace)[0].mean()
    assert by_interval[100:].mean(axis=0).max() < 1.5
    assert by_interval.min() > 0


def test_fluctuation_0_changes_nothing():
    trace = zipf(fluctuation=0)
    assert (trace == trace[0]).all()


def test_all_that_is_reachable_is_reached():
    # Two tasks of one key each, 1 and 3 records of a mean of 2: the one swap there is changes 1.0.
    homes = np.array([0, 1])
    options = {"homes": homes, "skew": 1.0, "records": 4, "intervals": 3}
    trace = zipf(2, **options, fluctuation=1.0)
    assert changes(trace, homes, 2).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"^fluctuation: expected .* at most 1 here, got 1\.01$"):
        zipf(2, **options, fluctuation=1.01)


def test_the_rest_in_order_of_frequency(monkeypatch):
    monkeypatch.setattr(workloads, "_PASSES", 0)
    assert (changes(zipf(fluctuation=2.0)) >= 2.0).all()


@pytest.mark.parametrize("options", [{"skew": 0.0}, {"homes": np.zeros(KEYS, np.int32)}])
def test_unreachable_is_refused(options):
    with pytest.raises(ValueError, match=r"^fluctuation: expected .* at most 0 here, got 1$"):
        zipf(**options)
    assert len(zipf(**options, fluctuation=0)) == 6


def test_a_million_keys():
    homes = pr.Ring(15).homes(np.arange(1_000_000))
    trace = zipf(1_000_000, homes=homes, tasks=15, intervals=2)
    assert changes(trace, homes, 15)[0] >= 1


def test_task_without_keys_counts_in_the_mean():
    trace = zipf(tasks=2 * TASKS)
    assert (changes(trace, HOMES, 2 * TASKS) >= 1).all()


def test_bursts():
    steady = bursty(bursts=0, volatility=0, seed=5)
    trace = bursty(volatility=0, seed=5, intervals=400)
    assert trace.shape == (400, 1036)
    usual = np.median(trace, axis=0)
    hot = (trace[:, usual >= 100] / usual[usual >= 100]) > 4
    assert hot.any()
    assert hot.mean() < 0.05  # the rest is stable
    assert not (steady[:, usual >= 100] / usual[usual >= 100] > 4).any()
    # 5 to 40 times as often, for 1 to 6 intervals, but for one that starts where another was
    assert (trace[:, usual >= 100] / usual[usual >= 100]).max() < 45
    lengths = [run for column in hot.T for run in runs(column)]
    assert set(range(1, 7)) <= set(lengths)
    assert np.mean(np.array(lengths) <= 6) > 0.75


def test_bursty_volume_varies():
    assert bursty(bursts=0, volatility=0).sum(axis=1).std() < 1000
    totals = bursty(bursts=0).sum(axis=1)
    assert totals.max() > 2 * totals.min()


def test_bursty_is_heavy_tailed():
    counts = np.sort(bursty(intervals=1, bursts=0)[0])[::-1]
    assert 0.03 < counts[0] / counts.sum() < 0.06  # 4 % of 1,036 keys
    assert counts[:100].sum() > 0.4 * counts.sum()


def runs(flags):
    """Lengths of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]])))
    return (edges[1::2] - edges[::2]).tolist()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"keys": 0, "homes": []}, ValueError, "keys: expected at least 1, got 0"),
        ({"keys": 2.0}, TypeError, "keys: expected an int, got float"),
        ({"homes": [0, 1]}, ValueError, "homes: expected a task for each of 2000 keys, got 2"),
        ({"homes": HOMES * 0.5}, TypeError, "homes: expected integers, got float64"),
        ({"homes": HOMES - 1}, ValueError, "homes: expected task ids from 0 to .*, got -1"),
        ({"tasks": 7}, ValueError, "tasks: expected at least 8, got 7"),
        ({"skew": -0.1}, ValueError, "skew: expected a finite number from 0 up, got -0.1"),
        ({"skew": np.nan}, ValueError, "skew: expected a finite number from 0 up, got nan"),
        ({"skew": "1"}, TypeError, "skew: expected a number, got str"),
        ({"fluctuation": np.inf}, ValueError, "fluctuation: expected a finite number .*, got inf"),
        ({"records": 0}, ValueError, "records: expected at least 1, got 0"),
        ({"intervals": -1}, ValueError, "intervals: expected 0 to .*, got -1"),
        ({"seed": -1}, ValueError, "seed: expected 0 to .*, got -1"),
        ({"seed": None}, TypeError, "seed: expected an int, got NoneType"),
    ],
)
def test_bad_arguments(options, error, message):
    # At the call, before anything is asked of the iterator.
    with pytest.raises(error, match=f"^{message}$"):
        workloads.fluctuating_zipf(**{"keys": KEYS, "homes": HOMES, **options})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"keys": 0}, ValueError, "keys: expected at least 1, got 0"),
        ({"keys": True}, TypeError, "keys: expected an int, got bool"),
        ({"intervals": 1.5}, TypeError, "intervals: expected an int, got float"),
        ({"records": 0}, ValueError, "records: expected at least 1, got 0"),
        ({"skew": -1}, ValueError, "skew: expected a finite number from 0 up, got -1"),
        ({"bursts": -1}, ValueError, "bursts: expected a finite number from 0 up, got -1"),
        ({"volatility": np.nan}, ValueError, "volatility: expected a finite number .*, got nan"),
        ({"seed": "1"}, TypeError, "seed: expected an int, got str"),
    ],
)
def test_bursty_bad_arguments(options, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        workloads.bursty(**options)


def test_timed_items():
    values, costs = pr.workloads.timed_items(20_000, seed=3)
    assert (values.dtype, costs.dtype) == (np.int64, np.float64)
    assert set(costs.tolist()) <= set(map(float, range(1, 65)))
    by_item = {}
    for value, cost in zip(values.tolist(), costs.tolist(), strict=True):
        assert by_item.setdefault(value, cost) == cost
    counts = np.bincount(values, minlength=4096)
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.15)
    again, _ = pr.workloads.timed_items(20_000, seed=3)
    other, _ = pr.workloads.timed_items(20_000, seed=4)
    assert (values == again).all()
    assert (values != other).any()


def test_timed_items_of_other_shapes():
    values, costs = pr.workloads.timed_items(
        50_000, items=64, skew=0, times=2, least=1, most=8, seed=1
    )
    assert sorted(set(costs.tolist())) == [1.0, 8.0]
    assert len(set(values[costs == 1].tolist())) == 32
    _, costs = pr.workloads.timed_items(5000, times=4, least=1, most=8, steps="geometric")
    assert sorted(set(costs.round(9).tolist())) == [1.0, 2.0, 4.0, 8.0]
    for association, least in ("geometric", 0.4), ("binomial", 0.0):
        _, costs = pr.workloads.timed_items(50_000, skew=0, times=8, association=association)
        assert abs((costs == 1).mean() - least) < 0.15


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"steps": "odd"}, "steps: expected linear or geometric"),
        ({"association": "odd"}, "association: expected"),
        ({"least": 9.0, "most": 1.0}, "least: expected at most 1, got 9"),
        ({"least": 0.0, "steps": "geometric"}, "least: expected above 0"),
        ({"items": 0}, "items: expected"),
    ],
)
def test_wrong_timed_items(options, error):
    with pytest.raises(ValueError, match=error):
        pr.workloads.timed_items(10, **options)
