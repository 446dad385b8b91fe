"""The shape of a mixture's density: fewer components, modes, ridgelines, clusters.

Each function takes an `IncrementalGaussianMixture`, a fitted scikit-learn `GaussianMixture` or a
`gaussian.mixture.Mixture`. Of an incremental mixture it looks at the components that one sees (`means_`, ...).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.base.scaling import nearest_power_of_two
from everlearn.errors import InputError
from everlearn.figmn.estimator import FIGMN
from everlearn.gaussian import modes as topography
from everlearn.gaussian import reduction
from everlearn.gaussian.gaussian import moment_match
from everlearn.gaussian.mixture import Mixture, log_density, variances
from everlearn.gaussian.modes import Modes
from everlearn.gaussian.reduction import Hierarchy
from everlearn.mixture.estimator import IncrementalGaussianMixture

Array = NDArray[np.float64]


class Ridgeline(NamedTuple):
    """The curve between two components on which all critical points of their mixture lie.

    Attributes
    ----------
    a : ndarray of shape (n_points,)
        Position, 0 at the first component's mean and 1 at the second's.
    points : ndarray of shape (n_points, n_features)
        The curve.
    log_density : ndarray of shape (n_points,)
        Elevation: log-density of the mixture of the two.
    ratio : float
        Lowest saddle over the lower mode; 1 where the two make a single hill.
    """

    a: Array
    points: Array
    log_density: Array
    ratio: float


def reduce(mixture: Any, n_components: int) -> Any:
    """Return a mixture with at most `n_components` that says nearly the same.

    Pairs are merged by Runnalls' bound on the Kullback-Leibler divergence, cheapest first, and the result is refined
    after Goldberger and Roweis; an incremental mixture refines it on the rows that it has kept.

    Parameters
    ----------
    mixture : IncrementalGaussianMixture, GaussianMixture or Mixture
        It does not change.
    n_components : int
        The most components to keep.

    Returns
    -------
    reduced
        A new one of the same class; an incremental mixture goes on learning. Of a scikit-learn mixture tied
        covariances become full and spherical ones diagonal.

    Examples
    --------
    >>> import everlearn
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2)) + 9.0 * rng.integers(3, size=(600, 1))
    >>> model = everlearn.IncrementalGaussianMixture(4).fit(X)
    >>> everlearn.reduce(model, 2).n_components_
    2
    """
    if isinstance(mixture, IncrementalGaussianMixture | FIGMN):
        mixture._check_started()
        return mixture.merge(n_components=n_components)
    f = mixture_of(mixture)
    if not isinstance(n_components, int | np.integer) or n_components < 1:
        raise InputError(f"n_components must be an integer from 1 on; got {n_components!r}.")
    if n_components < len(f.weights):
        f = reduction.reduce(f, int(n_components)).mixture
    if isinstance(mixture, Mixture):
        return f
    from everlearn.figmn.sklearn_conversion import fitted_sklearn

    return fitted_sklearn(f, "diag" if f.is_diagonal else "full")


def hierarchy(mixture: Any) -> Hierarchy:
    """Tree of reductions of a mixture: the cheapest pair of components is merged until one is left.

    The hierarchy of Goldberger and Roweis, with Runnalls' bound as the cost of a merge.

    Parameters
    ----------
    mixture : IncrementalGaussianMixture, GaussianMixture or Mixture
        It does not change.

    Returns
    -------
    Hierarchy
        `linkage` of shape (n_components - 1, 4), as `scipy.cluster.hierarchy.dendrogram` takes it: two clusters, the
        height, and the number of leaves of each merge. The height bounds the Kullback-Leibler divergence from the
        mixture to its reduction there, in nats. `cut(n)` gives the mixture of n components, and the one that each leaf
        belongs to; `costs` are those of each merge.

    Examples
    --------
    >>> import everlearn
    >>> from everlearn.gaussian.mixture import Mixture
    >>> import numpy as np
    >>> means = np.array([[0.0], [0.5], [9.0]])
    >>> tree = everlearn.hierarchy(Mixture(np.ones(3) / 3, means, np.ones((3, 1, 1))))
    >>> tree.linkage[:, [0, 1, 3]].astype(int).tolist()
    [[0, 1, 2], [2, 3, 3]]
    >>> tree.cut(2)[1].tolist()
    [1, 1, 0]
    """
    return reduction.hierarchy(mixture_of(mixture))


def modes(mixture: Any) -> Modes:
    """Find the modes of a mixture's density, which may be more or fewer than its components.

    Parameters
    ----------
    mixture : IncrementalGaussianMixture, GaussianMixture or Mixture
        The mixture.

    Returns
    -------
    points : ndarray of shape (n_modes, n_features)
        The modes, highest first.
    log_density : ndarray of shape (n_modes,)
        Log-density at each.

    Examples
    --------
    >>> import everlearn
    >>> from everlearn.gaussian.mixture import Mixture
    >>> import numpy as np
    >>> near = Mixture(np.array([0.5, 0.5]), np.array([[-0.9], [0.9]]), np.ones((2, 1, 1)))
    >>> len(everlearn.modes(near).points)
    1
    >>> far = near._replace(means=2.0 * near.means)
    >>> len(everlearn.modes(far).points)
    2
    """
    unit, scale = _unit(mixture_of(mixture))
    points, heights = topography.modes(unit)
    return Modes(points * scale, heights - np.log(scale).sum())


def ridgeline(mixture: Any, components: tuple[int, int] = (0, 1), *, n_points: int = 200) -> Ridgeline:
    """Follow the ridgeline from one component to another.

    ``x(a) = ((1-a) L_1 + a L_2)^-1 ((1-a) L_1 mu_1 + a L_2 mu_2)``, L being precisions: all modes and saddles of the
    mixture of the two lie on it.

    Parameters
    ----------
    mixture : IncrementalGaussianMixture, GaussianMixture or Mixture
        The mixture.
    components : tuple (i, j), default=(0, 1)
        The two components.
    n_points : int, default=200
        Number of points on the curve.

    Returns
    -------
    Ridgeline
        Positions, points, elevation, and the ratio of the lowest saddle to the lower mode.

    Examples
    --------
    >>> import everlearn
    >>> from everlearn.gaussian.mixture import Mixture
    >>> import numpy as np
    >>> apart = Mixture(np.array([0.5, 0.5]), np.array([[-3.0], [3.0]]), np.ones((2, 1, 1)))
    >>> curve = everlearn.ridgeline(apart)
    >>> round(curve.ratio, 2)  # the valley is 2 % as high as the hills
    0.02
    """
    pair, scale = _unit(_pair(mixture_of(mixture), components))
    if not isinstance(n_points, int | np.integer) or n_points < 2:
        raise InputError(f"n_points must be an integer from 2 on; got {n_points!r}.")
    a = np.linspace(0.0, 1.0, n_points)
    points = topography.ridgeline(pair, np.stack([1.0 - a, a], axis=1))
    ratio = topography.ridgeline_ratios(pair, np.array([0]), np.array([1]))[0]
    return Ridgeline(a, points * scale, log_density(points, pair) - np.log(scale).sum(), float(ratio))


def merge_unimodal(mixture: Any, threshold: float = 1.0) -> NDArray[np.intp]:
    """Group components that make one hill into clusters; the density stays as it is.

    Two components belong together if their mixture has one mode, or if its lowest saddle reaches `threshold` times the
    lower mode; so do components in a chain of such pairs.

    Parameters
    ----------
    mixture : IncrementalGaussianMixture, GaussianMixture or Mixture
        The mixture.
    threshold : float, default=1.0
        From 0 (all are one cluster) to 1 (only pairs with one mode are joined).

    Returns
    -------
    ndarray of shape (n_components,)
        Cluster of each component: ``merge_unimodal(model)[model.predict(X)]`` are the clusters of rows.

    Examples
    --------
    >>> import everlearn
    >>> from everlearn.gaussian.mixture import Mixture
    >>> import numpy as np
    >>> means = np.array([[0.0], [1.5], [9.0]])
    >>> everlearn.merge_unimodal(Mixture(np.ones(3) / 3, means, np.ones((3, 1, 1)))).tolist()
    [0, 0, 1]
    """
    if not 0.0 <= threshold <= 1.0:
        raise InputError(f"threshold must be a number from 0 to 1; got {threshold!r}.")
    return topography.merge_unimodal(_unit(mixture_of(mixture))[0], threshold)


def mixture_of(model: Any) -> Mixture:
    """The mixture that a model shows, in the units of its columns.

    Parameters
    ----------
    model : IncrementalGaussianMixture, GaussianMixture or Mixture
        The model.

    Returns
    -------
    Mixture
        Weights, means and covariances.
    """
    if isinstance(model, Mixture):
        return model
    if isinstance(model, IncrementalGaussianMixture | FIGMN):
        return Mixture(model.weights_, model.means_, model.covariances_)
    from sklearn.mixture import GaussianMixture

    from everlearn.figmn.sklearn_conversion import mixture_of_sklearn

    if isinstance(model, GaussianMixture):
        return mixture_of_sklearn(model)
    raise InputError(
        f"A mixture is needed: an IncrementalGaussianMixture, a fitted sklearn.mixture.GaussianMixture or an "
        f"everlearn.gaussian.mixture.Mixture, not a {type(model).__name__}."
    )


def _unit(mixture: Mixture) -> tuple[Mixture, Array]:
    """The mixture with columns divided by a power of two near their spread, and these scales."""
    _, spread = moment_match(mixture.weights, mixture.means, variances(mixture))
    scale = nearest_power_of_two(np.sqrt(spread))
    square = scale * scale if mixture.is_diagonal else scale * scale[:, None]
    return Mixture(mixture.weights, mixture.means / scale, mixture.covariances / square), scale


def _pair(mixture: Mixture, components: tuple[int, int]) -> Mixture:
    K = len(mixture.weights)
    i, j = components
    if i == j or not all(isinstance(c, int | np.integer) and 0 <= c < K for c in components):
        raise InputError(f"components must be two different numbers from 0 to {K - 1}; got {components!r}.")
    weights = mixture.weights[[i, j]]
    return Mixture(weights / weights.sum(), mixture.means[[i, j]], mixture.covariances[[i, j]])
