"""Online EM for probabilistic PCA with the natural constraint, one row at a time.

`state` is an `everlearn.ppca.state.State`, updated in place; `settings` and `info` are the tuples of that module. A row
costs O(d q^2): two products of a (d, q) matrix with a small one, and two inverses of q x q matrices.
"""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.column_scan import has_gaps
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import copy_matrix, copy_vector, inverse_factor, invert_spd, symmetric_product
from everlearn.monitoring.kernels.page_hinkley import page_hinkley_step
from everlearn.ppca.kernels.constraint import frobenius, paper_step, proximal_step, take_reference
from everlearn.ppca.kernels.density import (
    FactoredPPCA,
    RowScratch,
    dot,
    latent,
    least_noise,
    log_density,
    row_scratch,
)
from everlearn.typing import Array

# Policies of the reference.
NEVER, STEP, CLASS, EVERY, CHANGE = 0, 1, 2, 3, 4

COLLAPSED = 1e-10  # an axis with less than this share of the noise variance is restarted from a residual,
RESTART = 1e-2  # with this share


class Scratch(NamedTuple):
    """Work space of the loop over rows."""

    row: RowScratch
    P: Array  # (q, q): S2^-1, or a factor of it
    T: Array  # (q, q): W'W
    column: Array  # (q,)
    A: Array  # (d, q): W M^-1, empty without a constraint


class Blend(NamedTuple):
    """How a row enters the statistics: S <- past S + gain (centring moments + posterior variances)."""

    past: float
    gain: float
    centring: float  # 1 - gain for statistics about the running mean (Welford), else 1


class Sums(NamedTuple):
    """Sums of expected statistics over rows, for a round of batch EM."""

    y: Array  # (d,): expected rows less mu
    z: Array  # (q,): expected latent variables
    S1: Array  # (d, q): y z'
    S2: Array  # (q, q): z z'


@inner
def model_of(state):
    """The parameters that a state holds, as the density kernels take them; only for callers compiled by `inner`."""
    return FactoredPPCA(state.mu, state.W, state.sigma2[0], state.M_inv, state.log_det[0])


# -- E-step ----------------------------------------------------------------------------------------


@inner
def fill_gaps(x, W, row):
    """Put the expectation W_i z into the gaps of y."""
    for i in range(x.shape[0]):
        if np.isnan(x[i]):
            row.y[i] = 0.0
            for j in range(W.shape[1]):
                row.y[i] += W[i, j] * row.z[j]


@inner
def add_gap_variance(x, gain, model, S1, row):
    """Add gain s W_i M_o^-1 to the rows of S1 that were gaps; returns the sum of their variances."""
    W, s = model.W, model.sigma2
    variance = 0.0
    for i in range(x.shape[0]):
        if np.isnan(x[i]):
            # Var(x_i | x_o) = s + s W_i M_o^-1 W_i', and Cov(x_i, z | x_o) = s W_i M_o^-1.
            variance += s * (1.0 + symmetric_product(row.M_gaps, W[i], row.v))
            for j in range(W.shape[1]):
                S1[i, j] += gain * s * row.v[j]
    return variance


@inner
def accumulate(x, observed, blend, model, sums, row):
    """Blend the moments of y and z into sums.S1 and sums.S2; returns the row's share in S0.

    y and z must have been filled by `latent`; `sums` is a State or Sums.
    """
    y, z, S1, S2 = row.y, row.z, sums.S1, sums.S2
    d, q = model.W.shape
    M_inv = model.M_inv
    if observed < d:
        # A gap enters with its expectation; what is uncertain about it is added at the end.
        fill_gaps(x, model.W, row)
        M_inv = row.M_gaps
    square = 0.0
    for i in range(d):
        square += y[i] * y[i]
        f = blend.gain * blend.centring * y[i]
        target = S1[i]
        for j in range(q):
            target[j] = blend.past * target[j] + f * z[j]
    for i in range(q):
        for j in range(q):
            # E[z z'] = s M^-1 + z z': the posterior variance is not centred, only the mean of z is.
            moment = model.sigma2 * M_inv[i, j] + blend.centring * z[i] * z[j]
            S2[i, j] = blend.past * S2[i, j] + blend.gain * moment
    if observed < d:
        return blend.centring * square + add_gap_variance(x, blend.gain, model, S1, row)
    return blend.centring * square


@inner
def start_columns(x, state):
    """A column that is observed for the first time starts with its mean there."""
    for i in range(x.shape[0]):
        if not state.seen[i] and not np.isnan(x[i]):
            state.seen[i] = True
            state.m[i] = x[i]
            state.mu[i] = x[i]
            state.n_unseen[0] -= 1


@inner
def expect(x, gain, centred, state, row):
    """E-step: average the expected statistics of one row in with weight `gain`.

    Centred statistics are about the running mean, after Welford; otherwise equations 9 to 12 as printed, about mu.
    """
    m, mu = state.m, state.mu
    model = FactoredPPCA(m if centred else mu, state.W, state.sigma2[0], state.M_inv, 0.0)
    observed, _ = latent(x, model, row)
    # About the mean as it will be, a deviation shrinks by 1 - gain on each side of the update (Welford).
    # Statistics about the old mean would cancel where the mean is far from zero.
    blend = Blend(1.0 - gain, gain, 1.0 - gain if centred else 1.0)
    share = accumulate(x, observed, blend, model, state, row)
    state.S0[0] = (1.0 - gain) * state.S0[0] + gain * share
    for i in range(x.shape[0]):
        m[i] += gain * row.y[i] if centred else gain * (mu[i] + row.y[i] - m[i])


# -- M-step and R-step -----------------------------------------------------------------------------


@inner
def solve_loadings(state, scratch):
    """W = S1 S2^-1; leaves S2^-1 in scratch.P."""
    copy_matrix(state.S2, scratch.P)
    invert_spd(scratch.P, scratch.column)
    dot(state.S1, scratch.P, state.W)


@inner
def expand_loadings(state, scratch):
    """W = S1 S2^-1 K^(1/2) with K = S2: the M-step of the model with z ~ N(0, K), brought back to K = I.

    In terms of the new latent variable the statistics are S1 = W and S2 = I. Without this, a round of EM corrects the
    length of an axis by no more than the share of the noise in its variance (Liu, Rubin and Wu, 1998).
    """
    S2 = state.S2
    # S2 is overwritten by its factor and then set to I: in the new latent variable nothing of it is left.
    # P P' = S2^-1 with a triangular P: S1 P is S1 S2^-1 times a root of S2, up to a rotation of the latent axes.
    inverse_factor(S2, scratch.P)
    dot(state.S1, scratch.P, state.W)
    copy_matrix(state.W, state.S1)
    for i in range(S2.shape[0]):
        for j in range(S2.shape[0]):
            S2[i, j] = 1.0 if i == j else 0.0


@inner
def unconstrained_noise(state, T):
    """mu = m, T = W'W; returns the noise variance (S0 - tr(S2 W'W))/d of the M-step, eq. 15."""
    W = state.W
    copy_vector(state.m, state.mu)
    dot(W.T, W, T)
    # At W = S1 S2^-1 the terms -2 tr(S1 W') + tr(S2 W'W) of eq. 15 are -tr(S2 W'W).
    return (state.S0[0] - frobenius(state.S2, T)) / W.shape[0]


@inner
def maximise(state, settings, scratch, info):
    """M-step, then the R-step if a reference is held, in place; returns the noise variance."""
    expand, T = settings.expand, scratch.T
    if expand:
        expand_loadings(state, scratch)
    else:
        solve_loadings(state, scratch)
    if not state.reference.is_active[0]:
        return unconstrained_noise(state, T)
    beta = settings.strength_scale * state.k[0] ** -settings.strength_exponent
    if not settings.paper_form:
        return proximal_step(beta, expand, state, scratch)
    s = unconstrained_noise(state, T)
    s = paper_step(beta, s, state, settings, info)
    if np.isnan(s):
        # The loadings of the M-step are made again: S1 holds them after expansion, P holds S2^-1 otherwise.
        info.overflowed[0] += 1
        if expand:
            copy_matrix(state.S1, state.W)
        else:
            dot(state.S1, scratch.P, state.W)
        return unconstrained_noise(state, T)
    dot(state.W.T, state.W, T)
    return s


@inner
def restart_axis(j, s, state, scratch):
    """Turn a collapsed axis, which EM could never move, towards what the other axes leave of the last row."""
    S1, S2, W, y, z = state.S1, state.S2, state.W, scratch.row.y, scratch.row.z
    d, q = W.shape
    square = 0.0
    for i in range(d):
        for k in range(q):
            y[i] -= W[i, k] * z[k]
        square += y[i] * y[i]
    # A residual within the noise says nothing about a direction.
    if square <= s:
        return
    size = np.sqrt(RESTART * s / square)
    for i in range(d):
        W[i, j] = size * y[i]
        # So that S1 S2^-1 gives back the new axis in the next M-step.
        S1[i, j] = W[i, j] * S2[j, j]
    dot(W.T, W, scratch.T)


@inner
def finish_row(s, state, settings, scratch, info):
    """Keep s above its floor, restart at most one collapsed axis, and factorise M for the next row."""
    W, M_inv, T = state.W, state.M_inv, scratch.T
    if not s > 0.0:
        info.not_positive[0] += 1
    # Without a floor, data on a plane would take the noise to zero and M to a singular matrix.
    s = max(s, least_noise(state.S0[0] / W.shape[0], state.m))
    if settings.centred:
        # One axis a row: two restarted from the same residual would be parallel.
        for j in range(W.shape[1]):
            if T[j, j] < COLLAPSED * s:
                restart_axis(j, s, state, scratch)
                break
    copy_matrix(T, M_inv)
    for j in range(W.shape[1]):
        M_inv[j, j] += s
    state.sigma2[0] = s
    state.log_det[0] = invert_spd(M_inv, scratch.column)


# -- when a reference is taken ---------------------------------------------------------------------


@inner
def count_observed(x):
    """Number of cells that are not NaN."""
    observed = 0
    for i in range(x.shape[0]):
        observed += not np.isnan(x[i])
    return observed


@inner
def is_due(x, observed, state, settings, row):
    """Whether the policy takes a new reference before this row is learned.

    The change detector sees the predictive log-density of the row, scaled up to a complete one.
    """
    if settings.policy == STEP:
        return True
    if settings.policy == EVERY:
        return state.k[0] % settings.period == 0
    if settings.policy == CHANGE:
        # A row with gaps has fewer terms in its log-density: unscaled, it could not be compared with a complete one.
        value = log_density(x, model_of(state), row) * (x.shape[0] / observed)
        return page_hinkley_step(
            value, state.detector, settings.drift, settings.threshold, settings.min_rows, settings.limit
        )
    return False


@inner
def hold_parameters(state, body, A):
    """Make the parameters of a state its reference, in place."""
    take_reference(model_of(state), body, state.reference, A)


# -- loops over rows -------------------------------------------------------------------------------


@kernel
def learn_rows(X, class_ends, state, settings, info):
    """Learn the rows of X in order; `state` is updated in place, `info` is filled.

    `class_ends` says before which rows a class ended.
    """
    d, q = state.W.shape
    row = row_scratch(d, q, has_gaps(X))
    scratch = Scratch(row, np.empty((q, q)), np.empty((q, q)), np.empty(q), np.empty_like(state.reference.W))
    for t in range(X.shape[0]):
        x = X[t]
        observed = count_observed(x)
        # The end of a class is honoured before a row without values, too; policies look at rows that say something.
        info.taken[t] = class_ends[t] or (observed > 0 and is_due(x, observed, state, settings, row))
        if info.taken[t]:
            hold_parameters(state, settings.body, scratch.A)
        if observed == 0:
            continue
        state.k[0] += 1
        # Rare after the first rows, and a pass over all columns: so it is counted instead.
        if state.n_unseen[0] > 0:
            start_columns(x, state)
        gain = settings.gain_scale * state.k[0] ** -settings.gain_exponent
        expect(x, gain, settings.centred, state, row)
        s = maximise(state, settings, scratch, info)
        finish_row(s, state, settings, scratch, info)


@kernel
def sum_rows(X, model, sums):
    """Add the expected statistics of all rows under one model, about its mean, to `sums`; returns the sum of |y|^2."""
    d, q = model.W.shape
    row = row_scratch(d, q, has_gaps(X))
    blend = Blend(1.0, 1.0, 1.0)
    total = 0.0
    for t in range(X.shape[0]):
        observed, _ = latent(X[t], model, row)
        total += accumulate(X[t], observed, blend, model, sums, row)
        for i in range(d):
            sums.y[i] += row.y[i]
        for j in range(q):
            sums.z[j] += row.z[j]
    return total
