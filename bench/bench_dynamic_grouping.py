"""How long does dynamic grouping take per record id, and how long to reassign?"""

import pytest

import pyroute as pr
from bench import workloads


@pytest.mark.parametrize("bits", [10, 16])
def test_dynamic_grouping_assign(benchmark, bits):
    grouping = pr.DynamicGrouping.from_ratio([3, 1, 2, 2], bits=bits)
    benchmark(grouping.assign, workloads.zipf_ranks(100_000, 0.5, 1_000_000))


@pytest.mark.parametrize("bits", [10, 16])
def test_dynamic_grouping_reassign(benchmark, bits):
    grouping = pr.DynamicGrouping.from_ratio([3, 1, 2, 2], bits=bits)
    benchmark(grouping.reassign, 0, to=[1, 2])


def test_dynamic_grouping_with_ratio(benchmark):
    grouping = pr.DynamicGrouping.from_ratio([3, 1, 2, 2], bits=16)
    benchmark(grouping.with_ratio, [1, 1, 1, 1])
