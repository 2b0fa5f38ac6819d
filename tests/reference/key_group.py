"""Twin of csrc/plan/key_group.hpp: keys that are alike, planned as one."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from reference.discretize import discretize
from reference.llfd import Problem, dearest_first


@dataclass
class KeyGroups:
    """Columns by group; key: the records of the problem, group after group."""

    current: list[int] = field(default_factory=list)
    home: list[int] = field(default_factory=list)
    cost_level: list[float] = field(default_factory=list)
    size_level: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)  # mean
    size: list[int] = field(default_factory=list)  # mean
    count: list[int] = field(default_factory=list)
    id: list[int] = field(default_factory=list)
    key: list[int] = field(default_factory=list)
    key_cost: list[float] = field(default_factory=list)


def group_keys(keys: Problem, degree: int) -> KeyGroups:
    """Round cost and state size by task, then merge what agrees in all of them and in home."""
    members: dict[tuple[int, int, float, float], list[int]] = {}
    for task in keys.tasks():
        here = [key for key in keys.records() if keys.current[key] == task]
        costs = discretize([keys.cost[key] for key in here], degree)
        sizes = discretize([float(keys.size[key]) for key in here], degree)
        for key, cost, size in zip(here, costs, sizes, strict=True):
            members.setdefault((task, keys.home[key], -cost, -size), []).append(key)
    groups = KeyGroups()
    for (current, home, cost, size), some in sorted(members.items()):
        ordered = dearest_first(keys, some)
        n = len(ordered)
        groups.current.append(current)
        groups.home.append(home)
        groups.cost_level.append(-cost)
        groups.size_level.append(-size)
        groups.cost.append(sum(keys.cost[key] for key in ordered) / n)
        groups.size.append((2 * sum(keys.size[key] for key in ordered) + n) // (2 * n))
        groups.count.append(n)
        groups.id.append(keys.id[ordered[0]])
        groups.key += ordered
        groups.key_cost += [keys.cost[key] for key in ordered]
    return groups


def grouped_problem(keys: Problem, groups: KeyGroups) -> Problem:
    """Return the same problem with groups for records."""
    return replace(
        keys,
        id=groups.id,
        cost=groups.cost,
        size=groups.size,
        current=groups.current,
        home=groups.home,
        count=groups.count,
    )


def pick(groups: KeyGroups, parts: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Return (key, target) for parts (group, count, target) that move."""
    left = []  # by group: places of its keys, the dearest first
    for count in groups.count:
        first = sum(len(places) for places in left)
        left.append(list(range(first, first + count)))
    excess: dict[tuple[int, int], float] = {}  # of what a target got over the means, by task
    picked = []
    for group, count, target in sorted(parts, key=lambda part: (part[0], part[2])):
        way = groups.current[group], target
        for _ in range(count):
            place = left[group].pop(-1 if excess.get(way, 0.0) > 0 else 0)
            excess[way] = excess.get(way, 0.0) + (groups.key_cost[place] - groups.cost[group])
            picked.append((groups.key[place], target))
    return picked
