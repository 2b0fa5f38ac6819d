"""Does a batch through a DynamicGrouping cost what an array lookup costs?

python -m bench.control.assign
"""

import numpy as np

import pyroute as pr
from bench.report import Table, at_most
from bench.timing import Ratio, contender, interleave


def main() -> None:
    table, ratios = Table(("bits", "ids", "assign ns", "take ns", "ratio (paired)")), []
    rng = np.random.default_rng(0)
    for bits in (10, 16, 20):
        grouping = pr.DynamicGrouping.from_ratio([3, 1, 2, 2], bits=bits)
        owners = np.array(grouping.owners)
        for kind in ("sequential", "random"):
            ids = np.arange(1_000_000)
            if kind == "random":
                ids = rng.integers(0, 2**62, 1_000_000)
            inside = ids & (2**bits - 1)

            def bare(inside: np.ndarray = inside, owners: np.ndarray = owners) -> object:
                return owners.take(inside)

            assert (grouping.assign(ids) == bare()).all()
            found = interleave(
                [
                    contender("assign", ids.size, lambda g=grouping, i=ids: g.assign(i)),
                    contender("take", ids.size, bare),
                ],
                15,
            )
            ratio = Ratio(found["assign"], found["take"])
            table.add(str(bits), kind, found["assign"], found["take"], ratio)
            ratios.append((f"{bits} bits, {kind}", ratio))
    print("\n".join(table.lines()))
    goal = at_most("assign by numpy take of ids that are reduced already", 2.0, ratios)
    print(f"{goal.name}: wanted {goal.wanted}, measured {goal.measured}: {goal.verdict}")


if __name__ == "__main__":
    main()
