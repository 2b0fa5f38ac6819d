"""Twin of csrc/plan/refine.hpp: repair, trim, passes and exchanges, by trying every move."""

from collections.abc import Callable, Iterable

from reference.locality import (
    Problem,
    excesses,
    loads,
    migration,
    overload,
    stakes,
    tabled,
    traffic,
    worth,
)

PATIENCE, HEAVIEST, ROUNDS, REPAIRS, PASSES = 128, 64, 20, 256, 16


def moved(where: list[int], vertex: int, to: int) -> list[int]:
    return [*where[:vertex], to, *where[vertex + 1 :]]


class Refinement:
    """An arrangement under change."""

    def __init__(self, problem: Problem, where: list[int]) -> None:
        self.problem, self.where = problem, list(where)

    # what a move does ----------------------------------------------------------------------------

    def gain(self, v: int, t: int) -> int:
        there = moved(self.where, v, t)
        return worth(self.problem, there) - worth(self.problem, self.where)

    def pull(self, v: int, t: int) -> int:
        """The gain without overload."""
        there = moved(self.where, v, t)
        near = traffic(self.problem, there) - traffic(self.problem, self.where)
        return near - stakes(self.problem, there) + stakes(self.problem, self.where)

    def has_room(self, v: int, t: int) -> bool:
        after = loads(self.problem, moved(self.where, v, t))
        return all(after[o][t] <= self.problem.limit[o][t] for o in self.problem.member[v])

    def bounds_allow(self, where: list[int]) -> bool:
        """Whether table and migration are within their bounds, or no greater than now."""
        p = self.problem
        if any(where[v] != self.where[v] for v in p.fixed):
            return False
        moves, now = migration(p, where), migration(p, self.where)
        if p.max_migration is not None and moves > now and moves > p.max_migration:
            return False
        return self.table_allows(where)

    def table_allows(self, where: list[int]) -> bool:
        p = self.problem
        return not any(
            bound is not None and after > before and after > bound
            for bound, before, after in zip(
                p.max_table, tabled(p, self.where), tabled(p, where), strict=True
            )
        )

    def near(self, v: int, t: int) -> bool:
        """Whether v shares traffic with server t, or is on it now."""
        p = self.problem
        return t == p.current[v] or any(
            p.near[t][self.where[a if b == v else b]] > 0 for a, b in p.edges if v in (a, b)
        )

    def takes_over(self, v: int, t: int) -> bool:
        """Whether t may have v without room, because the overload does not grow."""
        p = self.problem
        there = overload(p, moved(self.where, v, t))
        closed = any(p.limit[o][t] < 0 for o in p.member[v])
        return self.over(v) > 0 and not closed and there <= overload(p, self.where)

    def best(
        self, v: int, *, anywhere: bool = False, strict: bool = False
    ) -> tuple[int, int] | None:
        """The allowed move of the greatest gain: (gain, server)."""
        anywhere = anywhere or self.over(v) > 0
        allowed = [
            (self.gain(v, t), -t)
            for t in range(self.problem.servers)
            if t != self.where[v]
            and (anywhere or self.near(v, t))
            and (self.has_room(v, t) or (not strict and self.takes_over(v, t)))
            and self.bounds_allow(moved(self.where, v, t))
        ]
        if not allowed:
            return None
        gain, t = max(allowed)
        return gain, -t

    def over(self, v: int) -> int:
        """What v brings to operators that are over their limit where it is."""
        above = excesses(self.problem, self.where)
        row = self.problem.load[v]
        return sum(row[o] for o in range(len(row)) if above[o][self.where[v]] > 0)

    # repair --------------------------------------------------------------------------------------

    def repair(self) -> None:
        for _ in range(ROUNDS):
            if not overload(self.problem, self.where) or not self.shed():
                break
        for _ in range(REPAIRS):
            if not overload(self.problem, self.where) or not self.shuffle():
                break

    def shed(self) -> int:
        def rank(v: int) -> float | None:
            move = self.best(v, strict=True)
            return None if move is None else self.pull(v, move[1]) / self.over(v)

        made = 0
        queue = Queue(rank, (v for v in self.problem.vertices if self.over(v) > 0))
        while queue:
            v = queue.pop(lambda v: self.over(v) > 0)
            if v is not None:
                move = self.best(v, strict=True)
                assert move is not None
                self.where[v] = move[1]
                made += 1
        return made

    def shuffle(self) -> bool:
        p = self.problem
        above = excesses(p, self.where)
        greatest = max(map(max, above))
        o, s = next(
            (o, s) for o in range(p.operators) for s in range(p.servers) if above[o][s] == greatest
        )
        changes = []
        for t in range(p.servers):
            if t == s or p.limit[o][t] < 0:
                continue
            for v in self.heaviest(o, s):
                for u in [None, *self.heaviest(o, t)]:
                    there = moved(self.where, v, t)
                    if u is not None:
                        there[u] = s
                    after = excesses(p, there)
                    less = sum(above[o]) - sum(after[o])
                    if less > 0 and self.bounds_allow(there):
                        pull = self.pull(v, t) + (0 if u is None else self.pull(u, s))
                        changes.append((-less, -pull, u is not None, v, u or 0, t, there))
        if changes:
            self.where = min(changes)[-1]
        return bool(changes)

    def heaviest(self, o: int, at: int) -> list[int]:
        p = self.problem
        keys = [
            v for v in p.vertices if p.member[v] == {o} and self.where[v] == at and p.load[v][o] > 0
        ]
        return sorted(keys, key=lambda v: (-p.load[v][o], v))[:HEAVIEST]

    # trim ----------------------------------------------------------------------------------------

    def trim(self) -> None:
        p = self.problem
        for o in range(p.operators):
            most = p.max_table[o]
            if most is not None:
                self.send(
                    p.home,
                    lambda v, o=o: o in p.member[v],
                    lambda v: 1,
                    lambda o=o, most=most: tabled(p, self.where)[o] <= most,
                )
        if p.max_migration is not None:
            self.send(
                p.origin,
                lambda v: p.size[v] > 0 and self.table_allows(moved(self.where, v, p.origin[v])),
                lambda v: p.size[v],
                lambda: migration(p, self.where) <= p.max_migration,
            )

    def send(
        self,
        targets: list[int],
        concerned: Callable[[int], bool],
        unit: Callable[[int], int],
        enough: Callable[[], bool],
    ) -> None:
        p = self.problem

        def out(v: int) -> bool:
            return v not in p.fixed and concerned(v) and self.where[v] != targets[v]

        def rank(v: int) -> float:
            return self.gain(v, targets[v]) / unit(v)

        queue = Queue(rank, (v for v in self.problem.vertices if out(v)))
        while queue and not enough():
            v = queue.pop(out)
            if v is not None:
                self.where[v] = targets[v]

    # passes and exchanges ------------------------------------------------------------------------

    def one_pass(self) -> int:
        def rank(v: int) -> int | None:
            move = self.best(v)
            return None if move is None else move[0]

        queue = Queue(rank, self.problem.vertices)
        start, done, made = list(self.where), set[int](), list[list[int]]()
        total = greatest = kept = 0
        while queue and len(made) - kept < PATIENCE:
            v = queue.pop(lambda _: True)
            if v is None:
                continue
            move = self.best(v)
            assert move is not None
            self.where[v] = move[1]
            made.append(list(self.where))
            done.add(v)
            total += move[0]
            if total > greatest:
                greatest, kept = total, len(made)
            for u in self.problem.neighbours(v):
                if u not in done:
                    queue.push(u)
        self.where = made[kept - 1] if kept else start
        return greatest

    def exchange(self) -> int:
        p, before = self.problem, worth(self.problem, self.where)
        done: set[int] = set()
        loose: dict[tuple[int, int], Queue] = {}
        for _, v, t in sorted(self.wishes()):
            allowed = self.bounds_allow(moved(self.where, v, t))
            if v in done or self.pull(v, t) <= 0 or not allowed:
                continue
            [o] = p.member[v]
            if (o, t) not in loose:
                loose[o, t] = self.loosest(o, t)
            self.displace(v, t, loose[o, t], done)
        return worth(p, self.where) - before

    def wishes(self) -> Iterable[tuple[int, int, int]]:
        for v in self.problem.vertices:
            if len(self.problem.member[v]) != 1:
                continue
            pulls = [
                (-self.pull(v, t), v, t)
                for t in range(self.problem.servers)
                if t != self.where[v] and self.bounds_allow(moved(self.where, v, t))
            ]
            if pulls and min(pulls)[0] < 0 and not self.has_room(v, min(pulls)[2]):
                yield min(pulls)

    def loosest(self, o: int, at: int) -> "Queue":
        p = self.problem

        def rank(v: int) -> float | None:
            move = self.best(v, anywhere=True, strict=True)
            return None if move is None else self.pull(v, move[1]) / p.load[v][o]

        queue = Queue(rank, ())
        for v in p.vertices:
            if self.where[v] == at and p.member[v] == {o} and p.load[v][o] > 0:
                pulls = [
                    self.pull(v, t)
                    for t in range(p.servers)
                    if t != at and self.bounds_allow(moved(self.where, v, t))
                ]
                if pulls:
                    queue.ranks[v] = max(pulls) / p.load[v][o]
        return queue

    def displace(self, v: int, t: int, loose: "Queue", done: set[int]) -> None:
        p = self.problem
        [o] = p.member[v]
        start, before = list(self.where), worth(p, self.where)
        out: dict[int, float] = {}
        aside: dict[int, float] = {}
        self.where[v] = t
        while (
            loads(p, self.where)[o][t] > p.limit[o][t]
            and max(len(out), len(aside)) < HEAVIEST
            and loose
        ):
            u, was = loose.first()
            if (
                self.best(u, anywhere=True, strict=True) is None
                and u not in done
                and self.where[u] == t
                and u != v
            ):
                aside[u] = loose.ranks.pop(u)
            elif loose.pop(lambda u: u not in done and self.where[u] == t and u != v) == u:
                out[u] = was
                move = self.best(u, anywhere=True, strict=True)
                assert move is not None
                self.where[u] = move[1]
        loose.ranks |= aside
        if loads(p, self.where)[o][t] <= p.limit[o][t] and worth(p, self.where) > before:
            done |= {v, *out}
            return
        self.where = start
        loose.ranks |= out


class Queue:
    """Vertices by what they were worth when they were queued, the greatest first."""

    def __init__(self, rank: Callable[[int], float | None], vertices: Iterable[int]) -> None:
        self.rank = rank
        self.ranks: dict[int, float] = {}
        for v in vertices:
            self.push(v)

    def __bool__(self) -> bool:
        return bool(self.ranks)

    def push(self, v: int) -> None:
        """Queue a vertex anew, or drop it where it has no move."""
        self.ranks.pop(v, None)
        rank = self.rank(v)
        if rank is not None:
            self.ranks[v] = rank

    def first(self) -> tuple[int, float]:
        v = max(self.ranks, key=lambda v: (self.ranks[v], -v))
        return v, self.ranks[v]

    def pop(self, still: Callable[[int], bool]) -> int | None:
        """Take the first; None where it is dropped, or queued again with another rank."""
        v, was = self.first()
        del self.ranks[v]
        if not still(v):
            return None
        self.push(v)
        return v if self.ranks.get(v) == was and self.ranks.pop(v) == was else None


def refine(
    problem: Problem,
    where: list[int],
    *,
    repair: bool = True,
    trim: bool = True,
    exchange: bool = True,
    passes: int = PASSES,
) -> list[int]:
    out = Refinement(problem, where)
    if problem.servers < 2 or not problem.member:
        return out.where
    if repair:
        out.repair()
    if trim:
        out.trim()
    for _ in range(passes):
        gained = out.one_pass()
        if exchange:
            gained += out.exchange()
        if gained <= 0:
            break
    return out.where
