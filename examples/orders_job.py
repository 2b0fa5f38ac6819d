"""A PySpark job that waits for one of its tasks, and the line that mends it.

    pyroute sample orders.parquet
    python examples/orders_job.py orders.parquet

All orders of a customer go to one task. It prints how many orders each task had to bill, and how
long the stage took. The fix is one line for one line: the second of the two marked below.
"""

import sys
import time

from pyspark.sql import functions as F

import spark_udf as su
from spark_udf.session import local_session

TASKS = 4


def bill(batches):
    """Stands for work that takes its time with each order."""
    for batch in batches:
        time.sleep(batch.num_rows * 20e-6)
        yield batch


def main(path=None, spark=None):
    spark = spark or local_session(f"local[{TASKS}]")
    orders = spark.read.parquet(str(path or sys.argv[1])).select("customer", "amount")
    su.top_keys(orders, "customer", k=3).show()

    spread = orders.repartition(TASKS, "customer")  # before
    # spread = orders.transform(su.balanced("customer", tasks=TASKS))  # after

    billed = spread.select("customer", "amount").mapInArrow(bill, "customer string, amount double")
    began = time.perf_counter()
    found = billed.groupBy(F.spark_partition_id()).count().collect()
    took = time.perf_counter() - began
    counts = {row[0]: row["count"] for row in found}
    for task in range(TASKS):
        count = counts.get(task, 0)
        print(f"task {task}: {count:>7,} orders {'#' * round(40 * count / max(counts.values()))}")
    busiest = max(counts.values()) * TASKS / sum(counts.values())
    print(f"busiest task: {busiest:.2f} times the mean; the stage took {took:.1f} s")
    return busiest


if __name__ == "__main__":
    main()
