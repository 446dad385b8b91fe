"""A mixture over other columns: the same ones in another order, or with columns that its rows never had.

A column that a model lacks is a gap in each of its rows. The model then gets what online EM gives to rows with gaps:
the expected moments of the column given the others, here under the mixture of models that have it (the donor).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.mixture import Mixture
from everlearn.mixture.keep import carry
from everlearn.mixture.keep.carry import Stock
from everlearn.mixture.keep.reconsider import mixture_of
from everlearn.mixture.keep.world import world_of_moments
from everlearn.mixture.state import Array, Frame, Model, Reservoir, Settings, Shape, State, World

Indices = NDArray[np.intp]


class Gap(NamedTuple):
    """A column that is added: where the columns that both models have stand, and which column of the donor it is."""

    own: Indices  # (S,), columns of the model
    shared: Indices  # (S,), the same columns in the donor
    column: int  # of the donor


def reordered(state: State, order: Indices, settings: Settings) -> State:
    """The state with its columns in another order; no rows may be pending, unless it is warming up."""
    square = np.ix_(order, order)
    frame = None if state.frame is None else Frame(*(values[order] for values in state.frame))
    reservoir = state.reservoir._replace(rows=np.ascontiguousarray(state.reservoir.rows[:, order]))
    pending = state.pending._replace(rows=np.ascontiguousarray(state.pending.rows[:, order]))
    state = state._replace(frame=frame, reservoir=reservoir, pending=pending)
    if state.model is None:
        return state
    shape, world = state.model.shape, state.model.world
    mass, counts, means, scatter = carry.stock_of_components(state.model.components)
    stock = Stock(mass, counts, means[:, order], scatter[:, order][:, :, order])
    shape = shape._replace(matrix=shape.matrix[square], ridge=shape.ridge[order])
    world = world_of_moments(
        world.background.centre[order], world.covariance[square], world.typical[square],
        world.variance[order], world.smooth[order], state.model.fine,
    )  # fmt: skip
    return state._replace(model=_rebuilt(state.model, stock, shape, world, settings))


def with_gap(state: State, donor: State, gap: Gap, settings: Settings) -> State:
    """The state with one column more, at the end: unobserved in all of its rows, and as `donor` expects it.

    No rows may be pending, unless the state is warming up; the donor must have components.
    """
    assert donor.frame is not None
    assert donor.model is not None
    nothing = np.full((len(state.pending.rows), 1), np.nan)
    pending = state.pending._replace(rows=np.hstack([state.pending.rows, nothing]))
    reservoir = state.reservoir._replace(rows=_with_empty_column(state.reservoir))
    state = state._replace(pending=pending, reservoir=reservoir)
    if state.frame is None or state.model is None:
        return state._replace(frame=state.frame and _extended_frame(state.frame, donor.frame, gap.column))
    stock = _expected(state, donor, gap)
    shape = _extended_shape(state.model.shape, donor.model.shape, gap)
    whole = carry.sum_of(stock)
    covariance = whole.scatter[0] / max(float(whole.counts[0]), 1e-9)
    theirs, mine = donor.model.world, state.model.world
    world = world_of_moments(
        whole.means[0], covariance, covariance,
        np.append(mine.variance, theirs.variance[gap.column]), np.append(mine.smooth, theirs.smooth[gap.column]),
        state.model.fine,
    )  # fmt: skip
    frame = _extended_frame(state.frame, donor.frame, gap.column)
    return state._replace(frame=frame, model=_rebuilt(state.model, stock, shape, world, settings))


def _rebuilt(model: Model, stock: Stock, shape: Shape, world: World, settings: Settings) -> Model:
    total = float(model.components.total[0])
    K = len(stock.mass)
    components = carry.components_of(stock, total, shape, carry.room_for(K, settings), settings.parts)
    return Model(components, shape, world, model.fine, K)


def _with_empty_column(sample: Reservoir) -> NDArray[np.float32]:
    rows, n = sample.rows, int(sample.size[0])
    out = np.zeros((len(rows), rows.shape[1] + 1), np.float32)
    out[:, :-1] = rows
    out[:n, -1] = np.nan
    return out


def _extended_frame(frame: Frame, donor: Frame, column: int) -> Frame:
    return Frame(*(np.append(mine, theirs[column]) for mine, theirs in zip(frame, donor, strict=True)))


def _extended_shape(shape: Shape, donor: Shape, gap: Gap) -> Shape:
    """The common shape without correlations of the new column: a search on the rows of all replaces it."""
    D = len(shape.ridge)
    matrix = np.zeros((D + 1, D + 1))
    matrix[:D, :D] = shape.matrix
    matrix[D, D] = donor.matrix[gap.column, gap.column]
    return shape._replace(matrix=matrix, ridge=np.append(shape.ridge, donor.ridge[gap.column]))


def _expected(state: State, donor: State, gap: Gap) -> Stock:
    """Moments of the components with those of the new column, as the donor's mixture expects it from the others.

    For a component with mean m and covariance S of the shared columns, donor component g counts by its density at the
    component, N(m; mu_g, Sigma_g + S), and gives the column the mean mu_c + B (m - mu_g) with B = Sigma_cx Sigma_xx^-1,
    the variance Sigma_cc - B Sigma_xc + B S B' and the covariances B S with the columns of the component.
    """
    assert state.model is not None
    assert donor.model is not None
    assert state.frame is not None
    assert donor.frame is not None
    stock = carry.stock_of_components(state.model.components)
    K, D = stock.means.shape
    mixture = mixture_of(donor.model)
    # In the donor's coordinates on the shared columns; the new column keeps them.
    ratio = donor.frame.inverse[gap.shared] / state.frame.inverse[gap.own]
    offset = (state.frame.centre[gap.own] - donor.frame.centre[gap.shared]) * donor.frame.inverse[gap.shared]
    means, scatter = np.zeros((K, D + 1)), np.zeros((K, D + 1, D + 1))
    means[:, :D], scatter[:, :D, :D] = stock.means, stock.scatter
    for k in range(K):
        covariance = stock.scatter[k] / max(stock.counts[k], 1e-9)
        S = covariance[np.ix_(gap.own, gap.own)] * ratio * ratio[:, None]
        m = stock.means[k, gap.own] * ratio + offset
        rows = covariance[gap.own] * ratio[:, None]  # of the shared columns with all columns of the component
        mean, variance, cross = _conditional_moments(mixture, gap, m, S, rows)
        means[k, D] = mean
        scatter[k, D, :D] = scatter[k, :D, D] = cross * stock.counts[k]
        scatter[k, D, D] = variance * stock.counts[k]
    return Stock(stock.mass, stock.counts, means, scatter)


def _conditional_moments(mixture: Mixture, gap: Gap, m: Array, S: Array, rows: Array) -> tuple[float, float, Array]:
    """Mean and variance of the donor's column, and its covariances with the columns of a component."""
    x, c = gap.shared, gap.column
    square = np.ix_(x, x)
    if len(x):
        near = Mixture(mixture.weights, mixture.means[:, x], mixture.covariances[:, x][:, :, x] + S)
        r = mixtures.responsibilities(m[None], near)[0]
    else:
        r = mixture.weights
    B = np.array([np.linalg.solve(covariance[square], covariance[x, c]) for covariance in mixture.covariances])
    own = mixture.means[:, c] + np.sum(B * (m - mixture.means[:, x]), axis=1)
    left = mixture.covariances[:, c, c] - np.sum(B * mixture.covariances[:, c, x], axis=1)
    mean = float(r @ own)
    variance = float(r @ (left + np.einsum("gi,ij,gj->g", B, S, B) + (own - mean) ** 2))
    return mean, variance, np.asarray((r @ B) @ rows)
