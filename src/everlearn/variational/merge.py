"""Posteriors of on-line variational Bayes into one, by the product of their densities."""

from __future__ import annotations

import numpy as np

from everlearn.gaussian.merge import procrustes
from everlearn.typing import Array
from everlearn.variational.learn import K0
from everlearn.variational.state import Posterior

# Rounds in which the parts' axes are rotated onto their mean; they converge in a few.
ALIGNMENTS = 50


def merge(parts: list[Posterior], shares: Array, K0: float = K0) -> Posterior:
    """Product of posteriors, each to the power of its share: natural parameters add.

    With shares of one it is streaming Bayes (Broderick and others, 2013); with shares that add up to one, mode-IMM (Lee
    and others, 2017). The prior, of precision K0, is counted once. The latent axes of the parts are first rotated onto
    each other. Squares by which the parts differ go into the noise.
    """
    # The likelihood does not change when the latent axes are rotated: posteriors have to be brought into common axes
    # before their natural parameters can be added.
    parts = [_weighed(_rotated(part, R), w) for part, R, w in zip(parts, _rotations(parts), shares, strict=True)]
    m = parts[0].K.shape[0]
    # Every part of share w brings w copies of the prior; all but one are taken off.
    once = (float(np.sum(shares)) - 1.0) * K0 * np.eye(m)
    # A column that a part observed in n_i of N rows has the precision K n_i/N there; hence one m x m system a column.
    trust = np.array([part.seen / part.N for part in parts])
    # A column that no part has seen: all are equally ignorant of it.
    trust[:, trust.sum(axis=0) <= 0.0] = 1.0
    precision = np.einsum("lc,lij->cij", trust, np.array([part.K for part in parts])) - once
    pull = sum(t[:, None] * (part.M @ part.K) for t, part in zip(trust, parts, strict=True))
    M: Array = np.linalg.solve(precision, pull[:, :, None])[:, :, 0]
    weight = trust * np.array([[part.N] for part in parts])
    mu: Array = np.sum(weight * [part.mu for part in parts], axis=0) / weight.sum(axis=0)
    # What completing the square leaves over: parts that disagree make the noise larger. Without it a merge would be
    # more certain of the noise than any of its parts.
    squares = sum(
        float(np.sum(t[:, None] * ((part.M - M) @ part.K) * (part.M - M)) + np.sum(w * (part.mu - mu) ** 2))
        for t, w, part in zip(trust, weight, parts, strict=True)
    )
    return Posterior(
        M,
        sum(part.K for part in parts) - once,
        mu,
        sum(part.N for part in parts),
        sum(part.a for part in parts),
        sum(part.b for part in parts) + 0.5 * squares,
        np.sum([part.seen for part in parts], axis=0),
    )


def _rotations(parts: list[Posterior]) -> list[Array]:
    """Orthogonal matrices that bring the parts' loadings together: each onto the mean of all, in turn."""
    # Generalised Procrustes analysis: rotate each onto the mean, average, repeat.
    weights = [part.N for part in parts]
    target = parts[int(np.argmax(weights))].M
    for _ in range(ALIGNMENTS):
        turns = [procrustes(part.M, target) for part in parts]
        last, target = target, np.average([part.M @ R for part, R in zip(parts, turns, strict=True)], 0, weights)
        if np.allclose(target, last, rtol=1e-12, atol=0.0):
            break
    return turns


def _rotated(part: Posterior, R: Array) -> Posterior:
    return part._replace(M=part.M @ R, K=R.T @ part.K @ R)


def _weighed(part: Posterior, w: float) -> Posterior:
    return part._replace(K=w * part.K, N=w * part.N, a=w * part.a, b=w * part.b, seen=w * part.seen)


def rescale(part: Posterior, factor: float) -> Posterior:
    """Posterior of the rows times `factor`."""
    return part._replace(M=part.M * factor, mu=part.mu * factor, b=part.b * factor * factor)
