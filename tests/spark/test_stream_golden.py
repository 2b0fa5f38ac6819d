"""The files of a stream's directory, version 1: written once, read by every later release.

`PYROUTE_WRITE_GOLDEN=1 python tests/spark/test_stream_golden.py` writes them where they are
missing; one that exists is never written again.
"""

import datetime as dt
import os
import sys
from pathlib import Path

import pyarrow as pa

import pyroute as pr
import spark_udf as su
from spark_udf.stream.controller import Controller, Report
from spark_udf.stream.manifest import Job, Log, Manifest, RouterFile
from spark_udf.stream.schema import StateSchema
from spark_udf.stream.state import open_state
from spark_udf.stream.store import LocalStore
from spark_udf.stream.task import COST, SIZE

GOLDEN = Path(__file__).parent.parent / "golden" / "stream.1"
WORDS = ["anna", "bert", None, "ключ", "anna and a longer one"]
SCHEMA = StateSchema(
    pa.schema([("word", pa.string()), ("day", pa.date32())]),
    pa.schema([("n", pa.int64()), ("seen", pa.list_(pa.int32()))]),
)


def rows():
    return pa.table(
        {
            "word": WORDS,
            "day": pa.array([1, 2, 3, None, 18_000], pa.date32()),
            "n": [1, 2, 3, 4, 5],
            "seen": pa.array([[1], [], None, [1, 2], [3]], pa.list_(pa.int32())),
        }
    )


def write(folder):
    store = LocalStore(folder)
    router = pr.Router(2, {("anna", dt.date(1970, 1, 2)): 1})
    tasks = {}
    for task in (0, 1):
        state = open_state(store, {}, task, schema=SCHEMA)
        part = rows()
        keys = pr.keys(part["word"].combine_chunks(), part["day"].combine_chunks())
        state.write(part.filter(pa.array(router.route(keys) == task)))
        tasks[task] = state.flush(store, 0, 0)
    controller = Controller(pr.Gate(), 0.5)
    stats = rows().select(["word", "day"])
    stats = stats.append_column(COST, pa.array([5.0, 1.0, 1.0, 2.0, 1.0]))
    stats = stats.append_column(SIZE, pa.array([50, 10, 10, 20, 10]))
    empty = stats.slice(0, 0)
    controller.observe(
        [
            Report(t, 0, 5, 12.0 * (t == 0), 0.1, tasks[t], None, 0, 0, 0, 0, (stats, empty)[t])
            for t in (0, 1)
        ]
    )
    controller.decide(router, 0)
    store.write("stats/0", controller.to_bytes())
    store.write("routers/0", router.to_bytes())
    named = RouterFile("routers/0", router.version, router.fingerprint)
    manifest = Manifest(
        job=Job("golden", 2, SCHEMA),
        query_id="11111111-2222-3333-4444-555555555555",
        sequence=0,
        batch_id=7,
        previous=None,
        tasks=tasks,
        router=named,
        next_router=named,
        stats="stats/0",
        outputs=("staged/0.parquet",),
        metrics={"rows": 5, "loads": [12.0, 0.0], "reason": "none"},
    )
    Log(store).commit(manifest)


def test_read():
    table = su.read_state(GOLDEN).drop_columns(["pyroute_task"]).sort_by("n")
    assert table.to_pylist() == rows().to_pylist()


def test_manifest():
    manifest = Log(LocalStore(GOLDEN)).last()
    assert manifest.job == Job("golden", 2, SCHEMA)
    assert (manifest.sequence, manifest.batch_id) == (0, 7)
    assert manifest.metrics["loads"] == [12.0, 0.0]
    text = (GOLDEN / manifest.name).read_text()
    assert manifest.to_json() == text


def test_statistics():
    store = LocalStore(GOLDEN)
    controller = Controller(pr.Gate(), 0.5).restore(store.read("stats/0").to_pybytes())
    assert controller.snapshot.costs.tolist() == [5.0, 1.0, 1.0, 2.0, 1.0]
    assert controller.snapshot.background == {0: 2.0, 1: 0.0}
    assert controller.gate.last_applied == 0
    router = pr.Router.from_bytes(store.read("routers/0").to_pybytes())
    assert controller.decide(router, 1).plan is not None


def test_damaged_statistics():
    data = LocalStore(GOLDEN).read("stats/0").to_pybytes()
    for at in range(0, len(data), max(1, len(data) // 50)):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        try:
            Controller(pr.Gate(), 0.5).restore(bytes(damaged))
        except pr.FormatError:
            continue
        raise AssertionError(f"byte {at}: expected FormatError")


if __name__ == "__main__":
    if not os.environ.get("PYROUTE_WRITE_GOLDEN"):
        sys.exit("set PYROUTE_WRITE_GOLDEN=1")
    if GOLDEN.exists():
        sys.exit(f"{GOLDEN.name} exists")
    write(GOLDEN)
