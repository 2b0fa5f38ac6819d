"""Policies by themselves: what each promises, on streams that make the difference."""

import subprocess
import sys

import numpy as np
import pytest

import pyroute as pr
from pyroute import policies
from pyroute.policies import Records, Setting
from pyroute.policies.keyed import _level

TASKS = 8


def stream(records=20_000, skew=1.0, seed=1, universe=1000):
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, universe + 1) ** skew
    return pr.keys(random.choice(universe, records, p=share / share.sum())).ids


def begun(name, tasks=TASKS, **options):
    policy = policies.make(name, **options.pop("policy", {}))
    policy.begin(Setting(tasks, seed=5, **options))
    return policy


def play(policy, ids, costs=None, interval=5000, sources=None):
    """Route batch by batch; what is routed is executed at once."""
    costs = np.ones(len(ids)) if costs is None else costs
    out = []
    for begin in range(0, len(ids), interval):
        whole = slice(begin, min(begin + interval, len(ids)))
        for at in range(whole.start, whole.stop, policy.every or interval):
            part = slice(at, min(at + (policy.every or interval), whole.stop))
            came = None if sources is None else sources[part]
            lengths = np.zeros(policy.tasks, np.int64)
            now = np.arange(part.start, part.stop, dtype=float)
            tasks = policy.route(Records(ids[part], now, lengths, came, costs[part]))
            policy.done(policies.Done(ids[part], tasks, costs[part], now))
            out.append(tasks)
        policy.interval()
    return np.concatenate(out)


def imbalance(tasks, costs=None, number=TASKS):
    loads = np.bincount(tasks, costs, number)
    return loads.max() / loads.mean()


def holders(ids, tasks):
    """On how many tasks each key is."""
    distinct, at = np.unique(ids, return_inverse=True)
    pairs = np.unique(np.stack([at, tasks]), axis=1)
    return np.bincount(pairs[0], minlength=len(distinct)), distinct


def test_every_policy_of_the_contract():
    assert set(policies.ALL) == {
        *("hash", "shuffle", "local-or-shuffle", "partial key grouping", "D-Choices", "W-Choices"),
        *("DKG", "Readj", "MinTable", "MinMig", "Mixed", "MixedBF", "KIP", "consistent grouping"),
        *("locality", "POSG", "pooled", "load-aware shuffle", "join shortest queue"),
        *("power of two choices", "least estimated delay", "dynamic grouping", "full knowledge"),
    }


@pytest.mark.parametrize("name", list(policies.ALL))
def test_begin_forgets(name):
    ids = stream(3000)
    policy = begun(name)
    first = play(policy, ids)
    assert first.dtype == np.int32
    assert ((first >= 0) & (first < TASKS)).all()
    policy = begun(name)
    assert play(policy, ids).tolist() == first.tolist()


@pytest.mark.parametrize("name", [n for n, p in policies.ALL.items() if p.keyed])
def test_keyed_policies_keep_a_key_together_within_an_interval(name):
    ids = stream()
    tasks = play(begun(name), ids)
    for begin in range(0, len(ids), 5000):
        counts, _ = holders(ids[begin : begin + 5000], tasks[begin : begin + 5000])
        assert counts.max() == 1


def test_hash_is_the_ring():
    ids = stream()
    assert play(begun("hash"), ids).tolist() == pr.Ring(TASKS).homes(pr.Keys.from_ids(ids)).tolist()


def test_partial_key_grouping():
    ids = stream(skew=0.8)
    tasks = play(begun("partial key grouping"), ids)
    assert holders(ids, tasks)[0].max() == 2
    assert imbalance(tasks) < 1.05 < imbalance(play(begun("hash"), ids))


def test_more_choices_for_heavy_keys():
    """A key of a fifth of all records is too much for two of twenty tasks."""
    ids = stream(skew=1.2)
    names = ("partial key grouping", "D-Choices", "W-Choices")
    two, d, w = (play(begun(name, 20), ids) for name in names)
    late = slice(5000, None)
    assert imbalance(two[late], number=20) > 1.3
    assert imbalance(d[late], number=20) < 1.2
    assert imbalance(w[late], number=20) < 1.05
    on_two, on_d, on_w = (holders(ids, tasks)[0] for tasks in (two, d, w))
    assert on_two.max() == 2 < on_d.max()
    assert on_d.sum() < on_w.sum()
    assert np.median(on_w) <= 2


@pytest.mark.parametrize("name", ["DKG", "Mixed", "MixedBF", "MinTable", "MinMig", "Readj"])
def test_planned_policies_balance_measured_costs(name):
    ids = stream(40_000, skew=0.8)
    costs = (ids % 7 + 1).astype(float)
    tasks = play(begun(name), ids, costs)
    late = slice(20_000, None)
    assert imbalance(tasks[late], costs[late]) < 1.1
    hashed = play(begun("hash"), ids, costs)
    assert imbalance(hashed[late], costs[late]) > 1.15


def test_kip_places_heavy_keys_and_weighs_the_rest():
    """Light keys are taken to be alike, so that it is not as even as what measures all."""
    late, excess = slice(20_000, None), []
    for seed in range(1, 13):
        ids = stream(40_000, skew=0.8, seed=seed) * np.uint64(2 * seed + 1)  # other keys
        costs = (ids % 7 + 1).astype(float)
        policy = begun("KIP")
        placed = [play(each, ids, costs)[late] for each in (policy, begun("hash"))]
        excess.append([imbalance(tasks, costs[late]) - 1 for tasks in placed])
    ours, hashed = np.mean(excess, axis=0)
    assert ours < hashed / 2
    assert len(policy._named) == 2 * TASKS
    # Buckets fill what the heavy keys leave of an even level.
    keys, at = np.unique(ids[35_000:], return_inverse=True)
    share = np.bincount(at, costs[35_000:]) / costs[35_000:].sum()
    heavy = np.bincount(policy._tasks_of, share[np.searchsorted(keys, policy._named)], TASKS)
    buckets = np.bincount(policy._owners, minlength=TASKS) / len(policy._owners)
    filled = heavy + buckets * (1 - heavy.sum())
    assert filled.max() == pytest.approx(1 / TASKS, abs=0.002)


def test_level():
    assert _level(np.zeros(4)) == 0.25
    assert _level(np.array([0.1, 0.4, 0.0, 0.1])) == pytest.approx(0.2)
    assert _level(np.array([0.6, 0.3, 0.0, 0.0])) == pytest.approx(0.05)


def test_dkg_learns_once_and_kip_follows():
    early, late = stream(10_000, 0.9, seed=1), stream(20_000, 0.9, seed=2) + np.uint64(10**6)
    ids = np.concatenate([early, late])
    last = slice(20_000, None)
    learned, followed = (play(begun(name), ids)[last] for name in ("DKG", "KIP"))
    assert imbalance(followed) < 1.12 < 1.5 < imbalance(learned)


def test_consistent_grouping_bounds_virtual_workers():
    ids = stream(skew=1.5)
    policy = begun("consistent grouping")
    tasks = play(policy, ids)
    assert imbalance(tasks) < 1.1
    # A task with a long queue gives virtual workers away.
    lengths = np.array([50, *[1] * (TASKS - 2), 0])
    before = np.bincount(policy._owners, minlength=TASKS)
    policy.route(Records(ids[:10], np.zeros(10), lengths))
    policy.interval()
    after = np.bincount(policy._owners, minlength=TASKS)
    assert (after - before).tolist() == [-1, *[0] * (TASKS - 2), 1]


def test_locality_keeps_records_at_home():
    ids = stream(skew=0.5)
    sources = ((ids >> np.uint64(40)) % np.uint64(4)).astype(np.int64)
    servers = [task % 4 for task in range(TASKS)]
    policy = begun("locality", servers=servers)
    tasks = play(policy, ids, sources=sources)
    local = np.array(servers)[tasks] == sources
    assert local[5000:].mean() > 0.9 > 0.3 > local[:5000].mean()
    assert imbalance(tasks[5000:]) < 1.1


def test_dynamic_grouping_is_its_ratio():
    policy = begun("dynamic grouping", 3, policy={"ratio": [7, 3, 2]})
    shares = np.bincount(play(policy, stream(12_000))) / 12_000
    assert shares == pytest.approx([7 / 12, 3 / 12, 2 / 12], abs=0.005)


def test_load_aware_shuffle_is_storms():
    """A congested task loses ten of a hundred at every look and wins one back when it is not."""
    policy = begun("load-aware shuffle", 3, refresh=1.0)

    def slots(now, lengths):
        out = policy.route(Records(stream(1000), np.full(1000, now), np.array(lengths)))
        return np.bincount(out, minlength=3)

    for look in range(12):
        weight = max(0, 90 - 10 * look)
        # As many of a thousand slots as the weights say; up to two are dealt at random.
        share = int(weight / (weight + 200) * 1000)
        assert share <= slots(float(look), [900, 20, 0])[0] <= share + 2
    for look in range(12, 16):
        weight = look - 11
        share = int(weight / (weight + 200) * 1000)
        assert share <= slots(float(look), [0, 51, 0])[0] <= share + 2


def test_load_aware_shuffle_takes_its_slots_in_turn():
    policy = begun("load-aware shuffle", 4, refresh=10.0)
    nothing = np.zeros(4, np.int64)
    first, again = (policy.route(Records(stream(1000), np.full(1000, 1.0), nothing)) for _ in "ab")
    assert first.tolist() == again.tolist()
    assert np.bincount(first).tolist() == [250] * 4
    later = policy.route(Records(stream(1000), np.full(1000, 20.0), nothing))
    assert later.tolist() != first.tolist()


def test_two_choices_takes_the_shorter():
    policy = begun("power of two choices", 2)
    lengths = np.array([10**6, 0])
    out = policy.route(Records(stream(1000), np.zeros(1000), lengths))
    # Task 0 only where both draws are task 0.
    assert 0.2 < (out == 0).mean() < 0.3


def test_wrong_names_and_settings():
    with pytest.raises(ValueError, match=r"policy: expected one of hash, .* got best"):
        policies.make("best")
    with pytest.raises(ValueError, match="tasks: expected at least one task, got 0"):
        Setting(0)
    with pytest.raises(ValueError, match="delays: expected 2 finite numbers"):
        Setting(2, delays=[1.0])
    with pytest.raises(ValueError, match="servers: expected 2, got 1"):
        Setting(2, servers=[1])


def test_import_does_not_load_numba():
    code = "import sys, pyroute; print('numba' in sys.modules, 'pyroute.arena' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
