"""A deterministic simulator: real machines, and everything else under the control of a seed.

The tasks of a topology exchange records and messages over channels that keep their order (or, raw,
over a network that does not, with `Outbox` and `Inbox` in between); messages of and to the manager
come in any order, twice, or not at all. Tasks crash and come back as they last committed, managers
crash at any point of what they were sending and come back with nothing but their storage; some
managers are thought dead and are not.

What is checked, at every record and at the end:

- a record is applied when no other task has state of its key, after all that its sender sent
  before it with that key, and once;
- the state of every key is that of a run with one task, and is where the last router says;
- nothing is left: no message, no held record, no state on its way; all tasks are in one epoch.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import fields
from typing import Any
from unittest import mock

import numpy as np

import pyroute as pr
from pyroute.protocol import (
    MANAGER,
    Apply,
    FencedError,
    Forward,
    Full,
    Hold,
    Inbox,
    Instance,
    Manager,
    MemoryStorage,
    Message,
    Outbox,
    Send,
    Task,
)
from pyroute.protocol import instance as instance_module
from pyroute.protocol.manager import Phase
from pyroute.protocol.routes import Routes

from .settings import Settings

RECORD = struct.Struct("<HIQQ")
"""Producer, its count of records for this operator and key, record, key of the operator before."""
STATE = struct.Struct("<IQ")
SEEN = struct.Struct("<HI")
WHEN = ("any", "busy", "busy", "holding", "holding")
RESEND = 30.0
STEPS = 20_000


class CachedRoutes(Routes):
    """Made once per router, for all machines: they do not change it."""

    made: dict[bytes, Routes] = {}

    def __new__(cls, router: pr.Router) -> Any:
        return cls.from_bytes(router.to_bytes(values=False))

    def __init__(self, router: pr.Router) -> None:
        pass

    @classmethod
    def from_bytes(cls, data: bytes) -> Any:
        found = cls.made.get(data)
        if found is None:
            if len(cls.made) > 1000:
                cls.made.clear()
            found = cls.made[data] = Routes(pr.Router.from_bytes(data))
        return found


class Violation(AssertionError):
    """A guarantee does not hold."""


class States:
    """The store of a task: for each key how many records, their sum, and the next per producer."""

    __slots__ = ("of",)

    def __init__(self, of: dict[int, tuple[int, int, dict[int, int]]] | None = None) -> None:
        self.of = {} if of is None else of

    def copy(self) -> States:
        return States({key: (n, total, dict(seen)) for key, (n, total, seen) in self.of.items()})

    def keys(self, first: int, last: int) -> Iterable[int]:
        return [key for key in self.of if first <= key <= last]

    def take(self, key: int) -> bytes | None:
        state = self.of.pop(key, None)
        if state is None:
            return None
        n, total, seen = state
        return STATE.pack(n, total) + b"".join(SEEN.pack(*pair) for pair in seen.items())

    def put(self, key: int, state: bytes) -> None:
        seen = dict(SEEN.iter_unpack(state[STATE.size :]))
        self.of[key] = (*STATE.unpack_from(state), seen)


class Channel:
    """What one task sent to another and that one has not taken, in order."""

    __slots__ = ("inbox", "items", "node", "outbox", "outside", "slot", "slow", "source")

    def __init__(self, source: int, node: Node, slow: bool, outside: bool) -> None:
        self.source = source
        self.outside = outside
        self.node = node
        self.items: deque[Any] = deque()
        self.slot = -1  # where in the list of those that have something, -1: not there
        self.slow = slow
        self.outbox = Outbox()
        self.inbox = Inbox()


class Window:
    """What a task was when it committed last, while it is about to crash."""

    __slots__ = ("boxes", "counts", "late", "machine", "sent", "states", "stuck", "taken")

    def __init__(self, node: Node) -> None:
        self.machine = node.machine.snapshot()
        self.states = node.states.copy()
        self.counts = dict(node.counts)
        self.stuck = list(node.stuck)
        self.taken: list[tuple[Channel, Any]] = []
        self.sent: list[Any] = []
        self.boxes: list[tuple[Channel, int]] = []


class Node:
    """A task: its machine, its state, and what an engine would do around them."""

    __slots__ = (
        "blocked",
        "counts",
        "crashes",
        "index",
        "machine",
        "next",
        "out",
        "peers",
        "states",
        "steps",
        "stuck",
        "task",
        "window",
    )

    def __init__(self, index: int, task: Task, machine: Instance, states: States) -> None:
        self.index = index
        self.task = task
        self.machine = machine
        self.states = states
        self.counts: dict[tuple[str, int], int] = {}
        """Records that it sent, by operator and key."""
        self.stuck: list[tuple[str, int, bytes]] = []
        """What it has to send before it takes another record."""
        self.blocked: list[Channel] = []
        self.steps = 0
        self.crashes: list[tuple[int, str, int]] = []
        """After so many steps, as soon as it is so, and so many steps after the last commit."""
        self.window: Window | None = None
        self.out: list[Channel] = []
        self.peers: list[Node] = []
        self.next: list[tuple[str, int, bool, tuple[Task, ...]]] = []


class World:
    """One schedule, from a seed and its settings."""

    def __init__(
        self,
        seed: int,
        settings: Settings,
        *,
        instance: type[Instance] = Instance,
        manager: type[Manager] = Manager,
        trace: bool = False,
    ) -> None:
        self.seed = seed
        self.settings = settings
        self.rng = random.Random(seed)
        self.random = self.rng.random
        self.instance_class, self.manager_class = instance, manager
        self.trace: list[str] | None = [] if trace else None
        self.topology = settings.topology
        self.now = 0.0
        self.ready: list[Channel] = []
        self.bag: list[Message] = []
        """Of and to the manager."""
        self.attic: list[Message] = []
        """Second copies, which come much later."""
        self.net: list[tuple[Channel, int, Any]] = []
        """Raw frames; of position -1 acknowledgements."""
        self.epochs_left = settings.epochs
        self.rings = 0
        self._make_keys()

    # making it -------------------------------------------------------------------------------

    def _make_keys(self) -> None:
        rng, settings = self.rng, self.settings
        self.keys: dict[str, list[int]] = {}
        self.routers: dict[str, pr.Router] = {}
        for name in sorted(self.topology.keyed):
            keys = [rng.getrandbits(64) for _ in range(settings.keys)]
            numbers = [task.number for task in self.topology.tasks(name)]
            ring = pr.Ring(numbers, bits=6, replicas=4, salt=rng.getrandbits(16))
            self.keys[name] = keys
            self.routers[name] = pr.Router(ring, self._table(keys, numbers))
        self.steps_of = {name: rng.randrange(1, 99) for name in self.topology.operators}

    def _table(self, keys: list[int], numbers: list[int]) -> tuple[pr.Keys, list[int]]:
        rng = self.rng
        tabled = sorted(key for key in keys if rng.random() < 0.7)
        ids = pr.Keys.from_ids(np.array(tabled, np.uint64))
        return ids, [numbers[int(rng.random() * len(numbers))] for _ in tabled]

    def _plan(self) -> dict[str, pr.Router]:
        """Other tables, and now and then another ring, for some of the operators."""
        rng, plan = self.rng, {}
        for name, router in self.manager.routers.items():
            if rng.random() < 0.2:
                continue
            numbers = [task.number for task in self.topology.tasks(name)]
            home = router.home
            if self.settings.ring and rng.random() < 0.5:
                home = home.with_tasks({number: rng.choice((0.5, 1, 2)) for number in numbers})
            table = self._table(self.keys[name], numbers)
            plan[name] = pr.Router(home, table, version=router.version + 1)
        return plan

    def _make_nodes(self) -> None:
        rng, settings, topology = self.rng, self.settings, self.topology
        self.nodes: list[Node] = []
        self.by_task: dict[Task, Node] = {}
        self.channels: dict[tuple[int, int], Channel] = {}
        for index, task in enumerate(topology.all_tasks):
            states = States()
            machine = self.instance_class(
                task,
                topology=topology,
                routers=self.routers,
                store=states,
                capacity=settings.capacity,
                chunk=20,
            )
            node = Node(index, task, machine, states)
            self.nodes.append(node)
            self.by_task[task] = node
        for node in self.nodes:
            node.peers = [self.by_task[t] for t in topology.tasks(node.task.operator)]
            node.peers.remove(node)
            node.next = [
                (name, i + 1, name in topology.keyed, topology.tasks(name))
                for i, name in enumerate(topology.successors(node.task.operator))
            ]
            for task in topology.successor_tasks(node.task.operator):
                channel = self._channel(node.index, self.by_task[task])
                node.out.append(channel)
            for peer in node.peers:
                self._channel(node.index, peer).slow |= rng.random() < 0.3
        for _ in range(settings.crashes):
            crash = (rng.randrange(1, 30), rng.choice(WHEN), rng.randrange(4))
            rng.choice(self.nodes).crashes.append(crash)

    def _channel(self, source: int, node: Node) -> Channel:
        channel = Channel(
            source, node, self.random() < self.settings.slow, source >= len(self.nodes)
        )
        self.channels[source, node.index] = channel
        return channel

    def _make_manager(self) -> None:
        self.storage = MemoryStorage()
        self.zombies: list[Manager] = []
        self.manager_steps = 0
        self.manager_crashes = sorted(
            (self.rng.randrange(1, 60) for _ in range(self.settings.manager_crashes)), reverse=True
        )
        self.manager = self._new_manager()

    def _new_manager(self) -> Manager:
        rng = self.rng
        return self.manager_class(
            None,
            self.topology,
            routers=self.routers,
            storage=self.storage,
            pause=self.settings.pause and rng.random() < 0.7,
            redo=rng.random() < 0.7,
            resend_after=RESEND,
            abort_after=400.0 if rng.random() < 0.3 else None,
        )

    def _make_records(self) -> None:
        """Sources read a channel of their own; so do the tasks that a stale producer sends to."""
        self.expected: dict[int, tuple[str, int, int]] = {}
        """Operator, key and key of the operator before, of every record at keyed operators."""
        n = len(self.nodes)
        self.first_outside = n + len(self.topology.sources)
        record = 0
        for task in self.topology.sources:
            node = self.by_task[task]
            channel = self._channel(n, node)
            for _ in range(self.settings.records):
                record += 1 << 12  # room for the records that come of it
                self._expect(node.next, record, 0)
                channel.items.append((0, RECORD.pack(n, 0, record, 0)))
            self._wake(channel)
            n += 1
        for _ in range(self.settings.outside):
            name = self.rng.choice(sorted(self.topology.keyed))
            counts: dict[int, int] = {}
            for _ in range(self.settings.records):
                record += 1 << 12  # room for the records that come of it
                key = self._key(name, record)
                owner = self.by_task[Task(name, int(self._owner(name, key)))]
                number = n + owner.index
                channel = self.channels.get((number, owner.index)) or self._channel(number, owner)
                self.expected[record] = (name, key, 0)
                self._expect(owner.next, record, key)
                payload = RECORD.pack(n, counts.get(key, 0), record, 0)
                counts[key] = counts.get(key, 0) + 1
                channel.items.append((key, payload))
                self._wake(channel)
            n += len(self.nodes)

    def _owner(self, name: str, key: int) -> int:
        return self.routers[name].route(pr.Keys.from_ids(np.array([key], np.uint64)))[0]

    def _key(self, name: str, record: int) -> int:
        keys = self.keys[name]
        return keys[record * self.steps_of[name] % 1009 % len(keys)]

    def _expect(self, following: Any, record: int, in_key: int) -> None:
        for name, edge, keyed, tasks in following:
            child = record * 4 + edge
            key = in_key
            if keyed:
                key = self._key(name, child)
                self.expected[child] = (name, key, in_key)
            self._expect(self.by_task[tasks[0]].next, child, key)

    # sending ---------------------------------------------------------------------------------

    def _wake(self, channel: Channel) -> None:
        if channel.slot < 0 and channel.items:
            channel.slot = len(self.ready)
            self.ready.append(channel)

    def _rest(self, channel: Channel) -> None:
        if channel.slot >= 0:
            last = self.ready.pop()
            if last is not channel:
                self.ready[channel.slot] = last
                last.slot = channel.slot
            channel.slot = -1

    def _post(self, node: Node, target: Node, item: Any) -> None:
        """Send on the channel between two tasks, after the commit."""
        channel = self.channels[node.index, target.index]
        if node.window is not None:
            node.window.sent.append((channel, item))
        else:
            self._transmit(channel, item)

    def _transmit(self, channel: Channel, item: Any) -> None:
        if self.settings.raw:
            position, _ = channel.outbox.add(item)
            self._frame(channel, position, item)
            return
        channel.items.append(item)
        if channel.slot < 0:
            self._wake(channel)

    def _frame(self, channel: Channel, position: int, item: Any) -> None:
        if self.random() >= 0.1:
            self.net.append((channel, position, item))
        if self.random() < 0.1:
            self.net.append((channel, position, item))

    def _to_or_from_manager(self, message: Message) -> None:
        settings = self.settings
        if settings.losses and self.random() < settings.losses:
            self._say("lost", message)
            return
        self.bag.append(message)
        if settings.doubles and self.random() < settings.doubles:
            self._double(message)

    def _double(self, message: Message) -> None:
        (self.bag if self.random() < 0.3 else self.attic).append(message)

    def _say(self, what: str, item: Any) -> None:
        if self.trace is None:
            return
        if isinstance(item, Message):
            kept = ("epoch", "source", "target", "routers")
            rest = [f"{f.name}={getattr(item, f.name)}" for f in fields(item) if f.name not in kept]
            item = f"{type(item).__name__} {item.epoch} of {item.source} {', '.join(rest)}"
        self.trace.append(f"{self.now:6.0f} {what:<18} {item}")

    # tasks -----------------------------------------------------------------------------------

    def _do(self, node: Node, outputs: Iterable[Any]) -> None:
        """What an engine does with the answers of a machine, in their order."""
        for output in outputs:
            kind = type(output)
            if kind is Apply:
                self._apply(node, output.key, output.payload)
            elif kind is Forward:
                self._post(node, self.by_task[output.target], (output.key, output.payload))
            elif kind is Send:
                self._post(node, self.by_task[output.target], (output.key, output.payload))
            elif output.target == MANAGER:
                if node.window is not None:
                    node.window.sent.append((None, output))
                else:
                    self._to_or_from_manager(output)
            else:
                self._post(node, self.by_task[output.target], output)

    def _apply(self, node: Node, key: int, payload: bytes) -> None:
        producer, count, record, in_key = RECORD.unpack(payload)
        if node.machine._keyed:
            if self.trace is not None:
                self._say(f"{node.task} applies", f"record {record} of {key:016x}")
            self._check_applied(node, key, producer, count, record, in_key)
            in_key = key
        for name, edge, keyed, tasks in node.next:
            child = record * 4 + edge
            if keyed:
                key = self._key(name, child)
                number = node.counts.get((name, key), 0)
                node.counts[name, key] = number + 1
                payload = RECORD.pack(node.index, number, child, in_key)
                if node.stuck:
                    node.stuck.append((name, key, payload))
                else:
                    self._route(node, name, key, payload)
            else:
                target = self.by_task[tasks[child % len(tasks)]]
                self._post(node, target, (0, RECORD.pack(node.index, 0, child, in_key)))

    def _route(self, node: Node, name: str, key: int, payload: bytes) -> bool:
        answer = node.machine.route(name, key, payload)
        kind = type(answer)
        if kind is Send:
            self._post(node, self.by_task[answer.target], (key, payload))
        elif kind is Full:
            node.stuck.append((name, key, payload))
            return False
        return True

    def _check_applied(
        self, node: Node, key: int, producer: int, count: int, record: int, in_key: int
    ) -> None:
        name = node.task.operator
        expected = self.expected.get(record)
        if expected != (name, key, in_key):
            raise Violation(f"{node.task} applied {record} of {key:016x}, expected {expected}")
        for peer in node.peers:
            if key in peer.states.of:
                raise Violation(f"{node.task} and {peer.task} both have state of {key:016x}")
        state = node.states.of.get(key)
        n, total, seen = (0, 0, {}) if state is None else state
        due = seen.get(producer, 0)
        # Producers outside keep no order across two reconfigurations: docs/protocol.md.
        if due != count and (producer < self.first_outside or self.settings.epochs == 1):
            what = "lost or late" if count > due else "twice"
            raise Violation(
                f"{node.task} applied {record} of {key:016x}: {count} of producer {producer}"
                f" where {due} is due: {what}"
            )
        seen[producer] = due + 1
        node.states.of[key] = (n + 1, total + record, seen)

    def _take_message(self, node: Node, message: Message) -> None:
        if self.trace is not None:
            self._say(f"{node.task} receives", message)
        self._do(node, node.machine.receive(message, self.now))
        if node.stuck:
            stuck, node.stuck = node.stuck, []
            for i, item in enumerate(stuck):
                if not self._route(node, *item):
                    node.stuck += stuck[i + 1 :]
                    break
        for channel in node.blocked:
            self._wake(channel)
        node.blocked.clear()
        self._step(node)

    def _take_record(self, node: Node, key: int, payload: bytes) -> bool:
        """Whether it was taken; else the channel waits."""
        answer = node.machine.record(key, payload)
        kind = type(answer)
        if kind is Full:
            return False
        if kind is Apply:
            self._apply(node, key, payload)
        elif kind is Forward:
            self._say(f"{node.task} forwards", answer)
            self._post(node, self.by_task[answer.target], (key, payload))
        else:
            assert kind is Hold
            self._say(f"{node.task} holds", answer)
        self._step(node)
        return True

    def _may_take(self, node: Node) -> bool:
        """Whether an engine would read a record now: it has room for what comes of it."""
        if node.stuck:
            return False
        bound = self.settings.bound
        if bound:
            for channel in node.out:
                if len(channel.items) >= bound:
                    return False
        return True

    # faults ----------------------------------------------------------------------------------

    def _step(self, node: Node) -> None:
        node.steps += 1
        if node.crashes:
            self._may_crash(node)

    def _may_crash(self, node: Node) -> None:
        steps, when, lost = node.crashes[-1]
        if node.window is None:
            machine = node.machine
            if (
                (when == "any" and node.steps < steps)
                or (when == "busy" and not machine.busy)
                or (when == "holding" and not machine.buffered)
            ):
                return
            node.window = Window(node)
            node.window.boxes = [
                (channel, channel.inbox.position)
                for channel in self.channels.values()
                if channel.node is node
            ]
            node.steps = 0
        if node.steps >= lost:
            self._crash(node)

    def _crash(self, node: Node) -> None:
        """Back to the last commit: what was taken since is there again, what was sent is not."""
        window = node.window
        assert window is not None
        self._say(f"{node.task} crashes", f"{len(window.taken)} steps lost")
        node.crashes.pop()
        node.window = None
        node.states = window.states
        node.counts = window.counts
        node.stuck = window.stuck
        node.machine = self.instance_class.restore(
            window.machine,
            topology=self.topology,
            store=node.states,
            capacity=self.settings.capacity,
            chunk=20,
        )
        for channel, item in reversed(window.taken):
            channel.items.appendleft(item)
            self._wake(channel)
        for channel, position in window.boxes:
            channel.inbox = Inbox(position)
        for channel in node.blocked:
            self._wake(channel)
        node.blocked.clear()

    def _commit(self, node: Node) -> None:
        window = node.window
        assert window is not None
        node.window = None
        for channel, item in window.sent:
            if channel is None:
                self._to_or_from_manager(item)
            else:
                self._transmit(channel, item)

    # the manager -----------------------------------------------------------------------------

    def _manage(self, call: Any, *arguments: Any) -> None:
        """A step of the manager, which may crash anywhere in what it sends."""
        self.manager_steps += 1
        crash = self.manager_crashes and self.manager_steps >= self.manager_crashes[-1]
        try:
            outputs = call(*arguments, self.now)
        except FencedError:
            outputs, crash = [], True
        if not crash:
            for message in outputs:
                self._to_or_from_manager(message)
            return
        if self.manager_crashes:
            self.manager_crashes.pop()
        for message in outputs[: int(self.random() * (len(outputs) + 1))]:
            self._to_or_from_manager(message)
        self._say("manager crashes", self.manager)
        if self.settings.zombies:
            self.zombies.append(self.manager)
        self.manager = self._new_manager()
        self._manage(self.manager.start)

    def _own(self) -> None:
        """What the owner of a manager does."""
        manager, chance = self.manager, self.random()
        if self.attic and manager.phase is not Phase.IDLE and chance < 0.5:
            self.bag.append(self.attic.pop(int(self.random() * len(self.attic))))
        if manager.phase is Phase.IDLE and self.epochs_left and chance < 0.4:
            if self.settings.collect:
                self._manage(manager.collect)
            else:
                self._propose()
        elif manager.phase is Phase.PLANNING:
            if self.settings.aborts and chance < 0.2:
                self._manage(manager.abort)
            else:
                self._propose()
        elif manager.phase in (Phase.COLLECTING, Phase.PREPARING):
            if self.settings.aborts and chance < self.settings.aborts * 8:
                self._manage(manager.abort)
        if chance > 0.6:
            self._tick()

    def _answer(self, message: Message) -> None:
        """To the manager, or to one that was thought dead."""
        if self.zombies and self.random() < 0.4:
            self._awake(self.zombies[-1], "receive", message)
            return
        if self.trace is not None:
            self._say("manager receives", message)
        self._manage(self.manager.receive, message)

    def _awake(self, zombie: Manager, call: str, *arguments: Any) -> None:
        self._say(f"zombie {call}", zombie)
        try:
            outputs = getattr(zombie, call)(*arguments, self.now)
        except FencedError:
            self.zombies.remove(zombie)
            return
        for message in outputs:
            self._to_or_from_manager(message)

    def _propose(self) -> None:
        self.epochs_left -= 1
        plan = self._plan()
        self._say("proposes", plan)
        self._manage(self.manager.propose, plan)

    def _tick(self) -> None:
        self._manage(self.manager.tick)
        for zombie in list(self.zombies):
            self._awake(zombie, "tick")
        if self.settings.raw:
            self._resend()

    def _resend(self) -> None:
        for channel in self.channels.values():
            for position, item in channel.outbox.frames[:3]:
                self._frame(channel, position, item)

    # running ---------------------------------------------------------------------------------

    def run(self) -> World:
        """All of it; `Violation` where a guarantee does not hold."""
        with mock.patch.object(instance_module, "Routes", CachedRoutes):
            self._make_nodes()
            self._make_manager()
            self._make_records()
            self._run()
        self._check_end()
        return self

    def _run(self) -> None:
        idle = 0
        for _ in range(STEPS):
            self.now += 1.0
            if self.random() < 0.1:
                self._own()
            if self._one():
                idle = 0
                continue
            idle += 1
            if idle > 8 and self._still():
                break
        else:
            raise Violation(f"no end after {STEPS} steps: {self._left()}")

    def _one(self) -> bool:
        """One delivery, if there is one to make."""
        ready, bag, net = len(self.ready), len(self.bag), len(self.net)
        n = ready + bag + net
        if not n:
            return False
        at = int(self.random() * n)
        if at < ready:
            return self._deliver(self.ready[at])
        at -= ready
        if at < bag:
            message = self.bag[at]
            self.bag[at] = self.bag[-1]
            self.bag.pop()
            if message.target == MANAGER:
                self._answer(message)
            else:
                self._take_message(self.by_task[message.target], message)
            return True
        at -= bag
        frame = self.net[at]
        self.net[at] = self.net[-1]
        self.net.pop()
        self._deliver_frame(*frame)
        return True

    def _deliver(self, channel: Channel) -> bool:
        if channel.slow and self.random() < 0.8:
            return True
        if channel.outside and self._saves(channel) and self.random() < 0.9:
            return True
        node = channel.node
        item = channel.items[0]
        if type(item) is tuple:
            if not self._may_take(node):
                return False
            window = node.window
            # First, so that a crash in this very step puts it back.
            channel.items.popleft()
            if window is not None:
                window.taken.append((channel, item))
            if not self._take_record(node, *item):
                if window is not None:
                    window.taken.pop()
                channel.items.appendleft(item)
                self._rest(channel)
                node.blocked.append(channel)
                return True
        else:
            if self.settings.lag and self.random() < self.settings.lag:
                return True
            channel.items.popleft()
            if node.window is not None:
                node.window.taken.append((channel, item))
            if self.settings.doubles and self.random() < self.settings.doubles:
                self._double(item)
            self._take_message(node, item)
        if not channel.items:
            self._rest(channel)
        return True

    def _saves(self, channel: Channel) -> bool:
        """Whether records are kept for the time when keys move, or when they have moved."""
        if not (self.epochs_left or self.manager.open):
            return False
        return channel.source >= self.first_outside or self.manager.phase is not Phase.MOVING

    def _deliver_frame(self, channel: Channel, position: int, item: Any) -> None:
        node = channel.node
        if position < 0:
            channel.outbox.acknowledged(item)
            return
        is_record = type(item) is tuple
        if is_record and not self._may_take(node):
            return
        before = channel.inbox.position
        if channel.inbox.take(position, item) is not None:
            if not is_record:
                self._take_message(node, item)
            elif not self._take_record(node, *item):
                channel.inbox = Inbox(before)
        if node.window is None:
            self._frame(channel, -1, channel.inbox.position)

    def _still(self) -> bool:
        """Whether nothing can happen any more; brings about what can."""
        for node in self.nodes:
            if node.window is not None:
                self._crash(node)
                return False
            node.crashes.clear()
        if self.epochs_left or self.manager.phase is not Phase.IDLE:
            self.now += RESEND
            self._own()
            self._tick()
            return False
        if self.settings.raw and any(c.outbox.frames for c in self.channels.values()):
            self._resend()
            return False
        if self.attic:
            self.bag += self.attic
            self.attic.clear()
        return not (self.ready or self.bag or self.net)

    # checking --------------------------------------------------------------------------------

    def _left(self) -> str:
        held = {str(n.task): n.machine.buffered for n in self.nodes if n.machine.buffered}
        return (
            f"{self.manager}, waiting for {[str(t) for t in self.manager.waiting]},"
            f" {[n.machine for n in self.nodes if n.machine.busy]}, held {held},"
            f" in channels {sum(len(c.items) for c in self.channels.values())}"
        )

    def _check_end(self) -> None:
        states: dict[tuple[str, int], tuple[int, int]] = {}
        for node in self.nodes:
            machine = node.machine
            if machine.busy or machine.buffered or node.stuck:
                raise Violation(f"{node.task} is left with something: {self._left()}")
            if machine.epoch != self.manager.epoch and self.manager.epoch:
                raise Violation(
                    f"{node.task} is in epoch {machine.epoch}, not {self.manager.epoch}"
                )
            for name, (version, fingerprint) in machine.versions().items():
                router = self.manager.routers[name]
                if (version, fingerprint) != (router.version, router.fingerprint):
                    raise Violation(f"{node.task} has another router of {name}: version {version}")
            for key, (n, total, _) in node.states.of.items():
                name = node.task.operator
                owner = machine.owner(name, key)
                if owner != node.task.number:
                    raise Violation(f"{node.task} has state of {key:016x}, which is {owner}'s")
                states[name, key] = (n, total)
        if any(c.items for c in self.channels.values()):
            raise Violation(f"records are left: {self._left()}")
        alone: dict[tuple[str, int], tuple[int, int]] = {}
        for record, (name, key, _) in self.expected.items():
            n, total = alone.get((name, key), (0, 0))
            alone[name, key] = (n + 1, total + record)
        if states != alone:
            raise Violation(f"state differs from that of one task: {states} and {alone}")
