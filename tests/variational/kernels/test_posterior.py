"""The score of a row under one model of variational PPCA."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

import naive


def test_the_predictive_density_integrates_to_one():
    """It is the exact predictive but for the loadings' uncertainty, which is taken at the row's own latent mean."""
    for N, slack in ((5.0, 0.05), (50.0, 0.01)):
        twin = naive.VariationalPPCA(np.array([[2.0, 0.5]]), N, 40.0, 40.0, (1e-3, 1e-3), 10)
        total = quad(lambda v, model: math.exp(model.score(np.array([v]), 1.0)), -60, 60, args=(twin,), limit=200)[0]
        assert total == pytest.approx(1.0, abs=slack)
