"""Is a balanced join as good as Spark's own skew join where that splits what is skewed?

The joins of `joins`, with AQE told that the hot partitions of these small inputs are large.
"""

from bench.peers import Scale
from bench.report import Section
from bench.spark.joins import cases, measured, shown
from bench.spark.page import Raw

TITLE = "split_joins: skewed joins where AQE splits"
CASES = cases(
    True,
    ("one side, work", "inner"),
    ("one side, work", "left"),
    ("both sides, work", "inner"),
    ("one side", "inner"),
    ("both sides", "inner"),
)


def measure(scale: Scale) -> Raw:
    return measured(scale, CASES)


def show(raw: Raw) -> Section:
    return shown(raw, Section(TITLE, __doc__.split("\n")[0]), CASES)
