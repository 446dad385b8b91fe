"""What was read, by whom, and how long it took."""

from __future__ import annotations

from typing import NamedTuple

from everlearn.reporting.tables import Table, Value


class PartitionRecord(NamedTuple):
    """One partition as a worker learned it.

    Attributes
    ----------
    name : str
        File, with its row groups where it was split, or number of the partition.
    rows : int
        Rows read and learned.
    seconds : float
        Time that it took.
    tries : int
        How often it was read, failures included.
    worker : str
        Machine and process.
    peak_memory : int
        Most bytes that the worker's process had held by then, everything included.
    """

    name: str
    rows: int
    seconds: float
    tries: int
    worker: str
    peak_memory: int


class Report(NamedTuple):
    """What a distributed fit did; `print` it for a table.

    Attributes
    ----------
    partitions : tuple of PartitionRecord
        One record for each partition, in their order.
    columns : tuple of str
        Columns that were learned.
    left_out : dict
        Columns that were not, with the reason.
    seconds : float
        Time of the whole, merging included.
    lost_workers : int
        Workers that died on the way and whose partitions were learned again.
    """

    partitions: tuple[PartitionRecord, ...]
    columns: tuple[str, ...]
    left_out: dict[str, str]
    seconds: float
    lost_workers: int

    @property
    def rows(self) -> int:
        """Rows read and learned in all."""
        return sum(record.rows for record in self.partitions)

    @property
    def peak_memory(self) -> int:
        """Most bytes that a worker's process had held."""
        return max(record.peak_memory for record in self.partitions)

    def __str__(self) -> str:
        rows: list[tuple[Value, ...]] = [(r.name, f"{r.rows:,}", r.seconds, r.tries, r.worker) for r in self.partitions]
        rows.append(("all", f"{self.rows:,}", self.seconds, "", ""))
        return Table(("partition", "rows", "seconds", "tries", "worker"), rows, digits=2).text()
