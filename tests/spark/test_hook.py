"""control's hook with a live Spark: what it gives is what the status API and the jobs say."""

import json
import math
import subprocess
import sys
import time
import urllib.request

import pytest

from pyroute.control import Hook

CHILD = """
import sys
from spark_udf.session import local_session

settings = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.executor.memory": "512m"}
spark = local_session(sys.argv[1], settings)
print(spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId, flush=True)
for line in sys.stdin:
    tasks, shuffled = map(int, line.split())
    rows = spark.range(0, 10_000, 1, tasks)
    if shuffled:
        rows = rows.repartition(shuffled, "id")
    rows.write.format("noop").mode("overwrite").save()
    print("done", flush=True)
spark.stop()
"""


class Driver:
    """A Spark of its own, with its web page on a free port."""

    def __init__(self, folder, master):
        self.name = "driver" if master.startswith("local[") else "0"
        self.stderr = (folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
        )
        line = self.process.stdout.readline().split()
        assert len(line) == 2, (folder / "stderr").read_text()
        self.url, self.app = line

    def executor(self):
        """What the status API says of the only executor, once it is there."""
        url = f"{self.url}/api/v1/applications/{self.app}/executors"
        deadline = time.monotonic() + 120
        while True:
            with urllib.request.urlopen(url, timeout=60) as answer:
                found = {each["id"]: each for each in json.load(answer)}
            if self.name in found:
                return found[self.name]
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def run(self, tasks, shuffled=0):
        """Run a job of so many tasks, and wait until the API knows of all of them."""
        before = self.executor()["completedTasks"]
        self.process.stdin.write(f"{tasks} {shuffled}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"
        deadline = time.monotonic() + 60
        while (found := self.executor())["completedTasks"] < before + tasks + shuffled:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout, self.stderr):
            end.close()


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,2,1024]"])
def test_a_live_spark(tmp_path, master):
    with Driver(tmp_path, master) as driver, Hook.spark(driver.url, timeout=60.0) as hook:
        before = driver.executor()
        [first] = hook.collect(now=100.0)
        assert hook.problem is None
        assert first.worker == before["id"] == driver.name
        assert first.host == before["hostPort"].rpartition(":")[0]
        assert first.features["cores"] == 2
        assert math.isnan(first.features["completed_per_s"])

        between = driver.run(7)
        [second] = hook.collect(now=102.0)
        assert second.features["completed_per_s"] == 7 / 2
        assert second.features["failed_per_s"] == 0
        assert second.features["backlog"] == 0
        if driver.name == "driver":  # of which Spark says how long it lives, not how long it works
            assert math.isnan(second.features["service_ms"])
            assert math.isnan(second.features["gc_percent"])
        else:
            spent = between["totalDuration"] - before["totalDuration"]
            assert second.features["service_ms"] == pytest.approx(spent / 7)
        assert second.features["shuffle_write_bytes_per_s"] == 0

        after = driver.run(5, shuffled=3)
        [third] = hook.collect(now=106.0)
        assert third.features["completed_per_s"] == 8 / 4
        written = after["totalShuffleWrite"] - between["totalShuffleWrite"]
        assert written > 0
        assert third.features["shuffle_write_bytes_per_s"] == pytest.approx(written / 4)
        read = after["totalShuffleRead"] - between["totalShuffleRead"]
        assert third.features["shuffle_read_bytes_per_s"] == pytest.approx(read / 4)

        named = Hook.spark(driver.url, app=driver.app, timeout=60.0)
        assert [sample.worker for sample in named.collect()] == [driver.name]
        other = Hook.spark(driver.url, app="local-0", timeout=60.0)
        assert other.collect() == []
        assert "404" in other.problem

        driver.end()
        assert hook.collect() == []
        assert hook.problem.startswith(f"{driver.url}: ")
        assert "refused" in hook.problem
