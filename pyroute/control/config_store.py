"""Config store: versioned documents that many processes read, watch and replace.

One document per topology and edge: a router, a split ratio. It lives in a directory (the embedded
default) or in ZooKeeper; docs/config-store.md draws both layouts, for readers in other languages.

>>> import tempfile
>>> store = ConfigStore.open("dir:" + tempfile.mkdtemp())
>>> store.put("wordcount/split->count", {"ratio": [7, 3, 2]}, expect_version=0)
1
>>> store.get("wordcount/split->count")
Document(version=1, value={'ratio': [7, 3, 2]})
>>> store.put("wordcount/split->count", {"ratio": [1, 1, 1]}, expect_version=0)
Traceback (most recent call last):
...
pyroute.control.config_store.StaleVersionError: expect_version: expected 1, got 0
>>> store.close()
"""

from __future__ import annotations

import abc
import contextlib
import errno
import fcntl
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, TypeAlias

from pyroute._arrays import count
from pyroute._core import FormatError
from pyroute.control._envelope import Envelope, encoded_name, pack, plain_name, unpack
from pyroute.protocol.storage import sync_directory, write_synced

_log = logging.getLogger("pyroute.control.config_store")

Value: TypeAlias = Any
"""What a document holds: bytes, or what JSON can say."""


class StaleVersionError(ValueError):
    """Somebody else wrote first: read again, and decide again.

    Attributes
    ----------
    expected
        The version that is there.
    got
        The one that the writer took it to be.
    """

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"expect_version: expected {expected}, got {got}")
        self.expected = expected
        self.got = got


class MalformedError(FormatError):
    """A document that cannot be read.

    Attributes
    ----------
    version
        The one that is malformed: what a writer that repairs it expects.
    """

    def __init__(self, error: Exception, version: int) -> None:
        super().__init__(f"version {version}: {error}")
        self.version = version


@dataclass(frozen=True, slots=True)
class Document:
    """One version of a document; versions count from 1, one by one."""

    version: int
    value: Value


class Watch:
    """A watched document; made by `ConfigStore.watch`.

    Attributes
    ----------
    document
        The last good one, None before the first.
    problem
        What was wrong at the last look, None where nothing was.
    """

    def __init__(
        self, name: str, callback: Callable[[Document], object], store: ConfigStore
    ) -> None:
        self.name = name
        self.document: Document | None = None
        self.problem: str | None = None
        self._callback = callback
        self._store = store
        self._refused = 0  # the newest version that was reported as malformed

    @property
    def version(self) -> int:
        """Of the last good document, 0 before the first."""
        return 0 if self.document is None else self.document.version

    def cancel(self) -> None:
        """Deliver nothing more; a callback that is running ends."""
        self._store._forget(self)

    def _offer(self, document: Document) -> None:
        """Deliver a document unless it, or a newer one, was; what the callback raises is logged."""
        self.problem = None
        if document.version <= self.version:
            return
        self.document = document
        try:
            self._callback(document)
        except Exception as error:
            self.problem = f"callback: {error!r}"
            _log.exception("%s: the callback failed on version %d", self.name, document.version)

    def _report(self, error: Exception, version: int = 0) -> None:
        """Say what is wrong, once for each; the last good document stays in force."""
        text = str(error)
        if text != self.problem or version > self._refused:
            stays = f"version {self.version} stays in force" if self.document else "none is known"
            _log.warning("%s: %s; %s", self.name, text, stays)
        self.problem = text
        self._refused = max(self._refused, version)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()


class ConfigStore(abc.ABC):
    """Versioned documents with compare-and-set and watch; `open` makes one.

    Any number of processes may use one store; one object may be used by several threads.

    What a watch promises: the newest document is seen, at once where there is one; versions only go
    up, each is delivered at most once, and some may be skipped. What is malformed is reported, by
    the log and `Watch.problem`, and the last good document stays. While the store cannot be reached
    nothing is delivered; afterwards it is read again.
    """

    @staticmethod
    def open(url: str, *, wait: bool = True, timeout: float = 10.0, **options: Any) -> ConfigStore:
        """The store at a place.

        Parameters
        ----------
        url
            ``dir:PATH``, or ``zk://HOST:PORT[,HOST:PORT]/PATH`` (extra `zookeeper`).
        wait
            Whether to raise `ConnectionError` where ZooKeeper does not answer now. Without, it is
            tried for ever, and watches begin when it does.
        timeout
            Seconds that a call may wait for ZooKeeper.
        options
            `poll`: seconds between two looks without a notification (1 for a directory, 10 for
            ZooKeeper); `keep`: old versions that a directory keeps (8); `session`: seconds of a
            ZooKeeper session (10).
        """
        if not isinstance(url, str):
            raise TypeError(f"url: expected text, got {type(url).__name__}")
        if url.startswith("dir:") and url != "dir:":
            return DirectoryStore(url.removeprefix("dir:"), **options)
        if url.startswith("zk://"):
            from pyroute.control._zookeeper_store import ZooKeeperStore

            hosts, _, path = url.removeprefix("zk://").partition("/")
            return ZooKeeperStore(hosts, f"/{path}", wait=wait, timeout=timeout, **options)
        raise ValueError(f"url: expected dir:PATH or zk://HOST:PORT/PATH, got {url!r}")

    def __init__(self, poll: float) -> None:
        if not poll > 0:
            raise ValueError(f"poll: expected more than 0, got {poll}")
        self._poll = poll
        self._watches: list[Watch] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    # reading and writing -----------------------------------------------------------------------

    def get(self, name: str) -> Document | None:
        """The newest version of a document, None where there is none.

        `MalformedError` where it is damaged; the error says which version it is.
        """
        return self._get(encoded_name(name))

    def put(self, name: str, value: Value, expect_version: int | None) -> int:
        """Write the next version of a document; durable when it returns.

        Parameters
        ----------
        name
            Of the document, such as ``topology/edge``.
        value
            Bytes, or what JSON can say.
        expect_version
            The version that it takes the place of, 0 for a new document. `StaleVersionError` where
            it is another: of two writers that expect the same, one is told so. None: whatever is
            there.

        Returns
        -------
        int
            The version written.
        """
        if expect_version is not None:
            count(expect_version, "expect_version")
        encoded = encoded_name(name)
        while True:
            try:
                return self._put(encoded, value, expect_version)
            except StaleVersionError:
                if expect_version is not None:
                    raise

    def update(self, name: str, change: Callable[[Value], Value]) -> Document:
        """Write what `change` makes of the value that is there (None: none), until it is in force.

        It may be called more than once: where somebody else writes in between, it starts again.
        """
        while True:
            now = self.get(name)
            value = change(None if now is None else now.value)
            try:
                return Document(self.put(name, value, 0 if now is None else now.version), value)
            except StaleVersionError:
                continue

    def names(self) -> list[str]:
        """The documents that are there, ascending."""
        return sorted(plain_name(encoded) for encoded in self._names())

    def remove(self, name: str) -> None:
        """Remove a document for good; one that is not there is no error.

        For documents that nobody watches: a new one of that name would count from 1 again, and
        those who saw later versions would take it for an old one.
        """
        self._remove(encoded_name(name))

    def trouble(self) -> str | None:
        """What happened to the connection since the last call; None where nothing did."""
        return None

    @property
    def is_connected(self) -> bool:
        """Whether a call would not have to wait for a connection first."""
        return True

    @abc.abstractmethod
    def _get(self, encoded: str) -> Document | None: ...

    @abc.abstractmethod
    def _put(self, encoded: str, value: Value, expect: int | None) -> int: ...

    @abc.abstractmethod
    def _names(self) -> list[str]: ...

    @abc.abstractmethod
    def _remove(self, encoded: str) -> None: ...

    # watching ----------------------------------------------------------------------------------

    def watch(self, name: str, callback: Callable[[Document], object]) -> Watch:
        """Call back, in a thread of the store, with every document that is seen as the newest.

        Parameters
        ----------
        name
            Of the document; it may come later.
        callback
            Called with a `Document`, one call at a time for the whole store. What it raises is
            logged; it is not called again for that version.
        """
        encoded_name(name)
        watch = Watch(name, callback, self)
        with self._lock:
            if self._closed.is_set():
                raise ValueError("store: expected an open one, got it closed")
            self._watches.append(watch)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="pyroute-config-store", daemon=True
                )
                self._thread.start()
        self._wake()
        return watch

    def _forget(self, watch: Watch) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._watches.remove(watch)

    def _run(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                watches = list(self._watches)
            for watch in watches:
                if not self._closed.is_set():
                    self._look(watch)
            self._rest()

    def _look(self, watch: Watch) -> None:
        """Read what is there now, and deliver it if it is new."""
        try:
            document = self._read_watched(watch)
        except MalformedError as error:
            watch._report(error, error.version)
        except (OSError, ValueError) as error:
            watch._report(error)
        else:
            with self._lock:
                wanted = watch in self._watches
            if document is not None and wanted:
                watch._offer(document)
            elif document is None and watch.version >= watch._refused:
                watch.problem = None

    def _read_watched(self, watch: Watch) -> Document | None:
        return self._get(encoded_name(watch.name))

    @abc.abstractmethod
    def _rest(self) -> None:
        """Wait until something may have changed."""

    @abc.abstractmethod
    def _wake(self) -> None:
        """End `_rest` soon."""

    # the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop watching and let go; a second time it does nothing."""
        self._closed.set()
        self._wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_VERSION = re.compile(r"[0-9]{20}")
_TEMPORARY = ".new-"
_OLD = 3600.0  # seconds after which a temporary file has no writer any more


class DirectoryStore(ConfigStore):
    """Documents in a directory: one folder each, one file per version, the highest number counts.

    A version's file is linked into place whole and synced, and never changed: of two writers of one
    version, one finds the name taken. The file system must have hard links and keep the order of
    operations for all that use it, as local ones and NFS do.

    Parameters
    ----------
    path
        The directory; made where there is none.
    poll
        Seconds between two looks at watched documents. With `watchfiles` (extra `control`) changes
        are seen at once, and this is for those made on other hosts.
    keep
        How many old versions stay beside the newest.
    """

    def __init__(self, path: str | os.PathLike[str], *, poll: float = 1.0, keep: int = 8) -> None:
        super().__init__(poll)
        self.path = Path(path)
        self.keep = count(keep, "keep")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(f"url: expected a directory, got the file {self.path}") from None
        self._watchfiles = _watchfiles()
        self._woken = threading.Event()

    def _get(self, encoded: str) -> Document | None:
        folder = self.path / encoded
        while True:
            version = _newest(folder)
            if not version:
                return None
            try:
                data = (folder / _file(version)).read_bytes()
            except FileNotFoundError:  # an old one by now, and removed
                continue
            return _document(data, version)

    def _read_watched(self, watch: Watch) -> Document | None:
        encoded = encoded_name(watch.name)
        newest = _newest(self.path / encoded)
        if newest and newest in (watch.version, watch._refused):
            return None
        return self._get(encoded)

    def _put(self, encoded: str, value: Value, expect: int | None) -> int:
        folder = self.path / encoded
        newest = _newest(folder)
        expect = newest if expect is None else expect
        if newest != expect:
            raise StaleVersionError(newest, expect)
        data = pack(value, expect + 1)
        self._make(folder)
        temporary = folder / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            write_synced(temporary, data)
            with _locked(folder):
                self._link(folder, temporary, expect)
        finally:
            temporary.unlink(missing_ok=True)
        return expect + 1

    def _link(self, folder: Path, temporary: Path, expect: int) -> None:
        newest = _newest(folder)
        if newest != expect:
            raise StaleVersionError(newest, expect)
        try:
            os.link(temporary, folder / _file(expect + 1))
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
            raise StaleVersionError(_newest(folder), expect) from None
        newest = _newest(folder)
        if newest > expect + 1 + self.keep:
            # Locks do not work here, and the number was free because its file was removed.
            (folder / _file(expect + 1)).unlink(missing_ok=True)
            raise StaleVersionError(newest, expect)
        sync_directory(folder)
        self._clean(folder, expect + 1)

    def _make(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            sync_directory(self.path)

    def _clean(self, folder: Path, version: int) -> None:
        for path in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                old = _VERSION.fullmatch(path.name) and int(path.name) < version - self.keep
                left = path.name.startswith(_TEMPORARY) and (
                    time.time() - path.stat().st_mtime > _OLD
                )
                if old or left:
                    path.unlink()

    def _names(self) -> list[str]:
        return [folder.name for folder in self.path.iterdir() if _newest(folder)]

    def _remove(self, encoded: str) -> None:
        folder = self.path / encoded
        if not folder.is_dir():
            return
        for path in sorted(folder.iterdir()):  # the newest last: no old one comes into force
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody writes here again
            folder.rmdir()
        sync_directory(self.path)

    def _rest(self) -> None:
        if self._watchfiles is None:
            self._woken.wait(self._poll)
            self._woken.clear()
            return
        try:
            for _ in self._watchfiles.watch(
                self.path,
                stop_event=_Either(self._closed, self._woken),
                rust_timeout=int(self._poll * 1000),
                yield_on_timeout=True,
                step=5,
                debounce=20,
                raise_interrupt=False,
                watch_filter=None,
            ):
                break
        except (OSError, RuntimeError):  # no more watches, or no directory: look now and then
            self._woken.wait(self._poll)
        self._woken.clear()

    def _wake(self) -> None:
        self._woken.set()

    def __repr__(self) -> str:
        return f"DirectoryStore({str(self.path)!r})"


class _Either:
    """Looks like an event that is set when one of two is."""

    def __init__(self, *events: threading.Event) -> None:
        self._events = events

    def is_set(self) -> bool:
        return any(event.is_set() for event in self._events)

    def set(self) -> None:
        """Nothing: watchfiles sets it at an interrupt, which is not ours to take."""


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time, where the file system has locks; a dead one's is free."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _watchfiles() -> ModuleType | None:
    try:
        import watchfiles
    except ImportError:
        return None
    return watchfiles  # type: ignore[no-any-return,unused-ignore]


def _file(version: int) -> str:
    return f"{version:020d}"


def _newest(folder: Path) -> int:
    """The highest version, 0 where there is none."""
    try:
        return max((int(p.name) for p in folder.iterdir() if _VERSION.fullmatch(p.name)), default=0)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _document(data: bytes, version: int) -> Document:
    """The document of an envelope without chunks; a `FormatError` says which version it is."""
    try:
        envelope = Envelope.of(data, version)
        if envelope.chunks:
            raise FormatError("chunks: expected none in a file, got some")
        return Document(version, unpack(envelope, envelope.content))
    except FormatError as error:
        raise MalformedError(error, version) from error
