"""Colocation: what a plan promises, recomputed from pairs and routers alone."""

import json
import pickle
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyroute as pr
from effort import effort

pytestmark = pytest.mark.kernel

GOLDEN = Path(__file__).parent / "golden" / "colocation.1.json"


def top(rows, errors=None):
    """TopPairs of (in, out, count) rows."""
    ins, outs, counts = (list(column) for column in zip(*rows, strict=True))
    zeros = np.zeros(len(ins), np.int64) if errors is None else np.array(errors)
    return pr.TopPairs(ins, outs, np.array(counts, np.int64), zeros)


def random_pairs(random, keys=12, pairs=40):
    rows = {}
    for _ in range(random.randint(1, pairs)):
        a = random.randrange(keys)
        b = a if random.random() < 0.5 else random.randrange(keys)
        rows[f"a{a}", f"b{b}"] = random.choice([1, 1, 2, 5, 30])
    return top([(a, b, n) for (a, b), n in rows.items()])


pairs_of_any_kind = st.randoms(use_true_random=False).map(random_pairs)


def servers_of(plan, routers, name, values):
    at = plan.servers[name]
    return [at[task] for task in routers[name].route(list(values)).tolist()]


def measured(plan, routers, pairs):
    """Return locality, and loads of each task by operator, from the pairs alone."""
    ins = servers_of(plan, routers, "in", pairs.in_values)
    outs = servers_of(plan, routers, "out", pairs.out_values)
    local = sum(n for a, b, n in zip(ins, outs, pairs.counts.tolist(), strict=True) if a == b)
    loads = {
        name: np.bincount(
            np.searchsorted(sorted(plan.servers[name]), routers[name].route(list(values))),
            pairs.counts,
            len(plan.servers[name]),
        )
        for name, values in (("in", pairs.in_values), ("out", pairs.out_values))
    }
    return local / pairs.counts.sum(), loads


def state_moved(before, after, pairs, sizes=None):
    moved = 0
    for name, values in (("in", pairs.in_values), ("out", pairs.out_values)):
        load = {}
        for value, n in zip(values, pairs.counts.tolist(), strict=True):
            load[value] = load.get(value, 0) + n
        keys = list(load)
        changed = before[name].route(keys) != after[name].route(keys)
        moved += sum(
            (sizes or {}).get(name, load)[key]
            for key, is_moved in zip(keys, changed.tolist(), strict=True)
            if is_moved
        )
    return moved


# what a plan says is what its routers do --------------------------------------------------------


@given(pairs_of_any_kind, st.integers(2, 5), st.sampled_from([0.0, 0.03, 0.5]))
def test_complete(pairs, n, allowed):
    plan = pr.colocate(pairs, n, max_imbalance=allowed)
    for routers, share, by_task in (
        (plan.routers_before, plan.locality_before, "loads_before"),
        (plan.routers, plan.locality, "loads_after"),
    ):
        local, loads = measured(plan, routers, pairs)
        assert share == pytest.approx(local)
        for name, each in plan.plans.items():
            assert getattr(each, by_task).tolist() == loads[name].tolist()
    assert plan.distance == pytest.approx(1 - plan.locality)
    assert plan.coverage == pytest.approx(1)
    assert plan.migration_cost == state_moved(plan.routers_before, plan.routers, pairs)
    for name, each in plan.plans.items():
        if plan.imbalance[name] > allowed + 1e-9:
            assert any(reason.startswith(name) for reason in plan.reasons)
            assert not each.feasible
    assert plan.feasible == all(share <= allowed + 1e-9 for share in plan.imbalance.values())


@given(pairs_of_any_kind, st.integers(2, 5))
def test_migrations_are_the_keys_that_move(pairs, n):
    first = pr.colocate(pairs, n, seed=1)
    other = random_pairs(Random(5))
    plan = pr.colocate(other, n, routers=first.routers)
    for name, moves in plan.migrations.items():
        before, after = first.routers[name], plan.routers[name]
        known = {
            *first.tables[name],
            *plan.tables[name],
            *(other.in_values if name == "in" else other.out_values),
        }
        expected = {}
        for value in known:
            source, target = before.route_one(value), after.route_one(value)
            if source != target:
                expected[value] = (source, target)
        assert {value: (source, target) for value, source, target, _ in moves} == expected


# the guarantees of colocate.hpp ----------------------------------------------------------------


def placements(random):
    n = random.randint(2, 5)
    if random.random() < 0.6:
        return n
    return {
        name: {task: f"s{task % n}" for task in range(n * random.randint(1, 3))}
        for name in ("in", "out")
    }


@settings(max_examples=effort(150))
@given(st.randoms(use_true_random=False))
def test_unchanged_moves_nothing(random):
    placement = placements(random)
    options = {
        "max_imbalance": random.choice([0.0, 0.03, 0.3]),
        "migration_weight": random.choice([0.0, 0.05, 1.0]),
        "hysteresis": random.choice([0.0, 0.005]),
        "max_table": random.choice([None, None, 3]),
        "seed": random.randrange(3),
    }
    routers = None
    for _ in range(random.randint(1, 3)):
        pairs = random_pairs(random)
        plan = pr.colocate(pairs, placement, routers=routers, **options)
        routers = plan.routers
        again = pr.colocate(pairs, placement, routers=routers, **options)
        assert [len(moves) for moves in again.migrations.values()] == [0, 0]
        assert not again.changes


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most", [None, 8])
def test_keys_in_no_pair_stay(seed, most):
    """Tabled keys that the statistics have forgotten stay; where there is no room, they go home."""
    random = Random(seed)
    first = pr.colocate(random_pairs(random), 3, max_table=most)
    pairs = random_pairs(random, pairs=10)
    plan = pr.colocate(pairs, 3, routers=first.routers, max_table=most)
    for name, named in (("in", set(pairs.in_values)), ("out", set(pairs.out_values))):
        idle = set(first.tables[name]) - named
        moved = set(plan.migrations[name].values) & idle
        assert len(moved) == (
            0 if most is None else min(len(idle), max(0, len(named | idle) - most))
        )
        homes = first.routers[name].home
        for value in moved:
            assert plan.routers[name].route_one(value) == homes.homes([value])[0]
    again = pr.colocate(pairs, 3, routers=plan.routers, max_table=most)
    assert not again.changes


@settings(max_examples=effort(150))
@given(st.randoms(use_true_random=False))
def test_budget_holds(random):
    placement = placements(random)
    routers, sizes = None, None
    for _ in range(3):
        pairs = random_pairs(random)
        if random.random() < 0.5:
            sizes = {
                "in": {f"a{i}": random.choice([0, 1, 100]) for i in range(12)},
                "out": {f"b{i}": random.choice([0, 1, 100]) for i in range(12)},
            }
        budget = random.choice([0, 1, 10, 100, 1000])
        plan = pr.colocate(
            pairs, placement, routers=routers, max_migration=budget, state_sizes=sizes,
            migration_weight=random.choice([0.0, 0.05]),
        )  # fmt: skip
        assert plan.migration_cost <= budget
        assert state_moved(plan.routers_before, plan.routers, pairs, sizes) <= budget
        routers = plan.routers


@settings(max_examples=effort(100))
@given(st.randoms(use_true_random=False))
def test_fixed_stay(random):
    placement = placements(random)
    routers = None
    for _ in range(3):
        pairs = random_pairs(random)
        movable = random.choice(
            ["untabled", {"out": ["b1", "b2", "b9"]}, {"in": ["a1"], "out": []}]
        )
        options = {"max_imbalance": random.choice([0.0, 0.3]), "movable": movable}
        before = pr.colocate(pairs, placement, routers=routers).routers_before
        plan = pr.colocate(pairs, placement, routers=before, **options)
        for name, moves in plan.migrations.items():
            if movable == "untabled":
                assert not set(moves.values) & set(before[name].table)
            else:
                assert set(moves.values) <= set(movable.get(name, ()))
        again = pr.colocate(pairs, placement, routers=plan.routers, **options)
        if movable != "untabled":  # with it, what was placed is in the table now, and stays
            assert not again.changes
        assert not plan.from_scratch
        routers = pr.colocate(pairs, placement, routers=plan.routers).routers


def test_new_keys_join_their_partners():
    """Keys that came after the plan go where their partners are, and nothing else moves."""
    rows = [(f"a{i}", f"b{i}", 10) for i in range(24)]
    plan = pr.colocate(top(rows), 4)
    assert plan.locality == 1
    late = rows + [(f"a{i}", f"new{i}", 5) for i in range(24)]
    placed = pr.colocate(top(late), 4, routers=plan.routers, movable="untabled")
    assert placed.locality > plan.locality * 0.97
    assert not len(placed.migrations["in"])
    assert all(value.startswith("new") for value in placed.migrations["out"].values)
    assert pr.ColocationPlan.from_json(placed.to_json()) == placed


@settings(max_examples=effort(100))
@given(st.randoms(use_true_random=False))
def test_table_holds(random):
    placement = placements(random)
    routers = None
    for _ in range(3):
        most = random.choice([0, 1, 4])
        plan = pr.colocate(random_pairs(random), placement, routers=routers, max_table=most)
        assert all(len(table) <= most for table in plan.tables.values())
        routers = plan.routers


@given(pairs_of_any_kind, st.integers(2, 4), st.randoms(use_true_random=False))
def test_repeatable(pairs, n, random):
    order = list(range(len(pairs.counts)))
    random.shuffle(order)
    mixed = pr.TopPairs(
        [pairs.in_values[i] for i in order],
        [pairs.out_values[i] for i in order],
        pairs.counts[order],
        pairs.errors[order],
    )
    assert pr.colocate(pairs, n) == pr.colocate(mixed, n)


def test_warm_start_moves_little():
    """Statistics that change a little change the plan a little; from scratch, most of it."""
    random = np.random.default_rng(0)
    ins = random.integers(0, 200, 40_000)
    outs = np.where(
        random.random(40_000) < 0.7,
        ins * 3 + random.integers(0, 3, 40_000),
        random.integers(0, 600, 40_000),
    )
    first, second = pr.PairSpaceSaving(50_000), pr.PairSpaceSaving(50_000)
    first.observe(ins[:36_000], outs[:36_000])
    second.observe(ins, outs)
    plan = pr.colocate(first, 6)
    warm = pr.colocate(second, 6, routers=plan.routers)
    cold = pr.colocate(second, 6)
    assert warm.locality > 0.98 * cold.locality
    assert warm.migration_share < 0.1


# statistics ------------------------------------------------------------------------------------


def test_limits_of_each_operator():
    """One weight for both operators would let one be overloaded where the other is not (C1)."""
    rows = [(f"a{i}", f"b{j}", 10) for i in range(4) for j in range(6)]
    rows += [("heavy", f"b{j}", 40) for j in range(6)]
    plan = pr.colocate(top(rows), 2, max_imbalance=0.05)
    assert plan.feasible, plan.summary()
    assert max(plan.imbalance.values()) <= 0.05
    loose = pr.colocate(top(rows), 2, max_imbalance={"in": 1.0, "out": 0.05})
    assert loose.imbalance["out"] <= 0.05
    assert loose.locality >= plan.locality


def test_background_counts():
    """Load that no pair names is there all the same (C2)."""
    rows = [(i, i, 10) for i in range(20)]
    plan = pr.colocate(top(rows), 2, background={"in": {0: 100.0}, "out": {0: 100.0}})
    for each in plan.plans.values():
        assert each.loads_after.tolist() == [150.0, 150.0]
    assert plan.locality == 1


def test_sketch_brings_its_background():
    sketch = pr.PairSpaceSaving(50)
    random = np.random.default_rng(0)
    keys = random.zipf(1.2, 20_000) % 5000
    sketch.observe(keys, keys)
    plan = pr.colocate(sketch, 4)
    unnamed = sketch.total - sketch.top().counts.sum()
    assert unnamed > 0
    for each in plan.plans.values():
        assert each.loads_after.sum() == pytest.approx(sketch.total)
    assert plan.coverage == pytest.approx(1 - unnamed / sketch.total)
    named = plan.locality * sketch.total - unnamed / 4
    assert named == pytest.approx(sketch.top().counts.sum(), rel=0.01)
    assert plan.assured_locality < plan.locality


def test_errors_reach_the_plan():
    pairs = top([("a", "x", 10), ("b", "y", 10)], errors=[4, 0])
    plan = pr.colocate(pairs, 2)
    assert plan.locality == 1
    assert plan.assured_locality == pytest.approx(16 / 20)
    assert plan.assured_gain <= plan.locality - plan.locality_before + 4 / 20


def test_loads_say_what_is_to_come():
    """With loads, limits are about them; keys of no pair stay where they are, and count."""
    rows = [(i, i, 10) for i in range(8)]
    loads = {"out": {i: 70.0 if i == 0 else 10.0 for i in range(8)} | {"elsewhere": 0.0}}
    loads["out"].pop("elsewhere")
    plan = pr.colocate(top(rows), 2, loads=loads, max_imbalance={"in": 1.0, "out": 0.03})
    assert sorted(plan.plans["out"].loads_after.tolist()) == [70.0, 70.0]
    snapshot = pr.Snapshot(list(range(10)), [10.0] * 10)
    plan = pr.colocate(top(rows), 2, loads={"out": snapshot})
    assert plan.plans["out"].loads_after.sum() == 100


def test_state_sizes_in_every_form():
    rows = [(i, i, 10) for i in range(6)]
    values, sizes = list(range(6)), [1, 2, 3, 4, 5, 6]
    forms = [
        dict(zip(values, sizes, strict=True)),
        (values, sizes),
        pr.Snapshot(values, [1.0] * 6, sizes),
    ]
    plans = [pr.colocate(top(rows), 2, state_sizes={"in": form, "out": form}) for form in forms]
    assert plans[0] == plans[1] == plans[2]
    assert plans[0].state_total == 42


def test_giant_key_is_named():
    plan = pr.colocate(top([("a", "x", 100), ("b", "y", 5), ("c", "z", 5)]), 2)
    assert not plan.feasible
    assert any("'a' brings 100" in reason for reason in plan.reasons)
    giant = plan.in_router.route_one("a")
    assert giant not in plan.in_router.route(["b", "c"]).tolist()


# more than two operators ------------------------------------------------------------------------


def chain():
    return {
        ("a", "b"): top([(f"u{i}", f"v{i}", 10) for i in range(8)]),
        ("b", "c"): top([(f"v{i}", f"w{i}", 10) for i in range(8)]),
    }


def test_chain():
    """A key of the middle is one vertex of one graph (C3)."""
    plan = pr.colocate(chain(), 4)
    assert plan.operators == ("a", "b", "c")
    assert plan.locality == 1
    assert plan.localities == {("a", "b"): 1.0, ("b", "c"): 1.0}
    routers = plan.routers
    for i in range(8):
        tasks = {
            routers[name].route_one(f"{letter}{i}")
            for name, letter in (("a", "u"), ("b", "v"), ("c", "w"))
        }
        assert len(tasks) == 1
    assert plan.imbalance == {"a": 0.0, "b": 0.0, "c": 0.0}
    again = pr.colocate(chain(), 4, routers=routers)
    assert not again.changes
    with pytest.raises(ValueError, match="expected one for two operators, got 3"):
        _ = plan.in_router


def test_dag_in_order():
    diamond = {
        ("c", "d"): top([("z", "q", 3)]),
        ("a", "b"): top([("x", "y", 3)]),
        ("b", "d"): top([("y", "q", 3)]),
        ("a", "c"): top([("x", "z", 3)]),
    }
    plan = pr.colocate(diamond, 2)
    order = plan.operators
    assert all(order.index(a) < order.index(b) for a, b in diamond)
    with pytest.raises(ValueError, match="pairs: expected no cycle of operators, got one through"):
        pr.colocate({**diamond, ("d", "a"): top([("q", "x", 1)])}, 2)


def test_through_stateless_operators():
    """B -> C -> D with a stateless C: the in-key travels with the record (C17)."""
    random = np.random.default_rng(3)
    b_keys = random.integers(0, 30, 3000)
    records = [(int(key), int(key) * 7 % 30) for key in b_keys]  # what C passes on, with B's key
    pairs = pr.PairSpaceSaving(100)
    pairs.observe(*(list(column) for column in zip(*records, strict=True)))
    plan = pr.colocate({("B", "D"): pairs}, 3)
    routers = plan.routers
    b, d = (routers[n].route([r[i] for r in records]) for i, n in enumerate("BD"))
    assert (b == d).mean() > 0.95


# servers ----------------------------------------------------------------------------------------


def test_several_tasks_on_a_server():
    rows = [(i, i % 12, 5) for i in range(48)]
    placement = {"in": {t: t % 2 for t in range(6)}, "out": {t: t % 2 for t in range(4)}}
    plan = pr.colocate(top(rows), placement, max_imbalance=0.05)
    assert plan.feasible, plan.summary()
    assert plan.locality == 1
    local, loads = measured(plan, plan.routers, top(rows))
    assert local == 1
    assert loads["in"].tolist() == [40] * 6
    assert loads["out"].tolist() == [60] * 4


def test_operators_on_other_servers():
    """A server without a task of an operator gets none of its keys."""
    placement = {"in": {0: "x", 1: "y"}, "out": {0: "x", 1: "y", 2: "z"}}
    rows = [(i, i, 5) for i in range(30)]
    plan = pr.colocate(top(rows), placement, max_imbalance=0.1)
    assert plan.feasible
    assert plan.locality > 0.6  # a third of the out-keys is on z


def test_distances():
    """Where balance prevents the same server, the same rack is next best."""
    placement = 4
    racks = {0: ("r1",), 1: ("r1",), 2: ("r2",), 3: ("r2",)}
    rows = [("hub", f"o{i}", 10) for i in range(8)] + [("hub2", f"p{i}", 10) for i in range(8)]
    plan = pr.colocate(top(rows), placement, distances=racks, max_imbalance={"in": 9.0, "out": 0.0})
    assert plan.distance < 1 - plan.locality
    routers = plan.routers
    rack = {task: racks[task] for task in range(4)}
    home = rack[routers["in"].route_one("hub")]
    assert all(rack[t] == home for t in routers["out"].route([f"o{i}" for i in range(8)]).tolist())
    as_pairs = {(0, 1): 0.5, (2, 3): 0.5}
    matrix = [[0, 0.5, 1, 1], [0.5, 0, 1, 1], [1, 1, 0, 0.5], [1, 1, 0.5, 0]]
    same = [
        pr.colocate(top(rows), placement, distances=d, max_imbalance={"in": 9.0, "out": 0.0})
        for d in (as_pairs, matrix)
    ]
    assert plan == same[0] == same[1]


def test_hash_arm_is_one_in_n():
    """Operators have salts of their own: a pair (i, i) is not local by itself (C18)."""
    rows = [(i, i, 1) for i in range(20_000)]
    for n in (2, 5):
        plan = pr.colocate(top(rows), n, partitioner=())
        local, _ = measured(plan, plan.routers_before, top(rows))
        assert local == pytest.approx(1 / n, abs=0.02)
        assert plan.locality_before == pytest.approx(local)


def test_weights_of_the_ring_are_capacities():
    rows = [(i, i, 1) for i in range(400)]
    routers = {
        name: pr.Router(pr.Ring({0: 3.0, 1: 1.0, 2: 0.0}, salt=salt))
        for salt, name in enumerate(("in", "out"))
    }
    plan = pr.colocate(top(rows), 3, routers=routers)
    assert plan.feasible
    for each in plan.plans.values():
        assert each.loads_after[0] == pytest.approx(300, abs=10)
        assert each.loads_after[2] == 0


def test_engine_homes():
    rows = [(f"a{i}", f"b{i}", 3) for i in range(50)]
    routers = {
        "in": pr.Router(pr.KafkaHash(3)),
        "out": pr.Router(pr.SparkHash(3, key_type="string")),
    }
    plan = pr.colocate(top(rows), 3, routers=routers)
    local, _ = measured(plan, plan.routers, top(rows))
    assert local == plan.locality > 0.95


def test_split_keys_stay_split():
    rows = [("hot", f"b{i}", 50) for i in range(4)] + [(f"a{i}", f"b{i}", 20) for i in range(4)]
    routers = {
        "in": pr.Router(2, splits={"hot": [0, 1]}),
        "out": pr.Router(pr.Ring(2, salt=9)),
    }
    plan = pr.colocate(top(rows), 2, routers=routers)
    assert plan.routers["in"].splits == {"hot": (0, 1)}
    assert "hot" not in plan.tables["in"]
    assert plan.plans["in"].loads_after.tolist() == [140, 140]
    assert plan.locality <= 80 / 280 + 1e-9  # what is split counts as remote
    assert not pr.colocate(top(rows), 2, routers=plan.routers).changes


def test_tables_without_names():
    rows = [(f"a{i}", f"b{i}", 3) for i in range(30)]
    plan = pr.colocate(top(rows), 3)
    bare = {
        name: pr.Router.from_bytes(router.to_bytes(values=False))
        for name, router in plan.routers.items()
    }
    again = pr.colocate(top(rows), 3, routers=bare)
    assert not again.changes
    other = pr.colocate(random_pairs(Random(1)), 3, routers=bare)
    assert pr.ColocationPlan.from_json(other.to_json()) == other
    assert "a1" not in other.tables["in"]  # ids alone


# the plan object ---------------------------------------------------------------------------------


@pytest.fixture
def plan():
    return pr.colocate(random_pairs(Random(4)), 3)


def test_apply_is_fenced(plan):
    before, after = plan.routers_before, plan.routers
    assert {name: router.version for name, router in after.items()} == {"in": 1, "out": 1}
    for wrong in ({**before, "in": after["in"]}, {**before, "out": pr.Router(3, {"b1": 0})}):
        with pytest.raises(ValueError, match="plan: expected one made for"):
            plan.apply(wrong)
    with pytest.raises(ValueError, match="routers: expected those of in, out, got in"):
        plan.apply({"in": before["in"]})
    with pytest.raises(TypeError, match=r"routers: expected \{op: router\}, got list"):
        plan.apply(list(before.values()))


def test_inverse(plan):
    back = plan.inverse()
    restored = back.apply(plan.routers)
    for name, router in plan.routers_before.items():
        assert restored[name].fingerprint == router.fingerprint
        assert restored[name].version == 2
    assert back.locality == plan.locality_before
    assert back.inverse().locality == plan.locality


def test_json(plan):
    text = plan.to_json()
    read = pr.ColocationPlan.from_json(text)
    assert read == plan
    assert json.loads(read.to_json()) == json.loads(text)
    assert read.apply(plan.routers_before) == plan.routers
    assert read.summary() == plan.summary()
    assert pickle.loads(pickle.dumps(plan)) == plan
    more = json.loads(text) | {"note": "kept"}
    assert json.loads(pr.ColocationPlan.from_json(json.dumps(more)).to_json())["note"] == "kept"
    with pytest.raises(ValueError, match="routers: a plan that was read has none"):
        _ = read.routers
    assert len({plan, read}) == 1


def test_golden():
    text = GOLDEN.read_text(encoding="utf-8")
    read = pr.ColocationPlan.from_json(text)
    assert json.loads(read.to_json()) == json.loads(text)
    assert read.operators == ("in", "out")


def hostile(document, random):
    """Return the document with one thing replaced, removed or added somewhere."""
    document = json.loads(json.dumps(document))
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return document
        key = random.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and random.random() < 0.8:
            place = place[key]
            continue
        action = random.random()
        if action < 0.2:
            del place[key]
        else:
            place[key] = random.choice([None, -1, 1e999, "x", [], {}, True, 2**70, 0.5])
        return document


def test_hostile_json(plan):
    random = Random(1)
    document = json.loads(plan.to_json())
    for _ in range(effort(400)):
        text = json.dumps(hostile(document, random))
        try:
            read = pr.ColocationPlan.from_json(text)
        except pr.FormatError:
            continue
        read.summary()
        assert pr.ColocationPlan.from_json(read.to_json()) == read


def test_words(plan):
    text = plan.summary()
    assert "locality" in text
    assert text.splitlines()[-1] == "feasible" or "because" in text
    value = next(iter(plan.tables["in"]))
    words = plan.explain("in", value)
    assert repr(value) in words
    assert "records in" in words
    assert "in no pair" in plan.explain("in", "never seen")
    with pytest.raises(ValueError, match="operator: expected one of in, out, got 'x'"):
        plan.explain("x", value)
    assert "ColocationPlan(in -> out" in repr(plan)


def test_diff(plan):
    other = pr.colocate(random_pairs(Random(9)), 3)
    found = plan.diff(other)
    assert set(found) == {"in", "out"}
    assert found["in"].only_here.keys() == plan.tables["in"].keys() - other.tables["in"].keys()
    with pytest.raises(TypeError, match="other: expected a ColocationPlan"):
        plan.diff(plan.plans["in"])
    with pytest.raises(ValueError, match="other: expected a plan for in, out"):
        plan.diff(pr.colocate(chain(), 4))


# METIS -------------------------------------------------------------------------------------------


def test_metis_is_one_more_start():
    pytest.importorskip("pymetis")
    rows = [(i, j, 1 + (i % 5 == j % 5) * 20) for i in range(40) for j in range(40)]
    native = pr.colocate(top(rows), 5)
    for partitioner in ("metis", ("native", "metis")):
        plan = pr.colocate(top(rows), 5, partitioner=partitioner)
        assert plan.feasible
        assert plan.locality == pytest.approx(native.locality, abs=0.05)
    assert plan.locality >= native.locality - 0.005


def test_metis_that_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"pip install 'pyroute-core\[colocate\]'"):
        pr.colocate(top([("a", "x", 1)] * 3 + [("b", "y", 2)]), 2, partitioner="metis")
    pr.colocate(top([("a", "x", 1)]), 2)


# bad input ---------------------------------------------------------------------------------------

GOOD = top([("a", "x", 3), ("b", "y", 3)])
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("pairs", "placement", "options", "error", "message"),
    [
        (top([("a", "x", 0)]), 2, {}, ValueError, "counts: expected at least 1, got 0"),
        (top([("a", "x", -4)]), 2, {}, ValueError, "counts: expected at least 1, got -4"),
        (top([("a", "x", 3)], [4]), 2, {}, ValueError, "errors: expected 0 to the count, got 4"),
        (pr.PairSpaceSaving(3), 2, {}, ValueError, "pairs: expected at least one pair, got none"),
        ({}, 2, {}, ValueError, "pairs: expected at least one pair, got none"),
        ([("a", "x", 3)], 2, {}, TypeError, "pairs: expected TopPairs"),
        ({"ab": GOOD}, 2, {}, TypeError, "pairs: expected keys"),
        ({("a", "b"): [1]}, 2, {}, TypeError, "pairs: expected TopPairs or a PairSpaceSaving for"),
        ({("a", "a"): GOOD}, 2, {}, ValueError, "pairs: expected two operators, got 'a' twice"),
        (GOOD, 1, {}, ValueError, "placement: expected at least 2 servers, got 1"),
        (GOOD, 0, {}, ValueError, "placement: expected at least 2 servers, got 0"),
        (GOOD, -2, {}, ValueError, "placement: expected 0 to"),
        (GOOD, 2.0, {}, TypeError, "placement: expected an int"),
        (GOOD, {"in": {0: 0, 1: 1}}, {}, ValueError, "placement: expected all operators, got none"),
        (GOOD, {"in": {0: 0}, "out": {0: 0}}, {}, ValueError, "expected at least 2 servers, got 1"),
        (GOOD, {"in": {}, "out": {0: 0}}, {}, TypeError, "placement: expected tasks with their"),
        (GOOD, {"in": {0: 0.5}, "out": {0: 0}}, {}, TypeError, "placement: expected ints or texts"),
        (GOOD, {"in": {-1: 0}, "out": {0: 1}}, {}, ValueError, "placement: expected a task id"),
        (GOOD, {"x": {0: 0}}, {}, ValueError, "placement: expected operators of the pairs, got"),
        (GOOD, 2, {"max_imbalance": -0.1}, ValueError, "max_imbalance: expected a number from 0"),
        (GOOD, 2, {"max_imbalance": NAN}, ValueError, "max_imbalance: expected a number from 0"),
        (GOOD, 2, {"max_imbalance": "x"}, TypeError, "max_imbalance: expected a number, got str"),
        (GOOD, 2, {"max_imbalance": {"x": 1}}, ValueError, "max_imbalance: expected operators"),
        (GOOD, 2, {"max_table": -1}, ValueError, "max_table: expected 0 to"),
        (GOOD, 2, {"max_migration": -1}, ValueError, "max_migration: expected 0 to"),
        (GOOD, 2, {"migration_weight": -1}, ValueError, "migration_weight: expected a number"),
        (GOOD, 2, {"hysteresis": 2}, ValueError, "hysteresis: expected a number from 0 to 1"),
        (GOOD, 2, {"seed": -1}, ValueError, "seed: expected 0 to"),
        (GOOD, 2, {"partitioner": "kahip"}, ValueError, "partitioner: expected native or metis"),
        (GOOD, 2, {"partitioner": 3}, TypeError, "partitioner: expected names"),
        (GOOD, 2, {"distances": {(0, 7): 0.5}}, ValueError, "distances: expected servers of the"),
        (GOOD, 2, {"distances": {7: ("a",)}}, ValueError, "distances: expected servers of the"),
        (GOOD, 2, {"distances": {0: 0.5}}, TypeError, "distances: expected {"),
        (GOOD, 2, {"distances": {(0, 1): 2.0}}, ValueError, "distances: expected 0 to 1"),
        (GOOD, 2, {"distances": {(0, 0): 0.5}}, ValueError, "distances: expected 0 to 1, and 0 to"),
        (GOOD, 2, {"distances": [[0, 1], [0.5, 0]]}, ValueError, "distances: expected the same"),
        (GOOD, 2, {"distances": [[0, 1]]}, ValueError, "distances: expected 2 by 2"),
        (GOOD, 2, {"distances": {0: ("a",), 1: ("a", "b")}}, ValueError, "places of one depth"),
        (GOOD, 2, {"background": {"in": {5: 1.0}}}, ValueError, "background: expected tasks of"),
        (GOOD, 2, {"background": {"in": {0: -1.0}}}, ValueError, "background: expected finite"),
        (GOOD, 2, {"background": {"in": {0: INF}}}, ValueError, "background: expected finite"),
        (GOOD, 2, {"background": [1.0]}, TypeError, "background: expected {op:"),
        (GOOD, 2, {"state_sizes": {"in": {"a": -1}}}, ValueError, "state_sizes: expected finite"),
        (GOOD, 2, {"state_sizes": {"in": {"a": 1.5}}}, TypeError, "state_sizes: expected integers"),
        (GOOD, 2, {"state_sizes": {"x": {}}}, ValueError, "state_sizes: expected operators of the"),
        (GOOD, 2, {"state_sizes": {"in": 3}}, TypeError, "state_sizes: expected a mapping"),
        (GOOD, 2, {"state_sizes": {"in": ([1], [1, 2])}}, ValueError, "state_sizes: expected 1"),
        (GOOD, 2, {"loads": {"in": {"a": NAN}}}, ValueError, "loads: expected finite"),
        (GOOD, 2, {"loads": {"in": {"a": 0.0}}}, ValueError, "loads: expected some load for 'in'"),
        (GOOD, 2, {"movable": "new"}, ValueError, "movable: expected 'untabled', keys or None"),
        (GOOD, 2, {"movable": 3}, TypeError, "movable: expected {op: values}, got int"),
        (GOOD, 2, {"movable": {"x": []}}, ValueError, "movable: expected operators of the pairs"),
        (GOOD, 2, {"routers": 3}, TypeError, "routers: expected {op: router}, got int"),
        (GOOD, 2, {"routers": [pr.Router(2)]}, ValueError, "routers: expected one for each"),
        (GOOD, 2, {"routers": {"in": pr.Router(2)}}, ValueError, "routers: expected all operators"),
        (GOOD, 2, {"routers": {"in": 1, "out": 2}}, TypeError, "routers: expected Routers"),
        (
            GOOD,
            2,
            {"routers": {"in": pr.Router(3), "out": pr.Router(2)}},
            ValueError,
            "placement: expected the server of every task of 'in' and of no other, got none for",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_said(pairs, placement, options, error, message):
    with pytest.raises(error, match=message):
        pr.colocate(pairs, placement, **options)
