"""The mixture with covariance_type="low_rank": its whole face on one small model."""

import copy
import pickle

import numpy as np
import pytest
from scipy.stats import kstest

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError
from low_rank_toys import one, several

D = 60


def mixture(**parameters):
    return IncrementalGaussianMixture(**{"covariance_type": "low_rank", "reservoir": 500, **parameters})


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return 3.0 * rng.permutation(several(rng, 600, D, K=2)) + 7.0


@pytest.fixture(scope="module")
def model(rows):
    return mixture().fit(rows[:400])


def test_components_and_ranks(model, rows):
    assert model.n_components_ == 2
    assert ((model.ranks_ >= 3) & (model.ranks_ <= 4)).all()
    np.testing.assert_allclose(model.weights_.sum(), 1.0)
    np.testing.assert_allclose(model.weights_ @ model.means_, rows[:400].mean(axis=0), atol=1e-4)
    W, psi = model.loadings_, model.noise_variances_
    np.testing.assert_allclose(model.covariances_[1], W[1].T @ W[1] + np.diag(psi[1]))
    np.testing.assert_allclose(model.precisions_ @ model.covariances_, np.broadcast_to(np.eye(D), (2, D, D)), atol=1e-8)
    assert model.effective_samples_ == pytest.approx(400.0)
    assert model.keeps_rows_


def test_densities_are_those_of_the_components(model, rows):
    from scipy.stats import multivariate_normal

    joint = [
        np.log(w) + multivariate_normal(m, C).logpdf(rows[400:])
        for w, m, C in zip(model.weights_, model.means_, model.covariances_, strict=True)
    ]
    np.testing.assert_allclose(model.score_samples(rows[400:]), np.logaddexp(*joint), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(rows[400:]), np.argmax(joint, axis=0))
    assert model.bic(rows) < mixture(n_components=1).fit(rows[:400]).bic(rows)


def test_any_columns_from_any_others(model, rows):
    asked = rows[400:].copy()
    gone = np.random.default_rng(1).random(asked.shape) < 0.3
    asked[gone] = np.nan
    filled, std = model.impute(asked, return_std=True)
    error = (filled - rows[400:])[gone] / std[gone]
    assert np.abs(error).mean() == pytest.approx(np.sqrt(2.0 / np.pi), rel=0.1)
    condition = model.condition(rows[400:410], target=[0, 5])
    np.testing.assert_allclose(condition.mean(), model.predict_columns(rows[400:410], [0, 5]), rtol=1e-9)
    low, high = condition.interval(0.9)
    assert (low < high).all()
    assert model.sample_columns(rows[400:402], [0], n_samples=3).shape == (2, 3, 1)


def test_samples_come_back(model):
    X, labels = model.sample(300, random_state=0)
    assert X.shape == (300, D)
    assert (model.predict(X) == labels).mean() > 0.95


def test_p_values_are_about_uniform_and_small_for_strange_rows(model, rows):
    p = model.p_value(rows[400:])
    assert 0.0 < (p < 0.1).mean() < 0.25
    assert model.p_value(rows[400:401] + 30.0)[0] < 1e-6
    assert model.p_value(np.full((1, D), np.nan))[0] == 1.0
    gaps = rows[400:].copy()
    gaps[:, ::3] = np.nan
    assert kstest(model.p_value(gaps), "uniform").statistic < 0.35


def test_strange_rows_are_events():
    rng = np.random.default_rng(2)
    X = one(rng, 400, D)
    X[390] += 20.0
    model = mixture().fit(X)
    assert [event.row for event in model.events_ if event.kind == "novelty"] == [390]


def test_files_copies_and_pickles_go_on_alike(model, rows, tmp_path):
    model.save(tmp_path / "model")
    others = [everlearn.load(tmp_path / "model"), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    expected = copy.deepcopy(model).partial_fit(rows[400:450]).score_samples(rows[450:460])
    for other in others:
        np.testing.assert_array_equal(other.score_samples(rows[450:460]), model.score_samples(rows[450:460]))
        np.testing.assert_allclose(other.partial_fit(rows[400:450]).score_samples(rows[450:460]), expected, rtol=1e-9)


def test_merging_in_any_order(rows):
    a, b = mixture().fit(rows[:200]), mixture().fit(rows[200:400])
    both = a + b
    assert both.n_components_ == 2
    assert both.n_samples_seen_ == 400
    np.testing.assert_array_equal((b + a).score_samples(rows[400:]), both.score_samples(rows[400:]))
    assert both.score(rows[400:]) > max(a.score(rows[400:]), b.score(rows[400:]))
    assert a.merge(b, n_components=1).n_components_ == 1
    assert mixture().fit(rows[:20]).merge(a).n_samples_seen_ == 220


def test_forgetting_follows_a_change():
    rng = np.random.default_rng(3)
    X = np.concatenate([one(rng, 200, D), one(rng, 200, D) + 2.0])
    fading, keeping = mixture(forgetting=0.98).fit(X), mixture().fit(X)
    assert fading.effective_samples_ == pytest.approx(50.0, rel=0.1)
    assert fading.score(X[300:]) > fading.score(X[:100]) + 50.0
    assert keeping.score(X[:100]) > fading.score(X[:100])


def test_without_rows_none_are_kept(rows):
    model = mixture(reservoir=0).fit(np.concatenate([rows, rows]))
    assert not model.keeps_rows_
    assert model.score(rows) > mixture(n_components=1).fit(rows).score(rows)


def test_first_rows(rows):
    model = mixture().fit(rows[:1])
    assert np.isfinite(model.score_samples(rows)).all()
    model.partial_fit(rows[1:30])
    assert model.score(rows) > mixture().fit(rows[:1]).score(rows)


def test_constant_columns_and_far_values(rows):
    X = rows[:200].copy()
    X[:, 3] = 5.0
    X[150] = 1e200
    model = mixture().fit(X)
    assert np.isfinite(model.score_samples(rows[200:210])).all()
    assert (model.noise_variances_ > 0.0).all()


def test_errors_teach(model, rows):
    with pytest.raises(InputError, match="fixed factor"):
        mixture(forgetting="adaptive").fit(rows[:60])
    with pytest.raises(InputError, match="low_rank"):
        model.to_sklearn()
    with pytest.raises(AttributeError, match="covariances_"):
        _ = IncrementalGaussianMixture().fit(rows[:50, :3]).ranks_


def test_an_anonymised_copy_has_no_rows(model, rows):
    assert model.privacy().rows >= 400
    copied = model.anonymised(min_rows=50)
    assert copied.privacy(50).rows == 0
    assert copied.privacy(50).small == 0
    np.testing.assert_allclose(copied.score_samples(rows[400:]), model.score_samples(rows[400:]), atol=5.0)
    assert copied.partial_fit(rows[400:]).n_samples_seen_ == 600


def test_wide_rows_take_low_rank_components_by_default():
    rng = np.random.default_rng(4)
    wide = IncrementalGaussianMixture(n_components=1).fit(one(rng, 90, 256))
    assert wide.covariance_type_ == "low_rank"
    assert 2 <= wide.ranks_[0] <= 4
    assert IncrementalGaussianMixture().fit(rng.normal(size=(5, 255))).covariance_type_ == "full"
    assert IncrementalGaussianMixture(covariance_type="diag").fit(rng.normal(size=(5, 300))).covariance_type_ == "diag"
    assert IncrementalGaussianMixture(forgetting="adaptive").fit(np.ones((2, 256))).covariance_type_ == "full"


@pytest.mark.parametrize("seed", range(3))
def test_a_few_rows_again_and_again_have_no_noise_and_are_learned(seed):
    """Their matrices have next to no direction: eigenvalues were NaN, and the search failed."""
    rows = np.random.default_rng(seed).normal(size=(3, 300))
    model = IncrementalGaussianMixture().partial_fit(np.repeat(rows, 500, axis=0))
    assert model.n_components_ == 3
    assert np.isfinite(model.score_samples(rows)).all()
