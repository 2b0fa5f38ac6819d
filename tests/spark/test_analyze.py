"""What `pyroute analyze` prints to run next, in a Spark as it stands."""

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from pyroute.analyze.sample import write_sample


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The lines for the made-up orders, of which one customer has more than a task may carry."""
    path = tmp_path_factory.mktemp("orders") / "orders.parquet"
    write_sample(path, rows=20_000)
    words = ["analyze", str(path), "--key", "customer", "--tasks", "8", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "pyroute", *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return path, [line for line in json.loads(done.stdout)["next"] if "su.balance(" in line]


def customers(path):
    counts = pq.read_table(path)["customer"].value_counts()
    return {row["values"]: row["counts"] for row in counts.to_pylist()}


def counted(table):
    return pa.table(
        {"customer": table["customer"][:1].combine_chunks(), "n": pa.array([table.num_rows])}
    )


def summed(table):
    return pa.table(
        {
            "customer": table["customer"][:1].combine_chunks(),
            "n": pa.array([sum(table["n"].to_pylist())]),
        }
    )


def test_the_line_gives_one_row_for_each_key(spark, lines):
    path, (line, _) = lines
    names = {"df": spark.read.parquet(str(path))}
    exec(line, names)
    assert names["b"].group_by().count().count() == len(customers(path))
    other = names["df"].select("customer").distinct()
    assert names["b"].join(other).count() == 20_000


def test_the_line_that_splits_merges(spark, lines):
    path, (_, line) = lines
    names = {"df": spark.read.parquet(str(path)), "f": counted, "g": summed}
    schema = "customer string, n bigint"
    statement, call = line.split("; b.apply_by_key")
    exec(statement, names)
    assert names["b"].router.splits
    rows = eval("b.apply_by_key" + call, names, {"schema": schema})
    assert {row.customer: row.n for row in rows.collect()} == customers(path)
    pieces = names["b"].group_by().count().filter(F.col("customer") == "marketplace")
    assert pieces.count() > 1  # which is why the other line is there
