"""everlearn: probabilistic models that never stop learning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from everlearn.core.change import PageHinkley as PageHinkley
    from everlearn.core.constraint import Every as Every
    from everlearn.core.constraint import NaturalConstraint as NaturalConstraint
    from everlearn.core.constraint import OnChange as OnChange
    from everlearn.core.schedules import PowerSchedule as PowerSchedule
    from everlearn.estimators.classifier import (
        IncrementalGaussianMixtureClassifier as IncrementalGaussianMixtureClassifier,
    )
    from everlearn.estimators.combine import merge as merge
    from everlearn.estimators.mixture import IncrementalGaussianMixture as IncrementalGaussianMixture
    from everlearn.estimators.persistence import dumps as dumps
    from everlearn.estimators.persistence import load as load
    from everlearn.estimators.persistence import loads as loads
    from everlearn.estimators.persistence import save as save
    from everlearn.estimators.ppca import OnlinePPCA as OnlinePPCA
    from everlearn.estimators.regressor import (
        IncrementalGaussianMixtureRegressor as IncrementalGaussianMixtureRegressor,
    )
    from everlearn.estimators.shape import merge_unimodal as merge_unimodal
    from everlearn.estimators.shape import modes as modes
    from everlearn.estimators.shape import reduce as reduce
    from everlearn.estimators.shape import ridgeline as ridgeline
    from everlearn.estimators.tuning import tune as tune
    from everlearn.estimators.variational import VariationalPPCA as VariationalPPCA

_PUBLIC = {
    "Every": "everlearn.core.constraint",
    "IncrementalGaussianMixture": "everlearn.estimators.mixture",
    "IncrementalGaussianMixtureClassifier": "everlearn.estimators.classifier",
    "IncrementalGaussianMixtureRegressor": "everlearn.estimators.regressor",
    "NaturalConstraint": "everlearn.core.constraint",
    "OnChange": "everlearn.core.constraint",
    "OnlinePPCA": "everlearn.estimators.ppca",
    "PageHinkley": "everlearn.core.change",
    "PowerSchedule": "everlearn.core.schedules",
    "VariationalPPCA": "everlearn.estimators.variational",
    "dumps": "everlearn.estimators.persistence",
    "load": "everlearn.estimators.persistence",
    "loads": "everlearn.estimators.persistence",
    "merge": "everlearn.estimators.combine",
    "merge_unimodal": "everlearn.estimators.shape",
    "modes": "everlearn.estimators.shape",
    "reduce": "everlearn.estimators.shape",
    "ridgeline": "everlearn.estimators.shape",
    "save": "everlearn.estimators.persistence",
    "tune": "everlearn.estimators.tuning",
}
_MODULES = ("agents", "checks", "continual", "datasets", "distributed", "errors")

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
