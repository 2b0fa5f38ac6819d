"""Consistent-hash ring: the home of every key that the routing table does not pin.

>>> Ring(4).homes(["anna", "anna", "bert"])
array([3, 3, 0], dtype=int32)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import count, weighted_tasks, word
from pyroute._kernel import Kernel
from pyroute.keys import as_core

Tasks = int | Sequence[int] | Mapping[int, float] | npt.NDArray[Any]


class Ring(Kernel):
    """A circle of 2^bits identifiers, each with an owner; immutable.

    Parameters
    ----------
    tasks
        How many tasks (0 to n - 1), their ids, or `{id: weight}`; weight 0 owns nothing.
    bits
        Size of the circle; None means max(16, ceil(log2(64 * tasks))), at most 22.
    replicas
        Points that a task of mean weight puts on the circle.
    salt
        Seeds the points: give each operator its own, and two operators place a key independently.
    """

    __slots__ = ()
    _native = _core.Ring

    def __init__(
        self, tasks: Tasks, bits: int | None = None, replicas: int = 128, salt: int = 0
    ) -> None:
        self._core = _core.Ring(
            weighted_tasks(tasks, "tasks"),
            None if bits is None else min(count(bits, "bits"), 1 << 31),
            min(count(replicas, "replicas"), 1 << 31),
            word(salt, "salt"),
        )

    def homes(self, values: Any) -> npt.NDArray[np.int32]:
        """The home of each value."""
        return self._core.homes(as_core(values, "values"))  # type: ignore[no-any-return]

    def with_tasks(self, tasks: Tasks) -> Ring:
        """A ring of other tasks or weights that moves the fewest identifiers possible."""
        return Ring._wrap(self._core.with_tasks(weighted_tasks(tasks, "tasks")))

    @property
    def owners(self) -> npt.NDArray[np.int32]:
        """The owner of each identifier."""
        return self._core.owners  # type: ignore[no-any-return]

    @property
    def tasks(self) -> tuple[int, ...]:
        """Task ids, ascending."""
        return tuple(self._core.weights)

    @property
    def weights(self) -> dict[int, float]:
        """Weight of each task."""
        return self._core.weights  # type: ignore[no-any-return]

    def shares(self) -> dict[int, float]:
        """The share of the circle that each task owns."""
        owned, counts = np.unique(self.owners, return_counts=True)
        shares = dict.fromkeys(self.tasks, 0.0)
        shares.update(zip(owned.tolist(), (counts / self.owners.size).tolist(), strict=True))
        return shares

    @property
    def bits(self) -> int:
        """The circle has 2^bits identifiers."""
        return int(self._core.bits)

    @property
    def replicas(self) -> int:
        """As given."""
        return int(self._core.replicas)

    @property
    def salt(self) -> int:
        """As given."""
        return int(self._core.salt)

    @property
    def fingerprint(self) -> int:
        """64 bits that differ when the owners differ."""
        return int(self._core.fingerprint)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Ring({len(self.tasks)} tasks, {self.bits} bits, salt {self.salt})"
