"""KeyProfile: the bounds of its header, against `collections.Counter`."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyroute import Keys, Ring, keys
from pyroute.key_profile import KeyProfile

pytestmark = pytest.mark.kernel


def zipf(rows, universe, seed, exponent=1.0):
    random = np.random.default_rng(seed)
    shares = np.cumsum(np.arange(1, universe + 1, dtype=float) ** -exponent)
    ranks = np.searchsorted(shares, random.random(rows) * shares[-1])
    names = random.integers(1 << 50, size=universe)
    return names[np.minimum(ranks, universe - 1)]


def sums(values, weights):
    out = Counter()
    for value, weight in zip(values, weights, strict=True):
        out[value] += weight
    return out


def check_between(profile, values, costs=None):
    exact = Counter(values.tolist())
    hot = profile.hot()
    assert len(hot.values) <= profile.capacity
    assert len(set(hot.values)) == len(hot.values)
    for value, low, error in zip(hot.values, hot.records, hot.record_errors, strict=True):
        assert low <= exact[value] <= low + error
    if costs is not None:
        dear = sums(values.tolist(), costs.tolist())
        for value, low, error in zip(hot.values, hot.costs, hot.cost_errors, strict=True):
            assert low <= dear[value] * (1 + 1e-9)
            assert dear[value] <= (low + error) * (1 + 1e-9)
    return exact, hot


def circle(profile, hot):
    """Load of each identifier: its own, and that of its monitored keys."""
    loads = profile.rest()
    weights = hot.costs if len(hot.costs) else hot.records
    np.add.at(loads, (hot.ids >> np.uint64(64 - profile.bits)).astype(np.int64), weights)
    return loads


STREAMS = [
    ("short", zipf(500, 40, 1)),
    ("many keys", zipf(30_000, 30_000, 2, 0.5)),
    ("beyond filling", zipf(120_000, 15_000, 3)),
    ("drift", np.concatenate([zipf(60_000, 3000, 4), zipf(60_000, 3000, 5)])),
    ("sorted", np.sort(zipf(100_000, 9000, 6))),
    ("one key", np.full(70_000, (1 << 60) + 1)),
]


@pytest.fixture(params=STREAMS, ids=[name for name, _ in STREAMS])
def stream(request):
    return request.param[1]


@pytest.mark.parametrize("capacity", [1, 100])
@pytest.mark.parametrize("costed", [False, True])
def test_between(stream, capacity, costed):
    costs = np.random.default_rng(9).exponential(3.0, len(stream)) if costed else None
    profile = KeyProfile(capacity, 10)
    profile.observe(stream, costs=costs)
    check_between(profile, stream, costs)
    assert profile.records == len(stream)
    assert profile.total == pytest.approx(len(stream) if costs is None else costs.sum())


def test_others(stream):
    profile = KeyProfile(64, 8)
    profile.observe(stream)
    exact = Counter(stream.tolist())
    values = list(exact)
    monitored = profile.find(values)
    cells = (keys(values).ids >> np.uint64(56)).astype(np.int64)
    rest = profile.rest()
    for value, here, cell in zip(values, monitored, cells, strict=True):
        assert here or exact[value] <= rest[cell]
    assert set(profile.hot().values) == {
        v for v, here in zip(values, monitored, strict=True) if here
    }


@pytest.mark.parametrize("costed", [False, True])
def test_circle_exact(stream, costed):
    costs = np.random.default_rng(9).integers(0, 9, len(stream)).astype(float)
    profile = KeyProfile(100, 12)
    profile.observe(stream, costs=costs if costed else None)
    ids = (keys(stream).ids >> np.uint64(52)).astype(np.int64)
    true = np.bincount(ids, costs if costed else None, minlength=1 << 12)
    assert np.array_equal(circle(profile, profile.hot()), true)


def test_loads_of_a_ring():
    stream, ring = zipf(100_000, 10_000, 8), Ring(7)
    profile = KeyProfile(200, 16)
    profile.observe(stream)
    hot = profile.hot()
    loads = np.array([profile.background(ring)[task] for task in ring.tasks])
    loads += np.bincount(ring.homes(hot.values), hot.records, minlength=7)
    assert np.array_equal(loads, np.bincount(ring.homes(stream), minlength=7))
    with pytest.raises(ValueError, match="ring: expected one of 16 bits"):
        profile.background(Ring(7, bits=17))


@given(st.lists(st.integers(0, 30), max_size=300), st.booleans())
def test_exact_if_few(stream, texts):
    values = [f"käse-{x}" for x in stream] if texts else stream
    profile = KeyProfile(31)
    profile.observe(values)
    hot = profile.hot()
    assert dict(zip(hot.values, hot.records.tolist(), strict=True)) == Counter(values)
    assert not hot.record_errors.any()
    assert profile.exact
    assert profile.distinct == len(set(values))
    assert not profile.rest().any()


def test_one_key_too_many_is_not_exact():
    for at in (3, 5000, 70_000, 200_000):  # while filling, and in blocks that are not scouted
        values = np.zeros(300_000, np.int64)
        values[:4] = [1, 2, 3, 4]
        values[at] = 77
        values[at + 1 if at > 3 else 3] = 78
        profile = KeyProfile(5)
        profile.observe(values)
        assert not profile.exact or profile.distinct <= 5
        assert profile.exact == (len(set(values.tolist())) <= 5)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("costed", [False, True])
def test_any_split(seed, costed):
    random = np.random.default_rng(seed)
    stream = zipf(150_000, 9000, seed)
    costs = random.exponential(1.0, len(stream)) if costed else None
    whole, parts = KeyProfile(128, 10), KeyProfile(128, 10)
    whole.observe(stream, costs=costs)
    cuts = [0, *np.sort(random.integers(0, len(stream), 60)).tolist(), len(stream)]
    for begin, end in itertools.pairwise(cuts):
        parts.observe(stream[begin:end], costs=None if costs is None else costs[begin:end])
    one, other = whole.hot(), parts.hot()
    assert one.values == other.values
    for mine, theirs in zip(one[1:], other[1:], strict=True):
        assert np.array_equal(mine, theirs)
    assert np.array_equal(whole.rest(), parts.rest())
    assert whole.distinct == parts.distinct


@pytest.mark.parametrize("costed", [False, True])
def test_merge_between(stream, costed):
    costs = np.random.default_rng(3).exponential(2.0, len(stream)) if costed else None
    parts = np.array_split(np.arange(len(stream)), 3)
    merged = KeyProfile(64, 9)
    for rows in parts:
        one = KeyProfile(64, 9)
        one.observe(stream[rows], costs=None if costs is None else costs[rows])
        merged.merge(one)
    exact, hot = check_between(merged, stream, costs)
    ids = (keys(stream).ids >> np.uint64(55)).astype(np.int64)
    true = np.bincount(ids, costs, minlength=1 << 9)
    assert np.allclose(circle(merged, hot), true, rtol=1e-9)
    values = list(exact)
    here = merged.find(values)
    cells = (keys(values).ids >> np.uint64(55)).astype(np.int64)
    rest = merged.rest()
    if costs is None:
        assert all(m or exact[v] <= rest[c] for v, m, c in zip(values, here, cells, strict=True))


def test_merge_of_few_is_exact():
    one, other = KeyProfile(10), KeyProfile(10)
    one.observe(["a", "b", "a"])
    other.observe(["b", "c"])
    one.merge(other)
    assert one.exact
    assert dict(zip(one.hot().values, one.hot().records.tolist(), strict=True)) == {
        "a": 2,
        "b": 2,
        "c": 1,
    }
    empty = KeyProfile(10)
    empty.merge(one)
    assert empty.hot().values == one.hot().values
    empty.merge(KeyProfile(10))
    assert empty.records == 5


def test_finds_the_hottest():
    """Heavy keys are monitored, from near the start, although most of the stream is sampled."""
    stream = zipf(1_000_000, 100_000, 11)
    profile = KeyProfile(512)
    profile.observe(stream)
    exact = Counter(stream.tolist())
    hot = profile.hot()
    listed = dict(zip(hot.values, hot.record_errors.tolist(), strict=True))
    for value, count in exact.most_common(100):
        assert listed[value] <= 0.02 * count
    assert abs(profile.distinct / len(exact) - 1) < 0.08


def test_a_key_that_becomes_hot_late():
    quiet = zipf(600_000, 50_000, 12)
    loud = quiet.copy()
    loud[400_000:][::3] = -5
    profile = KeyProfile(256)
    profile.observe(loud)
    hot = profile.hot(1)
    true = int((loud == -5).sum())
    assert hot.values == [-5]
    assert hot.records[0] <= true <= hot.records[0] + hot.record_errors[0]
    assert hot.record_errors[0] < 0.2 * true


def test_counts_stand_for_records():
    stream = zipf(50_000, 5000, 13)
    values, counts = np.unique(stream, return_counts=True)
    profile = KeyProfile(100, 10)
    profile.observe(values, counts)
    assert profile.records == len(stream)
    check_between(profile, stream)


def test_restart_keeps_the_keys():
    stream = zipf(100_000, 5000, 14)
    profile = KeyProfile(100)
    profile.observe([*map(str, stream.tolist())])
    before = set(profile.hot().values)
    profile.restart()
    assert (profile.records, profile.hot().values, profile.distinct) == (0, [], 0)
    later = [*map(str, zipf(100_000, 5000, 14)[::-1].tolist())]
    profile.observe(later)
    exact = Counter(later)
    hot = profile.hot()
    for value, low, error in zip(hot.values, hot.records, hot.record_errors, strict=True):
        assert low <= exact[value] <= low + error
    heaviest = {value for value, _ in exact.most_common(20)}
    assert heaviest <= set(hot.values)
    assert len(before & set(hot.values)) > 50


def test_names_and_nulls():
    profile = KeyProfile(8)
    profile.observe([("a", 2), ("a", None), (None, 2), ("a", 2), ("ß", 2**60 + 1)])
    hot = profile.hot()
    found = dict(zip(hot.values, hot.records.tolist(), strict=True))
    assert found == {("a", 2): 2, ("a", None): 1, (None, 2): 1, ("ß", 2**60 + 1): 1}
    with pytest.raises(TypeError):
        profile.observe(["a"])


def test_state_sizes():
    profile = KeyProfile(8)
    profile.observe([1, 2, 1], costs=[1, 1, 1], state_sizes=[10, 20, 5])
    hot = profile.hot()
    assert dict(zip(hot.values, hot.state_sizes.tolist(), strict=True)) == {1: 15.0, 2: 20.0}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"costs": [1.0, -1.0]}, "costs: expected finite numbers from 0, got -1.0"),
        ({"costs": [1.0, float("nan")]}, "costs: expected finite numbers from 0, got nan"),
        ({"costs": [1.0, float("inf")]}, "costs: expected finite numbers from 0, got inf"),
        ({"costs": [1.0]}, "costs: expected 2 of them, got 1"),
        ({"state_sizes": [1.0, -2.0]}, "state_sizes: expected finite numbers"),
        ({"counts": [1, -1]}, "counts: expected 0 to"),
        ({"counts": [1]}, "counts: expected 2 of them, got 1"),
    ],
)
def test_bad_input_changes_nothing(arguments, error):
    profile = KeyProfile(8)
    with pytest.raises(ValueError, match=error):
        profile.observe([1, 2], **arguments)
    assert (profile.records, profile.hot().values) == (0, [])
    profile.observe([1, 2])
    with pytest.raises(ValueError, match="in every call or in none"):
        profile.observe([1], costs=[1.0])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((0, 16), "capacity: expected 1 to"), ((8, 0), "bits: expected 1 to"), ((8, 23), "bits:")],
)
def test_bad_parameters(arguments, error):
    with pytest.raises(ValueError, match=error):
        KeyProfile(*arguments)


def test_merge_refuses_others():
    one, other = KeyProfile(8), KeyProfile(9)
    one.observe([1])
    other.observe([1])
    with pytest.raises(ValueError, match="other: expected a profile of the same"):
        one.merge(other)
    with pytest.raises(TypeError, match="other: expected KeyProfile, got int"):
        KeyProfile(8).merge(3)


def test_releases_the_gil():
    import threading
    import time

    profile, values = KeyProfile(1000), zipf(1_000_000, 100_000, 15)
    ticks, done = [], threading.Event()

    def count():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.perf_counter()
    profile.observe(values)
    end = time.perf_counter()
    done.set()
    thread.join()
    assert any(begin < tick < end for tick in ticks)


def test_ids_alone():
    profile = KeyProfile(8)
    profile.observe(Keys.from_ids(np.array([5, 5, 7], np.uint64)))
    assert profile.hot().records.tolist() == [2, 1]
    assert profile.nbytes > 0
    assert repr(profile) == "KeyProfile(2 of 8, 3 records)"
