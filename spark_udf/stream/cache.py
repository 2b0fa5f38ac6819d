"""Levels that a worker keeps from batch to batch.

Names of files are never used twice, so a name is its content, and nothing here can be stale.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from spark_udf.stream.files import decode
from spark_udf.stream.levels import Level
from spark_udf.stream.schema import StateSchema
from spark_udf.stream.store import Store


class LevelCache:
    """The levels used last, up to a number of bytes.

    Threads: any number may use one cache.

    Parameters
    ----------
    max_bytes
        What the levels may have together; a level that has more by itself is not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._levels: OrderedDict[tuple[str, str], Level] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the levels that are kept."""
        return self._nbytes

    def __len__(self) -> int:
        return len(self._levels)

    def get(self, store: Store, name: str) -> Level | None:
        """The level of that name, if it is kept."""
        with self._lock:
            level = self._levels.get((store.url, name))
            if level is not None:
                self._levels.move_to_end((store.url, name))
            return level

    def put(self, store: Store, name: str, level: Level) -> None:
        """Keep a level, and forget those not used for longest."""
        with self._lock:
            old = self._levels.pop((store.url, name), None)
            self._nbytes -= old.nbytes if old is not None else 0
            if level.nbytes > self.max_bytes:
                return
            self._levels[store.url, name] = level
            self._nbytes += level.nbytes
            while self._nbytes > self.max_bytes:
                self._nbytes -= self._levels.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._levels.clear()
            self._nbytes = 0


def open_level(
    store: Store, name: str, schema: StateSchema, cache: LevelCache, *, keep: bool = True
) -> Level:
    """The level of a file, from the cache where it is kept.

    Parameters
    ----------
    store, name
        The file.
    schema
        What it must hold.
    cache
        Where to look first.
    keep
        Whether to put it there.
    """
    level = cache.get(store, name)
    if level is None or level.schema != schema:
        level = decode(store.read(name), name, schema)
        if keep:
            cache.put(store, name, level)
    return level


CACHE = LevelCache(256 << 20)
"""The cache of this process."""
