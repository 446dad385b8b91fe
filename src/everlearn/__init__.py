"""everlearn: probabilistic models that never stop learning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from everlearn.version import __version__

if TYPE_CHECKING:
    from everlearn.anomaly.estimator import AnomalyDetector as AnomalyDetector
    from everlearn.base.merge import merge as merge
    from everlearn.base.posterior import StreamingPosterior as StreamingPosterior
    from everlearn.client import Client as Client
    from everlearn.figmn.classifier import FIGMNClassifier as FIGMNClassifier
    from everlearn.figmn.estimator import FIGMN as FIGMN
    from everlearn.mixture.classifier import (
        IncrementalGaussianMixtureClassifier as IncrementalGaussianMixtureClassifier,
    )
    from everlearn.mixture.estimator import IncrementalGaussianMixture as IncrementalGaussianMixture
    from everlearn.mixture.functions import hierarchy as hierarchy
    from everlearn.mixture.functions import merge_unimodal as merge_unimodal
    from everlearn.mixture.functions import modes as modes
    from everlearn.mixture.functions import reduce as reduce
    from everlearn.mixture.functions import ridgeline as ridgeline
    from everlearn.mixture.imputer import StreamImputer as StreamImputer
    from everlearn.mixture.regressor import (
        IncrementalGaussianMixtureRegressor as IncrementalGaussianMixtureRegressor,
    )
    from everlearn.monitoring.page_hinkley import PageHinkley as PageHinkley
    from everlearn.persistence.model_file import dumps as dumps
    from everlearn.persistence.model_file import load as load
    from everlearn.persistence.model_file import loads as loads
    from everlearn.persistence.model_file import read_metadata as read_metadata
    from everlearn.persistence.model_file import save as save
    from everlearn.ppca.estimator import OnlinePPCA as OnlinePPCA
    from everlearn.ppca.keep import Every as Every
    from everlearn.ppca.keep import NaturalConstraint as NaturalConstraint
    from everlearn.ppca.keep import OnChange as OnChange
    from everlearn.ppca.schedules import PowerSchedule as PowerSchedule
    from everlearn.variational.estimator import VariationalPPCA as VariationalPPCA

_PUBLIC = {
    "AnomalyDetector": "everlearn.anomaly.estimator",
    "Client": "everlearn.client",
    "FIGMN": "everlearn.figmn.estimator",
    "FIGMNClassifier": "everlearn.figmn.classifier",
    "Every": "everlearn.ppca.keep",
    "IncrementalGaussianMixture": "everlearn.mixture.estimator",
    "IncrementalGaussianMixtureClassifier": "everlearn.mixture.classifier",
    "IncrementalGaussianMixtureRegressor": "everlearn.mixture.regressor",
    "NaturalConstraint": "everlearn.ppca.keep",
    "OnChange": "everlearn.ppca.keep",
    "OnlinePPCA": "everlearn.ppca.estimator",
    "PageHinkley": "everlearn.monitoring.page_hinkley",
    "PowerSchedule": "everlearn.ppca.schedules",
    "StreamImputer": "everlearn.mixture.imputer",
    "StreamingPosterior": "everlearn.base.posterior",
    "VariationalPPCA": "everlearn.variational.estimator",
    "dumps": "everlearn.persistence.model_file",
    "hierarchy": "everlearn.mixture.functions",
    "load": "everlearn.persistence.model_file",
    "loads": "everlearn.persistence.model_file",
    "merge": "everlearn.base.merge",
    "merge_unimodal": "everlearn.mixture.functions",
    "modes": "everlearn.mixture.functions",
    "read_metadata": "everlearn.persistence.model_file",
    "reduce": "everlearn.mixture.functions",
    "ridgeline": "everlearn.mixture.functions",
    "save": "everlearn.persistence.model_file",
}
_MODULES = ("agents", "checks", "continual", "datasets", "distributed", "errors", "export")

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
