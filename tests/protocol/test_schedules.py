"""Schedules with faults: none breaks a guarantee, and together they reach all that there is."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from effort import effort
from pyroute.protocol import Instance, Manager
from pyroute.protocol import instance as instance_module
from pyroute.protocol import manager as manager_module

from . import schedules
from .mutants import FlushedEarly
from .settings import Settings, draw
from .simulator import World

NOT_REACHED = {
    # nobody in a simulation has other routers than the manager thinks: tests of their own
    ("preparing", "Refuse"),
    ("idle", "Refuse"),
    ("aborting", "Refuse"),
    # rare: a manager thought dead collects for an epoch that another one began
    *((phase, event) for phase in ("collecting", "planning") for event in ("Ack", "Refuse")),
    *((phase, event) for phase in ("collecting", "planning") for event in ("Done", "Resumed")),
    *((phase, "Aborted") for phase in ("collecting", "planning")),
    ("preparing", "Resumed"),
    # rarer still: such a one hears of a configuration that came when its task was further on
    ("moving", "Refuse"),
    ("resuming", "Refuse"),
}


def test_no_violation():
    """The simulator's docstring says what is checked."""
    count = effort(100_000)
    done, failure = schedules.run_many(count)
    assert failure is None, schedules.report(failure)
    assert done == count


def test_equal_seeds_equal_runs():
    for seed in range(30):
        traces = [World(seed, draw(seed), trace=True).run().trace for _ in range(2)]
        assert traces[0] == traces[1]
        assert traces[0]


def test_equal_in_every_process():
    """A seed that failed elsewhere fails here: nothing depends on the order of sets."""
    command = [sys.executable, "-m", f"{schedules.__name__}", "--seed", "11", "--trace"]
    folder = Path(__file__).parent.parent
    path = os.pathsep.join([str(folder.parent), str(folder), os.environ.get("PYTHONPATH", "")])
    outputs = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1
    assert "receives" in outputs.pop()


def count_rows(table, seen):
    real = table.row

    def row(phase, event):
        seen[phase.value, event] += 1
        return real(phase, event)

    return mock.patch.object(table, "row", row)


def test_everything_is_reached():
    """Every row of both tables, every answer to a record, crashes in every phase."""
    tasks, managers, answers, crashes = Counter(), Counter(), Counter(), Counter()

    def answered(kind, method):
        real = getattr(kind, method)

        def call(self, *arguments):
            answer = real(self, *arguments)
            answers[method, type(answer).__name__] += 1
            return answer

        return mock.patch.object(kind, method, call)

    real_crash = World._crash

    def crash(self, node):
        crashes[node.machine.phase.value, node.machine.buffered > 0] += 1
        real_crash(self, node)

    with (
        count_rows(instance_module.TABLE, tasks),
        count_rows(manager_module.TABLE, managers),
        answered(Instance, "record"),
        answered(Instance, "route"),
        mock.patch.object(World, "_crash", crash),
    ):
        for seed in range(2500):
            World(seed, draw(seed)).run()
    rows = {(row.phase.value, row.event) for row in instance_module.TABLE.rows}
    assert set(tasks) == rows
    rows = {(row.phase.value, row.event) for row in manager_module.TABLE.rows}
    assert set(managers) >= rows - NOT_REACHED
    assert set(answers) == {
        *(("record", kind) for kind in ("Apply", "Forward", "Hold", "Full")),
        *(("route", kind) for kind in ("Send", "Hold", "Full")),
    }
    assert min(answers.values()) > 200, answers
    phases = {phase for phase, _ in crashes}
    assert phases == {"settled", "staged", "moving", "paused"}
    assert sum(n for (_, holding), n in crashes.items() if holding) > 50, crashes


def test_failures_are_shown():
    """A failure is reported with its seed, simpler settings, and what happened."""
    classes = {"instance": FlushedEarly}
    failures = (schedules.failure_of(seed, **classes) for seed in range(1000))
    failure = next(failure for failure in failures if failure is not None)
    text = schedules.report(failure, **classes)
    assert f"--seed {failure.seed} --trace" in text
    assert "simplest: World(" in text
    simple = schedules.shrink(failure, **classes)
    assert not simple.settings.doubles
    assert not simple.settings.crashes
    assert schedules.failure_of(simple.seed, simple.settings, **classes) == simple
    assert schedules.trace_of(simple, **classes)[-1].startswith("protocol.")
    assert any(" holds " in line for line in schedules.trace_of(simple, **classes))


def test_command(capsys):
    assert schedules.main(["--count", "20", "--processes", "1"]) == 0
    assert "20 schedules" in capsys.readouterr().out
    assert schedules.main(["--seed", "3", "--trace"]) == 0
    assert "no violation" in capsys.readouterr().out


@pytest.mark.parametrize("pause", [False, True])
def test_bounded_everything(pause):
    """Tiny buffers and tiny channels: slow, and never stuck."""
    for seed in range(effort(300)):
        settings = Settings(
            *("diamond", (2, 2, 2, 2)),
            records=6,
            epochs=2,
            pause=pause,
            capacity=seed % 3,
            bound=1,
            slow=0.3,
        )
        World(seed, settings).run()


def test_classes_are_used():
    """Whatever the simulator drives are the classes that it is given."""

    class Own(Instance):
        made = 0

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            Own.made += 1

    class OwnManager(Manager):
        made = 0

        def propose(self, *arguments):
            OwnManager.made += 1
            return super().propose(*arguments)

    World(1, draw(1), instance=Own, manager=OwnManager).run()
    assert Own.made >= 3
    assert OwnManager.made >= 1
