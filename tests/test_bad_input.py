"""Bad input raises at once with name, expected, got, and nothing is half applied."""

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pytest

import pyroute as pr

pytestmark = pytest.mark.kernel

NAN, INF = float("nan"), float("inf")
ALIKE = "customer-0000042", "user-ofg)!'_qdXC"  # two texts of one id
LONG = 1500  # several blocks, with the fault in the last
MESSAGE = r"^\w+: expected .*, got "


def long(last: Any, first: Any = 1) -> list[Any]:
    return [first] * (LONG - 1) + [last]


# Constructors and pure functions ----------------------------------------------------------------

CAPACITIES = [(0, ValueError), (-1, ValueError), (2**28 + 1, ValueError), (2**70, ValueError)]
CAPACITIES += [(1.5, TypeError), ("10", TypeError), (True, TypeError), (None, TypeError)]

TASKS: list[tuple[Any, type[Exception]]] = [
    *((wrong, ValueError) for wrong in (0, -1, [], {}, (), np.array([], np.int32))),
    *((wrong, ValueError) for wrong in ([1, 1], [1, 2, 3, 2], [-1], [2**31], {-1: 1.0})),
    *((wrong, ValueError) for wrong in ({1: -1.0}, {1: NAN}, {1: INF}, {1: 0, 2: 0.0})),
    *((wrong, ValueError) for wrong in ([[1, 2]], 2**23)),
    *((wrong, TypeError) for wrong in (True, None, 1.5, "ab", b"ab", ["a"], [1.5], [None])),
    *((wrong, TypeError) for wrong in ({"a": 1}, {1: "x"}, {1: None}, {1.5: 1}, [1, "a"])),
]

MADE: list[tuple[Callable[[], object], type[Exception]]] = [
    *((lambda c=c: pr.SpaceSaving(c), error) for c, error in CAPACITIES),
    *((lambda c=c: pr.PairSpaceSaving(c), error) for c, error in CAPACITIES),
    *((lambda e=e: pr.CostSketch(e), ValueError) for e in (0, -0.1, 3.5, NAN, INF, 1e-12)),
    *((lambda d=d: pr.CostSketch(0.1, d), ValueError) for d in (0, 1, -0.5, 2, NAN, INF)),
    *((lambda s=s: pr.CostSketch(seed=s), ValueError) for s in (-1, 2**64)),
    *((lambda s=s: pr.CostSketch(seed=s), TypeError) for s in (1.5, "1", None)),
    *((lambda e=e: pr.CostSketch(e), TypeError) for e in ("x", None, [0.1])),
    *((lambda w=w: pr.KeyStats(w), ValueError) for w in (0, -1, 1001)),
    *((lambda w=w: pr.KeyStats(w), TypeError) for w in (1.5, "5", None)),
    *((lambda s=s: pr.KeyStats(5, s), ValueError) for s in (1.0, -0.1, NAN, INF)),
    *((lambda s=s: pr.KeyStats(5, s), TypeError) for s in ("x", None)),
    *((lambda t=t: pr.Ring(t), error) for t, error in TASKS),
    *((lambda t=t: pr.Ring(3).with_tasks(t), error) for t, error in TASKS),
    *((lambda b=b: pr.Ring(3, bits=b), ValueError) for b in (-1, 0, 2, 23, 2**40)),
    *((lambda b=b: pr.Ring(3, bits=b), TypeError) for b in (5.0, "5")),
    *((lambda r=r: pr.Ring(3, replicas=r), ValueError) for r in (-1, 0, 65537, 2**40)),
    *((lambda s=s: pr.Ring(3, salt=s), ValueError) for s in (-1, 2**64)),
    *((lambda s=s: pr.Ring(3, salt=s), TypeError) for s in (1.5, "1", None)),
    (lambda: pr.Ring(2, bits=3), ValueError),
    (lambda: pr.Ring(9, bits=6), ValueError),
    (lambda: pr.Ring(3, bits=4 + 1).with_tasks(5), ValueError),
    *(
        (lambda r=r: pr.DynamicGrouping.from_ratio(r), ValueError)
        for r in ([], {}, [0, 0], [-1, 2], [NAN], [INF, 1], {-1: 1}, {2**31: 1})
    ),
    *(
        (lambda r=r: pr.DynamicGrouping.from_ratio(r), TypeError)
        for r in (None, 3, ["x"], {0: "x"}, [[1]])
    ),
    *((lambda b=b: pr.DynamicGrouping.from_ratio([1], bits=b), ValueError) for b in (-1, 23)),
    *(
        (lambda i=i: pr.DynamicGrouping.from_identifiers(i, bits=3), ValueError)
        for i in ({}, {8: 0}, {-1: 0}, {0: -1})
    ),
    *(
        (lambda i=i: pr.DynamicGrouping.from_identifiers(i, bits=3), TypeError)
        for i in (None, {"a": 0}, {1.5: 0})
    ),
    *(
        (lambda a=a: pr.DynamicGrouping.init_shards(*a, bits=4), ValueError)
        for a in ((0, 1), (1, 0), (-1, 1), (3, -1), (5, 5))
    ),
    *(
        (lambda a=a: grouping().reassign(*a), ValueError)
        for a in ((7, 1), (0, 0), (0, []), (0, [0, 1]), (0, {1: -1}), (0, {1: 0}), (0, [1, 1]))
    ),
    *((lambda r=r: grouping().with_ratio(r), ValueError) for r in ([], [0], [NAN], [-1, 2])),
    *((lambda i=i: grouping().assign(i), TypeError) for i in ([1.5], ["a"], [None])),
    *((lambda i=i: grouping().assign(i), ValueError) for i in (5, None, [2**63], [[1]])),
    *((lambda n=n: pr.SparkHash(n), ValueError) for n in (0, -1, 2**31)),
    *((lambda n=n: pr.SparkHash(n), TypeError) for n in (1.5, "3", None, True)),
    *((lambda t=t: pr.SparkHash(3, t), ValueError) for t in ("long", "", "BIGINT?", [])),
    *((lambda t=t: pr.StormHash(3, t), ValueError) for t in ("bigint", "", [])),
    *((lambda t=t: pr.KafkaHash(3, t), ValueError) for t in ("bigint", "", ["string", "string"])),
    *((lambda t=t: pr.FlinkKeyGroup(3, 128, t), ValueError) for t in ("bigint", "", [])),
    *((lambda t=t: pr.SparkHash(3, t), TypeError) for t in (5, None, [5])),
    *((lambda m=m: pr.FlinkKeyGroup(3, m), ValueError) for m in (2, 0, -1, 32769)),
    (lambda: pr.SparkHash(3).homes(["a"]), TypeError),
    (lambda: pr.SparkHash(3, "string").homes([1]), TypeError),
    (lambda: pr.SparkHash(3, "int").homes(long(2**31)), ValueError),
    (lambda: pr.SparkHash(3, "tinyint").homes([-129]), ValueError),
    (lambda: pr.SparkHash(3, ("int", "string")).homes([1]), TypeError),
    (lambda: pr.SparkHash(3).homes([(1, 2)]), TypeError),
    (lambda: pr.SparkHash(3).homes(pr.Keys.from_ids(np.arange(3, dtype=np.uint64))), TypeError),
    (lambda: pr.StormHash(3).homes([b"a"]), TypeError),
    (lambda: pr.KafkaHash(3).homes(long(None, "a")), ValueError),
    (lambda: pr.FlinkKeyGroup(3).homes(long(None, "a")), ValueError),
    *((lambda h=h: pr.Router(h), ValueError) for h in (0, -1, 2**23)),
    *((lambda h=h: pr.Router(h), TypeError) for h in (None, "ring", [1, 2], True, 1.5)),
    *(
        (lambda t=t: pr.Router(3, t), ValueError)
        for t in (
            {"a": 3},
            {"a": -1},
            {"a": 2**31},
            (["a", "b"], [0]),
            (["a"], [0, 1]),
            (["a", "b", "a"], [0, 1, 0]),
            ([None, None], [0, 0]),
            dict.fromkeys(ALIKE, 0),
            dict(zip(range(LONG), long(9), strict=True)),
        )
    ),
    *(
        (lambda t=t: pr.Router(3, t), TypeError)
        for t in ({"a": 0, 1: 1}, {1.5: 0}, {"a": "b"}, {"a": 0.5}, {"a": None}, {True: 0, 5: 1}, 5)
    ),
    (lambda: pr.Router(pr.Ring([1, 5]), {"a": 0}), ValueError),
    (lambda: pr.Router(pr.KafkaHash(3), {"a": 3}), ValueError),
    *(
        (lambda s=s: pr.Router(3, {"t": 0}, s), ValueError)
        for s in (
            {"a": []},
            {"a": [3]},
            {"a": [0, 0]},
            {"a": [-1]},
            {"t": [0, 1]},
            {name: [0, 1] for name in ALIKE},
        )
    ),
    *(
        (lambda s=s: pr.Router(3, {"t": 0}, s), TypeError)
        for s in ({1: [0, 1]}, {"a": 0}, {"a": "01"}, {"a": [0.5]}, {"a": None}, [("a", [0])])
    ),
    (lambda: pr.Router(3, version=-1), ValueError),
    *((lambda v=v: pr.Router(3, version=v), TypeError) for v in (1.5, "1", None)),
    (lambda: splitting().route(["a"]), ValueError),
    (lambda: splitting().route_one("a"), ValueError),
    (lambda: splitting().route(["a"], [1, 2]), ValueError),
    (lambda: splitting().route(["a"], []), ValueError),
    (lambda: splitting().route(["a"], [1.5]), TypeError),
    (lambda: splitting().route(["a"], ["x"]), TypeError),
    (lambda: pr.Router(pr.SparkHash(3)).route(["a"]), TypeError),
    (lambda: pr.Router(pr.KafkaHash(3)).route([None]), ValueError),
]


def grouping() -> pr.DynamicGrouping:
    return pr.DynamicGrouping.from_ratio([1, 2], bits=4)


def splitting() -> pr.Router:
    return pr.Router(3, splits={"a": [0, 1]})


def described(make: Callable[[], object]) -> str:
    return f"line {make.__code__.co_firstlineno} {make.__defaults__ or ''}"[:70]


@pytest.mark.parametrize(("make", "error"), MADE, ids=[described(make) for make, _ in MADE])
def test_refused(make, error):
    with pytest.raises(error, match=MESSAGE):
        make()


# Values that no kernel takes ---------------------------------------------------------------------

VALUES: list[tuple[Any, type[Exception]]] = [
    (long("a"), TypeError),
    (long(True), TypeError),
    (long(1, True), TypeError),
    (long(b"a", "a"), TypeError),
    (long(1.5), TypeError),
    (long((1, 2)), TypeError),
    (long((1, 2), (1, 2, 3)), TypeError),
    (long((1, "a"), (1, 2)), TypeError),
    (long(date(2020, 1, 1)), TypeError),
    (long(object()), TypeError),
    (long([1]), TypeError),
    ([NAN], TypeError),
    (np.array([1.0]), TypeError),
    (np.array([1j]), TypeError),
    (np.array([1, 2], "timedelta64[s]"), TypeError),
    (np.array([1, 1.5], object), TypeError),
    ("abc", TypeError),
    (b"abc", TypeError),
    (5, TypeError),
    (None, TypeError),
    ({"a": 1}, TypeError),
    ({1, 2}, TypeError),
    (np.array([[1, 2]]), ValueError),
    (np.array(5), ValueError),
    (long(2**63), ValueError),
    (long(-(2**63) - 1), ValueError),
    (np.array(long(2**64 - 1), np.uint64), ValueError),
    (long("\ud800", "a"), ValueError),
    (np.array(["2020-01-01T00:00:00.000000001"], "datetime64[ns]"), ValueError),
]

TAKING_VALUES: dict[str, Callable[[Any], object]] = {
    "keys": lambda values: pr.keys(values),
    "SpaceSaving.estimate": lambda values: pr.SpaceSaving(3).estimate(values),
    "PairSpaceSaving.estimate, in": lambda values: pr.PairSpaceSaving(3).estimate(values, [1]),
    "PairSpaceSaving.estimate, out": lambda values: pr.PairSpaceSaving(3).estimate([1], values),
    "CostSketch.frequency": lambda values: pr.CostSketch().frequency(values),
    "CostSketch.time": lambda values: pr.CostSketch().time(values),
    "CostSketch.mean_time": lambda values: pr.CostSketch().mean_time(values),
    "Snapshot": lambda values: pr.Snapshot(values, [1.0]),
    "Ring.homes": lambda values: pr.Ring(3).homes(values),
    "SparkHash.homes": lambda values: pr.SparkHash(3).homes(values),
    "Router.route": lambda values: pr.Router(3).route(values),
    "Router, table": lambda values: pr.Router(3, (values, [0])),
}


@pytest.mark.parametrize("name", TAKING_VALUES)
@pytest.mark.parametrize(("values", "error"), VALUES, ids=range(len(VALUES)))
def test_values(name, values, error):
    with pytest.raises(error, match=MESSAGE):
        TAKING_VALUES[name](values)


ONE_VALUE = [1.5, NAN, object(), [1], (1, 2.5), 2**63, -(2**63) - 1, "\ud800", {}, 1j]


@pytest.mark.parametrize("value", ONE_VALUE, ids=range(len(ONE_VALUE)))
def test_one_value(value):
    router = pr.Router(3, {5: 1})
    with pytest.raises((TypeError, ValueError)) as batch:
        router.route([value])
    with pytest.raises(type(batch.value), match=MESSAGE):
        router.route_one(value)


# Kernels that change: nothing is half applied ----------------------------------------------------


def filled_space_saving() -> pr.SpaceSaving:
    sketch = pr.SpaceSaving(3)
    sketch.observe(np.arange(200) % 17)
    return sketch


def filled_pairs() -> pr.PairSpaceSaving:
    sketch = pr.PairSpaceSaving(3)
    sketch.observe(np.arange(200) % 17, np.arange(200) % 5)
    return sketch


def filled_cost_sketch() -> pr.CostSketch:
    sketch = pr.CostSketch()
    sketch.observe(np.arange(200) % 17, np.arange(200) / 8)
    return sketch


def filled_key_stats() -> pr.KeyStats:
    stats = pr.KeyStats()
    stats.observe(np.arange(20) % 17, np.arange(20) / 8, np.arange(20))
    stats.close_interval()
    stats.observe([3, 4])
    return stats


ONES = [1] * LONG
KINDS: list[Any] = [["a"], [b"a"], [True], [date(2020, 1, 1)], [(1, 2)]]  # integers came before
SIZES: list[tuple[Any, type[Exception]]] = [  # integers beside LONG values
    ([1], ValueError),
    ([], ValueError),
    ([1] * (LONG + 1), ValueError),
    (np.ones((LONG, 1), np.int64), ValueError),
    (long(-1), ValueError),
    (long(-(2**63)), ValueError),
    (np.array(long(2**63), np.uint64), ValueError),
    (long(1.5), TypeError),
    (long(NAN), TypeError),
    (long("x"), TypeError),
    (long(None), TypeError),
    (5, ValueError),
    ("x", ValueError),
]
COSTS: list[tuple[Any, type[Exception]]] = [  # numbers beside LONG values
    ([1], ValueError),
    ([], ValueError),
    ([1.0] * (LONG + 1), ValueError),
    (np.ones((LONG, 1)), ValueError),
    (long(-1e-9), ValueError),
    (long(NAN), ValueError),
    (long(INF), ValueError),
    (long(-INF), ValueError),
    (long("x"), TypeError),
    (long(None), TypeError),
    (long(1j), TypeError),
    (5.0, ValueError),
    ("x", ValueError),
]
FACTORS = [(-0.1, ValueError), (1.1, ValueError), (NAN, ValueError), (INF, ValueError)]
FACTORS += [("x", TypeError), (None, TypeError)]


def calls(method: str, arguments: list[tuple[tuple[Any, ...], type[Exception]]]) -> list[Any]:
    return [(lambda kernel, a=a: getattr(kernel, method)(*a), error) for a, error in arguments]


def counting(before: tuple[Any, ...]) -> list[Any]:
    """What both counting sketches refuse; `before` are the columns before the values."""
    return [
        *calls("observe", [((*before, values), error) for values, error in VALUES]),
        *calls("observe", [((*before, ONES, weights), error) for weights, error in SIZES]),
        *calls("observe", [((*before, ONES, long(2**63 - 1)), ValueError)]),
        *calls("observe", [((*before, ONES, [2**62] * LONG), ValueError)]),
        *calls("observe", [((*before, kind * LONG), TypeError) for kind in KINDS]),
        *calls("decay", [((factor,), error) for factor, error in FACTORS]),
        *calls("top", [((-1,), ValueError), ((1.5,), TypeError), (("x",), TypeError)]),
        *calls("merge", [((other,), TypeError) for other in (None, 1, "x", pr.CostSketch())]),
    ]


CHANGING: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "SpaceSaving": (
        filled_space_saving,
        [*counting(()), *calls("merge", [((pr.PairSpaceSaving(3),), TypeError)])],
    ),
    "PairSpaceSaving": (
        filled_pairs,
        [
            *counting((ONES,)),
            *calls("observe", [((values, ONES), error) for values, error in VALUES]),
            *calls("observe", [((kind * LONG, ONES), TypeError) for kind in KINDS]),
            *calls("observe", [((ONES, [1]), ValueError), (([1], ONES), ValueError)]),
            *calls("estimate", [((ONES, [1]), ValueError), (([1], ONES), ValueError)]),
            *calls("merge", [((pr.SpaceSaving(3),), TypeError)]),
        ],
    ),
    "CostSketch": (
        filled_cost_sketch,
        [
            *calls("observe", [((values, ONES), error) for values, error in VALUES]),
            *calls("observe", [((ONES, times), error) for times, error in COSTS]),
            *calls("decay", [((factor,), error) for factor, error in FACTORS]),
            *calls("merge", [((other,), TypeError) for other in (None, 1, pr.SpaceSaving(3))]),
            *calls(
                "merge",
                [
                    ((other,), ValueError)
                    for other in (
                        pr.CostSketch(seed=1),
                        pr.CostSketch(0.04),
                        pr.CostSketch(0.05, 0.2),
                    )
                ],
            ),
        ],
    ),
    "KeyStats": (
        filled_key_stats,
        [
            *calls("observe", [((values,), error) for values, error in VALUES]),
            *calls("observe", [((ONES, costs), error) for costs, error in COSTS]),
            *calls("observe", [((ONES, None, sizes), error) for sizes, error in SIZES]),
            *calls("observe", [((ONES, ONES, sizes), error) for sizes, error in SIZES]),
            *calls("observe", [((kind * LONG,), TypeError) for kind in KINDS]),
        ],
    ),
}


@pytest.mark.parametrize(
    ("make", "call", "error"),
    [
        pytest.param(make, call, error, id=f"{name} {n}")
        for name, (make, faults) in CHANGING.items()
        for n, (call, error) in enumerate(faults)
    ],
)
def test_state_is_unchanged(make, call, error):
    kernel = make()
    before = kernel.to_bytes()
    with pytest.raises(error, match=MESSAGE):
        call(kernel)
    assert kernel.to_bytes() == before


@pytest.mark.parametrize("make", [pr.SpaceSaving, pr.PairSpaceSaving])
def test_totals_that_overflow_do_not_merge(make):
    one, other = make(3), make(3)
    for sketch in one, other:
        sketch.observe(*[[1]] * (1 if make is pr.SpaceSaving else 2), weights=[2**62])
    before = one.to_bytes(), other.to_bytes()
    with pytest.raises(ValueError, match=MESSAGE):
        one.merge(other)
    with pytest.raises(ValueError, match=MESSAGE):
        one.merge(one)
    assert (one.to_bytes(), other.to_bytes()) == before


HUGE = 1.7e308


@pytest.mark.parametrize(
    ("make", "batches"),
    [
        (pr.CostSketch, [(["b", "a", "a"], [1.0, HUGE, HUGE])]),
        (pr.CostSketch, [(["a"], [HUGE]), (["b", "c"], [1.0, HUGE])]),
        (pr.KeyStats, [(["b", "a", "a"], [1.0, HUGE, HUGE])]),
        (pr.KeyStats, [(["a"], [HUGE]), (["b", "a"], [1.0, HUGE])]),
        (pr.KeyStats, [(["b", "a", "a"], None, [1, 2**63 - 1, 1])]),
        (pr.KeyStats, [(["a"], None, [2**63 - 1]), (["b", "a"], None, [1, 1])]),
    ],
)
def test_sums_that_overflow(make, batches):
    """They are refused, or kept so that they can be read back; they never turn negative."""
    kernel = make()
    for batch in batches:
        before = kernel.to_bytes()
        try:
            kernel.observe(*batch)
        except ValueError:
            assert kernel.to_bytes() == before
    assert make.from_bytes(kernel.to_bytes()) == kernel
    if make is pr.KeyStats:
        snapshot = kernel.close_interval()
        assert (snapshot.costs >= 0).all()
        assert (snapshot.state_sizes >= 0).all()
        assert pr.Snapshot.from_bytes(snapshot.to_bytes()) == snapshot


def test_state_sizes_that_overflow_over_the_window():
    stats = pr.KeyStats(window=2)
    stats.observe(["a"], state_sizes=[2**63 - 1])
    stats.close_interval()
    before = stats.to_bytes()
    try:
        stats.observe(["b", "a"], state_sizes=[1, 1])
    except ValueError:
        assert stats.to_bytes() == before
    snapshot = stats.close_interval()
    assert (snapshot.state_sizes >= 0).all()
    assert pr.Snapshot.from_bytes(snapshot.to_bytes()) == snapshot


KERNELS = [pr.SpaceSaving, pr.PairSpaceSaving, pr.CostSketch, pr.KeyStats, pr.Snapshot, pr.Ring]
KERNELS += [pr.DynamicGrouping, pr.SparkHash, pr.StormHash, pr.KafkaHash, pr.FlinkKeyGroup]
KERNELS += [pr.Router]


@pytest.mark.parametrize("kernel", KERNELS)
def test_bytes_of_a_wrong_type(kernel):
    for wrong in None, 5, "PYRT", [1, 2], np.arange(3.0):
        with pytest.raises(TypeError, match=MESSAGE):
            kernel.from_bytes(wrong)


@pytest.mark.parametrize("wrong", [None, 5, {}, []], ids=str)
def test_json_of_a_wrong_type(wrong):
    with pytest.raises(TypeError, match=MESSAGE):
        pr.Router.from_json(wrong)


def test_ids_of_a_wrong_type():
    for wrong in [1.5], ["a"], [None], np.arange(3, dtype=np.int32), None, 5.5:
        with pytest.raises((TypeError, ValueError), match=MESSAGE):
            pr.Keys.from_ids(wrong)
    with pytest.raises(ValueError, match=MESSAGE):
        pr.Keys.from_ids(np.zeros((2, 2), np.uint64))


def test_columns_of_different_length():
    with pytest.raises(ValueError, match=MESSAGE):
        pr.keys([1, 2], ["a"])
    with pytest.raises(TypeError, match=MESSAGE):
        pr.keys()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: pr.SpaceSaving(0), "capacity"),
        (lambda: pr.SpaceSaving(1).observe([1], [-1]), "weights"),
        (lambda: pr.SpaceSaving(1).observe([1, "a"]), "values"),
        (lambda: pr.PairSpaceSaving(1).observe([1.5], [1]), "in_values"),
        (lambda: pr.PairSpaceSaving(1).observe([1], [1.5]), "out_values"),
        (lambda: pr.SpaceSaving(1).decay(2.0), "factor"),
        (lambda: pr.CostSketch(epsilon=0), "epsilon"),
        (lambda: pr.CostSketch(delta=0), "delta"),
        (lambda: pr.CostSketch().observe([1], [NAN]), "times"),
        (lambda: pr.KeyStats(window=0), "window"),
        (lambda: pr.KeyStats(smoothing=1), "smoothing"),
        (lambda: pr.KeyStats().observe([1], [-1]), "costs"),
        (lambda: pr.KeyStats().observe([1], None, [-1]), "state_sizes"),
        (lambda: pr.Snapshot([1], [1], background={0: -1.0}), "background"),
        (lambda: pr.Ring([]), "tasks"),
        (lambda: pr.Ring([1, 1]), "tasks"),
        (lambda: pr.Ring(1, bits=1), "bits"),
        (lambda: pr.Ring(1, replicas=0), "replicas"),
        (lambda: pr.DynamicGrouping.from_ratio([]), "ratio"),
        (lambda: pr.Router(3, {"a": 7}), "table"),
        (lambda: pr.Router(3, None, {"a": [7]}), "splits"),
        (lambda: pr.Router(3, version=-1), "version"),
        (lambda: pr.SparkHash(3, "text"), "key_type"),
        (lambda: pr.FlinkKeyGroup(3, 2), "max_parallelism"),
    ],
)
def test_the_message_names_the_argument(call, name):
    with pytest.raises((TypeError, ValueError), match=rf"^{name}: expected .*, got "):
        call()


def test_the_message_says_what_came():
    with pytest.raises(ValueError, match=r"got 1 twice"):
        pr.Ring([0, 1, 2, 1])
    with pytest.raises(ValueError, match=r"got 7"):
        pr.Router(3, {"a": 7})
    with pytest.raises(ValueError, match=r"got -5"):
        pr.SpaceSaving(1).observe([1, 1], [1, -5])
