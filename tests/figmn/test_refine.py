"""A second look: EM on a sample of rows, with gaps or without."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.figmn import refine as second_look
from everlearn.figmn.learn import covariances_of, from_components

K, D = 3, 4


def components(rng, *, diagonal):
    A = rng.normal(size=(K, D, D))
    covariances = A @ A.transpose(0, 2, 1) + 0.5 * np.eye(D)
    return rng.uniform(5, 50, K), 3.0 * rng.normal(size=(K, D)), covariances * (np.eye(D) if diagonal else 1.0)


def rows_with_gaps(rng, n, rate):
    gaps = rng.random((n, D)) < rate
    gaps[gaps.all(axis=1), 0] = False
    return np.where(gaps, np.nan, 2.0 * rng.normal(size=(n, D)))


@given(seed=st.integers(0, 50), n=st.integers(1, 40), rate=st.sampled_from([0.0, 0.3, 0.7]), diagonal=st.booleans())
def test_equals_its_slow_twin(seed, n, rate, diagonal):
    rng = np.random.default_rng(seed)
    counts, means, covariances = components(rng, diagonal=diagonal)
    rows = rows_with_gaps(rng, n, rate)
    shapes = np.einsum("kii->ki", covariances) if diagonal else covariances
    state = from_components(counts, means, shapes, np.ones(K))
    refined = second_look.refined(state, rows)
    wanted = naive.second_look(rows, counts, means, covariances, diagonal=diagonal)
    found = covariances_of(refined)
    found = np.einsum("ki,ij->kij", found, np.eye(D)) if diagonal else found
    for ours, theirs in zip((refined.counts, refined.means, found), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
    assert refined.counts.sum() == pytest.approx(counts.sum())


def test_nothing_to_look_at_changes_nothing():
    state = from_components(*components(np.random.default_rng(0), diagonal=False), np.ones(K))
    assert second_look.refined(state, np.empty((0, D))) is state
