"""Probabilistic PCA, x = W z + mu + noise of variance s: what a row with gaps says, and its likelihood.

Nothing of size d x d is formed: C^-1 = (I - W M^-1 W')/s and ln|C| = (d - q) ln s + ln|M| with M = W'W + s I. A row
with gaps uses the observed rows of W in place of W.
"""

import numpy as np

from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import symmetric_product

LOG_2PI = np.log(2.0 * np.pi)
JITTER = 1e-14  # share of the mean diagonal that keeps a matrix definite whatever its condition
NOISE_SHARE = 1e-6  # least noise variance, as a share of the mean variance of a column
ROUNDING = 2.0**-104  # and as a share of the largest squared mean: the last bit of the data
TINY = 2.0**-200  # and where every value is zero


# Loops, because an assignment to a slice compiles numba's text handling for its error message, which takes seconds.
@kernel
def copy_vector(source, target):
    """Copy one array to another."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@kernel
def copy_matrix(source, target):
    """Copy one matrix to another."""
    for i in range(source.shape[0]):
        copy_vector(source[i], target[i])


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
def inverse_factor(A, P):
    """Upper triangular P with P P' = A^-1 for a symmetric positive definite A, which is destroyed.

    A pivot that rounding has made too small is kept at JITTER of the mean diagonal.
    """
    q = A.shape[0]
    least = JITTER * np.trace(A) / q
    for i in range(q):
        row = A[i]
        for j in range(i + 1):
            value = row[j]
            for k in range(j):
                value -= row[k] * A[j, k]
            row[j] = value / A[j, j] if j < i else np.sqrt(max(value, least))
    for j in range(q):
        target = P[j]
        for i in range(q):
            value = 1.0 if i == j else 0.0
            for k in range(j, i):
                value -= A[i, k] * target[k]
            target[i] = value / A[i, i] if i >= j else 0.0


@kernel
def least_noise(mean_variance, mu):
    """Least noise variance that keeps C definite, and no finer than the rounding of the data."""
    top = 0.0
    for i in range(mu.shape[0]):
        top = max(top, abs(mu[i]))
    return NOISE_SHARE * mean_variance + ROUNDING * top * top + TINY


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
def gram_of_observed(x, W, s, W_seen, M):
    """M = W_o'W_o + s I over the observed cells of x."""
    for i in range(x.shape[0]):
        seen = 0.0 if np.isnan(x[i]) else 1.0
        source, target = W[i], W_seen[i]
        for j in range(W.shape[1]):
            target[j] = seen * source[j]
    np.dot(W_seen.T, W_seen, M)
    for j in range(M.shape[0]):
        M[j, j] += s


@kernel
def workspace(d, q, gaps):
    """Room for one row: y, z, W'y, M_o^-1 and the observed rows of W, these two empty unless there are gaps."""
    n = 1 if gaps else 0
    return np.empty(d), np.empty(q), np.empty(q), np.empty((n * q, n * q)), np.empty((n * d, n * q))


@kernel
def has_gaps(X):
    """Whether some cell is NaN."""
    for t in range(X.shape[0]):
        for i in range(X.shape[1]):
            if np.isnan(X[t, i]):
                return True
    return False


@kernel
def latent(x, base, W, s, M_inv, log_det, work):
    """Posterior of the latent variable from the observed part of one row.

    Fills y = x - base (zero in gaps) and z = M_o^-1 W_o' y_o, and M_o^-1 when the row has gaps. Returns the number of
    observed cells and ln|M_o|.
    """
    y, z, v, M_gaps, W_seen = work
    observed = centre(x, base, y)
    np.dot(y, W, v)
    if observed == x.shape[0]:
        np.dot(M_inv, v, z)
        return observed, log_det
    gram_of_observed(x, W, s, W_seen, M_gaps)
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
def log_density(x, mu, W, s, M_inv, log_det, work):
    """ln N(x_o; mu_o, C_oo) of one row; 0 when nothing is observed."""
    observed, log_det = latent(x, mu, W, s, M_inv, log_det, work)
    if observed == 0:
        return 0.0
    d2 = distance(x, W, s, work[0], work[1])
    return -0.5 * (observed * LOG_2PI + (observed - W.shape[1]) * np.log(s) + log_det + d2)


@kernel
def score_rows(X, mu, W, s, M_inv, log_det, out):
    """Log-density of the observed part of each row."""
    work = workspace(W.shape[0], W.shape[1], has_gaps(X))
    for t in range(X.shape[0]):
        out[t] = log_density(X[t], mu, W, s, M_inv, log_det, work)


@kernel
def fill_rows(X, mu, W, s, M_inv, filled, variance):
    """Conditional mean mu + W z of each row's gaps, and unless `variance` is empty s (1 + w_i' M_o^-1 w_i) there."""
    d, q = W.shape
    work = workspace(d, q, has_gaps(X))
    z, M_gaps = work[1], work[3]
    for t in range(X.shape[0]):
        x = X[t]
        latent(x, mu, W, s, M_inv, 0.0, work)
        for i in range(d):
            if not np.isnan(x[i]):
                filled[t, i] = x[i]
                continue
            filled[t, i] = mu[i]
            for j in range(q):
                filled[t, i] += W[i, j] * z[j]
            if variance.shape[0] > 0:
                variance[t, i] = s * (1.0 + symmetric_product(M_gaps, W[i], work[2]))


@kernel
def fisher(W, s, M_inv, body, A, F_mu, F_W):
    """Diagonal Fisher information about mu and W, filled in, and about s, returned (see `gaussian.ppca.fisher`).

    With `body` what the body of the paper prints in place of it.
    """
    d, q = W.shape
    np.dot(W, M_inv, A)
    for i in range(d):
        a, w, F = A[i], W[i], F_W[i]
        aw = 0.0
        aa = 0.0
        for j in range(q):
            aw += a[j] * w[j]
            aa += a[j] * a[j]
        c = (1.0 - aw) / s
        F_mu[i] = (c - aa) / s if body else c
        twice = 2.0 if body else 1.0
        for j in range(q):
            F[j] = twice * ((1.0 - s * M_inv[j, j]) * c + a[j] * a[j])
    if body:
        return (d - q) / s + np.trace(M_inv)
    return 0.5 * ((d - q) / (s * s) + np.sum(M_inv * M_inv))
