"""Seeded inputs of the benchmarks: equal arguments give equal arrays, made outside any timed call.

Keys are 64-bit integers scattered over the whole range, so that no contender gains from keys that
happen to be small or in order. Rank 0 is the heaviest key. Arrays are read-only.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

SEED = 1

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def uniform_keys(n: int, seed: int = SEED) -> Ints:
    """Distinct keys, all but surely: n draws from all 64-bit integers."""
    random = np.random.default_rng(seed)
    limits = np.iinfo(np.int64)
    return _frozen(random.integers(limits.min, limits.max, n, dtype=np.int64, endpoint=True))


def zipf_ranks(n: int, exponent: float, universe: int, seed: int = SEED) -> Ints:
    """Ranks 0 to universe - 1, rank r with probability proportional to (r + 1) ** -exponent."""
    cumulated = _cumulated(exponent, universe)
    random = np.random.default_rng(seed)
    drawn = random.random(n)
    drawn *= cumulated[-1]
    ranks = np.searchsorted(cumulated, drawn, side="right").astype(np.int64)
    return _frozen(np.minimum(ranks, universe - 1))


def keys_of(ranks: Ints) -> Ints:
    """The 64-bit key of each rank: splitmix64, which is one to one."""
    x = (ranks.view(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return _frozen((x ^ (x >> np.uint64(31))).view(np.int64))


def zipf_keys(n: int, exponent: float, universe: int, seed: int = SEED) -> Ints:
    """A Zipf stream of integer keys."""
    return keys_of(zipf_ranks(n, exponent, universe, seed))


def strings_of(ranks: Ints) -> Any:
    """An Arrow string array: twelve characters for each rank, distinct for distinct ranks."""
    import pyarrow as pa

    n = len(ranks)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.empty((n, 12), np.uint8)
    block = 1 << 20  # bounds the memory of the intermediate arrays
    for start in range(0, n, block):
        part = ranks[start : start + block].view(np.uint64)
        mixed = (part + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)  # one to one modulo 2 ** 48
        for column in range(12):
            nibble = (mixed >> np.uint64(44 - 4 * column)) & np.uint64(15)
            text[start : start + block, column] = digits[nibble]
    offsets = np.arange(0, 12 * n + 1, 12, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text))


def drifting_zipf_keys(
    n: int, exponent: float, universe: int, intervals: int, drift: float, seed: int = SEED
) -> Iterator[Ints]:
    """Intervals of n keys each; from one to the next, a share `drift` of the ranks change keys."""
    random = np.random.default_rng(seed)
    owner = np.arange(universe, dtype=np.int64)  # the key's number at each rank
    moving = int(drift * universe)
    for interval in range(intervals):
        if interval > 0:
            ranks = random.choice(universe, moving, replace=False)
            owner[ranks] = owner[random.permutation(ranks)]
        yield keys_of(owner[zipf_ranks(n, exponent, universe, seed + interval)])


def service_times(n: int, seed: int = SEED) -> Floats:
    """Time per record: 0 to 64, as a skewed (exponential) draw, in whole 1/16."""
    random = np.random.default_rng(seed + 1)
    times: Floats = np.floor(np.minimum(random.exponential(4.0, n), 64.0) * 16) / 16
    times.flags.writeable = False
    return times


def exact_counts(ranks: Ints, universe: int) -> Ints:
    """How often each rank came."""
    return np.bincount(ranks, minlength=universe).astype(np.int64)


@lru_cache(maxsize=4)
def _cumulated(exponent: float, universe: int) -> Floats:
    cumulated: Floats = np.cumsum(np.arange(1, universe + 1, dtype=np.float64) ** -exponent)
    return cumulated


def _frozen(array: Ints) -> Ints:
    array.flags.writeable = False
    return array
