"""Mixture reduction: fewer components that say nearly the same.

Greedy merging by Runnalls' bound on the Kullback-Leibler divergence, refinement by Goldberger and Roweis' hard
assignment, and two measures of what was lost.

References
----------
Runnalls, "Kullback-Leibler approach to Gaussian mixture reduction", IEEE Trans. AES 43, 2007.
Goldberger and Roweis, "Hierarchical clustering of a mixture model", NIPS 2004.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everlearn.errors import InputError
from everlearn.gaussian.gaussian import LOG_2PI, Indices, log_det, log_sum_exp, moment_match, safe_cholesky, whiten
from everlearn.gaussian.kernels import reduction as kernels
from everlearn.gaussian.mixture import Mixture, squared_distances
from everlearn.typing import Array


class Greedy(NamedTuple):
    """Components that are left after greedy merging, and which of them each original one went into."""

    weights: Array  # (M,)
    means: Array  # (M, D)
    covariances: Array  # (M, D, D) or (M, D)
    labels: Indices  # (K,)


class Refined(NamedTuple):
    """A refined reduction, the assignment of the original components, and d(f, g) before and after each sweep."""

    mixture: Mixture
    labels: Indices
    distances: Array


class Reduction(NamedTuple):
    """A reduced mixture and what the reduction cost."""

    mixture: Mixture
    labels: Indices  # (K,)
    distance: float  # d(f, g), in nats
    squared_error: float  # integral of (f - g)^2, as a share of the integral of f^2
    is_refined: bool  # False: refinement would have raised the squared error, and was left out


class Hierarchy(NamedTuple):
    """The tree of greedy reductions, from all K components to one."""

    mixture: Mixture  # the leaves
    linkage: Array  # (K - 1, 4): two clusters, height, leaves, as SciPy's `dendrogram` takes them
    costs: Array  # (K - 1,): what each merge costs, in nats

    def cut(self, n_components: int) -> tuple[Mixture, Indices]:
        """The mixture of the tree with `n_components`, and which of them each leaf belongs to."""
        K = len(self.mixture.weights)
        if not 1 <= n_components <= K:
            raise InputError(f"n_components must be from 1 to {K}, the number of leaves; got {n_components!r}.")
        clusters = np.arange(K)
        # The linkage names the cluster of merge t as K + t.
        for t, (a, b) in enumerate(self.linkage[: K - n_components, :2]):
            clusters[(clusters == a) | (clusters == b)] = K + t
        labels = np.unique(clusters, return_inverse=True)[1]
        return _refit(self.mixture, labels, n_components), labels


def reduce(mixture: Mixture, n_components: int) -> Reduction:
    """Reduce a mixture to `n_components`: greedily, then refined; of the two the one with the smaller squared error.

    Refinement lowers d(f, g), which bounds the Kullback-Leibler divergence, and may raise the squared error all the
    same; `is_refined` says which of the two is returned.
    """
    greedy = reduce_greedy(*mixture, n_components=n_components)
    start = Mixture(*greedy[:3])
    refined = refine(mixture, start, greedy.labels)
    errors = [squared_error(mixture, g, relative=True) for g in (start, refined.mixture)]
    if errors[0] < errors[1]:
        return Reduction(start, greedy.labels, distance(mixture, start), errors[0], is_refined=False)
    return Reduction(refined.mixture, refined.labels, float(refined.distances[-1]), errors[1], is_refined=True)


def reduce_greedy(
    weights: Array,
    means: Array,
    covariances: Array,
    *,
    n_components: int = 1,
    max_cost: float = np.inf,
    max_components: int | None = None,
) -> Greedy:
    """Merge the cheapest pair, by moment matching, until `n_components` are left or a merge would cost too much.

    The cost of a pair is Runnalls' upper bound on the rise in Kullback-Leibler divergence,
    ``((w_i + w_j) ln|S_ij| - w_i ln|S_i| - w_j ln|S_j|) / 2``, in nats times the unit of the weights: with counts
    for weights, it compares with a penalty on the log-likelihood.

    Costs are evaluated only for pairs whose lower bound makes them candidates; the sequence of merges is that of the
    full table of costs.

    Parameters
    ----------
    weights : array (K,)
        Positive weights or counts; they need not sum to one.
    means : array (K, D)
        Means.
    covariances : array (K, D, D) or (K, D)
        Covariances, or variances of diagonal ones.
    n_components : int
        Never merge to fewer.
    max_cost : float
        Stop when the cheapest pair costs more,
    max_components : int, optional
        but go on, whatever it costs, while there are more components than this.
    """
    scale = _column_scale(covariances)
    limit = len(weights) if max_components is None else max_components
    stop = kernels.Stop(max(int(n_components), 1), float(max_cost), int(limit))
    components, labels, _ = _merge_greedily(weights, means, covariances, scale, stop)
    kept, labels = np.unique(labels, return_inverse=True)
    w, m, S, _ = (array[kept] for array in components)
    merged = S * scale * scale[:, None] if covariances.ndim == 3 else S[:, 0] * scale * scale
    return Greedy(w, m * scale, merged, labels)


def hierarchy(mixture: Mixture) -> Hierarchy:
    """Merge the cheapest pair of components, by moment matching, until one is left.

    The height of a node is the sum of the costs up to it: an upper bound of the Kullback-Leibler divergence from the
    mixture to its reduction there, in nats. The weights are taken as shares of one.
    """
    f = mixture._replace(weights=mixture.weights / mixture.weights.sum())
    K = len(f.weights)
    stop = kernels.Stop(1, np.inf, K)
    _, _, history = _merge_greedily(*f, _column_scale(f.covariances), stop)
    linkage = np.empty((K - 1, 4))
    names, sizes = np.arange(K), np.ones(K)
    # SciPy numbers the cluster of merge t as K + t.
    for t, (i, j) in enumerate(zip(history.first, history.second, strict=True)):
        sizes[i] += sizes[j]
        linkage[t] = min(names[i], names[j]), max(names[i], names[j]), history.cost[: t + 1].sum(), sizes[i]
        names[i] = K + t
    return Hierarchy(f, linkage, history.cost)


def _merge_greedily(
    weights: Array, means: Array, covariances: Array, scale: Array, stop: kernels.Stop
) -> tuple[kernels.Components, Indices, kernels.History]:
    """Components after greedy merging in units of `scale`, the slot that each went into, and the merges."""
    if not (np.all(weights > 0.0) and np.all(np.isfinite(weights))):
        raise InputError("weights must be positive and finite; drop the components that have no weight.")
    m, S = _scaled(means, covariances, scale)
    S, factors, log_dets = _factorised(S)
    components = kernels.Components(weights.copy(), m, S, log_dets)
    n = len(weights)
    labels, slots = np.arange(n), np.zeros((2, max(n - 1, 0)), dtype=np.intp)
    history = kernels.History(slots[0], slots[1], np.zeros(max(n - 1, 0)))
    merges = kernels.merge_greedily(components, factors, stop, labels, history)
    return components, labels, kernels.History._make(array[:merges] for array in history)


def refine(mixture: Mixture, reduced: Mixture, labels: Indices | None = None, *, max_sweeps: int = 100) -> Refined:
    """Assign every component f_i to the g_j with the least KL(f_i, g_j), refit each g_j by moment matching, repeat.

    Ends when no assignment changes. d(f, g) never rises. A g_j that loses all its components takes over the one that
    is served worst. `labels` is the assignment that `reduced` was fitted to, where known.
    """
    f, g = mixture, reduced
    divergences = _divergences(f, g)
    old = np.full(len(f.weights), -1) if labels is None else labels
    distances = [_distance(f, divergences)]
    for _ in range(max_sweeps):
        labels = _reseed_empty(f.weights, divergences, divergences.argmin(axis=1))
        # No assignment changed: refitting would give the same components again.
        if np.array_equal(labels, old):
            break
        g = _refit(f, labels, len(g.weights))
        divergences, old = _divergences(f, g), labels
        distances.append(_distance(f, divergences))
    return Refined(g, old, np.array(distances))


def distance(f: Mixture, g: Mixture) -> float:
    """d(f, g) = sum_i w_i min_j KL(f_i, g_j), in nats: how far the components of f lie from their nearest in g."""
    return _distance(f, _divergences(f, g))


def squared_error(f: Mixture, g: Mixture, *, relative: bool = False) -> float:
    """Integral of (f - g)^2 in closed form, or its share of the integral of f^2.

    Each product of two Gaussians integrates to ``N(mu_i; mu_j, S_i + S_j)``.
    """
    scale = _column_scale(f.covariances)
    log_ff, log_fg, log_gg = (_log_overlap(a, b, scale) for a, b in ((f, f), (f, g), (g, g)))
    # As ratios to the integral of f^2: the integrals themselves leave the range of doubles in many columns. For g near
    # f the three terms cancel, and rounding may leave less than zero.
    share = max(1.0 - 2.0 * np.exp(log_fg - log_ff) + np.exp(log_gg - log_ff), 0.0)
    # A density is per volume, and so is the integral of its square: back to the unit of the data.
    return float(share if relative else share * np.exp(log_ff - np.log(scale).sum()))


def _column_scale(covariances: Array) -> Array:
    """A power of two near the typical standard deviation of each column."""
    variances = covariances if covariances.ndim == 2 else np.diagonal(covariances, axis1=1, axis2=2)
    return np.asarray(np.ldexp(1.0, np.frexp(np.median(variances, axis=0))[1] // 2))


def _scaled(means: Array, covariances: Array, scale: Array) -> tuple[Array, Array]:
    """Means and covariances in units of `scale`; diagonal ones get the shape (K, 1, D) of the kernels."""
    if covariances.ndim == 2:
        return means / scale, (covariances / scale / scale)[:, None, :]
    return means / scale, covariances / scale / scale[:, None]


def _factorised(covariances: Array) -> tuple[Array, Array, Array]:
    """Covariances that are positive definite, their Cholesky factors (none if diagonal) and log-determinants."""
    if covariances.shape[1] == 1:
        return covariances, np.empty((len(covariances), 1, 1)), np.log(covariances).sum(axis=(1, 2))
    factors, covariances = safe_cholesky(covariances)
    return covariances, factors, 2.0 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)


def _log_dets(covariances: Array) -> Array:
    return np.log(covariances).sum(axis=-1) if covariances.ndim == 2 else log_det(covariances)


def _divergences(f: Mixture, g: Mixture) -> Array:
    """KL(f_i, g_j) for all pairs, (K, M)."""
    K, D = f.means.shape
    M = len(g.weights)
    whitening = whiten(g.covariances, diagonal=g.is_diagonal)
    U = whitening.matrix
    precisions = U * U if g.is_diagonal else U @ U.transpose(0, 2, 1)
    # tr(S_i P_j) for all pairs is one product of the flattened matrices.
    trace = f.covariances.reshape(K, -1) @ precisions.reshape(M, -1).T
    d2 = squared_distances(f.means, g.means, whitening)
    return np.asarray(0.5 * (trace + d2 - D + whitening.log_det - _log_dets(f.covariances)[:, None]))


def _distance(f: Mixture, divergences: Array) -> float:
    return float(f.weights @ divergences.min(axis=1) / f.weights.sum())


def _reseed_empty(weights: Array, divergences: Array, labels: Indices) -> Indices:
    """Give each empty cluster the component that costs most where it is."""
    counts = np.bincount(labels, minlength=divergences.shape[1])
    for j in np.flatnonzero(counts == 0):
        cost = weights * divergences[np.arange(len(labels)), labels]
        # Not from a cluster of one: that would only make another empty.
        worst = np.where(counts[labels] > 1, cost, -np.inf).argmax()
        counts[labels[worst]] -= 1
        labels[worst], counts[j] = j, 1
    return labels


def _refit(f: Mixture, labels: Indices, n_components: int) -> Mixture:
    members = [np.flatnonzero(labels == j) for j in range(n_components)]
    fitted = [moment_match(f.weights[m], f.means[m], f.covariances[m]) for m in members]
    weights = np.array([f.weights[m].sum() for m in members])
    return Mixture(weights, np.stack([g.mean for g in fitted]), np.stack([g.covariance for g in fitted]))


def _log_overlap(f: Mixture, g: Mixture, scale: Array) -> float:
    """Log of the integral of f g over columns in units of `scale`."""
    terms = np.empty((len(f.weights), len(g.weights)))
    a, b = _scaled(f.means, f.covariances, scale), _scaled(g.means, g.covariances, scale)
    kernels.overlaps(*a, *b, terms)
    log_weights = np.log(f.weights)[:, None] + np.log(g.weights)
    return float(log_sum_exp((log_weights - 0.5 * (terms + len(scale) * LOG_2PI)).ravel()))
