"""Several threads: the same answers as one, BLAS left as it was found, sections that overlap."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from everlearn.figmn import ask as scoring
from everlearn.figmn import cost_model
from everlearn.figmn import learn as incremental
from everlearn.figmn import state as states
from everlearn.figmn.cost_model import Method
from everlearn.linalg import backend as device
from everlearn.linalg import parallel as threads
from states import learn, mixture, rows_from, settings_for


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def two():
    # Torch for ARM brings an OpenBLAS with OpenMP's threads: where a test before has loaded it, all is left to BLAS.
    if any(library.get("threading_layer", "pthreads") != "pthreads" for library in threadpool_info()):
        pytest.skip("a BLAS is loaded whose threads are not its own: torch's")
    with threadpool_limits(2, user_api="blas"):
        yield


def test_as_many_threads_as_blas_may_use(two):
    assert threads.available() == 2
    with threadpool_limits(1, user_api="blas"):
        assert threads.available() == 1


def test_items_run_side_by_side_and_keep_their_order(two):
    met = threading.Barrier(2, timeout=60)

    def work(item):
        met.wait()
        return item, blas_threads()

    results = threads.each(work, [3, 1])
    assert [item for item, _ in results] == [3, 1]
    assert all(set(counts) == {1} for _, counts in results)
    assert set(blas_threads()) == {2}


def test_one_item_leaves_blas_its_threads(two):
    assert set(threads.each(lambda _: max(blas_threads()), [0])) == {2}


def test_an_error_leaves_blas_as_it_was(two):
    def fail(item):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threads.each(fail, [0, 1])
    assert set(blas_threads()) == {2}


def test_sections_that_overlap_in_any_order_give_blas_back_once(two):
    def section(delay):
        time.sleep(delay)
        with threads.one_blas_thread():
            before = threads.available()
            time.sleep(0.02)
            return before, blas_threads()

    with ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(section, [0.005 * i for i in range(6)]))
    assert all(before == 2 and set(counts) == {1} for before, counts in seen)
    assert set(blas_threads()) == {2}


@pytest.mark.parametrize("method", [Method.BLOCKS, Method.SCREENED_BLOCKS])
def test_the_same_bits_with_one_and_with_two_threads(method, monkeypatch):
    monkeypatch.setattr(device, "SHARED", 0)
    rng = np.random.default_rng(0)
    D = 112
    start = mixture(rng, D, 5, spread=2.0, count=200.0)
    X = rows_from(rng, start, 600, outliers=0.01)
    settings = settings_for(D, beta=1e-6, delta=1.0)
    results = []
    for n in (1, 2):
        with threadpool_limits(n, user_api="blas"):
            state, info = learn(method, start, X, settings)
            results.append((*state[:5], *info[:2], scoring.squared_distances(state, X)))
    assert len(results[0][0]) > 5
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_single_component_answers_the_same_to_rounding(monkeypatch):
    """Its columns are divided among threads only if there are some."""
    monkeypatch.setattr(device, "SHARED", 0)
    monkeypatch.setattr(device, "PIECE", 40)
    monkeypatch.setattr(cost_model, "choose", lambda D, K, *args, **kwargs: Method.BLOCKS)
    rng = np.random.default_rng(1)
    D = 112
    start = mixture(rng, D, 1, count=900.0)
    X = rows_from(rng, start, 600)
    results, used = [], []
    each = threads.each
    monkeypatch.setattr(threads, "each", lambda work, items: used.append(len(items)) or each(work, items))
    for n in (1, 2):
        used.clear()
        with threadpool_limits(n, user_api="blas"):
            copy = states.with_arrays(start, np.copy)
            results.append(incremental.learn(copy, X, np.ones(600), settings_for(D), device.HOST))
        assert max(used) == (1 if n == 1 else 3)
    (one, info), (two, other) = results
    np.testing.assert_allclose(two.precisions, one.precisions, rtol=0, atol=1e-11)
    np.testing.assert_allclose(other.distance, info.distance, rtol=1e-9)


def test_work_that_is_shared_is_not_divided_again(two):
    """A thread of the pool that waited for the pool would wait for ever."""

    def work(item):
        assert threads.is_shared()
        return threads.each(lambda part: (item, part, threading.get_ident()), [0, 1, 2])

    for item, answers in enumerate(threads.each(work, [0, 1])):
        assert [answer[:2] for answer in answers] == [(item, 0), (item, 1), (item, 2)]
        assert len({thread for _, _, thread in answers}) == 1
    assert not threads.is_shared()


def test_many_threads_may_ask_for_threads_at_once(two):
    def work(number):
        return sum(threads.each(lambda item: item * number, list(range(10))))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(40))) == [45 * number for number in range(40)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(two):
    threads.each(abs, [1, 2])
    child = os.fork()
    if child == 0:
        os._exit(0 if threads.each(abs, [-1, -2]) == [1, 2] else 1)
    assert os.waitpid(child, 0)[1] == 0
