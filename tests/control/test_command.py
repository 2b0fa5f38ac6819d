"""The command `pyroute control`: as a user calls it, with everything that can be wrong."""

import contextlib
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from postgres import PostgreSQL
from postgres import require as require_postgres
from pyroute.control import ConfigStore, Store
from zookeeper import ZooKeeper
from zookeeper import require as require_zookeeper

pytest.importorskip("typer", reason="typer is missing: pip install 'pyroute-core[cli]'")


def call(*words, **options):
    environment = {**os.environ, "COLUMNS": "200", "PYTHONWARNINGS": "default"}
    return subprocess.run(
        [sys.executable, "-m", "pyroute", "control", *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=180,
        **options,
    )


def demo(tmp_path, *more):
    return call(
        *("demo", "source->work", "--config", f"dir:{tmp_path / 'conf'}", "--period", "0.1"),
        *("--turns", "3", *more),
    )


def test_help():
    done = call("--help")
    assert done.returncode == 0
    assert "pyroute control urls" in done.stdout


def test_json_lines(tmp_path):
    done = demo(
        tmp_path, "--worker", f"w0={os.getpid()}", "--worker", "w1", "--json",
        "--store", tmp_path / "control.db", "--hook", "0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    statuses = [json.loads(line) for line in done.stdout.splitlines()]
    assert [status["turn"] for status in statuses] == [1, 2, 3]
    assert statuses[-1]["ratio"] == {"w0": 0.5, "w1": 0.5}
    assert statuses[-1]["edge"] == "demo/source->work"
    assert "listening to the hook on port" in done.stderr


def test_text(tmp_path):
    done = demo(tmp_path, "--worker", "w0", "--worker", "w1=999999999")
    assert done.returncode == 0
    assert "w0 50.0%, w1 50.0%" in done.stdout
    assert done.stderr.count("worker w1: process 999999999 is gone") == 1


def test_workers_of_the_document(tmp_path):
    with ConfigStore.open(f"dir:{tmp_path / 'conf'}") as config:
        config.put("demo/source->work", {"ratio": [3, 1], "tasks": ["a", "b"]}, 0)
    done = demo(tmp_path, "--json", "--policy", "proportional")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["ratio"] == {"a": 0.75, "b": 0.25}
    with ConfigStore.open(f"dir:{tmp_path / 'conf'}") as config:
        assert config.get("demo/source->work").version == 1  # nothing measured, nothing changed


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--worker", "w0=x"], "--worker: expected NAME=PID"),
        ([], "--worker: expected names"),
        (["--worker", "w0", "--worker", "w0"], "--worker: expected distinct"),
        (["--worker", "w0", "--policy", "x"], "policy: expected one of"),
        (["--worker", "w0", "--spark", "x"], "url: expected http"),
        (["--worker", "=5"], "--worker: expected NAME=PID"),
        (["--worker", "w0", "--store", "mysql://x/y"], "url: expected a path, sqlite"),
        (["--worker", "w0", "--report"], "--store: expected one with --report"),
        (["--worker", "w0", "--retrain", "600"], "--store: expected one with --report"),
        (["--worker", "w0", "--reports", "--store", "{noise}"], "move the file away"),
        (["--worker", "w0", "--store", "/no/such/folder/x.db"], "unable to open database file"),
        (["--worker", "w0", "--store", "postgresql://h:port/x"], "url: expected a path, sqlite"),
        (["--worker", "w0", "--store", "postgresql://127.0.0.1:99999/x"], "invalid port number"),
        (["--worker", "w0", "--config", "zk://127.0.0.1:port/x"], "url: expected zk://HOST:PORT"),
        (["--worker", "w0", "--config", "zk://127.0.0.1:1//x"], "url: expected zk://HOST:PORT"),
    ],
)
def test_wrong_options(tmp_path, words, text):
    (tmp_path / "noise.db").write_bytes(b"nonsense" * 1000)
    done = demo(tmp_path, *(str(tmp_path / "noise.db") if w == "{noise}" else w for w in words))
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_wrong_edge_and_config(tmp_path):
    done = call("demo", "nonsense", "--config", f"dir:{tmp_path}", "--worker", "w0")
    assert done.returncode == 2
    assert "expected two names and an arrow" in done.stderr
    done = call("demo", "a->b", "--config", "nonsense", "--worker", "w0")
    assert done.returncode == 2
    assert "url: expected dir:PATH" in done.stderr
    assert call("demo", "a->b").returncode == 2
    assert call("demo", "a->b", "--config", f"dir:{tmp_path}", "--period", "99").returncode == 2


def test_port_in_use(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        done = demo(tmp_path, "--worker", "w0", "--hook", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "port: expected a free one" in done.stderr


def test_broken_store_is_no_reason_to_stop(tmp_path):
    (tmp_path / "control.db").write_bytes(b"nonsense" * 1000)
    done = demo(tmp_path, "--worker", "w0", "--store", tmp_path / "control.db")
    assert done.returncode == 0
    assert "going on without it" in done.stderr
    assert "move the file away" in done.stderr


def test_store_of_a_newer_version(tmp_path):
    with Store.open(tmp_path / "control.db") as store, store._begin() as connection:
        connection.exec_driver_sql("UPDATE pyroute_about SET value = '99'")
    done = demo(tmp_path, "--worker", "w0", "--store", tmp_path / "control.db")
    assert done.returncode == 0
    assert "expected schema 2, got 99; going on without it" in done.stderr


def test_disk_that_is_full(tmp_path):
    """Files of at most 60 kB: the store cannot grow, and routing goes on."""

    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    words = ["--worker", "w0", "--worker", "w1", "--json", "--store", str(tmp_path / "control.db")]
    Store.open(tmp_path / "control.db").close()
    with ConfigStore.open(f"dir:{tmp_path / 'conf'}") as config:
        config.put("demo/source->work", {"ratio": [3, 1], "tasks": ["w0", "w1"]}, 0)
    done = call(
        *("demo", "source->work", "--config", f"dir:{tmp_path / 'conf'}", "--period", "0.1"),
        *("--turns", "20", *words),
        preexec_fn=small,
    )
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert "routing goes on without it" in last["problems"]["store"]
    assert last["ratio"] == {"w0": 0.75, "w1": 0.25}


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_log_on_a_disk_that_is_full(tmp_path, words):
    """What it says is lost; what it does is not."""
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is missing")
    words = ["--config", f"dir:{tmp_path / 'conf'}", "--worker", "w0", *words]
    words += ["--store", str(tmp_path / "control.db"), "--period", "0.1", "--turns", "5"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pyroute", "control", "demo", "a->b", *words],
            stdout=full,
            stderr=full,
            timeout=180,
        )
    assert done.returncode in (0, 120)  # 120: Python could not say its last words either
    with Store.open(tmp_path / "control.db") as store:
        assert len(set(store.read(0.0, 1e12)["sent"].to_pylist())) == 5


def test_one_host_reports_and_another_decides(tmp_path):
    database = tmp_path / "control.db"
    done = demo(tmp_path, "--worker", "w0", "--report", "--store", database, "--json")
    assert done.returncode == 0, done.stderr
    done = demo(tmp_path, "--worker", "w0", "--reports", "--store", database, "--json")
    assert done.returncode == 0, done.stderr
    assert demo(tmp_path, "--worker", "w0", "--report").returncode == 2
    with ConfigStore.open(f"dir:{tmp_path / 'conf'}") as config:
        assert config.names() == []


def test_dry_run_publishes_nothing(tmp_path):
    done = demo(tmp_path, "--worker", "w0", "--worker", "w1", "--dry-run", "--json")
    assert done.returncode == 0
    with ConfigStore.open(f"dir:{tmp_path / 'conf'}") as config:
        assert config.names() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_when_asked(tmp_path, number):
    words = ["demo", "a->b", "--config", f"dir:{tmp_path / 'conf'}", "--worker", "w0", "--json"]
    words += ["--store", str(tmp_path / "control.db"), "--period", "0.2"]
    with subprocess.Popen(
        [sys.executable, "-m", "pyroute", "control", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline()
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    with sqlite3.connect(tmp_path / "control.db") as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.close()


ANYWHERE = """
import signal, sys, time
from pyroute.cli.stop import Stop
from pyroute.control.command import _stopped_by_signals
at, ended, late = 0, False, []
while not ended:  # a signal at each point of waiting, one after the other
    at, count = at + 1, 0
    def trace(frame, event, _):
        global count
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == at:
                signal.raise_signal(signal.SIGTERM)
        return trace
    stop = Stop()
    with _stopped_by_signals(stop):
        begun = time.monotonic()
        sys.settrace(trace)
        stop.wait(0.5)
        sys.settrace(None)
        ended = not stop.is_set()
    late.append(time.monotonic() - begun > 0.4)
assert late == sorted(late), late  # what comes after the wait is late, and nothing before
print(late.count(False))
"""


def test_a_signal_at_any_point_of_waiting():
    """The handler runs in the thread that waits: it must not need what that holds."""
    done = subprocess.run(
        [sys.executable, "-c", ANYWHERE], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


# what is away at the start ----------------------------------------------------------------------


@contextlib.contextmanager
def running(*words):
    """The command while it runs, what it says period by period, and its errors; ended by Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pyroute", "control", "demo", "a->b", "--json", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    limit = threading.Timer(240, process.kill)
    limit.start()
    statuses = (json.loads(line) for line in process.stdout)
    try:
        yield statuses, process.stderr
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


@pytest.mark.parametrize("report", [False, True])
def test_postgresql_that_is_started_later(tmp_path, report):
    require_postgres()
    server = PostgreSQL()
    words = ["--config", f"dir:{tmp_path / 'conf'}", "--worker", f"w0={os.getpid()}"]
    words += ["--store", server.url, "--period", "0.2", *(["--report"] if report else [])]
    with running(*words) as (statuses, errors):
        first = next(statuses)
        assert "Connection refused" in first["problems"]["store"]
        assert first["problems"]["store"].endswith("; routing goes on without it")
        assert "going on without it until it can be opened" in errors.readline()
        assert "store" in next(statuses)["problems"]
        with server:
            assert any("store" not in status["problems"] for status in statuses)
            for _ in range(3):
                assert "store" not in next(statuses)["problems"]
            with Store.open(server.url) as store:
                assert set(store.read(0.0, 1e12)["worker"].to_pylist()) == {"", "w0"}
                assert ("store", "over") in [(kind, text) for _, kind, text in store.events()]
            server.kill()  # and once more while it runs
            assert any("store" in status["problems"] for status in statuses)
            server.start()
            assert any("store" not in status["problems"] for status in statuses)


def send(port, worker, service):
    told = {"component": "b", "task": 0, "worker": worker, "seconds": 1.0, "records": 100}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        told |= {"service_ms": service, "backlog": 0}
        out.sendto(json.dumps(told).encode(), ("127.0.0.1", port))


def test_zookeeper_that_is_started_later(tmp_path):
    """It measures and decides meanwhile, at its cadence; what it decided is published then."""
    require_zookeeper()
    server = ZooKeeper(tmp_path)
    url = f"zk://{server.hosts}/later"
    words = ["--config", url, "--worker", "w0", "--worker", "w1", "--period", "0.2", "--hook", "0"]
    with running(*words) as (statuses, errors):
        port = int(errors.readline().split()[-1])
        told = []

        def turned():
            for name, each in (("w0", 5.0), ("w1", 25.0)):
                send(port, name, each)
            told.append(next(statuses))
            return told[-1]

        for _ in range(10):
            status = turned()
            assert "ZooKeeper, got" in status["problems"]["config"]
            assert (status["version"], status["ratio"]) == (0, {"w0": 0.5, "w1": 0.5})
        # After the first, which waits for it, none takes longer for a server that is away.
        assert told[-1]["time"] - told[2]["time"] < 7 * 2.0
        with server:
            while turned()["version"] < 1 or "config" in told[-1]["problems"]:
                pass
            with ConfigStore.open(url) as config:
                shares = config.get("demo/a->b").value["ratio"]
            assert shares[0] > shares[1]


def test_workers_of_a_document_that_cannot_be_read_yet(tmp_path):
    require_zookeeper()
    server = ZooKeeper(tmp_path)
    url = f"zk://{server.hosts}/later"
    with server, ConfigStore.open(url) as config:
        config.put("demo/a->b", {"ratio": [3, 1], "tasks": ["x", "y"]}, 0)
    with running("--config", url) as (_, errors):  # ends while it waits
        assert "the workers are read when it answers" in errors.readline()
    with running("--config", url, "--period", "0.2") as (statuses, errors):
        assert "the workers are read when it answers" in errors.readline()
        with server:
            assert next(statuses)["ratio"] == {"x": 0.75, "y": 0.25}


@pytest.fixture
def python(tmp_path, monkeypatch):
    """What is called instead of Python, and a folder for temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    def write(text):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return write


def test_retraining_asks_the_command_that_trains(tmp_path, python):
    """What trains is `pyroute train` on the store; what it says is said when it fails."""
    from pyroute.control.command import Trainer
    from pyroute.control.loop import History
    from pyroute.control.predictor import Predictor

    sizes = {"window": 2, "workers": 2, "features": 1, "layers2": 1, "hidden2": 1, "skip": True}
    weights = [0.0] * 9 + [0.0, 0.0] + [0.5, 0.5]
    model = Predictor.make(sizes, names=["queue_ms"], weights=weights)
    model.save(tmp_path / "trained")
    # The words are kept; the weights go where the sixth says.
    python(f'echo "$@" > {tmp_path}/words; echo progress >&2; cp {tmp_path}/trained "$6"')
    training = Trainer(str(tmp_path / "control.db"), "--last", "7")
    values = np.array([[1.0, 1.0, np.nan]] * 3)
    silent = History(("a", "b", "never"), values, {"queue_ms": values})
    values = np.ones((3, 2))
    training.train(silent)
    assert "--only a --only b --" in (tmp_path / "words").read_text()
    made = training.train(History(("a", "b"), values, {"queue_ms": values}))
    assert made.predict(np.ones((2, 2))) == pytest.approx(model.predict(np.ones((2, 2))))
    words = (tmp_path / "words").read_text()
    assert f"-m pyroute train sqlite:///{tmp_path / 'control.db'} --out" in words
    assert "--target queue_ms --log queue_ms" in words
    assert words.endswith("--last 7\n")
    python('echo "pyroute train: rows: expected more" >&2; exit 2')
    with pytest.raises(RuntimeError, match="rows: expected more"):
        training.train(History(("a", "b"), values, {}))
    training.close()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_no_training_outlives_control(tmp_path, python):
    from pyroute.control.command import Trainer
    from pyroute.control.loop import History

    python(f"echo $$ > {tmp_path}/pid; exec sleep 600")
    training = Trainer(str(tmp_path / "control.db"))
    errors = []

    def train():
        try:
            training.train(History(("a",), np.ones((3, 1))))
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    training.close()
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert list((tmp_path / "temporary").iterdir()) == []
    thread.join(60)
    assert errors == ["exit code -15"]
    with pytest.raises(RuntimeError, match="ended"):  # nor does another begin
        training.train(History(("a",), np.ones((3, 1))))


def test_live_view():
    from rich.console import Console

    from pyroute.control.command import _view
    from pyroute.control.loop import Loop

    status = Loop("demo/a->b", ["w0", "w1"], [list]).step()
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(_view(status))
    console.file.close()
    text = console.export_text()
    assert "w0" in text
    assert "in service" in text
    assert "none reports" in text
    assert time.time() - status.time < 3600
