"""The experiments of the papers: no row of the figure index is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "bench" / "papers").exists():  # tests that were copied elsewhere
    pytest.skip("bench is not here", allow_module_level=True)

sys.path.insert(0, str(ROOT))
from bench.papers import caneill, fang, paper, predictive, predictive_control, rivetti  # noqa: E402
from bench.papers.page import Figure, Panel  # noqa: E402
from bench.peers import Scale  # noqa: E402
from bench.report import Goal  # noqa: E402

# Those of paper 001 and 002 that need no engine.
INDEX = {
    "caneill": (7, 8, 9, 10, 11, 12),
    "fang": (7, 8, 9, 10, 11, 12, 15, 17, 18, 19, 20, 21),
    "predictive": (5, 6, 7),
    "predictive_control": (4, 8, 9, 10),
    "rivetti": (4, 5, 6, 7, 8, 9, 10, 11, 12),
}
FIGURES = {
    "caneill": caneill.FIGURES,
    "fang": fang.FIGURES,
    "predictive": predictive.FIGURES,
    "predictive_control": predictive_control.FIGURES,
    "rivetti": rivetti.FIGURES,
}
SECTIONS = {
    "caneill": caneill.PAPER.sections,
    "fang": fang.SECTIONS,
    "predictive": predictive.PAPER.sections,
    "predictive_control": predictive_control.PAPER.sections,
    "rivetti": rivetti.PAPER.sections,
}
PAGES = {
    "caneill": caneill.PAPER.page,
    "fang": fang.PAGE,
    "predictive": predictive.PAPER.page,
    "predictive_control": predictive_control.PAPER.page,
    "rivetti": rivetti.PAPER.page,
}


@pytest.mark.parametrize("name", INDEX)
def test_every_figure_has_an_entry(name):
    assert list(FIGURES[name]) == [f"fig{number}" for number in INDEX[name]]
    assert all(callable(section) for section in SECTIONS[name].values())


@pytest.mark.parametrize("name", INDEX)
def test_loads_without_the_extras(name):
    """What only a run needs is imported by the run: the registry loads without the extra bench."""
    code = (
        f"import sys; import bench.papers.{name}; print([name for name in"
        " ('jax', 'matplotlib', 'numba', 'pandas', 'pymetis') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", INDEX)
def test_page_answers_every_figure(name):
    text = PAGES[name].read_text()
    for number in INDEX[name]:
        assert f"## Figure {number}: " in text


def test_kept_sections_make_the_page(tmp_path, monkeypatch, capsys):
    """What was kept of one run is on the page that another one writes."""
    monkeypatch.setattr(paper, "HERE", tmp_path)

    def section(name):
        def measure(scale):
            figure = Figure(f"Figure {name}", "Why?", folder="some")
            figure.table("a", "b").add("x", scale.seed)
            figure.plot(name, Panel("t", "x", "y", {"line": ([1, 2], [3.0, 4.0])}))
            figure.claim(f"claim of {name}", "1.5", name == "one")
            figure.goals.append(Goal(f"goal of {name}", "2", "3", None))
            return figure

        return measure

    some = paper.Paper("some", "Paper", "About.", {"one": section("one"), "two": section("two")})
    for only in ("one", "two"):
        monkeypatch.setattr(sys, "argv", ["some", "--only", only, "--write", "--seed", "77"])
        some.main("What?")
    text = some.page.read_text()
    assert "not measured yet" not in text
    for only in ("one", "two"):
        assert f"claim of {only}" in text
        assert f"goal of {only}" in text
        assert (tmp_path / "some" / f"{only}.json").exists()
    assert capsys.readouterr().out.count("77") == 2
    before = text
    some.write(Scale(False, 77))
    assert some.page.read_text() == before
    monkeypatch.setattr(sys, "argv", ["some", "--quick", "--write"])
    with pytest.raises(SystemExit):
        some.main("What?")
