"""The same stream twice, by hash and routed, in turn: what differs is where the rows go.

Both queries run in one session over the same files, one file an interval, and take turns: never
two at a time, and each first as often as the other, so that neither has the machine for itself
or finds it warmed up by the other. In the first interval nothing is known yet and both route by
hash: it is shown, and counts for nothing in the summary.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pyroute import Ring
from pyroute.workloads import fluctuating_zipf
from spark_udf.run.session import elsewhere, failure, reason
from spark_udf.run.work import Totals
from spark_udf.stream.routed_stream import RoutedStream, read_state
from spark_udf.stream.task import TASK

ARMS = ("hash", "routed")


@dataclass(frozen=True)
class Drift:
    """A stream whose hot keys change now and then."""

    intervals: int
    keys: int
    rows: int
    tasks: int
    skew: float
    fluctuation: float
    drift: int
    """Intervals from one change to the next."""
    seed: int

    def write(self, folder: Path) -> pa.Table:
        """Write a file per interval; what the totals of all of them are."""
        folder.mkdir()
        users = pa.array([f"user{i}" for i in range(self.keys)])
        random = np.random.default_rng((self.seed, 1))
        rates = fluctuating_zipf(
            self.keys,
            homes=Ring(self.tasks).homes(users),
            tasks=self.tasks,
            skew=self.skew,
            fluctuation=self.fluctuation,
            records=self.rows,
            intervals=-(-self.intervals // self.drift),
            seed=self.seed,
        )
        written = []
        for phase, rate in enumerate(rates):
            first = phase * self.drift
            for interval in range(first, min(first + self.drift, self.intervals)):
                came = np.repeat(
                    np.arange(self.keys), random.multinomial(self.rows, rate / rate.sum())
                )
                random.shuffle(came)
                amounts = random.integers(1, 100, self.rows)
                rows = pa.table({"user": users.take(pa.array(came)), "amount": amounts})
                write_interval(rows, folder, interval)
                written.append(rows)
        return Totals(("user",), summed="amount").of(pa.concat_tables(written))


def write_interval(rows: pa.Table, folder: Path, interval: int) -> None:
    """A file that a stream takes as its next."""
    path = folder / f"{interval:06d}.parquet"
    pq.write_table(rows, path)
    in_order(path, interval)


def in_order(path: Path, interval: int) -> None:
    """Files are taken in the order of their times."""
    os.utime(path, (1e9 + interval, 1e9 + interval))


@dataclass(frozen=True)
class Interval:
    """What both made of one interval: the metrics of `RoutedStream`."""

    number: int
    hash: Mapping[str, Any]
    routed: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "interval": self.number,
            "rows": self.hash["rows"],
            **{arm: _figures(getattr(self, arm)) for arm in ARMS},
        }


def _figures(metrics: Mapping[str, Any]) -> dict[str, Any]:
    names = ("loads", "task_seconds", "seconds", "slowest_seconds", "plan_seconds", "table")
    more = ("keys_moved", "bytes_moved", "state_rows", "state_bytes", "applied", "reason")
    return {
        "max_over_mean": max_over_mean(metrics),
        "straggler": straggler(metrics),
        **{name: metrics[name] for name in (*names, *more)},
    }


def max_over_mean(metrics: Mapping[str, Any]) -> float:
    """Load of the busiest task over the mean."""
    return 1.0 + float(metrics["imbalance"])


def straggler(metrics: Mapping[str, Any]) -> float:
    """Time of the slowest task over that of the median one."""
    times = metrics["task_seconds"]
    return float(max(times) / max(float(np.median(times)), 1e-9))


class Comparison:
    """Two streams over the same files.

    Parameters
    ----------
    read
        Makes the streaming DataFrame, an interval for each trigger; called once for each stream.
    work
        What a task does with its rows.
    tasks
        How many.
    path
        Where state and metrics of both go, each in a directory of its name.
    **options
        Those of `RoutedStream`.
    """

    def __init__(
        self,
        read: Callable[[], DataFrame],
        work: Totals,
        tasks: int,
        path: Path,
        **options: Any,
    ) -> None:
        self.path, self.work, self._turns = path, work, _Turns()
        self._streams = [
            RoutedStream(
                read(),
                *work.keys,
                tasks=tasks,
                func=work,
                state_schema=work.schema,
                directory=path / arm,
                checkpoint=path / "tmp" / f"checkpoint-{arm}",
                name=arm,
                balanced=arm == "routed",
                observer=self._turns.observer(at),
                **options,
            )
            for at, arm in enumerate(ARMS)
        ]

    def intervals(self) -> Generator[Interval]:
        """Run both; each interval as soon as both are through with it."""
        queries: list[StreamingQuery] = []
        try:
            queries += [stream.start(availableNow=True) for stream in self._streams]
            shown = 0
            while True:
                active = any(query.isActive for query in queries)
                for number in range(shown, self._turns.finished):
                    yield Interval(number, *(self._metrics(arm, number) for arm in ARMS))
                    shown = number + 1
                _expect_fine(queries)
                if not active:
                    return
                time.sleep(0.1)
        finally:
            self._turns.stop()
            elsewhere(*(query.stop for query in queries))

    def _metrics(self, arm: str, number: int) -> dict[str, Any]:
        table = pq.read_table(self.path / arm / "metrics" / f"{number:012d}.parquet")
        row: dict[str, Any] = table.to_pylist()[0]
        return row

    def result(self, arm: str) -> pa.Table:
        """The state that a stream ended with, in the order of its keys."""
        table = read_state(self.path / arm).drop_columns([TASK])
        return in_key_order(table, self.work.keys)


def in_key_order(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows in an order that does not depend on tasks."""
    return table.sort_by([(name, "ascending") for name in keys]).combine_chunks()


def _expect_fine(queries: Sequence[StreamingQuery]) -> None:
    for query in queries:
        error = query.exception()
        if error is not None:
            raise failure(error)(f"stream {query.name}: {reason(error)}") from error


class _Turns:
    """Which stream may run: each interval both, in the next one the other first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turn, self._stopped = 0, False

    @property
    def finished(self) -> int:
        """Intervals that both are through with."""
        return self._turn // 2

    def observer(self, stream: int) -> Callable[[str, int], None]:
        """What a stream calls before its steps: it waits there for its turn."""

        def observe(step: str, interval: int) -> None:
            turn = 2 * interval + (stream + interval) % 2
            with self._changed:
                if step == "tasks":
                    self._changed.wait_for(lambda: self._stopped or self._turn >= turn)
                    if self._stopped:
                        raise RuntimeError("the other stream has stopped")
                elif step == "done":
                    self._turn = turn + 1
                    self._changed.notify_all()

        return observe

    def stop(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


@dataclass(frozen=True)
class Summary:
    """All intervals but the first, in figures: each a pair of hash and routed."""

    intervals: int
    rows: int
    max_over_mean: tuple[float, float]
    """Mean over the intervals."""
    worst: tuple[float, float]
    straggler: tuple[float, float]
    slowest_seconds: tuple[float, float]
    """Slowest tasks of the intervals, added up."""
    seconds: tuple[float, float]
    """Wall time of the processing, Spark's own share included."""
    plans: int
    plan_seconds: float
    keys_moved: int
    bytes_moved: int
    state_bytes: int
    """Bytes of all state at the end."""

    @classmethod
    def of(cls, intervals: Sequence[Interval]) -> Summary:
        """Add them up."""
        late = intervals[1:]

        def each(figure: Callable[[Mapping[str, Any]], float], of: Callable[..., Any]) -> Any:
            return tuple(
                float(of([figure(getattr(one, arm)) for one in late])) if late else 0.0
                for arm in ARMS
            )

        routed = [one.routed for one in intervals]
        return cls(
            intervals=len(intervals),
            rows=sum(int(one.hash["rows"]) for one in intervals),
            max_over_mean=each(max_over_mean, np.mean),
            worst=each(max_over_mean, max),
            straggler=each(straggler, np.mean),
            slowest_seconds=each(lambda metrics: float(metrics["slowest_seconds"]), sum),
            seconds=each(lambda metrics: float(metrics["seconds"]), sum),
            plans=sum(bool(one["applied"]) for one in routed),
            plan_seconds=sum(float(one["plan_seconds"]) for one in routed),
            keys_moved=sum(int(one["keys_moved"]) for one in routed),
            bytes_moved=sum(int(one["bytes_moved"]) for one in routed),
            state_bytes=int(routed[-1]["state_bytes"]) if routed else 0,
        )

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        pairs = ("max_over_mean", "worst", "straggler", "slowest_seconds", "seconds")
        singles = ("plans", "plan_seconds", "keys_moved", "bytes_moved", "state_bytes")
        return {
            "intervals": self.intervals,
            "rows": self.rows,
            **{name: dict(zip(ARMS, getattr(self, name), strict=True)) for name in pairs},
            "speedup_slowest": ratio(self.slowest_seconds),
            "speedup": ratio(self.seconds),
            **{name: getattr(self, name) for name in singles},
        }


def ratio(pair: tuple[float, float]) -> float:
    """How many times as much by hash as routed; 1 where there is nothing to compare."""
    return pair[0] / pair[1] if pair[1] > 0 else 1.0
