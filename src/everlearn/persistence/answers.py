"""What a model file holds beside the model, if its writer wants: what the model answers from.

The model itself needs scikit-learn and compiled kernels to be loaded, and perhaps a search before it answers. Who only
asks, as `everlearn show` and `everlearn ask` do, reads these arrays instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.persistence.schema import check_state, require
from everlearn.typing import Array


class Answers(NamedTuple):
    """A mixture of K Gaussians in D columns, each divided by its scale, and what it was learned from."""

    model: str  # class of the model
    parameters: str  # of the model, as far as they differ from their defaults
    n_rows: int  # rows learned
    names: tuple[str, ...] | None  # of the columns
    weights: Annotated[Array, "nonnegative K"]
    means: Annotated[Array, "K D"]
    covariances: Annotated[Array, "K D D"] | Annotated[Array, "K D"]  # the latter diagonal
    scale: Annotated[Array, "positive D"]  # powers of two
    shown: Annotated[NDArray[np.int64], "int64 S"]  # components that the model shows


class FactorAnswers(NamedTuple):
    """A mixture of K Gaussians with Q factors each in D columns, divided by their scale; a PPCA is one of them."""

    model: str
    parameters: str
    n_rows: int
    names: tuple[str, ...] | None
    weights: Annotated[Array, "nonnegative K"]
    means: Annotated[Array, "K D"]
    loadings: Annotated[Array, "K Q D"]
    noise: Annotated[Array, "positive K D"]
    scale: Annotated[Array, "positive D"]
    column_means: Annotated[Array, "D"]  # in the units of the data
    column_stds: Annotated[Array, "nonnegative D"]
    axes: Annotated[Array, "A D"] | None  # principal axes of a PPCA; None for a mixture
    shares: Annotated[Array, "nonnegative A"] | None  # of the variance along them


class DetectorAnswers(NamedTuple):
    """An anomaly detector: its mixture, and the latest E events."""

    model: str
    parameters: str
    n_rows: int
    names: tuple[str, ...] | None
    mixture: Answers | FactorAnswers
    false_alarm_rate: Annotated[float, "positive"]
    n_held: int  # rows held back
    accepted: Annotated[NDArray[np.bool_], "bool E"]  # whether rows became a new normal; an anomaly otherwise
    first: Annotated[NDArray[np.int64], "int64 E"]  # row at which it began
    last: Annotated[NDArray[np.int64], "int64 E"]
    values: Annotated[Array, "E"]  # smallest p-value, or number of rows
    columns: Annotated[NDArray[np.int64], "int64 E"]  # column to blame; -1 for a new normal


class PredictorAnswers(NamedTuple):
    """A model that is not asked for its columns, such as a classifier: what it is."""

    model: str
    parameters: str
    n_rows: int
    names: tuple[str, ...] | None
    n_columns: int
    n_components: int


AnyAnswers = Answers | FactorAnswers | DetectorAnswers | PredictorAnswers


def check_answers(answers: Any) -> AnyAnswers:
    """Refuse answers from a file that do not fit together."""
    check = _CHECKS.get(type(answers))
    require(check is not None, f"its answers are a {type(answers).__name__}")
    assert check is not None
    n_columns = check(answers)
    require(answers.names is None or len(answers.names) == n_columns, "its answers have other columns than names")
    return answers  # type: ignore[no-any-return]


def _check_mixture(answers: Answers) -> int:
    sizes = check_state(answers, Answers)
    # Indices from a file reach fancy indexing: a negative one would count from the end without a word, a large one
    # would raise an IndexError in the middle of a question.
    require(sizes["S"] >= 1 and ((answers.shown >= 0) & (answers.shown < sizes["K"])).all(), "it shows no component")
    # Questions divide by this sum.
    require(answers.weights[answers.shown].sum() > 0.0, "the components that it shows have no weight")
    diagonal = answers.covariances if answers.covariances.ndim == 2 else answers.covariances.diagonal(0, 1, 2)
    require((diagonal > 0.0).all(), "its answers have variances that are not positive")
    return sizes["D"]


def _check_factors(answers: FactorAnswers) -> int:
    sizes = check_state(answers, FactorAnswers)
    require(answers.weights.sum() > 0.0, "the components of its answers have no weight")
    require((answers.axes is None) == (answers.shares is None), "its answers have axes without shares of the variance")
    require(answers.axes is None or sizes["K"] == 1, "its answers have the axes of more than one Gaussian")
    return sizes["D"]


def _check_detector(answers: DetectorAnswers) -> int:
    check_state(answers, DetectorAnswers)
    check_answers(answers.mixture)
    D = len(answers.mixture.scale)
    # Columns index the names when events are shown.
    fits = (answers.columns < D) & (answers.accepted | (answers.columns >= 0))
    require(fits.all(), "its answers blame columns that it does not have")
    return D


def _check_predictor(answers: PredictorAnswers) -> int:
    check_state(answers, PredictorAnswers)
    return answers.n_columns


_CHECKS: dict[type, Callable[[Any], int]] = {
    Answers: _check_mixture,
    FactorAnswers: _check_factors,
    DetectorAnswers: _check_detector,
    PredictorAnswers: _check_predictor,
}
