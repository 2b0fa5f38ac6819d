"""The state of one task in one batch: what it reads and writes, and which keys came and went.

The state is the levels of the last manifest and, over them, the changes of this batch. Nothing is
written before `flush`, and nothing that was loaded is ever changed: an attempt that fails leaves
no trace but files that no manifest names.

Keys move by pull. When the routing changed, every task opens its state with the new owner of keys:
it deletes the rows of its own that are now another's, and copies those that are now its own from
the files of the tasks that had them. Both are changes of the batch like any other, so that a key
which left is deleted in the files it left, and cannot be found there when it returns. This holds
if all tasks of the old and of the new routing open their state in the first batch under the new
one; a task that is no more is left out of the manifest.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_udf.stream import schema as schemas
from spark_udf.stream.cache import CACHE, LevelCache, open_level
from spark_udf.stream.files import LevelFile, TaskFiles, encode
from spark_udf.stream.levels import Ids, Index, Level, Run, lookup, merge, merged, sort_rows
from spark_udf.stream.schema import StateSchema, row_bytes
from spark_udf.stream.store import Store
from spark_udf.stream.tiers import merge_from

Owner = Callable[..., npt.NDArray[np.int32]]
"""From the key columns, as Arrow arrays, to the task of every row: `owner(*columns)`."""


@dataclass(frozen=True)
class Moved:
    """Keys that came to a task and left it because the routing changed."""

    keys_in: int = 0
    bytes_in: int = 0
    keys_out: int = 0


class KeyedState:
    """The state of one task's keys, as a function of one batch sees it; made by `open_state`.

    Keys are compared by value: two keys of one 64-bit identity are two keys. A null is a key like
    any other.

    Threads: one.
    """

    def __init__(
        self,
        schema: StateSchema,
        task: int,
        files: TaskFiles,
        levels: Sequence[Level],
        cache: LevelCache,
    ) -> None:
        self.schema = schema
        self.task = task
        self.moved = Moved()
        """Keys that came and went when the state was opened."""
        self._files = files
        self._levels = tuple(levels)
        self._cache = cache
        self._changes: list[Level] = []
        self._settled: tuple[Level, int] | None = None

    def read(self, keys: Any) -> tuple[pa.Table, pa.BooleanArray]:
        """The values of keys, with what this batch wrote before.

        Parameters
        ----------
        keys
            A Table or RecordBatch with the key columns, or an array where there is one; in any
            order, and a key may come twice.

        Returns
        -------
        rows, found
            The value columns, null where there is no such key, and whether there is one; in the
            order of `keys`.
        """
        tables, found = [], []
        for batch in self.schema.key_batches(keys):
            ids, columns, order = _ascending(batch)
            rows, at = self._values([*self._levels, *self._changes], ids, columns)
            index = np.full(len(ids), -1)
            index[order[at]] = np.arange(len(at))
            absent = index < 0
            tables.append(rows.take(pa.array(index, mask=absent)))
            found.append(pa.array(~absent))
        if not tables:
            return self.schema.values.empty_table(), pa.array([], pa.bool_())
        return pa.concat_tables(tables), pa.concat_arrays(found)

    def write(self, rows: Any) -> None:
        """Set the values of keys; of rows with equal keys the last one counts.

        Parameters
        ----------
        rows
            A Table or RecordBatch with exactly the key columns and value columns.
        """
        for batch in self.schema.row_batches(rows):
            self._change(sort_rows(self.schema, batch))

    def delete(self, keys: Any) -> None:
        """Forget keys, as `read` takes them; those that are not there stay away."""
        for batch in self.schema.key_batches(keys):
            self._delete(batch)

    def scan(self) -> Iterator[pa.RecordBatch]:
        """All live rows, key columns and value columns, as they are at the call."""
        levels = [*self._levels, *self._changes]
        return self._scan(levels, self.schema.rows.names)

    def __len__(self) -> int:
        return self._settle()[1]

    def written(self) -> Iterator[pa.RecordBatch]:
        """Keys that this batch wrote and did not delete again."""
        for run in self._settle()[0].runs():
            live = run.where(~run.deleted)
            if len(live):
                yield live.columns(self.schema.keys.names)

    def flush(self, store: Store, batch: int, attempt: int) -> TaskFiles:
        """Write what changed as one file, merged with older levels where that is due.

        The state stays as it is: a flush that fails may be tried again.

        Parameters
        ----------
        store
            Where to write.
        batch, attempt
            Part of the file's name; no two attempts write the same one.

        Returns
        -------
        TaskFiles
            What the next manifest says of this task; without changes the files that there were.
        """
        delta, live = self._settle()
        if not delta.rows:
            return TaskFiles(self._files.levels, self._files.rows, 0)
        sizes = [*(level.rows for level in self._levels), delta.rows]
        start = merge_from(sizes, live, self.task, batch)
        level = delta
        if start < len(self._levels):
            level = merge(self.schema, [*self._levels[start:], delta], oldest=start == 0)
        older = self._files.levels[:start]
        if not level.rows:
            return TaskFiles(older, live, 0)
        name = f"state/{self.task:05d}/{batch:012d}-{attempt}-{uuid.uuid4().hex}.arrow"
        data = encode(level, self.task)
        store.write(name, data)
        self._cache.put(store, name, level)
        return TaskFiles((*older, LevelFile(name, level.rows, data.size)), live, data.size)

    def _change(self, run: Run) -> None:
        """Put a run over all others; runs of like size become one, so that there are few."""
        if not len(run):
            return
        self._settled = None
        self._changes.append(Level.of(self.schema, [run]))
        while len(self._changes) > 1 and self._changes[-2].rows <= 2 * self._changes[-1].rows:
            self._changes[-2:] = [merge(self.schema, self._changes[-2:], oldest=False)]

    def _delete(self, keys: pa.RecordBatch) -> None:
        nothing = [pa.nulls(keys.num_rows, field.type) for field in self.schema.values]
        rows = pa.RecordBatch.from_arrays([*keys.columns, *nothing], schema=self.schema.rows)
        self._change(sort_rows(self.schema, rows, deleted=True))

    def _settle(self) -> tuple[Level, int]:
        """The changes as one level, deleting only what there is, and the live rows with them."""
        if self._settled is None:
            live = self._files.rows
            runs = []
            for run in merged(self.schema, self._changes, self.schema.rows.names):
                held = np.zeros(len(run), np.bool_)
                keys = run.columns(self.schema.keys.names)
                for at, older, rows in lookup(self._levels, run.ids, keys):
                    held[at] = ~older.deleted[rows]
                live += int((~run.deleted & ~held).sum()) - int((run.deleted & held).sum())
                runs.append(run.where(~run.deleted | held))
            self._settled = Level.of(self.schema, runs), live
        return self._settled

    def _values(
        self, levels: Sequence[Level], ids: Ids, keys: pa.RecordBatch
    ) -> tuple[pa.Table, Index]:
        """Values of the live keys among those given, and which ones they are."""
        names = self.schema.values.names
        parts, positions = [], [np.empty(0, np.int64)]
        for at, run, rows in lookup(levels, ids, keys):
            live = ~run.deleted[rows]
            parts.append(run.columns(names).take(pa.array(rows[live])))
            positions.append(at[live])
        return pa.Table.from_batches(parts, schema=self.schema.values), np.concatenate(positions)

    def _scan(
        self, levels: Sequence[Level], columns: Sequence[str], ids: Ids | None = None
    ) -> Iterator[pa.RecordBatch]:
        for run in merged(self.schema, levels, columns, ids):
            live = run.where(~run.deleted)
            if len(live):
                yield live.rows

    def _move(self, owner: Owner, sources: Mapping[int, Sequence[Level]], ids: Ids | None) -> None:
        """Delete what is now another's and copy what is now this task's."""
        keys_in = bytes_in = keys_out = 0
        names = self.schema.keys.names
        leaving = []
        for keys in self._scan(self._levels, names, ids):
            away = np.flatnonzero(_owners(owner, keys) != self.task)
            if len(away):
                leaving.append(keys.take(pa.array(away)))
                keys_out += len(away)
        arriving = []
        for levels in sources.values():
            for keys in self._scan(levels, names, ids):
                here = np.flatnonzero(_owners(owner, keys) == self.task)
                if len(here):
                    rows = self._rows(levels, keys.take(pa.array(here)))
                    arriving.append(rows)
                    keys_in += rows.num_rows
                    bytes_in += int(row_bytes(rows).sum())
        before = self._files.rows
        for keys in leaving:
            self._delete(keys)
        for rows in arriving:
            self._change(sort_rows(self.schema, rows))
        if len(self) != before - keys_out + keys_in:
            raise ValueError(
                f"sources: expected the state of a key in one task's files, got"
                f" {before - keys_out + keys_in - len(self)} of task {self.task} in more"
            )
        self.moved = Moved(keys_in, bytes_in, keys_out)

    def _rows(self, levels: Sequence[Level], keys: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of live keys, with their values."""
        ids, keys, _ = _ascending(keys)
        values, at = self._values(levels, ids, keys)
        keys = keys.take(pa.array(at))
        columns = [*keys.columns, *(column.combine_chunks() for column in values.columns)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema.rows)


def open_state(
    store: Store,
    files: Mapping[int, TaskFiles],
    task: int,
    owner: Owner | None = None,
    sources: Sequence[int] = (),
    *,
    schema: StateSchema,
    moved_ids: npt.ArrayLike | None = None,
    cache: LevelCache = CACHE,
) -> KeyedState:
    """The state of a task as the last manifest has it, with the keys that move in this batch.

    Parameters
    ----------
    store
        Where the files are.
    files
        The tasks of the last manifest.
    task
        Whose state; a task without files has none yet.
    owner
        Where the routing changed since the files were written: the task of every key, from
        `owner(*key_columns)`, for example `lambda *columns: router.route(pr.keys(*columns))`.
        None where it did not change: then nothing is read before it is needed.
    sources
        The tasks from which keys may come.
    schema
        Columns of the state.
    moved_ids
        Identities of all keys that may have moved, more being allowed: only the batches that can
        hold them are read. None reads the keys of the task and of its sources.
    cache
        Levels that this process keeps.
    """
    own = files.get(task, TaskFiles())
    levels = [open_level(store, level.name, schema, cache) for level in own.levels]
    state = KeyedState(schema, task, own, levels, cache)
    if owner is None:
        if len(sources):
            raise ValueError(f"sources: expected none without an owner, got {list(sources)}")
        return state
    ids = None if moved_ids is None else _distinct(moved_ids)
    others = {
        source: [
            open_level(store, level.name, schema, cache, keep=False)
            for level in files[source].levels
        ]
        for source in sources
        if source != task and source in files
    }
    state._move(owner, others, ids)
    return state


def _ascending(keys: pa.RecordBatch) -> tuple[Ids, pa.RecordBatch, Index]:
    """Identities and keys ascending by identity, and where each of them was."""
    ids = schemas.identities(keys.columns)
    order = np.argsort(ids, kind="stable")
    return ids[order], keys.take(pa.array(order)), order


def _owners(owner: Owner, keys: pa.RecordBatch) -> npt.NDArray[np.int32]:
    tasks = np.asarray(owner(*keys.columns))
    if tasks.shape != (keys.num_rows,) or tasks.dtype.kind not in "iu":
        raise ValueError(
            f"owner: expected {keys.num_rows} tasks, got {tasks.dtype} of shape {tasks.shape}"
        )
    return tasks


def _distinct(moved_ids: npt.ArrayLike) -> Ids:
    ids = np.asarray(moved_ids)
    if ids.ndim != 1 or (ids.size and ids.dtype != np.uint64):
        raise TypeError(f"moved_ids: expected uint64 of one dimension, got {ids.dtype}")
    return np.unique(ids.astype(np.uint64))
