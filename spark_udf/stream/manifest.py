"""Manifests: which files are the state after each batch, and the log that commits them.

A manifest is a JSON document `manifests/<sequence, 12 digits>.json`. Creating it is the commit of
its batch: before it the state is that of the manifest before, whatever files were written, and of
two drivers that commit one sequence number one is refused. Every manifest holds the name and the
SHA-256 of the one before, and a checksum of itself: a damaged one stops with an error and is never
passed over for an older one.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyroute import FormatError, _typed_json
from pyroute._arrays import count, task_id, word
from spark_udf.stream.files import LevelFile, TaskFiles
from spark_udf.stream.schema import StateSchema
from spark_udf.stream.store import AlreadyCommitted, Store

FORMAT = "pyroute.manifest"
FORMAT_VERSION = 1
SWEPT = ("state/", "routers/", "stats/")
"""Where orphans are looked for: not where outputs are, which are the user's."""

_FOLDER = "manifests/"
_NAME = re.compile(r"manifests/([0-9]{12})\.json")

Unknown = Mapping[str, Any]


class FencedError(RuntimeError):
    """Another driver committed what this one was about to: this one has to stop."""


@dataclass(frozen=True)
class Job:
    """What the state is of; the same in every manifest of a log."""

    name: str
    number: int
    """How many tasks."""
    schema: StateSchema
    unknown: Unknown = field(default_factory=dict, repr=False, hash=False)

    def _document(self) -> dict[str, Any]:
        data = self.schema.rows.serialize().to_pybytes()
        return {
            **self.unknown,
            "name": self.name,
            "number": self.number,
            "keys": [{"name": key.name, "type": str(key.type)} for key in self.schema.keys],
            "schema": base64.b64encode(data).decode(),
        }

    @classmethod
    def _of(cls, document: Any) -> Job:
        keys = document["keys"]
        data = base64.b64decode(document["schema"], validate=True)
        try:
            rows = pa.ipc.read_schema(pa.py_buffer(data))
        except (pa.ArrowException, OSError, EOFError) as error:
            raise FormatError(f"schema: expected an Arrow schema, got {error}") from error
        schema = StateSchema.of(rows, [_text(key["name"], "keys") for key in keys])
        types = [str(key.type) for key in schema.keys]
        if types != [key["type"] for key in keys]:
            raise FormatError(f"keys: expected types {types}, got {[key['type'] for key in keys]}")
        return cls(
            _text(document["name"], "name"),
            count(document["number"], "number"),
            schema,
            _rest(document, "name", "number", "keys", "schema"),
        )


@dataclass(frozen=True)
class RouterFile:
    """A router in the store."""

    name: str
    version: int
    fingerprint: int
    unknown: Unknown = field(default_factory=dict, repr=False, hash=False)

    def _document(self) -> dict[str, Any]:
        return {
            **self.unknown,
            "name": self.name,
            "version": self.version,
            "fingerprint": str(self.fingerprint),
        }

    @classmethod
    def _of(cls, document: Any) -> RouterFile:
        return cls(
            _text(document["name"], "name"),
            count(document["version"], "version"),
            word(int(_text(document["fingerprint"], "fingerprint")), "fingerprint"),
            _rest(document, "name", "version", "fingerprint"),
        )


@dataclass(frozen=True)
class Reference:
    """A manifest as the next one names it."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The state after one batch; `to_json` and `from_json` are inverse, also for unknown fields.

    Parameters
    ----------
    job
        What the state is of.
    query_id
        The query whose batches these are.
    sequence
        0, 1, 2, ... without gaps.
    batch_id
        The batch that this manifest commits.
    previous
        The manifest before, by `reference`; None for the first.
    tasks
        The files of every task.
    router
        In force in this batch: the files are laid out by it.
    next_router
        In force from the next batch on; the same where nothing changes.
    stats
        The file of the statistics, if there is one.
    outputs
        Files that the batch made for others; clean-up leaves them alone unless told otherwise.
    metrics
        Numbers, and lists of numbers, by name.
    offsets
        A digest of what the checkpoint says the batch is of; None where it was not read.
    unknown
        Fields of a later release.
    """

    job: Job
    query_id: str
    sequence: int
    batch_id: int
    previous: Reference | None
    tasks: Mapping[int, TaskFiles]
    router: RouterFile
    next_router: RouterFile
    stats: str | None = None
    outputs: tuple[str, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    offsets: str | None = None
    unknown: Unknown = field(default_factory=dict, repr=False, hash=False)
    _sha256: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Its name in the store."""
        return _name(self.sequence)

    @property
    def reference(self) -> Reference:
        """How the next manifest names this one."""
        return Reference(self.name, self._sha256 or _sha256(self.to_json()))

    @property
    def files(self) -> frozenset[str]:
        """The files that it needs, without outputs."""
        names = {level.name for files in self.tasks.values() for level in files.levels}
        names |= {self.router.name, self.next_router.name}
        return frozenset(names if self.stats is None else names | {self.stats})

    def to_json(self) -> str:
        """The document; equal manifests have equal ones."""
        document = {
            **self.unknown,
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "job": self.job._document(),
            "query_id": self.query_id,
            "sequence": self.sequence,
            "batch_id": self.batch_id,
            "previous": None if self.previous is None else dataclasses.asdict(self.previous),
            "tasks": {str(task): files_document(files) for task, files in self.tasks.items()},
            "router": self.router._document(),
            "next_router": self.next_router._document(),
            "stats": self.stats,
            "outputs": list(self.outputs),
            "metrics": dict(self.metrics),
        }
        if self.offsets is not None:
            document["offsets"] = self.offsets
        return _text_of({**document, "checksum": _checksum(document)})

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Read what `to_json` wrote; anything else raises `FormatError`."""
        try:
            manifest = _typed_json.read(text, FORMAT, "manifest", cls._of)
        except FormatError as error:
            version = _version(text)
            if version > FORMAT_VERSION:
                raise FormatError(
                    f"format_version: expected <= {FORMAT_VERSION}, got {version}:"
                    " written by a newer release"
                ) from error
            raise
        # Of the bytes as they are: a later release may write a document in another way.
        object.__setattr__(manifest, "_sha256", _sha256(text))
        return manifest

    @classmethod
    def _of(cls, document: dict[str, Any]) -> Manifest:
        given = document.pop("checksum")
        checksum = _checksum(document)
        if given != checksum:
            raise FormatError(f"checksum: expected {checksum}, got {given}: it is damaged")
        previous = document["previous"]
        stats, offsets = document["stats"], document.get("offsets")
        known = [part.name for part in dataclasses.fields(cls) if part.compare]
        known.remove("unknown")
        return cls(
            job=Job._of(document["job"]),
            query_id=_text(document["query_id"], "query_id"),
            sequence=count(document["sequence"], "sequence", _LAST),
            batch_id=count(document["batch_id"], "batch_id"),
            previous=None if previous is None else _reference(previous),
            tasks={
                task_id(int(task), "tasks"): files_of(files)
                for task, files in document["tasks"].items()
            },
            router=RouterFile._of(document["router"]),
            next_router=RouterFile._of(document["next_router"]),
            stats=None if stats is None else _text(stats, "stats"),
            outputs=tuple(_text(name, "outputs") for name in document["outputs"]),
            metrics=dict(document["metrics"]),
            offsets=None if offsets is None else _text(offsets, "offsets"),
            unknown=_rest(document, "format", "format_version", *known),
        )


_LAST = 10**12 - 1


def _name(sequence: int) -> str:
    return f"{_FOLDER}{sequence:012d}.json"


def _text_of(document: Mapping[str, Any]) -> str:
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"manifest: expected texts and finite numbers, got {error}") from error


def _checksum(document: Mapping[str, Any]) -> str:
    return _sha256(_text_of(document))


def _sha256(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def _version(text: str | bytes) -> int:
    try:
        version = json.loads(text)["format_version"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return 0
    return version if isinstance(version, int) else 0


def _rest(document: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in known}


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise FormatError(f"{name}: expected text, got {type(value).__name__}")
    return value


def _reference(document: Any) -> Reference:
    return Reference(_text(document["name"], "previous"), _text(document["sha256"], "previous"))


def files_document(files: TaskFiles) -> dict[str, Any]:
    """The files of a task as a JSON document."""
    """The files of a task as JSON has them."""
    return {
        **files.unknown,
        "levels": [
            {**level.unknown, "name": level.name, "rows": level.rows, "bytes": level.bytes}
            for level in files.levels
        ],
        "rows": files.rows,
        "written_bytes": files.written_bytes,
    }


def files_of(document: Any) -> TaskFiles:
    """Read what `files_document` gave."""
    """What `files_document` wrote; what is wrong in it is a `LookupError` or a `ValueError`."""
    levels = tuple(
        LevelFile(
            _text(level["name"], "levels"),
            count(level["rows"], "rows"),
            count(level["bytes"], "bytes"),
            _rest(level, "name", "rows", "bytes"),
        )
        for level in document["levels"]
    )
    return TaskFiles(
        levels,
        count(document["rows"], "rows"),
        count(document["written_bytes"], "written_bytes"),
        _rest(document, "levels", "rows", "written_bytes"),
    )


class Log:
    """The manifests of one store, newest last.

    Parameters
    ----------
    store
        Where they are.
    swept
        Prefixes of the names that `sweep` looks at. Where outputs are among them they go with
        their manifests: say so only if they are copied elsewhere before.
    """

    def __init__(self, store: Store, *, swept: Sequence[str] = SWEPT) -> None:
        self.store = store
        self.swept = tuple(swept)

    def last(self) -> Manifest | None:
        """The manifest in force, None before the first.

        One that is damaged raises `FormatError` with its name: the one before is not the state.
        """
        while sequences := self._sequences():
            try:
                return self.read(sequences[-1])
            except FileNotFoundError:
                # Removed meanwhile, so there is a newer one. Where not even the list changed, the
                # file cannot be read.
                if self._sequences()[-1:] == sequences[-1:]:
                    raise
        return None

    def read(self, sequence: int) -> Manifest:
        """One manifest, by its number."""
        name = _name(sequence)
        data = self.store.read(name).to_pybytes()
        try:
            manifest = Manifest.from_json(data)
        except FormatError as error:
            raise FormatError(f"{name}: {error}") from error
        if manifest.sequence != sequence:
            raise FormatError(f"{name}: expected sequence {sequence}, got {manifest.sequence}")
        return manifest

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the one in force, durable when it returns.

        Raises `FencedError` where another driver was first. A manifest that does not follow the
        last one is a `ValueError`.
        """
        last = self.last()
        following = 0 if last is None else last.sequence + 1
        if manifest.sequence > following:
            raise ValueError(f"sequence: expected {following}, got {manifest.sequence}")
        if manifest.sequence < following:
            raise _fenced(manifest, following - 1)
        if manifest.previous != (None if last is None else last.reference):
            raise FencedError(
                f"{manifest.name}: expected it to follow {last and last.reference}, got"
                f" {manifest.previous}: another driver committed the batch before"
            )
        try:
            self.store.create_if_absent(manifest.name, manifest.to_json().encode())
        except AlreadyCommitted as error:
            raise _fenced(manifest, manifest.sequence) from error
        # The number may be free because it was cleaned up: then there are newer ones.
        newest = self._sequences()[-1]
        if newest > manifest.sequence:
            raise _fenced(manifest, newest)

    def keep(self, n: int) -> list[str]:
        """Remove all but the newest n manifests, and the files that only removed ones name.

        Manifests first, oldest first, then their files: wherever it stops, every manifest that is
        there has its files, and `sweep` finds what stayed.

        Returns
        -------
        list of str
            The names removed.
        """
        if n < 2:
            raise ValueError(f"n: expected at least 2 manifests, got {n}")
        sequences = self._sequences()
        old, new = sequences[:-n], sequences[-n:]
        if not old:
            return []
        files = sorted(self._removable(old) - self._named(new))
        names = [_name(sequence) for sequence in old]
        for name in names:
            self.store.delete(name)
        self.store.delete(*files)
        return names + files

    def sweep(self, older_than_seconds: float, now: float) -> list[str]:
        """Remove files that no manifest names, left by attempts and drivers that failed.

        Parameters
        ----------
        older_than_seconds
            Only files of that age: more than any batch takes from its first file to its commit.
        now
            Seconds since 1970, by the clock of the store.

        Returns
        -------
        list of str
            The names removed.
        """
        # Listed before the manifests are read: what is committed meanwhile is named.
        old = []
        for prefix in self.swept:
            for name in self.store.list(prefix):
                try:
                    if self.store.modified(name) < now - older_than_seconds:
                        old.append(name)
                except FileNotFoundError:
                    continue
        orphans = sorted(set(old) - self._named(self._sequences()))
        self.store.delete(*orphans)
        return orphans + self.store.clean(older_than_seconds, now)

    def _sequences(self) -> list[int]:
        found = (_NAME.fullmatch(name) for name in self.store.list(_FOLDER))
        return [int(match.group(1)) for match in found if match]

    def _named(self, sequences: Iterable[int]) -> set[str]:
        manifests = map(self.read, sequences)
        return {name for manifest in manifests for name in (*manifest.files, *manifest.outputs)}

    def _removable(self, sequences: Iterable[int]) -> set[str]:
        names: set[str] = set()
        for manifest in map(self.read, sequences):
            names |= manifest.files
            names |= {name for name in manifest.outputs if name.startswith(self.swept)}
        return names


def _fenced(manifest: Manifest, newest: int) -> FencedError:
    return FencedError(
        f"{manifest.name}: expected to commit batch {manifest.batch_id}, got a log at sequence"
        f" {newest}: another driver committed it"
    )
