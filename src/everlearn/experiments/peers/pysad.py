"""PySAD, whose detectors of anomalies learn one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.experiments.peers.adapter import Contender, Model
from everlearn.typing import Array

PACKAGE = "pysad"
FIRST_ROWS = 200  # RSHash is told the range of the columns: that of the first rows


class Standardised(Model):
    """A detector behind running means and standard deviations."""

    def __init__(self, module: str, name: str) -> None:
        import importlib

        self.model: Any = getattr(importlib.import_module(f"pysad.models.{module}"), name)()

    def score_then_learn(self, X: Array) -> Array:
        """Score of each row before it was learned."""
        mean, squares, scores = np.zeros(X.shape[1]), np.ones(X.shape[1]), np.full(len(X), np.nan)
        for i, x in enumerate(X):
            away = x - mean
            mean = mean + away / (i + 1)
            squares = squares + away * (x - mean)
            z = (x - mean) / np.sqrt(squares / (i + 1))
            if i > 0:
                scores[i] = float(np.ravel(self.model.score_partial(z))[0])
            self.model.fit_partial(z)
        return scores


class Hashed(Model):
    """RSHash with the range of the first rows."""

    def score_then_learn(self, X: Array) -> Array:
        """Score of each row before it was learned."""
        from pysad.models.rs_hash import RSHash

        first = X[:FIRST_ROWS]
        self.model = RSHash(first.min(axis=0), first.max(axis=0) + 1e-9)
        scores = np.full(len(X), np.nan)
        for i, x in enumerate(X):
            if i > 0:
                scores[i] = float(np.ravel(self.model.score_partial(x))[0])
            self.model.fit_partial(x)
        return scores


CONTENDERS: dict[str, list[Contender]] = {
    "speed": [],
    "density": [],
    "missing": [],
    "conditional": [],
    "anomaly": [
        Contender("RSHash", PACKAGE, Hashed, "range of the first 200 rows"),
        Contender("LODA", PACKAGE, lambda: Standardised("loda", "LODA"), "standardised"),
    ],
    "change": [],
}
