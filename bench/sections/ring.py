"""How fast does a ring give homes, beside hashing alone, numpy, numba and uhashring?"""

import numpy as np

import pyroute as pr
from bench import workloads
from bench.peers import Scale
from bench.report import Section, at_least, at_most
from bench.timing import Ratio, contender, interleave

TASKS, POINTS = 40, 160


def run(scale: Scale) -> Section:
    section = Section("Ring", __doc__ or "")
    n = scale.pick(1_000_000, 200_000)
    few = scale.pick(20_000, 5_000)
    values = workloads.uniform_keys(n, scale.seed)
    ring = pr.Ring(TASKS, replicas=POINTS)
    ids = pr.keys(values).ids
    high = (ids >> np.uint64(64 - ring.bits)).astype(np.int64)
    random = np.random.default_rng(scale.seed)
    positions = np.sort(random.integers(0, 2**64 - 1, TASKS * POINTS, dtype=np.uint64))
    owners = random.integers(0, TASKS, TASKS * POINTS, dtype=np.int32)
    contenders = [
        contender("pyroute homes", n, lambda: ring.homes(values)),
        contender("hash only: keys(ints).ids", n, lambda: pr.keys(values).ids),
        contender("numpy take of owners, ids given", n, lambda: ring.owners.take(high)),
        contender(
            "numpy searchsorted, ids given",
            n,
            lambda: owners.take(np.searchsorted(positions, ids), mode="wrap"),
        ),
    ]
    if hashing := scale.peer("bench.baselines.hashing"):
        contenders += [
            contender("memory: read 8, write 4", n, lambda: hashing.memory_pass(values)),
            contender("hash only, numba, no output", n, lambda: hashing.hash_pass(values)),
        ]
    if baseline := scale.peer("bench.baselines.ring"):
        assert np.array_equal(baseline.by_index(values, ring.owners, ring.bits), ring.homes(values))
        contenders += [
            contender(
                "numba, direct index",
                n,
                lambda: baseline.by_index(values, ring.owners, ring.bits),
            ),
            contender(
                "numba, binary search", n, lambda: baseline.by_search(values, positions, owners)
            ),
        ]
    if uhashring := scale.peer("uhashring"):
        other = uhashring.HashRing([str(task) for task in range(TASKS)], vnodes=POINTS)
        names = [str(value) for value in values[:few].tolist()]

        def get_nodes() -> None:
            get = other.get_node
            for name in names:
                get(name)

        contenders.append(contender("uhashring get_node, per item", few, get_nodes))
    timings = interleave(contenders, scale.repetitions)
    ours = timings["pyroute homes"]
    section.say(
        f"{n:,} uniform integer keys, {TASKS} tasks of {POINTS} points, 2^{ring.bits} identifiers."
        " numpy gets the hashes for nothing. ns per key: least (spread)."
    )
    table = section.table("contender", "ns per key", "to pyroute")
    for name, timing in timings.items():
        table.add(name, timing, Ratio(timing, ours))
    hashes = [(name, Ratio(ours, t)) for name, t in timings.items() if name.startswith("hash only")]
    section.goals += [
        at_most("ring: homes, to hashing alone", 2.5, hashes),
        at_least(
            "ring: against numpy searchsorted",
            30,
            [("", Ratio(timings["numpy searchsorted, ids given"], ours))],
        ),
    ]
    return section
