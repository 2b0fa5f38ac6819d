"""What becomes of the claims of paper 001 (Caneill et al., locality-aware routing)?

    python -m bench.papers.caneill [--quick] [--only NAME ...] [--write]

Counts the bytes that the paper's synthetic stream puts on links, replays real pairs week by week,
and judges every claim and goal. --write keeps what was found in caneill/NAME.json, and makes
CANEILL.md and the plots in caneill/ of all that is kept. Real streams are looked for in the folder
PYROUTE_DATA, else in ../shared/data beside the repository.
"""

from bench.papers import colocating
from bench.papers.paper import Paper

# Rows of the figure index by the number of the figure, then what goes beyond it.
FIGURES = colocating.FIGURES
PAPER = Paper(
    colocating.FOLDER,
    "Paper 001: locality-aware routing",
    "Written by the command below. Localities, bytes and moves are counted, so they do not depend"
    " on the machine; times do: compare those within a table only. A cell is the mean over the"
    " weeks, in brackets the least and the greatest.",
    {**FIGURES, **colocating.BEYOND},
)

if __name__ == "__main__":
    PAPER.main(__doc__)
