"""Dynamic bolt: a split ratio for records that may go to any task, changed while they flow.

The ratio is a document of a config store, `TOPOLOGY/COMPONENT->TARGET`::

    {"ratio": [7, 3, 2]}                          by position of the task; or with a circle:
    {"ratio": [7, 3, 2], "bits": 10, "grouping": BASE64 of DynamicGrouping.to_bytes()}

Shares are even until there is one. One that cannot be used is logged, and the last good one stays.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from typing import Any

import numpy as np

from pyroute.control.config_store import ConfigStore, Document
from pyroute.dynamic_grouping import DynamicGrouping
from pyroute.storm.bolt import Bolt, Context
from pyroute.storm.protocol import Tuple
from pyroute.storm.reconfigure import setting


def grouping_of(value: Any, tasks: int) -> DynamicGrouping:
    """The circle that a document says; `ValueError` for anything else."""
    ratio = value.get("ratio") if isinstance(value, dict) else None
    if not isinstance(ratio, list) or len(ratio) != tasks:
        raise ValueError(f"ratio: expected {tasks} weights, got {str(value)[:80]}")
    text = value.get("grouping")
    try:
        if text is None:
            return DynamicGrouping.from_ratio(ratio, bits=value.get("bits", 10))
        grouping = DynamicGrouping.from_bytes(base64.b64decode(text, validate=True))
    except (TypeError, binascii.Error) as error:
        raise ValueError(f"document: {error}") from error
    if max(grouping.tasks) >= tasks:
        raise ValueError(f"grouping: expected tasks below {tasks}, got {max(grouping.tasks)}")
    return grouping


class DynamicBolt(Bolt):
    """Sends records to the tasks of a component in the ratio that a config store says.

    Parameters
    ----------
    target
        The component whose tasks get the records, by direct grouping.
    store
        URL of the config store (or ``pyroute.store``). Where it cannot be reached, the last good
        ratio stays in force.
    bits
        Size of the circle while there is no document.
    """

    def __init__(self, target: str, *, store: str | None = None, bits: int = 10) -> None:
        self.target = target
        self.store = store
        self.bits = bits

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Begin to watch the document."""
        self._ids = context.tasks(self.target)
        if not self._ids:
            raise ValueError(f"target: expected a component of the topology, got {self.target!r}")
        self.grouping = DynamicGrouping.from_ratio([1.0] * len(self._ids), bits=self.bits)
        self.version = 0
        """Of the document in force, 0 before the first."""
        self._next = 0
        url = setting(self.store, conf, "store")
        if url is None:
            raise ValueError("store: expected a config store (pyroute.store), got none")
        name = f"{conf.get('topology.name') or 'topology'}/{context.component}->{self.target}"
        self._store = ConfigStore.open(url, wait=False)
        with contextlib.suppress(OSError, ValueError):  # the watch says what is wrong
            found = self._store.get(name)
            if found is not None:
                self._changed(found)
        self._store.watch(name, self._changed)

    def _changed(self, document: Document) -> None:
        """In the store's thread: one assignment, seen by the next batch."""
        if document.version <= self.version:
            return
        try:
            self.grouping = grouping_of(document.value, len(self._ids))
        except ValueError as error:
            self.log(f"version {document.version}: {error}; {self.version} stays in force", 3)
            raise
        self.version = document.version

    def process(self, records: list[Tuple]) -> None:
        """Send a batch on."""
        first, self._next = self._next, self._next + len(records)
        tasks = self.grouping.assign(np.arange(first, self._next)).tolist()
        for record, task in zip(records, tasks, strict=True):
            self.emit(record.values, task=self._ids[task], anchors=record)

    def finish(self) -> None:
        """Let go of the store."""
        store = getattr(self, "_store", None)
        if store is not None:
            store.close()
