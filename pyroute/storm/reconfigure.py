"""Reconfiguration on Storm: `pyroute.protocol` carried by streams, with what Storm does not give.

Every component of the protocol declares the stream ``pyroute`` with the fields ``kind, data`` and
reads, by direct grouping, those of its predecessors, of itself and of the manager; the manager
reads all of them. docs/storm-state.md draws it.

Storm keeps the order between two tasks but loses what was on its way to a worker that dies. Records
are replayed by their spout. Messages are not, so every task keeps what it sent in the current
reconfiguration; one that misses something says so when the manager probes it, and the manager asks
the others to send it again. Doubles change nothing. Where the manager does not read the stream, a
spout, what is for it goes through the config store (`pyroute.storm.inbox`).

| kind | data | from, to |
| --- | --- | --- |
| m | a message of the protocol, in base64 | tasks, manager |
| a | ``[epoch, [[operator, number], ...]]``: what these sent has not come | task, manager |
| r | ``[epoch, operator, number]``: send again what you sent to this one | manager, task |
| f | ``[component, stream, values]``: a record that came to the wrong task | task, task |
| s | statistics | task, manager |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyroute.control.config_store import ConfigStore
from pyroute.protocol import (
    MANAGER,
    Instance,
    Message,
    Migrate,
    Probe,
    Reconfigure,
    Task,
    Topology,
    _wire,
    decode,
    encode,
)
from pyroute.protocol.messages import Apply, Forward, Output
from pyroute.ring import Ring
from pyroute.router import Router
from pyroute.storm.bolt import Bolt, Context
from pyroute.storm.inbox import Outbox
from pyroute.storm.protocol import Tuple
from pyroute.storm.state import Log, Section

STREAM = "pyroute"
"""The stream of control messages."""


class Wiring:
    """The operators of the protocol, and Storm's ids of their tasks.

    Parameters
    ----------
    context
        As Storm gave it.
    operators
        Names of components, in the order of a chain; or for each the ones that it reads.
    manager
        The component of the manager.
    stateless
        Operators without keys; by default those that read from no other.
    first
        Tasks that have keys at first, by operator: how many, or their numbers; by default all. The
        others wait until a request takes them in.
    """

    def __init__(
        self,
        context: Context,
        operators: Sequence[str] | Mapping[str, Sequence[str]],
        manager: str | None,
        stateless: Iterable[str] | None = None,
        first: Mapping[str, Any] | None = None,
    ) -> None:
        edges = None
        if isinstance(operators, Mapping):
            edges = [(a, b) for b, before in operators.items() for a in before]
        names = list(operators)
        self.ids: dict[Task, int] = {}
        numbers: dict[str, int] = {}
        for name in names:
            tasks = context.tasks(name)
            if not tasks:
                raise ValueError(f"operators: expected components of the topology, got {name!r}")
            numbers[name] = len(tasks)
            self.ids.update({Task(name, i): task for i, task in enumerate(tasks)})
        if manager is not None:
            found = context.tasks(manager)
            if len(found) != 1:
                raise ValueError(f"manager: expected {manager!r} with one task, got {len(found)}")
            self.ids[MANAGER] = found[0]
        self.topology = Topology.of(
            numbers, edges, stateless=None if stateless is None else list(stateless)
        )
        self._tasks = {task: name for name, task in self.ids.items()}
        self._first = dict(first or {})
        for name in self._first:
            if name not in self.topology.keyed:
                raise ValueError(f"tasks: expected of {sorted(self.topology.keyed)}, got {name!r}")

    def task(self, identifier: int) -> Task:
        """The task with one of Storm's ids."""
        found = self._tasks.get(identifier)
        if found is None:
            raise ValueError(f"task: expected one of the operators, got {identifier}")
        return found

    def described(self) -> dict[str, Any]:
        """What has to stay as it is while a state directory is in use."""
        topology = self.topology
        return {
            "tasks": {name: len(topology.tasks(name)) for name in sorted(topology.operators)},
            "edges": sorted([a, b] for a, b in topology.edges),
            "keyed": sorted(topology.keyed),
        }

    def first_routers(self) -> dict[str, Router]:
        """Those that are in force before the first reconfiguration: hashing alone."""
        routers = {}
        for salt, name in enumerate(sorted(self.topology.keyed)):
            tasks = self._first.get(name, len(self.topology.tasks(name)))
            routers[name] = Router(Ring(tasks, salt=salt))
            self.topology.check_tasks(name, routers[name].tasks)
        return routers


def setting(given: Any, conf: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """An option: as given, else from the topology's configuration, else the default."""
    return given if given is not None else conf.get(f"pyroute.{name}", default)


def write_message(message: Message) -> list[str]:
    """A message as the values of a record."""
    return ["m", base64.b64encode(encode(message)).decode()]


def read_message(data: str) -> Message:
    """What `write_message` wrote."""
    return decode(base64.b64decode(data, validate=True))


class Participant(Bolt):
    """A bolt that takes part in reconfigurations; the base of `TaskBolt` and `SourceBolt`.

    Options that are None come from the topology's configuration, as ``pyroute.NAME``.

    Parameters
    ----------
    operators
        Components of the protocol, in the order of a chain; or for each the ones that it reads.
    manager
        The component of the manager; without one nothing is reconfigured.
    state
        Directory, one for the whole topology, on storage that every host of it sees.
    durable
        Whether what a task is survives its process. Without it a crash loses state, and the
        topology may stand still in a reconfiguration.
    """

    auto_ack = False
    control_streams = frozenset({STREAM})
    commit_every: float = 0.1
    """Seconds between two commits."""
    hold_limit: int = 100_000
    """Records that wait for state here; beyond, they are failed and come again later."""
    chunk: int = 1 << 16
    """Bytes of state in one message."""
    report_every: float = 1.0
    """Seconds between two reports to the manager."""

    def __init__(
        self,
        *,
        operators: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        manager: str | None = None,
        state: str | None = None,
        durable: bool = True,
    ) -> None:
        self._options = (operators, manager, state)
        self.durable = durable

    # set-up -------------------------------------------------------------------------------------

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Find out who is who, and load what was committed."""
        operators, manager, state = self._options
        operators = setting(operators, conf, "operators", [context.component])
        manager = setting(manager, conf, "manager")
        folder = setting(state, conf, "state")
        self._managed = manager is not None
        stateless, first = setting(None, conf, "stateless"), setting(None, conf, "tasks")
        self.wiring = Wiring(context, operators, manager, stateless, first)
        self.me = self.wiring.task(context.task)
        self.idle_seconds = self.commit_every
        self._outgoing: list[tuple[Any, ...]] = []
        self._acks: list[str] = []
        self._sent: list[Message] = []
        self._sent_changed = False
        self._revision = -1
        self._missed: tuple[Any, ...] | None = None
        """What was missing at the last probe; None: nobody was asked by this process."""
        self._committed_at = self.now()
        self._reported_at = self.now()
        self._outbox = self._open_outbox(conf, context, manager)
        self._said: str | None = None
        self._log: Log | None = None
        if not self.durable:
            self.log("durable=False: what this task knows does not survive its process", 3)
        elif folder is None:
            raise ValueError("state: expected a directory (pyroute.state), or durable=False")
        else:
            own = Path(folder) / self.me.operator / str(self.me.number)
            self._log = Log.open(own, lambda loaded: self._expect_wiring(own, loaded))
        self._load()

    def _open_outbox(
        self, conf: Mapping[str, Any], context: Context, manager: str | None
    ) -> Outbox | None:
        """The way to a manager that does not read the stream of this task; None: it does."""
        targets = context.raw.get("stream->target->grouping")  # Storm 0.x says nothing of it
        if manager is None or targets is None or manager in context.targets(STREAM):
            return None
        url = setting(None, conf, "store")
        if url is None:
            raise ValueError(
                f"store: expected a config store (pyroute.store), because {manager!r} does not read"
                f" the stream {STREAM} of {context.component!r}, got none"
            )
        store = ConfigStore.open(url, wait=False, timeout=5.0)
        name = str(conf.get("topology.name") or "topology")
        return Outbox(store, name, conf.get("storm.id"), self.me)

    def _store(self) -> Any:
        """Where the state of keys is; None for an operator without."""
        return None

    def _base(self) -> list[Section]:
        """Sections of all that this task knows, but for what is done here."""
        return []

    def _changes(self) -> list[Section]:
        """Sections of what changed since the last call."""
        return []

    def _take(self, sections: list[Section]) -> list[Section]:
        """Take back sections; those that are of others."""
        return sections

    def _load(self) -> None:
        """Become what was committed, or new."""
        snapshot: bytes | None = None
        loaded = [] if self._log is None else self._log.loaded
        for sections in loaded:
            for kind, content in self._take(sections):
                if kind == b"M":
                    snapshot = content
                elif kind == b"O":
                    into = _wire.Reader(content, _wire.MESSAGE)
                    self._sent = [decode(data) for data in into.items(_wire.Reader.data)]
        options: dict[str, Any] = {
            "topology": self.wiring.topology,
            "store": self._store(),
            "capacity": self.hold_limit,
            "chunk": self.chunk,
        }
        if snapshot is None:
            routers = self.wiring.first_routers()
            self.machine = Instance(self.me, routers=routers, **options)
        else:
            self.machine = Instance.restore(snapshot, **options)
            self.machine.forget_records()  # they were not acked: Storm brings them again
        if self._log is not None:
            self._log.loaded = []
            self._log.append(self._everything())

    def _everything(self) -> list[Section]:
        self._revision, self._sent_changed = self.machine.revision, False
        wiring: Section = (b"T", json.dumps(self.wiring.described()).encode())
        return [*self._base(), wiring, (b"M", self.machine.snapshot()), self._sent_section()]

    def _expect_wiring(self, folder: Path, loaded: list[list[Section]]) -> None:
        """The routers in force name tasks of the topology that they were made for."""
        described = self.wiring.described()
        for known in [json.loads(data) for each in loaded for kind, data in each if kind == b"T"]:
            for name, now in described.items():
                if known.get(name, now) != now:
                    raise ValueError(
                        f"state: expected {name} {known[name]}, as {folder} was begun with,"
                        f" got {now}"
                    )

    def _sent_section(self) -> Section:
        out = _wire.Writer(_wire.MESSAGE)
        out.items([encode(message) for message in self._sent], _wire.Writer.data)
        return b"O", out.finish()

    # messages -----------------------------------------------------------------------------------

    def control(self, record: Tuple) -> None:
        """Take a message, commit what it changes, send what it asks for."""
        kind, data = record.values
        if kind == "m":
            self._receive(read_message(data))
        elif kind == "r":
            self._send_again(*json.loads(data))
        elif kind == "f":
            self.defer(record)
            self._forwarded(record, *json.loads(data))
            return
        self.commit()

    def _receive(self, message: Message) -> None:
        machine = self.machine
        if isinstance(message, Probe) and message.epoch == machine.epoch and machine.missing:
            # Who sends again sends all of it: not while it still comes.
            came = machine.missing, machine.parts
            if self._missed is None or self._missed == came:
                missing = [message.epoch, machine.missing]
                self._outgoing.append((MANAGER, ["a", json.dumps(missing)]))
            self._missed = came
        if isinstance(message, Reconfigure) and message.epoch > machine.epoch:
            self._sent, self._sent_changed = [], True  # all others are done with the one before
        if isinstance(message, Migrate) and message.epoch == machine.epoch:
            expected = machine.parts.get(message.source.number, message.part)
            if message.part > expected:
                return  # those between were lost with a process; all of them come again
        self._do(machine.receive(message, self.now()))

    def _do(self, outputs: list[Output]) -> None:
        apply: list[Apply] = []
        for output in outputs:
            if isinstance(output, Apply):
                apply.append(output)
            elif isinstance(output, Forward):
                self._forward(output)
            elif isinstance(output, Message):
                if output.target != MANAGER:
                    self._sent.append(output)
                    self._sent_changed = True
                self._outgoing.append((output.target, write_message(output)))
        self._apply_held(apply)

    def _send_again(self, epoch: int, operator: str, number: int) -> None:
        for message in self._sent:
            if message.epoch == epoch and message.target == (operator, number):
                self._outgoing.append((message.target, write_message(message)))

    def _apply_held(self, apply: list[Apply]) -> None:
        """Records that waited may go on; a source has none."""

    def _forward(self, output: Forward) -> None:
        """A record belongs to another task; a source gets none."""

    def _forwarded(self, record: Tuple, component: str, stream: str, values: list[Any]) -> None:
        raise ValueError(f"{self.me}: expected none, got {record.id}: {component, stream, values}")

    # commits ------------------------------------------------------------------------------------

    def on_idle(self) -> None:
        """Commit and report, when it is time."""
        self._commit_if_due()
        if self._managed and self.now() - self._reported_at >= self.report_every:
            self._reported_at = self.now()
            report = self.report()
            if report is not None:
                self._send_out(MANAGER, ["s", report])
            problem = None if self._outbox is None else self._outbox.problem
            if problem is not None and problem != self._said:
                self.log(f"config store: {problem}; will try again", 3)
            self._said = problem

    def report(self) -> str | None:
        """Statistics for the manager; None: nothing to say."""
        return None

    def _commit_if_due(self) -> None:
        if self.now() - self._committed_at >= self.commit_every:
            self.commit()

    def commit(self) -> None:
        """Make durable what was done, then send and ack what waited for it."""
        if self._log is not None:
            sections = self._changes()
            if self.machine.revision != self._revision:
                self._revision = self.machine.revision
                sections.append((b"M", self.machine.snapshot()))
            if self._sent_changed:
                self._sent_changed = False
                sections.append(self._sent_section())
            if sections:
                self._log.append(sections)
            if self._log.full:
                self._log.compact(self._everything())
        self._committed_at = self.now()
        outgoing, self._outgoing = self._outgoing, []
        for item in outgoing:
            self._send_out(*item)
        acks, self._acks = self._acks, []
        for identifier in acks:
            self.ack(identifier)

    def _send_out(self, target: Task, values: list[Any], anchor: Tuple | None = None) -> None:
        if target == MANAGER and self._outbox is not None:
            self._outbox.say(*values)
            return
        anchors = () if anchor is None else anchor
        task = self.wiring.ids.get(target)
        if task is not None:  # no manager: nobody to tell
            self.emit(values, stream=STREAM, task=task, anchors=anchors)

    def finish(self) -> None:
        """Let go of the state; what was not committed comes again."""
        for held in (getattr(self, "_log", None), getattr(self, "_outbox", None)):
            if held is not None:
                held.close()
