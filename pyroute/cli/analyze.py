"""The command `pyroute analyze`."""

from __future__ import annotations

import inspect
import time as clock
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from pyroute.cli.output import CommandError, Output

if TYPE_CHECKING:
    from pyroute.analyze.findings import Findings, TableLoad
    from pyroute.analyze.locality import Stay
    from pyroute.analyze.over_time import Interval
    from pyroute.analyze.scan import Columns, Pass
    from pyroute.cli.reading import Namer
    from pyroute.report.model import Locality

__all__ = ["analyze"]

WORTH = 0.05
"""Share of the records that a plan has to keep on their server beyond hashing, to be advised."""


def analyze(
    files: Files = None,
    *,
    key: Key = None,
    cost: Cost = None,
    state: State = None,
    tasks: Tasks = 16,
    interval: Annotated[
        str | None,
        typer.Option(metavar="LENGTH", help="Also over time: 10s, 5m, 1h with --time, or records."),
    ] = None,
    time: Time = None,
    pair: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Key of the step after: how many records could stay on their server.",
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(metavar="NAME", help="Whose own hash to show: spark, kafka, flink, storm."),
    ] = "spark",
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Hot keys that are listed.")] = 10,
    max_imbalance: MaxImbalance = 0.08,
    max_table: MaxTable = 3000,
    capacity: Capacity = None,
    report: Report = None,
    hash_keys: HashKeys = False,
    spark_log: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Read Spark's event logs instead: which stages wait for one task."
        ),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Analyze a small file of made-up orders.")
    ] = False,
    format: Format = None,  # noqa: A002
    text: Text = False,
    delimiter: Delimiter = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Say how skewed a file is, which keys are hot, and what would help.

    One pass, in bounded memory. The count of a hot key is exact, or has a bound beside it. 'by the
    mean' is the load of the busiest task by the mean load: 1.00 is perfect, 2.00 means that all
    wait for a task with twice its share.

    With --pair records go on to a second keyed step, which has as many tasks: a plan is made from
    the first half of the records and judged on the rest.

    Examples
    --------
    pyroute analyze --sample

    pyroute analyze orders.parquet --key customer --tasks 200 --report report.html

    pyroute analyze 'logs/*.jsonl' --key user --key shop --cost ms --interval 5m --time at

    pyroute analyze orders.parquet --key customer --pair product --tasks 8

    pyroute analyze --spark-log /var/log/spark-events
    """
    out = Output(json=json, quiet=quiet)
    if spark_log is not None:
        from pyroute.cli.spark_log import show_logs

        if files or key or sample:
            raise CommandError("--spark-log: expected it without FILE, --key and --sample")
        show_logs(spark_log, out)
        return
    from pyroute.cli.reading import Namer, columns_of

    _check(engine, time, interval, files, report, pair, tasks)
    if sample:
        if files or key:
            raise CommandError("--sample: expected no FILE and no --key with it")
        files, key, cost = [str(_sample_file(out))], ["customer"], None
    columns = columns_of(key, cost, state, time, pair)
    began = clock.perf_counter()
    reading = _Reading(
        list(files or ()), columns, (format, text, delimiter), tasks, engine, capacity
    )
    found, spans, source = reading.read(out, interval, max_imbalance, max_table)
    kept = reading.stay
    seconds = clock.perf_counter() - began
    namer = Namer(hash_keys)
    if report is not None:  # first: who reads the text may close the pipe, as `head` does
        _write_report(report, found, spans, kept, columns, namer.salt or False, source, cost)
    _show(out, found, spans, columns, namer, top, seconds, source)
    if kept is not None:
        _show_stay(out, kept)
    for line in reading.notes:
        out.warn(f"note: {line}")
    limits = {"--max-imbalance": max_imbalance, "--max-table": max_table, "--capacity": capacity}
    more = _flags(
        {"--format": format, "--text": text, "--delimiter": delimiter} | _other_than_default(limits)
    )
    lines = [*_next_to_stay(kept), *_next(found, columns, list(files or ()), more, sample)]
    if not json:
        out.results.print("\nNext" if lines else "", soft_wrap=True)
        for line in lines:
            out.results.print(f"  {line}", soft_wrap=True)
        if report is not None:
            out.results.print(f"  open {report}", soft_wrap=True)
    out.document(
        {
            "command": "analyze",
            "files": list(files or ()),
            "keys": list(columns.keys),
            "cost": cost,
            "seconds": seconds,
            **found.document(top, namer.json),
            "intervals": [one.document(namer.json) for one in spans],
            "locality": None if kept is None else kept.document(),
            "next": lines,
            "notes": reading.notes,
        }
    )


def _check(
    engine: str,
    time: str | None,
    interval: str | None,
    files: Sequence[str] | None,
    report: Path | None,
    pair: str | None,
    tasks: int,
) -> None:
    """Options that cannot be used, before anything is read."""
    from pyroute.analyze.scan import ENGINES
    from pyroute.cli.reading import expect_places

    if engine not in ENGINES:
        raise CommandError(f"--engine: expected one of {', '.join(ENGINES)}, got {engine}")
    if time is not None and interval is None:
        raise CommandError("--time: expected --interval LENGTH with it, got none")
    if pair is not None:
        from pyroute.analyze.locality import MOST_TASKS

        if not 2 <= tasks <= MOST_TASKS:
            raise CommandError(f"--pair: expected 2 to {MOST_TASKS} --tasks with it, got {tasks}")
    expect_places(files or (), {"--report": report})


def _sample_file(out: Output) -> Path:
    from pyroute.analyze.sample import NAME, write_sample
    from pyroute.cli.reading import atomic

    path = Path(NAME)
    if not path.exists():
        with atomic(path) as made:
            write_sample(made)
        out.say(f"wrote {path}, made-up orders")
    return path


class _Reading:
    """One pass over files, with intervals where they are asked for."""

    def __init__(
        self,
        files: list[str],
        columns: Columns,
        how: tuple[str | None, bool, str | None],
        tasks: int,
        engine: str,
        capacity: int | None,
    ) -> None:
        from pyroute.cli.reading import capacity_for, source_of
        from pyroute.ring import Ring

        self._source = source_of(files, columns, *how)
        self._columns, self._engine = columns, engine
        self._ring = Ring(tasks)
        self._capacity = capacity or capacity_for(self._source)
        self.notes: list[str] = []
        self.stay: Stay | None = None

    def _pass(self) -> Pass:
        from pyroute.analyze.scan import Pass

        pairs = None
        if self._columns.pair is not None:
            from pyroute.analyze.locality import PairChunks

            pairs = PairChunks(self._columns.keys, self._columns.pair)
        return Pass(
            self._columns,
            capacity=self._capacity,
            bits=len(self._ring.owners).bit_length() - 1,
            tasks=len(self._ring.tasks),
            engine=self._engine,
            pairs=pairs,
        )

    def read(
        self, out: Output, interval: str | None, max_imbalance: float, max_table: int
    ) -> tuple[Findings, list[Interval], str]:
        """Findings, intervals, and the name of what was read."""
        from pyroute.analyze.findings import find
        from pyroute.analyze.over_time import Spans, intervals
        from pyroute.analyze.scan import scan
        from pyroute.cli.reading import expect_records, progress, taken_as

        source = self._source
        limits: dict[str, Any] = {"max_imbalance": max_imbalance, "max_table": max_table}
        spans: list[Interval] = []
        try:
            with progress(out, source) as advance:
                if interval is None:
                    whole = scan(source, self._pass, advance)
                else:
                    whole = self._pass()
                    cut = Spans.of(interval, self._columns.time is not None)
                    spans += intervals(
                        *(source, self._columns, self._ring, cut),
                        capacity=self._capacity,
                        whole=whole,
                        advance=advance,
                        late=self._late,
                        taken=lambda unit: self.notes.append(taken_as(self._columns, unit)),
                        **limits,
                    )
        finally:
            source.close()
        expect_records(whole.profile.records, source)
        found = find(whole, self._ring, **limits)
        if whole.homeless:
            self.notes.append(
                f"--engine {self._engine}: its own hash is not known here: {whole.homeless}"
            )
        if whole.pairs is not None:
            from pyroute.analyze.locality import stay

            self.stay = stay(whole.pairs, len(self._ring.tasks), **limits)
        names = [file.name for file in source.files]
        named = names[0] if len(names) == 1 else f"{len(names)} files"
        return found, spans, named

    def _late(self, count: int) -> None:
        self.notes.append(
            f"{count:,} records are older than the ones before them by an interval or more, and"
            " count in a later one: sort by the time, or take longer intervals"
        )


# on the screen


def _show(
    out: Output,
    found: Findings,
    spans: Sequence[Interval],
    columns: Columns,
    namer: Namer,
    top: int,
    seconds: float,
    source: str,
) -> None:
    if out.json:
        return
    say = out.results.print
    keys = f"about {_rounded(found.distinct)} keys"
    if found.exact:
        keys = _counted(round(found.distinct), "key")
    rate = found.records / max(seconds, 1e-9)
    say(
        f"{source}: {_counted(found.records, 'record')}, {keys} of {', '.join(columns.keys)}"
        f" ({seconds:.1f} s, {_rounded(rate)} records a second)",
        soft_wrap=True,
    )
    shares = [(k, found.share(k)) for k in (1, 10, 100, 1000) if k == 1 or k < found.distinct]
    told = ", ".join(
        f"the hottest key {share:.1%}" if k == 1 else f"{k:,} hottest {share:.1%}"
        for k, share in shares
    )
    zipf = "" if found.exponent is None else f"like Zipf {found.exponent:.2f}; "
    unit = "cost" if columns.cost else "records"
    say(f"Skew     {zipf}share of {unit}: {told}", soft_wrap=True)
    fair = found.total / found.tasks
    say(
        f"Hot keys (a fair share of {_counted(found.tasks, 'task')} is {fair:,.6g} {unit})",
        style="bold",
        soft_wrap=True,
    )
    say(_hot_table(found, namer, top, unit))
    if not found.exact:
        most = found.unlisted
        say(
            f"  no key beside the {len(found.hot.values):,} that were followed has more than"
            f" {most:,.6g} {unit}",
            soft_wrap=True,
        )
    say(f"Busiest of {_counted(found.tasks, 'task')}, by the mean", style="bold", soft_wrap=True)
    say(_load_table(found))
    for reason in _reasons(found, namer):
        say(f"  {reason}", soft_wrap=True)
    if spans:
        _show_intervals(out, spans, namer)


def _hot_table(found: Findings, namer: Namer, top: int, unit: str) -> Any:
    low, error = found.loads
    fair = found.total / found.tasks
    bounded = bool(error[:top].any())
    table = _table()
    for title in ("", "key", unit, *(["at most"] if bounded else []), "share", "fair shares"):
        table.add_column(title, justify="left" if title == "key" else "right")
    table.add_column("home")
    router = found.plan.router
    assert router is not None
    homes = router.route(found.hot.values[:top])
    for i in range(min(top, len(low))):
        more = [f"{low[i] + error[i]:,.6g}" if error[i] else "exact"] if bounded else []
        share = low[i] / found.total if found.total else 0.0
        table.add_row(
            str(i + 1),
            namer.text(found.hot.values[i]),
            _amount(low[i]),
            *more,
            f"{share:.2%}",
            f"{low[i] / fair:.2f}" if fair else "",
            str(int(homes[i])),
        )
    return table


def _load_table(found: Findings) -> Any:
    table = _table()
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    for one in found.hashes:
        name = "hash, pyroute's ring" if one.name == "ring" else f"hash, as {one.name} does it"
        about = "" if one.exact else "about "
        table.add_row(name, f"{about}{one.max_by_mean:.2f}", _bar(one.max_by_mean))
    for row in _telling(found):
        entries = f"{row.entries:,} entr{'y' if row.entries == 1 else 'ies'}"
        name = f"table of {entries}" if row.entries else "no table needed"
        if row.split:
            name += f", {row.split} key{'s' * (row.split > 1)} split"
        table.add_row(name, f"{row.max_by_mean:.2f}", _bar(row.max_by_mean))
    return table


def _telling(found: Findings) -> list[TableLoad]:
    """The rows that say something new: each a step better than the one before, and the last."""
    kept: list[TableLoad] = []
    before = found.hashes[0].max_by_mean
    for row in found.tables:
        if row is found.tables[-1] or row.max_by_mean < 1 + 0.9 * (before - 1):
            kept.append(row)
            before = row.max_by_mean
    return kept


def _reasons(found: Findings, namer: Namer) -> list[str]:
    """Why no table gives more; without keys where those are hidden."""
    if namer.hides:
        count = len(found.plan.giants)
        return [f"{count} keys are each more than a task may carry"] if count else []
    return found.plan.reasons[:3]


def _show_intervals(out: Output, spans: Sequence[Interval], namer: Namer, most: int = 12) -> None:
    worst = f" (the {most} worst by hash)" if len(spans) > most else ""
    title = f"Over time: {_counted(len(spans), 'interval')}; plans know the past alone{worst}"
    out.results.print(title, style="bold", soft_wrap=True)
    out.results.print(_interval_table(spans, namer, most))


def _interval_table(spans: Sequence[Interval], namer: Namer, most: int) -> Any:
    table = _table()
    for title in ("interval", "records", "hash", "planned", "moved", "table", "hottest", "share"):
        justify = "left" if title in ("interval", "hottest") else "right"
        table.add_column(title, justify=justify, no_wrap=title == "interval")
    shown = sorted(range(len(spans)), key=lambda i: (-spans[i].hash_ratio, i))[:most]
    for one in (spans[i] for i in sorted(shown)):
        table.add_row(
            one.label,
            f"{one.records:,}",
            f"{one.hash_ratio:.2f}",
            f"{one.routed_ratio:.2f}",
            f"{one.keys_moved:,}",
            f"{one.entries:,}",
            namer.text(one.hottest),
            f"{one.hottest_share:.1%}",
        )
    table.add_section()
    table.add_row(
        *("mean", ""),
        f"{_mean([one.hash_ratio for one in spans]):.2f}",
        f"{_mean([one.routed_ratio for one in spans]):.2f}",
        f"{sum(one.keys_moved for one in spans):,}",
    )
    return table


def _show_stay(out: Output, kept: Stay) -> None:
    say = out.results.print
    title = f"Locality: records that stay on their server, {kept.name}, {kept.tasks} tasks of each"
    say(title, style="bold", soft_wrap=True)
    samples = [kept.in_sample, *([kept.out_of_sample] if kept.out_of_sample is not None else [])]
    table = _table()
    table.add_column("")
    for name in ("in sample", "out of sample")[: len(samples)]:
        table.add_column(name, justify="right")
    table.add_row("hash", *(f"{one.by_hash:.1%}" for one in samples))
    table.add_row("planned", *(f"{one.planned:.1%}" for one in samples))
    if not kept.exact:
        table.add_row("planned, at least", *(f"{one.at_least:.1%}" for one in samples))
    for i, name in enumerate((", ".join(kept.keys), kept.pair)):
        table.add_row(f"busiest of {name}, hash", *(f"{o.busiest_by_hash[i]:.2f}" for o in samples))
        table.add_row(f"busiest of {name}, planned", *(f"{o.busiest[i]:.2f}" for o in samples))
    say(table)
    first, second = (_counted(len(table), "key") for table in kept.plan.tables.values())
    say(f"  {kept.used}; tables of {first} and {second}", soft_wrap=True)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _table() -> Any:
    """Without a title: one that is longer than the table is wide would be broken."""
    from rich.table import Table

    return Table(box=None, padding=(0, 1))


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _bar(ratio: float) -> str:
    return "#" * round(8 * ratio) if ratio < 4 else "#" * 31 + ">"


def _amount(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.6g}"


def _rounded(number: float) -> str:
    for unit, name in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:.0f}"


# what to do


def _next(
    found: Findings, columns: Columns, files: list[str], more: str, sample: bool
) -> list[str]:
    """The lines to run next; `more` is what `pyroute plan` is to be told as this command was."""
    if not found.skewed:
        return ["nothing to balance: hashing is even enough for these tasks"]
    names = ", ".join(repr(name) for name in columns.keys)
    cost = "" if columns.cost is None else f", cost={columns.cost!r}"
    balance = f"su.balance(df, {names}, tasks={found.tasks}{cost}"
    lines = [
        f"import spark_udf as su; b = {balance})  # PySpark; then b.group_by() or b.join(other)"
    ]
    split = found.tables[-1].split > 0
    if split:  # group_by of a split key has several rows, and join refuses it
        lines.append(
            f"import spark_udf as su; b = {balance}, mergeable=True);"
            " b.apply_by_key(f, schema, merge=g)  # only if partial results can be merged"
        )
    keys = _flags({"--key": columns.keys, "--cost": columns.cost})
    state = _flags({"--state": columns.state})
    # What stdin held is gone.
    named = " ".join("FILE" if name == "-" else _quoted(name) for name in files) or "FILE"
    kept = "--out plan.json --router router.json --apply"
    plan = f"pyroute plan {named}{keys}{state} --tasks {found.tasks}{more} {kept}"
    lines.append(plan + "  # --mergeable, only if partial results can be merged" * split)
    if sample:
        lines.append(f"pyroute run {named}{keys} --tasks {found.tasks}  # both ways, in a Spark")
    return lines


def _flags(options: Mapping[str, Any]) -> str:
    """Options as they are typed, with a space before each; those that are not set are left out."""
    words = ""
    for name, value in options.items():
        if value is True:
            words += f" {name}"
        elif value is not None and value is not False:
            each = value if isinstance(value, tuple) else (value,)
            words += "".join(f" {name} {_quoted(str(one))}" for one in each)
    return words


def _other_than_default(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options of `analyze` and `plan` that are not what they are where nobody says it."""
    defaults = inspect.signature(analyze).parameters
    return {
        name: value
        for name, value in options.items()
        if value != defaults[name[2:].replace("-", "_")].default
    }


def _next_to_stay(kept: Stay | None) -> list[str]:
    """The line that plans for both steps, where that keeps its promise."""
    if kept is None or kept.gain < WORTH or len(kept.keys) > 1:
        return []
    pairs = f"su.collect_pairs(df, {kept.keys[0]!r}, {kept.pair!r})"
    call = f"import pyroute as pr, spark_udf as su; plan = pr.colocate({pairs}, {kept.tasks})"
    return [f"{call}  # PySpark; then plan.routers"]


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


# as a page


def _write_report(
    path: Path,
    found: Findings,
    spans: Sequence[Interval],
    kept: Stay | None,
    columns: Columns,
    hashed: bytes | bool,
    source: str,
    cost: str | None,
) -> None:
    import datetime

    import numpy as np

    from pyroute import __version__
    from pyroute import report as pages
    from pyroute.space_saving import TopKeys

    low, error = found.loads
    scale = 1 if not cost else max(1.0, 1e6 / max(1e-300, float(low[0]) if len(low) else 1.0))
    upper = np.ceil((low + error) * scale) / scale
    top = TopKeys(found.hot.values, upper, error)  # type: ignore[arg-type]
    facts = [
        pages.Fact("records", f"{found.records:,}"),
        pages.Fact("keys", f"{found.distinct:,.0f}", "exact" if found.exact else "about"),
    ]
    if found.exponent is not None:
        facts.append(pages.Fact("Zipf exponent", f"{found.exponent:.2f}", "of the hottest keys"))
    facts += [
        pages.Fact(f"hash, {one.name}", f"{one.max_by_mean:.2f}x", "" if one.exact else "estimated")
        for one in found.hashes[1:]
    ]
    now = datetime.datetime.now(datetime.UTC).isoformat(sep=" ", timespec="minutes")
    page = pages.build(
        f"Keys of {', '.join(columns.keys)}",
        plan=found.plan,
        top=top,
        total=found.total,
        intervals=[
            pages.Interval(
                one.label,
                dict(enumerate(one.by_hash)),
                one.bytes_moved,
                one.keys_moved,
                reason=one.reason,
                name="by hash",
                others={"with plans": one.routed_ratio - 1},
            )
            for one in spans
        ],
        locality=[] if kept is None else [_locality(kept)],
        facts=facts,
        subtitle=source,
        made=f"pyroute {__version__}, {now}",
        unit="records" if cost is None else cost,
    )
    pages.write(page, path, hash_keys=hashed)


def _locality(kept: Stay) -> Locality:
    from pyroute.report.model import Locality

    after = kept.out_of_sample
    return Locality(
        kept.name,
        kept.in_sample.by_hash,
        kept.in_sample.planned,
        None if after is None else after.planned,
        kept.plan.coverage,
        kept.used if after is None else f"{kept.used}; by hash there {after.by_hash:.1%}",
    )
