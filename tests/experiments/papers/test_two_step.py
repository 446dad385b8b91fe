"""Two rank-one updates and the single one, against the covariance of eq. 11."""

import numpy as np
import pytest
from scipy.linalg import eigh

from everlearn.experiments.papers.figmn.two_step import (
    Kept,
    covariance_step,
    draw,
    one_step,
    printed_step,
    two_steps,
)


@pytest.fixture
def update():
    return draw(5, np.random.default_rng(0))


def test_two_steps_are_equation_11(update):
    Sigma, e, w = update
    error, moved = (1 - w) * e, w * e
    eq_11 = (1 - w) * Sigma + w * np.outer(error, error) - np.outer(moved, moved)
    between, after = covariance_step(Sigma, e, w)
    assert np.allclose(after, eq_11)
    # Eq. 17 adds a square to what is definite already, so that it cannot be singular.
    assert eigh(between, (1 - w) * Sigma, eigvals_only=True).min() > 1 - 1e-12


@pytest.mark.parametrize("step", [two_steps, one_step])
def test_precision_and_determinant_are_those_of_the_covariance(update, step):
    Sigma, e, w = update
    after = covariance_step(Sigma, e, w)[1]
    kept = step(Kept(np.linalg.inv(Sigma), np.linalg.slogdet(Sigma)[1]), e, w)
    assert np.allclose(kept.precision @ after, np.eye(5))
    assert kept.log_det == pytest.approx(np.linalg.slogdet(after)[1])


def test_equation_24_inverts_at_a_single_distance(update):
    Sigma, e, _ = update
    w, Lambda = 0.1, np.linalg.inv(Sigma)
    d2 = (1 - w) * (2 - w) / (1 - 3 * w + w * w)
    for factor in (1.0, 2.0):
        scaled = e * np.sqrt(factor * d2 / (e @ Lambda @ e))
        right = np.linalg.inv(covariance_step(Sigma, scaled, w)[1])
        off = np.abs(printed_step(Kept(Lambda, 0.0), scaled, w) - right).max() / np.abs(right).max()
        assert (off < 1e-10) == (factor == 1.0)
