"""Reads sources again and again, and says when what they show has changed.

One thread reads; any number wait for the next page. A source that fails keeps what it showed last,
with what is wrong beside it.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from pyroute import metrics
from pyroute.report import Event, Fact, Report
from pyroute.report.writer import hidden
from pyroute.serve.sources import Source, SourceError

_LOG = logging.getLogger("pyroute.serve")

READS = metrics.REGISTRY.counter(
    "pyroute_serve_reads", "Looks at sources.", ["source", "place", "result"]
)
AGE = metrics.REGISTRY.gauge(
    "pyroute_serve_unread_seconds",
    "Since a source was last read well, or since the page is there.",
    ["source", "place"],
)

_MOST_EVENTS = 300


class Watcher:
    """The page as it is now, and the wait for the next one.

    Parameters
    ----------
    sources
        What is read.
    every
        Seconds between two looks.
    hash_keys
        As of `pyroute.report.write`; names stay the same from look to look.
    clock
        Seconds; for tests.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        every: float = 0.5,
        hash_keys: bool | bytes = False,
        title: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not every > 0:
            raise ValueError(f"every: expected more than 0, got {every}")
        # One secret for all looks: a key keeps its name while the page is open.
        self._hash = secrets.token_bytes(32) if hash_keys is True else hash_keys
        self._sources, self._every, self._title = sources, every, title
        self._clock = clock
        self._good: dict[int, Report] = {}
        self._since = dict.fromkeys(range(len(sources)), clock())
        self._problems: dict[int, str] = {}
        self._log: list[Event] = []
        self._measured: set[str] = set()  # streams whose loads are among the metrics
        self._changed = threading.Condition()
        self._version, self._text = 0, ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.look()

    # -- for those who wait

    @property
    def current(self) -> tuple[int, str]:
        """Number and JSON of the page as it is."""
        with self._changed:
            return self._version, self._text

    @property
    def problems(self) -> list[str]:
        """What is wrong with the sources now."""
        return [f"{self._sources[i].place}: {text}" for i, text in sorted(self._problems.items())]

    def wait(self, version: int, timeout: float) -> tuple[int, str]:
        """The page, once it is another than this version, or after the time."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._version != version or self._stopping.is_set(), timeout
            )
            return self._version, self._text

    @property
    def stopped(self) -> bool:
        """Whether nothing more will come."""
        return self._stopping.is_set()

    # -- reading

    def start(self) -> None:
        """Look at the sources in a thread of its own until `stop`."""
        self._thread = threading.Thread(target=self._run, name="pyroute-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and close the sources."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=10)
        for source in self._sources:
            source.close()
        for name in self._measured:
            metrics.say_loads(name, {})

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            self.look()

    def look(self) -> None:
        """Read every source once."""
        for i, source in enumerate(self._sources):
            self._read(i, source)
        self._measure()
        document = {**hidden(self._page(), self._hash).document(), "live": True}
        text = json.dumps(document, allow_nan=False, separators=(",", ":"))
        with self._changed:
            if text != self._text:
                self._text = text
                self._version += 1
                self._changed.notify_all()

    def _read(self, i: int, source: Source) -> None:
        try:
            self._good[i] = source.read()
        except SourceError as error:
            self._say(i, source, str(error))
        except Exception as error:  # whatever is in a file of somebody else, the page goes on
            _LOG.debug("%s", source.place, exc_info=True)
            self._say(i, source, f"{type(error).__name__}: {str(error)[:200]}")
        else:
            READS.add(1, source=source.kind, place=source.place, result="ok")
            self._since[i] = self._clock()
            if self._problems.pop(i, None) is not None:
                self._note(source, "ok", "readable again")
        AGE.set(self._clock() - self._since[i], source=source.kind, place=source.place)

    def _say(self, i: int, source: Source, text: str) -> None:
        READS.add(1, source=source.kind, place=source.place, result="failed")
        if self._problems.get(i) != text:
            _LOG.warning("%s: %s", source.place, text)
            self._note(source, "warning", text)
        self._problems[i] = text

    def _note(self, source: Source, kind: str, text: str) -> None:
        at = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
        self._log = [Event(at, kind, f"{source.kind}: {text}"), *self._log][:_MOST_EVENTS]

    def _measure(self) -> None:
        """Loads as metrics, of each source under its title, or its place where that is not one."""
        titles = Counter(page.title for page in self._good.values())
        loads: dict[str, dict[str, float]] = {}
        for i, page in sorted(self._good.items()):
            name = page.title if titles[page.title] == 1 else self._sources[i].place
            known = {t.task: t.before for t in page.tasks if t.before is not None}
            if known:
                loads[name] = known
        for name in self._measured - set(loads):
            metrics.say_loads(name, {})
        for name, known in loads.items():
            metrics.say_loads(name, known)
        self._measured = set(loads)

    # -- one page of all

    def _page(self) -> Report:
        pages = [self._good[i] for i in sorted(self._good)]
        page = pages[0] if pages else Report(title="")
        for other in pages[1:]:
            page = joined(page, other)
        title = self._title or page.title or "Waiting for the first numbers"
        return replace(
            page,
            title=title,
            events=(*self._log, *page.events)[:_MOST_EVENTS],
            sources=tuple(self._status(i, source) for i, source in enumerate(self._sources)),
        )

    def _status(self, i: int, source: Source) -> Fact:
        problem = self._problems.get(i)
        if problem is None:
            return Fact(source.kind, source.place, "", "good")
        stale = "" if i not in self._good else " (shown: what was read last)"
        return Fact(source.kind, source.place, problem + stale, "bad")


def joined(first: Report, second: Report) -> Report:
    """Two reports as one: lists of both, and where there can be one alone, that of the first."""
    both = {"facts", "events", "warnings", "forecasts", "series", "locality"}
    of_tasks = ("unit", "tasks_after", "tasks_of")
    changes: dict[str, Any] = {}
    for field in fields(Report):
        mine, other = getattr(first, field.name), getattr(second, field.name)
        if field.name in both:
            changes[field.name] = (*mine, *other)
        elif not mine and field.name not in of_tasks:
            changes[field.name] = other
    if not first.tasks:
        changes |= {name: getattr(second, name) for name in of_tasks}
    return replace(first, **changes)
