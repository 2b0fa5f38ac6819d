"""The experiments of paper 001: the loop over weeks counts right."""

import sys
from pathlib import Path

import numpy as np
import pytest

import pyroute as pr

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "bench" / "papers").exists():  # tests that were copied elsewhere
    pytest.skip("bench is not here", allow_module_level=True)

sys.path.insert(0, str(ROOT))
from bench.papers import caneill, colocating, weekly  # noqa: E402
from bench.peers import Scale  # noqa: E402


def stream(weeks=4, keys=60, records=3000, fresh=0.2, seed=0):
    """Pairs of one key with three, and some keys that are new each week."""
    random = np.random.default_rng(seed)
    ins, outs, times = [], [], []
    for week in range(weeks):
        a = random.integers(0, keys, records)
        b = a * 3 + random.integers(0, 3, records)
        new = random.random(records) < fresh
        b[new] = 3 * keys * (week + 1) + a[new]
        ins.append(a)
        outs.append(b)
        times.append(np.sort(random.integers(0, weekly.WEEK, records)) + week * weekly.WEEK)
    in_keys, out_keys = keys, 3 * keys * (weeks + 1)
    names = [[str(i) for i in range(n)] for n in (in_keys, out_keys)]
    columns = (np.concatenate(each).astype(np.int64) for each in (times, ins, outs))
    return weekly.PairStream("test", *columns, *names)


def test_weeks_and_pairs():
    found = stream()
    assert found.weeks == 4
    ins, outs = found.between(1, 2)
    assert len(ins) == 3000
    codes, counts = found.pairs(1, 2)
    assert counts.sum() == 3000
    expected = {}
    for pair in zip(ins.tolist(), outs.tolist(), strict=True):
        expected[pair] = expected.get(pair, 0) + 1
    got = zip(*(column.tolist() for column in np.divmod(codes, len(found.out_names))), strict=True)
    assert dict(zip(got, counts.tolist(), strict=True)) == expected


def test_history_decays():
    found = stream()
    history = weekly.History(found, 0.5)
    for week in range(2):
        history.add(week)
    assert history.weights.sum() == pytest.approx(3000 * 1.5)
    assert history.pairs.counts.sum() == pytest.approx(3000 * 1.5 * weekly.UNIT, rel=0.01)
    alone = weekly.History(found, 0.0)
    for week in range(2):
        alone.add(week)
    assert alone.weights.sum() == 3000


def test_replay_counts_what_routers_do():
    """Locality, loads and moves of one week, recomputed record by record."""
    found = stream()
    policy = weekly.Policy()
    run = weekly.replay(found, policy, servers=3, last=2)
    before = weekly.hashed(3)
    history = weekly.History(found, policy.decay)
    history.add(0)
    plan = pr.colocate(history.pairs, 3, routers=before, migration_weight=policy.migration_weight)
    after = plan.routers
    ins, outs = (keys.tolist() for keys in found.between(1, 2))
    tasks = [
        (after["in"].route_one(a), after["out"].route_one(b))
        for a, b in zip(ins, outs, strict=True)
    ]
    assert run.locality == [pytest.approx(np.mean([a == b for a, b in tasks]))]
    loads = np.bincount([b for _, b in tasks], minlength=3)
    assert run.out_balance == [pytest.approx(loads.max() / loads.mean())]
    old = zip(*(keys.tolist() for keys in found.between(0, 1)), strict=True)
    moves = [
        (before["in"].route_one(a) != after["in"].route_one(a))
        + (before["out"].route_one(b) != after["out"].route_one(b))
        for a, b in old
    ]
    assert run.moved == [pytest.approx(np.mean(moves) / 2)]


def test_new_keys_are_placed_between_plans():
    found = stream()
    alone = weekly.replay(found, weekly.Policy(), servers=3)
    placed = weekly.replay(found, weekly.Policy(placements=7), servers=3)
    assert np.mean(placed.locality) > np.mean(alone.locality) + 0.03
    assert np.mean(placed.unseen) == pytest.approx(0.2, abs=0.03)
    assert min(placed.placed) > 0
    assert max(alone.placed) == 0


def test_metis_is_matched():
    pytest.importorskip("pymetis")
    found = stream(fresh=0.0)
    run = weekly.replay_metis(found, 0.0, servers=3)
    assert min(run.locality) > 0.9
    codes, counts = found.pairs(0, 1)
    old = weekly.places(found, weekly.hashed(3))
    new = tuple((place + 1) % 3 for place in old)  # the same parts under other numbers
    assert weekly.matched(found, codes, counts, new, old, 3).tolist() == [2, 0, 1]


def test_hash_arm_is_blind():
    """C18: a salt for each operator, or hashing finds equal keys by itself."""
    for servers in (2, 3, 6):
        flows = [colocating.flow("hash", servers, 0.8, 0, seed, 20_000) for seed in range(4)]
        assert np.mean([each.local for each in flows]) == pytest.approx(1 / servers, abs=0.03)


def test_link_bytes():
    aware = colocating.flow("locality-aware", 4, 0.8, 1000, 1, 20_000)
    worst = colocating.flow("worst case", 4, 1.0, 1000, 1, 20_000)
    assert aware.local == pytest.approx(0.8 + 0.2 / 4, abs=0.05)
    assert aware.link == pytest.approx((1 - aware.local) * (1000 + colocating.HEADER))
    assert worst.local == 0
    assert worst.throughput() < aware.throughput()


def test_a_million_pairs():
    """In 64 MB; and a plan takes about as long as METIS alone."""
    pymetis = pytest.importorskip("pymetis")
    pairs = colocating.many_pairs(1_000_000, 1)
    found, (sketch, plan) = colocating.million(*pairs, 6, pymetis)
    assert len(sketch) == 1_000_000
    assert sketch.nbytes <= 64_000_000
    assert plan.feasible
    assert plan.locality > 0.98 * found.metis_locality
    assert found.ratio < 3  # 1.5 is the goal, measured by the command on a quiet machine


def test_sections_say_what_is_missing(monkeypatch):
    monkeypatch.setattr(colocating.weekly, "stream_of", lambda name, scale: None)
    scale = Scale(quick=True, seed=1)
    for name in ("fig10", "fig12", "weekly", "others"):
        text = "\n".join(caneill.PAPER.sections[name](scale).lines())
        assert "PYROUTE_DATA" in text
