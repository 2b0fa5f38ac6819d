"""Numbers beside the values: weights, costs, times, tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_INT64 = np.iinfo(np.int64)
_INT32 = np.iinfo(np.int32)


def _one_dimension(values: Any, name: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise TypeError(f"{name}: expected an array of numbers, got {error}") from error
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, got {array.ndim}")
    return array


def integers(values: Any, name: str) -> npt.NDArray[np.int64]:
    """Whole numbers of 64 bits; floats are refused rather than cut."""
    array = _one_dimension(values, name)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, got {array.dtype}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > _INT64.max:
        raise ValueError(f"{name}: expected integers below 2^63, got {array.max()}")
    return np.ascontiguousarray(array, np.int64)


def numbers(values: Any, name: str) -> npt.NDArray[np.float64]:
    """Real numbers; what they may be is the kernel's to check."""
    array = _one_dimension(values, name)
    if array.size and array.dtype.kind not in "iuf":
        raise TypeError(f"{name}: expected numbers, got {array.dtype}")
    return np.ascontiguousarray(array, np.float64)


def task_ids(values: Any, name: str) -> npt.NDArray[np.int32]:
    """Task ids; the kernels check which ones there are."""
    array = integers(values, name)
    if array.size and not (int(array.min()) >= 0 and int(array.max()) <= _INT32.max):
        wrong = array[(array < 0) | (array > _INT32.max)][0]
        raise ValueError(f"{name}: expected task ids from 0 to 2147483647, got {wrong}")
    return array.astype(np.int32)


def task_id(value: Any, name: str) -> int:
    """One task id."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a task id, got {type(value).__name__}")
    if not 0 <= value <= _INT32.max:
        raise ValueError(f"{name}: expected a task id from 0 to 2147483647, got {value}")
    return int(value)


def count(value: Any, name: str, most: int = _INT64.max) -> int:
    """A whole number from 0 up, as a parameter."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}")
    if not 0 <= value <= most:
        raise ValueError(f"{name}: expected 0 to {most}, got {value}")
    return int(value)


def word(value: Any, name: str) -> int:
    """Any 64 bits, as a parameter: a salt or a seed."""
    return count(value, name, (1 << 64) - 1)


def real(value: Any, name: str) -> float:
    """A number, as a parameter."""
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    return float(value)


def weighted_tasks(tasks: Any, name: str) -> list[tuple[int, float]]:
    """`n`, a sequence of ids, or `{id: weight}` as a list of (id, weight)."""
    if isinstance(tasks, int | np.integer) and not isinstance(tasks, bool | np.bool_):
        if tasks < 1:
            raise ValueError(f"{name}: expected at least one task, got {tasks}")
        if tasks > 1 << 22:
            raise ValueError(f"{name}: expected at most 4194304 tasks, got {tasks}")
        return [(task, 1.0) for task in range(int(tasks))]
    if isinstance(tasks, Mapping):
        return [(task_id(task, name), real(weight, name)) for task, weight in tasks.items()]
    if isinstance(tasks, Sequence | np.ndarray) and not isinstance(tasks, str | bytes):
        return [(int(task), 1.0) for task in task_ids(tasks, name)]
    raise TypeError(
        f"{name}: expected an int, a sequence of ids or a mapping of id to weight,"
        f" got {type(tasks).__name__}"
    )
