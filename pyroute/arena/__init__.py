"""Replays of one trace under many policies: arrivals, queues, service times, the same metrics.

>>> import pyroute as pr
>>> trace = pr.arena.Trace.of(["a", "b", "a"], [10.0, 1.0, 10.0], [0.0, 1.0, 2.0])
>>> [both.result.mean * 3 for both in pr.arena.replay(trace, ["shuffle", "full knowledge"], 2)]
[29.0, 21.0]

Needs the extra `arena` (numba).
"""

from __future__ import annotations

from pyroute.arena.replay import Cluster, Replay, Result, replay
from pyroute.arena.trace import Trace

__all__ = ["Cluster", "Replay", "Result", "Trace", "replay"]
