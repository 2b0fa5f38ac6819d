"""Worker processes on this machine, fed through a DynamicGrouping over pipes of sockets.

What is real: every worker is a process with one queue (its socket), served first come first
served; a record asks for `wait` seconds of waiting (as for a disk or a service) and for `work`
seconds of CPU time, counted by the thread's own CPU clock, so that a worker that has to share its
CPU takes longer for the same work. The source sends records at times drawn from the seed, whatever
the workers do, and never waits for one. Completion time is from the moment a record was due to the
moment its acknowledgement was read.

Hogs. "cpu": `hogs` processes that compute square roots, on the CPU of the first worker alone, as on
one virtual machine of the paper; all other workers, the source and the control share the other
CPUs. Hogs have a higher priority than workers (nice), so a few weigh as much as many. "stop": the
first worker is stopped and continued in turn (SIGSTOP, SIGCONT), so that it runs for 1 / slow of
the time; works on one CPU too. How slow the worker really became is measured, by the time its
records took during the hog and before.

Control is a process of its own, `pyroute control`: the source sends it what a hook would (JSON
datagrams, five times a second), it publishes ratios in a config store, and the source follows the
document as any router would. A choice per record is made in the source.
"""

import contextlib
import json
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bench.control.worker import DONE, RECORD
from pyroute.control import ConfigStore, SplitRatio, edge_name
from pyroute.control import policies as p
from pyroute.control.configurable import attach

SCRIPT = Path(__file__).with_name("worker.py")
NOTHING = -1
LATEST = 32  # records that the time of a record is the mean of
REPORT = 0.2  # seconds between two reports to the hook


@dataclass(frozen=True)
class Setup:
    """The stream, the workers and the hog."""

    workers: int = 9
    rate: float = 900.0
    wait: float = 0.0045
    work: float = 0.0005
    seconds: float = 300.0
    start: float = 60.0
    length: float = 120.0
    timeout: float = 30.0
    hog: str = "cpu"
    hogs: int = 4
    slow: float = 5.0  # of the hog "stop"
    nice: int = 10
    seed: int = 0
    drain: float = 900.0

    @property
    def end(self) -> float:
        return self.start + self.length


@dataclass
class Worker:
    """One worker as the source sees it."""

    process: "subprocess.Popen[bytes]"
    channel: socket.socket
    unsent: bytearray = field(default_factory=bytearray)
    partial: bytes = b""
    sent: deque[float] = field(default_factory=deque)  # in the last period
    done: deque[tuple[float, float]] = field(default_factory=deque)
    backlog: int = 0
    since: float = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid

    def report(self, task: int, now: float, period: float) -> dict[str, object]:
        """What a hook tells of the last period."""
        while self.sent and self.sent[0] <= now - period:
            self.sent.popleft()
        while self.done and self.done[0][0] <= now - period:
            self.done.popleft()
        latest = [took for _, took in list(self.done)[-LATEST:]]
        return {
            "component": "work",
            "task": task,
            "worker": f"w{task}",
            "seconds": period,
            "records": len(self.sent),
            "completed_per_s": len(self.done) / period,
            "service_ms": 1000.0 * sum(latest) / len(latest) if latest else math.nan,
            "backlog": self.backlog,
            "silent_s": now - self.since if self.backlog else 0.0,
        }


def _spawn(*words: object, keep: int | None = None) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-S", "-E", str(SCRIPT), *map(str, words)]
    return subprocess.Popen(command, pass_fds=() if keep is None else (keep,))


class Pool:
    """Workers, and the first of them under a hog when it is asked for."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.workers: list[Worker] = []
        self._hogs: list[subprocess.Popen[bytes]] = []
        self._stopper: threading.Thread | None = None
        self._still = threading.Event()
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._victim: set[int] = {cpus[-1]} if len(cpus) > 1 else set()
        self._others = set(cpus) - self._victim
        self._may_raise = os.geteuid() == 0  # else the workers are lowered: the same ratio
        if setup.hog == "cpu" and not self._victim:
            raise OSError("hog: expected two CPUs that a process can be bound to, got fewer")

    def __enter__(self) -> Self:
        if self.setup.hog == "cpu":
            self._before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self._others)
        try:
            for number in range(self.setup.workers):
                self._start(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, number: int) -> None:
        setup = self.setup
        ours, theirs = socket.socketpair()
        with theirs:
            pinned = setup.hog == "cpu" and number == 0
            process = _spawn(
                "serve", theirs.fileno(), setup.wait, setup.work, int(setup.hog == "stop"),
                0 if self._may_raise else setup.nice, min(self._victim) if pinned else -1,
                keep=theirs.fileno(),
            )  # fmt: skip
        ours.setblocking(False)
        self.workers.append(Worker(process, ours))

    def hog(self) -> None:
        """Begin to slow the first worker down."""
        if self.setup.hog == "cpu":
            nice = -self.setup.nice if self._may_raise else 0
            for number in range(self.setup.hogs):
                self._hogs.append(_spawn("hog", number, nice, min(self._victim)))
            return
        self._still.clear()
        pid = self.workers[0].pid
        run, rest = 0.02, 0.02 * (self.setup.slow - 1)

        def work() -> None:
            while not self._still.is_set():
                os.kill(pid, signal.SIGSTOP)
                time.sleep(rest)
                os.kill(pid, signal.SIGCONT)
                self._still.wait(run)

        self._stopper = threading.Thread(target=work, daemon=True)
        self._stopper.start()

    def calm(self) -> None:
        """The hog ends."""
        for process in self._hogs:
            process.kill()
            process.wait()
        self._hogs = []
        if self._stopper is not None:
            self._still.set()
            self._stopper.join()
            self._stopper = None

    def __exit__(self, *_: object) -> None:
        self.calm()
        for worker in self.workers:
            worker.channel.close()
            worker.process.kill()
            worker.process.wait()
        self.workers = []
        if self.setup.hog == "cpu":
            os.sched_setaffinity(0, self._before)


# The source ------------------------------------------------------------------------------------


@dataclass
class Run:
    """What happened to every record of one run."""

    setup: Setup
    due: npt.NDArray[np.float64]
    tasks: npt.NDArray[np.int32]
    latencies: npt.NDArray[np.float64]  # NaN: never acknowledged
    took: npt.NDArray[np.float64]
    changes: list[float]
    ratios: list[tuple[float, tuple[float, ...]]]
    duplicates: int
    lag: float  # the latest that the source was with a record, seconds
    statuses: list[dict[str, Any]] = field(default_factory=list)

    def each_second(self, affected: bool = False) -> npt.NDArray[np.float64]:
        """Mean completion time of the records due in each second, milliseconds; capped."""
        capped = np.minimum(np.nan_to_num(self.latencies, nan=np.inf), self.setup.timeout)
        chosen = self.tasks == 0 if affected else slice(None)
        size = math.ceil(self.setup.seconds)
        seconds = np.minimum(self.due[chosen].astype(np.int64), size - 1)
        total = np.bincount(seconds, capped[chosen], size)
        count = np.bincount(seconds, minlength=size)
        return 1000.0 * np.divide(total, count, out=np.zeros(size), where=count > 0)

    @property
    def peak(self) -> float:
        """Worst second from the start of the hog on."""
        return float(self.each_second()[int(self.setup.start) :].max())

    @property
    def usual(self) -> float:
        """Median over the seconds before the hog."""
        return float(np.median(self.each_second()[2 : max(3, int(self.setup.start))]))

    @property
    def affected(self) -> float:
        return float(self.each_second(affected=True)[int(self.setup.start) :].max())

    @property
    def lost(self) -> int:
        return int(np.isnan(self.latencies).sum())

    def failed_rate(self) -> float:
        """Most records per second, of one second, that the first worker did after the time-out."""
        late = ~(self.latencies <= self.setup.timeout) & (self.tasks == 0)
        size = math.ceil(self.setup.seconds)
        seconds = np.minimum(self.due[late].astype(np.int64), size - 1)
        return float(np.bincount(seconds, minlength=size).max())

    @property
    def failed(self) -> int:
        return int((~(self.latencies <= self.setup.timeout)).sum())

    @property
    def slow(self) -> float:
        """Time of a record at the first worker during the hog, by that before."""
        mine = self.tasks == 0
        begun = self.due + self.latencies - self.took
        before = mine & (begun > 2.0) & (begun < self.setup.start)
        during = mine & (begun > self.setup.start) & (begun < self.setup.end)
        if not before.any() or not during.any():
            return math.nan
        return float(np.mean(self.took[during]) / np.mean(self.took[before]))

    @property
    def most_changes(self) -> int:
        when = np.array(self.changes)
        if not when.size:
            return 0
        return int(max(np.searchsorted(when, when + 60.0, "left") - np.arange(when.size)))

    def recovered(self, tolerance: float = 0.05) -> float:
        """Seconds from the end of the hog until shares are, and stay, this near to even."""
        last, even = 0.0, 1.0 / self.setup.workers
        for (_, shares), following in zip(self.ratios, [*self.ratios[1:], None], strict=True):
            until = self.setup.seconds if following is None else following[0]
            away = max(abs(share - even) for share in shares) > tolerance * even + 1e-9
            if away and until > self.setup.end:
                last = until - self.setup.end
        return last


class Followed(SplitRatio):
    """A split ratio that remembers when it changed."""

    def __init__(self, workers: int) -> None:
        super().__init__(edge_name("hog", "source", "work"), workers)
        self.seen: list[tuple[float, tuple[float, ...]]] = []

    def process_update(self, document: Any) -> None:
        super().process_update(document)
        shares = self.grouping.shares()
        each = tuple(shares.get(task, 0.0) for task in range(self._tasks))
        self.seen.append((time.monotonic(), each))


class Source:
    """Sends the stream of a setup to the workers of a pool, and reads what they say.

    Parameters
    ----------
    pool
        The workers.
    split
        Where the circle is read from, for every batch anew.
    chooser
        Chooses per record, if there is one.
    port
        Of the hook, None: nobody is told.
    period
        What a report to the hook is about, seconds.
    """

    def __init__(
        self,
        pool: Pool,
        split: SplitRatio,
        chooser: p.LeastDelay | None = None,
        port: int | None = None,
        period: float = 1.0,
    ) -> None:
        self.pool, self.split, self.chooser = pool, split, chooser
        self.period = period
        self._hook: socket.socket | None = None
        if port is not None:
            self._hook = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._hook.connect(("127.0.0.1", port))
        self._selector = selectors.DefaultSelector()
        for number, worker in enumerate(pool.workers):
            self._selector.register(worker.channel, selectors.EVENT_READ, number)
        self.duplicates = 0

    def run(self, watch: Callable[[float], bool] | None = None) -> Run:
        """The whole stream, then wait for what is on its way.

        `watch` is called at every report and may end the stream by saying so.
        """
        setup = self.pool.setup
        count = int(setup.rate * setup.seconds)
        rng = np.random.default_rng(setup.seed)
        self.due = due = np.sort(rng.uniform(0.0, setup.seconds, count))
        self.tasks = np.full(count, NOTHING, np.int32)
        self.latencies = np.full(count, np.nan)
        self.took = np.full(count, np.nan)
        self.lag = 0.0
        agenda = [(setup.start, self.pool.hog), (setup.end, self.pool.calm)]
        report, number = REPORT, 0
        self.begun = begun = time.monotonic() + 0.05
        while number < count:
            now = time.monotonic() - begun
            while agenda and agenda[0][0] <= now:
                agenda.pop(0)[1]()
            if now >= report:
                self._report()
                report += REPORT * max(1, math.ceil((now - report) / REPORT))
                if watch is not None and watch(now):
                    break
            number = self._send(number, now)
            following = min(due[number] if number < count else now, report)
            if agenda:
                following = min(following, agenda[0][0])
            self._read(max(0.0, following - (time.monotonic() - begun)))
        self.pool.calm()
        self._drain(setup.drain)
        if self._hook is not None:
            self._hook.close()
        sent = self.tasks[:number]
        ratios = self._ratios(sent)
        changes = [] if self.chooser is not None else [when for when, _ in ratios[1:]]
        return Run(
            setup, due[:number], sent, self.latencies[:number], self.took[:number], changes,
            ratios, self.duplicates, self.lag,
        )  # fmt: skip

    def _ratios(self, sent: npt.NDArray[np.int32]) -> list[tuple[float, tuple[float, ...]]]:
        setup = self.pool.setup
        if self.chooser is not None:
            return _measured(self.due[: len(sent)], sent, setup)
        even = tuple(1.0 / setup.workers for _ in range(setup.workers))
        seen = getattr(self.split, "seen", [])
        return [(0.0, even), *((max(0.0, when - self.begun), each) for when, each in seen)]

    def _report(self) -> None:
        if self._hook is None:
            return
        now = time.monotonic()
        for task, worker in enumerate(self.pool.workers):
            text = json.dumps(worker.report(task, now, self.period))
            with contextlib.suppress(OSError):  # nobody listens, now
                self._hook.send(text.encode())

    def _send(self, number: int, now: float) -> int:
        """Everything that is due."""
        until = int(np.searchsorted(self.due, now, "right"))
        if until <= number:
            return number
        self.lag = max(self.lag, now - float(self.due[number]))
        workers = self.pool.workers
        chosen = self.split.grouping.assign(np.arange(number, until)).tolist()
        for each, first in zip(range(number, until), chosen, strict=True):
            task = first if self.chooser is None else self.chooser.choose(first, now)
            worker = workers[task]
            self.tasks[each] = task
            if not worker.backlog:
                worker.since = now + self.begun
            worker.backlog += 1
            worker.sent.append(now + self.begun)
            worker.unsent += RECORD.pack(each, self.due[each])
        for worker in workers:
            self._flush(worker)
        return until

    def _flush(self, worker: Worker) -> None:
        if not worker.unsent:
            return
        with contextlib.suppress(BlockingIOError):
            sent = worker.channel.send(worker.unsent)
            del worker.unsent[:sent]

    def _read(self, wait: float) -> None:
        for key, _ in self._selector.select(wait):
            worker = self.pool.workers[key.data]
            try:
                data = worker.channel.recv(65536)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(worker.channel)
                continue
            self._acknowledged(key.data, worker, worker.partial + data, time.monotonic())
        for worker in self.pool.workers:
            self._flush(worker)

    def _acknowledged(self, task: int, worker: Worker, data: bytes, now: float) -> None:
        whole = len(data) // DONE.size * DONE.size
        for number, took, _ in DONE.iter_unpack(data[:whole]):
            if not math.isnan(self.latencies[number]):
                self.duplicates += 1
            self.latencies[number] = now - self.begun - self.due[number]
            self.took[number] = took
            worker.backlog -= 1
            worker.since = now
            worker.done.append((now, took))
            if self.chooser is not None:
                self.chooser.done(task, took, now - self.begun)
        worker.partial = data[whole:]

    def _drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while any(worker.backlog for worker in self.pool.workers) and time.monotonic() < end:
            self._read(0.05)


def _measured(
    due: npt.NDArray[np.float64], tasks: npt.NDArray[np.int32], setup: Setup
) -> list[tuple[float, tuple[float, ...]]]:
    """Shares of the records of the next twenty seconds (less in short runs), each second."""
    window = min(20.0, max(1.0, (setup.seconds - setup.end) / 2))
    out = []
    for now in np.arange(0.0, setup.seconds - window + 0.5, 1.0):
        first, last = np.searchsorted(due, [now, now + window])
        found = np.bincount(tasks[first:last], minlength=setup.workers)
        out.append((float(now), tuple((found / max(1, last - first)).tolist())))
    return out


# Control ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def controlled(
    pool: Pool, folder: Path, policy: str, period: float, *more: str
) -> Iterator[tuple[Followed, int, "subprocess.Popen[str]"]]:
    """`pyroute control` of these workers; what follows its ratios, and the port of its hook."""
    split = Followed(pool.setup.workers)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "pyroute", "control", "hog", "source->work", "--json"]
    words += ["--config", f"dir:{folder / 'config'}", "--store", str(folder / "control.db")]
    words += ["--policy", policy, "--period", str(period), "--hook", str(port), *more]
    for number, worker in enumerate(pool.workers):
        words += ["--worker", f"w{number}={worker.pid}"]
    with (
        (folder / "status.jsonl").open("w") as shown,
        (folder / "errors.txt").open("w") as errors,
        ConfigStore.open(f"dir:{folder / 'config'}", poll=0.1) as config,
        subprocess.Popen(words, stdout=shown, stderr=errors, text=True) as process,
    ):
        try:
            with attach(config, split):
                end = time.monotonic() + 120.0
                while not (folder / "status.jsonl").stat().st_size:
                    if process.poll() is not None or time.monotonic() > end:
                        raise OSError((folder / "errors.txt").read_text() or "no control")
                    time.sleep(0.05)
                yield split, port, process
        finally:
            process.terminate()
            process.wait(30)


def run(setup: Setup, name: str) -> Run:
    """One run under a policy by its name, see `POLICIES`."""
    policy, period = POLICIES[name]
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(Pool(setup))
        if policy in ("none", "per record"):
            chooser = None
            if policy == "per record":
                usual = setup.wait + setup.work
                chooser = p.LeastDelay(setup.workers, seed=setup.seed, service=usual)
            return Source(pool, Followed(setup.workers), chooser).run()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyroute-hog-")))
        split, port, process = stack.enter_context(controlled(pool, folder, policy, period))
        result = Source(pool, split, port=port, period=min(1.0, period)).run()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        lines = (folder / "status.jsonl").read_text().splitlines()
        result.statuses = [json.loads(line) for line in lines]
        return result


POLICIES: dict[str, tuple[str, float]] = {
    "none": ("none", 0.0),
    "the paper's, 30 s": ("ban", 30.0),
    "ban on residual, 1 s": ("ban", 1.0),
    "predicted value, 1 s": ("predicted", 1.0),
    "proportional, 1 s": ("proportional", 1.0),
    "water-filling, 1 s": ("water-filling", 1.0),
    "water-filling, 0.2 s": ("water-filling", 0.2),
    "least delay of two": ("per record", 0.0),
}
RATIOS = tuple(
    name for name, (policy, _) in POLICIES.items() if policy not in ("none", "per record")
)
RATIOS_AT_1S = tuple(name for name in POLICIES if name.endswith(", 1 s"))
