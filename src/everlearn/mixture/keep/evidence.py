"""How a set of components is judged: leave-one-out likelihood less a price for each, and the evidence bound."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.mixture.kernels import fitting as kernels
from everlearn.mixture.kernels.covariance import factors_of_counts
from everlearn.mixture.kernels.em import ALPHA, Gaussians, Moments, Rows
from everlearn.mixture.kernels.near import Near
from everlearn.mixture.state import Array, Shape, World

# Constant, root and linear term of the price of a component.
PRICE = 3.5, 3.2, 0.18


class Fit(NamedTuple):
    """Components fitted to the rows of a search."""

    R: Array  # (m, K), responsibilities
    moments: Moments
    shape: Shape
    left_out: Array  # (m,), leave-one-out log-density of each row
    log_density: float  # the same, summed over the rows
    value: float  # the same less the price of the components
    near: Near | None = None  # the responsibilities as a sparse matrix, if they are one

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.moments.counts)


def n_parameters(D: int, diagonal: bool) -> float:
    """Free numbers of a Gaussian in D columns."""
    return 2.0 * D if diagonal else D + 0.5 * D * (D + 1)


def price(D: int, diagonal: bool) -> float:
    """Nats that a component must gain in leave-one-out likelihood to be kept.

    Leave-one-out with fixed responsibilities pays for means and covariances but not for the freedom to choose the
    responsibilities. On rows of a single Gaussian that freedom gains an amount whose mean grows with the number of
    parameters p and whose standard deviation with its root; hardly with the number of rows. The constants put the
    price above its 99th percentile (benchmarks/mixture_price.py).
    """
    p = n_parameters(D, diagonal)
    return PRICE[0] + PRICE[1] * math.sqrt(p) + PRICE[2] * p


def common_shape(moments: Moments, world: World, ridge: Array, tau: float, diagonal: bool) -> Shape:
    """Log-Euclidean mean of the covariances, weighted by counts: ``exp(sum_k w_k log Sigma_k)``.

    A pooled covariance would swamp directions in which single components are thin. One row of the shape of all rows
    helps where components have few. Of a single component it is the component's own covariance, with correlations
    that `kept_correlations` shrinks.
    """
    spare = np.maximum(moments.counts - 1.0, 0.0)
    pooled = (moments.scatters.sum(axis=0) + world.typical) / (spare.sum() + 1.0)
    if len(spare) == 1:
        kept = kept_correlations(spare.sum(), tau)
        return Shape(kept * pooled + (1.0 - kept) * np.diag(pooled.diagonal()), ridge, tau, diagonal)
    if diagonal:
        return Shape(_diagonal_shape(moments, pooled, ridge), ridge, tau, True)
    weights = (spare + 1e-9) / (spare + 1e-9).sum()
    d = np.sqrt(np.diag(pooled) + ridge)
    each = (moments.scatters + pooled) / np.maximum(moments.counts, 1.0)[:, None, None]
    # In units of the pooled spread: logarithms of matrices depend on the units of their columns.
    each = each / np.outer(d, d) + np.diag(ridge / d**2)
    values, vectors = np.linalg.eigh(each)
    logs = weights[:, None] * np.log(np.maximum(values, 1e-9))
    total = ((vectors * logs[:, None, :]) @ vectors.transpose(0, 2, 1)).sum(axis=0)
    values, vectors = np.linalg.eigh(total)
    mean = (vectors * np.exp(values)) @ vectors.T * np.outer(d, d)
    return Shape(np.ascontiguousarray(mean), ridge, tau)


def kept_correlations(count: float, tau: float) -> float:
    """Factor of the correlations in the shape of a single component with so many rows: count / (count + tau).

    The covariance, S + tau C over count + tau, then has 1 - (tau / (count + tau))^2 of the correlations of its rows:
    the more the shape weighs, the less it repeats what S says. So leave-one-out, which chooses tau, chooses how far
    the correlations are shrunk: of 200 rows of 60 independent columns nearly all, of an autoregression 2 %.
    """
    return count / (count + tau)


def made_of_rows(counts: Array, shape: Shape) -> float:
    """Part of the common shape that a row takes along when it is left out, e e' being the whole.

    In the shape of a single component a part of e e' is its diagonal only. What that does to the log-density of the
    row is in proportion to the parameters: D of D (D + 1) / 2.
    """
    if len(counts) > 1 or shape.diagonal:
        return 1.0
    kept = kept_correlations(max(float(counts[0]) - 1.0, 0.0), shape.tau)
    varying = max(int(np.count_nonzero(shape.matrix.diagonal())), 1)
    return kept + (1.0 - kept) * 2.0 / (varying + 1.0)


def left_out_gaussians(moments: Moments, shape: Shape, constant: NDArray[np.intp]) -> Gaussians:
    """Components as leave-one-out needs them, of which the `constant` columns have the ridge for variance, and no more.

    In a column that does not vary the covariance is a factor of the ridge that depends on counts and on the weight of
    the shape: nothing but noise in what is compared.
    """
    known = gaussians(moments, shape)
    if not len(constant):
        return known
    counts, ridge = moments.counts[:, None], shape.ridge[constant]
    # Of one row less, as all that leave-one-out compares.
    factors = factors_of_counts(np.maximum(counts - 1.0, 0.0), shape.tau)
    inside = shape.tau * shape.matrix.diagonal()[constant] + (counts + shape.tau) * ridge
    return known._replace(log_dets=known.log_dets - np.log(inside * factors / ridge).sum(axis=1))


def _diagonal_shape(moments: Moments, pooled: Array, ridge: Array) -> Array:
    """Geometric mean of the variances, weighted by counts, as a diagonal matrix."""
    spare = np.maximum(moments.counts - 1.0, 0.0) + 1e-9
    variances = np.diagonal(moments.scatters + pooled, axis1=1, axis2=2) / np.maximum(moments.counts, 1.0)[:, None]
    return np.diag(np.exp(spare / spare.sum() @ np.log(np.maximum(variances + ridge, 1e-300))))


def evidence(rows: Rows, R: Array, moments: Moments, shape: Shape, world: World) -> float:
    """Lower bound of the log-evidence for any R: marginal likelihoods, Dirichlet-multinomial and entropy of R."""
    return float(kernels.evidence_of(rows, R, moments, shape, world.background))


def weights_normaliser(K: int, n: float) -> float:
    """Part of the Dirichlet-multinomial that depends on the number of components only."""
    return math.lgamma(K * ALPHA) - math.lgamma(K * ALPHA + n)


def gaussians(moments: Moments, shape: Shape) -> Gaussians:
    """Components as an E-step needs them."""
    return kernels.gaussians_of(moments, shape)  # type: ignore[no-any-return]
