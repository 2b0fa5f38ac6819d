"""A function per key on balanced partitions: `groupBy(key).applyInArrow` without its straggler.

Rows are routed and exchanged once, sorted in the JVM by key, or by a hash of it where that is
faster, and streamed through the function one group at a time (`_groups`): a worker holds one group,
never its partition. A key is a value here, not its identity; null is one.

Where keys are split, the function's answers to them are partial. They carry the key in columns that
nobody sees, all answers are exchanged once more, each to where it already is unless its key is
split, and `merge` gets the partial answers of one key in the order of the partitions that gave
them. The function runs once for each key of a partition.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyroute import Router
from spark_udf import _groups, _spark
from spark_udf.columns import ColumnOrName, checked
from spark_udf.route import exchange, routed
from spark_udf.stats import to_arrow
from spark_udf.udfs import shipped

Function = Callable[..., Any]


def apply_by_key(
    df: DataFrame,
    router: Router,
    *cols: ColumnOrName,
    func: Function,
    schema: T.StructType | str,
    merge: Function | None = None,
    salt: ColumnOrName | None = None,
) -> DataFrame:
    """What a function makes of the rows of each key, with the keys where a router puts them.

    Of rows that `balance` has placed: `Balanced.apply_by_key`, which moves them no more.

    Parameters
    ----------
    df, *cols
        The rows and the columns of their key.
    router
        The routing.
    func
        `func(table)` or `func(key, table)`, told apart by their number of parameters as
        `applyInArrow` does: the rows of one key as a `pyarrow.Table`, and the key as a tuple of
        Arrow scalars. Answers with a Table, a RecordBatch or an iterator of RecordBatches.
    schema
        Columns of the answers, which are matched by name.
    merge
        Needed where the router has split keys: `merge(table)` or `merge(key, table)` gets all that
        `func` answered to one of them and answers with its final rows, in the same columns. A key
        that `func` answered with no rows is not merged. What `func` answers to other keys is final.
    salt
        What spreads the rows of a split key, a pure function of the row; None is a hash of the
        whole row.
    """
    if type(df).__name__ == "Balanced":
        raise TypeError("df: expected a DataFrame, got Balanced: use its own apply_by_key")
    _spark.expect_frame(df, "df")
    if not isinstance(router, Router):
        raise TypeError(f"router: expected a Router, got {type(router).__name__}")
    work = Work(router, func, schema, merge)
    return work.of(routed(df.drop(_spark.TASK), router, cols, salt), cols)


class Work:
    """A function per key, checked before anything runs."""

    def __init__(
        self, router: Router, func: Function, schema: T.StructType | str, merge: Function | None
    ) -> None:
        _spark.need("apply_by_key", 4, 0)
        if router.splits and merge is None:
            raise ValueError(
                f"merge: expected a function, got none: the router has {len(router.splits)} split"
                " keys, whose rows are in several tasks, so that what func answers is partial"
            )
        self._router = router
        self._func = (func, takes_key(func, "func"))
        self._merge = None if merge is None else (merge, takes_key(merge, "merge"))
        self._schema = schema

    def of(self, placed: DataFrame, cols: Sequence[ColumnOrName]) -> DataFrame:
        """The answers to rows that are in one partition per task."""
        rows = placed.drop(_spark.TASK)
        struct, arrow = schemas(rows, self._schema)
        key = checked(rows, cols)
        own = len(rows.columns)
        positions, added = _key_positions(rows, cols, key.raw)
        by = None
        order = F.col(next(iter(added))) if added else key.raw[0]
        if len(key.fields) > 1 or not isinstance(key.fields[0].dataType, _SORTED_AS_NUMBERS):
            # Spark sorts by one number several times as fast as by text or by several columns.
            by, order = own + len(added), F.col("pyroute_order")
            added["pyroute_order"] = _hash(key.raw)
        together = (rows.withColumns(added) if added else rows).sortWithinPartitions(order)
        arguments = (*self._func, positions, own, by, arrow)
        if not self._router.splits:
            return together.mapInArrow(shipped("applied", *arguments, module="_groups"), struct)
        return self._merged(together, struct, arrow, key.fields, arguments)

    def _merged(
        self,
        together: DataFrame,
        struct: T.StructType,
        arrow: pa.Schema,
        fields: Sequence[T.StructField],
        arguments: tuple[Any, ...],
    ) -> DataFrame:
        assert self._merge is not None
        hidden = _groups.hidden(len(fields))
        for name in hidden:
            if name.lower() in {field.name.lower() for field in struct.fields}:
                raise ValueError(
                    f"schema: expected other names than {', '.join(hidden)}, got {name}"
                )
        kinds = [*(field.dataType for field in fields), T.IntegerType(), T.IntegerType()]
        more = [T.StructField(name, kind) for name, kind in zip(hidden, kinds, strict=True)]
        body = shipped("marked", *arguments, self._places(), module="_groups")
        answers = together.mapInArrow(_with_partition(body), T.StructType([*struct.fields, *more]))
        moved = exchange(answers, len(self._router.tasks), F.col(hidden[-1]))
        part = F.col(hidden[-2])
        ordered = moved.sortWithinPartitions(part.isNotNull(), *hidden[:-2], part)
        again = shipped("merged", *self._merge, len(fields), arrow, module="_groups")
        return ordered.mapInArrow(again, struct)

    def _places(self) -> dict[int, int]:
        """Identity of each split key -> the position of the first of its tasks."""
        router = self._router
        at = {task: position for position, task in enumerate(router.tasks)}
        firsts = [at[tasks[0]] for tasks in router.splits.values()]
        return dict(zip(router.split_ids.tolist(), firsts, strict=True))


def takes_key(function: Function, name: str) -> bool:
    """Whether a function is called with the key and the rows, or with the rows alone."""
    if not callable(function):
        raise TypeError(f"{name}: expected a function, got {type(function).__name__}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        raise TypeError(f"{name}: expected a function with known parameters, got another") from None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = sum(parameter.kind in kinds for parameter in parameters)
    if places not in (1, 2):
        raise ValueError(f"{name}: expected the parameters (table) or (key, table), got {places}")
    return places == 2


def schemas(df: DataFrame, schema: T.StructType | str) -> tuple[T.StructType, pa.Schema]:
    """A schema as Spark and as Arrow have it."""
    if not isinstance(schema, str | T.StructType):
        raise TypeError(f"schema: expected a StructType or a string, got {type(schema).__name__}")
    empty = df.sparkSession.createDataFrame([], schema)
    struct = empty.schema
    names = struct.names
    if len(set(names)) != len(names):
        raise ValueError(f"schema: expected distinct names, got {', '.join(names)}")
    kinds = to_arrow(empty).schema.types
    pairs = zip(struct.fields, kinds, strict=True)
    return struct, pa.schema([pa.field(one.name, kind, one.nullable) for one, kind in pairs])


_SORTED_AS_NUMBERS = (
    *(T.ByteType, T.ShortType, T.IntegerType, T.LongType),
    *(T.DateType, T.TimestampType, T.TimestampNTZType, T.BooleanType, T.NullType),
)


def _key_positions(
    df: DataFrame, cols: Sequence[ColumnOrName], columns: Sequence[Column]
) -> tuple[list[int], dict[str, Column]]:
    """Where the key's columns are among the rows', and those that have to be added."""
    names = [name.lower() for name in df.columns]
    positions: list[int] = []
    added: dict[str, Column] = {}
    for one, column in zip(cols, columns, strict=True):
        if isinstance(one, str) and names.count(one.lower()) == 1:
            positions.append(names.index(one.lower()))
        else:
            positions.append(len(names) + len(added))
            added[f"pyroute_group_{len(added)}"] = column
    return positions, added


def _hash(columns: Sequence[Column]) -> Column:
    """A hash of the key that few others have.

    Not its identity: of several columns that is the same for a null and the integer 1.
    """
    if len(columns) == 1:
        return F.xxhash64(columns[0])
    return F.xxhash64(*(part for column in columns for part in (column, column.isNull())))


def _with_partition(body: Callable[..., Any]) -> Callable[..., Any]:
    """For `mapInArrow`: a shipped function that also gets the number of its partition."""

    def call(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        return body(batches, 0 if context is None else context.partitionId())

    return call
