"""What differs between versions of Spark, and the session in force."""

from __future__ import annotations

import os
import re

import pyspark
from pyspark.sql import DataFrame, SparkSession

TASK = "pyroute_task"
"""Name of the column that holds a row's task."""


def version() -> tuple[int, int]:
    """Major and minor version of the client, which is the server's or older."""
    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def need(what: str, major: int, minor: int) -> None:
    """Refuse where Spark is too old for a feature."""
    if version() < (major, minor):
        raise RuntimeError(
            f"{what}: expected Spark {major}.{minor} or newer, got {pyspark.__version__}"
        )


def session() -> SparkSession:
    """The session of this thread, or that of the process: a pool's threads have none of theirs."""
    try:
        return SparkSession.active()
    except RuntimeError as error:
        message = "session: expected an active SparkSession, got none: create one first"
        raise RuntimeError(message) from error


def slots(spark: SparkSession, tasks: int) -> int:
    """How many of so many tasks run at a time; all of them where the settings do not say it."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", _setting(spark, "spark.master"))
    if local:
        cores = (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    elif _setting(spark, "spark.dynamicAllocation.enabled", "false").lower() == "true":
        return tasks
    else:
        numbers = [_setting(spark, f"spark.executor.{name}") for name in ("instances", "cores")]
        if not all(number.isdecimal() for number in numbers):
            return tasks
        cores = int(numbers[0]) * int(numbers[1])
    each = _setting(spark, "spark.task.cpus", "1")
    return max(1, min(tasks, cores // (int(each) if each.isdecimal() else 1)))


def _setting(spark: SparkSession, name: str, default: str = "") -> str:
    return spark.conf.get(name, default) or default


def expect_frame(value: object, name: str) -> None:
    """Refuse what is no DataFrame."""
    # Spark Connect's class is a DataFrame too from 4.0 on.
    if not isinstance(value, DataFrame) and type(value).__name__ != "DataFrame":
        raise TypeError(f"{name}: expected a DataFrame, got {type(value).__name__}")
