"""What all classifiers share: labels as they come, probabilities, calibration, files."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin

from everlearn.base.estimator import StreamEstimator, check_rows_left
from everlearn.base.interrupts import HeldInterrupts, checkpoint
from everlearn.base.labels import KINDS, check_labels, check_same_kind, inserted
from everlearn.errors import InputError, MergeError
from everlearn.persistence.schema import require
from everlearn.typing import Array

Codes = NDArray[np.intp]


class StreamClassifier(ClassifierMixin, StreamEstimator):
    """Base of the classifiers: maps labels, which may come at any time, to the numbers of classes.

    A subclass implements `_start_classes`, `_add_class`, `_learn_classes` and `_log_proba`, which know numbers only.
    """

    _allow_nan: ClassVar[bool] = True

    # -- learning ---------------------------------------------------------------------------------

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn the rows of X in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows to learn. NaN means "not observed".
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; a row of weight zero is left out.

        Returns
        -------
        self
            The fitted classifier.
        """
        fresh = self._unfitted()
        rows, labels, weights = fresh._check_batch(X, y, sample_weight, first=True)
        check_rows_left(rows)
        with HeldInterrupts(undoable=True):
            fresh.classes_ = np.unique(labels)
            fresh._start_classes(rows, np.searchsorted(fresh.classes_, labels))
            fresh._learn(rows, labels, weights)
            checkpoint()
        self._adopt(fresh)
        self._note_beginning()
        return self

    def partial_fit(  # type: ignore[override]
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Go on learning from the rows of X in their order.

        Any split of a stream into batches gives the same model. A label that was never seen opens a class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream. NaN means "not observed".
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), optional
            Labels to know of from the start; others may still come.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; a row of weight zero is left out.

        Returns
        -------
        self
            The classifier, further on in the stream.
        """
        if classes is None:
            self._advance(X, y, sample_weight)
            return self
        announced = check_labels(classes, "classes", np.asarray(classes).size)
        if y is not None:
            check_same_kind(announced, check_labels(y, "y", np.asarray(y).shape[0]))
        if self._is_started():
            check_same_kind(announced, self.classes_)
        if self._is_started() and self._knows(announced):
            self._advance(X, y, sample_weight)
            return self
        with HeldInterrupts() as held, self._undone_if_it_fails(held):
            self._advance(X, y, sample_weight)
            self._open_classes(announced)
        return self

    def _start(self, X: Array, *, whole: bool) -> None:
        self.classes_: NDArray[Any] = np.empty(0)
        self._start_classes(X, None)

    def _start_classes(self, X: Array, labels: Codes | None) -> None:
        """Prepare for rows like those of X; if these are all rows, with the numbers of their classes."""
        raise NotImplementedError

    def _add_class(self, at: int) -> None:
        """Make room for a class before the one that is number `at` so far."""
        raise NotImplementedError

    def _learn_classes(self, X: Array, labels: Codes, weights: Array) -> None:
        """Learn rows of numbered classes in their order."""
        raise NotImplementedError

    def _log_proba(self, X: Array) -> Array:
        """Log-probability of each class for each row."""
        raise NotImplementedError

    def _check_y(self, y: Any, n_rows: int) -> NDArray[Any]:
        labels = check_labels(y, "y", n_rows)
        if len(self.__dict__.get("classes_", ())):
            check_same_kind(labels, self.classes_)
        return labels

    def _learn(self, X: Array, y: NDArray[Any], weights: Array | None) -> None:
        if not self._knows(y):
            self._open_classes(y)
        codes = np.searchsorted(self.classes_, y)
        self._learn_classes(X, codes, np.ones(len(X)) if weights is None else weights)

    def _knows(self, labels: NDArray[Any]) -> bool:
        if not len(self.classes_):
            return False
        # A label beyond the last one has no place of its own: it is compared with the last, and differs.
        at = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        return bool((self.classes_[at] == labels).all())

    def _open_classes(self, labels: NDArray[Any]) -> None:
        for label in np.unique(labels):
            # Sorted, because probabilities are in the order of classes_; each new
            # class moves the places of those after it.
            at = int(np.searchsorted(self.classes_, label)) if len(self.classes_) else 0
            if at == len(self.classes_) or self.classes_[at] != label:
                self.classes_ = inserted(self.classes_, at, label)
                self._add_class(at)

    # -- answers ----------------------------------------------------------------------------------

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithm of the probability of each class for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Log-probabilities, in the order of `classes_`.
        """
        self._check_started()
        return self._log_proba(self._check_X(X))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each class for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`; each row sums to one.
        """
        p: Array = np.exp(self.predict_log_proba(X))
        return p / p.sum(axis=1, keepdims=True)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        best = np.argmax(self.predict_log_proba(X), axis=1)
        return self.classes_[best]

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy: the share of rows whose class is predicted right.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like
            Their true classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
            Accuracy.
        """
        return float(super().score(X, y, sample_weight))

    def calibration_error(self, X: ArrayLike, y: ArrayLike, n_bins: int = 15) -> float:
        """Expected calibration error: how far the probability of the predicted class is from how often it is right.

        Rows are grouped by that probability into bins of equal width; the error is the mean over rows of the
        difference between a bin's mean probability and its accuracy.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that were not learned.
        y : array-like of shape (n_samples,)
            Their labels.
        n_bins : int, default=15
            Number of bins.

        Returns
        -------
        float
            0 where probabilities are right on average, at most 1.
        """
        p = self.predict_proba(X)
        labels = check_labels(y, "y", len(p))
        confidence, right = p.max(axis=1), self.classes_[np.argmax(p, axis=1)] == labels
        bins = np.minimum((confidence * n_bins).astype(np.intp), n_bins - 1)
        # The sum over a bin is its number of rows times (mean probability less accuracy): empty bins count nothing.
        gaps = np.bincount(bins, confidence - right, minlength=n_bins)
        return float(np.abs(gaps).sum() / len(p))

    # -- merging and loading ----------------------------------------------------------------------

    def _with_same_classes(self, others: list[Self]) -> list[Self]:
        """Copies of this model and the others, each with the classes of all."""
        models = [model.copy() for model in (self, *others)]
        try:
            for model in models[1:]:
                check_same_kind(model.classes_, models[0].classes_)
        except InputError as error:
            raise MergeError(str(error)) from error
        # Every model gets every class, so that class c is the same one in all of them.
        everything = np.unique(np.concatenate([model.classes_ for model in models]))
        for model in models:
            model._open_classes(everything)
        return models

    def _check_loaded_labels(self, n_classes: int) -> None:
        """Refuse labels of a file that are not sorted labels of so many classes."""
        labels = self.classes_
        require(type(labels) is np.ndarray and labels.shape == (n_classes,), "the labels do not fit the classes")
        require(labels.dtype.kind in KINDS, "the labels are neither text nor numbers")
        require(bool((labels[1:] > labels[:-1]).all()), "the labels are not sorted")
