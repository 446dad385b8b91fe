"""pomegranate, whose mixtures run on torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.experiments.peers.adapter import Contender, Model
from everlearn.experiments.peers.scikit_learn import best_mixture
from everlearn.typing import Array

PACKAGE = "pomegranate"


class Mixture(Model):
    """GeneralMixtureModel of Gaussians, as many as BIC prefers in scikit-learn's fits, or as are given."""

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components

    def fit(self, X: Array) -> None:
        """Fit all rows; gaps are masked."""
        from pomegranate.distributions import Normal
        from pomegranate.gmm import GeneralMixtureModel

        K = self.n_components or best_mixture(X[~np.isnan(X).any(axis=1)]).n_components
        self.model = GeneralMixtureModel([Normal() for _ in range(K)], random_state=0).fit(_tensor(X))

    def log_density(self, X: Array) -> Array:
        """Log-density of rows."""
        return np.asarray(self.model.log_probability(_tensor(X)), dtype=float)


def _tensor(X: Array) -> Any:
    import torch

    values, gaps = torch.tensor(np.nan_to_num(X), dtype=torch.float32), torch.tensor(np.isnan(X))
    return torch.masked.MaskedTensor(values, ~gaps) if gaps.any() else values


MIXTURE = Contender("GeneralMixtureModel", PACKAGE, Mixture, "components by scikit-learn's BIC", batch=True, joint=True)
CONTENDERS = {
    "speed": [MIXTURE._replace(make=lambda: Mixture(5), settings="5 components")],
    "classification": [],
    "regression": [],
    "density": [MIXTURE],
    "missing": [MIXTURE],
    "conditional": [],
    "anomaly": [],
    "change": [],
}
