"""Groups of rows that come in order, in batches; what a function makes of each. No Spark here.

    runs       where the key changes: every row is compared with the one before, column by column
    groups     the rows of each key, over the boundaries of batches, as slices that copy nothing
    applied    what a function answers to each group, checked and in batches
    marked     the same, with what a merge needs to know of the keys that are split
    merged     what a second function makes of the answers to each split key; others pass

Guarantees, each a test of that name in tests/spark/test_groups.py:
  framing    batches of any length, empty ones too, give the same groups
  by_value   a group is one value: null is one, and two values of one identity are two
  zero_copy  the rows of a group are those of the batches
  bounded    what is held at any time is one group and the batches it touches; where rows are
             sorted by a hash of the key, the groups of one
Cost: O(rows) in NumPy and Arrow, and a call of the function per group. Threads: none is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import pyroute

BATCH_ROWS = 10_000
"""Rows of an outgoing batch, at most; the answers to small groups are put together."""

BATCH_BYTES = 16 << 20

Int64 = npt.NDArray[np.int64]
Function = Callable[..., Any]
Mark = Callable[[list[pa.Array]], Sequence[Any]]


def runs(columns: Sequence[pa.Array]) -> Int64:
    """Where a run of equal keys starts; null equals null."""
    changes = np.ones(len(columns[0]), np.bool_)
    if len(changes) > 1:
        changes[1:] = _changes(columns[0])
        for column in columns[1:]:
            changes[1:] |= _changes(column)
    return np.flatnonzero(changes)


def _changes(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each row but the first differs from the one before."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column) - 1, np.bool_)
    before, after = column[:-1], column[1:]
    differs = pc.not_equal(before, after)
    if column.null_count:
        # Unknown where either is null: they differ where just one is.
        differs = pc.coalesce(differs, pc.xor(pc.is_null(before), pc.is_null(after)))
    out: npt.NDArray[np.bool_] = differs.to_numpy(zero_copy_only=False)
    return out


class Group:
    """The rows of one key, as slices of batches, and where its value is found."""

    __slots__ = ("_columns", "_row", "hashed", "mark", "pieces")

    def __init__(self, columns: list[pa.Array], row: int, hashed: int | None, mark: Any) -> None:
        self._columns = columns
        self._row = row
        self.hashed = hashed
        self.mark = mark
        self.pieces: list[pa.RecordBatch] = []

    @property
    def key(self) -> tuple[pa.Scalar, ...]:
        """The key's value, a scalar for each of its columns."""
        return tuple(column[self._row] for column in self._columns)

    @property
    def table(self) -> pa.Table:
        """The rows."""
        return pa.Table.from_batches(self.pieces)

    def has(self, columns: list[pa.Array], row: int) -> bool:
        """Whether that row of these columns has this key."""
        pairs = zip(self._columns, columns, strict=True)
        return all(mine[self._row].equals(theirs[row]) for mine, theirs in pairs)


def groups(
    batches: Iterable[pa.RecordBatch],
    keys: Sequence[int],
    own: int,
    by: int | None = None,
    mark: Mark | None = None,
) -> Iterator[Group | None]:
    """The groups, each as soon as it is complete, and None after each batch.

    Parameters
    ----------
    batches
        Rows with equal keys beside each other.
    keys
        Positions of the key's columns.
    own
        How many columns, the first ones, are the rows' own; groups have no others.
    by
        Position of a hash of the key, where rows are sorted by that: then rows of one key may have
        some of another among them that has the same hash.
    mark
        Makes a mark for each group from the key columns at the groups' first rows.
    """
    alike: list[Group] = []  # of one hash; the last of them is open
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = [batch.column(at) for at in keys]
        rows = batch if batch.num_columns == own else batch.select(list(range(own)))
        starts = runs(columns)
        marks = [None] * len(starts) if mark is None else mark([c.take(starts) for c in columns])
        ids = [None] * len(starts) if by is None else batch.column(by).take(starts).to_pylist()
        ends = [*starts[1:].tolist(), batch.num_rows]
        for start, end, one, hashed in zip(starts.tolist(), ends, marks, ids, strict=True):
            if not (alike and start == 0 and alike[-1].has(columns, 0)):
                if alike and (hashed is None or hashed != alike[-1].hashed):
                    yield from alike
                    alike = []
                at = next((i for i, group in enumerate(alike) if group.has(columns, start)), None)
                known = Group(columns, start, hashed, one) if at is None else alike.pop(at)
                alike.append(known)
            alike[-1].pieces.append(rows.slice(start, end - start))
        yield None
    if alike:
        yield from alike
        yield None


class Answers:
    """What a function answered, checked against a schema, put together into batches.

    Parameters
    ----------
    schema
        Names, types and nullability of the columns.
    name
        The function's name in errors.
    """

    def __init__(self, schema: pa.Schema, name: str) -> None:
        self._schema = schema
        self._name = name
        self._strict = any(not field.nullable for field in schema)
        self._narrow = all(_is_narrow(field.type) for field in schema)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def checked(self, answer: Any) -> Iterator[pa.RecordBatch]:
        """The batches of an answer, in the columns of the schema; empty ones are left out."""
        if isinstance(answer, pa.Table | pa.RecordBatch):
            answer = [answer]
        elif not isinstance(answer, Iterable) or isinstance(answer, str | bytes | dict):
            raise TypeError(self._expected(answer))
        for part in answer:
            if isinstance(part, pa.RecordBatch):
                batches = [part]
            elif isinstance(part, pa.Table):
                batches = part.to_batches()
                if not batches:
                    self._check_names(part.schema)
            else:
                raise TypeError(self._expected(part, "an iterator of "))
            for batch in batches:
                fit = self._fit(batch)
                if fit.num_rows:
                    yield fit

    def add(self, answer: Any) -> Iterator[pa.RecordBatch]:
        """Take an answer; gives batches as they are full."""
        for batch in self.checked(answer):
            rows, size = batch.num_rows, 0 if self._narrow else batch.nbytes
            if self._rows + rows > BATCH_ROWS or self._bytes + size > BATCH_BYTES:
                yield from self.flush()
            if rows < BATCH_ROWS and size < BATCH_BYTES:
                self._waiting.append(batch)
                self._rows += rows
                self._bytes += size
            else:
                yield from slices(batch)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """What waits, as one batch."""
        if len(self._waiting) == 1:
            yield self._waiting[0]
        elif self._waiting:
            yield from pa.Table.from_batches(self._waiting).combine_chunks().to_batches()
        self._waiting, self._rows, self._bytes = [], 0, 0

    def _expected(self, got: object, of: str = "") -> str:
        return (
            f"{self._name}: expected a Table, a RecordBatch or an iterator of RecordBatches,"
            f" got {of}{type(got).__name__}"
        )

    def _check_names(self, schema: pa.Schema) -> None:
        if len(schema) and sorted(schema.names) != sorted(self._schema.names):
            wanted, names = ", ".join(self._schema.names), ", ".join(schema.names)
            raise ValueError(f"{self._name}: expected the columns {wanted}, got {names}")

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the order and the types of the schema."""
        if not self._strict and batch.schema.equals(self._schema):
            return batch
        if not batch.num_columns and not batch.num_rows:
            return batch
        self._check_names(batch.schema)
        columns = [_as_field(batch.column(field.name), field, self._name) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _is_narrow(kind: pa.DataType) -> bool:
    """Whether a value has a few bytes at most."""
    kinds = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_null)
    return any(one(kind) for one in kinds)


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A large batch in parts."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def _as_field(column: pa.Array, field: pa.Field, name: str) -> pa.Array:
    """A column of an answer as the schema has it, without loss; else an error."""
    if column.type != field.type:
        if not _alike(column.type, field.type):
            raise TypeError(f"{name}: expected {field.name} as {field.type}, got {column.type}")
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(
                f"{name}: expected {field.name} as {field.type}, got {column.type}: {error}"
            ) from None
    if not field.nullable and column.null_count:
        raise ValueError(f"{name}: expected {field.name} without nulls, got {column.null_count}")
    return column


_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
    lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_duration,
    pa.types.is_decimal,
    lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind),
    pa.types.is_struct,
    pa.types.is_map,
)


def _alike(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether one may be cast to the other: the same sort of value, in another width."""
    if pa.types.is_null(kind):
        return True
    if pa.types.is_dictionary(kind):
        return bool(kind.value_type == wanted) or _alike(kind.value_type, wanted)
    return any(family(kind) and family(wanted) for family in _FAMILIES)


def _call(function: Function, keyed: bool, group: Group) -> Any:
    return function(group.key, group.table) if keyed else function(group.table)


def applied(
    function: Function,
    keyed: bool,
    keys: Sequence[int],
    own: int,
    by: int | None,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    name: str = "func",
) -> Iterator[pa.RecordBatch]:
    """What the function answers to each group.

    Parameters
    ----------
    function, keyed
        Called with the rows, or where keyed with the key and the rows.
    keys, own, by, batches
        As `groups` takes them.
    schema
        Columns of the answers.
    name
        The function's name in errors.
    """
    answers = Answers(schema, name)
    for group in groups(batches, keys, own, by):
        if group is not None:
            yield from answers.add(_call(function, keyed, group))
        else:  # answers may be slices of their rows: none waits for longer than its batch
            yield from answers.flush()


def marked(
    function: Function,
    keyed: bool,
    keys: Sequence[int],
    own: int,
    by: int | None,
    schema: pa.Schema,
    places: dict[int, int],
    batches: Iterable[pa.RecordBatch],
    partition: int,
) -> Iterator[pa.RecordBatch]:
    """What the function answers to each group, followed by columns for a merge.

    Those are the key's columns, the partition that answered and the one that merges. Of a key that
    is whole the first are null, and the last is where it is.

    Parameters
    ----------
    places
        Identity of a split key -> the partition that merges its answers.
    partition
        This one.
    """
    answers = Answers(schema, "func")
    types: list[pa.DataType] = []

    def mark(columns: list[pa.Array]) -> list[int | None]:
        if not types:
            types.extend(column.type for column in columns)
        return [places.get(one) for one in pyroute.keys(*columns).ids.tolist()]

    def tag(batch: pa.RecordBatch, group: Group | None) -> pa.RecordBatch:
        rows = batch.num_rows
        if group is None:
            more = [*(pa.nulls(rows, kind) for kind in types), pa.nulls(rows, pa.int32())]
            place = partition
        else:
            more = [pa.repeat(value, rows) for value in group.key]
            more.append(pa.repeat(pa.scalar(partition, pa.int32()), rows))
            place = group.mark
        more.append(pa.repeat(pa.scalar(place, pa.int32()), rows))
        names = [*schema.names, *hidden(len(types))]
        return pa.RecordBatch.from_arrays([*batch.columns, *more], names)

    for group in groups(batches, keys, own, by, mark):
        if group is None:
            yield from (tag(batch, None) for batch in answers.flush())
        elif group.mark is None:
            whole = answers.add(_call(function, keyed, group))
            yield from (tag(batch, None) for batch in whole)
        else:
            for batch in answers.checked(_call(function, keyed, group)):
                yield from (tag(part, group) for part in slices(batch))


def hidden(keys: int) -> list[str]:
    """Names of the columns that `marked` adds."""
    return [*(f"pyroute_key_{i}" for i in range(keys)), "pyroute_part", "pyroute_to"]


def merged(
    function: Function,
    keyed: bool,
    keys: int,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What a function makes of the answers to each split key; the others pass as they are.

    Parameters
    ----------
    keys
        How many columns the key has.
    batches
        What `marked` gave: answers to whole keys first, then those to split keys by key.
    """
    own = len(schema)
    rest = iter(batches)
    for batch in rest:
        whole = batch.column(own + keys).null_count
        if whole:
            yield batch.slice(0, whole).select(list(range(own)))
        if whole < batch.num_rows:
            rest = chain([batch.slice(whole)], rest)
            at = range(own, own + keys)
            yield from applied(function, keyed, at, own, None, schema, rest, "merge")
            return
