"""The river learners where features come and go."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.errors import InputError
from sensor_dicts import NAMES, make_dicts

pytest.importorskip("river", reason="river is not installed: pip install 'everlearn[river]'")

from everlearn.river import AnomalyDetector, Clusterer, Density, Imputer, Transformer

values = st.one_of(st.none(), st.just(float("nan")), st.floats(-100, 100).map(lambda v: round(v, 2)))
rows = st.dictionaries(st.sampled_from(["a", "b", "c", 4, ("d", 1)]), values, max_size=5)


@given(
    st.lists(rows, min_size=1, max_size=30), st.lists(st.integers(1, 7), min_size=30), st.randoms(use_true_random=False)
)
def test_packaging_and_order_of_keys_do_not_matter(dicts, sizes, rnd):
    """A stream in any batches, its keys in any order, gives the model that knew all columns from the start."""
    one, many, shuffled = (Density(grace_period=20) for _ in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in dicts:
            one.learn_one(x)
            shuffled.learn_one(dict(rnd.sample(list(x.items()), len(x))))
        start = 0
        for size in sizes:
            many.learn_many(dicts[start : start + size])
            start += size
    known = [x for x in dicts if any(v is not None and v == v for v in x.values())][:20]
    assert one._names == many._names == shuffled._names
    assert set(one._names) >= {name for x in known[:1] for name, v in x.items() if v is not None and v == v}
    np.testing.assert_allclose(many.score_many(dicts), one.score_many(dicts), rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(shuffled.score_many(dicts), one.score_many(dicts))


def test_feature_of_the_grace_period_counts_as_known_from_the_start():
    dicts, X = make_dicts(300)
    X[:150, 2] = np.nan
    detector = AnomalyDetector(IncrementalGaussianMixture())
    for i, x in enumerate(dicts):
        detector.learn_one(x if i >= 150 else {"heat": x["heat"], "flow": x["flow"]})
    expected = IncrementalGaussianMixture().partial_fit(X)
    np.testing.assert_allclose(detector.model.score_samples(X), expected.score_samples(X), rtol=1e-9)


def test_late_feature_is_ignored_with_one_warning():
    dicts, _ = make_dicts(60)
    density = Density(grace_period=50)
    density.learn_many(dicts[:50])
    before = density.score_one({"heat": 20.0})
    assert density.score_one({"heat": 20.0, "new": 1.0}) == before
    with pytest.warns(UserWarning, match=r"no value in the first 50 rows, such as 'new'.*features="):
        density.learn_one({**dicts[50], "new": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        density.learn_one({**dicts[51], "newer": 1.0})
    assert list(density.model.feature_names_in_) == NAMES


def test_named_features_are_the_columns():
    dicts, X = make_dicts(250)
    density = Density(features=["load", "heat", "wind"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        density.learn_one({"flow": 1.0})
        density.learn_many(dicts)
    model = IncrementalGaussianMixture().partial_fit(np.column_stack([X[:, [2, 1]], np.full(len(X), np.nan)]))
    assert density.score_one({"load": 100.0}) == pytest.approx(model.score_samples([[100.0, np.nan, np.nan]])[0])


def test_answers_before_anything_is_known():
    x = {"heat": 1.0}
    for learner in (AnomalyDetector(), Clusterer(), Density(), Transformer(), Imputer()):
        for empty in ({}, {"heat": None}, {"heat": float("nan")}):
            learner.learn_one(empty)
    assert AnomalyDetector().score_one(x) == 0.0
    assert Clusterer().predict_one(x) == 0
    assert np.isnan(Density().score_one(x))
    assert Transformer().transform_one(x) == {"onlineppca0": 0.0, "onlineppca1": 0.0}
    learned = AnomalyDetector()
    learned.learn_many(make_dicts(30)[0])
    assert learned.score_one({}) == 0.0
    assert learned.score_one({"unheard": 3.0}) == 0.0


def test_too_few_features_for_the_components_are_waited_for():
    dicts, X = make_dicts(60)
    X[:20, 1:] = np.nan
    transformer = Transformer(OnlinePPCA(n_components=3), grace_period=30)
    for i, x in enumerate(dicts):
        transformer.learn_one({"flow": x["flow"]} if i < 20 else x)
    expected = OnlinePPCA(n_components=3).partial_fit(X)
    np.testing.assert_allclose(transformer.model.components_, expected.components_, rtol=1e-7, atol=1e-9)
    poor = Transformer(OnlinePPCA(n_components=3), grace_period=5)
    for x in dicts[:4]:
        poor.learn_one({"flow": x["flow"]})
    for _ in range(2):
        with pytest.raises(InputError, match="n_components=3 must be at most n_features=1"):
            poor.learn_one({"flow": 1.0})


@pytest.mark.parametrize("model", [IncrementalGaussianMixture(), OnlinePPCA()])
def test_scores_of_anomalies_do_not_depend_on_units(model):
    """With one unit for all features for PPCA, which has one noise for all."""
    dicts, _ = make_dicts(300, gaps=0.2)
    units = {"flow": 1024.0, "heat": 1024.0 if isinstance(model, OnlinePPCA) else 2.0**-7, "load": 1024.0}
    other = [{name: value * units[name] for name, value in x.items()} for x in dicts]
    one, two = AnomalyDetector(model), AnomalyDetector(model)
    one.learn_many(dicts)
    two.learn_many(other)
    np.testing.assert_allclose(two.score_many(other), one.score_many(dicts), rtol=1e-9, atol=1e-9)


def test_a_typical_gaussian_row_is_half_way_whatever_is_missing():
    X = np.random.default_rng(0).normal(0, [0.001, 1.0, 5000.0], (2000, 3))
    detector = AnomalyDetector(IncrementalGaussianMixture(1))
    detector.learn_many([dict(zip(NAMES, row, strict=True)) for row in X.tolist()])
    for kept in (NAMES, NAMES[:1], NAMES[2:]):
        scores = detector.score_many([{name: row[NAMES.index(name)] for name in kept} for row in X.tolist()])
        assert np.min(scores) >= 0.0
        assert np.max(scores) <= 1.0
        surprise = 2.0 * np.array(scores) - 1.0
        assert np.mean(surprise / (1.0 - np.abs(surprise))) == pytest.approx(0.0, abs=0.2)
