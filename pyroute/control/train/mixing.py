"""Training of a `Mixed`: the network, trees on the same readings, and the share of each.

Every member of the network is trained without blocks of rows that are spread over time, others for
each (`Config.order` "spread"), and by every other block its training stops. Trees are fitted
without the same rows. The shares are those that would have been best on the other blocks, which
neither of the two looked at. Trees are then fitted once more to all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute.control.mixed import Mixed, Trees
from pyroute.control.train.fitting import Config, Model, Progress, fit, held_rows
from pyroute.control.train.frame import Floats, Frame, filled

__all__ = ["fit_mixed", "fit_trees", "shares_of"]

FEW = 3
GRID = 20
"""Shares are multiples of one by this."""


def fit_mixed(
    frame: Frame,
    config: Config | None = None,
    *,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Mixed:
    """Train a network and trees on all rows of a frame, and choose their shares on rows held back.

    Parameters are those of `fit`; the members hold back blocks that are spread over time, and are
    not fitted to them afterwards.
    """
    config = replace(config or Config(), order="spread", spare=True, refit=False)
    if not config.residual:
        raise ValueError("config: expected a network that forecasts the change, got another")
    model = fit(frame, config, seed=seed, checkpoint=checkpoint, progress=progress)
    lags = max(config.window, 10)
    network, trees, actual, last = (list[Floats]() for _ in range(4))
    for member in range(config.members):
        _, spared, near = held_rows(config, len(frame), member, seed)
        rows = np.flatnonzero(spared)
        rows = rows[rows >= lags]
        network.append(_of_member(model, member, frame, rows))
        part = fit_trees(frame, lags, ~near, apart=not config.shared, seed=seed)
        trees.append(_of_trees(part, frame, rows))
        actual.append(frame.target[rows])
        last.append(filled(frame.target)[rows - 1])
    shares = shares_of(*(np.concatenate(each) for each in (network, trees, actual, last)))
    every = np.ones(len(frame), bool)
    final = fit_trees(frame, lags, every, apart=not config.shared, seed=seed)
    return Mixed(model.predictor(), final, shares)


def shares_of(network: Floats, trees: Floats, actual: Floats, last: Floats) -> tuple[float, float]:
    """Shares with the least sum over workers of squared error by the error of persistence.

    That is the direction in which the mean of the workers' root mean squared errors falls.
    """
    known = np.isfinite(actual) & np.isfinite(network)
    change = np.where(known, actual - last, 0.0)
    one, two = np.where(known, network - last, 0.0), np.where(known, trees - last, 0.0)
    usual = np.sqrt((change**2).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    weight = np.where(usual > 0, 1 / np.where(usual > 0, usual, 1.0), 0.0)
    products = {
        (a, b): float((x * y * weight).sum())
        for a, x in enumerate((change, one, two))
        for b, y in enumerate((change, one, two))
    }

    def error(p: float, q: float) -> float:
        square = products[0, 0] + p * p * products[1, 1] + q * q * products[2, 2]
        return square + 2 * (p * q * products[1, 2] - p * products[0, 1] - q * products[0, 2])

    steps = [(p, q) for p in range(GRID + 1) for q in range(GRID + 1 - p)]
    best = min(steps, key=lambda pair: (error(pair[0] / GRID, pair[1] / GRID), pair))
    return best[0] / GRID, best[1] / GRID


def fit_trees(
    frame: Frame, lags: int, rows: npt.NDArray[np.bool_], *, apart: bool = False, seed: int = 0
) -> Trees:
    """Gradient boosting of the change, on the chosen rows; with `apart` for each worker alone."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    few = min(FEW, lags)
    empty = np.empty((0, 0, 0))
    shape = Trees(lags, few, np.empty(0), empty.astype(np.int16), empty, *([empty] * 3))  # type: ignore[arg-type]
    values, host = filled(frame.workers), filled(frame.machine)
    at = np.flatnonzero(rows)
    at = at[at >= lags]
    inputs = shape.inputs(values, host, at)
    change = frame.target[at] - values[at - 1, :, 0]
    groups = [slice(w, w + 1) for w in range(change.shape[1])] if apart else [slice(None)]
    models = []
    for group in groups:
        x, y = inputs[:, group].reshape(-1, inputs.shape[2]), change[:, group].reshape(-1)
        known = np.isfinite(y)
        if known.sum() < 2:
            raise ValueError(f"frame: expected rows of every worker, got {int(known.sum())}")
        models.append(
            HistGradientBoostingRegressor(
                max_iter=150, learning_rate=0.07, max_leaf_nodes=15, min_samples_leaf=40,
                early_stopping=False, random_state=seed,
            ).fit(x[known], y[known])
        )  # fmt: skip
    return exported(models, lags, few)


def exported(models: list[Any], lags: int, few: int) -> Trees:
    """The trees of scikit-learn's models as arrays."""
    nodes = [[tree[0].nodes for tree in model._predictors] for model in models]
    count = max(len(each) for each in nodes)
    size = max((len(tree) for each in nodes for tree in each), default=1)
    shape = len(models), max(count, 1), size
    feature, left, right = (np.full(shape, -1, np.int16) for _ in range(3))
    threshold, value = np.zeros(shape), np.zeros(shape)
    for number, each in enumerate(nodes):
        for t, tree in enumerate(each):
            inner, n = tree["is_leaf"] == 0, len(tree)
            feature[number, t, :n] = np.where(inner, tree["feature_idx"], -1)
            threshold[number, t, :n] = np.where(inner, tree["num_threshold"], 0.0)
            left[number, t, :n] = np.where(inner, tree["left"], -1)
            right[number, t, :n] = np.where(inner, tree["right"], -1)
            value[number, t, :n] = np.where(inner, 0.0, tree["value"])
    base = np.array([float(np.ravel(model._baseline_prediction)[0]) for model in models])
    return Trees(lags, few, base, feature, threshold, left, right, value)


def _of_member(model: Model, member: int, frame: Frame, rows: npt.NDArray[np.int64]) -> Floats:
    """What one network of the model says of some rows."""
    one = replace(model, networks=[model.networks[member]]).predictor()
    matrix = frame.matrix
    return np.stack([one.predict(matrix[t - one.window : t]) for t in rows])


def _of_trees(trees: Trees, frame: Frame, rows: npt.NDArray[np.int64]) -> Floats:
    values, host = filled(frame.workers), filled(frame.machine)
    out: Floats = values[rows - 1, :, 0] + trees.changes(trees.inputs(values, host, rows))
    return out
