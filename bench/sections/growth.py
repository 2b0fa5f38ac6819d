"""Does the time per update stay flat from a million updates to a hundred million?"""

from functools import partial
from typing import Any

import numpy as np

import pyroute as pr
from bench import workloads
from bench.peers import Scale
from bench.report import Goal, Section
from bench.timing import cpu_seconds

BATCH = 1_000_000
POOL = 20  # batches that are made; a long stream goes round them in another order each time


def run(scale: Scale) -> Section:
    section = Section("Growth", __doc__ or "")
    most = scale.pick(100, 5)
    marks = [mark for mark in (1, 10, 100) if mark <= most]
    pool = min(POOL, most)
    stream = workloads.zipf_keys(pool * BATCH, 1.0, 1_000_000, scale.seed)
    batches = [stream[i * BATCH : (i + 1) * BATCH] for i in range(pool)]
    times = workloads.service_times(BATCH, scale.seed)
    outs = workloads.zipf_keys(BATCH, 1.0, 10_000, scale.seed + 1)
    order = np.random.default_rng(scale.seed).integers(0, pool, most)
    order[:pool] = np.arange(pool)

    cases: dict[str, Any] = {
        f"SpaceSaving({capacity:g})": lambda capacity=capacity: observing(pr.SpaceSaving(capacity))
        for capacity in (1_000, 10_000, 100_000, 1_000_000)
    }
    cases["PairSpaceSaving(1e+05)"] = lambda: observing(pr.PairSpaceSaving(100_000), outs)
    cases["CostSketch"] = lambda: observing(pr.CostSketch(), times)
    cases["KeyStats"] = lambda: observing(pr.KeyStats())
    repetitions = scale.pick(3, 1)
    best: dict[str, list[float]] = {name: [float("inf")] * len(marks) for name in cases}
    # In turn, mark by mark: a slow spell of the machine meets every kernel.
    for _ in range(repetitions):
        for name, make in cases.items():
            observe = make()
            spent = 0.0
            for done, at in enumerate(order, start=1):
                batch = batches[at]
                spent += cpu_seconds(partial(observe, batch))
                if done in marks:
                    each = spent * 1e9 / (done * BATCH)
                    at_mark = marks.index(done)
                    best[name][at_mark] = min(best[name][at_mark], each)
    section.say(
        f"Zipf 1.0 over 1,000,000 keys, batches of {BATCH:,}; ns per update over all updates so"
        f" far, least of {repetitions}."
    )
    table = section.table("kernel", *(f"{mark * BATCH:,}" for mark in marks), "last / first")
    worst, where = 0.0, ""
    for name, figures in best.items():
        ratio = figures[-1] / figures[0]
        table.add(name, *figures, f"{ratio:.2f}")
        if ratio > worst:
            worst, where = ratio, name
    span = f"{marks[0] * BATCH:g} to {marks[-1] * BATCH:g}".replace("e+0", "e")
    section.goals.append(
        Goal(
            f"growth: time per update, {span}", "<= 1.5x", f"{worst:.2f}x at {where}", worst <= 1.5
        )
    )
    return section


def observing(kernel: Any, *more: Any) -> Any:
    return lambda batch: kernel.observe(batch, *more)
