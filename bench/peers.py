"""Peers that may be absent: named in the report, never fatal."""

import importlib
import os
from dataclasses import dataclass, field
from types import ModuleType

# One thread each, as pyroute; read when polars is first imported. CPU time counts threads anyway.
os.environ.setdefault("POLARS_MAX_THREADS", "1")


@dataclass(frozen=True)
class Scale:
    """How much work a run does."""

    quick: bool
    seed: int
    missing: list[str] = field(default_factory=list)
    turns: int = 0  # of every arm, where a section asks; 0: as many as it thinks right

    @property
    def repetitions(self) -> int:
        return 3 if self.quick else 9

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def often(self, full: int, quick: int) -> int:
        """How many turns."""
        return self.turns or self.pick(full, quick)

    def peer(self, name: str) -> ModuleType | None:
        """The module, or None with its name noted."""
        try:
            return importlib.import_module(name)
        except ImportError as error:
            absent = error.name or name
            if absent not in self.missing:
                self.missing.append(absent)
            return None
