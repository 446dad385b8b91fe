"""The algorithms that the paper compares, as it writes them, in plain NumPy.

`Igmn` keeps covariances and inverts them for every row, O(D^3); `Figmn` keeps precisions, O(D^2). Both use the exact
covariance update (docs/errata.md) and take a row's targets as its last columns.
"""

from __future__ import annotations

import numpy as np

from everlearn.typing import Array


class Igmn:
    """The original algorithm: covariances, inverted for every row (eq. 1 to 16).

    Parameters
    ----------
    variance : ndarray of shape (n_columns,)
        Diagonal of a new component's covariance.
    threshold : float
        A row whose squared distance to every component is at least this creates one.
    """

    def __init__(self, variance: Array, threshold: float) -> None:
        self.variance, self.threshold = variance, threshold
        self.means = np.empty((0, len(variance)))
        self.matrices = np.empty((0, len(variance), len(variance)))
        self.counts = np.empty(0)

    def learn(self, X: Array) -> Igmn:
        """Learn rows, targets included."""
        for x in X:
            self.learn_one(x)
        return self

    def learn_one(self, x: Array) -> None:
        """Create a component or update all of them."""
        # (K, D): the error of the row to every component (eq. 6).
        e = x - self.means
        distances, log_dets = self.look(e)
        # The novelty criterion of algorithm 1. Printed as "K = 0 or ...", it would update when there is nothing to
        # update.
        if len(self.counts) and distances.min() < self.threshold:
            self.update(e, distances, _posterior(distances, log_dets, self.counts))
        else:
            self.create(x)

    def create(self, x: Array) -> None:
        """Open a component at a row."""
        self.means = np.vstack([self.means, x])
        self.matrices = np.concatenate([self.matrices, self.fresh()[None]])
        self.counts = np.append(self.counts, 1.0)

    def fresh(self) -> Array:
        """Return the matrix of a new component."""
        return np.diag(self.variance)

    def look(self, e: Array) -> tuple[Array, Array]:
        """Return squared distances and log-determinants of the covariances."""
        # Eq. 1: this inverse of every component for every row is the O(D^3) that the fast algorithm avoids.
        precisions = np.linalg.inv(self.matrices)
        log_dets = np.linalg.slogdet(self.matrices)[1]
        return np.einsum("ki,kij,kj->k", e, precisions, e), log_dets

    def update(self, e: Array, distances: Array, p: Array) -> None:
        """Move every component by its posterior."""
        # Eq. 5 before eq. 7: the step size uses the accumulated posterior with this row in it.
        self.counts += p
        w = p / self.counts
        self.means += w[:, None] * e
        # The exact covariance of the moved mean. Eq. 11 as printed subtracts once too often (docs/errata.md).
        for k in range(len(w)):
            self.matrices[k] = (1 - w[k]) * self.matrices[k] + w[k] * (1 - w[k]) * np.outer(e[k], e[k])

    def predict(self, X: Array) -> Array:
        """Return the expected targets, the columns that X lacks (eq. 14 and 15), for one row after another."""
        return np.array([self.predict_one(x) for x in X])

    def predict_one(self, x: Array) -> Array:
        """Return the expected targets of one row."""
        # Targets are the last columns: inputs are [:n] and targets [n:] of every mean and matrix (eq. 14 to 16).
        n = len(x)
        e = x - self.means[:, :n]
        inputs = self.matrices[:, :n, :n]
        solved = np.einsum("kij,kj->ki", np.linalg.inv(inputs), e)
        p = _posterior(np.einsum("ki,ki->k", e, solved), np.linalg.slogdet(inputs)[1], self.counts)
        return p @ (self.means[:, n:] + np.einsum("kti,ki->kt", self.matrices[:, n:, :n], solved))


class Figmn(Igmn):
    """The fast algorithm: precisions and log-determinants under rank-one updates (eq. 17 to 33)."""

    def __init__(self, variance: Array, threshold: float) -> None:
        super().__init__(variance, threshold)
        self.log_dets = np.empty(0)

    def create(self, x: Array) -> None:
        """Open a component at a row."""
        super().create(x)
        self.log_dets = np.append(self.log_dets, np.log(self.variance).sum())

    def fresh(self) -> Array:
        """Return the matrix of a new component."""
        return np.diag(1.0 / self.variance)

    def look(self, e: Array) -> tuple[Array, Array]:
        """Return squared distances and log-determinants of the covariances."""
        # Lambda e of each component (eq. 25), kept for the rank-one update of the same row.
        self.products = np.stack([m @ row for m, row in zip(self.matrices, e, strict=True)]) if len(e) else e
        return np.einsum("ki,ki->k", e, self.products), self.log_dets

    def update(self, e: Array, distances: Array, p: Array) -> None:
        """Move every component by its posterior."""
        self.counts += p
        w = p / self.counts
        self.means += w[:, None] * e
        # The matrix determinant lemma (eq. 26) in logarithms: a determinant of 784 columns leaves the range of floats.
        self.log_dets += e.shape[1] * np.log1p(-w) + np.log1p(w * distances)
        for k, u in enumerate(self.products):
            # Sherman and Morrison (eq. 19) for the exact update, in place of eq. 24.
            self.matrices[k] -= (w[k] / (1 + w[k] * distances[k])) * np.outer(u, u)
            self.matrices[k] /= 1 - w[k]

    def predict_one(self, x: Array) -> Array:
        """Return the expected targets of one row (eq. 32, as it should read)."""
        n = len(x)
        e = x - self.means[:, :n]
        # Lambda_t^-1 is the conditional covariance (eq. 33); its size is the number of targets, so that this inverse is
        # small.
        targets = np.linalg.inv(self.matrices[:, n:, n:])
        pulls = np.stack([m[n:, :n] @ row for m, row in zip(self.matrices, e, strict=True)])
        inner = np.stack([m[:n, :n] @ row for m, row in zip(self.matrices, e, strict=True)])
        moved = np.einsum("kts,ks->kt", targets, pulls)
        # The precision of the inputs alone is a Schur complement of Lambda; taken within the quadratic form, it is
        # never formed.
        distances = np.einsum("ki,ki->k", e, inner) - np.einsum("kt,kt->k", pulls, moved)
        # |Sigma_i| = |Sigma| / |Lambda_t^-1|, the determinant of the inputs' own covariance.
        log_dets = self.log_dets - np.linalg.slogdet(targets)[1]
        return _posterior(distances, log_dets, self.counts) @ (self.means[:, n:] - moved)


def _posterior(distances: Array, log_dets: Array, counts: Array) -> Array:
    log_p = np.log(counts) - 0.5 * (distances + log_dets)
    p: Array = np.exp(log_p - log_p.max())
    return p / p.sum()
