"""Options that commands share, for their signatures: `json: Json = False`."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout; all else goes to stderr.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, the result alone.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
