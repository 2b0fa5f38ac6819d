"""Key identity in numba: xxhash64, seed 42, of a 64-bit integer, as pyroute and Spark have it."""

from typing import Any

import numba as nb
import numpy as np

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
START = np.uint64((42 + 0x27D4EB2F165667C5 + 8) % 2**64)


@nb.njit(inline="always")
def xxhash64(value: Any) -> Any:
    word = np.uint64(value) * P2
    word = ((word << np.uint64(31)) | (word >> np.uint64(33))) * P1
    h = START ^ word
    h = ((h << np.uint64(27)) | (h >> np.uint64(37))) * P1 + P4
    h = (h ^ (h >> np.uint64(33))) * P2
    h = (h ^ (h >> np.uint64(29))) * P3
    return h ^ (h >> np.uint64(32))


@nb.njit(nogil=True)
def hash_pass(values: Any) -> Any:
    """Read and hash, nothing else: the ids are folded into one, so that nothing is written."""
    total = np.uint64(0)
    for i in range(len(values)):
        total ^= xxhash64(values[i])
    return total


@nb.njit(nogil=True)
def hash_and_time_pass(values: Any, times: Any) -> Any:
    """Read keys and times, hash the keys: what a dual sketch does before it touches a cell."""
    total = np.uint64(0)
    for i in range(len(values)):
        total ^= xxhash64(values[i]) + np.uint64(times[i] > 1.0)
    return total


@nb.njit(nogil=True)
def memory_pass(values: Any) -> Any:
    """Read 8 bytes and write 4 per key into a new array."""
    out = np.empty(len(values), np.int32)
    for i in range(len(values)):
        out[i] = np.int32(values[i] >> 48)
    return out
