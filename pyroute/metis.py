"""METIS, through pymetis, behind checks: what it would crash on raises before it is called.

>>> import numpy as np
>>> offsets, neighbours = np.array([0, 1, 2, 3, 4]), np.array([2, 3, 0, 1])
>>> parts = partition(offsets, neighbours, np.ones(4, int), np.ones(4, int), 2)
>>> bool(parts[0] == parts[2]), bool(parts[1] == parts[3])
(True, True)
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute._arrays import count, integers, real

Ints = npt.NDArray[np.int64]

_MOST = 1 << 62  # sums of weights; METIS adds them up in 64 bits


def partition(
    offsets: npt.ArrayLike,
    neighbours: npt.ArrayLike,
    edge_weights: npt.ArrayLike,
    vertex_weights: npt.ArrayLike,
    parts: int,
    *,
    max_imbalance: float = 0.03,
    seed: int = 0,
) -> npt.NDArray[np.int32]:
    """The part of each vertex: k-way, one balance constraint.

    METIS reads past the end of short arrays, corrupts memory where an edge is there in one
    direction alone, and divides by weights of zero; all of that raises here. What it has no notion
    of is a limit for each operator: `pyroute.colocate` refines what comes back.

    Parameters
    ----------
    offsets, neighbours
        The rows of the adjacency: those of vertex v are `neighbours[offsets[v]:offsets[v + 1]]`.
        Every edge is in the rows of both ends, with the same weight.
    edge_weights
        One for each entry of `neighbours`, above 0.
    vertex_weights
        One for each vertex, at least 0, not all 0.
    parts
        How many, at least 2.
    max_imbalance
        How far the weight of a part may be above the mean, as a share of it.
    seed
        Equal seeds give equal parts.
    """
    rows = _column(offsets, "offsets")
    ends = _column(neighbours, "neighbours")
    edges = _column(edge_weights, "edge_weights")
    weights = _column(vertex_weights, "vertex_weights")
    parts = count(parts, "parts", 1 << 20)
    if parts < 2:
        raise ValueError(f"parts: expected at least 2, got {parts}")
    allowed = real(max_imbalance, "max_imbalance")
    if not 0 <= allowed <= 1e6:
        raise ValueError(f"max_imbalance: expected a number from 0 to 1e6, got {allowed}")
    seed = count(seed, "seed", (1 << 31) - 1)
    _check_rows(rows, ends)
    _check_weights(rows, ends, edges, weights)
    _check_both_ways(rows, ends, edges)
    pymetis = _pymetis()
    if parts > len(weights):
        raise ValueError(f"parts: expected at most {len(weights)}, one vertex each, got {parts}")
    # Recursive bisection, the default for few parts, breaks the limit; contig fails on a graph
    # that is not connected.
    _, membership = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(rows, ends),
        vweights=weights.tolist(),
        eweights=edges.tolist(),
        recursive=False,
        options=pymetis.Options(ufactor=max(1, round(1000 * allowed)), seed=seed, contig=0),
    )
    return np.asarray(membership, np.int32)


def _pymetis() -> ModuleType:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            "METIS needs pymetis: pip install 'pyroute-core[colocate]'; or leave"
            ' partitioner="native"'
        ) from error
    module: ModuleType = pymetis
    return module


def _column(values: Any, name: str) -> Ints:
    array = np.asarray(values)
    if array.dtype == np.uint64 and array.ndim == 1 and array.size and array.max() < 1 << 63:
        array = array.astype(np.int64)
    return integers(array, name)


def _check_rows(rows: Ints, ends: Ints) -> None:
    if len(rows) < 2:
        raise ValueError(f"offsets: expected at least one vertex, got {max(0, len(rows) - 1)}")
    if rows[0] != 0 or rows[-1] != len(ends) or (np.diff(rows) < 0).any():
        raise ValueError(
            f"offsets: expected 0 to {len(ends)}, one for each entry of neighbours, ascending,"
            f" got {rows[0]} to {rows[-1]}"
        )
    n = len(rows) - 1
    if len(ends) and (ends.min() < 0 or ends.max() >= n):
        wrong = ends[(ends < 0) | (ends >= n)][0]
        raise ValueError(f"neighbours: expected vertices from 0 to {n - 1}, got {wrong}")


def _check_weights(rows: Ints, ends: Ints, edges: Ints, weights: Ints) -> None:
    n = len(rows) - 1
    if len(edges) != len(ends):
        raise ValueError(f"edge_weights: expected {len(ends)} of them, got {len(edges)}")
    if len(weights) != n:
        hint = "; METIS has one balance constraint, not several" if len(weights) % n == 0 else ""
        raise ValueError(f"vertex_weights: expected {n} of them, got {len(weights)}{hint}")
    if len(edges) and edges.min() < 1:
        raise ValueError(f"edge_weights: expected at least 1, got {edges.min()}")
    if weights.min() < 0:
        raise ValueError(f"vertex_weights: expected at least 0, got {weights.min()}")
    if not weights.any():
        raise ValueError("vertex_weights: expected one above 0, got none")
    for name, column in (("edge_weights", edges), ("vertex_weights", weights)):
        if column.sum(dtype=np.float64) > _MOST:
            raise ValueError(f"{name}: expected a sum below 2^62, got more")


def _check_both_ways(rows: Ints, ends: Ints, edges: Ints) -> None:
    """Every edge is there in both directions, once, with one weight, and leads elsewhere."""
    n = len(rows) - 1
    starts = np.repeat(np.arange(n), np.diff(rows))
    if (starts == ends).any():
        raise ValueError(f"neighbours: expected no loops, got one at {ends[starts == ends][0]}")
    there = np.lexsort((ends, starts))
    back = np.lexsort((starts, ends))
    one_way = (starts[there] != ends[back]) | (ends[there] != starts[back])
    if one_way.any():
        at = there[one_way.argmax()]
        raise ValueError(
            f"neighbours: expected every edge in both directions, got {starts[at]} to {ends[at]}"
            " in one"
        )
    if len(ends) > 1:
        twice = (np.diff(starts[there]) == 0) & (np.diff(ends[there]) == 0)
        if twice.any():
            at = there[twice.argmax()]
            raise ValueError(
                f"neighbours: expected each edge once, got {starts[at]} to {ends[at]} twice"
            )
    if (edges[there] != edges[back]).any():
        at = there[(edges[there] != edges[back]).argmax()]
        raise ValueError(
            f"edge_weights: expected one weight for both directions, got two for {starts[at]} and"
            f" {ends[at]}"
        )
