"""The machines over TCP between OS processes, and kill -9: ``python -m tests.protocol.tcp``.

Six tasks and a manager, each a process of its own on loopback, with files as their stable storage.
While records flow, the manager reconfigures again and again, and each time a process chosen at
random is killed at a moment chosen at random and started again. A kill counts where a configuration
had been stored and its end had not. At the end all records are drained, and what is on disk is
compared with a run of one task.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pyroute.protocol import Instance, Task, _wire

from .nodes import STATE
from .tcp_node import NAMES, OWN, TOPOLOGY, key_of

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
"""Seconds after which something that should have happened is given up."""


class StuckError(AssertionError):
    """Something did not happen in time."""


@dataclass
class Result:
    kills: int = 0
    """While a reconfiguration was open."""
    tries: int = 0
    records: int = 0
    epochs: int = 0
    seconds: float = 0.0
    killed: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills during a reconfiguration ({self.tries} in all), {self.epochs}"
            f" epochs, {self.records} records, nothing lost or applied twice,"
            f" {self.seconds:.0f} s\n  killed: {dict(sorted(self.killed.items()))}"
            f"\n  moments: {dict(sorted(self.moments.items()))}"
        )


class Cluster:
    """The processes and their folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ports", "violations", "logs"):
            (folder / name).mkdir()
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for name in NAMES:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()

    def start(self, name: str) -> None:
        module = f"{__package__}.tcp_node"
        path = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        with (self.folder / "logs" / name.replace("/", "-")).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", module, str(self.folder), name],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        process = self.running[name]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def check(self) -> None:
        """That nobody found a violation or ended by itself."""
        for path in (self.folder / "violations").iterdir():
            raise AssertionError(path.read_text())
        for name, process in self.running.items():
            if process.poll() is not None:
                log = (self.folder / "logs" / name.replace("/", "-")).read_text()
                raise AssertionError(f"{name} ended with {process.returncode}:\n{log[-3000:]}")

    def wait(self, what: str, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not happened():
            self.check()
            if time.monotonic() > end:
                raise StuckError(
                    f"{what}: expected within {PATIENCE:.0f} s, got\n{self.situation()}"
                )
            time.sleep(0.001)

    def situation(self) -> str:
        lines = [f"storage: {sorted(p.name for p in (self.folder / 'manager').iterdir())}"]
        for name in NAMES[:-1]:
            saved = Saved.read(self.folder, name)
            lines.append(f"{name}: {saved}")
        return "\n".join(lines)

    def ask(self, epoch: int) -> None:
        temporary = self.folder / ".epoch"
        temporary.write_text(str(epoch))
        temporary.replace(self.folder / "epoch")

    def stored(self, epoch: int, what: str) -> bool:
        return (self.folder / "manager" / f"{epoch:012d}.{what}").exists()

    def ended(self, epoch: int) -> bool:
        # The next one removes it.
        return self.stored(epoch, "end") or self.stored(epoch + 1, "configuration")

    def moment(self, epoch: int) -> str:
        """How far a reconfiguration is, by its documents."""
        if not self.stored(epoch, "configuration"):
            return "before"
        if self.ended(epoch):
            return "after"
        return "decided" if self.stored(epoch, "outcome") else "prepared"


@dataclass
class Saved:
    """What a task committed last."""

    machine: Instance | None = None
    states: dict[int, tuple[int, int]] = field(default_factory=dict)
    waiting: int = 0
    emitted: int = 0
    applied: int = 0
    stopped: bool = False

    @classmethod
    def read(cls, folder: Path, name: str) -> Saved:
        try:
            data = (folder / name.replace("/", "-") / "snapshot").read_bytes()
        except FileNotFoundError:
            return cls()
        into = _wire.Reader(data, OWN)
        machine = Instance.restore(into.data(), topology=TOPOLOGY)
        states = {
            key: STATE.unpack_from(state)
            for key, state in into.items(lambda r: (r.word(), r.data()))
        }
        into.items(lambda r: (r.text(), r.word(), r.word()))
        outboxes = into.items(lambda r: (r.text(), r.number(), r.items(_wire.Reader.data)))
        into.items(lambda r: (r.text(), r.number()))
        stuck = into.items(lambda r: (r.text(), r.word(), r.data()))
        waiting = sum(len(frames) for _, _, frames in outboxes) + len(stuck) + machine.buffered
        return cls(machine, states, waiting, into.number(), into.number(), into.flag())


def run(kills: int, seed: int, folder: Path) -> Result:
    """Kill so many times in the middle of a reconfiguration; raises where something is wrong."""
    rng = random.Random(seed)
    result = Result()
    began = time.monotonic()
    with Cluster(folder) as cluster:
        epoch, usual = 0, 0.05
        while result.kills < kills:
            epoch += 1
            result.tries += 1
            if result.tries > 20 * kills + 20:
                raise StuckError(f"kills: expected {kills}, got {result.kills} of {result.tries}")
            cluster.ask(epoch)
            cluster.wait(f"epoch {epoch}", lambda e=epoch: cluster.moment(e) != "before")
            time.sleep(rng.random() * usual)
            name = rng.choice(NAMES)
            moment = cluster.moment(epoch)
            cluster.kill(name)
            if cluster.ended(epoch):
                moment = "after"
            result.moments[moment] += 1
            if moment != "after":
                result.kills += 1
                result.killed[name] += 1
            # About as long as a reconfiguration takes, so that all of it is hit.
            usual = max(0.005, usual * (0.8 if moment == "after" else 1.1))
            cluster.start(name)
            cluster.wait(f"the end of epoch {epoch}", lambda e=epoch: cluster.ended(e))
        (folder / "stop").touch()
        saved = _drain(cluster)
        cluster.check()
    result.epochs = epoch
    result.records = sum(saved[str(task)].emitted for task in TOPOLOGY.sources)
    result.seconds = time.monotonic() - began
    _compare(saved, epoch)
    return result


def _drain(cluster: Cluster) -> dict[str, Saved]:
    """Wait until everything that was emitted is applied everywhere."""
    saved: dict[str, Saved] = {}

    def drained() -> bool:
        time.sleep(0.05)
        saved.update({name: Saved.read(cluster.folder, name) for name in NAMES[:-1]})
        if any(s.waiting for s in saved.values()):
            return False
        emitted = sum(saved[str(task)].emitted for task in TOPOLOGY.sources)
        return all(saved[str(task)].stopped for task in TOPOLOGY.sources) and all(
            emitted == sum(saved[str(task)].applied for task in TOPOLOGY.tasks(name))
            for name in TOPOLOGY.keyed
        )

    cluster.wait("all records applied", drained)
    return saved


def _compare(saved: dict[str, Saved], epoch: int) -> None:
    """What tasks have is what one task would have, each key at its owner."""
    sources = [saved[str(task)].emitted for task in TOPOLOGY.sources]
    records = [i * len(sources) + number for number, n in enumerate(sources) for i in range(n)]
    for name in TOPOLOGY.keyed:
        alone: dict[int, tuple[int, int]] = {}
        for record in records:
            key = key_of(name, record)
            n, total = alone.get(key, (0, 0))
            alone[key] = (n + 1, total + record)
        there: dict[int, tuple[int, int]] = {}
        for task in TOPOLOGY.tasks(name):
            _compare_task(task, saved[str(task)], there, epoch)
        assert there == alone, f"{name}: the state of tasks is not that of one task"


def _compare_task(task: Task, saved: Saved, there: dict[int, tuple[int, int]], epoch: int) -> None:
    machine = saved.machine
    assert machine is not None
    assert not machine.busy, machine
    assert machine.epoch == epoch, (machine, epoch)
    for key, state in saved.states.items():
        assert key not in there, f"{key} is at two tasks of {task.operator}"
        assert machine.owner(task.operator, key) == task.number, f"{key} is not at its owner"
        there[key] = state


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="pyroute-tcp-"))
    try:
        print(run(options.kills, options.seed, folder))
    except BaseException:
        print(f"what is left: {folder}", file=sys.stderr)
        raise
    if options.keep:
        print(folder)
    else:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
