"""What is expected of each sensor from the others, and how wrong that usually is."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.typing import Array
from everlearn.watch.json_arrays import array_of, json_list

# Errors of expectations: how many are remembered, and from how many on they count.
ERRORS_KEPT, LEAST_ERRORS = 4000, 10
NORMAL_90 = 1.645  # half width of the interval that holds 90 % of a Gaussian, in standard deviations


class Expectation:
    """What is expected of each sensor from the others, asked now and then, and how wrong that usually is.

    A mixture of rows that resemble their neighbours in time is surer of itself than it should be: twelve hours of a
    slow temperature are a few dozen independent values. The errors over time tell how wide expectations really are.

    Attributes
    ----------
    low, high : ndarray of shape (D,)
        The latest answer: where 90 % of the values of each sensor lie given the others.
    """

    def __init__(self, n_columns: int) -> None:
        self.low, self.high = (np.full(n_columns, np.nan) for _ in range(2))
        self._squares, self._n = np.zeros(n_columns), np.zeros(n_columns)

    def take(self, explanation: Any, *, learns: bool) -> None:
        """Take the explanation of one row, whose errors are usual ones if `learns`."""
        self.low, self.high = explanation.low[0], explanation.high[0]
        error = explanation.values[0] - 0.5 * (self.low + self.high)
        some = np.isfinite(error)
        if not learns or not some.any():
            return
        # One strange value counts no more than four usual errors.
        square = np.where(self._n > 0, np.minimum(error**2, 16.0 * self._squares), error**2)
        self._n[some] += 1
        rate = 1.0 / np.clip(self._n, 1, ERRORS_KEPT)
        self._squares[some] += (rate * (square - self._squares))[some]

    def sizes(self, explanation: Any) -> Array:
        """How far the values of an explained row are from what was expected, in usual errors."""
        error = np.abs(explanation.values[0] - 0.5 * (explanation.low[0] + explanation.high[0]))
        half = 0.5 * (explanation.high[0] - explanation.low[0]) / NORMAL_90
        usual = np.maximum(np.sqrt(self._squares), half)
        return np.where((self._n >= LEAST_ERRORS) & (usual > 0), error / np.maximum(usual, 1e-300), 0.0)

    def grow(self, n_columns: int) -> None:
        """Add columns behind the others, of which nothing is known."""
        unknown, zeros = np.full(n_columns, np.nan), np.zeros(n_columns)
        self.low, self.high = (np.concatenate([x, unknown]) for x in (self.low, self.high))
        self._squares, self._n = (np.concatenate([x, zeros]) for x in (self._squares, self._n))

    def memory(self) -> list[Any]:
        """All of it as JSON values."""
        return [json_list(values) for values in (self.low, self.high, self._squares, self._n)]

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave."""
        self.low, self.high, self._squares, self._n = (array_of(values).reshape(self.low.shape) for values in memory)


def explanation_of(explanation: Any) -> tuple[Array, Array, Array]:
    """Values of the explained rows, and where they were expected."""
    return explanation.values, explanation.low, explanation.high


def departures(explanation: Any) -> Array:
    """How far the values of an explained row are from the middle of what was expected, in half widths."""
    middle, half = 0.5 * (explanation.low[0] + explanation.high[0]), 0.5 * (explanation.high[0] - explanation.low[0])
    return np.asarray((explanation.values[0] - middle) / np.maximum(half, 1e-300))
