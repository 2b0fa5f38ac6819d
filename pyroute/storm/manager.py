"""Manager: gathers statistics, plans, and takes the tasks from one router to the next.

One task, outside of the way of records: it reads the stream ``pyroute`` of every operator and sends
to them on its own. What it decides is on stable storage before anybody hears of it; killed at any
moment, it goes on where it was. As a spout it has no input: tasks tell it through the config store
(`pyroute.storm.inbox`), and so do those whose stream a bolt does not read.

With a config store it publishes the router of each edge (`TOPOLOGY/SOURCE->OPERATOR`) and its own
status (`TOPOLOGY/status`), and follows requests (`TOPOLOGY/request`); of several that wait, the
newest::

    {"tables": {"count": [["anna", 1], ["bert", 0]]}}     these keys to these tasks
    {"rebalance": ["count"]}                              plan now, whatever the gate says
    {"tasks": {"count": [0, 1, 2, 3]}}                    these tasks have keys from now on
    {"rings": {"count": [0, 1, 2, 3]}}                    the same by the ring alone, unplanned
"""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyroute.colocate import colocate
from pyroute.control.config_store import ConfigStore, Document, StaleVersionError
from pyroute.gate import Gate
from pyroute.keys import Keys
from pyroute.plan import Plan
from pyroute.protocol import FencedError, FileStorage, Manager, Message, Storage, Task
from pyroute.protocol.manager import Phase
from pyroute.rebalance import elastic, rebalance
from pyroute.ring import Ring
from pyroute.router import Router
from pyroute.space_saving import PairSpaceSaving
from pyroute.storm.bolt import Bolt, Context, Spout, _Child
from pyroute.storm.inbox import Inbox
from pyroute.storm.protocol import Emit, Tuple
from pyroute.storm.reconfigure import (
    STREAM,
    Participant,
    Wiring,
    read_message,
    setting,
    write_message,
)
from pyroute.storm.task_bolt import numbers_of, snapshot_of

_SHOWN_TASKS, _SHOWN_KEYS, _SHOWN_LETTERS = 200, 10, 200
"""Of each operator in the status: the most loaded tasks, the heaviest keys, the text of one."""
_SHOWN_EVERY, _SHOWN_AGAIN = 1.0, 30.0
"""Seconds between two looks at loads for the status, and after one that could not be published."""


class StoreStorage:
    """A manager's storage in a config store: documents `PREFIX/NAME` that are created once.

    Parameters
    ----------
    store
        An open one.
    prefix
        Of the names there.
    """

    def __init__(self, store: ConfigStore, prefix: str) -> None:
        self._store = store
        self._prefix = f"{prefix}/"

    def create(self, name: str, data: bytes) -> bool:
        """Create a document; False where the name exists."""
        try:
            self._store.put(self._prefix + name, data, 0)
        except StaleVersionError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        """A document; None where there is none."""
        found = self._store.get(self._prefix + name)
        return None if found is None else bytes(found.value)

    def names(self) -> list[str]:
        """Names of all documents, ascending."""
        names = self._store.names()
        return [n.removeprefix(self._prefix) for n in names if n.startswith(self._prefix)]

    def remove(self, name: str) -> None:
        """Remove a document."""
        self._store.remove(self._prefix + name)


class _Managing(_Child):
    """What `ManagerBolt` and `ManagerSpout` share: all but how they hear of tasks."""

    resend_after: float = 2.0
    """Seconds after which tasks are asked again."""

    def __init__(
        self,
        *,
        operators: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        state: str | None = None,
        store: str | None = None,
        storage: str = "state",
        plan_every: float = 10.0,
        window: float | None = None,
        planner: str = "rebalance",
        gate: Gate | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if planner not in ("rebalance", "colocate"):
            raise ValueError(f"planner: expected rebalance or colocate, got {planner!r}")
        if storage not in ("state", "store"):
            raise ValueError(f"storage: expected state or store, got {storage!r}")
        self._given = (operators, state, store)
        self.storage = storage
        self.plan_every = plan_every
        self.planner = planner
        window = window if window is not None else plan_every or 10.0
        self.window = max(window, 2 * Participant.report_every)
        self.options = dict(options or {})
        allowed = self.options.get("max_imbalance", 0.05)
        band = min(0.05, allowed) if isinstance(allowed, int | float) else 0.05
        self.gate = gate or Gate(cooldown=plan_every, dead_band=band)
        self._gates: dict[str, Gate] = {}

    # set-up -------------------------------------------------------------------------------------

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Go on where the last manager was."""
        operators, state, store = self._given
        self.name = str(conf.get("topology.name") or "topology")
        operators = setting(operators, conf, "operators")
        if operators is None:
            raise ValueError("operators: expected the components (pyroute.operators), got none")
        stateless = setting(None, conf, "stateless")
        first = setting(None, conf, "tasks")
        self.wiring = Wiring(context, operators, context.component, stateless, first)
        self._folder = setting(state, conf, "state")
        url = setting(store, conf, "store")
        self._store = None if url is None else ConfigStore.open(url, wait=False, timeout=5.0)
        if self.storage == "store" and self._store is None:
            raise ValueError("store: expected a config store for storage='store', got none")
        if self.storage == "state" and self._folder is None:
            raise ValueError("state: expected a directory (pyroute.state), got none")
        self.manager: Manager | None = None
        self.reports: dict[Task, dict[str, Any]] = {}
        self._recent: deque[tuple[float, Task, dict[str, Any]]] = deque()
        self._made: dict[str, dict[str, Any]] = {}
        self.decision = ""
        self._planned_at = self.now()
        self._requests: list[Document] = []
        self._requested = 0
        self._published: dict[str, int] = {}
        self._status: dict[str, Any] = {}
        self._shown: dict[str, Any] = {}
        self._look_at = 0.0
        self._began = 0.0
        self._seconds = 0.0
        self._said = ""
        self._inbox = self._open_inbox(conf, context)
        if self._store is not None:
            self._store.watch(f"{self.name}/request", self._requests.append)
        self._make()

    def _open_inbox(self, conf: Mapping[str, Any], context: Context) -> Inbox | None:
        """Where those speak whose stream does not come here; None: all of them are read."""
        read = context.raw.get("source->stream->fields", {})
        tasks = [
            task
            for task in self.wiring.topology.all_tasks
            if STREAM not in read.get(task.operator, ())
        ]
        if not tasks:
            return None
        if self._store is None:
            raise ValueError(
                f"store: expected a config store (pyroute.store), because the stream {STREAM} of"
                f" {tasks[0].operator!r} is not read here, got none"
            )
        return Inbox(self._store, self.name, conf.get("storm.id"), tasks)

    def _stable(self) -> Storage:
        if self.storage == "store":
            assert self._store is not None
            return StoreStorage(self._store, f"{self.name}/manager")
        return FileStorage(Path(self._folder) / "manager")

    def _make(self) -> None:
        """A machine from what is stored; None while the storage cannot be reached."""
        try:
            self.manager = Manager(
                None,
                self.wiring.topology,
                routers=self.wiring.first_routers(),
                storage=self._stable(),
                resend_after=self.resend_after,
            )
            self._send_all(self.manager.start(self.now()))
        except OSError as error:
            self._lost(error)
        else:
            if self._inbox is not None:
                self._inbox.again()

    def _lost(self, error: OSError) -> None:
        """Stable storage is away: what happened there is found out when it is back."""
        if str(error) != self._said:
            self.log(f"manager: {error}; will try again", 3)
        self._said, self.manager = str(error), None

    # messages -----------------------------------------------------------------------------------

    def _hear(self, task: Task, kind: str, data: str) -> None:
        """Take what a task says."""
        if kind == "s":
            self._heard(json.loads(data))
        elif self.manager is None:
            return  # it is asked again
        elif kind == "m":
            self._guarded(read_message(data))
        elif kind == "a":
            epoch, sources = json.loads(data)
            for operator, number in sources:
                self._tell(Task(operator, number), ["r", json.dumps([epoch, *task])])

    def _tell(self, target: Task, values: Sequence[Any]) -> None:
        """A direct emit: to spouts and bolts it is the same."""
        self._emit(Emit(values, STREAM, task=self.wiring.ids[target]))

    def _heard(self, report: dict[str, Any]) -> None:
        task, now = Task(*report["task"]), self.now()
        self.reports[task] = report
        self._recent.append((now, task, report))
        while self._recent[0][0] < now - self.window:
            self._recent.popleft()

    def _guarded(self, message: Message) -> None:
        assert self.manager is not None
        try:
            self._send_all(self.manager.receive(message, self.now()))
        except FencedError:
            raise  # another manager is at work: this one has to stop
        except OSError as error:
            self._lost(error)

    def _send_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._tell(message.target, write_message(message))

    # time ---------------------------------------------------------------------------------------

    def on_idle(self) -> None:
        """Hear, ask again, follow requests, plan."""
        if self.manager is None:
            self._make()
        if self._inbox is not None:
            for task, kind, data in self._inbox.take():
                try:
                    self._hear(task, kind, data)
                except FencedError:
                    raise
                except (LookupError, TypeError, ValueError) as error:  # a store is open to others
                    self.log(f"inbox: {task}: {kind} {data[:80]!r}: {error!r}", 3)
        if self.manager is None:
            return
        try:
            self._send_all(self.manager.tick(self.now()))
            if self.manager.phase is Phase.IDLE:
                self._begin(self.manager)
        except FencedError:
            raise
        except OSError as error:
            self._lost(error)
        self._publish()

    def _begin(self, manager: Manager) -> None:
        plan: Mapping[str, Any] | Any = None
        came, request = len(self._requests), None
        if came:
            request = self._requests[came - 1]
            plan = self._requested_plan(manager, request)
        elif self.plan_every and self.now() - self._planned_at >= self.plan_every:
            self._planned_at = self.now()
            plan = self._plan(manager)
        if plan:
            self._began = self.now()
            try:
                self._send_all(manager.propose(plan, self.now()))
                self._count(plan)
            except ValueError as error:
                self._began, self.decision = 0.0, f"refused: {error}"
                self.error(self.decision)
        if request is not None:  # only now: where the storage failed, it is followed later
            self._requested = max(self._requested, request.version)
            del self._requests[:came]

    def _requested_plan(self, manager: Manager, request: Document) -> Any:
        if request.version <= self._done_request():
            return None
        try:
            tables = request.value.get("tables", {})
            plan: dict[str, Any] = {
                name: _with_table(manager.routers[name], rows) for name, rows in tables.items()
            }
            for name in request.value.get("rebalance", ()):
                router = manager.routers[name]
                plan[name] = rebalance(self._snapshot(name, router), router, **self.options)
            for name, tasks in request.value.get("tasks", {}).items():
                router = manager.routers[name]
                plan[name] = elastic(router, self._snapshot(name, router), tasks, **self.options)
            for name, tasks in request.value.get("rings", {}).items():
                plan[name] = _with_tasks(manager.routers[name], tasks)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self.decision = f"request {request.version}: {error!r}"
            self.error(self.decision)
            return None
        return plan

    def _done_request(self) -> int:
        """The last request that was followed, also by a manager before this one."""
        if not self._requested and self._store is not None:
            found = self._store.get(f"{self.name}/status")
            if found is not None:
                self._requested = int(found.value.get("request", 0))
        return self._requested

    def _plan(self, manager: Manager) -> Any:
        """What the planner proposes and the gate lets through; None: nothing."""
        ready = [
            name
            for name in sorted(self.wiring.topology.keyed)
            if all(Task(name, number) in self.reports for number in manager.routers[name].tasks)
        ]
        if self.planner == "colocate":
            try:
                return self._colocate(manager, ready)
            except ValueError as error:  # all tasks in one worker
                self.decision = f"colocate: no plan: {error}"
                return None
        plans: dict[str, Any] = {}
        for name in ready:
            router = manager.routers[name]
            try:
                plan = rebalance(self._snapshot(name, router), router, **self.options)
            except ValueError as error:  # no task of it reported lately
                self.decision = f"{name}: no plan: {error}"
                continue
            # Of its own: a plan of one operator neither delays another's nor is undone by it.
            gate = self._gates.setdefault(name, Gate.from_json(self.gate.to_json()))
            # The time of the plan, not of its end: the gate's cool-down is as long as the interval.
            decision = gate.decide(plan, self._planned_at)
            self.decision = f"{name}: {decision.reason}"
            if decision.apply:
                plans[name] = plan
        return plans

    def _colocate(self, manager: Manager, ready: Sequence[str]) -> Any:
        """Keys that follow one another to one worker, where the gate lets it."""
        topology = self.wiring.topology
        pairs: dict[tuple[str, str], PairSpaceSaving] = {}
        edges = {(a, b) for a, b in topology.edges if a in ready and b in ready}
        for _, task, report in self._recent:
            for after, text in report.get("pairs", {}).items():
                edge = task.operator, after
                if edge in edges and task.number in manager.routers[task.operator].tasks:
                    sketch = PairSpaceSaving.from_bytes(base64.b64decode(text))
                    pairs.setdefault(edge, PairSpaceSaving(sketch.capacity)).merge(sketch)
        if not pairs:
            self.decision = "colocate: no pairs yet"
            return None
        names = sorted({name for edge in pairs for name in edge})
        # Tasks that wait are not among them: a request takes them in.
        placement = {
            name: {
                number: self.reports[Task(name, number)]["worker"]
                for number in manager.routers[name].tasks
            }
            for name in names
        }
        routers = {name: manager.routers[name] for name in names}
        plan = colocate(pairs, placement, routers=routers, **self.options)
        decision = self.gate.decide(plan, self._planned_at)
        self.decision = f"{', '.join(names)}: {decision.reason}"
        return plan.routers if decision.apply else None

    def _snapshot(self, name: str, router: Router) -> Any:
        """What the tasks of an operator reported in the window."""
        heard = [report for _, task, report in self._recent if task.operator == name]
        came = [report for _, _, report in self._recent if report.get("arrivals") == name]
        before = {a for a, b in self.wiring.topology.edges if b == name}
        if before != {report["task"][0] for report in came}:
            came = []  # some that send to it do not count what they send
        return snapshot_of(heard, tasks=router.tasks, arrivals=came)

    def _count(self, plan: Any) -> None:
        """What the plans that were begun have moved, for the status."""
        for name, one in getattr(plan, "routers", plan).items():
            if isinstance(one, Plan):
                made = self._made.setdefault(name, {"plans": 0, "keys": 0, "bytes": 0})
                made["plans"] += 1
                made["keys"] += len(one.migrations)
                made["bytes"] += one.migration_cost
                made["share"] = round(one.migration_share, 6)
                made["seconds"] = round(one.seconds, 6)

    # publishing ---------------------------------------------------------------------------------

    def _publish(self) -> None:
        manager = self.manager
        if manager is None:
            return
        if manager.phase is Phase.IDLE and self._began:
            self._seconds, self._began = self.now() - self._began, 0.0
        if self.now() >= self._look_at:
            self._shown, self._look_at = self._measured(manager), self.now() + _SHOWN_EVERY
        status = {
            "epoch": manager.epoch,
            "phase": manager.phase.value,
            "request": self._requested,
            "versions": {name: router.version for name, router in manager.routers.items()},
            "seconds": round(self._seconds, 3),
            "decision": self.decision,
            "plans": {name: dict(made) for name, made in self._made.items()},
            "refusals": {str(task): why for task, why in manager.refusals.items()},
            **self._shown,
        }
        if status == self._status or self._store is None:
            return
        try:
            for name, router in manager.routers.items():
                if self._published.get(name) != router.version:
                    for before in sorted(a for a, b in self.wiring.topology.edges if b == name):
                        self._store.put(f"{self.name}/{before}->{name}", router.to_bytes(), None)
                    self._published[name] = router.version
            self._store.put(f"{self.name}/status", status, None)
            self._status = status
        except OSError as error:
            if str(error) != self._said:
                self.log(f"config store: {error}", 3)
            self._said = str(error)
            # Loads alone are no reason to wait for the store again and again.
            self._shown = {name: self._status[name] for name in self._shown if name in self._status}
            self._look_at = self.now() + _SHOWN_AGAIN

    def _measured(self, manager: Manager) -> dict[str, Any]:
        """Load per task and the heaviest keys of each operator, as tasks said last."""
        loads: dict[str, dict[str, float]] = {}
        keys: dict[str, list[list[Any]]] = {}
        for name in sorted(self.wiring.topology.keyed):
            found: dict[int, float] = {}
            rows: list[list[Any]] = []
            for number in manager.routers[name].tasks:
                report = self.reports.get(Task(name, number))
                if report is None:
                    continue
                ids, costs = _column(report, "ids", "<u8"), _column(report, "costs", "<f8")
                sizes = _column(report, "sizes", "<i8")
                found[number] = float(costs.sum()) + float(report["background"])
                for i in range(min(_SHOWN_KEYS, len(ids))):  # the heaviest come first
                    value = report["names"][i]
                    text = f"identity {ids[i]}" if value is None else _shortened(value)
                    rows.append([text, float(costs[i]), int(sizes[i]), number])
            most = sorted(found, key=lambda number: (-found[number], number))[:_SHOWN_TASKS]
            if most:
                loads[name] = {str(number): round(found[number], 6) for number in sorted(most)}
                keys[name] = sorted(rows, key=lambda row: -row[1])[:_SHOWN_KEYS]
        return {"loads": loads, "keys": keys} if loads else {}

    def finish(self) -> None:
        """Let go of the store."""
        store = getattr(self, "_store", None)
        if store is not None:
            store.close()


class ManagerBolt(_Managing, Bolt):
    """The manager of a topology; options that are None come from its configuration.

    Parameters
    ----------
    operators
        As `Participant` has them.
    state
        The topology's state directory: decisions are kept in its folder ``manager``.
    store
        URL of a config store, for publishing, requests and what tasks say whose stream is not read.
    storage
        Where decisions are kept: ``state``, or ``store`` for the config store.
    plan_every
        Seconds between two plans; 0: only requests.
    window
        Seconds of reports that a plan is made of; None: as many as lie between two plans, or 10.
        At least two of the intervals in which tasks report, so that each has a report in it.
    gate
        Whether a plan is worth it; `now` is in seconds. Each operator gets one like it, colocated
        ones share it. By default its dead band is not above the imbalance that the options allow.
    options
        Of `rebalance` (or of `colocate`, with `planner="colocate"`).
    """

    control_streams = frozenset({STREAM})
    idle_seconds = 0.1

    def control(self, record: Tuple) -> None:
        """Take what a task says."""
        kind, data = record.values
        self._hear(self.wiring.task(record.task), kind, data)


class ManagerSpout(_Managing, Spout):
    """`ManagerBolt` as a spout: it reads no stream, and every task tells it through the store.

    So the topology has no cycle through its manager, and needs a config store. While Storm has the
    topology deactivated it is not called: nothing is decided, and a move stands still.
    """

    wait_seconds: float = 0.1
    """The longest that it waits for something to hear before it answers Storm."""

    def next(self) -> None:
        """Do what is due: a spout may emit only now."""
        assert self._inbox is not None  # a spout reads nothing
        self._inbox.came.wait(self.wait_seconds)
        self.on_idle()


def _column(report: Mapping[str, Any], name: str, kind: str) -> Any:
    return np.frombuffer(base64.b64decode(report[name]), kind)


def _shortened(value: Any) -> Any:
    """A key as the status has it: small, whatever it is."""
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}…"


def _with_tasks(router: Router, tasks: Any) -> Router:
    """A router whose ring has these tasks, and the keys of its table where they were."""
    if not isinstance(router.home, Ring):
        raise TypeError(f"home: expected a ring, got {type(router.home).__name__}")
    table = (Keys.from_ids(router.table.ids), router.table.targets.tolist())
    return Router(router.home.with_tasks(tasks), table, version=router.version + 1)


def _with_table(router: Router, rows: Sequence[Sequence[Any]]) -> Router:
    """A router whose table has these keys too."""
    table = dict(zip(router.table.ids.tolist(), router.table.targets.tolist(), strict=True))
    numbers = numbers_of([key for key, _ in rows])
    table.update(zip(numbers, (int(task) for _, task in rows), strict=True))
    home = router.home
    ids = Keys.from_ids(np.array(list(table), np.uint64))
    return Router(home, (ids, list(table.values())), version=router.version + 1)
