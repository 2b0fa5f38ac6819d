"""pyroute decides which parallel task each record of a stream goes to.

>>> import pyroute as pr
>>> hot = pr.SpaceSaving(100)
>>> hot.observe(["anna", "bert", "anna"])
>>> hot.top(1).values
['anna']
>>> router = pr.Router(4, table={"anna": 3})
>>> router.route(["anna", "bert"])
array([3, 0], dtype=int32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyroute._core import FormatError, simd
from pyroute.colocate import colocate
from pyroute.keys import Keys, keys
from pyroute.rebalance import elastic, rebalance

if TYPE_CHECKING:
    from pyroute import arena, control, policies, posg, protocol, workloads
    from pyroute.colocation import ColocationPlan
    from pyroute.cost_sketch import CostSketch
    from pyroute.dynamic_grouping import DynamicGrouping
    from pyroute.gate import Decision, Gate
    from pyroute.homes import FlinkKeyGroup, KafkaHash, SparkHash, StormHash
    from pyroute.key_group import GroupOrders, GroupPlan, GroupReport, KeyGroups, plan_groups
    from pyroute.key_stats import KeyStats, Snapshot
    from pyroute.locality_forecast import Forecast, LocalityForecast
    from pyroute.plan import Migrations, Plan, PlanDiff
    from pyroute.ring import Ring
    from pyroute.router import Router
    from pyroute.space_saving import PairSpaceSaving, SpaceSaving, TopKeys, TopPairs

__version__ = "0.1.0"

__all__ = [
    "ColocationPlan",
    "CostSketch",
    "Decision",
    "DynamicGrouping",
    "FlinkKeyGroup",
    "Forecast",
    "FormatError",
    "Gate",
    "GroupOrders",
    "GroupPlan",
    "GroupReport",
    "KafkaHash",
    "KeyGroups",
    "KeyStats",
    "Keys",
    "LocalityForecast",
    "Migrations",
    "PairSpaceSaving",
    "Plan",
    "PlanDiff",
    "Ring",
    "Router",
    "Snapshot",
    "SpaceSaving",
    "SparkHash",
    "StormHash",
    "TopKeys",
    "TopPairs",
    "__version__",
    "arena",
    "colocate",
    "control",
    "elastic",
    "keys",
    "plan_groups",
    "policies",
    "posg",
    "protocol",
    "rebalance",
    "simd",
    "workloads",
]


_PARTS = {
    "": ("arena", "control", "policies", "posg", "protocol", "workloads"),
    "colocation": ("ColocationPlan",),
    "cost_sketch": ("CostSketch",),
    "dynamic_grouping": ("DynamicGrouping",),
    "gate": ("Decision", "Gate"),
    "homes": ("FlinkKeyGroup", "KafkaHash", "SparkHash", "StormHash"),
    "key_group": ("GroupOrders", "GroupPlan", "GroupReport", "KeyGroups", "plan_groups"),
    "key_stats": ("KeyStats", "Snapshot"),
    "locality_forecast": ("Forecast", "LocalityForecast"),
    "plan": ("Migrations", "Plan", "PlanDiff"),
    "ring": ("Ring",),
    "router": ("Router",),
    "space_saving": ("PairSpaceSaving", "SpaceSaving", "TopKeys", "TopPairs"),
}
_WHEN_ASKED = {name: module for module, names in _PARTS.items() for name in names}
"""Name -> the module that has it; a module is itself."""


def __getattr__(name: str) -> Any:
    """Import a part when it is asked for: `import pyroute` takes little more than NumPy's own."""
    if name not in _WHEN_ASKED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = _WHEN_ASKED[name]
    found = import_module(f"pyroute.{module or name}")
    value = getattr(found, name) if module else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
