"""What a run gives back while it learns: scores, imputations, changes and novelties, each to its own sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from everlearn.errors import InputError
from everlearn.streams.prequential import Foresight
from everlearn.streams.sources.source import Batch
from everlearn.streams.writers import Sink, open_sink

KINDS = ("scores", "imputations", "changes", "novelties")


def fields_of(kind: str, columns: list[str]) -> list[str]:
    """Names of the fields of one kind of output."""
    return {
        "scores": ["row", "log_density", "novel"],
        "imputations": ["row", *columns],
        "changes": ["row", "log_density"],
        "novelties": ["row", "log_density", *columns],
    }[kind]


class Outputs:
    """The sinks of a run.

    Parameters
    ----------
    addresses : mapping
        Address of a sink by kind of output: "scores", "imputations", "changes", "novelties".
    columns : list of str
        Names of the columns of the model.
    model : estimator
        The model, which must be able to give what is asked for.
    resumable : bool, default=False
        Whether the run has a state store.
    positions : mapping, optional
        What `flush` gave before a restart.

    Attributes
    ----------
    n_waiting : int
        Records that are not yet durable.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        columns: list[str],
        model: Any,
        *,
        resumable: bool = False,
        positions: Mapping[str, Any] | None = None,
    ) -> None:
        if "imputations" in addresses and not hasattr(model, "impute"):
            raise InputError(f"A {type(model).__name__} cannot fill gaps. Leave --imputations out.")
        self.n_waiting = 0
        self._sinks: dict[str, Sink] = {}
        for kind, where in addresses.items():
            position = (positions or {}).get(kind)
            fields = fields_of(kind, columns)
            self._sinks[kind] = open_sink(where, fields, resumable=resumable, position=position)

    def write(self, batch: Batch, seen: Foresight, model: Any) -> None:
        """Give out what a batch was to the model, which has just learned it."""
        first_row = model.n_samples_seen_ - len(batch.X)
        for kind, sink in self._sinks.items():
            records = _RECORDS[kind](first_row, batch.X, seen, model)
            sink.write(records)
            self.n_waiting += len(records)

    def flush(self) -> dict[str, Any]:
        """Make everything durable; returns the positions by kind."""
        positions = {kind: sink.flush() for kind, sink in self._sinks.items()}
        self.n_waiting = 0
        return positions

    def close(self) -> None:
        """Close the sinks."""
        for sink in self._sinks.values():
            sink.close()


def score_records(first_row: int, X: Any, seen: Foresight, model: Any) -> list[Any]:
    """Log-density of each row before it was learned, and whether it was novel."""
    return list(zip(_numbers(first_row, X), seen.log_density.tolist(), seen.novel.tolist(), strict=True))


def imputation_records(first_row: int, X: Any, seen: Foresight | None, model: Any) -> list[Any]:
    """Rows with their gaps filled."""
    filled = model.impute(X) if len(X) and np.isnan(X).any() else X
    return [(row, *values) for row, values in zip(_numbers(first_row, X), filled.tolist(), strict=True)]


def _change_records(first_row: int, X: Any, seen: Foresight, model: Any) -> list[Any]:
    places = [(row, row - first_row) for row in seen.changes]
    return [(row, float(seen.log_density[i]) if 0 <= i < len(X) else float("nan")) for row, i in places]


def _novelty_records(first_row: int, X: Any, seen: Foresight, model: Any) -> list[Any]:
    return [(first_row + i, float(seen.log_density[i]), *X[i].tolist()) for i in np.flatnonzero(seen.novel).tolist()]


def _numbers(first_row: int, X: Any) -> range:
    return range(first_row, first_row + len(X))


_RECORDS = {
    "scores": score_records,
    "imputations": imputation_records,
    "changes": _change_records,
    "novelties": _novelty_records,
}
