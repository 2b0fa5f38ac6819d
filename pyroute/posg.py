"""Proactive online shuffle grouping: a task for each record, by estimated finish time.

A `Tracker` at every task learns what records cost there and reports it; a `Scheduler` where the
records come from chooses the task that will be done first. Neither does I/O nor looks at a clock:
carry the reports and requests over any channel, and give `now` in any unit, that of the times.

>>> scheduler = Scheduler(2, mode="pooled")
>>> trackers = [Tracker(task, window=2, mode="pooled") for task in (0, 1)]
>>> scheduler.schedule(["slow", "quick"], now=0.0)
array([0, 1], dtype=int32)
>>> for task, value, time in ((0, "slow", 10.0), (1, "quick", 1.0)):
...     for request in scheduler.requests:
...         if request.task == task:
...             report = trackers[task].observe([value, value], [time, time], 20.0, request)
...     _ = scheduler.receive(report, 20.0)
>>> scheduler.schedule(["slow", "quick", "quick", "quick"], now=20.0)
array([0, 1, 1, 1], dtype=int32)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyroute import _core
from pyroute._arrays import count, numbers, real, task_id, weighted_tasks, word
from pyroute._kernel import Kernel
from pyroute.cost_sketch import CostSketch
from pyroute.keys import Keys, as_core

__all__ = [
    "SCHEDULER_TRANSITIONS",
    "TRACKER_TRANSITIONS",
    "Answer",
    "Items",
    "Report",
    "Request",
    "Scheduler",
    "Tracker",
]

_WINDOWS = {"posg": 1024, "pooled": 64}
_EPSILONS = {"posg": 0.05, "pooled": 0.001}

TRACKER_TRANSITIONS: tuple[tuple[str, str, str], ...] = tuple(_core.Tracker.transitions())
"""(state, event, next state) of a tracker in mode posg."""

SCHEDULER_TRANSITIONS: tuple[tuple[str, str, str], ...] = tuple(_core.Scheduler.transitions())
"""(state, event, next state) of a scheduler."""


class Request(NamedTuple):
    """What travels with a record: "say when this one is done"."""

    source: int
    """Which scheduler asks."""
    task: int
    epoch: int
    number: int
    position: int
    """Position of the record in the batch that was scheduled."""
    prompt: bool = False
    """Whether at once, where it could wait for the next report."""


class Answer(NamedTuple):
    """When the record that carried a request was done."""

    source: int
    epoch: int
    number: int
    finish: float


class Items(NamedTuple):
    """What a task executed since its last report, each key once."""

    keys: Keys
    frequencies: npt.NDArray[np.uint64]
    times: npt.NDArray[np.float64]


class Report(Kernel):
    """What a task tells the schedulers; immutable, made by a `Tracker`."""

    __slots__ = ()
    _native = _core.Report

    def __init__(self) -> None:
        raise TypeError("Report: expected Tracker.observe or Report.from_bytes to make it")

    @property
    def task(self) -> int:
        """Of which task."""
        return int(self._core.task)

    @property
    def mode(self) -> str:
        """The tracker's."""
        return str(self._core.mode)

    @property
    def number(self) -> int:
        """Its place among the reports of this task, from 1."""
        return int(self._core.number)

    @property
    def window(self) -> int:
        """The tracker's."""
        return int(self._core.window)

    @property
    def records(self) -> int:
        """Executed by the task so far."""
        return int(self._core.records)

    @property
    def executed(self) -> float:
        """The time they took."""
        return float(self._core.executed)

    @property
    def now(self) -> float:
        """When it was made."""
        return float(self._core.now)

    @property
    def sketch(self) -> CostSketch | None:
        """Mode posg: a copy of the sketch, where one became stable."""
        core = self._core.sketch
        return None if core is None else CostSketch._wrap(core)

    @property
    def items(self) -> Items:
        """Mode pooled: what was executed."""
        ids, frequencies, times = self._core.items
        return Items(Keys.from_ids(ids), frequencies, times)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """To the latest request of each source."""
        return tuple(Answer(*answer) for answer in self._core.answers)

    def __hash__(self) -> int:
        return hash((self.task, self.number, self.now))

    def __repr__(self) -> str:
        sketch = ", with a sketch" if self._core.sketch is not None else ""
        items = len(self.items.times)
        return (
            f"Report({self.number} of task {self.task}, {self.mode}{sketch}"
            f"{f', {items} items' if items else ''}, {len(self.answers)} answers)"
        )


class Tracker(Kernel):
    """What one task learns about the cost of its records (paper 004).

    Parameters
    ----------
    task
        Its id.
    window
        Records between two looks at the statistics; by default 1024, in mode pooled 64.
    tolerance
        Relative change of the means below which they are stable; mode posg.
    epsilon, delta, seed
        Of the sketch, and the same for all trackers and schedulers that work together; mode posg.
    mode
        "posg" reports sketches once they are stable; "pooled" reports the items of each window.
    """

    __slots__ = ()
    _native = _core.Tracker

    def __init__(
        self,
        task: int,
        window: int | None = None,
        tolerance: float = 0.05,
        epsilon: float = 0.05,
        delta: float = 0.1,
        seed: int = 0,
        *,
        mode: str = "posg",
    ) -> None:
        self._core = _core.Tracker(
            task_id(task, "task"),
            _mode(mode),
            _WINDOWS[mode] if window is None else count(window, "window"),
            real(tolerance, "tolerance"),
            real(epsilon, "epsilon"),
            real(delta, "delta"),
            word(seed, "seed"),
        )

    def observe(
        self, values: Any, times: Any, now: float, requests: Request | Iterable[Request] = ()
    ) -> Report | None:
        """Add executed records, and say what has to be told the schedulers.

        Parameters
        ----------
        values, times
            The records and the time each took.
        now
            When the last of them was done.
        requests
            What the last of them carried, of one scheduler or of several.
        """
        report = self._core.observe(
            as_core(values, "values"), numbers(times, "times"), real(now, "now"), _listed(requests)
        )
        return None if report is None else Report._wrap(report)

    @property
    def task(self) -> int:
        """As given."""
        return int(self._core.task)

    @property
    def mode(self) -> str:
        """As given."""
        return str(self._core.mode)

    @property
    def window(self) -> int:
        """Records between two looks at the statistics."""
        return int(self._core.window)

    @property
    def tolerance(self) -> float:
        """As given."""
        return float(self._core.tolerance)

    @property
    def state(self) -> str:
        """START or STABILIZING."""
        return str(self._core.state)

    @property
    def records(self) -> int:
        """Observed so far."""
        return int(self._core.records)

    @property
    def executed(self) -> float:
        """The time they took."""
        return float(self._core.executed)

    def __repr__(self) -> str:
        return f"Tracker({self.task}, {self.mode}, {self.state}, {self.records} records)"


class Scheduler(Kernel):
    """A task for each record, by estimated finish time (paper 004).

    Parameters
    ----------
    tasks
        `n`, or ids.
    mode
        "posg", the paper's: one sketch per task, round robin until all have come. "pooled": one
        sketch for all tasks and a speed for each, from the first report on; better, at more
        messages (csrc/route/scheduler.hpp says how).
    epsilon, delta, seed
        Of the sketch. In mode posg those of the trackers, by default 0.05, 0.1 and 0; in mode
        pooled epsilon is 0.001 by default, and nothing of that size is sent.
    source
        Its number among the schedulers that share the tasks.
    resync
        Mode posg: records after which finish times are asked for again, by default tasks times
        the trackers' window, 0 for never. Mode pooled: one record in so many of a task carries a
        request, 8 by default.
    memory
        Mode pooled: records after which an observation counts e times less than a new one.
    prompt
        Mode pooled: requests are answered at once, which is the default, and not with the next
        report. That is a message for each request instead of one for each window, and much better
        where times vary within a value.
    latencies
        Mode pooled: `{task: time}` that a record is on its way to the task; 0 where not named.
    """

    __slots__ = ()
    _native = _core.Scheduler

    def __init__(
        self,
        tasks: Any,
        mode: str = "posg",
        epsilon: float | None = None,
        delta: float = 0.1,
        seed: int = 0,
        *,
        source: int = 0,
        resync: int | None = None,
        memory: float = 16384.0,
        prompt: bool | None = None,
        latencies: Mapping[int, float] | None = None,
    ) -> None:
        if isinstance(tasks, Mapping):
            raise TypeError("tasks: expected an int or a sequence of ids, got a mapping")
        ids = [task for task, _ in weighted_tasks(tasks, "tasks")]
        self._core = _core.Scheduler(
            np.array(ids, np.int32),
            _in_order(latencies, ids),
            _mode(mode),
            _EPSILONS[mode] if epsilon is None else real(epsilon, "epsilon"),
            real(delta, "delta"),
            word(seed, "seed"),
            word(source, "source"),
            None if resync is None else count(resync, "resync"),
            real(memory, "memory"),
            mode == "pooled" if prompt is None else _flag(prompt, "prompt"),
        )

    @classmethod
    def from_sketch(cls, tasks: Any, sketch: CostSketch) -> Scheduler:
        """Begin with what an earlier run cost, mode pooled: no round robin until reports come.

        Parameters
        ----------
        tasks
            `n`, or ids.
        sketch
            Of the records of that run, and the times they took.
        """
        if not isinstance(sketch, CostSketch):
            raise TypeError(f"sketch: expected CostSketch, got {type(sketch).__name__}")
        ids = [task for task, _ in weighted_tasks(tasks, "tasks")]
        return cls._wrap(_core.Scheduler.from_sketch(np.array(ids, np.int32), sketch._core))

    def offline(self, rotation: int = 0) -> Scheduler:
        """A scheduler that knows what this one does, for records whose tasks tell nothing.

        Its tasks are idle, and no record carries a request. What it answers is a pure function of
        this scheduler, the rotation and the records in their order, however they are batched.

        Parameters
        ----------
        rotation
            Which task comes first where all are alike: several that begin together, one for each
            part of a batch job, should not all begin with the same one.
        """
        return type(self)._wrap(self._core.offline(word(rotation, "rotation")))

    def schedule(self, values: Any, now: Any) -> npt.NDArray[np.int32]:
        """The task of each record; `requests` then has what some of them must carry.

        Parameters
        ----------
        values
            What the cost of a record depends on.
        now
            The time, or one for each record; it never goes back.
        """
        times = numbers(now if np.ndim(now) else [real(now, "now")], "now")
        return self._core.schedule(as_core(values, "values"), times)  # type: ignore[no-any-return]

    def receive(self, report: Report, now: float) -> bool:
        """Take a task's report; False where a later one of that task came before."""
        if not isinstance(report, Report):
            raise TypeError(f"report: expected Report, got {type(report).__name__}")
        return bool(self._core.receive(report._core, real(now, "now")))

    def estimates(self, values: Any, task: int) -> npt.NDArray[np.float64]:
        """The time that each record would take at a task; 0 where nothing is known yet."""
        return self._core.estimates(  # type: ignore[no-any-return]
            as_core(values, "values"), task_id(task, "task")
        )

    @property
    def requests(self) -> tuple[Request, ...]:
        """What records of the last batch must carry to their tasks."""
        return tuple(Request(*request) for request in self._core.requests)

    @property
    def state(self) -> str:
        """ROUND_ROBIN, SEND_ALL, WAIT_ALL or RUN."""
        return str(self._core.state)

    @property
    def tasks(self) -> tuple[int, ...]:
        """Their ids, ascending."""
        return tuple(self._core.tasks.tolist())

    @property
    def mode(self) -> str:
        """As given."""
        return str(self._core.mode)

    @property
    def source(self) -> int:
        """As given."""
        return int(self._core.source)

    @property
    def epoch(self) -> int:
        """How often finish times were asked for; mode posg."""
        return int(self._core.epoch)

    @property
    def resets(self) -> int:
        """How often a change of the costs emptied the sketch; mode pooled."""
        return int(self._core.resets)

    @property
    def finishes(self) -> dict[int, float]:
        """When each task will be done, as estimated."""
        return dict(zip(self.tasks, self._core.finishes.tolist(), strict=True))

    @property
    def speeds(self) -> dict[int, float]:
        """Time at each task by time on average; mode pooled, else 1."""
        return dict(zip(self.tasks, self._core.speeds.tolist(), strict=True))

    def __repr__(self) -> str:
        return f"Scheduler({len(self.tasks)} tasks, {self.mode}, {self.state})"


def _mode(mode: object) -> str:
    if not isinstance(mode, str):
        raise TypeError(f"mode: expected posg or pooled, got {type(mode).__name__}")
    if mode not in _WINDOWS:
        raise ValueError(f"mode: expected posg or pooled, got {mode}")
    return mode


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected a bool, got {type(value).__name__}")
    return bool(value)


def _listed(requests: Request | Iterable[Request]) -> list[tuple[int, int, int, int, int, bool]]:
    if isinstance(requests, Request):
        return [requests]
    listed: list[tuple[int, int, int, int, int, bool]] = []
    for request in requests:
        if not isinstance(request, Request):
            raise TypeError(f"requests: expected Request, got {type(request).__name__}")
        listed.append(request)
    return listed


def _in_order(latencies: Mapping[int, float] | None, tasks: list[int]) -> npt.NDArray[np.float64]:
    if latencies is None:
        return np.empty(0)
    unknown = sorted(set(latencies) - set(tasks))
    if unknown:
        raise ValueError(f"latencies: expected tasks of this scheduler, got {unknown[0]}")
    return np.array([real(latencies.get(task, 0.0), "latencies") for task in tasks])
