"""The pages of docs/: their Python runs, their links lead somewhere, their commands exist."""

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = [
    path for path in PAGES if path.parent.name in ("docs", "tutorials", "how-to", "reference")
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
KNOWN = {
    *("analyze", "plan", "explain", "diff", "simulate", "route", "run", "arena", "train"),
    *("control", "storm", "serve", "doctor", "sample"),
}


def blocks(path):
    return BLOCK.findall(path.read_text())


def named(paths):
    return [pytest.param(path, id=str(path.relative_to(ROOT / "docs"))) for path in paths]


def here(path):
    """Whether it has Python that runs without an engine; tests/spark runs the rest."""
    code = blocks(path)
    return bool(code) and not any("spark_udf" in block for block in code) and path.stem != "spark"


@pytest.mark.parametrize("path", named(path for path in WRITTEN if here(path)))
def test_python_runs(path, tmp_path, monkeypatch, capsys):
    """All blocks of a page, one after another, as a reader would type them."""
    code = blocks(path)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for i, block in enumerate(code):
        exec(compile(block, f"{path.name}, block {i}", "exec"), names)


def test_there_are_tutorials_and_how_tos():
    assert len(list((ROOT / "docs" / "tutorials").glob("*.md"))) >= 3
    assert len(list((ROOT / "docs" / "how-to").glob("*.md"))) >= 6


@pytest.mark.parametrize("path", named(PAGES))
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http:", "https:", "#")):
            assert (path.parent / target.partition("#")[0]).exists(), target


def test_pages_are_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text()
    for path in WRITTEN:
        if path.parent.name != "docs":
            assert str(path.relative_to(ROOT / "docs")) in nav, path


def commands(path):
    """Lines that a reader types: those of console blocks that start with pyroute."""
    for block in re.findall(r"```console\n(.*?)```", path.read_text(), re.DOTALL):
        yield from (line.split() for line in block.splitlines() if line.startswith("pyroute "))


def test_commands_exist():
    from pyroute.cli.commands import discover

    found = [command for path in PAGES for command in commands(path)]
    assert len(found) >= 5
    for _, name, *words in found:
        assert name in KNOWN
        if name not in {entry.name for entry in entry_points(group="pyroute.commands")}:
            continue  # a part that is not installed here
        options = {
            option
            for parameter in discover()[name].load().params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words:
            if word.startswith("--"):
                assert word in options, f"pyroute {name} {word}"


def test_site_builds_nothing_from_elsewhere():
    text = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in text


def test_reference_names_exist():
    import importlib

    for path in (ROOT / "docs" / "reference").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", path.read_text(), re.MULTILINE):
            if name.startswith("spark_udf"):
                continue  # tests/spark looks at those
            module, _, attribute = name.rpartition(".")
            found = importlib.import_module(module)
            assert hasattr(found, attribute) or importlib.import_module(name), name
