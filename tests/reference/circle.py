"""Twin of csrc/table/circle.hpp: how many identifiers a task gets, and which of them move."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor


def apportion(weights: Mapping[int, float], identifiers: int) -> dict[int, int]:
    """Round each exact share down, then give the rest to the largest remainders."""
    total = sum(Fraction(weight) for weight in weights.values())
    shares = {task: Fraction(weights[task]) * identifiers / total for task in sorted(weights)}
    gets = {task: floor(share) for task, share in shares.items()}
    by_remainder = sorted(shares, key=lambda task: (gets[task] - shares[task], task))
    for task in by_remainder[: identifiers - sum(gets.values())]:
        gets[task] += 1
    return gets


def fewest_moves(owners: Sequence[int], gets: Mapping[int, int]) -> int:
    """Return how many identifiers must change hands, whatever the new circle looks like."""
    return sum(max(0, had - gets.get(task, 0)) for task, had in Counter(owners).items())


def move_fewest(
    owners: Sequence[int], gets: Mapping[int, int], wanted: Sequence[int], start: int
) -> list[int]:
    """Move what is too much, first to the wanted task while it has room, then to any."""
    moved = list(owners)
    has = Counter(owners)
    size = len(owners)
    around = [(start + i) % size for i in range(size)]

    def give(identifier: int, task: int) -> None:
        has[moved[identifier]] -= 1
        has[task] += 1
        moved[identifier] = task

    for i in around:
        if has[moved[i]] > gets.get(moved[i], 0) and has[wanted[i]] < gets.get(wanted[i], 0):
            give(i, wanted[i])
    for i in around:
        if has[moved[i]] > gets.get(moved[i], 0):
            give(i, min(task for task in gets if has[task] < gets[task]))
    return moved
