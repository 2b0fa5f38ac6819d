"""End to end on real processes: workers, the command `pyroute control`, and a worker held back.

No figure is checked here, only what must hold on any machine, however busy: nothing is lost, the
worker that is held back is relieved, and all share evenly again afterwards. bench/control/hog.py
measures.
"""

import contextlib
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer", reason="typer is missing: pip install 'pyroute-core[cli]'")

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
from bench.control import hog  # noqa: E402
from bench.control.processes import Followed, Pool, Setup, Source, controlled, run  # noqa: E402
from pyroute.control import Store  # noqa: E402
from pyroute.control import policies as p  # noqa: E402

# Far apart in speed, so that a busy machine cannot be taken for the hog.
SETUP = Setup(
    workers=4, rate=120.0, wait=0.004, work=0.0002, hog="stop", slow=50.0, seconds=240.0,
    start=math.inf, length=math.inf, nice=0,
)  # fmt: skip


class Story:
    """Hog when all is quiet, calm when the worker is relieved, end when all are even again."""

    def __init__(self, pool, split):
        self.pool, self.split = pool, split
        self.states = []

    def __call__(self, now):
        share = self.split.grouping.shares().get(0, 0.0)
        if not self.states and now > 3.0:
            self.pool.hog()
            self.states.append("hog")
        elif self.states == ["hog"] and share < 0.05:
            self.pool.calm()
            self.states.append("relieved")
        elif self.states == ["hog", "relieved"] and abs(share - 0.25) < 0.0125:
            self.states.append("even")
            return True
        return False


def test_a_worker_that_is_held_back_is_relieved(tmp_path):
    with Pool(SETUP) as pool, controlled(pool, tmp_path, "water-filling", 1.0) as (split, port, _):
        story = Story(pool, split)
        result = Source(pool, split, port=port).run(story)
    assert story.states == ["hog", "relieved", "even"]
    assert result.lost == result.duplicates == 0
    assert result.most_changes <= 10
    assert (result.tasks >= 0).all()
    statuses = [json.loads(line) for line in (tmp_path / "status.jsonl").read_text().splitlines()]
    assert statuses[-1]["version"] == len(split.seen)
    assert all(status["source"] == "persistence" for status in statuses)
    assert 0 < statuses[-1]["cost"] < 1
    with Store.open(tmp_path / "control.db") as store:
        table = store.read(0.0, time.time() + 1)
        workers = set(table["worker"].to_pylist())
        assert workers == {"", "w0", "w1", "w2", "w3"}
        assert np.nanmax(table["service_ms"].to_numpy()) > 0
        assert np.nanmax(table["memory_rss"].to_numpy()) > 1e6
        assert len(store.decisions()) == len(split.seen)
    assert "Traceback" not in (tmp_path / "errors.txt").read_text()


def test_control_that_is_killed(tmp_path):
    """Records go on by the last ratio."""
    with Pool(SETUP) as pool, controlled(pool, tmp_path, "proportional", 0.5) as (split, port, it):
        killed = []

        def watch(now):
            if not killed and now > 2.0:
                it.kill()
                it.wait()
                killed.append(now)
            return bool(killed) and now > killed[0] + 2.0

        result = Source(pool, split, port=port, period=0.5).run(watch)
    assert killed
    assert result.lost == result.duplicates == 0


def test_per_record(tmp_path):
    chooser = p.LeastDelay(4, service=0.005)
    with Pool(SETUP) as pool:

        def watch(now):
            if now > 2.0 and pool._stopper is None:
                pool.hog()
            return now > 8.0

        result = Source(pool, Followed(4), chooser).run(watch)
    assert result.lost == result.duplicates == 0
    late = result.due > 3.0
    assert (result.tasks[late] == 0).mean() < 0.2


def test_no_process_stays(tmp_path):
    import psutil

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with contextlib.suppress(ZeroDivisionError), Pool(SETUP) as pool:
        pool.hog()
        raise ZeroDivisionError
    after = {child.pid for child in psutil.Process().children(recursive=True)}
    assert after <= before


def test_the_bench_runs_and_judges(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(hog, "KEPT", tmp_path / "hog.json")
    monkeypatch.setattr(hog, "PAGE", tmp_path / "RESULTS.md")
    words = ["hog", "--hog", "stop", "--seconds", "4", "--only", "none", "least delay of two"]
    monkeypatch.setattr(sys, "argv", [*words, "--write"])
    hog.main()
    shown = capsys.readouterr().out
    assert "records lost: wanted 0, measured 0: met" in shown
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| least delay of two" in text
    assert "not measured" in text  # the ratios


def test_one_seed_one_stream():
    setup = Setup(workers=2, rate=50.0, seconds=1.0, wait=0.001, work=0.0001, hog="stop",
                  start=math.inf, length=math.inf)  # fmt: skip
    one, two = (run(setup, "none") for _ in range(2))
    assert (one.due == two.due).all()
    assert (one.tasks == two.tasks).all()
