"""What a live page reads: a stream on Spark, a store of control, a store of settings.

A source reads files that another process writes. It opens them for reading alone, and what is
missing, locked, half written or damaged is a `SourceError` or a warning of the page, never its end.
"""

from __future__ import annotations

import abc
from pathlib import Path

from pyroute.report import Report

_DATABASES = ("postgresql://", "postgres://", "postgresql+psycopg://")


class SourceError(Exception):
    """Why a source cannot be read now, in one line."""


class Source(abc.ABC):
    """One place that is read again and again."""

    kind = ""
    """What its pill on the page says."""

    def __init__(self, place: str) -> None:
        self.place = place

    @abc.abstractmethod
    def read(self) -> Report:
        """What is there now, as a report of its own; `SourceError` where it cannot be read."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Let go of what is open."""


def open_source(place: str) -> Source:
    """The source at a place.

    Parameters
    ----------
    place
        ``spark:DIR``, the directory of a `RoutedStream`; ``control:FILE`` or
        ``control:postgresql://USER@HOST/NAME``, the store of `pyroute control`; ``storm:dir:PATH``
        or ``storm:zk://HOST/PATH``, a store of settings. Without the first word it is guessed from
        what is there.
    """
    kind, _, rest = place.partition(":")
    if kind == "spark" and rest:
        return _spark(rest)
    if kind == "control" and rest:
        return _control(rest)
    if kind == "storm" and rest:
        return _settings(rest)
    if place.startswith(("sqlite://", *_DATABASES)):
        return _control(place)
    if place.startswith(("dir:", "zk://")):
        return _settings(place)
    path = Path(place)
    if path.is_dir():
        return _spark(place)
    if path.is_file():
        return _control(place)
    raise SourceError(
        f"{place}: expected the directory of a stream, the file of a store, or spark:, control: or"
        " storm: and a place; there is nothing"
    )


def _spark(place: str) -> Source:
    from pyroute.serve.spark import SparkStream

    return SparkStream(place)


def _control(place: str) -> Source:
    from pyroute.serve.control import ControlStore, PostgresStore

    if place.startswith(_DATABASES):
        return PostgresStore(place)
    return ControlStore(place.removeprefix("sqlite:///"))


def _settings(place: str) -> Source:
    from pyroute.serve.settings import Settings

    if not place.startswith(("dir:", "zk://")) or place in ("dir:", "zk://"):
        raise SourceError(f"storm: expected dir:PATH or zk://HOST:PORT/PATH, got {place}")
    return Settings(place)
