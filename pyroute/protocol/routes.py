"""What a router says of one key, and which keys move between two routers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute.keys import Keys, as_core
from pyroute.protocol.messages import Moved, Range
from pyroute.ring import Ring
from pyroute.router import Router

UNKNOWN = -1
"""The owner of a key that several tasks share, or that an engine's own hash places."""


class Routes:
    """The owner of one key at a time: a dict over an array, made once per router."""

    __slots__ = ("_owners", "_shift", "data", "fingerprint", "table", "tasks", "version")

    def __init__(self, router: Router) -> None:
        self.version = router.version
        self.fingerprint = router.fingerprint
        self.tasks = router.tasks
        self.data = router.to_bytes(values=False)
        # Split keys too: intervals of the ring do not stand for them.
        self.table: dict[int, int] = dict.fromkeys(_splits(router), UNKNOWN)
        table = router.table
        self.table.update(zip(table.ids.tolist(), table.targets.tolist(), strict=True))
        home = router.home
        owners: Any = home.owners if isinstance(home, Ring) else None
        self._owners: memoryview[int] | None = None if owners is None else memoryview(owners)
        self._shift = 64 - home.bits if isinstance(home, Ring) else 0

    @classmethod
    def from_bytes(cls, data: bytes) -> Routes:
        """Of a router's bytes; anything else raises `FormatError`."""
        return cls(Router.from_bytes(data))

    def owner(self, key: int) -> int:
        """The task of a key, or `UNKNOWN`."""
        owner = self.table.get(key)
        if owner is not None:
            return owner
        return UNKNOWN if self._owners is None else self._owners[key >> self._shift]


def moves(before: Router, after: Router) -> dict[tuple[int, int], Moved]:
    """What goes from which task to which, where one router takes the place of another.

    Keys that either table names and whose owner differs, a key that leaves the table for its home
    among them (C5 of the paper's traps), and intervals of the ring whose owner differs. Splits have
    to stay, and so has a home that is not a ring.

    Returns
    -------
    dict
        `Moved` by (source, target), ascending.
    """
    if _splits(before) != _splits(after):
        raise ValueError("splits: expected the same before and after, got others")
    intervals = _intervals(before, after)
    ids, sources, targets = _tabled(before, after)
    changed = sources != targets
    found: dict[tuple[int, int], tuple[list[int], list[Range]]] = {}
    for key, source, target in zip(
        ids[changed].tolist(), sources[changed].tolist(), targets[changed].tolist(), strict=True
    ):
        found.setdefault((source, target), ([], []))[0].append(key)
    for first, last, source, target in intervals:
        found.setdefault((source, target), ([], []))[1].append((first, last))
    return {
        pair: Moved(tuple(keys), tuple(ranges)) for pair, (keys, ranges) in sorted(found.items())
    }


def _splits(router: Router) -> dict[int, tuple[int, ...]]:
    splits = router.splits
    return dict(zip(router.split_ids.tolist(), splits.values(), strict=True)) if splits else {}


def _tabled(
    before: Router, after: Router
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    ids = np.union1d(before.table.ids, after.table.ids)
    keys: Any = Keys.from_ids(ids)
    if not isinstance(before.home, Ring):
        # An engine's hash is of values, so that the tables have to name them.
        names: dict[int, Any] = {}
        for router in (before, after):
            if len(router.table) and not router._core.named:
                raise ValueError(
                    f"table: expected the values of its keys for {router.home!r}, got ids alone"
                )
            names.update(zip(router.table.ids.tolist(), router.table, strict=True))
        keys = [names[key] for key in ids.tolist()]
        assert as_core(keys, "table").ids.tolist() == ids.tolist()
    if not len(ids):
        nothing = np.empty(0, np.int32)
        return ids, nothing, nothing
    return ids, before.route(keys, salt=0), after.route(keys, salt=0)


def _intervals(before: Router, after: Router) -> list[tuple[int, int, int, int]]:
    """First key, last key, source and target of every stretch of the ring that moves."""
    old, new = before.home, after.home
    if old == new:
        return []
    if not isinstance(old, Ring) or not isinstance(new, Ring):
        raise ValueError(f"home: expected the same, or two rings, got {old!r} and {new!r}")
    bits = max(old.bits, new.bits)
    sources = np.repeat(old.owners, 1 << (bits - old.bits))
    targets = np.repeat(new.owners, 1 << (bits - new.bits))
    edges = np.flatnonzero(np.diff(sources) | np.diff(targets)) + 1
    shift = 64 - bits
    starts = [0, *edges.tolist()]
    stops = [*starts[1:], 1 << bits]
    return [
        (start << shift, (stop << shift) - 1, int(sources[start]), int(targets[start]))
        for start, stop in zip(starts, stops, strict=True)
        if sources[start] != targets[start]
    ]
