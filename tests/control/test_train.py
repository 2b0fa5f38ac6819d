"""Training: it learns, it can be stopped, baselines are what they say, and the command works."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

for name in ("jax", "equinox", "optax", "statsmodels", "sklearn"):
    pytest.importorskip(name, reason=f"{name} is missing: pip install 'pyroute-core[train]'")

from click.testing import CliRunner  # noqa: E402

from pyroute.cli.commands import of_function  # noqa: E402
from pyroute.control import Predictor, train  # noqa: E402
from pyroute.control.mixed import load  # noqa: E402
from pyroute.control.train import baselines, command, fitting, table  # noqa: E402
from pyroute.control.train.frame import PAUSE  # noqa: E402

QUICK = train.Config(
    window=6, layers2=1, hidden2=8, members=1, blocks=12, block=15, batch=64, patience=12, rate=1e-2
)


def waves(steps=400, seed=0):
    """Two workers with a period each and some noise, and a feature that runs ahead of them."""
    chance = np.random.default_rng(seed)
    t = np.arange(steps)
    rows = []
    for period in (11, 17):
        clean = 50 + 20 * np.sin(2 * np.pi * t / period)
        ahead = 50 + 20 * np.sin(2 * np.pi * (t + 1) / period)
        rows.append(np.stack([clean + chance.normal(scale=2, size=steps), ahead], 1))
    return train.Frame(np.stack(rows, 1), ["cpu", "hint"], t[:, None] * 0.0, ["load"], 0.5)


def ratio(predictor, frame, start):
    found = table.Native(predictor).one_step(frame, start)
    last = table.persistence(frame, start)
    actual = frame.target[start:]
    return table.errors(found, actual).mean() / table.errors(last, actual).mean()


@pytest.fixture(scope="module")
def learnt():
    return train.fit(waves()[:300], QUICK, seed=1)


def test_beats_persistence(learnt):
    predictor = learnt.predictor()
    assert ratio(predictor, waves(), 300) < 0.6
    assert (predictor.target, predictor.features) == ("cpu", ["cpu", "hint"])
    assert (predictor.machine, predictor.step, predictor.elastic) == (["load"], 0.5, True)


def test_equal_input_gives_an_equal_model(learnt):
    again = train.fit(waves()[:300], QUICK, seed=1)
    assert again.predictor().to_bytes() == learnt.predictor().to_bytes()
    other = train.fit(waves()[:300], replace(QUICK, blocks=12), seed=2)
    assert other.predictor().to_bytes() != learnt.predictor().to_bytes()


@pytest.mark.parametrize("after", [1, 7])
def test_stopped_training_goes_on_to_the_same_model(after, learnt, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting._Keeper, "EVERY", 0.0)
    path, seen = tmp_path / "train.part", []

    def stop(progress):
        seen.append(progress.block)
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train.fit(waves()[:300], QUICK, seed=1, checkpoint=path, progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["train.part"]
    with pytest.raises(ValueError, match="expected a checkpoint of these readings"):
        train.fit(waves()[:300], QUICK, seed=2, checkpoint=path)
    model = train.fit(
        waves()[:300], QUICK, seed=1, checkpoint=path, progress=lambda p: seen.append(p.block)
    )
    assert seen == [*range(1, after + 1), *range(after + 1, len(seen) + 1)]
    assert model.predictor().to_bytes() == learnt.predictor().to_bytes()
    assert not list(tmp_path.iterdir())


def test_torn_checkpoint_is_said(tmp_path):
    path = tmp_path / "train.part"
    path.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(ValueError, match=r"train\.part: expected a checkpoint"):
        train.fit(waves()[:300], QUICK, checkpoint=path)


def test_early_stopping_ends_and_keeps_the_best():
    """What cannot be learnt: no gain for `patience` blocks, long before the last one."""
    noise = train.Frame.of(np.random.default_rng(4).normal(size=(200, 2)))
    blocks = []
    config = replace(QUICK, blocks=200, patience=4, residual=False, rate=3e-2)
    model = train.fit(noise, config, seed=1, progress=lambda now: blocks.append(now))
    history = model.history[0]
    at = int(np.argmin(history["validation"]))
    assert len(blocks) == len(history["validation"]) == at + 1 + 4 < 200
    assert history["best"] == history["validation"][at] < history["validation"][-1]


def test_refit_and_missing_readings():
    frame = waves(260)
    workers = frame.workers.copy()
    workers[50:60, 0] = np.nan
    workers[:20, 1, 1] = np.nan
    holes = replace(frame, workers=workers)
    model = train.fit(holes[:200], replace(QUICK, refit=True), seed=1)
    assert ratio(model.predictor(), holes, 200) < 0.8


@pytest.mark.parametrize("order", ["last", "spread", "random"])
def test_validation_rows_are_not_trained_on(order):
    frame = waves(300)
    config = replace(QUICK, order=order, validation=0.2)
    scales = fitting.scales_of(frame, config)
    data = fitting._data(frame, config, scales, -4.0, 4.0)
    for member in range(3):
        training, held = fitting._split(data, config, member, 0)
        seen, kept = set(training[:, 0].tolist()), set(held[:, 0].tolist())
        assert not seen & kept
        assert len(kept) == pytest.approx(0.2 * 294, abs=12)
        if order == "last":
            assert min(kept) > max(seen)
        if order == "spread":  # a window of one side never reaches into the rows of the other
            assert not any({*range(t - config.window, t)} & kept for t in seen)


def test_scales_are_of_the_rows_that_were_given():
    frame = waves(300)
    printed = train.Config.printed(window=6)
    scales = fitting.scales_of(frame, printed)
    assert len(scales) == 1 + 2 * 2
    ready = fitting.scaled(frame.matrix, scales, 0.0, 1.0)
    assert ready[:, 1:].min() == 0.0
    assert ready[:, 1:].max() == 1.0
    assert fitting.scaled(10 * frame.matrix, scales, 0.0, 1.0).max() == 1.0
    logged = train.Config(window=6, log=("cpu",))
    assert fitting.scales_of(frame, logged)[1][0]


def test_too_few_rows():
    with pytest.raises(ValueError, match="expected 18 steps or more, got 10"):
        train.fit(waves(10), QUICK)


# -- baselines


def test_baselines_are_what_they_say():
    chance = np.random.default_rng(3)
    values = np.zeros((500, 2))
    for t in range(2, 500):
        values[t] = 0.5 * values[t - 1] - 0.6 * values[t - 2] + chance.normal(size=2)
    frame = train.Frame.of(values, target="x")
    found = train.compare(frame, 400, {}, lags=4, horizon=5, runs=4)
    assert [row.name for row in found.rows] == list(baselines.BASELINES)
    rmse = {row.name: row.rmse[0] for row in found.rows}
    actual = values[400:]
    assert rmse["persistence"] == pytest.approx(
        np.sqrt(((values[399:-1] - actual) ** 2).mean(0)).mean()
    )
    mean = values[:400].mean(0)
    assert rmse["mean"] == pytest.approx(np.sqrt(((mean - actual) ** 2).mean(0)).mean())
    noise = np.sqrt(((0.5 * values[399:-1] - 0.6 * values[398:-2] - actual) ** 2).mean(0)).mean()
    for name in ("AR", "ARIMA"):
        assert rmse[name] == pytest.approx(noise, rel=0.06)
    for name in ("SVR", "boosting", "boosting+"):
        assert noise * 0.94 < rmse[name] < rmse["persistence"]
    assert all(len(row.free) == 1 and np.isfinite(row.free[0]) for row in found.rows)
    assert found.ratio("persistence") == [1.0]


def test_free_run_sees_nothing_of_what_comes(learnt):
    frame = waves(360)
    changed = replace(frame, workers=frame.workers.copy())
    changed.workers[330:] = 1e6
    for made in (
        table.Native(learnt.predictor()),
        baselines.autoregression(frame[:300], 6),
        baselines.BoostingPlus(frame[:300], 6),
        baselines.Persistence(),
    ):
        runs = [made.free_run(each, [320, 330], 8) for each in (frame, changed)]
        assert runs[0].shape == (2, 8, 2)
        np.testing.assert_array_equal(runs[0][1], runs[1][1])
    one = table.Native(learnt.predictor())
    np.testing.assert_allclose(one.free_run(frame, [320], 1)[0, 0], one.one_step(frame, 320)[0])


# -- readings


def test_reads_files(tmp_path):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rows = pa.table(
        {
            "ts": [0.0, 0.2, 10.0, 10.1, 30.0],
            "worker": ["b", "a", "a", "b", "a"],
            "cpu": [1, 2, 3, 4, 5],
            "net": [0.5, None, 1.5, 2.5, 3.5],
            "load": [7.0, 9.0, 1.0, 1.0, 2.0],
            "label": list("uvwxy"),
        }
    )
    pa.parquet.write_table(rows, tmp_path / "r.parquet")
    pa.csv.write_csv(rows, tmp_path / "r.csv")
    nan = np.nan
    for file in ("r.parquet", "r.csv"):
        frame = train.read(tmp_path / file, target="cpu", machine=["load"], step=10)
        assert (frame.names, frame.features, frame.columns) == (
            ["a", "b"],
            ["cpu", "net"],
            ["load"],
        )
        np.testing.assert_array_equal(frame.target, [[2, 1], [3, 4], [nan, nan], [5, nan]])
        np.testing.assert_array_equal(frame.workers[:, 0, 1], [nan, 1.5, nan, 3.5])
        np.testing.assert_array_equal(frame.machine[:, 0], [8, 1, nan, 2])
    with pytest.raises(ValueError, match="gpu: expected a column of"):
        train.read(rows, target="gpu")
    with pytest.raises(ValueError, match="label: expected numbers"):
        train.read(rows, target="label")
    with pytest.raises(ValueError, match="step: expected"):
        train.read(rows, target="cpu", step=1e-9)
    with pytest.raises(ValueError, match="expected rows"):
        train.read(rows[:0], target="cpu")
    with pytest.raises(FileNotFoundError, match="expected a file"):
        train.read(tmp_path / "none.parquet", target="cpu")


def test_reads_a_store(tmp_path):
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is missing")
    store = pytest.importorskip("pyroute.control.store", reason="there is no store")
    place = tmp_path / "samples.db"
    with_rows = store.Store.open(place)
    for t in range(40):
        with_rows.write(
            [
                store.Sample(1000.0 + t, "h", "", {"cpu_percent": 50.0}),
                store.Sample(1000.0 + t, "h", "w1", {"service_ms": 5.0 + t % 2}),
                store.Sample(1000.0 + t, "h", "w2", {"service_ms": 7.0, "cpu_percent": 1.0}),
            ],
            received=1000.0 + t,
        )
    with_rows.close()
    frame = train.from_store(str(place), target="service_ms", machine=["cpu_percent"])
    assert (frame.names, frame.step, len(frame)) == (["w1", "w2"], 1.0, 40)
    assert frame.features == ["service_ms", "cpu_percent"]
    assert set(frame.machine[:, 0]) == {50.0}
    assert frame.target[:3].tolist() == [[5, 7], [6, 7], [5, 7]]
    with pytest.raises(ValueError, match="queue: expected one of"):
        train.from_store(str(place), target="queue")


def stored(place, times):
    """A store in which two workers wrote at these times."""
    from pyroute.control.store import Sample, Store

    with Store.open(place, retention=None) as store:
        for number, when in enumerate(times):
            samples = [
                Sample(when, "h", name, {"service_ms": 5 + np.sin(number / 3)}) for name in "ab"
            ]
            store.write(samples, received=when)
    return str(place)


@pytest.mark.parametrize("pause", [-5 * 3600.0, 5 * 3600.0, 400 * 86400.0])
def test_a_pause_is_not_most_of_what_is_trained_on(pause, tmp_path):
    """Of a clock that was set back or forward, or of nights without control."""
    late = pause * (np.arange(300) >= 150)
    place = stored(tmp_path / "control.db", 1e9 + np.arange(300) + late)
    frame = train.from_store(place, target="service_ms")
    assert len(frame) == 299 + PAUSE
    assert np.isfinite(frame.target).sum() == 600
    done = call(
        *(place, "-o", tmp_path / "x.weights", "--window", 6, "--layers", 1, "--hidden", 4),
        *("--members", 1, "--blocks", 2, "--no-baselines", "--quiet"),
    )
    assert done.exit_code == 0, done.output


def test_only_the_last_seconds(tmp_path):
    place = stored(tmp_path / "control.db", np.arange(100.0))
    assert len(train.from_store(place, target="service_ms", last=39.0)) == 40


TINY = {"window": 4, "hidden1": 2, "layers1": 1, "blocks": 1, "block": 2, "batch": 16}


def test_a_model_knows_its_workers_where_it_depends_on_them(tmp_path):
    frame = train.from_store(stored(tmp_path / "control.db", np.arange(60.0)), target="service_ms")
    flat = train.fit(frame, train.Config.flat(**TINY)).predictor()
    assert (flat.worker_names, flat.elastic) == (("a", "b"), False)
    two = train.fit(frame, train.Config.printed(**TINY, layers2=1, hidden2=2)).predictor()
    assert two.worker_names == ("a", "b")
    apart = {"layers1": 0, "hidden1": 0, "shared": False, "members": 1}
    mixed = train.fit_mixed(frame, train.Config(**{**TINY, **apart, "blocks": 2}))
    mixed.save(tmp_path / "m.weights")
    assert load(tmp_path / "m.weights").worker_names == ("a", "b")
    assert train.fit(frame, QUICK).predictor().worker_names == ()  # of anybody
    nameless = train.fit(train.Frame.of(frame.target), train.Config.flat(**TINY)).predictor()
    assert nameless.worker_names == ()


@pytest.mark.parametrize("source", ["store", "file"])
def test_only_some_workers(source, tmp_path):
    """Others in the same store are none of the edge that is to be forecast."""
    if source == "store":
        place = stored(tmp_path / "control.db", np.arange(60.0))
        take, target = train.from_store, "service_ms"
    else:
        place, target = tmp_path / "readings.csv", "cpu"
        place.write_text("ts,worker,cpu\n" + "".join(f"{t},a,1\n{t},b,{t}\n" for t in range(60)))
        take = train.read
    frame = take(place, target=target, only=["b"])
    assert (list(frame.names), frame.workers.shape) == (["b"], (60, 1, 1))
    with pytest.raises(ValueError, match=r"^workers: expected some of a, b, got c, d$"):
        take(place, target=target, only=["b", "c", "d"])
    words = ("--window", 4, "--layers", 1, "--hidden", 2, "--blocks", 1, "--members", 1)
    words = (*words, "--target", target, "--kind", "flat", "--no-baselines", "--quiet")
    done = call(place, "-o", tmp_path / "x.weights", *words, "--only", "a")
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "x.weights").worker_names == ("a",)
    done = call(place, "-o", tmp_path / "x.weights", *words, "--only", "c")
    assert done.exit_code == 2
    assert done.stderr == "pyroute train: workers: expected some of a, b, got c\n"


@pytest.mark.parametrize("kind", ["empty", "foreign", "nothing"])
def test_what_is_no_store_is_said_and_not_changed(kind, tmp_path):
    import sqlite3

    place = tmp_path / "x.db"
    if kind == "empty":
        stored(place, [])
    elif kind == "foreign":
        with sqlite3.connect(place) as other:
            other.execute("CREATE TABLE mine (a)")
        other.close()
    else:
        place.touch()
    before = place.read_bytes()
    done = call(place, "-o", tmp_path / "x.weights")
    assert done.exit_code == 2
    wanted = "expected samples, got none" if kind == "empty" else "expected a store of control"
    assert wanted in done.stderr
    assert place.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"x.db"}


# -- the command


@pytest.fixture
def file(tmp_path):
    frame = waves(240)
    lines = ["ts,worker,cpu,hint"]
    for t in range(len(frame)):
        lines += [
            f"{t * 0.5},w{w},{frame.workers[t, w, 0]},{frame.workers[t, w, 1]}" for w in (0, 1)
        ]
    path = tmp_path / "readings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def call(*arguments):
    return CliRunner().invoke(
        of_function("train", command.train), [str(argument) for argument in arguments]
    )


def options(file, out):
    return (
        *(file, "-o", out, "--target", "cpu", "--window", 6, "--layers", 1, "--hidden", 8),
        *("--members", 1, "--blocks", 6, "--no-baselines", "--quiet"),
    )


def test_command(file, tmp_path, monkeypatch):
    out = tmp_path / "cpu.weights"
    done = call(*options(file, out), "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [row["name"] for row in told["rows"]] == ["persistence", "better"]
    assert told["to_persistence"] == pytest.approx(
        told["rows"][1]["rmse"] / told["rows"][0]["rmse"]
    )
    first = out.read_bytes()
    assert Predictor.load(out).predict(np.ones((6, 4))).shape == (2,)

    monkeypatch.setattr(fitting._Keeper, "EVERY", 0.0)
    for stop_in, stop_after in ((0, 2), (1, 3)):  # while judging, and in the last training
        calls = []

        def stopped(*rest, progress=None, calls=calls, stop_in=stop_in, at=stop_after, **named):
            calls.append(1)

            def shown(now):
                if len(calls) - 1 == stop_in and now.block == at:
                    raise KeyboardInterrupt

            return fitting.fit(*rest, progress=shown, **named)

        out.unlink()
        with monkeypatch.context() as patch:
            patch.setattr(command, "fit", stopped)
            done = call(*options(file, out))
        assert done.exit_code == 2
        assert done.stderr == "pyroute train: stopped; the same command goes on where it was\n"
        assert not out.exists()
        done = call(*options(file, out))
        assert done.exit_code == 0, done.output
        assert "persistence on the latest rows" in done.stdout
        assert out.read_bytes() == first
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"readings.csv", "cpu.weights"}


SLOW = """
import sys, time
from pyroute.control.train import fitting
save = fitting._Keeper.save
def slow(*rest, **named):
    save(*rest, **named)
    time.sleep(0.5)
fitting._Keeper.EVERY, fitting._Keeper.save = 0.0, slow
sys.argv[0] = "pyroute"
from pyroute.cli import main
main()
"""


def test_ctrl_c(file, tmp_path):
    """What is left is whole, and the same command goes on from it."""
    out, once = tmp_path / "cpu.weights", tmp_path / "once.weights"
    words = [str(word) for word in options(file, out)]
    kept = tmp_path / "cpu.weights.judged.part"
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, "train", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 200
        while not kept.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        told, err = process.communicate(timeout=200)
    assert (process.returncode, told) == (2, ""), err
    assert err == "pyroute train: stopped; the same command goes on where it was\n"
    assert {path.name for path in tmp_path.iterdir()} == {"readings.csv", kept.name}
    with np.load(kept) as state:
        assert json.loads(str(state["about"]))["members"]["0"]["block"] in (1, 2)
    for place in (out, once):
        done = call(*options(file, place))
        assert done.exit_code == 0, done.output
    assert out.read_bytes() == once.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"readings.csv", out.name, once.name}


def test_command_of_a_mixed_model(file, tmp_path):
    out = tmp_path / "cpu.weights"
    done = call(*options(file, out), "--kind", "mixed", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [row["name"] for row in told["rows"]] == ["persistence", "mixed"]
    assert (told["target"], told["window"], told["workers"]) == ("cpu", 10, 2)
    assert load(out).predict(np.ones((10, 4))).shape == (2,)
    assert {path.name for path in tmp_path.iterdir()} == {"readings.csv", "cpu.weights"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.parquet"], "expected a file"),
        (["none.db"], "expected a store"),
        (["{file}", "--target", "gpu"], "gpu: expected a column of"),
        (["{file}", "--target", "cpu", "--kind", "best"], "--kind: expected better"),
        (["{file}", "--target", "cpu", "--log", "x"], "--log: expected one of"),
        (["{file}", "--target", "cpu", "--window", 100], "rows: expected more than"),
        (["{file}", "--target", "cpu", "--step", -1], "step: expected a number > 0"),
        (["{file}", "--target", "cpu", "--last", 60], "--last: expected a store"),
    ],
)
def test_command_refuses_in_one_line(file, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = call(*(str(a).format(file=file) for a in arguments))
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"readings.csv"}
