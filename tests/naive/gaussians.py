"""Gaussians and mixtures with explicit inverses; merging their components; their modes in the plane."""

import numpy as np


def mahalanobis(X, mean, covariance):
    precision = np.linalg.inv(covariance)
    return np.array([(x - mean) @ precision @ (x - mean) for x in X])


def log_normal(x, mean, covariance):
    d2 = mahalanobis([x], mean, covariance)[0]
    return -0.5 * (d2 + np.linalg.slogdet(covariance)[1] + len(x) * np.log(2 * np.pi))


def gaussian_density(x, mean, covariance):
    e = x - mean
    return np.exp(-0.5 * e @ np.linalg.solve(covariance, e)) / np.sqrt(np.linalg.det(2 * np.pi * covariance))


def condition(mean, covariance, given, values, target):
    """Mean of each row and covariance of the target columns once the given ones are known."""
    gain = covariance[np.ix_(target, given)] @ np.linalg.inv(covariance[np.ix_(given, given)])
    means = np.array([mean[target] + gain @ (x - mean[given]) for x in values])
    return means, covariance[np.ix_(target, target)] - gain @ covariance[np.ix_(given, target)]


def kl(mean, covariance, other_mean, other_covariance):
    precision = np.linalg.inv(other_covariance)
    d = mean - other_mean
    log_dets = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (np.trace(precision @ covariance) + d @ precision @ d - len(d) + log_dets)


def moment_match(weights, means, covariances):
    shares = np.array(weights) / np.sum(weights)
    mean = sum(p * m for p, m in zip(shares, means, strict=True))
    spread = [S + np.outer(m - mean, m - mean) for m, S in zip(means, covariances, strict=True)]
    return mean, sum(p * S for p, S in zip(shares, spread, strict=True))


def log_joint_with_gaps(X, weights, means, covariances):
    """log w_k + log N over the observed columns of each row."""
    rows = []
    for x in X:
        seen = np.flatnonzero(~np.isnan(x))
        block = np.ix_(seen, seen)
        parts = zip(weights, means, covariances, strict=True)
        rows.append([np.log(w) + log_normal(x[seen], m[seen], S[block]) for w, m, S in parts])
    return np.array(rows)


def impute(x, weights, means, covariances):
    """Conditional mean and standard deviation of the gaps of one row, by the law of total variance."""
    seen, gaps = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    joint = log_joint_with_gaps([x], weights, means, covariances)[0]
    share = np.exp(joint - joint.max()) / np.exp(joint - joint.max()).sum()
    parts = [condition(m, S, seen, [x[seen]], gaps) for m, S in zip(means, covariances, strict=True)]
    mean = sum(p * m[0] for p, (m, _) in zip(share, parts, strict=True))
    second = sum(p * (np.diagonal(S) + m[0] ** 2) for p, (m, S) in zip(share, parts, strict=True))
    return mean, np.sqrt(second - mean**2)


def runnalls_cost(weights, means, covariances, i, j):
    pair = [i, j]
    _, merged = moment_match(weights[pair], means[pair], covariances[pair])
    log_dets = np.linalg.slogdet(covariances[pair])[1]
    return 0.5 * ((weights[i] + weights[j]) * np.linalg.slogdet(merged)[1] - weights[pair] @ log_dets)


def reduce_greedy(weights, means, covariances, *, n_components=1, max_cost=np.inf):
    """Every cost anew before every merge; returns the members of each component that is left."""
    groups = [[k] for k in range(len(weights))]
    weights, means, covariances = np.array(weights), np.array(means), np.array(covariances)
    while len(groups) > n_components:
        pairs = [(i, j) for i in range(len(groups)) for j in range(i + 1, len(groups))]
        costs = [runnalls_cost(weights, means, covariances, i, j) for i, j in pairs]
        if min(costs) > max_cost:
            break
        i, j = pairs[int(np.argmin(costs))]
        means[i], covariances[i] = moment_match(weights[[i, j]], means[[i, j]], covariances[[i, j]])
        weights[i] += weights[j]
        groups[i] += groups.pop(j)
        weights, means, covariances = (np.delete(a, j, axis=0) for a in (weights, means, covariances))
    return groups


def partitions(K, m):
    """All ways to put K things into m groups that are not empty, as labels."""

    def extend(labels):
        if len(labels) == K:
            if len(set(labels)) == m:
                yield labels
            return
        for label in range(min(max(labels, default=-1) + 2, m)):
            yield from extend([*labels, label])

    return [np.array(labels) for labels in extend([])]


def best_partition(weights, means, covariances, m):
    """The least sum of w_i KL(f_i, g_j) over all partitions, each g_j fitted to its members; and its labels."""
    best = np.inf, None
    for labels in partitions(len(weights), m):
        total = 0.0
        for j in range(m):
            mine = np.flatnonzero(labels == j)
            g = moment_match(weights[mine], means[mine], covariances[mine])
            total += sum(weights[i] * kl(means[i], covariances[i], *g) for i in mine)
        if total < best[0]:
            best = total, labels
    return best


def grid_modes(mixture, n=150):
    """Highest points of a dense grid among their neighbours, polished by scipy, duplicates joined."""
    from scipy.optimize import minimize

    low, high = mixture.means.min(axis=0) - 1.5, mixture.means.max(axis=0) + 1.5
    axes = [np.linspace(a, b, n) for a, b in zip(low, high, strict=True)]
    X = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    precisions = np.linalg.inv(mixture.covariances)
    log_scale = np.log(mixture.weights) - 0.5 * np.linalg.slogdet(mixture.covariances)[1]

    def height(x):
        E = x[..., None, :] - mixture.means
        logs = log_scale - 0.5 * np.einsum("...ki,kij,...kj->...k", E, precisions, E)
        top = logs.max(axis=-1)
        return top + np.log(np.exp(logs - top[..., None]).sum(axis=-1))

    h = np.pad(height(X), 1, constant_values=-np.inf)
    shifts = [(a, b) for a in (0, 1, 2) for b in (0, 1, 2) if (a, b) != (1, 1)]
    peaks = np.all([h[1:-1, 1:-1] > h[a : a + n, b : b + n] for a, b in shifts], axis=0)
    found = []
    for x in X[peaks]:
        x = minimize(lambda v: -height(v), x, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-13}).x
        if all(np.linalg.norm(x - y) > 1e-3 for y in found):
            found.append(x)
    return np.array(found)
