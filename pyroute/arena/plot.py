"""Completion times over the stream, as an SVG that needs no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from pyroute.arena.replay import Replay

__all__ = ["svg"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 64, 190, 24, 44
COLOURS = (
    *("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f"),
    *("#bcbd22", "#17becf"),
)
POINTS = 100


def svg(played: Sequence[Replay]) -> str:
    """A line for each policy: the mean completion time of consecutive records, on a log scale."""
    if not played:
        raise ValueError("played: expected at least one replay, got none")
    records = len(played[0].completion)
    size = max(1, records // POINTS)
    lines = {
        each.result.policy: [max(float(y), 1e-12) for y in each.windows(size)["mean"]]
        for each in played
    }
    low = min(min(line) for line in lines.values())
    high = max(max(line) for line in lines.values())
    bottom, top = math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9)
    top = max(top, bottom + 1)

    def x(position: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * position / records

    def y(value: float) -> float:
        share = (math.log10(value) - bottom) / (top - bottom)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    frame = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {frame} font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(bottom, top + 1):
        at = y(10.0**power)
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
        )
    for share in range(5):
        at = x(records * share / 4)
        out.append(
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
            f"{records * share // 4:,}</text>"
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(
        f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">record</text>'
        f'<text x="{LEFT}" y="14">mean completion time of {size:,} records</text>'
    )
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        dash = ' stroke-dasharray="5 3"' if number >= len(COLOURS) else ""
        points = " ".join(f"{x((i + 0.5) * size):.1f},{y(v):.1f}" for i, v in enumerate(line))
        at = TOP + 16 * number + 8
        out.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"{dash}/>'
            f'<line x1="{WIDTH - RIGHT + 10}" x2="{WIDTH - RIGHT + 30}" y1="{at}" y2="{at}"'
            f' stroke="{colour}" stroke-width="2"{dash}/>'
            f'<text x="{WIDTH - RIGHT + 36}" y="{at + 4}">{escape(name)}</text>'
        )
    return "\n".join([*out, "</svg>", ""])
