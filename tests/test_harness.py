"""The suite itself: repeatable examples, and workers that do not fight for the cores."""

import os

import numpy as np
import pytest
import scipy.linalg
from hypothesis import settings
from threadpoolctl import threadpool_info

from examples import examples


def test_hypothesis_is_repeatable(request):
    if request.config.getoption("--hypothesis-profile") is not None:
        pytest.skip("another Hypothesis profile was asked for")
    assert settings.default.derandomize
    assert settings.default.deadline is None


def test_slow_laws_have_their_share_of_the_examples():
    usual = settings.default
    try:
        settings.load_profile("everlearn")
        assert examples(5).max_examples == 5
        settings.load_profile("thorough")
        assert not settings.default.derandomize
        assert examples(15).max_examples == 500
    finally:
        settings.register_profile("before", usual)
        settings.load_profile("before")


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="only xdist workers are limited to one thread")
def test_workers_use_one_blas_thread():
    scipy.linalg.cholesky(np.eye(3))
    threads = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert threads
    assert set(threads.values()) == {1}, threads
