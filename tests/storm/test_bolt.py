"""Bolts and spouts as processes: the test is the JVM."""

import json
import textwrap
import time

import pytest

from storm.jvm import Jvm, framed, heartbeat, record, setup, tick


@pytest.fixture
def start(tmp_path):
    started = []

    def start(script, *, conf=None, start=True):
        folder = tmp_path / str(len(started))
        folder.mkdir()
        jvm = Jvm(textwrap.dedent(script), folder, conf, start=start)
        started.append(jvm)
        return jvm

    yield start
    for jvm in started:
        jvm.__exit__()


ECHO = """
    from pyroute.storm import Bolt

    class Echo(Bolt):
        def process(self, records):
            for record in records:
                self.emit(record.values, anchors=record)

    Echo().run()
"""


def is_ack(message):
    return message["command"] == "ack"


def test_emits_and_acks(start):
    jvm = start(ECHO)
    assert (jvm.folder / str(jvm.pid)).is_file()
    assert jvm.pid == jvm.child.pid
    jvm.say(record(1, "a/b", 2), record(2, "\u2028", None))
    heard = [jvm.hear() for _ in range(4)]
    emits = [m for m in heard if m["command"] == "emit"]
    assert emits == [
        {"command": "emit", "anchors": ["1"], "need_task_ids": False, "tuple": ["a/b", 2]},
        {"command": "emit", "anchors": ["2"], "need_task_ids": False, "tuple": ["\u2028", None]},
    ]
    assert [m["id"] for m in heard if is_ack(m)] == ["1", "2"]
    jvm.say(heartbeat(3), record(4, "c"))
    assert [jvm.hear()["command"] for _ in range(3)] == ["sync", "emit", "ack"]


def test_closed_pipe(start):
    jvm = start(ECHO)
    assert jvm.close() == 3
    assert "stdin: expected messages of Storm, got the end of the stream" in jvm.errors()


def test_nobody_reads(start):
    jvm = start(ECHO)
    jvm.child.stdout.close()
    jvm.say(record(1, "a"))
    assert jvm.wait() == 3
    assert "stdout: expected Storm to read, got a closed pipe" in jvm.errors()


def test_truncated(start):
    jvm = start(ECHO)
    jvm.write(b'{"comp":"words","tup')
    assert jvm.close() == 1
    assert "got the end of the stream after 20 bytes" in jvm.errors()


def test_malformed_message_ends_after_those_before_it(start):
    jvm = start(ECHO)
    jvm.write(framed(record(1, "a"), b'{"tuple":[1,}', record(2, "b")))
    assert [jvm.hear()["command"] for _ in range(3)] == ["emit", "ack", "error"]
    assert jvm.hear() is None
    assert jvm.wait() == 1
    assert "message: expected JSON" in jvm.errors()


def test_error_in_user_code(start):
    jvm = start(
        """
        from pyroute.storm import Bolt

        class Broken(Bolt):
            def process(self, records):
                raise KeyError("nobody")

        Broken().run()
        """
    )
    jvm.say(record(1, "a"))
    message = jvm.hear()
    assert message["command"] == "error"
    assert "KeyError: 'nobody'" in message["msg"]
    assert jvm.hear() is None  # and no ack
    assert jvm.wait() == 1


def test_prints_go_to_the_log(start):
    jvm = start(
        """
        import os, subprocess
        print("before run")
        from pyroute.storm import Bolt

        class Loud(Bolt):
            def initialize(self, conf, context):
                print("ready", context.tasks("count"))

            def process(self, records):
                print("two\\nlines")
                os.write(1, b"raw\\n")
                subprocess.run(["echo", "from a program"])
                subprocess.run(["cat"])  # stdin is empty for everybody else

        Loud().run()
        """
    )
    assert jvm.hear() == {"command": "log", "msg": "ready (5, 6)", "level": 2 + 2**32}
    jvm.say(record(1, "a"))
    heard = jvm.hear_until(is_ack)
    assert [m["msg"] for m in heard[:-1]] == ["two", "lines"]
    jvm.close()
    for line in ("before run", "raw", "from a program"):
        assert line in jvm.errors()


@pytest.mark.parametrize(
    ("code", "logged", "elsewhere"),
    [
        ('print("no end", end="")', ["no end"], None),
        ('sys.stdout.buffer.write(b"bytes\\xff\\n")', ["bytes\\xff"], None),
        ('subprocess.run(["echo", "hi"], stdout=sys.stdout)', [], "hi"),
        (
            "sys.stdout.reconfigure(line_buffering=True); print(sys.stdout.encoding)",
            ["utf-8"],
            None,
        ),
        ('print("\\ud800")', ["\\ud800"], None),
        ('print("a\\nb", file=sys.__stdout__)', [], "a\nb"),
    ],
)
def test_whatever_is_done_with_stdout(start, code, logged, elsewhere):
    jvm = start(
        f"""
        import subprocess, sys
        from pyroute.storm import Bolt

        class Loud(Bolt):
            def process(self, records):
                {code}
                self.ack(records[0])
                raise SystemExit("enough")

        Loud().run()
        """
    )
    jvm.say(record(1, "a"))
    heard = jvm.hear_until(lambda m: m["command"] == "error")
    assert "enough" in heard[-1]["msg"]
    assert [m["id"] for m in heard if is_ack(m)] == ["1"]
    assert [m["msg"] for m in heard if m["command"] == "log"] == logged
    assert jvm.wait() == 1
    assert elsewhere is None or elsewhere in jvm.errors()


def test_error_at_the_end_is_said(start):
    jvm = start(
        """
        from pyroute.storm import Bolt

        class Broken(Bolt):
            def process(self, records):
                pass

            def finish(self):
                print("last words", end="")
                raise KeyError("in finish")

        Broken().run()
        """
    )
    assert jvm.close() == 3
    for line in ("got the end of the stream", "KeyError: 'in finish'", "last words"):
        assert line in jvm.errors()


def test_what_is_done_does_not_wait_for_the_rest(start, tmp_path):
    """All are there at once, and each takes until the test says so: acks come one by one."""
    jvm = start(
        """
        import time
        from pathlib import Path
        from pyroute.storm import Bolt

        class Slow(Bolt):
            max_batch = 1
            idle_seconds = 0.001
            idle = 0

            def process(self, records):
                while not Path(records[0].values[0]).exists():
                    time.sleep(0.005)
                self.emit([self.idle], stream="idle")

            def on_idle(self):
                self.idle += 1

        Slow().run()
        """
    )
    files = [tmp_path / str(i) for i in range(5)]
    jvm.say(*(record(i, str(file)) for i, file in enumerate(files)))
    idle = []
    for i, file in enumerate(files):
        file.touch()
        idle.append(jvm.hear()["tuple"][0])
        assert jvm.hear() == {"command": "ack", "id": str(i)}
        time.sleep(0.02)
    assert idle[-1] > idle[0]  # between batches, although input was there all the time


def test_slow_records_are_acked_in_portions(start, tmp_path):
    """All came at once: those that are done do not wait for the last one."""
    jvm = start(
        """
        import sys
        import time
        from pathlib import Path
        from pyroute.storm import Bolt

        class Slow(Bolt):
            batch_seconds = 0.02

            def process(self, records):
                for record in records:
                    time.sleep(0.002)
                    while record.id == "299" and not Path(record.values[0]).exists():
                        time.sleep(0.01)

        Slow().run()
        """
    )
    file = tmp_path / "go on"
    jvm.say(*(record(i, str(file)) for i in range(300)))
    acks = [jvm.hear() for _ in range(200)]  # the last one is not done
    assert not file.exists()
    file.touch()
    acks += [jvm.hear() for _ in range(100)]
    assert acks == [{"command": "ack", "id": str(i)} for i in range(300)]


def test_signs_of_life_while_user_code_runs_but_not_for_ever(start, tmp_path):
    jvm = start(
        """
        import time
        from pathlib import Path
        from pyroute.storm import Bolt

        class Slow(Bolt):
            keepalive_seconds = 0.02
            max_busy_seconds = 0.3

            def initialize(self, conf, context):
                pass

            def process(self, records):
                while not Path(records[0].values[0]).exists():
                    time.sleep(0.01)

        Slow().run()
        """
    )
    file = tmp_path / "go on"
    jvm.say(record(1, str(file)))
    assert jvm.hear() == {"command": "sync"}  # nobody asked: any message is a sign of life
    while jvm.hears_within(0.5):  # and then it takes the bolt for hung
        assert jvm.hear() == {"command": "sync"}
    file.touch()
    assert jvm.hear_until(is_ack)[-1]["id"] == "1"
    jvm.say(heartbeat(2))
    assert jvm.hear() == {"command": "sync"}


def test_control_ticks_and_deferred_acks_in_order(start):
    jvm = start(
        """
        from pyroute.storm import Bolt

        class Late(Bolt):
            auto_ack = False
            control_streams = frozenset({"ctl"})
            idle_seconds = 0.02

            def initialize(self, conf, context):
                self.kept = []
                self.emit([context.component, *context.tasks("count")], stream="hello")

            def process(self, records):
                self.kept += records
                self.emit(["data", *(r.values[0] for r in records)], stream="seen")

            def control(self, record):
                self.emit(["control", record.values[0]], stream="ctl", task=6)

            def tick(self):
                self.emit(["tick"])

            def on_idle(self):
                for record in self.kept:
                    self.ack(record)
                self.kept = []

        Late().run()
        """
    )
    assert jvm.hear()["tuple"] == ["bolt", 5, 6]
    data = framed(
        record(1, "a"),
        record(2, "b"),
        record(3, "x", stream="ctl"),
        record(4, "c"),
        tick(5),
    )
    jvm.write(data)
    heard = []
    while sum(map(is_ack, heard)) < 5:
        heard.append(jvm.hear())
    order = [m for m in heard if not (is_ack(m) and m["id"] in ("1", "2", "4"))]
    flat = [m.get("tuple", m.get("id")) for m in order]
    at = flat.index(["control", "x"])
    assert [x for t in flat[:at] for x in t if x != "data"] == ["a", "b"]
    assert flat[at:] == [["control", "x"], "3", ["data", "c"], ["tick"], "5"]
    assert order[at]["task"] == 6 + 2**32
    assert order[at]["stream"] == "ctl"


def test_task_ids_on_request(start):
    jvm = start(
        """
        from pyroute.storm import Bolt

        class Asks(Bolt):
            def process(self, records):
                for record in records:
                    tasks = self.emit(record.values, anchors=record, need_task_ids=True)
                    self.emit(tasks, anchors=record)

        Asks().run()
        """
    )
    jvm.say(record(1, "a"), record(2, "b"))
    for first, tasks in (("a", [5]), ("b", [6, 5])):
        message = jvm.hear()
        assert (message["tuple"], "need_task_ids" in message) == ([first], False)
        jvm.say(heartbeat(first), tasks)
        assert jvm.hear_until(lambda m: m["command"] == "emit")[-1]["tuple"] == tasks
    acked = [m["id"] for m in jvm.hear_until(lambda m: m.get("id") == "2") if is_ack(m)]
    assert acked == ["1", "2"]


def test_unknown_ack_is_refused_here(start):
    jvm = start(
        """
        from pyroute.storm import Bolt

        class Twice(Bolt):
            def process(self, records):
                self.ack(records[0])
                self.ack(records[0])

        Twice().run()
        """
    )
    jvm.say(record(1, "a"))
    heard = jvm.hear_until(lambda m: m["command"] == "error")
    assert "ack: expected the id of a tuple that waits, got '1'" in heard[-1]["msg"]
    assert jvm.wait() == 1


def test_no_pid_folder(start, tmp_path):
    jvm = start(ECHO, start=False)
    jvm.say(setup(tmp_path / "nowhere"))
    assert jvm.wait() == 1
    assert "FileNotFoundError" in jvm.errors()


def test_first_message_is_the_set_up(start):
    jvm = start(ECHO, start=False)
    jvm.say(record(1, "a"))
    assert jvm.wait() == 1
    assert "expected Setup of a bolt in state start, got Tuple" in jvm.errors()


def test_large_record(start):
    jvm = start(ECHO)
    value = "x" * (10 << 20)
    jvm.say(record(1, value))
    assert jvm.hear()["tuple"] == [value]
    assert jvm.hear() == {"command": "ack", "id": "1"}


def test_spout(start):
    jvm = start(
        """
        from pyroute.storm import Spout

        class Numbers(Spout):
            def initialize(self, conf, context):
                self.number = 0

            def next(self):
                self.number += 1
                self.emit([self.number], id=self.number)

            def failed(self, identifier):
                self.emit([identifier], id=identifier, task=5)

        Numbers().run()
        """
    )
    jvm.say({"command": "activate", "id": ""})
    assert jvm.hear() == {"command": "sync"}
    jvm.say({"command": "next", "id": ""})
    emit = {"command": "emit", "id": 1, "need_task_ids": False, "tuple": [1]}
    assert [jvm.hear(), jvm.hear()] == [emit, {"command": "sync"}]
    jvm.say({"command": "fail", "id": 1})
    emit = {"command": "emit", "id": 1, "task": 5 + 2**32, "tuple": [1]}
    assert [jvm.hear(), jvm.hear()] == [emit, {"command": "sync"}]
    jvm.say({"command": "ack", "id": 1}, {"command": "deactivate", "id": ""})
    assert [jvm.hear(), jvm.hear()] == [{"command": "sync"}] * 2


def test_like_the_tester_spout(start):
    """What Storm's own tester spout does: it emits first of all, and keeps what is pending."""
    jvm = start(
        """
        from pyroute.storm import Spout

        class Tester(Spout):
            def initialize(self, conf, context):
                self.emit(["spout initializing"])
                self.pending = {}

            def next(self):
                self.pending["a"] = "nathan"
                self.emit(["nathan"], id="a")

            def acked(self, identifier):
                del self.pending[identifier]

            def failed(self, identifier):
                self.log("emitting " + self.pending[identifier] + " on fail")
                self.emit([self.pending[identifier]], id=identifier)

        Tester().run()
        """
    )
    first = {"command": "emit", "need_task_ids": False, "tuple": ["spout initializing"]}
    assert jvm.hear() == first
    emit = {"command": "emit", "id": "a", "need_task_ids": False, "tuple": ["nathan"]}
    for request, *answers in (("next", emit), ("fail", None, emit), ("ack",)):
        jvm.say({"command": request, "id": "a"})
        for answer in answers:
            heard = jvm.hear()
            assert heard == answer or (answer is None and heard["msg"] == "emitting nathan on fail")
        assert jvm.hear() == {"command": "sync"}


def test_like_the_tester_bolt(start):
    """What Storm's own tester bolt does: it emits first of all, and skips some records."""
    jvm = start(
        """
        from pyroute.storm import Bolt

        class Tester(Bolt):
            auto_ack = False

            def initialize(self, conf, context):
                self.emit(["bolt initializing"])

            def process(self, records):
                for record in records:
                    if record.values[0] == "skip":
                        self.log(record.values[0] + " randomly skipped!")
                    else:
                        self.emit([record.values[0] + "lalala"], anchors=[record])
                        self.ack(record)

        Tester().run()
        """
    )
    assert jvm.hear()["tuple"] == ["bolt initializing"]
    jvm.say(record(1, "nathan"), record(2, "skip"), record(3, "jackson"))
    heard = [jvm.hear() for _ in range(5)]
    assert [m.get("tuple") or m.get("id") or m["msg"] for m in heard] == [
        ["nathanlalala"], "1", "skip randomly skipped!", ["jacksonlalala"], "3",
    ]  # fmt: skip
    assert heard[0]["anchors"] == ["1"]


def test_escapes_and_surrogates_survive(start):
    jvm = start(ECHO)
    raw = json.dumps(record(1, '😀 \\ " \u007f', "\ud800", 2**70, 1e300)).encode()
    jvm.write(framed(raw))
    assert jvm.hear()["tuple"] == ['😀 \\ " \u007f', "\ud800", 2**70, 1e300]


def test_nan_may_come_but_not_go(start):
    jvm = start(ECHO)
    jvm.write(framed(b'{"comp":"words","tuple":[NaN],"task":3,"stream":"default","id":"7"}'))
    message = jvm.hear()
    assert message["command"] == "error"
    assert "expected what JSON can say" in message["msg"]
    assert jvm.wait() == 1
