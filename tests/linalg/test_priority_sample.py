"""The sample of a stream: the rows of highest priority, whose sums estimate those of all rows without bias."""

from typing import NamedTuple

import numpy as np
import pytest

from everlearn.linalg.compile import kernel
from everlearn.linalg.priority_sample import offer_row
from everlearn.linalg.uniforms import normal_numbers, uniform


@pytest.fixture(autouse=True)
def wrapping():
    """Integers of the generator wrap around; without the compiler, NumPy would warn of it."""
    with np.errstate(over="ignore"):
        yield


class Sample(NamedTuple):
    rows: np.ndarray
    log_weights: np.ndarray
    keys: np.ndarray
    size: np.ndarray
    level: np.ndarray
    offered: np.ndarray


@kernel
def offer_all(X, weights, sample, rate, seed):
    for t in range(len(X)):
        offer_row(X[t], weights[t], sample, rate, seed)


@kernel
def uniforms(seed, out):
    for i in range(len(out)):
        out[i] = uniform(seed, i)


def sampled(X, weights, room, rate=0.0, seed=0):
    none = np.zeros(1, np.int64)
    sample = Sample(
        np.zeros((room, X.shape[1])), np.zeros(room), np.zeros(room), none, np.full(1, -np.inf), none.copy()
    )
    offer_all(X, weights, sample, rate, seed)
    return sample


@pytest.mark.parametrize("rate", [0.0, 0.05])
@pytest.mark.parametrize("n", [25, 40, 300])
def test_the_rows_of_highest_priority_stay(rate, n):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(n, 2)), rng.choice([0.5, 1.0, 3.0], n)
    u = np.empty(n)
    uniforms(7, u)
    priorities = np.log(weights) + rate * np.arange(n) - np.log(u)
    order = np.argsort(-priorities)
    sample = sampled(X, weights, 20, rate, seed=7)
    assert sample.offered[0] == n
    np.testing.assert_allclose(np.sort(sample.keys), np.sort(priorities[order[:20]]), rtol=1e-12)
    assert sample.level[0] == pytest.approx(priorities[order[20]], rel=1e-12)
    np.testing.assert_array_equal(np.sort(sample.rows[:, 0]), np.sort(X[order[:20], 0]))


def test_sums_are_estimated_without_bias():
    """A kept row stands for the larger of its weight and the level; the mean over seeds is the sum of all."""
    rng = np.random.default_rng(1)
    X, weights = rng.normal(size=(60, 1)) + 2.0, rng.uniform(0.1, 5.0, 60)
    sums = []
    for seed in range(500):
        sample = sampled(X, weights, 10, seed=seed * 1_000_003)
        sums.append(np.maximum(np.exp(sample.log_weights), np.exp(sample.level[0])) @ sample.rows[:, 0])
    error = np.mean(sums) - weights @ X[:, 0]
    assert abs(error) < 4.0 * np.std(sums) / np.sqrt(len(sums))


def test_uniforms_are_uniform_and_normals_normal():
    u, normals = np.empty(20_000), np.empty(20_000)
    uniforms(3, u)
    normal_numbers(3, 5.0, normals)
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.03
    assert abs(normals.mean()) < 0.03
    assert abs(normals.var() - 1.0) < 0.05
