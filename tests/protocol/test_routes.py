"""Which keys move, against all keys one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from pyroute.protocol.move import NOBODY, Lookup
from pyroute.protocol.routes import UNKNOWN, Routes, moves

from .net import router

BITS = 4
tasks = st.integers(0, 2)
keys = st.integers(0, 2**64 - 1)
tables = st.dictionaries(keys, tasks, max_size=6)
weights = st.lists(st.sampled_from([0.5, 1, 2]), min_size=3, max_size=3)


def a_router(table, weight, version):
    ring = pr.Ring(3, bits=5, replicas=4).with_tasks(dict(enumerate(weight)))
    ids = pr.Keys.from_ids(np.array(sorted(table), np.uint64))
    return pr.Router(ring, (ids, [table[k] for k in sorted(table)]), version=version)


@given(tables, tables, weights, weights, st.lists(keys, max_size=20))
def test_all_that_moves(old, new, old_weights, new_weights, others):
    """A key is named, or in an interval, exactly where its owner differs; whoever asks."""
    before, after = a_router(old, old_weights, 0), a_router(new, new_weights, 1)
    found = moves(before, after)
    asked = [*old, *new, *others, *(i << 59 for i in range(32)), *((i << 59) - 1 for i in (1, 7))]
    ids = pr.Keys.from_ids(np.array(asked, np.uint64))
    sides = Routes(before), Routes(after)
    for task in range(3):
        incoming = [(source, moved) for (source, target), moved in found.items() if target == task]
        arriving = Lookup(incoming, *sides)
        for key, source, target in zip(asked, before.route(ids), after.route(ids), strict=True):
            comes = source != target and target == task
            assert arriving.find(key) == (source if comes else NOBODY)
    assert all(source != target for source, target in found)
    assert list(found) == sorted(found)


@given(tables, weights, st.lists(keys, max_size=20))
def test_owner(table, weight, asked):
    """One key at a time as many at once; also after a trip through bytes."""
    of = a_router(table, weight, 3)
    routes = Routes.from_bytes(of.to_bytes())
    asked = [*table, *asked, 0, 2**64 - 1]
    expected = of.route(pr.Keys.from_ids(np.array(asked, np.uint64))).tolist()
    assert [routes.owner(key) for key in asked] == expected
    assert (routes.version, routes.fingerprint) == (3, of.fingerprint)


def test_rings_of_other_sizes():
    before = pr.Router(pr.Ring(2, bits=5))
    after = pr.Router(pr.Ring(2, bits=7), version=1)
    lookup = Lookup(
        [(source, moved) for (source, target), moved in moves(before, after).items() if target],
        Routes(before),
        Routes(after),
    )
    asked = [i << 57 for i in range(128)]
    ids = pr.Keys.from_ids(np.array(asked, np.uint64))
    for key, source, target in zip(asked, before.route(ids), after.route(ids), strict=True):
        assert (lookup.find(key) != NOBODY) == (source != target and target == 1)


def test_unknown():
    engine = Routes(pr.Router(pr.SparkHash(3), {7: 2}))
    assert engine.owner(int(pr.keys([7]).ids[0])) == 2
    assert engine.owner(5) == UNKNOWN
    split = Routes(pr.Router(3, {"anna": 2}, splits={"hot": [0, 1]}))
    assert split.owner(int(pr.keys(["hot"]).ids[0])) == UNKNOWN
    assert split.owner(int(pr.keys(["anna"]).ids[0])) == 2


def test_splits_are_in_no_interval():
    hot = "hot"
    ring = pr.Ring(2, bits=4)
    before = pr.Router(ring, splits={hot: [0, 1]})
    after = pr.Router(ring.with_tasks({0: 1, 1: 5}), splits={hot: [0, 1]}, version=1)
    key = int(pr.keys([hot]).ids[0])
    parts = [(source, moved) for (source, _), moved in moves(before, after).items()]
    assert Lookup(parts, Routes(before), Routes(after)).find(key) == NOBODY


def test_names_needed():
    """An engine's hash is of values: a table of bare ids does not tell where a key came from."""
    ids = pr.Keys.from_ids(np.array([5], np.uint64))
    before = pr.Router(pr.StormHash(2, key_type="string"))
    after = pr.Router(pr.StormHash(2, key_type="string"), (ids, [1]), version=1)
    with pytest.raises(ValueError, match=r"table: expected the values of its keys .* got ids"):
        moves(before, after)


def test_nothing_moves():
    assert moves(router(3, {5: 1}), router(3, {5: 1}, version=1)) == {}
