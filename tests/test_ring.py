"""Ring: the home of every key, from a circle with exact shares that changes as little as it can."""

import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import ceil, floor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyroute as pr
from effort import effort
from reference import golden
from reference import keys as key_twin
from reference import ring as twin
from reference.circle import apportion, fewest_moves

pytestmark = pytest.mark.kernel

SHAPE = r"^\w[\w .\[\]()]*: expected .+, got .+"
ids = st.integers(0, 2**31 - 1)
whole = st.integers(0, 12).map(float) | st.integers(0, 40).map(lambda n: n / 4)
weights = whole | st.floats(0, 100) | st.sampled_from([5e-324, 1e-300, 1e300, 0.1, 0.2, 0.3, 1 / 3])


def tasks_with(weight):
    return st.dictionaries(ids, weight, min_size=1, max_size=7).filter(lambda t: any(t.values()))


tasks_of = tasks_with(weights)
# Sums of these are exact in floating point, so that ties are ties.
exact_tasks = tasks_with(whole)
small_bits = st.integers(6, 9)
salts = st.integers(0, 2**64 - 1)


@given(exact_tasks, small_bits, st.integers(1, 40), salts)
def test_matches_reference(tasks, bits, replicas, salt):
    ring = pr.Ring(tasks, bits=bits, replicas=replicas, salt=salt)
    assert ring.owners.tolist() == twin.owners(tasks, bits, replicas, salt)


@settings(max_examples=effort(30))
@given(st.lists(exact_tasks, min_size=2, max_size=4), small_bits, st.integers(1, 20), salts)
def test_history_matches_reference(history, bits, replicas, salt):
    ring = pr.Ring(history[0], bits=bits, replicas=replicas, salt=salt)
    owners = twin.owners(history[0], bits, replicas, salt)
    for tasks in history[1:]:
        ring = ring.with_tasks(tasks)
        owners = twin.with_tasks(owners, tasks, replicas, salt)
        assert ring.owners.tolist() == owners


@given(tasks_of, small_bits, st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_home_is_the_owner_at_the_top_bits(tasks, bits, values):
    ring = pr.Ring(tasks, bits=bits, replicas=8)
    owners = ring.owners.tolist()
    assert ring.homes(values).tolist() == [twin.home(owners, k) for k in key_twin.keys(values)]


def test_stable():
    # Written down once, from the twin, and never regenerated: a change reroutes deployed streams.
    for vector in golden("ring"):
        first, *later = map(dict, vector["tasks"])
        options = {name: vector[name] for name in ("bits", "replicas")}
        ring = pr.Ring(first, **options, salt=int(vector["salt"]))
        for tasks in later:
            ring = ring.with_tasks(tasks)
        owners = ring.owners.astype("<i4").tobytes()
        assert str(key_twin.hash_bytes(owners)) == vector["owners"], vector["tasks"]
        assert ring.homes(list(range(len(vector["homes"])))).tolist() == vector["homes"]


def test_stable_twin():
    vector = next(v for v in golden("ring") if len(v["tasks"]) == 3)
    first, *later = map(dict, vector["tasks"])
    owners = twin.owners(first, vector["bits"], vector["replicas"], int(vector["salt"]))
    for tasks in later:
        owners = twin.with_tasks(owners, tasks, vector["replicas"], int(vector["salt"]))
    data = np.array(owners, "<i4").tobytes()
    assert str(key_twin.hash_bytes(data)) == vector["owners"]


@given(tasks_of, st.integers(6, 16), salts)
def test_even(tasks, bits, salt):
    owned = Counter(pr.Ring(tasks, bits=bits, replicas=4, salt=salt).owners.tolist())
    total = sum(map(Fraction, tasks.values()))
    for task, weight in tasks.items():
        share = Fraction(weight) * 2**bits / total
        assert floor(share) <= owned[task] <= ceil(share)


@given(exact_tasks, st.integers(6, 16))
def test_shares_match_reference(tasks, bits):
    owned = Counter(pr.Ring(tasks, bits=bits, replicas=1).owners.tolist())
    assert owned == +Counter(apportion(tasks, 2**bits))


@given(tasks_of, tasks_of, st.integers(6, 12), salts)
def test_fewest(before, after, bits, salt):
    old = pr.Ring(before, bits=bits, replicas=4, salt=salt)
    new = old.with_tasks(after)
    gets = Counter(pr.Ring(after, bits=bits, replicas=4, salt=salt).owners.tolist())
    assert Counter(new.owners.tolist()) == gets
    assert (old.owners != new.owners).sum() == fewest_moves(old.owners.tolist(), gets)


def test_fewest_when_a_task_comes_or_goes():
    ring = pr.Ring(10)
    more = ring.with_tasks(11)
    moved = ring.owners != more.owners
    assert set(more.owners[moved].tolist()) == {10}
    assert abs(moved.mean() - 1 / 11) < 2**-16
    fewer = ring.with_tasks([task for task in range(10) if task != 3])
    assert (ring.owners != fewer.owners).tolist() == (ring.owners == 3).tolist()


@given(tasks_of, small_bits, salts)
def test_unchanged(tasks, bits, salt):
    ring = pr.Ring(tasks, bits=bits, replicas=4, salt=salt)
    assert ring.with_tasks(tasks) == ring
    other = ring.with_tasks({**tasks, 2**31 - 1: 3.0})
    assert other.with_tasks({**tasks, 2**31 - 1: 3.0}) == other


def test_independent():
    count, salts = 4, [*range(20), 2**32, 2**63, 2**64 - 1]
    circles = [pr.Ring(count, salt=salt).owners for salt in salts]
    joint = np.zeros((count, count))
    for one, two in combinations(circles, 2):
        assert np.mean(one == two) == pytest.approx(1 / count, abs=0.1)
        np.add.at(joint, (one[::16], two[::16]), 1)
    assert joint / joint.sum() == pytest.approx(np.full((count, count), 1 / count**2), rel=0.1)


def test_default_bits():
    for count in (1, 2, 4, 1023, 1024, 1025, 2048, 2049):
        ring = pr.Ring(count, replicas=1)
        assert ring.bits == twin.default_bits(count)
        assert len(ring.owners) == 2**ring.bits
    assert pr.Ring(70_000, replicas=1).bits == 22


def test_too_many_tasks():
    assert pr.Ring(8, bits=6).bits == 6
    with pytest.raises(ValueError, match=SHAPE):
        pr.Ring(9, bits=6)
    with pytest.raises(ValueError, match=SHAPE):
        pr.Ring(8, bits=6).with_tasks(9)
    with pytest.raises(ValueError, match=SHAPE):
        pr.Ring(2**22 // 8 + 1)


WRONG_TASKS = {
    "none": ([], ValueError),
    "an empty dict": ({}, ValueError),
    "0": (0, ValueError),
    "negative": (-1, ValueError),
    "duplicates": ([1, 2, 1], ValueError),
    "a negative id": ([-1, 2], ValueError),
    "an id beyond int32": ([2**31], ValueError),
    "a negative weight": ({0: -1, 1: 2}, ValueError),
    "NaN": ({0: float("nan")}, ValueError),
    "infinity": ({0: float("inf"), 1: 1}, ValueError),
    "all weights 0": ({0: 0, 1: 0.0}, ValueError),
    "text": ("ab", TypeError),
    "a list of text": (["a"], TypeError),
    "a list of floats": ([0.5], TypeError),
    "a float": (2.5, TypeError),
    "None": (None, TypeError),
    "a weight of text": ({0: "a"}, TypeError),
}


@pytest.mark.parametrize("name", WRONG_TASKS)
def test_wrong_tasks(name):
    tasks, error = WRONG_TASKS[name]
    ring = pr.Ring(4)
    with pytest.raises(error, match=r"^tasks: expected .+, got .+"):
        pr.Ring(tasks)
    with pytest.raises(error, match=r"^tasks: expected .+, got .+"):
        ring.with_tasks(tasks)
    assert ring == pr.Ring(4)


@pytest.mark.parametrize(
    "option", [{"bits": 2}, {"bits": 23}, {"bits": -1}, {"replicas": 0}, {"replicas": 65537}]
)
def test_wrong_options(option):
    (name,) = option
    with pytest.raises(ValueError, match=rf"^{name}: expected .+, got .+"):
        pr.Ring(1, **option)


def test_weight_zero_owns_nothing():
    ring = pr.Ring({3: 1, 5: 0, 9: 2})
    assert ring.tasks == (3, 5, 9)
    assert ring.weights == {3: 1, 5: 0, 9: 2}
    assert set(ring.owners.tolist()) == {3, 9}
    assert ring.shares()[5] == 0
    drained = pr.Ring(4).with_tasks({0: 1, 1: 1, 2: 1, 3: 0})
    assert 3 not in drained.owners


def test_the_order_given_never_shows():
    assert pr.Ring([9, 3, 5]) == pr.Ring([3, 5, 9]) == pr.Ring({5: 1, 9: 1, 3: 1})
    assert (pr.Ring([9, 3, 5]).owners == pr.Ring({5: 2, 9: 2, 3: 2}).owners).all()
    assert pr.Ring(np.array([9, 3, 5])) == pr.Ring((9, 5, 3))
    assert pr.Ring(4) == pr.Ring(range(4)) == pr.Ring(np.int64(4))


def test_shares():
    ring = pr.Ring({0: 1, 7: 3}, bits=10)
    assert ring.shares() == {0: 0.25, 7: 0.75}
    assert sum(pr.Ring(7).shares().values()) == pytest.approx(1)


def test_accessors():
    ring = pr.Ring([5, 2], bits=8, replicas=3, salt=2**64 - 1)
    assert (ring.bits, ring.replicas, ring.salt, ring.tasks) == (8, 3, 2**64 - 1, (2, 5))
    assert ring.weights == {2: 1, 5: 1}
    assert ring.owners.dtype == np.int32
    assert "Ring" in repr(ring)
    with pytest.raises(ValueError, match="read-only"):
        ring.owners[0] = 1


def test_fingerprint():
    rings = [
        pr.Ring(4),
        pr.Ring(5),
        pr.Ring(4, salt=1),
        pr.Ring(4, bits=17),
        pr.Ring(4).with_tasks(5),
    ]
    assert len({ring.fingerprint for ring in rings}) == len(rings)
    assert pr.Ring(4).fingerprint == pr.Ring({0: 1, 1: 1, 2: 1, 3: 1}).fingerprint
    assert all((a == b) == (a is b) for a in rings for b in rings)


@pytest.mark.parametrize("rows", [0, 1, 511, 512, 513, 1025])
def test_block_borders(rows):
    ring = pr.Ring(8)
    owners = ring.owners.tolist()
    numbers = list(range(rows))
    expected = [twin.home(owners, key) for key in key_twin.keys(numbers)]
    assert ring.homes(np.arange(rows)).tolist() == expected
    assert ring.homes(pr.keys(np.arange(rows))).tolist() == expected
    assert ring.homes(pa.array(numbers, pa.int16())).tolist() == expected
    assert ring.homes([(n, "x") for n in numbers]).tolist() == [
        twin.home(owners, key_twin.key(n, "x")) for n in numbers
    ]
    assert ring.homes(numbers).dtype == np.int32


OTHER_PROCESS = """
import pickle, sys
ring, values = pickle.load(sys.stdin.buffer)
answer = ring.homes(values), ring.fingerprint, ring.with_tasks(9).owners
sys.stdout.buffer.write(pickle.dumps(answer))
"""


def test_history_travels():
    ring = pr.Ring(5, salt=3).with_tasks([0, 2, 4, 6]).with_tasks({0: 1, 2: 2, 4: 0, 6: 1, 8: 5})
    values = [f"value {i}" for i in range(1000)]
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        input=pickle.dumps((ring, values)),
        capture_output=True,
        check=True,
    )
    homes, fingerprint, later = pickle.loads(done.stdout)
    assert homes.tolist() == ring.homes(values).tolist()
    assert fingerprint == ring.fingerprint
    assert later.tolist() == ring.with_tasks(9).owners.tolist()
    assert pr.Ring.from_bytes(ring.to_bytes()) == ring


class Meanwhile:
    """Counts, from another thread, how often it gets the GIL while a block runs.

    With a switch interval longer than any call, the thread advances only where the GIL is given up.
    """

    def __enter__(self):
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        self._stop = False
        self._ticks = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        time.sleep(0.01)
        return self

    def __exit__(self, *error):
        self._stop = True
        self._thread.join()
        sys.setswitchinterval(self._interval)

    def _run(self):
        while not self._stop:
            self._ticks += 1
            time.sleep(0)

    def ticks_during(self, call, *arguments):
        before = self._ticks
        call(*arguments)
        return self._ticks - before


def test_gil_is_released():
    numbers = np.arange(20_000_000)
    ring, router = pr.Ring(8), pr.Router(8, {1: 2})
    with Meanwhile() as meanwhile:
        for call in (ring.homes, router.route):
            few = meanwhile.ticks_during(call, numbers[:10])
            many = max(meanwhile.ticks_during(call, numbers) for _ in range(3))
            assert many > few + 20
        assert meanwhile.ticks_during(sum, range(1_000_000)) == 0
