"""Jobs whose event logs tests read: `python log_job.py FOLDER`, which gets a log of each kind.

Run alone, because a log is a setting of a Spark that starts.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from spark_udf.session import java_home

ROWS = 60_000

KINDS = {
    "skewed": {"spark.eventLog.rolling.enabled": "true", "spark.eventLog.compress": "true"},
    "even": {"spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false"},
    "lz4": {"codec": "lz4"},
    "snappy": {"codec": "snappy"},
}


def settings(kind: str, folder: Path) -> dict[str, str]:
    found = dict(KINDS[kind])
    codec = found.pop("codec", "zstd")
    return {
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": codec,
        **found,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder}",
        "spark.eventLog.rolling.maxFileSize": "10m",
        "spark.ui.enabled": "false",
        "spark.sql.adaptive.enabled": "true" if kind == "skewed" else "false",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
    }


def run(spark: SparkSession, kind: str) -> None:
    rows = ROWS if kind in ("skewed", "even") else 1000
    # Two thirds of the rows have one customer, unless the log is to be even.
    hot = F.lit(0) if kind == "even" else (F.col("id") % 3 != 0).cast("int")
    customer = F.when(hot == 1, F.lit("marketplace")).otherwise(
        F.concat(F.lit("customer-"), (F.col("id") % 997).cast("string"))
    )
    df = spark.range(rows).select(customer.alias("customer"), (F.col("id") % 100).alias("amount"))

    def work(batches):
        import time

        for batch in batches:
            time.sleep(batch.num_rows * 20e-6)  # what a row costs, whatever the machine is doing
            yield batch

    order = Window.partitionBy("customer").orderBy("amount")
    ranked = df.withColumn("rank", F.row_number().over(order))
    ranked.mapInArrow(work, ranked.schema).write.format("noop").mode("overwrite").save()


def main() -> None:
    import os

    java = java_home()
    if java is not None:
        os.environ["JAVA_HOME"] = java
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for kind in KINDS:
        folder = Path(sys.argv[1], kind)
        folder.mkdir(parents=True)
        builder = SparkSession.builder.master("local[4]").appName(f"orders {kind}")
        for name, value in settings(kind, folder).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        run(spark, kind)
        spark.stop()


if __name__ == "__main__":
    main()
