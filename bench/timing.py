"""How contenders are timed: in one run, in turn, by CPU time.

Machines are busy, so absolute figures mean little and ratios only what was measured together. Each
repetition runs every contender once, starting with another one each time; the figure of a
contender is its least CPU time, the spread says how far the slowest repetition was from it.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Thunk = Callable[[], object]


@dataclass(frozen=True)
class Contender:
    """What is timed. `prepare` runs before the clock and gives the call that is timed."""

    name: str
    items: int
    prepare: Callable[[], Thunk]
    # Timed too, its least time taken away: what a call does once, however many items it gets.
    fixed: Thunk | None = None


def contender(name: str, items: int, call: Thunk, fixed: Thunk | None = None) -> Contender:
    """One whose call needs nothing new each time."""
    return Contender(name, items, lambda: call, fixed)


@dataclass(frozen=True)
class Timing:
    """Nanoseconds of CPU time per item, one figure per repetition."""

    name: str
    each: Sequence[float]

    @property
    def best(self) -> float:
        return min(self.each)

    @property
    def spread(self) -> float:
        """How much slower the slowest repetition was, as a share of the best."""
        return max(self.each) / self.best - 1


@dataclass(frozen=True)
class Ratio:
    """How many times longer `slow` takes than `fast`."""

    slow: Timing
    fast: Timing

    @property
    def value(self) -> float:
        """Of the best figures."""
        return self.slow.best / self.fast.best

    @property
    def paired(self) -> float:
        """The median over repetitions: neighbours in time met the same noise."""
        pairs = zip(self.slow.each, self.fast.each, strict=True)
        return statistics.median(slow / fast for slow, fast in pairs)


def interleave(contenders: Sequence[Contender], repetitions: int) -> dict[str, Timing]:
    """Times every contender `repetitions` times, after one call that is not counted."""
    for each in contenders:
        each.prepare()()
        if each.fixed is not None:
            each.fixed()
    found: dict[str, list[float]] = {each.name: [] for each in contenders}
    fixed: dict[str, list[float]] = {each.name: [] for each in contenders}
    enabled = gc.isenabled()
    gc.disable()
    try:
        for repetition in range(repetitions):
            start = repetition % len(contenders)
            for each in [*contenders[start:], *contenders[:start]]:
                found[each.name].append(cpu_seconds(each.prepare()))
                if each.fixed is not None:
                    fixed[each.name].append(cpu_seconds(each.fixed))
            gc.collect()
    finally:
        if enabled:
            gc.enable()
    timings = {}
    for each in contenders:
        once = min(fixed[each.name], default=0.0)
        nanoseconds = [(seconds - once) * 1e9 / each.items for seconds in found[each.name]]
        timings[each.name] = Timing(each.name, [max(ns, 1e-3) for ns in nanoseconds])
    return timings


def cpu_seconds(thunk: Thunk) -> float:
    """CPU time of the process, all threads: a contender that starts threads pays for them."""
    start = time.process_time_ns()
    thunk()
    return (time.process_time_ns() - start) * 1e-9
