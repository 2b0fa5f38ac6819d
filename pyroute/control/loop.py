"""The loop: measure, keep, predict, decide, publish; once a period.

Whatever fails on the way is said in the status, and the last good ratio stays in force: a store
that is locked, a config store that is away, a model that cannot be read, a worker that reports
nonsense, a clock that is set.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pyroute.control import policies
from pyroute.control.backtest import Backtest, error_ratio
from pyroute.control.config_store import ConfigStore, MalformedError, StaleVersionError, Watch
from pyroute.control.configurable import bits_for, from_document, to_document, with_shares
from pyroute.control.policies import Forecast, Guard, Measurement, Memory, Statistics
from pyroute.control.store import DecisionRow, ForecastRow, Sample, Store
from pyroute.dynamic_grouping import DynamicGrouping

__all__ = ["History", "Loop", "Model", "Status", "measurement"]

_log = logging.getLogger("pyroute.control.loop")
Floats = npt.NDArray[np.float64]
_FAILURES = (OSError, ValueError, TypeError, KeyError, ArithmeticError, RuntimeError, ImportError)
# FormatError is a ValueError; what a store or a model of others raises is not ours to know.


@dataclass(frozen=True)
class History:
    """The last periods of all workers, for a model.

    Attributes
    ----------
    workers
        Their names, the columns.
    target
        Seconds per record of each period (rows) and worker; NaN where nothing was measured.
    features
        More of the same shape, by name: `backlog`, `arrived`, `completed`, and what monitor and
        hooks tell of each worker.
    machines
        By name, one number per period: the mean over the machines.
    """

    workers: tuple[str, ...]
    target: Floats
    features: Mapping[str, Floats] = field(default_factory=dict)
    machines: Mapping[str, Floats] = field(default_factory=dict)

    def until(self, rows: int) -> History:
        """The first periods alone."""
        return History(
            self.workers,
            self.target[:rows],
            {name: values[:rows] for name, values in self.features.items()},
            {name: values[:rows] for name, values in self.machines.items()},
        )


class Model(Protocol):
    """Anything that says what comes next: one number per worker, NaN where it does not know."""

    def predict(self, history: History) -> Any:
        """Seconds per record in the period after the last one."""
        ...


@dataclass(frozen=True)
class Status:
    """What one turn of the loop saw and did."""

    time: float
    turn: int
    edge: str
    policy: str
    source: str
    why: str
    ratio: Mapping[str, float]
    version: int
    changed: bool
    changes_in_last_minute: int
    reasons: tuple[str, ...]
    workers: Mapping[str, Mapping[str, Any]]
    problems: Mapping[str, str]
    cost: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it: no NaN, no infinity."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def measurement(features: Mapping[str, float], host: str = "") -> Measurement:
    """What the policies need, from features by the names that hooks give them.

    Seconds per record are `service_ms`, or where no hook tells it `queue_ms`: how long a record
    waits for its worker. Records done are `completed_per_s`, or `records_per_s`.
    """

    def get(*names: str) -> float:
        for name in names:
            if name in features:
                return float(features[name])
        return math.nan

    service = get("service_ms", "queue_ms") / 1000.0
    backlog, silent = get("backlog"), get("silent_s")
    return Measurement(
        service=service if math.isfinite(service) and service >= policies.SHORTEST else math.nan,
        arrived=get("arrived_per_s", "records_per_s"),
        completed=get("completed_per_s", "records_per_s"),
        backlog=backlog if math.isfinite(backlog) and backlog >= 0 else 0.0,
        silent=silent if math.isfinite(silent) and silent >= 0 else 0.0,
        host=host,
    )


class Loop:
    """Control of one edge.

    Parameters
    ----------
    name
        Of the document in the config store: see `pyroute.control.edge_name`.
    workers
        Names of the tasks, in their order.
    sources
        What gives samples: functions, such as `Monitor.sample` and `Hook.collect`.
    config
        Where the ratio is published; None: nowhere, decisions are only shown.
    store
        Where samples, forecasts and decisions are kept; None: nowhere.
    policy, guard
        See `pyroute.control.policies`.
    model
        Anything with `predict(history)`. Its word counts only while it beats persistence.
    weights, load
        A file to read the model from, and how; read again whenever it changes. One that cannot be
        read is reported, and the model before stays.
    retrain, retrain_every
        Makes a new model from the history, in a thread; it takes the place of the old one if it is
        better on the periods after the training began, of which there must be 30.
    bits
        Of the circle; None: `bits_for` so many workers.
    stale
        A worker is silent after so many periods, or so many times what passes between two of its
        reports, whichever is longer. Infinity: never.
    clock, ticks
        Wall clock and monotonic clock.
    """

    def __init__(
        self,
        name: str,
        workers: Sequence[str],
        sources: Iterable[Callable[[], list[Sample]]],
        *,
        config: ConfigStore | None = None,
        store: Store | None = None,
        policy: policies.Policy | None = None,
        guard: Guard | None = None,
        model: Model | None = None,
        weights: str | Path | None = None,
        load: Callable[[Path], Model] | None = None,
        retrain: Callable[[History], Model] | None = None,
        retrain_every: float = 600.0,
        backtest: Backtest | None = None,
        bits: int | None = None,
        remember: int = 240,
        stale: float = 3.0,
        cost: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        if not workers or len(set(workers)) != len(workers):
            raise ValueError(f"workers: expected distinct names, got {list(workers)}")
        self.name, self.workers = name, tuple(workers)
        self._sources = list(sources)
        self._config, self._store = config, store
        self.policy: policies.Policy = policy or policies.WaterFilling()
        self._bits = bits_for(len(self.workers)) if bits is None else bits
        self.guard = replace(guard or Guard(), resolution=1.0 / (1 << self._bits))
        self.model = model
        self._weights = None if weights is None else Path(weights)
        self._load, self._weights_mark = load or _load, (0, 0)
        self._retrain, self._retrain_every = retrain, retrain_every
        self._training: threading.Thread | None = None
        self._candidate: list[Model | Exception] = []
        self.backtest = backtest or Backtest()
        self._cost = cost or (lambda: 0.0)
        self._clock, self._ticks = clock, ticks
        self._stale = stale
        self._memory = Memory()
        self._grouping = DynamicGrouping.from_ratio([1.0] * len(self.workers), bits=self._bits)
        self.version = 0
        self._adopted = config is None
        self._watch: Watch | None = None
        self._overtaken = False
        self._rows: deque[tuple[dict[str, dict[str, float]], dict[str, float]]] = deque(
            maxlen=remember
        )
        self._residuals: dict[str, deque[float]] = {w: deque(maxlen=40) for w in self.workers}
        self._remember = remember
        self._usual: deque[float] = deque(maxlen=remember)
        self._expected: dict[str, float] = {}
        self._said: dict[str, float] = {}
        self._heard: dict[str, float] = {}
        self._gaps: dict[str, deque[float]] = {w: deque(maxlen=5) for w in self.workers}
        self._last: dict[str, Measurement] = {}
        self._turn = 0
        self._then: tuple[float, float] | None = None
        self._begun = ticks()
        self._trained, self._trained_turn = self._begun, 0
        self._told: dict[str, str] = {}
        self._unpublished: DynamicGrouping | None = None
        self._store_again, self._store_said = -math.inf, ""

    @property
    def ratio(self) -> dict[str, float]:
        """The shares in force."""
        shares = self._grouping.shares()
        return {name: shares.get(task, 0.0) for task, name in enumerate(self.workers)}

    @property
    def grouping(self) -> DynamicGrouping:
        """The circle in force."""
        return self._grouping

    # one turn ----------------------------------------------------------------------------------

    def step(self) -> Status:
        """Measure, keep, predict, decide, publish; raises for a bug of ours alone."""
        now, wall = self._ticks(), self._clock()
        problems: dict[str, str] = {}
        self._look_at_clock(now, wall, problems)
        self._adopt(problems)
        samples, new = self._collect(problems)
        self._keep(new, wall, problems)
        statistics = self._statistics(samples, now, problems)
        forecast, source, why = self._predict(statistics, problems)
        self._foretell(source, wall, problems)
        changed, reasons = self._decide(statistics, forecast, now, wall, source, problems)
        self._renew(now, problems)
        self._tell(problems, wall)
        self._turn += 1
        return Status(
            time=wall,
            turn=self._turn,
            edge=self.name,
            policy=type(self.policy).__name__,
            source=source,
            why=why,
            ratio=self.ratio,
            version=self.version,
            changed=changed,
            changes_in_last_minute=len([t for t in self._memory.changes if now - 60.0 < t]),
            reasons=tuple(reasons),
            workers=self._shown(statistics, forecast),
            problems=problems,
            cost=self._cost(),
        )

    def run(
        self, stop: threading.Event, shown: Callable[[Status], None] | None = None, turns: int = 0
    ) -> None:
        """Turn after turn, one per period, until `stop` is set or so many are done."""
        following = self._ticks()
        while not stop.is_set():
            status = self.step()
            if shown is not None:
                shown(status)
            if turns and self._turn >= turns:
                return
            following += self.guard.period
            wait = following - self._ticks()
            if wait < 0:  # a turn took too long: no hurry afterwards
                following, wait = self._ticks(), 0.0
            if stop.wait(wait):
                return

    def _look_at_clock(self, now: float, wall: float, problems: dict[str, str]) -> None:
        if self._then is not None:
            jump = (wall - self._then[1]) - (now - self._then[0])
            if abs(jump) > max(1.0, self.guard.period):
                problems["clock"] = f"the clock was set by {jump:+.3g} s; decisions do not use it"
        self._then = (now, wall)

    def _adopt(self, problems: dict[str, str]) -> None:
        """Go on from the ratio that is in force; also after somebody else changed it."""
        if self._config is None:
            return
        trouble = self._config.trouble()
        if trouble:
            problems["config"] = f"{trouble}; the last ratio stays"
        self._overtaken = False
        if self._watch is not None and not self._config.is_connected:
            return  # a call would wait, and what is measured meanwhile would be late
        if self._watch is not None and self._adopted and self._watch.version > self.version:
            problems["config"] = f"somebody else wrote version {self._watch.version}: it is used"
            self._adopted, self._overtaken = False, True
        if not self._adopted:
            self._read_document(self._config, problems)

    def _read_document(self, config: ConfigStore, problems: dict[str, str]) -> None:
        try:
            if self._watch is None:
                self._watch = config.watch(self.name, lambda _: None)
            document = config.get(self.name)
            if document is not None:
                self.version = document.version
                grouping, names = from_document(document.value, len(self.workers))
                if names not in (list(self.workers), [str(i) for i in range(len(names))]):
                    raise ValueError(f"tasks: expected {list(self.workers)}, got {names}")
                if grouping.bits < self._bits:  # it cannot say what so many workers need
                    found = grouping.shares()
                    shares = [found.get(task, 0.0) for task in range(len(names))]
                    grouping = DynamicGrouping.from_ratio(shares, bits=self._bits)
                self._grouping = grouping
            self._adopted = True
        except MalformedError as error:
            self.version = error.version
            self._adopted = True
            problems["document"] = f"{error}; it will be written again"
            self._unpublished = self._grouping
        except (ValueError, TypeError) as error:
            self._adopted = True
            problems["document"] = f"version {self.version}: {error}; it will be written again"
            self._unpublished = self._grouping
        except Exception as error:
            problems["config"] = f"{_said(error)}; the last ratio stays"

    def _collect(self, problems: dict[str, str]) -> tuple[list[Sample], list[Sample]]:
        """All samples, and those that are not in the store already."""
        samples: list[Sample] = []
        new: list[Sample] = []
        for source in self._sources:
            came: list[Sample] = []
            try:
                for sample in source():
                    try:
                        came.append(_checked(sample))
                    except Exception as error:  # the others are good
                        problems[f"source {_name(source)}"] = _said(error)
            except Exception as error:
                problems[f"source {_name(source)}"] = _said(error)
                continue
            samples += came
            if not getattr(getattr(source, "__self__", None), "kept", False):
                new += came
            owner = getattr(source, "__self__", None)
            problem = getattr(owner, "problem", None)
            if problem:
                problems[f"source {_name(source)}"] = problem
            for worker, text in (getattr(owner, "problems", None) or {}).items():
                problems[f"worker {worker}" if worker else "machine"] = text
        return samples, new

    def _keep(self, samples: list[Sample], wall: float, problems: dict[str, str]) -> None:
        if self._store is None or not samples:
            return
        received = None if self._store.has_clock else wall
        self._kept(lambda store: store.write(samples, received=received), problems)

    def _kept(self, work: Callable[[Store], object], problems: dict[str, str]) -> None:
        """Write to the store; one that fails is left alone for ten times as long as that took.

        So one that waits for a lock, or for a host that is away, costs the loop little.
        """
        if self._store is None:
            return
        begun = self._ticks()
        if begun < self._store_again:
            problems["store"] = self._store_said
            return
        try:
            work(self._store)
        except _FAILURES as error:  # a StoreError is an OSError
            now = self._ticks()
            self._store_again = now + 10.0 * (now - begun)
            problems["store"] = f"{_said(error)}; routing goes on without it"
            self._store_said = problems["store"]

    # measuring ---------------------------------------------------------------------------------

    def _statistics(
        self, samples: list[Sample], now: float, problems: dict[str, str]
    ) -> Statistics:
        merged: dict[str, dict[str, float]] = {}
        hosts: dict[str, str] = {}
        machines: dict[str, list[float]] = {}
        for sample in samples:  # several of one worker: the latest of each feature
            if sample.worker in self._residuals:
                merged.setdefault(sample.worker, {}).update(sample.features)
                hosts[sample.worker] = sample.host
            elif not sample.worker:
                for name, value in sample.features.items():
                    if math.isfinite(value):
                        machines.setdefault(name, []).append(value)
        for worker, features in merged.items():
            # A process that lives is no answer: one that stands still is as good as gone.
            if not _TOLD.isdisjoint(features):
                if worker in self._heard:
                    self._gaps[worker].append(now - self._heard[worker])
                self._heard[worker] = now
        seen = {}
        for worker in self.workers:
            seen[worker] = self._measured(worker, merged, hosts, now, problems)
        if not merged and self._sources and not self._reported_lately(now):
            problems["workers"] = "none reports: the ratio stays"
        for worker, each in seen.items():
            expected = self._expected.get(worker, math.nan)
            self._residuals[worker].append(each.service - expected)
            row = merged.setdefault(worker, {})
            row["target"] = each.service
        means = {name: sum(values) / len(values) for name, values in machines.items()}
        self._rows.append((merged, means))
        residuals = {name: list(values) for name, values in self._residuals.items()}
        return Statistics(now, seen, residuals)

    def _usual_gap(self, worker: str) -> float:
        """Seconds between two reports: they may be rarer than decisions, the jar's are."""
        return max(self.guard.period, min(self._gaps[worker], default=REPORTS))

    def _reported_lately(self, now: float) -> bool:
        return any(
            now - heard <= self._stale * self._usual_gap(worker)
            for worker, heard in self._heard.items()
        )

    def _measured(
        self,
        worker: str,
        merged: Mapping[str, Mapping[str, float]],
        hosts: Mapping[str, str],
        now: float,
        problems: dict[str, str],
    ) -> Measurement:
        if self._heard.get(worker) == now and worker in merged:
            found = measurement(merged[worker], hosts.get(worker, ""))
            wrong = [
                name
                for name, value in merged[worker].items()
                if name in _WATCHED and not math.isfinite(value)
            ]
            # No record done is no measurement; a worker that did some should say what they took.
            if "backlog" in wrong or ("service_ms" in wrong and found.completed != 0):
                problems[f"worker {worker}"] = (
                    f"reports {', '.join(sorted(wrong))} that is no number: its share stays"
                )
            self._last[worker] = found
            return found
        age = now - self._heard.get(worker, self._begun)
        last = self._last.get(worker, Measurement())
        if age <= self._stale * self._usual_gap(worker):
            return Measurement(host=last.host)
        if any(heard >= now for heard in self._heard.values()):
            # Others report: this one is gone, or so slow that it cannot.
            problems[f"worker {worker}"] = f"silent for {age:.3g} s"
            return Measurement(backlog=max(1.0, last.backlog), silent=age, host=last.host)
        return Measurement(host=last.host)

    def history(self, last: int | None = None) -> History:
        """What is remembered, for a model; of the last periods alone where it needs no more."""
        rows = list(self._rows)
        rows = rows if last is None else rows[-last:]
        names = sorted({name for merged, _ in rows for each in merged.values() for name in each})
        table = {
            name: np.array(
                [
                    [merged.get(w, {}).get(name, math.nan) for w in self.workers]
                    for merged, _ in rows
                ]
            ).reshape(len(rows), len(self.workers))
            for name in names
        }
        machine = sorted({name for _, means in rows for name in means})
        return History(
            self.workers,
            table.pop("target", np.empty((0, len(self.workers)))),
            table,
            {name: np.array([means.get(name, math.nan) for _, means in rows]) for name in machine},
        )

    # predicting --------------------------------------------------------------------------------

    def _predict(
        self, statistics: Statistics, problems: dict[str, str]
    ) -> tuple[Forecast | None, str, str]:
        self._read_weights(problems)
        actual = np.array([statistics.workers[w].service for w in self.workers])
        said = None
        if self.model is not None:
            try:
                said = _ask(self.model, self.history(getattr(self.model, "window", None)))
                if said.shape != actual.shape:
                    raise ValueError(
                        f"forecast: expected {actual.size} numbers, got shape {said.shape}"
                    )
            except Exception as error:
                problems["model"] = f"{_said(error)}; persistence is used"
                said = None
        words = () if said is None else zip(self.workers, said.tolist(), strict=True)
        self._said = {name: value for name, value in words if math.isfinite(value)}
        outlook = self.backtest.step(actual, said)
        values = dict(zip(self.workers, outlook.values.tolist(), strict=True))
        self._expected = values
        if outlook.source == "persistence":
            # What was measured last: the policies read it from the statistics themselves.
            return None, "persistence", outlook.reason
        known = {w: v for w, v in values.items() if math.isfinite(v) and v > 0}
        return Forecast(known, "forecast"), "forecast", outlook.reason

    def _foretell(self, source: str, wall: float, problems: dict[str, str]) -> None:
        """Keep what the model said, also while its word does not count: so it can be judged."""
        if self._store is None or not self._said:
            return
        row = ForecastRow(wall, wall + self.guard.period, self.name, self._said, source)
        self._kept(lambda store: store.foretell(row), problems)

    def _read_weights(self, problems: dict[str, str]) -> None:
        if self._weights is None:
            return
        try:
            found = self._weights.stat()
            mark = (found.st_mtime_ns, found.st_size)
            if mark == self._weights_mark:
                return
            model = self._load(self._weights)
            order_of = getattr(model, "order_of", None)
            if order_of is not None:  # one of other workers is as good as none
                order_of(self.workers)
            if self.model is not None and len(self._rows) > 1:
                self._swap_record(model)
            self.model, self._weights_mark = model, mark
        except Exception as error:
            stays = "the model before stays" if self.model is not None else "there is no model"
            text, name = _said(error), self._weights.name
            problems["weights"] = f"{text if name in text else f'{name}: {text}'}; {stays}"

    # retraining --------------------------------------------------------------------------------

    def _renew(self, now: float, problems: dict[str, str]) -> None:
        """Take a new model over if it is better; start the next one when it is time."""
        if self._retrain is None:
            return
        if self._training is not None and not self._training.is_alive():
            result = self._candidate[-1] if self._candidate else RuntimeError("no model")
            fresh = min(self._turn + 1 - self._trained_turn, len(self._rows) - 1)
            if not isinstance(result, Exception) and fresh < min(FRESH, self._remember - 1):
                return  # of what it was trained on it would know the answers
            self._training = None
            self._candidate.clear()
            if isinstance(result, Exception):
                problems["training"] = f"{_said(result)}; the model before stays"
            else:
                try:
                    self._consider(result, fresh)
                except Exception as error:
                    problems["training"] = f"new model: {_said(error)}; the model before stays"
        if self._training is None and now - self._trained >= self._retrain_every:
            self._trained, self._trained_turn = now, self._turn + 1
            history, make = self.history(), self._retrain

            def work() -> None:
                try:
                    self._candidate.append(make(history))
                except Exception as error:
                    self._candidate.append(error)

            self._training = threading.Thread(target=work, name="pyroute-training", daemon=True)
            self._training.start()

    def _consider(self, candidate: Model, fresh: int) -> None:
        """Both models by the periods since the training began, which neither was made of."""
        history = self.history()
        error, _ = error_ratio(*_replayed(candidate, history, fresh))
        before = math.inf
        if self.model is not None:
            try:
                before, _ = error_ratio(*_replayed(self.model, history, fresh))
            except Exception as failure:
                self._note("model", f"{_said(failure)}: anything better is taken")
        better = math.isfinite(error) and (error < before or math.isnan(before))
        text = f"new model: {error:.3f} of the error of persistence, the one before {before:.3f}"
        self._note("training", f"{text}; {'taken' if better else 'not taken'}")
        if better:
            self._swap_record(candidate, fresh)
            self.model = candidate

    def _swap_record(self, model: Model, fresh: int | None = None) -> None:
        """The back-test of the new one over what is remembered replaces that of the old one."""
        try:
            self.backtest.swap(*_replayed(model, self.history(), fresh))
        except _FAILURES as error:
            _log.warning("back-test of the new model: %s", error)

    # deciding ----------------------------------------------------------------------------------

    def _decide(
        self,
        statistics: Statistics,
        forecast: Forecast | None,
        now: float,
        wall: float,
        source: str,
        problems: dict[str, str],
    ) -> tuple[bool, list[str]]:
        if self._overtaken:  # its writer knew better, or this decides otherwise in a period
            reasons = ["somebody else wrote a ratio: it stays"]
            wanted, memory = self._unpublished, self._memory
        elif not any(
            math.isfinite(each.service) or each.silent > 0 for each in statistics.workers.values()
        ):
            reasons = ["nothing is known: the ratio stays"]
            wanted, memory = self._unpublished, self._memory
        else:
            wanted, memory = self._unpublished, self._memory
            try:
                memory, decided, reasons = self._decided(statistics, forecast, now)
                wanted = decided or wanted
            except Exception as error:  # a policy may be anybody's
                problems["policy"] = f"{_said(error)}; the last ratio stays"
                reasons = ["the policy failed: the ratio stays"]
        self._say_if_all_are_sick(statistics, reasons, problems)
        if wanted is None:
            self._memory = memory
            return False, reasons
        if not self._publish(wanted, problems):
            # As if it had not been decided: it is decided again from what is measured then.
            kept = self._memory
            self._memory = replace(memory, changes=kept.changes, lowered=kept.lowered)
            return False, reasons
        self._memory = memory
        row = DecisionRow(wall, self.name, self.version, self.ratio, source, tuple(reasons))
        self._kept(lambda store: store.decide(row), problems)
        return True, reasons

    def _decided(
        self, statistics: Statistics, forecast: Forecast | None, now: float
    ) -> tuple[Memory, DynamicGrouping | None, list[str]]:
        """What to remember, the circle to use where it is another one, and why."""
        before = self.ratio
        proposal = self.policy(statistics, forecast, before, now)
        shares = proposal.shares
        if set(shares) != set(self.workers):
            raise ValueError(f"shares: expected {list(self.workers)}, got {list(shares)}")
        wrong = [name for name, share in shares.items() if not 0 <= share < math.inf]
        if wrong:
            raise ValueError(f"shares: expected numbers >= 0, got {wrong[0]}: {shares[wrong[0]]}")
        memory, decision = self.guard.step(self._memory, statistics, proposal, before, now)
        if not decision.changed:
            return memory, None, list(decision.reasons)
        wanted = [decision.ratio.get(name, 0.0) for name in self.workers]
        return memory, with_shares(self._grouping, wanted), list(decision.reasons)

    def _say_if_all_are_sick(
        self, statistics: Statistics, reasons: Sequence[str], problems: dict[str, str]
    ) -> None:
        served = [each.service for each in statistics.workers.values() if each.service > 0]
        if served:
            usual = float(np.median(self._usual)) if self._usual else math.inf
            if min(served) > ALL_SLOW * usual:
                problems["capacity"] = (
                    f"all workers are slow, the best takes {min(served) / usual:.3g}x the usual"
                    " time: there is nobody to turn to"
                )
            self._usual.append(float(np.median(served)))
        for reason in reasons:
            if "stay in service" in reason:
                problems["capacity"] = reason

    def _publish(self, wanted: DynamicGrouping, problems: dict[str, str]) -> bool:
        if self._config is None:
            self._grouping, self._unpublished = wanted, None
            self.version += 1
            return True
        if not self._adopted or not self._config.is_connected:
            return False  # what is in force is not known yet, or nobody can be told
        try:
            self.version = self._config.put(
                self.name, to_document(wanted, self.workers), expect_version=self.version
            )
        except StaleVersionError as error:
            self._adopted = False
            problems["config"] = f"somebody else wrote version {error.expected}: read again"
            return False
        except Exception as error:
            self._adopted = False  # whether it was written is not known: look before the next
            problems["config"] = f"{_said(error)}; the last ratio stays"
            return False
        self._grouping, self._unpublished = wanted, None
        return True

    # telling -----------------------------------------------------------------------------------

    def _tell(self, problems: dict[str, str], wall: float) -> None:
        """Log and keep what is new among the problems, and what is over."""
        for kind, text in problems.items():
            if kind not in self._told:
                _log.warning("%s: %s", kind, text)
                self._note(kind, text, wall)
        for kind in self._told:
            if kind not in problems:
                _log.info("%s: over", kind)
                self._note(kind, "over", wall)
        self._told = dict(problems)

    def _note(self, kind: str, text: str, wall: float | None = None) -> None:
        when = self._clock() if wall is None else wall
        self._kept(lambda store: store.note(when, kind, text), {})

    def _shown(
        self, statistics: Statistics, forecast: Forecast | None
    ) -> dict[str, dict[str, Any]]:
        ratio, out = self.ratio, {}
        for name, seen in statistics.workers.items():
            ban = self._memory.bans.get(name)
            state = "in service" if ban is None else ("on trial" if ban.probing else "bypassed")
            out[name] = {
                "share": ratio[name],
                "service_ms": 1000.0 * seen.service,
                "forecast_ms": 1000.0
                * (forecast.values.get(name, math.nan) if forecast else math.nan),
                "backlog": seen.backlog,
                "records_per_s": seen.arrived,
                "state": state,
            }
        return out


FRESH = 30
"""Periods after the begin of a training by which the new model is judged."""
REPORTS = 1.0
"""Seconds between two reports of a worker, until they have been seen."""
TIMES = ("service_ms", "queue_ms")
ALL_SLOW = 3.0
"""Times the usual time of a record, from which on workers are sick even if they are all alike."""
_RATES = ("arrived_per_s", "records_per_s", "completed_per_s")
_TOLD = frozenset((*TIMES, *_RATES, "backlog", "silent_s"))
"""What `measurement` reads."""
_WATCHED = ("service_ms", "backlog", "queue_ms", "records_per_s")


def _replayed(
    model: Model, history: History, last: int | None = None
) -> tuple[Floats, Floats, Floats]:
    """What a model would have said of each remembered period, what came, and what was before."""
    first = 1 if last is None else max(1, len(history.target) - last)
    rows = range(first, len(history.target))
    said = [_ask(model, history.until(row)) for row in rows]
    width = len(history.workers)
    return (
        np.array(said).reshape(len(said), width),
        history.target[first:],
        history.target[first - 1 : -1],
    )


def _ask(model: Model, history: History) -> Floats:
    """What a model says, in seconds per record.

    One that names its target, as `pyroute.control.Predictor` does, gets that one to look at and
    answers in its unit.
    """
    target = getattr(model, "target", None)
    if not isinstance(target, str):
        return np.asarray(model.predict(history), np.float64)
    if target not in TIMES:
        raise ValueError(f"model: expected one of {', '.join(TIMES)} as its target, got {target}")
    own = history.features.get(target)
    if own is None:
        raise ValueError(f"model: expected {target} to be measured, got nothing")
    seen = History(history.workers, own, history.features, history.machines)
    return np.asarray(model.predict(seen), np.float64) / 1000.0


def _load(path: Path) -> Model:
    """A model of this package, of whichever kind."""
    from pyroute.control.mixed import load

    return load(path)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked(sample: Any) -> Sample:
    """A sample with numbers alone, or an error that says which is none."""
    if not isinstance(sample, Sample):
        raise TypeError(f"sample: expected a Sample, got {sample!r:.60}")
    names: tuple[Any, ...] = (sample.worker, sample.host, *sample.features)
    for name in names:
        if not isinstance(name, str) or not _is_utf8(name):
            raise TypeError(f"name: expected text that UTF-8 has, got {name!r:.60}")
    for name, value in (("time", sample.time), *sample.features.items()):
        if not isinstance(value, int | float | np.integer | np.floating):
            raise TypeError(f"{sample.worker}: {name}: expected a number, got {value!r:.60}")
        if isinstance(value, int) and abs(value) >= 1 << 1000:
            raise ValueError(f"{sample.worker}: {name}: expected what a float can hold, got more")
    return sample


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _name(source: Any) -> str:
    owner = getattr(source, "__self__", source)
    return type(owner).__name__.lower() if owner is not source else getattr(source, "__name__", "?")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
