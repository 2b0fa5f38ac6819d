"""Store: what monitors and hooks measured, what was forecast of it, and what control decided.

SQLite in WAL mode is the embedded default; any number of hosts report to one PostgreSQL. Both get
the same statements.

>>> store = Store.open(":memory:")
>>> store.write([Sample(100.0, "h1", "w1", {"cpu_percent": 40.0})], received=100.2)
1
>>> store.read(0.0, 200.0).column_names
['time', 'sent', 'received', 'host', 'worker', 'cpu_percent']
>>> store.close()
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DecisionRow",
    "ForecastRow",
    "NoStoreError",
    "Reports",
    "Sample",
    "Store",
    "StoreError",
]

SCHEMA = 2
"""Of the tables; a store of schema 1, which kept no forecasts, is brought up to it when opened."""
_OLDER = ("1",)
_JUMP = 600.0
"""Seconds between two writes: after more of them, or less than none, the clock was set."""
_SERVER_TIME = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS double precision)"
_CLOCK_SAMPLES = 16
"""Latest reports of a host that its clock is compared by."""


_DAMAGED = re.compile("malformed|not a database")
_GONE = re.compile("no such table|no such column")
_UNDEFINED = ("42P01", "42703")  # what PostgreSQL says of the same
_REFUSED = re.compile(
    "unable to open database file|invalid connection option|invalid port|invalid integer"
    "|FATAL:.*(does not exist|authentication failed|pg_hba|not permitted to log in)"
)
_PRIVILEGE = "42501"


class StoreError(OSError):
    """The store cannot be read or written now: locked, damaged, full or away.

    Attributes
    ----------
    passes
        Whether it may be over without anybody doing anything to the store: not what is damaged or
        of another version.
    """

    passes = True


class NoStoreError(StoreError):
    """There is no such store, or not for this user: trying again does not help."""

    passes = False


@dataclass(frozen=True)
class Sample:
    """Features of one worker, or of its machine (worker ''), at one time of the sender's clock."""

    time: float
    host: str
    worker: str
    features: Mapping[str, float]


@dataclass(frozen=True)
class DecisionRow:
    """A ratio that was published, or could not be, and why."""

    time: float
    edge: str
    version: int
    ratio: Mapping[str, float]
    source: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class ForecastRow:
    """What a model said at one time of the period after it.

    Attributes
    ----------
    time, due
        When it was said, and the end of the period that it speaks of.
    edge
        Whose workers.
    seconds
        Per record, by worker; a worker of which it said nothing is not there.
    source
        What decided then: "forecast", or "persistence" while the model did not beat it.
    """

    time: float
    due: float
    edge: str
    seconds: Mapping[str, float]
    source: str


def _alchemy() -> Any:
    try:
        import sqlalchemy
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'pyroute-core[control]'") from None
    return sqlalchemy


def _url(place: str | Path) -> str:
    """A SQLAlchemy URL of a path or an URL."""
    text = str(place)
    if not text:
        raise ValueError("url: expected a path, sqlite:///PATH or postgresql://..., got nothing")
    for prefix in ("postgresql://", "postgres://"):
        if text.startswith(prefix):
            return "postgresql+psycopg://" + text.removeprefix(prefix)
    if "://" in text:
        kind = text.partition(":")[0].partition("+")[0]
        if kind not in ("sqlite", "postgresql"):
            raise ValueError(f"url: expected a path, sqlite or postgresql, got {kind}")
        return text
    return "sqlite://" if text == ":memory:" else f"sqlite:///{text}"


class Store:
    """Samples, forecasts, decisions and events; several threads may use one.

    Parameters
    ----------
    url
        A path, ``sqlite:///PATH``, ``:memory:``, or ``postgresql://USER@HOST/NAME``.
    retention
        Seconds after which all of them are forgotten; None keeps them for ever. For an hour after
        the clock was set, or after ten minutes without a sample, nothing is.
    busy
        Seconds to wait for another writer; PostgreSQL gets twice as long for a statement that
        writes, and for a host that does not answer.
    make
        Whether to make the tables where there are none. Without, a place that is no store is
        refused, and is not changed.
    wait
        Whether to raise where it cannot be opened now. Without, `fault` says why, and whatever uses
        the store tries again; a place where no store can be (`NoStoreError`) is refused all the
        same.

    Attributes
    ----------
    fault
        Why it is not open, None while it is. A store that was damaged or emptied while it was open
        is opened anew, too.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        retention: float | None = 7 * 86400.0,
        busy: float = 5.0,
        make: bool = True,
        wait: bool = True,
    ) -> None:
        if retention is not None and not retention > 0:
            raise ValueError(f"retention: expected more than 0 seconds, got {retention}")
        sa = _alchemy()
        self.url, self.retention = _url(url), retention
        self._is_sqlite = self.url.startswith("sqlite")
        options: dict[str, Any] = {}
        if self._is_sqlite:
            options["connect_args"] = {"timeout": busy, "check_same_thread": False}
            if self.url == "sqlite://":
                options["poolclass"] = sa.pool.StaticPool
        try:
            if not self._is_sqlite:
                options |= {"pool_pre_ping": True, "connect_args": _patience(sa, self.url, busy)}
            self._engine = sa.create_engine(self.url, **options)
        except ImportError as error:
            raise ImportError(f"{error}: pip install 'pyroute-core[postgres]'") from None
        except (sa.exc.ArgumentError, ValueError):  # the error might show a password
            raise ValueError(
                "url: expected a path, sqlite:///PATH or postgresql://USER@HOST:PORT/NAME,"
                " got one that cannot be read"
            ) from None
        if self._is_sqlite and make:
            sa.event.listen(self._engine, "connect", _tune)
        self._sa = sa
        self._tables()
        self._lock = threading.RLock()
        self._layouts: dict[tuple[str, ...], int] = {}
        self._pruned = self._written = -math.inf
        self._make = make
        self.fault: StoreError | None = StoreError(f"{self.name}: not opened yet")
        try:
            self._be_open()
        except BaseException as error:
            if wait or not isinstance(error, StoreError) or isinstance(error, NoStoreError):
                self._engine.dispose()
                raise

    @classmethod
    def open(cls, url: str | Path, **options: Any) -> Self:
        """The store at a place; it is made where there is none."""
        return cls(url, **options)

    def _tables(self) -> None:
        sa = self._sa
        self._meta = sa.MetaData()
        number, text, real = sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Text, sa.Double
        self._about = sa.Table(
            "pyroute_about",
            self._meta,
            sa.Column("name", text, primary_key=True),
            sa.Column("value", text, nullable=False),
        )
        self._layout = sa.Table(
            "layouts",
            self._meta,
            sa.Column("id", number, primary_key=True, autoincrement=True),
            sa.Column("names", text, nullable=False, unique=True),
        )
        self._samples = sa.Table(
            "samples",
            self._meta,
            sa.Column("id", number, primary_key=True, autoincrement=True),
            sa.Column("host", text, nullable=False),
            sa.Column("worker", text, nullable=False),
            sa.Column("sent", real, nullable=False),
            sa.Column("received", real, nullable=False),
            sa.Column("layout", number, nullable=False),
            sa.Column("data", sa.LargeBinary, nullable=False),
            sa.Index("samples_received", "received"),
        )
        self._decisions = sa.Table(
            "decisions",
            self._meta,
            sa.Column("id", number, primary_key=True, autoincrement=True),
            sa.Column("time", real, nullable=False),
            sa.Column("edge", text, nullable=False),
            sa.Column("version", number, nullable=False),
            sa.Column("source", text, nullable=False),
            sa.Column("ratio", text, nullable=False),
            sa.Column("reasons", text, nullable=False),
            sa.Index("decisions_time", "time"),
        )
        self._forecasts = sa.Table(
            "forecasts",
            self._meta,
            sa.Column("id", number, primary_key=True, autoincrement=True),
            sa.Column("time", real, nullable=False),
            sa.Column("due", real, nullable=False),
            sa.Column("edge", text, nullable=False),
            sa.Column("source", text, nullable=False),
            sa.Column("seconds", text, nullable=False),
            sa.Index("forecasts_time", "time"),
        )
        self._events = sa.Table(
            "events",
            self._meta,
            sa.Column("id", number, primary_key=True, autoincrement=True),
            sa.Column("time", real, nullable=False),
            sa.Column("kind", text, nullable=False),
            sa.Column("text", text, nullable=False),
            sa.Index("events_time", "time"),
        )

    def _be_open(self) -> None:
        with self._lock:
            if self.fault is None:
                return
            try:
                self._prepare(self._make)
            except StoreError as error:
                self.fault = error
                raise
            self._layouts, self._pruned, self._written = {}, -math.inf, -math.inf
            self.fault = None

    def _broken(self, error: StoreError) -> None:
        """It is not what was opened any more: whoever uses it next opens what is there then."""
        self.fault = error
        if self._is_sqlite:  # another file may be in its place
            self._engine.dispose()

    def _prepare(self, make: bool) -> None:
        """Make the tables that are missing; refuse those of a schema that is not known."""
        with _Transaction(self) as connection:
            if not self._is_sqlite:  # two that start at once make them one after the other
                connection.execute(self._sa.text("SELECT pg_advisory_xact_lock(7097861)"))
            about, found = self._about.c, None
            if self._sa.inspect(connection).has_table(self._about.name):
                query = self._sa.select(about.value).where(about.name == "schema")
                found = connection.execute(query).scalar()
            if found not in (None, str(SCHEMA), *_OLDER):
                raise self._other(f"expected schema {SCHEMA}, got {found}")
            if not make:
                if found is None:
                    raise self._other("expected a store of control, got none")
                return
            self._meta.create_all(connection)
            if found is None:
                connection.execute(self._about.insert().values(name="schema", value=str(SCHEMA)))
            elif found in _OLDER:  # what it lacked are tables, and they are made by now
                connection.execute(
                    self._about.update().where(about.name == "schema").values(value=str(SCHEMA))
                )

    def _other(self, text: str) -> StoreError:
        error = StoreError(f"{self.name}: {text}")
        error.passes = False
        return error

    @property
    def name(self) -> str:
        """The place, without a password."""
        return str(self._engine.url.render_as_string(hide_password=True))

    def _begin(self) -> _Transaction:
        self._be_open()
        return _Transaction(self)

    def _take_time(self, connection: Any) -> None:
        """What reads or forgets a week may take longer than what a loop waits for."""
        if not self._is_sqlite:
            connection.execute(self._sa.text("SET LOCAL statement_timeout = 0"))

    # writing -----------------------------------------------------------------------------------

    def write(self, samples: Iterable[Sample], *, received: float | None = None) -> int:
        """Keep samples, all or none; how many there were.

        Parameters
        ----------
        samples
            With the time of the sender's clock.
        received
            When they came, by the clock of whoever calls this; None: now, by the server's clock
            where there is one, so that hosts whose clocks differ agree.
        """
        rows = []
        with self._lock:
            if not math.isfinite(self._written):  # what was written before is not forgotten at once
                before = self.newest()
                self._written = -math.inf if before is None else before
            with self._begin() as connection:
                layouts = dict(self._layouts)  # those of this write are known once it is committed
                now = self._now(connection) if received is None else received
                for sample in samples:
                    names = tuple(sorted(sample.features))
                    values = np.array([sample.features[name] for name in names], "<f8")
                    if names not in layouts:
                        layouts[names] = self._layout_id(connection, names)
                    rows.append(
                        {
                            "host": sample.host,
                            "worker": sample.worker,
                            "sent": float(sample.time),
                            "received": float(now),
                            "layout": layouts[names],
                            "data": values.tobytes(),
                        }
                    )
                if rows:
                    connection.execute(self._samples.insert(), rows)
            self._layouts = layouts
        if self.retention is not None and self._is_time_to_prune(now, self.retention):
            self.prune(now)
        return len(rows)

    @property
    def has_clock(self) -> bool:
        """Whether there is a server whose clock is the same for all hosts that write."""
        return not self._is_sqlite

    def _now(self, connection: Any) -> float:
        if self._is_sqlite:
            return time.time()
        return float(connection.execute(self._sa.text(_SERVER_TIME)).scalar_one())

    def _is_time_to_prune(self, now: float, retention: float) -> bool:
        """Once a minute; not for an hour after the clock was set, because it may be set back."""
        passed, self._written = now - self._written, now
        if math.isfinite(passed) and not 0 <= passed <= _JUMP:
            self._pruned = now + min(3600.0, retention)
        return now - self._pruned > min(60.0, retention)

    def _layout_id(self, connection: Any, names: tuple[str, ...]) -> int:
        text, table = json.dumps(names), self._layout
        wanted = self._sa.select(table.c.id).where(table.c.names == text)
        found = connection.execute(wanted).scalar()
        if found is None:
            kind = "sqlite" if self._is_sqlite else "postgresql"
            insert = import_module(f"sqlalchemy.dialects.{kind}").insert
            connection.execute(insert(table).values(names=text).on_conflict_do_nothing())
            found = connection.execute(wanted).scalar_one()
        return int(found)

    def prune(self, now: float) -> int:
        """Forget what is older than the retention; how many samples that were."""
        if self.retention is None:
            return 0
        self._pruned = now
        before = now - self.retention
        with self._lock, self._begin() as connection:
            self._take_time(connection)
            gone = connection.execute(
                self._samples.delete().where(self._samples.c.received < before)
            ).rowcount
            connection.execute(self._events.delete().where(self._events.c.time < before))
            connection.execute(self._decisions.delete().where(self._decisions.c.time < before))
            connection.execute(self._forecasts.delete().where(self._forecasts.c.time < before))
        return int(gone)

    def decide(self, row: DecisionRow) -> None:
        """Keep a decision."""
        with self._lock, self._begin() as connection:
            connection.execute(
                self._decisions.insert().values(
                    time=row.time,
                    edge=row.edge,
                    version=row.version,
                    source=row.source,
                    ratio=json.dumps(dict(row.ratio)),
                    reasons=json.dumps(list(row.reasons)),
                )
            )

    def foretell(self, row: ForecastRow) -> None:
        """Keep a forecast; what is no number in it is left out."""
        said = {name: value for name, value in row.seconds.items() if math.isfinite(value)}
        with self._lock, self._begin() as connection:
            connection.execute(
                self._forecasts.insert().values(
                    time=row.time,
                    due=row.due,
                    edge=row.edge,
                    source=row.source,
                    seconds=json.dumps(said),
                )
            )

    def note(self, when: float, kind: str, text: str) -> None:
        """Keep an event: what went wrong, what was repaired."""
        with self._lock, self._begin() as connection:
            connection.execute(self._events.insert().values(time=when, kind=kind, text=text))

    # reading -----------------------------------------------------------------------------------

    def decisions(self, since: float = -math.inf, edge: str | None = None) -> list[DecisionRow]:
        """Decisions, the oldest first."""
        table = self._decisions
        query = self._sa.select(table).order_by(table.c.id)
        if math.isfinite(since):
            query = query.where(table.c.time >= since)
        if edge is not None:
            query = query.where(table.c.edge == edge)
        with self._lock, self._begin() as connection:
            return [
                DecisionRow(
                    row.time,
                    row.edge,
                    int(row.version),
                    json.loads(row.ratio),
                    row.source,
                    tuple(json.loads(row.reasons)),
                )
                for row in connection.execute(query)
            ]

    def forecasts(self, since: float = -math.inf, edge: str | None = None) -> list[ForecastRow]:
        """Forecasts, the oldest first."""
        table = self._forecasts
        query = self._sa.select(table).order_by(table.c.id)
        if math.isfinite(since):
            query = query.where(table.c.time >= since)
        if edge is not None:
            query = query.where(table.c.edge == edge)
        with self._lock, self._begin() as connection:
            return [
                ForecastRow(row.time, row.due, row.edge, json.loads(row.seconds), row.source)
                for row in connection.execute(query)
            ]

    def events(self, since: float = -math.inf) -> list[tuple[float, str, str]]:
        """(time, kind, text), the oldest first."""
        table = self._events
        query = self._sa.select(table.c.time, table.c.kind, table.c.text).order_by(table.c.id)
        if math.isfinite(since):
            query = query.where(table.c.time >= since)
        with self._lock, self._begin() as connection:
            return [(row.time, row.kind, row.text) for row in connection.execute(query)]

    def read(
        self,
        start: float,
        end: float,
        *,
        host: str | None = None,
        worker: str | None = None,
        features: Sequence[str] | None = None,
    ) -> pa.Table:
        """Samples received in [start, end) as an Arrow table, in order of their time.

        Columns: `time` (the sender's time on this store's clock), `sent` (by the sender's own
        clock), `received`, `host`, `worker`, then the features by name; NaN where a sample does
        not have one.

        A host's clock is taken to be wrong by the least difference between `received` and `sent`
        over its latest reports: the way of a report takes time, and never less than none. So
        `time` is late by the shortest way, and follows a clock that was set within 16 reports.
        """
        import pyarrow as pa

        rows, layouts = self._rows(start, end, host, worker)
        names = (
            list(features)
            if features is not None
            else sorted({name for each in layouts.values() for name in each})
        )
        columns = {name: np.full(len(rows), np.nan) for name in names}
        for i, row in enumerate(rows):
            values = np.frombuffer(row.data, "<f8")
            for name, value in zip(layouts[row.layout], values, strict=True):
                if name in columns:
                    columns[name][i] = value
        sent = np.array([row.sent for row in rows], np.float64)
        received = np.array([row.received for row in rows], np.float64)
        hosts = np.array([row.host for row in rows], object)
        when = sent + _offsets(hosts, sent, received)
        order = np.argsort(when, kind="stable")
        table = {
            "time": pa.array(when[order]),
            "sent": pa.array(sent[order]),
            "received": pa.array(received[order]),
            "host": pa.array([rows[i].host for i in order], pa.string()),
            "worker": pa.array([rows[i].worker for i in order], pa.string()),
        }
        return pa.table(table | {name: pa.array(columns[name][order]) for name in names})

    def _rows(
        self, start: float, end: float, host: str | None, worker: str | None
    ) -> tuple[list[Any], dict[int, list[str]]]:
        table = self._samples
        query = self._sa.select(table)
        if start > -math.inf:
            query = query.where(table.c.received >= start)
        if end < math.inf:
            query = query.where(table.c.received < end)
        if host is not None:
            query = query.where(table.c.host == host)
        if worker is not None:
            query = query.where(table.c.worker == worker)
        with self._lock, self._begin() as connection:
            self._take_time(connection)
            rows = list(connection.execute(query.order_by(table.c.id)))
            used = {row.layout for row in rows}
            found = connection.execute(self._sa.select(self._layout.c.id, self._layout.c.names))
            layouts = {row.id: json.loads(row.names) for row in found if row.id in used}
        return rows, layouts

    def newest(self) -> float | None:
        """When the latest sample was received; None where there is none."""
        query = self._sa.select(self._samples.c.received).order_by(self._samples.c.id.desc())
        with self._lock, self._begin() as connection:
            found = connection.execute(query.limit(1)).scalar()
        return None if found is None else float(found)

    def tail(self, after: int) -> tuple[list[Sample], int]:
        """Samples that were written after the one of this number, and the number of the last.

        A negative number: none, and the last one's number.
        """
        rows, last = self._tail(after, ())
        return [sample for _, sample in rows], last

    def _tail(
        self, after: int, also: Sequence[int], newest_alone: int | None = None
    ) -> tuple[list[tuple[int, Sample]], int]:
        """As `tail`, each with its number; and those of further numbers. Of many the newest."""
        table = self._samples
        newest = self._sa.select(self._sa.func.max(table.c.id))
        with self._lock, self._begin() as connection:
            last = int(connection.execute(newest).scalar() or 0)
            if after < 0 or (last <= after and not also):
                return [], last
            if newest_alone is not None:
                after = max(after, last - newest_alone)
            wanted = (table.c.id > after) & (table.c.id <= last)
            query = self._sa.select(table).where(wanted | table.c.id.in_(list(also)))
            rows = list(connection.execute(query.order_by(table.c.id)))
            found = connection.execute(self._sa.select(self._layout.c.id, self._layout.c.names))
            layouts = {row.id: json.loads(row.names) for row in found}
        samples = []
        for row in rows:
            values = np.frombuffer(row.data, "<f8").tolist()
            features = dict(zip(layouts[row.layout], values, strict=True))
            samples.append((int(row.id), Sample(row.sent, row.host, row.worker, features)))
        return samples, last

    def offsets(self, end: float = math.inf) -> dict[str, float]:
        """Seconds to add to each host's clock to get this store's, by its latest reports."""
        sa, table = self._sa, self._samples
        out = {}
        with self._lock, self._begin() as connection:
            for (host,) in connection.execute(sa.select(table.c.host).distinct()).all():
                query = sa.select(table.c.received - table.c.sent).where(table.c.host == host)
                if math.isfinite(end):
                    query = query.where(table.c.received < end)
                latest = query.order_by(table.c.id.desc()).limit(_CLOCK_SAMPLES)
                found = connection.execute(latest).scalars().all()
                if found:
                    out[host] = float(min(found))
        return out

    # -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the file back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Reports:
    """What other hosts wrote to a store since the last look; a source for a loop.

    Attributes
    ----------
    kept
        True: a loop need not write these samples again.
    """

    kept = True
    LOOKS, MOST = 100, 1000  # how often, and of how many numbers, rows that are late are looked for
    NEWEST = 100_000  # rows of one look: after a long pause those before are of no use any more

    def __init__(
        self, store: Store, *, besides: str = "", ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._besides, self._ticks = store, besides, ticks
        self._again, self._said = -math.inf, ""
        self._last: int | None = None
        self._missing: dict[int, int] = {}  # numbers that were left out, and how often to look

    def collect(self) -> list[Sample]:
        """Samples of all hosts but the one that is left out; none at the first look.

        A store that cannot be read is left alone for ten times as long as that took.
        """
        begun = self._ticks()
        if begun < self._again:
            raise StoreError(self._said)
        try:
            return self._collect()
        except StoreError as error:
            now = self._ticks()
            self._again, self._said = now + 10.0 * (now - begun), str(error)
            raise

    def _collect(self) -> list[Sample]:
        before = self._last
        after = -1 if before is None else before
        rows, last = self._store._tail(after, list(self._missing), self.NEWEST)
        self._last = last
        came = {number for number, _ in rows}
        looks = {number: left - 1 for number, left in self._missing.items() if left > 1}
        if before is not None:
            # A writer that began before another may end after it: its rows come late.
            first = max(before + 1, last + 1 - min(self.MOST, self.NEWEST))
            looks |= dict.fromkeys(range(first, last + 1), self.LOOKS)
        self._missing = {number: left for number, left in looks.items() if number not in came}
        return [sample for _, sample in rows if sample.host != self._besides]


class _Transaction:
    """A transaction whose errors are `StoreError`, in one line."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> Any:
        try:
            self._context = self._store._engine.begin()
            return self._context.__enter__()
        except self._store._sa.exc.SQLAlchemyError as error:
            raise self._plain(error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._context.__exit__(kind, error, traceback)
        except self._store._sa.exc.SQLAlchemyError as raised:
            raise self._plain(raised) from raised
        if isinstance(error, self._store._sa.exc.SQLAlchemyError):
            raise self._plain(error) from error

    def _plain(self, error: BaseException) -> StoreError:
        cause = getattr(error, "orig", None) or error
        first, code = str(cause).strip().split("\n")[0], getattr(cause, "sqlstate", None)
        if _REFUSED.search(first) or code == _PRIVILEGE:
            return NoStoreError(f"{self._store.name}: {first}")
        damaged, help_text = bool(_DAMAGED.search(first)), ""
        if "locked" in first or "lock timeout" in first:
            help_text = ": another process is writing to it"
        elif damaged:
            help_text = ": move the file away, a new one will be made"
        found = StoreError(f"{self._store.name}: {first}{help_text}")
        found.passes = not damaged
        if damaged or code in _UNDEFINED or _GONE.search(first):
            self._store._broken(found)
        return found


def _patience(sa: Any, url: str, busy: float) -> dict[str, Any]:
    """How long PostgreSQL is waited for; what the URL says of it holds."""
    given = sa.engine.make_url(url).query
    wait = 1000 * max(2, math.ceil(busy))
    bounds = f"-c lock_timeout={max(1, round(1000 * busy))} -c statement_timeout={2 * wait}"
    own = {"connect_timeout": wait // 1000, "tcp_user_timeout": 2 * wait}
    left = {name: value for name, value in own.items() if name not in given}
    return left | {"options": f"{bounds} {given.get('options', '')}".strip()}


def _tune(connection: Any, record: Any) -> None:  # noqa: ARG001
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _offsets(hosts: Any, sent: Any, received: Any) -> Any:
    """For each row the least `received - sent` of its host's latest ones up to it."""
    out = np.zeros(len(sent))
    for host in dict.fromkeys(hosts.tolist()):
        at = np.flatnonzero(hosts == host)
        late = received[at] - sent[at]
        padded = np.concatenate([np.full(_CLOCK_SAMPLES - 1, np.inf), late])
        windows = np.lib.stride_tricks.sliding_window_view(padded, _CLOCK_SAMPLES)
        out[at] = windows.min(axis=1)
    return out
