"""Each rule of the two machines on its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from pyroute.protocol import (
    MANAGER,
    Abort,
    Aborted,
    Ack,
    Apply,
    Done,
    FencedError,
    Forward,
    Full,
    GetMetrics,
    Hold,
    Instance,
    Manager,
    MemoryStorage,
    Metrics,
    Migrate,
    Moved,
    Probe,
    Propagate,
    ProtocolError,
    Reconfigure,
    Refuse,
    Resume,
    Resumed,
    RouterChange,
    Send,
    Task,
    Topology,
    Transfer,
)
from pyroute.protocol.instance import TABLE as INSTANCE_TABLE
from pyroute.protocol.instance import Phase
from pyroute.protocol.manager import TABLE as MANAGER_TABLE
from pyroute.protocol.manager import Phase as ManagerPhase

from .net import CHAIN, Net, home_of, router

SHAPE = r"^\w[\w .\[\]()]*: expected .+, got .+"
KEY, OTHER = 5 << 60, 9 << 60
S0, S1, A0, A1 = Task("s", 0), Task("s", 1), Task("a", 0), Task("a", 1)
PAIR = Topology.of({"s": 2, "a": 2})


def pair(**options):
    """Key KEY moves from a/0 to a/1 by PLAN; OTHER stays at a/0."""
    net = Net(PAIR, {"a": router(2, {KEY: 0, OTHER: 0})}, **options)
    net.tasks[A0].store.put(KEY, b"state")
    return net


PLAN = {"a": router(2, {KEY: 1, OTHER: 0}, version=1)}
BACK = {"a": router(2, {KEY: 0, OTHER: 0}, version=2)}


def is_a(kind, target=None):
    return lambda message: isinstance(message, kind) and target in (None, message.target)


def staged(**options):
    """All tasks acknowledged; the manager's Propagates are on their way."""
    net = pair(**options)
    net.propose(PLAN)
    net.run(is_a(Propagate))
    return net


# the way it goes -----------------------------------------------------------------------------


def test_state_moves():
    net = pair()
    net.propose(PLAN)
    net.run()
    assert net.settled(1)
    assert net.tasks[A1].store.states == {KEY: b"state"}
    assert net.tasks[A0].store.states == {}
    assert net.manager.phase is ManagerPhase.IDLE
    assert net.manager.routers["a"] == PLAN["a"]
    assert net.tasks[S0].owner("a", KEY) == 1


def test_order_of_messages():
    """As the paper has it: metrics of all, configuration, acknowledgement, propagation, state."""
    net = pair()
    net.send(net.manager.collect(0.0))
    net.run()
    assert net.manager.phase is ManagerPhase.PLANNING
    assert set(net.manager.metrics) == set(PAIR.all_tasks)
    net.propose(PLAN)
    net.run()
    kinds = [type(message) for message in net.log]
    order = [GetMetrics, Metrics, Reconfigure, Ack, Propagate, Migrate]
    firsts = [kinds.index(kind) for kind in order]
    assert firsts == sorted(firsts)
    lasts = [len(kinds) - 1 - kinds[::-1].index(kind) for kind in order[:4]]
    assert all(last < first for last, first in zip(lasts, firsts[1:], strict=False))


def test_metrics_are_the_engines():
    machine = Instance(A0, topology=PAIR, routers={"a": router(2)}, metrics=lambda: b"counts")
    [answer] = machine.receive(GetMetrics(1, MANAGER, A0))
    assert answer == Metrics(1, A0, MANAGER, b"counts")


def test_waits_for_all_predecessors():
    net = staged()
    first, second = net.queue.popleft(), net.queue.popleft()
    net.queue.clear()
    net.deliver(first)
    net.run()
    assert net.tasks[S0].phase is Phase.SETTLED
    assert net.tasks[A0].phase is Phase.STAGED
    assert KEY in net.tasks[A0].store.states
    net.deliver(second)
    net.run()
    assert net.settled(1)


def test_records_while_it_moves():
    net = staged()
    old, new = net.tasks[A0], net.tasks[A1]
    assert old.record(KEY, b"1") == Apply(KEY, b"1")  # until it acts
    assert new.record(KEY, b"2") == Hold(KEY)  # of a source that was faster
    assert new.record(OTHER, b"x") == Forward(A0, OTHER, b"x")
    net.run(is_a(Migrate))
    assert old.record(KEY, b"3") == Forward(A1, KEY, b"3")
    assert old.record(OTHER, b"y") == Apply(OTHER, b"y")
    assert new.record(KEY, b"4") == Hold(KEY)
    assert new.buffered == 2
    net.run()
    assert net.records == [(A1, Apply(KEY, b"2")), (A1, Apply(KEY, b"4"))]
    assert new.record(KEY, b"5") == Apply(KEY, b"5")
    assert new.buffered == 0


def test_state_before_acting():
    """State that comes early is used early: its records wait no longer than they have to."""
    net = staged()
    new = net.tasks[A1]
    assert new.record(KEY, b"1") == Hold(KEY)
    out = new.receive(Migrate(1, A0, A1, 0, True, ((KEY, b"state"),)))
    assert out == [Apply(KEY, b"1")]
    assert new.phase is Phase.STAGED
    assert new.record(KEY, b"2") == Apply(KEY, b"2")


def test_no_state_is_said_too():
    net = pair()
    net.tasks[A0].store.take(KEY)
    net.propose(PLAN)
    net.run()
    [message] = [m for m in net.log if isinstance(m, Migrate)]
    assert message.states == ()
    assert message.last
    assert net.settled(1)


def test_stateless_takes_all():
    net = staged()
    assert net.tasks[S0].record(KEY, b"1") == Apply(KEY, b"1")


def test_routes_change_when_it_acts():
    net = staged()
    assert net.tasks[S0].route("a", KEY, b"1") == Send(A0, "a", KEY, b"1")
    net.run()
    assert net.tasks[S0].route("a", KEY, b"1") == Send(A1, "a", KEY, b"1")


def test_leaves_the_table():
    """A key that leaves the table goes to its home: a move like any other."""
    home = home_of(router(2), KEY)
    before = router(2, {KEY: 1 - home})
    net = Net(PAIR, {"a": before})
    net.tasks[Task("a", 1 - home)].store.put(KEY, b"state")
    net.propose({"a": router(2, version=1)})
    net.run()
    assert net.tasks[Task("a", home)].store.states == {KEY: b"state"}


def test_ring_moves_what_no_table_names():
    keys = [i << 58 for i in range(64)]
    before = router(2, {keys[0]: 0, keys[1]: 1})
    after = pr.Router(
        before.home.with_tasks({0: 1, 1: 3}),
        (pr.Keys.from_ids(before.table.ids), before.table.targets),
        version=1,
    )
    net = Net(PAIR, {"a": before})
    for key in keys:
        net.tasks[Task("a", home_of(before, key))].store.put(key, b"%d" % key)
    net.propose({"a": after})
    net.run()
    for key in keys:
        assert net.tasks[Task("a", home_of(after, key))].store.states[key] == b"%d" % key
    assert sum(len(net.tasks[task].store.states) for task in (A0, A1)) == len(keys)
    assert any(m.receive and m.receive[0].moved.ranges for m in net.log if is_a(Reconfigure)(m))


def test_several_parts():
    keys = [i << 56 for i in range(1, 40)]
    net = Net(PAIR, {"a": router(2, dict.fromkeys(keys, 0))}, chunk=100)
    for key in keys:
        net.tasks[A0].store.put(key, b"x" * 30)
    net.propose({"a": router(2, dict.fromkeys(keys, 1), version=1)})
    net.run()
    parts = [m for m in net.log if isinstance(m, Migrate)]
    assert [m.part for m in parts] == list(range(13))
    assert [m.last for m in parts] == [False] * 12 + [True]
    assert all(len(m.states) == 3 for m in parts)
    assert len(net.tasks[A1].store.states) == 39


def test_first_part_releases_its_keys():
    net = staged()
    new = net.tasks[A1]
    assert new.record(KEY, b"1") == Hold(KEY)
    assert new.receive(Migrate(1, A0, A1, 0, False, ((KEY, b"s"),))) == [Apply(KEY, b"1")]
    assert new.record(KEY, b"2") == Apply(KEY, b"2")
    assert new.receive(Migrate(1, A0, A1, 0, False, ((KEY, b"old"),))) == []
    with pytest.raises(ProtocolError, match=SHAPE):
        new.receive(Migrate(1, A0, A1, 2, True, ()))


def test_engine_home():
    """Where an engine's hash places keys the tables alone are known."""
    names = ["anna", "bert"]
    anna, bert = (int(key) for key in pr.keys(names).ids)
    before = pr.Router(pr.StormHash(2, key_type="string"))
    home = before.route_one("anna")
    after = pr.Router(pr.StormHash(2, key_type="string"), {"anna": 1 - home}, version=1)
    net = Net(PAIR, {"a": before})
    old, new = net.tasks[Task("a", home)], net.tasks[Task("a", 1 - home)]
    old.store.put(anna, b"state")
    net.propose({"a": after})
    net.run(is_a(Migrate))
    assert new.record(anna, b"1") == Hold(anna)
    assert old.record(anna, b"2") == Forward(new.task, anna, b"2")
    net.run()
    assert new.store.states == {anna: b"state"}
    assert net.tasks[S0].route("a", anna, b"3").target == new.task
    assert net.tasks[S0].route("a", bert, b"3").target is None
    back = pr.Router(pr.StormHash(2, key_type="string"), version=2)
    net.propose({"a": back})
    net.run(is_a(Migrate))
    assert old.record(anna, b"4") == Hold(anna)
    net.run()
    assert old.store.states == {anna: b"state"}


def test_splits_stay():
    router_of = {"a": pr.Router(2, splits={"hot": [0, 1]})}
    net = Net(PAIR, router_of)
    hot = int(pr.keys(["hot"]).ids[0])
    net.propose({"a": pr.Router(2, {"anna": 1}, splits={"hot": [0, 1]}, version=1)})
    net.run()
    assert net.settled(1)
    assert net.tasks[A0].record(hot, b"1") == Apply(hot, b"1")
    assert net.tasks[A1].record(hot, b"1") == Apply(hot, b"1")
    with pytest.raises(ValueError, match=r"splits: expected the same .* got others"):
        net.propose({"a": pr.Router(2, version=2)})


def test_new_task():
    """A task that a plan adds is there before: it has nothing, and gets its share."""
    topology = Topology.of({"s": 1, "a": 3})
    before = router(2)
    net = Net(topology, {"a": before})
    keys = [i << 58 for i in range(64)]
    for key in keys:
        net.tasks[Task("a", home_of(before, key))].store.put(key, b"state")
    after = pr.Router(before.home.with_tasks(3), version=1)
    net.propose({"a": after})
    net.run()
    assert len(net.tasks["a", 2].store.states) == round(64 / 3)


# buffers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, 1, 3])
def test_full(capacity):
    net = staged(capacity=capacity)
    new = net.tasks[A1]
    for i in range(capacity):
        assert new.record(KEY, b"%d" % i) == Hold(KEY)
    before = new.snapshot()
    assert new.record(KEY, b"more") == Full(KEY)
    assert new.snapshot() == before  # it was not taken
    assert new.record(1 << 63, b"mine") != Full(1 << 63)  # others go on
    net.run()
    assert [answer.payload for _, answer in net.records] == [b"%d" % i for i in range(capacity)]
    assert new.record(KEY, b"more") == Apply(KEY, b"more")


# pause and resume ----------------------------------------------------------------------------


def test_pause():
    net = staged(pause=True)
    source, new = net.tasks[S0], net.tasks[A1]
    net.run(is_a(Migrate))
    assert source.route("a", KEY, b"1") == Hold(KEY)
    assert source.route("a", OTHER, b"x") == Send(A0, "a", OTHER, b"x")  # others go on
    assert source.route("a", KEY, b"2") == Hold(KEY)
    net.run(is_a(Resume))
    assert all(machine.phase is Phase.PAUSED for machine in net.tasks.values())
    assert new.store.states == {KEY: b"state"}
    assert source.route("a", KEY, b"3") == Hold(KEY)
    net.run()
    assert net.settled(1)
    assert net.records == [(S0, Send(A1, "a", KEY, b"%d" % i)) for i in (1, 2, 3)]
    assert source.route("a", KEY, b"4") == Send(A1, "a", KEY, b"4")


def test_pause_full():
    net = staged(pause=True, capacity=1)
    net.run(is_a(Migrate))
    source = net.tasks[S0]
    assert source.route("a", KEY, b"1") == Hold(KEY)
    assert source.route("a", KEY, b"2") == Full(KEY)
    assert source.route("a", OTHER, b"x") == Send(A0, "a", OTHER, b"x")


# epochs, late and doubled messages -----------------------------------------------------------


def everything():
    """All messages of two reconfigurations there and back."""
    net = pair()
    net.propose(PLAN)
    net.run()
    net.propose(BACK)
    net.run()
    return net, list(net.log)


def test_stale_refused():
    """No message of an older epoch changes anything."""
    net, log = everything()
    before = {task: machine.snapshot() for task, machine in net.tasks.items()}
    states = {task: dict(machine.store.states) for task, machine in net.tasks.items()}
    stale = [m for m in log if m.epoch == 1]
    for message in stale:
        if message.target == MANAGER:
            assert net.manager.receive(message, 0.0) == []
        else:
            answers = net.tasks[message.target].receive(message)
            assert [type(a) for a in answers] == [Refuse] * isinstance(message, Reconfigure)
    assert {task: machine.snapshot() for task, machine in net.tasks.items()} == before
    assert {task: machine.store.states for task, machine in net.tasks.items()} == states
    assert sum(m.late for m in net.tasks.values()) + net.manager.late == len(stale)


@given(st.data())
def test_doubles_change_nothing(data):
    """Any message may come again at once; the run ends as it would have."""
    net = pair(pause=data.draw(st.booleans()))
    net.propose(PLAN)
    while net.queue:
        message = net.queue.popleft()
        net.deliver(message)
        if data.draw(st.booleans()):
            net.deliver(message)
    assert net.settled(1)
    assert net.tasks[A1].store.states == {KEY: b"state"}


@given(st.permutations(range(4)))
def test_any_order_of_answers(order):
    net = pair()
    net.propose(PLAN)
    net.run(is_a(Ack))
    acks = list(net.queue)
    net.queue.clear()
    for i, n in enumerate(order):
        out = net.manager.receive(acks[n], 0.0)
        assert [type(m) for m in out] == ([Propagate] * 2 if i == 3 else [])


def test_answers_again():
    """What was lost with a manager is said again when it asks."""
    net = staged()
    [again] = net.tasks[A0].receive(Probe(1, MANAGER, A0))
    assert again == Ack(1, A0, MANAGER)
    net.run()
    [again] = net.tasks[A0].receive(Probe(1, MANAGER, A0))
    assert again == Done(1, A0, MANAGER)
    [again] = net.tasks[S0].receive(Propagate(1, MANAGER, S0))
    assert again == Done(1, S0, MANAGER)


def test_resumed_again():
    net = pair(pause=True)
    net.propose(PLAN)
    net.run()
    assert net.tasks[S0].receive(Resume(1, MANAGER, S0)) == [Resumed(1, S0, MANAGER)]
    assert net.tasks[S0].receive(Probe(1, MANAGER, S0)) == [Done(1, S0, MANAGER)]


@pytest.mark.parametrize(
    "message",
    [
        Propagate(1, S0, A0),
        Migrate(1, A1, A0, 0, True, ()),
        Resume(1, MANAGER, A0),
        Probe(1, MANAGER, A0),
        Propagate(0, S0, A0),
        Ack(1, MANAGER, A0),
        GetMetrics(1, S0, A0),
        GetMetrics(1, MANAGER, A1),
    ],
)
def test_impossible(message):
    """What cannot come says that somebody is broken, and changes nothing."""
    machine = pair().tasks[A0]
    before = machine.snapshot()
    with pytest.raises(ProtocolError, match=SHAPE):
        machine.receive(message)
    assert machine.snapshot() == before


@pytest.mark.parametrize(
    "message",
    [
        Propagate(1, A0, A1),
        Propagate(1, MANAGER, A1),
        Resume(1, MANAGER, A1),
        Migrate(1, S0, A1, 0, True, ()),
        Migrate(1, A0, A1, 1, True, ()),
        Migrate(1, A0, A1, 0, True, ((OTHER, b"not announced"),)),
        Reconfigure(1, MANAGER, A1, (), (), ()),
        Reconfigure(2, MANAGER, A1, (), (), ()),
        GetMetrics(2, MANAGER, A1),
    ],
)
def test_impossible_while_staged(message):
    machine = staged().tasks[A1]
    before = machine.snapshot()
    with pytest.raises(ProtocolError, match=SHAPE):
        machine.receive(message)
    assert machine.snapshot() == before
    assert machine.store.states == {}


@pytest.mark.parametrize(
    "message",
    [
        Ack(1, Task("x", 0), MANAGER),
        Ack(1, A0, A1),
        Propagate(1, A0, MANAGER),
        Aborted(1, A0, MANAGER),
        Resumed(1, A0, MANAGER),
        Done(1, A0, MANAGER),
    ],
)
def test_impossible_for_manager(message):
    net = pair()
    net.propose(PLAN)
    with pytest.raises(ProtocolError, match=SHAPE):
        net.manager.receive(message, 0.0)


# aborts and refusals -------------------------------------------------------------------------


def test_abort():
    net = staged(redo=False)
    net.queue.clear()
    net.manager = net.new_manager()
    assert net.manager.open  # decided: too late
    net.send(net.manager.start(0.0))
    net.run()
    assert net.settled(1)


def test_abort_before_the_decision():
    net = pair()
    net.propose(PLAN)
    net.run(is_a(Ack))
    assert net.tasks[A1].record(KEY, b"1") == Hold(KEY)
    net.send(net.manager.abort(0.0))
    net.run()
    assert net.settled(1)
    assert all(machine.aborted for machine in net.tasks.values())
    assert net.records == [(A1, Forward(A0, KEY, b"1"))]
    assert net.manager.routers["a"] == net.routers["a"]
    assert net.tasks[A0].store.states == {KEY: b"state"}
    with pytest.raises(ValueError, match=SHAPE):
        net.manager.abort(0.0)
    net.propose(PLAN)  # again, in the next epoch
    net.run()
    assert net.settled(2)
    assert net.tasks[A1].store.states == {KEY: b"state"}


def test_abort_overtakes():
    """The abort comes before the configuration that it is of."""
    machine = pair().tasks[A0]
    [configuration] = [
        m
        for m in Manager(
            PLAN, PAIR, routers={"a": router(2, {KEY: 0, OTHER: 0})}, storage=MemoryStorage()
        ).start(0.0)
        if m.target == A0
    ]
    assert machine.receive(Abort(1, MANAGER, A0)) == [Aborted(1, A0, MANAGER)]
    assert machine.receive(configuration) == [Aborted(1, A0, MANAGER)]
    assert machine.phase is Phase.SETTLED


def test_abort_too_late():
    net = staged()
    with pytest.raises(ValueError, match=SHAPE):
        net.manager.abort(0.0)
    net.run()
    with pytest.raises(ProtocolError, match=SHAPE):
        net.tasks[A0].receive(Abort(1, MANAGER, A0))


def test_refused():
    """A task where another router is in force refuses; then nobody acts."""
    net = pair()
    net.tasks[A1] = Instance(A1, topology=PAIR, routers={"a": router(2, {KEY: 1})})
    net.propose(PLAN)
    net.run()
    assert net.manager.phase is ManagerPhase.IDLE
    [(task, reason)] = net.manager.refusals.items()
    assert task == A1
    assert "fingerprint" in reason
    assert net.tasks[A0].store.states == {KEY: b"state"}
    assert all(machine.aborted for machine in net.tasks.values())


def change(**fields):
    before = router(2, {KEY: 0, OTHER: 0})
    values = {
        "operator": "a",
        "version": before.version,
        "fingerprint": before.fingerprint,
        "router": PLAN["a"].to_bytes(values=False),
    }
    return RouterChange(**(values | fields))


@pytest.mark.parametrize(
    "message",
    [
        Reconfigure(1, MANAGER, A0, (change(version=3),), (), ()),
        Reconfigure(1, MANAGER, A0, (change(fingerprint=3),), (), ()),
        Reconfigure(1, MANAGER, A0, (change(operator="b"),), (), ()),
        Reconfigure(1, MANAGER, A0, (change(router=b"hostile"),), (), ()),
        Reconfigure(1, MANAGER, A0, (change(router=router(3, version=1).to_bytes()),), (), ()),
        Reconfigure(1, MANAGER, A0, (change(),), (Transfer(7, Moved()),), ()),
        Reconfigure(1, MANAGER, A0, (change(),), (), (Transfer(0, Moved()),)),
        Reconfigure(1, MANAGER, A0, (), (Transfer(1, Moved((KEY,))),), ()),
    ],
)
def test_refuses(message):
    machine = pair().tasks[A0]
    [answer] = machine.receive(message)
    assert isinstance(answer, Refuse)
    assert machine.phase is Phase.SETTLED


def test_gives_up():
    net = pair(abort_after=10.0, resend_after=3.0)
    net.propose(PLAN)
    lost = list(net.queue)
    net.queue.clear()
    assert net.manager.tick(1.0) == []
    assert net.manager.tick(3.0) == sorted(lost, key=lambda m: m.target)
    assert {type(m) for m in net.manager.tick(10.0)} == {Abort}


def test_not_worth_it():
    """Statistics were collected and no plan came of it."""
    net = pair()
    net.send(net.manager.collect(0.0))
    net.run()
    assert net.manager.abort(0.0) == []
    assert net.manager.epoch == 0
    net.propose(PLAN)
    net.run()
    assert net.settled(1)


# crashes -------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.booleans(), st.booleans(), st.integers(0, 5))
def test_manager_crash(after, redo, pause, sent):
    """A manager dies after so many deliveries, and in the middle of what it sends."""
    net = pair(pause=pause)
    net.propose(PLAN)
    for _ in range(after):
        if net.queue:
            net.deliver(net.queue.popleft())
    while net.queue and net.queue[-1].source == MANAGER and sent:
        net.queue.pop()
        sent -= 1
    net.manager = net.new_manager(redo=redo)
    net.send(net.manager.start(0.0))
    for now in range(1, 20):
        net.run()
        net.send(net.manager.tick(10.0 * now))
    assert net.settled(1)
    applied = net.manager.routers["a"] == PLAN["a"]
    assert net.tasks[A1 if applied else A0].store.states == {KEY: b"state"}
    assert net.tasks[S0].owner("a", KEY) == int(applied)
    assert applied or not redo


def test_stored_before_sent():
    class Loud(MemoryStorage):
        def create(self, name, data):
            assert not sent, f"{name} came after {sent}"
            return super().create(name, data)

    sent = []
    manager = Manager(None, PAIR, routers={"a": router(2, {KEY: 0, OTHER: 0})}, storage=Loud())
    sent = manager.propose(PLAN, 0.0)
    assert len(sent) == 4
    answers, sent = [Ack(1, task, MANAGER) for task in PAIR.all_tasks], []
    for answer in answers:
        out = manager.receive(answer, 0.0)
    assert manager.storage.read("000000000001.outcome") == b"decided"
    assert [type(m) for m in out] == [Propagate] * 2


def test_storage_fails():
    """Where the configuration cannot be stored nothing is begun."""

    class Broken(MemoryStorage):
        def create(self, name, data):
            raise OSError("no space left")

    manager = Manager(None, PAIR, routers={"a": router(2, {KEY: 0, OTHER: 0})}, storage=Broken())
    with pytest.raises(OSError, match="no space"):
        manager.propose(PLAN, 0.0)
    assert manager.phase is ManagerPhase.IDLE
    assert manager.epoch == 0


def test_two_managers():
    """Of two managers that begin an epoch one is stopped; what one decided holds for both."""
    net = pair()
    other = net.new_manager()
    net.propose(PLAN)
    with pytest.raises(FencedError, match=SHAPE):
        other.propose(PLAN, 0.0)
    twin = net.new_manager(redo=False)  # takes the first for dead
    net.send(twin.start(0.0))
    assert net.storage.read("000000000001.outcome") == b"aborted"
    net.run()  # all answers go to the first, which finds the abort
    assert net.manager.phase is ManagerPhase.IDLE
    assert all(machine.aborted for machine in net.tasks.values())
    assert twin.tick(10.0) == []  # ended by the first
    assert twin.phase is ManagerPhase.IDLE


def test_overtaken_manager():
    net = pair()
    net.propose(PLAN)
    old = net.manager
    net.queue.clear()
    net.manager = net.new_manager()
    net.send(net.manager.start(0.0))
    net.run()
    net.propose(BACK)
    net.run()
    assert net.settled(2)
    with pytest.raises(FencedError, match=SHAPE):
        old.tick(10.0)


def test_lost_storage():
    """A manager whose storage is gone is told so by every task, and nothing is changed."""
    net, _ = everything()
    net.storage = MemoryStorage()
    net.manager = net.new_manager(routers=BACK)
    net.propose({"a": router(2, {KEY: 1, OTHER: 0}, version=3)})
    net.run()
    assert net.manager.phase is ManagerPhase.IDLE
    assert all("epoch: expected at least 2" in why for why in net.manager.refusals.values())
    assert net.tasks[A0].store.states == {KEY: b"state"}
    assert net.settled(2)


def test_zombie_collects():
    """A manager thought dead that only collects is stopped by answers to another one's plan."""
    for message in (Ack, Done, Resumed, Aborted):
        net = pair()
        net.manager.collect(0.0)
        with pytest.raises(FencedError, match=SHAPE):
            net.manager.receive(message(1, A0, MANAGER), 0.0)
    net.manager.receive(Metrics(1, A0, MANAGER, b""), 0.0)
    with pytest.raises(FencedError, match=SHAPE):
        net.manager.receive(Refuse(1, A1, MANAGER, "x"), 0.0)


def test_zombie_is_refused():
    """A manager that is overtaken hears that its tasks are further on, and goes on asking."""
    net = staged()
    assert net.manager.receive(Refuse(1, A0, MANAGER, "epoch: ..."), 0.0) == []
    assert net.manager.phase is ManagerPhase.MOVING


def test_storage_stays_small():
    net = pair()
    plan, back = PLAN, BACK
    for epoch in range(1, 9, 2):
        net.propose(plan)
        net.run()
        net.propose(back)
        net.run()
        names = net.storage.names()
        assert names == [f"{epoch + 1:012d}.{what}" for what in ("configuration", "end", "outcome")]
        plan = {"a": router(2, {KEY: 1, OTHER: 0}, version=epoch + 2)}
        back = {"a": router(2, {KEY: 0, OTHER: 0}, version=epoch + 3)}


def test_manager_of_finished():
    net = pair()
    net.propose(PLAN)
    net.run()
    manager = net.new_manager()
    assert manager.routers["a"] == PLAN["a"]
    assert manager.epoch == 1
    assert manager.start(0.0) == []


def test_restored_is_the_same():
    """After every message of a run a task may be put in the place of its own snapshot."""
    for pause in (False, True):
        net = pair(pause=pause)
        net.propose(PLAN)
        while net.queue:
            message = net.queue.popleft()
            net.deliver(message)
            for task, machine in net.tasks.items():
                data = machine.snapshot()
                copy = Instance.restore(data, topology=PAIR, store=machine.store)
                assert copy.snapshot() == data
                net.tasks[task] = copy
            if isinstance(message, Propagate) and message.target == A1:
                assert not isinstance(net.tasks[A1].record(KEY, b"1"), Forward)
                net.tasks[S0].route("a", KEY, b"2")
        assert net.settled(1)
        assert net.tasks[A1].store.states == {KEY: b"state"}


def test_revision_says_when_to_write():
    net = staged()
    machine = net.tasks[A1]
    seen = {}
    while net.queue:
        net.deliver(net.queue.popleft())
        machine.record(KEY, b"1")
        machine.record(1, b"1")
        data = machine.snapshot()
        assert seen.setdefault(machine.revision, data) == data


# bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (3, TypeError),
        ({"a": 3}, TypeError),
        ({"s": router(2, version=1)}, ValueError),
        ({"x": router(2, version=1)}, ValueError),
        ({"a": router(2, {KEY: 1}, version=0)}, ValueError),
        ({"a": router(3, version=1)}, ValueError),
        ({"a": pr.Router(pr.StormHash(2, key_type="long"), version=1)}, ValueError),
    ],
)
def test_bad_plans(plan, error):
    net = pair()
    with pytest.raises(error, match=SHAPE):
        net.propose(plan)
    assert net.storage.names() == []
    net.propose(PLAN)
    net.run()
    assert net.settled(1)


def test_plan_of_the_planner():
    """A plan as `rebalance` gives it; one made for another router is refused."""
    names = [f"user{i}" for i in range(50)]
    before = pr.Router(2)
    snapshot = pr.Snapshot(names, costs=[1.0 + i * i for i in range(50)], state_sizes=[8] * 50)
    plan = pr.rebalance(snapshot, before, max_imbalance=0.0)
    net = Net(PAIR, {"a": before})
    for name, key, task in zip(names, pr.keys(names).ids, before.route(names), strict=True):
        net.tasks[Task("a", int(task))].store.put(int(key), name.encode())
    net.propose({"a": plan})
    net.run()
    after = before.apply(plan)
    for name, key, task in zip(names, pr.keys(names).ids, after.route(names), strict=True):
        assert net.tasks[Task("a", int(task))].store.states[int(key)] == name.encode()
    with pytest.raises(ValueError, match=SHAPE):
        net.propose({"a": plan})


def test_plan_with_routers():
    class Colocated:
        routers = PLAN

    net = pair()
    net.propose(Colocated())
    net.run()
    assert net.settled(1)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Instance(("x", 0), topology=PAIR, routers={"a": router(2)}), ValueError),
        (lambda: Instance(A0, topology=PAIR, routers={}), ValueError),
        (lambda: Instance(A0, topology=PAIR, routers={"a": router(3)}), ValueError),
        (lambda: Instance(A0, topology=PAIR, routers={"a": router(2)}, capacity=-1), ValueError),
        (lambda: Instance(A0, topology=PAIR, routers={"a": router(2)}, chunk=1.5), TypeError),
        (lambda: Manager(None, PAIR, routers={}, storage=MemoryStorage()), ValueError),
        (
            lambda: Manager(None, PAIR, routers={"a": router(3)}, storage=MemoryStorage()),
            ValueError,
        ),
        (
            lambda: Manager(
                *(None, PAIR), routers={"a": router(2)}, storage=MemoryStorage(), resend_after="1"
            ),
            TypeError,
        ),
    ],
)
def test_bad_machines(make, error):
    with pytest.raises(error, match=SHAPE):
        make()


def test_bad_routes():
    machine = pair().tasks[S0]
    with pytest.raises(ValueError, match=SHAPE):
        machine.route("b", KEY, b"1")


def test_plan_while_open():
    net = pair()
    net.propose(PLAN)
    with pytest.raises(ValueError, match=SHAPE):
        net.new_manager(PLAN)
    with pytest.raises(ValueError, match=SHAPE):
        Manager(None, CHAIN, routers={"a": router(2), "b": router(3)}, storage=net.storage)
    with pytest.raises(ProtocolError, match=SHAPE):
        net.propose(PLAN)


# the tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [INSTANCE_TABLE, MANAGER_TABLE])
def test_tables_are_whole(table):
    """Every phase can be left and reached, and every action exists."""
    owner = Instance if table is INSTANCE_TABLE else Manager
    phases = set(type(table.rows[0].phase))
    assert {row.phase for row in table.rows} == phases
    assert {to for row in table.rows for to in row.to if to is not row.phase} == phases
    for row in table.rows:
        assert hasattr(owner, f"_{row.action}"), row
        assert row.says or row.action == "ignore", row
