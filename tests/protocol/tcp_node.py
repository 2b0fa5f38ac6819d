"""One process of the TCP harness: a task or the manager, with everything durable in files.

``python -m tests.protocol.tcp_node FOLDER NAME``, where NAME is ``manager`` or a task such as
``a/0``; tests/protocol/tcp.py starts them. Tasks do what docs/protocol.md asks of an engine: take
some messages, commit machine, state and channels in one file, and only then send and acknowledge.
"""

from __future__ import annotations

import os
import random
import selectors
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

import pyroute as pr
from pyroute.protocol import (
    MANAGER,
    Apply,
    FileStorage,
    Forward,
    Full,
    Inbox,
    Instance,
    Manager,
    Message,
    Outbox,
    Send,
    Task,
    Topology,
    _wire,
    decode,
    encode,
)
from pyroute.protocol.manager import Phase

from .nodes import RECORD, States

TOPOLOGY = Topology.of({"s": 2, "a": 2, "b": 2})
NAMES = [*(str(task) for task in TOPOLOGY.all_tasks), "manager"]
KEYS = 40
"""Keys of each keyed operator."""
RATE = 150.0
"""Records a second of each source."""
CAPACITY = 60
RESEND = 0.15
LENGTH = struct.Struct("<I")
POSITION = struct.Struct("<Q")
HELLO, DATA, ACK, PLAIN = range(4)
OWN = 250
"""The kind of the harness's own files; no release of pyroute writes it."""


def keys_of(name: str) -> list[int]:
    return [int(key) for key in pr.keys([f"{name}{i}" for i in range(KEYS)]).ids]


def key_of(name: str, record: int) -> int:
    """The key of a record at an operator: few have many, as streams are."""
    mixed = int(pr.keys([f"{name}:{record}"]).ids[0])
    return _KEYS[name][min(mixed % KEYS, (mixed >> 20) % KEYS)]


_KEYS = {name: keys_of(name) for name in sorted(TOPOLOGY.keyed)}


def first_routers() -> dict[str, pr.Router]:
    return {name: pr.Router(pr.Ring(2, bits=8, salt=i)) for i, name in enumerate(sorted(_KEYS))}


def plan_of(epoch: int, routers: dict[str, pr.Router]) -> dict[str, pr.Router]:
    """Another table, and every other time another ring, for both operators."""
    rng = random.Random(epoch)
    plan = {}
    for name, router in routers.items():
        home = router.home
        if epoch % 2:
            home = home.with_tasks({0: rng.choice((1, 2)), 1: rng.choice((1, 2))})
        tabled = sorted(key for key in _KEYS[name] if rng.random() < 0.6)
        ids = pr.Keys.from_ids(np.array(tabled, np.uint64))
        table = (ids, [rng.randrange(2) for _ in tabled])
        plan[name] = pr.Router(home, table, version=router.version + 1)
    return plan


def task_of(name: str) -> Task:
    operator, _, number = name.partition("/")
    return Task(operator, int(number))


class Wires:
    """Sockets: frames in and out by the name of the other end; connects again for ever."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.ports = folder / "ports"
        self.selector = selectors.DefaultSelector()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.setblocking(False)
        self.selector.register(self.server, selectors.EVENT_READ, None)
        self.out: dict[str, Wire] = {}
        self.next_try: dict[str, float] = {}
        port = str(self.server.getsockname()[1])
        temporary = self.ports / f".{name.replace('/', '-')}"
        temporary.write_text(port)
        temporary.replace(self.ports / name.replace("/", "-"))

    def connected(self, name: str, now: float) -> Wire | None:
        """The wire to another process; None while there is none."""
        wire = self.out.get(name)
        if wire is not None and not wire.closed:
            return wire
        if now < self.next_try.get(name, 0.0):
            return None
        self.next_try[name] = now + 0.03
        try:
            port = int((self.ports / name.replace("/", "-")).read_text())
            made = socket.create_connection(("127.0.0.1", port), timeout=0.5)
        except (OSError, ValueError):
            return None
        wire = Wire(made, name)
        wire.send(HELLO, f"{self.name} {name}".encode())
        self.out[name] = wire
        self.selector.register(made, selectors.EVENT_READ, wire)
        return wire

    def poll(self, seconds: float) -> list[tuple[Wire, int, bytes]]:
        """What came, in the order of each wire."""
        found: list[tuple[Wire, int, bytes]] = []
        for key, _ in self.selector.select(seconds):
            if key.data is None:
                made, _ = self.server.accept()
                self.selector.register(made, selectors.EVENT_READ, Wire(made, ""))
                continue
            wire: Wire = key.data
            found += [(wire, *frame) for frame in wire.read()]
        for key in list(self.selector.get_map().values()):
            if key.data is not None and key.data.closed:
                self.selector.unregister(key.fileobj)
                key.data.socket.close()
        return found


class Wire:
    """One connection."""

    def __init__(self, made: socket.socket, name: str) -> None:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = made
        self.name = name
        """The process at the other end."""
        self.closed = False
        self._in = bytearray()
        self._out = bytearray()
        self.sent = 0
        """Frames of the outbox before this position were sent here."""

    def send(self, kind: int, data: bytes) -> None:
        self._out += LENGTH.pack(len(data) + 1) + bytes([kind]) + data
        self.flush()

    def flush(self) -> None:
        try:
            while self._out and not self.closed:
                del self._out[: self.socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def read(self) -> list[tuple[int, bytes]]:
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return []
        self._in += data
        frames = []
        while len(self._in) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._in)
            if len(self._in) < LENGTH.size + size:
                break
            frame = bytes(self._in[LENGTH.size : LENGTH.size + size])
            del self._in[: LENGTH.size + size]
            frames.append((frame[0], frame[1:]))
        return frames


class TaskNode:
    """A task: takes what comes, commits, sends."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.task = task_of(name)
        self.number = TOPOLOGY.all_tasks.index(self.task)
        self.storage = FileStorage(folder / name.replace("/", "-"))
        self.random = random.Random(os.getpid())
        self.wires = Wires(folder, name)
        self.queues: dict[str, deque[tuple[int, bytes]]] = {}
        """Frames that came and were not taken: of no account after a crash."""
        self.acked: dict[str, int] = {}
        self.plain: list[Message] = []
        self.changed = False
        self.next_emit = time.monotonic()
        self.load()

    # what is durable -------------------------------------------------------------------------

    def load(self) -> None:
        self.states = States()
        self.counts: dict[tuple[str, int], int] = {}
        self.outboxes: dict[str, Outbox] = {}
        self.inboxes: dict[str, Inbox] = {}
        self.emitted = 0
        self.applied = 0
        self.stopped = False
        self.stuck: list[tuple[str, int, bytes]] = []
        options: dict[str, Any] = {"topology": TOPOLOGY, "capacity": CAPACITY, "chunk": 200}
        data = self.storage.read("snapshot")
        if data is None:
            self.machine = Instance(
                self.task, routers=first_routers(), store=self.states, **options
            )
            return
        into = _wire.Reader(data, OWN)
        self.machine = Instance.restore(into.data(), store=self.states, **options)
        for key, state in into.items(lambda r: (r.word(), r.data())):
            self.states.put(key, state)
        self.counts = {
            (name, key): n for name, key, n in into.items(lambda r: (r.text(), r.word(), r.word()))
        }
        for name, position, frames in into.items(
            lambda r: (r.text(), r.number(), r.items(_wire.Reader.data))
        ):
            self.outboxes[name] = Outbox(position, frames)
        for name, position in into.items(lambda r: (r.text(), r.number())):
            self.inboxes[name] = Inbox(position)
        self.stuck = list(into.items(lambda r: (r.text(), r.word(), r.data())))
        self.emitted, self.applied = into.number(), into.number()
        self.stopped = into.flag()
        into.end()

    def commit(self) -> None:
        out = _wire.Writer(OWN)
        out.data(self.machine.snapshot())
        states = self.states.copy()
        out.items(sorted(states.of), lambda w, key: (w.word(key), w.data(states.take(key)))[0])
        out.items(
            self.counts.items(), lambda w, c: (w.text(c[0][0]), w.word(c[0][1]), w.word(c[1]))[0]
        )
        out.items(self.outboxes.items(), _write_outbox)
        out.items(self.inboxes.items(), lambda w, i: (w.text(i[0]), w.number(i[1].position))[0])
        out.items(self.stuck, lambda w, s: (w.text(s[0]), w.word(s[1]), w.data(s[2]))[0])
        out.number(self.emitted)
        out.number(self.applied)
        out.flag(self.stopped)
        self.storage.replace("snapshot", out.finish())

    # what comes ------------------------------------------------------------------------------

    def run(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            now = time.monotonic()
            for wire, kind, data in self.wires.poll(0.004):
                if not wire.closed:
                    self.take_frame(wire, kind, data)
            self.take_queues()
            if self.task in TOPOLOGY.sources:
                self.emit(now)
            if self.changed:
                self.commit()
                self.changed = False
            self.send(time.monotonic())

    def take_frame(self, wire: Wire, kind: int, data: bytes) -> None:
        if kind == HELLO:
            wire.name, target = data.decode().split()
            if target != self.name:  # the port was somebody else's
                wire.closed = True
                return
            self.queues[wire.name] = deque()  # a new connection begins with what was not taken
            self.acked.pop(wire.name, None)
            self.wires.out[f"from {wire.name}"] = wire
        elif kind == ACK:
            outbox = self.outboxes[wire.name]
            outbox.acknowledged(POSITION.unpack(data)[0])
            self.changed |= not outbox.frames  # so that one sees on disk when all is done
        elif kind == DATA:
            self.queues[wire.name].append((POSITION.unpack_from(data)[0], data[8:]))
        else:
            message = decode(data)
            if message.target == self.task:  # else the port was somebody else's
                self.take_message(message)

    def take_queues(self) -> None:
        """A few of each channel; of one that is full none."""
        for name, queue in self.queues.items():
            inbox = self.inboxes.setdefault(name, Inbox())
            for _ in range(self.random.randrange(1, 20)):
                if not queue:
                    break
                position, data = queue[0]
                if position == inbox.position and data[:1] == b"R":
                    (key,) = POSITION.unpack_from(data, 1)
                    if self.stuck or not self.take_record(key, data[9:]):
                        break
                    inbox.take(position, data)
                elif inbox.take(position, data) is not None:
                    self.take_message(decode(data[1:]))
                queue.popleft()

    def take_message(self, message: Message) -> None:
        self.changed = True
        self.do(self.machine.receive(message, time.monotonic()))
        stuck, self.stuck = self.stuck, []
        for i, item in enumerate(stuck):
            if not self.route(*item):
                self.stuck += stuck[i + 1 :]
                break

    def take_record(self, key: int, payload: bytes) -> bool:
        answer = self.machine.record(key, payload)
        if isinstance(answer, Full):
            return False
        self.changed = True
        if isinstance(answer, Apply | Forward):
            self.do([answer])
        return True

    def do(self, outputs: list[Any]) -> None:
        for output in outputs:
            if isinstance(output, Apply):
                self.apply(output.key, output.payload)
            elif isinstance(output, Send):
                self.post(output.target, b"R" + POSITION.pack(output.key) + output.payload)
            elif isinstance(output, Forward):
                self.violate(f"{self.name} forwards {output}: nobody here sends by old routers")
            elif output.target == MANAGER:
                self.plain.append(output)
            else:
                self.post(output.target, b"M" + encode(output))

    def apply(self, key: int, payload: bytes) -> None:
        producer, count, record, _ = RECORD.unpack(payload)
        if self.task.operator in TOPOLOGY.keyed:
            n, total, seen = self.states.of.get(key, (0, 0, {}))
            due = seen.get(producer, 0)
            if due != count or key_of(self.task.operator, record) != key:
                self.violate(f"{self.name} applied {record} of {key}: {count} where {due} is due")
            seen[producer] = due + 1
            self.states.of[key] = (n + 1, total + record, seen)
            self.applied += 1
        for name in TOPOLOGY.successors(self.task.operator):
            out = key_of(name, record)
            number = self.counts.get((name, out), 0)
            self.counts[name, out] = number + 1
            line = RECORD.pack(self.number, number, record, key)
            if self.stuck:
                self.stuck.append((name, out, line))
            else:
                self.route(name, out, line)

    def violate(self, text: str) -> None:
        (self.folder / "violations" / f"{os.getpid()}").write_text(text)
        sys.exit(text)

    def route(self, name: str, key: int, payload: bytes) -> bool:
        answer = self.machine.route(name, key, payload)
        if isinstance(answer, Full):
            self.stuck.append((name, key, payload))
            return False
        if isinstance(answer, Send):
            self.do([answer])
        return True

    def post(self, target: Task, data: bytes) -> None:
        self.outboxes.setdefault(str(target), Outbox()).add(data)

    def emit(self, now: float) -> None:
        """What a source reads: numbered records, so many a second, until told to stop."""
        if not self.stopped and (self.folder / "stop").exists():
            self.stopped = self.changed = True
        while not self.stopped and not self.stuck and now >= self.next_emit:
            self.next_emit = max(self.next_emit, now - 0.5) + 1 / RATE
            record = self.emitted * len(TOPOLOGY.sources) + self.task.number
            self.emitted += 1
            self.changed = True
            self.apply(0, RECORD.pack(0, 0, record, 0))

    # what goes -------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """After the commit: new frames, acknowledgements, answers to the manager."""
        for name, outbox in self.outboxes.items():
            wire = self.wires.connected(name, now)
            if wire is None or not outbox.frames:
                continue
            for position, data in outbox.frames:
                if position >= wire.sent:
                    wire.send(DATA, POSITION.pack(position) + data)
                    wire.sent = position + 1
            wire.flush()
        for name, inbox in self.inboxes.items():
            wire = self.wires.out.get(f"from {name}")
            if wire is not None and not wire.closed and self.acked.get(name) != inbox.position:
                wire.send(ACK, POSITION.pack(inbox.position))
                self.acked[name] = inbox.position
        if self.plain:
            wire = self.wires.connected("manager", now)
            if wire is not None:
                for message in self.plain:
                    wire.send(PLAIN, encode(message))
            self.plain.clear()  # the manager asks again for what does not reach it


def _write_outbox(out: _wire.Writer, item: tuple[str, Outbox]) -> None:
    out.text(item[0])
    out.number(item[1].position)
    out.items([data for _, data in item[1].frames], _wire.Writer.data)


class ManagerNode:
    """The manager: brings the stream to the epoch that a file asks for."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.wires = Wires(folder, name)
        self.manager = Manager(
            None,
            TOPOLOGY,
            routers=first_routers(),
            storage=FileStorage(folder / "manager"),
            pause=os.getpid() % 3 == 0,
            redo=os.getpid() % 2 == 0,
            resend_after=RESEND,
        )

    def run(self) -> None:
        parent = os.getppid()
        self.send(self.manager.start(time.monotonic()))
        while os.getppid() == parent:
            for _, kind, data in self.wires.poll(0.004):
                if kind == PLAIN and decode(data).target == MANAGER:
                    self.send(self.manager.receive(decode(data), time.monotonic()))
            now = time.monotonic()
            self.send(self.manager.tick(now))
            if self.manager.phase is Phase.IDLE and self.manager.epoch < self.wanted():
                self.send(self.manager.collect(now))
            elif self.manager.phase is Phase.PLANNING:
                plan = plan_of(self.manager.epoch, self.manager.routers)
                self.send(self.manager.propose(plan, now))

    def wanted(self) -> int:
        try:
            return int((self.folder / "epoch").read_text())
        except (OSError, ValueError):
            return 0

    def send(self, messages: list[Message]) -> None:
        for message in messages:
            wire = self.wires.connected(str(message.target), time.monotonic())
            if wire is not None:
                wire.send(PLAIN, encode(message))


if __name__ == "__main__":
    kind: Any = ManagerNode if sys.argv[2] == "manager" else TaskNode
    kind(Path(sys.argv[1]), sys.argv[2]).run()
