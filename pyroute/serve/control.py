"""The store of `pyroute control`, where it is a file of SQLite: workers, ratio, decisions, events.

Opened for reading alone, anew for every look: the loop that writes it is never kept waiting.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from pyroute.report import Event, Fact, Interval, Line, Report, Series, Share, build
from pyroute.serve.sources import Source, SourceError

SCHEMA = "1"
TURNS = 240
"""Turns of the loop that the page goes back."""
_SAMPLES = 20_000
_LOADS = ("records_per_s", "completed_per_s", "arrived_per_s", "cpu_percent")
_TIMES = ("service_ms", "queue_ms")

Row = dict[str, float]


class ControlStore(Source):
    """What control measured and decided."""

    kind = "control"

    def read(self) -> Report:
        """Workers over time, the ratio in force, decisions and why."""
        if not Path(self.place).is_file():
            raise SourceError("no such file; waiting for control to make it")
        try:
            with contextlib.closing(_connect(self.place)) as connection:
                return self._page(connection)
        except sqlite3.Error as error:
            raise SourceError(_said(error)) from None
        except (ValueError, LookupError, TypeError) as error:
            raise SourceError(f"expected what control writes: {error}") from None

    def _page(self, connection: sqlite3.Connection) -> Report:
        schema = connection.execute("SELECT value FROM pyroute_about WHERE name = 'schema'")
        found = schema.fetchone()
        if found is None or found[0] != SCHEMA:
            raise SourceError(f"expected a store of schema {SCHEMA}, got {found and found[0]}")
        turns = _turns(connection)
        decisions = connection.execute(
            "SELECT time, edge, version, source, ratio, reasons FROM decisions"
            " ORDER BY id DESC LIMIT 300"
        ).fetchall()
        notes = connection.execute(
            "SELECT time, kind, text FROM events ORDER BY id DESC LIMIT 300"
        ).fetchall()
        measured = _measured(turns)
        page = build(
            decisions[0][1] if decisions else "control",
            intervals=_intervals(turns),
            facts=_facts(decisions, turns),
            events=_events(decisions, notes),
            unit=_unit(turns),
        )
        return replace(page, ratio=_ratio(decisions), forecasts=measured)


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


def _turns(connection: sqlite3.Connection) -> list[tuple[float, dict[str, Row]]]:
    """Features of every worker by turn of the loop, the oldest first."""
    layouts = {
        number: [str(name) for name in json.loads(names)]
        for number, names in connection.execute("SELECT id, names FROM layouts")
    }
    rows = connection.execute(
        "SELECT received, worker, layout, data FROM samples WHERE worker <> ''"
        " ORDER BY id DESC LIMIT ?",
        (_SAMPLES,),
    )
    turns: dict[float, dict[str, Row]] = {}
    for received, worker, layout, data in rows:
        if received not in turns and len(turns) == TURNS:
            break
        names = layouts[layout]
        values = np.frombuffer(data, "<f8")
        if len(values) != len(names):
            raise ValueError(f"a sample of {len(values)} numbers for {len(names)} names")
        features = turns.setdefault(float(received), {}).setdefault(str(worker), {})
        for name, value in zip(names, values.tolist(), strict=True):
            features.setdefault(name, value)
    return sorted(turns.items())


def _first(features: Row, names: tuple[str, ...]) -> float | None:
    for name in names:
        value = features.get(name)
        if value is not None and np.isfinite(value):
            return value
    return None


def _name(turns: list[tuple[float, dict[str, Row]]]) -> str:
    """The feature that is shown as load: the first that most workers of the last turn have."""
    for name in _LOADS:
        if turns and all(name in features for features in turns[-1][1].values()):
            return name
    return _LOADS[0]


def _unit(turns: list[tuple[float, dict[str, Row]]]) -> str:
    return _name(turns).replace("_per_s", " per second").replace("cpu_percent", "% of a CPU")


def _at(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).astimezone().strftime("%H:%M:%S")


def _intervals(turns: list[tuple[float, dict[str, Row]]]) -> Iterator[Interval]:
    name = _name(turns)
    for time, workers in turns:
        known = {
            worker: max(0.0, features[name])
            for worker, features in sorted(workers.items())
            if np.isfinite(features.get(name, np.nan))
        }
        if known:
            yield Interval(_at(time), known)


def _measured(turns: list[tuple[float, dict[str, Row]]]) -> tuple[Series, ...]:
    """Time per record of each worker, and what was forecast of it where that was kept."""
    labels = tuple(_at(time) for time, _ in turns)
    names = sorted({worker for _, workers in turns for worker in workers})
    made = []
    for worker in names[:16]:
        rows = [workers.get(worker, {}) for _, workers in turns]
        lines = [Line("measured", tuple(_seconds(row, _TIMES) for row in rows), "seconds")]
        said = tuple(_seconds(row, ("forecast_ms",)) for row in rows)
        if any(value is not None for value in said):
            lines.append(Line("forecast", said, "seconds"))
        if any(value is not None for value in lines[0].values):
            made.append(Series(worker, labels, tuple(lines)))
    return tuple(made)


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


def _facts(decisions: list[Any], turns: list[tuple[float, dict[str, Row]]]) -> Iterator[Fact]:
    if turns:
        yield Fact("workers", f"{len(turns[-1][1]):,}", f"last report {_at(turns[-1][0])}")
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
