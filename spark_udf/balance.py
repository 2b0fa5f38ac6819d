"""From a skewed DataFrame to balanced partitions in one line, with the plan to look at."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, GroupedData, Window, WindowSpec
from pyspark.sql.types import StructType

from pyroute import Plan, Ring, Router, SparkHash, rebalance
from spark_udf import _spark
from spark_udf.by_key import Function, Work
from spark_udf.columns import ColumnOrName, shared_names
from spark_udf.route import fenced, routed
from spark_udf.stats import Measured, measure

_LOG = logging.getLogger("pyroute.spark")

MAX_IMBALANCE = 0.01
"""No state moves between batch jobs, so that balance is all that counts."""

MAX_TABLE = 50_000


@dataclass(frozen=True)
class Balanced:
    """Rows in one partition per task, and how they got there.

    Spark does not know that equal keys are in one partition, only that equal (task, key) are. So
    that the next line adds no second exchange, group, window and join on both: `group_by`,
    `window` and `join` do.
    """

    df: DataFrame
    """The rows, with their task in `pyroute_task`."""
    router: Router
    plan: Plan
    statistics: Measured
    cols: tuple[ColumnOrName, ...]
    placed: bool = True
    """Whether the rows are in one partition per task; not so where a join was left to Spark."""

    def group_by(self, *more: ColumnOrName) -> GroupedData:
        """`groupBy` of task, key and more columns: no exchange beyond the one already made.

        The result has `pyroute_task` as its first column. Where keys are split
        (`mergeable=True`) each of their tasks gives a row of its own: partial results.
        """
        return self.df.groupBy(_spark.TASK, *self.cols, *more)

    def window(self, *more: ColumnOrName) -> WindowSpec:
        """`Window.partitionBy` of task, key and more columns; add the order to it."""
        self._expect_whole("window")
        return Window.partitionBy(_spark.TASK, *self.cols, *more)

    def join(self, other: DataFrame, how: str = "inner") -> DataFrame:
        """Join on the key's columns, which `other` has under the same names and in the same types.

        One exchange for each side. Skewed on both sides: `balance_join`.
        """
        self._expect_whole("join")
        names = [name for name in self.cols if isinstance(name, str)]
        if len(names) != len(self.cols):
            raise TypeError("join: expected a key given by names, got expressions")
        shared_names(self.df, other, names, ("df", "other"), "cols")
        placed = routed(other, self.router, names, None)
        mine = fenced(self.df) if "semi" in how.lower() or "anti" in how.lower() else self.df
        return mine.join(placed, [*names, _spark.TASK], how)

    def apply_by_key(
        self, func: Function, schema: StructType | str, merge: Function | None = None
    ) -> DataFrame:
        """What a function makes of the rows of each key: `apply_by_key`, without an exchange.

        Parameters
        ----------
        func, schema, merge
            Those of `apply_by_key`; `merge` is needed where keys are split, and then what `func`
            answered is exchanged.
        """
        work = Work(self.router, func, schema, merge)
        df = self.df if self.placed else routed(self.df, self.router, self.cols, None)
        return work.of(df, self.cols)

    def _expect_whole(self, what: str) -> None:
        if self.router.splits:
            raise ValueError(
                f"{what}: expected keys that are whole, got {len(self.router.splits)} split ones:"
                " use apply_by_key with merge, or balance_join"
            )


def repartition(
    df: DataFrame, router: Router, *cols: ColumnOrName, salt: ColumnOrName | None = None
) -> DataFrame:
    """The rows in one partition per task: partition p has exactly those of the p-th task.

    Parameters
    ----------
    df, *cols
        The rows and the columns of their key.
    router
        The routing; its tasks in ascending order are the partitions.
    salt
        Where the router has splits: what spreads a split key's rows; None is a hash of the row.
    """
    return routed(df, router, cols, salt).drop(_spark.TASK)


def balance(
    df: DataFrame,
    *cols: ColumnOrName,
    tasks: int | Ring | SparkHash | Router,
    cost: ColumnOrName | None = None,
    state_size: ColumnOrName | None = None,
    method: str = "auto",
    salt: ColumnOrName | None = None,
    **options: Any,
) -> Balanced:
    """Statistics, plan and repartition in one line.

    Parameters
    ----------
    df, *cols
        The rows and the columns of their key.
    tasks
        How many partitions; or a home, or the router in force.
    cost
        A number per row, at least 0: what it asks of its task; without it 1.
    state_size
        Bytes of a key's state, for plans over a router in force.
    method
        How statistics are made: `collect_stats`.
    salt
        What spreads the rows of a split key, a pure function of the row; None is a hash of the
        whole row, which cannot part rows that are equal in every column.
    **options
        Those of `pyroute.rebalance`; here `max_imbalance` is 0.01 and `max_table` 50,000 unless
        given. `mergeable=True` splits keys that are heavier than a task.
    """
    router = tasks if isinstance(tasks, Router) else Router(tasks)
    measured = measure(df, cols, cost, state_size, method, router)
    options = {"max_imbalance": MAX_IMBALANCE, "max_table": MAX_TABLE, **options}
    plan = rebalance(measured.snapshot, router, **options)
    after = router.apply(plan)
    return Balanced(routed(df, after, cols, salt), after, plan, measured, tuple(cols))


def balanced(*cols: ColumnOrName, **options: Any) -> Callable[[DataFrame], DataFrame]:
    """`balance` for a chain: `df.transform(su.balanced("user_id", tasks=200))`.

    The rows keep `pyroute_task`; the plan's summary is logged (`pyroute.spark`, INFO).
    """

    def transform(df: DataFrame) -> DataFrame:
        made = balance(df, *cols, **options)
        _LOG.info("%s", made.plan.summary())
        return made.df

    return transform
