"""A copy of a model and the few rows that it has learned since: the way back when learning a few more fails.

Kernels change the arrays of a model in place. A copy of them costs as much as learning some rows, so that a call that
learns one row cannot make one. As a database does, a model that learns a few rows at a time keeps a checkpoint, made
again after 1,024 rows, and a redo log of the batches since. A call that fails goes back to the checkpoint and learns
the logged batches once more, which gives the same model to the last bit: learning is deterministic, and asking does not
change what was learned. A call costs some four microseconds more (`benchmarks/undo.py`), a model at most as much
memory again as it has, and its last 1,024 rows.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from everlearn.typing import Array

# From this many rows on, a copy of the state to go back to costs a quarter of learning them at most, a tenth where
# rows are not the cheapest (benchmarks/undo.py): there a call makes its own.
UNDO_ROWS = 256
LOG_ROWS = 1024
_PLAIN = [(n, None, None) for n in range(UNDO_ROWS)]
# Beside the models, not in them: copies, pickles and files of a model have no use for its log.
_LOGS: WeakKeyDictionary[Any, RedoLog] = WeakKeyDictionary()


class RedoLog:
    """The checkpoint of a model and the batches learned since.

    Parameters
    ----------
    model : StreamEstimator
        A model that has learned something.
    n_columns : int
        Columns of its rows as they are learned, targets included.
    """

    __slots__ = ("batches", "before", "n_rows", "rows")

    def __init__(self, model: Any, n_columns: int) -> None:
        # One array for all rows: a small one for each would cost three times as much as writing it.
        self.rows = np.empty((LOG_ROWS + UNDO_ROWS, n_columns))
        self.begin(model)

    def begin(self, model: Any) -> None:
        """Make a new checkpoint."""
        self.before = model._snapshot()
        self.batches: list[tuple[int, Any, Array | None]] = []
        self.n_rows = 0

    def add(self, rows: Array, y: Any, weights: Array | None) -> None:
        """Write down rows that the model has just learned; the caller may change his arrays afterwards."""
        start, self.n_rows = self.n_rows, self.n_rows + len(rows)
        self.rows[start : self.n_rows] = rows
        if y is None and weights is None:
            self.batches.append(_PLAIN[len(rows)])
        else:
            own = [None if values is None else values.copy() for values in (y, weights)]
            self.batches.append((len(rows), own[0], own[1]))

    def go_back(self, model: Any, error: BaseException) -> None:
        """Make the model what it was when the last batch had been written down."""
        drop_log(model)
        checkpoint = object.__new__(type(model))
        checkpoint.__dict__ = self.before
        again = object.__new__(type(model))
        try:
            again.__dict__ = checkpoint._snapshot()
            end = 0
            for n, y, weights in self.batches:
                end += n
                again._learn(self.rows[end - n : end], y, weights)
        except BaseException as second:
            # What fails again, lack of memory or a bug: a whole model that lacks some rows is the next best.
            error.add_note(
                f"The {self.n_rows} rows before could not be learned again ({second!r}): the model is as it was before "
                "them."
            )
            again = checkpoint
        params = model.get_params(deep=False)
        assigned = [name for name, value in params.items() if value is not self.before.get(name)]
        if assigned:
            # Which rows were learned before that and which after, nobody knows; `set_params` begins a new log.
            error.add_note(f"Rows learned since {', '.join(assigned)} was assigned were learned again without that.")
        # The time of the last row is set by programs, too. One assignment: nobody sees a part of it.
        times = {name: value for name, value in vars(model).items() if name == "_last_row_"}
        model.__dict__ = vars(again) | times | params


def log_of(model: Any, n_columns: int) -> RedoLog:
    """The log of a model, with a new checkpoint where the old one is 1,024 rows ago."""
    log = _LOGS.get(model)
    if log is None:
        log = _LOGS[model] = RedoLog(model, n_columns)
    elif log.n_rows >= LOG_ROWS:
        log.begin(model)
    return log


def drop_log(model: Any) -> None:
    """Forget the log of a model that is changed by something else than a few rows."""
    _LOGS.pop(model, None)
