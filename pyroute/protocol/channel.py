"""Channel: in order and once, over a network that loses, doubles and reorders; no I/O.

The two ends of what the machines ask of a channel between tasks, for engines that have none of
their own. An end is part of what its task commits (docs/protocol.md): a frame leaves after the
commit that made it, and is acknowledged after the commit that took it. Then a crash of either end,
or of both, loses and doubles nothing.

>>> out, into = Outbox(), Inbox()
>>> frames = [out.add(b"a"), out.add(b"b")]
>>> [into.take(position, data) for position, data in [*frames, *frames]]
[b'a', b'b', None, None]
>>> out.acknowledged(into.position)
>>> out.frames
[]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pyroute._arrays import count
from pyroute.protocol.errors import ProtocolError

Frame = tuple[int, bytes]
"""Position in its channel, and content."""


class Outbox:
    """The sender's end.

    Parameters
    ----------
    position
        Of the next frame.
    frames
        Contents that the receiver has not acknowledged, oldest first.
    """

    def __init__(self, position: int = 0, frames: Iterable[bytes] = ()) -> None:
        self.position = count(position, "position")
        self._frames = deque(frames)
        if len(self._frames) > self.position:
            raise ValueError(
                f"frames: expected at most {self.position}, got {len(self._frames)} of them"
            )

    def add(self, data: bytes) -> Frame:
        """The next frame; kept until it is acknowledged."""
        self._frames.append(data)
        self.position += 1
        return self.position - 1, data

    @property
    def frames(self) -> list[Frame]:
        """What to send, again, when a connection is made or nothing is acknowledged for long."""
        first = self.position - len(self._frames)
        return [(first + i, data) for i, data in enumerate(self._frames)]

    def acknowledged(self, position: int) -> None:
        """Forget what is before a position; older acknowledgements change nothing."""
        if position > self.position:
            raise ProtocolError(f"position: expected at most {self.position}, got {position}")
        for _ in range(position - (self.position - len(self._frames))):
            self._frames.popleft()


class Inbox:
    """The receiver's end.

    Parameters
    ----------
    position
        Of the next frame to take: what to acknowledge, once what was taken is committed.
    """

    def __init__(self, position: int = 0) -> None:
        self.position = count(position, "position")

    def take(self, position: int, data: bytes) -> bytes | None:
        """The content of the next frame; None for one taken before, or one too early.

        A frame that comes too early is dropped and comes again: its sender keeps it.
        """
        if position != self.position:
            return None
        self.position += 1
        return data
