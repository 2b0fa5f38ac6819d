"""A small file of made-up orders with one hot customer, for a first try."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["NAME", "write_sample"]

NAME = "pyroute-sample.parquet"

_CUSTOMERS = 20_000
_HOT = ("marketplace", 0.22), ("wholesale-7", 0.05), ("gift-cards", 0.03)


def write_sample(path: Path, rows: int = 400_000, seed: int = 7) -> None:
    """Orders of one hour: customer, order, amount, milliseconds of work, time."""
    random = np.random.default_rng(seed)
    weights = np.arange(1, _CUSTOMERS + 1, dtype=np.float64) ** -0.6
    shares = np.array([share for _, share in _HOT])
    weights = np.concatenate([shares, weights / weights.sum() * (1 - shares.sum())])
    names = [name for name, _ in _HOT] + [f"customer-{i:05d}" for i in range(_CUSTOMERS)]
    drawn = np.searchsorted(np.cumsum(weights), random.random(rows) * weights.sum())
    drawn = np.minimum(drawn, len(names) - 1)
    began = 1_750_000_000_000_000
    table = pa.table(
        {
            "order": pa.array(np.arange(rows, dtype=np.int64) + (1 << 60)),
            "customer": pa.array(names).take(pa.array(drawn)),
            "amount": pa.array(np.round(random.lognormal(3.0, 1.0, rows), 2)),
            "ms": pa.array(np.round(random.exponential(2.0, rows) + 0.5, 3)),
            "at": pa.array(
                began + np.sort(random.integers(0, 3_600_000_000, rows)), pa.timestamp("us")
            ),
        }
    )
    pq.write_table(table, path, row_group_size=100_000)
