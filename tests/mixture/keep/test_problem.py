"""The rows of a search: copies are one row, and the order of the stream does not matter."""

import numpy as np
import pytest

from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.keep.problem import distinct_rows


def test_copies_are_one_row_of_their_weight():
    Z = np.array([[3.0, np.nan], [1.0, 2.0], [3.0, np.nan], [0.5, 7.0]])
    rows, weights, copies = distinct_rows(Z, np.array([1.0, 1.0, 2.0, 1.0]))
    np.testing.assert_array_equal(rows, [[1.0, 2.0], [3.0, np.nan], [0.5, 7.0]])  # by their sums
    np.testing.assert_allclose(weights * copies, [1.0, 3.0, 1.0])
    np.testing.assert_allclose(weights.sum(), 5.0**2 / 11.0)  # Kish's effective number of rows


@pytest.mark.parametrize("D", [1, 3])
def test_equal_rows_of_a_lattice_stay(D):
    Z = np.random.default_rng(0).integers(3, size=(200, D)).astype(float)
    rows, weights, copies = distinct_rows(Z, np.ones(200))
    assert (len(rows), copies) == (200, 1.0)
    np.testing.assert_array_equal(weights, 1.0)


def test_states_that_come_again_and_again_stay():
    Z = np.tile(np.arange(9.0)[:, None] * [1.0, 2.0], (30, 1))
    rows, _, copies = distinct_rows(Z, np.ones(270))
    assert (len(rows), copies) == (270, 1.0)


def test_light_rows_are_not_made_heavier():
    _, weights, copies = distinct_rows(np.arange(6.0).reshape(3, 2), np.full(3, 0.5))
    assert copies == 1.0
    np.testing.assert_array_equal(weights, 0.5)


@pytest.mark.parametrize("times", [2, 5])
def test_a_stream_sent_twice_has_no_more_groups(times):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3)) + 7.0 * rng.integers(3, size=(400, 1))
    once = IncrementalGaussianMixture().fit(X)
    again = IncrementalGaussianMixture().fit(rng.permutation(np.repeat(X, times, axis=0)))
    weighted = IncrementalGaussianMixture().fit(X, sample_weight=np.full(400, float(times)))
    assert once.n_components_ == again.n_components_ == weighted.n_components_ == 3
    np.testing.assert_allclose(again.score_samples(X), weighted.score_samples(X), atol=1e-5)
