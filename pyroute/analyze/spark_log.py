"""Spark's event logs: which stages wait for one task, what that costs, and whose keys it is.

A log is a file of JSON lines, or a directory `eventlog_v2_*` of such files in order; plain, or
compressed by zstd, lz4 or snappy. Of such a directory the last file that Spark compacted stands for
all before it. One that is still being written, or was cut off, is read as far as it goes.
"""

from __future__ import annotations

import io
import json
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from pyroute.analyze.source import InputError

__all__ = ["Application", "Stage", "logs", "read_log"]

STRAGGLES = 2.0
"""A stage straggles where its longest task takes so many times the median."""
LEAST_SECONDS = 0.1
"""... and is that much longer."""
LEAST_GAIN = 0.05  # seconds

_EVENTS = re.compile(r"events_(\d+)_.*?(\.compact)?")
_COLUMN = re.compile(r"([^\W\d][\w.\- ]*?)#\d+L?")
_JOIN = re.compile(r"Join \[(.*?)\], \[(.*?)\](?:, (\w+))?")
_LOCATION = re.compile(r"\((\d+) paths?\)\[file:(.*)\]$")
_READ = "records read"
_FORMATS = ("Parquet", "CSV", "JSON")
_CODECS = (".zstd", ".zst", ".lz4", ".snappy")


@dataclass(frozen=True)
class Operator:
    """A part of a SQL plan that ran in a stage."""

    name: str
    """Such as Window, HashAggregate or SortMergeJoin."""
    columns: tuple[str, ...]
    """By which rows were brought together."""
    text: str
    files: tuple[str, ...] = ()
    """What its rows were read from, where that is local files alone, which have its columns."""
    sides: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Of a join: the columns of the left side, and those of the right one."""
    how: str = ""
    """Of a join, as Spark's plans have it: Inner, LeftOuter."""


@dataclass(frozen=True)
class Stage:
    """Tasks of one stage, and what waiting for the longest costs."""

    number: int
    name: str
    tasks: int
    seconds: float
    """From the first start of a task to the last end."""
    longest: float
    median: float
    most_rows: int
    median_rows: float
    most_bytes: int
    median_bytes: float
    lost: float
    """Seconds more than the same work, spread evenly over the cores, would have taken."""
    operator: Operator | None
    query: str = ""

    @property
    def ratio(self) -> float:
        """Longest task by the median."""
        return self.longest / self.median if self.median > 0 else 1.0

    @property
    def row_ratio(self) -> float:
        """Most rows of a task by the median."""
        return self.most_rows / self.median_rows if self.median_rows > 0 else 1.0

    @property
    def straggles(self) -> bool:
        """Whether all wait for one task."""
        return (
            self.tasks > 1
            and self.longest - self.median >= LEAST_SECONDS
            and self.longest >= STRAGGLES * self.median
            and self.lost >= LEAST_GAIN
        )

    @property
    def by_data(self) -> bool:
        """Whether the longest task has more rows, so that its keys are the reason."""
        return self.row_ratio >= 1.5 or (self.most_rows > 0 and self.median_rows == 0)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        operator = self.operator
        return {
            "stage": self.number,
            "name": self.name,
            "query": self.query,
            "tasks": self.tasks,
            "seconds": self.seconds,
            "longest_task_seconds": self.longest,
            "median_task_seconds": self.median,
            "most_rows": self.most_rows,
            "median_rows": self.median_rows,
            "most_bytes": self.most_bytes,
            "median_bytes": self.median_bytes,
            "seconds_lost": self.lost,
            "straggles": self.straggles,
            "by_data": self.by_data,
            "operator": None if operator is None else operator.name,
            "columns": [] if operator is None else list(operator.columns),
        }


@dataclass(frozen=True)
class Application:
    """One application, as its log has it."""

    path: Path
    name: str
    id: str
    stages: tuple[Stage, ...]
    cores: int
    shuffle_partitions: int | None
    complete: bool

    @property
    def straggling(self) -> list[Stage]:
        """Stages that wait for one task, the dearest first."""
        found = [stage for stage in self.stages if stage.straggles]
        return sorted(found, key=lambda stage: (-stage.lost, stage.number))


def logs(path: Path) -> list[Path]:
    """The logs of a directory, or the one that is named; `InputError` where there are none."""
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    if path.is_file() or _is_rolled(path):
        return [path]
    found = [
        one
        for one in sorted(path.iterdir())
        if (one.is_dir() and _is_rolled(one)) or (one.is_file() and _is_log(one))
    ]
    if not found:
        raise InputError(
            f"{path}: expected event logs of Spark (spark.eventLog.enabled true,"
            " spark.eventLog.dir), got none"
        )
    return found


def _is_rolled(path: Path) -> bool:
    return path.is_dir() and any(_EVENTS.fullmatch(file.name) for file in path.iterdir())


def _is_log(path: Path) -> bool:
    if path.name.startswith((".", "_")) or path.stat().st_size == 0:
        return False
    if path.suffix in _CODECS or path.with_suffix("").suffix in _CODECS:
        return True
    with path.open("rb") as file:
        return file.read(32).startswith(b'{"Event":')


def read_log(path: Path) -> Application:
    """Read one log."""
    reader = _Reader()
    files = [path]
    if path.is_dir():
        files, reader.cut = _rolled(path)
    for file in files:
        try:
            for line in _lines(file):
                reader.line(line)
        except _CutError:
            reader.cut = True
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{file}: not readable: {str(error).splitlines()[0]}") from error
    if not reader.events:
        raise InputError(f"{path}: expected an event log of Spark, got something else")
    return reader.application(path)


def _rolled(path: Path) -> tuple[list[Path], bool]:
    """The files of a rolled log that count, in order, and whether one of them is missing."""
    found = []
    for file in path.iterdir():
        match = _EVENTS.fullmatch(file.name)
        if match is not None:
            found.append((int(match[1]), match[2] is not None, file))
    found.sort()
    if not found:
        raise InputError(f"{path}: expected files events_1_..., got none")
    # A compacted file has what is needed of those up to its number, which may still be there.
    last = max((i for i, (_, compacted, _) in enumerate(found) if compacted), default=0)
    numbers = [number for number, _, _ in found[last:]]
    first = numbers[0] if found[last][1] else 1
    return [file for _, _, file in found[last:]], numbers != [*range(first, first + len(numbers))]


# bytes


class _CutError(Exception):
    """The rest of a file is missing."""


def _lines(path: Path) -> Iterator[bytes]:
    left = b""
    for block in _blocks(path):
        *lines, left = (left + block).split(b"\n")
        yield from lines
    if left.strip():
        yield left


def _blocks(path: Path) -> Iterator[bytes]:
    suffix = path.suffix
    if suffix in (".inprogress", ".compact"):
        suffix = path.with_suffix("").suffix
    with path.open("rb") as file:
        if suffix in (".zstd", ".zst"):
            yield from _zstd(file)
        elif suffix == ".lz4":
            yield from _lz4(file)
        elif suffix == ".snappy":
            yield from _snappy(file)
        elif suffix == ".lzf":
            raise InputError(f"{path}: lzf is not read; set spark.eventLog.compression.codec=zstd")
        else:
            while block := file.read(1 << 20):
                yield block


def _zstd(file: io.BufferedReader) -> Iterator[bytes]:
    try:
        with pa.CompressedInputStream(file, "zstd") as stream:
            while block := stream.read(1 << 13):  # what a read that fails had got is lost
                yield block
    except OSError as error:
        raise _CutError from error


def _whole(file: io.BufferedReader, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise _CutError
    return data


def _lz4(file: io.BufferedReader) -> Iterator[bytes]:
    """The blocks of lz4-java: magic, method, sizes, checksum, data."""
    codec = pa.Codec("lz4_raw")
    while head := file.read(21):
        if len(head) < 21:
            raise _CutError
        if not head.startswith(b"LZ4Block"):
            raise OSError("expected blocks of lz4-java, got something else")
        packed, size = (int.from_bytes(head[at : at + 4], "little") for at in (9, 13))
        if size == 0:
            continue
        data = _whole(file, packed)
        if head[8] & 0xF0 == 0x10:
            yield data
        else:
            yield codec.decompress(data, size).to_pybytes()


def _snappy(file: io.BufferedReader) -> Iterator[bytes]:
    """The blocks of snappy-java: a header, then sizes and data."""
    if _whole(file, 16)[:8] != b"\x82SNAPPY\x00":
        raise OSError("expected blocks of snappy-java, got something else")
    codec = pa.Codec("snappy")
    while head := file.read(4):
        if len(head) < 4:
            raise _CutError
        packed = int.from_bytes(head, "big")
        if head == b"\x82SNA":  # a stream that was added to another
            _whole(file, 12)
            continue
        data = _whole(file, packed)
        size = shift = 0
        for byte in data[:5]:  # the block's own first number is its size
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield codec.decompress(data, size).to_pybytes()


# events


@dataclass
class _Task:
    start: float
    end: float
    seconds: float
    rows: int
    bytes: int


@dataclass
class _Running:
    name: str = ""
    tasks: list[_Task] = field(default_factory=list)
    metrics: set[int] = field(default_factory=set)
    reads: dict[int, list[int]] = field(default_factory=dict)
    """By accumulator of an exchange, the rows that tasks read of it; none where they read none."""
    execution: str | None = None


class _Reader:
    """What the events of one log add up to."""

    def __init__(self) -> None:
        self.events = 0
        self.cut = False
        self._name = self._id = ""
        self._cores: dict[str, int] = {}
        self._most_cores = 0
        self._stages: dict[int, _Running] = {}
        self._plans: dict[str, Any] = {}
        self._queries: dict[str, str] = {}
        self._partitions: int | None = None
        self._ended = False

    def line(self, line: bytes) -> None:
        """Take one event; what is no event is passed over, as is one that was cut off."""
        if not line.strip():
            return
        try:
            event = json.loads(line)
            kind = event["Event"].rpartition(".")[2]
        except (ValueError, KeyError, TypeError, AttributeError):
            self.cut = True
            return
        self.events += 1
        take = getattr(self, f"_{kind}", None)
        if take is not None:
            try:
                take(event)
            except (AttributeError, KeyError, TypeError, ValueError):
                self.cut = True  # an event that is not as Spark writes it

    def _SparkListenerApplicationStart(self, event: Any) -> None:  # noqa: N802
        self._name, self._id = event.get("App Name", ""), event.get("App ID", "")

    def _SparkListenerApplicationEnd(self, event: Any) -> None:  # noqa: N802, ARG002
        self._ended = True

    def _SparkListenerExecutorAdded(self, event: Any) -> None:  # noqa: N802
        info = event.get("Executor Info", {})
        self._cores[str(event.get("Executor ID"))] = int(info.get("Total Cores", 1))
        self._most_cores = max(self._most_cores, sum(self._cores.values()))

    def _SparkListenerExecutorRemoved(self, event: Any) -> None:  # noqa: N802
        self._cores.pop(str(event.get("Executor ID")), None)

    def _SparkListenerSQLExecutionStart(self, event: Any) -> None:  # noqa: N802
        number = str(event.get("executionId"))
        self._queries[number] = event.get("description", "")
        self._plans[number] = event.get("sparkPlanInfo")

    def _SparkListenerSQLAdaptiveExecutionUpdate(self, event: Any) -> None:  # noqa: N802
        self._plans[str(event.get("executionId"))] = event.get("sparkPlanInfo")

    def _SparkListenerJobStart(self, event: Any) -> None:  # noqa: N802
        properties = event.get("Properties") or {}
        execution = properties.get("spark.sql.execution.id")
        wanted = properties.get("spark.sql.shuffle.partitions")
        if wanted is not None and str(wanted).isdecimal():
            self._partitions = int(wanted)
        for info in event.get("Stage Infos", ()):
            stage = self._stage(info.get("Stage ID"))
            stage.name = info.get("Stage Name", "")
            stage.execution = stage.execution or execution

    def _SparkListenerStageCompleted(self, event: Any) -> None:  # noqa: N802
        info = event.get("Stage Info", {})
        stage = self._stage(info.get("Stage ID"))
        stage.metrics.update(int(one["ID"]) for one in info.get("Accumulables", ()))

    def _SparkListenerTaskEnd(self, event: Any) -> None:  # noqa: N802
        info, metrics = event.get("Task Info") or {}, event.get("Task Metrics") or {}
        if info.get("Failed") or info.get("Killed") or not metrics:
            return
        shuffle = metrics.get("Shuffle Read Metrics") or {}
        given = metrics.get("Input Metrics") or {}
        sizes = (shuffle.get("Remote Bytes Read", 0), shuffle.get("Local Bytes Read", 0))
        start, end = (float(info.get(name, 0)) / 1e3 for name in ("Launch Time", "Finish Time"))
        stage = self._stage(event.get("Stage ID"))
        for one in info.get("Accumulables", ()):
            if one.get("Name") == _READ:
                stage.reads.setdefault(int(one["ID"]), []).append(int(one["Update"]))
        stage.tasks.append(
            _Task(
                start,
                end,
                float(metrics.get("Executor Run Time", 0)) / 1e3,
                int(shuffle.get("Total Records Read", 0)) or int(given.get("Records Read", 0)),
                int(sum(sizes)) or int(given.get("Bytes Read", 0)),
            )
        )

    def _stage(self, number: Any) -> _Running:
        return self._stages.setdefault(int(number or 0), _Running())

    def application(self, path: Path) -> Application:
        """What was seen."""
        cores = self._most_cores or 1
        stages = [
            self._finished(number, stage, cores)
            for number, stage in sorted(self._stages.items())
            if stage.tasks
        ]
        return Application(
            path,
            self._name,
            self._id,
            tuple(stages),
            cores,
            self._partitions,
            self._ended and not self.cut,
        )

    def _finished(self, number: int, stage: _Running, cores: int) -> Stage:
        tasks = stage.tasks
        took = [task.seconds for task in tasks]
        whole = max(task.end for task in tasks) - min(task.start for task in tasks)
        even = sum(took) / min(cores, len(tasks))
        plan = self._plans.get(stage.execution or "")
        return Stage(
            number=number,
            name=stage.name,
            tasks=len(tasks),
            seconds=whole,
            longest=max(took),
            median=statistics.median(took),
            most_rows=max(task.rows for task in tasks),
            median_rows=statistics.median(task.rows for task in tasks),
            most_bytes=max(task.bytes for task in tasks),
            median_bytes=statistics.median(task.bytes for task in tasks),
            lost=max(0.0, min(whole, max(took)) - even),
            operator=None if plan is None else _operator(plan, stage),
            query=self._queries.get(stage.execution or "", ""),
        )


# plans


def _operator(plan: Any, stage: _Running) -> Operator | None:
    """The operator of a stage that needs rows of equal keys together, and their columns.

    A node belongs to the stage in which one of its metrics was counted. The exchange below it says
    by what rows were brought together; where an operator names its keys itself, those count. Of
    several exchanges, as a join has them, it is the one whose rows are spread worst.
    """
    found: list[tuple[float, Operator]] = []
    for chain in _chains(plan, ()):
        node = chain[-1]
        if "Exchange" not in node.get("nodeName", "") or not _read_in(node, stage.metrics):
            continue
        columns = _columns(node.get("simpleString", ""))
        above = [one for one in chain[:-1] if _ran(one, stage.metrics) and _groups(one)]
        if not above and not columns:
            continue
        user = above[-1] if above else node
        text = user.get("simpleString", "")
        columns = columns or _columns(text)
        files = _files(node, columns)
        join = _JOIN.search(text)
        operator = Operator(_plain_name(user), columns, text, files)
        if join is not None:
            sides = _names(join[1]), _names(join[2])
            operator = replace(operator, sides=sides, how=join[3] or "")
        found.append((_spread(node, stage), operator))
    return max(found, key=lambda one: one[0])[1] if found else None


def _spread(node: Any, stage: _Running) -> float:
    """How many rows more than the median a task read of an exchange."""
    worst = 0.0
    for name, number in _ids(node):
        if name == _READ and number in stage.reads:
            rows = stage.reads[number]
            rows = [*rows, *[0] * (len(stage.tasks) - len(rows))]
            worst = max(worst, max(rows) - statistics.median(rows))
    return worst


def _files(node: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """The files below a node; none where it has another source too, or the plan lists not all.

    Columns that were computed, or renamed, are not in the files: then there are none either.
    """
    leaves = [chain[-1] for chain in _chains(node, ()) if not chain[-1].get("children")]
    found: list[str] = []
    for leaf in leaves:
        metadata = leaf.get("metadata") or {}
        location = _LOCATION.search(str(metadata.get("Location", "")))
        if location is None or metadata.get("Format") not in _FORMATS:
            return ()
        if not set(columns) <= set(_fields(str(metadata.get("ReadSchema", "")))):
            return ()
        count, paths = int(location[1]), location[2].split(", file:")
        if count != len(paths) or "..." in location[2]:
            return ()
        found += (_local(path) for path in paths)
    return tuple(dict.fromkeys(found))


def _fields(schema: str) -> list[str]:
    """The names of struct<name:type,...>, those inside of a type left out."""
    names, depth, start = [], 0, 0
    inner = schema.removeprefix("struct<").removesuffix(">")
    for at, letter in enumerate(f"{inner},"):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            names.append(inner[start:at].partition(":")[0])
            start = at + 1
    return names


def _local(path: str) -> str:
    """A path without the scheme; file:///x and file:/x are /x."""
    return "/" + unquote(path).lstrip("/")


def _chains(node: Any, above: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Every node after those above it."""
    here = (*above, node)
    yield here
    for child in node.get("children", ()):
        yield from _chains(child, here)


def _ids(node: Any) -> list[tuple[str, int]]:
    return [(str(m.get("name", "")), int(m["accumulatorId"])) for m in node.get("metrics", ())]


def _ran(node: Any, metrics: set[int]) -> bool:
    found = _ids(node)
    return not found or any(number in metrics for _, number in found)


def _read_in(node: Any, metrics: set[int]) -> bool:
    """Whether a stage read what an exchange wrote."""
    return any(number in metrics for name, number in _ids(node) if _is_read(name))


def _is_read(name: str) -> bool:
    return "read" in name or name == "fetch wait time"


_GROUPING = ("Aggregate", "Window", "Join", "Group", "CoGroup", "Generate")


def _groups(node: Any) -> bool:
    return any(word in node.get("nodeName", "") for word in _GROUPING)


def _plain_name(node: Any) -> str:
    return str(node.get("nodeName", "")).strip()


def _columns(text: str) -> tuple[str, ...]:
    """Columns of hashpartitioning(...), keys=[...] or Join [...], [...], without their numbers."""
    for pattern in (
        r"hashpartitioning\((.*?),\s*\d+\)",
        r"rangepartitioning\((.*?),\s*\d+\)",
        r"keys=\[(.*?)\]",
        r"windowspecdefinition\((.*?) (?:ASC|DESC)",
        r"Join \[(.*?)\]",
    ):
        found = re.search(pattern, text)
        if found:
            return tuple(dict.fromkeys(_names(found[1])))
    return ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in _COLUMN.findall(text))


def total_lost(stages: Sequence[Stage]) -> float:
    """Seconds that all these stages cost."""
    return sum(stage.lost for stage in stages)
