"""Source bolt: the first operator of a reconfigurable topology, behind a spout of any kind.

It reads a spout's stream by any grouping and sends ``[id, key, *values]`` to the task that owns the
key; a key of several fields is text there, and the fields are among the values. Records flow
through without being kept: they are acked when they were sent on.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from pyroute.key_stats import KeyStats
from pyroute.keys import Keys
from pyroute.protocol import Task
from pyroute.protocol.errors import ProtocolError
from pyroute.router import Router
from pyroute.storm.bolt import Context
from pyroute.storm.protocol import Tuple
from pyroute.storm.reconfigure import Participant
from pyroute.storm.task_bolt import flat, numbers_of

_Places: TypeAlias = tuple[list[int], int | None, list[int], int]
"""Where key, id and the rest are in the records of a stream, and how many fields these have."""


class SourceBolt(Participant):
    """Routes the records of a spout to one keyed operator, and takes part in reconfigurations.

    Parameters
    ----------
    key
        Field of the incoming records that is the key, or several.
    id
        Field that is the application's id; without it replays are applied again.
    operator
        The keyed operator that gets them; by default the next in the chain.
    operators, manager, state, durable
        As `Participant` has them.
    """

    top: int = 2000
    """Keys that a report to the manager names."""

    def __init__(
        self,
        *,
        key: str | Sequence[str] = "key",
        id: str = "id",  # noqa: A002  the field's usual name
        operator: str | None = None,
        operators: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        manager: str | None = None,
        state: str | None = None,
        durable: bool = True,
    ) -> None:
        super().__init__(operators=operators, manager=manager, state=state, durable=durable)
        self.key_fields = (key,) if isinstance(key, str) else tuple(key)
        self.id_field = id
        self.operator = operator

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Find out whom to send to."""
        super().initialize(conf, context)
        after = self.wiring.topology.successors(self.me.operator)
        self._target = self.operator or (after[0] if after else "")
        if self._target not in after:
            raise ValueError(f"operator: expected one of {list(after)}, got {self._target!r}")
        self._fields: dict[tuple[str | None, str], _Places] = {}
        self._came = KeyStats(window=1)
        self._router: Router | None = None
        self._router_version: tuple[int, int] | None = None

    def _places(self, record: Tuple) -> _Places:
        found = self._fields.get((record.component, record.stream))
        if found is None:
            names = self.context.fields(record.component or "", record.stream)
            for name in self.key_fields:
                if name not in names:
                    raise ValueError(f"key: expected one of {list(names)}, got {name!r}")
            key = [names.index(name) for name in self.key_fields]
            at = names.index(self.id_field) if self.id_field in names else None
            rest = [i for i in range(len(names)) if i != at and (len(key) > 1 or i != key[0])]
            found = self._fields[record.component, record.stream] = (key, at, rest, len(names))
        return found

    def process(self, records: list[Tuple]) -> None:
        """Send a batch on."""
        lines: list[list[Any]] = []
        values: list[Any] = []
        for record in records:
            key, at, rest, least = self._places(record)
            came = record.values
            if len(came) < least:
                raise ProtocolError(f"tuple: expected {least} fields, got {len(came)}")
            value = came[key[0]] if len(key) == 1 else [came[i] for i in key]
            values.append(value if len(key) == 1 else tuple(value))
            identifier = None if at is None else flat(came[at])
            lines.append([identifier, flat(value), *(came[i] for i in rest)])
        ids = self.wiring.ids
        numbers = np.array(numbers_of(values), np.uint64)
        keys = Keys.from_ids(numbers)
        tasks = self._now().route(keys).tolist()
        if self._managed:
            self._came.observe(keys)
        for record, line, task in zip(records, lines, tasks, strict=True):
            self.emit(line, task=ids[Task(self._target, task)], anchors=record)
            self.ack(record)

    def report(self) -> str | None:
        """How often each key came since the last report."""
        snapshot = self._came.close_interval()
        ids, counts = snapshot.ids, snapshot.costs
        order = np.lexsort((ids, -counts))
        named = order[: self.top]
        document = {
            "task": list(self.me),
            "arrivals": self._target,
            "ids": base64.b64encode(ids[named].astype("<u8").tobytes()).decode(),
            "counts": base64.b64encode(counts[named].astype("<f8").tobytes()).decode(),
            "unnamed": len(order) - len(named),
        }
        return json.dumps(document)

    def _now(self) -> Router:
        """The router in force."""
        version = self.machine.versions()[self._target]
        if self._router is None or version != self._router_version:
            self._router = self.machine.router(self._target)
            self._router_version = version
        return self._router
