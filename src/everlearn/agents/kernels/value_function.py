"""Kernels of the value function: regions of the state space, and a regression of value on state for each action.

Every function works in place on the arrays of a `State` (see `agents.value_function`), of which the first `n` regions
are in use, by the constants of a `Settings`. Small loops are written out: states have one to eight numbers, and a
call to BLAS costs more than the arithmetic (22 to 52 us a step in all, `benchmarks/agents.py`).
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel

LOG_2PI = np.log(2.0 * np.pi)
# A region with a smaller responsibility for a row does not learn it: most regions are far off, and updating each of
# them (a Cholesky factorisation apiece) would make the cost of a step proportional to the number of regions.
MIN_RESPONSIBILITY = 0.01
# The first rows of a region would otherwise replace all of its covariance, which is then only the floor.
MAX_STEP = 0.9
# Smallest variance of a column given those before it, relative to its own: two observations that are always equal
# make a covariance singular, and this keeps its factor real.
MIN_RELATIVE_PIVOT = 1e-12
NEGLIGIBLE = 1e-12  # responsibilities below this do not change an expected value in float64


class Transition(NamedTuple):
    """One value to learn."""

    x: Any  # state, (d,)
    action: Any  # number of the action
    value: Any  # what it turned out to be worth
    time: Any  # rows learned before this one


class Scratch(NamedTuple):
    """Work arrays for one row."""

    e: Any  # x - mu, (d,)
    d2: Any  # squared Mahalanobis distances, (K,)
    r: Any  # log joint densities, then responsibilities, (K,)
    value: Any  # predictions of the regions, (K,)
    z: Any  # state and value, (d + 1,)
    L: Any  # Cholesky factor, (d, d)
    P: Any  # inverse, (d, d)


@kernel
def make_scratch(K, d):
    """Work arrays for one row."""
    return Scratch(
        np.empty(d), np.empty(K), np.empty(K), np.empty(K), np.empty(d + 1), np.empty((d, d)), np.empty((d, d))
    )


@inner
def squared_distances(x, m, n, s):
    """Fill the squared Mahalanobis distance of a state to every region; returns the smallest."""
    d = x.shape[0]
    least = np.inf
    for j in range(n):
        for a in range(d):
            s.e[a] = x[a] - m.means[j, a]
        d2 = 0.0
        for a in range(d):
            g = 0.0
            for b in range(d):
                g += m.precisions[j, a, b] * s.e[b]
            d2 += g * s.e[a]
        s.d2[j] = d2
        least = min(least, d2)
    return least


@inner
def normalise(n, log_background, s):
    """Softmax of the log joint densities in `s.r` and that of the background, whose share is returned."""
    top = log_background
    for j in range(n):
        top = max(top, s.r[j])
    background = np.exp(log_background - top) if log_background > -np.inf else 0.0
    mass = background
    for j in range(n):
        s.r[j] = np.exp(s.r[j] - top) if s.r[j] > -np.inf else 0.0
        mass += s.r[j]
    for j in range(n):
        s.r[j] /= mass
    return background / mass


@inner
def action_responsibilities(action, m, n, settings, s):
    """Fill the regions' responsibilities for the value of an action; returns that of the prior, one if all is new."""
    known = False
    for j in range(n):
        known = known or m.value_counts[j, action] > 0.0
        # log 0 = -inf leaves out regions in which the action was never taken.
        s.r[j] = np.log(m.value_counts[j, action]) + m.heights[j] - 0.5 * s.d2[j]
    return normalise(n, settings.log_background, s) if known else 1.0


@inner
def regression_value(x, j, action, m):
    """E[value | x] of an action by the regression of region j."""
    d = x.shape[0]
    value = m.value_means[j, action, d]
    for b in range(d):
        value += m.slopes[j, action, b] * (x[b] - m.value_means[j, action, b])
    return value


@inner
def expected_value(x, action, m, n, settings, s):
    """Expected value of an action, and the variance of that expectation; needs `squared_distances` of x.

    By the law of total variance: a region knows its value up to its residual variance divided by its count, the
    prior up to the variance of a new component.
    """
    background = action_responsibilities(action, m, n, settings, s)
    mean = background * settings.prior_value
    variance = background * settings.variances[x.shape[0]]
    if background < 1.0:
        for j in range(n):
            if s.r[j] > NEGLIGIBLE:
                s.value[j] = regression_value(x, j, action, m)
                mean += s.r[j] * s.value[j]
        # Second pass: the spread between regions is taken around the mean that the first pass found.
        variance += background * (settings.prior_value - mean) ** 2
        for j in range(n):
            if s.r[j] > NEGLIGIBLE:
                within = m.residual_variances[j, action] / m.value_counts[j, action]
                variance += s.r[j] * (within + (s.value[j] - mean) ** 2)
    return mean, variance


@inner
def best_value(x, m, n, settings, s):
    """max_a Q(x, a)."""
    # Distances do not depend on the action: once for all of them.
    squared_distances(x, m, n, s)
    best = -np.inf
    for action in range(m.value_counts.shape[1]):
        best = max(best, expected_value(x, action, m, n, settings, s)[0])
    return best


@inner
def factorise(C, d, L):
    """Lower Cholesky factor of the leading block of C, pivots raised where too small; returns its log-determinant."""
    log_det = 0.0
    for i in range(d):
        for j in range(i + 1):
            total = C[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i == j:
                total = max(total, MIN_RELATIVE_PIVOT * C[i, i])
                L[i, i] = np.sqrt(total)
                log_det += np.log(total)
            else:
                L[i, j] = total / L[j, j]
    return log_det


@inner
def invert(C, d, P, L):
    """P = inverse of the leading block of C, by its Cholesky factor; returns the log-determinant of that block."""
    log_det = factorise(C, d, L)
    # L becomes its own inverse, column by column.
    for i in range(d):
        L[i, i] = 1.0 / L[i, i]
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total -= L[i, k] * L[k, j]
            L[i, j] = total * L[i, i]
    for a in range(d):
        for b in range(a + 1):
            total = 0.0
            for k in range(a, d):
                total += L[k, a] * L[k, b]
            P[a, b] = total
            P[b, a] = total
    return log_det


@inner
def place_gaussian(z, settings, mean, C):
    """A new component: mu = z, Sigma = V, the variances of the settings."""
    D = mean.shape[0]
    for a in range(D):
        mean[a] = z[a]
        for b in range(D):
            C[a, b] = 0.0
        C[a, a] = settings.variances[a]


@inner
def update_gaussian(z, w, settings, mean, C):
    """Sigma = (1-w) Sigma + w(1-w) e e' + w floor V and mu = mu + w e, for the step size w and e = z - mu."""
    D = mean.shape[0]
    for a in range(D):
        for b in range(a + 1):
            # The exact update of docs/errata.md (FIGMN, eq. 11) with 1 - w taken out; the
            # floor keeps a share of the first variance.
            C[a, b] = (1.0 - w) * (C[a, b] + w * (z[a] - mean[a]) * (z[b] - mean[b]))
            C[b, a] = C[a, b]
        C[a, a] += w * settings.floor * settings.variances[a]
    for a in range(D):
        mean[a] += w * (z[a] - mean[a])


@inner
def learn_region(j, p, time, m, settings, s):
    """Update where the states of region j lie, without forgetting: step size p / count."""
    d = m.means.shape[1]
    if m.counts[j] == 0.0:
        m.counts[j] = p
        place_gaussian(s.z, settings, m.means[j], m.covariances[j])
    else:
        m.counts[j] += p
        update_gaussian(s.z, min(p / m.counts[j], MAX_STEP), settings, m.means[j], m.covariances[j])
    m.heights[j] = -0.5 * (invert(m.covariances[j], d, m.precisions[j], s.L) + d * LOG_2PI)
    m.used[j] = time


@inner
def learn_value(j, action, p, m, settings, s):
    """Update what an action is worth in region j.

    Values are forgotten: the count stops growing at `max_count`, for they were estimated by a policy that has since
    changed. Where the states lie does not depend on the policy, hence no forgetting in `learn_region`.
    """
    C = m.value_covariances[j, action]
    if m.value_counts[j, action] == 0.0:
        m.value_counts[j, action] = p
        place_gaussian(s.z, settings, m.value_means[j, action], C)
    else:
        m.value_counts[j, action] = min(m.value_counts[j, action] + p, settings.max_count)
        step = min(p / m.value_counts[j, action], MAX_STEP)
        update_gaussian(s.z, step, settings, m.value_means[j, action], C)
    m.residual_variances[j, action] = solve_regression(C, m.slopes[j, action], s)


@inner
def solve_regression(C, slopes, s):
    """Slopes of the last column on those before it (a Schur complement); returns the residual variance."""
    d = slopes.shape[0]
    invert(C, d, s.P, s.L)
    explained = 0.0
    for a in range(d):
        slopes[a] = 0.0
        for b in range(d):
            slopes[a] += s.P[a, b] * C[b, d]
        explained += slopes[a] * C[a, d]
    # Schur complement: the variance of the value that the state does not
    # explain; the floor guards against cancellation.
    return max(C[d, d] - explained, MIN_RELATIVE_PIVOT * C[d, d])


@inner
def claim_region(m, n):
    """A place for a new region: a free one, else the least recently used one is evicted."""
    j = n
    if n == m.counts.shape[0]:
        j = 0
        for i in range(1, n):
            if m.used[i] < m.used[j]:
                j = i
    m.counts[j] = 0.0
    for action in range(m.value_counts.shape[1]):
        m.value_counts[j, action] = 0.0
    return j


@inner
def learn_transition(row, m, n, settings, s):
    """Learn the value of an action in a state; returns the number of regions."""
    d = row.x.shape[0]
    for b in range(d):
        s.z[b] = row.x[b]
    s.z[d] = row.value
    # Novelty by the state alone: values change while they are learned and would make known states look new.
    if squared_distances(row.x, m, n, s) >= settings.threshold:
        j = claim_region(m, n)
        learn_region(j, 1.0, row.time, m, settings, s)
        learn_value(j, row.action, 1.0, m, settings, s)
        return max(n, j + 1)
    for j in range(n):
        s.r[j] = np.log(m.counts[j]) + m.heights[j] - 0.5 * s.d2[j]
    # No background: the prior value is what is expected where nothing is known, and is never learned.
    normalise(n, -np.inf, s)
    for j in range(n):
        if s.r[j] >= MIN_RESPONSIBILITY:
            learn_region(j, s.r[j], row.time, m, settings, s)
            learn_value(j, row.action, s.r[j], m, settings, s)
    return n


@kernel
def fill_expected_values(X, m, settings, means, variances):
    """Fill the expected value of every action in the states X, and the variances of these expectations."""
    n = m.n_regions
    s = make_scratch(m.counts.shape[0], X.shape[1])
    for t in range(X.shape[0]):
        squared_distances(X[t], m, n, s)
        for action in range(means.shape[1]):
            means[t, action], variances[t, action] = expected_value(X[t], action, m, n, settings, s)


@kernel
def learn_rows(X, actions, values, m, settings):
    """Learn the values of actions in states, one after another; returns the number of regions."""
    n = m.n_regions
    s = make_scratch(m.counts.shape[0], X.shape[1])
    for t in range(X.shape[0]):
        n = learn_transition(Transition(X[t], actions[t], values[t], float(m.n_rows + t)), m, n, settings, s)
    return n


@kernel
def learn_episode(steps, terminated, trace, m, settings, targets):
    """Learn transitions s[t] -> s[t+1] from the last to the first; fills their targets G.

    G = r + discount ((1 - trace) max Q(s') + trace G'), where the last transition has G = r if the episode
    terminated there, and else relies on Q alone. Returns the number of regions.
    """
    n = m.n_regions
    s = make_scratch(m.counts.shape[0], steps.states.shape[1])
    last = steps.actions.shape[0] - 1
    # Backwards, so that what the end of an episode brought reaches its first state within the same episode.
    for t in range(last, -1, -1):
        ahead = 0.0
        if t < last or not terminated:
            ahead = best_value(steps.states[t + 1], m, n, settings, s)
        if t < last:
            ahead = (1.0 - trace) * ahead + trace * targets[t + 1]
        # Peng's Q(lambda): later rewards count whether or not the actions that brought them were greedy.
        targets[t] = steps.rewards[t] + steps.discounts[t] * ahead
        row = Transition(steps.states[t], steps.actions[t], targets[t], float(m.n_rows + last - t))
        n = learn_transition(row, m, n, settings, s)
    return n
