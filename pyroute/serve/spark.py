"""The directory of a `RoutedStream`: metrics of its batches, statistics of the last, its router.

`metrics/<sequence>.parquet` has a row per batch and never changes once it is there; the last of
`manifests/<sequence>.json` names the statistics and the router in force.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pyroute._core import FormatError
from pyroute._plan_text import in_bytes
from pyroute.key_stats import Snapshot
from pyroute.keys import Keys
from pyroute.report import Event, Fact, Flow, HotKey, Interval, Move, Report, Words, build, name_of
from pyroute.router import Router
from pyroute.serve.sources import Source, SourceError

BATCHES = 400
"""Batches that the page goes back."""
SHOWN = 200
"""Hot keys that it names."""
_METRICS = re.compile(r"([0-9]{12})\.parquet")
_MANIFEST = re.compile(r"([0-9]{12})\.json")
_FILE = re.compile(r"(?:stats|routers)/[A-Za-z0-9._-]+")


class SparkStream(Source):
    """A stream on Spark, by the directory of its `RoutedStream`."""

    kind = "Spark stream"

    def __init__(self, place: str) -> None:
        super().__init__(place)
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise SourceError(f"{error}: pip install 'pyroute-core[report]'") from None
        self._parquet = pyarrow.parquet
        self._directory = Path(place)
        self._rows: dict[int, dict[str, Any]] = {}
        self._manifest: dict[str, Any] = {}
        self._snapshot: tuple[str, Snapshot] | None = None
        self._router: tuple[str, Router] | None = None
        self._moves: tuple[tuple[Move, ...], tuple[Flow, ...]] = ((), ())

    def read(self) -> Report:
        """Loads, imbalance and decisions per batch, and the hot keys of the last."""
        if not self._directory.is_dir():
            raise SourceError("no such directory; waiting for the stream to make it")
        warnings = list(self._read_metrics())
        warnings += self._read_state()
        rows = [self._rows[at] for at in sorted(self._rows)]
        if not rows and not self._manifest:
            raise SourceError("no batch was committed yet")
        name = str(self._manifest.get("job", {}).get("name", "")) or self._directory.name
        page = build(
            name,
            hot_keys=self._hot_keys(),
            intervals=[_interval(row) for row in rows],
            facts=_facts(rows),
            events=[event for row in reversed(rows) for event in _events(row)],
            warnings=warnings,
            unit="load",
        )
        moves, flows = self._moves
        return replace(page, moves=moves, flows=flows)

    # -- metrics

    def _read_metrics(self) -> Iterator[Words]:
        """Take up the batches that are new; a damaged one is said and tried again."""
        folder = self._directory / "metrics"
        try:
            names = [path.name for path in folder.iterdir()]
        except FileNotFoundError:
            return
        except OSError as error:
            raise SourceError(f"metrics: {error.strerror or error}") from None
        found = sorted(int(match[1]) for match in map(_METRICS.fullmatch, names) if match)
        wanted = found[-BATCHES:]
        if self._rows and (not wanted or wanted[-1] < max(self._rows)):
            self._rows.clear()  # another stream, or the directory was made anew
        for old in set(self._rows) - set(wanted):
            del self._rows[old]
        for sequence in wanted:
            if sequence in self._rows:
                continue
            path = folder / f"{sequence:012d}.parquet"
            try:
                self._rows[sequence] = _checked(self._parquet.ParquetFile(path).read().to_pylist())
            except Exception as error:  # Arrow raises many kinds for a damaged file
                yield f"metrics/{path.name} cannot be read: {_line(error)}"

    # -- the manifest, and what it names

    def _read_state(self) -> Iterator[Words]:
        folder = self._directory / "manifests"
        try:
            names = [match[0] for match in map(_MANIFEST.fullmatch, _names(folder)) if match]
            if not names:
                return
            manifest = json.loads((folder / max(names)).read_bytes())
            if not isinstance(manifest, dict):
                raise ValueError("expected an object")
            self._manifest = manifest
            self._read_router(manifest)
            self._read_snapshot(manifest)
        except FileNotFoundError:
            return  # removed meanwhile: there is a newer one the next time
        except (OSError, ValueError, LookupError, TypeError, FormatError, zlib.error) as error:
            yield f"the state cannot be read: {_line(error)}"

    def _read_router(self, manifest: dict[str, Any]) -> None:
        name = _file(manifest["next_router"]["name"])
        if self._router is not None and self._router[0] == name:
            return
        router = Router.from_bytes((self._directory / name).read_bytes())
        before = None if self._router is None else self._router[1]
        self._router = (name, router)
        if before is not None and self._snapshot is not None:
            self._moves = _between(before, router, self._snapshot[1])

    def _read_snapshot(self, manifest: dict[str, Any]) -> None:
        if manifest.get("stats") is None:
            return
        name = _file(manifest["stats"])
        if self._snapshot is not None and self._snapshot[0] == name:
            return
        document = json.loads(zlib.decompress((self._directory / name).read_bytes()))
        data = base64.b64decode(document["snapshot"], validate=True)
        self._snapshot = (name, Snapshot.from_bytes(data))

    def _hot_keys(self) -> tuple[HotKey, ...]:
        if self._snapshot is None:
            return ()
        snapshot = self._snapshot[1]
        costs = snapshot.costs
        whole = float(costs.sum()) + sum(snapshot.background.values())
        order = np.lexsort((snapshot.ids, -costs))[:SHOWN]
        names = [snapshot.values[i] for i in order.tolist()] if len(order) else []
        tasks: list[str | None] = [None] * len(order)
        tabled: set[int] = set()
        if self._router is not None and len(order):
            router = self._router[1]
            keys = Keys.from_ids(snapshot.ids[order])
            tasks = [str(task) for task in router.route(keys, salt=0).tolist()]
            tabled = set(router.table.ids.tolist())
        rows = zip(order.tolist(), names, tasks, snapshot.state_sizes[order].tolist(), strict=True)
        return tuple(
            HotKey(
                name_of(value),
                float(costs[i]),
                0.0,
                float(costs[i]) / whole if whole else 0.0,
                size,
                task,
                None,
                "in the table" if int(snapshot.ids[i]) in tabled else "at home",
            )
            for i, value, task, size in rows
        )


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _file(name: Any) -> str:
    if not isinstance(name, str) or not _FILE.fullmatch(name):
        raise ValueError(f"expected the name of a file, got {name!r}")
    return name


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


def _checked(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (row,) = rows
    if len(row["tasks"]) != len(row["loads"]):
        raise ValueError("expected a load for every task")
    return row


def _interval(row: dict[str, Any]) -> Interval:
    loads = {int(t): float(x) for t, x in zip(row["tasks"], row["loads"], strict=True)}
    return Interval(
        label=f"batch {row['batch_id']}",
        loads=loads,
        migrated_bytes=row.get("bytes_moved"),
        keys_moved=row.get("keys_moved"),
        expected_imbalance=row.get("expected_imbalance"),
        applied=row.get("applied"),
        reason=row.get("reason") or "",
        seconds=row.get("seconds"),
    )


def _facts(rows: list[dict[str, Any]]) -> Iterator[Fact]:
    if not rows:
        return
    last = rows[-1]
    yield Fact("batch", f"{last['batch_id']:,}", f"{last.get('rows') or 0:,} rows")
    version, table = last.get("router_version"), last.get("table")
    yield Fact("router version", str(version), f"{table or 0:,} keys in its table")
    state = in_bytes(int(last.get("state_bytes") or 0))
    yield Fact("state", state, f"{last.get('state_rows') or 0:,} keys")
    moved = sum(int(row.get("bytes_moved") or 0) for row in rows)
    yield Fact("state moved", in_bytes(moved), f"in the last {len(rows):,} batches")


def _events(row: dict[str, Any]) -> Iterator[Event]:
    reason = row.get("reason") or ""
    kind = "applied" if row.get("applied") else "refused"
    if not row.get("applied") and reason in ("nothing to change", "not balanced"):
        kind = "kept"
    expected = row.get("expected_imbalance")
    text = reason
    if row.get("applied") and expected is not None:
        text += f"; promised: the busiest task at {1 + expected:.3f} times the mean"
    yield Event(f"batch {row['batch_id']}", kind, text)
    if row.get("keys_moved"):
        moved = in_bytes(int(row.get("bytes_moved") or 0))
        keys = "1 key" if row["keys_moved"] == 1 else f"{row['keys_moved']:,} keys"
        yield Event(f"batch {row['batch_id']}", "moved", f"{keys} with {moved}")


def _between(
    before: Router, after: Router, snapshot: Snapshot
) -> tuple[tuple[Move, ...], tuple[Flow, ...]]:
    """Which of the keys of a snapshot another router sends elsewhere."""
    if not len(snapshot):
        return (), ()
    keys = Keys.from_ids(snapshot.ids)
    old, new = before.route(keys, salt=0), after.route(keys, salt=0)
    changed = np.flatnonzero(old != new)
    order = changed[np.argsort(-snapshot.costs[changed], kind="stable")].tolist()
    flows: dict[tuple[int, int], list[float]] = {}
    for i in order:
        sums = flows.setdefault((int(old[i]), int(new[i])), [0, 0.0, 0])
        sums[0] += 1
        sums[1] += float(snapshot.costs[i])
        sums[2] += int(snapshot.state_sizes[i])
    values = snapshot.values if order else []
    moves = tuple(
        Move(
            name_of(values[i]),
            str(old[i]),
            str(new[i]),
            float(snapshot.costs[i]),
            int(snapshot.state_sizes[i]),
            f"router version {before.version} to {after.version}",
        )
        for i in order[:SHOWN]
    )
    rows = sorted(flows.items(), key=lambda row: -row[1][2])
    return moves, tuple(
        Flow(str(source), str(target), int(count), cost, int(size))
        for (source, target), (count, cost, size) in rows
    )
