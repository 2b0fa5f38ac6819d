"""Router: a routing table over a home, at one version: which task gets a record.

>>> router = Router(4, table={"anna": 3})
>>> router.route(["anna", "bert"])
array([3, 0], dtype=int32)
>>> router.route_one("anna")
3
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pyroute import _core, _typed_json
from pyroute._arrays import count, integers, task_ids
from pyroute._hotpath import OneRecord
from pyroute._kernel import Kernel
from pyroute.homes import EngineHome, wrap_engine
from pyroute.keys import Keys, as_core
from pyroute.plan import Plan
from pyroute.ring import Ring

_FORMAT = "pyroute.router"


class Table(Mapping[Any, int]):
    """The routing table of a router: value -> task, read-only."""

    __slots__ = ("_core",)

    def __init__(self, core: _core.Router) -> None:
        self._core = core

    def __getitem__(self, value: Any) -> int:
        ids = self._core.table_ids
        try:
            key = np.uint64(0) if _is_wide(value) else as_core([value], "value").ids[0]
        except (TypeError, ValueError):
            raise KeyError(value) from None
        candidates = [key]
        if not self._core.named and isinstance(value, int) and 0 <= value < 1 << 64:
            candidates.append(np.uint64(value))  # a table without names lists its ids
        for candidate in candidates:
            at = int(np.searchsorted(ids, candidate))
            if at < len(ids) and ids[at] == candidate:
                return int(self._core.table_targets[at])
        raise KeyError(value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._core.table_values())

    def __len__(self) -> int:
        return len(self._core.table_ids)

    @property
    def ids(self) -> npt.NDArray[np.uint64]:
        """Identities of the tabled keys, ascending."""
        return self._core.table_ids

    @property
    def targets(self) -> npt.NDArray[np.int32]:
        """Their tasks, in the order of `ids`."""
        return self._core.table_targets

    def __repr__(self) -> str:
        return f"Table({len(self)} keys)"


def _is_wide(value: Any) -> bool:
    return isinstance(value, int) and value >= 1 << 63


class Router(Kernel):
    """Which task gets a record: immutable, versioned, fingerprinted.

    `route_one(value)` routes a single record, without an array in between.

    Parameters
    ----------
    home
        A `Ring`, a number of tasks (a `Ring` of them), or an engine's home such as `SparkHash`.
    table
        Exceptions to the home: `{value: task}`, or values and tasks as two arrays.
    splits
        Keys with several owners, where the work is declared mergeable: `{value: [tasks]}`.
    version
        Number of this state of the routing; a plan names the version it was made for.
    """

    __slots__ = ("_extra", "route_one")
    _native = _core.Router
    _extra: dict[str, Any]
    route_one: Callable[[Any], int]

    def __init__(
        self,
        home: Ring | EngineHome | int,
        table: Mapping[Any, int] | tuple[Any, Any] | None = None,
        splits: Mapping[Any, Sequence[int]] | None = None,
        version: int = 0,
    ) -> None:
        if isinstance(home, int | np.integer) and not isinstance(home, bool):
            home = Ring(int(home))
        if not isinstance(home, Ring | EngineHome):
            raise TypeError(
                f"home: expected a Ring, an int or an engine's home, got {type(home).__name__}"
            )
        values, targets = _pairs(table)
        split_values, split_tasks = _split_pairs(splits)
        self._finish(
            _core.Router(
                home._core,
                as_core(values, "table"),
                targets,
                as_core(split_values, "splits"),
                split_tasks,
                count(version, "version"),
            ),
            {},
        )

    def _finish(self, core: _core.Router, extra: dict[str, Any]) -> None:
        self._core = core
        self._extra = extra
        if core.one_record:
            self.route_one = OneRecord(core.capsule(), self._route_slowly).route
        else:
            self.route_one = self._route_slowly

    def _route_slowly(self, value: Any) -> int:
        return int(self.route([value])[0])

    @classmethod
    def _wrap(cls, core: Any) -> Self:
        self = cls.__new__(cls)
        self._finish(core, {})
        return self

    def route(self, values: Any, salt: Any = None) -> npt.NDArray[np.int32]:
        """The task of each record.

        Parameters
        ----------
        values
            The grouping values, or `Keys`.
        salt
            An integer per record, or one for all; chooses among the tasks of a split key, and
            is needed only where the router has splits. Equal salts give equal tasks, so that a
            retried batch goes where it went.
        """
        core = as_core(values, "values")
        if salt is not None:
            one = np.ndim(salt) == 0
            salt = integers([salt] if one else salt, "salt")
            salt = np.full(len(core), salt[0]) if one else salt
        return self._core.route(core, salt)  # type: ignore[no-any-return]

    def apply(self, plan: Plan) -> Router:
        """The router that a plan makes of this one, at the next version.

        A plan that was made for another version or another state of the routing is refused with
        `ValueError`.
        """
        if not isinstance(plan, Plan):
            raise TypeError(f"plan: expected a Plan, got {type(plan).__name__}")
        if plan.version != self.version:
            raise ValueError(
                f"plan: expected one made for version {self.version}, got version {plan.version}"
            )
        if plan.fingerprint != self.fingerprint:
            raise ValueError(
                f"plan: expected one made for fingerprint {self.fingerprint:016x},"
                f" got {plan.fingerprint:016x}"
            )
        after = plan.after
        home = self.home if after.home is None else after.home
        return Router._wrap(
            _core.Router(
                home._core,
                as_core(after.table.named_keys.keys(), "table"),
                after.table.targets,
                as_core(after.split_keys.keys(), "splits"),
                after.split_tasks,
                self.version + 1,
            )
        )

    @property
    def home(self) -> Ring | EngineHome:
        """Where keys go that are neither tabled nor split."""
        core = self._core.home
        return Ring._wrap(core) if isinstance(core, _core.Ring) else wrap_engine(core)

    @property
    def table(self) -> Table:
        """Exceptions to the home: value -> task."""
        return Table(self._core)

    @property
    def splits(self) -> dict[Any, tuple[int, ...]]:
        """Keys with several owners: value -> tasks."""
        return {value: tuple(tasks) for value, tasks in self._core.split_items()}

    @property
    def split_ids(self) -> npt.NDArray[np.uint64]:
        """Identities of the split keys, in the order of `splits`."""
        values = list(self.splits)
        if not self._core.named:
            return np.array(values, np.uint64)
        return as_core(values, "splits").ids

    @property
    def tasks(self) -> tuple[int, ...]:
        """Task ids, ascending."""
        return tuple(self._core.tasks)

    @property
    def version(self) -> int:
        """Number of this state of the routing."""
        return int(self._core.version)

    @property
    def fingerprint(self) -> int:
        """64 bits that differ when home, table or splits differ."""
        return int(self._core.fingerprint)

    @property
    def nbytes(self) -> int:
        """Memory in use."""
        return int(self._core.nbytes)

    def to_bytes(self, values: bool = True) -> bytes:
        """Versioned bytes; every later release reads them.

        Parameters
        ----------
        values
            False leaves the names of tabled and split keys out: they can be personal data, and
            are not needed to route.
        """
        data: bytes = self._core.to_bytes(values)
        return data

    def to_json(self) -> str:
        """The router as JSON; fields that `from_json` did not know are written again."""
        table: list[list[Any]]
        targets = self._core.table_targets.tolist()
        if self._core.named:
            names = [_typed_json.encode(value) for value in self._core.table_values()]
            splits = [
                [_typed_json.encode(value), tasks] for value, tasks in self._core.split_items()
            ]
        else:
            names = [_typed_json.encode_id(key) for key in self._core.table_ids.tolist()]
            splits = [
                [_typed_json.encode_id(value), tasks] for value, tasks in self._core.split_items()
            ]
        table = [[name, target] for name, target in zip(names, targets, strict=True)]
        return json.dumps(
            {
                **{key: value for key, value in self._extra.items() if key != "home"},
                "format": _FORMAT,
                "format_version": 1,
                "version": self.version,
                "fingerprint": str(self.fingerprint),
                "home": {
                    **self._extra.get("home", {}),
                    "kind": type(self.home).__name__,
                    "tasks": len(self.tasks),
                    "bytes": base64.b64encode(self.home.to_bytes()).decode(),
                },
                "table": table,
                "splits": splits,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote; anything else raises `FormatError`."""
        return _typed_json.read(text, _FORMAT, "router", cls._from_document)

    @classmethod
    def _from_document(cls, document: Any) -> Self:
        data = base64.b64decode(document["home"]["bytes"], validate=True)
        ring = document["home"]["kind"] == "Ring"
        home = Ring.from_bytes(data) if ring else EngineHome.from_bytes(data)
        table, splits = document["table"], document["splits"]
        values = _typed_json.decode_keys([row[0] for row in table])
        targets = [row[1] for row in table]
        split_values = _typed_json.decode_keys([row[0] for row in splits])
        _typed_json.expect_ints(targets, "table")
        self = cls.__new__(cls)
        self._finish(
            _core.Router(
                home._core,
                as_core(values, "table"),
                task_ids(targets, "table"),
                as_core(split_values, "splits"),
                [task_ids(row[1], "splits").tolist() for row in splits],
                count(document["version"], "version"),
            ),
            {
                **{key: value for key, value in document.items() if key not in _KNOWN},
                "home": {k: v for k, v in document["home"].items() if k not in _KNOWN_OF_HOME},
            },
        )
        if str(self.fingerprint) != document["fingerprint"]:
            raise _core.FormatError(
                f"fingerprint: expected {self.fingerprint}, got {document['fingerprint']}"
            )
        return self

    def __hash__(self) -> int:
        return hash((self.version, self.fingerprint))

    def __repr__(self) -> str:
        splits = f", {len(self.splits)} split" if self.splits else ""
        return (
            f"Router({self.home!r}, {len(self.table)} tabled{splits}, version {self.version},"
            f" fingerprint {self.fingerprint:016x})"
        )


_KNOWN = frozenset(
    ("format", "format_version", "version", "fingerprint", "home", "table", "splits")
)


_KNOWN_OF_HOME = frozenset(("kind", "tasks", "bytes"))


def _pairs(table: Any) -> tuple[Any, npt.NDArray[np.int32]]:
    if table is None:
        return [], np.empty(0, np.int32)
    if isinstance(table, Table):
        targets = table.targets
        return list(table) if table._core.named else Keys.from_ids(table.ids), targets
    if isinstance(table, Mapping):
        return list(table), task_ids(list(table.values()), "table")
    if isinstance(table, tuple) and len(table) == 2:
        return table[0], task_ids(table[1], "table")
    raise TypeError(
        f"table: expected a mapping, or values and tasks as a pair, got {type(table).__name__}"
    )


def _split_pairs(splits: Any) -> tuple[Any, list[list[int]]]:
    if splits is None:
        return [], []
    if not isinstance(splits, Mapping):
        raise TypeError(
            f"splits: expected a mapping of value to tasks, got {type(splits).__name__}"
        )
    for tasks in splits.values():
        if not isinstance(tasks, Sequence | np.ndarray) or isinstance(tasks, str | bytes):
            raise TypeError(f"splits: expected tasks for each value, got {type(tasks).__name__}")
    return list(splits), [task_ids(tasks, "splits").tolist() for tasks in splits.values()]
