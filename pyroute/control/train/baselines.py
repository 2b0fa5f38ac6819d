"""What a forecast has to beat: persistence, mean, AR, ARIMA, SVR and gradient boosting.

Each is univariate, one model per worker from its own past, as in the paper; AR, SVR and gradient
boosting read the last `lags` values and forecast the change. "boosting+" reads what the network
reads, with one model for all workers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from pyroute.control.train.frame import Floats, Frame, filled

__all__ = ["BASELINES", "Forecaster", "one_step"]


class Forecaster(Protocol):
    """A fitted model."""

    def one_step(self, frame: Frame, start: int) -> Floats:
        """Forecasts of the rows from `start` on, each from the rows before it."""

    def free_run(self, frame: Frame, origins: Sequence[int], horizon: int) -> Floats:
        """(origins, horizon, workers): forecasts that see nothing after the row of the origin."""


class Persistence:
    """The last value."""

    def one_step(self, frame: Frame, start: int) -> Floats:
        """The row before."""
        return filled(frame.target)[start - 1 : -1]

    def free_run(self, frame: Frame, origins: Sequence[int], horizon: int) -> Floats:
        """The row before the origin, again and again."""
        last = filled(frame.target)[np.asarray(origins) - 1]
        return np.repeat(last[:, None], horizon, axis=1)


class Mean:
    """The mean of what was trained on."""

    def __init__(self, frame: Frame, lags: int) -> None:  # noqa: ARG002
        self.mean = filled(frame.target).mean(axis=0)

    def one_step(self, frame: Frame, start: int) -> Floats:
        """The mean."""
        return np.tile(self.mean, (len(frame) - start, 1))

    def free_run(self, frame: Frame, origins: Sequence[int], horizon: int) -> Floats:  # noqa: ARG002
        """The mean."""
        return np.tile(self.mean, (len(origins), horizon, 1))


class Lags:
    """A regression of the change on the last values, one per worker."""

    def __init__(self, frame: Frame, lags: int, make: Callable[[], Any], most: int) -> None:
        values = filled(frame.target)
        self.lags, self.models = lags, []
        self.offset, spread = values.mean(axis=0), values.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        ready = (values - self.offset) / self.spread
        for worker in range(ready.shape[1]):
            x = np.lib.stride_tricks.sliding_window_view(ready[:-1, worker], lags)[-most:]
            y = np.diff(ready[:, worker])[lags - 1 :][-most:]
            self.models.append(make().fit(x, y))

    def _next(self, past: Floats) -> Floats:
        """(n, lags, workers) scaled -> (n, workers) scaled."""
        change = np.stack(
            [model.predict(past[:, :, w]) for w, model in enumerate(self.models)], axis=1
        )
        out: Floats = past[:, -1] + change
        return out

    def one_step(self, frame: Frame, start: int) -> Floats:
        """From the last values before each row."""
        ready = (filled(frame.target) - self.offset) / self.spread
        view = np.lib.stride_tricks.sliding_window_view(ready[:-1], self.lags, axis=0)
        past = view[start - self.lags :].transpose(0, 2, 1)
        out: Floats = self._next(past) * self.spread + self.offset
        return out

    def free_run(self, frame: Frame, origins: Sequence[int], horizon: int) -> Floats:
        """Forecasts take the place of what is not known."""
        ready = (filled(frame.target) - self.offset) / self.spread
        past = np.stack([ready[o - self.lags : o] for o in origins])
        out = []
        for _ in range(horizon):
            following = self._next(past)
            out.append(following)
            past = np.concatenate([past[:, 1:], following[:, None]], axis=1)
        found: Floats = np.stack(out, axis=1) * self.spread + self.offset
        return found


class Linear:
    """Least squares, with a trace of shrinkage for lags that are all alike."""

    def fit(self, x: Floats, y: Floats) -> Linear:
        """Solve."""
        one = np.column_stack([x, np.ones(len(x))])
        square = one.T @ one + 1e-6 * len(x) * np.eye(one.shape[1])
        self.weights = np.linalg.solve(square, one.T @ y)
        return self

    def predict(self, x: Floats) -> Floats:
        """Apply."""
        out: Floats = x @ self.weights[:-1] + self.weights[-1]
        return out


def autoregression(frame: Frame, lags: int) -> Lags:
    """AR of the order `lags`."""
    return Lags(frame, lags, Linear, 10**9)


def support_vectors(frame: Frame, lags: int) -> Lags:
    """SVR with a radial kernel, on the latest 1,500 rows."""
    from sklearn.svm import SVR

    return Lags(frame, lags, lambda: SVR(C=1.0, epsilon=0.02, cache_size=500), 1500)


def boosting(frame: Frame, lags: int) -> Lags:
    """Gradient boosting of trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    def make() -> Any:
        return HistGradientBoostingRegressor(
            max_iter=100, learning_rate=0.07, max_leaf_nodes=15, random_state=0
        )

    return Lags(frame, lags, make, 10**9)


class BoostingPlus:
    """Gradient boosting on the network's own input: lags of all features, one model for all."""

    def __init__(self, frame: Frame, lags: int) -> None:
        from sklearn.ensemble import HistGradientBoostingRegressor

        self.lags = lags
        x, last = self._inputs(frame, lags)
        y = filled(frame.target)[lags:] - last
        known = np.isfinite(frame.target[lags:])
        self.model = HistGradientBoostingRegressor(
            max_iter=150, learning_rate=0.07, max_leaf_nodes=15, min_samples_leaf=40, random_state=0
        ).fit(x[known], y[known])

    def _inputs(self, frame: Frame, start: int) -> tuple[Floats, Floats]:
        values, host = filled(frame.workers), filled(frame.machine)
        steps, workers, _ = values.shape
        rows = np.arange(start, steps)[:, None] - 1 - np.arange(self.lags)
        target = values[rows][..., 0].transpose(0, 2, 1)
        few = rows[:, :3]
        own = values[few][..., 1:].transpose(0, 2, 1, 3).reshape(len(rows), workers, -1)
        shared = host[few].reshape(len(rows), 1, -1)
        shared = np.broadcast_to(shared, (len(rows), workers, shared.shape[2]))
        x = np.concatenate([target, own, shared], axis=2)
        return x, values[start - 1 : -1, :, 0]

    def one_step(self, frame: Frame, start: int) -> Floats:
        """From the last rows before each row."""
        x, last = self._inputs(frame, start)
        out: Floats = last + self.model.predict(x.reshape(-1, x.shape[2])).reshape(last.shape)
        return out

    def free_run(self, frame: Frame, origins: Sequence[int], horizon: int) -> Floats:
        """Forecasts take the place of the target; everything else stays as it was last."""
        out = []
        for origin in origins:
            past = frame[origin - self.lags - 1 : origin]
            workers, host = filled(past.workers), filled(past.machine)
            rows = []
            for _ in range(horizon):
                grown = Frame(
                    np.concatenate([workers, workers[-1:]]),
                    frame.features,
                    np.concatenate([host, host[-1:]]),
                    frame.columns,
                )
                following = self.one_step(grown, len(workers))[0]
                rows.append(following)
                row = workers[-1:].copy()
                row[0, :, 0] = following
                workers = np.concatenate([workers[1:], row])
            out.append(np.stack(rows))
        return np.stack(out)


class Arima:
    """ARIMA of statsmodels; the order is chosen by AIC on the first worker, on the latest rows."""

    ORDERS = ((2, 0, 1), (2, 1, 1))
    MOST = 600

    def __init__(self, frame: Frame, lags: int) -> None:  # noqa: ARG002
        values = filled(frame.target)[-self.MOST :]
        tried = {order: self._fit(values[:, 0], order) for order in self.ORDERS}
        self.order = min(tried, key=lambda order: float(tried[order].aic))
        self.models = [
            tried[self.order] if w == 0 else self._fit(values[:, w], self.order)
            for w in range(values.shape[1])
        ]

    @staticmethod
    def _fit(values: Floats, order: tuple[int, int, int]) -> Any:
        from statsmodels.tsa.arima.model import ARIMA

        with warnings.catch_warnings():  # of starting values and convergence
            warnings.simplefilter("ignore")
            noise = 1e-6 * np.sin(np.arange(len(values)))  # a constant series has no likelihood
            model = ARIMA(
                values + noise, order=order, enforce_stationarity=False, enforce_invertibility=False
            )
            return model.fit(method_kwargs={"maxiter": 30, "disp": 0})

    def _applied(self, values: Floats) -> list[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [model.apply(values[:, w]) for w, model in enumerate(self.models)]

    def one_step(self, frame: Frame, start: int) -> Floats:
        """The filter's forecast of every row."""
        before = max(0, start - 200)
        applied = self._applied(filled(frame.target)[before:])
        return np.stack([each.fittedvalues[start - before :] for each in applied], axis=1)

    def free_run(self, frame: Frame, origins: Sequence[int], horizon: int) -> Floats:
        """The filter's forecasts from each origin."""
        values, out = filled(frame.target), []
        for origin in origins:
            applied = self._applied(values[max(0, origin - 200) : origin])
            out.append(np.stack([each.forecast(horizon) for each in applied], axis=1))
        return np.stack(out)


BASELINES: dict[str, Callable[[Frame, int], Any]] = {
    "persistence": lambda frame, lags: Persistence(),  # noqa: ARG005
    "mean": Mean,
    "AR": autoregression,
    "ARIMA": Arima,
    "SVR": support_vectors,
    "boosting": boosting,
    "boosting+": BoostingPlus,
}


def one_step(forecaster: Forecaster, frame: Frame, start: int) -> Floats:
    """Forecasts of the rows from `start` on; one that is not finite is the last value."""
    out = forecaster.one_step(frame, start)
    return np.where(np.isfinite(out), out, Persistence().one_step(frame, start))
