"""Options that commands share, for their signatures: `json: Json = False`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout; all else goes to stderr.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, the result alone.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE...",
        help="Parquet, CSV, JSON lines or Arrow files, directories, globs, or - for stdin.",
        show_default=False,
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column of the key; several times for several."),
]
Cost = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column with the work of a record; 1 each without."),
]
State = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column with the bytes of state that a record adds."),
]
Time = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column with the time of a record.")
]
Tasks = Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Parallel tasks.")]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="parquet, csv, jsonl or arrow, where the name does not say it."
    ),
]
Text = Annotated[
    bool, typer.Option("--text", help="Read the key's columns of CSV and JSON as text.")
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="X", help="Between the columns of CSV: one character, or \\t; a comma without."
    ),
]
HashKeys = Annotated[
    bool, typer.Option("--hash-keys", help="Show no key itself: keys can be personal data.")
]
Capacity = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1 << 20,
        metavar="N",
        help="Keys that are counted by name: 4096, more for a file below 100 MB.",
        show_default=False,
    ),
]
MaxImbalance = Annotated[
    float,
    typer.Option(min=0, metavar="X", help="How far a task may be above the mean, as a share."),
]
MaxTable = Annotated[
    int, typer.Option(min=0, metavar="N", help="Keys that may be away from their home.")
]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a page with pictures that opens offline."),
]
