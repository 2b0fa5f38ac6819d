"""What the UDFs do to one Arrow batch: convert, call, convert. No Spark here.

Every function takes Arrow arrays and gives one of the same length, whatever the batches are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

import pyroute


@lru_cache(maxsize=16)
def router_of(data: bytes) -> pyroute.Router:
    """The router in these bytes; kept, because a task reads it once per batch."""
    return pyroute.Router.from_bytes(data)


@lru_cache(maxsize=16)
def cost_sketch_of(data: bytes) -> pyroute.CostSketch:
    """The sketch in these bytes."""
    return pyroute.CostSketch.from_bytes(data)


def route(data: bytes, *columns: pa.Array) -> pa.Array:
    """Task of each row; where the router has splits the last column is the salt."""
    router = router_of(data)
    if not router.splits:
        return pa.array(router.route(pyroute.keys(*columns)), pa.int32())
    *values, salt = columns
    if not values:
        raise ValueError("columns: expected the key and then the salt, got one column")
    return pa.array(router.route(pyroute.keys(*values), salt=_filled(salt)), pa.int32())


def route_ids(data: bytes, ids: Any, salt: Any = None) -> Any:
    """Task of each row, from its identity."""
    values = pyroute.Keys.from_ids(np.asarray(ids, np.int64))
    return router_of(data).route(values, salt=None if salt is None else np.asarray(salt, np.int64))


def key(*columns: pa.Array) -> pa.Array:
    """Identity of each row."""
    return pa.array(np.array(pyroute.keys(*columns).ids).view(np.int64), pa.int64())


def mean_time(data: bytes, *columns: pa.Array) -> pa.Array:
    """Mean time of each row's key."""
    return pa.array(cost_sketch_of(data).mean_time(pyroute.keys(*columns)), pa.float64())


def mean_time_ids(data: bytes, ids: Any) -> Any:
    """Mean time of each row's key, from its identity."""
    return cost_sketch_of(data).mean_time(pyroute.Keys.from_ids(np.asarray(ids, np.int64)))


@lru_cache(maxsize=16)
def scheduler_of(data: bytes) -> pyroute.posg.Scheduler:
    """The scheduler in these bytes; never changed, `offline` makes the one that counts."""
    return pyroute.posg.Scheduler.from_bytes(data)


def schedule(data: bytes, partition: int, batches: Iterable[Any]) -> Iterator[pa.Array]:
    """Task of each row of a partition; a batch is an array, or several of them."""
    scheduler = scheduler_of(data).offline(partition)
    for batch in batches:
        columns = batch if isinstance(batch, tuple) else (batch,)
        yield pa.array(scheduler.schedule(pyroute.keys(*columns), 0.0), pa.int32())


def schedule_ids(data: bytes, partition: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Task of each row of a partition, from its identity."""
    scheduler = scheduler_of(data).offline(partition)
    for ids in batches:
        yield scheduler.schedule(pyroute.Keys.from_ids(np.asarray(ids, np.int64)), 0.0)


def cost_sketch(
    epsilon: float, delta: float, seed: int, batches: Iterable[pa.RecordBatch]
) -> bytes:
    """What the keys of a partition cost; the last column is the time."""
    costs = pyroute.CostSketch(epsilon, delta, seed)
    for batch in batches:
        *columns, times = batch.columns
        costs.observe(pyroute.keys(*columns), times.to_numpy(zero_copy_only=False))
    return costs.to_bytes()


def sketch(capacity: int, weighted: bool, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Heaviest keys of a partition; where weighted, the last column is the weight."""
    heavy = pyroute.SpaceSaving(capacity)
    for batch in batches:
        columns = batch.columns
        weights = _filled(columns[-1]) if weighted else None
        heavy.observe(pyroute.keys(*(columns[:-1] if weighted else columns)), weights)
    return heavy.to_bytes()


def pairs(capacity: int, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Heaviest pairs of a partition of two columns."""
    heavy = pyroute.PairSpaceSaving(capacity)
    for batch in batches:
        heavy.observe(pyroute.keys(batch.column(0)), pyroute.keys(batch.column(1)))
    return heavy.to_bytes()


def merged(kind: str, empty: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of several partitions as one, in the order they come; the first one's number."""
    whole, first = getattr(pyroute, kind).from_bytes(empty), None
    for batch in batches:
        for partition, data in zip(*batch.columns, strict=True):
            first = partition.as_py() if first is None else first
            whole.merge(type(whole).from_bytes(data.as_py()))
    if first is not None:
        yield from one_row(first, whole.to_bytes())


def one_row(partition: int, data: bytes) -> Iterator[pa.RecordBatch]:
    """A partition's result as one row."""
    yield pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([partition], pa.int32()),
            "data": pa.array([data], pa.binary()),
        }
    )


def _filled(column: pa.Array) -> Any:
    if column.null_count:
        raise ValueError(f"salt or weight: expected integers, got {column.null_count} nulls")
    return column.to_numpy(zero_copy_only=False)
