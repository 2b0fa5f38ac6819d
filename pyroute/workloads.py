"""Seeded workloads: how often each key comes, interval by interval.

>>> import numpy as np
>>> homes = np.arange(1000) % 4
>>> first, second = fluctuating_zipf(1000, homes=homes, intervals=2, seed=1)
>>> int(first.sum()), int(second.sum())
(10000, 10000)
>>> loads = [np.bincount(homes, counts) for counts in (first, second)]
>>> bool(np.abs(loads[1] - loads[0]).max() >= 1.0 * loads[0].mean())
True

Every function is a pure function of its arguments, for one version of NumPy. An interval is an
int64 array of the length `keys`: how many records come with key 0, 1, ... in it. What a key's state
grows to over several intervals is for `KeyStats(window=...)` to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute._arrays import count, real, task_ids, word

__all__ = ["bursty", "fluctuating_zipf", "timed_items"]

_RECORDS_PER_KEY = 10
_PASSES = 8  # passes of pairs drawn at random, before they are taken in order

Counts = npt.NDArray[np.int64]


def fluctuating_zipf(
    keys: int,
    *,
    homes: Any,
    tasks: int | None = None,
    skew: float = 0.85,
    fluctuation: float = 1.0,
    records: int | None = None,
    intervals: int = 50,
    seed: int = 0,
) -> Iterator[Counts]:
    """Zipf frequencies, swapped between keys of different tasks from interval to interval.

    The generator of the paper on workload skewness and variance (LLFD). In the first interval the
    key of rank r has a frequency proportional to `r ** -skew`; ranks are dealt to keys by a
    permutation. At each later one frequencies are swapped between pairs of keys on different tasks
    until the load L of some task d has changed enough (z, f and K of the paper are `skew`,
    `fluctuation` and `keys`):

        max over d of |L(d) - L(d) one interval before| / mean load >= fluctuation

    The paper leaves open for which d, and which pairs. Here d is the task that changes most, and
    the pairs are drawn so that there is one: each interval draws a task, and every swap is between
    a key of that task and one of another, drawn uniformly, in the one direction. The task's load
    grows where it is at most the mean, else shrinks, and the other way where that cannot reach
    `fluctuation`. Pairs of no direction would not do: with 1e5 keys and 15 tasks a shuffle of
    everything changes the worst load by about half of the mean, so that a change of 1.0 hardly
    ever comes. Keys are drawn alike and not by frequency, as the paper says no more than "keys from
    different task instances", so that much of what a task has changes, and not its few hot keys
    alone. The change overshoots by less than one swap. Pairs are drawn in passes over the keys of
    the task, each key at most once in a pass, which costs O(keys) per pass and usually takes one or
    two; where 8 passes were not enough, the rest is taken in order of frequency, the greatest
    differences first, which reaches whatever swaps can reach at all.

    Parameters
    ----------
    keys
        Number of keys.
    homes
        Task of each key, by which loads are measured: those of a ring, so that the trace does not
        depend on the policy that is judged on it.
    tasks
        Number of tasks; by default one more than the greatest in `homes`.
    skew
        Exponent of the Zipf distribution; at 0 all keys are alike.
    fluctuation
        Change of the most changed load from one interval to the next, as a share of the mean. At 0
        all intervals are equal.
    records
        Records in each interval, 10 per key by default. The frequencies are whole numbers that add
        up to it.
    intervals
        How many to give.
    seed
        Another seed gives another trace.

    Raises
    ------
    ValueError
        Where a parameter is out of range; while iterating, where no swaps reach `fluctuation`.
    """
    keys = _at_least(count(keys, "keys"), 1, "keys")
    home = task_ids(homes, "homes")
    if len(home) != keys:
        raise ValueError(f"homes: expected a task for each of {keys} keys, got {len(home)}")
    least = int(home.max()) + 1
    number = least if tasks is None else _at_least(count(tasks, "tasks"), least, "tasks")
    skew, fluctuation = _from_zero(skew, "skew"), _from_zero(fluctuation, "fluctuation")
    total = _RECORDS_PER_KEY * keys if records is None else count(records, "records")
    total = _at_least(total, 1, "records")
    random = np.random.default_rng(word(seed, "seed"))
    frequencies = _zipf(keys, skew, total)[random.permutation(keys)]
    trace = _Trace(home, number, fluctuation * (total / number), fluctuation)
    return trace.intervals(frequencies, count(intervals, "intervals"), random)


def timed_items(
    records: int = 32_768,
    *,
    items: int = 4096,
    skew: float = 1.0,
    times: int = 64,
    least: float = 1.0,
    most: float = 64.0,
    steps: str = "linear",
    association: str = "uniform",
    seed: int = 0,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Records of items whose execution time depends on the item: the stream of paper 004.

    Parameters
    ----------
    records, items
        How many, and how many distinct (m and n in the paper).
    skew
        Exponent of the Zipf distribution of items; 0 for uniform.
    times, least, most
        Distinct execution times (w_n), and their range.
    steps
        Between the times: "linear" or "geometric".
    association
        How many items have each time: "uniform", the same number; "geometric", half as many as
        the time before; "binomial", most in the middle. Which ones is drawn.
    seed
        Another seed gives another association and another stream.

    Returns
    -------
    values, costs
        The item and the execution time of each record.
    """
    size, universe = count(records, "records"), _at_least(count(items, "items"), 1, "items")
    number = _at_least(count(times, "times"), 1, "times")
    low, high = _from_zero(least, "least"), _from_zero(most, "most")
    if not low <= high:
        raise ValueError(f"least: expected at most {high:g}, got {low:g}")
    values = _stepped(number, low, high, steps)
    random = np.random.default_rng(word(seed, "seed"))
    drawn = random.choice(universe, size, p=_weights(universe, _from_zero(skew, "skew")))
    each = _apportioned(universe, _items_per_time(number, association))
    cost_of = random.permutation(np.repeat(values, each))
    return drawn.astype(np.int64), cost_of[drawn]


def _stepped(number: int, low: float, high: float, steps: str) -> npt.NDArray[np.float64]:
    if number == 1:
        return np.array([low])
    if steps == "linear":
        return np.linspace(low, high, number)
    if steps == "geometric":
        if not low > 0:
            raise ValueError(f"least: expected above 0 for geometric steps, got {low:g}")
        return np.geomspace(low, high, number)
    raise ValueError(f"steps: expected linear or geometric, got {steps}")


def _items_per_time(number: int, association: str) -> npt.NDArray[np.float64]:
    if association == "uniform":
        return np.ones(number)
    if association == "geometric":
        return np.asarray(0.5 ** np.arange(number), np.float64)
    if association == "binomial":
        row = np.ones(1)
        for _ in range(number - 1):
            row = np.convolve(row, [0.5, 0.5])
        return row
    raise ValueError(f"association: expected uniform, geometric or binomial, got {association}")


def _apportioned(total: int, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Whole numbers in proportion, by largest remainders."""
    exact = total * weights / weights.sum()
    out: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    for at in np.argsort(out - exact, kind="stable")[: total - int(out.sum())]:
        out[at] += 1
    return out


def bursty(
    keys: int = 1036,
    *,
    intervals: int = 78,
    records: int = 77_000,
    skew: float = 0.7,
    bursts: float = 0.25,
    volatility: float = 0.25,
    seed: int = 0,
) -> Iterator[Counts]:
    """A stable heavy-tailed part, and abrupt bursts of single keys: trades by stock.

    A key's rate is that of its rank in a Zipf distribution, for good. On top of it bursts start at
    random: a key, drawn in proportion to its rate, comes 5 to 40 times as often (the logarithm is
    uniform) for 1 to 6 intervals. The total varies too: its logarithm is a random walk that is
    drawn back by a tenth each interval. Counts are Poisson draws.

    The defaults are those of the stock trace of the same paper, 1,036 keys and some 6 million
    records in three days, cut to 26 intervals a day, which get six or seven bursts.

    Parameters
    ----------
    keys
        Number of keys.
    intervals
        How many to give.
    records
        Records in an interval of usual volume without bursts, as a mean.
    skew
        Exponent of the stable part.
    bursts
        Bursts that start in an interval, as a mean.
    volatility
        Standard deviation of one step of the logarithm of the total; at 0 the total is steady.
    seed
        Another seed gives another trace.

    Raises
    ------
    ValueError
        Where a parameter is out of range.
    """
    keys = _at_least(count(keys, "keys"), 1, "keys")
    number, total = count(intervals, "intervals"), count(records, "records")
    total = _at_least(total, 1, "records")
    skew, bursts = _from_zero(skew, "skew"), _from_zero(bursts, "bursts")
    volatility = _from_zero(volatility, "volatility")
    random = np.random.default_rng(word(seed, "seed"))
    return _bursts(keys, number, total, skew, bursts, volatility, random)


def _bursts(
    keys: int,
    intervals: int,
    records: int,
    skew: float,
    bursts: float,
    volatility: float,
    random: np.random.Generator,
) -> Iterator[Counts]:
    shares = _weights(keys, skew)[random.permutation(keys)]
    factor = np.ones(keys)
    left = np.zeros(keys, np.int64)  # intervals that a burst still lasts
    level = 0.0
    for _ in range(intervals):
        factor[left == 0] = 1.0
        started = random.choice(keys, random.poisson(bursts), p=shares)
        factor[started] = np.exp(random.uniform(np.log(5), np.log(40), len(started)))
        left[started] = random.integers(1, 6, len(started), endpoint=True)
        level = 0.9 * level + volatility * random.standard_normal()
        yield random.poisson(records * np.exp(level) * shares * factor).astype(np.int64)
        left = np.maximum(left - 1, 0)


class _Trace:
    """Frequencies of keys on tasks, and how they change."""

    def __init__(
        self, home: npt.NDArray[np.int32], tasks: int, change: float, fluctuation: float
    ) -> None:
        self.home = home
        self.tasks = tasks
        self.change = change  # of a load, that has to be reached
        self.fluctuation = fluctuation  # as given, for the message

    def intervals(
        self, frequencies: Counts, number: int, random: np.random.Generator
    ) -> Iterator[Counts]:
        # Swaps leave the frequencies as a whole as they are, so a task of n keys never has less
        # than the n smallest of them, nor more than the n largest.
        cumulated = np.concatenate([[0], np.cumsum(np.sort(frequencies))])
        sizes = np.bincount(self.home, minlength=self.tasks)
        least, most = cumulated[sizes], cumulated[-1] - cumulated[len(self.home) - sizes]
        for interval in range(number):
            if interval > 0 and self.change > 0:
                self._swap(frequencies, least, most, random)
            yield frequencies.copy()

    def _swap(
        self, frequencies: Counts, least: Counts, most: Counts, random: np.random.Generator
    ) -> None:
        loads = np.bincount(self.home, frequencies, self.tasks).astype(np.float64)
        task, direction = self._choose(loads, least, most, random)
        own = np.flatnonzero(self.home == task)
        others = np.flatnonzero(self.home != task)
        wanted = self.change
        for number in range(_PASSES + 1):
            size = min(len(own), len(others))
            if number < _PASSES:
                here = random.permutation(own)[:size]
                there = random.choice(others, size, replace=False)
            else:
                here = own[np.argsort(direction * frequencies[own], kind="stable")][:size]
                there = others[np.argsort(-direction * frequencies[others], kind="stable")][:size]
            gains = np.maximum(direction * (frequencies[there] - frequencies[here]), 0)
            reached = np.cumsum(gains)
            end = min(int(np.searchsorted(reached, wanted)) + 1, size)
            useful = np.flatnonzero(gains[:end])
            here, there = here[useful], there[useful]
            frequencies[here], frequencies[there] = frequencies[there], frequencies[here]
            wanted -= int(reached[end - 1])
            if wanted <= 0:
                return
        raise AssertionError("a reachable change was not reached")

    def _choose(
        self,
        loads: npt.NDArray[np.float64],
        least: Counts,
        most: Counts,
        random: np.random.Generator,
    ) -> tuple[int, int]:
        """A task that can change enough, and which way."""
        up, down = most - loads, loads - least
        able = np.flatnonzero(np.maximum(up, down) >= self.change)
        if len(able) == 0:
            nearest = float(np.maximum(up, down).max()) / float(loads.mean())
            raise ValueError(
                "fluctuation: expected a change that swaps between tasks can reach, at most"
                f" {nearest:.3g} here, got {self.fluctuation:g}"
            )
        task = int(random.choice(able))
        grows = up[task] >= self.change and (
            loads[task] <= loads.mean() or down[task] < self.change
        )
        return task, 1 if grows else -1


def _weights(keys: int, skew: float) -> npt.NDArray[np.float64]:
    """Shares by rank, in descending order."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    return np.asarray(weights / weights.sum())


def _zipf(keys: int, skew: float, records: int) -> Counts:
    """Whole frequencies by rank that add up to `records`: rounded by the largest remainder."""
    exact = _weights(keys, skew) * records
    frequencies = np.floor(exact).astype(np.int64)
    missing = records - int(frequencies.sum())
    up = np.argsort(frequencies - exact, kind="stable")[:missing]
    frequencies[up] += 1
    return frequencies


def _at_least(value: int, least: int, name: str) -> int:
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return value


def _from_zero(value: Any, name: str) -> float:
    number = real(value, name)
    if not 0 <= number < np.inf:
        raise ValueError(f"{name}: expected a finite number from 0 up, got {number:g}")
    return number
