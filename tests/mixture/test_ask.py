"""Answers of full and diagonal mixtures beside dense matrices, and which model it is that answers."""

import numpy as np
import pytest

import naive
from everlearn.mixture import ask, learn
from everlearn.mixture.ask import Asked
from everlearn.mixture.learn import Progress
from mixture_toys import groups, settings_for

D, M, WARMUP = 3, 300, 60
UNITS = np.array([1.0, 2.0**20, 2.0**-13])
X = groups(np.random.default_rng(1), 500, D, 3, apart=8.0)[0] * UNITS + 7.0 * UNITS


def settings_of(diagonal=False, **changes):
    return settings_for(D, warmup=WARMUP, threshold=40.0, diagonal=diagonal, **changes)


def learned(rows, settings):
    state, progress = learn.init(D, M, settings), Progress()
    state, _ = learn.learn(state, rows, np.ones(len(rows)), settings, progress)
    return state, progress


def looked(rows, settings):
    return ask.answering_state(*_with(learned(rows, settings), settings), Asked())


def _with(found, settings):
    state, progress = found
    return state, settings, progress


@pytest.fixture(scope="module", params=[False, True], ids=["full", "diagonal"])
def look(request):
    return looked(X[:220], settings_of(request.param))


def matrices(mixture):
    """Weights, means and covariances as matrices."""
    weights, means, covariances = mixture
    return weights, means, np.array([np.diag(C) if C.ndim == 1 else C for C in covariances])


@pytest.mark.parametrize("rows", [slice(300, 310), slice(300, 301)])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_densities_are_those_of_dense_matrices(look, rows, gaps):
    asked = X[rows].copy()
    asked[np.random.default_rng(2).random(asked.shape) < gaps] = np.nan
    wanted = np.logaddexp.reduce(naive.log_joint_with_gaps(asked, *matrices(ask.whole_mixture(look))), axis=1)
    np.testing.assert_allclose(ask.log_density(look, asked), wanted, rtol=1e-8, atol=1e-8)


def test_responsibilities_are_shares_of_the_components_that_are_shown(look):
    joint = naive.log_joint_with_gaps(X[300:320], *matrices(ask.components_mixture(look)))
    wanted = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    np.testing.assert_allclose(ask.responsibilities(look, X[300:320]), wanted, atol=1e-9)


def test_components_are_the_groups_in_the_units_of_the_data(look):
    mixture = ask.components_mixture(look)
    centres = np.array([X[:220][np.arange(220) % 3 == k].mean(axis=0) for k in range(3)])
    assert len(mixture.weights) == 3
    assert mixture.weights.sum() == pytest.approx(1.0)
    distance = np.abs((mixture.means[:, None] - centres) / UNITS).max(axis=2)
    assert sorted(distance.argmin(axis=1)) == [0, 1, 2]
    assert distance.min(axis=1).max() < 0.3


def test_the_scaled_mixture_is_the_whole_one_in_other_units(look):
    scaled, scale = ask.scaled_mixture(look)
    whole = matrices(ask.whole_mixture(look))
    np.testing.assert_allclose(scaled.means * scale, whole[1])
    np.testing.assert_allclose(matrices(scaled)[2] * scale * scale[:, None], whole[2])
    assert np.abs(matrices(scaled)[2]).max() < 1e6


def test_the_background_counts_for_little_and_is_broad(look):
    whole, shown = matrices(ask.whole_mixture(look)), ask.components_mixture(look)
    assert len(whole[0]) == len(shown.weights) + 1
    assert whole[0][-1] == pytest.approx(0.5 / 220.5)
    variances = X[:220].var(axis=0)
    np.testing.assert_allclose(np.diagonal(whole[2][-1]) / variances, ask.BACKGROUND_SPREAD, rtol=0.1)


def test_modes_of_separate_groups_are_their_own(look):
    assert len(np.unique(ask.modes_of_components(look))) == 3


def test_a_lone_row_opens_a_component_that_is_shown_once_it_has_company():
    # Of 60 rows, a component for two of the groups is worth its price as well.
    settings = settings_of()._replace(warmup=120)
    far = np.array([[90.0, -90.0, 90.0]]) * UNITS
    state, progress = learned(X[:160], settings)
    counts = []
    for _ in range(4):
        state, _ = learn.learn(state, far, np.ones(1), settings, progress)
        look = ask.components_as_they_are(state, settings, progress)
        counts.append((int(look.model.components.size[0]), len(ask.shown_components(look))))
    assert counts == [(4, 3), (4, 3), (4, 4), (4, 4)]


def test_a_question_changes_nothing_of_the_state():
    settings = settings_of()
    state, progress = learned(X[:170], settings)
    before = [array.copy() for array in (*state.model.components, *state.reservoir, state.pending.rows)]
    look = ask.answering_state(state, settings, progress, Asked())
    ask.log_density(look, X[:5])
    for old, new in zip(before, (*state.model.components, *state.reservoir, state.pending.rows), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_question_is_a_search_of_its_own_only_after_a_twentieth_more_rows():
    settings, asked = settings_of(), Asked()
    state, progress = learned(X[:100], settings)
    first = ask.answering_state(state, settings, progress, asked)
    assert first.looked == 100
    state, _ = learn.learn(state, X[100:102], np.ones(2), settings, progress)
    ask.follow(asked, X[100:102], np.ones(2), settings, state)
    second = ask.answering_state(state, settings, progress, asked)
    assert second is first
    # It has learned the rows meanwhile.
    assert second.model.components.total[0] == pytest.approx(102.0)
    state, _ = learn.learn(state, X[102:109], np.ones(7), settings, progress)
    ask.follow(asked, X[102:109], np.ones(7), settings, state)
    assert ask.answering_state(state, settings, progress, asked).looked == 109


def test_questions_during_the_warm_up_work_a_search_out_in_slices():
    settings, asked = settings_of(), Asked()
    state, progress = learn.init(D, M, settings), Progress()
    looks = []
    for t in range(WARMUP - 5):
        state, _ = learn.learn(state, X[t : t + 1], np.ones(1), settings, progress)
        ask.follow(asked, X[t : t + 1], np.ones(1), settings, state)
        for _ in range(12):  # each question works on the search that was begun when the rows had doubled
            looks.append(ask.answering_state(state, settings, progress, asked).looked)
    assert looks[0] == 1
    assert (np.diff(looks) >= 0).all()
    assert looks[-1] >= 18
    assert ask.components_as_they_are(state, settings, progress) is None


def test_an_old_look_goes_when_a_search_has_replaced_the_components():
    settings, asked = settings_of(), Asked()
    state, progress = learned(X[:120], settings)
    ask.answering_state(state, settings, progress, asked)
    state, _ = learn.learn(state, X[120:160], np.ones(40), settings, progress)
    ask.follow(asked, X[120:160], np.ones(40), settings, state)
    assert asked.look is None
