"""A router as arrays that a JVM expression can look up; built on the driver, without Spark.

    owners   position of the owner of each arc of the circle, + places where some tabled key has
             that arc; arcs are as fine as the table asks for, so that few others have it too
    entries  cuckoo table of the tabled and split keys: a key is at its first slot, at its second,
             or not there
    starts, counts, shares   of split s: its positions are shares[starts[s] : starts[s] + counts[s]]

A position is an index into the router's tasks, ascending; a place is a position, or the number of
tasks + s for split s: 0, 1, 2, ... below `places`. With b = slot_bits the slots of a key are its
lowest b bits and the b above them, so that the expression needs shifts and masks alone: under ANSI
rules Spark refuses a multiplication that overflows. An entry has both what to compare and the
answer, so that a probe is one load:

    key             [ upper: 64 - 2b | second slot: b | first slot: b ]
    entry at first  [ upper          | second slot    | 01 | place | 0]
    entry at second [ upper          | first slot     | 10 | place | 0]
    empty           0

Exclusive or with what the key would have there leaves twice the place, or more than twice any. So
neither needs a comparison of its own: Spark would compute both of its sides anew where the answer
is one of them.

Guarantees, each a test of that name in tests/spark/test_arrays.py:
  looked_up   every tabled and split key is found, and no other is
  bounded     at most 8 slots per key, or 16 per task where those are more
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
Positions = npt.NDArray[np.int8] | npt.NDArray[np.int16] | Int32

_ROUNDS = 200
_FINE = 2  # arcs per tabled key: 2**2 to 2**3
_MOST_ARCS = 22
_FIELD = 3  # bits of an entry's lowest field beside the place


@dataclass(frozen=True)
class Arrays:
    """What the expression reads, and how it finds a key's slots."""

    tasks: Int32
    places: int
    owners: Positions | None  # None where an engine's home is computed from the value
    circle_shift: int
    entries: Int64
    slot_bits: int
    starts: Int32
    counts: Int32
    shares: Int32

    @property
    def tabled(self) -> bool:
        """Whether there is anything beside the home."""
        return len(self.entries) > 0

    @property
    def contiguous(self) -> bool:
        """Whether a task is its own position."""
        return bool((self.tasks == np.arange(len(self.tasks))).all())


def compile_router(router: Router) -> Arrays:
    """The arrays of a router."""
    tasks = np.array(router.tasks, np.int32)
    ids = router.table.ids
    targets = _positions(tasks, router.table.targets)
    split_ids, starts, counts, shares = _splits(router, tasks)
    ids = np.concatenate([ids, split_ids])
    places = len(tasks) + len(split_ids)
    targets = np.concatenate([targets, np.arange(len(tasks), places, dtype=np.int32)])
    owners, circle_shift = None, 64
    if isinstance(router.home, Ring):
        owners, circle_shift = _circle(router.home, tasks, ids, places)
    entries, slot_bits = _cuckoo(ids, targets, places)
    found = (owners, circle_shift, entries, slot_bits)
    return Arrays(tasks, places, *found, starts, counts, shares)


def _circle(home: Ring, tasks: Int32, ids: UInt64, places: int) -> tuple[Positions, int]:
    """Owners of the arcs, in as few bytes as hold a position, and how far a key is shifted."""
    owners = _positions(tasks, home.owners)
    bits = len(owners).bit_length() - 1
    wanted = min(len(ids).bit_length() + _FINE, _MOST_ARCS) if len(ids) else bits
    if wanted > bits:
        owners, bits = np.repeat(owners, 1 << (wanted - bits)), wanted
    marked = np.unique(ids >> np.uint64(64 - bits)).astype(np.int64)
    owners[marked] += places
    most = len(tasks) + places
    if most <= np.iinfo(np.int8).max:
        return owners.astype(np.int8), 64 - bits
    return owners.astype(np.int16) if most <= np.iinfo(np.int16).max else owners, 64 - bits


def _positions(tasks: Int32, values: npt.ArrayLike) -> Int32:
    return np.searchsorted(tasks, np.asarray(values, np.int32)).astype(np.int32)


def _splits(router: Router, tasks: Int32) -> tuple[UInt64, Int32, Int32, Int32]:
    ids, lists = router.split_ids, list(router.splits.values())
    counts = np.array([len(one) for one in lists], np.int32)
    starts = (np.cumsum(counts) - counts).astype(np.int32)
    flat = np.array([task for one in lists for task in one], np.int32)
    return ids, starts, counts, _positions(tasks, flat)


def _cuckoo(ids: UInt64, places: Int32, most: int) -> tuple[Int64, int]:
    """Every key in one of its two slots, `most` above all places; larger where that fails."""
    if not len(ids):
        return np.empty(0, np.int64), 0
    bits = max(int(2 * len(ids) - 1).bit_length(), (most - 1).bit_length() + _FIELD)
    while True:
        mask = np.uint64((1 << bits) - 1)
        low, middle = ids & mask, (ids >> np.uint64(bits)) & mask
        holder = _place(low.astype(np.int64), middle.astype(np.int64), 1 << bits)
        if holder is not None:
            break
        bits += 1
        if bits > 30:
            raise ValueError(f"table: expected keys that differ in their bits, got {len(ids)}")
    slots = np.flatnonzero(holder >= 0).astype(np.uint64)
    at = holder[slots.astype(np.int64)]
    first = low[at] == slots
    kept = np.where(first, middle[at], low[at])
    upper = ids[at] >> np.uint64(2 * bits) << np.uint64(2 * bits)
    mark = np.where(first, np.uint64(1), np.uint64(2)) << np.uint64(bits - 2)
    entries = np.zeros(1 << bits, np.uint64)
    entries[slots.astype(np.int64)] = (
        upper | kept << np.uint64(bits) | mark | places[at].astype(np.uint64) << np.uint64(1)
    )
    return entries.view(np.int64), bits


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
