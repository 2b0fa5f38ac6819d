"""A bolt or spout that runs as a child of Storm: the only file that reads stdin.

Subclass `Bolt`, override what you need, and call `run`::

    class Count(Bolt):
        def initialize(self, conf, context):
            self.counts = Counter()

        def process(self, records):
            for record in records:
                word = record.values[0]
                self.counts[word] += 1
                self.emit([word, self.counts[word]], anchors=record)


    Count().run()

The rules of the house:

- `process` gets the records that are there now, at most `max_batch` and about what takes
  `batch_seconds`: acks do not wait until Storm replays. When it returns they are acked, but for
  those acked, failed or deferred in it; with `auto_ack = False` nothing is acked.
- Records of the streams in `control_streams` go to `control` instead, one at a time, in their place
  in the order of arrival. They and ticks are acked when the method returns.
- Storm waits for a sign of life. While your code runs a helper gives it, for `max_busy_seconds` at
  most: a bolt that hangs is still found.
- What you print goes to the worker's log, and what a library writes to file descriptor 1 goes to
  stderr. A script that may print before `run` calls `take_stdio()` first; without that, what fits
  in the buffer of `sys.stdout` is safe (PYTHONUNBUFFERED takes the buffer away).
- An exception, a message that cannot be, or a closed pipe ends the process with a code that is not
  0. What is not acked by then is replayed by Storm.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

from pyroute.protocol.errors import ProtocolError
from pyroute.storm import counters
from pyroute.storm import protocol as ml
from pyroute.storm.protocol import Multilang, Role, Tuple

_READ: Final = 1 << 20
_FLUSH: Final = 1 << 16

CLOSED: Final = 3
"""Exit code after Storm closed the pipe."""
FAILED: Final = 1
"""Exit code after an error."""


class PipeClosedError(ProtocolError):
    """Storm closed a pipe: there is nobody left to talk to."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the topology looks like from this task."""

    raw: dict[str, Any]
    """The context as Storm sent it."""

    @property
    def task(self) -> int:
        """Storm's id of this task."""
        return int(self.raw["taskid"])

    @property
    def component(self) -> str:
        """The component that this task belongs to."""
        return str(self.component_of(self.task))

    def component_of(self, task: int) -> str | None:
        """The component of a task."""
        name = self.raw.get("task->component", {}).get(str(task))
        return None if name is None else str(name)

    def tasks(self, component: str) -> tuple[int, ...]:
        """Storm's ids of the tasks of a component, ascending."""
        names = self.raw.get("task->component", {})
        return tuple(sorted(int(task) for task, name in names.items() if name == component))

    @property
    def components(self) -> tuple[str, ...]:
        """All components, also Storm's own, by name."""
        return tuple(sorted(set(self.raw.get("task->component", {}).values())))

    def fields(self, component: str, stream: str = "default") -> tuple[str, ...]:
        """Names of the values of the records that a stream brings here."""
        found = self.raw.get("source->stream->fields", {}).get(component, {}).get(stream)
        if found is None:
            raise ValueError(
                f"stream: expected one that this task reads, got {stream!r} of {component!r}"
            )
        return tuple(found)

    def targets(self, stream: str = "default") -> tuple[str, ...]:
        """Components that read a stream of this one, by name."""
        return tuple(sorted(self.raw.get("stream->target->grouping", {}).get(stream, {})))


_taken: list[tuple[int, int]] = []


def take_stdio() -> tuple[int, int]:
    """Take Storm's pipes away from everybody else; returns their new file descriptors.

    From then on file descriptor 0 is empty, and file descriptor 1 is stderr.
    """
    if not _taken:
        reads, writes = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stdout.flush()  # what was printed so far goes to stderr
        _taken.append((reads, writes))
    return _taken[0]


class _Lines(io.RawIOBase):
    """Bytes for the log: each line becomes one of the log's."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__()
        self._log = log
        self._rest = b""
        self._lock = threading.Lock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """For programs that are started: they write to stderr, as what is at 1 is by now."""
        return 1

    def write(self, data: Any) -> int:
        given = bytes(data)
        with self._lock:
            *lines, self._rest = (self._rest + given).split(b"\n")
        for line in lines:
            self._log(line.decode("utf-8", "backslashreplace"))
        return len(given)

    def take_rest(self) -> str:
        """The last line, which has no end."""
        with self._lock:
            rest, self._rest = self._rest, b""
        return rest.decode("utf-8", "backslashreplace")


class _Printed(io.TextIOWrapper):
    """Stands for `sys.stdout`, in all that libraries do with it."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._lines = _Lines(log)
        super().__init__(
            self._lines,  # type: ignore[arg-type]
            encoding="utf-8",
            errors="backslashreplace",
            newline="\n",
            write_through=True,
        )

    def take_rest(self) -> str:
        """The last line, which has no end."""
        return self._lines.take_rest()


class _Child:
    """What bolts and spouts share: the pipes, the loop, signs of life, the end."""

    role: ClassVar[Role]

    max_busy_seconds: float = 300.0
    """Signs of life are given for this long while your code runs, then no more."""
    keepalive_seconds: float = 1.0
    """How often they are given."""
    idle_seconds: float | None = None
    """`on_idle` is called at least this often; None: never."""

    conf: dict[str, Any]
    """The topology's configuration; set before `initialize`."""
    context: Context
    """The topology as this task sees it; set before `initialize`."""

    _protocol: Multilang
    _in: int
    _out: int
    _printed: _Printed | None = None

    # What a user overrides -----------------------------------------------------------------

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Called once, before anything else."""

    def on_idle(self) -> None:
        """Called at least every `idle_seconds`, between batches. It may emit, ack and fail."""

    def before_wait(self) -> None:
        """Called when no input is left, before output is flushed and the child waits for more."""

    def finish(self) -> None:
        """Called at the end, whatever its reason; the pipes may be gone."""

    # What a user calls ---------------------------------------------------------------------

    def log(self, message: str, level: int = 2) -> None:
        """Write a line to the worker's log: 0 trace, 1 debug, 2 info, 3 warning, 4 error."""
        if self._protocol.sending is ml.State.OPEN:
            self._send(ml.Log(message, level))
        else:
            sys.stderr.write(f"{message}\n")

    def error(self, message: str) -> None:
        """Report an error, which Storm shows on its own page."""
        self._send(ml.Error(message))

    def metrics(self, name: str, params: Any) -> None:
        """Update a metric that the JVM registered as an `IShellMetric`."""
        self._send(ml.Metrics(name, params))

    def flush(self) -> None:
        """Write what is buffered; the loop does it between two calls of your code."""
        with self._lock:
            self._write_out()

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def run(self) -> NoReturn:
        """Talk to Storm through stdin and stdout until the end; ends the process."""
        reads, writes = take_stdio()
        self._printed = _Printed(self.log)
        before, sys.stdout = sys.stdout, self._printed
        try:
            code = self.serve(reads, writes)
        finally:
            sys.stdout = before
        sys.exit(code)

    def serve(self, reads: int, writes: int) -> int:
        """Talk to Storm through two file descriptors until the end; returns an exit code.

        Both are closed at the end.
        """
        self._protocol = Multilang(self.role)
        self._in, self._out = reads, writes
        self._lock = threading.RLock()
        self._buffer = bytearray()
        self._events: deque[ml.Event] = deque()
        self._task_ids: deque[tuple[int, ...]] = deque()
        self._busy_since: float | None = None
        self._idle_at = 0.0
        self._over = threading.Event()
        helper = threading.Thread(target=self._keep_alive, name="pyroute-keepalive", daemon=True)
        try:
            self._greet()
            helper.start()
            with self._busy():
                self.initialize(self.conf, self.context)
            self._idle_at = self.now() + (self.idle_seconds or 0.0)
            self._loop()
        except PipeClosedError as error:
            code = self._end(str(error), CLOSED)
        except BaseException:  # the user's code may raise anything
            code = self._end(traceback.format_exc(), FAILED)
        finally:
            self._over.set()
            for end in (self._in, self._out):
                with contextlib.suppress(OSError):
                    os.close(end)
        return code

    # The loop ------------------------------------------------------------------------------

    def _greet(self) -> None:
        while not self._events:
            self._read()
        event = self._events.popleft()
        assert isinstance(event, ml.Setup)
        self.conf, self.context = event.conf, Context(event.context)
        pid = os.getpid()
        (Path(event.pid_dir) / str(pid)).touch()
        self._send(ml.Pid(pid))
        self.flush()

    def _loop(self) -> NoReturn:
        ready = select.poll()
        ready.register(self._in, select.POLLIN)
        while True:
            self._handle()
            self._protocol.receive(b"")  # raises where a fault followed what was handled
            if not ready.poll(0):
                with self._busy():
                    self.before_wait()
                self.flush()
                while not ready.poll(self._timeout()):
                    self._when_idle()
                    self.flush()
            self._between()
            self._read()

    def _timeout(self) -> float | None:
        """Milliseconds until `on_idle` is due."""
        if self.idle_seconds is None:
            return None
        return max(0.0, self._idle_at - self.now()) * 1000

    def _when_idle(self) -> None:
        if self.idle_seconds is not None and self.now() >= self._idle_at:
            with self._busy():
                self.on_idle()
            self._idle_at = self.now() + self.idle_seconds

    def _read(self) -> None:
        data = os.read(self._in, _READ)
        if not data:
            self._protocol.closed()
            raise PipeClosedError("stdin: expected messages of Storm, got the end of the stream")
        self._events.extend(self._protocol.receive(data))

    def _handle(self) -> None:
        """Do what the events ask for; they may grow meanwhile."""
        raise NotImplementedError

    # Output --------------------------------------------------------------------------------

    def _send(self, command: ml.Command) -> None:
        with self._lock:
            self._buffer += self._protocol.send(command)
            if len(self._buffer) >= _FLUSH:
                self._write_out()

    def _write_out(self) -> None:
        """Write the buffer; the lock is held."""
        data, self._buffer = self._buffer, bytearray()
        with memoryview(data) as view:
            done = 0
            while done < len(data):
                try:
                    done += os.write(self._out, view[done:])
                except BrokenPipeError:
                    raise PipeClosedError(
                        "stdout: expected Storm to read, got a closed pipe"
                    ) from None

    def _between(self) -> None:
        """Between two calls of user code: what is done does not wait for what is still to do."""
        self._when_idle()
        if self._buffer:
            self.flush()

    def _emit(self, command: ml.Emit) -> tuple[int, ...] | None:
        self._send(command)
        if not command.need_task_ids:
            return None
        self.flush()
        while not self._task_ids:
            self._read()
            self._take_task_ids()
        return self._task_ids.popleft()

    def _take_task_ids(self) -> None:
        others: deque[ml.Event] = deque()
        for event in self._events:
            if isinstance(event, ml.TaskIds):
                self._task_ids.append(event.tasks)
            else:
                others.append(event)
        self._events = others

    # Signs of life and the end -------------------------------------------------------------

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        self._busy_since = self.now()
        try:
            yield
        finally:
            self._busy_since = None

    def _keep_alive(self) -> None:
        """Any message of the child is a sign of life to Storm, asked for or not."""
        while not self._over.wait(self.keepalive_seconds):
            since = self._busy_since
            if since is None or self.now() - since > self.max_busy_seconds:
                continue
            with contextlib.suppress(ProtocolError, OSError):  # the other thread will meet it too
                self._send(self._sign_of_life())
                self.flush()

    def _sign_of_life(self) -> ml.Command:
        return ml.Sync()

    def _end(self, reason: str, code: int) -> int:
        """Say what happened, where somebody may hear it."""
        heard = code != CLOSED and self._protocol.sending is ml.State.OPEN
        sys.stderr.write(f"pyroute.storm: {reason}\n")
        sys.stderr.flush()
        with contextlib.suppress(ProtocolError, OSError):
            if heard:
                self._last_words(heard)
                self._send(ml.Error(reason))
                self.flush()
        try:
            self.finish()
        except Exception:  # the process ends anyway, for a reason that was said before
            sys.stderr.write(f"pyroute.storm: finish: {traceback.format_exc()}\n")
        with contextlib.suppress(ProtocolError, OSError):
            self._last_words(heard)
            self.flush()
        return code

    def _last_words(self, heard: bool) -> None:
        """What was printed without the end of its line."""
        rest = "" if self._printed is None else self._printed.take_rest()
        if rest and heard:
            self.log(rest)
        elif rest:
            sys.stderr.write(f"{rest}\n")


class Bolt(_Child):
    """A bolt in Python: records in batches, acks now or later. The module says how it behaves."""

    role = Role.BOLT

    max_batch: int = 1024
    """Most records that one call of `process` gets."""
    batch_seconds: float = 0.1
    """About the most work that one call of `process` gets, as records took so far; 0: any."""
    auto_ack: bool = True
    """Whether records are acked when `process` returns."""
    control_streams: frozenset[str] = frozenset()
    """Streams whose records go to `control`."""

    # What a user overrides -----------------------------------------------------------------

    def process(self, records: list[Tuple]) -> None:
        """Take the records that are there now, in their order of arrival."""
        raise NotImplementedError(f"{type(self).__name__}.process")

    def control(self, record: Tuple) -> None:
        """Take a record of one of the `control_streams`."""
        raise NotImplementedError(f"{type(self).__name__}.control")

    def tick(self) -> None:
        """Storm's clock ticked (`topology.tick.tuple.freq.secs`)."""

    # What a user calls ---------------------------------------------------------------------

    def emit(
        self,
        values: Sequence[Any],
        *,
        stream: str = "default",
        anchors: Tuple | str | Iterable[Tuple | str] = (),
        task: int | None = None,
        need_task_ids: bool = False,
    ) -> tuple[int, ...] | None:
        """Send a record on.

        Parameters
        ----------
        values
            What JSON can say; neither NaN nor infinity.
        stream
            A stream that the component declares.
        anchors
            The records, or their ids, that this one comes from: they are replayed when it is
            lost. None of them may be acked before. Without any, the record is not tracked.
        task
            Storm's id of the task that gets it: a direct emit. The task has to read the stream
            by direct grouping.
        need_task_ids
            Wait for Storm to say which tasks got it, and return them. It takes a round trip.
        """
        if isinstance(anchors, Tuple | str):
            anchors = (anchors,)
        ids = tuple(a if isinstance(a, str) else a.id for a in anchors)
        return self._emit(ml.Emit(values, stream, ids, task, need_task_ids))

    def ack(self, record: Tuple | str) -> None:
        """The record is done; once for each, and not after `fail`."""
        self._settle(ml.Ack, record)

    def fail(self, record: Tuple | str) -> None:
        """Have the record replayed from its spout."""
        self._settle(ml.Fail, record)

    def defer(self, records: Tuple | Iterable[Tuple]) -> None:
        """Keep records un-acked when `process` returns; ack or fail them later."""
        for record in (records,) if isinstance(records, Tuple) else records:
            self._deferred.add(record.id)

    @property
    def waiting(self) -> int:
        """How many records are neither acked nor failed."""
        return len(self._protocol.waiting)

    # The loop ------------------------------------------------------------------------------

    def serve(self, reads: int, writes: int) -> int:
        """Talk to Storm through two file descriptors until the end; returns an exit code.

        Both are closed at the end.
        """
        self._deferred: set[str] = set()
        self._counters: counters.Counters | None = None
        self._seconds_each = max(1e-9, self.batch_seconds / 16)
        self._left = 0  # of the records that were read, those in no portion yet
        return super().serve(reads, writes)

    def _greet(self) -> None:
        super()._greet()
        hook = self.conf.get(counters.SETTING)
        if hook is not None:
            context = self.context
            self._counters = counters.Counters(context.component, context.task, self._queued)
            arguments = counters.address_of(hook), self._over
            threading.Thread(
                target=self._counters.run, args=arguments, name="pyroute-counters", daemon=True
            ).start()

    def _queued(self) -> int:
        """About how many records were read and `process` has not seen."""
        return len(self._events) + self._left

    @contextlib.contextmanager
    def _timed(self, records: int) -> Iterator[None]:
        """Around a call of `process`."""
        with self._busy():
            if self._counters is None:
                yield
                return
            self._counters.begin(records)
            yield
            self._counters.end()

    def ack_all(self, records: Iterable[Tuple | str]) -> None:
        """Ack many records at once, which is faster."""
        ids = [record if isinstance(record, str) else record.id for record in records]
        self._ack_all(ids)
        self._deferred.difference_update(ids)

    def _ack_all(self, ids: list[str]) -> None:
        with self._lock:
            self._buffer += self._protocol.acks(ids)
            if len(self._buffer) >= _FLUSH:
                self._write_out()

    def _settle(self, how: type[ml.Ack | ml.Fail], record: Tuple | str) -> None:
        identifier = record if isinstance(record, str) else record.id
        self._send(how(identifier))
        self._deferred.discard(identifier)

    def _handle(self) -> None:
        records: list[Tuple] = []
        while self._events:
            event = self._events.popleft()
            if isinstance(event, Tuple) and event.stream not in self.control_streams:
                records.append(event)
                if len(records) < self.max_batch:
                    continue
            if isinstance(event, ml.Heartbeat):
                self._send(ml.Sync())
                continue
            records = self._process(records)
            self._single(event)
            self._between()
        self._process(records)

    def _single(self, event: ml.Event) -> None:
        if isinstance(event, ml.Tick):
            with self._busy():
                self.tick()
            self._send(ml.Ack(event.id))
        elif isinstance(event, Tuple) and event.stream in self.control_streams:
            with self._busy():
                self.control(event)
            if event.id in self._protocol.waiting and event.id not in self._deferred:
                self._send(ml.Ack(event.id))
        elif isinstance(event, ml.TaskIds):
            self._task_ids.append(event.tasks)

    def _process(self, records: list[Tuple]) -> list[Tuple]:
        """In portions of what is done in `batch_seconds`: acks wait for no more than that."""
        done = 0
        while done < len(records):
            size = max(1, int(self.batch_seconds / self._seconds_each))
            portion = records[done : done + size] if self.batch_seconds > 0 else records
            done += len(portion)
            began = self.now()
            self._left = len(records) - done
            with self._timed(len(portion)):
                self._process_all(portion)
            each = (self.now() - began) / len(portion)
            self._seconds_each = max(1e-9, (self._seconds_each + each) / 2)
            if done < len(records):
                self._between()
        return []

    def _process_all(self, records: list[Tuple]) -> None:
        self.process(records)
        if self.auto_ack:
            waiting, deferred = self._protocol.waiting, self._deferred
            self._ack_all([r.id for r in records if r.id in waiting and r.id not in deferred])


class Spout(_Child):
    """A spout in Python. It may emit only while Storm waits for an answer: in the methods here.

    What it emits in `initialize` arrives with the answer to the first request.
    """

    role = Role.SPOUT

    # What a user overrides -----------------------------------------------------------------

    def next(self) -> None:
        """Emit what there is; nothing is fine too."""

    def acked(self, identifier: Any) -> None:
        """The tree of the record with this id is complete."""

    def failed(self, identifier: Any) -> None:
        """The tree of the record with this id failed or timed out: emit it again."""

    def activate(self) -> None:
        """Storm starts the topology."""

    def deactivate(self) -> None:
        """Storm pauses the topology."""

    # What a user calls ---------------------------------------------------------------------

    def emit(
        self,
        values: Sequence[Any],
        *,
        id: Any = None,  # noqa: A002  Storm's word
        stream: str = "default",
        task: int | None = None,
        need_task_ids: bool = False,
    ) -> tuple[int, ...] | None:
        """Send a record; with an `id` Storm tells how it ended. The rest is as in `Bolt.emit`."""
        return self._emit(ml.Emit(values, stream, (), task, need_task_ids, id))

    # The loop ------------------------------------------------------------------------------

    def _handle(self) -> None:
        while self._events:
            event = self._events.popleft()
            if isinstance(event, ml.TaskIds):
                self._task_ids.append(event.tasks)
                continue
            with self._busy():
                self._answer(event)
            self._send(ml.Sync())

    def _answer(self, event: ml.Event) -> None:
        if isinstance(event, ml.Next):
            self.next()
        elif isinstance(event, ml.Acked):
            self.acked(event.id)
        elif isinstance(event, ml.Failed):
            self.failed(event.id)
        elif isinstance(event, ml.Activate):
            self.activate()
        elif isinstance(event, ml.Deactivate):
            self.deactivate()

    def _sign_of_life(self) -> ml.Command:
        return ml.Log("", 0)  # a sync would end the request
