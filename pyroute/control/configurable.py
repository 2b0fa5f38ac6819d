"""Configuration that changes while a topology runs: the paper's `DynamicConfigurable`, in Python.

A topology has one document per edge (the pair of components that it joins), named
``TOPOLOGY/SOURCE->TARGET`` in a `ConfigStore`. A document of a split ratio is

    {"kind": "split", "ratio": [7, 3, 2], "bits": 10, "tasks": ["w1", "w2", "w3"],
     "grouping": BASE64}

`ratio` is by position and alone is enough. `grouping` are the bytes of the `DynamicGrouping`: after
a change the owners of the circle have a history that the ratio does not tell.

>>> import tempfile
>>> from pyroute.control import ConfigStore
>>> store = ConfigStore.open("dir:" + tempfile.mkdtemp())
>>> split = SplitRatio(edge_name("urls", "spout", "extract"), tasks=3)
>>> watch = attach(store, split)
>>> split.grouping.shares()[0] > 0.33
True
>>> watch.cancel()
>>> store.close()
"""

from __future__ import annotations

import base64
import binascii
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from pyroute._core import FormatError
from pyroute.dynamic_grouping import DynamicGrouping

if TYPE_CHECKING:
    from pyroute.control.config_store import ConfigStore, Document, Watch

__all__ = ["DynamicConfigurable", "SplitRatio", "attach", "edge_name", "from_document"]

_log = logging.getLogger("pyroute.control.configurable")
KIND = "split"
BURST = 8.0
"""Records at once, beyond its share, that a change may bring to a task."""


@runtime_checkable
class DynamicConfigurable(Protocol):
    """What can be configured while it runs. Watching is not its business: `attach` does it."""

    def config_path(self) -> str:
        """Name of its document (`getConfigPath` in the paper)."""
        ...

    def init_dynamic_config(self, document: Any) -> None:
        """The value that is in force at the start; None where there is none."""
        ...

    def process_update(self, document: Any) -> None:
        """A new value; one that it cannot use raises `ValueError` or `FormatError`."""
        ...


def edge_name(topology: str, source: str, target: str) -> str:
    """Name of the document of one edge."""
    for name, text in (("topology", topology), ("source", source), ("target", target)):
        if not text or "/" in text or "->" in text:
            raise ValueError(f"{name}: expected a name without / and ->, got {text!r}")
    return f"{topology}/{source}->{target}"


def attach(store: ConfigStore, part: DynamicConfigurable) -> Watch:
    """Give a part its value now and every later one, until the watch is cancelled.

    A value that it refuses is logged and reported by `Watch.problem`; the one before stays.
    """
    known = 0
    try:
        first = store.get(part.config_path())
        part.init_dynamic_config(None if first is None else first.value)
        known = 0 if first is None else first.version
    except (OSError, ValueError, FormatError) as error:
        _log.warning("%s: %s; it starts without", part.config_path(), error)
        part.init_dynamic_config(None)

    def changed(document: Document) -> None:
        if document.version > known:
            part.process_update(document.value)

    return store.watch(part.config_path(), changed)


def bits_for(tasks: int) -> int:
    """Bits of a circle on which a twentieth of an even share is an identifier; at least 10."""
    return min(22, max(10, math.ceil(math.log2(32 * tasks))))


def with_shares(grouping: DynamicGrouping, shares: Sequence[float]) -> DynamicGrouping:
    """The circle for other shares: the fewest identifiers change, unless it would come in bursts.

    Records that may go anywhere lose nothing when an identifier moves, but a task that owns a long
    run of identifiers gets that many records at once.
    """
    fewest = grouping.with_ratio(shares)
    if burst(fewest) <= BURST:
        return fewest
    return DynamicGrouping.from_ratio(shares, bits=grouping.bits)


def burst(grouping: DynamicGrouping) -> float:
    """By how many records any run of the circle can differ from its tasks' shares."""
    owners = grouping.owners
    counts = np.unique(owners, return_counts=True)[1]
    first = np.cumsum(counts) - counts
    at = np.argsort(owners, kind="stable")  # of each task its identifiers, one task after another
    number = np.arange(owners.size) - np.repeat(first, counts)
    share = np.repeat(counts / owners.size, counts)
    before = number - at * share  # how far the task is ahead of its share, before its identifier
    most = np.maximum.reduceat(before + 1.0 - share, first)
    return float((most - np.minimum.reduceat(before, first)).max())


def to_document(grouping: DynamicGrouping, tasks: Sequence[str]) -> dict[str, Any]:
    """A document that says it all."""
    shares = grouping.shares()
    size = 1 << grouping.bits
    return {
        "kind": KIND,
        "bits": grouping.bits,
        "tasks": list(tasks),
        "ratio": [round(shares.get(task, 0.0) * size) for task in range(len(tasks))],
        "grouping": base64.b64encode(grouping.to_bytes()).decode("ascii"),
    }


def from_document(value: Any, tasks: int | None = None) -> tuple[DynamicGrouping, list[str]]:
    """The circle of a document and the names of its tasks; `ValueError` for anything else."""
    if not isinstance(value, dict) or value.get("kind", KIND) != KIND:
        raise ValueError(f"document: expected a split ratio, got {str(value)[:60]}")
    ratio = value.get("ratio")
    if not isinstance(ratio, list) or not ratio:
        raise ValueError(f"ratio: expected a list of weights, got {str(ratio)[:60]}")
    if not all(isinstance(w, int | float) and not isinstance(w, bool) for w in ratio):
        raise ValueError(f"ratio: expected numbers, got {str(ratio)[:60]}")
    try:
        ratio = [float(weight) for weight in ratio]
    except OverflowError:  # JSON knows whole numbers of any length
        raise ValueError(f"ratio: expected finite weights, got {str(ratio)[:60]}") from None
    if tasks is not None and len(ratio) != tasks:
        raise ValueError(f"ratio: expected {tasks} weights, got {len(ratio)}")
    names = value.get("tasks", [str(task) for task in range(len(ratio))])
    if not isinstance(names, list) or len(names) != len(ratio):
        raise ValueError(f"tasks: expected {len(ratio)} names, got {str(names)[:60]}")
    bits = value.get("bits", 10)
    if not isinstance(bits, int) or isinstance(bits, bool):
        raise ValueError(f"bits: expected a number, got {bits!r}")
    text = value.get("grouping")
    if text is None:
        return DynamicGrouping.from_ratio(ratio, bits=bits), list(map(str, names))
    try:
        grouping = DynamicGrouping.from_bytes(base64.b64decode(text, validate=True))
    except (binascii.Error, TypeError, FormatError) as error:
        raise ValueError(f"grouping: {error}") from None
    if max(grouping.tasks) >= len(ratio):
        raise ValueError(f"grouping: expected tasks below {len(ratio)}, got {max(grouping.tasks)}")
    return grouping, list(map(str, names))


class SplitRatio:
    """A split ratio that follows its document; the last good one stays in force.

    Parameters
    ----------
    path
        Name of the document, see `edge_name`.
    tasks
        How many; they share evenly until a document says otherwise.
    bits
        Of the circle until then; None: `bits_for` so many tasks.
    """

    def __init__(self, path: str, tasks: int, *, bits: int | None = None) -> None:
        self._path, self._tasks = path, tasks
        bits = bits_for(tasks) if bits is None else bits
        self.grouping = DynamicGrouping.from_ratio([1.0] * tasks, bits=bits)
        self.updates = 0

    def config_path(self) -> str:
        """Name of its document."""
        return self._path

    def init_dynamic_config(self, document: Any) -> None:
        """The first value, None for even shares."""
        if document is not None:
            self.process_update(document)

    def process_update(self, document: Any) -> None:
        """Another ratio; what is no ratio raises and changes nothing."""
        self.grouping, _ = from_document(document, self._tasks)
        self.updates += 1
