"""Snapshot: what was given is what is read, and wrong input is refused."""

import pickle
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from reference import keys

pytestmark = pytest.mark.kernel

ALIKE = "customer-0000042", "user-ofg)!'_qdXC"  # two texts of one id

names = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=30),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True, max_size=30),
    st.lists(st.binary(), unique=True, max_size=30),
    st.lists(st.dates(), unique=True, max_size=30),
    st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=3)), unique=True, max_size=30),
)


@given(names, st.data())
def test_reads_as_given(values, data):
    size = len(values)
    costs = data.draw(st.lists(st.floats(0, 1e300), min_size=size, max_size=size))
    sizes = data.draw(st.lists(st.integers(0, 2**63 - 1), min_size=size, max_size=size))
    background = data.draw(st.dictionaries(st.integers(0, 2**31 - 1), st.floats(0, 1e300)))
    interval = data.draw(st.integers(0, 2**62))
    snapshot = pr.Snapshot(values, costs, sizes, background=background, interval=interval)
    for each in snapshot, pickle.loads(pickle.dumps(snapshot)):
        assert each.values == values
        assert each.ids.tolist() == keys.keys(values)
        assert each.costs.tolist() == costs
        assert each.state_sizes.tolist() == sizes
        assert each.background == background
        assert list(each.background) == sorted(background)
        assert each.interval == interval
        assert len(each) == size
        assert each == snapshot
        assert each.to_bytes() == snapshot.to_bytes()


def test_defaults():
    snapshot = pr.Snapshot(["a", "b"], [1, 2])
    assert snapshot.state_sizes.tolist() == [1, 1]
    assert snapshot.background == {}
    assert snapshot.interval == 0
    assert (snapshot.ids.dtype, snapshot.costs.dtype) == (np.uint64, np.float64)
    assert snapshot.state_sizes.dtype == np.int64


def test_background_by_position():
    assert pr.Snapshot([], [], background=[2.0, 0.5]).background == {0: 2.0, 1: 0.5}


def test_order_is_kept():
    assert pr.Snapshot([3, 1, 2], [1, 1, 1]).values == [3, 1, 2]
    assert pr.Snapshot([3, 1], [1, 1]) != pr.Snapshot([1, 3], [1, 1])


def test_every_part_counts_in_equality():
    base = {"values": ["a"], "costs": [1.0], "state_sizes": [2], "background": {0: 1.0}}
    others = [
        {"values": ["b"]},
        {"costs": [2.0]},
        {"state_sizes": [3]},
        {"background": {1: 1.0}},
        {"background": {0: 2.0}},
        {"interval": 1},
    ]
    assert pr.Snapshot(**base) == pr.Snapshot(**base)
    for other in others:
        assert pr.Snapshot(**base) != pr.Snapshot(**{**base, **other})


def test_two_values_of_one_id():
    assert keys.key(ALIKE[0]) == keys.key(ALIKE[1])
    snapshot = pr.Snapshot(ALIKE, [1.0, 2.0])
    assert snapshot.values == list(ALIKE)
    assert pickle.loads(pickle.dumps(snapshot)).values == list(ALIKE)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((["a", "a"], [1, 1]), {}),
        (([1, 2, 1], [1, 1, 1]), {}),
        (([None, None], [1, 1]), {}),
        (([("a", 1), ("a", 1)], [1, 1]), {}),
        ((["a"], [1, 1]), {}),
        ((["a"], []), {}),
        ((["a"], [1], [1, 2]), {}),
        ((["a"], [-1]), {}),
        ((["a"], [float("nan")]), {}),
        ((["a"], [float("inf")]), {}),
        ((["a"], [1], [-1]), {}),
        ((["a"], [1]), {"background": {0: -1.0}}),
        ((["a"], [1]), {"background": {0: float("nan")}}),
        ((["a"], [1]), {"background": {0: float("inf")}}),
        ((["a"], [1]), {"background": {-1: 1.0}}),
        ((["a"], [1]), {"interval": -1}),
    ],
    ids=str,
)
def test_wrong_values(arguments, options):
    with pytest.raises(ValueError, match=r"expected .* got "):
        pr.Snapshot(*arguments, **options)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (([1, "a"], [1, 1]), {}),
        (([1.5], [1]), {}),
        ((["a"], ["x"]), {}),
        ((["a"], [1], [1.5]), {}),
        ((["a"], [1]), {"background": {"x": 1.0}}),
        ((["a"], [1]), {"background": {0: "x"}}),
        ((["a"], [1]), {"background": {0.5: 1.0}}),
        ((["a"], [1]), {"interval": "x"}),
    ],
    ids=str,
)
def test_wrong_types(arguments, options):
    with pytest.raises(TypeError):
        pr.Snapshot(*arguments, **options)


def test_from_key_stats():
    stats = pr.KeyStats()
    stats.observe([date(2020, 1, 1), None], [3.0, 4.0])
    snapshot = stats.close_interval()
    assert snapshot == pr.Snapshot([date(2020, 1, 1), None], [3.0, 4.0])
    assert snapshot.values == [date(2020, 1, 1), None]
