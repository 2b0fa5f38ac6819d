"""One pass over a source: a profile of its keys, and a sample for the homes of an engine."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyroute import _core
from pyroute.analyze.source import (
    ROWS,
    Batch,
    File,
    InputError,
    Part,
    Source,
    as_numpy,
    expect_columns,
    nothing,
    opened,
    threads,
)
from pyroute.homes import EngineHome, FlinkKeyGroup, KafkaHash, SparkHash, StormHash
from pyroute.key_profile import KeyProfile

if TYPE_CHECKING:
    from pyroute.analyze.locality import PairChunks

__all__ = ["ENGINES", "Columns", "Pass", "scan"]

SAMPLE = 32  # one row of so many goes to the homes of an engine
_ROW = re.compile(r" in row (\d+)$")

_SPARK = {
    "bool": "boolean",
    "int8": "tinyint",
    "uint8": "smallint",
    "int16": "smallint",
    "uint16": "int",
    "int32": "int",
    "uint32": "bigint",
    "int64": "bigint",
    "string": "string",
    "large_string": "string",
    "string_view": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
    "timestamp[us]": "timestamp",
    "timestamp[ms]": "timestamp",
}
_JAVA = {
    "boolean": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "int": "int",
    "bigint": "long",
    "string": "string",
}
_SERIALIZERS = {"string": "string", "binary": "bytes", "int": "integer", "bigint": "long"}

ENGINES = ("spark", "kafka", "flink", "storm")


@dataclass(frozen=True)
class Columns:
    """Which columns say what."""

    keys: tuple[str, ...]
    cost: str | None = None
    state: str | None = None
    time: str | None = None
    pair: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        found = (*self.keys, self.cost, self.state, self.time, self.pair)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    @property
    def texts(self) -> tuple[str, ...]:
        """Those of keys, which may be read as text."""
        return self.keys if self.pair is None else tuple(dict.fromkeys((*self.keys, self.pair)))


def engine_home(engine: str, tasks: int, types: Sequence[Any]) -> EngineHome | None:
    """The home of an engine for columns of these Arrow types, where it has one."""
    plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in types]
    names = [
        _SPARK.get("timestamp[us]" if pa.types.is_timestamp(kind) else str(kind), "")
        for kind in plain
    ]
    java = [_JAVA.get(name, "") for name in names]
    try:
        if engine == "spark":
            return SparkHash(tasks, names)
        if engine == "kafka" and len(names) == 1:
            return KafkaHash(tasks, _SERIALIZERS[names[0]])
        if engine == "flink":
            return FlinkKeyGroup(tasks, max(128, tasks), java)
        if engine == "storm":
            return StormHash(tasks, java)
    except (ValueError, KeyError):
        return None
    return None


class Pass:
    """What one thread sees of a source.

    Parameters
    ----------
    columns
        Which columns say what.
    capacity, bits
        Of the `KeyProfile`.
    tasks, engine
        Homes of this engine are sampled, where it is named and takes the key's type.
    pairs
        Counts the keys with those of the step after, where that is asked for.
    """

    def __init__(
        self,
        columns: Columns,
        *,
        capacity: int,
        bits: int,
        tasks: int = 1,
        engine: str | None = None,
        pairs: PairChunks | None = None,
    ) -> None:
        self.columns, self.pairs = columns, pairs
        self.profile = KeyProfile(capacity, bits)
        self.tasks, self.engine = tasks, engine
        self.home: EngineHome | None = None
        self.homeless = ""
        """Why the engine's homes are not known, where they were asked for."""
        self.sampled: npt.NDArray[np.float64] = np.zeros(tasks)
        """Per task of the engine, the sampled load of keys that are not monitored."""
        self.squares = 0.0
        """Of the sampled loads of single rows, summed: how far chance may have taken `sampled`."""
        self.types: tuple[Any, ...] = ()
        self.first: File | None = None
        """Where rows came from first."""

    def add(self, batch: Batch) -> None:
        """Observe some rows."""
        data = batch.data
        if not data.num_rows:
            return
        keys = keys_of(batch, self.columns.keys)
        costs = _numbers(batch, self.columns.cost)
        states = _numbers(batch, self.columns.state)
        if not self.types:
            self._begin(batch)
        if self.home is not None:
            self._sample(data, costs)
        try:
            self.profile._core.observe(keys, None, costs, states)
            if self.pairs is not None:
                self.pairs.add(batch)
        except (TypeError, ValueError) as error:
            raise _told(error, batch, self.columns) from error

    def _begin(self, batch: Batch) -> None:
        schema, self.first = batch.data.schema, batch.file
        self.types = tuple(schema.field(name).type for name in self.columns.keys)
        if self.engine is not None:
            self.home = engine_home(self.engine, self.tasks, self.types)
            if self.home is None:
                several = self.engine == "kafka" and len(self.types) > 1
                kinds = ", ".join(map(str, self.types))
                self.homeless = "it has one key column" if several else f"for keys of {kinds}"

    def _sample(self, data: Any, costs: npt.NDArray[np.float64] | None) -> None:
        assert self.home is not None
        rows = max(1, data.num_rows // SAMPLE)
        part = data.slice(0, rows)
        keys = _core.Keys(*(part.column(name) for name in self.columns.keys), name="values")
        try:
            homes = self.home._core.homes(keys)
        except (TypeError, ValueError):  # a null, where the engine knows none
            self.no_home()
            return
        rest = self.profile._core.find(keys) == 0
        weights = None if costs is None else costs[:rows][rest]
        self.sampled += np.bincount(homes[rest], weights, minlength=self.tasks)
        self.squares += float(rest.sum() if weights is None else (weights**2).sum())

    def no_home(self) -> None:
        """The engine takes the columns, and not a value in them: a null."""
        self.home, self.homeless = None, "for keys that are null"

    def merge(self, other: Pass) -> None:
        """Add what another thread saw."""
        try:
            self.profile.merge(other.profile)
        except (TypeError, ValueError) as error:
            if self.first is None or other.first is None:
                raise
            text = (
                str(error).removeprefix("other: ").replace("seen before", f"in {self.first.name}")
            )
            keys = ", ".join(self.columns.keys)
            raise InputError(f"{other.first.name}: {keys}: {text}") from error
        self.sampled += other.sampled
        self.squares += other.squares
        if not self.types:
            self.types, self.home, self.first = other.types, other.home, other.first
            self.homeless = other.homeless
        elif other.types and other.home is None:
            self.home, self.homeless = None, self.homeless or other.homeless


def scan(
    source: Source,
    make: Callable[[], Pass],
    advance: Callable[[int, int], None] | None = None,
) -> Pass:
    """Read all of a source.

    Equal files give equal results, however many threads there are time for: which of them reads
    which row group is fixed. Pairs are counted in the order of the records, by one thread.

    Parameters
    ----------
    source
        What to read.
    make
        A new pass; each thread has its own.
    advance
        Told rows and bytes that were read since it was told last, by any thread.
    """
    tell = advance or nothing
    one = make()
    if not source.is_parquet or one.pairs is not None:
        for batch in source.batches(lambda size: tell(0, size)):
            one.add(batch)
            tell(batch.data.num_rows, 0)
        return one
    parts = source.parts()
    number = max(1, min(threads(), len(parts)))
    passes = [one, *(make() for _ in range(number - 1))]
    stop = threading.Event()
    sizes = {file: file.size / max(1, _rows(parts, file)) for file in source.files}

    def work(index: int) -> None:
        for batch in _batches(parts[index::number], source.columns):
            if stop.is_set():
                return
            passes[index].add(batch)
            tell(batch.data.num_rows, round(sizes[batch.file] * batch.data.num_rows))

    with ThreadPoolExecutor(number) as pool:
        running = [pool.submit(work, index) for index in range(number)]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
        for future in running:
            future.result()
    for other in passes[1:]:
        passes[0].merge(other)
    return passes[0]


def _rows(parts: Sequence[Part], file: File) -> int:
    return sum(part.rows for part in parts if part.file is file)


def _batches(parts: Sequence[Part], columns: Sequence[str]) -> Iterator[Batch]:
    """Row groups of files, each file opened once by this thread."""
    at = 0
    while at < len(parts):
        file, end = parts[at].file, at
        while end < len(parts) and parts[end].file is file:
            end += 1
        with opened(file, columns) as parquet:
            for part in parts[at:end]:
                start = part.start
                for data in parquet.iter_batches(
                    ROWS, row_groups=[part.group], columns=list(columns), use_threads=False
                ):
                    yield Batch(data, file, start)
                    start += data.num_rows
        at = end


def keys_of(batch: Batch, names: Sequence[str]) -> _core.Keys:
    """The key of every row."""
    data = batch.data
    expect_columns(batch.file, data.schema.names, names)
    try:
        return _core.Keys(*(data.column(name) for name in names), name=", ".join(names))
    except (TypeError, ValueError) as error:
        raise InputError(_placed(error, batch)) from error


def _numbers(batch: Batch, name: str | None) -> npt.NDArray[np.float64] | None:
    if name is None:
        return None
    column = batch.data.column(name)
    kind = column.type
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    ):
        raise InputError(f"{batch.file.name}: column {name!r}: expected numbers, got {kind}")
    if kind != pa.float64():
        column = column.cast(pa.float64(), safe=False)
    if column.null_count:
        column = pc.fill_null(column, 0.0)
    return as_numpy(column)


def _placed(error: Exception, batch: Batch) -> str:
    """The error's text with the row in the file, and the file."""
    text = _ROW.sub(lambda found: f" in row {int(found[1]) + batch.start}", str(error))
    return f"{batch.file.name}: {text}"


def _told(error: Exception, batch: Batch, columns: Columns) -> InputError:
    text = _placed(error, batch)
    named = ("costs", columns.cost), ("state_sizes", columns.state), ("out_values", columns.pair)
    for ours, name in named:
        text = text.replace(f": {ours}: ", f": column {name!r}: ")
    text = text.replace(": values: ", f": {', '.join(columns.keys)}: ")
    return InputError(text)
