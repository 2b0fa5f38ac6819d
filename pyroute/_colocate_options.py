"""What `colocate` is asked: each argument checked, in one form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import count, integers, numbers, real, task_id, word
from pyroute.key_stats import Snapshot
from pyroute.keys import Keys, keys
from pyroute.ring import Ring
from pyroute.router import Router
from pyroute.space_saving import PairSpaceSaving, TopPairs

Pairs = TopPairs | PairSpaceSaving
Server = int | str

_PARTITIONERS = ("native", "metis")
UNTABLED = "untabled"


def read_options(
    max_imbalance: Any,
    max_table: Any,
    max_migration: Any,
    migration_weight: Any,
    hysteresis: Any,
    seed: Any,
) -> dict[str, Any]:
    """What applies to the whole plan."""
    return {
        "max_imbalance": _each(max_imbalance, lambda x: _share(x, "max_imbalance", 1e9)),
        "max_table": _each(max_table, lambda x: None if x is None else count(x, "max_table")),
        "max_migration": None if max_migration is None else count(max_migration, "max_migration"),
        "migration_weight": _share(migration_weight, "migration_weight", 1e6),
        "hysteresis": _share(hysteresis, "hysteresis", 1.0),
        "seed": word(seed, "seed"),
    }


def _each(value: Any, check: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {name: check(each) for name, each in value.items()}
    return check(value)


def _share(value: Any, name: str, most: float) -> float:
    share = real(value, name)
    if not 0 <= share <= most:
        raise ValueError(f"{name}: expected a number from 0 to {most:g}, got {share}")
    return share


def of_operator(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The options that may differ between operators, for one of them."""
    out = {}
    for option, default in (("max_imbalance", 0.03), ("max_table", None)):
        value = options[option]
        out[option] = value.get(name, default) if isinstance(value, Mapping) else value
    return out


def read_partitioners(partitioner: Any) -> list[str]:
    """Names of partitioners, each once."""
    names = [partitioner] if isinstance(partitioner, str) else partitioner
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"partitioner: expected names, got {type(partitioner).__name__}")
    for name in names:
        if name not in _PARTITIONERS:
            raise ValueError(f"partitioner: expected {' or '.join(_PARTITIONERS)}, got {name}")
    return sorted(set(names))


def read_relations(pairs: Any) -> dict[tuple[str, str], Pairs]:
    """The pairs by (in operator, out operator)."""
    if isinstance(pairs, TopPairs | PairSpaceSaving):
        pairs = {("in", "out"): pairs}
    if not isinstance(pairs, Mapping):
        raise TypeError(
            "pairs: expected TopPairs, a PairSpaceSaving or a mapping of (in, out) to them, got"
            f" {type(pairs).__name__}"
        )
    for relation, found in pairs.items():
        if not (
            isinstance(relation, tuple)
            and len(relation) == 2
            and all(isinstance(name, str) for name in relation)
        ):
            raise TypeError(f"pairs: expected keys (in operator, out operator), got {relation!r}")
        if relation[0] == relation[1]:
            raise ValueError(f"pairs: expected two operators, got {relation[0]!r} twice")
        if not isinstance(found, TopPairs | PairSpaceSaving):
            raise TypeError(
                f"pairs: expected TopPairs or a PairSpaceSaving for {relation}, got"
                f" {type(found).__name__}"
            )
    if not sum(map(_number, pairs.values())):
        raise ValueError("pairs: expected at least one pair, got none")
    return dict(pairs)


def _number(found: Pairs) -> int:
    return len(found) if isinstance(found, PairSpaceSaving) else len(found.counts)


def in_order(relations: Mapping[tuple[str, str], Pairs]) -> list[str]:
    """The operators, each after those that lead to it; else in the order in which they come."""
    names = list(dict.fromkeys(name for relation in relations for name in relation))
    order: list[str] = []
    while len(order) < len(names):
        for name in names:
            if name not in order and all(start in order for start, end in relations if end == name):
                order.append(name)
                break
        else:
            rest = [name for name in names if name not in order]
            raise ValueError(f"pairs: expected no cycle of operators, got one through {rest[0]!r}")
    return order


def read_placement(
    placement: Any, operators: Sequence[str]
) -> tuple[dict[str, dict[int, int]], list[Server]]:
    """For each operator the position of each task's server; and the servers."""
    if not isinstance(placement, Mapping):
        n = count(placement, "placement", 1 << 16)
        if n < 2:
            raise ValueError(f"placement: expected at least 2 servers, got {n}")
        placement = {name: {task: task for task in range(n)} for name in operators}
    expect_operators(placement, operators, "placement", all_of_them=True)
    found: set[Server] = set()
    for name, tasks in placement.items():
        if not isinstance(tasks, Mapping) or not tasks:
            raise TypeError(f"placement: expected tasks with their servers for {name!r}, got none")
        for task, server in tasks.items():
            task_id(task, "placement")
            if isinstance(server, bool) or not isinstance(server, int | str):
                raise TypeError(
                    f"placement: expected ints or texts as servers, got {type(server).__name__}"
                )
            found.add(server)
    servers = sorted(found, key=lambda server: (isinstance(server, str), server))
    if len(servers) < 2:
        raise ValueError(f"placement: expected at least 2 servers, got {len(servers)}")
    position = {server: i for i, server in enumerate(servers)}
    return {
        name: {int(task): position[server] for task, server in sorted(placement[name].items())}
        for name in operators
    }, servers


def expect_operators(
    given: Any, operators: Sequence[str], name: str, *, all_of_them: bool = False
) -> None:
    """Refuse operators that the pairs do not name."""
    if not isinstance(given, Mapping):
        return
    for operator in given:
        if operator not in operators:
            raise ValueError(f"{name}: expected operators of the pairs, got {operator!r}")
    for operator in operators if all_of_them else ():
        if operator not in given:
            raise ValueError(f"{name}: expected all operators, got none for {operator!r}")


def read_routers(
    routers: Any, operators: Sequence[str], tasks: Mapping[str, Mapping[int, int]]
) -> dict[str, Router]:
    """The router of each operator."""
    if routers is None:
        # A salt of its own for each operator: the same key then has independent homes (C18), and
        # many arcs, so that the two circles do not agree by chance.
        salts = keys(list(operators)).ids.tolist()
        return {
            name: Router(
                Ring(sorted(tasks[name]), replicas=max(128, 8192 // len(tasks[name])), salt=salt)
            )
            for name, salt in zip(operators, salts, strict=True)
        }
    if isinstance(routers, Sequence) and len(operators) == 2:
        if len(routers) != 2:
            raise ValueError(f"routers: expected one for each operator, got {len(routers)}")
        routers = dict(zip(operators, routers, strict=True))
    if not isinstance(routers, Mapping):
        raise TypeError(f"routers: expected {{op: router}}, got {type(routers).__name__}")
    expect_operators(routers, operators, "routers", all_of_them=True)
    for name in operators:
        router = routers[name]
        if not isinstance(router, Router):
            raise TypeError(f"routers: expected Routers, got {type(router).__name__}")
        if set(router.tasks) != set(tasks[name]):
            odd = min(set(router.tasks) ^ set(tasks[name]))
            raise ValueError(
                f"placement: expected the server of every task of {name!r} and of no other, got"
                f" {'one' if odd in tasks[name] else 'none'} for task {odd}"
            )
    return {name: routers[name] for name in operators}


def read_movable(movable: Any, operators: Sequence[str]) -> dict[str, Keys] | str | None:
    """Which keys may move: None, a word, or keys of each operator that is named."""
    if movable is None:
        return None
    if isinstance(movable, str):
        if movable != UNTABLED:
            raise ValueError(f"movable: expected {UNTABLED!r}, keys or None, got {movable!r}")
        return movable
    if not isinstance(movable, Mapping):
        raise TypeError(f"movable: expected {{op: values}}, got {type(movable).__name__}")
    expect_operators(movable, operators, "movable")
    return {
        name: found if isinstance(found, Keys) else keys(found) for name, found in movable.items()
    }


@dataclass
class Given:
    """What was said of keys and tasks, by operator."""

    sizes: dict[str, tuple[Keys, Any]] | None
    loads: dict[str, tuple[Keys, Any]] | None
    background: dict[str, dict[int, float]] | None
    movable: dict[str, Keys] | str | None


def read_per_key(given: Any, operators: Sequence[str], name: str) -> Any:
    """For each operator keys, and a number for each."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}: expected {{op: ...}}, got {type(given).__name__}")
    expect_operators(given, operators, name)
    return {operator: _columns(found, name) for operator, found in given.items()}


def _columns(found: Any, name: str) -> tuple[Keys, Any]:
    """Keys, and a number for each."""
    if isinstance(found, Snapshot):
        column: Any = found.state_sizes if name == "state_sizes" else found.costs
        return Keys.from_ids(found.ids), column
    if isinstance(found, Mapping):
        found = list(found), list(found.values())
    if not isinstance(found, tuple) or len(found) != 2:
        raise TypeError(
            f"{name}: expected a mapping, a Snapshot, or values and numbers as a pair, got"
            f" {type(found).__name__}"
        )
    numbers_of = integers(found[1], name) if name == "state_sizes" else numbers(found[1], name)
    named = found[0] if isinstance(found[0], Keys) else keys(found[0])
    if len(named) != len(numbers_of):
        raise ValueError(f"{name}: expected {len(named)} numbers, got {len(numbers_of)}")
    if len(numbers_of) and not (numbers_of.min() >= 0 and np.isfinite(numbers_of).all()):
        raise ValueError(f"{name}: expected finite numbers, none below 0, got others")
    if float(numbers_of.sum(dtype=np.float64)) >= 2.0**60:
        raise ValueError(f"{name}: expected a sum below 2^60, got more")
    return named, numbers_of


def read_background(
    given: Any, tasks: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, float]] | None:
    """Load per task that no key accounts for."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise TypeError(f"background: expected {{op: {{task: load}}}}, got {type(given).__name__}")
    expect_operators(given, list(tasks), "background")
    for name, known in tasks.items():
        for task, load in given.get(name, {}).items():
            if task not in known:
                raise ValueError(f"background: expected tasks of {name!r}, got {task!r}")
            if not 0 <= real(load, "background") < 2.0**60:
                raise ValueError(f"background: expected finite loads, none below 0, got {load}")
    return {name: {int(t): float(x) for t, x in tasks.items()} for name, tasks in given.items()}


def read_nearness(distances: Any, servers: Sequence[Server]) -> npt.NDArray[np.int64]:
    """How near servers are: `_core.NEAR` where they are the same, 0 where they are far."""
    n = len(servers)
    matrix = 1.0 - np.eye(n)
    if isinstance(distances, Mapping):
        matrix = _distance_matrix(distances, servers)
    elif distances is not None:
        try:
            matrix = np.array(distances, np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"distances: expected a square of numbers, got {error}") from error
        if matrix.shape != (n, n):
            raise ValueError(f"distances: expected {n} by {n}, got {matrix.shape}")
    if not ((matrix >= 0) & (matrix <= 1)).all() or np.diag(matrix).any():
        raise ValueError("distances: expected 0 to 1, and 0 to itself, got others")
    if not (matrix == matrix.T).all():
        raise ValueError("distances: expected the same there and back, got others")
    return np.rint(_core.NEAR * (1 - matrix)).astype(np.int64)


def _distance_matrix(
    distances: Mapping[Any, Any], servers: Sequence[Server]
) -> npt.NDArray[np.float64]:
    position = {server: i for i, server in enumerate(servers)}
    matrix = 1.0 - np.eye(len(servers))
    places: dict[int, tuple[Any, ...]] = {}
    for found, value in distances.items():
        pair = found if isinstance(found, tuple) and len(found) == 2 else None
        for server in pair or (found,):
            if server not in position:
                raise ValueError(f"distances: expected servers of the placement, got {server!r}")
        if pair is not None:
            a, b = (position[server] for server in pair)
            matrix[a, b] = matrix[b, a] = real(value, "distances")
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            places[position[found]] = tuple(value)
        else:
            raise TypeError(
                "distances: expected {(server, server): distance} or {server: (rack, host)}, got"
                f" {type(value).__name__} for {found!r}"
            )
    levels = {len(place) for place in places.values()}
    if len(levels) > 1:
        raise ValueError(f"distances: expected places of one depth, got {sorted(levels)}")
    for a, here in places.items():
        for b, there in places.items():
            if a != b:
                same = next(
                    (i for i, (x, y) in enumerate(zip(here, there, strict=True)) if x != y),
                    len(here),
                )
                matrix[a, b] = 1 - same / (len(here) + 1)
    return matrix
