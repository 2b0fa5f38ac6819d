"""What becomes of the claims of paper 003 (predictive control) about its forecasts?

    python -m bench.papers.predictive [--quick] [--only NAME ...] [--write]

Trains the networks of the paper and the better variant on the first half of real traces, judges
them with all baselines on the second half, and judges every claim and goal. --write keeps what was
found in predictive/NAME.json, and makes PREDICTIVE.md and the plots in predictive/ of all that is
kept. Traces are looked for in the folder PYROUTE_DATA, else in ../shared/data beside the
repository. Needs the extras bench and train.
"""

from collections.abc import Callable

from bench.papers import forecasting
from bench.papers.page import Figure
from bench.papers.paper import Paper
from bench.peers import Scale

# Rows of the figure index by the number of the figure, then what goes beyond it.
FIGURES: dict[str, Callable[[Scale], Figure]] = {
    "fig5": forecasting.figure_5,
    "fig6": forecasting.figure_6,
    "fig7": forecasting.figure_7,
}
BEYOND: dict[str, Callable[[Scale], Figure]] = {
    "colocated": forecasting.colocated,
    "pods": forecasting.pods,
    "ablations": forecasting.ablations,
    "inference": forecasting.inference,
}
PAPER = Paper(
    forecasting.FOLDER,
    "Paper 003: predictive control, the forecasts",
    "Written by the command below. Errors do not depend on the machine, times do: compare those"
    " within a table only. Every choice (features, sizes, when to stop) was made on the first half"
    " of a trace; where a second half was looked at more than once, its figure says so.",
    {**FIGURES, **BEYOND},
)

if __name__ == "__main__":
    PAPER.main(__doc__)
