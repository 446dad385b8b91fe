"""The streaming contract as executable checks that any estimator can run.

scikit-learn's `check_estimator` says what an estimator owes a pipeline; these checks say what it owes
a stream.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from everlearn.checks import learning, refusals, values
from everlearn.checks.tools import works

__all__ = ["check_stream_estimator", "stream_checks"]


def check_stream_estimator(estimator: Any, *, random_state: int = 0) -> None:
    """Run every streaming check on an estimator.

    Any split of a stream into batches gives the same model; memory does not grow with the stream; input is neither
    kept nor changed; a saved model comes back bit for bit and goes on learning; copies are independent; merging
    leaves its arguments alone; degenerate tables (constant, repeated, one row, scales from 1e-150 to 1e150) work;
    NaN is learned or refused as the tags say; bad input is refused and leaves the model as it was.

    Parameters
    ----------
    estimator : StreamEstimator
        An instance; it is cloned and does not change.
    random_state : int, default=0
        Seed of the streams that the checks make.

    Raises
    ------
    AssertionError
        The estimator breaks the contract; the message says where.

    Examples
    --------
    >>> from everlearn import FIGMN
    >>> from everlearn.checks import check_stream_estimator
    >>> check_stream_estimator(FIGMN())
    """
    for _, check in stream_checks(estimator, random_state=random_state):
        check()


def stream_checks(estimator: Any, *, random_state: int = 0) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the name of each check and a call that runs it, for parametrised tests.

    Parameters
    ----------
    estimator : StreamEstimator
        An instance; it is cloned and does not change.
    random_state : int, default=0
        Seed of the streams that the checks make.

    Yields
    ------
    name : str
        What is checked.
    check : callable
        Runs the check; takes nothing.
    """
    for check in (*learning.CHECKS, *values.CHECKS, *refusals.CHECKS):
        yield check.__name__, _run(check, estimator, random_state)
    for table in learning.TABLES:
        check = functools.partial(learning.check_table, table=table)
        yield f"check_{table}", _run(check, estimator, random_state)


def _run(check: Callable[..., None], estimator: Any, random_state: int) -> Callable[[], None]:
    def run() -> None:
        with works(type(estimator).__name__):
            check(estimator, random_state)

    return run
