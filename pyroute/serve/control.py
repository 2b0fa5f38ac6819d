"""The store of `pyroute control`: workers, forecasts, ratio, decisions, events.

A file of SQLite is opened for reading alone, anew for every look: the loop that writes it is never
kept waiting. Of PostgreSQL one connection is kept, whose transactions are read-only.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from pyroute.control.backtest import error_ratio
from pyroute.report import Event, Fact, Interval, Line, Report, Series, Share, build
from pyroute.serve.sources import Source, SourceError

SCHEMAS = ("1", "2")
"""Of stores that can be read; the first kept no forecasts."""
TURNS = 240
"""Turns of the loop that the page goes back."""
_SAMPLES = 20_000
_LOADS = ("records_per_s", "completed_per_s", "arrived_per_s", "cpu_percent")
_TIMES = ("service_ms", "queue_ms")

Row = dict[str, float]
Ask = Callable[[str], Generator[Any, None, None]]
"""Rows of a query, one after the other."""


@dataclass(frozen=True)
class Turn:
    """What was reported of each worker, and when, in one turn of the loop."""

    time: float
    workers: dict[str, Row]
    received: dict[str, float]


@dataclass(frozen=True)
class Said:
    """A forecast: when, of the period until when, seconds per record by worker, whether it acts."""

    time: float
    due: float
    seconds: dict[str, float]
    acts: bool


class ControlStore(Source):
    """What control measured, forecast and decided, in a file of SQLite."""

    kind = "control"

    def read(self) -> Report:
        """Workers over time, the ratio in force, decisions and why."""
        try:
            with self._asking() as ask:
                return _page(ask)
        except (ValueError, LookupError, TypeError) as error:
            raise SourceError(f"expected what control writes: {error}") from None

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Ask]:
        """What answers queries, all of one moment; its failures are `SourceError`."""
        if not Path(self.place).is_file():
            raise SourceError("no such file; waiting for control to make it")
        try:
            with contextlib.closing(_connect(self.place)) as connection:
                connection.execute("BEGIN")

                def ask(query: str) -> Generator[Any, None, None]:
                    yield from connection.execute(query)

                yield ask
        except sqlite3.Error as error:
            raise SourceError(_said(error)) from None


class PostgresStore(ControlStore):
    """The same in PostgreSQL, where several hosts report."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise SourceError("psycopg is missing: pip install 'pyroute-core[postgres]'") from None
        super().__init__(without_password(url))
        scheme, _, rest = url.partition("://")
        self._url = f"{scheme.partition('+')[0]}://{rest}"
        self._psycopg = psycopg
        self._connection: Any = None

    def _open(self) -> Any:
        if self._connection is None or self._connection.closed:
            made = self._psycopg.connect(
                self._url, connect_timeout=2, options="-c statement_timeout=5000"
            )
            made.read_only = True
            made.isolation_level = self._psycopg.IsolationLevel.REPEATABLE_READ
            self._connection = made
        return self._connection

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Ask]:
        try:
            connection = self._open()
            with connection.transaction():

                def ask(query: str) -> Generator[Any, None, None]:
                    # On the server: what the page does not go back to is not sent.
                    with connection.cursor(name="page") as cursor:
                        cursor.itersize = 1000
                        cursor.execute(query)
                        yield from cursor

                yield ask
        except self._psycopg.Error as error:
            self.close()
            text = str(error).strip().split("\n")[0] or type(error).__name__
            if isinstance(error, self._psycopg.errors.UndefinedTable):
                text += ": no store of control"
            raise SourceError(text) from None

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def without_password(url: str) -> str:
    """An URL as it may be shown: no password, and no options, which could hold one."""
    parts = urlsplit(url)
    user = parts.username or ""
    secret = ":***" if parts.password is not None else ""
    at = f"{user}{secret}@" if user or secret else ""
    port = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme.partition('+')[0]}://{at}{port}{parts.path}"


def _page(ask: Ask) -> Report:
    found = next(iter(list(ask("SELECT value FROM pyroute_about WHERE name = 'schema'"))), None)
    if found is None or found[0] not in SCHEMAS:
        raise SourceError(f"expected a store of schema {SCHEMAS[-1]}, got {found and found[0]}")
    turns = _turns(ask)
    said = _forecasts(ask) if found[0] != "1" else []
    decisions = list(
        ask(
            "SELECT time, edge, version, source, ratio, reasons FROM decisions"
            " ORDER BY id DESC LIMIT 300"
        )
    )
    notes = list(ask("SELECT time, kind, text FROM events ORDER BY id DESC LIMIT 300"))
    page = build(
        decisions[0][1] if decisions else "control",
        intervals=_intervals(turns),
        facts=[*_facts(decisions, turns), *_judged(turns, said)],
        events=_events(decisions, notes),
        unit=_unit(turns),
    )
    return replace(page, ratio=_ratio(decisions), forecasts=_measured(turns, said))


def _connect(place: str) -> sqlite3.Connection:
    path = Path(place)
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    try:
        connection = sqlite3.connect(address, uri=True, timeout=0.5)
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        # Its log cannot be opened where nothing may be written; without a log nothing is in it.
        if "unable to open" not in str(error) or path.with_name(f"{path.name}-wal").exists():
            raise
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True, timeout=0.5)
    return connection


def _said(error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text or "busy" in text:
        return f"{text}: another process holds it; trying again"
    if "malformed" in text or "not a database" in text:
        return f"{text}: the file is damaged, or no store of control"
    if "no such table" in text:
        return f"{text}: no store of control"
    return text


def _turns(ask: Ask) -> list[Turn]:
    """Features of every worker by turn of the loop, the oldest first.

    A host writes what it measured in one turn at once. The writes of several hosts, the latest
    first, are one turn until a host comes again.
    """
    layouts = {
        number: [str(name) for name in json.loads(names)]
        for number, names in ask("SELECT id, names FROM layouts")
    }
    rows = ask(
        "SELECT received, host, worker, layout, data FROM samples WHERE worker <> ''"
        f" ORDER BY id DESC LIMIT {_SAMPLES}"
    )
    turns: list[Turn] = []
    hosts: set[str] = set()  # of the turn that is being read
    with contextlib.closing(rows):
        for received, write in _writes(rows):
            there = {host for host, *_ in write}
            if not turns or hosts & there:
                if len(turns) == TURNS:
                    break
                turns.append(Turn(received, {}, {}))
                hosts = set()
            hosts |= there
            for _, worker, layout, data in write:
                _add(turns[-1], received, worker, layouts[layout], data)
    return turns[::-1]


def _writes(rows: Iterable[Any]) -> Iterator[tuple[float, list[tuple[Any, ...]]]]:
    """Rows of one moment together."""
    for received, group in itertools.groupby(rows, lambda row: float(row[0])):
        yield received, [tuple(row[1:]) for row in group]


def _add(turn: Turn, received: float, worker: str, names: list[str], data: bytes) -> None:
    values = np.frombuffer(data, "<f8")
    if len(values) != len(names):
        raise ValueError(f"a sample of {len(values)} numbers for {len(names)} names")
    features = turn.workers.setdefault(str(worker), {})
    turn.received.setdefault(str(worker), received)
    for name, value in zip(names, values.tolist(), strict=True):
        features.setdefault(name, value)


def _forecasts(ask: Ask) -> list[Said]:
    """What was forecast, the oldest first."""
    rows = ask(
        f"SELECT time, due, source, seconds FROM forecasts ORDER BY id DESC LIMIT {2 * TURNS}"
    )
    found = [
        Said(float(time), float(due), dict(json.loads(seconds)), source == "forecast")
        for time, due, source, seconds in rows
    ]
    return sorted(found, key=lambda row: row.time)


def _first(features: Row, names: tuple[str, ...]) -> float | None:
    for name in names:
        value = features.get(name)
        if value is not None and np.isfinite(value):
            return value
    return None


def _name(turns: list[Turn]) -> str:
    """The feature that is shown as load: the first that all workers of the last turn have."""
    for name in _LOADS:
        if turns and all(name in features for features in turns[-1].workers.values()):
            return name
    return _LOADS[0]


def _unit(turns: list[Turn]) -> str:
    return _name(turns).replace("_per_s", " per second").replace("cpu_percent", "% of a CPU")


def _at(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).astimezone().strftime("%H:%M:%S")


def _intervals(turns: list[Turn]) -> Iterator[Interval]:
    name = _name(turns)
    for turn in turns:
        known = {
            worker: max(0.0, features[name])
            for worker, features in sorted(turn.workers.items())
            if np.isfinite(features.get(name, np.nan))
        }
        if known:
            yield Interval(_at(turn.time), known)


def _measured(turns: list[Turn], said: list[Said]) -> tuple[Series, ...]:
    """Time per record of each worker, and what was forecast of it one turn before.

    The last point is the turn to come, where something was said of it.
    """
    coming = said[-1] if said and turns and said[-1].time >= turns[-1].time else None
    labels = [_at(turn.time) for turn in turns] + ([_at(coming.due)] if coming else [])
    made = []
    for worker in sorted({worker for turn in turns for worker in turn.workers})[:16]:
        measured = [_seconds(turn.workers.get(worker, {}), _TIMES) for turn in turns]
        forecast = _foretold(worker, turns, said)
        if coming is not None:
            measured.append(None)
            forecast.append(coming.seconds.get(worker))
        lines = [Line("measured", tuple(measured), "seconds")]
        if any(value is not None for value in forecast):
            lines.append(Line("forecast", tuple(forecast), "seconds"))
        if any(value is not None for value in measured):
            made.append(Series(worker, tuple(labels), tuple(lines)))
    return tuple(made)


def _foretold(worker: str, turns: list[Turn], said: list[Said]) -> list[float | None]:
    """What the last forecast before each turn said of a worker; an old one says nothing."""
    times = [row.time for row in said]
    out: list[float | None] = []
    for turn in turns:
        when = turn.received.get(worker, turn.time)
        at = bisect_left(times, when) - 1
        row = said[at] if at >= 0 else None
        fresh = row is not None and when <= row.due + (row.due - row.time)
        out.append(row.seconds.get(worker) if row is not None and fresh else None)
    return out


def _judged(turns: list[Turn], said: list[Said]) -> Iterator[Fact]:
    """How good the forecasts on the page were, against the last value."""
    if not said:
        return
    workers = sorted({worker for turn in turns for worker in turn.workers})
    measured = _table([[_seconds(t.workers.get(w, {}), _TIMES) for t in turns] for w in workers])
    forecast = _table([_foretold(worker, turns, said) for worker in workers])
    ratio, steps = error_ratio(forecast[1:], measured[1:], measured[:-1])
    acts = "acts" if said[-1].acts else "does not act"
    detail = "nothing to compare yet"
    if steps:
        detail = f"{ratio:.2f} of the error of the last value over {steps} turns"
    yield Fact("forecast", acts, detail)


def _table(rows: list[list[float | None]]) -> Any:
    return np.array(
        [[math.nan if value is None else value for value in row] for row in rows], np.float64
    ).T.reshape(-1, max(1, len(rows)))


def _seconds(features: Row, names: tuple[str, ...]) -> float | None:
    value = _first(features, names)
    return None if value is None else value / 1000


def _ratio(decisions: list[Any]) -> tuple[Share, ...]:
    if not decisions:
        return ()
    ratio = json.loads(decisions[0][4])
    whole = sum(ratio.values())
    return tuple(
        Share(str(name), part / whole, "" if part else "bypassed")
        for name, part in ratio.items()
        if whole > 0
    )


def _facts(decisions: list[Any], turns: list[Turn]) -> Iterator[Fact]:
    if turns:
        last = turns[-1]
        yield Fact("workers", f"{len(last.workers):,}", f"last report {_at(last.time)}")
    if decisions:
        time, edge, version, source, *_ = decisions[0]
        yield Fact("ratio", f"version {version}", f"{edge}, {_at(time)}")
        yield Fact("decides", str(source), "a forecast acts while it beats the last value")


def _events(decisions: list[Any], notes: list[Any]) -> list[Event]:
    rows = [
        (float(time), "ratio", f"{edge}: version {version}, {'; '.join(json.loads(reasons))}")
        for time, edge, version, _, _, reasons in decisions
    ]
    rows += [(float(time), str(kind), str(text)) for time, kind, text in notes]
    rows.sort(key=lambda row: -row[0])
    return [Event(_at(time), kind, text) for time, kind, text in rows[:300]]
