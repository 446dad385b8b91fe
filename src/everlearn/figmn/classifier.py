"""FIGMNClassifier: the classifier of the FIGMN paper, one mixture over inputs and indicators of the classes."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from everlearn.base.classifier import Codes, StreamClassifier
from everlearn.base.scaling import Frame
from everlearn.figmn.estimator import FIGMN
from everlearn.figmn.state import State, empty
from everlearn.persistence.schema import expect, require
from everlearn.typing import Array

# Standard deviation of a column of zeros and ones, where nothing is known about it: the largest that it can have.
INDICATOR_STD = 0.5
# Least probability of a class whose expected indicator is zero or below.
TINY = 1e-9
# Parameters of FIGMN that have no meaning for a classifier.
_NOT_SHARED = ("novelty_level", "change_detector", "random_state", "verbose")


class FIGMNClassifier(StreamClassifier):
    """Classifier of the FIGMN paper [1]_: one mixture of inputs and indicators of the classes.

    Each class has a column beside the inputs, one for rows of that class and zero for others; its probability is what
    that column is expected to be, given the inputs. The defaults are the settings of the paper's tables 2 and 3. A new
    class may come at any time. For classes that are told apart better see
    :class:`everlearn.IncrementalGaussianMixtureClassifier`.

    Parameters
    ----------
    delta : float, default=0.5
        Variance of a new component, in units of the variance of each column.
    beta : float, default=2e-6
        Share of a component's own rows that lie farther from it than a row that opens a new component; 0 keeps a
        single component.
    scale : "auto" or array-like of shape (n_features,), default="auto"
        Standard deviation of each column. "auto" estimates it: `fit` from all rows it is given, `partial_fit` from
        the first `warmup` rows, which are kept until then.
    warmup : "auto" or int, default="auto"
        Number of rows from which `partial_fit` estimates the scale; "auto" takes 200.
    max_components : "auto" or int, default="auto"
        Most components that are kept; "auto" is 200, or what 128 MiB of precision matrices hold.
    prune : None or tuple (min_age, min_count), default=None
        Remove components that are older than `min_age` rows and to which fewer than `min_count` rows belong.
    update : {"exact", "paper"}, default="exact"
        "paper" keeps the covariance update as printed in [1]_, eq. 11.
    forgetting : None or float, default=None
        Factor by which what was learned fades with each row.
    covariance_type : {"full", "diag"}, default="full"
        Shape of the covariances.
    device : None or str, default=None
        Where the matrices of large batches live; see `FIGMN`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    class_count_ : ndarray of shape (n_classes,)
        Weight of the rows of each class.
    n_components_ : int
        Number of components.
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
    >>> from everlearn import FIGMNClassifier, datasets
    >>> iris = datasets.load_iris()
    >>> model = FIGMNClassifier().fit(iris.data, iris.target_names[iris.target])
    >>> model.predict([[5.0, 3.4, 1.5, 0.2], [6.5, 3.0, 5.5, 1.8]]).tolist()
    ['Iris-setosa', 'Iris-virginica']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: accepted for name, accepted in FIGMN._parameter_constraints.items() if name not in _NOT_SHARED
    }

    def __init__(
        self,
        *,
        delta: float = 0.5,
        beta: float = 2e-6,
        scale: Any = "auto",
        warmup: Any = "auto",
        max_components: Any = "auto",
        prune: tuple[float, float] | None = None,
        update: str = "exact",
        forgetting: float | None = None,
        covariance_type: str = "full",
        device: str | None = None,
    ) -> None:
        self.delta = delta
        self.beta = beta
        self.scale = scale
        self.warmup = warmup
        self.max_components = max_components
        self.prune = prune
        self.update = update
        self.forgetting = forgetting
        self.covariance_type = covariance_type
        self.device = device

    # -- learning ---------------------------------------------------------------------------------

    def _start_classes(self, X: Array, labels: Codes | None) -> None:
        self._class_counts_ = np.zeros(len(self.classes_))
        mixture = FIGMN(**self.get_params(deep=False))
        # A given scale is that of the inputs; nobody can be asked to give one for indicators.
        if not isinstance(self.scale, str):
            indicators = np.full(len(self.classes_), INDICATOR_STD)
            mixture.scale = np.concatenate([mixture._given_scale(X.shape[1]), indicators])
        rows = X if labels is None else self._with_indicators(X, labels)
        mixture.n_features_in_ = rows.shape[1]
        mixture._start(rows, whole=labels is not None)
        self._joint_ = mixture

    def _add_class(self, at: int) -> None:
        self._class_counts_ = np.insert(self._class_counts_, at, 0.0)
        insert_column(self._joint_, self.n_features_in_ + at, self.n_features_in_)

    def _learn_classes(self, X: Array, labels: Codes, weights: Array) -> None:
        self._joint_._learn(self._with_indicators(X, labels), None, weights)
        np.add.at(self._class_counts_, labels, weights)

    def _with_indicators(self, X: Array, labels: Codes) -> Array:
        return np.hstack([X, np.eye(len(self._class_counts_))[labels]])

    # -- answers ----------------------------------------------------------------------------------

    def _log_proba(self, X: Array) -> Array:
        D, C = self.n_features_in_, len(self._class_counts_)
        rows = np.hstack([X, np.full((len(X), C), np.nan)])
        expected = self._joint_.predict_columns(rows, range(D, D + C))
        # An expected indicator is a regression on the inputs, linear within a component: it can fall below zero.
        p = np.maximum(expected, TINY)
        return np.asarray(np.log(p / p.sum(axis=1, keepdims=True)))

    @property
    def class_count_(self) -> Array:
        """Weight of the rows of each class."""
        self._check_started()
        return self._class_counts_.copy()

    @property
    def n_components_(self) -> int:
        """Number of components."""
        self._check_started()
        return self._joint_.n_components_

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return self._joint_.n_samples_seen_

    @property
    def keeps_rows_(self) -> bool:
        """Whether the model, and with it its file, holds rows of the stream."""
        self._check_started()
        return self._joint_.keeps_rows_

    def _rows_inside(self) -> int:
        return self._joint_._rows_inside()

    def _rows_of_components(self) -> Array:
        return self._joint_._rows_of_components()

    # -- merging and loading ----------------------------------------------------------------------

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        merged, *rest = self._with_same_classes(others)
        joints = [model._joint_ for model in rest]
        merged._joint_ = merged._joint_.merge(*joints, method=method, weights=weights, n_components=n_components)
        merged._class_counts_ = np.sum([model._class_counts_ for model in (merged, *rest)], axis=0)
        return merged

    def _check_loaded(self) -> None:
        expect(self._class_counts_, "C", {}, "the class counts")
        self._check_loaded_labels(len(self._class_counts_))
        require(type(self._joint_) is FIGMN, "it has no mixture")
        width = self.n_features_in_ + len(self._class_counts_)
        require(vars(self._joint_).get("n_features_in_") == width, "its mixture has other columns")


# -- a column more -----------------------------------------------------------------------------------


def insert_column(model: FIGMN, at: int, first_indicator: int) -> None:
    """Give a mixture a column of zeros, as if it had always been there; its spread is that of the other indicators."""
    if not isinstance(model.scale, str):
        model.scale = np.insert(model.scale, at, INDICATOR_STD)
    model.n_features_in_ += 1
    model._provisional_ = None
    if model._warmup_ is not None:
        # Rows that are held until the scale is known have the column, too.
        model._warmup_ = model._warmup_._replace(rows=np.insert(model._warmup_.rows, at, 0.0, axis=1))
        model._state_ = empty(model.n_features_in_, diagonal=model.covariance_type == "diag")
        return
    assert model._frame_ is not None
    frame = _wider_frame(model._frame_, at, first_indicator)
    model._state_ = _wider_state(model._state_, at, model.delta * frame.variance[at])
    model._fix_scale(frame)


def _wider_frame(frame: Frame, at: int, first_indicator: int) -> Frame:
    variances = (frame.variance * frame.scale**2)[first_indicator:]
    variance = variances.mean() if len(variances) else INDICATOR_STD**2
    # INDICATOR_STD is a power of two, as every scale has to be; the variance is in units of its square.
    return Frame(
        np.insert(frame.scale, at, INDICATOR_STD),
        np.insert(frame.variance, at, variance / INDICATOR_STD**2),
        np.insert(frame.centre, at, 0.0),
    )


def _wider_state(state: State, at: int, initial_variance: float) -> State:
    """Components that have seen nothing but zeros in the new column, which keeps its share of the creation prior."""
    # count times covariance holds the creation prior once, and zeros add no scatter: n Sigma_aa = sigma_ini^2. Counts
    # below one, from weights or forgetting, must not give more variance than a new component has.
    precision = np.maximum(state.counts, 1.0) / initial_variance
    if state.precisions.ndim == 2:
        precisions = np.insert(state.precisions, at, precision, axis=1)
    else:
        precisions = np.insert(np.insert(state.precisions, at, 0.0, axis=1), at, 0.0, axis=2)
        precisions[:, at, at] = precision
    # Without covariance to other columns the new one multiplies the determinant by its variance.
    means = np.insert(state.means, at, 0.0, axis=1)
    return state._replace(means=means, precisions=precisions, log_dets=state.log_dets - np.log(precision))
