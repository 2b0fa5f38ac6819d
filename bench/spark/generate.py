"""Which rows do the sections of generated data read? Seeded Parquet files, made once and kept.

They lie under build/, named by what they were made from, so that another size or seed makes another
file and none is ever out of date.
"""

import shutil
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.spark.harness import GENERATED

Int64 = npt.NDArray[np.int64]


def made(name: str, tables: Callable[[], Iterator[pa.Table]]) -> str:
    """A folder of Parquet files, one per table: one task reads one file, or a part of it."""
    folder = GENERATED / name
    if not (folder / "_SUCCESS").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for i, table in enumerate(tables()):
            pq.write_table(table, folder / f"part-{i:03d}.parquet")
        (folder / "_SUCCESS").touch()
    return str(folder)


def cumulated(keys: int, skew: float) -> npt.NDArray[np.float64]:
    """Probabilities of the ranks of a Zipf distribution, added up."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    return np.cumsum(weights) / weights.sum()


def zipf(random: np.random.Generator, rows: int, keys: int, skew: float) -> Int64:
    """Ranks, from 0."""
    drawn = np.searchsorted(cumulated(keys, skew), random.random(rows))
    return np.minimum(drawn, keys - 1).astype(np.int64)


def heaviest_first(keys: int, seed: int) -> Int64:
    """The key of each rank: distinct numbers in no order that a hash could like."""
    return np.random.default_rng(seed).permutation(np.arange(keys, dtype=np.int64) * 1_000_003)


def as_text(numbers: Int64) -> pa.Array:
    """Twelve letters each."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 11, "0")
    return pc.binary_join_element_wise("u", digits, "")


def keyed(rows: int, keys: int, skew: float, seed: int, files: int, *, text: bool = False) -> str:
    """Rows (k, v): a Zipf key and a number, rarely the same; with text also s, the key as text."""

    def tables() -> Iterator[pa.Table]:
        ids = heaviest_first(keys, seed)
        for i in range(files):
            random = np.random.default_rng([seed, i])
            k = ids[zipf(random, rows // files, keys, skew)]
            columns = {"k": k, "v": random.integers(0, 10**9, len(k))}
            yield pa.table({**columns, **({"s": as_text(k)} if text else {})})

    return made(f"zipf-{rows}-{keys}-{skew:g}-{seed}-{files}{'-text' * text}", tables)


def one_row(seed: int) -> str:
    """The same columns with one row: what a query costs before its first row."""
    k = heaviest_first(1, seed)
    table = pa.table({"k": k, "v": k, "s": as_text(k)})
    return made("one-row", lambda: iter([table]))
