"""A bolt that sends each record to the task that the router names, in native code.

The bolt subscribes to any stream, by shuffle grouping; the component behind it reads the bolt by
direct grouping. Records never become Python objects: their bytes are spliced into an emit and an
ack. Python sees set-up, ticks, control streams and what cannot be routed::

    RouterBolt("plan.json", key="word", target="count", capacity=1000).run()

Router and tasks meet by order: the i-th task of the router, ascending, is the i-th task of the
target component by Storm's ids.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from pyroute import _storm_frames as framed
from pyroute import _storm_loop as native
from pyroute._core import FormatError
from pyroute.control.config_store import ConfigStore, Document
from pyroute.keys import Keys, keys
from pyroute.protocol.errors import ProtocolError
from pyroute.ring import Ring
from pyroute.router import Router
from pyroute.space_saving import SpaceSaving
from pyroute.storm import protocol as ml
from pyroute.storm.bolt import Bolt, Context, PipeClosedError
from pyroute.storm.key_counts import KeyCounts
from pyroute.storm.protocol import Tuple

_POLL: Final = 0.1

FRAMES: Final = "pyroute.storm.RouterSerializer"
"""The serializer of a RouterShellBolt (docs/storm-frames.md)."""


class RouterBolt(Bolt):
    """Routes records by a table over a home, and counts the heaviest keys on the way.

    Parameters
    ----------
    router
        A `Router`, the path of one (`to_json` or `to_bytes`), or None where `config` has it.
    key
        The key field, or several for a composite key, by name (as the source declares them) or
        by position.
    target
        The component that gets the records; None where only one reads the stream.
    stream
        The stream to emit to.
    capacity
        Of the statistics, for each type of keys; 0 for none.
    config, document
        Where newer routers come from: the address of a config store, and the name of a document
        whose value is `Router.to_bytes()` or the JSON of `Router.to_json()`. One without a higher
        version than the one in force is ignored, and so is one whose home is an engine's and takes
        other keys. Where `router` is given too, it holds while the
        store cannot be reached or read.
    linger
        Seconds that output may wait for more.
    pipe_size
        Bytes to ask of the kernel for each pipe; 0 leaves them as they are.
    """

    idle_seconds = _POLL

    def __init__(
        self,
        router: Router | str | os.PathLike[str] | None = None,
        *,
        key: str | int | Sequence[str | int] = 0,
        target: str | None = None,
        stream: str = "default",
        capacity: int = 0,
        config: str | None = None,
        document: str = "router",
        linger: float = 100e-6,
        pipe_size: int = 1 << 18,
    ) -> None:
        if router is None and config is None:
            raise TypeError("router: expected a router, its path or a config store, got none")
        self.router: Router | None = _load(router) if not isinstance(router, Router) else router
        self.key = (key,) if isinstance(key, str | int) else tuple(key)
        self.target = target
        self.stream = stream
        self.capacity = capacity
        self.linger = linger
        self.pipe_size = pipe_size
        self._config, self._document = config, document
        self._news: Document | None = None
        self._news_lock = threading.Lock()
        self._native: native.Loop | framed.FrameLoop | None = None
        self._greeted = False
        self._slow = KeyCounts(capacity)  # until there is a loop

    # For subclasses and owners ---------------------------------------------------------------

    def set_router(self, router: Router) -> None:
        """Route by this one from now on."""
        if len(router.tasks) != len(self.tasks):
            raise ValueError(
                f"router: expected {len(self.tasks)} tasks, as {self.target} has, got"
                f" {len(router.tasks)}"
            )
        self.router = router
        self._place = dict(zip(router.tasks, self.tasks, strict=True))
        if self._native is not None:
            self._native.set_router(router._core.capsule(), self.tasks)

    def statistics(self, *, reset: bool = False) -> KeyCounts:
        """The heaviest keys since the start, or since the last call with `reset`."""
        if not self.capacity:
            raise ValueError("capacity: expected above 0 for statistics, got 0")
        total = KeyCounts(self.capacity)
        if self._native is not None:
            total.parts = [SpaceSaving.from_bytes(data) for data in self._native.statistics(reset)]
            return total
        for part in self._slow.parts:
            total.add(part)
        if reset:
            self._slow = KeyCounts(self.capacity)
        return total

    def _count(self, named: Keys) -> None:
        """In the loop, where it runs: it knows which types it met."""
        if self._native is None:
            self._slow.observe(named)
            return
        one = SpaceSaving(self.capacity)
        one.observe(named)
        self._native.add_statistics(one.to_bytes())

    @property
    def records(self) -> int:
        """Records routed in native code."""
        return 0 if self._native is None else self._native.records

    # The bolt ------------------------------------------------------------------------------

    def initialize(self, conf: dict[str, Any], context: Context) -> None:  # noqa: ARG002
        """Find the tasks, the key fields and the router."""
        if self.target is None:
            found = context.targets(self.stream)
            if len(found) != 1:
                raise ValueError(
                    f"target: expected one component that reads {self.stream!r}, got {len(found)}"
                )
            self.target = found[0]
        self.tasks = context.tasks(self.target)
        if not self.tasks:
            raise ValueError(f"target: expected a component with tasks, got {self.target!r}")
        self._fields = self._key_fields(context)
        if self._config is not None:
            self._open(self._config)
        if self.router is None:
            raise ValueError(f"document: expected a router in {self._document!r}, got none")
        self.set_router(self.router)

    def _key_fields(self, context: Context) -> dict[tuple[str, str], tuple[int, ...]]:
        fields = {}
        for component, streams in context.raw.get("source->stream->fields", {}).items():
            for stream, names in streams.items():
                if stream.startswith("__") or stream in self.control_streams:
                    continue
                fields[component, stream] = tuple(
                    _position(key, names, component, stream) for key in self.key
                )
        if not fields:
            raise ValueError("sources: expected a component that this bolt reads, got none")
        return fields

    def _open(self, url: str) -> None:
        """With a router of its own the bolt does not depend on the store: the watch goes on."""
        self._store = ConfigStore.open(url, wait=self.router is None, timeout=5.0)
        try:
            found = self._store.get(self._document)
            if found is not None:
                self._take(found)
        except (OSError, FormatError) as error:
            if self.router is None:
                raise
            self.log(f"{self._document}: {error}; the router that was given stays in force", 3)
        self._watch = self._store.watch(self._document, self._hear)

    def _hear(self, document: Document) -> None:
        with self._news_lock:  # another thread: the loop takes the newest when it comes by
            self._news = document

    def on_idle(self) -> None:
        """Take a newer router, where there is one."""
        with self._news_lock:
            document, self._news = self._news, None
        if document is not None:
            before = self.router
            self._take(document)
            if self.router is not None and self.router is not before:
                self.set_router(self.router)

    def _take(self, document: Document) -> None:
        """The last good router stays in force whatever the document holds."""
        try:
            router = _read(document.value)
        except (FormatError, ValueError, TypeError) as error:
            self.log(f"{self._document}: version {document.version} is ignored: {error}", 3)
            return
        known = len(self.tasks)
        if len(router.tasks) != known:
            self.log(
                f"{self._document}: version {document.version} is ignored: expected a router with"
                f" {known} tasks, got {len(router.tasks)}",
                3,
            )
        elif self._framed and not router._core.one_record:
            self.log(
                f"{self._document}: version {document.version} is ignored: expected a ring without"
                " split keys, because this is a RouterShellBolt, got another",
                3,
            )
        elif self.router is not None and not _takes_alike(router, self.router):
            self.log(
                f"{self._document}: version {document.version} is ignored: expected a ring, or a"
                f" home like {self.router.home!r}, which takes the keys that come, got"
                f" {router.home!r}",
                3,
            )
        elif self.router is None or router.version > self.router.version:
            self.router = router

    def process(self, records: list[Tuple]) -> None:
        """Route in Python: what came with the set-up, and records that are odd, or wrong."""
        assert self.router is not None
        for record in records:
            fields = self._fields.get((record.component or "", record.stream))
            if fields is None:
                raise ProtocolError(
                    f"stream: expected one that this bolt reads, got {record.stream!r} of"
                    f" {record.component!r}"
                )
            if max(fields) >= len(record.values):
                raise ProtocolError(
                    f"tuple: expected a key in field {max(fields)}, got {len(record.values)} fields"
                )
            value = [tuple(record.values[i] for i in fields)]
            named = keys(value if len(fields) > 1 else [value[0][0]])
            if self.capacity:
                self._count(named)
            salt = int(keys([record.id]).ids.view("int64")[0]) if self.router.splits else None
            task = int(self.router.route(named, salt)[0])
            self.emit(record.values, stream=self.stream, anchors=record, task=self._place[task])

    # The loop ------------------------------------------------------------------------------

    @property
    def _framed(self) -> bool:
        """Whether the other side is a RouterShellBolt: frames follow the greeting."""
        conf = getattr(self, "conf", {})
        return bool(conf.get("topology.multilang.serializer") == FRAMES)

    def _make_native(self) -> native.Loop | framed.FrameLoop:
        if self._framed:
            return framed.FrameLoop(
                self._in,
                self._out,
                capacity=self.capacity,
                max_message=self._protocol.max_message,
            )
        return native.Loop(
            self._in,
            self._out,
            [(*source, fields) for source, fields in self._fields.items()],
            stream=b"" if self.stream == "default" else json.dumps(self.stream).encode(),
            capacity=self.capacity,
            linger=self.linger,
            max_message=self._protocol.max_message,
            pipe_size=self.pipe_size,
        )

    def _write_out(self) -> None:
        if self._framed and self._buffer:
            texts = bytes(self._buffer).split(ml.END)[:-1]
            frames = [framed.message_frame(text) for text in texts]
            if not self._greeted:  # the greeting has no frame
                frames[0] = texts[0] + ml.END
                self._greeted = True
            self._buffer = bytearray(b"".join(frames))
        super()._write_out()

    def _loop(self) -> NoReturn:
        assert self.router is not None
        with self._lock:
            self._write_out()
            self._native = self._make_native()
        for part in self._slow.parts:
            self._native.add_statistics(part.to_bytes())
        self._slow = KeyCounts(self.capacity)
        self.set_router(self.router)
        self._native.push(self._protocol.take_rest())
        self._protocol.receive(b"")  # raises where a fault followed what is to be handled
        while True:
            self._handle()
            self._when_idle()
            with self._lock:  # a sign of life must not come between two halves of a write
                self._write_out()
                why, message = self._native.run(self._seconds_left())
            if message is not None:
                self._events.append(self._protocol.received(message))
            elif why != native.TIMEOUT:
                self._stopped(why)

    def _seconds_left(self) -> float:
        return max(0.0, self._idle_at - self.now())

    def _stopped(self, why: int) -> None:
        assert self._native is not None
        if why == native.CLOSED:
            if self._native.left:
                raise ProtocolError(
                    f"message: expected {ml.END!r} at its end, got the end of the stream after"
                    f" {self._native.left} bytes"
                )
            raise PipeClosedError("stdin: expected messages of Storm, got the end of the stream")
        if why == native.UNREAD:
            raise PipeClosedError("stdout: expected Storm to read, got a closed pipe")
        if why == native.TOO_LONG:
            raise ProtocolError(
                f"message: expected at most {self._protocol.max_message} bytes, got"
                f" {self._native.left} and more"
            )

    def finish(self) -> None:
        """Let go of the config store."""
        if self._config is not None and hasattr(self, "_store"):
            self._store.close()


def _position(key: str | int, names: Sequence[str], component: str, stream: str) -> int:
    if isinstance(key, str):
        if key not in names:
            raise ValueError(
                f"key: expected a field of {stream!r} of {component!r}"
                f" ({', '.join(names)}), got {key!r}"
            )
        return list(names).index(key)
    if not 0 <= key < len(names):
        raise ValueError(
            f"key: expected a position below {len(names)} in {stream!r} of {component!r}, got {key}"
        )
    return key


def _takes_alike(new: Router, old: Router) -> bool:
    """Whether the home of a newer router takes the keys that the older one took."""
    if isinstance(new.home, Ring):
        return True  # keys of any type
    kinds = [(type(home), getattr(home, "key_type", None)) for home in (new.home, old.home)]
    return kinds[0] == kinds[1]


def _load(path: str | os.PathLike[str] | None) -> Router | None:
    return None if path is None else _read(Path(path).read_bytes())


def _read(value: Any) -> Router:
    """A router from what a file or a document holds."""
    if isinstance(value, bytes):
        return Router.from_json(value) if value[:1] == b"{" else Router.from_bytes(value)
    return Router.from_json(json.dumps(value))
