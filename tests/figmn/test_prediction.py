"""Expectations of a few rows in compiled loops against conditional mixtures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.figmn import ask as asking
from everlearn.gaussian import conditional
from states import mixture, rows_from


@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 4), st.booleans())
def test_a_few_rows_are_answered_like_many(seed, D, K, gaps):
    rng = np.random.default_rng(seed)
    state = mixture(rng, D, K)
    X = rows_from(rng, state, 5, outliers=0.2)
    if gaps:
        X[rng.random(X.shape) < 0.3] = np.nan
    target = rng.permutation(D)[: rng.integers(1, D + 1)]
    expected = conditional.mean(asking.condition(state, X, target))
    np.testing.assert_allclose(asking.conditional_mean(state, X, target), expected, rtol=1e-8, atol=1e-10)


def test_a_precision_that_is_not_definite_is_repaired_on_the_way():
    rng = np.random.default_rng(0)
    state = mixture(rng, 3, 2)
    state.precisions[0, 1:, 1:] = 1.0  # singular
    X = np.array([[0.1, 0.2, 0.3]])
    answer = asking.conditional_mean(state, X, np.array([1, 2]))
    assert np.isfinite(answer).all()
    assert answer == pytest.approx(conditional.mean(asking.condition(state, X, np.array([1, 2]))))
