"""The arrays that a JVM expression looks up, read here by plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from spark_udf._arrays import compile_router


def look_up(arrays, key, turn=0):
    """What the expression does, from its definition."""
    owner = int(arrays.owners[key >> arrays.circle_shift])
    place = None
    if owner < arrays.places:
        place = owner
    elif arrays.tabled:
        bits = arrays.slot_bits
        size = 1 << bits
        upper, middle, low = key // size**2, key // size % size, key % size
        for slot, other, mark in ((low, middle, 1), (middle, low, 2)):
            entry = int(arrays.entries.view(np.uint64)[slot])
            holds = entry // size**2, entry // size % size, entry % size * 4 // size
            if holds == (upper, other, mark):
                place = entry % (size // 4) // 2
    if place is None:
        place = owner - arrays.places
    if place >= len(arrays.tasks):
        split = place - len(arrays.tasks)
        place = arrays.shares[arrays.starts[split] + turn % arrays.counts[split]]
    return int(arrays.tasks[place])


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=300),
    st.integers(1, 40),
    st.booleans(),
)
def test_looked_up(values, tasks, apart):
    ids = [3 * task + 5 for task in range(tasks)] if apart else list(range(tasks))
    router = pr.Router(pr.Ring(ids), {v: ids[i % tasks] for i, v in enumerate(values)})
    arrays = compile_router(router)
    others = [v + 1 for v in values if v + 1 < 2**63] + [0, 1, -1, 42]
    for value in [*values, *others]:
        key = int(pr.keys([value]).ids[0])
        assert look_up(arrays, key) == router.route_one(value)


def test_bounded():
    for n in (1, 2, 3, 7, 100, 1024, 3000, 8192, 50_000, 131_072):
        arrays = compile_router(pr.Router(8, {i: i % 8 for i in range(n)}))
        assert 2 <= len(arrays.entries) <= max(8 * n, 16 * 8), n
        assert arrays.entries.itemsize == 8
        assert arrays.owners.itemsize == 1
        assert len(arrays.owners) <= max(2**16, 8 * n), n


def test_split_keys_keep_the_order_of_their_tasks():
    router = pr.Router(8, {"a": 3}, splits={"b": [6, 1, 4]})
    arrays = compile_router(router)
    key = int(pr.keys(["b"]).ids[0])
    assert [look_up(arrays, key, turn) for turn in range(3)] == [6, 1, 4]


def test_no_table_is_the_circle_alone():
    arrays = compile_router(pr.Router(5))
    assert not arrays.tabled
    assert (arrays.owners == pr.Ring(5).owners).all()


def test_names_are_not_needed():
    router = pr.Router(8, {"a": 3}, splits={"b": [6, 1]})
    bare = pr.Router.from_bytes(router.to_bytes(values=False))
    one, other = compile_router(router), compile_router(bare)
    assert (one.entries == other.entries).all()
