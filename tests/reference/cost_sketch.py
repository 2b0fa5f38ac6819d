"""Twin of csrc/stats/cost_sketch.hpp: dual Count-Min."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

from reference.keys import MASK, P2, P3


def mix(h: int) -> int:
    """Return the finisher of XXH64."""
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def hash_groups(key: int, seed: int, bits: int) -> Iterator[int]:
    """Yield group after group of bits, from the top, of h_0, h_1, and so on."""
    h = key
    for j in itertools.count():
        h = mix(h ^ mix((seed + j) & MASK))
        for shift in range(64 - bits, -1, -bits):
            yield h >> shift & (1 << bits) - 1


class CostSketch:
    """Rows of cells (F, W); a key adds to one cell of every row."""

    def __init__(self, epsilon: float = 0.05, delta: float = 0.1, seed: int = 0) -> None:
        self.rows = math.ceil(math.log2(1 / delta))
        self.columns = math.ceil(math.e / epsilon)
        self.bits = 16 if self.columns <= 4096 else 32
        self.seed = seed
        self.cells = [[[0.0, 0.0] for _ in range(self.columns)] for _ in range(self.rows)]

    @property
    def total(self) -> list[float]:
        """F and W of everything: the first row in eight sums, those then added from the left."""
        total = [0.0, 0.0]
        for strand in range(8):
            part = [0.0, 0.0]
            for f, w in self.cells[0][strand::8]:
                part[0] += f
                part[1] += w
            total[0] += part[0]
            total[1] += part[1]
        return total

    def column_indices(self, key: int) -> list[int]:
        groups = hash_groups(key, self.seed, self.bits)
        return [next(groups) * self.columns >> self.bits for _ in range(self.rows)]

    def cells_of(self, key: int) -> list[list[float]]:
        return [row[at] for row, at in zip(self.cells, self.column_indices(key), strict=True)]

    def observe(self, keys: Iterable[int], times: Iterable[float]) -> None:
        for key, time in zip(keys, times, strict=True):
            for cell in self.cells_of(key):
                cell[0] += 1
                cell[1] += time

    def frequency(self, key: int) -> int:
        return math.ceil(min(f for f, _ in self.cells_of(key)))

    def time(self, key: int) -> float:
        return min(w for _, w in self.cells_of(key))

    def mean_time(self, key: int) -> float:
        f, w = min(self.cells_of(key), key=lambda cell: cell[0])
        return w / f if f else self.total[1] / self.total[0]


class UniversalRows:
    """Count-Min whose rows use (a * x + b mod p) mod columns, truly 2-universal for x < p."""

    PRIME = 2**61 - 1

    def __init__(self, rows: int, columns: int, random: Callable[[int], int]) -> None:
        self.columns = columns
        self.hashes = [(1 + random(self.PRIME - 1), random(self.PRIME)) for _ in range(rows)]

    def column_indices(self, key: int) -> list[int]:
        return [(a * key + b) % self.PRIME % self.columns for a, b in self.hashes]

    def frequencies(self, counts: dict[int, int]) -> dict[int, int]:
        """Return the estimate of every key after these counts."""
        cells = [[0] * self.columns for _ in self.hashes]
        places = {key: self.column_indices(key) for key in counts}
        for key, count in counts.items():
            for row, at in zip(cells, places[key], strict=True):
                row[at] += count
        return {
            key: min(row[at] for row, at in zip(cells, places[key], strict=True)) for key in counts
        }
