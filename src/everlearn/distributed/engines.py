"""Where partitions are learned: an engine takes leaves and gives the merged model.

Each engine learns the leaves in any order and on any machine, and merges them in a tree whose shape depends on their
number alone, so that the model is the same, to the bit, on all of them: joblib's backends and a Dask cluster here,
Spark in `everlearn.distributed.spark`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from everlearn.base.merge import merge
from everlearn.base.merge_tree import MergeTree
from everlearn.distributed.groups import merge_groups
from everlearn.distributed.report import PartitionRecord
from everlearn.errors import ClusterError, InputError, require

Watch = Callable[[PartitionRecord], None]
_LOOK_SECONDS = 0.2


class Leaf(NamedTuple):
    """A partition to be learned: call it, with its table if that lies on a cluster."""

    learn: Callable[..., tuple[PartitionRecord, Any]]
    table: Any = None  # a partition of a Dask collection

    def __call__(self) -> tuple[PartitionRecord, Any]:
        """Learn a partition that is a file."""
        return self.learn()


class Engine(Protocol):
    """Learns partitions, and merges their models in their order."""

    def run(self, leaves: Sequence[Leaf], fan_in: int, watch: Watch) -> Outcome:
        """Learn all leaves; `watch` is called with each record."""


class Outcome(NamedTuple):
    """The merged model, the records of the partitions in their order, and the workers that were lost."""

    model: Any
    records: list[PartitionRecord]
    lost_workers: int


def merge_models(models: Sequence[Any]) -> Any:
    """One model of several, or one of each group; those that saw no row count for nothing."""
    return merge_groups(models) if isinstance(models[0], dict) else merge(models)


# -- joblib ----------------------------------------------------------------------------------------


class JoblibEngine:
    """Processes of this machine, or another backend of joblib."""

    def __init__(self, backend: str, workers: int | None, retries: int) -> None:
        self._backend, self._workers, self._retries = backend, workers, retries

    def run(self, leaves: Sequence[Leaf], fan_in: int, watch: Watch) -> Outcome:
        """Learn on the backend; models come back one by one, and are merged here."""
        if any(leaf.table is not None for leaf in leaves):
            raise InputError(
                "A Dask collection is learned on its cluster: give its client, or the address of its scheduler, as "
                "engine=."
            )
        return run_joblib(self._backend, self._workers, leaves, fan_in, self._retries, watch)


def run_joblib(
    backend: str, workers: int | None, leaves: Sequence[Leaf], fan_in: int, retries: int, watch: Watch
) -> Outcome:
    """Learn on a joblib backend; models come back one by one, in the order of the partitions, and are merged here."""
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # Merged as they come, not at the end: at most fan-in models a level of the tree are in memory at a time.
    tree: MergeTree[Any] = MergeTree(merge_models, fan_in)
    records: list[PartitionRecord] = []
    lost = 0
    while len(records) < len(leaves):
        try:
            # From the first partition without a result on: joblib gives results in order, so that those before it are
            # merged already and are not learned again.
            for record, model in _joblib_results(joblib, backend, workers, leaves[len(records) :]):
                records.append(record)
                tree.add(model)
                watch(record)
        # loky ends the whole pool when one of its processes is killed; the next round starts a new one.
        except TerminatedWorkerError as error:
            lost += 1
            if lost > retries:
                raise ClusterError(
                    f"Worker processes were killed {lost} times, the last while {len(leaves) - len(records)} of "
                    f"{len(leaves)} partitions were left. Too little memory is the usual reason: use fewer workers= or "
                    "a smaller batch_rows=."
                ) from error
    return Outcome(tree.root(), records, lost)


def _joblib_results(joblib: Any, backend: str, workers: int | None, leaves: Sequence[Leaf]) -> Iterator[Any]:
    try:
        # The name of a backend is only looked up here: joblib's message would not say which argument was wrong.
        config = joblib.parallel_config(backend=backend, n_jobs=workers or -1)
    except ValueError as error:
        raise InputError(
            f"engine={backend!r} is neither the address of a scheduler ('tcp://host:8786') nor a joblib backend that "
            f"is registered: {error}"
        ) from error
    with config:
        # One partition a task, and results in their order: so the merge tree is the same for any number of workers.
        calls = [joblib.delayed(leaf)() for leaf in leaves]
        yield from joblib.Parallel(return_as="generator", batch_size=1)(calls)


# -- Dask ------------------------------------------------------------------------------------------


@contextmanager
def connected(engine: Any, timeout: float) -> Iterator[Any]:
    """A client of the Dask scheduler that `engine` is or names, which has a worker."""
    distributed = require("distributed", extra="cluster")
    if isinstance(engine, distributed.Client):
        # The client of the caller, which is not closed here.
        _wait_for_workers(engine, timeout)
        yield engine
        return
    try:
        if isinstance(engine, str):
            _greet(engine, timeout)
        # Not the default client: it would take over whatever else of the caller's runs on Dask.
        client = distributed.Client(engine, timeout=timeout, set_as_default=False)
    except (OSError, TimeoutError, TypeError, ValueError) as error:
        raise ClusterError(
            f"The scheduler {engine} did not answer within {timeout:g} s ({error or type(error).__name__}). Is `dask "
            "scheduler` running there, and does a firewall let its port through?"
        ) from error
    with client:
        _wait_for_workers(client, timeout)
        yield client


def _greet(address: str, timeout: float) -> None:
    """Shake hands with a scheduler: a Dask client would wait without end for one that takes calls but says nothing."""
    require("distributed", extra="cluster")
    from distributed.comm import connect
    from distributed.security import Security

    async def greet() -> None:
        comm = await asyncio.wait_for(connect(address, **Security().get_connection_args("client")), timeout)
        await comm.close()

    with ThreadPoolExecutor(1) as apart:  # from a loop of asyncio that may run here, as in a notebook
        apart.submit(asyncio.run, greet()).result()


def _wait_for_workers(client: Any, timeout: float) -> None:
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        raise ClusterError(
            f"The scheduler {client.scheduler.address} has had no worker for {timeout:g} s. Start some: "
            f"dask worker {client.scheduler.address}"
        ) from error


class DaskEngine:
    """The workers of a Dask cluster, which also merge."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client, self._timeout = client, timeout

    def run(self, leaves: Sequence[Leaf], fan_in: int, watch: Watch) -> Outcome:
        """Learn each leaf where its table lies."""
        dask = require("dask", extra="cluster")
        tasks = []
        for leaf in leaves:
            # nout=2: record and model are results of their own, so that records come here and models stay where they
            # are merged. Not pure: Dask would hash the arguments of every task to name it.
            task = dask.delayed(leaf.learn, nout=2, pure=False)
            tasks.append(task() if leaf.table is None else task(leaf.table))
        return run_dask(self._client, tasks, fan_in, self._timeout, watch)


def run_dask(client: Any, leaves: Sequence[Any], fan_in: int, timeout: float, watch: Watch) -> Outcome:
    """Learn and merge on a Dask cluster. `leaves` are delayed pairs of a record and a model.

    The whole is one graph: the scheduler learns a partition where it lies, and learns again what a lost worker held.
    """
    dask = require("dask", extra="cluster")
    tree = MergeTree(dask.delayed(merge_models, pure=False), fan_in)
    for _, model in leaves:
        tree.add(model)
    # Records are asked for beside the root: they tell the progress, and Dask drops each model once it is merged.
    futures = client.compute([tree.root(), *(record for record, _ in leaves)])
    try:
        lost = _await(client, futures, timeout, watch)
        model, *records = client.gather(futures)
    finally:
        # Also after an error: a cluster that others use must not go on with work that nobody waits for.
        client.cancel(futures)
    return Outcome(model, records, lost)


def _await(client: Any, futures: list[Any], timeout: float, watch: Watch) -> int:
    """Wait for all futures; returns how many workers went away meanwhile."""
    # Polled and not waited for: only so is it noticed that no worker is left, for which Dask would wait without end.
    root, pending = futures[0], futures
    known, lost, seen_worker = set(client.ncores()), 0, time.monotonic()
    while pending:
        time.sleep(_LOOK_SECONDS)
        done = [future for future in pending if future.done()]
        pending = [future for future in pending if not future.done()]
        for future in done:
            _raise_failure(future)
        # Not the root, which is a model and is fetched once, at the end.
        for record in client.gather([future for future in done if future is not root]):
            watch(record)
        present = _workers(client)
        lost, known = lost + len(known - present), present
        seen_worker = time.monotonic() if present else seen_worker
        if time.monotonic() - seen_worker > timeout:
            raise ClusterError(f"All workers went away, and none came back within {timeout:g} s.")
    return lost


def _workers(client: Any) -> set[str]:
    try:
        return set(client.ncores())
    except (OSError, TimeoutError) as error:
        raise ClusterError(f"The scheduler of {client!r} was lost: {error}.") from error


def _raise_failure(future: Any) -> None:
    if future.status == "finished":
        return
    if future.status != "error":
        raise ClusterError(f"The scheduler was lost, or gave the work up: a partition is {future.status}.")
    distributed = require("distributed", extra="cluster")
    error = future.exception()
    if isinstance(error, distributed.KilledWorker):
        raise ClusterError(
            f"A partition was given up after it had killed {error.allowed_failures + 1} workers, the last "
            f"{error.last_worker.address}. Too little memory is the usual reason: use a smaller batch_rows=."
        ) from error
    if isinstance(error, ModuleNotFoundError):
        raise ClusterError(f"A worker lacks a package: {error}. Install everlearn[cluster] on every worker.") from error
    raise error
