"""The arena: queues against a plain model, metrics, policies, and what a user may do wrong."""

import math
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyroute as pr
from effort import effort

numba = pytest.importorskip("numba", reason="numba (the extra arena)")
from pyroute.arena import Cluster, Trace, replay  # noqa: E402
from pyroute.policies import Compiled, Policy, Setting  # noqa: E402
from pyroute.posg import Scheduler, Tracker  # noqa: E402


def plain(trace, tasks, cluster):
    """Completion times from the definition of a queue: a record starts when its task is free."""
    at, speeds = cluster.changes()
    delays = np.broadcast_to(cluster.delays, cluster.tasks)
    free, out = [0.0] * cluster.tasks, []
    for record, task in enumerate(tasks):
        period = max(i for i, first in enumerate(at) if first <= record)
        begin = max(free[task], trace.arrivals[record] + delays[task])
        free[task] = begin + trace.costs[record] * speeds[period][task]
        out.append(free[task] - trace.arrivals[record])
    return out


class Given(Policy):
    """Tasks that a test has drawn."""

    name = "given"

    def __init__(self, tasks, every=None):
        self._given, self.every = np.array(tasks, np.int32), every

    def start(self):
        self._next = 0
        self.seen = []
        self.executed = []

    def route(self, records):
        self.seen.append((records.now.tolist(), records.lengths.tolist()))
        self._next += len(records)
        return self._given[self._next - len(records) : self._next]

    def done(self, records):
        self.executed += zip(records.finish.tolist(), records.tasks.tolist(), strict=True)


gaps = st.sampled_from([0.0, 0.25, 1.0, 5.0])
records = st.lists(
    st.tuples(st.integers(0, 2), gaps, st.sampled_from([0.0, 0.5, 1.0, 4.0]), st.integers(0, 4)),
    min_size=1,
    max_size=60,
)


def trace_of(drawn, **options):
    arrivals = np.cumsum([gap for _, gap, _, _ in drawn])
    costs = [cost for _, _, cost, _ in drawn]
    return Trace.of([key for _, _, _, key in drawn], costs, arrivals, **options)


@given(records, st.integers(1, 7), st.sampled_from([0.0, 0.5]))
@settings(max_examples=effort(60), deadline=None)
def test_completion_times(drawn, every, delay):
    cluster = Cluster(3, speeds={0: [1.0, 2.0, 0.5], 20: [3.0, 1.0, 1.0]}, delays=[0.0, delay, 1.0])
    tasks = [task for task, _, _, _ in drawn]
    trace = trace_of(drawn)
    policy = Given(tasks, every)
    [played] = replay(trace, policy, cluster)
    assert played.completion.tolist() == pytest.approx(plain(trace, tasks, cluster))
    assert played.tasks.tolist() == tasks
    finish = trace.arrivals + played.completion
    assert played.result.mean == pytest.approx(played.completion.mean())
    assert played.result.maximum == pytest.approx(played.completion.max())
    # Queue lengths are the true ones when a batch comes, and all that is told is told in order.
    for begin, (now, lengths) in zip(range(0, len(drawn), every), policy.seen, strict=True):
        waiting = finish[:begin] > now[0]
        assert lengths == np.bincount(np.array(tasks)[:begin][waiting], minlength=3).tolist()
    told = [end for end, _ in policy.executed]
    last = (len(drawn) - 1) // every * every
    assert told == sorted(finish[:last][finish[:last] <= trace.arrivals[last]].tolist())


class Shown(Compiled):
    """Writes down what it is shown."""

    name = "shown"

    def state(self):
        self.kept = np.zeros(3 * 60)
        return self.kept

    @staticmethod
    def choose(state, lengths, key, now, cost, record):
        for task in range(3):
            state[3 * record + task] = lengths[task]
        return record % 3


@given(records, st.sampled_from([0.0, 0.3, 2.0]))
@settings(max_examples=effort(40), deadline=None)
def test_lengths_are_as_old_as_said(drawn, age):
    trace = trace_of(drawn)
    policy = Shown()
    [played] = replay(trace, policy, Cluster(3, age=age))
    finish = trace.arrivals + played.completion
    kept = policy.kept[: 3 * len(trace)].reshape(-1, 3)
    for record, now in enumerate(trace.arrivals):
        then = now - age
        for task in range(3):
            earlier = np.flatnonzero(played.tasks[:record] == task)
            sent = earlier[trace.arrivals[earlier] <= then + 1e-12]
            waiting = sum(finish[sent] > then + 1e-12)
            assert kept[record, task] == waiting


def test_worked_example():
    trace = Trace.of(["a", "b", "a"], [10.0, 1.0, 10.0], [0.0, 1.0, 2.0])
    shuffle, full = replay(trace, ["shuffle", "full knowledge"], 2)
    assert shuffle.completion.sum() == 29
    assert full.completion.sum() == 21
    assert full.tasks.tolist() == [0, 1, 1]


def zipf_trace(records=6000, seed=1, percent=102, tasks=5, **options):
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, 1001)
    items = random.choice(1000, records, p=share / share.sum())
    costs = random.integers(1, 65, 1000).astype(float)
    return Trace.of(items, costs[items], **options).provisioned(percent, tasks)


def test_every_policy_plays():
    trace = zipf_trace(3000)
    results = replay(trace, list(pr.policies.ALL), Cluster(5, refresh=500.0))
    for played in results:
        result = played.result
        assert result.records == 3000
        assert set(played.tasks.tolist()) <= set(range(5))
        assert result.imbalance >= 1
        assert 1 <= result.replicas <= 5
        assert result.median <= result.p99 <= result.maximum
        # A record that waits for nothing takes its own cost.
        assert played.completion.min() >= trace.costs.min()
    assert len({played.result.policy for played in results}) == len(pr.policies.ALL)


@pytest.mark.parametrize("name", list(pr.policies.ALL))
def test_equal_input_gives_equal_output(name):
    trace = zipf_trace(1500)
    one, two = (replay(trace, name, 5, seed=3)[0] for _ in range(2))
    assert one.tasks.tolist() == two.tasks.tolist()
    assert one.completion.tolist() == two.completion.tolist()


def test_order_of_policies():
    """What should be better is better, on streams that no parameter was chosen on."""
    means = {}
    for seed in range(100, 104):
        for played in replay(
            zipf_trace(16_000, seed),
            ["shuffle", "pooled", "join shortest queue", "full knowledge"],
            5,
        ):
            means.setdefault(played.result.policy, []).append(played.result.mean)
    shuffle, pooled, shortest, full = (np.mean(values) for values in means.values())
    assert full < shortest < shuffle
    assert full < pooled
    assert (shuffle - pooled) / (shuffle - full) >= 2 / 3


def test_full_knowledge_is_greedy_with_exact_times():
    trace, speeds = zipf_trace(2000), {0: [1.0, 2.0, 0.5], 1000: [0.5, 1.0, 2.0]}
    [played] = replay(trace, "full knowledge", Cluster(3, speeds=speeds, delays=[0.0, 3.0, 1.0]))
    free, delays = [0.0] * 3, [0.0, 3.0, 1.0]
    for record in range(2000):
        now = trace.arrivals[record]
        ends = [
            max(free[task], now + delays[task])
            + trace.costs[record] * speeds[1000 if record >= 1000 else 0][task]
            for task in range(3)
        ]
        assert played.tasks[record] == int(np.argmin(ends))
        free[int(np.argmin(ends))] = min(ends)


@pytest.mark.parametrize("mode", ["posg", "pooled"])
@pytest.mark.parametrize("delay", [0.0, 40.0])
def test_closed_loop_is_its_parts(mode, delay):
    """The native loop against trackers and a scheduler joined by hand."""
    trace, tasks = zipf_trace(4000), 3
    trace = trace.provisioned(105, tasks)
    options = {"window": 64, "tolerance": 0.3}
    policy = pr.policies.ALL["POSG" if mode == "posg" else "pooled"](delay=delay, **options)
    [played] = replay(trace, policy, tasks)

    scheduler = Scheduler(tasks, mode)
    trackers = [Tracker(task, mode=mode, **options) for task in range(tasks)]
    free, pending, under_way, chosen, messages = [0.0] * tasks, [], [], [], 0
    for key, now, cost in zip(trace.ids, trace.arrivals, trace.costs, strict=True):
        pending.sort(key=lambda entry: entry[:2])
        while pending and pending[0][0] <= now:
            finish, task, seen, time, asked = pending.pop(0)
            value = pr.Keys.from_ids(np.array([seen], np.uint64))
            report = trackers[task].observe(value, [time], finish, asked)
            if report is not None:
                messages += 1
                under_way.append((finish + delay, messages, report))
        while under_way and under_way[0][0] <= now:
            at, _, report = under_way.pop(0)
            scheduler.receive(report, at)
        [task] = scheduler.schedule(pr.Keys.from_ids(np.array([key], np.uint64)), now).tolist()
        free[task] = max(free[task], now) + cost
        pending.append((free[task], task, key, cost, list(scheduler.requests)))
        chosen.append(task)
    assert played.tasks.tolist() == chosen
    assert played.policy.scheduler.finishes == scheduler.finishes
    assert played.policy.scheduler.state == scheduler.state == "RUN"
    rest = sum(
        1
        for finish, task, seen, time, asked in sorted(pending, key=lambda entry: entry[:2])
        if trackers[task].observe(
            pr.Keys.from_ids(np.array([seen], np.uint64)), [time], finish, asked
        )
        is not None
    )
    assert played.result.messages == messages + rest
    assert played.result.message_bytes > 0


def test_a_policy_of_ones_own_in_python():
    class Odd(Policy):
        name = "odd"

        def route(self, records):
            return (records.ids % 2).astype(np.int32) * (self.tasks - 1)

    trace = zipf_trace(1000)
    [played] = replay(trace, Odd(), 4)
    assert played.tasks.tolist() == (trace.ids % 2 * 3).tolist()


def test_a_policy_of_ones_own_in_numba():
    class Last(Compiled):
        name = "the task that was done last"

        def state(self):
            return np.zeros(1)

        @staticmethod
        def choose(state, lengths, key, now, cost, record):
            return int(state[0])

        @staticmethod
        def noted(state, task, key, time, now):
            state[0] = (task + 1) % 3

    [played] = replay(zipf_trace(1000), Last(), 3)
    assert set(played.tasks.tolist()) == {0, 1, 2}
    by_itself = Last()
    by_itself.begin(Setting(3))
    assert by_itself.route(pr.policies.records([1, 2], tasks=3)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("tasks", "error"),
    [([0, 3, 0], "given: expected tasks below 3, got 3"), ([0], "given: expected 3 tasks, got 1")],
)
def test_wrong_policies(tasks, error):
    trace = Trace.of([1, 2, 3], [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=error):
        replay(trace, Given(tasks), 3)


def test_timeouts_throughput_and_progress():
    trace = Trace.of([1, 1, 1], [4.0, 4.0, 4.0], [0.0, 0.0, 2.0])
    shown = []
    [played] = replay(
        trace, "shuffle", Cluster(1, timeout=7.0), progress=lambda *each: shown.append(each)
    )
    assert played.completion.tolist() == [4, 8, 10]
    assert played.result.failed == 2
    assert played.result.throughput == 3 / 12
    assert shown == [("shuffle", 3, 3)]
    assert played.windows(2)["max"].tolist() == [8]


def test_plans_are_made_from_the_interval_before():
    """Keys that hashing puts together are apart from the second interval on."""
    home = pr.Ring(2)
    together = [value for value in range(100) if home.homes([value])[0] == 0][:2]
    trace = Trace.of(together * 100, [1.0] * 200, np.arange(200) * 2.0, sizes=[1] * 200)
    [played] = replay(trace, "Mixed", Cluster(2, interval=50))
    assert set(played.tasks[:50].tolist()) == {0}
    assert set(played.tasks[50:].tolist()) == {0, 1}
    assert played.result.migrations == 1
    assert played.result.migrated_bytes == 25


class Split(Given):
    name = "split"
    splits = True


class Moving(Given):
    name = "moving"
    keyed = True


def test_merges():
    """Each task but the first that holds a key in an interval costs a merge."""
    trace = Trace.of(["a", "a", "a", "b", "a", "a"], [1.0] * 6, np.arange(6) * 100.0)
    tasks = [0, 1, 1, 0, 1, 0]
    [played] = replay(trace, Split(tasks), Cluster(2, merge=0.5, interval=4))
    assert played.completion.tolist() == [1, 1.5, 1, 1, 1, 1.5]
    assert played.result.merges == 2
    assert played.result.replicas == 1.5
    [free] = replay(trace, Split(tasks), Cluster(2, interval=4))
    assert free.completion.tolist() == [1] * 6


def test_migrations():
    """A key that changes its task waits for its state, and others do not."""
    trace = Trace.of(["a", "a", "b", "a", "b"], [1.0] * 5, np.arange(5) * 100.0, sizes=[10] * 5)
    [played] = replay(trace, Moving([0, 0, 0, 1, 0]), Cluster(2, bandwidth=2.0))
    assert played.completion.tolist() == [1, 1, 1, 11, 1]
    assert (played.result.migrations, played.result.migrated_bytes) == (1, 20)


def test_locality():
    trace = Trace.of([1] * 4, [1.0] * 4, sources=[0, 0, 1, 7])
    shuffle, local = replay(trace, ["shuffle", "local-or-shuffle"], Cluster(2, servers=[0, 1]))
    assert shuffle.result.locality == 0.25
    assert local.tasks.tolist()[:3] == [0, 0, 1]
    assert local.result.locality == 0.75
    assert replay(zipf_trace(10), "shuffle", 2)[0].result.locality is None


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Trace.of([1, 2], [1.0]), "costs: expected 2 of them, got 1"),
        (lambda: Trace.of([1], [-1.0]), "costs: expected finite numbers >= 0"),
        (lambda: Trace.of([1], [math.nan]), "costs: expected finite numbers >= 0"),
        (lambda: Trace.of([1, 2], [1.0, 1.0], [1.0, 0.0]), "arrivals: expected finite times"),
        (lambda: replay(zipf_trace(5), "shuffle", 0), "tasks: expected at least one"),
        (lambda: replay(zipf_trace(5), "nonsense", 2), "policy: expected one of hash"),
        (lambda: replay(Trace.of([], []), "shuffle", 2), "trace: expected records, got none"),
        (lambda: replay(zipf_trace(5), "shuffle", Cluster(2, speeds=[1.0])), "speeds: expected 2"),
        (
            lambda: replay(zipf_trace(5), "shuffle", Cluster(2, speeds=[1.0, 0.0])),
            "speeds: expected finite numbers above 0",
        ),
        (lambda: replay(zipf_trace(5), "shuffle", Cluster(2, delays=-1.0)), "delays: expected"),
    ],
)
def test_bad_input(make, error):
    with pytest.raises(ValueError, match=error):
        make()


def test_reads_parquet_and_arrow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table(
        {"op": ["a", "b", "a", "c"], "us": [10.0, 20.0, 30.0, 40.0], "ts": [1, 2, 2, 5]}
    )
    path = tmp_path / "spans.parquet"
    pq.write_table(table, path)
    columns = {"key": "op", "cost": "us", "arrival": "ts", "unit": 10.0}
    expected = Trace.of(["a", "b", "a", "c"], [1.0, 2.0, 3.0, 4.0], [1, 2, 2, 5])
    halves = (table.slice(begin, 2).combine_chunks() for begin in (0, 2))
    for source in path, str(path), table, table.to_batches(), halves:
        trace = Trace.read(source, **columns)
        for name in ("ids", "costs", "arrivals"):
            assert getattr(trace, name).tolist() == getattr(expected, name).tolist()
    assert Trace.read(path, **columns).name == "spans"
    assert len(Trace.read(path, limit=3, **columns)) == 3
    with pytest.raises(ValueError, match="column: expected one of op, us, ts, got nothing"):
        Trace.read(path, key="nothing", cost="us")


def test_provisioning():
    trace = zipf_trace(1000, percent=105, tasks=4)
    capacity = 4 * (trace.arrivals[1] - trace.arrivals[0]) / trace.costs.mean()
    assert capacity == pytest.approx(1.05)
    bursty = Trace.of(range(100), [2.0] * 100, np.arange(100) ** 2)
    assert bursty.stretched(110, 4).arrivals[-1] == pytest.approx(200 / 4 * 1.1)
    assert len(bursty[:10]) == 10


# -- the command


@pytest.fixture
def command(capsys):
    """Call it as `pyroute` would, without an installed entry point."""
    pytest.importorskip("typer")
    from pyroute.arena.command import arena
    from pyroute.cli.commands import of_function

    def call(*arguments):
        try:
            of_function("arena", arena).main([str(each) for each in arguments], "pyroute arena")
        except SystemExit as end:
            return end.code or 0, *capsys.readouterr()
        return 0, *capsys.readouterr()

    return call


def test_command_prints_a_table(tmp_path, command):
    plot = tmp_path / "plot.svg"
    code, out, _ = command(
        "--limit", 3000, "--policy", "shuffle", "--policy", "pooled", "--plot", plot
    )
    assert code == 0
    assert "generated: 3,000 records of" in out
    names = ("pooled", "shuffle", "full")
    order = [line.split("  ")[0] for line in out.splitlines() if line.strip().startswith(names)]
    assert [name.strip() for name in order] == ["full knowledge", "pooled", "shuffle"]
    text = plot.read_text()
    assert text.count("<polyline") == 3
    import xml.etree.ElementTree as ET

    ET.fromstring(text)


STOPPED = """
import sys
from pyroute.arena import command
play = command.replay
def told(*rest, progress, **named):
    def shown(*now):
        print("playing", flush=True)
        progress(*now)
    return play(*rest, progress=shown, **named)
command.replay, sys.argv[0] = told, "pyroute"
from pyroute.cli import main
main()
"""


def test_ctrl_c_leaves_nothing(tmp_path, command):
    words = ("arena", "--limit", "2000000", "--policy", "all", "--plot", "times.svg")
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "playing\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
    assert process.returncode == 2, err
    assert set(out.splitlines()) <= {"playing"}
    assert err == "pyroute arena: stopped; nothing is half written: run it again\n"
    assert not list(tmp_path.iterdir())


def test_command_gives_json(tmp_path, command):
    import json

    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "spans.parquet"
    values, costs = pr.workloads.timed_items(2000, items=50)
    pq.write_table(pa.table({"op": values, "us": costs, "at": np.arange(2000) * 5.0}), path)
    columns = ("--key", "op", "--cost", "us", "--arrival", "at", "--policy", "all", "--json")
    code, out, _ = command(path, *columns, "--speed", 1, "--speed", 2, "--tasks", 2)
    assert code == 0
    document = json.loads(out)
    assert document["trace"] == {
        "name": "spans",
        "records": 2000,
        "keys": len(set(values.tolist())),
    }
    assert [each["policy"] for each in document["results"]] == list(pr.policies.ALL)


def test_command_reads_what_analyze_reads(tmp_path, command):
    """Every format, several files, and keys as text: the same records, the same results."""
    import importlib
    import json

    pa = pytest.importorskip("pyarrow")
    csv = importlib.import_module("pyarrow.csv")
    parquet = importlib.import_module("pyarrow.parquet")
    values, costs = pr.workloads.timed_items(2000, items=50)
    table = pa.table({"op": values, "us": costs, "at": np.arange(2000) * 5.0})
    (tmp_path / "halves").mkdir()
    for half in (0, 1):
        parquet.write_table(table.slice(1000 * half, 1000), tmp_path / f"halves/{half}.parquet")
    csv.write_csv(table, tmp_path / "spans.csv", csv.WriteOptions(delimiter=";"))
    lines = "".join(f"{json.dumps(row)}\n" for row in table.to_pylist())
    (tmp_path / "spans.jsonl").write_text(lines)
    with pa.ipc.new_stream(tmp_path / "spans.arrows", table.schema) as to:
        to.write_table(table)
    parquet.write_table(table, tmp_path / "spans.parquet")
    columns = ("--key", "op", "--cost", "us", "--arrival", "at", "--policy", "POSG", "--json")
    found = {}
    for name, *more in (
        ("spans.parquet",),
        ("halves",),
        ("halves/*.parquet",),
        ("spans.csv", "--delimiter", ";"),
        ("spans.jsonl",),
        ("spans.arrows",),
    ):
        code, out, err = command(tmp_path / name, *more, *columns)
        assert (code, err) == (0, "")
        document = json.loads(out)
        assert (document["trace"]["records"], document["trace"]["keys"]) == (
            2000,
            len(set(values.tolist())),
        )
        found[name] = [
            {k: v for k, v in one.items() if k not in ("rate", "decision_ns")}
            for one in document["results"]
        ]
    assert all(one == found["spans.parquet"] for one in found.values())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--policy", "nonsense"], "policy: expected one of hash"),
        (["--key", "x"], "--key: expected a FILE with it, got none"),
        (["nowhere.parquet"], "--key and --cost: expected both with a FILE"),
        (["nowhere.parquet", "--key", "a", "--cost", "b"], "nowhere.parquet"),
        (["--speed", "1"], "speeds: expected 5 numbers"),
    ],
)
def test_command_says_what_is_wrong(arguments, error, command):
    code, out, wrong = command(*arguments)
    assert (code, out) == (2, "")
    assert error in wrong
    assert len(wrong.strip().splitlines()) == 1
