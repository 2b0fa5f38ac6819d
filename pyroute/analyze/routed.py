"""Records with their tasks: counted, or written with one column more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pyroute.analyze.scan import Columns, keys_of
from pyroute.analyze.source import InputError, Source, nothing
from pyroute.keys import Keys
from pyroute.router import Router

__all__ = ["route_files"]


def route_files(
    source: Source,
    columns: Columns,
    router: Router,
    *,
    to: Path | None = None,
    kind: str = "",
    column: str = "pyroute_task",
    advance: Callable[[int, int], None] | None = None,
) -> dict[int, int]:
    """Route all records of a source.

    Parameters
    ----------
    source, columns
        What to read; a source of no columns has all of them.
    router
        Who decides. A record of a split key goes to the task that the number of its row gives.
    to, kind
        Where to write the records, and the suffix that says how.
    column
        Name of the column with the task.
    advance
        Told rows and bytes that were read.

    Returns
    -------
    Records of each task.
    """
    tell = advance or nothing
    tasks = np.asarray(router.tasks)
    counts = np.zeros(len(tasks), np.int64)
    row = 0
    with contextlib.ExitStack() as stack:
        writer: Any = None
        schema: Any = None
        for batch in source.batches(lambda size: tell(0, size)):
            data = batch.data
            keys = Keys(keys_of(batch, columns.keys), None)
            salt = np.arange(row, row + data.num_rows) if router.splits else None
            found = router.route(keys, salt=salt)
            counts += np.bincount(np.searchsorted(tasks, found), minlength=len(tasks))
            row += data.num_rows
            if to is not None:
                if column in data.schema.names:
                    raise InputError(
                        f"{batch.file.name}: column {column!r} is there already; name another"
                        " with --column"
                    )
                whole = data.append_column(column, pa.array(found, pa.int32()))
                if writer is None:
                    schema = whole.schema
                    writer = stack.enter_context(_writer(to, kind, schema))
                elif not whole.schema.equals(schema):
                    raise InputError(_other(batch.file.name, whole.schema, schema))
                writer.write_batch(whole)
            tell(data.num_rows, 0)
    return dict(zip(tasks.tolist(), counts.tolist(), strict=True))


def _other(name: str, got: Any, expected: Any) -> str:
    """What is different in a file whose records cannot stand beside the ones before them."""
    text = f"{name}: expected the columns of the first file"
    for field in expected:
        if field.name not in got.names:
            return f"{text}, and there is no {field.name!r}"
        if got.field(field.name).type != field.type:
            kind = got.field(field.name).type
            return f"{text}: column {field.name!r} is {kind}, and {field.type} there"
    more = [name for name in got.names if name not in expected.names]
    return f"{text}, and got {more[0]!r} beside them" if more else f"{text} in their order"


def _writer(path: Path, kind: str, schema: Any) -> Any:
    if kind in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        return pq.ParquetWriter(path, schema)
    if kind == ".csv":
        import pyarrow.csv as pc

        for field in schema:
            if pa.types.is_nested(field.type):
                raise InputError(
                    f"--out: column {field.name!r} is {field.type}, which .csv cannot hold;"
                    " name a file that ends in .parquet or .arrow"
                )
        return pc.CSVWriter(path, schema)
    if kind in (".arrow", ".feather", ".ipc"):
        return pa.ipc.new_file(path, schema)
    raise InputError(f"--out: expected a name ending in .parquet, .csv or .arrow, got {kind!r}")
