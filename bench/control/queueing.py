"""Queues under a CPU hog, simulated record by record: a policy without the noise of a machine.

Records come at random times, each with a demand that is drawn; both are fixed by the seed, so that
all policies see the same stream. A worker serves first come first served. While the hog runs, what
a chosen worker starts takes `slow` times as long. A record that is not done `timeout` seconds after
it was sent counts as failed, with the time-out as its completion time; it is not sent again.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pyroute import DynamicGrouping
from pyroute.control import policies as p
from pyroute.control.configurable import with_shares

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scenario:
    """The stream, the workers and the hog."""

    workers: int = 9
    rate: float = 10_000.0
    utilisation: float = 0.55
    spread: float = 0.5  # standard deviation of the demand by its mean
    slow: float = 5.0
    start: float = 60.0
    length: float = 300.0
    seconds: float = 480.0
    timeout: float = 30.0
    wire: float = 0.01  # there and back
    victims: int = 1
    seed: int = 0

    @property
    def demand(self) -> float:
        return self.utilisation * self.workers / self.rate

    @property
    def end(self) -> float:
        return self.start + self.length

    @property
    def names(self) -> list[str]:
        return [f"w{number}" for number in range(self.workers)]

    def stream(self) -> tuple[Floats, Floats]:
        """When records come, and what they ask for."""
        rng = np.random.default_rng(self.seed)
        count = int(self.rate * self.seconds)
        arrivals = np.sort(rng.uniform(0.0, self.seconds, count))
        shape = 1.0 / self.spread**2 if self.spread else math.inf
        demands = np.full(count, self.demand)
        if self.spread:
            demands = rng.gamma(shape, self.demand / shape, count)
        return arrivals, demands


@dataclass
class Queue:
    """One worker: when its records came, were begun and were done."""

    came: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)

    def measurement(self, now: float, period: float) -> p.Measurement:
        """What a hook would report at `now`."""
        come, finished = bisect_right(self.came, now), bisect_right(self.done, now)
        since = bisect_right(self.done, now - period)
        latest = self.took[max(since, finished - 32) : finished]
        silent = 0.0
        if come > finished:
            began = max(self.came[finished], self.done[finished - 1] if finished else 0.0)
            silent = now - began
        return p.Measurement(
            service=sum(latest) / len(latest) if latest else math.nan,
            arrived=(come - bisect_right(self.came, now - period)) / period,
            completed=(finished - since) / period,
            backlog=come - finished,
            silent=silent,
        )


@dataclass(frozen=True)
class Outcome:
    """One run, by what the goals ask for."""

    arrivals: Floats
    latencies: Floats  # seconds; as long as it really took
    tasks: npt.NDArray[np.int32]
    changes: tuple[float, ...]
    ratios: list[tuple[float, tuple[float, ...]]]
    scenario: Scenario

    def capped(self) -> Floats:
        return np.minimum(self.latencies, self.scenario.timeout)

    def each_second(self, affected: bool = False) -> Floats:
        """Mean completion time of the records sent in each second, in milliseconds."""
        chosen = self.tasks < self.scenario.victims if affected else slice(None)
        seconds = self.arrivals[chosen].astype(np.int64)
        size = math.ceil(self.scenario.seconds)
        total = np.bincount(seconds, self.capped()[chosen], size)
        count = np.bincount(seconds, minlength=size)
        return 1000.0 * np.divide(total, count, out=np.zeros(size), where=count > 0)

    @property
    def peak(self) -> float:
        return float(self.each_second().max())

    @property
    def affected(self) -> float:
        return float(self.each_second(affected=True).max())

    @property
    def failed(self) -> int:
        return int((self.latencies > self.scenario.timeout).sum())

    @property
    def most_changes(self) -> int:
        """In any minute."""
        when = np.array(self.changes)
        if not when.size:
            return 0
        return int(max(np.searchsorted(when, when + 60.0, "left") - np.arange(when.size)))

    def recovered(self, tolerance: float = 0.05) -> float:
        """Seconds from the end of the hog until shares are, and stay, this near to even."""
        last = 0.0
        even = 1.0 / self.scenario.workers
        for (_, shares), following in zip(self.ratios, [*self.ratios[1:], None], strict=True):
            until = self.scenario.seconds if following is None else following[0]
            away = max(abs(share - even) for share in shares) > tolerance * even + 1e-9
            if away and until > self.scenario.end:
                last = until - self.scenario.end
        return last


@dataclass(frozen=True)
class Control:
    """A policy of ratios, with its guard, its cadence and its forecast."""

    policy: p.Policy
    guard: p.Guard = field(default_factory=p.Guard)
    phase: float = 0.0  # of the decisions, in periods
    forecast: str = "none"  # "none", "last" (persistence), or "true"
    error: float = 0.0  # of the true one
    bits: int = 10
    fewest: int = 0
    history: int = 40


def simulate(scenario: Scenario, control: Control) -> Outcome:
    """Ratios, decided once a period."""
    arrivals, demands = scenario.stream()
    names = scenario.names
    queues = [Queue() for _ in names]
    grouping = DynamicGrouping.from_ratio(np.ones(len(names)), bits=control.bits)
    ratio = p.even(names)
    memory = p.Memory()
    rng = np.random.default_rng(scenario.seed + 1)
    period = control.guard.period
    tasks = np.empty(arrivals.size, np.int32)
    finishes = np.empty(arrivals.size)
    changes: list[float] = []
    ratios = [(0.0, tuple(ratio.values()))]
    residuals: dict[str, list[float]] = {name: [] for name in names}
    last: dict[str, float] = {}
    begun, now = 0, control.phase * period
    while begun < arrivals.size:
        until = int(np.searchsorted(arrivals, now))
        if until > begun:
            chosen = grouping.assign(np.arange(begun, until))
            tasks[begun:until] = chosen
            _serve(scenario, queues, chosen, arrivals, demands, finishes, begun, until)
            begun = until
        if begun >= arrivals.size:
            break
        seen = {
            name: queue.measurement(now, period) for name, queue in zip(names, queues, strict=True)
        }
        for name, each in seen.items():
            residuals[name].append(each.service - last.get(name, math.nan))
            del residuals[name][: -control.history]
            if math.isfinite(each.service):
                last[name] = each.service
        statistics = p.Statistics(now, seen, residuals)
        forecast = _forecast(scenario, control, now, last, rng)
        proposal = control.policy(statistics, forecast, ratio, now)
        memory, decision = control.guard.step(memory, statistics, proposal, ratio, now)
        if decision.changed:
            ratio = dict(decision.ratio)
            grouping = with_shares(grouping, [ratio[name] for name in names])
            changes.append(now)
            shares = grouping.shares()
            ratios.append((now, tuple(shares.get(task, 0.0) for task in range(len(names)))))
        now += period
    latencies = finishes - arrivals + scenario.wire
    return Outcome(arrivals, latencies, tasks, tuple(changes), ratios, scenario)


def _serve(
    scenario: Scenario,
    queues: list[Queue],
    chosen: npt.NDArray[np.int32],
    arrivals: Floats,
    demands: Floats,
    finishes: Floats,
    begun: int,
    until: int,
) -> None:
    for task, queue in enumerate(queues):
        at = begun + np.flatnonzero(chosen == task)
        if not at.size:
            continue
        slow = scenario.slow if task < scenario.victims else 1.0
        free = queue.done[-1] if queue.done else 0.0
        out = []
        for came, demand in zip(arrivals[at].tolist(), demands[at].tolist(), strict=True):
            start = max(free, came)
            took = demand * slow if scenario.start <= start < scenario.end else demand
            free = start + took
            out.append(free)
            queue.took.append(took)
        queue.came.extend(arrivals[at].tolist())
        queue.done.extend(out)
        finishes[at] = out
    assert until > begun


def _forecast(
    scenario: Scenario,
    control: Control,
    now: float,
    last: dict[str, float],
    rng: np.random.Generator,
) -> p.Forecast | None:
    if control.forecast == "none":
        return None
    if control.forecast == "last":
        return p.Forecast(dict(last), "persistence")
    ahead = now + control.guard.period
    slow = scenario.start <= ahead < scenario.end
    values = {
        name: scenario.demand
        * (scenario.slow if slow and task < scenario.victims else 1.0)
        * max(0.05, 1.0 + control.error * rng.standard_normal())
        for task, name in enumerate(scenario.names)
    }
    return p.Forecast(values, "truth")


def simulate_records(
    scenario: Scenario,
    choose: Callable[[int], p.LeastDelay] | None = None,
    *,
    age: float = 0.005,
    sources: int = 1,
    exact: bool = False,
) -> Outcome:
    """A choice per record; `age` is how old an acknowledgement is, `sources` share no knowledge.

    `exact`: join the shorter of two queues, their true lengths known.
    """
    arrivals, demands = scenario.stream()
    count = scenario.workers
    make = choose or (lambda seed: p.LeastDelay(count, seed=seed, service=scenario.demand))
    deciders = [make(scenario.seed + source) for source in range(sources)]
    rng = np.random.default_rng(scenario.seed + 2)
    draws = rng.integers(0, count, (arrivals.size, 2)).tolist()
    circle = DynamicGrouping.from_ratio(np.ones(count)).assign(np.arange(arrivals.size)).tolist()
    free = [0.0] * count
    length = [0] * count
    tasks, finishes = np.empty(arrivals.size, np.int32), np.empty(arrivals.size)
    acknowledged: list[tuple[float, int, int, float]] = []
    begin, end, slow = scenario.start, scenario.end, scenario.slow
    for i, (came, demand) in enumerate(zip(arrivals.tolist(), demands.tolist(), strict=True)):
        while acknowledged and acknowledged[0][0] <= came:
            _, task, source, took = heapq.heappop(acknowledged)
            length[task] -= 1
            if not exact:
                deciders[source].done(task, took, came)
        source = i % sources
        if exact:
            one = draws[i][0]
            two = (one + 1 + draws[i][1] % (count - 1)) % count
            task = two if length[two] < length[one] else one
        else:
            task = deciders[source].choose(circle[i], came)
        start = max(free[task], came)
        took = demand * slow if task < scenario.victims and begin <= start < end else demand
        free[task] = start + took
        length[task] += 1
        tasks[i], finishes[i] = task, free[task]
        heapq.heappush(acknowledged, (free[task] + (0.0 if exact else age), task, source, took))
    latencies = finishes - arrivals + scenario.wire
    ratios = _measured(arrivals, tasks, scenario)
    return Outcome(arrivals, latencies, tasks, (), ratios, scenario)


def _measured(
    arrivals: Floats, tasks: npt.NDArray[np.int32], scenario: Scenario, window: float = 20.0
) -> list[tuple[float, tuple[float, ...]]]:
    """Shares of the records of the next twenty seconds, each second."""
    count = scenario.workers
    out = []
    for now in np.arange(0.0, scenario.seconds - window + 1.0, 1.0):
        first, last = np.searchsorted(arrivals, [now, now + window])
        found = np.bincount(tasks[first:last], minlength=count)
        out.append((float(now), tuple((found / max(1, last - first)).tolist())))
    return out


def small(**changes: float) -> Scenario:
    """The same at a tenth of the rate and a shorter hog: seconds instead of minutes."""
    base = Scenario(rate=1000.0, start=30.0, length=60.0, seconds=150.0)
    return replace(base, **changes)  # type: ignore[arg-type]
