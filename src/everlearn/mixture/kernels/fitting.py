"""The steps of a fit, row by row where columns are few (`em`), by matrix products where they are many (`wide`)."""

from everlearn.mixture.kernels import em as few
from everlearn.mixture.kernels import moves as few_moves
from everlearn.mixture.kernels import wide as many

# Columns from which on matrix products pay (benchmarks/mixture.py).
MANY_COLUMNS = 65


def _steps(D, diagonal=False):
    return many if D >= MANY_COLUMNS and not diagonal else few


def moments_of(rows, R):
    """Weighted counts, means and scatter matrices of the components with responsibilities R."""
    return _steps(rows.Z.shape[1]).moments_of(rows, R)


def gaussians_of(moments, shape):
    """Posterior-mean Gaussians of the components."""
    return _steps(moments.means.shape[1]).gaussians_of(moments, shape)


def expect(rows, gaussians, R, log_joints, start, stop):
    """Responsibilities of some rows into R and their unnormalised log-density into `log_joints`."""
    _steps(rows.Z.shape[1]).expect(rows, gaussians, R, log_joints, start, stop)


def em(rows, R, shape, steps, tolerance):
    """EM steps, changing R in place; returns the moments of the last R."""
    return _steps(rows.Z.shape[1]).em(rows, R, shape, steps, tolerance)


def leave_one_out(rows, R, moments, gaussians, shape, out, start):
    """Log-density of some rows from `start` on, each judged by components without it, given R."""
    _steps(rows.Z.shape[1], shape.diagonal).leave_one_out(rows, R, moments, gaussians, shape, out, start)


def log_marginals(moments, shape, background):
    """Log marginal likelihood of the rows of each component, given R."""
    return _steps(moments.means.shape[1], shape.diagonal).log_marginals(moments, shape, background)


def _moves(D, diagonal=False):
    return many if D >= MANY_COLUMNS and not diagonal else few_moves


def evidence_of(rows, R, moments, shape, background):
    """Lower bound of the log-evidence for any R: marginal likelihoods, Dirichlet-multinomial and entropy of R."""
    return _moves(rows.Z.shape[1], shape.diagonal).evidence_of(rows, R, moments, shape, background)


def evidence_after_em(rows, R, shape, background, steps, tolerance, least):
    """Evidence after EM steps, which change R in place; -inf if a component keeps fewer rows than `least`."""
    kernels = _moves(rows.Z.shape[1], shape.diagonal)
    return kernels.evidence_after_em(rows, R, shape, background, steps, tolerance, least)


def change_left_out(rows, old, new, left_out, shape):
    """Change of the leave-one-out log-likelihood when components with responsibilities `old` become those of `new`."""
    return _moves(rows.Z.shape[1], shape.diagonal).change_left_out(rows, old, new, left_out, shape)
