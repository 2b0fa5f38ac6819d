"""Traces: what comes when, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute._arrays import numbers, real
from pyroute.keys import Keys, keys

__all__ = ["Trace"]

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """Records in the order they come.

    Parameters
    ----------
    ids
        Key of each record.
    arrivals
        When it comes, never less than before.
    costs
        The time that it takes at a task of speed 1.
    sizes
        Bytes by which it makes the state of its key grow; none by default.
    sources
        Server that it comes from, where that matters.
    name
        For tables.
    """

    ids: npt.NDArray[np.uint64]
    arrivals: Reals
    costs: Reals
    sizes: npt.NDArray[np.int64] | None = None
    sources: npt.NDArray[np.int64] | None = None
    name: str = "trace"

    def __post_init__(self) -> None:
        size = len(self.ids)
        for name in ("arrivals", "costs", "sizes", "sources"):
            column = getattr(self, name)
            if column is not None and len(column) != size:
                raise ValueError(f"{name}: expected {size} of them, got {len(column)}")
        if not (np.isfinite(self.costs).all() and (self.costs >= 0).all()):
            raise ValueError("costs: expected finite numbers >= 0, got others")
        if not np.isfinite(self.arrivals).all() or (np.diff(self.arrivals) < 0).any():
            raise ValueError("arrivals: expected finite times that never go back, got others")

    @classmethod
    def of(
        cls,
        values: Any,
        costs: Any,
        arrivals: Any = None,
        *,
        sizes: Any = None,
        sources: Any = None,
        name: str = "trace",
    ) -> Trace:
        """From columns; without arrivals all come at once, until `provisioned` says otherwise."""
        ids = values.ids if isinstance(values, Keys) else keys(values).ids
        taken = numbers(costs, "costs")
        came = np.zeros(len(ids)) if arrivals is None else numbers(arrivals, "arrivals")
        return cls(
            ids,
            came,
            taken,
            None if sizes is None else np.asarray(sizes, np.int64),
            None if sources is None else np.asarray(sources, np.int64),
            name,
        )

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        key: str | list[str],
        cost: str,
        arrival: str | None = None,
        size: str | None = None,
        origin: str | None = None,
        unit: float = 1.0,
        limit: int | None = None,
        name: str | None = None,
    ) -> Trace:
        """From a Parquet file, an Arrow stream, or an iterable of Arrow batches or tables.

        Parameters
        ----------
        source
            A path, anything with the Arrow PyCapsule interface, or an iterable of such.
        key, cost, arrival, size, origin
            Names of columns; `key` may be several. `origin` is the server a record comes from.
        unit
            Cost units in one unit of arrival: 1e6 where costs are microseconds and arrivals
            seconds.
        limit
            Take the first so many records.
        """
        names = [key] if isinstance(key, str) else list(key)
        wanted = dict.fromkeys(
            [*names, cost, *(column for column in (arrival, size, origin) if column is not None)]
        )
        table = _table(source, list(wanted), limit)
        columns = [table.column(each).combine_chunks() for each in names]

        def column(of: str | None) -> Any:
            return None if of is None else table.column(of).to_numpy()

        return cls.of(
            keys(*columns),
            np.asarray(column(cost), np.float64) / real(unit, "unit"),
            None if arrival is None else np.asarray(column(arrival), np.float64),
            sizes=column(size),
            sources=column(origin),
            name=name or (Path(source).stem if isinstance(source, str | Path) else "trace"),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _index(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        distinct, positions = np.unique(self.ids, return_inverse=True)
        return distinct, positions

    @property
    def distinct(self) -> npt.NDArray[np.uint64]:
        """The keys, each once, ascending."""
        return self._index[0]

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Where the key of each record is among `distinct`."""
        return self._index[1]

    def provisioned(self, percent: float, tasks: int, speeds: Any = None) -> Trace:
        """The same records at even distances, so that tasks could do `percent` % of what comes.

        100 is what they can just do; paper 004 calls it the percentage of over-provisioning.
        """
        capacity = float(np.sum(1 / numbers(speeds, "speeds"))) if speeds is not None else tasks
        gap = float(self.costs.mean()) / capacity * real(percent, "percent") / 100
        return replace(self, arrivals=np.arange(len(self), dtype=np.float64) * gap)

    def stretched(self, percent: float, tasks: int) -> Trace:
        """The same arrivals, bursts and all, stretched so that tasks could do `percent` %."""
        span = float(self.arrivals[-1] - self.arrivals[0])
        if not span > 0:
            return self.provisioned(percent, tasks)
        wanted = float(self.costs.sum()) / tasks * real(percent, "percent") / 100
        return replace(self, arrivals=(self.arrivals - self.arrivals[0]) * (wanted / span))

    def __getitem__(self, part: slice) -> Trace:
        """Some of the records."""
        return replace(
            self,
            ids=self.ids[part],
            arrivals=self.arrivals[part],
            costs=self.costs[part],
            sizes=None if self.sizes is None else self.sizes[part],
            sources=None if self.sources is None else self.sources[part],
        )


def _table(source: Any, columns: list[str], limit: int | None) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            "pyarrow: expected it for reading a trace, got none: pip install 'pyroute-core[cli]'"
        ) from error
    if isinstance(source, str | Path):
        file = pq.ParquetFile(source)
        missing = [name for name in columns if name not in file.schema_arrow.names]
        if missing:
            raise ValueError(
                f"column: expected one of {', '.join(file.schema_arrow.names)}, got {missing[0]}"
            )
        batches: Iterable[Any] = file.iter_batches(columns=columns)
    elif hasattr(source, "__arrow_c_stream__"):
        batches = [pa.table(source)]
    else:
        batches = (pa.table(batch) if _is_stream(batch) else batch for batch in source)
    tables = [
        pa.table(batch) if _is_stream(batch) else pa.Table.from_batches([batch])
        for batch in _first(batches, limit)
    ]
    if not tables:
        raise ValueError("source: expected records, got none")
    return pa.concat_tables(tables).select(columns).slice(0, limit)


def _is_stream(batch: Any) -> bool:
    return hasattr(batch, "__arrow_c_stream__")


def _first(batches: Iterable[Any], limit: int | None) -> Iterator[Any]:
    """No more batches than the limit needs."""
    seen = 0
    for batch in batches:
        yield batch
        seen += len(batch)
        if limit is not None and seen >= limit:
            return
