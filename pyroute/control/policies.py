"""Policies of control: which share of the records each worker should get now.

A policy is a pure function of (statistics, forecast, ratio, now) and answers with a `Proposal`.
It keeps nothing: what must be remembered (bans, holds, changes made) is a `Memory` that `Guard`
takes and gives back. So every decision can be repeated from what was written down.

>>> seen = {"a": Measurement(service=0.005), "b": Measurement(service=0.020)}
>>> Proportional()(Statistics(1.0, seen), None, {"a": 0.5, "b": 0.5}, 1.0).shares
{'a': 0.8, 'b': 0.2}
"""

from __future__ import annotations

import math
import random
import statistics as stats
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

__all__ = [
    "ALL",
    "Ban",
    "BanOnResidual",
    "Decision",
    "Even",
    "Forecast",
    "Guard",
    "LeastDelay",
    "Measurement",
    "Memory",
    "Policy",
    "PredictedValue",
    "Proportional",
    "Proposal",
    "Statistics",
    "WaterFilling",
    "even",
    "make",
    "normalised",
]

NAN = math.nan
WELL, ENOUGH, LONG = 2, 20, 10
"""A trial ends well after so many good periods in a row and so many records, or so many periods.

A worker that is stopped now and then, or shares a CPU, is as fast as ever for a record or two."""
RELAPSE, RELAPSES = 30, 3
"""A worker that is sick again within so many periods came back too early: next time a trial takes
twice as much, up to so many times."""
SHORTEST = 1e-9
"""Seconds that no record takes less than: a report or a forecast of less is nonsense."""
FASTEST = 1e15
"""Records per second that nobody sends: a report of more is nonsense."""
PATIENCE = 8.0
"""A record of exponential length takes this many times the mean once in 3,000 times."""
Ratio = Mapping[str, float]


@dataclass(frozen=True)
class Measurement:
    """What is known of one worker at one time. NaN says that nothing is.

    Parameters
    ----------
    service
        Seconds that its latest records took, each from its start to its end.
    arrived, completed
        Records per second sent to it, and done by it, in the last period.
    backlog
        Records that were sent to it and are not done.
    silent
        Seconds for which it had work and finished none of it.
    host
        The machine; the paper bypasses whole machines. Empty: a machine of its own.
    """

    service: float = NAN
    arrived: float = NAN
    completed: float = NAN
    backlog: float = 0.0
    silent: float = 0.0
    host: str = ""


@dataclass(frozen=True)
class Statistics:
    """All workers at one time.

    Parameters
    ----------
    time
        When they were measured.
    workers
        By name.
    residuals
        Measured less forecast value of the target, for each worker, the oldest first; the last one
        belongs to this time.
    """

    time: float
    workers: Mapping[str, Measurement]
    residuals: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Records per second that were sent to all."""
        return sum(each.arrived for each in self.workers.values() if 0 <= each.arrived < FASTEST)


@dataclass(frozen=True)
class Forecast:
    """The seconds per record expected of each worker one period from now, and who says so."""

    values: Mapping[str, float]
    source: str = "model"


@dataclass(frozen=True)
class Proposal:
    """Shares that a policy would like; workers to be bypassed whole; why."""

    shares: Mapping[str, float]
    sick: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    reason: str = ""


class Policy(Protocol):
    """What every policy of ratios is."""

    def __call__(
        self, statistics: Statistics, forecast: Forecast | None, ratio: Ratio, now: float
    ) -> Proposal:
        """Which share each worker should get."""
        ...


def even(workers: Iterable[str]) -> dict[str, float]:
    """The same share for each."""
    names = list(workers)
    return {name: 1.0 / len(names) for name in names}


def normalised(weights: Mapping[str, float]) -> dict[str, float]:
    """Shares that add up to 1; even ones where all weights are 0."""
    total = math.fsum(weights.values())
    if not total > 0:
        return even(weights)
    return {name: weight / total for name, weight in weights.items()}


# What one record takes -------------------------------------------------------------------------


def seconds_per_record(statistics: Statistics, forecast: Forecast | None) -> dict[str, float]:
    """Of every worker of which anything is known, by forecast where there is one.

    A worker that has work and finishes nothing takes at least as long as it has been silent; but
    one long record is no news, so silence counts from `PATIENCE` usual records on.
    """
    served = [seen.service for seen in statistics.workers.values() if seen.service > 0]
    # Of an even number the lower middle one: where half are sick, the mean of both is nobody's.
    usual = stats.median_low(served) if served else 0.0
    found = {}
    for name, seen in statistics.workers.items():
        value = NAN if forecast is None else forecast.values.get(name, NAN)
        if not (math.isfinite(value) and value >= SHORTEST):
            value = seen.service
        if not (math.isfinite(value) and value >= SHORTEST):
            value = NAN
        patience = PATIENCE * (usual if math.isnan(value) else value)
        if seen.backlog > 0 and math.isfinite(seen.silent) and seen.silent > patience:
            value = seen.silent
        if not math.isnan(value):
            found[name] = value
    return found


def levelled(
    seconds: Mapping[str, float], ratio: Ratio, differs: float, alike: float
) -> dict[str, float]:
    """Speeds that do not really differ are made equal: noise must not move records.

    A worker within `differs` of the median counts as the median; one that has less than an even
    share already must come back within `alike`, which is narrower (hysteresis).
    """
    if not seconds:
        return {}
    middle = stats.median_low(seconds.values())
    usual = 0.95 / max(1, len(ratio))
    out = {}
    for name, value in seconds.items():
        band = differs if ratio.get(name, 1.0) >= usual else alike
        out[name] = middle if middle / (1 + band) <= value <= middle * (1 + band) else value
    return out


def _with_unknown(shares: dict[str, float], statistics: Statistics, ratio: Ratio) -> Proposal:
    """Workers of which nothing is known keep what they have; the rest is for the others."""
    names = dict.fromkeys([*ratio, *statistics.workers])
    unknown = [name for name in names if name not in shares]
    kept = {name: ratio.get(name, 0.0) for name in unknown}
    rest = max(0.0, 1.0 - math.fsum(kept.values()))
    if not shares:
        return Proposal(dict(ratio), unknown=frozenset(unknown), reason="nothing is known")
    own = normalised(shares)
    out = {name: own[name] * rest if name in own else kept[name] for name in names}
    return Proposal(normalised(out), unknown=frozenset(unknown))


# Policies of ratios ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Even:
    """No control: every worker gets the same, whatever happens."""

    def __call__(
        self,
        statistics: Statistics,
        forecast: Forecast | None,  # noqa: ARG002
        ratio: Ratio,
        now: float,  # noqa: ARG002
    ) -> Proposal:
        """The same share for each."""
        return Proposal(even(ratio or statistics.workers), reason="no control")


@dataclass(frozen=True)
class BanOnResidual:
    """The paper's policy: no records to the machine of a worker whose forecast failed.

    A machine that runs more than half of the workers is not bypassed, only the worker is.

    The threshold is `q` times the median absolute deviation of the worker's past residuals (the
    paper gives none), and at least `least` of the median of the target, so that a quiet past does
    not make every tremor an alarm. Only a value above its forecast counts: a worker that is faster
    than was expected does no harm.
    """

    q: float = 6.0
    least: float = 0.5
    fewest: int = 2

    def __call__(
        self, statistics: Statistics, forecast: Forecast | None, ratio: Ratio, now: float
    ) -> Proposal:
        """Even shares, machines with a failed forecast left out."""
        del forecast, now
        workers = statistics.workers
        seconds = seconds_per_record(statistics, None)
        usual = stats.median_low(seconds.values()) if seconds else 0.0
        wrong = {}
        for name, residuals in statistics.residuals.items():
            known = [value for value in residuals if math.isfinite(value)]
            if len(known) < self.fewest or not math.isfinite(residuals[-1]):
                continue
            past = known[:-1]
            centre = stats.median(past)
            spread = stats.median(abs(value - centre) for value in past)
            threshold = max(self.q * spread, self.least * usual)
            if known[-1] - centre > threshold:
                wrong[name] = known[-1]
        # Banned for long, or dead, a worker has no residual; it is sick while it is slow.
        little = 0.5 / max(1, len(ratio))
        slow = (1 + self.least) * usual
        wrong |= {
            name: value
            for name, value in seconds.items()
            if usual
            and value > slow
            and (ratio.get(name, 1.0) < little or value == workers[name].silent)
        }
        sick = frozenset(name for name in wrong if name in workers)
        hosts = {workers[name].host or name for name in sick}
        whole = frozenset(name for name, seen in workers.items() if (seen.host or name) in hosts)
        # Where a machine is most of what there is, nothing is won by bypassing all of it.
        if 2 * len(whole) <= len(workers):
            sick = whole
        shares = {name: 0.0 if name in sick else 1.0 for name in dict.fromkeys([*ratio, *workers])}
        text = ", ".join(f"{name}: residual {value:.3g}" for name, value in sorted(wrong.items()))
        return Proposal(normalised(shares), sick, reason=text or "forecasts hold")


@dataclass(frozen=True)
class PredictedValue:
    """What the paper's text speaks of: bypass a worker that is predicted to be slow.

    Slow is `factor` times the median of its peers; one that is bypassed must come back below
    `back` times.
    """

    factor: float = 2.0
    back: float = 1.5

    def __call__(
        self, statistics: Statistics, forecast: Forecast | None, ratio: Ratio, now: float
    ) -> Proposal:
        """Even shares, workers that will be slow left out."""
        del now
        seconds = seconds_per_record(statistics, forecast)
        names = dict.fromkeys([*ratio, *statistics.workers])
        usual = stats.median_low(seconds.values()) if seconds else 0.0
        little = 0.5 / max(1, len(names))
        sick = frozenset(
            name
            for name, value in seconds.items()
            if value > (self.back if ratio.get(name, 1.0) < little else self.factor) * usual
        )
        shares = {name: 0.0 if name in sick else 1.0 for name in names}
        unknown = frozenset(name for name in names if name not in seconds)
        reason = f"slow: {', '.join(sorted(sick))}" if sick else "none is slow"
        return Proposal(normalised(shares), sick, unknown, reason)


@dataclass(frozen=True)
class Proportional:
    """Shares in proportion to speed."""

    differs: float = 0.5
    alike: float = 0.25
    hopeless: float = 20.0

    def __call__(
        self, statistics: Statistics, forecast: Forecast | None, ratio: Ratio, now: float
    ) -> Proposal:
        """One by the seconds that a record takes."""
        del now
        seconds = seconds_per_record(statistics, forecast)
        sick = _hopeless(seconds, self.hopeless)
        seconds = levelled(seconds, ratio, self.differs, self.alike)
        shares = {name: 0.0 if name in sick else 1.0 / value for name, value in seconds.items()}
        return replace(_with_unknown(shares, statistics, ratio), sick=sick, reason=_speeds(seconds))


@dataclass(frozen=True)
class WaterFilling:
    """Shares that make all workers finish together, `horizon` seconds from now.

    Worker i has b_i records waiting and takes s_i seconds for each. Of the records of the next
    `horizon` seconds it gets max(0, level / s_i - b_i), where the level makes the sum right.
    A backlog of less than `small` seconds is none. The horizon is how long a ratio may have to
    last: where changes are bounded it is seconds, or the worker that is empty now would drown
    before the next change. For the same reason nobody gets more than `most` times what its speed
    alone would give it.
    """

    horizon: float = 5.0
    differs: float = 0.5
    alike: float = 0.25
    small: float = 0.15
    most: float = 1.5
    hopeless: float = 20.0

    def __call__(
        self, statistics: Statistics, forecast: Forecast | None, ratio: Ratio, now: float
    ) -> Proposal:
        """Fill the lowest first."""
        del now
        seconds = seconds_per_record(statistics, forecast)
        sick = _hopeless(seconds, self.hopeless)
        seconds = levelled(seconds, ratio, self.differs, self.alike)
        waiting = {}
        for name, value in seconds.items():
            backlog = statistics.workers[name].backlog
            work = backlog * value if math.isfinite(backlog) else 0.0
            waiting[name] = 0.0 if work < self.small else backlog
        usable = {name: value for name, value in seconds.items() if name not in sick}
        amount = max(statistics.rate * self.horizon, 1.0)
        by_speed = normalised({name: 1.0 / value for name, value in usable.items()})
        filled = normalised(fill(usable, waiting, amount)) if usable else {}
        shares = dict.fromkeys(seconds, 0.0)
        shares |= _capped(filled, {n: self.most * by_speed[n] for n in usable})
        return replace(_with_unknown(shares, statistics, ratio), sick=sick, reason=_speeds(seconds))


def fill(
    seconds: Mapping[str, float], waiting: Mapping[str, float], amount: float
) -> dict[str, float]:
    """How many of `amount` records each gets, so that all are done at the same time."""
    left = sorted(seconds, key=lambda name: waiting[name] * seconds[name])
    used: list[str] = []
    level = 0.0
    speed, backlog = 0.0, 0.0
    for name in left:
        if used and waiting[name] * seconds[name] >= level:
            break
        used.append(name)
        speed += 1.0 / seconds[name]
        backlog += waiting[name]
        level = (amount + backlog) / speed
    gets = {name: max(0.0, level / seconds[name] - waiting[name]) for name in used}
    return dict.fromkeys(seconds, 0.0) | gets


def _capped(shares: Mapping[str, float], most: Mapping[str, float]) -> dict[str, float]:
    """Nobody gets more than its most; what is over goes where there is room."""
    out = {name: min(share, most[name]) for name, share in shares.items()}
    over = 1.0 - math.fsum(out.values())
    room = {name: most[name] - out[name] for name in out}
    total = math.fsum(room.values())
    if over <= 0 or not total > 0:
        return out
    return {name: share + over * room[name] / total for name, share in out.items()}


def _hopeless(seconds: Mapping[str, float], factor: float) -> frozenset[str]:
    if not seconds:
        return frozenset()
    usual = stats.median_low(seconds.values())
    return frozenset(name for name, value in seconds.items() if value > factor * usual)


def _speeds(seconds: Mapping[str, float]) -> str:
    if not seconds:
        return "nothing is known"
    usual = stats.median_low(seconds.values())
    odd = {name: value / usual for name, value in seconds.items() if value != usual}
    if not odd:
        return "all alike"
    return ", ".join(f"{name} {factor:.2g}x the time" for name, factor in sorted(odd.items()))


# Per record ------------------------------------------------------------------------------------


class LeastDelay:
    """Least estimated delay of two: the task the circle gives, and one that is drawn.

    The delay of a task is (records on their way + 1) times what its records take. The circle's
    own task wins unless the other is better by a factor, so that without trouble the shares are
    exactly those of the circle. A task that got nothing for `probe` seconds gets one record,
    unless one is still with it: what is known of it never grows old.

    Parameters
    ----------
    tasks
        How many.
    seed
        Of the draws.
    service
        Seconds per record that are assumed before the first is done.
    smoothing
        Weight of the newest record.
    probe
        Seconds.
    margin
        How many times shorter the other's delay must be.
    """

    def __init__(
        self,
        tasks: int,
        *,
        seed: int = 0,
        service: float = 0.001,
        smoothing: float = 0.5,
        probe: float = 0.2,
        margin: float = 2.0,
    ) -> None:
        if tasks < 1:
            raise ValueError(f"tasks: expected at least 1, got {tasks}")
        self.backlog = [0] * tasks
        self.service = [service] * tasks
        self._measured = [False] * tasks
        self._sent = [-math.inf] * tasks
        self._since = [-math.inf] * tasks  # the oldest that is on its way can have begun
        self._smoothing, self._probe, self._margin = smoothing, probe, margin
        self._draw = random.Random(seed).random

    def delay(self, task: int, now: float) -> float:
        """Seconds until a record that is sent now would be done.

        A record that is not done yet takes at least as long as it has taken.
        """
        waiting = self.backlog[task]
        if not waiting:
            return self.service[task]
        return (waiting + 1) * max(self.service[task], now - self._since[task])

    def choose(self, first: int, now: float) -> int:
        """The task of the next record, where the circle says `first`; it counts as sent."""
        tasks = len(self.backlog)
        task = first
        due = self.backlog[first] == 0 and now - self._sent[first] >= self._probe
        if tasks > 1 and not due:
            second = (first + 1 + int(self._draw() * (tasks - 1))) % tasks
            if self.delay(second, now) * self._margin < self.delay(first, now):
                task = second
        if not self.backlog[task]:
            self._since[task] = now
        self.backlog[task] += 1
        self._sent[task] = now
        return task

    def done(self, task: int, service: float, now: float) -> None:
        """A record was done; `service` is what it took, NaN if that is not known.

        Say it of records that are lost, too, with NaN: a task whose records are never done counts
        as one that still works on them, and gets none.
        """
        self.backlog[task] = max(0, self.backlog[task] - 1)
        self._since[task] = now
        if math.isfinite(service) and service >= 0:
            weight = self._smoothing if self._measured[task] else 1.0
            self._measured[task] = True
            self.service[task] += weight * (service - self.service[task])


# What keeps every policy safe ------------------------------------------------------------------


@dataclass(frozen=True)
class Ban:
    """A worker that gets nothing `until`, and then a little, to see whether it is well."""

    until: float
    seconds: float
    probing: bool = False
    well: int = 0  # periods in a row
    records: float = 0.0  # done in them
    relapses: int = 0  # how often it came back too early

    @property
    def over(self) -> bool:
        """Whether the trial has shown that the worker is well."""
        times = 2 ** min(self.relapses, RELAPSES)
        return self.well >= WELL and (self.records >= times * ENOUGH or self.well >= times * LONG)


@dataclass(frozen=True)
class Memory:
    """What a guard must remember between two decisions; a value."""

    time: float = -math.inf
    changes: tuple[float, ...] = ()
    bans: Mapping[str, Ban] = field(default_factory=dict)
    lowered: Mapping[str, float] = field(default_factory=dict)
    doubted: frozenset[str] = frozenset()
    ended: Mapping[str, Ban] = field(default_factory=dict)  # `until` is when the trial ended

    def moved(self, seconds: float) -> Memory:
        """The same, on a clock that was set by so many seconds."""
        return Memory(
            self.time + seconds,
            tuple(when + seconds for when in self.changes),
            {name: replace(ban, until=ban.until + seconds) for name, ban in self.bans.items()},
            {name: when + seconds for name, when in self.lowered.items()},
            self.doubted,
            {name: replace(ban, until=ban.until + seconds) for name, ban in self.ended.items()},
        )


@dataclass(frozen=True)
class Decision:
    """The ratio to use, whether it is new, and why."""

    ratio: Mapping[str, float]
    changed: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Guard:
    """Stands between a policy and the records.

    Parameters
    ----------
    period
        Seconds between two decisions; times below are in periods.
    dead_band
        A change of less than this part of an even share is none. One that takes less than half of
        its share from every worker waits until the next period asks for it too.
    hold
        Periods for which a share that was lowered is not raised.
    ban, longest_ban
        Periods without records for a worker that is bypassed, doubled each time that it does not
        even do what it gets on trial, up to the longest.
    probe
        Share of a worker that is on trial; at most a twentieth of an even share.
    min_healthy
        Part of the workers that stays in service whatever is measured or predicted.
    changes_per_minute
        In any 60 seconds; refinements get half of them, so that some are left to take records from
        a worker in trouble and to come back to even. None: no bound.
    resolution
        What a circle cannot say: a difference that small is none.
    """

    period: float = 1.0
    dead_band: float = 0.1
    hold: float = 3.0
    ban: float = 4.0
    longest_ban: float = 15.0
    probe: float = 0.005
    min_healthy: float = 0.5
    changes_per_minute: int | None = 10
    resolution: float = 1.0 / 1024

    def step(
        self, memory: Memory, statistics: Statistics, proposal: Proposal, ratio: Ratio, now: float
    ) -> tuple[Memory, Decision]:
        """The next memory, and what to do."""
        reasons = [proposal.reason] if proposal.reason else []
        if now < memory.time:
            reasons.append(f"the clock went back by {memory.time - now:.3g} s")
            memory = memory.moved(now - memory.time)
        ratio = normalised({name: ratio.get(name, 0.0) for name in proposal.shares})
        bans, ended, notes = self._bans(memory, statistics, proposal, ratio, now)
        target = self._target(proposal, bans, ratio)
        target, held = self._held(target, ratio, memory.lowered, bans, now)
        recent = tuple(when for when in memory.changes if now - 60.0 < when)
        band = self.dead_band / len(target)
        doubted = frozenset(name for name in target if target[name] < ratio[name] - band)
        confirmed = not doubted or bool(doubted & memory.doubted)
        memory = replace(memory, time=now, bans=bans, changes=recent, doubted=doubted, ended=ended)
        moved = max((abs(target[name] - ratio[name]) for name in target), default=0.0)
        # Back to even is worth a change however small, or shares would rest beside it.
        settles = moved > self.resolution and max(target.values()) - min(target.values()) < 1e-9
        # A trial begins or ends, however little it gets.
        tried = any((target[name] > 0) != (ratio[name] > 0) for name in target)
        if moved < band and not settles and not tried:
            return memory, Decision(ratio, False, (*reasons, *notes))
        urgent = any(target[name] < 0.5 * ratio[name] for name in target)
        if not (urgent or confirmed or settles or tried):
            notes.append("waits for a second opinion")
            return memory, Decision(ratio, False, (*reasons, *notes))
        if self.changes_per_minute is not None:
            allowed = self._allowed(self.changes_per_minute, urgent, settles or tried)
            if len(recent) >= allowed:
                notes.append(f"{len(recent)} changes in the last minute: waits")
                return memory, Decision(ratio, False, (*reasons, *notes))
        lowered = {name: when for name, when in memory.lowered.items() if name in target}
        below = 0.95 / len(target)  # what others lose when one comes back is no reason to hold
        lowered |= {name: now for name in target if target[name] < min(ratio[name], below)}
        memory = replace(memory, changes=(*recent, now), lowered=lowered)
        return memory, Decision(target, True, (*reasons, *notes, *held))

    @staticmethod
    def _allowed(most: int, urgent: bool, back: bool) -> int:
        """Half for refinements, one less than all for trials and the way back, all to lower."""
        if urgent:
            return most
        return max(1, most - 1) if back else max(1, most // 2)

    def _bans(
        self,
        memory: Memory,
        statistics: Statistics,
        proposal: Proposal,
        ratio: Ratio,
        now: float,
    ) -> tuple[dict[str, Ban], dict[str, Ban], list[str]]:
        """Bans and trials from now on, trials that ended a while ago, and what to say."""
        bans = {name: ban for name, ban in memory.bans.items() if name in proposal.shares}
        latest = now - RELAPSE * self.period
        ended = {name: ban for name, ban in memory.ended.items() if ban.until > latest}
        notes: list[str] = []
        for name, ban in list(bans.items()):
            if not ban.probing and now >= ban.until:
                # Nothing was sent to it: what the policy knows of it is old.
                bans[name] = replace(ban, probing=True)
                notes.append(f"{name} is on trial")
            elif ban.probing and name in proposal.sick:
                if self._copes(statistics, name):
                    # Slow, but it answers: the trial goes on and nothing changes.
                    bans[name] = replace(ban, well=0, records=0.0)
                    continue
                longer = min(2 * ban.seconds, self.longest_ban * self.period)
                bans[name] = Ban(now + longer, longer, relapses=ban.relapses)
                notes.append(f"{name} is still sick: bypassed for {longer:.3g} s")
            elif ban.probing and name not in proposal.unknown and self._heard(statistics, name):
                done = statistics.workers[name].completed * self.period
                bans[name] = replace(ban, well=ban.well + 1, records=ban.records + done)
                if bans[name].over:
                    ended[name] = replace(bans.pop(name), until=now)
                    notes.append(f"{name} is well again")
        for name in sorted(proposal.unknown):
            if name not in bans and not ratio.get(name, 0.0) > 0:
                bans[name] = Ban(now, self.ban * self.period, probing=True)
                notes.append(f"{name} is new: on trial")
        for name in sorted(proposal.sick):
            if name not in bans:
                seconds, relapses, again = self.ban * self.period, 0, ""
                if name in ended:
                    before = ended.pop(name)
                    seconds = min(2 * before.seconds, self.longest_ban * self.period)
                    relapses, again = before.relapses + 1, " again"
                bans[name] = Ban(now + seconds, seconds, relapses=relapses)
                notes.append(f"{name} is bypassed{again} for {seconds:.3g} s")
        self._keep_enough(bans, proposal, statistics, notes)
        return bans, ended, notes

    def _copes(self, statistics: Statistics, name: str) -> bool:
        """Whether it does what it gets on trial."""
        seen = statistics.workers.get(name)
        if seen is None or not math.isfinite(seen.backlog):
            return False
        seconds = seconds_per_record(statistics, None).get(name, 0.0)
        return seen.silent <= self.period and seen.backlog * seconds <= 2 * self.period

    @staticmethod
    def _heard(statistics: Statistics, name: str) -> bool:
        seen = statistics.workers.get(name)
        return seen is not None and seen.completed > 0

    def _keep_enough(
        self,
        bans: dict[str, Ban],
        proposal: Proposal,
        statistics: Statistics,
        notes: list[str],
    ) -> None:
        """Never empty: the least sick stay, as many as must."""
        needed = max(1, math.ceil(self.min_healthy * len(proposal.shares)))
        missing = needed - (len(proposal.shares) - len(bans))
        if missing <= 0:
            return
        seconds = seconds_per_record(statistics, None)
        order = sorted(bans, key=lambda name: (seconds.get(name, math.inf), name))
        for name in order[:missing]:
            del bans[name]
        notes.append(
            f"{len(proposal.sick)} of {len(proposal.shares)} are sick: {needed} stay in service"
        )

    def _target(
        self, proposal: Proposal, bans: Mapping[str, Ban], ratio: Ratio
    ) -> dict[str, float]:
        shares = dict(proposal.shares)
        # A sick worker that must stay takes part like the others.
        kept = [name for name in proposal.sick if name not in bans]
        others = [share for name, share in shares.items() if name not in bans and share > 0]
        for name in kept:
            if shares[name] <= 0:
                shares[name] = stats.median(others) if others else 1.0
        trial = {name for name, ban in bans.items() if ban.probing}
        if all(name in bans for name in shares):
            return dict(ratio)
        # Nobody in service is left without any record, or nothing would be known of it.
        probe = min(self.probe, 0.05 / len(shares))
        served = {name: max(share, probe) for name, share in shares.items()}
        rest = normalised({name: 0.0 if name in bans else served[name] for name in shares})
        part = 1.0 - probe * len(trial)
        return {
            name: probe if name in trial else (0.0 if name in bans else rest[name] * part)
            for name in shares
        }

    def _held(
        self,
        target: dict[str, float],
        ratio: Ratio,
        lowered: Mapping[str, float],
        bans: Mapping[str, Ban],
        now: float,
    ) -> tuple[dict[str, float], list[str]]:
        """A share that was lowered a moment ago is not raised."""
        held = {
            name
            for name, when in lowered.items()
            if name in target
            and name not in bans
            and now - when < self.hold * self.period
            and target[name] > ratio[name]
        }
        if not held or len(held) == len(target):
            return target, []
        kept = math.fsum(ratio[name] for name in held)
        others = {name: share for name, share in target.items() if name not in held}
        if not math.fsum(others.values()) > 0:
            return target, []
        rest = normalised(others)
        out = {name: ratio[name] if name in held else rest[name] * (1.0 - kept) for name in target}
        return out, [f"{', '.join(sorted(held))}: lowered a moment ago, not raised"]


ALL = {
    "none": Even,
    "ban": BanOnResidual,
    "predicted": PredictedValue,
    "proportional": Proportional,
    "water-filling": WaterFilling,
}
"""Policies of ratios by the name that the command line gives them."""


def make(name: str, *, horizon: float | None = None) -> Policy:
    """A policy by its name."""
    if name not in ALL:
        raise ValueError(f"policy: expected one of {', '.join(ALL)}, got {name}")
    if name == "water-filling" and horizon is not None:
        return WaterFilling(horizon=horizon)
    made: Policy = ALL[name]()
    return made
