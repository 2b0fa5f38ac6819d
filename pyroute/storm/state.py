"""Keyed state that survives its process: a log of commits with checksums, and what is in it.

A directory holds segments, `00000001.log` and up. Each begins with a base, all that is known, and
every commit after it is appended and synced as one piece. Whoever opens the directory begins a new
segment, created only if there is none of that number: who had it before finds that out at its next
commit, and stops (`FencedError`) before anybody believes that commit. A torn end is no commit: each
is synced before the next begins. Damage before the end is another matter, because what follows it
was believed: the directory is refused (`FormatError`), and not read up to there.

    frame: length u32 | CRC-32 u32 of the rest | sections
    section: kind u8 | length u32 | content

>>> import tempfile
>>> folder = tempfile.mkdtemp()
>>> with Log.open(folder) as log:
...     log.append([(b"A", b"one")])
>>> Log.open(folder).loaded
[[(b'A', b'one')]]
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from pyroute._core import FormatError
from pyroute.protocol import FencedError
from pyroute.protocol.storage import sync_directory

Section: TypeAlias = tuple[bytes, bytes]
"""Kind, one byte, and content."""

_FRAME = struct.Struct("<II")
_SECTION = struct.Struct("<cI")
_KEY = struct.Struct("<Q")
_LENGTHS = struct.Struct("<II")
_SEGMENT = re.compile(r"([0-9]{8})\.log")
_MAGIC = b"PYRTLOG1"
_NO_LOW = 1 << 200  # of a source that said none: above all numbers
_SMALLEST = 4 << 20  # a log of fewer bytes is not worth a new base


class Log:
    """The segments of one task, of which this process owns the newest.

    Attributes
    ----------
    loaded
        Base and commits that were found, oldest first; empty in a new directory.
    """

    def __init__(self, folder: Path, number: int, loaded: list[list[Section]]) -> None:
        self.folder = folder
        self.loaded = loaded
        self._number = number
        self._file = -1
        self._base = 0
        self._size = 0
        self._ready = False

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        check: Callable[[list[list[Section]]], None] | None = None,
    ) -> Self:
        """Take over the directory; made where there is none.

        Parameters
        ----------
        folder
            The directory.
        check
            Raises where what is there is not for the caller; its owner goes on undisturbed then.
        """
        path = Path(folder).absolute()
        _make(path)
        if check is not None:
            check(_look(path))
        number = 0
        while True:
            number = max([number, *_segments(path)]) + 1
            with contextlib.suppress(FileExistsError):
                file = os.open(_path(path, number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
                break
        sync_directory(path)
        # Only now: whatever its owner commits from here on, it is told that it lost.
        try:
            loaded = _newest(path, [older for older in _segments(path) if older < number])
            if check is not None:
                check(loaded)
        except BaseException:
            os.close(file)
            _path(path, number).unlink(missing_ok=True)
            raise
        log = cls(path, number, loaded)
        log._file = file
        return log

    def append(self, sections: Sequence[Section]) -> None:
        """Commit: durable when it returns; `FencedError` where another process took over.

        The first one is the base: everything that is known.
        """
        frame = _frame(sections)
        if not self._ready:
            frame = _MAGIC + frame
        try:
            self._write(frame)
        except OSError:
            # Half a commit is of no use to anybody, and may be what fills the disk. The file stays:
            # it says who the owner is.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
                os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._check()
        if not self._ready:
            self._ready, self._base = True, len(frame)
            self._clean()

    @property
    def full(self) -> bool:
        """Whether it is time for a new base."""
        return self._size - self._base > max(_SMALLEST, 2 * self._base)

    def compact(self, base: Sequence[Section]) -> None:
        """Begin a new segment with all that is known, and remove the ones before."""
        number = self._number + 1
        try:
            file = os.open(_path(self.folder, number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            raise FencedError(f"state: expected to own {self.folder}, got another owner") from None
        os.close(self._file)
        self._file, self._number, self._size, self._ready = file, number, 0, False
        sync_directory(self.folder)
        self.append(base)

    def close(self) -> None:
        """Let go."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _write(self, data: bytes) -> None:
        with memoryview(data) as view:
            done = 0
            while done < len(data):
                done += os.write(self._file, view[done:])
        os.fdatasync(self._file) if hasattr(os, "fdatasync") else os.fsync(self._file)
        self._size += len(data)

    def _check(self) -> None:
        """After the sync: who begins the next segment reads this one afterwards."""
        if max(_segments(self.folder), default=0) != self._number:
            raise FencedError(f"state: expected to own {self.folder}, got another owner")

    def _clean(self) -> None:
        for number in _segments(self.folder):
            if number < self._number:
                _path(self.folder, number).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _make(folder: Path) -> None:
    """Make a directory and those above it that are missing; durable when it returns."""
    missing = [folder, *folder.parents]
    missing = missing[: next(i for i, each in enumerate(missing) if each.exists())]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def _newest(folder: Path, numbers: Sequence[int]) -> list[list[Section]]:
    """Base and commits of the newest segment that has a base; nothing where none ever had."""
    for number in sorted(numbers, reverse=True):
        loaded = _read(_path(folder, number))
        if loaded:
            return loaded
    if numbers and min(numbers) > 1:
        # The ones before were removed, as they are once a base is on disk.
        raise FormatError(f"{folder}: expected a segment with its base, got none: state is lost")
    return []


def _look(folder: Path) -> list[list[Section]]:
    """Base and commits of a directory that somebody else may be writing."""
    while True:
        numbers = _segments(folder)
        try:
            return _newest(folder, numbers)
        except FileNotFoundError:  # the next segment took its place
            continue
        except FormatError:
            if numbers == _segments(folder):
                raise


def _segments(folder: Path) -> list[int]:
    return [int(m[1]) for path in folder.iterdir() if (m := _SEGMENT.fullmatch(path.name))]


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.log"


def _frame(sections: Sequence[Section]) -> bytes:
    parts: list[bytes] = []
    for kind, content in sections:
        parts += (_SECTION.pack(kind, len(content)), content)
    body = b"".join(parts)
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _read(path: Path) -> list[list[Section]]:
    """Base and commits of one segment; nothing where its base is not whole."""
    data = path.read_bytes()
    if not data.startswith(_MAGIC):
        if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
            raise FormatError(f"{path}: expected a log of pyroute, got something else")
        return []
    at, found = len(_MAGIC), []
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        if not length:
            break  # torn: a file may be longer than what was written to it
        body = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(body) != length or zlib.crc32(body) != checksum:
            if at + _FRAME.size + length < len(data):
                raise FormatError(
                    f"{path}: expected commits up to its end, got damage at byte {at} of"
                    f" {len(data)}: what was committed after it is not to be lost"
                )
            break  # torn: nobody was told that it is there
        found.append(list(_sections(body)))
        at += _FRAME.size + length
    return found


def _sections(body: bytes) -> Iterator[Section]:
    at = 0
    while at < len(body):
        kind, length = _SECTION.unpack_from(body, at)
        at += _SECTION.size
        yield kind, body[at : at + length]
        at += length


# what was seen ----------------------------------------------------------------------------------

Outputs: TypeAlias = list[Any] | None
"""What a record made: to be sent again when the record comes again."""


class Seen:
    """Ids of the records that were applied, so that one that comes again is known.

    An id is any text. One of the form `[source, number, ...]` has a number that its source counts
    up; records may then carry `low`, the least number of that source that may still come again, and
    ids below are forgotten. Others are forgotten after `seconds`: that has to be longer than any
    record may take to come again.

    Parameters
    ----------
    seconds
        How long ids without a number are kept.
    generations
        In how many portions they are forgotten.
    """

    def __init__(self, seconds: float, generations: int = 8) -> None:
        if not seconds > 0:
            raise ValueError(f"seconds: expected more than 0, got {seconds}")
        self.seconds = seconds
        self.low: dict[str, int] = {}
        self._span = seconds / generations
        self._generations: deque[_Generation] = deque()
        self._index: dict[int, list[str]] | None = None

    def __len__(self) -> int:
        return sum(len(generation.ids) for generation in self._generations)

    def __contains__(self, identifier: str) -> bool:
        return self.find(identifier) is not None

    def find(self, identifier: str) -> tuple[int, Outputs] | None:
        """Key and outputs of an id that was seen."""
        for generation in self._generations:
            entry = generation.ids.get(identifier)
            if entry is not None:
                return entry
        return None

    def stale(self, source: str | None, number: int) -> bool:
        """Whether its source said that this one is done: then it comes late."""
        return source is not None and number < self.low.get(source, 0)

    def add(
        self,
        identifier: str,
        key: int,
        now: float,
        outputs: Outputs = None,
        sequence: tuple[str, int] | None = None,
    ) -> None:
        """Remember an id."""
        self._index = None
        if not self._generations or now - self._generations[-1].since >= self._span:
            self._generations.append(_Generation(now))
        generation = self._generations[-1]
        generation.last = max(generation.last, now)
        generation.add(identifier, (key, outputs), sequence)

    def set_outputs(self, identifier: str, outputs: list[Any]) -> None:
        """Remember what a record made that was added before."""
        for generation in reversed(self._generations):
            entry = generation.ids.get(identifier)
            if entry is not None:
                generation.ids[identifier] = (entry[0], outputs)
                return

    def forget(self, identifier: str) -> None:
        """Forget one id, where it is known."""
        for generation in self._generations:
            generation.ids.pop(identifier, None)

    def passed(self, source: str, low: int) -> None:
        """A source says that numbers below do not come again."""
        if low > self.low.get(source, -1):
            self.low[source] = low

    def renew(self, identifier: str, now: float) -> bool:
        """It came again: its time begins anew. False where that is not long ago."""
        for generation in self._generations:
            entry = generation.ids.get(identifier)
            if entry is not None:
                if now - generation.since < self._span:
                    generation.last = max(generation.last, now)
                    return False
                del generation.ids[identifier]
                self.add(identifier, entry[0], now, entry[1], _sequence(identifier))
                return True
        return False

    def expire(self, now: float) -> None:
        """Forget what cannot come again.

        What a source may still send when its time is over is kept apart: one that ended says no
        more `low`, and must not keep the ids of all others.
        """
        before = now - self.seconds
        left = [each for each in self._generations if not each.over(before, self.low)]
        old = [each for each in left if each.last < before]
        if len(left) == len(self._generations) and all(each.kept for each in old):
            return
        if any(not each.kept for each in old):
            kept = _Generation(old[0].since)
            kept.kept, kept.last = True, max(each.last for each in old)
            for generation in old:
                for identifier, entry in generation.ids.items():
                    sequence = _sequence(identifier)
                    if sequence is not None and sequence[1] >= self.low.get(sequence[0], _NO_LOW):
                        kept.add(identifier, entry, sequence)
            left = [kept, *(each for each in left if each.last >= before)]
        self._generations = deque(left)
        self._index = None

    def of(self, key: int) -> list[tuple[str, Outputs]]:
        """Ids of one key, with their outputs; cheap for many keys in a row."""
        if self._index is None:
            self._index = {}
            for generation in self._generations:
                for identifier, (owner, _) in generation.ids.items():
                    self._index.setdefault(owner, []).append(identifier)
        found = []
        for identifier in self._index.get(key, ()):
            entry = self.find(identifier)
            if entry is not None:
                found.append((identifier, entry[1]))
        return found

    def drop(self, key: int) -> None:
        """Forget the ids of a key that left."""
        for identifier, _ in self.of(key):
            for generation in self._generations:
                generation.ids.pop(identifier, None)
        assert self._index is not None
        self._index.pop(key, None)

    def items(self) -> Iterator[tuple[str, int, Outputs]]:
        """All of them: id, key, outputs."""
        for generation in self._generations:
            for identifier, (key, outputs) in generation.ids.items():
                yield identifier, key, outputs


class _Generation:
    """Ids that came in one span of time."""

    __slots__ = ("highest", "ids", "kept", "last", "since", "unnumbered")

    def __init__(self, since: float) -> None:
        self.since = self.last = since
        self.ids: dict[str, tuple[int, Outputs]] = {}
        self.highest: dict[str, int] = {}
        self.unnumbered = False
        self.kept = False
        """Whether only those are left that may come again though they are old."""

    def add(
        self, identifier: str, entry: tuple[int, Outputs], sequence: tuple[str, int] | None
    ) -> None:
        self.ids[identifier] = entry
        if sequence is None:
            self.unnumbered = True
        elif sequence[1] > self.highest.get(sequence[0], -1):
            self.highest[sequence[0]] = sequence[1]

    def over(self, before: float, low: dict[str, int]) -> bool:
        # A source that says no low is taken by time too: else its ids would be kept for ever.
        return all(
            number < low[source] if source in low else self.last < before
            for source, number in self.highest.items()
        ) and (not self.unnumbered or self.last < before)


def identity(value: Any) -> tuple[str, tuple[str, int] | None]:
    """An application's id as text, and as (source, number) where it is of that form.

    That form as text is the JSON of it. Between two workers an id has to be text or a number: Storm
    does not carry lists from one process to another, unless it is told how.
    """
    if isinstance(value, str):
        return value, _sequence(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), None
    if isinstance(value, list) and len(value) >= 2 and isinstance(value[1], int):
        return json.dumps(value, separators=(",", ":")), (str(value[0]), value[1])
    raise ValueError(f"id: expected text, an int or [source, number], got {value!r}")


def _sequence(text: str) -> tuple[str, int] | None:
    """(source, number) of an id that was written as text."""
    if not text.startswith("["):
        return None
    try:
        return identity(json.loads(text))[1]
    except (ValueError, RecursionError):
        return None


# state by key -----------------------------------------------------------------------------------


class KeyedState:
    """The state of a task's keys, and the ids seen: what commits change and migrations carry.

    It is the `Store` of a `pyroute.protocol.Instance`.

    Parameters
    ----------
    seconds
        As `Seen` has it.
    encode, decode
        State to bytes and back.
    now
        The clock.
    """

    def __init__(
        self,
        seconds: float,
        *,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        now: Callable[[], float],
    ) -> None:
        self.seen = Seen(seconds)
        self._encode = encode
        self._decode = decode
        self._now = now
        self.values: dict[int, Any] = {}
        """The keys by name."""
        self.states: dict[int, Any] = {}
        self.sizes: dict[int, int] = {}
        """Bytes of their state, as it was committed last."""
        self._changed: dict[int, None] = {}
        self._added: dict[str, None] = {}
        self._low: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def touch(self, key: int, value: Any) -> None:
        """A key of this task: its state is looked at, and may change.

        `ValueError` where it is the 64-bit identity of another value too: one state is not for two.
        So it is with 1 and True, which are equal in Python and have one identity.
        """
        known = self.values.setdefault(key, value)
        if known is not value and not _alike(known, value):
            raise ValueError(
                f"key: expected one value with the identity {key:#018x}, got {known!r} and"
                f" {value!r}"
            )
        self._changed[key] = None

    def saw(self, identifier: str, key: int, sequence: tuple[str, int] | None) -> None:
        """A record is being applied."""
        self.seen.add(identifier, key, self._now(), None, sequence)
        self._added[identifier] = None

    def saw_again(self, identifier: str, sequence: tuple[str, int] | None) -> None:
        """A record that was applied came again: it may do so for as long as before."""
        by_time = sequence is None or sequence[0] not in self.seen.low
        if by_time and self.seen.renew(identifier, self._now()):
            self._added[identifier] = None

    def made(self, identifier: str, outputs: list[Any]) -> None:
        """A record that is being applied made these."""
        self.seen.set_outputs(identifier, outputs)

    # what an Instance asks ---------------------------------------------------------------------

    def keys(self, first: int, last: int) -> list[int]:
        """Keys from first to last, both inclusive, that have state."""
        return [key for key in self.values if first <= key <= last]

    def take(self, key: int) -> bytes | None:
        """Remove a key with its state and the ids seen, and return them."""
        if key not in self.values:
            return None
        ids = self.seen.of(key)
        data = self._pack(key, ids)
        self.seen.drop(key)
        for identifier, _ in ids:
            self._added.pop(identifier, None)
        del self.values[key]
        self.states.pop(key, None)
        self.sizes.pop(key, None)
        self._changed[key] = None
        return data

    def put(self, key: int, state: bytes) -> None:
        """Keep a key that came from another task."""
        ids = self._unpack(key, state)
        self._changed[key] = None
        for text, outputs in ids:
            self._remember(text, key, outputs)
            self._added[text] = None

    def _remember(self, text: str, key: int, outputs: Outputs) -> None:
        self.seen.add(text, key, self._now(), outputs, _sequence(text))

    def _pack(self, key: int, ids: list[tuple[str, Outputs]] | None) -> bytes:
        """Value, ids, what is known of sources, and state of a key."""
        low = None if ids is None else self.seen.low
        head = json.dumps([self.values[key], ids, low], separators=(",", ":")).encode()
        state = self.states.get(key)
        tail = b"" if state is None else self._encode(state)
        self.sizes[key] = len(tail)
        return _LENGTHS.pack(len(head), len(tail) + 1 if state is not None else 0) + head + tail

    def _unpack(self, key: int, data: bytes) -> list[tuple[str, Outputs]]:
        head, tail = _LENGTHS.unpack_from(data)
        at = _LENGTHS.size
        self.values[key], ids, low = json.loads(data[at : at + head])
        for source, number in (low or {}).items():
            self.seen.passed(source, number)
        self.sizes[key] = max(0, tail - 1)
        if tail:
            self.states[key] = self._decode(data[at + head : at + head + tail - 1])
        else:
            self.states.pop(key, None)
        return [(text, outputs) for text, outputs in ids or ()]

    # commits -----------------------------------------------------------------------------------

    def changes(self) -> list[Section]:
        """What changed since the last call, as sections of a commit."""
        out: list[Section] = []
        for key in self._changed:
            if key in self.values:
                out.append((b"K", _KEY.pack(key) + self._pack(key, None)))
            else:
                out.append((b"D", _KEY.pack(key)))
        added = [(i, *entry) for i in self._added if (entry := self.seen.find(i)) is not None]
        if added:
            out.append((b"I", _ids(self._now(), added)))
        if self._low != self.seen.low:
            self._low = dict(self.seen.low)
            out.append((b"L", json.dumps(self._low).encode()))
        self._changed.clear()
        self._added.clear()
        return out

    def base(self) -> list[Section]:
        """All that is known, as sections of a base."""
        self.seen.expire(self._now())
        self._forget_keys()
        out: list[Section] = [(b"K", _KEY.pack(key) + self._pack(key, None)) for key in self.values]
        for generation in self.seen._generations:
            entries = [(i, *entry) for i, entry in generation.ids.items()]
            out.append((b"I", _ids(generation.last, entries)))
        out.append((b"L", json.dumps(self.seen.low).encode()))
        self._low = dict(self.seen.low)
        self._changed.clear()
        self._added.clear()
        return out

    def _forget_keys(self) -> None:
        """Let go of keys that have no state any more, once nothing is known of their records."""
        used = self.states.keys() | {key for _, key, _ in self.seen.items()}
        for key in self.values.keys() - used:
            del self.values[key]
            self.sizes.pop(key, None)

    def load(self, sections: Iterable[Section]) -> list[Section]:
        """Take back what `base` and `changes` gave; the sections that are not of here."""
        others: list[Section] = []
        for kind, content in sections:
            if kind == b"K":
                self._unpack(_KEY.unpack_from(content)[0], content[_KEY.size :])
            elif kind == b"D":
                (key,) = _KEY.unpack(content)
                self.seen.drop(key)
                self.values.pop(key, None)
                self.states.pop(key, None)
                self.sizes.pop(key, None)
            elif kind == b"I":
                self._load_ids(content)
            elif kind == b"L":
                for source, low in json.loads(content).items():
                    self.seen.passed(source, low)
            else:
                others.append((kind, content))
        return others

    def _load_ids(self, content: bytes) -> None:
        since, entries = json.loads(content)
        for text, key, outputs in entries:
            self.seen.forget(text)  # it came again later
            self.seen.add(text, key, since, outputs, _sequence(text))


def _ids(since: float, entries: Iterable[tuple[str, int, Outputs]]) -> bytes:
    return json.dumps([since, list(entries)], separators=(",", ":")).encode()


def read_state(
    folder: str | os.PathLike[str],
    *,
    decode: Callable[[bytes], Any] = json.loads,
    first: int = 0,
    last: int = (1 << 64) - 1,
) -> dict[Any, Any]:
    """State by key of one task's directory, without taking it over.

    Parameters
    ----------
    folder
        The directory; of a task that runs, it is what was committed at some moment.
    decode
        State from bytes.
    first, last
        Only keys whose identity is in this range, both inclusive.
    """
    path = Path(folder)
    state = KeyedState(1.0, encode=bytes, decode=decode, now=lambda: 0.0)
    for sections in _look(path):
        state.load(sections)
    out: dict[Any, Any] = {}
    for key in state.keys(first, last):
        value = state.values[key]
        value = tuple(value) if isinstance(value, list) else value
        if value in out:
            known = next(each for each in out if each == value)
            raise FormatError(
                f"state: expected one state for each key, got {known!r} and {value!r}"
            )
        out[value] = state.states.get(key)
    return out


def _alike(one: Any, other: Any) -> bool:
    """Whether two keys are equal and of one type; a key of several fields is a list or a tuple."""
    if isinstance(one, list | tuple):
        return (
            isinstance(other, list | tuple)
            and len(one) == len(other)
            and all(map(_alike, one, other))
        )
    return type(one) is type(other) and bool(one == other)
