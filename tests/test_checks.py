"""Checks that every kernel meets, one parametrised file for all of them."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr

pytestmark = pytest.mark.kernel

ROWS = 1500  # more than one block, less than a slow test
Columns = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Case:
    """One kernel: how it is made, the rows it is given, and what it is asked."""

    name: str
    make: Callable[[], Any]
    rows: Columns
    answers: Callable[[Any, Columns], list[np.ndarray]] = lambda _, __: []
    reports: Callable[[Any], object] = lambda _: None
    total: Callable[[Any], float] | None = None  # of a kernel that observes
    large: Columns = ()
    views: tuple[str, ...] = ()
    bytes_hold_all: bool = True  # else pickle alone does

    @property
    def observes(self) -> bool:
        return self.total is not None


def skewed(size: int, universe: int, seed: int) -> np.ndarray:
    return (universe * np.random.default_rng(seed).random(size) ** 3).astype(np.int64)


INTS = skewed(ROWS, 400, 1)
OTHERS = skewed(ROWS, 30, 2)
WEIGHTS = np.arange(ROWS) % 7
TIMES = np.random.default_rng(3).random(ROWS) * 1e3
NAMES = np.array([f"key {value}" for value in INTS.tolist()])
MANY = np.arange(1_000_000)


def top_keys(sketch: pr.SpaceSaving) -> object:
    top = sketch.top()
    return top.values, top.counts.tolist(), top.errors.tolist(), sketch.floor


def top_pairs(sketch: pr.PairSpaceSaving) -> object:
    top = sketch.top()
    return top.in_values, top.out_values, top.counts.tolist(), top.errors.tolist()


def snapshot_parts(snapshot: pr.Snapshot) -> object:
    parts = snapshot.ids, snapshot.costs, snapshot.state_sizes
    return snapshot.values, [part.tolist() for part in parts], snapshot.background


def interval_parts(stats: pr.KeyStats) -> object:
    """What closing an interval would give, without closing it."""
    copied = pr.KeyStats.from_bytes(stats.to_bytes())
    return snapshot_parts(copied.close_interval()), len(copied)


def key_stats() -> pr.KeyStats:
    stats = pr.KeyStats(3, 0.5)
    stats.observe(["early", "key 3"], [2.0, 3.0], [4, 5])
    stats.close_interval()
    return stats


def group_orders() -> pr.GroupOrders:
    router = pr.Router(2)
    reports = [
        pr.KeyGroups(pr.Snapshot(values, costs), router, task).report
        for task, values, costs in ((0, [2, 3, 5, 6, 7], [5, 4, 3, 2, 1]), (1, [0], [1]))
    ]
    return pr.plan_groups(reports, router).orders[0]


def grown_ring() -> pr.Ring:
    return pr.Ring(5, bits=10, salt=3).with_tasks([0, 2, 3, 4, 9, 11]).with_tasks({2: 1, 9: 2.5})


def labelled() -> pr.DynamicGrouping:
    return pr.DynamicGrouping.from_ratio({"a": 5, "b": 3, "c": 2}).reassign("a", to=["b", "c"])


def homes(home: Any, rows: Columns) -> list[np.ndarray]:
    return [home.homes(rows[0])]


def route(router: pr.Router, rows: Columns) -> list[np.ndarray]:
    return [router.route(*rows)]


CASES = [
    Case(
        "SpaceSaving",
        lambda: pr.SpaceSaving(40),
        (INTS, WEIGHTS),
        answers=lambda sketch, rows: [sketch.estimate(rows[0])],
        reports=top_keys,
        total=lambda sketch: sketch.total,
        large=(MANY, MANY % 5),
    ),
    Case(
        "SpaceSaving of names",
        lambda: pr.SpaceSaving(40),
        (NAMES,),
        answers=lambda sketch, rows: [sketch.estimate(rows[0])],
        reports=top_keys,
        total=lambda sketch: sketch.total,
    ),
    Case(
        "PairSpaceSaving",
        lambda: pr.PairSpaceSaving(40),
        (INTS, OTHERS, WEIGHTS),
        answers=lambda sketch, rows: [sketch.estimate(rows[0], rows[1])],
        reports=top_pairs,
        total=lambda sketch: sketch.total,
        large=(MANY, MANY % 5, MANY % 7),
    ),
    Case(
        "PairSpaceSaving of names",
        lambda: pr.PairSpaceSaving(40),
        (NAMES, OTHERS.astype(str)),
        answers=lambda sketch, rows: [sketch.estimate(rows[0], rows[1])],
        reports=top_pairs,
        total=lambda sketch: sketch.total,
    ),
    Case(
        "CostSketch",
        lambda: pr.CostSketch(seed=5),
        (INTS, TIMES),
        answers=lambda sketch, rows: [
            ask(rows[0]) for ask in (sketch.frequency, sketch.time, sketch.mean_time)
        ],
        reports=lambda sketch: (sketch.total_frequency, sketch.total_time),
        total=lambda sketch: sketch.total_frequency,
        large=(MANY, MANY / 4),
    ),
    Case(
        "KeyStats",
        lambda: pr.KeyStats(3),
        (INTS, TIMES, OTHERS),
        reports=interval_parts,
        total=lambda stats: pickle.loads(pickle.dumps(stats)).close_interval().costs.sum(),
        large=(MANY % 1000, MANY / 4, MANY),
    ),
    Case(
        "KeyStats of names",
        key_stats,
        (NAMES, TIMES, OTHERS),
        reports=interval_parts,
        total=lambda stats: pickle.loads(pickle.dumps(stats)).close_interval().costs.sum(),
    ),
    Case(
        "Snapshot",
        lambda: pr.Snapshot(range(50), TIMES[:50], INTS[:50], background={3: 1.5}, interval=4),
        (),
        reports=snapshot_parts,
        views=("ids", "costs", "state_sizes"),
    ),
    Case(
        "Snapshot of names",
        lambda: pr.Snapshot([("a", 1), ("b", None), (None, 2)], [3, 2, 1]),
        (),
        reports=snapshot_parts,
        views=("ids", "costs", "state_sizes"),
    ),
    Case(
        "GroupReport",
        lambda: pr.KeyGroups(pr.Snapshot(range(90), range(90)), pr.Router(1), 0).report,
        (),
        reports=repr,
    ),
    Case("GroupOrders", group_orders, (), reports=repr),
    Case(
        "Ring",
        lambda: pr.Ring({1: 1, 4: 2, 7: 0.5}, bits=12, salt=9),
        (INTS,),
        homes,
        lambda ring: (ring.owners.tolist(), ring.shares(), ring.fingerprint, ring.tasks),
        large=(MANY,),
        views=("owners",),
    ),
    Case(
        "Ring after with_tasks",
        grown_ring,
        (NAMES,),
        homes,
        lambda ring: (ring.owners.tolist(), ring.with_tasks([2, 3]).owners.tolist(), ring.weights),
        views=("owners",),
    ),
    Case(
        "DynamicGrouping",
        lambda: pr.DynamicGrouping.from_ratio([7, 3, 2]),
        (INTS,),
        lambda grouping, rows: [grouping.assign(rows[0])],
        lambda grouping: (grouping.owners.tolist(), grouping.shares(), grouping.fingerprint),
        large=(MANY,),
        views=("owners",),
    ),
    Case(
        "DynamicGrouping with labels",
        labelled,
        (INTS,),
        lambda grouping, rows: [grouping.assign(rows[0])],
        lambda grouping: (grouping.owners.tolist(), grouping.shares(), grouping.tasks),
        views=("owners",),
        bytes_hold_all=False,
    ),
    Case("SparkHash", lambda: pr.SparkHash(7), (INTS,), homes, large=(MANY,)),
    Case("StormHash", lambda: pr.StormHash(7, key_type="long"), (INTS,), homes, large=(MANY,)),
    Case("KafkaHash", lambda: pr.KafkaHash(7), (NAMES,), homes),
    Case("KafkaHash of long", lambda: pr.KafkaHash(7, "long"), (INTS,), homes, large=(MANY,)),
    Case("FlinkKeyGroup", lambda: pr.FlinkKeyGroup(7, 64), (NAMES,), homes),
    Case(
        "FlinkKeyGroup of long",
        lambda: pr.FlinkKeyGroup(7, key_type="long"),
        (INTS,),
        homes,
        large=(MANY,),
    ),
    Case(
        "Router",
        lambda: pr.Router(6, {n: n % 6 for n in range(0, 300, 7)}, version=3),
        (INTS,),
        route,
        lambda router: (dict(router.table), router.tasks, router.version, router.fingerprint),
        large=(MANY,),
    ),
    Case(
        "Router with splits",
        lambda: pr.Router(grown_ring(), {"key 3": 9}, {"key 0": [2, 9], "key 1": [9]}),
        (NAMES, OTHERS),
        route,
        lambda router: (dict(router.table), router.splits, router.to_json()),
    ),
    Case(
        "Router over an engine",
        lambda: pr.Router(pr.KafkaHash(4), {"key 3": 0}),
        (NAMES,),
        route,
        lambda router: (dict(router.table), router.to_json()),
    ),
]
BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES)


def cases(chosen: Iterable[Case] = CASES) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.name)


WITH_ROWS = [case for case in CASES if case.rows]
OBSERVING = [case for case in CASES if case.observes]
MERGING = [case for case in OBSERVING if "KeyStats" not in case.name]


def part_of(rows: Columns, part: slice) -> Columns:
    return tuple(column[part] for column in rows)


def after(case: Case, parts: Iterable[slice], kernel: Any = None) -> tuple[Any, list[list[Any]]]:
    """Give the parts to a kernel, a new one by default; return it with the answers for the rows."""
    kernel = case.make() if kernel is None else kernel
    answers: list[list[Any]] = []
    for part in parts:
        rows = part_of(case.rows, part)
        if case.observes:
            kernel.observe(*rows)
        else:
            answers.append(case.answers(kernel, rows))
    if case.observes or not case.rows:
        answers = [case.answers(kernel, case.rows)]
    joined = [np.concatenate(each).tolist() for each in zip(*answers, strict=True)]
    return kernel, joined


def assert_same(case: Case, left: Any, right: Any) -> None:
    assert left == right
    assert (left != right) is False
    assert left.to_bytes() == right.to_bytes()
    assert case.reports(left) == case.reports(right)


WHOLE = slice(None)
FIRST, SECOND = slice(0, 700), slice(700, None)


@cases(WITH_ROWS)
def test_a_batch_is_its_records_one_at_a_time(case):
    kernel, answers = after(case, [WHOLE])
    other, others = after(case, [slice(n, n + 1) for n in range(ROWS)])
    assert_same(case, kernel, other)
    assert answers == others


@cases(WITH_ROWS)
@given(cuts=st.lists(st.integers(0, ROWS), max_size=5).map(sorted))
def test_splitting_a_batch_changes_nothing(case, cuts):
    kernel, answers = after(case, [WHOLE])
    borders = [0, *cuts, ROWS]
    other, others = after(case, [slice(a, b) for a, b in pairwise(borders)])
    assert_same(case, kernel, other)
    assert answers == others


@cases()
def test_equal_input_gives_equal_output(case):
    kernel, answers = after(case, [FIRST, SECOND])
    other, others = after(case, [FIRST, SECOND])
    assert_same(case, kernel, other)
    assert answers == others
    assert repr(kernel) == repr(other)


@cases(WITH_ROWS)
def test_inputs_are_not_modified(case):
    before = [column.copy() for column in case.rows]
    after(case, [WHOLE])
    for column, old in zip(case.rows, before, strict=True):
        assert (column == old).all()
        column.flags.writeable = False
    after(case, [WHOLE])


@cases(WITH_ROWS)
def test_lists_and_strided_arrays_give_the_same(case):
    kernel, answers = after(case, [WHOLE])
    forms = [
        tuple(column.tolist() for column in case.rows),
        tuple(np.repeat(column, 2)[::2] for column in case.rows),
        tuple(column[::-1].copy()[::-1] for column in case.rows),
    ]
    for rows in forms:
        other = case.make()
        if case.observes:
            other.observe(*rows)
        assert_same(case, kernel, other)
        assert [answer.tolist() for answer in case.answers(other, rows)] == answers


@cases(WITH_ROWS)
def test_an_empty_batch_changes_nothing(case):
    nothing = part_of(case.rows, slice(0))
    for parts in [], [WHOLE]:
        kernel, _ = after(case, parts) if parts else (case.make(), None)
        before = kernel.to_bytes()
        for rows in nothing, tuple([] for _ in nothing):
            if case.observes:
                kernel.observe(*rows)
            for answer, full in zip(
                case.answers(kernel, rows), case.answers(kernel, case.rows), strict=True
            ):
                assert answer.shape == (0,)
                assert answer.dtype == full.dtype
        assert kernel.to_bytes() == before


@cases()
def test_copies_are_equal_and_apart(case):
    kernel, _ = after(case, [FIRST] if case.rows else [])
    before = kernel.to_bytes()
    copies = [pickle.loads(pickle.dumps(kernel, protocol)) for protocol in range(2, 6)]
    copies.append(copy.deepcopy(kernel))
    if case.bytes_hold_all:
        copies.append(type(kernel).from_bytes(before))
    for other in copies:
        assert type(other) is type(kernel)
        assert_same(case, kernel, other)
    for other in copies:
        after(case, [SECOND] if case.rows else [], other)
        assert kernel.to_bytes() == before
    for other in copies[1:]:
        assert_same(case, copies[0], other)


def exchange() -> None:
    """Run in another process: go on with the kernels that come, and make the same ones here."""
    received = pickle.load(sys.stdin.buffer)
    done = {}
    for name, kernel in received.items():
        case = BY_NAME[name]
        made, _ = after(case, [FIRST] if case.rows else [])
        same = made == kernel and made.to_bytes() == kernel.to_bytes()
        done[name] = same, made, *after(case, [SECOND] if case.rows else [], kernel)
    pickle.dump(done, sys.stdout.buffer)


def in_another_process(
    function: Callable[[], None], data: bytes = b"", **environment: str
) -> bytes:
    paths = [str(Path(__file__).parent), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    finished = subprocess.run(
        [sys.executable, "-c", f"import test_checks; test_checks.{function.__name__}()"],
        input=data,
        capture_output=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment},
    )
    assert finished.returncode == 0, finished.stderr.decode()
    return finished.stdout


@pytest.fixture(scope="module")
def from_another_process() -> dict[str, Any]:
    """Kernels back from a process with other hashes of Python and the portable path."""
    halfway = {case.name: after(case, [FIRST] if case.rows else [])[0] for case in CASES}
    data = in_another_process(
        exchange, pickle.dumps(halfway), PYTHONHASHSEED="12345", PYROUTE_SIMD="portable"
    )
    return pickle.loads(data)


@cases()
def test_pickling_in_another_process_changes_nothing(case, from_another_process):
    same_there, made_there, went_on_there, answers_there = from_another_process[case.name]
    halfway, _ = after(case, [FIRST] if case.rows else [])
    assert same_there
    assert_same(case, made_there, halfway)
    here, answers = after(case, [SECOND] if case.rows else [], halfway)
    assert_same(case, went_on_there, here)
    assert answers_there == answers
    again, answers_again = after(case, [SECOND] if case.rows else [], made_there)
    assert_same(case, again, here)
    assert answers_again == answers


@cases([case for case in CASES if case.views])
def test_views_are_read_only_and_keep_their_kernel(case):
    for name in case.views:
        kernel = case.make()
        view = getattr(kernel, name)
        expected = view.tolist()
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True
        del kernel
        gc.collect()
        rubbish = [case.make() for _ in range(10)]
        assert view.tolist() == expected
        del rubbish


def test_ids_of_keys_are_read_only():
    for keys in pr.keys([1, 2, 3]), pr.Keys.from_ids(np.arange(3, dtype=np.uint64)):
        with pytest.raises(ValueError, match="read-only"):
            keys.ids[0] = 1


@cases()
def test_repr_is_short(case):
    for parts in [], [WHOLE]:
        kernel, _ = after(case, parts if case.rows else []) if parts else (case.make(), None)
        text = repr(kernel)
        assert type(kernel).__name__ in text
        assert len(text) <= 200
        assert "\n" not in text
        assert " object at 0x" not in text


@cases()
def test_other_types_are_not_equal(case):
    kernel = case.make()
    others = [None, 1, "x", b"", object(), [], kernel.to_bytes(), type(kernel)]
    others += [other.make() for other in CASES if type(other.make()) is not type(kernel)]
    for other in others:
        assert (kernel == other) is False
        assert kernel != other
        assert (other == kernel) is False
        assert other != kernel
    assert kernel in [None, kernel]


@cases(OBSERVING)
def test_one_more_record_is_not_equal(case):
    kernel, _ = after(case, [WHOLE])
    other, _ = after(case, [WHOLE])
    other.observe(*part_of(case.rows, slice(1, 2)))
    assert kernel != other


@cases([case for case in CASES if case.large])
def test_another_thread_advances(case):
    """With switches forbidden, it can only do so while the call has let go of the GIL."""
    ticks, stop = [], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.0005)

    kernel, interval = case.make(), sys.getswitchinterval()
    thread = threading.Thread(target=tick)
    sys.setswitchinterval(100)
    try:
        thread.start()
        time.sleep(0.01)
        seen, until = 0, time.monotonic() + 20
        while seen < 3 and time.monotonic() < until:
            before = len(ticks)
            if case.observes:
                kernel.observe(*case.large)
            else:
                case.answers(kernel, case.large)
            seen += len(ticks) - before
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert seen >= 3


def run_threads(*functions: Callable[[], object]) -> None:
    errors = []

    def run(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[function]) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


@cases(OBSERVING)
def test_threads_observe_one_kernel_without_loss(case):
    rows = tuple(np.floor(c) if c.dtype == np.float64 else c for c in case.rows)
    expected, shared = case.make(), case.make()
    base = case.total(expected)
    expected.observe(*rows)
    once = case.total(expected) - base

    def observe() -> None:
        for _ in range(20):
            shared.observe(*rows)

    def read() -> None:
        for _ in range(20):
            repr(shared)
            case.answers(shared, rows)
            shared.to_bytes()
            assert shared == shared

    run_threads(observe, observe, read)
    assert case.total(shared) == base + 40 * once


@cases([case for case in WITH_ROWS if not case.observes])
def test_threads_read_one_kernel(case):
    kernel, answers = after(case, [WHOLE])
    found = []
    run_threads(*(lambda: found.append(after(case, [WHOLE], kernel)[1]) for _ in range(3)))
    assert found == [answers] * 3


@cases(MERGING)
def test_merging_with_itself_doubles(case):
    kernel, answers = after(case, [WHOLE])
    total = case.total(kernel)
    kernel.merge(kernel)
    assert case.total(kernel) == 2 * total
    if case.name.startswith("CostSketch"):
        frequency, time_, mean = case.answers(kernel, case.rows)
        assert frequency.tolist() == [2 * n for n in answers[0]]
        assert time_.tolist() == [2 * t for t in answers[1]]
        assert mean.tolist() == answers[2]


def race() -> None:
    """Run in another process, because a deadlock with the GIL held would stop this one."""
    for case in MERGING:
        left, right = (after(case, [FIRST])[0] for _ in range(2))

        def merge(into: Any, other: Any) -> None:
            for _ in range(8):
                into.merge(other)

        def merge_itself(kernel: Any) -> None:
            for _ in range(5):
                kernel.merge(kernel)

        def observe(kernel: Any, rows: Columns) -> None:
            for _ in range(10):
                kernel.observe(*rows)

        def compare(one: Any, other: Any) -> None:
            for _ in range(50):
                _ = one == other, one.to_bytes(), repr(other)

        rows = part_of(case.rows, SECOND)
        run_threads(
            lambda: merge(left, right),  # noqa: B023
            lambda: merge(right, left),  # noqa: B023
            lambda: merge_itself(left),  # noqa: B023
            lambda: observe(left, rows),  # noqa: B023
            lambda: observe(right, rows),  # noqa: B023
            lambda: compare(left, right),  # noqa: B023
            lambda: compare(right, left),  # noqa: B023
        )
    for case in OBSERVING:
        kernel, _ = after(case, [FIRST])
        if hasattr(kernel, "close_interval"):
            run_threads(
                lambda: [kernel.observe(*part_of(case.rows, FIRST)) for _ in range(20)],  # noqa: B023
                lambda: [kernel.close_interval() for _ in range(20)],  # noqa: B023
                lambda: [kernel.to_bytes() for _ in range(20)],  # noqa: B023
            )


def test_merging_both_ways_at_once_does_not_deadlock():
    in_another_process(race)
