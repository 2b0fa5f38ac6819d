"""The loop: whatever fails, the last good ratio stays, and the status says what is wrong."""

import json
import math
import sqlite3
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from pyroute.control import ConfigStore, Loop, SplitRatio, Store, edge_name
from pyroute.control import policies as p
from pyroute.control.backtest import Backtest
from pyroute.control.configurable import (
    BURST,
    DynamicConfigurable,
    attach,
    burst,
    from_document,
    to_document,
    with_shares,
)
from pyroute.control.loop import measurement
from pyroute.control.store import Reports, Sample, StoreError
from zookeeper import ZooKeeper, require

NAME = edge_name("urls", "spout", "extract")
WORKERS = ("w0", "w1", "w2", "w3")


class World:
    """Workers that report what a test sets, and two clocks."""

    def __init__(self, **options):
        self.service = dict.fromkeys(WORKERS, 5.0)
        self.wall, self.ticks = 1000.0, 50.0
        self.fails = None
        self.loop = Loop(
            NAME,
            WORKERS,
            [self.collect],
            clock=lambda: self.wall,
            ticks=lambda: self.ticks,
            **options,
        )

    def collect(self):
        if self.fails:
            raise self.fails
        return [
            Sample(
                self.wall,
                "h1",
                name,
                {"service_ms": each, "backlog": 0.0, "records_per_s": 100.0},
            )
            for name, each in self.service.items()
        ]

    def turn(self, times=1):
        for _ in range(times):
            status = self.loop.step()
            json.dumps(status.to_dict(), allow_nan=False)
            assert math.fsum(status.ratio.values()) == pytest.approx(1.0)
            self.wall += 1.0
            self.ticks += 1.0
        return status


@pytest.fixture
def config(tmp_path):
    with ConfigStore.open(f"dir:{tmp_path / 'config'}", poll=0.05) as store:
        yield store


def is_even(ratio):
    return max(ratio.values()) - min(ratio.values()) < 1e-9


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_slow_worker_is_relieved_and_comes_back(config, tmp_path):
    with Store.open(tmp_path / "control.db") as store:
        world = World(config=config, store=store)
        assert is_even(world.turn().ratio)
        world.service["w2"] = 25.0
        status = world.turn()
        assert status.changed
        assert status.version == config.get(NAME).version == 1
        assert status.ratio["w2"] < 0.1
        assert status.source == "persistence"
        assert "w2 5x the time" in status.reasons
        world.service["w2"] = 5.0
        assert is_even(world.turn(5).ratio)
        grouping, names = from_document(config.get(NAME).value)
        assert tuple(names) == WORKERS
        assert grouping == world.loop.grouping
        rows = store.decisions()
        assert [row.version for row in rows] == list(range(1, config.get(NAME).version + 1))
        assert len(store.read(0.0, 1e9)) == 4 * 7


class Rising:
    """Says that every worker takes a tenth longer in the next period, and nothing of one."""

    def predict(self, history):
        said = 1.1 * history.target[-1]
        said[3] = math.nan
        return said


def test_what_a_model_says_is_kept(tmp_path):
    with Store.open(tmp_path / "control.db") as store:
        world = World(store=store, model=Rising(), backtest=Backtest(least=3))
        world.turn()
        for _ in range(6):
            world.service = {name: 1.1 * each for name, each in world.service.items()}
            world.turn()
        rows = store.forecasts(edge=NAME)
        assert [(row.time, row.due) for row in rows] == [
            (1000.0 + turn, 1001.0 + turn) for turn in range(7)
        ]
        assert rows[0].seconds == pytest.approx(dict.fromkeys(WORKERS[:3], 0.0055))
        # Kept also while it does not count yet: it is judged by what is kept.
        assert [row.source for row in rows] == ["persistence"] * 3 + ["forecast"] * 4
    with Store.open(tmp_path / "other.db") as store:
        World(store=store).turn(3)
        assert store.forecasts() == []  # no model, no forecast


@pytest.mark.parametrize("workers", [3, 7, 9, 100])
def test_even_shares_that_a_circle_cannot_say_change_nothing(workers):
    names = [f"w{number}" for number in range(workers)]
    features = {"service_ms": 5.0, "records_per_s": 10.0}
    loop = Loop(NAME, names, [lambda: [Sample(0.0, "h", name, features) for name in names]])
    assert not any(loop.step().changed for _ in range(5))


def test_readers_follow(config):
    split = SplitRatio(NAME, 4)
    assert isinstance(split, DynamicConfigurable)
    world = World(config=config)
    with attach(config, split):
        assert is_even(split.grouping.shares())
        world.turn()
        world.service["w1"] = 50.0
        world.turn()
        wait_for(lambda: split.grouping == world.loop.grouping)
        assert split.grouping.shares()[1] < 0.1


def test_second_run_goes_on_from_what_is_in_force(config):
    first = World(config=config)
    first.service["w1"] = 50.0
    first.turn(2)
    second = World(config=config)
    second.service["w1"] = 50.0
    status = second.turn()
    assert status.version == first.loop.version
    assert status.ratio == pytest.approx(first.loop.ratio)


def test_with_ratio_moves_the_fewest(config):
    world = World(config=config)
    world.turn()
    before = world.loop.grouping.owners.copy()
    world.service["w3"] = 500.0
    world.turn()
    changed = before != world.loop.grouping.owners
    assert set(before[changed].tolist()) == {3}


def test_a_change_does_not_come_in_bursts():
    even = pr.DynamicGrouping.from_ratio([1, 1, 1])
    assert burst(even.with_ratio([7, 3, 2])) > BURST  # the fewest moves would
    changed = with_shares(even, [7, 3, 2])
    assert burst(changed) <= 2.0
    assert changed.shares() == pr.DynamicGrouping.from_ratio([7, 3, 2]).shares()


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=8).filter(any), st.integers(2, 9))
def test_burst_is_what_it_says(ratio, bits):
    grouping = pr.DynamicGrouping.from_ratio([1.0] * len(ratio), bits=bits).with_ratio(ratio)
    worst = 0.0
    for task in set(grouping.owners.tolist()):
        mine = grouping.owners == task
        ahead = np.cumsum(mine - mine.mean())
        worst = max(worst, max(ahead.max(), 0.0) - min(ahead.min(), 0.0))
    assert burst(grouping) == pytest.approx(worst, abs=1e-9)


@pytest.mark.parametrize("count", [150, 300, 2000])
def test_many_workers(count, config):
    """A third is gone: each gets a little on trial, and all of them together not much."""
    names = [f"w{number}" for number in range(count)]
    service = dict.fromkeys(names, 5.0)
    now = [0.0]

    def collect():
        return [
            Sample(now[0], "h", name, {"service_ms": each, "records_per_s": 10.0, "backlog": 0.0})
            for name, each in service.items()
        ]

    loop = Loop(NAME, names, [collect], config=config, ticks=lambda: now[0])
    config.put(NAME, {"ratio": [1] * count, "tasks": names}, 0)  # on a circle of 10 bits

    def turn(times):
        for _ in range(times):
            now[0] += 1.0
            status = loop.step()
        return status

    turn(1)
    gone = names[: count // 3]
    for name in gone:
        del service[name]
    turn(5)
    tried = 0
    for _ in range(10):
        ratio = turn(1).ratio
        assert math.fsum(ratio.values()) == pytest.approx(1.0)
        assert min(ratio[name] for name in names[len(gone) :]) > 1.0 / count
        assert max(ratio[name] for name in gone) <= 0.1 / count
        tried += min(ratio[name] for name in gone) > 0
    assert tried
    service |= dict.fromkeys(gone, 5.0)
    ratio = turn(60).ratio
    assert max(ratio.values()) - min(ratio.values()) <= 1.001 / (1 << loop.grouping.bits)


# What can go wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "while"])
def test_malformed_document(config, tmp_path, when):
    world = World(config=config)
    if when == "before":
        config.put(NAME, {"kind": "something else"}, 0)
        status = world.turn()
        assert "document" in status.problems
    else:
        world.service["w1"] = 50.0
        world.turn(2)
        config.put(NAME, {"ratio": "nonsense"}, world.loop.version)
        world.service["w1"] = 5.0
        status = world.turn(5)
        assert config.get(NAME).version > 2
    status = world.turn(3)
    assert status.problems == {}
    grouping, _ = from_document(config.get(NAME).value, 4)
    assert grouping == world.loop.grouping


@pytest.mark.parametrize(
    "value",
    [{"ratio": [10**400, 1, 1, 1]}, {"ratio": [1] * 4, "bits": 10**400}, {"ratio": [1e308] * 4}],
)
def test_a_document_of_numbers_that_are_too_large(config, value):
    """Malformed as any other: it is written again, and does not stay for ever."""
    config.put(NAME, value, 0)
    with pytest.raises(ValueError, match=r"^(ratio|bits): expected"):
        from_document(config.get(NAME).value, 4)
    world = World(config=config)
    assert "it will be written again" in world.turn().problems["document"]
    world.service["w1"] = 50.0
    assert world.turn(2).problems == {}
    assert from_document(config.get(NAME).value, 4)[0] == world.loop.grouping


def test_torn_document(config, tmp_path):
    world = World(config=config)
    world.service["w1"] = 50.0
    world.turn(2)
    for file in (tmp_path / "config").rglob("*"):
        if file.is_file() and file.stat().st_size > 60:
            file.write_bytes(file.read_bytes()[:-7])
    split = SplitRatio(NAME, 4)
    with attach(config, split):
        assert is_even(split.grouping.shares())  # none that can be read: even
        again = World(config=config)
        status = again.turn()
        assert "it will be written again" in status.problems["document"]
        again.service["w1"] = 50.0
        again.turn(2)
        wait_for(lambda: split.grouping == again.loop.grouping)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        {"ratio": []},
        {"ratio": [1, 2]},
        {"ratio": [1, "x", 1, 1]},
        {"ratio": [0, 0, 0, 0]},
        {"ratio": [1, 1, 1, float("1e400")]},
        {"ratio": [1, 1, 1, -1]},
        {"ratio": [1, 1, 1, 1], "bits": 99},
        {"ratio": [1, 1, 1, 1], "bits": "x"},
        {"ratio": [1, 1, 1, 1], "tasks": ["a"]},
        {"ratio": [1, 1, 1, 1], "grouping": "!!"},
        {"ratio": [1, 1, 1, 1], "grouping": "AAAA"},
        {"ratio": [1, 1, 1, 1], "grouping": 7},
        {"kind": "router", "ratio": [1, 1, 1, 1]},
    ],
)
def test_hostile_documents_are_refused(value):
    split = SplitRatio(NAME, 4)
    before = split.grouping
    with pytest.raises(ValueError, match=r"expected|grouping"):
        split.process_update(value)
    assert split.grouping == before


def test_documents_of_tasks_that_do_not_exist():
    text = to_document(pr.DynamicGrouping.from_ratio([1, 1, 1, 1, 1]), list("abcde"))
    with pytest.raises(ValueError, match=r"^grouping: expected tasks below 2"):
        from_document({**text, "ratio": [1, 1], "tasks": ["a", "b"]}, 2)


def test_somebody_else_writes(config):
    world = World(config=config)
    world.turn()
    config.put(NAME, {"ratio": [7, 3, 2, 1], "tasks": list(WORKERS)}, None)
    world.service["w1"] = 50.0
    status = world.turn()
    assert "somebody else" in status.problems["config"]
    assert not status.changed
    status = world.turn(2)
    assert config.get(NAME).version == world.loop.version > 1
    assert status.problems == {}


def test_somebody_else_s_ratio_is_seen_without_a_decision(config):
    """All is well, so nothing is to be written: it is in the status all the same."""
    world = World(config=config)
    world.turn()
    config.put(NAME, {"ratio": [7, 3, 2, 1], "tasks": list(WORKERS)}, None)
    said = {}

    def seen():
        status = world.turn()
        said.update(status.problems)
        return status.ratio["w0"] > 0.5

    wait_for(seen)
    assert "somebody else wrote version 1" in said["config"]
    assert world.loop.version == 1


def test_clock_that_jumps():
    world = World()
    world.turn(3)
    world.service["w1"] = 500.0
    world.turn()
    for jump in (-1e6, 2e6):
        world.wall += jump
        assert "the clock was set" in world.turn().problems["clock"]
        assert "clock" not in world.turn().problems
        assert world.loop.ratio["w1"] < 0.02
    world.service["w1"] = 5.0
    assert is_even(world.turn(25).ratio)


def test_a_worker_that_reports_nan():
    world = World()
    world.turn(2)
    world.service["w1"] = math.nan
    status = world.turn()
    assert "w1" in " ".join(status.problems)
    assert is_even(status.ratio)
    world.service["w0"] = 25.0
    status = world.turn(2)
    assert status.ratio["w1"] == pytest.approx(0.25, abs=0.001)
    assert status.ratio["w0"] < 0.1
    world.service = dict.fromkeys(WORKERS, math.nan)
    kept = dict(status.ratio)
    assert world.turn(3).ratio == kept


@pytest.mark.parametrize("policy", sorted({*p.ALL} - {"none"}))
@pytest.mark.parametrize("worker", ["w0", "w3"])
def test_a_worker_that_goes_and_comes(worker, policy):
    world = World(policy=p.make(policy))
    world.turn(2)
    del world.service[worker]
    status = world.turn(8)
    assert status.ratio[worker] <= p.Guard().probe * 1.1
    assert "silent" in status.problems[f"worker {worker}"]
    world.service[worker] = 5.0
    assert is_even(world.turn(25).ratio)


def test_reports_that_are_rarer_than_decisions():
    """Ten decisions a second and a report each second, as of the jar: nobody is silent."""
    world = World(guard=p.Guard(period=0.1))
    service = world.service
    for tenth in range(100):
        world.service = service if tenth % 10 == 0 else {"w0": 5.0}
        status = world.loop.step()
        assert status.problems == {}, tenth
        assert is_even(status.ratio)
        world.wall, world.ticks = world.wall + 0.1, world.ticks + 0.1
    service = {"w0": 5.0, "w1": 5.0, "w2": 5.0}
    for tenth in range(60):
        world.service = service if tenth % 10 == 0 else {"w0": 5.0}
        status = world.loop.step()
        world.wall, world.ticks = world.wall + 0.1, world.ticks + 0.1
    assert list(status.problems) == ["worker w3"]
    assert status.ratio["w3"] < 0.01


def test_workers_of_other_hosts_are_not_silent():
    """One that only reports is not told of them."""
    world = World(stale=math.inf)
    del world.service["w0"]
    assert world.turn(20).problems == {}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        p.Proposal({}),
        p.Proposal({"w0": 1.0}),
        p.Proposal(dict.fromkeys(WORKERS, math.nan)),
        p.Proposal(dict.fromkeys(WORKERS, -1.0)),
        p.Proposal(dict.fromkeys(WORKERS, "x")),
        p.Proposal(dict.fromkeys((*WORKERS, "nobody"), 1.0)),
        RuntimeError("no such rule"),
    ],
)
def test_policy_that_says_nonsense(answer, config):
    def policy(statistics, forecast, ratio, now):
        if isinstance(answer, Exception):
            raise answer
        return answer

    world = World(config=config)
    world.service["w1"] = 25.0
    kept = dict(world.turn(2).ratio)
    good, world.loop.policy = world.loop.policy, policy
    status = world.turn(3)
    assert "the last ratio stays" in status.problems["policy"]
    assert status.ratio == kept
    world.loop.policy = good
    assert world.turn().problems == {}


@pytest.mark.parametrize("service", [5e-324, 1e-300, 1e-10])
def test_a_record_that_takes_no_time(service):
    world = World()
    world.service["w1"] = 1000.0 * service
    status = world.turn(3)
    assert "policy" not in status.problems
    assert is_even(status.ratio)


def test_what_is_not_published_is_decided_again(config, monkeypatch):
    """Also what needs a second opinion: it was heard, whether it could be written or not."""
    world = World(config=config)
    world.turn()
    world.service["w1"] = 9.0
    world.turn()
    assert world.loop._memory.doubted == {"w1"}
    monkeypatch.setattr(config, "put", lambda *_, **__: (_ for _ in ()).throw(OSError("away")))
    status = world.turn()
    assert "away" in status.problems["config"]
    assert world.loop._memory.doubted == {"w1"}
    monkeypatch.undo()
    assert world.turn().changed


def test_all_workers_sick_at_once():
    world = World()
    world.turn(2)
    world.service = dict.fromkeys(WORKERS, 500.0)
    assert is_even(world.turn(3).ratio)
    world.service = {}
    assert "none reports" in world.turn(5).problems["workers"]
    assert is_even(world.loop.ratio)
    ban = World(policy=p.PredictedValue(), guard=p.Guard(min_healthy=0.75))
    ban.turn()
    ban.service |= {"w1": 500.0}
    ban.turn(2)
    ban.service |= {"w2": 900.0}
    status = ban.turn(2)
    assert "stay in service" in status.problems["capacity"]
    assert sum(share > 0.1 for share in status.ratio.values()) == 3


def test_reports_that_are_rarer_than_decisions_are_no_problem():
    """The jar tells once a second: what comes in between is no news."""
    world = World(guard=p.Guard(period=0.1))
    said = []

    def tenths(count, reporting=lambda at: at % 10 == 0):
        service = world.service
        for at in range(count):
            world.service = service if reporting(at) else {}
            said.append(world.loop.step().problems.get("workers"))
            world.ticks += 0.1
            world.wall += 0.1
        world.service = service

    tenths(40)
    assert set(said) == {None}
    tenths(60, lambda at: False)
    assert said[-1] == "none reports: the ratio stays"
    tenths(12)
    assert said[-1] is None


def test_all_workers_slow_at_once_is_said(config):
    """Alike, so there is nobody to turn to; but it is no good news either."""
    world = World(config=config)
    world.service["w1"] = 25.0
    kept = dict(world.turn(3).ratio)
    world.service = {name: 100 * each for name, each in world.service.items()}
    for _ in range(3):
        status = world.turn()
        assert "all workers are slow" in status.problems["capacity"]
        assert "100x the usual" in status.problems["capacity"]
        assert status.ratio == kept
    world.service = {name: each / 100 for name, each in world.service.items()}
    assert world.turn().problems == {}
    world.service["w2"] = 5000.0  # one of them: it is turned away from, and that is all
    assert "capacity" not in world.turn().problems


def test_a_process_that_stands_still_is_as_good_as_gone():
    """Its monitor still finds the process; it tells nothing of records any more."""
    world = World()
    process = {"cpu_percent": 0.0, "is_stopped": 1.0}
    world.loop._sources.append(
        lambda: [Sample(world.wall, "h1", name, process) for name in WORKERS]
    )
    world.turn(2)
    del world.service["w3"]
    status = world.turn(8)
    assert "silent" in status.problems["worker w3"]
    assert status.ratio["w3"] <= p.Guard().probe * 1.1
    world.service["w3"] = 5.0
    assert is_even(world.turn(25).ratio)


@pytest.mark.parametrize(
    "came",
    [
        [7],
        None,
        [Sample(0.0, "h1", "w1", {"service_ms": "x"})],
        [Sample(0.0, "h1", "w1", {"other": None})],
        [Sample(0.0, "h1", "w1", {"service_ms": 10**400})],
        [Sample(0.0, "h1", "w1", {"backlog": np.complex128(1)})],
        [Sample(0.0, "h1", ["w1"], {"service_ms": 5.0})],
        [Sample(0.0, None, "w1", {"service_ms": 5.0})],
        [Sample("now", "h1", "w1", {"service_ms": 5.0})],
        [Sample(0.0, "h1", "w1", None)],
    ],
)
def test_source_that_gives_nonsense(came, tmp_path):
    with Store.open(tmp_path / "control.db") as store:
        world = World(store=store)
        world.loop._sources.append(lambda: came)
        world.service["w1"] = 25.0
        status = world.turn(2)
        assert [kind for kind in status.problems if kind.startswith("source")]
        assert status.ratio["w1"] < 0.1


def test_one_sample_of_nonsense_leaves_the_others_of_its_source(tmp_path):
    with Store.open(tmp_path / "control.db") as store:
        world = World(store=store)
        good = world.loop._sources[0]
        bad = Sample(0.0, "h1", "w3", {"service_ms": "x"})
        world.loop._sources[0] = lambda: [bad, *good()]
        world.service["w1"] = 25.0
        status = world.turn(2)
        assert "expected a number, got 'x'" in " ".join(status.problems.values())
        assert status.ratio["w1"] < 0.1
        assert len(store.read(0.0, 1e9)) == 8


@pytest.mark.parametrize("name", ["\ud800", 7], ids=["half a surrogate pair", "number"])
def test_names_that_a_store_cannot_hold(name, tmp_path):
    """They cost their own sample, and nobody else's."""
    with Store.open(tmp_path / "control.db") as store:
        world = World(store=store)
        for bad in (
            Sample(0.0, "h1", name, {"service_ms": 5.0}),
            Sample(0.0, "h1", "w1", {name: 5.0}),
        ):
            world.loop._sources.append(lambda bad=bad: [bad])
        world.service["w1"] = 25.0
        status = world.turn(2)
        assert "store" not in status.problems
        assert "expected text that UTF-8 has" in " ".join(status.problems.values())
        assert status.ratio["w1"] < 0.1
        assert len(store.read(0.0, 1e9)) == 8


@pytest.mark.parametrize("rate", [1e308, math.inf, -math.inf, -1e9, math.nan])
def test_rates_that_are_nonsense(rate):
    world = World()
    world.loop._sources.append(
        lambda: [Sample(0.0, "h1", name, {"records_per_s": rate}) for name in WORKERS]
    )
    world.service["w1"] = 25.0
    assert world.turn(2).ratio["w1"] < 0.1


def test_source_that_fails():
    world = World()
    world.service["w1"] = 25.0
    world.turn(2)
    kept = dict(world.loop.ratio)
    world.fails = OSError("no such machine")
    status = world.turn()
    assert "no such machine" in " ".join(status.problems.values())
    assert status.ratio == kept


def test_store_that_is_locked(tmp_path, config):
    with Store.open(tmp_path / "control.db", busy=0.05) as store:
        world = World(config=config, store=store)
        world.turn()
        other = sqlite3.connect(tmp_path / "control.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        world.service["w1"] = 25.0
        status = world.turn(2)
        assert "locked" in status.problems["store"]
        assert status.ratio["w1"] < 0.1
        other.execute("ROLLBACK")
        other.close()
        assert world.turn().problems == {}
        assert [kind for _, kind, text in store.events() if text == "over"] == ["store"]


def test_store_that_fails_slowly_does_not_slow_the_loop(config):
    """Each try waits five seconds for a lock: there are few, and nothing is decided late."""

    class Slow(Store):
        tries, away = 0, True

        def _begin(self):
            if self.away and hasattr(self, "world"):
                self.tries += 1
                self.world.ticks += 5.0
                raise StoreError("locked")
            return super()._begin()

    with Slow.open(":memory:") as store:
        world = World(config=config, store=store)
        store.world = world
        world.service["w1"] = 25.0
        assert world.turn().ratio["w1"] < 0.1
        begun = world.ticks
        for _ in range(100):
            assert world.turn().problems["store"] == "locked; routing goes on without it"
        assert store.tries * 5.0 <= 0.15 * (world.ticks - begun) + 5.0
        store.away = False
        status = world.turn(60)
        assert status.problems == {}
        assert "over" in [text for _, kind, text in store.events() if kind == "store"]
        assert len(store.read(0.0, 1e9)) > 0


def test_store_that_is_destroyed(tmp_path):
    with Store.open(tmp_path / "control.db", busy=0.05) as store:
        world = World(store=store)
        world.turn()
        store.close()
        for file in tmp_path.glob("control.db*"):
            file.write_bytes(b"nonsense" * 1000)
        world.service["w1"] = 25.0
        status = world.turn(2)
        assert "store" in status.problems
        assert status.ratio["w1"] < 0.1


# Forecasts -------------------------------------------------------------------------------------


class Drifting(World):
    """Every worker's time goes up and down; w0's by much."""

    def turn(self, times=1):
        for _ in range(times):
            angle = self.ticks / 5.0
            self.service["w0"] = 25.0 + 20.0 * math.sin(angle)
            status = super().turn()
        return status


class Oracle:
    """Knows the next value of w0, or says something else."""

    def __init__(self, world, factor=1.0):
        self.world, self.factor = world, factor

    def predict(self, history):
        out = history.target[-1].copy()
        following = (self.world.ticks + 1.0) / 5.0
        out[0] = self.factor * (0.025 + 0.020 * math.sin(following))
        return out


def test_forecast_in_force_only_while_it_is_better():
    world = Drifting(backtest=Backtest(window=20, least=5))
    world.loop.model = model = Oracle(world)
    status = world.turn(3)
    assert status.source == "persistence"
    assert "5 steps" in status.why
    assert world.turn(10).source == "forecast"
    assert world.turn().workers["w0"]["forecast_ms"] > 0
    model.factor = 7.0
    status = world.turn(25)
    assert status.source == "persistence"
    assert "expected" in status.why
    model.factor = 1.0
    assert world.turn(40).source == "forecast"


@pytest.mark.parametrize(
    "answer", [[], [1.0], [math.nan] * 4, "text", None, [[1.0] * 4], [math.inf] * 4, [-1.0] * 4]
)
def test_model_that_says_nonsense(answer):
    class Nonsense:
        def predict(self, history):
            return answer

    world = World(model=Nonsense(), backtest=Backtest(window=20, least=2))
    world.turn(4)
    world.service["w1"] = 25.0
    status = world.turn(2)
    assert status.source == "persistence"
    assert status.ratio["w1"] < 0.1


def test_model_that_raises():
    class Broken:
        def predict(self, history):
            raise RuntimeError("no such layer")

    world = World(model=Broken())
    assert "no such layer" in world.turn().problems["model"]


def load(path):
    text = path.read_text()
    if not text.endswith("end"):
        raise pr.FormatError("weights: expected a checksum, got a torn file")
    return Oracle(load.world, float(text.split()[0]))


def test_torn_weights_file(tmp_path):
    path = tmp_path / "model.bin"
    world = Drifting(weights=path, load=load, backtest=Backtest(window=20, least=5))
    load.world = world
    status = world.turn()
    assert "model.bin" in status.problems["weights"]
    assert status.source == "persistence"
    path.write_text("1.0 end")
    assert world.turn(15).source == "forecast"
    path.write_text("1.0")  # torn: half of it was written
    status = world.turn()
    assert "torn" in status.problems["weights"]
    assert "the model before stays" in status.problems["weights"]
    assert status.source == "forecast"
    path.write_text("1.0 end ")
    path.write_text("1.00 end")
    assert world.turn().problems == {}


def predictor(weight):
    """Last value plus `weight` times the last step, of `service_ms`, for any number of workers."""
    return pr.control.Predictor.make(
        {"window": 3, "workers": 4, "features": 1, "layers2": 1, "hidden2": 1, "skip": True},
        names=["service_ms"],
        weights=[0.0] * 9 + [0.0, 0.0] + [0.0, -weight, weight],
    )


def test_predictor_of_this_package(tmp_path):
    """The native one: read from its file, in force while it is better, kept when the file tears."""
    path = tmp_path / "model.bin"
    world = Drifting(weights=path, backtest=Backtest(window=20, least=5))
    predictor(0.9).save(path)
    status = world.turn(15)
    assert status.problems == {}
    assert status.source == "forecast"
    assert status.workers["w1"]["forecast_ms"] == pytest.approx(5.0)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    status = world.turn(2)
    assert "model.bin" in status.problems["weights"]
    assert status.source == "forecast"
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    path.write_bytes(flipped + b"x")
    assert "weights" in world.turn().problems
    predictor(0.5).save(path)
    assert world.turn().problems == {}


def of_each(weights, names=()):
    """As `predictor`, with a weight of its own for each worker: not elastic."""
    shape = {"window": 3, "workers": len(weights), "features": 1, "layers2": 1, "hidden2": 1}
    return pr.control.Predictor.make(
        {**shape, "skip": True, "shared": False},
        names=["service_ms"],
        weights=np.concatenate([[0.0] * 11 + [0.0, -each, each] for each in weights]),
        worker_names=names,
    )


def test_weights_of_workers_in_another_order(tmp_path):
    """Each gets the forecast that was trained for it."""
    path = tmp_path / "model.bin"
    of_each([0.0, 0.0, 0.0, 0.9], ("w2", "w3", "w1", "w0")).save(path)
    world = Drifting(weights=path, backtest=Backtest(window=20, least=5))
    status = world.turn(15)
    assert status.problems == {}
    assert status.source == "forecast"
    last, now = (1000 * each for each in world.loop.history().target[-2:, 0])
    assert status.workers["w0"]["forecast_ms"] == pytest.approx(now + 0.9 * (now - last))
    assert status.workers["w2"]["forecast_ms"] == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("names", "count", "wrong"),
    [
        (("w0", "w1", "w2", "gone"), 4, "workers: expected w0, w1, w2, gone, got w0, w1, w2, w3"),
        (("w0", "w1", "w2"), 3, "workers: expected w0, w1, w2, got w0, w1, w2, w3"),
        ((), 3, "workers: expected 3 as it was trained on, got 4"),
    ],
)
def test_weights_of_other_workers(tmp_path, names, count, wrong):
    """Said, and the last value is used; the loop goes on, and takes a file that fits."""
    path = tmp_path / "model.bin"
    of_each([0.9] * count, names).save(path)
    world = Drifting(weights=path, backtest=Backtest(window=20, least=5))
    status = world.turn(10)
    assert status.problems == {"weights": f"model.bin: {wrong}; there is no model"}
    assert status.source == "persistence"
    world.service["w2"] = 100.0
    assert world.turn(2).ratio["w2"] < 0.1  # and decides
    of_each([0.9] * 4).save(path)  # by place, as files without names are taken
    status = world.turn(15)
    assert (status.problems, status.source) == ({}, "forecast")
    of_each([0.9] * count, names).save(path)
    status = world.turn()
    assert status.problems == {"weights": f"model.bin: {wrong}; the model before stays"}
    assert status.source == "forecast"
    world.loop.model = of_each([0.9] * count, names)  # whoever put it there
    world.loop._weights = None
    status = world.turn()
    assert status.problems == {"model": f"{wrong}; persistence is used"}
    assert status.source == "persistence"


class Line:
    """On in a straight line."""

    def __init__(self, factor):
        self.factor = factor

    def predict(self, history):
        if len(history.target) < 2:
            return history.target[-1]
        return self.factor * (2 * history.target[-1] - history.target[-2])


def test_retraining_takes_the_better_model():
    made = []

    def retrain(history):
        assert history.target.shape[1] == 4
        made.append(len(history.target))
        if len(made) == 2:
            raise RuntimeError("diverged")
        return Line(1.0 if len(made) == 1 else 9.0)

    world = Drifting(retrain=retrain, retrain_every=50.0, backtest=Backtest(window=40, least=5))

    def trained(count):
        """What was wrong until the next training was over."""
        problems = {}
        deadline = time.monotonic() + 60
        while len(made) < count or world.loop._training is not None:
            problems |= world.turn().problems
            assert time.monotonic() < deadline
        return problems | world.turn().problems

    trained(1)
    assert world.loop.model.factor == 1.0
    assert world.turn().source == "forecast"  # its back-test over the past counts
    assert "diverged" in trained(2)["training"]
    assert world.loop.model.factor == 1.0
    trained(3)
    assert world.loop.model.factor == 1.0  # the third is worse


class ByHeart:
    """Knows what it was trained on, and nothing else."""

    def __init__(self, history):
        self.known = {
            row.tobytes(): following
            for row, following in zip(history.target[:-1], history.target[1:], strict=True)
        }

    def predict(self, history):
        last = history.target[-1]
        return self.known.get(last.tobytes(), 9.0 * last)


def test_a_new_model_is_judged_by_what_it_was_not_trained_on(tmp_path):
    made = []

    def retrain(history):
        made.append(ByHeart(history))
        return made[-1]

    with Store.open(tmp_path / "control.db") as store:
        world = Drifting(store=store, retrain=retrain, retrain_every=100.0)
        world.loop.model = kept = Line(1.0)
        world.turn(101)
        wait_for(lambda: made)
        begun = world.ticks
        wait_for(lambda: world.turn() and store.events())
        assert world.ticks - begun >= 30 - 2
        assert world.loop.model is kept
        assert [text for _, kind, text in store.events() if "not taken" in text]


def test_a_new_model_that_cannot_be_judged():
    class Broken:
        def predict(self, history):
            raise RuntimeError("no such layer")

    world = Drifting(retrain=lambda history: Broken(), retrain_every=3.0)
    world.loop.model = kept = Line(1.0)
    problems = {}

    def judged():
        problems.update(world.turn().problems)
        return "training" in problems

    wait_for(judged)
    assert problems["training"] == "new model: no such layer; the model before stays"
    assert world.loop.model is kept


def test_a_broken_model_gives_way_to_a_new_one():
    class Broken:
        def predict(self, history):
            raise RuntimeError("no such layer")

    world = Drifting(retrain=lambda history: Line(1.0), retrain_every=10.0, model=Broken())
    wait_for(lambda: world.turn() and isinstance(world.loop.model, Line))


def test_history_has_what_was_measured():
    world = World()
    world.turn(3)
    history = world.loop.history()
    assert history.workers == WORKERS
    assert history.target.shape == (3, 4)
    assert np.allclose(history.target, 0.005)
    assert history.features["backlog"].shape == (3, 4)
    assert history.until(2).target.shape == (2, 4)


def test_measurement_of_storm_and_spark():
    storm = measurement({"queue_ms": 4.0, "records_per_s": 50.0})
    assert (storm.service, storm.arrived, storm.completed) == (0.004, 50.0, 50.0)
    spark = measurement({"service_ms": 200.0, "completed_per_s": 5.0, "backlog": 2.0})
    assert (spark.service, spark.completed, spark.backlog) == (0.2, 5.0, 2.0)
    odd = measurement({"service_ms": -1.0, "backlog": math.nan, "silent_s": math.inf})
    assert math.isnan(odd.service)
    assert (odd.backlog, odd.silent) == (0.0, 0.0)


def test_what_another_host_wrote_is_used_and_not_written_again(tmp_path):
    with Store.open(tmp_path / "control.db") as store:
        world = World(store=store)
        reports = Reports(store, besides="h1")
        world.loop._sources.append(reports.collect)
        world.turn()
        del world.service["w3"]
        for _ in range(3):
            late = Sample(0.0, "h2", "w3", {"service_ms": 25.0, "records_per_s": 100.0})
            store.write([late], received=world.wall)
            status = world.turn()
        assert status.ratio["w3"] < 0.1
        assert status.problems == {}
        assert len(store.read(0.0, 1e9, worker="w3")) == 4


def test_run_keeps_its_cadence_and_stops():
    loop = Loop(NAME, WORKERS, [list], guard=p.Guard(period=0.01))
    seen = []
    stop = threading.Event()
    loop.run(stop, seen.append, turns=5)
    assert [status.turn for status in seen] == [1, 2, 3, 4, 5]
    stop.set()
    loop.run(stop, seen.append)
    assert len(seen) == 5


def test_a_model_is_asked_with_what_it_looks_at():
    """No more than its window is made of what is remembered, and its answer is the same."""

    class Two:
        window, seen = 2, 0

        def predict(self, history):
            self.seen = len(history.target)
            return history.target.mean(axis=0)

    world = World(model=Two())
    world.turn()
    world.service["w1"] = 7.0
    status = world.turn()
    assert world.loop._said["w1"] == pytest.approx(0.006)
    status = world.turn(20)
    assert world.loop.model.seen == 2
    assert world.loop._said["w1"] == pytest.approx(0.007)
    assert status.problems == {}


def test_wrong_workers():
    for workers in ([], ["a", "a"]):
        with pytest.raises(ValueError, match=r"^workers: expected"):
            Loop(NAME, workers, [])


# ZooKeeper -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    require()
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started


def test_zookeeper_killed_and_restarted(server):
    url = f"zk://{server.hosts}/killed"
    options = {"timeout": 1.0, "session": 2.0}
    with ConfigStore.open(url, **options) as config, ConfigStore.open(url, **options) as other:
        split = SplitRatio(NAME, 4)
        watch = attach(other, split)
        world = World(config=config)
        world.service["w1"] = 25.0
        world.turn(2)
        wait_for(lambda: split.grouping == world.loop.grouping)
        kept = split.grouping
        server.kill()
        world.service["w1"] = 5.0
        world.ticks += 10.0
        status = world.turn(2)
        assert "config" in status.problems
        assert not status.changed
        assert split.grouping == kept  # and routes on
        assert split.grouping.assign([1, 2, 3]).size == 3
        wait_for(lambda: "expected ZooKeeper" in (watch.problem or ""))
        server.start()

        def published():
            return not world.turn().problems and is_even(world.loop.ratio)

        wait_for(published, 120.0)
        wait_for(lambda: split.grouping == world.loop.grouping, 120.0)
        assert watch.problem is None
        watch.cancel()


def test_zookeeper_session_expired(server, caplog):
    url = f"zk://{server.hosts}/expired"
    with ConfigStore.open(url, timeout=2.0) as config, ConfigStore.open(url) as other:
        split = SplitRatio(NAME, 4)
        watch = attach(other, split)
        world = World(config=config)
        world.service["w2"] = 25.0
        world.turn(2)
        wait_for(lambda: split.grouping == world.loop.grouping)
        kept = split.grouping
        server.expire(config._client)
        server.expire(other._client)
        wait_for(lambda: caplog.text.count("got the session expired") >= 2)
        assert split.grouping == kept  # and routes on
        assert split.grouping.assign([1, 2, 3]).size == 3
        said = "the session expired; the last ratio stays"
        wait_for(lambda: said in world.turn().problems.get("config", ""))
        world.service["w1"] = 25.0

        def published():
            status = world.turn()
            return not status.problems and status.ratio["w1"] < 0.1

        wait_for(published, 120.0)
        wait_for(lambda: split.grouping == world.loop.grouping, 120.0)
        watch.cancel()
