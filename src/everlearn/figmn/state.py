"""What the mixture of the FIGMN papers knows, what it is told, and what it reports of the rows that it learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np
from scipy.special import chdtri

from everlearn.gaussian.gaussian import whiten
from everlearn.gaussian.mixture import Mixture
from everlearn.linalg.chunked import sweep
from everlearn.typing import Array


class State(NamedTuple):
    """What the next row needs, for K components in use out of C that the arrays have room for, and D columns.

    Precisions are matrices or, with diagonal covariances, their diagonals. Learning updates the arrays in place.
    """

    means: Annotated[Array, "C D"]
    precisions: Array  # (C, D, D) or (C, D)
    log_dets: Annotated[Array, "C"]  # log-determinants of the covariances
    counts: Annotated[Array, "nonnegative C"]  # accumulated posterior probabilities (sp in the papers)
    ages: Annotated[Array, "nonnegative C"]  # rows since the component was created (v in the papers)
    n_components: int  # K
    n_rows: int


class Settings(NamedTuple):
    """The constants of one stream, in the coordinates in which it is learned."""

    centre: Array  # (D,), where a new component puts a column that was not observed
    initial_variance: Array  # (D,), of a new component
    thresholds: Array  # (D + 1,), squared distance from which a row with d observed columns is novel
    paper: bool  # whether covariances follow the printed update (FIGMN, eq. 11)
    forgetting: float  # factor on the counts for each row
    min_age: float  # components older than this ...
    min_count: float  # ... with a smaller count are pruned
    max_components: int
    log_scale: Array  # (D,), log of the unit of each column: densities are reported in the units of the data


class Rows(NamedTuple):
    """Rows to be learned, their weights, and where what they were to the mixture is written."""

    X: Array  # (n, D)
    weights: Array  # (n,)
    log_density: Array  # (n,)
    distance: Array  # (n,)

    def part(self, start: int, stop: int) -> Rows:
        """Consecutive rows."""
        return Rows(*(array[start:stop] for array in self))


class Info(NamedTuple):
    """Per-row diagnostics, computed before the row is learned."""

    log_density: Array  # (n,), NaN where there was no component
    distance: Array  # (n,), squared distance to the nearest component, infinite where there was none
    skipped_updates: int  # updates that would have made a covariance indefinite; only by the printed rule


class Scores(NamedTuple):
    """What rows are to a mixture."""

    log_density: Array  # (n,), of the unscaled columns
    distance: Array  # (n,), squared distance to the nearest component
    posterior: Array  # (n, K), or (0, K) where it was not asked for


class Warmup(NamedTuple):
    """The first rows of a stream, kept until there are enough to estimate the scale of the columns."""

    rows: Annotated[Array, "gaps W D"]  # of which n are in use
    weights: Annotated[Array, "nonnegative W"]
    n: int


def novelty_thresholds(beta: float, n_features: int) -> Array:
    """d^2 at which a row is novel: the upper beta quantile of chi-square, for 0 to n_features observed columns."""
    degrees = np.arange(n_features + 1, dtype=np.float64)
    if beta == 0.0:
        return np.full(n_features + 1, np.inf)
    # Zero degrees of freedom have no quantile; the first entry is never compared, since rows
    # without an observed column are passed over.
    thresholds: Array = chdtri(np.maximum(degrees, 1.0), beta)
    return thresholds


def empty(n_features: int, capacity: int = 1, *, diagonal: bool = False) -> State:
    """A mixture without components."""
    shape = (capacity, n_features) if diagonal else (capacity, n_features, n_features)
    log_dets, counts, ages = (np.zeros(capacity) for _ in range(3))
    return State(np.zeros((capacity, n_features)), np.zeros(shape), log_dets, counts, ages, 0, 0)


def from_components(
    counts: Array, means: Array, covariances: Array, ages: Array, *, capacity: int | None = None
) -> State:
    """A state with the given components."""
    precisions, log_dets = inverted(covariances, diagonal=covariances.ndim == 2)
    state = State(np.array(means), precisions, log_dets, np.array(counts), np.array(ages), len(counts), 0)
    return with_capacity(state, max(capacity or 0, len(counts)))


def is_diagonal(state: State) -> bool:
    """Whether the components have diagonal covariances."""
    return state.precisions.ndim == 2


def with_capacity(state: State, capacity: int) -> State:
    """A copy with room for so many components."""

    def longer(array: Array) -> Array:
        out, used = np.zeros((capacity, *array.shape[1:])), array[: state.n_components]
        sweep(lambda part: np.copyto(out[part], used[part]), used)
        return out

    return with_arrays(state, longer)


def copied(state: State) -> State:
    """An independent copy, with the same capacity."""
    return with_capacity(state, len(state.counts))


def with_arrays(state: State, change: Callable[[Array], Array]) -> State:
    """The state with each of its arrays changed in the same way."""
    means, precisions, log_dets, counts, ages = (change(array) for array in state[:5])
    return State(means, precisions, log_dets, counts, ages, *state[5:])


def covariances_of(state: State) -> Array:
    """Covariances of the components in use, positive definite."""
    return inverted(state.precisions[: state.n_components], diagonal=is_diagonal(state))[0]


def inverted(matrices: Array, *, diagonal: bool = False) -> tuple[Array, Array]:
    """Inverses of positive definite matrices (or diagonals), and the log-determinants of the matrices."""
    if diagonal:
        return 1.0 / matrices, np.log(matrices).sum(axis=-1)
    # U U' is the inverse: symmetric and positive semi-definite by construction, which a general inverse is not.
    U, log_dets = whiten(matrices)
    return U @ np.swapaxes(U, -1, -2), np.array(log_dets)


def mixture_of(state: State) -> Mixture:
    """The mixture that the state stands for."""
    counts = state.counts[: state.n_components]
    return Mixture(counts / counts.sum(), state.means[: state.n_components].copy(), covariances_of(state))
