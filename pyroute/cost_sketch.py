"""The dual Count-Min sketch: how often a key came and how long it took, in fixed memory.

>>> sketch = CostSketch()
>>> sketch.observe(["a", "b", "a"], [10.0, 1.0, 20.0])
>>> sketch.mean_time(["a", "b", "never seen"]).round(1).tolist()
[15.0, 1.0, 10.3]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import numbers, real, word
from pyroute._kernel import Kernel, expect_same
from pyroute.keys import as_core


class CostSketch(Kernel):
    """Frequency F and cumulated time W of every key (paper 004).

    Parameters
    ----------
    epsilon, delta
        An estimate exceeds the truth by more than epsilon times the total with a probability of
        at most delta.
    seed
        Sketches merge when their parameters and seeds agree.
    """

    __slots__ = ()
    _native = _core.CostSketch

    def __init__(self, epsilon: float = 0.05, delta: float = 0.1, seed: int = 0) -> None:
        self._core = _core.CostSketch(
            real(epsilon, "epsilon"), real(delta, "delta"), word(seed, "seed")
        )

    def observe(self, values: Any, times: Any) -> None:
        """Add a batch of executed records and the time each took, in the caller's unit."""
        self._core.observe(as_core(values, "values"), numbers(times, "times"))

    def frequency(self, values: Any) -> npt.NDArray[np.int64]:
        """How often each value came: never under."""
        return self._native_array("frequency", values)

    def time(self, values: Any) -> npt.NDArray[np.float64]:
        """The time each value took in all: never under."""
        return self._native_array("time", values)

    def mean_time(self, values: Any) -> npt.NDArray[np.float64]:
        """Time per record of each value; the overall mean where a value never came."""
        return self._native_array("mean_time", values)

    def _native_array(self, name: str, values: Any) -> npt.NDArray[Any]:
        out: npt.NDArray[Any] = getattr(self._core, name)(as_core(values, "values"))
        return out

    def merge(self, other: CostSketch) -> None:
        """Add what another sketch of the same parameters and seed saw."""
        self._core.merge(expect_same(self, other)._core)

    def decay(self, factor: float) -> None:
        """Multiply everything by `factor`, 0 to 1; means stay as they are."""
        self._core.decay(real(factor, "factor"))

    def reset(self) -> None:
        """Forget everything."""
        self._core.reset()

    @property
    def rows(self) -> int:
        """ceil(log2(1 / delta))."""
        return int(self._core.rows)

    @property
    def columns(self) -> int:
        """ceil(e / epsilon)."""
        return int(self._core.columns)

    @property
    def epsilon(self) -> float:
        """As given."""
        return float(self._core.epsilon)

    @property
    def delta(self) -> float:
        """As given."""
        return float(self._core.delta)

    @property
    def seed(self) -> int:
        """As given."""
        return int(self._core.seed)

    @property
    def total_frequency(self) -> float:
        """Records observed, after decay."""
        return float(self._core.total_frequency)

    @property
    def total_time(self) -> float:
        """Time observed, after decay."""
        return float(self._core.total_time)

    def __repr__(self) -> str:
        return (
            f"CostSketch({self.rows} rows of {self.columns}, seed {self.seed},"
            f" {self.total_frequency:g} records)"
        )
