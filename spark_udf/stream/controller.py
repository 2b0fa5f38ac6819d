"""The loop's driver side: reports in, the next router out. No Spark and no I/O here.

It closes an interval per batch, asks for a plan, asks the gate, and remembers what both need. What
it remembers is in every manifest (`to_bytes`), so that a driver that was killed decides as the one
before it would have.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

import pyroute
from pyroute import FormatError, Gate, KeyStats, Plan, Router, Snapshot, _typed_json
from spark_udf.stream.files import TaskFiles
from spark_udf.stream.manifest import files_of
from spark_udf.stream.task import COST, SIZE

_FORMAT = "pyroute.stream"


@dataclass(frozen=True)
class Report:
    """What one task says of its batch."""

    task: int
    attempt: int
    rows: int
    load: float
    seconds: float
    files: TaskFiles
    output: str | None
    output_rows: int
    keys_in: int
    bytes_in: int
    keys_out: int
    stats: pa.Table | None
    """Cost and state size of the heaviest and of the tabled keys; None where nobody plans."""

    @classmethod
    def of(cls, table: pa.Table, tasks: Sequence[int]) -> list[Report]:
        """The reports of a batch, one of every task, ascending."""
        rows = sorted(table.to_pylist(), key=lambda row: row["task"])
        if [row["task"] for row in rows] != sorted(tasks):
            raise RuntimeError(
                f"reports: expected one of each task {sorted(tasks)},"
                f" got {[row['task'] for row in rows]}"
            )
        return [
            cls(
                **{
                    **row,
                    "files": files_of(json.loads(row["files"])),
                    "stats": row["stats"] and pa.ipc.open_stream(row["stats"]).read_all(),
                }
            )
            for row in rows
        ]


@dataclass(frozen=True)
class Step:
    """What was decided after a batch."""

    router: Router
    """In force from the next batch on."""
    plan: Plan | None
    applied: bool
    reason: str


class Controller:
    """Statistics of the last batches, and the gate.

    Parameters
    ----------
    gate
        Whether a plan is worth it; None: every plan that changes something.
    smoothing
        Weight of the past in the forecast of a key's cost.
    options
        Those of `pyroute.rebalance`.
    """

    def __init__(self, gate: Gate | None = None, smoothing: float = 0.3, **options: Any) -> None:
        if options.get("mergeable"):
            raise ValueError(
                "mergeable: expected False, got True: the state of a key is in one place"
            )
        self.gate, self.options, self.smoothing = gate, options, smoothing
        self._stats = KeyStats(window=1, smoothing=smoothing)
        self._background: dict[int, float] = {}
        self.snapshot = Snapshot([], [])

    def observe(self, reports: Sequence[Report]) -> None:
        """Close an interval with the reports of a batch."""
        background = {}
        for report in reports:
            table = report.stats
            assert table is not None, "statistics of every task"
            costs = table.column(COST).to_numpy()
            if table.num_rows:
                columns = [
                    table.column(name).combine_chunks()
                    for name in table.column_names
                    if name not in (COST, SIZE)
                ]
                self._stats.observe(pyroute.keys(*columns), costs, table.column(SIZE).to_numpy())
            background[report.task] = max(0.0, report.load - float(costs.sum()))
        past, weight = self._background, self.smoothing
        self._background = {
            task: load if task not in past else weight * past[task] + (1 - weight) * load
            for task, load in background.items()
        }
        named = self._stats.close_interval()
        self.snapshot = Snapshot(
            named.values,
            named.costs,
            named.state_sizes,
            background=self._background,
            interval=named.interval,
        )

    def decide(self, router: Router, now: float) -> Step:
        """A plan for what was seen, and whether it is applied."""
        plan = pyroute.rebalance(self.snapshot, router, **self.options)
        if not plan.changes:
            return Step(router, plan, False, "nothing to change")
        if self.gate is None:
            return Step(router.apply(plan), plan, True, "applied: no gate")
        decision = self.gate.decide(plan, now)
        after = router.apply(plan) if decision.apply else router
        return Step(after, plan, decision.apply, decision.reason)

    def resize(self, router: Router, tasks: Any) -> Plan:
        """A plan for other tasks."""
        return pyroute.elastic(router, self.snapshot, tasks, **self.options)

    def to_bytes(self) -> bytes:
        """What the next decision depends on, beside options."""
        document = {
            "format": _FORMAT,
            "format_version": 1,
            "stats": base64.b64encode(self._stats.to_bytes()).decode(),
            "snapshot": base64.b64encode(self.snapshot.to_bytes()).decode(),
            "background": {str(task): load for task, load in self._background.items()},
            "gate": None if self.gate is None else json.loads(self.gate.to_json()),
        }
        return zlib.compress(json.dumps(document).encode(), 1)

    def restore(self, data: bytes) -> Self:
        """Take up what `to_bytes` wrote; options and parameters stay those given."""
        try:
            text = zlib.decompress(data)
        except zlib.error as error:
            raise FormatError(f"stats: expected what to_bytes wrote, got {error}") from error
        document = _typed_json.read(text, _FORMAT, "stats", dict)
        stats = KeyStats.from_bytes(base64.b64decode(document["stats"], validate=True))
        if stats.smoothing == self.smoothing:
            self._stats = stats
        self.snapshot = Snapshot.from_bytes(base64.b64decode(document["snapshot"], validate=True))
        background: Mapping[str, float] = document["background"]
        if not all(isinstance(load, int | float) for load in background.values()):
            raise FormatError("background: expected numbers")
        self._background = {int(task): float(load) for task, load in background.items()}
        if self.gate is not None and document["gate"] is not None:
            past = Gate.from_json(json.dumps(document["gate"]))
            if _parameters(past) == _parameters(self.gate):
                self.gate = past
        return self


def _parameters(gate: Gate) -> tuple[Any, ...]:
    return (
        *(gate.min_gain, gate.dead_band, gate.cooldown),
        *(gate.bytes_per_second, gate.memory, gate.horizon),
    )


def moves(before: Router, after: Router) -> tuple[Any, dict[int, list[int]]]:
    """Which identities may have another task, and from which tasks each task's new keys come.

    The first is None where any may: the home changed.
    """
    if before.home != after.home:
        tasks = list(before.tasks)
        return None, {task: [t for t in tasks if t != task] for task in after.tasks}
    ids = np.union1d(before.table.ids, after.table.ids)
    keys = pyroute.Keys.from_ids(ids)
    old, new = before.route(keys), after.route(keys)
    moved = old != new
    sources = {task: np.unique(old[moved & (new == task)]).tolist() for task in after.tasks}
    return ids[moved], sources
