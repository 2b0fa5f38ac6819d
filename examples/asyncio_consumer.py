"""Keyed consumers in one asyncio process, whose hot keys change their owner while records flow.

    python examples/asyncio_consumer.py

`pyroute.protocol` decides and this file carries: queues are the channels, and every task of asyncio
owns one machine. Each record is applied once, by the owner of its key, after the state it needs.
"""

import asyncio
import struct
from collections import Counter

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
    Topology,
)

CONSUMERS, RECORDS, LIMIT = 4, 20_000, 1000
_COUNT = struct.Struct("<q")


class Consumers:
    """A source and its consumers; state is how often each key came."""

    def __init__(self):
        self.topology = Topology.of({"read": 1, "count": CONSUMERS})
        self.routers = {"count": pr.Router(CONSUMERS)}
        self.queues = {task: asyncio.Queue() for task in (*self.topology.all_tasks, MANAGER)}
        self.machines = {
            task: Instance(task, topology=self.topology, routers=self.routers)
            for task in self.topology.all_tasks
        }
        self.applied = dict.fromkeys(self.topology.tasks("count"), 0)
        self.unfinished = 0

    async def carry(self, task, outputs):
        """Do what a machine said, in its order."""
        for output in outputs:
            if isinstance(output, Message):
                await self.queues[output.target].put(output)
            elif isinstance(output, Apply):
                self.apply(task, output.key)
            elif isinstance(output, Forward):
                await self.queues[output.target].put((output.key, output.payload))

    def apply(self, task, key):
        """The work itself: one more of this key."""
        store = self.machines[task].store
        count = _COUNT.unpack(store.take(key) or _COUNT.pack(0))[0]
        store.put(key, _COUNT.pack(count + 1))
        self.applied[task] += 1
        self.unfinished -= 1

    async def consume(self, task):
        machine = self.machines[task]
        while True:
            item = await self.queues[task].get()
            if isinstance(item, tuple):  # a record: applied, held until its state comes, or sent on
                await self.carry(task, [machine.record(*item)])
            else:
                await self.carry(task, machine.receive(item))

    async def produce(self, keys):
        """The source: never more than so many records on their way, and messages always read."""
        (source,) = self.topology.tasks("read")
        machine, inbox = self.machines[source], self.queues[source]
        for key in keys:
            while self.unfinished >= LIMIT or not inbox.empty():
                while not inbox.empty():
                    await self.carry(source, machine.receive(inbox.get_nowait()))
                await asyncio.sleep(0)
            self.unfinished += 1
            await self.queues[machine.route("count", key, b"").target].put((key, b""))
        while True:
            await self.carry(source, machine.receive(await inbox.get()))

    async def reconfigure(self, plan):
        """Take every task to the next router, while records flow."""
        manager = Manager(
            {"count": plan}, self.topology, routers=self.routers, storage=MemoryStorage()
        )
        await self.carry(MANAGER, manager.start(now=0.0))
        while manager.open:
            message = await self.queues[MANAGER].get()
            await self.carry(MANAGER, manager.receive(message, 0.0))
        return manager.routers["count"]

    def counts(self):
        """How often each key came, over all consumers."""
        stores = (self.machines[task].store for task in self.topology.tasks("count"))
        return {key: _COUNT.unpack(n)[0] for store in stores for key, n in store.states.items()}


async def run(records=RECORDS):
    users = np.random.default_rng(1).zipf(1.3, records) % 500
    keys = pr.keys(users).ids.tolist()
    consumers = Consumers()
    work = [asyncio.ensure_future(consumers.consume(t)) for t in consumers.topology.tasks("count")]
    work.append(asyncio.ensure_future(consumers.produce(keys)))

    # Meanwhile: statistics, a plan, and the change, with records on their way.
    stats = pr.KeyStats()
    stats.observe(users[: records // 4])
    router = consumers.routers["count"]
    plan = pr.rebalance(stats.close_interval(), router, max_imbalance=0.05)
    while sum(consumers.applied.values()) < records // 4:
        await asyncio.sleep(0)
    after = await consumers.reconfigure(plan)
    while sum(consumers.applied.values()) < records:
        await asyncio.sleep(0.001)
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)

    found = consumers.counts()
    assert found == Counter(keys)
    print(
        f"router {router.version} -> {after.version}: {len(plan.migrations)} keys moved their state"
    )
    print(f"{records:,} records, each applied once: {list(consumers.applied.values())}")
    return found


def main():
    return asyncio.run(run())


if __name__ == "__main__":
    main()
