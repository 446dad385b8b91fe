"""How a state of on-line variational Bayes starts."""

import numpy as np
import pytest

import naive
from everlearn.errors import InputError
from everlearn.ppca.learn import fit_rows
from everlearn.variational.state import init_paper, posterior_of_rows


def test_zero_loadings_are_refused_because_they_never_move():
    with pytest.raises(InputError, match="fixed point"):
        init_paper(np.zeros((3, 1)), 1.0)
    twin = naive.PaperVB(np.zeros((3, 1)), np.eye(1), 1e-3 * np.eye(1), 1.0)
    for x in np.random.default_rng(0).standard_normal((20, 3)):
        twin.learn(x)
    assert not twin.M.any()


def test_a_start_from_rows_has_their_noise():
    """Unbiased: the residual of N rows has (N - 1 - m)(n - m) degrees of freedom."""
    rng = np.random.default_rng(0)
    W = 4.0 * rng.standard_normal((6, 2))
    ratios = []
    for _ in range(200):
        X = rng.standard_normal((15, 2)) @ W.T + rng.standard_normal((15, 6))
        known = posterior_of_rows(fit_rows(X, 2), 15, np.full(6, 15.0))
        ratios.append(known.sigma2)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.05)
    assert known.a == 0.5 * (15 - 3) * (6 - 2)
