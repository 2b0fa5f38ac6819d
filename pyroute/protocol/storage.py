"""Where a manager keeps what must outlive it: whole documents, created once, durable."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from pathlib import Path
from typing import Protocol

_NAME = re.compile(r"[0-9a-z]+(\.[0-9a-z]+)*")
_TEMPORARY = ".pyroute-tmp-"

Names = list[str]


class Storage(Protocol):
    """What a `Manager` needs of stable storage."""

    def create(self, name: str, data: bytes) -> bool:
        """Create a document, all or nothing; durable when it returns.

        False, and nothing changed, where the name exists: of several that create one name, one gets
        True.
        """

    def read(self, name: str) -> bytes | None:
        """A document; None where there is none."""

    def names(self) -> Names:
        """Names of all documents, ascending."""

    def remove(self, name: str) -> None:
        """Remove a document; one that is not there is no error."""


class MemoryStorage:
    """Documents in memory: for tests, and where a lost manager means a lost stream anyway."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}

    def create(self, name: str, data: bytes) -> bool:
        """Create a document; False where the name exists."""
        if name in self.documents:
            return False
        self.documents[name] = bytes(data)
        return True

    def read(self, name: str) -> bytes | None:
        """A document; None where there is none."""
        return self.documents.get(name)

    def names(self) -> Names:
        """Names of all documents, ascending."""
        return sorted(self.documents)

    def remove(self, name: str) -> None:
        """Remove a document; one that is not there is no error."""
        self.documents.pop(name, None)


class FileStorage:
    """Documents as files of one directory of a file system with hard links.

    A document is written to a temporary file, synced, and linked to its name, which fails where the
    name exists; then the directory is synced. A reader sees all of it or none.

    Parameters
    ----------
    path
        The directory; made where it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        missing = [self.path, *self.path.parents]
        missing = missing[: next(i for i, parent in enumerate(missing) if parent.exists())]
        self.path.mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync_directory(made.parent)

    def create(self, name: str, data: bytes) -> bool:
        """Create a document, all or nothing and durable; False where the name exists."""
        path = self._path(name)
        temporary = self.path / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            write_synced(temporary, data)
            try:
                os.link(temporary, path)
            except OSError as error:
                if error.errno != errno.EEXIST:
                    raise
                created = False
            else:
                created = True
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        # Also where it existed: whoever is told so may rely on it.
        sync_directory(self.path)
        return created

    def read(self, name: str) -> bytes | None:
        """A document; None where there is none."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self) -> Names:
        """Names of all documents, ascending."""
        return sorted(path.name for path in self.path.iterdir() if _NAME.fullmatch(path.name))

    def remove(self, name: str) -> None:
        """Remove a document; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            self._path(name).unlink()
        sync_directory(self.path)

    def replace(self, name: str, data: bytes) -> None:
        """Put a document in the place of another, all or nothing and durable.

        A manager does not need it; a task that keeps its snapshot here does.
        """
        path = self._path(name)
        temporary = self.path / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            write_synced(temporary, data)
            temporary.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        sync_directory(self.path)

    def clean(self) -> None:
        """Remove what writers that died left; while nobody writes."""
        for path in self.path.glob(f"{_TEMPORARY}*"):
            path.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"FileStorage({str(self.path)!r})"

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"name: expected digits and small letters with dots, got {name!r}")
        return self.path / name


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file, durable when it returns; its name is not, until the directory is synced."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
