"""The small recursion of the block algorithm: learning many rows from the Gram matrices of their deviations.

In homogeneous coordinates a component knows a row by P_ik = 1 + (x_i - mu)' Lambda (x_k - mu), and learning row t with
gain w maps P to (P - w p p'/(1 - w + w P_tt))/(1 - w), p = P[:, t]. With a = prod (1 - w) over the rows learned so far,
Q = a P follows the Cholesky recursion

    pivot = Q_tt + a/w,  r = Q[t, :]/sqrt(pivot),  Q -= r r',        a taken after row t,

so that d_t^2 = Q_tt/a - 1 (a taken before it), and the rows r are the upper factor R of the block. What is left for
the matrices is Lambda = (Lambda_0 - Z'Z)/a with R'Z = Y = E Lambda_0.
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.figmn.kernels.bounds import least_distance, may_matter
from everlearn.figmn.kernels.responsibilities import least, log_height, log_unit
from everlearn.figmn.kernels.rows import FLOOR, NEGLIGIBLE, UNSAFE_STRETCH, gain
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import softmax

# In units of the square root of the rounding unit of the matrices:
LEAST_SHARE = 100.0  # a new block begins before less than this of a starting precision is left in a component
LOST_DIGITS = 10.0  # a new block begins before Q_tt has cancelled to less than this of P_tt
ROUNDING = 0.01  # d^2 of a row at the mean may come out below zero by as much


class RowAssignment(NamedTuple):
    """Rows assigned to each component: the whole block, or those that pass the screen.

    Component j takes rows[first[j] : first[j] + size[j]]. Its P, size x size, begins at P[at[j]]; R replaces it row by
    row, for the rows that are learned. The arrays have room for the components that the block may create.
    """

    first: Any  # (room,)
    size: Any  # (room,)
    at: Any  # (room,)
    rows: Any  # one number an assigned row, like the next four
    diagonal: Any  # of Q
    origin: Any  # the diagonal of P
    gains: Any  # w/a of the row, zero if it was not learned
    learned: Any  # the first n_learned[j] of component j number its learned rows
    n_learned: Any  # (room,)
    P: Any
    lower: Any  # (b, K), lower bounds of 1 + d^2 at the start of the block; (0, 0) if all rows are assigned to all


class BlockComponents(NamedTuple):
    """What the recursion carries for each component, with room for those that the block may create."""

    counts: Any
    ages: Any
    log_dets: Any
    thinness: Any  # bound on the precision of a column, in units of a new component's, times a
    share: Any  # a
    alive: Any
    created_at: Any  # row of the block at which the component was created, -1 if before
    height: Any  # log joint density at the mean, or more
    shrink: Any  # see `everlearn.figmn.kernels.bounds`


class Limits(NamedTuple):
    """What a block may do."""

    capacity: int  # components that the state has room for
    root_unit: float  # square root of the rounding unit of the products


class RowScratch(NamedTuple):
    """What a row is to each component."""

    next: Any  # (room,), number of the next assigned row
    d2: Any
    log_joint: Any
    posterior: Any
    E: Any  # (b, D), for the Gram matrix of a new component


@inner
def log1p(x):
    """log(1 + x), by its series where four terms are enough."""
    if abs(x) < 1e-4:
        return x * (1.0 - x * (0.5 - x * (1.0 / 3.0 - 0.25 * x)))
    return np.log(1.0 + x)


@inner
def eliminate(j, i, pivot, assigned):
    """Row i of R of component j, from column i on, over that of P; its squares leave the diagonal of Q.

    Four learned rows at a time, because the pass is bound by loads and stores of the row.
    """
    P, at, first, m = assigned.P, assigned.at[j], assigned.first[j], assigned.size[j]
    learned, n_learned = assigned.learned, assigned.n_learned[j]
    # Left-looking: a row of P is untouched until it is learned, and then loses the products of all rows learned before
    # it. Rows that are not learned cost nothing but their entry in the diagonal of Q, which their distance needs.
    row = P[at + i * m + i : at + i * m + m]
    s = 0
    while s + 4 <= n_learned:
        r0 = P[at + learned[first + s] * m + i : at + learned[first + s] * m + m]
        r1 = P[at + learned[first + s + 1] * m + i : at + learned[first + s + 1] * m + m]
        r2 = P[at + learned[first + s + 2] * m + i : at + learned[first + s + 2] * m + m]
        r3 = P[at + learned[first + s + 3] * m + i : at + learned[first + s + 3] * m + m]
        c0, c1, c2, c3 = r0[0], r1[0], r2[0], r3[0]
        for k in range(m - i):
            row[k] -= c0 * r0[k] + c1 * r1[k] + c2 * r2[k] + c3 * r3[k]
        s += 4
    while s < n_learned:
        r0 = P[at + learned[first + s] * m + i : at + learned[first + s] * m + m]
        c0 = r0[0]
        for k in range(m - i):
            row[k] -= c0 * r0[k]
        s += 1
    rest = assigned.diagonal[first + i : first + m]
    scale = 1.0 / np.sqrt(pivot)
    for k in range(m - i):
        row[k] *= scale
        rest[k] -= row[k] * row[k]
    row[0] = np.sqrt(pivot)


@inner
def measure(t, n, D, root_unit, assigned, components, row):
    """Distances and log joint densities of row t to the components it is assigned to; whether they can be trusted."""
    trusted = True
    for j in range(n):
        row.d2[j], row.log_joint[j] = np.inf, -np.inf
        i = row.next[j]
        if not components.alive[j] or i == assigned.size[j] or assigned.rows[assigned.first[j] + i] != t:
            continue
        # d_t^2 = Q_tt/a - 1. Q_tt is P_tt less squares: it shrinks while its
        # absolute error stays that of P_tt, hence `lost`.
        q = assigned.diagonal[assigned.first[j] + i]
        value = q / components.share[j] - 1.0
        lost = q < LOST_DIGITS * root_unit * assigned.origin[assigned.first[j] + i]
        trusted = trusted and value >= -ROUNDING * root_unit and not lost
        row.d2[j] = max(value, 0.0)
        components.height[j] = log_height(components.counts[j], components.log_dets[j], D)
        row.log_joint[j] = components.height[j] - 0.5 * row.d2[j]
        row.next[j] += 1
    return trusted


@inner
def screen_holds(lower, n, nearest, likely, components, row):
    """Whether no component that the row is not assigned to may matter to it."""
    for j in range(min(n, lower.shape[0])):
        if components.alive[j] and row.d2[j] == np.inf:
            floor = least_distance(lower[j], components.shrink[j])
            if may_matter(floor, nearest, components.height[j], likely, components.counts[j]):
                return False
    return True


@inner
def total_count(components, n):
    """Sum of the counts of the components that are alive."""
    total = 0.0
    for j in range(n):
        if components.alive[j]:
            total += components.counts[j]
    return total


@inner
def is_safe(n, weight, forgetting, root_unit, components, row):
    """Whether no precision would be stretched, used up or thinned out too far by learning this row in the block."""
    for j in range(n):
        if row.d2[j] < np.inf:
            w = gain(components.counts[j], row.posterior[j] * weight, forgetting)
            # a after this row: the share of the starting precision that is left, and what 1/a will multiply.
            rest = components.share[j] * (1.0 - w)
            used_up = rest < LEAST_SHARE * root_unit
            if w * row.d2[j] > UNSAFE_STRETCH or used_up or components.thinness[j] * FLOOR > rest:
                return False
    return True


@inner
def update(n, D, weight, forgetting, assigned, components, row):
    """Update every component by its share of the row."""
    for j in range(n):
        if not components.alive[j]:
            continue
        d2, p = row.d2[j], row.posterior[j] * weight
        w = gain(components.counts[j], p, forgetting)
        components.ages[j] += 1.0
        components.counts[j] = forgetting * components.counts[j] + p
        # Not assigned, or too far away to change a bit: count and age have changed, the shape has not.
        if d2 == np.inf or p * (1.0 + d2) < NEGLIGIBLE:
            continue
        first, i, s = assigned.first[j], row.next[j] - 1, assigned.n_learned[j]
        components.share[j] *= 1.0 - w
        components.shrink[j] /= 1.0 + w * d2
        # Matrix determinant lemma. Both arguments are small for most rows; log(1 + x) would keep few of their digits.
        components.log_dets[j] += D * log1p(-w) + log1p(w * d2)
        # pivot = Q_tt + a/w, with a after the row: share has to be multiplied first.
        eliminate(j, i, assigned.diagonal[first + i] + components.share[j] / w, assigned)
        assigned.gains[first + i] = w / components.share[j]
        assigned.learned[first + s] = i
        assigned.n_learned[j] = s + 1


@inner
def gram_for_new_component(X, t, j, weight, settings, assigned, E):
    """Assign the rows after t to component j, created at row t: P_ik = 1 + weight (x_i - x_t)(x_k - x_t)/sigma^2."""
    first, at, m, D = assigned.first[j], assigned.at[j], X.shape[0] - t - 1, X.shape[1]
    for i in range(m):
        for a in range(D):
            # Deviations in units of the new component's spread: then its Gram
            # matrix is a plain product, without Lambda.
            E[i, a] = (X[t + 1 + i, a] - X[t, a]) * np.sqrt(weight / settings.initial_variance[a])
    for i in range(m):
        for k in range(i, m):
            value = 1.0
            for a in range(D):
                value += E[i, a] * E[k, a]
            assigned.P[at + i * m + k] = value
        assigned.rows[first + i] = t + 1 + i
        assigned.diagonal[first + i] = assigned.P[at + i * m + i]
        assigned.origin[first + i] = assigned.P[at + i * m + i]
        assigned.gains[first + i] = 0.0
    assigned.size[j] = m
    assigned.n_learned[j] = 0
    # Room was given for a whole block; what the rows before t would have taken goes to the next component.
    if j + 1 < assigned.first.shape[0]:
        assigned.first[j + 1] = first + m
        assigned.at[j + 1] = at + m * m


@inner
def create(rows, t, n, settings, assigned, components, row):
    """Create component n at row t."""
    log_det, weight = 0.0, rows.weights[t]
    for a in range(rows.X.shape[1]):
        log_det += np.log(settings.initial_variance[a] / weight)
    components.counts[n] = weight
    components.ages[n] = 1.0
    components.log_dets[n] = log_det
    components.thinness[n] = weight
    components.share[n] = 1.0
    components.alive[n] = True
    components.created_at[n] = t
    row.next[n] = 0
    gram_for_new_component(rows.X, t, n, weight, settings, assigned, row.E)


@inner
def prune(components, n, settings):
    """End the components older than min_age with less than min_count, the heaviest aside; returns how many."""
    heaviest = -1
    for j in range(n):
        if components.alive[j] and (heaviest < 0 or components.counts[j] > components.counts[heaviest]):
            heaviest = j
    ended = 0
    for j in range(n):
        faint = components.ages[j] > settings.min_age and components.counts[j] < settings.min_count
        if components.alive[j] and j != heaviest and faint:
            components.alive[j] = False
            ended += 1
    return ended


@inner
def learn_loop(rows, n, settings, limits, assigned, components, row):
    """Learn the rows of a block; see `learn_block`."""
    b, D = rows.X.shape
    room, living, forgetting = assigned.first.shape[0], n, settings.forgetting
    for t in range(b):
        weight = rows.weights[t]
        if not measure(t, n, D, limits.root_unit, assigned, components, row):
            return t, n
        nearest = least(row.d2, n)
        density = softmax(row.log_joint, n, row.posterior)
        if assigned.lower.shape[0] > 0 and not screen_holds(
            assigned.lower[t], n, nearest, density - np.log(weight), components, row
        ):
            return t, n
        log_total = np.log(total_count(components, n)) if living > 0 else np.nan
        if nearest >= settings.thresholds[D]:
            if living == limits.capacity or n == room:
                return t, n
            # A row that creates is one row of forgetting, too.
            for j in range(n):
                components.counts[j] *= forgetting
            create(rows, t, n, settings, assigned, components, row)
            n += 1
            living += 1
        else:
            if not is_safe(n, weight, forgetting, limits.root_unit, components, row):
                return t, n
            update(n, D, weight, forgetting, assigned, components, row)
            if settings.min_age < np.inf:
                living -= prune(components, n, settings)
        # Densities as before the row: counts were summed before they changed.
        rows.log_density[t] = density - log_total - log_unit(rows.X[t], settings.log_scale)
        rows.distance[t] = nearest
    return b, n


@kernel
def learn_block(rows, n, settings, limits, assigned, components):
    """Learn the rows of a block as far as they can be trusted to it, its matrices being known to root_unit^2.

    Returns (rows learned, components); the ended ones are counted among the components. The row after the last is left
    to the sequential form.
    """
    room = assigned.first.shape[0]
    for j in range(n):
        components.height[j] = log_height(components.counts[j], components.log_dets[j], rows.X.shape[1])
    row = RowScratch(np.zeros(room, np.int64), np.empty(room), np.empty(room), np.empty(room), np.empty(rows.X.shape))
    return learn_loop(rows, n, settings, limits, assigned, components, row)


@kernel
def mask_rows(R, learned):
    """Make the rows that were not learned unit rows and columns of R, so that they take no part in a solve."""
    k, m = learned.shape
    for j in range(k):
        for i in range(m):
            if not learned[j, i]:
                for s in range(m):
                    R[j, s, i] = 0.0
                    R[j, i, s] = 0.0
                R[j, i, i] = 1.0
