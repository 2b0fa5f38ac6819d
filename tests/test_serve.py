"""The live page: what it reads, who may read it, and what it survives."""

import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from live_stream import BIG, Control, Stream
from pyroute import metrics
from pyroute.serve import Server, SourceError, Watcher, open_source
from pyroute.serve.server import is_loopback
from pyroute.serve.watch import AGE

GOLDEN = Path(__file__).parent / "golden" / "stream.1"
WAIT = 60  # seconds that a loaded machine may need


@pytest.fixture
def stream(tmp_path):
    made = Stream(tmp_path / "stream")
    made.batch()
    return made


@pytest.fixture
def served(stream):
    with Running(stream.directory) as server:
        yield server


class Running:
    """A server for a test; ends with it."""

    def __init__(self, *places, **options):
        watcher = Watcher([open_source(str(place)) for place in places], every=0.05)
        self.server = Server(watcher, **options)

    def __enter__(self):
        self.server.start()
        return self.server

    def __exit__(self, *_):
        self.server.stop()


def ask(server, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    body = answer.read().decode() if path != "/events" else ""
    connection.close()
    return answer.status, body, answer.headers


def until(check):
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("not within the time")


# what is read --------------------------------------------------------------------------------


def test_reads_a_stream(stream):
    row = stream.batch()
    page = open_source(str(stream.directory)).read()
    assert page.title == "clicks"
    assert [float(task.before) for task in page.tasks] == row["loads"]
    assert page.hot_keys[0].key.text == str(BIG) == "1152921504606846977"
    assert page.hot_keys[0].task == str(stream.router.route([BIG])[0])
    assert page.heat.labels == ("batch 0", "batch 1")
    assert page.events[0].at == "batch 1"


def test_moves_between_routers(stream):
    source = open_source(f"spark:{stream.directory}")
    source.read()
    before = stream.router
    stream.costs = stream.costs[::-1].copy()
    stream.batch()
    page = source.read()
    assert page.moves
    for move in page.moves:
        key = [int(move.key.text)]
        assert move.source == str(before.route(key)[0])
        assert move.target == str(stream.router.route(key)[0])
    assert sum(flow.keys for flow in page.flows) == len(page.moves)


def test_reads_what_an_older_release_wrote(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "golden")
    page = open_source(str(tmp_path / "golden")).read()
    assert "anna" in page.hot_keys[0].key.text
    assert not page.warnings


def test_only_the_last_batches_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("pyroute.serve.spark.BATCHES", 3)
    stream = Stream(tmp_path / "s")
    for _ in range(6):
        stream.batch()
    source = open_source(str(stream.directory))
    assert source.read().heat.labels == ("batch 3", "batch 4", "batch 5")
    stream.batch()
    assert source.read().heat.labels == ("batch 4", "batch 5", "batch 6")


def test_what_a_stream_needs_is_named_by_its_extra(stream, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SourceError, match=r"pip install 'pyroute-core\[report\]'"):
        open_source(str(stream.directory))


def test_unknown_place():
    with pytest.raises(SourceError, match="there is nothing"):
        open_source("/no/such/place")


# what it survives ----------------------------------------------------------------------------


def damage_metrics(stream):
    (stream.directory / "metrics" / "000000000001.parquet").write_bytes(b"PAR1 half of a f")


def damage_manifest(stream):
    (stream.directory / "manifests" / "000000000009.json").write_text('{"next_router": ')


def damage_statistics(stream):
    stream.batch()
    (path,) = (stream.directory / "stats").glob("000000000001-*")
    path.write_bytes(b"\x00" * 50)


def outside(stream):
    text = json.dumps({"next_router": {"name": "../../etc/passwd"}, "stats": None})
    (stream.directory / "manifests" / "000000000009.json").write_text(text)


def empty_row(stream):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"sequence": pa.array([], pa.int64())})
    pq.write_table(table, stream.directory / "metrics" / "000000000001.parquet")


@pytest.mark.parametrize(
    "damage", [damage_metrics, damage_manifest, damage_statistics, outside, empty_row]
)
def test_survives(stream, damage):
    watcher = Watcher([open_source(str(stream.directory))])
    damage(stream)
    watcher.look()
    page = json.loads(watcher.current[1])
    assert any("cannot be read" in str(one) for one in page["warnings"])
    assert page["tasks"]  # what can be read is shown
    for folder in ("metrics", "manifests"):
        for path in (stream.directory / folder).glob("00000000000[19]*"):
            path.unlink()
    stream.sequence = 1
    stream.batch()
    watcher.look()
    assert json.loads(watcher.current[1])["warnings"] == []


def test_survives_missing(stream):
    watcher = Watcher([open_source(str(stream.directory))])
    shutil.move(stream.directory, f"{stream.directory}.away")
    watcher.look()
    page = json.loads(watcher.current[1])
    assert "no such directory" in page["sources"][0]["detail"]
    assert "shown: what was read last" in page["sources"][0]["detail"]
    assert page["tasks"]
    assert "no such directory" in watcher.problems[0]
    shutil.move(f"{stream.directory}.away", stream.directory)
    watcher.look()
    page = json.loads(watcher.current[1])
    assert page["sources"][0]["tone"] == "good"
    assert "readable again" in page["events"][0]["text"]


def test_survives_a_folder_that_is_none(stream):
    shutil.rmtree(stream.directory / "metrics")
    (stream.directory / "metrics").write_text("a file")
    watcher = Watcher([open_source(str(stream.directory))])
    assert "Not a directory" in watcher.problems[0]


def test_survives_a_source_that_raises(stream):
    source = open_source(str(stream.directory))

    def broken():
        raise ZeroDivisionError("whatever")

    source.read = broken
    watcher = Watcher([source, open_source(str(stream.directory))])
    page = json.loads(watcher.current[1])
    assert "ZeroDivisionError" in page["sources"][0]["detail"]
    assert page["tasks"]


def test_before_the_first_batch(tmp_path):
    (tmp_path / "new").mkdir()
    watcher = Watcher([open_source(str(tmp_path / "new"))])
    page = json.loads(watcher.current[1])
    assert page["title"] == "Waiting for the first numbers"
    assert "no batch was committed yet" in page["sources"][0]["detail"]


# the store of control ------------------------------------------------------------------------


@pytest.fixture
def control(tmp_path):
    return Control(tmp_path / "control.db")


def test_reads_control(control):
    control.turn(0, {"w1": 10.0, "w2": 30.0})
    control.foretell(0, {"w2": 80.0})
    control.turn(1, {"w1": 12.0, "w2": 90.0})
    control.decide(1, {"w1": 3, "w2": 1}, "w2 is slow")
    control.decide(2, {"w1": 1, "w2": 0}, "w2 is bypassed")
    page = open_source(str(control.path)).read()
    assert [(share.name, share.share, share.note) for share in page.ratio] == [
        ("w1", 1.0, ""),
        ("w2", 0.0, "bypassed"),
    ]
    assert [(task.task, task.before) for task in page.tasks] == [("w1", 12.0), ("w2", 90.0)]
    assert page.heat.tasks == ("w1", "w2")
    forecasts = {series.title: series for series in page.forecasts}
    assert [line.name for line in forecasts["w2"].lines] == ["measured", "forecast"]
    assert forecasts["w2"].lines[1].values == (None, 0.08)
    assert forecasts["w1"].lines[0].values == (0.01, 0.012)
    assert "bypassed" in page.events[0].text
    assert page.unit == "records per second"


def test_forecasts_are_shown_beside_what_came(control):
    for when in range(6):
        control.turn(when, {"w1": 10.0 + when, "w2": 20.0})
        if when != 2:
            control.foretell(when, {"w1": 11.0 + when, "w2": 20.0})
    page = open_source(str(control.path)).read()
    one = {series.title: series for series in page.forecasts}["w1"]
    measured, forecast = one.lines
    assert measured.values == (0.01, 0.011, 0.012, 0.013, 0.014, 0.015, None)
    # Nothing before the first; that of turn 1 still holds for turn 3; the last is to come.
    assert forecast.values == (None, 0.011, 0.012, 0.012, 0.014, 0.015, 0.016)
    assert len(one.labels) == 7
    facts = {fact.name: fact for fact in page.facts}
    assert facts["forecast"].value == "acts"
    assert "of the error of the last value over 5 turns" in facts["forecast"].detail


def test_a_forecast_that_grew_old_is_not_shown(control):
    control.turn(0, {"w1": 10.0})
    control.foretell(0, {"w1": 10.0}, source="persistence")
    for when in (1, 2, 3, 4):
        control.turn(when, {"w1": 10.0})
    page = open_source(str(control.path)).read()
    assert page.forecasts[0].lines[1].values == (None, 0.01, 0.01, None, None)
    assert {fact.name: fact.value for fact in page.facts}["forecast"] == "does not act"


def test_a_store_without_forecasts_is_still_read(tmp_path):
    old = Control(tmp_path / "old.db", schema=1)
    old.turn(0, {"w1": 10.0})
    page = open_source(str(old.path)).read()
    assert [line.name for line in page.forecasts[0].lines] == ["measured"]


def test_hosts_that_write_for_themselves_are_one_turn(control):
    for when in range(3):
        control.turn(when, {"w1": 10.0, "w2": 20.0}, host="h1")
        if when < 2:
            control.turn(when + 0.3, {"w3": 30.0}, host="h2")
    # Each host's latest: what h2 wrote last is of the same turn as what h1 wrote after it.
    page = open_source(str(control.path)).read()
    assert [(task.task, task.before) for task in page.tasks] == [
        ("w1", 10.0),
        ("w2", 20.0),
        ("w3", 30.0),
    ]
    control.turn(2.3, {"w3": 33.0}, host="h2")
    page = open_source(str(control.path)).read()
    assert [task.before for task in page.tasks] == [10.0, 20.0, 33.0]
    assert page.heat.tasks == ("w1", "w2", "w3")
    for when in range(3, 6):  # h2 is gone: so is its worker, one turn later
        control.turn(when, {"w1": 10.0, "w2": 20.0}, host="h1")
    page = open_source(str(control.path)).read()
    assert [task.task for task in page.tasks] == ["w1", "w2"]


def test_a_password_is_not_shown():
    pytest.importorskip("psycopg")
    for url in (
        "postgresql://me:secret@127.0.0.1:1/x",
        "control:postgres://me:secret@127.0.0.1:1/x?password=secret",
        "postgresql+psycopg://:secret@127.0.0.1:1/x",
    ):
        watcher = Watcher([open_source(url)])
        assert len(watcher.problems) == 1
        assert "secret" not in watcher.current[1] + watcher.problems[0]
        assert "127.0.0.1:1/x" in watcher.current[1]


def test_control_is_read_only(control):
    control.turn(0, {"w1": 10.0})
    control.connection.close()
    before = control.path.read_bytes()
    open_source(f"control:{control.path}").read()
    assert control.path.read_bytes() == before


def locked(control):
    other = sqlite3.connect(control.path, isolation_level=None)
    other.execute("PRAGMA journal_mode=DELETE")
    other.execute("BEGIN EXCLUSIVE")
    return other.close


def not_a_database(control):
    kept = control.path.read_bytes()
    control.path.write_bytes(b"this is no database, whatever it is" * 100)
    return lambda: control.path.write_bytes(kept)


def cut_off(control):
    kept = control.path.read_bytes()
    control.path.write_bytes(kept[: len(kept) // 2])
    return lambda: control.path.write_bytes(kept)


def gone(control):
    control.path.rename(f"{control.path}.away")
    return lambda: Path(f"{control.path}.away").rename(control.path)


def another_schema(control):
    with sqlite3.connect(control.path) as other:
        other.execute("UPDATE pyroute_about SET value = '99'")

    def back():
        with sqlite3.connect(control.path) as again:
            again.execute("UPDATE pyroute_about SET value = '2'")
        again.close()

    other.close()
    return back


@pytest.mark.parametrize("damage", [locked, not_a_database, cut_off, gone, another_schema])
def test_control_survives(control, damage):
    for i in range(50):
        control.turn(i, {"w1": 10.0, "w2": 20.0})
    control.connection.close()
    watcher = Watcher([open_source(f"control:{control.path}")])
    assert not watcher.problems
    repair = damage(control)
    watcher.look()
    assert len(watcher.problems) == 1
    page = json.loads(watcher.current[1])
    assert page["sources"][0]["tone"] == "bad"
    assert page["tasks"]  # what was read last
    repair()
    watcher.look()
    assert not watcher.problems


def test_two_sources_make_one_page(stream, control):
    control.turn(0, {"w1": 10.0})
    control.decide(1, {"w1": 1}, "alone")
    watcher = Watcher([open_source(str(stream.directory)), open_source(str(control.path))])
    page = json.loads(watcher.current[1])
    assert page["title"] == "clicks"
    assert page["ratio"]
    assert page["hot_keys"]
    assert len(page["sources"]) == 2


# who may read it -----------------------------------------------------------------------------


def test_answers(served):
    status, body, headers = ask(served)
    assert status == 200
    assert str(BIG) in body
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert json.loads(ask(served, "/data")[1])["title"] == "clicks"
    assert ask(served, "/health")[:2] == (200, "ok\n")
    assert "pyroute_serve_requests_total" in ask(served, "/metrics")[1]
    for path in ("/nothing", "/../etc/passwd", "/%2e%2e/x", "//evil.example/", "//[", "/data/"):
        assert ask(served, path)[0] == 404
    assert ask(served, "/data?" + "&a=b" * 50)[0] == 400
    status, body, headers = ask(served, "/", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
def test_read_only(served, method):
    status, _, headers = ask(served, "/data", method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:99", 200),
        ("[::1]:8765", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("", 421),
        ("[::1", 421),
        ("evil.example@127.0.0.1", 421),
    ],
)
def test_rebinding(served, host, status):
    assert ask(served, "/data", Host=host)[0] == status


def test_token(stream):
    with Running(stream.directory, token="secret") as server:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Cookie": f"pyroute_token_{server.port}=wrong"},
            {"Cookie": f"pyroute_token_{server.port + 1}=secret"},
            {"Authorization": "Bearer sécret".encode("latin-1")},
        ):
            for path in ("/", "/data", "/events", "/metrics", "/health", "/x"):
                assert ask(server, path, **headers)[0] == 401
        assert ask(server, "/data?token=wrong")[0] == 401
        assert ask(server, "/data", Authorization="Bearer secret")[0] == 200
        status, body, headers = ask(server, "/?token=secret")
        assert (status, body, headers["Location"]) == (303, "", "/")
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie  # Strict does not come back after a link from elsewhere
        assert ask(server, "/data", Cookie=f"a=b; {cookie.split(';')[0]}")[0] == 200
        assert "token=secret" in server.url


def test_with_a_token_any_name_will_do(stream):
    """A proxy hands on the name that it was asked by; without a token only loopback is known."""
    with Running(stream.directory, token="secret") as server:
        known = {"Host": "pyroute.example", "Authorization": "Bearer secret"}
        assert ask(server, "/data", **known)[0] == 200
        assert ask(server, "/data", Host="pyroute.example")[0] == 401


def test_two_ports_have_two_cookies(stream):
    with Running(stream.directory, token="one") as one, Running(stream.directory, token="2") as two:
        cookies = "; ".join(
            ask(server, f"/?token={server.token}")[2]["Set-Cookie"].split(";")[0]
            for server in (one, two)
        )
        assert ask(one, "/data", Cookie=cookies)[0] == ask(two, "/data", Cookie=cookies)[0] == 200


def test_token_of_any_letter_that_a_cookie_may_hold(stream):
    token = "a+b&c=d/e?%41"
    with Running(stream.directory, token=token) as server:
        status, _, headers = ask(server, server.url.partition(f":{server.port}")[2])
        assert status == 303
        assert ask(server, "/data", Cookie=headers["Set-Cookie"].split(";")[0])[0] == 200
        assert ask(server, "/data", Authorization=f"Bearer {token}")[0] == 200
    watcher = Watcher([open_source(str(stream.directory))])
    for bad in ("a;b", "a b", "a\r\nX: y", 'a"b', "a,b", "a\\b", "", "é", "x" * 201):
        with pytest.raises(ValueError, match="token: expected 1 to 200 ASCII"):
            Server(watcher, token=bad)


def test_another_address_has_a_token(stream):
    watcher = Watcher([open_source(str(stream.directory))])
    server = Server(watcher, "0.0.0.0")
    assert len(server.token) >= 24
    assert server.token in server.url
    server.stop()
    server = Server(watcher, "127.0.0.1")
    assert server.token is None
    server.stop()


def test_loopback():
    assert [is_loopback(x) for x in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(x) for x in ("0.0.0.0", "10.0.0.1", "::", "example", "")] == [False] * 5


def test_too_many(served, monkeypatch):
    held = []
    while served.enter():
        held.append(1)
    assert ask(served, "/data")[0] == 503
    for _ in held:
        served.leave()
    assert ask(served, "/data")[0] == 200


# as it comes ---------------------------------------------------------------------------------


class Listener(threading.Thread):
    """Reads server-sent events."""

    def __init__(self, server, **headers):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
        self.connection.request("GET", "/events", headers=headers)
        self.answer = self.connection.getresponse()
        self.pages, self.ids, self.comments = [], [], 0
        self.start()

    def run(self):
        for line in self.answer:
            if line.startswith(b"data: "):
                self.pages.append(json.loads(line[6:]))
            elif line.startswith(b"id: "):
                boot, _, number = line[4:].decode().partition("-")
                self.boot = boot
                self.ids.append(int(number))
            elif line.startswith(b":"):
                self.comments += 1


def test_events(stream, served):
    listener = Listener(served)
    assert listener.answer.headers["Content-Type"].startswith("text/event-stream")
    until(lambda: listener.pages)
    stream.costs = stream.costs * 3
    row = stream.batch()
    until(lambda: [t["before"] for t in listener.pages[-1]["tasks"]] == row["loads"])
    assert listener.ids == sorted(set(listener.ids))
    served.stop()
    listener.join(WAIT)
    assert not listener.is_alive()


def test_events_go_on_where_they_were(stream, served):
    version, _ = served.watcher.current
    again = Listener(served, **{"Last-Event-ID": f"{served.boot}-{version}"})
    stream.batch()
    until(lambda: again.pages)
    assert again.ids[0] > version
    assert again.boot == served.boot
    version, _ = served.watcher.current
    # Of a server before this one, also where it had sent as many pages.
    for last in ("999999", str(version), f"00000000-{version}", f"{served.boot}-x"):
        other = Listener(served, **{"Last-Event-ID": last})
        until(lambda other=other: other.pages)


def test_idle_streams_are_kept(stream, monkeypatch):
    monkeypatch.setattr("pyroute.serve.server.KEEP_ALIVE", 0.05)
    with Running(stream.directory) as server:
        listener = Listener(server)
        until(lambda: listener.comments > 2)


def test_hashed(stream):
    watcher = Watcher([open_source(str(stream.directory))], hash_keys=b"salt")
    assert str(BIG) not in watcher.current[1]
    stream.batch()
    watcher.look()
    assert str(BIG) not in watcher.current[1]


@pytest.mark.parametrize("hash_keys", [False, True, b"salt"])
def test_unchanged_pages_are_not_sent(stream, hash_keys):
    watcher = Watcher([open_source(str(stream.directory))], hash_keys=hash_keys)
    version, _ = watcher.current
    watcher.look()
    assert watcher.current[0] == version


# the command ---------------------------------------------------------------------------------


def command(*arguments):
    return [sys.executable, "-m", "pyroute", "serve", *map(str, arguments)]


def run(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=WAIT)


def test_port_in_use(stream):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(stream.directory, "--port", port)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"pyroute serve: port {port} of 127.0.0.1 is in use: --port 0 takes one that is free"
    ]
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["/no/such/place"], "there is nothing"),
        ([".", "--host", "256.1.1.1"], "256.1.1.1"),
        ([".", "--token", ""], "token: expected 1 to 200 ASCII characters"),
        ([".", "--port", "99999"], "--port"),
    ],
)
def test_called_wrongly(arguments, text):
    done = run(*arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_command(stream, end):
    with subprocess.Popen(
        command(stream.directory, "--port", 0),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        line = process.stdout.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", line)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
        connection.request("GET", "/data")
        assert json.loads(connection.getresponse().read())["title"] == "clicks"
        connection.close()
        process.send_signal(end)
        assert process.wait(WAIT) == 0
        assert "Traceback" not in process.stderr.read()


def test_command_as_json(stream):
    with subprocess.Popen(
        command(stream.directory, "--port", 0, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        text = ""
        while not text.endswith("\n}\n"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            text += line
        document = json.loads(text)
        connection = http.client.HTTPConnection(document["host"], document["port"], timeout=WAIT)
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b"ok\n"
        connection.close()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=WAIT)
        assert (process.returncode, rest) == (0, "")
    assert (document["problems"], document["token"]) == ([], None)


# counters ------------------------------------------------------------------------------------


def test_counters():
    registry = metrics.Registry()
    counter = registry.counter("hits", 'Back\\slash\nand "quotes".', ["who"])
    counter.add(2, who='a"b\\c\nd')
    counter.add(0.5, who='a"b\\c\nd')
    registry.gauge("level", "Now.").set(float("inf"))
    assert registry.text() == (
        '# HELP hits_total Back\\\\slash\\nand "quotes".\n# TYPE hits_total counter\n'
        'hits_total{who="a\\"b\\\\c\\nd"} 2.5\n# HELP level Now.\n# TYPE level gauge\nlevel +Inf\n'
    )
    with pytest.raises(ValueError, match="amount"):
        counter.add(-1, who="x")
    with pytest.raises(ValueError, match="labels"):
        counter.add(1)
    with pytest.raises(ValueError, match="expected a counter"):
        registry.gauge("hits", "", ["who"])
    with pytest.raises(ValueError, match="small letters"):
        registry.counter("No Good", "")
    assert registry.counter("hits", "", ["who"]) is counter


def test_counters_are_bounded(monkeypatch):
    monkeypatch.setattr(metrics, "_MOST", 3)
    counter = metrics.Registry().counter("hits", "", ["who"])
    for i in range(10):
        counter.add(1, who=i)
    assert len(counter.items()) == 3


def test_what_is_counted():
    import pyroute as pr

    snapshot = pr.Snapshot(["a", "b", "c", "d"], costs=[40, 30, 20, 10])
    before = metrics.PLANS.value(algorithm="mixed"), metrics.DECISIONS.value(result="applied")
    plan = pr.rebalance(snapshot, pr.Router(2))
    assert pr.Gate().decide(plan, now=0)
    after = metrics.PLANS.value(algorithm="mixed"), metrics.DECISIONS.value(result="applied")
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1]
    moved = metrics.MOVED.value()
    assert moved >= len(plan.migrations)


def shown(server, name):
    """The lines of a metric that Prometheus would read, by their labels."""
    found = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", ask(server, "/metrics")[1], re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def test_loads_of_what_is_shown_are_metrics(tmp_path):
    made, other = Stream(tmp_path / "one", tasks=3), Stream(tmp_path / "two", tasks=2)
    row = made.batch()
    metrics.LOAD.clear()  # of watchers that other tests did not stop
    metrics.IMBALANCE.clear()
    with Running(made.directory) as server:
        loads = {f'stream="clicks",task="{task}"': row["loads"][task] for task in range(3)}
        assert shown(server, "pyroute_task_load") == pytest.approx(loads)
        ratio = max(row["loads"]) * 3 / sum(row["loads"]) - 1
        assert shown(server, "pyroute_imbalance") == pytest.approx({'stream="clicks"': ratio})
        row = made.batch(tasks=[0, 7], loads=[30.0, 10.0])  # tasks that are gone are not kept
        gone = {'stream="clicks",task="0"': 30.0, 'stream="clicks",task="7"': 10.0}
        until(lambda: shown(server, "pyroute_task_load") == gone)
        assert shown(server, "pyroute_imbalance") == {'stream="clicks"': 0.5}
    other.batch()
    with Running(made.directory, other.directory) as server:  # two of one name
        names = {re.search('stream="(.*?)"', one)[1] for one in shown(server, "pyroute_task_load")}
        assert names == {str(made.directory), str(other.directory)}
    assert metrics.LOAD.items() == metrics.IMBALANCE.items() == []


def test_how_long_a_place_was_not_read_is_a_metric(tmp_path, stream):
    now = [100.0]
    (tmp_path / "empty").mkdir()
    places = [stream.directory, tmp_path / "empty"]
    watcher = Watcher([open_source(str(place)) for place in places], clock=lambda: now[0])
    now[0] += 30.0
    watcher.look()
    ages = {labels["place"]: seconds for labels, seconds in AGE.items()}
    assert [ages[str(place)] for place in places] == [0.0, 30.0]
    shutil.move(stream.directory, tmp_path / "away")
    now[0] += 5.0
    watcher.look()
    ages = {labels["place"]: seconds for labels, seconds in AGE.items()}
    assert [ages[str(place)] for place in places] == [5.0, 35.0]


def test_threads_count_all():
    counter = metrics.Registry().counter("hits", "")
    threads = [
        threading.Thread(target=lambda: [counter.add() for _ in range(2000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value() == 8000


def test_opentelemetry():
    sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="opentelemetry-sdk is missing")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    registry = metrics.Registry()
    registry.counter("hits", "Hits.", ["who"]).add(3, who="a")
    registry.gauge("level", "Level.").set(1.5)
    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    registry.export(provider.get_meter("pyroute"))
    data = reader.get_metrics_data()
    found = {
        metric.name: [(dict(point.attributes), point.value) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert found == {"hits": [({"who": "a"}, 3)], "level": [({}, 1.5)]}
    provider.shutdown()


# a store of settings -------------------------------------------------------------------------


class Documents:
    """What `ConfigStore` shows of itself, in memory."""

    def __init__(self):
        self.values, self.versions, self.broken = {}, {}, set()

    def put(self, name, value):
        self.values[name] = value
        self.versions[name] = self.versions.get(name, 0) + 1

    def names(self):
        if "store" in self.broken:
            raise ConnectionError("no ZooKeeper answers")
        return sorted(self.values)

    def get(self, name):
        if name in self.broken:
            raise ValueError("version 2: checksum")
        return SimpleNamespace(version=self.versions[name], value=self.values[name])

    def close(self):
        pass


@pytest.fixture
def settings(monkeypatch):
    store = Documents()
    kind = SimpleNamespace(open=lambda place, wait: store)
    module = SimpleNamespace(ConfigStore=kind)
    monkeypatch.setattr("pyroute.serve.settings.import_module", lambda name: module)
    return store


def status(decision):
    versions = {"count": 3}
    return {"phase": "idle", "epoch": 4, "decision": decision, "versions": versions}


def test_reads_settings(settings):
    import pyroute as pr

    settings.put("urls/spout->count", {"kind": "split", "ratio": [3, 1], "tasks": ["w1", "w2"]})
    settings.put("words/split->count", pr.Router(4, {"anna": 2}).to_bytes())
    source = open_source("storm:dir:/somewhere")
    page = source.read()
    assert [(part.name, part.share) for part in page.ratio] == [("w1", 0.75), ("w2", 0.25)]
    facts = {fact.name: fact.detail for fact in page.facts}
    assert facts["words/split->count"] == "1 keys in a table over 4 tasks"
    assert page.events == ()
    settings.put("urls/status", status("nothing"))
    source.read()
    settings.put("urls/status", status("count: applied: gain 0.2 >= 0.02"))
    settings.put("urls/spout->count", {"ratio": [1, 0]})
    events = source.read().events
    assert {event.kind for event in events} == {"ratio", "applied"}
    assert any("count at version 3" in event.text for event in events)
    settings.put("urls/spout->count", pr.DynamicGrouping.from_ratio([1, 1]).to_bytes())
    assert [part.share for part in source.read().ratio] == [0.5, 0.5]


def measured(**loads):
    keys = {"count": [["anna", 6.0, 512, 0], [2**60 + 1, 2.0, 64, 1], [["de", 7], 1.0, 64, 1]]}
    plans = {"count": {"plans": 2, "keys": 30, "bytes": 4096, "share": 0.1, "seconds": 0.2}}
    return {**status("nothing"), "loads": {"count": loads}, "keys": keys, "plans": plans}


def test_settings_show_what_the_manager_measured(settings):
    """Loads per task and hot keys of a topology on Storm, what moved, and who refused."""
    settings.put("urls/status", measured(**{"0": 6.0, "1": 4.0}))
    source = open_source("storm:dir:/somewhere")
    page = source.read()
    assert [(task.task, task.before) for task in page.tasks] == [("0", 6.0), ("1", 4.0)]
    found = [(key.key.text, key.count, key.share, key.task) for key in page.hot_keys]
    assert found[:2] == [("anna", 6.0, 0.6, "0"), (str(2**60 + 1), 2.0, 0.2, "1")]
    assert page.hot_keys[2].key.text == "de | 7"
    facts = {fact.name: fact for fact in page.facts}
    assert facts["busiest task of count"].value == "1.20x"
    assert "count: 2 plans moved 30 keys with 4.0 KiB" in facts["urls/status"].detail
    settings.put("urls/status", measured(**{"0": 5.0, "1": 5.0}))
    page = source.read()
    assert page.tasks[0].before == 5.0
    assert page.events == ()  # loads that change are no event
    both = {**measured(**{"0": 5.0}), "refusals": {"count[1]": "ids: damaged"}}
    both["loads"]["tags"] = {"0": 1.0}
    settings.put("urls/status", both)
    page = source.read()
    assert [task.task for task in page.tasks] == ["count 0", "tags 0"]
    assert page.warnings == ("urls/status: count[1]: ids: damaged",)
    watcher = Watcher([source], hash_keys=True)
    assert "anna" not in watcher.current[1]
    for damaged in ({"loads": {"count": {"0": "much"}}}, {"keys": {"count": [["anna"]]}}):
        settings.put("urls/status", {**measured(**{"0": 5.0}), **damaged})
        assert "urls/status: expected what a manager writes" in str(source.read().warnings)


def test_settings_survive(settings):
    watcher = Watcher([open_source("dir:/somewhere")])
    assert "no documents" in watcher.problems[0]
    settings.put("a/b->c", {"ratio": [1, 1]})
    settings.put("damaged", b"\x00")
    settings.broken.add("damaged")
    watcher.look()
    page = json.loads(watcher.current[1])
    assert page["warnings"] == ["damaged: version 2: checksum"]
    assert len(page["ratio"]) == 2
    settings.broken.add("store")
    watcher.look()
    assert "no ZooKeeper answers" in watcher.problems[0]
    settings.broken.clear()
    watcher.look()
    assert not watcher.problems


def test_settings_of_a_directory(tmp_path):
    control = pytest.importorskip("pyroute.control", reason="pyroute.control is not there")
    with contextlib.closing(control.ConfigStore.open(f"dir:{tmp_path}")) as store:
        store.put("a/b->c", {"ratio": [7, 3, 2]}, expect_version=0)
        source = open_source(f"storm:dir:{tmp_path}")
        assert [round(12 * part.share) for part in source.read().ratio] == [7, 3, 2]
        store.put("a/b->c", {"ratio": [1, 1, 1]}, expect_version=1)
        assert "ratio" in source.read().events[0].kind
        source.close()
