"""A window of rows assigned ahead of its folds, so that the folds of all components can be made together on a device.

The rule is that of `rows.walk`: a row is scored by the components as their last folds left them. Which rows a component
folds depends, through the posteriors, on the folds of the others in the same window. So the window is walked with
distances that are a guess after the first fold, the folds are made, and it is walked again with the distances that
they gave, until every fold has the rows and weights that it was made with: then all is as row by row.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.eigen import eigen
from everlearn.low_rank.kernels.fold import LEAST_EIGENVALUE, hold_out_gram
from everlearn.low_rank.kernels.rows import LOG_2PI, calibrate, posteriors, quota, strangeness
from everlearn.low_rank.kernels.shape import KAPPA, shape
from everlearn.typing import Array

# Weights of folded rows that differ by less than this, in units of the row's weight, are the same: rounding of squared
# distances of thousands moves posteriors by 1e-12.
SAME = 1e-11


class Window(NamedTuple):
    """Rows that are assigned together. Rows of lists are numbered: W waiting ones of each component, then these."""

    weights: Array  # (n,)
    before: Array  # (n, K), squared distances as of the last folds before the window
    after: Array  # (n, K), as of the folds in the window that were tried last
    log_det: Array  # (2, K), before and after
    tried: NDArray[np.bool_]  # (K,), whether `after` is known
    z: Array  # (n,), filled
    log_density: Array  # (n,), filled
    D: int


class Lists(NamedTuple):
    """Rows of each component: those of its fold in the window, or all of them where there is none."""

    rows: NDArray[np.int64]  # (K, W), numbers of the rows
    weights: Array  # (K, W)
    size: NDArray[np.int64]  # (K,)


class Plan(NamedTuple):
    """What a walk over a window comes to."""

    mass: Array  # (K,)
    calibration: Array  # (3,)
    folded: Lists
    waiting: Lists  # after the fold
    fold_row: NDArray[np.int64]  # (K,), row after which the component is folded; -1: none
    wrong: NDArray[np.bool_]  # (K,), whether the fold that was tried has other rows than it should
    n: Array  # (K,), rows behind the sketch after the fold
    room: NDArray[np.int64]  # (H,), rows of the window that go to the room
    counts: NDArray[np.int64]  # (2,), rows in `room`; the first row after which a fold is wrong, or -1


class Spectrum(NamedTuple):
    """What a fold's eigenproblem gives, of each component that is folded."""

    mix: Array  # (F, Q, Q + W + 1), products that give the new directions from the rows of Z
    numbers: Array  # (F, 2 Q + 3), loadings and scatter along directions that count, noise, rows behind it, growth


@inner
def is_same(lists, tried, j):
    """Whether a component folds the rows and weights that were tried."""
    if tried.size[j] != lists.size[j]:
        return False
    for i in range(lists.size[j]):
        w = lists.weights[j, i]
        if tried.rows[j, i] != lists.rows[j, i] or abs(tried.weights[j, i] - w) > SAME * w:
            return False
    return True


@inner
def put(lists, j, row, weight):
    """Add a row to a list."""
    slot = lists.size[j]
    lists.rows[j, slot] = row
    lists.weights[j, slot] = weight
    lists.size[j] = slot + 1


@kernel
def start_plan(model, plan):
    """A plan with nothing but what waits before the window."""
    c, waiting = model.components, model.waiting
    W = waiting.weights.shape[1]
    plan.mass[:] = c.mass
    plan.calibration[:] = model.calibration
    plan.n[:] = c.n
    plan.fold_row[:] = -1
    plan.wrong[:] = False
    plan.waiting.size[:] = 0
    plan.folded.size[:] = 0
    plan.counts[0], plan.counts[1] = 0, -1
    for j in range(len(c.n)):
        for i in range(waiting.size[j]):
            put(plan.folded, j, j * W + i, waiting.weights[j, i])


@kernel
def walk_ahead(window, stop, tried, model, rule, plan):
    """Assign the rows of a window before `stop`; returns how many.

    It ends before a row that would fold a component a second time, and after one that fills the room. `tried` are the
    lists that the folds behind `window.after` were made with.
    """
    start_plan(model, plan)
    K, W = plan.folded.rows.shape
    H = len(model.room.weights) - model.room.size[0]
    height, p = np.empty(K), np.empty(K)
    for t in range(stop):
        for j in range(K):
            ahead = plan.fold_row[j] >= 0 and window.tried[j]
            distance = window.after[t, j] if ahead else window.before[t, j]
            height[j] = -0.5 * (distance + window.log_det[1 if ahead else 0, j] + window.D * LOG_2PI)
        window.log_density[t], best = posteriors(plan.mass, height, p)
        ahead = plan.fold_row[best] >= 0 and window.tried[best]
        distance = window.after[t, best] if ahead else window.before[t, best]
        c, window.z[t] = strangeness(distance, window.D, window.D, plan.calibration)
        strange = window.z[t] > rule.novelty and plan.calibration[0] >= rule.calibrated
        if strange and len(model.room.weights) > 0:
            plan.room[plan.counts[0]] = t
            plan.counts[0] += 1
            if plan.counts[0] == H:
                return t + 1
            continue
        for j in range(K):
            if p[j] > 0.0 and plan.fold_row[j] >= 0 and plan.waiting.size[j] + 1 >= quota(plan.n[j], rule.quota):
                return t
        calibrate(c, plan.calibration)
        w = window.weights[t]
        for j in range(K):
            plan.mass[j] = plan.mass[j] * rule.fading + p[j] * w
            if p[j] > 0.0:
                put(plan.waiting if plan.fold_row[j] >= 0 else plan.folded, j, K * W + t, p[j] * w)
        for j in range(K):
            if plan.fold_row[j] < 0 and 0 < plan.folded.size[j] >= quota(plan.n[j], rule.quota):
                end_list(t, j, tried, rule, plan)
    return stop


@inner
def end_list(t, j, tried, rule, plan):
    """Row t is the last that component j folds; whether the fold that was tried is right shows here."""
    R = 0.0
    for i in range(plan.folded.size[j]):
        R += plan.folded.weights[j, i]
    plan.fold_row[j] = t
    plan.n[j] = plan.n[j] * rule.fading**R + R
    if not is_same(plan.folded, tried, j):
        plan.wrong[j] = True
        if plan.counts[1] < 0:
            plan.counts[1] = t


@kernel
def fold_weights(plan, c, j, fading, out):
    """Factors of the rows of Z, the matrix of a fold, into `out`: see `batched.fold_matrices`."""
    Q, W = c.scatter.shape[1], plan.folded.weights.shape[1]
    out[:] = 0.0
    size, R = plan.folded.size[j], 0.0
    for i in range(size):
        R += plan.folded.weights[j, i]
    f = fading**R
    n = c.n[j] * f
    for k in range(c.used[j]):
        out[k] = np.sqrt(c.scatter[j, k] * f)
    for i in range(size):
        out[Q + i] = np.sqrt(plan.folded.weights[j, i])
        out[Q + W + i] = plan.folded.weights[j, i] / R
    out[Q + 2 * W] = np.sqrt(n * R / (n + R))
    out[Q + 2 * W + 1] = R / (n + R)
    out[Q + 2 * W + 2] = f


@kernel
def fold_spectrum(i, G, scale, c, j, prior_noise, spectrum):
    """`fold.fold` and the numbers of `shape.refresh`, from the Gram matrix of fold i, that of component j.

    Everything but the D columns: `c` is changed in place, except mean, directions and diagonal.
    """
    G, scale, mix, out = G[i], scale[i], spectrum.mix[i], spectrum.numbers[i]
    Q = c.scatter.shape[1]
    most = min(Q, c.mean.shape[1] - 1)
    size = G.shape[0]
    W = size - 1 - Q
    R, f = 0.0, scale[Q + 2 * W + 2]
    for m in range(W):
        R += scale[Q + m] ** 2
    hold_out_gram(c, j, R, G, Q, scale, scale[Q + 2 * W])
    c.n[j] = c.n[j] * f + R
    c.trace[j] *= f
    for m in range(Q, size):
        c.trace[j] += G[m, m]
    value, V = eigen(G)
    c.scatter[j] = 0.0
    mix[:] = 0.0
    used = 0
    while used < most and value[used] > LEAST_EIGENVALUE * value[0]:
        c.scatter[j, used] = value[used]
        mix[used] = V[used] * np.copysign(1.0, V[used].sum()) / np.sqrt(value[used])  # the sign of `top_directions`
        used += 1
    c.used[j] = used
    s, lam, rank = shape(c, j, prior_noise)
    grow = 1.0 + 1.0 / max(c.n[j], 1e-300)
    out[:] = 0.0
    for k in range(rank):
        out[k] = max(lam[k] * grow - s * grow, 0.0)
        out[Q + k] = c.scatter[j, k]
    out[2 * Q] = s * grow
    out[2 * Q + 1] = max(c.n[j] + c.borrowed[j] - 1.0 - rank, 0.0) + KAPPA
    out[2 * Q + 2] = grow
