"""Weights files of several parts, each with its length.

Before them: magic, version, CRC-32 and length of the rest. All little-endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Sequence
from typing import Any

from pyroute._core import FormatError

__all__ = ["JSON_FAULTS", "read_json", "seal", "unseal"]

_HEAD = struct.Struct("<4sHHIQ")
JSON_FAULTS = (KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError)
"""What reading numbers and names out of JSON of others may raise."""


def seal(magic: bytes, version: int, parts: Sequence[bytes]) -> bytes:
    """Parts as one file."""
    body = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    return _HEAD.pack(magic, version, 0, zlib.crc32(body), len(body)) + body


def unseal(data: bytes, name: str, magic: bytes, versions: Collection[int], count: int) -> Any:
    """The version of a file, and its parts; `FormatError` for anything else."""
    if len(data) < _HEAD.size:
        raise FormatError(f"{name}: expected {_HEAD.size} bytes or more, got {len(data)}")
    found, version, zero, checksum, length = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if found != magic:
        raise FormatError(f"{name}: expected the magic {magic.decode()}, got another")
    if version not in versions:
        wanted = " or ".join(map(str, versions))
        raise FormatError(f"{name}: expected version {wanted}, got {version}")
    if zero or length != len(body) or zlib.crc32(body) != checksum:
        raise FormatError(f"{name}: expected a whole file, got a torn one")
    parts, at = [], 0
    for _ in range(count):
        if at + 8 > len(body):
            raise FormatError(f"{name}: expected another part, got the end")
        (size,) = struct.unpack_from("<Q", body, at)
        if size > len(body) - at - 8:
            raise FormatError(f"{name}: expected a part of {size} bytes, got fewer")
        parts.append(body[at + 8 : at + 8 + size])
        at += 8 + size
    if at != len(body):
        raise FormatError(f"{name}: expected the end, got more")
    return version, parts


def read_json(data: bytes, name: str) -> dict[str, Any]:
    """An object of JSON; `FormatError` for anything else."""
    try:
        found = json.loads(data)
    except JSON_FAULTS as error:
        raise FormatError(f"{name}: expected JSON, got {error}") from None
    if not isinstance(found, dict):
        raise FormatError(f"{name}: expected an object, got {type(found).__name__}")
    return found
