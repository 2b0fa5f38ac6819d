"""Planning on key groups where the keys stay at their tasks: little travels.

Each task reports its groups of keys that are alike, the controller plans on the groups and orders
how many keys of which group go where, and each task picks its keys. Only the picked keys are named
to the controller, which makes them a `Plan`: the one that `rebalance(..., degree=...)` would have
made.

>>> from pyroute import Router, Snapshot
>>> router = Router(2)
>>> values, costs = list(range(100)), [1 + value % 3 for value in range(100)]
>>> def of(task):
...     mine = [i for i, to in enumerate(router.route(values)) if to == task]
...     return Snapshot([values[i] for i in mine], [costs[i] for i in mine])
>>> tasks = {task: KeyGroups(of(task), router, task, degree=8) for task in router.tasks}
>>> plan = plan_groups([groups.report for groups in tasks.values()], router, max_imbalance=0.01)
>>> picks = [tasks[orders.task].pick(orders) for orders in plan.orders]
>>> whole = plan.complete(picks)
>>> router.apply(whole).version, whole.feasible
(1, True)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import task_id
from pyroute._kernel import Kernel
from pyroute._rebalancing import _capacities, _degree, _native, _options
from pyroute.key_stats import Snapshot
from pyroute.keys import as_core
from pyroute.plan import Exceptions, Facts, Migrations, Named, Plan, State
from pyroute.rebalance import rebalance
from pyroute.ring import Ring
from pyroute.router import Router


class GroupReport(Kernel):
    """What a task reports: its key groups without the keys."""

    __slots__ = ()
    _native = _core.GroupReport

    @property
    def task(self) -> int:
        """The task that reports."""
        return int(self._core.task)

    def __len__(self) -> int:
        return len(self._core.id)

    def __repr__(self) -> str:
        keys = int(self._core.count.sum())
        return f"GroupReport(task {self.task}, {len(self)} groups of {keys} keys)"


class GroupOrders(Kernel):
    """What a task is ordered: how many keys of which group go where."""

    __slots__ = ()
    _native = _core.GroupOrders

    @property
    def task(self) -> int:
        """The task that is ordered."""
        return int(self._core.task)

    def __len__(self) -> int:
        return len(self._core.group)

    def __repr__(self) -> str:
        return f"GroupOrders(task {self.task}, {int(self._core.count.sum())} keys)"


@dataclass(frozen=True)
class Picked:
    """The keys that a task picked: what it tells the controller."""

    task: int
    values: list[Any]
    targets: npt.NDArray[np.int32]
    costs: npt.NDArray[np.float64]
    state_sizes: npt.NDArray[np.int64]


class KeyGroups:
    """The keys of one task, grouped; they stay here.

    Parameters
    ----------
    snapshot
        Cost and state size of the keys of this task, and of no others.
    router
        The routing in force.
    task
        This task.
    degree
        R of the rounding, a power of two: larger is coarser.
    beta
        As in `rebalance`.
    """

    def __init__(
        self, snapshot: Snapshot, router: Router, task: int, *, degree: int = 8, beta: float = 1.5
    ) -> None:
        task = task_id(task, "task")
        if task not in router.tasks:
            raise ValueError(f"task: expected one of the router, got {task}")
        if router.splits:
            raise ValueError("router: expected one without splits, got some")
        elsewhere = set(snapshot.background) - {task}
        if elsewhere:
            raise ValueError(
                f"snapshot: expected background of task {task} alone, got {min(elsewhere)}"
            )
        self._snapshot = snapshot
        values = snapshot.values
        routed = router.route(values)
        if (routed != task).any():
            other = routed[routed != task][0]
            raise ValueError(f"snapshot: expected keys of task {task} alone, got one of {other}")
        tasks = np.array(router.tasks, np.int32)
        homes = router.home.homes(values)
        n = len(tasks)
        self._groups = _core.group(
            np.ones(n),
            np.zeros(n),
            np.ones(n, np.uint8),
            snapshot.ids,
            snapshot.costs,
            snapshot.state_sizes,
            np.searchsorted(tasks, routed).astype(np.int32),
            np.searchsorted(tasks, homes).astype(np.int32),
            beta,
            _degree(degree),
        )
        costs = snapshot.costs
        self.report = GroupReport._wrap(
            _core.GroupReport(
                task,
                router.version,
                router.fingerprint,
                degree,
                snapshot.background.get(task, 0.0),
                float(costs.sum()),
                float(costs.max()) if len(costs) else 0.0,
                tasks[self._groups["home"]],
                self._groups["cost"],
                self._groups["size"],
                self._groups["count"],
                self._groups["id"],
            )
        )

    def pick(self, orders: GroupOrders) -> Picked:
        """The keys that go: as many of each group as ordered, so that their cost is as expected."""
        core = orders._core
        if orders.task != self.report.task:
            raise ValueError(f"orders: expected those of {self.report.task}, got {orders.task}")
        sizes = self._groups["count"]
        asked = np.zeros(len(sizes), np.int64)
        if len(core.group) and int(core.group.max()) >= len(sizes):
            raise ValueError(f"orders: expected {len(sizes)} groups, got {core.group.max()}")
        np.add.at(asked, core.group, core.count)
        if (asked > sizes).any():
            raise ValueError("orders: expected no more keys than a group has, got more")
        rows, targets = _core.pick(self._groups, core.group, core.count, core.target)
        values = self._snapshot.values
        return Picked(
            orders.task,
            [values[row] for row in rows.tolist()],
            targets,
            self._snapshot.costs[rows],
            self._snapshot.state_sizes[rows],
        )


class GroupPlan:
    """A plan on groups: orders for the tasks, and the plan once their picks are there."""

    def __init__(
        self,
        router: Router,
        reports: Sequence[GroupReport],
        answer: dict[str, Any],
        capacities: npt.NDArray[np.float64],
        is_open: npt.NDArray[np.bool_],
        options: dict[str, Any],
        seconds: float,
    ) -> None:
        self._router = router
        self._reports = reports
        self._answer = answer
        self._capacities = capacities
        self._open = is_open
        self._options = options
        self._seconds = seconds
        self.orders = self._orders()

    def _orders(self) -> list[GroupOrders]:
        tasks = np.array(self._router.tasks, np.int32)
        starts = np.cumsum([0, *(len(report) for report in self._reports)])
        record = self._answer["record"].astype(np.int64)
        targets = tasks[self._answer["target"]]
        out = []
        for report, first, end in zip(self._reports, starts[:-1], starts[1:], strict=True):
            mine = (record >= first) & (record < end) & (targets != report.task)
            out.append(
                GroupOrders._wrap(
                    _core.GroupOrders(
                        report.task,
                        (record[mine] - first).astype(np.uint32),
                        self._answer["count"][mine],
                        targets[mine],
                    )
                )
            )
        return out

    @property
    def estimated_loads(self) -> npt.NDArray[np.float64]:
        """The loads that the groups promise, by task."""
        return self._answer["load"]  # type: ignore[no-any-return]

    def complete(self, picks: Iterable[Picked]) -> Plan:
        """The plan, made from what every task picked."""
        picks = sorted(picks, key=lambda pick: pick.task)
        if [pick.task for pick in picks] != [orders.task for orders in self.orders]:
            raise ValueError("picks: expected one of every task, got others")
        router, tasks = self._router, np.array(self._router.tasks, np.int32)
        for pick, orders in zip(picks, self.orders, strict=True):
            wanted = np.repeat(orders._core.target, orders._core.count)
            if sorted(pick.targets.tolist()) != sorted(wanted.tolist()) or not (
                len(pick.values) == len(pick.targets) == len(pick.costs) == len(pick.state_sizes)
            ):
                raise ValueError(f"picks: expected what task {pick.task} was ordered, got others")
        values = [value for pick in picks for value in pick.values]
        targets = np.concatenate([pick.targets for pick in picks])
        sources = np.repeat(tasks, [len(pick.values) for pick in picks])
        costs = np.concatenate([pick.costs for pick in picks])
        sizes = np.concatenate([pick.state_sizes for pick in picks])
        ids = as_core(values, "picks").ids
        table = dict(zip(router.table, router.table.targets.tolist(), strict=True))
        homes = router.home.homes(values).tolist() if values else []
        for value, target, home in zip(values, targets.tolist(), homes, strict=True):
            table.pop(value, None)
            if target != home:
                table[value] = target
        names = list(table)
        order = np.argsort(as_core(names, "table").ids) if names else np.empty(0, np.int64)
        names = [names[i] for i in order.tolist()]
        before = np.array([r._core.load + r._core.background for r in self._reports])
        after = before.copy()
        np.subtract.at(after, np.searchsorted(tasks, sources), costs)
        np.add.at(after, np.searchsorted(tasks, targets), costs)
        is_open = self._open
        mean = float(before[is_open].sum() / is_open.sum())
        greatest = max(report._core.greatest for report in self._reports)
        old = router.table
        none = Named(np.empty(0, np.uint64), list)
        facts = Facts(
            tasks=tasks,
            open=is_open.astype(np.uint8),
            capacities=self._capacities,
            loads_before=before,
            loads_after=after,
            estimated_loads=self.estimated_loads,
            mean=mean,
            limit=(1 + self._options["max_imbalance"]) * mean,
            lower_bound=max(mean, greatest / float(self._capacities[is_open].max())) * (1 - 1e-12),
            least_migration=0,
            state_total=int(sum((r._core.size * r._core.count).sum() for r in self._reports)),
            trials=self._answer["trials"],
            groups=sum(len(report) for report in self._reports),
            giants=[],
            named=True,
            pinned_moves=0,
            seconds=self._seconds,
            group_seconds=0.0,
            interval=0,
            options=self._options,
        )
        plan = Plan(
            before=State(
                Exceptions(Named(old.ids, lambda: list(old)), old.targets),
                none,
                [],
                None,
                router.version,
                router.fingerprint,
            ),
            after=State(
                Exceptions(
                    Named(as_core(names, "table").ids, lambda: names),
                    np.array([table[name] for name in names], np.int32),
                ),
                none,
                [],
                None,
                router.version + 1,
                None,
            ),
            migrations=Migrations(Named(ids, lambda: values), sources, targets, sizes, costs),
            facts=facts,
            reasons=(),
            router=router,
        )
        if not plan.feasible:
            plan.reasons.append("degree: planned on groups; see rebalance on keys for what binds")
        return plan


def plan_groups(reports: Iterable[GroupReport], router: Router, **options: Any) -> GroupPlan:
    """Plan on the groups that all tasks reported.

    Parameters
    ----------
    reports
        One of every task of the router.
    router
        The routing in force.
    options
        Those of `rebalance`, but for degree (it is in the reports), pins, drained, mergeable and
        readj's sigma.
    """
    known = dict(rebalance.__kwdefaults__ or {})
    for name in ("degree", "pins", "drained", "mergeable", "sigma"):
        del known[name]
    for name in options:
        if name not in known:
            raise TypeError(f"options: expected those of rebalance on groups, got {name}")
    wishes = {**known, **options}
    tasks = np.array(router.tasks, np.int32)
    given = wishes.pop("capacities")
    capacities = _capacities(given, router.home, tasks)
    reports = _checked(reports, router)
    cores = [report._core for report in reports]
    checked = _options(**wishes, degree=cores[0].degree, mergeable=False, sigma=None)
    native = _native(checked)
    is_open = np.ones(len(tasks), bool)
    if isinstance(router.home, Ring):
        named = given if isinstance(given, Mapping) else ()
        for i, (task, weight) in enumerate(router.home.weights.items()):
            is_open[i] = weight > 0 or task in named
    capacities = capacities / capacities[is_open].mean()
    homes = np.concatenate([core.home for core in cores])
    columns = {
        name: np.concatenate([getattr(core, name) for core in cores])
        for name in ("id", "cost", "size", "count")
    }
    current = np.repeat(tasks, [len(report) for report in reports])
    most = native["max_table"]
    if most >= 0:  # keys of the table that no task reported keep their entries
        reported = int(columns["count"][homes != current].sum())
        most = max(0, most - max(0, len(router.table) - reported))
    started = time.perf_counter()
    answer = _core.solve(
        capacities,
        np.array([core.background for core in cores]),
        is_open.astype(np.uint8),
        columns["id"],
        columns["cost"],
        columns["size"],
        np.searchsorted(tasks, current).astype(np.int32),
        np.searchsorted(tasks, homes).astype(np.int32),
        columns["count"],
        native["max_imbalance"],
        native["beta"],
        most,
        native["max_migration"],
        native["algorithm"],
        native["search_moves"],
        0.0,
        native["two_sided"],
    )
    seconds = time.perf_counter() - started
    chosen = checked | {"drained": []}
    return GroupPlan(router, reports, answer, capacities, is_open, chosen, seconds)


def _checked(reports: Iterable[GroupReport], router: Router) -> list[GroupReport]:
    """The reports in the order of their tasks, where they can be planned on together."""
    reports = sorted(reports, key=lambda report: report.task)
    if router.splits:
        raise ValueError("router: expected one without splits, got some")
    if [report.task for report in reports] != list(router.tasks):
        raise ValueError(
            f"reports: expected one of each of {len(router.tasks)} tasks,"
            f" got {[report.task for report in reports]}"
        )
    if len({int(report._core.degree) for report in reports}) > 1:
        raise ValueError("reports: expected one degree, got several")
    keys = state = 0
    cost = 0.0
    for report in reports:
        core = report._core
        if (core.version, core.fingerprint) != (router.version, router.fingerprint):
            raise ValueError(
                f"reports: expected those under version {router.version} and fingerprint"
                f" {router.fingerprint:016x}, got task {report.task} under {core.version} and"
                f" {core.fingerprint:016x}"
            )
        unknown = core.home[~np.isin(core.home, router.tasks)]
        if len(unknown):
            raise ValueError(f"reports: expected homes of the router, got task {unknown[0]}")
        keys += int(core.count.sum())
        state += sum(map(int.__mul__, core.size.tolist(), core.count.tolist()))
        with np.errstate(over="ignore"):
            cost += float((core.cost * core.count).sum()) + core.background
    if keys >= 1 << 31:
        raise ValueError(f"reports: expected fewer than 2^31 keys, got {keys}")
    if state >= 1 << 63:
        raise ValueError("reports: expected a total of state below 2^63, got more")
    if not cost < 1e290:
        raise ValueError(f"reports: expected a finite total of costs, got {cost}")
    return reports
