"""The commands of a section of the README are found and typed as they are printed."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "bench" / "newcomer.py").exists():  # tests that were copied elsewhere
    pytest.skip("bench is not here", allow_module_level=True)

sys.path.insert(0, str(ROOT))
from bench import newcomer  # noqa: E402

TEXT = """# pyroute

## Ten minutes

Text, and `git status`.

    git clone https://example.org/pyroute.git   # the address of a clone
    X=1; export X

More.

```console
$ echo "it is $X"
echo "busiest task: 1.60 times the mean # not a comment"
```

```python
print("not typed")
```

### Deeper

    echo busiest task: 1.01 times the mean, marketplace

## Next

    false
"""


def test_commands_of_a_section():
    found = newcomer.commands(newcomer.section(TEXT, "Ten minutes"))
    assert found == [
        "git clone https://example.org/pyroute.git",
        "X=1; export X",
        'echo "it is $X"',
        'echo "busiest task: 1.60 times the mean # not a comment"',
        "echo busiest task: 1.01 times the mean, marketplace",
    ]
    assert newcomer.local(found[0]) == f"git clone {newcomer.ROOT} pyroute"
    assert newcomer.local(found[2]) == found[2]


def test_they_are_typed_into_one_shell(tmp_path):
    lines = newcomer.commands(newcomer.section(TEXT, "Ten minutes"))[1:]
    steps = newcomer.walk(lines, tmp_path)
    assert [step.said for step in steps][1] == "it is 1"
    assert all(goal.met for goal in newcomer.goals(steps, len(lines)))
    assert "| all " in newcomer.page(steps, newcomer.goals(steps, len(lines)), "Ten minutes")
    assert not newcomer.goals(steps, len(lines) + 1)[0].met


def test_the_first_that_fails_ends_it(tmp_path):
    steps = newcomer.walk(
        ["true", "exit_code_of() { return 3; }", "exit_code_of", "true"], tmp_path
    )
    assert [step.code for step in steps] == [0, 0, 3]
    assert newcomer.goals(steps, 4)[0].measured == "exit_code_of: 3"
