"""Outputs of a batch, published all at once, after the manifest that names them.

Tasks write `staged/<name>`. Once the manifest is there, its files are gathered in a folder under
`staged/`, which is then renamed to `outputs/batch=<number>`: a reader of `outputs/` sees all of a
batch or nothing of it, and only what was committed. Killed half-way, it is done again and ends in
the same place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import PurePosixPath

from spark_udf.stream.store import LocalStore, sync_directory


def folder_of(sequence: int) -> str:
    """Where the committed outputs of a batch are."""
    return f"outputs/batch={sequence:012d}"


def publish(store: LocalStore, names: Sequence[str], sequence: int) -> None:
    """Move the files of one batch to where readers look; without effect where they are there."""
    target = store.path / folder_of(sequence)
    if not names or target.exists():
        return
    gathered = store.path / "staged" / f"batch-{sequence:012d}"
    gathered.mkdir(parents=True, exist_ok=True)
    for name in names:
        # Not there: it was moved before the driver was killed.
        with contextlib.suppress(FileNotFoundError):
            (store.path / name).replace(gathered / PurePosixPath(name).name)
    missing = [name for name in names if not (gathered / PurePosixPath(name).name).exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if missing:
            raise FileNotFoundError(
                f"outputs: expected {missing[0]}, which was committed, got none"
            )
        sync_directory(gathered)
        gathered.rename(target)
    except OSError:
        # A driver that was thought dead may publish what it committed: the same files.
        if not target.exists():
            raise
        with contextlib.suppress(OSError):
            gathered.rmdir()
    sync_directory(target.parent)
