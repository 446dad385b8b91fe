"""Online EM for probabilistic PCA with the natural constraint, one row at a time.

The arrays are those of `everlearn.ppca.learn.State` and `everlearn.ppca.keep.Reference`, all changed in
place; `ppca.kernels.constraint` says how they are laid out. A row costs O(d q^2): two products of a (d, q) matrix
with a small one, and two inverses of q x q matrices.
"""

import numpy as np

from everlearn.gaussian.kernels.ppca import (
    copy_matrix,
    copy_vector,
    has_gaps,
    inverse_factor,
    invert_spd,
    latent,
    least_noise,
    log_density,
    workspace,
)
from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import symmetric_product
from everlearn.monitoring.kernels.page_hinkley import page_hinkley_step
from everlearn.ppca.kernels.constraint import (
    ACTIVE,
    GAIN,
    GAIN_EXPONENT,
    LOG_DET,
    NOT_POSITIVE,
    OVERFLOWED,
    S0,
    SIGMA2,
    STRENGTH,
    STRENGTH_EXPONENT,
    UNSEEN,
    K,
    inner,
    paper_step,
    proximal_step,
    take_reference,
)

# What `options` holds.
CENTRED, EXPAND, POLICY, PERIOD, PAPER, BODY, CLIP = 0, 1, 2, 3, 4, 5, 6
OPTIONS = 7
# Policies of the reference.
NONE, STEP, CLASS, EVERY, CHANGE = 0, 1, 2, 3, 4

DEAD = 1e-10  # an axis with less than this share of the noise variance starts again from a residual,
REBORN = 1e-2  # with this share


# -- expectation -----------------------------------------------------------------------------------


@kernel
def fill_gaps(x, W, y, z):
    """Put the expectation W_i z into the gaps of y."""
    for i in range(x.shape[0]):
        if np.isnan(x[i]):
            y[i] = 0.0
            for j in range(W.shape[1]):
                y[i] += W[i, j] * z[j]


@kernel
def add_gap_variance(x, g, W, s, S1, M_gaps, row):
    """Add g s W_i M_o^-1 to the rows of S1 that were gaps; returns the sum of their variances."""
    variance = 0.0
    for i in range(x.shape[0]):
        if np.isnan(x[i]):
            variance += s * (1.0 + symmetric_product(M_gaps, W[i], row))
            for j in range(W.shape[1]):
                S1[i, j] += g * s * row[j]
    return variance


@kernel
def accumulate(x, a, g, keep, W, s, M_inv, S1, S2, observed, work):
    """S <- a S + g (keep (moments of y, z) + posterior variances) for S1 and S2; returns the row's share in S0."""
    y, z, row_of_S1, M_gaps, _ = work
    d, q = W.shape
    if observed < d:
        fill_gaps(x, W, y, z)
        M_inv = M_gaps
    square = 0.0
    for i in range(d):
        square += y[i] * y[i]
        f = g * keep * y[i]
        row = S1[i]
        for j in range(q):
            row[j] = a * row[j] + f * z[j]
    for i in range(q):
        for j in range(q):
            S2[i, j] = a * S2[i, j] + g * (s * M_inv[i, j] + keep * z[i] * z[j])
    if observed < d:
        return keep * square + add_gap_variance(x, g, W, s, S1, M_gaps, row_of_S1)
    return keep * square


@kernel
def meet_columns(x, seen, state):
    """A column that is observed for the first time starts with its mean there."""
    m, mu, scalars = state[0], state[3], state[6]
    for i in range(x.shape[0]):
        if not seen[i] and not np.isnan(x[i]):
            seen[i] = True
            m[i] = x[i]
            mu[i] = x[i]
            scalars[UNSEEN] -= 1


@kernel
def expect(x, g, centred, state, work):
    """E-step: expected statistics of one row, averaged in with gain g; returns whether anything was observed.

    Centred statistics are about the running mean, after Welford; otherwise equations 9 to 12 as printed, about mu.
    """
    m, S1, S2, mu, W, M_inv, scalars = state
    y = work[0]
    s = scalars[SIGMA2]
    observed, _ = latent(x, m if centred else mu, W, s, M_inv, 0.0, work)
    keep = 1.0 - g if centred else 1.0
    share = accumulate(x, 1.0 - g, g, keep, W, s, M_inv, S1, S2, observed, work)
    scalars[S0] = (1.0 - g) * scalars[S0] + g * share
    for i in range(x.shape[0]):
        m[i] += g * y[i] if centred else g * (mu[i] + y[i] - m[i])


# -- maximisation ----------------------------------------------------------------------------------


@kernel
def solve_loadings(S1, S2, P, column, V):
    """V = S1 S2^-1."""
    copy_matrix(S2, P)
    invert_spd(P, column)
    np.dot(S1, P, V)


@kernel
def expand_loadings(S1, S2, P, V):
    """V = S1 S2^-1 K^(1/2) with K = S2: the M-step of the model with z ~ N(0, K), brought back to K = I.

    In terms of the new latent variable the statistics are S1 = V and S2 = I. Without this, a round of EM corrects the
    length of an axis by no more than the share of the noise in its variance (Liu, Rubin and Wu, 1998).
    """
    inverse_factor(S2, P)
    np.dot(S1, P, V)
    for i in range(S2.shape[0]):
        for j in range(S2.shape[0]):
            S2[i, j] = 1.0 if i == j else 0.0


@kernel
def unconstrained_step(V, state, T):
    """Parameters that the M-step gives: mu = m, W = V; returns the noise variance (S0 - tr(S2 W'W))/d, eq. 15."""
    m, _, S2, mu, W, _, scalars = state
    copy_vector(m, mu)
    copy_matrix(V, W)
    np.dot(W.T, W, T)
    return (scalars[S0] - inner(S2, T)) / W.shape[0]


@kernel
def maximise(beta, rates, options, V, state, reference, T, counts):
    """Parameters from the M-step's loadings V, held to the reference if there is one; returns the noise variance."""
    W = state[4]
    if reference[4][ACTIVE] == 0.0:
        return unconstrained_step(V, state, T)
    if options[PAPER] == 0:
        return proximal_step(beta, V, options[EXPAND] != 0, state, reference, T)
    s = unconstrained_step(V, state, T)
    s = paper_step(beta, rates, options[CLIP] != 0, s, state, reference, counts)
    if np.isnan(s):
        counts[OVERFLOWED] += 1
        return unconstrained_step(V, state, T)
    np.dot(W.T, W, T)
    return s


@kernel
def revive(j, s, state, work, T):
    """Turn a dead axis, which EM could never move, towards what the other axes leave of the last row."""
    _, S1, S2, _, W, _, _ = state
    y, z = work[0], work[1]
    d, q = W.shape
    square = 0.0
    for i in range(d):
        for k in range(q):
            y[i] -= W[i, k] * z[k]
        square += y[i] * y[i]
    if square <= s:
        return
    size = np.sqrt(REBORN * s / square)
    for i in range(d):
        W[i, j] = size * y[i]
        S1[i, j] = W[i, j] * S2[j, j]
    np.dot(W.T, W, T)


@kernel
def settle(s, revivable, state, work, column, T, counts):
    """Keep s above its floor and every axis alive, and make M^-1 ready for the next row."""
    m, _, _, _, W, M_inv, scalars = state
    if not s > 0.0:
        counts[NOT_POSITIVE] += 1
    s = max(s, least_noise(scalars[S0] / W.shape[0], m))
    if revivable:
        for j in range(W.shape[1]):
            if T[j, j] < DEAD * s:
                revive(j, s, state, work, T)
                break
    copy_matrix(T, M_inv)
    for j in range(W.shape[1]):
        M_inv[j, j] += s
    scalars[SIGMA2] = s
    scalars[LOG_DET] = invert_spd(M_inv, column)


# -- policies -------------------------------------------------------------------------------------


@kernel
def count_observed(x):
    """Number of cells that are not NaN."""
    observed = 0
    for i in range(x.shape[0]):
        observed += not np.isnan(x[i])
    return observed


@kernel
def predictive(x, state, work):
    """Log-density of a row before it is learned, scaled up to a complete row."""
    _, _, _, mu, W, M_inv, scalars = state
    value = log_density(x, mu, W, scalars[SIGMA2], M_inv, scalars[LOG_DET], work)
    return value * (x.shape[0] / count_observed(x))


@kernel
def is_due(x, options, state, work, memory, detector):
    """Whether the policy takes a new reference before this row is learned."""
    policy = options[POLICY]
    if policy == STEP:
        return True
    if policy == EVERY:
        return state[6][K] % options[PERIOD] == 0.0
    if policy == CHANGE:
        value = predictive(x, state, work)
        return page_hinkley_step(value, memory, detector[0], detector[1], detector[2], detector[3])
    return False


# -- the loop --------------------------------------------------------------------------------------


@kernel
def learn_rows(
    X,
    marks,
    m,
    S1,
    S2,
    mu,
    W,
    M_inv,
    scalars,
    seen,
    mu_ref,
    W_ref,
    F_mu,
    F_W,
    ref_scalars,
    rates,
    options,
    memory,
    detector,
    counts,
    taken,
    V,
):
    """Learn the rows of X in order.

    `marks` says before which rows a class ended, `taken` is filled with those before which a reference was taken. V is
    room for the loadings of the M-step; returns whether S1 and V have changed places.
    """
    d, q = W.shape
    reference = (mu_ref, W_ref, F_mu, F_W, ref_scalars)
    work = workspace(d, q, has_gaps(X))
    P, T, column, A = np.empty((q, q)), np.empty((q, q)), np.empty(q), np.empty_like(W_ref)
    centred, expand, swapped = options[CENTRED] != 0, options[EXPAND] != 0, False
    for t in range(X.shape[0]):
        x = X[t]
        state = (m, S1, S2, mu, W, M_inv, scalars)
        empty = count_observed(x) == 0
        taken[t] = marks[t] or (not empty and is_due(x, options, state, work, memory, detector))
        if taken[t]:
            take_reference(options[BODY] != 0, state, reference, A)
        if empty:
            continue
        scalars[K] += 1.0
        if scalars[UNSEEN] > 0.0:
            meet_columns(x, seen, state)
        expect(x, rates[GAIN] * scalars[K] ** -rates[GAIN_EXPONENT], centred, state, work)
        if expand:
            expand_loadings(S1, S2, P, V)
            S1, V, swapped = V, S1, not swapped
        else:
            solve_loadings(S1, S2, P, column, V)
        state = (m, S1, S2, mu, W, M_inv, scalars)
        beta = rates[STRENGTH] * scalars[K] ** -rates[STRENGTH_EXPONENT]
        s = maximise(beta, rates, options, S1 if expand else V, state, reference, T, counts)
        settle(s, centred, state, work, column, T, counts)
    return swapped


@kernel
def sum_rows(X, mu, W, s, M_inv, sum_y, sum_z, S1, S2):
    """Sums of the expected statistics of all rows under one model, about its mean; returns that of |y|^2.

    y and z are the expected row less mu and the expected latent variable.
    """
    d, q = W.shape
    work = workspace(d, q, has_gaps(X))
    total = 0.0
    for t in range(X.shape[0]):
        observed, _ = latent(X[t], mu, W, s, M_inv, 0.0, work)
        total += accumulate(X[t], 1.0, 1.0, 1.0, W, s, M_inv, S1, S2, observed, work)
        for i in range(d):
            sum_y[i] += work[0][i]
        for j in range(q):
            sum_z[j] += work[1][j]
    return total
