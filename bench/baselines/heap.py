"""A bare event loop in numba: records that come, a heap of the ends of their service, no policy."""

import time
from typing import Any

import numba as nb
import numpy as np


@nb.njit(nogil=True)
def _loop(arrivals: Any, costs: Any, tasks: int) -> Any:
    """Tasks in turn; every end of service goes through one binary heap."""
    n = arrivals.size
    heap = np.empty(n + 1)
    size, done = 0, 0
    free = np.zeros(tasks)
    total = 0.0
    for i in range(n):
        now = arrivals[i]
        while size > 0 and heap[0] <= now:
            size -= 1
            done += 1
            last = heap[size]
            at = 0
            while True:
                child = 2 * at + 1
                if child >= size:
                    break
                if child + 1 < size and heap[child + 1] < heap[child]:
                    child += 1
                if heap[child] >= last:
                    break
                heap[at] = heap[child]
                at = child
            heap[at] = last
        task = i % tasks
        finish = max(free[task], now) + costs[i]
        free[task] = finish
        total += finish - now
        at = size
        size += 1
        while at > 0:
            parent = (at - 1) >> 1
            if heap[parent] <= finish:
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = finish
    return total, done


def seconds(arrivals: Any, costs: Any, tasks: int) -> float:
    """Of one pass."""
    _loop(arrivals[:1], costs[:1], tasks)
    before = time.thread_time()
    _loop(arrivals, costs, tasks)
    return time.thread_time() - before
