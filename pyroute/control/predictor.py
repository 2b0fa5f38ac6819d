"""Predictor: what a trained model says of every worker's next step; no JAX needed.

The model comes from `pyroute train` or `pyroute.control.train.fit` as a weights file. Inference
runs in the native core: a window of past steps in, one number per worker out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from pyroute._core import FormatError, Gru
from pyroute._kernel import Kernel

__all__ = ["Predictor"]


def write_whole(path: str | Path, data: bytes) -> None:
    """Write a file beside the old one, then in its place; nothing is left where that fails."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{uuid4().hex}.new")  # others may write it, too
    try:
        beside.write_bytes(data)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


class Predictor(Kernel):
    """A trained model that forecasts one step ahead.

    A window has one row per time step, the oldest first, and one column per machine feature, then
    per feature of the first worker, of the second, and so on: `machine`, then `features` once for
    every worker. The first feature of a worker is the `target`. A value that is missing (NaN) is
    taken from the step before.

    Examples
    --------
    >>> from pyroute.control import Predictor
    >>> model = Predictor.make(
    ...     {"window": 3, "workers": 2, "features": 1, "layers2": 1, "hidden2": 1, "skip": True},
    ...     names=["cpu"],
    ...     weights=[0.0] * 9 + [0.0, 0.0] + [0.0, -0.5, 0.5],
    ... )
    >>> model.predict([[10, 70], [20, 60], [30, 50]])
    array([35., 45.])
    """

    __slots__ = ()

    _native = Gru
    _core: Gru

    @classmethod
    def make(
        cls,
        sizes: dict[str, Any],
        *,
        names: list[str],
        weights: Any,
        scales: list[tuple[bool, float, float, float]] | None = None,
    ) -> Self:
        """A model of given sizes, names, scales and weights: what training does at its end.

        Parameters
        ----------
        sizes
            Those of `pyroute.control.train.Shape`, and `members`, `elastic` (one scale per feature
            and any number of workers), `step` (seconds between two rows), `low` and `high` (bounds
            of scaled values). One that is not given is as for the smallest elastic model.
        names
            Of the machine's columns, then of a worker's, the target first.
        weights
            As the weights file has them, the members one after the other.
        scales
            Of each column: whether it is logarithmic, its unit, offset and scale. None: as it is.
        """
        features = int(sizes.get("features", 1))
        machine = int(sizes.get("machine", 0))
        full: dict[str, Any] = {
            "window": 1,
            "machine": 0,
            "workers": 1,
            "features": 1,
            "own": features,
            "common": machine,
            "layers1": 0,
            "hidden1": 0,
            "width": 0,
            "layers2": 0,
            "hidden2": 0,
            "members": 1,
            "shared": True,
            "residual": True,
            "skip": False,
            "relative": False,
            "step": 1.0,
            "low": -1e30,
            "high": 1e30,
            "elastic": not sizes.get("layers1") and bool(sizes.get("shared", True)),
        }
        unknown = [name for name in sizes if name not in full]
        if unknown:
            raise ValueError(f"sizes: expected {', '.join(full)}, got {', '.join(unknown)}")
        full |= sizes
        if scales is None:
            count = machine + features * (1 if full["elastic"] else int(full["workers"]))
            scales = [(False, 1.0, 0.0, 1.0)] * count
        return cls._wrap(Gru(full, list(names), scales, np.asarray(weights, np.float32)))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a weights file; one that is torn or of something else raises `FormatError`."""
        data = Path(path).read_bytes()
        try:
            return cls.from_bytes(data)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the weights file; whoever reads meanwhile sees the old one or the new one whole."""
        write_whole(path, self.to_bytes())

    def predict(self, window: Any) -> npt.NDArray[np.float64]:
        """Forecast every worker's target for the step after the window.

        Parameters
        ----------
        window
            `window` rows of `len(machine) + workers * len(features)` numbers; or the history of a
            control loop, from which columns are taken by name (see `window_of`).

        Returns
        -------
        numpy.ndarray
            One number per worker; NaN for one whose target is missing in the whole window.
        """
        if hasattr(window, "machines"):
            window = self.window_of(window)
        return self._core.predict(window)

    def window_of(self, history: Any, rows: int | None = None) -> npt.NDArray[np.float64]:
        """The window at the end of a control loop's history, of so many rows; None: its own.

        `history` has `target` (steps, workers), and by name `features` (steps, workers) and
        `machines` (steps,). Columns it does not have and steps before its first one are missing.
        """
        target = np.asarray(history.target, np.float64)
        steps, workers = target.shape
        window = self.window if rows is None else rows
        rows = min(steps, window)
        machine, features = self.machine, self.features
        out = np.full((window, len(machine) + workers * len(features)), np.nan)
        last = out[window - rows :]  # a view
        for i, name in enumerate(machine):
            if name in history.machines:
                last[:, i] = np.asarray(history.machines[name], np.float64)[steps - rows :]
        for i, name in enumerate(features):
            values = target if i == 0 else history.features.get(name)
            if values is not None:
                column = np.asarray(values, np.float64)[steps - rows :]
                last[:, len(machine) + i :: len(features)] = column
        return out

    @property
    def window(self) -> int:
        """Rows of a window."""
        return int(self._core.sizes["window"])

    @property
    def workers(self) -> int:
        """Workers that it was trained on; an elastic model takes any number."""
        return int(self._core.sizes["workers"])

    @property
    def elastic(self) -> bool:
        """Whether any number of workers will do."""
        return bool(self._core.sizes["elastic"])

    @property
    def step(self) -> float:
        """Seconds between two rows of a window, and from the last one to the forecast."""
        return float(self._core.sizes["step"])

    @property
    def machine(self) -> list[str]:
        """Names of the machine's columns."""
        return self._core.names[: self._core.sizes["machine"]]

    @property
    def features(self) -> list[str]:
        """Names of a worker's columns, the target first."""
        return self._core.names[self._core.sizes["machine"] :]

    @property
    def target(self) -> str:
        """Name of what is forecast."""
        return self.features[0]

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes of the networks and how many there are."""
        return self._core.sizes

    def __repr__(self) -> str:
        s = self._core.sizes
        tiers = " + ".join(
            f"{s[f'layers{n}']} x {s[f'hidden{n}']}" for n in (1, 2) if s[f"layers{n}"]
        )
        return (
            f"Predictor({self.target!r}, window={self.window}, workers={self.workers},"
            f" units={tiers!r}, members={s['members']})"
        )
