"""The experiments of the papers: no row of the figure index is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "bench" / "papers").exists():  # tests that were copied elsewhere
    pytest.skip("bench is not here", allow_module_level=True)

sys.path.insert(0, str(ROOT))
from bench.papers import fang, rivetti  # noqa: E402

# Those of paper 002 that are about plans; 13, 14 and 16 need an engine.
INDEX = (7, 8, 9, 10, 11, 12, 15, 17, 18, 19, 20, 21)
SCHEDULING = (4, 5, 6, 7, 8, 9, 10, 11, 12)  # of paper 004


def test_every_figure_has_an_entry():
    assert list(fang.FIGURES) == [f"fig{number}" for number in INDEX]
    assert list(rivetti.FIGURES) == [f"fig{number}" for number in SCHEDULING]


@pytest.mark.parametrize("paper", [fang, rivetti], ids=["fang", "rivetti"])
def test_entries_can_be_called(paper):
    assert all(callable(section) for section in paper.SECTIONS.values())


def test_loads_without_the_extras():
    """What only a run needs is imported by the run: the registry loads without the extra bench."""
    code = (
        "import sys; import bench.papers.fang, bench.papers.rivetti;"
        " print([name for name in ('matplotlib', 'numba', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("paper", "index"), [(fang, INDEX), (rivetti, SCHEDULING)])
def test_page_answers_every_figure(paper, index):
    if not paper.PAGE.exists():
        pytest.skip("not written yet")
    text = paper.PAGE.read_text()
    for number in index:
        assert f"## Figure {number}: " in text
