"""How long does a ring take per key, and how long to make and to change, by its number of tasks?"""

import pytest

import pyroute as pr
from bench import workloads


@pytest.mark.parametrize("tasks", [8, 40, 512])
def test_ring_homes(benchmark, tasks):
    ring = pr.Ring(tasks)
    benchmark(ring.homes, workloads.uniform_keys(100_000))


def test_ring_homes_of_keys(benchmark):
    """With the hashes given."""
    ring, keys = pr.Ring(40), pr.keys(workloads.uniform_keys(100_000))
    assert len(keys.ids) == 100_000
    benchmark(ring.homes, keys)


@pytest.mark.parametrize("tasks", [8, 40, 512])
def test_ring_make(benchmark, tasks):
    benchmark(pr.Ring, tasks)


@pytest.mark.parametrize("tasks", [8, 40, 512])
def test_ring_with_tasks(benchmark, tasks):
    benchmark(pr.Ring(tasks).with_tasks, tasks + 1)


def test_ring_to_bytes(benchmark):
    benchmark(pr.Ring(40).with_tasks(41).to_bytes)
