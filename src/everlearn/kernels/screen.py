"""Bounds that show which components are too far from a row to matter to it.

lower[j] <= 1 + d^2 holds for component j as it was when `everlearn.core.screen` made the bounds. An update with gain w
at distance d shrinks no 1 + d^2 by more than the factor 1 + w d^2; `shrink` is the product of these factors, inverted.
"""

import numpy as np

from everlearn.kernels.distance import complete_distance, log_height
from everlearn.kernels.jit import inner, kernel

LOG_NEGLIGIBLE = -45.0  # log of p (1 + d^2) below which a component is left alone
# log(1 + y) <= SLOPE y + INTERCEPT, its tangent at 1 + y = 8
SLOPE = 1.0 / 8.0
INTERCEPT = np.log(8.0) - 7.0 / 8.0
FAINT = 1e-3  # a count below this can be changed by a posterior that changes nothing else


@inner
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

    Reads the upper triangle of Lambda. Fills also the roots of its diagonal; returns m' Lambda m and sum root |m|.
    """
    D = mean.shape[0]
    product = np.zeros(D)
    f = 0
    for a in range(D):
        row = precision[a, a:]
        target = quadratic[f : f + D - a]
        value = row[0] * mean[a]
        target[0] = row[0]
        for k in range(1, D - a):
            target[k] = 2.0 * row[k]
            value += row[k] * mean[a + k]
            product[a + k] += row[k] * mean[a]
        product[a] += value
        f += D - a
    constant, reach = 0.0, 0.0
    for a in range(D):
        linear[a] = -2.0 * product[a]
        constant += product[a] * mean[a]
        root[a] = np.sqrt(precision[a, a])
        reach += root[a] * abs(mean[a])
    return constant, reach


@inner
def least_distance(lower, shrink):
    """Smallest d^2 that a bound and what has happened since leave possible."""
    return max(lower * shrink - 1.0, 0.0)


@inner
def may_matter(floor, nearest, height, likely, count):
    """Whether a component at no less than `floor` may be the nearest, or be changed by the row.

    It is not changed when log(p (1 + d^2)) <= height - d^2/2 + SLOPE d^2 + INTERCEPT - likely < LOG_NEGLIGIBLE, with
    `likely` a lower bound on the log density less the log of the row's weight.
    """
    return floor < nearest or height - (0.5 - SLOPE) * floor + INTERCEPT - likely >= LOG_NEGLIGIBLE or count < FAINT


@inner
def most_likely(lower, shrink, height):
    """The component whose log joint density may be the highest."""
    best, top = 0, -np.inf
    for j in range(lower.shape[0]):
        value = height[j] - 0.5 * least_distance(lower[j], shrink[j])
        if value > top:
            best, top = j, value
    return best


@inner
def evaluate(x, j, means, precisions, log_dets, counts, height, E, G, d2, log_joint):
    """Distance and log joint density of one row to one component."""
    d2[j] = complete_distance(x, j, means, precisions, E, G)
    height[j] = log_height(counts[j], log_dets[j], x.shape[0])
    log_joint[j] = height[j] - 0.5 * d2[j]
    return d2[j]


@inner
def measure_near(
    x, weight, lower, shrink, height, means, precisions, log_dets, counts, n, E, G, d2, log_joint
):  # fmt: skip
    """Distances and log joint densities of a complete row to the components that may matter.

    The others have d^2 = 0 and no density; components without a bound are always evaluated. Returns the smallest
    distance and the number of evaluations.
    """
    K = lower.shape[0]
    best = most_likely(lower, shrink, height)
    nearest = evaluate(x, best, means, precisions, log_dets, counts, height, E, G, d2, log_joint)
    likely = log_joint[best] - np.log(weight)
    evaluations = 1
    for j in range(n):
        if j == best:
            continue
        floor = least_distance(lower[j], shrink[j]) if j < K else 0.0
        if may_matter(floor, nearest, height[j], likely, counts[j]):
            value = evaluate(x, j, means, precisions, log_dets, counts, height, E, G, d2, log_joint)
            if not value >= nearest:
                nearest = value
            evaluations += 1
        else:
            d2[j] = 0.0
            log_joint[j] = -np.inf
    return nearest, evaluations
