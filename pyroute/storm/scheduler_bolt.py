"""Scheduler bolt: a task for each record by estimated finish time (`pyroute.posg`), keys aside.

`SchedulerBolt` sends ``[pyroute, *values]`` to the tasks of one component by direct grouping; those
are `TrackedBolt`s, which measure what records cost. What they learn goes back as datagrams, past
Storm: a feedback stream could close a circle of full queues that never opens again. A datagram that
is lost costs quality for a while and nothing else, and nobody waits for one.

The field ``pyroute`` is null, or ``[host, port, source, request]`` as JSON text: where to report,
and what the scheduler asks of this record.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyroute._core import FormatError
from pyroute.keys import Keys
from pyroute.posg import Report, Request, Scheduler, Tracker
from pyroute.storm.bolt import Bolt, Context
from pyroute.storm.protocol import Tuple
from pyroute.storm.task_bolt import numbers_of

_LARGEST = 60_000  # bytes of a datagram
_AGAIN = 256  # records of a task after which it is told again where to report
_LONG = 0.0005  # seconds of work after which an ack does not wait for the next record


class _Clock:
    """Time that the processes of several hosts share, and that never goes back."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self) -> float:
        self._last = max(self._last, time.time())
        return self._last


class SchedulerBolt(Bolt):
    """Sends each record to the task that will be done with it first.

    Parameters
    ----------
    target
        The component whose tasks get the records.
    fields
        Fields that the cost of a record depends on; several count together.
    mode
        ``posg`` or ``pooled``, as `pyroute.posg.Scheduler` has them.
    host
        Address on which reports are taken; it has to be reachable from the hosts of the tasks.
    options
        More of `Scheduler`'s.
    """

    idle_seconds = 0.05

    def __init__(
        self,
        target: str,
        *,
        fields: str | Sequence[str] = "value",
        mode: str = "pooled",
        host: str = "127.0.0.1",
        options: dict[str, Any] | None = None,
    ) -> None:
        self.target = target
        self.fields = (fields,) if isinstance(fields, str) else tuple(fields)
        self.mode = mode
        self.host = host
        self.options = dict(options or {})

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Open the socket for reports."""
        del conf
        self._ids = context.tasks(self.target)
        if not self._ids:
            raise ValueError(f"target: expected a component of the topology, got {self.target!r}")
        self.scheduler = Scheduler(
            len(self._ids), mode=self.mode, source=context.task, **self.options
        )
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self.host, 0))
        self._socket.setblocking(False)
        self._port = int(self._socket.getsockname()[1])
        self._clock = _Clock()
        self._told = [0] * len(self._ids)
        self._places: dict[tuple[str | None, str], list[int]] = {}
        self.reports = 0
        """Reports that were taken."""
        self.refused = 0
        """Datagrams that were none, or came late."""

    def on_idle(self) -> None:
        """Take what tasks reported."""
        for _ in range(1000):
            try:
                data = self._socket.recv(1 << 16)
            except OSError:  # nothing more
                return
            try:
                took = self.scheduler.receive(Report.from_bytes(data), self._clock())
            except (FormatError, ValueError):
                took = False
            self.reports += took
            self.refused += not took

    def process(self, records: list[Tuple]) -> None:
        """Send a batch on."""
        self.on_idle()
        values = [self._value(record) for record in records]
        columns = values if len(self.fields) == 1 else ["\x1f".join(map(str, v)) for v in values]
        named = Keys.from_ids(np.array(numbers_of(columns), np.uint64))  # of several types too
        tasks = self.scheduler.schedule(named, self._clock()).tolist()
        asked = {request.position: request for request in self.scheduler.requests}
        for at, (record, task) in enumerate(zip(records, tasks, strict=True)):
            request = asked.get(at)
            head = None
            if request is not None or not self._told[task]:
                asks = request and list(request)
                head = json.dumps([self.host, self._port, self.scheduler.source, asks])
                self._told[task] = _AGAIN
            self._told[task] -= 1
            self.emit([head, *record.values], task=self._ids[task], anchors=record)

    def _value(self, record: Tuple) -> Any:
        places = self._places.get((record.component, record.stream))
        if places is None:
            names = self.context.fields(record.component or "", record.stream)
            for name in self.fields:
                if name not in names:
                    raise ValueError(f"fields: expected some of {list(names)}, got {name!r}")
            places = [names.index(name) for name in self.fields]
            self._places[record.component, record.stream] = places
        if len(places) == 1:
            return record.values[places[0]]
        return [record.values[place] for place in places]

    def finish(self) -> None:
        """Close the socket."""
        with contextlib.suppress(AttributeError):
            self._socket.close()


class TrackedBolt(Bolt):
    """The receiving end: override `apply`; what it takes is measured and reported.

    A record is acked when `apply` returns; after long work the ack leaves at once.

    Parameters
    ----------
    fields
        As the `SchedulerBolt` has them.
    mode
        As the `SchedulerBolt` has it.
    options
        More of `pyroute.posg.Tracker`'s.
    """

    def __init__(
        self,
        *,
        fields: str | Sequence[str] = "value",
        mode: str = "pooled",
        options: dict[str, Any] | None = None,
    ) -> None:
        self.fields = (fields,) if isinstance(fields, str) else tuple(fields)
        self.mode = mode
        self.options = dict(options or {})

    def apply(self, record: Tuple) -> None:
        """Take one record; `record.values[0]` belongs to the scheduler."""
        raise NotImplementedError(f"{type(self).__name__}.apply")

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Begin to measure."""
        del conf
        number = context.tasks(context.component).index(context.task)
        self.tracker = Tracker(number, mode=self.mode, **self.options)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._schedulers: dict[int, tuple[str, int]] = {}
        self._clock = _Clock()
        self._names: dict[tuple[str | None, str], list[int]] = {}

    def process(self, records: list[Tuple]) -> None:
        """Apply each record and say what it took."""
        for record in records:
            head = record.values[0]
            requests: list[Request] = []
            if head is not None:
                host, port, source, request = json.loads(head)
                self._schedulers[source] = (host, port)
                if request is not None:
                    requests.append(Request(*request))
            start = time.perf_counter()
            self.apply(record)
            taken = time.perf_counter() - start
            value = self._value(record)
            report = self.tracker.observe([value], [taken], self._clock(), requests)
            if report is not None:
                self._tell(report.to_bytes())
            self._done(record, taken)

    def _done(self, record: Tuple, taken: float) -> None:
        """Others may be waiting for this record behind it, for as long as all of them take."""
        if record.id in self._protocol.waiting and record.id not in self._deferred:
            self.ack(record)
        if taken >= _LONG:
            self.flush()

    def _value(self, record: Tuple) -> Any:
        places = self._names.get((record.component, record.stream))
        if places is None:
            names = self.context.fields(record.component or "", record.stream)
            places = [names.index(name) for name in self.fields]
            self._names[record.component, record.stream] = places
        if len(places) == 1:
            return record.values[places[0]]
        return "\x1f".join(str(record.values[place]) for place in places)

    def _tell(self, data: bytes) -> None:
        if len(data) > _LARGEST:
            raise ValueError(f"options: expected reports of {_LARGEST} bytes, got {len(data)}")
        for address in self._schedulers.values():
            with contextlib.suppress(OSError):  # gone or full: it asks again
                self._socket.sendto(data, address)

    def finish(self) -> None:
        """Close the socket."""
        with contextlib.suppress(AttributeError):
            self._socket.close()


class BusyBolt(TrackedBolt):
    """Works for the milliseconds that a field says: for trying schedulers out.

    Parameters
    ----------
    milliseconds
        The field.
    wait
        Whether it waits for so long, as for the answer of a service; otherwise it takes so much
        time of a CPU.
    options
        As `TrackedBolt` has them.
    """

    def __init__(
        self, milliseconds: str = "milliseconds", *, wait: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self.milliseconds = milliseconds
        self.wait = wait

    def apply(self, record: Tuple) -> None:
        """Work for so long."""
        names = self.context.fields(record.component or "", record.stream)
        seconds = float(record.values[names.index(self.milliseconds)]) / 1000
        if self.wait:
            time.sleep(seconds)
            return
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
