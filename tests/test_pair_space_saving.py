"""PairSpaceSaving against its twin, and the guarantees of its counters against a Counter."""

import pickle
from collections import Counter
from datetime import UTC, date, datetime
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from reference import keys
from reference.space_saving import PAIR_SPREAD, FilteredSpaceSaving, pair_id

pytestmark = pytest.mark.kernel

capacities = st.integers(1, 40)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def streams(draw, weights=(1,)):
    """In values, out values and weights, with a skew."""
    random = np.random.default_rng(draw(seeds))
    size, universe = draw(st.integers(0, 500)), draw(st.integers(1, 15))
    skew = draw(st.sampled_from([1, 2, 5]))
    ins, outs = ((universe * random.random(size) ** skew).astype(np.int64) for _ in range(2))
    return ins, outs * 7 - 20, random.choice(np.array(weights, np.int64), size)


def count(ins, outs, weights):
    exact = Counter()
    for pair, weight in zip(zip(ins.tolist(), outs.tolist(), strict=True), weights, strict=True):
        exact[pair] += int(weight)
    return exact


def observed(capacity, ins, outs, weights=None):
    sketch = pr.PairSpaceSaving(capacity)
    sketch.observe(ins, outs, weights)
    return sketch


def estimates(sketch, pairs):
    return sketch.estimate([i for i, _ in pairs], [o for _, o in pairs]).tolist() if pairs else []


def top_pairs(sketch, most=None):
    top = sketch.top(most)
    return list(zip(top.in_values, top.out_values, strict=True))


def assert_never_under(sketch, exact):
    top = sketch.top()
    for pair, most, error in zip(
        top_pairs(sketch), top.counts.tolist(), top.errors.tolist(), strict=True
    ):
        assert most - error <= exact[pair] <= most
    universe = [*exact, (1000, 1), (1, 1000)]
    for pair, most in zip(universe, estimates(sketch, universe), strict=True):
        assert exact[pair] <= most


def assert_error_bound(sketch, exact, limit):
    assert 0 <= sketch.floor <= limit
    assert (sketch.top().errors <= sketch.floor).all()
    universe = [*exact]
    for pair, most in zip(universe, estimates(sketch, universe), strict=True):
        assert most <= exact[pair] + sketch.floor


def id_of(pair):
    return pair_id(*keys.keys(list(pair)))


@given(st.lists(streams((0, 1, 2, 9, 2**33)), max_size=3), capacities)
def test_matches_reference(batches, capacity):
    sketch, twin = pr.PairSpaceSaving(capacity), FilteredSpaceSaving(capacity, PAIR_SPREAD)
    for ins, outs, weights in batches:
        pairs = list(zip(ins.tolist(), outs.tolist(), strict=True))
        sketch.observe(ins, outs, weights)
        twin.observe([id_of(pair) for pair in pairs], weights.tolist())
        top, expected = sketch.top(), twin.top()
        assert [id_of(pair) for pair in top_pairs(sketch)] == [id_ for id_, _, _ in expected]
        assert top.counts.tolist() == [most for _, most, _ in expected]
        assert top.errors.tolist() == [error for _, _, error in expected]
        universe = [*set(pairs), (99, 99), (-1, 5)]
        assert estimates(sketch, universe) == [twin.estimate(id_of(pair)) for pair in universe]
        assert (sketch.floor, sketch.total, len(sketch)) == (twin.floor, twin.total, len(twin))


@given(streams(), capacities)
def test_never_under(stream, capacity):
    assert_never_under(observed(capacity, *stream), count(*stream))


@given(streams(), capacities)
def test_error_bound(stream, capacity):
    exact = count(*stream)
    assert_error_bound(observed(capacity, *stream), exact, Fraction(exact.total(), capacity))


@given(streams((1, 5, 2**40)), streams((0, 2)), capacities, capacities)
def test_merge_bound(left, right, capacity, other_capacity):
    sketch, other = observed(capacity, *left), observed(other_capacity, *right)
    before = other.to_bytes()
    limit = Fraction(sketch.total, capacity) + Fraction(other.total, min(capacity, other_capacity))
    exact = count(*left) + count(*right)
    sketch.merge(other)
    assert other.to_bytes() == before
    assert sketch.total == exact.total()
    assert_never_under(sketch, exact)
    assert_error_bound(sketch, exact, limit)


@given(st.lists(st.tuples(streams((1, 2, 2**40)), st.floats(0, 1)), max_size=4), capacities)
def test_decay_bound(steps, capacity):
    sketch, exact = pr.PairSpaceSaving(capacity), Counter()
    for calls, (stream, factor) in enumerate(steps, 1):
        sketch.observe(*stream)
        exact += count(*stream)
        sketch.decay(factor)
        exact = Counter({pair: true * Fraction(factor) for pair, true in exact.items()})
        assert_never_under(sketch, exact)
        assert sketch.floor <= exact.total() / Fraction(capacity) + calls


@given(streams((0, 1, 2**31, 2**53)), capacities)
def test_any_weights(stream, capacity):
    sketch, exact = observed(capacity, *stream), count(*stream)
    assert sketch.total == exact.total()
    assert_never_under(sketch, exact)
    assert_error_bound(sketch, exact, Fraction(exact.total(), capacity))


def test_direction_matters():
    sketch = observed(4, ["a", "a", "b"], ["b", "b", "a"])
    assert top_pairs(sketch) == [("a", "b"), ("b", "a")]
    assert estimates(sketch, [("a", "b"), ("b", "a"), ("a", "a")]) == [2, 1, 0]


@pytest.mark.parametrize("in_id", [0, 42, 2**64 - 1])
@pytest.mark.parametrize("out_id", [0, 1, 2**63])
def test_special_ids(in_id, out_id):
    pair = keys.unhash_int(in_id), keys.unhash_int(out_id)
    sketch = observed(3, [pair[0]] * 5 + [1], [pair[1]] * 5 + [2])
    assert estimates(sketch, [pair, (1, 2)]) == [5, 1]
    found = top_pairs(pickle.loads(pickle.dumps(sketch)))[0]
    assert keys.keys(list(found)) == [in_id, out_id]


def test_the_pair_of_id_0():
    """The out key that, after this in key, gives the id that a free way holds."""
    in_id = keys.key(5)
    out_id = keys.unhash_int(0, in_id) % 2**64
    pair = 5, keys.unhash_int(out_id)
    assert id_of(pair) == 0
    sketch = pr.PairSpaceSaving(3)
    assert estimates(sketch, [pair]) == [0]
    sketch.observe([5, 5, 6], [pair[1], pair[1], 1])
    assert estimates(sketch, [pair]) == [2]
    assert top_pairs(sketch) == [pair, (6, 1)]


KINDS = {
    "int": [3, -5, 0],
    "str": ["a", "", "zażółć"],
    "bytes": [b"a", b"", b"\xff\x00"],
    "bool": [True, False, None],
    "date": [date(1970, 1, 1), date(2024, 2, 29), None],
    "tuple": [("a", 7), ("a", None), (None, 2)],
}


@pytest.mark.parametrize("in_kind", KINDS)
@pytest.mark.parametrize("out_kind", KINDS)
def test_names(in_kind, out_kind):
    pairs = list(zip(KINDS[in_kind], reversed(KINDS[out_kind]), strict=True))
    ins, outs = zip(*(pair for n, pair in enumerate(pairs) for _ in range(3 - n)), strict=True)
    sketch = observed(9, list(ins), list(outs))

    def assert_names(each):
        assert top_pairs(each) == pairs
        assert [(type(i), type(o)) for i, o in top_pairs(each)] == [
            (type(i), type(o)) for i, o in pairs
        ]

    assert_names(sketch)
    assert_names(pickle.loads(pickle.dumps(sketch)))
    sketch.observe(list(ins) * 9, list(outs) * 9)
    sketch.decay(0.5)
    assert_names(sketch)
    merged = pr.PairSpaceSaving(5)
    merged.merge(sketch)
    assert_names(merged)
    sketch.merge(merged)
    assert_names(sketch)


def test_names_of_datetimes():
    moment = datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC)
    found = top_pairs(observed(3, [moment], [1]))[0]
    assert (found[0].replace(tzinfo=UTC), found[1]) == (moment, 1)


@given(streams(), capacities)
def test_names_survive_eviction(stream, capacity):
    ins = [f"page {value}" for value in stream[0].tolist()]
    outs = [f"city {value}" for value in stream[1].tolist()]
    sketch = observed(capacity, ins, outs)
    sketch.observe([f"visitor {n}" for n in range(3000)], [str(n) for n in range(3000)])
    sketch.observe(ins, outs)
    copy = pickle.loads(pickle.dumps(sketch))
    assert top_pairs(copy) == top_pairs(sketch)
    assert estimates(sketch, top_pairs(sketch)) == sketch.top().counts.tolist()


def test_mixed_kinds_across_batches():
    sketch = observed(4, ["a"], [1])
    others = [(["a"], ["x"]), ([1], [1]), ([b"a"], [1]), ([("a", 1)], [1]), (["a"], [True])]
    before = sketch.to_bytes()
    for ins, outs in others:
        other = observed(4, ins, outs)
        with pytest.raises(TypeError, match=r"expected .* got "):
            sketch.observe(ins, outs)
        with pytest.raises(TypeError, match=r"expected .* got "):
            sketch.merge(other)
        assert sketch.to_bytes() == before
    sketch.observe([None, "a"], [1, None])
    assert len(sketch) == 3


@given(streams((1, 2, 3)), capacities, st.integers(0, 50))
def test_top_is_sorted(stream, capacity, most):
    sketch = observed(capacity, *stream)
    order = [
        (-count, id_of(pair))
        for pair, count in zip(top_pairs(sketch), sketch.top().counts.tolist(), strict=True)
    ]
    assert order == sorted(order)
    assert len(order) == len(sketch) <= capacity
    assert top_pairs(sketch, most) == top_pairs(sketch)[:most]


@given(streams(), capacities)
def test_reset(stream, capacity):
    sketch = observed(capacity, *stream)
    sketch.reset()
    assert sketch == pr.PairSpaceSaving(capacity)
    sketch.observe(["another"], [b"kind"])
    assert top_pairs(sketch) == [("another", b"kind")]


def test_memory():
    """A million pairs in 64 MB."""
    sketch = pr.PairSpaceSaving(1_000_000)
    assert sketch.nbytes <= 64_000_000
    sketch.observe(np.arange(200_000) % 1000, np.arange(200_000) % 7)
    assert sketch.nbytes <= 64_000_000
