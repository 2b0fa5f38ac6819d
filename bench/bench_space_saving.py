"""How long does SpaceSaving take per record, by capacity, skew and form of the keys?"""

import pytest

import pyroute as pr
from bench import workloads

N = 1_000_000
UNIVERSE = 1_000_000


def filled(capacity, values):
    sketch = pr.SpaceSaving(capacity)
    sketch.observe(values)
    return sketch


@pytest.mark.parametrize("exponent", [0.8, 1.0])
@pytest.mark.parametrize("capacity", [1_000, 10_000, 100_000])
def test_space_saving_observe(benchmark, capacity, exponent):
    values = workloads.zipf_keys(N, exponent, UNIVERSE)
    benchmark(filled(capacity, values).observe, values)


def test_space_saving_observe_weighted(benchmark):
    ranks = workloads.zipf_ranks(N, 1.0, UNIVERSE)
    values, weights = workloads.keys_of(ranks), 1 + ranks % 7
    benchmark(filled(10_000, values).observe, values, weights)


def test_space_saving_observe_strings(benchmark):
    pytest.importorskip("pyarrow")
    values = workloads.strings_of(workloads.zipf_ranks(N, 1.0, UNIVERSE))
    benchmark(filled(10_000, values).observe, values)


def test_space_saving_observe_drifting(benchmark):
    sketch = pr.SpaceSaving(10_000)
    batches = list(workloads.drifting_zipf_keys(N // 10, 1.0, UNIVERSE, 10, drift=0.1))

    def observe():
        for batch in batches:
            sketch.observe(batch)

    benchmark(observe)


def test_space_saving_estimate(benchmark):
    values = workloads.zipf_keys(N, 1.0, UNIVERSE)
    benchmark(filled(10_000, values).estimate, values)


def test_space_saving_top(benchmark):
    benchmark(filled(10_000, workloads.zipf_keys(N, 1.0, UNIVERSE)).top, 1_000)


def test_space_saving_merge(benchmark):
    values = workloads.zipf_keys(N, 1.0, UNIVERSE)
    other = filled(10_000, values[N // 2 :])

    def fresh():
        return (filled(10_000, values[: N // 2]), other), {}

    benchmark.pedantic(pr.SpaceSaving.merge, setup=fresh, rounds=10)


def test_space_saving_to_bytes(benchmark):
    benchmark(filled(10_000, workloads.zipf_keys(N, 1.0, UNIVERSE)).to_bytes)
