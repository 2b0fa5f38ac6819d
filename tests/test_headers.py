"""Every guarantee that a header names is a test of that name."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from reference import space_saving

TESTS = Path(__file__).parent
CSRC = TESTS.parent / "csrc"
HEADERS = sorted(CSRC.rglob("*.hpp"))

TITLE = re.compile(r"^Guarantees?\b", re.MULTILINE)
ROW = re.compile(r"( +)(\S+)")
NAME = re.compile(r"[a-z][a-z0-9_]*")


def opening_comment(text: str) -> str:
    """Return the comment at the top of a file, without its slashes."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").removeprefix(" "))
    return "\n".join(lines)


def without_parentheses(text: str) -> str:
    while text != (text := re.sub(r"\([^()]*\)", "", text)):
        pass
    return text


def rows(lines: list[str]) -> Iterator[str]:
    """Yield the names of an indented table; a line that is indented further continues a row."""
    indentation = len(lines[0]) - len(lines[0].lstrip())
    for line in lines:
        row = ROW.match(line)
        if row is None:
            return
        if len(row.group(1)) == indentation:
            yield row.group(2)


def guarantees(text: str) -> list[tuple[str, str | None]]:
    """Return the guarantees of a header, each with the test file that the header gives for it."""
    comment = opening_comment(text)
    title = TITLE.search(comment)
    if title is None:
        return []
    section = comment[title.start() :]
    lines = section.splitlines()
    first = next(i for i, line in enumerate(lines) if ":" in line)
    if lines[first].rstrip().endswith(":"):
        names, described = list(rows(lines[first + 1 :])), "\n".join(lines[: first + 1])
    else:
        described = section[: section.find("\nCost:")] if "\nCost:" in section else section
        plain = without_parentheses(described).partition(":")[2].partition(".")[0]
        names = [name for part in plain.split(",") for name in NAME.findall(part)[:1]]
    file = re.search(r"tests/(test_\w+\.py)", described)
    return [(name, file.group(1) if file else None) for name in names]


@cache
def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("header", HEADERS, ids=lambda file: str(file.relative_to(CSRC)))
def test_every_guarantee_is_a_test(header):
    text = header.read_text(encoding="utf-8")
    found = guarantees(text)
    assert bool(found) == ("Guarantee" in opening_comment(text))
    tests = {file.name: functions(file) for file in TESTS.glob("test_*.py")}
    for name, file in found:
        places = tests.get(file, set()) if file else set().union(*tests.values())
        assert f"test_{name}" in places, f"{name}: expected test_{name} in {file or 'tests'}"


def test_reads_tables():
    text = """\
// Ring.
//
// Guarantees, for N = total weight, each a test of that name in
// tests/test_ring.py:
//   stable    a pure function,
//             in any process
//   even_odd2 no more than its share
// Cost: O(1).
//   not_one   of them
#pragma once
//   nor_this  one
"""
    assert guarantees(text) == [("stable", "test_ring.py"), ("even_odd2", "test_ring.py")]


def test_reads_lists():
    text = """\
// Guarantees: first (equal, to f(x), on tests/golden), second_2 (a
// permutation), third.
// Cost: no more, than this.
"""
    assert guarantees(text) == [("first", None), ("second_2", None), ("third", None)]
    text = "// Guarantee: only (see tests/test_it.py).\n// Threads: immutable."
    assert guarantees(text) == [("only", "test_it.py")]
    assert guarantees("// Nothing is promised.\n") == []


def test_twins_have_the_spreads_of_the_header():
    text = (CSRC / "stats" / "space_saving.hpp").read_text(encoding="utf-8")
    spreads = [int(number) for number in re.findall(r"kSpread = (\d+)", text)]
    assert spreads == [space_saving.SPREAD, space_saving.PAIR_SPREAD]
