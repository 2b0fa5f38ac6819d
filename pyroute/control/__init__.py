"""Control: what runs a pipeline from outside, and where its settings are kept.

Monitor and hook measure, the store keeps, a model predicts, a policy decides, and the config store
carries the new ratio to whoever routes. Names are imported when they are asked for: most need an
extra of their own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute.control import policies, train
    from pyroute.control.backtest import Backtest
    from pyroute.control.config_store import (
        ConfigStore,
        Document,
        MalformedError,
        StaleVersionError,
        Watch,
    )
    from pyroute.control.configurable import DynamicConfigurable, SplitRatio, edge_name
    from pyroute.control.hook import Hook
    from pyroute.control.loop import Loop, Status
    from pyroute.control.monitor import Monitor
    from pyroute.control.predictor import Predictor
    from pyroute.control.store import Store, StoreError

_NAMES = {
    "Backtest": "pyroute.control.backtest",
    "ConfigStore": "pyroute.control.config_store",
    "Document": "pyroute.control.config_store",
    "DynamicConfigurable": "pyroute.control.configurable",
    "Hook": "pyroute.control.hook",
    "Loop": "pyroute.control.loop",
    "MalformedError": "pyroute.control.config_store",
    "Monitor": "pyroute.control.monitor",
    "Predictor": "pyroute.control.predictor",
    "SplitRatio": "pyroute.control.configurable",
    "StaleVersionError": "pyroute.control.config_store",
    "Status": "pyroute.control.loop",
    "Store": "pyroute.control.store",
    "StoreError": "pyroute.control.store",
    "Watch": "pyroute.control.config_store",
    "edge_name": "pyroute.control.configurable",
    "policies": "pyroute.control.policies",
    "train": "pyroute.control.train",
}
"""Public name -> the module that has it, or that it is."""

__all__ = [
    "Backtest",
    "ConfigStore",
    "Document",
    "DynamicConfigurable",
    "Hook",
    "Loop",
    "MalformedError",
    "Monitor",
    "Predictor",
    "SplitRatio",
    "StaleVersionError",
    "Status",
    "Store",
    "StoreError",
    "Watch",
    "edge_name",
    "policies",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_NAMES[name])
    return getattr(module, name, module)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
