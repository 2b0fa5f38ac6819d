"""Predictor: what a trained model says of every worker's next step; no JAX needed.

The model comes from `pyroute train` or `pyroute.control.train.fit` as a weights file. Inference
runs in the native core: a window of past steps in, one number per worker out.

A model that is not elastic depends on which worker is which. Its file names them: magic ``PYRW`` in
the frame of `pyroute.control._parts`, with a JSON object ``{"workers": [names]}`` and the bytes of
the kernel as its parts. A file without names is the bytes of the kernel alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from pyroute._core import FormatError, Gru
from pyroute._kernel import Kernel, as_bytes
from pyroute.control._parts import read_json, seal, unseal

__all__ = ["Predictor"]

NAMED = b"PYRW"
VERSION = 1


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

    __slots__ = ("_workers",)

    _native = Gru
    _core: Gru
    _workers: tuple[str, ...]

    @classmethod
    def _wrap(cls, core: Any, workers: Sequence[str] = ()) -> Self:
        self = super()._wrap(core)
        self._workers = tuple(workers)
        return self

    @classmethod
    def make(
        cls,
        sizes: dict[str, Any],
        *,
        names: list[str],
        weights: Any,
        scales: list[tuple[bool, float, float, float]] | None = None,
        worker_names: Sequence[str] = (),
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
        worker_names
            Of the workers, in their order; none: what it forecasts is told by place alone.
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
        core = Gru(full, list(names), scales, np.asarray(weights, np.float32))
        return cls._wrap(core, _distinct(worker_names, int(full["workers"])))

    def to_bytes(self) -> bytes:
        """Versioned bytes; every later release reads them."""
        kernel = super().to_bytes()
        if not self._workers:
            return kernel
        about = json.dumps({"workers": self._workers}).encode()
        return seal(NAMED, VERSION, [about, kernel])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; anything else raises `FormatError`."""
        data = as_bytes(data)
        if data[: len(NAMED)] != NAMED:
            return super().from_bytes(data)
        _, (about, kernel) = unseal(data, "weights", NAMED, (VERSION,), 2)
        core = Gru.from_bytes(kernel)
        names = read_json(about, "weights").get("workers")
        try:
            return cls._wrap(core, _distinct(names or [""], core.sizes["workers"]))
        except (TypeError, ValueError) as error:
            raise FormatError(str(error)) from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Predictor):
            return NotImplemented
        return super().__eq__(other) and self._workers == other._workers

    __hash__ = None  # type: ignore[assignment]

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
            control loop, from which columns and workers are taken by name (see `window_of`).

        Returns
        -------
        numpy.ndarray
            One number per worker, in the order of the window or the history; NaN for one whose
            target is missing in the whole window.
        """
        if hasattr(window, "machines"):
            return by_name(self, window)
        return self._core.predict(window)

    def window_of(self, history: Any, rows: int | None = None) -> npt.NDArray[np.float64]:
        """The window at the end of a control loop's history, of so many rows; None: its own.

        `history` has `workers` (names), `target` (steps, workers), and by name `features` (steps,
        workers) and `machines` (steps,). Workers are put in the order that the model knows (see
        `order_of`). Columns it does not have and steps before its first one are missing.
        """
        return window_of(self, history, self.window if rows is None else rows)

    def order_of(self, workers: Sequence[str]) -> list[int] | None:
        """Where the workers it was trained on are among these; None: as they come.

        An elastic model takes any as they come, and one whose file names none as many as it knows.
        `ValueError` for any others: what it was trained on is somebody else.
        """
        return order_of(self, workers)

    @property
    def window(self) -> int:
        """Rows of a window."""
        return int(self._core.sizes["window"])

    @property
    def workers(self) -> int:
        """Workers that it was trained on; an elastic model takes any number."""
        return int(self._core.sizes["workers"])

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Those it was trained on, where it depends on which they are and the file says it."""
        return self._workers

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


def order_of(model: Any, workers: Sequence[str]) -> list[int] | None:
    """As `Predictor.order_of`, of any model that has the same properties."""
    if model.elastic:
        return None
    known, given = model.worker_names, list(workers)
    if not known:
        if len(given) != model.workers:
            raise ValueError(
                f"workers: expected {model.workers} as it was trained on, got {len(given)}"
            )
        return None
    place = {name: at for at, name in enumerate(given)}
    if set(place) != set(known):
        raise ValueError(f"workers: expected {_listed(known, place)}, got {_listed(given, known)}")
    return [place[name] for name in known]


def by_name(model: Any, history: Any) -> npt.NDArray[np.float64]:
    """What a model says of a history, in the order of its workers."""
    found: npt.NDArray[np.float64] = model.predict(model.window_of(history))
    order = _order(model, history)
    if order is None:
        return found
    out = np.empty_like(found)
    out[order] = found
    return out


def window_of(model: Any, history: Any, window: int) -> npt.NDArray[np.float64]:
    """So many rows at the end of a history, as a model reads them."""
    target = np.asarray(history.target, np.float64)
    steps, workers = target.shape
    rows, order = min(steps, window), _order(model, history)
    machine, features = model.machine, model.features
    out = np.full((window, len(machine) + workers * len(features)), np.nan)
    last = out[window - rows :]  # a view
    for i, name in enumerate(machine):
        if name in history.machines:
            last[:, i] = np.asarray(history.machines[name], np.float64)[steps - rows :]
    for i, name in enumerate(features):
        values = target if i == 0 else history.features.get(name)
        if values is not None:
            column = np.asarray(values, np.float64)[steps - rows :]
            last[:, len(machine) + i :: len(features)] = (
                column if order is None else column[:, order]
            )
    return out


def _order(model: Any, history: Any) -> list[int] | None:
    names = getattr(history, "workers", None)
    order: list[int] | None = None if names is None else model.order_of(names)
    return order


def _distinct(names: Sequence[str], count: int) -> tuple[str, ...]:
    """Names of so many workers, or none."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"worker_names: expected text, got {names!r:.60}")
    if names and (len(names) != count or len(set(names)) != count or "" in names):
        raise ValueError(f"worker_names: expected {count} distinct names, got {_listed(names)}")
    return tuple(names)


def _listed(names: Sequence[str], others: Collection[str] = ()) -> str:
    """Names for an error: of many, those that the others lack first."""
    first = [name for name in names if name not in others] if len(names) > MOST else list(names)
    shown = (first or list(names))[:MOST]
    left = len(names) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


MOST = 8
"""Names that an error lists."""
