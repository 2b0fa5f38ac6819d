"""All interleavings of a tiny topology, by exhaustive search over the real machines.

Two sources and two keyed tasks, or a chain; a key or two that move, and back; a manager that may
crash once, in the middle of what it sends; or abort. Messages of and to the manager stay where they
are once sent: each may be delivered never, once, or again at any time. Channels between tasks keep
their order; with `doubles` their messages may come again too, any time after they came. Every step
of a task begins with a restored snapshot, so a crash of a task between any two steps is in it.

A state is what all machines, stores and channels are. Machines are memoised: what a machine in one
condition does with one message is computed once.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import pyroute as pr
from pyroute.protocol import (
    MANAGER,
    Apply,
    Forward,
    Hold,
    Instance,
    Manager,
    MemoryStorage,
    MemoryStore,
    Message,
    Topology,
)
from pyroute.protocol.manager import Phase

KEYS = (1 << 60, 2 << 60)


class BrokenError(AssertionError):
    """A state that must not be."""


@dataclass(frozen=True)
class Small:
    """What is searched."""

    tasks: tuple[int, ...] = (2, 2)
    """Tasks of each operator of a chain; the first is the source."""
    keys: int = 1
    records: tuple[tuple[int, ...], ...] = ((0, 0), (0,))
    """The keys, by number, of the records of each source task."""
    crashes: int = 1
    aborts: bool = False
    pause: bool = False
    redo: bool = True
    back: bool = False
    """Whether a second epoch moves the keys back."""
    doubles: bool = False
    """Whether messages between tasks may come again, any time after they came."""


class Model:
    """The states of a small topology and what follows from each."""

    def __init__(
        self,
        small: Small,
        *,
        instance: type[Instance] = Instance,
        manager: type[Manager] = Manager,
    ) -> None:
        self.small = small
        self.instance_class = instance
        self.manager_class = manager
        names = "sab"[: len(small.tasks)]
        self.topology = Topology.of(dict(zip(names, small.tasks, strict=True)))
        self.tasks = self.topology.all_tasks
        self.index = {task: i for i, task in enumerate(self.tasks)}
        self.keyed = names[1:]
        self.routers = {name: self._router(0, 0) for name in self.keyed}
        self.plans = [{name: self._router(1, 1) for name in self.keyed}]
        if small.back:
            self.plans.append({name: self._router(0, 2) for name in self.keyed})
        pairs = [
            (self.index[task], self.index[other])
            for task in self.tasks
            for other in self.topology.successor_tasks(task.operator)
        ]
        pairs += [
            (self.index[task], self.index[peer])
            for name in self.keyed
            for task in self.topology.tasks(name)
            for peer in self.topology.tasks(name)
            if peer != task
        ]
        self.channels = {pair: i for i, pair in enumerate(pairs)}
        self.ends = [target for _, target in pairs]
        self.sources = len(self.channels)
        for source in range(small.tasks[0]):
            self.ends.append(source)
        self._machines: list[tuple[bytes, Any, Any]] = []
        self._machine_ids: dict[Any, int] = {}
        self._managers: list[Manager] = []
        self._manager_ids: dict[Any, int] = {}
        self._items: list[Any] = []
        self._item_ids: dict[Any, int] = {}
        self._task_steps: dict[tuple[int, int], tuple[int, tuple[tuple[int, int], ...]]] = {}
        self._restarts: dict[Any, tuple[int, tuple[int, ...]]] = {}
        self._facts: dict[int, tuple[int, int]] = {}
        self._targets: list[int] = []
        """Of each item, if it is a message: a task's number, or -1 for the manager."""
        self._manager_steps: dict[tuple[int, Any], tuple[int, tuple[int, ...]]] = {}

    def _router(self, owner: int, version: int) -> pr.Router:
        ids = pr.Keys.from_ids(np.array(KEYS[: self.small.keys], np.uint64))
        ring = pr.Ring(2, bits=4, replicas=4)
        # A third task or a second key goes the other way round.
        targets = [owner ^ i & 1 for i in range(self.small.keys)]
        return pr.Router(ring, (ids, targets), version=version)

    # conditions as numbers -------------------------------------------------------------------

    def _item(self, item: Any) -> int:
        found = self._item_ids.get(item)
        if found is None:
            found = self._item_ids[item] = len(self._items)
            self._items.append(item)
            known = isinstance(item, Message) and item.target != MANAGER
            self._targets.append(self.index[item.target] if known else -1)
        return found

    def _machine(self, snapshot: bytes, states: Iterable[Any], counts: Iterable[Any]) -> int:
        condition = (snapshot, tuple(sorted(states)), tuple(sorted(counts)))
        found = self._machine_ids.get(condition)
        if found is None:
            found = self._machine_ids[condition] = len(self._machines)
            self._machines.append(condition)
        return found

    def _manager(self, manager: Manager) -> int:
        condition = (
            manager.phase,
            manager.epoch,
            manager.waiting,
            tuple(sorted(manager.storage.documents.items())),
            manager.open,
        )
        found = self._manager_ids.get(condition)
        if found is None:
            found = self._manager_ids[condition] = len(self._managers)
            self._managers.append(manager)
        return found

    def _clone(self, number: int) -> Manager:
        """To be changed, while the one of that number stays as it is."""
        manager = copy.copy(self._managers[number])
        manager._waiting = set(manager._waiting)
        storage = MemoryStorage()
        storage.documents.update(manager.storage.documents)
        manager.storage = storage
        return manager

    def _restart(self, number: int) -> tuple[int, tuple[int, ...]]:
        documents = self._managers[number].storage.documents
        condition = tuple(sorted(documents.items()))
        found = self._restarts.get(condition)
        if found is not None:
            return found
        storage = MemoryStorage()
        storage.documents.update(documents)
        manager = self.manager_class(
            None,
            self.topology,
            routers=self.routers,
            storage=storage,
            pause=self.small.pause,
            redo=self.small.redo,
            resend_after=0.0,
        )
        out = manager.start(0.0)
        found = self._manager(manager), tuple(self._item(m) for m in out)
        self._restarts[condition] = found
        return found

    # steps -----------------------------------------------------------------------------------

    def first(self) -> tuple[Any, ...]:
        """Where it begins: (manager, crashes left, messages sent, machines, channels)."""
        manager = self.manager_class(
            None,
            self.topology,
            routers=self.routers,
            storage=MemoryStorage(),
            pause=self.small.pause,
            redo=self.small.redo,
            resend_after=0.0,
        )
        machines = tuple(
            self._machine(
                self.instance_class(t, topology=self.topology, routers=self.routers).snapshot(),
                (),
                (),
            )
            for t in self.tasks
        )
        script = []
        number = 0
        for source in range(self.small.tasks[0]):
            records = self.small.records[source] if source < len(self.small.records) else ()
            line = []
            for key in records:
                line.append(self._item((KEYS[key], b"%d" % number)))
                number += 1
            script.append(tuple(line))
        channels = ((),) * self.sources + tuple(script)
        return (self._manager(manager), self.small.crashes, frozenset(), machines, channels)

    def _task_step(self, at: int, item: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """What a machine in a condition does with a message or a record."""
        found = self._task_steps.get((at, item))
        if found is not None:
            return found
        snapshot, states, counts = self._machines[at]
        store = MemoryStore((key, b",".join(payloads)) for key, payloads in states)
        machine = self.instance_class.restore(snapshot, topology=self.topology, store=store)
        sent: list[tuple[int, int]] = []
        what = self._items[item]
        tally = dict(counts)
        told = isinstance(what, Message)
        outputs = machine.receive(what) if told else [machine.record(*what)]
        for output in outputs:
            if isinstance(output, Apply):
                self._apply(machine, store, tally, output, sent)
            elif isinstance(output, Forward):
                raise BrokenError(
                    f"{machine.task} forwards {output}: nobody here sends by old routers"
                )
            elif isinstance(output, Message):
                target = -1 if output.target == MANAGER else self.index[output.target]
                sent.append((target, self._item(output)))
            elif not isinstance(output, Hold):
                sent.append((self.index[output.target], self._item((output.key, output.payload))))
        left = [(key, tuple(state.split(b","))) for key, state in store.states.items()]
        found = self._machine(machine.snapshot(), left, tally.items()), tuple(sent)
        self._task_steps[at, item] = found
        return found

    def _apply(
        self,
        machine: Instance,
        store: MemoryStore,
        tally: dict[Any, int],
        output: Apply,
        sent: list[tuple[int, int]],
    ) -> None:
        operator = machine.task.operator
        producer, _, payload = output.payload.rpartition(b":")
        if operator in self.keyed:
            before = store.states.get(output.key)
            here = [] if before is None else before.split(b",")
            # A producer's records of a key have numbers without a gap.
            number = sum(1 for line in here if line.startswith(producer.split(b"#")[0] + b"#"))
            if int(producer.split(b"#")[1]) != number:
                raise BrokenError(f"{machine.task} applied {output} after {here}")
            store.states[output.key] = b",".join([*here, output.payload])
        for name in self.topology.successors(operator):
            number = tally.get((name, output.key), 0)
            tally[name, output.key] = number + 1
            line = b"%s#%d:%s" % (str(machine.task).encode(), number, payload)
            answer = machine.route(name, output.key, line)
            if not isinstance(answer, Hold):
                sent.append((self.index[answer.target], self._item((output.key, line))))

    def _manager_step(self, at: int, event: Any) -> tuple[int, tuple[int, ...]]:
        found = self._manager_steps.get((at, event))
        if found is None:
            manager = self._clone(at)
            if event == "tick":
                out = manager.tick(1.0)
            elif event == "abort":
                out = manager.abort(0.0)
            elif event == "propose":
                out = manager.propose(self.plans[manager.epoch], 0.0)
            else:
                out = manager.receive(self._items[event], 0.0)
            found = self._manager(manager), tuple(self._item(m) for m in out)
            self._manager_steps[at, event] = found
        return found

    def _manager_events(self, at: int, sent: frozenset[int]) -> list[Any]:
        manager = self._managers[at]
        events: list[Any] = [i for i in sent if self._targets[i] < 0]
        if manager.phase is Phase.IDLE and manager.epoch < len(self.plans):
            events.append("propose")
        if manager.waiting:
            events.append("tick")
        if self.small.aborts and manager.phase is Phase.PREPARING:
            events.append("abort")
        return events

    def following(self, state: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The states after one step."""
        manager, crashes, sent, machines, channels = state
        out = []
        for event in self._manager_events(manager, sent):
            then, messages = self._manager_step(manager, event)
            held = self._of_now(then, sent) if event == "propose" else sent
            out.append((then, crashes, held.union(messages), machines, channels))
            if crashes:  # it dies after some of what it was to send
                again, more = self._restart(then)
                for n in range(len(messages) + 1):
                    known = held.union(messages[:n], more)
                    out.append((again, crashes - 1, known, machines, channels))
        for number in sent:
            at = self._targets[number]
            if at >= 0:
                out.append(self._after(state, at, self._task_step(machines[at], number), -1))
        for i, line in enumerate(channels):
            if line:
                at = self.ends[i]
                out.append(self._after(state, at, self._task_step(machines[at], line[0]), i))
        return out

    def _of_now(self, manager: int, sent: frozenset[int]) -> frozenset[int]:
        """Without what a manager drops anyway: answers of an older epoch."""
        epoch = self._managers[manager].epoch
        late = [i for i in sent if self._targets[i] < 0 and self._items[i].epoch < epoch]
        return sent.difference(late) if late else sent

    def _after(self, state: tuple[Any, ...], at: int, step: Any, taken: int) -> tuple[Any, ...]:
        manager, crashes, sent, machines, channels = state
        then, outputs = step
        if then != machines[at]:
            machines = (*machines[:at], then, *machines[at + 1 :])
        if taken >= 0 or outputs:
            lines = list(channels)
            told = []
            if taken >= 0:
                if self.small.doubles and self._targets[lines[taken][0]] >= 0:
                    told.append(lines[taken][0])
                lines[taken] = lines[taken][1:]
            epoch = self._managers[manager].epoch
            for target, item in outputs:
                if target < 0:
                    if self._items[item].epoch >= epoch:
                        told.append(item)
                else:
                    channel = self.channels[at, target]
                    lines[channel] = (*lines[channel], item)
            channels = tuple(lines)
            if told:
                sent = sent.union(told)
        return (manager, crashes, sent, machines, channels)

    # what must hold --------------------------------------------------------------------------

    def check(self, state: tuple[Any, ...]) -> None:
        """In every state: the state of a key is at one task, or on its way, never twice."""
        machines = state[3]
        for name in self.keyed:
            there: dict[int, str] = {}
            for task in self.topology.tasks(name):
                for key, _ in self._machines[machines[self.index[task]]][1]:
                    if key in there:
                        raise BrokenError(f"state of {key} at {task} and {there[key]}")
                    there[key] = str(task)

    def good(self, state: tuple[Any, ...]) -> bool:
        """Whether it may stay so: all records applied, all tasks settled in one epoch."""
        manager_number, _, _, machines, channels = state
        manager = self._managers[manager_number]
        if any(channels) or manager.phase is not Phase.IDLE or manager.epoch < len(self.plans):
            return False
        total = sum(len(line) for line in self.small.records) * len(self.keyed)
        applied = 0
        for number in machines:
            epoch, here = self._fact(number)
            if epoch != manager.epoch:
                return False
            applied += here
        return applied == total

    def _fact(self, number: int) -> tuple[int, int]:
        """Its epoch and the records of its own keys, or -1 where it is busy or has others'."""
        found = self._facts.get(number)
        if found is None:
            snapshot, states, _ = self._machines[number]
            machine = Instance.restore(snapshot, topology=self.topology)
            task = machine.task
            others = [k for k, _ in states if machine.owner(task.operator, k) != task.number]
            if machine.busy or machine.buffered or others:
                found = -1, 0
            else:
                found = machine.epoch, sum(len(payloads) for _, payloads in states)
            self._facts[number] = found
        return found


@dataclass(frozen=True)
class Searched:
    states: int
    steps: int
    good: int


def search(small: Small, most: int = 3_000_000, **classes: Any) -> Searched:
    """Every state that can be reached; `BrokenError` where one is wrong or leads to no good end."""
    model = Model(small, **classes)
    first = model.first()
    numbers = {first: 0}
    todo = [first]
    sources, targets = array("i"), array("i")
    good = []
    done = 0
    while todo:
        state = todo.pop()
        number = numbers[state]
        done += 1
        model.check(state)
        if model.good(state):
            good.append(number)
        for after in model.following(state):
            known = numbers.get(after)
            if known is None:
                known = numbers[after] = len(numbers)
                todo.append(after)
                if known > most:
                    raise BrokenError(f"more than {most} states")
            if known != number:
                sources.append(number)
                targets.append(known)
    _check_ends(len(numbers), sources, targets, good)
    return Searched(len(numbers), len(sources), len(good))


def _check_ends(n: int, sources: Any, targets: Any, good: list[int]) -> None:
    """From every state a good end can be reached."""
    into = np.frombuffer(targets, np.int32)
    order = np.argsort(into, kind="stable")
    froms = np.frombuffer(sources, np.int32)[order]
    starts = np.searchsorted(into[order], np.arange(n + 1))
    seen = np.zeros(n, bool)
    seen[good] = True
    todo = list(good)
    while todo:
        at = todo.pop()
        for source in froms[starts[at] : starts[at + 1]].tolist():
            if not seen[source]:
                seen[source] = True
                todo.append(source)
    if not seen.all():
        raise BrokenError(f"{int((~seen).sum())} of {n} states lead to no good end")
