"""The heaviest keys of a stream whose keys may be of several types.

>>> counts = KeyCounts(100)
>>> for value in ("anna", 7, "anna", True):
...     counts.observe([value])
>>> top = counts.top()
>>> top.values, top.counts.tolist()
(['anna', 7, True], [2, 1, 1])
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute._arrays import count
from pyroute.keys import keys
from pyroute.space_saving import SpaceSaving, TopKeys


class KeyCounts:
    """A `SpaceSaving` for each type of keys: the bounds of each hold for the keys of its type.

    Parameters
    ----------
    capacity
        How many keys of each type to name.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.parts: list[SpaceSaving] = []
        """By first sight of their type."""

    def observe(self, values: Any) -> None:
        """Count a batch of values of one type."""
        batch = SpaceSaving(self.capacity)
        batch.observe(values)
        self.add(batch)

    def add(self, other: SpaceSaving) -> None:
        """Add what another one counted, of keys of one type."""
        for part in self.parts:
            try:
                part.merge(other)
            except TypeError:
                continue
            return
        own = SpaceSaving(self.capacity)
        own.merge(other)
        self.parts.append(own)

    @property
    def total(self) -> int:
        """Records observed."""
        return sum(part.total for part in self.parts)

    @property
    def floor(self) -> int:
        """No count is off by more than this."""
        return max((part.floor for part in self.parts), default=0)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def top(self, k: int | None = None) -> TopKeys:
        """The `k` heaviest keys of all types, all that are named where `k` is None."""
        most = len(self) if k is None else count(k, "k")
        tops = [part.top() for part in self.parts]
        values = [value for top in tops for value in top.values]
        counts = np.concatenate([np.zeros(0, np.int64), *(top.counts for top in tops)])
        errors = np.concatenate([np.zeros(0, np.int64), *(top.errors for top in tops)])
        order = np.argsort(-counts, kind="stable")[:most]
        return TopKeys([values[i] for i in order], counts[order], errors[order])

    def estimate(self, values: Any) -> npt.NDArray[np.int64]:
        """Upper bounds of the counts, also for keys that are not named; by identity."""
        named = keys(values)
        out = np.zeros(len(named), np.int64)
        for part in self.parts:
            out += part.estimate(named)
        return out

    def __repr__(self) -> str:
        return f"KeyCounts({len(self)} of {len(self.parts)} types, total {self.total})"
