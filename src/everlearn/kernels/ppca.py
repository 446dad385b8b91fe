"""Probabilistic PCA, x = W z + mu + noise of variance s: what a row with gaps says, and its likelihood.

Nothing of size d x d is formed: C^-1 = (I - W M^-1 W')/s and ln|C| = (d - q) ln s + ln|M| with M = W'W + s I. A row
with gaps uses the observed rows of W in place of W.
"""

import numpy as np

from everlearn.kernels.jit import kernel

LOG_2PI = np.log(2.0 * np.pi)
JITTER = 1e-14  # share of the mean diagonal that keeps a matrix definite whatever its condition


@kernel
def invert_spd(A, column):
    """Invert a symmetric positive definite A in place by sweeps; returns its log-determinant.

    The diagonal grows by JITTER of its mean first, which is below rounding unless A is singular to working precision.
    """
    q = A.shape[0]
    log_det = 0.0
    jitter = JITTER * np.trace(A) / q
    for k in range(q):
        A[k, k] += jitter
    for k in range(q):
        pivot = max(A[k, k], jitter)
        log_det += np.log(pivot)
        for j in range(k):
            column[j] = A[k, j]
        column[k] = 0.0
        for j in range(k + 1, q):
            column[j] = A[j, k]
        for i in range(q):
            row = A[i]
            f = column[i] / pivot
            for j in range(i + 1):
                row[j] -= f * column[j]
        for j in range(k):
            A[k, j] = column[j] / pivot
        for j in range(k + 1, q):
            A[j, k] = column[j] / pivot
        A[k, k] = -1.0 / pivot
    for i in range(q):
        for j in range(i + 1):
            A[i, j] = -A[i, j]
            A[j, i] = A[i, j]
    return log_det


@kernel
def centre(x, base, y):
    """y = x - base, zero in the gaps of x; returns how many cells are observed."""
    observed = 0
    for i in range(x.shape[0]):
        if np.isnan(x[i]):
            y[i] = 0.0
        else:
            y[i] = x[i] - base[i]
            observed += 1
    return observed


@kernel
def gram_of_observed(x, W, s, M):
    """M = W_o'W_o + s I over the observed cells of x."""
    q = W.shape[1]
    for a in range(q):
        for b in range(q):
            M[a, b] = 0.0
        M[a, a] = s
    for i in range(x.shape[0]):
        if np.isnan(x[i]):
            continue
        w = W[i]
        for a in range(q):
            row = M[a]
            for b in range(q):
                row[b] += w[a] * w[b]


@kernel
def latent(x, base, W, s, M_inv, log_det, y, z, v, M_gaps):
    """Posterior of the latent variable from the observed part of one row.

    Fills y = x - base (zero in gaps) and z = M_o^-1 W_o' y_o, and M_gaps = M_o^-1 when the row has gaps. Returns the
    number of observed cells and ln|M_o|.
    """
    observed = centre(x, base, y)
    np.dot(y, W, v)
    if observed == x.shape[0]:
        np.dot(M_inv, v, z)
        return observed, log_det
    gram_of_observed(x, W, s, M_gaps)
    log_det = invert_spd(M_gaps, z)
    np.dot(M_gaps, v, z)
    return observed, log_det


@kernel
def distance(x, W, s, y, z):
    """Squared Mahalanobis distance |y_o - W_o z|^2 / s + |z|^2, a sum without cancellation."""
    q = W.shape[1]
    total = 0.0
    for i in range(x.shape[0]):
        if not np.isnan(x[i]):
            w = W[i]
            r = y[i]
            for j in range(q):
                r -= w[j] * z[j]
            total += r * r
    total /= s
    for j in range(q):
        total += z[j] * z[j]
    return total


@kernel
def log_density(x, mu, W, s, M_inv, log_det, y, z, v, M_gaps):
    """ln N(x_o; mu_o, C_oo) of one row; 0 when nothing is observed."""
    observed, log_det = latent(x, mu, W, s, M_inv, log_det, y, z, v, M_gaps)
    if observed == 0:
        return 0.0
    d2 = distance(x, W, s, y, z)
    return -0.5 * (observed * LOG_2PI + (observed - W.shape[1]) * np.log(s) + log_det + d2)


@kernel
def score_rows(X, mu, W, s, M_inv, log_det, out):
    """Log-density of the observed part of each row."""
    d, q = W.shape
    y, z, v, M_gaps = np.empty(d), np.empty(q), np.empty(q), np.empty((q, q))
    for t in range(X.shape[0]):
        out[t] = log_density(X[t], mu, W, s, M_inv, log_det, y, z, v, M_gaps)


@kernel
def fill_rows(X, mu, W, s, M_inv, filled, variance):
    """Conditional mean mu + W z of each row's gaps, and unless `variance` is empty s (1 + w_i' M_o^-1 w_i) there."""
    d, q = W.shape
    y, z, v, M_gaps = np.empty(d), np.empty(q), np.empty(q), np.empty((q, q))
    for t in range(X.shape[0]):
        x = X[t]
        latent(x, mu, W, s, M_inv, 0.0, y, z, v, M_gaps)
        for i in range(d):
            if not np.isnan(x[i]):
                filled[t, i] = x[i]
                continue
            filled[t, i] = mu[i]
            for j in range(q):
                filled[t, i] += W[i, j] * z[j]
            if variance.shape[0] > 0:
                variance[t, i] = s * (1.0 + quadratic(W[i], M_gaps))


@kernel
def quadratic(w, A):
    """w' A w."""
    total = 0.0
    for a in range(w.shape[0]):
        value = 0.0
        for b in range(w.shape[0]):
            value += A[a, b] * w[b]
        total += w[a] * value
    return total
