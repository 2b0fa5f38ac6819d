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

from collections.abc import Iterable
from dataclasses import fields
from typing import Any
from unittest import mock

from pyroute.protocol import (
    MANAGER,
    Apply,
    FencedError,
    Forward,
    Full,
    Hold,
    Inbox,
    Manager,
    Message,
    Send,
)
from pyroute.protocol import instance as instance_module
from pyroute.protocol.manager import Phase

from .beginning import RESEND, Setup
from .nodes import RECORD, CachedRoutes, Channel, Node, ViolationError, Window

STEPS = 20_000


class World(Setup):
    """One schedule: `run` it."""

    # sending ---------------------------------------------------------------------------------

    def _rest(self, channel: Channel) -> None:
        if channel.slot >= 0:
            last = channel.ready.pop()
            if last is not channel:
                channel.ready[channel.slot] = last
                last.slot = channel.slot
            channel.slot = -1

    def _post(self, node: Node, target: Node, item: Any) -> None:
        """Send on the channel between two tasks, after the commit."""
        self._post_on(node, self.channels[node.index, target.index], item)

    def _forward(self, node: Node, target: Node, item: Any) -> None:
        """On a channel of its own, so that a record that waits does not keep state waiting."""
        self._post_on(node, self.channels[~node.index, target.index], item)

    def _post_on(self, node: Node, channel: Channel, item: Any) -> None:
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
                self._forward(node, self.by_task[output.target], (output.key, output.payload))
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
            raise ViolationError(f"{node.task} applied {record} of {key:016x}, expected {expected}")
        for peer in node.peers:
            if key in peer.states.of:
                raise ViolationError(f"{node.task} and {peer.task} both have state of {key:016x}")
        state = node.states.of.get(key)
        n, total, seen = (0, 0, {}) if state is None else state
        due = seen.get(producer, 0)
        # Producers outside keep no order across two reconfigurations: docs/protocol.md.
        if due != count and (producer < self.first_outside or self.settings.epochs == 1):
            what = "lost or late" if count > due else "twice"
            raise ViolationError(
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
            self._forward(node, self.by_task[answer.target], (key, payload))
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
        elif (
            manager.phase in (Phase.COLLECTING, Phase.PREPARING)
            and chance < self.settings.aborts * 8
        ):
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
            if channel.outbox._frames:
                for position, item in channel.outbox.frames[:3]:
                    self._frame(channel, position, item)

    # running ---------------------------------------------------------------------------------

    def run(self) -> World:
        """All of it; `ViolationError` where a guarantee does not hold."""
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
            raise ViolationError(f"no end after {STEPS} steps: {self._left()}")

    def _one(self) -> bool:
        """One delivery, if there is one to make."""
        ready, bag, net = len(self.between), len(self.bag), len(self.net)
        n = ready + bag + net
        some, few = self._rates()
        sources = n + some * len(self.sources)
        everything = sources + few * len(self.outside)
        which = self.random() * max(1.0, everything)
        if which >= everything:
            return False
        if which >= n:
            inputs = self.sources if which < sources else self.outside
            return self._deliver(inputs[int(self.random() * len(inputs))])
        at = int(which)
        if at < ready:
            return self._deliver(self.between[at])
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
            elif self.settings.doubles and self.random() < self.settings.doubles:
                self._double(item)
            self._take_message(node, item)
        if not channel.items:
            self._rest(channel)
        return True

    def _rates(self) -> tuple[float, float]:
        """How eagerly sources, and producers outside, are read.

        Most records are kept for the time when keys move, or when they have moved.
        """
        manager = self.manager
        if manager.phase is Phase.MOVING:
            return (0.4 if self.epochs_left else 1.0), 0.05
        if self.epochs_left or manager.open:
            return 0.04, 0.04
        return 1.0, 1.0

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
        if self.epochs_left or self.manager.phase is not Phase.IDLE:
            self.now += RESEND
            self._own()
            self._tick()
            return False
        if self.settings.raw and any(c.outbox._frames for c in self.channels.values()):
            self._resend()
            return False
        if self.attic:
            self.bag += self.attic
            self.attic.clear()
        return not (self.between or self.sources or self.outside or self.bag or self.net)

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
                raise ViolationError(f"{node.task} is left with something: {self._left()}")
            if machine.epoch != self.manager.epoch and self.manager.epoch:
                raise ViolationError(
                    f"{node.task} is in epoch {machine.epoch}, not {self.manager.epoch}"
                )
            for name, (version, fingerprint) in machine.versions().items():
                router = self.manager.routers[name]
                if (version, fingerprint) != (router.version, router.fingerprint):
                    raise ViolationError(
                        f"{node.task} has another router of {name}: version {version}"
                    )
            for key, (n, total, _) in node.states.of.items():
                name = node.task.operator
                owner = machine.owner(name, key)
                if owner != node.task.number:
                    raise ViolationError(f"{node.task} has state of {key:016x}, which is {owner}'s")
                states[name, key] = (n, total)
        if any(c.items for c in self.channels.values()):
            raise ViolationError(f"records are left: {self._left()}")
        alone: dict[tuple[str, int], tuple[int, int]] = {}
        for record, (name, key, _) in self.expected.items():
            n, total = alone.get((name, key), (0, 0))
            alone[name, key] = (n + 1, total + record)
        if states != alone:
            raise ViolationError(f"state differs from that of one task: {states} and {alone}")
