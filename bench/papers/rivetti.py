"""What becomes of the claims of paper 004 (Rivetti et al., proactive online shuffle grouping)?

    python -m bench.papers.rivetti [--quick] [--only NAME ...] [--write]

Replays the paper's streams and real service times in the arena, and judges every claim and goal.
--write keeps what was found in rivetti/NAME.json, and makes RIVETTI.md and the plots in rivetti/ of
all that is kept. Real streams are looked for in the folder PYROUTE_DATA, else in ../shared/data
beside the repository.
"""

from collections.abc import Callable

from bench.papers import scheduling
from bench.papers.page import Figure
from bench.papers.paper import Paper
from bench.peers import Scale

# Rows of the figure index by the number of the figure, then what goes beyond it.
FIGURES: dict[str, Callable[[Scale], Figure]] = {
    "fig4": scheduling.figure_4,
    "fig5": scheduling.figure_5,
    "fig6": scheduling.figure_6,
    "fig7": scheduling.figure_7,
    "fig8": scheduling.figure_8,
    "fig9": scheduling.figure_9,
    "fig10": scheduling.figure_10,
    "fig11": scheduling.figure_11,
    "fig12": scheduling.figure_12,
}
BEYOND: dict[str, Callable[[Scale], Figure]] = {
    "spans": scheduling.real_spans,
    "requests": scheduling.real_requests,
    "decision": scheduling.decision_cost,
    "rate": scheduling.event_rate,
}
PAPER = Paper(
    scheduling.FOLDER,
    "Paper 004: proactive online shuffle grouping",
    "Written by the command below. Completion times are simulated, so they do not depend on the"
    " machine; times of decisions and rates do: compare those within a table only.",
    {**FIGURES, **BEYOND},
)

if __name__ == "__main__":
    PAPER.main(__doc__)
