"""What a worker does with one partition: read it, learn it, say how it went."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from everlearn.base.estimator import StreamEstimator
from everlearn.distributed.groups import Packed, Packs
from everlearn.distributed.partitions import FilePartition, check_columns, contents_of
from everlearn.distributed.report import PartitionRecord
from everlearn.errors import InputError
from everlearn.persistence.model_file import dumps, loads
from everlearn.streams.groups import split
from everlearn.streams.sources.files import open_file
from everlearn.streams.sources.parsing import Batch
from everlearn.streams.sources.schema import Choice, Columns
from everlearn.typing import Array

_FIRST_WAIT = 0.2


class Job(NamedTuple):
    """What is the same for all partitions."""

    estimator: StreamEstimator
    columns: Columns
    batch_rows: int
    retries: int
    by: bool = False  # whether the target tells groups, each of which has a model of its own


Result = StreamEstimator | Packs


def packed(model: Result) -> bytes:
    """What a worker has learned, as bytes: those of a model file, or those of the file of each group."""
    return pickle.dumps(model) if isinstance(model, dict) else dumps(model)


def unpacked(data: bytes) -> Result:
    """What :func:`packed` was given; the bytes come from a worker of our own."""
    # A model file never passes through pickle; only the table of groups does, whose models are model files in turn.
    return pickle.loads(data) if data[:1] == b"\x80" and data[8:9] != b"{" else loads(data)


def learn_file(job: Job, partition: FilePartition) -> tuple[PartitionRecord, Result]:
    """Learn the rows of a file; a failure to read it is tried again from the start."""
    start = time.perf_counter()
    # From the start, with a new model: what a failed read has learned is dropped whole, and no row counts twice.
    for tries in range(1, job.retries + 2):
        try:
            model, rows = _learned(job, partition.name, _file_batches(job, partition))
        except OSError as error:
            if tries > job.retries:
                raise InputError(
                    f"The partition {partition.name} cannot be read on {_worker()} after {tries} tries: {error}. Every "
                    "worker must see the files under the same path."
                ) from error
            time.sleep(_FIRST_WAIT * 2 ** (tries - 1))
        else:
            break
    # A file that was replaced since the fit began has other rows than those that were planned.
    if partition.rows is not None and rows != partition.rows:
        raise InputError(f"The partition {partition.name} gave {rows} rows; its footer promises {partition.rows}.")
    return _record(partition.name, rows, start, tries), model


def learn_table(job: Job, name: str, table: Any) -> tuple[PartitionRecord, Result]:
    """Learn the rows of a data frame or an array."""
    return learn_tables(job, name, iter([table]))


def learn_tables(job: Job, name: str, tables: Iterator[Any]) -> tuple[PartitionRecord, Result]:
    """Learn the rows of a partition that comes as several data frames or arrays."""
    start = time.perf_counter()

    def batches() -> Iterator[Batch]:
        for table in tables:
            if job.columns.names:
                check_columns(name, contents_of(table), job.columns, all_of_them=False)
            yield from _table_batches(job, table)

    model, rows = _learned(job, name, batches())
    return _record(name, rows, start, 1), model


def _learned(job: Job, name: str, batches: Iterator[Batch]) -> tuple[Result, int]:
    model = job.estimator.copy()
    groups: dict[str, StreamEstimator] = {}
    rows = 0
    for batch in batches:
        X = batch.X
        # Not left out, as a stream would: `fit` promises that every row was learned.
        if batch.bad:
            bad = batch.bad[0]
            raise InputError(
                f"The partition {name} cannot be read: {bad.place} has {bad.reason}: {bad.text[:200]!r}. Repair the "
                "file, or leave it out by name."
            )
        if not len(X):
            continue
        try:
            if job.by:
                _learn_groups(groups, job, X, batch.y)
            else:
                model.partial_fit(X, batch.y)
        except ValueError as error:
            raise InputError(f"In the partition {name}, batch from row {rows} on: {error}") from error
        if rows == 0 and job.columns.names and not job.by:
            model.feature_names_in_ = np.array(job.columns.names, dtype=object)  # type: ignore[attr-defined]
        rows += len(X)
    if job.by:
        # As bytes, in which they travel: only the models that several partitions know are built again to be merged.
        return {key: Packed(int(one.n_samples_seen_), dumps(one)) for key, one in groups.items()}, rows  # type: ignore[attr-defined]
    return model, rows


def _learn_groups(groups: dict[str, StreamEstimator], job: Job, X: Array, keys: Any) -> None:
    """Learn each row by the model of its group; models are made when their first row comes."""
    for key, own in split(np.asarray(keys), X):
        if not key:
            raise InputError(f"a row has no value in the column {job.columns.target!r}, which tells the groups")
        if key not in groups:
            groups[key] = job.estimator.copy()
        groups[key].partial_fit(np.ascontiguousarray(X[own]))
        groups[key].feature_names_in_ = np.array(job.columns.names, dtype=object)  # type: ignore[attr-defined]


def _file_batches(job: Job, partition: FilePartition) -> Iterator[Batch]:
    if partition.rows == 0:
        return
    choice = Choice(job.columns.names, job.columns.target, time="")
    os.stat(partition.path)  # a file that was there may come back: an OSError, which is tried again
    with contextlib.closing(
        open_file(partition.path, choice, row_groups=partition.row_groups, slice_rows=job.batch_rows)
    ) as file:
        # Classes named 1, 2, 3 look like numbers in a file that happens to hold no other.
        if file.columns.labels != job.columns.labels and not job.by:
            kinds = ("text", "numbers") if job.columns.labels else ("numbers", "text")
            raise InputError(
                f"The target {job.columns.target!r} holds {kinds[0]} in the first partition and {kinds[1]} in "
                f"{partition.name}."
            )
        yield from file.batches()


def _table_batches(job: Job, table: Any) -> Iterator[Batch]:
    names, target = job.columns.names, job.columns.target
    for start in range(0, len(table), job.batch_rows):
        rows = slice(start, start + job.batch_rows)
        if names:
            part = table.iloc[rows]
            X = part[names].to_numpy(dtype=np.float64, na_value=np.nan)
            yield Batch(np.ascontiguousarray(X), None if target is None else part[target].to_numpy())
        else:
            yield Batch(np.ascontiguousarray(table[rows], dtype=np.float64), None)


def _record(name: str, rows: int, start: float, tries: int) -> PartitionRecord:
    return PartitionRecord(name, rows, time.perf_counter() - start, tries, _worker(), _peak_memory())


def _worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _peak_memory() -> int:
    """Most bytes that this process has held; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    if sys.platform == "linux":
        # Not from getrusage: there the peak of a new process begins with that of the one that started it.
        with contextlib.suppress(OSError), open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
