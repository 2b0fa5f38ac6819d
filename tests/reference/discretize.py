"""Twin of csrc/plan/discretize.hpp: rounding, half linear and half exponential."""

from collections.abc import Sequence
from math import floor, frexp


def lower_neighbour(x: float, greatest: float, degree: int) -> tuple[float, float | None]:
    """Return the representatives y <= x < y'; no y' where x is at or above the last."""
    if greatest < degree:
        top, y, step = float(floor(greatest)), float(floor(x)), 1.0
    elif x >= degree:
        top, y, step = float(greatest // degree) * degree, float(x // degree) * degree, degree
    else:
        y = 2.0 ** (frexp(x)[1] - 1)  # the greatest power of two that is not above x
        return y, 2 * y
    return (top, None) if x >= top else (y, y + step)


def discretize(values: Sequence[float], degree: int) -> list[float]:
    """Round each value to a neighbour, so that the deviations cancel as far as they go."""
    present = [value for value in values if value > 0]
    if not present:
        return [0.0] * len(values)
    smallest = max(min(present), max(present) * 2.0**-52)
    greatest = max(present) / smallest
    out = [0.0] * len(values)
    deviation = 0.0
    for i in sorted(range(len(values)), key=lambda i: (-values[i], i)):
        if values[i] == 0:
            break
        x = max(values[i] / smallest, 1.0)
        below, above = lower_neighbour(x, greatest, degree)
        chosen = below
        if above is not None and abs(deviation + (x - above)) < abs(deviation + (x - below)):
            chosen = above
        deviation += x - chosen
        out[i] = chosen * smallest
    return out
