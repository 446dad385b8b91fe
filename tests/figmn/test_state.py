"""The state of the FIGMN mixture: thresholds, components in and out, room for more."""

import numpy as np
import pytest
from scipy.stats import chi2

from everlearn.figmn import state as states
from states import mixture


def test_thresholds_are_quantiles_of_chi_square():
    found = states.novelty_thresholds(0.05, 6)
    np.testing.assert_allclose(found[1:], chi2(np.arange(1, 7)).isf(0.05), rtol=1e-9)
    assert np.isinf(states.novelty_thresholds(0.0, 3)).all()


@pytest.mark.parametrize("diagonal", [False, True])
def test_components_come_back_as_they_were_given(diagonal):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 4, 4))
    covariances = rng.uniform(0.5, 2.0, (3, 4)) if diagonal else A @ A.transpose(0, 2, 1) + np.eye(4)
    counts, means, ages = np.array([1.0, 3.0, 4.0]), rng.normal(size=(3, 4)), np.arange(3.0)
    state = states.from_components(counts, means, covariances, ages, capacity=7)
    assert states.is_diagonal(state) == diagonal
    assert (len(state.counts), state.n_components, state.n_rows) == (7, 3, 0)
    found = states.mixture_of(state)
    np.testing.assert_allclose(found.weights, counts / 8.0)
    np.testing.assert_array_equal(found.means, means)
    np.testing.assert_allclose(found.covariances, covariances, rtol=1e-9, atol=1e-12)
    dense = np.array([np.diag(S) for S in covariances]) if diagonal else covariances
    np.testing.assert_allclose(state.log_dets[:3], np.linalg.slogdet(dense)[1])
    np.testing.assert_allclose(state.precisions[:3], 1.0 / covariances if diagonal else np.linalg.inv(covariances))


def test_covariances_are_symmetric_and_definite_where_a_plain_inverse_is_not():
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    precision = (Q * 10.0 ** np.array([-6, -3, 0, 3, 6])) @ Q.T
    state = states.from_components(np.ones(1), np.zeros((1, 5)), np.eye(5)[None], np.ones(1))
    state.precisions[0] = 0.5 * (precision + precision.T)
    (covariance,) = states.covariances_of(state)
    np.testing.assert_array_equal(covariance, covariance.T)
    np.linalg.cholesky(covariance)


def test_room_and_copies_are_arrays_of_their_own():
    state = mixture(np.random.default_rng(2), 3, 2, room=1)
    for other in (states.with_capacity(state, 9), states.copied(state)):
        for array, old in zip(other[:5], state[:5], strict=True):
            np.testing.assert_array_equal(array[:2], old[:2])
            assert not np.shares_memory(array, old)
            assert not array[2:].any()
    assert len(states.with_capacity(state, 9).counts) == 9
    assert len(states.copied(state).counts) == 3


def test_an_empty_mixture_and_parts_of_rows():
    assert states.empty(3, 2).precisions.shape == (2, 3, 3)
    assert states.empty(3, 2, diagonal=True).precisions.shape == (2, 3)
    rows = states.Rows(np.arange(10.0).reshape(5, 2), np.arange(5.0), np.zeros(5), np.zeros(5))
    part = rows.part(1, 3)
    part.distance[:] = 7.0
    assert part.X.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert rows.distance.tolist() == [0.0, 7.0, 7.0, 0.0, 0.0]  # what is written of a part is written of the whole
