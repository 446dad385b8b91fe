"""The change test as a drift detector of river."""

from __future__ import annotations

from everlearn.errors import InputError, require
from everlearn.monitoring.page_hinkley import ChangeState, PageHinkley, check, step

require("river", extra="river")

from river import base  # noqa: E402 (the line above says which extra brings it)

_SIGNS = {"both": (1.0, -1.0), "down": (1.0,), "up": (-1.0,)}


class ChangeDetector(base.DriftDetector):
    """Page and Hinkley's test on standardised values, as a drift detector; see :class:`everlearn.PageHinkley`.

    It takes errors, scores or any other numbers, needs no range or unit, and starts again after each change.

    Parameters
    ----------
    drift : float, default=0.5
        Change of the mean, in standard deviations, that is tolerated.
    threshold : float, default=8.3
        Accumulated change, in standard deviations, that signals: 0.7 more than the default of `PageHinkley`, so that
        two directions together signal as seldom as one does there.
    min_rows : int, default=30
        Values from which mean and spread are estimated before the test begins.
    limit : float, default=2.5
        Largest deviation, in standard deviations, that a value counts with.
    mode : {"both", "up", "down"}, default="both"
        Whether the mean may rise, fall, or either.

    Examples
    --------
    >>> import random
    >>> from everlearn.river import ChangeDetector
    >>> rng, detector, changes = random.Random(0), ChangeDetector(), []
    >>> for i in range(2000):
    ...     detector.update(rng.gauss(0 if i < 1000 else 2, 1))
    ...     if detector.drift_detected:
    ...         changes.append(i)
    >>> [1000 < i < 1030 for i in changes]
    [True]
    """

    def __init__(
        self,
        drift: float = 0.5,
        threshold: float = 8.3,
        min_rows: int = 30,
        limit: float = 2.5,
        mode: str = "both",
    ) -> None:
        super().__init__()
        if mode not in _SIGNS:
            raise InputError(f"mode must be 'both', 'up' or 'down'; got {mode!r}.")
        self.drift = drift
        self.threshold = threshold
        self.min_rows = min_rows
        self.limit = limit
        self.mode = mode
        self._test = check(PageHinkley(drift, threshold, min_rows, limit), "ChangeDetector")
        self._states = [ChangeState() for _ in _SIGNS[mode]]

    def update(self, x: float) -> None:
        """Take the next value; `drift_detected` says whether it signals a change.

        Parameters
        ----------
        x : float
            The value.
        """
        # The test finds a fall: for a rise it is given the negative values. Both directions have a state of their own.
        results = [
            step(self._test, state, sign * float(x))
            for sign, state in zip(_SIGNS[self.mode], self._states, strict=True)
        ]
        self._drift_detected = any(fired for _, fired in results)
        # Both begin anew: mean and spread from before the change are of use to neither.
        self._states = [ChangeState() if self._drift_detected else state for state, _ in results]
