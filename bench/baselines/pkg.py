"""Partial key grouping in numba: a record goes to the less loaded of the two tasks of its key.

A key's records end up on both its tasks, so that somebody has to merge them; nothing ever moves.
"""

from typing import Any

import numba as nb
import numpy as np


@nb.njit(nogil=True)
def _loads(records: Any, first: Any, second: Any, tasks: int) -> Any:
    loads = np.zeros(tasks, np.int64)
    for key in records:
        one, two = first[key], second[key]
        loads[one if loads[one] <= loads[two] else two] += 1
    return loads


def loads(counts: Any, first: Any, second: Any, tasks: int, seed: int) -> Any:
    """Records on each task, where `counts` records of each key come in random order.

    `first` and `second` are the two tasks of each key.
    """
    records = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(seed).shuffle(records)
    return _loads(records, first, second, tasks)
