"""What a report says: loads, hot keys, moves, time, locality and a certificate, as plain values.

Keys are text from the start (`name_of`), so that 2**60 + 1 is shown as it is and no reader can
round it. Where a sentence names a key it holds a `KeyName`, so that `hashed` can hide it.

>>> import pyroute as pr
>>> snapshot = pr.Snapshot(["anna", "bert", "carl", "dora"], costs=[40, 30, 20, 10])
>>> page = build("A look", plan=pr.rebalance(snapshot, pr.Router(2), max_imbalance=0))
>>> [(task.task, task.before, task.after) for task in page.tasks]
[('0', 60.0, 50.0), ('1', 40.0, 50.0)]
>>> page.hot_keys[0].key.text, page.hot_keys[0].share
('anna', 0.4)
"""

from __future__ import annotations

import datetime
import hashlib
import math
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pyroute._plan_text import in_bytes

if TYPE_CHECKING:
    from pyroute.colocation import ColocationPlan
    from pyroute.key_stats import Snapshot
    from pyroute.plan import Plan
    from pyroute.space_saving import TopKeys

MAX_KEYS = 1000
"""Hot keys that a report lists."""
MAX_MOVES = 3000
"""Keys moved that a report lists by name; flows and sums count all."""
MAX_TASKS = 2000
"""Tasks that a report lists, the most loaded ones."""
MAX_CELLS = 40_000
"""Cells of the heat of tasks over time."""
MAX_POINTS = 2000
"""Points of a line over time."""
_LONGEST = 300  # characters of a key that are shown

_FORMAT = "pyroute.report"


@dataclass(frozen=True, slots=True)
class KeyName:
    """A key as it is shown: its text, and the type that the text was made from."""

    text: str
    kind: str = "str"


Words = str | tuple[str | KeyName, ...]
"""A sentence; keys in it are `KeyName`, so that they can be hidden."""


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """One task: its load before a plan, after it, and what it may carry relative to the others."""

    task: str
    before: float | None
    after: float | None = None
    capacity: float = 1.0
    keys_in: int = 0
    keys_out: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class HotKey:
    """One heavy key: `count - error <= true <= count`; `share` is of the whole load."""

    key: KeyName
    count: float
    error: float
    share: float
    state_size: int | None = None
    task: str | None = None
    target: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """One key that leaves a task for another."""

    key: KeyName
    source: str
    target: str
    cost: float
    state_size: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Flow:
    """All keys that leave one task for one other."""

    source: str
    target: str
    keys: int
    cost: float
    state_size: int


@dataclass(frozen=True, slots=True)
class Interval:
    """One closed interval as it was: the loads of tasks, and what was decided after it.

    Parameters
    ----------
    label
        What the axis says of it: a time or a number.
    loads
        Load per task, by its number or by the name of its worker.
    migrated_bytes, keys_moved
        State that moved into this interval.
    expected_imbalance
        What the plan before it promised, as max / mean - 1.
    applied, reason
        What the gate said after it.
    seconds
        How long it took.
    name
        What these loads are, where they were not measured: "by hash", "with plans".
    others
        Imbalance of the same interval by other means, by their names, as max / mean - 1.
    """

    label: str
    loads: Mapping[int, float] | Mapping[str, float]
    migrated_bytes: int | None = None
    keys_moved: int | None = None
    expected_imbalance: float | None = None
    applied: bool | None = None
    reason: str = ""
    seconds: float | None = None
    name: str = "measured"
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def imbalance(self) -> float:
        """Greatest load / mean - 1."""
        loads = list(self.loads.values())
        total = math.fsum(loads)
        return max(loads) * len(loads) / total - 1 if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Heat:
    """Load of each task in each interval; `loads[i][j]` is of `tasks[i]` in `labels[j]`."""

    labels: tuple[str, ...]
    tasks: tuple[str, ...]
    loads: tuple[tuple[float | None, ...], ...]
    binned: int = 1  # intervals in one column, which shows the greatest
    name: str = "measured"  # what the loads are


@dataclass(frozen=True, slots=True)
class Line:
    """One line over time."""

    name: str
    values: tuple[float | None, ...]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Lines that share their axis of time."""

    title: str
    labels: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Locality:
    """Share of the records that stay on their server, between two operators or in all."""

    name: str
    before: float
    in_sample: float
    out_of_sample: float | None = None
    coverage: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good the plan is, and how good any could be."""

    feasible: bool
    imbalance_before: float
    imbalance_after: float
    imbalance_bound: float
    gap: float
    allowed: float
    sentences: tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure at the top: its name, the value as text, and whether it is good."""

    name: str
    value: str
    detail: str = ""
    tone: str = ""  # "", "good" or "bad"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, for the log."""

    at: str
    kind: str  # "plan", "applied", "refused", "ratio", "warning", ...
    text: Words


@dataclass(frozen=True, slots=True)
class Share:
    """A worker's part of the ratio circle."""

    name: str
    share: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a page shows; a part that is empty is left out of the page."""

    title: str
    subtitle: str = ""
    made: str = ""
    headline: Words = ""
    facts: tuple[Fact, ...] = ()
    tasks: tuple[TaskLoad, ...] = ()
    tasks_after: bool = False
    tasks_of: str = ""
    """The interval whose loads the tasks show, where it is one of several."""
    unit: str = "load"
    hot_keys: tuple[HotKey, ...] = ()
    heat: Heat | None = None
    moves: tuple[Move, ...] = ()
    flows: tuple[Flow, ...] = ()
    series: tuple[Series, ...] = ()
    locality: tuple[Locality, ...] = ()
    certificate: Certificate | None = None
    ratio: tuple[Share, ...] = ()
    forecasts: tuple[Series, ...] = ()
    events: tuple[Event, ...] = ()
    warnings: tuple[Words, ...] = ()
    keys_hashed: bool = False
    sources: tuple[Fact, ...] = field(default=())  # a live page: what is read, and how it goes

    def hashed(self, salt: bytes | None = None) -> Report:
        """The same with every key replaced by a name that says nothing of it.

        Equal keys get equal names. Without a salt a random one is used and forgotten: guessing keys
        and comparing does not work then.
        """
        secret = secrets.token_bytes(32) if salt is None else salt

        def hide(value: Any) -> Any:
            return hashed_name(value, secret) if isinstance(value, KeyName) else value

        made: Report = changed(self, hide)
        return replace(made, keys_hashed=True)

    def document(self) -> dict[str, Any]:
        """As JSON takes it."""
        made: dict[str, Any] = plain(self)
        return {"format": _FORMAT, "format_version": 1, **made}


def hashed_name(name: KeyName, salt: bytes) -> KeyName:
    """What stands for a key where keys are hidden; equal keys and salts give equal names."""
    text = f"{name.kind}:{name.text}".encode("utf-8", "surrogatepass")
    key = hashlib.sha256(salt).digest()
    return KeyName("#" + hashlib.blake2b(text, key=key, digest_size=6).hexdigest(), "hashed")


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same with every key and everything else that has no parts changed."""
    if isinstance(value, tuple):
        return tuple([changed(part, change) for part in value])
    if is_dataclass(value) and not isinstance(value, KeyName | type):
        return replace(
            value, **{f.name: changed(getattr(value, f.name), change) for f in fields(value)}
        )
    return change(value)


def plain(value: Any) -> Any:
    """As JSON takes it; numbers that it has none for are null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def name_of(value: Any) -> KeyName:
    """A key's value as it is shown; every type has one text, and integers keep every digit."""
    if isinstance(value, KeyName):
        return value
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    if value is None:
        return KeyName("null", "null")
    if isinstance(value, bool):
        return KeyName("true" if value else "false", "bool")
    if isinstance(value, int):
        return KeyName(str(value), "int")
    if isinstance(value, str):
        return KeyName(visible(value), "str")
    if isinstance(value, bytes):
        return KeyName(_shortened("0x" + value[:_LONGEST].hex(), 2 + 2 * len(value)), "bytes")
    if isinstance(value, tuple):
        parts = [name_of(part) for part in value]
        return KeyName(" | ".join(part.text for part in parts), "tuple")
    if isinstance(value, datetime.datetime | datetime.date):
        return KeyName(value.isoformat(), type(value).__name__)
    return KeyName(visible(str(value)), type(value).__name__)


def visible(text: str) -> str:
    """The text with everything that does not show, or would turn its neighbours, as an escape."""
    if not text:
        return "(empty)"
    start = text[: _LONGEST + 1]
    shown = start if start.isprintable() else "".join(map(_escaped, start))
    return _shortened(shown, len(text)) if len(text) > _LONGEST else shown


def _escaped(letter: str) -> str:
    if letter == " " or unicodedata.category(letter)[0] not in "CZ":
        return letter
    code = ord(letter)
    known = {9: "\\t", 10: "\\n", 13: "\\r"}
    return known.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{{{code:x}}}")


def _shortened(text: str, length: int) -> str:
    return text if length <= _LONGEST else f"{text[:_LONGEST]}… ({length:,} characters)"


def build(
    title: str,
    *,
    plan: Plan | None = None,
    colocation: ColocationPlan | None = None,
    snapshot: Snapshot | None = None,
    top: TopKeys | None = None,
    total: float | None = None,
    hot_keys: Iterable[HotKey] | None = None,
    loads: Mapping[int, float] | Mapping[str, float] | None = None,
    intervals: Iterable[Interval] = (),
    locality: Iterable[Locality] = (),
    facts: Iterable[Fact] = (),
    warnings: Iterable[Words] = (),
    events: Iterable[Event] = (),
    subtitle: str = "",
    made: str = "",
    unit: str = "load",
) -> Report:
    """A report of what there is; all but the title may be missing.

    Parameters
    ----------
    title, subtitle, made
        Its heading, what it is about, and when it was made, as text.
    plan
        Gives loads before and after, moves, flows, the certificate, and hot keys with their tasks.
    colocation
        Gives locality, and the moves of all operators.
    snapshot
        The keys' costs, where the plan was read from a file and has none.
    top, total
        The heaviest keys with their errors (`SpaceSaving.top`), and the weight of everything.
    hot_keys
        The heaviest keys, where they were made into rows already.
    loads
        Load per task, where there is no plan.
    intervals
        What happened over time: gives the heat of tasks, imbalance and migrated bytes, and of the
        last one the load per task, where there is neither plan nor `loads`.
    locality
        Further rows of locality, such as one measured out of sample.
    facts, warnings, events
        Further figures at the top, warnings, and lines of the log.
    unit
        What a load is counted in.
    """
    history = tuple(intervals)
    snapshot = snapshot if snapshot is not None or plan is None else plan.snapshot
    notes: list[Words] = list(warnings)
    tasks = _tasks(plan, loads, history, notes)
    last = history[-1].label if plan is None and loads is None and len(history) > 1 else ""
    rows = None if hot_keys is None else tuple(hot_keys)[:MAX_KEYS]
    hot = rows if rows is not None else _hot_keys(plan, snapshot, top, total, notes)
    moves, flows = _moves(plan, colocation, notes)
    found = (*(_localities(colocation) if colocation is not None else ()), *locality)
    return Report(
        title=title,
        subtitle=subtitle,
        made=made,
        headline=_headline(hot, tasks, plan, last),
        facts=(*_facts(plan, colocation, tasks, last), *facts),
        tasks=tasks,
        tasks_after=plan is not None,
        tasks_of=last,
        unit=unit,
        hot_keys=hot,
        heat=_heat(history, notes),
        moves=moves,
        flows=flows,
        series=_series(history),
        locality=tuple(found),
        certificate=None if plan is None else _certificate(plan),
        events=tuple(events),
        warnings=tuple(notes),
    )


# tasks ---------------------------------------------------------------------------------------


def _tasks(
    plan: Plan | None,
    loads: Mapping[int, float] | Mapping[str, float] | None,
    history: Sequence[Interval],
    notes: list[Words],
) -> tuple[TaskLoad, ...]:
    if plan is not None:
        made = _planned_tasks(plan)
    else:
        known = loads if loads is not None else (history[-1].loads if history else {})
        made = [TaskLoad(str(task), float(load)) for task, load in sorted(known.items())]
    if len(made) > MAX_TASKS:
        order = sorted(made, key=lambda row: -max(row.before or 0.0, row.after or 0.0))
        kept = {row.task for row in order[:MAX_TASKS]}
        notes.append(f"{len(made):,} tasks, of which the {MAX_TASKS:,} most loaded are listed")
        made = [row for row in made if row.task in kept]
    return tuple(made)


def _planned_tasks(plan: Plan) -> list[TaskLoad]:
    ids = plan.facts.tasks
    came = np.bincount(np.searchsorted(ids, plan.migrations.targets), minlength=len(ids))
    went = np.bincount(np.searchsorted(ids, plan.migrations.sources), minlength=len(ids))
    columns = zip(
        ids.tolist(),
        plan.loads_before.tolist(),
        plan.loads_after.tolist(),
        plan.capacities.tolist(),
        came.tolist(),
        went.tolist(),
        plan.facts.open.tolist(),
        strict=True,
    )
    return [
        TaskLoad(str(task), before, after, capacity, keys_in, keys_out, not is_open)
        for task, before, after, capacity, keys_in, keys_out, is_open in columns
    ]


# keys ----------------------------------------------------------------------------------------


def _hot_keys(
    plan: Plan | None,
    snapshot: Snapshot | None,
    top: TopKeys | None,
    total: float | None,
    notes: list[Words],
) -> tuple[HotKey, ...]:
    places = _Places(plan)
    if top is not None:
        whole = float(total) if total else float(top.counts.sum())
        rows = zip(top.values, top.counts.tolist(), top.errors.tolist(), strict=True)
        listed = [
            HotKey(name_of(value), count, error, count / whole if whole else 0.0, *places(value))
            for value, count, error in list(rows)[:MAX_KEYS]
        ]
        known = len(top.values)
    elif snapshot is not None:
        listed = _of_snapshot(snapshot, places)
        known = len(snapshot)
    else:
        return ()
    if known > len(listed):
        notes.append(f"{known:,} keys, of which the {len(listed):,} heaviest are listed")
    return tuple(listed)


def _of_snapshot(snapshot: Snapshot, places: _Places) -> list[HotKey]:
    costs = snapshot.costs
    whole = float(costs.sum()) + math.fsum(snapshot.background.values())
    order = np.lexsort((snapshot.ids, -costs))[:MAX_KEYS]
    if len(order) == len(costs):
        values = [snapshot.values[i] for i in order.tolist()] if len(order) else []
    else:
        every = snapshot.values
        values = [every[i] for i in order.tolist()]
    sizes = snapshot.state_sizes[order].tolist()
    made = []
    for value, cost, size in zip(values, costs[order].tolist(), sizes, strict=True):
        _, task, target, note = places(value)
        share = cost / whole if whole else 0.0
        made.append(HotKey(name_of(value), cost, 0.0, share, size, task, target, note))
    return made


class _Places:
    """Where a key is, and where a plan sends it."""

    def __init__(self, plan: Plan | None) -> None:
        self._plan = plan
        self._moves: dict[Any, tuple[int, int]] = {}
        self._splits: Mapping[Any, tuple[int, ...]] = {}
        if plan is not None and plan.facts.named:
            moves = plan.migrations
            rows = zip(moves.values, moves.sources.tolist(), moves.targets.tolist(), strict=True)
            self._moves = {value: (source, target) for value, source, target in rows}
            self._splits = plan.splits

    def __call__(self, value: Any) -> tuple[int | None, str | None, str | None, str]:
        plan = self._plan
        if plan is None or not plan.facts.named:
            return None, None, None, ""
        if value in self._splits:
            tasks = self._splits[value]
            return None, None, None, f"split over tasks {', '.join(map(str, tasks))}"
        if value in self._moves:
            source, target = self._moves[value]
            return None, str(source), str(target), "moves"
        if value in plan.table:
            return None, str(plan.table[value]), None, "in the table"
        if plan.router is not None:
            return None, str(int(plan.router.route([value], salt=0)[0])), None, "at home"
        return None, None, None, "at home"


# moves ---------------------------------------------------------------------------------------


def _moves(
    plan: Plan | None, colocation: ColocationPlan | None, notes: list[Words]
) -> tuple[tuple[Move, ...], tuple[Flow, ...]]:
    plans: list[tuple[str, Plan]] = [("", plan)] if plan is not None else []
    if colocation is not None:
        plans += [(f"{name} ", each) for name, each in colocation.plans.items()]
    moves: list[Move] = []
    flows: list[Flow] = []
    count = 0
    for prefix, each in plans:
        count += len(each.migrations)
        flows += _flows(each, prefix)
        moves += _named_moves(each, prefix)
    moves.sort(key=lambda move: (-move.cost, -move.state_size, move.key.text))
    if count > MAX_MOVES:
        notes.append(
            f"{count:,} keys move, of which the {MAX_MOVES:,} heaviest are listed;"
            " the flows between tasks count all"
        )
    return tuple(moves[:MAX_MOVES]), tuple(flows)


def _named_moves(plan: Plan, prefix: str) -> list[Move]:
    rows = plan.migrations
    order = np.lexsort((rows.ids, -rows.state_sizes, -rows.costs))[:MAX_MOVES]
    values = rows.values if len(rows) else []
    overloaded = _reasons_of_tasks(plan)
    made = []
    for i in order.tolist():
        source, target = int(rows.sources[i]), int(rows.targets[i])
        made.append(
            Move(
                name_of(values[i]),
                f"{prefix}{source}",
                f"{prefix}{target}",
                float(rows.costs[i]),
                int(rows.state_sizes[i]),
                overloaded.get(source, "makes room, or goes home"),
            )
        )
    return made


def _reasons_of_tasks(plan: Plan) -> dict[int, str]:
    """Why keys leave a task, where the task itself is why."""
    limits = plan.facts.limit * plan.capacities
    out = {}
    for i, task in enumerate(plan.tasks):
        if not plan.facts.open[i]:
            out[task] = f"task {task} is closed"
        elif plan.loads_before[i] > limits[i] * (1 + 1e-9):
            out[task] = (
                f"task {task} had {_number(plan.loads_before[i])}, {_number(limits[i])} is allowed"
            )
    return out


def _flows(plan: Plan, prefix: str) -> list[Flow]:
    rows = plan.migrations
    if not len(rows):
        return []
    pairs = np.stack([rows.sources, rows.targets], axis=1)
    unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    keys = np.bincount(inverse, minlength=len(unique))
    costs = np.bincount(inverse, rows.costs, minlength=len(unique))
    sizes = np.bincount(inverse, rows.state_sizes.astype(np.float64), minlength=len(unique))
    columns = zip(unique.tolist(), keys.tolist(), costs.tolist(), sizes.tolist(), strict=True)
    made = [
        Flow(f"{prefix}{source}", f"{prefix}{target}", count, cost, round(size))
        for (source, target), count, cost, size in columns
    ]
    return sorted(made, key=lambda flow: (-flow.state_size, -flow.keys, flow.source, flow.target))


# time ----------------------------------------------------------------------------------------


def _heat(history: Sequence[Interval], notes: list[Words]) -> Heat | None:
    if not history:
        return None
    tasks = sorted({task for interval in history for task in interval.loads})
    if not tasks:
        return None
    most = max(1, MAX_CELLS // min(len(tasks), MAX_CELLS // 20))
    binned = -(-len(history) // most)
    grid = np.full((len(tasks), len(history)), np.nan)
    rows = {task: i for i, task in enumerate(tasks)}
    for j, interval in enumerate(history):
        for task, load in interval.loads.items():
            grid[rows[task], j] = load
    if len(tasks) > MAX_CELLS // 20:
        kept = np.sort(np.argsort(-np.nanmax(grid, axis=1), kind="stable")[: MAX_CELLS // 20])
        notes.append(
            f"{len(tasks):,} tasks over time, of which the {len(kept):,} hottest are drawn"
        )
        grid, tasks = grid[kept], [tasks[i] for i in kept.tolist()]
    starts = range(0, len(history), binned)
    cells = np.stack([_greatest(grid[:, start : start + binned]) for start in starts], axis=1)
    return Heat(
        tuple(history[start].label for start in starts),
        tuple(map(str, tasks)),
        tuple(tuple(None if x != x else x for x in row) for row in cells.tolist()),
        binned,
        history[-1].name,
    )


def _greatest(grid: Any) -> Any:
    seen = np.where(np.isnan(grid), -np.inf, grid).max(axis=1)
    return np.where(np.isneginf(seen), np.nan, seen)


def _series(history: Sequence[Interval]) -> tuple[Series, ...]:
    if len(history) < 2:
        return ()
    step = -(-len(history) // MAX_POINTS)
    shown = [history[i : i + step] for i in range(0, len(history), step)]
    labels = tuple(group[0].label for group in shown)

    def line(
        name: str, unit: str, of: Callable[[Interval], float | None], add: bool
    ) -> Line | None:
        values = []
        for group in shown:
            known = [x for x in map(of, group) if x is not None]
            values.append((math.fsum(known) if add else max(known)) if known else None)
        return Line(name, tuple(values), unit) if any(x is not None for x in values) else None

    others = dict.fromkeys(name for one in history for name in one.others)
    balance = (
        line(history[-1].name, "share", lambda one: one.imbalance, False),
        *(line(name, "share", _other(name), False) for name in others),
        line("promised by the plan before", "share", lambda one: one.expected_imbalance, False),
    )
    moved = (
        line("state moved", "bytes", lambda one: _float(one.migrated_bytes), True),
        line("keys moved", "count", lambda one: _float(one.keys_moved), True),
    )
    took = (line("time of an interval", "seconds", lambda one: one.seconds, True),)
    made = (("Imbalance", balance), ("Moved", moved), ("Time", took))
    return tuple(
        Series(title, labels, tuple(line for line in lines if line is not None))
        for title, lines in made
        if any(line is not None for line in lines)
    )


def _other(name: str) -> Callable[[Interval], float | None]:
    return lambda one: one.others.get(name)


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


# words ---------------------------------------------------------------------------------------


def _localities(plan: ColocationPlan) -> Iterable[Locality]:
    forecast = plan.forecast
    yield Locality(
        " -> ".join(plan.operators),
        plan.locality_before,
        plan.locality,
        None if forecast is None else forecast.apply,
        plan.coverage,
        f"at least {plan.assured_locality:.1%} by the errors of the counts"
        + ("" if forecast is None else f"; next interval: {forecast.reason}"),
    )


def _headline(
    hot: Sequence[HotKey], tasks: Sequence[TaskLoad], plan: Plan | None, last: str
) -> Words:
    words: list[str | KeyName] = []
    if hot:
        least = max(0.0, hot[0].count - hot[0].error) * hot[0].share / (hot[0].count or 1.0)
        share = f"{hot[0].share:.1%}" if not hot[0].error else f"{least:.1%} to {hot[0].share:.1%}"
        words += ["The hottest key is ", hot[0].key, f", with {share} of the load. "]
    loads = [task.before or 0.0 for task in tasks]
    if len(loads) > 1 and math.fsum(loads) > 0:
        ratio = max(loads) * len(loads) / math.fsum(loads)
        words.append(f"The busiest of {len(loads):,} tasks has {ratio:.2f} times the mean load")
        words += [f" in the last interval, {last}"] if last else []
        if plan is not None and plan.changes:
            words.append(f"; with the plan it has {1 + plan.imbalance:.2f} times.")
        else:
            words.append(".")
    return tuple(words)


def _facts(
    plan: Plan | None, colocation: ColocationPlan | None, tasks: Sequence[TaskLoad], last: str
) -> Iterable[Fact]:
    if plan is not None:
        before, after = 1 + plan.imbalance_before, 1 + plan.imbalance
        better = "good" if after < before - 1e-9 else ""
        yield Fact(
            "busiest task before", f"{before:.2f}x", "of the mean load", "bad" * (before > 1.1)
        )
        yield Fact("busiest task after", f"{after:.2f}x", "of the mean load", better)
        share = f"{plan.migration_share:.2%} of all state" if plan.state_total else ""
        yield Fact("keys moved", f"{len(plan.migrations):,}", f"table of {len(plan.table):,}")
        yield Fact("state moved", in_bytes(plan.migration_cost), share)
        yield Fact("above the lower bound", f"{plan.gap:.2%}", "no plan can be below it")
    elif len(tasks) > 1:
        loads = [task.before or 0.0 for task in tasks]
        total = math.fsum(loads)
        ratio = max(loads) * len(loads) / total if total else 1.0
        detail = "of the mean load" + (f", {last}" if last else "")
        yield Fact("busiest task", f"{ratio:.2f}x", detail, "bad" * (ratio > 1.1))
        yield Fact("tasks", f"{len(tasks):,}")
    if colocation is not None:
        detail = f"before {colocation.locality_before:.1%}"
        yield Fact("stays on its server", f"{colocation.locality:.1%}", detail)


def _certificate(plan: Plan) -> Certificate:
    mean = plan.mean
    bound = max(0.0, plan.lower_bound / mean - 1) if mean > 0 else 0.0
    return Certificate(
        feasible=plan.feasible,
        imbalance_before=plan.imbalance_before,
        imbalance_after=plan.imbalance,
        imbalance_bound=bound,
        gap=plan.gap,
        allowed=float(plan.options["max_imbalance"]),
        sentences=tuple(_sentences(plan, bound)),
    )


def _sentences(plan: Plan, bound: float) -> Iterable[Words]:
    allowed = float(plan.options["max_imbalance"])
    if plan.feasible:
        yield (
            "Every limit that was asked for holds: no task is more than"
            f" {allowed:.1%} above the mean."
        )
    else:
        yield f"Not every limit holds: {allowed:.1%} above the mean was asked for."
    if plan.gap <= 1e-9:
        yield "The busiest task carries the least that any plan for these keys could give it."
    else:
        yield (
            f"No plan for these keys, whatever its table and budget, has its busiest task below"
            f" {1 + bound:.3f} times the mean; this one has {1 + plan.imbalance:.3f},"
            f" {plan.gap:.2%} more."
        )
    if plan.feasible and plan.least_migration > 0:
        ratio = plan.migration_cost / plan.least_migration
        yield (
            f"Any plan within the limits has to move {in_bytes(plan.least_migration)} of state;"
            f" this one moves {ratio:.2f} times that."
        )
    for reason in plan.reasons:
        yield _with_keys(f"Not better because {reason}.", [value for value, _, _ in plan.giants])


def _with_keys(text: str, values: Sequence[Any]) -> Words:
    """A sentence with the keys that it names by repr as names."""
    words: list[str | KeyName] = [text]
    for value in sorted(values, key=lambda one: -len(repr(one))):
        shown = f"key {value!r} "
        split: list[str | KeyName] = []
        for part in words:
            if isinstance(part, str) and shown in part:
                first, rest = part.split(shown, 1)
                split += [f"{first}key ", name_of(value), f" {rest}"]
            else:
                split.append(part)
        words = split
    return tuple(words)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
