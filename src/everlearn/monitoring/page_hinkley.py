"""Change signals from how well a model predicts: Page and Hinkley's test on the predictive log-likelihood.

A model that scores each row before it learns it gives a stream of log-likelihoods. When the data change, they drop. The
test knows nothing of the model: it standardises the values by their own mean and spread since the last change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.monitoring.kernels import page_hinkley as kernels
from everlearn.monitoring.kernels.page_hinkley import ChangeState as ChangeState
from everlearn.monitoring.kernels.page_hinkley import TestSettings
from everlearn.typing import Array

# The burn-in holds three extremes back, and estimates a spread from the others.
MIN_BURN_IN = 5


@dataclass(frozen=True)
class PageHinkley:
    """Page and Hinkley's test for a drop in the mean of standardised values.

    With t the value in standard deviations from the mean so far, the drop D <- max(0, D - t - drift) accumulates; a
    change is signalled when D > threshold, and the test starts again with the next value (E. S. Page, "Continuous
    inspection schemes", 1954; D. V. Hinkley, 1971).

    Mean and spread are robust from the start: of the first `min_rows` values the two lowest and the highest count no
    more than `limit` standard deviations of the others, later values no more than `limit` of all. Log-densities have a
    long tail to the left, which a low limit keeps from adding up.

    Values that depend on those before, or with a tail to the left, accumulate drops more often than independent
    Gaussian ones. The test estimates by how much, from their autocovariance and third moment while nothing drops, and
    raises the threshold so that false signals stay as rare, sixfold at most: values that are low for long and high for
    long would otherwise make it deaf. benchmarks/changes.py measures it.

    Parameters
    ----------
    drift : float, default=0.5
        Drop, in standard deviations a row, that is tolerated.
    threshold : float, default=7.5
        Accumulated drop, in standard deviations, that signals a change of independent Gaussian values. That of other
        values is scaled to be as rare.
    min_rows : int, default=30
        Rows from which mean and spread are estimated before the test begins (burn-in), five at least.
    limit : float, default=2.0
        Largest deviation, in standard deviations, that a row counts with, so that one outlier is not a change.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn import IncrementalGaussianMixture, PageHinkley
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, size=(1000, 2)), rng.normal(4, 1, size=(100, 2))])
    >>> model = IncrementalGaussianMixture(change_detector=PageHinkley(threshold=12.0)).partial_fit(X)
    >>> changes = [event.row for event in model.events_ if event.kind == "change"]
    >>> [1000 <= row < 1020 for row in changes]
    [True]
    """

    drift: float = 0.5
    threshold: float = 7.5
    min_rows: int = 30
    limit: float = 2.0


def check(detector: PageHinkley, name: str) -> PageHinkley:
    """Verify the numbers of a detector; `name` is the argument it came in."""
    numbers = (detector.drift, detector.threshold, detector.min_rows, detector.limit)
    if not all(np.isfinite(numbers)) or detector.drift < 0 or min(numbers[1:]) <= 0 or detector.min_rows < MIN_BURN_IN:
        raise InputError(
            f"{name} needs drift >= 0, threshold > 0, min_rows >= {MIN_BURN_IN} and limit > 0, all finite; got "
            f"{detector!r}."
        )
    return detector


def settings(detector: PageHinkley) -> TestSettings:
    """The parameters of a detector, as kernels take them."""
    return TestSettings(
        float(detector.drift), float(detector.threshold), float(detector.min_rows), float(detector.limit)
    )


def step(detector: PageHinkley, state: ChangeState, value: float) -> tuple[ChangeState, bool]:
    """Take one value; returns the next state and whether a change is signalled."""
    state, fired = detect(detector, state, np.array([value], dtype=np.float64))
    return state, bool(fired[0])


def detect(detector: PageHinkley, state: ChangeState, values: Array) -> tuple[ChangeState, NDArray[np.bool_]]:
    """Take values in order; returns the next state and the mask of those at which a change is signalled."""
    state, drops = statistics(detector, state, values)
    return state, drops > 0.0


def statistics(detector: PageHinkley, state: ChangeState, values: Array) -> tuple[ChangeState, Array]:
    """Take values in order; returns the next state and the test's statistic at those that signal, else zero."""
    memory, drops = np.array(state), np.zeros(len(values))
    kernels.detect(np.ascontiguousarray(values, dtype=np.float64), memory, settings(detector), drops)
    return ChangeState(*memory.tolist()), drops
