"""How long does routing take per key: batches of integers and strings, and one record at a time?"""

import numpy as np
import pytest

import pyroute as pr
from bench import workloads

N = 1_000_000
UNIVERSE = 1_000_000
TASKS = 40
TABLES = [0, 3_000, 50_000, 1_000_000]


def router(size, form):
    """The `size` heaviest keys tabled."""
    values = form(np.arange(size, dtype=np.int64))
    return pr.Router(TASKS, table=(values, np.arange(size, dtype=np.int32) % TASKS))


@pytest.fixture(scope="module")
def ranks():
    return workloads.zipf_ranks(N, 0.8, UNIVERSE)


@pytest.mark.parametrize("size", TABLES)
def test_router_route(benchmark, ranks, size):
    benchmark(router(size, workloads.keys_of).route, workloads.keys_of(ranks))


@pytest.mark.parametrize("size", TABLES)
def test_router_route_strings(benchmark, ranks, size):
    pytest.importorskip("pyarrow")
    benchmark(router(size, workloads.strings_of).route, workloads.strings_of(ranks))


def test_router_route_split(benchmark, ranks):
    values = workloads.keys_of(ranks)
    split = pr.Router(TASKS, splits={int(key): [1, 2, 3] for key in values[:10].tolist()})
    benchmark(split.route, values, salt=ranks)


@pytest.mark.parametrize("form", ["int", "str"])
def test_router_route_one(benchmark, ranks, form):
    if form == "str":
        pytest.importorskip("pyarrow")
        one, values = router(50_000, workloads.strings_of), workloads.strings_of(ranks[:1000])
    else:
        one, values = router(50_000, workloads.keys_of), workloads.keys_of(ranks[:1000])
    items = values.tolist()

    def route():
        for item in items:
            one.route_one(item)

    benchmark(route)


@pytest.mark.parametrize("size", [3_000, 1_000_000])
def test_router_make(benchmark, size):
    benchmark.pedantic(router, (size, workloads.keys_of), rounds=5)


def test_router_to_bytes(benchmark):
    benchmark(router(3_000, workloads.keys_of).to_bytes)
