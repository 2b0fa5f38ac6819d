"""Mixed: a network and trees that forecast together; neither JAX nor scikit-learn is needed to run.

The forecast is the last value and a part of the change that each of the two expects:

    last + network_share * (network - last) + trees_share * (trees - last)

The shares are chosen in training, on rows that neither of the two was fitted to; what they leave of
1 is persistence. File: magic ``PYRM`` in the frame of `pyroute.control._parts`; its parts are the
weights file of the network, a JSON object and the arrays of the trees. Version 2 says that the
network's file names the workers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pyroute._core import FormatError
from pyroute.control._parts import JSON_FAULTS, read_json, seal, unseal
from pyroute.control.predictor import Predictor, by_name, order_of, window_of, write_whole

__all__ = ["Mixed", "Trees", "load"]

Floats = npt.NDArray[np.float64]
MAGIC = b"PYRM"
VERSION, NAMED = 1, 2


@dataclass(frozen=True, eq=False)
class Trees:
    """Boosted regression trees that forecast a change, one set for all workers or one for each.

    Attributes
    ----------
    lags, few
        Past values of the target, and of everything else, that they read.
    base
        Of each set, what it starts from.
    feature, threshold, left, right
        By set, tree and node: go left where the input is at most the threshold; -1: a leaf.
    value
        By set, tree and node: what a leaf adds.
    """

    lags: int
    few: int
    base: Floats
    feature: npt.NDArray[np.int16]
    threshold: Floats
    left: npt.NDArray[np.int16]
    right: npt.NDArray[np.int16]
    value: Floats

    ARRAYS = ("base", "feature", "threshold", "left", "right", "value")
    TYPES = ("<f8", "<i2", "<f8", "<i2", "<i2", "<f8")

    def changes(self, inputs: Floats) -> Floats:
        """What is expected beyond the last value, for inputs of shape (rows, workers, inputs)."""
        rows, workers, _ = inputs.shape
        sets = len(self.base)
        if sets not in (1, workers):
            raise ValueError(f"workers: expected {sets}, got {workers}")
        out = np.empty((rows, workers))
        for number in range(sets):
            mine = slice(None) if sets == 1 else slice(number, number + 1)
            x = inputs[:, mine].reshape(-1, inputs.shape[2])
            out[:, mine] = self._sum(number, x).reshape(rows, -1)
        return out

    def _sum(self, number: int, x: Floats) -> Floats:
        feature, threshold = self.feature[number], self.threshold[number]
        left, right, value = self.left[number], self.right[number], self.value[number]
        trees, rows = np.arange(len(feature)), np.arange(len(x))[:, None]
        node = np.zeros((len(x), len(feature)), np.int64)
        while True:
            at = feature[trees, node]
            inner = at >= 0
            if not inner.any():
                break
            goes_left = x[rows, np.maximum(at, 0)] <= threshold[trees, node]
            following = np.where(goes_left, left[trees, node], right[trees, node])
            node = np.where(inner, following, node)
        total: Floats = self.base[number] + value[trees, node].sum(axis=1)
        return total

    def inputs(self, values: Floats, host: Floats, rows: npt.NDArray[np.int64]) -> Floats:
        """What they read to forecast the given rows, of shape (rows, workers, inputs).

        `values` are (steps, workers, features), the target first, `host` (steps, columns); nothing
        may be missing.
        """
        past = rows[:, None] - 1 - np.arange(self.lags)
        target = values[past][..., 0].transpose(0, 2, 1)
        near = past[:, : self.few]
        workers = values.shape[1]
        own = values[near][..., 1:].transpose(0, 2, 1, 3).reshape(len(rows), workers, -1)
        shared = host[near].reshape(len(rows), 1, -1)
        shared = np.broadcast_to(shared, (len(rows), workers, shared.shape[2]))
        return np.concatenate([target, own, shared], axis=2)

    def check(self, inputs: int) -> None:
        """`FormatError` unless every way through a tree ends, within these inputs."""
        shape = self.feature.shape
        arrays = (self.threshold, self.left, self.right, self.value)
        if len(shape) != 3 or not all(shape) or any(each.shape != shape for each in arrays):
            raise FormatError("trees: expected arrays of one shape, got others")
        if self.base.shape != shape[:1] or not 1 <= self.few <= self.lags <= 10_000:
            raise FormatError("trees: expected a base of each set and lags, got others")
        here = np.arange(shape[2])
        inner = self.feature >= 0
        later = (self.left > here) & (self.right > here)  # no way back: it ends
        within = (self.left < shape[2]) & (self.right < shape[2]) & (self.feature < inputs)
        if not (~inner | (later & within)).all():
            raise FormatError("trees: expected nodes that lead on to later ones, got others")
        if not (np.isfinite(self.value).all() and np.isfinite(self.base).all()):
            raise FormatError("trees: expected finite values, got others")


class Mixed:
    """A network and trees with their shares; used as a `Predictor` is.

    Parameters
    ----------
    network
        The trained network; names, window and step are its.
    trees
        The trained trees, on the same columns.
    shares
        Of the network's and of the trees' change, each 0 or more, together at most 1.
    """

    def __init__(self, network: Predictor, trees: Trees, shares: tuple[float, float]) -> None:
        if not (min(shares) >= 0 and sum(shares) <= 1 + 1e-9):
            raise ValueError(f"shares: expected 0 or more, at most 1 in all, got {shares}")
        self.network, self.trees = network, trees
        self.shares = (float(shares[0]), float(shares[1]))
        others = len(network.features) - 1 + len(network.machine)
        trees.check(trees.lags + trees.few * others)

    @property
    def window(self) -> int:
        """Rows of a window."""
        return max(self.network.window, self.trees.lags)

    @property
    def workers(self) -> int:
        """Workers that it was trained on."""
        return self.network.workers

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Those it was trained on, where it depends on which they are and the file says it."""
        return self.network.worker_names

    @property
    def elastic(self) -> bool:
        """Whether any number of workers will do."""
        return self.network.elastic and len(self.trees.base) == 1

    @property
    def step(self) -> float:
        """Seconds between two rows of a window, and from the last one to the forecast."""
        return self.network.step

    @property
    def machine(self) -> list[str]:
        """Names of the machine's columns."""
        return self.network.machine

    @property
    def features(self) -> list[str]:
        """Names of a worker's columns, the target first."""
        return self.network.features

    @property
    def target(self) -> str:
        """Name of what is forecast."""
        return self.network.target

    def predict(self, window: Any) -> Floats:
        """Forecast every worker's target for the step after the window; as of `Predictor`."""
        if hasattr(window, "machines"):
            return by_name(self, window)
        matrix = np.asarray(window, np.float64)
        machine, features = len(self.machine), len(self.features)
        if matrix.ndim != 2 or len(matrix) != self.window or (matrix.shape[1] - machine) % features:
            raise ValueError(
                f"window: expected {self.window} rows of {machine} + {features} for each worker,"
                f" got shape {matrix.shape}"
            )
        network = self.network.predict(matrix[len(matrix) - self.network.window :])
        whole = _filled(matrix)
        values = whole[:, machine:].reshape(len(whole), -1, features)
        rows = np.array([len(whole)])
        changes = self.trees.changes(self.trees.inputs(values, whole[:, :machine], rows))[0]
        last = values[-1, :, 0]
        # Where the network cannot say anything, nothing is known of the worker.
        out: Floats = last + self.shares[0] * (network - last) + self.shares[1] * changes
        return out

    def window_of(self, history: Any) -> Floats:
        """The window at the end of a control loop's history; as of `Predictor`."""
        return window_of(self, history, self.window)

    def order_of(self, workers: Sequence[str]) -> list[int] | None:
        """Where its workers are among these; as of `Predictor`."""
        return order_of(self, workers)

    # the file ----------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The weights file, as bytes."""
        arrays = [
            np.ascontiguousarray(getattr(self.trees, name), kind)
            for name, kind in zip(Trees.ARRAYS, Trees.TYPES, strict=True)
        ]
        about = {
            "shares": self.shares,
            "lags": self.trees.lags,
            "few": self.trees.few,
            "shape": list(self.trees.feature.shape),
        }
        parts = [self.network.to_bytes(), json.dumps(about).encode()]
        parts += [array.tobytes() for array in arrays]
        return seal(MAGIC, NAMED if self.worker_names else VERSION, parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read it back; `FormatError` for anything else."""
        versions, count = (VERSION, NAMED), 2 + len(Trees.ARRAYS)
        version, parts = unseal(data, "mixed model", MAGIC, versions, count)
        about = read_json(parts[1], "mixed model")
        try:
            shares, shape = tuple(map(float, about["shares"])), tuple(map(int, about["shape"]))
            lags, few = int(about["lags"]), int(about["few"])
            shapes = [shape[:1], *([shape] * (len(Trees.ARRAYS) - 1))]
            arrays = [
                np.frombuffer(part, kind).reshape(shape)
                for part, kind, shape in zip(parts[2:], Trees.TYPES, shapes, strict=True)
            ]
            made = cls(
                Predictor.from_bytes(parts[0]),
                Trees(lags, few, *arrays),
                (shares[0], shares[1]),
            )
        except JSON_FAULTS as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"mixed model: {error}") from None
        if version != (NAMED if made.worker_names else VERSION):
            raise FormatError(f"mixed model: expected names of workers with version {NAMED} alone")
        return made

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a weights file; one that is torn or of something else raises `FormatError`."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the weights file; whoever reads meanwhile sees the old one or the new one whole."""
        write_whole(path, self.to_bytes())

    def __repr__(self) -> str:
        sets, trees, _ = self.trees.feature.shape
        return (
            f"Mixed({self.network!r} x {self.shares[0]:.2f}, {sets} x {trees} trees x"
            f" {self.shares[1]:.2f})"
        )


def load(path: str | Path) -> Predictor | Mixed:
    """The model of a weights file, of whichever kind."""
    with Path(path).open("rb") as file:
        kind = file.read(len(MAGIC))
    return Mixed.load(path) if kind == MAGIC else Predictor.load(path)


def _filled(matrix: Floats) -> Floats:
    """Missing values as those of the row before; before the first one, as the first; else 0."""
    known = np.isfinite(matrix)
    at = np.maximum.accumulate(np.where(known, np.arange(len(matrix))[:, None], -1), axis=0)
    first = np.where(known.any(axis=0), known.argmax(axis=0), 0)
    out = np.take_along_axis(matrix, np.where(at < 0, first, at), axis=0)
    return np.where(np.isfinite(out), out, 0.0)
