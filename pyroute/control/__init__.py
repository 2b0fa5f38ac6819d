"""Control: what runs a pipeline from outside, and where its settings are kept.

Names are imported when they are asked for: most need an extra of their own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute.control.config_store import (
        ConfigStore,
        Document,
        MalformedError,
        StaleVersionError,
        Watch,
    )

_NAMES = {
    "ConfigStore": "pyroute.control.config_store",
    "Document": "pyroute.control.config_store",
    "MalformedError": "pyroute.control.config_store",
    "StaleVersionError": "pyroute.control.config_store",
    "Watch": "pyroute.control.config_store",
}
"""Public name -> the module that has it, or that it is."""

__all__ = ["ConfigStore", "Document", "MalformedError", "StaleVersionError", "Watch"]


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_NAMES[name])
    return getattr(module, name, module)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
