"""The bench of the child runs, and makes its page."""

import json

from bench.storm import child


def test_a_short_run():
    names = ["pyroute", "like storm.py", "pipes alone"]
    found = child.measure(1, 0.0, names, [106, 1024])
    assert set(found) == {(name, size) for name in names for size in (106, 1024)}
    assert all(figure > 0 for each in found.values() for figure in each)


def test_page():
    data = json.loads(child.RESULTS.read_text())
    lines = child.page(data).lines()
    assert any("pystorm" in line for line in lines)
    assert {len(message) + len(child.END) for message in child.stream(106)} == {106}
    assert {len(message) + len(child.END) for message in child.stream(1024)} == {1024}
