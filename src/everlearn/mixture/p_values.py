"""p-values of rows: how probable it is that a row of the same law has a density as low or lower.

The law is that of the sampled rows, each scored by a model without it; beyond the lowest of them it is extrapolated by
the tail that the mixture itself has. So the p-value of a new row is uniform on rows of the same law, even where the
model does not fit well, and goes far below one over the number of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.gaussian import LOG_2PI, Indices
from everlearn.gaussian.mixture import Mixture
from everlearn.mixture.ask import Look, log_density, whole_mixture
from everlearn.mixture.keep.forgetting import Weights, sample_weights
from everlearn.mixture.kernels.covariance import factors_of_counts
from everlearn.typing import Array

# The tail is fitted at the density that so many sampled rows fall below.
TAIL_ROWS = 20
# The row that is asked about is stood for by so many sampled ones above and below in density.
NEIGHBOURS = 4
# With fewer rows that have the columns asked for, rows are drawn from the mixture instead, so many.
FEWEST_ROWS, DRAWN_ROWS = 50, 2000
NO_ROWS = Weights(np.zeros(0, np.intp), np.zeros(0), 1.0)
# Patterns of gaps whose reference is kept.
MAX_PATTERNS = 256


class Reference(NamedTuple):
    """The law of the log-density, for one pattern of observed columns."""

    log_density: Array  # (m,), of sampled rows, ascending
    below: Array  # (m,), share of all rows with a lower one; half of the row itself included
    tail: int  # place from which on the sample speaks; below, the mixture's tail
    part: Mixture  # of the observed columns


def p_values(look: Look, X: Array) -> Array:
    """P(log p(Y) <= log p(x)) for a row Y of the same law, over the columns that x has; 1 where it has none."""
    out, densities = np.ones(len(X)), log_density(look, X)
    for observed, rows in mixtures.patterns(X):
        if len(observed):
            out[rows] = _p_values(densities[rows], reference(look, observed))
    return out


def _p_values(densities: Array, reference: Reference) -> Array:
    known, below, tail, part = reference
    p = np.interp(densities, known, below)
    low = densities < known[tail]
    if low.any():
        # The tail of the mixture, scaled so that it meets the sample where that ends.
        start = tail_bound(known[tail : tail + 1], part)[0]
        p[low] = below[tail] * np.minimum(tail_bound(densities[low], part) / max(start, 1e-300), 1.0)
    return np.asarray(p)


def tail_bound(densities: Array, part: Mixture) -> Array:
    """Upper bound of P(log p(Y) <= t) for Y from the mixture, exact where components are far apart.

    The density of Y is at least that of its own component k, whose logarithm is h_k - d^2 / 2 with a chi-square
    distribution of d^2: ``sum_k w_k P(chi2_D >= 2 (h_k - t))``.
    """
    D = part.means.shape[1]
    heights = np.log(part.weights) - 0.5 * (mixtures.whitenings(part).log_det + D * LOG_2PI)
    return np.asarray(chdtrc(D, np.maximum(2.0 * (heights - densities[:, None]), 0.0)) @ part.weights)


def reference(look: Look, observed: Indices) -> Reference:
    """The law of the log-density for a pattern of observed columns, worked out once."""
    key = observed.tobytes()
    if key not in look.references:
        if len(look.references) >= MAX_PATTERNS:
            look.references.clear()
        look.references[key] = _new_reference(look, observed)
    return look.references[key]  # type: ignore[no-any-return]


def _new_reference(look: Look, observed: Indices) -> Reference:
    whole = mixtures.marginal(whole_mixture(look), observed)
    kept = look.sample.size[0] >= FEWEST_ROWS
    slots, weights, _ = sample_weights(look.sample, look.fading) if kept else NO_ROWS
    rows = look.sample.rows[slots].astype(np.float64)[:, observed]
    seen = ~np.isnan(rows).any(axis=1)
    if seen.sum() >= FEWEST_ROWS:
        X = rows[seen] / look.frame.inverse[observed] + look.frame.centre[observed]
        densities, weights = leave_one_out(look, X, observed), weights[seen]
    else:
        X, _ = mixtures.sample(whole, DRAWN_ROWS, np.random.default_rng(0))
        densities, weights = mixtures.log_density(X, whole), np.ones(DRAWN_ROWS)
    order = np.argsort(densities)
    share = weights[order] / weights.sum()
    below = np.cumsum(share) - 0.5 * share
    # Effective number of rows (Kish): few heavy rows say as little about a tail as few rows.
    effective = 1.0 / np.sum(share**2)
    tail = int(np.searchsorted(below, min(TAIL_ROWS / effective, 0.5)))
    return Reference(densities[order], below, min(tail, len(below) - 1), whole)


def leave_one_out(look: Look, X: Array, observed: Indices) -> Array:
    """Log-density of learned rows in some columns, each under components without it and with a row as probable.

    The formulas are those of `kernels.em.leave_one_out`; then the row that is asked about takes the place of the one
    left out (`stand_ins`). Without that, where few columns make the top of the density flat, all new rows up there
    would lie above every sampled one.
    """
    components, tau = look.model.components, look.model.shape.tau
    K, d = int(components.size[0]), X.shape[1]
    whole = mixtures.marginal(whole_mixture(look), observed)
    part = Mixture(*(values[:K] for values in whole))
    mass = components.mass[:K]
    total = mass.sum()
    joint = mixtures.log_joint(X, whole)
    R = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])[:, :K]
    whitening = mixtures.whitenings(part)
    d2 = mixtures.squared_distances(X, part.means, whitening)
    N = np.maximum(components.counts[:K], 1.0)
    # Without the row: mean, scatter and count change by a rank-one term of share R.
    left = np.maximum(N - R, 0.5)
    before, after = factors_of_counts(N, tau), factors_of_counts(left, tau)
    q = d2 * before
    rest = np.maximum(1.0 - R * N / left * q, 1e-12)
    log_det = whitening.log_det + d * (np.log(after) - np.log(before)) + np.log(rest)
    distance = q / rest * (N / left) ** 2 / after
    without = np.log(np.maximum(mass - R, 1e-9)) - 0.5 * (d * LOG_2PI + log_det + distance)
    background = joint[:, K:] + np.log(total)
    # The background is not made of the row and stays.
    densities = np.logaddexp.reduce(np.column_stack([without, background]), axis=1) - np.log(max(total - 1.0, 1.0))
    # To first order; to all of them, a row in its place adds no more than the row itself did.
    added = stand_ins(X, part, R, N, np.argsort(densities))
    return np.minimum(densities + added, np.maximum(np.logaddexp.reduce(joint, axis=1), densities))


def stand_ins(X: Array, part: Mixture, R: Array, N: Array, order: Indices) -> Array:
    """What another row adds to the log-density of each one, in the mean over those next to it in `order`, (n,).

    To first order a row y learned by a component with N rows adds ``r(x) r(y) / N (1 + u'v + ((u'v)^2 - u^2 - v^2 +
    d) / 2)`` at x, with u and v the two rows in the component's white axes, and takes one share of all the others.
    """
    n, d = X.shape
    added, neighbours = np.zeros(n), np.zeros(n)
    Z = [mixtures.white(X, part, k) for k in range(len(N))]
    squares = np.column_stack([np.einsum("nd,nd->n", z, z) for z in Z])
    for step in range(1, min(NEIGHBOURS, n - 1) + 1):
        x, y = order[:-step], order[step:]
        dot = np.column_stack([np.einsum("nd,nd->n", z[x], z[y]) for z in Z])
        change = 1.0 + dot + 0.5 * (dot**2 - squares[x] - squares[y] + d)
        gain = (R[x] * R[y] * change) @ (1.0 / N) - 1.0 / N.sum()
        for rows in (x, y):
            added[rows] += gain
            neighbours[rows] += 1.0
    return added / np.maximum(neighbours, 1.0)
