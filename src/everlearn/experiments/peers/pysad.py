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

        make = getattr(importlib.import_module(f"pysad.models.{module}"), name)
        self.model: Any = make(random_state=0)

    def score_then_learn(self, X: Array) -> Array:
        """Score of each row before it was learned."""
        mean, squares, scores = np.zeros(X.shape[1]), np.ones(X.shape[1]), np.full(len(X), np.nan)
        for i, x in enumerate(X):
            # Welford's update; `squares` begins with one, so that the first rows do not divide by zero.
            away = x - mean
            mean = mean + away / (i + 1)
            squares = squares + away * (x - mean)
            z = (x - mean) / np.sqrt(squares / (i + 1))
            if i == 0:
                self.model.fit_partial(z)
            else:
                scores[i] = self._score_then_learn(z)
        return scores

    def _score_then_learn(self, z: Array) -> float:
        score = float(np.ravel(self.model.score_partial(z))[0])
        self.model.fit_partial(z)
        return score


class Projected(Standardised):
    """xStream, which projects and bins a row once for both, scored first."""

    def _score_then_learn(self, z: Array) -> float:
        return float(np.ravel(self.model.fit_score_partial(z))[0])


class Hashed(Model):
    """RSHash with the range of the first rows."""

    def score_then_learn(self, X: Array) -> Array:
        """Score of each row before it was learned."""
        from pysad.models.rs_hash import RSHash

        first = X[:FIRST_ROWS]
        self.model = RSHash(first.min(axis=0), first.max(axis=0) + 1e-9, random_state=0)
        scores = np.full(len(X), np.nan)
        for i, x in enumerate(X):
            if i > 0:
                scores[i] = float(np.ravel(self.model.score_partial(x))[0])
            self.model.fit_partial(x)
        return scores


CONTENDERS: dict[str, list[Contender]] = {
    "speed": [],
    "classification": [],
    "regression": [],
    "density": [],
    "missing": [],
    "conditional": [],
    "anomaly": [
        Contender("RSHash", PACKAGE, Hashed, "range of the first 200 rows", slow=True),
        Contender("LODA", PACKAGE, lambda: Standardised("loda", "LODA"), "standardised"),
        Contender(
            "xStream",
            PACKAGE,
            lambda: Projected("xstream", "xStream"),
            "standardised; streams of at most 2,100 rows",
            slow=True,
            most_rows=2100,
        ),
        Contender(
            "RobustRandomCutForest",
            PACKAGE,
            lambda: Standardised("robust_random_cut_forest", "RobustRandomCutForest"),
            "standardised; streams of at most 700 rows",
            slow=True,
            most_rows=700,
        ),
    ],
    "change": [],
}
