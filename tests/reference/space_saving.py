"""Twin of csrc/stats/filtered_counters.hpp and space_saving.hpp, with plain SpaceSaving."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reference.keys import hash_int, signed

SPREAD = 250
PAIR_SPREAD = 130
WAYS = 7
CELLS = 16
LARGEST_CELL = 2**32 - 1


def divide_up(a: int, b: int) -> int:
    return -(-a // b)


def pair_id(in_id: int, out_id: int) -> int:
    """Return the id of a pair: the out key hashed with the in key as seed."""
    return hash_int(signed(out_id), in_id)


@dataclass
class Way:
    """Room for one monitored id; free while its count is 0."""

    id: int = 0
    count: int = 0
    error: int = 0


class FilteredSpaceSaving:
    """Groups of ways and filter cells in a circle; everything is read from the definition."""

    def __init__(self, capacity: int, spread: int = SPREAD) -> None:
        self.capacity = capacity
        self.groups = [[Way() for _ in range(WAYS)] for _ in range(-(-capacity * spread // 700))]
        ways = WAYS * len(self.groups)
        self.step = max(1, min(capacity // 4, (ways - capacity) // 2))
        self.entries_since_look = 0
        self.stored = [0] * (CELLS * len(self.groups))  # multiples of unit
        self.unit = 1
        self.floor = 0
        self.total = 0
        self.monitored: dict[int, Way] = {}

    def observe(self, ids: Iterable[int], weights: Iterable[int] | None = None) -> None:
        ids = list(ids)
        for id_, weight in zip(ids, [1] * len(ids) if weights is None else weights, strict=True):
            if weight > 0:
                self.update(id_, weight)

    def update(self, id_: int, weight: int) -> None:
        self.total += weight
        cell = self.cell(id_)
        if id_ in self.monitored:
            self.monitored[id_].count += weight
        elif cell + weight <= self.floor:
            self.raise_cell(id_, cell + weight)
        else:
            self.enter(Way(id_, cell + weight, cell))

    def enter(self, new: Way) -> None:
        way = self.evictable(new.id)
        if way is None:
            self.raise_floor()
            way = self.evictable(new.id)
            assert way is not None
        if way.count:
            del self.monitored[way.id]
            self.raise_cell(way.id, way.count)
        way.id, way.count, way.error = new.id, new.count, new.error
        self.monitored[new.id] = way
        self.entries_since_look += 1
        if self.entries_since_look >= self.step:
            self.raise_floor()

    def evictable(self, id_: int) -> Way | None:
        own = self.cell_index(id_) // CELLS
        for group in self.groups[own:] + self.groups[:own]:
            least = min(way.count for way in group)
            if least <= self.floor:
                return [way for way in group if way.count == least][-1]
        return None

    def raise_floor(self) -> None:
        self.entries_since_look = 0
        counts = sorted((way.count for group in self.groups for way in group), reverse=True)
        self.floor = max(self.floor, counts[self.capacity - 1])
        unit = self.unit
        while divide_up(self.floor, unit) > LARGEST_CELL:
            unit *= 2
        self.stored = [divide_up(stored * self.unit, unit) for stored in self.stored]
        self.unit = unit

    def cell_index(self, id_: int) -> int:
        return (id_ & 0xFFFFFFFF) * len(self.stored) >> 32

    def cell(self, id_: int) -> int:
        return min(self.stored[self.cell_index(id_)] * self.unit, self.floor)

    def raise_cell(self, id_: int, value: int) -> None:
        at = self.cell_index(id_)
        self.stored[at] = max(self.stored[at], divide_up(value, self.unit))

    def estimate(self, id_: int) -> int:
        return self.monitored[id_].count if id_ in self.monitored else self.cell(id_)

    def top(self, most: int | None = None) -> list[tuple[int, int, int]]:
        """Return (id, count, error) by count descending, id ascending."""
        ways = sorted(self.monitored.values(), key=lambda way: (-way.count, way.id))
        most = self.capacity if most is None else min(most, self.capacity)
        return [(way.id, way.count, way.error) for way in ways[:most]]

    def __len__(self) -> int:
        return min(len(self.monitored), self.capacity)


class PlainSpaceSaving:
    """SpaceSaving as published: a new id replaces the least counter and inherits its count."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.counts: dict[int, int] = {}
        self.heap: list[tuple[int, int]] = []  # counts as they were when pushed, never too high

    def observe(self, ids: Sequence[int]) -> None:
        for id_ in ids:
            if id_ in self.counts:
                self.counts[id_] += 1
                continue
            least = self.evict() if len(self.counts) == self.capacity else 0
            self.counts[id_] = least + 1
            heapq.heappush(self.heap, (least + 1, id_))

    def evict(self) -> int:
        while True:
            count, id_ = self.heap[0]
            if count == self.counts[id_]:
                heapq.heappop(self.heap)
                return self.counts.pop(id_)
            heapq.heapreplace(self.heap, (self.counts[id_], id_))

    def top(self, most: int) -> list[int]:
        return sorted(self.counts, key=lambda id_: (-self.counts[id_], id_))[:most]
