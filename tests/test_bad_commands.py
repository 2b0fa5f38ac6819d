"""Bad input on the commands of the other parts: one line, exit code 2, nothing half written.

The commands on files are in tests/test_cli_files.py, control in tests/control/test_command.py.
"""

import importlib
import socket

import numpy as np
import pytest

pytest.importorskip("typer", reason="typer is missing: pip install 'pyroute-core[cli]'")
pa = pytest.importorskip("pyarrow", reason="pyarrow is missing: pip install 'pyroute-core[cli]'")
pq = importlib.import_module("pyarrow.parquet")

COMMANDS = {
    "arena": ("pyroute.arena.command", "numpy"),
    "doctor": ("pyroute.cli.doctor", "numpy"),
    "serve": ("pyroute.serve.command", "numpy"),
    "storm": ("pyroute.storm.command", "numpy"),
    "train": ("pyroute.control.train.command", "equinox"),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder of bad things."""
    folder = tmp_path_factory.mktemp("bad")
    few = {
        "customer": ["a", "b"],
        "half": [0.5, 1.5],
        "less": [1.0, -2.0],
        "odd": [1.0, float("nan")],
        "ts": [1.0, 2.0],
    }
    pq.write_table(pa.table(few), folder / "t.parquet")
    pq.write_table(pa.table(few).slice(0, 0), folder / "none.parquet")
    data = (folder / "t.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(data[: len(data) // 2])
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "noise.db").write_bytes(b"nonsense" * 1000)
    (folder / "noise.csv").write_bytes(b"a,b\n1\n1,2,3\n")
    long = {"ts": np.arange(300.0), "worker": ["w"] * 300, "service_ms": np.arange(300.0)}
    pq.write_table(pa.table(long | {"name": ["x"] * 300}), folder / "r.parquet")
    (folder / "folder").mkdir()
    return folder


TRACE = ["arena", "t.parquet", "--key", "customer", "--cost", "half", "--tasks", "2"]
READINGS = ["train", "r.parquet", "--no-baselines"]

CASES = [
    (["arena", "nowhere.parquet", "--key", "k", "--cost", "c"], "no such file or directory"),
    (["arena", "folder", "--key", "k", "--cost", "c"], "expected files in the directory, got none"),
    (["arena", "t.parquet"], "--key and --cost: expected both with a FILE"),
    (["arena", "--key", "k"], "--key: expected a FILE with it"),
    (
        ["arena", "t.parquet", "--key", "no", "--cost", "half"],
        "t.parquet: no column 'no'",
    ),
    (["arena", "t.parquet", "--key", "customer", "--cost", "customer"], "t.parquet: "),
    (["arena", "t.parquet", "--key", "customer", "--cost", "less"], "finite numbers >= 0"),
    (["arena", "t.parquet", "--key", "customer", "--cost", "odd"], "finite numbers >= 0"),
    (["arena", "t.parquet", "--key", "half", "--cost", "ts"], "t.parquet: "),
    (["arena", "none.parquet", "--key", "customer", "--cost", "ts"], "expected records, got none"),
    (["arena", "empty.parquet", "--key", "k", "--cost", "c"], "empty.parquet: "),
    (["arena", "cut.parquet", "--key", "customer", "--cost", "half"], "cut.parquet: "),
    ([*TRACE, "--policy", "nope"], "policy: expected one of"),
    ([*TRACE, "--speed", "1"], "speeds: expected 2 numbers"),
    ([*TRACE, "--speed", "1", "--speed", "0"], "speeds: expected finite numbers above 0"),
    ([*TRACE, "--unit", "0"], "--unit: expected more than 0"),
    ([*TRACE, "--plot", "nowhere/x.svg"], "--plot: no such directory"),
    ([*TRACE, "--plot", "t.parquet"], "--plot: expected a file of its own"),
    ([*TRACE, "--delimiter", ";"], "--delimiter: expected CSV with it, got parquet"),
    ([*TRACE, "--plot", "folder"], "--plot: expected a file, got the directory"),
    ([*TRACE, "--tasks", "0"], "--tasks"),
    (["train", "nowhere.parquet"], "nowhere.parquet: expected a file, got none"),
    (["train", "folder"], "folder: expected a file or a store, got a directory"),
    (["train", "empty.parquet"], "empty.parquet: expected Parquet or CSV"),
    (["train", "cut.parquet"], "cut.parquet: expected Parquet or CSV"),
    (["train", "noise.csv"], "noise.csv: expected Parquet or CSV"),
    (["train", "noise.db"], "move the file away"),
    (["train", "none.parquet", "--target", "ts"], "expected rows with a time, got 0"),
    (["train", "mysql://x/y"], "url: expected a path, sqlite or postgresql"),
    ([*READINGS, "--target", "name"], "name: expected numbers, got string"),
    ([*READINGS, "--target", "no"], "no: expected a column of"),
    ([*READINGS, "--feature", "no"], "no: expected a column of"),
    ([*READINGS, "--log", "no"], "--log: expected one of"),
    ([*READINGS, "--kind", "no"], "--kind: expected better"),
    ([*READINGS, "--step", "0"], "step: expected a number > 0"),
    ([*READINGS, "--window", "400"], "expected more than 2400 steps"),
    ([*READINGS, "--out", "nowhere/x.weights"], "--out: no such directory"),
    ([*READINGS, "--out", "folder"], "--out: expected a file, got the directory"),
    (["serve", "nowhere"], "expected the directory of a stream"),
    (["serve", "mysql://x/y"], "expected the directory of a stream"),
    (["serve", "storm:nonsense"], "storm: expected dir:PATH or zk://HOST:PORT/PATH"),
    (["serve", "zk://"], "storm: expected dir:PATH or zk://HOST:PORT/PATH"),
    (["serve", "folder", "--host", "192.0.2.1"], "192.0.2.1: "),
    (["serve", "folder", "--port", "99999"], "--port"),
    (["serve", "folder", "--port", "{taken}"], "is in use: --port 0 takes one that is free"),
    (["serve", "folder", "--token", ""], "token: expected 1 to 200 ASCII"),
    (["doctor", "nope"], "FEATURE: expected one of"),
    (["storm", "nope"], "KIND: expected one of router"),
]


@pytest.mark.parametrize(("words", "message"), CASES, ids=[" ".join(w) for w, _ in CASES])
def test_one_line(here, words, message, monkeypatch, capsys):
    from pyroute.cli.commands import of_function

    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", "200")
    module, needed = COMMANDS[words[0]]
    pytest.importorskip(needed)
    before = sorted(path for path in here.rglob("*"))
    function = getattr(importlib.import_module(module), words[0])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        filled = [word.replace("{taken}", port) for word in words[1:]]
        with pytest.raises(SystemExit) as end:
            of_function(words[0], function).main(filled, f"pyroute {words[0]}")
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, ""), err
    assert message in err
    assert "Traceback" not in err
    assert "Usage:" in err or (err.startswith(f"pyroute {words[0]}: ") and err.count("\n") == 1)
    assert sorted(path for path in here.rglob("*")) == before


def test_storm_says_what_a_topology_can_name(capsys, monkeypatch):
    import json

    from pyroute.cli.commands import of_function
    from pyroute.storm.__main__ import KINDS
    from pyroute.storm.command import storm

    monkeypatch.setenv("COLUMNS", "200")
    command = of_function("storm", storm)

    def call(*words):
        with pytest.raises(SystemExit) as end:
            command.main(list(words), "pyroute storm")
        assert not end.value.code
        return capsys.readouterr().out

    assert all(f"python3 -m pyroute.storm {kind}" in call() for kind in KINDS)
    shown = call("dynamic")
    assert "--store URL" in shown
    assert '["python3", "-m", "pyroute.storm", "dynamic", "TARGET"]' in shown
    document = json.loads(call("dynamic", "--json"))
    assert document["bolts"]["dynamic"]["options"] == ["target", "--store", "--bits"]
