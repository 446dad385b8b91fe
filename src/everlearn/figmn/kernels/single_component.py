"""The recursion of the block algorithm for a component that is alone, around a factorisation that is done elsewhere.

Every row belongs to it whole, so that the gains w and the shares a of `figmn.kernels.blocks` follow from the weights
alone, and R is the Cholesky factor of P + diag(a/w). What rows were to the component is in the diagonal of Q.
"""

import numpy as np

from everlearn.figmn.kernels.blocks import LEAST_SHARE, LOST_DIGITS, ROUNDING, log1p
from everlearn.figmn.kernels.responsibilities import log_height
from everlearn.figmn.kernels.rows import FLOOR, UNSAFE_STRETCH, gain
from everlearn.linalg.compile import kernel


@kernel
def foresee(weights, count, forgetting, root_unit):
    """Count, gain w and share a after each row, until too little of the starting precision would be left."""
    b = weights.shape[0]
    counts, gains, shares = np.empty(b), np.empty(b), np.empty(b)
    share = 1.0
    for t in range(b):
        w = gain(count, weights[t], forgetting)
        count = forgetting * count + weights[t]
        share *= 1.0 - w
        if share < LEAST_SHARE * root_unit:
            return counts[:t], gains[:t], shares[:t]
        counts[t], gains[t], shares[t] = count, w, share
    return counts, gains, shares


@kernel
def judge(origin, rest, gains, shares, D, threshold, thinness, root_unit, log_det, log_density, distance):
    """Find how many rows can be trusted to the block, from the diagonals of P and of Q, and what they were.

    Returns their number and the log-determinant after them. The row after the last is novel, or needs care.
    """
    before = 1.0
    for t in range(rest.shape[0]):
        value, w = rest[t] / before - 1.0, gains[t]
        d2 = max(value, 0.0)
        trusted = value >= -ROUNDING * root_unit and rest[t] >= LOST_DIGITS * root_unit * origin[t]
        safe = w * d2 <= UNSAFE_STRETCH and thinness * FLOOR <= shares[t]
        if not trusted or not safe or d2 >= threshold:
            return t, log_det
        log_density[t] = log_height(1.0, log_det, D) - 0.5 * d2
        distance[t] = d2
        log_det += D * log1p(-w) + log1p(w * d2)
        before = shares[t]
    return rest.shape[0], log_det
