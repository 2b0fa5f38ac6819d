"""What `pyroute analyze --spark-log` shows."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pyroute._plan_text import in_bytes
from pyroute.cli.output import Output

if TYPE_CHECKING:
    from pyroute.analyze.spark_log import Application, Operator, Stage

__all__ = ["show_logs"]

_MOST = 8
"""Stages of an application that are listed."""


def show_logs(path: Path, out: Output) -> None:
    """Read all logs of a directory, or one, and say which stages straggle."""
    from pyroute.analyze.spark_log import logs, read_log

    found = [read_log(one) for one in logs(path)]
    for one in found:
        _show(out, one)
    out.document(
        {
            "command": "analyze",
            "spark_logs": [
                {
                    "path": str(one.path),
                    "application": one.name,
                    "id": one.id,
                    "cores": one.cores,
                    "complete": one.complete,
                    "stages": len(one.stages),
                    "seconds_lost": sum(stage.lost for stage in one.straggling),
                    "straggling": [stage.document() for stage in one.straggling],
                    "next": next_lines(one),
                }
                for one in found
            ],
        }
    )


def _show(out: Output, one: Application) -> None:
    if out.json:
        return
    say = out.results.print
    slow = one.straggling
    cut = "" if one.complete else " (the log is not complete: read as far as it goes)"
    lost = sum(stage.lost for stage in slow)
    verdict = (
        f"{len(slow)} of {len(one.stages)} stages wait for one task: about {lost:.1f} s lost"
        if slow
        else f"none of {len(one.stages)} stages waits for one task"
    )
    say(f"{one.name} ({one.id}): {verdict}{cut}", soft_wrap=True)
    for stage in slow[:_MOST]:
        for line in _told(stage):
            say(f"  {line}", soft_wrap=True)
    if len(slow) > _MOST:
        say(f"  ... and {len(slow) - _MOST} more stages that straggle", soft_wrap=True)
    lines = next_lines(one)
    if lines:
        say("Next", soft_wrap=True)
        for line in lines:
            say(f"  {line}", soft_wrap=True)


def _told(stage: Stage) -> list[str]:
    rows = f"{stage.most_rows:,} rows against {stage.median_rows:,.0f}"
    sizes = f"{in_bytes(stage.most_bytes)} against {in_bytes(round(stage.median_bytes))}"
    took = f"{stage.longest:.2f} s against {stage.median:.2f} s ({stage.ratio:.1f}x)"
    lines = [
        f"stage {stage.number}, {stage.tasks} tasks: about {stage.lost:.1f} s lost",
        f"  greatest task against the median: {took}, {rows}, {sizes}",
    ]
    operator = stage.operator
    if operator is not None and operator.columns:
        lines.append(f"  {operator.name} by {', '.join(operator.columns)}")
    if not stage.by_data:
        lines.append("  rows are even: look at the host, garbage collection or dear rows (--cost)")
    if stage.query:
        lines.append(f"  query: {stage.query.splitlines()[0][:100]}")
    return lines


def next_lines(one: Application) -> list[str]:
    """What to run, for the dearest stage whose keys are known."""
    for stage in one.straggling:
        operator = stage.operator
        if operator is None or not operator.columns or not stage.by_data:
            continue
        tasks = stage.tasks
        flags = " ".join(f"--key {shlex.quote(name)}" for name in operator.columns)
        here = all(Path(file).exists() for file in operator.files)  # the log may be from elsewhere
        files = " ".join(map(shlex.quote, operator.files)) if here else ""
        return [f"pyroute analyze {files or 'FILE'} {flags} --tasks {tasks}", _fix(operator, tasks)]
    return []


_HOW = {
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "leftsemi",
    "LeftAnti": "leftanti",
}


def _fix(operator: Operator, tasks: int) -> str:
    if "Join" in operator.name:
        return _join(operator, tasks)
    names = ", ".join(repr(name) for name in operator.columns)
    then = "b.window()" if "Window" in operator.name else "b.group_by()"
    return f"import spark_udf as su; b = su.balance(df, {names}, tasks={tasks})  # then {then}"


def _join(operator: Operator, tasks: int) -> str:
    """Both sides need the key under the same names."""
    left, right = operator.sides
    if not left or len(left) != len(right) or len({*left}) < len(left):
        left = right = operator.columns
    other, said = "right", ""
    for mine, theirs in zip(left, right, strict=True):
        if mine != theirs:
            other += f".withColumnRenamed({theirs!r}, {mine!r})"
            said = "  # both sides need the key under one name"
    how = f", how={_HOW[operator.how]!r}" if operator.how in _HOW else ""
    call = f"su.balance_join(left, {other}, {list(left)!r}, tasks={tasks}{how})"
    return f"import spark_udf as su; b = {call}{said}"
