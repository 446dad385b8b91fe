"""The shape of a mixture's density: ridgelines, modes, and components that make one hill.

Every critical point of the density lies on the ridgeline surface ``x*(a) = (sum a_i L_i)^-1 sum a_i L_i mu_i``, the L_i
being precisions and a a point of the simplex. For two components it is a curve, whose modes can be counted with
certainty.

References
----------
Ray and Lindsay, "The topography of multivariate normal mixtures", Annals of Statistics 33, 2005.
Carreira-Perpinan and Williams, "On the number of modes of a Gaussian mixture", Scale Space Methods 2003.
Hennig, "Methods for merging Gaussian mixture components", ADAC 4, 2010.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from everlearn.gaussian.gaussian import LOG_2PI, Array, Indices, inverse, whiten
from everlearn.gaussian.mixture import Mixture, log_density, moments, responsibilities, whitenings, with_matrices

# Two roots of the ridgeline equation nearer than this (in the logit of a) count as none.
_RESOLUTION = 1e-9
# Add midpoints of all pairs as starts if K <= _PAIRS, and centroids of all triples if K <= _TRIPLES.
_PAIRS, _TRIPLES = 40, 12
_MAX_STEPS = 5000
# In units of the local standard deviation: a converged step, a step short enough for Newton, one and the same mode.
_CONVERGED, _NEAR, _SAME = 1e-10, 0.3, 1e-3


class CriticalPoints(NamedTuple):
    """Critical points of the elevation of P pairs along their ridgelines, at a = expit(logits), in order of `pairs`."""

    pairs: Indices  # (N,), which pair
    logits: Array  # (N,)
    log_elevation: Array  # (N,)
    is_mode: NDArray[np.bool_]  # (N,), else the lowest point between two modes


class Modes(NamedTuple):
    """Modes of a mixture, highest first."""

    points: Array  # (M, D)
    log_density: Array  # (M,)


class _Pairs(NamedTuple):
    """P pairs in coordinates where the first precision is I and the second diag(l): the elevation needs no more."""

    log_ratio: Array  # (P,), log of w_1 N(mu_1) / (w_2 N(mu_2)), densities each at its own mean
    log_height: Array  # (P,), log of w_1 N(mu_1)
    l: Array  # (P, D)  # noqa: E741
    d2: Array  # (P, D), squared differences of the means


def ridgeline(mixture: Mixture, a: Array) -> Array:
    """Points x*(a) of the ridgeline surface for rows `a` of the simplex, (n, K) -> (n, D)."""
    precisions = inverse(with_matrices(mixture).covariances)
    # Relative to one of the means: a large common offset would cost the digits in which the means differ.
    centre = mixture.means[0]
    pulls = np.einsum("kij,kj->ki", precisions, mixture.means - centre)
    total = np.tensordot(a, precisions, axes=1)
    return np.asarray(centre + _solve(total, a @ pulls))


def pair_critical_points(mixture: Mixture, i: Indices, j: Indices) -> CriticalPoints:
    """Modes and saddles of each two-component mixture of component `i` with `j`, along its ridgeline.

    At a critical point x*(a) the odds ``(1 - a) / a`` equal those of the components' densities there. With s the logit
    of a, the roots of ``g(s) = log w_1 N_1(x*) - log w_2 N_2(x*) + s`` are isolated by bisecting intervals until g is
    monotone on each, which bounds on ``g'(s) = 1 - a (1 - a) sum_d l_d^2 d_d^2 / (1 - a + a l_d)^3`` prove; modes and
    saddles alternate along the ridgeline.
    """
    pairs = _diagonalise(with_matrices(mixture), i, j)
    which, low, high = _isolate(pairs)
    s = _bisect(pairs, which, low, high)
    # Along a ridgeline the first and the last critical point are modes, and every second one between them is a saddle.
    order = np.lexsort((s, which))
    which, s = which[order], s[order]
    starts = np.searchsorted(which, np.arange(len(i)))
    is_mode = (np.arange(len(s)) - starts[which]) % 2 == 0
    return CriticalPoints(which, s, _log_elevation(pairs, which, s), is_mode)


def pair_modes(mixture: Mixture) -> Modes:
    """All modes of a mixture of two components."""
    found = pair_critical_points(mixture, np.array([0]), np.array([1]))
    a = expit(found.logits[found.is_mode])
    points = ridgeline(mixture, np.stack([1.0 - a, a], axis=1))
    return _highest_first(points, log_density(points, mixture))


def ridgeline_ratios(mixture: Mixture, i: Indices, j: Indices) -> Array:
    """For each pair of components the lowest saddle over the second highest mode; one where they have one mode."""
    found = pair_critical_points(mixture, i, j)
    saddles, tops = ~found.is_mode, found.is_mode
    lowest = np.full(len(i), np.inf)
    np.minimum.at(lowest, found.pairs[saddles], found.log_elevation[saddles])
    order = np.lexsort((-found.log_elevation[tops], found.pairs[tops]))
    first = np.searchsorted(found.pairs[tops][order], np.arange(len(i)))
    several = np.isfinite(lowest)
    second = found.log_elevation[tops][order][first[several] + 1]
    ratios = np.ones(len(i))
    ratios[several] = np.exp(np.minimum(lowest[several] - second, 0.0))
    return ratios


def merge_unimodal(mixture: Mixture, threshold: float = 1.0) -> Indices:
    """Cluster labels of the components, (K,): those whose pair has one mode belong together, directly or in a chain.

    With a `threshold` below one, pairs whose `ridgeline_ratios` reach it are joined as well. Labels count from 0 in the
    order of the components.
    """
    i, j = np.triu_indices(len(mixture.weights), 1)
    joined = ridgeline_ratios(mixture, i, j) >= threshold
    labels = np.arange(len(mixture.weights))
    for a, b in zip(i[joined], j[joined], strict=True):
        labels[labels == labels[b]] = labels[a]
    _, first, inverse_labels = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse_labels])


def modes(mixture: Mixture) -> Modes:
    """Modes of a mixture of any number of components.

    Two components are solved exactly. Otherwise a hill climb, the fixed-point iteration
    ``x <- (sum p_k L_k)^-1 sum p_k L_k mu_k`` with the posteriors p of x, starts from every centre, from the critical
    points of every pair and, because modes can outnumber components, from points between pairs and triples. Points
    where the Hessian is not negative definite are dropped, and duplicates joined.
    """
    mixture = with_matrices(mixture)
    if len(mixture.weights) == 2:
        return pair_modes(mixture)
    # In units of the whole mixture's spread, so that columns of very different sizes do not spoil the solves.
    scale = np.sqrt(np.diagonal(moments(mixture).covariance))
    unit = Mixture(mixture.weights, mixture.means / scale, mixture.covariances / scale / scale[:, None])
    points = _climb(unit, _starts(unit))
    heights = log_density(points, unit)
    found = _distinct(unit, points[np.argsort(-heights, kind="stable")])
    return Modes(found * scale, log_density(found * scale, mixture))


def modes_of_components(mixture: Mixture) -> Indices:
    """The mode that a hill climb from the mean of each component ends on, (K,): numbered in their order from 0."""
    mixture = with_matrices(mixture)
    scale = np.sqrt(np.diagonal(moments(mixture).covariance))
    unit = Mixture(mixture.weights, mixture.means / scale, mixture.covariances / scale / scale[:, None])
    precisions = inverse(unit.covariances)
    points = _climbed(unit, precisions, unit.means.copy())
    metric = _slope(unit, precisions, points).metric
    labels = np.arange(len(points))
    for k in range(1, len(points)):
        steps = points[:k] - points[k]
        near = np.flatnonzero(_length(np.broadcast_to(metric[k], (k, *metric[k].shape)), steps) < _SAME)
        labels[k] = labels[near[0]] if len(near) else labels[:k].max() + 1
    return labels


def _solve(matrices: Array, vectors: Array) -> Array:
    return np.asarray(np.linalg.solve(matrices, vectors[..., None])[..., 0])


def _highest_first(points: Array, heights: Array) -> Modes:
    order = np.argsort(-heights, kind="stable")
    return Modes(points[order], heights[order])


def _diagonalise(mixture: Mixture, i: Indices, j: Indices) -> _Pairs:
    whitening = whitenings(mixture)
    U, log_dets = whitening.matrix[i], whitening.log_det
    # Simultaneous diagonalisation: U whitens the first covariance, Q turns to the axes of the second in those units.
    covariances, Q = np.linalg.eigh(np.swapaxes(U, 1, 2) @ mixture.covariances[j] @ U)
    # Eigenvalues below rounding of the largest have no correct digit, and could be zero or negative.
    smallest = np.finfo(float).eps * covariances[:, -1:]
    d = ((mixture.means[j] - mixture.means[i])[:, None, :] @ U @ Q)[:, 0, :]
    with np.errstate(divide="ignore"):
        log_peaks = np.log(mixture.weights) - 0.5 * (log_dets + mixture.means.shape[1] * LOG_2PI)
    return _Pairs(log_peaks[i] - log_peaks[j], log_peaks[i], 1.0 / np.maximum(covariances, smallest), d * d)


def _distances(pairs: _Pairs, which: Indices, s: Array) -> tuple[Array, Array]:
    """Squared Mahalanobis distances of x*(a) from the two means."""
    l, d2 = pairs.l[which], pairs.d2[which]  # noqa: E741
    # 1 - a as expit(-s): the difference itself would be zero long before the ends of the ridgeline.
    a, b = expit(s)[:, None], expit(-s)[:, None]
    # From the first mean (at 0) to the second (at d) the ridgeline is x* = a l d/t, axis by axis.
    t = b + a * l
    return (np.square(a * l / t) * d2).sum(axis=1), (l * np.square(b / t) * d2).sum(axis=1)


def _log_elevation(pairs: _Pairs, which: Indices, s: Array) -> Array:
    first, second = _distances(pairs, which, s)
    height = pairs.log_height[which]
    return np.asarray(np.logaddexp(height - 0.5 * first, height - pairs.log_ratio[which] - 0.5 * second))


def _balance(pairs: _Pairs, which: Indices, s: Array) -> Array:
    """g(s), zero at the critical points."""
    first, second = _distances(pairs, which, s)
    return np.asarray(pairs.log_ratio[which] - 0.5 * (first - second) + s)


def _is_monotone(pairs: _Pairs, which: Indices, low: Array, high: Array) -> NDArray[np.bool_]:
    """Whether bounds of a (1 - a) sum_d l^2 d^2 / t^3 over each interval stay on one side of one."""
    l, d2 = pairs.l[which], pairs.d2[which]  # noqa: E741
    ends = np.stack([low, high])
    # t is linear in a, hence monotone in s: its extremes over an interval stand at the ends. a (1 - a) is largest at
    # the point nearest to s = 0 and smallest at the end farthest from it.
    t = expit(-ends)[..., None] + expit(ends)[..., None] * l
    least, most = (np.square(l / edge) / edge * d2 for edge in (t.max(axis=0), t.min(axis=0)))
    far, near = np.abs(ends).max(axis=0), np.clip(0.0, low, high)
    below = expit(near) * expit(-near) * most.sum(axis=1) < 1.0
    above = expit(far) * expit(-far) * least.sum(axis=1) > 1.0
    return np.asarray(below | above)


def _isolate(pairs: _Pairs) -> tuple[Indices, Array, Array]:
    """Intervals of s with exactly one critical point each: the pair, the lower and the upper ends."""
    # At a root s = -log_ratio + (first - second)/2. Each of the two distances is at most that between the means, in the
    # metric of its own component; no root lies outside.
    reach = 0.5 * np.maximum(pairs.d2.sum(axis=1), (pairs.l * pairs.d2).sum(axis=1))
    high = np.abs(pairs.log_ratio) + reach + 1.0
    which, low, found = np.arange(len(high)), -high, [np.empty((3, 0))]
    while len(which):
        narrow = high - low < _RESOLUTION * np.maximum(1.0, np.abs(low))
        done = narrow | _is_monotone(pairs, which, low, high)
        crossed = (_balance(pairs, which, low) < 0.0) != (_balance(pairs, which, high) < 0.0)
        found.append(np.stack([which, low, high])[:, done & crossed])
        which, low, high = which[~done], low[~done], high[~done]
        middle = 0.5 * (low + high)
        which, low, high = np.tile(which, 2), np.append(low, middle), np.append(middle, high)
    roots = np.concatenate(found, axis=1)
    return roots[0].astype(np.intp), roots[1], roots[2]


def _bisect(pairs: _Pairs, which: Indices, low: Array, high: Array) -> Array:
    """Root of g in each interval, on which g changes sign once."""
    rising = _balance(pairs, which, low) < 0.0
    while True:
        middle = 0.5 * (low + high)
        # Until no double lies between the ends.
        if not np.any((low < middle) & (middle < high)):
            return middle
        left = (_balance(pairs, which, middle) < 0.0) == rising
        low, high = np.where(left, middle, low), np.where(left, high, middle)


def _starts(mixture: Mixture) -> Array:
    """Centres, points amid all components, modes of pairs, and points between pairs and triples."""
    K = len(mixture.weights)
    i, j = np.triu_indices(K, 1)
    found = pair_critical_points(mixture, i, j)
    pair, a = found.pairs[found.is_mode], expit(found.logits[found.is_mode])
    between = np.zeros((len(a), K))
    between[np.arange(len(a)), i[pair]], between[np.arange(len(a)), j[pair]] = 1.0 - a, a
    # Those next to an end are the centres once more.
    between = between[(a > 0.01) & (a < 0.99)]
    parts = [np.eye(K), mixture.weights[None], np.full((1, K), 1.0 / K), between]
    sizes = [m for m, most in ((2, _PAIRS), (3, _TRIPLES)) if m <= K <= most]
    parts += [_centres(K, m) for m in sizes]
    return ridgeline(mixture, np.concatenate(parts))


def _centres(K: int, m: int) -> Array:
    """Middle of the simplex of every m of K components."""
    members = np.array(list(combinations(range(K), m)))
    a = np.zeros((len(members), K))
    np.put_along_axis(a, members, 1.0 / m, axis=1)
    return a


class _Slope(NamedTuple):
    """Of the log-density at n points: the gradient, minus the Hessian, and the metric sum_k p_k L_k."""

    gradient: Array
    curvature: Array
    metric: Array


def _slope(mixture: Mixture, precisions: Array, x: Array) -> _Slope:
    p = responsibilities(x, mixture)
    v = ((mixture.means[:, None, :] - x) @ precisions).transpose(1, 0, 2)
    gradient = np.einsum("nk,nki->ni", p, v)
    metric = np.tensordot(p, precisions, axes=1)
    spread = np.swapaxes(p[:, :, None] * v, 1, 2) @ v
    # Hessian of log f = sum p_k (v_k v_k' - L_k) - gradient gradient'.
    return _Slope(gradient, metric - spread + gradient[:, :, None] * gradient[:, None, :], metric)


def _climb(mixture: Mixture, x: Array) -> Array:
    """Modes that the points climb to; points that end on a saddle are dropped."""
    precisions = inverse(mixture.covariances)
    x = _climbed(mixture, precisions, x)
    return x[_is_peak(_slope(mixture, precisions, x))]


def _climbed(mixture: Mixture, precisions: Array, x: Array) -> Array:
    """Where the points climb to; x changes in place."""
    moving = np.arange(len(x))
    for _ in range(_MAX_STEPS):
        slope = _slope(mixture, precisions, x[moving])
        step = _step(slope)
        x[moving] += step
        moving = moving[_length(slope.metric, step) > _CONVERGED]
        if not len(moving):
            break
    return x


def _step(slope: _Slope) -> Array:
    """Newton's step where the density is concave and the step short, else that of the fixed-point iteration."""
    # The fixed-point iteration is x + metric^-1 gradient, an EM step: it never descends, but converges linearly.
    step = _solve(slope.metric, slope.gradient)
    concave = np.flatnonzero(_is_peak(slope))
    newton = _solve(slope.curvature[concave], slope.gradient[concave])
    near = _length(slope.metric[concave], newton) < _NEAR
    step[concave[near]] = newton[near]
    return step


def _length(metric: Array, step: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ni,nij,nj->n", step, metric, step)))


def _is_peak(slope: _Slope) -> NDArray[np.bool_]:
    """Whether the log-density is strictly concave at each point, beyond rounding."""
    # Eigenvalues relative to the metric: the limit has no unit.
    U = whiten(slope.metric).matrix
    relative = np.linalg.eigvalsh(np.swapaxes(U, 1, 2) @ slope.curvature @ U)
    return np.asarray(relative[:, 0] > 1e-9)


def _distinct(mixture: Mixture, points: Array) -> Array:
    """Points, highest first, less those that repeat an earlier one."""
    precisions = inverse(mixture.covariances)
    metric = _slope(mixture, precisions, points).metric
    kept: list[int] = []
    for n in range(len(points)):
        to_kept = points[kept] - points[n]
        if not np.any(_length(np.broadcast_to(metric[n], (len(kept), *metric[n].shape)), to_kept) < _SAME):
            kept.append(n)
    return points[kept]
