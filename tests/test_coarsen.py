"""Coarsening, partitions from scratch and improvement: what holds whatever they find."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localities import array, at, native, problems
from reference import locality

pytestmark = pytest.mark.kernel

seeds = st.integers(0, 5)


@given(problem=problems(most=20, bounds=False), seed=seeds)
def test_adds_up(problem, seed):
    problem = at(problem, problem.current)
    fine = native(problem, with_home=False)
    where = array(problem.current)
    coarse, cluster = fine.coarsen(where, seed)
    assert len(cluster) == len(fine)
    assert sorted(set(cluster.tolist())) == list(range(len(coarse)))
    for a in problem.vertices:
        for b in problem.vertices:
            if cluster[a] == cluster[b]:
                assert problem.current[a] == problem.current[b]
    elsewhere = (np.arange(len(coarse)) % problem.servers).astype(np.int32)
    there, here = coarse.arrange(elsewhere), fine.arrange(elsewhere[cluster])
    for name in ("stakes", "migration"):
        assert there[name] == here[name]
    assert there["value"] + inside(problem, cluster) == here["value"]
    assert there["load"].tolist() == here["load"].tolist()


@given(problem=problems(most=20, history=False, bounds=False), seed=seeds)
def test_adds_up_without_places(problem, seed):
    fine = native(problem, with_home=False)
    coarse, cluster = fine.coarsen(None, seed)
    elsewhere = (np.arange(len(coarse)) % problem.servers).astype(np.int32)
    value = coarse.arrange(elsewhere)["value"] + inside(problem, cluster)
    assert value == fine.arrange(elsewhere[cluster])["value"]


def inside(problem, cluster):
    return sum(
        locality.NEAR * weight
        for (a, b), weight in problem.edges.items()
        if cluster[a] == cluster[b]
    )


@given(problem=problems(most=20, bounds=False), seed=seeds)
def test_improves(problem, seed):
    # Repair may cost more than the overload that it takes off is worth; without overload, it never
    # makes anything worse.
    roomy = replace(problem, limit=[[10**6] * problem.servers] * problem.operators)
    roomy = at(roomy, roomy.current)
    got = native(roomy).improve(array(roomy.current), seed)
    where = got["where"].tolist()
    assert locality.worth(roomy, where) >= locality.worth(roomy, roomy.current)
    assert got["value"] == locality.value(roomy, where)


@given(problem=problems(most=20), seed=seeds)
def test_repeatable(problem, seed):
    one, two = native(problem), native(problem)
    assert one.partition(seed).tolist() == two.partition(seed).tolist()
    where = array(problem.current)
    assert one.improve(where, seed)["where"].tolist() == two.improve(where, seed)["where"].tolist()
    assert one.coarsen(where, seed)[1].tolist() == two.coarsen(where, seed)[1].tolist()


@given(problem=problems(most=20), other=problems(most=20), seed=seeds)
def test_partition_forgets_where_things_are(problem, other, seed):
    n = len(problem.member)
    moved = replace(
        problem,
        current=[(v + 1) % problem.servers for v in range(n)],
        origin=[0] * n,
        home=[1] * n,
        stake=[7] * n,
        size=[3] * n,
        max_table=[0] * problem.operators,
        max_migration=1,
    )
    assert native(problem).partition(seed).tolist() == native(moved).partition(seed).tolist()


def communities(servers=4, groups=12, keys=30, seed=0):
    """Return a problem of groups of keys that go together, and the group of each key."""
    random = np.random.default_rng(seed)
    edges = {}
    n = groups * keys
    group = np.arange(2 * n) % groups
    for _ in range(20 * n):
        a = int(random.integers(n))
        inside = random.random() < 0.8
        b = (
            n
            + int(random.integers(keys)) * groups
            + int(group[a] if inside else random.integers(groups))
        )
        edges[a, b] = edges.get((a, b), 0) + 1
    load = [[0, 0] for _ in range(2 * n)]
    for (a, b), weight in edges.items():
        load[a][0] += weight
        load[b][1] += weight
    total = sum(edges.values())
    return locality.Problem(
        servers=servers,
        operators=2,
        load=load,
        member=[{0}] * n + [{1}] * n,
        size=[0] * (2 * n),
        stake=[0] * (2 * n),
        current=[0] * (2 * n),
        origin=[0] * (2 * n),
        home=[0] * (2 * n),
        edges=edges,
        limit=[[int(1.03 * total / servers)] * servers] * 2,
        near=[[256 if a == b else 0 for b in range(servers)] for a in range(servers)],
        penalty=[locality.PENALTY] * 2,
        max_table=[None, None],
    ), group


def test_finds_communities():
    problem, group = communities()
    kernel = native(problem)
    where = kernel.partition(1)
    ideal = kernel.arrange((group % 4).astype(np.int32))["value"]
    found = kernel.arrange(where)
    assert found["value"] > 0.97 * ideal
    assert not any(map(any, locality.excesses(problem, where.tolist())))
