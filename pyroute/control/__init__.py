"""Predictive control: what a worker is about to do, and the split ratio that follows from it.

Everything here is imported when it is first used: a part may need an extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute.control import train
    from pyroute.control.backtest import Backtest
    from pyroute.control.predictor import Predictor

_MODULES = {"Backtest": "backtest", "Predictor": "predictor"}
_PACKAGES = {"train"}

__all__ = ["Backtest", "Predictor", "train"]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"pyroute.control.{name}")
    if name in _MODULES:
        return getattr(import_module(f"pyroute.control.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'pyroute.control' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
