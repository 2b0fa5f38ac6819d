"""The command `pyroute simulate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pyroute.cli.options import (
    Capacity,
    Cost,
    Debug,
    Delimiter,
    Files,
    Format,
    HashKeys,
    Json,
    Key,
    MaxImbalance,
    MaxTable,
    Quiet,
    Report,
    State,
    Tasks,
    Text,
    Time,
)
from pyroute.cli.output import Output

__all__ = ["simulate"]


def simulate(
    files: Files = None,
    *,
    key: Key = None,
    interval: Annotated[
        str,
        typer.Option(metavar="LENGTH", help="10s, 5m, 1h with --time; else a number of records."),
    ] = "1000000",
    time: Time = None,
    cost: Cost = None,
    state: State = None,
    tasks: Tasks = 16,
    max_imbalance: MaxImbalance = 0.08,
    max_table: MaxTable = 3000,
    capacity: Capacity = None,
    report: Report = None,
    hash_keys: HashKeys = False,
    format: Format = None,  # noqa: A002
    text: Text = False,
    delimiter: Delimiter = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Say what each interval of a file would have looked like, by hash and with plans.

    A plan is made at the end of an interval from what it saw and routes the next ones, where the
    gate lets it: no plan knows the records it is judged on.

    Examples
    --------
    pyroute simulate orders.parquet --key customer --interval 5m --time at

    pyroute simulate clicks.csv --key user --interval 100000 --tasks 8 --json
    """
    from pyroute.analyze.over_time import Spans, intervals
    from pyroute.cli.analyze import _mean, _show_intervals
    from pyroute.cli.reading import (
        Namer,
        capacity_for,
        columns_of,
        expect_places,
        expect_records,
        progress,
        source_of,
        taken_as,
    )
    from pyroute.ring import Ring

    out = Output(json=json, quiet=quiet)
    expect_places(files or (), {"--report": report})
    columns = columns_of(key, cost, state, time)
    spans = Spans.of(interval, time is not None)
    source = source_of(files, columns, format, text, delimiter)
    namer, late, units = Namer(hash_keys), list[int](), list[str]()
    try:
        with progress(out, source) as advance:
            found = list(
                intervals(
                    *(source, columns, Ring(tasks), spans),
                    capacity=capacity or capacity_for(source),
                    max_imbalance=max_imbalance,
                    max_table=max_table,
                    advance=advance,
                    late=late.append,
                    taken=units.append,
                )
            )
    finally:
        source.close()
    expect_records(sum(one.records for one in found), source)
    _show_intervals(out, found, namer, most=40)
    if late:
        out.warn(
            f"note: {late[0]:,} records came after their interval was over; they count in a later"
            " one"
        )
    for unit in units:
        out.warn(f"note: {taken_as(columns, unit)}")
    if report is not None:
        _report(report, found, ", ".join(columns.keys), hash_keys)
    out.document(_document(found, namer, _mean))


def _document(found: list[Any], namer: Any, mean: Any) -> dict[str, Any]:
    return {
        "command": "simulate",
        "intervals": [one.document(namer.json) for one in found],
        "mean_max_by_mean_hash": mean([one.hash_ratio for one in found]),
        "mean_max_by_mean_planned": mean([one.routed_ratio for one in found]),
        "keys_moved": sum(one.keys_moved for one in found),
        "bytes_moved": sum(one.bytes_moved for one in found),
    }


def _report(path: Any, found: list[Any], keys: str, hashed: bool) -> None:
    from pyroute import report as pages

    page = pages.build(
        f"Intervals of {keys}",
        intervals=[
            pages.Interval(
                one.label,
                dict(enumerate(one.routed)),
                one.bytes_moved,
                one.keys_moved,
                reason=one.reason,
                name="with plans",
                others={"by hash": one.hash_ratio - 1},
            )
            for one in found
        ],
    )
    pages.write(page, path, hash_keys=hashed)
