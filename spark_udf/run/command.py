"""The command `pyroute run`: hash against routed, on a real Spark."""

from __future__ import annotations

import contextlib
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyspark
import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import pyroute
from pyroute import report as pages
from pyroute.cli.options import Debug, Json, Quiet, Report
from pyroute.cli.output import CommandError, FailedError, Output, to_json
from pyroute.cli.reading import expect_places
from spark_udf.columns import checked
from spark_udf.run import page, show
from spark_udf.run.batch import Files, compare, expect_columns
from spark_udf.run.session import directory, failure, reason, session
from spark_udf.run.stream import Comparison, Drift, Interval, Summary, in_key_order, in_order
from spark_udf.run.work import Totals

_GENERATED = ("intervals", "keys", "rows", "skew", "fluctuation", "drift", "seed")
_OWN = ("key", "cost", "stream", "interval", "top", "hash_keys")
_WAIT = 200.0
"""Microseconds that a row of the generated stream waits."""


def run(
    ctx: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILES",
            help="Parquet, CSV or JSON lines: files, directories, patterns. None: a stream is"
            " generated.",
            show_default=False,
        ),
    ] = None,
    *,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the key; several times for several.",
            show_default=False,
        ),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the cost of a row; without it 1.",
            show_default=False,
        ),
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="FILES as a stream, each an interval.")
    ] = False,
    interval: Annotated[
        int, typer.Option(min=1, metavar="N", help="Files in an interval of --stream.")
    ] = 1,
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many of the hottest keys to show.")
    ] = 10,
    hash_keys: Annotated[
        bool, typer.Option("--hash-keys", help="Show identities of keys, not their values.")
    ] = False,
    intervals: Annotated[int, typer.Option(min=2, metavar="N", help="Intervals to generate.")] = 12,
    keys: Annotated[
        int, typer.Option(min=2, metavar="N", help="Keys of the generated stream.")
    ] = 5_000,
    rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rows in each of its intervals.")
    ] = 40_000,
    skew: Annotated[
        float, typer.Option(min=0, metavar="X", help="Exponent of its Zipf distribution.")
    ] = 0.9,
    fluctuation: Annotated[
        float,
        typer.Option(min=0, metavar="X", help="How much a task's load changes when keys drift."),
    ] = 1.0,
    drift: Annotated[
        int, typer.Option(min=1, metavar="N", help="Intervals until other keys are hot.")
    ] = 4,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Another seed, another stream.")
    ] = 0,
    tasks: Annotated[int, typer.Option(min=1, metavar="N", help="Parallel tasks.")] = 8,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="X",
            help=f"Microseconds that each row of a stream waits, as for a service; {_WAIT:g} for a"
            " generated one, else 0.",
            show_default=False,
        ),
    ] = None,
    max_imbalance: Annotated[
        float, typer.Option(min=0, metavar="X", help="How far a load may be above the mean.")
    ] = 0.02,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="local[N], spark://HOST:PORT, ...; default: this machine."
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="NAME=VALUE, a setting of Spark; several times.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="A new directory for state, metrics, report and Spark's log."
        ),
    ] = None,
    report: Report = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show stragglers by hash and routed, on a real Spark.

    Without FILES a stream is generated whose hot keys change now and then, and the same keyed
    aggregation runs over it twice, by hash and routed, interval by interval, in turn. The rows
    wait, as if each asked a service, so that more tasks than processors show what they would.

    With FILES rows and cost of each task are measured both ways, with the hottest keys; with
    --stream they are counted as a stream. --report writes a page of it; --keep has one, too.

    Examples
    --------
    A generated stream:
        pyroute run
        pyroute run --intervals 20 --skew 1.0 --keep kept

    Your own files, and as a stream:
        pyroute run 'events/*.parquet' --key user_id --tasks 32
        pyroute run day1.csv day2.csv --key country --key city --cost bytes --stream

    On a cluster, for a program:
        pyroute run hdfs://host/events --key user_id --master spark://host:7077 --json
    """
    _expect_usage(ctx, files, key)
    expect_places(files or (), {"--report": report})
    output = Output(json=json, quiet=quiet)
    waits = (0.0 if files else _WAIT) if wait is None else wait
    default = f"local[{tasks}]" if waits and (stream or not files) else "local[*]"
    job = Job(
        *(tasks, max_imbalance, waits, master or default, _settings(conf, tasks), debug),
        short=not files,
    )
    with directory(keep) as path:
        here = Place(path, keep is not None, output, report, hash_keys)
        if not files:
            stream_of = Drift(intervals, keys, rows, tasks, skew, fluctuation, drift, seed)
            found = _generated(job, here, stream_of)
        elif stream:
            found = _streamed(job, here, _Own(tuple(files), tuple(key or ()), cost), interval)
        else:
            own = _Own(tuple(files), tuple(key or ()), cost)
            found = _batch(job, here, own, top, hash_keys)
        here.finish({"pyroute": pyroute.__version__, "command": "run", **found})


@dataclass(frozen=True)
class Job:
    """What all ways to run share."""

    tasks: int
    max_imbalance: float
    wait: float
    """Microseconds."""
    master: str
    settings: Mapping[str, str]
    debug: bool
    short: bool
    """Whether Java has little to do."""

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "tasks": self.tasks,
            "max_imbalance": self.max_imbalance,
            "wait_microseconds": self.wait,
            "master": self.master,
            "spark": pyspark.__version__,
            "python": platform.python_version(),
        }


@dataclass
class Place:
    """Where results go: the working directory and the user."""

    path: Path
    kept: bool
    output: Output
    report: Path | None = None
    """Where the page goes, beside the one that is kept."""
    hashed: bool = False

    def session(self, job: Job) -> contextlib.AbstractContextManager[SparkSession]:
        """Spark."""
        return session(
            *(self.path, job.master, job.settings),
            output=self.output,
            debug=job.debug,
            short=job.short,
        )

    def close(self, lines: Sequence[str]) -> None:
        """Show the closing words, and keep them."""
        for line in ("", *lines):
            self.output.results.print(line, soft_wrap=True)
        if self.kept:
            (self.path / "report.txt").write_text("\n".join([*lines, ""]))

    def write(self, made: pages.Report) -> None:
        """Write the page to where it is wanted."""
        if self.kept:
            pages.write(made, self.path / "report.html", hash_keys=self.hashed)
        if self.report is not None:
            pages.write(made, self.report, hash_keys=self.hashed)
            self.output.say(f"open {self.report}")

    def finish(self, document: Mapping[str, Any]) -> None:
        """Keep and give the document; results that differ are an error."""
        if self.kept:
            (self.path / "report.json").write_text(to_json(document))
            self.output.say(f"kept in {self.path}")
        self.output.document(document)
        if not document["equal"]:
            raise FailedError("results: expected equal ones by hash and routed, got others")


@dataclass(frozen=True)
class _Own:
    """The user's files."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    cost: str | None


def _expect_usage(ctx: typer.Context, files: Sequence[str] | None, key: Any) -> None:
    """Options of the other way to run are an error: they would do nothing."""
    wrong = _GENERATED if files else _OWN
    kind = "for a generated stream, without FILES" if files else "for FILES"
    for name in wrong:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"--{name.replace('_', '-')} is {kind}")
    if files and not key:
        raise typer.BadParameter("FILES: expected --key COLUMN with them, got none")


def _settings(conf: Sequence[str] | None, tasks: int) -> dict[str, str]:
    settings = {"spark.sql.shuffle.partitions": str(tasks)}
    for one in conf or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--conf: expected NAME=VALUE, got {one}")
        settings[name] = value
    return settings


# -- streams


def _generated(job: Job, here: Place, stream: Drift) -> dict[str, Any]:
    output = here.output
    output.say(
        f"{stream.intervals} intervals of {stream.rows:,} rows, {stream.keys:,} keys, other keys"
        f" hot every {stream.drift} intervals; {job.tasks} tasks, where each row waits"
        f" {job.wait:g} us"
    )
    expected = stream.write(here.path / "intervals")
    work = Totals(("user",), summed="amount", wait=job.wait * 1e-6)
    with _started(job, here) as spark:
        made = _compared(job, here, spark, work, "user string, amount bigint", None)
    equal = made.equal and made.same(in_key_order(expected, work.keys))
    return _told(job, here, made, equal, {"mode": "generated", "stream": asdict(stream)})


def _streamed(job: Job, here: Place, own: _Own, size: int) -> dict[str, Any]:
    files = Files.of(own.names, one_by_one=True)
    places = [files.places[at : at + size] for at in range(0, len(files.places), size)]
    if len(places) < 2:
        raise CommandError(f"FILES: expected at least 2 intervals with --stream, got {len(places)}")
    with _started(job, here) as spark:
        df = files.read(spark)
        expect_columns(df, own.keys, own.cost)
        names = [field.name for field in checked(df, own.keys).fields]
        chosen = list(dict.fromkeys([*own.keys, *([own.cost] if own.cost else [])]))
        with show.waiting(here.output, f"reading {len(files.places)} files"):
            for number, some in enumerate(places):
                _stage(files.read(spark, *some).select(*chosen), here.path, number)
        count = "n"
        while count in names:
            count += "_"
        work = Totals(tuple(names), count, wait=job.wait * 1e-6)
        schema = df.select(*chosen).schema
        cost = schema.names[chosen.index(own.cost)] if own.cost else None  # it may be a key, too
        made = _compared(job, here, spark, work, schema, cost)
    shown = {"mode": "stream", "files": list(files.places), "keys": list(own.keys)}
    return _told(job, here, made, made.equal, {**shown, "cost": own.cost})


def _stage(df: DataFrame, path: Path, number: int) -> None:
    """The columns that count, as one file: a stream takes files in the order of their times."""
    folder = path / "tmp" / f"interval-{number}"
    df.coalesce(1).write.parquet(f"file://{folder}")
    parts = list(folder.glob("part-*.parquet"))
    if not parts:
        raise CommandError(
            f"--keep: expected a directory that all hosts share, got {path}: what was written"
            " there elsewhere is not here"
        )
    target = path / "intervals" / f"{number:06d}.parquet"
    target.parent.mkdir(exist_ok=True)
    shutil.move(parts[0], target)
    in_order(target, number)


@dataclass(frozen=True)
class _Made:
    """What two streams came to."""

    intervals: list[Interval]
    results: tuple[pa.Table, pa.Table]

    @property
    def equal(self) -> bool:
        return self.same(self.results[0])

    def same(self, table: pa.Table) -> bool:
        """Whether the routed stream ended with these rows."""
        mine = self.results[1]
        return bool(table.num_rows == mine.num_rows and mine.equals(table.cast(mine.schema)))


def _compared(
    job: Job, here: Place, spark: SparkSession, work: Totals, schema: Any, cost: str | None
) -> _Made:
    def read() -> DataFrame:
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return source.parquet(f"file://{here.path / 'intervals'}")

    both = Comparison(
        *(read, work, job.tasks, here.path),
        cost=cost,
        max_imbalance=job.max_imbalance,
    )
    seen = []
    with show.Intervals(here.output) as shown, contextlib.closing(both.intervals()) as intervals:
        for one in intervals:
            seen.append(one)
            shown.add(one)
    return _Made(seen, (both.result("hash"), both.result("routed")))


def _told(
    job: Job, here: Place, made: _Made, equal: bool, shown: Mapping[str, Any]
) -> dict[str, Any]:
    summary = Summary.of(made.intervals)
    here.close(show.stream_summary(summary, job.tasks, made.results[1].num_rows, equal))
    here.write(page.of_streams(made.intervals, summary, equal=equal))
    return {
        **shown,
        "options": job.document(),
        "intervals": [one.document() for one in made.intervals],
        "summary": summary.document(),
        "keys_seen": made.results[1].num_rows,
        "equal": equal,
    }


# -- batch


def _batch(job: Job, here: Place, own: _Own, top: int, hashed: bool) -> dict[str, Any]:
    files = Files.of(own.names)
    with _started(job, here) as spark:
        df = files.read(spark)
        with show.waiting(here.output, "statistics, plan, and both ways"):
            found = compare(
                *(df, own.keys),
                cost=own.cost,
                tasks=job.tasks,
                max_imbalance=job.max_imbalance,
                hottest=top,
                hashed=hashed,
            )
    for one in show.batch_tables(found):
        if not here.output.quiet:
            here.output.results.print(one)
    here.close(show.batch_summary(found, named=not hashed))
    here.write(page.of_batch(found, own.keys, own.cost))
    return {
        "mode": "batch",
        "files": list(files.places),
        "keys": list(own.keys),
        "cost": own.cost,
        "options": job.document(),
        **found.document(named=not hashed),
    }


@contextlib.contextmanager
def _started(job: Job, here: Place) -> Any:
    """Spark, with its errors in one line."""
    with contextlib.ExitStack() as stack:
        with show.waiting(here.output, f"starting Spark {pyspark.__version__} on {job.master}"):
            spark = stack.enter_context(here.session(job))
        try:
            yield spark
        except (PySparkException, Py4JError) as error:
            raise failure(error)(f"Spark: {reason(error)} (--keep keeps its log)") from error
