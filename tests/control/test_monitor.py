"""The monitor: features by name, workers that come and go, its own cost."""

import math
import os
import subprocess
import sys
import threading
import time

import pytest

from pyroute.control.monitor import MACHINE_FEATURES, WORKER_FEATURES, Monitor

BUSY = "import time\nwhile True: sum(range(1000))"


@pytest.fixture
def busy():
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    yield process
    process.kill()
    process.wait()


def test_counts_of_the_paper():
    assert len(set(WORKER_FEATURES)) == len(WORKER_FEATURES) == 24
    assert len(set(MACHINE_FEATURES)) == len(MACHINE_FEATURES) == 57
    assert not any("pid" in name for name in (*WORKER_FEATURES, *MACHINE_FEATURES))


def test_machine_and_worker(busy):
    monitor = Monitor({"w": busy.pid}, period=0.1, host="h")
    first = monitor.sample()
    assert math.isnan(first[1].features["cpu_percent"])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.2)
        machine, worker = monitor.sample()
        if worker.features["cpu_percent"] > 0 and machine.features["cpu_percent"] > 0:
            break
    assert (machine.worker, worker.worker) == ("", "w")
    assert machine.host == worker.host == "h"
    assert set(machine.features) == set(MACHINE_FEATURES)
    assert set(worker.features) == set(WORKER_FEATURES)
    assert 0 < worker.features["cpu_percent"] <= 110
    assert 0 < machine.features["cpu_percent"] <= 100
    assert worker.features["memory_rss"] > 1e6
    assert worker.features["threads"] == 1


@pytest.mark.skipif(not os.path.exists("/proc/vmstat"), reason="files of Linux")  # noqa: PTH110
def test_nothing_is_missing_on_linux(busy):
    monitor = Monitor({"w": busy.pid}, period=0.1)
    monitor.sample()
    time.sleep(0.1)
    machine, worker = monitor.sample()
    absent = [name for name, value in machine.features.items() if math.isnan(value)]
    # A virtual machine may not tell its clock, and a container no disks.
    assert all(name == "cpu_mhz" or name.startswith("disk_") for name in absent), absent
    absent = [name for name, value in worker.features.items() if math.isnan(value)]
    assert absent == []


def test_workers_come_and_go(busy):
    workers = {}
    monitor = Monitor(lambda: workers)
    assert len(monitor.sample()) == 1
    workers["w"] = busy.pid
    assert [each.worker for each in monitor.sample()] == ["", "w"]
    busy.kill()
    busy.wait()
    assert [each.worker for each in monitor.sample()] == [""]
    assert monitor.problems == {"w": f"process {busy.pid} is gone"}
    workers["w"] = os.getpid()  # restarted under another process id
    assert [each.worker for each in monitor.sample()] == ["", "w"]
    assert monitor.problems == {}
    del workers["w"]
    assert [each.worker for each in monitor.sample()] == [""]


def test_another_process_of_the_same_number_is_not_the_worker(busy):
    """Numbers are used again: whoever has it now began later than the worker."""
    monitor = Monitor({"w": busy.pid})
    assert len(monitor.sample()) == 2
    known = monitor._processes["w"].process
    known._ident = (busy.pid, known.create_time() - 100.0)  # as if it were another's
    for _ in range(3):
        assert len(monitor.sample()) == 1
        assert monitor.problems["w"] == f"process {busy.pid} is gone"
    with subprocess.Popen([sys.executable, "-c", BUSY]) as other:
        monitor._workers = lambda: {"w": other.pid}
        assert len(monitor.sample()) == 2
        other.kill()


def test_list_of_workers_that_cannot_be_read(busy):
    answers = [{"w": busy.pid}]
    monitor = Monitor(lambda: answers.pop())
    assert len(monitor.sample()) == 2
    assert len(monitor.sample()) == 2  # the last list stays
    assert "workers" in monitor.problems[""]


def test_cost_is_measured():
    monitor = Monitor({"me": os.getpid()}, period=0.1)
    assert monitor.cost == 0
    for _ in range(3):
        monitor.sample()
        time.sleep(0.02)
    assert 0 < monitor.cost < 1


def test_run_ends():
    stop = threading.Event()
    monitor = Monitor(period=0.1)
    seen = []
    for samples in monitor.run(stop):
        seen.append(samples)
        if len(seen) == 3:
            stop.set()
    assert len(seen) == 3


@pytest.mark.parametrize("period", [0.1, 0.3])
def test_run_keeps_its_cadence(period):
    """One sample a period from the first on; those that were missed are left out."""
    begun = time.monotonic()
    ticks = []
    for _ in Monitor(period=period).run(threading.Event()):
        ticks.append(time.monotonic())
        if len(ticks) == 2:
            time.sleep(2.5 * period)  # whoever takes the samples is late
        if len(ticks) == 5:
            break
    assert ticks[4] - begun >= 5.9 * period  # 0, 1, 4, 5, 6: not all at once


@pytest.mark.parametrize("period", [0.1, 1.0, 30.0])
def test_periods_from_a_tenth_of_a_second_to_half_a_minute(period):
    assert Monitor(period=period).period == period


@pytest.mark.parametrize("period", [0.05, 31.0, -1.0, math.nan])
def test_wrong_period(period):
    with pytest.raises(ValueError, match=r"^period: expected .+, got .+"):
        Monitor(period=period)
