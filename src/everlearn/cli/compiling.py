"""Compile what learning and asking need, before anybody waits for it: for images and first starts."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import everlearn
from everlearn.errors import EverlearnError
from everlearn.persistence.model_file import dumps, loads
from everlearn.streams.session import Session
from everlearn.typing import Array, ClassifyingModel

# Rows enough for the warm-up, a structure search, and the rows after it.
_N_ROWS = 1200
Kinds = Sequence[tuple[str, dict[str, Any]]]

KINDS: Kinds = (
    ("IncrementalGaussianMixture", {}),
    ("IncrementalGaussianMixture", {"reservoir": 0}),
    ("IncrementalGaussianMixture", {"forgetting": 0.999}),
    ("IncrementalGaussianMixture", {"forgetting": "adaptive"}),
    ("IncrementalGaussianMixtureClassifier", {}),
    ("IncrementalGaussianMixtureRegressor", {}),
    ("AnomalyDetector", {}),
    ("OnlinePPCA", {}),
    ("VariationalPPCA", {}),
)


def compile_kernels(kinds: Kinds = KINDS) -> Iterator[str]:
    """Learn and ask with each kind of model, so that its loops are compiled and cached; yields the kinds one by one."""
    rng = np.random.default_rng(0)
    # Three groups, so that the structure search has something to find.
    X = rng.normal(size=(_N_ROWS, 3)) + 6.0 * rng.integers(0, 3, size=(_N_ROWS, 1))
    gaps = np.where(rng.uniform(size=X.shape) < 0.2, np.nan, X)
    for kind, parameters in kinds:
        yield ", ".join([kind, *(f"{name}={value}" for name, value in parameters.items())])
        model = getattr(everlearn, kind)(**parameters)
        y = _targets(model, X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of gaps in a model that takes none, and the like
            session = Session(model)
            # One row and many, with and without gaps: each takes other loops.
            for part in (X[:1], X[1:], gaps, gaps[:1]):
                session.learn(part, None if y is None else y[: len(part)])
            _ask(session.model, gaps[:300])
            _ask(session.model, X[:1])
            # A model that was loaded begins without caches.
            _ask(loads(dumps(session.model)), X[:300])
            with contextlib.suppress(EverlearnError):
                session.merge(loads(dumps(session.model)))


def _targets(model: Any, X: Array) -> Any:
    if hasattr(model, "score_samples"):
        return None
    label = (X[:, 0] > 6.0).astype(int)
    return np.array(["low", "high"])[label] if isinstance(model, ClassifyingModel) else X.sum(axis=1)


def _ask(model: Any, X: Array) -> None:
    """Every question that the service knows, as far as the model answers it."""
    from everlearn.reporting import queries

    names = queries.column_names(model)
    if queries.is_detector(model):
        queries.detected(queries.detector_that_follows(model, 0.5), X[:20])
    for method in ("score_samples", "p_value", "predict", "predict_proba", "impute"):
        with contextlib.suppress(EverlearnError, AttributeError, TypeError):
            getattr(model, method)(X)
    with contextlib.suppress(EverlearnError, AttributeError, TypeError):
        model.predict_interval(X, 0.9)
    with contextlib.suppress(EverlearnError):
        queries.curve(model, {names[0]: 1.0}, names[1])
        queries.curve(model, {}, names[1])
        queries.condition(model, {names[0]: 1.0}, names[1:]).sample(10)
    with contextlib.suppress(ValueError):
        queries.mixture_of(model)
