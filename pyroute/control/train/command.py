"""The command `pyroute train`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from pyroute.cli.errors import StoppedError
from pyroute.cli.options import Debug, Json, Quiet
from pyroute.cli.output import CommandError, Output
from pyroute.cli.reading import expect_place
from pyroute.control.mixed import Mixed, load
from pyroute.control.predictor import Predictor, write_whole
from pyroute.control.train.baselines import BASELINES
from pyroute.control.train.fitting import Config, Progress, fit
from pyroute.control.train.frame import Frame, filled, from_store, read
from pyroute.control.train.mixing import fit_mixed
from pyroute.control.train.table import Table, compare

__all__ = ["train"]

STORES = (".db", ".sqlite", ".sqlite3")


def train(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Parquet or CSV file of readings, a store's SQLite file, or postgresql://...",
        ),
    ],
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Weights file to write.")
    ] = Path("model.weights"),
    target: Annotated[
        str, typer.Option(metavar="COLUMN", help="What is to be forecast.")
    ] = "service_ms",
    time: Annotated[str, typer.Option(metavar="COLUMN", help="Time in seconds, in a file.")] = "ts",
    worker: Annotated[
        str, typer.Option(metavar="COLUMN", help="The worker, in a file; absent: there is one.")
    ] = "worker",
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="More of each worker; once for each. None: every other column of numbers.",
        ),
    ] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of the machine; once for each."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Train on this worker alone; once for each. None: on all that are there.",
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="On a logarithmic scale (times); once for each."),
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds of a step. None: the usual difference of times."),
    ] = None,
    last: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            metavar="S",
            help="Of a store, the last so many seconds. None: all that it keeps.",
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="better, mixed (the same and trees), idrnn or flat (as the paper prints them).",
        ),
    ] = "better",
    window: Annotated[int, typer.Option(min=1, metavar="N", help="Steps of a window.")] = 10,
    layers: Annotated[int, typer.Option(min=1, metavar="N", help="GRU layers of a tier.")] = 2,
    hidden: Annotated[int, typer.Option(min=1, metavar="N", help="Units of a layer.")] = 32,
    members: Annotated[
        int, typer.Option(min=1, metavar="N", help="Networks whose mean is the forecast.")
    ] = 3,
    blocks: Annotated[
        int, typer.Option(min=1, metavar="N", help="Blocks of 25 steps, at most.")
    ] = 80,
    judge: Annotated[
        float,
        typer.Option(min=0.05, max=0.9, metavar="X", help="Share of the latest rows to judge on."),
    ] = 0.25,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of all that is drawn.")] = 0,
    baselines: Annotated[bool, typer.Option(help="Fit the baselines too, for the table.")] = True,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Train a forecast of every worker's next step, and judge it against the baselines.

    Trained on the older rows and judged on the latest ones; then trained on all rows, and written
    for `pyroute control` or `Predictor.load`. After Ctrl-C the same call goes on where it was: the
    file beside the weights that ends in .part keeps how far it is.

    Examples
    --------
    pyroute train readings.parquet --worker vm --target cpu_pct --log net_rx_kbs

    pyroute train store.db --target service_ms --log service_ms -o service.weights
        --only count/3 --only count/4
    """
    output = Output(json=json, quiet=quiet)
    expect_place(out, "--out")
    if Path(source).is_dir():
        raise CommandError(f"{source}: expected a file or a store, got a directory")
    options: dict[str, Any] = {"target": target, "features": feature, "machine": machine or []}
    frame = _frame(source, time, worker, last, {**options, "only": only, "step": step})
    config = _config(kind, window, layers, hidden, members, blocks, tuple(log or ()), frame)
    start = round(len(frame) * (1 - judge))
    if start < 4 * window or len(frame) - start < 2:
        raise CommandError(f"rows: expected more than {6 * window} steps, got {len(frame)}")
    output.say(
        f"{len(frame):,} steps of {frame.step:g} s, {frame.workers.shape[1]} workers,"
        f" {len(frame.features)} features, {len(frame.columns)} of the machine"
    )
    parts = [out.with_name(f"{out.name}.{name}.part") for name in ("judged", "all")]
    kept = out.with_name(f"{out.name}.judged")
    names = tuple(BASELINES) if baselines else ("persistence",)
    with _resumable():
        with _progress(output, "judged", config) as shown:
            model = _once(kind, frame[:start], config, seed, parts[0], kept, shown)
        judged: dict[str, Any] = {"lags": window, "baselines": names, "runs": 10}
        table = compare(frame, start, {kind: [model]}, **judged, progress=output.say)
        with _progress(output, "all rows", config) as shown:
            final = _fitted(kind, frame, config, seed, parts[1], shown)
        final.save(out)
    for path in (kept, parts[0].with_suffix(".mark")):
        path.unlink(missing_ok=True)
    ratio = table.ratio(kind)[0]
    _show(output, table, kind)
    word = "beats" if ratio < 1 else "does not beat"
    output.results.print(
        f"written: {out}; {word} persistence on the latest rows ({100 * (ratio - 1):+.1f} %)",
        soft_wrap=True,
    )
    output.document(_document(out, final, table, kind, ratio))


@contextlib.contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError("the same command goes on where it was") from None


def _fitted(
    kind: str,
    frame: Frame,
    config: Config,
    seed: int,
    part: Path,
    shown: Callable[[Progress], None],
) -> Predictor | Mixed:
    if kind == "mixed":
        return fit_mixed(frame, config, seed=seed, checkpoint=part, progress=shown)
    return fit(frame, config, seed=seed, checkpoint=part, progress=shown).predictor()


def _once(
    kind: str,
    frame: Frame,
    config: Config,
    seed: int,
    part: Path,
    kept: Path,
    shown: Callable[[Progress], None],
) -> Any:
    """The model of the older rows; kept, because a stop may come after it."""
    mark = part.with_suffix(".mark")
    identity = repr((kind, config, seed, len(frame), float(filled(frame.matrix).sum())))
    if kept.exists() and mark.exists() and mark.read_text("utf-8") == identity:
        return load(kept)
    predictor = _fitted(kind, frame, config, seed, part, shown)
    predictor.save(kept)
    write_whole(mark, identity.encode())
    return predictor


def _frame(
    source: str, time: str, worker: str, last: float | None, options: dict[str, Any]
) -> Frame:
    if "://" in source or Path(source).suffix in STORES:
        return from_store(source, **options, last=last)
    if last is not None:
        raise CommandError("--last: expected a store, got a file")
    return read(source, time=time, worker=worker, **options)


def _config(
    kind: str,
    window: int,
    layers: int,
    hidden: int,
    members: int,
    blocks: int,
    log: tuple[str, ...],
    frame: Frame,
) -> Config:
    unknown = set(log) - {*frame.features, *frame.columns}
    if unknown:
        known = ", ".join([*frame.features, *frame.columns])
        raise CommandError(f"--log: expected one of {known}, got {', '.join(sorted(unknown))}")
    common: dict[str, Any] = {"window": window, "members": members, "blocks": blocks, "log": log}
    if kind in ("better", "mixed"):
        return Config(layers2=layers, hidden2=hidden, refit=kind == "better", **common)
    if kind == "idrnn":
        sizes = {"layers1": layers, "layers2": layers, "hidden1": hidden, "hidden2": hidden}
        return Config.printed(**sizes, **common)
    if kind == "flat":
        return Config.flat(layers1=layers, hidden1=hidden, **common)
    raise CommandError(f"--kind: expected better, mixed, idrnn or flat, got {kind}")


@contextlib.contextmanager
def _progress(output: Output, title: str, config: Config) -> Iterator[Callable[[Progress], None]]:
    if not output.is_live:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=output.progress, transient=True) as bar:
        task = bar.add_task(title, total=config.members * config.blocks, told="")

        def shown(now: Any) -> None:
            told = f"network {now.member + 1} of {now.members}, best {math.sqrt(now.best):.3f}"
            bar.update(task, completed=now.member * now.blocks + now.block, told=told)

        yield shown


def _show(output: Output, table: Table, kind: str) -> None:
    from rich.table import Table as Grid

    grid = Grid(title="errors on the latest rows", box=None, title_justify="left", pad_edge=False)
    grid.add_column("forecast", no_wrap=True)
    for name in ("RMSE", "by range", "to last", "free run", "to last"):
        grid.add_column(name, justify="right", no_wrap=True)
    free = table.row("persistence").free
    for row in sorted(table.rows, key=lambda row: row.rmse[0]):
        known = bool(row.free and free and free[0])
        grid.add_row(
            f"{row.name}{' *' if row.name == kind else ''}",
            f"{row.rmse[0]:.4g}",
            f"{row.normalised[0]:.4f}",
            f"{100 * (table.ratio(row.name)[0] - 1):+.1f} %",
            f"{row.free[0]:.4g}" if known else "-",
            f"{100 * (row.free[0] / free[0] - 1):+.1f} %" if known else "-",
        )
    output.results.print(grid)


def _document(
    out: Path, model: Predictor | Mixed, table: Table, kind: str, ratio: float
) -> dict[str, Any]:
    return {
        "weights": str(out),
        "kind": kind,
        "target": model.target,
        "window": model.window,
        "workers": model.workers,
        "judged_from": table.start,
        "to_persistence": _finite(ratio),
        "rows": [
            {
                "name": row.name,
                "rmse": _finite(row.rmse[0]),
                "normalised": _finite(row.normalised[0]),
                "free_run": _finite(row.free[0]) if row.free else None,
            }
            for row in table.rows
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
