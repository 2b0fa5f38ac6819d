"""Forecast of locality: what was kept of promises, and when it may speak."""

import json
import pickle

import numpy as np
import pytest

import pyroute as pr
from pyroute import Gate, LocalityForecast


def test_keeps_what_plans_kept():
    forecast = LocalityForecast(smoothing=0.0)
    forecast.observe_promise(0.2, None)
    forecast.observe_promise(0.4, 0.8)
    assert forecast.kept == pytest.approx(0.5)
    found = forecast.next_locality(0.9)
    assert (found.stay, found.apply) == (pytest.approx(0.4), pytest.approx(0.45))
    assert found.gain == pytest.approx(0.05)


def test_locality_decays_without_plans():
    forecast = LocalityForecast(smoothing=0.5)
    for measured in (0.5, 0.45, 0.405):
        forecast.observe_promise(measured, None)
    assert forecast.decay == pytest.approx(0.9)
    assert forecast.next_locality(0.6).stay == pytest.approx(0.9 * 0.405)
    forecast.observe_promise(0.9, None)  # a lucky interval is no reason to expect another
    assert forecast.next_locality(0.6).stay == pytest.approx(0.9)


def test_persistence_is_the_bar():
    """Promises that are never kept alike lose their say, and get it back after a while."""
    forecast = LocalityForecast(smoothing=0.0, memory=3)
    forecast.observe_promise(0.3, None)
    for measured in (0.3, 0.31, 0.3):
        forecast.observe_promise(measured, 0.9 if measured == 0.31 else 0.5)
    assert not forecast.trusted
    found = forecast.next_locality(0.9)
    assert found.gain == 0
    assert "persistence" in found.reason
    for _ in range(3):
        forecast.observe_promise(0.3, None)
    assert forecast.trusted
    assert forecast.next_locality(0.9).gain > 0


def test_before_anything_was_measured():
    forecast = LocalityForecast()
    found = forecast.next_locality(0.6, before=0.2)
    assert (found.stay, found.apply) == (pytest.approx(0.14), pytest.approx(0.42))


def pairs(seed):
    random = np.random.default_rng(seed)
    ins = random.integers(0, 40, 4000)
    outs = np.where(random.random(4000) < 0.8, ins, random.integers(0, 40, 4000))
    sketch = pr.PairSpaceSaving(2000)
    sketch.observe(ins, outs)
    return sketch


def test_gate_weighs_what_is_expected():
    plan = pr.colocate(pairs(0), 4)
    gate = Gate(min_gain=0.05)
    decision = gate.decide(plan, 0)
    assert decision
    assert "in the statistics" in decision.reason

    forecast = LocalityForecast()
    forecast.observe(plan.locality - 0.01)
    forecast.observe(plan.locality - 0.01, plan)
    weighed = plan.with_forecast(forecast)
    assert weighed == plan
    assert "of the next interval" in weighed.summary()
    refusal = Gate(min_gain=0.05, dead_band=9).decide(weighed, 0)
    assert not refusal
    assert refusal.reason.startswith("gain: ")
    assert Gate(min_gain=0.0, dead_band=9).decide(weighed, 0)


def test_gate_refuses_what_changes_nothing():
    plan = pr.colocate(pairs(0), 4)
    again = pr.colocate(pairs(0), 4, routers=plan.routers)
    assert Gate().decide(again, 0).reason == "nothing to change"


def test_gate_lets_balance_through():
    """Nothing is gained in locality, but an operator is overloaded."""
    rows = [(i, i, 1) for i in range(40)]
    top = pr.TopPairs(*map(list, zip(*rows, strict=True)), np.zeros(40, np.int64))
    top = top._replace(counts=np.array(top.counts))
    ring = pr.Ring(2, salt=1)
    everything = dict.fromkeys(range(40), 0)
    routers = {name: pr.Router(ring, everything) for name in ("in", "out")}
    plan = pr.colocate(top, 2, routers=routers)
    assert plan.locality_before == 1
    decision = Gate().decide(plan, 0)
    assert decision
    assert "(balance)" in decision.reason


def test_gate_sees_returns():
    one, two = pairs(1), pairs(2)
    gate = Gate(min_gain=0.0, cooldown=0, memory=3)
    first = pr.colocate(one, 4)
    assert gate.decide(first, 0)
    second = pr.colocate(two, 4, routers=first.routers, partitioner=())
    back = second.inverse() if second.changes else first.inverse()
    if second.changes:
        assert gate.decide(second, 1)
    assert "ping-pong" in gate.decide(back, 2).reason or back.assured_gain <= 0


def test_json():
    forecast = LocalityForecast(smoothing=0.25, memory=5)
    forecast.observe_promise(0.3, None)
    forecast.observe_promise(0.4, 0.7)
    read = LocalityForecast.from_json(forecast.to_json())
    assert read == forecast
    assert pickle.loads(pickle.dumps(forecast)) == forecast
    assert read.next_locality(0.5) == forecast.next_locality(0.5)
    assert "kept" in repr(read)
    document = json.loads(forecast.to_json())
    for name, wrong in (
        ("kept", -1),
        ("last", "x"),
        ("errors", [[2, 0]]),
        ("memory", 0),
        ("errors", [None] * 9),
    ):
        with pytest.raises(pr.FormatError):
            LocalityForecast.from_json(json.dumps({**document, name: wrong}))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: LocalityForecast(smoothing=1.0), ValueError),
        (lambda: LocalityForecast(smoothing="x"), TypeError),
        (lambda: LocalityForecast(memory=0), ValueError),
        (lambda: LocalityForecast().observe_promise(1.5, None), ValueError),
        (lambda: LocalityForecast().observe_promise(0.5, -0.1), ValueError),
        (lambda: LocalityForecast().next_locality(2), ValueError),
    ],
)
def test_bad_input_is_said(make, error):
    with pytest.raises(error, match=r"^\w+: expected .*, got "):
        make()
