"""The README's own lines run."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
TEXT = README.read_text() if README.exists() else ""  # a test below says when it is not there
BLOCKS = [
    block
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    if "spark_udf" not in block  # tests/spark runs those
]


def test_there_are_blocks():
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block):
    exec(compile(block, str(README), "exec"), {})


def test_printed_values():
    [claim] = re.findall(r"print\(hot.top\(3\).values\)\s+# (.*)", TEXT)
    scope = {}
    exec(BLOCKS[0].split("print(hot", maxsplit=1)[0], scope)
    assert str(scope["hot"].top(3).values) == claim


def test_named_tests_exist():
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", TEXT):
        assert f"def {name}(" in tests, name
