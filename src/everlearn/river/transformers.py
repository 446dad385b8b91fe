"""Features of a stream of dicts, as fewer or without gaps."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np

from everlearn.base.estimator import StreamEstimator
from everlearn.errors import require
from everlearn.ppca.estimator import OnlinePPCA
from everlearn.river.batches import Features, batch_of
from everlearn.river.unsupervised import Unsupervised

require("river", extra="river")

from river import base  # noqa: E402 (the line above says which extra brings it)


class Transformer(Unsupervised, base.MiniBatchTransformer):
    """Principal coordinates of a stream of dicts; a feature that is missing counts as its conditional mean.

    Parameters
    ----------
    model : estimator, optional
        The model, of which the adapter learns a copy; OnlinePPCA() by default. One that has learned already goes on
        from there.
    features : list, optional
        The features in the columns of the model, where they are known; all others are ignored.
    grace_period : int, default=200
        Number of rows, from the first one that has a value, in which features become columns; see :class:`Density`.

    Examples
    --------
    >>> from everlearn import OnlinePPCA
    >>> from everlearn.river import Transformer
    >>> transformer = Transformer(OnlinePPCA(n_components=1))
    >>> for i in range(100):
    ...     transformer.learn_one({"inlet": float(i % 9), "outlet": 2.0 * (i % 9)})
    >>> {name: round(value) for name, value in transformer.transform_one({"inlet": 8.0, "outlet": 16.0}).items()}
    {'onlineppca0': 9}
    """

    _default: ClassVar[type[StreamEstimator]] = OnlinePPCA
    _needs: ClassVar[tuple[str, ...]] = ("transform",)

    def transform_one(self, x: Features) -> dict[Hashable, float]:
        """Coordinates of the features, named as scikit-learn does; zero while nothing was learned."""
        coordinates: dict[Hashable, float] = self.transform_many([x])[0]
        return coordinates

    def transform_many(self, X: Any) -> Any:
        """Coordinates of each row: a list of dicts, or a data frame if X is one."""
        batch = batch_of(X)
        # As many coordinates as there will be: what follows in a pipeline of river sees the same features from the
        # first row on.
        before = np.zeros((len(batch), self._least_columns()))
        coordinates = self._ask("transform", batch, before)
        prefix = type(self._model).__name__.lower()
        return batch.frame(coordinates, [f"{prefix}{i}" for i in range(coordinates.shape[1])])


class Imputer(Unsupervised, base.MiniBatchTransformer):
    """Features of a stream of dicts, with what was not observed filled in: its expectation given the rest.

    Parameters
    ----------
    model : estimator, optional
        The model, of which the adapter learns a copy; IncrementalGaussianMixture() by default. One that has learned
        already goes on from there.
    features : list, optional
        The features in the columns of the model, where they are known; all others pass through.
    grace_period : int, default=200
        Number of rows, from the first one that has a value, in which features become columns; see :class:`Density`.

    Examples
    --------
    >>> from everlearn.river import Imputer
    >>> imputer = Imputer()
    >>> for i in range(300):
    ...     imputer.learn_one({"inlet": float(i % 9), "outlet": 2.0 * (i % 9)})
    >>> {name: round(value, 1) for name, value in imputer.transform_one({"inlet": 3.0}).items()}
    {'inlet': 3.0, 'outlet': 6.0}
    """

    _needs: ClassVar[tuple[str, ...]] = ("impute",)

    def transform_one(self, x: Features) -> dict[Hashable, Any]:
        """The features, with what to expect where one that the model knows was not observed."""
        filled: dict[Hashable, Any] = self.transform_many([x])[0]
        return filled

    def transform_many(self, X: Any) -> Any:
        """The rows without gaps: a list of dicts, or a data frame if X is one."""
        batch = batch_of(X)
        names = self._names if self._model._is_started() else ()
        return batch.filled(self._ask("impute", batch, np.empty((len(batch), len(names)))), names)
