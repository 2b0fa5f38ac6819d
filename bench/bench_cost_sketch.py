"""How long does the dual Count-Min sketch take per record and per estimate, by its size?"""

import pytest

import pyroute as pr
from bench import workloads

N = 1_000_000
# Rows x columns: 4 x 55 (the default), 7 x 272, 4 x 27,183 (32 bits of hash per row).
SIZES = [(0.05, 0.1), (0.01, 0.01), (0.0001, 0.1)]


@pytest.fixture(scope="module")
def records():
    return workloads.zipf_keys(N, 1.0, 1_000_000), workloads.service_times(N)


def filled(records, epsilon, delta):
    sketch = pr.CostSketch(epsilon=epsilon, delta=delta)
    sketch.observe(*records)
    return sketch


@pytest.mark.parametrize(("epsilon", "delta"), SIZES)
def test_cost_sketch_observe(benchmark, records, epsilon, delta):
    benchmark(filled(records, epsilon, delta).observe, *records)


@pytest.mark.parametrize("estimate", ["frequency", "time", "mean_time"])
@pytest.mark.parametrize(("epsilon", "delta"), SIZES)
def test_cost_sketch_estimate(benchmark, records, epsilon, delta, estimate):
    benchmark(getattr(filled(records, epsilon, delta), estimate), records[0])


def test_cost_sketch_merge(benchmark, records):
    sketch = filled(records, 0.01, 0.01)
    benchmark(sketch.merge, filled(records, 0.01, 0.01))
