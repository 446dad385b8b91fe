"""The bank of memories: its decisions against a twin, and what they amount to with a model of one number."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.errors import InputError
from everlearn.forgetting import bank as forgetting
from everlearn.forgetting.kernels import bank as rules
from naive import Bank

CAPS = (5.0, 30.0, math.inf)


# -- a model of one number: mean and variance of the past, as a Student distribution -----------------


def learn(model, x, lam):
    n, mean, squares = lam * model[0], model[1], lam * model[2]
    return n + 1, mean + (x - mean) / (n + 1), squares + (x - mean) ** 2 * n / (n + 1)


def score(model, x, lam):
    n, mean, squares = lam * model[0], model[1], lam * model[2]
    nu, scale = n + 1, (squares + 1) / (n + 1) * (1 + 1 / n)
    constant = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi * scale)
    return constant - (nu + 1) / 2 * math.log1p((x - mean) ** 2 / (nu * scale))


def reset(model, lam):
    return lam * model[0], model[1], lam * model[2]


def background(model, x):
    return -0.5 * math.log(2 * math.pi * 400) - x * x / 800


HOOKS = forgetting.Hooks(learn, score, reset, lambda model: model, background)


def run(stream, caps=forgetting.CAPS, **options):
    state = forgetting.init(10.0, caps)
    models = forgetting.start((10.0, 0.0, 10.0), state, HOOKS)
    means, infos = [], []
    for x in stream:
        infos.append(forgetting.step(state, models, float(x), HOOKS, **options))
        slot, k = forgetting.answer(state)
        means.append(models[slot][k][1])
    return np.array(means), infos, state, models


# -- decisions --------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.floats(0.5, 8.0), st.floats(-12.0, 0.0))
def test_decisions_are_the_twins(seed, spread, background):
    """Random scores, wild enough that trials begin and end in every way."""
    rng = np.random.default_rng(seed)
    state, twin = forgetting.init(10.0, CAPS), Bank(CAPS)
    for _ in range(120):
        scores = np.clip(spread * rng.standard_t(2, size=(2, len(CAPS))) - 6.0, -80.0, 0.0)
        active = int(state.control[rules.ACTIVE])
        bits = rules.decide(
            state.control, state.evidence, state.changes, state.log_prior, state.log_weights, scores, background
        )
        assert bits == twin.step(scores[active], scores[1 - active], background)
        active = int(state.control[rules.ACTIVE])
        if bits & rules.LEARN:
            marked = np.zeros(len(CAPS), dtype=bool)
            rules.reseed(state.log_weights[active], state.caps, marked)
            assert (marked == twin.reseeded()).all()
        np.testing.assert_allclose(np.exp(state.log_weights[active]), twin.w, rtol=1e-9)
    assert list(forgetting.accepted_changes(state)) == twin.changes
    assert state.control[rules.ROWS] == 120


def test_every_way_a_trial_ends():
    """The twin's test is worth something only if these happen."""
    rng = np.random.default_rng(0)
    state, seen = forgetting.init(10.0, CAPS), set()
    for _ in range(20_000):
        before = state.control.copy()
        scores = np.clip(3.0 * rng.standard_t(2, size=(2, len(CAPS))) - 6.0, -80.0, 0.0)
        bits = rules.decide(
            state.control, state.evidence, state.changes, state.log_prior, state.log_weights, scores, rng.uniform(-9, 0)
        )
        if before[rules.TRIAL]:
            ended = state.control[rules.TRIAL] == 0
            restored = state.control[rules.ACTIVE] != before[rules.ACTIVE]
            seen.add((ended, restored and ended, bool(before[rules.TRIAL] == 1), int(bits)))
    assert {(True, True, False, 1), (True, True, False, 0), (True, False, False, 1)} <= seen  # early
    assert {(True, True, True, 1), (True, False, True, 1)} <= seen  # at the end of the window
    assert {(False, False, False, 3), (False, False, False, 1)} <= seen  # going on, with and without the stash


def first_step(score, background, quiet=1000):
    """The bits and the log-odds against a change for a row after many quiet ones."""
    state = forgetting.init(10.0, CAPS)
    state.control[rules.ROWS] = quiet - 1
    bits = rules.decide(
        state.control,
        state.evidence,
        state.changes,
        state.log_prior,
        state.log_weights,
        np.full((2, 3), score),
        background,
    )
    return bits, state.evidence[0]


def test_a_row_on_trial_is_learned_by_the_old_bank_unless_it_is_an_outlier():
    """Else every row in the tails would be lost, and the noise found too small."""
    assert first_step(-6.0, -5.0)[0] == rules.LEARN
    assert first_step(-8.0, -5.0)[0] == rules.LEARN | rules.CHANGE | rules.LEARN_STASH
    assert first_step(-12.0, -5.0)[0] == rules.LEARN | rules.CHANGE


def test_a_change_is_believed_less_the_longer_there_was_none():
    """The odds against it are (0.99 p(x) + 0.01 b(x)) / b(x) times n/e after n quiet rows; never below even ones."""
    for quiet in (100, 1000, 10_000):
        odds = (0.99 * np.exp(-8.0) + 0.01 * np.exp(-5.0)) / np.exp(-5.0) * quiet / np.e
        assert first_step(-8.0, -5.0, quiet)[1] == pytest.approx(np.log(odds))
    assert first_step(-20.0, -5.0, 30)[1] == 0.0


@given(st.floats(0.05, 1e9), st.floats(1.5, 1e6), st.floats(0.1, 1.4))
def test_memory_fills_and_stays_full(n_eff, cap, weight):
    lam = rules.forgetting_factor(n_eff, cap, weight)
    assert 0.0 <= lam <= 1.0
    assert lam * n_eff + weight <= max(cap, weight) * (1 + 1e-12)
    if n_eff + weight <= cap:
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


# -- what they amount to ----------------------------------------------------------------------------


def test_a_change_is_accepted_and_an_outlier_is_not():
    rng = np.random.default_rng(0)
    stream = np.concatenate([rng.normal(0, 1, 300), rng.normal(20, 1, 300)])
    stream[150] = 60.0
    means, infos, state, _ = run(stream)
    assert list(forgetting.accepted_changes(state)) == [300]
    suspected = [t for t, info in enumerate(infos) if info.suspected]
    assert {150, 300} <= set(suspected)
    assert len(suspected) <= 6  # one row in a hundred
    assert abs(means[150:165]).max() < 0.5  # the old bank answers through the outlier
    assert abs(means[306:] - 20).max() < 1.5


def test_stationary_streams_use_a_long_memory_and_drifting_ones_a_short_one():
    rng = np.random.default_rng(1)
    _, still, _, _ = run(rng.normal(0, 1, 1000))
    _, drift, _, _ = run(np.arange(1000) * 0.2 + rng.normal(0, 1, 1000))
    assert still[-1].memory >= 100
    assert drift[-1].memory <= 10


def test_a_member_that_lags_starts_again_from_the_best():
    rng = np.random.default_rng(2)
    stream = np.concatenate([np.arange(300) * 0.2, np.full(300, 60.0)]) + rng.normal(0, 1, 600)
    _, infos, state, models = run(stream)
    assert infos[299].memory <= 10
    assert infos[-1].memory >= 100
    active = int(state.control[rules.ACTIVE])
    assert abs(models[active][-1][1] - 60.0) < 1.0  # the longest memory has let go of the drift


def test_the_stash_is_kept_only_during_a_trial():
    rng = np.random.default_rng(3)
    stream = rng.normal(0, 1, 100)
    stream[50] = 60.0
    state = forgetting.init(10.0)
    models = forgetting.start((10.0, 0.0, 10.0), state, HOOKS)
    for t, x in enumerate(stream):
        forgetting.step(state, models, float(x), HOOKS)
        if state.control[rules.TRIAL] == 0:
            assert sorted(map(len, models)) == [0, len(state.caps)], t
        else:
            assert list(map(len, models)) == [len(state.caps)] * 2


def test_caps_grow_with_the_models_size_and_rows_have_weights():
    stream = np.random.default_rng(4).uniform(-2, 2, 400)
    _, _, small, _ = run(stream, CAPS)
    _, _, large, _ = run(stream, CAPS, size=3.0)
    _, _, heavy, _ = run(stream, CAPS, weight=2.0)
    active = [int(bank.control[rules.ACTIVE]) for bank in (small, large, heavy)]
    np.testing.assert_allclose(small.n_eff[active[0]], [5, 30, 410])
    np.testing.assert_allclose(large.n_eff[active[1]], [15, 90, 410])
    np.testing.assert_allclose(heavy.n_eff[active[2]], [5, 30, 810])


def test_changes_on_record_are_bounded():
    state = forgetting.init(10.0, CAPS, max_changes=3)
    state.changes[:], state.control[rules.CHANGES] = [40, 50, 30], 5
    assert list(forgetting.accepted_changes(state)) == [30, 40, 50]
    state.control[rules.CHANGES] = 2
    assert list(forgetting.accepted_changes(state)) == [40, 50]


@pytest.mark.parametrize("caps", [(), (1.0, 5.0), (10.0, 5.0), (5.0, 5.0), (5.0, math.nan)])
def test_caps_that_make_no_sense_are_refused(caps):
    with pytest.raises(InputError, match="rising order"):
        forgetting.init(10.0, caps)


def test_a_bank_of_one_member():
    state = forgetting.init(10.0, (math.inf,))
    assert state.log_prior[0] == 0.0
