"""Values in JSON, typed: {"t": "i" | "s" | "b" | "n" | "o" | "d" | "t" | "k" | "tuple", "v": ...}.

Integers and ids are decimal strings, bytes base64, dates days and timestamps microseconds since
1970. "k" is a key without its value: the 64-bit identity alone.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from pyroute._core import FormatError
from pyroute.keys import Keys

T = TypeVar("T")

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps of keys have no zone
_MICROSECOND = datetime.timedelta(microseconds=1)


def encode(value: Any) -> dict[str, Any]:
    """The typed form of a value as kernels name it."""
    if value is None:
        return {"t": "n"}
    if isinstance(value, bool):
        return {"t": "o", "v": value}
    if isinstance(value, int):
        return {"t": "i", "v": str(value)}
    if isinstance(value, str):
        return {"t": "s", "v": value}
    if isinstance(value, bytes):
        return {"t": "b", "v": base64.b64encode(value).decode()}
    if isinstance(value, tuple):
        return {"t": "tuple", "v": [encode(part) for part in value]}
    if isinstance(value, datetime.datetime):
        return {"t": "t", "v": str((value - _EPOCH) // _MICROSECOND)}
    if isinstance(value, datetime.date):
        return {"t": "d", "v": str((value - _EPOCH.date()).days)}
    if isinstance(value, np.datetime64):
        unit = np.datetime_data(value.dtype)[0]
        return {"t": "d" if unit == "D" else "t", "v": str(value.astype(np.int64))}
    raise TypeError(f"value: expected a key's value, got {type(value).__name__}")


def decode(typed: Any) -> Any:
    """The value of a typed form; anything else raises `FormatError`."""
    try:
        kind = typed["t"]
        if kind == "n":
            return None
        value = typed["v"]
        if kind == "o" and isinstance(value, bool):
            return value
        if kind == "i":
            return _number(value, -(1 << 63), 1 << 63)
        if kind == "s" and isinstance(value, str):
            value.encode()
            return value
        if kind == "b":
            return base64.b64decode(value, validate=True)
        if kind == "d":
            return _date(_number(value, -(1 << 63) + 1, 1 << 63))
        if kind == "t":
            return _timestamp(_number(value, -(1 << 63) + 1, 1 << 63))
        if kind == "tuple" and value:
            return tuple(decode(part) for part in value)
    except (KeyError, TypeError, ValueError, binascii.Error, RecursionError) as error:
        raise FormatError(f"key: expected a typed value, got {str(typed)[:60]}") from error
    raise FormatError(f"key: expected a typed value, got {str(typed)[:60]}")


def _date(days: int) -> datetime.date | np.datetime64:
    """As kernels name it: NumPy's where Python has none."""
    try:
        return _EPOCH.date() + datetime.timedelta(days)
    except OverflowError:
        return np.datetime64(days, "D")


def _timestamp(microseconds: int) -> datetime.datetime | np.datetime64:
    try:
        return _EPOCH + datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        return np.datetime64(microseconds, "us")


def encode_id(identity: int) -> dict[str, Any]:
    """The typed form of a key whose value is not known."""
    return {"t": "k", "v": str(identity)}


def decode_id(typed: Any) -> int | None:
    """The identity of such a form; None where it is another."""
    if not isinstance(typed, dict) or typed.get("t") != "k":
        return None
    try:
        return _number(typed["v"], 0, 1 << 64)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"key: expected an identity, got {str(typed)[:60]}") from error


def _number(text: Any, least: int, end: int) -> int:
    if not isinstance(text, str):
        raise TypeError("a decimal string")
    number = int(text)
    if not least <= number < end:
        raise ValueError("a number in range")
    return number


def decode_keys(typed: list[Any]) -> Any:
    """Values of typed forms, or `Keys` where they are identities alone."""
    ids = [decode_id(form) for form in typed]
    if ids and all(key is not None for key in ids):
        return Keys.from_ids(np.array(ids, np.uint64))
    return [decode(form) for form in typed]


def expect_ints(values: Any, name: str) -> list[int]:
    """The list, where it holds integers and nothing else."""
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise FormatError(f"{name}: expected integers, got others")
    return values


def read(text: str | bytes, kind: str, word: str, make: Callable[[dict[str, Any]], T]) -> T:
    """What `make` makes of the JSON object in a text that says it is of this kind.

    Anything else raises `FormatError`: other JSON, a version not known here, and whatever `make`
    stumbles over.
    """
    if not isinstance(text, str | bytes | bytearray):
        raise TypeError(f"text: expected JSON text, got {type(text).__name__}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"text: expected JSON, got {error}") from error
    if not isinstance(found, dict) or found.get("format") != kind:
        raise FormatError(f"text: expected a {word}, got other JSON")
    if found.get("format_version") != 1:
        raise FormatError(f"text: expected format version 1, got {found.get('format_version')}")
    try:
        return make(found)
    except FormatError:
        raise
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(f"text: expected a {word}, got {error!r}") from error
