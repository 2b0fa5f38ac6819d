"""Apache Storm: bolts that run as multilang children.

Subclass `Bolt` and call its `run`; `RouterBolt` is ready to use. `pyroute.storm.protocol` has the
protocol itself, without I/O.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute.storm.bolt import Bolt, Context, Spout
    from pyroute.storm.protocol import Tuple
    from pyroute.storm.router_bolt import RouterBolt

__all__ = ["Bolt", "Context", "RouterBolt", "Spout", "Tuple"]

_PLACES = {
    "Bolt": "bolt",
    "Context": "bolt",
    "RouterBolt": "router_bolt",
    "Spout": "bolt",
    "Tuple": "protocol",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for."""
    if name in _PLACES:
        return getattr(import_module(f"pyroute.storm.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
