"""What becomes of the claims of paper 003 about dynamic grouping and control?

    python -m bench.papers.predictive_control [--quick] [--only NAME ...] [--write]

Figures 4, 8, 9 and 10 on worker processes of this machine (bench/control/processes.py says what is
real about them), scaled down. Figures 5 to 7, the forecasts, are in bench/papers/predictive.py.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import pyroute as pr
from bench.papers.page import Figure, Panel
from bench.papers.paper import Paper
from bench.peers import Scale

FOLDER = "predictive_control"


def figure_4(scale: Scale) -> Figure:
    """The circle of identifiers."""
    del scale
    out = Figure(
        "Figure 4: a split ratio as a circle",
        "Does an assignment of identifiers give the split ratio that the paper says?",
        folder=FOLDER,
    )
    table = out.table("circle", "identifiers", "wanted", "shares")
    figure = pr.DynamicGrouping.from_identifiers(
        {3: "A", 7: "A", 0: "B", 4: "B", 6: "B", 5: "C"}, bits=3
    )
    counts = [round(8 * share) for share in figure.shares().values()]
    table.add("figure 4", "8", "4:3:1", ":".join(map(str, counts)))
    out.claim(
        "4:3:1 with identifiers 1 and 2 left out", ":".join(map(str, counts)), counts == [4, 3, 1]
    )
    shards = pr.DynamicGrouping.init_shards(3, 20, bits=6)
    parts = np.bincount(shards.owners)
    table.add("initShards(3, 20)", "64", "even", ":".join(map(str, parts)))
    out.claim(
        "initShards(3, 20) shares evenly", ":".join(map(str, parts)), bool(np.ptp(parts) == 0)
    )
    worst = {}
    rng = np.random.default_rng(0)
    for bits in (6, 10):
        errors = []
        for _ in range(2000):
            weights = rng.exponential(1.0, int(rng.integers(1, 30)))
            shares = pr.DynamicGrouping.from_ratio(weights, bits=bits).shares()
            found = np.array([shares.get(task, 0.0) for task in range(len(weights))])
            errors.append(float(np.abs(found - weights / weights.sum()).max()))
        worst[bits] = max(errors)
        table.add(
            "2,000 random ratios", str(2**bits), f"error < {1 / 2**bits:.4f}", f"{max(errors):.5f}"
        )
        seven = pr.DynamicGrouping.from_ratio([7, 3, 2], bits=bits).shares()
        off = max(abs(seven[task] - part / 12) for task, part in enumerate((7, 3, 2)))
        table.add("7:3:2 by largest remainder", str(2**bits), "7:3:2", f"error {100 * off:.3f} %")
    out.claim(
        "tuples can be dispatched with any given split ratio",
        f"greatest error {worst[10]:.5f} of 2,000 ratios at 10 bits",
        worst[10] < 1 / 1024,
    )
    return out


def figure_8(scale: Scale) -> Figure:
    """7:3:2, then worker 3 bypassed."""
    from bench.control.processes import Followed, Pool, Setup, Source
    from pyroute.control.configurable import to_document, with_shares

    unit = 1 / 60 if scale.quick else 1 / 12  # of the paper's 900 s
    out = Figure(
        "Figure 8: dynamic grouping",
        f"Do rates follow the ratio? The paper's 900 s in {900 * unit:.0f} s, 3 workers.",
        folder=FOLDER,
    )
    setup = Setup(workers=3, rate=300.0, wait=0.001, work=0.0002, hog="stop", seed=scale.seed,
                  seconds=900 * unit, start=math.inf, length=math.inf)  # fmt: skip
    even = pr.DynamicGrouping.from_ratio([1, 1, 1])
    names = ["w1", "w2", "w3"]
    agenda = [
        (150 * unit, with_shares(even, [7, 3, 2])),
        (330 * unit, even),
        (500 * unit, even.reassign(2, to=0)),
        (690 * unit, even),
    ]
    split = Followed(3)
    took: list[float] = []

    def watch(now: float) -> bool:
        while agenda and now >= agenda[0][0]:
            when, grouping = agenda.pop(0)
            split.process_update(to_document(grouping, names))
            took.append(now - when)
        return False

    with Pool(setup) as pool:
        result = Source(pool, split).run(watch)
    table = out.table("from s", "to s", "wanted", "rates of the workers, records/s", "share")
    good = True
    parts = [(0, 150, (1, 1, 1)), (150, 330, (7, 3, 2)), (330, 500, (1, 1, 1)),
             (500, 690, (2, 1, 0)), (690, 900, (1, 1, 1))]  # fmt: skip
    for first, last, wanted in parts:
        chosen = (result.due >= first * unit + 0.5) & (result.due < last * unit)
        counts = np.bincount(result.tasks[chosen], minlength=3)
        shares = counts / counts.sum()
        good &= bool(np.abs(shares - np.array(wanted) / sum(wanted)).max() < 0.01)
        rates = counts / (last * unit - first * unit - 0.5)
        shown = ", ".join(f"{rate:.0f}" for rate in rates)
        parted = ", ".join(f"{share:.3f}" for share in shares)
        table.add(str(first), str(last), ":".join(map(str, wanted)), shown, parted)
    seconds = np.arange(math.floor(setup.seconds))
    lines = {
        name: (
            (seconds / unit).tolist(),
            np.bincount(result.due[result.tasks == task].astype(int), minlength=len(seconds))[
                : len(seconds)
            ].tolist(),
        )
        for task, name in enumerate(names)
    }
    out.plot("fig8", Panel("rate of each worker", "time of the paper, s", "records/s", lines))
    out.claim(
        "rates follow 7:3:2, and worker 3 drops to 0 while worker 1 doubles", "see table", good
    )
    out.claim("with very little delay", f"{1000 * max(took):.0f} ms at most", max(took) < 1.0)
    out.claim("nothing is lost", f"{result.lost} lost", result.lost == 0)
    return out


def _hog(scale: Scale, number: int, title: str, rate: float, wait: float, work: float) -> Figure:
    from bench.control.processes import Setup, run

    out = Figure(
        f"Figure {number}: {title} under a hog",
        "Completion time and failed rate over time, with and without control. The first of 9"
        " workers is held back to a fifth of its time (SIGSTOP and SIGCONT in turn).",
        folder=FOLDER,
    )
    seconds = 20.0 if scale.quick else 90.0
    setup = Setup(rate=rate, wait=wait, work=work, hog="stop", seed=scale.seed, seconds=seconds,
                  start=seconds / 6, length=seconds / 2)  # fmt: skip
    if scale.quick:
        setup = replace(setup, timeout=5.0)
    table = out.table("policy", "usual ms", "peak ms", "peak of the slow worker ms",
                      "most failed/s", "lost", "slow-down", "changes")  # fmt: skip
    results = {}
    for name in ("none", "water-filling, 1 s", "least delay of two"):
        found = results[name] = run(setup, name)
        table.add(name, found.usual, found.peak, found.affected, found.failed_rate(), found.lost,
                  found.slow, len(found.changes))  # fmt: skip
    time = np.arange(math.ceil(seconds)).tolist()
    panels = []
    for text, each in (("all records", False), ("records of the slow worker", True)):
        lines = {name: (time, found.each_second(each).tolist()) for name, found in results.items()}
        panels.append(Panel(text, "s", "ms", lines, log_y=True))
    out.plot(f"fig{number}", *panels)
    ours, none = results["water-filling, 1 s"], results["none"]
    out.claim(
        "without control completion times grow without bound, with it they peak and come back",
        f"{none.peak:,.0f} ms against {ours.peak:,.0f} ms",
        ours.peak < none.peak / 5,
    )
    out.claim("no failed records with control", f"{ours.failed} failed", ours.failed == 0)
    return out


def figure_9(scale: Scale) -> Figure:
    """Windowed URL count: short records."""
    return _hog(scale, 9, "records of 5 ms (URL count)", 900.0, 0.0045, 0.0005)


def figure_10(scale: Scale) -> Figure:
    """Continuous queries: long records."""
    return _hog(scale, 10, "records of 45 ms (continuous queries)", 100.0, 0.0435, 0.0015)


FIGURES: dict[str, Callable[[Scale], Figure]] = {
    "fig4": figure_4,
    "fig8": figure_8,
    "fig9": figure_9,
    "fig10": figure_10,
}
PAPER = Paper(
    FOLDER,
    "Paper 003: predictive control, the grouping and the hogs",
    "Written by the command below. Times depend on the machine and on what else it does: compare"
    " them within a table only.",
    FIGURES,
)

if __name__ == "__main__":
    PAPER.main(__doc__)
