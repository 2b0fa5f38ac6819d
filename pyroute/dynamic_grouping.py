"""Dynamic grouping: a split ratio as a circle of identifiers, for records that may go to any task.

>>> g = DynamicGrouping.from_ratio([7, 3, 2], bits=10)
>>> g.assign(range(12)).tolist()
[0, 0, 1, 0, 2, 0, 1, 0, 0, 1, 2, 0]
>>> DynamicGrouping.from_identifiers(
...     {3: "A", 7: "A", 0: "B", 4: "B", 6: "B", 5: "C"}, bits=3
... ).shares()
{'A': 0.5, 'B': 0.375, 'C': 0.125}
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import count, integers, real, task_id
from pyroute._kernel import Kernel

Ratio = Sequence[float] | Mapping[Any, float]


def _is_id(label: object) -> bool:
    return isinstance(label, int | np.integer) and not isinstance(label, bool | np.bool_)


class DynamicGrouping(Kernel):
    """A split ratio: record n goes to the owner of identifier n mod 2^bits; immutable.

    Tasks are ids from 0 up. Other labels ("A", "B") are numbered in sorted order: `tasks` gives
    the labels, and `assign` positions in it.
    """

    __slots__ = ("_labels",)
    _native = _core.DynamicGrouping
    _labels: tuple[str, ...] | None

    @classmethod
    def _of(cls, core: Any, labels: tuple[str, ...] | None) -> Self:
        self = cls._wrap(core)
        self._labels = labels
        return self

    @classmethod
    def from_ratio(cls, ratio: Ratio, bits: int = 10) -> Self:
        """Shares in this ratio, each exact up to 1 / 2^bits, owners interleaved.

        Parameters
        ----------
        ratio
            Weights of the tasks 0, 1, ..., or `{task: weight}`.
        bits
            Size of the circle.
        """
        if isinstance(ratio, Mapping):
            labels = _labels_of(ratio)
            weights = {_number(task, labels): real(w, "ratio") for task, w in ratio.items()}
        else:
            labels = None
            weights = _by_position(ratio)
        return cls._of(_core.DynamicGrouping.from_ratio(list(weights.items()), _bits(bits)), labels)

    @classmethod
    def from_identifiers(cls, identifiers: Mapping[int, Any], bits: int = 10) -> Self:
        """Assign some identifiers; every other belongs to the first assigned one clockwise."""
        if not isinstance(identifiers, Mapping):
            raise TypeError(
                "identifiers: expected a mapping of identifier to task,"
                f" got {type(identifiers).__name__}"
            )
        labels = _labels_of(dict.fromkeys(identifiers.values()))
        return cls._of(
            _core.DynamicGrouping.from_identifiers(
                integers(list(identifiers), "identifiers"),
                np.array([_number(task, labels) for task in identifiers.values()], np.int32),
                _bits(bits),
            ),
            labels,
        )

    @classmethod
    def init_shards(cls, tasks: int, shards: int, bits: int = 10) -> Self:
        """The paper's initShards: `shards` identifiers for each of `tasks` tasks, in turn."""
        return cls._of(
            _core.DynamicGrouping.init_shards(
                count(tasks, "tasks"), count(shards, "shards"), _bits(bits)
            ),
            None,
        )

    def assign(self, ids: Any) -> npt.NDArray[np.int32]:
        """The task of each record id."""
        if isinstance(ids, range):
            ids = np.arange(ids.start, ids.stop, ids.step, dtype=np.int64)
        return self._core.assign(integers(ids, "ids"))  # type: ignore[no-any-return]

    def reassign(self, task: Any, to: Any) -> Self:
        """Give the identifiers of one task to others; no other identifier changes.

        Parameters
        ----------
        task
            The task to bypass.
        to
            One task, several, or `{task: weight}`.
        """
        if isinstance(to, Mapping):
            heirs = [(self._id(t), real(w, "to")) for t, w in to.items()]
        elif isinstance(to, str) or not isinstance(to, Sequence | np.ndarray):
            heirs = [(self._id(to), 1.0)]
        else:
            heirs = [(self._id(t), 1.0) for t in to]
        return self._of(self._core.reassign(self._id(task), heirs), self._labels)

    def with_ratio(self, ratio: Ratio) -> Self:
        """Another ratio with the fewest identifiers changed."""
        if isinstance(ratio, Mapping):
            weights = {self._id(task): real(w, "ratio") for task, w in ratio.items()}
        else:
            weights = _by_position(ratio)
            if self._labels is not None and len(weights) != len(self._labels):
                raise ValueError(
                    f"ratio: expected {len(self._labels)} weights, one for each label,"
                    f" got {len(weights)}"
                )
        return self._of(self._core.with_ratio(list(weights.items())), self._labels)

    def _id(self, task: Any) -> int:
        return _number(task, self._labels)

    @property
    def owners(self) -> npt.NDArray[np.int32]:
        """The owner of each identifier."""
        return self._core.owners  # type: ignore[no-any-return]

    @property
    def tasks(self) -> tuple[Any, ...]:
        """The tasks that own something, ascending; all labels where tasks have labels."""
        return self._labels or tuple(np.unique(self.owners).tolist())

    def shares(self) -> dict[Any, float]:
        """The share of the circle that each task owns."""
        owned, counts = np.unique(self.owners, return_counts=True)
        shares = dict(zip(owned.tolist(), (counts / self.owners.size).tolist(), strict=True))
        return {task: shares.get(self._id(task), 0.0) for task in self.tasks}

    @property
    def bits(self) -> int:
        """The circle has 2^bits identifiers."""
        return int(self._core.bits)

    @property
    def fingerprint(self) -> int:
        """64 bits that differ when the owners differ."""
        return int(self._core.fingerprint)

    def to_bytes(self) -> bytes:
        """Versioned bytes; labels are not among them, positions are."""
        return super().to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; anything else raises `FormatError`."""
        self = super().from_bytes(data)
        self._labels = None
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_labels, (type(self), self.to_bytes(), self._labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DynamicGrouping):
            return NotImplemented
        return self._labels == other._labels and bool(self._core.equals(other._core))

    def __hash__(self) -> int:
        return hash((self.fingerprint, self._labels))

    def __repr__(self) -> str:
        shares = ", ".join(
            f"{task}: {share:.4g}" for task, share in list(self.shares().items())[:8]
        )
        more = ", ..." if len(self.tasks) > 8 else ""
        return f"DynamicGrouping({{{shares}{more}}}, bits={self.bits})"


def _with_labels(
    cls: type[DynamicGrouping], data: bytes, labels: tuple[str, ...] | None
) -> DynamicGrouping:
    self = cls.from_bytes(data)
    self._labels = labels
    return self


def _by_position(ratio: Any) -> dict[int, float]:
    if not isinstance(ratio, Sequence | np.ndarray) or isinstance(ratio, str | bytes):
        raise TypeError(
            f"ratio: expected weights, or a mapping of task to weight, got {type(ratio).__name__}"
        )
    return dict(enumerate(real(weight, "ratio") for weight in ratio))


def _bits(bits: int) -> int:
    return min(count(bits, "bits"), 1 << 31)


def _labels_of(tasks: Mapping[Any, Any]) -> tuple[str, ...] | None:
    if all(_is_id(task) for task in tasks):
        return None
    if not all(isinstance(task, str) for task in tasks):
        kinds = sorted({type(task).__name__ for task in tasks})
        raise TypeError(f"tasks: expected ids or text, all of one kind, got {', '.join(kinds)}")
    return tuple(sorted(tasks))


def _number(task: Hashable, labels: tuple[str, ...] | None) -> int:
    if labels is None:
        return task_id(task, "task")
    if task not in labels:
        raise ValueError(f"task: expected one of {', '.join(labels)}, got {task}")
    return labels.index(str(task))
