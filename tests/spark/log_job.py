"""Jobs whose event logs tests read: `python log_job.py FOLDER`, which gets a log of each kind.

Run alone, because a log is a setting of a Spark that starts.
"""

import os
import sys
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from spark_udf.session import java_home

ROWS = 60_000
SLEEP = 5.0  # seconds that the hot key takes in "slow"

KINDS = {
    "skewed": {"spark.eventLog.rolling.enabled": "true"},
    "even": {"spark.eventLog.compress": "false", "spark.sql.adaptive.enabled": "false"},
    "lz4": {"spark.eventLog.compression.codec": "lz4"},
    "snappy": {"spark.eventLog.compression.codec": "snappy"},
    "several": {"spark.eventLog.rolling.enabled": "true", "spark.eventLog.compress": "false"}
    | {"spark.eventLog.rolling.maxFileSize": "10m"},  # the least that Spark takes
    "slow": {},
}


def settings(kind: str, folder: Path) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": "8",
        **KINDS[kind],
    }


def several(spark: SparkSession, folder: Path) -> None:
    """A join whose right side is skewed; a window by a column that was computed; and much text."""
    names = F.concat(F.lit("customer-"), (F.col("id") % 997).cast("string"))
    customers = spark.range(997).select(names.alias("customer"))
    buyer = F.when(F.col("id") % 3 != 0, F.lit("customer-7")).otherwise(names)
    clicks = spark.range(ROWS).select(buyer.alias("buyer"), "id")
    paths = [str(folder.parent / f"{name}.parquet") for name in ("customers", "clicks")]
    for df, path in zip((customers, clicks), paths, strict=True):
        df.write.parquet(path)
    customers, clicks = (spark.read.parquet(path) for path in paths)
    joined = customers.join(clicks, customers.customer == clicks.buyer, "left")
    joined.write.format("noop").mode("overwrite").save()
    order = Window.partitionBy("buyer").orderBy("id")
    upper = clicks.select(F.upper("buyer").alias("who"), "id")
    for df in (upper.withColumn("last", F.max("id").over(Window.partitionBy("who"))), clicks):
        spark.sparkContext.setLocalProperty("padding", "x" * 6_000_000)
        df = df.withColumn("last", F.max("id").over(order)) if df is clicks else df
        df.write.format("noop").mode("overwrite").save()


def slowly(table: pa.Table) -> pa.Table:
    if table.num_rows > ROWS // 2:
        time.sleep(SLEEP)
    return table.slice(0, 1)


def run(spark: SparkSession, kind: str, folder: Path) -> None:
    if kind == "several":
        several(spark, folder)
        return
    # Two thirds of the rows have one customer, unless the log is to be even.
    hot = F.col("id") % 3 != 0 if kind != "even" else F.lit(False)
    name = F.concat(F.lit("customer-"), (F.col("id") % 997).cast("string"))
    customer = F.when(hot, F.lit("marketplace")).otherwise(name)
    df = spark.range(ROWS).select(customer.alias("customer"), (F.col("id") % 100).alias("amount"))
    if kind == "skewed":  # as jobs are: from a file
        path = str(folder.parent / "the orders.parquet")
        df.write.parquet(path)
        df = spark.read.parquet(path)
    if kind == "slow":
        # First something else, so that the times are not those of workers that start.
        spark.range(8).groupBy("id").applyInArrow(slowly, "id bigint").collect()
        few = df.filter(F.col("customer").isin("marketplace", *(f"customer-{i}" for i in range(9))))
        found = few.groupBy("customer").applyInArrow(slowly, df.schema)
        found.write.format("noop").mode("overwrite").save()
        return
    order = Window.partitionBy("customer").orderBy("amount")
    ranked = df.withColumn("rank", F.row_number().over(order))
    ranked.write.format("noop").mode("overwrite").save()
    if kind == "skewed":
        other = df.select(F.col("customer").alias("buyer")).distinct()
        joined = df.join(other, df.customer == other.buyer)
        joined.write.format("noop").mode("overwrite").save()


def main() -> None:
    java = java_home()
    if java is not None:
        os.environ["JAVA_HOME"] = java
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for kind in KINDS:
        folder = Path(sys.argv[1], kind)
        folder.mkdir(parents=True)
        builder = SparkSession.builder.master("local[2]").appName(f"orders {kind}")
        for name, value in settings(kind, folder).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        run(spark, kind, folder)
        spark.stop()


if __name__ == "__main__":
    main()
