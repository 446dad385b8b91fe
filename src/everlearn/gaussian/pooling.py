"""Mode-IMM for mixtures: components of several models that stand for the same are pooled, as single Gaussians are.

The parameters of a component that n rows support have Fisher information in proportion to n: its mean ``n Sigma^-1``.
Where components i of several models stand for the same, the mode of the product of their posteriors is therefore
``Lambda = sum_i a_i Sigma_i^-1`` and ``mu = Lambda^-1 sum_i a_i Sigma_i^-1 mu_i`` with ``a_i = n_i / sum n``, which is
`merge.mode_imm`, and their counts add.

References
----------
Lee et al., "Overcoming catastrophic forgetting by incremental moment matching", NIPS 2017.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from everlearn.gaussian.gaussian import Gaussian, Indices, moment_match
from everlearn.gaussian.merge import mode_imm
from everlearn.gaussian.mixture import Mixture
from everlearn.gaussian.reduction import reduce_greedy
from everlearn.typing import Array


def pool(parts: Sequence[Mixture], *, n_components: int | None = None, max_components: int | None = None) -> Mixture:
    """Pool the components of several mixtures, whose weights are counts.

    Parameters
    ----------
    parts : sequence of Mixture
        Mixtures over the same columns, all with full covariances or all with diagonal ones.
    n_components : int, optional
        Components of the result, or all of them where there are fewer; by default components are pooled where one
        Gaussian describes their rows as well by the Bayesian information criterion.
    max_components : int, optional
        Pool further, whatever it costs, while there are more.

    Returns
    -------
    Mixture
        Its weights are counts. A component that no other model knows is as it was.
    """
    weights, means, covariances = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    owners = np.repeat(np.arange(len(parts)), [len(part.weights) for part in parts])
    if n_components is None:
        # Runnalls' cost in counts is a loss of log-likelihood; a component less saves half a log(n) a parameter.
        D = means.shape[1]
        parameters = 1 + D + (D if covariances.ndim == 2 else D * (D + 1) // 2)
        most = 0.5 * parameters * float(np.log(max(weights.sum(), np.e)))
        merged = reduce_greedy(weights, means, covariances, max_cost=most, max_components=max_components)
    else:
        merged = reduce_greedy(weights, means, covariances, n_components=n_components)
    labels = merged.labels
    groups = [
        _pooled(Mixture(weights[g], means[g], covariances[g]), owners[g])
        for g in (np.flatnonzero(labels == label) for label in range(labels.max() + 1))
    ]
    counts: Array = np.zeros(len(groups))
    np.add.at(counts, labels, weights)
    return Mixture(counts, np.stack([g.mean for g in groups]), np.stack([g.covariance for g in groups]))


def _pooled(group: Mixture, owners: Indices) -> Gaussian:
    """One Gaussian for components that stand for the same, of the models `owners`."""
    of_models, counts = [], []
    for owner in np.unique(owners):
        w, m, S = (array[owners == owner] for array in group)
        # Components of one model have different rows: their moments are those of all of these. Pooled they would lose
        # the spread between their means.
        of_models.append(moment_match(w / w.sum(), m, S))
        counts.append(w.sum())
    if len(of_models) == 1:
        return of_models[0]
    return mode_imm(np.array(counts), *(np.stack(arrays) for arrays in zip(*of_models, strict=True)))
