"""Merging mixtures as a user does it: the laws, the exact cases, fleets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError, MergeError
from everlearn.persistence.model_file import dumps

seeds = st.integers(0, 10**6)
settings_ = st.sampled_from(
    [
        {},
        {"scale": 1.0},
        {"covariance": "diag"},
        {"second_look": True, "warmup": 30},
        {"forgetting": 0.99, "warmup": 30},
        {"max_components": 6, "warmup": 30},
        {"merging": False, "warmup": 30},
    ]
)


def groups(rng, n, D=2):
    return rng.normal(size=(n, D)) + 6.0 * rng.integers(3, size=(n, 1))


def models_of(parts, **parameters):
    return [IncrementalGaussianMixture(**parameters).partial_fit(part) for part in parts]


def same(a, b, X, rtol=1e-10):
    np.testing.assert_allclose(a.score_samples(X), b.score_samples(X), rtol=rtol, atol=rtol)


# -- laws -------------------------------------------------------------------------------------------


@given(seed=seeds, parameters=settings_, sizes=st.lists(st.integers(1, 120), min_size=2, max_size=4))
def test_order_makes_no_difference_and_arguments_stay(seed, parameters, sizes):
    rng = np.random.default_rng(seed)
    X = groups(rng, sum(sizes))
    models = models_of(np.split(X, np.cumsum(sizes)[:-1]), **parameters)
    weights = rng.uniform(0.5, 2.0, len(models))
    before = [dumps(model) for model in models]
    order = rng.permutation(len(models))
    for given_weights in (None, weights):
        a = everlearn.merge(models, weights=given_weights)
        b = everlearn.merge([models[i] for i in order], weights=None if given_weights is None else weights[order])
        np.testing.assert_array_equal(a.score_samples(X), b.score_samples(X))
        assert a.n_samples_seen_ == sum(sizes)
    a.partial_fit(X)
    assert [dumps(model) for model in models] == before


@given(seed=seeds, parameters=settings_, n=st.integers(1, 300))
def test_a_fresh_model_is_the_identity(seed, parameters, n):
    X = groups(np.random.default_rng(seed), n)
    (model,), fresh = models_of([X], **parameters), IncrementalGaussianMixture(**parameters)
    for merged in (model + fresh, fresh + model, everlearn.merge([fresh, model, fresh])):
        np.testing.assert_array_equal(merged.score_samples(X), model.score_samples(X))
        assert dumps(merged) == dumps(model)


@given(seed=seeds, cuts=st.lists(st.integers(1, 199), min_size=1, max_size=5, unique=True), diagonal=st.booleans())
def test_parts_of_one_component_equal_the_whole(seed, cuts, diagonal):
    """Exact: beta=0 makes one component, whose creation prior is counted once; in any bracketing."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(3, [1.0, 4.0, 0.1], (200, 3)), rng.uniform(0.5, 2.0, 200)
    w[[0, *cuts]] = 1.0
    parameters = {"beta": 0.0, "scale": [1.0, 4.0, 0.1], "covariance": "diag" if diagonal else "full"}
    whole = IncrementalGaussianMixture(**parameters).partial_fit(X, sample_weight=w)
    parts = [
        IncrementalGaussianMixture(**parameters).partial_fit(rows, sample_weight=weights)
        for rows, weights in zip(np.split(X, sorted(cuts)), np.split(w, sorted(cuts)), strict=True)
    ]
    left, right = parts[0], parts[-1]
    for part in parts[1:]:
        left = left + part
    for part in parts[-2::-1]:
        right = part + right
    for merged in (everlearn.merge(parts), left, right):
        np.testing.assert_allclose(merged.means_, whole.means_, rtol=1e-10)
        np.testing.assert_allclose(merged.covariances_, whole.covariances_, rtol=1e-10, atol=1e-12)
        same(merged, whole, X)


@given(seed=seeds)
def test_bracketing_of_mixtures_makes_little_difference(seed):
    """Not exact where components are merged: the two densities differ by at most 0.1 nats a row."""
    rng = np.random.default_rng(seed)
    X = groups(rng, 900)
    a, b, c = models_of(np.split(X, 3), scale=3.0)
    left, right, rows = (a + b) + c, a + (b + c), groups(rng, 500)
    assert abs(np.mean(left.score_samples(rows) - right.score_samples(rows))) < 0.1


@given(seed=seeds, n=st.integers(2, 199))
def test_models_that_are_warming_up_merge_as_one_pass_over_their_rows(seed, n):
    rng = np.random.default_rng(seed)
    X = groups(rng, n)
    a, b = models_of(np.split(X, [n // 2]))
    one_way, other_way = models_of([X, np.concatenate([X[n // 2 :], X[: n // 2]])])
    merged = a + b
    expected = [one_way.score_samples(X), other_way.score_samples(X)]
    assert any(np.array_equal(merged.score_samples(X), scores) for scores in expected)
    merged.partial_fit(groups(rng, 300))
    assert merged.n_samples_seen_ == n + 300


@given(seed=seeds, few=st.integers(1, 60))
def test_a_settled_model_learns_the_rows_that_another_still_holds(seed, few):
    rng = np.random.default_rng(seed)
    X, extra = groups(rng, 300), groups(rng, few)
    settled, waiting = models_of([X, extra])
    merged, expected = settled + waiting, settled.copy().partial_fit(extra)
    same(merged, expected, X, rtol=0.05)
    assert merged.n_samples_seen_ == 300 + few


@given(seed=seeds, limit=st.integers(1, 8))
def test_merged_models_stay_within_their_components(seed, limit):
    rng = np.random.default_rng(seed)
    models = models_of([groups(rng, 80) for _ in range(3)], max_components=limit, scale=3.0)
    merged = everlearn.merge(models)
    assert merged.to_sklearn().n_components <= limit
    assert merged.effective_samples_ == pytest.approx(240)
    assert everlearn.merge(models, n_components=2).to_sklearn().n_components <= 2


def test_weights_say_how_much_each_counts():
    rng = np.random.default_rng(0)
    a, b = models_of([rng.normal(0, 1, (300, 1)), rng.normal(50, 1, (300, 1))], scale=1.0)
    merged = everlearn.merge([a, b], weights=[3.0, 1.0])
    assert merged.effective_samples_ == pytest.approx(600)
    assert merged.weights_[merged.means_[:, 0] < 25].sum() == pytest.approx(0.75)


def test_scales_of_parts_become_the_scale_of_the_whole():
    """Two models of groups that lie apart: new components of the merged model are as wide as after one pass."""
    rng = np.random.default_rng(0)
    A, B = rng.normal(0, 1, (300, 1)), rng.normal(100, 1, (300, 1))
    a, b = models_of([A, B])
    both = IncrementalGaussianMixture().fit(np.concatenate([A, B]))
    merged = a + b
    assert merged._constants_.frame.scale[0] == both._constants_.frame.scale[0]
    assert merged._constants_.frame.variance[0] == pytest.approx(both._constants_.frame.variance[0], rel=0.2)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (IncrementalGaussianMixture(beta=0.1), "beta=0.5 and beta=0.1"),
        (IncrementalGaussianMixture().fit(np.ones((5, 3))), "2 and 3 columns"),
        (everlearn.OnlinePPCA(1), "cannot be merged with"),
    ],
)
def test_other_models_are_refused(other, message):
    model = IncrementalGaussianMixture().fit(groups(np.random.default_rng(0), 50))
    with pytest.raises(MergeError, match=message):
        model + other


def test_other_refusals():
    a, b = models_of([groups(np.random.default_rng(k), 50) for k in (0, 1)])
    with pytest.raises(MergeError, match="method='mode' does not apply"):
        a.merge(b, method="mode")
    for n_components in (0, 1.5, "few"):
        with pytest.raises(InputError, match="n_components must be"):
            a.merge(b, n_components=n_components)
    for weights in (1.0, [1.0], [1.0, -1.0]):
        with pytest.raises(InputError, match="weights must be one positive number for each of the 2 models"):
            a.merge(b, weights=weights)
    with pytest.raises(InputError, match="models must be"):
        everlearn.merge(a)
    with pytest.raises(MergeError, match="spreads over about"):
        a.merge(IncrementalGaussianMixture().partial_fit(1e5 * groups(np.random.default_rng(2), 50)))


# -- fleets -----------------------------------------------------------------------------------------


def fleet(X, seed=0, **parameters):
    """Held-out score of one pass, and of sixteen shards merged to as many components."""
    rows = np.random.default_rng(seed).permutation(X)
    train, test = np.split(rows, [int(0.8 * len(rows))])
    single = IncrementalGaussianMixture(**parameters).partial_fit(train)
    shards = models_of(np.array_split(train, 16), **parameters)
    merged = everlearn.merge(shards, n_components=single.to_sklearn().n_components)
    assert merged.to_sklearn().n_components <= single.to_sklearn().n_components
    return single.score(test), merged.score(test)


def test_a_fleet_on_real_data_that_is_warming_up():
    """On so few rows their order matters by some percent: the mean of five shuffles."""
    single, merged = np.mean([fleet(load_breast_cancer().data, seed) for seed in range(5)], axis=0)
    assert merged > single - 0.01 * abs(single)


def test_a_fleet_on_the_wall_following_robot(shared_data):
    X = np.genfromtxt(shared_data / "streams" / "wall_robot" / "sensor_readings_24.csv", delimiter=",", skip_header=1)
    single, merged = fleet(X[:, :24], second_look=True)
    assert merged > single - 0.01 * abs(single)


def test_a_fleet_on_synthetic_data():
    rng = np.random.default_rng(0)
    centres, shapes = rng.normal(0, 4, (8, 5)), rng.normal(0, 0.5, (8, 5, 5))
    k = rng.integers(8, size=6400)
    X = centres[k] + np.einsum("nij,nj->ni", shapes[k], rng.normal(size=(6400, 5)))
    single, merged = fleet(X, second_look=True)
    assert merged > single - 0.01 * abs(single)
    _, alone = fleet(X)
    assert merged > alone
