"""A Spark of `pyroute run`'s own: a working directory, a JVM, and both gone at the end.

Java's output goes to a file, where its greetings disturb nobody; what a user has to know of it is
told (`_Watch`), and an error that ends the run carries its own text. At the end, also after Ctrl-C
and SIGTERM, queries are stopped, then the JVM is, then the directory is removed: no process is left
that could write there. After a SIGKILL the JVM ends by itself, as its standard input does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pyroute.cli.output import CommandError, FailedError, Output
from spark_udf.session import java_home

STOP_SECONDS = 10.0
"""How long the JVM may take to end before it is killed."""

_TELLING = re.compile(
    r"Initial job has not accepted any resources.*|All masters are unresponsive.*"
    r"|Lost executor .*|.*No space left on device.*|.*OutOfMemoryError.*"
)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Committed)): (.+)$", re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z_][\w]*\.)+[A-Z]\w*: ")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")


@contextlib.contextmanager
def directory(keep: Path | None) -> Iterator[Path]:
    """Where a run writes: the directory that is kept, or one that is removed at the end."""
    with _terminated(), _directory(keep) as path:
        yield path


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    was_there = keep is not None and keep.exists()
    if keep is None:
        path = Path(tempfile.mkdtemp(prefix="pyroute-run-"))
    else:
        path = keep.absolute()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise CommandError(f"--keep: expected a directory that is new or empty, got {keep}")
        path.mkdir(parents=True, exist_ok=True)
    left = [path if keep is None else path / "tmp"]
    try:
        yield path
    except (KeyboardInterrupt, SystemExit):  # half of a run is not kept, so that it can run again
        left = list(path.iterdir()) if was_there else [path]
        raise
    finally:
        with _uninterrupted():
            for place in left:
                shutil.rmtree(place, ignore_errors=True)
                with contextlib.suppress(OSError):
                    place.unlink(missing_ok=True)


@contextlib.contextmanager
def session(
    path: Path,
    master: str,
    options: Mapping[str, str],
    *,
    output: Output,
    debug: bool = False,
    short: bool = False,
) -> Iterator[SparkSession]:
    """The session in force, or one of its own that ends with the block.

    Parameters
    ----------
    path
        The working directory; `spark.log` there is what Java writes.
    master
        Spark's master.
    options
        Settings of Spark that go before those made here.
    output
        For what the user has to know meanwhile.
    debug
        Whether Java writes to stderr instead.
    short
        Whether there is little to do for Java: compilers that take long for fast code would cost
        more than half of the time.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    settings = _settings(path, master, options, short)
    log = None if debug else path / "spark.log"
    gateway = spark = None
    with _no_talk():
        try:
            with _delayed():  # a JVM that is half started could not be ended
                gateway = _launch(path, settings, log)
            with _told(log, output):
                spark = _context(gateway, settings)
                yield spark
        finally:
            with _uninterrupted():
                _close(spark, gateway)


def elsewhere(*functions: Callable[[], object], seconds: float = STOP_SECONDS) -> None:
    """Call functions that put things in order in a new thread, and wait no longer than that.

    A thread talks to Java over a connection of its own. That of a thread which Ctrl-C took out of
    a call is of no use any more: the answer to that call is still to come.
    """

    def call() -> None:
        for function in functions:
            # The JVM may be gone, which is what is wanted.
            with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
                function()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)


def reason(error: BaseException) -> str:
    """What went wrong in Spark, in one line: the Python error inside, or Spark's own words."""
    text = str(error)
    inside = _inside(text)
    if inside is not None:
        return inside[1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("An error occurred", "==="))]
    line = lines[0] if lines else type(error).__name__
    return _CONDITION.sub("", _CLASS.sub("", line.removeprefix(": ")))


def failure(error: BaseException) -> type[CommandError]:
    """The class to raise: whether Python found its input to be wrong inside Spark."""
    inside = _inside(str(error))
    return CommandError if inside and inside[0] in ("ValueError", "TypeError") else FailedError


def _inside(text: str) -> tuple[str, str] | None:
    """Class and message of the Python error that a text of Spark holds, None where it is none."""
    wrapped = ("PythonException", "Py4JJavaError")
    plain = [found for found in _PYTHON.findall(text) if found[0] not in wrapped]
    return plain[-1] if plain else None


def _settings(path: Path, master: str, options: Mapping[str, str], short: bool) -> dict[str, str]:
    java = " -XX:TieredStopAtLevel=1" if short else ""
    settings = {
        "spark.app.name": "pyroute run",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(path / "tmp" / "warehouse"),
        "spark.sql.streaming.stopTimeout": "5s",
        "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={path / "tmp"}"{java}',
    }
    if master.startswith("local"):
        settings["spark.local.dir"] = str(path / "tmp")
    if master.startswith("local") or _is_loopback(master):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return {**settings, **options, "spark.master": master}


def _is_loopback(master: str) -> bool:
    host = urlsplit(master).hostname or ""
    return host == "localhost" or host.startswith("127.")


def _launch(path: Path, settings: Mapping[str, str], log: Path | None) -> Any:
    """The JVM, whose process is `proc` of what is given."""
    (path / "tmp").mkdir(exist_ok=True)
    try:
        java = java_home(path / "tmp" / "java")
    except RuntimeError as error:
        raise FailedError(str(error)) from error
    if java is not None:
        os.environ["JAVA_HOME"] = java
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    streams: dict[str, Any] = {"stdout": 2}  # nothing of Java's is a result
    try:
        with contextlib.ExitStack() as stack:
            if log is not None:
                file = stack.enter_context(log.open("wb"))
                streams = {"stdout": file, "stderr": subprocess.STDOUT}
            return launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
    except PySparkException as error:
        raise FailedError(
            f"Spark: expected a JVM that starts, of {java or 'the java on the path'}, got"
            f" {_first_words(log) or reason(error)}"
        ) from error


def _first_words(log: Path | None) -> str:
    """What was written first, but for greetings: the rest follows from it."""
    lines = [] if log is None else log.read_text(errors="replace").splitlines()
    greetings = ("WARNING:", "Picked up ", "Using ")
    return next((line.strip() for line in lines if line and not line.startswith(greetings)), "")


def _context(gateway: Any, settings: Mapping[str, str]) -> SparkSession:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        SparkContext(conf=conf, gateway=gateway)
        if _is_main():
            # Spark's own handler calls Java from wherever Ctrl-C came, also from inside a call.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return SparkSession.builder.getOrCreate()
    except Exception as error:
        raise CommandError(
            f"--master: expected one that answers, got {settings['spark.master']}: {reason(error)}"
        ) from error


def _close(spark: SparkSession | None, gateway: Any) -> None:
    """End session and JVM; what was asked to end and does not, is killed."""
    if gateway is None:
        return
    elsewhere(*([] if spark is None else [spark.stop]), gateway.shutdown)
    process = gateway.proc
    if process is not None:
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        setattr(SparkContext, name, None)


@contextlib.contextmanager
def _no_talk() -> Iterator[None]:
    """The bridge to Java logs, with a traceback, every call that Ctrl-C or the end cuts short."""

    def wanted(record: logging.LogRecord) -> bool:
        return "while sending command" not in str(record.msg)

    bridge, root = logging.getLogger("py4j"), logging.getLogger()
    level = bridge.level
    bridge.setLevel(logging.CRITICAL)
    root.addFilter(wanted)
    try:
        yield
    finally:
        root.removeFilter(wanted)
        bridge.setLevel(level)


@contextlib.contextmanager
def _told(log: Path | None, output: Output) -> Iterator[None]:
    if log is None:
        yield
        return
    watch = _Watch(log, output)
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    """Tells of lines in Java's log that somebody has to act upon, each once."""

    def __init__(self, log: Path, output: Output) -> None:
        self._log, self._output = log, output
        self._told: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, having read what is there."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        at = 0
        while not self._ended.wait(1.0):
            with contextlib.suppress(OSError), self._log.open(errors="replace") as file:
                file.seek(at)
                for line in file:
                    self._tell(line)
                at = file.tell()

    def _tell(self, line: str) -> None:
        found = _TELLING.search(line)
        if found and found[0] not in self._told:
            self._told.add(found[0])
            self._output.warn(f"Spark: {found[0].strip()}")


# -- signals


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _handled(numbers: tuple[int, ...], handler: Any) -> Iterator[None]:
    """Signals in other hands for a while; in a thread, which gets none, nothing changes."""
    if not _is_main():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def _delayed() -> Iterator[None]:
    """Ctrl-C counts at the end of the block."""
    seen: list[int] = []
    with _handled((signal.SIGINT, signal.SIGTERM), lambda number, _: seen.append(number)):
        yield
    if seen:
        signal.raise_signal(seen[0])


def _uninterrupted() -> contextlib.AbstractContextManager[None]:
    """What puts things in order is not interrupted; it takes some seconds at most."""
    return _handled((signal.SIGINT, signal.SIGTERM), signal.SIG_IGN)


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """SIGTERM and a closed terminal end the block as Ctrl-C does."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ends, interrupt = (signal.SIGTERM, signal.SIGHUP), signal.getsignal(signal.SIGINT)
    with _handled(ends, end), _handled((signal.SIGINT,), interrupt):
        yield
