"""The heaviest keys of a stream, and of pairs of keys, in bounded memory.

>>> hot = SpaceSaving(capacity=100)
>>> hot.observe(["anna", "bert", "anna"], weights=[2, 1, 5])
>>> top = hot.top(2)
>>> top.values, top.counts.tolist(), top.errors.tolist()
(['anna', 'bert'], [7, 1], [0, 0])
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import count, integers, real
from pyroute._kernel import Kernel, expect_same
from pyroute.keys import as_core


class TopKeys(NamedTuple):
    """Heaviest keys, descending: `counts - errors <= true <= counts`."""

    values: list[Any]
    counts: npt.NDArray[np.int64]
    errors: npt.NDArray[np.int64]


class TopPairs(NamedTuple):
    """Heaviest pairs, descending: `counts - errors <= true <= counts`."""

    in_values: list[Any]
    out_values: list[Any]
    counts: npt.NDArray[np.int64]
    errors: npt.NDArray[np.int64]


def _weights(weights: Any) -> npt.NDArray[np.int64] | None:
    return None if weights is None else integers(weights, "weights")


class _Counting(Kernel):
    """What both sketches share."""

    __slots__ = ()

    def __init__(self, capacity: int) -> None:
        self._core = self._native(count(capacity, "capacity"))

    @property
    def capacity(self) -> int:
        """How many keys it names at most."""
        return int(self._core.capacity)

    @property
    def total(self) -> int:
        """Weight observed, after decay."""
        return int(self._core.total)

    @property
    def floor(self) -> int:
        """No count is off by more than this, and it is at most `total / capacity`."""
        return int(self._core.floor)

    @property
    def nbytes(self) -> int:
        """Memory in use, names included."""
        return int(self._core.nbytes)

    def __len__(self) -> int:
        return len(self._core)

    def decay(self, factor: float) -> None:
        """Multiply all counts by `factor`, 0 to 1, rounding up so that the bounds hold."""
        self._core.decay(real(factor, "factor"))

    def reset(self) -> None:
        """Forget everything."""
        self._core.reset()

    def merge(self, other: Any) -> None:
        """Add what another sketch saw; the bounds hold for both together."""
        self._core.merge(expect_same(self, other)._core)

    def _most(self, k: int | None) -> int:
        return self.capacity if k is None else count(k, "k")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {self.capacity}, total {self.total})"


class SpaceSaving(_Counting):
    """Filtered SpaceSaving: the `capacity` heaviest keys, by name, with error bounds.

    Parameters
    ----------
    capacity
        How many keys to name. The error is at most total / capacity, and in practice far below.
    """

    __slots__ = ()
    _native = _core.SpaceSaving

    def observe(self, values: Any, weights: Any = None) -> None:
        """Count a batch of values, each with its integer weight (1 where none is given)."""
        self._core.observe(as_core(values, "values"), _weights(weights))

    def top(self, k: int | None = None) -> TopKeys:
        """The `k` heaviest keys, all that are named where `k` is None."""
        return TopKeys(*self._core.top(self._most(k)))

    def estimate(self, values: Any) -> npt.NDArray[np.int64]:
        """Upper bounds of the counts, also for keys that are not named."""
        out: npt.NDArray[np.int64] = self._core.estimate(as_core(values, "values"))
        return out


class PairSpaceSaving(_Counting):
    """The heaviest (in-key, out-key) pairs, with the bounds of `SpaceSaving`."""

    __slots__ = ()
    _native = _core.PairSpaceSaving

    def observe(self, in_values: Any, out_values: Any, weights: Any = None) -> None:
        """Count a batch of pairs, each with its integer weight (1 where none is given)."""
        self._core.observe(
            as_core(in_values, "in_values"), as_core(out_values, "out_values"), _weights(weights)
        )

    def top(self, k: int | None = None) -> TopPairs:
        """The `k` heaviest pairs, all that are named where `k` is None."""
        return TopPairs(*self._core.top(self._most(k)))

    def estimate(self, in_values: Any, out_values: Any) -> npt.NDArray[np.int64]:
        """Upper bounds of the counts, also for pairs that are not named."""
        out: npt.NDArray[np.int64] = self._core.estimate(
            as_core(in_values, "in_values"), as_core(out_values, "out_values")
        )
        return out
