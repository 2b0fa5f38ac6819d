"""Files of one's own: rows of each task by Spark's hash and routed, and the keys that make them.

Both are measured, by an exchange each, and not computed from the plan: by hash it is what
`repartition(n, key)`, and so every `groupBy`, join and window of Spark, does with these rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pyroute import Router, SparkHash
from pyroute.cli.output import CommandError
from spark_udf.balance import Balanced, balance
from spark_udf.columns import checked, key
from spark_udf.route import route
from spark_udf.run.session import reason
from spark_udf.stats import top_keys

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_PACKED = (".gz", ".bz2", ".zst", ".snappy")
_OPTIONS = {"csv": {"header": "true", "inferSchema": "true"}}


@dataclass(frozen=True)
class Files:
    """What is read: places, and their format."""

    places: tuple[str, ...]
    format: str

    @classmethod
    def of(cls, names: Sequence[str], *, one_by_one: bool = False) -> Files:
        """Files, directories and patterns; a directory is one place, or each of its files is."""
        places: list[str] = []
        formats: set[str] = set()
        for name in names:
            if "://" in name:
                places.append(name)
                formats.add(_format(name) or "parquet")
                continue
            for path in _matching(name):
                inside = _inside(path)
                formats |= {_expected(one) for one in (inside if one_by_one else inside[:1])}
                places += [f"file://{one}" for one in (inside if one_by_one else [path])]
        if len(formats) != 1:
            raise CommandError(f"FILES: expected one format, got {', '.join(sorted(formats))}")
        return cls(tuple(places), formats.pop())

    def read(self, spark: SparkSession, *places: str) -> DataFrame:
        """The rows of all places, or of some."""
        reader = spark.read.options(**_OPTIONS.get(self.format, {}))
        try:
            return reader.format(self.format).load(list(places or self.places))
        except (PySparkException, Py4JError) as error:
            raise CommandError(f"FILES: expected {self.format}, got {reason(error)}") from error


def _matching(name: str) -> list[Path]:
    path = Path(name)
    found = [path] if path.exists() else sorted(_glob(path))
    if not found:
        raise CommandError(
            f"FILES: expected a file, a directory or a pattern, got {name}, not there"
        )
    return [one.absolute() for one in found]


def _glob(pattern: Path) -> Iterator[Path]:
    place = Path(pattern.anchor)
    return place.glob(str(pattern.relative_to(place)))


def _inside(path: Path) -> list[Path]:
    """The files with data in a directory, or the file itself."""
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.rglob("*") if one.is_file() and one.name[0] not in "._")
    if not found:
        raise CommandError(f"FILES: expected files in {path}, got none")
    return found


def _format(name: str) -> str | None:
    stem = Path(name.rstrip("/"))
    while stem.suffix in _PACKED:
        stem = stem.with_suffix("")
    return FORMATS.get(stem.suffix.lower())


def _expected(path: Path) -> str:
    found = _format(path.name)
    if found is None:
        raise CommandError(f"FILES: expected {', '.join(FORMATS)}, got {path}")
    return found


def expect_columns(df: DataFrame, keys: Sequence[str], cost: str | None) -> None:
    """Refuse columns that are not there or cannot be what they are to be, by their option."""
    for option, name in [*(("--key", one) for one in keys), *([("--cost", cost)] if cost else [])]:
        if name not in df.columns and "." not in name:
            raise CommandError(f"{option}: expected one of {', '.join(df.columns)}, got {name}")
    try:
        checked(df, keys)
    except TypeError as error:
        raise CommandError(f"--key: {error}") from error
    except PySparkException as error:
        raise CommandError(f"--key: {reason(error)}") from error
    if cost is not None:
        kind = df.select(cost).schema.fields[0].dataType
        if not isinstance(kind, T.NumericType):
            raise CommandError(f"--cost: {cost}: expected numbers, got {kind.simpleString()}")


@dataclass(frozen=True)
class HotKey:
    """One of the heaviest keys, and where it goes."""

    value: tuple[Any, ...]
    rows: int
    error: int
    """Rows that may be too many."""
    share: float
    hash_task: int
    routed_task: int


@dataclass(frozen=True)
class Loads:
    """Rows and cost of each task, in their order."""

    rows: npt.NDArray[np.int64]
    cost: npt.NDArray[np.float64]
    seconds: float

    @property
    def max_over_mean(self) -> float:
        """Cost of the busiest task over the mean."""
        mean = float(self.cost.mean())
        return float(self.cost.max()) / mean if mean > 0 else 1.0


@dataclass(frozen=True)
class Result:
    """What was found."""

    rows: int
    tasks: int
    costed: bool
    hash: Loads
    routed: Loads
    hottest: tuple[HotKey, ...]
    made: Balanced

    @property
    def equal(self) -> bool:
        """Whether both have all rows, and each partition the rows of its task."""
        return int(self.hash.rows.sum()) == int(self.routed.rows.sum()) == self.rows

    def document(self, *, named: bool) -> dict[str, Any]:
        """As JSON has it; `named` says whether reasons may name keys."""
        plan, stats = self.made.plan, self.made.statistics
        return {
            "rows": self.rows,
            "statistics": {
                "method": stats.method,
                "reason": stats.reason,
                "keys": len(stats.snapshot),
                "error": float(stats.error),
            },
            "tasks": [
                {
                    "task": task,
                    **{
                        name: {"rows": int(one.rows[task]), "cost": float(one.cost[task])}
                        for name, one in (("hash", self.hash), ("routed", self.routed))
                    },
                }
                for task in range(self.tasks)
            ],
            "hottest": [
                {**one.__dict__, "value": [plain(part) for part in one.value]}
                for one in self.hottest
            ],
            "plan": {
                "keys_moved": len(plan.migrations),
                "table": len(plan.table),
                "imbalance": float(plan.imbalance),
                "feasible": plan.feasible,
                "reasons": list(plan.reasons) if named else [],
                "seconds": float(plan.seconds),
            },
            "summary": {
                "max_over_mean": {
                    "hash": self.hash.max_over_mean,
                    "routed": self.routed.max_over_mean,
                },
                "seconds": {"hash": self.hash.seconds, "routed": self.routed.seconds},
            },
            "equal": self.equal,
        }


def plain(value: Any) -> Any:
    """A key's value as JSON has it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return str(value)


def compare(
    df: DataFrame,
    keys: Sequence[str],
    *,
    cost: str | None,
    tasks: int,
    max_imbalance: float,
    hottest: int,
    hashed: bool,
) -> Result:
    """Measure both ways; statistics and plan between them."""
    expect_columns(df, keys, cost)
    home = _home(df, keys, tasks)
    before = Router(tasks if home is None else home)
    try:
        made = balance(df, *keys, tasks=before, cost=cost, max_imbalance=max_imbalance)
        by_hash = _loads(df.repartition(tasks, *keys), tasks, cost)
        if not by_hash.rows.sum():
            raise CommandError("FILES: expected rows, got none")
        routed = _loads(made.df, tasks, cost)
        hot = _hottest(df, keys, before, made.router, hottest, hashed)
    except PySparkException as error:
        raise CommandError(reason(error)) from error
    rows = int(by_hash.rows.sum())
    return Result(rows, tasks, cost is not None, by_hash, routed, hot, made)


def _home(df: DataFrame, keys: Sequence[str], tasks: int) -> SparkHash | None:
    """Spark's own hash; None for types of which it is not known here."""
    try:
        kinds = [field.dataType.simpleString() for field in checked(df, keys).fields]
        return SparkHash(tasks, kinds)
    except ValueError:
        return None


def _loads(placed: DataFrame, tasks: int, cost: str | None) -> Loads:
    started = time.perf_counter()
    value: Column = F.lit(1.0) if cost is None else F.col(cost).cast("double")
    found = (
        placed.select(F.spark_partition_id().alias("task"), value.alias("cost"))
        .groupBy("task")
        .agg(F.count(F.lit(1)), F.sum("cost"))
        .collect()
    )
    rows, costs = np.zeros(tasks, np.int64), np.zeros(tasks)
    for task, number, total in found:
        rows[task], costs[task] = number, total
    return Loads(rows, costs, time.perf_counter() - started)


def _hottest(
    df: DataFrame, keys: Sequence[str], before: Router, after: Router, k: int, hashed: bool
) -> tuple[HotKey, ...]:
    top = top_keys(df, *keys, k=k)
    names = [field.name for field in checked(df, keys).fields]
    found = top.select(
        *names,
        *("count", "error", "share"),
        route(before, *names).alias("pyroute_before"),
        route(after, *names).alias("pyroute_after"),
        key(*names).alias("pyroute_id"),
    ).collect()
    width = len(names)
    return tuple(
        HotKey(
            (f"{row[width + 5] & (2**64 - 1):016x}",) if hashed else tuple(row[:width]),
            *row[width : width + 5],
        )
        for row in sorted(found, key=lambda row: -int(row[width]))
    )
