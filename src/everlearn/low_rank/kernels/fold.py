"""Folding rows into the sketch of a component: one symmetric eigenproblem for some rows."""

import numpy as np

from everlearn.linalg.compile import kernel

# Directions with less than this share of the largest eigenvalue are rounding errors of the Gram matrix.
LEAST_EIGENVALUE = 1e-12


@kernel
def top_directions(Z, most, directions, scatter):
    """Principal directions of Z'Z and the energy along them, at most `most`; returns their number."""
    directions[:] = 0.0
    scatter[:] = 0.0
    # Z has few rows and many columns: eigenvectors V of Z Z' give those of Z'Z as diag(value)^-1/2 V'Z.
    value, V = np.linalg.eigh(Z @ Z.T)
    size, largest = len(value), value[-1]
    if not largest > 0.0:
        return 0
    k = 0
    while k < min(most, size) and value[size - 1 - k] > LEAST_EIGENVALUE * largest:
        k += 1
    mix = np.empty((k, size))
    for i in range(k):
        scatter[i] = value[size - 1 - i]
        # Of both signs of an eigenvector the one with a positive sum: draws for gaps depend on it, and every solver
        # would have its own.
        sign = np.copysign(1.0, V[:, size - 1 - i].sum())
        for m in range(size):
            mix[i, m] = sign * V[m, size - 1 - i] / np.sqrt(scatter[i])
    directions[:k] = mix @ Z
    return k


@kernel
def take_gaps(c, waiting, j):
    """Add the conditional covariance of filled gaps to the sketch of component j."""
    used = c.used[j]
    total = waiting.variance[j].sum()
    if used > 0:
        # The conditional covariance within the span of the directions turns them;
        # what lies off it shows in the trace only.
        S = waiting.along[j, :used, :used].copy()
        for k in range(used):
            S[k, k] += c.scatter[j, k]
        value, V = np.linalg.eigh(S)
        turned = np.ascontiguousarray(V[:, ::-1].T) @ c.directions[j, :used]
        c.directions[j, :used] = turned
        for k in range(used):
            c.scatter[j, k] = max(value[used - 1 - k], 0.0)
    c.trace[j] += total
    c.diagonal[j] += waiting.variance[j]


@kernel
def hold_out(c, waiting, j):
    """Energies that the waiting rows have along directions that have not seen them, beside those expected."""
    m, used, n = waiting.size[j], c.used[j], c.n[j]
    N = n + c.borrowed[j]
    if N < 3.0:
        return
    w = waiting.weights[j, :m]
    E = waiting.rows[j, :m] - c.mean[j]
    total, R = waiting.variance[j].sum(), w.sum()
    for i in range(m):
        total += w[i] * np.sum(E[i] * E[i])
    # About a mean of n rows a new row has 1 + 1/n times the variance; `fresh` takes that off.
    keep, fresh = (n / (n + R)) ** 2, 1.0 / (1.0 + 1.0 / n)
    c.held[j] *= keep
    c.expected[j] *= keep
    along = 0.0
    if used > 0:
        P = E @ c.directions[j, :used].T
        for k in range(used):
            h = waiting.along[j, k, k]
            for i in range(m):
                h += w[i] * P[i, k] ** 2
            along += h
            c.held[j, k] += fresh * h
            c.expected[j, k] += R * c.scatter[j, k] / (N - 1.0)
    c.residual[j] = c.residual[j] * keep + fresh * max(total - along, 0.0)
    c.held_rows[j] = c.held_rows[j] * keep + R


@kernel
def fold(c, waiting, j, fading):
    """Take the waiting rows of component j into its sketch: exact up to the cut to the directions that are kept.

    The rows of Z are the scaled directions, the rows about their own mean, and the step between both means: Z'Z is
    the scatter about the common mean (Chan, Golub and LeVeque, 1983).
    """
    m = waiting.size[j]
    if m == 0:
        return
    # First of all: once they are folded in, the directions have seen these rows.
    hold_out(c, waiting, j)
    w = waiting.weights[j, :m]
    Y = waiting.rows[j, :m]
    D, R = Y.shape[1], w.sum()
    if fading < 1.0:
        f = fading**R
        c.n[j] *= f
        c.scatter[j] *= f
        c.trace[j] *= f
        c.diagonal[j] *= f
    if waiting.variance[j].any():
        take_gaps(c, waiting, j)
    used, n = c.used[j], c.n[j]
    mean = np.zeros(D)
    for i in range(m):
        for d in range(D):
            mean[d] += w[i] / R * Y[i, d]
    Z = np.empty((used + m + 1, D))
    for k in range(used):
        root = np.sqrt(c.scatter[j, k])
        for d in range(D):
            Z[k, d] = root * c.directions[j, k, d]
    for i in range(m):
        root = np.sqrt(w[i])
        for d in range(D):
            Z[used + i, d] = root * (Y[i, d] - mean[d])
    # The step between both means, weighted so that Z'Z is the scatter about the common one.
    root = np.sqrt(n * R / (n + R))
    for d in range(D):
        delta = mean[d] - c.mean[j, d]
        Z[used + m, d] = root * delta
        c.mean[j, d] += R / (n + R) * delta
    for k in range(used, used + m + 1):
        for d in range(D):
            square = Z[k, d] ** 2
            c.diagonal[j, d] += square
            c.trace[j] += square
    c.n[j] = n + R
    # One direction at least is left for the noise.
    most = min(c.scatter.shape[1], D - 1)
    c.used[j] = top_directions(Z, most, c.directions[j], c.scatter[j])
    waiting.size[j] = 0
    waiting.along[j] = 0.0
    waiting.variance[j] = 0.0
