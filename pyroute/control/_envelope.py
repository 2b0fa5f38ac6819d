"""How a document is written: the same bytes in a file and in a ZooKeeper node.

docs/config-store.md draws the layout. It is big-endian, as Java's streams read it.
"""

from __future__ import annotations

import json
import re
import struct
import urllib.parse
import uuid
import zlib
from dataclasses import dataclass
from typing import Any

from pyroute._core import FormatError

_HEADER = struct.Struct(">4sBBBBQQII16s")
_MAGIC = b"PYCF"
_BYTES, _JSON = 0, 1
_PLAIN, _ZLIB = 0, 1
_COVERED = 24  # bytes of the header that the checksum covers, before the content
LONGEST = 1 << 30
"""Bytes that a document may have: a length beyond is damage."""
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Envelope:
    """A header, and what follows it."""

    kind: int
    codec: int
    version: int
    length: int
    checksum: int
    chunks: int
    token: bytes
    head: bytes
    content: bytes

    @classmethod
    def of(cls, data: bytes, version: int) -> Envelope:
        """Read the header; `FormatError` for anything else."""
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise FormatError("document: expected an envelope, got something else")
        _, form, kind, codec, zero, found, length, checksum, chunks, token = _HEADER.unpack_from(
            data
        )
        if form != 1 or zero:
            raise FormatError(f"document: expected format 1, got {form}")
        if kind not in (_BYTES, _JSON) or codec not in (_PLAIN, _ZLIB):
            raise FormatError(f"document: expected known kind and codec, got {kind} and {codec}")
        if found != version:
            raise FormatError(f"document: expected version {version}, got a copy of {found}")
        if length > LONGEST:
            raise FormatError(f"document: expected at most {LONGEST} bytes, got {length}")
        return cls(
            *(kind, codec, found, length, checksum, chunks, token),
            head=data[:_COVERED],
            content=data[_HEADER.size :],
        )


def pack(value: Any, version: int, *, token: bytes | None = None) -> bytes:
    """A value as an envelope with its content."""
    kind, plain = _plain(value)
    packed = zlib.compress(plain, 6)
    codec = _ZLIB if len(packed) < len(plain) else _PLAIN
    content = packed if codec == _ZLIB else plain
    return _header(kind, codec, version, plain, 0, token) + content


def point(data: bytes, chunks: int, at: str) -> bytes:
    """The envelope of one whose content is elsewhere, in so many chunks."""
    fields = list(_HEADER.unpack_from(data))
    fields[8] = chunks
    return _HEADER.pack(*fields) + at.encode()


def content(data: bytes) -> bytes:
    """What follows the header of an envelope."""
    return data[_HEADER.size :]


def unpack(envelope: Envelope, stored: bytes) -> Any:
    """The value; `FormatError` where it is damaged."""
    plain = stored
    if envelope.codec == _ZLIB:
        inflater = zlib.decompressobj()
        try:
            plain = inflater.decompress(stored, envelope.length + 1)
        except zlib.error as error:
            raise FormatError(f"document: expected zlib, got {error}") from error
    if len(plain) != envelope.length:
        raise FormatError(f"document: expected {envelope.length} bytes, got another length")
    if zlib.crc32(plain, zlib.crc32(envelope.head)) != envelope.checksum:
        raise FormatError("document: expected an intact checksum, got a different one")
    if envelope.kind == _BYTES:
        return plain
    try:
        return json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"document: expected JSON, got {error}") from error


def _plain(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bytes | bytearray | memoryview):
        kind, plain = _BYTES, bytes(value)
    else:
        try:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
            kind, plain = _JSON, text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise type(error)(f"value: expected bytes or JSON, got {error}") from error
    if len(plain) > LONGEST:
        raise ValueError(f"value: expected at most {LONGEST} bytes, got {len(plain)}")
    return kind, plain


def _header(
    kind: int, codec: int, version: int, plain: bytes, chunks: int, token: bytes | None
) -> bytes:
    fields = (_MAGIC, 1, kind, codec, 0, version, len(plain))
    unsigned = _HEADER.pack(*fields, 0, chunks, bytes(16))
    checksum = zlib.crc32(plain, zlib.crc32(unsigned[:_COVERED]))
    return _HEADER.pack(*fields, checksum, chunks, token or uuid.uuid4().bytes)


def encoded_name(name: str) -> str:
    """A document's name as one part of a path.

    Letters, digits, ``-``, ``_``, ``~`` and a ``.`` that is not the first stay; every other byte of
    its UTF-8 becomes ``%XX``.
    """
    if not isinstance(name, str):
        raise TypeError(f"name: expected text, got {type(name).__name__}")
    try:
        encoded = urllib.parse.quote(name, safe="")
    except UnicodeEncodeError as error:
        raise ValueError(f"name: expected text of whole characters, got {error}") from error
    encoded = re.sub(r"^\.", "%2E", encoded)
    if not 0 < len(encoded) <= LONGEST_NAME:
        raise ValueError(f"name: expected 1 to {LONGEST_NAME} bytes, got {len(encoded)}")
    return encoded


def plain_name(encoded: str) -> str:
    """The name that `encoded_name` wrote."""
    return urllib.parse.unquote(encoded)
