"""A kernel machine on the rows that a classifier keeps, and how it is pooled with the Gaussian experts.

Components say where the rows of a class lie; a kernel machine, trained on the classes themselves, says where they meet.
It is ridge regression of the classes on radial kernels (Nystroem's approximation of kernel ridge regression, Williams
and Seeger, 2001): f(x) = k(x, B) A for landmarks B among the rows, with ``k(x, b) = exp(-|x - b|^2 / width)`` and

    A = H^-1 F' Y,    H = F' F + RIDGE k(B, B),    F = k(Z, B),    Y = one-hot classes - 1 / C

for the rows Z, each counted by its weight. What f says of a row that was left out follows in closed form from the
leverage of the row. Both are pooled by their logarithms (Genest and Zidek, 1986): ln p = a ln p_Gaussian + b f + const,
with a and b by logistic regression on rows that were left out of both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from everlearn.gaussian.mixture import spans
from everlearn.typing import Array

Codes = NDArray[np.intp]

# Landmarks, at most: the rows that the components are least sure of. Half as many tell 0.1 % less of MNIST's held-back
# training rows apart; the time to weigh grows with the square.
LANDMARKS = 4000
# Squared width of a kernel, in units of the mean squared distance of a row to the nearest of its class, and the ridge:
# chosen on three held-back sets of MNIST's training rows.
WIDTH, RIDGE = 16.0, 0.01
# Rounding of the Gram matrix, relative to its diagonal.
ROUNDING = 1e-9
# Numbers of a block of kernels.
BLOCK = 2**22
# Steps of Newton's method for two weights.
NEWTON_STEPS = 30


class Machine(NamedTuple):
    """Landmarks and coefficients."""

    landmarks: Array  # (m, G)
    coefficients: Array  # (m, C)
    width: float  # squared distance at which a kernel is 1/e


class Pool(NamedTuple):
    """A machine and what it counts beside the Gaussians."""

    machine: Machine
    known: Codes  # classes of which rows are kept, in the order of the machine's values
    weights: Array  # (2,), of the log-probabilities of the Gaussians and of the machine's values


def squared_distances(X: Array, Z: Array) -> Array:
    """|x - z|^2 of all pairs, (n, m)."""
    d2 = (X * X).sum(axis=1)[:, None] - 2.0 * X @ Z.T + (Z * Z).sum(axis=1)
    return np.maximum(d2, 0.0, out=d2)


def kernels(X: Array, landmarks: Array, width: float) -> Array:
    """Kernels of all pairs, (n, m)."""
    d2 = squared_distances(X, landmarks)
    d2 *= -1.0 / width
    return np.asarray(np.exp(d2, out=d2))


def kernel_width(Z: Array, labels: Codes) -> float:
    """`WIDTH` times the mean squared distance of a row to the nearest of its class; 0 where all such rows are equal."""
    total, rows = 0.0, 0
    for c in np.unique(labels):
        own = Z[labels == c]
        if len(own) > 1:
            rows += len(own)
            for part in spans(len(own), BLOCK // len(own)):
                d2 = squared_distances(own[part], own)
                d2[np.arange(len(d2)), np.arange(len(own))[part]] = np.inf
                total += float(d2.min(axis=1).sum())
    return WIDTH * total / max(rows, 1)


def fit(
    Z: Array, labels: Codes, importance: Array, n_classes: int, landmarks: Codes, judged: Codes
) -> tuple[Machine, Array] | None:
    """The machine of rows Z, and what it says of the judged ones, each left out, (len(judged), C).

    `landmarks` and `judged` are numbers of rows. None where the rows of a class do not differ.
    """
    width = kernel_width(Z, labels)
    if width <= 0.0:
        return None
    B, Y = Z[landmarks], np.eye(n_classes)[labels] - 1.0 / n_classes
    weights = importance * (len(Z) / importance.sum())
    H, T = RIDGE * kernels(B, B, width), np.zeros((len(B), n_classes))
    for part in spans(len(Z), BLOCK // len(B)):
        root = np.sqrt(weights[part])[:, None]
        F = root * kernels(Z[part], B, width)
        H += F.T @ F
        T += F.T @ (root * Y[part])
    H[np.diag_indices_from(H)] += ROUNDING * np.trace(H) / len(H)
    L = cholesky(H, lower=True, overwrite_a=True, check_finite=False)
    A = solve_triangular(L, solve_triangular(L, T, lower=True), lower=True, trans="T")
    F = kernels(Z[judged], B, width)
    # Leverage w f'H^-1 f: how far a row draws its own prediction.
    R = solve_triangular(L, F.T, lower=True, check_finite=False)
    leverage = np.minimum(weights[judged] * np.einsum("mn,mn->n", R, R), 1.0 - 1e-9)
    left_out = Y[judged] - (Y[judged] - F @ A) / (1.0 - leverage)[:, None]
    return Machine(B, A, width), left_out


def values(machine: Machine, X: Array) -> Array:
    """f of each row, (n, C): near 1 - 1/C for its class and -1/C for the others; 0 far from all landmarks."""
    out = np.empty((len(X), machine.coefficients.shape[1]))
    for part in spans(len(X), BLOCK // len(machine.landmarks)):
        out[part] = kernels(X[part], machine.landmarks, machine.width) @ machine.coefficients
    return out


def pool_weights(log_p: Array, f: Array, labels: Codes, importance: Array) -> Array:
    """Weights (a, b) under which exp(a ln p + b f) gives the classes the highest probability, by Newton's method.

    One row's worth of prior holds them at (1, 0), the Gaussians alone; so they stay if the machine only does harm.
    """
    weights = importance * (len(f) / importance.sum())
    told = np.stack([log_p, f], axis=2)  # (n, C, 2)
    true = told[np.arange(len(f)), labels]
    prior = np.array([1.0, 0.0])

    def loss(w: Array) -> float:
        return float(weights @ (_log_sum(told @ w) - true @ w) + 0.5 * ((w - prior) ** 2).sum())

    w, now = prior, loss(prior)
    for _ in range(NEWTON_STEPS):
        logits = told @ w
        p = np.exp(logits - _log_sum(logits)[:, None])
        mean = np.einsum("nc,nck->nk", p, told)
        gradient = weights @ (mean - true) + w - prior
        E = told - mean[:, None]
        hessian = np.einsum("n,nc,nck,ncl->kl", weights, p, E, E) + np.eye(2)
        step, then = np.linalg.solve(hessian, gradient), np.inf
        for halving in range(NEWTON_STEPS):
            then = loss(w - step * 0.5**halving)
            if then <= now:
                w = w - step * 0.5**halving
                break
        if not now - then > 1e-9 * abs(now):
            break
        now = then
    return prior if w[1] <= 0.0 or w[0] < 0.0 else w


def _log_sum(logits: Array) -> Array:
    return np.asarray(np.logaddexp.reduce(logits, axis=1))


def pool_of(Z: Array, labels: Codes, importance: Array, joint: Array, known: Codes, judged: Codes) -> Pool | None:
    """The machine of rows Z, ordered by class, of the known classes, weighed on the judged rows against the Gaussians.

    `joint` are the Gaussians' log-densities with the class frequencies, each row left out, (n, C). None where the rows
    of a class do not differ, or none can be judged.
    """
    joint, codes, rows = joint[:, known], np.searchsorted(known, labels), np.arange(len(Z))
    others = joint.copy()
    others[rows, codes] = -np.inf
    hardest = np.argsort(joint[rows, codes] - others.max(axis=1), kind="stable")[:LANDMARKS]
    found = fit(Z, codes, importance, len(known), hardest, judged) if len(judged) else None
    if found is None:
        return None
    machine, left_out = found
    return Pool(machine, known, pool_weights(joint[judged], left_out, codes[judged], importance[judged]))


def pooled(pool: Pool, X: Array, joint: Array, log_prior: Array) -> Array:
    """Log-probabilities by the Gaussians and the machine together, (n, C), for rows whose first columns are its axes.

    Classes that are not known yet are as probable as their frequency says.
    """
    f = values(pool.machine, X[:, : pool.machine.landmarks.shape[1]])
    logits = pool.weights[0] * joint[:, pool.known] + pool.weights[1] * f
    out = np.broadcast_to(log_prior, joint.shape).copy()
    out[:, pool.known] = logits - _log_sum(logits)[:, None] + np.logaddexp.reduce(log_prior[pool.known])
    return out
