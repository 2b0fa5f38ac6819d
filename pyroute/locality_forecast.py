"""What a colocation will be worth in the next interval, from what was left of the plans before.

>>> forecast = LocalityForecast()
>>> forecast.observe(0.30)  # measured under hashing
>>> forecast.next_locality(promised=0.60)
Forecast(stay=0.3, apply=0.42, reason='0.7 of 0.6 in the statistics, as assumed')
"""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pyroute import _typed_json
from pyroute._arrays import count, real
from pyroute._core import FormatError

if TYPE_CHECKING:
    from pyroute.colocation import ColocationPlan

_FORMAT = "pyroute.locality_forecast"
_ASSUMED = 0.7  # what is left of a promise, before anything was measured


@dataclass(frozen=True, slots=True)
class Forecast:
    """Locality of the next interval without and with a plan."""

    stay: float
    apply: float
    reason: str

    @property
    def gain(self) -> float:
        """Share of the traffic that becomes local."""
        return self.apply - self.stay


class LocalityForecast:
    """How much of the locality that plans promise is left in the interval after.

    A plan promises what its tables would have made local in the statistics it was made from. The
    next interval has other pairs and keys that nobody has seen, so less of it is kept (paper 001:
    75 of 100 were promised, 50 came). This measures how much less, and how locality decays where
    no plan is applied:

    apply
        promised * kept, with `kept` the smoothed measured / promised of the first intervals after
        past plans; 0.7 before there is one.
    stay
        the last measured locality * decay, with `decay` the smoothed ratio of two intervals between
        which no plan was applied, at most 1; 1 before there is one.

    The forecast acts only while it is better than persistence: where, in the last `memory`
    intervals, the first intervals after plans were nearer to the locality before them than to what
    had been said, `apply` is the last measured locality, so that nothing is gained. Intervals
    without a plan push those errors out, so that a new plan gets its chance after `memory` of
    them.

    Threads: one at a time.

    Parameters
    ----------
    smoothing
        Weight of the past in `kept` and `decay`, 0 to below 1.
    memory
        How many intervals the comparison with persistence goes back, at least 1.
    """

    def __init__(self, smoothing: float = 0.5, memory: int = 8) -> None:
        self._smoothing = real(smoothing, "smoothing")
        if not 0 <= self._smoothing < 1:
            raise ValueError(f"smoothing: expected 0 to below 1, got {self._smoothing}")
        self._memory = count(memory, "memory", 1 << 20)
        if self._memory < 1:
            raise ValueError(f"memory: expected at least 1, got {self._memory}")
        self._kept: float | None = None
        self._decay: float | None = None
        self._last: float | None = None
        # (error of the forecast, error of persistence) of each interval; None: no plan was applied
        self._errors: deque[tuple[float, float] | None] = deque(maxlen=self._memory)

    @property
    def kept(self) -> float | None:
        """What is left of a promise; None before anything was measured."""
        return self._kept

    @property
    def decay(self) -> float | None:
        """Ratio of locality from one interval to the next without a plan; None as above."""
        return self._decay

    @property
    def trusted(self) -> bool:
        """Whether the forecast was at least as good as persistence, as far as it is remembered."""
        errors = [error for error in self._errors if error is not None]
        return sum(ours for ours, _ in errors) <= sum(theirs for _, theirs in errors)

    def observe(self, locality: float, plan: ColocationPlan | None = None) -> None:
        """Close an interval.

        Parameters
        ----------
        locality
            Measured share of the records that stayed on their server.
        plan
            The plan that was applied when the interval began; None: the routers stayed.
        """
        self.observe_promise(locality, None if plan is None else plan.locality)

    def observe_promise(self, locality: float, promised: float | None) -> None:
        """The same with the locality that the plan promised."""
        measured = _share(locality, "locality")
        if promised is None:
            if self._last:
                self._decay = self._smooth(self._decay, measured / self._last)
            self._errors.append(None)
        else:
            promised = _share(promised, "promised")
            if self._last is not None:
                said = promised * (_ASSUMED if self._kept is None else self._kept)
                self._errors.append((abs(said - measured), abs(self._last - measured)))
            if promised > 0:
                self._kept = self._smooth(self._kept, measured / promised)
        self._last = measured

    def _smooth(self, past: float | None, now: float) -> float:
        return now if past is None else self._smoothing * past + (1 - self._smoothing) * now

    def predict(self, plan: ColocationPlan) -> Forecast:
        """What to expect of the next interval without and with a plan."""
        stay = plan.locality_before if self._last is None else None
        return self.next_locality(promised=plan.locality, before=stay)

    def next_locality(self, promised: float, before: float | None = None) -> Forecast:
        """The same for a plan that promises this much.

        Parameters
        ----------
        promised
            Locality of the plan in its statistics.
        before
            Locality of the routers as they are, used where nothing was measured yet.
        """
        promised = _share(promised, "promised")
        kept = _ASSUMED if self._kept is None else self._kept
        if self._last is not None:
            stay = self._last * min(1.0, 1.0 if self._decay is None else self._decay)
        else:
            stay = _share(before or 0.0, "before") * kept
        if not self.trusted and self._last is not None:
            return Forecast(stay, stay, "persistence was better than the forecast")
        assumed = ", as assumed" if self._kept is None else ""
        reason = f"{kept:.3g} of {promised:.3g} in the statistics{assumed}"
        return Forecast(stay, min(1.0, round(kept * promised, 12)), reason)

    def _document(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "format_version": 1,
            "smoothing": self._smoothing,
            "memory": self._memory,
            "kept": self._kept,
            "decay": self._decay,
            "last": self._last,
            "errors": [None if error is None else list(error) for error in self._errors],
        }

    def to_json(self) -> str:
        """The state as JSON, so that a controller that restarts goes on where it was."""
        return json.dumps(self._document())

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote; anything else raises `FormatError`."""
        return _typed_json.read(text, _FORMAT, "locality forecast", cls._from_document)

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        self = cls(document["smoothing"], document["memory"])
        for name in ("kept", "decay", "last"):
            value = document[name]
            if value is not None and not 0 <= real(value, name) < math.inf:
                raise FormatError(f"{name}: expected a number from 0, got {value}")
            setattr(self, f"_{name}", value)
        errors = document["errors"]
        if not isinstance(errors, list) or len(errors) > self._memory:
            raise FormatError(f"errors: expected at most {self._memory}, got others")
        for error in errors:
            if error is None:
                self._errors.append(None)
            else:
                ours, theirs = error
                self._errors.append((_share(ours, "errors"), _share(theirs, "errors")))
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LocalityForecast):
            return NotImplemented
        return self._document() == other._document()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"LocalityForecast(kept {self._kept}, decay {self._decay}, last {self._last})"


def _share(value: Any, name: str) -> float:
    share = real(value, name)
    if not 0 <= share <= 1 + 1e-9:
        raise ValueError(f"{name}: expected a share from 0 to 1, got {share}")
    return share
