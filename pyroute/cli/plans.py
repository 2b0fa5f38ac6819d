"""The commands `pyroute plan`, `explain`, `diff` and `route`, on files."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
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
    Text,
)
from pyroute.cli.output import CommandError, Output

if TYPE_CHECKING:
    from pyroute.plan import Plan
    from pyroute.router import Router

__all__ = ["diff", "explain", "plan", "route"]

PREVIOUS = ".previous"
"""Beside a router's file: the one that was in force before it."""


NULL = "null"
"""The key of records that have none, as tables and reports show it."""


def plan(
    files: Files = None,
    *,
    key: Key = None,
    cost: Cost = None,
    state: State = None,
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, metavar="N", help="Parallel tasks, where there is no router yet."
        ),
    ] = None,
    router: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The routing in force, as JSON; made by --apply."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan, as JSON.")
    ] = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Write the next router to --router and keep the last one."),
    ] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Go back to the router before the last --apply.")
    ] = False,
    max_imbalance: MaxImbalance = 0.08,
    max_table: MaxTable = 3000,
    max_migration: Annotated[
        int | None, typer.Option(min=0, metavar="BYTES", help="State that may move.")
    ] = None,
    mergeable: Annotated[
        bool, typer.Option("--mergeable", help="The work of one key may be split and merged.")
    ] = False,
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
    """Plan which few keys leave their home so that no task is overloaded, from a file of records.

    A dry run, unless --apply: what moves, how many bytes, what it gains and what keeps it from
    being better. The router and the one before it lie beside each other; files are replaced whole.

    Examples
    --------
    pyroute plan monday.parquet --key user --tasks 16 --router router.json --apply

    pyroute plan tuesday.parquet --key user --router router.json --out plan.json

    pyroute plan --rollback --router router.json
    """
    output = Output(json=json, quiet=quiet)
    if rollback:
        _roll_back(router, output, bool(files or apply or out))
        return
    if apply and router is None:
        raise CommandError("--apply: expected --router FILE with it, got none")
    from pyroute.cli.reading import columns_of, expect_places
    from pyroute.rebalance import rebalance

    columns = columns_of(key, cost, state)
    read = [*(files or ()), *([] if apply or router is None else [router])]
    next_one = {"--router": router} if apply else {}
    expect_places(read, {**next_one, "--out": out, "--report": report})
    current = _current(router, tasks)
    how = (format, text, delimiter)
    snapshot, source = _snapshot(files, columns, current, capacity, how, output)
    made = rebalance(
        snapshot,
        current,
        max_imbalance=max_imbalance,
        max_table=max_table,
        max_migration=max_migration,
        mergeable=mergeable,
    )
    written = router if apply and router and (made.changes or not router.exists()) else None
    _write(made, current, report=report, out=out, router=written, source=source, hashed=hash_keys)
    _show_plan(output, made, hash_keys, written, out)
    output.document(_plan_document(made, written is not None))


def _current(path: Path | None, tasks: int | None) -> Router:
    from pyroute.router import Router

    if path is not None and path.exists():
        current = _read_router(path)
        if tasks is not None and tasks != len(current.tasks):
            raise CommandError(
                f"--tasks: expected {len(current.tasks)}, as {path} has them, got {tasks}"
            )
        return current
    if tasks is None:
        raise CommandError("--tasks: expected a number, or --router with a file that is there")
    return Router(tasks)


def _snapshot(
    files: list[str] | None,
    columns: Any,
    current: Router,
    capacity: int | None,
    how: tuple[str | None, bool, str | None],
    output: Output,
) -> tuple[Any, str]:
    """What the files say of the keys, and their name."""
    from pyroute.analyze.findings import snapshot_of
    from pyroute.analyze.scan import Pass, scan
    from pyroute.cli.reading import capacity_for, expect_records, progress, source_of
    from pyroute.ring import Ring

    if not isinstance(current.home, Ring):
        raise CommandError(
            "--router: expected one over a ring, got one over"
            f" {type(current.home).__name__}: plan it where its records are"
        )
    source = source_of(files, columns, *how)
    bits = len(current.home.owners).bit_length() - 1
    followed = capacity or capacity_for(source)
    try:
        with progress(output, source) as advance:
            found = scan(source, lambda: Pass(columns, capacity=followed, bits=bits), advance)
    finally:
        source.close()
    expect_records(found.profile.records, source)
    return snapshot_of(found.profile, current.home), ", ".join(f.name for f in source.files[:3])


def _show_plan(
    output: Output, made: Plan, hashed: bool, router: Path | None, out: Path | None
) -> None:
    if output.json:
        return
    text = made.summary()
    if hashed:
        text = "\n".join(line for line in text.splitlines() if not line.startswith("  because key"))
    output.results.print(text, soft_wrap=True)
    if not hashed and len(made.migrations):
        rows = sorted(zip(made.migrations.costs.tolist(), made.migrations, strict=True), key=_heavy)
        output.results.print("heaviest moves", soft_wrap=True)
        for load, (value, source, target, _) in rows[:10]:
            output.results.print(
                f"  {_shown(value)}: task {source} -> {target}, load {load:,.6g}", soft_wrap=True
            )
    if out is not None:
        output.results.print(f"wrote {out}; pyroute explain {out} KEY says why", soft_wrap=True)
    if router is not None:
        output.results.print(
            f"wrote {router}; pyroute plan --rollback --router {router} takes it back",
            soft_wrap=True,
        )


def _heavy(row: tuple[float, tuple[Any, int, int, int]]) -> tuple[float, str]:
    return -row[0], repr(row[1][0])


def _shown(value: Any) -> str:
    from pyroute.report.model import name_of

    return name_of(value).text


def _plan_document(made: Plan, applied: bool) -> dict[str, Any]:
    return {
        "command": "plan",
        "version": made.version,
        "fingerprint": str(made.fingerprint),
        "changes": made.changes,
        "feasible": made.feasible,
        "max_by_mean_before": 1 + made.imbalance_before,
        "max_by_mean_after": 1 + made.imbalance,
        "gap": made.gap,
        "keys_moved": len(made.migrations),
        "bytes_moved": int(made.migration_cost),
        "table": len(made.table),
        "splits": len(made.splits),
        "applied": applied,
    }


def _write(
    made: Plan,
    current: Router,
    *,
    report: Path | None,
    out: Path | None,
    router: Path | None,
    source: str,
    hashed: bool,
) -> None:
    """Write the files that are asked for: all of them, or none where one cannot be."""
    from pyroute import report as pages
    from pyroute.cli.reading import atomic

    with contextlib.ExitStack() as stack:
        if report is not None:
            page = pages.build("Plan", plan=made, subtitle=source)
            pages.write(page, stack.enter_context(atomic(report)), hash_keys=hashed)
        if out is not None:
            stack.enter_context(atomic(out)).write_text(made.to_json(), "utf-8")
        if router is not None:
            _replace(stack, router, current, current.apply(made))


def _replace(stack: contextlib.ExitStack, path: Path, before: Router, after: Router) -> None:
    """Write the next router; the one that it was made for becomes the previous one."""
    from pyroute.cli.reading import atomic

    stack.enter_context(atomic(path)).write_text(after.to_json(), "utf-8")
    if path.exists():
        now = _read_router(path)
        if (now.version, now.fingerprint) != (before.version, before.fingerprint):
            raise CommandError(
                f"{path}: was at version {before.version} when this plan was begun and is at"
                f" {now.version} now: run it again"
            )
        kept = stack.enter_context(atomic(path.with_name(path.name + PREVIOUS)))
        kept.write_text(before.to_json(), "utf-8")  # in its place before the next one is


def _roll_back(path: Path | None, output: Output, more: bool) -> None:
    """Home, table and splits of the previous router, under the next version."""
    from pyroute.cli.reading import atomic
    from pyroute.router import Router

    if path is None or more:
        raise CommandError("--rollback: expected --router FILE with it, and nothing else")
    before = path.with_name(path.name + PREVIOUS)
    if not before.exists():
        raise CommandError(f"--rollback: expected {before}, the router before --apply, got none")
    current, last = _read_router(path), _read_router(before)
    back = Router(last.home, last.table, last.splits, version=current.version + 1)
    with atomic(before) as kept, atomic(path) as made:
        kept.write_text(current.to_json(), "utf-8")
        made.write_text(back.to_json(), "utf-8")
    text = f"{path}: version {back.version} routes as version {last.version} did"
    output.results.print(f"{text}; {before.name} has what was taken back", soft_wrap=True)
    output.document({"command": "plan", "rolled_back": True, "version": back.version})


def _read_router(path: Path) -> Router:
    from pyroute._core import FormatError
    from pyroute.cli.reading import read_text
    from pyroute.router import Router

    try:
        return Router.from_json(read_text(path, "a router that pyroute plan --apply wrote"))
    except FormatError as error:
        raise CommandError(f"{path}: expected a router: {error}") from error


def _read_plan(path: Path) -> Plan:
    from pyroute._core import FormatError
    from pyroute.cli.reading import read_text
    from pyroute.plan import Plan

    try:
        return Plan.from_json(read_text(path, "a plan that pyroute plan --out wrote"))
    except FormatError as error:
        raise CommandError(f"{path}: expected a plan: {error}") from error


def explain(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan that `plan --out` wrote.")],
    key: Annotated[
        list[str], typer.Argument(metavar="KEY...", help="The key; all its parts in order.")
    ],
    *,
    router: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The router that the plan was made for, or the next: it knows homes of keys.",
        ),
    ] = None,
    text: Annotated[
        bool,
        typer.Option("--text", help="The key is text, although it looks like a number, or null."),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Say what a plan does with one key, and why.

    The word null names the key of records that have none.

    Examples
    --------
    pyroute explain plan.json anna

    pyroute explain plan.json 1152921504606846977

    pyroute explain plan.json -5 --router router.json
    """
    from pyroute._plan_text import explain as explained

    out = Output(json=json, quiet=quiet)
    made = _read_plan(plan)
    home = None if router is None else _home_for(router, made)
    known: list[Any] = []
    if made.facts.named:
        giants = (name for name, _, _ in made.giants)
        known = [*made.table, *made.migrations.values, *made.splits, *giants]
    value = _value(key, known, text)
    said = explained(made, value, home)
    out.results.print(said, soft_wrap=True)
    out.document(
        {
            "command": "explain",
            "key": key,
            "in_table": value in made.table,
            "task": made.table.get(value),
            "text": said,
        }
    )


def _home_for(path: Path, made: Plan) -> Any:
    """The home of the router that a plan was made for, or of the one that it makes."""
    found = _read_router(path)
    before = (made.version, made.fingerprint)
    after = (made.version + 1, made.after.fingerprint)
    if (found.version, found.fingerprint) not in (before, after):
        raise CommandError(
            f"--router: expected the one at version {made.version}, which the plan is for, or the"
            f" next, got {path} at version {found.version}"
        )
    return found.home


def _value(words: list[str], known: list[Any], text: bool) -> Any:
    """A key as the plan or router has them: of the types of those that it names."""
    like = next((value for value in known if value is not None), None)
    wanted = len(like) if isinstance(like, tuple) else 1
    if known and wanted != len(words):
        raise CommandError(f"KEY: expected {wanted} parts, got {len(words)}")
    columns: list[Any] = [known] if wanted == 1 else list(zip(*known, strict=True))
    columns = columns if known else [()] * len(words)
    parts = [_typed(word, seen, text) for word, seen in zip(words, columns, strict=True)]
    return tuple(parts) if len(parts) > 1 else parts[0]


def _typed(word: str, seen: Sequence[Any], text: bool) -> Any:
    """A part of a key, like those that were seen."""
    import datetime

    if word == NULL and not text and (NULL not in seen or None in seen):
        return None
    like = next((value for value in seen if value is not None), None)
    if text or isinstance(like, str):
        return word
    try:
        if isinstance(like, bytes):  # 0x00ff, as tables and reports show it, or its text
            return bytes.fromhex(word[2:]) if word.startswith("0x") else word.encode()
        if isinstance(like, bool):
            return {"true": True, "false": False}[word.lower()]
        if isinstance(like, datetime.datetime):
            return datetime.datetime.fromisoformat(word)
        if isinstance(like, datetime.date):
            return datetime.date.fromisoformat(word)
        number = int(word)
    except (ValueError, KeyError):
        if like is None:
            return word
        raise CommandError(f"KEY: expected {type(like).__name__}, got {word}") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise CommandError(f"KEY: expected an integer of 64 bits, got {word}")
    return number


def diff(
    first: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.")],
    second: Annotated[Path, typer.Argument(metavar="PLAN", help="Another one.")],
    *,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Say how two plans differ: keys, tasks, balance and state that moves.

    Examples
    --------
    pyroute diff monday.json tuesday.json
    """
    from pyroute._typed_json import encode

    out = Output(json=json, quiet=quiet)
    here, there = _read_plan(first), _read_plan(second)
    found = here.diff(there)
    if not (found.only_here or found.only_there or found.elsewhere):
        out.results.print("equal tables", soft_wrap=True)
    for line in str(found).splitlines():
        out.results.print(line, soft_wrap=True)
    out.document(
        {
            "command": "diff",
            "only_first": [[encode(v), t] for v, t in found.only_here.items()],
            "only_second": [[encode(v), t] for v, t in found.only_there.items()],
            "elsewhere": [[encode(v), *both] for v, both in found.elsewhere.items()],
            "max_by_mean": [1 + x for x in found.imbalance],
            "bytes_moved": list(found.migration_cost),
        }
    )


def route(
    router: Annotated[
        Path, typer.Argument(metavar="ROUTER", help="Router that `plan --apply` wrote.")
    ],
    files: Files = None,
    *,
    key: Key = None,
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="A key instead of files; several times for several."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the records with their task: .parquet, .csv or .arrow."
        ),
    ] = None,
    column: Annotated[
        str, typer.Option(metavar="NAME", help="The column that the task goes to.")
    ] = "pyroute_task",
    format: Format = None,  # noqa: A002
    text: Text = False,
    delimiter: Delimiter = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Say which task each record or key goes to.

    Examples
    --------
    pyroute route router.json --value anna --value bert

    pyroute route router.json orders.parquet --key customer --out routed.parquet
    """
    output = Output(json=json, quiet=quiet)
    current = _read_router(router)
    if value:
        if files or out:
            raise CommandError("--value: expected it without FILE and --out")
        _route_values(current, value, text, output)
        return
    from pyroute.analyze.routed import route_files
    from pyroute.analyze.source import Source
    from pyroute.cli.reading import atomic, columns_of, expect_places, expect_records, progress

    columns = columns_of(key)
    expect_places([router, *(files or ())], {"--out": out})
    source = Source.of(
        list(files or ()),
        () if out is not None else columns.names,
        kind=format,
        texts=columns.keys if text else (),
        delimiter=delimiter,
    )
    try:
        with progress(output, source) as advance:
            if out is None:
                loads = route_files(source, columns, current, advance=advance)
            else:
                with atomic(out) as made:
                    loads = route_files(
                        source,
                        columns,
                        current,
                        to=made,
                        kind=out.suffix,
                        column=column,
                        advance=advance,
                    )
                    expect_records(sum(loads.values()), source)
    finally:
        source.close()
    expect_records(sum(loads.values()), source)
    mean = sum(loads.values()) / len(loads)
    for task, count in loads.items():
        output.results.print(
            f"task {task:>5}  {count:>14,} records  {count / mean:.2f} by the mean"
        )
    if out is not None:
        output.results.print(f"wrote {out}, the task in column {column}", soft_wrap=True)
    output.document(
        {
            "command": "route",
            "records": {str(task): count for task, count in loads.items()},
            "max_by_mean": max(loads.values()) / mean,
        }
    )


def _route_values(current: Router, words: list[str], text: bool, output: Output) -> None:
    known = [*current.table, *current.splits]
    values = [_value([word], known, text) for word in words]
    rows = []
    for word, one in zip(words, values, strict=True):
        split = current.splits.get(one)
        if split is not None:
            where: Any = list(split)
            output.results.print(f"{word}: tasks {', '.join(map(str, split))} (split)")
        else:
            where = int(current.route([one], salt=0 if current.splits else None)[0])
            tabled = " (in the table)" if one in current.table else ""
            output.results.print(f"{word}: task {where}{tabled}", soft_wrap=True)
        rows.append({"key": word, "task": where})
    output.document({"command": "route", "keys": rows})
