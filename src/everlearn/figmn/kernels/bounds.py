"""Bounds that show which components are too far from a row to matter to it.

lower[j] <= 1 + d^2 holds for component j as it was when `everlearn.figmn.bounds` made the bounds. An update with gain w
at distance d shrinks no 1 + d^2 by more than the factor 1 + w d^2; `shrink` is the product of these factors, inverted.
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.figmn.kernels.responsibilities import complete_distance, log_height
from everlearn.linalg.blas import add_product, multiply_by_upper
from everlearn.linalg.compile import inner, kernel

TERMS = 1024  # products in float32 sum so many terms at most; their results are added in float64
ROWS = 256  # rows that are multiplied with one matrix at a time
UNIT = 2.0**-24
LARGEST = 1e30  # beyond this size of the terms float32 may overflow, and nothing is known
LOG_NEGLIGIBLE = -45.0  # log of p (1 + d^2) below which a component is left alone
# log(1 + y) <= SLOPE y + INTERCEPT, its tangent at 1 + y = 8
SLOPE = 1.0 / 8.0
INTERCEPT = np.log(8.0) - 7.0 / 8.0
FAINT = 1e-3  # a count below this can be changed by a posterior that changes nothing else
# What a block may do before its choice of components fails: shrink 1 + d^2 to this share, move the nearest component
# away by this factor, lower the log density by so many nats.
SHRINK, AWAY, FADE = 0.4, 2.0, 10.0


class Coefficients(NamedTuple):
    """Of the squared distances to each component, in float32 where there are many."""

    quadratic: Any  # (capacity, D (D + 1)/2)
    linear: Any  # (capacity, D)
    root: Any  # (capacity, D)
    constant: Any  # (capacity,)
    reach: Any  # (capacity,)


class Terms(NamedTuple):
    """Coefficients of d^2 of one component in the products z_a z_b (a <= b) and in z, and bounds on their size."""

    quadratic: Any  # flat
    linear: Any  # (D,)
    root: Any  # (D,), roots of the diagonal of the precision
    product: Any  # (D,), scratch: Lambda m


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
def sum_terms(Z, linear, quadratic, d2):
    """Add the terms that depend on the rows to the squared distances."""
    total = quadratic.shape[1]
    features, sums = np.empty((Z.shape[0], min(TERMS, total)), np.float32), np.zeros(d2.shape, np.float32)
    add_product(1.0, Z, linear, sums)
    d2 += sums
    a, b = 0, 0
    for f in range(0, total, TERMS):
        part = features[:, : total - f]
        a, b = fill_features(Z, a, b, part)
        sums[:] = 0.0
        add_product(1.0, part, quadratic[:, f : f + part.shape[1]], sums)
        d2 += sums


@kernel
def squared_distances(X, n, centre, coefficients, d2, error):
    """Squared distances of rows to the first n components, and bounds on their errors."""
    rows, D = X.shape
    quadratic, linear, root = coefficients.quadratic, coefficients.linear, coefficients.root
    Z, sizes = X - centre, np.empty((rows, n))
    for t in range(rows):
        for j in range(n):
            d2[t, j] = coefficients.constant[j]
            sizes[t, j] = coefficients.reach[j]
    sum_terms(Z.astype(np.float32), linear[:n], quadratic[:n], d2)
    add_product(1.0, np.abs(Z), root[:n], sizes)
    terms = max(min(TERMS, quadratic.shape[1]), D)
    for t in range(rows):
        for j in range(n):
            error[t, j] = error_of_sum(terms, sizes[t, j])


@inner
def error_of_sum(terms, root_of_size):
    """Bound on the error of a sum of so many terms in float32, with sizes that sum to no more than the square."""
    # The sizes of all terms sum to at most q^2, q = sum r_a (|z_a| + |m_a|), by |Lambda_ab| <= r_a r_b.
    size = root_of_size * root_of_size
    return (terms + 8) * UNIT * size if size < LARGEST else np.inf


@inner
def finish_distances(Z, product, terms, constant, reach, d2, error):
    """d^2 = z' V z + linear' z + constant of rows z with the product V'z, and bounds on the errors."""
    n, D = Z.shape
    for t in range(n):
        value, size = constant, reach
        for a in range(D):
            z = np.float64(Z[t, a])
            value += z * (np.float64(product[t, a]) + terms.linear[a])
            size += abs(z) * terms.root[a]
        d2[t], error[t] = value, error_of_sum(D, size) if abs(value) < np.inf else np.inf


@kernel
def squared_distances_of_one(Z, mean, precision, centre, d2, error):
    """Squared distances of rows x = centre + z to one component, and bounds on their errors."""
    n, D = Z.shape
    V = np.empty((D, D), np.float32)
    terms = Terms(V.ravel(), np.empty(D, np.float32), np.empty(D), np.empty(D))
    constant, reach = describe_one(precision, mean, centre, terms, D + 1)
    for t in range(0, n, ROWS):
        some = Z[t : t + ROWS]
        VZ = some.copy()
        multiply_by_upper(VZ, V)
        finish_distances(some, VZ, terms, constant, reach, d2[t : t + ROWS], error[t : t + ROWS])


@inner
def describe_one(precision, mean, centre, terms, stride):
    """Coefficients of d^2 = z' Lambda z - 2 (Lambda m)' z + m' Lambda m in the products z_a z_b, a <= b, and in z.

    Reads the upper triangle of Lambda. Fills also the roots of its diagonal; returns m' Lambda m and sum root |m|.
    The products of column a follow each other; there are `stride` numbers from one z_a^2 to the next, or with zero none
    that are not used.
    """
    D, product = mean.shape[0], terms.product
    for a in range(D):
        product[a] = 0.0
    f = 0
    for a in range(D):
        row, target = precision[a, a:], terms.quadratic[f : f + D - a]
        m, value = mean[a] - centre[a], 0.0
        # Each pair a < b stands once for Lambda_ab and Lambda_ba: doubled, except on the diagonal below.
        for k in range(D - a):
            target[k] = 2.0 * row[k]
            value += row[k] * (mean[a + k] - centre[a + k])
            product[a + k] += row[k] * m
        target[0] = row[0]
        product[a] += value - row[0] * m
        f += D - a if stride == 0 else stride
    constant, reach = 0.0, 0.0
    for a in range(D):
        m = mean[a] - centre[a]
        terms.linear[a] = -2.0 * product[a]
        constant += product[a] * m
        terms.root[a] = np.sqrt(precision[a, a])
        reach += terms.root[a] * abs(m)
    return constant, reach


@kernel
def describe(precisions, means, which, centre, coefficients):
    """Describe the components in `which`."""
    product = np.empty(means.shape[1])
    for j in which:
        terms = Terms(coefficients.quadratic[j], coefficients.linear[j], coefficients.root[j], product)
        coefficients.constant[j], coefficients.reach[j] = describe_one(precisions[j], means[j], centre, terms, 0)


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


@kernel
def choose_near(d2, error, height, counts, weights, near):
    """Mark the pairs of rows and components that may matter, with a margin; turns d2 into lower bounds of 1 + d^2."""
    rows, n = d2.shape
    for t in range(rows):
        nearest, likely = np.inf, -np.inf
        for j in range(n):
            # Upper bounds of distances bound the nearest one from above and the density
            # from below, which is the safe side for both.
            upper = d2[t, j] + error[t, j]
            if upper < np.inf:
                nearest = min(nearest, upper)
                likely = max(likely, height[j] - 0.5 * upper)
        likely -= np.log(weights[t]) + FADE
        for j in range(n):
            floor = d2[t, j] - error[t, j]
            d2[t, j] = 1.0 + floor if floor > 0.0 else 1.0
            floor = least_distance(d2[t, j], SHRINK)
            near[t, j] = may_matter(floor, AWAY * nearest, height[j], likely, counts[j])


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
def evaluate(x, j, state, scratch):
    """Distance and log joint density of one row to one component."""
    d2 = complete_distance(x, j, state, scratch)
    height = log_height(state.counts[j], state.log_dets[j], x.shape[0])
    scratch.d2[j], scratch.height[j], scratch.log_joint[j] = d2, height, height - 0.5 * d2
    return d2


@inner
def measure_screened(x, weight, lower, state, n, scratch):
    """Distances and log joint densities of a complete row to the components that may matter.

    The others have d^2 = 0 and no density; components without a bound are always evaluated. Returns the smallest
    distance and the number of evaluations.
    """
    K, shrink, height = lower.shape[0], scratch.shrink, scratch.height
    # The likeliest component is evaluated first: its joint density is a lower bound of the row's
    # density, by which the others can be dismissed.
    best = most_likely(lower, shrink, height)
    nearest = evaluate(x, best, state, scratch)
    likely = scratch.log_joint[best] - np.log(weight)
    evaluations = 1
    for j in range(n):
        if j == best:
            continue
        floor = least_distance(lower[j], shrink[j]) if j < K else 0.0
        if may_matter(floor, nearest, height[j], likely, state.counts[j]):
            value = evaluate(x, j, state, scratch)
            if not value >= nearest:
                nearest = value
            evaluations += 1
        else:
            # Zero and not infinity: it is multiplied by a posterior of zero later, and 0 times infinity is NaN.
            scratch.d2[j] = 0.0
            scratch.log_joint[j] = -np.inf
    return nearest, evaluations
