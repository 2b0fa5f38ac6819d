"""How long does a plan take, by keys, algorithm, degree and what it is asked to hold?"""

import numpy as np
import pytest

import pyroute as pr
from pyroute import workloads


def case(keys, tasks=15):
    ring = pr.Ring(tasks)
    first, second = workloads.fluctuating_zipf(
        keys, homes=ring.homes(np.arange(keys)), fluctuation=0.5, intervals=2, seed=1
    )
    values = np.arange(keys)
    router = pr.Router(ring)
    router = router.apply(pr.rebalance(pr.Snapshot(values, first.astype(float), first), router))
    return pr.Snapshot(values, second.astype(float), first + second), router


@pytest.mark.parametrize("keys", [10_000, 100_000])
@pytest.mark.parametrize("algorithm", ["mixed", "min_table", "min_mig", "llfd", "simple"])
def test_rebalance(benchmark, keys, algorithm):
    snapshot, router = case(keys)
    benchmark(pr.rebalance, snapshot, router, algorithm=algorithm)


@pytest.mark.parametrize("degree", [1, 8, 256])
def test_rebalance_groups(benchmark, degree):
    snapshot, router = case(100_000)
    benchmark(pr.rebalance, snapshot, router, degree=degree)


def test_rebalance_search(benchmark):
    snapshot, router = case(100_000)
    benchmark(pr.rebalance, snapshot, router, search_moves=100)


def test_elastic(benchmark):
    snapshot, router = case(100_000)
    benchmark(pr.elastic, router, snapshot, 16)


def test_snapshot_make(benchmark):
    snapshot, _ = case(100_000)
    values = np.arange(100_000)
    benchmark(pr.Snapshot, values, snapshot.costs, snapshot.state_sizes)


def test_plan_to_json(benchmark):
    snapshot, router = case(100_000)
    benchmark(pr.rebalance(snapshot, router, max_imbalance=0.02).to_json)


def test_apply(benchmark):
    snapshot, router = case(100_000)
    benchmark(router.apply, pr.rebalance(snapshot, router, max_imbalance=0.02))
