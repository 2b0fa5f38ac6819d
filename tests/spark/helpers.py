"""What the tests of Spark share."""

import contextlib
import io

import numpy as np

SKEWED = 2000


def plan_text(df) -> str:
    """The physical plan, as `explain` prints it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        df.explain()
    return out.getvalue()


def exchanges(df) -> int:
    return plan_text(df).count("Exchange")


def partitions(df, *columns):
    """Rows as pandas, with the partition that each is in."""
    from pyspark.sql import functions as F

    return df.select(F.spark_partition_id().alias("partition"), *columns).toPandas()


def zipf(n=20_000, keys=SKEWED, skew=1.0, seed=0):
    weights = np.arange(1, keys + 1) ** -skew
    return np.random.default_rng(seed).choice(keys, n, p=weights / weights.sum())
