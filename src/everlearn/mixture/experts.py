"""Experts that tell classes apart by their densities, and how much each of them counts.

All experts come from the components that each class has learned; they differ in how much they believe of a class's
shape. The *shared* expert gives all classes one covariance (linear discriminant analysis); the *mixture* experts take
the components of each class, drawn towards the pooled covariance as by one row of it or by D/3; the *kernel* expert
puts a narrow Gaussian on each row of a sample, for classes too small or too odd for few components. Densities in many
columns make posteriors too sure of themselves, so each expert is also heard with its log-densities tempered; last
comes the class frequency alone.

The weights of these opinions are those that give a sample of rows the highest class probabilities, each row being taken
out of its own class first: stacking (Wolpert, 1992) with leave-one-out in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.gaussian.gaussian import LOG_2PI, Array, Whitening, log_sum_exp, moment_match, safe_cholesky, whiten
from everlearn.gaussian.mixture import patterns, squared_distances

Codes = NDArray[np.intp]

# Factors on the log-densities of each expert. Two do as well as three or five on the seven Weka sets
# (benchmarks/weka.py) and seven others.
TEMPERATURES = (1.0, 0.2)
# Opinions: four experts at each temperature, and the class frequencies. What each of them pays is measured by
# benchmarks/experts.py: none is idle on sets that they were chosen on and on others.
N_OPINIONS = 4 * len(TEMPERATURES) + 1
# Variance added to all covariances, in units of the variance of each column over all classes.
RIDGE = 1e-3
# Standard deviation of a kernel, in units of the pooled one within components; from 0.35 to 0.7 hardly matters.
BANDWIDTH = 0.5
# As many rows of prior as it takes for a covariance to be the shared one.
MANY = 1e12
# Columns for which the firm expert has one more row of prior.
PRIOR_COLUMNS = 3.0
STACKING_STEPS = 50
# Leverage of a row, at most: beyond it the first order says nothing.
MOST_LEVERAGE = 0.5
# Weights where no row is kept to choose them by: the Gaussian experts as they are, and a little for all others.
UNWEIGHED = np.array([0.32, 0.01, 0.32, 0.01, 0.32, 0.005, 0.005, 0.005, 0.005])


class ClassMoments(NamedTuple):
    """The components that a class has learned, without any prior; diagonal covariances have one axis less."""

    counts: Array  # (K,), rows by weight
    means: Array  # (K, D)
    covariances: Array  # (K, D, D) or (K, D)


class Shared(NamedTuple):
    """What all classes have in common."""

    within: Array  # (D, D) or (D,), covariance within classes
    local: Array  # the same within components
    variance: Array  # (D,), of each column over all classes
    whitening: Whitening | None = None  # of the covariance that all classes have for the shared expert


class Sample(NamedTuple):
    """Rows of known classes, ordered by class."""

    rows: Array  # (m, D), NaN where not observed
    labels: Codes  # (m,)
    own: Array  # (m,), weight with which the row was learned
    stands_for: Array  # (m,), weight of the rows of the stream that it represents


class GaussianExpert(NamedTuple):
    """Gaussians in the order of their classes, each of them with `prior` rows of a shared shape inside."""

    classes: Codes  # (K,), class of each Gaussian
    counts: Array  # (K,)
    means: Array  # (K, D)
    covariances: Array  # (K, D, D) or (K, D)
    whitening: Whitening
    prior: float


class KernelExpert(NamedTuple):
    """A Gaussian with diagonal covariance on each row of a sample, ordered by class."""

    classes: Codes  # (m,)
    log_weights: Array  # (m,)
    means: Array  # (m, D)
    variances: Array  # (m, D)


class ClassExperts(NamedTuple):
    """The Gaussian experts on one class, or on several of them."""

    shared: GaussianExpert
    loose: GaussianExpert  # mixtures with one row of prior
    firm: GaussianExpert  # mixtures with a third of a row a column more


class Experts(NamedTuple):
    """All experts on all classes."""

    gaussians: ClassExperts
    kernels: KernelExpert


# -- from components to experts ---------------------------------------------------------------------


def shared_of(moments: Sequence[ClassMoments]) -> Shared:
    """Pooled covariances, drawn towards uncorrelated columns as by one row a column."""
    wholes = [moment_match(*each) for each in moments]
    counts = np.array([each.counts.sum() for each in moments])
    means = np.array([mean for mean, _ in wholes])
    diagonal = means.shape[1:] == wholes[0].covariance.shape
    share = counts / counts.sum()
    within = np.tensordot(share, np.array([covariance for _, covariance in wholes]), axes=1)
    # Within components: what is left when the structure of a class is known.
    # `within` has the spread of its components, too.
    local = sum(np.tensordot(each.counts, each.covariances, axes=1) for each in moments) / counts.sum()
    spread = share @ (means - share @ means) ** 2
    variance = spread + (within if diagonal else np.diagonal(within))
    top = variance.max(initial=0.0)
    # A column that never varied says nothing: it is as wide as the widest, so that new values in it say little.
    variance = np.where(variance > 1e-24 * top, variance, top if top > 0.0 else 1.0)
    n, D = counts.sum(), len(variance)
    target = variance if diagonal else np.diag(variance)
    within = (n * within + D * target) / (n + D)
    ridge = RIDGE * (variance if diagonal else np.diag(variance))
    # Once for all classes: one factor of 512 columns takes 0.05 s.
    whitening = whiten((within + ridge)[None], diagonal=diagonal)
    return Shared(within, (n * local + D * target) / (n + D), variance, whitening)


def class_experts(number: int, moments: ClassMoments, shared: Shared, columns: float = PRIOR_COLUMNS) -> ClassExperts:
    """The three Gaussian experts on one class: shared, loose, and firm by a row of prior for so many columns."""
    mean, covariance = moment_match(*moments)
    whole = ClassMoments(moments.counts.sum(keepdims=True), mean[None], covariance[None])
    D = len(shared.variance)
    return ClassExperts(
        _shrunk(number, whole, shared.within, shared.variance, MANY, shared.whitening),
        _shrunk(number, moments, shared.local, shared.variance, 1.0),
        _shrunk(number, moments, shared.local, shared.variance, 1.0 + D / columns),
    )


def _shrunk(
    number: int,
    moments: ClassMoments,
    towards: Array,
    variance: Array,
    prior: float,
    whitening: Whitening | None = None,
) -> GaussianExpert:
    """Covariances as if each component had also seen `prior` rows of the shared shape; `whitening` if it is known."""
    counts, means, covariances = moments
    diagonal = towards.ndim == 1
    # The posterior mean of a covariance under an inverse Wishart prior of that many rows, and the ridge.
    n = counts.reshape(-1, *(1 for _ in towards.shape))
    shrunk = (n * covariances + prior * towards) / (n + prior) + RIDGE * (variance if diagonal else np.diag(variance))
    classes = np.full(len(counts), number)
    return GaussianExpert(classes, counts, means, shrunk, whitening or whiten(shrunk, diagonal=diagonal), prior)


def all_experts(parts: Sequence[ClassExperts], kernels: KernelExpert) -> Experts:
    """The experts on each of several classes, in order, as experts on all of them."""
    shared, loose, firm = (_joined(same) for same in zip(*parts, strict=True))
    return Experts(ClassExperts(shared, loose, firm), kernels)


def _joined(parts: Sequence[GaussianExpert]) -> GaussianExpert:
    classes, counts, means, covariances = (np.concatenate([part[i] for part in parts]) for i in range(4))
    matrices, log_dets = (np.concatenate([part.whitening[i] for part in parts]) for i in range(2))
    return GaussianExpert(classes, counts, means, covariances, Whitening(matrices, log_dets), parts[0].prior)


def kernels_of(sample: Sample, moments: dict[int, ClassMoments], shared: Shared) -> KernelExpert:
    """Kernels on the rows of a sample; a value that is missing there is as wide as its column is in the class."""
    narrow = shared.local if shared.local.ndim == 1 else np.diagonal(shared.local)
    variances = np.broadcast_to(BANDWIDTH**2 * narrow + RIDGE * shared.variance, sample.rows.shape).copy()
    means = sample.rows.copy()
    for c in np.unique(sample.labels):
        mean, covariance = moment_match(*moments[int(c)])
        spread = covariance if covariance.ndim == 1 else np.diagonal(covariance)
        rows, columns = np.nonzero(np.isnan(sample.rows) & (sample.labels == c)[:, None])
        means[rows, columns] = mean[columns]
        variances[rows, columns] = spread[columns] + RIDGE * shared.variance[columns]
    starts, place = _runs(sample.labels)
    totals = np.add.reduceat(sample.stands_for, starts) if len(starts) else np.empty(0)
    return KernelExpert(sample.labels, np.log(sample.stands_for / totals[place]), means, variances)


def _runs(classes: Codes) -> tuple[Codes, Codes]:
    """Where each class begins in an ordered list, and for each entry the number of its run."""
    begins = np.ones(len(classes), dtype=bool)
    np.not_equal(classes[1:], classes[:-1], out=begins[1:])
    return np.flatnonzero(begins), np.cumsum(begins) - 1


# -- log-densities ----------------------------------------------------------------------------------


def log_densities(
    expert: GaussianExpert,
    X: Array,
    n_classes: int,
    own: Sample | None = None,
    leverages: dict[int, Array] | None = None,
) -> Array:
    """Log-density of each row under each class, (n, n_classes); -inf for classes that have no component.

    With `own`, the labels and weights of the rows, each row is first taken out of its own class: exactly, or to first
    order by its leverages on the Gaussians of its class, (rows of the class, Gaussians), where they are given.
    """
    d2, log_det = _distances(expert, X)
    observed = np.count_nonzero(~np.isnan(X), axis=1)
    starts, place = _runs(expert.classes)
    log_share = np.log(expert.counts / np.add.reduceat(expert.counts, starts)[place])
    joint = log_share - 0.5 * (d2 + log_det + observed[:, None] * LOG_2PI)
    out = _sums_by_class(joint, expert.classes, n_classes)
    if own is None:
        return out
    for c in np.unique(own.labels):
        rows, mine = np.flatnonzero(own.labels == c), np.flatnonzero(expert.classes == c)
        pairs = np.ix_(rows, mine)
        share = np.exp(joint[pairs] - out[rows, c][:, None]) * own.own[rows, None]
        if leverages is None:
            out[rows, c] = _left_out(expert, mine, X[rows], share, d2[pairs], log_det[pairs])
        else:
            # Without the row its deviation is larger by 1/(1 - leverage), of which rows of the prior leave their share.
            held = expert.counts[mine] / (expert.counts[mine] + expert.prior)
            grown = 1.0 / (1.0 - np.minimum(share * held * leverages[int(c)], MOST_LEVERAGE)) ** 2
            out[rows, c] = log_sum_exp(joint[pairs] - 0.5 * d2[pairs] * (grown - 1.0))
    return out


def _sums_by_class(joint: Array, classes: Codes, n_classes: int) -> Array:
    """log sum exp over the entries of each class; -inf where a class has none."""
    out = np.full((len(joint), n_classes), -np.inf)
    if joint.shape[1]:
        starts, place = _runs(classes)
        top = np.maximum.reduceat(joint, starts, axis=1)
        # A class that gives no density at all: -inf less -inf would be NaN.
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            out[:, classes[starts]] = top + np.log(np.add.reduceat(np.exp(joint - top[:, place]), starts, axis=1))
    return out


def _distances(expert: GaussianExpert, X: Array) -> tuple[Array, Array]:
    """Squared distances and log-determinants in the marginal of each row's observed columns, (n, K) each."""
    means, covariances, whitening = expert.means, expert.covariances, expert.whitening
    gaps = np.isnan(X).any(axis=1)
    if not gaps.any():
        d2 = squared_distances(X, means, whitening)
        return d2, np.broadcast_to(whitening.log_det, d2.shape)
    d2, log_det = np.empty((len(X), len(means))), np.empty((len(X), len(means)))
    d2[~gaps] = squared_distances(X[~gaps], means, whitening)
    log_det[~gaps] = whitening.log_det
    holes = np.flatnonzero(gaps)
    for observed, rows in patterns(X[holes]):
        E = X[np.ix_(holes[rows], observed)] - means[:, None, observed]
        d2[holes[rows]], log_det[holes[rows]] = _marginal_distances(E, covariances, observed)
    return d2, log_det


def _marginal_distances(E: Array, covariances: Array, observed: NDArray[np.intp]) -> tuple[Array, Array]:
    """Squared lengths of the deviations E, (K, n, o), and the log-determinants."""
    if not len(observed):
        return np.zeros(E.shape[1::-1]), np.zeros(len(E))
    if covariances.ndim == 2:
        variances = covariances[:, observed]
        return np.einsum("kno,ko->nk", E * E, 1.0 / variances), np.log(variances).sum(axis=1)
    L, _ = safe_cholesky(covariances[:, observed[:, None], observed])
    Z = np.linalg.solve(L, np.swapaxes(E, 1, 2))
    return np.einsum("kon,kon->nk", Z, Z), 2.0 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)


def _left_out(expert: GaussianExpert, mine: Codes, X: Array, r: Array, d2: Array, log_det: Array) -> Array:
    """Log-density of rows under their own class after each was taken out of it, by its share r in each Gaussian.

    A Gaussian of count n, scatter M = (n + k) Sigma and k rows of prior loses r: its mean moves to x - n/(n-r) e, its
    scatter to M - r n/(n-r) e e' and its count to n - r. `mine` are the Gaussians of the class.
    """
    n, k = expert.counts[mine], expert.prior
    # A Gaussian of this one row has nothing left; its share of the class then is next to nothing.
    left = np.maximum(n - r, 1e-9 * n)
    stretch = n / left
    if expert.covariances.ndim == 2:
        M = (n + k)[:, None] * expert.covariances[mine]
        E2 = np.nan_to_num((X[:, None, :] - expert.means[mine]) ** 2)
        lower = np.maximum(M - (r * stretch)[:, :, None] * E2, 1e-9 * M)
        q = (E2 / lower).sum(axis=2)
        change = np.where(np.isnan(X)[:, None, :], 0.0, np.log(lower / M)).sum(axis=2)
    else:
        # Determinant lemma and Sherman-Morrison for M - r n/(n-r) e e': both
        # need the distance with the row inside only.
        lower = np.maximum(1.0 - r * stretch * d2 / (n + k), 1e-9)
        q, change = d2 / (n + k) / lower, np.log(lower)
    observed = np.count_nonzero(~np.isnan(X), axis=1)[:, None]
    d2_left = stretch**2 * (left + k) * q
    # Sigma = M/(n + k): the divisor changes with the count.
    log_det_left = log_det + change + observed * np.log((n + k) / (left + k))
    log_share = np.log(left / left.sum(axis=1, keepdims=True))
    return log_sum_exp(log_share - 0.5 * (d2_left + log_det_left + observed * LOG_2PI))


def kernel_log_densities(expert: KernelExpert, X: Array, n_classes: int, own: Sample | None = None) -> Array:
    """Log-density of each row under each class; with `own`, X being its rows, none counts its own kernel.

    The squared distances are three matrix products, so that a thousand kernels cost as little as a few components.
    """
    seen = ~np.isnan(X)
    x, known = np.where(seen, X, 0.0), seen.astype(np.float64)
    precision = 1.0 / expert.variances
    weighted = expert.means * precision
    # Expanded squares of a difference; near zero they cancel, and rounding may leave less than zero.
    d2 = (x * x) @ precision.T - 2.0 * x @ weighted.T + known @ (weighted * expert.means).T
    log_det = known @ np.log(expert.variances).T + known.sum(axis=1)[:, None] * LOG_2PI
    joint = expert.log_weights - 0.5 * (np.maximum(d2, 0.0) + log_det)
    if own is not None:
        np.fill_diagonal(joint, -np.inf)
    out = _sums_by_class(joint, expert.classes, n_classes)
    if own is not None:
        rest = -np.expm1(np.minimum(expert.log_weights, -1e-12))  # weight of the other rows of its class
        out[np.arange(len(X)), own.labels] -= np.log(rest)
    out[np.isneginf(out).all(axis=1)] = 0.0  # no kernel is left that could say anything
    return out


# -- opinions and their weights ---------------------------------------------------------------------


def opinions(experts: Experts, X: Array, log_prior: Array, own: Sample | None = None) -> Array:
    """Log-probability of each class for each row in each opinion, (N_OPINIONS, n, n_classes)."""
    n_classes = len(log_prior)
    densities = [log_densities(expert, X, n_classes, own) for expert in experts.gaussians]
    densities.append(kernel_log_densities(experts.kernels, X, n_classes, own))
    out = [_normalised(temperature * log_density + log_prior) for log_density in densities
           for temperature in TEMPERATURES]  # fmt: skip
    return np.array([*out, np.broadcast_to(_normalised(log_prior), out[0].shape)])


def _normalised(log_p: Array) -> Array:
    """Log-probabilities that sum to one, however far from zero they were."""
    relative = log_p - log_p.max(axis=-1, keepdims=True)
    return np.asarray(relative - np.log(np.exp(relative).sum(axis=-1, keepdims=True)))


def weights_of_opinions(experts: Experts, sample: Sample, log_prior: Array, judged: NDArray[np.bool_]) -> Array:
    """Weights of the opinions that maximise the probability of the classes of the judged rows of a sample."""
    if not judged.any():
        return UNWEIGHED
    spoken = opinions(experts, sample.rows, log_prior, sample)
    truth = np.exp(spoken[:, np.arange(len(sample.rows)), sample.labels]).T[judged]
    importance = sample.stands_for[judged]
    # Weights of one on average: the prior of `stacked` then is one row, whatever the sample stands for.
    importance = importance * (len(truth) / importance.sum())
    return stacked(truth, importance)


def stacked(truth: Array, importance: Array) -> Array:
    """Weights that maximise the log-probability of the true classes, (n, N_OPINIONS), by EM.

    All count the same to begin with, as one row that each of them explains alike.
    """
    w = np.full(truth.shape[1], 1.0 / truth.shape[1])
    for _ in range(STACKING_STEPS):
        # E-step: the share of each opinion in the probability of a row's true class. M-step: the
        # mean share, with one row of equal shares.
        share = truth * w
        share *= (importance / np.maximum(share.sum(axis=1), 1e-300))[:, None]
        w = (share.sum(axis=0) + 1.0 / len(w)) / (importance.sum() + 1.0)
    return np.asarray(w / w.sum())


def log_probabilities(experts: Experts, weights: Array, X: Array, log_prior: Array) -> Array:
    """Log-probability of each class for each row, (n, n_classes), by all opinions together."""
    spoken = opinions(experts, X, log_prior)
    return log_sum_exp(np.moveaxis(spoken, 0, -1) + np.log(weights))
