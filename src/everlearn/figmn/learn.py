"""Learning a Gaussian mixture one row at a time: create, update, prune, forget, compact.

The rule is the incremental Gaussian mixture network in precision form (FIGMN, Pinto and Engel), with the
exact update Sigma = (1-w) Sigma + w(1-w) e e' in place of the printed one (docs/errata.md). Coordinates are
those of the caller; the estimator hands in columns of about unit spread.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from everlearn.figmn import strategy as runs
from everlearn.figmn.blocks import Rows
from everlearn.figmn.kernels import diagonal as mixture_diagonal
from everlearn.figmn.kernels import rows as kernels
from everlearn.figmn.scoring import ask
from everlearn.gaussian.gaussian import regression, whiten
from everlearn.gaussian.merge import prior_counted_once
from everlearn.gaussian.mixture import Mixture, log_joint
from everlearn.gaussian.reduction import Greedy, reduce_greedy
from everlearn.linalg.backend import HOST, Device
from everlearn.linalg.chunked import sweep

Array = NDArray[np.float64]

MIN_COMPACTION_ROWS = 128
COMPACTION_COST = 0.1


class MixtureState(NamedTuple):
    """What the next row needs. Arrays have room for more components than the `n_components` in use.

    Precisions are matrices, (capacity, D, D), or with diagonal covariances their diagonals, (capacity, D).
    """

    means: Array
    precisions: Array
    log_dets: Array
    counts: Array
    ages: Array
    n_components: int
    n_rows: int
    compacted_at: int


class Settings(NamedTuple):
    """The constants of one stream.

    `thresholds[d]` is the novelty threshold for d observed columns; `max_merge_cost` is the share of the BIC
    penalty up to which a full mixture merges pairs (zero: only the cheapest pair).
    """

    centre: Array
    initial_variance: Array
    thresholds: Array
    paper: bool
    forgetting: float
    min_age: float
    min_count: float
    max_components: int
    max_merge_cost: float


class Info(NamedTuple):
    """What each row was to the mixture before it was learned."""

    log_density: Array
    distance: Array
    skipped_updates: int


def novelty_thresholds(beta: float, n_features: int) -> Array:
    """d^2 at which a row is novel: the upper beta quantile of chi-square, for 0 to n_features observed columns."""
    degrees = np.arange(n_features + 1, dtype=np.float64)
    if beta == 0.0:
        return np.full(n_features + 1, np.inf)
    thresholds: Array = chdtri(np.maximum(degrees, 1.0), beta)
    return thresholds


def empty(n_features: int, capacity: int = 1, *, diagonal: bool = False) -> MixtureState:
    """A mixture without components."""
    shape = (capacity, n_features) if diagonal else (capacity, n_features, n_features)
    log_dets, counts, ages = (np.zeros(capacity) for _ in range(3))
    return MixtureState(np.zeros((capacity, n_features)), np.zeros(shape), log_dets, counts, ages, 0, 0, 0)


def is_diagonal(state: MixtureState) -> bool:
    """Whether the components have diagonal covariances."""
    return state.precisions.ndim == 2


def learn(
    state: MixtureState, X: Array, weights: Array, settings: Settings, device: Device = HOST, *, gaps: bool = True
) -> tuple[MixtureState, Info]:
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


def _kernels_for(state: MixtureState) -> ModuleType:
    return mixture_diagonal if is_diagonal(state) else kernels


def _next_stretch(state: MixtureState, settings: Settings, row: int, n: int) -> tuple[int, Array]:
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


def _rows_to_wait(state: MixtureState, settings: Settings) -> float:
    """Rows until a new component may be made: none unless the mixture is full and was compacted lately."""
    if state.n_components < settings.max_components:
        return 0
    if settings.max_components == 1:
        return np.inf
    if settings.max_merge_cost == 0 or state.compacted_at == 0:
        return 0
    return max(0, state.compacted_at + max(MIN_COMPACTION_ROWS, len(settings.centre)) - state.n_rows)


def make_room(state: MixtureState, settings: Settings) -> MixtureState:
    """Longer arrays, or fewer components once there are as many as are allowed."""
    K = state.n_components
    if K < settings.max_components:
        return _with_capacity(state, min(max(2 * K, 4), settings.max_components))
    if settings.max_merge_cost > 0:
        return compact(state, settings)
    return merged_to(state, max_cost=0.0, max_components=K - 1, priors=creation_priors(K, settings))


def compact(state: MixtureState, settings: Settings) -> MixtureState:
    """Merge all pairs that cost little, and on to half the allowed components if that is not enough."""
    cost = settings.max_merge_cost * bic_penalty(state)
    limit, priors = max(settings.max_components // 2, 1), creation_priors(state.n_components, settings)
    state = merged_to(state, max_cost=cost, max_components=limit, priors=priors)
    return state._replace(compacted_at=state.n_rows)


def creation_priors(n_components: int, settings: Settings) -> Array | None:
    """What each component holds of its creation prior, (K, D); None if forgetting or the printed update changes it."""
    if settings.forgetting < 1.0 or settings.paper:
        return None
    return np.tile(settings.initial_variance, (n_components, 1))


def bic_penalty(state: MixtureState) -> float:
    """What one component costs in nats: half its number of parameters times the log of the sample size."""
    D = state.means.shape[1]
    shape = D if is_diagonal(state) else D * (D + 1) / 2
    n = max(float(state.counts[: state.n_components].sum()), 2.0)
    return float(0.5 * (1 + D + shape) * np.log(n))


def merged_to(
    state: MixtureState, *, max_cost: float, max_components: int, priors: Array | None = None
) -> MixtureState:
    """Merge the cheapest pairs: all that cost up to `max_cost`, and more until `max_components` are left.

    Merged components hold their creation `priors` (K, D) once, if these are given.
    """
    K = state.n_components
    greedy = reduce_greedy(
        state.counts[:K], state.means[:K], covariances_of(state), max_cost=max_cost, max_components=max_components
    )
    return regrouped(state, greedy, priors)


def regrouped(state: MixtureState, groups: Greedy, priors: Array | None = None) -> MixtureState:
    """The state with its components merged into `groups`, which hold their creation `priors` once."""
    counts, means, covariances, labels = groups
    if priors is not None:
        covariances = prior_counted_once(counts, covariances, priors, labels)
    ages = np.zeros(len(counts))
    np.maximum.at(ages, labels, state.ages[: state.n_components])
    merged = from_components(counts, means, covariances, ages, capacity=len(state.counts))
    return merged._replace(n_rows=state.n_rows, compacted_at=state.compacted_at)


def from_components(
    counts: Array, means: Array, covariances: Array, ages: Array, *, capacity: int | None = None
) -> MixtureState:
    """A state with the given components."""
    precisions, log_dets = _inverted(covariances, diagonal=covariances.ndim == 2)
    state = MixtureState(np.array(means), precisions, log_dets, np.array(counts), np.array(ages), len(counts), 0, 0)
    return _with_capacity(state, max(capacity or 0, len(counts)))


def _with_capacity(state: MixtureState, capacity: int) -> MixtureState:
    def longer(array: Array) -> Array:
        out, used = np.zeros((capacity, *array.shape[1:])), array[: state.n_components]
        sweep(lambda part: np.copyto(out[part], used[part]), used)
        return out

    return with_arrays(state, longer)


def copied(state: MixtureState) -> MixtureState:
    """An independent copy, with the same room."""
    return _with_capacity(state, len(state.counts))


def with_arrays(state: MixtureState, change: Callable[[Array], Array]) -> MixtureState:
    """The state with each of its arrays changed in the same way."""
    means, precisions, log_dets, counts, ages = (change(array) for array in state[:5])
    return MixtureState(means, precisions, log_dets, counts, ages, *state[5:])


def covariances_of(state: MixtureState) -> Array:
    """Covariances of the components in use, positive definite."""
    return _inverted(state.precisions[: state.n_components], diagonal=is_diagonal(state))[0]


def _inverted(matrices: Array, *, diagonal: bool = False) -> tuple[Array, Array]:
    """Inverses of positive definite matrices (or diagonals), and the log-determinants of the matrices."""
    if diagonal:
        return 1.0 / matrices, np.log(matrices).sum(axis=-1)
    U, log_dets = whiten(matrices)
    return U @ np.swapaxes(U, -1, -2), np.array(log_dets)


def log_density_and_distance(state: MixtureState, x: Array) -> tuple[float, float]:
    """Log-density of one row, and its smallest squared distance."""
    if state.n_components == 0:
        return np.nan, np.inf
    density, distance, _ = ask(state, x[None], np.zeros(len(x)))
    return density[0], distance[0]


def mixture_of(state: MixtureState) -> Mixture:
    """The mixture that the state stands for."""
    counts = state.counts[: state.n_components]
    return Mixture(counts / counts.sum(), state.means[: state.n_components].copy(), covariances_of(state))


def widen(state: MixtureState, settings: Settings) -> MixtureState:
    """Give components that have become thin, by forgetting on columns that do not vary, twice the least variance."""
    diagonal, extra = is_diagonal(state), 2.0 * kernels.FLOOR * settings.initial_variance
    for j in range(state.n_components):
        if _kernels_for(state).is_thin(state.precisions[j], settings.initial_variance):
            covariance = _inverted(state.precisions[j], diagonal=diagonal)[0] + (extra if diagonal else np.diag(extra))
            state.precisions[j], state.log_dets[j] = _inverted(covariance, diagonal=diagonal)
    return state


def learn_in_covariance_form(state: MixtureState, x: Array, weight: float, settings: Settings) -> MixtureState:
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
