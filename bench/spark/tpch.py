"""Is TPC-H Q5 with skewed foreign keys as fast when its joins are balanced as with AQE?

The tables are those of tpchgen-cli. As in paper 002 every foreign key that Q5 joins on is drawn
anew from a Zipf distribution with z = 0.8, whose ranks are dealt to the primary keys at random:
l_orderkey, l_suppkey and o_custkey.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

import spark_udf as su
from bench.peers import Scale
from bench.report import Section
from bench.spark import generate, harness
from bench.spark.harness import AQE_OFF, AQE_ON, GENERATED, NO_BROADCAST, Arm
from bench.spark.page import Raw, arms_table, at_most, wall

TITLE = "tpch: Q5 with skewed foreign keys"
TASKS, SALTS, SKEW = 16, 8, 0.8
TABLES = ("region", "nation", "supplier", "customer", "orders", "lineitem")
WANTED = {
    "supplier": ["s_suppkey", "s_nationkey"],
    "customer": ["c_custkey", "c_nationkey"],
    "orders": ["o_orderkey", "o_custkey", "o_orderdate"],
    "lineitem": ["l_orderkey", "l_suppkey", "l_extendedprice", "l_discount"],
}
FOREIGN = {
    "orders": {"o_custkey": ("customer", "c_custkey")},
    "lineitem": {
        "l_orderkey": ("orders", "o_orderkey"),
        "l_suppkey": ("supplier", "s_suppkey"),
    },
}


# -- tables


def dbgen(factor: float) -> Path | None:
    """The tables as TPC-H has them; None where tpchgen-cli is not installed."""
    folder = GENERATED / f"tpch-{factor:g}"
    if (folder / "_SUCCESS").exists():
        return folder
    command = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which(
        "tpchgen-cli"
    )
    if command is None:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = ["--scale-factor", f"{factor:g}", "--tables", ",".join(TABLES)]
    subprocess.run([command, "parquet", *options, "--output-dir", str(folder)], check=True)
    (folder / "_SUCCESS").touch()
    return folder


def skewed(folder: Path, table: str, factor: float, seed: int) -> str:
    """A table with its foreign keys drawn from Zipf(0.8), in four files."""

    def tables() -> Iterator[pa.Table]:
        whole = pq.read_table(folder / f"{table}.parquet", columns=WANTED[table])
        for i, (column, (other, primary)) in enumerate(FOREIGN.get(table, {}).items()):
            keys = pq.read_table(folder / f"{other}.parquet", columns=[primary])
            ranked = np.random.default_rng([seed, 1, i]).permutation(keys.column(0).to_numpy())
            random = np.random.default_rng([seed, 2, i, len(table)])
            drawn = ranked[generate.zipf(random, whole.num_rows, len(ranked), SKEW)]
            at = whole.column_names.index(column)
            kind = whole.schema.field(column).type
            whole = whole.set_column(at, column, pa.array(drawn).cast(kind))
        step = -(-whole.num_rows // 4)
        yield from (whole.slice(i * step, step) for i in range(4))

    return generate.made(f"tpch-{factor:g}-{table}-{SKEW:g}-{seed}", tables)


def table_paths(folder: Path, factor: float, seed: int) -> dict[str, str]:
    out = {name: skewed(folder, name, factor, seed) for name in WANTED}
    out |= {name: str(folder / f"{name}.parquet") for name in ("region", "nation")}
    return out


# -- the query

Join = Callable[..., Any]


def q5(spark: Any, paths: dict[str, str], join: Join) -> Any:
    """Q5; `join` makes its three skewed joins, and gets the tables that the keys came from."""
    t = {name: spark.read.parquet(path) for name, path in paths.items()}
    asia = t["nation"].join(
        F.broadcast(t["region"].filter("r_name = 'ASIA'")),
        F.col("n_regionkey") == F.col("r_regionkey"),
    )
    supplier = t["supplier"].join(
        F.broadcast(asia.select("n_nationkey", "n_name")),
        F.col("s_nationkey") == F.col("n_nationkey"),
    )
    supplier = supplier.select(F.col("s_suppkey").alias("suppkey"), "s_nationkey", "n_name")
    year = "o_orderdate >= DATE'1994-01-01' AND o_orderdate < DATE'1995-01-01'"
    orders = t["orders"].filter(year)
    orders = orders.select(F.col("o_orderkey").alias("orderkey"), F.col("o_custkey").alias("cust"))
    customer = t["customer"].select(F.col("c_custkey").alias("cust"), "c_nationkey")
    line = t["lineitem"].select(
        F.col("l_orderkey").alias("orderkey"),
        F.col("l_suppkey").alias("suppkey"),
        (F.col("l_extendedprice") * (1 - F.col("l_discount"))).alias("price"),
    )
    bought = join(orders, customer, "cust").select("orderkey", "c_nationkey")
    sold = join(line, supplier, "suppkey").select("orderkey", "s_nationkey", "n_name", "price")
    both = join(sold, bought, "orderkey", (line, orders)).filter("c_nationkey = s_nationkey")
    return both.groupBy("n_name").agg(F.sum("price").alias("revenue"))


def arms(spark: Any, paths: dict[str, str]) -> list[Arm]:
    def plain() -> Any:
        return q5(spark, paths, lambda a, b, key, _=None: a.join(b, key)).toArrow()

    def salted_join(left: Any, right: Any, key: str, _: Any = None) -> Any:
        left = left.withColumn("salt", F.pmod(F.xxhash64("*"), F.lit(SALTS)).cast("int"))
        right = right.withColumn("salt", F.explode(F.sequence(F.lit(0), F.lit(SALTS - 1))))
        return left.join(right, [key, "salt"]).drop("salt")

    def salted() -> Any:
        return q5(spark, paths, salted_join).toArrow()

    def routed_join(left: Any, right: Any, key: str, tables: Any = (None, None)) -> Any:
        return su.balance_join(left, right, key, TASKS, statistics=tables).df

    def routed() -> Any:
        return q5(spark, paths, routed_join).toArrow()

    on, off = {**AQE_ON, **NO_BROADCAST}, {**AQE_OFF, **NO_BROADCAST}
    return [
        Arm("hash", plain, off),
        Arm("AQE", plain, on),
        Arm("salting", salted, off),
        Arm("routed", routed, on),
    ]


def measure(scale: Scale) -> Raw:
    factor = 0.02 if scale.quick else 3.0
    folder = dbgen(factor)
    if folder is None:
        return {"absent": "Not measured: tpchgen-cli is missing: pip install tpchgen-cli"}
    spark = harness.session("local[8]", {"spark.sql.shuffle.partitions": str(TASKS)})
    paths = table_paths(folder, factor, scale.seed)
    found = harness.interleave(
        spark, arms(spark, paths), scale.pick(5, 2), partitions=TASKS, say="Q5"
    )
    return {"factor": factor, "arms": found}


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__.split("\n")[0])
    section.say(
        f"Scale factor {raw['factor']:g}, z = {SKEW}, {TASKS} partitions on local[8]. Nation and"
        " region are broadcast in all arms, nothing else is. Salting: 8 salts on the larger side"
        " of each join and 8 copies of the other. Routed: `su.balance_join` for all three joins,"
        " statistics and plans included; the keys of the last join are counted in the tables that"
        " they came from, not in the results of the other two. Loads are those of the stages that"
        " read most rows."
        " Revenues per nation are equal in every run."
    )
    arms = raw["arms"]
    arms_table(section, arms, "routed")
    section.goals.append(
        at_most("Q5: wall, routed to AQE", 1.05, wall(arms, "routed").over(wall(arms, "AQE")))
    )
    return section
