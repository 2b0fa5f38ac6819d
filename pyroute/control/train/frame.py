"""Readings of a machine and its workers at equal time steps: what models are trained on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["Frame", "filled", "from_store", "read"]

Floats = npt.NDArray[np.float64]
PAUSE = 100
"""Steps that a pause in the readings is shortened to."""


@dataclass(frozen=True, eq=False)
class Frame:
    """Readings at equal steps, NaN where one is missing.

    Attributes
    ----------
    workers
        (steps, workers, features); the first feature is the target.
    features
        Names of the features.
    machine
        (steps, columns) of the machine.
    columns
        Names of the machine's columns.
    step
        Seconds between two steps.
    names
        Of the workers.
    """

    workers: Floats
    features: Sequence[str]
    machine: Floats
    columns: Sequence[str]
    step: float = 1.0
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.workers.ndim != 3 or self.workers.shape[2] != len(self.features):
            raise ValueError(
                f"workers: expected (steps, workers, {len(self.features)} features),"
                f" got shape {self.workers.shape}"
            )
        if self.machine.shape != (len(self.workers), len(self.columns)):
            raise ValueError(
                f"machine: expected ({len(self.workers)}, {len(self.columns)}),"
                f" got shape {self.machine.shape}"
            )

    @classmethod
    def of(cls, values: Any, *, target: str = "value", step: float = 1.0) -> Self:
        """Of one series per worker and nothing else: (steps,) or (steps, workers)."""
        array = np.asarray(values, np.float64)
        array = array.reshape(len(array), -1, 1)
        return cls(array, [target], np.empty((len(array), 0)), [], step)

    def __len__(self) -> int:
        return len(self.workers)

    def __getitem__(self, rows: slice) -> Self:
        return replace(self, workers=self.workers[rows], machine=self.machine[rows])

    @property
    def target(self) -> Floats:
        """(steps, workers): the readings of what is forecast."""
        return self.workers[:, :, 0]

    @property
    def matrix(self) -> Floats:
        """(steps, columns + workers * features): rows of a predictor's window."""
        return np.concatenate([self.machine, self.workers.reshape(len(self), -1)], axis=1)

    def with_means(self) -> Self:
        """With the mean of every feature over all workers as columns of the machine."""
        with warnings.catch_warnings():  # a step in which nobody reported
            warnings.simplefilter("ignore", RuntimeWarning)
            means = np.nanmean(self.workers, axis=1)
        columns = [*self.columns, *(f"mean {name}" for name in self.features)]
        return replace(self, machine=np.concatenate([self.machine, means], 1), columns=columns)

    def only(self, features: int, columns: int) -> Self:
        """With the first features and columns alone."""
        return replace(
            self,
            workers=self.workers[:, :, :features],
            features=self.features[:features],
            machine=self.machine[:, :columns],
            columns=self.columns[:columns],
        )


def filled(values: Floats) -> Floats:
    """Missing readings as those of the step before; before the first one, as the first; else 0."""
    flat = values.reshape(len(values), -1)
    known = np.isfinite(flat)
    at = np.where(known, np.arange(len(flat))[:, None], -1)
    at = np.maximum.accumulate(at, axis=0)
    first = np.where(known.any(axis=0), known.argmax(axis=0), 0)
    at = np.where(at < 0, first, at)
    out = np.take_along_axis(flat, at, axis=0)
    return np.where(np.isfinite(out), out, 0.0).reshape(values.shape)


def read(
    source: str | Path | Any,
    *,
    time: str = "ts",
    worker: str = "worker",
    target: str,
    features: Sequence[str] | None = None,
    machine: Sequence[str] = (),
    only: Sequence[str] | None = None,
    step: float | None = None,
) -> Frame:
    """Read rows of one reading per worker and time, from a file or an Arrow table.

    Parameters
    ----------
    source
        A Parquet or CSV file, or an Arrow table.
    time, worker
        Columns with the time in seconds and with the worker; without the column `worker` all rows
        are of one.
    target
        Column that is to be forecast.
    features
        Columns of a worker besides the target. None: every other column of numbers.
    machine
        Columns that belong to the machine: the mean over the rows of a step.
    only
        Workers whose rows are read. None: all.
    step
        Seconds between two steps. None: the median difference of two times.
    """
    table = _table(source)
    names = list(table.column_names)
    for name in (time, target, *(features or ()), *machine):
        if name not in names:
            raise ValueError(f"{name}: expected a column of {', '.join(names)}, got none")
    if features is None:
        taken = {time, worker, target, *machine}
        features = [name for name in names if name not in taken and _is_number(table, name)]
    labels = (
        np.asarray([str(value) for value in table.column(worker).to_pylist()])
        if worker in names
        else np.zeros(table.num_rows, "U1")
    )
    chosen = {name: _numbers(table, name) for name in [target, *features]}
    host = {name: _numbers(table, name) for name in machine}
    at = _numbers(table, time)
    if only is not None:
        kept = _of(labels, only)
        at, labels = at[kept], labels[kept]
        chosen = {name: values[kept] for name, values in chosen.items()}
        host = {name: values[kept] for name, values in host.items()}
    return _assembled(at, labels, chosen, host, step)


def from_store(
    place: str,
    *,
    target: str,
    features: Sequence[str] | None = None,
    machine: Sequence[str] = (),
    only: Sequence[str] | None = None,
    step: float | None = None,
    last: float | None = None,
) -> Frame:
    """Read samples of a `pyroute.control.Store`; those without a worker are the machine's.

    Parameters are as of `read`; without `features` all that a worker reports are taken. With
    `last` those of the last so many seconds alone. The store is not changed.
    """
    if "://" not in place and not Path(place).exists():
        raise FileNotFoundError(f"{place}: expected a store, got none")
    store = import_module("pyroute.control.store").Store.open(place, make=False)
    try:
        newest = store.newest()
        start = -math.inf if last is None or newest is None else newest - last
        table = store.read(start, math.inf)
    finally:
        store.close()
    if not len(table):
        raise ValueError(f"{place}: expected samples, got none")
    labels = np.asarray([str(value) for value in table.column("worker").to_pylist()], str)
    if only is not None:
        kept = _of(labels, only) | (labels == "")
        table, labels = table.filter(kept), labels[kept]
    of_worker = labels != ""
    numbers = {
        name: _numbers(table, name)
        for name in table.column_names
        if name not in ("time", "sent", "received", "host", "worker")
    }
    reported = [name for name, v in numbers.items() if np.isfinite(v[of_worker]).any()]
    if not reported:
        raise ValueError(f"{place}: expected numbers of workers, got none")
    if features is None:
        features = [name for name in reported if name != target]
    for name in (target, *features):
        if name not in reported:
            raise ValueError(f"{name}: expected one of {', '.join(reported)}, got none")
    for name in machine:
        if name not in numbers:
            raise ValueError(f"{name}: expected one of {', '.join(numbers)}, got none")
    chosen = {name: numbers[name] for name in [target, *features]}
    host = {name: np.where(of_worker, np.nan, numbers[name]) for name in machine}
    at = np.asarray(table.column("time").to_numpy(), np.float64)
    return _assembled(at, labels, chosen, host, step)


def _of(labels: npt.NDArray[Any], only: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Rows of the workers that are asked for."""
    there = set(labels.tolist()) - {""}
    unknown = [name for name in only if name not in there]
    if unknown or not only:
        known = ", ".join(sorted(there)[:8]) + (" and more" if len(there) > 8 else "")
        raise ValueError(f"workers: expected some of {known}, got {', '.join(unknown) or 'none'}")
    kept: npt.NDArray[np.bool_] = np.isin(labels, list(only))
    return kept


def _assembled(
    at: Floats,
    labels: npt.NDArray[Any],
    chosen: dict[str, Floats],
    host: dict[str, Floats],
    step: float | None,
) -> Frame:
    """Rows of (time, worker) as a frame; rows of the worker '' are the machine's where it is."""
    if not len(at) or not np.isfinite(at).all():
        raise ValueError(f"time: expected rows with a time, got {np.isfinite(at).sum()}")
    workers, who = np.unique(labels, return_inverse=True)
    if len(workers) > 1 and workers[0] == "":
        workers, who = workers[1:], who - 1
    if step is None:
        # By worker: the reports of two never come at quite the same time.
        gaps = np.concatenate([np.diff(np.unique(at[who == w])) for w in range(len(workers))])
        if not len(gaps):
            raise ValueError("time: expected two times of a worker or more, got one")
        step = float(np.median(gaps))
    if not step > 0:
        raise ValueError(f"step: expected a number > 0, got {step}")
    slot = _slots(at, step)
    steps = int(slot.max()) + 1
    mine = who >= 0
    cell = slot[mine] * len(workers) + who[mine]
    columns = [_mean_by(v[mine], cell, steps * len(workers)) for v in chosen.values()]
    shaped = np.stack(columns, axis=1).reshape(steps, len(workers), len(chosen))
    means = [_mean_by(values, slot, steps) for values in host.values()]
    machine = np.stack(means, axis=1) if means else np.empty((steps, 0))
    return Frame(shaped, list(chosen), machine, list(host), step, workers.tolist())


def _slots(at: Floats, step: float) -> npt.NDArray[np.int64]:
    """The step of every time; where there is more pause than reading, pauses are shortened.

    Nothing is known of a pause, however long: nights on which nobody measured, or a clock that was
    set, would be nearly all of the frame.
    """
    used, which = np.unique(np.rint((at - at.min()) / step), return_inverse=True)
    gaps = np.diff(used)
    if (gaps - 1).sum() > len(used):
        if (gaps > PAUSE).sum() > 1 + len(gaps) // 10:
            raise ValueError(f"step: expected one near the differences of times, got {step:g}")
        gaps = np.minimum(gaps, PAUSE)
    slots = np.concatenate([[0], np.cumsum(gaps)]).astype(np.int64)
    found: npt.NDArray[np.int64] = slots[which.reshape(-1)]
    return found


def _mean_by(values: Floats, group: npt.NDArray[np.int64], groups: int) -> Floats:
    known = np.isfinite(values)
    total = np.bincount(group[known], values[known], groups)
    count = np.bincount(group[known], minlength=groups)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def _table(source: str | Path | Any) -> Any:
    if not isinstance(source, str | Path):
        return source
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a file, got none")
    import pyarrow as pa

    try:
        if path.suffix.lower() in (".csv", ".gz"):
            from pyarrow import csv

            return csv.read_csv(path)
        import pyarrow.parquet as pq

        return pq.read_table(path)
    except pa.ArrowException as error:
        raise ValueError(f"{path}: expected Parquet or CSV, got {error}") from None


def _is_number(table: Any, name: str) -> bool:
    import pyarrow.types as kinds

    kind = table.schema.field(name).type
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind))


def _numbers(table: Any, name: str) -> Floats:
    if not _is_number(table, name):
        raise ValueError(f"{name}: expected numbers, got {table.schema.field(name).type}")
    column = table.column(name).cast("float64")
    return np.asarray(column.to_numpy(), np.float64)
