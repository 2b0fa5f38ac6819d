"""Vectorized UDFs: a body converts, calls and converts (`_convert`).

They run in Spark's Python workers, which need pyroute. A function that is shipped there names its
module only inside its body, so that a worker without pyroute fails with the remedy and not with a
module that cannot be found.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

from pyroute import CostSketch, Router
from pyroute.posg import Scheduler
from spark_udf import _spark
from spark_udf.columns import as_columns, by_bytes, key

REMEDY = (
    "pyroute is not installed for the Python of this executor, or a folder pyroute where Spark was"
    " started hides it (a checkout: install it with --editable): install pyroute-core[spark] there,"
    " or ship it with spark.archives or addArtifacts (docs/spark.md); key, route, repartition and"
    " balance(method='exact') need it on the driver alone"
)


def shipped(function: str, *arguments: Any, module: str = "_convert") -> Callable[..., Any]:
    """A function of a module here with its first arguments, to be called in a Python worker."""
    remedy = REMEDY

    def call(*columns: Any) -> Any:
        import importlib

        try:
            found = importlib.import_module(f"spark_udf.{module}")
        except ImportError as error:
            raise ImportError(f"{remedy}: {error}") from None
        return getattr(found, function)(*arguments, *columns)

    return call


def route_udf(router: Router, flavour: str = "arrow") -> Callable[..., Any]:
    """UDF of the task of each row; `route` is several times faster where the JVM can do it.

    Parameters
    ----------
    router
        The routing. Where it has splits the last column of a call is the salt, a bigint.
    flavour
        "arrow" (Spark 4.1 or newer; can be registered for SQL), or "pandas", which is called with
        the same columns and gets keys that the JVM computed.
    """
    if not isinstance(router, Router):
        raise TypeError(f"router: expected a Router, got {type(router).__name__}")
    data = router.to_bytes(values=False)
    if _is_arrow(flavour):
        return _arrow_udf(shipped("route", data), "int")
    body = _pandas_udf(shipped("route_ids", data), "int")
    if router.splits:
        return lambda *columns: body(key(*columns[:-1]), columns[-1])
    return lambda *columns: body(key(*columns))


def key_udf(flavour: str = "arrow") -> Callable[..., Any]:
    """UDF of the identity of each row, `pyroute.keys`, as bigint; `key` is the JVM's own."""
    if _is_arrow(flavour):
        return _arrow_udf(shipped("key"), "bigint")
    return lambda *columns: key(*columns)


def mean_time_udf(sketch: CostSketch, flavour: str = "arrow") -> Callable[..., Any]:
    """UDF of the mean time that a row of this key takes, by a sketch of earlier rows."""
    if not isinstance(sketch, CostSketch):
        raise TypeError(f"sketch: expected a CostSketch, got {type(sketch).__name__}")
    data = sketch.to_bytes()
    if _is_arrow(flavour):
        return _arrow_udf(shipped("mean_time", data), "double")
    body = _pandas_udf(shipped("mean_time_ids", data), "double")
    return lambda *columns: body(key(*columns))


def schedule_udf(scheduler: Scheduler, flavour: str = "arrow") -> Callable[..., Any]:
    """UDF of the task of each row, so that tasks take equally long by what rows are known to cost.

    A pure function of the scheduler, the number of the partition and its rows in their order: where
    the order can differ when a stage runs again, sort within partitions first, as `schedule` does.
    Partitions begin with different tasks.

    Parameters
    ----------
    scheduler
        What rows cost: `pyroute.posg.Scheduler.from_sketch(tasks, sketch)`, or one that has
        received reports. It is not changed.
    flavour
        "arrow" (Spark 4.1 or newer), or "pandas", which gets keys that the JVM computed.
    """
    if not isinstance(scheduler, Scheduler):
        raise TypeError(f"scheduler: expected a Scheduler, got {type(scheduler).__name__}")
    data = scheduler.offline().to_bytes()
    if _is_arrow(flavour):
        _spark.need("flavour 'arrow' of a UDF ('pandas' needs less)", 4, 1)
        return _iterating("arrow_udf", shipped("schedule", data), pa.Array)
    body = _iterating("pandas_udf", shipped("schedule_ids", data), pd.Series)
    return lambda *columns: body(key(*columns))


def _iterating(decorator: str, body: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    """Of the tasks of a partition, batch after batch.

    Spark is not told that it depends on the rows before: it would fail a job whose stage has to run
    again half-way, although the answer is the same.
    """

    def call(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        tasks = body(0 if context is None else context.partitionId(), batches)
        if decorator == "arrow_udf":
            yield from tasks
            return
        import pandas

        yield from map(pandas.Series, tasks)

    several = Iterator[tuple[kind, ...]] if decorator == "arrow_udf" else Iterator[kind]
    call.__annotations__ = {"batches": several, "return": Iterator[kind]}
    return _made(decorator, call, "int")


def _is_arrow(flavour: str) -> bool:
    if flavour not in ("arrow", "pandas"):
        raise ValueError(f"flavour: expected arrow or pandas, got {flavour}")
    return flavour == "arrow"


def _arrow_udf(body: Callable[..., Any], kind: str) -> Callable[..., Any]:
    _spark.need("flavour 'arrow' of a UDF ('pandas' needs less)", 4, 1)

    def call(*columns: Any) -> Any:
        return body(*columns)

    call.__annotations__ = {"columns": pa.Array, "return": pa.Array}  # Spark reads the kind there
    made = _made("arrow_udf", call, kind)

    @functools.wraps(made)  # with what Spark reads when it is registered for SQL
    def guarded(*columns: Any) -> Any:
        return made(*map(by_bytes, as_columns(columns)))

    return guarded


def _pandas_udf(body: Callable[..., Any], kind: str) -> Callable[..., Any]:
    def call(*columns: Any) -> Any:
        import pandas

        return pandas.Series(body(*columns))

    call.__annotations__ = {"columns": pd.Series, "return": pd.Series}
    return _made("pandas_udf", call, kind)


def _made(decorator: str, call: Callable[..., Any], kind: str) -> Callable[..., Any]:
    made: Callable[..., Any] = getattr(F, decorator)(call, kind)  # not in Spark's own types
    return made
