"""gmr, which conditions Gaussian mixtures."""

from __future__ import annotations

import numpy as np

from everlearn.experiments.peers.adapter import Contender, Model, Supervised
from everlearn.experiments.peers.scikit_learn import best_mixture, gaussian_interval
from everlearn.typing import Array

PACKAGE = "gmr"


class Conditioned(Supervised):
    """gmr's conditional of scikit-learn's mixture, as its documentation shows."""

    def learn(self, piece: Array, y: Array) -> None:
        """Fit the joint mixture to all rows."""
        from gmr import GMM

        found = best_mixture(np.column_stack([piece, y]))
        self.model = GMM(found.n_components, found.weights_, found.means_, found.covariances_)

    def predict(self, X: Array) -> tuple[Array, Array, Array]:
        """Mean and limits of the 90 % interval of a Gaussian with the moments of the conditional mixture."""
        known = np.arange(X.shape[1])
        found = [self.model.condition(known, x).to_mvn() for x in X]
        mean, variance = np.array([[answer.mean[0], answer.covariance[0, 0]] for answer in found]).T
        return gaussian_interval(mean, np.sqrt(variance))


class EM(Model):
    """gmr's own EM."""

    def fit(self, X: Array) -> None:
        """Fit all rows."""
        from gmr import GMM

        self.model = GMM(5, random_state=0).from_samples(X, init_params="kmeans++")

    def log_density(self, X: Array) -> Array:
        """Log-density of rows."""
        return np.log(self.model.to_probability_density(X))


MIXTURE = Contender("GMM", PACKAGE, EM, "5 components", batch=True, joint=True)
CONTENDERS = {
    "speed": [MIXTURE],
    "classification": [],
    "regression": [],
    "density": [],
    "missing": [MIXTURE],
    "conditional": [
        Contender("GMM.condition", PACKAGE, Conditioned, "of scikit-learn's mixture by BIC", batch=True),
    ],
    "anomaly": [],
    "change": [],
}
