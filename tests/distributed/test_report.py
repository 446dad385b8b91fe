"""What a distributed fit says of itself."""

import subprocess
import sys

import numpy as np
import pytest

from everlearn.distributed.report import PartitionRecord, Report

RECORDS = (
    PartitionRecord("day-0.csv", 1500, 0.25, 1, "host:1", 10),
    PartitionRecord("day-1.csv", 900, 2.5, 2, "host:2", 30),
)


def test_rows_add_up_and_memory_is_that_of_the_largest_worker():
    report = Report(RECORDS, ("a",), {}, 3.0, 1)
    assert (report.rows, report.peak_memory) == (2400, 30)


def test_the_table_has_a_line_for_each_partition_and_one_for_all():
    lines = str(Report(RECORDS, ("a",), {}, 3.0, 1)).splitlines()
    assert [line.split()[0] for line in lines if "day" in line or "all" in line] == ["day-0.csv", "day-1.csv", "all"]
    assert lines[-1].split()[:3] == ["all", "2,400", "3.00"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process is told no peak of its own")
def test_the_memory_of_a_worker_does_not_begin_with_that_of_the_process_that_started_it():
    held = np.ones(100_000_000)
    command = "from everlearn.distributed.worker import _peak_memory; print(_peak_memory())"
    told = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True, text=True)
    assert 1e7 < int(told.stdout) < held.nbytes
