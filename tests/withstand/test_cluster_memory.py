"""A partition that is too large for the memory of its worker."""

from types import SimpleNamespace

import pytest

import distributed
from everlearn.distributed import engines
from everlearn.errors import ClusterError


def test_a_worker_that_runs_out_of_memory_is_named_with_what_to_do():
    worker = SimpleNamespace(address="tcp://10.0.0.7:4000")
    killed = distributed.KilledWorker("partition-3", worker, 3)
    future = SimpleNamespace(status="error", exception=lambda: killed)
    with pytest.raises(ClusterError, match=r"killed 4 workers, the last tcp://10\.0\.0\.7:4000.*smaller batch_rows"):
        engines._raise_failure(future)
