"""Structured Streaming with keyed state that moves between tasks, exactly once.

One batch, in the order in which a driver may be killed at any point:

    route and exchange the rows -> tasks pull keys that moved here, run func, write files -> reports
    -> plan, gate -> router and statistics to files -> **manifest created** -> outputs published
    -> metrics -> sink -> clean-up

Everything before the manifest leaves only files that nothing names; everything after it is done
again, without effect where it was done, when Spark replays the batch. The batch that the manifest
holds is skipped on replay. A manifest is created if absent: of two drivers one is refused.

Guarantees, each a test of that name in tests/spark/test_stream.py:
  exactly_once    state and published outputs equal those of one task without faults, after kills
                  at every step and at random
  moved           a key's state is with its owner before the first row that needs it
  fenced          a driver that was thought dead cannot commit, and stops
  same_job        a directory of another job, another query or a gap in the batches stops at once
  other_rows      a number that was committed never stands for other rows
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from pyroute import Gate, Ring, Router
from pyroute.metrics import observe
from pyroute.ring import Tasks
from spark_udf import _spark, udfs
from spark_udf.columns import KeyColumns, checked, quoted
from spark_udf.route import Position, exchange, position
from spark_udf.stats import to_arrow
from spark_udf.stream.controller import Controller, Report, Step, moves
from spark_udf.stream.manifest import (
    Job,
    Log,
    Manifest,
    RouterFile,
    files_document,
)
from spark_udf.stream.outputs import folder_of, publish
from spark_udf.stream.schema import StateSchema
from spark_udf.stream.state import open_state
from spark_udf.stream.store import LocalStore, local_path
from spark_udf.stream.task import POSITION, REPORT_DDL, TASK, TICK, Func, Work

_LOG = logging.getLogger("pyroute.spark.stream")

Observer = Callable[[str, int], None]
"""Called with the name of each step and the number of the batch, before the step."""


class RoutedStream:
    """A keyed stream whose hot keys move between tasks, with their state, while it runs.

    Parameters
    ----------
    df
        The streaming DataFrame.
    *cols
        Names of the key's columns, which are columns of `df` itself: not fields of a struct.
    tasks
        How many tasks, their ids, or `{id: weight}`. On a restart with others the state moves to
        them with the first batch.
    func
        `(state, batches) -> outputs`: called once per task and batch with the state of the task's
        keys (`KeyedState`) and the rows as Arrow record batches; gives Arrow tables or batches,
        or None. It runs in Spark's Python workers. It must not keep anything between calls.
    state_schema
        Columns of a key's state, beside the key: DDL, a Spark schema or an Arrow schema.
    output_schema
        Columns of the outputs; None where there are none.
    directory
        Where state, manifests, outputs and metrics are: a path or a `file://` URL on a file system
        that all hosts share.
    checkpoint
        Spark's checkpoint of the query.
    name
        Name of the job; a directory of another job is refused.
    cost
        Column with the cost of a row; None: every row costs 1.
    balanced
        False plans nothing and takes no statistics: the router stays as it is, which from the
        start is plain hashing.
    gate
        Whether a plan is worth it; None: every plan.
    smoothing
        Weight of the past in the forecast of a key's cost.
    reported
        Keys that each task reports by name; None: twice its share of the table, at least 200.
    sink
        `(outputs, batch_id) -> None`, called after the commit with the batch's committed outputs;
        again after a failure, so it has to be idempotent by `batch_id`. With a new checkpoint
        (`adopt`) it gets the last batch of the old one again, and then batches from 0 on: a sink
        that remembers the old numbers has to be told.
    keep
        Manifests that are kept, with their files; at least 2.
    adopt
        Whether to go on with the state where the checkpoint is another one than before (it was
        lost). Which rows the source gives again is then up to its own options.
    memory_map
        Whether files are mapped rather than read into memory. Say False over NFS, where another
        host may remove a file that is still mapped here: that would end the process.
    observer
        Called with the name of each step and the batch, before the step.
    **options
        Those of `pyroute.rebalance`; here `max_imbalance` is 0.02 unless given.
    """

    def __init__(
        self,
        df: DataFrame,
        *cols: str,
        tasks: Tasks,
        func: Func,
        state_schema: str | T.StructType | pa.Schema,
        directory: str | Path,
        checkpoint: str | Path,
        output_schema: str | T.StructType | pa.Schema | None = None,
        name: str = "stream",
        cost: str | None = None,
        balanced: bool = True,
        gate: Gate | None = Gate(),  # noqa: B008 - copied, never changed
        smoothing: float = 0.3,
        reported: int | None = None,
        sink: Callable[[DataFrame, int], None] | None = None,
        keep: int = 2,
        adopt: bool = False,
        memory_map: bool = True,
        observer: Observer | None = None,
        **options: Any,
    ) -> None:
        _spark.need("RoutedStream", 4, 0)
        _spark.expect_frame(df, "df")
        for one in cols:
            if not isinstance(one, str):
                raise TypeError(f"cols: expected names, got {type(one).__name__}")
        cols = tuple(_top_level(df, one) for one in cols)
        fields = checked(df, list(map(quoted, cols))).fields
        _check_columns(df, cost)
        keys = _arrow(T.StructType(list(fields)), "cols")
        values = _arrow(state_schema, "state_schema")
        self.schema = StateSchema(keys, values)
        self.output_schema = None if output_schema is None else _arrow(output_schema, "output")
        self.df, self.cols, self.func, self.cost = df, cols, func, cost
        self.ring = Ring(tasks)
        self.store = LocalStore(directory, memory_map=memory_map)
        self.directory, self.checkpoint = str(self.store.path), str(checkpoint)
        self.name, self.balanced, self.sink, self.keep, self.adopt = (
            *(name, balanced, sink, keep),
            adopt,
        )
        if keep < 2:
            raise ValueError(f"keep: expected at least 2, got {keep}")
        self._observer = observer
        self._options = {"max_imbalance": 0.02, **options}
        self._gate, self._smoothing = gate, smoothing
        table = self._options.get("max_table", 3000) or 3000
        self.reported = reported or max(200, 2 * table // len(self.ring.tasks))
        self.log = Log(self.store, swept=("state/", "routers/", "stats/", "staged/"))
        self._router: tuple[str, Router] | None = None
        self._query_id: str | None = None
        self._nonce: str | None = None
        self._published = False
        self._placing: _Placing | None = None
        self._control = 0  # bytes of statistics and routers written for the batch
        self._swept = 0.0
        self._last: Manifest | None = None
        self._resume()

    # -- start

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start the query; options are those of Spark's `trigger`, e.g. `availableNow=True`."""
        self._resume()
        writer = (
            self.df.writeStream.foreachBatch(self.process)
            .option("checkpointLocation", self.checkpoint)
            .queryName(self.name)
        )
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.start()

    def _resume(self) -> None:
        """Read the last manifest and check that it is ours; nothing is written before."""
        last = self.log.last()
        self._last, self._query_id, self._published = last, None, False
        self._nonce = None
        self._placing = None  # of the query's own session
        gate = None if self._gate is None else Gate.from_json(self._gate.to_json())
        self.controller = Controller(gate, self._smoothing, **self._options)
        if last is None:
            return
        if (last.job.name, last.job.schema) != (self.name, self.schema):
            raise ValueError(
                f"directory: expected the state of {self.name!r} with"
                f" {_columns(self.schema)}, got that of {last.job.name!r} with"
                f" {_columns(last.job.schema)}"
            )
        if last.stats is not None:
            self.controller.restore(self.store.read(last.stats).to_pybytes())

    # -- one batch

    def process(self, df: DataFrame, batch_id: int) -> None:
        """One batch, for `foreachBatch`."""
        spark = df.sparkSession
        query_id = self._query(spark)
        done = self._is_done(batch_id, query_id)
        last = self._last
        if last is not None and not self._published:
            # Spark asks for the next batch once the sink had the last; another query knows nothing.
            again = done or last.query_id != query_id
            self._publish(spark, last.batch_id if again else None)
        if done:
            return
        before, router = self._routers()
        self._step("tasks", batch_id)
        started = time.perf_counter()
        reports = self._run(df, batch_id, before, router)
        ran = time.perf_counter() - started
        self._step("plan", batch_id)
        step = self._plan(reports, router)
        self._step("write", batch_id)
        manifest = self._manifest(reports, router, step, batch_id, query_id, ran)
        self._step("commit", batch_id)
        self.log.commit(manifest)
        self._last, self._published = manifest, False
        observe(self.name, *(manifest.metrics[name] for name in ("rows", "tasks", "loads")))
        self._step("committed", batch_id)
        self._publish(spark, batch_id)

    def _step(self, name: str, batch_id: int) -> None:
        if self._observer is not None:
            self._observer(name, batch_id)

    def _query(self, spark: SparkSession) -> str:
        """The query's id, which Spark keeps in the checkpoint."""
        if self._query_id is None:
            lines = spark.read.text(f"{self.checkpoint.rstrip('/')}/metadata").collect()
            self._query_id = str(json.loads(lines[0][0])["id"])
        return self._query_id

    def _is_done(self, batch_id: int, query_id: str) -> bool:
        """Whether the last manifest holds this batch; an error where it cannot follow it."""
        last = self._last
        if last is None:
            if batch_id and not self.adopt:
                raise ValueError(
                    f"directory: expected the state of batch {batch_id - 1}, got an empty one in"
                    f" {self.directory}: the checkpoint is ahead of the state"
                )
            return False
        if last.query_id != query_id:
            if not self.adopt:
                raise ValueError(
                    f"checkpoint: expected that of query {last.query_id}, whose state is in"
                    f" {self.directory}, got {query_id}: adopt=True goes on with the state, and"
                    " the source decides which rows come again"
                )
            _LOG.warning("adopting the state of query %s as %s", last.query_id, query_id)
            return False
        if batch_id == last.batch_id:
            self._expect_same_rows(last)
            return True
        if batch_id != last.batch_id + 1:
            raise ValueError(
                f"batch: expected {last.batch_id + 1}, which follows the state, got {batch_id}:"
                " checkpoint and state are not of one age"
            )
        return False

    def _expect_same_rows(self, last: Manifest) -> None:
        """A batch that comes again is passed over: it has to be of the rows that were committed."""
        offsets = self._offsets(last.batch_id)
        if None not in (last.offsets, offsets) and last.offsets != offsets:
            raise ValueError(
                f"checkpoint: expected batch {last.batch_id} of the rows that were committed, got"
                f" other offsets: Spark lost offsets/{last.batch_id} and planned the batch anew,"
                f" and what it took in more would be lost; restore {self.checkpoint}, or begin"
                " another one with adopt=True, and the source decides which rows come again"
            )

    def _offsets(self, batch_id: int) -> str | None:
        """A digest of the batch's offsets; None where they are not on this host's file system.

        Spark writes them once, before the batch runs, and a replay reads them.
        """
        try:
            path = local_path(self.checkpoint) / "offsets" / str(batch_id)
            return hashlib.sha256(path.read_bytes()).hexdigest()
        except (ValueError, OSError):
            return None

    def _routers(self) -> tuple[Router | None, Router]:
        """The routing that the files are laid out by, and the one in force in this batch."""
        last = self._last
        if last is None:
            return None, Router(self.ring)
        before, router = self._read_router(last.router), self._read_router(last.next_router)
        if isinstance(router.home, Ring) and router.home.weights == self.ring.weights:
            return before, router
        plan = self.controller.resize(router, self.ring.weights)
        _LOG.info("other tasks than before:\n%s", plan.summary())
        return before, router.apply(plan)

    def _read_router(self, file: RouterFile) -> Router:
        if self._router is None or self._router[0] != file.name:
            router = Router.from_bytes(self.store.read(file.name).to_pybytes())
            if (router.version, router.fingerprint) != (file.version, file.fingerprint):
                raise ValueError(
                    f"{file.name}: expected router version {file.version}, fingerprint"
                    f" {file.fingerprint:016x}, got {router!r}"
                )
            self._router = (file.name, router)
        return self._router[1]

    def _run(
        self, df: DataFrame, batch_id: int, before: Router | None, router: Router
    ) -> list[Report]:
        """Route the rows, run every task, collect their reports: one action."""
        work = dataclasses.replace(
            self._work(batch_id, router), **self._moves(before, router)
        ).to_plain()
        body = _shipped(work, self.func)
        reports = self._placed(df, router).mapInArrow(body, REPORT_DDL)
        return Report.of(to_arrow(reports), router.tasks)

    def _placed(self, df: DataFrame, router: Router) -> DataFrame:
        """Rows in one partition per task, with a tick for each: a task without rows runs too."""
        if self._placing is None or self._placing.fingerprint != router.fingerprint:
            self._placing = _Placing.of(df, self.cols, router, self._placing)
        where, ticks = self._placing.where, self._placing.ticks
        rows = df.withColumns({TASK: where.task, TICK: F.lit(False)}).union(ticks)
        n = len(router.tasks)
        if router.tasks == tuple(range(n)):
            return exchange(rows, n, F.col(TASK))
        moved = rows.withColumn(POSITION, F.array_position(self._placing.tasks, F.col(TASK)) - 1)
        return exchange(moved, n, F.col(POSITION).cast("int")).drop(POSITION)

    def _work(self, batch_id: int, router: Router) -> Work:
        tasks = {} if self._last is None else self._last.tasks
        return Work(
            directory=self.directory,
            nonce=self._shared(),
            batch=batch_id,
            tasks=router.tasks,
            keys=self.cols,
            state=self.schema.rows.serialize().to_pybytes(),
            output=None
            if self.output_schema is None
            else self.output_schema.serialize().to_pybytes(),
            files=json.dumps({str(task): files_document(one) for task, one in tasks.items()}),
            cost=self.cost,
            reported=self.reported if self.balanced else 0,
            router=router.to_bytes(values=False),
            memory_map=self.store.memory_map,
        )

    def _shared(self) -> str:
        """A file that every worker has to see."""
        if self._nonce is None:
            old = self.store.list("nonces/")
            self._nonce = f"nonces/{uuid.uuid4().hex}"
            self.store.write(self._nonce, self._nonce.encode())
            self.store.delete(*old)
        return self._nonce

    @staticmethod
    def _moves(before: Router | None, router: Router) -> dict[str, Any]:
        if before is None or before.fingerprint == router.fingerprint:
            return {}
        moved, sources = moves(before, router)
        return {"moves": True, "moved": moved, "sources": sources}

    def _plan(self, reports: Sequence[Report], router: Router) -> Step:
        if not self.balanced:
            return Step(router, None, False, "not balanced")
        sequence = 0 if self._last is None else self._last.sequence + 1
        self.controller.observe(reports)
        return self.controller.decide(router, sequence)

    # -- commit

    def _manifest(
        self,
        reports: Sequence[Report],
        router: Router,
        step: Step,
        batch_id: int,
        query_id: str,
        ran: float,
    ) -> Manifest:
        last = self._last
        stats, self._control = None, 0
        if self.balanced:
            stats = f"stats/{batch_id:012d}-{uuid.uuid4().hex}"
            self._control += self.store.write(stats, self.controller.to_bytes())
        written = self._write_router(router, None if last is None else last.next_router)
        next_router = self._write_router(step.router, written)
        numbers = metrics(reports, router, step, ran)
        return Manifest(
            job=Job(self.name, len(router.tasks), self.schema),
            query_id=query_id,
            sequence=0 if last is None else last.sequence + 1,
            batch_id=batch_id,
            previous=None if last is None else last.reference,
            tasks={report.task: report.files for report in reports},
            router=written,
            next_router=next_router,
            stats=stats,
            outputs=tuple(report.output for report in reports if report.output is not None),
            metrics={**numbers, "control_bytes": self._control},
            offsets=self._offsets(batch_id),
        )

    def _write_router(self, router: Router, known: RouterFile | None) -> RouterFile:
        here = (router.version, router.fingerprint)
        if known is not None and (known.version, known.fingerprint) == here:
            return known
        name = f"routers/{router.version:012d}-{uuid.uuid4().hex}"
        self._control += self.store.write(name, router.to_bytes())
        self._router = (name, router)
        return RouterFile(name, router.version, router.fingerprint)

    # -- after the commit; all of it may be done twice

    def _publish(self, spark: SparkSession, batch_id: int | None) -> None:
        """What follows the commit of the last manifest; the sink only where it is this batch's."""
        manifest = self._last
        assert manifest is not None
        publish(self.store, manifest.outputs, manifest.sequence)
        self._step("published", manifest.batch_id)
        self._write_metrics(manifest)
        if self.sink is not None and batch_id is not None:
            self.sink(self._outputs(spark, manifest.sequence), batch_id)
        self._step("sunk", manifest.batch_id)
        self.log.keep(self.keep)
        if time.time() - self._swept > 3600:
            self._swept = time.time()
            self.log.sweep(24 * 3600, self._swept)
        self._published = True
        self._step("done", manifest.batch_id)

    def _outputs(self, spark: SparkSession, sequence: int) -> DataFrame:
        if self.output_schema is None:
            raise ValueError("sink: expected an output_schema, got none")
        schema = _spark_schema(self.output_schema)
        path = self.store.path / folder_of(sequence)
        if not path.exists():
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(f"file://{path}")

    def _write_metrics(self, manifest: Manifest) -> None:
        name = f"metrics/{manifest.sequence:012d}.parquet"
        row = {
            "sequence": manifest.sequence,
            "batch_id": manifest.batch_id,
            **manifest.metrics,
        }
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist([row], schema=METRICS), sink)
        # Under its name at once: half a file there would spoil the table for every reader.
        self.store.replace(name, sink.getvalue())


def read_state(directory: str | Path) -> pa.Table:
    """The committed state of all keys in a directory, with each key's task in `pyroute_task`."""
    store = LocalStore(directory)
    last = Log(store).last()
    if last is None:
        raise FileNotFoundError(f"directory: expected a committed state, got none in {directory}")
    schema = last.job.schema
    tables = [pa.table({TASK: pa.array([], pa.int32())} | _empty(schema.rows))]
    for task in last.tasks:
        for batch in open_state(store, last.tasks, task, schema=schema).scan():
            tasks = pa.array(np.full(batch.num_rows, task, np.int32))
            names = [TASK, *batch.schema.names]
            tables.append(pa.Table.from_arrays([tasks, *batch.columns], names=names))
    return pa.concat_tables(tables)


def _empty(schema: pa.Schema) -> dict[str, Any]:
    return {field.name: pa.array([], field.type) for field in schema}


@dataclasses.dataclass(frozen=True)
class _Placing:
    """What places the rows of every batch under one router: made once, as it is many Java calls."""

    router: Router
    columns: KeyColumns
    where: Position
    ticks: DataFrame
    tasks: Column

    @property
    def fingerprint(self) -> int:
        return self.router.fingerprint

    @classmethod
    def of(
        cls, df: DataFrame, cols: Sequence[str], router: Router, last: _Placing | None
    ) -> _Placing:
        columns = checked(df, list(map(quoted, cols))) if last is None else last.columns
        where = position(df.sparkSession, router, columns.identity, columns.raw)
        if last is not None and last.router.tasks == router.tasks:
            return dataclasses.replace(last, router=router, where=where)
        local = df.sparkSession.createDataFrame(
            pa.table({TASK: pa.array(router.tasks, pa.int32())})
        )
        ticks = local.select(
            *(F.lit(None).cast(f.dataType).alias(f.name) for f in df.schema.fields),
            *(F.col(TASK), F.lit(True).alias(TICK)),
        )
        tasks = F.array(*(F.lit(task) for task in router.tasks))
        return cls(router, columns, where, ticks, tasks)


METRICS = pa.schema(
    [
        *((name, pa.int64()) for name in ("sequence", "batch_id", "router_version", "table")),
        *((name, pa.int64()) for name in ("rows", "output_rows", "state_rows", "state_bytes")),
        *((name, pa.int64()) for name in ("written_bytes", "control_bytes")),
        *((name, pa.int64()) for name in ("keys_moved", "bytes_moved")),
        *((name, pa.float64()) for name in ("imbalance", "expected_imbalance", "plan_seconds")),
        *((name, pa.float64()) for name in ("seconds", "slowest_seconds")),
        *(("applied", pa.bool_()), ("reason", pa.string())),
        *(("tasks", pa.list_(pa.int32())), ("loads", pa.list_(pa.float64()))),
        ("task_seconds", pa.list_(pa.float64())),
    ]
)
"""Columns of the metrics: one row per batch, in `metrics/*.parquet` of the directory."""


def metrics(
    reports: Sequence[Report], router: Router, step: Step, seconds: float
) -> dict[str, Any]:
    """Numbers of one batch."""
    loads = [report.load for report in reports]
    weights = [1.0] * len(loads)
    if isinstance(router.home, Ring):
        weights = [float(router.home.weights[report.task]) for report in reports]
    total, capacity = sum(loads), sum(weights)
    levels = [load / weight for load, weight in zip(loads, weights, strict=True) if weight]
    return {
        "router_version": router.version,
        "table": len(router.table),
        "rows": sum(report.rows for report in reports),
        "output_rows": sum(report.output_rows for report in reports),
        "state_rows": sum(report.files.rows for report in reports),
        "state_bytes": sum(report.files.bytes for report in reports),
        "written_bytes": sum(report.files.written_bytes for report in reports),
        "keys_moved": sum(report.keys_in for report in reports),
        "bytes_moved": sum(report.bytes_in for report in reports),
        "imbalance": max(levels) * capacity / total - 1 if total else 0.0,
        "expected_imbalance": None if step.plan is None else float(step.plan.imbalance),
        "plan_seconds": 0.0 if step.plan is None else float(step.plan.seconds),
        "seconds": seconds,
        "slowest_seconds": max(report.seconds for report in reports),
        "applied": step.applied,
        "reason": step.reason,
        "tasks": [report.task for report in reports],
        "loads": loads,
        "task_seconds": [report.seconds for report in reports],
    }


def _shipped(work: dict[str, Any], func: Func) -> Callable[..., Any]:
    """The body of a task, pickled by value, which says what a worker lacks."""
    remedy = udfs.REMEDY

    def body(batches: Any) -> Any:
        from pyspark import TaskContext

        try:
            from spark_udf.stream import task
        except ImportError as error:
            raise ImportError(f"{remedy}: {error}") from None
        context = TaskContext.get()
        assert context is not None
        yield from task.run(work, func, context.partitionId(), context.attemptNumber(), batches)

    return body


def _top_level(df: DataFrame, name: str) -> str:
    """The name as the DataFrame has it: that is how the tasks find the column in their rows."""
    if name in df.columns:
        return name
    plain = name
    if len(name) > 1 and name[0] == name[-1] == "`":
        plain = name[1:-1].replace("``", "`")
    alike = [one for one in df.columns if one == plain]
    alike = alike or [one for one in df.columns if one.lower() == plain.lower()]
    if len(alike) != 1:
        hint = ": select a field under a name of its own first" if "." in name else ""
        raise ValueError(f"cols: expected one of {', '.join(df.columns)}, got {name}{hint}")
    return alike[0]


def _check_columns(df: DataFrame, cost: str | None) -> None:
    if cost is not None:
        if cost not in df.columns:
            raise ValueError(f"cost: expected one of {', '.join(df.columns)}, got {cost}")
        kind = df.schema[cost].dataType
        if not isinstance(kind, T.NumericType):
            raise TypeError(f"cost: expected numbers, got {kind.simpleString()}")
    for name in df.columns:
        if name.startswith("pyroute_"):
            raise ValueError(f"df: expected no column of pyroute's own, got {name}")
        if "." in name or "`" in name:  # mapInArrow finds no column of such a name
            raise ValueError(f"df: expected names without dots and backticks, got {name}")
    if not df.isStreaming:
        raise ValueError("df: expected a streaming DataFrame, got one that is not")


def _arrow(schema: str | T.StructType | pa.Schema, name: str) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        schema = T.StructType.fromDDL(schema)
    if not isinstance(schema, T.StructType):
        raise TypeError(f"{name}: expected DDL or a schema, got {type(schema).__name__}")
    return to_arrow_schema(schema, timezone="UTC")


def _spark_schema(schema: pa.Schema) -> T.StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _columns(schema: StateSchema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema.rows)
