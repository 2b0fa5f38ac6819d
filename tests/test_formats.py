"""Bytes and JSON: golden files of every kernel, and hostile input that decodes or is refused.

``PYROUTE_WRITE_GOLDEN=1 python tests/test_formats.py`` writes the golden files that are missing; a
file that exists is never written again, because deployed data must stay readable.
"""

import copy
import json
import os
import random
import resource
import struct
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyroute as pr
from effort import effort
from pyroute.control import Predictor
from reference.keys import hash_bytes

pytestmark = pytest.mark.kernel

GOLDEN = Path(__file__).parent / "golden" / "bytes"
VERSION = 1
MUTATIONS = 100_000
SANITIZED = "PYROUTE_SANITIZE" in os.environ


def space_saving(values: Any, weights: Any = None, capacity: int = 3) -> pr.SpaceSaving:
    sketch = pr.SpaceSaving(capacity)
    sketch.observe(values, weights)
    return sketch


def pair_space_saving(ins: Any, outs: Any) -> pr.PairSpaceSaving:
    sketch = pr.PairSpaceSaving(4)
    sketch.observe(ins, outs)
    return sketch


def cost_sketch(epsilon: float, delta: float) -> pr.CostSketch:
    sketch = pr.CostSketch(epsilon, delta, seed=7)
    sketch.observe(["a", "b", "a"], [1.5, 0.25, 3.0])
    return sketch


def key_stats(*intervals: list[Any]) -> pr.KeyStats:
    stats = pr.KeyStats(window=3, smoothing=0.25)
    for values in intervals:
        stats.observe(values, np.arange(len(values)) / 4, np.arange(len(values)) * 100)
        stats.close_interval()
    stats.observe(intervals[0])
    return stats


def ring() -> pr.Ring:
    return pr.Ring({1: 1.0, 4: 2.5}, bits=5, replicas=8, salt=9)


def groups(task: int = 0) -> pr.KeyGroups:
    router = pr.Router(2)
    mine = [value for value in range(40) if router.route_one(value) == task]
    return pr.KeyGroups(pr.Snapshot(mine, [1.5 * value for value in mine], mine), router, task)


def reports() -> list[pr.GroupReport]:
    return [groups(task).report for task in (0, 1)]


def tracked(mode: str, records: int, asks: bool = True) -> tuple[pr.posg.Tracker, Any]:
    """A tracker, and its last report."""
    tracker = pr.posg.Tracker(5, 4, epsilon=1.0, delta=0.3, seed=7, mode=mode)
    last = None
    for n in range(records):
        asked = [pr.posg.Request(3, 5, 2, n, 0)] if asks and n % 3 == 2 else []
        last = tracker.observe([n % 3], [1.5 * (n % 3)], n / 4, asked) or last
    return tracker, last


def scheduler(mode: str, records: int, **options: Any) -> pr.posg.Scheduler:
    if mode == "pooled":
        options["latencies"] = {5: 0.25}
    made = pr.posg.Scheduler([5, 0], mode, 1.0, 0.3, 7, source=3, resync=6, **options)
    trackers = {t: pr.posg.Tracker(t, 4, 0.5, 1.0, 0.3, 7, mode=mode) for t in (0, 5)}
    for n in range(records):
        [task] = made.schedule([n % 3], n / 4).tolist()
        report = trackers[task].observe([n % 3], [1.0 + n % 3], n / 4 + 0.125, made.requests)
        if report is not None:
            made.receive(report, n / 4 + 0.125)
    return made


def predictor(count: int, scales: int, **sizes: Any) -> Predictor:
    return Predictor.make(
        {"step": 0.5, "low": -4.0, "high": 4.0, **sizes},
        names=["cpu", "rate", "naïve"][: sizes.get("machine", 0) + sizes.get("features", 1)],
        scales=[(n % 2 == 0, 1.0 + n, -0.5 * n, 2.0) for n in range(scales)],
        weights=np.arange(count) % 7 / 8 - 0.25,
    )


EXAMPLES: dict[str, Callable[[], Any]] = {
    "space_saving": lambda: space_saving(np.arange(60) ** 2 % 17, np.arange(60) % 5),
    "space_saving_empty": lambda: pr.SpaceSaving(1),
    "space_saving_names": lambda: space_saving([*"abracadabra", None, "żółw"]),
    "space_saving_wide": lambda: space_saving(np.arange(60) % 17, np.arange(60) << 40),
    "pair_space_saving": lambda: pair_space_saving(np.arange(40) % 7, np.arange(40) % 3),
    "pair_space_saving_names": lambda: pair_space_saving([*"abcab"], [("x", n) for n in range(5)]),
    "cost_sketch": lambda: cost_sketch(1.0, 0.3),
    "cost_sketch_one_cell": lambda: cost_sketch(3.0, 0.9),
    "key_stats": lambda: key_stats([1, 2, 3, 1], [2, 7]),
    "key_stats_names": lambda: key_stats([b"a", b"", b"a"], [b"c", None]),
    "snapshot": lambda: pr.Snapshot([5, 3], [1.5, 0], [10, 0], background={2: 7.5}, interval=9),
    "snapshot_names": lambda: pr.Snapshot([("a", date(2020, 2, 29)), (None, None)], [3, 4]),
    "ring": ring,
    "ring_with_tasks": lambda: ring().with_tasks([1, 2, 3]).with_tasks({3: 1, 5: 1.5}),
    "dynamic_grouping": lambda: pr.DynamicGrouping.from_ratio([7, 3, 2], bits=5),
    "dynamic_grouping_runs": lambda: pr.DynamicGrouping.from_identifiers(
        {3: 2**31 - 1, 7: 0, 0: 5}, bits=6
    ),
    "spark_hash": lambda: pr.SparkHash(8, key_type=("bigint", "string")),
    "storm_hash": lambda: pr.StormHash(5),
    "kafka_hash": lambda: pr.KafkaHash(3, serializer="bytes"),
    "flink_key_group": lambda: pr.FlinkKeyGroup(3, max_parallelism=64, key_type="int"),
    "group_report": lambda: groups().report,
    "group_report_empty": lambda: pr.KeyGroups(pr.Snapshot([], []), pr.Router(3), 2).report,
    "group_orders": lambda: pr.plan_groups(reports(), pr.Router(2), max_imbalance=0).orders[0],
    "report_posg": lambda: tracked("posg", 8)[1],
    "report_pooled": lambda: tracked("pooled", 8)[1],
    "tracker_posg": lambda: tracked("posg", 7)[0],
    "tracker_pooled": lambda: tracked("pooled", 7)[0],
    "scheduler_new": lambda: pr.posg.Scheduler(2),
    "scheduler_posg": lambda: scheduler("posg", 40),
    "scheduler_pooled": lambda: scheduler("pooled", 40),
    "scheduler_quiet": lambda: scheduler("pooled", 9, prompt=False),
    "predictor": lambda: predictor(
        52, 2, window=3, machine=1, layers2=1, hidden2=1, skip=True, relative=True, members=2
    ),
    "predictor_flat": lambda: predictor(
        19, 3, window=2, machine=1, workers=2, layers1=1, hidden1=1, width=2, residual=False
    ),
    "predictor_tiers": lambda: predictor(
        42, 2, workers=2, layers1=1, hidden1=1, width=1, layers2=1, hidden2=1, shared=False
    ),
    "router": lambda: pr.Router(ring(), {10: 4, 11: 1, -5: 4}, version=12),
    "router_splits": lambda: pr.Router(ring(), {"a": 4, "b": 1}, {"c": [4, 1], "d": [1]}),
    "router_engine": lambda: pr.Router(pr.KafkaHash(3), {"a": 0}),
}


def checksum(body: bytes) -> bytes:
    return hash_bytes(body).to_bytes(8, "little")


def file_of(name: str) -> Path:
    return GOLDEN / f"{name}.{VERSION}.bin"


def json_file_of(name: str) -> Path:
    return GOLDEN / f"{name}.{VERSION}.json"


ROUTERS = [name for name in EXAMPLES if name.startswith("router")]


def write_golden() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, make in EXAMPLES.items():
        if not file_of(name).exists():
            file_of(name).write_bytes(make().to_bytes())
    for name in ROUTERS:
        if not json_file_of(name).exists():
            json_file_of(name).write_text(EXAMPLES[name]().to_json(), encoding="utf-8")


def decoded(kind: Any, data: bytes) -> Any:
    """Return the kernel, or None where the bytes are refused as they should be."""
    try:
        return kind.from_bytes(data)
    except pr.FormatError as refusal:
        message = str(refusal)
    except BaseException as error:
        error.add_note(f"{kind.__name__}.from_bytes(bytes.fromhex({data.hex()!r}))")
        raise
    assert "expected" in message
    return None


def exercise(kernel: Any, data: bytes) -> None:
    """Use what hostile bytes gave: it may refuse, but not break."""
    try:
        repr(kernel)
        assert decoded(type(kernel), kernel.to_bytes()) == kernel
        for attempt in ATTEMPTS[type(kernel).__name__]:
            try:
                attempt(kernel)
            except pr.FormatError:
                raise
            except (TypeError, ValueError):
                continue
    except BaseException as error:
        error.add_note(f"{type(kernel).__name__}.from_bytes(bytes.fromhex({data.hex()!r}))")
        raise


def assert_named_by_count(sketch: pr.SpaceSaving) -> None:
    top = sketch.top()
    assert sketch.estimate(top.values).tolist() == top.counts.tolist()


def assert_named_by_id(snapshot: pr.Snapshot) -> None:
    ids = snapshot.ids.tolist()
    assert snapshot.values == ids or pr.keys(snapshot.values).ids.tolist() == ids


def forecast(model: Predictor) -> Any:
    workers = 1 if model.elastic else model.workers
    return model.predict(
        np.ones((model.window, len(model.machine) + workers * len(model.features)))
    )


ATTEMPTS: dict[str, list[Callable[[Any], object]]] = {
    "SpaceSaving": [
        assert_named_by_count,
        lambda sketch: sketch.estimate([1, 2]),
        lambda sketch: sketch.observe([1, 2, 3, 1]),
        lambda sketch: sketch.observe(["a", "b"]),
        lambda sketch: sketch.merge(sketch),
        lambda sketch: sketch.decay(0.5),
    ],
    "PairSpaceSaving": [
        lambda sketch: sketch.top(),
        lambda sketch: sketch.observe([1, 2], [1, 2]),
        lambda sketch: sketch.merge(sketch),
        lambda sketch: sketch.decay(0.5),
    ],
    "CostSketch": [
        lambda sketch: sketch.mean_time([1, 2]),
        lambda sketch: sketch.frequency([1, 2]),
        lambda sketch: sketch.observe([1, 2], [3, 4]),
    ],
    "KeyStats": [
        lambda stats: stats.observe([1, 2, 3]),
        lambda stats: assert_named_by_id(stats.close_interval()),
        lambda stats: stats.observe([b"x"], [1.0], [2]),
        lambda stats: stats.close_interval(),
    ],
    "Snapshot": [
        assert_named_by_id,
        lambda snapshot: pr.rebalance(snapshot, pr.Router(3), max_imbalance=0),
        lambda snapshot: pr.rebalance(snapshot, pr.Router(3), degree=8, search_moves=9),
        lambda snapshot: pr.rebalance(snapshot, pr.Router(3), mergeable=True, max_migration=5),
    ],
    "GroupReport": [
        lambda report: pr.plan_groups([report, groups(1).report], pr.Router(2)),
        lambda report: pr.plan_groups([groups(0).report, report], pr.Router(2)),
    ],
    "GroupOrders": [lambda orders: groups(0).pick(orders)],
    "Ring": [
        lambda ring: ring.homes([1, 2, 3]),
        lambda ring: ring.with_tasks([1, 2]),
        lambda ring: ring.shares(),
    ],
    "DynamicGrouping": [
        lambda grouping: grouping.assign([1, 2, 3]),
        lambda grouping: grouping.with_ratio([1, 2]),
        lambda grouping: grouping.reassign(0, to=1),
        lambda grouping: grouping.shares(),
    ],
    "Report": [
        lambda report: pr.posg.Scheduler([5], report.mode, 1.0, 0.3, 7).receive(report, 1e9),
        lambda report: (report.items, report.sketch, report.answers),
    ],
    "Tracker": [
        lambda tracker: tracker.observe([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0], 1e9),
        lambda tracker: tracker.observe([1] * 9, [1.0] * 9, 1e308, ()),
    ],
    "Scheduler": [
        lambda scheduler: scheduler.estimates([1, 2], scheduler.tasks[0]),
        lambda scheduler: scheduler.receive(tracked(scheduler.mode, 8)[1], 1e9),
        lambda scheduler: scheduler.schedule([1, 2, 3] * 9, 1e9),
        lambda scheduler: (scheduler.finishes, scheduler.speeds, scheduler.requests),
        lambda scheduler: scheduler.schedule([1, 2, 3] * 9, 1e308),
    ],
    "Predictor": [forecast, lambda model: (model.target, model.step, model.sizes)],
    "SparkHash": [lambda home: home.homes([1, 2])],
    "StormHash": [lambda home: home.homes(["a", "b"])],
    "KafkaHash": [lambda home: home.homes([b"a", b"b"])],
    "FlinkKeyGroup": [lambda home: home.homes([1, 2])],
    "Router": [
        lambda router: router.route([1, 2, 10]),
        lambda router: router.route(["a", "c"], [1, 2]),
        lambda router: router.route_one("a"),
        lambda router: (dict(router.table), router.splits, router.tasks),
        lambda router: router.to_json(),
    ],
}


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    """A size that hostile bytes claim is not allocated: neither address space nor memory grows."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if not SANITIZED and sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + 2**30
        resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024
    assert growth < (2**30 if SANITIZED else 2**28)


examples = pytest.mark.parametrize("name", EXAMPLES)


@examples
def test_golden(name):
    kernel, data = EXAMPLES[name](), file_of(name).read_bytes()
    assert kernel.to_bytes() == data
    read = type(kernel).from_bytes(data)
    assert read == kernel
    assert read.to_bytes() == data
    assert data[:4] == b"PYRT"
    assert data[5:8] == bytes([VERSION, 0, 0])
    assert data[-8:] == checksum(data[:-8])


@pytest.mark.parametrize("name", ROUTERS)
def test_golden_json(name):
    router, text = EXAMPLES[name](), json_file_of(name).read_text(encoding="utf-8")
    assert json.loads(router.to_json()) == json.loads(text)
    assert pr.Router.from_json(text) == router
    assert pr.Router.from_json(text).to_json() == router.to_json()


def test_names_can_be_left_out():
    router = EXAMPLES["router_splits"]()
    bare = pr.Router.from_bytes(router.to_bytes(values=False))
    assert bare.fingerprint == router.fingerprint
    assert len(router.to_bytes(values=False)) < len(router.to_bytes())
    values = ["a", "b", "c", "d", "e"]
    salts = [1, 2, 3, 4, 5]
    assert bare.route(values, salts).tolist() == router.route(values, salts).tolist()


@examples
def test_bytes_of_another_kernel(name):
    kind = type(EXAMPLES[name]())
    for other in EXAMPLES:
        if not isinstance(EXAMPLES[other](), kind):
            with pytest.raises(pr.FormatError, match="expected"):
                kind.from_bytes(file_of(other).read_bytes())


@examples
def test_frame(name):
    kind, data = type(EXAMPLES[name]()), file_of(name).read_bytes()
    for at, byte in [(0, 0), (3, 0), (4, 0), (4, 99), (5, 0), (5, VERSION + 1), (6, 1), (7, 1)]:
        body = bytearray(data[:-8])
        body[at] = byte
        with pytest.raises(pr.FormatError, match="expected"):
            kind.from_bytes(bytes(body) + checksum(body))
    for wrong in b"", b"PYRT", data + b"\0", b"\0" + data, data[:-8] + b"\0" * 8, data * 2:
        with pytest.raises(pr.FormatError, match="expected"):
            kind.from_bytes(wrong)


@examples
def test_truncated(name):
    kind, data = type(EXAMPLES[name]()), file_of(name).read_bytes()
    for length in range(len(data)):
        assert decoded(kind, data[:length]) is None
    for length in range(len(data) - 8):
        kernel = decoded(kind, data[:length] + checksum(data[:length]))
        assert kernel is None


@examples
def test_every_bit_flipped(name):
    kind, data = type(EXAMPLES[name]()), file_of(name).read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            assert decoded(kind, bytes(flipped)) is None


@examples
def test_every_bit_flipped_under_a_right_checksum(name):
    kind, data = type(EXAMPLES[name]()), file_of(name).read_bytes()
    for at in range(8, len(data) - 8):
        for bit in range(0, 8, 1 if len(data) < 300 else 3):
            body = bytearray(data[:-8])
            body[at] ^= 1 << bit
            hostile = bytes(body) + checksum(body)
            kernel = decoded(kind, hostile)
            if kernel is not None:
                exercise(kernel, hostile)


@examples
def test_every_byte_made_small_under_a_right_checksum(name):
    """Small numbers are kinds, engines and counts: other ones than those that were written."""
    kind, data = type(EXAMPLES[name]()), file_of(name).read_bytes()
    for at in range(8, len(data) - 8):
        for byte in range(9):
            body = bytearray(data[:-8])
            body[at] = byte
            hostile = bytes(body) + checksum(body)
            kernel = decoded(kind, hostile)
            if kernel is not None:
                exercise(kernel, hostile)


NUMBERS = [
    *(struct.pack("<q", n) for n in (0, 1, -1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63))),
    *(struct.pack("<d", n) for n in (1.0, -1.0, 1e308, 5e-324, float("inf"), float("nan"))),
]
VARINTS = [b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\xff\xff\xff\x7f", b"\x80" * 9 + b"\x00", b"\x80"]


def change(chance: random.Random, body: bytearray, other: bytes) -> None:
    """Change one thing, mostly behind the frame."""
    at = chance.randrange(8 if chance.random() < 0.97 else 0, max(9, len(body)))
    length = chance.randrange(1, 10)
    match chance.randrange(10):
        case 0 | 1:
            body[at : at + 1] = bytes([chance.choice((0, 1, 2, 7, 0x7F, 0x80, 0xFE, 0xFF))])
        case 2:
            body[at : at + 1] = bytes([chance.randrange(256)])
        case 3:
            del body[at : at + length]
        case 4:
            body[at:at] = chance.randbytes(length)
        case 5:
            body[at : at + chance.randrange(2)] = chance.choice(VARINTS)
        case 6:
            body[at:at] = body[at : at + length]
        case 7:
            body[at : at + 8] = chance.choice(NUMBERS)
        case 8:
            body[at:] = other[chance.randrange(len(other)) :]
        case 9:
            body[at : at + 1] = bytes(
                [body[at] ^ 1 << chance.randrange(8) if at < len(body) else 0]
            )


@examples
def test_mutations(name):
    """100,000 over all kernels, each under a right checksum."""
    kind, data = type(EXAMPLES[name]()), file_of(name).read_bytes()
    chance = random.Random(name)
    others = [file.read_bytes()[:-8] for file in sorted(GOLDEN.glob("*.bin"))]
    others = [other for other in others if other[4] == data[4]]
    for _ in range(effort(-(-MUTATIONS // len(EXAMPLES)))):
        body = bytearray(data[:-8])
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            change(chance, body, chance.choice(others))
        hostile = bytes(body) + checksum(body)
        kernel = decoded(kind, hostile)
        if kernel is not None:
            exercise(kernel, hostile)


@examples
def test_random_bytes(name):
    kind, data = type(EXAMPLES[name]()), file_of(name).read_bytes()
    chance = random.Random(name)
    for _ in range(effort(300)):
        noise = chance.randbytes(chance.randrange(200))
        assert decoded(kind, noise) is None
        body = data[:8] + noise
        hostile = body + checksum(body)
        kernel = decoded(kind, hostile)
        if kernel is not None:
            exercise(kernel, hostile)


def decoded_json(text: str) -> pr.Router | None:
    try:
        router = pr.Router.from_json(text)
        assert pr.Router.from_json(router.to_json()) == router
        return router
    except pr.FormatError as refusal:
        message = str(refusal)
    except BaseException as error:
        error.add_note(f"Router.from_json({text!r})")
        raise
    assert "expected" in message
    return None


@pytest.mark.parametrize("name", ROUTERS)
def test_truncated_json(name):
    text = json_file_of(name).read_text(encoding="utf-8").strip()
    step = max(1, len(text) // effort(500))
    for length in range(0, len(text), step):
        assert decoded_json(text[:length]) is None


@pytest.mark.parametrize("name", ROUTERS)
def test_mutated_text_of_json(name):
    text = json_file_of(name).read_text(encoding="utf-8")
    chance = random.Random(name)
    letters = '{}[]",:.-+0123456789eE \n\\untrfalsbx\0\x7fé🐍'
    for _ in range(effort(1500)):
        changed = list(text)
        for _ in range(chance.choice((1, 1, 2, 5))):
            at = chance.randrange(len(changed))
            changed[at : at + chance.choice((0, 1, 1, 1, 4))] = chance.choices(
                letters, k=chance.choice((0, 1, 1, 2))
            )
        decoded_json("".join(changed))


LEAVES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, 1e400),
    *("", "0", "-1", "x", "99999999999999999999999", "1e5", " 1", "１", "\ud800", "\0", "=" * 4),
    *([], {}, [[]], [0], [0] * 1000, {"t": "i", "v": "1"}, {"t": "tuple", "v": []}, {"t": "z"}),
    {"t": "b", "v": "not base64"},
]


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place (container, index or name) of a document."""
    places = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in list(places):
        yield value, key
        if isinstance(child, dict | list):
            yield from nodes(child)


@pytest.mark.parametrize("name", ROUTERS)
def test_mutated_structure_of_json(name):
    text = json_file_of(name).read_text(encoding="utf-8")
    chance = random.Random(name)
    for _ in range(effort(1500)):
        document = json.loads(text)
        for _ in range(chance.choice((1, 1, 1, 2))):
            places = list(nodes(document))
            if not places:
                break
            container, key = chance.choice(places)
            match chance.randrange(4):
                case 0:
                    del container[key]
                case 1 if isinstance(container, list):
                    container.insert(key, container[key])
                case _:
                    container[key] = copy.deepcopy(chance.choice(LEAVES))
        decoded_json(json.dumps(document))


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "null", "true", "1", "1.5", '"x"', "[]", "{}", "[{}]", "NaN", "{", "}", "\0"),
        "\ufeff{}",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 10_000,
        '{"version": ' + "9" * 10_000 + "}",
        '"\\ud800"',
    ],
    ids=lambda text: repr(text[:20]),
)
def test_hostile_json(text):
    with pytest.raises(pr.FormatError, match="expected"):
        pr.Router.from_json(text)


@pytest.mark.parametrize("name", ROUTERS)
def test_json_with_an_unknown_field(name):
    document = json.loads(json_file_of(name).read_text(encoding="utf-8"))
    document["from a later release"] = {"a": [1]}
    assert pr.Router.from_json(json.dumps(document)) == EXAMPLES[name]()


if __name__ == "__main__" and os.environ.get("PYROUTE_WRITE_GOLDEN") == "1":
    write_golden()
