"""Inbox: how tasks talk to a manager that does not read their stream, as a spout cannot.

Each task writes documents of its own to the config store, and the manager watches them. A document
holds all that there is to say, so that of many writes between two looks the newest is enough, and
a manager that starts anew reads what the one before it was told::

    TOPOLOGY/inbox/OPERATOR/NUMBER     {"run": "wordcount-1-17", "life": "5f3a...", "epoch": 3,
                                        "said": [BASE64, ...], "asked": [2, "[3, ...]"]}
    TOPOLOGY/report/OPERATOR/NUMBER    {"run": "wordcount-1-17", "report": "{...}"}

    run      Storm's id of the topology: what an earlier one left is not heard
    life     of the task's process: another one counts from the beginning
    said     its messages of the protocol, of the newest epoch; none twice
    asked    how many times it asked for what it misses, and the last question
    report   its statistics of the last interval

Threads: a writer of its own at a task, because a store that is away must not hold up records; the
store's thread at the manager, which only puts aside what came.
"""

from __future__ import annotations

import base64
import functools
import threading
import uuid
from collections.abc import Iterable
from typing import Any

from pyroute.control.config_store import ConfigStore, Document
from pyroute.protocol import Task, decode

RETRY = 1.0
"""Seconds after which a write that failed is tried again."""

INBOX, REPORT = "inbox", "report"


def _name(topology: str, kind: str, task: Task) -> str:
    return f"{topology}/{kind}/{task.operator}/{task.number}"


class Outbox:
    """A task's side.

    Parameters
    ----------
    store
        An open one; closed at the end.
    topology, run
        Its name, and Storm's id of it.
    task
        This one.

    Attributes
    ----------
    problem
        Why the last write failed; None where it did not.
    """

    def __init__(self, store: ConfigStore, topology: str, run: str | None, task: Task) -> None:
        self._store = store
        self._names = {kind: _name(topology, kind, task) for kind in (INBOX, REPORT)}
        self._run = run
        self._life = uuid.uuid4().hex
        self._epoch = 0
        self._said: list[str] = []
        self._asked: tuple[int, str] | None = None
        self._waiting: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._closed = False
        self.problem: str | None = None
        self._thread = threading.Thread(target=self._write, name="pyroute-outbox", daemon=True)
        self._thread.start()

    def say(self, kind: str, data: str) -> None:
        """Say what a record of the stream would: its kind and its data."""
        if kind == "s":
            self._put(REPORT, {"run": self._run, "report": data})
            return
        if kind == "a":
            self._asked = (self._asked or (0, ""))[0] + 1, data
        else:
            epoch = decode(base64.b64decode(data)).epoch
            if epoch < self._epoch or (epoch == self._epoch and data in self._said):
                return
            if epoch > self._epoch:
                self._epoch, self._said = epoch, []
            self._said.append(data)
        document = {
            "run": self._run,
            "life": self._life,
            "epoch": self._epoch,
            "said": [*self._said],
            "asked": None if self._asked is None else [*self._asked],
        }
        self._put(INBOX, document)

    def _put(self, kind: str, document: Any) -> None:
        with self._changed:
            self._waiting[self._names[kind]] = document
            self._changed.notify()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                inbox = self._names[INBOX]  # what the protocol waits for comes before statistics
                name = inbox if inbox in self._waiting else self._names[REPORT]
                document = self._waiting.pop(name)
            try:
                self._store.put(name, document, None)
            except Exception as error:  # whatever it is, records go on
                with self._changed:
                    self.problem = f"{type(error).__name__}: {error}"
                    self._waiting.setdefault(name, document)
                    self._changed.wait_for(lambda: self._closed, RETRY)
            else:
                self.problem = None

    def close(self) -> None:
        """Let go of the store; what was not written is asked for again."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._store.close()


class Inbox:
    """The manager's side.

    Parameters
    ----------
    store
        An open one; it stays the caller's.
    topology, run
        Its name, and Storm's id of it.
    tasks
        Those that write there.

    Attributes
    ----------
    came
        Set by the store's thread when there is something new.
    """

    def __init__(
        self, store: ConfigStore, topology: str, run: str | None, tasks: Iterable[Task]
    ) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._last: dict[Task, dict[str, Any]] = {}
        self._new: dict[tuple[str, Task], dict[str, Any]] = {}
        self._heard: dict[Task, tuple[str, int, int, int]] = {}
        self.came = threading.Event()
        for task in tasks:
            for kind in (INBOX, REPORT):
                hear = functools.partial(self._hear, kind, task)
                store.watch(_name(topology, kind, task), hear)

    def _hear(self, kind: str, task: Task, document: Document) -> None:
        """In the store's thread; what it raises is logged there, and that version is left out."""
        value = document.value
        if not isinstance(value, dict) or not _CHECKS[kind](value):
            raise ValueError(f"{kind}: expected what {task} says, got {str(value)[:80]}")
        if value.get("run") != self._run:
            return
        with self._lock:
            self._new[kind, task] = value
            if kind == INBOX:
                self._last[task] = value
        self.came.set()

    def again(self) -> None:
        """Everything of the protocol is new: the manager's machine was made anew."""
        with self._lock:
            self._heard.clear()
            self._new.update({(INBOX, task): value for task, value in self._last.items()})
        self.came.set()

    def take(self) -> list[tuple[Task, str, str]]:
        """What is new: who says it, its kind and its data."""
        self.came.clear()
        with self._lock:
            new, self._new = self._new, {}
        out: list[tuple[Task, str, str]] = []
        for (kind, task), value in new.items():
            if kind == REPORT:
                out.append((task, "s", value["report"]))
                continue
            life, epoch, said = value["life"], value["epoch"], value["said"]
            asked, question = value["asked"] or (0, "")
            before = self._heard.get(task, ("", 0, 0, 0))
            known = before[2] if before[:2] == (life, epoch) else 0
            out += [(task, "m", data) for data in said[known:]]
            if asked and (life, asked) != (before[0], before[3]):
                out.append((task, "a", question))
            self._heard[task] = life, epoch, len(said), asked
        return out


def _is_said(value: dict[str, Any]) -> bool:
    asked = value.get("asked")
    return (
        isinstance(value.get("life"), str)
        and isinstance(value.get("epoch"), int)
        and isinstance(value.get("said"), list)
        and all(isinstance(data, str) for data in value["said"])
        and (asked is None or (isinstance(asked, list) and list(map(type, asked)) == [int, str]))
    )


def _is_report(value: dict[str, Any]) -> bool:
    return isinstance(value.get("report"), str)


_CHECKS = {INBOX: _is_said, REPORT: _is_report}
