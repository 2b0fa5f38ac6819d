"""Configuration: one reconfiguration as the manager keeps it on stable storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyroute._core import FormatError
from pyroute.plan import Plan
from pyroute.protocol import _wire
from pyroute.protocol.messages import Moved, Reconfigure, RouterChange, Transfer
from pyroute.protocol.routes import moves
from pyroute.protocol.topology import MANAGER, Task, Topology
from pyroute.router import Router


@dataclass(frozen=True)
class Configuration:
    """What changes in one epoch, for whom; the routers of all keyed operators before and after."""

    epoch: int
    topology: Topology
    pause: bool
    before: Mapping[str, Router]
    after: Mapping[str, Router]

    def messages(self) -> dict[Task, Reconfigure]:
        """The `Reconfigure` of every task."""
        changed = [name for name in self.before if self.before[name] != self.after[name]]
        moved = {name: moves(self.before[name], self.after[name]) for name in changed}
        changes = {
            name: RouterChange(
                name,
                self.before[name].version,
                self.before[name].fingerprint,
                self.after[name].to_bytes(values=False),
            )
            for name in changed
        }
        send: dict[Task, list[Transfer]] = {}
        receive: dict[Task, list[Transfer]] = {}
        for name in changed:
            for (source, target), what in moved[name].items():
                send.setdefault(Task(name, source), []).append(Transfer(target, what))
                receive.setdefault(Task(name, target), []).append(Transfer(source, what))
        pauses = {name: _together(moved[name].values()) for name in changed if moved[name]}
        out = {}
        for task in self.topology.all_tasks:
            after = self.topology.successors(task.operator)
            out[task] = Reconfigure(
                self.epoch,
                MANAGER,
                task,
                tuple(changes[name] for name in (task.operator, *after) if name in changes),
                tuple(send.get(task, ())),
                tuple(receive.get(task, ())),
                tuple((name, pauses[name]) for name in after if name in pauses)
                if self.pause
                else None,
            )
        return out

    def to_bytes(self) -> bytes:
        """Versioned bytes."""
        out = _wire.Writer(_wire.CONFIGURATION)
        out.number(self.epoch)
        out.flag(self.pause)
        out.items(self.topology.operators, self._write_operator)
        out.items(self.topology.edges, _write_edge)
        for routers in (self.before, self.after):
            out.items(sorted(routers.items()), _write_router)
        return out.finish()

    def _write_operator(self, out: _wire.Writer, name: str) -> None:
        out.text(name)
        out.flag(name in self.topology.keyed)
        out.words([task.number for task in self.topology.tasks(name)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Configuration:
        """Read what `to_bytes` wrote; anything else raises `FormatError`."""
        into = _wire.Reader(data, _wire.CONFIGURATION)
        epoch, pause = into.number(), into.flag()
        operators = into.items(lambda r: (r.text(), r.flag(), r.words()))
        edges = into.items(lambda r: (r.text(), r.text()))
        before, after = (
            dict(into.items(lambda r: (r.text(), Router.from_bytes(r.data())))) for _ in range(2)
        )
        into.end()
        try:
            topology = Topology(
                {name: tasks for name, _, tasks in operators},
                edges,
                stateless=[name for name, keyed, _ in operators if not keyed],
            )
        except (TypeError, ValueError) as error:
            raise FormatError(f"topology: expected one that is whole, got {error}") from error
        if not set(before) == set(after) == set(topology.keyed):
            raise FormatError(f"routers: expected of {sorted(topology.keyed)}, got {list(after)}")
        return cls(epoch, topology, pause, before, after)


def next_routers(plan: Any, routers: Mapping[str, Router], topology: Topology) -> dict[str, Router]:
    """The routers that a plan makes of those in force.

    Parameters
    ----------
    plan
        `{operator: Plan or Router}`, or anything with such a mapping as `routers`. Operators that
        it does not name keep theirs.
    routers
        Those in force.
    topology
        The tasks that there are.
    """
    given = getattr(plan, "routers", plan)
    if not isinstance(given, Mapping):
        raise TypeError(
            "plan: expected a mapping of operator to Plan or Router, or a plan with routers,"
            f" got {type(plan).__name__}"
        )
    after = dict(routers)
    for name, change in given.items():
        router = routers.get(name)
        if router is None:
            raise ValueError(f"plan: expected keyed operators {list(routers)}, got {name!r}")
        if isinstance(change, Plan):
            after[name] = router.apply(change)
        elif not isinstance(change, Router):
            raise TypeError(f"plan: expected a Plan or a Router, got {type(change).__name__}")
        elif change == router:
            continue
        elif change.version <= router.version:
            raise ValueError(
                f"plan: expected a router of {name!r} newer than version {router.version},"
                f" got version {change.version}"
            )
        else:
            after[name] = change
        topology.check_tasks(name, after[name].tasks)
    return after


def _together(parts: Any) -> Moved:
    return Moved(
        tuple(sorted(key for part in parts for key in part.keys)),
        tuple(sorted(interval for part in parts for interval in part.ranges)),
    )


def _write_edge(out: _wire.Writer, edge: tuple[str, str]) -> None:
    out.text(edge[0])
    out.text(edge[1])


def _write_router(out: _wire.Writer, item: tuple[str, Router]) -> None:
    out.text(item[0])
    out.data(item[1].to_bytes())
