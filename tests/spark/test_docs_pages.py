"""Pages of docs/ whose Python needs Spark run, block after block."""

import re
from pathlib import Path

import pytest

import spark_udf as su

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [
    path
    for folder in ("tutorials", "how-to")
    for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    if "spark_udf" in path.read_text()
]


def test_there_are_some():
    assert PAGES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_runs(spark, path, capsys):
    names = {"spark": spark}
    for block in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, path.name, "exec"), names)
    assert names["per_user"].count() == names["firsts"].count() > 100
    assert "busiest task: 1.0" in capsys.readouterr().out


def test_reference_names_exist():
    text = (ROOT / "docs" / "reference" / "spark.md").read_text()
    found = re.findall(r"^::: spark_udf\.(\w+)$", text, re.MULTILINE)
    assert found
    for name in found:
        assert name in su.__all__
