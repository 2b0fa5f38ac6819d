"""Monitor: features of a machine and of the workers on it, once a period.

One process per host. Everything is named, and no feature is a process id. What the operating
system does not tell is NaN, so every sample of a kind has the same features.

>>> monitor = Monitor(host="h1")
>>> machine, *workers = monitor.sample(now=0.0)
>>> machine.worker, len(machine.features), workers
('', 57, [])
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyroute.control.store import Sample

__all__ = ["MACHINE_FEATURES", "WORKER_FEATURES", "Monitor"]

NAN = math.nan
SHORTEST, LONGEST = 0.1, 30.0

WORKER_FEATURES = (
    "cpu_percent",
    "cpu_user_percent",
    "cpu_system_percent",
    "cpu_wait_percent",
    "memory_rss",
    "memory_vms",
    "memory_shared",
    "memory_data",
    "memory_percent",
    "minor_faults_per_s",
    "major_faults_per_s",
    "read_bytes_per_s",
    "write_bytes_per_s",
    "read_calls_per_s",
    "write_calls_per_s",
    "voluntary_switches_per_s",
    "involuntary_switches_per_s",
    "threads",
    "open_files",
    "nice",
    "cpu_number",
    "is_running",
    "is_stopped",
    "age_s",
)
MACHINE_FEATURES = (
    *(f"cpu_{name}_percent" for name in ("user", "nice", "system", "idle", "iowait")),
    *(f"cpu_{name}_percent" for name in ("irq", "softirq", "steal", "guest")),
    *("cpu_percent", "cpu_busiest_percent", "cpu_least_busy_percent", "cpu_count", "cpu_mhz"),
    *("load_1", "load_5", "load_15", "run_queue", "blocked", "processes"),
    *("switches_per_s", "interrupts_per_s", "soft_interrupts_per_s", "forks_per_s"),
    *("memory_total", "memory_available", "memory_used", "memory_free", "memory_percent"),
    *("memory_buffers", "memory_cached", "memory_shared", "memory_active", "memory_inactive"),
    *("memory_slab", "memory_dirty"),
    *("swap_used", "swap_percent", "swap_in_per_s", "swap_out_per_s"),
    *("page_faults_per_s", "major_faults_per_s", "page_in_per_s", "page_out_per_s"),
    *("disk_reads_per_s", "disk_writes_per_s", "disk_read_bytes_per_s", "disk_write_bytes_per_s"),
    "disk_busy_percent",
    *("net_sent_bytes_per_s", "net_received_bytes_per_s"),
    *("net_sent_packets_per_s", "net_received_packets_per_s"),
    *("net_errors_per_s", "net_drops_per_s", "sockets"),
    "uptime_s",
)


def _psutil() -> Any:
    try:
        import psutil
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'pyroute-core[control]'") from None
    return psutil


class Monitor:
    """Measures one machine and the workers on it.

    Parameters
    ----------
    workers
        Process ids by worker name, or a function that gives them; asked at every sample, so
        workers may come and go. One whose process is gone is left out.
    period
        Seconds between two samples, 0.1 to 30.
    host
        Name of this machine.
    clock
        Time of a sample.

    Attributes
    ----------
    cost
        Part of one CPU that measuring took, since the first sample.
    problems
        What could not be measured at the last sample, by worker.
    """

    def __init__(
        self,
        workers: Mapping[str, int] | Callable[[], Mapping[str, int]] | None = None,
        *,
        period: float = 1.0,
        host: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not SHORTEST <= period <= LONGEST:
            raise ValueError(
                f"period: expected {SHORTEST:g} to {LONGEST:g} seconds, got {period:g}"
            )
        self._psutil = _psutil()
        self._workers = workers if callable(workers) else (lambda found=workers or {}: found)
        self.period, self.host, self._clock = period, host or socket.gethostname(), clock
        self._processes: dict[str, _Worker] = {}
        self._gone: dict[str, int] = {}  # a process that comes under that number is another one
        self._before: tuple[float, dict[str, float]] | None = None
        self._started: float | None = None
        self._spent = 0.0
        self.problems: dict[str, str] = {}

    @property
    def cost(self) -> float:
        """CPU seconds of measuring by seconds passed."""
        if self._started is None:
            return 0.0
        passed = time.monotonic() - self._started
        return self._spent / passed if passed > 0 else 0.0

    def sample(self, now: float | None = None) -> list[Sample]:
        """The machine first (worker ''), then each worker that lives.

        Rates are since the sample before; the first one has NaN for them.
        """
        begun = time.thread_time()
        when = self._clock() if now is None else now
        ticks = time.monotonic()
        if self._started is None:
            self._started = ticks
        self.problems = {}
        out = [Sample(when, self.host, "", self._machine(ticks))]
        try:
            wanted = dict(self._workers())
        except Exception as error:
            wanted = {name: worker.pid for name, worker in self._processes.items()}
            self.problems[""] = f"workers: {error}"
        for name in [name for name in self._processes if name not in wanted]:
            del self._processes[name]
        for name, pid in wanted.items():
            features = self._worker(name, int(pid), ticks)
            if features is not None:
                out.append(Sample(when, self.host, name, features))
        self._spent += time.thread_time() - begun
        return out

    def run(self, stop: threading.Event) -> Iterator[list[Sample]]:
        """Samples, one list per period, until `stop` is set; missed periods are left out."""
        following = time.monotonic()
        while not stop.is_set():
            yield self.sample()
            following += self.period
            now = time.monotonic()
            if following < now:
                following = now + self.period - (now - following) % self.period
            if stop.wait(max(0.0, following - time.monotonic())):
                return

    # one worker --------------------------------------------------------------------------------

    def _worker(self, name: str, pid: int, ticks: float) -> dict[str, float] | None:
        known = self._processes.get(name)
        try:
            if self._gone.get(name) == pid or (
                known is not None and known.pid == pid and not known.process.is_running()
            ):
                self._gone[name] = pid
                raise self._psutil.NoSuchProcess(pid)
            if known is None or known.pid != pid:
                known = self._processes[name] = _Worker(pid, self._psutil.Process(pid))
            return known.features(ticks)
        except self._psutil.NoSuchProcess:
            if self._processes.pop(name, None) is not None:
                self._gone[name] = pid
            self.problems[name] = f"process {pid} is gone"
        except (self._psutil.Error, OSError, ValueError) as error:
            self.problems[name] = str(error)
        return None

    # the machine -------------------------------------------------------------------------------

    def _machine(self, ticks: float) -> dict[str, float]:
        ps = self._psutil
        found: dict[str, float] = dict.fromkeys(MACHINE_FEATURES, NAN)
        sums: dict[str, float] = {}
        for part in (_cpu, _memory, _disk, _network, _kernel):
            try:
                part(ps, found, sums)
            except (ps.Error, OSError, ValueError, AttributeError, RuntimeError) as error:
                self.problems.setdefault("", str(error))
        before, self._before = self._before, (ticks, sums)
        if before is not None and ticks > before[0]:
            _rates(found, sums, before[1], ticks - before[0])
        return found


def _rates(
    found: dict[str, float], sums: Mapping[str, float], old: Mapping[str, float], seconds: float
) -> None:
    """Differences of counters by the seconds between; of CPU times as percent."""
    for name, total in sums.items():
        if name.startswith(":") or name not in old:
            continue
        rate = (total - old[name]) / seconds
        found[name] = NAN if rate < 0 else (100.0 * rate if name.endswith("_percent") else rate)
    each = [name for name in sums if name.startswith(":cpu") and name in old]
    passed = {name: sums[name] - old[name] for name in each}
    cores = {name.split(":")[2] for name in each}
    busy = []
    for core in cores:
        total = passed.get(f":cpu:{core}:total", 0.0)
        idle = passed.get(f":cpu:{core}:idle", 0.0)
        if total > 0:
            busy.append(100.0 * (1.0 - idle / total))
    if busy:
        found["cpu_percent"] = sum(busy) / len(busy)
        found["cpu_busiest_percent"], found["cpu_least_busy_percent"] = max(busy), min(busy)


def _cpu(ps: Any, found: dict[str, float], sums: dict[str, float]) -> None:
    cores = ps.cpu_times(percpu=True)
    found["cpu_count"] = float(len(cores))
    for name in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest"):
        total = sum(getattr(core, name, NAN) for core in cores)
        sums[f"cpu_{name}_percent"] = total / max(1, len(cores))
    for number, core in enumerate(cores):
        sums[f":cpu:{number}:total"] = float(sum(core[:8]))
        sums[f":cpu:{number}:idle"] = core.idle + getattr(core, "iowait", 0.0)
    found["load_1"], found["load_5"], found["load_15"] = os.getloadavg()
    counts = ps.cpu_stats()
    sums["switches_per_s"] = float(counts.ctx_switches)
    sums["interrupts_per_s"] = float(counts.interrupts)
    sums["soft_interrupts_per_s"] = float(counts.soft_interrupts)
    found["uptime_s"] = time.time() - ps.boot_time()


def _memory(ps: Any, found: dict[str, float], sums: dict[str, float]) -> None:
    memory = ps.virtual_memory()
    for name in ("total", "available", "used", "free", "percent"):
        found[f"memory_{name}"] = float(getattr(memory, name))
    for name in ("buffers", "cached", "shared", "active", "inactive", "slab"):
        found[f"memory_{name}"] = float(getattr(memory, name, NAN))
    swap = ps.swap_memory()
    found["swap_used"], found["swap_percent"] = float(swap.used), float(swap.percent)
    sums["swap_in_per_s"], sums["swap_out_per_s"] = float(swap.sin), float(swap.sout)


def _disk(ps: Any, found: dict[str, float], sums: dict[str, float]) -> None:  # noqa: ARG001
    disk = ps.disk_io_counters()
    if disk is None:
        return
    sums["disk_reads_per_s"], sums["disk_writes_per_s"] = disk.read_count, disk.write_count
    sums["disk_read_bytes_per_s"] = disk.read_bytes
    sums["disk_write_bytes_per_s"] = disk.write_bytes
    sums["disk_busy_percent"] = getattr(disk, "busy_time", NAN) / 1000.0


def _network(ps: Any, found: dict[str, float], sums: dict[str, float]) -> None:  # noqa: ARG001
    net = ps.net_io_counters()
    if net is None:
        return
    sums["net_sent_bytes_per_s"], sums["net_received_bytes_per_s"] = net.bytes_sent, net.bytes_recv
    sums["net_sent_packets_per_s"] = net.packets_sent
    sums["net_received_packets_per_s"] = net.packets_recv
    sums["net_errors_per_s"] = net.errin + net.errout
    sums["net_drops_per_s"] = net.dropin + net.dropout


def _kernel(ps: Any, found: dict[str, float], sums: dict[str, float]) -> None:  # noqa: ARG001
    """What psutil does not tell; files of Linux."""
    for line in _lines("/proc/stat"):
        word, _, rest = line.partition(" ")
        if word == "procs_running":
            found["run_queue"] = float(rest)
        elif word == "procs_blocked":
            found["blocked"] = float(rest)
        elif word == "processes":
            sums["forks_per_s"] = float(rest)
    names = {
        "pgfault": "page_faults_per_s",
        "pgmajfault": "major_faults_per_s",
        "pgpgin": "page_in_per_s",
        "pgpgout": "page_out_per_s",
    }
    for line in _lines("/proc/vmstat"):
        word, _, rest = line.partition(" ")
        if word in names:
            sums[names[word]] = float(rest)
    _more(found)


def _more(found: dict[str, float]) -> None:
    for line in _lines("/proc/meminfo"):
        if line.startswith("Dirty:"):
            found["memory_dirty"] = 1024.0 * float(line.split()[1])
    mhz = [float(line.partition(":")[2]) for line in _lines("/proc/cpuinfo") if "MHz" in line]
    if mhz:
        found["cpu_mhz"] = sum(mhz) / len(mhz)
    for line in _lines("/proc/net/sockstat"):
        if line.startswith("sockets: used"):
            found["sockets"] = float(line.split()[2])
    for line in _lines("/proc/loadavg"):
        found["processes"] = float(line.split()[3].partition("/")[2])


def _lines(path: str) -> Sequence[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123
            return file.read().splitlines()
    except OSError:
        return ()


class _Worker:
    """One process, and what its counters were at the last look."""

    def __init__(self, pid: int, process: Any) -> None:
        self.pid, self.process = pid, process
        self._before: tuple[float, dict[str, float]] | None = None
        self._made = float(process.create_time())

    def features(self, ticks: float) -> dict[str, float]:
        found: dict[str, float] = dict.fromkeys(WORKER_FEATURES, NAN)
        sums: dict[str, float] = {}
        with self.process.oneshot():
            memory = self.process.memory_info()
            found["memory_rss"], found["memory_vms"] = float(memory.rss), float(memory.vms)
            found["memory_shared"] = float(getattr(memory, "shared", NAN))
            found["memory_data"] = float(getattr(memory, "data", NAN))
            found["memory_percent"] = float(self.process.memory_percent())
            found["threads"] = float(self.process.num_threads())
            found["nice"] = float(self.process.nice())
            status = self.process.status()
            found["is_running"] = float(status == "running")
            found["is_stopped"] = float(status in ("stopped", "tracing-stop"))
            found["age_s"] = time.time() - self._made
            times = self.process.cpu_times()
            sums["cpu_user_percent"], sums["cpu_system_percent"] = times.user, times.system
            sums["cpu_percent"] = times.user + times.system
            sums["cpu_wait_percent"] = getattr(times, "iowait", NAN)
            switches = self.process.num_ctx_switches()
            sums["voluntary_switches_per_s"] = float(switches.voluntary)
            sums["involuntary_switches_per_s"] = float(switches.involuntary)
            self._more(found, sums)
        before, self._before = self._before, (ticks, sums)
        if before is not None and ticks > before[0]:
            _rates(found, sums, before[1], ticks - before[0])
        return found

    def _more(self, found: dict[str, float], sums: dict[str, float]) -> None:
        """What not every system tells, or not everybody may see."""
        asked: dict[str, Callable[[], float]] = {
            "open_files": lambda: float(self.process.num_fds()),
            "cpu_number": lambda: float(self.process.cpu_num()),
        }
        for name, ask in asked.items():
            try:
                found[name] = ask()
            except (AttributeError, PermissionError, _psutil().AccessDenied):
                found[name] = NAN
        try:
            io = self.process.io_counters()
            sums["read_bytes_per_s"], sums["write_bytes_per_s"] = io.read_bytes, io.write_bytes
            sums["read_calls_per_s"], sums["write_calls_per_s"] = io.read_count, io.write_count
        except (AttributeError, PermissionError, _psutil().AccessDenied):
            pass
        for line in _lines(f"/proc/{self.pid}/stat"):
            fields = line.rpartition(")")[2].split()
            sums["minor_faults_per_s"], sums["major_faults_per_s"] = map(float, fields[7:10:2])
