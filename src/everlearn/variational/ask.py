"""What the model of on-line variational Bayes that answers knows: a PPCA to score rows with, and its posterior."""

from __future__ import annotations

import numpy as np

from everlearn.forgetting.bank import best_member
from everlearn.linalg.dense import invert_spd
from everlearn.ppca.state import FactoredPPCA
from everlearn.typing import Array
from everlearn.variational.kernels.bank import fill_model
from everlearn.variational.state import PaperState, Posterior, State


def model_of(state: State, tau: float = 0.0) -> FactoredPPCA:
    """The member that answers as a PPCA; `tau` is the noise precision if it is known."""
    slot, k = best_member(state.bank)
    n, m = len(state.origin), state.K.shape[2] - 1
    room = FactoredPPCA(np.empty(n), np.empty((n, m)), 0.0, np.empty((m, m)), 0.0)
    sigma2, log_det = fill_model(slot, k, state, float(tau), room)
    return room._replace(sigma2=float(sigma2), log_det=float(log_det))


def posterior(state: State) -> Posterior:
    """What the member that answers knows."""
    slot, k = best_member(state.bank)
    K = state.K[slot, k]
    m = len(K) - 1
    M = state.K_inv[slot, k] @ state.B[slot, k]
    N = float(K[m, m])
    # Counts of columns are kept only from the first gap on; before, every row saw every column.
    seen = state.seen[slot, k] if state.gappy[0] else np.full(len(state.origin), N)
    a, b = float(state.a[slot, k, 0]), float(state.b[slot, k, 0])
    return Posterior(np.ascontiguousarray(M[:m].T), K[:m, :m].copy(), state.origin + M[m], N, a, b, seen.copy())


def paper_posterior(state: PaperState, tau: float) -> Posterior:
    """What the paper's model knows; its mean is zero and its noise is known."""
    M = (_inverse(state.K) @ state.B).T
    n, m = M.shape
    # K sums E[y y'] over the rows, and y has unit variance: the mean of its diagonal counts the effective rows.
    N = float(np.trace(state.K)) / m
    return Posterior(np.ascontiguousarray(M), state.K.copy(), np.zeros(n), N, tau, 1.0, np.full(n, N))


def loadings_std(known: Posterior, rotation: Array) -> Array:
    """Standard deviations of the loadings M R, (n, m): those of N(M, (tau K)^-1), larger where a column had gaps."""
    # The diagonal of R' K^-1 R: the posterior of a row of M has the covariance (tau K)^-1, the same for every column.
    variance = np.einsum("ij,ik,kj->j", rotation, _inverse(known.K), rotation) * known.sigma2
    # As in learning: a column that n_i of N rows observed has the precision K n_i/N, plus p rows for the prior.
    p = len(known.K) + 1
    return np.sqrt(np.outer((known.N + p) / (known.seen + p), variance))


def _inverse(K: Array) -> Array:
    """Inverse of a positive definite matrix, kept definite where rounding has made it singular."""
    K_inv = K.copy()
    invert_spd(K_inv, np.empty(len(K)))
    return K_inv
