"""The first rows with gaps, filled by a factor analyser."""

import numpy as np
import pytest

from everlearn.low_rank.warmup import fill_first_rows
from low_rank_toys import one
from naive import low_rank as naive


@pytest.fixture
def rows():
    """Rows of three directions, with three in ten cells missing, and the whole."""
    rng = np.random.default_rng(0)
    X = one(rng, 300, 20, noise=0.2) + np.linspace(-3, 3, 20)
    return np.where(rng.random(X.shape) < 0.3, np.nan, X), X


def test_gaps_are_filled_nearly_as_well_as_by_the_truth(rows):
    Z, X = rows
    filled = fill_first_rows(Z, np.ones(300), 4)
    gaps = np.isnan(Z)
    np.testing.assert_array_equal(filled[~gaps], X[~gaps])
    best = np.concatenate(
        [naive.conditional(z, X.mean(axis=0), np.cov(X.T))[0] - x[np.isnan(z)] for z, x in zip(Z, X, strict=True)]
    )
    mean = np.nanmean(Z, axis=0) - X
    error = ((filled - X)[gaps] ** 2).mean()
    assert error < 1.5 * (best**2).mean()
    assert error < 0.3 * (mean[gaps] ** 2).mean()


def test_rows_without_gaps_stay_as_they_are(rows):
    assert fill_first_rows(rows[1], np.ones(300), 4) is rows[1]


def test_a_column_that_nobody_has_seen_is_filled_by_zeros(rows):
    Z = rows[0].copy()
    Z[:, 4] = np.nan
    filled = fill_first_rows(Z, np.ones(300), 4)
    assert np.isfinite(filled).all()
    np.testing.assert_allclose(filled[:, 4], 0.0, atol=1e-6)


def test_a_row_of_weight_two_is_two_rows(rows):
    Z, weights = rows[0][:80], np.where(np.arange(80) < 20, 2.0, 1.0)
    twice = np.concatenate([Z, Z[:20]])
    found = fill_first_rows(Z, weights, 3)
    np.testing.assert_allclose(found, fill_first_rows(twice, np.ones(100), 3)[:80], atol=0.05)
