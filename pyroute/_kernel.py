"""What every kernel has alike: bytes, pickling and comparison."""

from __future__ import annotations

from typing import Any, Self, TypeVar

T = TypeVar("T")


class Kernel:
    """Base of the public classes: `_core` is the native kernel behind one."""

    __slots__ = ("_core",)

    _native: Any  # the native class
    _core: Any

    @classmethod
    def _wrap(cls, core: Any) -> Self:
        self = cls.__new__(cls)
        self._core = core
        return self

    def to_bytes(self) -> bytes:
        """Versioned bytes; every later release reads them."""
        data: bytes = self._core.to_bytes()
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; anything else raises `FormatError`."""
        return cls._wrap(cls._native.from_bytes(as_bytes(data)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._core.equals(other._core))


def as_bytes(data: object) -> bytes:
    """Bytes of anything that has a buffer."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"data: expected bytes, got {type(data).__name__}")


def expect_same(self: T, other: object) -> T:
    """Check that two sketches to be merged are of one class."""
    if type(other) is not type(self):
        raise TypeError(
            f"other: expected {type(self).__name__}, got {type(other).__name__}",
        )
    return other
