"""EM on a sample of rows, judged leave-one-out, in slices: the fits that a structure search is made of."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from everlearn.mixture.keep.evidence import Fit, common_shape, gaussians, left_out_gaussians, made_of_rows
from everlearn.mixture.keep.problem import Problem
from everlearn.mixture.keep.world import ROWS_A_COLUMN
from everlearn.mixture.kernels import fitting as kernels
from everlearn.mixture.kernels import near as sparse
from everlearn.mixture.kernels.em import Gaussians, Moments, Rows, parts_of
from everlearn.mixture.kernels.near import Near
from everlearn.mixture.state import Array, Shape

Slices = Generator[None, None, Fit]

# EM stops below this gain in nats a row.
TOLERANCE = 5e-4
# Nats a row that the second half of the EM steps of a trial is trusted to gain, at most.
HALF_GAIN = 0.1
# Components with fewer rows are dropped.
MIN_COUNT = 1.2
# Rows that the common shape counts for to begin with.
FIRST_TAU = 2.0
# Rows that the common shape counts for, at most; and those of a single component, for each row of it: its correlations
# then keep a ninth, which columns that are independent lose nearly nothing by.
MOST_TAU, MOST_TAU_A_ROW = 128.0, 16.0
# Rows that the shape of several components counts for, at most, with a row for each pair of columns: groups of one
# shape and few rows a column then have it together, as in linear discriminant analysis.
MOST_TAU_TOGETHER = 4096.0
# Multiplications of an E-step's slice: about 0.3 ms.
SLICE = 1_500_000


class Soft(NamedTuple):
    """Responsibilities on their way through EM, and the moments that they give."""

    R: Array  # (m, K); out of date where there is a sparse matrix
    near: Near | None
    moments: Moments

    def dense(self) -> Array:
        """The responsibilities of now, (m, K)."""
        return self.R if self.near is None else sparse.dense(self.near, len(self.R))  # type: ignore[no-any-return]


def _row_spans(rows: Rows, K: int) -> list[tuple[int, int]]:
    m, D = rows.Z.shape
    # Matrix products of many columns need more rows to be fast.
    step = max(32 if D < kernels.MANY_COLUMNS else 256, SLICE // (K * (D * D // 2 + 8)))
    return [(start, min(start + step, m)) for start in range(0, m, step)]


def _component_spans(near: Near, D: int) -> Iterator[tuple[int, int]]:
    """Slices of the sparse matrix: components first to last - 1."""
    bounds, room, first = near.bounds, SLICE // (D * D // 2 + 8), 0
    while first < len(bounds) - 1:
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + room, side="right")) - 1)
        yield first, last
        first = last


def expect(
    rows: Rows, moments: Moments, shape: Shape, R: Array, marks: Array = kernels.UNMARKED
) -> Generator[None, None, float]:
    """E-step into R; returns the log-likelihood."""
    known, out = gaussians(moments, shape), np.empty(len(rows.Z))
    for start, stop in _row_spans(rows, len(moments.counts)):
        kernels.expect(rows, known, R, out, start, stop, marks)
        yield
    return float(rows.weights @ out)


def _joints(rows: Rows, known: Gaussians, near: Near) -> Generator[None, None, None]:
    """Log joints of rows and the components near them."""
    for first, last in _component_spans(near, rows.Z.shape[1]):
        sparse.take_joints(rows, known, near, first, last)
        yield


def _expect_near(rows: Rows, moments: Moments, shape: Shape, near: Near) -> Generator[None, None, float]:
    """E-step into a sparse matrix; returns the log-likelihood."""
    out = np.empty(len(rows.Z))
    yield from _joints(rows, gaussians(moments, shape), near)
    sparse.share_rows(rows, near, out)
    yield
    return float(rows.weights @ out)


def leave_out(problem: Problem, R: Array, moments: Moments, shape: Shape, marks: Array) -> Generator[None, None, Array]:
    """Leave-one-out log-density of each row."""
    rows, made = problem.rows, made_of_rows(moments.counts, shape)
    known, out = left_out_gaussians(moments, shape, problem.constant), np.empty(len(rows.Z))
    for start, stop in _row_spans(rows, len(moments.counts)):
        kernels.leave_one_out(rows, R, moments, known, shape, out[start:stop], start, marks, made)
        yield
    return out


def _leave_out_near(problem: Problem, near: Near, moments: Moments, shape: Shape) -> Generator[None, None, Array]:
    """Leave-one-out log-density of each row, by the components near it."""
    rows = problem.rows
    known, out = left_out_gaussians(moments, shape, problem.constant), np.empty(len(rows.Z))
    yield from _joints(rows, known, near)
    sparse.leave_one_out(rows, near, parts_of(rows, moments, known, shape), out)
    yield
    return out


def _marks(rows: Rows, K: int) -> Array:
    """Room for marks of the components near each row, where a sparse matrix may pay."""
    m, D = rows.Z.shape
    return np.empty((m, K)) if kernels.may_be_sparse(D, K) else kernels.UNMARKED


def _em(problem: Problem, soft: Soft, steps: int, shape: Shape) -> Generator[None, None, Soft]:
    """Steps of EM until they gain little; one with all components finds those near each row for the others."""
    rows, last = problem.rows, -np.inf
    R, near, moments = soft
    R, marks = (R.copy(), _marks(rows, R.shape[1])) if near is None else (R, kernels.UNMARKED)
    for _ in range(steps):
        if near is not None:
            value = yield from _expect_near(rows, moments, shape, near)
            moments = sparse.moments_of(rows, near)
        else:
            value = yield from expect(rows, moments, shape, R, marks)
            moments = kernels.moments_of(rows, R)
            near, marks = kernels.near_of(marks, R), kernels.UNMARKED
        yield
        if value - last < TOLERANCE * len(rows.Z):
            break
        last = value
    return Soft(R, near, moments)


def least_tau(problem: Problem, K: int) -> float:
    """Least weight of the common shape; of a single component that which leave-one-out begins with.

    A few rows of one component have correlations by chance only, and far too little weight explains all rows by the
    background: from there no way leads uphill.
    """
    D = problem.rows.Z.shape[1]
    least = 2.0 * problem.varying**2 / problem.rows.weights.sum() if K == 1 else (D / 24) ** 2
    return float(min(least, MOST_TAU))


def has_few_rows(problem: Problem, K: int) -> bool:
    """Whether each of K components would have so few rows a column that the common shape decides."""
    # Variances need few: diagonal components are left as they are.
    return not problem.settings.diagonal and bool(problem.rows.weights.sum() < ROWS_A_COLUMN * problem.varying * K)


def first_tau(problem: Problem, K: int) -> float:
    """Weight of the common shape that K components begin with: more where each has few rows a column."""
    few = 0.0 if problem.settings.diagonal else K * problem.varying**2 / problem.rows.weights.sum()
    return float(min(max(FIRST_TAU, few), MOST_TAU))


def most_tau(problem: Problem, K: int) -> float:
    """Most weight of the common shape: a single component may have next to no correlations, several may share theirs.

    But where the rows are a part of the stream's: variances would be those of the part.
    """
    if problem.is_part or problem.settings.diagonal:
        return MOST_TAU
    if K == 1:
        return max(MOST_TAU, MOST_TAU_A_ROW * float(problem.rows.weights.sum()))
    return float(np.clip(problem.varying**2, MOST_TAU, MOST_TAU_TOGETHER))


def shaped(problem: Problem, moments: Moments, tau: float) -> Shape:
    """The common shape of components with these moments, which counts for tau rows, if it may for so many."""
    tau = min(tau, most_tau(problem, len(moments.counts)))
    return common_shape(moments, problem.world, problem.ridge, tau, problem.settings.diagonal)


def fitted(
    problem: Problem, R: Array, steps: int, shape: Shape, least: float = -np.inf, near: Near | None = None
) -> Slices:
    """EM from R with the common shape renewed half-way; then judged.

    In a move, which has the value `least` to beat, the shape of the other components stays until the end; and if the
    fit is so far below half-way that the other half cannot make up for it, it is left there.
    """
    tau, soft = shape.tau, Soft(R, near, kernels.moments_of(problem.rows, R))
    soft = yield from _em(problem, soft, max(steps // 2, 1), shape)
    if least == -np.inf:
        shape = shaped(problem, soft.moments, tau)
    else:
        half = yield from judged(problem, soft, shape)
        if half.value < least - HALF_GAIN * len(R):
            return half  # of which nobody asks more than the value
    soft = yield from _em(problem, soft, max(steps - steps // 2, 1), shape)
    keep = np.flatnonzero(soft.moments.counts > MIN_COUNT)
    if 0 < len(keep) < len(soft.moments.counts) and not problem.settings.fixed:
        R, moments = np.ascontiguousarray(soft.dense()[:, keep]), Moments(*(a[keep] for a in soft.moments))
        # With all that are left: a row may have been near none but one that is dropped.
        soft = Soft(R, None, kernels.moments_of(problem.rows, R))
        soft = yield from _em(problem, soft, 2, shaped(problem, moments, tau))
    return (yield from judged(problem, soft._replace(R=soft.dense(), near=None), shaped(problem, soft.moments, tau)))


def judged(problem: Problem, soft: Soft, shape: Shape) -> Slices:
    """The fit with its value; by the components near each row if they are known, else by all, and those are found."""
    R, near, moments = soft
    if near is not None:
        left_out = yield from _leave_out_near(problem, near, moments, shape)
    else:
        marks = _marks(problem.rows, R.shape[1])
        left_out = yield from leave_out(problem, R, moments, shape, marks)
        near = kernels.near_of(marks, R)
    log_density = float(problem.rows.weights @ left_out)
    # The price pays for the freedom to choose responsibilities, which leave-one-out with fixed ones does not see.
    return Fit(R, moments, shape, left_out, log_density, log_density - problem.price * len(moments.counts), near)
