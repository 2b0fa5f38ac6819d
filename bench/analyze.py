"""How long does `pyroute analyze` take, by the time of a scan of the same columns?

python -m bench.analyze generate [--rows 100000000]   a seeded file of 2 GB under build/
python -m bench.analyze measure [--runs 5]            both, in turns, each in a process of its own
python -m bench.analyze remove

The file has a million users by Zipf 1.0, as numbers (`user_id`) and as text (`user`), a cost in
microseconds and a time. The scan reads the columns with pyarrow's scanner and drops them: the same
threads, the same file in the page cache.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILE = Path(__file__).resolve().parent.parent / "build" / "analyze.parquet"
USERS = 1_000_000
GROUP = 1 << 20


def generate(path: Path, rows: int, seed: int = 1) -> None:
    random = np.random.default_rng(seed)
    shares = np.cumsum(1.0 / np.arange(1, USERS + 1))
    shares /= shares[-1]
    # 1024 ranges of ranks, so that a draw searches a short part of the shares.
    names = random.permutation(USERS)
    numbers = random.integers(1 << 40, size=USERS)
    texts = pa.array([f"user-{name:07d}" for name in names])
    schema = pa.schema(
        [
            ("user_id", pa.int64()),
            ("user", pa.string()),
            ("cost_us", pa.int64()),
            ("time", pa.timestamp("us")),
        ]
    )
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_suffix(".tmp")
    with pq.ParquetWriter(fresh, schema) as to:
        for begin in range(0, rows, GROUP):
            count = min(GROUP, rows - begin)
            ranks = np.searchsorted(shares, random.random(count))
            cost = random.exponential(500, count).astype(np.int64) + 1
            time = 1_700_000_000_000_000 + (np.arange(begin, begin + count) * 36)
            columns = [
                pa.array(numbers[ranks]),
                texts.take(pa.array(ranks)),
                pa.array(cost),
                pa.array(time, pa.timestamp("us")),
            ]
            to.write_table(pa.table(columns, schema=schema), row_group_size=GROUP)
    fresh.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["generate", "measure", "remove"])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args()
    if options.step == "generate":
        generate(options.file, options.rows)
    elif options.step == "remove":
        options.file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
