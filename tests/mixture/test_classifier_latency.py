"""A question after every row: the experts on classes without a new row, and factors, are not worked out again."""

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixtureClassifier
from everlearn.mixture import classifier as module
from everlearn.mixture.keep.reconsider import gathered, refreshed

pytestmark = pytest.mark.slow


@pytest.fixture
def asked():
    """A classifier of three classes that is asked after every row."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    model = IncrementalGaussianMixtureClassifier()
    for row, label in zip(np.split(X, 60), np.split(y, 60), strict=True):
        model.partial_fit(row, label).predict_proba(row)
    return model, X


def test_a_row_after_the_experts_were_weighed_concerns_its_class_only(asked, monkeypatch):
    model, X = asked
    model._answers_.weighed = None  # as after a quarter more rows
    model.predict_proba(X[:1])
    made = []
    experts = module.class_experts
    monkeypatch.setattr(module, "class_experts", lambda c, *rest: made.append(c) or experts(c, *rest))
    model.partial_fit(X[:1], [1]).predict_proba(X[:1])
    assert made == [1]


def test_statistics_without_factors_are_those_of_refreshed_components(asked):
    components = asked[0]._mixtures_[0]._look().model
    mass, counts, means, scatters = gathered(components.components)
    full, K = refreshed(components).components, len(mass)
    np.testing.assert_allclose(mass, full.mass[:K])
    np.testing.assert_allclose(counts, full.counts[:K])
    np.testing.assert_allclose(means, full.means[:K], atol=1e-12)
    np.testing.assert_allclose(np.tril(scatters), np.tril(full.scatter[:K]), atol=1e-9)
