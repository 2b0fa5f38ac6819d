"""The command `pyroute storm`."""

from __future__ import annotations

import argparse
from typing import Annotated, Any

import typer

from pyroute.cli.doctor import storm_jar
from pyroute.cli.options import Debug, Json, Quiet
from pyroute.cli.output import CommandError, Output
from pyroute.storm.__main__ import KINDS

__all__ = ["storm"]

RUN = "python3 -m pyroute.storm"


def storm(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="A bolt: its options, and how a topology names it."),
    ] = None,
    *,
    jar: Annotated[
        bool, typer.Option("--jar", help="The path of the jar alone, for a class path.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Say which bolts a topology can name, with which options, and where the jar is.

    A bolt runs as a child of Storm, by `python3 -m pyroute.storm KIND`: Storm starts it, and its
    stdin and stdout belong to Storm.

    Examples
    --------
    pyroute storm

    pyroute storm dynamic

    cp "$(pyroute storm --jar)" apache-storm/extlib/
    """
    out = Output(json=json, quiet=quiet)
    path = storm_jar()
    if jar and path is None:
        raise CommandError("--jar: there is none yet: make storm, in a checkout, makes it")
    if kind is not None and kind not in KINDS:
        raise CommandError(f"KIND: expected one of {', '.join(KINDS)}, got {kind}")
    if jar:
        out.results.print(str(path), soft_wrap=True)
    elif kind is not None:
        _one(out, kind)
    else:
        _all(out)
        text = str(path) if path is not None else "none yet: make storm, in a checkout, makes it"
        out.results.print(f"jar: {text}", soft_wrap=True)
    out.document(
        {
            "command": "storm",
            "jar": None if path is None else str(path),
            "bolts": {
                name: {"about": KINDS[name][0], "run": f"{RUN} {name}", "options": _options(name)}
                for name in ([kind] if kind is not None else KINDS)
            },
        }
    )


def _parser(kind: str) -> argparse.ArgumentParser:
    """Of the bolt's own command line."""
    about, arguments, _ = KINDS[kind]
    made = argparse.ArgumentParser(
        prog=f"{RUN} {kind}",
        description=f"{kind}: {about}.",
        add_help=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    arguments(made)
    return made


def _options(kind: str) -> list[str]:
    actions: list[Any] = _parser(kind)._actions
    return [(action.option_strings or [action.dest])[-1] for action in actions]


def _one(out: Output, kind: str) -> None:
    parser = _parser(kind)
    named = [action.dest for action in parser._actions if not action.option_strings]
    words = ["python3", "-m", "pyroute.storm", kind, *(name.upper() for name in named)]
    command = ", ".join(f'"{word}"' for word in words)
    out.results.print(parser.format_help().rstrip(), soft_wrap=True)
    out.results.print("\nin a Flux topology:", soft_wrap=True)
    for line in (
        f'  - id: "{kind}"',
        '    className: "org.apache.storm.flux.wrappers.bolts.FluxShellBolt"',
        "    constructorArgs:",
        f"      - [{command}]",
        '      - ["FIELD"]  # what it emits: the fields of its source',
    ):
        out.results.print(line, soft_wrap=True)


def _all(out: Output) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("bolt", no_wrap=True)
    table.add_column("what it does")
    table.add_column("a child of Storm", no_wrap=True)
    for name, (about, _, _) in KINDS.items():
        table.add_row(name, about, f"{RUN} {name}")
    out.results.print(table)
