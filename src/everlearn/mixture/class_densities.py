"""Classes told apart by their densities: one incremental mixture a class, seen in three ways and blended.

The views differ in how much they believe of each class's shape: one covariance for all classes (`linear`), one for
each class (`quadratic`), one for each component (`mixture`), the latter two drawn towards what the classes share as by
D rows of it. Densities in many columns make posteriors too sure of themselves, so each view also speaks with its
log-likelihoods tempered; last comes the class frequency alone. The blend of all these is the one that gives a sample of
rows the best class probabilities, each row being taken out of its own class first (stacking, Wolpert 1992).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn.learn import MixtureState, covariances_of, creation_priors
from everlearn.figmn.state import Settings
from everlearn.gaussian.conditional import log_sum_exp
from everlearn.gaussian.gaussian import LOG_2PI, Array, Whitening, moment_match, safe_cholesky, whiten
from everlearn.gaussian.merge import prior_counted_once
from everlearn.gaussian.mixture import patterns, squared_distances
from everlearn.mixture.kernels import class_densities as kernels

Codes = NDArray[np.int64]
Pairs = tuple[NDArray[np.intp], ...]

TEMPERATURES = (1.0, 0.3, 0.1)
N_VOICES = 3 * len(TEMPERATURES) + 1
RIDGE = 1e-3
# As many rows of prior as it takes for a covariance to be the shared one.
MANY = 1e12
STACKING_STEPS = 50
# Rows times components times D^2 that one choice of the blend may take, and the rows it has at least.
WORK = 2_000_000_000
MIN_ROWS = 100
# Fewer rows than this are asked one by one.
FEW_ROWS = 16


class Blend(NamedTuple):
    """How much each voice counts, and the shared covariances: within classes and within components."""

    weights: Array  # (N_VOICES,)
    within: Array  # (D, D), or (D,) when diagonal
    local: Array


class Gaussians(NamedTuple):
    """Gaussians with the rows that each has gathered; diagonal covariances have one axis less."""

    counts: Array  # (K,)
    means: Array  # (K, D)
    covariances: Array  # (K, D, D)


class ClassShape(NamedTuple):
    """A class as the mixture that was learned, and as one Gaussian."""

    components: Gaussians
    whole: Gaussians


class Common(NamedTuple):
    """What all classes share: covariances and what is added to each of them."""

    within: Array
    local: Array
    ridge: Array
    whitening: Whitening  # of within + ridge


class View(NamedTuple):
    """One way to see classes: Gaussians in the order of their classes, each with `prior` rows of shared shape."""

    classes: Codes  # (K,), the class of each Gaussian
    gaussians: Gaussians
    whitening: Whitening
    prior: float


Views = tuple[View, View, View]


class Labelled(NamedTuple):
    """Rows of known classes, and their weights."""

    rows: Array
    labels: Codes
    weights: Array

    def some(self, which: Any) -> Labelled:
        """Those rows that an index, a slice or a mask chooses."""
        return Labelled(self.rows[which], self.labels[which], self.weights[which])


# -- what is learned, seen in three ways ------------------------------------------------------------


def class_shape(state: MixtureState, settings: Settings) -> ClassShape:
    """What the mixture of one class says; it has a component at least."""
    K = state.n_components
    components = Gaussians(state.counts[:K].copy(), state.means[:K].copy(), covariances_of(state))
    mean, covariance = moment_match(*components)
    total = components.counts.sum(keepdims=True)
    priors = creation_priors(K, settings)
    whole = covariance[None]
    if priors is not None:
        whole = prior_counted_once(total, whole, priors, np.zeros(K, dtype=np.intp))
    return ClassShape(components, Gaussians(total, mean[None], whole))


def common(within: Array, local: Array, variance: Array) -> Common:
    """Shared covariances, with a thousandth of the columns' variance to be added to all."""
    ridge = RIDGE * variance if within.ndim == 1 else np.diag(RIDGE * variance)
    return Common(within, local, ridge, whiten(within + ridge, diagonal=within.ndim == 1))


def pooled(parts: Sequence[Gaussians]) -> Array:
    """Mean covariance of all rows' Gaussians."""
    total = sum(float(part.counts.sum()) for part in parts)
    sums = [np.tensordot(part.counts, part.covariances, axes=1) for part in parts]
    return np.asarray(np.sum(sums, axis=0) / total)


def class_views(number: int, shape: ClassShape, shared: Common) -> Views:
    """Linear, quadratic and mixture view of one class."""
    whole = shape.whole
    matrix, log_det = shared.whitening
    same = Gaussians(whole.counts, whole.means, (shared.within + shared.ridge)[None])
    linear = View(np.array([number]), same, Whitening(matrix[None], log_det[None]), MANY)
    return (
        linear,
        _shrunk(number, whole, shared.within, shared.ridge),
        _shrunk(number, shape.components, shared.local, shared.ridge),
    )


def _shrunk(number: int, gaussians: Gaussians, towards: Array, ridge: Array) -> View:
    """Covariances as if each Gaussian had also seen D rows of the shared shape."""
    counts, means, covariances = gaussians
    D = means.shape[1]
    n = counts.reshape(-1, *(1 for _ in towards.shape))
    shrunk = (n * covariances + D * towards) / (n + D) + ridge
    whitening = whiten(shrunk, diagonal=towards.ndim == 1)
    return View(np.full(len(counts), number), Gaussians(counts, means, shrunk), whitening, float(D))


def all_views(parts: Sequence[Views]) -> Views:
    """The views of several classes as views of all of them, in the order of the parts."""
    linear, quadratic, mixture = (_joined(same) for same in zip(*parts, strict=True))
    return linear, quadratic, mixture


def _joined(parts: Sequence[View]) -> View:
    gaussians = (np.concatenate(arrays) for arrays in zip(*(part.gaussians for part in parts), strict=True))
    whitening = (np.concatenate(arrays) for arrays in zip(*(part.whitening for part in parts), strict=True))
    classes = np.concatenate([part.classes for part in parts])
    return View(classes, Gaussians(*gaussians), Whitening(*whitening), parts[0].prior)


# -- likelihoods ------------------------------------------------------------------------------------


def log_likelihoods(view: View, X: Array, n_classes: int, own: Labelled | None = None) -> Array:
    """Log-density of each row under each class, (n, n_classes); -inf for classes that have no component.

    With `own`, the labels and weights of the rows, each row is first taken out of its own class.
    """
    d2, log_det = _distances(view, X)
    observed = np.count_nonzero(~np.isnan(X), axis=1)
    starts = np.flatnonzero(np.diff(view.classes, prepend=-1))
    counts, place = view.gaussians.counts, np.repeat(np.arange(len(starts)), np.diff([*starts, len(view.classes)]))
    log_share = np.log(counts / np.add.reduceat(counts, starts)[place])
    joint = log_share - 0.5 * (d2 + log_det + observed[:, None] * LOG_2PI)
    top = np.maximum.reduceat(joint, starts, axis=1)
    shares = np.exp(joint - top[:, place])
    sums = np.add.reduceat(shares, starts, axis=1)
    out = np.full((len(X), n_classes), -np.inf)
    out[:, view.classes[starts]] = top + np.log(sums)
    if own is not None:
        responsibility = shares / sums[:, place] * own.weights[:, None]
        for c in np.unique(own.labels):
            pairs = np.ix_(own.labels == c, view.classes == c)
            out[own.labels == c, c] = _left_out(view, X, pairs, responsibility[pairs], d2[pairs], log_det[pairs])
    return out


def _distances(view: View, X: Array) -> tuple[Array, Array]:
    """Squared distances and log-determinants in the marginal of each row's observed columns, (n, K) each."""
    _, means, covariances = view.gaussians
    gaps = np.isnan(X).any(axis=1)
    if not gaps.any():
        d2 = squared_distances(X, means, view.whitening)
        return d2, np.broadcast_to(view.whitening.log_det, d2.shape)
    d2, log_det = np.empty((len(X), len(means))), np.empty((len(X), len(means)))
    d2[~gaps] = squared_distances(X[~gaps], means, view.whitening)
    log_det[~gaps] = view.whitening.log_det
    holes = np.flatnonzero(gaps)
    for observed, rows in patterns(X[holes]):
        E = X[np.ix_(holes[rows], observed)] - means[:, None, observed]
        d2[holes[rows]], log_det[holes[rows]] = _marginal_distances(E, covariances, observed)
    return d2, log_det


def _marginal_distances(E: Array, covariances: Array, observed: NDArray[np.intp]) -> tuple[Array, Array]:
    """Squared lengths of the deviations E, (K, n, o), and the log-determinants."""
    if covariances.ndim == 2:
        variances = covariances[:, observed]
        return np.einsum("kno,ko->nk", E * E, 1.0 / variances), np.log(variances).sum(axis=1)
    if not len(observed):
        return np.zeros(E.shape[1::-1]), np.zeros(len(E))
    L, _ = safe_cholesky(covariances[:, observed[:, None], observed])
    Z = np.linalg.solve(L, np.swapaxes(E, 1, 2))
    return np.einsum("kon,kon->nk", Z, Z), 2.0 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)


def _left_out(view: View, X: Array, pairs: Pairs, r: Array, d2: Array, log_det: Array) -> Array:
    """Log-density of rows under their own class after each was taken out of it, by its share r in each Gaussian.

    A Gaussian of count n, scatter M = (n + k) Sigma and k rows of prior loses r: its mean moves to x - n/(n-r) e, its
    scatter to M - r n/(n-r) e e' and its count to n - r. `pairs` are the rows and Gaussians of one class.
    """
    rows, mine = pairs[0][:, 0], pairs[1][0]
    (counts, means, covariances), k = view.gaussians, view.prior
    n = counts[mine]
    left = np.maximum(n - r, 1e-9 * n)
    stretch = n / left
    if covariances.ndim == 2:
        lowered = _lowered_diagonal(X[rows], means[mine], (n + k)[:, None] * covariances[mine], r * stretch)
    else:
        q = d2 / (n + k)
        lower = np.maximum(1.0 - r * stretch * q, 1e-9)
        lowered = q / lower, np.log(lower)
    observed = np.count_nonzero(~np.isnan(X[rows]), axis=1)[:, None]
    d2_left = stretch**2 * (left + k) * lowered[0]
    log_det_left = log_det + lowered[1] + observed * np.log((n + k) / (left + k))
    log_share = np.log(left / left.sum(axis=1, keepdims=True))
    return log_sum_exp(log_share - 0.5 * (d2_left + log_det_left + observed * LOG_2PI))


def _lowered_diagonal(X: Array, means: Array, M: Array, factor: Array) -> tuple[Array, Array]:
    """e' M^-1 e and the change of log|M| for a diagonal scatter M that has lost factor e e' from its diagonal."""
    E2 = np.nan_to_num((X[:, None, :] - means) ** 2)
    lower = np.maximum(M - factor[:, :, None] * E2, 1e-9 * M)
    return (E2 / lower).sum(axis=2), np.where(np.isnan(X)[:, None, :], 0.0, np.log(lower / M)).sum(axis=2)


# -- blending ---------------------------------------------------------------------------------------


def blend(shapes: Sequence[tuple[int, ClassShape]], variance: Array, log_prior: Array, sample: Labelled) -> Blend:
    """Weights of the voices from a sample of labelled rows, and the shared covariances as they are now.

    `shapes` are the classes that have been seen, with their numbers.
    """
    within = pooled([shape.whole for _, shape in shapes])
    local = pooled([shape.components for _, shape in shapes])
    shared = common(within, local, variance)
    sample = _affordable(sample, sum(len(shape.components.counts) for _, shape in shapes) * within.size)
    totals = np.zeros(len(log_prior))
    totals[[number for number, _ in shapes]] = [shape.whole.counts[0] for _, shape in shapes]
    others = totals[sample.labels] > 1.5 * sample.weights
    sample = sample.some(others)
    if not len(sample.rows):
        return Blend(np.full(N_VOICES, 1.0 / N_VOICES), within, local)
    views = all_views([class_views(number, shape, shared) for number, shape in shapes])
    spoken = voices(views, sample.rows, log_prior, sample)
    truth = np.exp(spoken[:, np.arange(len(sample.rows)), sample.labels]).T
    return Blend(_stacked(truth, sample.weights), within, local)


def _affordable(sample: Labelled, work: int) -> Labelled:
    n = max(MIN_ROWS, WORK // max(work, 1))
    return sample.some(slice(n))


def voices(views: Views, X: Array, log_prior: Array, own: Labelled | None = None) -> Array:
    """Log-probability of each class for each row by each voice, (N_VOICES, n, n_classes)."""
    out = []
    for view in views:
        likelihood = log_likelihoods(view, X, len(log_prior), own)
        out += [_normalised(temperature * likelihood + log_prior) for temperature in TEMPERATURES]
    return np.array([*out, np.broadcast_to(_normalised(log_prior), out[0].shape)])


def _normalised(log_p: Array) -> Array:
    """Log-probabilities that sum to one, however far from zero they were."""
    relative = log_p - log_p.max(axis=-1, keepdims=True)
    return np.asarray(relative - np.log(np.exp(relative).sum(axis=-1, keepdims=True)))


def _stacked(truth: Array, weights: Array) -> Array:
    """Weights of the voices that maximise the log-probability of the true classes, (n, N_VOICES), by EM."""
    w = np.full(truth.shape[1], 1.0 / truth.shape[1])
    for _ in range(STACKING_STEPS):
        share = truth * w
        share *= (weights / np.maximum(share.sum(axis=1), 1e-300))[:, None]
        w = (share.sum(axis=0) + 1.0 / len(w)) / (weights.sum() + 1.0)
    return np.asarray(w / w.sum())


def log_probabilities(views: Views, weights: Array, X: Array, log_prior: Array) -> Array:
    """Log-probability of each class for each row, (n, n_classes), by all voices together."""
    if len(X) < FEW_ROWS and views[0].gaussians.covariances.ndim == 3 and not np.isnan(X).any():
        return _few_probabilities(views, weights, X, log_prior)
    spoken = voices(views, X, log_prior)
    return log_sum_exp(np.moveaxis(spoken, 0, -1) + np.log(weights))


def _few_probabilities(views: Views, weights: Array, X: Array, log_prior: Array) -> Array:
    """`log_probabilities` of a few complete rows, in compiled loops."""
    likelihoods, out = np.empty((len(views), len(X), len(log_prior))), np.empty((len(X), len(log_prior)))
    for view, likelihood in zip(views, likelihoods, strict=True):
        counts, means, _ = view.gaussians
        kernels.log_likelihoods(X, view.classes, counts, means, *view.whitening, likelihood)
    kernels.blend(likelihoods, np.array(TEMPERATURES), log_prior, weights, out)
    return out
