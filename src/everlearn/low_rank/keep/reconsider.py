"""A structure search on the reservoir, and what is carried over from all rows before it."""

from __future__ import annotations

import numpy as np

from everlearn.base.snapshot import copied
from everlearn.gaussian.factor_analysers import FactorMixture, draw_gaps
from everlearn.gaussian.mixture import patterns
from everlearn.linalg.backend_torch import TorchDevice
from everlearn.low_rank.device import SentRows
from everlearn.low_rank.keep.room import learn_by_best
from everlearn.low_rank.keep.search import Labels, log_joint, search
from everlearn.low_rank.keep.slices import Work, at_once
from everlearn.low_rank.kernels.fold import fold, top_directions
from everlearn.low_rank.state import (
    Components,
    Model,
    Readout,
    Reservoir,
    Settings,
    State,
    counted,
    joined,
    model_of,
    no_components,
    readout_of,
    rule_of,
    take,
)
from everlearn.typing import Array

# Sampled rows of a smaller weight, relative to the heaviest, take no part in a search.
FADED = 1e-3
# Share of the sampled rows of a component and of a group that must be the same for the component to be carried over.
SAME = 0.9
# Times that the gaps of the sampled rows are filled, at most.
COMPLETIONS = 4
# Rows of a slice whose gaps are filled.
FILLED_ROWS = 16
# Rows that the calibration counts for after a search has changed the components.
RECALIBRATED = 50.0


def factor_mixture(components: Components, readout: Readout) -> FactorMixture:
    """The components as a mixture of factor analysers, in the coordinates of the frame."""
    loadings = np.sqrt(readout.loading)[:, :, None] * components.directions
    return FactorMixture(components.mass / components.mass.sum(), components.mean, loadings, 1.0 / readout.inverse_psi)


def flushed(state: State, settings: Settings) -> Components:
    """Components that have learned every row, those that wait and those in the room included; copies."""
    assert state.model is not None
    model = copied(state.model)
    rule = rule_of(state, settings)
    if model.room.size[0]:
        readout = readout_of(model.components, state.prior_noise, settings.isotropic)
        size = model.room.size[0]
        learn_by_best(model, model.room.rows[:size], model.room.weights[:size], readout, rule)
    for j in range(len(model.components.n)):
        fold(model.components, model.waiting, j, settings.fading)
    return model.components


def sampled(reservoir: Reservoir, settings: Settings) -> tuple[Array, Array, float]:
    """Rows of the reservoir that still count, the weight of each, and how many rows each stands for."""
    rate = -np.log(settings.fading)
    age = rate * max(int(reservoir.offered[0]) - 1, 0)
    size = reservoir.size[0]
    if size == 0:
        return reservoir.rows[:0].astype(np.float64), np.zeros(0), 1.0
    # Weights were recorded as growing with time; relative to the last row they are the faded ones.
    own = np.exp(reservoir.log_weights[:size] - age)
    # Priority sampling: a kept row of weight w stands for max(w, threshold).
    stands_for = np.maximum(own, np.exp(reservoir.level[0] - age))
    slots = np.flatnonzero(stands_for > FADED * stands_for.max())
    ratio = max(float(stands_for[slots].sum() / own[slots].sum()), 1.0)
    return reservoir.rows[slots].astype(np.float64), stands_for[slots] / ratio, ratio


def reconsider(state: State, settings: Settings, device: TorchDevice | None = None) -> State:
    """The state with the structure that a search on its reservoir finds; nothing of `state` changes.

    On a `device` the rows of the reservoir are scored there.
    """
    assert state.model is not None
    work = reconsideration(state, settings, device)
    return at_once(work, state.model.components.mean.shape[1])  # type: ignore[no-any-return]


def nothing_to_find(state: State, settings: Settings) -> bool:
    """Whether a search could change nothing."""
    return state.model is not None and settings.fixed == len(state.model.components.n) == 1


def reconsideration(state: State, settings: Settings, device: TorchDevice | None = None) -> Work:
    """`reconsider` as work in slices."""
    assert state.model is not None
    if nothing_to_find(state, settings):
        return state._replace(searched=state.n)
    before = flushed(state, settings)
    sample, weights, ratio = sampled(state.model.reservoir, settings)
    # What is fitted to faded rows is as sure as that of their effective number (Kish, 1965), not of their weight: half
    # as many parameters overfit as it seems, and groups were split that a wrong noise did not fit.
    sure = max(float(weights.sum() / (weights @ weights)), 1.0) if settings.fading < 1.0 else 1.0
    gaps = bool(np.isnan(sample).any())
    rng = np.random.default_rng([settings.seed, state.n])
    found, own, labels = before, np.zeros(0, np.intp), np.zeros(0, np.intp)
    # Gaps that were filled by few components hide that there are more: what is found fills them anew.
    for step in range(COMPLETIONS if gaps else 1):
        rows, readout = sample, readout_of(found, state.prior_noise, settings.isotropic)
        if gaps:
            rows = yield from _filled(sample, factor_mixture(found, readout), rng)
        sent = None if device is None else SentRows(device, rows)
        joint = yield from log_joint(rows, found, readout, sent)
        start = np.argmax(joint, axis=1)
        own, K = (own if step else start), len(found.n)
        found, labels = yield from search(rows, sure * weights, start, state.prior_noise, settings, sent)
        if len(found.n) == K:
            break
    found = counted(found, 1.0 / sure)
    groups = np.bincount(labels, weights, len(found.n))
    # While all rows are at hand, a refit is as good; only one component for all of them has nothing to gain by it.
    if ratio > 1.0 + 1e-6 or len(before.n) == len(found.n) == 1:
        components = carried(before, own, found, labels, groups / groups.sum())
    else:
        components = found._replace(mass=groups / groups.sum() * before.mass.sum())
    model = model_of(components, settings, state.model.reservoir)
    calibration = state.model.calibration.copy()
    calibration[0] = min(calibration[0], RECALIBRATED)
    return state._replace(searched=state.n, model=model._replace(calibration=calibration))


def _filled(sample: Array, mixture: FactorMixture, rng: np.random.Generator) -> Work:
    """Rows with their gaps filled by draws, some rows a slice: in the order of `draw_gaps`, pattern by pattern."""
    out = np.empty_like(sample)
    order = np.concatenate([rows for _, rows in patterns(sample)])
    for start in range(0, len(order), FILLED_ROWS):
        some = order[start : start + FILLED_ROWS]
        out[some] = draw_gaps(sample[some], mixture, rng)
        yield
    return out


def carried(before: Components, own: Labels, found: Components, labels: Labels, shares: Array) -> Components:
    """The components found; of a group that is that of one or several earlier components, what all rows said.

    So it is with mixture weights: earlier ones were counted over all rows, `shares` over those of the sample.
    """
    K = len(before.n)
    table = np.zeros((K, len(found.n)))
    np.add.at(table, (own, labels), 1.0)
    inside = table >= SAME * np.maximum(table.sum(axis=1, keepdims=True), 1.0)
    inside &= table.sum(axis=1, keepdims=True) > 0.0
    parts, refitted = [], np.zeros(len(found.n), np.bool_)
    for k in range(len(found.n)):
        which = np.flatnonzero(inside[:, k])
        same = len(which) and table[which, k].sum() >= SAME * table[:, k].sum()
        refitted[k] = not (same and before.n[which].sum() >= found.n[k])
        parts.append(take(found, np.array([k])) if refitted[k] else merged(take(before, which)))
    out = joined(parts)
    total = before.mass.sum()
    # The weight that is not counted over all rows is shared out as the sample says, so that the total stays.
    rest = max(total - out.mass[~refitted].sum(), 0.0)
    out.mass[refitted] = rest * shares[refitted] / max(shares[refitted].sum(), 1e-300)
    out.mass[:] *= total / out.mass.sum()
    return out


def merged(parts: Components) -> Components:
    """Several components as one: exact up to the cut to the kept directions (Chan, Golub and LeVeque, 1983)."""
    K, Q, D = parts.directions.shape
    if K == 1:
        return parts
    out = no_components(1, D, Q)
    for name in ("mass", "n", "borrowed", "trace", "diagonal", "held", "expected", "residual", "held_rows"):
        getattr(out, name)[0] = getattr(parts, name).sum(axis=0)
    total = max(out.n[0], 1e-300)
    out.mean[0] = parts.mean[0] + parts.n / total @ (parts.mean - parts.mean[0])
    # Scatter about the common mean: within the parts, plus n_i times the square of the step to each of their means.
    steps = np.sqrt(parts.n)[:, None] * (parts.mean - out.mean[0])
    sketches = [np.sqrt(parts.scatter[j, :r])[:, None] * parts.directions[j, :r] for j, r in enumerate(parts.used)]
    out.used[0] = top_directions(np.concatenate([*sketches, steps]), min(Q, D - 1), out.directions[0], out.scatter[0])
    out.diagonal[0] += (steps * steps).sum(axis=0)
    out.trace[0] += (steps * steps).sum()
    return out


def first_model(rows: Array, weights: Array, reservoir: Reservoir, prior_noise: float, settings: Settings) -> Model:
    """The model of the rows of the warm-up, which have no gaps."""
    found, _ = at_once(search(rows, weights, np.zeros(len(rows), np.intp), prior_noise, settings), rows.shape[1])
    return model_of(found, settings, reservoir)
