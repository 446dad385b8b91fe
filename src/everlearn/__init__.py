"""everlearn: probabilistic models that never stop learning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from everlearn.core.change import PageHinkley as PageHinkley
    from everlearn.estimators.combine import merge as merge
    from everlearn.estimators.mixture import IncrementalGaussianMixture as IncrementalGaussianMixture
    from everlearn.estimators.persistence import load as load
    from everlearn.estimators.persistence import save as save

_PUBLIC = {
    "IncrementalGaussianMixture": "everlearn.estimators.mixture",
    "PageHinkley": "everlearn.core.change",
    "load": "everlearn.estimators.persistence",
    "merge": "everlearn.estimators.combine",
    "save": "everlearn.estimators.persistence",
}
_MODULES = ("checks", "errors")

__all__ = ["__version__", *_PUBLIC, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"everlearn.{name}")
    else:
        raise AttributeError(f"module 'everlearn' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
