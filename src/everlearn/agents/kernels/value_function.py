"""The memory of an agent: what a state is worth under each action, learned one value at a time.

Every function works in place on the arrays of a `MemoryState` (see `agents.value_function`), of which the first `n`
regions are in use, by the constants of a `Rule`.
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel

LOG_2PI = np.log(2.0 * np.pi)
SHARE = 0.01  # a region that takes less than this share of a row does not learn it
MAX_GAIN = 0.9
THIN = 1e-12  # least variance of a column given those before it, beside its own
NEGLIGIBLE = 1e-12


class Scratch(NamedTuple):
    """Room for the work on one row."""

    e: Any  # x - mu, (d,)
    d2: Any  # (K,)
    share: Any  # (K,)
    value: Any  # (K,)
    z: Any  # state and value, (d + 1,)
    L: Any  # (d, d)
    P: Any  # (d, d)


@kernel
def make_scratch(K, d):
    """Room for the work on one row."""
    return Scratch(
        np.empty(d), np.empty(K), np.empty(K), np.empty(K), np.empty(d + 1), np.empty((d, d)), np.empty((d, d))
    )


@inner
def look(x, m, n, s):
    """d^2 of a state to every region; returns the least."""
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
    """Turn log joint densities into shares that sum to one with that of the background, which is returned."""
    top = log_background
    for j in range(n):
        top = max(top, s.share[j])
    background = np.exp(log_background - top) if log_background > -np.inf else 0.0
    mass = background
    for j in range(n):
        s.share[j] = np.exp(s.share[j] - top) if s.share[j] > -np.inf else 0.0
        mass += s.share[j]
    for j in range(n):
        s.share[j] /= mass
    return background / mass


@inner
def weigh_action(a, m, n, rule, s):
    """Shares of the regions in what is known of an action; returns that of the background, one if nothing is."""
    known = False
    for j in range(n):
        known = known or m.value_counts[j, a] > 0.0
        s.share[j] = np.log(m.value_counts[j, a]) + m.heights[j] - 0.5 * s.d2[j]
    return normalise(n, rule.log_background, s) if known else 1.0


@inner
def regress(x, j, a, m):
    """Value of an action in a state, by the regression of region j."""
    d = x.shape[0]
    value = m.value_means[j, a, d]
    for b in range(d):
        value += m.gains[j, a, b] * (x[b] - m.value_means[j, a, b])
    return value


@inner
def answer(x, a, m, n, rule, s):
    """Expected value of an action in a state that `look` has measured, and the variance of that expectation.

    By the law of total variance: a region knows its value up to the variance around its regression over its count,
    the background as well as a new component.
    """
    background = weigh_action(a, m, n, rule, s)
    mean = background * rule.prior_value
    variance = background * rule.variances[x.shape[0]]
    if background < 1.0:
        for j in range(n):
            if s.share[j] > NEGLIGIBLE:
                s.value[j] = regress(x, j, a, m)
                mean += s.share[j] * s.value[j]
        variance += background * (rule.prior_value - mean) ** 2
        for j in range(n):
            if s.share[j] > NEGLIGIBLE:
                variance += s.share[j] * (m.spreads[j, a] / m.value_counts[j, a] + (s.value[j] - mean) ** 2)
    return mean, variance


@inner
def best_value(x, m, n, rule, s):
    """The largest expected value of an action in a state."""
    look(x, m, n, s)
    best = -np.inf
    for a in range(m.value_counts.shape[1]):
        best = max(best, answer(x, a, m, n, rule, s)[0])
    return best


@inner
def factor(C, d, L):
    """Lower Cholesky factor of the leading block of C, made definite where it is not; returns its log-determinant."""
    log_det = 0.0
    for i in range(d):
        for j in range(i + 1):
            total = C[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i == j:
                total = max(total, THIN * C[i, i])
                L[i, i] = np.sqrt(total)
                log_det += np.log(total)
            else:
                L[i, j] = total / L[j, j]
    return log_det


@inner
def invert(C, d, P, L):
    """P = inverse of the leading block of C; returns the log-determinant of that block."""
    log_det = factor(C, d, L)
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
def start(z, rule, mean, C):
    """A component at the row z."""
    D = mean.shape[0]
    for a in range(D):
        mean[a] = z[a]
        for b in range(D):
            C[a, b] = 0.0
        C[a, a] = rule.variances[a]


@inner
def move(z, w, rule, mean, C):
    """Sigma = (1-w) Sigma + w(1-w) e e' + w floor V and mu = mu + w e, for the gain w of the row z."""
    D = mean.shape[0]
    for a in range(D):
        for b in range(a + 1):
            C[a, b] = (1.0 - w) * (C[a, b] + w * (z[a] - mean[a]) * (z[b] - mean[b]))
            C[b, a] = C[a, b]
        C[a, a] += w * rule.floor * rule.variances[a]
    for a in range(D):
        mean[a] += w * (z[a] - mean[a])


@inner
def learn_region(j, p, time, m, rule, s):
    """Where the states of region j lie. Regions settle: all rows count alike."""
    d = m.means.shape[1]
    if m.counts[j] == 0.0:
        m.counts[j] = p
        start(s.z, rule, m.means[j], m.covariances[j])
    else:
        m.counts[j] += p
        move(s.z, min(p / m.counts[j], MAX_GAIN), rule, m.means[j], m.covariances[j])
    m.heights[j] = -0.5 * (invert(m.covariances[j], d, m.precisions[j], s.L) + d * LOG_2PI)
    m.used[j] = time


@inner
def learn_value(j, a, p, m, rule, s):
    """What action a is worth in region j. Values fade: the count stops growing at `memory`."""
    C = m.value_covariances[j, a]
    if m.value_counts[j, a] == 0.0:
        m.value_counts[j, a] = p
        start(s.z, rule, m.value_means[j, a], C)
    else:
        m.value_counts[j, a] = min(m.value_counts[j, a] + p, rule.memory)
        move(s.z, min(p / m.value_counts[j, a], MAX_GAIN), rule, m.value_means[j, a], C)
    m.spreads[j, a] = solve_regression(C, m.gains[j, a], s)


@inner
def solve_regression(C, gain, s):
    """Slopes of the last column on those before it; returns the variance around the regression."""
    d = gain.shape[0]
    invert(C, d, s.P, s.L)
    explained = 0.0
    for a in range(d):
        gain[a] = 0.0
        for b in range(d):
            gain[a] += s.P[a, b] * C[b, d]
        explained += gain[a] * C[a, d]
    return max(C[d, d] - explained, THIN * C[d, d])


@inner
def make_room(m, n):
    """A place for a new region: a free one, or that of the region that has not learned for the longest time."""
    j = n
    if n == m.counts.shape[0]:
        j = 0
        for i in range(1, n):
            if m.used[i] < m.used[j]:
                j = i
    m.counts[j] = 0.0
    for a in range(m.value_counts.shape[1]):
        m.value_counts[j, a] = 0.0
    return j


@inner
def learn_one(x, a, value, time, m, n, rule, s):
    """Learn the value of an action in a state; returns the number of regions."""
    d = x.shape[0]
    for b in range(d):
        s.z[b] = x[b]
    s.z[d] = value
    if look(x, m, n, s) >= rule.threshold:
        j = make_room(m, n)
        learn_region(j, 1.0, time, m, rule, s)
        learn_value(j, a, 1.0, m, rule, s)
        return max(n, j + 1)
    for j in range(n):
        s.share[j] = np.log(m.counts[j]) + m.heights[j] - 0.5 * s.d2[j]
    normalise(n, -np.inf, s)
    for j in range(n):
        if s.share[j] >= SHARE:
            learn_region(j, s.share[j], time, m, rule, s)
            learn_value(j, a, s.share[j], m, rule, s)
    return n


@kernel
def answer_rows(X, m, n, rule, means, variances):
    """Fill the expected value of every action in the states X, and the variances of these expectations."""
    s = make_scratch(m.counts.shape[0], X.shape[1])
    for t in range(X.shape[0]):
        look(X[t], m, n, s)
        for a in range(means.shape[1]):
            means[t, a], variances[t, a] = answer(X[t], a, m, n, rule, s)


@kernel
def learn_rows(X, actions, values, m, n, rule):
    """Learn the values of actions in states, one after another; returns the number of regions."""
    s = make_scratch(m.counts.shape[0], X.shape[1])
    for t in range(X.shape[0]):
        n = learn_one(X[t], actions[t], values[t], float(m.n_rows + t), m, n, rule, s)
    return n


@kernel
def learn_episode(X, actions, rewards, discounts, terminated, trace, m, n, rule, targets):
    """Learn transitions X[t] -> X[t+1] from the last to the first; fills their targets G.

    G = r + discount ((1 - trace) max Q(s') + trace G'), where the last transition has G = r if the episode
    terminated there, and else trusts Q alone. Returns the number of regions.
    """
    s = make_scratch(m.counts.shape[0], X.shape[1])
    last = actions.shape[0] - 1
    time = float(m.n_rows)
    for t in range(last, -1, -1):
        ahead = 0.0
        if t < last or not terminated:
            ahead = best_value(X[t + 1], m, n, rule, s)
        if t < last:
            ahead = (1.0 - trace) * ahead + trace * targets[t + 1]
        targets[t] = rewards[t] + discounts[t] * ahead
        n = learn_one(X[t], actions[t], targets[t], time, m, n, rule, s)
        time += 1.0
    return n
