"""Does routing help to count the requests of a web log by URL and hour?"""

from typing import Any

from pyspark.sql import functions as F

from bench.peers import Scale
from bench.report import Section
from bench.spark import harness, keyed
from bench.spark.page import Raw

TITLE = "urls: windowed count of blog_access_log"
WAIT = 100e-6
HOUR = 3600


def measure(scale: Scale) -> Raw:
    source = harness.data("blog_access_log")
    if source is None:
        return keyed.absent("blog_access_log")
    spark = keyed.session()
    path = keyed.spread_out(source, scale.pick(10**9, 40_000))

    def read() -> Any:
        df = spark.read.parquet(path)
        return df.select("path", F.expr(f"ts div {HOUR}").alias("hour"), "ts", "client")

    by_path = keyed.counted_in_python(read, "path", WAIT)
    by_hour = keyed.counted_in_jvm(read, "path", "hour")
    return {
        "rows": read().count(),
        "python": keyed.compare(spark, scale, by_path, "urls, Python"),
        "jvm": keyed.compare(spark, scale, by_hour, "urls, JVM"),
    }


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__)
    section.say(
        f"{raw['rows']:,} requests, 8 partitions on local[8]; one path has a third of them, more"
        f" than a task may carry. {keyed.ABOUT} 'Split': `mergeable=True`. No goal was set."
    )
    wait = f"{WAIT * 1e6:g} us"
    keyed.show_arms(section, f"A Python function per path, {wait} per record:", raw["python"])
    keyed.show_arms(section, "`groupBy(path, hour).count()` in the JVM:", raw["jvm"])
    return section
