"""Probabilistic PCA, x = W z + mu + noise of variance s: the latent posterior of a row with gaps, and its likelihood.

Nothing of size d x d is formed: C^-1 = (I - W M^-1 W')/s and ln|C| = (d - q) ln s + ln|M| with M = W'W + s I. A row
with gaps uses the observed rows of W in place of W.
"""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.column_scan import has_gaps
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import invert_spd, symmetric_product
from everlearn.typing import Array

LOG_2PI = np.log(2.0 * np.pi)
NOISE_SHARE = 1e-6  # least noise variance, as a share of the mean variance of a column
ROUNDING = 2.0**-104  # and as a share of the largest squared mean: the last bit of the data, squared
TINY = 2.0**-200  # and where every value is zero


class FactoredPPCA(NamedTuple):
    """A model with M^-1 and ln|M|, M = W'W + sigma2 I, from which rows are scored."""

    mu: Array  # (d,)
    W: Array  # (d, q)
    sigma2: float
    M_inv: Array  # (q, q)
    log_det: float  # ln|M|


class RowScratch(NamedTuple):
    """Work space for one row; the last two are empty unless some row has gaps."""

    y: Array  # (d,): x - mu, zero in gaps
    z: Array  # (q,): posterior mean of the latent variable
    v: Array  # (q,): W'y
    M_gaps: Array  # (q, q): M_o^-1 of the observed columns
    W_seen: Array  # (d, q): W with zeros in the gaps


@kernel
def dot(A, B, out):
    """out = A B by BLAS; in a kernel of its own, because numba's np.dot needs reference counts and `inner` has none."""
    np.dot(A, B, out)


@kernel
def row_scratch(d, q, gaps):
    """Work space for rows of d columns."""
    n = 1 if gaps else 0
    return RowScratch(np.empty(d), np.empty(q), np.empty(q), np.empty((n * q, n * q)), np.empty((n * d, n * q)))


@inner
def least_noise(mean_variance, mu):
    """Least noise variance that keeps C definite, and no finer than the rounding of the data."""
    top = 0.0
    for i in range(mu.shape[0]):
        top = max(top, abs(mu[i]))
    return NOISE_SHARE * mean_variance + ROUNDING * top * top + TINY


@inner
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


@inner
def gram_of_observed(x, model, row):
    """M_o = W_o'W_o + s I over the observed cells of x, into row.M_gaps."""
    W, W_seen, M = model.W, row.W_seen, row.M_gaps
    for i in range(x.shape[0]):
        seen = 0.0 if np.isnan(x[i]) else 1.0
        source, target = W[i], W_seen[i]
        for j in range(W.shape[1]):
            target[j] = seen * source[j]
    # A masked copy and one matrix product are faster than a loop over the observed rows of W.
    dot(W_seen.T, W_seen, M)
    for j in range(M.shape[0]):
        M[j, j] += model.sigma2


@inner
def latent(x, model, row):
    """Posterior of the latent variable from the observed part of one row.

    Fills y = x - mu (zero in gaps) and z = M_o^-1 W_o' y_o, and M_o^-1 when the row has gaps. Returns the number of
    observed cells and ln|M_o|.
    """
    observed = centre(x, model.mu, row.y)
    # Gaps are zero in y, so that the product over all columns is that over the observed ones.
    dot(row.y, model.W, row.v)
    if observed == x.shape[0]:
        dot(model.M_inv, row.v, row.z)
        return observed, model.log_det
    gram_of_observed(x, model, row)
    log_det = invert_spd(row.M_gaps, row.z)
    dot(row.M_gaps, row.v, row.z)
    return observed, log_det


@inner
def distance(x, model, row):
    """Squared Mahalanobis distance |y_o - W_o z|^2 / s + |z|^2, a sum without cancellation."""
    W, y, z = model.W, row.y, row.z
    q = W.shape[1]
    total = 0.0
    for i in range(x.shape[0]):
        if not np.isnan(x[i]):
            w = W[i]
            r = y[i]
            for j in range(q):
                r -= w[j] * z[j]
            total += r * r
    total /= model.sigma2
    for j in range(q):
        total += z[j] * z[j]
    return total


@inner
def log_density(x, model, row):
    """ln N(x_o; mu_o, C_oo) of one row; 0 when nothing is observed."""
    observed, log_det = latent(x, model, row)
    if observed == 0:
        return 0.0
    d2 = distance(x, model, row)
    return -0.5 * (observed * LOG_2PI + (observed - model.W.shape[1]) * np.log(model.sigma2) + log_det + d2)


@kernel
def score_rows(X, model, out):
    """Log-density of the observed part of each row, into `out`."""
    row = row_scratch(model.W.shape[0], model.W.shape[1], has_gaps(X))
    for t in range(X.shape[0]):
        out[t] = log_density(X[t], model, row)


@kernel
def fill_rows(X, model, filled, variance):
    """Conditional mean mu + W z of each row's gaps, and unless `variance` is empty s (1 + w_i' M_o^-1 w_i) there."""
    W = model.W
    d, q = W.shape
    row = row_scratch(d, q, has_gaps(X))
    for t in range(X.shape[0]):
        x = X[t]
        latent(x, model, row)
        for i in range(d):
            if not np.isnan(x[i]):
                filled[t, i] = x[i]
                continue
            filled[t, i] = model.mu[i]
            for j in range(q):
                filled[t, i] += W[i, j] * row.z[j]
            if variance.shape[0] > 0:
                variance[t, i] = model.sigma2 * (1.0 + symmetric_product(row.M_gaps, W[i], row.v))
