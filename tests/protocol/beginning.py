"""How a schedule begins."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import pyroute as pr
from pyroute.protocol import Inbox, Instance, Manager, MemoryStorage, Message, Outbox, Task

from .nodes import RECORD, Channel, Node, States
from .settings import Settings

WHEN = ("any", "busy", "busy", "holding", "holding")
"""When a task may crash: at any time, in a reconfiguration, or while records wait."""
RESEND = 80.0


class Setup:
    """The beginning of a schedule: tasks, channels, records and a manager, from a seed."""

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
        self.between: list[Channel] = []
        self.sources: list[Channel] = []
        self.outside: list[Channel] = []
        """Channels that have something: between tasks, of sources, of producers outside."""
        self.bag: list[Message] = []
        """Of and to the manager."""
        self.attic: list[Message] = []
        """Second copies, which come much later."""
        self.net: list[tuple[Channel, int, Any]] = []
        """Raw frames; of position -1 acknowledgements."""
        self.epochs_left = settings.epochs
        self._make_keys()

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

    def _table(
        self, keys: list[int], numbers: list[int], before: list[int] | None = None
    ) -> tuple[pr.Keys, list[int]]:
        """Tasks for some of the keys, mostly others than before."""
        rng, table = self.rng, {}
        for i, key in enumerate(keys):
            chance = rng.random()
            if chance < 0.8:
                at = int(rng.random() * len(numbers))
                if before is not None and chance < 0.5 and numbers[at] == before[i]:
                    at = (at + 1) % len(numbers)
                table[key] = numbers[at]
        return pr.Keys.from_ids(np.array(sorted(table), np.uint64)), [
            table[key] for key in sorted(table)
        ]

    def _plan(self) -> dict[str, pr.Router]:
        """Other tables, and now and then another ring, for some of the operators."""
        rng, plan = self.rng, {}
        for name, router in self.manager.routers.items():
            if rng.random() < 0.1:
                continue
            numbers = [task.number for task in self.topology.tasks(name)]
            home = router.home
            if self.settings.ring and rng.random() < 0.5:
                home = home.with_tasks({number: rng.choice((0.5, 1, 2)) for number in numbers})
            keys = self.keys[name]
            before = router.route(pr.Keys.from_ids(np.array(keys, np.uint64))).tolist()
            table = self._table(keys, numbers, before)
            plan[name] = pr.Router(home, table, version=router.version + 1)
        return plan

    def _make_nodes(self) -> None:
        rng, settings, topology = self.rng, self.settings, self.topology
        self.nodes: list[Node] = []
        self.by_task: dict[Task, Node] = {}
        self.first_outside = len(topology.all_tasks) + len(topology.sources)
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
                self._channel(~node.index, peer)
        for _ in range(settings.crashes):
            crash = (rng.randrange(1, 30), rng.choice(WHEN), rng.randrange(4))
            rng.choice(self.nodes).crashes.append(crash)

    def _channel(self, source: int, node: Node) -> Channel:
        ready = self.between
        if source >= len(self.nodes):
            ready = self.sources if source < self.first_outside else self.outside
        channel = Channel(source, node, self.random() < self.settings.slow, ready)
        if self.settings.raw:
            channel.outbox, channel.inbox = Outbox(), Inbox()
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

    def _wake(self, channel: Channel) -> None:
        if channel.slot < 0 and channel.items:
            channel.slot = len(channel.ready)
            channel.ready.append(channel)
