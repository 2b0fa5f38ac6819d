"""What `pyroute run` measured, as a page: tasks by hash and routed, over time or of own files."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

import pyroute
from pyroute import report as pages
from pyroute._plan_text import in_bytes
from spark_udf.run.batch import Result
from spark_udf.run.stream import Interval, Summary, max_over_mean

__all__ = ["of_batch", "of_streams"]


def of_streams(intervals: Sequence[Interval], found: Summary, *, equal: bool) -> pages.Report:
    """Both streams; the tasks are those of the last interval."""
    last = intervals[-1]
    by_hash, routed = (
        {task: float(load) for task, load in enumerate(arm["loads"])}
        for arm in (last.hash, last.routed)
    )
    page = pages.build(
        "By hash and routed",
        loads=by_hash,
        intervals=[_interval(one) for one in intervals],
        facts=[
            *_ratios("mean of the intervals", found.max_over_mean),
            pages.Fact("slowest tasks by hash", f"{found.slowest_seconds[0]:.1f} s", "in all"),
            pages.Fact("slowest tasks routed", f"{found.slowest_seconds[1]:.1f} s", "in all"),
            pages.Fact("state moved", in_bytes(found.bytes_moved), f"{found.keys_moved:,} keys"),
            pages.Fact("results", *(("equal", "", "good") if equal else ("not equal", "", "bad"))),
        ],
        subtitle=f"{found.intervals} intervals, {found.rows:,} rows. Tasks are those of the last:"
        " before is by hash, after is routed. Over time it is as routed.",
        made=_made(),
    )
    labels = tuple(str(one.number) for one in intervals)
    lines = tuple(
        pages.Line(name, tuple(max_over_mean(getattr(one, arm)) - 1 for one in intervals), "share")
        for name, arm in (("by hash", "hash"), ("routed", "routed"))
    )
    both = pages.Series("Imbalance by hash and routed", labels, lines)
    others = tuple(series for series in page.series if series.title != "Imbalance")
    tasks = tuple(replace(row, after=routed[int(row.task)]) for row in page.tasks)
    return replace(page, tasks=tasks, tasks_after=True, series=(both, *others))


def _interval(one: Interval) -> pages.Interval:
    routed = one.routed
    return pages.Interval(
        str(one.number),
        dict(enumerate(map(float, routed["loads"]))),
        int(routed["bytes_moved"]),
        int(routed["keys_moved"]),
        applied=bool(routed["applied"]),
        reason=str(routed["reason"] or ""),
        seconds=float(routed["seconds"]),
    )


def of_batch(found: Result, names: Sequence[str], cost: str | None) -> pages.Report:
    """One's own files; loads and keys are those of the plan, and what was measured is beside."""
    return pages.build(
        f"Keys of {', '.join(names)}, by hash and routed",
        plan=found.made.plan,
        facts=_ratios("as measured", (found.hash.max_over_mean, found.routed.max_over_mean)),
        subtitle=f"{found.rows:,} rows on {found.tasks} tasks",
        made=_made(),
        unit=cost or "rows",
    )


def _ratios(about: str, pair: tuple[float, float]) -> list[pages.Fact]:
    better = "good" if pair[1] < pair[0] else ""
    return [
        pages.Fact("max/mean by hash", f"{pair[0]:.2f}", about, "bad" * (pair[0] > 1.1)),
        pages.Fact("max/mean routed", f"{pair[1]:.2f}", about, better),
    ]


def _made() -> str:
    now = datetime.datetime.now(datetime.UTC).isoformat(sep=" ", timespec="minutes")
    return f"pyroute {pyroute.__version__}, {now}"
