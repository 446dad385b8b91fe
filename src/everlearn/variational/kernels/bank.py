"""A bank of variational PPCA models over the rows of a stream, or a single model with a fixed forgetting factor.

The decisions are those of `forgetting.kernels.bank`. After a suspected change the restarted bank has a burn-in: it
keeps the rows since, and goes over all of them again for each new one, so that it knows what a batch of them would
teach, but for outliers among them; then its members start from that and begin to forget.

`state` is an `everlearn.variational.state.State`, updated in place.
"""

import math
from typing import NamedTuple

import numpy as np

from everlearn.forgetting.kernels.bank import (
    CHANGE,
    LEARN,
    LEARN_PREVIOUS,
    LOG_INLIER,
    LOG_OUTLIER,
    RESET_SAMPLES,
    best,
    best_member,
    decide,
    forgetting_factor,
    reseed,
    trusted_slot,
)
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import copy_matrix, copy_vector, invert_spd
from everlearn.ppca.kernels.density import ROUNDING, TINY
from everlearn.typing import Array
from everlearn.variational.kernels.commit import commit
from everlearn.variational.kernels.posterior import (
    K0,
    LOG_2PI,
    Member,
    borrow_plan,
    evaluate,
    plan_at,
    plan_stack,
    read_row,
)
from everlearn.variational.kernels.restart import Prior, derive, expand, gram, replay

OVER = -1  # in `burn_in`, which counts the rows since a restart: the burn-in is over
MEAN_SAMPLES = 1.0  # what the old mean is worth to a restarted bank
NOISE_MEMORY = 100.0  # samples of noise remembered at least
NOISE_SAMPLES = 10.0  # what the old noise is worth to a restarted bank, at most
ENOUGH = 3  # rows for each of the p latent axes, after which a restarted bank can tell an outlier
EXPANSION = 16  # rows after which the latent axes are made uncorrelated: O(n p^2), so not in every row
REFRESH = 1024  # rows after which the origin moves to the mean, so that rounding does not grow with the distance


class Scores(NamedTuple):
    """What each member says of a row."""

    log_density: Array  # (slots, J): log predictive density
    distance: Array  # (slots, J): tau |x - mu|^2
    tau: Array  # (slots, J): noise precision
    factor: Array  # (slots, J): forgetting factor


@kernel
def member_at(state, slot, j):
    """One member; its arrays are views, each with a reference of its own."""
    return Member(
        state.B[slot, j], state.K[slot, j], state.C[slot, j], state.K_inv[slot, j], state.a[slot, j], state.b[slot, j]
    )


# Reference counts of the twenty views of a member and its plan cost as much as the arithmetic of a row of eight
# columns. What runs in every row borrows them instead, from functions that are compiled without such counts.
@inner
def borrow_member(state, slot, j):
    """`member_at` without reference counts, for callers compiled by `inner` only."""
    return Member(
        state.B[slot, j], state.K[slot, j], state.C[slot, j], state.K_inv[slot, j], state.a[slot, j], state.b[slot, j]
    )


@inner
def copy_member(source, target):
    """Make one member a copy of another."""
    copy_matrix(source.B, target.B)
    copy_matrix(source.K, target.K)
    copy_matrix(source.C, target.C)
    copy_matrix(source.K_inv, target.K_inv)
    target.a[0], target.b[0] = source.a[0], source.b[0]


# -- the background density ------------------------------------------------------------------------


@inner
def log_background(s, n_o, nodes):
    """ln of p(x) (2 pi/tau)^(n/2) under the prior, s = tau |x - mu|^2: the radius of y is summed out on `nodes`.

    Given y, x ~ N(mu, v/tau I) with v = 1 + |y|^2/K0; the rows of `nodes` hold ln of the weights of |y|^2, ln v, 1/v.
    """
    log_weight, log_v, inverse_v = nodes[0], nodes[1], nodes[2]
    top = -np.inf
    for k in range(len(log_v)):
        top = max(top, log_weight[k] - 0.5 * (n_o * log_v[k] + s * inverse_v[k]))
    total = 0.0
    for k in range(len(log_v)):
        total += math.exp(log_weight[k] - 0.5 * (n_o * log_v[k] + s * inverse_v[k]) - top)
    return top + math.log(total)


@inner
def look_up(s, table, first, step):
    """Cubic interpolation in a table over ln s with knots from `first` on, `step` apart; NaN beyond its end."""
    z = (math.log(s) - first) / step if s > 0.0 else 1.0
    k = max(int(z), 1)
    if z >= len(table) - 2:
        return np.nan
    f = max(z, 1.0) - k
    # Catmull and Rom's cubic through four knots: no system is solved, and the slope is continuous.
    a, b, c, d = table[k - 1], table[k], table[k + 1], table[k + 2]
    return b + 0.5 * f * (c - a + f * (2.0 * a - 5.0 * b + 4.0 * c - d + f * (3.0 * (b - c) + d - a)))


@inner
def background(s, tau, n_o, n, settings):
    """Log density of a row if the past meant nothing but the mean and the noise."""
    value = np.nan
    if n_o == n:
        value = look_up(s, settings.table, settings.first_knot, settings.knot_step)
    if np.isnan(value):
        value = log_background(s, n_o, settings.nodes)
    return value + 0.5 * n_o * (math.log(tau) - LOG_2PI)


# -- one slot --------------------------------------------------------------------------------------


@inner
def score_slot(row, slot, state, settings, scores, stack):
    """Score the row by every member of a slot; those in burn-in are all the same and forget nothing."""
    bank = state.bank
    burn_in = state.burn_in[slot] != OVER
    for j in range(len(bank.horizons)):
        n_eff = bank.n_eff[slot, j]
        scores.factor[slot, j] = settings.fixed
        if settings.fixed < 0.0:
            scores.factor[slot, j] = forgetting_factor(n_eff, bank.horizons[j], 1.0)
        if burn_in and j > 0:
            scores.log_density[slot, j] = scores.log_density[slot, 0]
            scores.distance[slot, j], scores.tau[slot, j] = scores.distance[slot, 0], scores.tau[slot, 0]
            continue
        lam = 1.0 if burn_in else scores.factor[slot, j]
        # The noise changes more slowly than the axes, and a short horizon has too few rows to estimate it.
        rho = 1.0 - 1.0 / max(NOISE_MEMORY, n_eff)
        scores.log_density[slot, j], scores.distance[slot, j], scores.tau[slot, j] = evaluate(
            row, borrow_member(state, slot, j), lam, rho, settings, state.rounding[0], borrow_plan(stack, slot, j)
        )


@inner
def learn_slot(row, slot, state, scores, stack, successors):
    """Every member of a slot learns the row; those far behind the best become copies of it."""
    bank = state.bank
    J = len(bank.horizons)
    k = reseed(bank.log_weights[slot], bank.horizons, successors)
    for j in range(J):
        if not successors[j]:
            lam, member, plan = scores.factor[slot, j], borrow_member(state, slot, j), borrow_plan(stack, slot, j)
            commit(row, member, state.seen[slot, j], lam, state.gappy[0], plan)
            bank.n_eff[slot, j] = lam * bank.n_eff[slot, j] + 1.0
            if state.learned[0] % EXPANSION == 0:
                expand(member, plan.T)
    # Copies are taken after the best member has learned the row.
    for j in range(J):
        if successors[j]:
            copy_member(borrow_member(state, slot, k), borrow_member(state, slot, j))
            copy_vector(state.seen[slot, k], state.seen[slot, j])
            bank.n_eff[slot, j] = bank.n_eff[slot, k]


# -- restart and burn-in ---------------------------------------------------------------------------


@inner
def restart(slot, k, new, state, scores, column):
    """Restart the bank in slot `new` from member k of `slot`: its shape with the weight of a tenth of a sample."""
    member = borrow_member(state, new, 0)
    copy_member(borrow_member(state, slot, k), member)
    copy_vector(state.seen[slot, k], state.seen[new, 0])
    B, K = member.B, member.K
    m = K.shape[0] - 1
    N = K[m, m]
    n_eff = state.bank.n_eff
    lam = min(1.0, RESET_SAMPLES / n_eff[slot, k])
    # Eq. 6 with lambda near zero: B = M K shrinks with K, and the prior of the loadings, whose mean is zero, fills up.
    for c in range(m):
        for i in range(B.shape[1]):
            B[c, i] *= lam
        for d in range(m):
            K[c, d] *= lam
        K[c, c] += (1.0 - lam) * K0
    # The old mean is a guess of where the new rows lie: it keeps one sample of weight.
    worth = min(MEAN_SAMPLES, N)
    for i in range(B.shape[1]):
        B[m, i] *= worth / N
    K[m, m] = worth
    derive(member, column)
    copy_matrix(B, state.prior_B[new])
    copy_matrix(K, state.prior_K[new])
    # a counts half the cells that the noise was estimated from.
    worth = min(1.0, 0.5 * NOISE_SAMPLES * B.shape[1] / member.a[0])
    member.a[0], member.b[0] = worth * member.a[0], worth * member.b[0]
    state.prior_a[new, 0], state.prior_b[new, 0] = member.a[0], member.b[0]
    state.burn_in[new] = 0
    for j in range(len(state.bank.horizons)):
        n_eff[new, j] = lam * n_eff[slot, k]
        scores.factor[new, j] = 1.0


@kernel
def prior_at(state, slot):
    """What a restarted bank starts from."""
    return Prior(state.prior_B[slot], state.prior_K[slot], state.prior_a[slot], state.prior_b[slot])


@kernel
def leave_out_outliers(slot, state, settings, plan):
    """Learn a restarted bank without the rows that are outliers to the others, the farthest first; returns the others.

    At most a quarter of the rows.
    """
    rows = state.rows[slot, : state.burn_in[slot]].copy()
    n = rows.shape[1]
    x = np.empty(n)
    member = member_at(state, slot, 0)
    trial = Member(
        member.B.copy(), member.K.copy(), member.C.copy(), member.K_inv.copy(), member.a.copy(), member.b.copy()
    )
    for _ in range(len(rows) // 4):
        r = farthest_row(rows, state.origin, member, x)
        others = np.concatenate((rows[:r], rows[r + 1 :]))
        # Judged by a model of the other rows: one that has learned an outlier is not surprised by it.
        replay(others, state.origin, prior_at(state, slot), trial, settings.tau, state.rounding[0], plan)
        row = read_row(rows[r], state.origin, x)
        score, distance, tau = evaluate(row, trial, 1.0, 1.0, settings, state.rounding[0], plan)
        if score + LOG_INLIER >= background(distance, tau, n - len(row.gaps), n, settings) + LOG_OUTLIER:
            break
        rows = others
        copy_member(trial, member)
    return rows


@kernel
def farthest_row(rows, origin, member, x):
    """Index of the row farthest from the mean in the cells that it has; K is diagonal. x is scratch."""
    B, K = member.B, member.K
    m = K.shape[0] - 1
    top, found = -1.0, 0
    for r in range(len(rows)):
        row = read_row(rows[r], origin, x)
        distance = 0.0
        for i in range(len(x)):
            distance += (x[i] - B[m, i] / K[m, m]) ** 2
        for i in row.gaps:
            distance -= (B[m, i] / K[m, m]) ** 2
        distance /= len(x) - len(row.gaps)
        if distance > top:
            top, found = distance, r
    return found


@kernel
def learn_burn_in(values, slot, state, settings, scores, plan):
    """Keep the row, and go over all rows since the restart again; once they suffice, without the old model."""
    p, n = state.B.shape[2:]
    copy_vector(values, state.rows[slot, state.burn_in[slot]])
    state.burn_in[slot] += 1
    count = state.burn_in[slot]
    # Enough rows to fix mean and axes by themselves: the old model is dropped from the prior.
    if count == p + 2:
        for c in range(p):
            for i in range(n):
                state.prior_B[slot, c, i] = 0.0
            for d in range(p):
                state.prior_K[slot, c, d] = K0 if c == d and c < p - 1 else 0.0
    kept = state.rows[slot, :count]
    member = member_at(state, slot, 0)
    replay(kept, state.origin, prior_at(state, slot), member, settings.tau, state.rounding[0], plan)
    if count >= ENOUGH * p:
        kept = leave_out_outliers(slot, state, settings, plan)
    for i in range(n):
        state.seen[slot, 0, i] = 0.0
        for r in range(len(kept)):
            state.seen[slot, 0, i] += 0.0 if np.isnan(kept[r, i]) else 1.0
    for j in range(len(state.bank.horizons)):
        copy_member(member, member_at(state, slot, j))
        copy_vector(state.seen[slot, 0], state.seen[slot, j])
        state.bank.n_eff[slot, j] = scores.factor[slot, j] * state.bank.n_eff[slot, j] + 1.0
    if count == state.rows.shape[1]:
        state.burn_in[slot] = OVER


# -- the loop over rows ----------------------------------------------------------------------------


@kernel
def move_origin(state):
    """Put the origin at the mean that answers, so that rows stay small, and sum C again."""
    slot, k = best_member(state.bank)
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
                    # M = B' K^-1 changes in its last column, the mean, alone: B
                    # = M K then loses K[:, m] times the move.
                    B[c, i] -= K[c, m] * move[i]
            gram(B, state.C[s, j])
    for s in range(state.prior_B.shape[0]):
        for c in range(m + 1):
            for i in range(len(move)):
                state.prior_B[s, c, i] -= state.prior_K[s, c, m] * move[i]


@inner
def start_counting_gaps(state):
    """From the first gap on, count how often each column is observed."""
    state.gappy[0] = True
    m = state.K.shape[2] - 1
    for slot in range(state.seen.shape[0]):
        for j in range(state.seen.shape[1]):
            for i in range(state.seen.shape[2]):
                state.seen[slot, j, i] = state.K[slot, j, m, m]


@inner
def decide_row(n_o, state, settings, scores, column):
    """What to do with a scored row; a suspected change restarts the bank."""
    bank = state.bank
    old, trusted = bank.active[0], trusted_slot(bank)
    k = best(bank.log_weights[trusted])
    # Judged by the bank that was trusted last: a restarted one has no opinion yet.
    unknown = background(scores.distance[trusted, k], scores.tau[trusted, k], n_o, len(state.origin), settings)
    k = best(bank.log_weights[old])
    actions = decide(bank, scores.log_density, unknown)
    if actions & CHANGE:
        restart(old, k, bank.active[0], state, scores, column)
    return actions


@kernel
def learn_rows(X, state, settings, info):
    """Learn the rows of X in order; `state` is updated in place, `info` is filled.

    Neither X nor the rows of a burn-in are relative to the origin.
    """
    bank = state.bank
    slots, J, p, n = state.B.shape
    stack, x = plan_stack(slots, J, p, n), np.empty(n)
    scores = Scores(np.full((slots, J), -np.inf), np.zeros((slots, J)), np.zeros((slots, J)), np.ones((slots, J)))
    column, successors = np.empty(p), np.zeros(J, dtype=np.bool_)
    adaptive = settings.fixed < 0.0
    lam = 1.0
    for t in range(len(X)):
        row = read_row(X[t], state.origin, x)
        n_o = n - len(row.gaps)
        if n_o < n and not state.gappy[0]:
            start_counting_gaps(state)
        actions = 0
        if n_o > 0:
            state.learned[0] += 1
            for slot in range(slots):
                if slot == bank.active[0] or bank.trial_rows[0] > 0:
                    score_slot(row, slot, state, settings, scores, stack)
            actions = decide_row(n_o, state, settings, scores, column) if adaptive else LEARN
        # Otherwise `decide` has counted the row.
        if n_o == 0 or not adaptive:
            bank.n_rows[0] += 1
        for slot in range(slots):
            if actions & (LEARN if slot == bank.active[0] else LEARN_PREVIOUS):
                if state.burn_in[slot] == OVER:
                    learn_slot(row, slot, state, scores, stack, successors)
                else:
                    learn_burn_in(X[t], slot, state, settings, scores, plan_at(stack, slot, 0))
        slot, k = best_member(bank)
        if actions > 0:
            lam = 0.0 if actions & CHANGE else scores.factor[slot, k]
        info.forgetting[t], info.horizon[t] = lam, bank.horizons[k]
        # By the row number and not by the batch, so that any split gives the same bits.
        if bank.n_rows[0] % REFRESH == 0:
            move_origin(state)


@kernel
def fill_model(slot, k, state, tau, model):
    """A member as a PPCA model: fills mean, loadings and M^-1; returns sigma2 and ln|M|, M = W'W + sigma2 I."""
    B, K_inv, mu, W, M_inv = state.B[slot, k], state.K_inv[slot, k], model.mu, model.W, model.M_inv
    p, n = B.shape
    m = p - 1
    for i in range(n):
        mu[i] = state.origin[i]
        # M = K^-1 B, and the row of the constant is the mean relative to the origin.
        for c in range(p):
            mu[i] += K_inv[m, c] * B[c, i]
        for j in range(m):
            W[i, j] = 0.0
            for c in range(p):
                W[i, j] += K_inv[j, c] * B[c, i]
    sigma2 = 1.0 / tau if tau > 0.0 else state.b[slot, k, 0] / state.a[slot, k, 0]
    for j in range(m):
        for d in range(j + 1):
            M_inv[j, d] = sigma2 if j == d else 0.0
            for i in range(n):
                M_inv[j, d] += W[i, j] * W[i, d]
            M_inv[d, j] = M_inv[j, d]
    return sigma2, invert_spd(M_inv, np.empty(m))
