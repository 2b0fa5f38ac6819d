"""The identity of a key: the only door from values to 64-bit keys.

>>> keys(["anna", "bert"]).ids
array([3940404480344554896, 3516961604263973560], dtype=uint64)
>>> keys(["x", None], [1, 2]).ids.shape
(2,)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute import _core


class Keys:
    """Identities of records, made by `keys`; accepted wherever values are.

    Only a `Keys` object is identity: an array of uint64 is values like any other array.
    """

    __slots__ = ("_core", "columns")

    def __init__(self, core: _core.Keys, columns: tuple[Any, ...] | None) -> None:
        self._core = core
        self.columns = columns
        """The columns it was made from; None where it came as bare ids."""

    @classmethod
    def from_ids(cls, ids: npt.ArrayLike) -> Keys:
        """Wrap ids computed elsewhere, for example by Spark's `xxhash64`.

        Signed 64-bit integers, as Spark has them, are taken bit for bit.
        """
        array = np.asarray(ids)
        if array.size == 0:
            array = array.astype(np.uint64)
        if array.ndim != 1:
            raise ValueError(f"ids: expected one dimension, got {array.ndim}")
        if array.dtype not in (np.dtype(np.uint64), np.dtype(np.int64)):
            raise TypeError(f"ids: expected uint64 or int64, got {array.dtype}")
        return cls(_core.Keys.from_ids(np.ascontiguousarray(array).view(np.uint64)), None)

    @property
    def ids(self) -> npt.NDArray[np.uint64]:
        """The 64-bit identities, read-only."""
        return self._core.ids

    def __len__(self) -> int:
        return len(self._core)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Keys):
            return NotImplemented
        return bool(np.array_equal(self.ids, other.ids))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.columns is None:
            return Keys.from_ids, (np.array(self.ids),)
        return keys, self.columns

    def __repr__(self) -> str:
        return f"Keys({len(self)} of {self._core.kinds})"


def keys(*columns: Any) -> Keys:
    """Compute the identity of a column of values, or of several columns together.

    It is Spark's `xxhash64` with seed 42 (docs/decisions/0001-key-identity.md), so a key
    computed in the JVM is the same key.

    Parameters
    ----------
    *columns
        NumPy arrays, lists, pandas or polars Series, Arrow arrays or chunked arrays: integers,
        booleans, text, bytes, dates, timestamps in whole microseconds, UUIDs, decimals without
        a fraction. Arrow buffers are not copied. A list of tuples is as many columns as the
        tuples have entries.
    """
    if not columns:
        raise TypeError("columns: expected at least one, got none")
    if len(columns) == 1:
        if isinstance(columns[0], Keys):
            return columns[0]
        return Keys(as_core(columns[0], "values"), columns)
    return Keys(
        _core.Keys(*(_plain(column, "columns") for column in columns), name="columns"), columns
    )


def as_core(values: Any, name: str) -> _core.Keys:
    """The native keys of values or of `Keys`."""
    if isinstance(values, Keys):
        return values._core
    return _core.Keys(_plain(values, name), name=name)


def _is_pandas(values: Any) -> bool:
    return type(values).__module__.split(".", 1)[0] == "pandas"


class _Categories:
    """Codes into a list of values, below 0 where missing; the native side asks for both."""

    __slots__ = ("_parts",)

    def __init__(self, codes: npt.NDArray[Any], values: Any) -> None:
        self._parts = (codes, values)

    def __pyroute_categories__(self) -> tuple[npt.NDArray[Any], Any]:
        return self._parts


def _plain(values: Any, name: str) -> Any:
    """What the native side reads: a NumPy array, an Arrow array, a list or a tuple."""
    if isinstance(values, np.ma.MaskedArray) and values.ndim == 1:
        missing = np.ma.getmaskarray(values)
        return _Categories(np.where(missing, -1, np.arange(len(values))), values.data)
    if isinstance(values, np.ndarray | list | tuple):
        return values
    if isinstance(values, Keys):
        raise TypeError(f"{name}: expected columns of values, got Keys among several columns")
    if _is_pandas(values):
        return _from_pandas(values, name)
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        return values
    if isinstance(values, str | bytes | bytearray | memoryview):
        raise TypeError(
            f"{name}: expected an array or a list of values, got {type(values).__name__}"
        )
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    if isinstance(values, Sequence):
        return list(values)
    return values


def _from_pandas(values: Any, name: str) -> Any:
    array = getattr(values, "array", values)
    if getattr(values, "ndim", 2) != 1 or hasattr(values, "levels") or not hasattr(array, "dtype"):
        raise TypeError(f"{name}: expected a Series, got {type(values).__name__}; pass its columns")
    if hasattr(array, "categories") and hasattr(array, "codes"):
        return _Categories(np.asarray(array.codes), _plain(array.categories, name))
    pandas = sys.modules["pandas"]
    dtype = array.dtype
    if isinstance(dtype, np.dtype):
        plain = np.asarray(array)
        if plain.dtype != object:
            return plain
        missing = pandas.isna(plain)
        if missing.any():
            plain = plain.copy()
            plain[missing] = None
        return plain
    if getattr(dtype, "tz", None) is not None:
        return np.asarray(array.tz_convert(None))
    if "pyarrow" in sys.modules and hasattr(array, "__arrow_array__"):
        return array.__arrow_array__()
    plain = np.asarray(array, object)
    plain[pandas.isna(plain)] = None
    return plain
