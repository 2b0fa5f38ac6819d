"""The code of docs/control.md runs, and its tables are true."""

import re
from pathlib import Path

import pytest

from pyroute.control import policies as p

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "control.md"
if not PAGE.exists():
    pytest.skip("docs is not here", allow_module_level=True)
TEXT = PAGE.read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_code_runs(block):
    exec(compile(BLOCKS[block], "docs/control.md", "exec"), {})


def test_two_blocks():
    assert len(BLOCKS) == 2


def test_defaults_are_those_of_the_guard():
    guard = p.Guard()
    assert f"in any 60 s | {guard.changes_per_minute} |" in TEXT
    assert f"changes nothing | {guard.dead_band:.0%} |".replace("%", " %") in TEXT
    assert f"not raised for | {guard.hold:.0f} periods" in TEXT
    trial = f"{guard.probe:.1%}".replace("%", " %")
    assert f"tried again with {trial} of the records after | {guard.ban:.0f} periods" in TEXT
    assert f"doubled up to {guard.longest_ban:.0f} while" in TEXT
    assert guard.min_healthy == 0.5
    both = f"{p.WaterFilling().differs:.0%}, {p.WaterFilling().alike:.0%} on the way back"
    assert both.replace("%", " %") in TEXT


def test_counts_of_features():
    from pyroute.control.monitor import MACHINE_FEATURES, WORKER_FEATURES

    assert f"{len(WORKER_FEATURES)} features of each worker" in TEXT
    assert f"{len(MACHINE_FEATURES)} of the machine" in TEXT
