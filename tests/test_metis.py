"""METIS behind its checks: everything it would crash on is refused before it is called."""

import sys

import numpy as np
import pytest

from pyroute import metis

RING = {"offsets": [0, 2, 4, 6, 8], "neighbours": [1, 3, 0, 2, 1, 3, 2, 0]}
GOOD = {**RING, "edge_weights": [1] * 8, "vertex_weights": [1] * 4, "parts": 2}


def test_parts():
    pytest.importorskip("pymetis")
    n = 200
    edges = {
        (i, j) for i in range(n) for j in range(n) if i != j and i % 2 == j % 2 and (i - j) % 7 < 3
    }
    edges |= {(j, i) for i, j in edges}
    rows = [sorted(j for i, j in edges if i == v) for v in range(n)]
    parts = metis.partition(
        np.cumsum([0, *map(len, rows)]),
        np.concatenate(rows),
        np.ones(len(edges), np.int64),
        np.ones(n, np.int64),
        2,
    )
    assert parts.dtype == np.int32
    assert len(set(parts[::2].tolist())) == len(set(parts[1::2].tolist())) == 1
    assert parts[0] != parts[1]


def test_limit_holds_for_few_parts():
    """Recursive bisection, the default for up to 8 parts, would break it."""
    pytest.importorskip("pymetis")
    random = np.random.default_rng(0)
    a, b = random.integers(0, 500, (2, 6000))
    pairs = sorted(
        {(min(x, y), max(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True) if x != y}
    )
    both = sorted(pairs + [(y, x) for x, y in pairs])
    offsets = np.searchsorted([x for x, _ in both], np.arange(501))
    weights = random.integers(1, 50, 500)
    parts = metis.partition(
        *(offsets, [y for _, y in both], np.ones(len(both), int), weights, 6), max_imbalance=0.3
    )
    loads = np.bincount(parts, weights)
    assert loads.max() <= 1.31 * loads.mean()


def test_seed_decides():
    pytest.importorskip("pymetis")
    one, two = (metis.partition(**GOOD, seed=3).tolist() for _ in range(2))
    assert one == two


def test_widths_of_integers():
    pytest.importorskip("pymetis")
    expected = metis.partition(**GOOD).tolist()
    for dtype in (np.int32, np.uint32, np.uint64):
        case = {name: np.array(column, dtype) for name, column in GOOD.items() if name != "parts"}
        assert metis.partition(**case, parts=2).tolist() == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_weights": [1] * 7 + [0]}, "edge_weights: expected at least 1, got 0"),
        ({"edge_weights": [1] * 7 + [-1]}, "edge_weights: expected at least 1, got -1"),
        ({"edge_weights": [1] * 7}, "edge_weights: expected 8 of them, got 7"),
        ({"edge_weights": [2] + [1] * 7}, "edge_weights: expected one weight for both directions"),
        ({"edge_weights": [2**61] * 8}, "edge_weights: expected a sum below 2\\^62"),
        ({"vertex_weights": [0] * 4}, "vertex_weights: expected one above 0, got none"),
        ({"vertex_weights": [1] * 3}, "vertex_weights: expected 4 of them, got 3"),
        ({"vertex_weights": [1] * 8}, "got 8; METIS has one balance constraint, not several"),
        ({"vertex_weights": [1, 1, 1, -1]}, "vertex_weights: expected at least 0, got -1"),
        ({"neighbours": [1, 3, 0, 2, 1, 3, 2, 1]}, "expected every edge in both directions, got"),
        ({"neighbours": [1, 3, 0, 2, 1, 3, 2, 4]}, "neighbours: expected vertices from 0 to 3"),
        ({"neighbours": [1, 3, 0, 2, 1, 3, 2, -1]}, "neighbours: expected vertices from 0 to 3"),
        ({"neighbours": [1, 3, 0, 2, 1, 2, 2, 0]}, "neighbours: expected no loops, got one at 2"),
        (
            {
                "offsets": [0, 2, 4],
                "neighbours": [1, 1, 0, 0],
                "edge_weights": [1] * 4,
                "vertex_weights": [1, 1],
            },
            "neighbours: expected each edge once, got 0 to 1 twice",
        ),
        ({"offsets": [0, 2, 4, 6, 9]}, "offsets: expected 0 to 8"),
        ({"offsets": [0, 4, 2, 6, 8]}, "offsets: expected 0 to 8"),
        ({"offsets": [0]}, "offsets: expected at least one vertex, got 0"),
        ({"parts": 1}, "parts: expected at least 2, got 1"),
        ({"parts": 5}, "parts: expected at most 4"),
        ({"max_imbalance": -0.1}, "max_imbalance: expected a number from 0"),
        ({"seed": -1}, "seed: expected 0 to"),
    ],
)  # fmt: skip
def test_traps_are_refused(monkeypatch, change, message):
    class Never:
        def __getattr__(self, name):
            raise AssertionError(f"pymetis.{name} was asked for")

    monkeypatch.setitem(sys.modules, "pymetis", Never())
    with pytest.raises(ValueError, match=message):
        metis.partition(**{**GOOD, **change})


@pytest.mark.parametrize("name", ["offsets", "neighbours", "edge_weights", "vertex_weights"])
def test_floats_are_refused(name):
    with pytest.raises(TypeError, match=f"{name}: expected integers, got float64"):
        metis.partition(**{**GOOD, name: np.ones(4)})


def test_not_connected():
    """`contig` fails on such a graph, so it is not asked for."""
    pytest.importorskip("pymetis")
    parts = metis.partition([0, 1, 2, 3, 4], [1, 0, 3, 2], [1] * 4, [1] * 4, 2).tolist()
    assert parts[0] == parts[1] != parts[2] == parts[3]


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"pip install 'pyroute-core\[colocate\]'"):
        metis.partition(**GOOD)
