"""`fit`: one model of a data set that lies in many partitions."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, NamedTuple

from sklearn.base import clone

from everlearn.base.estimator import StreamEstimator
from everlearn.distributed.engines import DaskEngine, Engine, JoblibEngine, Leaf, Watch, connected
from everlearn.distributed.groups import GroupModels
from everlearn.distributed.partitions import FilePartition, contents_of, file_partitions
from everlearn.distributed.report import PartitionRecord, Report
from everlearn.distributed.spark import SparkEngine, is_spark_frame, is_spark_session, kinds_of
from everlearn.distributed.worker import Job, learn_file, learn_table
from everlearn.errors import ClusterError, InputError, MergeError
from everlearn.streams.sources.schema import Choice, Columns, choose

# The shape of the merge tree, and with it the model, depends on this number: another one gives another model.
FAN_IN = 16


class Learned(NamedTuple):
    """A model, and the report of how it was learned."""

    model: Any
    report: Report


def fit(
    estimator: Any,
    source: Any,
    *,
    engine: Any = "processes",
    workers: int | None = None,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    by: str | None = None,
    partition_rows: int = 1_000_000,
    batch_rows: int = 16_384,
    retries: int = 2,
    timeout: float = 30.0,
    progress: bool = False,
) -> Learned:
    """Learn every partition of a data set where it lies, and merge the models.

    The model depends on the data and the estimator alone, not on the number of workers or on which of them failed. A
    partition that cannot be read is an error: no row is left out.

    Parameters
    ----------
    estimator : StreamEstimator
        Which model to learn; it does not change, and what it has learned is not used.
    source : path-like, sequence of path-likes, Dask collection, or Spark data frame
        Files as `everlearn learn` reads them (CSV, JSON lines, Parquet, Arrow; also compressed): a file, a folder, a
        pattern such as ``"day-*.parquet"``, or several of these, which every worker must see under the same path. Or a
        Dask data frame or array, or a Spark data frame, which is learned on its own session.
    engine : {"processes"}, str, distributed.Client or Cluster, SparkSession, default="processes"
        Local processes; the address of a Dask scheduler, such as ``"tcp://host:8786"``; a Dask client or cluster; a
        Spark session; or the name of another joblib backend, such as ``"threading"`` or ``"ray"`` once it is
        registered.
    workers : int, optional
        Number of local processes, by default one a core. A cluster has its own number.
    columns : sequence of str, optional
        Names, or patterns such as ``temp*``, of the columns to learn; by default all columns of numbers, and then all
        partitions must have the same columns.
    target : str, optional
        Column of labels or targets, for a classifier or regressor.
    by : str, optional
        Column of groups, such as devices: one model is learned for each of its values, and models of a group that lies
        in several partitions are merged.
    partition_rows : int, default=1_000_000
        A Parquet file of more rows is split between its row groups into partitions of about so many.
    batch_rows : int, default=16_384
        Most rows of a Parquet file in memory at a time.
    retries : int, default=2
        How often to read a partition again after a failure to read it, or to start again after a lost process.
    timeout : float, default=30.0
        Seconds to wait for the scheduler, and for a worker when there is none.
    progress : bool, default=False
        Show a bar on the terminal.

    Returns
    -------
    model : StreamEstimator or GroupModels
        The merged model, which goes on learning; with `by` the models by the names of their groups.
    report : Report
        Rows of each partition, and who learned it.

    Raises
    ------
    InputError
        No such files, other columns in a partition, one that cannot be read, or rows that the model refuses.
    ClusterError
        The scheduler does not answer, or too many workers were lost.
    MergeError
        The partitions' models cannot be merged, for instance because their columns have other units.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import everlearn
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for day in range(3):
    ...         path = os.path.join(folder, f"day-{day}.csv")
    ...         np.savetxt(path, rng.normal(size=(500, 2)), delimiter=",", header="rpm,temp", comments="")
    ...     pattern = os.path.join(folder, "day-*.csv")
    ...     model, report = everlearn.distributed.fit(everlearn.OnlinePPCA(1), pattern, workers=1)
    >>> [record.rows for record in report.partitions]
    [500, 500, 500]
    >>> model.n_samples_seen_
    1500
    """
    _check_arguments(estimator, workers, partition_rows, batch_rows, retries, timeout)
    if by is not None and target is not None:
        raise InputError("by= is for models without a target: one column tells the groups.")
    start = time.perf_counter()
    told = target if by is None else by
    spark = is_spark_frame(source)
    parts: Sequence[FilePartition | TablePartition] = ()
    if spark:
        chosen = choose("The data frame", kinds_of(source), Choice(columns, told))
    elif hasattr(source, "__dask_graph__"):
        chosen, parts = _collection_parts(source, columns, told)
    else:
        chosen, parts = file_partitions(source, Choice(columns, told, time=""), partition_rows)
    job = Job(_seeded(estimator), chosen, batch_rows, retries, by is not None)
    n_parts = source.rdd.getNumPartitions() if spark else len(parts)
    with _bar(n_parts, progress) as watch, _merge_errors_explained():
        if spark:
            _refuse_workers(workers)
            outcome = SparkEngine(source.sparkSession).run_frame(source, job, FAN_IN, watch)
        else:
            with _engine(engine, workers, retries, timeout) as chosen_engine:
                outcome = chosen_engine.run([_leaf(job, part) for part in parts], FAN_IN, watch)
    report = Report(
        tuple(outcome.records), tuple(chosen.names), chosen.left_out, time.perf_counter() - start, outcome.lost_workers
    )
    model = GroupModels(outcome.model) if by is not None else outcome.model
    return Learned(_checked(model, report, estimator), report)


@contextmanager
def _engine(engine: Any, workers: int | None, retries: int, timeout: float) -> Iterator[Engine]:
    """The engine that `engine` is or names."""
    if isinstance(engine, str) and "://" not in engine:
        yield JoblibEngine("loky" if engine == "processes" else engine, workers, retries)
        return
    _refuse_workers(workers)
    if is_spark_session(engine):
        yield SparkEngine(engine)
        return
    with connected(engine, timeout) as client:
        yield DaskEngine(client, timeout)


class TablePartition(NamedTuple):
    """One partition of a Dask collection."""

    name: str
    table: Any


def _collection_parts(
    source: Any, columns: Sequence[str] | None, target: str | None
) -> tuple[Columns, list[TablePartition]]:
    if hasattr(source, "dtypes"):
        chosen, tables = choose("The data frame", contents_of(source), Choice(columns, target)), source.to_delayed()
    else:
        chosen, tables = _array_columns(source, columns, target), source.to_delayed().ravel()
    return chosen, [TablePartition(f"partition {i}", table) for i, table in enumerate(tables)]


def _array_columns(source: Any, columns: Sequence[str] | None, target: str | None) -> Columns:
    if getattr(source, "ndim", None) != 2 or source.numblocks[1] != 1:
        raise InputError("A Dask array must have two dimensions and be split by rows alone: use X.rechunk({1: -1}).")
    if columns is not None or target is not None:
        raise InputError("A Dask array has no names for columns= and target= to choose. Use a Dask data frame.")
    return Columns([], {})


def _leaf(job: Job, part: FilePartition | TablePartition) -> Leaf:
    if isinstance(part, FilePartition):
        return Leaf(functools.partial(learn_file, job, part))
    return Leaf(functools.partial(learn_table, job, part.name), part.table)


def _seeded(estimator: Any) -> Any:
    """An unfitted copy whose randomness repeats, so that a partition learned again gives the same model."""
    # A lost worker's partitions are learned again elsewhere, and must give the very same model.
    fresh = clone(estimator)
    if "random_state" in fresh.get_params(deep=False) and fresh.random_state is None:
        fresh.random_state = 0
    return fresh


def _checked(model: Any, report: Report, estimator: Any) -> Any:
    """The model, which must have seen every row that was read."""
    if report.rows == 0:
        raise InputError(f"There is no row to learn in {len(report.partitions)} partitions.")
    # A row that was lost or counted twice on the way would not show in any answer.
    if model.n_samples_seen_ != report.rows:
        raise ClusterError(f"{report.rows} rows were read, but the model counts {model.n_samples_seen_}.")
    # The caller's own again: None means that later draws may differ.
    if hasattr(estimator, "random_state") and not isinstance(model, GroupModels):
        model.random_state = estimator.random_state
    return model


def _refuse_workers(workers: int | None) -> None:
    if workers is not None:
        raise InputError("workers= is the number of local processes; a cluster has its own number of workers.")


def _check_arguments(
    estimator: Any, workers: Any, partition_rows: Any, batch_rows: Any, retries: Any, timeout: Any
) -> None:
    if not isinstance(estimator, StreamEstimator):
        raise InputError(f"estimator must be an everlearn model, not a {type(estimator).__name__}.")
    counts = {
        "workers": (1 if workers is None else workers, 1),
        "partition_rows": (partition_rows, 1),
        "batch_rows": (batch_rows, 1),
    }
    for name, (value, least) in {**counts, "retries": (retries, 0)}.items():
        if not isinstance(value, Integral) or int(value) < least:
            raise InputError(f"{name} must be an integer from {least} on; got {value!r}.")
    if not isinstance(timeout, Real) or not float(timeout) > 0:
        raise InputError(f"timeout must be a positive number of seconds; got {timeout!r}.")


@contextmanager
def _merge_errors_explained() -> Iterator[None]:
    try:
        yield
    except MergeError as error:
        raise MergeError(f"The models of the partitions cannot be merged. {error}") from error


@contextmanager
def _bar(n_partitions: int, shown: bool) -> Iterator[Watch]:
    """What to call with each record: a bar on the terminal, or nothing."""
    if not shown:
        yield lambda record: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    rows = 0
    parts = (BarColumn(30), MofNCompleteColumn(), TextColumn("partitions, {task.fields[rows]:,} rows"))
    with Progress(*parts, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=n_partitions, rows=0)

        def advance(record: PartitionRecord) -> None:
            nonlocal rows
            rows += record.rows
            bar.update(task, advance=1, rows=rows)

        yield advance
