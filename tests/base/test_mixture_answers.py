"""Questions to any mixture, against one Gaussian whose answers are known in closed form."""

import numpy as np
import pandas as pd
import pytest

from everlearn import FIGMN
from everlearn.base import mixture_answers
from everlearn.errors import InputError


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) @ np.array([[2.0, 1.0, 0.0], [0.0, 1.0, -1.0], [0.0, 0.0, 0.5]]) + [10.0, 0.0, -3.0]
    return FIGMN(max_components=1).fit(pd.DataFrame(X, columns=["a", "b", "c"]))


def gaussian_given(model, known, target, values):
    """Mean and covariance of some columns of one Gaussian given others."""
    mu, C = model.means_[0], model.covariances_[0]
    slope = C[np.ix_(target, known)] @ np.linalg.inv(C[np.ix_(known, known)])
    return mu[target] + slope @ (values - mu[known]), C[np.ix_(target, target)] - slope @ C[np.ix_(known, target)]


def test_any_columns_are_predicted_from_any_others(model):
    expected, cov = gaussian_given(model, [2], [1, 0], np.array([-2.0]))
    mean, std, found, (low, high) = model.predict_columns(
        [[-2.0]], ["b", "a"], given="c", return_std=True, return_cov=True, interval=0.9
    )
    np.testing.assert_allclose(mean[0], expected, rtol=1e-6)
    np.testing.assert_allclose(found[0], cov, rtol=1e-6)
    np.testing.assert_allclose(std[0], np.sqrt(np.diag(cov)), rtol=1e-6)
    np.testing.assert_allclose((high - low)[0], 2 * 1.644854 * np.sqrt(np.diag(cov)), rtol=1e-5)
    # By number, and in whole rows whose target is not looked at: the same question.
    whole = pd.DataFrame([[777.0, np.nan, -2.0]], columns=["a", "b", "c"])
    np.testing.assert_allclose(model.predict_columns(whole, [0])[0], expected[1], rtol=1e-9)
    np.testing.assert_allclose(model.condition([[-2.0]], given=2, target=[1, 0]).mean()[0], expected, rtol=1e-6)


def test_answers_in_parts_are_the_whole_answer(model, monkeypatch):
    X = np.random.default_rng(1).normal(size=(50, 1))
    whole = model.predict_columns(X, "a", given="b", return_std=True)
    monkeypatch.setattr(mixture_answers, "PART", 40)
    for part, expected in zip(model.predict_columns(X, "a", given="b", return_std=True), whole, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_gaps_are_filled_and_what_was_observed_stays(model):
    X = pd.DataFrame([[12.0, np.nan, -3.5], [9.0, 1.0, -2.0]], columns=["a", "b", "c"], index=[7, 3])
    filled, std = model.impute(X, return_std=True)
    mean, cov = gaussian_given(model, [0, 2], [1], np.array([12.0, -3.5]))
    assert filled.loc[7, "b"] == pytest.approx(mean[0], rel=1e-6)
    assert std.loc[7, "b"] == pytest.approx(np.sqrt(cov[0, 0]), rel=1e-6)
    assert filled.loc[3].tolist() == [9.0, 1.0, -2.0]
    assert std.loc[3].tolist() == [0.0, 0.0, 0.0]


def test_draws_have_the_moments_of_the_condition(model):
    mean, cov = gaussian_given(model, [0], [1, 2], np.array([14.0]))
    drawn = model.sample_columns([[14.0]], ["b", "c"], given="a", n_samples=40_000, random_state=0)[0]
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=0.04)


def test_information_criteria_count_the_parameters_of_a_gaussian(model):
    """Three means and six covariances; a single component has no free weight."""
    X = pd.DataFrame(np.random.default_rng(2).normal(size=(40, 3)), columns=["a", "b", "c"])
    fit = -2 * model.score_samples(X).sum()
    assert model.aic(X) - fit == pytest.approx(2 * 9)
    assert model.bic(X) - fit == pytest.approx(9 * np.log(40))


def test_rows_are_scored_before_they_are_learned():
    X = np.random.default_rng(3).normal(size=(700, 2))
    model, twin = FIGMN().fit(X[:600]), FIGMN().fit(X[:600])
    expected = twin.score_samples(X[600:601])
    np.testing.assert_allclose(model.prequential(X[600:])[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(model.score_samples(X), twin.partial_fit(X[600:]).score_samples(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("X", "question", "message"),
    [
        ([[0.0] * 3], {}, "Say which columns to ask for"),
        ([[0.0]], {"given": "a", "target": "a"}, "must be different columns"),
        ([[0.0] * 3], {"given": [0, 1, 2]}, "target not empty"),
        ([[0.0, 1.0]], {"given": "a"}, "X has 2 columns, given names 1"),
        (pd.DataFrame({"c": [0.0]}), {"given": "a"}, r"X has the columns \['c'\], given names \['a'\]"),
        ([[0.0]], {"given": "a", "target": "z"}, "target holds 'z'"),
    ],
)
def test_questions_that_make_no_sense_are_refused(model, X, question, message):
    with pytest.raises(InputError, match=message):
        model.condition(X, **question)
