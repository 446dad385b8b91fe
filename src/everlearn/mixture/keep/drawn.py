"""Rows for a search where none are kept: drawn from the components, by what they know of the shape of their rows."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from everlearn.mixture.kernels.projection import LEAST, SEEDS
from everlearn.mixture.state import Array, Components, Model

# Gaussians along the axis of a component, and a single one beside them.
PARTS = len(SEEDS) + 1
# Rows that are drawn: so many, and so many a column if that is more.
ROWS, ROWS_A_COLUMN = 1000, 100
# Nats that they must have gained on new rows before a search hears of them: chance in one of 3,000.
PAYS = 8.0


def draw(model: Model, n: int, seed: int) -> Array:
    """Rows that a search of a stream of n rows works on; the components must have been refreshed.

    No more than have been learned: components that chance has made then do not pay their price. The draws of a
    component have exactly its mean and covariance where they are enough for that.
    """
    components, K = model.components, int(model.components.size[0])
    mass = components.mass[:K]
    size = max(min(max(ROWS, ROWS_A_COLUMN * len(model.shape.ridge)), n), 2 * K)
    # Systematic rounding: the shares of many small components add up as they should.
    ends = np.round(np.cumsum(mass) / mass.sum() * size).astype(int)
    rng = np.random.default_rng([seed & 0xFFFFFFFF, n, 4])
    rows = []
    for k, m in enumerate(np.diff(ends, prepend=0)):
        evidence, _, left = components.progress[k]
        # Who tries many axes finds one by chance.
        pays = evidence > PAYS + np.log1p(left)
        rows.append(components.means[k] + (_with_axis if pays else _of_moments)(components, k, m, rng))
    return np.concatenate(rows)


def _of_moments(components: Components, k: int, m: int, rng: np.random.Generator) -> Array:
    """Deviations of draws with the moments that the rows of component k had.

    Not with its covariance, in which the prior would count once more: what few rows have left then goes over into
    other components without it.
    """
    lower = components.scatter[k]
    values, vectors = np.linalg.eigh(lower + np.tril(lower, -1).T)
    spread = np.sqrt(np.maximum(values, 0.0) / max(components.counts[k], 1e-9))
    return np.asarray(_standardised(rng.standard_normal((m, len(lower)))) * spread @ vectors.T)


def _with_axis(components: Components, k: int, m: int, rng: np.random.Generator) -> Array:
    """Deviations of draws that are a mixture along the axis of component k, and a Gaussian in all other directions."""
    counts, means, squares = components.along[k, :-1].T
    label = rng.choice(len(counts), m, p=counts / counts.sum())
    std = np.sqrt(np.maximum(squares / counts, LEAST))
    axis, U = components.axes[k], rng.standard_normal((m, components.means.shape[1]))
    along = means[label] + std[label] * rng.standard_normal(m)
    U += (along - U @ axis)[:, None] * axis
    return np.asarray(solve_triangular(components.factors[k], _standardised(U).T, lower=True).T)


def _standardised(U: Array) -> Array:
    """The same rows with mean 0 and covariance 1; with too few rows, as they are."""
    m, D = U.shape
    if m < 2 * D + 2:
        return U
    E = U - U.mean(axis=0)
    return np.asarray(solve_triangular(np.linalg.cholesky(E.T @ E / m), E.T, lower=True).T)


def try_other_axes(components: Components) -> None:
    """Where a search has not made use of an axis, the next one is tried, in place."""
    used = components.progress[:, 0] > PAYS
    components.progress[used, :2] = 0.0
    components.progress[used, 2] += 1.0
