"""Components, rows and settings of a mixture, to test its kernels with."""

import numpy as np

from everlearn.mixture.keep.carry import Stock, components_of
from everlearn.mixture.keep.forgetting import fading_of
from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels.em import Rows
from everlearn.mixture.kernels.wide import background_of
from everlearn.mixture.state import Frame, Settings, Shape


def shape_of(D, *, tau=1.5, ridge=1e-3, diagonal=False):
    """A common shape with correlations."""
    return Shape(np.eye(D) + 0.3, np.full(D, ridge), tau, diagonal)


def groups(rng, n, D, K, apart=4.0):
    """Rows of K groups of unequal spread, and their numbers."""
    centres, label = apart * rng.normal(size=(K, D)), np.arange(n) % K
    return centres[label] + (0.5 + label[:, None] / K) * rng.normal(size=(n, D)), label


def rows_of(Z, weights=None, *, background=False):
    """Rows of a search, with the broad Gaussian of all of them behind or with nothing."""
    weights = np.ones(len(Z)) if weights is None else weights
    world = world_of_rows(Z, weights, 1.0)
    behind = background_of(Z, world.background) if background else np.full(len(Z), -np.inf)
    return Rows(Z, weights, behind, float(weights.sum()))


def components(Z, R, shape, *, room, parts=0):
    """Components of the moments of Z with responsibilities R, refreshed."""
    counts = R.sum(axis=0)
    means = R.T @ Z / counts[:, None]
    scatter = np.array([(r[:, None] * (Z - m)).T @ (Z - m) for r, m in zip(R.T, means, strict=True)])
    return components_of(Stock(counts.copy(), counts, means, scatter), float(len(Z)), shape, room, parts)


def settings_for(D, *, threshold=np.inf, forgetting=1.0, **changes):
    """Settings in which a factor is renewed when its component has grown by a fifth."""
    plain = Settings(np.full(D + 1, threshold), 0.2, 7, 0, 50, 200, False, fading_of(forgetting, 200))
    return plain._replace(**changes)


def frame_of(D):
    """A frame with a centre and scales other than one."""
    inverse = 2.0 ** np.arange(-2.0, D - 2.0)
    return Frame(np.linspace(-1.0, 2.0, D), inverse, -np.log(inverse))


def finish(steps):
    """What a generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
