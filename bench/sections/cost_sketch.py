"""How fast is the dual Count-Min sketch, beside its limit, numba and the datasketches package?"""

from typing import Any

import pyroute as pr
from bench import workloads
from bench.peers import Scale
from bench.report import Section, at_least, at_most
from bench.timing import Contender, Ratio, contender, interleave

EPSILON, DELTA = 0.05, 0.1  # four rows of 55 columns


def run(scale: Scale) -> Section:
    section = Section("Dual Count-Min", __doc__ or "")
    n, few = scale.pick(1_000_000, 200_000), scale.pick(200_000, 50_000)
    stream = workloads.zipf_keys(n, 1.0, 1_000_000, scale.seed)
    times = workloads.service_times(n, scale.seed)
    sketch = pr.CostSketch(epsilon=EPSILON, delta=DELTA)
    sketch.observe(stream, times)
    contenders = [
        contender("hash only: keys(ints).ids", n, lambda: pr.keys(stream).ids),
        contender("pyroute observe", n, lambda: sketch.observe(stream, times)),
        contender("pyroute frequency", n, lambda: sketch.frequency(stream)),
        contender("pyroute time", n, lambda: sketch.time(stream)),
        contender("pyroute mean_time", n, lambda: sketch.mean_time(stream)),
    ]
    if hashing := scale.peer("bench.baselines.hashing"):
        contenders.append(
            contender("read + hash", n, lambda: hashing.hash_and_time_pass(stream, times))
        )
    if baseline := scale.peer("bench.baselines.cost_sketch"):
        other = baseline.CostSketch(EPSILON)
        other.observe(stream, times)
        contenders += [
            contender("numba observe", n, lambda: other.observe(stream, times)),
            contender("numba mean_time", n, lambda: other.mean_time(stream)),
        ]
    if datasketches := scale.peer("datasketches"):
        contenders += package(datasketches, sketch.columns, stream[:few], times[:few])
    timings = interleave(contenders, scale.repetitions)

    section.say(
        f"{n:,} integer keys, Zipf 1.0 over 1,000,000, with a time each; {sketch.rows} rows of"
        f" {sketch.columns} columns. The package keeps one number per cell where the dual sketch"
        f" keeps two, and gets {few:,} items, one a call, from lists of Python numbers. ns per key:"
        " least (spread)."
    )
    limit = timings.get("read + hash")
    table = section.table("contender", "ns per key", "to read + hash", "to pyroute")
    counterpart = {
        "numba observe": "pyroute observe",
        "numba mean_time": "pyroute mean_time",
        "package update": "pyroute observe",
        "package estimate": "pyroute frequency",
    }
    for name, timing in timings.items():
        ours = counterpart.get(name)
        table.add(
            name,
            timing,
            Ratio(timing, limit) if limit else None,
            Ratio(timing, timings[ours]) if ours else None,
        )
    to_limit = [
        (name, Ratio(timing, limit))
        for name, timing in timings.items()
        if limit and name.startswith("pyroute ")
    ]
    per_item = [
        (name, Ratio(timing, timings[counterpart[name]]))
        for name, timing in timings.items()
        if name.startswith("package")
    ]
    section.goals += [
        at_most("dual Count-Min: observe, to read + hash", 4, to_limit[:1]),
        at_most("dual Count-Min: estimates, to read + hash", 4, to_limit[1:]),
        at_least("dual Count-Min: against the datasketches package, per item", 25, per_item),
    ]
    return section


def package(datasketches: Any, columns: int, stream: Any, times: Any) -> list[Contender]:
    items, weights = stream.tolist(), times.tolist()
    sketch = datasketches.count_min_sketch(4, columns)

    def update() -> None:
        add = sketch.update
        for item, weight in zip(items, weights, strict=True):
            add(item, weight)

    def estimate() -> None:
        ask = sketch.get_estimate
        for item in items:
            ask(item)

    n = len(items)
    return [contender("package update", n, update), contender("package estimate", n, estimate)]
