"""The native forecast against JAX, and as the control loop uses it."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pyroute.control import Predictor
from pyroute.control.predictor import write_whole
from reference.gru import forecast


def test_matches_jax():
    pytest.importorskip("jax", reason="jax is missing: pip install 'pyroute-core[train]'")
    from pyroute.control import train

    chance = np.random.default_rng(5)
    frame = train.Frame(
        chance.gamma(2.0, 3.0, (80, 4, 2)), ["a", "b"], chance.normal(size=(80, 2)), ["m", "n"], 2.0
    )
    quick = {"blocks": 2, "block": 3, "members": 2, "window": 6}
    for config in (
        train.Config.flat(**quick),
        train.Config.printed(**quick),
        train.Config(**quick, log=("a",)),
        train.Config(**quick, layers1=1, hidden1=8, width=2, shared=False),
    ):
        model = train.fit(frame, config, seed=3)
        predictor = model.predictor()
        assert predictor.step == 2.0
        for t in range(6, 80, 7):
            window = frame.matrix[t - 6 : t]
            outputs, result = forecast(predictor, window)
            np.testing.assert_allclose(
                predictor._core.outputs(window), model.outputs(window), rtol=0, atol=1e-5
            )
            np.testing.assert_allclose(outputs, model.outputs(window), rtol=0, atol=1e-5)
            for found in (predictor.predict(window), result):
                np.testing.assert_allclose(found, model.predict(window), rtol=2e-5, atol=1e-4)


def test_needs_no_jax(tmp_path):
    path = tmp_path / "m.weights"
    small().save(path)
    code = (
        "import sys\n"
        "for name in ('jax', 'equinox', 'optax', 'sklearn', 'statsmodels'):\n"
        "    sys.modules[name] = None\n"
        "from pyroute import control\n"
        f"print(control.Predictor.load({str(path)!r}).window)\n"
        "try:\n"
        "    control.train.fit\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3\n")
    assert "pip install 'pyroute-core[train]'" in done.stdout


def small():
    """The last change of the target again, half of it; and a tenth of the load."""
    skip = np.zeros((3, 3))  # steps x (target, rate, load)
    skip[1, 0], skip[2, 0], skip[2, 2] = -0.5, 0.5, 0.1
    return Predictor.make(
        {"window": 3, "machine": 1, "features": 2, "layers2": 1, "hidden2": 1, "skip": True},
        names=["load", "service", "rate"],
        weights=[*np.zeros(3 * 3 + 3 + 3), 0.0, 0.0, *skip.ravel()],
    )


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path):
    """And no half of a new one."""
    path = tmp_path / "m.weights"
    small().save(path)
    code = (
        "import resource, sys\n"
        "from pyroute.control import Predictor\n"
        f"model = Predictor.load({str(path)!r})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try:\n"
        f"    model.save({str(path)!r})\n"
        "except OSError as error:\n"
        "    print(error)\n"
    )
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "too large" in done.stdout, done.stderr
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["m.weights"]


def test_takes_a_history_by_name():
    predictor = small()
    target = np.array([[9.0, 9.0], [1.0, 5.0], [2.0, 5.0], [3.0, 7.0]])
    history = SimpleNamespace(
        target=target,
        features={"rate": np.ones((4, 2)), "other": np.full((4, 2), 1e9)},
        machines={"load": np.array([0.0, 0.0, 0.0, 10.0])},
    )
    assert predictor.predict(history).tolist() == pytest.approx([4.5, 9.0])
    window = predictor.window_of(history)
    assert window.tolist() == [[0, 1, 1, 5, 1], [0, 2, 1, 5, 1], [10, 3, 1, 7, 1]]
    history.machines = {}  # what is missing is as usual: 0 of its scale
    assert predictor.predict(history).tolist() == pytest.approx([3.5, 8.0])
    history.target, history.features = target[-1:], {}
    assert predictor.predict(history).tolist() == pytest.approx([3.0, 7.0])
    history.target = np.array([[3.0, np.nan]])
    assert np.isnan(predictor.predict(history)).tolist() == [False, True]


def test_two_writers_of_one_file(tmp_path, monkeypatch):
    """Each has a file of its own beside it: what is there is one of them, whole."""
    inner = type(tmp_path).write_bytes

    def slow(path, data):
        if data == b"first" * 100:
            write_whole(tmp_path / "x", b"second" * 100)
        return inner(path, data)

    monkeypatch.setattr(type(tmp_path), "write_bytes", slow)
    seen = []
    replace = type(tmp_path).replace
    monkeypatch.setattr(
        type(tmp_path), "replace", lambda path, to: (seen.append(path), replace(path, to))[1]
    )
    write_whole(tmp_path / "x", b"first" * 100)
    assert len(set(seen)) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"first" * 100
