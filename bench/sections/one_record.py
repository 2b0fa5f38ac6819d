"""What does it cost to route one record, where the call is the cost?"""

from collections.abc import Callable
from typing import Any

import numpy as np

import pyroute as pr
from bench import workloads
from bench.peers import Scale
from bench.report import Section
from bench.timing import Ratio, contender, interleave

TASKS, TABLE = 40, 50_000


def run(scale: Scale) -> Section:
    section = Section("One record", __doc__ or "")
    n = scale.pick(200_000, 50_000)
    ranks = workloads.zipf_ranks(n, 0.8, 1_000_000, scale.seed)
    ints = workloads.keys_of(ranks).tolist()
    random = np.random.default_rng(scale.seed)
    targets = random.integers(0, TASKS, TABLE, dtype=np.int32)
    tabled = workloads.keys_of(np.arange(TABLE, dtype=np.int64))
    ring = pr.Ring(TASKS)
    router = pr.Router(ring, table=(tabled, targets))
    by_int = dict(zip(tabled.tolist(), targets.tolist(), strict=True))

    def nothing() -> None:
        for _ in ints:
            pass

    def each(call: Callable[[Any], object], items: list[Any]) -> Callable[[], None]:
        def loop() -> None:
            for item in items:
                call(item)

        return loop

    few = ints[: n // 20]
    contenders = [
        contender("route_one(int)", n, each(router.route_one, ints), fixed=nothing),
        contender("dict.get(int), no ring", n, each(by_int.get, ints), fixed=nothing),
        contender("hash(int)", n, each(hash, ints), fixed=nothing),
        contender("route([int])", len(few), each(lambda item: router.route([item]), few)),
    ]
    if scale.peer("pyarrow"):
        names = workloads.strings_of(np.arange(TABLE, dtype=np.int64))
        texts = workloads.strings_of(ranks).to_pylist()
        by_text = dict(zip(names.to_pylist(), targets.tolist(), strict=True))
        of_text = pr.Router(ring, table=(names, targets))
        contenders += [
            contender("route_one(str)", n, each(of_text.route_one, texts), fixed=nothing),
            contender("dict.get(str), no ring", n, each(by_text.get, texts), fixed=nothing),
        ]
        if uhashring := scale.peer("uhashring"):
            other = uhashring.HashRing([str(task) for task in range(TASKS)])
            some = texts[: n // 20]
            contenders.append(
                contender(
                    "uhashring get_node(str), no table", len(some), each(other.get_node, some)
                )
            )
    timings = interleave(contenders, scale.repetitions)
    section.say(
        f"{n:,} keys, Zipf 0.8 over 1,000,000, {TASKS} tasks, table of {TABLE:,}; the time of the"
        " empty loop is taken off. ns per call: least (spread)."
    )
    table = section.table("call", "ns", "to route_one(int)")
    for name, timing in timings.items():
        table.add(name, timing, Ratio(timing, timings["route_one(int)"]))
    return section
