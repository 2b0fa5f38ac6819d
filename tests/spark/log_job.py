"""Jobs whose event logs tests read: `python log_job.py FOLDER`, which gets a log of each kind.

Run alone, because a log is a setting of a Spark that starts.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from spark_udf.session import java_home

ROWS = 60_000

KINDS = {
    "skewed": {"spark.eventLog.rolling.enabled": "true"},
    "even": {"spark.eventLog.compress": "false", "spark.sql.adaptive.enabled": "false"},
    "lz4": {"spark.eventLog.compression.codec": "lz4"},
    "snappy": {"spark.eventLog.compression.codec": "snappy"},
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


def run(spark: SparkSession, kind: str, folder: Path) -> None:
    # Two thirds of the rows have one customer, unless the log is to be even.
    hot = F.col("id") % 3 != 0 if kind != "even" else F.lit(False)
    name = F.concat(F.lit("customer-"), (F.col("id") % 997).cast("string"))
    customer = F.when(hot, F.lit("marketplace")).otherwise(name)
    df = spark.range(ROWS).select(customer.alias("customer"), (F.col("id") % 100).alias("amount"))
    if kind == "skewed":  # as jobs are: from a file
        path = str(folder.parent / "the orders.parquet")
        df.write.parquet(path)
        df = spark.read.parquet(path)
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
