"""StreamImputer: gaps filled by what a streaming model expects, as a step of a pipeline."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from everlearn.base.frames import in_kind_of
from everlearn.errors import InputError, MergeError
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.persistence.schema import require
from everlearn.typing import ImputingModel, MergingModel, SaveableModel


class StreamImputer(MetaEstimatorMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill the gaps of rows by their expectation, given what was observed, under a model of the stream.

    A transformer for scikit-learn's `Pipeline` and `ColumnTransformer`, which goes on learning by `partial_fit`. A data
    frame comes back as a data frame, unless `set_output` says otherwise. Observed values stay as they are.

    Parameters
    ----------
    model : estimator, optional
        A model with `partial_fit` and `impute`, of which a copy learns; IncrementalGaussianMixture() by default.
        OnlinePPCA takes hundreds of columns.

    Attributes
    ----------
    model_ : estimator
        The model that has learned.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where the data had names.

    Examples
    --------
    >>> import numpy as np
    >>> import everlearn
    >>> x = np.random.default_rng(0).normal(size=2000)
    >>> imputer = everlearn.StreamImputer().fit(np.column_stack([x, 3 * x + 1]))
    >>> imputer.transform([[2.0, np.nan], [np.nan, 4.0]]).round(1)
    array([[2., 7.],
           [1., 4.]])
    """

    _transient: ClassVar[tuple[str, ...]] = ()
    # Any object: `fit` says of a model that cannot fill gaps what it lacks.
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"model": [object]}

    def __init__(self, model: Any = None) -> None:
        self.model = model

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn the rows of X in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.
        y : ignored
            Present for the scikit-learn interface.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        self
            The fitted imputer.
        """
        model = self._empty_model()
        self._adopt(model.fit(X, **_weights(model, sample_weight)))
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Go on learning from the rows of X in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows; NaN where a value was not observed.
        y : ignored
            Present for the scikit-learn interface.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        self
            The imputer, further on in the stream.
        """
        model = self.model_ if hasattr(self, "model_") else self._empty_model()
        self._adopt(model.partial_fit(X, **_weights(model, sample_weight)))
        return self

    def transform(self, X: ArrayLike) -> Any:
        """Fill the gaps of each row; nothing is learned.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.

        Returns
        -------
        array or data frame of shape (n_samples, n_features)
            The rows without gaps.
        """
        check_is_fitted(self)
        filled = np.asarray(self.model_.impute(X))
        # Where a kind of table was asked for, scikit-learn makes it from an array.
        asked = _get_output_config("transform", self)["dense"] != "default"
        return filled if asked else in_kind_of(X, filled)

    def merge(
        self,
        *others: Self,
        method: str = "auto",
        weights: ArrayLike | None = None,
        n_components: int | None = None,
    ) -> Self:
        """Return an imputer that fills by what the models of this one and of `others` know together.

        Parameters
        ----------
        *others : StreamImputer
            Imputers that learned elsewhere, with models of the same class.
        method : {"auto", "mean", "mode", "bayes"}, default="auto"
            The rule of merging; see :func:`everlearn.merge`.
        weights : array-like, optional
            Relative trust in each imputer, this one first.
        n_components : int, optional
            Reduce the merged model to this many components.

        Returns
        -------
        merged
            A new imputer, which goes on learning.
        """
        for other in others:
            if not isinstance(other, StreamImputer):
                raise MergeError(f"StreamImputer cannot be merged with {type(other).__name__}.")
        models = [vars(imputer).get("model_") or imputer._empty_model() for imputer in (self, *others)]
        for model in models:
            if not isinstance(model, MergingModel):
                raise MergeError(
                    f"The imputer's model, {type(model).__name__}, has no merge; use a model of everlearn's."
                )
        model = models[0].merge(*models[1:], method=method, weights=weights, n_components=n_components)
        merged: Self = clone(self)
        if model._is_started():
            merged._adopt(model)
        return merged

    # -- files, see `everlearn.persistence` -----------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, answers: bool = False) -> None:
        """Write the imputer and its model to a file; see :func:`everlearn.save`."""
        from everlearn.persistence.model_file import save

        save(self, path, answers=answers)

    def _is_started(self) -> bool:
        return hasattr(self, "model_")

    def _to_save(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name.endswith("_") and name != "_origin_"}

    def _answers(self) -> Any:
        """Those of the model inside, which the program shows and asks in place of the imputer."""
        return self.model_._answers()

    def _check_loaded(self) -> None:
        model: Any = vars(self).get("model_")
        fills = isinstance(model, ImputingModel) and isinstance(model, SaveableModel) and model._is_started()
        require(fills, "the imputer has no model that fills gaps")
        require(model.n_features_in_ == self.n_features_in_, "the imputer and its model have different columns")

    # -- the model inside -----------------------------------------------------------------------------

    @property
    def n_samples_seen_(self) -> int:
        """Rows that the model inside has learned."""
        return int(self.model_.n_samples_seen_)

    @property
    def keeps_rows_(self) -> bool:
        """Whether the model inside, and so a file, holds rows."""
        return bool(getattr(self.model_, "keeps_rows_", False))

    def _empty_model(self) -> Any:
        model = IncrementalGaussianMixture() if self.model is None else clone(self.model)
        lacks = [name for name in ("partial_fit", "impute") if not hasattr(model, name)]
        if lacks:
            raise InputError(
                f"model={self.model!r} has no {' and no '.join(lacks)}; give an IncrementalGaussianMixture, FIGMN, "
                "OnlinePPCA or VariationalPPCA."
            )
        return model

    def _adopt(self, model: Any) -> None:
        self.model_ = model
        self.n_features_in_ = model.n_features_in_
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _weights(model: Any, sample_weight: ArrayLike | None) -> dict[str, ArrayLike]:
    """Weights for a model that takes them."""
    if sample_weight is None:
        return {}
    if not has_fit_parameter(model, "sample_weight"):
        raise InputError(
            f"sample_weight was given, but {type(model).__name__} takes no weights; leave it out, or use "
            "StreamImputer(IncrementalGaussianMixture())."
        )
    return {"sample_weight": sample_weight}
