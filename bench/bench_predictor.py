"""How long does one forecast take, for all workers of a machine?"""

import numpy as np
import pytest

from pyroute.control import Predictor

SIZES = {
    # hidden units, layers of tier 1 and tier 2, columns of the machine and of a worker
    "printed": {"layers1": 2, "hidden1": 32, "width": 3, "layers2": 2, "hidden2": 32, "own": 1},
    "lean_2_layers": {"layers2": 2, "hidden2": 32, "skip": True},
    "lean_1_layer": {"layers2": 1, "hidden2": 32, "skip": True},
}


def weights_of(sizes: dict[str, int], workers: int) -> int:
    """How many weights a network has, from the message of one that has none."""
    try:
        make(sizes, workers, np.empty(0))
    except ValueError as error:
        return int(str(error).split("expected ")[1].split(",")[0])
    raise AssertionError


def make(sizes: dict[str, int], workers: int, weights: np.ndarray) -> Predictor:
    names = ["load", "offered", "cpu", "rate", "queue"]
    full = {"window": 10, "machine": 2, "workers": workers, "features": 3, "common": 0, **sizes}
    return Predictor.make(full, names=names, weights=weights)


@pytest.mark.parametrize("workers", [10, 100])
@pytest.mark.parametrize("name", SIZES)
def test_predictor_predict(benchmark, name, workers):
    chance = np.random.default_rng(0)
    count = weights_of(SIZES[name], workers)
    predictor = make(SIZES[name], workers, chance.normal(scale=0.2, size=count))
    benchmark(predictor.predict, chance.normal(size=(10, 2 + workers * 3)))
