"""Topology: the operators of a stream, their tasks, and who sends to whom.

>>> chain = Topology.of({"words": 2, "counts": 3}, stateless=["words"])
>>> [str(task) for task in chain.sources]
['words/0', 'words/1']
>>> chain.depth
2
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pyroute._arrays import task_id


class Task(NamedTuple):
    """One task of one operator: the address of an `Instance`."""

    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator}/{self.number}" if self.operator else "manager"


MANAGER = Task("", 0)
"""The address of the manager: no operator is named so."""


class Topology:
    """A directed graph of operators without a cycle, each with its tasks; immutable.

    Sources are operators like the others, without predecessors: they route too. Where a plan adds
    or removes tasks, a topology has those of before and after.

    Parameters
    ----------
    tasks
        The tasks of each operator, by number.
    edges
        (operator, operator that it sends to) each.
    stateless
        Operators without keys: any of their tasks takes any record. Sources among them.
    """

    def __init__(
        self,
        tasks: Mapping[str, Iterable[int]],
        edges: Iterable[tuple[str, str]],
        *,
        stateless: Collection[str] = (),
    ) -> None:
        self.operators = tuple(tasks)
        self.edges = tuple(dict.fromkeys((str(a), str(b)) for a, b in edges))
        self._numbers = {name: _numbers(name, tasks[name]) for name in self.operators}
        for name in [*stateless, *(end for edge in self.edges for end in edge)]:
            if name not in self._numbers:
                raise ValueError(f"operator: expected one of {list(tasks)}, got {name!r}")
        self.keyed = frozenset(self.operators) - frozenset(stateless)
        self._before = {name: self._ends(name, 1) for name in self.operators}
        self._after = {name: self._ends(name, 0) for name in self.operators}
        self._tasks_before = {name: self._all_of(self._before[name]) for name in self.operators}
        self._tasks_after = {name: self._all_of(self._after[name]) for name in self.operators}
        for name in self.keyed:
            if not self._before[name]:
                raise ValueError(f"stateless: expected sources among them, got {name!r} outside")
        self._levels = self._level()

    @classmethod
    def of(
        cls,
        placement: Topology | Mapping[str, Any],
        edges: Iterable[tuple[str, str]] | None = None,
        *,
        stateless: Collection[str] | None = None,
    ) -> Topology:
        """A topology, as itself or from a placement.

        Parameters
        ----------
        placement
            A `Topology`, or for each operator a number of tasks, their numbers, or `{task:
            server}`.
        edges
            By default a chain in the order of the placement.
        stateless
            By default the first operator of a chain.
        """
        if isinstance(placement, Topology):
            return placement
        if not isinstance(placement, Mapping):
            raise TypeError(
                "placement: expected a Topology or a mapping of operator to tasks,"
                f" got {type(placement).__name__}"
            )
        tasks = {
            name: range(given) if isinstance(given, int | np.integer) else given
            for name, given in placement.items()
        }
        chain = list(pairwise(tasks)) if edges is None else list(edges)
        if stateless is None:
            ends = {b for _, b in chain}
            stateless = [name for name in tasks if name not in ends]
        return cls(tasks, chain, stateless=stateless)

    def tasks(self, operator: str) -> tuple[Task, ...]:
        """The tasks of an operator, ascending."""
        return self._numbers[operator]

    @cached_property
    def all_tasks(self) -> tuple[Task, ...]:
        """Every task, operator by operator."""
        return tuple(task for name in self.operators for task in self._numbers[name])

    @cached_property
    def sources(self) -> tuple[Task, ...]:
        """The tasks that no task sends to."""
        return tuple(task for task in self.all_tasks if not self._before[task.operator])

    def successors(self, operator: str) -> tuple[str, ...]:
        """The operators that an operator sends to."""
        return self._after[operator]

    def predecessor_tasks(self, operator: str) -> tuple[Task, ...]:
        """The tasks that send to each task of an operator."""
        return self._tasks_before[operator]

    def successor_tasks(self, operator: str) -> tuple[Task, ...]:
        """The tasks that each task of an operator sends to."""
        return self._tasks_after[operator]

    def level(self, operator: str) -> int:
        """How many operators are on the longest way to it, with itself."""
        return self._levels[operator]

    @property
    def depth(self) -> int:
        """How many operators are on the longest way."""
        return max(self._levels.values())

    def has(self, task: Task) -> bool:
        """Whether it is one of the tasks."""
        return task in self._numbers.get(task.operator, ())

    def check_tasks(self, operator: str, numbers: Iterable[int]) -> None:
        """Check that an operator has these tasks: a router must not send to others."""
        there = {task.number for task in self._numbers[operator]}
        for number in numbers:
            if number not in there:
                raise ValueError(f"routers: expected tasks of {operator!r}, got {number}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return (
            self._numbers == other._numbers
            and set(self.edges) == set(other.edges)
            and self.keyed == other.keyed
        )

    def __hash__(self) -> int:
        return hash((frozenset(self._numbers.items()), frozenset(self.edges), self.keyed))

    def __repr__(self) -> str:
        tasks = ", ".join(f"{name}: {len(self._numbers[name])}" for name in self.operators)
        return f"Topology({tasks}; {', '.join(f'{a} -> {b}' for a, b in self.edges)})"

    def _ends(self, name: str, end: int) -> tuple[str, ...]:
        return tuple(edge[1 - end] for edge in self.edges if edge[end] == name)

    def _all_of(self, operators: Iterable[str]) -> tuple[Task, ...]:
        return tuple(task for name in operators for task in self._numbers[name])

    def _level(self) -> dict[str, int]:
        levels: dict[str, int] = {}
        left = list(self.operators)
        while left:
            ready = [name for name in left if all(b in levels for b in self._before[name])]
            if not ready:
                raise ValueError(f"edges: expected no cycle, got one through {left[0]!r}")
            for name in ready:
                levels[name] = 1 + max((levels[b] for b in self._before[name]), default=0)
            left = [name for name in left if name not in levels]
        return levels


def _numbers(name: object, given: Iterable[int]) -> tuple[Task, ...]:
    if not isinstance(name, str) or not name:
        raise ValueError(f"operator: expected a name, got {name!r}")
    numbers: Sequence[int] = sorted(task_id(number, "tasks") for number in given)
    if not numbers:
        raise ValueError(f"tasks: expected at least one of {name!r}, got none")
    for a, b in pairwise(numbers):
        if a == b:
            raise ValueError(f"tasks: expected distinct ones of {name!r}, got {a} twice")
    return tuple(Task(name, number) for number in numbers)
