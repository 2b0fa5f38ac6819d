"""A network and trees together: equal to what was trained, safe to read, no worse than it must."""

import contextlib
import struct
import zlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pyroute import FormatError
from pyroute.control.mixed import MAGIC, Mixed, Trees, load
from pyroute.control.predictor import Predictor

WINDOW, LAGS, FEATURES = 2, 4, 3


def network():
    """Says that nothing changes: all weights are 0."""
    sizes = {"window": WINDOW, "workers": 2, "features": FEATURES, "layers2": 1, "hidden2": 1}
    weights = np.zeros(3 * FEATURES + 3 + 3 + 3 + 2 + 50)
    for count in range(len(weights), 0, -1):
        try:
            return Predictor.make(sizes, names=["load", "a", "b"], weights=weights[:count])
        except (ValueError, FormatError):
            continue
    raise AssertionError


def trees(sets=1):
    """Adds 1 where the last target is above 10, else -1; the second tree adds 0.5 always."""
    shape = (sets, 2, 3)
    feature, left, right = (np.full(shape, -1, np.int16) for _ in range(3))
    threshold, value = np.zeros(shape), np.zeros(shape)
    feature[:, 0, 0], threshold[:, 0, 0], left[:, 0, 0], right[:, 0, 0] = 0, 10.0, 1, 2
    value[:, 0, 1:] = [-1.0, 1.0]
    value[:, 1, 0] = 0.5
    return Trees(LAGS, 2, np.zeros(sets), feature, threshold, left, right, value)


def window(*targets):
    matrix = np.zeros((LAGS, len(targets) * FEATURES))
    matrix[:, ::FEATURES] = targets
    return matrix


@pytest.mark.parametrize("sets", [1, 2])
def test_shares(sets):
    made = Mixed(network(), trees(sets), (0.25, 0.5))
    assert made.window == LAGS
    assert made.elastic == (sets == 1)
    assert made.predict(window(5.0, 20.0)).tolist() == [5.0 - 0.25, 20.0 + 0.75]


def test_missing_values():
    matrix = window(5.0, 20.0)
    matrix[-1] = np.nan
    made = Mixed(network(), trees(), (0.5, 0.5))
    assert made.predict(matrix).tolist() == [5.0 - 0.25, 20.0 + 0.75]
    matrix[:, FEATURES] = np.nan
    assert np.isnan(made.predict(matrix)[1])


def test_file(tmp_path):
    made = Mixed(network(), trees(), (0.25, 0.5))
    made.save(tmp_path / "m.weights")
    again = load(tmp_path / "m.weights")
    assert isinstance(again, Mixed)
    assert again.to_bytes() == made.to_bytes()
    assert again.predict(window(5.0, 20.0)).tolist() == made.predict(window(5.0, 20.0)).tolist()
    network().save(tmp_path / "n.weights")
    assert isinstance(load(tmp_path / "n.weights"), Predictor)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.weights", "n.weights"]


def test_torn_files():
    data = Mixed(network(), trees(), (0.25, 0.5)).to_bytes()
    for cut in range(0, len(data), 7):
        with pytest.raises(FormatError):
            Mixed.from_bytes(data[:cut])
    for at in range(0, len(data), 5):
        broken = bytearray(data)
        broken[at] ^= 0xFF
        if bytes(broken[6:8]) != data[6:8]:
            continue  # reserved
        with pytest.raises(FormatError):
            Mixed.from_bytes(bytes(broken))


def test_hostile_files():
    """With a right checksum: it decodes, or raises `FormatError`; it never loops."""
    data = Mixed(network(), trees(), (0.25, 0.5)).to_bytes()
    random = np.random.default_rng(0)
    head = struct.Struct("<4sHHIQ")
    for _ in range(300):
        body = bytearray(data[head.size :])
        for _ in range(random.integers(1, 4)):
            body[random.integers(len(body))] = random.integers(256)
        sealed = head.pack(MAGIC, 1, 0, zlib.crc32(bytes(body)), len(body)) + bytes(body)
        with contextlib.suppress(FormatError, ValueError):
            Mixed.from_bytes(sealed).predict(window(5.0, 20.0))


@pytest.mark.parametrize("names", [(), ("b", "a")])
def test_workers_by_name(names, tmp_path):
    """Trees of each worker alone: whose they are is told by the network's file."""
    sizes = {"window": 1, "workers": 2, "features": FEATURES, "layers1": 1, "hidden1": 1}
    sizes |= {"width": 2}
    weights = np.zeros(6 * 3 + 3 + 3 + 2 + 2)
    names_of = ["load", "a", "b"]
    flat = Predictor.make(sizes, names=names_of, weights=weights, worker_names=names)
    apart = trees(2)
    apart.base[:] = [100.0, 200.0]
    made = Mixed(flat, apart, (0.0, 1.0))
    made.save(tmp_path / "m.weights")
    again = load(tmp_path / "m.weights")
    assert again.worker_names == names
    assert again.to_bytes() == made.to_bytes()
    said = again.predict(SimpleNamespace(workers=("a", "b"), target=np.zeros((4, 2)),
                                         features={}, machines={}))  # fmt: skip
    assert said.tolist() == ([199.5, 99.5] if names else [99.5, 199.5])
    wrong = "b, a, got a, c" if names else "2 as it was trained on, got 3"
    with pytest.raises(ValueError, match=f"^workers: expected {wrong}"):
        again.order_of(["a", "c"] if names else ["a", "b", "c"])
    if names:  # the version says whether they are there
        head = bytearray(made.to_bytes())
        head[4] = 1
        with pytest.raises(FormatError, match="with version 2 alone"):
            Mixed.from_bytes(bytes(head))


def test_trees_that_do_not_end_are_refused():
    made = trees()
    for name, wrong in (("left", 0), ("right", 3), ("feature", 99)):
        array = getattr(made, name).copy()
        array[0, 0, 0] = wrong
        with pytest.raises(FormatError, match="expected nodes that lead on"):
            Mixed(network(), replace(made, **{name: array}), (0.5, 0.5))
    with pytest.raises(ValueError, match=r"^shares: expected"):
        Mixed(network(), made, (0.8, 0.3))


# training ---------------------------------------------------------------------------------------


def jumping(steps=900, workers=2, seed=0):
    """A target that jumps when another feature is above its mean: trees see it at once."""
    from pyroute.control.train import Frame

    random = np.random.default_rng(seed)
    other = random.random((steps, workers))
    target = np.zeros((steps, workers))
    for t in range(1, steps):
        jump = np.where(other[t - 1] > 0.5, 1.0, -1.0)
        target[t] = 0.5 * target[t - 1] + jump + 0.05 * random.standard_normal(workers)
    return Frame(np.stack([target, other], axis=2), ["load", "other"], np.empty((steps, 0)), [])


def test_trees_equal_those_of_scikit_learn():
    pytest.importorskip("sklearn")
    pytest.importorskip("equinox", reason="the extra train is missing")
    from sklearn.ensemble import HistGradientBoostingRegressor

    from pyroute.control.train.mixing import exported

    random = np.random.default_rng(1)
    x = random.random((500, 2, 7))
    models = []
    for worker in range(2):
        y = np.sin(5 * x[:, worker, 0]) + x[:, worker, 3] * (x[:, worker, 5] > 0.4)
        model = HistGradientBoostingRegressor(max_iter=30, max_leaf_nodes=15, random_state=0)
        models.append(model.fit(x[:, worker], y))
    found = exported(models, 4, 3).changes(x)
    for worker, model in enumerate(models):
        assert found[:, worker] == pytest.approx(model.predict(x[:, worker]), abs=1e-12)


def test_shares_are_the_best_on_rows_that_were_held_back():
    pytest.importorskip("equinox", reason="the extra train is missing")
    from pyroute.control.train.mixing import shares_of

    random = np.random.default_rng(2)
    last, change = np.zeros((400, 3)), random.standard_normal((400, 3))
    noise = random.standard_normal((400, 3))
    assert shares_of(change, noise, change, last) == (1.0, 0.0)
    assert shares_of(noise, change, change, last) == (0.0, 1.0)
    useless = shares_of(3 * noise, random.standard_normal((400, 3)), change, last)
    assert max(useless) <= 0.1  # persistence
    actual = change.copy()
    actual[::7] = np.nan
    one, two = change + 0.5 * noise, change + 0.5 * random.standard_normal((400, 3))
    both = shares_of(one, two, actual, last)
    assert both == pytest.approx((0.45, 0.45), abs=0.11)


def test_training(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("equinox", reason="the extra train is missing")
    from pyroute.control import train

    frame = jumping()
    config = train.Config(window=3, layers2=1, hidden2=4, members=2, blocks=4, batch=64)
    made = train.fit_mixed(frame[:700], config, seed=1)
    assert made.shares[1] > 0.5  # trees are what it takes here
    made.save(tmp_path / "m.weights")
    table = train.compare(frame, 700, {"mixed": [load(tmp_path / "m.weights")]}, baselines=())
    assert table.ratio("mixed")[0] < 0.35
    again = train.fit_mixed(frame[:700], config, seed=1)
    assert again.to_bytes() == made.to_bytes()
