"""The river learners: river's own checks, and the same answers as the models."""

import itertools
import pickle
import random

import numpy as np
import pytest

import everlearn
from everlearn import (
    IncrementalGaussianMixture,
    IncrementalGaussianMixtureClassifier,
    IncrementalGaussianMixtureRegressor,
    OnlinePPCA,
    VariationalPPCA,
)
from everlearn.errors import InputError
from sensor_dicts import NAMES, make_dicts
from timing import cost_ratio

river = pytest.importorskip("river", reason="river is not installed: pip install 'everlearn[river]'")

from everlearn.river import (  # noqa: E402
    AnomalyDetector,
    Classifier,
    Clusterer,
    Density,
    Imputer,
    Regressor,
    Transformer,
)
from river import anomaly, checks, compose, datasets, evaluate, linear_model, metrics, naive_bayes, preprocessing  # noqa: E402

ADAPTERS = [Density, AnomalyDetector, Clusterer, Transformer, Imputer, Classifier, Regressor]


def targets(learner, dicts):
    """What a learner with targets is to learn: whether the load is high, or twice the heat."""
    if isinstance(learner, Classifier):
        return ["high" if x.get("load", 0.0) > 125.0 else "low" for x in dicts]
    return [2.0 * x.get("heat", 20.0) for x in dicts]


def teach(learner, dicts, rows=None):
    """Learn dicts, or the same rows in another form."""
    rows = dicts if rows is None else rows
    if learner._supervised:
        learner.learn_many(rows, targets(learner, dicts))
    else:
        learner.learn_many(rows)


def answers(learner, dicts):
    """What a learner says about dicts, as an array."""
    if hasattr(learner, "score_one"):
        return np.array([learner.score_one(x) for x in dicts])
    if hasattr(learner, "predict_proba_one"):
        return np.array([list(learner.predict_proba_one(x).values()) for x in dicts])
    if hasattr(learner, "predict_one"):
        return np.array([learner.predict_one(x) for x in dicts])
    return np.array([list(learner.transform_one(x).values()) for x in dicts])


def same(a, b):
    """Whether two answers are the same: a label, or numbers up to rounding."""
    return a == b if isinstance(b, str) else a == pytest.approx(b, rel=1e-7, abs=1e-9)


# -- river's contract ------------------------------------------------------------------------------


CHECKED = [
    (Density(), 1),
    (AnomalyDetector(), 16),
    (Clusterer(), 1),
    (Transformer(), 4),
    (Imputer(IncrementalGaussianMixture()), 12),
    (Classifier(IncrementalGaussianMixtureClassifier(), grace_period=20), 20),
    (Regressor(IncrementalGaussianMixtureRegressor()), 12),
]


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "share"), CHECKED, ids=str)
def test_passes_rivers_checks(learner, share, monkeypatch):
    """On a share of the rows, to save time; for detectors on data that river brings, not on data it downloads."""
    monkeypatch.setattr(datasets, "CreditCard", datasets.Shuttle)
    monkeypatch.setattr(datasets.base.Dataset, "take", lambda self, k: itertools.islice(self, k // share))
    random.seed(1)
    assert learner._unit_test_skips() == set()
    checks.check_estimator(learner)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_clone_starts_anew(adapter):
    dicts, _ = make_dicts(50)
    learner = adapter(grace_period=20)
    teach(learner, dicts)
    clone = learner.clone()
    assert clone.grace_period == 20
    assert not hasattr(clone.model, "n_features_in_")
    twin = learner.clone(include_attributes=True)
    np.testing.assert_array_equal(answers(twin, dicts), answers(learner, dicts))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_pickle_goes_on_learning(adapter):
    dicts, _ = make_dicts(80)
    learner = adapter(grace_period=20)
    teach(learner, dicts[:50])
    twin = pickle.loads(pickle.dumps(learner))
    teach(learner, dicts[50:])
    teach(twin, dicts[50:])
    np.testing.assert_array_equal(answers(twin, dicts), answers(learner, dicts))


# -- the same answers as the models ----------------------------------------------------------------


def test_learns_as_the_model_does():
    dicts, X = make_dicts(400, gaps=0.2)
    density = Density()
    for x in dicts:
        density.learn_one(x)
    model = IncrementalGaussianMixture().partial_fit(X)
    np.testing.assert_allclose(density.score_many(dicts), model.score_samples(X), rtol=1e-9)
    assert list(density.model.feature_names_in_) == NAMES


@pytest.mark.parametrize("model", [OnlinePPCA(n_components=2), VariationalPPCA(n_components=2)])
def test_transforms_as_the_model_does(model):
    dicts, X = make_dicts(400, gaps=0.2)
    transformer = Transformer(model)
    for x in dicts:
        transformer.learn_one(x)
    coordinates = [list(row.values()) for row in transformer.transform_many(dicts)]
    np.testing.assert_allclose(coordinates, model.partial_fit(X).transform(X), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_many_answers_as_one(adapter):
    dicts, _ = make_dicts(80, gaps=0.1)
    learner = adapter(grace_period=20)
    teach(learner, dicts)
    questions = [name for name in dir(learner) if name.endswith("_many") and name != "learn_many"]
    assert questions
    for name in questions:
        many = getattr(learner, name)
        one = getattr(learner, name.replace("_many", "_one"))
        assert many([]) == []
        assert type(one(dicts[0])) is type(many(dicts)[0])
        for a, b in zip(many(dicts), map(one, dicts), strict=True):
            assert same(a, b)


def test_weights_reach_the_model():
    dicts, X = make_dicts(250)
    w = np.linspace(0.5, 2.0, len(X))
    one, many = Density(), Density()
    for x, weight in zip(dicts, w, strict=True):
        one.learn_one(x, w=weight)
    many.learn_many(dicts, w=w)
    expected = IncrementalGaussianMixture().partial_fit(X, sample_weight=w).score_samples(X)
    np.testing.assert_allclose(one.score_many(dicts), expected, rtol=1e-9)
    np.testing.assert_allclose(many.score_many(dicts), expected, rtol=1e-9)
    with pytest.raises(InputError, match="OnlinePPCA does not weigh its rows"):
        Transformer().learn_one(dicts[0], w=2.0)


def test_clusters():
    dicts, X = make_dicts(400)
    clusterer = Clusterer(IncrementalGaussianMixture())
    assert clusterer.centers == {}
    assert clusterer.predict_proba_one(dicts[0]) == {}
    clusterer.learn_many(dicts)
    np.testing.assert_array_equal(clusterer.predict_many(dicts), clusterer.model.predict(X))
    low, high = clusterer.predict_one({"load": 100.0}), clusterer.predict_one({"load": 150.0})
    assert clusterer.centers[low]["load"] == pytest.approx(100.0, abs=2.0)
    assert clusterer.centers[high]["load"] == pytest.approx(150.0, abs=2.0)
    assert sum(clusterer.predict_proba_one(dicts[0]).values()) == pytest.approx(1.0)


@pytest.mark.slow
def test_classes_that_come_late_and_features_that_are_missing():
    dicts, X = make_dicts(400, gaps=0.2)
    classifier = Classifier()
    assert classifier.predict_one(dicts[0]) is None
    assert classifier.predict_many(dicts[:2]) == [None, None]
    assert classifier.predict_proba_many(dicts[:1]) == [{}]
    labels = targets(classifier, dicts)
    low = [i for i, label in enumerate(labels) if label == "low"]
    classifier.learn_many([dicts[i] for i in low], ["low"] * len(low))
    assert classifier.predict_proba_one(dicts[0]) == {"low": 1.0}
    for x, label in zip(dicts, labels, strict=True):
        if label == "high":
            classifier.learn_one(x, label)
    assert classifier.predict_one({"load": 150.0}) == "high"
    assert classifier.predict_one({"load": 100.0, "heat": None}) == "low"
    order = low + [i for i, label in enumerate(labels) if label == "high"]
    model = IncrementalGaussianMixtureClassifier().partial_fit(X[order], [labels[i] for i in order])
    expected = [dict(zip(model.classes_, p, strict=True)) for p in model.predict_proba(X).tolist()]
    for probabilities, wanted in zip(classifier.predict_proba_many(dicts), expected, strict=True):
        assert probabilities == pytest.approx(wanted, rel=1e-7, abs=1e-12)


@pytest.mark.slow
def test_regression_with_weights():
    dicts, X = make_dicts(300, gaps=0.1)
    w = np.linspace(0.5, 2.0, len(X))
    one, many = Regressor(), Regressor()
    assert one.predict_one(dicts[0]) == 0.0
    y = targets(one, dicts)
    for x, target, weight in zip(dicts, y, w, strict=True):
        one.learn_one(x, target, w=weight)
    many.learn_many(dicts, y, w=w)
    expected = IncrementalGaussianMixtureRegressor().partial_fit(X, y, sample_weight=w).predict(X)
    np.testing.assert_allclose(many.predict_many(dicts), expected, rtol=1e-7)
    np.testing.assert_allclose(one.predict_many(dicts), expected, rtol=1e-7)
    with pytest.raises(InputError, match="y has 2 targets; X has 300 rows"):
        one.learn_many(dicts, y[:2])


def test_imputer_fills_what_is_missing_and_lets_the_rest_pass():
    dicts, _ = make_dicts(400)
    imputer = Imputer(OnlinePPCA(n_components=2))
    assert imputer.transform_one({"heat": 1.0}) == {"heat": 1.0}
    imputer.learn_many(dicts)
    filled = imputer.transform_one({"heat": 25.0, "load": None, "colour": "red"})
    assert filled["heat"] == 25.0
    assert filled["flow"] == pytest.approx(50.0, abs=2.0)
    assert filled["load"] == pytest.approx(125.0, abs=5.0)
    assert filled["colour"] == "red"


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 10, 60])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"heat": "warm"}, r"'heat' is 'warm', which is not a number.*SelectType"),
        ({"heat": [1.0]}, r"'heat' is \[1.0\], which is not a number"),
        ({"heat": float("inf")}, "'heat'"),
        ([1.0, 2.0], "must be a dict of features; got a list"),
    ],
)
def test_bad_values_are_refused_and_nothing_changes(n, x, message):
    dicts, _ = make_dicts(60)
    density = Density(grace_period=40)
    density.learn_many(dicts[:n])
    before = pickle.dumps(density)
    for learn in (density.learn_one, lambda x: density.learn_many([*dicts, x])):
        with pytest.raises(InputError, match=message):
            learn(x)
        assert pickle.dumps(density) == before


def test_bad_parameters_are_refused():
    with pytest.raises(InputError, match=r"Clusterer takes a model of everlearn that has predict_proba, means_; got"):
        Clusterer(OnlinePPCA())
    with pytest.raises(InputError, match="Density takes a model of everlearn"):
        Density(anomaly.HalfSpaceTrees())
    with pytest.raises(InputError, match="grace_period must be a number of rows, at least 1; got 0"):
        Density(grace_period=0)
    with pytest.raises(InputError, match=r"learned 2 columns; features names 0.*features=\[...\]"):
        Density(IncrementalGaussianMixture().fit([[1.0, 2.0], [2.0, 1.0]]))


# -- saving, merging, frames -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 400])
def test_saved_model_goes_on_in_a_new_adapter(n, tmp_path):
    dicts, _ = make_dicts(500, gaps=0.1)
    detector = AnomalyDetector(grace_period=50)
    detector.learn_many(dicts[:n])
    detector.model.save(tmp_path / "model.evl")
    again = AnomalyDetector(everlearn.load(tmp_path / "model.evl"))
    assert again.score_many(dicts) == detector.score_many(dicts)
    detector.learn_many(dicts[n:])
    again.learn_many(dicts[n:])
    assert again.score_many(dicts) == detector.score_many(dicts)


def test_given_model_is_not_changed():
    dicts, X = make_dicts(50)
    model = IncrementalGaussianMixture().fit(X)
    detector = AnomalyDetector(model, features=NAMES)
    detector.learn_many(dicts)
    assert model.n_samples_seen_ == 50
    assert detector.model.n_samples_seen_ == 100
    assert not hasattr(detector.clone().model, "n_features_in_")


def test_models_merge():
    dicts, X = make_dicts(600)
    one, two = Density(), Density()
    one.learn_many(dicts[:300])
    two.learn_many(dicts[300:])
    together = Density(one.model + two.model)
    np.testing.assert_allclose(together.score_many(dicts), (one.model + two.model).score_samples(X))


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_in_frames_out(library):
    frames = pytest.importorskip(library)
    dicts, X = make_dicts(80, gaps=0.1)
    table = frames.DataFrame(dict(zip(NAMES, X.T, strict=True)))[["load", "flow", "heat"]]
    for adapter in ADAPTERS:
        from_frame, from_dicts = adapter(grace_period=20), adapter(grace_period=20)
        teach(from_frame, dicts[:30], table[:30])
        teach(from_frame, dicts[30:], table[30:])
        teach(from_dicts, dicts)
        if hasattr(from_frame, "transform_many"):
            frame = from_frame.transform_many(table)
            assert type(frame) is type(table)
            for name in frame.columns:
                np.testing.assert_allclose(frame[name], [x[name] for x in from_dicts.transform_many(dicts)], rtol=1e-9)
        else:
            question = "score_many" if hasattr(from_frame, "score_many") else "predict_many"
            series = getattr(from_frame, question)(table)
            assert type(series) is type(table["heat"])
            assert all(map(same, series.to_list(), getattr(from_dicts, question)(dicts)))


def test_probabilities_of_a_frame():
    pandas = pytest.importorskip("pandas")
    dicts, X = make_dicts(100)
    table = pandas.DataFrame(X, columns=NAMES)
    classifier = Classifier()
    assert classifier.predict_proba_many(table).shape == (100, 0)
    classifier.learn_many(table, pandas.Series(X[:, 1] > 20.0))
    probabilities = classifier.predict_proba_many(table)
    assert list(probabilities.columns) == [False, True]
    assert probabilities.iloc[3].to_dict() == pytest.approx(classifier.predict_proba_one(dicts[3]))


def test_index_of_a_frame_is_kept_and_text_refused():
    pandas = pytest.importorskip("pandas")
    _, X = make_dicts(30)
    table = pandas.DataFrame(X, columns=NAMES, index=range(100, 130))
    density = Density()
    assert list(density.score_many(table).index) == list(table.index)
    density.learn_many(table)
    assert list(density.score_many(table).index) == list(table.index)
    with pytest.raises(InputError, match="a column that is not numbers"):
        density.learn_many(pandas.DataFrame({"heat": ["warm"]}))


# -- in river's company ----------------------------------------------------------------------------


@pytest.mark.slow
def test_detector_in_a_progressive_validation():
    model = preprocessing.StandardScaler() | AnomalyDetector(IncrementalGaussianMixture(1))
    metric = metrics.RollingROCAUC(window_size=1500)
    evaluate.progressive_val_score(datasets.Shuttle().take(1500), model, metric)
    assert metric.get() > 0.95


@pytest.mark.slow
def test_scores_fit_the_metric_that_takes_numbers_from_0_to_1():
    model = preprocessing.StandardScaler() | AnomalyDetector(IncrementalGaussianMixture(1))
    metric = metrics.ROCAUC(n_thresholds=50)
    evaluate.progressive_val_score(datasets.Shuttle().take(1000), model, metric)
    assert metric.get() > 0.9


@pytest.mark.slow
def test_intervals_of_a_regressor():
    rng, regressor, inside = np.random.default_rng(0), Regressor(), []
    assert regressor.predict_one({"u": 0.0}, with_interval=True).lower == -np.inf
    for i in range(600):
        u = float(rng.normal())
        y = 2.0 * u + float(rng.normal())
        if i >= 300:
            interval = regressor.predict_one({"u": u}, with_interval=True, coverage=0.8)
            inside.append(y in interval)
            assert regressor.predict_one({"u": u}) in interval
        regressor.learn_one({"u": u}, y)
    assert 0.7 < np.mean(inside) < 0.9


def test_detector_in_a_filter():
    dicts, _ = make_dicts(300)
    quantile = anomaly.QuantileFilter(AnomalyDetector(), q=0.99)
    for x in dicts:
        quantile.learn_one(x)
    assert quantile.classify(quantile.score_one({"heat": 90.0, "flow": 0.0}))
    assert not quantile.classify(quantile.score_one({"heat": 20.0, "flow": 40.0}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "peer", "stream", "metric"),
    [
        (
            Classifier(),
            naive_bayes.GaussianNB(),
            datasets.ImageSegments().take(300),
            metrics.Accuracy(),
        ),
        (Regressor(), linear_model.LinearRegression(), datasets.TrumpApproval().take(400), metrics.MAE()),
    ],
)
def test_predictions_in_a_progressive_validation(model, peer, stream, metric):
    rows = list(stream)
    ours, theirs = metric.clone(), metric.clone()
    evaluate.progressive_val_score(rows, model, ours)
    evaluate.progressive_val_score(rows, preprocessing.StandardScaler() | peer, theirs)
    assert ours.is_better_than(theirs)


@pytest.mark.slow
def test_clusterer_in_a_progressive_validation():
    """Three clusters: of two, river's silhouette takes the nearer centre for the second nearest and is always 1."""
    dicts, _ = make_dicts(400)
    for i, x in enumerate(dicts):
        x["load"] += 200.0 * (i % 3 == 0)
    model = Clusterer(IncrementalGaussianMixture())
    metric = metrics.Silhouette()
    evaluate.progressive_val_score(((x, None) for x in dicts), model, metric)
    assert 0.0 < metric.get() < 0.5


def error_with_gaps(*first):
    """Mean error of a regression on dicts that lack half their values, and that of the mean."""
    dicts, X = make_dicts(300)
    rng = np.random.default_rng(1)
    gappy = [{name: v for name, v in x.items() if name == "load" or rng.random() < 0.5} for x in dicts]
    stream = list(zip(gappy, (X[:, 1] - 20.0).tolist(), strict=True))
    model = compose.Pipeline(preprocessing.StandardScaler(), *first, linear_model.BayesianLinearRegression())
    return evaluate.progressive_val_score(stream, model, metrics.MAE()).get(), np.abs(X[:, 1] - 20.0).mean()


@pytest.mark.slow
def test_imputer_in_a_pipeline():
    assert error_with_gaps(Imputer())[0] < 0.9 * error_with_gaps()[0]


@pytest.mark.slow
def test_imputer_and_transformer_in_a_pipeline():
    error, of_mean = error_with_gaps(Imputer(), Transformer(OnlinePPCA(2)))
    assert error < 0.75 * of_mean


def test_learning_a_dict_costs_little_more_than_partial_fit():
    dicts, X = make_dicts(300)
    density = Density(IncrementalGaussianMixture(1))
    model = IncrementalGaussianMixture(1).fit(X)
    density.learn_many(dicts)
    rows = [X[i : i + 1].copy() for i in range(100)]
    # 1.4 was measured; reading the names of each dict anew would be 3.
    assert cost_ratio(density.learn_one, model.partial_fit, dicts[:100], rows, repeats=15) < 2.2
