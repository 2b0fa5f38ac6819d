"""What tasks say to a manager that reads no stream: the newest, through the config store."""

import json
import threading
import time
from types import SimpleNamespace

import pytest

from pyroute.control import ConfigStore
from pyroute.protocol import MANAGER, Ack, Done, Task
from pyroute.storm import inbox
from pyroute.storm.bolt import Context
from pyroute.storm.inbox import Inbox, Outbox
from pyroute.storm.manager import ManagerBolt, ManagerSpout
from pyroute.storm.reconfigure import Participant, write_message

from .jvm import Jvm, setup

COUNT = Task("count", 0)


def message(kind, epoch, task=COUNT):
    return write_message(kind(epoch=epoch, source=task, target=MANAGER))[1]


def until(what, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def store(tmp_path):
    with ConfigStore.open(f"dir:{tmp_path / 'store'}", poll=0.02) as found:
        yield found


@pytest.fixture
def outbox(tmp_path):
    """Makes them; each has a store of its own, which it closes."""
    made = []

    def make(run="run-1", task=COUNT):
        made.append(Outbox(ConfigStore.open(f"dir:{tmp_path / 'store'}"), "words", run, task))
        return made[-1]

    yield make
    for each in made:
        each.close()


def taken(found, many):
    """The next so many things that an inbox has."""
    out = []

    def more():
        out.extend(found.take())
        return len(out) >= many

    until(more)
    return out


def test_everything_arrives_once(store, outbox):
    found = Inbox(store, "words", "run-1", [COUNT])
    mine = outbox()
    ack, done = message(Ack, 3), message(Done, 3)
    mine.say("s", "{}")
    mine.say("m", ack)
    assert sorted(taken(found, 2)) == [(COUNT, "m", ack), (COUNT, "s", "{}")]
    mine.say("m", ack)  # it is there already
    mine.say("a", "[3, []]")
    assert taken(found, 1) == [(COUNT, "a", "[3, []]")]
    mine.say("m", done)
    assert taken(found, 1) == [(COUNT, "m", done)]
    mine.say("a", "[3, []]")  # again, and meant so
    assert taken(found, 1) == [(COUNT, "a", "[3, []]")]
    mine.say("m", message(Ack, 2))  # of an epoch that is over
    mine.say("m", message(Ack, 4))
    assert taken(found, 1) == [(COUNT, "m", message(Ack, 4))]
    assert store.get("words/inbox/count/0").value["said"] == [message(Ack, 4)]


def test_many_words_between_two_looks(store, outbox):
    """None of the epoch is missing, whatever was written over."""
    mine = outbox()
    said = [message(kind, 1) for kind in (Ack, Done)]
    for data in said:
        mine.say("m", data)
    for n in range(50):
        mine.say("s", json.dumps(n))
        mine.say("a", json.dumps([1, n]))
    until(lambda: (store.get("words/report/count/0") or SimpleNamespace(value={"report": ""}))
          .value["report"] == "49")  # fmt: skip
    found = Inbox(store, "words", "run-1", [COUNT])
    assert sorted(taken(found, 4)) == sorted(
        [*((COUNT, "m", data) for data in said), (COUNT, "a", "[1, 49]"), (COUNT, "s", "49")]
    )


def test_a_task_starts_anew(store, outbox):
    """Another process of the task says the same: it may be meant for another question."""
    found = Inbox(store, "words", "run-1", [COUNT])
    for _ in range(2):
        mine = outbox()
        mine.say("m", message(Ack, 5))
        mine.say("a", "[5, []]")
        assert taken(found, 2) == [(COUNT, "m", message(Ack, 5)), (COUNT, "a", "[5, []]")]


def test_a_manager_starts_anew(store, outbox):
    """A new process reads what there is; a new machine in the same process asks for it again."""
    mine = outbox()
    mine.say("m", message(Ack, 5))
    for _ in range(2):
        found = Inbox(store, "words", "run-1", [COUNT])
        assert taken(found, 1) == [(COUNT, "m", message(Ack, 5))]
    assert found.take() == []
    found.again()
    assert found.take() == [(COUNT, "m", message(Ack, 5))]


def test_an_earlier_topology_of_the_name(store, outbox):
    outbox("run-0").say("m", message(Ack, 9))
    until(lambda: store.get("words/inbox/count/0"))
    found = Inbox(store, "words", "run-1", [COUNT])
    outbox("run-1").say("m", message(Ack, 1))
    assert taken(found, 1) == [(COUNT, "m", message(Ack, 1))]


@pytest.mark.parametrize(
    "bad",
    [
        [],
        "text",
        {},
        {"run": "run-1", "life": "x", "epoch": 1, "said": [1], "asked": None},
        {"run": "run-1", "life": "x", "epoch": 1, "said": [], "asked": ["1", "q"]},
        {"run": "run-1", "life": "x", "epoch": "1", "said": [], "asked": None},
    ],
)
def test_malformed(store, outbox, bad, caplog):
    """Logged and left out; the next one is heard."""
    found = Inbox(store, "words", "run-1", [COUNT])
    store.put("words/inbox/count/0", bad, None)
    until(lambda: "inbox: expected what" in caplog.text)
    assert found.take() == []
    outbox().say("m", message(Ack, 1))
    assert taken(found, 1) == [(COUNT, "m", message(Ack, 1))]


class Away:
    """A store that cannot be reached."""

    def __init__(self):
        self.tried = threading.Event()

    def put(self, *_):
        self.tried.set()
        raise OSError("store is away")

    def close(self):
        pass


def test_a_store_that_is_away_holds_nobody_up(store, monkeypatch):
    monkeypatch.setattr(inbox, "RETRY", 0.02)
    away = Away()
    mine = Outbox(away, "words", None, COUNT)
    mine.say("m", message(Ack, 1))
    until(lambda: mine.problem == "OSError: store is away")
    mine.say("m", message(Done, 1))
    mine.say("s", "late")
    away.put = store.put
    found = Inbox(store, "words", None, [COUNT])
    assert [data for _, _, data in taken(found, 3)] == [message(Ack, 1), message(Done, 1), "late"]
    until(lambda: mine.problem is None)
    mine.close()
    assert not mine._thread.is_alive()


def test_closed_while_the_store_is_away():
    mine = Outbox(Away(), "words", None, COUNT)
    mine.say("s", "never said")
    assert mine._store.tried.wait(60)
    began = time.monotonic()
    mine.close()
    assert time.monotonic() - began < inbox.RETRY + 30
    assert not mine._thread.is_alive()


NAMES = {"1": "words", "2": "split", "3": "count", "4": "manager"}


def context(task, **more):
    return Context({"task->component": NAMES, "taskid": task, **more})


@pytest.mark.parametrize("kind", [ManagerBolt, ManagerSpout])
def test_nobody_is_heard_without_a_store(kind, tmp_path):
    manager = kind(operators=["split", "count"], state=str(tmp_path))
    with pytest.raises(ValueError, match=r"store: expected a config store .* got none"):
        manager.initialize({}, context(4))


def test_a_task_has_to_be_heard(tmp_path):
    """Nobody reads its stream, and there is no store."""
    task = Participant(operators=["split", "count"], manager="manager", state=str(tmp_path))
    raw = {"stream->target->grouping": {"pyroute": {"count": {"type": "DIRECT"}}}}
    with pytest.raises(ValueError, match=r"store: expected a config store .* got none"):
        task.initialize({}, context(3, **raw))


SPOUT = """
from pyroute.storm import ManagerSpout
ManagerSpout().run()
"""


def test_nonsense_in_the_inbox_does_not_end_the_manager(tmp_path, store):
    """Anybody may write to a store: what cannot be is logged, also after a new start."""
    conf = {
        "topology.name": "words",
        "pyroute.operators": ["split", "count"],
        "pyroute.state": str(tmp_path / "state"),
        "pyroute.store": f"dir:{tmp_path / 'store'}",
    }
    said = {"run": None, "life": "x", "epoch": 1, "said": ["nonsense", ""], "asked": [1, "{"]}
    store.put("words/inbox/count/0", said, None)
    store.put("words/report/count/0", {"run": None, "report": '{"no": "task"}'}, None)
    given = setup(tmp_path, conf, taskid=4, componentid="manager", streams=["pyroute"])
    given["context"]["task->component"] = NAMES
    given["context"]["source->stream->fields"] = {}
    with Jvm(SPOUT, tmp_path, start=False) as jvm:
        jvm.say(given)
        assert jvm.hear()["pid"] == jvm.child.pid
        heard = []
        while len(heard) < 4:
            jvm.say({"command": "next"})
            *said, _ = jvm.hear_until(lambda answer: answer["command"] == "sync")
            heard += [answer["msg"] for answer in said if answer["command"] == "log"]
        assert all(text.startswith("inbox: ") for text in heard), heard
    assert store.get("words/status").value["phase"] == "idle"
