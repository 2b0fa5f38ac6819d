"""Manager: the machine that takes all tasks from one set of routers to the next, or back.

It does no I/O but for its storage, and knows no clock. What it promises is in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from pyroute._arrays import real
from pyroute._core import FormatError
from pyroute.protocol.configuration import Configuration, next_routers
from pyroute.protocol.errors import FencedError, ProtocolError
from pyroute.protocol.messages import (
    Abort,
    Aborted,
    Ack,
    Done,
    GetMetrics,
    Message,
    Metrics,
    Probe,
    Propagate,
    Reconfigure,
    Refuse,
    Resume,
    Resumed,
)
from pyroute.protocol.storage import Storage
from pyroute.protocol.table import Row, Table
from pyroute.protocol.topology import MANAGER, Task, Topology
from pyroute.router import Router


class Phase(Enum):
    """How far a manager is."""

    IDLE = "idle"
    COLLECTING = "collecting"
    PLANNING = "planning"
    PREPARING = "preparing"
    MOVING = "moving"
    RESUMING = "resuming"
    ABORTING = "aborting"


_IDLE, _COLLECTING, _PLANNING, _PREPARING, _MOVING, _RESUMING, _ABORTING = Phase

TABLE = Table(
    [
        Row(_IDLE, "collect", "ask", (_COLLECTING,), "GetMetrics to all"),
        Row(
            *(_IDLE, "propose", "prepare", (_PREPARING,)),
            "store the configuration, then Reconfigure to all",
        ),
        Row(
            *(_COLLECTING, "Metrics", "count_metrics", (_COLLECTING, _PLANNING)),
            "keep them; with the last of them it is time to plan",
        ),
        Row(_COLLECTING, "abort", "drop", (_IDLE,), "ask no more"),
        Row(
            *(_PLANNING, "propose", "prepare", (_PREPARING,)),
            "store the configuration, then Reconfigure to all",
        ),
        Row(_PLANNING, "abort", "drop", (_IDLE,), "no plan is worth it"),
        Row(
            *(_PREPARING, "Ack", "count_ack", (_PREPARING, _MOVING, _ABORTING)),
            "count it; with the last of them store the decision, then Propagate to sources",
        ),
        Row(
            *(_PREPARING, "Refuse", "abort", (_ABORTING, _MOVING)),
            "store the abort, then Abort to all",
        ),
        Row(
            *(_PREPARING, "abort", "abort", (_ABORTING, _MOVING)),
            "store the abort, then Abort to all",
        ),
        Row(
            *(_PREPARING, "Done", "adopt", (_MOVING, _RESUMING, _IDLE)),
            "another manager decided: go on from there",
        ),
        Row(
            *(_PREPARING, "Resumed", "adopt", (_MOVING,)),
            "another manager decided: go on from there",
        ),
        Row(
            *(_PREPARING, "Aborted", "adopt", (_ABORTING, _IDLE)),
            "another manager aborted: go on from there",
        ),
        Row(
            *(_MOVING, "Done", "count_done", (_MOVING, _RESUMING, _IDLE)),
            "count it; with the last of them store the end, or Resume to all",
        ),
        Row(
            *(_RESUMING, "Resumed", "count_resumed", (_RESUMING, _IDLE)),
            "count it; with the last of them store the end",
        ),
        Row(
            *(_ABORTING, "Aborted", "count_aborted", (_ABORTING, _IDLE)),
            "count it; with the last of them store the end",
        ),
        *(
            Row(phase, event, "fence", (phase,), "another manager began this epoch: FencedError")
            for phase in (_COLLECTING, _PLANNING)
            for event in ("Ack", "Refuse", "Done", "Resumed", "Aborted")
        ),
        *(
            Row(phase, event, "ignore", (phase,), "")
            for phase, events in {
                _IDLE: "Metrics Ack Refuse Done Resumed Aborted",
                _PLANNING: "Metrics",
                _PREPARING: "Metrics",
                _MOVING: "Metrics Ack Refuse Resumed",
                _RESUMING: "Metrics Ack Refuse Done",
                _ABORTING: "Metrics Ack Refuse",
            }.items()
            for event in events.split()
        ),
    ]
)

_EVENTS: dict[type[Message], str] = {
    kind: kind.__name__ for kind in (Metrics, Ack, Refuse, Done, Resumed, Aborted)
}

_DECIDED = b"decided"
_ABORTED = b"aborted"


class Manager:
    """The machine that reconfigures.

    A manager that is made on the storage of another one goes on where that one was: what was
    decided is done again, which tasks that did it already survive; what was stored and not decided
    is done again too, or aborted; of what was not stored nobody has heard.

    Parameters
    ----------
    plan
        What `start` proposes: `{operator: Plan or Router}`, or anything with such a mapping as
        `routers`. None: nothing yet, `collect` and `propose` come later.
    placement
        A `Topology`, or tasks by operator as `Topology.of` takes them.
    routers
        Those in force at the beginning, of every keyed operator. Ignored once a reconfiguration was
        done on this storage.
    storage
        Where configurations, decisions and ends are kept.
    edges, stateless
        Of the topology, where `placement` is none.
    pause
        The pause/resume variant: those that send keep back records of keys that move until all
        state is where it belongs. By default the one that gets a key holds its records.
    redo
        Whether a configuration that was stored and not decided is done again by `start`, or
        aborted.
    resend_after
        `tick` asks again for answers that are missing for so long.
    abort_after
        `tick` aborts where acknowledgements are missing for so long; None: never.
    """

    def __init__(
        self,
        plan: Any,
        placement: Topology | Mapping[str, Any],
        *,
        routers: Mapping[str, Router],
        storage: Storage,
        edges: Iterable[tuple[str, str]] | None = None,
        stateless: Iterable[str] | None = None,
        pause: bool = False,
        redo: bool = True,
        resend_after: float = 1.0,
        abort_after: float | None = None,
    ) -> None:
        self.topology = Topology.of(
            placement, edges, stateless=None if stateless is None else list(stateless)
        )
        self.storage = storage
        self.pause = pause
        self.redo = redo
        self.resend_after = real(resend_after, "resend_after")
        self.abort_after = None if abort_after is None else real(abort_after, "abort_after")
        self.phase = Phase.IDLE
        self.epoch = 0
        """The reconfiguration at hand, or the last one."""
        self.metrics: dict[Task, bytes] = {}
        """What tasks reported in this epoch."""
        self.refusals: dict[Task, str] = {}
        """Why tasks refused the last configuration."""
        self.late = 0
        """Messages that were of another epoch, late or doubled, and changed nothing."""
        self.routers: dict[str, Router] = {}
        """Those in force, by operator."""
        self._in_force(routers)
        self._waiting: set[Task] = set()
        self._messages: dict[Task, Reconfigure] = {}
        self._configuration: Configuration | None = None
        self._asked = 0.0
        self._began = 0.0
        self._load()
        if plan is not None and self._configuration is not None:
            raise ValueError(f"plan: expected none while epoch {self.epoch} is open, got one")
        self._plan = plan

    # what its owner does ---------------------------------------------------------------------

    def start(self, now: float) -> list[Message]:
        """What to send first: of what was left open, or of the plan that it was made with."""
        plan, self._plan = self._plan, None
        if plan is not None:
            return self.propose(plan, now)
        if self._configuration is None:
            return []
        if self.phase is not Phase.IDLE:
            raise ValueError(f"start: expected it once, got it while {self.phase.value}")
        outcome = self.storage.read(_name(self.epoch, "outcome"))
        if outcome is not None:
            return self._go_on(outcome, now)
        out = self._enter(Phase.PREPARING, now, self._messages.__getitem__)
        return out if self.redo else self.abort(now)

    def collect(self, now: float) -> list[Message]:
        """Ask all tasks for their statistics; `metrics` has them once `phase` is planning."""
        return self._step("collect", now)

    def propose(self, plan: Any, now: float) -> list[Message]:
        """Begin a reconfiguration; durable when it returns, and before anything is sent."""
        return self._step("propose", now, plan)

    def abort(self, now: float) -> list[Message]:
        """Give up what was not decided; `ValueError` where it is too late, or nothing is open."""
        if not any(row.event == "abort" and row.phase is self.phase for row in TABLE.rows):
            raise ValueError(f"abort: expected it before the decision, got it {self.phase.value}")
        return self._step("abort", now)

    def tick(self, now: float) -> list[Message]:
        """Ask again where answers are missing for long; call it now and then."""
        if not self._waiting:
            return []
        if (
            self.phase is Phase.PREPARING
            and self.abort_after is not None
            and now - self._began >= self.abort_after
        ):
            return self.abort(now)
        if now - self._asked < self.resend_after:
            return []
        if self.phase is not Phase.COLLECTING and self._overtaken():
            return []
        again: dict[Phase, Callable[[Task], Message]] = {
            Phase.COLLECTING: self._to_all(GetMetrics),
            Phase.PREPARING: self._messages.__getitem__,
            Phase.MOVING: self._nudge,
            Phase.RESUMING: self._to_all(Resume),
            Phase.ABORTING: self._to_all(Abort),
        }
        self._asked = now
        return [again[self.phase](task) for task in sorted(self._waiting)]

    def receive(self, message: Message, now: float) -> list[Message]:
        """Take a message of a task; what to send.

        Messages of another epoch, and ones that came before, change nothing. What cannot come
        raises `ProtocolError`.
        """
        event = _EVENTS.get(type(message))
        if event is None or message.target != MANAGER or not self.topology.has(message.source):
            raise ProtocolError(f"message: expected one of a task to the manager, got {message}")
        if message.epoch != self.epoch:
            self.late += 1
            return []
        return self._step(event, now, message)

    # transitions -----------------------------------------------------------------------------

    def _step(self, event: str, now: float, what: Any = None) -> list[Message]:
        row = TABLE.row(self.phase, event)
        out: list[Message] = getattr(self, f"_{row.action}")(what, now)
        assert self.phase in row.to, (row, self.phase)
        return out

    def _enter(self, phase: Phase, now: float, first: Callable[[Task], Message]) -> list[Message]:
        """Begin a phase that ends when all tasks have answered what they are sent first."""
        self.phase = phase
        self._began = self._asked = now
        self._waiting = set(self.topology.all_tasks)
        return [first(task) for task in self.topology.all_tasks]

    def _to_all(self, kind: type[Message]) -> Callable[[Task], Message]:
        return lambda task: kind(self.epoch, MANAGER, task)

    def _nudge(self, task: Task) -> Message:
        kind = Propagate if task in self.topology.sources else Probe
        return kind(self.epoch, MANAGER, task)

    def _answered(self, message: Message) -> bool:
        """Whether that was the last answer to come; one that came before is none."""
        if message.source not in self._waiting:
            self.late += 1
            return False
        self._waiting.remove(message.source)
        return not self._waiting

    def _ignore(self, message: Message, now: float) -> list[Message]:  # noqa: ARG002
        self.late += 1
        return []

    def _fence(self, message: Message, now: float) -> list[Message]:  # noqa: ARG002
        raise FencedError(f"epoch: expected nobody to begin {self.epoch}, got {message}")

    def _ask(self, what: None, now: float) -> list[Message]:  # noqa: ARG002
        self.epoch += 1
        self.metrics = {}
        return self._enter(Phase.COLLECTING, now, self._to_all(GetMetrics))

    def _count_metrics(self, message: Metrics, now: float) -> list[Message]:  # noqa: ARG002
        self.metrics[message.source] = message.data
        if self._answered(message):
            self.phase = Phase.PLANNING
        return []

    def _drop(self, what: None, now: float) -> list[Message]:  # noqa: ARG002
        self._waiting.clear()
        self.epoch -= 1
        self.phase = Phase.IDLE
        return []

    def _prepare(self, plan: Any, now: float) -> list[Message]:
        epoch = self.epoch + (self.phase is Phase.IDLE)
        after = next_routers(plan, self.routers, self.topology)
        configuration = Configuration(epoch, self.topology, self.pause, self.routers, after)
        messages = configuration.messages()
        created = self.storage.create(_name(epoch, "configuration"), configuration.to_bytes())
        # A number may also be free because it was removed: then there are newer ones.
        if not created or self._epochs()[-1] > epoch:
            raise FencedError(f"epoch: expected nobody to begin {epoch}, got another manager")
        self.epoch = epoch
        self.refusals = {}
        self._configuration, self._messages = configuration, messages
        return self._enter(Phase.PREPARING, now, self._messages.__getitem__)

    def _count_ack(self, message: Ack, now: float) -> list[Message]:
        if not self._answered(message):
            return []
        if self._decide(_DECIDED) == _ABORTED:
            return self._go_on(_ABORTED, now)
        self._enter(Phase.MOVING, now, self._nudge)
        return [Propagate(self.epoch, MANAGER, task) for task in self.topology.sources]

    def _abort(self, message: Message | None, now: float) -> list[Message]:
        if isinstance(message, Refuse):
            self.refusals[message.source] = message.reason
        return self._go_on(self._decide(_ABORTED), now)

    def _adopt(self, message: Message, now: float) -> list[Message]:
        outcome = self.storage.read(_name(self.epoch, "outcome"))
        if outcome != (_ABORTED if isinstance(message, Aborted) else _DECIDED):
            raise ProtocolError(f"outcome: expected one that explains {message}, got {outcome!r}")
        return [*self._go_on(outcome, now), *self.receive(message, now)]

    def _go_on(self, outcome: bytes, now: float) -> list[Message]:
        """Do what was decided, by whomever, from the beginning."""
        if outcome == _DECIDED:
            return self._enter(Phase.MOVING, now, self._nudge)
        return self._enter(Phase.ABORTING, now, self._to_all(Abort))

    def _count_done(self, message: Done, now: float) -> list[Message]:
        if not self._answered(message):
            return []
        assert self._configuration is not None
        if self._configuration.pause:
            return self._enter(Phase.RESUMING, now, self._to_all(Resume))
        return self._finish(applied=True)

    def _count_resumed(self, message: Resumed, now: float) -> list[Message]:  # noqa: ARG002
        return self._finish(applied=True) if self._answered(message) else []

    def _count_aborted(self, message: Aborted, now: float) -> list[Message]:  # noqa: ARG002
        return self._finish(applied=False) if self._answered(message) else []

    def _finish(self, *, applied: bool) -> list[Message]:
        assert self._configuration is not None
        self.storage.create(_name(self.epoch, "end"), b"")
        if applied:
            self.routers = dict(self._configuration.after)
            for name in self.storage.names():
                if _epoch(name) < self.epoch:
                    self.storage.remove(name)
        self._configuration, self._messages = None, {}
        self.phase = Phase.IDLE
        return []

    # stable storage --------------------------------------------------------------------------

    def _decide(self, outcome: bytes) -> bytes:
        """Store an outcome; the one that holds, which another manager may have stored before."""
        name = _name(self.epoch, "outcome")
        if self.storage.create(name, outcome):
            return outcome
        held = self.storage.read(name)
        if held is None:
            raise FencedError(f"epoch: expected {self.epoch} to be the newest, got a newer one")
        return held

    def _overtaken(self) -> bool:
        """Whether another manager ended this epoch; `FencedError` where it began the next."""
        if self._epochs()[-1:] != [self.epoch]:
            raise FencedError(f"epoch: expected {self.epoch} to be the newest, got a newer one")
        if self.storage.read(_name(self.epoch, "end")) is None:
            return False
        self._waiting.clear()
        self._finish(applied=self.storage.read(_name(self.epoch, "outcome")) == _DECIDED)
        return True

    def _epochs(self) -> list[int]:
        return sorted({_epoch(name) for name in self.storage.names()})

    def _load(self) -> None:
        """Find what another manager left: the routers in force, and what is open."""
        for epoch in self._epochs():
            data = self.storage.read(_name(epoch, "configuration"))
            if data is None:
                continue  # removed, or the rest of one that was
            configuration = Configuration.from_bytes(data)
            if configuration.epoch != epoch:
                raise FormatError(f"epoch: expected {epoch}, got {configuration.epoch}")
            outcome = self.storage.read(_name(epoch, "outcome"))
            if outcome not in (None, _DECIDED, _ABORTED):
                raise FormatError(f"outcome: expected decided or aborted, got {outcome!r}")
            self.epoch = epoch
            if self.storage.read(_name(epoch, "end")) is None:
                self._open(configuration)
                return  # the newest: none begins while another is open
            if outcome == _DECIDED:
                self._in_force(configuration.after)

    def _open(self, configuration: Configuration) -> None:
        if configuration.topology != self.topology:
            raise ValueError(
                f"placement: expected that of epoch {configuration.epoch}, which is open,"
                f" {configuration.topology}, got {self.topology}"
            )
        self._in_force(configuration.before)
        self._configuration = configuration
        self._messages = configuration.messages()

    def _in_force(self, routers: Mapping[str, Router]) -> None:
        for name in sorted(self.topology.keyed):
            router = routers.get(name)
            if not isinstance(router, Router):
                raise ValueError(f"routers: expected a Router of {name!r}, got none")
            self.topology.check_tasks(name, router.tasks)
            self.routers[name] = router

    # what is asked of it ---------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether a reconfiguration was begun and has not ended."""
        return self._configuration is not None

    @property
    def waiting(self) -> frozenset[Task]:
        """The tasks whose answers are missing."""
        return frozenset(self._waiting)

    def __repr__(self) -> str:
        return f"Manager({self.phase.value}, epoch {self.epoch})"


def _name(epoch: int, what: str) -> str:
    return f"{epoch:012d}.{what}"


def _epoch(name: str) -> int:
    digits = name.split(".", 1)[0]
    if not digits.isdecimal():
        raise FormatError(f"storage: expected names that begin with an epoch, got {name!r}")
    return int(digits)
