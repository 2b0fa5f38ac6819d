"""A PySpark job with a straggler, before and after one line.

    python examples/spark_straggler.py

A few users click far more than the others. Spark hashes users to partitions, so that one task gets
most of the work and the stage waits for it. `su.balanced` counts the users, plans, and moves the
few that are in the way; the rest of the job stays as it was.
"""

from pyspark.sql import functions as F

import spark_udf as su
from spark_udf.session import local_session

ROWS, TASKS = 200_000, 8


def clicks(spark, rows=ROWS):
    """Users by a power law; the numbers are what an hour of a small shop looks like."""
    return spark.range(rows).selectExpr(
        "cast(5000 * pow(rand(7), 4) as bigint) as user_id", "cast(rand(8) * 60 as int) as minute"
    )


def busiest(df):
    """Rows of the largest partition by the mean: how much longer the stage takes than it must."""
    sizes = [row["count"] for row in df.groupBy(F.spark_partition_id()).count().collect()]
    return max(sizes) * TASKS / sum(sizes)


def main(spark=None, rows=ROWS):
    spark = spark or local_session("local[2]")
    df = clicks(spark, rows).cache()

    print("which key is it?")
    su.top_keys(df, "user_id", k=5).show()

    before = busiest(df.repartition(TASKS, "user_id"))
    after = busiest(df.transform(su.balanced("user_id", tasks=TASKS)))
    print(f"busiest task, hashed:   {before:.2f} times the mean")
    print(f"busiest task, balanced: {after:.2f} times the mean")

    made = su.balance(df, "user_id", tasks=TASKS)  # the same, with the plan to look at
    print(made.plan.summary())
    per_user = made.group_by().count()  # the next line of the job, with no second exchange
    print(f"{per_user.count():,} users counted")
    return before, after


if __name__ == "__main__":
    main()
