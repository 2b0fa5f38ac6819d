"""What `pyroute run` shows: a table that grows on a terminal, lines elsewhere, and a summary."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from rich.live import Live
from rich.table import Table

from pyroute._plan_text import in_bytes
from pyroute.cli.output import Output
from spark_udf.run.batch import Result, plain
from spark_udf.run.stream import Interval, Summary, max_over_mean, ratio

_TASKS = 40
"""Tasks that a table lists at most."""


class Intervals:
    """The intervals as they come."""

    def __init__(self, output: Output) -> None:
        self._output, self._seen = output, list[Interval]()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._output.is_live:
            self._live = Live(console=self._output.progress, transient=True, auto_refresh=False)
            self._live.start()
            self._draw("the first interval starts Spark's Python workers")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._output.progress.print(interval_table(self._seen))

    def add(self, one: Interval) -> None:
        """Show one more."""
        self._seen.append(one)
        if self._live is not None:
            self._draw()
        else:
            self._output.say(interval_line(one))

    def _draw(self, caption: str | None = None) -> None:
        assert self._live is not None
        room = max(self._output.progress.height - 8, 3)  # a table higher than the terminal is cut
        self._live.update(interval_table(self._seen[-room:], caption), refresh=True)


def interval_line(one: Interval) -> str:
    """An interval in one line."""
    by_hash, routed = one.hash, one.routed
    return (
        f"interval {one.number:>3}: {by_hash['rows']:,} rows;"
        f" max/mean {max_over_mean(by_hash):.2f} by hash, {max_over_mean(routed):.2f} routed;"
        f" slowest task {by_hash['slowest_seconds']:.2f} s, {routed['slowest_seconds']:.2f} s;"
        f" moved {routed['keys_moved']:,} keys, {in_bytes(routed['bytes_moved'])};"
        f" plan {routed['plan_seconds'] * 1e3:.1f} ms" + (", applied" if routed["applied"] else "")
    )


def interval_table(intervals: Sequence[Interval], caption: str | None = None) -> Table:
    """Intervals as a table."""
    table = _table(caption)
    for title in ("interval", "rows", "max/mean\nhash", "\nrouted", "slowest task\nhash"):
        table.add_column(title, justify="right")
    for title in ("\nrouted", "moved\nkeys", "\nbytes", "plan\nms", ""):
        table.add_column(title, justify="right")
    for one in intervals:
        by_hash, routed = one.hash, one.routed
        table.add_row(
            *(str(one.number), f"{by_hash['rows']:,}"),
            *(f"{max_over_mean(by_hash):.2f}", f"{max_over_mean(routed):.2f}"),
            f"{by_hash['slowest_seconds']:.2f} s",
            f"{routed['slowest_seconds']:.2f} s",
            *(f"{routed['keys_moved']:,}", in_bytes(routed["bytes_moved"])),
            f"{routed['plan_seconds'] * 1e3:.1f}",
            "applied" if routed["applied"] else "",
        )
    return table


def _table(caption: str | None = None) -> Table:
    return Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
        caption=caption,
        caption_justify="left",
    )


def stream_summary(found: Summary, tasks: int, keys: int, equal: bool) -> list[str]:
    """The closing words of two streams, in lines."""
    moved = f"{found.keys_moved:,} keys, {in_bytes(found.bytes_moved)}"
    if found.state_bytes:
        moved += f", {found.bytes_moved / found.state_bytes:.1%} of the state"
    whole = f"{found.intervals} intervals, {found.rows:,} rows, {tasks} tasks"
    return [
        f"{whole}; all but the first interval, in which both route by hash:",
        _row("", "hash", "routed"),
        _row("max/mean load", *_all(found.max_over_mean, ".2f"), "mean of the intervals"),
        _row("", *_all(found.worst, ".2f"), "the worst of them"),
        _row("straggler", *_all(found.straggler, ".2f"), "slowest task over the median one"),
        _row(
            "slowest tasks",
            *_all(found.slowest_seconds, ".1f", " s"),
            _speed(found.slowest_seconds),
        ),
        _row(
            "processing", *_all(found.seconds, ".1f", " s"), f"{_speed(found.seconds)}, wall time"
        ),
        f"  state moved    {moved}; plans {found.plans}, {found.plan_seconds * 1e3:.1f} ms",
        f"  results        {_equal(equal)}: {keys:,} keys",
    ]


def _all(pair: tuple[float, float], form: str, unit: str = "") -> tuple[str, str]:
    by_hash, routed = (f"{number:{form}}{unit}" for number in pair)
    return by_hash, routed


def _row(name: str, by_hash: str, routed: str, note: str = "") -> str:
    return f"  {name:<13}{by_hash:>9}{routed:>9}   {note}".rstrip()


def _speed(pair: tuple[float, float]) -> str:
    times = ratio(pair)
    return f"{times:.2f}x as fast" if times >= 1 else f"{1 / times:.2f}x as slow"


def _equal(equal: bool) -> str:
    return "equal" if equal else "NOT EQUAL"


def batch_tables(found: Result) -> Iterator[Any]:
    """Tasks, and the hottest keys."""
    table = _table()
    for title in ("task", "hash", "routed", "", ""):
        table.add_column(title, justify="left" if not title else "right")
    scale = max(float(found.hash.cost.max()), float(found.routed.cost.max())) or 1.0
    for task in range(min(found.tasks, _TASKS)):
        both = [float(found.hash.cost[task]), float(found.routed.cost[task])]
        bars = ["#" * round(20 * cost / scale) for cost in both]
        table.add_row(str(task), *(f"{cost:,.0f}" for cost in both), *bars)
    yield ("cost" if found.costed else "rows") + " of each task:"
    yield table
    if found.tasks > _TASKS:
        yield f"... and {found.tasks - _TASKS} more"
    yield ""
    yield "the hottest keys:"
    table = _table()
    for title in ("key", "rows", "share", "by hash", "routed", ""):
        table.add_column(title, justify="left" if title in ("key", "") else "right")
    for one in found.hottest:
        table.add_row(
            ", ".join(str(plain(part)) for part in one.value),
            ("at most " if one.error else "") + f"{one.rows:,}",
            f"{one.share:.2%}",
            *(f"task {one.hash_task}", f"task {one.routed_task}"),
            "moved" if one.hash_task != one.routed_task else "",
        )
    yield table


def batch_summary(found: Result, *, named: bool) -> list[str]:
    """The closing words, in lines."""
    plan, stats = found.made.plan, found.made.statistics
    whole = f"{found.rows:,} rows, {len(stats.snapshot):,} keys, {found.tasks} tasks"
    both = found.hash.max_over_mean, found.routed.max_over_mean
    lines = [
        f"{whole}; statistics {stats.method}: {stats.reason}",
        f"  max/mean       {both[0]:.2f} by hash, {both[1]:.2f} routed",
        f"  keys moved     {len(plan.migrations):,}, planned in {plan.seconds * 1e3:.1f} ms",
        f"  rows           {_equal(found.equal)}",
    ]
    if not plan.feasible:
        lines.append("  not balanced as far as was asked for")
    return lines + [f"  because {one}" for one in (plan.reasons if named else ())]


@contextlib.contextmanager
def waiting(output: Output, text: str) -> Iterator[None]:
    """Say what takes a while, and that it goes on."""
    if output.is_live:
        with output.progress.status(text):
            yield
        return
    output.say(text)
    yield
