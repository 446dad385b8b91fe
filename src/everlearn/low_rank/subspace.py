"""A subspace that several low-rank mixtures have in common, made from their sketches when it is asked for.

In it a component is a Gaussian with a full covariance of few columns: classes are told apart there better than in all
columns, most of which hold noise only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from everlearn.low_rank.kernels.fold import top_directions
from everlearn.low_rank.kernels.shape import KAPPA
from everlearn.low_rank.learn import in_frame
from everlearn.low_rank.state import Components, Frame, Readout
from everlearn.typing import Array

# Rows of scaled directions that are reduced at once.
STACKED = 400


class Known(Protocol):
    """A mixture, as far as a subspace is made of it."""

    @property
    def components(self) -> Components:
        """Its sketches."""

    @property
    def readout(self) -> Readout:
        """What they say."""

    @property
    def frame(self) -> Frame:
        """The coordinates of both."""


class Sketched(NamedTuple):
    """A mixture without anything to answer with."""

    components: Components
    readout: Readout
    frame: Frame


class Subspace(NamedTuple):
    """Orthonormal axes in the coordinates of a frame, those of the largest scatter first."""

    frame: Frame
    centre: Array  # (D,)
    axes: Array  # (G, D)

    def coordinates(self, X: Array) -> Array:
        """Rows without gaps, in the units of the data, along the axes."""
        return np.asarray((in_frame(X, self.frame) - self.centre) @ self.axes.T)


class Moments(NamedTuple):
    """Components of a mixture in a subspace."""

    counts: Array  # (K,)
    means: Array  # (K, G)
    covariances: Array  # (K, G, G)


def common_subspace(looks: Sequence[Known], G: int) -> Subspace:
    """The axes of the largest total scatter: within components and between their means; no row is needed.

    Sketches are stacked and reduced to G directions, 400 rows at a time: exact up to what these cuts lose.
    """
    masses = [look.components.mass for look in looks]
    frame = looks[int(np.argmax([mass.sum() for mass in masses]))].frame
    means = [_means(look, frame) for look in looks]
    mass = np.concatenate(masses)
    centre = mass @ np.concatenate(means) / mass.sum()
    D = len(centre)
    top, energy = np.zeros((min(G, D), D)), np.zeros(min(G, D))
    # Z'Z of the stack is the total scatter: between the means first, then within each component.
    stack = np.sqrt(mass)[:, None] * (np.concatenate(means) - centre)
    for look in looks:
        c, ratio = look.components, frame.inverse / look.frame.inverse
        for j, used in enumerate(c.used):
            # A row of the stream counts the same, whether it is behind the sketch or only counted.
            share = c.scatter[j, :used] * (c.mass[j] / max(c.n[j] + c.borrowed[j], 1e-300))
            stack = np.concatenate([stack, np.sqrt(share)[:, None] * c.directions[j, :used] * ratio])
            if len(stack) > STACKED + len(top):
                used_axes = top_directions(stack, len(top), top, energy)
                stack = np.sqrt(energy[:used_axes])[:, None] * top[:used_axes]
    used_axes = top_directions(stack, len(top), top, energy)
    return Subspace(frame, centre, top[: max(used_axes, 1)].copy())


def _means(look: Known, frame: Frame) -> Array:
    """Means of the components in the coordinates of a frame."""
    raw = look.components.mean / look.frame.inverse + (look.frame.centre - frame.centre)
    return np.asarray(raw * frame.inverse)


def mean_noise(look: Known, space: Subspace) -> Array:
    """Mean noise of each component over all columns, in the coordinates of a subspace, (K,)."""
    return np.asarray(look.readout.noise * float(np.mean((space.frame.inverse / look.frame.inverse) ** 2)))


def noise_along(look: Known, space: Subspace) -> Array:
    """Mean noise of each component along the axes of a subspace, if it is uncorrelated, (K,).

    It is that of the columns in which the axes lie, whether the read-out has isotropic noise or not: the mean over all
    columns is also that of dead and quiet ones, which the axes avoid.
    """
    c, s = look.components, look.readout.noise
    used = np.arange(c.scatter.shape[1]) < look.readout.rank[:, None]
    # Scatter of each column off the directions; the prior is that of `kernels.shape.refresh`.
    off = np.maximum(c.diagonal - np.einsum("kq,kqd->kd", c.scatter * used, c.directions**2), 0.0)
    rows = np.maximum(c.n + c.borrowed - 1.0 - look.readout.rank, 0.0) + KAPPA
    psi = (off + KAPPA * s[:, None]) / rows[:, None] * (space.frame.inverse / look.frame.inverse) ** 2
    return np.asarray((psi @ (space.axes**2).T).mean(axis=1))


def leverages(look: Known, space: Subspace, rows: Array) -> Array:
    """How far each row, in the coordinates of a subspace, draws each component to itself, (n, K).

    That is 1/n for the mean and (u'e)^2 / a for a direction u of scatter a, of the deviation e. A full covariance would
    be drawn in all directions, one of low rank only along its own.
    """
    c = look.components
    means = (_means(look, space.frame) - space.centre) @ space.axes.T
    ratio, out = space.frame.inverse / look.frame.inverse, np.empty((len(rows), len(means)))
    for k, mean in enumerate(means):
        rank = look.readout.rank[k]
        # Directions in the frame of the space, as the rows are; the scatter along them changes as their length does.
        P = (rows - mean) @ ((c.directions[k, :rank] / ratio) @ space.axes.T).T
        out[:, k] = 1.0 / max(c.n[k], 1.0) + (P * P) @ (1.0 / c.scatter[k, :rank])
    return out


def moments(look: Known, space: Subspace, noise: Array) -> Moments:
    """The components of a mixture in a subspace, each with its noise in it, (K,)."""
    ratio = space.frame.inverse / look.frame.inverse
    loadings = np.sqrt(look.readout.loading)[:, :, None] * look.components.directions
    A = (loadings * ratio) @ space.axes.T
    # W'W projected on the axes.
    covariances = np.swapaxes(A, 1, 2) @ A
    G = len(space.axes)
    covariances[:, np.arange(G), np.arange(G)] += noise[:, None]
    means = (_means(look, space.frame) - space.centre) @ space.axes.T
    return Moments(look.components.mass.copy(), means, covariances)


class Projected(NamedTuple):
    """A mixture in its own subspace, ready to score rows."""

    space: Subspace
    means: Array  # (K, G)
    factors: Array  # (K, G, G), lower Cholesky factors of the covariances
    heights: Array  # (K,), ln|Sigma| - 2 ln(weight), less the least of them

    def distances(self, Z: Array) -> Array:
        """Squared distances of rows in the coordinates of the frame, without gaps, to the components, (n, K)."""
        C = (Z - self.space.centre) @ self.space.axes.T
        out = np.empty((len(Z), len(self.means)))
        for k, (mean, L) in enumerate(zip(self.means, self.factors, strict=True)):
            e = solve_triangular(L, (C - mean).T, lower=True, check_finite=False)
            out[:, k] = np.einsum("gn,gn->n", e, e)
        return out


def projected(known: Known, G: int, loudness: float) -> Projected:
    """A mixture in the subspace of its own G axes, with `loudness` times its mean noise there."""
    space = common_subspace([known], G)
    counts, means, covariances = moments(known, space, loudness * mean_noise(known, space))
    factors = np.asarray(np.linalg.cholesky(covariances), np.float64)
    log_det = 2.0 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    heights = log_det - 2.0 * np.log(np.maximum(counts / counts.sum(), 1e-300))
    return Projected(space, means, factors, heights - heights.min())
