"""The same machines over TCP between processes: kill -9 during migration loses nothing."""

from effort import effort

from . import tcp


def test_killed(tmp_path):
    """50 kills of a random process, at random moments while a reconfiguration is open."""
    result = tcp.run(effort(50), seed=0, folder=tmp_path)
    print(result)
    assert result.kills >= effort(50)
    assert result.records > 1000
    assert result.moments["prepared"]
    assert result.moments["decided"]
    assert "manager" in result.killed
    assert len(result.killed) >= 5
