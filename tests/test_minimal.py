"""The one file that every wheel runs: NumPy and pytest alone, nothing of the repository."""

import importlib.util
import pickle
import sys

import numpy as np
import pytest

import pyroute as pr
from pyroute import _hotpath, _storm_loop


def test_modules_are_there():
    assert pr.simd() in ("portable", "avx2", "avx512")
    assert _hotpath.OneRecord
    assert _storm_loop.Splicer
    assert importlib.util.find_spec("spark_udf") is not None


def test_spark_part_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    for name in [name for name in sys.modules if name.partition(".")[0] == "spark_udf"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="pip install 'pyroute-core"):
        importlib.import_module("spark_udf")


def test_identity_is_sparks():
    assert pr.keys([5]).ids.view(np.int64).tolist() == [6251837290343458373]
    assert pr.keys(["a"]).ids.view(np.int64).tolist() == [-8582455328737087284]
    assert pr.keys(["a"], [5]).ids.view(np.int64).tolist() == [-4521660676022616110]


def test_loop():
    stream = np.random.default_rng(0).zipf(1.5, 10_000) % 100
    hot = pr.SpaceSaving(20)
    hot.observe(stream)
    exact = np.bincount(stream)
    top = hot.top(5)
    assert top.values[0] == exact.argmax()
    assert top.counts[0] == exact.max()
    router = pr.Router(4, table=dict.fromkeys(top.values, 3))
    assert set(router.route(top.values).tolist()) == {3}
    assert router.route_one(top.values[0]) == 3
    assert pickle.loads(pickle.dumps(router)) == router
    stats = pr.KeyStats()
    stats.observe(stream)
    plan = pr.rebalance(stats.close_interval(), router)
    assert plan.level_after <= plan.level_before
    assert np.bincount(router.apply(plan).route(stream), minlength=4).tolist() == (
        plan.loads_after.tolist()
    )


def test_bad_input_is_said():
    with pytest.raises(ValueError, match="capacity: expected 1 to 2\\^28, got 0"):
        pr.SpaceSaving(0)
    with pytest.raises(TypeError, match="values: expected integers"):
        pr.keys(np.array([0.5]))
