"""One reconsideration of the structure: from a state to the components that replace its own."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.gaussian.mixture import Mixture
from everlearn.mixture.keep import by_moments
from everlearn.mixture.keep import carry as carrying
from everlearn.mixture.keep.evidence import Fit, n_parameters, price
from everlearn.mixture.keep.forgetting import sample_weights
from everlearn.mixture.keep.problem import distinct_rows, problem_of
from everlearn.mixture.keep.search import choose_fine, polish, search
from everlearn.mixture.keep.world import ridge_of, with_ridge, world_of_rows
from everlearn.mixture.kernels import fitting as em_kernels
from everlearn.mixture.kernels import missing as gap_kernels
from everlearn.mixture.kernels.covariance import covariances_of, factors_of_counts, posterior_scatters
from everlearn.mixture.kernels.em import Gaussians, Moments, Rows
from everlearn.mixture.kernels.rows import refresh_all
from everlearn.mixture.kernels.wide import background_of
from everlearn.mixture.state import Array, Components, Model, Settings, Shape, State, World

# Passes over a first sample with gaps: they are filled from the columns, then by the mixture of the pass before.
FIRST_PASSES = 3
# Steps of EM with gaps, and the gain in nats a row below which it has converged.
GAP_STEPS, GAP_TOLERANCE = 60, 1e-4
# Steps that a trial is trusted to gain as much in as in its last one: gains fall by more than a tenth each time, about.
HOPE_STEPS = 10


class Sample(NamedTuple):
    """Sampled rows without gaps."""

    Z: Array  # (m, D)
    weights: Array  # (m,), as evidence: their sum is the effective number of rows
    ratio: float  # rows that each stands for
    partial: bool  # whether the stream had other rows, too
    unseen: NDArray[np.intp] | None = None  # columns without any value


class Sums(NamedTuple):
    """Expected moments of rows with gaps, about given means."""

    counts: Array  # (K,)
    shifts: Array  # (K, D)
    scatters: Array  # (K, D, D)


def reconsider(state: State, settings: Settings) -> Generator[None, None, Model]:
    """Search the structure of the sampled rows, beginning with the components of the state, if any.

    Yields between slices of work; the state stays as it is.
    """
    if state.model is not None and not state.reservoir.size[0]:
        old = refreshed(state.model)
        yield
        return by_moments.reconsidered(old, state.searched, state.n, settings)
    slots, own, stands_for = sample_weights(state.reservoir, settings.fading)
    yield
    raw, weights, copies = distinct_rows(state.reservoir.rows[slots].astype(np.float64), own)
    yield
    ratio = stands_for * copies
    rng = np.random.default_rng([settings.seed & 0xFFFFFFFF, _seed(weights, ratio), 1])
    gaps = bool(np.isnan(raw).any())
    unseen = np.flatnonzero(np.isnan(raw).all(axis=0)) if gaps else None
    model = None if state.model is None else refreshed(state.model)
    for _ in range(FIRST_PASSES if gaps and model is None else 1):
        sample = Sample(fill(raw, model, rng) if gaps else raw, weights, ratio, stands_for > 1.0, unseen=unseen)
        yield
        model = yield from _search(sample, raw if gaps else None, model, settings)
    assert model is not None
    return model


def refreshed(model: Model) -> Model:
    """A copy in which every component has taken in what it gathered."""
    components = carrying.copied(model.components)
    refresh_all(components, model.shape)
    return model._replace(components=components)


def gathered(components: Components) -> tuple[Array, Array, Array, Array]:
    """Mass, counts, means and scatters, with what was gathered since the last refresh, as `refreshed` has them.

    Of a scatter only the lower triangle is meant. Factors are left out: one of 512 columns takes 0.1 s.
    """
    c, K = components, int(components.size[0])
    counts = c.counts[:K] + c.fresh[:K]
    shift = c.shift[:K] / counts[:, None]
    scatters = c.scatter[:K] - counts[:, None, None] * shift[:, :, None] * shift[:, None, :]
    return c.mass[:K].copy(), counts, c.means[:K] + shift, scatters


def _seed(weights: Array, ratio: float) -> int:
    """A number for random draws that is the same for a row of weight two and for two rows."""
    return round(float(weights.sum()) * ratio)


def _search(sample: Sample, raw: Array | None, old: Model | None, settings: Settings) -> Generator[None, None, Model]:
    """One search on a sample whose gaps are filled; `raw` is the sample with its gaps."""
    Z, weights, ratio, partial, _ = sample
    fine = 1.0 if old is None else old.fine
    world = world_of_rows(Z, weights, fine, sample.unseen)
    yield
    ridge = ridge_of(world.variance, world.smooth, fine)
    start = None if old is None else _responsibilities(Z, old.components, world)
    yield
    created = old is not None and old.components.size[0] > old.known
    settled = partial and old is not None and not created
    problem = problem_of(Z, weights, world, ridge, settings, _seed(weights, ratio), is_part=partial)
    yield
    credit = 0.0
    if partial and old is not None and start is not None:
        credit = carrying.worth_of_other_rows(weights @ start, old.components, settings)
    fit = yield from search(problem, start, None if old is None else old.shape, crowd=not settled, credit=credit)
    if settled and old is not None and start is not None and carrying.is_unmoved(start, fit):
        return _stay(old, fit, world)
    fit = yield from polish(problem, fit)
    finer = yield from choose_fine(problem, fit, fine)
    if finer != fine:
        fine, world = finer, with_ridge(world, finer)
        ridge = ridge_of(world.variance, world.smooth, fine)
        problem = problem_of(Z, weights, world, ridge, settings, _seed(weights, ratio), is_part=partial)
        fit = yield from polish(problem, fit._replace(shape=fit.shape._replace(ridge=ridge)))
    if raw is not None:
        fit, value = yield from _em_with_gaps(raw, weights, fit)
        if not settings.fixed:
            fit = yield from _without_small(raw, weights, fit, value, settings)
        fit = _without_unseen(fit, np.flatnonzero(np.isnan(raw).all(axis=0)))
    stock, total = carrying.stock_of_sample(fit, ratio), float(weights.sum() * ratio)
    if partial and old is not None and start is not None:
        stock = carrying.carry(stock, carrying.stock_of_components(old.components), Z, weights, start, fit)
        total = float(old.components.total[0])
    room = carrying.room_for(fit.size, settings)
    components = carrying.components_of(stock, total, fit.shape, room, settings.parts)
    return Model(components, fit.shape, world, fine, fit.size)


def _stay(old: Model, fit: Fit, world: World) -> Model:
    """The sample asks for no other components: only what all have in common is renewed."""
    refresh_all(old.components, fit.shape)
    return old._replace(shape=fit.shape, world=world)


def _responsibilities(Z: Array, components: Components, world: World) -> Array:
    K = int(components.size[0])
    rows = Rows(Z, np.ones(len(Z)), background_of(Z, world.background), float(len(Z)))
    known = Gaussians(components.means[:K], components.factors[:K], components.heights[:K], np.zeros(K))
    R = np.zeros((len(Z), K))
    em_kernels.expect(rows, known, R, np.empty(len(Z)), 0, len(Z))
    return R


def mixture_of(model: Model) -> Mixture:
    """The components as a mixture, in the coordinates of the frame; they must have been refreshed."""
    components, K = model.components, int(model.components.size[0])
    mass = components.mass[:K]
    return Mixture(mass / mass.sum(), components.means[:K].copy(), covariances_of(components, model.shape))


def gathered_mixture(model: Model) -> Mixture:
    """`mixture_of` the refreshed model, without its factors."""
    mass, counts, means, scatters = gathered(model.components)
    scale = factors_of_counts(counts, model.shape.tau)
    return Mixture(mass / mass.sum(), means, posterior_scatters(counts, scatters, model.shape) * scale[:, None, None])


# -- gaps -------------------------------------------------------------------------------------------


def fill(raw: Array, model: Model | None, rng: np.random.Generator) -> Array:
    """Rows with their gaps filled by draws: from the mixture given the rest of the row, at first from the columns.

    Draws and not means: filled by means, rows would pile up between the groups, and a search would find them. A column
    without any value is zero: draws would have chance correlations with the others.
    """
    Z = raw.copy()
    unseen = np.isnan(raw).all(axis=0)
    Z[:, unseen] = 0.0
    if model is not None:
        mixture = mixture_of(model)
        gap_kernels.fill_sample(Z, mixture, rng.random(len(Z)), rng.standard_normal(Z.shape))
        return Z
    for j in np.flatnonzero(~unseen):
        missing = np.isnan(Z[:, j])
        Z[missing, j] = rng.choice(Z[~missing, j], missing.sum())
    return Z


def _without_unseen(fit: Fit, unseen: NDArray[np.intp]) -> Fit:
    """The fit with columns that have no value: of mean 0 and variance 1 in the frame, without correlations."""
    if not len(unseen):
        return fit
    counts, means, scatters = (values.copy() for values in fit.moments)
    matrix = fit.shape.matrix.copy()
    for values, variance in ((scatters, counts[:, None]), (matrix[None], np.ones((1, 1)))):
        values[:, unseen, :] = values[:, :, unseen] = 0.0
        values[:, unseen, unseen] = variance
    means[:, unseen] = 0.0
    return fit._replace(moments=Moments(counts, means, scatters), shape=fit.shape._replace(matrix=matrix))


def _without_small(
    raw: Array, weights: Array, fit: Fit, value: float, settings: Settings
) -> Generator[None, None, Fit]:
    """The fit without small components that do not pay by the values that were observed.

    Moves judge rows whose gaps are filled by draws: what these show by chance may become a component. A component pays
    that gains its price and what its p parameters gain by chance, p / 2 nats. Those of fewer rows than that are
    looked at, the smallest first: each of their rows would have to gain more than a nat.
    """
    D = raw.shape[1]
    least = price(D, settings.diagonal) + 0.5 * n_parameters(D, settings.diagonal)
    while fit.size > 1:
        k = int(np.argmin(fit.moments.counts))
        if fit.moments.counts[k] >= least:
            break
        R = np.delete(fit.R, k, axis=1) + 1e-12
        fewer = fit._replace(
            R=R / R.sum(axis=1, keepdims=True),
            moments=Moments(*(np.delete(a, k, axis=0) for a in fit.moments)),
            near=None,
        )
        fewer, without = yield from _em_with_gaps(raw, weights, fewer, value - least)
        if without < value - least:
            break
        fit, value = fewer, without
    return fit


def _em_with_gaps(
    raw: Array, weights: Array, fit: Fit, least: float = -np.inf
) -> Generator[None, None, tuple[Fit, float]]:
    """EM by expected moments on the rows as they were observed, until it converges; and their log-likelihood.

    It ends where that would not come to `least` if HOPE_STEPS more gained as much as the last one.
    """
    moments, shape, last = fit.moments, fit.shape, -np.inf
    m, D = raw.shape
    step = max(1, 20_000 // (fit.size * D * D))
    for _ in range(GAP_STEPS):
        mixture = _mixture_of_moments(moments, shape)
        K = len(moments.counts)
        sums = Sums(np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D)))
        value = 0.0
        for start in range(0, m, step):
            value += gap_kernels.expect_gaps(raw, weights, mixture, sums, start, min(start + step, m))
            yield
        moments = _moments_of_sums(sums, moments.means)
        if value - last < GAP_TOLERANCE * m or value + HOPE_STEPS * (value - last) < least:
            break
        last = value
    return fit._replace(moments=moments), value


def _mixture_of_moments(moments: Moments, shape: Shape) -> Mixture:
    counts, means, scatters = moments
    scales = factors_of_counts(counts, shape.tau)
    B = shape.tau * shape.matrix + scatters + (counts + shape.tau)[:, None, None] * np.diag(shape.ridge)
    # All counts are zero where the background explains every row.
    weights = np.maximum(counts, 1e-12)
    return Mixture(weights / weights.sum(), means, B * scales[:, None, None])


def _moments_of_sums(sums: Sums, means: Array) -> Moments:
    counts = np.maximum(sums.counts, 1e-9)
    # Sums were taken about the old means; n d d' takes the scatter to the new ones.
    d = sums.shifts / counts[:, None]
    scatters = sums.scatters - counts[:, None, None] * d[:, :, None] * d[:, None, :]
    return Moments(counts, means + d, scatters)
