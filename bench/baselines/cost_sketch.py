"""Dual Count-Min in numba: four rows, the columns from separate bits of one hash."""

import math
from typing import Any

import numba as nb
import numpy as np

from bench.baselines.hashing import xxhash64

ROWS = 4


@nb.njit(nogil=True)
def _observe(values: Any, times: Any, cells: Any) -> None:
    columns = np.uint64(cells.shape[1])
    for i in range(len(values)):
        h = xxhash64(values[i])
        for row in range(ROWS):
            bits = (h >> np.uint64(16 * row)) & np.uint64(0xFFFF)
            column = (bits * columns) >> np.uint64(16)
            cells[row, column, 0] += 1.0
            cells[row, column, 1] += times[i]


@nb.njit(nogil=True)
def _mean_time(values: Any, cells: Any) -> Any:
    columns = np.uint64(cells.shape[1])
    out = np.empty(len(values))
    for i in range(len(values)):
        h = xxhash64(values[i])
        frequency = np.inf
        time = 0.0
        for row in range(ROWS):
            bits = (h >> np.uint64(16 * row)) & np.uint64(0xFFFF)
            column = (bits * columns) >> np.uint64(16)
            less = cells[row, column, 0] < frequency
            time = cells[row, column, 1] if less else time
            frequency = cells[row, column, 0] if less else frequency
        out[i] = time / frequency if frequency > 0 else 0.0
    return out


class CostSketch:
    """Observes arrays of int64 keys and float64 times."""

    def __init__(self, epsilon: float) -> None:
        self.cells = np.zeros((ROWS, math.ceil(math.e / epsilon), 2))

    def observe(self, values: Any, times: Any) -> None:
        _observe(values, times, self.cells)

    def mean_time(self, values: Any) -> Any:
        return _mean_time(values, self.cells)
