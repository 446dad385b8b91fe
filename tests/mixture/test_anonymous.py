"""What could be read from a mixture about single rows, and copies from which it cannot."""

import numpy as np
import pytest

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError
from everlearn.mixture import anonymous
from everlearn.mixture.keep import carry
from everlearn.mixture.keep.reconsider import refreshed

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(800, 3)), RNG.normal(9.0, 1.0, (700, 3))])[RNG.permutation(1500)]
X[700] = [60.0, -40.0, 30.0]  # lies far out: opens a component of its own
X[900:906] = RNG.normal([-30.0, 30.0, 0.0], 1.0, (6, 3))


@pytest.fixture(scope="module")
def model():
    return IncrementalGaussianMixture().partial_fit(X)


def held(content):
    """All numbers of eight bytes that the file could hold, at any place."""
    found = [np.frombuffer(content[at : at + (len(content) - at) // 8 * 8], "<f8") for at in range(8)]
    return np.unique(np.concatenate(found))


def test_what_is_inside(model):
    found = model.privacy()
    assert found.rows == 1500
    assert found.small >= 1
    assert not found.is_aggregated
    lone = IncrementalGaussianMixture(reservoir=0).partial_fit(X)
    lone.partial_fit([[500.0, 500.0, -500.0]])
    found = lone.privacy()
    assert found.rows == 0
    assert found.single == 1
    assert any("their means are rows" in sentence for sentence in found.sentences())


@pytest.mark.parametrize("parameters", [{}, {"reservoir": 0}, {"forgetting": 0.9999}, {"covariance_type": "diag"}])
def test_a_copy_without_rows(parameters):
    model = IncrementalGaussianMixture(**parameters).partial_fit(X)
    before = everlearn.dumps(model)
    copy = model.anonymised(min_rows=20)
    assert everlearn.dumps(model) == before
    assert copy.privacy(20).is_aggregated
    assert not copy.keeps_rows_
    assert copy.events_ == []
    assert copy.n_samples_seen_ == 1500
    content = everlearn.dumps(copy)
    inside = (X - copy._state_.frame.centre) * copy._state_.frame.inverse
    for values in (X, inside):
        assert not np.isin(values.ravel(), held(content)).any()
        assert not any(row.astype(np.float32).tobytes() in content for row in values)
    # No mean comes near the outlier, and the large groups are as they were.
    assert np.abs(copy.means_ - X[700]).max(axis=1).min() > 10.0
    usual = X[np.abs(X - 4.5).max(axis=1) < 12.0]
    assert copy.score(usual) > model.score(usual) - 1.0
    everlearn.loads(content).partial_fit(X)


def test_moments_of_all_rows_stay(model):
    copy = model.anonymised(min_rows=300)
    state, new = model._state_, copy._state_
    whole = [carry.sum_of(carry.stock_of_components(refreshed(s.model).components)) for s in (state, new)]
    centre = [s.means[0] / f.inverse + f.centre for s, f in zip(whole, (state.frame, new.frame), strict=True)]
    np.testing.assert_allclose(centre[0], centre[1], rtol=1e-6)
    assert whole[0].mass[0] == pytest.approx(whole[1].mass[0])


def test_the_smallest_is_joined_with_its_nearest(model):
    stock = carry.Stock(
        np.array([500.0, 400.0, 5.0]), np.array([500.0, 400.0, 5.0]),
        np.array([[0.0, 0.0, 0.0], [3.0, 3.0, 3.0], [2.8, 2.8, 2.8]]),
        np.eye(3)[None] * np.array([500.0, 400.0, 5.0])[:, None, None] * 0.01,
    )  # fmt: skip
    joined = anonymous.joined_small(stock, model._state_.model, 20)
    np.testing.assert_allclose(np.sort(joined.counts), [405.0, 500.0])


def test_too_few_rows():
    young = IncrementalGaussianMixture().partial_fit(X[:30])
    assert young.anonymised(20).privacy(20).is_aggregated
    with pytest.raises(InputError, match="has learned 30 rows"):
        young.anonymised(40)
    with pytest.raises(InputError, match="min_rows"):
        young.anonymised(1)


def test_other_models_say_what_they_hold():
    for model in (everlearn.OnlinePPCA(1), everlearn.VariationalPPCA(1), everlearn.FIGMN()):
        model.partial_fit(X[:4])
        assert model.privacy().rows == (4 if model.keeps_rows_ else 0)
        with pytest.raises(InputError, match="has no copy without its rows"):
            model.anonymised()


def no_row_in(model, rows):
    content = everlearn.dumps(model)
    return not np.isin(rows.ravel(), held(content)).any() and not any(row.tobytes() in content for row in rows)


def test_a_regressor_without_rows():
    y = X @ [1.0, -2.0, 0.5] + RNG.normal(size=len(X))
    model = everlearn.IncrementalGaussianMixtureRegressor().fit(X, y)
    assert model.keeps_rows_
    assert model.privacy().rows == len(X)
    copy = model.anonymised(min_rows=20)
    assert copy.privacy(20).is_aggregated
    assert not copy.keeps_rows_
    assert no_row_in(copy, np.column_stack([X, y]))
    usual = np.abs(X - 4.5).max(axis=1) < 12.0
    assert copy.score(X[usual], y[usual]) > model.score(X[usual], y[usual]) - 0.02
    assert copy.n_samples_seen_ == len(X)
    assert not everlearn.loads(everlearn.dumps(copy)).partial_fit(X, y).keeps_rows_


def test_a_classifier_without_rows_and_without_classes_of_few():
    rng = np.random.default_rng(1)
    y = np.array(["hot", "cold"])[rng.integers(2, size=600)]
    rows = rng.normal(size=(600, 3)) + 3.0 * (y == "hot")[:, None]
    y[:5] = "rare"
    model = everlearn.IncrementalGaussianMixtureClassifier().fit(rows, y)
    with pytest.warns(UserWarning, match="1 of 3 classes have fewer than 20 rows") as said:
        copy = model.anonymised(min_rows=20)
    assert "rare" not in str(said[0].message)
    assert list(copy.classes_) == ["cold", "hot"]
    assert copy.privacy(20).is_aggregated
    assert not copy.keeps_rows_
    assert no_row_in(copy, rows)
    assert copy.score(rows[5:], y[5:]) > model.score(rows[5:], y[5:]) - 0.02
    assert copy.n_samples_seen_ == 595
    assert list(everlearn.loads(everlearn.dumps(copy)).partial_fit(rows, y).classes_) == ["cold", "hot", "rare"]
    assert model.privacy().rows == 600
    with pytest.raises(InputError, match="No class has 500 rows"):
        model.anonymised(min_rows=500)


def test_a_detector_counts_rows_once_and_says_what_to_do():
    detector = everlearn.AnomalyDetector().partial_fit(X[:400])
    assert detector.privacy().rows == 400
    with pytest.raises(InputError, match=r"model\.mixture_\.anonymised"):
        detector.anonymised()
    assert detector.mixture_.anonymised().privacy().is_aggregated
