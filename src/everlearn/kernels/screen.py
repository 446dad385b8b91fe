"""Learning one row at a time where most components are known to be too far from it to matter.

The bounds come from `everlearn.core.screen`: lower[t, j] <= 1 + d^2 of row t to component j as it was before the
first row. An update with gain w at distance d shrinks no 1 + d^2 by more than the factor 1 + w d^2.
"""

import numpy as np

from everlearn.kernels.jit import kernel
from everlearn.kernels.mixture import (
    DONE,
    FULL,
    LOG_2PI,
    NEGLIGIBLE,
    THIN,
    UNSAFE,
    complete_distance,
    create,
    fade,
    gain,
    is_thin,
    is_unsafe,
    normalise,
    prune,
    update,
)

LOG_NEGLIGIBLE = np.log(NEGLIGIBLE)
# log(1 + y) <= SLOPE y + INTERCEPT, its tangent at 1 + y = 8
SLOPE = 1.0 / 8.0
INTERCEPT = np.log(8.0) - 7.0 / 8.0
FAINT = 1e-3  # a count below this is changed by any posterior: such a component is always evaluated


@kernel
def fill_features(Z, a, b, features):
    """Products z_a z_b with a <= b in row order, from the pair (a, b) on, for each row of Z; returns the next pair."""
    n, D = Z.shape
    F = features.shape[1]
    f = 0
    while f < F:
        length = min(D - b, F - f)
        for t in range(n):
            z = Z[t, a]
            source = Z[t, b : b + length]
            target = features[t, f : f + length]
            for k in range(length):
                target[k] = z * source[k]
        f += length
        b += length
        if b == D:
            a += 1
            b = a
    return a, b


@kernel
def describe(precision, mean, quadratic, linear, root):
    """Coefficients of d^2 = z' Lambda z - 2 (Lambda m)' z + m' Lambda m in the products z_a z_b, a <= b, and in z.

    Fills also the roots of the diagonal of Lambda; returns m' Lambda m and sum root |m|.
    """
    D = mean.shape[0]
    f = 0
    constant = 0.0
    reach = 0.0
    for a in range(D):
        row = precision[a]
        quadratic[f] = row[a]
        target = quadratic[f : f + D - a]
        source = row[a:]
        for k in range(1, D - a):
            target[k] = 2.0 * source[k]
        f += D - a
        product = 0.0
        for b in range(D):
            product += row[b] * mean[b]
        linear[a] = -2.0 * product
        constant += product * mean[a]
        root[a] = np.sqrt(row[a])
        reach += root[a] * abs(mean[a])
    return constant, reach


@kernel
def log_height(count, log_det, D):
    """Log joint density at the mean of a component."""
    return np.log(count) - 0.5 * (log_det + D * LOG_2PI)


@kernel
def most_likely(lower, shrink, height, n):
    """The component whose log joint density may be the highest."""
    best = 0
    top = -np.inf
    for j in range(n):
        value = height[j] - 0.5 * max(lower[j] * shrink[j] - 1.0, 0.0)
        if value > top:
            top = value
            best = j
    return best


@kernel
def evaluate(x, j, means, precisions, log_dets, counts, height, E, G, d2, log_joint):
    """Distance and log joint density of one row to one component."""
    d2[j] = complete_distance(x, means[j], precisions[j], E[j], G[j])
    height[j] = log_height(counts[j], log_dets[j], x.shape[0])
    log_joint[j] = height[j] - 0.5 * d2[j]


@kernel
def measure(
    x, log_weight, lower, shrink, height, means, precisions, log_dets, counts, n, E, G, d2, log_joint, evaluated
):
    """Distances and log joint densities of one row to the components that may matter; returns the smallest distance.

    A component is left out, with d^2 = 0 and no density, when it can neither be the nearest nor be updated:
    log(p (1 + d^2)) <= height - d^2/2 + SLOPE d^2 + INTERCEPT + log(weight) - log(density) < LOG_NEGLIGIBLE.
    """
    K = lower.shape[0]
    best = most_likely(lower, shrink, height, K)
    evaluate(x, best, means, precisions, log_dets, counts, height, E, G, d2, log_joint)
    least = log_joint[best] + LOG_NEGLIGIBLE - log_weight - INTERCEPT
    nearest = d2[best]
    for j in range(n):
        evaluated[j] = j == best
        if j == best:
            continue
        floor = max(lower[j] * shrink[j] - 1.0, 0.0) if j < K else 0.0
        if floor < nearest or height[j] - (0.5 - SLOPE) * floor >= least or counts[j] < FAINT:
            evaluate(x, j, means, precisions, log_dets, counts, height, E, G, d2, log_joint)
            evaluated[j] = True
            nearest = min(nearest, d2[j])
        else:
            d2[j] = 0.0
            log_joint[j] = -np.inf
    return nearest


@kernel
def shrink_bounds(weight, forgetting, posterior, counts, d2, evaluated, n, shrink, changed):
    """What the update that is about to be made may do to the bounds; marks the components that it changes."""
    for j in range(n):
        if evaluated[j]:
            shrink[j] /= 1.0 + gain(counts[j], posterior[j] * weight, forgetting) * d2[j]
            changed[j] = True


@kernel
def any_thin(precisions, initial_variance, evaluated, everyone, n):
    """Whether some component that was evaluated, or just some component, has become too thin."""
    for j in range(n):
        if (everyone or evaluated[j]) and is_thin(precisions[j], initial_variance):
            return True
    return False


@kernel
def learn_rows(
    X, weights, start, stop, lower, means, precisions, log_dets, counts, ages, n, centre, initial_variance, threshold,
    forgetting, min_age, min_count, log_density, distance, changed,
):  # fmt: skip
    """Learn complete rows in order, as `everlearn.kernels.mixture.learn_rows` does, with the exact update.

    lower[t - start, j] bounds 1 + d^2 of the first components from below; there must be one at least. Marks the
    components that have `changed`. Returns (next row, components, status, evaluations); the end of a component ends
    the run after its row, since the bounds no longer match the components.
    """
    capacity, D = means.shape
    E, G = np.empty((capacity, D)), np.empty((capacity, D))
    d2, log_joint, posterior, height = np.empty(capacity), np.empty(capacity), np.empty(capacity), np.empty(capacity)
    shrink, evaluated = np.ones(capacity), np.zeros(capacity, np.bool_)
    index = np.arange(D)
    nothing = np.empty((0, 0))
    evaluations = 0
    everyone = True
    for j in range(n):
        height[j] = log_height(counts[j], log_dets[j], D)
    for t in range(start, stop):
        x, weight = X[t], weights[t]
        nearest = measure(
            x, np.log(weight), lower[t - start], shrink, height, means, precisions, log_dets, counts, n, E, G, d2,
            log_joint, evaluated,
        )  # fmt: skip
        evaluations += np.sum(evaluated[:n])
        log_density[t] = normalise(log_joint, n, posterior) - np.log(np.sum(counts[:n]))
        distance[t] = nearest
        if nearest >= threshold:
            if n == capacity:
                return t, n, FULL, evaluations
            fade(counts, n, forgetting)
            create(x, weight, posterior, means, precisions, log_dets, counts, ages, n, E, centre, initial_variance)
            height[n] = log_height(counts[n], log_dets[n], D)
            changed[n] = True
            n += 1
            continue
        if is_unsafe(posterior, d2, counts, n, weight, forgetting):
            return t, n, UNSAFE, evaluations
        shrink_bounds(weight, forgetting, posterior, counts, d2, evaluated, n, shrink, changed)
        update(
            index, D, weight, posterior, means, precisions, log_dets, counts, ages, n, E, G, d2, False, forgetting,
            nothing, d2,
        )  # fmt: skip
        if any_thin(precisions, initial_variance, evaluated, everyone, n):
            return t + 1, n, THIN, evaluations
        everyone = False
        if min_age < np.inf:
            left = prune(means, precisions, log_dets, counts, ages, n, min_age, min_count)
            if left < n:
                return t + 1, left, DONE, evaluations
    return stop, n, DONE, evaluations
