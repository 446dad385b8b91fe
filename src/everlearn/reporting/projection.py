"""A mixture seen on two axes: two of its columns, or its principal axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from everlearn.base.columns import column_numbers
from everlearn.errors import InputError
from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.mixture import Mixture
from everlearn.reporting.queries import column_names

Array = NDArray[np.float64]

ELLIPSE_SHARE = 0.9
MOST_PRINCIPAL = 512
"""Columns up to which principal axes are found; wider models show their two widest columns."""

_ELLIPSE_POINTS = 48
_NAMED_COLUMNS = 2


class Plane(NamedTuple):
    """A mixture of two columns, what its axes are called, and which columns they are (None: principal axes)."""

    mixture: Mixture
    labels: tuple[str, str]
    columns: tuple[str, str] | None


def plane_of(model: Any, mixture: Mixture, axes: Sequence[str] | None) -> Plane:
    """Project a model's mixture on two columns by name, or on its principal axes.

    Parameters
    ----------
    model : estimator
        The model, which knows the names of its columns.
    mixture : Mixture
        Its components.
    axes : two column names, optional
        The columns; by default the principal axes of the standardised columns.
    """
    names = column_names(model)
    if axes is not None:
        if len(axes) != 2:
            raise InputError(f"axes={list(axes)!r} must be two columns.")
        return _on_columns(mixture, column_numbers(list(axes), names, len(names), "axes").tolist(), names)
    if len(names) == 1:
        return _beside_nothing(mixture, names[0])
    if len(names) == 2:
        return _on_columns(mixture, [0, 1], names)
    if len(names) > MOST_PRINCIPAL:
        return _on_columns(mixture, _widest(mixture), names)
    return _on_principal_axes(mixture, names)


def ellipse(mean: Array, covariance: Array, share: float = ELLIPSE_SHARE) -> Array:
    """Closed curve that holds the given share of a Gaussian in two columns, (points, 2)."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0.0, 2.0 * np.pi, _ELLIPSE_POINTS + 1)
    # The squared distance of a Gaussian in two columns is chi-square with two degrees of freedom.
    radii = np.sqrt(chdtri(2, 1.0 - share) * np.maximum(values, 0.0))
    curve: Array = mean + (np.column_stack([np.cos(angle), np.sin(angle)]) * radii) @ vectors.T
    return curve


def _on_columns(mixture: Mixture, chosen: list[int], names: list[str]) -> Plane:
    part = mixtures.marginal(mixture, np.array(chosen))
    labels = (names[chosen[0]], names[chosen[1]])
    return Plane(mixtures.with_matrices(part), labels, labels)


def _beside_nothing(mixture: Mixture, name: str) -> Plane:
    """A single column, with a second axis on which every component lies alike."""
    one = mixtures.with_matrices(mixture)
    means = np.column_stack([one.means[:, 0], np.zeros(len(one.means))])
    covariances = np.zeros((len(means), 2, 2))
    covariances[:, 0, 0], covariances[:, 1, 1] = one.covariances[:, 0, 0], 1.0
    return Plane(Mixture(one.weights, means, covariances), (name, ""), None)


def _widest(mixture: Mixture) -> list[int]:
    """The two columns in which the components differ most, measured by their own width."""
    centre = mixture.weights @ mixture.means
    between = mixture.weights @ (mixture.means - centre) ** 2
    within = mixture.weights @ mixtures.variances(mixture)
    first, second = np.argsort(-between / within)[:2].tolist()
    return [first, second]


def _on_principal_axes(mixture: Mixture, names: list[str]) -> Plane:
    full = mixtures.with_matrices(mixture)
    mean, total = mixtures.moments(full)
    std = np.sqrt(np.diag(total))
    # Of the correlation matrix: without dividing by the spread, the column of the largest unit would be the first axis.
    values, vectors = np.linalg.eigh(total / np.outer(std, std))
    turned = vectors[:, :-3:-1]
    # The sign of an eigenvector is arbitrary: with the largest loading positive, a picture does not flip between two
    # calls.
    turned = turned * np.sign(turned[np.abs(turned).argmax(axis=0), [0, 1]])
    A = turned / std[:, None]
    means = (mixture.means - mean) @ A
    matrices = A.T @ full.covariances @ A
    labels = [_axis_name(i, turned[:, i], values[-1 - i] / values.sum(), names) for i in (0, 1)]
    return Plane(Mixture(mixture.weights, means, matrices), (labels[0], labels[1]), None)


def _axis_name(number: int, loadings: Array, share: float, names: list[str]) -> str:
    strongest = np.argsort(-np.abs(loadings))[:_NAMED_COLUMNS]
    return f"axis {number + 1}: {', '.join(names[j] for j in strongest)} … ({share:.0%})"
