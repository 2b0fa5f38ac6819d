"""A router as a JVM expression: no Python worker, equal answers.

The arrays (`_arrays`) enter as scalar subqueries over a one-row DataFrame, so that the text of the
plan stays small and no task carries them as literals:

    the owner of the key's arc of the circle   where no tabled key has that arc, else
    the place in an entry of the key           where there is one, else
    the owner of the arc

A split key's row goes to shares[starts[s] + pmod(xxhash64(key, salt), counts[s])], as
`Router.route(values, salt)` says. The salt is a pure function of the row, by default a hash of the
whole row: a retried stage gives the same answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyroute import Ring, Router, SparkHash
from spark_udf import _spark, udfs
from spark_udf._arrays import Arrays, compile_router
from spark_udf.columns import ColumnOrName, as_columns, checked, key

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def route(router: Router, *cols: ColumnOrName, salt: ColumnOrName | None = None) -> Column:
    """The task of each row, as a column named `pyroute_task`.

    A JVM expression for a router over a `Ring` or `SparkHash`; for the other homes an Arrow UDF,
    which needs pyroute on the executors.

    Parameters
    ----------
    router
        The routing; its answers are those of `router.route`.
    *cols
        The columns of the key.
    salt
        A bigint column that spreads the rows of a split key; needed where the router has splits,
        for example `F.xxhash64("*")`. It must be a pure function of the row.
    """
    columns = as_columns(cols)
    return position(_spark.session(), router, key(*columns), columns, salt).task


class Position:
    """Where a row goes: its task, and that task's position among the router's, both columns."""

    def __init__(self, task: Column, index: Column) -> None:
        self.task = task.alias(_spark.TASK)
        self.index = index


def position(
    spark: SparkSession,
    router: Router,
    identity: Column,
    raw: Sequence[Column],
    salt: ColumnOrName | None = None,
) -> Position:
    """Task and position of each row, as expressions of one session.

    `raw` are the columns of the identity as they came: an engine's home hashes an int and a bigint
    differently.
    """
    if not isinstance(router, Router):
        raise TypeError(f"router: expected a Router, got {type(router).__name__}")
    if router.splits and salt is None:
        raise ValueError(
            "salt: expected a column, got none: the router has split keys, whose rows are spread"
            ' by it; F.xxhash64("*") is a hash of the whole row'
        )
    spread = None if salt is None else as_columns([salt])[0].cast("bigint")
    if not isinstance(router.home, Ring | SparkHash):
        return _by_udf(spark, router, raw, spread)
    places = Places(spark, router, identity, raw)
    index = places.one(places.place, identity, spread)
    task = index if places.arrays.contiguous else F.get(places.table("tasks"), index)
    return Position(task.cast("int"), index.cast("int"))


class Compiled:
    """A router's arrays, and the subqueries that bring them in."""

    def __init__(self, spark: SparkSession, router: Router) -> None:
        self.arrays = compile_router(router)
        self.table = _one_row(spark, self.arrays)


class Places:
    """Where rows go, as JVM expressions: positions of tasks, for a router that the JVM can compute.

    A split key's rows go to one of its tasks each, or all of them to every one.
    """

    def __init__(
        self,
        spark: SparkSession,
        router: Router,
        identity: Column,
        raw: Sequence[Column],
        compiled: Compiled | None = None,
    ) -> None:
        home = router.home
        compiled = compiled or Compiled(spark, router)
        self.arrays, self.table = compiled.arrays, compiled.table
        self._spark = spark
        if isinstance(home, SparkHash):
            at_home = _spark_hash(home, raw)
        else:
            circle = F.shiftrightunsigned(identity, self.arrays.circle_shift).cast("int")
            at_home = F.get(self.table("owners"), circle).cast("int")
        self.place = _lookup(self.arrays, self.table, identity, at_home)
        """Position of each row's task; number of tasks + split for a split key."""

    def one(self, place: Column, identity: Column, salt: Column | None) -> Column:
        """A position for each row; rows of a split key are spread by the salt."""
        if salt is None or not len(self.arrays.counts):
            return place
        whole = F.when(place < len(self.arrays.tasks), place)
        return whole.otherwise(self._share(place, identity, salt))

    def every(
        self, place: Column, identity: Column, salt: Column | None, copied: Sequence[bool]
    ) -> Column:
        """The positions of each row as an array: all of a split key's, where those are copied.

        Parameters
        ----------
        place, identity
            What they are here, or columns that hold them: they are used many times.
        salt
            Spreads the rows of the split keys that are not copied; None where all are.
        copied
            By split, in the router's order.
        """
        n = len(self.arrays.tasks)
        split = place - n
        start, count = F.get(self.table("starts"), split), F.get(self.table("counts"), split)
        found = F.when(place < n, F.array(F.coalesce(place, F.lit(0))))
        whole = F.slice(self.table("shares"), start + 1, count)
        if salt is None:
            return found.otherwise(whole)
        flags = _local(self._spark, {"copied": np.array(copied, np.int32)})("copied")
        share = F.coalesce(self._share(place, identity, salt).cast("int"), F.lit(0))
        return found.when(F.get(flags, split) == 1, whole).otherwise(F.array(share))

    def _share(self, place: Column, identity: Column, salt: Column) -> Column:
        split = place - len(self.arrays.tasks)
        start, count = F.get(self.table("starts"), split), F.get(self.table("counts"), split)
        turn = F.pmod(F.xxhash64(identity, salt), count.cast("bigint"))
        return F.get(self.table("shares"), (start + turn).cast("int"))


def whole_row(df: DataFrame) -> Column:
    """A hash of the whole row, for a salt; maps and variants, which have none, are left out."""
    plain = [f.name for f in df.schema.fields if not _unhashable(f.dataType)]
    if not plain:
        raise TypeError("salt: expected some column that can be hashed, got only maps")
    return F.xxhash64(*(F.col(f"`{name}`") for name in plain))


def routed(
    df: DataFrame, router: Router, cols: Sequence[ColumnOrName], salt: ColumnOrName | None
) -> DataFrame:
    """The rows in one partition per task, with their task in `pyroute_task`.

    Partition p has exactly the rows of the p-th task of the router.
    """
    columns = checked(df, cols)
    if router.splits and salt is None:
        salt = whole_row(df)
    where = position(df.sparkSession, router, columns.identity, columns.raw, salt)
    n = len(router.tasks)
    # Never null: otherwise Spark would ask, of each row, and compute the task once more.
    named = df.withColumn(_spark.TASK, F.coalesce(where.task, F.lit(int(router.tasks[0]))))
    if tuple(router.tasks) == tuple(range(n)):
        return exchange(named, n, F.col(_spark.TASK))
    moved = named.withColumn("pyroute_position", where.index)
    return exchange(moved, n, F.col("pyroute_position")).drop("pyroute_position")


def exchange(df: DataFrame, n: int, index: Column) -> DataFrame:
    """Rows of index i in partition i of n, in the order they came."""
    if hasattr(df, "repartitionById"):
        return df.repartitionById(n, index)
    # Hash partitioning of a number whose hash is i (Spark before 4.1).
    table = _local(df.sparkSession, {"preimages": _preimages(n)})
    return df.repartition(n, F.get(table("preimages"), index))


def fenced(df: DataFrame) -> DataFrame:
    """Placed rows that stay where they are.

    Spark moves a semi or anti join below the exchange of its left side, but not below a filter
    that it cannot move itself.
    """
    return df.filter(F.spark_partition_id() >= 0)


def _preimages(n: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """For each partition of n a number that Spark's hash partitioning puts there."""
    home, found, start = SparkHash(n, "int"), np.full(n, -1, np.int32), 0
    while (found < 0).any():
        numbers = np.arange(start, start + 16 * n + 64, dtype=np.int32)
        places, first = np.unique(home.homes(numbers), return_index=True)
        fresh = found[places] < 0
        found[places[fresh]] = numbers[first[fresh]]
        start += len(numbers)
    return found


Table = Callable[[str], Column]


def _one_row(spark: SparkSession, arrays: Arrays) -> Table:
    names = ("tasks", "owners", "entries", "starts", "counts", "shares")
    columns = {name: getattr(arrays, name) for name in names}
    return _local(spark, {name: value for name, value in columns.items() if value is not None})


def _local(spark: SparkSession, columns: dict[str, Any]) -> Table:
    """Arrays as scalar subqueries over a one-row local DataFrame."""
    if _spark.version() >= (4, 0):
        lists = {}
        for name, values in columns.items():
            item = pa.field("element", pa.from_numpy_dtype(values.dtype), nullable=False)
            offsets = pa.array([0, len(values)], pa.int32())
            lists[name] = pa.ListArray.from_arrays(offsets, pa.array(values), pa.list_(item))
        frame = spark.createDataFrame(pa.table(lists))
        # One expression for each array, so that it is one subquery however often it is used; made
        # when it is needed, because each is a call to the JVM.
        return functools.cache(lambda name: frame.select(name).scalar())
    schema = T.StructType(
        [
            T.StructField(name, T.ArrayType(_element(values), containsNull=False))
            for name, values in columns.items()
        ]
    )
    rows = spark.createDataFrame([tuple(v.tolist() for v in columns.values())], schema)
    # Before 4.0 a subquery is written in SQL alone; the view's name is the arrays' own address.
    view = f"pyroute_{abs(hash(tuple(v.tobytes() for v in columns.values()))):x}"
    rows.createOrReplaceTempView(view)
    return lambda name: F.expr(f"(SELECT {name} FROM {view})")


def _element(values: Any) -> T.DataType:
    return {1: T.ByteType, 2: T.ShortType, 4: T.IntegerType, 8: T.LongType}[values.itemsize]()


def _lookup(arrays: Arrays, table: Table, identity: Column, at_home: Column) -> Column:
    """The position of each row's task; number of tasks + split for a split key."""
    if not arrays.tabled:
        return at_home
    bits, mask, places = arrays.slot_bits, (1 << arrays.slot_bits) - 1, arrays.places

    # As few operations as do, as each is a call to the JVM, and as few subqueries, as each is
    # planned wherever it is used: `every` is no subquery, Spark makes it an array of its own.
    most, every = F.lit(places), F.sequence(F.lit(0), F.lit(places - 1))

    def probe(slot: Column, entry: Column) -> Column:
        twice = F.get(table("entries"), slot.cast("int")).bitwiseXOR(entry)
        return F.get(every, F.least(F.shiftrightunsigned(twice, 1), most).cast("int"))

    low = identity.bitwiseAND(mask)
    middle = F.shiftrightunsigned(identity, bits).bitwiseAND(mask)
    ones = identity.bitwiseAND(~mask).bitwiseOR(1 << (bits - 2))
    upper = identity.bitwiseAND(-1 << (2 * bits))
    others = upper.bitwiseOR(F.shiftleft(low, bits)).bitwiseOR(2 << (bits - 2))
    found = probe(low, ones), probe(middle, others)
    if arrays.owners is None:
        return F.coalesce(*found, at_home)
    return F.coalesce(F.get(every, at_home), *found, at_home - places)


def _spark_hash(home: SparkHash, columns: Sequence[Column]) -> Column:
    kinds = [home.key_type] if isinstance(home.key_type, str) else list(home.key_type)
    if len(kinds) != len(columns):
        raise ValueError(
            f"cols: expected {len(kinds)} columns, as the home has, got {len(columns)}"
        )
    parts: list[Column] = []
    for column, kind in zip(columns, kinds, strict=True):
        parts += _of_type(column, kind)
    return F.pmod(F.hash(*parts), F.lit(len(home.tasks)))


def _of_type(column: Column, kind: str) -> list[Column]:
    """The column in the type that the home hashes, narrower integers widened, or an error."""
    actual = F.typeof(column)
    typed = column
    allowed: tuple[str, ...] = (kind,)
    if kind in _INTEGERS:
        allowed = _INTEGERS[: _INTEGERS.index(kind) + 1]
        typed = column.cast(kind)
    elif kind in ("string", "binary"):
        allowed = ("string", "binary")
    elif kind == "timestamp":
        allowed = ("timestamp", "timestamp_ntz")
    message = F.concat(F.lit(f"cols: expected {kind}, as the home has, got "), actual)
    refused = F.raise_error(message).cast("bigint")
    # A null leaves the hash as it is, so that two parts hash as one.
    return [F.when(actual.isin(*allowed), typed), F.when(~actual.isin(*allowed, "void"), refused)]


def _by_udf(
    spark: SparkSession, router: Router, columns: Sequence[Column], salt: Column | None
) -> Position:
    arguments = [*columns] if salt is None else [*columns, salt]
    task = udfs.route_udf(router)(*arguments)
    tasks = np.array(router.tasks, np.int32)
    if (tasks == np.arange(len(tasks))).all():
        return Position(task, task)
    index = F.array_position(_local(spark, {"tasks": tasks})("tasks"), task) - 1
    return Position(task, index.cast("int"))


def _unhashable(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _unhashable(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(_unhashable(field.dataType) for field in kind.fields)
    return isinstance(kind, T.MapType) or kind.simpleString() == "variant"
