"""How fast does a router answer, integers and strings, beside the lookups of other libraries?"""

from functools import partial
from typing import Any

import numpy as np

import pyroute as pr
from bench import workloads
from bench.peers import Scale
from bench.report import Section, at_least
from bench.timing import Contender, Ratio, Timing, contender, interleave

UNIVERSE, EXPONENT, TASKS = 1_000_000, 0.8, 40
TABLES = (3_000, 50_000, 1_000_000)
FRAMES = ("pandas get_indexer", "pyarrow index_in", "polars join", "polars replace_strict")


def run(scale: Scale) -> Section:
    section = Section("Router, integer keys", __doc__ or "")
    n, few = scale.pick(4_000_000, 1_000_000), scale.pick(200_000, 50_000)
    ranks = workloads.zipf_ranks(n, EXPONENT, UNIVERSE, scale.seed)
    values = workloads.keys_of(ranks)
    ring = pr.Ring(TASKS)
    explain(section, n, f"dict gets the first {few:,}, as a list of Python ints.")
    names = ["pyroute", *FRAMES, "numba", "dict"]
    table = section.table("table (hits)", *names, "best peer / pyroute", "numba / pyroute")
    best: dict[int, Ratio | None] = {}
    limits: list[tuple[str, dict[str, Timing]]] = []
    for size in TABLES:
        tabled, targets = shuffled(workloads.keys_of(np.arange(size, dtype=np.int64)), scale.seed)
        router = pr.Router(ring, table=(tabled, targets))
        contenders = [contender("pyroute", n, partial(router.route, values))]
        contenders += frames(scale, values, tabled, targets)
        contenders += limits_of(scale, values)
        if baseline := scale.peer("bench.baselines.router"):
            other = baseline.Router(ring.owners, tabled, targets)
            assert np.array_equal(other.route(values), router.route(values))
            contenders.append(contender("numba", n, partial(other.route, values)))
        mapping = dict(zip(tabled.tolist(), targets.tolist(), strict=True))
        contenders.append(looked_up("dict", mapping, values[:few].tolist()))
        timings = interleave(contenders, scale.repetitions)
        case = f"{size:g} ({float((ranks < size).mean()):.2f})"
        best[size] = add_row(table, case, timings, names, "numba")
        limits.append((case, timings))
    limit_names = ["hash only", "memory: read 8, write 4"]
    section.say("Limits, and pyroute's distance from them:")
    distance = section.table("table (hits)", *limit_names, "pyroute / hash only")
    for case, timings in limits:
        ratio = Ratio(timings["pyroute"], timings["hash only"])
        distance.add(case, *(timings.get(name) for name in limit_names), ratio)
    for size, bound in zip(TABLES, (4, 4, 6), strict=True):
        name = f"router: against the best of pandas, pyarrow, polars, table {size:g}"
        found = best[size]
        section.goals.append(at_least(name, bound, [] if found is None else [("", found)]))
    return section


def run_strings(scale: Scale) -> Section:
    section = Section(
        "Router, string keys", "The same for Arrow strings of 12 bytes: what do names cost?"
    )
    n, few = scale.pick(4_000_000, 1_000_000), scale.pick(200_000, 50_000)
    pa = scale.peer("pyarrow")
    if pa is None:
        section.say("pyarrow is not installed.")
        return section
    ranks = workloads.zipf_ranks(n, EXPONENT, UNIVERSE, scale.seed)
    values = workloads.strings_of(ranks)
    ring = pr.Ring(TASKS)
    explain(section, n, f"dict gets the first {few:,}, as a list of Python strings.")
    names = ["pyroute", *FRAMES[1:], "dict", "hash only"]
    table = section.table("table (hits)", *names, "pyarrow / pyroute", "pyroute / hash only")
    for size, bound in zip(TABLES, (4, 6, 12), strict=True):
        order, targets = shuffled(np.arange(size, dtype=np.int64), scale.seed)
        tabled = workloads.strings_of(order)
        router = pr.Router(ring, table=(tabled, targets))
        contenders = [
            contender("pyroute", n, partial(router.route, values)),
            contender("hash only", n, lambda: pr.keys(values).ids),
            *frames(scale, values, tabled, targets, with_pandas=False),
        ]
        mapping = dict(zip(tabled.to_pylist(), targets.tolist(), strict=True))
        contenders.append(looked_up("dict", mapping, values[:few].to_pylist()))
        timings = interleave(contenders, scale.repetitions)
        ratio = Ratio(timings["pyarrow index_in"], timings["pyroute"])
        table.add(
            f"{size:g} ({float((ranks < size).mean()):.2f})",
            *(timings.get(name) for name in names),
            ratio,
            Ratio(timings["pyroute"], timings["hash only"]),
        )
        section.goals.append(
            at_least(f"router: strings against pyarrow, table {size:g}", bound, [("", ratio)])
        )
    one_call(section, scale, ring)
    return section


def explain(section: Section, n: int, more: str) -> None:
    section.say(
        f"{n:,} keys a call, Zipf {EXPONENT} over {UNIVERSE:,}; the heaviest ones are in the table."
        " pyroute and numba give the task, the ring's where the table has none; the others only"
        " find the row, or nothing. pyarrow and polars build their table anew in every call: the"
        f" time of a call with one key is taken off theirs. {more} ns per key: least (spread)."
    )


def shuffled(values: Any, seed: int) -> tuple[Any, Any]:
    """The values in random order, with a task each."""
    random = np.random.default_rng(seed + 7)
    targets = random.integers(0, TASKS, len(values), dtype=np.int32)
    return random.permutation(values), targets


def frames(
    scale: Scale, values: Any, tabled: Any, targets: Any, with_pandas: bool = True
) -> list[Contender]:
    found = []
    n = len(values)
    if with_pandas and (pd := scale.peer("pandas")):
        index = pd.Index(tabled)
        found.append(contender(FRAMES[0], n, lambda: index.get_indexer(values)))
    if pa := scale.peer("pyarrow"):
        pc = scale.peer("pyarrow.compute")
        assert pc is not None
        column, table = pa.array(values), pa.array(tabled)
        first = column.slice(0, 1)
        found.append(
            contender(
                FRAMES[1],
                n,
                lambda: pc.index_in(column, value_set=table),
                fixed=lambda: pc.index_in(first, value_set=table),
            )
        )
    if pl := scale.peer("polars"):
        left = pl.DataFrame({"key": pl.Series(values)})
        right = pl.DataFrame({"key": pl.Series(tabled), "task": targets})
        one = left.head(1)

        def join(frame: Any) -> Any:
            return frame.join(right, on="key", how="left", maintain_order="left")

        def replace(frame: Any) -> Any:
            return frame["key"].replace_strict(right["key"], right["task"], default=-1)

        found += [
            contender(FRAMES[2], n, lambda: join(left), fixed=lambda: join(one)),
            contender(FRAMES[3], n, lambda: replace(left), fixed=lambda: replace(one)),
        ]
    return found


def limits_of(scale: Scale, values: Any) -> list[Contender]:
    n = len(values)
    found = [contender("hash only", n, lambda: pr.keys(values).ids)]
    if hashing := scale.peer("bench.baselines.hashing"):
        name = "memory: read 8, write 4"
        found.append(contender(name, n, lambda: hashing.memory_pass(values)))
    return found


def looked_up(name: str, mapping: dict[Any, int], items: list[Any]) -> Contender:
    def route() -> list[int]:
        get = mapping.get
        return [get(item, -1) for item in items]

    return contender(name, len(items), route)


def add_row(
    table: Any, case: str, timings: dict[str, Timing], names: list[str], other: str
) -> Ratio | None:
    ours = timings["pyroute"]
    peers = [timings[name] for name in FRAMES if name in timings]
    ratio = Ratio(min(peers, key=lambda timing: timing.best), ours) if peers else None
    second = Ratio(timings[other], ours) if other in timings else None
    table.add(case, *(timings.get(name) for name in names), ratio, second)
    return ratio


def one_call(section: Section, scale: Scale, ring: pr.Ring) -> None:
    """What a call costs, whatever the length."""
    router = pr.Router(ring)
    calls = scale.pick(2_000, 500)
    contenders = []
    for length in (1, 100, 10_000):
        values = workloads.strings_of(np.arange(length, dtype=np.int64))

        def repeat(values: Any = values) -> None:
            for _ in range(calls):
                router.route(values)

        contenders.append(contender(f"{length:,}", calls, repeat))
    timings = interleave(contenders, 3)
    section.say("One call with an Arrow array of so many strings, table empty:")
    table = section.table("strings", "us per call", "ns per string beyond the first")
    first = timings["1"].best
    for name, timing in timings.items():
        length = int(name.replace(",", ""))
        more = "-" if length == 1 else f"{(timing.best - first) / (length - 1):.1f}"
        table.add(name, f"{timing.best / 1000:.2f}", more)
