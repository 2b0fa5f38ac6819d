"""Discretize: each value becomes one of its neighbours, and the deviations cancel."""

from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyroute import _core
from reference import discretize as reference

pytestmark = pytest.mark.kernel

degrees = st.integers(0, 8).map(lambda r: 2**r)
# The least value above 0 is a power of two, so that all deviations are exact.
whole = st.lists(st.integers(0, 60).map(float), max_size=40).map(lambda v: [*v, 1.0])
quarters = st.lists(st.integers(0, 4000).map(lambda n: n / 4), max_size=40).map(
    lambda v: [*v, 0.25]
)
anything = st.lists(st.floats(1e-3, 1e6) | st.just(0.0), max_size=40)


def discretize(values, degree):
    return _core.discretize(np.array(values, np.float64), degree).tolist()


def representatives(greatest, degree):
    """Return the whole list, ascending, for values that are at least 1."""
    if greatest < degree:
        return [float(n) for n in range(1, int(greatest) + 1)]
    halving = [degree / 2**i for i in range(1, degree.bit_length())]
    linear = [float(n * degree) for n in range(1, int(greatest // degree) + 1)]
    return halving[::-1] + linear


def neighbours(x, every):
    first_above = bisect_right(every, x)
    return every[first_above - 1 : first_above + 1]


@given(whole | quarters, degrees)
def test_matches_reference(values, degree):
    assert discretize(values, degree) == reference.discretize(values, degree)


def test_figure_6():
    values = [8.0, 6.0, 3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    rounded = discretize(values, 4)
    assert sum(values) - sum(rounded) == 0
    assert rounded == [8.0, 4.0, 4.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0]


@given(whole | quarters, degrees)
def test_neighbours(values, degree):
    least = min(value for value in values if value > 0)
    every = representatives(max(values) / least, degree)
    for value, rounded in zip(values, discretize(values, degree), strict=True):
        if value == 0:
            assert rounded == 0
        else:
            assert rounded / least in neighbours(value / least, every)


@given(anything, degrees)
def test_matches_reference_on_any_values(values, degree):
    assert discretize(values, degree) == reference.discretize(values, degree)


@given(anything, degrees)
def test_neighbours_of_any_values(values, degree):
    """Values that are no multiples of the least: halving and steps of the degree, to 1e-9."""
    rounded = discretize(values, degree)
    least = min((value for value in values if value > 0), default=1.0)
    greatest = max(values, default=0.0) / least
    for value, to in zip(values, rounded, strict=True):
        if value == 0:
            assert to == 0
            continue
        x, y = value / least, to / least
        step = degree if x >= degree else 1.0 if greatest < degree else 2.0 ** np.floor(np.log2(x))
        assert abs(x - y) <= step * (1 + 1e-9)
        if greatest < degree:
            unit = 1.0
        elif y >= degree * (1 - 1e-9):
            unit = float(degree)
        else:
            unit = 2.0 ** np.round(np.log2(y))
        assert y / unit == pytest.approx(round(y / unit), rel=1e-9)
        assert y >= 1 - 1e-9


@given(whole, degrees)
def test_deviation_stays_small(values, degree):
    """What lies above the greatest representative is lost; else the sum is at most a step."""
    top = representatives(max(values), degree)[-1]
    rest = sum(max(0.0, value - top) for value in values)
    deviation = sum(values) - sum(discretize(values, degree))
    assert abs(deviation) <= rest + degree


@given(whole, st.permutations(range(8)))
def test_equal_values_go_by_position(values, order):
    """Of equal values those in front are rounded first; where the others are does not matter."""
    values = values[:8] + [1.0] * (8 - len(values[:8]))
    shuffled = [values[i] for i in order]
    pairs = sorted(zip(shuffled, discretize(shuffled, 4), strict=True), key=lambda pair: -pair[0])
    expected = zip(values, discretize(values, 4), strict=True)
    assert pairs == sorted(expected, key=lambda pair: -pair[0])


def test_nothing_above_zero():
    assert discretize([], 8) == []
    assert discretize([0.0, 0.0], 8) == [0.0, 0.0]


@pytest.mark.parametrize("degree", [1, 2, 256, 2**30])
def test_one_value_stays(degree):
    assert discretize([0.0, 12.5, 0.0], degree) == [0.0, 12.5, 0.0]


def test_finite_values_stay_finite():
    assert np.isfinite(discretize([1e300, 1e-300], 8)).all()


@pytest.mark.parametrize("degree", [0, -1, 3, 6, 2**31])
def test_wrong_degree(degree):
    with pytest.raises(ValueError, match=r"expected .+, got .+"):
        discretize([1.0], degree)
