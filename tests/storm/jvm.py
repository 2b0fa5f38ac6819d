"""The side of the JVM, as far as a child can tell: pipes, and messages as Storm writes them."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 300.0
"""Seconds after which a test gives up; never an expectation."""

QUIET = """
import pyroute.storm.bolt
pyroute.storm.bolt._Child.keepalive_seconds = 1000.0
"""
"""On a busy machine any test may take a second, and a sign of life would come in between."""

TASKS = {"1": "__acker", "2": "words", "3": "words", "4": "bolt", "6": "count", "5": "count"}


def text(message):
    return json.dumps(message, separators=(",", ":")).replace("/", "\\/")


def framed(*messages):
    """Bytes of messages; text is taken as it is."""
    return b"".join(
        (m if isinstance(m, bytes) else text(m).encode()) + b"\nend\n" for m in messages
    )


def setup(pid_dir, conf=None, **context):
    return {
        "pidDir": str(pid_dir),
        "context": {
            "task->component": TASKS,
            "taskid": 4,
            "componentid": "bolt",
            "streams": ["default", "ctl"],
            "source->stream->fields": {"words": {"default": ["word", "n"]}},
            "stream->target->grouping": {"default": {"count": {"type": "DIRECT"}}},
            **context,
        },
        "conf": conf or {},
    }


def record(identifier, *values, comp="words", stream="default", task=3):
    return {
        "comp": comp,
        "tuple": list(values),
        "task": task,
        "stream": stream,
        "id": str(identifier),
    }


def tick(identifier, seconds=1):
    return record(identifier, seconds, comp="__system", stream="__tick", task=-1)


def heartbeat(identifier):
    return record(identifier, comp=None, stream="__heartbeat", task=-1)


class Jvm:
    """Starts a child from the text of a script, and talks to it."""

    def __init__(self, script, folder, conf=None, arguments=(), start=True):
        self.folder = Path(folder)
        path = self.folder / "child.py"
        path.write_text(QUIET + script)
        self.stderr = (self.folder / "stderr").open("w+b")
        self.child = subprocess.Popen(
            [sys.executable, path, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            bufsize=0,
            env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
        )
        self._buffer = b""
        if start:
            try:
                self.say(setup(self.folder, conf))
                self.pid = self.hear()["pid"]
            except BaseException:
                self.__exit__()  # nobody else knows of the child yet
                raise

    def say(self, *messages):
        self.write(framed(*messages))

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[self.child.stdin.write(view) :]

    def hear(self):
        """The next message of the child; None where it closed the pipe."""
        deadline = time.monotonic() + PATIENCE
        while (end := self._buffer.find(b"\nend\n")) < 0:
            left = deadline - time.monotonic()
            assert left > 0, f"no message after {PATIENCE} s; stderr: {self.errors()}"
            if not select.select([self.child.stdout], [], [], left)[0]:
                continue
            data = os.read(self.child.stdout.fileno(), 1 << 20)
            if not data:
                assert not self._buffer, self._buffer
                return None
            self._buffer += data
        message, self._buffer = self._buffer[:end], self._buffer[end + 5 :]
        return json.loads(message)

    def hears_within(self, seconds):
        """Whether a message comes in this time, or is there already."""
        return b"\nend\n" in self._buffer or bool(
            select.select([self.child.stdout], [], [], seconds)[0]
        )

    def hear_until(self, wanted):
        """All messages up to the first for which `wanted` holds."""
        heard = []
        while True:
            message = self.hear()
            assert message is not None, (heard, self.errors())
            heard.append(message)
            if wanted(message):
                return heard

    def close(self):
        """Close the pipes and wait; the exit code."""
        self.child.stdin.close()
        return self.wait()

    def wait(self):
        return self.child.wait(PATIENCE)

    def errors(self):
        self.stderr.seek(0)
        return self.stderr.read().decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        for end in (self.child.stdin, self.child.stdout, self.stderr):
            end.close()
