"""The state of keys at one task, as an `Instance` sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pyroute.protocol.errors import ProtocolError


class Store(Protocol):
    """What an `Instance` needs of the place where its task keeps state.

    What it does here belongs to the step that it does it in: an engine commits both, or neither.
    """

    def keys(self, first: int, last: int) -> Iterable[int]:
        """Keys from first to last, both inclusive, that have state."""

    def take(self, key: int) -> bytes | None:
        """Remove the state of a key and return it; None where there is none."""

    def put(self, key: int, state: bytes) -> None:
        """Keep the state of a key that has none here."""


class MemoryStore:
    """State in a dict."""

    def __init__(self, states: Iterable[tuple[int, bytes]] = ()) -> None:
        self.states: dict[int, bytes] = dict(states)

    def keys(self, first: int, last: int) -> Iterable[int]:
        """Keys from first to last, both inclusive, that have state."""
        return [key for key in self.states if first <= key <= last]

    def take(self, key: int) -> bytes | None:
        """Remove the state of a key and return it; None where there is none."""
        return self.states.pop(key, None)

    def put(self, key: int, state: bytes) -> None:
        """Keep the state of a key that has none here."""
        if key in self.states:
            raise ProtocolError(f"key: expected one without state here, got {key}")
        self.states[key] = state
