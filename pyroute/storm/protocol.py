r"""Apache Storm's multilang, seen from the child: bytes in, events out; commands in, bytes out.

No stream, clock, logging or process id in here: whoever owns the pipes carries the bytes. Messages
are UTF-8 JSON, each followed by a line that says `end`. How the bytes are cut never shows: a
transcript decodes alike whole, byte by byte, and with the next message attached.

>>> storm = Multilang()
>>> storm.receive(b'{"pidDir":"/tmp","conf":{},"context":{"taskid":4}}\nend\n')
[Setup(conf={}, context={'taskid': 4}, pid_dir='/tmp')]
>>> storm.send(Pid(17))
b'{"pid":17}\nend\n'
>>> line = b'{"comp":"words","tuple":["a\\/b",1],"task":3,"stream":"default","id":"-69"}\nend\n'
>>> [word] = storm.receive(line)
>>> word
Tuple(id='-69', component='words', stream='default', task=3, values=['a/b', 1])
>>> storm.send(Emit(word.values, anchors=(word.id,), task=7))
b'{"command":"emit","anchors":["-69"],"task":4294967303,"tuple":["a/b",1]}\nend\n'
>>> storm.send(Ack(word.id))
b'{"command":"ack","id":"-69"}\nend\n'
>>> storm.send(Ack(word.id))
Traceback (most recent call last):
pyroute.protocol.errors.ProtocolError: ack: expected the id of a tuple that waits, got '-69'
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NoReturn, TypeAlias

from pyroute.protocol.errors import ProtocolError

END: Final = b"\nend\n"
"""What follows every message."""

DIRECT: Final = 1 << 32
"""Added to the task of a direct emit.

Since 2.6.0 Storm's parser makes an Integer of a small number and its serializer casts to Long,
which kills the bolt. A number of more than 32 bits is a Long in every version, and the cast to
`int` that follows takes the addition away. The level of a log message has the same defect, and the
same cure.
"""

MAX_MESSAGE: Final = 256 << 20
"""Bytes that one message may have."""


# What the JVM says ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message: configuration, context, and the folder for the pid file."""

    conf: dict[str, Any]
    context: dict[str, Any]
    pid_dir: str


@dataclass(frozen=True, slots=True)
class Tuple:
    """A record. It waits until it is acked or failed, exactly once."""

    id: str
    component: str | None
    stream: str
    task: int
    values: list[Any]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed (`topology.tick.tuple.freq.secs`). It has to be acked like a record."""

    id: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Are you alive? Answered by `Sync`, and never acked."""

    id: str


@dataclass(frozen=True, slots=True)
class TaskIds:
    """Where an emit went; one for each that asked, in their order."""

    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Next:
    """To a spout: emit what there is. Like every request to a spout it ends with `Sync`."""


@dataclass(frozen=True, slots=True)
class Acked:
    """To a spout: the tree of the record with this id is complete."""

    id: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """To a spout: the tree of the record with this id failed or timed out."""

    id: Any


@dataclass(frozen=True, slots=True)
class Activate:
    """To a spout: start."""


@dataclass(frozen=True, slots=True)
class Deactivate:
    """To a spout: pause."""


Event: TypeAlias = (
    Setup | Tuple | Tick | Heartbeat | TaskIds | Next | Acked | Failed | Activate | Deactivate
)


# What the child says -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pid:
    """The first message of the child."""

    pid: int


@dataclass(frozen=True, slots=True)
class Emit:
    """Send a record on; `task` for a direct emit, `id` (spouts only) to hear how it ended."""

    values: Sequence[Any]
    stream: str = "default"
    anchors: Sequence[str] = ()
    task: int | None = None
    need_task_ids: bool = False
    id: Any = None


@dataclass(frozen=True, slots=True)
class Ack:
    """The record is done."""

    id: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The record is to be replayed."""

    id: str


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the worker's log; level 0 (trace) to 4 (error)."""

    message: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Error:
    """An error that Storm's own page shows."""

    message: str


@dataclass(frozen=True, slots=True)
class Metrics:
    """An update of a metric that the JVM registered."""

    name: str
    params: Any


@dataclass(frozen=True, slots=True)
class Sync:
    """Alive (a bolt); done with this request (a spout)."""


Command: TypeAlias = Pid | Emit | Ack | Fail | Log | Error | Metrics | Sync


class Role(Enum):
    """Which of the two kinds of component the child is."""

    BOLT = "bolt"
    SPOUT = "spout"


class State(Enum):
    """Of one direction of the conversation."""

    START = "start"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Closed:
    """The end of one direction: the pipe was closed. Neither sent nor received as a message."""


_Rows: TypeAlias = dict[State, dict[type, State]]


def _rows(first: type, *later: type) -> _Rows:
    return {
        State.START: {first: State.OPEN, Closed: State.CLOSED},
        State.OPEN: {**dict.fromkeys(later, State.OPEN), Closed: State.CLOSED},
        State.CLOSED: {},
    }


_LINES = (Log, Error, Metrics, Sync)

TRANSITIONS: Final[dict[tuple[Role, str], _Rows]] = {
    (Role.BOLT, "receive"): _rows(Setup, Tuple, Tick, Heartbeat, TaskIds),
    (Role.BOLT, "send"): _rows(Pid, Emit, Ack, Fail, *_LINES),
    (Role.SPOUT, "receive"): _rows(Setup, Next, Acked, Failed, Activate, Deactivate, TaskIds),
    (Role.SPOUT, "send"): _rows(Pid, Emit, *_LINES),
}
"""What may come in each state, and the state it leads to; anything else is a `ProtocolError`.

The directions have a state each: the JVM may have sent more before the child answers.
"""


def diagram() -> str:
    """The table of transitions as Markdown, as docs/storm-bolts.md shows it."""
    lines = ["| child | direction | state | messages | next state |", "|---|---|---|---|---|"]
    for (role, direction), rows in TRANSITIONS.items():
        way = "from the JVM" if direction == "receive" else "to the JVM"
        for state, row in rows.items():
            for after in State:
                kinds = ", ".join(f"`{kind.__name__}`" for kind, to in row.items() if to is after)
                if kinds:
                    cells = (role.value, way, state.value, kinds, after.value)
                    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


_REQUESTS: Final = (Next, Acked, Failed, Activate, Deactivate)
_HEARTBEAT_STREAM: Final = "__heartbeat"
_TICK_STREAM: Final = "__tick"
_SYSTEM: Final = "__system"
_FIELDS: Final = ("id", "stream", "tuple", "task", "comp")


@dataclass(slots=True)
class Multilang:
    """One conversation with the JVM.

    Parameters
    ----------
    role
        Whether the child is a bolt or a spout.
    max_message
        Bytes that one message may have.
    """

    role: Role = Role.BOLT
    max_message: int = MAX_MESSAGE
    receiving: State = field(default=State.START, init=False)
    sending: State = field(default=State.START, init=False)
    waiting: set[str] = field(default_factory=set, init=False)
    """Ids of tuples that were neither acked nor failed."""
    asked: int = field(default=0, init=False)
    """Requests to a spout that its `Sync` has not ended."""
    begun: bool = field(default=False, init=False)
    """Whether a spout was asked for anything: before that it may emit, which the JVM reads with the
    answer to the first request."""
    task_ids_due: int = field(default=0, init=False)
    """Emits whose task ids have not come."""
    _buffer: bytearray = field(default_factory=bytearray, init=False)
    _seen: int = field(default=0, init=False)  # bytes of the buffer in which no message ends
    _fault: ProtocolError | None = field(default=None, init=False)
    _may_come: dict[type, State] = field(init=False)  # the row of the table for each state
    _may_go: dict[type, State] = field(init=False)

    def __post_init__(self) -> None:
        self._enter("receive", State.START)
        self._enter("send", State.START)

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """What the JVM said in these bytes and the unfinished ones before them.

        A message that cannot come here raises `ProtocolError`, and so does every later call. Where
        other messages stood before it in `data`, they are returned, and the next call raises.
        """
        if self._fault is not None:
            raise self._fault
        events: list[Event] = []
        try:
            self._decode(data, events)
        except ProtocolError as fault:
            self._fault = fault
            if not events:
                raise
        return events

    def _decode(self, data: bytes | bytearray | memoryview, events: list[Event]) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        while (end := buffer.find(END, max(start, self._seen))) >= 0:
            self._expect_size(end - start)
            events.append(self._event(bytes(buffer[start:end])))
            start = self._seen = end + len(END)
        if start:
            del buffer[:start]
        self._seen = max(0, len(buffer) - len(END) + 1)
        self._expect_size(len(buffer) - len(END))

    def closed(self) -> None:
        """The JVM closed its pipe; in the middle of a message that is a `ProtocolError`."""
        if self._fault is not None:
            raise self._fault
        self._come(Closed)
        if self._buffer:
            raise ProtocolError(
                f"message: expected {END!r} at its end, got the end of the stream after"
                f" {len(self._buffer)} bytes: {_shown(self._buffer)}"
            )

    def send(self, command: Command) -> bytes:
        """The bytes of a command; one that Storm would answer by killing the bolt is refused."""
        kind = type(command)
        after = self._may_go.get(kind)
        if after is None:
            self._refuse("send", self.sending, kind)
        data = _WRITERS[kind](self, command)
        if after is not self.sending:
            self._enter("send", after)
        return data

    def acks(self, identifiers: Iterable[str]) -> bytes:
        """The bytes of many acks."""
        if Ack not in self._may_go:
            self._refuse("send", self.sending, Ack)
        return b"".join([self._settle("ack", identifier) for identifier in identifiers])

    def received(self, message: bytes) -> Event:
        """The event of one message without its end, which somebody else framed."""
        self._expect_size(len(message))
        return self._event(message)

    def take_rest(self) -> bytes:
        """Hand over the bytes of a message that has not ended: somebody else frames from now on."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._seen = 0
        return rest

    def _enter(self, direction: str, state: State) -> None:
        row = TRANSITIONS[self.role, direction][state]
        if direction == "receive":
            self.receiving, self._may_come = state, row
        else:
            self.sending, self._may_go = state, row

    def _refuse(self, direction: str, state: State, kind: type) -> NoReturn:
        row = TRANSITIONS[self.role, direction][state]
        expected = [k.__name__ for k in row if k is not Closed]
        raise ProtocolError(
            f"{direction}: expected {' or '.join(expected) or 'nothing'} of a"
            f" {self.role.value} in state {state.value}, got {kind.__name__}"
        )

    def _come(self, kind: type) -> None:
        after = self._may_come.get(kind)
        if after is None:
            self._refuse("receive", self.receiving, kind)
        if after is not self.receiving:
            self._enter("receive", after)

    def _expect_size(self, size: int) -> None:
        if size > self.max_message:
            raise ProtocolError(
                f"message: expected at most {self.max_message} bytes, got {size} and more"
            )

    def _event(self, message: bytes) -> Event:
        event = _read(message)
        self._come(type(event))
        if isinstance(event, Tuple | Tick):
            if event.id in self.waiting:
                raise ProtocolError(f"id: expected one that is new, got {event.id!r} again")
            self.waiting.add(event.id)
        elif isinstance(event, TaskIds):
            if not self.task_ids_due:
                raise ProtocolError(f"task ids: expected none, got {list(event.tasks)}")
            self.task_ids_due -= 1
        elif isinstance(event, _REQUESTS):
            self.asked += 1
            self.begun = True
        return event

    # Writing: one method for each kind of command.

    def _pid(self, command: Pid) -> bytes:
        return _line({"pid": command.pid})

    def _emit(self, command: Emit) -> bytes:
        parts = ['{"command":"emit"']
        if self.role is Role.SPOUT:
            self._expect_request("emit", first=True)
            if command.anchors:
                raise ProtocolError("anchors: expected none from a spout, got some")
            if command.id is not None:
                parts.append(f'"id":{_json(command.id)}')
        elif command.id is not None:
            raise ProtocolError(f"id: expected none from a bolt, got {command.id!r}")
        if command.anchors:
            for anchor in command.anchors:
                self._expect_waiting("anchors", anchor)
            parts.append(f'"anchors":[{",".join(map(_quoted, command.anchors))}]')
        if command.stream != "default":
            parts.append(f'"stream":{_quoted(command.stream)}')
        if command.task is not None:
            if not 0 < command.task < 1 << 31:
                raise ProtocolError(f"task: expected 1 to 2**31 - 1, got {command.task}")
            if command.need_task_ids:
                raise ProtocolError("need_task_ids: expected False of a direct emit, got True")
            parts.append(f'"task":{command.task + DIRECT}')
        elif not command.need_task_ids:
            parts.append('"need_task_ids":false')
        parts.append(f'"tuple":{_json(list(command.values))}}}\nend\n')
        self.task_ids_due += command.need_task_ids
        return ",".join(parts).encode()

    def _ack(self, command: Ack) -> bytes:
        return self._settle("ack", command.id)

    def _fail(self, command: Fail) -> bytes:
        return self._settle("fail", command.id)

    def _settle(self, name: str, identifier: str) -> bytes:
        self._expect_waiting(name, identifier)
        self.waiting.remove(identifier)
        return f'{{"command":"{name}","id":{_quoted(identifier)}}}\nend\n'.encode()

    def _expect_waiting(self, name: str, identifier: str) -> None:
        if identifier not in self.waiting:
            raise ProtocolError(
                f"{name}: expected the id of a tuple that waits, got {identifier!r}"
            )

    def _expect_request(self, name: str, first: bool = False) -> None:
        """One that waits for its answer; `first`: or none came yet."""
        if not self.asked and (self.begun or not first):
            raise ProtocolError(f"{name}: expected a request of the JVM before it, got none")

    def _log(self, command: Log) -> bytes:
        if not 0 <= command.level <= 4:
            raise ProtocolError(f"level: expected 0 to 4, got {command.level}")
        return _line({"command": "log", "msg": command.message, "level": command.level + DIRECT})

    def _error(self, command: Error) -> bytes:
        return _line({"command": "error", "msg": command.message})

    def _metrics(self, command: Metrics) -> bytes:
        return _line({"command": "metrics", "name": command.name, "params": command.params})

    def _sync(self, _: Sync) -> bytes:
        if self.role is Role.SPOUT:
            self._expect_request("sync")
            self.asked -= 1
        return _line({"command": "sync"})


_WRITERS: Final[dict[type, Callable[[Multilang, Any], bytes]]] = {
    Pid: Multilang._pid,
    Emit: Multilang._emit,
    Ack: Multilang._ack,
    Fail: Multilang._fail,
    Log: Multilang._log,
    Error: Multilang._error,
    Metrics: Multilang._metrics,
    Sync: Multilang._sync,
}

# Neither NaN nor Infinity: they are no JSON, and not every version of Storm takes them.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODE: Final = json.JSONDecoder().decode


def _quoted(text: str) -> str:
    return encode_basestring_ascii(text)


def _json(value: Any) -> str:
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"command: expected what JSON can say, got {error}") from None


def _line(message: dict[str, Any]) -> bytes:
    return _json(message).encode() + END


def _read(message: bytes) -> Event:
    try:
        parsed = _DECODE(message.decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(
            f"message: expected JSON, got {_shown(message)} ({type(error).__name__}: {error})"
        ) from None
    if isinstance(parsed, list):
        return _task_ids(parsed)
    if not isinstance(parsed, dict):
        raise ProtocolError(f"message: expected an object or a list, got {_shown(message)}")
    if "command" in parsed:
        return _request(parsed)
    if "tuple" in parsed:
        return _tuple(parsed)
    if "context" in parsed or "conf" in parsed:
        return Setup(
            _field(parsed, "conf", dict),
            _field(parsed, "context", dict),
            _field(parsed, "pidDir", str),
        )
    raise ProtocolError(
        f"message: expected set-up, tuple, task ids or command, got {_shown(message)}"
    )


def _task_ids(parsed: list[Any]) -> TaskIds:
    for task in parsed:
        if type(task) is not int:
            raise ProtocolError(f"task ids: expected integers, got {_shown(repr(task).encode())}")
    return TaskIds(tuple(parsed))


def _request(parsed: dict[str, Any]) -> Event:
    name = _field(parsed, "command", str)
    if name == "ack":
        return Acked(parsed.get("id"))
    if name == "fail":
        return Failed(parsed.get("id"))
    simple: dict[str, Event] = {
        "next": Next(),
        "activate": Activate(),
        "deactivate": Deactivate(),
    }
    if name not in simple:
        raise ProtocolError(
            f"command: expected next, ack, fail, activate or deactivate, got {name!r}"
        )
    return simple[name]


def _tuple(parsed: dict[str, Any]) -> Event:
    identifier, stream, values, task, component = map(parsed.get, _FIELDS)
    if not (
        type(identifier) is str
        and type(stream) is str
        and type(values) is list
        and type(task) is int
        and (component is None or type(component) is str)
    ):
        for name, kind in (("id", str), ("stream", str), ("tuple", list), ("task", int)):
            _field(parsed, name, kind)
        _field(parsed, "comp", str)
    assert type(identifier) is str
    assert type(stream) is str
    assert type(values) is list
    assert type(task) is int
    if stream == _HEARTBEAT_STREAM and task == -1:
        return Heartbeat(identifier)
    if stream == _TICK_STREAM and component == _SYSTEM:
        seconds = values[0] if values and isinstance(values[0], int | float) else None
        return Tick(identifier, seconds)
    return Tuple(identifier, component, stream, task, values)


def _field(parsed: dict[str, Any], name: str, kind: type) -> Any:
    value = parsed.get(name)
    if type(value) is not kind:
        got = "nothing" if name not in parsed else _shown(repr(value).encode("utf-8", "replace"))
        raise ProtocolError(f"{name}: expected {kind.__name__}, got {got}")
    return value


def _shown(data: bytes | bytearray) -> str:
    start = bytes(data[:80]).decode("utf-8", "backslashreplace")
    return repr(start) + (f"... ({len(data)} bytes)" if len(data) > 80 else "")
