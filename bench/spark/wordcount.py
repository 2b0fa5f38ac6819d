"""Does routing help to count the words of congress, in the JVM and in Python?"""

from typing import Any

from bench.peers import Scale
from bench.report import Section
from bench.spark import harness, keyed
from bench.spark.page import Raw

TITLE = "wordcount: congress_words in one batch"
WAIT = 8e-6


def measure(scale: Scale) -> Raw:
    source = harness.data("congress_words")
    if source is None:
        return keyed.absent("congress_words")
    spark = keyed.session()
    path = keyed.spread_out(source, scale.pick(10**9, 400_000))

    def read() -> Any:
        return spark.read.parquet(path).select("word", "ts")

    return {
        "rows": read().count(),
        "python": keyed.compare(
            spark, scale, keyed.counted_in_python(read, "word", WAIT), "words, Python"
        ),
        "jvm": keyed.compare(spark, scale, keyed.counted_in_jvm(read, "word"), "words, JVM"),
    }


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__)
    section.say(f"{raw['rows']:,} words, 8 partitions on local[8]. {keyed.ABOUT} No goal was set.")
    wait = f"{WAIT * 1e6:g} us"
    keyed.show_arms(section, f"A Python function per word, {wait} per record:", raw["python"])
    keyed.show_arms(section, "`groupBy().count()` in the JVM:", raw["jvm"])
    return section
