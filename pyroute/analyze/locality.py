"""How many records could stay on their server between two keyed steps, in and out of sample.

A plan that is judged by the records it was made from promises too much: the first half of a stream
plans, and the rest judges. How long a stream is shows at its end alone, so pairs are counted in
chunks of equal length, of which two neighbours become one when there are too many; the half is the
end of the chunk that is nearest to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyroute.analyze.scan import keys_of
from pyroute.analyze.source import Batch
from pyroute.colocate import colocate
from pyroute.space_saving import PairSpaceSaving

if TYPE_CHECKING:
    from pyroute.colocation import ColocationPlan

__all__ = ["MOST_TASKS", "PairChunks", "Sample", "Stay", "stay"]

CHUNKS = 8
PAIRS = 1 << 16
"""Pairs that a chunk counts by name, in 4 MB and the names."""
MOST_TASKS = 1024
"""Beyond it a plan takes minutes."""


class PairChunks:
    """Pairs of a stream in a few chunks of equal length, the last one no longer.

    Parameters
    ----------
    keys, pair
        Columns of the key, and of the key of the step after.
    capacity
        Pairs that each chunk counts by name.
    most
        Chunks that there are at most, an even number.
    """

    def __init__(
        self, keys: Sequence[str], pair: str, *, capacity: int = PAIRS, most: int = CHUNKS
    ) -> None:
        self.keys, self.pair = tuple(keys), pair
        self._capacity, self._most = capacity, most
        self._length = 1
        self._chunks: list[PairSpaceSaving] = []
        self._types = PairSpaceSaving(1)

    def add(self, batch: Batch) -> None:
        """Count the pairs of some rows; `TypeError` where keys are of another type than before."""
        # A chunk knows its own types alone: one row of each batch is compared with all before.
        self._observe(self._types, batch, 0, 1)
        for chunk, begin, end in self._cut(batch.data.num_rows):
            self._observe(chunk, batch, begin, end)

    def _observe(self, chunk: PairSpaceSaving, batch: Batch, begin: int, end: int) -> None:
        part = Batch(batch.data.slice(begin, end - begin), batch.file, batch.start + begin)
        chunk._core.observe(keys_of(part, self.keys), keys_of(part, (self.pair,)), None)

    def _cut(self, rows: int) -> Iterator[tuple[PairSpaceSaving, int, int]]:
        """Chunks with the rows that they take."""
        begin = 0
        while begin < rows:
            if not self._chunks or self._chunks[-1].total == self._length:
                self._begin()
            chunk = self._chunks[-1]
            end = min(rows, begin + self._length - chunk.total)
            yield chunk, begin, end
            begin = end

    def _begin(self) -> None:
        if len(self._chunks) == self._most:
            for left, right in zip(self._chunks[::2], self._chunks[1::2], strict=True):
                left.merge(right)
            del self._chunks[1::2]
            self._length *= 2
        self._chunks.append(PairSpaceSaving(self._capacity))

    def halves(self) -> tuple[PairSpaceSaving, PairSpaceSaving | None]:
        """What about the first half of the records holds, and what the others do, if any."""
        total = sum(chunk.total for chunk in self._chunks)
        ends = range(1, len(self._chunks))
        half = min(ends, key=lambda end: abs(2 * end * self._length - total), default=1)
        rest = self._chunks[half:]
        return self._merged(self._chunks[:half]), self._merged(rest) if rest else None

    def _merged(self, chunks: Sequence[PairSpaceSaving]) -> PairSpaceSaving:
        made = PairSpaceSaving(self._capacity)
        for chunk in chunks:
            made.merge(chunk)
        return made


@dataclass(frozen=True)
class Sample:
    """Some records: the share of them that stays, and the busiest task of both steps."""

    records: int
    by_hash: float
    planned: float
    at_least: float
    """What is certain of `planned`, where counts of pairs have errors."""
    busiest_by_hash: tuple[float, ...]
    """Load of the busiest task by the mean, of the key and of its pair."""
    busiest: tuple[float, ...]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "records": self.records,
            "hash": self.by_hash,
            "planned": self.planned,
            "planned_at_least": self.at_least,
            "max_by_mean_hash": list(self.busiest_by_hash),
            "max_by_mean_planned": list(self.busiest),
        }


@dataclass(frozen=True)
class Stay:
    """How many records stay on their server by hash, and with a plan from the first ones."""

    keys: tuple[str, ...]
    pair: str
    tasks: int
    exact: bool
    """Whether all pairs were counted by name."""
    plan: ColocationPlan
    in_sample: Sample
    out_of_sample: Sample | None
    """None where there is one record alone."""

    @property
    def name(self) -> str:
        """The two steps."""
        return f"{', '.join(self.keys)} -> {self.pair}"

    @property
    def used(self) -> str:
        """Which records planned, and which judged."""
        text = f"planned from the first {self.in_sample.records:,} records"
        if self.out_of_sample is None:
            return text
        return f"{text}, judged on the {self.out_of_sample.records:,} after them"

    @property
    def gain(self) -> float:
        """How much more of the records than by hash stay, out of sample."""
        after = self.out_of_sample
        return 0.0 if after is None else after.planned - after.by_hash

    def document(self) -> dict[str, Any]:
        """As JSON."""
        after = self.out_of_sample
        return {
            "pair": self.pair,
            "exact": self.exact,
            "in_sample": self.in_sample.document(),
            "out_of_sample": None if after is None else after.document(),
            "coverage": self.plan.coverage,
            "tables": [len(table) for table in self.plan.tables.values()],
            "feasible": self.plan.feasible,
        }


def stay(chunks: PairChunks, tasks: int, *, max_imbalance: float, max_table: int) -> Stay:
    """What a plan from the first half of the records gives there and in the rest.

    There are as many servers as tasks, with one task of each step on each. Pairs that were not
    counted by name stay by chance.
    """
    first, rest = chunks.halves()
    plan = colocate(first, tasks, max_imbalance=max_imbalance, max_table=max_table)
    inside = Sample(
        first.total,
        plan.locality_before,
        plan.locality,
        plan.assured_locality,
        _busiest(plan.imbalance_before),
        _busiest(plan.imbalance),
    )
    after = None
    if rest is not None:
        hashed, judged = (
            colocate(rest, tasks, routers=routers, movable={})  # which moves nothing
            for routers in (plan.routers_before, plan.routers)
        )
        after = Sample(
            rest.total,
            hashed.locality,
            judged.locality,
            judged.assured_locality,
            _busiest(hashed.imbalance),
            _busiest(judged.imbalance),
        )
    exact = first.floor == 0 and (rest is None or rest.floor == 0)
    return Stay(chunks.keys, chunks.pair, tasks, exact, plan, inside, after)


def _busiest(imbalance: dict[str, float]) -> tuple[float, ...]:
    return tuple(1 + each for each in imbalance.values())
