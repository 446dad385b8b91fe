"""Models read from the answers of a model file: they are shown and asked, and do not learn.

Neither scikit-learn nor numba is imported here, which take most of the time of a command that asks one question, and
SciPy only by a question.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.persistence.answers import Answers, AnyAnswers, DetectorAnswers, FactorAnswers, PredictorAnswers
from everlearn.persistence.model_file import load_answers
from everlearn.typing import Array

if TYPE_CHECKING:
    from everlearn.base.conditioning import Conditional


class SavedModel:
    """What all of them have.

    Attributes
    ----------
    model : str
        Class of the model that was saved.
    parameters : str
        Its parameters, as far as they differ from their defaults.
    n_samples_seen_ : int
        Rows learned.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray or None
        Names of the columns.
    """

    def __init__(self, answers: AnyAnswers, n_columns: int) -> None:
        self.model, self.parameters, self.n_samples_seen_ = answers.model, answers.parameters, answers.n_rows
        self.n_features_in_ = n_columns
        self.feature_names_in_ = None if answers.names is None else np.array(answers.names, dtype=object)

    def _names_of(self, columns: NDArray[np.intp]) -> list[Any]:
        names: list[Any] = (columns if self.feature_names_in_ is None else self.feature_names_in_[columns]).tolist()
        return names


class SavedMixture(SavedModel):
    """The mixture that a saved model answers from, with the names that the model has for it."""

    def __init__(self, answers: Answers) -> None:
        super().__init__(answers, len(answers.scale))
        self._answers = answers

    @property
    def weights_(self) -> Array:
        """Mixture weights."""
        weights = self._answers.weights[self._answers.shown]
        return np.asarray(weights / weights.sum())

    @property
    def means_(self) -> Array:
        """Means of the components."""
        return np.asarray(self._answers.means[self._answers.shown] * self._answers.scale)

    @property
    def covariances_(self) -> Array:
        """Covariances of the components; variances where they are diagonal."""
        scale, covariances = self._answers.scale, self._answers.covariances[self._answers.shown]
        return np.asarray(covariances * (scale**2 if covariances.ndim == 2 else scale * scale[:, None]))

    def condition(self, row: Array, *, target: NDArray[np.intp]) -> Conditional:
        """Distribution of the columns `target`, by number, given what is observed in the others of a row, (1, D)."""
        from everlearn.base.conditioning import Conditional, to_scale
        from everlearn.gaussian import conditional
        from everlearn.gaussian.mixture import Mixture

        scale, others = self._answers.scale, np.setdiff1d(np.arange(self.n_features_in_), target)
        mixture = Mixture(self._answers.weights, self._answers.means, self._answers.covariances)
        answer = conditional.condition(mixture, others, to_scale(row[:, others], scale[others]), target)
        return Conditional(answer, scale[target], self._names_of(target))


class SavedFactors(SavedModel):
    """Gaussians with few factors: a low-rank mixture or a PPCA."""

    def __init__(self, answers: FactorAnswers) -> None:
        super().__init__(answers, len(answers.scale))
        self._answers = answers

    def _column_moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each column."""
        return self._answers.column_means, self._answers.column_stds

    def condition(self, row: Array, *, target: NDArray[np.intp]) -> Conditional:
        """Distribution of the columns `target`, by number, given what is observed in the others of a row, (1, D)."""
        from everlearn.base.conditioning import Conditional, to_scale
        from everlearn.gaussian import factor_analysers as factors

        known = self._answers
        scale, others = known.scale, np.setdiff1d(np.arange(self.n_features_in_), target)
        mixture = factors.FactorMixture(known.weights, known.means, known.loadings, known.noise)
        answer = factors.condition(mixture, others, to_scale(row[:, others], scale[others]), target)
        return Conditional(answer, scale[target], self._names_of(target))


class SavedFactorMixture(SavedFactors):
    """A low-rank mixture."""

    @property
    def weights_(self) -> Array:
        """Mixture weights."""
        return self._answers.weights

    @property
    def means_(self) -> Array:
        """Means of the components."""
        return np.asarray(self._answers.means * self._answers.scale)


class SavedPPCA(SavedFactors):
    """A single Gaussian with principal axes."""

    @property
    def components_(self) -> Array:
        """Principal axes, orthonormal, the one of largest variance first."""
        assert self._answers.axes is not None
        return self._answers.axes

    @property
    def explained_variance_ratio_(self) -> Array:
        """Share of the total variance along each principal axis."""
        assert self._answers.shares is not None
        return self._answers.shares


class SavedEvent(NamedTuple):
    """An event of a detector; see `everlearn.anomaly.estimator.AnomalyEvent`."""

    kind: str
    row: int
    last: int
    value: float
    column: int


class SavedDetector(SavedModel):
    """An anomaly detector: what it found, and its mixture, which is asked.

    Attributes
    ----------
    mixture_ : SavedMixture or SavedFactorMixture
        The mixture that the density comes from.
    false_alarm_rate : float
        Share of usual rows that raise an alarm.
    n_held_ : int
        Number of rows that are held back.
    events_ : list of SavedEvent
        The latest anomalies and new normals, in their order.
    """

    def __init__(self, answers: DetectorAnswers) -> None:
        super().__init__(answers, len(answers.mixture.scale))
        self.mixture_: Any = saved_model(answers.mixture)
        self.false_alarm_rate, self.n_held_ = answers.false_alarm_rate, answers.n_held
        kinds = np.where(answers.accepted, "new_normal", "anomaly")
        parts = (kinds, answers.first, answers.last, answers.values, answers.columns)
        self.events_ = [SavedEvent(*event) for event in zip(*(part.tolist() for part in parts), strict=True)]

    def condition(self, row: Array, *, target: NDArray[np.intp]) -> Conditional:
        """What its mixture says; see `SavedMixture.condition`."""
        answered: Conditional = self.mixture_.condition(row, target=target)
        return answered


class SavedPredictor(SavedModel):
    """A classifier or regressor, which is shown and not asked for columns.

    Attributes
    ----------
    n_components_ : int
        Number of components.
    """

    def __init__(self, answers: PredictorAnswers) -> None:
        super().__init__(answers, answers.n_columns)
        self.n_components_ = answers.n_components


def saved_model(answers: AnyAnswers) -> SavedModel:
    """The model that answers by what a file holds."""
    if isinstance(answers, Answers):
        return SavedMixture(answers)
    if isinstance(answers, DetectorAnswers):
        return SavedDetector(answers)
    if isinstance(answers, PredictorAnswers):
        return SavedPredictor(answers)
    return SavedFactorMixture(answers) if answers.axes is None else SavedPPCA(answers)


def load_saved_model(path: str | os.PathLike[str]) -> Any:
    """Read the answers of a model file, as the `SavedModel` of its kind; None where it has none."""
    answers = load_answers(path)
    return None if answers is None else saved_model(answers)
