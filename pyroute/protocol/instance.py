"""Instance: the machine beside one task, which says what to do with each record and message.

It does no I/O and knows no clock. What a task must do with it is in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from pyroute._arrays import count
from pyroute._core import FormatError
from pyroute.protocol import _wire, codec
from pyroute.protocol.errors import ProtocolError
from pyroute.protocol.messages import (
    Abort,
    Aborted,
    Ack,
    Apply,
    Done,
    Forward,
    Full,
    GetMetrics,
    Hold,
    Message,
    Metrics,
    Migrate,
    Output,
    Probe,
    Propagate,
    Reconfigure,
    Refuse,
    Resume,
    Resumed,
    Send,
)
from pyroute.protocol.move import NOBODY, Move
from pyroute.protocol.routes import UNKNOWN, Routes
from pyroute.protocol.store import MemoryStore, Store
from pyroute.protocol.table import Row, Table
from pyroute.protocol.topology import MANAGER, Task, Topology
from pyroute.router import Router


class Phase(Enum):
    """How far a task is."""

    SETTLED = "settled"
    STAGED = "staged"
    MOVING = "moving"
    PAUSED = "paused"


_SETTLED, _STAGED, _MOVING, _PAUSED = Phase
_ENDS = (_MOVING, _SETTLED, _PAUSED)

TABLE = Table(
    [
        Row(_SETTLED, "new GetMetrics", "measure", (_SETTLED,), "answer Metrics"),
        Row(
            *(_SETTLED, "new Reconfigure", "stage", (_STAGED, _SETTLED)),
            "keep it and answer Ack; or Refuse, where other routers are in force",
        ),
        Row(_SETTLED, "new Abort", "note_abort", (_SETTLED,), "remember it; answer Aborted"),
        Row(_SETTLED, "Reconfigure", "report", (_SETTLED,), "answer Done or Aborted again"),
        Row(_SETTLED, "Propagate", "report", (_SETTLED,), "the manager's: answer Done again"),
        Row(_SETTLED, "Probe", "report", (_SETTLED,), "answer Done or Aborted again"),
        Row(_SETTLED, "Abort", "report", (_SETTLED,), "answer Aborted again"),
        Row(_SETTLED, "Resume", "report_resumed", (_SETTLED,), "answer Resumed again"),
        Row(_SETTLED, "GetMetrics", "ignore", (_SETTLED,), ""),
        Row(_SETTLED, "Migrate", "ignore", (_SETTLED,), ""),
        Row(_STAGED, "Reconfigure", "acknowledge", (_STAGED,), "answer Ack again"),
        Row(_STAGED, "Probe", "acknowledge", (_STAGED,), "answer Ack again"),
        Row(
            *(_STAGED, "Propagate", "propagate", (_STAGED, *_ENDS)),
            "from the last that it waits for: change routing, Migrate to targets,"
            " Propagate to successors; Done where nothing is to come",
        ),
        Row(
            *(_STAGED, "Migrate", "install", (_STAGED,)),
            "keep the state, give back the records that waited for it",
        ),
        Row(
            *(_STAGED, "Abort", "abort", (_SETTLED,)),
            "forget it, give back the records that waited, answer Aborted",
        ),
        Row(_STAGED, "GetMetrics", "ignore", (_STAGED,), ""),
        Row(
            *(_MOVING, "Migrate", "install", _ENDS),
            "keep the state, give back the records that waited for it;"
            " with the last of it answer Done",
        ),
        Row(_MOVING, "Reconfigure", "ignore", (_MOVING,), ""),
        Row(_MOVING, "Propagate", "ignore", (_MOVING,), ""),
        Row(_MOVING, "Probe", "ignore", (_MOVING,), ""),
        Row(_MOVING, "GetMetrics", "ignore", (_MOVING,), ""),
        Row(
            *(_PAUSED, "Resume", "resume", (_SETTLED,)),
            "send on what was kept back, answer Resumed",
        ),
        Row(_PAUSED, "Reconfigure", "report", (_PAUSED,), "answer Done again"),
        Row(_PAUSED, "Propagate", "report", (_PAUSED,), "the manager's: answer Done again"),
        Row(_PAUSED, "Probe", "report", (_PAUSED,), "answer Done again"),
        Row(_PAUSED, "GetMetrics", "ignore", (_PAUSED,), ""),
        Row(_PAUSED, "Migrate", "ignore", (_PAUSED,), ""),
    ]
)

_FROM_MANAGER = (GetMetrics, Reconfigure, Resume, Abort, Probe)
_EVENTS: dict[type[Message], tuple[str, str]] = {
    kind: (kind.__name__, f"new {kind.__name__}") for kind in (*_FROM_MANAGER, Propagate, Migrate)
}


def _no_metrics() -> bytes:
    return b""


class Instance:
    """The machine of one task.

    Parameters
    ----------
    task
        Which one; a `Task`, or operator and number.
    topology
        The operators and who sends to whom.
    routers
        Those in force: of the task's own operator, unless it is stateless, and of the keyed
        operators that it sends to.
    store
        Where the state of its keys is; a `MemoryStore` by default.
    capacity
        How many records it takes while they cannot go on; beyond that it answers `Full`.
    chunk
        Bytes of state in one `Migrate`, unless one key has more.
    metrics
        Gives the statistics that `GetMetrics` asks for.
    """

    def __init__(
        self,
        task: Task | tuple[str, int],
        *,
        topology: Topology,
        routers: Mapping[str, Router],
        store: Store | None = None,
        capacity: int = 10_000,
        chunk: int = 1 << 20,
        metrics: Callable[[], bytes] = _no_metrics,
    ) -> None:
        self._set_up(Task(*task), topology, store, capacity, chunk, metrics)
        for name in self._needed:
            if not isinstance(routers.get(name), Router):
                raise ValueError(f"routers: expected a Router of {name!r}, got none")
            topology.check_tasks(name, routers[name].tasks)
            self._routes[name] = Routes(routers[name])

    def _set_up(
        self,
        task: Task,
        topology: Topology,
        store: Store | None,
        capacity: int,
        chunk: int,
        metrics: Callable[[], bytes],
    ) -> None:
        if not topology.has(task):
            raise ValueError(f"task: expected one of the topology, got {task}")
        self.task = task
        self.topology = topology
        self.store: Store = MemoryStore() if store is None else store
        self.capacity = count(capacity, "capacity")
        self.chunk = count(chunk, "chunk")
        self.metrics = metrics
        self.phase = Phase.SETTLED
        self.epoch = 0
        """The last reconfiguration that it knows of."""
        self.aborted = False
        """Whether that one was aborted."""
        self.since = 0.0
        """When the phase changed last."""
        self.late = 0
        """Messages that were of an older epoch, late or doubled, and changed nothing."""
        self.revision = 0
        """Grows when what `snapshot` gives changes: an engine may skip writing the same again."""
        operator = task.operator
        self._keyed = operator in topology.keyed
        after = topology.successors(operator)
        self._needed = [name for name in (operator, *after) if name in topology.keyed]
        self._before = frozenset(topology.predecessor_tasks(operator)) or frozenset([MANAGER])
        self._after = topology.successor_tasks(operator)
        self._peers = {peer.number: peer for peer in topology.tasks(operator)}
        self._targets = {name: {t.number: t for t in topology.tasks(name)} for name in after}
        self._routes: dict[str, Routes] = {}
        self._move: Move | None = None
        self._held: dict[int, list[bytes]] = {}
        self._kept: list[tuple[str, int, bytes]] = []
        self.buffered = 0
        """Records that it took and has not given back."""

    # records ---------------------------------------------------------------------------------

    def record(self, key: int, payload: bytes) -> Apply | Forward | Hold | Full:
        """What to do with a record that came to this task.

        Where an engine's hash places keys, one that no table names is taken for this task's own.

        Parameters
        ----------
        key
            The 64-bit identity of its key; of a stateless operator anything.
        payload
            The record; kept as it is where it has to wait.
        """
        if not self._keyed:
            return Apply(key, payload)
        move = self._move
        if move is not None and move.arriving.find(key) != NOBODY:
            return self._hold(key, payload) if move.awaits(key) else Apply(key, payload)
        owner = self._routes[self.task.operator].owner(key)
        if owner in (self.task.number, UNKNOWN):
            return Apply(key, payload)
        return Forward(self._peers[owner], key, payload)

    def route(self, operator: str, key: int, payload: bytes) -> Send | Hold | Full:
        """Where a record goes next.

        Parameters
        ----------
        operator
            A keyed operator that this one sends to.
        key
            The 64-bit identity of its key there.
        payload
            The record; kept as it is where it has to wait, in the pause/resume variant.
        """
        routes = self._routes.get(operator)
        targets = self._targets.get(operator)
        if routes is None or targets is None:
            raise ValueError(f"operator: expected one of {list(self._targets)}, got {operator!r}")
        if (
            self._move is not None
            and self.phase is not Phase.STAGED
            and operator in self._move.pauses
            and self._move.pauses[operator].find(key) != NOBODY
        ):
            if self.buffered >= self.capacity:
                return Full(key)
            self._kept.append((operator, key, payload))
            self.buffered += 1
            self.revision += 1
            return Hold(key)
        owner = routes.owner(key)
        return Send(None if owner == UNKNOWN else targets[owner], operator, key, payload)

    def _hold(self, key: int, payload: bytes) -> Hold | Full:
        if self.buffered >= self.capacity:
            return Full(key)
        self._held.setdefault(key, []).append(payload)
        self.buffered += 1
        self.revision += 1
        return Hold(key)

    def _release(self) -> list[Output]:
        """The held records whose key does not wait any more, in the order that they came."""
        out: list[Output] = []
        for key in [key for key in self._held if self._move is None or not self._move.awaits(key)]:
            payloads = self._held.pop(key)
            self.buffered -= len(payloads)
            for payload in payloads:
                answer = self.record(key, payload)
                assert isinstance(answer, Apply | Forward)
                out.append(answer)
        return out

    def forget_records(self) -> None:
        """Let go of the records that wait here: for an engine that sends them again."""
        self.revision += bool(self.buffered)
        self._held.clear()
        self._kept.clear()
        self.buffered = 0

    # messages --------------------------------------------------------------------------------

    def receive(self, message: Message, now: float = 0.0) -> list[Output]:
        """Take a message; what to send, and which records to apply, in this order.

        Messages of an older epoch, and ones that came before, change nothing. What cannot come
        raises `ProtocolError`, and nothing is changed by it.
        """
        if message.target != self.task:
            raise ProtocolError(f"target: expected {self.task}, got {message.target}")
        if message.epoch < self.epoch:
            self.late += 1
            return self._stale(message)
        events = _EVENTS.get(type(message))
        if events is None or message.epoch < 1:
            raise ProtocolError(f"message: expected one for a task, got {message}")
        if isinstance(message, _FROM_MANAGER) and message.source != MANAGER:
            raise ProtocolError(f"source: expected the manager, got {message.source}")
        phase = self.phase
        row = TABLE.row(phase, events[message.epoch > self.epoch])
        out: list[Output] = getattr(self, f"_{row.action}")(message)
        assert self.phase in row.to, (row, self.phase)
        if self.phase is not phase:
            self.since = now
        return out

    def _stale(self, message: Message) -> list[Output]:
        """Changes nothing; a manager that lost its storage is told so."""
        if isinstance(message, Reconfigure):
            reason = f"epoch: expected at least {self.epoch}, got {message.epoch}"
            return [Refuse(message.epoch, self.task, MANAGER, reason)]
        if isinstance(message, Abort):
            return [Aborted(message.epoch, self.task, MANAGER)]
        return []

    def _ignore(self, message: Message) -> list[Output]:  # noqa: ARG002 - one of the actions
        self.late += 1
        return []

    def _measure(self, message: GetMetrics) -> list[Output]:
        return [Metrics(message.epoch, self.task, MANAGER, self.metrics())]

    def _stage(self, message: Reconfigure) -> list[Output]:
        after: dict[str, Routes] = {}
        reason = self._check(message, after)
        if reason is not None:
            return [Refuse(message.epoch, self.task, MANAGER, reason)]
        self._move = Move(message, self.task, self._routes, after, self._before)
        self._enter(Phase.STAGED, message.epoch)
        return self._acknowledge(message)

    def _check(self, message: Reconfigure, after: dict[str, Routes]) -> str | None:
        """Why a reconfiguration cannot be made here, None where it can; fills in the routers."""
        for change in message.routers:
            routes = self._routes.get(change.operator)
            if routes is None:
                return f"routers: expected some of {self._needed}, got {change.operator!r}"
            if (routes.version, routes.fingerprint) != (change.version, change.fingerprint):
                return (
                    f"routers: expected {change.operator!r} for version {routes.version},"
                    f" fingerprint {routes.fingerprint:016x}, got version {change.version},"
                    f" fingerprint {change.fingerprint:016x}"
                )
            try:
                after[change.operator] = Routes.from_bytes(change.router)
                self.topology.check_tasks(change.operator, after[change.operator].tasks)
            except ValueError as error:  # FormatError too
                return f"routers: expected a router of {change.operator!r}, got {error}"
        for transfer in (*message.send, *message.receive):
            if transfer.task not in self._peers or transfer.task == self.task.number:
                return f"task: expected another of {self.task.operator!r}, got {transfer.task}"
        if (message.send or message.receive) and self.task.operator not in after:
            return f"routers: expected one of {self.task.operator!r}, got none"
        return None

    def _acknowledge(self, message: Message) -> list[Output]:
        assert self._move is not None
        if isinstance(message, Reconfigure) and message != self._move.message:
            raise ProtocolError(f"Reconfigure: expected one of epoch {self.epoch}, got another")
        return [Ack(message.epoch, self.task, MANAGER)]

    def _propagate(self, message: Propagate) -> list[Output]:
        move = self._move
        assert move is not None
        if message.source not in self._before:
            raise ProtocolError(f"source: expected a predecessor, got {message.source}")
        if message.source not in move.waiting:
            return self._ignore(message)
        move.waiting.remove(message.source)
        self.revision += 1
        return [] if move.waiting else self._act(move)

    def _act(self, move: Move) -> list[Output]:
        self._routes.update(move.after)
        out: list[Output] = [*move.migrations(self.task, self.store, self.chunk)]
        out += [Propagate(self.epoch, self.task, task) for task in self._after]
        self._enter(Phase.MOVING, self.epoch)
        return out + self._settle(move)

    def _install(self, message: Migrate) -> list[Output]:
        move = self._move
        assert move is not None
        source = message.source
        if source.operator != self.task.operator or all(
            transfer.task != source.number for transfer in move.message.receive
        ):
            raise ProtocolError(f"source: expected one that state comes from, got {source}")
        expected = move.parts.get(source.number)
        if expected is None or message.part < expected:
            return self._ignore(message)
        if message.part > expected:
            raise ProtocolError(f"part: expected {expected} of {source}, got {message.part}")
        for key, _ in message.states:
            if move.arriving.find(key) != source.number:
                raise ProtocolError(f"key: expected one that comes from {source}, got {key}")
        for key, state in message.states:
            self.store.put(key, state)
            move.present.add(key)
        if message.last:
            del move.parts[source.number]
        else:
            move.parts[source.number] = expected + 1
        self.revision += 1
        out = self._release()
        return out if self.phase is Phase.STAGED else out + self._settle(move)

    def _settle(self, move: Move) -> list[Output]:
        """Done, once nothing is to come."""
        if move.parts:
            return []
        assert not self._held
        if move.message.pauses is None:
            self._move = None
            self._enter(Phase.SETTLED, self.epoch)
        else:
            self._enter(Phase.PAUSED, self.epoch)
        return [Done(self.epoch, self.task, MANAGER)]

    def _resume(self, message: Resume) -> list[Output]:
        self._move = None
        self._enter(Phase.SETTLED, message.epoch)
        out: list[Output] = []
        for operator, key, payload in self._kept:
            answer = self.route(operator, key, payload)
            assert isinstance(answer, Send)
            out.append(answer)
        self.buffered -= len(self._kept)
        self._kept.clear()
        return out + self._report_resumed(message)

    def _abort(self, message: Abort) -> list[Output]:
        self._move = None
        out = self._release()
        return out + self._note_abort(message)

    def _note_abort(self, message: Abort) -> list[Output]:
        self._enter(Phase.SETTLED, message.epoch)
        self.aborted = True
        return self._report(message)

    def _report(self, message: Message) -> list[Output]:
        if message.source != MANAGER:  # a doubled Propagate of a predecessor
            return self._ignore(message)
        if isinstance(message, Abort) and not self.aborted:
            raise ProtocolError(f"Abort: expected an epoch that nobody acted on, got {self.epoch}")
        if self.aborted:
            return [Aborted(self.epoch, self.task, MANAGER)]
        return [Done(self.epoch, self.task, MANAGER)]

    def _report_resumed(self, message: Message) -> list[Output]:
        return [Resumed(message.epoch, self.task, MANAGER)]

    def _enter(self, phase: Phase, epoch: int) -> None:
        self.phase = phase
        self.epoch = epoch
        self.aborted = False
        self.revision += 1

    # what is asked of it ---------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a reconfiguration is going on here; else no record has to wait."""
        return self.phase is not Phase.SETTLED

    def owner(self, operator: str, key: int) -> int:
        """The task of a key by the router in force here, or -1 where an engine's hash says it."""
        return self._routes[operator].owner(key)

    @property
    def missing(self) -> tuple[Task, ...]:
        """Those whose `Propagate` or `Migrate` has not come: an engine that loses asks them."""
        if self._move is None:
            return ()
        peers = {self._peers[number] for number in self._move.parts}
        if self.phase is Phase.STAGED:
            peers |= self._move.waiting - {MANAGER}
        return tuple(sorted(peers))

    @property
    def parts(self) -> dict[int, int]:
        """The next part of `Migrate` of each peer, by number, whose last has not come."""
        return {} if self._move is None else dict(self._move.parts)

    def router(self, operator: str) -> Router:
        """The router in force here; without the values of the keys that its table names."""
        return Router.from_bytes(self._routes[operator].data)

    def versions(self) -> dict[str, tuple[int, int]]:
        """Version and fingerprint of the routers in force, by operator."""
        return {name: (r.version, r.fingerprint) for name, r in self._routes.items()}

    def __repr__(self) -> str:
        return f"Instance({self.task}, {self.phase.value}, epoch {self.epoch})"

    # there and back --------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """All that it knows, as versioned bytes: what a task commits with its state."""
        out = _wire.Writer(_wire.INSTANCE)
        codec.write_task(out, self.task)
        out.number(self.epoch)
        out.byte(_ORDER.index(self.phase))
        out.flag(self.aborted)
        _write_routers(out, self._routes)
        out.items(self._held.items(), _write_held)
        out.items(self._kept, _write_kept)
        move = self._move
        out.flag(move is not None)
        if move is not None:
            out.data(codec.encode(move.message))
            _write_routers(out, move.before)
            out.items(sorted(move.waiting), codec.write_task)
            out.items(sorted(move.parts.items()), _write_part)
            out.words(sorted(move.present))
        return out.finish()

    @classmethod
    def restore(
        cls,
        data: bytes,
        *,
        topology: Topology,
        store: Store | None = None,
        capacity: int = 10_000,
        chunk: int = 1 << 20,
        metrics: Callable[[], bytes] = _no_metrics,
    ) -> Instance:
        """The machine that gave a snapshot; anything else raises `FormatError`.

        The other parameters are those of the constructor; the store has to be as it was then.
        """
        into = _wire.Reader(data, _wire.INSTANCE)
        self = cls.__new__(cls)
        task = codec.read_task(into)
        if not topology.has(task):
            raise FormatError(f"task: expected one of the topology, got {task}")
        self._set_up(task, topology, store, capacity, chunk, metrics)
        self.epoch = into.number()
        phase = into.byte()
        if phase >= len(_ORDER):
            raise FormatError(f"phase: expected 0 to {len(_ORDER) - 1}, got {phase}")
        self.phase = _ORDER[phase]
        self.aborted = into.flag()
        self._routes = _read_routers(into)
        if sorted(self._routes) != sorted(self._needed):
            raise FormatError(f"routers: expected {self._needed}, got {list(self._routes)}")
        self._held = dict(into.items(_read_held))
        self._kept = list(into.items(_read_kept))
        self.buffered = sum(map(len, self._held.values())) + len(self._kept)
        if into.flag():
            self._move = self._read_move(into)
        into.end()
        if (self._move is None) != (self.phase is Phase.SETTLED):
            raise FormatError(f"phase: expected one that fits the rest, got {self.phase.value}")
        return self

    def _read_move(self, into: _wire.Reader) -> Move:
        message = codec.decode(into.data())
        if not isinstance(message, Reconfigure) or message.epoch != self.epoch:
            raise FormatError(f"data: expected the Reconfigure of {self.epoch}, got {message}")
        before = _read_routers(into)
        after = {change.operator: Routes.from_bytes(change.router) for change in message.routers}
        if sorted(before) != sorted(after):
            raise FormatError(f"routers: expected {sorted(after)}, got {sorted(before)}")
        move = Move(message, self.task, before, after, into.items(codec.read_task))
        move.parts = dict(into.items(_read_part))
        move.present = set(into.words())
        if not move.waiting <= self._before:
            raise FormatError("data: expected predecessors to wait for, got others")
        return move


_ORDER = tuple(Phase)
_Held = tuple[int, list[bytes]]
_Kept = tuple[str, int, bytes]


def _write_routers(out: _wire.Writer, routes: Mapping[str, Routes]) -> None:
    out.number(len(routes))
    for name, router in routes.items():
        out.text(name)
        out.data(router.data)


def _read_routers(into: _wire.Reader) -> dict[str, Routes]:
    return dict(into.items(lambda r: (r.text(), Routes.from_bytes(r.data()))))


def _write_held(out: _wire.Writer, held: _Held) -> None:
    out.word(held[0])
    out.items(held[1], _wire.Writer.data)


def _read_held(into: _wire.Reader) -> _Held:
    return into.word(), list(into.items(_wire.Reader.data))


def _write_kept(out: _wire.Writer, kept: _Kept) -> None:
    out.text(kept[0])
    out.word(kept[1])
    out.data(kept[2])


def _read_kept(into: _wire.Reader) -> _Kept:
    return into.text(), into.word(), into.data()


def _write_part(out: _wire.Writer, part: tuple[int, int]) -> None:
    out.number(part[0])
    out.number(part[1])


def _read_part(into: _wire.Reader) -> tuple[int, int]:
    return into.number(), into.number()
