"""A partition that is too large for the memory of its worker."""

import logging
import time
from types import SimpleNamespace

import dask
import numpy as np
import pytest
from dask import array as da

import distributed
from everlearn import OnlinePPCA
from everlearn.distributed import engines, fit
from everlearn.errors import ClusterError

pytestmark = pytest.mark.slow

LIMIT = 600 << 20  # bytes of a worker


def test_a_worker_that_runs_out_of_memory_is_named_with_what_to_do():
    worker = SimpleNamespace(address="tcp://10.0.0.7:4000")
    killed = distributed.KilledWorker("partition-3", worker, 3)
    future = SimpleNamespace(status="error", exception=lambda: killed)
    with pytest.raises(ClusterError, match=r"killed 4 workers, the last tcp://10\.0\.0\.7:4000.*smaller batch_rows"):
        engines._raise_failure(future)


def hungry_rows(limit):
    """Rows that take more memory than there is, if slowly enough for the nanny of the worker to see it."""
    held = []
    while sum(map(len, held)) < 2 * limit:
        held.append(bytearray(b"x" * (8 << 20)))
        time.sleep(0.005)
    return np.ones((10, 3))


def test_a_real_worker_runs_out_of_memory(tmp_path):
    """It is killed, by its nanny, and told so; nothing is learned or left behind, and the cluster goes on."""
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    spill = {"distributed.worker.memory.pause": False, "distributed.worker.memory.spill": False}
    rows = da.from_delayed(dask.delayed(hungry_rows)(LIMIT), (10, 3), np.float64)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0, **spill}),
        distributed.LocalCluster(n_workers=1, memory_limit=LIMIT, local_directory=tmp_path, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        model = OnlinePPCA(1)
        with pytest.raises(ClusterError, match=r"killed 1 worker.*Too little memory"):
            fit(model, rows, engine=client)
        assert not model._is_started()
        assert client.submit(sum, [1, 2]).result(60) == 3
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 1000]
