"""Apache Storm: bolts that run as multilang children.

Subclass `Bolt` and call its `run`; `RouterBolt` is ready to use. `pyroute.storm.protocol` has the
protocol itself, without I/O.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute.storm.bolt import Bolt, Context, Spout
    from pyroute.storm.dynamic_bolt import DynamicBolt
    from pyroute.storm.manager import ManagerBolt, ManagerSpout
    from pyroute.storm.protocol import Tuple
    from pyroute.storm.routed_spout import RoutedSpout
    from pyroute.storm.router_bolt import RouterBolt
    from pyroute.storm.scheduler_bolt import SchedulerBolt, TrackedBolt
    from pyroute.storm.source_bolt import SourceBolt
    from pyroute.storm.task_bolt import Record, TaskBolt

__all__ = [
    "Bolt",
    "Context",
    "DynamicBolt",
    "ManagerBolt",
    "ManagerSpout",
    "Record",
    "RoutedSpout",
    "RouterBolt",
    "SchedulerBolt",
    "SourceBolt",
    "Spout",
    "TaskBolt",
    "TrackedBolt",
    "Tuple",
]

_PLACES = {
    "Bolt": "bolt",
    "Context": "bolt",
    "DynamicBolt": "dynamic_bolt",
    "ManagerBolt": "manager",
    "ManagerSpout": "manager",
    "Record": "task_bolt",
    "RoutedSpout": "routed_spout",
    "RouterBolt": "router_bolt",
    "SchedulerBolt": "scheduler_bolt",
    "SourceBolt": "source_bolt",
    "Spout": "bolt",
    "TaskBolt": "task_bolt",
    "TrackedBolt": "scheduler_bolt",
    "Tuple": "protocol",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for."""
    if name in _PLACES:
        return getattr(import_module(f"pyroute.storm.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
