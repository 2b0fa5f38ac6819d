"""Rules of the folder: machines do no I/O; the documents say what the code does."""

import ast
import re
from pathlib import Path

import pytest

from pyroute.protocol import instance, manager

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "pyroute" / "protocol"
TEXT = (ROOT / "docs" / "protocol.md").read_text()
OUTSIDE = {
    *("asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "os", "pathlib"),
    *("queue", "random", "selectors", "signal", "socket", "subprocess", "sys", "tempfile"),
    *("threading", "time", "uuid"),
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


def test_no_io():
    """All but the file storage."""
    files = sorted(FOLDER.glob("*.py"))
    assert len(files) > 10
    for path in files:
        if path.name != "storage.py":
            assert not OUTSIDE & set(imports(path)), path.name


@pytest.mark.parametrize(("name", "module"), [("instance", instance), ("manager", manager)])
def test_tables_in_document(name, module):
    """``python -m tests.protocol.document`` writes them."""
    for kind, expected in [
        ("table", module.TABLE.markdown()),
        ("diagram", f"```mermaid\n{module.TABLE.mermaid()}\n```"),
    ]:
        mark = f"{name} {kind}"
        [found] = re.findall(f"<!-- {mark} -->\n(.*?)\n<!-- end -->", TEXT, re.DOTALL)
        assert found == expected, f"{mark}: python -m tests.protocol.document"


def test_example_runs():
    [block] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(block, "docs/protocol.md", "exec"), {})


def test_named_tests_exist():
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", TEXT)
    assert len(named) > 10
    for name in named:
        assert f"def {name}(" in tests, name


def test_messages_are_in_document():
    from pyroute.protocol import codec

    for kind in codec._NUMBERS:
        assert f"| `{kind.__name__}` |" in TEXT, kind.__name__
