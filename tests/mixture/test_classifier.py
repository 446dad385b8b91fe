"""IncrementalGaussianMixtureClassifier: classes as they come, honest probabilities, files, merging."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold

from everlearn import FIGMNClassifier, IncrementalGaussianMixtureClassifier, datasets
from everlearn.errors import InputError, MergeError, ModelFileError
from everlearn.mixture import classifier as module
from everlearn.persistence.model_file import dumps, loads
from examples import examples

CLASSIFIERS = [IncrementalGaussianMixtureClassifier, FIGMNClassifier]


def three_classes(n=600, seed=0, gaps=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, 4)) @ np.diag([1.0, 2.0, 0.5, 1.0]) + 2.0 * np.eye(4)[y]
    X[rng.random(X.shape) < gaps] = np.nan
    return X, np.array(["ash", "birch", "cedar"])[y]


# -- classes as they come ---------------------------------------------------------------------------


@pytest.mark.slow
def test_classes_one_after_another():
    """Classes that come one after another, and mixed: about the same accuracy."""
    X, y = three_classes(900)
    test, truth = three_classes(1500, seed=1)
    ordered, mixed = IncrementalGaussianMixtureClassifier(), IncrementalGaussianMixtureClassifier().partial_fit(X, y)
    for label in ("cedar", "ash", "birch"):
        ordered.partial_fit(X[y == label], y[y == label])
    assert ordered.classes_.tolist() == ["ash", "birch", "cedar"]
    assert mixed.score(test, truth) > 0.75
    assert ordered.score(test, truth) > mixed.score(test, truth) - 0.02


@examples(10)
@given(seed=st.integers(0, 20))
def test_learning_one_class_leaves_the_others_alone(seed):
    """Whatever comes between the rows of a class, its mixture is the same, bit for bit."""
    X, y = three_classes(90, seed)
    rows_of = {label: iter(np.flatnonzero(y == label)) for label in np.unique(y)}
    order = [next(rows_of[label]) for label in np.random.default_rng(seed).permutation(y)]
    one, other = (IncrementalGaussianMixtureClassifier(scale=np.ones(4)) for _ in range(2))
    one.partial_fit(X, y)
    other.partial_fit(X[order], y[order])
    for a, b in zip(one._mixtures_, other._mixtures_, strict=True):
        assert dumps(a) == dumps(b)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_new_classes_at_any_time(classifier):
    X, y = three_classes(400)
    model = classifier()
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


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_announced_classes(classifier):
    X, y = three_classes(200)
    model = classifier()
    model.partial_fit(X[:100], y[:100], classes=["ash", "birch", "cedar", "zelkova"])
    assert model.classes_.tolist() == ["ash", "birch", "cedar", "zelkova"]
    p = model.predict_proba(X)
    assert p.shape == (200, 4)
    assert (p[:, 3] < 0.05).all()
    assert np.isfinite(model.predict_log_proba(X)).all()
    model.partial_fit(X[100:], y[100:])
    told, untold = model, classifier().partial_fit(X, y)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_gaps_cost_little():
    X, y = three_classes(900, gaps=0.2)
    test, truth = three_classes(1500, seed=1)
    with_gaps = IncrementalGaussianMixtureClassifier().partial_fit(X, y)
    complete = IncrementalGaussianMixtureClassifier().partial_fit(*three_classes(900))
    assert with_gaps.score(test, truth) > complete.score(test, truth) - 0.03


@pytest.mark.parametrize("power", [-480, 480])
def test_units_do_not_matter(power):
    X, y = three_classes(300)
    unit = 2.0 ** np.array([power, 0, -power, 1])
    one, other = (IncrementalGaussianMixtureClassifier().partial_fit(Z, y) for Z in (X, X * unit))
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X * unit))


@pytest.mark.parametrize(("name", "accuracy", "log_loss"), [("glass", 66.0, 0.80), ("iris", 96.0, 0.12)])
def test_weka_sets(name, accuracy, log_loss):
    """Two of the seven sets of the FIGMN paper, five folds; benchmarks/weka.py has all."""
    data, p = datasets.load(name), np.empty(0)
    right = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(data.data, data.target):
        model = IncrementalGaussianMixtureClassifier().fit(data.data[train], data.target[train])
        found = model.predict_proba(data.data[test])
        truth = np.searchsorted(model.classes_, data.target[test])
        p = np.append(p, found[np.arange(len(test)), truth])
        right.extend(found.argmax(axis=1) == truth)
    assert 100 * np.mean(right) >= accuracy
    assert -np.log(p).mean() <= log_loss


# -- asking ----------------------------------------------------------------------------------------


def test_asking_changes_nothing_that_is_learned():
    X, y = three_classes(300)
    quiet, asked = (IncrementalGaussianMixtureClassifier() for _ in range(2))
    for start in range(0, 300, 50):
        part = slice(start, start + 50)
        quiet.partial_fit(X[part], y[part])
        asked.partial_fit(X[part], y[part]).predict(X[:5])
    assert dumps(quiet) == dumps(asked)


def test_experts_are_weighed_anew_when_rows_have_grown_by_a_quarter(monkeypatch):
    X, y = three_classes(300)
    model = IncrementalGaussianMixtureClassifier().partial_fit(X[:100], y[:100])
    weighed = []
    weigh = IncrementalGaussianMixtureClassifier._weigh
    monkeypatch.setattr(
        IncrementalGaussianMixtureClassifier, "_weigh", lambda self, *a: weighed.append(self._rows_) or weigh(self, *a)
    )
    for n in range(100, 140, 10):
        model.predict(X[:1])
        model.partial_fit(X[n : n + 10], y[n : n + 10])
    assert weighed == [100, 130]


def test_few_rows_are_answered_like_many():
    X, y = three_classes(200, gaps=0.1)
    model = IncrementalGaussianMixtureClassifier().fit(X, y)
    many = model.predict_proba(X[:20])
    assert np.allclose(np.concatenate([model.predict_proba(X[[i]]) for i in range(20)]), many, rtol=1e-9, atol=1e-12)


def test_the_work_of_weighing_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "WORK", 1)
    monkeypatch.setattr(module, "MIN_ROWS", 60)
    X, y = three_classes(300)
    model = IncrementalGaussianMixtureClassifier().fit(X, y)
    model.predict(X[:1])
    assert len(model._answers_.weighed.kernels.classes) <= 63


def test_no_row_need_be_kept():
    """Without rows the experts cannot be weighed: the classes are told apart nearly as well."""
    X, y = three_classes(2600)
    kept, none = (IncrementalGaussianMixtureClassifier(reservoir=size).fit(X[:2000], y[:2000]) for size in ("auto", 0))
    assert kept.keeps_rows_
    assert not none.keeps_rows_
    assert len(dumps(none)) < 0.6 * len(dumps(kept))
    assert none.score(X[2000:], y[2000:]) > kept.score(X[2000:], y[2000:]) - 0.02


# -- merging and files ------------------------------------------------------------------------------


@pytest.mark.parametrize("classifier", CLASSIFIERS)
@pytest.mark.parametrize("n", [150, 600])
def test_merging(classifier, n):
    """Models that are warming up, and others."""
    X, y = three_classes(n)
    test, truth = three_classes(1000, seed=1)
    parts = [classifier().partial_fit(X[i::3], y[i::3]) for i in range(3)]
    whole = classifier().partial_fit(X, y)
    merged = parts[0].merge(parts[1], parts[2])
    assert merged.n_samples_seen_ == n
    assert np.allclose(merged.class_count_, whole.class_count_)
    assert merged.score(test, truth) > whole.score(test, truth) - 0.03
    assert np.allclose(merged.predict_proba(test), parts[2].merge(*parts[:2]).predict_proba(test), atol=1e-8)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_merging_models_of_different_classes(classifier):
    X, y = three_classes(900)
    test, truth = three_classes(900, seed=1)
    parts = [classifier().partial_fit(X[y == label], y[y == label]) for label in ("cedar", "ash", "birch")]
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
        ("_class_counts_", lambda a: -a),
        ("_mixtures_", lambda mixtures: mixtures[:-1]),
        ("_mixtures_", lambda mixtures: tuple(mixtures)),
        ("_mixtures_", lambda mixtures: [None, *mixtures[1:]]),
        ("_mixtures_", lambda mixtures: [mixtures[1], *mixtures[1:]]),
        ("_rows_", lambda n: -1),
        ("_rows_", lambda n: n + 1),
        ("classes_", lambda a: a[:-1]),
        ("classes_", lambda a: a[::-1].copy()),
        ("classes_", lambda a: None),
    ],
)
def test_damaged_files_are_refused(name, change):
    model = IncrementalGaussianMixtureClassifier().fit(*three_classes(100))
    model._check_loaded()
    setattr(model, name, change(getattr(model, name)))
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
