"""Partitions on Spark: files as tasks, data frames where their partitions lie.

Models travel as the bytes of model files. They are merged by the driver, in the order of the partitions, in the same
tree as everywhere: the model does not depend on the engine.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from everlearn.base.merge_tree import MergeTree
from everlearn.distributed.engines import Leaf, Outcome, Watch, merge_models
from everlearn.distributed.report import PartitionRecord
from everlearn.distributed.worker import Job, learn_tables, packed, unpacked
from everlearn.errors import ClusterError, InputError, require

_RESULT = "partition int, record binary, model binary"
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean")
_TIMES = ("date", "timestamp", "interval")


def is_spark_frame(source: Any) -> bool:
    """Whether this is a data frame of Spark."""
    return hasattr(source, "mapInPandas") and hasattr(source, "sparkSession")


def is_spark_session(engine: Any) -> bool:
    """Whether this is a session of Spark."""
    return type(engine).__name__ == "SparkSession" and hasattr(engine, "createDataFrame")


def kinds_of(frame: Any) -> dict[str, str]:
    """What each column of a Spark data frame holds."""
    kinds = {}
    for name, kind in frame.dtypes:
        plain = kind.partition("(")[0]
        kinds[name] = "numbers" if plain in _NUMBERS else "times" if plain.startswith(_TIMES) else "text"
    return kinds


class SparkEngine:
    """Learns on the executors of a Spark session, and merges in the driver."""

    def __init__(self, session: Any) -> None:
        require("pyspark", extra="spark")
        self._session = session

    def run(self, leaves: Sequence[Leaf], fan_in: int, watch: Watch) -> Outcome:
        """Learn partitions that are files, one task each."""
        context = self._session.sparkContext
        # The pickle of everlearn's own functions: Spark would send them by value, with all that they refer to.
        if any(leaf.table is not None for leaf in leaves):
            raise InputError("A Dask collection is learned on its own cluster, not on Spark.")
        tasks = [pickle.dumps(leaf) for leaf in leaves]
        results = context.parallelize(tasks, len(tasks)).map(_learn_leaf)
        return self._merged(_collected(results), fan_in, watch)

    def run_frame(self, frame: Any, job: Job, fan_in: int, watch: Watch) -> Outcome:
        """Learn the partitions of a data frame, each in the order in which Spark gives its rows."""
        data = pickle.dumps(job)

        def learn(tables: Iterator[Any]) -> Iterator[Any]:
            yield _learn_frame(data, tables)

        # Sorted below by the number of the partition: the merge tree, and so the model, depends on the order.
        rows = frame.mapInPandas(learn, _RESULT)
        found = sorted(((row[0], bytes(row[1]), bytes(row[2])) for row in _collected(rows)), key=lambda r: r[0])
        return self._merged(((record, model) for _, record, model in found), fan_in, watch)

    def _merged(self, results: Any, fan_in: int, watch: Watch) -> Outcome:
        tree: MergeTree[Any] = MergeTree(merge_models, fan_in)
        records: list[PartitionRecord] = []
        for record, model in results:
            records.append(pickle.loads(record))
            tree.add(unpacked(model))
            watch(records[-1])
        if not records:
            raise InputError("There is no row to learn in 0 partitions.")
        return Outcome(tree.root(), records, 0)


def _collected(results: Any) -> Iterator[Any]:
    """What the tasks gave, in their order; the error of one is told without the trace of the virtual machine."""
    try:
        yield from results.collect()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines()]
        # An error of a task reaches the driver as the text of two stack traces, of Python within that of the JVM.
        own = [line for line in lines if line.startswith("everlearn.errors.")]
        if not own:
            raise ClusterError(f"Spark gave the work up: {str(error)[:500]}") from error
        kind, _, message = own[-1].partition(": ")
        wanted = InputError if kind.endswith(("InputError", "MergeError")) else ClusterError
        raise wanted(message) from error


def _learn_leaf(task: bytes) -> tuple[bytes, bytes]:
    record, model = pickle.loads(task)()
    return pickle.dumps(record), packed(model)


def _learn_frame(job: bytes, tables: Iterator[Any]) -> Any:
    """One row of a data frame: the number of the partition, its record, and its model."""
    import pandas as pd
    from pyspark import TaskContext

    # By the number and not by a counter: a task that is repeated elsewhere has the same one.
    number = TaskContext.get().partitionId()
    record, model = learn_tables(pickle.loads(job), f"partition {number}", tables)
    return pd.DataFrame({"partition": [number], "record": [pickle.dumps(record)], "model": [packed(model)]})
