"""Twin of csrc/plan/locality.hpp: what an arrangement of keys on servers is worth."""

from dataclasses import dataclass, field

NEAR = 256
PENALTY = 8 * NEAR


@dataclass
class Problem:
    """Vertices, edges and servers; `edges` holds each pair of vertices once."""

    servers: int
    operators: int
    load: list[list[int]]  # vertex, operator
    member: list[set[int]]  # operators of each vertex
    size: list[int]
    stake: list[int]
    current: list[int]
    origin: list[int]
    home: list[int]
    edges: dict[tuple[int, int], int]
    limit: list[list[int]]  # operator, server
    near: list[list[int]]
    penalty: list[int] = field(default_factory=list)
    max_table: list[int | None] = field(default_factory=list)
    max_migration: int | None = None
    fixed: frozenset[int] = frozenset()

    @property
    def vertices(self) -> range:
        return range(len(self.member))

    def neighbours(self, vertex: int) -> list[int]:
        ends = [end for end in self.edges if vertex in end]
        return sorted(a if b == vertex else b for a, b in ends)


def loads(problem: Problem, where: list[int]) -> list[list[int]]:
    out = [[0] * problem.servers for _ in range(problem.operators)]
    for v in problem.vertices:
        for o in range(problem.operators):
            out[o][where[v]] += problem.load[v][o]
    return out


def excesses(problem: Problem, where: list[int]) -> list[list[int]]:
    """What is above the limit, by operator and server."""
    return [
        [max(0, load - limit) for load, limit in zip(*rows, strict=True)]
        for rows in zip(loads(problem, where), problem.limit, strict=True)
    ]


def overload(problem: Problem, where: list[int]) -> int:
    rows = zip(problem.penalty, excesses(problem, where), strict=True)
    return sum(penalty * sum(row) for penalty, row in rows)


def traffic(problem: Problem, where: list[int]) -> int:
    return sum(
        weight * problem.near[where[a]][where[b]] for (a, b), weight in problem.edges.items()
    )


def stakes(problem: Problem, where: list[int]) -> int:
    return sum(problem.stake[v] for v in problem.vertices if where[v] != problem.current[v])


def migration(problem: Problem, where: list[int]) -> int:
    return sum(problem.size[v] for v in problem.vertices if where[v] != problem.origin[v])


def tabled(problem: Problem, where: list[int]) -> list[int]:
    return [
        sum(o in problem.member[v] and where[v] != problem.home[v] for v in problem.vertices)
        for o in range(problem.operators)
    ]


def value(problem: Problem, where: list[int]) -> int:
    return traffic(problem, where) - overload(problem, where)


def worth(problem: Problem, where: list[int]) -> int:
    return value(problem, where) - stakes(problem, where)
