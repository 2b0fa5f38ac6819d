"""The store: the same on SQLite and on a real PostgreSQL; what happens when it is broken."""

import math
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from postgres import PostgreSQL, postgres, require  # noqa: F401
from pyroute.control.loop import Loop
from pyroute.control.store import (
    DecisionRow,
    ForecastRow,
    NoStoreError,
    Reports,
    Sample,
    Store,
    StoreError,
)
from pyroute.serve import SourceError, open_source
from pyroute.serve.control import TURNS


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    url = tmp_path / "control.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres")
    with Store.open(url, retention=None) as opened:
        yield opened
        if request.param == "postgresql":  # one database for the session
            with opened._begin() as connection:
                for table in ("samples", "layouts", "forecasts", "decisions", "events"):
                    connection.exec_driver_sql(f"DELETE FROM {table}")


def sample(time, host="h1", worker="w1", **features):
    return Sample(time, host, worker, features)


def test_reads_what_was_written(store):
    assert (
        store.write([sample(1.0, a=1.5, b=math.nan), sample(2.0, a=2.5, c=7)], received=10.0) == 2
    )
    table = store.read(0.0, 20.0)
    assert table.column_names == ["time", "sent", "received", "host", "worker", "a", "b", "c"]
    assert table["a"].to_pylist() == [1.5, 2.5]
    assert math.isnan(table["b"][0].as_py())
    assert table["c"].to_pylist()[1] == 7.0
    assert math.isnan(table["c"][0].as_py())
    assert table["sent"].to_pylist() == [1.0, 2.0]
    assert table["received"].to_pylist() == [10.0, 10.0]


def test_a_write_that_failed_leaves_nothing_behind(store):
    """Names of features that it wrote down are gone with it: the next one writes them again."""
    with pytest.raises(ValueError, match="could not convert"):
        store.write([sample(1.0, new=1.0), sample(1.0, other="x")], received=1.0)
    assert store.write([sample(2.0, new=2.0)], received=2.0) == 1
    assert store.read(0.0, 3.0)["new"].to_pylist() == [2.0]


def test_window_host_worker_and_features(store):
    for when in range(10):
        store.write(
            [sample(when, worker="w1", a=when), sample(when, "h2", "w2", a=-when)], received=when
        )
    assert store.read(3.0, 5.0, worker="w1")["a"].to_pylist() == [3.0, 4.0]
    assert store.read(3.0, 5.0, host="h2")["a"].to_pylist() == [-3.0, -4.0]
    table = store.read(0.0, 10.0, features=["nothing", "a"])
    assert table.column_names[5:] == ["nothing", "a"]
    assert len(table) == 20


def test_empty(store):
    assert store.write([]) == 0
    table = store.read(0.0, 1e12)
    assert len(table) == 0
    assert table.column_names == ["time", "sent", "received", "host", "worker"]
    assert store.decisions() == store.events() == []
    assert store.offsets() == {}


def test_two_hosts_whose_clocks_differ(store):
    """One is 1,000 s ahead: what they measured at the same moment has the same time."""
    rng = np.random.default_rng(0)
    for when in range(100, 140):
        way = 0.01 + rng.exponential(0.05, 2)
        store.write([sample(when + 1000.0, "ahead", "w1", a=when)], received=when + way[0])
        store.write([sample(when, "right", "w2", a=when)], received=when + way[1])
    offsets = store.offsets()
    assert offsets["ahead"] == pytest.approx(-1000.0, abs=0.1)
    assert offsets["right"] == pytest.approx(0.0, abs=0.1)
    table = store.read(130.0, 141.0)
    gap = np.abs(np.array(table["time"]) - np.array(table["a"]))
    assert gap.max() < 0.5
    assert (np.diff(np.array(table["time"])) >= 0).all()


def test_a_clock_that_is_set_is_followed(store):
    for when in range(100):
        wrong = 0.0 if when < 50 else -3600.0
        store.write([sample(when + wrong, a=when)], received=when + 0.1)
    table = store.read(0.0, 200.0)
    late = {a: abs(t - a) for a, t in zip(table["a"].to_pylist(), table["time"].to_pylist())}  # noqa: B905
    assert max(late[a] for a in range(50)) < 0.2
    assert max(late[a] for a in range(66, 100)) < 0.2


def test_retention(store):
    store.retention = 100.0
    store.write([sample(0.0, a=1.0)], received=1000.0)
    store.note(1000.0, "config", "away")
    store.write([sample(0.0, a=2.0)], received=1050.0)
    assert store.prune(1101.0) == 1
    assert store.read(0.0, 1e9)["a"].to_pylist() == [2.0]
    assert store.events() == []


def test_a_clock_that_jumps_ahead_forgets_nothing(store):
    """By a month, for a while: what was measured before is not old because of it."""
    store.retention = 1000.0
    for when in range(0, 200, 10):
        store.write([sample(when, a=when)], received=when)
    for when in range(0, 600, 10):
        store.write([sample(when, a=-1.0)], received=30 * 86400.0 + when)
    for when in range(800, 900, 10):
        store.write([sample(when, a=when)], received=when)
    kept = store.read(0.0, 1000.0)["a"].to_pylist()
    assert kept == [*range(0, 200, 10), *range(800, 900, 10)]
    for when in range(900, 9000, 100):  # a clock that is right goes on to forget
        store.write([sample(when, a=when)], received=when)
    assert min(store.read(0.0, 9001.0)["a"].to_pylist()) >= 9000 - 1000 - 100 - 60


def test_a_restart_under_a_wrong_clock_forgets_nothing(store):
    """A clock that is a month ahead when control begins may be set back."""
    for when in range(0, 200, 10):
        store.write([sample(when, a=when)], received=when)
    with Store.open(place(store), retention=1000.0) as again:
        for when in range(0, 600, 10):
            again.write([sample(when, a=-1.0)], received=30 * 86400.0 + when)
    assert store.read(0.0, 1000.0)["a"].to_pylist() == [*range(0, 200, 10)]
    with Store.open(place(store), retention=1000.0) as again:  # right away: nothing is in doubt
        again.write([sample(0.0, a=-1.0)], received=30 * 86400.0 + 600.0)
    assert len(store.read(0.0, 1000.0)) == 0


def test_a_reporter_whose_clock_is_ahead_forgets_nothing(postgres):  # noqa: F811
    """A host that is a month ahead writes through a loop: what others wrote stays."""
    with Store.open(postgres) as store, Store.open(postgres) as other:
        assert store.has_clock
        store.write([sample(time.time(), "right", a=1.0)])
        ahead = time.time() + 30 * 86400.0
        collect = lambda: [Sample(ahead, "ahead", "w1", {"service_ms": 5.0})]  # noqa: E731
        Loop("t/a->b", ["w1"], [collect], store=other, clock=lambda: ahead).step()
        assert store.prune(time.time()) == 0
        offsets = store.offsets()
        assert offsets["right"] == pytest.approx(0.0, abs=60.0)
        assert offsets["ahead"] == pytest.approx(-30 * 86400.0, abs=60.0)
        when = store.read(0.0, math.inf)["time"].to_pylist()
        assert when == pytest.approx([time.time()] * 2, abs=60.0)
        with store._begin() as connection:
            for table in ("samples", "events"):
                connection.exec_driver_sql(f"DELETE FROM {table}")


def test_decisions_and_events(store):
    row = DecisionRow(5.0, "t/a->b", 3, {"w1": 0.25, "w2": 0.75}, "persistence", ("slow", "ü"))
    store.decide(row)
    store.note(6.0, "config", "away")
    assert store.decisions() == [row]
    assert store.decisions(5.5) == []
    assert store.decisions(edge="other") == []
    assert store.events() == [(6.0, "config", "away")]


def test_forecasts(store):
    row = ForecastRow(5.0, 6.0, "t/a->b", {"w1": 0.25, "w2": 0.5}, "persistence")
    store.foretell(row)
    store.foretell(ForecastRow(6.0, 7.0, "t/a->b", {"w1": 0.3, "w2": math.nan}, "forecast"))
    first, second = store.forecasts()
    assert first == row
    assert second.seconds == {"w1": 0.3}
    assert [row.time for row in store.forecasts(5.5)] == [6.0]
    assert store.forecasts(edge="other") == []
    store.retention = 10.0
    store.prune(15.5)
    assert [row.time for row in store.forecasts()] == [6.0]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_store_of_the_first_schema_is_brought_up(store, damaged):
    """Schema 1 had no forecasts; what it has stays, and only what lacks is made."""
    store.write([sample(1.0, a=1.0)], received=1.0)
    with store._begin() as connection:
        connection.exec_driver_sql("DROP TABLE forecasts")
        connection.exec_driver_sql("UPDATE pyroute_about SET value = '1'")
        if damaged:  # another table is missing too
            connection.exec_driver_sql("DROP TABLE events")
    with Store.open(place(store)) as again:
        assert len(again.read(0.0, 2.0)) == 1
        again.foretell(ForecastRow(5.0, 6.0, "e", {"w1": 0.25}, "forecast"))
        again.note(5.0, "config", "away")
        with again._begin() as connection:
            found = connection.exec_driver_sql("SELECT value FROM pyroute_about").scalar_one()
        assert found == "2"
    assert len(store.forecasts()) == 1


def place(store):
    return store.url if "psycopg" in store.url else store._engine.url.database


def test_the_live_page_reads_it(store):
    """The same page of both, through the reader's own connection."""
    source = open_source(place(store))
    for when in range(300):
        workers = [sample(when, "h1", f"w{n}", service_ms=5.0 + when, backlog=n) for n in range(9)]
        store.write(workers, received=1000.0 + when)
        store.foretell(
            ForecastRow(
                1000.0 + when, 1001.0 + when, "t/a->b", {"w1": (6 + when) / 1000}, "forecast"
            )
        )
    store.decide(DecisionRow(1000.0, "t/a->b", 3, {"w1": 0.25, "w2": 0.75}, "forecast", ("slow",)))
    store.note(1001.0, "config", "away")
    page = source.read()
    series = {one.title: one for one in page.forecasts}
    assert len(series) == 9
    measured, forecast = series["w1"].lines
    assert len(measured.values) == TURNS + 1
    assert measured.values[1:-1] == forecast.values[1:-1]
    assert forecast.values[-1] == pytest.approx(0.305)
    assert [(share.name, share.share) for share in page.ratio] == [("w1", 0.25), ("w2", 0.75)]
    assert [event.kind for event in page.events] == ["config", "ratio"]
    store.write([sample(400.0, "h1", "w1", service_ms=7.0)], received=1400.0)
    assert {one.title: one for one in source.read().forecasts}["w1"].lines[0].values[-1] == 0.007
    source.close()


def test_the_live_page_of_a_database_without_a_store(postgres):  # noqa: F811
    with Store.open(postgres) as store, store._begin() as connection:
        connection.exec_driver_sql("ALTER TABLE pyroute_about RENAME TO away")
    source = open_source(postgres)
    try:
        with pytest.raises(SourceError, match="no store of control"):
            source.read()
    finally:
        with store._begin() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO pyroute_about")
    assert source.read().title == "control"
    source.close()
    store.close()


def test_many_threads(store):
    def write(worker):
        for when in range(20):
            store.write(
                [sample(when, worker=f"w{worker}", a=when, **{f"f{worker}": 1})], received=1.0
            )

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.read(0.0, 2.0)) == 80


def test_two_stores_on_one_place(store):
    with Store.open(place(store)) as other:
        other.write([sample(1.0, a=1.0)], received=1.0)
        store.write([sample(2.0, a=2.0)], received=2.0)
        assert len(other.read(0.0, 3.0)) == len(store.read(0.0, 3.0)) == 2


def test_reports_of_other_hosts(store):
    """What a loop on another host reads: everything once, without its own."""
    store.write([sample(1.0, "old", a=1.0)], received=1.0)
    reports = Reports(store, besides="me")
    assert reports.collect() == []
    store.write([sample(2.0, "h2", "w2", a=2.0, b=3.0), sample(2.0, "me", a=9.0)], received=2.0)
    assert reports.collect() == [sample(2.0, "h2", "w2", a=2.0, b=3.0)]
    assert reports.collect() == []


def test_reports_that_are_written_at_the_same_time(postgres):  # noqa: F811
    """Of two writers the one that began first ends last: nothing of it is missed."""
    ready, go = threading.Event(), threading.Event()

    with Store.open(postgres) as store, Store.open(postgres) as other:
        reports = Reports(store)
        reports.collect()

        class Held(Store):
            """Its rows have their numbers, and are not yet there to be seen."""

            def _layout_id(self, connection, names):
                found = super()._layout_id(connection, names)
                if names == ("late",):
                    connection.execute(
                        self._samples.insert(),
                        {
                            "host": "slow",
                            "worker": "w",
                            "sent": 1.0,
                            "received": 1.0,
                            "layout": found,
                            "data": np.array([1.0]).tobytes(),
                        },
                    )
                    ready.set()
                    go.wait(60)
                return found

        with Held.open(postgres) as held:
            first = threading.Thread(
                target=lambda: held.write([sample(1.0, "slow", "w", late=1.0)], received=1.0)
            )
            first.start()
            ready.wait(60)
            second = threading.Thread(
                target=lambda: other.write([sample(1.0, "fast", "w", a=1.0)], received=1.0)
            )
            second.start()
            second.join(1.0)  # it may wait for the first, or not
            seen = reports.collect()
            go.set()
            first.join(60)
            second.join(60)
            seen += reports.collect()
        hosts = sorted(each.host for each in seen)
        with store._begin() as connection:
            connection.exec_driver_sql("DELETE FROM samples")
        assert hosts == ["fast", "slow", "slow"]


def test_sqlite_is_in_wal_mode(tmp_path):
    with Store.open(tmp_path / "x.db"):
        pass
    with sqlite3.connect(tmp_path / "x.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_second_run_goes_on(tmp_path):
    for when in range(2):
        with Store.open(tmp_path / "x.db", retention=None) as store:
            store.write([sample(when, a=when)], received=when)
            assert len(store.read(0.0, 10.0)) == when + 1


def test_locked_file(tmp_path):
    with Store.open(tmp_path / "x.db", busy=0.1) as store:
        other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"locked: another process is writing to it$"):
            store.write([sample(1.0, a=1.0)])
        other.execute("ROLLBACK")
        other.close()
        assert store.write([sample(1.0, a=1.0)]) == 1


@pytest.mark.parametrize("damage", [b"not a database at all, but long enough" * 100, b"SQLite for"])
def test_corrupt_file(tmp_path, damage):
    (tmp_path / "x.db").write_bytes(damage)
    with pytest.raises(StoreError, match=r"x\.db: .*move the file away"):
        Store.open(tmp_path / "x.db")


def test_damaged_in_use(tmp_path):
    with Store.open(tmp_path / "x.db", retention=None) as store:
        for when in range(200):
            store.write([sample(when, a=when, b=when)], received=when)
    size = (tmp_path / "x.db").stat().st_size
    with (tmp_path / "x.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    # At the latest when it is read.
    with pytest.raises(StoreError), Store.open(tmp_path / "x.db") as store:
        store.read(0.0, 1e9)


def test_other_schema(tmp_path):
    with Store.open(tmp_path / "x.db") as store, store._begin() as connection:
        connection.exec_driver_sql("UPDATE pyroute_about SET value = '99'")
    with pytest.raises(StoreError, match="expected schema 2, got 99"):
        Store.open(tmp_path / "x.db")


def test_wrong_url():
    for url in ("", "mysql://x/y", "redis://x"):
        with pytest.raises(ValueError, match=r"^url: expected .+, got .+"):
            Store.open(url)
    with pytest.raises(ValueError, match=r"^retention: expected"):
        Store.open(":memory:", retention=0)


def test_no_folder(tmp_path):
    with pytest.raises(StoreError, match="unable to open"):
        Store.open(tmp_path / "missing" / "x.db")


def test_postgresql_never_keeps_a_writer_waiting(postgres):  # noqa: F811
    """Neither for a lock nor for a statement; what reads much may take its time."""
    with Store.open(postgres, busy=0.2) as store, Store.open(postgres) as other:
        with other._begin() as connection:
            connection.exec_driver_sql("LOCK TABLE samples IN ACCESS EXCLUSIVE MODE")
            begun = time.monotonic()
            with pytest.raises(StoreError, match=r"lock timeout: another process is writing"):
                store.write([sample(1.0, a=1.0)])
            assert time.monotonic() - begun < 10.0
        with pytest.raises(StoreError, match="statement timeout"), store._begin() as connection:
            connection.exec_driver_sql("SELECT pg_sleep(60)")
        with store._begin() as connection:
            store._take_time(connection)
            assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "0"
            found = connection.connection.dbapi_connection.info.get_parameters()
            assert found["tcp_user_timeout"] == "4000"
        assert store.write([sample(1.0, a=1.0)], received=1.0) == 1
        store.prune(1e9)
    longer = f"{postgres}?options=-c%20lock_timeout%3D7s&connect_timeout=9"
    with Store.open(longer) as store, store._begin() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "7s"
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "10s"


def test_server_that_is_away():
    from postgres import missing

    if missing():
        pytest.skip(missing())
    with pytest.raises(StoreError, match=r"pyroute:\*\*\*@127\.0\.0\.1:1") as raised:
        Store.open("postgresql://pyroute:secret@127.0.0.1:1/x", busy=1.0)
    assert "secret" not in str(raised.value)


# what cannot be opened at the start, or is another one later ------------------------------------


def test_postgresql_that_comes_later():
    """It is tried again by whatever uses it, and keeps what comes from then on."""
    require()
    server = PostgreSQL()
    with pytest.raises(StoreError, match="Connection refused"):
        Store.open(server.url, busy=1.0)
    with Store.open(server.url, busy=1.0, wait=False) as store:
        assert store.fault.passes
        with pytest.raises(StoreError, match="Connection refused"):
            store.write([sample(1.0, a=1.0)])
        with pytest.raises(StoreError, match="Connection refused"):
            Reports(store).collect()
        with server:
            assert store.write([sample(2.0, a=1.0)], received=2.0) == 1
            assert store.fault is None
            assert store.read(0.0, 9.0)["time"].to_pylist() == [2.0]
            server.kill()
            with pytest.raises(StoreError):
                store.write([sample(3.0, a=1.0)], received=3.0)
            server.start()
            store.write([sample(4.0, a=1.0)], received=4.0)
            assert store.read(0.0, 9.0)["received"].to_pylist() == [2.0, 4.0]


def test_a_place_where_no_store_can_be(postgres, tmp_path):  # noqa: F811
    """A mistake in the URL: nothing to wait for."""
    for url, text in (
        (tmp_path / "missing" / "x.db", "unable to open"),
        (postgres.replace("/postgres", "/nosuch"), 'database "nosuch" does not exist'),
        (postgres.replace("pyroute@", "nobody@"), 'role "nobody" does not exist'),
        (f"{postgres}?speed=7", 'invalid connection option "speed"'),
        ("postgresql://pyroute@127.0.0.1:99999/x", "invalid port number"),
    ):
        with pytest.raises(NoStoreError, match=text):
            Store.open(url, busy=1.0, wait=False)
    with pytest.raises(ValueError, match=r"^url: expected a path") as raised:
        Store.open("postgresql://me:secret@host:port/x", wait=False)
    assert "secret" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_user_who_may_not_write(postgres):  # noqa: F811
    with Store.open(postgres) as store, store._begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS guest")
        connection.exec_driver_sql("CREATE ROLE guest LOGIN")
    with pytest.raises(NoStoreError, match="permission denied"):
        Store.open(postgres.replace("pyroute@", "guest@"), wait=False)


def test_a_file_that_is_moved_away_while_it_is_open(store):
    """As the error says: a new one is made, without anybody being started again."""
    if not store._is_sqlite:
        pytest.skip("PostgreSQL has no file")
    path = Path(store.url.removeprefix("sqlite:///"))
    store.write([sample(1.0, a=1.0)], received=1.0)
    store.write([sample(1.0, b=1.0)], received=1.0)
    store._engine.dispose()
    for name in path.parent.glob(f"{path.name}-*"):
        name.unlink()
    path.write_bytes(b"nonsense" * 2000)
    for _ in range(2):
        with pytest.raises(StoreError, match="move the file away"):
            store.write([sample(2.0, b=1.0)], received=2.0)
    path.rename(path.with_name("damaged"))
    assert store.write([sample(3.0, b=3.0)], received=3.0) == 1
    found = store.read(0.0, 9.0)
    assert found.column_names[5:] == ["b"]  # numbers of layouts are those of the new file
    assert found["b"].to_pylist() == [3.0]


def test_tables_that_are_dropped_while_it_is_open(store):
    store.write([sample(1.0, a=1.0)], received=1.0)
    store.write([sample(1.0, b=1.0)], received=1.0)
    with store._begin() as connection:
        store._meta.drop_all(connection)
    with pytest.raises(StoreError):
        store.write([sample(2.0, b=1.0)], received=2.0)
    assert store.write([sample(3.0, b=3.0)], received=3.0) == 1
    assert store.read(0.0, 9.0)["b"].to_pylist() == [3.0]


def test_a_store_that_does_not_answer_is_not_read_each_time(tmp_path):
    """A host that is away takes seconds to fail: the loop decides meanwhile."""
    now = [0.0]
    with Store.open(tmp_path / "x.db") as store:
        reports = Reports(store, ticks=lambda: now[0])
        tail, tried = store._tail, []

        def away(*words):
            tried.append(now[0])
            now[0] += 2.0
            raise StoreError("away")

        store._tail = away
        for _ in range(20):
            with pytest.raises(StoreError, match="away"):
                reports.collect()
            now[0] += 1.0
        assert tried == [0.0]
        store._tail = tail
        now[0] = 23.0
        assert reports.collect() == []


def test_reports_of_a_long_pause_are_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr(Reports, "NEWEST", 30)
    with Store.open(tmp_path / "x.db") as store:
        reports = Reports(store)
        assert reports.collect() == []
        store.write([sample(float(at), a=1.0) for at in range(100)], received=1.0)
        assert [each.time for each in reports.collect()] == [float(at) for at in range(70, 100)]
        store.write([sample(100.0, a=1.0)], received=1.0)
        assert [each.time for each in reports.collect()] == [100.0]
