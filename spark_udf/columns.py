"""The identity of a key as a JVM expression, equal to `pyroute.keys`.

    key(c1, c2, ...) = xxhash64 of each column's value as docs/decisions/0001 says, seed 42;
    of two or more columns every one is followed by 1L where it is null

The type of a column is not known where a Column is written, and Spark hashes an int and a bigint
of one number differently. So each column enters `xxhash64` several times, once for every way to
hash a type, and is null in all but one: a null leaves the hash as it is. `typeof` is a constant to
the optimizer, which drops the others before anything runs.

Integers that are narrower than bigint, booleans, dates and decimals go through text there, because
no other cast is legal for every type; it costs some 40 ns a row. Where the DataFrame is known
(`checked`), they are cast directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_udf import _spark

KEY = "pyroute_key"
"""Name of the column that `key` makes."""

ColumnOrName = Column | str

_DIRECT = ("string", "binary", "bigint", "timestamp", "timestamp_ntz", "void")
_NARROW = ("tinyint", "smallint", "int")
_WHOLE = r"^decimal\(\d+,0\)$"
_REMEDY = (
    "expected integers, text, bytes, booleans, dates, timestamps or decimals without a fraction"
)


def key(*cols: ColumnOrName) -> Column:
    """The 64-bit identity of a key, computed in the JVM: equal to `pyroute.keys(...)`, as bigint.

    Parameters
    ----------
    *cols
        The columns of the key, by name or as expressions. Floats, nested types and collated text
        are refused when the query runs.
    """
    columns = as_columns(cols)
    parts: list[Column] = []
    for column in columns:
        parts += _ways(column)
        if len(columns) > 1:
            parts.append(_null_mark(column))
    return F.xxhash64(*parts).alias(KEY)


def by_bytes(column: Column) -> Column:
    """The column as it is; collated text is refused when the query runs.

    Arrow knows no collations: a worker would take texts that are equal for different keys.
    """
    kind = F.typeof(column)
    refused = F.concat(F.lit("key: expected text that compares by its bytes, got "), kind)
    return F.when(kind.startswith("string collate"), F.raise_error(refused)).otherwise(column)


def _null_mark(column: Column) -> Column:
    return F.when(column.isNull(), F.lit(1).cast("bigint"))


def as_columns(cols: Sequence[ColumnOrName]) -> list[Column]:
    """Names and expressions as expressions."""
    if not cols:
        raise TypeError("cols: expected at least one column, got none")
    for one in cols:
        if not isinstance(one, str) and type(one).__name__ != "Column":  # Connect's too
            raise TypeError(f"cols: expected names or Columns, got {type(one).__name__}")
    return [F.col(one) if isinstance(one, str) else one for one in cols]


def _ways(column: Column) -> list[Column]:
    """The column as each of the things it may be hashed as; null in all but one."""
    kind, text = F.typeof(column), column.cast("string")
    decimal = kind.rlike(_WHOLE)
    known = kind.isin(*_DIRECT, *_NARROW, "boolean", "date") | decimal
    wide = F.concat(F.lit("key: expected integers of 64 bits, got "), text)
    refused = F.concat(F.lit(f"key: {_REMEDY}, got "), kind)
    return [
        F.when(kind.isin(*_DIRECT), column),
        F.when(kind.isin(*_NARROW), text.cast("bigint")),
        # Without ANSI mode a cast that does not fit is null, which is another key.
        F.when(
            decimal,
            F.coalesce(
                text.cast("bigint"),
                F.when(column.isNotNull(), F.raise_error(wide).cast("bigint")),
            ),
        ),
        F.when(kind == "boolean", (text == "true").cast("bigint")),
        F.when(kind == "date", F.unix_date(text.cast("date")).cast("bigint")),
        F.when(~known, F.raise_error(refused).cast("bigint")),
    ]


@dataclass(frozen=True)
class KeyColumns:
    """The columns of a key, checked against a DataFrame."""

    raw: list[Column]
    widened: list[Column]
    """The same, as cheap as possible to hash."""
    fields: list[T.StructField]

    @property
    def identity(self) -> Column:
        """`key` of them, written for their types: no other way to hash them is in the plan."""
        parts: list[Column] = []
        for column, field in zip(self.widened, self.fields, strict=True):
            exact = isinstance(field.dataType, T.DecimalType)
            parts += _ways(column) if exact else [column]
            if len(self.widened) > 1:
                parts.append(_null_mark(column))
        return F.xxhash64(*parts).alias(KEY)


def checked(df: DataFrame, cols: Sequence[ColumnOrName]) -> KeyColumns:
    """The columns of a key of this DataFrame.

    Raises `ValueError` for a column that is not there and `TypeError` for a type that is no key.
    """
    _spark.expect_frame(df, "df")
    columns = as_columns(cols)
    for one in cols:
        if isinstance(one, str):
            _expect_column(df, one, "cols")
    fields = df.select(*columns).schema.fields
    wide = [_widen(column, field) for column, field in zip(columns, fields, strict=True)]
    return KeyColumns(columns, wide, list(fields))


def shared_names(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    sides: tuple[str, str] = ("left", "right"),
    argument: str = "on",
) -> list[str]:
    """The names of the columns of a key that two DataFrames are joined by, checked on both.

    Parameters
    ----------
    left, right
        The sides.
    on
        Names that both have.
    sides, argument
        What errors call the sides and the names.
    """
    for side, df in zip(sides, (left, right), strict=True):
        _spark.expect_frame(df, side)
    names = [on] if isinstance(on, str) else list(on)
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{argument}: expected names of columns that both sides have, got others")
    if len(set(names)) != len(names):
        raise ValueError(f"{argument}: expected distinct names, got {', '.join(names)}")
    for side, df in zip(sides, (left, right), strict=True):
        for column in names:
            if column.lower() not in {one.lower() for one in df.columns}:
                raise ValueError(
                    f"{argument}: expected one of {', '.join(df.columns)} ({side}), got {column}"
                )
    exact = [quoted(name) for name in names]
    pairs = zip(checked(left, exact).fields, checked(right, exact).fields, strict=True)
    for one, other in pairs:
        if not _comparable(one.dataType, other.dataType):
            raise TypeError(
                f"{argument}: expected {one.name} in one type on both sides, got"
                f" {one.dataType.simpleString()} and {other.dataType.simpleString()}: cast one"
            )
    return names


_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DecimalType)


def _comparable(one: T.DataType, other: T.DataType) -> bool:
    """Whether equal values of the two types have equal identities."""
    if isinstance(one, T.NullType) or isinstance(other, T.NullType):
        return True
    if isinstance(one, _INTEGERS) and isinstance(other, _INTEGERS):
        return True
    return type(one) is type(other)


def quoted(name: str) -> str:
    """The name of a column as Spark takes it for just that column, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _expect_column(df: DataFrame, name: str, argument: str) -> None:
    # A name with a dot or a backtick is a path or is quoted: Spark itself says what is wrong.
    plain = not any(mark in name for mark in ".`*")
    if plain and name.lower() not in {column.lower() for column in df.columns}:
        raise ValueError(f"{argument}: expected one of {', '.join(df.columns)}, got {name}")


def _widen(column: Column, field: T.StructField) -> Column:
    kind = field.dataType
    if isinstance(kind, T.StringType):
        if getattr(kind, "collation", "UTF8_BINARY") not in ("UTF8_BINARY", None):
            raise TypeError(
                f"{field.name}: expected text that compares by its bytes, got"
                f" {kind.simpleString()}: cast it, for example lower(...), to a plain string"
            )
        return column
    if isinstance(kind, T.ByteType | T.ShortType | T.IntegerType | T.BooleanType):
        return column.cast("bigint")
    if isinstance(kind, T.DateType):
        return F.unix_date(column).cast("bigint")
    if isinstance(
        kind, T.LongType | T.BinaryType | T.TimestampType | T.TimestampNTZType | T.NullType
    ) or (isinstance(kind, T.DecimalType) and kind.scale == 0):
        return column
    hint = ": cast it, for example to a bigint of hundredths" if _is_real(kind) else ""
    raise TypeError(f"{field.name}: {_REMEDY}, got {kind.simpleString()}{hint}")


def _is_real(kind: T.DataType) -> bool:
    return isinstance(kind, T.FloatType | T.DoubleType | T.DecimalType)
