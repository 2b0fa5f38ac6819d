"""`pyroute analyze --spark-log` on logs of a real Spark: rolled, compressed, plain, cut off.

How many rows a task has is Spark's; how long it took depends on who else uses the machine. So where
a test is about time, the times of the log are replaced by ones that follow from the rows; but for
one log, whose straggler really sleeps.
"""

import importlib
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from pyroute.analyze.source import InputError
from pyroute.analyze.spark_log import _lines, logs, read_log
from pyroute.cli.spark_log import next_lines

TIMEOUT = 300
ROWS = 60_000


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    job = Path(__file__).with_name("log_job.py")
    done = subprocess.run(
        [sys.executable, str(job), str(folder)], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def one(folder):
    [path] = logs(folder)
    return path


def timed(path, to, micros=1000):
    """The log as one plain file, in which a row takes so many microseconds and nothing waits."""
    lines, free = [], {}
    files = sorted(path.glob("events_*")) if path.is_dir() else [path]
    for file in files:
        for line in _lines(file):
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                metrics, info = event["Task Metrics"], event["Task Info"]
                rows = metrics["Shuffle Read Metrics"]["Total Records Read"] or 1000
                took = rows * micros // 1000
                slots = free.setdefault(event["Stage ID"], [0, 0])  # two cores, one after another
                slot = slots.index(min(slots))
                info["Launch Time"], info["Finish Time"] = slots[slot], slots[slot] + took
                metrics["Executor Run Time"] = took
                slots[slot] += took
            lines.append(json.dumps(event))
    to.write_text("".join(f"{line}\n" for line in lines))
    return to


def test_layouts(written):
    assert one(written / "skewed").name.startswith("eventlog_v2_")
    assert one(written / "even").suffix == ""
    assert [one(written / kind).suffix for kind in ("lz4", "snappy")] == [".lz4", ".snappy"]
    [events] = one(written / "skewed").glob("events_1_*")
    assert events.suffix == ".zstd"
    assert len(list(one(written / "several").glob("events_*"))) > 2


def test_a_task_that_really_takes_long(written):
    """Times as Spark wrote them: the rows of one customer take five seconds."""
    found = read_log(one(written / "slow"))
    [stage] = [one for one in found.straggling if one.operator]
    assert stage.operator.name == "FlatMapGroupsInArrow"
    assert stage.longest >= 5
    assert stage.by_data
    assert 0 < stage.lost <= stage.longest
    assert next_lines(found)[0] == "pyroute analyze FILE --key customer --tasks 8"


def test_several_event_files(written, spark):
    """Of a join the side that is skewed is named, though it is the second; both get one name."""
    found = read_log(one(written / "several"))
    assert found.complete
    named = {stage.operator.columns: stage for stage in found.stages if stage.operator}
    assert set(named) == {("buyer",), ("who",)}
    [join] = [s for s in found.stages if s.operator and s.operator.name == "SortMergeJoin"]
    clicks = str(written / "clicks.parquet")
    assert join.operator.files == (clicks,)
    assert join.most_rows > 40_000
    assert named["who",].operator.files == ()  # computed from a column of the file
    slow = replace(join, longest=9.0, median=1.0, lost=5.0)
    analyze, line = next_lines(replace(found, stages=(slow,)))
    assert analyze == f"pyroute analyze {clicks} --key buyer --tasks 8"
    names = {"left": spark.read.parquet(str(written / "customers.parquet"))}
    names["right"] = spark.read.parquet(clicks)
    exec(line, names)
    wanted = names["left"].join(names["right"], F.col("customer") == F.col("buyer"), "left")
    assert names["b"].df.count() == wanted.count()


def test_compacted_files_stand_for_those_before_them(written, tmp_path):
    """As Spark's history server leaves a log: the old files may still be there."""
    [events] = one(written / "skewed").glob("events_1_*")
    lines = list(_lines(events))
    part = len(lines) // 3
    parts = {
        "events_1_local-1.zstd": lines[:part],
        "events_2_local-1.zstd": lines[part : 2 * part],
        "events_2_local-1.zstd.compact": lines[: 2 * part],
        "events_3_local-1.zstd": lines[2 * part :],
    }
    folder = tmp_path / "eventlog_v2_local-1"
    folder.mkdir()
    for name, some in parts.items():
        with pa.CompressedOutputStream(pa.OSFile(str(folder / name), "wb"), "zstd") as to:
            to.write(b"".join(line + b"\n" for line in some))
    whole = read_log(one(written / "skewed"))
    found = read_log(folder)
    assert (found.complete, found.stages, found.cores) == (True, whole.stages, whole.cores)
    for name in ("events_1_local-1.zstd", "events_2_local-1.zstd"):
        (folder / name).unlink()
        assert read_log(folder).stages == whole.stages
    (folder / "events_3_local-1.zstd").rename(folder / "events_4_local-1.zstd")
    assert not read_log(folder).complete


@pytest.mark.parametrize("kind", ["skewed", "even", "lz4", "snappy"])
def test_every_codec(written, kind):
    found = read_log(one(written / kind))
    assert found.complete
    assert found.name == f"orders {kind}"
    assert found.cores == 2
    assert found.shuffle_partitions == 8
    windows = [
        stage for stage in found.stages if stage.operator and stage.operator.name == "Window"
    ]
    assert len(windows) == 1
    assert windows[0].tasks == 8
    assert windows[0].operator.columns == ("customer",)
    if kind == "even":
        assert windows[0].most_rows < 2 * ROWS / 8
        assert not windows[0].by_data
    else:
        assert windows[0].most_rows >= ROWS * 2 // 3
        assert windows[0].by_data


def test_skewed(written, tmp_path):
    found = read_log(timed(one(written / "skewed"), tmp_path / "log"))
    operators = {stage.operator.name for stage in found.straggling}
    assert operators >= {"Window", "SortMergeJoin"}
    window = next(s for s in found.straggling if s.operator.name == "Window")
    rows = window.most_rows
    assert window.longest == pytest.approx(rows / 1000)
    # All rows take 60 s, so that two cores need 30; the longest task alone takes what it has.
    assert window.lost == pytest.approx(rows / 1000 - ROWS / 1000 / 2, abs=0.01)
    assert window.lost > 10
    join = next(s for s in found.straggling if s.operator.name == "SortMergeJoin")
    assert join.operator.columns[0] in ("customer", "buyer")


def test_even(written, tmp_path):
    found = read_log(timed(one(written / "even"), tmp_path / "log"))
    assert found.straggling == []


def test_even_rows_that_take_long_are_not_the_keys(written, tmp_path):
    path = timed(one(written / "even"), tmp_path / "log")
    slow = []
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd" and event["Task Info"]["Index"] == 5:
            event["Task Metrics"]["Executor Run Time"] += 100_000
            event["Task Info"]["Finish Time"] += 100_000
        slow.append(json.dumps(event))
    path.write_text("\n".join(slow))
    [stage] = read_log(path).straggling
    assert not stage.by_data
    assert stage.longest > 100


@pytest.fixture
def command(capsys):
    from pyroute.cli.commands import of_function

    analyze = importlib.import_module("pyroute.cli.analyze").analyze

    def call(*arguments):
        try:
            of_function("analyze", analyze).main([str(a) for a in arguments], "pyroute analyze")
        except SystemExit as end:
            return end.code or 0, *capsys.readouterr()
        return 0, *capsys.readouterr()

    return call


def test_command(written, tmp_path, command):
    path = timed(one(written / "skewed"), tmp_path / "log")
    code, out, err = command("--spark-log", path)
    assert (code, err) == (0, "")
    assert "Window by customer" in out
    data = written / "the orders.parquet"
    line = f"pyroute analyze '{data}' --key customer --tasks 8"
    assert line in out
    code, analyzed, err = command(*shlex.split(line)[2:], "--json")  # and it runs as it stands
    assert (code, err) == (0, "")
    assert json.loads(analyzed)["hot_keys"][0]["key"]["v"] == "marketplace"
    assert "import spark_udf as su; b = su.balance" in out
    code, out, _ = command("--spark-log", tmp_path, "--json")
    [document] = json.loads(out)["spark_logs"]
    assert document["seconds_lost"] > 10
    assert {stage["operator"] for stage in document["straggling"]} >= {"Window"}
    code, out, _ = command("--spark-log", timed(one(written / "even"), tmp_path / "even"))
    assert code == 0
    assert "none of" in out
    assert "Next" not in out


def test_the_lines_are_those_of_spark_udf():
    """Functions and parameters that the advice names are there."""
    import inspect

    import spark_udf as su

    assert {"tasks"} <= set(inspect.signature(su.balance).parameters)
    assert {"left", "right", "on", "tasks"} <= set(inspect.signature(su.balance_join).parameters)
    assert callable(su.Balanced.window)
    assert callable(su.Balanced.group_by)


def test_all_logs_of_a_directory(written, tmp_path):
    for kind in ("skewed", "even", "lz4"):
        path = one(written / kind)
        (tmp_path / path.name).symlink_to(path)
    assert len(logs(tmp_path)) == 3


@pytest.mark.parametrize("kind", ["skewed", "even", "lz4", "snappy"])
def test_cut_off(written, tmp_path, kind):
    """A log whose end is missing is read as far as it goes."""
    path = one(written / kind)
    source = next(path.glob("events_1_*")) if path.is_dir() else path
    data = source.read_bytes()
    whole = len(list(_lines(source)))
    name = source.name + (".inprogress" if kind == "even" else "")
    cut = tmp_path / name
    cut.write_bytes(data[: len(data) * 9 // 10])
    found = read_log(cut)
    assert not found.complete
    assert found.name == f"orders {kind}"
    assert whole > 20
    cut.write_bytes(data[:5])
    with pytest.raises(InputError, match=r"expected an event log of Spark|not readable"):
        read_log(cut)
