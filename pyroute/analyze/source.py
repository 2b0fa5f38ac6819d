"""Files as streams of Arrow batches, never whole: Parquet, CSV, JSON lines, Arrow IPC, stdin.

A `Source` is files of one or more formats. `batches` gives them in order; `parts` cuts Parquet
files into row groups, so that several threads can read at once.
"""

from __future__ import annotations

import contextlib
import glob
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("reading files needs pyarrow: pip install 'pyroute-core[cli]'") from error

__all__ = ["FORMATS", "Batch", "InputError", "Part", "Source"]

ROWS = 1 << 16
"""Rows of a batch: small enough to stay in a processor's cache."""
BLOCK = 1 << 22  # bytes of text that are parsed at a time

FORMATS = ("parquet", "csv", "jsonl", "arrow")

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".parq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}


class InputError(ValueError):
    """Input that cannot be used; the text says what to do."""


@dataclass(frozen=True)
class File:
    """One file and how to read it."""

    path: str  # "-" is stdin
    kind: str
    compression: str | None = None
    size: int = 0
    is_stdin: bool = False  # also where it was kept in a file

    @property
    def name(self) -> str:
        """As messages name it."""
        return "stdin" if self.is_stdin else self.path

    @property
    def is_tabbed(self) -> bool:
        """Whether columns of its text are separated by tabs."""
        return self.path.removesuffix(Path(self.path).suffix * bool(self.compression)).endswith(
            ".tsv"
        )


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a Parquet file that one thread reads: a row group."""

    file: File
    group: int
    start: int  # the first row in the file
    rows: int


@dataclass(frozen=True)
class Batch:
    """Some rows, and where they come from."""

    data: Any  # pyarrow.RecordBatch
    file: File
    start: int


@dataclass(frozen=True)
class Source:
    """Files whose columns are to be read.

    Parameters
    ----------
    files
        The files, in order.
    columns
        Columns to read, each once; none means all of them.
    texts
        Columns of CSV and JSON that are text, whatever they look like.
    delimiter
        What is between the columns of CSV; None is a comma, or a tab where the name says so.
    """

    files: tuple[File, ...]
    columns: tuple[str, ...]
    texts: tuple[str, ...] = ()
    delimiter: str | None = None
    _spooled: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        columns: Sequence[str],
        *,
        kind: str | None = None,
        texts: Sequence[str] = (),
        delimiter: str | None = None,
    ) -> Source:
        """Files by path, directory, glob or "-"; raises `InputError` where there are none."""
        if not names:
            raise InputError("FILE: expected a file, a directory, a glob or - for stdin, got none")
        if kind is not None and kind not in FORMATS:
            raise InputError(f"--format: expected {', '.join(FORMATS)}, got {kind}")
        files = [file for name in names for file in _files(str(name), kind)]
        between = None if delimiter is None else _delimiter(delimiter, files)
        return cls(tuple(files), tuple(dict.fromkeys(columns)), tuple(texts), between)

    @property
    def size(self) -> int:
        """Bytes of the files; 0 where it is not known."""
        return sum(file.size for file in self.files)

    @property
    def wanted(self) -> list[str] | None:
        """The columns as pyarrow takes them."""
        return list(self.columns) or None

    def parsed(self, file: File) -> Any:
        """How pyarrow is to parse a file of CSV, whose fields may have line breaks in them."""
        import pyarrow.csv as pc

        between = self.delimiter or ("\t" if file.is_tabbed else ",")
        return pc.ParseOptions(delimiter=between, newlines_in_values=True)

    @property
    def is_parquet(self) -> bool:
        """Whether all of it can be read by several threads."""
        return all(file.kind == "parquet" and file.path != "-" for file in self.files)

    def parts(self) -> list[Part]:
        """The row groups of Parquet files, in order; checks that the columns are there."""
        parts = []
        for file in self.files:
            with opened(file, self.columns) as parquet:
                start, meta = 0, parquet.metadata
                for group in range(meta.num_row_groups):
                    rows = meta.row_group(group).num_rows
                    if rows:
                        parts.append(Part(file, group, start, rows))
                    start += rows
        return parts

    def batches(self, advance: Callable[[int], None] | None = None) -> Iterator[Batch]:
        """All rows in order.

        Parameters
        ----------
        advance
            Told how many bytes of the files were read since it was told last.
        """
        for file in self.files:
            with _reading(file):
                yield from _READERS[file.kind](self, file, advance or nothing)

    def close(self) -> None:
        """Remove what stdin was kept in."""
        for path in self._spooled.values():
            Path(path).unlink(missing_ok=True)
        self._spooled.clear()


def as_numpy(column: pa.Array) -> npt.NDArray[Any]:
    """Numbers of an Arrow array without nulls, not copied. Its own `to_numpy` imports pandas."""
    found: npt.NDArray[Any] = np.from_dlpack(column)
    return found


def nothing(*_: int) -> None:
    """Take progress and tell nobody."""


# which files


def _files(name: str, kind: str | None) -> list[File]:
    if name == "-":
        return [_stdin(kind)]
    path = Path(name)
    if path.is_dir():
        found = [file for file in sorted(path.rglob("*")) if file.is_file() and _counts(file, path)]
        if not found:
            raise InputError(f"{name}: expected files in the directory, got none")
        return [_file(each, kind) for each in _with_bytes(name, map(str, found))]
    if path.exists():
        return [_file(name, kind)]
    if any(letter in name for letter in "*?["):
        matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - any pattern
        if not matches:
            raise InputError(f"{name}: expected a pattern of files that exist, got no match")
        return [file for match in _with_bytes(name, matches) for file in _files(match, kind)]
    raise InputError(f"{name}: no such file or directory{_near(path)}")


def _delimiter(text: str, files: Sequence[File]) -> str:
    found = "\t" if text == r"\t" else text
    if len(found) != 1 or not found.isascii() or found in '"\r\n':
        raise InputError(f"--delimiter: expected one ASCII character, or \\t, got {text!r}")
    if not any(file.kind == "csv" for file in files):
        raise InputError(f"--delimiter: expected CSV with it, got {files[0].kind}")
    return found


def _with_bytes(name: str, paths: Iterable[str]) -> list[str]:
    """Those that hold something: engines write empty files for parts without records."""
    full = [path for path in paths if not Path(path).is_file() or Path(path).stat().st_size]
    if not full:
        raise InputError(f"{name}: expected records, got empty files alone")
    return full


def _counts(file: Path, root: Path) -> bool:
    """Whether a file of a directory holds data: not _SUCCESS, nor .crc, nor what Spark commits."""
    parts = file.relative_to(root).parts
    if any(part.startswith(("_", ".")) for part in parts):
        return False
    bare = file.with_suffix("") if file.suffix in _COMPRESSED else file
    return bare.suffix.lower() in _SUFFIXES


def _near(path: Path) -> str:
    import difflib

    with contextlib.suppress(OSError):
        names = [other.name for other in path.parent.iterdir()]
        close = difflib.get_close_matches(path.name, names, n=1)
        if close:
            return f"; did you mean {path.with_name(close[0])}?"
    return ""


def _file(name: str, kind: str | None) -> File:
    path = Path(name)
    size = path.stat().st_size
    compression = _COMPRESSED.get(path.suffix.lower())
    bare = path.with_suffix("") if compression else path
    if path.is_file() and size == 0:
        raise InputError(f"{name}: the file is empty")
    if kind is None:
        kind = _SUFFIXES.get(bare.suffix.lower())
    if kind is None:
        with path.open("rb") as stream:
            kind = _sniffed(stream.read(64))
    return File(name, kind, compression, size if path.is_file() else 0)


def _sniffed(start: bytes) -> str:
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    return "jsonl" if start.lstrip().startswith(b"{") else "csv"


def _stdin(kind: str | None) -> File:
    stream: Any = sys.stdin.buffer
    start = stream.peek(64)
    if not start:
        raise InputError("stdin: expected data, got nothing")
    return File("-", kind or _sniffed(start), is_stdin=True)


# how they are read


@contextlib.contextmanager
def _reading(file: File) -> Iterator[None]:
    """Errors of pyarrow with the file's name, in one line."""
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError) as error:
        text = str(error).strip().split("\n")[0]
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise InputError(f"{file.name}: {error.strerror or text}") from error
        if "conversion error" in text:
            text += "; --text reads the key's columns as text"
        raise InputError(f"{file.name}: not readable as {file.kind}: {text}") from error


@contextlib.contextmanager
def opened(file: File, columns: Sequence[str]) -> Iterator[Any]:
    """A Parquet file that is read page by page; `InputError` where columns are missing."""
    import pyarrow.parquet as pq

    # Not pre-buffered: that would keep all row groups.
    options: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
    with _reading(file), pq.ParquetFile(file.path, **options) as parquet:
        expect_columns(file, parquet.schema_arrow.names, columns)
        yield parquet


def expect_columns(file: File, names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise `InputError` for a column that is not there."""
    for column in columns:
        if column not in names:
            shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise InputError(f"{file.name}: no column {column!r}; its columns: {shown}")
        if list(names).count(column) > 1:
            raise InputError(f"{file.name}: column {column!r} is there twice")


def _parquet(source: Source, file: File, advance: Callable[[int], None]) -> Iterator[Batch]:
    if file.path == "-":
        file = _spool(source, file)
    with opened(file, source.columns) as parquet:
        start, rows = 0, max(1, parquet.metadata.num_rows)
        for data in parquet.iter_batches(batch_size=ROWS, columns=source.wanted):
            yield Batch(data, file, start)
            start += data.num_rows
            advance(file.size * data.num_rows // rows)


def _spool(source: Source, file: File) -> File:
    """Stdin as a file: the index of a Parquet file is at its end."""
    with tempfile.NamedTemporaryFile(prefix="pyroute-", suffix=".parquet", delete=False) as to:
        source._spooled[file.path] = to.name
        shutil.copyfileobj(sys.stdin.buffer, to, 1 << 20)
    return File(to.name, "parquet", None, Path(to.name).stat().st_size, is_stdin=True)


class _Counted(io.RawIOBase):
    """A stream that says how many bytes were read from it."""

    def __init__(self, stream: IO[bytes], advance: Callable[[int], None]) -> None:
        self._stream, self._advance = stream, advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._advance(len(data))
        return len(data)


@contextlib.contextmanager
def _stream(file: File, advance: Callable[[int], None]) -> Iterator[Any]:
    """The bytes of a file, decompressed."""
    with contextlib.ExitStack() as stack:
        if file.path == "-":
            raw: Any = sys.stdin.buffer
        else:
            raw = stack.enter_context(Path(file.path).open("rb"))
        counted: Any = io.BufferedReader(_Counted(raw, advance), 1 << 20)
        if file.compression:
            counted = stack.enter_context(pa.CompressedInputStream(counted, file.compression))
        yield counted


def _csv(source: Source, file: File, advance: Callable[[int], None]) -> Iterator[Batch]:
    import pyarrow.csv as pc

    with _stream(file, advance) as stream:
        try:
            reader = pc.open_csv(
                stream,
                read_options=pc.ReadOptions(block_size=BLOCK),
                parse_options=source.parsed(file),
                convert_options=pc.ConvertOptions(
                    include_columns=source.wanted,
                    column_types=dict.fromkeys(source.texts, pa.string()),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (pa.ArrowKeyError, KeyError) as error:
            _expect_header(source, file, error)
            raise
        with reader:
            if file.path != "-":
                _expect_once(source, file, source.columns or reader.schema.names)
            start = 0
            for data in reader:
                yield Batch(data, file, start)
                start += data.num_rows


def _expect_header(source: Source, file: File, error: Exception) -> None:
    if file.path == "-":
        raise InputError(f"stdin: {str(error).strip(chr(39))}") from error
    names = _header(source, file)
    if len(names) == 1:
        for between in (";", "\t", "|"):
            if set(source.columns) <= {name.strip('"') for name in names[0].split(between)}:
                shown = r"'\t'" if between == "\t" else f"'{between}'"
                raise InputError(
                    f"{file.name}: expected commas between columns: --delimiter {shown}"
                ) from error
    expect_columns(file, names, source.columns)


def _expect_once(source: Source, file: File, columns: Sequence[str]) -> None:
    """Of two columns of one name the reader would take the first, and say nothing."""
    names = _header(source, file)
    for column in dict.fromkeys(columns):
        if names.count(column) > 1:
            raise InputError(f"{file.name}: column {column!r} is there twice")


def _header(source: Source, file: File) -> list[str]:
    """The names in the first line of a file of text."""
    import pyarrow.csv as pc

    with _stream(file, nothing) as stream:
        read = pc.ReadOptions(block_size=BLOCK)
        with pc.open_csv(stream, read_options=read, parse_options=source.parsed(file)) as reader:
            return list(reader.schema.names)


def _jsonl(source: Source, file: File, advance: Callable[[int], None]) -> Iterator[Batch]:
    import pyarrow.json as pj

    schema = pa.schema([(name, pa.string()) for name in source.texts]) if source.texts else None
    parse = pj.ParseOptions(explicit_schema=schema)
    start, left, seen = 0, b"", set[str]()
    with _stream(file, advance) as stream:
        while True:
            data = stream.read(BLOCK)
            block, left = _lines(left + data, last=not data)
            if block.strip():
                read = pj.ReadOptions(block_size=max(len(block) + 1, 1 << 16))
                try:
                    table = pj.read_json(io.BytesIO(block), read, parse)
                except pa.ArrowInvalid as error:
                    table = _other_json(file, source, block, start, error)
                seen.update(table.schema.names)
                yield from _selected(source, file, table, start)
                start += table.num_rows
            if not data:
                break
    if start:
        expect_columns(file, sorted(seen), source.columns)


def _other_json(file: File, source: Source, block: bytes, start: int, error: Exception) -> Any:
    """Lines whose keys are numbers, or of several types, as text where that is asked for."""
    if not start and block.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        raise InputError(
            f"{file.name}: expected JSON lines, one object in each, got an array;"
            " jq -c '.[]' makes lines of it"
        ) from error
    if not source.texts:
        text = str(error).split("\n")[0]
        more = "; --text reads the key's columns as text" if "changed from" in text else ""
        raise InputError(f"{file.name}: not readable as jsonl: {text}{more}") from error
    rows: list[dict[str, Any]] = []
    for line in filter(None, map(bytes.strip, block.removeprefix(b"\xef\xbb\xbf").split(b"\n"))):
        try:  # numbers stay as they are written
            row = json.loads(line, parse_int=_Number, parse_float=_Number)
        except ValueError as bad:
            place = f"{file.name}: row {start + len(rows)}"
            raise InputError(f"{place}: expected a line of JSON, got none: {bad}") from error
        if not isinstance(row, dict):
            raise InputError(f"{file.name}: row {start + len(rows)}: expected an object") from error
        rows.append(row)
    names = dict.fromkeys(source.columns or (name for row in rows for name in row))
    return pa.table(
        {name: _column(name, source, [row.get(name) for row in rows]) for name in names}
    )


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def _column(name: str, source: Source, values: list[Any]) -> Any:
    """A column of text; of numbers, where it is not to be text and holds nothing else."""
    column = pa.array([_text(value) for value in values], pa.string())
    if name in source.texts or not all(isinstance(v, _Number | None) for v in values):
        return column
    for kind in (pa.int64(), pa.float64()):
        with contextlib.suppress(pa.ArrowInvalid):
            return column.cast(kind)
    return column


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _lines(data: bytes, last: bool) -> tuple[bytes, bytes]:
    """Whole lines, and what is left."""
    if last:
        return data, b""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _selected(source: Source, file: File, table: Any, start: int) -> Iterator[Batch]:
    """The columns; a field that no line of a block has is null there."""
    wanted = source.columns or tuple(table.schema.names)
    columns = [
        table.column(name) if name in table.schema.names else pa.nulls(table.num_rows)
        for name in wanted
    ]
    picked = pa.table(dict(zip(wanted, columns, strict=True)))
    for data in picked.to_batches(max_chunksize=ROWS):
        yield Batch(data, file, start)
        start += data.num_rows


def _arrow(source: Source, file: File, advance: Callable[[int], None]) -> Iterator[Batch]:
    is_file = False
    if file.path != "-":
        with Path(file.path).open("rb") as stream:
            is_file = stream.read(6) == b"ARROW1"
    with contextlib.ExitStack() as stack:
        if is_file:
            reader = stack.enter_context(
                pa.ipc.open_file(stack.enter_context(pa.OSFile(file.path)))
            )
            count = reader.num_record_batches
            every = (reader.get_batch(i) for i in range(count))
        else:
            reader = stack.enter_context(
                pa.ipc.open_stream(stack.enter_context(_stream(file, advance)))
            )
            count, every = 0, iter(reader)
        expect_columns(file, reader.schema.names, source.columns)
        start = 0
        for whole in every:
            data = whole.select(list(source.columns)) if source.columns else whole
            for at in range(0, data.num_rows, ROWS):
                part = data.slice(at, ROWS)
                yield Batch(part, file, start)
                start += part.num_rows
            if count:
                advance(file.size // count)


_READERS: dict[str, Callable[[Source, File, Callable[[int], None]], Iterator[Batch]]] = {
    "parquet": _parquet,
    "csv": _csv,
    "jsonl": _jsonl,
    "arrow": _arrow,
}


def threads() -> int:
    """How many threads read at once: those that pyarrow itself would use."""
    return max(1, int(pa.cpu_count()))
