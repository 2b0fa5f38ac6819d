"""KeyStats against its twin, and the guarantees of key_stats.hpp against exact sums."""

import pickle
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from reference import key_stats as reference
from reference import keys

pytestmark = pytest.mark.kernel

ALIKE = "customer-0000042", "user-ofg)!'_qdXC"  # two texts of one id

windows = st.integers(1, 5)
smoothings = st.sampled_from([0.0, 0.25, 0.5, 0.9])
records = st.lists(
    st.tuples(st.integers(0, 12), st.floats(0, 1e6), st.integers(0, 2**40)), max_size=25
)
columns_given = st.sampled_from([(), ("costs",), ("state_sizes",), ("costs", "state_sizes")])
intervals = st.lists(st.lists(st.tuples(records, columns_given), max_size=3), max_size=8)


def observe(stats, batch, given_columns, name=lambda value: value):
    columns = {"costs": [c for _, c, _ in batch], "state_sizes": [s for _, _, s in batch]}
    stats.observe(
        [name(value) for value, _, _ in batch], **{key: columns[key] for key in given_columns}
    )


def assert_equal(snapshot, expected):
    assert snapshot.values == expected.values
    assert snapshot.costs.tolist() == expected.costs
    assert snapshot.state_sizes.tolist() == expected.state_sizes
    assert snapshot.interval == expected.interval
    assert len(snapshot) == len(expected.values)


@pytest.mark.parametrize(
    "name", [int, "key {}".format, lambda value: (value % 3, str(value))], ids=["int", "str", "two"]
)
@given(intervals=intervals, window=windows, smoothing=smoothings)
def test_matches_reference(name, intervals, window, smoothing):
    stats, twin = pr.KeyStats(window, smoothing), reference.KeyStats(window, smoothing)
    for batches in intervals:
        for batch, given_columns in batches:
            observe(stats, batch, given_columns if batch else (), name)
            observe(twin, batch, given_columns if batch else (), name)
            assert len(stats) == len(twin)
        assert_equal(stats.close_interval(), twin.close_interval())
        assert (len(stats), stats.interval) == (len(twin), twin.interval)


@given(intervals, windows)
def test_exact(intervals, window):
    stats = pr.KeyStats(window)
    sizes: list[Counter[int]] = []
    for number, batches in enumerate(intervals):
        costs: dict[int, float] = defaultdict(float)
        sizes.append(Counter())
        for batch, _ in batches:
            stats.observe(*([r[column] for r in batch] for column in range(3)))
            for value, cost, size in batch:
                costs[value] += cost
                sizes[-1][value] += size
        snapshot = stats.close_interval()
        recent = sizes[-window:]
        assert snapshot.interval == number
        assert set(snapshot.values) == set().union(*recent)
        for value, cost, size in zip(
            snapshot.values, snapshot.costs, snapshot.state_sizes, strict=True
        ):
            assert cost == costs[value]
            if any(recent):
                assert size == sum(counter[value] for counter in recent)


def test_exact_for_many_keys():
    values = np.random.default_rng(5).integers(0, 40_000, 200_000)
    stats = pr.KeyStats(window=2)
    for part in np.array_split(values, 13):
        stats.observe(part)
    snapshot = stats.close_interval()
    exact = Counter(values.tolist())
    assert dict(zip(snapshot.values, snapshot.costs.tolist(), strict=True)) == exact
    assert snapshot.values == list(exact)
    assert snapshot.ids.tolist() == pr.keys(np.array(snapshot.values)).ids.tolist()


def test_by_value():
    assert keys.key(ALIKE[0]) == keys.key(ALIKE[1])
    stats = pr.KeyStats()
    stats.observe([*ALIKE, ALIKE[0]], [1.0, 10.0, 100.0], [5, 6, 7])
    assert len(stats) == 2
    snapshot = stats.close_interval()
    assert snapshot.values == list(ALIKE)
    assert snapshot.costs.tolist() == [101.0, 10.0]
    assert snapshot.state_sizes.tolist() == [12, 6]
    assert snapshot.ids[0] == snapshot.ids[1] == keys.key(ALIKE[0])
    for copy in pickle.loads(pickle.dumps(stats)), pr.KeyStats.from_bytes(stats.to_bytes()):
        assert copy == stats
        copy.observe([ALIKE[1]])
        assert copy.close_interval().costs.tolist() == [0.0, 1.0]


def test_by_value_of_composites():
    """Two pairs of integers with one id: the second column is computed back from it."""
    pair = 1, 2
    other = 7, keys.unhash_int(keys.key(*pair), keys.hash_int(7))
    assert keys.key(*other) == keys.key(*pair)
    stats = pr.KeyStats()
    stats.observe([pair, other, other])
    snapshot = stats.close_interval()
    assert snapshot.values == [pair, other]
    assert snapshot.costs.tolist() == [1.0, 2.0]


def test_state_size_is_1_where_none_was_ever_given():
    stats = pr.KeyStats(window=2)
    stats.observe(["a", "a", "b"])
    assert stats.close_interval().state_sizes.tolist() == [1, 1]
    stats.observe(["b"], state_sizes=[40])
    assert stats.close_interval().state_sizes.tolist() == [0, 40]


def test_keys_are_forgotten_after_the_window():
    stats = pr.KeyStats(window=3)
    stats.observe(["a"], state_sizes=[8])
    stats.close_interval()
    stats.observe(["b"], state_sizes=[9])
    seen = [stats.close_interval().values for _ in range(4)]
    assert seen == [["a", "b"], ["a", "b"], ["b"], []]
    assert len(stats) == 0


def test_order_of_first_sight_begins_anew_after_forgetting():
    stats = pr.KeyStats(window=1)
    stats.observe([1, 2])
    stats.close_interval()
    stats.observe([2, 1])
    assert stats.close_interval().values == [2, 1]


def test_smoothing():
    stats = pr.KeyStats(window=9, smoothing=0.75)
    for cost, forecast in [(100.0, 100.0), (20.0, 80.0), (None, 60.0), (0.0, 45.0)]:
        if cost is not None:
            stats.observe(["a"], [cost])
        assert stats.close_interval().costs.tolist() == [forecast]


def test_mixed_kinds_across_batches():
    stats = pr.KeyStats()
    stats.observe(["a", None])
    before = stats.to_bytes()
    for values in [1], [b"a"], [("a", "b")]:
        with pytest.raises(TypeError, match=r"expected .* got "):
            stats.observe(values)
        assert stats.to_bytes() == before
    stats.close_interval()
    with pytest.raises(TypeError, match=r"expected .* got "):
        stats.observe([1])


@given(intervals, windows, smoothings)
def test_bytes(intervals, window, smoothing):
    """Half way through an interval, and what comes after is equal."""
    stats = pr.KeyStats(window, smoothing)
    for batches in intervals:
        for batch, given_columns in batches:
            observe(stats, batch, given_columns, "key {}".format)
        copy = pickle.loads(pickle.dumps(stats))
        assert copy == stats
        assert copy.to_bytes() == stats.to_bytes()
        assert copy.close_interval() == stats.close_interval()
        assert copy == stats
