"""How long do exact statistics take per record, and how long does it take to close an interval?"""

import pytest

import pyroute as pr
from bench import workloads

N = 1_000_000


@pytest.mark.parametrize("universe", [10_000, 1_000_000])
def test_key_stats_observe(benchmark, universe):
    values = workloads.zipf_keys(N, 1.0, universe)
    costs, state_sizes = workloads.service_times(N), workloads.zipf_ranks(N, 1.0, 1_000)
    stats = pr.KeyStats()
    stats.observe(values, costs, state_sizes)
    benchmark(stats.observe, values, costs, state_sizes)


def test_key_stats_observe_strings(benchmark):
    pytest.importorskip("pyarrow")
    values = workloads.strings_of(workloads.zipf_ranks(N, 1.0, 10_000))
    stats = pr.KeyStats()
    stats.observe(values)
    benchmark(stats.observe, values)


@pytest.mark.parametrize("universe", [10_000, 1_000_000])
def test_key_stats_close_interval(benchmark, universe):
    values = workloads.zipf_keys(N, 1.0, universe)

    def filled():
        stats = pr.KeyStats()
        stats.observe(values)
        return (stats,), {}

    benchmark.pedantic(pr.KeyStats.close_interval, setup=filled, rounds=5)
