"""The pages of docs/: their Python and commands run, their links lead somewhere."""

import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
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


README = ROOT / "README.md"
TEXTS = [path for path in [*PAGES, README] if path.exists()]  # tests may be copied elsewhere


def commands(path):
    """Lines that a reader types: of console blocks, and indented, that start with pyroute."""
    text = path.read_text()
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        yield from (
            shlex.split(line, comments=True)
            for line in block.splitlines()
            if line.startswith("pyroute ")
        )
    for line in re.findall(r"^    (pyroute .*)$", re.sub(r"(?s)```.*?```", "", text), re.MULTILINE):
        yield shlex.split(line, comments=True)


ELSEWHERE = {"serve", "run", "control", "train", "storm"}
"""Commands that need what runs, or an engine: their own tests run them."""


def can_run(words):
    """Whether a command of a page needs files alone, and what it needs is installed."""
    if words[1] in ELSEWHERE or "--spark-log" in words:
        return False
    needed = {"arena": "numba"}.get(words[1])
    if "--pair" in words:
        needed = "pymetis"
    return needed is None or importlib.util.find_spec(needed) is not None


def files(folder):
    """The files that pages speak of; `orders.parquet` is made by a command."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is missing")
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    keys = np.minimum(random.zipf(1.4, 5000), 200)
    table = {"ms": random.exponential(3.0, 5000).round(3) + 0.001, "tag": keys * 7 % 90}
    for name, key in (("clicks", "user_id"), ("posts", "state"), ("trace", "item")):
        pq.write_table(pa.table({key: keys, **table}), folder / f"{name}.parquet")
    lines = [f'{{"word": "word{key}"}}\n' for key in keys.tolist()]
    (folder / "tuples.jsonl").write_text("".join(lines))


RUN = [path for path in TEXTS if any(map(can_run, commands(path)))]


def test_there_are_commands_that_run():
    assert len(RUN) >= 4
    assert README in RUN


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in RUN])
def test_commands_run(path, tmp_path):
    """Those of a page, one after another in one folder, as a reader would type them."""
    pytest.importorskip("typer", reason="typer is missing: pip install 'pyroute-core[cli]'")
    files(tmp_path)
    for words in filter(can_run, commands(path)):
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout.strip(), words
        if "--report" in words:
            assert (tmp_path / words[words.index("--report") + 1]).stat().st_size > 10_000


def test_yaml_can_be_read():
    yaml = pytest.importorskip("yaml", reason="pyyaml is missing")
    found = [
        (path, block)
        for path in TEXTS
        for block in re.findall(r"```ya?ml\n(.*?)```", path.read_text(), re.DOTALL)
    ]
    assert found
    for path, block in found:
        assert isinstance(yaml.safe_load(block), dict | list), path


def test_commands_exist():
    from pyroute.cli.commands import discover

    found = [command for path in TEXTS for command in commands(path)]
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


@pytest.mark.parametrize("name", ["control", "protocol", "storm", "workloads"])
def test_reference_has_all_names(name):
    module = importlib.import_module(f"pyroute.{name}")
    page = (ROOT / "docs" / "reference" / f"{name}.md").read_text()
    assert set(re.findall(rf"^::: pyroute\.{name}\.(\w+)$", page, re.MULTILINE)) == set(
        module.__all__
    )


def test_reference_has_all_commands():
    import commands_page

    if {entry.name for entry in entry_points(group="pyroute.commands")} != KNOWN:
        pytest.skip("not all commands are installed")
    text = commands_page.PATH.read_text()
    assert text == commands_page.written(text), "run python tests/commands_page.py"


def test_reference_names_exist():
    for path in (ROOT / "docs" / "reference").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", path.read_text(), re.MULTILINE):
            if name.startswith("spark_udf"):
                continue  # tests/spark looks at those
            module, _, attribute = name.rpartition(".")
            found = importlib.import_module(module)
            assert hasattr(found, attribute) or importlib.import_module(name), name
