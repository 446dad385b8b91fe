"""The score of a density is the mean of its log-densities."""

import numpy as np
from sklearn.model_selection import cross_val_score

from everlearn import IncrementalGaussianMixture
from everlearn.base.density import Density


class Twice(Density):
    def score_samples(self, X):
        return 2.0 * np.asarray(X)[:, 0]


def test_the_score_is_a_mean_and_a_plain_number():
    assert Twice().score([[1.0], [2.0], [6.0]]) == 6.0
    assert type(Twice().score([[1.0]], y=[5])) is float


def test_models_are_scored_so_by_scikit_learn():
    X = np.random.default_rng(0).normal(size=(300, 2))
    found = cross_val_score(IncrementalGaussianMixture(), X, cv=3)
    expected = IncrementalGaussianMixture().fit(X[100:]).score_samples(X[:100]).mean()
    np.testing.assert_allclose(found[0], expected, rtol=1e-9)
