"""The graph of pairs: the twin, and whatever order the pairs come in."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from pyroute import _core
from reference.pair_graph import pair_graph

pytestmark = pytest.mark.kernel

ids = st.integers(0, 12).map(lambda n: n * 0x9E3779B97F4A7C15 % 2**64)
pairs = st.lists(
    st.tuples(ids, ids, st.integers(1, 50), st.integers(0, 3)).map(
        lambda row: (*row[:3], min(row[2], row[3]))
    ),
    max_size=25,
)
relations = st.dictionaries(st.sampled_from([(0, 1), (1, 2), (0, 2)]), pairs)


def keys(column):
    return _core.Keys.from_ids(np.array(column, np.uint64))


def add(graph, start, end, rows):
    ins, outs, counts, errors = zip(*rows, strict=True) if rows else ((),) * 4
    graph.add(
        *(start, end, keys(ins), keys(outs)),
        *(np.array(counts, np.int64), np.array(errors, np.int64)),
    )


def rows_of(graph):
    """Return loads, and (vertex, vertex, count, error) in both directions."""
    starts = np.repeat(np.arange(graph.vertices), np.diff(graph.offsets).astype(np.int64))
    columns = starts, graph.neighbours, graph.counts, graph.errors
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@given(relations=relations, others=st.lists(st.tuples(st.integers(0, 2), ids), max_size=5))
def test_matches_reference(relations, others):
    graph = _core.PairGraph(3)
    for (start, end), found in relations.items():
        add(graph, start, end, found)
    for op, key in others:
        graph.add_keys(op, keys([key]))
    graph.finish()
    expected = pair_graph(3, relations, others)
    vertices = [(op, key) for op in range(3) for key in graph.ids(op).tolist()]
    assert vertices == expected.vertices
    assert [graph.begin(op) for op in range(3)] == [
        sum(other < op for other, _ in vertices) for op in range(3)
    ]
    assert graph.loads.tolist() == expected.loads
    both = [(a, b, expected.counts[a, b], expected.errors[a, b]) for a, b in expected.counts]
    assert rows_of(graph) == sorted(both + [(b, a, *rest) for a, b, *rest in both])
    assert graph.total == sum(expected.counts.values())


@given(found=pairs.filter(len), seed=st.integers(0, 100), cut=st.integers(0, 25))
def test_order_never_shows(found, seed, cut):
    whole, parts = _core.PairGraph(2), _core.PairGraph(2)
    add(whole, 0, 1, found)
    mixed = list(found)
    Random(seed).shuffle(mixed)
    add(parts, 0, 1, mixed[:cut])
    add(parts, 0, 1, mixed[cut:])
    for graph in (whole, parts):
        graph.finish()
    assert rows_of(whole) == rows_of(parts)
    assert whole.loads.tolist() == parts.loads.tolist()


@pytest.mark.parametrize("named", [True, False])
def test_same_as_top(named):
    random = np.random.default_rng(0)
    ins, outs = (random.zipf(1.3, 3000) % 200 for _ in range(2))
    if named:
        ins, outs = np.char.add("in", ins.astype("U5")), np.char.add("out", outs.astype("U5"))
    sketch = pr.PairSpaceSaving(300)
    sketch.observe(ins, outs)
    direct, listed = _core.PairGraph(2), _core.PairGraph(2)
    direct.add_sketch(0, 1, sketch._core)
    top = sketch.top()
    listed.add(
        *(0, 1, pr.keys(top.in_values)._core, pr.keys(top.out_values)._core),
        *(top.counts, top.errors),
    )
    for graph in (direct, listed):
        graph.finish()
    assert rows_of(direct) == rows_of(listed)
    assert len(top.counts) == direct.pairs
    for op, values in enumerate((top.in_values, top.out_values)):
        rows = np.arange(len(direct.ids(op)), dtype=np.uint64)
        assert direct.values(op, rows) == listed.values(op, rows)
        assert set(direct.values(op, rows)) == set(values)


def test_shared_and_nearness():
    graph = _core.PairGraph(3)
    add(graph, 0, 1, [(1, 1, 5, 1), (1, 2, 3, 0), (2, 2, 4, 4)])
    add(graph, 1, 2, [(2, 9, 7, 2)])
    graph.finish()
    label = np.array([0, 1, 0, 1, 1], np.int32)  # in 1, in 2, middle 1, middle 2, out 9
    assert graph.shared(label, False).reshape(3, 3).tolist() == [[0, 9, 0], [0, 0, 7], [0, 0, 0]]
    assert graph.shared(label, True).reshape(3, 3).tolist() == [[0, 4, 0], [0, 0, 5], [0, 0, 0]]
    label[4] = -1
    assert graph.shared(label, False).sum() == 9
    near = np.array([256, 64, 64, 256])
    label[4] = 0
    assert graph.nearness(label, near, 2) == 256 * 9 + 64 * (3 + 7)


def test_nulls_before_texts():
    graph = _core.PairGraph(2)
    add_values(graph, [None], [None])
    add_values(graph, ["a", None], ["b", "c"])
    graph.finish()
    rows = np.arange(2, dtype=np.uint64)
    assert set(graph.values(0, rows)) == {None, "a"}
    assert set(graph.values(1, np.arange(3, dtype=np.uint64))) == {None, "b", "c"}


def add_values(graph, ins, outs):
    graph.add(
        *(0, 1, pr.keys(ins)._core, pr.keys(outs)._core),
        *(np.ones(len(ins), np.int64), np.zeros(len(ins), np.int64)),
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([1], [2, 3], [1], [0]), "out_values: expected 1"),
        (([1], [2], [1, 1], [0]), "counts: expected 1"),
        (([1], [2], [1], [0, 0]), "errors: expected 1"),
        (([1], [2], [0], [0]), "counts: expected at least 1, got 0"),
        (([1], [2], [-3], [0]), "counts: expected at least 1, got -3"),
        (([1], [2], [2], [3]), "errors: expected 0 to the count, got 3"),
        (([1], [2], [2], [-1]), "errors: expected 0 to the count, got -1"),
        (([1], [2], [2**48], [0]), "counts: expected a total below 2\\^48"),
    ],
)
def test_bad_pairs_leave_it_as_it_was(columns, message):
    graph = _core.PairGraph(2)
    ins, outs, counts, errors = columns
    with pytest.raises(ValueError, match=message):
        graph.add(0, 1, keys(ins), keys(outs), np.array(counts), np.array(errors))
    add(graph, 0, 1, [(1, 2, 3, 0)])
    graph.finish()
    assert graph.total == 3


def test_operators():
    for number in (0, 1, 65):
        with pytest.raises(ValueError, match="pairs: expected 2 to 64 operators"):
            _core.PairGraph(number)
    with pytest.raises(ValueError, match="pairs: expected two operators"):
        add(_core.PairGraph(2), 1, 1, [(1, 1, 1, 0)])
