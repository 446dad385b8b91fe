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
# Numbers of the state that files of earlier forms of the test hold.
EARLIER_NUMBERS = ((7,), (19,))


@dataclass(frozen=True)
class PageHinkley:
    """Page and Hinkley's test for a drop in the mean of standardised values.

    With t the value in standard deviations from the mean so far, Page's test accumulates the drop
    D <- max(0, D - t - drift) and signals a change when D > threshold (E. S. Page, "Continuous inspection schemes",
    1954; D. V. Hinkley, 1971). exp(2 drift D) is the largest likelihood ratio of a drop by 2 drift at any of the values
    so far. This test adds these ratios up instead, R <- (1 + R) exp(-2 drift (t + drift)), which finds a drop sooner at
    the same rate of false signals (A. N. Shiryaev, 1963; S. W. Roberts, 1966; M. Pollak and A. G. Tartakovsky,
    "Optimality properties of the Shiryaev-Roberts procedure", 2009). It signals as seldom as Page's would on
    independent Gaussian values, and starts again with the next value.

    Values that depend on those before, or with a tail to the left, drop by chance more often than these. The test takes
    the likelihood ratios of the innovations of an autoregression of up to sixth order, whose reflection coefficients
    are shrunk to zero until there are enough values to know them, in units of a variance that follows recent
    innovations and the predicted value where these predict it. It divides the ratios by their mean while nothing
    changes: that keeps the rate, for R - n is then a martingale, whatever the distribution.

    Mean and spread are robust from the start: of the first `min_rows` values the two lowest and the highest count no
    more than `limit` standard deviations of the others, later values no more than `limit` of all. Values of a drop that
    goes on do not count among those that it is measured by. benchmarks/changes.py measures rate and delay.

    Parameters
    ----------
    drift : float, default=0.5
        Drop, in standard deviations a row, that is tolerated: half of the one that is found soonest. One below 0.05
        counts as 0.05.
    threshold : float, default=7.6
        Accumulated drop, in standard deviations, with which Page's test on independent Gaussian values signals as
        seldom as this one should: once in 12,800 rows by default; each 1 / (2 drift) more makes signals e times rarer.
    min_rows : int, default=30
        Rows from which mean and spread are estimated before the test begins (burn-in), five at least.
    limit : float, default=2.5
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
    threshold: float = 7.6
    min_rows: int = 30
    limit: float = 2.5


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
    state, found = statistics(detector, state, values)
    return state, found > 0.0


def statistics(detector: PageHinkley, state: ChangeState, values: Array) -> tuple[ChangeState, Array]:
    """Take values in order; returns the next state and the logarithm of R at those that signal, else zero."""
    memory, found = np.array(state), np.zeros(len(values))
    kernels.detect(np.ascontiguousarray(values, dtype=np.float64), memory, settings(detector), found)
    return ChangeState(*memory.tolist()), found


def current_memory(memory: Array) -> Array:
    """The numbers of a state from a file: those of a version whose state had fewer start again, with a burn-in."""
    n = len(ChangeState._fields)
    return np.zeros(n) if isinstance(memory, np.ndarray) and memory.shape in EARLIER_NUMBERS else memory
