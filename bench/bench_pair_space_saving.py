"""How long does PairSpaceSaving take per record, by capacity and form of the keys?"""

import pytest

import pyroute as pr
from bench import workloads

N = 1_000_000


def pairs():
    """Pairs of an input key and an output key that depends on it half of the time."""
    ins = workloads.zipf_ranks(N, 1.0, 100_000)
    outs = workloads.zipf_ranks(N, 1.0, 10_000, seed=workloads.SEED + 1).copy()
    outs[::2] = ins[::2] % 10_000
    return ins, outs


@pytest.mark.parametrize("capacity", [1_000, 10_000, 100_000])
def test_pair_space_saving_observe(benchmark, capacity):
    ins, outs = map(workloads.keys_of, pairs())
    sketch = pr.PairSpaceSaving(capacity)
    sketch.observe(ins, outs)
    benchmark(sketch.observe, ins, outs)


def test_pair_space_saving_observe_strings(benchmark):
    pytest.importorskip("pyarrow")
    ins, outs = map(workloads.strings_of, pairs())
    sketch = pr.PairSpaceSaving(10_000)
    sketch.observe(ins, outs)
    benchmark(sketch.observe, ins, outs)


def test_pair_space_saving_top(benchmark):
    sketch = pr.PairSpaceSaving(10_000)
    sketch.observe(*map(workloads.keys_of, pairs()))
    benchmark(sketch.top, 1_000)
