"""Periodic retraining as `pyroute control --retrain` does it: a real store, a real training."""

import contextlib
import math
import tempfile
import time

import pytest

for name in ("typer", "jax", "equinox", "optax", "sklearn"):
    pytest.importorskip(name, reason=f"{name} is missing: pip install 'pyroute-core[train]'")

from pyroute.control import Loop, Store, edge_name  # noqa: E402
from pyroute.control.backtest import Backtest  # noqa: E402
from pyroute.control.command import Trainer  # noqa: E402
from pyroute.control.mixed import Mixed  # noqa: E402
from pyroute.control.store import Sample  # noqa: E402

WORKERS = ("w0", "w1", "w2")
SMALL = ("--window", "5", "--layers", "1", "--hidden", "4", "--members", "1", "--blocks", "8")
EVERY = 240.0  # seconds of the loop's clock


class World:
    """Workers whose times go up and down, each at its own pace; the clock is turned by hand."""

    def __init__(self, store):
        self.ticks, self.statuses = 0.0, []
        self.loop = Loop(
            edge_name("demo", "source", "work"),
            WORKERS,
            [self.collect],
            store=store,
            backtest=Backtest(window=60, least=20),
            retrain_every=EVERY,
            clock=lambda: 1e9 + self.ticks,
            ticks=lambda: self.ticks,
        )

    def service_ms(self, worker, ticks):
        return 20.0 + 10.0 * math.sin(ticks / (2.0 + worker))

    def collect(self):
        when = 1e9 + self.ticks
        samples = [
            Sample(when, "h", name, {"service_ms": self.service_ms(n, self.ticks), "backlog": 0.0})
            for n, name in enumerate(WORKERS)
        ]
        # Another one in the same store, of another edge.
        noise = {"service_ms": 1e5 * abs(math.sin(self.ticks**2)), "backlog": 0.0}
        return [*samples, Sample(when, "h", "elsewhere", noise)]

    def turn(self):
        self.statuses.append(self.loop.step())
        self.ticks += 1.0
        return self.statuses[-1]

    def trained(self, store, by):
        """Turn until the next training is over; what was said of its model, and the turns."""
        self.loop._retrain, self.loop._retrain_every = by.train, EVERY
        said = len(verdicts(store))
        while self.loop._training is None:
            self.turn()
        self.loop._retrain_every = math.inf  # this one alone
        deadline, turns = time.monotonic() + 240, 0
        while len(verdicts(store)) == said:
            status = self.turn()
            assert "training" not in status.problems, status.problems
            turns += self.loop._training is not None and self.loop._training.is_alive()
            time.sleep(0.05)
            assert time.monotonic() < deadline
        return verdicts(store)[-1], turns


def verdicts(store):
    return [text for _, kind, text in store.events() if kind == "training"]


def test_a_better_model_is_taken_and_a_worse_one_is_not(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    place = str(tmp_path / "readings")  # whatever the name ends in
    with Store.open(place) as store, contextlib.ExitStack() as stack:
        world = World(store)
        assert world.turn().why == "persistence: no forecast"
        good = stack.enter_context(contextlib.closing(Trainer(place, *SMALL)))
        said, turns = world.trained(store, good)
        assert said.endswith("the one before inf; taken")
        assert turns > 0  # it went on meanwhile
        assert all(status.source == "persistence" for status in world.statuses[:-1])
        taken = world.loop.model
        assert isinstance(taken, Mixed)
        assert (taken.target, taken.elastic) == ("service_ms", True)
        errors, before = [], []  # of the forecasts, and of the last values
        for _ in range(20):
            status = world.turn()
            assert (status.source, status.problems) == ("forecast", {})
            for n, name in enumerate(WORKERS):
                now, then = (world.service_ms(n, world.ticks - ago) for ago in (0.0, 1.0))
                errors.append(status.workers[name]["forecast_ms"] - now)
                before.append(then - now)
        assert math.hypot(*errors) < 0.5 * math.hypot(*before)
        assert store.forecasts()[-1].source == "forecast"

        words = (*SMALL, "--kind", "flat", "--blocks", "1")
        bad = stack.enter_context(contextlib.closing(Trainer(place, *words)))
        said, _ = world.trained(store, bad)
        assert said.endswith("; not taken")
        assert world.loop.model is taken
        status = world.turn()
        assert (status.source, status.problems) == ("forecast", {})
    assert list((tmp_path / "temporary").iterdir()) == []
