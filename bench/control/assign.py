"""Does a batch through a DynamicGrouping cost what an array lookup costs?

    python -m bench.control.assign [--quick] [--write]

A lookup is numpy's `take` from the same array of owners, at ids that are reduced to the circle
already: `assign` reduces them itself, so it does more. Figures are nanoseconds of CPU time per id,
the least of all repetitions, and how much more the slowest one took; ratios are of what was
measured in one run, in turn, and in brackets the median over the repetitions.
"""

import argparse
from pathlib import Path

import numpy as np

import pyroute as pr
from bench.report import Section, at_most, goals_table, surroundings
from bench.timing import Ratio, contender, interleave

PAGE = Path(__file__).parent / "ASSIGN.md"
BITS = (10, 16, 20)
SEED, SHARES = 0, (3, 1, 2, 2)


def section(ids: int, repetitions: int) -> Section:
    out = Section("Assign", f"Batches of {ids:,} ids, {repetitions} repetitions.")
    table, ratios = out.table("bits", "ids", "assign ns", "take ns", "ratio (paired)"), []
    rng = np.random.default_rng(SEED)
    kinds = {"sequential": np.arange(ids), "random": rng.integers(0, 2**62, ids)}
    for bits in BITS:
        grouping = pr.DynamicGrouping.from_ratio(SHARES, bits=bits)
        owners = np.array(grouping.owners)
        for kind, given in kinds.items():
            ratio = compared(grouping, owners, given, repetitions)
            table.add(str(bits), kind, ratio.slow, ratio.fast, ratio)
            ratios.append((f"{bits} bits, {kind}", ratio))
    out.goals.append(at_most("assign by numpy take of ids that are reduced already", 2.0, ratios))
    return out


def compared(
    grouping: pr.DynamicGrouping, owners: np.ndarray, ids: np.ndarray, repetitions: int
) -> Ratio:
    """The time of `assign` by that of `take`, which must say the same."""
    inside = ids & (owners.size - 1)
    assert (grouping.assign(ids) == owners.take(inside)).all()
    found = interleave(
        [
            contender("assign", ids.size, lambda: grouping.assign(ids)),
            contender("take", ids.size, lambda: owners.take(inside)),
        ],
        repetitions,
    )
    return Ratio(found["assign"], found["take"])


def page(found: Section) -> str:
    lines = ["# Control: a batch through a circle, by an array lookup", ""]
    lines += [*(__doc__ or "").strip().splitlines()[4:], ""]
    lines += surroundings("python -m bench.control.assign --write", SEED, [])
    lines += ["", *goals_table([found]).lines(), "", *found.lines()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 repetitions; rough figures")
    parser.add_argument("--write", action="store_true", help="write the page")
    options = parser.parse_args()
    found = section(1_000_000, 5 if options.quick else 31)
    print("\n".join(found.lines()))
    for goal in found.goals:
        print(f"\n{goal.name}: wanted {goal.wanted}, measured {goal.measured}: {goal.verdict}")
    if options.write:
        PAGE.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
