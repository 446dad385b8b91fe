"""Low-rank mixtures learned apart become one: components side by side, reservoirs by priority, one search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from everlearn.low_rank import learn
from everlearn.low_rank.keep.reconsider import flushed, merged, reconsider
from everlearn.low_rank.kernels.fold import top_directions
from everlearn.low_rank.learn import Progress, in_frame
from everlearn.low_rank.state import (
    Components,
    Frame,
    Reservoir,
    Settings,
    State,
    counted,
    empty_reservoir,
    joined,
    model_of,
    readout_of,
    take,
)
from everlearn.typing import Array

# Pairs whose exact cost of merging is looked at, the cheapest by their means first.
SCREENED = 8


class Part(NamedTuple):
    """A model that takes part, and how many rows each of its rows counts for."""

    state: State
    share: float
    isotropic: bool = False  # whether its components have isotropic noise


def merge(parts: Sequence[Part], settings: Settings, *, search: bool = True, most: int | None = None) -> State:
    """One state that stands for the rows of all parts, which stay as they are.

    Components stand side by side and are reduced by Runnalls' cost to what may be kept, exactly up to the cut to the
    kept directions; then one search on the merged reservoirs reconsiders them. Rows of parts that are still warming up
    are learned then. With `most`, the warm-up ends here for all, and at most so many components are kept. The noise is
    isotropic if it is in all parts.
    """
    settings = settings._replace(isotropic=all(part.isotropic for part in parts))
    if most is not None:
        parts = [_past_warmup(part, settings) for part in parts]
    settled = [part for part in parts if part.state.model is not None]
    if settled:
        state = _united(settled, settings, search=search, most=most)
    else:
        first = parts[0].state
        state = learn.init(first.pending.rows.shape[1], settings, first.frame)
    progress = Progress()
    for part in parts:
        rows, weights, n = part.state.pending
        if n:
            state, _ = learn.learn(state, rows[:n].copy(), weights[:n] * part.share, settings, progress)
    return state


def _past_warmup(part: Part, settings: Settings) -> Part:
    if part.state.model is not None:
        return part
    return part._replace(state=learn.started(part.state, settings))


def _united(parts: Sequence[Part], settings: Settings, *, search: bool, most: int | None) -> State:
    states = [part.state for part in parts]
    frame = _common_frame(states)
    stocks, noises, calibrations = [], [], []
    for state, share, _ in parts:
        assert state.model is not None
        assert state.frame is not None
        own = flushed(state, settings)
        stocks.append(counted(_in_frame(own, state.frame, frame), share))
        # A variance changes with the square of the unit; the prior noise is one number for all columns.
        ratio = float(np.mean((frame.inverse / state.frame.inverse) ** 2))
        noises.append((own.mass.sum() * share, state.prior_noise * ratio))
        calibrations.append(state.model.calibration)
    mass = np.array([m for m, _ in noises])
    prior_noise = float(mass @ np.array([s for _, s in noises]) / mass.sum())
    components = joined(stocks)
    limit = most if most is not None else settings.fixed or settings.most
    components = reduced(components, limit, prior_noise, settings.isotropic)
    reservoir = _united_reservoir(parts, frame, settings)
    n = sum(state.n for state in states)
    model = model_of(components, settings, reservoir)
    model = model._replace(calibration=pooled(np.array(calibrations)))
    state = State(n, n, prior_noise, frame, model, states[0].pending._replace(size=0))
    if search and settings.reservoir:
        limited = settings if most is None else settings._replace(most=min(settings.most, most), fixed=0)
        state = reconsider(state, limited)
    return state


def _common_frame(states: Sequence[State]) -> Frame:
    """The frame of the part with most rows, with the mean of all centres; scales are powers of two."""
    frames = [state.frame for state in states if state.frame is not None]
    first = frames[0]
    if all(np.array_equal(a, b) for other in frames[1:] for a, b in zip(first, other, strict=True)):
        return first
    n = np.array([state.n for state in states], dtype=np.float64)
    largest = frames[int(np.argmax(n))]
    centres = np.array([frame.centre for frame in frames])
    return largest._replace(centre=centres[0] + n / n.sum() @ (centres - centres[0]))


def _in_frame(c: Components, old: Frame, new: Frame) -> Components:
    """Components in other coordinates: shifted, and stretched where scales differ."""
    ratio, offset = new.inverse / old.inverse, (old.centre - new.centre) * new.inverse
    if (ratio == 1.0).all():
        return c._replace(mean=c.mean + offset)
    mean, diagonal = c.mean * ratio + offset, c.diagonal * ratio**2
    out = c._replace(mean=mean, diagonal=diagonal, trace=diagonal.sum(axis=1))
    if (ratio == ratio[0]).all():
        square = ratio[0] ** 2
        return out._replace(
            scatter=c.scatter * square,
            held=c.held * square,
            expected=c.expected * square,
            residual=c.residual * square,
        )
    # Stretched by column, directions are no longer orthogonal: a small eigenproblem makes them so again.
    for j, r in enumerate(c.used):
        Z = np.sqrt(c.scatter[j, :r])[:, None] * c.directions[j, :r] * ratio
        out.used[j] = top_directions(Z, int(r), out.directions[j], out.scatter[j])
        # Energies that were held out along other directions say nothing of these.
        out.held[j], out.expected[j], out.residual[j], out.held_rows[j] = 0.0, 0.0, 0.0, 0.0
    return out


def reduced(c: Components, limit: int, prior_noise: float, isotropic: bool = False) -> Components:
    """Merge the cheapest pairs until `limit` components are left (Runnalls, 2007)."""
    while len(c.n) > limit:
        i, j = _cheapest_pair(c, prior_noise, isotropic)
        rest = np.array([k for k in range(len(c.n)) if k not in (i, j)], dtype=np.intp)
        c = joined([take(c, rest), merged(take(c, np.array([i, j])))])
    return c


def aggregated(state: State, own: Settings, settings: Settings, min_rows: int) -> State:
    """A copy under `settings`, which keep no rows, with components of at least `min_rows` rows each."""
    if state.model is None:
        state = learn.started(state, own)
    assert state.model is not None
    c = flushed(state, own)
    while len(c.n) > 1 and c.n.min() < min_rows:
        small = int(np.argmin(c.n))
        i, j = _cheapest_pair(c, state.prior_noise, own.isotropic, small)
        rest = np.array([k for k in range(len(c.n)) if k not in (i, j)], dtype=np.intp)
        c = joined([take(c, rest), merged(take(c, np.array([i, j])))])
    model = model_of(c, settings, empty_reservoir(0, c.mean.shape[1]))
    return state._replace(model=model._replace(calibration=state.model.calibration.copy()))


def _cheapest_pair(
    c: Components, prior_noise: float, isotropic: bool = False, of: int | None = None
) -> tuple[int, int]:
    """The pair with the least cost of merging, or that with one component; by the means alone, then exactly."""
    readout = readout_of(c, prior_noise, isotropic)
    # Squared distances of all means from one product; about their mean, since
    # |a|^2 + |b|^2 - 2 a'b cancels far from zero.
    E = c.mean - c.mean.mean(axis=0)
    G = E @ E.T
    d2 = np.maximum(np.diagonal(G)[:, None] + np.diagonal(G) - 2.0 * G, 0.0)
    i, j = np.triu_indices(len(c.n), 1)
    total = c.mass[i] + c.mass[j]
    spread = d2[i, j] / np.minimum(readout.noise[i], readout.noise[j])
    # Runnalls' cost of the means alone, as if both components had the same
    # isotropic noise: cheap, and only an ordering.
    screen = 0.5 * total * np.log1p(c.mass[i] * c.mass[j] / np.maximum(total, 1e-300) ** 2 * spread)
    if of is not None:
        screen = np.where((i == of) | (j == of), screen, np.inf)
    best = np.argsort(screen, kind="stable")[:SCREENED]
    best = best[np.isfinite(screen[best])]

    def cost(pair: int) -> float:
        a, b = i[pair], j[pair]
        # Runnalls' cost itself, which takes an eigenproblem for each pair.
        whole = readout_of(merged(take(c, np.array([a, b]))), prior_noise, isotropic)
        apart = c.mass[a] * readout.log_det[a] + c.mass[b] * readout.log_det[b]
        return float(0.5 * ((c.mass[a] + c.mass[b]) * whole.log_det[0] - apart))

    chosen = min(best, key=cost)
    return int(i[chosen]), int(j[chosen])


def pooled(calibrations: Array) -> Array:
    """Calibration of all parts together: moments of their moments."""
    k = calibrations[:, 0]
    if k.sum() == 0.0:
        return np.zeros(3)
    share = k / k.sum()
    # Law of total variance over the parts.
    mean = share @ calibrations[:, 1]
    variance = share @ (calibrations[:, 2] + (calibrations[:, 1] - mean) ** 2)
    return np.array([k.sum(), mean, variance])


def _united_reservoir(parts: Sequence[Part], frame: Frame, settings: Settings) -> Reservoir:
    """The rows of highest priority of all reservoirs; under forgetting the last rows of all parts are the same age."""
    out = empty_reservoir(settings.reservoir, len(frame.centre))
    if not settings.reservoir:
        return out
    rate = -np.log(settings.fading)
    samples = [part.state.model.reservoir for part in parts if part.state.model is not None]
    offered = sum(int(sample.offered[0]) for sample in samples)
    rows, log_weights, keys, level = [], [], [], -np.inf
    for part, sample in zip(parts, samples, strict=True):
        assert part.state.frame is not None
        m = int(sample.size[0])
        more = np.log(part.share) + rate * (offered - int(sample.offered[0]))
        raw = sample.rows[:m] / part.state.frame.inverse + part.state.frame.centre
        rows.append(in_frame(raw, frame))
        log_weights.append(sample.log_weights[:m] + more)
        keys.append(sample.keys[:m] + more)
        level = max(level, float(sample.level[0] + more))
    Z, logs, priorities = np.concatenate(rows), np.concatenate(log_weights), np.concatenate(keys)
    # Below the level of any part rows of that part are missing, so that others must not stay either.
    order = np.argsort(-priorities, kind="stable")
    order = order[priorities[order] >= level]
    kept, dropped = np.sort(order[: settings.reservoir]), order[settings.reservoir :]
    if len(dropped):
        level = max(level, float(priorities[dropped].max()))
    out.rows[: len(kept)] = Z[kept]
    out.log_weights[: len(kept)], out.keys[: len(kept)] = logs[kept], priorities[kept]
    out.size[0], out.level[0], out.offered[0] = len(kept), level, offered
    return out
