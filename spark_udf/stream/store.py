"""Where the files are: a directory with durable writes and one atomic act, create-if-absent.

The atomic act is the commit: of several drivers that create the same name exactly one succeeds,
with all of its content, and the others are told. On a file system with hard links a temporary file
is linked to the name, which fails where the name exists. Without them a temporary directory that
holds the document is renamed to the name: rename(2) replaces an empty directory only, and a name
that was committed is a file or a directory with something in it, so it fails there too. Creating
the name exclusively and then writing would show a reader the document half written, and a rename of
a file would replace another driver's.

Names are relative paths with `/`. Parts that begin with `.pyroute-` are the store's own: temporary
files, which are not listed and are removed by age, and the document in a directory that is a name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa

_OWN = ".pyroute-"
_TEMPORARY = _OWN + "tmp-"
_DOCUMENT = _OWN + "document"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # of two letters: one is a drive
_NO_LINKS = frozenset(
    {
        errno.EPERM,
        errno.EACCES,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.ENOSYS,
        errno.EMLINK,
        errno.EXDEV,
        errno.EINVAL,
    }
)

Names = list[str]
Data: TypeAlias = "bytes | pa.Buffer | Sequence[bytes | pa.Buffer]"


class AlreadyCommitted(FileExistsError):  # noqa: N818 - an answer, of which one driver gets none
    """The name exists: somebody else created it first."""


def local_path(path: str | os.PathLike[str]) -> Path:
    """The directory that a path or a `file:` URL names; other URLs are a `ValueError`."""
    text = os.fspath(path)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(path).absolute()
    url = urlsplit(text)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        raise ValueError(
            "directory: expected a path or a file:// URL on a file system that all hosts share,"
            f" got {text}"
        )
    return Path(url2pathname(url.path)).absolute()


class Store(Protocol):
    """What state needs of a place for files."""

    @property
    def url(self) -> str:
        """Which place it is: the same in every process that opens it."""

    def write(self, name: str, data: Data) -> int:
        """Write a file under a name never used before; durable when it returns its bytes."""

    def read(self, name: str) -> pa.Buffer:
        """The content of a file; `FileNotFoundError` where there is none."""

    def create_if_absent(self, name: str, data: Data) -> None:
        """Create a document, all or nothing and durable, or raise `AlreadyCommitted`."""

    def list(self, prefix: str) -> Names:
        """Names that begin so, ascending."""

    def delete(self, *names: str) -> None:
        """Remove files; durable when it returns. Those that are not there are no error."""

    def modified(self, name: str) -> float:
        """When a file was written, in seconds since 1970."""

    def clean(self, older_than_seconds: float, now: float) -> Names:
        """Remove temporary files of that age, left by writers that died."""


class LocalStore:
    """A directory of a local or shared file system.

    Parameters
    ----------
    path
        The directory, as a path or a `file://` URL; made by the first write.
    memory_map
        Whether files are mapped rather than read into memory. Say False where another host may
        remove a file that is still mapped here, as over NFS: that would end the process.
    """

    def __init__(self, path: str | os.PathLike[str], *, memory_map: bool = True) -> None:
        self.path = local_path(path)
        self.memory_map = memory_map

    @property
    def url(self) -> str:
        """The directory as a URL."""
        return self.path.as_uri()

    def __repr__(self) -> str:
        return f"LocalStore({str(self.path)!r})"

    def write(self, name: str, data: Data) -> int:
        """Write a file under a name never used before; durable when it returns its bytes."""
        path = self._path(name)
        _make_directory(path.parent)
        with _clear_errors(name, data):
            size = _write_new(path, data)
        sync_directory(path.parent)
        return size

    def read(self, name: str) -> pa.Buffer:
        """The content of a file; `FileNotFoundError` where there is none."""
        path = self._path(name)
        if path.is_dir():
            path = path / _DOCUMENT
        if self.memory_map and path.stat().st_size:
            with pa.memory_map(str(path)) as file:
                return file.read_buffer()
        return pa.py_buffer(path.read_bytes())

    def create_if_absent(self, name: str, data: Data) -> None:
        """Create a document, all or nothing and durable, or raise `AlreadyCommitted`."""
        path = self._path(name)
        _make_directory(path.parent)
        temporary = path.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            with _clear_errors(name, data):
                _write_new(temporary, data)
                created = _link(temporary, path)
            if created is None:
                temporary.unlink()
                with _clear_errors(name, data):
                    temporary.mkdir()
                    _write_new(temporary / _DOCUMENT, data)
                    sync_directory(temporary)
                    created = _rename(temporary, path)
        finally:
            _remove(temporary)
        sync_directory(path.parent)
        if not created:
            raise AlreadyCommitted(errno.EEXIST, "expected no such document, got one", name)

    def replace(self, name: str, data: Data) -> int:
        """Write a file over one of that name, if there is one: all or nothing, and durable."""
        path = self._path(name)
        _make_directory(path.parent)
        temporary = path.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            with _clear_errors(name, data):
                size = _write_new(temporary, data)
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(path.parent)
        return size

    def list(self, prefix: str) -> Names:
        """Names that begin so, ascending."""
        # A prefix may end within a part: what can match is below the part before.
        top = self.path / PurePosixPath(prefix + "x").parent
        found = (path.relative_to(self.path).as_posix() for path in _names(top))
        return sorted(name for name in found if name.startswith(prefix))

    def delete(self, *names: str) -> None:
        """Remove files; durable when it returns. Those that are not there are no error."""
        paths = [self._path(name) for name in names]
        for path in paths:
            _remove(path)
        for parent in dict.fromkeys(path.parent for path in paths):
            if parent.is_dir():
                sync_directory(parent)

    def modified(self, name: str) -> float:
        """When a file was written, in seconds since 1970."""
        return self._path(name).stat().st_mtime

    def clean(self, older_than_seconds: float, now: float) -> Names:
        """Remove temporary files of that age, left by writers that died."""
        removed = []
        for path in sorted(self.path.rglob(f"{_TEMPORARY}*")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < now - older_than_seconds:
                    _remove(path)
                    removed.append(path.relative_to(self.path).as_posix())
        return removed

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if any(part in ("", ".", "..") or part.startswith(_OWN) for part in parts):
            raise ValueError(f"name: expected a relative path of plain parts, got '{name}'")
        return self.path.joinpath(*parts)


def _names(top: Path) -> Iterator[Path]:
    """Files, and directories that are a document."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        entries = list(os.scandir(top))
        for entry in entries:
            path = top / entry.name
            if entry.name.startswith(_OWN):
                continue
            if not entry.is_dir() or (path / _DOCUMENT).exists():
                yield path
            else:
                yield from _names(path)


def _pieces(data: Data) -> list[memoryview]:
    whole: Sequence[Any] = data if isinstance(data, list | tuple) else [data]
    return [memoryview(piece).cast("B") for piece in whole]


def _write_new(path: Path, data: Data) -> int:
    """Write a file that is not there, to the disk; where that fails, there is none."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    file = os.open(path, flags, 0o666)
    size = 0
    try:
        for piece in _pieces(data):
            at = 0
            while at < len(piece):
                at += os.write(file, piece[at:])
            size += at
        os.fsync(file)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    return size


def _make_directory(path: Path) -> None:
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make names in a directory durable."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _link(temporary: Path, path: Path) -> bool | None:
    """Whether the name is this file now; None where the file system has no links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        # An answer that a network lost is asked for again, and then finds its own link.
        return path.exists() and temporary.samefile(path)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return None
        raise
    return True


def _rename(temporary: Path, path: Path) -> bool:
    """Whether the name is this directory now."""
    try:
        temporary.rename(path)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    return True


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # macOS says EPERM of a directory
        if not path.is_dir():
            raise
        (path / _DOCUMENT).unlink(missing_ok=True)
        path.rmdir()


@contextlib.contextmanager
def _clear_errors(name: str, data: Data) -> Iterator[None]:
    """Say what was being written where the system refuses; the kind of error stays."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        size = sum(len(piece) for piece in _pieces(data))
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"expected {size} bytes written, got {reason}", name) from error
