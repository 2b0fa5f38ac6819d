"""Twin of csrc/table/dynamic_grouping.hpp: the split ratio as a circle of record ids."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil

from reference.circle import apportion, move_fewest


def interleave(gets: Mapping[int, int]) -> list[int]:
    """Give each place to the task whose next turn is due first, among those behind their share."""
    size = sum(gets.values())
    given = dict.fromkeys(gets, 0)
    order = []
    for place in range(1, size + 1):
        behind = [task for task in gets if given[task] < Fraction(place * gets[task], size)]
        task = min(
            behind, key=lambda task: (ceil(Fraction((given[task] + 1) * size, gets[task])), task)
        )
        given[task] += 1
        order.append(task)
    return order


def from_ratio(ratio: Mapping[int, float], bits: int) -> list[int]:
    return interleave(apportion(ratio, 2**bits))


def from_identifiers(assigned: Mapping[int, int], bits: int) -> list[int]:
    """Give each identifier to the owner of the first assigned one at or after it."""
    size = 2**bits
    owners = []
    for identifier in range(size):
        first = next(i for i in range(identifier, identifier + size) if i % size in assigned)
        owners.append(assigned[first % size])
    return owners


def init_shards(tasks: int, shards: int, bits: int) -> list[int]:
    assigned = {t + s * tasks: t for t in range(tasks) for s in range(shards)}
    return from_identifiers(assigned, bits)


def reassign(owners: Sequence[int], task: int, to: Mapping[int, float]) -> list[int]:
    heirs = iter(interleave(apportion(to, owners.count(task))))
    return [next(heirs) if owner == task else owner for owner in owners]


def with_ratio(owners: Sequence[int], ratio: Mapping[int, float]) -> list[int]:
    gets = apportion(ratio, len(owners))
    return move_fewest(owners, gets, interleave(gets), 0)
