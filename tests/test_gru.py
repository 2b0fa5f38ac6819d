"""The native forecast: its twin in plain NumPy, all SIMD paths, missing values, bad input."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from pyroute.control import Predictor
from reference.gru import forecast, sigmoid

pytestmark = pytest.mark.kernel


def weights_of(s):
    """How many weights one member has."""
    columns = s["machine"] + s["workers"] * s["features"]

    def stack(layers, inputs, hidden):
        return sum(
            3 * hidden * ((inputs if i == 0 else hidden) + hidden + 1) for i in range(layers)
        )

    total = 0
    if s["layers1"]:
        total += stack(s["layers1"], columns, s["hidden1"]) + s["width"] * (s["hidden1"] + 1)
    if s["layers2"]:
        read = s["own"] + s["common"] + s["relative"]
        inputs = read + (s["width"] if s["layers1"] else 0)
        one = stack(s["layers2"], inputs, s["hidden2"]) + s["hidden2"] + 1
        one += s["window"] * read if s["skip"] else 0
        total += one * (1 if s["shared"] else s["workers"])
    return total


def drawn(seed, **changes):
    """A model with random weights and scales."""
    s = {
        "window": 10,
        "machine": 3,
        "workers": 4,
        "features": 3,
        "own": 2,
        "common": 1,
        "layers1": 2,
        "hidden1": 20,
        "width": 3,
        "layers2": 2,
        "hidden2": 32,
        "members": 2,
        "shared": True,
        "residual": True,
        "skip": True,
        "relative": True,
        "elastic": False,
        "step": 5.0,
        "low": -4.0,
        "high": 4.0,
        **changes,
    }
    chance = np.random.default_rng(seed)
    columns = s["machine"] + s["features"] * (1 if s["elastic"] else s["workers"])
    scales = [
        (bool(i % 3 == 2), float(chance.uniform(0.5, 2)), float(chance.normal()),
         float(chance.uniform(0.3, 1)))
        for i in range(columns)
    ]  # fmt: skip
    weights = chance.normal(scale=0.3, size=s["members"] * weights_of(s)).astype(np.float32)
    names = [f"m{i}" for i in range(s["machine"])] + [f"f{i}" for i in range(s["features"])]
    return Predictor.make(s, names=names, scales=scales, weights=weights)


def window_of(predictor, seed, workers=None):
    s = predictor.sizes
    columns = s["machine"] + (workers or s["workers"]) * s["features"]
    return np.random.default_rng(seed).normal(1.0, 1.5, (s["window"], columns))


FLAT = {"layers2": 0, "hidden2": 0, "width": 4, "skip": False, "relative": False}
LEAN = {"layers1": 0, "hidden1": 0, "width": 0, "elastic": True}
PRINTED = {
    "residual": False,
    "skip": False,
    "relative": False,
    "own": 1,
    "common": 0,
    "low": 0.0,
    "high": 1.0,
    "members": 1,
}
VARIANTS = {
    "flat": {**FLAT, "residual": False},
    "flat residual": FLAT,
    "printed": PRINTED,
    "both": {},
    "lean": LEAN,
    "lean fixed": {**LEAN, "elastic": False},
    "not shared": {"shared": False},
    "lean not shared": {**LEAN, "elastic": False, "shared": False},
    "ten workers": {**PRINTED, "workers": 10, "hidden1": 32},
    "wide": {**LEAN, "hidden2": 50, "workers": 45},
    "narrow": {**LEAN, "hidden2": 1, "layers2": 1, "window": 1, "skip": False},
    "one": {**LEAN, "workers": 1, "members": 1, "hidden2": 16},
}


def assert_equal(predictor, window):
    output, result = forecast(predictor, window)
    np.testing.assert_allclose(predictor._core.outputs(window), output, rtol=0, atol=1e-5)
    s, scales = predictor.sizes, predictor._core.scales
    scale = scales[s["machine"]][3]
    if not scales[s["machine"]][0]:
        np.testing.assert_allclose(predictor.predict(window), result, rtol=0, atol=1e-5 / scale)
    else:
        np.testing.assert_allclose(predictor.predict(window), result, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_matches_reference(name):
    for seed in range(3):
        predictor = drawn(seed, **VARIANTS[name])
        assert_equal(predictor, window_of(predictor, seed))


sizes = st.fixed_dictionaries(
    {
        "window": st.integers(1, 12),
        "machine": st.integers(0, 3),
        "workers": st.integers(1, 23),
        "features": st.integers(1, 3),
        "layers2": st.integers(1, 2),
        "hidden2": st.integers(1, 40),
        "skip": st.booleans(),
        "relative": st.booleans(),
        "residual": st.booleans(),
    }
)


@given(sizes, st.integers(0, 3))
def test_any_sizes(sizes, seed):
    changes = {**LEAN, **sizes, "own": 1, "common": sizes["machine"], "members": 1}
    predictor = drawn(seed, **changes)
    assert_equal(predictor, window_of(predictor, seed))


@pytest.mark.parametrize("scale", [1, 30, 1e4, 1e30])
def test_large_values_stay_finite(scale):
    predictor = drawn(1, **LEAN, low=-1e30, high=1e30)
    window = scale * window_of(predictor, 1)
    assert np.isfinite(predictor._core.outputs(np.clip(window, -1e6, 1e6))).all()


def test_sigmoid_and_tanh_are_exact_enough():
    """Of a layer of one unit with weights that pass x on: h = z * c."""
    xs = np.concatenate([np.linspace(-30, 30, 4001), [-1e4, 1e4, 0.0]])
    for kind in ("z", "c"):
        weights = np.zeros(9)
        weights[1 if kind == "z" else 2] = 1.0  # W: r, z, c
        weights[6 + (2 if kind == "z" else 1)] = 40.0  # the other one is 1
        model = Predictor.make(
            {"layers2": 1, "hidden2": 1, "low": -1e9, "high": 1e9},
            names=["x"],
            weights=[*weights, 1.0, 0.0],
        )
        got = model._core.outputs(xs[None])
        exact = sigmoid(np.clip(xs, -700, 700)) if kind == "z" else np.tanh(xs)
        assert np.abs(got - exact).max() < 3e-7


def test_missing_is_filled():
    predictor = drawn(2)
    window = window_of(predictor, 2)
    whole = predictor.predict(window)
    holes = window.copy()
    holes[0, :] = np.nan
    holes[4, 3:6] = np.nan
    holes[7, 4] = np.inf
    assert np.isfinite(predictor.predict(holes)).all()
    assert_equal(predictor, holes)
    gone = window.copy()
    gone[:, 3] = np.nan  # the first worker's target
    found = predictor.predict(gone)
    assert np.isnan(found[0])
    assert np.isfinite(found[1:]).all()
    assert np.isnan(predictor.predict(np.full_like(window, np.nan))).all()
    assert np.array_equal(predictor.predict(window), whole)


def test_any_workers():
    predictor = drawn(3, **LEAN)
    window = window_of(predictor, 3, workers=90)
    every = predictor.predict(window)
    machine, features = predictor.sizes["machine"], predictor.sizes["features"]
    for w in (0, 1, 39, 40, 89):
        at = machine + w * features
        alone = np.concatenate([window[:, :machine], window[:, at : at + features]], axis=1)
        np.testing.assert_allclose(predictor.predict(alone), every[w : w + 1], atol=2e-5)


def test_paths_agree(tmp_path):
    """Every SIMD path of this machine gives the same up to rounding."""
    if os.environ.get("PYROUTE_SIMD"):
        pytest.skip("one path is forced")
    code = (
        "import json, sys, numpy as np; from pyroute.control import Predictor\n"
        "import pyroute as pr\n"
        "out = [Predictor.load(p)._core.outputs(np.load(w)).tolist()"
        " for p, w in json.loads(sys.argv[1])]\n"
        "print(json.dumps([pr.simd(), out]))"
    )
    files, here = [], []
    for seed, (name, variant) in enumerate(VARIANTS.items()):
        predictor = drawn(seed, **variant)
        path, window = tmp_path / f"{name}.weights", tmp_path / f"{name}.npy"
        predictor.save(path)
        np.save(window, window_of(predictor, seed))
        files.append([str(path), str(window)])
        here.append(predictor._core.outputs(np.load(window)))
    paths = ["portable", "avx2", "avx512"]
    for path in paths[: paths.index(pr.simd()) + 1]:
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(files)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYROUTE_SIMD": path},
        )
        assert done.returncode == 0, done.stderr
        name, there = json.loads(done.stdout)
        assert name == path
        for mine, theirs in zip(here, there, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-6)


def test_file(tmp_path):
    predictor, path = drawn(4), tmp_path / "model.weights"
    predictor.save(path)
    again = Predictor.load(path)
    window = window_of(predictor, 4)
    assert again == predictor
    assert np.array_equal(again.predict(window), predictor.predict(window))
    assert (again.target, again.features) == ("f0", ["f0", "f1", "f2"])
    assert again.machine == ["m0", "m1", "m2"]
    assert (again.window, again.workers, again.elastic) == (10, 4, False)
    assert "window=10" in repr(again)
    assert [p.name for p in tmp_path.iterdir()] == ["model.weights"]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(pr.FormatError, match=r"model\.weights.*expected"):
        Predictor.load(path)
    with pytest.raises(FileNotFoundError):
        Predictor.load(tmp_path / "none")


def test_bad_windows():
    predictor = drawn(5)
    window = window_of(predictor, 5)
    for wrong in (window[:-1], window[:, :-1], window[0], window[None], np.zeros((10, 0))):
        with pytest.raises(ValueError, match="window: expected"):
            predictor.predict(wrong)
    elastic = drawn(5, **LEAN)
    for columns in (0, 3, 4, 7):
        with pytest.raises(ValueError, match="window: expected"):
            elastic.predict(np.zeros((10, columns)))
    with pytest.raises(TypeError):
        predictor.predict("window")


@pytest.mark.parametrize(
    "changes",
    [
        *({"window": 0}, {"workers": 0}, {"own": 9}, {"common": 9}, {"hidden2": 0}, {"members": 0}),
        *({"layers1": 9}, {"width": 0}, {"elastic": True}, {"step": 0.0}, {"low": 5.0}),
        *({"low": float("nan")}, {"layers2": 0, "hidden2": 0}),
    ],
    ids=str,
)
def test_bad_sizes(changes):
    good = drawn(6)
    with pytest.raises(ValueError, match="expected"):
        Predictor.make(
            {**good.sizes, **changes},
            names=[*good.machine, *good.features],
            scales=good._core.scales,
            weights=good._core.weights,
        )


def test_bad_parts():
    good = drawn(6)
    parts = {"names": [*good.machine, *good.features], "scales": good._core.scales}
    weights = good._core.weights
    for wrong in (weights[:-1], np.append(weights, 1), weights * np.nan):
        with pytest.raises(ValueError, match="weights: expected"):
            Predictor.make(good.sizes, **parts, weights=wrong)
    for scales in (parts["scales"][1:], [(False, 1.0, 0.0, 0.0)] * len(parts["scales"])):
        with pytest.raises(ValueError, match="scales: expected"):
            Predictor.make(good.sizes, **{**parts, "scales": scales}, weights=weights)
    with pytest.raises(ValueError, match="names: expected 6, got 1"):
        Predictor.make(good.sizes, **{**parts, "names": ["a"]}, weights=weights)
    with pytest.raises(ValueError, match=r"sizes: expected .* got windw"):
        Predictor.make({"windw": 3}, names=["a"], weights=[])


def test_inputs_are_kept_and_threads_agree():
    predictor = drawn(7, **LEAN)
    windows = [window_of(predictor, seed, workers=1 + seed % 30) for seed in range(60)]
    copies = [window.copy() for window in windows]
    alone = [predictor.predict(window) for window in windows]
    wrong = []

    def work(offset):
        for i in range(len(windows)):
            j = (i * 7 + offset) % len(windows)
            if not np.array_equal(predictor.predict(windows[j]), alone[j]):
                wrong.append(j)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(np.array_equal(a, b) for a, b in zip(windows, copies, strict=True))
    other = np.asfortranarray(windows[3]).astype(np.float32)
    np.testing.assert_allclose(predictor.predict(other), alone[3], rtol=1e-4, atol=1e-4)
