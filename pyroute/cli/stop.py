"""Stop: how a signal ends a command that waits."""

from __future__ import annotations

import contextlib
import queue
import threading

__all__ = ["Stop"]


class Stop(threading.Event):
    """An event that a signal handler may set.

    The handler runs in the thread that waits, at any point of it: where that holds the lock of an
    ordinary event, setting it waits for ever. A `SimpleQueue` may be put to from within its `get`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._came: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_set = False

    def set(self) -> None:
        """End `wait`, also one that begins later."""
        self._is_set = True
        self._came.put(None)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, or so many seconds."""
        if not self._is_set:
            with contextlib.suppress(queue.Empty):
                self._came.get(timeout=timeout)
        return self._is_set
