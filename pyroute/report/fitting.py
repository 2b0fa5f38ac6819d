"""A report cut down until its file is small enough: names first, then lists, and it says what.

>>> from pyroute.report import HotKey, Report, name_of
>>> page = Report("A look", hot_keys=(HotKey(name_of("a" * 200), 1.0, 0.0, 1.0),))
>>> first, second, *_ = smaller(page, 1000)
>>> first is page, second.hot_keys[0].key.text == "a" * 80 + "…" + "a" * 40
(True, True)
>>> second.warnings
('To keep the file small, keys are shown by their first 80 and last 40 characters.',)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from pyroute.report.model import Flow, Heat, KeyName, Line, Report, Series, TaskLoad, changed, plain

_NAMES = (120, 60, 30, 15)
"""Characters of a key that are shown, in the order of trying."""
_TEXT = 10
"""Times that of a key: characters of any other text."""
_LISTS = {
    "tasks": "the {} most loaded of {} tasks",
    "hot_keys": "{} of {} hot keys",
    "moves": "{} of {} keys that move",
    "flows": "{} of {} flows between tasks",
    "events": "{} of {} events",
    "facts": "{} of {} figures",
    "locality": "{} of {} rows of locality",
    "ratio": "{} of {} workers in the ratio",
    "warnings": "{} of {} notes",
    "sources": "{} of {} places",
}
_OVER_TIME = {"heat": "tasks over time", "series": "lines over time", "forecasts": "forecasts"}


def smaller(report: Report, size: int) -> Iterator[Report]:
    """The report, then one smaller than the other; each but the first says what it leaves out.

    From where lists are cut, only those come whose JSON is at most about `size` bytes.
    """
    yield report
    cut, most = report, _NAMES[0]
    for most in _NAMES:
        cut = _with_names(report, most)
        yield _with_note(cut, report, most)
    sizes = {part.name: _size(getattr(cut, part.name)) for part in fields(Report)}
    while sizes:
        name = max(sizes, key=lambda one: sizes[one])
        half = _half(name, getattr(cut, name))
        if half is None:
            del sizes[name]  # as small as it can be
            continue
        cut, sizes[name] = replace(cut, **{name: half}), _size(half)
        if sum(sizes.values()) < size:
            yield _with_note(cut, report, most)


def _with_names(report: Report, most: int) -> Report:
    made: Report = changed(report, lambda value: _shorter(value, most))
    return made


def _shorter(value: Any, most: int) -> Any:
    if isinstance(value, KeyName):
        return replace(value, text=_ends(value.text, most))
    return _ends(value, _TEXT * most) if isinstance(value, str) else value


def _ends(text: str, most: int) -> str:
    """Both ends of a text: names that begin alike often end otherwise."""
    last = most // 3
    return text if len(text) <= most else f"{text[: most - last]}…{text[-last:]}"


def _size(value: Any) -> int:
    return len(json.dumps(plain(value)))


def _half(name: str, value: Any) -> Any:
    """The half that matters more; None where there is nothing to leave out."""
    if name in ("series", "forecasts"):
        if any(len(one.labels) > 8 for one in value):
            return tuple(_last_half(one) for one in value)
        return value[: len(value) // 2] if value else None
    if name == "heat":
        return None if value is None else _less_heat(value)
    if name == "certificate":
        if value is None or len(value.sentences) < 2:
            return None
        return replace(value, sentences=value.sentences[: len(value.sentences) // 2])
    if name not in _LISTS or len(value) < 2:
        return None
    if name == "tasks":
        return _most_loaded(value, len(value) // 2)
    if name == "flows":
        return _folded(value, len(value) // 2)
    return value[: len(value) // 2]


def _last_half(one: Series) -> Series:
    at = len(one.labels) // 2
    lines = tuple(Line(line.name, line.values[at:], line.unit) for line in one.lines)
    return replace(one, labels=one.labels[at:], lines=lines)


def _less_heat(heat: Heat) -> Heat | None:
    at, most = len(heat.labels) // 2, len(heat.tasks) // 2
    if at:
        return replace(heat, labels=heat.labels[at:], loads=tuple(row[at:] for row in heat.loads))
    if not most:
        return None
    order = sorted(range(len(heat.tasks)), key=lambda i: -(heat.loads[i][0] or 0.0))
    kept = sorted(order[:most])
    return replace(
        heat,
        tasks=tuple(heat.tasks[i] for i in kept),
        loads=tuple(heat.loads[i] for i in kept),
    )


def _most_loaded(tasks: tuple[TaskLoad, ...], most: int) -> tuple[TaskLoad, ...]:
    order = sorted(tasks, key=lambda row: -max(row.before or 0.0, row.after or 0.0))
    kept = {id(row) for row in order[:most]}
    return tuple(row for row in tasks if id(row) in kept)


def _folded(flows: tuple[Flow, ...], most: int) -> tuple[Flow, ...] | None:
    """The largest, and all others as one: what moves in all stays what it is."""
    if most < 2:
        return None
    kept, rest = flows[: most - 1], flows[most - 1 :]
    keys, sizes = sum(flow.keys for flow in rest), sum(flow.state_size for flow in rest)
    cost = math.fsum(flow.cost for flow in rest)
    return (*kept, Flow("others", "others", keys, cost, sizes))


def _with_note(cut: Report, whole: Report, most: int) -> Report:
    last = most // 3
    said = [f"keys are shown by their first {most - last} and last {last} characters"]
    listed = [
        words.format(f"{len(getattr(cut, name)):,}", f"{len(getattr(whole, name)):,}")
        for name, words in _LISTS.items()
        if len(getattr(cut, name)) < len(getattr(whole, name))
    ]
    for name, words in _OVER_TIME.items():
        now, before = (_points(getattr(one, name)) for one in (cut, whole))
        if now < before:
            listed.append(f"of {words} the last {now:,} of {before:,} intervals")
    if cut.heat and whole.heat and len(cut.heat.tasks) < len(whole.heat.tasks):
        tasks = f"{len(cut.heat.tasks):,} hottest of {len(whole.heat.tasks):,} tasks"
        listed.append(f"over time the {tasks}")
    if listed:
        said.append(f"listed are {'; '.join(listed)}")
    note = f"To keep the file small, {', and '.join(said)}."
    return replace(cut, warnings=(note, *cut.warnings))


def _points(value: Any) -> int:
    if isinstance(value, Heat):
        return len(value.labels)
    return max((len(one.labels) for one in value or ()), default=0)
