"""What the tasks of `pyroute run` do with their rows, in Spark's Python workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_udf.stream.state import KeyedState


@dataclass(frozen=True)
class Totals:
    """Rows of each key so far, and the sum of a column.

    Parameters
    ----------
    keys
        Columns of the key.
    count
        Column of the state for the rows.
    summed
        A column that is summed, under its own name; None: none.
    wait
        Seconds that a row takes, as if each asked a service that is elsewhere. A task that waits
        needs no processor, so that tasks take as long as their rows say however few those are.
    """

    keys: tuple[str, ...]
    count: str = "n"
    summed: str | None = None
    wait: float = 0.0

    @property
    def columns(self) -> list[str]:
        """Columns of the state, all of them whole numbers."""
        return [self.count, *([] if self.summed is None else [self.summed])]

    @property
    def schema(self) -> str:
        """Columns of the state as DDL."""
        return ", ".join(f"`{name}` bigint" for name in self.columns)

    def __call__(self, state: KeyedState, batches: Iterator[pa.RecordBatch]) -> None:
        """One task of a batch."""
        rows = []
        for batch in batches:
            time.sleep(batch.num_rows * self.wait)
            rows.append(batch)
        if not rows:
            return
        seen = self.of(pa.Table.from_batches(rows))
        before, _ = state.read(seen.select(list(self.keys)))
        for name in self.columns:
            total = pc.add(seen[name], pc.fill_null(before[name], 0))
            seen = seen.set_column(seen.schema.get_field_index(name), name, total)
        state.write(seen)

    def of(self, rows: pa.Table) -> pa.Table:
        """The totals of rows alone."""
        wanted: list[tuple[Any, str]] = [([], "count_all")]
        if self.summed is not None:
            wanted.append((self.summed, "sum"))
        made = rows.group_by(list(self.keys), use_threads=False).aggregate(wanted)
        return made.rename_columns([*self.keys, *self.columns])
