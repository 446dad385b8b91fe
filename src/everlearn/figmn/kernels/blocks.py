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
from everlearn.figmn.kernels.responsibilities import least, log_height, normalise
from everlearn.figmn.kernels.rows import FLOOR, NEGLIGIBLE, UNSAFE_STRETCH, gain
from everlearn.linalg.compile import inner, kernel

# In units of the square root of the rounding unit of the matrices:
LEAST_SHARE = 100.0  # a new block begins before less than this of a starting precision is left in a component
LOST_DIGITS = 10.0  # a new block begins before Q_tt has cancelled to less than this of P_tt
ROUNDING = 0.01  # d^2 of a row at the mean may come out below zero by as much


class Meetings(NamedTuple):
    """The rows that each component meets: all of the block, or those that a screen has left over.

    Component j meets rows[first[j] : first[j] + size[j]]. Its P, size x size, begins at P[at[j]]; R replaces it row by
    row, for the rows that are learned. The arrays have room for the components that the block may create.
    """

    first: Any  # (room,)
    size: Any  # (room,)
    at: Any  # (room,)
    rows: Any  # one number a meeting, like the next four
    diagonal: Any  # of Q
    origin: Any  # the diagonal of P
    gains: Any  # w/a of the row, zero if it was not learned
    learned: Any  # the first n_learned[j] of component j number its learned meetings
    n_learned: Any  # (room,)
    P: Any


class Members(NamedTuple):
    """What the recursion carries for each component, with room for those that the block may create."""

    counts: Any
    ages: Any
    log_dets: Any
    thinness: Any  # bound on the precision of a column, in units of a new component's, times a
    share: Any  # a
    alive: Any
    birth: Any  # row of the block at which the component began, -1 if before
    height: Any  # log joint density at the mean, or more
    shrink: Any  # see `everlearn.figmn.kernels.bounds`


class Row(NamedTuple):
    """What a row is to each component."""

    meeting: Any  # number of the next meeting
    d2: Any
    log_joint: Any
    posterior: Any


@inner
def log1p(x):
    """log(1 + x), by its series where four terms are enough."""
    if abs(x) < 1e-4:
        return x * (1.0 - x * (0.5 - x * (1.0 / 3.0 - 0.25 * x)))
    return np.log(1.0 + x)


@inner
def eliminate(P, at, m, i, diagonal, first, learned, n_learned, pivot):
    """Row i of R, from column i on, over that of P; its squares leave the diagonal of Q."""
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
    rest = diagonal[first + i : first + m]
    scale = 1.0 / np.sqrt(pivot)
    for k in range(m - i):
        row[k] *= scale
        rest[k] -= row[k] * row[k]
    row[0] = np.sqrt(pivot)


@inner
def measure(t, n, D, root_unit, meetings, members, row):
    """Distances and log joint densities of row t to the components that meet it; whether they can be trusted."""
    trusted = True
    for j in range(n):
        row.d2[j], row.log_joint[j] = np.inf, -np.inf
        i = row.meeting[j]
        if not members.alive[j] or i == meetings.size[j] or meetings.rows[meetings.first[j] + i] != t:
            continue
        q = meetings.diagonal[meetings.first[j] + i]
        value = q / members.share[j] - 1.0
        lost = q < LOST_DIGITS * root_unit * meetings.origin[meetings.first[j] + i]
        trusted = trusted and value >= -ROUNDING * root_unit and not lost
        row.d2[j] = max(value, 0.0)
        members.height[j] = log_height(members.counts[j], members.log_dets[j], D)
        row.log_joint[j] = members.height[j] - 0.5 * row.d2[j]
        row.meeting[j] += 1
    return trusted


@inner
def all_met(lower, n, nearest, likely, members, row):
    """Whether no component that does not meet the row may matter to it."""
    for j in range(min(n, lower.shape[0])):
        if members.alive[j] and row.d2[j] == np.inf:
            floor = least_distance(lower[j], members.shrink[j])
            if may_matter(floor, nearest, members.height[j], likely, members.counts[j]):
                return False
    return True


@inner
def total_count(members, n):
    """Sum of the counts of the living components."""
    total = 0.0
    for j in range(n):
        if members.alive[j]:
            total += members.counts[j]
    return total


@inner
def is_safe(n, weight, forgetting, root_unit, members, row):
    """Whether no precision would be stretched, used up or thinned out too far by learning this row in the block."""
    for j in range(n):
        if row.d2[j] < np.inf:
            w = gain(members.counts[j], row.posterior[j] * weight, forgetting)
            rest = members.share[j] * (1.0 - w)
            used_up = rest < LEAST_SHARE * root_unit
            if w * row.d2[j] > UNSAFE_STRETCH or used_up or members.thinness[j] * FLOOR > rest:
                return False
    return True


@inner
def update(n, D, weight, forgetting, meetings, members, row):
    """Update every component by its share of the row."""
    for j in range(n):
        if not members.alive[j]:
            continue
        d2, p = row.d2[j], row.posterior[j] * weight
        w = gain(members.counts[j], p, forgetting)
        members.ages[j] += 1.0
        members.counts[j] = forgetting * members.counts[j] + p
        if d2 == np.inf or p * (1.0 + d2) < NEGLIGIBLE:
            continue
        first, i, s = meetings.first[j], row.meeting[j] - 1, meetings.n_learned[j]
        members.share[j] *= 1.0 - w
        members.shrink[j] /= 1.0 + w * d2
        members.log_dets[j] += D * log1p(-w) + log1p(w * d2)
        pivot = meetings.diagonal[first + i] + members.share[j] / w
        eliminate(meetings.P, meetings.at[j], meetings.size[j], i, meetings.diagonal, first, meetings.learned, s, pivot)
        meetings.gains[first + i] = w / members.share[j]
        meetings.learned[first + s] = i
        meetings.n_learned[j] = s + 1


@inner
def meet_the_rest(X, t, j, initial_variance, meetings, E):
    """Meetings of component j, born at row t, with the rows after t: P_ik = 1 + sum (x_i - x_t)(x_k - x_t)/sigma^2."""
    first, at, m, D = meetings.first[j], meetings.at[j], X.shape[0] - t - 1, X.shape[1]
    for i in range(m):
        for a in range(D):
            E[i, a] = (X[t + 1 + i, a] - X[t, a]) / np.sqrt(initial_variance[a])
    for i in range(m):
        for k in range(i, m):
            value = 1.0
            for a in range(D):
                value += E[i, a] * E[k, a]
            meetings.P[at + i * m + k] = value
        meetings.rows[first + i] = t + 1 + i
        meetings.diagonal[first + i] = meetings.P[at + i * m + i]
        meetings.origin[first + i] = meetings.P[at + i * m + i]
        meetings.gains[first + i] = 0.0
    meetings.size[j] = m
    meetings.n_learned[j] = 0
    if j + 1 < meetings.first.shape[0]:
        meetings.first[j + 1] = first + m
        meetings.at[j + 1] = at + m * m


@inner
def create(X, t, n, weight, initial_variance, meetings, members, row, E):
    """Open component n at row t."""
    log_det = 0.0
    for a in range(X.shape[1]):
        log_det += np.log(initial_variance[a])
    members.counts[n] = weight
    members.ages[n] = 1.0
    members.log_dets[n] = log_det
    members.thinness[n] = 1.0
    members.share[n] = 1.0
    members.alive[n] = True
    members.birth[n] = t
    row.meeting[n] = 0
    meet_the_rest(X, t, n, initial_variance, meetings, E)


@inner
def prune(members, n, min_age, min_count):
    """End the components older than min_age with less than min_count, the heaviest aside; returns how many."""
    heaviest = -1
    for j in range(n):
        if members.alive[j] and (heaviest < 0 or members.counts[j] > members.counts[heaviest]):
            heaviest = j
    ended = 0
    for j in range(n):
        if members.alive[j] and j != heaviest and members.ages[j] > min_age and members.counts[j] < min_count:
            members.alive[j] = False
            ended += 1
    return ended


@inner
def learn_rows(
    X, weights, n, capacity, initial_variance, threshold, forgetting, min_age, min_count, root_unit, lower, meetings,
    members, row, E, log_density, distance,
):  # fmt: skip
    """Learn the rows of a block; see `learn_block`."""
    b, D = X.shape
    room = meetings.first.shape[0]
    living = n
    for t in range(b):
        if not measure(t, n, D, root_unit, meetings, members, row):
            return t, n
        nearest = least(row.d2, n)
        density = normalise(row.log_joint, n, row.posterior)
        if lower.shape[0] > 0 and not all_met(lower[t], n, nearest, density - np.log(weights[t]), members, row):
            return t, n
        log_total = np.log(total_count(members, n)) if living > 0 else np.nan
        if nearest >= threshold:
            if living == capacity or n == room:
                return t, n
            for j in range(n):
                members.counts[j] *= forgetting
            create(X, t, n, weights[t], initial_variance, meetings, members, row, E)
            n += 1
            living += 1
        else:
            if not is_safe(n, weights[t], forgetting, root_unit, members, row):
                return t, n
            update(n, D, weights[t], forgetting, meetings, members, row)
            if min_age < np.inf:
                living -= prune(members, n, min_age, min_count)
        log_density[t] = density - log_total
        distance[t] = nearest
    return b, n


@kernel
def learn_block(
    X, weights, n, capacity, initial_variance, threshold, forgetting, min_age, min_count, root_unit, lower, meetings,
    members, log_density, distance,
):  # fmt: skip
    """Learn the rows of a block as far as they can be trusted to it, its matrices being known to root_unit^2.

    lower[t, j] bounds 1 + d^2 at the start of the block from below; it is empty when every component meets every row.
    Returns (rows learned, components); the ended ones are counted among the components. The row after the last is left
    to the sequential form.
    """
    room = meetings.first.shape[0]
    for j in range(n):
        members.height[j] = log_height(members.counts[j], members.log_dets[j], X.shape[1])
    row = Row(np.zeros(room, np.int64), np.empty(room), np.empty(room), np.empty(room))
    return learn_rows(
        X, weights, n, capacity, initial_variance, threshold, forgetting, min_age, min_count, root_unit, lower,
        meetings, members, row, np.empty(X.shape), log_density, distance,
    )  # fmt: skip


@kernel
def isolate(R, learned):
    """Make the rows that were not learned unit rows and columns of R, so that they take no part in a solve."""
    k, m = learned.shape
    for j in range(k):
        for i in range(m):
            if not learned[j, i]:
                for s in range(m):
                    R[j, s, i] = 0.0
                    R[j, i, s] = 0.0
                R[j, i, i] = 1.0
