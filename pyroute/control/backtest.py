"""Back-test: a forecast is in force only while it beats persistence, the last value.

>>> gate = Backtest(window=8, least=3)
>>> load = [10.0, 12.0, 14.0, 16.0, 18.0]
>>> for now, following in zip(load, load[1:] + [20.0]):
...     outlook = gate.step([now], [following])
>>> outlook.values, outlook.source
(array([20.]), 'forecast')
>>> outlook.reason
'forecast: 0.000 of the error of persistence over 4 steps'
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "Backtest",
    "Outlook",
    "Verdict",
    "error_ratio",
    "judge",
    "replay",
    "standard_errors",
]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a forecast is in force; true where it is.

    Attributes
    ----------
    in_force
        The forecast may be used.
    ratio
        Its root mean squared error by that of persistence; NaN where nothing was compared.
    steps
        How many steps were compared.
    reason
        The same in words, with the numbers.
    """

    in_force: bool
    ratio: float
    steps: int
    reason: str

    def __bool__(self) -> bool:
        return self.in_force


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """What to expect of every worker in the next step, and whose word it is."""

    values: Floats
    source: Literal["forecast", "persistence"]
    verdict: Verdict

    @property
    def reason(self) -> str:
        """Why this source is in force."""
        return self.verdict.reason


def error_ratio(forecasts: Any, actuals: Any, lasts: Any) -> tuple[float, int]:
    """Error of forecasts by that of persistence, and the number of steps it is of.

    Each of shape (steps, workers) or (steps,): what was forecast for a step, what was measured in
    it, and what was measured in the step before. A pair with a number that is not finite does not
    count. Workers count alike: each one's squared errors are divided by its mean squared error of
    persistence, over these steps.

    Returns
    -------
    tuple
        The ratio of the root mean squared errors (1 where both are zero, infinity where only
        persistence's is, NaN without a pair), and how many steps have a pair.
    """
    theirs, naive = _squares(forecasts, actuals, lasts)
    over, under = float(theirs.sum()), float(naive.sum())
    if not len(naive):
        return math.nan, 0
    if under == 0:
        return (1.0 if over == 0 else math.inf), len(naive)
    return math.sqrt(over / under), len(naive)


def _squares(forecasts: Any, actuals: Any, lasts: Any) -> tuple[Floats, Floats]:
    """Squared errors of forecasts and of persistence, by step, workers added up as above."""
    forecast, actual, last = (_table(a) for a in (forecasts, actuals, lasts))
    if not forecast.shape == actual.shape == last.shape:
        shapes = forecast.shape, actual.shape, last.shape
        raise ValueError(f"forecasts, actuals, lasts: expected one shape, got {shapes}")
    known = np.isfinite(forecast) & np.isfinite(actual) & np.isfinite(last)
    with np.errstate(invalid="ignore", over="ignore"):
        theirs = np.where(known, (forecast - actual) ** 2, 0.0)
        naive = np.where(known, (last - actual) ** 2, 0.0)
    by_worker = naive.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    usual = by_worker[by_worker > 0].mean() if (by_worker > 0).any() else 1.0
    # A worker that never changed has no error to divide by: the usual one of the others.
    by_worker = np.where(by_worker > 0, by_worker, usual)
    steps = known.any(axis=1)
    return (theirs / by_worker).sum(axis=1)[steps], (naive / by_worker).sum(axis=1)[steps]


def standard_errors(forecasts: Any, actuals: Any, lasts: Any) -> float:
    """How sure the gain over persistence is: its mean by step, by the standard error of that mean.

    Squared errors have long tails, so that a single step can make a forecast look good or bad; then
    the standard error is large. Arguments as of `error_ratio`; NaN with fewer than two steps.
    """
    theirs, naive = _squares(forecasts, actuals, lasts)
    gains = naive - theirs
    if len(gains) < 2:
        return math.nan
    mean = float(gains.mean())
    spread = float(gains.std(ddof=1)) / math.sqrt(len(gains))
    if not spread > abs(mean) * 1e-9:  # alike in every step, but for rounding
        return math.copysign(math.inf, mean) if mean else 0.0
    return mean / spread


def judge(
    forecasts: Any,
    actuals: Any,
    lasts: Any,
    *,
    least: int = 30,
    enter: float = 0.97,
    leave: float = 1.0,
    sure: float = 1.5,
    was_in_force: bool = False,
) -> Verdict:
    """Whether a forecast is in force, from what it said and what came: a pure function.

    Parameters
    ----------
    forecasts, actuals, lasts
        As of `error_ratio`, the latest step last.
    least
        Steps to compare before a forecast may be used.
    enter, leave
        It comes into force below the ratio `enter` and stays until it is at `leave` or above.
    sure
        Standard errors by which its gain must be above 0 to come into force; half of them to stay.
    was_in_force
        Whether it was in force before: between the bounds that decides.
    """
    ratio, steps = error_ratio(forecasts, actuals, lasts)
    if steps < least:
        return Verdict(False, ratio, steps, f"persistence: {steps} of {least} steps compared")
    bound, wanted = (leave, sure / 2) if was_in_force else (enter, sure)
    words = f"{ratio:.3f} of the error of persistence over {steps} steps"
    if not ratio < bound:
        words = f"persistence: forecast has {words}, expected < {bound:g}"
        return Verdict(False, ratio, steps, words)
    found = standard_errors(forecasts, actuals, lasts)
    if found < wanted:
        words = f"persistence: forecast has {words}, sure by {found:.2f} standard errors"
        return Verdict(False, ratio, steps, f"{words}, expected {wanted:g}")
    return Verdict(True, ratio, steps, f"forecast: {words}")


class Backtest:
    """A rolling back-test: the forecast while it is good, persistence otherwise.

    Call `step` once per control period. Forecasts that are not used are compared all the same, so
    a model that became good comes into force, and one that became bad goes out of it.

    Parameters
    ----------
    window
        Steps that are looked back on.
    least, enter, leave, sure
        As of `judge`.
    """

    def __init__(
        self,
        *,
        window: int = 120,
        least: int = 30,
        enter: float = 0.97,
        leave: float = 1.0,
        sure: float = 1.5,
    ) -> None:
        if not 1 <= least <= window:
            raise ValueError(f"least: expected 1 to the window of {window}, got {least}")
        if not 0 < enter <= leave:
            raise ValueError(f"enter: expected above 0 and at most leave = {leave}, got {enter}")
        if not sure >= 0:
            raise ValueError(f"sure: expected 0 or more, got {sure}")
        self.window, self.least = window, least
        self.enter, self.leave, self.sure = enter, leave, sure
        self._pairs: deque[tuple[Floats, Floats, Floats]] = deque(maxlen=window)
        self._last: Floats | None = None
        self._forecast: Floats | None = None
        self.verdict = Verdict(False, math.nan, 0, "persistence: nothing compared yet")

    def step(self, actual: Any, forecast: Any = None) -> Outlook:
        """What was measured now, and what the model says of the next step.

        Parameters
        ----------
        actual
            One number per worker; NaN for one that did not report, whose last value then stands.
        forecast
            One number per worker for the next step; None where there is no model. NaN for a
            worker: persistence for that one.

        Returns
        -------
        Outlook
            What to expect of the next step: the forecast or persistence, and why.
        """
        now = _row(actual, "actual")
        following = None if forecast is None else _row(forecast, "forecast")
        if following is not None and following.shape != now.shape:
            raise ValueError(
                f"forecast: expected {len(now)} workers as in actual, got {len(following)}"
            )
        if self._last is not None and self._last.shape != now.shape:
            self.reset()
        if self._last is not None:
            if self._forecast is not None:
                self._pairs.append((self._forecast, now, self._last))
            now = np.where(np.isfinite(now), now, self._last)
        self._last, self._forecast = now, following
        if following is None:
            ratio, steps = self.verdict.ratio, self.verdict.steps
            self.verdict = Verdict(False, ratio, steps, "persistence: no forecast")
        else:
            self.verdict = self._judge()
        if following is None or not self.verdict:
            return Outlook(now, "persistence", self.verdict)
        return Outlook(np.where(np.isfinite(following), following, now), "forecast", self.verdict)

    def reset(self) -> None:
        """Forget everything: other workers."""
        self._pairs.clear()
        self._last = self._forecast = None
        self.verdict = Verdict(False, math.nan, 0, "persistence: nothing compared yet")

    def swap(self, forecasts: Any, actuals: Any, lasts: Any) -> Verdict:
        """Another model: its back-test over past steps takes the place of the old one's.

        The arrays are as of `judge`; what was measured last stays.
        """
        rows = zip(*(_table(a) for a in (forecasts, actuals, lasts)), strict=True)
        self._pairs = deque(rows, maxlen=self.window)
        self._forecast = None
        self.verdict = self._judge()
        return self.verdict

    def _judge(self) -> Verdict:
        if not self._pairs:
            return judge([], [], [], least=self.least)
        columns = [np.stack(column) for column in zip(*self._pairs, strict=True)]
        return judge(
            *columns,
            least=self.least,
            enter=self.enter,
            leave=self.leave,
            sure=self.sure,
            was_in_force=self.verdict.in_force,
        )


def replay(forecasts: Any, actuals: Any, lasts: Any, **options: Any) -> tuple[Floats, float]:
    """What the gate would have used over a whole trace.

    Row t of `lasts` is what was known when row t of `forecasts` was made, and row t of `actuals`
    what came. Options are those of `Backtest`.

    Returns
    -------
    tuple
        The values in force, of the shape of the table of `actuals`, and the share of steps in
        which they were the forecast.
    """
    forecast, actual, last = (_table(a) for a in (forecasts, actuals, lasts))
    gate, used, times = Backtest(**options), np.empty_like(actual), 0
    for t in range(len(actual)):
        outlook = gate.step(last[t], forecast[t])
        used[t] = outlook.values
        times += outlook.source == "forecast"
    return used, times / max(1, len(actual))


def _row(values: Any, name: str) -> Floats:
    row = np.atleast_1d(np.asarray(values, np.float64))
    if row.ndim != 1:
        raise ValueError(f"{name}: expected one number per worker, got shape {row.shape}")
    return row.copy()


def _table(values: Any) -> Floats:
    table = np.asarray(values, np.float64)
    return table.reshape(-1, 1) if table.ndim < 2 else table
