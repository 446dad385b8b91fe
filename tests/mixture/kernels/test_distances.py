"""Log joints of eight rows at a time, through the E-step that is made of them, against scipy's densities."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from everlearn.mixture.kernels.distances import MANY, NEGLIGIBLE, WIDE
from everlearn.mixture.kernels.em import Gaussians, expect
from everlearn.mixture.kernels.fitting import UNMARKED
from mixture_toys import rows_of


def case(n, D, K, *, apart=1.0):
    rng = np.random.default_rng([n, D, K])
    A = rng.normal(size=(K, D, D)) / np.sqrt(D)
    covariances, means, counts = (
        A @ A.transpose(0, 2, 1) + np.eye(D),
        apart * rng.normal(size=(K, D)),
        np.arange(1, K + 1.0),
    )
    label = rng.integers(K, size=n)
    Z = means[label] + rng.normal(size=(n, D))
    log_dets = np.linalg.slogdet(covariances)[1]
    heights = np.log(counts) - 0.5 * (D * np.log(2.0 * np.pi) + log_dets)
    factors = np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(covariances)))
    joints = [
        np.log(c) + multivariate_normal(m, S).logpdf(Z) for c, m, S in zip(counts, means, covariances, strict=True)
    ]
    return rows_of(Z), Gaussians(means, factors, heights, log_dets), np.reshape(joints, (K, n)).T, np.eye(K)[label]


def found(rows, gaussians, R):
    R, log_joints = R.copy(), np.empty(len(R))
    expect(rows, gaussians, R, log_joints, 0, len(R), UNMARKED)
    return R, log_joints


@pytest.mark.parametrize("n", [1, 7, 8, 19])
@pytest.mark.parametrize("D", [1, 3, 4, 5, 9])
def test_any_number_of_rows_and_columns(n, D):
    """Four columns and eight rows go together: what is left of either is not left out."""
    rows, gaussians, joints, R = case(n, D, 3)
    share, log_joints = found(rows, gaussians, R)
    np.testing.assert_allclose(log_joints, logsumexp(joints, axis=1), atol=1e-5)
    np.testing.assert_allclose(share, np.exp(joints - logsumexp(joints, axis=1, keepdims=True)), atol=1e-5)


@pytest.mark.parametrize("apart", [0.3, 3.0])
def test_components_that_are_left_after_some_columns_had_no_share(apart):
    rows, gaussians, joints, R = case(21, WIDE + 3, MANY + 2, apart=apart)
    wanted = np.exp(joints - logsumexp(joints, axis=1, keepdims=True))
    # The components of a row that come first may be the wrong ones: that costs time only.
    for start in (R, np.roll(R, 1, axis=1), np.full(R.shape, 0.1)):
        share, log_joints = found(rows, gaussians, start)
        np.testing.assert_allclose(share, wanted, atol=R.shape[1] * np.exp(-NEGLIGIBLE))
        np.testing.assert_allclose(log_joints, logsumexp(joints, axis=1), atol=R.shape[1] * np.exp(-NEGLIGIBLE))


def test_a_row_is_the_same_in_any_lane_to_the_last_bit():
    rows, gaussians, _, R = case(19, 5, 3)
    whole = found(rows, gaussians, R)
    for first in (3, 8, 18):
        some = found(rows._replace(Z=rows.Z[first:], background=rows.background[first:]), gaussians, R[first:])
        np.testing.assert_array_equal(some[0], whole[0][first:])
        np.testing.assert_array_equal(some[1], whole[1][first:])
