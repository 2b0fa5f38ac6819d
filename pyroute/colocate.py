"""Plans that keep records off the network: which keys of consecutive operators share a server.

>>> from pyroute import PairSpaceSaving
>>> pairs = PairSpaceSaving(100)
>>> pairs.observe(["asia", "asia", "africa", "africa"], ["#java", "#ruby", "#go", "#rust"])
>>> plan = colocate(pairs, 2)
>>> plan.locality, plan.imbalance
(1.0, {'in': 0.0, 'out': 0.0})
>>> in_task, out_task = plan.in_router.route(["asia"]), plan.out_router.route(["#ruby"])
>>> in_task.tolist() == out_task.tolist()
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyroute._colocate_options import Pairs, Server
    from pyroute._colocating import PerKey
    from pyroute.colocation import ColocationPlan
    from pyroute.router import Router


def colocate(
    pairs: Pairs | Mapping[tuple[str, str], Pairs],
    placement: int | Mapping[str, Mapping[int, Server]],
    *,
    routers: Mapping[str, Router] | Sequence[Router] | None = None,
    max_imbalance: float | Mapping[str, float] = 0.03,
    max_table: int | Mapping[str, int | None] | None = None,
    state_sizes: Mapping[str, PerKey] | None = None,
    max_migration: int | None = None,
    background: Mapping[str, Mapping[int, float]] | None = None,
    distances: Mapping[Any, Any] | npt.ArrayLike | None = None,
    seed: int = 0,
    loads: Mapping[str, PerKey] | None = None,
    migration_weight: float = 0.05,
    hysteresis: float = 0.005,
    partitioner: str | Sequence[str] = "native",
    movable: str | Mapping[str, Any] | None = None,
) -> ColocationPlan:
    """Plan which keys of consecutive operators go to one server, so that records stay there.

    A pure function of its arguments: equal input gives an equal plan. A plan made again on
    unchanged statistics, for the routers that the plan before gave, moves nothing.

    Parameters
    ----------
    pairs
        How often an out-key followed an in-key, as `PairSpaceSaving` counts it (the sketch itself,
        or its `top`); or, for a chain or a DAG of operators, `{(in_op, out_op): pairs}`. With one
        kind of pairs the operators are called "in" and "out". Counts are whole: where they decay,
        observe each record with a weight of, say, 1024.
    placement
        Number of servers, with one task of each operator on each; or the server of every task,
        `{op: {task: server}}`.
    routers
        The routing in force, `{op: router}`; for two operators also a pair. Without it every key
        is at its home on a ring with a salt of its operator's own.
    max_imbalance
        How far the load of a task may be above the mean of its operator, as a share of it;
        `{op: share}` for limits that differ.
    max_table
        How many keys of one operator may be away from their home; None: any number. Keys of the
        table that are in no pair stay where they are, or are the first to go home.
    state_sizes
        Bytes that move if a key moves: `{op: {value: bytes}}`; a `Snapshot`, or values and sizes
        as two arrays, will do too. Keys that are not named have none. Without it a key's state is
        taken to be as large as its load.
    max_migration
        Bytes of state that may move, in all operators together; None: any number.
    background
        Load per task that no key of the pairs accounts for: `{op: {task: load}}`. Without it, what
        a sketch saw and does not name is spread as the homes are.
    distances
        How far servers are from one another, 0 (the same) to 1: `{(server, server): distance}`,
        1 where none is given; or where they are, outermost first, as in
        `{server: ("rack 2", "host 7")}`; or a square array in the order of the servers. Without
        it, all others are equally far.
    seed
        For the partition from scratch.
    loads
        Load that each key will bring to its operator, where that is known better than from the
        pairs: in the forms of `state_sizes`.
    migration_weight
        What moving costs: the share of all traffic that has to become local to be worth moving all
        state.
    hysteresis
        What starting from scratch costs beyond that: the share of all traffic by which a new
        partition has to beat the one in force after it was refined.
    partitioner
        Where partitions from scratch come from: "native", "metis" (needs the extra `colocate`),
        both as a sequence, or none as an empty one: then what is there is refined, and nothing
        else.
    movable
        Which keys may move: `{op: values}`, or "untabled" for those that no table names; None: all.
        The others stay where they are, whatever they cost, and there is no partition from scratch.
        This is how keys that nobody had seen when the plan was made join their partners between
        two plans, instead of staying where hashing put them.
    """
    from pyroute._colocating import made

    return made(
        pairs,
        placement,
        routers=routers,
        max_imbalance=max_imbalance,
        max_table=max_table,
        state_sizes=state_sizes,
        max_migration=max_migration,
        background=background,
        distances=distances,
        seed=seed,
        loads=loads,
        migration_weight=migration_weight,
        hysteresis=hysteresis,
        partitioner=partitioner,
        movable=movable,
    )
