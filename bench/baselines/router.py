"""A mixed router in numba: an open-addressing table over a direct-index ring, for integer keys.

Gives what pyroute.Router gives. The table holds hashes, which are one to one with integer keys, at
a load of at most one half; the probe starts from the low bits, because the ring uses the high ones.
"""

from typing import Any

import numba as nb
import numpy as np

from bench.baselines.hashing import xxhash64

FREE = np.int32(-1)


@nb.njit(nogil=True)
def _fill(values: Any, targets: Any, ids: Any, tasks: Any) -> None:
    mask = np.uint64(len(ids) - 1)
    for i in range(len(values)):
        h = xxhash64(values[i])
        at = h & mask
        while tasks[at] != FREE:
            at = (at + np.uint64(1)) & mask
        ids[at] = h
        tasks[at] = targets[i]


@nb.njit(nogil=True)
def _route(values: Any, ids: Any, tasks: Any, owners: Any, bits: Any) -> Any:
    out = np.empty(len(values), np.int32)
    mask = np.uint64(len(ids) - 1)
    shift = np.uint64(64 - bits)
    for i in range(len(values)):
        h = xxhash64(values[i])
        at = h & mask
        while True:
            if tasks[at] == FREE:
                out[i] = owners[h >> shift]
                break
            if ids[at] == h:
                out[i] = tasks[at]
                break
            at = (at + np.uint64(1)) & mask
    return out


class Router:
    """Routes arrays of int64 keys over the owners of a circle."""

    def __init__(self, owners: Any, values: Any, targets: Any) -> None:
        size = 1 << (2 * max(len(values), 1) - 1).bit_length()
        self.ids = np.zeros(size, np.uint64)
        self.tasks = np.full(size, FREE, np.int32)
        self.owners = np.ascontiguousarray(owners)
        self.bits = len(owners).bit_length() - 1
        _fill(values, targets, self.ids, self.tasks)

    def route(self, values: Any) -> Any:
        return _route(values, self.ids, self.tasks, self.owners, self.bits)
