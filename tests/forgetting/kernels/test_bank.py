"""The decisions of a bank of horizons against a twin."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.forgetting import bank as forgetting
from everlearn.forgetting.kernels import bank as rules
from naive import Bank

HORIZONS = (5.0, 30.0, math.inf)


@given(st.integers(0, 10**6), st.floats(0.5, 8.0), st.floats(-12.0, 0.0))
def test_decisions_are_the_twins(seed, spread, background):
    """Random scores, wild enough that trials begin and end in every way."""
    rng = np.random.default_rng(seed)
    state, twin = forgetting.init(10.0, HORIZONS), Bank(HORIZONS)
    for _ in range(120):
        scores = np.clip(spread * rng.standard_t(2, size=(2, len(HORIZONS))) - 6.0, -80.0, 0.0)
        active = int(state.active[0])
        bits = rules.decide(state, scores, background)
        assert bits == twin.step(scores[active], scores[1 - active], background)
        active = int(state.active[0])
        if bits & rules.LEARN:
            marked = np.zeros(len(HORIZONS), dtype=bool)
            rules.reseed(state.log_weights[active], state.horizons, marked)
            assert (marked == twin.reseeded()).all()
        np.testing.assert_allclose(np.exp(state.log_weights[active]), twin.w, rtol=1e-9)
    assert list(forgetting.accepted_changes(state)) == twin.changes
    assert state.n_rows[0] == 120


def test_every_way_a_trial_ends():
    """The twin's test is worth something only if these happen."""
    rng = np.random.default_rng(0)
    state, seen = forgetting.init(10.0, HORIZONS), set()
    for _ in range(20_000):
        trial, active = int(state.trial_rows[0]), int(state.active[0])
        scores = np.clip(3.0 * rng.standard_t(2, size=(2, len(HORIZONS))) - 6.0, -80.0, 0.0)
        bits = rules.decide(state, scores, rng.uniform(-9, 0))
        if trial:
            ended = state.trial_rows[0] == 0
            restored = state.active[0] != active
            seen.add((ended, restored and ended, trial == 1, int(bits)))
    assert {(True, True, False, 1), (True, True, False, 0), (True, False, False, 1)} <= seen  # early
    assert {(True, True, True, 1), (True, False, True, 1)} <= seen  # at the end of the window
    assert {(False, False, False, 3), (False, False, False, 1)} <= seen  # going on, with and without the previous bank


def first_step(score, background, quiet=1000):
    """The bits and the log-odds against a change for a row after many quiet ones."""
    state = forgetting.init(10.0, HORIZONS)
    state.n_rows[0] = quiet - 1
    bits = rules.decide(state, np.full((2, 3), score), background)
    return bits, state.log_odds[0]


def test_a_row_on_trial_is_learned_by_the_old_bank_unless_it_is_an_outlier():
    """Else every row in the tails would be lost, and the noise found too small."""
    assert first_step(-6.0, -5.0)[0] == rules.LEARN
    assert first_step(-8.0, -5.0)[0] == rules.LEARN | rules.CHANGE | rules.LEARN_PREVIOUS
    assert first_step(-12.0, -5.0)[0] == rules.LEARN | rules.CHANGE


def test_a_change_is_believed_less_the_longer_there_was_none():
    """The odds against it are (0.99 p(x) + 0.01 b(x)) / b(x) times n/e after n quiet rows; never below even ones."""
    for quiet in (100, 1000, 10_000):
        odds = (0.99 * np.exp(-8.0) + 0.01 * np.exp(-5.0)) / np.exp(-5.0) * quiet / np.e
        assert first_step(-8.0, -5.0, quiet)[1] == pytest.approx(np.log(odds))
    assert first_step(-20.0, -5.0, 30)[1] == 0.0


@given(st.floats(0.05, 1e9), st.floats(1.5, 1e6), st.floats(0.1, 1.4))
def test_memory_fills_and_stays_full(n_eff, horizon, weight):
    lam = rules.forgetting_factor(n_eff, horizon, weight)
    assert 0.0 <= lam <= 1.0
    assert lam * n_eff + weight <= max(horizon, weight) * (1 + 1e-12)
    if n_eff + weight <= horizon:
        assert lam == 1.0


@given(st.lists(st.floats(-700, 700), min_size=3, max_size=3))
def test_weights_stay_normalised(scores):
    log_prior = np.log([0.25, 0.25, 0.5])
    log_weights = log_prior.copy()
    rules.reweigh(log_weights, log_prior, np.array(scores))
    assert np.exp(log_weights).sum() == pytest.approx(1.0)
    assert (np.exp(log_weights) >= 0.00025 * (1 - 1e-9)).all()


def test_scores_of_minus_infinity_change_no_weight():
    log_prior = np.log([0.5, 0.5])
    log_weights = np.log([0.3, 0.7])
    rules.reweigh(log_weights, log_prior, np.full(2, -np.inf))
    np.testing.assert_array_equal(log_weights, np.log([0.3, 0.7]))
