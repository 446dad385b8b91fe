"""IncrementalGaussianMixtureClassifier: classes learned from a stream, each when it comes."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions

from everlearn.base.estimator import StreamEstimator, check_rows_left
from everlearn.base.labels import KINDS, check_labels, check_same_kind, inserted
from everlearn.errors import InputError, MergeError, ModelFileError
from everlearn.figmn.first_edition import IncrementalGaussianMixture
from everlearn.mixture.classifier_joint import JointClasses
from everlearn.mixture.classifier_per_class import ClassMixtures

Array = NDArray[np.float64]

_SHARED = ["delta", "beta", "scale", "warmup", "max_components", "merging", "prune", "update", "covariance"]


class IncrementalGaussianMixtureClassifier(ClassifierMixin, StreamEstimator):
    """Classifier with a Gaussian mixture for each class, learned from a stream in one pass.

    A new class may come at any time, and learning one class leaves the others as they are, so classes may also come
    one after another. NaN means "not observed", in learning and in predicting.

    A class is predicted by its frequency and its density at the row, seen in three ways: with one covariance for all
    classes, with one for each class, and with the mixture of each class. How much each view counts is chosen now and
    then by how well it predicts a bounded sample of the rows seen, each of them left out of its own class; that also
    makes the probabilities honest (see `calibration_error`).

    Parameters
    ----------
    strategy : {"per_class", "joint"}, default="per_class"
        "joint" learns one mixture of the inputs with an indicator column for each class beside them, as in [1]_, and
        predicts what the indicators are expected to be.
    delta : float, default=1.0
        Variance of a new component, in units of the variance of each column.
    beta : float, default=0.1
        How readily a row opens a component of its class: it does so when it is farther from each than all but a share
        `beta` of that component's own rows would be; 0 keeps a single component.
    scale : "auto" or array-like of shape (n_features,), default="auto"
        Standard deviation of each column. "auto" estimates it, over all classes: `fit` from all rows it is given,
        `partial_fit` from the first `warmup` rows, which are kept until then.
    warmup : "auto" or int, default="auto"
        Number of rows from which `partial_fit` estimates the scale; "auto" takes 200, or five a column if that is
        more, and at most 2000.
    max_components : "auto" or int, default="auto"
        Most components that each class keeps ("joint": that are kept in all). "auto" is 50, or what 32 MiB of
        precision matrices hold ("joint": 200 and 128 MiB).
    merging : bool, default=True
        Whether a full mixture merges all pairs that cost little likelihood, or the cheapest pair only.
    prune : None or tuple (min_age, min_count), default=None
        Remove components that are older than `min_age` rows and to which fewer than `min_count` rows belong (posterior
        probabilities summed).
    update : {"exact", "paper"}, default="exact"
        "paper" keeps the covariance update as printed in [1]_, eq. 11.
    forgetting : None or float, default=None
        Factor by which what was learned of a class fades with each row of that class, and the class frequencies with
        each row, for a memory of about 1/(1 - forgetting) rows. None forgets nothing.
    covariance : {"full", "diag"}, default="full"
        Shape of the covariances; "diag" costs O(D) a row and component, for very wide data.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    class_count_ : ndarray of shape (n_classes,)
        Weight of the rows of each class.
    n_components_ : int
        Number of components of all classes.
    n_samples_seen_ : int
        Number of rows learned.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where the data had names.

    References
    ----------
    .. [1] R. C. Pinto and P. M. Engel, "Scalable and incremental learning of Gaussian mixture models".

    Examples
    --------
    >>> from everlearn import IncrementalGaussianMixtureClassifier, datasets
    >>> iris = datasets.load_iris()
    >>> model = IncrementalGaussianMixtureClassifier()
    >>> for kind in range(3):  # one species after another
    ...     rows = iris.target == kind
    ...     model = model.partial_fit(iris.data[rows], iris.target_names[iris.target[rows]])
    >>> model.predict([[5.0, 3.4, 1.5, 0.2], [6.5, 3.0, 5.5, float("nan")]]).tolist()
    ['Iris-setosa', 'Iris-virginica']
    """

    _allow_nan: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: accepted
        for name, accepted in IncrementalGaussianMixture._parameter_constraints.items()
        if name in _SHARED
    } | {
        "strategy": [StrOptions({"per_class", "joint"})],
        "forgetting": [None, Interval(Real, 0, 1, closed="right")],
    }

    def __init__(
        self,
        *,
        strategy: str = "per_class",
        delta: float = 1.0,
        beta: float = 0.1,
        scale: Any = "auto",
        warmup: Any = "auto",
        max_components: Any = "auto",
        merging: bool = True,
        prune: tuple[float, float] | None = None,
        update: str = "exact",
        forgetting: float | None = None,
        covariance: str = "full",
    ) -> None:
        self.strategy = strategy
        self.delta = delta
        self.beta = beta
        self.scale = scale
        self.warmup = warmup
        self.max_components = max_components
        self.merging = merging
        self.prune = prune
        self.update = update
        self.forgetting = forgetting
        self.covariance = covariance

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """Return a classifier with the settings of the FIGMN paper's tables 2 and 3.

        One joint mixture, delta = 0.5 times the variance, beta = 2e-6, no merging and the exact update; see
        `IncrementalGaussianMixture.paper`.

        Parameters
        ----------
        **parameters
            Parameters that are to differ.

        Returns
        -------
        IncrementalGaussianMixtureClassifier
            An unfitted classifier.
        """
        return cls(**{"strategy": "joint", "delta": 0.5, "beta": 2e-6, "merging": False, **parameters})

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
        fresh.classes_ = np.unique(labels)
        fresh._model_ = fresh._empty_model()
        fresh._model_.start(rows, np.searchsorted(fresh.classes_, labels))
        for at in range(len(fresh.classes_) - len(fresh._model_.class_counts)):
            fresh._model_.add_class(at)
        fresh._learn(rows, labels, weights)
        self._adopt(fresh)
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
        self._advance(X, y, sample_weight)
        self._open_classes(announced)
        return self

    def _start(self, X: Array, *, whole: bool) -> None:
        self.classes_: NDArray[Any] = np.empty(0)
        self._model_ = self._empty_model()
        self._model_.start(X, None)

    def _empty_model(self) -> ClassMixtures | JointClasses:
        parameters = self.get_params(deep=False)
        strategy = parameters.pop("strategy")
        mixture = IncrementalGaussianMixture(**parameters)
        return JointClasses(mixture) if strategy == "joint" else ClassMixtures(mixture)

    def _check_y(self, y: Any, n_rows: int) -> NDArray[Any]:
        labels = check_labels(y, "y", n_rows)
        if len(self.__dict__.get("classes_", ())):
            check_same_kind(labels, self.classes_)
        return labels

    def _learn(self, X: Array, y: NDArray[Any], weights: Array | None) -> None:
        if not self._knows(y):
            self._open_classes(y)
        codes = np.searchsorted(self.classes_, y)
        self._model_.learn(X, codes, np.ones(len(X)) if weights is None else weights)

    def _knows(self, labels: NDArray[Any]) -> bool:
        if not len(self.classes_):
            return False
        at = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        return bool((self.classes_[at] == labels).all())

    def _open_classes(self, labels: NDArray[Any]) -> None:
        for label in np.unique(labels):
            at = int(np.searchsorted(self.classes_, label)) if len(self.classes_) else 0
            if at == len(self.classes_) or self.classes_[at] != label:
                self.classes_ = inserted(self.classes_, at, label)
                self._model_.add_class(at)

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
        return self._model_.log_proba(self._check_X(X))

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
        gaps = np.bincount(bins, confidence - right, minlength=n_bins)
        return float(np.abs(gaps).sum() / len(p))

    @property
    def class_count_(self) -> Array:
        """Weight of the rows of each class."""
        self._check_started()
        return self._model_.class_counts

    @property
    def n_components_(self) -> int:
        """Number of components of all classes."""
        self._check_started()
        return self._model_.n_components

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return self._model_.n_rows

    # -- merging and loading ----------------------------------------------------------------------

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        models = [model.copy() for model in (self, *others)]
        try:
            for model in models[1:]:
                check_same_kind(model.classes_, models[0].classes_)
        except InputError as error:
            raise MergeError(str(error)) from error
        everything = np.unique(np.concatenate([model.classes_ for model in models]))
        for model in models:
            model._open_classes(everything)
        first, *rest = (model._model_ for model in models)
        merged = models[0]
        merged._model_ = first._merge(rest, method=method, weights=weights, n_components=n_components)
        return merged

    def _check_loaded(self) -> None:
        wanted = JointClasses if self.strategy == "joint" else ClassMixtures
        if type(self._model_) is not wanted or self._model_.n_features_in_ != self.n_features_in_:
            raise ModelFileError("the classes are not of the kind that the strategy needs.")
        labels = self.classes_
        if type(labels) is not np.ndarray or labels.shape != self._model_._class_counts_.shape:
            raise ModelFileError("the labels do not fit the classes.")
        if labels.dtype.kind not in KINDS:
            raise ModelFileError("the labels are neither text nor numbers.")
        if not (labels[1:] > labels[:-1]).all():
            raise ModelFileError("the labels are not sorted.")
