"""Levels: immutable sorted rows of keyed state, and how they are searched and merged.

A level holds one row per key, ascending by the key's identity (`pyroute.keys`). A newer level
overrides an older one; a row with `deleted` set says that the key is gone. Rows are compared by
the VALUES of their key columns: the identity finds candidates, and two keys that share one are
two keys.

A level is a sequence of record batches of at most 65,536 rows and 64 MiB, more only where one row
or one identity has more. No identity lies in two of them, so that those who look for a few keys
need only the batches of these.

Threads: immutable, so any number may read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_udf.stream import schema as schemas
from spark_udf.stream.schema import StateSchema, equal_rows, row_bytes

BATCH_ROWS = 1 << 16
BATCH_BYTES = 64 << 20

Ids = npt.NDArray[np.uint64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Run:
    """Rows of distinct keys with their identities, ascending: one record batch of a level."""

    ids: Ids
    deleted: Mask
    rows: pa.RecordBatch

    def __post_init__(self) -> None:
        self.ids.flags.writeable = False
        self.deleted.flags.writeable = False

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def collides(self) -> bool:
        """Whether two keys share an identity."""
        return bool((self.ids[1:] == self.ids[:-1]).any())

    @property
    def nbytes(self) -> int:
        """Memory in use."""
        return int(self.ids.nbytes + self.deleted.nbytes + self.rows.nbytes)

    def columns(self, names: Sequence[str]) -> pa.RecordBatch:
        """Some of the columns, not copied."""
        return self.rows.select(names)

    def slice(self, start: int, stop: int) -> Run:
        """The rows from start to stop, not copied."""
        if start == 0 and stop == len(self):
            return self
        return Run(
            self.ids[start:stop], self.deleted[start:stop], self.rows.slice(start, stop - start)
        )

    def take(self, index: Index) -> Run:
        """The rows at ascending positions."""
        return Run(self.ids[index], self.deleted[index], self.rows.take(pa.array(index)))

    def where(self, mask: Mask) -> Run:
        """The rows where the mask says so."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def candidates(self, ids: Ids) -> tuple[Index, Index]:
        """Pairs (position in `ids`, row) of equal identity; a key's row is among them."""
        left = np.searchsorted(self.ids, ids)
        if not self.collides:
            at = np.flatnonzero(left < len(self))
            at = at[self.ids[left[at]] == ids[at]]
            return at, left[at]
        counts = np.searchsorted(self.ids, ids, "right") - left
        at = np.repeat(np.arange(len(ids)), counts)
        nth = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
        return at, left[at] + nth


def sort_rows(schema: StateSchema, rows: pa.RecordBatch, *, deleted: bool = False) -> Run:
    """Rows in any order as a run; of equal keys the last one."""
    keys = rows.select(schema.keys.names)
    ids = schemas.identities(keys.columns)
    keep = _newest(ids, keys)
    return Run(ids[keep], np.full(len(keep), deleted), rows.take(pa.array(keep)))


def _newest(ids: Ids, keys: pa.Table | pa.RecordBatch) -> Index:
    """Positions of the last row of every key, ascending by identity."""
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    again = ids[1:] == ids[:-1]
    if not again.any():
        return order
    last = np.append(~again, True)
    pairs = np.flatnonzero(again)
    equal = equal_rows(_pick(keys, order[pairs]), _pick(keys, order[pairs + 1]))
    if not equal.all():
        # Keys that share an identity: the engine's own grouping compares their values.
        group = np.concatenate([[0], np.cumsum(~again)])
        mixed = np.zeros(group[-1] + 1, np.bool_)
        mixed[group[pairs[~equal]]] = True
        rows = np.flatnonzero(mixed[group])
        names = [str(i) for i in range(keys.num_columns)]
        columns = _pick(keys, order[rows]).columns
        table = pa.table([*columns, pa.array(rows)], names=[*names, "row"])
        final = table.group_by(names, use_threads=False).aggregate([("row", "max")])
        last[rows] = False
        last[final.column("row_max").to_numpy()] = True
    kept: Index = order[last]
    return kept


def _pick(data: pa.Table | pa.RecordBatch, index: Index) -> pa.RecordBatch:
    """Rows as one record batch."""
    taken = data.take(pa.array(index))
    if isinstance(taken, pa.RecordBatch):
        return taken
    batches = taken.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=taken.schema)


def _merge_runs(schema: StateSchema, runs: Sequence[Run]) -> Run:
    """The newest row of every key of runs given oldest first."""
    if len(runs) == 1:
        return runs[0]
    ids = np.concatenate([run.ids for run in runs])
    rows = pa.Table.from_batches([run.rows for run in runs])
    keep = _newest(ids, rows.select(schema.keys.names))
    deleted = np.concatenate([run.deleted for run in runs])
    return Run(ids[keep], deleted[keep], _pick(rows, keep))


class Level:
    """One sorted level, in memory or in a file of which only the needed batches are read."""

    def __init__(
        self,
        schema: StateSchema,
        firsts: Ids,
        rows: int,
        nbytes: int,
        load: Callable[[int], Run],
    ) -> None:
        self.schema = schema
        self.firsts = firsts
        """The first identity of every batch."""
        self.rows = rows
        self.nbytes = nbytes
        self._load = load
        self._runs: list[Run | None] = [None] * len(firsts)

    @classmethod
    def of(cls, schema: StateSchema, runs: Iterable[Run]) -> Level:
        """A level in memory, of runs whose identities ascend from one run to the next."""
        bounded = list(_bounded(runs))
        return cls(
            schema,
            np.array([run.ids[0] for run in bounded], np.uint64),
            sum(len(run) for run in bounded),
            sum(run.nbytes for run in bounded),
            bounded.__getitem__,
        )

    def run(self, i: int) -> Run:
        """One batch; read and checked the first time."""
        run = self._runs[i]
        if run is None:
            run = self._runs[i] = self._load(i)
        return run

    def runs(self) -> Iterator[Run]:
        """All batches, ascending."""
        return map(self.run, range(len(self.firsts)))

    def between(self, low: np.uint64 | None, high: np.uint64 | None) -> Iterator[Run]:
        """Rows of identities from `low` to below `high`; None is no limit."""
        start = 0
        if low is not None:
            start = max(0, int(np.searchsorted(self.firsts, low, "right")) - 1)
        stop = len(self.firsts) if high is None else int(np.searchsorted(self.firsts, high))
        for i in range(start, stop):
            run = self.run(i)
            first = 0 if low is None else int(np.searchsorted(run.ids, low))
            end = len(run) if high is None else int(np.searchsorted(run.ids, high))
            if first < end:
                yield run.slice(first, end)

    def _parts(self, ids: Ids) -> Iterator[tuple[int, int, Run]]:
        """(start, stop, run): the batch in which the ascending ids[start:stop] are, if at all."""
        part = np.searchsorted(self.firsts, ids, "right") - 1
        edges = np.searchsorted(part, np.arange(len(self.firsts) + 1))
        for i in np.flatnonzero(np.diff(edges)).tolist():
            yield int(edges[i]), int(edges[i + 1]), self.run(i)

    def find(self, ids: Ids, keys: pa.RecordBatch) -> Iterator[tuple[Index, Run, Index]]:
        """(positions in `keys`, run, rows): the rows of keys given ascending by identity."""
        for start, stop, run in self._parts(ids):
            at, rows = run.candidates(ids[start:stop])
            if len(at):
                at += start
                index = pa.array(rows)
                same = equal_rows(
                    keys.take(pa.array(at)), run.columns(self.schema.keys.names).take(index)
                )
                yield at[same], run, rows[same]

    def having(self, ids: Ids) -> Iterator[Run]:
        """All rows of identities given ascending and distinct."""
        for start, stop, run in self._parts(ids):
            rows = run.candidates(ids[start:stop])[1]
            if len(rows):
                yield run.take(rows)


def _bounded(runs: Iterable[Run]) -> Iterator[Run]:
    """The same rows in runs of bounded size, all but the last at least half full."""
    rest: list[Run] = []
    for run in runs:
        *full, last = _cut(_joined([*rest, run]))
        yield from full
        rest = [last]
        if 2 * len(last) >= BATCH_ROWS or 2 * last.nbytes >= BATCH_BYTES:
            yield last
            rest = []
    yield from (run for run in rest if len(run))


def _joined(runs: list[Run]) -> Run:
    runs = [run for run in runs if len(run)] or runs[:1]
    if len(runs) == 1:
        return runs[0]
    return Run(
        np.concatenate([run.ids for run in runs]),
        np.concatenate([run.deleted for run in runs]),
        pa.Table.from_batches([run.rows for run in runs]).combine_chunks().to_batches()[0],
    )


def _cut(run: Run) -> list[Run]:
    """Parts within the bounds; a row or an identity that exceeds them is a part by itself."""
    if len(run) <= BATCH_ROWS and run.nbytes <= BATCH_BYTES:
        return [run]
    shares = np.cumsum(np.maximum(row_bytes(run.rows) / BATCH_BYTES, 1 / BATCH_ROWS))
    parts = []
    start, used = 0, 0.0
    while start < len(run):
        stop = int(np.searchsorted(shares, used + 1 + 1e-9, "right"))
        if stop < len(run):
            stop = int(np.searchsorted(run.ids, run.ids[stop]))
            if stop <= start:
                stop = int(np.searchsorted(run.ids, run.ids[start], "right"))
        parts.append(run.slice(start, stop))
        start, used = stop, shares[stop - 1]
    return parts


def lookup(
    levels: Sequence[Level], ids: Ids, keys: pa.RecordBatch
) -> Iterator[tuple[Index, Run, Index]]:
    """(positions in `keys`, run, rows): the newest row of each key, deleted or not.

    Levels are oldest first, keys ascending by identity.
    """
    pending = np.arange(len(ids))
    for level in reversed(levels):
        missing = np.ones(len(pending), np.bool_)
        for at, run, rows in level.find(ids, keys):
            yield pending[at], run, rows
            missing[at] = False
        if not missing.all():
            left = np.flatnonzero(missing)
            pending, ids, keys = pending[left], ids[left], keys.take(pa.array(left))


def merged(
    schema: StateSchema, levels: Sequence[Level], columns: Sequence[str], ids: Ids | None = None
) -> Iterator[Run]:
    """The newest row of every key of levels given oldest first, deleted or not.

    Ascending, a range of identities at a time, so that memory is that of a few batches.

    Parameters
    ----------
    schema
        Of all levels.
    levels
        Oldest first.
    columns
        What is wanted, the key columns among it.
    ids
        Identities, ascending and distinct: only their rows, and only the batches that hold them.
    """
    if not levels:
        return
    if ids is not None:
        parts = [run for level in levels for run in level.having(ids)]
        if parts:
            yield _merge_runs(schema, [_project(part, columns) for part in parts])
        return
    cuts = list(max(levels, key=lambda level: level.rows).firsts[1:])
    for low, high in zip([None, *cuts], [*cuts, None], strict=True):
        parts = [run for level in levels for run in level.between(low, high)]
        if parts:
            yield _merge_runs(schema, [_project(part, columns) for part in parts])


def _project(run: Run, columns: Sequence[str]) -> Run:
    return Run(run.ids, run.deleted, run.columns(columns))


def merge(schema: StateSchema, levels: Sequence[Level], *, oldest: bool) -> Level:
    """Several levels, oldest first, as one; where no level is older, deleted rows are dropped."""
    runs = merged(schema, levels, schema.rows.names)
    return Level.of(schema, (run.where(~run.deleted) for run in runs) if oldest else runs)
