"""The steps of a fit, row by row where columns are few (`em`), by matrix products where they are many (`wide`).

Where components are many and columns few, steps after the first know the components near each row only (`near`).
"""

import math

import numpy as np
from scipy.special import gammaln

from everlearn.mixture.kernels import em as few
from everlearn.mixture.kernels import near as sparse
from everlearn.mixture.kernels import wide as many
from everlearn.mixture.kernels.em import ALPHA, SMALL, TINY
from everlearn.mixture.kernels.entropies import entropies

# Columns from which on matrix products pay (benchmarks/mixture.py).
MANY_COLUMNS = 65
# Components from which on, and the share of all pairs of row and component up to which, sparse steps pay.
MANY_COMPONENTS, SPARSE = 8, 0.4
# Where no marks are wanted.
UNMARKED = np.empty((0, 0))


def _steps(D, diagonal=False):
    return many if D >= MANY_COLUMNS and not diagonal else few


def moments_of(rows, R):
    """Weighted counts, means and scatter matrices of the components with responsibilities R."""
    return _steps(rows.Z.shape[1]).moments_of(rows, R)


def gaussians_of(moments, shape):
    """Posterior-mean Gaussians of the components."""
    return _steps(moments.means.shape[1]).gaussians_of(moments, shape)


def expect(rows, gaussians, R, log_joints, start, stop, marks=UNMARKED):
    """Responsibilities of some rows into R and their unnormalised log-density into `log_joints`.

    `marks`, of the shape of R, says which components are near.
    """
    if _steps(rows.Z.shape[1]) is many:
        many.expect(rows, gaussians, R, log_joints, start, stop)
    else:
        few.expect(rows, gaussians, R, log_joints, start, stop, marks)


def may_be_sparse(D, K):
    """Whether so many components in so many columns may be worth marks."""
    return K >= MANY_COMPONENTS and _steps(D) is few


def near_of(marks, R):
    """The marked responsibilities as a sparse matrix, or None without marks and with too many for that to pay."""
    if marks.size == 0 or marks.sum() > SPARSE * marks.size:
        return None
    bounds, own, _ = few.rows_by_component(np.ones(len(marks)), marks)
    return sparse.Near(bounds, own, np.empty(len(own)), R[own, np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))])


def leave_one_out(rows, R, moments, gaussians, shape, out, start, marks=UNMARKED, made=1.0):
    """Log-density of some rows from `start` on, each judged by components without it, given R.

    `made` is the part of the common shape that is made of rows, which a row takes along.
    """
    if _steps(rows.Z.shape[1], shape.diagonal) is many:
        many.leave_one_out(rows, R, moments, gaussians, shape, out, start, made)
    else:
        few.leave_one_out(rows, R, few.parts_of(rows, moments, gaussians, shape, made), out, start, marks)


def log_marginals(moments, shape, background):
    """Log marginal likelihood of the rows of each component, given R."""
    return _steps(moments.means.shape[1], shape.diagonal).log_marginals(moments, shape, background)


# -- what is made of these steps ---------------------------------------------------------------------
# Not compiled: as a part of them each step would be compiled once more, for seconds; a call takes microseconds.


def evidence_of(rows, R, moments, shape, background):
    """Lower bound of the log-evidence for any R: marginal likelihoods, Dirichlet-multinomial and entropy of R."""
    counts = moments.counts
    K, n = len(counts), counts.sum()
    labels = gammaln(ALPHA + counts).sum() - K * math.lgamma(ALPHA) + math.lgamma(K * ALPHA)
    labels -= math.lgamma(K * ALPHA + n)
    return float(log_marginals(moments, shape, background).sum() + labels + entropies(rows, R).sum())


def change_left_out(rows, old, new, left_out, shape):
    """Change of the leave-one-out log-likelihood when components with responsibilities `old` become those of `new`.

    `left_out` is the log-density of each row that was left out. The rest of the mixture stays as it is: only the rows
    of the components that change are looked at.
    """
    index = np.flatnonzero(old.sum(axis=1) > SMALL)
    some = few.Rows(rows.Z[index], rows.weights[index], np.full(len(index), -np.inf), rows.total)
    density = []
    for R in (old[index], new[index]):
        moments, out = moments_of(some, R), np.empty(len(index))
        leave_one_out(some, R, moments, gaussians_of(moments, shape), shape, out, 0)
        # As shares of each row's density: what the changed components gave before
        # is taken off, what they give now is added.
        density.append(np.exp(np.minimum(out - left_out[index], 700.0)))
    return float(some.weights @ np.log(np.maximum(1.0 - density[0], 0.0) + density[1] + TINY))
