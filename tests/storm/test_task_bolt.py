"""Keyed state on disk: commits, torn ends, owners that lost, ids that come again."""

import base64
import errno
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from effort import effort
from pyroute import FormatError
from pyroute.protocol import FencedError
from pyroute.storm.__main__ import _manager, _parser, main
from pyroute.storm.state import _MAGIC, KeyedState, Log, Seen, _frame, identity, read_state
from pyroute.storm.task_bolt import numbers_of, snapshot_of

from .jvm import Jvm, setup
from .pipes import Cluster, Component

# the log ----------------------------------------------------------------------------------------


def test_second_start_continues(tmp_path):
    with Log.open(tmp_path) as log:
        assert log.loaded == []
        log.append([(b"B", b"base")])
        log.append([(b"A", b"one"), (b"A", b"")])
    with Log.open(tmp_path) as log:
        assert log.loaded == [[(b"B", b"base")], [(b"A", b"one"), (b"A", b"")]]
        log.append([(b"B", b"all")])
    assert Log.open(tmp_path).loaded == [[(b"B", b"all")]]


def test_torn_end_is_no_commit(tmp_path):
    """Cut anywhere, or damaged in its end: what is read is a prefix of what was committed."""
    with Log.open(tmp_path) as log:
        log.append([(b"B", b"base")])
        for i in range(5):
            log.append([(b"A", bytes([i]) * 10)])
    (segment,) = tmp_path.iterdir()
    data = segment.read_bytes()
    whole = [[(b"B", b"base")]] + [[(b"A", bytes([i]) * 10)] for i in range(5)]
    rng = random.Random(0)
    for cut in [*range(0, len(data), 3), *(-1 for _ in range(30))]:
        copy = bytearray(data[:cut]) if cut >= 0 else bytearray(data)
        if cut < 0:
            last = len(data) - len(_frame([(b"A", bytes(10))]))
            copy[rng.randrange(last, len(copy))] ^= 1 << rng.randrange(8)
        folder = tmp_path / f"copy{random.random()}"
        folder.mkdir()
        (folder / segment.name).write_bytes(copy)
        found = Log.open(folder).loaded
        assert found == whole[: len(found)]
        assert len(found) < len(whole)


def test_damage_before_the_end_is_refused(tmp_path):
    """What follows it was acked: to go on from before it would lose that without a word."""
    with Log.open(tmp_path) as log:
        log.append([(b"B", b"base")])
        sizes = [log._size]
        for i in range(5):
            log.append([(b"A", bytes([i]) * 10)])
            sizes.append(log._size)
    (segment,) = tmp_path.iterdir()
    data = segment.read_bytes()
    for begin in [len(_MAGIC), *sizes[:-2]]:
        for at in (4, 8, 12):  # checksum, section, content; a damaged length looks like an end
            damaged = bytearray(data)
            damaged[begin + at] ^= 4
            segment.write_bytes(damaged)
            for opened in (Log.open, read_state):
                with pytest.raises(FormatError, match=f"got damage at byte {begin} of {len(data)}"):
                    opened(tmp_path)


def test_zeros_at_the_end_are_torn(tmp_path):
    """As after a power failure: the length of a file is on disk, what was written is not."""
    with Log.open(tmp_path) as log:
        log.append([(b"B", b"base")])
    (segment,) = tmp_path.iterdir()
    segment.write_bytes(segment.read_bytes() + bytes(100) + b"later page")
    assert Log.open(tmp_path).loaded == [[(b"B", b"base")]]


def test_a_base_that_went_missing_is_refused(tmp_path):
    """A first segment without a base was never believed; a later one was."""
    (tmp_path / "00000001.log").write_bytes(_MAGIC + b"torn")
    (tmp_path / "00000002.log").write_bytes(b"")
    with Log.open(tmp_path) as log:
        assert log.loaded == []
        log.append([(b"B", b"base")])
    (segment,) = tmp_path.iterdir()
    segment.write_bytes(segment.read_bytes()[:-1])
    for opened in (Log.open, read_state):
        with pytest.raises(FormatError, match="expected a segment with its base, got none"):
            opened(tmp_path)


def test_full_disk(tmp_path, monkeypatch):
    """What does not fit is taken back: nothing is half there, and the next owner goes on."""
    write = os.write

    def full(file, data):
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(file, data[: min(len(data), left[0])])
        left[0] -= done
        return done

    with Log.open(tmp_path) as log:
        log.append([(b"B", b"base")])
        size = log._size
        left = [5]
        monkeypatch.setattr("os.write", full)
        with pytest.raises(OSError, match="No space"):
            log.append([(b"A", bytes(100))])
        assert (tmp_path / "00000001.log").stat().st_size == size
    left = [20]
    with Log.open(tmp_path) as log, pytest.raises(OSError, match="No space"):
        log.append([(b"B", bytes(100))])
    assert (tmp_path / "00000002.log").stat().st_size == 0
    left = [1000]
    with Log.open(tmp_path) as log:
        assert log.loaded == [[(b"B", b"base")]]
        log.append([(b"B", b"all")])
    assert [path.name for path in tmp_path.iterdir()] == ["00000003.log"]


def test_foreign_file(tmp_path):
    (tmp_path / "00000001.log").write_bytes(b"something else")
    for _ in range(2):
        with pytest.raises(FormatError, match="expected a log of pyroute"):
            Log.open(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1  # Storm starts it again and again


def test_the_newest_owner_wins(tmp_path):
    """Who had the directory before cannot commit any more; what it had committed stays."""
    old = Log.open(tmp_path)
    old.append([(b"B", b"base")])
    old.append([(b"A", b"mine")])
    new = Log.open(tmp_path)
    assert new.loaded == [[(b"B", b"base")], [(b"A", b"mine")]]
    with pytest.raises(FencedError, match="got another owner"):
        old.append([(b"A", b"too late")])
    with pytest.raises(FencedError):
        old.compact([(b"B", b"too late")])
    new.append([(b"B", b"base, mine")])
    assert Log.open(tmp_path).loaded == [[(b"B", b"base, mine")]]


def test_two_owners_before_either_has_a_base(tmp_path):
    with Log.open(tmp_path) as log:
        log.append([(b"B", b"base")])
    first, second = Log.open(tmp_path), Log.open(tmp_path)
    assert first.loaded == second.loaded == [[(b"B", b"base")]]
    with pytest.raises(FencedError):
        first.append([(b"B", b"first")])
    second.append([(b"B", b"second")])
    assert Log.open(tmp_path).loaded == [[(b"B", b"second")]]


def test_compaction(tmp_path):
    log = Log.open(tmp_path)
    log.append([(b"B", b"")])
    while not log.full:
        log.append([(b"A", bytes(1 << 20))])
    log.compact([(b"B", b"all of it")])
    assert len(list(tmp_path.iterdir())) == 1
    log.append([(b"A", b"more")])
    assert Log.open(tmp_path).loaded == [[(b"B", b"all of it")], [(b"A", b"more")]]


# ids that were seen -----------------------------------------------------------------------------


def test_identity():
    assert identity("a") == ("a", None)
    assert identity(7) == ("7", None)
    assert identity(["s", 3]) == ('["s",3]', ("s", 3))
    assert identity(["s", 3, "count", 0]) == ('["s",3,"count",0]', ("s", 3))
    assert identity('["s", 3]') == ('["s", 3]', ("s", 3))
    for text in ("[s", "[]", '["s"]', '["s","t"]', "[" * 100_000):
        assert identity(text) == (text, None)
    for bad in (None, 1.5, [], ["s"], ["s", "t"], {}):
        with pytest.raises(ValueError, match="id: expected"):
            identity(bad)


def test_forgotten_by_time():
    seen = Seen(seconds=80)
    for second in range(200):
        seen.add(f"id{second}", 1, float(second))
        seen.expire(float(second))
        for age in range(80):  # never before its time
            if second >= age:
                assert f"id{second - age}" in seen
    assert "id100" not in seen
    assert len(seen) < 100


def test_forgotten_by_low():
    """A source that says how far it is: no clock, and late ones are known."""
    seen = Seen(seconds=10.0)
    for i in range(1000):
        seen.add(f'["s",{i}]', 1, float(i), None, ("s", i))
        seen.passed("s", max(0, i - 100))
        seen.expire(float(i))
        for old in range(max(0, i - 100), i + 1):
            assert f'["s",{old}]' in seen
    assert len(seen) < 130
    assert seen.stale("s", 898)
    assert not seen.stale("s", 899)
    assert not seen.stale("t", 0)
    seen.passed("s", 5)
    assert seen.low == {"s": 899}


def test_a_source_that_ended():
    """It says no more `low`: what it may still send stays, the ids of others do not."""
    seen = Seen(seconds=10.0)
    for source in range(5):
        for i in range(500):
            now = 500.0 * source + i
            seen.add(f'["s{source}",{i}]', 1, now, None, (f"s{source}", i))
            seen.passed(f"s{source}", max(0, i - 20))
            seen.expire(now)
        for old in range(source + 1):
            for i in range(479, 500):
                assert f'["s{old}",{i}]' in seen
        assert len(seen) < 60 + 21 * source
    for source in range(5):
        seen.passed(f"s{source}", 500)
    seen.expire(2500.0)
    assert len(seen) == 0


def test_time_begins_anew_with_every_copy():
    """Replays go on for longer than ids are kept: it is known all the same."""
    clock = [0.0]
    state = keyed(now=lambda: clock[0])
    state.touch(1, "anna")
    state.saw("a", 1, None)
    state.made("a", [["next", "default", "x", []]])
    commits = [state.changes()]
    for second in range(0, 400, 40):
        clock[0] = float(second)
        state.seen.expire(clock[0])
        assert "a" in state.seen, second
        state.saw_again("a", None)
        commits.append(state.changes())
    loaded = keyed(now=lambda: clock[0])
    loaded.load([section for commit in commits for section in commit])
    loaded.seen.expire(clock[0])
    assert list(loaded.seen.items()) == [("a", 1, [["next", "default", "x", []]])]
    clock[0] += 120.0
    loaded.seen.expire(clock[0])
    assert len(loaded.seen) == 0


def test_keys_without_state_are_forgotten():
    """Once nothing is known of their records either, which move with them until then."""
    clock = [0.0]
    state = keyed(now=lambda: clock[0])
    for number, value in enumerate(["anna", "bert"]):
        state.touch(number, value)
        state.states[number] = 1
        state.saw(f"id{number}", number, None)
    state.changes()
    state.states.pop(0)
    state.touch(0, "anna")
    state.base()
    assert set(state.values) == {0, 1}
    clock[0] = 200.0
    assert len(state.base()) == 2
    assert set(state.values) == set(state.sizes) == {1}
    assert state.take(0) is None


def keyed(now=lambda: 0.0):
    encode = lambda state: json.dumps(state).encode()  # noqa: E731
    return KeyedState(100.0, encode=encode, decode=json.loads, now=now)


def test_one_identity_is_not_two_keys():
    state = keyed()
    state.touch(7, ["anna", 1])
    state.touch(7, ("anna", 1))
    with pytest.raises(ValueError, match="'anna', 1"):
        state.touch(7, "bert")


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (False, 0), (["x", 1], ("x", True)), (1, 1.0), ("1", 1)]
)
def test_keys_of_two_types_are_two(one, other):
    """Python takes 1 for True, and so does a 64-bit identity: their states are not one."""
    state = keyed()
    state.touch(7, one)
    with pytest.raises(ValueError, match="key: expected one value with the identity"):
        state.touch(7, other)
    state.touch(7, tuple(one) if isinstance(one, list) else one)


def test_read_state_merges_no_keys(tmp_path):
    state = keyed()
    for number, value in enumerate([1, "1", 2]):
        state.touch(number, value)
        state.states[number] = number
    with Log.open(tmp_path) as log:
        log.append(state.base())
        assert read_state(tmp_path) == {1: 0, "1": 1, 2: 2}
        state.touch(3, True)
        log.append(state.changes())
    with pytest.raises(FormatError, match="state: expected one state for each key, got 1 and"):
        read_state(tmp_path)
    assert read_state(tmp_path, first=1) == {"1": 1, 2: 2, True: None}


def test_state_moves_with_what_was_seen():
    one, two = keyed(), keyed()
    for i, key in enumerate(["anna", "bert", "anna"]):
        (number,) = numbers_of([key])
        one.touch(number, key)
        one.states[number] = one.states.get(number, 0) + 1
        one.saw(f"id{i}", number, None)
    one.made("id2", [["next", "default", "x", [1]]])
    one.seen.passed("s", 7)
    (anna,) = numbers_of(["anna"])
    data = one.take(anna)
    assert one.take(anna) is None
    assert "id0" not in one.seen
    assert "id1" in one.seen
    two.put(anna, data)
    assert two.states == {anna: 2}
    assert two.values == {anna: "anna"}
    assert two.seen.find("id2") == (anna, [["next", "default", "x", [1]]])
    assert two.seen.low == {"s": 7}
    assert list(two.keys(0, 2**64 - 1)) == [anna]
    assert list(two.keys(0, anna - 1)) == []


@pytest.mark.parametrize("seed", range(20))
def test_changes_and_base_say_the_same(seed):
    """Whatever happened: loading all commits, or the base, gives what was there."""
    rng = random.Random(seed)
    state, commits, away = keyed(), [], {}
    for step in range(200):
        number = rng.randrange(10)
        what = rng.random()
        if what < 0.7 and number not in away:
            state.touch(number, f"key{number}")
            state.states[number] = state.states.get(number, 0) + 1
            state.saw(f"id{step}", number, None)
        elif what < 0.85 and number in state.values:
            away[number] = state.take(number)
        elif number in away:
            state.put(number, away.pop(number))
        if rng.random() < 0.3:
            commits.append(state.changes())
    commits.append(state.changes())
    for sections in ([s for commit in commits for s in commit], state.base()):
        loaded = keyed()
        assert loaded.load([*sections, (b"?", b"of others")]) == [(b"?", b"of others")]
        assert loaded.states == state.states
        assert loaded.values == state.values
        assert sorted(loaded.seen.items()) == sorted(state.seen.items())


# the bolt ---------------------------------------------------------------------------------------

COUNT = """
from pyroute.storm.task_bolt import TaskBolt


class Count(TaskBolt):
    commit_every = 0.02

    def apply(self, record):
        record.state = (record.state or 0) + 1
        self.emit_on([record.key, record.state], record, stream="counts")


Count(key="word", {options}).run()
"""


class OneTask(Jvm):
    """A single task, alone: its own operator, no manager."""

    def __init__(
        self,
        folder,
        options="",
        fields=("id", "word"),
        conf=None,
        script=COUNT,
        more=(),
        state=None,
    ):
        self.fields = list(fields)
        folder = Path(folder)
        folder.mkdir(exist_ok=True)
        super().__init__(script.replace("{options}", options), folder, start=False)
        self.say(
            setup(
                folder,
                {"pyroute.state": str(state or folder / "state"), **(conf or {})},
                **{
                    "task->component": {"1": "spout", "2": "count", **dict(more)},
                    "taskid": 2,
                    "source->stream->fields": {"spout": {"default": self.fields}},
                },
            )
        )
        assert "pid" in self.hear()

    def records(self, *rows):
        self.say(
            *(
                {
                    "comp": "spout",
                    "stream": "default",
                    "task": 1,
                    "id": str(i),
                    "tuple": list(values),
                }
                for i, values in rows
            )
        )

    def heard(self, acks):
        """What is emitted until so many acks, but for logs."""
        out = []
        while sum(m["command"] == "ack" for m in out) < acks:
            message = self.hear()
            assert message is not None, self.errors()
            if message["command"] not in ("log", "sync"):
                out.append(message)
        return out


def emitted(messages):
    return [m["tuple"] for m in messages if m["command"] == "emit"]


def test_acked_after_the_commit(tmp_path):
    with OneTask(tmp_path) as task:
        task.records((11, ["a", "anna"]), (12, ["b", "bert"]), (13, ["c", "anna"]))
        heard = task.heard(acks=3)
        assert emitted(heard) == [["anna", 1], ["bert", 1], ["anna", 2]]
        assert [m["anchors"] for m in heard if m["command"] == "emit"] == [["11"], ["12"], ["13"]]
        # Acks come last: whoever sees one finds the state on disk.
        assert [m["id"] for m in heard if m["command"] == "ack"] == ["11", "12", "13"]
        assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 2, "bert": 1}


def test_killed_and_replayed(tmp_path):
    """A record that was committed is not applied again; what it had made is sent again."""
    with OneTask(tmp_path) as task:
        task.records((11, ["a", "anna"]), (12, ["b", "anna"]))
        task.heard(acks=2)
    with OneTask(tmp_path) as task:
        task.records((21, ["a", "anna"]), (22, ["c", "anna"]), (23, ["b", "anna"]))
        heard = task.heard(acks=3)
        assert sorted(emitted(heard)) == [["anna", 1], ["anna", 2], ["anna", 3]]
        assert {m["anchors"][0]: m["tuple"][1] for m in heard if m["command"] == "emit"} == {
            "21": 1,
            "22": 3,
            "23": 2,
        }
    assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 3}


def test_twice_in_one_batch(tmp_path):
    with OneTask(tmp_path) as task:
        task.records(*((10 + i, [f"id{i % 3}", "anna"]) for i in range(9)))
        task.heard(acks=9)
    assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 3}


def test_twice_in_one_batch_with_outputs(tmp_path):
    """The copy sends what the first one made: that may be lost on the way to the next operator."""
    with OneTask(tmp_path) as task:
        task.records(*((10 + i, [f"id{i % 3}", "anna"]) for i in range(9)))
        heard = task.heard(acks=9)
    made = {m["anchors"][0]: m["tuple"] for m in heard if m["command"] == "emit"}
    assert made == {str(10 + i): ["anna", i % 3 + 1] for i in range(9)}


def test_late_ones_of_a_source(tmp_path):
    """With `low`, a number below it is known to be done, though its id is forgotten."""
    with OneTask(tmp_path, fields=["id", "word", "low"]) as task:
        task.records((1, [["s", 1], "anna", 0]))
        task.heard(acks=1)
        task.records((2, [["s", 9], "anna", 5]))  # all below 5 are done
        task.records((3, [["s", 1], "anna", 0]), (4, [["s", 5], "anna", 0]))
        task.heard(acks=3)
    assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 3}


def test_not_durable_says_so(tmp_path):
    with OneTask(tmp_path, options="durable=False") as task:
        task.records((11, ["a", "anna"]))
        heard = task.hear_until(lambda m: m["command"] == "ack")
        assert any("does not survive" in m.get("msg", "") for m in heard)
    assert not (tmp_path / "state").exists()


def test_without_ids_says_so(tmp_path):
    with OneTask(tmp_path, fields=["word"]) as task:
        task.records((11, ["anna"]), (12, ["anna"]))
        heard = task.hear_until(lambda m: m.get("id") == "12")
        assert any("are applied again" in m.get("msg", "") for m in heard)
    assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 2}


def test_ids_that_are_null_say_so(tmp_path):
    """As a source without ids sends them."""
    with OneTask(tmp_path) as task:
        task.records((11, [None, "anna"]), (12, [None, "anna"]))
        heard = task.hear_until(lambda m: m.get("id") == "12")
        assert sum("are applied again" in m.get("msg", "") for m in heard) == 1
    assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 2}


def test_a_batch_with_its_states(tmp_path):
    script = """
from pyroute.storm.task_bolt import TaskBolt


class Sum(TaskBolt):
    commit_every = 0.02

    def process(self, records):
        for record in records:
            record.state = {"n": (record.state or {"n": 0})["n"] + record.values[2]}


Sum(key=["word", "n"]).run()
"""
    with OneTask(tmp_path, fields=["id", "word", "n"], script=script) as task:
        task.records((1, ["a", "x", 5]), (2, ["b", "x", 5]), (3, ["c", "x", 7]))
        task.heard(acks=3)
    state = read_state(tmp_path / "state" / "count" / "0")
    assert state == {("x", 5): {"n": 10}, ("x", 7): {"n": 7}}


def test_commits_while_more_is_there(tmp_path):
    """A batch takes as long as the test says: records are committed and acked before its end."""
    script = """
import time
from pathlib import Path
from pyroute.storm.task_bolt import TaskBolt


class Slow(TaskBolt):
    commit_every = 0.02

    def apply(self, record):
        record.state = (record.state or 0) + 1
        while record.id == "id299" and not Path({file!r}).exists():
            time.sleep(0.01)
        time.sleep(0.002)


Slow(key="word").run()
"""
    file = tmp_path / "go on"
    with OneTask(tmp_path, script=script.replace("{file!r}", repr(str(file)))) as task:
        task.records(*((i, [f"id{i}", "anna"]) for i in range(300)))
        task.heard(acks=200)  # the last one is not done, and is not waited for
        assert not file.exists()
        file.touch()
        task.heard(acks=100)
    assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 300}


@pytest.mark.parametrize(
    ("fields", "row", "what"),
    [
        (["id", "other"], ["a", "anna"], "key: expected one of the fields"),
        (["id", "word"], [1.5, "anna"], "id: expected text, an int or"),
        (["id", "word"], ["a", 1.5], "expected int, str"),
        (["id", "word"], ["a"], "tuple: expected 2 fields, got 1"),
        (["id", "word"], [], "tuple: expected 2 fields, got 0"),
        (["id", "word"], ["b", True], "key: expected one value with the identity"),
        (["id", "word", "low"], ['["s",1]', "anna", None], "low: expected an int, got None"),
    ],
)
def test_bad_records(tmp_path, fields, row, what):
    """The child ends with an error, the record is not acked."""
    with OneTask(tmp_path, fields=fields) as task:
        if row[1:] == [True]:
            task.records((10, ["a", 1]))
            task.heard(acks=1)
        task.records((11, row))
        heard = []
        while (message := task.hear()) is not None:
            heard.append(message)
        assert any(what in m.get("msg", "") for m in heard if m["command"] == "error")
        assert all(m["command"] != "ack" for m in heard)
        assert task.wait() == 1


@pytest.mark.parametrize("row", [[], ["a"], ["a", "x"]])
def test_a_short_record_of_a_source(tmp_path, row):
    """As for the other bolts: an error that says what is wrong, and no ack."""
    script = "from pyroute.storm import SourceBolt\nSourceBolt(key=['word', 'n']).run()\n"
    conf = {"pyroute.operators": ["count", "next"]}
    fields = ["id", "word", "n"]
    with OneTask(tmp_path, fields=fields, script=script, conf=conf, more={"3": "next"}) as task:
        task.records((10, ["a", "x", 1]), (11, row))
        heard = task.hear_until(lambda m: m["command"] == "error")
        assert f"tuple: expected 3 fields, got {len(row)}" in heard[-1]["msg"]
        assert "11" not in [m.get("id") for m in heard]
        assert task.hear() is None
        assert task.wait() == 1


def test_a_newer_process_takes_over(tmp_path):
    """Two processes of one task: the older one stops and acks nothing more."""
    with OneTask(tmp_path) as old:
        old.records((11, ["a", "anna"]))
        old.heard(acks=1)
        other = tmp_path / "other"
        with OneTask(other, conf={"pyroute.state": str(tmp_path / "state")}) as new:
            new.records((31, ["b", "anna"]))
            new.heard(acks=1)
            old.records((12, ["c", "anna"]))
            heard = []
            while (message := old.hear()) is not None:
                heard.append(message)
            assert all(m["command"] != "ack" for m in heard)
            assert any("another owner" in m.get("msg", "") for m in heard)
            new.records((32, ["c", "anna"]))
            new.heard(acks=1)
    assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 3}


def test_another_topology_on_the_same_directory(tmp_path):
    """Another number of tasks: keys would have two owners, or none; nothing is changed."""
    with OneTask(tmp_path) as task:
        task.records((11, ["a", "anna"]))
        task.heard(acks=1)
    with OneTask(tmp_path, more={"3": "count"}) as task:
        heard = []
        while (message := task.hear()) is not None:
            heard.append(message)
        assert any("expected tasks {'count': 1}, as" in m.get("msg", "") for m in heard)
        assert task.wait() == 1
    with OneTask(tmp_path, more={"3": "other"}) as task:
        task.records((11, ["a", "anna"]), (12, ["b", "anna"]))
        task.heard(acks=2)
    assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 2}


def test_a_refused_start_disturbs_nobody(tmp_path):
    """A topology of other tasks is submitted while the right one runs: that one goes on."""
    with OneTask(tmp_path) as task:
        task.records((11, ["a", "anna"]))
        task.heard(acks=1)
        with OneTask(tmp_path / "other", more={"3": "count"}, state=tmp_path / "state") as other:
            assert other.wait() == 1
        task.records((12, ["b", "anna"]))
        task.heard(acks=1)
    assert read_state(tmp_path / "state" / "count" / "0") == {"anna": 2}


def test_no_state_directory(tmp_path):
    with OneTask(tmp_path, conf={"pyroute.state": None}) as task:
        heard = []
        while (message := task.hear()) is not None:
            heard.append(message)
        assert any("state: expected a directory" in m.get("msg", "") for m in heard)


@pytest.mark.parametrize("seed", range(effort(1)))
def test_killed_often(tmp_path, seed):
    """kill -9 between any two moments, all un-acked come again: the count is exact."""
    rng = random.Random(seed)
    left = {f"id{i}": f"key{rng.randrange(5)}" for i in range(300)}
    expected = Counter(left.values())
    for _ in range(4):
        with OneTask(tmp_path) as task:
            rows = list(left.items())
            rng.shuffle(rows)
            names = {str(i): row[0] for i, row in enumerate(rows)}
            task.records(*((i, list(row)) for i, row in enumerate(rows)))
            want = rng.randrange(len(rows) // 3 + 1)
            for message in task.heard(want) if want else ():
                if message["command"] == "ack":
                    left.pop(names[message["id"]], None)
    with OneTask(tmp_path) as task:
        if left:
            task.records(*((i, list(row)) for i, row in enumerate(left.items())))
            task.heard(acks=len(left))
    assert read_state(tmp_path / "state" / "count" / "0") == expected


# two keyed operators ----------------------------------------------------------------------------

CHAIN = """
import sys
from pyroute.storm.task_bolt import TaskBolt


class Words(TaskBolt):
    commit_every = 0.03

    def apply(self, record):
        record.state = (record.state or 0) + 1
        self.emit_keyed("letters", record.key[0], [record.key], record)


class Letters(TaskBolt):
    commit_every = 0.03

    def apply(self, record):
        record.state = (record.state or 0) + 1


{"words": Words, "letters": Letters}[sys.argv[1]]().run()
"""


def test_chain_of_keyed_operators(tmp_path):
    """Tasks route their own output; killed, both counts are exact."""
    script = tmp_path / "chain.py"
    script.write_text(CHAIN)
    control = {"pyroute": ["kind", "data"]}
    conf = {
        "pyroute.operators": ["split", "words", "letters"],
        "pyroute.state": str(tmp_path / "s"),
    }
    components = {
        "split": Component(
            [sys.executable, "-m", "pyroute.storm", "source", "--key", "word"],
            1,
            [("spout", "default", "shuffle")],
            {"default": ["id", "key"], **control},
        ),
        "words": Component(
            [sys.executable, str(script), "words"],
            2,
            [("split", "default", "direct"), ("words", "pyroute", "direct")],
            {"default": ["id", "key", "word"], **control},
        ),
        "letters": Component(
            [sys.executable, str(script), "letters"],
            2,
            [("words", "default", "direct"), ("letters", "pyroute", "direct")],
            control,
        ),
    }
    rng = random.Random(5)
    records = [f"{rng.choice('abcdefgh')}{rng.randrange(20)}" for _ in range(3000)]
    rows = [[json.dumps(["s", i]), word] for i, word in enumerate(records)]
    with Cluster(tmp_path / "c", components, rows, ["id", "word"], conf=conf) as cluster:
        cluster.timeout = 1.5
        for share in (0.2, 0.5, 0.8):
            cluster.run(lambda s=share: len(cluster.completed) > s * len(rows))
            victims = cluster.tasks("words") + cluster.tasks("letters")
            cluster.kill(rng.choice(victims))
        cluster.run(lambda: cluster.done)
        assert cluster.replays > 0
        assert not cluster.errors, cluster.story()
    counts = Counter()
    for operator, parts in (("words", 2), ("letters", 2)):
        for number in range(parts):
            counts.update(read_state(tmp_path / "s" / operator / str(number)))
    assert counts == Counter(records) + Counter(word[0] for word in records)


# the command line -------------------------------------------------------------------------------


def test_help(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    for kind in ("router", "source", "task", "manager", "scheduler", "busy", "dynamic"):
        assert f"    {kind}" in shown
        with pytest.raises(SystemExit, match="0"):
            main([kind, "--help"])
        assert f"usage: python -m pyroute.storm {kind}" in capsys.readouterr().out


def test_options_of_the_manager():
    """They reach `rebalance`; a dead band above what is allowed would make them moot."""

    def made(*arguments):
        return _manager(_parser().parse_args(["manager", *arguments]))

    assert made().options == {"max_imbalance": 0.08}
    assert made().gate.dead_band == 0.05
    strict = made("--max-imbalance", "0.02", "--algorithm", "min_table", "--max-table", "7")
    assert strict.options == {"max_imbalance": 0.02, "algorithm": "min_table", "max_table": 7}
    assert strict.gate.dead_band == 0.02
    assert made("--max-table", "-1").options["max_table"] is None
    with pytest.raises(ValueError, match="algorithm: expected none for colocate"):
        made("--planner", "colocate", "--algorithm", "readj")


def packed(**columns):
    return {
        name: base64.b64encode(np.array(values, kind).tobytes()).decode()
        for name, (values, kind) in columns.items()
    }


def test_reports_of_an_interval():
    """Several reports of a task are added up; the load of tasks that are not asked for is not."""

    def report(task, ids, costs, background):
        return {
            "task": ["count", task],
            **packed(ids=(ids, "<u8"), costs=(costs, "<f8"), counts=([2] * len(ids), "<f8")),
            **packed(sizes=([10 * i for i in ids], "<i8")),
            "background": background,
        }

    rows = [report(0, [1, 2], [1, 2], 3), report(0, [2, 3], [4, 5], 4), report(1, [2], [8], 5)]
    snapshot = snapshot_of(rows, tasks=(0, 2))
    assert snapshot.ids.tolist() == [1, 2, 3]
    assert snapshot.costs.tolist() == [1, 14, 5]
    assert snapshot.state_sizes.tolist() == [10, 20, 30]
    assert dict(snapshot.background) == {0: 7.0}
    assert dict(snapshot_of(rows).background) == {0: 7.0, 1: 5.0}
    # With arrivals: those times what a record costs, which is 2 (20 in 10) but for key 2.
    came = {**packed(ids=([2, 9], "<u8"), counts=([9, 5], "<f8")), "unnamed": 0}
    snapshot = snapshot_of(rows, arrivals=[came])
    assert snapshot.ids.tolist() == [1, 2, 3, 9]
    assert snapshot.costs.tolist() == pytest.approx([0, 9 * (14 + 3 * 2) / (6 + 3), 0, 5 * 2])
    assert snapshot.state_sizes.tolist() == [10, 20, 30, 0]
    came["unnamed"] = 7  # so that others may have come too
    assert snapshot_of(rows, arrivals=[came]).costs.tolist()[::2] == [1, 5]


def test_bad_command():
    done = subprocess.run(
        [sys.executable, "-m", "pyroute.storm", "task", "--function", "nowhere:f"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1
    assert "No module named 'nowhere'" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_kind(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["nothing"])
    assert "invalid choice" in capsys.readouterr().err
