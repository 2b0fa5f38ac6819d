"""Join of two skewed sides: hot keys of both placed together, keys heavier than a task split.

    cost of a key = its rows on the left + its rows on the right + its rows in the result

A key that is heavier than a task is split: its rows on one side are spread over several tasks by a
hash of the row, and its rows on the other side are copied to each of them. So every pair of rows
meets in exactly one task:

    spread side  the one with more rows of that key, as far as the join allows it: a side whose
                 unmatched rows are in the result cannot be copied, so that a left, semi or anti
                 join spreads the left, a right join the right, and a full join none
    null keys    have no partner: they are left out where the result has none of them, and else are
                 spread without copies, whatever the join
    how many     as few tasks as bring the share, copies included, below what a task may carry; not
                 so many that the copies cost more than a quarter of what is spread

Whatever the statistics said, the result is that of Spark's own join: they decide where rows meet,
never whether.

Each side has one exchange. Spark knows the partitions by one integer, the row's place, and joins on
that alone, so that it needs no other exchange and sorts by a number whatever the key is:

    place = position of the task + number of tasks * low bits of the identity

with just so many bits that few keys share a place, because sorting takes a pass for each byte (and
of a null key other bits, different ones on either side, because it is not to meet anything). That
the keys themselves are equal is a condition on the pairs, written so that Spark does not take it
for a second column to sort by. A join that Spark would broadcast is left to it.
"""

from __future__ import annotations

import functools
import heapq
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, GroupedData, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyroute import Keys, Plan, Ring, Router, Snapshot, SparkHash, keys, rebalance
from spark_udf import _spark
from spark_udf.balance import MAX_IMBALANCE, MAX_TABLE, Balanced
from spark_udf.by_key import Function
from spark_udf.columns import ColumnOrName, as_columns, checked, quoted, shared_names
from spark_udf.route import Compiled, Places, exchange, fenced, whole_row
from spark_udf.stats import Measured, to_arrow

_LOG = logging.getLogger("pyroute.spark")

PLACE = "pyroute_place"
"""Name of the column that Spark knows the partitions by."""

COPIES = 0.25
"""What the copies of a split key may cost, as a share of what is spread."""

MIN_GAIN = 0.1
"""A join that balance would make less than a tenth shorter is left to Spark."""

SAMPLE_ROWS = 500_000
"""Rows of each side that `auto` statistics count, about."""

LEAST_ROWS = 50_000
"""With fewer rows in a sample the size of a side was guessed wrong: all of its are counted."""

Reals = npt.NDArray[np.float64]
Ids = npt.NDArray[np.uint64]

LEFT, RIGHT, BOTH = 1, 2, 3
"""Which side of a split key is spread; both, where it has no partner."""


@dataclass(frozen=True)
class How:
    """A kind of join."""

    name: str
    sql: str
    physical: str
    keeps: int  # sides whose rows without a partner are in the result
    spreads: int  # sides that may be spread

    @property
    def why(self) -> str:
        """Why a key stands in the way of balance."""
        if self.spreads == BOTH:
            return ""
        if not self.spreads:
            return "; a full join keeps unmatched rows of both sides, so that neither can be copied"
        side = "left" if self.spreads == LEFT else "right"
        return f"; a {self.name} join can spread only the {side}"

    def rows(self, left: Reals, right: Reals) -> Reals:
        """Rows in the result of a key with so many rows on the left and on the right."""
        if self.name == "leftsemi":
            return np.where(right > 0, left, 0.0)
        if self.name == "leftanti":
            return np.where(right > 0, 0.0, left)
        alone = np.zeros_like(left)
        if self.keeps & LEFT:
            alone = np.where(right > 0, alone, left)
        if self.keeps & RIGHT:
            alone = np.where(left > 0, alone, alone + right)
        return left * right + alone


HOWS = {
    how.name: how
    for how in (
        How("inner", "INNER JOIN", "Inner", 0, BOTH),
        How("left", "LEFT JOIN", "LeftOuter", LEFT, LEFT),
        How("right", "RIGHT JOIN", "RightOuter", RIGHT, RIGHT),
        How("full", "FULL JOIN", "FullOuter", BOTH, 0),
        How("leftsemi", "LEFT SEMI JOIN", "LeftSemi", 0, LEFT),
        How("leftanti", "LEFT ANTI JOIN", "LeftAnti", LEFT, LEFT),
    )
}
_ALIASES = {
    "leftouter": "left",
    "rightouter": "right",
    "outer": "full",
    "fullouter": "full",
    "semi": "leftsemi",
    "anti": "leftanti",
}


@dataclass(frozen=True)
class Joined(Balanced):
    """The rows of a join, and how they met.

    They are in one partition per task, and Spark knows that equal `pyroute_place` are in one. Where
    the join was left to Spark (`placed` is False) they have no such column.
    """

    bits: int = 0
    """Bits of the identity in a place."""

    def group_by(self, *more: ColumnOrName) -> GroupedData:
        """`groupBy` of place, key and more columns: no exchange beyond those already made.

        Where keys are split each of their tasks gives a row of its own: partial results.
        """
        return self.df.groupBy(*self._by, *self.cols, *more)

    def window(self, *more: ColumnOrName) -> WindowSpec:
        """`Window.partitionBy` of place, key and more columns; add the order to it."""
        self._expect_whole("window")
        return Window.partitionBy(*self._by, *self.cols, *more)

    def join(self, other: DataFrame, how: str = "inner") -> DataFrame:
        """Join on the same columns: one exchange, for the other side."""
        self._expect_whole("join")
        kind, names = _kind_of(how), [str(name) for name in self.cols]
        shared_names(self.df, other, names)
        if not self.placed:
            return self.df.join(other, names, kind.name)
        mine = Side(self.df.drop(PLACE), names, LEFT, kind)
        theirs = Side(other.drop(_spark.TASK, PLACE), names, RIGHT, kind)
        columns = iter(mine.columns)
        renamed = [mine.place if name == PLACE else next(columns) for name in self.df.columns]
        placed = [mine.fenced(self.df.toDF(*renamed)), theirs.placed(self.router, {}, self.bits)]
        return _meet(mine, theirs, placed, kind, len(self.router.tasks))

    def apply_by_key(
        self, func: Function, schema: T.StructType | str, merge: Function | None = None
    ) -> DataFrame:
        """What a function makes of the rows of each key: `apply_by_key`, without an exchange."""
        return Balanced.apply_by_key(replace(self, df=self.df.drop(PLACE)), func, schema, merge)

    @property
    def _by(self) -> list[str]:
        return [PLACE] if self.placed else []


def balance_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    tasks: int | Ring | SparkHash | Router,
    how: str = "inner",
    *,
    method: str = "auto",
    statistics: tuple[DataFrame | None, DataFrame | None] = (None, None),
    min_gain: float = MIN_GAIN,
    salt: tuple[ColumnOrName | None, ColumnOrName | None] = (None, None),
    **options: Any,
) -> Joined:
    """`left.join(right, on, how)` on balanced partitions; keys heavier than a task are split.

    `Joined.df` has the columns of that join and `pyroute_place` after those of the key: drop it
    where it is not wanted. `Joined.plan.loads_before` is what the home alone would give.

    A join is left to Spark where it would do it by broadcast, and where balance would gain little:
    then `Joined.placed` is False, there is no `pyroute_place`, and `Joined.plan.reasons` says so.
    To have it balanced all the same, set `spark.sql.autoBroadcastJoinThreshold` to -1 and
    `min_gain` to 0. Both sides are read twice, for the statistics and for the join: cache what is
    dear to compute, or count in what it came from (`statistics`).

    Parameters
    ----------
    left, right
        The sides. `pyroute_task` and `pyroute_place` of an earlier placement are left out.
    on
        Names of the key's columns, which both sides have in one type.
    tasks
        How many partitions; or a home, or the router in force, whose splits are made anew.
    how
        inner, left, right, full, leftsemi or leftanti, or another of Spark's names for these.
    method
        "exact" counts every row; "auto" some 500,000 of each side, and all where there are fewer.
    statistics
        Frames to count keys in instead of the left and the right, where these are dear to compute;
        they have the key's columns under the same names.
    min_gain
        By how much sooner the last task has to end, as a share, for balance to be worth it. Where
        more tasks than cores are asked for, a long task costs little: others run beside it.
    salt
        What spreads the rows of a split key, for the left and for the right: a pure function of
        the row. None is a hash of the whole row, which needs all columns of that side and cannot
        part rows that are equal in every one.
    **options
        Those of `pyroute.rebalance`; here `max_imbalance` is 0.01, `max_table` 50,000 and
        `mergeable`, which allows splits, True unless given.
    """
    _spark.need("balance_join", 4, 1)
    kind = _kind_of(how)
    names = shared_names(left, right, on)
    left, right = left.drop(_spark.TASK, PLACE), right.drop(_spark.TASK, PLACE)
    router = _without_splits(tasks)
    options = {"max_imbalance": MAX_IMBALANCE, "max_table": MAX_TABLE, **options}
    mergeable = options.pop("mergeable", True)
    joined_by = _broadcast(left, right, names, kind)
    if joined_by is not None:
        reason = f"left to Spark, which joins by broadcast ({joined_by}): no row has to move"
        df = left.join(right, names, kind.name)
        nothing = Work.of(Counts.none(), kind, 0)
        return nothing.left_to_spark(df, names, nothing.place(router, False, options), reason)
    sides = (
        Side(left, names, LEFT, kind, _salt(salt, 0)),
        Side(right, names, RIGHT, kind, _salt(salt, 1)),
    )
    counts = _count(_frames(sides, names, kind, statistics), method)
    spreads = sum(side.number for side in sides if side.can_spread) if mergeable else 0
    work = Work.of(counts, kind, spreads)
    ours = not isinstance(tasks, Router | Ring | SparkHash)
    placing = work.place(router, ours, options)
    if mergeable:
        advice = "; mergeable work could be split"
        placing.plan.reasons = [r.replace(advice, kind.why) for r in placing.plan.reasons]
    slots = _spark.slots(left.sparkSession, len(router.tasks))
    gain = _gain(placing.plan, slots)
    if gain < min_gain:
        reason = (
            f"left to Spark: balance would make its {len(router.tasks)} tasks, {slots} at a time,"
            f" {gain:.1%} shorter"
        )
        df = left.join(right, names, kind.name)
        return work.left_to_spark(df, names, placing, reason)
    bits = _bits(len(router.tasks), work.measured)
    compiled = Compiled(left.sparkSession, placing.router)
    placed = [side.placed(placing.router, placing.directions, bits, compiled) for side in sides]
    df = _meet(*sides, placed, kind, len(router.tasks))
    _LOG.info("join: %d keys, %d split", len(work.ids), len(placing.directions))
    return Joined(df, placing.router, placing.plan, work.measured, tuple(names), bits=bits)


def _without_splits(tasks: Any) -> Router:
    router = tasks if isinstance(tasks, Router) else Router(tasks)
    if not isinstance(router.home, Ring | SparkHash):
        raise TypeError(
            "tasks: expected a number, or a home that the JVM can compute (Ring, SparkHash),"
            f" got {type(router.home).__name__}"
        )
    return Router(router.home, router.table, None, router.version) if router.splits else router


def _kind_of(how: str) -> How:
    if not isinstance(how, str):
        raise TypeError(f"how: expected a name, got {type(how).__name__}")
    plain = how.lower().replace("_", "")
    kind = HOWS.get(_ALIASES.get(plain, plain))
    if kind is None:
        raise ValueError(f"how: expected one of {', '.join(HOWS)}, got {how}")
    return kind


def _salt(salt: Any, at: int) -> ColumnOrName | None:
    if not isinstance(salt, tuple) or len(salt) != 2:
        raise TypeError(f"salt: expected a pair, for left and right, got {type(salt).__name__}")
    one: ColumnOrName | None = salt[at]
    return one


class Side:
    """One side of the join, its columns under names of its own."""

    def __init__(
        self,
        df: DataFrame,
        names: Sequence[str],
        number: int,
        how: How,
        salt: ColumnOrName | None = None,
    ) -> None:
        self.number = number
        self.names = df.columns
        prefix = "pyroute_l" if number == LEFT else "pyroute_r"
        self.columns = [f"{prefix}{i}" for i in range(len(self.names))]
        self.key = [self.columns[_find(self.names, name)] for name in names]
        self.place = f"{prefix}_place"
        if salt is None:
            df = df.toDF(*self.columns)
            self._salt = _hash_of_row(df.drop(*self.key))
        else:
            name = f"{prefix}_salt"
            df = df.withColumn(name, as_columns([salt])[0].cast("bigint"))
            df = df.toDF(*self.columns, name)
            self._salt = F.col(name)
        self.can_spread = self._salt is not None
        self._how = how
        self._keeps = bool(how.keeps & number)
        if not self._keeps:  # a null key never joins
            for name in self.key:
                df = df.filter(F.col(name).isNotNull())
        self._df = df

    @property
    def keys(self) -> DataFrame:
        """The key of each row."""
        return self._df.select(*self.key)

    def placed(
        self,
        router: Router,
        directions: Mapping[int, int],
        bits: int,
        compiled: Compiled | None = None,
    ) -> DataFrame:
        """The rows in one partition per task.

        Parameters
        ----------
        router
            Which task that is.
        directions
            Which side of each split key is spread, by identity.
        bits
            Of the identity in a place.
        compiled
            The router's arrays, where they are there already.
        """
        columns = checked(self._df, self.key)
        # Columns of their own for what is used more than once.
        df = self._df.withColumn("pyroute_id", columns.identity)
        identity, found = F.col("pyroute_id"), F.col("pyroute_found")
        places = Places(df.sparkSession, router, identity, columns.raw, compiled)
        df = df.withColumn("pyroute_found", places.place)
        copied = [not directions[one] & self.number for one in router.split_ids.tolist()]
        salt = None if all(copied) else self._salt
        null = F.lit(False)
        for name in self.key if self._keeps else ():
            null |= F.col(name).isNull()
        if salt is not None and self._how.keeps == BOTH:
            salt = F.when(null, salt).otherwise(0)  # others of that identity have partners
        if any(copied):
            at = F.explode(places.every(found, identity, salt, copied))
        else:
            at = places.one(found, identity, salt)
        n = len(router.tasks)
        df = df.withColumn("pyroute_at", at)
        low = _low(identity, bits)
        if self._keeps:
            # A null key is not compared with any other of its identity, nor with the other side's.
            lone = _low(F.bitwise_not(identity), bits)
            odd = F.lit(int(self.number == RIGHT))
            low = F.when(null, lone - lone.bitwiseAND(F.lit(1).cast("bigint")) + odd).otherwise(low)
        # Never null: otherwise Spark would ask, of each row, and compute the place once more.
        place = F.coalesce((F.col("pyroute_at") + low * n).cast("int"), F.lit(0))
        df = df.select(*self.columns, place.alias(self.place))
        return self.fenced(exchange(df, n, F.col(self.place)))

    def fenced(self, df: DataFrame) -> DataFrame:
        """The placed rows, which stay where they are."""
        moves = self.number == LEFT and self._how.name in ("leftsemi", "leftanti")
        return fenced(df) if moves else df


def _bits(tasks: int, measured: Measured) -> int:
    """Bits of the identity in a place: at most one in 64 keys shares its own, where that is known.

    Places are not negative: Spark's sort would take the sign for four more bytes.
    """
    most = (2**31 // tasks).bit_length() - 1
    if measured.method != "exact":
        return most
    return min(most, (64 * len(measured.snapshot) // tasks + 2).bit_length())


def _find(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else [n.lower() for n in names].index(name.lower())


def _low(identity: Column, bits: int) -> Column:
    return identity.bitwiseAND(F.lit((1 << bits) - 1).cast("bigint"))


def _hash_of_row(df: DataFrame) -> Column | None:
    """What tells rows apart; None where there is nothing that can be hashed."""
    try:
        return whole_row(df)
    except TypeError:
        return None


def _meet(left: Side, right: Side, placed: Sequence[DataFrame], how: How, tasks: int) -> DataFrame:
    """The placed sides, joined; columns as Spark has them for names, `pyroute_place` after the key.

    Parameters
    ----------
    left, right
        The sides, for their names.
    placed
        Their rows, each with its place.
    how
        The kind of join.
    tasks
        How many.
    """
    meets = F.col(left.place) == F.col(right.place)
    for one, other in zip(left.key, right.key, strict=True):
        meets &= (F.col(one) <= F.col(other)) & (F.col(one) >= F.col(other))
    df = placed[0].join(placed[1], meets, how.name)
    semi = how.name in ("leftsemi", "leftanti")
    named = dict(zip(left.columns, left.names, strict=True))
    named |= dict(zip(right.columns, right.names, strict=True))
    columns = []
    for one, other in zip(left.key, right.key, strict=True):
        shown = F.coalesce(one, other) if how.keeps == BOTH else F.col(one)
        name = one
        if how.keeps == RIGHT:
            shown, name = F.col(other), other
        columns.append(shown.alias(named[name]))
    columns.append(_place_of(left, right, how, tasks).alias(PLACE))
    for side in (left,) if semi else (left, right):
        rest = [column for column in side.columns if column not in side.key]
        columns += [F.col(column).alias(named[column]) for column in rest]
    return df.select(*columns)


def _place_of(left: Side, right: Side, how: How, tasks: int) -> Column:
    """The place of a row of the result: one for each key and task."""
    if how.keeps != BOTH:
        return F.col(right.place if how.keeps == RIGHT else left.place)
    null = F.lit(False)
    for name in right.key:
        null |= F.col(name).isNull()
    # A null key has an even place on the left and the next one on the right.
    alike = F.col(right.place) - F.when(null, F.lit(tasks)).otherwise(0)
    return F.coalesce(F.col(left.place), alike)


@dataclass(frozen=True)
class Placing:
    """A plan, the router it makes, and which side of each split key is spread, by identity."""

    plan: Plan
    router: Router
    directions: dict[int, int]


@dataclass(frozen=True)
class Counts:
    """Rows of each key on both sides, and those of them that have a null key: no partner."""

    keys: Keys | list[Any]
    """With their values; no two of one identity."""
    ids: Ids
    left: Reals
    right: Reals
    lone_left: Reals
    lone_right: Reals
    method: str
    reason: str
    error: float

    @classmethod
    def none(cls) -> Counts:
        """Where nothing is counted."""
        ids, no = np.empty(0, np.uint64), np.empty(0)
        return cls([], ids, no, no, no, no, "none", "not needed", 0.0)

    def names(self, at: Sequence[int]) -> list[Any]:
        """The values of some keys."""
        if isinstance(self.keys, Keys):
            columns = [column.take(pa.array(at, pa.int64())) for column in self.keys.columns or ()]
            return Snapshot(keys(*columns), np.zeros(len(at))).values
        return [self.keys[i] for i in at]


def _frames(
    sides: Sequence[Side], names: Sequence[str], how: How, statistics: Any
) -> list[DataFrame]:
    """The keys to count, of each side."""
    if not isinstance(statistics, tuple) or len(statistics) != 2:
        kind = type(statistics).__name__
        raise TypeError(f"statistics: expected a pair of DataFrames or None, got {kind}")
    out = []
    for side, frame in zip(sides, statistics, strict=True):
        if frame is None:
            out.append(side.keys)
            continue
        shared_names(frame, frame, names)
        out.append(Side(frame.select(*map(quoted, names)), names, side.number, how).keys)
    return out


def _count(frames: Sequence[DataFrame], method: str) -> Counts:
    """Rows of each key, both sides in one job."""
    if method not in ("auto", "exact"):
        raise ValueError(f"method: expected one of auto, exact, got {method}")
    shares = [1.0 if method == "exact" else _share(frame) for frame in frames]
    table = _counted(frames, shares)
    seen = [pc.sum(table.column(-2 + i)).as_py() or 0 for i in range(2)]
    pairs = zip(shares, seen, strict=True)
    short = [share < 1 and rows < LEAST_ROWS for share, rows in pairs]
    if any(short):
        whole = _counted(frames, [float(one) for one in short])
        table = whole if all(short) else _instead(table, whole, short)
        shares = [1.0 if one else share for one, share in zip(short, shares, strict=True)]
    columns = table.columns[:-2]
    null = functools.reduce(pc.or_, [pc.is_null(column) for column in columns]).to_numpy()
    found = keys(*columns)
    ids, first, inverse = np.unique(found.ids, return_index=True, return_inverse=True)
    same = len(ids) < len(found)  # a null key and another may be one (docs/decisions/0001)

    def merged(rows: Reals) -> Reals:
        return np.bincount(inverse, rows).astype(np.float64) if same else rows

    left, right = (
        _scaled(table.column(-2 + i).to_numpy().astype(np.float64), shares[i]) for i in range(2)
    )
    if same:
        found = keys(*(column.take(pa.array(first)) for column in columns))
    every = min(shares) == 1
    reason = f"about {shares[0]:.2%} of the left and {shares[1]:.2%} of the right were counted"
    return Counts(
        keys=found,
        ids=found.ids,
        left=merged(left),
        right=merged(right),
        lone_left=merged(np.where(null, left, 0.0)),
        lone_right=merged(np.where(null, right, 0.0)),
        method="exact" if every else "sampled",
        reason="every row was counted" if every else reason,
        error=0.0 if every else 2 / math.sqrt(SAMPLE_ROWS),
    )


def _counted(frames: Sequence[DataFrame], shares: Sequence[float]) -> pa.Table:
    """The keys, and how many rows each has in a sample of the left and of the right.

    A share of 0 leaves the rows of that side out, not its types: those of a key are common ones.
    """
    parts = []
    for i, (frame, share) in enumerate(zip(frames, shares, strict=True)):
        some = frame
        if share != 1:
            some = frame.sample(fraction=share, seed=i) if share else frame.limit(0)
        named = some.toDF(*(f"pyroute_key_{k}" for k in range(len(some.columns))))
        parts.append(named.withColumn("pyroute_is_left", F.lit(i == 0)))
    whole, is_left = parts[0].unionAll(parts[1]), F.col("pyroute_is_left")
    left = F.count(F.when(is_left, 1)).alias("pyroute_left")
    right = F.count(F.when(~is_left, 1)).alias("pyroute_right")
    return to_arrow(whole.groupBy(*whole.columns[:-1]).agg(left, right)).combine_chunks()


def _instead(table: pa.Table, whole: pa.Table, short: Sequence[bool]) -> pa.Table:
    """The counts of one side taken from `whole`, those of the other from `table`."""
    names = table.column_names
    for name, one in zip(names[-2:], short, strict=True):
        if one:
            nothing = pa.array(np.zeros(table.num_rows, np.int64))
            table = table.set_column(names.index(name), name, nothing)
    both = pa.concat_tables(pa.table(one.columns, names=names) for one in (table, whole))
    grouped = both.group_by(names[:-2], use_threads=False)
    summed = grouped.aggregate([(name, "sum") for name in names[-2:]])
    return summed.select([*names[:-2], *(f"{name}_sum" for name in names[-2:])])


def _scaled(rows: Reals, share: float) -> Reals:
    """Rows of a key, from those in a sample: the first one counts once, so that one is one.

    Not seen is not the same as not there.
    """
    return rows if share == 1 else np.where(rows > 0, 1 + (rows - 1) / share, 1.0)


def _share(frame: DataFrame) -> float:
    """Which share of the rows to count, by what Spark's optimizer says of their size.

    It knows bytes, of compressed files too: a value is taken for 4 of them. Where there are far
    fewer rows than that the sample is too small, and all rows of that side are counted.
    """
    (row,) = frame.sparkSession.sql("EXPLAIN COST SELECT * FROM {frame}", frame=frame).collect()
    size = _size(row[0])
    if size is None:
        return 1.0
    share = SAMPLE_ROWS * 4 * len(frame.columns) / max(size, 1.0)
    return 1.0 if share > 0.5 else share


_NODE = re.compile(r"([ :+-]*)(\w+).*Statistics\(sizeInBytes=([\d.E+]+) (\w*)B")
_UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


def _size(plan: str) -> float | None:
    """Bytes that a query gives, by the text of `EXPLAIN COST`; None where it does not say.

    Spark takes a join for the product of its sides. Here it is at most the largest of what it is
    made of: a fact with its dimensions, as most joins are.
    """
    sizes: list[tuple[int, str, float]] = []
    for line in plan.split("== Physical Plan ==")[0].splitlines():
        found = _NODE.match(line)
        if found:
            size = float(found[3]) * 1024 ** _UNITS.index(found[4])
            sizes.append((len(found[1]), found[2], size))
    if not sizes:
        return None
    # From the last line up: a node's children are the deeper ones below it that have no parent yet.
    waiting: list[tuple[int, bool, float]] = []  # depth, whether there is a join, size
    for depth, name, size in reversed(sizes):
        below = []
        while waiting and waiting[-1][0] > depth:
            below.append(waiting.pop())
        joins = name == "Join" or any(one[1] for one in below)
        if joins and below:
            size = min(size, max(one[2] for one in below))
        waiting.append((depth, joins, size))
    return waiting[-1][2]


@dataclass(frozen=True)
class Work:
    """What the keys of a join cost, and what splitting them would."""

    counts: Counts
    measured: Measured
    ids: Ids
    cost: Reals
    spread: Reals
    """Of the cost, what splitting divides."""
    copied: Reals
    """Of the cost, what each task of a split has."""
    rows: Reals
    """Rows of the side that would be spread."""
    direction: npt.NDArray[np.int64]
    """Which side that is; 0 for none."""
    how: How

    @classmethod
    def of(cls, counts: Counts, how: How, spreads: int) -> Work:
        """From the rows of each key on both sides.

        Parameters
        ----------
        counts
            Those.
        how
            The kind of join.
        spreads
            The sides whose rows can be spread at all; 0 to split nothing.
        """
        of_left, of_right = counts.left, counts.right
        lone = counts.lone_left + counts.lone_right
        nulls = (lone > 0) & (of_left + of_right == lone)
        pairs = how.rows(of_left - counts.lone_left, of_right - counts.lone_right)
        cost = of_left + of_right + pairs + lone
        direction = _directions(of_left, of_right, how.spreads & spreads)
        if how.keeps == BOTH and spreads == BOTH:
            direction[nulls] = BOTH
        snapshot = Snapshot(counts.keys, cost)
        assert np.array_equal(snapshot.ids, counts.ids)
        copied = np.select(
            [direction == LEFT, direction == RIGHT], [of_right, of_left], default=0.0
        )
        return cls(
            counts=counts,
            measured=Measured(snapshot, counts.method, counts.reason, counts.error, 0.0),
            ids=counts.ids,
            cost=cost,
            spread=cost - copied,
            copied=copied,
            rows=np.select([direction == LEFT, direction == RIGHT], [of_left, of_right], cost),
            direction=direction,
            how=how,
        )

    def owners(self, n: int, max_imbalance: float) -> npt.NDArray[np.int64]:
        """How many tasks each key gets: as few as bring its share below what a task may carry."""
        owners = np.ones(len(self.ids), np.int64)
        if not len(owners) or n < 2:
            return owners
        with np.errstate(divide="ignore"):
            most = np.floor(1 + COPIES * self.spread / self.copied)
        most = np.minimum(np.minimum(most, self.rows), n)
        most[self.direction == 0] = 1
        for _ in range(10):
            # Copies are work too: what a task may carry grows with them.
            total = (self.cost + self.copied * (owners - 1)).sum()
            limit = (1 + max_imbalance) * total / n
            room = np.maximum(limit - self.copied, 1e-9)
            wanted = np.where(self.cost > limit, np.ceil(self.spread / room), 1)
            before, owners = owners, np.maximum(np.minimum(wanted, most), 1).astype(np.int64)
            if (before == owners).all():
                break
        return owners

    def place(self, router: Router, ours: bool, options: dict[str, Any]) -> Placing:
        """The plan.

        Parameters
        ----------
        router
            Where keys are without a plan.
        ours
            Whether its ring may be another, with the same tasks.
        options
            Those of `rebalance`.
        """
        n = len(router.tasks)
        owners = self.owners(n, float(options["max_imbalance"]))
        cost = self.cost + self.copied * (owners - 1)
        split = np.flatnonzero(owners > 1)
        limit = (1 + float(options["max_imbalance"])) * cost.sum() / n
        giants = np.flatnonzero((owners == 1) & (cost > limit))
        tasks, load = np.array(router.tasks), np.zeros(n)
        chosen: dict[int, list[int]] = {}
        for at in sorted([*split, *giants], key=lambda i: (-cost[i] / owners[i], self.ids[i])):
            least = np.argsort(load, kind="stable")[: owners[at]]
            load[least] += cost[at] / owners[at]
            chosen[int(at)] = tasks[least].tolist()
        named = dict(zip(chosen, self.counts.names(list(chosen)), strict=True))
        splits = {named[at]: chosen[at] for at in split.tolist()}
        table: Any = router.table
        home = router.home
        if ours and chosen and "capacities" not in options:
            # What has a task to itself leaves no room for others: their homes are elsewhere.
            weights = np.maximum(cost.sum() / n - load, 0.0)
            if weights.any():
                home = Ring(dict(zip(router.tasks, weights.tolist(), strict=True)))
                table = {named[at]: chosen[at][0] for at in giants.tolist()}
            options = {**options, "capacities": dict.fromkeys(router.tasks, 1.0)}
        start = Router(home, table, splits, router.version)
        plan = rebalance(Snapshot(self.counts.keys, cost), start, **options)
        self._explain(plan, router, owners, cost)
        directions = {int(self.ids[at]): int(self.direction[at]) for at in split.tolist()}
        return Placing(plan, start.apply(plan), directions)

    def left_to_spark(
        self, df: DataFrame, names: Sequence[str], placing: Placing, reason: str
    ) -> Joined:
        """Spark's own join, and why."""
        placing.plan.reasons.append(reason)
        _LOG.info("join: %s", reason)
        return Joined(df, placing.router, placing.plan, self.measured, tuple(names), placed=False)

    def _explain(
        self, plan: Plan, router: Router, owners: npt.NDArray[np.int64], cost: Reals
    ) -> None:
        """Loads of the home alone, and the keys that stand in the way, with why."""
        ring = isinstance(router.home, Ring)
        homes = router.route(Keys.from_ids(self.ids) if ring else self.counts.keys)
        loads = np.zeros(len(plan.tasks))
        np.add.at(loads, np.searchsorted(plan.tasks, homes), self.cost)
        plan.facts = replace(plan.facts, loads_before=loads)
        share = cost / owners
        over = np.flatnonzero((owners > 1) & (share > plan.facts.limit * (1 + 1e-9)))
        for at, name in zip(over.tolist(), self.counts.names(over.tolist()), strict=True):
            plan.reasons.append(
                f"key {name!r} costs {self.cost[at]:g}, and {share[at]:g} on each of"
                f" {owners[at]} tasks: more of them would have more copies of its"
                f" {self.copied[at]:g} other rows than they save"
            )


def _gain(plan: Plan, slots: int) -> float:
    """How much sooner the last task ends, as a share; 0 where it does not."""
    before, after = _span(plan.loads_before, slots), _span(plan.loads_after, slots)
    return max(0.0, 1 - after / before) if before else 0.0


def _span(loads: Iterable[float], slots: int) -> float:
    """When the last of these tasks ends if so many run at a time, in their order, as Spark does."""
    ends = [0.0] * slots
    for load in loads:
        heapq.heapreplace(ends, ends[0] + load)
    return max(ends)


def _directions(left: Reals, right: Reals, spreads: int) -> npt.NDArray[np.int64]:
    """The side with more rows, of those that may be spread."""
    if spreads != BOTH:
        return np.full(len(left), spreads, np.int64)
    return np.where(left >= right, LEFT, RIGHT).astype(np.int64)


def _broadcast(left: DataFrame, right: DataFrame, names: Sequence[str], how: How) -> str | None:
    """How Spark would join by broadcast, or None."""
    using = ", ".join(quoted(name) for name in names)
    query = f"EXPLAIN SELECT * FROM {{left}} {how.sql} {{right}} USING ({using})"
    (row,) = left.sparkSession.sql(query, left=left, right=right).collect()
    # The uppermost join of this kind; Spark moves a semi or anti join below others of its left.
    found = re.search(rf"(\w+Join) .*\b{how.physical}\b", row[0])
    return found[1] if found and found[1].startswith("Broadcast") else None
