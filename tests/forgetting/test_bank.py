"""The bank of horizons: what its decisions amount to with a model of one number."""

import math

import numpy as np
import pytest

from everlearn.errors import InputError
from everlearn.forgetting import bank as forgetting

HORIZONS = (5.0, 30.0, math.inf)


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


def run(stream, horizons=forgetting.HORIZONS, **options):
    state = forgetting.init(10.0, horizons)
    models = forgetting.start((10.0, 0.0, 10.0), state, HOOKS)
    means, infos = [], []
    for x in stream:
        infos.append(forgetting.step(state, models, float(x), HOOKS, **options)[1])
        slot, k = forgetting.best_member(state)
        means.append(models[slot][k][1])
    return np.array(means), infos, state, models


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
    assert still[-1].horizon >= 100
    assert drift[-1].horizon <= 10


def test_a_member_that_lags_starts_again_from_the_best():
    rng = np.random.default_rng(2)
    stream = np.concatenate([np.arange(300) * 0.2, np.full(300, 60.0)]) + rng.normal(0, 1, 600)
    _, infos, state, models = run(stream)
    assert infos[299].horizon <= 10
    assert infos[-1].horizon >= 100
    active = int(state.active[0])
    assert abs(models[active][-1][1] - 60.0) < 1.0  # the longest memory has let go of the drift


def test_the_previous_bank_is_kept_only_during_a_trial():
    rng = np.random.default_rng(3)
    stream = rng.normal(0, 1, 100)
    stream[50] = 60.0
    state = forgetting.init(10.0)
    models = forgetting.start((10.0, 0.0, 10.0), state, HOOKS)
    for t, x in enumerate(stream):
        forgetting.step(state, models, float(x), HOOKS)
        if state.trial_rows[0] == 0:
            assert sorted(map(len, models)) == [0, len(state.horizons)], t
        else:
            assert list(map(len, models)) == [len(state.horizons)] * 2


def test_horizons_grow_with_the_models_size_and_rows_have_weights():
    stream = np.random.default_rng(4).uniform(-2, 2, 400)
    _, _, small, _ = run(stream, HORIZONS)
    _, _, large, _ = run(stream, HORIZONS, size=3.0)
    _, _, heavy, _ = run(stream, HORIZONS, weight=2.0)
    active = [int(bank.active[0]) for bank in (small, large, heavy)]
    np.testing.assert_allclose(small.n_eff[active[0]], [5, 30, 410])
    np.testing.assert_allclose(large.n_eff[active[1]], [15, 90, 410])
    np.testing.assert_allclose(heavy.n_eff[active[2]], [5, 30, 810])


def test_changes_on_record_are_bounded():
    state = forgetting.init(10.0, HORIZONS, max_changes=3)
    state.changes[:], state.n_changes[0] = [40, 50, 30], 5
    assert list(forgetting.accepted_changes(state)) == [30, 40, 50]
    state.n_changes[0] = 2
    assert list(forgetting.accepted_changes(state)) == [40, 50]


@pytest.mark.parametrize("horizons", [(), (1.0, 5.0), (10.0, 5.0), (5.0, 5.0), (5.0, math.nan)])
def test_horizons_that_make_no_sense_are_refused(horizons):
    with pytest.raises(InputError, match="rising order"):
        forgetting.init(10.0, horizons)


def test_a_bank_of_one_member():
    state = forgetting.init(10.0, (math.inf,))
    assert state.log_prior[0] == 0.0
