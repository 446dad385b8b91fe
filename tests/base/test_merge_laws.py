"""The laws of merging, for every estimator: order, bracketing, the empty model, untouched arguments, refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everlearn
from everlearn import (
    FIGMNClassifier,
    IncrementalGaussianMixture,
    IncrementalGaussianMixtureClassifier,
    IncrementalGaussianMixtureRegressor,
    OnlinePPCA,
    VariationalPPCA,
)
from everlearn.errors import InputError, MergeError
from everlearn.persistence.model_file import dumps
from examples import examples

seeds = st.integers(0, 10**6)
sizes = st.lists(st.integers(1, 150), min_size=2, max_size=4)

MODELS = {
    "mixture": lambda: IncrementalGaussianMixture(),
    "mixture, one component": lambda: IncrementalGaussianMixture(1, scale=1.0),
    "classifier": lambda: IncrementalGaussianMixtureClassifier(),
    "FIGMN classifier": lambda: FIGMNClassifier(),
    "regressor": lambda: IncrementalGaussianMixtureRegressor(),
    "PPCA": lambda: OnlinePPCA(2),
    "variational PPCA": lambda: VariationalPPCA(2),
    "variational PPCA that forgets nothing": lambda: VariationalPPCA(2, forgetting=None),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
# Those made of several mixtures: three seconds each where every part has hundreds of rows.
SEVERAL_MIXTURES = ("classifier", "regressor")


def stream(rng, n):
    """Rows of three groups in four columns, and the group of each."""
    group = rng.integers(3, size=n)
    mixing = np.array([[1.0, 0.5, 0.0, 0.2], [0.0, 1.0, 0.5, -0.3], [0.3, 0.0, 0.2, 0.5], [0.0, 0.0, 0.1, 0.4]])
    return rng.normal(size=(n, 4)) @ mixing + 4.0 * group[:, None], group


def learned(make, X, y):
    return make().partial_fit(X, y)


def parts_of(make, rng, sizes):
    X, y = stream(rng, sum(sizes))
    cuts = np.cumsum(sizes)[:-1]
    return [learned(make, *part) for part in zip(np.split(X, cuts), np.split(y, cuts), strict=True)], X


def answers(model, X):
    """What the model says about rows."""
    if isinstance(model, IncrementalGaussianMixtureClassifier | FIGMNClassifier):
        return model.predict_proba(X)
    return model.predict(X) if isinstance(model, IncrementalGaussianMixtureRegressor) else model.score_samples(X)


@every_model
@given(seed=seeds, sizes=sizes, weighted=st.booleans())
@examples(4)
def test_order_makes_no_difference_and_arguments_stay(make, seed, sizes, weighted):
    rng = np.random.default_rng(seed)
    models, X = parts_of(make, rng, sizes)
    before = [dumps(model) for model in models]
    order = rng.permutation(len(models))
    weights = rng.uniform(0.5, 2.0, len(models)) if weighted else None
    one = everlearn.merge(models, weights=weights)
    other = everlearn.merge([models[i] for i in order], weights=weights[order] if weighted else None)
    np.testing.assert_allclose(answers(one, X), answers(other, X), rtol=1e-6, atol=1e-6)
    assert one.n_samples_seen_ == other.n_samples_seen_ == sum(sizes)
    one.partial_fit(*stream(rng, 20))
    assert [dumps(model) for model in models] == before


@every_model
@given(seed=seeds, n=st.integers(1, 300))
@examples(4)
def test_a_fresh_model_is_the_identity(make, seed, n):
    model = learned(make, *stream(np.random.default_rng(seed), n))
    for merged in (model + make(), make() + model, everlearn.merge([make(), model, make()]), everlearn.merge([model])):
        assert dumps(merged) == dumps(model)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=pytest.mark.slow if name in SEVERAL_MIXTURES else ())
        for name, make in MODELS.items()
    ],
)
@given(seed=seeds)
@examples(1)
def test_bracketing_makes_little_difference(make, seed):
    """Not exact where components are merged: at most a tenth of a nat, a probability or a target, for most rows.

    Each part has seen a group of its own: a rule that lost or weakened a part would be off by whole nats.
    """
    rng = np.random.default_rng(seed)
    X, y = stream(rng, 1050)
    a, b, c = (learned(make, X[rows], y[rows]) for rows in (np.flatnonzero(y == group) for group in range(3)))
    rows, _ = stream(rng, 300)
    left, right, flat = (answers(model, rows) for model in ((a + b) + c, a + (b + c), everlearn.merge([a, b, c])))
    for other in (right, flat):
        assert np.median(np.abs(left - other)) < 0.1
        assert np.abs(np.mean(left - other, axis=0)).max() < 0.25


@every_model
def test_a_merged_model_is_a_value_like_any_other(make, tmp_path):
    rng = np.random.default_rng(0)
    (a, b), X = parts_of(make, rng, [300, 200])
    merged = a + b
    merged.save(tmp_path / "merged.evl")
    loaded = everlearn.load(tmp_path / "merged.evl")
    more = stream(rng, 50)
    np.testing.assert_array_equal(answers(merged, X), answers(loaded, X))
    assert dumps(merged.partial_fit(*more)) == dumps(loaded.partial_fit(*more))


@every_model
def test_what_cannot_be_merged_is_refused(make):
    rng = np.random.default_rng(0)
    X, y = stream(rng, 300)
    model = learned(make, X, y)
    before = dumps(model)
    names = list("abcd")
    cases = [
        (learned(make, X[:, :3], y), "4 and 3 columns"),
        (learned(make, pd.DataFrame(X, columns=names), y), "column names"),
        (Stranger(), "cannot be merged with"),
    ]
    for other, message in cases:
        with pytest.raises(MergeError, match=message):
            model.merge(other)
    if not make()._merges_by_name:
        left, right = (learned(make, pd.DataFrame(X, columns=c), y) for c in (names, names[::-1]))
        with pytest.raises(MergeError, match="a, b, c, d and d, c, b, a"):
            left + right
    for weights in (1.0, [1.0], [1.0, 0.0], [1.0, np.nan], [1.0, 2.0, 3.0]):
        with pytest.raises(InputError, match="weight"):
            model.merge(model, weights=weights)
    with pytest.raises(MergeError, match="method="):
        model.merge(model, method="average")
    assert dumps(model) == before


class Stranger(everlearn.OnlinePPCA):
    """A model of another class."""


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            IncrementalGaussianMixture(),
            IncrementalGaussianMixture(covariance_type="diag"),
            "covariance_type='auto' and covariance_type='diag'",
        ),
        (IncrementalGaussianMixture(), IncrementalGaussianMixture(forgetting=0.9), "forgetting="),
        (OnlinePPCA(2), OnlinePPCA(3), "n_components=2 and n_components=3"),
        (VariationalPPCA(2), VariationalPPCA(2, forgetting=0.9), "forgetting="),
        (IncrementalGaussianMixtureClassifier(), IncrementalGaussianMixtureClassifier(2), "n_components="),
        (FIGMNClassifier(), FIGMNClassifier(beta=0.0), "beta="),
        (IncrementalGaussianMixtureRegressor(), IncrementalGaussianMixtureRegressor(2), "n_components="),
    ],
)
@pytest.mark.parametrize("fresh", [False, True])
def test_other_parameters_are_refused(one, other, message, fresh):
    X, y = stream(np.random.default_rng(0), 100)
    one.partial_fit(X, y)
    other = other if fresh else other.partial_fit(X, y)
    with pytest.raises(MergeError, match=message):
        one + other


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({}, {"n_components": 2}, "n_components=None and n_components=2: that of the first holds"),
        ({"max_components": 9}, {}, "max_components=9"),
        ({"scale": 1.0}, {"scale": [1.0, 1, 1, 2]}, "scale="),
        ({"reservoir": 300}, {"reservoir": 0}, "no row is kept where one of them keeps none"),
    ],
)
def test_other_parameters_are_allowed_with_a_word(one, other, message):
    X, _ = stream(np.random.default_rng(0), 1400)
    a, b = (
        IncrementalGaussianMixture(**p).partial_fit(part) for p, part in zip((one, other), np.split(X, 2), strict=True)
    )
    with pytest.warns(UserWarning, match=message):
        merged = a + b
    assert merged.n_samples_seen_ == 1400
    assert merged.keeps_rows_ == ("reservoir" not in one)
    assert {name: getattr(merged, name) for name in one if name != "reservoir"} == {
        name: value for name, value in one.items() if name != "reservoir"
    }
    everlearn.loads(dumps(merged)).partial_fit(X)
