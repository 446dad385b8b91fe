"""Where no rows are kept: whether the rows of a component are more than one Gaussian, seen along one axis of it.

Each component learns a mixture in one column: its rows along one of its principal axes, in units of the standard
deviation. If the likelihood of new rows says that they are more than one Gaussian, a search divides it
(`keep.by_moments`); if it does not, the next axis is tried.
"""

import numpy as np

from everlearn.linalg.arrays import empty_indices, empty_matrix, empty_vector, zero_matrix
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import cholesky_of_block, copy_vector, divide_columns, dot, total

# A component begins when it has this many rows, and D more: before, its factors still move.
FIRST_ROWS = 10.0
# Columns up to which axes are principal ones: in more, eigenvectors would cost more than all else, and they are random.
PRINCIPAL = 64
# Rows after which an axis that has shown nothing is left; when all have been tried, more.
PATIENCE, LITTLE = 150.0, 1.0
# A coordinate beyond this many standard deviations counts as lying there.
FARTHEST = 4.0
# Means of the Gaussians along the axis to begin with, and their variance; each begins with the weight of FIRST rows.
SEEDS, SPREAD, FIRST = np.array([-0.8, 0.8]), 0.5, 2.0
# Rows along the axis before evidence is counted.
BURN_IN = 40.0
# Nats that one row may count for: outliers are no evidence.
MOST_EVIDENCE = 4.0
# Exponent with which rows along the axis fade: the first ones were learned when the mixture knew little.
FADING = 0.5
# Least variance along the axis, in that of the component.
LEAST = 1e-4
# A row with a smaller share in a component is not shown to it.
SHARE = 0.05


@kernel
def learn_projection(k, r, x, components, u, normals):
    """Show a row with the posterior probability r to the axis of component k, in place.

    ``progress[k]`` is the evidence for more than one Gaussian, the rows along this axis, and the axes that were left.
    `u` is room, `normals` are for a random axis.
    """
    c, D = components, x.shape[0]
    if c.counts[k] < FIRST_ROWS + D:
        return
    axis, along, progress = c.axes[k], c.along[k], c.progress[k]
    if progress[1] > PATIENCE * (1.0 + progress[2] // D) and progress[0] < LITTLE:
        progress[0], progress[1] = 0.0, 0.0
        progress[2] += 1.0
    if progress[1] == 0.0:
        choose_axis(c.factors[k], int(progress[2]), normals, axis)
        begin_along(along)
    whiten(c.factors[k], c.means[k], x, u)
    s = min(max(dot(axis, u, D), -FARTHEST), FARTHEST)
    progress[1] += r
    # Page's cumulative sum: evidence against more than one Gaussian is not saved up.
    progress[0] = max(progress[0] + r * learn_along(s, r, along, progress[1]), 0.0)


@kernel
def choose_axis(factor, number, normals, axis):
    """The principal axis of this number, that of most variance first, in whitened coordinates; then D random ones.

    For an eigenvector v of the precision F'F, v'(x - mean) is proportional to (F v)'u with u = F (x - mean).
    """
    D = len(axis)
    copy_vector(normals, axis)
    number %= 2 * D
    if D <= PRINCIPAL and number < D:
        precision = zero_matrix(D, D)
        for i in range(D):
            for a in range(i + 1):
                for b in range(i + 1):
                    precision[a, b] += factor[i, a] * factor[i, b]
        _, vectors = np.linalg.eigh(precision)  # variances fall
        for i in range(D):
            axis[i] = 0.0
            for a in range(i + 1):
                axis[i] += factor[i, a] * vectors[a, number]
    length = 0.0
    for i in range(D):
        length += axis[i] * axis[i]
    for i in range(D):
        axis[i] /= np.sqrt(length)


@inner
def begin_along(along):
    """Gaussians along the axis that know nothing, and the last: a single one, which they must beat."""
    Q = len(along) - 1
    for q in range(Q):
        along[q, 0], along[q, 1], along[q, 2] = FIRST, SEEDS[q], FIRST * SPREAD
    along[Q, 0], along[Q, 1], along[Q, 2] = FIRST, 0.0, FIRST


@kernel
def learn_along(s, r, along, rows):
    """Learn a coordinate along the axis; returns its log-likelihood ratio before that, zero during the burn-in.

    Both sides are learned on-line, so that neither knows more: where one Gaussian is the truth the cumulative sum of
    the ratios (Page, 1954) exceeds h with a chance of about exp(-h).
    """
    Q = len(along) - 1
    joint = empty_vector(Q + 1)
    rows_along = 0.0
    for q in range(Q):
        rows_along += along[q, 0]
    for q in range(Q + 1):
        n = along[q, 0]
        # Predictive: a mean of n rows is uncertain by 1/n of the variance.
        variance = max(along[q, 2] / n, LEAST) * (1.0 + 1.0 / n)
        d = s - along[q, 1]
        joint[q] = np.exp(-0.5 * d * d / variance) / np.sqrt(variance) * (n / rows_along if q < Q else 1.0) + 1e-12
    mixture = total(joint, Q)
    ratio = min(max(np.log(mixture / joint[Q]), -MOST_EVIDENCE), MOST_EVIDENCE)
    joint[Q] = mixture
    kept = 1.0 - FADING * min(r / rows, 1.0)
    for q in range(Q + 1):
        share = r * joint[q] / mixture
        along[q, 0] = kept * along[q, 0] + share
        d = s - along[q, 1]
        along[q, 1] += d * share / along[q, 0]
        along[q, 2] = kept * along[q, 2] + share * d * (s - along[q, 1])
    return ratio if rows > BURN_IN else 0.0


@inner
def whiten(factor, mean, x, u):
    """u = factor (x - mean), for a lower triangle."""
    for i in range(x.shape[0]):
        u[i] = 0.0
        for j in range(i + 1):
            u[i] += factor[i, j] * (x[j] - mean[j])


@kernel
def draw_gaps(x, filled, rest, normals, out):
    """A draw of the gaps of x, given their conditional means in `filled` and their conditional covariance `rest`."""
    seen, gaps = empty_indices(len(x)), empty_indices(len(x))
    h = len(x) - divide_columns(x, seen, gaps)
    copy_vector(filled, out)
    L = empty_matrix(h, h)
    if np.isfinite(cholesky_of_block(rest, gaps[:h], 0, L)):
        for a in range(h):
            out[gaps[a]] += dot(L[a], normals, a + 1)
