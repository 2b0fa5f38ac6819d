"""What one task of a batch does, without Spark."""

import re

import pyarrow as pa
import pytest
from stream_job import count_words

import pyroute as pr
from spark_udf.stream.controller import Report
from spark_udf.stream.manifest import FencedError
from spark_udf.stream.store import LocalStore
from spark_udf.stream.task import TASK, TICK, Work, report_of

WORDS = ["a", "b", "a", "c"]


@pytest.fixture
def store(tmp_path):
    kept = LocalStore(tmp_path)
    kept.write("nonces/mine", b"nonces/mine")
    return kept


def work(store, **changes):
    given = {
        "directory": str(store.path),
        "nonce": "nonces/mine",
        "batch": 0,
        "tasks": (0,),
        "keys": ("word",),
        "state": pa.schema({"word": pa.string(), "n": pa.int64()}).serialize().to_pybytes(),
        "output": None,
        "files": "{}",
        "router": pr.Router(1).to_bytes(values=False),
    }
    return Work(**{**given, **changes})


def counted(state, batches):
    count_words(state, batches)


def report(work, tasks=(0, 0, 0, 0, 0), ticks=(False, False, False, False, True)):
    rows = pa.table({"word": [*WORDS, None], TASK: pa.array(tasks, pa.int32()), TICK: ticks})
    made = report_of(work, counted, 0, 0, rows.to_batches())
    (one,) = Report.of(pa.Table.from_batches([made]), [0])
    return one


def test_statistics(store):
    table = report(work(store)).stats.sort_by("word")
    assert table["word"].to_pylist() == ["a", "b", "c"]
    assert table["pyroute_cost"].to_pylist() == [2.0, 1.0, 1.0]
    assert table["pyroute_size"].to_pylist() == [9, 9, 9]


def test_no_statistics_where_nobody_plans(store, monkeypatch):
    """Nothing of them is made: a stream that plans is compared with one that does not."""
    seen = []
    plain = pr.KeyStats.observe
    monkeypatch.setattr(pr.KeyStats, "observe", lambda *a: (seen.append(a), plain(*a)))
    one = report(work(store, reported=0))
    assert one.stats is None
    assert not seen
    assert (one.rows, one.load, one.files.rows) == (4, 4.0, 3)
    assert report(work(store)).stats.num_rows == 3
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"tasks": (0, 0, 1, 0, 0)},
            "partition: expected rows of task 0, got {'min': 0, 'max': 1}",
        ),
        (
            {"ticks": (False,) * 3 + (True,) * 2},
            "partition: expected that of task 0, with one tick, got 2",
        ),
        ({"ticks": (False,) * 5}, "partition: expected that of task 0, with one tick, got 0"),
    ],
)
def test_rows_of_several_tasks_in_one_partition(store, rows, message):
    """As where a router's tasks and the partitions are not one for one: no state is written."""
    with pytest.raises(RuntimeError, match=re.escape(message)):
        report(work(store), **rows)
    assert store.list("") == ["nonces/mine"]


def test_another_driver_took_over(store):
    """It wrote a file of its own and removed that of the driver before."""
    store.write("nonces/its", b"nonces/its")
    store.delete("nonces/mine")
    with pytest.raises(FencedError, match=r"got nonces/its of another .*another driver took over"):
        report(work(store))
    store.delete("nonces/its")
    with pytest.raises(RuntimeError, match="directory: expected one that all hosts share"):
        report(work(store))


@pytest.mark.parametrize("mapped", [True, False])
def test_files_are_read_as_told(store, monkeypatch, mapped):
    """Over NFS a mapped file may go away under its reader."""
    seen = []
    plain = pa.memory_map
    monkeypatch.setattr(pa, "memory_map", lambda *a: (seen.append(a), plain(*a))[1])
    report(work(store, memory_map=mapped))
    assert bool(seen) == mapped
