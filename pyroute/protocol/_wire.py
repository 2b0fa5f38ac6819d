"""Versioned bytes, as docs/decisions/0002-bytes.md has them, for what is written in Python.

    "PYRT" | kind u8 | version u8 | 0 u16 | payload | checksum u64

Little-endian; varints are LEB128; the checksum is the key hash of everything before it. A reader
checks every length before it uses it, and whatever is wrong raises `FormatError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from pyroute import _core
from pyroute._core import FormatError

T = TypeVar("T")

MESSAGE = 128
CONFIGURATION = 129
INSTANCE = 130
"""Kinds from 128 up are written in Python, those below by the kernels (csrc/bytes.hpp)."""

_HEADER = struct.Struct("<4sBBH")
_WORD = struct.Struct("<Q")
_MAGIC = b"PYRT"


class Writer:
    """Bytes of one kind, field by field."""

    def __init__(self, kind: int, version: int = 1) -> None:
        self._out = bytearray(_HEADER.pack(_MAGIC, kind, version, 0))

    def byte(self, value: int) -> None:
        """A number below 256."""
        self._out.append(value)

    def flag(self, value: bool) -> None:
        """True or false."""
        self._out.append(1 if value else 0)

    def number(self, value: int) -> None:
        """A whole number from 0 up, in as few bytes as it needs."""
        while value >= 0x80:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)

    def word(self, value: int) -> None:
        """64 bits."""
        self._out += _WORD.pack(value)

    def words(self, values: Sequence[int]) -> None:
        """How many, and 64 bits of each."""
        self.number(len(values))
        self._out += np.array(values, "<u8").tobytes()

    def data(self, value: bytes) -> None:
        """Bytes, after their length."""
        self.number(len(value))
        self._out += value

    def text(self, value: str) -> None:
        """UTF-8, after its length in bytes."""
        self.data(value.encode())

    def items(self, values: Iterable[T], write: Callable[[Writer, T], None]) -> None:
        """How many, and each of them."""
        listed = list(values)
        self.number(len(listed))
        for value in listed:
            write(self, value)

    def finish(self) -> bytes:
        """All of it, with its checksum."""
        self._out += _WORD.pack(_checksum(bytes(self._out)))
        return bytes(self._out)


class Reader:
    """Reads what a `Writer` of this kind wrote."""

    def __init__(self, data: bytes, kind: int, newest: int = 1) -> None:
        if not isinstance(data, bytes):
            raise TypeError(f"data: expected bytes, got {type(data).__name__}")
        if len(data) < _HEADER.size + _WORD.size or data[:4] != _MAGIC:
            raise FormatError("data: expected bytes of the protocol, got something else")
        end = len(data) - _WORD.size
        if _WORD.unpack_from(data, end)[0] != _checksum(data[:end]):
            raise FormatError("data: expected an intact checksum, got a different one")
        _, got, self.version, zero = _HEADER.unpack_from(data)
        if got != kind:
            raise FormatError(f"data: expected kind {kind}, got {got}")
        if not 1 <= self.version <= newest:
            raise FormatError(f"data: expected version 1 to {newest}, got {self.version}")
        if zero:
            raise FormatError("data: expected reserved zero, got other")
        self._data = data
        self._at = _HEADER.size
        self._end = end

    def byte(self) -> int:
        """A number below 256."""
        return self._take(1)[0]

    def flag(self) -> bool:
        """True or false."""
        value = self.byte()
        if value > 1:
            raise FormatError(f"data: expected 0 or 1, got {value}")
        return value == 1

    def number(self, most: int = (1 << 63) - 1) -> int:
        """A whole number from 0 up."""
        value = 0
        for shift in range(0, 70, 7):
            part = self.byte()
            value |= (part & 0x7F) << shift
            if part < 0x80:
                if value > most:
                    raise FormatError(f"data: expected at most {most}, got {value}")
                return value
        raise FormatError("data: expected a number of 64 bits, got a longer one")

    def word(self) -> int:
        """64 bits."""
        return int(_WORD.unpack(self._take(8))[0])

    def words(self) -> tuple[int, ...]:
        """As many words as it says."""
        n = self.number()
        return tuple(np.frombuffer(self._take(8 * n), "<u8").tolist())

    def data(self) -> bytes:
        """Bytes, after their length."""
        return self._take(self.number())

    def text(self) -> str:
        """UTF-8, after its length in bytes."""
        try:
            return self.data().decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"data: expected UTF-8, got {error}") from error

    def items(self, read: Callable[[Reader], T]) -> tuple[T, ...]:
        """As many as it says; each takes a byte at least."""
        n = self.number()
        if n > self._end - self._at:
            raise FormatError("data: expected no more items than bytes, got more")
        return tuple(read(self) for _ in range(n))

    def end(self) -> None:
        """Check that nothing follows."""
        if self._at != self._end:
            raise FormatError(f"data: expected its end, got {self._end - self._at} bytes more")

    def _take(self, size: int) -> bytes:
        if size > self._end - self._at:
            raise FormatError("data: expected more bytes, got a truncated end")
        self._at += size
        return self._data[self._at - size : self._at]


def _checksum(data: bytes) -> int:
    keys: Any = _core.Keys([data], name="data")
    return int(keys.ids[0])
