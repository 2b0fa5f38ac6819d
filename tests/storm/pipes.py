"""A small Storm made of pipes: real children, Storm's side of the protocol played here.

What matters of Storm is kept: tuples between two tasks keep their order, those of different senders
interleave at random; trees of tuples are tracked, and a record whose tree fails or takes too long
comes again, with another tuple id; what was on its way to a child that is killed is lost, and so is
what it had not written; a direct emit reaches the task that it names, if that reads the stream.

Everything runs in `Cluster.run`, one thread.
"""

import json
import os
import random
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

END = b"\nend\n"
TWO32 = 1 << 32


@dataclass
class Component:
    """A component: its command, how many tasks, what it reads and which streams it has."""

    command: list[str]
    tasks: int = 1
    reads: list[tuple[str, str, str]] = field(default_factory=list)
    """(component, stream, grouping), the grouping `shuffle` or `direct`."""
    streams: dict[str, list[str]] = field(default_factory=dict)
    spout: bool = False
    """Whether it is asked for records, again and again, instead of getting any."""


class Attempt:
    """One tree of tuples: a record that the spout sent once."""

    __slots__ = ("dead", "due", "open", "record")

    def __init__(self, record, due):
        self.record = record
        self.due = due
        self.open = 0
        self.dead = False


class Child:
    """One task: its process, and what waits for it."""

    def __init__(self, cluster, component, task):
        self.cluster, self.component, self.task = cluster, component, task
        self.process = None
        self.restart_at = 0.0
        self.starts = 0
        self.parts = 0
        """Long control messages that it got, as parts of state are."""

    def start(self):
        cluster = self.cluster
        self.channels = {}
        self.waiting = {}
        self.out = bytearray()
        self.buffer = b""
        self.greeted = False
        self.starts += 1
        name = f"{self.component}-{self.task}"
        self.stderr = (cluster.folder / f"{name}.stderr").open("ab")
        self.process = subprocess.Popen(
            cluster.components[self.component].command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            bufsize=0,
            env={**cluster.environment, "PYROUTE_WORKER": f"worker{self.task % cluster.workers}"},
        )
        for end in (self.process.stdin, self.process.stdout):
            os.set_blocking(end.fileno(), False)
        cluster.selector.register(self.process.stdout, selectors.EVENT_READ, self)
        self.out += json.dumps(cluster.setup(self)).encode() + END

    @property
    def alive(self):
        return self.process is not None

    def stop(self, rng=None):
        """SIGKILL; of what it wrote so far, some is still read."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if rng is not None and rng.random() < 0.5:
            self.read()
        if self.process is None:
            return
        self.gone()

    def gone(self):
        process, self.process = self.process, None
        self.cluster.selector.unregister(process.stdout)
        process.wait()
        for end in (process.stdin, process.stdout, self.stderr):
            end.close()

    def ask(self, command="next"):
        """What Storm asks a spout; it asks again when that is answered."""
        self.out += json.dumps({"command": command}).encode() + END

    def offer(self, source, message, identifier, attempts):
        """A tuple for this task, in the channel of its source."""
        if not self.alive:
            return
        self.waiting[identifier] = attempts
        self.channels.setdefault(source, deque()).append(message)

    def write(self, rng):
        """Pass on what fits, channels interleaved at random."""
        if not self.alive:
            return
        while len(self.out) < 1 << 16 and self.greeted:
            ready = [channel for channel in self.channels.values() if channel]
            if not ready:
                break
            channel = rng.choice(ready)
            for _ in range(min(len(channel), rng.randint(1, 20))):
                self.out += channel.popleft()
        try:
            while self.out:
                del self.out[: os.write(self.process.stdin.fileno(), self.out[: 1 << 16])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.out.clear()

    def read(self):
        try:
            data = os.read(self.process.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            return
        if not data:
            self.cluster.died(self)
            return
        *messages, self.buffer = (self.buffer + data).split(END)
        for message in messages:
            self.cluster.said(self, json.loads(message))


class Cluster:
    """Children of several components, and the spout that feeds them.

    Parameters
    ----------
    folder
        For the output of children.
    components
        By name; the spout's name is `spout`.
    records
        Values that the spout sends, in order; each until its tree is complete.
    fields
        Names of the values.
    """

    def __init__(self, folder, components, records, fields, *, conf=None, seed=0, pending=500):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.components = components
        self.fields = fields
        self.random = random.Random(seed)
        self.pending = pending
        self.timeout = 3.0
        self.rate = None
        self.workers = 2
        self.conf = {"topology.name": "test", "topology.message.timeout.secs": 30, **(conf or {})}
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.selector = selectors.DefaultSelector()
        self.children = {}
        self.names = {"1": "spout"}
        task = 2
        for name, component in components.items():
            for _ in range(component.tasks):
                self.children[task] = Child(self, name, task)
                self.names[str(task)] = name
                task += 1
        self.records = records
        self.next = 0
        self.again = deque()
        self.attempts = {}
        self.live = {}
        self.completed = set()
        self.replays = 0
        self.errors = []
        self.logs = []
        self.deaths = 0
        self.sent = {}
        self.latencies = []
        self.begun = time.monotonic()
        self.identifiers = 0

    # the topology -------------------------------------------------------------------------------

    def setup(self, child):
        component = self.components[child.component]
        fields = {}
        for source, stream, _ in component.reads:
            names = self.fields if source == "spout" else self.components[source].streams[stream]
            fields.setdefault(source, {})[stream] = names
        groupings = {
            stream: {
                name: {"type": grouping.upper()}
                for name, grouping in self.readers(child.component, stream)
            }
            for stream in component.streams
        }
        return {
            "pidDir": str(self.folder),
            "conf": self.conf,
            "context": {
                "task->component": self.names,
                "taskid": child.task,
                "componentid": child.component,
                "streams": list(component.streams),
                "source->stream->fields": fields,
                "stream->target->grouping": groupings,
            },
        }

    def tasks(self, name):
        return [child for child in self.children.values() if child.component == name]

    def readers(self, component, stream):
        return [
            (name, grouping)
            for name, reader in self.components.items()
            for source, of, grouping in reader.reads
            if (source, of) == (component, stream)
        ]

    def deliver(self, source, stream, values, task, attempts):
        """One emit, to the tasks that its grouping says."""
        # Between workers Storm would refuse them: it knows no class of JSON's lists and objects.
        assert not any(isinstance(value, list | dict) for value in values), values
        component = self.names[str(source)]
        if task:
            target = self.children[task]
            ok = any(name == target.component for name, _ in self.readers(component, stream))
            targets = [target] if ok else []
        else:
            targets = [
                self.random.choice(self.tasks(name))
                for name, grouping in self.readers(component, stream)
                if grouping == "shuffle"
            ]
        for target in targets:
            self.identifiers += 1
            identifier = str(self.random.getrandbits(62) << 20 | self.identifiers)
            message = {
                "id": identifier,
                "comp": component,
                "stream": stream,
                "task": source,
                "tuple": values,
            }
            for attempt in attempts:
                attempt.open += 1
            if stream == "pyroute" and len(str(values[1])) > 1 << 16:
                target.parts += 1
            target.offer(source, json.dumps(message).encode() + END, identifier, attempts)

    # the spout ----------------------------------------------------------------------------------

    def feed(self, now):
        allowed = len(self.records)
        if self.rate is not None:
            allowed = min(allowed, int((now - self.begun) * self.rate))
        while len(self.live) < self.pending:
            if self.again:
                record = self.again.popleft()
                self.replays += 1
            elif self.next < allowed:
                record, self.next = self.next, self.next + 1
                self.sent[record] = now
            else:
                break
            attempt = self.live[record] = Attempt(record, now + self.timeout)
            low = min([*self.live, *self.again])  # nothing below may come again
            values = [low if value == "LOW" else value for value in self.records[record]]
            self.deliver(1, "default", values, None, (attempt,))
            self.finish_if(attempt)

    def finish_if(self, attempt):
        if attempt.open == 0 and not attempt.dead and self.live.get(attempt.record) is attempt:
            del self.live[attempt.record]
            self.completed.add(attempt.record)
            self.latencies.append(time.monotonic() - self.sent[attempt.record])

    def give_up(self, attempt):
        if not attempt.dead and self.live.get(attempt.record) is attempt:
            attempt.dead = True
            del self.live[attempt.record]
            self.again.append(attempt.record)

    # what children say --------------------------------------------------------------------------

    def said(self, child, message):
        if isinstance(message, dict) and "pid" in message and "command" not in message:
            child.greeted = True
            if self.components[child.component].spout:
                child.ask("activate")
            return
        command = message["command"]
        if command == "emit":
            attempts = {a for anchor in message.get("anchors", ()) for a in child.waiting[anchor]}
            task = message.get("task", 0) % TWO32
            self.deliver(
                child.task, message.get("stream", "default"), message["tuple"], task, attempts
            )
            assert task or not message.get("need_task_ids", True)
        elif command == "ack":
            for attempt in child.waiting.pop(message["id"]):
                attempt.open -= 1
                self.finish_if(attempt)
        elif command == "fail":
            for attempt in child.waiting.pop(message["id"]):
                self.give_up(attempt)
        elif command == "sync" and self.components[child.component].spout:
            child.ask()
        elif command == "error":
            self.errors.append((child.component, message["msg"]))
        elif command == "log":
            self.logs.append((child.component, message["msg"]))

    def died(self, child):
        """A child ended by itself: like a kill."""
        self.deaths += 1
        child.gone()
        child.restart_at = time.monotonic() + 0.05

    def kill(self, child, delay=0.1):
        """kill -9, and a new process after a while."""
        if child.alive:
            child.stop(self.random)
        if not child.alive:
            child.restart_at = time.monotonic() + delay

    # the loop -----------------------------------------------------------------------------------

    def step(self):
        now = time.monotonic()
        for child in self.children.values():
            if not child.alive and now >= child.restart_at:
                child.start()
        self.feed(now)
        for attempt in [a for a in self.live.values() if a.due < now]:
            self.give_up(attempt)
        for child in self.children.values():
            child.write(self.random)
        for key, _ in self.selector.select(0.005):
            if key.data.alive:
                key.data.read()

    def run(self, until, seconds=300.0):
        """Until something is true; what children said is shown where it never is."""
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, self.story()
            self.step()

    @property
    def done(self):
        return len(self.completed) == len(self.records)

    def story(self):
        errors = [path.read_text()[-600:] for path in self.folder.glob("*.stderr")]
        return (
            f"{len(self.completed)} of {len(self.records)} complete, {len(self.live)} open,"
            f" {self.deaths} died, errors {self.errors[-3:]}, logs {self.logs[-5:]}, {errors}"
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children.values():
            if child.alive:
                child.stop()
        self.selector.close()
