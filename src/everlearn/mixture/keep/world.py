"""What all rows of a sample have in common: centre, covariance, trimmed variances, smooth columns; and the frame."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from everlearn.mixture.kernels.covariance import LOG_2PI, inverse_factor
from everlearn.mixture.state import Array, Background, Frame, World

Indices = NDArray[np.intp]

# Ridge of a column, in units of its trimmed variance.
RIDGE = 1e-3
# Share of the values of a column, those farthest from its median, that its trimmed variance leaves out.
TRIMMED = 0.01
# A row is a gross outlier if a column of it lies so many trimmed standard deviations from the median.
OUTLYING = 20.0
# More outlying rows than this share are a group of their own and not left out.
MAX_OUTLYING = 0.02
# Correlations are shrunk where there are fewer rows than this for each column that varies.
ROWS_A_COLUMN = 10.0
# A column is smooth if this share of its values is distinct; only there may the ridge be smaller.
DISTINCT = 0.9


def frame_of_rows(X: Array) -> Frame:
    """Median and power-of-two scale of each column over its observed cells; a row that comes twice counts once."""
    X = np.unique(X, axis=0)
    centre = np.array([np.median(v) if len(v) else 0.0 for v in _observed(X)])
    std = np.sqrt(trimmed_variances(X, centre))
    # Below the rounding of the centre a column does not vary.
    std = np.where(std > 1e-12 * np.abs(centre), std, 0.0)
    return frame_of_spread(centre, std)


def frame_of_spread(centre: Array, std: Array) -> Frame:
    """Frame for columns of known spread; a column that does not vary takes the largest."""
    std = np.where(std > 0.0, std, std.max(initial=0.0))
    std = np.where(std > 0.0, std, 1.0)
    power = np.clip(np.round(np.log2(std)), -1000, 1000)
    return Frame(centre, np.exp2(-power), power * np.log(2.0))


def trimmed_variances(X: Array, centre: Array) -> Array:
    """Variance of each column without the values farthest from `centre`; of all where the rest does not vary."""
    out = np.zeros(X.shape[1])
    for j, values in enumerate(_observed(X)):
        if len(values):
            n = len(values) - int(np.ceil(TRIMMED * len(values)))
            # A partition and no sort, which of 34 columns would take a tenth of a whole search.
            kept = values[np.argpartition(np.abs(values - centre[j]), n)[:n]]
            out[j] = (np.var(kept) if len(kept) else 0.0) or np.var(values)
    return out


def world_of_rows(Z: Array, weights: Array, fine: float, unseen: Indices | None = None) -> World:
    """The world of a sample without gaps.

    Columns that are `unseen` have variance 1: the frame has given them a scale, and nothing else is known.
    """
    centre = weights @ Z / weights.sum()
    covariance = _covariance(Z, weights, centre)
    median = np.median(Z, axis=0)
    trimmed = trimmed_variances(Z, median)
    # Gross outliers are left out of the typical covariance, which shapes are made of; the background keeps them.
    kept = weights * _is_typical(Z, median, trimmed)
    typical = _covariance(Z, kept, kept @ Z / kept.sum())
    if unseen is not None:
        covariance[unseen, unseen] = 1.0
    return world_of_moments(centre, covariance, typical, _variances_for_ridge(trimmed), smooth_columns(Z), fine)


def world_of_moments(
    centre: Array, covariance: Array, typical: Array, variance: Array, smooth: NDArray[np.bool_], fine: float
) -> World:
    """The world of rows whose moments are known."""
    full = covariance + np.diag(ridge_of(variance, smooth, fine))
    factor, log_det = inverse_factor(full)
    height = float(-0.5 * (len(centre) * LOG_2PI + log_det))
    return World(Background(centre, factor, height), covariance, typical, variance, smooth)


def with_ridge(world: World, fine: float) -> World:
    """The same world with another ridge on smooth columns."""
    return world_of_moments(world.background.centre, *world[1:], fine)


def _variances_for_ridge(trimmed: Array) -> Array:
    """Trimmed variances; a column that does not vary takes the largest."""
    top = trimmed.max(initial=0.0)
    top = top if top > 0.0 else 1.0
    return np.where(trimmed > 1e-12 * top, trimmed, top)


def ridge_of(variance: Array, smooth: NDArray[np.bool_], fine: float) -> Array:
    """Variance that is added to every covariance: smaller on smooth columns, so that ties cannot become spikes."""
    return np.asarray(RIDGE * variance * np.where(smooth, fine, 1.0))


def smooth_columns(Z: Array) -> NDArray[np.bool_]:
    """Columns in which hardly a value is seen twice."""
    return np.array([len(v) > 20 and len(np.unique(v)) > DISTINCT * len(v) for v in _observed(Z)])


def _is_typical(Z: Array, median: Array, trimmed: Array) -> NDArray[np.bool_]:
    std = np.sqrt(trimmed)
    far = (np.abs(Z - median) > OUTLYING * np.where(std > 0.0, std, np.inf)).any(axis=1)
    return np.asarray(~far | (far.mean() > MAX_OUTLYING))


def _covariance(Z: Array, weights: Array, centre: Array) -> Array:
    """Covariance; with few rows it has no correlations, which would be those of chance."""
    E, spare = Z - centre, max(weights.sum() - 1.0, 1.0)
    covariance = (E * weights[:, None]).T @ E / spare
    return uncorrelated_by_chance(covariance, spare, int(np.count_nonzero(np.diag(covariance))))


def uncorrelated_by_chance(covariance: Array, rows: float, varying: int) -> Array:
    """Covariance without the correlations that are chance: nearly all of few rows, none from ROWS_A_COLUMN on."""
    chance = max(0.0, 1.0 - rows / (ROWS_A_COLUMN * max(varying, 1)))
    return np.asarray(covariance - chance * (covariance - np.diag(np.diag(covariance))))


def _observed(X: Array) -> list[Array]:
    return [column[~np.isnan(column)] for column in X.T]
