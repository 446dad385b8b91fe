"""The suite itself: repeatable examples, and workers that do not fight for the cores."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.linalg
from hypothesis import settings
from threadpoolctl import threadpool_info

from examples import examples
from order import compiled_once


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


class Item(NamedTuple):
    path: Path
    number: int


def test_workers_begin_with_kernels_of_their_own():
    folders = ["agents", "base", "figmn", "linalg", "low_rank", "mixture", "ppca", "service", "variational", "watch"]
    items = [Item(Path(__file__).parent / folder / "test_learn.py", n) for folder in folders for n in range(10)]
    found = compiled_once(items)
    assert sorted(found) == sorted(items)
    assert {item.path.parent.name for item in found[:30]} == {"low_rank", "ppca", "variational"}
    assert {item.path.parent.name for item in found[50:70]} == {"figmn", "mixture"}


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="only xdist workers are limited to one thread")
def test_workers_use_one_blas_thread():
    scipy.linalg.cholesky(np.eye(3))
    threads = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert threads
    assert set(threads.values()) == {1}, threads
