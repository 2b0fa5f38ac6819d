"""Twin of csrc/plan/pair_graph.hpp: keys of operators as vertices, their pairs as edges."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Pairs = Sequence[tuple[int, int, int, int]]  # (in id, out id, count, error)


@dataclass
class Graph:
    vertices: list[tuple[int, int]]  # (operator, id)
    loads: list[int]
    counts: dict[tuple[int, int], int]  # by (vertex, vertex), the smaller first
    errors: dict[tuple[int, int], int]


def pair_graph(
    operators: int, relations: Mapping[tuple[int, int], Pairs], others: Sequence[tuple[int, int]]
) -> Graph:
    """`others` are keys that may have no pair: (operator, id)."""
    keys = set(others)
    for (start, end), pairs in relations.items():
        for one, other, _, _ in pairs:
            keys |= {(start, one), (end, other)}
    vertices = sorted(keys)
    number = {vertex: i for i, vertex in enumerate(vertices)}
    came: Counter[int] = Counter()
    went: dict[tuple[int, int], Counter[int]] = {}
    counts: Counter[tuple[int, int]] = Counter()
    errors: Counter[tuple[int, int]] = Counter()
    for relation, pairs in relations.items():
        passed = went.setdefault(relation, Counter())
        for one, other, count, error in pairs:
            a, b = number[relation[0], one], number[relation[1], other]
            came[b] += count
            passed[a] += count
            ends = min(a, b), max(a, b)
            counts[ends] += count
            errors[ends] += error
    loads = [max(came[v], *(passed[v] for passed in went.values()), 0) for v in number.values()]
    return Graph(vertices, loads, dict(counts), dict(errors))
