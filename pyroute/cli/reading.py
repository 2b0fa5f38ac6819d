"""What commands that read files share: their columns, progress, and keys as text."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyroute.analyze.scan import Columns
from pyroute.analyze.source import InputError, Source, nothing
from pyroute.cli.output import CommandError, Output

__all__ = ["Namer", "atomic", "columns_of", "progress", "read_text", "source_of"]

FOLLOWED = 4096
"""Keys that are followed by default: their counters stay in a processor's cache."""
FOLLOWED_IN_SMALL = 1 << 16
SMALL = 100_000_000
"""Bytes up to which a file is small."""

Advance = Callable[[int, int], None]


def columns_of(
    key: Sequence[str] | None,
    cost: str | None = None,
    state: str | None = None,
    time: str | None = None,
    pair: str | None = None,
) -> Columns:
    """The columns that were named; a key is needed."""
    if not key:
        raise CommandError("--key: expected the column of the key, got none")
    return Columns(tuple(dict.fromkeys(key)), cost, state, time, pair)


def source_of(
    files: Sequence[str] | None,
    columns: Columns,
    kind: str | None,
    text: bool,
    delimiter: str | None = None,
) -> Source:
    """The files that were named."""
    texts = columns.texts if text else ()
    names = list(files or ())
    return Source.of(names, columns.names, kind=kind, texts=texts, delimiter=delimiter)


def capacity_for(source: Source) -> int:
    """How many keys to follow: many where that costs no time that anyone would notice."""
    small = 0 < source.size < SMALL and not any(file.path == "-" for file in source.files)
    return FOLLOWED_IN_SMALL if small else FOLLOWED


@contextlib.contextmanager
def progress(output: Output, source: Source) -> Iterator[Advance]:
    """A bar with rate and time left, on a terminal alone."""
    if not output.is_live:
        yield nothing
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    known = source.size
    shown = Progress(
        TextColumn("reading"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} records, {task.fields[rate]:,.0f} a second"),
        TimeElapsedColumn() if not known else TimeRemainingColumn(),
        console=output.progress,
        transient=True,
        refresh_per_second=5,
    )
    lock, began = threading.Lock(), time.monotonic()
    seen, told = [0, 0], [0.0]
    with shown:
        bar = shown.add_task("reading", total=known or None, rows=0, rate=0.0)

        def show(now: float) -> None:
            done = min(seen[1], known) if known else None
            rate = seen[0] / max(1e-9, now - began)
            shown.update(bar, completed=done, rows=seen[0], rate=rate)

        def advance(rows: int, size: int) -> None:
            with lock:
                seen[0] += rows
                seen[1] += size
                now = time.monotonic()
                if now - told[0] >= 0.1:
                    told[0] = now
                    show(now)

        yield advance
        show(time.monotonic())  # also what came since the last look


class Namer:
    """Keys as they are shown and written; hashed, where that is asked for."""

    def __init__(self, hashed: bool) -> None:
        self.salt = secrets.token_bytes(32) if hashed else None
        """Of all names of one call, on the screen and in its report; None where keys are shown."""

    @property
    def hides(self) -> bool:
        """Whether no key itself may be shown."""
        return self.salt is not None

    def text(self, value: Any) -> str:
        """As a table shows it."""
        from pyroute.report.model import hashed_name, name_of

        name = name_of(value)
        return name.text if self.salt is None else hashed_name(name, self.salt).text

    def json(self, value: Any) -> dict[str, Any]:
        """As JSON has it: typed, integers as text."""
        from pyroute._typed_json import encode

        if self.salt is not None:
            return {"t": "hashed", "v": self.text(value)}
        return encode(value)


def expect_place(path: Path | None, name: str) -> None:
    """Raise where a file cannot be written, before any work is done for it."""
    if path is None:
        return
    if path.is_dir():
        raise CommandError(f"{name}: expected a file, got the directory {path}")
    if not path.parent.is_dir():
        raise CommandError(f"{name}: no such directory as {path.parent}")


def expect_places(inputs: Sequence[str | Path], places: Mapping[str, Path | None]) -> None:
    """Raise where files cannot be written, or one would take the place of another or of an input.

    Parameters
    ----------
    inputs
        What is read, as it was named.
    places
        The files that are to be written, by the option that names them.
    """
    taken = {Path(one).resolve(): str(one) for one in inputs if Path(one).is_file()}
    for name, path in places.items():
        expect_place(path, name)
        if path is None:
            continue
        if path.resolve() in taken:
            raise CommandError(
                f"{name}: expected a file of its own, got {path}, as for {taken[path.resolve()]}"
            )
        taken[path.resolve()] = name


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A file beside the one that is to be written, which takes its place when all went well."""
    if path.is_dir():
        raise CommandError(f"{path}: expected a file, got a directory")
    if not path.parent.is_dir():
        raise CommandError(f"{path}: no such directory as {path.parent}")
    made = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield made
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(path)
    except OSError as error:
        if made.name not in str(error):
            raise
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CommandError(f"{path}: cannot be written: {reason}") from error
    finally:
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)


def read_text(path: Path, what: str) -> str:
    """A file of text; one line where it is none."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file; expected {what}") from None
    except IsADirectoryError:
        raise CommandError(f"{path}: expected {what}, got a directory") from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: expected {what}, got a file that is no text") from None


def taken_as(columns: Columns, unit: str) -> str:
    """What is said of times that are numbers."""
    return (
        f"{columns.time}: numbers, taken for times in {unit} by the size of the first ones, from"
        " 1970 on; a column of times says it itself"
    )


def expect_records(records: int, source: Source) -> None:
    """Raise where nothing was read."""
    if not records:
        names = ", ".join(file.name for file in source.files[:3])
        raise InputError(f"{names}: expected records, got none")
