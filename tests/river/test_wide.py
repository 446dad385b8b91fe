"""River's learners on hundreds of columns: low-rank components, dict by dict, as the models behind them learn rows."""

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture, IncrementalGaussianMixtureClassifier
from low_rank_toys import several

pytest.importorskip("river")

from everlearn.river import Classifier, Density, Imputer

D, N = 260, 110
NAMES = [f"c{i:03}" for i in range(D)]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.permutation(several(rng, N, D, K=2))


def dicts(X):
    return [dict(zip(NAMES, x.tolist(), strict=True)) for x in X]


def test_a_density_is_that_of_the_low_rank_mixture(rows):
    learner = Density()
    for x in dicts(rows[:100]):
        learner.learn_one(x)
    model = IncrementalGaussianMixture().fit(rows[:100])
    assert learner.model.covariance_type_ == model.covariance_type_ == "low_rank"
    found = [learner.score_one(x) for x in dicts(rows[100:])]
    np.testing.assert_allclose(found, model.score_samples(rows[100:]), rtol=1e-6)


def test_gaps_are_filled_from_the_other_columns(rows):
    learner = Imputer()
    for x in dicts(rows[:100]):
        learner.learn_one(x)
    asked = rows[100:].copy()
    asked[:, :20] = np.nan
    filled = [learner.transform_one(x) for x in dicts(asked)]
    found = np.array([[x[name] for name in NAMES] for x in filled])
    np.testing.assert_array_equal(found[:, 20:], rows[100:, 20:])
    off = found[:, :20] - rows[100:, :20]
    assert (off**2).mean() < ((rows[100:, :20] - rows[:100, :20].mean(axis=0)) ** 2).mean()


def test_classes_of_many_columns_are_told_apart():
    rng = np.random.default_rng(1)
    X = several(rng, 120, D, K=2) + np.repeat([[0.0], [0.6]], 60, axis=0)
    y, order = np.repeat([0, 1], 60), rng.permutation(120)
    learner = Classifier(IncrementalGaussianMixtureClassifier())
    for i in order[:100]:
        learner.learn_one(dicts(X[i : i + 1])[0], int(y[i]))
    right = [learner.predict_one(dicts(X[i : i + 1])[0]) == y[i] for i in order[100:]]
    assert np.mean(right) > 0.9
