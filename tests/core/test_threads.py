"""Several threads: the same answers as one, BLAS left as it was found, sections that overlap."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from everlearn.core import device, incremental, scoring, threads
from everlearn.core.pace import Method
from states import learn, mixture, rows_from, settings_for


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def two():
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


@pytest.mark.parametrize("method", [Method.BLOCKS, Method.NEAR_BLOCKS])
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


def test_one_component_answers_the_same_to_rounding():
    rng = np.random.default_rng(1)
    start = mixture(rng, 300, 1, count=900.0)
    X = rows_from(rng, start, 500)
    distances = []
    for n in (1, 2):
        with threadpool_limits(n, user_api="blas"):
            copy = incremental.with_arrays(start, np.copy)
            distances.append(incremental.learn(copy, X, np.ones(500), settings_for(300))[1].distance)
    np.testing.assert_allclose(*distances, rtol=1e-12)
