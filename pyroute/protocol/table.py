"""A machine's transitions as data: what is legal, what is done, where it leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pyroute.protocol.errors import ProtocolError


@dataclass(frozen=True)
class Row:
    """In `phase`, on `event`, do `action`; afterwards the machine is in one of `to`."""

    phase: Enum
    event: str
    action: str
    to: tuple[Enum, ...]
    says: str
    """What happens, for people."""


class Table:
    """The rows of one machine; an event without a row is an error of whoever caused it."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows: Sequence[Row] = tuple(rows)
        self._by: Mapping[tuple[Enum, str], Row] = {(r.phase, r.event): r for r in self.rows}
        assert len(self._by) == len(self.rows)

    def row(self, phase: Enum, event: str) -> Row:
        """What to do; `ProtocolError` where nothing is allowed."""
        row = self._by.get((phase, event))
        if row is None:
            known = sorted(r.event for r in self.rows if r.phase is phase)
            raise ProtocolError(
                f"event: expected one of {', '.join(known)} while {phase.value}, got {event}"
            )
        return row

    def markdown(self) -> str:
        """The rows as a table; events of a phase that do the same share a row."""
        shared: dict[tuple[Enum, str, tuple[Enum, ...]], list[str]] = {}
        for row in self.rows:
            says = row.says or "nothing: late or doubled"
            shared.setdefault((row.phase, says, row.to), []).append(row.event)
        lines = ["| phase | event | what happens | then |", "| --- | --- | --- | --- |"]
        for phase in dict.fromkeys(row.phase for row in self.rows):
            for (of, says, ends), events in shared.items():
                if of is phase:
                    then = " or ".join(to.value for to in ends)
                    lines.append(f"| {phase.value} | {', '.join(events)} | {says} | {then} |")
        return "\n".join(lines)

    def mermaid(self) -> str:
        """The transitions that change the phase, as a diagram."""
        shared: dict[tuple[Enum, Enum], list[str]] = {}
        for row in self.rows:
            for to in row.to:
                if to is not row.phase:
                    shared.setdefault((row.phase, to), []).append(row.event)
        lines = ["stateDiagram-v2", f"    [*] --> {self.rows[0].phase.value}"]
        lines += [
            f"    {phase.value} --> {to.value}: {', '.join(events)}"
            for (phase, to), events in shared.items()
        ]
        return "\n".join(lines)
