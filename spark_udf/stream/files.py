"""Levels in files: the format, what it is checked with, and the files of a task.

A file is an Arrow IPC file, uncompressed so that a memory map is the level (measured on 125,000
rows of 47 bytes: lz4 saves a fifth of the bytes and takes 20 times as long to write). Its columns
are `pyroute.id`, `pyroute.deleted`, the key columns and the value columns. The schema's metadata
holds, under `pyroute.state`, a JSON document

    format, format_version, task, rows, bytes of the file,
    batches: [offset, bytes, rows, first id, CRC-32] of each

and under `pyroute.state.checksum` the CRC-32 of that document. A reader checks what it touches: the
document always, a batch when it first needs it. Whatever is damaged raises `pyroute.FormatError`
with the file's name. Arrow's own footer is written for other readers and not used.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pyroute import FormatError
from spark_udf.stream.levels import Level, Run
from spark_udf.stream.schema import StateSchema

FORMAT = "pyroute.state"
FORMAT_VERSION = 1

_HEADER = FORMAT.encode()
_CHECKSUM = _HEADER + b".checksum"
_MAGIC = b"ARROW1\0\0"
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class LevelFile:
    """One level in a store."""

    name: str
    rows: int
    bytes: int
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    """Fields that a later release wrote of it in a manifest."""


@dataclass(frozen=True)
class TaskFiles:
    """The state of one task: its levels, oldest first."""

    levels: tuple[LevelFile, ...] = ()
    rows: int = 0
    """Live rows: keys that have state."""
    written_bytes: int = 0
    """Bytes that the flush which made this wrote."""
    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    """Fields that a later release wrote of it in a manifest."""

    @property
    def stored_rows(self) -> int:
        """Rows in all levels, with those overwritten or deleted since."""
        return sum(level.rows for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of all levels."""
        return sum(level.bytes for level in self.levels)


def encode(level: Level, task: int) -> pa.Buffer:
    """The file of a level that is not empty."""
    runs = list(level.runs())
    size = len(_document(task, level.rows, _LARGEST, runs, [(_LARGEST,) * 3] * len(runs)))
    # Written twice: the document says where the batches are and what they are checked with, and
    # its length, which is the same both times, is all of it that moves them.
    draft = _file(level.schema, runs, " " * size)
    at = _spans(draft, len(runs))
    blocks = [(start, stop - start, zlib.crc32(draft[start:stop])) for start, stop in at]
    document = _document(task, level.rows, draft.size, runs, blocks).ljust(size)
    data = _file(level.schema, runs, document)
    assert data.size == draft.size
    return data


def _document(
    task: int, rows: int, size: int, runs: list[Run], blocks: Sequence[tuple[int, ...]]
) -> str:
    return json.dumps(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "task": task,
            "rows": rows,
            "bytes": size,
            "batches": [
                [start, length, len(run), int(run.ids[0]), checksum]
                for run, (start, length, checksum) in zip(runs, blocks, strict=True)
            ],
        },
        separators=(",", ":"),
    )


def _file(schema: StateSchema, runs: list[Run], document: str) -> pa.Buffer:
    text = document.encode()
    stored = schema.stored
    header = stored.with_metadata({_HEADER: text, _CHECKSUM: f"{zlib.crc32(text):08x}".encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, header) as writer:
        for run in runs:
            columns = [pa.array(run.ids), pa.array(run.deleted), *run.rows.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=header))
    return sink.getvalue()


def _spans(data: pa.Buffer, batches: int) -> list[tuple[int, int]]:
    """Where the messages of the batches are."""
    reader = pa.BufferReader(data)
    reader.seek(len(_MAGIC))
    pa.ipc.read_message(reader)
    edges = [reader.tell()]
    for _ in range(batches):
        pa.ipc.read_message(reader)
        edges.append(reader.tell())
    return list(pairwise(edges))


def decode(data: pa.Buffer, name: str, schema: StateSchema) -> Level:
    """The level in a file; its batches are read and checked when they are needed.

    Raises `pyroute.FormatError` with the file's name for anything but a whole level of this schema.
    """
    document = _read_document(data, name, schema)
    try:
        # From the numbers of a document whose checksum holds: what is amiss is the writer's doing.
        blocks = [tuple(map(int, block)) for block in document["batches"]]
        starts, lengths, counts, firsts, checksums = zip(*blocks, strict=True)
        rows, size = int(document["rows"]), int(document["bytes"])
        order = np.array(firsts, np.uint64)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{name}: expected a list of batches, got {error!r}") from error
    if size != data.size:
        raise FormatError(f"{name}: expected {size} bytes, got {data.size}")
    if sum(counts) != rows or (order[1:] <= order[:-1]).any():
        raise FormatError(f"{name}: expected batches of {rows} rows ascending, got others")

    def load(i: int) -> Run:
        where = f"{name}: batch {i}"
        if starts[i] < 0 or lengths[i] < 0 or starts[i] + lengths[i] > size:
            raise FormatError(f"{where}: expected it within {size} bytes, got {starts[i]}")
        block = data.slice(starts[i], lengths[i])
        checksum = zlib.crc32(block)
        if checksum != checksums[i]:
            raise FormatError(
                f"{where}: expected checksum {checksums[i]:08x}, got {checksum:08x}: it is damaged"
            )
        return _read_run(block, where, schema, counts[i], firsts[i])

    return Level(schema, order, rows, size, load)


def _read_document(data: pa.Buffer, name: str, schema: StateSchema) -> dict[str, Any]:
    if data.size < len(_MAGIC) or data.slice(0, len(_MAGIC)).to_pybytes() != _MAGIC:
        raise FormatError(f"{name}: expected an Arrow file, got {data.size} other bytes")
    try:
        found = pa.ipc.read_schema(data.slice(len(_MAGIC)))
        metadata = found.metadata or {}
        text = metadata.get(_HEADER, b"")
        document = json.loads(text)
        columns = _columns(found)
    except (pa.ArrowException, OSError, ValueError, EOFError, RecursionError) as error:
        raise FormatError(f"{name}: expected a level of state, got {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FormatError(f"{name}: expected a level of state, got another document")
    version = document.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise FormatError(
            f"{name}: format_version: expected <= {FORMAT_VERSION}, got {version}:"
            " written by a newer release"
        )
    if metadata.get(_CHECKSUM) != f"{zlib.crc32(text):08x}".encode():
        raise FormatError(f"{name}: expected a document of its checksum, got a damaged one")
    if found != schema.stored:
        raise FormatError(f"{name}: expected columns {_columns(schema.stored)}, got {columns}")
    return document


def _read_run(block: pa.Buffer, where: str, schema: StateSchema, rows: int, first: int) -> Run:
    try:
        batch = pa.ipc.read_record_batch(block, schema.stored)
        batch.validate()
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{where}: expected rows of state, got {error}") from error
    ids, deleted = batch.column(0), batch.column(1)
    if batch.num_rows != rows or not rows or ids.null_count or deleted.null_count:
        raise FormatError(f"{where}: expected {rows} rows, got {batch.num_rows}")
    run = Run(
        ids.to_numpy(),
        deleted.to_numpy(zero_copy_only=False),
        batch.select(schema.rows.names),
    )
    if int(run.ids[0]) != first or (run.ids[1:] < run.ids[:-1]).any():
        raise FormatError(f"{where}: expected ascending ids from {first}, got others")
    return run


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
