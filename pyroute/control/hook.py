"""Hook: what only the engine knows of its workers; samples for the store.

Storm: the jar sends one datagram per task and second to a port of its own machine, and never waits
for an answer. A datagram is one JSON object:

    {"component": "count", "task": 3, "seconds": 1.0, "records": 812, "queue_ms": 0.4,
     "queue_max_ms": 9.1, "send_ms": 0.1, "send_max_ms": 2.0, "samples": 12}

`component`, `task` and `seconds` must be there; `worker`, `host` and `time` may be; every other
number is a feature by its name. `records` becomes `records_per_s`. Anybody else may send the same.

Spark: executors' metrics from the status API of the driver (``http://HOST:4040``) or of the history
server; plain HTTP, no PySpark.
"""

from __future__ import annotations

import abc
import http.client
import json
import logging
import math
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from pyroute.control.store import Sample

__all__ = ["Hook", "SparkHook", "StormHook"]

_log = logging.getLogger("pyroute.control.hook")
_LARGEST = 65_536
_FAILURES = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError)
_TEXT = ("component", "worker", "host")


class Hook(abc.ABC):
    """A source of samples.

    Attributes
    ----------
    problem
        What was wrong at the last look, None where nothing was.
    """

    problem: str | None = None

    @abc.abstractmethod
    def collect(self, now: float | None = None) -> list[Sample]:
        """What came since the last call; never waits for a worker, never raises for one."""

    @abc.abstractmethod
    def close(self) -> None:
        """Listen no more."""

    @staticmethod
    def storm(port: int = 0, *, address: str = "127.0.0.1") -> StormHook:
        """Listen to the Storm jar; port 0 takes a free one, which `port` then names."""
        return StormHook(port, address=address)

    @staticmethod
    def spark(url: str, *, app: str | None = None, timeout: float = 2.0) -> SparkHook:
        """Ask Spark's status API; `app` is an application's id, None the first that runs."""
        return SparkHook(url, app=app, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class StormHook(Hook):
    """Datagrams of the Storm jar, or of anybody who sends the same.

    A thread of its own empties the socket, so that nothing is dropped between two looks.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        address: str = "127.0.0.1",
        clock: Callable[[], float] = time.time,
        most: int = 100_000,
    ) -> None:
        if not 0 <= port < 65_536:
            raise ValueError(f"port: expected 0 to 65535, got {port}")
        self._clock, self._most = clock, most
        self._host = socket.gethostname()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((address, port))
        except OSError as error:
            self._socket.close()
            raise OSError(f"port: expected a free one, got {port}: {error.strerror}") from None
        self._socket.settimeout(0.2)
        self.port: int = self._socket.getsockname()[1]
        self._lock = threading.Lock()
        self._came: list[Sample] = []
        self._problem: str | None = None
        self.refused = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="pyroute-hook", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                data = self._socket.recv(_LARGEST)
            except TimeoutError:
                continue
            except OSError as error:
                if self._closed.is_set():
                    return
                with self._lock:  # out of memory for a moment: deaf for that long, not for ever
                    self._problem = f"port {self.port}: {error}"
                self._closed.wait(0.2)
                continue
            try:
                sample = self.parse(data, self._clock(), self._host)
            except Exception as error:  # whatever it is, the next one is read
                with self._lock:
                    self.refused += 1
                    self._problem = f"datagram: {error}"
                continue
            with self._lock:
                self._came.append(sample)
                del self._came[: -self._most]

    @staticmethod
    def parse(data: bytes, now: float, host: str = "") -> Sample:
        """One datagram as a sample; `ValueError` for anything else."""
        try:
            document = json.loads(data)
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"expected JSON, got {error}") from None
        if not isinstance(document, dict):
            raise ValueError(f"expected an object, got {type(document).__name__}")
        for name in _TEXT:
            text = document.get(name, "")
            if not isinstance(text, str) or not text.isprintable():
                raise ValueError(f"{name}: expected text that can be shown, got {text!r}")
        seconds: Any = document.get("seconds")
        task: Any = document.get("task")
        if not _is_number(seconds) or not seconds > 0:
            raise ValueError(f"seconds: expected more than 0, got {seconds!r:.60}")
        if not isinstance(task, int) or isinstance(task, bool):
            raise ValueError(f"task: expected a number, got {task!r}")
        when = document.get("time", now)
        if not _is_number(when) or not math.isfinite(when):
            raise ValueError(f"time: expected seconds, got {when!r:.60}")
        features = {
            name: float(value)
            for name, value in document.items()
            if name not in ("task", "seconds", "records", "time") and _is_number(value)
        }
        records: Any = document.get("records")
        if _is_number(records):
            features["records_per_s"] = float(records) / seconds
        worker = document.get("worker") or f"{document.get('component', '')}/{task}"
        return Sample(float(when), document.get("host") or host, worker, features)

    def collect(self, now: float | None = None) -> list[Sample]:  # noqa: ARG002
        """What came since the last call."""
        with self._lock:
            came, self._came = self._came, []
            self.problem, self._problem = self._problem, None
        return came

    def close(self) -> None:
        """Listen no more."""
        self._closed.set()
        self._thread.join(timeout=5.0)
        self._socket.close()


class SparkHook(Hook):
    """Executors of one application, by the status API; rates are since the look before."""

    _COUNTS: Mapping[str, str] = {
        "completedTasks": "completed_per_s",
        "failedTasks": "failed_per_s",
        "totalShuffleRead": "shuffle_read_bytes_per_s",
        "totalShuffleWrite": "shuffle_write_bytes_per_s",
        "totalInputBytes": "input_bytes_per_s",
    }
    _LEVELS: Mapping[str, str] = {
        "activeTasks": "backlog",
        "memoryUsed": "memory_used",
        "diskUsed": "disk_used",
        "totalCores": "cores",
        "rddBlocks": "rdd_blocks",
    }

    def __init__(
        self,
        url: str,
        *,
        app: str | None = None,
        timeout: float = 2.0,
        clock: Callable[[], float] = time.time,
        get: Callable[[str], Any] | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: expected http://HOST:PORT, got {url!r}")
        self._url, self._app, self._timeout = url.rstrip("/"), app, timeout
        self._clock, self._get = clock, get or self._fetch
        self._before: dict[str, tuple[float, dict[str, float]]] = {}
        self._ticks, self._again = ticks, -math.inf

    def _fetch(self, path: str) -> Any:
        request = urllib.request.Request(f"{self._url}/api/v1{path}")
        with urllib.request.urlopen(request, timeout=self._timeout) as answer:
            return json.load(answer)

    def collect(self, now: float | None = None) -> list[Sample]:
        """One sample per executor that is active; none while Spark does not answer.

        One that does not is left alone for ten times as long as that took: a host that is away
        takes seconds, and whoever calls this has others to look after.
        """
        begun = self._ticks()
        if begun < self._again:
            return []
        when = self._clock() if now is None else now
        try:
            app = self._app or self._application()
            quoted = urllib.parse.quote(app, safe="")
            executors = self._get(f"/applications/{quoted}/executors")
            out = [self._sample(each, when) for each in executors if each.get("isActive", True)]
        except _FAILURES as error:
            self.problem = f"{self._url}: {error}"
            self._again = self._ticks() + 10.0 * (self._ticks() - begun)
            return []
        self.problem = None
        there = {sample.worker for sample in out}
        self._before = {name: seen for name, seen in self._before.items() if name in there}
        alone = [sample for sample in out if sample.worker == "driver"]
        # In local mode the driver is the only executor; elsewhere it runs no tasks.
        return out if len(alone) == len(out) else [s for s in out if s.worker != "driver"]

    def _application(self) -> str:
        found = self._get("/applications")
        running = [
            each
            for each in found
            if not all(attempt.get("completed") for attempt in each.get("attempts", [{}]))
        ]
        if not found:
            raise ValueError("expected an application, got none")
        return str((running or found)[0]["id"])

    def _sample(self, executor: Mapping[str, Any], when: float) -> Sample:
        name = str(executor["id"])
        counts = {key: float(executor.get(key, 0)) for key in self._COUNTS}
        counts["totalDuration"] = float(executor.get("totalDuration", 0))
        counts["totalGCTime"] = float(executor.get("totalGCTime", 0))
        features = {
            feature: float(executor.get(key, math.nan)) for key, feature in self._LEVELS.items()
        }
        memory = executor.get("peakMemoryMetrics") or {}
        features["heap_bytes"] = float(memory.get("JVMHeapMemory", math.nan))
        features["off_heap_bytes"] = float(memory.get("JVMOffHeapMemory", math.nan))
        features |= dict.fromkeys(self._COUNTS.values(), math.nan)
        features |= {"service_ms": math.nan, "gc_percent": math.nan}
        before = self._before.get(name)
        self._before[name] = (when, counts)
        if before is not None and when > before[0]:
            passed = {key: counts[key] - before[1][key] for key in counts}
            if min(passed.values()) >= 0:  # else: another executor of that name
                seconds = when - before[0]
                for key, feature in self._COUNTS.items():
                    features[feature] = passed[key] / seconds
                tasks = passed["completedTasks"] + passed["failedTasks"]
                spent = passed["totalDuration"]
                if name == "driver":  # there it is the driver's age, in Spark 3.4 and newer
                    tasks = spent = 0.0
                if tasks:
                    features["service_ms"] = spent / tasks
                if spent:
                    features["gc_percent"] = 100.0 * passed["totalGCTime"] / spent
        host = str(executor.get("hostPort", "")).rpartition(":")[0]
        return Sample(when, host, name, features)

    def close(self) -> None:
        """Nothing is open between two looks."""


def _is_number(value: object) -> bool:
    """Whether it is one that a float can hold: JSON knows whole numbers of any length."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 1 << 1000
    return isinstance(value, float)
