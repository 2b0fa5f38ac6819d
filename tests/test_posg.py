"""Tracker and Scheduler against their twins, and every guarantee of their headers."""

import itertools
import math
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyroute as pr
from effort import effort
from pyroute.posg import Report, Request, Scheduler, Tracker
from reference import keys
from reference import posg as reference

pytestmark = pytest.mark.kernel

MODES = ("posg", "pooled")
values = st.integers(0, 12)
times = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.25, 10.0])
batches = st.lists(st.lists(st.tuples(values, times), max_size=9), max_size=25)
shapes = st.sampled_from([(0.3, 0.3), (0.05, 0.1), (1.0, 0.5)])
modes = st.sampled_from(MODES)


def ids_of(chosen):
    return keys.keys(chosen)


def twin_request(request):
    return request.source, request.epoch, request.number, request.prompt


def assert_same_report(report, twin):
    assert (report is None) == (twin is None)
    if report is None:
        return
    assert (report.task, report.number, report.window) == (twin.task, twin.number, twin.window)
    assert {a.source: (a.epoch, a.number, a.finish) for a in report.answers} == twin.answers
    ids, frequencies, sums = report.items
    listed = zip(ids.ids.tolist(), frequencies.tolist(), sums.tolist(), strict=True)
    assert list(listed) == twin.items
    assert (report.sketch is None) == (twin.sketch is None)
    if report.sketch is not None:
        universe = list(range(13))
        assert report.sketch.time(universe).tolist() == [
            twin.sketch.time(key) for key in ids_of(universe)
        ]


# -- tracker


@given(
    batches,
    st.integers(1, 12),
    st.sampled_from([0.0, 0.05, 0.3]),
    shapes,
    modes,
    st.data(),
)
def test_tracker_matches_reference(stream, window, tolerance, shape, mode, data):
    tracker = Tracker(3, window, tolerance, *shape, seed=5, mode=mode)
    twin = reference.Tracker(3, window, tolerance, *shape, 5, mode)
    for now, batch in enumerate(stream):
        asked = [
            Request(source, 3, data.draw(st.integers(0, 3)), now, 0)
            for source in data.draw(st.sets(st.integers(0, 2)))
        ]
        chosen, took = [v for v, _ in batch], [t for _, t in batch]
        report = tracker.observe(chosen, took, float(now), asked)
        twins = twin.observe(ids_of(chosen), took, float(now), map(twin_request, asked))
        assert_same_report(report, twins)
        assert tracker.state == twin.state
    assert tracker.records == sum(map(len, stream))


@given(st.lists(st.tuples(values, times), max_size=80), st.integers(1, 8))
def test_tracker_table(stream, window):
    tracker = Tracker(0, window, 0.1)
    allowed = {(before, after) for before, _, after in pr.posg.TRACKER_TRANSITIONS}
    for value, time in stream:
        before = tracker.state
        tracker.observe([value], [time], 0.0)
        closes = tracker.records % window == 0
        assert (before, tracker.state) in allowed if closes else before == tracker.state


def test_transition_tables():
    assert pr.posg.TRACKER_TRANSITIONS == (
        ("START", "window", "STABILIZING"),
        ("STABILIZING", "unstable", "STABILIZING"),
        ("STABILIZING", "stable", "START"),
    )
    for table in pr.posg.TRACKER_TRANSITIONS, pr.posg.SCHEDULER_TRANSITIONS:
        assert len({(state, event) for state, event, _ in table}) == len(table)
    reached = {"ROUND_ROBIN"}
    for _ in pr.posg.SCHEDULER_TRANSITIONS:
        reached |= {to for state, _, to in pr.posg.SCHEDULER_TRANSITIONS if state in reached}
    assert reached == {"ROUND_ROBIN", "SEND_ALL", "WAIT_ALL", "RUN"}


@pytest.mark.parametrize("window", [1, 7, 1024])
def test_stable_streams_report(window):
    tracker = Tracker(0, window)
    for n in range(1, 6 * window + 1):
        report = tracker.observe([n % 5], [2.0 * (n % 5)], float(n))
        # Never again: later sketches say the same (trap O10).
        assert (report is not None) == (n == 2 * window)


def test_a_changed_sketch_is_reported_again():
    tracker = Tracker(0, 10)
    reports = [tracker.observe([1], [1.0 if n < 40 else 3.0], float(n)) for n in range(80)]
    assert [n for n, report in enumerate(reports) if report] == [19, 59]
    assert reports[59].sketch.mean_time([1]).tolist() == [3.0]


def test_unstable_streams_do_not_report():
    tracker = Tracker(0, 10, tolerance=0.05)
    for n in range(200):
        assert tracker.observe([1], [2.0 ** (n // 10)], float(n)) is None
        assert tracker.state == ("START" if n < 9 else "STABILIZING")


@pytest.mark.parametrize("mode", MODES)
def test_answers_every_source(mode):
    tracker = Tracker(0, 4, mode=mode)
    answers = []
    for now in range(9):
        asked = [Request(source, 0, 1, now, 0) for source in (0, 7) if now % 2 == 0]
        report = tracker.observe(["x"], [1.0], float(now), asked)
        answers += report.answers if report else ()
    by_source = {source: [a for a in answers if a.source == source] for source in (0, 7)}
    wanted = [0, 2, 4, 6, 8] if mode == "posg" else [2, 6]
    for found in by_source.values():
        assert [a.number for a in found] == wanted
        assert [a.finish for a in found] == wanted


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("time", [-1.0, math.nan, math.inf])
def test_hostile_times(mode, time):
    tracker = Tracker(0, 2, mode=mode)
    tracker.observe([1], [2.0], 5.0)
    before = tracker.to_bytes()
    with pytest.raises(ValueError, match="times: expected finite numbers >= 0, got"):
        tracker.observe([1, 2], [1.0, time], 6.0)
    with pytest.raises(ValueError, match="now: expected a finite time, got"):
        tracker.observe([1], [1.0], math.nan)
    with pytest.raises(ValueError, match="now: expected a clock that does not go back, got 4"):
        tracker.observe([1], [1.0], 4.0)
    with pytest.raises(ValueError, match="times: expected 1 of them, got 2"):
        tracker.observe([1], [1.0, 2.0], 6.0)
    with pytest.raises(ValueError, match="requests: expected one of task 0, got one of 3"):
        tracker.observe([1], [1.0], 6.0, Request(0, 3, 0, 0, 0))
    assert tracker.to_bytes() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"window": 0}, "window: expected 1 to 16777216, got 0"),
        ({"tolerance": -0.1}, "tolerance: expected"),
        ({"tolerance": math.nan}, "tolerance: expected"),
        ({"epsilon": 0.0}, "epsilon: expected"),
        ({"delta": 1.0}, "delta: expected"),
        ({"mode": "other"}, "mode: expected posg or pooled, got other"),
    ],
)
def test_bad_trackers(options, error):
    with pytest.raises(ValueError, match=error):
        Tracker(0, **options)


@given(batches, modes)
def test_report_bytes(stream, mode):
    tracker = Tracker(9, 3, mode=mode)
    for now, batch in enumerate(stream):
        asked = [Request(2**64 - 1, 9, now, now, 0)] if now % 3 == 0 else []
        report = tracker.observe([v for v, _ in batch], [t for _, t in batch], float(now), asked)
        if report is not None:
            for copy in Report.from_bytes(report.to_bytes()), pickle.loads(pickle.dumps(report)):
                assert copy == report
                assert hash(copy) == hash(report)
                assert copy.answers == report.answers
                assert repr(copy) == repr(report)


def test_reports_are_frozen():
    tracker = Tracker(0, 1, mode="pooled")
    report = tracker.observe([1], [1.0], 0.0)
    with pytest.raises(AttributeError):
        report.task = 3
    with pytest.raises(TypeError, match="expected Tracker"):
        Report()
    sketch = Tracker(0, 1)
    sketch.observe([1], [1.0], 0.0)
    made = sketch.observe([1], [1.0], 0.0)
    made.sketch.reset()
    assert made.sketch.total_frequency == 2


# -- scheduler


class World:
    """Schedulers and tasks that talk over lossy channels, each beside its twin."""

    def __init__(self, mode, tasks, shape, sources, resync, latencies=None, prompt=False):
        self.mode, self.tasks, self.prompt = mode, tasks, prompt
        self.schedulers = []
        for source in range(sources):
            options = {"source": source, "resync": resync}
            if mode == "posg":
                twin = reference.Posg(tasks, *shape, 5, **options)
            else:
                options |= {"memory": 50.0, "prompt": prompt}
                twin = reference.Pooled(tasks, *shape, 5, latencies=latencies or {}, **options)
                options["latencies"] = latencies
            self.schedulers.append((Scheduler(tasks, mode, *shape, 5, **options), twin))
        self.trackers = {
            t: (
                Tracker(t, 4, 0.3, *shape, 5, mode=mode),
                reference.Tracker(t, 4, 0.3, *shape, 5, mode),
            )
            for t in tasks
        }
        self.queues = {t: [] for t in tasks}
        self.reports = []
        self.now = 0.0

    def check(self):
        for scheduler, twin in self.schedulers:
            assert scheduler.state == twin.state
            assert list(scheduler.finishes.values()) == pytest.approx(
                [twin.finish[t] for t in scheduler.tasks], rel=1e-9, abs=1e-9
            )
            if self.mode == "pooled":
                assert list(scheduler.speeds.values()) == pytest.approx(
                    [twin.speed[t] for t in scheduler.tasks], rel=1e-9
                )
                assert scheduler.resets == twin.resets

    def schedule(self, which, chosen):
        scheduler, twin = self.schedulers[which]
        out = scheduler.schedule(chosen, self.now).tolist()
        twin_out, twin_requests = twin.schedule(ids_of(chosen), self.now)
        assert out == twin_out
        requests = scheduler.requests
        assert [tuple(r)[1:5] for r in requests] == twin_requests
        assert {r.prompt for r in requests} <= {self.prompt}
        by_position = {request.position: request for request in requests}
        for position, (value, task) in enumerate(zip(chosen, out, strict=True)):
            self.queues[task].append((value, by_position.get(position)))

    def execute(self, task, time):
        if not self.queues[task]:
            return
        value, request = self.queues[task].pop(0)
        asked = [] if request is None else [request]
        tracker, twin = self.trackers[task]
        report = tracker.observe([value], [time], self.now, asked)
        twin_report = twin.observe(ids_of([value]), [time], self.now, map(twin_request, asked))
        assert_same_report(report, twin_report)
        if report is not None:
            self.reports.append((report, twin_report))

    def deliver(self, at):
        if not self.reports:
            return
        report, twin_report = self.reports.pop(at % len(self.reports))
        for scheduler, twin in self.schedulers:
            scheduler.receive(report, self.now)
            twin.receive(twin_report, self.now)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.integers(0, 1), st.lists(values, max_size=12)),
        st.tuples(st.just("execute"), st.integers(0, 2), times),
        st.tuples(st.just("deliver"), st.integers(0, 5), st.none()),
        st.tuples(st.just("lose"), st.integers(0, 5), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 7.0]), st.none()),
    ),
    max_size=120,
)


def drive(world, script):
    for name, first, second in script:
        if name == "schedule":
            world.schedule(first % len(world.schedulers), second)
        elif name == "execute":
            world.execute(world.tasks[first % len(world.tasks)], second)
        elif name == "deliver":
            world.deliver(first)
        elif name == "lose":
            if world.reports:
                world.reports.pop(first % len(world.reports))
        else:
            world.now += first
        yield name
        world.check()


@given(
    steps,
    modes,
    shapes,
    st.integers(1, 2),
    st.sampled_from([None, 3, 20]),
    st.sampled_from([[0], [4, 1], [2, 0, 7]]),
    st.booleans(),
)
@settings(max_examples=effort(80))
def test_scheduler_matches_reference(script, mode, shape, sources, resync, tasks, prompt):
    if mode == "pooled":
        resync = resync or 8
    world = World(mode, tasks, shape, sources, resync, prompt=prompt and mode == "pooled")
    for _ in drive(world, script):
        pass


def random_script(chance, length):
    """A stream that gets through all states, with now and then a loss or a change of costs."""
    costs = [chance.choice([0.5, 1.0, 2.0, 10.0]) for _ in range(13)]
    for n in range(length):
        if n % 150 == 149:
            chance.shuffle(costs)
        yield "schedule", chance.randrange(2), [chance.randrange(13)]
        yield "wait", chance.choice([0.2, 0.5, 1.0]), None
        for _ in range(2):
            yield "execute", chance.randrange(11), costs[chance.randrange(13)]
        if chance.random() < 0.7:
            yield chance.choice(["deliver"] * 9 + ["lose"]), chance.randrange(3), None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(8))
def test_scheduler_matches_reference_on_long_streams(mode, seed):
    chance = random.Random(f"{mode} {seed}")
    latencies = {0: 0.5, 7: 2.0} if mode == "pooled" and seed % 2 else None
    prompt = mode == "pooled" and seed >= 4
    tasks = [2, 0, 7] if seed % 4 < 3 else [*range(11)]
    world = World(mode, tasks, (0.05, 0.1), 1 + seed % 2, 8, latencies, prompt)
    seen = set()
    for _ in drive(world, random_script(chance, effort(400))):
        seen |= {scheduler.state for scheduler, _ in world.schedulers}
    wanted = {"ROUND_ROBIN", "RUN"} | ({"SEND_ALL", "WAIT_ALL"} if mode == "posg" else set())
    assert seen == wanted or (len(tasks) > 3 and seen < wanted)


@pytest.mark.parametrize("mode", MODES)
def test_scheduler_table(mode):
    world = World(mode, [0, 1, 2], (0.05, 0.1), 1, 8)
    allowed = {(state, to) for state, _, to in pr.posg.SCHEDULER_TRANSITIONS}
    [(scheduler, _)] = world.schedulers
    state = scheduler.state
    for _ in drive(world, random_script(random.Random(mode), effort(400))):
        # A report may hold an answer and a sketch: two steps in one call.
        twice = {(a, d) for a, b in allowed for c, d in allowed if b == c}
        assert scheduler.state == state or (state, scheduler.state) in allowed | twice
        state = scheduler.state


def posg_in_send_all(tasks=3, **options):
    """A scheduler in SEND_ALL, and trackers that have just become stable."""
    scheduler = Scheduler(tasks, **options)
    trackers = [Tracker(task, 2) for task in range(tasks)]
    for tracker in trackers:
        assert tracker.observe([1], [1.0], 0.0) is None
        tracker.observe([1], [1.0], 0.0)
        tracker.observe([1], [1.0], 0.0)
        assert scheduler.state == "ROUND_ROBIN"
        scheduler.receive(tracker.observe([1], [1.0], 0.0), 0.0)
    assert scheduler.state == "SEND_ALL"
    return scheduler, trackers


def test_answers_in_send_all():
    scheduler, trackers = posg_in_send_all()
    scheduler.schedule([1, 1], 1.0)
    for request in scheduler.requests:
        answer = trackers[request.task].observe([1], [1.0], 5.0 + request.task, request)
        scheduler.receive(answer, 1.0)
    assert scheduler.state == "SEND_ALL"
    scheduler.schedule([1], 1.0)
    assert scheduler.state == "WAIT_ALL"
    [request] = scheduler.requests
    scheduler.receive(trackers[2].observe([1], [1.0], 9.0, request), 1.0)
    assert scheduler.state == "RUN"
    assert scheduler.finishes == {0: 5.0, 1: 6.0, 2: 9.0}


def test_stale_epochs_are_ignored():
    scheduler, trackers = posg_in_send_all()
    scheduler.schedule([1, 1, 1], 1.0)
    old = scheduler.requests
    stale = [trackers[r.task].observe([1], [1.0], 50.0, r) for r in old]
    # Costs change at task 0: a new sketch, and with it a new epoch.
    report = None
    while report is None or report.sketch is None:
        report = trackers[0].observe([1], [9.0], 60.0)
    scheduler.receive(report, 60.0)
    assert (scheduler.state, scheduler.epoch) == ("SEND_ALL", 2)
    finishes = scheduler.finishes
    for answer in stale[1:]:
        assert scheduler.receive(answer, 60.0)
    assert scheduler.receive(stale[0], 60.0) is False  # task 0 has reported since
    assert (scheduler.state, scheduler.finishes) == ("SEND_ALL", finishes)
    scheduler.schedule([1, 1, 1], 60.0)
    assert scheduler.state == "WAIT_ALL"
    assert {request.epoch for request in scheduler.requests} == {2}


def test_lost_answers():
    scheduler, _ = posg_in_send_all(resync=10)
    scheduler.schedule([1] * 3, 1.0)
    assert scheduler.state == "WAIT_ALL"
    scheduler.schedule([1] * 10, 1.0)
    assert scheduler.state == "WAIT_ALL"
    scheduler.schedule([1] * 3, 1.0)
    assert [(r.epoch, r.task) for r in scheduler.requests] == [(2, 0), (2, 1), (2, 2)]


def test_silence_does_not_starve_a_task():
    """Where an answer is lost, a task is taken for late only for a while."""
    scheduler, trackers = Scheduler(2, "pooled", resync=1), []
    for task in (0, 1):
        trackers.append(Tracker(task, 1, mode="pooled"))
        scheduler.receive(trackers[task].observe(["x"], [1.0], 0.0), 0.0)
    assert scheduler.schedule(["x", "x", "x", "x"], 0.0).tolist() == [0, 1, 0, 1]
    # Task 0 has done its two records, but nobody hears of it.
    taken = []
    for now in range(5, 200, 5):
        [task] = scheduler.schedule(["x"], float(now)).tolist()
        taken.append(task)
        if task == 1:
            report = trackers[1].observe(["x"], [1.0], now + 1.0, scheduler.requests)
            scheduler.receive(report, now + 1.0)
    assert taken[1:10] == [1] * 9
    assert 0 in taken[10:]


def test_resync_by_default_after_tasks_times_window():
    scheduler, trackers = posg_in_send_all()
    scheduler.schedule([1] * 3, 1.0)
    for request in scheduler.requests:
        scheduler.receive(trackers[request.task].observe([1], [1.0], 1.0, request), 1.0)
    assert scheduler.state == "RUN"
    scheduler.schedule([1] * 7, 1.0)
    assert scheduler.epoch == 2
    never, _ = posg_in_send_all(resync=0)
    never.schedule([1] * 1000, 1.0)
    assert never.epoch == 1


def completion(costs, arrivals, chosen, tasks):
    """Cumulated completion time on FIFO tasks."""
    free, total = [0.0] * tasks, 0.0
    for cost, arrival, task in zip(costs, arrivals, chosen, strict=True):
        free[task] = max(free[task], arrival) + cost
        total += free[task] - arrival
    return total


def pooled_that_knows(tasks, costs):
    """A pooled scheduler that was told the exact cost of each value."""
    scheduler = Scheduler(tasks, "pooled")
    tracker = Tracker(0, len(costs), mode="pooled")
    scheduler.receive(tracker.observe(list(costs), list(costs.values()), 0.0), 0.0)
    return scheduler


def test_worked_example():
    costs = {"a": 10.0, "b": 1.0}
    stream, arrivals = ["a", "b", "a"], [0.0, 1.0, 2.0]
    took = [costs[value] for value in stream]
    assert completion(took, arrivals, [0, 1, 0], 2) == 29
    scheduler = pooled_that_knows(2, costs)
    chosen = scheduler.schedule(stream, arrivals).tolist()
    assert chosen == [0, 1, 1]
    assert completion(took, arrivals, chosen, 2) == 21


def makespan(costs, tasks):
    """The least over all schedules."""
    best = math.inf
    for chosen in itertools.product(range(tasks), repeat=len(costs)):
        loads = [0.0] * tasks
        for cost, task in zip(costs, chosen, strict=True):
            loads[task] += cost
        best = min(best, max(loads))
    return best


@given(st.lists(st.integers(1, 20), min_size=1, max_size=7), st.integers(1, 3))
def test_greedy_bound(costs, tasks):
    scheduler = pooled_that_knows(tasks, {cost: float(cost) for cost in range(1, 21)})
    loads = np.bincount(scheduler.schedule(costs, 0.0), costs, tasks)
    assert loads.max() <= (2 - 1 / tasks) * makespan(costs, tasks) + 1e-9


def test_greedy_bound_is_reached():
    """k - 1 times k ones and then one of k: (2 - 1/k), so the bound is no upper one by chance."""
    scheduler = pooled_that_knows(3, {1: 1.0, 3: 3.0})
    costs = [1] * 6 + [3]
    loads = np.bincount(scheduler.schedule(costs, 0.0), costs, 3)
    assert loads.max() / makespan(costs, 3) == pytest.approx(2 - 1 / 3)


def test_theorem_4_3():
    """Mean estimates of one row of 55 cells for 4,096 equally frequent items of times 1 to 64."""
    columns, n, tries = 55, 4096, effort(60)
    costs = np.repeat(np.arange(1.0, 65.0), n // 64)
    # E(W_v / C_v) as the theorem has it, with S the sum of all times.
    alone = columns / n * (1 - (1 - 1 / columns) ** n)
    expected = [
        (costs.sum() - w) / (n - 1)
        - columns * (costs.sum() - n * w) / (n * (n - 1)) * (1 - (1 - 1 / columns) ** n)
        for w in (1.0, 64.0)
    ]
    assert [round(value, 2) for value in expected] == [32.08, 32.92]
    assert alone == pytest.approx(columns / n)
    sums = np.zeros(64)
    over = 0.0
    for seed in range(tries):
        sketch = pr.CostSketch(0.05, 0.5, seed)
        assert (sketch.rows, sketch.columns) == (1, columns)
        sketch.observe(np.arange(n), costs)
        estimates = sketch.mean_time(np.arange(n))
        sums += estimates.reshape(64, 64).mean(axis=1)
        ten = pr.CostSketch(0.05, 2.0**-10, seed)
        ten.observe(np.arange(n), costs)
        assert ten.rows == 10
        over += (ten.mean_time(np.arange(n)) >= 48).mean()
    means = sums / tries
    assert (abs(means - np.linspace(*expected, 64)) < 0.25).all()
    assert over / tries <= (11 / 16) ** 10 <= 0.024


@pytest.mark.parametrize("mode", MODES)
def test_hostile_reports(mode):
    scheduler = Scheduler(2, mode)
    scheduler.schedule([1, 2, 3], 5.0)
    before = scheduler.to_bytes()
    other = MODES[1 - MODES.index(mode)]

    def report(task=0, **options):
        tracker = Tracker(task, 1, **{"mode": mode, **options})
        tracker.observe([1], [1.0], 0.0)
        return tracker.observe([1], [1.0], 0.0)

    with pytest.raises(ValueError, match="task: expected one of this scheduler, got 2"):
        scheduler.receive(report(2), 6.0)
    with pytest.raises(ValueError, match=f"report: expected one of mode {mode}, got {other}"):
        scheduler.receive(report(mode=other), 6.0)
    with pytest.raises(ValueError, match="now: expected a clock that does not go back, got 4"):
        scheduler.receive(report(), 4.0)
    for wrong in ({"epsilon": 0.1}, {"delta": 0.01}, {"seed": 1}):
        if mode == "posg":
            with pytest.raises(ValueError, match="report: expected a sketch of rows, columns"):
                scheduler.receive(report(**wrong), 6.0)
    with pytest.raises(TypeError, match="report: expected Report, got bytes"):
        scheduler.receive(report().to_bytes(), 6.0)
    for now, error in [
        (math.nan, "now: expected a finite time"),
        (math.inf, "now: expected a finite time"),
        (4.0, "now: expected a clock that does not go back"),
        ([6.0, 7.0], "now: expected one time or 3, got 2"),
        ([6.0, 7.0, 6.5], "now: expected a clock that does not go back"),
    ]:
        with pytest.raises(ValueError, match=error):
            scheduler.schedule([1, 2, 3], now)
    assert scheduler.to_bytes() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tasks": []}, "tasks: expected at least one, got none"),
        ({"tasks": 0}, "tasks: expected at least one task, got 0"),
        ({"tasks": [1, 1]}, "tasks: expected distinct ids, got 1 twice"),
        ({"tasks": [-1]}, "tasks: expected"),
        ({"mode": "other"}, "mode: expected posg or pooled, got other"),
        ({"epsilon": -1.0}, "epsilon: expected"),
        ({"delta": 1e-30}, "delta: expected at most 64 rows"),
        ({"mode": "pooled", "memory": 0.0}, "memory: expected"),
        ({"mode": "pooled", "resync": 0}, "resync: expected at least 1 in mode pooled"),
        ({"mode": "pooled", "latencies": {5: 1.0}}, "latencies: expected tasks of this"),
        ({"mode": "pooled", "latencies": {1: -1.0}}, "latencies: expected finite numbers"),
        ({"latencies": {1: 1.0}}, "latencies: expected none in mode posg"),
    ],
)
def test_bad_schedulers(options, error):
    with pytest.raises(ValueError, match=error):
        Scheduler(**{"tasks": 3, **options})


@pytest.mark.parametrize("mode", MODES)
def test_reports_out_of_order(mode):
    scheduler, tracker = Scheduler(1, mode), Tracker(0, 1, mode=mode)
    reports = [tracker.observe([1], [float(n)], float(n), Request(0, 0, 0, 0, 0)) for n in range(4)]
    assert scheduler.receive(reports[2], 9.0)
    before = scheduler.to_bytes()
    assert scheduler.receive(reports[1], 9.0) is False
    assert scheduler.receive(reports[2], 9.0) is False
    assert scheduler.to_bytes() == before
    assert scheduler.receive(reports[3], 9.0)
    # A tracker that was started again counts from 1.
    assert scheduler.receive(reports[0], 9.0)


def test_round_robin_until_every_sketch_is_there():
    scheduler = Scheduler([4, 2, 9])
    assert scheduler.schedule(range(7), 0.0).tolist() == [2, 4, 9, 2, 4, 9, 2]
    assert scheduler.requests == ()
    assert scheduler.tasks == (2, 4, 9)


def test_latency():
    """A task far away is taken when the near one is busy for longer than the way takes."""
    scheduler = Scheduler(2, "pooled", latencies={1: 25.0})
    tracker = Tracker(0, 1, mode="pooled")
    scheduler.receive(tracker.observe(["x"], [10.0], 0.0), 0.0)
    assert scheduler.schedule(["x"] * 6, 0.0).tolist() == [0, 0, 0, 1, 0, 1]


def test_sharing_schedulers_see_each_other():
    """What another scheduler sent shows in the answers."""
    mine, other = (Scheduler(2, "pooled", source=source) for source in (0, 1))
    tracker = Tracker(0, 1, mode="pooled")
    report = tracker.observe(["x"], [1.0], 0.0)
    for scheduler in mine, other:
        scheduler.receive(report, 0.0)
    # The other one has filled task 0; its records are done at 100, and then mine.
    mine.schedule(["x"], 0.0)
    [request] = mine.requests
    report = tracker.observe(["x"], [1.0], 101.0, request)
    for scheduler in mine, other:
        assert scheduler.receive(report, 101.0)
    assert mine.finishes[0] == 101.0
    assert other.finishes[0] == 0.0


def test_several_times_in_one_batch():
    one, two = (pooled_that_knows(3, {1: 1.0, 2: 5.0}) for _ in range(2))
    stream, arrivals = [1, 2, 2, 1, 2, 1, 1, 2], np.arange(8) * 1.5
    whole = one.schedule(stream, arrivals).tolist()
    each = [int(two.schedule([v], t)[0]) for v, t in zip(stream, arrivals.tolist(), strict=True)]
    assert whole == each
    assert one == two


def heterogeneous(speeds, change=None, records=6000, mode="pooled", seed=1):
    """Play a stream on tasks of these speeds; return the scheduler and where records went."""
    random_ = np.random.default_rng(seed)
    costs = random_.integers(1, 65, 200).astype(float)
    stream = np.minimum(random_.zipf(1.3, records) - 1, 199)
    n = len(speeds)
    scheduler = Scheduler(n, mode)
    trackers = [Tracker(task, 64, mode=mode) for task in range(n)]
    gap = costs[stream].mean() / sum(1 / s for s in speeds) * 1.05
    free, pending, done = [0.0] * n, [], np.zeros(records)
    tasks = np.zeros(records, int)
    for i, value in enumerate(stream.tolist()):
        now = i * gap
        pending.sort(key=lambda entry: entry[0])
        while pending and pending[0][0] <= now:
            finish, task, seen, time, request = pending.pop(0)
            report = trackers[task].observe([seen], [time], finish, request or ())
            if report is not None:
                scheduler.receive(report, max(finish, (i - 1) * gap))
        task = int(scheduler.schedule([value], now)[0])
        if change is not None and i == change[0]:
            speeds = change[1]
        time = costs[value] * speeds[task]
        free[task] = max(free[task], now) + time
        request = scheduler.requests[0] if scheduler.requests else None
        pending.append((free[task], task, value, time, request))
        tasks[i], done[i] = task, free[task] - now
    return scheduler, tasks, done


def test_speeds_are_learned():
    speeds = [0.5, 1.0, 2.0]
    scheduler, tasks, _ = heterogeneous(speeds)
    found = np.array(list(scheduler.speeds.values()))
    assert found / found[1] == pytest.approx(speeds, rel=0.1)
    shares = np.bincount(tasks[2000:], minlength=3) / len(tasks[2000:])
    assert shares[0] > 1.5 * shares[1] > 2 * shares[2]
    assert scheduler.resets == 0


def test_changed_speeds_are_learned_again():
    scheduler, _, _ = heterogeneous([1.0, 1.0, 1.0], change=(3000, [1.0, 1.3, 0.8]), records=6000)
    found = np.array(list(scheduler.speeds.values()))
    assert found / found[0] == pytest.approx([1.0, 1.3, 0.8], rel=0.1)


def test_changed_costs_reset():
    """The same values cost something else from one moment on."""
    scheduler, tracker = Scheduler(1, "pooled"), Tracker(0, 64, mode="pooled")
    chance = random.Random("changed costs")
    costs = [chance.choice([1.0, 5.0, 25.0]) for _ in range(40)]
    for n in range(6400):
        if n == 3200:
            chance.shuffle(costs)
        value = chance.randrange(40)
        report = tracker.observe([value], [costs[value]], float(n))
        if report:
            scheduler.receive(report, float(n))
        if n == 3199:
            assert scheduler.resets == 0
    assert scheduler.resets == 1
    estimates = scheduler.estimates(range(40), 0)
    assert estimates == pytest.approx(costs, rel=0.05)


@pytest.mark.parametrize("mode", MODES)
def test_bytes_mid_stream(mode):
    """A scheduler and trackers that are saved and read go on as if nothing had happened."""
    world = World(mode, [0, 1, 2], (0.05, 0.1), 1, 8)
    chance = random.Random(f"bytes {mode}")
    for n, _ in enumerate(drive(world, random_script(chance, effort(150)))):
        if n % 40 == 0:
            scheduler, twin = world.schedulers[0]
            copy = pickle.loads(pickle.dumps(scheduler))
            assert copy == scheduler
            assert copy.to_bytes() == scheduler.to_bytes()
            world.schedulers[0] = copy, twin
            for task, (tracker, tracker_twin) in world.trackers.items():
                same = Tracker.from_bytes(tracker.to_bytes())
                assert same == tracker
                world.trackers[task] = same, tracker_twin


def past_round_robin(mode):
    scheduler = Scheduler(5, mode, resync=40)
    stream = np.random.default_rng(4).integers(0, 300, 1500)
    for task in range(5):
        tracker = Tracker(task, 50, 0.9, mode=mode)
        scheduler.receive(tracker.observe(stream[:100], stream[:100] % 7 + 1.0, 1.0), 1.0)
    return scheduler, stream


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 7, 512, 513])
def test_splitting_a_batch_changes_nothing(mode, size):
    (whole, stream), (parts, _) = past_round_robin(mode), past_round_robin(mode)
    chosen = whole.schedule(stream, 2.0).tolist()
    asked = list(whole.requests)
    each, requests = [], []
    for begin in range(0, len(stream), size):
        each += parts.schedule(stream[begin : begin + size], 2.0).tolist()
        requests += [r._replace(position=r.position + begin) for r in parts.requests]
    assert chosen == each
    assert asked == requests
    assert whole == parts
    assert set(chosen) == set(range(5))


@pytest.mark.parametrize("mode", MODES)
def test_values_of_any_kind(mode):
    scheduler, stream = past_round_robin(mode)
    other, _ = past_round_robin(mode)
    assert scheduler.schedule(stream, 2.0).tolist() == other.schedule(stream.tolist(), 2).tolist()
    assert scheduler.schedule(["a", "b"], 2.0).dtype == np.int32
    assert scheduler.schedule([], 2.0).tolist() == []


# -- without reports


def known(rows=4000, seed=11, tasks=5):
    """A scheduler that begins with a sketch of an earlier run, its values, and their times."""
    chance = np.random.default_rng(seed)
    costs = chance.integers(1, 65, 300).astype(float)
    stream = np.minimum(chance.zipf(1.3, rows) - 1, 299)
    sketch = pr.CostSketch(0.001)
    sketch.observe(stream, costs[stream])
    return Scheduler.from_sketch(tasks, sketch), stream, costs


def test_from_sketch():
    scheduler, stream, costs = known()
    assert scheduler.state == "RUN"
    assert scheduler.estimates(stream, 3) == pytest.approx(costs[stream])
    tasks = scheduler.schedule(stream, 0.0)
    loads = np.bincount(tasks, costs[stream], 5)
    assert loads.max() - loads.min() <= costs.max()
    assert scheduler.requests  # reports may come and are used
    report = Tracker(2, 4, mode="pooled").observe([1, 1, 1, 1], [5.0] * 4, 1.0)
    assert scheduler.receive(report, 1.0)
    assert pickle.loads(pickle.dumps(scheduler)) == scheduler
    with pytest.raises(ValueError, match="expected one that observed records, got an empty"):
        Scheduler.from_sketch(2, pr.CostSketch())
    with pytest.raises(TypeError, match="sketch: expected CostSketch, got int"):
        Scheduler.from_sketch(2, 5)
    with pytest.raises(ValueError, match="tasks: expected"):
        Scheduler.from_sketch(0, pr.CostSketch())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 7, 513])
def test_offline(mode, size):
    """A pure function of the scheduler, the rotation and the records, however they are batched."""
    scheduler, stream = past_round_robin(mode)
    before = scheduler.to_bytes()
    whole = scheduler.offline(3).schedule(stream, 0.0).tolist()
    scheduler.schedule(stream[:200], 5.0)  # what it decides meanwhile changes nothing
    again = Scheduler.from_bytes(scheduler.offline(8).to_bytes())
    each = []
    for begin in range(0, len(stream), size):
        each += again.schedule(stream[begin : begin + size], 0.0).tolist()
        assert again.requests == ()
    assert each == whole
    assert again.state == "RUN"
    assert Scheduler.from_bytes(before).offline(3).schedule(stream, 0.0).tolist() == whole


@pytest.mark.parametrize("mode", MODES)
def test_offline_rotates(mode):
    """Where all records are alike every rotation is round robin from another task on."""
    scheduler = Scheduler([2, 4, 7], mode)
    for task in (2, 4, 7):
        tracker = Tracker(task, 8, 0.9, mode=mode)
        scheduler.receive(tracker.observe(["a"] * 16, [3.0] * 16, 1.0), 1.0)
    for rotation, turn in enumerate(([2, 4, 7], [4, 7, 2], [7, 2, 4])):
        for more in (0, 3, 3 * 10**9):
            chosen = scheduler.offline(rotation + more).schedule(["a"] * 3000, 0.0)
            assert chosen.tolist() == turn * 1000


def test_offline_keeps_speeds():
    """Tasks of different speeds are done at the same time."""
    scheduler, _, _ = heterogeneous([0.5, 1.0, 2.0])
    values = np.arange(7000) % 200
    chosen = scheduler.offline().schedule(values, 0.0)
    estimates = [scheduler.estimates(values, task) for task in range(3)]
    done = [estimates[task][chosen == task].sum() for task in range(3)]
    assert max(done) - min(done) <= max(each.max() for each in estimates)
    assert np.bincount(chosen)[0] > 1.5 * np.bincount(chosen)[2]


def test_offline_needs_reports():
    with pytest.raises(ValueError, match="that has received reports, got one in ROUND_ROBIN"):
        Scheduler(3).offline()
