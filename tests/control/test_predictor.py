"""The native forecast against JAX, and as the control loop uses it."""

import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pyroute import FormatError
from pyroute.control import Predictor
from pyroute.control._parts import seal
from pyroute.control.mixed import load
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


# names of workers ---------------------------------------------------------------------------------

GOLDEN = Path(__file__).parents[1] / "golden" / "weights"


def tiered(names=("a", "b", "c")):
    """A flat network of three workers whose forecasts differ by place."""
    sizes = {"window": 2, "workers": 3, "layers1": 1, "hidden1": 2, "width": 3}
    chance = np.random.default_rng(3)
    weights = chance.normal(size=3 * 6 + 2 * 6 + 6 + 2 * 3 + 3)
    return Predictor.make(sizes, names=["cpu"], weights=weights, worker_names=names)


def history_of(workers, target, **features):
    return SimpleNamespace(workers=workers, target=target, features=features, machines={})


def test_workers_are_taken_by_name():
    model = tiered()
    target = np.array([[1.0, 2.0, 3.0], [1.5, 1.0, 4.0]])
    said = model.predict(target)
    assert len(set(said.tolist())) == 3
    assert model.predict(history_of(("a", "b", "c"), target)).tolist() == said.tolist()
    for order in itertools.permutations(range(3)):
        names = tuple("abc"[at] for at in order)
        found = model.predict(history_of(names, target[:, order]))
        assert found.tolist() == said[list(order)].tolist()
    other = tiered(())  # by place, as files before had it
    assert other.predict(history_of(("c", "b", "a"), target)).tolist() == said.tolist()


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        (("a", "b", "d"), "workers: expected a, b, c, got a, b, d"),
        (("a", "b"), "workers: expected a, b, c, got a, b"),
        (("a", "b", "c", "d"), "workers: expected a, b, c, got a, b, c, d"),
    ],
)
def test_other_workers_are_refused(workers, message):
    target = np.ones((2, len(workers)))
    with pytest.raises(ValueError, match=f"^{message}$"):
        tiered().predict(history_of(workers, target))
    with pytest.raises(ValueError, match=f"^{message}$"):
        tiered().order_of(workers)
    if len(workers) != 3:  # without names the number alone can be seen
        with pytest.raises(ValueError, match=r"^workers: expected 3 as it was trained on, got"):
            tiered(()).predict(history_of(workers, target))


def test_of_many_workers_the_error_names_those_that_differ():
    names = [f"w{n}" for n in range(40)]
    sizes = {"window": 1, "workers": 40, "layers1": 1, "hidden1": 1, "width": 40}
    weights = np.zeros(40 * 3 + 3 + 3 + 40 + 40)
    model = Predictor.make(sizes, names=["cpu"], weights=weights, worker_names=names)
    with pytest.raises(ValueError, match=r"^workers: expected w7 and 39 more, got x and 39 more$"):
        model.order_of([*names[:7], "x", *names[8:]])


def test_an_elastic_model_takes_anybody():
    model = small()
    assert model.elastic
    assert model.order_of(["who", "ever", "comes"]) is None


def test_a_file_with_names(tmp_path):
    model = tiered()
    model.save(tmp_path / "m.weights")
    for again in (Predictor.load(tmp_path / "m.weights"), pickle.loads(pickle.dumps(model))):
        assert again == model
        assert again.worker_names == ("a", "b", "c")
        assert again.to_bytes() == model.to_bytes()
    assert tiered(("a", "c", "b")) != model
    assert tiered(()) != model
    assert tiered(()).to_bytes()[:4] == b"PYRT"  # without names nothing is new
    assert Predictor.from_bytes(tiered(()).to_bytes()).worker_names == ()


@pytest.mark.parametrize(
    "names", [("a", "b"), ("a", "b", "b"), ("a", "b", ""), ("a", "b", "c", "d"), "abc", (1, 2, 3)]
)
def test_wrong_names(names):
    with pytest.raises((TypeError, ValueError), match=r"^worker_names: expected"):
        tiered(names)


@pytest.mark.parametrize("name", ["named", "mixed", "mixed_named"])
def test_golden(name):
    """Files of a version are never written again: what is deployed stays readable."""
    data = (GOLDEN / f"{name}.bin").read_bytes()
    made = load(GOLDEN / f"{name}.bin")
    assert made.to_bytes() == data
    assert made.worker_names == (() if name == "mixed" else ("a", "b", "c"))
    begins = {"named": b"PYRW\1\0", "mixed": b"PYRM\1\0", "mixed_named": b"PYRM\2\0"}
    assert data[:6] == begins[name]


def test_torn_files_with_names():
    data = tiered().to_bytes()
    for cut in range(len(data)):
        with pytest.raises(FormatError, match="expected"):
            Predictor.from_bytes(data[:cut])
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x10
        with pytest.raises(FormatError, match="expected"):
            Predictor.from_bytes(bytes(broken))


@pytest.mark.parametrize(
    "about",
    [
        *(b"", b"[]", b"{}", b"[" * 100_000, b"\xff", b'{"workers": "abc"}', b'{"workers": []}'),
        *(b'{"workers": {"a": 1}}', b'{"workers": ["a", "b"]}', b'{"workers": ["a", "b", "b"]}'),
        *(b'{"workers": ["a", "b", null]}', b'{"workers": null}', b'{"workers": 3}'),
    ],
)
def test_hostile_names_under_a_right_checksum(about):
    kernel = tiered(()).to_bytes()
    with pytest.raises(FormatError, match="expected"):
        Predictor.from_bytes(seal(b"PYRW", 1, [about, kernel]))
    with pytest.raises(FormatError, match="expected"):
        Predictor.from_bytes(seal(b"PYRW", 1, [b'{"workers": ["a", "b", "c"]}', about]))
