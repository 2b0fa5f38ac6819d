"""The command `pyroute sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyroute.cli.options import Debug, Json, Quiet
from pyroute.cli.output import CommandError, Output

__all__ = ["sample"]


def sample(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Parquet file to write.")] = Path(
        "pyroute-sample.parquet"
    ),
    *,
    rows: Annotated[
        int, typer.Option(min=1, max=100_000_000, metavar="N", help="How many orders.")
    ] = 400_000,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of all that is drawn.")] = 7,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is there.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Write a small file of made-up orders with a hot customer, for a first try.

    Examples
    --------
    pyroute sample orders.parquet

    pyroute analyze orders.parquet --key customer
    """
    from pyroute.analyze.sample import write_sample
    from pyroute.cli.reading import atomic

    out = Output(json=json, quiet=quiet)
    if file.is_file() and not force:
        raise CommandError(f"{file}: is there already; --force writes over it")
    with atomic(file) as made:
        write_sample(made, rows, seed)
    out.results.print(f"{file}: {rows:,} orders", soft_wrap=True)
    out.results.print(f"  pyroute analyze {file} --key customer", soft_wrap=True)
    out.document({"command": "sample", "file": str(file), "rows": rows, "key": "customer"})
