"""Training of forecasts in JAX, and the baselines they are compared with.

Needs the extra `train`; a trained model runs without it, in `pyroute.control.Predictor`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute.control.train.fitting import Config, Model, Progress, fit
    from pyroute.control.train.frame import Frame, from_store, read
    from pyroute.control.train.mixing import fit_mixed
    from pyroute.control.train.network import Network, Shape, forward
    from pyroute.control.train.table import compare

_MODULES = {
    "Config": "fitting",
    "Frame": "frame",
    "Model": "fitting",
    "Network": "network",
    "Progress": "fitting",
    "Shape": "network",
    "compare": "table",
    "fit": "fitting",
    "fit_mixed": "mixing",
    "forward": "network",
    "from_store": "frame",
    "read": "frame",
}

__all__ = [
    "Config",
    "Frame",
    "Model",
    "Network",
    "Progress",
    "Shape",
    "compare",
    "fit",
    "fit_mixed",
    "forward",
    "from_store",
    "read",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'pyroute.control.train' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"pyroute.control.train.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"pyroute.control.train: {error.name} is missing: pip install 'pyroute-core[train]'",
            name=error.name,
        ) from error
    globals()[name] = value
    return value
