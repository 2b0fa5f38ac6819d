"""Twins of csrc/route/tracker.hpp and csrc/route/scheduler.hpp, written from their definitions."""

import copy
import math
from collections import defaultdict
from dataclasses import dataclass, field

from reference.cost_sketch import CostSketch


@dataclass
class Report:
    """What a task tells."""

    task: int
    number: int
    window: int
    sketch: CostSketch | None = None
    now: float = 0.0
    items: list[tuple[int, int, float]] = field(default_factory=list)
    answers: dict[int, tuple[int, int, float]] = field(default_factory=dict)


def relative_change(now: CostSketch, then: CostSketch) -> float:
    """Equation 1 with cells weighted by frequency, over those that both occupy."""
    moved = total = 0.0
    for row, old_row in zip(now.cells, then.cells, strict=True):
        for (f, w), (old_f, old_w) in zip(row, old_row, strict=True):
            if f and old_f:
                moved += f * abs(old_w / old_f - w / f)
                total += f * (old_w / old_f)
    return moved / total if total else 0.0


def overall_mean(sketch: CostSketch) -> float:
    f, w = sketch.total
    return w / f if f else 0.0


def estimate(sketch: CostSketch, key: int, overall: float) -> float:
    f, w = min(sketch.cells_of(key), key=lambda cell: cell[0])
    return w / f if f else overall


class Tracker:
    """One task."""

    def __init__(self, task, window, tolerance, epsilon, delta, seed, mode):
        self.task, self.window, self.tolerance, self.mode = task, window, tolerance, mode
        self.shape = epsilon, delta, seed
        self.sketch = CostSketch(*self.shape)
        self.snapshot = self.sent = None
        self.state = "START"
        self.executed: list[tuple[int, float]] = []  # since the last report
        self.in_window = self.reports = 0
        self.answers: dict[int, tuple[int, int, float]] = {}

    def observe(self, keys, times, now, requests=()):
        """Return a report or None; a request is (source, epoch, number, prompt)."""
        due = at_once = False
        for key, time in zip(keys, times, strict=True):
            self.sketch.observe([key], [time])
            self.executed.append((key, time))
            self.in_window += 1
            if self.in_window == self.window:
                self.in_window = 0
                due = self.close_window() or due
        for source, epoch, number, prompt in requests:
            self.answers[source] = epoch, number, now
            at_once = at_once or prompt or self.mode == "posg"
        if not due and not at_once:
            return None
        self.reports += 1
        report = Report(self.task, self.reports, self.window, now=now, answers=self.answers)
        self.answers = {}
        if due and self.mode == "pooled":
            sums = defaultdict(lambda: [0, 0.0])
            for key, time in self.executed:
                sums[key][0] += 1
                sums[key][1] += time
            report.items = [(key, *sums[key]) for key in sorted(sums)]
            self.executed, self.in_window = [], 0
        elif due:
            report.sketch = copy.deepcopy(self.sent)
        return report

    def close_window(self) -> bool:
        if self.mode == "pooled":
            return True
        if self.state == "START":
            self.state, self.snapshot = "STABILIZING", copy.deepcopy(self.sketch)
            return False
        if relative_change(self.sketch, self.snapshot) > self.tolerance:
            self.snapshot = copy.deepcopy(self.sketch)
            return False
        tell = self.sent is None or relative_change(self.sketch, self.sent) > self.tolerance
        if tell:
            self.sent = self.sketch
        self.state, self.sketch = "START", CostSketch(*self.shape)
        return tell


class Posg:
    """The scheduler in mode posg."""

    def __init__(self, tasks, epsilon, delta, seed, source=0, resync=None):
        self.tasks, self.source, self.resync = sorted(tasks), source, resync
        self.sketches: dict[int, CostSketch] = {}
        self.finish = dict.fromkeys(self.tasks, 0.0)
        self.added = dict.fromkeys(self.tasks, 0.0)  # since the request of this epoch
        self.numbers = dict.fromkeys(self.tasks, 0)
        self.answers: dict[int, float] = {}
        self.state, self.epoch, self.turn, self.window = "ROUND_ROBIN", 0, 0, 0
        self.asked: list[int] = []
        self.scheduled = 0

    def begin_epoch(self):
        self.state, self.answers, self.asked, self.scheduled = "SEND_ALL", {}, [], 0
        self.epoch += 1

    def schedule(self, keys, now):
        """Return tasks and requests (task, epoch, number, position)."""
        out, requests = [], []
        for position, key in enumerate(keys):
            if self.state == "ROUND_ROBIN":
                out.append(self.tasks[self.turn % len(self.tasks)])
                self.turn += 1
                continue
            period = len(self.tasks) * self.window if self.resync is None else self.resync
            if self.state != "SEND_ALL" and period and self.scheduled >= period:
                self.begin_epoch()
            asks = self.state == "SEND_ALL"
            if asks:
                task = self.tasks[len(self.asked)]
                self.asked.append(task)
                requests.append((task, self.epoch, self.epoch, position))
            else:
                task = min(self.tasks, key=lambda t: (self.finish[t], t))
                self.scheduled += 1
            sketch = self.sketches[task]
            cost = estimate(sketch, key, overall_mean(sketch))
            self.finish[task] += cost
            self.added[task] = 0.0 if asks else self.added[task] + cost
            if len(self.asked) == len(self.tasks) and asks:
                self.state = "WAIT_ALL"
            out.append(task)
        return out, requests

    def receive(self, report, now):
        if report.number <= self.numbers[report.task] and report.number != 1:
            return
        self.numbers[report.task], self.window = report.number, report.window
        if self.source in report.answers:
            epoch, _, finish = report.answers[self.source]
            waits = self.state in ("SEND_ALL", "WAIT_ALL") and report.task in self.asked
            if epoch == self.epoch and waits:
                self.answers.setdefault(report.task, finish)
        if self.state == "WAIT_ALL" and len(self.answers) == len(self.tasks):
            self.finish = {t: self.answers[t] + self.added[t] for t in self.tasks}
            self.state = "RUN"
        if report.sketch is not None:
            self.sketches[report.task] = report.sketch
            if len(self.sketches) == len(self.tasks):
                self.begin_epoch()


class Pooled:
    """The scheduler in mode pooled."""

    def __init__(
        self,
        tasks,
        epsilon,
        delta,
        seed,
        source=0,
        resync=8,
        memory=16384,
        prompt=False,
        latencies=(),
    ):
        self.tasks, self.source, self.resync, self.memory = sorted(tasks), source, resync, memory
        self.prompt = prompt
        self.latency = dict.fromkeys(self.tasks, 0.0) | dict(latencies)
        self.shape = epsilon, delta, seed
        self.sketch = CostSketch(*self.shape)
        self.weight, self.noise, self.usual, self.odd, self.resets = 1.0, 0.25, None, 0, 0
        self.finish = dict.fromkeys(self.tasks, 0.0)
        self.speed = dict.fromkeys(self.tasks, 1.0)
        self.sums = dict.fromkeys(self.tasks, (0.0, 0.0))  # executed, expected
        self.last = dict.fromkeys(self.tasks, (0, 0.0, 0.0))  # sign, executed, expected
        self.numbers = dict.fromkeys(self.tasks, 0)
        self.sent = dict.fromkeys(self.tasks, 0)  # requests
        self.counted = dict.fromkeys(self.tasks, 0)  # records since the last one
        self.blind = dict.fromkeys(self.tasks, 0)
        # Per task: requests not yet answered, each with the steps (arrival or None, cost) since.
        self.waiting = {t: [] for t in self.tasks}
        self.lag = dict.fromkeys(self.tasks, 0.0)
        self.answer = {}  # per task: finish that was answered in ROUND_ROBIN
        self.expected = {}  # per task and request: finish of the record that carried it
        self.state, self.turn, self.first = "ROUND_ROBIN", 0, None

    def schedule(self, keys, now):
        out, requests = [], []
        self.first = now if self.first is None else self.first
        overall = overall_mean(self.sketch)
        for position, key in enumerate(keys):
            if self.state == "ROUND_ROBIN":
                task = self.tasks[self.turn % len(self.tasks)]
                self.turn += 1
                self.blind[task] += 1
                step = None
            else:
                base = estimate(self.sketch, key, overall)
                ends = {
                    t: max(self.finish[t], now + self.wait(t)) + base * self.speed[t]
                    for t in self.tasks
                }
                task = min(self.tasks, key=lambda t: (ends[t], t))
                self.finish[task] = ends[task]
                step = now + self.latency[task], base * self.speed[task]
            for _, steps in self.waiting[task][-1:]:
                steps.append(step)
            if self.counted[task] == 0:
                self.sent[task] += 1
                number = self.sent[task]
                requests.append((task, 0, number, position))
                kept = self.waiting[task][-32 if len(self.waiting[task]) == 64 else 0 :]
                self.waiting[task] = [*kept, (number, [])]
                self.expected[task, number] = self.finish[task]
                self.counted[task] = 0
            self.counted[task] = (self.counted[task] + 1) % self.resync
            out.append(task)
        return out, requests

    def wait(self, task):
        """Latency, or more where the oldest request without an answer says that a task is late."""
        if not self.prompt or not self.waiting[task]:
            return self.latency[task]
        after = sum(
            cost for _, steps in self.waiting[task] for step in steps if step for cost in step[1:]
        )
        return max(self.latency[task], after - self.lag[task])

    def receive(self, report, now):
        task = report.task
        if report.number <= self.numbers[task] and report.number != 1:
            return
        self.numbers[task] = report.number
        self.lag[task] = max(0.0, now - report.now)
        if report.items:
            self.learn(task, report.items)
            if self.state == "ROUND_ROBIN":
                self.start(now)
        if self.source in report.answers:
            _, number, finish = report.answers[self.source]
            self.apply(task, number, finish)
        if self.prompt and self.state == "RUN":
            mean = overall_mean(self.sketch)
            for t in self.tasks:
                late = now - 64 * mean * self.speed[t]
                if self.waiting[t] and self.expected[t, self.waiting[t][0][0]] < late:
                    self.waiting[t].pop(0)
                    self.counted[t] = 0

    def apply(self, task, number, finish):
        numbers = [n for n, _ in self.waiting[task]]
        if number not in numbers:
            return
        at = numbers.index(number)
        after = [step for _, steps in self.waiting[task][at:] for step in steps]
        self.waiting[task] = self.waiting[task][at + 1 :]
        if self.state == "ROUND_ROBIN":
            self.answer[task], self.blind[task] = finish, len(after)
        else:
            self.finish[task] = advance(finish, after)

    def start(self, now):
        mean = overall_mean(self.sketch)
        first = now if self.first is None else self.first
        for task in self.tasks:
            begin = self.answer.get(task, first + self.latency[task])
            self.finish[task] = begin + self.blind[task] * mean
            for number, steps in self.waiting[task]:
                steps[:] = [(-math.inf, len(steps) * mean)] if steps else []
                self.expected[task, number] = now
        self.state = "RUN"

    def learn(self, task, items):
        known = [
            (time, f * estimate(self.sketch, key, -1.0))
            for key, f, time in items
            if estimate(self.sketch, key, -1.0) != -1.0
        ]
        executed, expected = 0.0, 0.0
        for time, base in known:
            executed += time
            expected += base
        if executed > 0 and expected > 0:
            ratio, off = executed / expected, 0.0
            for time, base in known:
                off += abs(time - ratio * base)
            if self.surprises(off / executed):
                self.sketch, self.weight = CostSketch(*self.shape), 1.0
                self.resets += 1
            else:
                self.learn_speed(task, executed, expected)
        self.weight *= 1 + sum(f for _, f, _ in items) / self.memory
        for key, f, time in items:
            for cell in self.sketch.cells_of(key):
                cell[0] += self.weight * f
                cell[1] += self.weight * time / self.speed[task]

    def surprises(self, residual):
        if self.usual is not None and residual > 0.1 + 1.5 * self.usual:
            self.odd += 1
            if self.odd < 3:
                return False
            self.usual, self.odd = None, 0
            return True
        self.odd = 0
        self.usual = residual if self.usual is None else 0.95 * self.usual + (1 - 0.95) * residual
        return False

    def learn_speed(self, task, executed, expected):
        sums = self.sums[task]
        speed = sums[0] / sums[1] if sums[1] > 0 else self.speed[task]
        deviation = executed / expected / speed - 1
        large = 0.05 + 3 * self.noise
        sign = (deviation > large) - (deviation < -large)
        if sign and sign == self.last[task][0]:
            sums = self.last[task][1:]
        self.sums[task] = 0.95 * sums[0] + executed, 0.95 * sums[1] + expected
        self.last[task] = sign, executed, expected
        self.noise = 0.95 * self.noise + (1 - 0.95) * min(abs(deviation), large)
        ratios = {t: a / b for t, (a, b) in self.sums.items() if b > 0}
        centre = 0.0
        for t in sorted(ratios):
            centre += ratios[t]
        centre /= len(ratios)
        for t in self.tasks:
            off = ratios[t] / centre - 1 if t in ratios else 0.0
            kept = off * off / (off * off + 0.04 * self.noise * self.noise) if off else 0.0
            self.speed[t] = centre * (1 + off * kept)


def advance(finish, steps):
    """A finish time after more records, each (arrival, cost)."""
    for arrival, cost in steps:
        finish = max(finish, arrival) + cost
    return finish
