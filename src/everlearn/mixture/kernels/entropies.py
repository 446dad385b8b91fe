"""Entropies of responsibilities, which moves of the structure search change."""

import math

from everlearn.linalg.arrays import zero_vector
from everlearn.linalg.compile import inner, kernel


@inner
def less_log(r):
    """-r log r, which is zero at zero."""
    return -r * math.log(r) if r > 1e-12 else 0.0


@kernel
def entropies(rows, R):
    """Entropy that each component's responsibilities give to the rows, (K,)."""
    out = zero_vector(R.shape[1])
    for t in range(R.shape[0]):
        for k in range(R.shape[1]):
            if R[t, k] > 1e-12:
                out[k] += rows.weights[t] * less_log(R[t, k])
    return out


@kernel
def joint_entropies(rows, R, pairs):
    """The same for the sum of two components, for each pair."""
    out = zero_vector(len(pairs))
    for p in range(len(pairs)):
        i, j = pairs[p]
        for t in range(R.shape[0]):
            if R[t, i] + R[t, j] > 1e-12:
                out[p] += rows.weights[t] * less_log(R[t, i] + R[t, j])
    return out
