"""tune: the best of several mixtures, by how each predicts the rows before it learns them."""

import numpy as np
import pytest

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError


def rows(n=800, seed=0):
    rng = np.random.default_rng(seed)
    centres = 4 * np.random.default_rng(42).normal(size=(6, 3))
    return centres[rng.integers(6, size=n)] + 0.2 * rng.normal(size=(n, 3))


def test_the_winner_is_the_candidate_with_the_best_score():
    model, results = everlearn.tune(rows())
    scores = [result["score"] for result in results]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1]
    assert {(r["delta"], r["beta"]) for r in results} == {(1.0, 0.5), (1.0, 0.1), (0.3, 0.1), (0.3, 0.001)}
    assert (model.delta, model.beta) == (results[0]["delta"], results[0]["beta"])
    assert results[0]["n_components"] == model.n_components_


def test_scores_are_prequential():
    """By hand: each row scored by the mixture of the rows before it, the first tenth left out."""
    X = rows(120)
    _, results = everlearn.tune(X, candidates=[{"beta": 0.1}], scale=[1.0, 2.0, 3.0])
    model, scores = IncrementalGaussianMixture(beta=0.1, scale=[1.0, 2.0, 3.0]), []
    for i, x in enumerate(X):
        if i >= 12:
            scores.append(model.score_samples(x[None])[0])
        model.partial_fit(x[None])
    assert results[0]["score"] == pytest.approx(np.mean(scores))


def test_with_a_second_look_scores_are_of_what_is_answered():
    """By hand: each tenth of the rows scored by the refined mixture of those before it."""
    X = rows(200)
    model, results = everlearn.tune(X, candidates=[{"beta": 0.1}], scale=2.0, second_look=True)
    told = [
        IncrementalGaussianMixture(beta=0.1, scale=2.0, second_look=True).fit(X[:n]).score(X[n : n + 20])
        for n in range(20, 200, 20)
    ]
    assert results[0]["score"] == pytest.approx(np.mean(told))
    same = IncrementalGaussianMixture(beta=0.1, scale=2.0, second_look=True).fit(X)
    assert np.array_equal(model.score_samples(X), same.score_samples(X))


def test_a_race_with_a_second_look_takes_rows_that_show_nothing():
    X = rows(100)
    X[:15] = np.nan
    assert np.isfinite(everlearn.tune(X, second_look=True).results[0]["score"])


def test_the_winner_is_fitted_and_goes_on():
    X = rows()
    model, _ = everlearn.tune(X, novelty_level=1e-3)
    same = IncrementalGaussianMixture(delta=model.delta, beta=model.beta, novelty_level=1e-3).fit(X)
    assert np.array_equal(model.score_samples(X[:50]), same.score_samples(X[:50]))
    assert model.partial_fit(X[:10]).n_samples_seen_ == 810


def test_the_winner_predicts_new_rows_better_than_the_default():
    X, held_out = rows(2000), rows(500, seed=1)
    model, results = everlearn.tune(X)
    assert results[0]["delta"] == 0.3
    assert model.score(held_out) > IncrementalGaussianMixture().fit(X).score(held_out)


def test_weights_and_gaps():
    X = rows(300)
    X[::5, 1] = np.nan
    X[7] = np.nan
    plain, weighted = everlearn.tune(X), everlearn.tune(X, sample_weight=np.linspace(1, 2, 300))
    assert np.isfinite([r["score"] for r in plain.results + weighted.results]).all()
    assert plain.results != weighted.results


def test_bad_candidates():
    with pytest.raises(InputError, match="candidates is empty"):
        everlearn.tune(rows(10), candidates=[])
    with pytest.raises(InputError, match="give a list"):
        everlearn.tune(rows(10), candidates={"delta": 1.0})
    with pytest.raises(InputError, match=r"no parameter 'gamma'.*delta"):
        everlearn.tune(rows(10), candidates=[{"gamma": 1.0}])
    with pytest.raises(InputError, match="no parameter 'colour'"):
        everlearn.tune(rows(10), colour="red")
    with pytest.raises(ValueError, match="'beta' parameter"):
        everlearn.tune(rows(10), candidates=[{"beta": 3.0}])
