"""Greedy merging of mixture components, best pair first, with lower bounds in place of costs that never matter.

A component k is left while `labels[k] == k`; with itself and with those that were merged away it costs infinity.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import solve_lower, solve_lower_transposed
from everlearn.typing import Array

# A bound is lowered by this share, so that rounding cannot lift it above the cost.
SLACK = 1e-9
EPSILON = np.finfo(np.float64).eps


class Components(NamedTuple):
    """Components that are merged in place."""

    weights: Array  # (K,)
    means: Array  # (K, D)
    covariances: Array  # (K, D, D), or (K, 1, D) when diagonal
    log_dets: Array  # (K,)


class Costs(NamedTuple):
    """Table of the costs of all pairs, and the cheapest partner of each component."""

    costs: Array  # (K, K): a cost, or a lower bound of it
    exact: NDArray[np.bool_]  # (K, K): which of the two
    lowest: Array  # (K,)
    nearest: NDArray[np.intp]  # (K,)


class Stop(NamedTuple):
    """When to stop: at `n_components`, or at the first cost above `max_cost` with at most `limit` components left."""

    n_components: int
    max_cost: float
    limit: int


class History(NamedTuple):
    """The merges in their order."""

    first: NDArray[np.intp]  # (K - 1,): slot that a merge went into
    second: NDArray[np.intp]  # (K - 1,): slot that became empty
    cost: Array  # (K - 1,)


@kernel
def merge_greedily(components, factors, stop, labels, history):
    """Merge the cheapest pairs in place; returns how many merges there were.

    `labels` becomes the slot that each component went into, `history` is filled; `factors` are Cholesky factors.
    """
    n = components.weights.shape[0]
    D = components.means.shape[1]
    table = Costs(np.full((n, n), np.inf), np.zeros((n, n), np.bool_), np.empty(n), np.zeros(n, np.intp))
    L = np.empty((D, D))
    fill_costs(components, factors, table)
    for k in range(n):
        find_nearest(k, table)
    merges = 0
    for left in range(n, stop.n_components, -1):
        free = left <= stop.limit
        i = cheapest(components, table, L, free, stop.max_cost)
        j = table.nearest[i]
        cost = table.costs[i, j]
        if free and cost > stop.max_cost:
            break
        i, j = min(i, j), max(i, j)
        history.first[merges], history.second[merges], history.cost[merges] = i, j, cost
        merges += 1
        # L becomes the factor of the merged covariance: bounds of i with all
        # others cost a solve each, no factorisation.
        components.log_dets[i] = merge_pair(components, i, j, L)
        table.lowest[j] = np.inf
        for k in range(n):
            table.costs[j, k] = table.costs[k, j] = np.inf
            labels[k] = i if labels[k] == j else labels[k]
        for k in range(n):
            if labels[k] == k and k != i:
                set_cost(components, i, k, L, table)
        update_nearest(i, j, labels, table)
    return merges


@kernel
def fill_costs(components, factors, table):
    """Costs of all pairs (diagonal), or their bounds seen from the heavier component of each."""
    weights = components.weights
    n = weights.shape[0]
    for i in range(n):
        for j in range(n):
            # The bound is taken at u = S_i^-1 d, which is best where i outweighs j and A is near S_i.
            if i != j and (weights[i] > weights[j] or (weights[i] == weights[j] and i < j)):
                set_cost(components, i, j, factors[i], table)


@kernel
def cheapest(components, table, L, free, max_cost):
    """A component of the pair with the least cost; above `max_cost` a bound is enough where merging is `free` to end.

    `L` is scratch.
    """
    costs, exact, lowest, nearest = table.costs, table.exact, table.lowest, table.nearest
    while True:
        i = 0
        for k in range(lowest.shape[0]):
            if lowest[k] < lowest[i]:
                i = k
        j = nearest[i]
        # No bound is above its cost: an exact minimum of the table is the cheapest pair.
        if exact[i, j] or (free and costs[i, j] > max_cost):
            return i
        cost = pair_cost(components, i, j, L)
        # Rounding may put a cost below its bound; the larger stays, so that entries never fall.
        if cost > costs[i, j]:
            costs[i, j] = costs[j, i] = cost
        exact[i, j] = exact[j, i] = True
        find_nearest(i, table)
        if nearest[j] == i:
            find_nearest(j, table)


@kernel
def find_nearest(i, table):
    """The cheapest partner of i."""
    row = table.costs[i]
    best = 0
    for k in range(row.shape[0]):
        if row[k] < row[best]:
            best = k
    table.nearest[i] = best
    table.lowest[i] = row[best]


@kernel
def update_nearest(i, j, labels, table):
    """Cheapest partners after j went into i."""
    costs, lowest, nearest = table.costs, table.lowest, table.nearest
    find_nearest(i, table)
    for k in range(labels.shape[0]):
        if labels[k] != k or k == i:
            continue
        # Pairs without i and j cost what they did: only components that had one of
        # the two for a partner are searched again.
        if nearest[k] == i or nearest[k] == j:
            find_nearest(k, table)
        elif costs[k, i] < lowest[k]:
            lowest[k] = costs[k, i]
            nearest[k] = i


@kernel
def set_cost(components, i, j, L, table):
    """Cost of merging i and j when it is cheap (diagonal), else a bound; L is the Cholesky factor of i."""
    diagonal = components.covariances.shape[1] == 1
    cost = pair_cost(components, i, j, L) if diagonal else pair_bound(components, i, j, L)
    table.costs[i, j] = table.costs[j, i] = cost
    table.exact[i, j] = table.exact[j, i] = diagonal


@kernel
def pair_cost(components, i, j, L):
    """Runnalls' cost of merging i and j, ((w_i + w_j) ln|S_ij| - w_i ln|S_i| - w_j ln|S_j|) / 2; L is scratch."""
    weights, means, covariances, log_dets = components
    p = weights[i] / (weights[i] + weights[j])
    merged = pair_log_det(means[i], means[j], covariances[i], covariances[j], p, L)
    # Differences first: log-determinants of many columns are large and nearly equal.
    cost = 0.5 * (weights[i] * (merged - log_dets[i]) + weights[j] * (merged - log_dets[j]))
    return max(cost, 0.0)


@kernel
def pair_log_det(m, other, S, T, p, L):
    """Log-determinant of p S + q T + p q (m - other)(m - other)', whose Cholesky factor goes into L."""
    D = m.shape[0]
    q = 1.0 - p
    if S.shape[0] == 1:
        total = 0.0
        for a in range(D):
            d = m[a] - other[a]
            total += np.log(p * S[0, a] + q * T[0, a] + p * q * d * d)
        return total
    for a in range(D):
        d = p * q * (m[a] - other[a])
        for b in range(a + 1):
            L[a, b] = p * S[a, b] + q * T[a, b] + d * (m[b] - other[b])
    return factorise(L)


@kernel
def factorise(L):
    """Replace the lower triangle of L by its Cholesky factor; returns the log-determinant.

    Pivots lost to rounding are raised to what rounding leaves.
    """
    D = L.shape[0]
    total = 0.0
    for a in range(D):
        # L[a, a] still is the diagonal entry here.
        smallest = D * EPSILON * L[a, a]
        for b in range(a + 1):
            value = L[a, b]
            row, column = L[a], L[b]
            for c in range(b):
                value -= row[c] * column[c]
            L[a, b] = value / L[b, b] if b < a else np.sqrt(max(value, smallest))
        total += 2.0 * np.log(L[a, a])
    return total


@kernel
def pair_bound(components, i, j, L):
    """Lower bound of the cost of merging i and j; L is the Cholesky factor of i.

    With A = p S_i + q S_j and d the difference of means, ln|S_ij| = ln|A| + ln(1 + p q d'A^-1 d). Minkowski's
    inequality gives |A|^(1/D) >= p |S_i|^(1/D) + q |S_j|^(1/D), and Cauchy's d'A^-1 d >= (u'd)^2 / (u'A u), here at
    u = S_i^-1 d.
    """
    weights, means, covariances, log_dets = components
    D = means.shape[1]
    w = weights[i] + weights[j]
    p, q = weights[i] / w, weights[j] / w
    u = np.empty(D)
    for a in range(D):
        u[a] = means[j, a] - means[i, a]
    solve_lower(L, D, u)
    along = 0.0
    for a in range(D):
        along += u[a] * u[a]
    solve_lower_transposed(L, D, u)
    across = 0.0
    for a in range(D):
        value = 0.0
        row = covariances[j, a]
        for b in range(D):
            value += row[b] * u[b]
        across += value * u[a]
    reach = along * along / (p * along + q * across) if along > 0.0 else 0.0
    # Relative to the larger one: determinants themselves overflow.
    top = max(log_dets[i], log_dets[j])
    volume = top + D * np.log(p * np.exp((log_dets[i] - top) / D) + q * np.exp((log_dets[j] - top) / D))
    merged = volume + np.log1p(p * q * reach)
    cost = 0.5 * (weights[i] * (merged - log_dets[i]) + weights[j] * (merged - log_dets[j]))
    return max(cost * (1.0 - SLACK), 0.0)


@kernel
def merge_pair(components, i, j, L):
    """Moment match of i and j into slot i; returns its log-determinant, and its Cholesky factor in L."""
    weights, means, covariances, _ = components
    p = weights[i] / (weights[i] + weights[j])
    q = 1.0 - p
    log_det = pair_log_det(means[i], means[j], covariances[i], covariances[j], p, L)
    D = means.shape[1]
    d = np.empty(D)
    for a in range(D):
        # Before the mean is overwritten.
        d[a] = means[i, a] - means[j, a]
        means[i, a] = p * means[i, a] + q * means[j, a]
    S, T = covariances[i], covariances[j]
    diagonal = S.shape[0] == 1
    for a in range(S.shape[0]):
        for b in range(D):
            S[a, b] = p * S[a, b] + q * T[a, b] + p * q * d[b] * (d[b] if diagonal else d[a])
    weights[i] += weights[j]
    return log_det


@kernel
def overlaps(means, covariances, others, other_covariances, out):
    """Squared Mahalanobis distance plus log-determinant under S_i + T_j, for all pairs."""
    D = means.shape[1]
    d, L = np.empty(D), np.empty((D, D))
    for i in range(means.shape[0]):
        for j in range(others.shape[0]):
            for a in range(D):
                d[a] = means[i, a] - others[j, a]
            out[i, j] = overlap(d, covariances[i], other_covariances[j], L)


@kernel
def overlap(d, S, T, L):
    """d' (S + T)^-1 d + ln|S + T|; changes d, and L is scratch."""
    D = d.shape[0]
    total = 0.0
    if S.shape[0] == 1:
        for a in range(D):
            variance = S[0, a] + T[0, a]
            total += d[a] * d[a] / variance + np.log(variance)
        return total
    for a in range(D):
        for b in range(a + 1):
            L[a, b] = S[a, b] + T[a, b]
    total = factorise(L)
    solve_lower(L, D, d)
    for a in range(D):
        total += d[a] * d[a]
    return total
