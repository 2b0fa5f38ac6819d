"""The table of a model and the baselines: errors one step ahead and in a free run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyroute.control.mixed import Mixed
from pyroute.control.predictor import Predictor
from pyroute.control.train.baselines import BASELINES, Forecaster, Persistence, one_step
from pyroute.control.train.frame import Floats, Frame, filled

__all__ = ["Native", "Row", "Table", "compare", "errors"]


class Native:
    """A predictor as a forecaster of the table."""

    def __init__(self, predictor: Predictor | Mixed) -> None:
        self.predictor = predictor

    def one_step(self, frame: Frame, start: int) -> Floats:
        """From the window before each row."""
        matrix, window = frame.matrix, self.predictor.window
        rows = [self.predictor.predict(matrix[t - window : t]) for t in range(start, len(frame))]
        return np.stack(rows)

    def free_run(self, frame: Frame, origins: Sequence[int], horizon: int) -> Floats:
        """Forecasts take the place of the target; everything else stays as it was last."""
        matrix, window = filled(frame.matrix), self.predictor.window
        machine, features = frame.machine.shape[1], frame.workers.shape[2]
        out = np.empty((len(origins), horizon, frame.workers.shape[1]))
        for i, origin in enumerate(origins):
            past = matrix[origin - window : origin].copy()
            for h in range(horizon):
                out[i, h] = self.predictor.predict(past)
                row = past[-1].copy()
                row[machine::features] = out[i, h]
                past = np.concatenate([past[1:], row[None]])
        return out


@dataclass(frozen=True)
class Row:
    """Errors of one forecaster, the mean over workers of each one's; a list has one per seed.

    Attributes
    ----------
    rmse
        Root mean squared error one step ahead, in the unit of the target.
    normalised
        The same by the range of the target in the rows that were trained on (min-max).
    free
        That of a free run, over all its steps, in the unit of the target.
    """

    name: str
    rmse: list[float]
    normalised: list[float]
    free: list[float]


@dataclass(frozen=True)
class Table:
    """Rows of all forecasters on the same data."""

    rows: list[Row]
    start: int
    workers: int
    horizon: int
    forecasts: dict[str, Floats] = field(default_factory=dict)

    def row(self, name: str) -> Row:
        """The row of a forecaster."""
        return next(row for row in self.rows if row.name == name)

    def ratio(self, name: str, to: str = "persistence") -> list[float]:
        """Errors one step ahead by those of another, one per seed."""
        other = float(np.mean(self.row(to).rmse))
        return [value / other if other else 1.0 for value in self.row(name).rmse]


def errors(forecast: Floats, actual: Floats) -> Floats:
    """Root mean squared error of every worker; rows without a reading do not count."""
    known = np.isfinite(actual)
    square = np.where(known, (forecast - np.where(known, actual, 0.0)) ** 2, 0.0)
    axes = tuple(range(actual.ndim - 1))
    out: Floats = np.sqrt(square.sum(axis=axes) / np.maximum(known.sum(axis=axes), 1))
    return out


def compare(
    frame: Frame,
    start: int,
    models: dict[str, Sequence[Forecaster | Predictor | Mixed]],
    *,
    lags: int = 10,
    horizon: int = 12,
    runs: int = 20,
    baselines: Sequence[str] = tuple(BASELINES),
    progress: Callable[[str], None] | None = None,
) -> Table:
    """Judge models and baselines on the rows from `start` on.

    Parameters
    ----------
    frame
        All readings. Baselines are fitted to the rows before `start`.
    start
        First row that is judged.
    models
        By name: one model per seed, trained on the rows before `start`.
    lags
        Past values that baselines read.
    horizon, runs
        Steps of a free run, and how many there are, spread evenly.
    baselines
        Which; persistence is always there.
    progress
        Called with the name of each before it is fitted.
    """
    if not 2 * lags <= start < len(frame):
        raise ValueError(f"start: expected {2 * lags} to {len(frame) - 1}, got {start}")
    actual = frame.target[start:]
    past = filled(frame.target[:start])
    spread = past.max(axis=0) - past.min(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    last = max(start + 1, len(frame) - horizon)
    origins = np.unique(np.linspace(start, last, min(runs, last - start + 1)).astype(int))
    origins = origins[origins + horizon <= len(frame)]
    rows: list[Row] = []
    forecasts: dict[str, Floats] = {}

    def judge(name: str, contenders: Sequence[Any]) -> None:
        rmse, normal, free = [], [], []
        for each in contenders:
            made: Forecaster = Native(each) if isinstance(each, Predictor | Mixed) else each
            found = one_step(made, frame, start)
            forecasts.setdefault(name, found)
            error = errors(found, actual)
            rmse.append(float(error.mean()))
            normal.append(float((error / spread).mean()))
            if len(origins):
                run = made.free_run(frame, origins.tolist(), horizon)
                truth = np.stack([frame.target[o : o + horizon] for o in origins])
                free.append(float(errors(run, truth).mean()))
        rows.append(Row(name, rmse, normal, free))

    names = ["persistence", *(name for name in baselines if name != "persistence")]
    for name in names:
        if progress is not None:
            progress(name)
        judge(name, [BASELINES[name](frame[:start], lags)])
    for name, contenders in models.items():
        if progress is not None:
            progress(name)
        judge(name, contenders)
    return Table(rows, start, frame.workers.shape[1], horizon, forecasts)


def persistence(frame: Frame, start: int) -> Floats:
    """The last value, for every row from `start` on."""
    return Persistence().one_step(frame, start)
