"""Slow twins of the low-rank kernels: dense matrices, one row at a time, formulas as they are written."""

import numpy as np

from everlearn.low_rank.kernels.shape import LEAST_RATIO
from everlearn.low_rank.kernels.two_parts import Part


def spiked(N, scatter, trace, D, prior):
    """Noise and variances along sample directions of the spiked covariance model, by solving for the population."""
    r, g = len(scatter), D / (N - 1.0)
    for _ in range(8):
        s = (max(trace - sum(scatter[:r]), 0.0) + (D - r) * prior) / ((D - r) * (max(N - 1.0 - r, 0.0) + 1.0))
        kept = sum(a / (N - 1.0) > s * (1.0 + np.sqrt(g)) ** 2 for a in scatter[:r])
        if kept == r:
            break
        r = kept
    out = []
    for k, a in enumerate(scatter):
        y = a / (N - 1.0) / s
        if k >= r or y <= (1.0 + np.sqrt(g)) ** 2:
            out.append(s)
            continue
        # y = l + g l / (l - 1): the larger root.
        roots = np.roots([1.0, -(y + 1.0 - g), y])
        above = max(roots.real) - 1.0
        cos2 = (1.0 - g / above**2) / (1.0 + g / above)
        out.append(s * (1.0 + above * cos2))
    return s, np.array(out)


def scatter_of(rows, weights):
    """Weight, mean and dense scatter matrix of rows."""
    n = weights.sum()
    mean = weights @ rows / n
    E = rows - mean
    return n, mean, (weights[:, None] * E).T @ E


def covariance(loadings, noise):
    """Dense covariance of a factor analyser."""
    return loadings.T @ loadings + np.diag(noise)


def log_density(x, mean, C):
    """Log-density of the observed cells of a row under a dense Gaussian."""
    o = ~np.isnan(x)
    e, S = (x - mean)[o], C[np.ix_(o, o)]
    return -0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(S)[1] + o.sum() * np.log(2.0 * np.pi))


def conditional(x, mean, C):
    """Mean and covariance of the gaps of a row under a dense Gaussian."""
    o = ~np.isnan(x)
    gain = np.linalg.solve(C[np.ix_(o, o)], C[np.ix_(o, ~o)]).T
    return mean[~o] + gain @ (x - mean)[o], C[np.ix_(~o, ~o)] - gain @ C[np.ix_(o, ~o)]


def part_of_rows(rows, share, rank):
    """The Gaussian of rows in principal coordinates, by NumPy's eigendecomposition of their covariance."""
    w = rows.weights * share
    N = w.sum()
    mean = np.average(rows.Z, axis=0, weights=w)
    value, V = np.linalg.eigh(np.cov(rows.Z.T, aweights=w, ddof=0) * N)
    order = np.argsort(-value)[: min(rank, rows.D - 1)]
    trace = value.sum() + w @ rows.rest * (1.0 - 1.0 / N)
    s, lam = spiked(N, np.maximum(value[order], 0.0), trace, rows.D, 1.0)
    kept = np.array(lam) > LEAST_RATIO * s
    return Part(N, mean, V[:, order].T[kept], np.array(lam)[kept] * (1.0 + 1.0 / N), s * (1.0 + 1.0 / N))
