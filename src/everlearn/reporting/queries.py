"""Questions to any model by the names of its columns, whichever class it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.base.columns import column_names as column_names
from everlearn.base.columns import column_numbers
from everlearn.base.conditioning import Conditional
from everlearn.base.saved_model import SavedModel
from everlearn.errors import InputError
from everlearn.gaussian import conditional
from everlearn.gaussian.mixture import Mixture
from everlearn.typing import ConditionalModel, CovarianceModel, DensityModel, DetectingModel, PrequentialModel

Array = NDArray[np.float64]

_TOGETHER = 32  # columns of one question: their joint covariance is worked out
_CURVE_POINTS = 201
_CURVE_TAIL = 0.0005  # probability left out at each end of a curve
_CURVE_MARGIN = 0.1


class Detected(NamedTuple):
    """What an anomaly detector says of rows, and of strange ones which column is to blame."""

    score: Array
    """Logarithm of the p-value."""
    p_value: Array
    column: NDArray[np.object_]
    """Column to blame; empty for a row that is not strange."""
    value: Array
    """Its value, and the interval in which it was expected; NaN for a row that is not strange."""
    low: Array
    high: Array


class Summary(NamedTuple):
    """A column once others are known."""

    column: str
    mean: float
    std: float
    low: float
    high: float


class Curve(NamedTuple):
    """The distribution of one column: its density along a grid, and the numbers that sum it up."""

    column: str
    x: Array
    density: Array
    mean: float
    std: float
    low: float
    high: float
    coverage: float


def has_target(model: Any) -> bool:
    """Whether this is a classifier or a regressor, which predicts a column of its own from all others."""
    return not hasattr(model, "score_samples")


def is_detector(model: Any) -> bool:
    """Whether this is an anomaly detector, which scores rows in their order."""
    return isinstance(model, DetectingModel)


def score_of(model: Any) -> str:
    """What the scores of a model's rows are called in the mean: a detector gives p-values, and no densities."""
    return "mean log p-value" if is_detector(model) else "log-likelihood"


def detector_that_follows(model: Any, alarm: float | None = None) -> Any:
    """A copy of a detector that follows the rows and learns none of them; it blames below a p-value of `alarm`."""
    return model.copy().set_params(learning="never", false_alarm_rate=alarm or model.false_alarm_rate)


def detected(model: Any, X: Array) -> Detected:
    """What a detector that follows the rows says of the next ones."""
    scores, columns = model.prequential(X, return_columns=True)
    names, value, low, high = np.full(len(X), "", object), *np.full((3, len(X)), np.nan)
    for i in np.flatnonzero(columns >= 0):
        # Only rows below the alarm are explained: that takes far longer than scoring.
        told, j = model.explain(X[i : i + 1]), columns[i]
        names[i], value[i] = column_names(model)[j], X[i, j]
        low[i], high[i] = told.low[0, j], told.high[0, j]
    return Detected(scores, np.exp(scores), names, value, low, high)


def is_fitted(model: Any) -> bool:
    """Whether the model has learned enough to be asked."""
    try:
        mixture_of(model)
    except ValueError:
        return False
    return True


def _is_mixture(model: Any) -> bool:
    # By what a model can do: importing every class to ask for it would take longer than the answer.
    return isinstance(model, ConditionalModel) and isinstance(model, DensityModel | SavedModel)


def _is_gaussian(model: Any) -> bool:
    return isinstance(model, CovarianceModel)


def _density_model(model: Any) -> Any:
    """The mixture inside an anomaly detector; any other model itself."""
    return getattr(model, "mixture_", model) if isinstance(model, PrequentialModel) else model


def mixture_of(model: Any) -> Mixture:
    """The model as a Gaussian mixture in the units of the data: one component for a PPCA."""
    model = _density_model(model)
    if _is_mixture(model):
        return Mixture(model.weights_, model.means_, model.covariances_)
    if _is_gaussian(model):
        return Mixture(np.ones(1), model.mean_[None], model.get_covariance()[None])
    raise _not_asked(model)


def check_askable(model: Any) -> None:
    """Refuse a model that is no density of its columns, such as a classifier."""
    density = _density_model(model)
    if not _is_mixture(density) and not _is_gaussian(density):
        raise _not_asked(model)


def _not_asked(model: Any) -> InputError:
    name = model.model if isinstance(model, SavedModel) else type(model).__name__
    return InputError(
        f"{name} is not asked this way, only a mixture or a PPCA; `everlearn score` gives its predictions."
    )


def condition(model: Any, given: Mapping[str, float], target: Sequence[str]) -> Conditional:
    """Distribution of the columns `target` once those in `given` are known; NaN means "not observed".

    Parameters
    ----------
    model : estimator
        A fitted IncrementalGaussianMixture, OnlinePPCA or VariationalPPCA.
    given : mapping from str to float
        Known values by column name; it may be empty.
    target : sequence of str
        The columns to answer for.

    Returns
    -------
    Conditional
        The distribution, for one row.
    """
    check_askable(model)
    density = _density_model(model)
    known, values = _chosen(model, list(given), "given"), np.array(list(given.values()), dtype=np.float64)
    columns = _chosen(model, list(target), "target")
    if not len(columns):
        raise InputError("target names no column; give at least one.")
    if np.intersect1d(known, columns).size:
        raise InputError(f"given={list(given)} and target={list(target)} share a column; a column is known or asked.")
    if np.isinf(values).any():
        raise InputError(f"given holds an infinite value: {dict(given)}. Give finite numbers.")
    if _is_mixture(density):
        row = np.full((1, model.n_features_in_), np.nan)
        row[0, known] = values
        answered: Conditional = density.condition(row, target=columns)
        return answered
    answer = conditional.condition(mixture_of(model), known, values[None], columns)
    return Conditional(answer, np.ones(len(columns)), list(target))


def summaries(model: Any, given: Mapping[str, float], target: Sequence[str], *, coverage: float = 0.9) -> list[Summary]:
    """Mean, standard deviation and central interval of each of some columns once others are known, as `curve`.

    Many columns are asked for together: 300 of them take a tenth of the time that 300 questions do.
    """
    found = []
    for start in range(0, len(target), _TOGETHER):
        names = list(target[start : start + _TOGETHER])
        answer = condition(model, given, names)
        low, high = answer.interval(coverage)
        numbers = np.column_stack([answer.mean()[0], answer.std()[0], low[0], high[0]]).tolist()
        found += [Summary(name, *of_name) for name, of_name in zip(names, numbers, strict=True)]
    return found


def curve(model: Any, given: Mapping[str, float], target: str, *, coverage: float = 0.9) -> Curve:
    """Density of one column once others are known.

    Parameters
    ----------
    model : estimator
        A fitted IncrementalGaussianMixture, OnlinePPCA or VariationalPPCA.
    given : mapping from str to float
        Known values by column name.
    target : str
        The column to answer for.
    coverage : float, default=0.9
        Probability of the central interval from `low` to `high`.

    Returns
    -------
    Curve
        A grid that holds nearly all probability, and the density along it.
    """
    answer = condition(model, given, [target])
    low, high = (float(end[0, 0]) for end in answer.interval(coverage))
    # By quantiles and not by standard deviations: a mixture with two far modes is drawn whole.
    first, last = (float(answer.quantile(q)[0, 0]) for q in (_CURVE_TAIL, 1.0 - _CURVE_TAIL))
    margin = _CURVE_MARGIN * max(last - first, 1e-300)
    x = np.linspace(first - margin, last + margin, _CURVE_POINTS)
    density = _density(answer, x)
    return Curve(target, x, density, float(answer.mean()[0, 0]), float(answer.std()[0, 0]), low, high, coverage)


def _density(answer: Conditional, x: Array) -> Array:
    """Density of a distribution of one row and one column along a grid."""
    weights, means = answer.weights[0], answer.means[0, :, 0]
    std = np.sqrt(answer.covariances[0, :, 0, 0])
    z = (x[:, None] - means) / std
    return np.exp(-0.5 * z * z) @ (weights / (std * np.sqrt(2.0 * np.pi)))


def _chosen(model: Any, names: list[str], argument: str) -> NDArray[np.intp]:
    if not names:
        return np.empty(0, dtype=np.intp)
    return column_numbers(names, column_names(model), model.n_features_in_, argument)
