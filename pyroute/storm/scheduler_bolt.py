"""Scheduler bolt: a task for each record by estimated finish time (`pyroute.posg`), keys aside.

`SchedulerBolt` sends ``[pyroute, *values]`` to the tasks of one component by direct grouping; those
are `TrackedBolt`s, which measure what records cost. What they learn goes back as datagrams, past
Storm: a feedback stream could close a circle of full queues that never opens again. A datagram that
is lost costs quality for a while and nothing else, and nobody waits for one.

The field ``pyroute`` is null, or ``[host, port, source, request, token]`` as JSON text: where to
report, and what the scheduler asks of this record. A datagram is the token, 16 bytes, and a report.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyroute._core import FormatError
from pyroute.keys import Keys
from pyroute.posg import _WINDOWS, Report, Request, Scheduler, Tracker
from pyroute.protocol.errors import ProtocolError
from pyroute.storm.bolt import Bolt, Context
from pyroute.storm.protocol import Tuple
from pyroute.storm.task_bolt import numbers_of

_LARGEST = 60_000  # bytes of a datagram
_AGAIN = 256  # records of a task after which it is told again where to report
_LONG = 0.0005  # seconds of work after which an ack does not wait for the next record
_TOKEN = 16  # bytes
_RETRY = 30.0  # seconds after which a name without an address is looked up again


class _Clock:
    """Time that the processes of several hosts share, and that never goes back."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self) -> float:
        self._last = max(self._last, time.time())
        return self._last


def _resolve(host: str, port: int) -> tuple[str, int]:
    """The address of a name."""
    found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
    return str(found[0][4][0]), port


def _positions(fields: Sequence[str], names: Sequence[str]) -> list[int]:
    for name in fields:
        if name not in names:
            raise ValueError(f"fields: expected some of {list(names)}, got {name!r}")
    return [names.index(name) for name in fields]


def _check(record: Tuple, places: Sequence[int]) -> None:
    least = max(places) + 1
    if len(record.values) < least:
        raise ProtocolError(f"tuple: expected {least} fields, got {len(record.values)}")


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
        Name or address that tasks are told to report to; None: `storm.local.hostname` where the
        cluster has it, else the name of this machine.
    bind
        Address on which reports are taken; None: `host` where it is given, else all of this
        machine. A datagram counts only with the token that the scheduler's records carry.
    options
        More of `Scheduler`'s.
    """

    idle_seconds = 0.05
    silent_seconds: float = 60.0
    """After so long without any report the log says so, once."""

    def __init__(
        self,
        target: str,
        *,
        fields: str | Sequence[str] = "value",
        mode: str = "pooled",
        host: str | None = None,
        bind: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.target = target
        self.fields = (fields,) if isinstance(fields, str) else tuple(fields)
        self.mode = mode
        self.host = host
        self.bind = bind
        self.options = dict(options or {})

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Open the socket for reports."""
        self._ids = context.tasks(self.target)
        if not self._ids:
            raise ValueError(f"target: expected a component of the topology, got {self.target!r}")
        self.scheduler = Scheduler(
            len(self._ids), mode=self.mode, source=context.task, **self.options
        )
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self.bind if self.bind is not None else self.host or "", 0))
        self._socket.setblocking(False)
        self._port = int(self._socket.getsockname()[1])
        self._token = secrets.token_bytes(_TOKEN)
        self._address = self.host or self._own_name(conf)
        self._sent = 0
        self._since = self.now()
        self._clock = _Clock()
        self._told = [0] * len(self._ids)
        self._places: dict[tuple[str | None, str], list[int]] = {}
        self.reports = 0
        """Reports that were taken."""
        self.refused = 0
        """Datagrams that were none, or came late."""

    def _own_name(self, conf: dict[str, Any]) -> str:
        name = str(conf.get("storm.local.hostname") or socket.gethostname())
        try:
            _resolve(name, self._port)
        except OSError as error:
            self.log(
                f"host: expected a name with an address, got {name!r} ({error}); only tasks on this"
                " machine can report",
                3,
            )
            return "127.0.0.1"
        return name

    def on_idle(self) -> None:
        """Take what tasks reported."""
        for _ in range(1000):
            try:
                data = self._socket.recv(1 << 16)
            except OSError:  # nothing more
                return
            took = False
            if secrets.compare_digest(data[:_TOKEN], self._token):
                with contextlib.suppress(FormatError, ValueError):
                    report = Report.from_bytes(data[_TOKEN:])
                    took = self.scheduler.receive(report, self._clock())
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
                source, token = self.scheduler.source, self._token.hex()
                head = json.dumps([self._address, self._port, source, asks, token])
                self._told[task] = _AGAIN
            self._told[task] -= 1
            self.emit([head, *record.values], task=self._ids[task], anchors=record)
        self._sent += len(records)
        if not self.reports:
            self._say_silence()

    def _say_silence(self) -> None:
        """Without reports it is a round robin: what is misconfigured does not show otherwise."""
        enough = 4 * _WINDOWS[self.mode] * len(self._ids)
        if self._sent >= enough and self.now() - self._since >= self.silent_seconds:
            self._since = math.inf
            self.log(
                f"scheduler: no task reported to {self._address}:{self._port} after {self._sent}"
                " records; the hosts of the tasks have to reach that address by UDP",
                3,
            )

    def _value(self, record: Tuple) -> Any:
        places = self._places.get((record.component, record.stream))
        if places is None:
            names = self.context.fields(record.component or "", record.stream)
            places = _positions(self.fields, names)
            self._places[record.component, record.stream] = places
        _check(record, places)
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
        self._schedulers: dict[int, tuple[tuple[str, int], bytes]] = {}
        self._unknown: dict[str, float] = {}
        self._clock = _Clock()
        self._names: dict[tuple[str | None, str], list[int]] = {}

    def process(self, records: list[Tuple]) -> None:
        """Apply each record and say what it took."""
        for record in records:
            value = self._value(record)
            head = record.values[0]
            requests: list[Request] = []
            if head is not None:
                host, port, source, request, token = json.loads(head)
                self._learn(source, host, port, bytes.fromhex(token))
                if request is not None:
                    requests.append(Request(*request))
            start = time.perf_counter()
            self.apply(record)
            taken = time.perf_counter() - start
            report = self.tracker.observe([value], [taken], self._clock(), requests)
            if report is not None:
                self._tell(report.to_bytes())
            self._done(record, taken)

    def _learn(self, source: int, host: str, port: int, token: bytes) -> None:
        """Look its name up, once: a look may take long, and most are told again what is known."""
        known = self._schedulers.get(source)
        if known is not None and known[1] == token:
            return
        if self.now() < self._unknown.get(host, -math.inf):
            return
        try:
            self._schedulers[source] = (_resolve(host, port), token)
        except OSError as error:
            if host not in self._unknown:
                self.log(f"scheduler: expected the name of a host, got {host!r}: {error}", 3)
            self._unknown[host] = self.now() + _RETRY

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
            places = _positions(self.fields, names)
            self._names[record.component, record.stream] = places
        _check(record, places)
        if len(places) == 1:
            return record.values[places[0]]
        return "\x1f".join(str(record.values[place]) for place in places)

    def _tell(self, data: bytes) -> None:
        if len(data) > _LARGEST:
            raise ValueError(f"options: expected reports of {_LARGEST} bytes, got {len(data)}")
        for address, token in self._schedulers.values():
            with contextlib.suppress(OSError):  # gone or full: it asks again
                self._socket.sendto(token + data, address)

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
