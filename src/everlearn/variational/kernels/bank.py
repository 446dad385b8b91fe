"""A bank of variational PPCA models over the rows of a stream, or a single model with a fixed forgetting factor.

The decisions are those of `forgetting.kernels.bank`. After a suspected change the new bank is young: it keeps the
rows since, and goes over all of them again for each new one, so that it knows what a batch of them would teach, but for
outliers among them; when it is grown its members start from that and begin to forget.
"""

import math

import numpy as np

from everlearn.forgetting.kernels.bank import (
    ACTIVE,
    CHANGE,
    LEARN,
    LEARN_STASH,
    LOG_INLIER,
    LOG_OUTLIER,
    RESET_SAMPLES,
    ROWS,
    TRIAL,
    answering,
    best,
    decide,
    forgetting_factor,
    reseed,
    settled,
)
from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import copy_matrix, copy_vector, invert_spd
from everlearn.ppca.kernels.density import ROUNDING, TINY
from everlearn.variational.kernels.commit import commit
from everlearn.variational.kernels.posterior import COLUMN, K0, LOG_2PI, MATRICES, SCRATCH, VECTORS, evaluate
from everlearn.variational.kernels.restart import derive, expand, gaps_of, gram, replay

GROWN = -1  # in `young`, which counts the rows that a young bank has seen
MEAN_SAMPLES = 1.0  # what the old mean is worth to a young bank
NOISE_MEMORY = 100.0  # samples of noise remembered at least
NOISE_SAMPLES = 10.0  # what the old noise is worth to a young bank, at most
ENOUGH = 3  # rows for each of the p latent axes, after which a young bank can tell an outlier
EXPANSION = 16  # rows after which the latent axes are made uncorrelated
REFRESH = 1024  # rows after which the origin moves to the mean


@kernel
def log_background(s, n_o, nodes):
    """ln of p(x) (2 pi/tau)^(n/2) under the prior, s = tau |x - mu|^2: the radius of y is summed out on `nodes`.

    Given y, x ~ N(mu, v/tau I) with v = 1 + |y|^2/K0; the nodes hold ln of the weights of |y|^2, ln v, and 1/v.
    """
    top = -np.inf
    for k in range(nodes.shape[1]):
        top = max(top, nodes[0, k] - 0.5 * (n_o * nodes[1, k] + s * nodes[2, k]))
    total = 0.0
    for k in range(nodes.shape[1]):
        total += math.exp(nodes[0, k] - 0.5 * (n_o * nodes[1, k] + s * nodes[2, k]) - top)
    return top + math.log(total)


@kernel
def look_up(s, table, first, step):
    """Cubic interpolation in a table over ln s with knots from `first` on, `step` apart; NaN beyond its end."""
    z = (math.log(s) - first) / step if s > 0.0 else 1.0
    k = max(int(z), 1)
    if z >= len(table) - 2:
        return np.nan
    f = max(z, 1.0) - k
    a, b, c, d = table[k - 1], table[k], table[k + 1], table[k + 2]
    return b + 0.5 * f * (c - a + f * (2.0 * a - 5.0 * b + 4.0 * c - d + f * (3.0 * (b - c) + d - a)))


@kernel
def background(s, tau, n_o, n, settings):
    """Log density of a row if the past meant nothing but the mean and the noise."""
    value = np.nan
    if n_o == n:
        value = look_up(s, settings.table, settings.knots[0], settings.knots[1])
    if np.isnan(value):
        value = log_background(s, n_o, settings.nodes)
    return value + 0.5 * n_o * (math.log(tau) - LOG_2PI)


@kernel
def score_slot(x, gaps, xx, slot, state, settings, factors, scores, facts, P, V, fit):
    """Score the row by every member of a slot; those of a young bank are all the same and forget nothing."""
    bank = state.bank
    young = state.young[slot] != GROWN
    for j in range(len(bank.caps)):
        factors[slot, j] = settings.fixed
        if settings.fixed < 0.0:
            factors[slot, j] = forgetting_factor(bank.n_eff[slot, j], bank.caps[j], 1.0)
        if young and j > 0:
            scores[slot, j] = scores[slot, 0]
            copy_vector(facts[slot, 0], facts[slot, j])
            continue
        lam = 1.0 if young else factors[slot, j]
        rho = 1.0 - 1.0 / max(NOISE_MEMORY, bank.n_eff[slot, j])
        scores[slot, j], facts[slot, j, 0], facts[slot, j, 1] = evaluate(
            x, gaps, xx, state.B[slot, j], state.K[slot, j], state.C[slot, j], state.K_inv[slot, j],
            state.noise[slot, j], lam, rho, settings.tau, settings.noise_prior, state.rounding[0], P[slot, j],
            V[slot, j], fit,
        )  # fmt: skip


@kernel
def learn_slot(x, gaps, slot, state, factors, P, V, fit, successors):
    """Every member of a slot learns the row; those far behind the best become copies of it."""
    bank = state.bank
    J = len(bank.caps)
    k = reseed(bank.log_weights[slot], bank.caps, successors)
    for j in range(J):
        if not successors[j]:
            commit(
                x, gaps, state.B[slot, j], state.K[slot, j], state.C[slot, j], state.K_inv[slot, j],
                state.seen[slot, j], state.noise[slot, j], factors[slot, j], state.gappy[0], P[slot, j], V[slot, j],
                fit,
            )  # fmt: skip
            bank.n_eff[slot, j] = factors[slot, j] * bank.n_eff[slot, j] + 1.0
            if state.learned[0] % EXPANSION == 0:
                expand(state.B[slot, j], state.K[slot, j], state.C[slot, j], state.K_inv[slot, j], P[slot, j, SCRATCH])
    for j in range(J):
        if successors[j]:
            copy_member(state, slot, k, slot, j)
            bank.n_eff[slot, j] = bank.n_eff[slot, k]


@kernel
def copy_member(state, slot, k, to_slot, j):
    """Make one member a copy of another."""
    copy_matrix(state.B[slot, k], state.B[to_slot, j])
    copy_matrix(state.K[slot, k], state.K[to_slot, j])
    copy_matrix(state.C[slot, k], state.C[to_slot, j])
    copy_matrix(state.K_inv[slot, k], state.K_inv[to_slot, j])
    copy_vector(state.seen[slot, k], state.seen[to_slot, j])
    copy_vector(state.noise[slot, k], state.noise[to_slot, j])


@kernel
def begin_young(slot, k, new, state, factors, column):
    """A young bank in slot `new` from member k of `slot`: its shape with the weight of a tenth of a sample."""
    copy_member(state, slot, k, new, 0)
    B, K = state.B[new, 0], state.K[new, 0]
    m = K.shape[0] - 1
    N = K[m, m]
    n_eff = state.bank.n_eff
    lam = min(1.0, RESET_SAMPLES / n_eff[slot, k])
    for c in range(m):
        for i in range(B.shape[1]):
            B[c, i] *= lam
        for d in range(m):
            K[c, d] *= lam
        K[c, c] += (1.0 - lam) * K0
    worth = min(MEAN_SAMPLES, N)
    for i in range(B.shape[1]):
        B[m, i] *= worth / N
    K[m, m] = worth
    derive(B, K, state.C[new, 0], state.K_inv[new, 0], column)
    copy_matrix(B, state.prior_B[new])
    copy_matrix(K, state.prior_K[new])
    noise = state.noise[new, 0]
    worth = min(1.0, 0.5 * NOISE_SAMPLES * B.shape[1] / noise[0])
    noise[0], noise[1] = worth * noise[0], worth * noise[1]
    copy_vector(noise, state.prior_noise[new])
    state.young[new] = 0
    for j in range(len(state.bank.caps)):
        n_eff[new, j] = lam * n_eff[slot, k]
        factors[new, j] = 1.0


@kernel
def leave_out_strange(slot, state, settings, P, V, fit):
    """Learn a young bank without the rows that are outliers to the others, the farthest first; returns the others."""
    rows = state.rows[slot, : state.young[slot]].copy()
    n = rows.shape[1]
    x = np.empty(n)
    B, K, C, K_inv = state.B[slot, 0], state.K[slot, 0], state.C[slot, 0], state.K_inv[slot, 0]
    B_o, K_o, C_o, K_inv_o, noise = B.copy(), K.copy(), C.copy(), K_inv.copy(), state.noise[slot, 0].copy()
    for _ in range(len(rows) // 4):
        r = farthest(rows, state.origin, B, K, x)
        others = np.concatenate((rows[:r], rows[r + 1 :]))
        replay(
            others, state.origin, state.prior_B[slot], state.prior_K[slot], state.prior_noise[slot], B_o, K_o, C_o,
            K_inv_o, noise, settings.tau, state.rounding[0], P, V, fit,
        )  # fmt: skip
        gaps, xx = gaps_of(rows[r], state.origin, x)
        score, distance, tau = evaluate(
            x, gaps, xx, B_o, K_o, C_o, K_inv_o, noise, 1.0, 1.0, settings.tau, settings.noise_prior,
            state.rounding[0], P, V, fit,
        )  # fmt: skip
        if score + LOG_INLIER >= background(distance, tau, n - len(gaps), n, settings) + LOG_OUTLIER:
            break
        rows = others
        copy_matrix(B_o, B)
        copy_matrix(K_o, K)
        copy_matrix(C_o, C)
        copy_matrix(K_inv_o, K_inv)
        copy_vector(noise, state.noise[slot, 0])
    return rows


@kernel
def farthest(rows, origin, B, K, x):
    """Index of the row farthest from the mean in the cells that it has; K is diagonal. x is scratch."""
    m = K.shape[0] - 1
    top, found = -1.0, 0
    for r in range(len(rows)):
        gaps, _ = gaps_of(rows[r], origin, x)
        distance = 0.0
        for i in range(len(x)):
            distance += (x[i] - B[m, i] / K[m, m]) ** 2
        for i in gaps:
            distance -= (B[m, i] / K[m, m]) ** 2
        distance /= len(x) - len(gaps)
        if distance > top:
            top, found = distance, r
    return found


@kernel
def learn_young(row, slot, state, settings, factors, P, V, fit):
    """Keep the row, and go over all rows since the change again; once they suffice, without the old model."""
    p, n = state.B.shape[2:]
    copy_vector(row, state.rows[slot, state.young[slot]])
    state.young[slot] += 1
    count = state.young[slot]
    if count == p + 2:
        for c in range(p):
            for i in range(n):
                state.prior_B[slot, c, i] = 0.0
            for d in range(p):
                state.prior_K[slot, c, d] = K0 if c == d and c < p - 1 else 0.0
    replay(
        state.rows[slot, :count], state.origin, state.prior_B[slot], state.prior_K[slot], state.prior_noise[slot],
        state.B[slot, 0], state.K[slot, 0], state.C[slot, 0], state.K_inv[slot, 0], state.noise[slot, 0], settings.tau,
        state.rounding[0], P, V, fit,
    )  # fmt: skip
    kept = state.rows[slot, :count]
    if count >= ENOUGH * p:
        kept = leave_out_strange(slot, state, settings, P, V, fit)
    for i in range(n):
        state.seen[slot, 0, i] = 0.0
        for r in range(len(kept)):
            state.seen[slot, 0, i] += 0.0 if np.isnan(kept[r, i]) else 1.0
    for j in range(len(state.bank.caps)):
        copy_member(state, slot, 0, slot, j)
        state.bank.n_eff[slot, j] = factors[slot, j] * state.bank.n_eff[slot, j] + 1.0
    if count == state.rows.shape[1]:
        state.young[slot] = GROWN


@kernel
def move_origin(state):
    """Put the origin at the mean that answers, so that rows stay small, and sum C anew."""
    slot, k = answering(state.bank.control, state.bank.evidence, state.bank.log_weights)
    m = state.K.shape[2] - 1
    move = state.B[slot, k, m] / state.K[slot, k, m, m]
    top = 0.0
    for i in range(len(move)):
        state.origin[i] += move[i]
        top = max(top, abs(state.origin[i]))
    state.rounding[0] = ROUNDING * top * top + TINY
    for s in range(state.B.shape[0]):
        for j in range(state.B.shape[1]):
            B, K = state.B[s, j], state.K[s, j]
            for c in range(m + 1):
                for i in range(len(move)):
                    B[c, i] -= K[c, m] * move[i]
            gram(B, state.C[s, j])
    for s in range(state.prior_B.shape[0]):
        for c in range(m + 1):
            for i in range(len(move)):
                state.prior_B[s, c, i] -= state.prior_K[s, c, m] * move[i]


@kernel
def become_gappy(state):
    """From the first gap on, count how often each column is observed."""
    state.gappy[0] = True
    m = state.K.shape[2] - 1
    for slot in range(state.seen.shape[0]):
        for j in range(state.seen.shape[1]):
            for i in range(state.seen.shape[2]):
                state.seen[slot, j, i] = state.K[slot, j, m, m]


@kernel
def decide_row(n_o, state, settings, factors, scores, facts, V):
    """What to do with a scored row; a suspected change begins a young bank."""
    bank = state.bank
    old, trusted = bank.control[ACTIVE], settled(bank.control)
    k = best(bank.log_weights[trusted])
    prior_score = background(facts[trusted, k, 0], facts[trusted, k, 1], n_o, len(state.origin), settings)
    k = best(bank.log_weights[old])
    actions = decide(bank.control, bank.evidence, bank.changes, bank.log_prior, bank.log_weights, scores, prior_score)
    if actions & CHANGE:
        begin_young(old, k, bank.control[ACTIVE], state, factors, V[0, 0, COLUMN])
    return actions


@kernel
def learn_rows(X, state, settings, trace):
    """Learn the rows of X in order; `state` is changed in place, `trace` (2, rows) is filled unless it is empty.

    Neither X nor the rows that a young bank keeps are relative to the origin. Returns the last forgetting factor.
    """
    bank = state.bank
    slots, J, p, n = state.B.shape
    P, V, x, fit = np.empty((slots, J, MATRICES, p, p)), np.empty((slots, J, VECTORS, p)), np.empty(n), np.empty(n)
    scores, factors = np.full((slots, J), -np.inf), np.ones((slots, J))
    facts, successors = np.zeros((slots, J, 2)), np.zeros(J, dtype=np.bool_)
    lam = 1.0
    for t in range(len(X)):
        gaps, xx = gaps_of(X[t], state.origin, x)
        if len(gaps) > 0 and not state.gappy[0]:
            become_gappy(state)
        actions = 0
        if len(gaps) < n:
            state.learned[0] += 1
            for slot in range(slots):
                if slot == bank.control[ACTIVE] or bank.control[TRIAL] > 0:
                    score_slot(x, gaps, xx, slot, state, settings, factors, scores, facts, P, V, fit)
            actions = (
                LEARN
                if settings.fixed >= 0.0
                else decide_row(n - len(gaps), state, settings, factors, scores, facts, V)
            )
        if len(gaps) == n or settings.fixed >= 0.0:
            bank.control[ROWS] += 1
        for slot in range(slots):
            if actions & (LEARN if slot == bank.control[ACTIVE] else LEARN_STASH):
                if state.young[slot] == GROWN:
                    learn_slot(x, gaps, slot, state, factors, P, V, fit, successors)
                else:
                    learn_young(X[t], slot, state, settings, factors, P[slot, 0], V[slot, 0], fit)
        slot, k = answering(bank.control, bank.evidence, bank.log_weights)
        if actions > 0:
            lam = 0.0 if actions & CHANGE else factors[slot, k]
        if trace.shape[1] > 0:
            trace[0, t], trace[1, t] = lam, bank.caps[k]
        if bank.control[ROWS] % REFRESH == 0:
            move_origin(state)
    return lam


@kernel
def fill_answer(slot, k, state, tau, mu, W, M_inv):
    """A member as a PPCA model: mean, loadings, M^-1; returns sigma2 and ln|M|, M = W'W + sigma2 I."""
    B, K_inv, noise = state.B[slot, k], state.K_inv[slot, k], state.noise[slot, k]
    p, n = B.shape
    m = p - 1
    for i in range(n):
        mu[i] = state.origin[i]
        for c in range(p):
            mu[i] += K_inv[m, c] * B[c, i]
        for j in range(m):
            W[i, j] = 0.0
            for c in range(p):
                W[i, j] += K_inv[j, c] * B[c, i]
    sigma2 = 1.0 / tau if tau > 0.0 else noise[1] / noise[0]
    for j in range(m):
        for d in range(j + 1):
            M_inv[j, d] = sigma2 if j == d else 0.0
            for i in range(n):
                M_inv[j, d] += W[i, j] * W[i, d]
            M_inv[d, j] = M_inv[j, d]
    return sigma2, invert_spd(M_inv, np.empty(m))
