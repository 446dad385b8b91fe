"""What a run gives back while it learns: scores, imputations, changes and novelties, each to its own writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from everlearn.errors import InputError
from everlearn.streams.prequential import PrequentialResult
from everlearn.streams.sources.parsing import Batch
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.writers import Writer, open_writer
from everlearn.typing import CalibratedModel, DetectingModel, ImputingModel, PrequentialModel

KINDS = ("scores", "imputations", "changes", "novelties")


def fields_of(kind: str, columns: list[str], *, detects: bool = False) -> list[str]:
    """Names of the fields of one kind of output, behind the row and its time; a detector tells of stretches of rows."""
    if detects and kind in _OF_DETECTOR:
        return _OF_DETECTOR[kind][0]
    return {
        "scores": ["log_density", "novel"],
        "imputations": columns,
        "changes": ["log_density"],
        "novelties": ["p_value", "log_density", *columns],
    }[kind]


class Outputs:
    """The writers of a run.

    Parameters
    ----------
    addresses : mapping
        Address of a writer by kind of output: "scores", "imputations", "changes", "novelties".
    columns : list of str
        Names of the columns of the model.
    model : StreamingModel
        The model, which must be able to give what is asked for.
    time_format : TimeFormat, optional
        How the times of the stream are written; a field "time" then follows the row.
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
        time_format: TimeFormat | None = None,
        resumable: bool = False,
        positions: Mapping[str, Any] | None = None,
    ) -> None:
        # Refused before any file is opened, and not by an AttributeError at the first row with a gap.
        if "imputations" in addresses and not isinstance(model, ImputingModel):
            raise InputError(f"A {type(model).__name__} cannot fill gaps. Leave --imputations out.")
        if "novelties" in addresses and not isinstance(model, CalibratedModel | PrequentialModel):
            raise InputError(f"A {type(model).__name__} has no p-values and so no novelties. Leave --novelties out.")
        self.n_waiting = 0
        self._time_format = time_format
        self._writers: dict[str, Writer] = {}
        for kind, where in addresses.items():
            position = (positions or {}).get(kind)
            own = fields_of(kind, columns, detects=isinstance(model, DetectingModel))
            fields = ["row", *(["time"] if time_format else []), *own]
            self._writers[kind] = open_writer(where, fields, resumable=resumable, position=position)

    def write(self, batch: Batch, result: PrequentialResult, model: Any) -> None:
        """Give out what a batch was to the model, which has just learned it."""
        for kind, writer in self._writers.items():
            of_detector = isinstance(model, DetectingModel) and kind in _OF_DETECTOR
            found = list((_OF_DETECTOR[kind][1] if of_detector else _RECORDS[kind])(batch, result, model))
            if self._time_format is not None:
                moments = np.full(len(batch.X), np.nan) if batch.times is None else batch.times
                show = self._time_format.show
                # An event may belong to a row of an earlier batch (the rows of a warm-up are learned at its end), whose
                # time is gone.
                known = range(result.first_row, result.first_row + len(moments))
                found = [
                    (row, show(float(moments[row - result.first_row])) if row in known else "", *values)
                    for row, *values in found
                ]
            writer.write(found)
            self.n_waiting += len(found)

    def flush(self) -> dict[str, Any]:
        """Make everything durable; returns the positions by kind."""
        # If one writer fails, those before it have flushed and have nothing left for the retry. After a crash a file is
        # cut back to its committed position; a broker gets the records twice.
        positions = {kind: writer.flush() for kind, writer in self._writers.items()}
        self.n_waiting = 0
        return positions

    def close(self) -> None:
        """Close the writers."""
        for writer in self._writers.values():
            writer.close()


def score_records(batch: Batch, result: PrequentialResult, model: Any) -> Iterator[tuple[Any, ...]]:
    """Log-density of each row before it was learned, and whether it was novel."""
    rows = range(result.first_row, result.first_row + len(batch.X))
    return zip(rows, result.log_density.tolist(), result.novel.tolist(), strict=True)


def imputation_records(batch: Batch, result: PrequentialResult, model: Any) -> Iterator[tuple[Any, ...]]:
    """Rows with their gaps filled."""
    X = batch.X
    filled = model.impute(X) if len(X) and np.isnan(X).any() else X
    return ((result.first_row + i, *values) for i, values in enumerate(filled.tolist()))


def _change_records(batch: Batch, result: PrequentialResult, model: Any) -> Iterator[tuple[Any, ...]]:
    return ((event.row, event.value) for event in result.events if event.kind == "change")


def _novelty_records(batch: Batch, result: PrequentialResult, model: Any) -> Iterator[tuple[Any, ...]]:
    """p-value, log-density and values of novel rows; those of the warm-up belong to an earlier batch."""
    for event in result.events:
        i = event.row - result.first_row
        if event.kind == "novelty" and i >= 0:
            yield event.row, event.value, float(result.log_density[i]), *batch.X[i].tolist()


def _anomaly_records(batch: Batch, result: PrequentialResult, model: Any) -> Iterator[tuple[Any, ...]]:
    """Last row so far, smallest p-value, column to blame and why; an anomaly that goes on is written again."""
    for event in [*result.grown, *result.events]:
        if event.kind == "anomaly":
            told = event.details or {}
            yield event.row, told["last"], event.value, told["column"], told.get("text", "")


def _new_normal_records(batch: Batch, result: PrequentialResult, model: Any) -> Iterator[tuple[Any, ...]]:
    """Last row, and how many rows were learned."""
    for event in result.events:
        if event.kind == "new_normal":
            yield event.row, (event.details or {})["last"], int(event.value)


_OF_DETECTOR = {
    "novelties": (["last", "p_value", "column", "text"], _anomaly_records),
    "changes": (["last", "rows"], _new_normal_records),
}
_RECORDS = {
    "scores": score_records,
    "imputations": imputation_records,
    "changes": _change_records,
    "novelties": _novelty_records,
}
