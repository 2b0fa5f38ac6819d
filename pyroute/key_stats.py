"""Exact statistics per key over the last intervals, and the snapshot that a planner reads.

>>> stats = KeyStats(window=5)
>>> stats.observe(["anna", "bert", "anna"], costs=[1.0, 4.0, 2.0])
>>> snapshot = stats.close_interval()
>>> dict(zip(snapshot.values, snapshot.costs.tolist()))
{'anna': 3.0, 'bert': 4.0}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import count, integers, numbers, real, task_id
from pyroute._kernel import Kernel
from pyroute.keys import as_core


class Snapshot(Kernel):
    """Cost and state size of every key in one closed interval, immutable.

    Parameters
    ----------
    values
        The keys, each once.
    costs
        Load that each key brings, in the caller's unit.
    state_sizes
        Bytes that move if the key moves. Without them every key counts 1, so that the cost of a
        migration is the number of keys.
    background
        Load per task that none of these keys accounts for: `{task: load}`, or a sequence by
        task id.
    interval
        Number of the interval, from 0.
    """

    __slots__ = ()
    _native = _core.Snapshot

    def __init__(
        self,
        values: Any,
        costs: Any,
        state_sizes: Any = None,
        *,
        background: Mapping[int, float] | Sequence[float] | None = None,
        interval: int = 0,
    ) -> None:
        self._core = _core.Snapshot(
            as_core(values, "values"),
            numbers(costs, "costs"),
            None if state_sizes is None else integers(state_sizes, "state_sizes"),
            _loads(background),
            count(interval, "interval"),
        )

    @property
    def values(self) -> list[Any]:
        """The keys by name, in the order of the arrays."""
        return self._core.values()  # type: ignore[no-any-return]

    @property
    def ids(self) -> npt.NDArray[np.uint64]:
        """The 64-bit identities."""
        return self._core.ids  # type: ignore[no-any-return]

    @property
    def costs(self) -> npt.NDArray[np.float64]:
        """Load that each key brings: the forecast for the next interval."""
        return self._core.costs  # type: ignore[no-any-return]

    @property
    def state_sizes(self) -> npt.NDArray[np.int64]:
        """Bytes that move if the key moves."""
        return self._core.state_sizes  # type: ignore[no-any-return]

    @property
    def background(self) -> dict[int, float]:
        """Load per task that none of the keys accounts for."""
        return self._core.background  # type: ignore[no-any-return]

    @property
    def interval(self) -> int:
        """Number of the interval."""
        return int(self._core.interval)

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return f"Snapshot(interval {self.interval}, {len(self)} keys, cost {self.costs.sum():g})"


def _loads(background: Mapping[int, float] | Sequence[float] | None) -> list[tuple[int, float]]:
    if background is None:
        return []
    if isinstance(background, Mapping):
        return [
            (task_id(task, "background"), real(load, "background"))
            for task, load in background.items()
        ]
    return list(enumerate(numbers(background, "background").tolist()))


class KeyStats(Kernel):
    """Exact cost and state size per key over the last `window` intervals.

    Parameters
    ----------
    window
        How many past intervals of state a key keeps.
    smoothing
        Weight of the past, 0 to below 1, in the forecast of a key's cost in the next interval.
    """

    __slots__ = ()
    _native = _core.KeyStats

    def __init__(self, window: int = 5, smoothing: float = 0.0) -> None:
        self._core = _core.KeyStats(count(window, "window"), real(smoothing, "smoothing"))

    def observe(self, values: Any, costs: Any = None, state_sizes: Any = None) -> None:
        """Add a batch of records to the open interval; each costs 1 where no costs are given."""
        self._core.observe(
            as_core(values, "values"),
            None if costs is None else numbers(costs, "costs"),
            None if state_sizes is None else integers(state_sizes, "state_sizes"),
        )

    def close_interval(self) -> Snapshot:
        """End the interval and open the next."""
        return Snapshot._wrap(self._core.close_interval())

    @property
    def window(self) -> int:
        """As given."""
        return int(self._core.window)

    @property
    def smoothing(self) -> float:
        """As given."""
        return float(self._core.smoothing)

    @property
    def interval(self) -> int:
        """Number of the open interval."""
        return int(self._core.interval)

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return f"KeyStats(interval {self.interval}, {len(self)} keys, window {self.window})"
