"""A mixture read from the answers of a model file: it is asked and does not learn.

Neither scikit-learn nor numba is imported here, which take most of the time of a command that asks one question, and
SciPy only by a question.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from everlearn.persistence.answers import Answers
from everlearn.persistence.model_file import load_answers
from everlearn.typing import Array

if TYPE_CHECKING:
    from everlearn.base.conditioning import Conditional


class SavedMixture:
    """The mixture that a saved model answers from, with the names that the model has for it.

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

    def __init__(self, answers: Answers) -> None:
        self.model, self.parameters, self.n_samples_seen_ = answers.model, answers.parameters, answers.n_rows
        self.n_features_in_ = len(answers.scale)
        self.feature_names_in_ = None if answers.names is None else np.array(answers.names, dtype=object)
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
        names = target.tolist() if self.feature_names_in_ is None else self.feature_names_in_[target].tolist()
        return Conditional(answer, scale[target], names)


def load_saved_mixture(path: str | os.PathLike[str]) -> SavedMixture | None:
    """Read the answers of a model file; None where it has none."""
    answers = load_answers(path)
    return None if answers is None else SavedMixture(answers)
