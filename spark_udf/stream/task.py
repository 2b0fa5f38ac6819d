"""What one task does in one batch: state, the user's function, statistics, files. No Spark here.

    open the state (pulling the keys that moved here) -> func(state, batches) -> outputs to a file
    -> state to a file -> a report

A task is a pure function of the manifest, the router and its rows, but for the names of the files
that it writes: those carry batch, attempt and a uuid, and count only if the driver commits the
report. So a task may run twice, fail half-way or be speculated; nothing is lost or done twice.
"""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pyroute
from spark_udf._convert import router_of
from spark_udf.stream.files import TaskFiles
from spark_udf.stream.manifest import FencedError, files_document, files_of
from spark_udf.stream.schema import StateSchema, row_bytes
from spark_udf.stream.state import KeyedState, open_state
from spark_udf.stream.store import LocalStore, Store

TASK, TICK, POSITION = "pyroute_task", "pyroute_tick", "pyroute_position"
COST, SIZE = "pyroute_cost", "pyroute_size"

Func = Callable[[KeyedState, Iterator[pa.RecordBatch]], Any]
"""The user's function: `(state, batches) -> outputs`."""

REPORT = pa.schema(
    [
        *(("task", pa.int32()), ("attempt", pa.int32()), ("rows", pa.int64())),
        *(("load", pa.float64()), ("seconds", pa.float64()), ("files", pa.string())),
        *(("output", pa.string()), ("output_rows", pa.int64())),
        *(("keys_in", pa.int64()), ("bytes_in", pa.int64()), ("keys_out", pa.int64())),
        ("stats", pa.binary()),
    ]
)
REPORT_DDL = (
    "task int, attempt int, rows bigint, load double, seconds double, files string,"
    " output string, output_rows bigint, keys_in bigint, bytes_in bigint, keys_out bigint,"
    " stats binary"
)


@dataclass(frozen=True)
class Work:
    """What every task of a batch is told, in plain types: it is shipped to the workers."""

    directory: str
    nonce: str
    batch: int
    tasks: Sequence[int]
    keys: Sequence[str]
    state: bytes
    """Arrow schema of the state's rows."""
    output: bytes | None
    """Arrow schema of the outputs."""
    files: str
    """JSON: files of every task in the last manifest."""
    router: bytes
    """The routing in force."""
    moves: bool = False
    """Whether it differs from the one that the files are laid out by."""
    moved: npt.NDArray[np.uint64] | None = None
    """Identities that may have moved; None: any."""
    sources: Mapping[int, Sequence[int]] = field(default_factory=dict)
    cost: str | None = None
    reported: int = 200
    """Keys that a task reports by name, beside the tabled ones; 0: no statistics at all."""
    memory_map: bool = True
    """Whether files are mapped, not read."""

    def to_plain(self) -> dict[str, Any]:
        """As a dict: a worker without pyroute can read it, and say what is missing."""
        return dict(self.__dict__)


def run(
    plain: Mapping[str, Any],
    func: Func,
    position: int,
    attempt: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """One task of a batch: its report, as one row."""
    work = Work(**plain)
    yield report_of(work, func, work.tasks[position], attempt, batches)


def report_of(
    work: Work, func: Func, task: int, attempt: int, batches: Iterable[pa.RecordBatch]
) -> pa.RecordBatch:
    """Do the work of one task and say what came of it."""
    started = time.perf_counter()
    store = LocalStore(work.directory, memory_map=work.memory_map)
    _expect_shared(store, work)
    schema = StateSchema.of(pa.ipc.read_schema(pa.py_buffer(work.state)), work.keys)
    files = {int(name): files_of(one) for name, one in json.loads(work.files).items()}
    router = router_of(work.router)
    state = _open(store, work, router, schema, files, task)
    rows = _Rows(work, task, batches)
    output, output_rows = _outputs(store, work, task, attempt, func(state, iter(rows)))
    rows.drain()
    _expect_own(state, router, task)
    after = state.flush(store, work.batch, attempt)
    stats = rows.stats(state, schema, router.table.ids) if work.reported else None
    values = [
        *(task, attempt, rows.count, rows.load, time.perf_counter() - started),
        *(json.dumps(files_document(after)), output, output_rows),
        *(state.moved.keys_in, state.moved.bytes_in, state.moved.keys_out, stats),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], kind.type) for value, kind in zip(values, REPORT, strict=True)],
        schema=REPORT,
    )


def _expect_shared(store: Store, work: Work) -> None:
    """Every worker has to see what the driver wrote: a directory of its own would lose state."""
    try:
        found = store.read(work.nonce).to_pybytes().decode()
    except FileNotFoundError:
        found = None
    others = [] if found is not None else store.list("nonces/")
    if others:
        raise FencedError(
            f"directory: expected {work.nonce}, which the driver wrote, got {others[-1]} of another"
            f" in {work.directory}: another driver took over, or this host sees another directory"
        )
    if found != work.nonce:
        raise RuntimeError(
            f"directory: expected one that all hosts share, got {work.directory}, in which this"
            " worker does not see the file that the driver wrote"
        )


def _open(
    store: Store,
    work: Work,
    router: pyroute.Router,
    schema: StateSchema,
    files: Mapping[int, TaskFiles],
    task: int,
) -> KeyedState:
    if not work.moves:
        return open_state(store, files, task, schema=schema)

    def owner(*columns: pa.Array) -> npt.NDArray[np.int32]:
        return router.route(pyroute.keys(*columns))

    sources = work.sources.get(task, ())
    return open_state(store, files, task, owner, sources, schema=schema, moved_ids=work.moved)


def _expect_own(state: KeyedState, router: pyroute.Router, task: int) -> None:
    """State that is written for a key of another task would never be found again."""
    for keys in state.written():
        owners = router.route(pyroute.keys(*keys.columns))
        if (owners != task).any():
            at = int(np.flatnonzero(owners != task)[0])
            raise ValueError(
                f"state: expected keys of task {task}, got {keys.slice(at, 1).to_pylist()[0]} of"
                f" task {owners[at]}: a function may write the state of the keys of its rows alone"
            )


class _Rows:
    """The rows of a task as its function pulls them, counted on the way."""

    def __init__(self, work: Work, task: int, batches: Iterable[pa.RecordBatch]) -> None:
        self.count, self.load, self.ticks = 0, 0.0, 0
        self._work, self._task = work, task
        self._stats = pyroute.KeyStats(window=1)
        self._pulled = self._pull(batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._pulled

    def drain(self) -> None:
        """Take what the function left, so that it counts, and see that every row was here."""
        for _ in self._pulled:
            pass
        if self.ticks != 1:
            raise RuntimeError(
                f"partition: expected that of task {self._task}, with one tick, got {self.ticks}"
            )

    def _pull(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            tasks = pc.min_max(batch.column(TASK)).as_py() if batch.num_rows else None
            if tasks is not None and tasks != {"min": self._task, "max": self._task}:
                raise RuntimeError(f"partition: expected rows of task {self._task}, got {tasks}")
            ticks = batch.column(TICK)
            n = pc.sum(ticks).as_py() or 0
            if n:
                self.ticks += n
                batch = batch.filter(pc.invert(ticks))
            if batch.num_rows:
                yield self._seen(batch)

    def _seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        costs = None
        if self._work.cost is not None:
            costs = _costs(batch.column(self._work.cost), self._work.cost)
        if self._work.reported:
            columns = [batch.column(name) for name in self._work.keys]
            self._stats.observe(pyroute.keys(*columns), costs)
        self.count += batch.num_rows
        self.load += batch.num_rows if costs is None else float(costs.sum())
        return batch.drop_columns([TASK, TICK])

    def stats(
        self, state: KeyedState, schema: StateSchema, tabled: npt.NDArray[np.uint64]
    ) -> bytes:
        """Cost and state size of the heaviest and of the tabled keys, as an Arrow stream."""
        snapshot = self._stats.close_interval()
        costs = snapshot.costs
        chosen = np.isin(snapshot.ids, tabled)
        if len(costs) > self._work.reported:
            chosen[np.argpartition(-costs, self._work.reported)[: self._work.reported]] = True
        else:
            chosen[:] = True
        at = np.flatnonzero(chosen)
        named = snapshot.values
        values = [named[i] for i in at.tolist()]
        columns = [values] if len(schema.keys) == 1 else list(zip(*values, strict=True))
        arrays = [
            pa.array(list(column), kind.type)
            for column, kind in zip(columns or [()] * len(schema.keys), schema.keys, strict=True)
        ]
        keys = pa.RecordBatch.from_arrays(arrays, schema=schema.keys)
        rows, found = state.read(keys)
        sizes = np.where(found.to_numpy(zero_copy_only=False), row_bytes(rows), 0)
        sizes += row_bytes(keys)
        table = pa.Table.from_arrays(
            [*keys.columns, pa.array(costs[at]), pa.array(sizes.astype(np.int64))],
            names=[*schema.keys.names, COST, SIZE],
        )
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()


def _costs(column: pa.Array, name: str) -> npt.NDArray[np.float64]:
    if column.null_count:
        raise ValueError(f"{name}: expected numbers, got null in {column.null_count} rows")
    costs = np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
    if len(costs) and not costs.min() >= 0:
        raise ValueError(f"{name}: expected at least 0, got {costs.min()}")
    return costs


def _outputs(
    store: Store, work: Work, task: int, attempt: int, made: Any
) -> tuple[str | None, int]:
    """Write what the function gave as one file; its name, and its rows."""
    if made is None:
        return None, 0
    if isinstance(made, pa.Table | pa.RecordBatch):
        made = [made]
    schema = None if work.output is None else pa.ipc.read_schema(pa.py_buffer(work.output))
    sink, rows, writer = io.BytesIO(), 0, None
    for one in made:
        table = _expected(one, schema)
        if writer is None:
            writer = pq.ParquetWriter(sink, table.schema)
        writer.write_table(table)
        rows += table.num_rows
    if writer is None or not rows:
        return None, 0
    writer.close()
    name = f"staged/{work.batch:012d}-{task:05d}-{attempt}-{uuid.uuid4().hex}.parquet"
    store.write(name, sink.getvalue())
    return name, rows


def _expected(one: Any, schema: pa.Schema | None) -> pa.Table:
    if schema is None:
        raise ValueError("output_schema: expected one, as func gives outputs, got none")
    if isinstance(one, pa.RecordBatch):
        one = pa.Table.from_batches([one])
    if not isinstance(one, pa.Table):
        raise TypeError(f"func: expected Arrow tables or batches, got {type(one).__name__}")
    if set(one.column_names) != set(schema.names):
        raise ValueError(f"func: expected columns {schema.names}, got {one.column_names}")
    return one.select(schema.names).cast(schema)
