"""Fewer components, modes, ridgelines and clusters of a mixture, whatever holds it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError
from everlearn.gaussian.mixture import Mixture, log_density, moments


@pytest.fixture(scope="module")
def three_groups():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    return centres[rng.integers(3, size=1500)] + rng.normal(size=(1500, 2))


@pytest.fixture(scope="module")
def holders(three_groups):
    """The same three hills, held in each way that is accepted."""
    batch = GaussianMixture(3, random_state=0).fit(three_groups)
    return {
        "incremental": IncrementalGaussianMixture.from_sklearn(batch, n_samples=1500),
        "scikit-learn": batch,
        "value": Mixture(batch.weights_, batch.means_, batch.covariances_),
    }


def random_mixture(rng, K, D, spread=2.0):
    A = rng.normal(size=(K, D, D + 1))
    return Mixture(rng.dirichlet(np.ones(K)), rng.normal(0, spread, (K, D)), A @ A.transpose(0, 2, 1))


HOLDERS = ["incremental", "scikit-learn", "value"]


@pytest.mark.parametrize("kind", HOLDERS)
def test_all_holders_have_the_same_shape(holders, kind):
    mixture = holders[kind]
    found = everlearn.modes(mixture)
    centres = holders["value"].means
    nearest = np.linalg.norm(found.points[:, None] - centres, axis=2).min(axis=1)
    assert len(found.points) == 3
    assert nearest.max() < 0.2
    np.testing.assert_allclose(found.log_density, log_density(found.points, holders["value"]), rtol=1e-6)
    assert everlearn.merge_unimodal(mixture).tolist() == [0, 1, 2]
    assert everlearn.merge_unimodal(mixture, threshold=0.0).tolist() == [0, 0, 0]
    curve = everlearn.ridgeline(mixture, (0, 2), n_points=50)
    expected = everlearn.ridgeline(holders["value"], (0, 2), n_points=50)
    for ours, theirs in zip(curve, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", HOLDERS)
def test_reduce_gives_the_kind_it_was_given(holders, kind, three_groups):
    mixture = holders[kind]
    fewer = everlearn.reduce(mixture, 2)
    assert type(fewer) is type(mixture)
    value = fewer if kind == "value" else Mixture(fewer.weights_, fewer.means_, fewer.covariances_)
    assert len(value.weights) == 2
    np.testing.assert_allclose(value.weights.sum(), 1.0)
    # An incremental mixture is refined on rows that were drawn from it: three standard errors.
    atol = 3 * three_groups.std() / np.sqrt(1500) if kind == "incremental" else 0.02
    np.testing.assert_allclose(moments(value).mean, moments(holders["value"]).mean, atol=atol)
    assert everlearn.reduce(mixture, 7) is not None
    if kind != "value":
        assert fewer.score(three_groups) > mixture.score(three_groups) - 1.0


def test_a_reduced_model_goes_on_learning_and_its_source_does_not_change(three_groups):
    model = IncrementalGaussianMixture(6).fit(three_groups[:1000])
    before = model.score_samples(three_groups)
    fewer = everlearn.reduce(model, 2)
    assert fewer.n_components_ == 2
    assert fewer.n_samples_seen_ == 1000
    assert fewer.partial_fit(three_groups[1000:]).n_samples_seen_ == 1500
    np.testing.assert_array_equal(model.score_samples(three_groups), before)


def test_a_model_that_is_warming_up_can_be_reduced(three_groups):
    model = IncrementalGaussianMixture().partial_fit(three_groups[:60])
    assert everlearn.reduce(model, 2).n_components_ == 2
    whole = everlearn.reduce(model, 1000)
    np.testing.assert_allclose(whole.score_samples(three_groups), model.score_samples(three_groups), rtol=1e-12)


def test_reducing_to_one_component_counts_the_prior_once():
    """All fine components of a stream as one: the batch mean and (prior + scatter)/n, to rounding."""
    X = np.random.default_rng(1).normal(3, 2, (500, 3))
    model = everlearn.FIGMN(scale=[2.0, 2.0, 2.0], delta=1.0, beta=0.1).fit(X)
    assert model.n_components_ > 5
    one = everlearn.reduce(model, 1)
    np.testing.assert_allclose(one.means_[0], X.mean(axis=0), rtol=1e-10)
    expected = np.cov(X.T, bias=True) + 4.0 * np.eye(3) / 500
    np.testing.assert_allclose(one.covariances_[0], expected, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 10**6), power=st.integers(-300, 300))
def test_units_of_a_column_do_not_matter(seed, power):
    rng = np.random.default_rng(seed)
    f = random_mixture(rng, 3, 2)
    unit = np.array([1.0, 2.0**power])
    g = Mixture(f.weights, f.means * unit, f.covariances * unit * unit[:, None])
    a, b = everlearn.modes(f), everlearn.modes(g)
    np.testing.assert_allclose(a.points * unit, b.points, rtol=1e-9, atol=0)
    np.testing.assert_allclose(a.log_density - power * np.log(2.0), b.log_density, rtol=1e-9)
    np.testing.assert_array_equal(everlearn.merge_unimodal(f, 0.7), everlearn.merge_unimodal(g, 0.7))
    curve, other = everlearn.ridgeline(f, (1, 2)), everlearn.ridgeline(g, (1, 2))
    np.testing.assert_allclose(curve.points * unit, other.points, rtol=1e-9)
    assert curve.ratio == pytest.approx(other.ratio, rel=1e-9)


@given(seed=st.integers(0, 10**6))
def test_a_ridgeline_joins_the_means_and_its_ratio_is_that_of_its_elevation(seed):
    f = random_mixture(np.random.default_rng(seed), 2, 3, spread=3.0)
    curve = everlearn.ridgeline(f, n_points=2001)
    np.testing.assert_allclose(curve.points[[0, -1]], f.means, rtol=1e-8, atol=1e-8)
    height = np.concatenate([[-np.inf], curve.log_density, [-np.inf]])
    rises = np.diff(height) > 0
    peaks, saddles = height[1:-1][rises[:-1] & ~rises[1:]], height[1:-1][~rises[:-1] & rises[1:]]
    if len(saddles):
        assert curve.ratio == pytest.approx(np.exp(saddles.min() - np.sort(peaks)[-2]), rel=1e-2)
    else:
        assert curve.ratio > 0.99


def test_diagonal_mixtures_are_taken(three_groups):
    batch = GaussianMixture(3, covariance_type="diag", random_state=0).fit(three_groups)
    model = IncrementalGaussianMixture.from_sklearn(batch, n_samples=1500)
    assert len(everlearn.modes(model).points) == len(everlearn.modes(batch).points) == 3
    assert everlearn.reduce(batch, 2).covariances_.shape == (2, 2)


def test_clusters_of_rows(three_groups):
    """Several components a hill, three hills: the clusters of rows are the groups."""
    model = GaussianMixture(9, random_state=3).fit(three_groups)
    clusters = everlearn.merge_unimodal(model, threshold=0.3)[model.predict(three_groups)]
    corner = (three_groups[:, 0] > 4.5) + 2 * (three_groups[:, 1] > 4.5)
    agreement = sum(np.bincount(clusters[corner == c]).max() for c in np.unique(corner)) / len(corner)
    assert len(np.unique(clusters)) == 3
    assert agreement > 0.99


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: everlearn.reduce(f, 0), "n_components must be"),
        (lambda f: everlearn.reduce(f, 2.5), "n_components must be"),
        (lambda f: everlearn.reduce("model", 2), "A mixture is needed"),
        (lambda f: everlearn.modes([1.0]), "A mixture is needed"),
        (lambda f: everlearn.ridgeline(f, (0, 0)), "two different numbers"),
        (lambda f: everlearn.ridgeline(f, (0, 3)), "from 0 to 2"),
        (lambda f: everlearn.ridgeline(f, n_points=1), "n_points must be"),
        (lambda f: everlearn.merge_unimodal(f, 1.5), "threshold must be"),
    ],
)
def test_refusals_teach(call, message):
    with pytest.raises(InputError, match=message):
        call(random_mixture(np.random.default_rng(0), 3, 2))


def test_models_that_have_learned_nothing_are_refused():
    with pytest.raises(NotFittedError):
        everlearn.reduce(IncrementalGaussianMixture(), 2)
    with pytest.raises(NotFittedError):
        everlearn.modes(GaussianMixture(2))
    with pytest.raises(InputError, match="n_components must be"):
        everlearn.reduce(IncrementalGaussianMixture().fit([[0.0], [1.0]]), "two")
