"""Machines without faults: messages are delivered in the order that they were sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

import pyroute as pr
from pyroute.protocol import (
    MANAGER,
    Apply,
    Forward,
    Instance,
    Manager,
    MemoryStorage,
    Message,
    Task,
    Topology,
)

CHAIN = Topology.of({"s": 2, "a": 2, "b": 3})


def router(n: int, table: dict[int, int] | None = None, version: int = 0, **ring: Any) -> pr.Router:
    """A router whose table is by key."""
    table = dict(sorted((table or {}).items()))
    ids = pr.Keys.from_ids(np.array(list(table), np.uint64))
    home = pr.Ring(n, **({"bits": 6, "replicas": 4} | ring))
    return pr.Router(home, (ids, list(table.values())), version=version)


def home_of(of: pr.Router, key: int) -> int:
    return int(of.route(pr.Keys.from_ids(np.array([key], np.uint64)))[0])


class Net:
    """A manager, the tasks of a topology, and what is on its way between them."""

    def __init__(self, topology: Topology, routers: dict[str, pr.Router], **options: Any) -> None:
        of_task = {name: options.pop(name) for name in ("capacity", "chunk") if name in options}
        self.topology = topology
        self.routers = routers
        self.options = options
        self.storage = MemoryStorage()
        self.tasks = {
            task: Instance(task, topology=topology, routers=routers, **of_task)
            for task in topology.all_tasks
        }
        self.manager = self.new_manager()
        self.queue: deque[Message] = deque()
        self.log: list[Message] = []
        self.records: list[tuple[Task, Apply | Forward]] = []
        """What tasks gave back of records that waited."""

    def new_manager(self, plan: Any = None, **options: Any) -> Manager:
        options = {"routers": self.routers, "storage": self.storage, **self.options, **options}
        return Manager(plan, self.topology, **options)

    def send(self, messages: list[Any], source: Task | None = None) -> None:
        for message in messages:
            if isinstance(message, Message):
                self.queue.append(message)
                self.log.append(message)
            else:
                assert source is not None
                self.records.append((source, message))

    def deliver(self, message: Message) -> None:
        if message.target == MANAGER:
            self.send(self.manager.receive(message, 0.0))
        else:
            self.send(self.tasks[message.target].receive(message, 0.0), message.target)

    def run(self, until: Callable[[Message], bool] = lambda _: False) -> None:
        """Deliver everything, or up to the first message that is meant."""
        while self.queue:
            if until(self.queue[0]):
                return
            self.deliver(self.queue.popleft())

    def rounds(self) -> int:
        """How many rounds it takes where every message takes one."""
        n = 0
        while self.queue:
            n += 1
            for _ in range(len(self.queue)):
                self.deliver(self.queue.popleft())
        return n

    def propose(self, plan: Any) -> None:
        self.send(self.manager.propose(plan, 0.0))

    def settled(self, epoch: int) -> bool:
        return not self.queue and all(
            not machine.busy and not machine.buffered and machine.epoch == epoch
            for machine in self.tasks.values()
        )
