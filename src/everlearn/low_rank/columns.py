"""A low-rank mixture over other columns: the same ones in another order, or with columns that its rows never had.

A column that a model lacks is a gap in each of its rows. The model gets what its other columns say about it under the
mixture of a model that has it, the donor: an expected value, a linear dependence, and what is left uncertain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.base.scaling import nearest_power_of_two
from everlearn.gaussian.factor_analysers import FactorMixture, posterior
from everlearn.gaussian.mixture import posterior_weights
from everlearn.low_rank.keep.reconsider import flushed
from everlearn.low_rank.kernels.fold import top_directions
from everlearn.low_rank.state import Components, Frame, Settings, State, model_of, no_components

Indices = NDArray[np.intp]
# Components of the donor that count for less than this at a component say nothing about it.
SMALL = 1e-3


class Gap(NamedTuple):
    """Columns that are added at the end: where the columns that both models have stand, and those of the donor."""

    own: Indices  # (S,), columns of the model
    shared: Indices  # (S,), the same columns in the donor
    columns: Indices  # (C,), of the donor


def reordered(state: State, order: Indices, settings: Settings) -> State:
    """The state with its columns in another order; rows that wait are learned."""
    frame = None if state.frame is None else Frame._make(values[order] for values in state.frame)
    pending = state.pending._replace(rows=np.ascontiguousarray(state.pending.rows[:, order]))
    new = state._replace(frame=frame, pending=pending)
    if state.model is None:
        return new
    c = flushed(state, settings)
    turned = {name: np.ascontiguousarray(getattr(c, name)[..., order]) for name in ("mean", "directions", "diagonal")}
    reservoir = state.model.reservoir
    reservoir = reservoir._replace(rows=np.ascontiguousarray(reservoir.rows[:, order]))
    model = model_of(c._replace(**turned), settings, reservoir)
    return new._replace(model=model._replace(calibration=state.model.calibration.copy()))


def with_gap(state: State, donor: FactorMixture, gap: Gap, settings: Settings) -> State:
    """The state with more columns, unobserved in all of its rows, and as `donor`, in the units of the data, expects."""
    C, nothing = len(gap.columns), np.full((len(state.pending.rows), len(gap.columns)), np.nan)
    pending = state.pending._replace(rows=np.hstack([state.pending.rows, nothing]))
    frame = state.frame and _extended_frame(state.frame, donor, gap)
    new = state._replace(frame=frame, pending=pending)
    if state.model is None or frame is None:
        return new
    D = len(frame.centre)
    place, inverse = frame.centre[_places(gap, D)], frame.inverse[_places(gap, D)]
    donor = FactorMixture(
        donor.weights, (donor.means[:, _theirs(gap)] - place) * inverse, donor.loadings[:, :, _theirs(gap)] * inverse,
        donor.noise[:, _theirs(gap)] * inverse**2,
    )  # fmt: skip
    before, out = flushed(state, settings), no_components(len(state.model.components.n), D, settings.rank)
    for k in range(len(before.n)):
        _extend(before, k, donor, gap.own, out)
    sample, n = state.model.reservoir, int(state.model.reservoir.size[0])
    rows = np.zeros((len(sample.rows), D), np.float32)
    rows[:, : D - C] = sample.rows
    rows[:n, D - C :] = np.nan
    model = model_of(out, settings, sample._replace(rows=rows))
    # A squared distance grows with the number of columns, its cube root with the third root of it.
    more = (D / (D - C)) ** (1.0 / 3.0)
    calibration = state.model.calibration * np.array([1.0, more, more**2])
    return new._replace(model=model._replace(calibration=calibration))


def with_rank(state: State, settings: Settings) -> State:
    """The state for settings that keep another number of directions; those of the least scatter are dropped."""
    if state.model is None or state.model.components.directions.shape[1] == settings.rank:
        return state
    c = state.model.components
    kept, Q = min(c.directions.shape[1], settings.rank), settings.rank
    out = no_components(len(c.n), c.mean.shape[1], Q)
    for name in ("directions", "scatter", "held", "expected"):
        getattr(out, name)[:, :kept] = getattr(c, name)[:, :kept]
    same = {name: getattr(out, name) for name in ("directions", "scatter", "held", "expected")}
    c = c._replace(used=np.minimum(c.used, kept), **same)
    model = model_of(c, settings, state.model.reservoir)
    return state._replace(model=model._replace(calibration=state.model.calibration.copy()))


def _places(gap: Gap, D: int) -> Indices:
    """Columns of the extended model that the donor knows: the shared ones, then the new ones."""
    return np.concatenate([gap.own, np.arange(D - len(gap.columns), D)])


def _theirs(gap: Gap) -> Indices:
    """The same columns in the donor."""
    return np.concatenate([gap.shared, gap.columns])


def _extended_frame(frame: Frame, donor: FactorMixture, gap: Gap) -> Frame:
    """The frame with the new columns, about the donor's means; one unit for all columns stays one."""
    means = donor.means[:, gap.columns]
    centre = donor.weights @ means
    W = donor.loadings[:, :, gap.columns]
    variance = donor.weights @ (donor.noise[:, gap.columns] + (W * W).sum(axis=1) + (means - centre) ** 2)
    scale = np.full(len(centre), 1.0 / frame.inverse[0])
    if (frame.inverse != frame.inverse[0]).any():
        scale = nearest_power_of_two(np.sqrt(variance))
    return Frame(
        np.append(frame.centre, centre),
        np.append(frame.inverse, 1.0 / scale),
        np.append(frame.log_scale, np.log(scale)),
    )


def _extend(c: Components, k: int, donor: FactorMixture, own: Indices, out: Components) -> None:
    """Component k with the columns of the donor behind the shared ones, into `out`.

    Under component g of the donor the new columns are ``mu_c + W_c' A (x_s - mu_s)`` and noise, with
    ``A = M^-1 W_s psi_s^-1`` and ``M = I + W_s psi_s^-1 W_s'``; what the shared columns leave open of the factors has
    the covariance M^-1. The components of the donor count by their density at the mean of component k.
    """
    for name in ("mass", "n", "borrowed"):
        getattr(out, name)[k] = getattr(c, name)[k]
    D, S, n, r = c.mean.shape[1], len(own), c.n[k] + c.borrowed[k], int(c.used[k])
    found = posterior(donor, np.arange(S), c.mean[k, own][None])
    share = posterior_weights(found.log_joint, donor.weights)[0]
    expected = donor.means[:, S:] + np.einsum("gq,gqc->gc", found.latent[0], donor.loadings[:, :, S:])
    mean = share @ expected
    sketch = np.sqrt(c.scatter[k, :r])[:, None] * c.directions[k, :r]
    # Scatter of the columns off the directions: it moves the new columns as well, each column by itself.
    rest = np.maximum(c.diagonal[k] - (sketch * sketch).sum(axis=0), 0.0)[own]
    moved, free = np.zeros((r, len(mean))), []
    for g in np.flatnonzero(share > SMALL):
        W, inverse = donor.loadings[g], found.inverse[g]
        A = inverse.T @ (inverse @ (W[:, :S] / donor.noise[g, :S]))
        moved += share[g] * (sketch[:, own] @ A.T) @ W[:, S:]
        # Factors that the shared columns leave open, and those that their noise moves.
        value, V = np.linalg.eigh(n * inverse.T @ inverse + (A * rest) @ A.T)
        free.append(np.sqrt(share[g] * np.maximum(value, 0.0))[:, None] * (V.T @ W[:, S:]))
    added = np.concatenate(free)
    Z = np.block([[sketch, moved], [np.zeros((len(added), D)), added]])
    out.mean[k] = np.append(c.mean[k], mean)
    noise = n * share @ (donor.noise[:, S:] + (expected - mean) ** 2)
    out.diagonal[k] = np.append(c.diagonal[k], (moved**2).sum(axis=0) + (added**2).sum(axis=0) + noise)
    out.trace[k] = out.diagonal[k].sum()
    most = min(out.scatter.shape[1], Z.shape[1] - 1)
    out.used[k] = top_directions(Z, most, out.directions[k], out.scatter[k])
