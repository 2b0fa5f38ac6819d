from collections.abc import Sequence
from typing import Any

MESSAGE: int
TIMEOUT: int
CLOSED: int
UNREAD: int
INTERRUPTED: int
TOO_LONG: int

class Splicer:
    def __init__(
        self,
        sources: Sequence[tuple[str, str, Sequence[int]]],
        *,
        stream: bytes = b"",
        capacity: int = 0,
    ) -> None: ...
    def set_router(self, capsule: Any, tasks: Sequence[int]) -> None: ...
    def splice(self, data: bytes, seen: int = 0) -> tuple[bytes, int, bytes | None]: ...
    def statistics(self) -> list[bytes]: ...
    @property
    def records(self) -> int: ...
    @property
    def sent(self) -> list[int]: ...

class Loop:
    def __init__(
        self,
        reads: int,
        writes: int,
        sources: Sequence[tuple[str, str, Sequence[int]]],
        *,
        stream: bytes = b"",
        capacity: int = 0,
        linger: float = 100e-6,
        read_size: int = ...,
        flush_size: int = ...,
        max_message: int = ...,
        pipe_size: int = 0,
    ) -> None: ...
    def set_router(self, capsule: Any, tasks: Sequence[int]) -> None: ...
    def push(self, data: bytes) -> None: ...
    def run(self, timeout: float = -1.0) -> tuple[int, bytes | None]: ...
    def statistics(self, reset: bool = False) -> list[bytes]: ...
    def add_statistics(self, part: bytes) -> None: ...
    @property
    def left(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def sent(self) -> list[int]: ...
