"""Change signals from how well a model predicts: Page and Hinkley's test on the predictive log-likelihood.

A model that scores each row before it learns it gives a stream of log-likelihoods. When the data change, they drop. The
test knows nothing of the model: it standardises the values by their own mean and spread since the last change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.monitoring.kernels import page_hinkley as kernels

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PageHinkley:
    """Page and Hinkley's test for a drop in the mean of standardised values.

    With t the value in standard deviations from the mean so far, the drop D <- max(0, D - t - drift) accumulates; a
    change is signalled when D > threshold, and the test starts again with the next value.

    Parameters
    ----------
    drift : float, default=0.25
        Drop, in standard deviations a row, that is tolerated.
    threshold : float, default=10.0
        Accumulated drop, in standard deviations, that signals a change.
    min_rows : int, default=30
        Rows from which mean and spread are estimated before the test begins.
    limit : float, default=4.0
        Largest deviation, in standard deviations, that a row counts with, so that one outlier is not a change.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn import IncrementalGaussianMixture, PageHinkley
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, size=(1000, 2)), rng.normal(4, 1, size=(100, 2))])
    >>> model = IncrementalGaussianMixture(change_detector=PageHinkley(threshold=20.0)).partial_fit(X)
    >>> changes = [event.row for event in model.events_ if event.kind == "change"]
    >>> [1000 <= row < 1020 for row in changes]
    [True]
    """

    drift: float = 0.25
    threshold: float = 10.0
    min_rows: int = 30
    limit: float = 4.0


class ChangeState(NamedTuple):
    """Values since the last change, their mean, their scatter about it, and the drop accumulated."""

    n: float = 0.0
    mean: float = 0.0
    scatter: float = 0.0
    drop: float = 0.0


def check(detector: PageHinkley, name: str) -> PageHinkley:
    """Verify the numbers of a detector; `name` is the argument it came in."""
    numbers = (detector.drift, detector.threshold, detector.min_rows, detector.limit)
    if not all(np.isfinite(numbers)) or detector.drift < 0 or min(numbers[1:]) <= 0 or detector.min_rows < 2:
        raise InputError(
            f"{name} needs drift >= 0, threshold > 0, min_rows >= 2 and limit > 0, all finite; got {detector!r}."
        )
    return detector


def settings(detector: PageHinkley) -> tuple[float, float, float, float]:
    """The numbers of a detector, in the order in which kernels take them."""
    return float(detector.drift), float(detector.threshold), float(detector.min_rows), float(detector.limit)


def step(detector: PageHinkley, state: ChangeState, value: float) -> tuple[ChangeState, bool]:
    """Take one value; returns the next state and whether a change is signalled."""
    memory = np.array(state)
    fired = kernels.page_hinkley_step(float(value), memory, *settings(detector))
    return ChangeState(*memory.tolist()), bool(fired)


def detect(detector: PageHinkley, state: ChangeState, values: Array) -> tuple[ChangeState, NDArray[np.bool_]]:
    """Take values in order; returns the next state and the mask of those at which a change is signalled."""
    memory, fired = np.array(state), np.zeros(len(values), dtype=np.bool_)
    kernels.page_hinkley_rows(np.ascontiguousarray(values, dtype=np.float64), memory, *settings(detector), fired)
    return ChangeState(*memory.tolist()), fired
