"""How long do the homes of the engines take per key?"""

import pytest

import pyroute as pr
from bench import workloads

N = 100_000
ENGINES = {
    "spark-bigint": lambda: pr.SparkHash(40),
    "spark-string": lambda: pr.SparkHash(40, key_type="string"),
    "storm-string": lambda: pr.StormHash(40),
    "kafka-string": lambda: pr.KafkaHash(40),
    "flink-string": lambda: pr.FlinkKeyGroup(40),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_homes(benchmark, engine):
    ranks = workloads.zipf_ranks(N, 1.0, 1_000_000)
    if engine.endswith("bigint"):
        values = workloads.keys_of(ranks)
    else:
        pytest.importorskip("pyarrow")
        values = workloads.strings_of(ranks)
    benchmark(ENGINES[engine]().homes, values)
