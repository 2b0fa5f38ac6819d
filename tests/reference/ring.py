"""Twin of csrc/table/ring.hpp: a circle of identifiers, its owners chosen by points."""

from bisect import bisect_left
from collections.abc import Mapping
from math import floor

from reference.circle import apportion, move_fewest
from reference.keys import hash_int


def points(weights: Mapping[int, float], replicas: int, salt: int) -> list[tuple[int, int]]:
    """Return (position, task) in their order on the circle; the mean is of weights above 0."""
    present = {task: weight for task, weight in sorted(weights.items()) if weight > 0}
    mean = sum(present.values()) / len(present)
    placed = []
    for task, weight in present.items():
        count = max(1, floor(replicas * weight / mean + 0.5))
        seed = hash_int(task, hash_int(salt))
        placed += [(hash_int(j, seed), task) for j in range(count)]
    return sorted(placed)


def owners(
    weights: Mapping[int, float], bits: int, replicas: int = 128, salt: int = 0
) -> list[int]:
    """Give each identifier to the first point at or after it whose task still has room."""
    room = apportion(weights, 2**bits)
    circle = points(weights, replicas, salt)
    positions = [position for position, _ in circle]
    given = []
    for identifier in range(2**bits):
        first = bisect_left(positions, identifier << (64 - bits))
        candidates = (circle[(first + i) % len(circle)][1] for i in range(len(circle)))
        task = next(task for task in candidates if room[task] > 0)
        room[task] -= 1
        given.append(task)
    return given


def with_tasks(
    before: list[int], weights: Mapping[int, float], replicas: int = 128, salt: int = 0
) -> list[int]:
    """Return the owners after a change of tasks: as few identifiers move as possible."""
    bits = len(before).bit_length() - 1
    start = hash_int(1, hash_int(salt)) >> (64 - bits)
    gets = apportion(weights, len(before))
    return move_fewest(before, gets, owners(weights, bits, replicas, salt), start)


def home(circle: list[int], key: int) -> int:
    """Return the owner at the top bits of a key."""
    return circle[key * len(circle) >> 64]


def default_bits(tasks: int) -> int:
    """Return the least number of bits with 64 identifiers a task, within 16 to 22."""
    return min(22, max(16, (64 * tasks - 1).bit_length()))
