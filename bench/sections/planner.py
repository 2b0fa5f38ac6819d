"""How long does a plan take, beside std::sort, the plain Python twin, and planning on groups?"""

import ctypes
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

import pyroute as pr
from bench.cpp.build import shared_library
from bench.peers import Scale
from bench.report import Goal, Section, at_least, at_most
from bench.timing import Ratio, Timing, contender, cpu_seconds, interleave
from pyroute import _core, workloads

TASKS, MAX_IMBALANCE, MAX_TABLE = 40, 0.08, 3000
SIZES = (5_000, 10_000, 100_000, 1_000_000)


def run(scale: Scale) -> Section:
    section = Section("Planning", __doc__ or "")
    section.say(
        f"Zipf 0.85 (the generator of the paper), {TASKS} tasks, max_imbalance {MAX_IMBALANCE},"
        f" table of {MAX_TABLE:,}, algorithm mixed. From arrays to a Plan: keys hashed, checked for"
        " doubles, homes, plan, certificate. The twin is plain Python (tests/reference), and gets"
        " homes and lists for nothing. ms of CPU time: least (spread)."
    )
    cases = [Case(keys, scale.seed) for keys in SIZES[: scale.pick(4, 3)]]
    against_sort(section, cases[-1], scale)
    against_twin(section, cases, scale)
    on_groups(section, cases, scale)
    return section


class Case:
    """One interval of a workload, under the router that the interval before left."""

    def __init__(self, keys: int, seed: int) -> None:
        ring = pr.Ring(TASKS)
        self.values = np.arange(keys)
        first, second = workloads.fluctuating_zipf(
            keys, homes=ring.homes(self.values), fluctuation=0.5, intervals=2, seed=seed
        )
        fresh = pr.Router(ring)
        self.routers = {
            "first plan": fresh,
            "later plan": fresh.apply(self.plan(fresh, first)),
        }
        self.costs = second.astype(np.float64)
        self.sizes = (first + second).astype(np.int64)

    @staticmethod
    def plan_of(values: Any, costs: Any, sizes: Any, router: pr.Router) -> pr.Plan:
        snapshot = pr.Snapshot(values, costs, sizes)
        return pr.rebalance(snapshot, router, max_imbalance=MAX_IMBALANCE, max_table=MAX_TABLE)

    def plan(self, router: pr.Router, counts: Any = None) -> pr.Plan:
        if counts is None:
            return self.plan_of(self.values, self.costs, self.sizes, router)
        return self.plan_of(self.values, counts.astype(np.float64), counts, router)

    def columns(self, router: pr.Router) -> dict[str, Any]:
        """What `_core.solve` takes."""
        return {
            "capacity": np.ones(TASKS),
            "base": np.zeros(TASKS),
            "open": np.ones(TASKS, np.uint8),
            "id": pr.keys(self.values).ids,
            "cost": self.costs,
            "size": self.sizes,
            "current": router.route(self.values),
            "home": router.home.homes(self.values),
        }


def against_sort(section: Section, case: Case, scale: Scale) -> None:
    library = ctypes.CDLL(str(shared_library("sort.cpp")))
    library.sort_pairs.restype = ctypes.c_double
    costs = case.costs.ctypes.data_as(ctypes.c_void_p)
    n = len(case.values)
    contenders = [
        contender(f"pyroute, {name}", 1, lambda router=router: case.plan(router))
        for name, router in case.routers.items()
    ]
    contenders += [
        contender("std::sort of (cost, index)", 1, lambda: library.sort_pairs(costs, n)),
        contender("numpy argsort of the costs", 1, lambda: np.argsort(case.costs)),
    ]
    timings = interleave(contenders, scale.repetitions)
    sort = timings["std::sort of (cost, index)"]
    table = section.table(f"{n:,} keys", "ms", "to std::sort")
    ratios = []
    for name, timing in timings.items():
        table.add(name, in_ms(timing), Ratio(timing, sort))
        if name.startswith("pyroute"):
            ratios.append((name.removeprefix("pyroute, "), Ratio(timing, sort)))
    section.goals.append(at_most(f"planning: {n:,} keys, to std::sort", 4, ratios))


def against_twin(section: Section, cases: list[Case], scale: Scale) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    planner: Any = importlib.import_module("reference.planner")
    llfd: Any = importlib.import_module("reference.llfd")
    table = section.table("keys", "plan", "pyroute, ms", "twin, ms", "ratio")
    ratios = []
    for case in cases:
        for name, router in case.routers.items():
            lists = {key: column.tolist() for key, column in case.columns(router).items()}
            problem = llfd.Problem(
                **lists, count=[], max_imbalance=MAX_IMBALANCE, max_table=MAX_TABLE
            )
            times = 1 if len(case.values) > 10_000 else 3
            slow = Timing(
                "twin",
                [
                    cpu_seconds(lambda p=problem: planner.plan(p, "mixed")) * 1e9
                    for _ in range(times)
                ],
            )
            ours = contender("pyroute", 1, lambda case=case, router=router: case.plan(router))
            fast = interleave([ours], max(times, scale.repetitions))["pyroute"]
            ratio = Ratio(slow, Timing("pyroute", [fast.best] * times))
            table.add(f"{len(case.values):,}", name, in_ms(fast), in_ms(slow), ratio)
            ratios.append((f"{len(case.values):,} keys, {name}", ratio))
    section.goals.append(at_least("planning: against the plain Python twin", 20, ratios))


def on_groups(section: Section, cases: list[Case], scale: Scale) -> None:
    table = section.table(
        "keys", "degree", "groups", "on keys, ms", "on groups, ms", "ratio", "making groups, ms"
    )
    options = (np.empty(0, np.uint32), MAX_IMBALANCE, 1.5, MAX_TABLE, -1, "mixed", 0, 0.0)
    ratios = []
    for case in cases:
        columns = case.columns(case.routers["later plan"])
        for degree in (1, 8, 256):
            groups = _core.group(**columns, beta=1.5, degree=degree)
            tasks = [columns[name] for name in ("capacity", "base", "open")]
            grouped = [groups[name] for name in ("id", "cost", "size", "current", "home", "count")]
            contenders = [
                contender("keys", 1, lambda c=columns: _core.solve(*c.values(), *options)),
                contender(
                    "groups", 1, lambda t=tasks, g=grouped: _core.solve(*t, *g, *options[1:])
                ),
                contender(
                    "making",
                    1,
                    lambda c=columns, d=degree: _core.group(**c, beta=1.5, degree=d),
                ),
            ]
            timings = interleave(contenders, scale.repetitions)
            ratio = Ratio(timings["groups"], timings["keys"])
            n = f"{len(case.values):,}"
            table.add(
                n,
                degree,
                len(groups["id"]),
                in_ms(timings["keys"]),
                in_ms(timings["groups"]),
                ratio,
                in_ms(timings["making"]),
            )
            ratios.append((f"{n} keys, degree {degree}", ratio))
    section.goals.append(at_most("planning: from given groups, to planning on keys", 1, ratios))
    section.goals.append(bytes_goal(section, cases[-1]))


def bytes_goal(section: Section, case: Case) -> Goal:
    """What travels in an interval: all statistics, or groups and orders."""
    router = case.routers["later plan"]
    routed = router.route(case.values)
    full = groups = 0
    reports = []
    for task in router.tasks:
        mine = routed == task
        snapshot = pr.Snapshot(case.values[mine], case.costs[mine], case.sizes[mine])
        full += len(snapshot.to_bytes())
        reports.append(pr.KeyGroups(snapshot, router, task, degree=8).report)
        groups += len(reports[-1].to_bytes())
    plan = pr.plan_groups(reports, router, max_imbalance=MAX_IMBALANCE, max_table=MAX_TABLE)
    orders = sum(len(each.to_bytes()) for each in plan.orders)
    moved = sum(int(each._core.count.sum()) for each in plan.orders)
    picked = 28 * moved  # id, target, cost, state size
    table = section.table("bytes per interval", "full", "groups", "orders", "picked keys", "share")
    share = (groups + orders + picked) / full
    table.add(f"{len(case.values):,} keys, degree 8", full, groups, orders, picked, f"{share:.2%}")
    return Goal("planning: bytes of the distributed form", "below full", f"{share:.2%}", share < 1)


def in_ms(timing: Timing) -> Timing:
    return Timing(timing.name, [each * 1e-6 for each in timing.each])
