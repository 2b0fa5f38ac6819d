"""Messages, depth and bytes of a reconfiguration, against closed formulas.

The paper says: time linear in the operators, space linear in what is counted (its trap C20).
"""

import numpy as np
import pytest

import pyroute as pr
from pyroute.protocol import (
    Ack,
    Done,
    GetMetrics,
    Metrics,
    Migrate,
    Propagate,
    Reconfigure,
    Task,
    Topology,
    encode,
)

from .net import Net, router
from .settings import SHAPES

KEYS = [i << 54 for i in range(1, 1001)]


def reconfigured(topology, moved, pause=False, collect=True, state=b"x" * 20):
    """A reconfiguration in which every keyed operator moves that many keys from 0 to 1."""
    table = dict.fromkeys(KEYS, 0)
    after = table | dict.fromkeys(KEYS[:moved], 1)
    sizes = {name: len(topology.tasks(name)) for name in topology.keyed}
    net = Net(topology, {n: router(k, table) for n, k in sizes.items()}, pause=pause, chunk=1 << 30)
    for name in topology.keyed:
        for key in KEYS:
            net.tasks[Task(name, 0)].store.put(key, state)
    rounds = 0
    if collect:
        net.send(net.manager.collect(0.0))
        rounds += net.rounds()
    net.propose({name: router(n, after, version=1) for name, n in sizes.items()})
    rounds += net.rounds()
    assert net.settled(1)
    for name in topology.keyed:
        assert len(net.tasks[Task(name, 1)].store.states) == moved
    return net, rounds


def expected_messages(topology, transfers, pause):
    """All, sources, pairs of tasks that send to each other, and pairs that state moves between."""
    v, s = len(topology.all_tasks), len(topology.sources)
    e = sum(len(topology.tasks(a)) * len(topology.tasks(b)) for a, b in topology.edges)
    return (7 if pause else 5) * v + s + e + transfers


def expected_depth(topology, moved, pause):
    """Four to prepare, one per operator on the longest way, the state, and the last answer."""
    levels = [topology.level(name) for name in topology.keyed] if moved else []
    depth = 4 + max([topology.depth, *(level + 1 for level in levels)]) + 1
    return depth + (2 if pause else 0)


@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.parametrize("moved", [0, 1, 30])
@pytest.mark.parametrize("shape", SHAPES)
def test_messages_and_depth(shape, moved, pause):
    operators, edges, stateless = SHAPES[shape]
    tasks = {name: range(2 + i % 2) for i, name in enumerate(operators)}
    topology = Topology(tasks, edges, stateless=stateless)
    net, rounds = reconfigured(topology, moved, pause)
    transfers = len(topology.keyed) if moved else 0
    assert len(net.log) == expected_messages(topology, transfers, pause)
    assert rounds == expected_depth(topology, moved, pause)


def test_linear_in_operators():
    """One operator more, of as many tasks, costs as many messages and one round more."""
    found = []
    for n in range(2, 9):
        chain = Topology.of({f"o{i}": 3 for i in range(n)})
        net, rounds = reconfigured(chain, 5)
        found.append((len(net.log), rounds))
    assert set(np.diff(found, axis=0).tolist()[0]) == {5 * 3 + 9 + 1, 1}
    assert len(np.unique(np.diff(found, axis=0), axis=0)) == 1


def varint(n):
    return max(1, (n.bit_length() + 6) // 7)


def expected_bytes(topology, moved, state, epoch=1):
    """From the drawing of the format alone; routers as they are."""

    def task(t):
        return 1 + len(t.operator) + varint(t.number)

    manager = 2
    frame = 8 + 1 + varint(epoch) + 8
    table = dict.fromkeys(KEYS, 0) | dict.fromkeys(KEYS[:moved], 1)
    lists = varint(moved) + 8 * moved + 1
    total = 0
    for t in topology.all_tasks:
        fixed = frame + task(t) + manager
        total += 4 * fixed + 1  # GetMetrics, Metrics with its length, Ack, Done
        size = fixed + 1 + 1 + 1 + 1  # Reconfigure: three counts and a flag
        for name in (t.operator, *topology.successors(t.operator)):
            if name in topology.keyed:
                data = router(len(topology.tasks(name)), table, version=1).to_bytes(values=False)
                size += 1 + len(name) + 1 + 8 + varint(len(data)) + len(data)
        if t.operator in topology.keyed and t.number in (0, 1):
            size += 1 + lists
        total += size
        if t in topology.sources:
            total += fixed
        total += sum(
            frame + task(t) + task(other) for other in topology.successor_tasks(t.operator)
        )
        if t.operator in topology.keyed and t.number == 0:
            states = moved * (8 + varint(len(state)) + len(state))
            total += frame + 2 * task(t) + 1 + 1 + varint(moved) + states
    return total


@pytest.mark.parametrize("shape", ["pair", "chain", "diamond"])
def test_bytes(shape):
    operators, edges, stateless = SHAPES[shape]
    topology = Topology(dict.fromkeys(operators, range(2)), edges, stateless=stateless)
    state = b"x" * 20
    found = []
    for moved in (128, 129, 500, 1000):
        net, _ = reconfigured(topology, moved, state=state)
        found.append(sum(len(encode(message)) for message in net.log))
        assert found[-1] == expected_bytes(topology, moved, state)
        kinds = {type(message) for message in net.log}
        assert kinds == {GetMetrics, Metrics, Reconfigure, Ack, Propagate, Migrate, Done}
    # Linear in what moves: twice the key in lists, once with its state.
    each = 8 + 8 + 8 + 1 + len(state)
    assert found[1] - found[0] == each * len(topology.keyed)


def test_router_bytes_are_sent_once_per_reader():
    """Tasks get the routers that they use, and those that do not change are not sent at all."""
    chain = Topology.of({"s": 2, "a": 2, "b": 2})
    before = {"a": router(2, {5: 0}), "b": router(2, {5: 0})}
    net = Net(chain, before)
    net.propose({"b": router(2, {5: 1}, version=1)})
    sent = {m.target: [c.operator for c in m.routers] for m in net.queue}
    assert sent == {task: [] if task.operator == "s" else ["b"] for task in chain.all_tasks}
    assert all(isinstance(m, Reconfigure) for m in net.queue)
    assert pr.Router.from_bytes(net.queue[-1].routers[0].router) == router(2, {5: 1}, version=1)
