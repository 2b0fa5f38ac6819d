"""RoutedStream on a real Spark: exactly once under faults, and state that follows its key."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster import Cluster
from stream_job import (
    STEPS,
    count_words,
    expected,
    full_once,
    published,
    stream,
    write_inputs,
)

import pyroute as pr
import spark_udf as su
from effort import effort

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Crash(Exception):  # noqa: N818
    """A driver that dies."""


def finish(query):
    query.awaitTermination()
    assert query.exception() is None


def state_of(folder):
    table = su.read_state(folder / "state")
    words = table["word"].to_pylist()
    assert len(words) == len(set(words)), "a key has state in two tasks"
    return dict(zip(words, table["n"].to_pylist(), strict=True))


def expect_exact(folder, batches):
    total, outputs = expected(batches)
    assert state_of(folder) == total
    assert published(folder) == dict(enumerate(outputs))


def metrics_of(spark, folder):
    return spark.read.parquet(str(folder / "state" / "metrics")).orderBy("batch_id").toPandas()


def test_counts_and_moves(spark, tmp_path):
    write_inputs(tmp_path / "in", 6)
    finish(stream(spark, tmp_path, 4).start(availableNow=True))
    expect_exact(tmp_path, 6)
    metrics = metrics_of(spark, tmp_path)
    assert metrics.batch_id.tolist() == list(range(6))
    assert metrics.rows.tolist() == [400] * 6
    assert metrics.keys_moved.sum() > 0
    assert metrics.imbalance[1:].mean() < metrics.imbalance[0]
    loads = np.stack(metrics.loads)
    assert (loads.sum(axis=1) == 400).all()
    assert np.allclose(loads.max(axis=1) / 100 - 1, metrics.imbalance)
    assert metrics.written_bytes.min() > 0


def test_moved(spark, tmp_path):
    """Every key's state is in the files of the task that the last manifest's router names."""
    write_inputs(tmp_path / "in", 5)
    made = stream(spark, tmp_path, 4)
    finish(made.start(availableNow=True))
    table = su.read_state(tmp_path / "state")
    last = made.log.last()
    router = pr.Router.from_bytes(made.store.read(last.router.name).to_pybytes())
    assert (router.route(table["word"].combine_chunks()) == table["pyroute_task"].to_numpy()).all()
    assert last.next_router.version >= last.router.version > 0


@pytest.mark.parametrize("step", STEPS)
def test_exactly_once(spark, tmp_path, step):
    """A driver that dies before a step, at the first batch and at a later one."""
    write_inputs(tmp_path / "in", 4)
    for batch in (0, 2):

        def observer(name, number, batch=batch):
            if (name, number) == (step, batch):
                raise Crash

        query = stream(spark, tmp_path, observer=observer).start(availableNow=True)
        with pytest.raises(Exception, match="Crash"):
            query.awaitTermination()
    finish(stream(spark, tmp_path).start(availableNow=True))
    expect_exact(tmp_path, 4)


def test_killed(tmp_path):
    """kill -9 of the driver, before every step and at random times, by a process each time."""
    write_inputs(tmp_path / "in", 6)
    random = np.random.default_rng(0)
    every = list(zip(STEPS, (0, 0, 1, 1, 1, 2, 3, 4), strict=True))
    drawn = [(str(random.choice(STEPS)), 5) for _ in range(effort(2) - 2)]
    for at, (step, batch) in enumerate([*every, *drawn]):
        done = subprocess.run(
            [*program(tmp_path), step, str(batch)], capture_output=True, timeout=300
        )
        ends = {-signal.SIGKILL} if at < len(every) else {0, -signal.SIGKILL}
        assert done.returncode in ends, done.stderr[-2000:]
    for _ in range(effort(1)):
        process = subprocess.Popen(program(tmp_path), **QUIET)
        time.sleep(random.uniform(8, 16))
        process.kill()
        process.wait()
    done = subprocess.run(program(tmp_path), capture_output=True, text=True, timeout=300)
    assert "finished" in done.stdout, done.stderr[-3000:]
    expect_exact(tmp_path, 6)


def with_fault(folder, *fault):
    """Three batches on a cluster of processes, with a fault of `stream_job`."""
    write_inputs(folder / "in", 3)
    done = subprocess.run(
        [*program(folder), *fault],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert "finished" in done.stdout, done.stderr[-3000:]
    expect_exact(folder, 3)


def test_lost_executor(tmp_path):
    """An executor of a cluster of processes is killed in the middle of a batch."""
    with_fault(tmp_path, "lose", "-")
    assert (tmp_path / "lost").exists()


def test_speculation(tmp_path):
    """Two attempts of a task do its work beside each other; one of them counts."""
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    try:
        with_fault(tmp_path, "slow", cluster.url)
    finally:
        cluster.stop()
    task = (tmp_path / "attempts" / "slow").read_text()
    assert {f"{task}-0", f"{task}-1"} <= {path.name for path in (tmp_path / "attempts").iterdir()}


def test_second_run_continues(spark, tmp_path):
    write_inputs(tmp_path / "in", 2)
    finish(stream(spark, tmp_path).start(availableNow=True))
    expect_exact(tmp_path, 2)
    finish(stream(spark, tmp_path).start(availableNow=True))  # nothing new
    expect_exact(tmp_path, 2)
    write_inputs(tmp_path / "in", 4, start=2)
    finish(stream(spark, tmp_path).start(availableNow=True))
    expect_exact(tmp_path, 4)


def test_other_number_of_tasks(spark, tmp_path):
    for batches, tasks in ((2, 4), (3, 7), (4, 3), (5, {0: 1.0, 9: 2.0})):
        write_inputs(tmp_path / "in", batches, start=batches - 1 if batches > 2 else 0)
        finish(stream(spark, tmp_path, tasks).start(availableNow=True))
        expect_exact(tmp_path, batches)
        held = set(su.read_state(tmp_path / "state")["pyroute_task"].to_pylist())
        assert held <= (set(tasks) if isinstance(tasks, dict) else set(range(tasks)))


def test_without_balance(spark, tmp_path):
    write_inputs(tmp_path / "in", 3)
    finish(stream(spark, tmp_path, balanced=False).start(availableNow=True))
    expect_exact(tmp_path, 3)
    assert metrics_of(spark, tmp_path).keys_moved.sum() == 0


def test_with_a_gate(spark, tmp_path):
    write_inputs(tmp_path / "in", 4)
    gate = pr.Gate(cooldown=100)
    finish(stream(spark, tmp_path, gate=gate).start(availableNow=True))
    expect_exact(tmp_path, 4)
    metrics = metrics_of(spark, tmp_path)
    assert metrics.applied.tolist() == [True, False, False, False]
    assert "cool-down" in metrics.reason[1]


def test_sink_is_called_again_after_a_failure(spark, tmp_path):
    write_inputs(tmp_path / "in", 3)
    calls, kept = [], {}

    def sink(outputs, batch_id):
        calls.append(batch_id)
        if calls == [0, 1]:
            raise RuntimeError("the database is away")
        kept[batch_id] = {row.word: row.n for row in outputs.collect()}

    query = stream(spark, tmp_path, sink=sink).start(availableNow=True)
    with pytest.raises(Exception, match="the database is away"):
        query.awaitTermination()
    finish(stream(spark, tmp_path, sink=sink).start(availableNow=True))
    assert calls == [0, 1, 1, 2]
    assert kept == dict(enumerate(expected(3)[1]))


def crashed(step, batch):
    """An observer under which the driver dies."""

    def observer(name, number):
        if (name, number) == (step, batch):
            raise Crash

    return observer


def test_sink_gets_what_was_committed_before_the_checkpoint_was_lost(spark, tmp_path):
    write_inputs(tmp_path / "in", 2)
    calls = []

    def sink(outputs, batch_id):
        calls.append((batch_id, {row.word: row.n for row in outputs.collect()}))

    query = stream(spark, tmp_path, sink=sink, observer=crashed("committed", 1))
    with pytest.raises(Exception, match="Crash"):
        finish(query.start(availableNow=True))
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "in")
    write_inputs(tmp_path / "in", 3, start=2)
    finish(stream(spark, tmp_path, sink=sink, adopt=True).start(availableNow=True))
    assert calls == list(zip((0, 1, 0), expected(3)[1], strict=True))


def test_by_cost_and_other_types(spark, tmp_path):
    import pandas as pd

    folder = tmp_path / "in"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for batch in range(3):
        frame = pd.DataFrame({"k": rng.integers(0, 50, 300), "c": rng.random(300)})
        frame["d"] = pd.to_datetime("2020-01-01").date()
        pq.write_table(pa.Table.from_pandas(frame), folder / f"{batch}.parquet")

    def total(state, batches):
        for batch in batches:
            table = pa.Table.from_batches([batch]).group_by(["k", "d"]).aggregate([("c", "sum")])
            keys = table.select(["k", "d"])
            before, found = state.read(keys)
            old = np.where(found.to_numpy(zero_copy_only=False), before["s"].to_numpy(), 0.0)
            state.write(keys.append_column("s", pa.array(old + table["c_sum"].to_numpy())))

    df = spark.readStream.schema("k bigint, c double, d date").parquet(str(folder))
    made = su.RoutedStream(
        *(df, "k", "d"),
        tasks=3,
        func=total,
        state_schema="s double",
        directory=tmp_path / "state",
        checkpoint=tmp_path / "checkpoint",
        cost="c",
    )
    finish(made.start(availableNow=True))
    table = su.read_state(tmp_path / "state")
    assert table.num_rows == 50
    whole = pq.read_table(folder)
    assert sum(table["s"].to_pylist()) == pytest.approx(sum(whole["c"].to_pylist()))


def test_negative_cost_stops(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"word": ["a"], "c": [-1.0]}), folder / "0.parquet")
    df = spark.readStream.schema("word string, c double").parquet(str(folder))
    made = su.RoutedStream(
        *(df, "word"),
        tasks=2,
        func=lambda state, batches: None,
        state_schema="n bigint",
        directory=tmp_path / "state",
        checkpoint=tmp_path / "checkpoint",
        cost="c",
    )
    with pytest.raises(Exception, match=r"c: expected at least 0, got -1\.0"):
        finish(made.start(availableNow=True))
    assert made.log.last() is None


# -- what must stop


def test_same_job(spark, tmp_path):
    write_inputs(tmp_path / "in", 2)
    finish(stream(spark, tmp_path).start(availableNow=True))
    before = sorted(path for path in (tmp_path / "state").rglob("*"))
    with pytest.raises(ValueError, match="directory: expected the state of 'other'"):
        stream(spark, tmp_path, name="other")
    with pytest.raises(ValueError, match="directory: expected the state of 'stream' with"):
        stream(spark, tmp_path, state_schema="n int")
    # The checkpoint was lost: batch 0 comes again under another query id.
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="checkpoint: expected that of query"):
        finish(stream(spark, tmp_path).start(availableNow=True))
    assert sorted(path for path in (tmp_path / "state").rglob("*")) == before


def test_adopted(spark, tmp_path):
    write_inputs(tmp_path / "in", 2)
    finish(stream(spark, tmp_path).start(availableNow=True))
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "in")
    write_inputs(tmp_path / "in", 4, start=2)
    finish(stream(spark, tmp_path, adopt=True).start(availableNow=True))
    assert state_of(tmp_path) == expected(4)[0]


def test_lost_state_stops(spark, tmp_path):
    write_inputs(tmp_path / "in", 2)
    finish(stream(spark, tmp_path).start(availableNow=True))
    shutil.rmtree(tmp_path / "state")
    write_inputs(tmp_path / "in", 3, start=2)
    with pytest.raises(Exception, match="the checkpoint is ahead of the state"):
        finish(stream(spark, tmp_path).start(availableNow=True))


def test_gap_stops(spark, tmp_path):
    write_inputs(tmp_path / "in", 1)
    finish(stream(spark, tmp_path).start(availableNow=True))
    shutil.copytree(tmp_path / "state", tmp_path / "old")
    write_inputs(tmp_path / "in", 3, start=1)
    finish(stream(spark, tmp_path).start(availableNow=True))
    shutil.rmtree(tmp_path / "state")
    shutil.move(tmp_path / "old", tmp_path / "state")  # an old backup
    write_inputs(tmp_path / "in", 4, start=3)
    with pytest.raises(Exception, match="batch: expected 1, which follows the state, got 3"):
        finish(stream(spark, tmp_path).start(availableNow=True))


def test_other_rows(spark, tmp_path):
    """The checkpoint lost the offsets of a committed batch: Spark plans it anew, with more rows."""
    write_inputs(tmp_path / "in", 2)
    with pytest.raises(Exception, match="Crash"):
        finish(stream(spark, tmp_path, observer=crashed("done", 1)).start(availableNow=True))
    for path in (tmp_path / "checkpoint" / "offsets").glob("*1*"):
        path.unlink()
    write_inputs(tmp_path / "in", 3, start=2)
    with pytest.raises(Exception, match="checkpoint: expected batch 1 of the rows that were comm"):
        finish(stream(spark, tmp_path).start(availableNow=True))
    expect_exact(tmp_path, 2)


def test_fenced(spark, tmp_path):
    """A driver that was thought dead: meanwhile another one went on, and it has to stop."""
    write_inputs(tmp_path / "in", 3)

    def meanwhile(name, number):
        if (name, number) == ("commit", 1):
            shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
            done = subprocess.run(
                [*program(tmp_path), "-", "copy"], capture_output=True, timeout=300
            )
            assert b"finished" in done.stdout, done.stderr[-2000:]

    query = stream(spark, tmp_path, observer=meanwhile).start(availableNow=True)
    with pytest.raises(Exception, match="another driver committed"):
        query.awaitTermination()
    expect_exact(tmp_path, 3)


def program(folder):
    return [sys.executable, str(Path(__file__).with_name("stream_job.py")), str(folder), "4"]


def test_newer_manifest_stops(spark, tmp_path):
    write_inputs(tmp_path / "in", 1)
    made = stream(spark, tmp_path)
    finish(made.start(availableNow=True))
    path = tmp_path / "state" / made.log.last().name
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "format_version": 2}))
    with pytest.raises(pr.FormatError, match="format_version: expected <= 1, got 2"):
        stream(spark, tmp_path)


def test_damaged_state_stops(spark, tmp_path):
    write_inputs(tmp_path / "in", 2)
    made = stream(spark, tmp_path)
    finish(made.start(availableNow=True))
    for files in made.log.last().tasks.values():
        for level in files.levels:
            path = tmp_path / "state" / level.name
            path.write_bytes(path.read_bytes()[: level.bytes // 2])
    write_inputs(tmp_path / "in", 3, start=2)
    (tmp_path / "state").rename(tmp_path / "moved")  # workers keep files by name and place
    again = stream(spark, tmp_path, directory=tmp_path / "moved")
    with pytest.raises(Exception, match=r"state/.*\.arrow: expected"):
        finish(again.start(availableNow=True))
    assert again.log.last().batch_id == 1


def test_full_disk_stops_and_goes_on(spark, tmp_path):
    write_inputs(tmp_path / "in", 3)
    made = stream(spark, tmp_path)
    write = made.store.write

    def full(name, data):
        if name.startswith("stats/000000000001"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        return write(name, data)

    made.store.write = full
    with pytest.raises(Exception, match="No space left on device"):
        finish(made.start(availableNow=True))
    assert made.log.last().batch_id == 0
    finish(stream(spark, tmp_path).start(availableNow=True))
    expect_exact(tmp_path, 3)


def test_full_disk_of_a_task_stops_and_goes_on(spark, tmp_path):
    """A real limit of the system, which a worker meets in the middle of a file."""
    write_inputs(tmp_path / "in", 3)
    func = full_once(str(tmp_path / "room"))
    made = stream(spark, tmp_path, func=func)
    with pytest.raises(Exception, match=r"expected \d+ bytes written, got File too large"):
        finish(made.start(availableNow=True))
    assert made.log.last().batch_id == 0
    (tmp_path / "room").touch()
    finish(stream(spark, tmp_path, func=func).start(availableNow=True))
    expect_exact(tmp_path, 3)


def test_directory_that_is_not_shared_stops(spark, tmp_path):
    write_inputs(tmp_path / "in", 1)

    def hidden(name, number):
        if name == "tasks":
            made._shared()
            shutil.rmtree(tmp_path / "state" / "nonces")

    made = stream(spark, tmp_path, observer=hidden)
    with pytest.raises(Exception, match="directory: expected one that all hosts share"):
        finish(made.start(availableNow=True))


def test_clean_up(spark, tmp_path):
    write_inputs(tmp_path / "in", 6)
    made = stream(spark, tmp_path, keep=2)
    finish(made.start(availableNow=True))
    log = made.log
    kept = [log.read(n) for n in (4, 5)]
    named = set().union(*(one.files for one in kept))
    for folder in ("state", "routers", "stats"):
        found = {str(p.relative_to(tmp_path / "state")) for p in files_in(tmp_path, folder)}
        assert found == {name for name in named if name.startswith(f"{folder}/")}
    assert not files_in(tmp_path, "staged")
    assert len(files_in(tmp_path, "manifests")) == 2


def files_in(tmp_path, folder):
    return [p for p in (tmp_path / "state" / folder).rglob("*") if p.is_file()]


def test_bad_arguments(spark, tmp_path):
    write_inputs(tmp_path / "in", 1)
    with pytest.raises(ValueError, match="df: expected a streaming DataFrame"):
        su.RoutedStream(
            *(spark.range(3), "id"),
            tasks=2,
            func=count_words,
            state_schema="n bigint",
            directory=tmp_path / "s",
            checkpoint=tmp_path / "c",
        )
    for options, error in (
        ({"cost": "x"}, "cost: expected one of word, got x"),
        ({"keep": 1}, "keep: expected at least 2, got 1"),
        ({"mergeable": True}, "mergeable: expected False"),
        ({"state_schema": "word string"}, "expected distinct names, got 'word' twice"),
        ({"tasks": 0}, "tasks"),
    ):
        with pytest.raises((ValueError, TypeError), match=error):
            stream(spark, tmp_path, **options)
    assert not (tmp_path / "state").exists()


def keyed(df, key, tmp_path, **options):
    given = {"directory": tmp_path / "state", "checkpoint": tmp_path / "checkpoint", **options}
    return su.RoutedStream(
        df, key, tasks=2, func=lambda state, batches: None, state_schema="n bigint", **given
    )


@pytest.mark.parametrize(
    ("name", "given"), [("word", "Word"), ("word", "`word`"), ("a b", "`A b`"), ("a b", "a b")]
)
def test_names_of_keys(spark, tmp_path, name, given):
    """Spark takes them for a column; the tasks find it under the name that it has."""
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({name: ["x", "y"]}), folder / "0.parquet")
    df = spark.readStream.schema(f"`{name}` string").parquet(str(folder))
    made = keyed(df, given, tmp_path)
    assert made.schema.keys.names == [name]
    finish(made.start(availableNow=True))
    assert made.log.last().metrics["rows"] == 2


def test_names_that_are_no_key(spark, tmp_path):
    df = spark.readStream.format("rate").load()
    nested = df.selectExpr("struct(value AS user) AS event")
    with pytest.raises(ValueError, match=r"cols: expected one of event, got event\.user: select"):
        keyed(nested, "event.user", tmp_path)
    for key in ("`a.b`", "value"):
        dotted = df.selectExpr("value", "value AS `a.b`")
        with pytest.raises(ValueError, match=r"df: expected names without dots .*, got a\.b"):
            keyed(dotted, key, tmp_path)
    with pytest.raises(ValueError, match="cols: expected one of timestamp, value, got user"):
        keyed(df, "user", tmp_path)
    with pytest.raises(ValueError, match=r"directory: expected a path or a file:// URL .*got s3a:"):
        keyed(df, "value", tmp_path, directory="s3a://bucket/state")
    assert not list(tmp_path.iterdir())


def test_outputs_are_checked(spark, tmp_path):
    write_inputs(tmp_path / "in", 1)
    with pytest.raises(Exception, match=r"func: expected columns \['word', 'm'\]"):
        finish(
            stream(spark, tmp_path, output_schema="word string, m bigint").start(availableNow=True)
        )
    with pytest.raises(Exception, match="output_schema: expected one, as func gives outputs"):
        finish(stream(spark, tmp_path, output_schema=None).start(availableNow=True))


def test_state_of_another_task_stops(spark, tmp_path):
    write_inputs(tmp_path / "in", 1)

    def everywhere(state, batches):
        state.write(pa.table({"word": ["w1"], "n": [1]}))

    made = stream(spark, tmp_path, func=everywhere, output_schema=None)
    with pytest.raises(Exception, match="a function may write the state of the keys of its rows"):
        finish(made.start(availableNow=True))
    assert made.log.last() is None


def test_empty_batch(spark, tmp_path):
    """A batch whose rows are all filtered away still moves keys and commits."""
    write_inputs(tmp_path / "in", 3)
    made = stream(spark, tmp_path)
    made.df = made.df.filter("word = 'none'")
    finish(made.start(availableNow=True))
    assert su.read_state(tmp_path / "state").num_rows == 0
    assert metrics_of(spark, tmp_path).rows.tolist() == [0, 0, 0]
