"""The first rows of a stream, kept until they say how wide the columns are."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.persistence.schema import MOST_WEIGHT, check_state, require
from everlearn.typing import Array


class WarmupBuffer(NamedTuple):
    """A bounded buffer of rows with their weights and, for a classifier, the numbers of their classes.

    It is a value: `add` returns the buffer with more rows, and the one before still has its own. Both share memory, so
    that of two buffers with the same past only one may go on.
    """

    rows: Annotated[Array, "gaps N D"]
    weights: Annotated[Array, "nonnegative N"]
    labels: Annotated[NDArray[np.int64], "int64 N"]
    n: int

    @classmethod
    def empty(cls, capacity: int, n_features: int) -> WarmupBuffer:
        """Return a buffer with room for `capacity` rows."""
        return cls(np.zeros((capacity, n_features)), np.zeros(capacity), np.zeros(capacity, dtype=np.int64), 0)

    @property
    def capacity(self) -> int:
        """Number of rows that it has room for."""
        return len(self.rows)

    @property
    def is_full(self) -> bool:
        """Whether no more rows can be added."""
        return self.n == len(self.rows)

    @property
    def seen(self) -> Array:
        """The rows added so far; a view."""
        return self.rows[: self.n]

    @property
    def seen_weights(self) -> Array:
        """Their weights; a view."""
        return self.weights[: self.n]

    @property
    def seen_labels(self) -> NDArray[np.int64]:
        """The numbers of their classes; a view."""
        return self.labels[: self.n]

    def add(
        self, X: Array, weights: Array | None = None, labels: NDArray[Any] | None = None
    ) -> tuple[WarmupBuffer, int]:
        """Add as many rows as there is room for.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            The next rows.
        weights, labels : ndarray of shape (n_samples,), optional
            Their weights, 1 by default, and the numbers of their classes, 0 by default.

        Returns
        -------
        buffer : WarmupBuffer
            The buffer with those rows.
        n_taken : int
            How many of the rows it took, the first ones.
        """
        taken = min(len(X), len(self.rows) - self.n)
        place = slice(self.n, self.n + taken)
        self.rows[place] = X[:taken]
        self.weights[place] = 1.0 if weights is None else weights[:taken]
        if labels is not None:
            self.labels[place] = labels[:taken]
        return self._replace(n=self.n + taken), taken

    def check(self, n_features: int, capacity: int | None = None) -> None:
        """Refuse a buffer from a file that does not fit the model.

        Parameters
        ----------
        n_features : int
            Number of columns of the model.
        capacity : int, optional
            The capacity that the model's parameters give.

        Raises
        ------
        ModelFileError
            It does not fit.
        """
        sizes = {"D": n_features} if capacity is None else {"D": n_features, "N": capacity}
        check_state(self, WarmupBuffer, sizes)
        require(self.n <= len(self.rows), "the warm-up has more rows than room")
        known = self.seen_weights
        # A weight near the largest float64 would pass here and overflow in the first sum of squares.
        require(((known > 0.0) & (known <= MOST_WEIGHT)).all(), "a row of the warm-up has a weight that cannot be")
