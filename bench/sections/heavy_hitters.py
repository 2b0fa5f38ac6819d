"""How fast and how exact are the heaviest keys, beside DataSketches and plain SpaceSaving?"""

import csv
import math
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np

import pyroute as pr
from bench import workloads
from bench.cpp import build, fetch
from bench.peers import Scale
from bench.report import Goal, Section, at_least
from bench.timing import Contender, Ratio, Timing, interleave

UNIVERSE = 1_000_000
EXPONENTS = (0.8, 1.0)
CAPACITIES = (1_000, 10_000, 100_000, 1_000_000)


class Truth:
    """Exact counts of a stream of keys of ranks below UNIVERSE."""

    def __init__(self, ranks: workloads.Ints) -> None:
        keys = workloads.keys_of(np.arange(UNIVERSE, dtype=np.int64))
        order = np.argsort(keys)
        self._keys = keys[order]
        self._counts = workloads.exact_counts(ranks, UNIVERSE)[order]

    def of(self, keys: workloads.Ints) -> workloads.Ints:
        return self._counts[np.searchsorted(self._keys, keys)]

    def recall(self, keys: workloads.Ints, most: int) -> float:
        """Share of the first `most` reported that belong there; ties with the last one do."""
        seen = self._counts[self._counts > 0]
        most = min(most, len(seen))
        border = np.partition(seen, len(seen) - most)[len(seen) - most]
        return float((self.of(keys[:most]) >= border).sum() / most)


def in_batches(sketch: Any, stream: workloads.Ints, size: int = 1_000_000) -> Callable[[], None]:
    def observe() -> None:
        for start in range(0, len(stream), size):
            sketch.observe(stream[start : start + size])

    return observe


def one_by_one(sketch: Any, items: list[Any]) -> Callable[[], None]:
    def update() -> None:
        add = sketch.update
        for item in items:
            add(item)

    return update


def map_bits(capacity: int) -> int:
    """The least map of the peer that holds the capacity: 0.75 * 2**bits counters."""
    return math.ceil(math.log2(capacity / 0.75))


def run(scale: Scale) -> Section:
    section = Section("Heavy hitters from Python", __doc__ or "")
    n, few = scale.pick(10_000_000, 1_000_000), scale.pick(1_000_000, 200_000)
    datasketches = scale.peer("datasketches")
    baseline = scale.peer("bench.baselines.space_saving")
    section.say(
        f"Integer keys, Zipf over {UNIVERSE:,} keys. pyroute and the numba version get {n:,}, in"
        f" batches of a million; the datasketches package, which takes one item a call, gets the"
        f" first {few:,} as a list of Python ints, and is compared with pyroute on the same items."
        " ns per update: least (spread); ratios: of the least figures (median of the pairs)."
    )
    table = section.table(
        "exponent / capacity",
        "pyroute",
        "numba plain",
        "numba / pyroute",
        "pyroute, few",
        "package, few",
        "package / pyroute",
        "recall",
        "recall, plain",
        "largest error / (N / capacity)",
    )
    name = "heavy hitters: batch against the datasketches package, per item"
    per_item: list[tuple[str, Ratio]] = []
    per_item_large: list[tuple[str, Ratio]] = []
    recalls: list[tuple[str, float, float | None]] = []
    broken = 0
    for exponent in EXPONENTS:
        ranks = workloads.zipf_ranks(n, exponent, UNIVERSE, scale.seed)
        stream, truth = workloads.keys_of(ranks), Truth(ranks)
        items = stream[:few].tolist()
        for capacity in CAPACITIES:
            case = f"{exponent} / {capacity:g}"
            contenders = contenders_for(capacity, stream, few, items, datasketches, baseline)
            timings = interleave(contenders, scale.pick(5, 2))
            recall, wrong, share = judged(stream, truth, capacity)
            broken += wrong
            plain = None
            if baseline is not None:
                reference = baseline.SpaceSaving(capacity)
                reference.observe(stream)
                plain = truth.recall(reference.top(capacity)[0], capacity // 10)
            recalls.append((case, recall, plain))
            ours, same = timings["pyroute"], timings["pyroute, few"]
            numba, package = timings.get("numba"), timings.get("package")
            if package is not None:
                cases = per_item if capacity <= 100_000 else per_item_large
                cases.append((case, Ratio(package, same)))
            table.add(
                case,
                ours,
                numba,
                Ratio(numba, ours) if numba else None,
                same,
                package,
                Ratio(package, same) if package else None,
                f"{recall:.3f}",
                "-" if plain is None else f"{plain:.3f}",
                f"{share:.2f}",
            )
    section.goals += [
        at_least(f"{name}, capacity up to 1e5", 8, per_item),
        at_least(f"{name}, capacity 1e6", 8, per_item_large),
        *recall_goals("Python", recalls),
        Goal(
            "heavy hitters: bounds of the reported keys (Python)",
            "never broken",
            f"{broken} broken",
            broken == 0,
        ),
    ]
    drift(section, scale, baseline)
    return section


def contenders_for(
    capacity: int, stream: Any, few: int, items: list[int], datasketches: Any, baseline: Any
) -> list[Contender]:
    found = [
        Contender("pyroute", len(stream), lambda: in_batches(pr.SpaceSaving(capacity), stream)),
        Contender("pyroute, few", few, lambda: in_batches(pr.SpaceSaving(capacity), stream[:few])),
    ]
    if baseline is not None:

        def numba() -> Any:
            return in_batches(baseline.SpaceSaving(capacity), stream)

        found.append(Contender("numba", len(stream), numba))
    if datasketches is not None:

        def package() -> Any:
            return one_by_one(datasketches.frequent_items_sketch(map_bits(capacity)), items)

        found.append(Contender("package", few, package))
    return found


def judged(stream: Any, truth: Truth, capacity: int) -> tuple[float, int, float]:
    """Recall of a sketch, its broken bounds, its largest error over N / capacity."""
    sketch = pr.SpaceSaving(capacity)
    in_batches(sketch, stream)()
    top = sketch.top()
    keys = np.array(top.values, np.int64)
    true = truth.of(keys)
    wrong = int(((true > top.counts) | (true < top.counts - top.errors)).sum())
    allowed = len(stream) / capacity
    wrong += int((top.errors > allowed).sum()) + int(sketch.floor > allowed)
    largest = float(top.errors.max(initial=0)) / allowed
    return truth.recall(keys, capacity // 10), wrong, largest


def recall_goals(where: str, recalls: list[tuple[str, float, float | None]]) -> list[Goal]:
    compared = [(case, ours, plain) for case, ours, plain in recalls if plain is not None]
    goals = []
    if compared:
        case, ours, plain = min(compared, key=lambda row: row[1] - (row[2] or 0))
        goals.append(
            Goal(
                f"heavy hitters: recall of the top capacity / 10 ({where})",
                ">= plain SpaceSaving",
                f"least lead {ours:.4f} to {plain:.4f} at {case}",
                all(ours >= plain for _, ours, plain in compared),
            )
        )
    for case, ours, _ in recalls:
        if case.startswith("0.8") and case.endswith(" 10000"):
            name = f"heavy hitters: recall at {case} ({where})"
            goals.append(Goal(name, ">= 0.99", f"{ours:.4f}", ours >= 0.99))
    return goals


def drift(section: Section, scale: Scale, baseline: Any) -> None:
    """Recall where the heavy keys change while the stream runs."""
    intervals, n = 10, scale.pick(1_000_000, 100_000)
    section.say(
        f"Drift: {intervals} intervals of {n:,} keys, Zipf 1.0 over {UNIVERSE:,}; between two"
        " of them a tenth of the ranks change keys. Recall of the top capacity / 10 of the whole"
        " stream."
    )
    table = section.table("capacity", "recall", "plain")
    batches = list(
        workloads.drifting_zipf_keys(n, 1.0, UNIVERSE, intervals, drift=0.1, seed=scale.seed)
    )
    keys, counts = np.unique(np.concatenate(batches), return_counts=True)
    for capacity in CAPACITIES[:3]:
        ours = pr.SpaceSaving(capacity)
        plain = None if baseline is None else baseline.SpaceSaving(capacity)
        for batch in batches:
            ours.observe(batch)
            if plain is not None:
                plain.observe(batch)
        most = capacity // 10
        border = np.partition(counts, len(counts) - most)[len(counts) - most]

        def recall(found: Any, border: Any = border) -> str:
            return f"{(counts[np.searchsorted(keys, found)] >= border).mean():.3f}"

        found = np.array(ours.top(most).values, np.int64)
        table.add(capacity, recall(found), "-" if plain is None else recall(plain.top(most)[0]))


def run_cpp(scale: Scale) -> Section:
    """The same question between C++ and C++."""
    section = Section(
        "Heavy hitters in C++",
        "How fast is the kernel beside the frequent_items_sketch of Apache DataSketches in C++?",
    )
    name = "heavy hitters: C++ kernel against DataSketches C++, capacity up to 1e5"
    place = build.headers()
    if place is None and not scale.quick:
        try:
            place = fetch.fetch()
        except (OSError, subprocess.CalledProcessError) as error:
            section.say(f"The headers could not be fetched: {type(error).__name__}.")
    if place is None:
        section.say("No headers: run `python -m bench.cpp.fetch`, or set DATASKETCHES_CPP.")
        section.goals.append(Goal(name, ">= 1.5x", "-", None))
        return section
    updates = scale.pick(10_000_000, 1_000_000)
    arguments = [f"{updates:g}".replace("+0", ""), str(scale.pick(7, 2)), str(scale.seed)]
    arguments += ["1e3,1e4,1e5,1e6", "0.8,1.0", "1e6" if scale.quick else "1e6,1e7"]
    program = build.build(place)
    answer = subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    section.say(
        f"DataSketches {build.peer_version(place)};"
        f" `build/bench/heavy_hitters {' '.join(arguments)}`: {updates:,} updates"
        " of 64-bit keys, hashing included on both sides, flags"
        f" `{' '.join(flag for flag in build.FLAGS if not flag.startswith('-I'))}` for both. The"
        " peer's map is the least that holds the capacity, allocated at full size. `blind` hashes"
        " and counts in a table without keys: what the memory allows. ns per update: least"
        " (spread)."
    )
    table = section.table(
        "universe / exponent / capacity",
        "SpaceSaving",
        "DataSketches",
        "DataSketches / SpaceSaving",
        "counters alone",
        "plain",
        "blind",
        "recall",
        "recall, DataSketches",
        "recall, plain",
        "MB",
        "MB, DataSketches",
    )
    cases: dict[str, dict[str, dict[str, str]]] = {}
    for row in csv.DictReader(answer.stdout.splitlines(), delimiter="\t"):
        case = f"{row['universe']} / {row['exponent']} / {int(row['capacity']):g}"
        cases.setdefault(case, {})[row["contender"]] = row
    ratios: dict[str, list[tuple[str, Ratio]]] = {}
    recalls: list[tuple[str, float, float | None]] = []
    broken = 0
    for case, rows in cases.items():
        times = {
            name: Timing(name, [float(ns) for ns in row["ns"].split(",")])
            for name, row in rows.items()
        }
        ours, peer, plain = rows["space_saving"], rows["datasketches"], rows["plain"]
        ratio = Ratio(times["datasketches"], times["space_saving"])
        universe, case_here = case.split(" / ", 1)
        if int(ours["capacity"]) <= 100_000:
            ratios.setdefault(universe, []).append((case_here, ratio))
        if universe == "1e6":
            recalls.append((case_here, float(ours["recall"]), float(plain["recall"])))
        broken += int(ours["broken"])
        table.add(
            case,
            times["space_saving"],
            times["datasketches"],
            ratio,
            times["counters"],
            times["plain"],
            times["blind"],
            *(f"{float(row['recall']):.3f}" for row in (ours, peer, plain)),
            *(f"{int(row['bytes']) / 1e6:.2f}" for row in (ours, peer)),
        )
    for universe, found in ratios.items():
        section.goals.append(at_least(f"{name}, {universe} keys", 1.5, found))
    section.goals += recall_goals("C++", recalls)
    section.goals.append(
        Goal(
            "heavy hitters: bounds of the reported keys (C++)",
            "never broken",
            f"{broken} broken",
            broken == 0,
        )
    )
    return section
