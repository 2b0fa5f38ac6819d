"""CostSketch against its twin, and every guarantee of cost_sketch.hpp against exact sums."""

import math
import pickle
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from effort import effort
from reference import cost_sketch as reference
from reference import keys

pytestmark = pytest.mark.kernel

values = st.lists(st.integers(-50, 200), max_size=60)
times = st.floats(0, 1e9)
epsilons = st.sampled_from([3.0, 1.0, 0.3, 0.05, 0.01, 0.0006])
deltas = st.sampled_from([0.9, 0.5, 0.3, 0.1, 0.02, 1e-3, 1e-6])
seeds = st.integers(0, 2**64 - 1)
records = st.lists(st.tuples(st.integers(-50, 200), times), max_size=60)
UNIVERSE = list(range(-50, 220, 3))


def zipf_counts(universe, size, seed):
    share = 1 / np.arange(1, universe + 1)
    drawn = np.random.default_rng(seed).multinomial(size, share / share.sum())
    return {value: int(n) for value, n in enumerate(drawn) if n}


def observed(sketch, counts, time=1.0):
    flat = np.repeat(np.array(list(counts), np.int64), list(counts.values()))
    sketch.observe(flat, np.full(len(flat), time))
    return sketch


@given(st.lists(records, max_size=3), epsilons, deltas, seeds)
def test_matches_reference(batches, epsilon, delta, seed):
    sketch = pr.CostSketch(epsilon, delta, seed)
    twin = reference.CostSketch(epsilon, delta, seed)
    assert (sketch.rows, sketch.columns) == (twin.rows, twin.columns)
    for batch in batches:
        sketch.observe([v for v, _ in batch], [t for _, t in batch])
        twin.observe(keys.keys([v for v, _ in batch]), [t for _, t in batch])
    ids = keys.keys(UNIVERSE)
    assert sketch.frequency(UNIVERSE).tolist() == [twin.frequency(id_) for id_ in ids]
    assert sketch.time(UNIVERSE).tolist() == [twin.time(id_) for id_ in ids]
    if twin.total[0]:
        assert sketch.mean_time(UNIVERSE).tolist() == [twin.mean_time(id_) for id_ in ids]
    assert sketch.total_frequency == twin.total[0]
    assert math.isclose(sketch.total_time, twin.total[1], rel_tol=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "delta", "columns", "rows"),
    [(0.05, 0.1, 55, 4), (1.0, 0.5, 3, 1), (0.001, 0.25, 2719, 2), (3.0, 0.9, 1, 1)],
)
def test_size(epsilon, delta, columns, rows):
    sketch = pr.CostSketch(epsilon, delta, seed=7)
    assert (sketch.columns, sketch.rows) == (columns, rows)
    assert (sketch.epsilon, sketch.delta, sketch.seed) == (epsilon, delta, 7)


@given(records, epsilons, deltas, seeds)
def test_never_under(batch, epsilon, delta, seed):
    sketch = pr.CostSketch(epsilon, delta, seed)
    sketch.observe([v for v, _ in batch], [t for _, t in batch])
    assert_never_under(sketch, batch)


def assert_never_under(sketch, batch, factor=1.0):
    came, took = Counter(v for v, _ in batch), Counter()
    for value, time in batch:
        took[value] += time
    universe = [*came, 1000, 1001]
    frequencies, sums = sketch.frequency(universe), sketch.time(universe)
    for value, frequency, total in zip(universe, frequencies, sums, strict=True):
        assert came[value] * factor <= frequency
        assert took[value] * factor <= total * (1 + 1e-12)


ADVERSARIAL = {
    "sequence": [*range(1500)],
    "multiples of the columns": [55 * n for n in range(1500)],
    "powers of two": [n << 48 for n in range(1500)],
    "one low half": [n << 32 | 12345 for n in range(1500)],
}


def skewed(order):
    """Counts in which the first keys of the order weigh most."""
    return {key: 1 + 1500 // (n + 1) for n, key in enumerate(order)}


@pytest.mark.parametrize(
    "counts",
    [zipf_counts(3000, 8000, seed=1), *map(skewed, ADVERSARIAL.values())],
    ids=["zipf", *ADVERSARIAL],
)
def test_over_estimate(counts):
    """For each key the share of seeds that are off by more than epsilon is at most delta."""
    seeds_tried, epsilon, delta = effort(150), 0.05, 0.1
    universe, total = np.array(list(counts)), sum(counts.values())
    true = np.array(list(counts.values()))
    over_frequency, over_time = np.zeros(len(true)), np.zeros(len(true))
    for seed in range(seeds_tried):
        sketch = observed(pr.CostSketch(epsilon, delta, seed), counts, time=0.25)
        over_frequency += sketch.frequency(universe) > true + epsilon * total
        over_time += sketch.time(universe) > (true + epsilon * total) * 0.25 * (1 + 1e-12)
    noise = 5 * math.sqrt(delta * (1 - delta) / seeds_tried)
    for over in over_frequency, over_time:
        assert over.mean() / seeds_tried <= delta
        assert over.max() / seeds_tried <= delta + noise


@pytest.mark.parametrize(
    "counts",
    [
        zipf_counts(1500, 20_000, seed=2),
        *map(skewed, ADVERSARIAL.values()),
        *(dict.fromkeys(ids, 3) for ids in ADVERSARIAL.values()),
    ],
    ids=["zipf", *ADVERSARIAL, *(f"{name}, all alike" for name in ADVERSARIAL)],
)
def test_like_universal(counts):
    """Bare ids, which no hash has mixed before."""
    tries = effort(12)
    ids = pr.Keys.from_ids(np.array(list(counts), np.uint64))
    flat = pr.Keys.from_ids(np.repeat(ids.ids, list(counts.values())))
    true = np.array(list(counts.values()))
    ours, universal = [], []
    for seed in range(tries):
        sketch = pr.CostSketch(0.05, 0.1, seed)
        sketch.observe(flat, np.ones(len(flat)))
        ours.append((sketch.frequency(ids) - true).mean())
        rows = reference.UniversalRows(
            sketch.rows, sketch.columns, random.Random(f"universal {seed}").randrange
        )
        estimates = rows.frequencies(counts)
        universal.append(np.mean([estimates[key] - counts[key] for key in counts]))
    assert np.mean(ours) <= 1.1 * np.mean(universal)


@given(records, records, epsilons, seeds)
def test_merge(left, right, epsilon, seed):
    sketch, other = (pr.CostSketch(epsilon, 0.1, seed) for _ in range(2))
    sketch.observe([v for v, _ in left], [t for _, t in left])
    other.observe([v for v, _ in right], [t for _, t in right])
    before = other.to_bytes()
    sketch.merge(other)
    both = pr.CostSketch(epsilon, 0.1, seed)
    both.observe([v for v, _ in left + right], [t for _, t in left + right])
    assert other.to_bytes() == before
    assert sketch.frequency(UNIVERSE).tolist() == both.frequency(UNIVERSE).tolist()
    np.testing.assert_allclose(sketch.time(UNIVERSE), both.time(UNIVERSE), rtol=1e-12)
    assert sketch.total_frequency == both.total_frequency
    assert_never_under(sketch, left + right)


@given(records, st.floats(0, 1), seeds)
def test_decay(batch, factor, seed):
    sketch = pr.CostSketch(seed=seed)
    sketch.observe([v for v, _ in batch], [t for _, t in batch])
    total, took = sketch.total_frequency, sketch.total_time
    sketch.decay(factor)
    assert_never_under(sketch, batch, factor * (1 - 1e-12))
    assert math.isclose(sketch.total_frequency, total * factor, rel_tol=1e-12, abs_tol=1e-300)
    assert math.isclose(sketch.total_time, took * factor, rel_tol=1e-12, abs_tol=1e-300)


def test_mean_time():
    sketch = pr.CostSketch(epsilon=0.01)
    sketch.observe(["a", "a", "b"], [1.0, 2.0, 9.0])
    assert sketch.mean_time(["a", "b"]).tolist() == [1.5, 9.0]
    assert sketch.mean_time(["never seen"]).tolist() == [4.0]
    assert np.isfinite(pr.CostSketch().mean_time(["nothing yet"])).all()


def test_types_of_answers():
    sketch = pr.CostSketch()
    assert sketch.frequency([1]).dtype == np.int64
    assert sketch.time([1]).dtype == sketch.mean_time([1]).dtype == np.float64


def test_times_of_any_number_type():
    one = pr.CostSketch()
    one.observe([1, 2], np.array([1, 2], np.int32))
    two = pr.CostSketch()
    two.observe([1, 2], [1.0, 2.0])
    assert one == two


@given(records)
def test_reset(batch):
    sketch = pr.CostSketch(seed=3)
    sketch.observe([v for v, _ in batch], [t for _, t in batch])
    sketch.reset()
    assert sketch == pr.CostSketch(seed=3)
    assert sketch != pr.CostSketch(seed=4)


@given(records, epsilons, deltas, seeds)
def test_bytes(batch, epsilon, delta, seed):
    sketch = pr.CostSketch(epsilon, delta, seed)
    sketch.observe([v for v, _ in batch], [t for _, t in batch])
    for copy in pr.CostSketch.from_bytes(sketch.to_bytes()), pickle.loads(pickle.dumps(sketch)):
        assert copy == sketch
        assert copy.time(UNIVERSE).tolist() == sketch.time(UNIVERSE).tolist()


def test_values_of_any_kind():
    """A sketch keeps no names, so kinds may differ between batches."""
    sketch = pr.CostSketch(epsilon=0.001)
    sketch.observe(["a", "a"], [1.0, 1.0])
    sketch.observe([("a", 1)], [5.0])
    assert sketch.frequency(["a"]).tolist() == [2]
    assert sketch.time([("a", 1)]).tolist() == [5.0]
