"""Statistics of a DataFrame's keys: exact in the JVM, or sketches made in the tasks.

exact     one row per key: `groupBy(key)`, which combines before the exchange but ships every
distinct key; needs pyroute on the driver alone
sketched  one SpaceSaving per partition, merged in partition order; the heaviest keys by name,
with an error of at most total / capacity, and the rest as one number
sampled   exact on a share of the rows: the relative error of a key seen n times in the sample
is about 1 / sqrt(n)
"""

from __future__ import annotations

import datetime as dt
import decimal
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

import pyroute
from pyroute import CostSketch, PairSpaceSaving, Router, Snapshot, SpaceSaving
from spark_udf.columns import ColumnOrName, as_columns, checked
from spark_udf.route import exchange
from spark_udf.udfs import shipped

_LOG = logging.getLogger("pyroute.spark")

METHODS = ("auto", "exact", "sketched", "sampled")

EXACT_KEYS = 2_000_000
"""`auto` counts exactly up to about this many distinct keys."""

CAPACITY = 100_000
"""Counters of a sketched statistic."""

DIRECT = 64
"""Partitions whose sketches the driver merges; of more, tasks merge some of them first."""

_SMALL = 20_000  # counters of a sketch that the driver can take from thousands of partitions
_UNKNOWN = 1_024  # partitions that are reckoned with where nothing counted them

SAMPLE_ROWS = 5_000_000
"""Rows that a sampled statistic reads, about."""


@dataclass(frozen=True)
class Measured:
    """Statistics, how they were made and how far they may be off."""

    snapshot: Snapshot
    method: str
    reason: str
    error: float
    """Greatest error of a key's cost, as a share of all cost."""
    rest: float
    """Cost of the keys that are not named."""


def sketch(df: DataFrame, *cols: ColumnOrName, capacity: int = 10_000) -> SpaceSaving:
    """The heaviest keys of a DataFrame, in one pass: a sketch per partition, merged.

    Parameters
    ----------
    df, *cols
        The rows and the columns of their key.
    capacity
        Counters; a count is off by at most rows / capacity.
    """
    return _sketch(df.select(*_aliased(checked(df, cols).raw)), capacity, weighted=False)


def top_keys(df: DataFrame, *cols: ColumnOrName, k: int = 100) -> DataFrame:
    """The k heaviest keys, as rows: the key's columns, `count`, `error` and `share` of all rows.

    `count - error <= true <= count`.
    """
    if k < 1:
        raise ValueError(f"k: expected at least 1, got {k}")
    fields = checked(df, cols).fields
    for field in fields:
        if field.name.lower() in ("count", "error", "share"):
            raise ValueError(
                f"cols: expected names beside those of the result, got {field.name}: rename it,"
                f' for example F.col("{field.name}").alias("key")'
            )
    heavy = sketch(df, *cols, capacity=max(10 * k, 1000))
    top = heavy.top(k)
    total = max(heavy.total, 1)
    rows = [
        (*_as_row(value, fields), int(count), int(error), float(count / total))
        for value, count, error in zip(top.values, top.counts, top.errors, strict=True)
    ]
    schema = T.StructType(
        [
            *(T.StructField(field.name, field.dataType) for field in fields),
            T.StructField("count", T.LongType(), False),
            T.StructField("error", T.LongType(), False),
            T.StructField("share", T.DoubleType(), False),
        ]
    )
    return df.sparkSession.createDataFrame(rows, schema)


def cost_sketch(
    df: DataFrame,
    *cols: ColumnOrName,
    time: ColumnOrName,
    epsilon: float = 0.001,
    delta: float = 0.1,
    seed: int = 0,
) -> CostSketch:
    """What rows cost by their key, in one pass: a sketch per partition, merged.

    Parameters
    ----------
    df, *cols
        Rows that were worked on, and the columns that their cost depends on.
    time
        How long each took, at least 0, in any unit.
    epsilon, delta, seed
        Of the `pyroute.CostSketch`.
    """
    times = _number(df, time, "time", "double")
    frame = df.select(*_aliased(checked(df, cols).raw), *times)
    empty = CostSketch(epsilon, delta, seed)
    merged: CostSketch = _merged(frame, "cost_sketch", (epsilon, delta, seed), empty, 0)
    return merged


def collect_pairs(
    df: DataFrame, in_col: ColumnOrName, out_col: ColumnOrName, capacity: int = 100_000
) -> PairSpaceSaving:
    """The heaviest pairs of keys of two consecutive operators, in one pass."""
    columns = df.select(*_aliased(checked(df, [in_col, out_col]).raw))
    parts = 0 if capacity <= _SMALL else _UNKNOWN
    empty = PairSpaceSaving(capacity)
    merged: PairSpaceSaving = _merged(columns, "pairs", (capacity,), empty, parts)
    return merged


def collect_stats(
    df: DataFrame,
    *cols: ColumnOrName,
    cost: ColumnOrName | None = None,
    state_size: ColumnOrName | None = None,
    method: str = "auto",
    router: Router | None = None,
) -> Snapshot:
    """Cost and state size of every key, for a planner.

    Parameters
    ----------
    df, *cols
        The rows and the columns of their key.
    cost
        A number per row, at least 0; without it every row costs 1.
    state_size
        Bytes of a key's state: the greatest of its rows. Without it every key counts 1.
    method
        "exact", "sketched", "sampled", or "auto": exact unless there are too many distinct keys.
        What was chosen, and why, is logged (`pyroute.spark`, INFO).
    router
        Where given, the load of keys that a sketch does not name is the background of its tasks,
        by their share of the keys.
    """
    return measure(df, cols, cost, state_size, method, router).snapshot


def measure(
    df: DataFrame,
    cols: Sequence[ColumnOrName],
    cost: ColumnOrName | None = None,
    state_size: ColumnOrName | None = None,
    method: str = "auto",
    router: Router | None = None,
) -> Measured:
    """Statistics with how they were made."""
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {method}")
    columns = _aliased(checked(df, cols).raw)
    keys = [f"pyroute_key_{i}" for i in range(len(columns))]
    frame = df.select(
        *columns,
        *_number(df, cost, "cost", "double"),
        *_number(df, state_size, "state_size", "bigint"),
    )
    rows, parts = None, _UNKNOWN
    reason = "asked for"
    if method == "auto":
        method, reason, rows, parts = _choose(frame, keys, state_size is not None)
    if method == "sketched":
        measured = _measure_sketched(frame, keys, cost is not None, router, reason, parts)
    elif method == "sampled":
        measured = _measure_sampled(frame, keys, rows, reason)
    else:
        measured = Measured(_exact(frame, keys, 1.0), "exact", reason, 0.0, 0.0)
    _LOG.info("statistics: %s (%s), %d keys", method, measured.reason, len(measured.snapshot))
    return measured


def _aliased(columns: Sequence[Column]) -> list[Column]:
    """Under names of their own: two columns of a key may be called alike."""
    return [column.alias(f"pyroute_key_{i}") for i, column in enumerate(columns)]


def _number(df: DataFrame, column: ColumnOrName | None, name: str, kind: str) -> list[Column]:
    if column is None:
        return []
    if isinstance(column, str) and column not in df.columns and "." not in column:
        raise ValueError(f"{name}: expected one of {', '.join(df.columns)}, got {column}")
    value = as_columns([column])[0]
    actual = df.select(value).schema.fields[0].dataType
    if not isinstance(actual, T.NumericType):
        raise TypeError(f"{name}: expected numbers, got {actual.simpleString()}")
    return [value.cast(kind).alias(f"pyroute_{name}")]


def _choose(frame: DataFrame, keys: Sequence[str], sized: bool) -> tuple[str, str, int, int]:
    """The method, why, and how many rows and partitions there are."""
    whole = F.struct(*keys) if len(keys) > 1 else F.col(keys[0])
    counted = frame.withColumn("pyroute_partition", F.spark_partition_id()).agg(
        F.approx_count_distinct(whole, 0.02), F.count(F.lit(1)), F.max("pyroute_partition")
    )
    row = counted.collect()[0]
    distinct, rows, parts = int(row[0]), int(row[1]), int(row[2] or 0) + 1
    if distinct <= EXACT_KEYS:
        return "exact", f"about {distinct:,} distinct keys, at most {EXACT_KEYS:,}", rows, parts
    reason = f"about {distinct:,} distinct keys, more than {EXACT_KEYS:,}"
    if sized:
        return "sampled", f"{reason}, and a sketch knows no state sizes", rows, parts
    return "sketched", reason, rows, parts


def _exact(frame: DataFrame, keys: Sequence[str], scale: float) -> Snapshot:
    costly, sized = "pyroute_cost" in frame.columns, "pyroute_state_size" in frame.columns
    wanted = [F.sum("pyroute_cost") if costly else F.count(F.lit(1))]
    if costly:
        wanted += [F.min("pyroute_cost"), F.count(F.lit(1)) - F.count("pyroute_cost")]
    if sized:
        wanted.append(F.max("pyroute_state_size"))
    named = [column.alias(f"pyroute_{i}") for i, column in enumerate(wanted)]
    table = to_arrow(frame.groupBy(*keys).agg(*named))
    columns = [table.column(i) for i in range(len(keys))]
    costs = table.column("pyroute_0").to_numpy().astype(np.float64)
    if costly:
        _check_costs(table, costs)
    sizes = table.column(f"pyroute_{len(wanted) - 1}").to_numpy() if sized else None
    if sizes is not None and sizes.dtype.kind == "f":
        raise ValueError("state_size: expected numbers, got null")
    return Snapshot(pyroute.keys(*columns), costs * scale, sizes)


def _check_costs(table: pa.Table, costs: npt.NDArray[np.float64]) -> None:
    missing = int(table.column("pyroute_2").to_numpy().sum())
    if missing:
        raise ValueError(f"cost: expected numbers, got null in {missing} rows")
    least = table.column("pyroute_1").to_numpy()
    if len(least) and least.min() < 0:
        raise ValueError(f"cost: expected at least 0, got {least.min()}")
    # One that is not finite makes the sum of its key so.
    wrong = costs[~np.isfinite(costs)]
    if len(wrong):
        raise ValueError(f"cost: expected finite numbers, got {wrong[0]}")


def _measure_sampled(
    frame: DataFrame, keys: Sequence[str], rows: int | None, reason: str
) -> Measured:
    if rows is None:
        rows = frame.count()
    share = min(1.0, SAMPLE_ROWS / max(rows, 1))
    if share == 1.0:
        return Measured(_exact(frame, keys, 1.0), "exact", f"only {rows:,} rows", 0.0, 0.0)
    snapshot = _exact(frame.sample(fraction=share, seed=0), keys, 1.0 / share)
    error = 2.0 / math.sqrt(rows * share)
    reason = f"{reason}; {share:.3%} of {rows:,} rows, a key's share is within {error:.2%}"
    return Measured(snapshot, "sampled", reason, error, 0.0)


def _measure_sketched(
    frame: DataFrame,
    keys: Sequence[str],
    costly: bool,
    router: Router | None,
    reason: str,
    parts: int,
) -> Measured:
    unit = 1.0
    if costly:
        # A sketch counts in whole numbers: costs are rounded up to a millionth of their mean.
        missing = F.count(F.lit(1)) - F.count("pyroute_cost")
        wanted = (F.avg("pyroute_cost"), F.min("pyroute_cost"), missing)
        mean, least, nulls = frame.agg(*wanted).collect()[0]
        if nulls:
            raise ValueError(f"cost: expected numbers, got null in {nulls} rows")
        if least is not None and least < 0:
            raise ValueError(f"cost: expected at least 0, got {least}")
        # One that is not finite makes the mean so, and then nothing would count.
        if mean is not None and not math.isfinite(mean):
            raise ValueError(f"cost: expected finite numbers, got {mean}")
        unit = (mean or 1.0) / 1e6
        weight = F.ceil(F.col("pyroute_cost") / unit).cast("bigint")
        frame = frame.select(*keys, weight.alias("pyroute_weight"))
    else:
        frame = frame.select(*keys)
    heavy = _sketch(frame, CAPACITY, weighted=costly, parts=parts)
    top = heavy.top()
    # The middle of what a count may be; the rest is what no named key accounts for.
    counts = (top.counts - top.errors / 2.0) * unit
    total = heavy.total * unit
    rest = max(0.0, total - float(counts.sum()))
    unnamed = None if router is None else background(router, rest)
    snapshot = Snapshot(top.values, counts, background=unnamed)
    error = float(top.errors.max() / max(heavy.total, 1)) if len(top.errors) else 0.0
    reason = f"{reason}; {len(top.values):,} keys by name, each within {error:.3%} of the load"
    return Measured(snapshot, "sketched", reason, error, rest)


def background(router: Router, rest: float) -> dict[int, float]:
    """Load of the keys that sketches do not name, by their share of the keys."""
    home = router.home
    if isinstance(home, pyroute.Ring):
        shares = home.shares()
        return {int(task): rest * float(share) for task, share in shares.items()}
    return {task: rest / len(router.tasks) for task in router.tasks}


def _sketch(
    frame: DataFrame, capacity: int, *, weighted: bool, parts: int = _UNKNOWN
) -> SpaceSaving:
    parts, empty = 0 if capacity <= _SMALL else parts, SpaceSaving(capacity)
    merged: SpaceSaving = _merged(frame, "sketch", (capacity, weighted), empty, parts)
    return merged


def _merged(
    frame: DataFrame, function: str, arguments: tuple[Any, ...], empty: Any, parts: int
) -> Any:
    """What the function makes of each of so many partitions, merged in partition order.

    Of many partitions neighbours are merged in tasks first: what goes to the driver has bounds,
    `spark.driver.maxResultSize` and its memory.
    """
    schema = "partition int, data binary"
    made = frame.mapInArrow(per_partition(shipped(function, *arguments)), schema)
    if parts > DIRECT:
        tasks = math.isqrt(parts - 1) + 1
        # There may be more partitions than were reckoned with.
        group = F.pmod(F.floor(F.col("partition") / tasks), F.lit(tasks)).cast("int")
        near = exchange(made.withColumn("near", group), tasks, F.col("near")).drop("near")
        body = shipped("merged", type(empty).__name__, empty.to_bytes())
        made = near.sortWithinPartitions("partition").mapInArrow(body, schema)
    table = to_arrow(made)
    order = np.argsort(table.column("partition").to_numpy(), kind="stable")
    for at in order.tolist():
        empty.merge(type(empty).from_bytes(table.column("data")[at].as_py()))
    return empty


def per_partition(body: Callable[..., bytes]) -> Callable[..., Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: what a shipped function makes of a partition, as one row."""
    row = shipped("one_row")

    def call(batches: Any) -> Any:
        from pyspark import TaskContext

        data = body(batches)
        context = TaskContext.get()
        yield from row(0 if context is None else context.partitionId(), data)

    return call


def to_arrow(df: DataFrame) -> pa.Table:
    """The rows on the driver, as Arrow."""
    if hasattr(df, "toArrow"):
        return df.toArrow()
    return pa.Table.from_pandas(df.toPandas(), preserve_index=False)


def _as_row(value: Any, fields: Sequence[T.StructField]) -> tuple[Any, ...]:
    parts = value if len(fields) > 1 else (value,)
    return tuple(_as_cell(part, field.dataType) for part, field in zip(parts, fields, strict=True))


def _as_cell(part: Any, kind: T.DataType) -> Any:
    """A key's value as Spark takes it: a decimal for an integer, an instant with its zone."""
    if part is not None and isinstance(kind, T.DecimalType):
        return decimal.Decimal(part)
    if part is not None and isinstance(kind, T.TimestampType):
        return part.replace(tzinfo=dt.UTC)
    return part
