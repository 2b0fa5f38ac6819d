"""Two keyed stages with the routers of one plan, on two workers: the second reads from its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
if not (ROOT / "bench" / "spark").exists():  # tests that were copied elsewhere
    pytest.skip("bench is not here", allow_module_level=True)

JOB = """
import json
import pyroute as pr
from bench.peers import Scale
from bench.spark import colocated, harness
from bench.spark.hosts import hosts

past, now = colocated.synthetic(2000, 0.9, 5)
pairs = pr.PairSpaceSaving(100_000)
pairs.observe(past.column("in"), past.column("out"))
plan = pr.colocate(pairs, 4)
path = colocated.in_files("test", now, 5)
with hosts(2) as running:
    scale = Scale(True, 5)
    found = colocated.on_hosts(running, scale, {"test": (plan, path)}, 512, "test")["test"]
shares = {
    name: [r / (r + l) for r, l in zip(arm["remote"], arm["local"])] for name, arm in found.items()
}
print("SHARES", json.dumps(shares))
"""


def test_second_exchange_stays():
    """Shares of the second exchange that came from the other worker; answers equal in both arms."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("SHARES ")]
    shares = json.loads(line.removeprefix("SHARES "))
    assert min(shares["hash"]) > 0.3, shares
    assert max(shares["colocated"]) < 0.2, shares
