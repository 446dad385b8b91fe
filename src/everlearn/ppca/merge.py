"""Several probabilistic PCAs into one: by the moments of their pooled data, or by the product of their densities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from everlearn.gaussian.merge import LowRank, mean_imm_low_rank, mode_imm_low_rank
from everlearn.ppca.learn import of_factor
from everlearn.ppca.state import PPCA, Flags
from everlearn.typing import Array


class ScaledPPCA(NamedTuple):
    """A model of rows divided by `scale`."""

    model: PPCA
    scale: float
    seen: Flags  # (d,): columns that the rows observed


def rescale(model: PPCA, factor: float) -> PPCA:
    """Model of the rows times `factor`."""
    return PPCA(model.mu * factor, model.W * factor, model.sigma2 * factor * factor)


def merge(parts: list[ScaledPPCA], weights: ArrayLike, q: int, method: str = "mean") -> ScaledPPCA:
    """Model of all parts' data with q axes, in the largest of their scales.

    Parameters
    ----------
    parts : list of ScaledPPCA
        The models. A column's mean comes from those that have seen it.
    weights : array-like
        Relative weight a_i of each.
    q : int
        Number of axes; further directions go into the noise variance.
    method : {"mean", "mode"}
        "mean" matches the moments of the pooled data, ``C = sum a_i (C_i + (mu_i - mu)(mu_i - mu)')``; "mode" is the
        product of the densities to the powers a_i, ``C^-1 = sum a_i C_i^-1``, whose mean is its mode.

    Returns
    -------
    ScaledPPCA
        Exact before it is cut to q axes; a d x d matrix is never formed.
    """
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    scale = max(part.scale for part in parts)
    models = [rescale(part.model, part.scale / scale) for part in parts]
    seen = np.array([part.seen for part in parts])
    trust = shares[:, None] * seen
    # Below the bar 1e-300 only where no part saw the column; the sum above it is zero, too.
    mean = np.sum(trust * [model.mu for model in models], axis=0) / np.maximum(trust.sum(axis=0), 1e-300)
    # A part that never saw a column has no opinion of its mean: it takes that of the others.
    means: Array = np.where(seen, [model.mu for model in models], mean)
    low_rank = [LowRank(mu, model.W, np.full(len(mu), model.sigma2)) for mu, model in zip(means, models, strict=True)]
    pooled = (mode_imm_low_rank if method == "mode" else mean_imm_low_rank)(shares, low_rank)
    # The noise is isotropic in every part and so in the pool: one of the d numbers says it.
    return ScaledPPCA(of_factor(pooled.mean, pooled.factor, float(pooled.noise[0]), q), scale, np.any(seen, axis=0))
