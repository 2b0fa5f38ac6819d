"""Gate: whether a plan is worth carrying out now, or would only make the stream flap.

>>> from pyroute import Router, Snapshot, rebalance
>>> router = Router(2)
>>> snapshot = Snapshot(["anna", "bert", "carl", "dora"], costs=[40, 30, 20, 10])
>>> gate = Gate(cooldown=10)
>>> gate.decide(rebalance(snapshot, router), now=0)
Decision(apply=True, reason='applied: gain 0.167 >= 0.02, imbalance 0.2 > 0.05')
>>> gate.decide(rebalance(snapshot, router), now=9)
Decision(apply=False, reason='cool-down: 9 < 10 since the last applied plan')
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from pyroute import _typed_json, metrics
from pyroute._arrays import count, integers, real, task_ids
from pyroute._core import FormatError

_FORMAT = "pyroute.gate"


if TYPE_CHECKING:  # read by annotations alone: a protocol takes a millisecond to make

    class _Migrations(Protocol):
        @property
        def ids(self) -> Any: ...
        @property
        def sources(self) -> Any: ...
        @property
        def targets(self) -> Any: ...
        @property
        def state_sizes(self) -> Any: ...

    class _Plan(Protocol):
        """What the gate reads of a plan."""

        @property
        def changes(self) -> bool: ...
        @property
        def forced(self) -> bool: ...
        @property
        def home(self) -> object: ...
        @property
        def migrations(self) -> _Migrations: ...
        @property
        def migration_cost(self) -> float: ...
        @property
        def imbalance_before(self) -> float: ...
        @property
        def level_before(self) -> float: ...
        @property
        def level_after(self) -> float: ...

    class _Several(Protocol):
        """A plan for several routers, which says how the gate is to read it."""

        def for_gate(self) -> _Plan: ...


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate says about one plan; true where the plan is to be applied."""

    apply: bool
    reason: str

    def __bool__(self) -> bool:
        return self.apply


@dataclass(frozen=True, slots=True, eq=False)
class _Applied:
    """Which keys an applied plan moved, and from where; ascending by id, then source."""

    gain: float
    ids: npt.NDArray[np.uint64]
    sources: npt.NDArray[np.int32]
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, gain: float, ids: npt.NDArray[np.uint64], sources: npt.NDArray[np.int32]) -> Self:
        order = np.lexsort((sources, ids))
        return cls(gain, ids[order], sources[order])

    def left(
        self, ids: npt.NDArray[np.uint64], tasks: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.bool_]:
        """Whether this plan took each key away from the task beside it."""
        # A key is numbered by its position among all of them: a pair fits into 64 bits then.
        _, number = np.unique(np.concatenate([self.ids, ids]), return_inverse=True)
        pairs = (number << 32) | np.concatenate([self.sources, tasks])
        return np.isin(pairs[len(self.ids) :], pairs[: len(self.ids)])

    def document(self) -> dict[str, Any]:
        return {
            "gain": self.gain,
            "ids": [str(key) for key in self.ids.tolist()],
            "sources": self.sources.tolist(),
        }


class Gate:
    """Whether plans are worth carrying out: cost against benefit, and no flapping.

    `decide` is called once for each plan made, usually one per interval, with the time `now`: a
    number that never decreases, in the caller's unit (the number of the interval, or seconds).
    The rules, in this order; the first that speaks decides, and the reason gives its numbers:

    nothing to change
        `plan.changes` is false: not applied.
    forced
        `plan.forced` (a task is drained or removed), or the home changes (`plan.home` is not
        None): applied.
    dead band
        `plan.imbalance_before <= dead_band`: not applied. Not asked of a `ColocationPlan`.
    gain
        The share by which the bottleneck shrinks, `(level_before - level_after) / level_before`,
        0 where nothing is loaded. Of a `ColocationPlan`: the share of the traffic that becomes
        local (as its forecast says; without one, by the least that the counts can have been), or,
        where the imbalance of an operator is beyond the dead band and that is more, the share by
        which its bottleneck shrinks. `gain < min_gain`: not applied.
    ping-pong
        The last `memory` plans that were applied and not forced are remembered, each with its
        gain. A migration goes back where its target is the task that the key left in one of
        them. A plan is a return where more than half of the state that it moves goes back; of
        the keys, where no key has state. A return is not applied, except

        - where its gain is more than twice the greatest gain of the plans it goes back on, so
          that each return has to beat the one before; or
        - after `memory` returns in a row: a load that stays changed is believed, one that swings
          within `memory` calls is not. Plans that the rules above refuse, and plans that are not
          returns, start the row anew; the rules below do not.
    cool-down
        `now - last_applied < cooldown`, whether the last plan was forced or not: not applied.
    cost-benefit
        With `bytes_per_second`: moving takes `migration_cost / bytes_per_second`, and the gain
        saves `gain * horizon`. Where it saves less than it takes: not applied.

    Comparisons are exact, without tolerance. A gate changes through `decide` and `reset` alone;
    a call that raises leaves it as it was. It holds 12 bytes for each remembered migration, and no
    values. Threads: one at a time.

    Parameters
    ----------
    min_gain
        Least gain of a plan that is applied.
    dead_band
        Imbalance that is left alone.
    cooldown
        Least time between an applied plan and the next that is not forced, in the unit of `now`.
    bytes_per_second
        How fast state moves; `now` is in seconds then. None: moving is free.
    memory
        How many applied plans are remembered, and how many returns in a row are refused;
        0 lets every return through.
    horizon
        Time in which a plan has to pay back the moving. None: the time since the `decide` before;
        the first has none, and is not asked to. Used with `bytes_per_second` only.
    """

    __slots__ = (
        "_bytes_per_second",
        "_cooldown",
        "_dead_band",
        "_extra",
        "_horizon",
        "_last_applied",
        "_last_decided",
        "_memory",
        "_min_gain",
        "_plans",
        "_returns",
    )

    _last_decided: float | None
    _last_applied: float | None
    _plans: deque[_Applied]
    _returns: int

    def __init__(
        self,
        min_gain: float = 0.02,
        dead_band: float = 0.05,
        cooldown: float = 1,
        bytes_per_second: float | None = None,
        memory: int = 3,
        *,
        horizon: float | None = None,
    ) -> None:
        self._min_gain = _not_negative(min_gain, "min_gain")
        self._dead_band = _not_negative(dead_band, "dead_band")
        self._cooldown = _not_negative(cooldown, "cooldown")
        self._bytes_per_second = _positive(bytes_per_second, "bytes_per_second")
        self._memory = count(memory, "memory")
        self._horizon = _positive(horizon, "horizon")
        self._extra: dict[str, Any] = {}
        self.reset()

    @property
    def min_gain(self) -> float:
        """As given."""
        return self._min_gain

    @property
    def dead_band(self) -> float:
        """As given."""
        return self._dead_band

    @property
    def cooldown(self) -> float:
        """As given."""
        return self._cooldown

    @property
    def bytes_per_second(self) -> float | None:
        """As given."""
        return self._bytes_per_second

    @property
    def memory(self) -> int:
        """As given."""
        return self._memory

    @property
    def horizon(self) -> float | None:
        """As given."""
        return self._horizon

    @property
    def last_applied(self) -> float | None:
        """Time of the last applied plan; None before the first."""
        return self._last_applied

    def reset(self) -> None:
        """Forget the plans and the time, so that `now` may start anew."""
        self._last_decided = None
        self._last_applied = None
        self._plans = deque(maxlen=self._memory)
        self._returns = 0

    def decide(self, plan: _Plan | _Several, now: float) -> Decision:
        """Say whether to apply a plan, and count it as applied where the answer is yes.

        Parameters
        ----------
        plan
            What `rebalance`, `elastic` or `colocate` gave.
        now
            The time, not below that of the call before.
        """
        now = _finite(now, "now")
        if self._last_decided is not None and now < self._last_decided:
            raise ValueError(
                f"now: expected at least {self._last_decided!r}, the time of the call before,"
                f" got {now!r}"
            )
        seen = _Seen.of(plan.for_gate() if hasattr(plan, "for_gate") else plan, self._dead_band)
        decision = self._judge(seen, now)
        self._last_decided = now
        metrics.DECISIONS.add(1, result=decision.reason.partition(":")[0])
        if decision.apply:
            metrics.MOVED.add(len(seen.ids))
            metrics.MOVED_BYTES.add(seen.migration_cost)
            self._last_applied = now
            self._returns = 0
            if not seen.forced:
                self._plans.append(_Applied.of(seen.gain, seen.ids, seen.sources))
        return decision

    def _judge(self, plan: _Seen, now: float) -> Decision:
        returns, self._returns = self._returns, 0
        if not plan.changes:
            return Decision(False, "nothing to change")
        if plan.forced:
            return Decision(True, f"forced: {plan.forced}")
        if plan.imbalance <= self._dead_band and not plan.expected:
            refused = _compare(plan.imbalance, "<=", self._dead_band)
            return Decision(False, f"dead band: imbalance {refused}")
        if plan.gain < self._min_gain:
            refused = _compare(plan.gain, "<", self._min_gain)
            return Decision(False, f"gain: {refused}{plan.expected}")
        share, gained = self._going_back(plan)
        if share > 0.5:
            self._returns = returns + 1
            if plan.gain <= 2 * gained and self._returns <= self._memory:
                return Decision(
                    False,
                    f"ping-pong: {_compare(share, '>', 0.5)} of the {plan.weighed} goes back,"
                    f" gain {_compare(plan.gain, '<=', 2 * gained)}, twice what was gained,"
                    f" return {self._returns} of {self._memory} in a row",
                )
        if self._last_applied is not None and now - self._last_applied < self._cooldown:
            since = _compare(now - self._last_applied, "<", self._cooldown)
            return Decision(False, f"cool-down: {since} since the last applied plan")
        refusal = self._too_dear(plan, now)
        if refusal is not None:
            return Decision(False, refusal)
        reason = f"applied: gain {_compare(plan.gain, '>=', self._min_gain)}{plan.expected}"
        if plan.imbalance > self._dead_band:
            reason += f", imbalance {_compare(plan.imbalance, '>', self._dead_band)}"
        return Decision(True, reason)

    def _going_back(self, plan: _Seen) -> tuple[float, float]:
        """Share of the state that goes back, and the greatest gain of the plans concerned."""
        back = np.zeros(len(plan.ids), np.bool_)
        gained = 0.0
        for past in self._plans:
            here = past.left(plan.ids, plan.targets)
            if here.any():
                gained = max(gained, past.gain)
                back |= here
        if not back.any():
            return 0.0, 0.0
        return float(plan.weights[back].sum() / plan.weights.sum()), gained

    def _too_dear(self, plan: _Seen, now: float) -> str | None:
        horizon = self._horizon
        if horizon is None and self._last_decided is not None:
            horizon = now - self._last_decided
        if self._bytes_per_second is None or horizon is None:
            return None
        takes = plan.migration_cost / self._bytes_per_second
        saves = plan.gain * horizon
        if saves >= takes:
            return None
        return (
            f"cost-benefit: saves {_compare(saves, '<', takes)} s of moving"
            f" (gain {plan.gain:.3g} over {horizon:.3g} s,"
            f" {plan.migration_cost:.6g} bytes at {self._bytes_per_second:.3g}/s)"
        )

    def _document(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "format_version": 1,
            "min_gain": self._min_gain,
            "dead_band": self._dead_band,
            "cooldown": self._cooldown,
            "bytes_per_second": self._bytes_per_second,
            "memory": self._memory,
            "horizon": self._horizon,
            "last_decided": self._last_decided,
            "last_applied": self._last_applied,
            "returns": self._returns,
            "plans": [past.document() for past in self._plans],
        }

    def to_json(self) -> str:
        """The gate as JSON, so that a controller that restarts goes on where it was.

        After a restart `now` must not start anew. Fields that `from_json` did not know are
        written again.
        """
        plans = [{**past.extra, **past.document()} for past in self._plans]
        return json.dumps({**self._extra, **self._document(), "plans": plans})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote; anything else raises `FormatError`."""
        return _typed_json.read(text, _FORMAT, "gate", cls._from_document)

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        self = cls(
            document["min_gain"],
            document["dead_band"],
            document["cooldown"],
            document["bytes_per_second"],
            document["memory"],
            horizon=document["horizon"],
        )
        decided, applied = document["last_decided"], document["last_applied"]
        self._last_decided = None if decided is None else _finite(decided, "last_decided")
        self._last_applied = None if applied is None else _finite(applied, "last_applied")
        self._returns = count(document["returns"], "returns")
        if not isinstance(document["plans"], list):
            raise FormatError(f"plans: expected an array, got {document['plans']!r}")
        plans = [_read_applied(row) for row in document["plans"]]
        if len(plans) > self._memory:
            raise FormatError(f"plans: expected at most {self._memory}, got {len(plans)}")
        self._plans.extend(plans)
        self._extra = {key: value for key, value in document.items() if key not in _KNOWN}
        self._check_order()
        return self

    def _check_order(self) -> None:
        """Times that `decide` cannot have left behind are refused."""
        if self._last_applied is None:
            if self._plans:
                raise FormatError(
                    f"last_applied: expected a time beside {len(self._plans)} plans, got null"
                )
        elif self._last_decided is None or self._last_applied > self._last_decided:
            raise FormatError(
                f"last_applied: expected at most last_decided {self._last_decided!r},"
                f" got {self._last_applied!r}"
            )
        if self._returns and not self._plans:
            raise FormatError(f"returns: expected 0 without plans, got {self._returns}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_json, (self.to_json(),)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._document() == other._document()

    def __repr__(self) -> str:
        settings = ("min_gain", "dead_band", "cooldown", "bytes_per_second", "memory", "horizon")
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in settings)
        if self._last_applied is not None:
            shown += f"; last applied at {self._last_applied!r}, {len(self._plans)} remembered"
        return f"Gate({shown})"


@dataclass(frozen=True, eq=False, repr=False)
class _Seen:
    """A plan as the gate reads it: everything checked before anything is decided."""

    changes: bool
    forced: str  # why it is; empty: it is not
    imbalance: float
    gain: float
    migration_cost: float
    ids: npt.NDArray[np.uint64]
    sources: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float64]  # state sizes; 1 for each key where all are 0
    weighed: str  # "state", or "keys"
    expected: str  # of a gain in locality: what says so; empty: it is one in balance

    @classmethod
    def of(cls, plan: _Plan, dead_band: float) -> Self:
        try:
            moves = plan.migrations
            columns = moves.ids, moves.sources, moves.targets, moves.state_sizes
            changes, forced, home = bool(plan.changes), bool(plan.forced), plan.home
            levels = plan.level_before, plan.level_after
            imbalance, cost = plan.imbalance_before, plan.migration_cost
        except AttributeError as error:
            raise TypeError(f"plan: expected a plan of one router, got {error}") from error
        ids = _key_ids(columns[0], "plan.migrations.ids")
        sources = task_ids(columns[1], "plan.migrations.sources")
        targets = task_ids(columns[2], "plan.migrations.targets")
        sizes = integers(columns[3], "plan.migrations.state_sizes").astype(np.float64)
        for name, column in (("sources", sources), ("targets", targets), ("state_sizes", sizes)):
            if len(column) != len(ids):
                raise ValueError(
                    f"plan.migrations.{name}: expected {len(ids)}, one for each id,"
                    f" got {len(column)}"
                )
        if len(sizes) and sizes.min() < 0:
            raise ValueError(
                f"plan.migrations.state_sizes: expected at least 0, got {sizes.min():.0f}"
            )
        before = _not_negative(levels[0], "plan.level_before")
        after = _not_negative(levels[1], "plan.level_after")
        reasons = ["a task is drained or removed"] * forced
        reasons += ["the home changes"] * (home is not None)
        stateless = not sizes.any()
        gain = (before - after) / before if before > 0 else 0.0
        expected = ""
        local = getattr(plan, "locality_gain", None)
        if local is not None:
            balance = gain if imbalance > dead_band else 0.0
            gain = max(balance, _finite(local, "plan.locality_gain"))
            expected = f" ({getattr(plan, 'expected', '')})" if gain > balance else " (balance)"
        return cls(
            changes=changes,
            forced=" and ".join(reasons),
            imbalance=_finite(imbalance, "plan.imbalance_before"),
            gain=gain,
            migration_cost=_not_negative(cost, "plan.migration_cost"),
            ids=ids,
            sources=sources,
            targets=targets,
            weights=np.ones(len(ids)) if stateless else sizes,
            weighed="keys" if stateless else "state",
            expected=expected,
        )


def _finite(value: Any, name: str) -> float:
    try:
        number = real(value, name)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name}: expected a finite number, got {number}")
    return number


def _not_negative(value: Any, name: str) -> float:
    number = _finite(value, name)
    if number < 0:
        raise ValueError(f"{name}: expected at least 0, got {number!r}")
    return number


def _positive(value: Any, name: str) -> float | None:
    if value is None:
        return None
    number = _finite(value, name)
    if number <= 0:
        raise ValueError(f"{name}: expected more than 0, got {number!r}")
    return number


def _key_ids(values: Any, name: str) -> npt.NDArray[np.uint64]:
    array = np.asarray(values)
    if array.dtype == np.uint64 and array.ndim == 1:
        return array
    array = integers(array, name)
    if array.size and array.min() < 0:
        raise ValueError(f"{name}: expected at least 0, got {array.min()}")
    return array.astype(np.uint64)


def _read_applied(row: Any) -> _Applied:
    if not isinstance(row, Mapping):
        raise FormatError(f"plans: expected objects, got {type(row).__name__}")
    if not isinstance(row["ids"], list) or not isinstance(row["sources"], list):
        raise FormatError("plans: expected arrays of ids and sources, got others")
    numbers = [_read_id(text) for text in row["ids"]]
    sources = task_ids([count(task, "sources") for task in row["sources"]], "sources")
    if len(sources) != len(numbers):
        raise FormatError(f"plans: expected {len(numbers)} sources, got {len(sources)}")
    rows = pairwise(zip(numbers, sources.tolist(), strict=True))
    if any(first > second for first, second in rows):
        raise FormatError("plans: expected ascending ids, got others")
    return _Applied(
        _not_negative(row["gain"], "gain"),
        np.array(numbers, np.uint64),
        sources,
        {key: value for key, value in row.items() if key not in _KNOWN_OF_PLAN},
    )


def _read_id(text: Any) -> int:
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 20):
        raise FormatError(f"plans: expected ids as decimal strings, got {text!r}")
    number = int(text)
    if str(number) != text or number >= 1 << 64:
        raise FormatError(f"plans: expected ids below 2^64, got {text}")
    return number


def _compare(left: float, sign: str, right: float) -> str:
    """Both numbers with the sign between them, in as many digits as tell them apart."""
    texts = ["", ""]
    for digits in (3, 6, 17):
        texts = [f"{number:.{digits}g}" for number in (left, right)]
        if left == right or texts[0] != texts[1]:
            break
    return f"{texts[0]} {sign} {texts[1]}"


_KNOWN = frozenset(Gate()._document())
_KNOWN_OF_PLAN = frozenset(("gain", "ids", "sources"))
