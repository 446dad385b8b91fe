"""Learning a stream: rows in kernels, and between them what is due: units, period, mixture, a new normal."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from everlearn.anomaly import keep
from everlearn.anomaly.kernels import rows as kernels
from everlearn.anomaly.kernels.far import CLUMP, KEPT
from everlearn.anomaly.kernels.rescore import rescore_sample
from everlearn.anomaly.kernels.sample import refresh_sample
from everlearn.anomaly.kernels.season import latest_rows, look_for_period, rebuild_profile
from everlearn.anomaly.rescore import remember_released, rescore_memories
from everlearn.anomaly.state import (
    LAGS,
    REGRESSORS,
    STATIC,
    STATISTICS,
    TIME_SCALES,
    VIEWS,
    WIDE,
    Among,
    Clock,
    Density,
    Far,
    Guard,
    Info,
    Memory,
    Past,
    Pending,
    Sample,
    Scratch,
    Season,
    Settings,
    State,
    Task,
    Units,
)
from everlearn.gaussian.factor_analysers import FactorMixture
from everlearn.linalg.parallel import one_blas_thread
from everlearn.typing import Array

# Rows of the sample. With 400 the average precision on Shuttle varies by 0.010 from sample to sample, with these by
# 0.003; on other groups of benchmarks/anomaly.py it is smaller by up to 0.010.
SAMPLE_ROWS = 1200
AMONG_ROWS = 400  # of them that are scored anew at each refresh
REMEMBERED, REMEMBERED_COMBINED = 2000, 8000
# An exponential mean over tau rows has one independent value in 2 tau rows, and is remembered every 0.4 tau. Drifts and
# activity have heavier tails: as if half as many were independent.
LEVEL_INDEPENDENT, SLOW_INDEPENDENT = 0.2, 0.1
# Where neighbours are alike, independent values of single rows' statistics and of the score are counted by their
# correlation: taken for independent, the rows of an autoregression of 0.95 have 2.9 times the alarms asked for at 1 in
# 1,000, and 12 times at 1 in 10,000 (1.3 and 2.1 with this, means of seven streams). They are counted down to these
# shares of the values, as what is slower still is rather a stream whose regimes last, each with a level of its own and
# tails that are alike: with 0.1 in place of 0.15 the demonstration's faults are found in 80 % for 85. The price is
# stated in benchmarks/anomaly.py: streams that wander more slowly keep too many alarms.
SINGLE_INDEPENDENT, SCORE_INDEPENDENT = 0.05, 0.15
RING = 2048  # rows in which a period is looked for
PERIOD_LOOKS = 1.6  # times the rows of one look, at which there is the next
FIRST_ROWS = 10  # rows before the columns have units
UNITS_FIXED = 640  # row from which the units of the past stay, but where a column outgrows them
# Times their scale by which a column must vary or have moved: with two, one stream of NAB in seven loses 0.026 of its
# ROC-AUC, as what the past knew of more than RING rows is lost.
OUTGROWN = 3.0
MOST_PENDING = 500  # rows after which the mixture is refreshed at the latest
# While the mixture searches, it is given its rows after every batch of fewer rows than this: slices of the search then
# run between rows, and not all of them in the one row of 500 that refreshes the density (290 ms beside 94 at D = 8,
# benchmarks/latency.py).
FEW_ROWS = 64


def counter(value: int = 0) -> Any:
    """A number that kernels count up in place."""
    return np.full(1, value, np.int64)


def init(D: int, settings: Settings, S: int = SAMPLE_ROWS) -> State:
    """A state that has seen nothing, with room for a sample of S rows."""
    V, H = len(STATISTICS), int(settings.patience) if np.isfinite(settings.patience) else 1
    return State(
        Clock._make(counter(value) for value in (0, 0, 0, 0, 96, 0, FIRST_ROWS, 0)),
        Sample(
            np.full((S, D), np.nan), counter(), Units(np.zeros(D), np.ones(D)), np.zeros((D, S)), np.zeros((D, S)),
            np.zeros(D, np.int64),
        ),
        no_density(D), init_past(Units(np.zeros(D), np.ones(D))),
        Season(np.full((RING, D), np.nan), np.zeros((RING, D)), np.zeros(RING)),
        init_memory(*independent_shares(settings), REMEMBERED),
        init_memory(np.ones(1), np.full(1, SCORE_INDEPENDENT), REMEMBERED_COMBINED),
        Guard(np.zeros((H, D)), np.zeros((H, V)), np.zeros(H, np.int64), counter(), np.zeros(1), np.array([1.0, 0.0])),
        Pending(np.zeros((MOST_PENDING, D)), counter()), init_far(), *init_lasting(), init_among(),
    )  # fmt: skip


def init_far() -> Far:
    """A memory of far rows that has counted none."""
    return Far(np.zeros(KEPT), np.zeros(KEPT, np.int64), counter(), counter(), np.full(1, CLUMP))


def init_lasting() -> tuple[Array, Memory]:
    """Mean of the latest scores and memory of scores with it, before there is a row."""
    # By rank, whose error is that of a prior: how many of its values are independent does not matter.
    return np.zeros(1), init_memory(np.ones(1), np.ones(1), REMEMBERED_COMBINED)


def init_among() -> Among:
    """Statistics of the sample's rows, before there are rows."""
    return Among(np.zeros((STATIC, AMONG_ROWS)), np.zeros(STATIC, np.int64))


def independent_shares(settings: Settings) -> tuple[Array, Array]:
    """Of each statistic, how many independent values there are in a remembered one, at most and at least."""
    levels, slow = np.array([name.startswith("level") for name in STATISTICS]), settings.strides > 1
    most = np.where(slow, np.where(levels, LEVEL_INDEPENDENT, SLOW_INDEPENDENT), 1.0)
    return most, np.where(slow, 0.0, SINGLE_INDEPENDENT)


def init_memory(most: Array, least: Array, M: int) -> Memory:
    """A memory of statistics that holds nothing; `most` and `least` independent values are in a remembered one."""
    V = len(most)
    integers = [np.zeros(V, np.int64) for _ in range(3)]
    rows, floats = np.zeros((2, V, M)), np.zeros((5, V))
    return Memory._make(array.copy() for array in (*rows, *integers, most, *floats, least))


def init_past(units: Units) -> Past:
    """A past that has seen nothing, in the given units."""
    D, T, p = len(units.centre), len(TIME_SCALES), REGRESSORS
    correlated = np.eye(D) if D <= WIDE else np.ones((D, 1))
    columns = lambda: np.zeros(D)  # noqa: E731
    return Past._make((
        units, np.zeros((LAGS, D)), columns(), np.zeros((D, p)), np.tile(np.eye(p), (D, 1, 1)), columns(), columns(),
        columns(), np.full(D, 1e-6), correlated * 1e-6, correlated, *(np.zeros((T, D)) for _ in range(4)),
        *(np.zeros((2, T, D)) for _ in range(4)), np.full(D, np.nan), np.zeros(D, np.int64), np.zeros((D, 4)),
    ))  # fmt: skip


def no_density(D: int) -> Density:
    """The density before there is a mixture."""
    return Density(
        np.zeros(D), np.ones(D), np.zeros(0), np.zeros((0, D)), np.zeros((0, D, D)), np.zeros((0, D, D)), np.zeros(0),
        np.zeros((0, D, D)),
    )  # fmt: skip


def scratch_for(state: State) -> Scratch:
    """Room for one row's work."""
    D, K, S = state.sample.rows.shape[1], max(1, len(state.density.heights)), len(state.sample.rows)
    vectors = [np.zeros(D) for _ in range(5)]
    V, B = len(STATISTICS), state.density.precisions.shape[1] if len(state.density.heights) else 0
    return Scratch._make((
        *(np.zeros(D) for _ in range(4)), np.zeros(D, np.int64), np.zeros((B, B)), np.zeros(K), np.zeros(S),
        np.zeros((D, REGRESSORS)), np.zeros(REGRESSORS), *vectors, np.zeros((4, len(TIME_SCALES), D)),
        np.full(V, np.nan), np.full(V, np.nan), np.zeros((len(VIEWS), 3)), np.zeros(D),
    ))  # fmt: skip


def writeable(value: Any) -> Any:
    """The same state, with copies of arrays that cannot be written: kernels would be compiled for them anew."""
    if isinstance(value, tuple):
        parts = [writeable(part) for part in value]
        return type(value)(*parts) if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    return value if value.flags.writeable else value.copy()


@dataclass
class Prepared:
    """A task that has been unpacked for the kernels; it is used again while state and settings stay the same."""

    state: State | None = None
    settings: Settings | None = None
    scratch: Scratch | None = None
    handle: Any = None

    def of(self, state: State, settings: Settings) -> Any:
        """A handle on the task of a state."""
        if self.state is not state or self.settings is not settings:
            self.state, self.settings, self.scratch = state, settings, scratch_for(state)
            self.handle = kernels.unpack(Task(writeable(state), settings, self.scratch))
        return self.handle

    def writeable(self, state: State) -> State:
        """The state itself if its task was unpacked before: to look at its 80 arrays takes as long as a row."""
        return state if self.state is state else writeable(state)

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled code holds the arrays: a copy or pickle begins with nothing and unpacks its own.
        return Prepared, ()


def no_info(n: int) -> Info:
    """Room for what is seen of n rows; kernels write score, p-value and parts of each."""
    parts = np.empty((n, len(STATISTICS)))
    return Info(np.empty(n), np.empty(n), np.empty(n), parts, np.zeros(n, np.bool_), np.full(n, -1, np.int64))


def learn(
    state: State, X: Array, settings: Settings, mixture: Any, prepared: Prepared
) -> tuple[State, Info, list[keep.Release]]:
    """Score each row, then learn it or hold it back; arrays of the state and the mixture change in place."""
    info, at, released = no_info(len(X)), 0, []
    # Kernels are compiled for arrays that can be written; a read-only one would be compiled for anew.
    X, state = X if X.flags.writeable else X.copy(), prepared.writeable(state)
    while at < len(X):
        some = Info._make(values[at:] for values in info) if at else info
        at += kernels.learn_rows(X[at:], prepared.of(state, settings), some)
        if is_due(state, settings):
            state, release = keep_up(state, settings, mixture)
            released += release
    # Rows up to the search are handed over with its first one; then a slice of it runs with each.
    if len(X) < FEW_ROWS and _is_searching(mixture, int(state.pending.size[0])):
        hand_over(state, mixture)
    return state, info, released


def is_due(state: State, settings: Settings) -> bool:
    """Whether rows are to be refreshed, released, or searched for a period."""
    clock, pending = state.clock, state.pending
    return bool(
        clock.learned[0] >= clock.next_sample[0]
        or clock.rows[0] == clock.next_period[0]
        or pending.size[0] == MOST_PENDING
        or state.guard.pressure[0] >= settings.patience
    )


def keep_up(state: State, settings: Settings, mixture: Any) -> tuple[State, list[keep.Release]]:
    """Do what is due after a row."""
    clock, released = state.clock, []
    if state.guard.pressure[0] >= settings.patience:
        # In this order: the rows are learned, the model is refreshed with them, and only
        # then scored by the model that knows them.
        release, held = keep.release(state, settings, mixture)
        released.append(release)
        units = state.past.units
        state = refreshed(state, settings, mixture)
        if state.past.units is not units:
            # What the rows were after those before them is in units that are gone: of a sensor that appeared with
            # them, thousands of millions, beside which nothing later would be strange.
            held.statistics[:, STATIC:] = np.nan
        remember_released(state, *held, settings, scratch_for(state))
    elif clock.learned[0] >= clock.next_sample[0] or state.pending.size[0] == MOST_PENDING:
        state = refreshed(state, settings, mixture)
        if clock.learned[0] == settings.grace:
            rescore_memories(state, settings, init_past(state.past.units), scratch_for(state))
    if clock.rows[0] == clock.next_period[0]:
        # Whether the ring was full the last time, too.
        is_settled = clock.rows[0] > PERIOD_LOOKS * RING
        clock.period[0] = look_for_period(state.season, state.past.units, clock.rows[0], clock.period[0], is_settled)
        # At row numbers that grow by a factor: the search costs a bounded share of the stream.
        clock.next_period[0] = int(PERIOD_LOOKS * clock.next_period[0])
    return state, released


def _is_searching(mixture: Any, n_rows: int) -> bool:
    """Whether a mixture that searches in slices does so after so many more rows."""
    return hasattr(mixture, "_is_searching") and bool(mixture._is_searching(n_rows))


def hand_over(state: State, mixture: Any) -> None:
    """Let the mixture learn the pending rows."""
    pending = state.pending
    if pending.size[0]:
        mixture.partial_fit(pending.rows[: pending.size[0]].copy())
        pending.size[0] = 0


def refreshed(state: State, settings: Settings, mixture: Any) -> State:
    """Let the mixture learn the pending rows; take sample, units and density anew."""
    clock, sample = state.clock, state.sample
    hand_over(state, mixture)
    refresh_sample(sample, sample.size[0])
    state = with_units(state, settings)
    # When 5 % more rows are learned, and after 500 at the latest.
    clock.next_sample[0] = clock.learned[0] + max(FIRST_ROWS, min(clock.learned[0] // 20, MOST_PENDING))
    if clock.learned[0] < settings.grace:
        clock.next_sample[0] = min(clock.next_sample[0], settings.grace)
    state = state._replace(density=frozen(mixture, sample))
    rescore_sample(kernels.unpack(Task(state, settings, scratch_for(state))), np.empty((AMONG_ROWS, STATIC)))
    return state


def with_units(state: State, settings: Settings) -> State:
    """Units of the past: taken at rows 10, 40, 160 and 640, and when a column appears; the latest rows are then learned
    anew in them.

    At four times the rows of the last time they are looked at again: a cycle of some thousand rows goes far beyond what
    its first ones show. In units of these the noise at other values is next to nothing, and when the cycle comes back
    to the first ones, their noise is an alarm.
    """
    clock = state.clock
    due = clock.learned[0] >= clock.next_units[0]
    if due and clock.next_units[0] > UNITS_FIXED and not has_outgrown_units(state):
        clock.next_units[0] *= 4
        due = False
    if not due and not has_late_column(state):
        return state
    units = Units(*(a.copy() for a in state.sample.units))
    # Regression and moments of other units mean nothing in these: they begin
    # again, from the rows that the ring still has.
    state = state._replace(past=init_past(units))
    clock.predicted[0], clock.next_inverse[0] = 0, 0
    if due:
        clock.next_units[0] = max(4 * clock.next_units[0], 4 * FIRST_ROWS)
    rows = clock.rows[0]
    kept = min(rows, RING)
    U = latest_rows(state.season, units, rows)
    rebuild_profile(state.season, U, rows, clock.period[0])
    latest = state.season.ring[(np.arange(rows - kept, rows)) % RING]
    kernels.replay(latest, kernels.unpack(Task(state, settings, scratch_for(state))))
    return state


def has_outgrown_units(state: State) -> bool:
    """Whether a column is on another scale in the sample, or in another place, than its units were taken for."""
    old, new = state.past.units, state.sample.units
    ratio, away = new.scale / old.scale, np.abs(new.centre - old.centre) / old.scale
    return bool(((ratio > OUTGROWN) | (ratio < 1.0 / OUTGROWN) | (away > OUTGROWN)).any())


def has_late_column(state: State) -> bool:
    """Whether a column that had no value when the units were taken has some now."""
    sample, old = state.sample, state.past.units
    unknown = (old.centre == 0.0) & (old.scale == 1.0)
    if not unknown.any():
        return False
    found = (~np.isnan(sample.rows[: sample.size[0]])).sum(axis=0) >= FIRST_ROWS
    other = (sample.units.centre != old.centre) | (sample.units.scale != old.scale)
    return bool((unknown & found & other).any())


def frozen(mixture: Any, sample: Sample) -> Density:
    """The mixture in standard units, with a broad Gaussian of half a row behind its components.

    The components are those between the mixture's searches: a question that is preceded by a search costs as much as
    a thousand rows. Until the first search one Gaussian of the sample stands in for them.
    """
    units = sample.units
    with one_blas_thread():
        factors = mixture.factors_between_searches() if hasattr(mixture, "factors_between_searches") else None
        if factors is not None:
            return _of_factors(units, factors, float(mixture.n_samples_seen_))
        return _of_matrices(units, grid_steps(sample), *_components(mixture, sample))


def _of_matrices(units: Units, steps: Array, weights: Array, means: Array, covariances: Array) -> Density:
    """The density of components with covariance matrices, in standard units; `steps` of the columns' grids."""
    means = (means - units.centre) / units.scale
    covariances = covariances / units.scale / units.scale[:, None]
    overall = weights @ means
    # Law of total variance, for the scale below which a variance is rounding.
    away = means - overall
    spread = np.einsum("k,kij->ij", weights, covariances) + np.einsum("k,ki,kj->ij", weights, away, away)
    # Sheppard's correction: a value on a grid of step h stands for an interval of variance h^2 / 12. Without it counts
    # become points of no width, from which the next count is twenty standard deviations away.
    every = np.arange(len(units.scale))
    covariances[:, every, every] += (steps / units.scale) ** 2 / 12.0
    return _factorised(units, weights, means, covariances, np.diag(spread))


def grid_steps(sample: Sample) -> Array:
    """Least distance of two different values of each column in the sample: the step of the grid that they lie on.

    Of a column of real numbers it is nearly nothing, and of one that has a single value zero.
    """
    steps = np.zeros(len(sample.observed))
    for j, k in enumerate(sample.observed):
        between = np.diff(sample.ordered[j, :k])
        steps[j] = between[between > 0.0].min(initial=np.inf)
    return np.where(np.isfinite(steps), steps, 0.0)


def _components(mixture: Any, sample: Sample) -> tuple[Array, Array, Array]:
    """Weights, means and covariances, the broad component last."""
    if hasattr(mixture, "mixture_between_searches"):
        found = mixture.mixture_between_searches()
        if found is not None:
            return found._replace(covariances=_matrices(found.covariances))  # type: ignore[no-any-return]
    else:
        # A copy is asked: what a mixture answers may depend on the questions before, which a file does not keep.
        mixture = mixture.copy()
        with contextlib.suppress(NotFittedError):
            rows = max(float(mixture.n_samples_seen_), 1.0)
            return _with_broad(mixture.weights_, mixture.means_, _matrices(mixture.covariances_), rows)
    return _with_broad(*_one_gaussian(sample), float(sample.size[0]))


def _matrices(covariances: Array) -> Array:
    """Covariances as matrices; those of a diagonal mixture are variances."""
    return covariances if covariances.ndim == 3 else covariances[:, :, None] * np.eye(covariances.shape[1])


def _with_broad(weights: Array, means: Array, covariances: Array, rows: float) -> tuple[Array, Array, Array]:
    """A mixture of some rows, and half a row of four times the covariance of all: far rows keep finite densities."""
    overall = weights @ means
    away = means - overall
    spread = np.einsum("k,kij->ij", weights, covariances) + np.einsum("k,ki,kj->ij", weights, away, away)
    weights = np.append(weights * rows, 0.5) / (rows + 0.5)
    return weights, np.vstack([means, overall]), np.concatenate([covariances, 4.0 * spread[None]])


def _one_gaussian(sample: Sample) -> tuple[Array, Array, Array]:
    """Mean and covariance of the sampled rows, shrunk to the diagonal by (D + 1) / (rows + D + 1); gaps are means."""
    rows = sample.rows[: sample.size[0]]
    n, D = rows.shape
    seen = ~np.isnan(rows)
    mean = np.where(seen, rows, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    away = np.where(seen, rows - mean, 0.0) / sample.units.scale
    # Correlations shrink by n/(n + D + 1), variances do not: with fewer rows than columns the matrix stays definite.
    covariance = away.T @ away / max(n, 1) * (n / (n + D + 1.0))
    covariance[np.arange(D), np.arange(D)] *= (n + D + 1.0) / n
    return np.ones(1), mean[None], (covariance * sample.units.scale * sample.units.scale[:, None])[None]


def _of_factors(units: Units, mixture: FactorMixture, rows: float) -> Density:
    """The density of low-rank components; the broad one, of half a row, has four times the variance of each column."""
    D = len(units.centre)
    # A component has fewer directions than columns: the others are rows of zeros.
    W, noise = mixture.loadings[:, : D - 1] / units.scale, mixture.noise / units.scale**2
    means = (mixture.means - units.centre) / units.scale
    overall = mixture.weights @ means
    variances = mixture.weights @ (noise + (W * W).sum(axis=1) + (means - overall) ** 2)
    noise = np.vstack([noise, 4.0 * variances]) + 1e-9 * np.maximum(variances, 1e-3)
    W, means = np.concatenate([W, np.zeros_like(W[:1])]), np.vstack([means, overall])
    weights = np.append(mixture.weights * rows, 0.5) / (rows + 0.5)
    scaled = W / noise[:, None]
    L = np.linalg.cholesky(np.eye(W.shape[1]) + scaled @ W.swapaxes(1, 2))
    inverse = np.linalg.inv(L)
    log_weights = np.log(np.maximum(weights, 1e-300))
    log_det = np.log(noise).sum(axis=1) + 2.0 * np.log(np.einsum("kii->ki", L)).sum(axis=1)
    factors = np.concatenate([1.0 / noise[:, None], inverse @ scaled], axis=1)
    heights = log_weights - 0.5 * (D * np.log(2.0 * np.pi) + log_det)
    return Density(units.centre.copy(), units.scale.copy(), log_weights, means, W, factors, heights, inverse)


def _factorised(units: Units, weights: Array, means: Array, covariances: Array, variances: Array) -> Density:
    D, every = means.shape[1], np.arange(means.shape[1])
    # A column that hardly varies has variances near zero in units of the whole column; 1e-9 of it is noise of rounding.
    covariances[:, every, every] += 1e-9 * np.maximum(variances, 1e-3)
    L = np.linalg.cholesky(covariances)
    factors = np.linalg.inv(L)
    log_weights = np.log(np.maximum(weights, 1e-300))
    # From the factors that are needed anyway; determinants of many columns would under- or overflow.
    log_det = 2.0 * np.log(np.einsum("kii->ki", L)).sum(axis=1)
    return Density(
        units.centre.copy(), units.scale.copy(), log_weights, means, covariances, factors,
        log_weights - 0.5 * (D * np.log(2.0 * np.pi) + log_det), np.einsum("kij,kil->kjl", factors, factors),
    )  # fmt: skip
