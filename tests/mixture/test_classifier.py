"""IncrementalGaussianMixtureClassifier: classes as they come, honest probabilities, files, merging."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold

from everlearn import IncrementalGaussianMixture, IncrementalGaussianMixtureClassifier, datasets
from everlearn.errors import DivergenceWarning, InputError, MergeError, ModelFileError
from everlearn.figmn.first_edition import IncrementalGaussianMixture as FirstEdition
from everlearn.mixture.classifier_joint import insert_column
from everlearn.persistence.model_file import dumps, loads


def three_classes(n=600, seed=0, gaps=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, 4)) @ np.diag([1.0, 2.0, 0.5, 1.0]) + 2.0 * np.eye(4)[y]
    X[rng.random(X.shape) < gaps] = np.nan
    return X, np.array(["ash", "birch", "cedar"])[y]


# -- classes as they come ---------------------------------------------------------------------------


def test_classes_one_after_another():
    """Classes that come one after another, and mixed: about the same accuracy."""
    X, y = three_classes(1500)
    test, truth = three_classes(1500, seed=1)
    ordered, mixed = IncrementalGaussianMixtureClassifier(), IncrementalGaussianMixtureClassifier().partial_fit(X, y)
    for label in ("cedar", "ash", "birch"):
        ordered.partial_fit(X[y == label], y[y == label])
    assert ordered.classes_.tolist() == ["ash", "birch", "cedar"]
    assert mixed.score(test, truth) > 0.75
    assert ordered.score(test, truth) > mixed.score(test, truth) - 0.02


@settings(max_examples=10)
@given(seed=st.integers(0, 20))
def test_learning_one_class_leaves_the_others_alone(seed):
    """Whatever comes between the rows of a class, its mixture is the same, bit for bit."""
    X, y = three_classes(90, seed)
    rows_of = {label: iter(np.flatnonzero(y == label)) for label in np.unique(y)}
    order = [next(rows_of[label]) for label in np.random.default_rng(seed).permutation(y)]
    one, other = (IncrementalGaussianMixtureClassifier(scale=np.ones(4)) for _ in range(2))
    one.partial_fit(X, y)
    other.partial_fit(X[order], y[order])
    for a, b in zip(one._model_._states_, other._model_._states_, strict=True):
        assert all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("strategy", ["per_class", "joint"])
@pytest.mark.parametrize("warmup", [10, 1000])
def test_new_classes_at_any_time(strategy, warmup):
    X, y = three_classes(400)
    model = IncrementalGaussianMixtureClassifier(strategy=strategy, warmup=warmup)
    model.partial_fit(X[y == "birch"], y[y == "birch"])
    assert model.predict(X[:3]).tolist() == ["birch"] * 3
    new = np.array(["zelkova, the japanese one"] * 60)
    model.partial_fit(X[:60] + 12.0, new)
    model.partial_fit(X[y == "ash"], y[y == "ash"])
    assert model.classes_.tolist() == ["ash", "birch", "zelkova, the japanese one"]
    assert model.predict_proba(X).shape == (400, 3)
    assert (model.predict(X[:20] + 12.0) == new[:20]).mean() > 0.9
    assert (model.predict(X[y == "ash"]) == "ash").mean() > 0.6
    assert model.n_samples_seen_ == 60 + (y != "cedar").sum()


@pytest.mark.parametrize("strategy", ["per_class", "joint"])
def test_announced_classes(strategy):
    X, y = three_classes(200)
    model = IncrementalGaussianMixtureClassifier(strategy=strategy)
    model.partial_fit(X[:100], y[:100], classes=["ash", "birch", "cedar", "zelkova"])
    assert model.classes_.tolist() == ["ash", "birch", "cedar", "zelkova"]
    p = model.predict_proba(X)
    assert p.shape == (200, 4)
    assert (p[:, 3] < 0.05).all()
    assert np.isfinite(model.predict_log_proba(X)).all()
    model.partial_fit(X[100:], y[100:])
    told, untold = model, IncrementalGaussianMixtureClassifier(strategy=strategy).partial_fit(X, y)
    assert (told.predict(X) == untold.predict(X)).mean() > 0.97


@pytest.mark.parametrize(
    "labels",
    [[3, 1, 2], [True, False], [2.0, 5.0], ["b", "a"], np.array(["b", "a"], dtype=object), [np.int8(3), np.int8(-1)]],
    ids=["int", "bool", "float", "text", "object", "int8"],
)
def test_kinds_of_labels(labels):
    X, y = three_classes(200)
    codes = np.unique(y, return_inverse=True)[1] % len(labels)
    given_labels = np.asarray(labels)[codes]
    model = IncrementalGaussianMixtureClassifier().fit(X, given_labels)
    assert model.classes_.tolist() == sorted(set(given_labels.tolist()))
    assert set(model.predict(X)) <= set(given_labels.tolist())
    assert loads(dumps(model)).predict(X).tolist() == model.predict(X).tolist()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y"),
        (["ash"] * 9, r"y has shape \(9,\); give one label for each of 10 rows"),
        ([np.nan] * 10, "NaN or infinity"),
        ([0.5, 1.25] * 5, "continuous"),
        (["ash", 3] * 5, "text and other values"),
        ([1] * 10, "Some labels are numbers, others are text"),
        ([1j] * 10, "labels are text or whole numbers"),
    ],
)
def test_bad_labels(y, message):
    X, labels = three_classes(10)
    model = IncrementalGaussianMixtureClassifier().partial_fit(X, labels)
    before = dumps(model)
    y = np.array(y, dtype=object) if y and y[0] == "ash" and y[1] == 3 else y
    with pytest.raises(InputError, match=message):
        model.partial_fit(X, y)
    assert dumps(model) == before


def test_announced_classes_of_another_kind():
    X, y = three_classes(10)
    model = IncrementalGaussianMixtureClassifier()
    with pytest.raises(InputError, match="one kind of label"):
        model.partial_fit(X, y, classes=[1, 2, 3])
    model.partial_fit(X, y)
    before = dumps(model)
    with pytest.raises(InputError, match="one kind of label"):
        model.partial_fit(X, y, classes=[1, 2, 3])
    assert dumps(model) == before


# -- probabilities ----------------------------------------------------------------------------------


def test_priors_are_class_frequencies():
    """A row with nothing observed: the frequency of each class, with one more row in each."""
    X, y = three_classes(300)
    model = IncrementalGaussianMixtureClassifier().fit(X, y)
    counts = np.unique(y, return_counts=True)[1]
    assert np.allclose(model.predict_proba(np.full((1, 4), np.nan)), (counts + 1) / (counts + 1).sum())
    assert np.allclose(model.class_count_, counts)


def test_weights_count_as_frequency():
    X, y = three_classes(300)
    model = IncrementalGaussianMixtureClassifier().fit(X, y, sample_weight=np.where(y == "ash", 3.0, 1.0))
    counts = np.unique(y, return_counts=True)[1] * [3.0, 1.0, 1.0]
    assert np.allclose(model.class_count_, counts)


def test_forgotten_classes_become_rare():
    X, y = three_classes(600)
    model = IncrementalGaussianMixtureClassifier(forgetting=0.95).fit(X, y)
    model.partial_fit(X[y == "ash"], y[y == "ash"])
    frequency = model.class_count_ / model.class_count_.sum()
    assert frequency[0] > 0.99
    assert (model.predict(np.full((1, 4), np.nan)) == "ash").all()


def test_probabilities_are_honest():
    """Overlapping classes in many columns: sure of itself no more often than right."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=4000)
    X = rng.normal(size=(4000, 12)) + 0.6 * y[:, None]
    X[:, 6:] = X[:, :6] + 0.1 * rng.normal(size=(4000, 6))
    model = IncrementalGaussianMixtureClassifier().partial_fit(X[:2000], y[:2000])
    assert model.score(X[2000:], y[2000:]) > 0.7
    assert model.calibration_error(X[2000:], y[2000:]) < 0.05


def test_calibration_error_by_hand():
    X, y = three_classes(300)
    model = IncrementalGaussianMixtureClassifier().fit(X, y)
    p, predicted = model.predict_proba(X), model.predict(X)
    total = 0.0
    for low in np.arange(4) / 4:
        inside = (p.max(axis=1) >= low) & (p.max(axis=1) < low + 0.25 + 1e-12 * (low == 0.75))
        if inside.any():
            total += inside.sum() * abs(p.max(axis=1)[inside].mean() - (predicted == y)[inside].mean())
    assert model.calibration_error(X, y, n_bins=4) == pytest.approx(total / 300)


def test_gaps_cost_little():
    X, y = three_classes(1500, gaps=0.2)
    test, truth = three_classes(1500, seed=1)
    with_gaps = IncrementalGaussianMixtureClassifier().partial_fit(X, y)
    complete = IncrementalGaussianMixtureClassifier().partial_fit(*three_classes(1500))
    assert with_gaps.score(test, truth) > complete.score(test, truth) - 0.03


@pytest.mark.parametrize("power", [-480, 480])
def test_units_do_not_matter(power):
    X, y = three_classes(300)
    unit = 2.0 ** np.array([power, 0, -power, 1])
    one, other = (IncrementalGaussianMixtureClassifier().partial_fit(Z, y) for Z in (X, X * unit))
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X * unit))


def test_weka_sets():
    """Mean accuracy over the seven sets of the FIGMN paper, ten folds; the paper has 83.7. See benchmarks/weka.py."""
    accuracies = []
    for name in datasets.NAMES:
        data, right = datasets.load(name), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a class may have fewer rows than there are folds
            folds = list(StratifiedKFold(10, shuffle=True, random_state=0).split(data.data, data.target))
        for train, test in folds:
            train = np.random.default_rng(0).permutation(train)
            model = IncrementalGaussianMixtureClassifier().fit(data.data[train], data.target[train])
            right.extend(model.predict(data.data[test]) == data.target[test])
        accuracies.append(100 * np.mean(right))
    assert np.mean(accuracies) >= 84.5, dict(zip(datasets.NAMES, accuracies, strict=True))


# -- the joint strategy -----------------------------------------------------------------------------


def test_joint_is_one_mixture_with_indicators():
    X, y = three_classes(400, gaps=0.1)
    model = IncrementalGaussianMixtureClassifier.paper().fit(X, y)
    indicators = (y[:, None] == np.unique(y)).astype(float)
    mixture = IncrementalGaussianMixture.paper().fit(np.hstack([X, indicators]))
    expected = np.maximum(mixture.predict_columns(X, [4, 5, 6], given=[0, 1, 2, 3]), 1e-9)
    assert np.allclose(model.predict_proba(X), expected / expected.sum(axis=1, keepdims=True))
    assert model.n_components_ == mixture.n_components_


def test_a_late_column_of_zeros_is_as_if_it_had_always_been_there():
    X, _ = three_classes(100)
    X[::7, 1] = np.nan
    late = FirstEdition(beta=0.0, scale=[1.0, 2.0, 0.5, 1.0]).fit(X)
    insert_column(late, 3, 3)
    early = FirstEdition(beta=0.0, scale=[1.0, 2.0, 0.5, 0.5, 1.0]).fit(np.insert(X, 3, 0.0, axis=1))
    early._settle(early._frame_)
    ratio = late._frame_.variance[3] / early._frame_.variance[3]
    assert np.allclose(late.means_, early.means_)
    expected = early.covariances_.copy()
    expected[:, 3, 3] *= ratio * (late._frame_.scale[3] / early._frame_.scale[3]) ** 2
    assert np.allclose(late.covariances_, expected)
    assert late._pair_.learning.log_dets[0] == pytest.approx(-np.linalg.slogdet(late._pair_.learning.precisions[0])[1])


def test_printed_update_is_reported():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)) ** 3, np.repeat(["a", "b"], 40)
    model = IncrementalGaussianMixtureClassifier(update="paper", beta=1e-9, delta=0.01)
    with pytest.warns(DivergenceWarning, match="eq. 11"):
        model.fit(X, y)


# -- merging and files ------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["per_class", "joint"])
@pytest.mark.parametrize("warmup", [50, 5000])
def test_merging(strategy, warmup):
    X, y = three_classes(1800)
    test, truth = three_classes(1000, seed=1)
    parts = [
        IncrementalGaussianMixtureClassifier(strategy=strategy, warmup=warmup).partial_fit(X[i::3], y[i::3])
        for i in range(3)
    ]
    whole = IncrementalGaussianMixtureClassifier(strategy=strategy, warmup=warmup).partial_fit(X, y)
    merged = parts[0].merge(parts[1], parts[2])
    assert merged.n_samples_seen_ == 1800
    assert np.allclose(merged.class_count_, whole.class_count_)
    assert merged.score(test, truth) > whole.score(test, truth) - 0.03
    assert np.allclose(merged.predict_proba(test), parts[2].merge(*parts[:2]).predict_proba(test), atol=1e-8)


@pytest.mark.parametrize("strategy", ["per_class", "joint"])
def test_merging_models_of_different_classes(strategy):
    X, y = three_classes(900)
    test, truth = three_classes(900, seed=1)
    parts = [
        IncrementalGaussianMixtureClassifier(strategy=strategy).partial_fit(X[y == label], y[y == label])
        for label in ("cedar", "ash", "birch")
    ]
    merged = parts[0] + parts[1] + parts[2]
    assert merged.classes_.tolist() == ["ash", "birch", "cedar"]
    assert merged.score(test, truth) > 0.7
    assert parts[0].classes_.tolist() == ["cedar"]


def test_models_that_cannot_be_merged():
    X, y = three_classes(300)
    model = IncrementalGaussianMixtureClassifier().partial_fit(X, y)
    with pytest.raises(MergeError, match="one kind of label"):
        model.merge(IncrementalGaussianMixtureClassifier().partial_fit(X, np.arange(300) % 2))
    with pytest.raises(MergeError, match="spreads over about"):
        model.merge(IncrementalGaussianMixtureClassifier().partial_fit(X * 1e6, y))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("_class_counts_", lambda a: a[:-1]),
        ("_states_", lambda states: states[:-1]),
        ("_states_", lambda states: [states[0]._replace(means=states[0].means[:, :2]), *states[1:]]),
        ("_sample_", lambda sample: sample._replace(labels=sample.labels + 5)),
        ("_sample_", lambda sample: sample._replace(weights=-sample.weights)),
        ("_sample_", lambda sample: sample._replace(rows=sample.rows[:, 1:])),
        ("_blend_", lambda blend: blend._replace(weights=blend.weights[1:])),
        ("_blend_", lambda blend: blend._replace(within=blend.within[0])),
        ("_frame_", lambda frame: frame._replace(scale=-frame.scale)),
        ("_frame_", lambda frame: None),
        ("_next_blend_", lambda n: 0),
        ("_n_rows_", lambda n: -1),
    ],
)
def test_damaged_files_are_refused(name, change):
    inner = IncrementalGaussianMixtureClassifier().fit(*three_classes(300))._model_
    inner._check_loaded()
    setattr(inner, name, change(getattr(inner, name)))
    with pytest.raises(ModelFileError):
        inner._check_loaded()


@pytest.mark.parametrize("strategy", ["per_class", "joint"])
@pytest.mark.parametrize("change", [lambda a: a[:-1], lambda a: a[::-1].copy(), lambda a: None])
def test_damaged_labels_are_refused(strategy, change):
    model = IncrementalGaussianMixtureClassifier(strategy=strategy).fit(*three_classes(100))
    model._check_loaded()
    model.classes_ = change(model.classes_)
    with pytest.raises(ModelFileError):
        model._check_loaded()


def test_files_hold_a_warming_model():
    X, y = three_classes(100)
    model = IncrementalGaussianMixtureClassifier().partial_fit(X[:50], y[:50])
    loaded = loads(dumps(model))
    for each in (model, loaded):
        each.partial_fit(X[50:], y[50:])
    assert np.array_equal(model.predict_proba(X), loaded.predict_proba(X))


def test_data_frames_and_series():
    X, y = three_classes(200)
    frame, labels = pd.DataFrame(X, columns=list("abcd")), pd.Series(y, dtype="category")
    model = IncrementalGaussianMixtureClassifier().fit(frame, labels)
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.predict(frame).tolist() == IncrementalGaussianMixtureClassifier().fit(X, y).predict(X).tolist()
