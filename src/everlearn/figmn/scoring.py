"""Densities, distances and posteriors of many rows under an incremental mixture.

Rows with the same gaps are asked together, as complete rows of a marginal; where there are many columns, distances are
matrix products. Single rows and rare patterns go one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn.cost_model import LARGE, marginal_pays
from everlearn.figmn.kernels import diagonal as mixture_diagonal
from everlearn.figmn.kernels import rows as kernels
from everlearn.figmn.shared_pattern import marginal
from everlearn.gaussian.conditional import log_sum_exp
from everlearn.gaussian.gaussian import LOG_2PI
from everlearn.gaussian.mixture import patterns
from everlearn.linalg.backend import HOST, Device
from everlearn.linalg.chunked import has_gaps

if TYPE_CHECKING:
    from everlearn.figmn.learn import MixtureState

Array = NDArray[np.float64]
Answers = tuple[Array, Array, Array]

# Fewer rows than this are asked one by one.
MIN_ROWS = 16
# Deviations of rows from means are formed in chunks of about this many numbers.
CHUNK = 1 << 20


def ask(state: MixtureState, X: Array, log_scale: Array, *, posteriors: bool = False, device: Device = HOST) -> Answers:
    """Log-density of each row (of the unscaled columns), smallest squared distance, and posteriors if asked for."""
    D, diagonal = X.shape[1], state.precisions.ndim == 2
    if len(X) < MIN_ROWS or diagonal:
        return _ask_singly(state, X, log_scale, posteriors)
    if not has_gaps(X):
        return _ask_complete(state, X, log_scale, posteriors, device)
    answers = _room(state, len(X), posteriors)
    rest = []
    for observed, rows in patterns(X):
        part = _part(state, observed, len(rows), D)
        if part is None:
            rest.append(rows)
        else:
            some = _ask_complete(part, X[np.ix_(rows, observed)], log_scale[observed], posteriors, device)
            _put(answers, rows, some)
    if rest:
        rows = np.concatenate(rest)
        _put(answers, rows, _ask_singly(state, X[rows], log_scale, posteriors))
    return answers


def _part(state: MixtureState, observed: NDArray[np.intp], n: int, D: int) -> MixtureState | None:
    """The marginal in which n rows are complete, if it pays to make it."""
    if len(observed) == D:
        return state
    if len(observed) == 0 or not marginal_pays(D, state.n_components, D - len(observed), n):
        return None
    part = marginal(state, observed)
    return None if part is None else part.state


def _room(state: MixtureState, n: int, posteriors: bool) -> Answers:
    return np.empty(n), np.empty(n), np.empty((n if posteriors else 0, state.n_components))


def _put(answers: Answers, rows: NDArray[np.intp], some: Answers) -> None:
    for whole, values in zip(answers, some, strict=True):
        if len(whole):
            whole[rows] = values


def _ask_singly(state: MixtureState, X: Array, log_scale: Array, posteriors: bool) -> Answers:
    answers = _room(state, len(X), posteriors)
    module = mixture_diagonal if state.precisions.ndim == 2 else kernels
    module.ask_rows(X, *state[:4], state.n_components, log_scale, *answers)
    return answers


def _ask_complete(state: MixtureState, X: Array, log_scale: Array, posteriors: bool, device: Device) -> Answers:
    """The answers for rows without gaps."""
    D, K = X.shape[1], state.n_components
    if D < LARGE or len(X) < MIN_ROWS:
        return _ask_singly(state, X, log_scale, posteriors)
    d2 = squared_distances(state, X, device)
    heights = np.log(state.counts[:K]) - 0.5 * (state.log_dets[:K] + D * LOG_2PI)
    joint = heights - 0.5 * d2
    density = log_sum_exp(joint)
    posterior = np.exp(joint - density[:, None]) if posteriors else np.empty((0, K))
    return density - np.log(state.counts[:K].sum()) - log_scale.sum(), d2.min(axis=1), posterior


def squared_distances(state: MixtureState, X: Array, device: Device = HOST) -> Array:
    """(x - mu_j)' Lambda_j (x - mu_j), (n, K), as matrix products."""
    K, (n, D) = state.n_components, X.shape
    d2 = np.empty((n, K))
    matrices, rows, step = device.adopt(state.precisions), device.rows(X), max(MIN_ROWS, CHUNK // D)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        some = rows.part(part.start, part.stop)

        def measure(which: slice, part: slice = part, some: Any = some) -> None:
            E = device.deviations(some, state.means[which])
            d2[part, which] = device.squares(E, device.project(matrices, which, E)).T

        device.each(measure, device.stacks(K, len(some), D), D)
    return d2
