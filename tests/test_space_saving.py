"""SpaceSaving against its twin, and every guarantee of filtered_counters.hpp against a Counter."""

import pickle
from collections import Counter
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyroute as pr
from effort import effort
from reference import keys
from reference.space_saving import FilteredSpaceSaving, PlainSpaceSaving

pytestmark = pytest.mark.kernel

LARGEST_TOTAL = 2**63 - 1
ABSENT = list(range(10_000, 10_040))

capacities = st.integers(1, 40)
seeds = st.integers(0, 2**32 - 1)
light = st.integers(0, 3)
heavy = st.one_of(light, st.integers(2**31, 2**34), st.integers(2**56, 2**57))


@st.composite
def streams(draw, weights=None):
    """Values with a skew, and weights where a strategy for one is given."""
    random = np.random.default_rng(draw(seeds))
    size, universe = draw(st.integers(0, 600)), draw(st.integers(1, 120))
    ranks = (universe * random.random(size) ** draw(st.sampled_from([1, 2, 6]))).astype(np.int64)
    if weights is None:
        return ranks, None
    palette = np.array(draw(st.lists(weights, min_size=1, max_size=8)), np.int64)
    chosen = random.choice(palette, size)
    fits = np.cumsum(chosen.astype(object)) <= LARGEST_TOTAL
    return ranks[: fits.sum()], chosen[: fits.sum()]


def count(values, weights=None):
    exact = Counter()
    ones = [1] * len(values)
    for value, weight in zip(values, ones if weights is None else weights, strict=True):
        exact[value] += int(weight)
    return exact


def observed(capacity, values, weights=None):
    sketch = pr.SpaceSaving(capacity)
    sketch.observe(values, weights)
    return sketch


def zipf(exponent, universe, size, seed):
    """Draw ranks below `universe`, the first the most likely."""
    share = np.arange(1, universe + 1) ** -exponent
    cumulated = np.cumsum(share) / share.sum()
    ranks = np.searchsorted(cumulated, np.random.default_rng(seed).random(size))
    return np.minimum(ranks, universe - 1)


def assert_never_under(sketch, exact):
    top = sketch.top()
    for value, most, error in zip(
        top.values, top.counts.tolist(), top.errors.tolist(), strict=True
    ):
        assert most - error <= exact[value] <= most
    universe = [*exact, *([] if any(isinstance(key, str) for key in exact) else ABSENT)]
    for value, most in zip(universe, sketch.estimate(universe).tolist(), strict=True):
        assert exact[value] <= most


def assert_error_bound(sketch, exact, limit):
    assert 0 <= sketch.floor <= limit
    assert (sketch.top().errors <= sketch.floor).all()
    universe = [*exact]
    for value, most in zip(universe, sketch.estimate(universe).tolist(), strict=True):
        assert most <= exact[value] + sketch.floor


def assert_equal_to_twin(sketch, twin, universe):
    top = sketch.top()
    expected = twin.top()
    assert [keys.key(value) for value in top.values] == [id_ for id_, _, _ in expected]
    assert top.counts.tolist() == [most for _, most, _ in expected]
    assert top.errors.tolist() == [error for _, _, error in expected]
    assert sketch.estimate(universe).tolist() == [twin.estimate(keys.key(v)) for v in universe]
    assert (sketch.floor, sketch.total, len(sketch)) == (twin.floor, twin.total, len(twin))


@given(st.lists(streams(), max_size=3), capacities)
def test_matches_reference(batches, capacity):
    sketch, twin = pr.SpaceSaving(capacity), FilteredSpaceSaving(capacity)
    for values, _ in batches:
        sketch.observe(values)
        twin.observe(keys.keys(values.tolist()))
        assert_equal_to_twin(sketch, twin, [*set(values.tolist()), *ABSENT])


@given(st.lists(streams(heavy), max_size=3), capacities)
def test_matches_reference_with_weights(batches, capacity):
    sketch, twin = pr.SpaceSaving(capacity), FilteredSpaceSaving(capacity)
    for values, weights in batches:
        if twin.total + sum(weights.tolist()) > LARGEST_TOTAL:
            break
        sketch.observe(values, weights)
        twin.observe(keys.keys(values.tolist()), weights.tolist())
        assert_equal_to_twin(sketch, twin, [*set(values.tolist()), *ABSENT])


@given(st.integers(1, 60), seeds)
def test_matches_reference_where_ids_crowd(capacity, seed):
    """Ids that share a cell, so that groups run over, also from the last one to the first."""
    random = np.random.default_rng(seed)
    lows = [0, 1, 0xFFFFFFFF, 0xFFFFFFFE, *random.integers(0, 2**32, 2).tolist()]
    ids = [high << 32 | low for low in lows for high in random.integers(0, 2**32, 25).tolist()]
    universe = [keys.unhash_int(id_) for id_ in [0, 42, 2**64 - 1, *ids]]
    values = random.choice(np.array(universe), 800)
    weights = random.integers(0, random.choice([2, 5, 100]), 800)
    sketch, twin = pr.SpaceSaving(capacity), FilteredSpaceSaving(capacity)
    for part in range(0, 800, 200):
        sketch.observe(values[part : part + 200], weights[part : part + 200])
        twin.observe(
            keys.keys(values[part : part + 200].tolist()), weights[part : part + 200].tolist()
        )
        assert_equal_to_twin(sketch, twin, universe)


@given(streams(), capacities)
def test_never_under(stream, capacity):
    values, _ = stream
    assert_never_under(observed(capacity, values), count(values.tolist()))


@given(streams(), capacities)
def test_never_under_by_name(stream, capacity):
    names = [f"key {value}" for value in stream[0].tolist()]
    assert_never_under(observed(capacity, names), count(names))


@given(streams(), capacities)
def test_error_bound(stream, capacity):
    values, _ = stream
    sketch = observed(capacity, values)
    assert_error_bound(sketch, count(values.tolist()), Fraction(len(values), capacity))


def test_bounds_hold_as_the_floor_rises():
    """The filter is asked again whenever the floor rose: a first version forgot to."""
    sketch, exact = pr.SpaceSaving(50), Counter()
    for phase in range(40):
        values = zipf(0.7, 3000, 1000, seed=phase) * (phase % 5 + 1)
        sketch.observe(values)
        exact.update(values.tolist())
        assert_never_under(sketch, exact)
        assert_error_bound(sketch, exact, Fraction(sketch.total, 50))
    assert sketch.floor > 0


@given(streams(heavy), streams(heavy), streams(light), capacities, capacities)
def test_merge_bound(left, right, later, capacity, other_capacity):
    if sum(left[1].tolist()) + sum(right[1].tolist()) > LARGEST_TOTAL - 3000:
        return
    sketch, other = observed(capacity, *left), observed(other_capacity, *right)
    before = other.to_bytes()
    limit = Fraction(sketch.total, capacity) + Fraction(other.total, min(capacity, other_capacity))
    exact = count(left[0].tolist(), left[1]) + count(right[0].tolist(), right[1])
    sketch.merge(other)
    assert other.to_bytes() == before
    assert sketch.capacity == capacity
    assert sketch.total == exact.total()
    assert_never_under(sketch, exact)
    assert_error_bound(sketch, exact, limit)
    assert len(sketch) <= capacity

    sketch.observe(*later)
    exact += count(later[0].tolist(), later[1])
    limit += Fraction(int(later[1].sum()), capacity)
    assert_never_under(sketch, exact)
    assert_error_bound(sketch, exact, limit)


@given(st.lists(streams(), min_size=2, max_size=5), capacities)
def test_merge_bound_of_many(parts, capacity):
    sketch, exact = pr.SpaceSaving(capacity), Counter()
    for values, _ in parts:
        sketch.merge(observed(capacity, values))
        exact.update(values.tolist())
    assert_never_under(sketch, exact)
    assert_error_bound(sketch, exact, Fraction(exact.total(), capacity))


@given(st.lists(st.tuples(streams(heavy), st.floats(0, 1)), max_size=4), capacities)
def test_decay_bound(steps, capacity):
    sketch, exact = pr.SpaceSaving(capacity), Counter()
    for calls, ((values, weights), factor) in enumerate(steps, 1):
        if sketch.total + sum(weights.tolist()) > LARGEST_TOTAL:
            break
        sketch.observe(values, weights)
        exact += count(values.tolist(), weights)
        sketch.decay(factor)
        exact = Counter({value: true * Fraction(factor) for value, true in exact.items()})
        assert_never_under(sketch, exact)
        assert sketch.floor <= exact.total() / Fraction(capacity) + calls
        assert sketch.total >= exact.total()


@given(streams(), capacities)
def test_decay_by_one_changes_nothing(stream, capacity):
    sketch = observed(capacity, stream[0])
    before = sketch.to_bytes()
    sketch.decay(1.0)
    assert sketch.to_bytes() == before


def test_decay_by_zero_forgets():
    sketch = observed(5, np.arange(1000) % 37)
    sketch.decay(0.0)
    assert (sketch.total, sketch.floor, len(sketch)) == (0, 0, 0)
    sketch.observe([1, 1, 2])
    assert sketch.top().counts.tolist() == [2, 1]


@given(streams(heavy), capacities)
def test_any_weights(stream, capacity):
    values, weights = stream
    sketch, exact = observed(capacity, values, weights), count(values.tolist(), weights)
    assert sketch.total == exact.total()
    assert_never_under(sketch, exact)
    assert_error_bound(sketch, exact, Fraction(exact.total(), capacity))


@pytest.mark.parametrize("weight", [2**32 - 1, 2**32, 2**33 + 1, 2**45 - 3, 2**52 + 7])
def test_floors_beyond_32_bits(weight):
    """Cells then hold multiples of a unit that grows with the floor."""
    sketch, twin, exact = pr.SpaceSaving(4), FilteredSpaceSaving(4), Counter()
    values = np.random.default_rng(weight % 1000).integers(0, 60, 1500)
    weights = np.where(np.arange(1500) % 3 > 0, weight, np.arange(1500))
    for part in np.array_split(np.arange(1500), 10):
        sketch.observe(values[part], weights[part])
        twin.observe(keys.keys(values[part].tolist()), weights[part].tolist())
        exact += count(values[part].tolist(), weights[part])
        assert_equal_to_twin(sketch, twin, [*range(60), *ABSENT])
        assert_never_under(sketch, exact)
        assert_error_bound(sketch, exact, Fraction(exact.total(), 4))
    assert sketch.floor > 2**32
    assert pickle.loads(pickle.dumps(sketch)) == sketch


def test_weights_up_to_2_to_the_62():
    sketch = observed(2, [1, 2, 3], [2**62, 2**61, 2**60])
    assert sketch.estimate([1, 2, 3]).tolist() == [2**62, 2**61, 2**60]
    sketch.observe([4], [LARGEST_TOTAL - sketch.total])
    assert sketch.total == LARGEST_TOTAL
    assert_never_under(
        sketch, Counter({1: 2**62, 2: 2**61, 3: 2**60, 4: LARGEST_TOTAL - 7 * 2**60})
    )


def test_zero_weights_count_nothing():
    sketch = observed(3, [1, 2, 3, 1], [0, 0, 0, 0])
    assert (sketch.total, sketch.floor, len(sketch)) == (0, 0, 0)
    assert sketch.top().values == []
    sketch.observe([7, 8], [0, 5])
    assert sketch.top().values == [8]


@pytest.mark.parametrize("id_", [0, 1, 42, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
def test_special_ids(id_):
    """Id 0 is what a free way holds, and no key."""
    value = keys.unhash_int(id_)
    sketch = pr.SpaceSaving(3)
    assert sketch.estimate([value]).tolist() == [0]
    sketch.observe([value] * 5 + [1])
    assert sketch.estimate([value]).tolist() == [5]
    assert sketch.top().counts.tolist() == [5, 1]
    sketch.observe(np.arange(1000, 3000))
    sketch.observe([value] * 2000)
    copy = pickle.loads(pickle.dumps(sketch))
    for each in sketch, copy:
        assert keys.key(each.top(1).values[0]) == id_
        assert 2005 <= each.top(1).counts[0] <= 2005 + each.floor


def test_id_0_is_not_found_where_it_never_came():
    sketch = observed(40, np.arange(30))
    assert sketch.estimate([keys.unhash_int(0)]).tolist() == [0]


@given(streams(heavy), capacities, st.integers(0, 50))
def test_top_is_sorted_and_named_by_value(stream, capacity, most):
    values, weights = stream
    sketch = observed(capacity, values, weights)
    top, first = sketch.top(), sketch.top(most)
    order = [(-c, keys.key(v)) for v, c in zip(top.values, top.counts.tolist(), strict=True)]
    assert order == sorted(order)
    assert len(top.values) == len(sketch) <= capacity
    assert set(top.values) <= set(values.tolist())
    assert first.values == top.values[:most]
    assert first.counts.tolist() == top.counts[:most].tolist()
    assert first.errors.tolist() == top.errors[:most].tolist()
    assert top.counts.dtype == top.errors.dtype == sketch.estimate([1]).dtype == np.int64


@given(streams(), capacities)
def test_reset(stream, capacity):
    sketch = observed(capacity, stream[0])
    sketch.reset()
    assert sketch == pr.SpaceSaving(capacity)
    assert sketch.to_bytes() == pr.SpaceSaving(capacity).to_bytes()
    sketch.observe(["another kind"])
    assert sketch.top().values == ["another kind"]


def recall(found, exact, most):
    """Share of the heaviest keys that were found; keys that tie with the last count as well."""
    least = sorted(exact.values(), reverse=True)[most - 1]
    return sum(exact[value] >= least for value in found[:most]) / most


def drifting(universe, size, seed):
    """Ranks that mean other keys in every quarter of the stream."""
    ranks = zipf(0.8, universe, size, seed)
    return (ranks + np.arange(size) * 4 // size * (universe // 4)) % universe


@pytest.mark.parametrize("make", [lambda *a: zipf(0.8, *a), drifting], ids=["zipf", "drift"])
@pytest.mark.parametrize("capacity", [100, 1000])
def test_recall_is_that_of_plain_space_saving_or_better(make, capacity):
    values = make(50_000, 150_000, capacity)
    exact, most = Counter(values.tolist()), capacity // 10
    plain = PlainSpaceSaving(capacity)
    plain.observe(values.tolist())
    filtered = observed(capacity, values).top(most).values
    assert recall(filtered, exact, most) >= recall(plain.top(most), exact, most)


def test_recall_at_capacity_ten_thousand():
    """The goal of PERF.md: .99 of the top tenth at Zipf 0.8."""
    values = zipf(0.8, 1_000_000, effort(2_000_000), seed=8)
    found = observed(10_000, values).top(1000).values
    unique, counts = np.unique(values, return_counts=True)
    exact = dict(zip(unique.tolist(), counts.tolist(), strict=True))
    assert recall(found, exact, 1000) >= 0.99


NAMES = {
    "int": [3, -5, 0, 2**63 - 1, -(2**63)],
    "str": ["a", "", "zażółć 🐍", "x" * 300, "nul\0inside", "a\0"],
    "bytes": [b"a", b"", b"\xff\x00", b"\x00"],
    "bool": [True, False],
    "date": [date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)],
    "datetime": [
        datetime.fromisoformat("1970-01-01T00:00:00"),
        datetime.fromisoformat("2024-02-29T12:30:01.999999"),
        datetime.fromisoformat("0001-01-01T00:00:00.000001"),
        datetime.fromisoformat("9999-12-31T23:59:59.999999"),
    ],
    "tuple": [("a", 0), ("a", 2), ("b", None), (None, 2), (None, None)],
    "ints in tuples": [(1, 2), (2, 1), (-1, 0)],
    "mixed tuples": [("a", b"b", True, date(2020, 1, 1), 5)],
}


def assert_names(sketch, values):
    """Each value came once more than the next."""
    top = sketch.top(len(values))
    assert top.values == values
    assert [type(value) for value in top.values] == [type(value) for value in values]


def repeated(values):
    return [value for n, value in enumerate(reversed(values), 1) for _ in range(n)]


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("with_none", [False, True])
def test_names(kind, with_none):
    values = [*NAMES[kind], None] if with_none and "tuple" not in kind else NAMES[kind]
    sketch = observed(20, repeated(values))
    assert_names(sketch, values)
    assert_names(pickle.loads(pickle.dumps(sketch)), values)
    assert_names(pr.SpaceSaving.from_bytes(sketch.to_bytes()), values)
    sketch.observe(repeated(values) * 9)
    sketch.decay(0.5)
    assert_names(sketch, values)
    merged = pr.SpaceSaving(20)
    merged.merge(sketch)
    assert_names(merged, values)
    sketch.merge(merged)
    assert_names(sketch, values)
    if with_none:
        assert_names(observed(3, [None]), [None])


def test_names_of_datetimes_with_a_zone():
    """The moment is kept, in UTC; the zone is not."""
    moment = datetime(2024, 2, 29, 12, 30, tzinfo=timezone(timedelta(hours=5)))
    assert observed(5, [moment]).top().values == [datetime.fromisoformat("2024-02-29T07:30:00")]


def test_names_of_numpy_arrays():
    for array in (
        np.array([3, 3, -1], np.int16),
        np.array(["a", "a", "żó"]),
        np.array([b"a", b"a", b"bc"]),
        np.array([True, True, False]),
        np.array(["2020-02-29", "2020-02-29", "1969-12-31"], "datetime64[D]"),
    ):
        assert_names(observed(4, array), [array[0].item(), array[2].item()])


@given(streams(), capacities)
def test_names_survive_eviction(stream, capacity):
    names = [f"customer {value:05d}" for value in stream[0].tolist()]
    sketch = observed(capacity, names)
    sketch.observe([f"visitor {n}" for n in range(3000)])
    sketch.observe(names)
    copy = pickle.loads(pickle.dumps(sketch))
    assert copy.top().values == sketch.top().values
    for value, most in zip(sketch.top().values, sketch.top().counts, strict=True):
        assert sketch.estimate([value])[0] == most


MIXED = [
    ([1, 2], ["a"]),
    (["a"], [b"a"]),
    ([True], [1]),
    ([1], [True]),
    ([date(2020, 1, 1)], [1]),
    ([date(2020, 1, 1)], NAMES["datetime"]),
    ([("a", 1)], ["a"]),
    ([("a", 1)], [("a", "b")]),
    ([("a", 1)], [("a", 1, 2)]),
    ([("a", None), (None, 1)], [("a", "b")]),
]


@pytest.mark.parametrize(("first", "second"), MIXED, ids=str)
def test_mixed_kinds_across_batches(first, second):
    sketch, other = observed(8, first), observed(8, second)
    before, other_before = sketch.to_bytes(), other.to_bytes()
    with pytest.raises(TypeError, match=r"expected .* got "):
        sketch.observe(second)
    with pytest.raises(TypeError, match=r"expected .* got "):
        sketch.merge(other)
    assert sketch.to_bytes() == before
    assert other.to_bytes() == other_before


def test_none_goes_with_any_kind():
    for values in ["a", "b"], [1, 2], [date(2020, 1, 1)]:
        sketch = observed(8, [None, None])
        sketch.observe(values)
        sketch.observe([None])
        assert sketch.top().values[0] is None
        assert sketch.top().counts[0] == 3
        assert set(sketch.top().values[1:]) == set(values)


def test_keys_are_values_and_ids():
    names = ["anna", "bert", "anna"]
    sketch = pr.SpaceSaving(4)
    sketch.observe(pr.keys(names))
    sketch.observe(names)
    assert sketch.top().values == ["anna", "bert"]
    assert sketch.estimate(pr.keys(["anna"])).tolist() == [4]


def test_composite_keys_from_columns():
    sketch = pr.SpaceSaving(4)
    sketch.observe(pr.keys(["a", "a", "b"], [1, 1, 2]))
    assert sketch.top().values == [("a", 1), ("b", 2)]
    assert sketch.estimate([("a", 1)]).tolist() == [2]


def test_memory():
    """About 100 bytes a key, whatever was observed."""
    sketch = pr.SpaceSaving(100_000)
    assert sketch.nbytes <= 105 * 100_000
    sketch.observe(np.arange(400_000))
    assert sketch.nbytes <= 105 * 100_000


@settings(max_examples=effort(20))
@given(streams(heavy), capacities)
def test_batch_borders_never_show(stream, capacity):
    """Long batches go block by block."""
    values, weights = (np.tile(part, 4) // 4 for part in stream)
    whole, parts = observed(capacity, values, weights), pr.SpaceSaving(capacity)
    for part in np.array_split(np.arange(len(values)), 7):
        parts.observe(values[part], weights[part])
    assert whole == parts
