"""Twin of csrc/plan/search.hpp: single moves and exchanges that lower the greatest level."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from reference.llfd import Placement, Problem, keys_away, loads, mean_level, state_moved

NEAREST = 16
WORTHWHILE = 1e-9
NEAR_MEAN = 1e-4

Change = tuple[tuple[int, int], ...]  # (key, its new task)
Ranked = tuple[tuple[Any, ...], Change]  # (lowest greater level, ties ...), change


class Search:
    """One placement and the counts that bound what may be done to it."""

    def __init__(self, keys: Problem, placement: Placement) -> None:
        self.keys, self.where = keys, placement.where
        self.tasks = [task for task in keys.open_tasks() if task not in placement.given()]
        self.load = loads(keys, self.where)
        self.away = keys_away(keys, self.where)
        self.moved = state_moved(keys, self.where)

    def on_task(self, task: int) -> list[int]:
        """Return the keys of a task that cost something, cheapest first."""
        cost = self.keys.cost
        some = [key for key in self.keys.records() if self.where[key] == task and cost[key] > 0]
        return sorted(some, key=lambda key: (self.keys.cost[key], self.keys.id[key], key))

    def level(self, task: int, load: float) -> float:
        return load / self.keys.capacity[task]

    def after(self, change: Change) -> tuple[int, int]:
        """Return keys away and state moved after a change."""
        away, moved = self.away, self.moved
        for key, task in change:
            home, current = self.keys.home[key], self.keys.current[key]
            away += (task != home) - (self.where[key] != home)
            moved += self.keys.size[key] * ((task != current) - (self.where[key] != current))
        return away, moved

    def allowed(self, change: Change) -> bool:
        return not any(
            bound is not None and after > before and after > bound
            for bound, before, after in zip(
                (self.keys.max_table, self.keys.max_migration),
                (self.away, self.moved),
                self.after(change),
                strict=True,
            )
        )

    def ideal(self, d: int, e: int) -> float:
        """Return the cost that, moved from d to e, would make both levels equal."""
        wide, narrow = self.keys.capacity[d], self.keys.capacity[e]
        return (self.load[d] * narrow - self.load[e] * wide) / (wide + narrow)

    def single_moves(self, d: int) -> Iterator[tuple[Change, int]]:
        keys = self.on_task(d)
        costs = [self.keys.cost[key] for key in keys]
        for e in self.tasks:
            if e != d:
                middle = bisect_left(costs, self.ideal(d, e))
                for key in keys[max(0, middle - NEAREST) : middle + NEAREST]:
                    yield ((key, e),), e

    def exchanges(self, d: int) -> Iterator[tuple[Change, int]]:
        for e in self.tasks:
            if e == d:
                continue
            others = self.on_task(e)
            costs = [self.keys.cost[other] for other in others]
            for key in self.on_task(d):
                above = bisect_left(costs, self.keys.cost[key] - self.ideal(d, e))
                for other in others[max(0, above - 1) : above + 1]:
                    if self.keys.cost[other] < self.keys.cost[key]:
                        yield ((key, e), (other, d)), e

    def best(self, d: int, changes: Iterator[tuple[Change, int]]) -> Ranked | None:
        """Return the rank of the best change that is allowed, and the change."""
        best = None
        for change, e in changes:
            if not self.allowed(change):
                continue
            moved = sum(self.keys.cost[key] * (1 if task == e else -1) for key, task in change)
            greater = max(self.level(d, self.load[d] - moved), self.level(e, self.load[e] + moved))
            ids = tuple((self.keys.id[key], key) for key, _ in change)
            rank = greater, self.after(change)[1], len(change), e, ids
            if best is None or rank < best[0]:
                best = rank, change
        return best

    def helps(self, found: Ranked, level: float) -> bool:
        return found[0][0] < level - WORTHWHILE * level

    def step(self, moves: int) -> int:
        """Make the best change within so many moves; return how many it took, 0: none helps."""
        d = min(self.tasks, key=lambda task: (-self.level(task, self.load[task]), task))
        level = self.level(d, self.load[d])
        mean = mean_level(self.keys)
        best = self.best(d, self.single_moves(d))
        if best is not None and not self.helps(best, level):
            best = None
        if moves >= 2 and (best is None or best[0][0] > mean * (1 + NEAR_MEAN)):
            other = self.best(d, self.exchanges(d))
            if other is not None and self.helps(other, level) and (best is None or other < best):
                best = other
        if best is None:
            return 0
        self.make(best[1])
        return len(best[1])

    def make(self, change: Change) -> None:
        self.away, self.moved = self.after(change)
        for key, task in change:
            self.load[self.where[key]] -= self.keys.cost[key]
            self.load[task] += self.keys.cost[key]
            self.where[key] = task

    def lift(self) -> bool:
        """Move one key to the task of the least level, where that is too low and one can come."""
        level = {task: self.level(task, self.load[task]) for task in self.tasks}
        e = min(self.tasks, key=lambda task: (level[task], task))
        if level[e] >= (1 - self.keys.max_imbalance) * mean_level(self.keys) * (1 - WORTHWHILE):
            return False
        for d in sorted(self.tasks, key=lambda task: (-level[task], task)):
            changes = [
                (-self.keys.cost[key], self.keys.id[key], key)
                for key in self.on_task(d)
                if d != e and self.keys.cost[key] <= self.ideal(d, e) and self.allowed(((key, e),))
            ]
            if changes:
                self.make(((min(changes)[2], e),))
                return True
        return False


def search(keys: Problem, placement: Placement, moves: int) -> int:
    """Change a placement of keys in place; return the number of moves that were made."""
    state = Search(keys, placement)
    left = moves
    while left > 0 and (made := state.step(left)) > 0:
        left -= made
    placement.load = loads(keys, placement.where)
    return moves - left


def lift(keys: Problem, placement: Placement) -> None:
    """Lift the least level of a placement of keys, in place, as far as keys can be had."""
    state = Search(keys, placement)
    for _ in keys.records():
        if not state.lift():
            break
    placement.load = loads(keys, placement.where)
