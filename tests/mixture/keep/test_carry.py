"""From a fit to the sampled rows back to components that stand for all rows."""

import numpy as np
import pytest

from everlearn.mixture.keep import carry
from everlearn.mixture.keep.carry import Stock
from everlearn.mixture.keep.evidence import Fit
from everlearn.mixture.kernels.em import moments_of
from mixture_toys import components, groups, rows_of, settings_for, shape_of

D, K = 2, 3


@pytest.fixture
def stream():
    """Rows of three groups, of which every tenth is in the sample."""
    X, label = groups(np.random.default_rng(0), 3000, D, K)
    return X, label, X[::10], label[::10]


def stock(X, label, count=1.0):
    parts = [X[label == k] for k in np.unique(label)]
    n = np.array([float(len(part)) for part in parts])
    scatter = np.array([np.cov(part.T, ddof=0) * len(part) for part in parts])
    return Stock(n, n * count, np.array([part.mean(axis=0) for part in parts]), scatter * count)


def fit_of(Z, R):
    rows = rows_of(Z)
    return Fit(np.ascontiguousarray(R), moments_of(rows, R), shape_of(D), np.zeros(len(Z)), 0.0, 0.0)


def test_parts_together_have_the_moments_of_all_rows(stream):
    X, label, _, _ = stream
    total = carry.sum_of(stock(X, label))
    assert total.mass[0] == total.counts[0] == 3000.0
    np.testing.assert_allclose(total.means[0], X.mean(axis=0))
    np.testing.assert_allclose(total.scatter[0], np.cov(X.T, ddof=0) * 3000.0, rtol=1e-9)


def test_what_the_sample_does_not_contradict_stays(stream):
    """Every old component went to one new one: the moments of all rows, not those of a tenth of them."""
    X, label, Z, sampled = stream
    R = np.eye(K)[sampled]
    fit, old = fit_of(Z, R), stock(X, label)
    found = carry.carry(carry.stock_of_sample(fit, 10.0), old, Z, np.ones(len(Z)), R, fit)
    for values, wanted in zip(found, old, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-9)


def test_two_old_components_that_became_one_are_added_up(stream):
    X, label, Z, sampled = stream
    start = np.eye(K)[sampled]
    fit = fit_of(Z, np.column_stack([start[:, :2].sum(axis=1), start[:, 2]]))
    found = carry.carry(carry.stock_of_sample(fit, 10.0), stock(X, label), Z, np.ones(len(Z)), start, fit)
    wanted = stock(X, np.where(label < 2, 0, 1))
    for values, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-9)


def test_other_rows_are_worth_what_their_gaussian_knows_more():
    """Nats that n rows lose by a Gaussian of n rows, less those by one of ten times as many."""
    rng, n, N, worth = np.random.default_rng(1), 200.0, 2000, carry.worth_of_other_rows
    old = components(rng.normal(size=(N, D)), np.ones((N, 1)), shape_of(D), room=4)
    lost = []
    for _ in range(1000):
        X = rng.normal(size=(N, D))
        lost.append(n * (divergence(X[: int(n)]) - divergence(X)))
    assert worth(np.array([n]), old, settings_for(D)) == pytest.approx(np.mean(lost), rel=0.1)
    assert worth(np.array([n]), old, settings_for(D)) == pytest.approx(0.9 * 5 / 2)
    assert worth(np.array([N + 1.0]), old, settings_for(D)) == 0.0


def divergence(X):
    """Nats a row that a Gaussian with the moments of X loses on rows of the standard Gaussian."""
    mean, covariance = X.mean(axis=0), np.cov(X.T, ddof=0)
    precision = np.linalg.inv(covariance)
    return 0.5 * (np.trace(precision) + mean @ precision @ mean - len(mean) + np.linalg.slogdet(covariance)[1])


def test_what_the_sample_contradicts_is_estimated_from_it(stream):
    """The rows have moved since: the sample's moments stand, with its count."""
    X, label, Z, sampled = stream
    R = np.eye(K)[sampled]
    fit = fit_of(Z + 1.0, R)
    found = carry.carry(carry.stock_of_sample(fit, 10.0), stock(X, label), Z + 1.0, np.ones(len(Z)), R, fit)
    np.testing.assert_allclose(found.means, fit.moments.means)
    np.testing.assert_allclose(found.counts, fit.moments.counts)
    np.testing.assert_allclose(found.mass, 10.0 * fit.moments.counts)


def test_unmoved_is_who_kept_the_sampled_rows(stream):
    _, _, Z, sampled = stream
    R = np.eye(K)[sampled]
    assert carry.is_unmoved(R, fit_of(Z, R[:, [2, 0, 1]]))  # numbers do not matter
    assert not carry.is_unmoved(R, fit_of(Z, R[:, :2]))
    moved = R.copy()
    moved[:60] = R[:60, [1, 2, 0]]  # a fifth of the rows
    assert not carry.is_unmoved(R, fit_of(Z, moved))
    assert not carry.is_unmoved(R[:, [0, 1, 1]] / [1.0, 2.0, 2.0], fit_of(Z, R))


def test_a_component_without_rows_gets_a_trace_in_the_middle():
    counts, means = np.array([8.0, 0.0, 4.0]), np.array([[1.0, 1.0], [99.0, 99.0], [3.0, 5.0]])
    given = Stock(counts, counts.copy(), means, np.array([np.eye(2)] * 3))
    c = carry.components_of(given, 12.0, shape_of(2), 5)
    np.testing.assert_allclose(c.means[:3], [[1.0, 1.0], [2.0, 3.0], [3.0, 5.0]])
    assert 0.0 < c.mass[1] < 1e-4
    assert np.isfinite(c.heights[:3]).all()


def test_there_and_back_and_room(stream):
    X, label, _, _ = stream
    c = components(X, np.eye(K)[label], shape_of(D), room=7)
    back = carry.stock_of_components(c)
    for values, wanted in zip(back, stock(X, label), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-9)
    smaller = carry.with_room(c, K)
    assert len(smaller.mass) == K
    np.testing.assert_array_equal(smaller.factors, c.factors[:K])
    own = carry.copied(c)
    own.means[:] = 0.0
    assert c.means.any()


@pytest.mark.parametrize(
    ("known", "fixed", "most", "room"), [(4, 0, 50, 16), (4, 4, 50, 4), (45, 0, 50, 50), (9, 0, 5, 9)]
)
def test_room_for_components_that_are_created(known, fixed, most, room):
    assert carry.room_for(known, settings_for(D, fixed=fixed, most=most)) == room
