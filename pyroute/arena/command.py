"""The command `pyroute arena`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyroute import policies
from pyroute.arena.plot import svg
from pyroute.arena.replay import Cluster, Replay, replay
from pyroute.arena.trace import Trace
from pyroute.cli.options import Debug, Delimiter, Format, Json, Quiet, Text
from pyroute.cli.output import CommandError, Output
from pyroute.cli.reading import atomic, expect_places
from pyroute.workloads import timed_items

if TYPE_CHECKING:
    from pyroute.analyze.source import Source

__all__ = ["arena"]

DEFAULT = ["shuffle", "load-aware shuffle", "power of two choices", "POSG", "pooled"]
CEILING = "full knowledge"


def arena(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            help="Parquet, CSV, JSON lines or Arrow files, directories, globs, or - for stdin."
            " None: the stream of the paper is generated.",
            show_default=False,
        ),
    ] = None,
    *,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of the key; several times for several."),
    ] = None,
    cost: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the time of a record.")
    ] = None,
    arrival: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the time it came.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column with the bytes that it adds to its key's state."
        ),
    ] = None,
    origin: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the server it comes from.")
    ] = None,
    unit: Annotated[
        float, typer.Option(metavar="X", help="Units of cost in one unit of arrival.")
    ] = 1.0,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The first so many records.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Policy, several times for several; 'all' for every one."
        ),
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 5,
    speed: Annotated[
        list[float] | None,
        typer.Option(metavar="X", help="Time at a task by usual time; once for each task."),
    ] = None,
    provisioning: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="PERCENT",
            help="What tasks can do, by what comes: arrivals are stretched to it, or made even"
            " where there are none. 102 without --arrival.",
        ),
    ] = None,
    delay: Annotated[float, typer.Option(min=0, metavar="T", help="Way to a task.")] = 0.0,
    age: Annotated[
        float, typer.Option(min=0, metavar="T", help="Age of what is known of queues.")
    ] = 0.0,
    refresh: Annotated[
        float | None,
        typer.Option(metavar="T", help="Between two looks of load-aware shuffle; 50 mean costs."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="T", help="Later records count as failed.")
    ] = None,
    merge: Annotated[
        float, typer.Option(min=0, metavar="T", help="Time to merge a partial result.")
    ] = 0.0,
    bandwidth: Annotated[
        float | None,
        typer.Option(min=0, metavar="X", help="Bytes of state moved per unit of time."),
    ] = None,
    interval: Annotated[
        int, typer.Option(min=1, metavar="N", help="Records between two plans.")
    ] = 10_000,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of all that is drawn.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw completion times over the stream, as SVG."),
    ] = None,
    format: Format = None,  # noqa: A002
    text: Text = False,
    delimiter: Delimiter = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Replay a trace under several policies, with the same metrics for all.

    Records come, wait in the queue of the task that a policy chose, and are served one by one.
    Times are in the unit of the arrivals. 'full knowledge' is added as the ceiling.
    Columns: completion time (mean, p99), records per unit of time, greatest load by mean load,
    tasks that hold a key, messages besides the records and their bytes, bytes of state moved,
    share of records that stay on their server, records beyond the time-out, time of a decision.

    Examples
    --------
    pyroute arena --tasks 5 --provisioning 102

    pyroute arena spans.parquet --key operation --cost duration_us --arrival ts_us --policy all
    """
    out = Output(json=json, quiet=quiet)
    expect_places(files or (), {"--plot": plot})
    if not unit > 0:
        raise CommandError(f"--unit: expected more than 0, got {unit:g}")
    if not files:
        for name, given in (("--key", key), ("--cost", cost), ("--arrival", arrival)):
            if given:
                raise CommandError(f"{name}: expected a FILE with it, got none")
        values, costs = timed_items(limit or 32_768, seed=seed)
        trace = Trace.of(values, costs, name="generated")
    elif not key or cost is None:
        raise CommandError("--key and --cost: expected both with a FILE, got one or none")
    else:
        from pyroute.analyze.source import Source

        named = {"cost": cost, "arrival": arrival, "size": size, "origin": origin}
        columns = [*key, *(column for column in named.values() if column is not None)]
        texts = key if text else ()
        source = Source.of(files, columns, kind=format, texts=texts, delimiter=delimiter)
        trace = _trace(source, key=key, **named, unit=unit, limit=limit)
    if provisioning is not None or arrival is None:
        trace = trace.stretched(provisioning or 102.0, tasks)
    cluster = Cluster(
        tasks,
        speeds=speed or None,
        delays=delay,
        age=age,
        refresh=refresh or 50 * float(trace.costs.mean()),
        timeout=timeout,
        merge=merge,
        bandwidth=bandwidth or float("inf"),
        interval=interval,
    )
    names = _names(policy)
    with _progress(out, len(names) * len(trace)) as shown:
        played = replay(trace, names, cluster, seed=seed, progress=shown)
    if plot is not None:
        with atomic(plot) as made:
            made.write_text(svg(played), "utf-8")
        out.say(f"written: {plot}")
    _show(out, trace, cluster, played)
    out.document(
        {
            "trace": {"name": trace.name, "records": len(trace), "keys": len(trace.distinct)},
            "tasks": tasks,
            "results": [_finite(each.result.row()) for each in played],
        }
    )


def _trace(source: Source, **columns: Any) -> Trace:
    """The records of some files."""
    from pyroute.analyze.source import InputError

    names = [file.name for file in source.files]
    named = names[0] if len(names) == 1 else f"{len(names)} files"
    try:
        batches = (batch.data for batch in source.batches())
        return Trace.read(batches, **columns, name=Path(named).stem)
    except InputError:
        raise
    except (OSError, ValueError, TypeError) as error:  # Arrow's are of these
        raise CommandError(f"{named}: {error}") from error
    finally:
        source.close()


def _names(policy: list[str] | None) -> list[str]:
    if policy == ["all"]:
        return list(policies.ALL)
    names = list(dict.fromkeys(policy or DEFAULT))
    for name in names:
        policies.make(name)
    return names if CEILING in names else [*names, CEILING]


@contextlib.contextmanager
def _progress(out: Output, total: int) -> Iterator[Callable[[str, int, int], None]]:
    if not out.is_live:
        yield lambda _name, _played, _all: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description:24}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=out.progress, transient=True) as bar:
        task = bar.add_task("", total=total)
        before = [0]

        def shown(name: str, played: int, everything: int) -> None:
            bar.update(task, description=name, completed=before[0] + played)
            if played == everything:
                before[0] += everything

        yield shown


def _show(out: Output, trace: Trace, cluster: Cluster, played: list[Replay]) -> None:
    from rich.table import Table

    distinct = len(trace.distinct)
    title = f"{trace.name}: {len(trace):,} records of {distinct:,} keys on {cluster.tasks} tasks"
    table = Table(title=title, box=None, title_justify="left", pad_edge=False)
    shown: list[tuple[str, Callable[[Any], str]]] = [
        ("mean", lambda r: _short(r.mean)),
        ("p99", lambda r: _short(r.p99)),
        ("rate", lambda r: _short(r.throughput)),
        ("load", lambda r: f"{r.imbalance:.3f}"),
        ("copies", lambda r: f"{r.replicas:.2f}"),
        ("sent", lambda r: _short(r.messages)),
        ("bytes", lambda r: _short(r.message_bytes)),
        ("moved", lambda r: _short(r.migrated_bytes)),
        ("local", lambda r: "-" if r.locality is None else f"{r.locality:.0%}"),
        ("late", lambda r: _short(r.failed)),
        ("ns", lambda r: _short(round(r.decision_ns))),
    ]
    results = sorted((each.result for each in played), key=lambda result: result.mean)
    table.add_column("policy", no_wrap=True)
    cells = {name: [value(result) for result in results] for name, value in shown}
    cells = {name: column for name, column in cells.items() if set(column) - {"0", "-"}}
    for name in cells:
        table.add_column(name, justify="right", no_wrap=True)
    for row, result in enumerate(results):
        table.add_row(result.policy, *(column[row] for column in cells.values()))
    out.results.print(table)


def _short(number: float) -> str:
    """Four digits at most."""
    for suffix in ("", "k", "M", "G"):
        if abs(number) < 9999.5:
            whole = suffix == "" and number == int(number)
            return f"{number:.0f}" if whole else f"{number:.4g}{suffix}"
        number /= 1000
    return f"{number:.4g}T"


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {
        name: None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
        for name, value in row.items()
    }
