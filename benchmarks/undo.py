"""What it costs that `partial_fit` can be undone: the copy of the state beside 256 rows, the log of single rows.

OPENBLAS_NUM_THREADS=1 python benchmarks/undo.py [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _page import parser, write_page

import everlearn
from everlearn.base import estimator
from everlearn.base.interrupts import HeldInterrupts
from everlearn.base.redo_log import LOG_ROWS, UNDO_ROWS, drop_log


def least(function: Callable[[], Any], repeats: int = 9) -> float:
    """Processor microseconds of a call, the least of some."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return 1e6 * min(times)


def hold() -> None:
    """Let interrupts wait, a thousand times."""
    for _ in range(1000):
        with HeldInterrupts():
            pass


class NoLog:
    """A log that writes nothing."""

    def add(self, *batch: Any) -> None:
        """Forget the rows."""


def single_rows(model: Any, rows: Any) -> tuple[float, float]:
    """Processor microseconds of a row alone, with the redo log and without; least of nine, turn and turn about."""

    def learn() -> None:
        for i in range(len(rows)):
            model.partial_fit(rows[i : i + 1])

    kept, nothing, times = estimator.log_of, NoLog(), []
    for _ in range(9):
        drop_log(model)
        logged = least(learn, 1)
        estimator.log_of = lambda *_: nothing  # type: ignore[assignment, return-value]
        try:
            times.append((logged, least(learn, 1)))
        finally:
            estimator.log_of = kept
    with_log, without = np.min(times, axis=0) / len(rows)
    return float(with_log), float(without)


def main() -> None:
    """Write the page."""
    options = parser(__doc__).parse_args()
    lines = [
        f"| model | columns | copy, us | {UNDO_ROWS} rows, us | share | a row alone, us | without the log | share |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rng = np.random.default_rng(0)
    for D in (5,) if options.quick else (5, 50):
        X = rng.normal(size=(2000 + UNDO_ROWS, D))
        models = (
            everlearn.IncrementalGaussianMixture(), everlearn.FIGMN(), everlearn.OnlinePPCA(),
            everlearn.VariationalPPCA(),
        )  # fmt: skip
        for model in models:
            model.fit(X[:2000])
            copy, learn = least(model._snapshot), least(lambda m=model, rows=X[2000:]: m.partial_fit(rows))
            alone, without = single_rows(model, X[: 100 if options.quick else 1000])
            lines.append(
                f"| {type(model).__name__} | {D} | {copy:.0f} | {learn:.0f} | {100 * copy / learn:.1f} % "
                f"| {alone:.1f} | {without:.1f} | {100 * (alone / without - 1.0):.1f} % |"
            )
    waiting = least(hold) / 1000.0
    body = [
        "# Learning that can be undone", "",
        f"From {UNDO_ROWS} rows on a batch is learned with a copy of the state to go back to. For fewer a copy would "
        f"cost more than the learning: there interrupts wait, which costs {waiting:.1f} us a call, and a log of the "
        f"rows since the copy of at most {LOG_ROWS:,} rows ago undoes what fails.", "", *lines,
    ]  # fmt: skip
    write_page("undo", "\n".join(body), figures={"waiting, us": round(waiting, 2)}, quick=options.quick)


if __name__ == "__main__":
    main()
