"""Topologies: who sends to whom, and what is no topology."""

import pytest

from pyroute.protocol import Task, Topology

SHAPE = r"^\w[\w .\[\]()]*: expected .+, got .+"


def test_diamond():
    diamond = Topology.of(
        {"s": 2, "a": [3, 1], "b": {0: "host 0", 5: "host 1"}, "c": 1},
        [("s", "a"), ("s", "b"), ("a", "c"), ("b", "c"), ("s", "c")],
    )
    assert diamond.sources == (Task("s", 0), Task("s", 1))
    assert diamond.keyed == {"a", "b", "c"}
    assert diamond.tasks("a") == (Task("a", 1), Task("a", 3))
    assert diamond.successors("s") == ("a", "b", "c")
    assert len(diamond.predecessor_tasks("c")) == 6
    assert len(diamond.successor_tasks("s")) == 5
    assert [diamond.level(name) for name in "sabc"] == [1, 2, 2, 3]
    assert diamond.depth == 3
    assert diamond.has(Task("b", 5))
    assert not diamond.has(Task("b", 1))
    assert not diamond.has(Task("x", 0))
    assert Topology.of(diamond) is diamond


def test_chain_by_default():
    chain = Topology.of({"s": 1, "a": 2, "b": 2})
    assert chain.edges == (("s", "a"), ("a", "b"))
    assert chain.keyed == {"a", "b"}
    through = Topology.of({"s": 1, "b": 2, "c": 1, "d": 2}, stateless=["s", "c"])
    assert through.keyed == {"b", "d"}
    assert chain == Topology.of({"b": 2, "a": 2, "s": 1}, [("a", "b"), ("s", "a")])
    assert hash(chain) == hash(Topology.of({"s": 1, "a": 2, "b": 2}))
    assert chain != through
    assert str(chain) == "Topology(s: 1, a: 2, b: 2; s -> a, a -> b)"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Topology.of(3), TypeError),
        (lambda: Topology.of({"s": 0}), ValueError),
        (lambda: Topology.of({"": 1}), ValueError),
        (lambda: Topology.of({3: 1}), ValueError),
        (lambda: Topology.of({"s": [1, 1]}), ValueError),
        (lambda: Topology.of({"s": [-1]}), ValueError),
        (lambda: Topology.of({"s": ["x"]}), TypeError),
        (lambda: Topology.of({"s": 1, "a": 1}, [("s", "x")]), ValueError),
        (lambda: Topology.of({"s": 1, "a": 1}, stateless=["x"]), ValueError),
        (lambda: Topology.of({"s": 1, "a": 1}, [("s", "a"), ("a", "s")], stateless=[]), ValueError),
        (lambda: Topology.of({"s": 1, "a": 1}, stateless=[]), ValueError),
    ],
)
def test_no_topology(make, error):
    with pytest.raises(error, match=SHAPE):
        make()
