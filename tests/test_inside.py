"""Tasks inside a server."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyroute import _core

pytestmark = pytest.mark.kernel


@st.composite
def cases(draw):
    servers = draw(st.integers(2, 4))
    server = draw(st.lists(st.integers(0, servers - 1), min_size=2, max_size=7))
    tasks = st.integers(0, len(server) - 1)
    n = draw(st.integers(1, 30))
    column = lambda of: draw(st.lists(of, min_size=n, max_size=n))  # noqa: E731
    return {
        "server": np.array(server, np.int32),
        "capacity": np.ones(len(server)),
        "base": np.zeros(len(server)),
        "id": np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        "load": np.array(column(st.integers(0, 20)), np.float64),
        "size": np.array(column(st.integers(0, 9)), np.int64),
        "placed": np.array(column(st.sampled_from(server)), np.int32),
        "current": np.array(column(tasks), np.int32),
        "home": np.array(column(tasks), np.int32),
        "max_imbalance": draw(st.sampled_from([0.0, 0.1, 1.0])),
    }


def place(case, **changes):
    case = {**case, "max_table": -1, "max_migration": -1, **changes}
    mean = case["load"].sum() / len(case["server"])
    return _core.place_inside(**{"mean": mean, **case})


@given(cases())
def test_stays_on_server(case):
    tasks = place(case)
    assert (case["server"][tasks] == case["placed"]).all()


@given(cases())
def test_closed_tasks_take_nothing(case):
    case["capacity"][0] = 0
    tasks = place(case)
    assert (case["server"][tasks] == case["placed"]).all()
    others = case["server"] == case["server"][0]
    others[0] = False
    if others.any():
        assert not (tasks == 0).any()


@given(cases())
def test_calm(case):
    """What is within limits stays, and what was settled is settled."""
    case["current"] = place(case)
    assert place(case, mean=1e9).tolist() == case["current"].tolist()
    assert place(case).tolist() == case["current"].tolist()


def test_calm_above_limits():
    """No placement is within limits, keys weigh nothing, and plans could go round in circles."""
    n = 10
    case = {
        "server": np.array([1, 0, 0, 0, 1], np.int32),
        "capacity": np.ones(5),
        "base": np.zeros(5),
        "id": np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        "load": np.array([0, 0, 0, 0, 2, 11, 13, 11, 11, 12], np.float64),
        "size": np.zeros(n, np.int64),
        "placed": np.array([1, 1, 1, 1, 1, 1, 0, 1, 1, 1], np.int32),
        "current": np.zeros(n, np.int32),
        "home": np.zeros(n, np.int32),
        "max_imbalance": 0.0,
    }
    case["current"] = place(case)
    assert place(case).tolist() == case["current"].tolist()


@given(cases(), st.integers(0, 6))
def test_table_holds(case, spare):
    outside = case["server"][case["home"]] != case["placed"]
    tasks = place(case, max_table=int(outside.sum()) + spare)
    assert (tasks != case["home"]).sum() <= outside.sum() + spare


@given(cases(), st.integers(0, 20))
def test_budget_holds(case, budget):
    tasks = place(case, max_migration=budget)
    inside = case["server"][case["current"]] == case["placed"]
    assert case["size"][inside & (tasks != case["current"])].sum() <= budget


def test_balances():
    n = 60
    case = {
        "server": np.array([0, 0, 0, 1], np.int32),
        "capacity": np.ones(4),
        "base": np.zeros(4),
        "id": np.arange(n, dtype=np.uint64),
        "load": np.ones(n),
        "size": np.ones(n, np.int64),
        "placed": np.repeat([0, 1], [45, 15]).astype(np.int32),
        "current": np.full(n, 3, np.int32),
        "home": np.full(n, 3, np.int32),
        "max_imbalance": 0.0,
    }
    assert np.bincount(place(case)).tolist() == [15, 15, 15, 15]
