"""Learning a Gaussian mixture one row at a time: create, update, prune, forget, compact.

The rule is the incremental Gaussian mixture network in precision form (FIGMN, Pinto and Engel), with the
exact update Sigma = (1-w) Sigma + w(1-w) e e' in place of the printed one (docs/errata.md). Coordinates are
those of the caller; the estimator hands in columns of about unit spread.
"""

from __future__ import annotations

import numpy as np

from everlearn.figmn import strategy as runs
from everlearn.figmn.ask import log_density_and_distance as log_density_and_distance
from everlearn.figmn.blocks import Rows
from everlearn.figmn.keep import COMPACTION_COST as COMPACTION_COST
from everlearn.figmn.keep import bic_penalty as bic_penalty
from everlearn.figmn.keep import creation_priors as creation_priors
from everlearn.figmn.keep import make_room, widen
from everlearn.figmn.keep import merged_to as merged_to
from everlearn.figmn.keep import regrouped as regrouped
from everlearn.figmn.kernels import rows as kernels
from everlearn.figmn.state import Info, Settings, State, from_components, mixture_of
from everlearn.figmn.state import copied as copied
from everlearn.figmn.state import covariances_of as covariances_of
from everlearn.figmn.state import empty as empty
from everlearn.figmn.state import is_diagonal as is_diagonal
from everlearn.figmn.state import novelty_thresholds as novelty_thresholds
from everlearn.figmn.state import with_arrays as with_arrays
from everlearn.gaussian.gaussian import regression
from everlearn.gaussian.mixture import log_joint
from everlearn.linalg.backend import HOST, Device
from everlearn.typing import Array

MixtureState = State  # the name that the estimator of the first edition knows it by
MIN_COMPACTION_ROWS = 128


def learn(
    state: State, X: Array, weights: Array, settings: Settings, device: Device = HOST, *, gaps: bool = True
) -> tuple[State, Info]:
    """Learn the rows of X, which may have gaps, in order. The arrays of `state` are used up: go on with the result's.

    Rows are taken one by one or in blocks, whichever is cheaper; the answers are the same up to rounding.
    """
    n = len(X)
    rows = Rows(X, weights, np.empty(n), np.empty(n))
    view = None if gaps or n < runs.MIN_ROWS else runs.unbroken(0, n)
    skipped, row = 0, 0
    while row < n:
        stop, thresholds = _next_stretch(state, settings, row, n)
        state, (row, status, invalid), view = runs.learn_some(
            state, rows, row, stop, settings, thresholds, device, view
        )
        skipped += invalid
        if status == kernels.FULL and _rows_to_wait(state, settings) == 0:
            state = make_room(state, settings)
        elif status == kernels.UNSAFE:
            state = learn_in_covariance_form(state, X[row], float(weights[row]), settings)
            row += 1
        elif status == kernels.THIN:
            state = widen(state, settings)
    return state, Info(rows.log_density, rows.distance, skipped)


def _next_stretch(state: State, settings: Settings, row: int, n: int) -> tuple[int, Array]:
    """Rows that can be learned in one go, and their thresholds.

    A full mixture makes room by merging, at most once in so many rows that the merging costs no more than the
    learning; until then nothing is novel.
    """
    wait = _rows_to_wait(state, settings)
    if wait == 0:
        return n, settings.thresholds
    if settings.min_age < np.inf:  # any row may make room by pruning
        wait = 1
    return int(min(n, row + wait)), np.full_like(settings.thresholds, np.inf)


def _rows_to_wait(state: State, settings: Settings) -> float:
    """Rows until a new component may be made: none unless the mixture is full and was compacted lately."""
    if state.n_components < settings.max_components:
        return 0
    if settings.max_components == 1:
        return np.inf
    if settings.max_merge_cost == 0 or state.compacted_at == 0:
        return 0
    return max(0, state.compacted_at + max(MIN_COMPACTION_ROWS, len(settings.centre)) - state.n_rows)


def learn_in_covariance_form(state: State, x: Array, weight: float, settings: Settings) -> State:
    """Learn one row with covariances instead of precisions, in O(K D^3).

    For the rare row that would divide an eigenvalue of a precision by more than 1e8, and so cost it half of its
    digits. The covariance is made positive definite in relative terms before it is inverted.
    """
    mixture = mixture_of(state)
    joint = log_joint(x[None], mixture)[0]
    posterior = np.exp(joint - joint.max())
    posterior *= weight / posterior.sum()
    covariances = mixture.covariances.copy()
    for j in np.flatnonzero(posterior > 0):
        w = float(kernels.gain(state.counts[j], posterior[j], settings.forgetting))
        c = max(float(kernels.spread_coefficient(w, settings.paper)), 0.0)
        e, gap_covariance = _deviation(x, state.means[j], covariances[j])
        covariances[j] = (1.0 - w) * covariances[j] + c * np.outer(e, e) + w * gap_covariance
        state.means[j] += w * e
    K = state.n_components
    counts = settings.forgetting * state.counts[:K] + posterior
    learned = from_components(counts, state.means[:K], covariances, state.ages[:K] + 1.0, capacity=len(state.counts))
    return learned._replace(n_rows=state.n_rows + 1, compacted_at=state.compacted_at)


def _deviation(x: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """x - mu with conditional means in the gaps, and the gaps' conditional covariance embedded in D x D."""
    e, extra = x - mean, np.zeros_like(covariance)
    missing = np.isnan(x)
    if missing.any():
        given, gaps = np.flatnonzero(~missing), np.flatnonzero(missing)
        rule = regression(covariance, given, gaps)
        e[gaps] = rule.gain @ e[given]
        extra[np.ix_(gaps, gaps)] = rule.covariance
    return e, extra
