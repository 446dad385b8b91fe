"""Steps of EM in which a row knows only the components near it: a sparse matrix of responsibilities.

Of 50 components hardly five are near a row. One step with all of them says which; in those that follow the others are
left out, which makes a step on 50 groups in 16 columns six times as fast (benchmarks/mixture_speed.py).
"""

import math
from typing import NamedTuple

import numpy as np

from everlearn.linalg.arrays import empty_indices, empty_matrix, empty_vector, zero_matrix
from everlearn.linalg.compile import inlined, kernel
from everlearn.mixture.kernels.distances import LANES, NEGLIGIBLE, distances_of_eight
from everlearn.mixture.kernels.em import OWN, SMALL, joint_without, moments_by_component


class Near(NamedTuple):
    """Entries of the sparse matrix by component: those of component k are from bounds[k] on."""

    bounds: np.ndarray  # (K + 1,)
    rows: np.ndarray  # (E,), the row of each entry
    joints: np.ndarray  # (E,), log joint of row and component
    shares: np.ndarray  # (E,), responsibility


def inherit(near, parents):
    """Entries of new components: each is near the rows that one of its parents was near; all shares are zero."""
    if near is None:
        return None
    own = [near.rows[near.bounds[k] : near.bounds[k + 1]] for k in range(len(near.bounds) - 1)]
    each = [own[of[0]] if len(of) == 1 else np.unique(np.concatenate([own[k] for k in of])) for of in parents]
    bounds = np.concatenate([[0], np.cumsum([len(rows) for rows in each])])
    return Near(bounds, np.concatenate(each), np.empty(bounds[-1]), np.zeros(bounds[-1]))


class Gathered(NamedTuple):
    """Eight rows, and their distances to one component."""

    X: np.ndarray  # (D, 8)
    E: np.ndarray  # (D, 8), room
    distances: np.ndarray  # (1, 8)


@kernel
def take_joints(rows, gaussians, near, first, last):
    """Log joints of the entries of components `first` to `last` - 1."""
    D = rows.Z.shape[1]
    block = Gathered(empty_matrix(D, LANES), empty_matrix(D, LANES), empty_matrix(1, LANES))
    for k in range(first, last):
        height, end = gaussians.heights[k], near.bounds[k + 1]
        mean, factor = gaussians.means[k : k + 1], gaussians.factors[k : k + 1]
        for start in range(near.bounds[k], end, LANES):
            gather_eight(rows.Z, near.rows, start, end, block.X)
            distances_of_eight(mean, factor, 0, block)
            for a in range(start, min(start + LANES, end)):
                near.joints[a] = height - 0.5 * block.distances[0, a - start]


@inlined
def gather_eight(Z, own, start, end, X):
    """Rows of entries start to start + 7 into the columns of X, (D, 8); the last one stands for those beyond `end`."""
    for lane in range(LANES):
        row = Z[own[min(start + lane, end - 1)]]
        for i in range(Z.shape[1]):
            X[i, lane] = row[i]


@kernel
def share_rows(rows, near, log_joints):
    """`em.share_row` of every row, from the log joints of its entries; `log_joints` becomes their log-density."""
    top, own = best_of_rows(rows, near), empty_vector(len(rows.Z))
    for t in range(len(top)):
        behind, high = rows.background[t], top[t]
        top[t] = max(high, behind)
        log_joints[t] = math.exp(behind - top[t])
        own[t] = log_joints[t] if behind > high else 0.0
    for a in range(len(near.rows)):
        t = near.rows[a]
        v = near.joints[a] - top[t]
        near.shares[a] = 0.0
        if v > -NEGLIGIBLE:
            near.shares[a] = math.exp(v)
            log_joints[t] += near.shares[a]
            own[t] += near.shares[a]
    for a in range(len(near.rows)):
        near.shares[a] /= own[near.rows[a]]
    for t in range(len(top)):
        log_joints[t] = top[t] + math.log(log_joints[t])


@kernel
def best_of_rows(rows, near):
    """Largest log joint of each row."""
    top = empty_vector(len(rows.Z))
    top[:] = -np.inf
    for a in range(len(near.rows)):
        t = near.rows[a]
        top[t] = max(top[t], near.joints[a])
    return top


@kernel
def moments_of(rows, near):
    """`em.moments_of` the shares."""
    K, n = len(near.bounds) - 1, 0
    bounds, own, shares = empty_indices(K + 1), empty_indices(len(near.rows)), empty_vector(len(near.rows))
    for k in range(K):
        bounds[k] = n
        for a in range(near.bounds[k], near.bounds[k + 1]):
            share = rows.weights[near.rows[a]] * near.shares[a]
            if share > SMALL:
                own[n], shares[n] = near.rows[a], share
                n += 1
    bounds[K] = n
    return moments_by_component(rows.Z, bounds, own, shares)


@kernel
def leave_one_out(rows, near, parts, out):
    """`em.leave_one_out` of every row, from the log joints of its entries, which become those without the row."""
    K, top = len(near.bounds) - 1, empty_vector(len(rows.Z))
    top[:] = rows.background
    for k in range(K):
        for a in range(near.bounds[k], near.bounds[k + 1]):
            t = near.rows[a]
            w = rows.weights[t]
            if w * near.shares[a] >= OWN:
                near.joints[a] = joint_without(w * near.shares[a], w, near.joints[a], rows.Z[t], k, parts)
                top[t] = max(top[t], near.joints[a])
    least = top - NEGLIGIBLE
    for k in range(K):
        for a in range(near.bounds[k], near.bounds[k + 1]):
            t = near.rows[a]
            w = rows.weights[t]
            if w * near.shares[a] < OWN and near.joints[a] > least[t]:
                near.joints[a] = joint_without(0.0, w, near.joints[a], rows.Z[t], k, parts)
                top[t] = max(top[t], near.joints[a])
    for t in range(len(top)):
        # The background is not made of single rows: it stays as it is.
        out[t] = math.exp(rows.background[t] - top[t]) if top[t] > -np.inf else 1.0
    for a in range(len(near.rows)):
        t = near.rows[a]
        if near.joints[a] > top[t] - NEGLIGIBLE:
            out[t] += math.exp(near.joints[a] - top[t])
    for t in range(len(top)):
        out[t] = top[t] + math.log(out[t]) - math.log(max(rows.total - rows.weights[t], 1e-6))


@kernel
def dense(near, m):
    """The responsibilities as a matrix, (m, K)."""
    R = zero_matrix(m, len(near.bounds) - 1)
    for k in range(R.shape[1]):
        for a in range(near.bounds[k], near.bounds[k + 1]):
            R[near.rows[a], k] = near.shares[a]
    return R
