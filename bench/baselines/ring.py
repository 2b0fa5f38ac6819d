"""Ring lookups in numba: by binary search over the points, and by direct index into the circle."""

from typing import Any

import numba as nb
import numpy as np

from bench.baselines.hashing import xxhash64


def points(tasks: int, each: int, seed: int) -> tuple[Any, Any]:
    """Positions in ascending order, and the task at each: a ring of `tasks` x `each` points."""
    random = np.random.default_rng(seed)
    positions = random.integers(0, 2**64 - 1, tasks * each, dtype=np.uint64, endpoint=True)
    order = np.argsort(positions)
    return positions[order], (order % tasks).astype(np.int32)


@nb.njit(nogil=True)
def by_search(values: Any, positions: Any, owners: Any) -> Any:
    """The first point at or after the key's hash."""
    out = np.empty(len(values), np.int32)
    last = len(positions)
    for i in range(len(values)):
        h = xxhash64(values[i])
        base = 0
        length = last
        while length > 1:
            half = length >> 1
            base += half if positions[base + half - 1] < h else 0
            length -= half
        base += 1 if positions[base] < h else 0
        out[i] = owners[base if base < last else 0]
    return out


@nb.njit(nogil=True)
def by_index(values: Any, owners: Any, bits: Any) -> Any:
    """The owner at the top bits of the key's hash, as pyroute defines a home."""
    out = np.empty(len(values), np.int32)
    shift = np.uint64(64 - bits)
    for i in range(len(values)):
        out[i] = owners[xxhash64(values[i]) >> shift]
    return out
