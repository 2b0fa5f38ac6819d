"""Homes that agree bit for bit with an engine's own default.

A table over such a home names only the keys that leave; all others stay where the engine has them.

>>> SparkHash(8, key_type="string").homes(["anna", "bert"])
array([6, 2], dtype=int32)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import count
from pyroute._kernel import Kernel, as_bytes
from pyroute.keys import as_core

KeyType = str | Sequence[str]


class EngineHome(Kernel):
    """What the homes of all engines have alike."""

    __slots__ = ()
    _native = _core.EngineHome
    _engine: int

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; anything else raises `FormatError`."""
        home = wrap_engine(_core.EngineHome.from_bytes(as_bytes(data)))
        if not isinstance(home, cls):
            raise _core.FormatError(
                f"data: expected {cls.__name__}, got {type(home).__name__}",
            )
        return home

    def homes(self, values: Any) -> npt.NDArray[np.int32]:
        """The home of each value, as the engine computes it from the value."""
        return self._core.homes(as_core(values, "values"))  # type: ignore[no-any-return]

    @property
    def tasks(self) -> range:
        """Task ids."""
        return range(self._core.tasks)

    @property
    def key_type(self) -> KeyType:
        """The type of the key, or of each of its fields."""
        types: list[str] = self._core.types
        return types[0] if len(types) == 1 else tuple(types)

    @property
    def fingerprint(self) -> int:
        """64 bits that differ when the homes differ."""
        return int(self._core.fingerprint)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.tasks)}, {self.key_type!r})"


def _types(key_type: KeyType) -> list[str]:
    if not isinstance(key_type, str | Sequence):
        raise TypeError(f"key_type: expected text, or several, got {type(key_type).__name__}")
    types = [key_type] if isinstance(key_type, str) else list(key_type)
    for kind in types:
        if not isinstance(kind, str):
            raise TypeError(f"key_type: expected text, got {type(kind).__name__}")
    return types


class SparkHash(EngineHome):
    """Spark's `repartition(n, columns)`.

    Parameters
    ----------
    n
        Number of partitions.
    key_type
        Spark's type of the column, or of each: boolean, tinyint, smallint, int, bigint, date,
        timestamp, string, binary.
    """

    __slots__ = ()
    _engine = 0

    def __init__(self, n: int, key_type: KeyType = "bigint") -> None:
        self._core = _core.EngineHome(self._engine, count(n, "n"), _types(key_type), 0)


class StormHash(EngineHome):
    """Storm's `fieldsGrouping`: an index into the ascending task ids.

    Parameters
    ----------
    n
        Number of tasks.
    key_type
        Java type of the field, or of each: boolean, byte, short, int, long, string, bytes. An
        integer from a multilang component arrives as an int.
    """

    __slots__ = ()
    _engine = 1

    def __init__(self, n: int, key_type: KeyType = "string") -> None:
        self._core = _core.EngineHome(self._engine, count(n, "n"), _types(key_type), 0)


class KafkaHash(EngineHome):
    """Kafka's partitioner for records with a key; a null key has no partition, and raises.

    Parameters
    ----------
    n
        Number of partitions.
    serializer
        How the key becomes bytes: string, bytes, short, integer, long, uuid.
    """

    __slots__ = ()
    _engine = 2

    def __init__(self, n: int, serializer: str = "string") -> None:
        self._core = _core.EngineHome(self._engine, count(n, "n"), _types(serializer), 0)


class FlinkKeyGroup(EngineHome):
    """Flink's `keyBy`: the instance that owns the key's group; null keys raise, as in Flink.

    Parameters
    ----------
    n
        Parallelism of the operator.
    max_parallelism
        Number of key groups.
    key_type
        Java type of the key: boolean, byte, short, int, long, string; several make a Flink tuple.
    """

    __slots__ = ()
    _engine = 3

    def __init__(self, n: int, max_parallelism: int = 128, key_type: KeyType = "string") -> None:
        self._core = _core.EngineHome(
            self._engine,
            count(n, "n"),
            _types(key_type),
            count(max_parallelism, "max_parallelism"),
        )

    @property
    def max_parallelism(self) -> int:
        """Number of key groups."""
        return int(self._core.max_parallelism)


_ENGINES: dict[int, type[EngineHome]] = {
    cls._engine: cls for cls in (SparkHash, StormHash, KafkaHash, FlinkKeyGroup)
}


def wrap_engine(core: _core.EngineHome) -> Any:
    """The public object of a native home."""
    return _ENGINES[core.engine]._wrap(core)
