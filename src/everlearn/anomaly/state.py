"""State, settings and information of the anomaly detector; every field with its shape.

Kernels change a state in place; so counters are arrays of shape (1,).

D is the number of columns, S the size of the sample, A how many of its rows are scored anew at each refresh, T the
number of time scales, V the number of statistics, M the size of a memory of scores, F of the memory of far rows, H the
number of rows that can be held back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.typing import Array

Integers = NDArray[np.int64]

WIDE = 100
"""Columns beyond which the covariance of prediction errors is diagonal."""
LAGS = 3
TIME_SCALES = (5.0, 20.0, 80.0)
"""Rows over which levels, drifts and activity are averaged: benchmarks/anomaly.py compares them."""
REGRESSORS = LAGS + 3  # a constant, the lags, a slow mean, the seasonal profile

VIEWS = ("mixture", "columns", "neighbours", "surprise", "level", "activity")
"""What a row can be strange in; each view holds one or more statistics."""

STATISTICS = {
    "mixture": "mixture",
    "columns": "columns",
    "neighbours": "neighbours",
    "group": "neighbours",
    "surprise": "surprise",
    **{f"level_{int(tau)}": "level" for tau in TIME_SCALES},
    **{f"drift_{int(tau)}": "level" for tau in TIME_SCALES},
    **{f"own_{int(tau)}": "activity" for tau in TIME_SCALES},
    **{f"joint_{int(tau)}": "activity" for tau in TIME_SCALES},
    "repeats": "activity",
}
"""Name of each statistic, in the order of the arrays, and its view."""

STATIC = 4
"""How many of these, the first, do not depend on the rows before."""


class Units(NamedTuple):
    """Robust units of the columns: u = asinh((x - centre) / scale)."""

    centre: Array  # (D,), median
    scale: Array  # (D,)


class Sample(NamedTuple):
    """Uniform sample of the learned rows, for what is rare at coarse resolution."""

    rows: Array  # (S, D), in the units of the data
    size: Integers  # (1,)
    units: Units
    coordinates: Array  # (D, S), asinh units; 0 for a gap
    ordered: Array  # (D, S), the observed values of each column in ascending order
    observed: Integers  # (D,), how many values of each column are observed


class Among(NamedTuple):
    """Statistics of rows of the sample that do not depend on the rows before, as the present model scores them."""

    ordered: Array  # (4, A), ascending
    size: Integers  # (4,)


class Density(NamedTuple):
    """The mixture at its last refresh, in coordinates z = (x - centre) / scale; the last component is the broad one.

    Covariances of a low-rank mixture are ``W'W + diag(psi)`` with W of Q < D rows, and ``L L' = I + W psi^-1 W'``; the
    arrays then hold the factors, as the second shapes say. The kernels tell both by the shape of `precisions`.
    """

    centre: Array  # (D,)
    scale: Array  # (D,)
    log_weights: Array  # (K,)
    means: Array  # (K, D)
    covariances: Array  # (K, D, D); or (K, Q, D): W
    factors: Array  # (K, D, D), inverse Cholesky factors, lower triangles; or (K, Q + 1, D): 1 / psi, L^-1 W psi^-1
    heights: Array  # (K,), log weight - log|2 pi covariance| / 2
    precisions: Array  # (K, D, D); or (K, Q, Q): L^-1


class Past(NamedTuple):
    """What the own past of each column says about its next value, in fixed asinh units."""

    units: Units
    history: Array  # (LAGS, D), last values, the newest first
    slow: Array  # (D,), exponential mean over ten rows
    coefficients: Array  # (D, REGRESSORS), recursive least squares
    inverse_gram: Array  # (D, REGRESSORS, REGRESSORS)
    mean: Array  # (D,)
    deviation: Array  # (D,), mean absolute deviation from the mean
    error: Array  # (D,), mean absolute prediction error
    variance: Array  # (D,), of the prediction errors
    covariance: Array  # (D, D), of the prediction errors; its diagonal, (D, 1), from more than WIDE columns on
    precision: Array  # its inverse, of the same shape
    level: Array  # (T, D), exponential means of the values
    drift: Array  # (T, D), of the clipped conditional residuals
    own: Array  # (T, D), of the squared residuals of each column
    joint: Array  # (T, D), of the squared conditional residuals
    level_moments: Array  # (2, T, D), running mean and variance of `level`
    drift_moments: Array  # (2, T, D)
    own_moments: Array  # (2, T, D), of the logarithms
    joint_moments: Array  # (2, T, D)
    last: Array  # (D,), the last observed value of each column, in the units of the data
    repeats: Integers  # (D,), how often it has been repeated without a break
    repeat_counts: (
        Array  # (D, 4): rows after a change and repeats among them; rows after a repeat and repeats among them
    )


class Season(NamedTuple):
    """The last rows, and the mean of each column by its phase in the period."""

    ring: Array  # (RING, D), values in the units of the data
    profile: Array  # (RING, D), asinh units
    visits: Array  # (RING,)


class Clock(NamedTuple):
    """Row numbers at which something is due."""

    rows: Integers  # rows seen
    learned: Integers  # rows learned
    predicted: Integers  # rows that the past has learned in its present units
    period: Integers  # rows; 0 where there is none
    next_period: Integers
    next_inverse: Integers
    next_sample: Integers
    next_units: Integers


class Memory(NamedTuple):
    """The latest values of several statistics, and the tail of each beyond its top tenth."""

    ring: Array  # (V, M), in the order in which they came
    ordered: Array  # (V, M), ascending
    size: Integers  # (V,)
    head: Integers  # (V,), slot that the next value takes
    since: Integers  # (V,), values since the tail was fitted
    independent: Array  # (V,), independent values in a remembered one, at most
    threshold: Array  # (V,), where the tail begins
    share: Array  # (V,), log of the share of values beyond it
    scale: Array  # (V,), of the generalised Pareto law of the excess
    shape: Array  # (V,)
    heaviness: Array  # (V,), excess over the top tenth by its mean or median, over the distance from the median to it
    least: Array | None = None  # (V,), independent values in one, at least; None in files written before there was it


class Far(NamedTuple):
    """Rows whose p-value is far out: what the p-values of later ones are calibrated by."""

    excess: Array  # (F,), ring: nats by which the p-value is below the level from which a row is far
    numbers: Integers  # (F,), how many rows had been counted
    size: Integers  # (1,), far rows so far
    rows: Integers  # (1,), rows counted
    budget: Array  # (1,), far rows that may be kept one after the other


class Guard(NamedTuple):
    """Rows that are held back, and how near they are to be a new normal."""

    rows: Array  # (H, D)
    statistics: Array  # (H, V)
    numbers: Integers  # (H,), row numbers
    held: Integers  # (1,), rows held back since the last release; the ring keeps the latest
    pressure: Array  # (1,), rows towards patience
    budget: (
        Array  # (2,), suspicious rows that may be learned as usual ones, and that may be remembered though held back
    )


class Pending(NamedTuple):
    """Rows learned by everything but the mixture, which takes them at its next refresh."""

    rows: Array  # (P, D)
    size: Integers  # (1,)


class State(NamedTuple):
    """Everything but the mixture."""

    clock: Clock
    sample: Sample
    density: Density
    past: Past
    season: Season
    memory: Memory  # of the statistics
    combined: Memory  # of the combined score, V = 1
    guard: Guard
    pending: Pending
    far: Far | None = None  # None in files that were written before there was one, as the next two
    recent: Array | None = None  # (1,), exponential mean of the latest rows' scores
    lasting: Memory | None = None  # of the score with those of the rows before, of rows that are not suspicious; V = 1
    among: Among | None = None


class Settings(NamedTuple):
    """Numbers that stay the same for the whole stream."""

    false_alarm_rate: float
    guard_level: float  # rows below this p-value are held back
    patience: float
    learning: int  # 0 never, 1 guarded, 2 always
    grace: int  # rows that are learned whatever they are
    time_scales: Array  # (T,)
    strides: Integers  # (V,), every how many rows a statistic is remembered
    views: Integers  # (V,), view of each statistic
    weights: Array  # (number of views, 2), where the past predicts nothing, and where it does
    usual_heaviness: Array  # (V,), of the tail of a statistic on Gaussian rows; 0 where heavy tails say nothing
    sharpness: float  # of the mean over views: 1 is the harmonic mean of p-values
    persistence: float  # weight of the scores of the rows before, where the past predicts a row
    persistence_rows: float  # over which these are averaged
    most_persistent: float  # nats that one row adds to their mean at most
    seed: int


class Info(NamedTuple):
    """What was seen while learning: of each row, before it was learned."""

    log_p: Array  # (n,), log p-value of the combined score
    undiscounted: Array  # (n,), the same without the chance that rows which are held back will stay
    score: Array  # (n,), combined score, nats
    parts: Array  # (n, V), -log p-value of each statistic; NaN where it has none
    held: NDArray[np.bool_]  # (n,), whether the row was held back
    blamed: Integers  # (n,), the column that stands out most; -1 for rows that raised no alarm


class Scratch(NamedTuple):
    """Room for one row's work."""

    z: Array  # (D,)
    u: Array  # (D,)
    e: Array  # (D,)
    given_others: Array  # (D,)
    places: Integers  # (D,), of the observed columns
    block: Array  # (D, D), or (Q, Q) for low-rank components
    joint: Array  # (K,)
    squares: Array  # (S,)
    regressors: Array  # (D, REGRESSORS)
    gain: Array  # (REGRESSORS,)
    predicted: Array  # (D,)
    error: Array  # (D,)
    own: Array  # (D,)
    joint_residual: Array  # (D,)
    trusted: Array  # (D,)
    means: Array  # (4, T, D): level, drift, own, joint
    statistics: Array  # (V,)
    parts: Array  # (V,)
    sums: Array  # (number of views, 3): of 1/p, of the statistics' weights, factor of the view's weight
    blame: Array  # (D,)


class Task(NamedTuple):
    """What the kernels of rows work on."""

    state: State
    settings: Settings
    scratch: Scratch
