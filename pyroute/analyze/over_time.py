"""Intervals of a stream: what hashing gave in each, and what plans made from the past would have.

A plan is made at the end of an interval from what it saw, and routes the next ones: no plan knows
the records it is judged on.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyroute.analyze.findings import max_by_mean, snapshot_of
from pyroute.analyze.scan import Columns, Pass
from pyroute.analyze.source import Batch, InputError, Source, as_numpy, nothing
from pyroute.gate import Gate
from pyroute.rebalance import rebalance
from pyroute.ring import Ring
from pyroute.router import Router

__all__ = ["Interval", "Spans", "intervals"]

MOST = 100_000
"""Intervals that are kept; more are an error of the caller's."""

_UNITS = {"us": 1, "ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")


@dataclass(frozen=True)
class Spans:
    """How a stream is cut: by time, in microseconds, or by records."""

    micros: int | None = None
    records: int | None = None

    @classmethod
    def of(cls, text: str, timed: bool) -> Spans:
        """From "10s", "5m" or, without a column of times, a number of records."""
        if text.isascii() and text.isdecimal() and 0 < len(text) < 19 and int(text) > 0:
            if timed:
                raise InputError(f"--interval: expected a unit beside --time (10s, 5m), got {text}")
            return cls(records=int(text))
        found = _LENGTH.fullmatch(text)
        micros = round(float(found[1]) * _UNITS[found[2]]) if found and len(text) < 40 else 0
        if not 0 < micros < 1 << 62:
            raise InputError(f"--interval: expected 10s, 5m, 1h or a number of records, got {text}")
        if not timed:
            raise InputError(
                f"--interval {text}: expected --time COLUMN with it; a bare number counts records"
            )
        return cls(micros=micros)


@dataclass(frozen=True)
class Interval:
    """One interval: loads of tasks by hash, and by the plans that were in force."""

    label: str
    records: int
    by_hash: tuple[float, ...]
    routed: tuple[float, ...]
    keys_moved: int
    """Into this interval."""
    bytes_moved: int
    entries: int
    hottest: Any
    hottest_share: float
    reason: str

    @property
    def hash_ratio(self) -> float:
        """Greatest load by the mean, by hash."""
        return max_by_mean(self.by_hash)

    @property
    def routed_ratio(self) -> float:
        """The same by the plans."""
        return max_by_mean(self.routed)

    def document(self, name: Callable[[Any], Any]) -> dict[str, Any]:
        """As JSON; `name` says how a key is written."""
        return {
            "interval": self.label,
            "records": self.records,
            "max_by_mean_hash": self.hash_ratio,
            "max_by_mean_planned": self.routed_ratio,
            "keys_moved": self.keys_moved,
            "bytes_moved": self.bytes_moved,
            "table": self.entries,
            "hottest": name(self.hottest),
            "hottest_share": self.hottest_share,
            "decision": self.reason,
        }


class _Router:
    """The routing in force, and how it came about."""

    def __init__(self, ring: Ring, max_imbalance: float, max_table: int) -> None:
        self._ring, self._router = ring, Router(ring)
        self._options = {"max_imbalance": max_imbalance, "max_table": max_table}
        self._gate = Gate(cooldown=0)
        self._moved, self._number = (0, 0), 0

    def close(self, one: Pass, label: str) -> Interval:
        """What an interval came to; plans for the next."""
        snapshot = snapshot_of(one.profile, self._ring, self._number)
        moved, entries = self._moved, len(self._router.table)
        loads = _loads(snapshot, self._router)
        plan = rebalance(snapshot, self._router, **self._options)  # type: ignore[arg-type]
        by_hash = loads if not entries else _loads(snapshot, Router(self._ring))
        decision = self._gate.decide(plan, float(self._number))
        self._moved = (0, 0)
        if decision.apply:
            self._router = self._router.apply(plan)
            self._moved = (len(plan.migrations), int(plan.migration_cost))
        self._number += 1
        hot = one.profile.hot(1)
        total = one.profile.total
        load = float((hot.costs if len(hot.costs) else hot.records)[0]) if hot.values else 0.0
        return Interval(
            label,
            one.profile.records,
            tuple(by_hash.tolist()),
            tuple(loads.tolist()),
            *moved,
            entries,
            hot.values[0] if hot.values else None,
            load / total if total else 0.0,
            decision.reason,
        )


def _loads(snapshot: Any, router: Router) -> npt.NDArray[np.float64]:
    tasks = np.asarray(router.tasks)
    loads = np.array([snapshot.background.get(task, 0.0) for task in router.tasks])
    if len(snapshot):
        at = np.searchsorted(tasks, router.route(snapshot.values))
        loads += np.bincount(at, snapshot.costs, minlength=len(tasks))
    return loads


def intervals(
    source: Source,
    columns: Columns,
    ring: Ring,
    spans: Spans,
    *,
    capacity: int,
    max_imbalance: float,
    max_table: int,
    whole: Pass | None = None,
    advance: Callable[[int, int], None] | None = None,
    late: Callable[[int], None] | None = None,
    taken: Callable[[str], None] | None = None,
) -> Iterator[Interval]:
    """The intervals of a source, in the order of its records.

    Parameters
    ----------
    source, columns
        What to read.
    ring, spans
        Where keys are at home, and how the stream is cut.
    capacity
        Keys that are monitored.
    max_imbalance, max_table
        Of the plans.
    whole
        Observes all records, too.
    advance
        Told rows and bytes that were read.
    late
        Told how many records came after their interval was closed; they count in the next.
    taken
        Told the unit that times which are numbers were taken to be in.
    """
    tell = advance or nothing
    made = Pass(columns, capacity=capacity, bits=_bits(ring))
    router = _Router(ring, max_imbalance, max_table)
    cutter = _Cutter(columns.time, spans)
    number: int | None = None
    count = 0
    for batch in source.batches(lambda size: tell(0, size)):
        if whole is not None:
            whole.add(batch)
        for index, part in cutter.cut(batch):
            if number is not None and index != number:
                yield router.close(made, cutter.label(number))
                made.profile.restart()
                count += 1
                if count > MOST:
                    raise InputError(f"--interval: more than {MOST:,} intervals; take longer ones")
            number = index
            made.add(part)
        tell(batch.data.num_rows, 0)
    if number is not None:
        yield router.close(made, cutter.label(number))
    if late is not None and cutter.late:
        late(cutter.late)
    if taken is not None and cutter.unit is not None:
        taken(cutter.unit)


def _bits(ring: Ring) -> int:
    return len(ring.owners).bit_length() - 1


class _Cutter:
    """Rows of one interval after another."""

    def __init__(self, time: str | None, spans: Spans) -> None:
        self._time, self._spans = time, spans
        self._seen = 0
        self._now: int | None = None
        self.late = 0
        self.unit: str | None = None
        """Of times that are numbers; that of the first rows holds for all."""

    def cut(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """Parts of a batch with the number of their interval."""
        rows = batch.data.num_rows
        if not rows:
            return
        if self._spans.records is not None:
            index = (self._seen + np.arange(rows)) // self._spans.records
        else:
            assert self._time is not None
            assert self._spans.micros is not None
            found, self.unit = micros(batch, self._time, self.unit)
            index = found // self._spans.micros
            least = int(index[0]) if self._now is None else self._now
            reached = np.maximum.accumulate(np.maximum(index, least))
            self.late += int((index < reached).sum())
            index = reached
        self._seen += rows
        self._now = int(index[-1])
        starts = [0, *(np.flatnonzero(np.diff(index)) + 1).tolist(), rows]
        for begin, end in itertools.pairwise(starts):
            part = batch.data.slice(begin, end - begin)
            yield int(index[begin]), Batch(part, batch.file, batch.start + begin)

    def label(self, number: int) -> str:
        """What an interval is called: when it began, or its number."""
        if self._spans.micros is None:
            return str(number)
        began = datetime.timedelta(microseconds=number * self._spans.micros)
        try:
            at = datetime.datetime(1970, 1, 1) + began  # noqa: DTZ001 - as the column has it
        except OverflowError:
            return str(number)
        return at.isoformat(sep=" ", timespec="seconds" if not at.microsecond else "milliseconds")


def micros(
    batch: Batch, name: str, unit: str | None = None
) -> tuple[npt.NDArray[np.int64], str | None]:
    """A column of times in microseconds, and the unit of those that are numbers.

    Numbers are seconds, ms, us or ns: as `unit` says, or else by their size. Texts with a zone
    become times in UTC.
    """
    column = batch.data.column(name)
    kind = column.type
    where = f"{batch.file.name}: column {name!r}"
    if column.null_count:
        raise InputError(f"{where}: expected a time in every row, got a null")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _parsed(column, where)
        kind = column.type
    if pa.types.is_timestamp(kind):
        return as_numpy(column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())), unit
    if pa.types.is_date(kind):
        return as_numpy(column.cast(pa.timestamp("us")).cast(pa.int64())), unit
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = as_numpy(column.cast(pa.float64(), safe=False))
        if not np.isfinite(numbers).all():
            raise InputError(f"{where}: expected finite times, got one that is not")
        most = float(np.abs(numbers).max()) if len(numbers) else 0.0
        unit = unit or next((u for limit, u in _SIZES if most < limit), "ns")
        scale = _SCALES[unit]
        if not most * scale < 1 << 63:
            raise InputError(f"{where}: expected times in {unit}, as the first are, got {most:g}")
        return np.round(numbers * scale).astype(np.int64), unit
    raise InputError(f"{where}: expected times, got {kind}")


def _parsed(column: pa.Array, where: str) -> pa.Array:
    """Times from text, with a zone or without one."""
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        try:
            return column.cast(pa.timestamp("us", "UTC"))
        except pa.ArrowInvalid as zoned:
            told = error if "expected a zone offset" in str(zoned) else zoned
            raise InputError(f"{where}: expected times, got {column.type}: {told}") from error


_SIZES = ((1e11, "s"), (1e14, "ms"), (1e17, "us"))
_SCALES = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
