"""What a row of keyed state is: its key columns, its value columns, its identity, its bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyroute.keys import keys as keys_of

ID = "pyroute.id"
DELETED = "pyroute.deleted"


def identities(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """The 64-bit identity of every key; two keys may share one, so it never decides alone."""
    return keys_of(*columns).ids


@dataclass(frozen=True)
class StateSchema:
    """Names and types of the key columns and of the value columns.

    Every column may hold nulls, whatever its field says, and metadata of fields is dropped.

    Parameters
    ----------
    keys
        Columns that `pyroute.keys` takes, of plain types.
    values
        At least one column: numbers, text, bytes, dates, times, and lists, maps and structs of
        them; no dictionaries, unions or views.
    """

    keys: pa.Schema
    values: pa.Schema

    def __post_init__(self) -> None:
        for name, schema in (("keys", self.keys), ("values", self.values)):
            if not isinstance(schema, pa.Schema):
                raise TypeError(f"{name}: expected a pyarrow Schema, got {type(schema).__name__}")
            if not len(schema):
                raise ValueError(f"{name}: expected at least one column, got none")
            plain = pa.schema([pa.field(field.name, field.type) for field in schema])
            object.__setattr__(self, name, plain)
        names = self.rows.names
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"columns: expected distinct names, got '{name}' twice")
            if name.startswith("pyroute."):
                raise ValueError(f"columns: expected no name of pyroute's own, got '{name}'")
        for field in self.keys:
            _check_key(field)
        for field in self.values:
            _check_value(field.type, field.name)

    @classmethod
    def of(cls, schema: pa.Schema, keys: Sequence[str]) -> StateSchema:
        """The columns of one schema, those named in `keys` as keys and in that order."""
        for name in keys:
            if name not in schema.names:
                raise ValueError(f"keys: expected one of {schema.names}, got '{name}'")
        return cls(
            pa.schema([schema.field(name) for name in keys]),
            pa.schema([field for field in schema if field.name not in keys]),
        )

    @property
    def rows(self) -> pa.Schema:
        """Key columns, then value columns."""
        return pa.schema([*self.keys, *self.values])

    @property
    def stored(self) -> pa.Schema:
        """The columns of a file: identity, whether deleted, key columns, value columns."""
        own = [pa.field(ID, pa.uint64()), pa.field(DELETED, pa.bool_())]
        return pa.schema([*own, *self.rows])

    def key_batches(self, keys: Any) -> list[pa.RecordBatch]:
        """The key columns of a table that may have others, or an array for a single key column."""
        if isinstance(keys, pa.Array | pa.ChunkedArray):
            if len(self.keys) != 1:
                raise TypeError(f"keys: expected columns {self.keys.names}, got one array")
            keys = pa.table([keys], names=self.keys.names)
        return _batches(_table(keys, "keys"), self.keys, "keys")

    def row_batches(self, rows: Any) -> list[pa.RecordBatch]:
        """The columns of a table that has exactly these, in any order."""
        table = _table(rows, "rows")
        for name in table.column_names:
            if name not in self.rows.names:
                raise ValueError(f"rows: expected columns {self.rows.names}, got '{name}' too")
        return _batches(table, self.rows, "rows")


def _table(data: Any, name: str) -> pa.Table:
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if not isinstance(data, pa.Table):
        raise TypeError(f"{name}: expected a Table or a RecordBatch, got {type(data).__name__}")
    return data


def _batches(table: pa.Table, schema: pa.Schema, name: str) -> list[pa.RecordBatch]:
    columns = []
    for field in schema:
        found = table.schema.get_all_field_indices(field.name)
        if len(found) != 1:
            count = "none" if not found else f"{len(found)} of that name"
            raise ValueError(f"{name}: expected a column '{field.name}', got {count}")
        columns.append(_as_type(table.column(found[0]), field, name))
    whole = pa.Table.from_arrays(columns, schema=schema).combine_chunks()
    return list(whole.to_batches())


def _as_type(column: pa.ChunkedArray, field: pa.Field, name: str) -> pa.ChunkedArray:
    """The column in the field's type, where it holds the same values in another layout."""
    given = column.type
    if given == field.type:
        return column
    plain = given.value_type if pa.types.is_dictionary(given) else given
    families: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    )
    alike = any(
        any(kind(plain) for kind in family) and any(kind(field.type) for kind in family)
        for family in families
    )
    alike = alike or _instants(plain, field.type)
    if not (alike or plain == field.type or pa.types.is_null(plain)):
        raise TypeError(f"{name}.{field.name}: expected {field.type}, got {given}")
    return column.cast(plain).cast(field.type)


def _instants(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether both are points in time, of whatever zone: Spark gives them the session's."""
    kinds = (one, other)
    return all(pa.types.is_timestamp(kind) and kind.tz for kind in kinds) and one.unit == other.unit


def _check_key(field: pa.Field) -> None:
    try:
        empty = pa.array([], field.type)
        identities([empty])
        pc.equal(empty, empty)
        _check_value(field.type, field.name)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise TypeError(
            f"{field.name}: expected a key of integers, booleans, dates, timestamps, decimals"
            f" without a fraction, text or bytes, got {field.type}"
        ) from error


def _check_value(type_: pa.DataType, name: str) -> None:
    kinds = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        _check_value(type_.storage_type, name)
    elif kinds.is_nested(type_) and not _is_list(type_) and not kinds.is_struct(type_):
        raise TypeError(f"{name}: expected a list, map or struct, got {type_}")
    elif kinds.is_nested(type_):
        for i in range(type_.num_fields):
            _check_value(type_.field(i).type, name)
    elif kinds.is_dictionary(type_) or not (_is_text(type_) or _width(type_) is not None):
        raise TypeError(f"{name}: expected plain values, got {type_}")


def _is_list(type_: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_list(type_)
        or kinds.is_large_list(type_)
        or kinds.is_fixed_size_list(type_)
        or kinds.is_map(type_)
    )


def _is_text(type_: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(type_)
        or kinds.is_large_string(type_)
        or kinds.is_binary(type_)
        or kinds.is_large_binary(type_)
    )


def _width(type_: pa.DataType) -> int | None:
    """Bytes of a value of fixed width, a boolean as one; None where the width varies."""
    if pa.types.is_null(type_):
        return 0
    try:
        return max(1, int(type_.bit_width) // 8)
    except ValueError:
        return None


def row_bytes(table: pa.Table | pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of every row: widths of fixed types, lengths of the others, no offsets or validity."""
    table = _table(table, "table")
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        at = 0
        for chunk in column.chunks:
            sizes[at : at + len(chunk)] += _array_bytes(chunk)
            at += len(chunk)
    return sizes


def _array_bytes(array: pa.Array) -> npt.NDArray[np.int64] | int:
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return _array_bytes(array.storage)
    if _is_text(type_):
        lengths = pc.binary_length(array).fill_null(0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_struct(type_):
        total = np.zeros(len(array), np.int64)
        for part in array.flatten():
            total += _array_bytes(part)
        return total
    if _is_list(type_):
        return _list_bytes(array)
    width = _width(type_)
    if width is None:
        raise TypeError(f"table: expected plain values, got {type_}")
    return width


def _list_bytes(array: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_fixed_size_list(array.type):
        length = array.type.list_size
        edges = np.arange(array.offset, array.offset + len(array) + 1) * length
    else:
        edges = array.offsets.to_numpy()
    total = np.zeros(len(array.values) + 1, np.int64)
    total[1:] = _array_bytes(array.values)
    np.cumsum(total, out=total)
    return np.asarray(np.diff(total[edges]), np.int64)


def equal_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Whether row i of both holds equal values in every column, a null being equal to a null."""
    same = np.ones(left.num_rows, np.bool_)
    for one, other in zip(left.columns, right.columns, strict=True):
        equal = pc.equal(one, other)
        if equal.null_count:
            equal = pc.or_(equal.fill_null(False), pc.and_(one.is_null(), other.is_null()))
        same &= equal.to_numpy(zero_copy_only=False)
    return same
