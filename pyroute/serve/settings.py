"""A store of settings (`pyroute.control.ConfigStore`): routers and split ratios as they are now."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from pyroute._core import FormatError
from pyroute._plan_text import in_bytes
from pyroute.dynamic_grouping import DynamicGrouping
from pyroute.report import Event, Fact, HotKey, Report, Share, TaskLoad, Words, name_of
from pyroute.router import Router
from pyroute.serve.sources import Source, SourceError


class Settings(Source):
    """The documents of a store of settings, watched."""

    kind = "settings"

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._store: Any = None
        self._versions: dict[str, int] = {}
        self._said: dict[str, str] = {}  # of a status: its loads change with every version
        self._events: tuple[Event, ...] = ()

    def _open(self) -> Any:
        if self._store is None:
            try:
                store = import_module("pyroute.control").ConfigStore
            except ImportError as error:
                raise SourceError(f"{error}: pip install 'pyroute-core[control]'") from None
            try:
                self._store = store.open(self.place, wait=False)
            except (OSError, ValueError) as error:
                raise SourceError(str(error)) from None
        return self._store

    def close(self) -> None:
        """Let go of the store."""
        if self._store is not None:
            self._store.close()

    def read(self) -> Report:
        """Routers with their versions, the split ratio, and when they changed."""
        store = self._open()
        facts: list[Fact] = []
        ratio: tuple[Share, ...] = ()
        warnings: list[Words] = []
        tasks: list[TaskLoad] = []
        hot_keys: list[HotKey] = []
        try:
            names = store.names()
        except (OSError, ValueError) as error:
            raise SourceError(str(error)) from None
        for name in names:
            try:
                document = store.get(name)
            except (OSError, ValueError, FormatError) as error:
                warnings.append(f"{name}: {error}")
                continue
            if document is None:
                continue
            try:
                facts += list(_facts(name, document.version, document.value))
                ratio = ratio or shares(document.value)
                if _is_status(document.value):
                    loads, keys = _measured(document.value)
                    tasks, hot_keys = tasks + loads, hot_keys + keys
                    warnings += _refusals(name, document.value)
            except (LookupError, TypeError, ValueError) as error:
                warnings.append(f"{name}: expected what a manager writes: {error}")
                continue
            self._note(name, document.version, document.value)
        if not names:
            raise SourceError("the store has no documents yet")
        return Report(
            title=self.place,
            facts=tuple(facts),
            tasks=tuple(tasks),
            unit="cost",
            hot_keys=tuple(hot_keys),
            ratio=ratio,
            events=self._events,
            warnings=tuple(warnings),
        )

    def _note(self, name: str, version: int, value: Any) -> None:
        before = self._versions.get(name)
        self._versions[name] = version
        text = f"{name}: {_words(value)}"
        said = self._said.get(name)
        if _is_status(value):
            self._said[name] = text
        if before is None or before == version or text == said:
            return
        at = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
        self._events = (Event(at, _kind(value), text), *self._events)[:200]


def _facts(name: str, version: int, value: Any) -> Iterator[Fact]:
    if not _is_status(value):
        yield Fact(name, f"version {version}", _words(value))
        return
    yield Fact(name, str(value["phase"]), _words(value))
    for operator, loads in _loads(value).items():
        ratio = max(loads.values()) * len(loads) / (math.fsum(loads.values()) or math.inf)
        tone = "bad" * (ratio > 1.1)
        yield Fact(f"busiest task of {operator}", f"{ratio:.2f}x", "of the mean load", tone)


def _kind(value: Any) -> str:
    if _is_status(value):
        return "applied" if "applied" in str(value["decision"]) else "plan"
    return "ratio" if shares(value) else "settings"


def _is_status(value: Any) -> bool:
    """Whether it is what the manager of a Storm topology says of itself."""
    return isinstance(value, dict) and {"phase", "decision", "epoch"} <= set(value)


def _words(value: Any) -> str:
    if _is_status(value):
        versions = value.get("versions")
        shown = versions.items() if isinstance(versions, dict) else ()
        routers = ", ".join(f"{name} at version {version}" for name, version in shown)
        said = [f"{value['phase']}, epoch {value['epoch']}", str(value["decision"]), routers]
        said += _plans(value)
        return "; ".join(text for text in said if text)
    router = router_of(value)
    if router is not None:
        return f"{len(router.table):,} keys in a table over {len(router.tasks)} tasks"
    parts = shares(value)
    if parts:
        return "ratio " + " : ".join(f"{part.share:.3g}" for part in parts[:12])
    return f"{len(value):,} bytes" if isinstance(value, bytes) else "a document"


def _plans(value: dict[str, Any]) -> Iterator[str]:
    """What plans have moved so far."""
    for name, made in _object(value, "plans").items():
        if isinstance(made, dict) and made.get("plans"):
            keys, size = int(made.get("keys", 0)), int(made.get("bytes", 0))
            count = int(made["plans"])
            plans = "1 plan" if count == 1 else f"{count:,} plans"
            yield f"{name}: {plans} moved {keys:,} keys with {in_bytes(size)}"


def _refusals(name: str, value: dict[str, Any]) -> Iterator[str]:
    """Tasks that cannot go on, and why."""
    for task, why in _object(value, "refusals").items():
        yield f"{name}: {task}: {why}"


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _loads(value: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Load per task of each operator, in the last interval that the tasks reported."""
    return {
        name: {str(task): float(load) for task, load in loads.items()}
        for name, loads in _object(value, "loads").items()
        if isinstance(loads, dict) and loads
    }


def _measured(value: dict[str, Any]) -> tuple[list[TaskLoad], list[HotKey]]:
    """Tasks with their loads, and the heaviest keys, of all operators."""
    tasks: list[TaskLoad] = []
    keys: list[HotKey] = []
    operators = _loads(value)
    for name, loads in operators.items():
        prefix = f"{name} " if len(operators) > 1 else ""
        tasks += [TaskLoad(f"{prefix}{task}", load) for task, load in loads.items()]
        whole = math.fsum(loads.values())
        for key, cost, size, task in _object(value, "keys").get(name, ()):
            share = float(cost) / whole if whole else 0.0
            shown = tuple(key) if isinstance(key, list) else key
            keys.append(
                HotKey(name_of(shown), float(cost), 0.0, share, int(size), f"{prefix}{task}")
            )
    return tasks, sorted(keys, key=lambda row: -row.share)


def router_of(value: Any) -> Router | None:
    """The router that a document holds."""
    if not isinstance(value, bytes):
        return None
    try:
        return Router.from_bytes(value)
    except (FormatError, ValueError):
        return None


def shares(value: Any) -> tuple[Share, ...]:
    """The split ratio that a document holds: a grouping as bytes, or an object with `ratio`."""
    if isinstance(value, bytes):
        try:
            made = DynamicGrouping.from_bytes(value).shares()
        except (FormatError, ValueError):
            return ()
        return tuple(Share(f"task {task}", float(share)) for task, share in made.items())
    if isinstance(value, dict) and isinstance(value.get("ratio"), list | dict):
        ratio = value["ratio"]
        if isinstance(ratio, list):
            names: Any = value.get("tasks")
            if not isinstance(names, list) or len(names) != len(ratio):
                names = range(len(ratio))
            ratio = dict(zip(names, ratio, strict=True))
        numbers = {name: x for name, x in ratio.items() if isinstance(x, int | float) and x >= 0}
        whole = sum(numbers.values())
        if whole > 0:
            return tuple(
                Share(name if isinstance(name, str) else f"task {name}", part / whole)
                for name, part in numbers.items()
            )
    return ()
