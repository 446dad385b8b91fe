"""Moves of the structure search, judged by the rows that they touch."""

import math

import numpy as np

from everlearn.linalg.compile import inner, kernel
from everlearn.mixture.kernels.distances import LANES, joints_of_eight, room_for
from everlearn.mixture.kernels.em import (
    ALPHA,
    SMALL,
    TINY,
    Parts,
    Rows,
    em,
    gaussians_of,
    joint_without,
    log_marginals,
    moments_of,
)


@inner
def less_log(r):
    """-r log r, which is zero at zero."""
    return -r * math.log(r) if r > 1e-12 else 0.0


@kernel
def entropies(rows, R):
    """Entropy that each component's responsibilities give to the rows, (K,)."""
    out = np.zeros(R.shape[1])
    for t in range(R.shape[0]):
        for k in range(R.shape[1]):
            if R[t, k] > 1e-12:
                out[k] += rows.weights[t] * less_log(R[t, k])
    return out


@kernel
def joint_entropies(rows, R, pairs):
    """The same for the sum of two components, for each pair."""
    out = np.zeros(len(pairs))
    for p in range(len(pairs)):
        i, j = pairs[p]
        for t in range(R.shape[0]):
            if R[t, i] + R[t, j] > 1e-12:
                out[p] += rows.weights[t] * less_log(R[t, i] + R[t, j])
    return out


@kernel
def evidence_of(rows, R, moments, shape, background):
    """Lower bound of the log-evidence for any R: marginal likelihoods, Dirichlet-multinomial and entropy of R."""
    K = len(moments.counts)
    value = math.lgamma(K * ALPHA) - math.lgamma(K * ALPHA + np.sum(moments.counts)) + np.sum(entropies(rows, R))
    own = log_marginals(moments, shape, background)
    for k in range(K):
        value += own[k] + math.lgamma(ALPHA + moments.counts[k]) - math.lgamma(ALPHA)
    return value


@kernel
def evidence_after_em(rows, R, shape, background, steps, tolerance, least):
    """Evidence after EM steps, which change R in place; -inf if a component keeps fewer rows than `least`."""
    moments = em(rows, R, shape, steps, tolerance)
    if np.min(moments.counts) < least:
        return -np.inf
    return evidence_of(rows, R, moments, shape, background)


@kernel
def densities_left_out(rows, R, shape):
    """Summed densities of components for each row once it is left out of them, relative to exp(`rows.background`)."""
    moments = moments_of(rows, R)
    parts, room = Parts(moments, gaussians_of(moments, shape), shape), room_for(R.shape[1], rows.Z.shape[1])
    out = np.zeros(len(rows.Z))
    for first in range(0, len(rows.Z), LANES):
        joints_of_eight(rows, parts.gaussians, R, first, room)
        for t in range(first, min(first + LANES, len(rows.Z))):
            for k in range(R.shape[1]):
                joint, r = room.joints[k, t - first], min(rows.weights[t], 1.0) * R[t, k]
                if r >= 1e-9:
                    joint = joint_without(r, joint, rows.Z[t], k, parts)
                out[t] += math.exp(min(joint - rows.background[t], 700.0))
    return out


@kernel
def change_left_out(rows, old, new, left_out, shape):
    """Change of the leave-one-out log-likelihood when components with responsibilities `old` become those of `new`.

    `left_out` is the log-density of each row that was left out. The rest of the mixture stays as it is: only the rows
    of the components that change are looked at.
    """
    index = np.flatnonzero(np.sum(old, axis=1) > SMALL)
    total = np.sum(rows.weights)
    joint = np.empty(len(index))
    for a in range(len(index)):
        joint[a] = left_out[index[a]] + math.log(max(total - min(rows.weights[index[a]], 1.0), 1e-6))
    some = Rows(rows.Z[index], rows.weights[index], joint)
    before, after = densities_left_out(some, old[index], shape), densities_left_out(some, new[index], shape)
    change = 0.0
    for a in range(len(index)):
        change += some.weights[a] * math.log(max(1.0 - before[a], 0.0) + after[a] + TINY)
    return change
