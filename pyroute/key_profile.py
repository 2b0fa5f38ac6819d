"""What a report says of a stream after one pass: hot keys with bounds, and loads of a ring.

>>> profile = KeyProfile(capacity=100)
>>> profile.observe(["anna", "bert", "anna"])
>>> hot = profile.hot()
>>> hot.values, hot.records.tolist(), hot.record_errors.tolist(), profile.exact
(['anna', 'bert'], [2, 1], [0, 0], True)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import count, integers, numbers
from pyroute.keys import as_core
from pyroute.ring import Ring

__all__ = ["HotKeys", "KeyProfile"]


class HotKeys(NamedTuple):
    """Heaviest keys, descending: `records <= true <= records + record_errors`, so for costs."""

    values: list[Any]
    ids: npt.NDArray[np.uint64]
    records: npt.NDArray[np.int64]
    record_errors: npt.NDArray[np.int64]
    costs: npt.NDArray[np.float64]
    """Empty where no costs were observed."""
    cost_errors: npt.NDArray[np.float64]
    state_sizes: npt.NDArray[np.float64]
    """Sums since the key is monitored; empty where none were observed."""


class KeyProfile:
    """Hot keys and the load of every identifier of a circle, at a few nanoseconds a record.

    Parameters
    ----------
    capacity
        How many keys to name. Streams of no more keys than that are counted exactly.
    bits
        Size of the circle, that of the rings whose loads are asked for.
    """

    __slots__ = ("_core",)

    def __init__(self, capacity: int = 4096, bits: int = 16) -> None:
        self._core = _core.KeyProfile(count(capacity, "capacity"), min(count(bits, "bits"), 1 << 9))

    def observe(
        self, values: Any, counts: Any = None, *, costs: Any = None, state_sizes: Any = None
    ) -> None:
        """Add a batch.

        Parameters
        ----------
        values
            The keys.
        counts
            How many records a row stands for; 1 by default.
        costs, state_sizes
            Of each row, finite and not negative; in every call or in none.
        """
        self._core.observe(
            as_core(values, "values"),
            None if counts is None else integers(counts, "counts"),
            None if costs is None else numbers(costs, "costs"),
            None if state_sizes is None else numbers(state_sizes, "state_sizes"),
        )

    def merge(self, other: KeyProfile) -> None:
        """Add what another profile saw; the bounds hold for both together."""
        if not isinstance(other, KeyProfile):
            raise TypeError(f"other: expected KeyProfile, got {type(other).__name__}")
        self._core.merge(other._core)

    def restart(self) -> None:
        """Forget all sums for a next interval; monitored keys stay monitored."""
        self._core.restart()

    def hot(self, k: int | None = None) -> HotKeys:
        """The `k` heaviest keys by cost, by records where there are no costs."""
        return HotKeys(*self._core.hot(self.capacity if k is None else count(k, "k")))

    def rest(self) -> npt.NDArray[np.float64]:
        """Per identifier, the load that no monitored key accounts for."""
        return self._core.rest(self._core.costed)

    def background(self, ring: Ring) -> dict[int, float]:
        """The same per task of a ring."""
        owners = ring.owners
        if len(owners) != 1 << self.bits:
            raise ValueError(f"ring: expected one of {self.bits} bits, got {len(owners)} owners")
        tasks = np.asarray(ring.tasks, np.int64)
        rest = np.bincount(np.searchsorted(tasks, owners), self.rest(), minlength=len(tasks))
        return dict(zip(tasks.tolist(), rest.tolist(), strict=True))

    def find(self, values: Any) -> npt.NDArray[np.bool_]:
        """Whether each value is monitored."""
        return self._core.find(as_core(values, "values")).view(np.bool_)

    @property
    def records(self) -> int:
        """Records observed."""
        return self._core.records

    @property
    def total(self) -> float:
        """Their cost; their number where they have none."""
        return self._core.cost if self._core.costed else float(self._core.records)

    @property
    def distinct(self) -> float:
        """Number of keys: exact where `exact`, else with a standard error of 1.6 %."""
        return self._core.distinct

    @property
    def exact(self) -> bool:
        """Whether every key is monitored, without error."""
        return self._core.exact

    @property
    def capacity(self) -> int:
        """How many keys it names at most."""
        return self._core.capacity

    @property
    def bits(self) -> int:
        """Size of the circle: 2^bits identifiers."""
        return self._core.bits

    @property
    def nbytes(self) -> int:
        """Memory in use, names included."""
        return self._core.nbytes

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return f"KeyProfile({len(self)} of {self.capacity}, {self.records} records)"
