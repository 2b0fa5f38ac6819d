"""Which levels a flush merges: size-tiered, and apart in time for different tasks."""

from __future__ import annotations

from collections.abc import Sequence

FACTOR = 8
MOST_LEVELS = 24

_SMALLEST_TIER = 4096  # rows; below it all levels are alike


def merge_from(sizes: Sequence[int], live: int, task: int, batch: int) -> int:
    """The first level of those that this flush writes as one, up to the newest.

    Size-tiered with factor 8: tiers are rows below 4,096, below 32,768 and so on, and never grow
    from older to newer. A tier of at least 4 levels is merged in one batch of 8, 64, 512, ...,
    which is another one for every task, so that tasks do not all merge at once; one of 12 levels
    is merged in any batch. All levels are merged into one when rows that are overwritten or
    deleted are half of those stored, and somewhat earlier in most tasks, for the same reason.

    Parameters
    ----------
    sizes
        Rows of the levels, oldest first; the last one is what the batch changed.
    live
        Rows of all levels that are neither overwritten nor deleted.
    task, batch
        Whose levels, and when.
    """
    stored = sum(sizes)
    early = (task * 0.6180339887498949) % 1.0 / 16  # the golden ratio: evenly for any tasks
    if stored - live > stored * (0.5 - early):
        return 0
    tiers = [_tier(rows) for rows in sizes]
    start = len(sizes) - 1
    while start:
        to = _reach(tiers, start, _tier(sum(sizes[start:])), task, batch)
        if to == start:
            break
        start = to
    return start


def _reach(tiers: Sequence[int], start: int, tier: int, task: int, batch: int) -> int:
    """The oldest level that joins those from `start`, which together are of this tier."""
    smaller = start
    while smaller and tiers[smaller - 1] < tier:
        smaller -= 1
    first = smaller
    while first and tiers[first - 1] == tier:
        first -= 1
    if _due(smaller - first + 1, tier, task, batch):
        return first
    if smaller + 1 > MOST_LEVELS:
        return first if first < start else tiers.index(tiers[start - 1])
    return smaller


def _tier(rows: int) -> int:
    tier, end = 0, _SMALLEST_TIER
    while rows >= end:
        tier, end = tier + 1, end * FACTOR
    return tier


def _due(levels: int, tier: int, task: int, batch: int) -> bool:
    # 585 is 1111 in base 8: tasks are apart in every tier, and 8 tasks evenly.
    turn = (batch + 585 * task) % FACTOR ** (tier + 1) == 0
    return levels >= (FACTOR // 2 if turn else FACTOR + FACTOR // 2)
