"""A router as arrays that a JVM expression can look up; built on the driver, without Spark.

    owners   one per identifier of the circle; ~position where some tabled key has that identifier
    keys     cuckoo table of the tabled and split keys: a key is at its first slot, at its second,
             or not there; an empty slot holds a key that belongs elsewhere, so that none matches
    places   position of the target of each slot; ~split for a split key
    starts, counts, shares   of split s: its positions are shares[starts[s] : starts[s] + counts[s]]

A position is an index into the router's tasks, ascending. The two slots of a key are two fields of
its bits that the circle does not use, so that the expression needs shifts and masks alone: under
ANSI rules Spark refuses a multiplication that overflows.

Guarantees, each a test of that name in tests/spark/test_arrays.py:
  looked_up   every tabled and split key is found, and no other is
  bounded     at most 8 slots per key
Cost: O(entries) in NumPy. Threads: a value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyroute import Ring, Router

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]

_LEAST_BITS = 1
_ROUNDS = 200


@dataclass(frozen=True)
class Arrays:
    """What the expression reads, and how it finds a key's slots."""

    tasks: Int32
    owners: Int32 | None  # None where an engine's home is computed from the value
    circle_shift: int
    keys: Int64
    places: Int32
    slot_bits: int  # first slot: the lowest bits of the key; second: as many above them
    starts: Int32
    counts: Int32
    shares: Int32

    @property
    def tabled(self) -> bool:
        """Whether there is anything beside the home."""
        return len(self.keys) > 0

    @property
    def contiguous(self) -> bool:
        """Whether a task is its own position."""
        return bool((self.tasks == np.arange(len(self.tasks))).all())


def compile_router(router: Router) -> Arrays:
    """The arrays of a router."""
    tasks = np.array(router.tasks, np.int32)
    ids = router.table.ids
    places = _positions(tasks, router.table.targets)
    split_ids, starts, counts, shares = _splits(router, tasks)
    ids = np.concatenate([ids, split_ids])
    places = np.concatenate([places, ~np.arange(len(split_ids), dtype=np.int32)])
    home = router.home
    owners, circle_shift = None, 64
    if isinstance(home, Ring):
        owners = _positions(tasks, home.owners)
        circle_shift = 64 - (len(owners).bit_length() - 1)
        marked = np.unique(ids >> np.uint64(circle_shift))
        owners[marked.astype(np.int64)] = ~owners[marked.astype(np.int64)]
    keys, values, slot_bits = _cuckoo(ids, places)
    return Arrays(
        *(tasks, owners, circle_shift, keys, values, slot_bits), *(starts, counts, shares)
    )


def _positions(tasks: Int32, values: npt.ArrayLike) -> Int32:
    return np.searchsorted(tasks, np.asarray(values, np.int32)).astype(np.int32)


def _splits(router: Router, tasks: Int32) -> tuple[UInt64, Int32, Int32, Int32]:
    ids, lists = router.split_ids, list(router.splits.values())
    counts = np.array([len(one) for one in lists], np.int32)
    starts = (np.cumsum(counts) - counts).astype(np.int32)
    flat = np.array([task for one in lists for task in one], np.int32)
    return ids, starts, counts, _positions(tasks, flat)


def _cuckoo(ids: UInt64, places: Int32) -> tuple[Int64, Int32, int]:
    """Place every key in one of its two slots; a larger table where that fails."""
    if not len(ids):
        return np.empty(0, np.int64), np.empty(0, np.int32), 0
    bits = max(_LEAST_BITS, int(2 * len(ids) - 1).bit_length())
    while True:
        mask = np.uint64((1 << bits) - 1)
        first_slot = (ids & mask).astype(np.int64)
        second_slot = ((ids >> np.uint64(bits)) & mask).astype(np.int64)
        holder = _place(first_slot, second_slot, 1 << bits)
        if holder is not None:
            break
        bits += 1
        if bits > 30:
            raise ValueError(f"table: expected keys that differ in their bits, got {len(ids)}")
    slots = 1 << bits
    keys = _strangers(slots, bits)
    filled = holder >= 0
    keys[filled] = ids[holder[filled]]
    values = np.zeros(slots, np.int32)
    values[filled] = places[holder[filled]]
    return keys.view(np.int64), values, bits


def _place(first: Int64, second: Int64, slots: int) -> Int64 | None:
    """Which key each slot holds, -1 for none; None where some key found no slot."""
    holder = np.full(slots, -1, np.int64)
    at_second = np.zeros(len(first), np.bool_)
    homeless = np.arange(len(first))
    for _ in range(_ROUNDS):
        slot = np.where(at_second[homeless], second[homeless], first[homeless])
        evicted = holder[slot]
        holder[slot] = homeless  # the last of those that want one slot has it
        lost = homeless[holder[slot] != homeless]
        evicted = np.unique(evicted[evicted >= 0])
        homeless = np.concatenate([lost, evicted])
        if not len(homeless):
            return holder
        at_second[homeless] = ~at_second[homeless]
    return None


def _strangers(slots: int, bits: int) -> UInt64:
    """For each slot a key that belongs to another one, in both its places."""
    other = np.arange(1, slots + 1, dtype=np.uint64) % np.uint64(slots)
    return other | (other << np.uint64(bits))
