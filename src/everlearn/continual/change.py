"""How well changes in a stream are found, always beside a detector that fires at every row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.errors import InputError
from everlearn.reporting.tables import Table


class ChangeScores(NamedTuple):
    """Scores of a detector.

    Attributes
    ----------
    precision : float
        Changes found, over changes found plus false alarms; NaN without any alarm.
    recall : float
        Share of the changes that were found.
    delay : float
        Mean number of rows from a change that was found to its first alarm.
    false_alarms_per_1000 : float
        Alarms outside of every change's window, for 1000 rows of the stream.
    """

    precision: float
    recall: float
    delay: float
    false_alarms_per_1000: float


class ChangeReport(NamedTuple):
    """Scores of a detector, and of one that fires at every row of the same stream: what is to be beaten.

    Attributes
    ----------
    detector : ChangeScores
        Of the detector.
    always : ChangeScores
        Of firing at every row.
    """

    detector: ChangeScores
    always: ChangeScores

    def __str__(self) -> str:
        header = ["", "precision", "recall", "delay", "false alarms per 1000"]
        rows: list[list[str | float]] = [
            [name, *scores] for name, scores in zip(("detector", "always fires"), self, strict=True)
        ]
        return Table(header, rows).text()


def change_report(alarms: ArrayLike, changes: ArrayLike, n_rows: int, *, tolerance: int) -> ChangeReport:
    """Score alarms against known changes.

    A change at row c is found if an alarm falls in its window, rows c to c + tolerance, or to the row before the next
    change if that comes sooner. Further alarms in the window count neither way. Alarms outside of all windows are
    false.

    Parameters
    ----------
    alarms : array-like of int
        Rows at which the detector fired.
    changes : array-like of int
        Rows at which something changed.
    n_rows : int
        Length of the stream.
    tolerance : int
        How many rows after a change an alarm still counts as its detection.

    Returns
    -------
    ChangeReport
        Scores of the detector, beside those of firing at every row.

    Examples
    --------
    >>> from everlearn.continual import change_report
    >>> print(change_report([105, 400], [100, 300], 1000, tolerance=50))
                   precision   recall   delay   false alarms per 1000
    detector           0.500    0.500   5.000                   1.000
    always fires       0.002    1.000   0.000                 898.000
    """
    if tolerance < 0 or n_rows < 1:
        raise InputError(f"tolerance must be 0 or more and n_rows 1 or more; got {tolerance} and {n_rows}.")
    # Firing at every row has full recall and no delay: without it beside, any eager detector looks good.
    fired, true = _rows("alarms", alarms, n_rows), _rows("changes", changes, n_rows)
    return ChangeReport(_scores(fired, true, n_rows, tolerance), _scores(np.arange(n_rows), true, n_rows, tolerance))


def _rows(name: str, rows: ArrayLike, n_rows: int) -> NDArray[np.int64]:
    given = np.unique(np.asarray(rows, dtype=np.int64))
    if given.size and not 0 <= given[0] <= given[-1] < n_rows:
        raise InputError(f"{name} must be row numbers from 0 to {n_rows - 1}; got {given[0]} to {given[-1]}.")
    return given


def _scores(alarms: NDArray[np.int64], changes: NDArray[np.int64], n_rows: int, tolerance: int) -> ChangeScores:
    # A window ends before the next change, so that an alarm never counts for two changes.
    ends = np.minimum(changes + tolerance, np.append(changes[1:], n_rows) - 1)
    first = np.searchsorted(alarms, changes)
    hit = first < np.searchsorted(alarms, ends, side="right")
    # The window that each alarm could fall into is that of the latest change before it; -1 where there is none.
    window = np.searchsorted(changes, alarms, side="right") - 1
    within = window >= 0
    within[within] = alarms[within] <= ends[window[within]]
    found, false = int(hit.sum()), int((~within).sum())
    return ChangeScores(
        precision=found / (found + false) if found + false else float("nan"),
        recall=found / len(changes) if len(changes) else float("nan"),
        delay=float((alarms[first[hit]] - changes[hit]).mean()) if found else float("nan"),
        false_alarms_per_1000=1000.0 * false / n_rows,
    )
