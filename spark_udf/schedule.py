"""Rows of unequal cost in partitions that take equally long, by what an earlier run cost."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyroute.posg import Scheduler
from spark_udf import _spark
from spark_udf.columns import ColumnOrName, checked
from spark_udf.route import exchange, fenced, index_of, whole_row
from spark_udf.udfs import schedule_udf


def schedule(
    df: DataFrame, scheduler: Scheduler, *cols: ColumnOrName, sort: bool = True
) -> DataFrame:
    """The rows in one partition per task, each task with about the same estimated time.

    A row may go to any task: keys are not kept together. Needs pyroute on the executors.

    Parameters
    ----------
    df, *cols
        The rows, and the columns that their cost depends on.
    scheduler
        What they cost: `pyroute.posg.Scheduler.from_sketch(tasks, sketch)` with a `cost_sketch` of
        an earlier run, or a scheduler that has received reports. Its tasks in ascending order are
        the partitions.
    sort
        Put the rows of each partition in an order of their own first, as Spark does before a round
        robin: a stage that runs again may get rows that came over an exchange in another order, and
        would send some of them twice and others nowhere. False where their order is certain, as
        that of rows read from files.
    """
    if not isinstance(scheduler, Scheduler):
        raise TypeError(f"scheduler: expected a Scheduler, got {type(scheduler).__name__}")
    columns = checked(df, cols)
    flavour = "arrow" if _spark.version() >= (4, 1) else "pandas"
    # Spark takes a sort away that only an exchange follows, unless something stands between.
    rows = fenced(df.sortWithinPartitions(whole_row(df))) if sort else df
    task = schedule_udf(scheduler, flavour)(*columns.raw)
    named = rows.withColumn(_spark.TASK, task)
    index = index_of(df.sparkSession, scheduler.tasks, F.col(_spark.TASK))
    return exchange(named, len(scheduler.tasks), index).drop(_spark.TASK)
