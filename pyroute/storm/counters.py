"""Counters: what a bolt tells control of itself, so that no child has to be looked into.

Once a period a datagram goes to a `pyroute.control.Hook` (``pyroute.hook`` of the topology's
configuration: a port of the task's own machine, or ``HOST:PORT``)::

    component, task, seconds   who, and how long the period was
    records                    records that `process` was called for and that are done
    service_ms                 what one of them took: time in `process` over its records
    backlog                    records that were read and are not done

A batch that takes longer than its records usually do is told of while it runs: its time so far over
its records is what they take at least, so that one that hangs is as slow as it has been silent.

Cost: two looks at a clock a batch. Threads: `begin` and `end` belong to the loop, `told` to
anybody; `run` is a thread of its own, which waits for no listener: what has no room is dropped.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

SETTING = "pyroute.hook"
PERIOD = 1.0
"""Seconds between two datagrams."""


def address_of(value: Any) -> tuple[str, int]:
    """Host and port of a hook; `ValueError` for anything else."""
    host, _, port = str(value).rpartition(":")
    if isinstance(value, bool) or not port.isascii() or not port.isdigit():
        raise ValueError(f"{SETTING}: expected PORT or HOST:PORT, got {value!r}")
    if not 0 < int(port) < 65_536:
        raise ValueError(f"{SETTING}: expected a port from 1 to 65535, got {port}")
    return host or "127.0.0.1", int(port)


class Counters:
    """Of one task.

    Parameters
    ----------
    component, task
        Who tells it.
    queued
        How many records were read and are in no batch yet.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        component: str,
        task: int,
        queued: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._who = {"component": component, "task": task}
        self._queued, self._clock = queued, clock
        self._lock = threading.Lock()
        self._batch: tuple[float, int] | None = None
        self._records, self._busy = 0, 0.0
        self._usual: float | None = None  # seconds of a record, of the last period that had some
        self._since = clock()

    def begin(self, records: int) -> None:
        """A batch of so many begins."""
        with self._lock:
            self._batch = self._clock(), records

    def end(self) -> None:
        """It is done."""
        now = self._clock()
        with self._lock:
            if self._batch is not None:
                since, records = self._batch
                self._batch = None
                self._records += records
                self._busy += now - since

    def told(self) -> dict[str, Any]:
        """What is told of the time since the last call."""
        now = self._clock()
        with self._lock:
            batch, records, busy = self._batch, self._records, self._busy
            self._records, self._busy = 0, 0.0
            since, self._since = self._since, now
        if records:
            self._usual = busy / records
        service, backlog = self._usual, self._queued()
        if batch is not None:
            begun, size = batch
            backlog += size
            if service is not None or begun <= since:
                service = max(service or 0.0, (now - begun) / size)
        told = {**self._who, "seconds": max(now - since, 1e-9), "records": records}
        told["backlog"] = backlog
        if service is not None and (records or batch is not None):
            told["service_ms"] = 1000.0 * service
        return told

    def run(self, address: tuple[str, int], over: threading.Event, period: float = PERIOD) -> None:
        """Tell it once a period until it is over."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            while not over.wait(period):
                with contextlib.suppress(OSError):
                    sender.sendto(json.dumps(self.told()).encode(), address)
