"""Distributed fits on a real Dask cluster of worker processes: data frames, arrays, files, and workers that die."""

import logging
import os
import signal
import socket
import threading
import time

import numpy as np
import pandas as pd
import pytest

import everlearn
from everlearn import IncrementalGaussianMixture, IncrementalGaussianMixtureClassifier, OnlinePPCA
from everlearn.distributed import fit
from everlearn.errors import ClusterError, InputError
from everlearn.persistence.model_file import dumps

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed", reason="needs the extra cluster")
dd = pytest.importorskip("dask.dataframe")
da = pytest.importorskip("dask.array")

NAMES = ["rpm", "temp", "load"]


@pytest.fixture(scope="module")
def client():
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        yield client


def threads(n_workers):
    """A cluster of threads in this process, quick to start."""
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    return distributed.LocalCluster(n_workers=n_workers, processes=False, **options)


def rows_of(rng, n):
    return rng.normal(size=(n, 3)) + 5.0 * rng.integers(3, size=(n, 1))


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(5):
        pd.DataFrame(rows_of(rng, 600), columns=NAMES).to_parquet(tmp_path / f"{i}.parquet", row_group_size=300)
    return tmp_path


def test_files_give_the_model_of_one_process(client, folder):
    alone, _ = fit(IncrementalGaussianMixture(), folder, workers=1, partition_rows=300)
    model, report = fit(IncrementalGaussianMixture(), folder, engine=client, partition_rows=300, progress=True)
    assert dumps(model) == dumps(alone)
    assert [record.rows for record in report.partitions] == [300] * 10
    assert len({record.worker for record in report.partitions}) == 2
    by_address, _ = fit(IncrementalGaussianMixture(), folder, engine=client.scheduler.address, partition_rows=300)
    assert dumps(by_address) == dumps(alone)


def test_data_frames_and_arrays(client, folder):
    files, _ = fit(IncrementalGaussianMixture(), folder, workers=1)
    frame = dd.read_parquet(folder, split_row_groups=False)
    model, report = fit(IncrementalGaussianMixture(), frame, engine=client)
    assert dumps(model) == dumps(files)
    assert report.columns == tuple(NAMES)
    rows = frame.to_dask_array(lengths=True)
    array, report = fit(IncrementalGaussianMixture(), rows, engine=client)
    X = rows_of(np.random.default_rng(1), 200)
    np.testing.assert_array_equal(array.score_samples(X), model.score_samples(X))
    assert report.rows == 3000


def test_a_data_frame_with_text_gaps_and_labels(client):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rows_of(rng, 600), columns=NAMES)
    frame["kind"] = np.where(frame["rpm"] > 4, "high", "low")
    frame["steps"] = pd.array(rng.integers(9, size=600), dtype="Int64")
    frame.loc[::5, "steps"] = pd.NA
    source = dd.from_pandas(frame, npartitions=3)
    model, report = fit(IncrementalGaussianMixture(), source, engine=client)
    assert (report.columns, report.left_out) == ((*NAMES, "steps"), {"kind": "text"})
    assert model.n_samples_seen_ == 600
    classifier, _ = fit(IncrementalGaussianMixtureClassifier(), source, engine=client, columns=NAMES, target="kind")
    assert classifier.score(frame[NAMES], frame["kind"]) > 0.9


def kill_a_busy_worker(client, killed):
    """Kill the process of the first worker that is seen learning."""
    pids = client.run(os.getpid)
    while not killed:
        for worker, tasks in client.processing().items():
            if any("learn_file" in str(task) for task in tasks):
                os.kill(pids[worker], signal.SIGKILL)
                killed.append(worker)
                return
        time.sleep(0.02)


def test_a_worker_killed_in_the_middle_changes_nothing(client, tmp_path):
    rng = np.random.default_rng(0)
    for i in range(6):
        pd.DataFrame(rows_of(rng, 5000), columns=NAMES).to_parquet(tmp_path / f"{i}.parquet")
    expected, _ = fit(IncrementalGaussianMixture(), tmp_path, workers=1)
    killed = []
    killer = threading.Thread(target=kill_a_busy_worker, args=(client, killed))
    killer.start()
    model, report = fit(IncrementalGaussianMixture(), tmp_path, engine=client)
    killer.join()
    assert killed
    assert dumps(model) == dumps(expected)
    assert [record.rows for record in report.partitions] == [5000] * 6
    assert report.lost_workers == 1


def test_refusals(client, folder):
    with pytest.raises(InputError, match="workers= is the number of local processes"):
        fit(OnlinePPCA(1), folder, engine=client, workers=2)
    array = da.ones((100, 4), chunks=(50, 2))
    with pytest.raises(InputError, match=r"split by rows alone: use X.rechunk\(\{1: -1\}\)"):
        fit(OnlinePPCA(1), array, engine=client)
    with pytest.raises(InputError, match="no names for columns="):
        fit(OnlinePPCA(1), array.rechunk({1: -1}), engine=client, columns=["a"])
    with pytest.raises(InputError, match="give its client, or the address"):
        fit(OnlinePPCA(1), array.rechunk({1: -1}))
    infinite = da.where(da.arange(100, chunks=25)[:, None] == 60, np.inf, 1.0) * da.ones((100, 2), chunks=(25, 2))
    with pytest.raises(
        InputError, match="In the partition partition 2, batch from row 0 on: Input X contains infinity"
    ):
        fit(OnlinePPCA(1), infinite, engine=client)
    (folder / "2.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"2.parquet cannot be read"):
        fit(OnlinePPCA(1), folder, engine=client)


def test_a_file_that_disappears(client, folder, monkeypatch):
    from everlearn.distributed import fitting

    honest = fitting.file_partitions

    def losing_one(*arguments):
        parts = honest(*arguments)
        os.remove(folder / "3.parquet")
        return parts

    monkeypatch.setattr(fitting, "file_partitions", losing_one)
    with pytest.raises(InputError, match=r"3.parquet cannot be read on .* after 1 tries.*under the same path"):
        fit(OnlinePPCA(1), folder, engine=client, retries=0)


def test_a_scheduler_that_does_not_answer(folder):
    with pytest.raises(ClusterError, match=r"scheduler tcp://127.0.0.1:9 did not answer within 1 s"):
        fit(OnlinePPCA(1), folder, engine="tcp://127.0.0.1:9", timeout=1)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ClusterError, match="did not answer within 1 s"),
    ):
        fit(OnlinePPCA(1), folder, engine=f"tcp://127.0.0.1:{silent.getsockname()[1]}", timeout=1)
    with pytest.raises(ClusterError, match="did not answer"):
        fit(OnlinePPCA(1), folder, engine="pigeon://roof", timeout=1)


def test_a_cluster_without_workers(folder):
    with threads(0) as cluster, pytest.raises(ClusterError, match=r"no worker for 0.5 s. Start some: dask worker"):
        fit(OnlinePPCA(1), folder, engine=cluster, timeout=0.5)


def test_a_cluster_that_loses_all_workers():
    slow = da.ones((100, 2), chunks=(10, 2)).map_blocks(lambda block: time.sleep(0.2) or block)
    with threads(1) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        threading.Timer(0.5, cluster.scale, (0,)).start()
        with pytest.raises(ClusterError, match="none came back within 1 s"):
            fit(OnlinePPCA(1), slow, engine=client, timeout=1)


def test_merged_on_the_cluster_or_here_alike(client, folder):
    model, _ = fit(OnlinePPCA(2), folder, engine=client)
    parts = [OnlinePPCA(2, random_state=0).partial_fit(pd.read_parquet(path)) for path in sorted(folder.glob("*"))]
    X = rows_of(np.random.default_rng(1), 100)
    np.testing.assert_array_equal(model.score_samples(X), everlearn.merge(parts).score_samples(X))
