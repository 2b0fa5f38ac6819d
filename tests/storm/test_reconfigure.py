"""Keys move between tasks while records flow: counts stay exact, whatever is killed."""

import base64
import json
import random
import sys
import time
from collections import Counter, deque
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pyroute as pr
from effort import effort
from pyroute.control import ConfigStore
from pyroute.protocol import Manager, MemoryStorage, Task
from pyroute.serve import open_source
from pyroute.storm.bolt import Context
from pyroute.storm.manager import ManagerBolt
from pyroute.storm.reconfigure import Wiring
from pyroute.storm.state import read_state
from pyroute.storm.task_bolt import TaskBolt
from zookeeper import zookeeper  # noqa: F401 - a fixture

from .pipes import Cluster, Component

PYTHON = [sys.executable, "-m", "pyroute.storm"]
TASKS = 3
KEYS = 300


def words(n, seed):
    """Few have many, as streams are."""
    rng = random.Random(seed)
    return [f"word{min(rng.randrange(KEYS), rng.randrange(KEYS))}" for _ in range(n)]


def topology(folder, records, *, conf=None, task=(), manager=(), spout=False, **options):
    """spout -> split -> count, and a manager, or one as a spout; all by the command line."""
    folder = Path(folder)
    conf = {
        "pyroute.operators": ["split", "count"],
        "pyroute.manager": "manager",
        "pyroute.state": str(folder / "state"),
        "pyroute.store": f"dir:{folder / 'store'}",
        **(conf or {}),
    }
    control = {"pyroute": ["kind", "data"]}
    components = {
        "split": Component(
            [*PYTHON, "source", "--key", "word"],
            2,
            [("spout", "default", "shuffle"), ("manager", "pyroute", "direct")],
            {"default": ["id", "key", "low"], **control},
        ),
        "count": Component(
            [*PYTHON, "task", "--commit-every", "0.05", *task],
            TASKS,
            [
                ("split", "default", "direct"),
                *((name, "pyroute", "direct") for name in ("split", "count", "manager")),
            ],
            control,
        ),
        "manager": Component(
            [*PYTHON, "manager", "--plan-every", "0", "--resend-after", "0.5", *manager],
            1,
            [("split", "pyroute", "direct"), ("count", "pyroute", "direct")],
            control,
        ),
    }
    if spout:
        components["manager"].reads.clear()
        components["manager"].command.append("--spout")
        components["manager"].spout = True
    rows = [[json.dumps(["s", i]), word, "LOW"] for i, word in enumerate(records)]
    return Cluster(folder, components, rows, ["id", "word", "low"], conf=conf, **options)


def end_after_faults(cluster, records):
    """What was sent is done, some of it again; what was not sent yet is left out."""
    assert len(cluster.completed) < len(records), "all of it has to be under load"
    del cluster.records[cluster.next :]
    del records[cluster.next :]
    cluster.run(lambda: cluster.done)
    assert not cluster.errors, cluster.story()
    assert cluster.replays > 0


def counts(folder):
    """All tasks together; a key that two tasks have is an error."""
    total = {}
    for number in range(TASKS):
        for key, state in read_state(Path(folder) / "state" / "count" / str(number)).items():
            if state is not None:
                assert key not in total, f"{key} is in two tasks"
                total[key] = state
    return total


def owners(folder):
    return {
        key: number
        for number in range(TASKS)
        for key, state in read_state(Path(folder) / "state" / "count" / str(number)).items()
        if state is not None
    }


class Mover:
    """Asks for a tenth of the keys to move, again and again."""

    def __init__(self, folder, seed, url=None):
        self.store = ConfigStore.open(url or f"dir:{Path(folder) / 'store'}", timeout=60.0)
        self.random = random.Random(seed)
        self.asked = 0

    def status(self):
        found = self.store.get("test/status")
        return {} if found is None else found.value

    @property
    def done(self):
        status = self.status()
        return status.get("request", 0) >= self.asked and status.get("phase") == "idle"

    def ask(self, share=0.1):
        chosen = self.random.sample(range(KEYS), int(KEYS * share))
        table = [[f"word{i}", self.random.randrange(TASKS)] for i in chosen]
        self.asked = self.store.put("test/request", {"tables": {"count": table}}, None)
        return dict(table)


kinds = pytest.mark.parametrize("spout", [False, True], ids=["bolt", "spout"])
"""Of the manager."""


@kinds
def test_ten_percent_move_under_load(tmp_path, spout):
    """Nothing is lost, nothing comes again, every count is exact."""
    records = words(100_000, seed=1)
    mover = Mover(tmp_path, seed=1)
    with topology(tmp_path, records, spout=spout) as cluster:
        cluster.timeout = 60.0
        cluster.rate = 4000  # enough are left for the move on a fast machine, too
        cluster.run(lambda: len(cluster.completed) > 2000)
        table = mover.ask()
        cluster.run(lambda: mover.done)
        assert mover.status()["epoch"] == 1
        assert len(cluster.completed) < len(records), "the move has to be under load"
        del cluster.records[cluster.next :]
        del records[cluster.next :]
        cluster.run(lambda: cluster.done)
        assert cluster.replays == 0
        assert cluster.deaths == 0, cluster.story()
        assert not cluster.errors
    assert counts(tmp_path) == Counter(records)
    assert {key: owner for key, owner in owners(tmp_path).items() if key in table} == {
        key: task for key, task in table.items() if key in set(records)
    }


@kinds
@pytest.mark.parametrize("seed", range(effort(2)))
def test_killed_at_random_moments(tmp_path, seed, spout):
    """Children of every kind are killed while keys move: after the replays counts are exact."""
    rng = random.Random(seed)
    records = words(200_000, seed)
    mover = Mover(tmp_path, seed)
    with topology(tmp_path, records, seed=seed, spout=spout) as cluster:
        cluster.timeout = 1.5
        cluster.run(lambda: len(cluster.completed) > 500)
        for _ in range(6):
            mover.ask(share=rng.choice((0.1, 0.5)))
            steps(cluster, rng.random() * 0.3)
            for victim in rng.sample(list(cluster.children.values()), rng.choice((1, 1, 2, 3))):
                cluster.kill(victim, delay=rng.random() * 0.3)
            cluster.run(lambda: mover.done)
        assert mover.status()["epoch"] >= 6
        end_after_faults(cluster, records)
    assert counts(tmp_path) == Counter(records)


PADDED = """
from pyroute.storm.task_bolt import TaskBolt


class Padded(TaskBolt):
    commit_every = 0.05

    def apply(self, record):
        record.state = ((record.state or [0])[0] + 1, "x" * 4000)


Padded().run()
"""


@pytest.mark.parametrize("seed", range(effort(1)))
def test_killed_while_state_moves_in_parts(tmp_path, seed):
    """What was lost of a transfer comes again; no task dies of the parts that follow a gap."""
    script = tmp_path / "padded.py"
    script.write_text(PADDED)
    rng = random.Random(seed)
    records = words(200_000, seed)
    mover = Mover(tmp_path, seed)
    with topology(tmp_path, records, seed=seed, pending=100) as cluster:
        cluster.components["count"].command = [sys.executable, str(script)]
        cluster.timeout = 1.5
        cluster.run(lambda: len(cluster.completed) > 1000)
        counters = cluster.tasks("count")
        for _ in range(4):
            mover.ask(share=0.9)
            before = sum(child.parts for child in counters)
            cluster.run(lambda b=before: sum(child.parts for child in counters) > b + 3)
            cluster.kill(rng.choice(counters), delay=0.0)
            cluster.run(lambda: mover.done)
        assert not cluster.errors, cluster.story()  # of a child that ended by itself
        del cluster.records[cluster.next :]
        del records[cluster.next :]
        cluster.run(lambda: cluster.done)
    assert {key: state[0] for key, state in counts(tmp_path).items()} == Counter(records)


@kinds
def test_the_manager_plans(tmp_path, spout):
    """From measured costs, through the gate, to a table in force; counts stay exact."""
    rng = random.Random(3)
    records = [f"word{rng.randrange(12)}" for _ in range(60_000)]
    mover = Mover(tmp_path, seed=3)
    with topology(tmp_path, records, manager=["--plan-every", "0.5"], spout=spout) as cluster:
        cluster.timeout = 60.0
        cluster.run(lambda: mover.status().get("versions", {}).get("count", 0) >= 1)
        cluster.run(lambda: mover.done)
        assert "count: " in mover.status()["decision"]
        cluster.run(lambda: len(mover.status().get("loads", {}).get("count", ())) == TASKS)
        page = open_source(f"storm:dir:{tmp_path / 'store'}").read()
        assert [task.task for task in page.tasks] == [str(task) for task in range(TASKS)]
        assert sum(task.before for task in page.tasks) > 0
        assert 0 < len(page.hot_keys) <= 10
        assert {key.key.text for key in page.hot_keys} <= set(records)
        assert len(json.dumps(mover.status())) < 4000
        router = pr.Router.from_bytes(mover.store.get("test/split->count").value)
        assert router.version >= 1
        del cluster.records[cluster.next :]
        del records[cluster.next :]
        cluster.run(lambda: cluster.done)
        assert cluster.replays == 0
        assert cluster.deaths == 0, cluster.story()
    assert counts(tmp_path) == Counter(records)


@pytest.mark.parametrize("verb", ["tasks", "rings"])
def test_one_task_more(tmp_path, verb):
    """A task that waited without a key is taken in under load; counts stay exact."""
    records = words(200_000, seed=5)
    mover = Mover(tmp_path, seed=5)
    plan = ["--algorithm", "readj", "--max-table", "100"]
    options = {"conf": {"pyroute.tasks": {"count": 2}}, "manager": plan}
    with topology(tmp_path, records, **options) as cluster:
        cluster.timeout = 60.0
        cluster.run(lambda: len(cluster.completed) > 2000)
        assert set(owners(tmp_path).values()) == {0, 1}
        while verb == "tasks":  # refused for want of reports, in the first second; then for more
            before = len(cluster.errors)
            mover.store.put("test/request", {verb: {"count": 9}}, None)
            cluster.run(lambda before=before: len(cluster.errors) > before)
            if "expected tasks of 'count', got 3" in cluster.errors[-1][1]:
                break
            assert "reports: expected one" in cluster.errors[-1][1]
        cluster.errors.clear()
        mover.asked = mover.store.put("test/request", {verb: {"count": [0, 1, 2]}}, None)
        cluster.run(lambda: mover.done)
        status = mover.status()
        assert status["epoch"] == 1
        assert (verb == "tasks") == bool(status["plans"].get("count", {}).get("keys"))
        router = pr.Router.from_bytes(mover.store.get("test/split->count").value)
        assert router.tasks == (0, 1, 2)
        assert len(router.table) <= (100 if verb == "tasks" else 0)
        flowed = len(cluster.completed)
        cluster.run(lambda: len(cluster.completed) > flowed + 500)
        del cluster.records[cluster.next :]
        del records[cluster.next :]
        cluster.run(lambda: cluster.done)
        assert cluster.replays == 0
        assert not cluster.errors
    assert counts(tmp_path) == Counter(records)
    found = owners(tmp_path)
    assert {key: int(router.route([key])[0]) for key in found} == found
    assert set(found.values()) == {0, 1, 2}


PAIRS = """
import sys
from pyroute.storm.task_bolt import TaskBolt


class State(TaskBolt):
    def apply(self, record):
        record.state = (record.state or 0) + 1
        self.emit_keyed("tags", "tag of " + record.key, [], record)


class Tags(TaskBolt):
    def apply(self, record):
        record.state = (record.state or 0) + 1


{"states": State, "tags": Tags}[sys.argv[1]]().run()
"""


COLOCATE = ("--planner", "colocate", "--plan-every", "0.5", "--max-imbalance", "0.5")


def pairs(tmp_path, records, plan=COLOCATE, **options):
    """spout -> split -> states -> tags, and a manager that brings together what belongs so."""
    script = tmp_path / "pairs.py"
    script.write_text(PAIRS)
    control = {"pyroute": ["kind", "data"]}
    names = ["split", "states", "tags"]
    components = {
        "split": Component(
            [*PYTHON, "source", "--key", "state"],
            1,
            [("spout", "default", "shuffle"), ("manager", "pyroute", "direct")],
            {"default": ["id", "key"], **control},
        ),
        "states": Component(
            [sys.executable, str(script), "states"],
            2,
            [
                ("split", "default", "direct"),
                *((name, "pyroute", "direct") for name in ("split", "states", "manager")),
            ],
            {"default": ["id", "key"], **control},
        ),
        "tags": Component(
            [sys.executable, str(script), "tags"],
            2,
            [
                ("states", "default", "direct"),
                *((name, "pyroute", "direct") for name in ("states", "tags", "manager")),
            ],
            control,
        ),
        "manager": Component(
            [*PYTHON, "manager", *plan], 1, [(name, "pyroute", "direct") for name in names], control
        ),
    }
    conf = {
        "pyroute.operators": names,
        "pyroute.manager": "manager",
        "pyroute.state": str(tmp_path / "state"),
        "pyroute.store": f"dir:{tmp_path / 'store'}",
    }
    rows = [[json.dumps(["s", i]), word] for i, word in enumerate(records)]
    fields = ["id", "state"]
    cluster = Cluster(tmp_path / "c", components, rows, fields, conf=conf, **options)
    cluster.timeout = 60.0
    return cluster


def test_nothing_to_colocate_in_one_worker(tmp_path):
    """No plan can be made: the manager says why, and lives."""
    mover = Mover(tmp_path, seed=7)
    with pairs(tmp_path, [f"state{i % 40}" for i in range(60_000)]) as cluster:
        cluster.workers = 1
        said = lambda: mover.status().get("decision", "")  # noqa: E731
        cluster.run(lambda: cluster.deaths or "expected at least 2 servers" in said())
        assert cluster.deaths == 0, cluster.story()


def test_the_manager_colocates(tmp_path):
    """Keys that follow one another end up in one worker; counts of both operators stay exact."""
    rng = random.Random(7)
    records = [f"state{rng.randrange(40)}" for _ in range(60_000)]
    mover = Mover(tmp_path, seed=7)
    with pairs(tmp_path, records) as cluster:
        cluster.run(lambda: mover.status().get("epoch", 0) >= 1)
        cluster.run(lambda: mover.done)
        routers = [
            pr.Router.from_bytes(mover.store.get(f"test/{edge}").value)
            for edge in ("split->states", "states->tags")
        ]
        del cluster.records[cluster.next :]
        del records[cluster.next :]
        cluster.run(lambda: cluster.done)
        assert cluster.replays == 0
        assert not cluster.errors
    found = Counter()
    for name in ("states", "tags"):
        for number in range(2):
            found.update(read_state(tmp_path / "state" / name / str(number)))
    assert found == Counter(records) + Counter(f"tag of {word}" for word in records)
    # Storm's ids 3, 4 and 5, 6: task 0 of both operators is in one worker, task 1 in the other.
    words_ = sorted(set(records))
    ours = routers[0].route(words_) == routers[1].route([f"tag of {word}" for word in words_])
    assert ours.mean() > 0.8


@pytest.mark.parametrize("seed", range(effort(1)))
def test_chain_killed_while_keys_move(tmp_path, seed):
    """Keys of two operators in a row move at once, children of all are killed: counts are exact."""
    rng = random.Random(seed)
    records = [f"state{rng.randrange(40)}" for _ in range(200_000)]
    mover = Mover(tmp_path, seed)
    plan = ("--plan-every", "0", "--resend-after", "0.5")
    with pairs(tmp_path, records, plan, seed=seed) as cluster:
        cluster.timeout = 1.5
        cluster.run(lambda: len(cluster.completed) > 500)
        for _ in range(5):
            tables = {
                operator: [[name.format(i), rng.randrange(2)] for i in rng.sample(range(40), 20)]
                for operator, name in (("states", "state{}"), ("tags", "tag of state{}"))
            }
            mover.asked = mover.store.put("test/request", {"tables": tables}, None)
            steps(cluster, rng.random() * 0.3)
            for victim in rng.sample(list(cluster.children.values()), rng.choice((1, 2, 3))):
                cluster.kill(victim, delay=rng.random() * 0.3)
            cluster.run(lambda: mover.done)
        assert mover.status()["epoch"] >= 5
        end_after_faults(cluster, records)
    found = Counter()
    for name in ("states", "tags"):
        for number in range(2):
            part = read_state(tmp_path / "state" / name / str(number))
            part = {key: state for key, state in part.items() if state is not None}
            assert not found.keys() & part.keys(), "a key is in two tasks"
            found.update(part)
    assert found == Counter(records) + Counter(f"tag of {word}" for word in records)


def test_colocation_leaves_waiting_tasks_alone():
    """Neither a report of a task without keys is needed, nor does it get keys."""
    names = {"1": "split", "2": "states", "3": "states", "4": "states"}
    names |= {"5": "tags", "6": "tags", "7": "tags", "8": "manager"}
    context = Context({"task->component": names, "taskid": 8})
    first = {"states": 2, "tags": 2}
    bolt = ManagerBolt(planner="colocate", options={"max_imbalance": 0.5})
    bolt.wiring = Wiring(context, ["split", "states", "tags"], "manager", None, first)
    manager = SimpleNamespace(routers=bolt.wiring.first_routers())
    pairs = pr.PairSpaceSaving(100)
    words_ = [f"state{i}" for i in range(40)]
    pairs.observe(words_, [f"tag of {word}" for word in words_])
    text = base64.b64encode(pairs.to_bytes()).decode()
    bolt._planned_at = 0.0
    bolt.reports = {
        Task(name, number): {"worker": f"worker{number}", "pairs": {}}
        for name in ("states", "tags")
        for number in (0, 1)
    }
    # Pairs that came in the window count, also where the last report had none.
    bolt._recent = deque((0.0, Task("states", n), {"pairs": {"tags": text}}) for n in (0, 1, 2))
    bolt._recent.extend((1.0, task, report) for task, report in bolt.reports.items())
    routers = bolt._plan(manager)
    assert set(routers) == {"states", "tags"}, bolt.decision
    for router in routers.values():
        assert router.tasks == (0, 1)


def test_no_plan_without_reports():
    """Tasks that say nothing for a while: the manager waits for them."""
    names = {"1": "split", "2": "count", "3": "count", "4": "manager"}
    bolt = ManagerBolt(plan_every=0.5)
    assert bolt.window >= 2 * TaskBolt.report_every
    bolt.wiring = Wiring(
        Context({"task->component": names, "taskid": 4}), ["split", "count"], "manager"
    )
    manager = SimpleNamespace(routers=bolt.wiring.first_routers())
    bolt.reports = {Task("count", number): {} for number in (0, 1)}
    bolt._recent = deque()
    assert not bolt._plan(manager)
    assert bolt.decision == "count: no plan: reports: expected one at least, got none"


def test_a_gate_for_each_operator():
    """A plan of one operator does not put off that of another."""
    names = {"1": "split", "2": "count", "3": "count", "4": "sum", "5": "sum", "6": "manager"}
    bolt = ManagerBolt(plan_every=10.0)
    chain = ["split", "count", "sum"]
    bolt.wiring = Wiring(Context({"task->component": names, "taskid": 6}), chain, "manager")
    manager = SimpleNamespace(routers=bolt.wiring.first_routers())
    bolt._planned_at = 100.0
    bolt._recent = deque()
    for name in ("count", "sum"):
        for number in (0, 1):
            ids = [key for key in range(40) if manager.routers[name].route([key])[0] == number]
            ids = pr.keys(ids).ids
            report = {"task": [name, number], "background": 0.0}
            cost = 9.0 if number else 1.0
            for column, kind in (("ids", "<u8"), ("costs", "<f8"), ("counts", "<f8")):
                row = ids if column == "ids" else np.full(len(ids), cost)
                report[column] = base64.b64encode(row.astype(kind).tobytes()).decode()
            report["sizes"] = base64.b64encode(np.ones(len(ids), "<i8").tobytes()).decode()
            bolt.reports = {**getattr(bolt, "reports", {}), Task(name, number): report}
            bolt._recent.append((0.0, Task(name, number), report))
    assert set(bolt._plan(manager)) == {"count", "sum"}, bolt.decision


class Away(MemoryStorage):
    """Stable storage that cannot be reached for a while."""

    away = True

    def create(self, name, data):
        if self.away:
            raise OSError("storage is away")
        return super().create(name, data)


def test_a_request_outlives_the_storage():
    """It counts as followed once the decision is stored, not before."""
    names = {"1": "split", "2": "count", "3": "count", "4": "manager"}
    bolt, storage = ManagerBolt(), Away()
    wiring = Wiring(Context({"task->component": names, "taskid": 4}), ["split", "count"], "manager")
    routers = wiring.first_routers()
    manager = Manager(None, wiring.topology, routers=routers, storage=storage)
    bolt._send_all = lambda messages: None
    bolt._store, bolt._requested, bolt._made, bolt._began = None, 0, {}, 0.0
    value = {"tables": {"count": [["a", 1 - int(routers["count"].route(["a"])[0])]]}}
    bolt._requests = [SimpleNamespace(version=4, value=value)]
    with pytest.raises(OSError, match="storage is away"):
        bolt._begin(manager)
    assert bolt._requested == 0
    storage.away = False
    bolt._begin(Manager(None, wiring.topology, routers=routers, storage=storage))
    assert storage.names()
    assert bolt._requested == 4
    assert not bolt._requests


@kinds
def test_zookeeper_killed_during_a_move(tmp_path, zookeeper, spout):  # noqa: F811
    """Decisions in ZooKeeper: while it is away nothing is decided, records flow all the same."""
    records = words(100_000, seed=4)
    url = f"zk://{zookeeper.hosts}/{tmp_path.name}"
    mover = Mover(tmp_path, seed=4, url=url)
    options = {"conf": {"pyroute.store": url}, "manager": ["--storage", "store"], "spout": spout}
    with topology(tmp_path, records, **options) as cluster:
        cluster.timeout = 60.0
        cluster.rate = 1000  # none of them may be left before the last kill
        cluster.run(lambda: len(cluster.completed) > 200)
        for delay in (0.0, 0.1, 0.3):
            cluster.run(lambda: mover.done)
            mover.ask(share=0.3)
            steps(cluster, delay)
            zookeeper.kill()
            flowed = len(cluster.completed)
            cluster.run(lambda f=flowed: len(cluster.completed) > f + 500)
            zookeeper.start()
            cluster.run(lambda: mover.done)
        assert mover.status()["epoch"] >= 3
        del cluster.records[cluster.next :]
        del records[cluster.next :]
        cluster.run(lambda: cluster.done)
        assert cluster.replays == 0
        assert cluster.deaths == 0, cluster.story()
    mover.store.close()
    assert counts(tmp_path) == Counter(records)


def test_refused_requests(tmp_path):
    """Nonsense is reported, and nothing changes."""
    mover = Mover(tmp_path, seed=0)
    with topology(tmp_path, words(100, 0)) as cluster:
        for bad in ({"tables": {"nobody": []}}, {"tables": {"count": [["a", 99]]}}, [], "x"):
            n = len(cluster.errors)
            mover.asked = mover.store.put("test/request", bad, None)
            cluster.run(lambda n=n: len(cluster.errors) > n)
        cluster.run(lambda: cluster.done)
        assert cluster.deaths == 0, cluster.story()
    assert mover.status()["epoch"] == 0


def steps(cluster, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        cluster.step()
