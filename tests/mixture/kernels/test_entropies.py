"""Entropies of responsibilities, against scipy's."""

import numpy as np
from scipy.special import entr

from everlearn.mixture.kernels.entropies import entropies, joint_entropies
from mixture_toys import rows_of


def case():
    rng = np.random.default_rng(0)
    R = rng.dirichlet(np.full(4, 0.3), size=50)
    R[:5] = np.eye(4)[0]  # certain rows: 0 log 0 is nothing
    R[5:9] = [0.0, 0.25, 0.25, 0.5]
    weights = rng.uniform(0.5, 2.0, 50)
    return rows_of(rng.normal(size=(50, 2)), weights), R, weights


def test_entropy_of_each_component():
    rows, R, weights = case()
    np.testing.assert_allclose(entropies(rows, R), weights @ entr(R), rtol=1e-12)


def test_entropy_of_each_pair_as_one_component():
    rows, R, weights = case()
    pairs = np.argwhere(np.triu(np.ones((4, 4)), 1))
    some = pairs[np.array([True, False, True, True, False, True])]
    wanted = [weights @ entr(R[:, i] + R[:, j]) for i, j in some]
    np.testing.assert_allclose(joint_entropies(rows, R, some), wanted, rtol=1e-12)


def test_labels_have_no_entropy_and_a_coin_has_log_two():
    rows = rows_of(np.arange(16.0).reshape(8, 2))
    assert entropies(rows, np.eye(2)[np.arange(8) % 2]).tolist() == [0.0, 0.0]
    np.testing.assert_allclose(entropies(rows, np.full((8, 2), 0.5)).sum(), 8.0 * np.log(2.0))
