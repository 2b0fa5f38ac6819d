"""Plain SpaceSaving in numba, the form of the paper, for integer keys.

Open addressing over the keys, with backward-shift deletion. The key that gives way is any one with
the least count, found by a sweep that starts again when the least count rises: at most
N / capacity times, so an update is O(1) amortised.
"""

from typing import Any

import numba as nb
import numpy as np

from bench.baselines.hashing import xxhash64

NONE = np.int32(-1)


@nb.njit(inline="always")
def _home(key: Any, mask: Any) -> Any:
    return np.int64(xxhash64(key) & np.uint64(mask))


@nb.njit(inline="always")
def _erase(entry: Any, slots: Any, keys: Any) -> None:
    """Take the entry's key out and close the gap behind it."""
    mask = len(slots) - 1
    hole = _home(keys[entry], mask)
    while slots[hole] != entry:
        hole = (hole + 1) & mask
    follower = (hole + 1) & mask
    while slots[follower] != NONE:
        home = _home(keys[slots[follower]], mask)
        if ((follower - home) & mask) >= ((follower - hole) & mask):
            slots[hole] = slots[follower]
            hole = follower
        follower = (follower + 1) & mask
    slots[hole] = NONE


@nb.njit(nogil=True)
def _observe(stream: Any, slots: Any, keys: Any, counts: Any, errors: Any, state: Any) -> None:
    mask = len(slots) - 1
    size, sweep, least = state[0], state[1], state[2]
    for key in stream:
        at = _home(key, mask)
        found = False
        while slots[at] != NONE:
            if keys[slots[at]] == key:
                counts[slots[at]] += 1
                found = True
                break
            at = (at + 1) & mask
        if found:
            continue
        if size < len(keys):
            entry = size
            size += 1
        else:
            while True:
                if sweep == size:
                    least = counts.min()
                    sweep = 0
                if counts[sweep] == least:
                    break
                sweep += 1
            entry = sweep
            errors[entry] = counts[entry]
            _erase(entry, slots, keys)
            at = _home(key, mask)
            while slots[at] != NONE:
                at = (at + 1) & mask
        keys[entry] = key
        counts[entry] += 1
        slots[at] = entry
    state[0], state[1], state[2] = size, sweep, least


class SpaceSaving:
    """Observes arrays of int64."""

    def __init__(self, capacity: int) -> None:
        self.slots = np.full(1 << (2 * capacity - 1).bit_length(), NONE, np.int32)
        self.keys = np.zeros(capacity, np.int64)
        self.counts = np.zeros(capacity, np.int64)
        self.errors = np.zeros(capacity, np.int64)
        self.state = np.array([0, 0, 1], np.int64)

    def observe(self, values: Any) -> None:
        _observe(values, self.slots, self.keys, self.counts, self.errors, self.state)

    def top(self, most: int) -> tuple[Any, Any, Any]:
        """Keys, counts and errors of the `most` heaviest."""
        size = int(self.state[0])
        order = np.argsort(-self.counts[:size], kind="stable")[:most]
        return self.keys[order], self.counts[order], self.errors[order]
