"""A real cluster of two workers: a tenth of the keys move under load, and things die meanwhile."""

import time

import pytest

from bench.storm import move
from bench.storm.cluster import wait_for


@pytest.mark.usefixtures("storm_jars")
def test_moves_and_faults(tmp_path):
    """Zero loss and no replay without faults; every count exact after kill -9 of each part."""
    with move.running(tmp_path / "run", rate=400, keys=300, timeout=10, seed=1) as run:
        wait_for("records", run.flows(500))
        failed = run.progress()[3]
        moved = run.ask(share=0.1)
        assert moved == 30
        wait_for("the move", run.moved)
        wait_for("records after the move", run.flows(500))
        assert run.status()["epoch"] == 1
        assert run.progress()[3] == failed, "no record may come again"
        rows = move.faults(run)
        assert [row["killed"] for row in rows] == list(run.victims())
        assert run.status()["epoch"] >= 1 + len(rows)
        begun = time.monotonic()
        records = run.finish()
        print(f"{records} records, {time.monotonic() - begun:.1f} s to the end; {rows}")
    run.check(records)


@pytest.mark.usefixtures("storm_jars")
def test_faults_with_the_store_in_zookeeper(tmp_path):
    """All that a manager says and hears but its own emits: it is a spout, which reads nothing."""
    options = {"rate": 400, "keys": 300, "timeout": 10, "seed": 2}
    with move.running(tmp_path / "run", **options, zookeeper=True, spout=True) as run:
        rows = move.faults(run)
        assert [row["killed"] for row in rows] == list(run.victims())
        assert len(rows) == 6
        assert run.status()["epoch"] >= len(rows)
        records = run.finish()
        print(f"{records} records; {rows}")
    run.check(records)
    assert not (tmp_path / "run" / "state" / "manager").exists(), "decisions are in the store"
