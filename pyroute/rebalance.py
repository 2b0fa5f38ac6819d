"""Plans that balance: which few keys must leave their home so that no task is overloaded.

>>> from pyroute import Router, Snapshot
>>> snapshot = Snapshot(["anna", "bert", "carl"], costs=[90, 6, 4])
>>> plan = rebalance(snapshot, Router(2))
>>> plan.feasible, plan.loads_after.tolist()
(False, [10.0, 90.0])
>>> print(plan.reasons[0].partition(";")[0])
key 'anna' costs 90, more than the 54 that a task may carry: it has task 1 to itself
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute.key_stats import Snapshot
    from pyroute.plan import Plan
    from pyroute.ring import Tasks
    from pyroute.router import Router


def rebalance(
    snapshot: Snapshot,
    router: Router,
    *,
    max_imbalance: float = 0.08,
    max_table: int | None = 3000,
    algorithm: str = "mixed",
    beta: float = 1.5,
    degree: int | None = None,
    capacities: Mapping[int, float] | Sequence[float] | None = None,
    pins: Mapping[Any, int] | None = None,
    drained: Iterable[int] = (),
    max_migration: int | None = None,
    mergeable: bool = False,
    search_moves: int = 0,
    sigma: float | None = None,
    two_sided: bool = False,
) -> Plan:
    """Plan which keys go where so that no task carries more than its share, moving little state.

    A pure function of its arguments: equal input gives an equal plan.

    Parameters
    ----------
    snapshot
        Cost and state size of every key, as `KeyStats.close_interval` gives it.
    router
        The routing in force.
    max_imbalance
        How far the load of a task may be above the mean, as a share of it.
    max_table
        How many keys may be away from their home; None: any number.
    algorithm
        "mixed", or another of its family: "mixed_bf" (tries every number of table entries to
        clean), "min_table", "min_mig", "llfd", "simple" (longest processing time first, on all
        keys), "readj" (pairwise exchanges).
    beta
        Weight of cost against state size in the choice of keys to move, above 0.
    degree
        Plan on groups of keys that are alike, rounded to this degree (a power of two), instead of
        on keys.
    capacities
        Relative speed of tasks: `{task: capacity}` (others 1), or one for each task, ascending.
        Without them the weights of the ring. A task of weight 0 takes nothing, unless it is named
        here.
    pins
        Keys that must be on a task: `{value: task}`.
    drained
        Tasks that are to have no keys. A ring gives their identifiers to the others.
    max_migration
        Bytes of state that may move; None: any number.
    mergeable
        Whether the work of one key may be split over tasks and merged: a key heavier than a task
        then gets just enough of them.
    search_moves
        Budget, in moves, of the local search that lowers the greatest load further.
    sigma
        For "readj": least cost of the keys that take part, as a share of the mean load; None: the
        best found.
    two_sided
        Whether `max_imbalance` bounds how far a load may be below the mean, too.
    """
    from pyroute._rebalancing import made

    return made(
        snapshot,
        router,
        None,
        max_imbalance=max_imbalance,
        max_table=max_table,
        algorithm=algorithm,
        beta=beta,
        degree=degree,
        capacities=capacities,
        pins=pins,
        drained=drained,
        max_migration=max_migration,
        mergeable=mergeable,
        search_moves=search_moves,
        sigma=sigma,
        two_sided=two_sided,
    )


def elastic(router: Router, snapshot: Snapshot, tasks: Tasks, **options: Any) -> Plan:
    """Plan for other tasks: some added, some removed, others weighted anew, in one optimiser.

    The ring changes as little as it can (`Ring.with_tasks`); a key stays where it is as long as
    balance and the bound on the table allow it, even where its home is another task now.

    Parameters
    ----------
    router
        The routing in force, over a `Ring`.
    snapshot
        Cost and state size of every key.
    tasks
        How many tasks, their ids, or `{id: weight}`, as in `Ring`.
    options
        Those of `rebalance`.
    """
    known = rebalance.__kwdefaults__ or {}
    for name in options:
        if name not in known:
            raise TypeError(f"options: expected those of rebalance, got {name}")
    from pyroute._rebalancing import made_elastic

    return made_elastic(snapshot, router, tasks, **{**known, **options})
