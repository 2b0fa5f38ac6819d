"""Twin of csrc/plan/problem.hpp and llfd.hpp: the three phases, on one key after another."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import sqrt
from typing import Any

import numpy as np

TOLERANCE = 1e-9
PASSED = 1024


@dataclass
class Problem:
    """Records of keys that are alike, and tasks with limits."""

    capacity: list[float]
    base: list[float]
    open: list[int]
    id: list[int]
    cost: list[float]
    size: list[int]
    current: list[int]
    home: list[int]
    count: list[int] = field(default_factory=list)  # empty: every record is one key
    max_imbalance: float = 0.08
    beta: float = 1.5
    max_table: int | None = None
    max_migration: int | None = None
    two_sided: bool = False

    def tasks(self) -> range:
        return range(len(self.capacity))

    def open_tasks(self) -> list[int]:
        return [task for task in self.tasks() if self.open[task]]

    def records(self) -> range:
        return range(len(self.id))

    def keys_of(self, record: int) -> int:
        return self.count[record] if self.count else 1

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return tasks and records as the arrays that kernels take."""
        types = {"capacity": np.float64, "base": np.float64, "open": np.uint8, "id": np.uint64}
        types |= {"cost": np.float64, "size": np.int64, "current": np.int32, "home": np.int32}
        types |= {"count": np.uint32}
        return {name: np.array(getattr(self, name), kind) for name, kind in types.items()}


@dataclass
class Placement:
    """The task of every key; key i is one of record[i]."""

    record: list[int]
    where: list[int]
    load: list[float]
    giants: list[tuple[int, int]] = field(default_factory=list)  # (key, task), dearest first
    stuck: int = 0
    trials: int = 0
    table_full: bool = False
    budget_spent: bool = False
    pops: list[int] = field(default_factory=list)  # keys in the order in which phase III took them

    def given(self) -> set[int]:
        return {task for _, task in self.giants}


def expand(problem: Problem) -> tuple[Problem, list[int]]:
    """Return the problem with each key a record of its own, and the record that each key is of."""
    if all(count == 1 for count in problem.count):
        return replace(problem, count=[]), list(problem.records())
    record = [r for r in problem.records() for _ in range(problem.count[r])]
    columns = {
        name: [getattr(problem, name)[r] for r in record]
        for name in ("id", "cost", "size", "current", "home")
    }
    return replace(problem, count=[], **columns), record


# All below is on problems of which each record is one key.


def mean_level(keys: Problem) -> float:
    load = sum(keys.cost) + sum(keys.base[task] for task in keys.open_tasks())
    return load / sum(keys.capacity[task] for task in keys.open_tasks())


def limits(keys: Problem) -> list[float]:
    """Return the greatest load of each task that counts as within its limit."""
    mean = mean_level(keys)
    return [(1 + keys.max_imbalance) * mean * c * (1 + TOLERANCE) for c in keys.capacity]


def priority(keys: Problem, key: int) -> float:
    cost, beta = keys.cost[key], keys.beta
    raised = cost * sqrt(cost) if beta == 1.5 else cost**beta
    return raised / max(keys.size[key], 1)


def loads(keys: Problem, where: Iterable[int | None]) -> list[float]:
    """Return the load of each task, base included; keys that are nowhere count nowhere."""
    load = list(keys.base)
    for key, task in enumerate(where):
        if task is not None:
            load[task] += keys.cost[key]
    return load


def by_level(keys: Problem, load: list[float], tasks: Iterable[int]) -> list[int]:
    return sorted(tasks, key=lambda task: (load[task] / keys.capacity[task], task))


def dearest_first(keys: Problem, some: Iterable[int]) -> list[int]:
    return sorted(some, key=lambda key: (-keys.cost[key], keys.id[key], key))


def keys_away(keys: Problem, where: list[int]) -> int:
    return sum(task != home for task, home in zip(where, keys.home, strict=True))


def state_moved(keys: Problem, where: list[int]) -> int:
    return sum(
        size
        for size, task, current in zip(keys.size, where, keys.current, strict=True)
        if task != current
    )


def greatest_level(keys: Problem, load: list[float]) -> float:
    return max(load[task] / keys.capacity[task] for task in keys.open_tasks())


def find_giants(keys: Problem) -> list[tuple[int, int]]:
    """Return (key, task) of the keys that no limit has room for, at most all open tasks but one."""
    open_tasks = keys.open_tasks()
    limit = limits(keys)
    greatest = max(limit[task] for task in open_tasks)
    too_dear = [key for key in keys.records() if keys.cost[key] > greatest]
    chosen = dearest_first(keys, too_dear)[: len(open_tasks) - 1]
    load = loads(keys, keys.current)
    giants: list[tuple[int, int]] = []
    free = set(open_tasks)
    for key in chosen:
        task = keys.current[key]
        load[task] -= keys.cost[key]
        if task not in free:
            task = min(free, key=lambda t: (-keys.capacity[t], load[t] / keys.capacity[t], t))
        free.remove(task)
        giants.append((key, task))
    return giants


def find_start(keys: Problem, giants: list[tuple[int, int]]) -> list[int | None]:
    """Return where each key starts; None: it is a candidate at once."""
    given = {task for _, task in giants}
    start: list[int | None] = list(keys.current)
    for key in keys.records():
        if not keys.open[keys.current[key]]:
            home = keys.home[key]
            start[key] = home if keys.open[home] and home not in given else None
    for key, task in giants:
        start[key] = task
    return start


def find_entries(
    keys: Problem, start: list[int | None], giants: list[tuple[int, int]]
) -> list[int]:
    """Return the keys that cleaning can send home, by ascending state size."""
    given, big = {task for _, task in giants}, {key for key, _ in giants}
    entries = [
        key
        for key in keys.records()
        if start[key] is not None
        and start[key] != keys.home[key]
        and keys.open[keys.home[key]]
        and keys.home[key] not in given
        and key not in big
    ]
    return sorted(entries, key=lambda key: (keys.size[key], keys.id[key], key))


def order_entries(
    keys: Problem, record: list[int], start: list[int | None], entries: list[int]
) -> tuple[list[int], int]:
    """Return the entries in the order of cleaning, and how many are useful."""
    load, limit = loads(keys, start), limits(keys)
    over = [has - may for has, may in zip(load, limit, strict=True)]
    room = [may - has for has, may in zip(load, limit, strict=True)]
    records = [list(group) for _, group in groupby(entries, key=lambda key: record[key])]
    useful, harmless, others = [], [], []
    rest = []
    for some in records:
        cost = sum(keys.cost[key] for key in some)
        source, home = start[some[0]], keys.home[some[0]]
        if cost <= over[source] and cost <= room[home]:
            over[source] -= cost
            room[home] -= cost
            useful += some
        else:
            rest.append(some)
    for some in rest:
        cost, home = sum(keys.cost[key] for key in some), keys.home[some[0]]
        if cost <= room[home]:
            room[home] -= cost
            harmless += some
        else:
            others += some
    return useful + harmless + others, len(useful)


def cleaning(problem: Problem) -> tuple[list[int], int]:
    """Return the entries in the order of cleaning, and how many are useful."""
    keys, record = expand(problem)
    giants = find_giants(keys)
    start = find_start(keys, giants)
    return order_entries(keys, record, start, find_entries(keys, start, giants))


def count_entries(problem: Problem) -> int:
    return len(cleaning(problem)[0])


def in_order(keys: Problem, psi: str, some: Iterable[int]) -> list[int]:
    if psi == "cost":
        return dearest_first(keys, some)
    return sorted(some, key=lambda key: (-priority(keys, key), keys.id[key], key))


def leave_giant(keys: Problem, giant: int, others: list[int], quota: int | None) -> list[int]:
    """Return which of the others on the task of a giant leave it, as many as the quota at least."""
    stays = sum(keys.cost[key] for key in others)
    left: list[int] = []
    for key in dearest_first(keys, others):
        enough = quota is not None and len(left) >= quota
        if keys.cost[key] == 0 or (enough and stays <= keys.max_imbalance * keys.cost[giant]):
            break
        stays -= keys.cost[key]
        left.append(key)
    return left


def prepare(keys: Problem, order: list[int], load: float, limit: float) -> list[int]:
    """Return which keys are taken off a task over its limit, in the order psi."""
    taken: list[int] = []
    for key in order:
        if load <= limit:
            break
        load -= keys.cost[key]
        taken.append(key)
    return taken


def prepare_gently(
    keys: Problem, record: list[int], order: list[int], load: float, limit: float, dear: float
) -> list[int]:
    """Return which keys are taken off, so that no more leaves than has to."""
    taken: list[int] = []
    passed: list[int] = []
    records_passed = 0
    for key in order:
        if load <= limit or records_passed == PASSED:
            break
        if keys.cost[key] <= dear and keys.cost[key] <= load - limit:
            load -= keys.cost[key]
            taken.append(key)
        else:
            records_passed += not passed or record[passed[-1]] != record[key]
            passed.append(key)
    while load > limit and passed:
        enough = [key for key in passed if keys.cost[key] >= load - limit]
        fitting = [key for key in enough if keys.cost[key] <= dear]
        # The first of the smallest state; or of the earliest record as many keys as needed.
        best = min(fitting or enough, key=lambda key: keys.size[key], default=passed[0])
        alike = [key for key in passed if record[key] == record[best]]
        for key in alike if not enough else [best]:
            if load > limit:
                load -= keys.cost[key]
                taken.append(key)
                passed.remove(key)
    return taken


def put_back(keys: Problem, taken: list[int], load: float, limit: float) -> list[int]:
    """Return what leaves the task of such a load: of the taken, what does not fit any more."""
    load -= sum(keys.cost[key] for key in taken)
    leave = []
    for key in reversed(taken):
        if load + keys.cost[key] <= limit:
            load += keys.cost[key]
        else:
            leave.append(key)
    return leave


class Assign:
    """Phase III: candidates, dearest first, each to the first task that takes it."""

    def __init__(self, keys: Problem, psi: str, where: list[int | None], given: set[int]) -> None:
        self.keys, self.psi, self.where = keys, psi, where
        self.limit, self.load = limits(keys), loads(keys, where)
        self.tasks = [task for task in keys.open_tasks() if task not in given]
        candidates = [key for key in keys.records() if where[key] is None]
        self.candidates = [(-keys.cost[key], keys.id[key], key) for key in candidates]
        heapify(self.candidates)
        self.pops: list[int] = []
        self.stuck = 0
        # By task, made when first needed: keys that may be exchanged, the first by psi last, and
        # what they cost in all. Candidates come ever cheaper, so a key that is too dear once is
        # too dear for ever, and is dropped.
        self.exchangeable: dict[int, list[int]] = {}
        self.total: dict[int, float] = {}

    def run(self) -> None:
        while self.candidates:
            _, _, key = heappop(self.candidates)
            self.pops.append(key)
            order = by_level(self.keys, self.load, self.tasks)
            task = next((task for task in order if self.takes(task, key)), None)
            if task is None:
                task = order[0]
                self.stuck += 1
            self.where[key] = task
            self.load[task] += self.keys.cost[key]

    def takes(self, task: int, key: int) -> bool:
        return self.load[task] + self.keys.cost[key] <= self.limit[task] or self.adjust(task, key)

    def adjust(self, task: int, key: int) -> bool:
        """Take an exchangeable set off the task, if that makes room for the key."""
        cost, limit, price = self.keys.cost, self.limit[task], self.keys.cost[key]
        if task not in self.exchangeable:
            self.list_exchangeable(task, price)
        load = self.load[task] + price
        if load - self.total[task] > limit + 1e-6 * abs(load):
            return False  # not even with all of them; the margin is for the rounding of the total
        stack = self.exchangeable[task]
        added: list[int] = []
        while stack and load > limit:
            other = stack.pop()
            self.total[task] -= cost[other]
            if cost[other] < price:
                added.append(other)
                load -= cost[other]
        enough = load <= limit
        for other in reversed(added):
            if not enough or load + cost[other] <= limit:
                load += cost[other]
                stack.append(other)
                self.total[task] += cost[other]
            else:
                self.where[other] = None
                self.load[task] -= cost[other]
                heappush(self.candidates, (-cost[other], self.keys.id[other], other))
        return enough

    def list_exchangeable(self, task: int, price: float) -> None:
        placed = set(self.pops)
        some = [
            key
            for key, at in enumerate(self.where)
            if at == task and 0 < self.keys.cost[key] < price and key not in placed
        ]
        self.exchangeable[task] = in_order(self.keys, self.psi, some)[::-1]
        self.total[task] = sum(self.keys.cost[key] for key in some)


def run(problem: Problem, psi: str, clean: int, gently: bool = False) -> Placement:
    """Run the three phases from the start, with the first `clean` entries sent home."""
    keys, record = expand(problem)
    giants = find_giants(keys)
    where = find_start(keys, giants)
    quota = None
    if giants and keys.max_table is not None:
        away = sum(at not in (None, home) for at, home in zip(where, keys.home, strict=True))
        quota = max(0, keys.max_table - away) // len(giants)
    if clean:
        entries = find_entries(keys, where, giants)
        for key in order_entries(keys, record, where, entries)[0][:clean]:
            where[key] = keys.home[key]

    on_task: list[list[int]] = [[] for _ in keys.tasks()]
    big = {key for key, _ in giants}
    for key, task in enumerate(where):
        if task is not None and key not in big:
            on_task[task].append(key)
    giant_of = {task: key for key, task in giants}
    load, limit = loads(keys, where), limits(keys)
    takes = [task for task in keys.open_tasks() if task not in giant_of]
    dear = max(limit[task] - load[task] for task in takes)
    for task in keys.tasks():
        leave: list[int] = []
        if task in giant_of:
            leave = leave_giant(keys, giant_of[task], on_task[task], quota)
        elif load[task] > limit[task]:
            order = in_order(keys, psi, (key for key in on_task[task] if keys.cost[key] > 0))
            if gently:
                taken = prepare_gently(keys, record, order, load[task], limit[task], dear)
            else:
                taken = prepare(keys, order, load[task], limit[task])
            leave = put_back(keys, taken, load[task], limit[task])
        for key in leave:
            where[key] = None

    assign = Assign(keys, psi, where, set(giant_of))
    assign.run()
    placed = [task for task in where if task is not None]
    return Placement(
        record, placed, loads(keys, placed), giants, assign.stuck, trials=1, pops=assign.pops
    )
