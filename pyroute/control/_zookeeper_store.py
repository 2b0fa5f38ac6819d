"""Documents in ZooKeeper, through kazoo: one node each, large ones in chunks below it."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from pyroute._core import FormatError
from pyroute.control._envelope import Envelope, content, encoded_name, pack, point, unpack
from pyroute.control.config_store import (
    ConfigStore,
    Document,
    MalformedError,
    StaleVersionError,
    Value,
    Watch,
)

_log = logging.getLogger("pyroute.control.config_store")
T = TypeVar("T")

CHUNK = 512 * 1024
"""Bytes in one node: a node may have 1 MB, with its reply."""
_CHUNKS = re.compile(r"([0-9]{20})-[0-9a-f]{32}")
_TRIES = 10


class ZooKeeperStore(ConfigStore):
    """A document is a node; its version is the node's own, counted from 1.

    Parameters
    ----------
    hosts
        ``HOST:PORT``, several with commas.
    path
        The node under which the documents are; made where there is none.
    wait, timeout, poll, session
        As `ConfigStore.open` says.
    """

    def __init__(
        self,
        hosts: str,
        path: str,
        *,
        wait: bool = True,
        timeout: float = 10.0,
        poll: float = 10.0,
        session: float = 10.0,
    ) -> None:
        super().__init__(poll)
        if not hosts or not re.fullmatch(r"/|(/[^/\x00]+)+", path):
            raise ValueError(f"url: expected zk://HOST:PORT/PATH, got zk://{hosts}{path}")
        self._kazoo = kazoo = _import()
        self.hosts = hosts
        self.path = path.rstrip("/")
        self._timeout = timeout
        self._woken = threading.Event()
        self._trouble: str | None = None
        retry = {"max_delay": 1.0, "backoff": 2, "delay": 0.05, "max_jitter": 0.2}
        try:
            self._client = kazoo.client.KazooClient(
                hosts,
                timeout=session,
                connection_retry={"max_tries": -1, **retry},
                command_retry={"max_tries": 0},
            )
        except ValueError as error:  # a port that is none
            raise ValueError(
                f"url: expected zk://HOST:PORT/PATH, got zk://{hosts}{path}: {error}"
            ) from None
        self._calling = _Calls(self._client, timeout)
        self._client.add_listener(self._heard)
        started = self._client.start_async()
        if wait and not started.wait(timeout):
            self.close()
            raise ConnectionError(f"url: expected ZooKeeper at {hosts}, got no answer")

    # reading and writing -----------------------------------------------------------------------

    def _get(self, encoded: str) -> Document | None:
        return self._calls(lambda client: self._read(client, encoded, None))

    def _read(
        self, client: _Calls, encoded: str, watch: Callable[[Any], None] | None, known: int = 0
    ) -> Document | None:
        """The document, None where there is none or it is the known version."""
        node = self._node(encoded)
        missing = self._kazoo.exceptions.NoNodeError
        for _ in range(_TRIES):
            try:
                data, stat = client.get(node, watch=watch)
            except missing:
                if watch is None or client.exists(node, watch=watch) is None:
                    return None
                continue  # it came in between
            version = stat.version + 1
            if version == known:
                return None
            try:
                envelope = Envelope.of(data, version)
                stored = envelope.content
                if envelope.chunks:
                    stored = self._chunks(client, node, envelope)
                return Document(version, unpack(envelope, stored))
            except missing:
                if self._kept(client, node, version):
                    error = FormatError("chunks: expected all of them, got some missing")
                    raise MalformedError(error, version) from None
            except FormatError as error:
                raise MalformedError(error, version) from error
        raise ConnectionError(f"{node}: expected it to stand still for a moment, got it rewritten")

    def _kept(self, client: _Calls, node: str, version: int) -> bool:
        stat = client.exists(node)
        return stat is not None and stat.version + 1 == version

    def _chunks(self, client: _Calls, node: str, envelope: Envelope) -> bytes:
        name = envelope.content.decode("ascii", "replace")
        if not _CHUNKS.fullmatch(name) or envelope.chunks > envelope.length // 1024 + 1:
            raise FormatError("chunks: expected the name of their node, got something else")
        return b"".join(
            client.get(f"{self._below(node)}/{name}/{number:06d}")[0]
            for number in range(envelope.chunks)
        )

    def _put(self, encoded: str, value: Value, expect: int | None) -> int:
        token = uuid.uuid4().bytes
        node = self._node(encoded)
        version, data = 0, b""

        def write(client: _Calls) -> int:
            nonlocal version, data
            stat = client.exists(node)
            found = 0 if stat is None else stat.version + 1
            if version and found >= version and self._ours(client, node, token):
                return version  # the answer to an earlier try was lost
            if found != (found if expect is None else expect):
                raise StaleVersionError(found, expect or 0)
            version = found + 1
            data = pack(value, version, token=token)
            if len(content(data)) > CHUNK:
                data = self._put_chunks(client, node, version, data, token)
            self._set(client, node, data, found)
            return version

        written = self._calls(write)
        with contextlib.suppress(Exception):  # the next writer cleans what this one could not
            self._calls(lambda client: self._clean(client, node, written))
        return written

    def _set(self, client: _Calls, node: str, data: bytes, found: int) -> None:
        errors = self._kazoo.exceptions
        try:
            if found:
                client.set(node, data, version=found - 1)
            else:
                client.create(node, data)
        except (errors.BadVersionError, errors.NodeExistsError, errors.NoNodeError):
            stat = client.exists(node)
            raise StaleVersionError(0 if stat is None else stat.version + 1, found) from None

    def _ours(self, client: _Calls, node: str, token: bytes) -> bool:
        data, stat = client.get(node)
        with contextlib.suppress(FormatError):
            return Envelope.of(data, stat.version + 1).token == token
        return False

    def _put_chunks(
        self, client: _Calls, node: str, version: int, data: bytes, token: bytes
    ) -> bytes:
        """Write the chunks; the envelope that points to them, to be written last."""
        name = f"{version:020d}-{token.hex()}"
        stored = content(data)
        parts = [stored[at : at + CHUNK] for at in range(0, len(stored), CHUNK)]
        for number, part in enumerate(parts):
            path = f"{self._below(node)}/{name}/{number:06d}"
            try:
                client.create(path, part)
            except self._kazoo.exceptions.NodeExistsError:
                client.set(path, part)  # an earlier try of this one
        return point(data, len(parts), name)

    def _clean(self, client: _Calls, node: str, version: int) -> None:
        """Remove chunks of older versions, but for the last, and of writers that lost."""
        below = self._below(node)
        if client.exists(below) is None:
            return
        for name in client.get_children(below):
            match = _CHUNKS.fullmatch(name)
            if match and int(match[1]) < version - 1:
                client.delete(f"{below}/{name}")

    def _below(self, node: str) -> str:
        """Where the chunks of a document are; no document's name begins with a dot."""
        folder, _, encoded = node.rpartition("/")
        return f"{folder}/.chunks/{encoded}"

    def _names(self) -> list[str]:
        missing = self._kazoo.exceptions.NoNodeError

        def read(client: _Calls) -> list[str]:
            try:
                names = client.get_children(self.path or "/")
            except missing:
                return []
            return [name for name in names if not name.startswith(".")]

        return self._calls(read)

    def _remove(self, encoded: str) -> None:
        node = self._node(encoded)
        for path in (node, self._below(node)):
            with contextlib.suppress(self._kazoo.exceptions.NoNodeError):
                self._calls(partial(_delete, path))

    def _node(self, encoded: str) -> str:
        return f"{self.path}/{encoded}"

    # calls, watches and the connection ---------------------------------------------------------

    def _calls(self, function: Callable[[_Calls], T]) -> T:
        """Call, and again after a lost connection, until the time is over."""
        deadline = time.monotonic() + self._timeout
        errors = self._kazoo.exceptions
        lost = (
            *(errors.ConnectionLoss, errors.ConnectionClosedError, errors.SessionExpiredError),
            *(errors.OperationTimeoutError, self._kazoo.handlers.threading.KazooTimeoutError),
        )
        while True:
            if self._closed.is_set():
                raise ConnectionError("store: expected an open one, got it closed")
            if not self._client.connected and time.monotonic() < deadline:
                self._closed.wait(0.02)
                continue
            try:
                return function(self._calling)
            except lost as error:
                if time.monotonic() >= deadline:
                    raise ConnectionError(
                        f"{self.hosts}: expected an answer of ZooKeeper, got {error!r}"
                    ) from error
                self._closed.wait(0.05)

    def _heard(self, state: str) -> None:
        """Of the connection: a loss is said, and after every one all is read again."""
        states = self._kazoo.client.KazooState
        if state == states.LOST:
            self._trouble = f"{self.hosts}: expected ZooKeeper, got the session expired"
        elif state == states.SUSPENDED:
            self._trouble = f"{self.hosts}: expected ZooKeeper, got the connection lost"
        if state != states.CONNECTED and not self._closed.is_set():
            _log.warning("%s; what was read last stays in force", self._trouble)
        self._wake()

    def trouble(self) -> str | None:
        """What happened to the connection since the last call."""
        trouble = self._trouble
        if self._client.connected:
            self._trouble = None
        elif trouble is None:
            trouble = f"{self.hosts}: expected ZooKeeper, got no connection"
        return trouble

    @property
    def is_connected(self) -> bool:
        """Whether a call would not have to wait for a connection first."""
        return bool(self._client.connected)

    def _read_watched(self, watch: Watch) -> Document | None:
        client, kazoo = self._calling, self._kazoo
        if not self._client.connected:
            raise ConnectionError(f"{self.hosts}: expected ZooKeeper, got no connection")
        known = max(watch.version, watch._refused)
        try:
            return self._read(client, encoded_name(watch.name), self._changed, known)
        except (
            kazoo.exceptions.KazooException,
            kazoo.handlers.threading.KazooTimeoutError,
        ) as error:
            raise ConnectionError(f"{self.hosts}: expected ZooKeeper, got {error!r}") from error

    def _changed(self, event: Any) -> None:  # noqa: ARG002 - what it says may be old by now
        self._woken.set()

    def _rest(self) -> None:
        self._woken.wait(self._poll)
        self._woken.clear()

    def _wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """Stop watching and end the session."""
        first = not self._closed.is_set()
        super().close()
        if first:
            self._client.remove_listener(self._heard)
            self._client.stop()
            self._client.close()

    def __repr__(self) -> str:
        return f"ZooKeeperStore({self.hosts!r}, {self.path or '/'!r})"


class _Calls:
    """The calls of a kazoo client, each with a bound: its own wait for a connection for ever."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    def get(self, path: str, watch: Any = None) -> Any:
        return self._client.get_async(path, watch=watch).get(timeout=self._timeout)

    def exists(self, path: str, watch: Any = None) -> Any:
        return self._client.exists_async(path, watch=watch).get(timeout=self._timeout)

    def get_children(self, path: str) -> Any:
        return self._client.get_children_async(path).get(timeout=self._timeout)

    def set(self, path: str, data: bytes, version: int = -1) -> Any:
        return self._client.set_async(path, data, version).get(timeout=self._timeout)

    def create(self, path: str, data: bytes) -> Any:
        return self._client.create_async(path, data, makepath=True).get(timeout=self._timeout)

    def delete(self, path: str) -> None:
        """A node with all below it."""
        for name in self.get_children(path):
            self.delete(f"{path}/{name}")
        self._client.delete_async(path).get(timeout=self._timeout)


def _delete(path: str, client: _Calls) -> None:
    client.delete(path)


def _import() -> Any:
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.handlers.threading
        import kazoo.retry
    except ImportError as error:
        raise ImportError(
            "kazoo: expected it for zk://, got none: pip install 'pyroute-core[zookeeper]'"
        ) from error
    return kazoo
