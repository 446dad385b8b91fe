"""The low-rank core: settings from parameters, what is counted of rows, and what a row is told to be."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import chdtrc

from everlearn.errors import InputError
from everlearn.low_rank.core import LowRankCore
from everlearn.monitoring.event_log import UNWATCHED
from low_rank_toys import one

D = 24


def core(**changes):
    parameters = {
        "reservoir": 100, "max_components": "auto", "forgetting": None, "rank": 3, "n_components": None,
        "novelty_level": 1e-3,
    }  # fmt: skip
    return LowRankCore.of(changes.pop("columns", D), SimpleNamespace(**parameters | changes), seed=0)


def learned(core, X, weights=None, state=None):
    weights = np.ones(len(X)) if weights is None else weights
    return core.learn(core.init(X.shape[1], None) if state is None else state, X, weights, UNWATCHED)


def rows(n, seed=0, outlier=None):
    X = one(np.random.default_rng(seed), n, D) + 4.0
    if outlier is not None:
        X[outlier] += 60.0
    return X


@pytest.mark.parametrize("columns", [8, 256, 3000, 100_000])
def test_memory_is_bounded_for_any_number_of_columns(columns):
    settings = core(columns=columns, reservoir="auto", rank="auto").settings
    assert 1 <= settings.rank <= 16
    assert settings.reservoir * columns * 4 <= max(2**25, 500 * columns * 4)
    assert settings.most * columns * (2 * settings.rank + 3) <= max(2**24, columns * (2 * settings.rank + 3))
    assert settings.rank < settings.warmup <= settings.reservoir


@pytest.mark.parametrize(
    ("columns", "kept"), [(2, 8000), (256, 8000), (784, 2674), (1100, 2000), (4194, 2000), (10_000, 838), (50_000, 500)]
)
def test_the_rows_kept_fit_8_mib_but_2000_unless_they_take_more_than_32(columns, kept):
    assert core(columns=columns, reservoir="auto").settings.reservoir == kept


def test_settings_follow_the_parameters():
    assert core(rank=7, n_components=5, max_components=9).settings[:1] == (7,)
    assert core(n_components=5).settings.fixed == 5
    assert core(max_components=9).settings.most == 9
    remembers = core(forgetting=0.999).settings
    assert (remembers.fading, remembers.interval) == (0.999, 1000)
    without = core(reservoir=0).settings
    assert (without.quota, without.room, without.warmup) == (1, 0, 500)


@pytest.mark.parametrize("n", [0, 20, 340])
def test_rows_and_weights_are_counted_during_the_warm_up_and_after(n):
    own, weights = core(), np.random.default_rng(1).uniform(0.5, 2.0, n)
    state = own.init(D, None)
    if n:
        # A late row far from all others is put aside, and counts all the same.
        state, _ = learned(own, rows(n, outlier=slice(335, 336)), weights)
        assert n < 335 or state.model.room.size[0] > 0
    assert own.rows_seen(state) == n
    assert own.effective_samples(state) == pytest.approx(weights.sum())
    assert own.keeps_rows(state) == (n > 0)
    # Each row once among those that wait or are strange, and the sample of a hundred.
    assert own.rows_inside(state) <= n + 100
    assert len(own.rows_of_components(state)) == (0 if n < 50 else len(state.model.components.n))
    if n > 50:
        assert own.rows_of_components(state).sum() == pytest.approx(weights.sum())


@pytest.mark.parametrize("n", [30, 700])
def test_moments_of_columns_are_those_of_all_rows(n):
    """Without a sample every row is folded in at once: exact up to rounding."""
    own, X = core(reservoir=0), rows(n)
    X[::3] += 40.0  # a group of its own: the spread of the means counts
    state, _ = learned(own, X)
    mean, std = own.column_moments(state)
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=1e-8)
    np.testing.assert_allclose(std, X.std(axis=0), rtol=1e-6)
    assert own.column_moments(own.init(D, None)) is None


def test_the_unit_of_all_columns_is_in_the_densities_and_in_nothing_else():
    """Rows in eighths of the unit: each log-density is higher by D ln 8, the distances are the same."""
    X = rows(140, outlier=[120])
    (_, told), (_, small) = (learned(core(), X * unit) for unit in (1.0, 0.125))
    np.testing.assert_allclose(small[0], told[0] + D * np.log(8.0), rtol=1e-8)
    np.testing.assert_allclose(small[1], told[1], rtol=1e-6)
    assert np.isnan(told[0][:50]).all()
    assert np.isfinite(told[0][50:]).all()


def test_only_strange_rows_have_a_distance_whose_tail_is_below_the_level():
    own, X = core(), rows(400, outlier=[300, 350])
    _, told = learned(own, X)
    strange = np.flatnonzero(told[1] > 0.0)
    assert {300, 350} <= set(strange)
    assert len(strange) < 10
    assert (chdtrc(D, told[1][strange]) < own.level).all()


def test_it_is_foreseen_when_a_search_is_made():
    own, X = core(), rows(260)
    state, at = own.init(D, None), 0
    for n in (30, 15, 5, 40, 9, 1, 24, 1, 90, 9, 1):
        foreseen, before = own.searches_within(state, n), state.searched
        state, _ = learned(own, X[at : at + n], state=state)
        assert foreseen == (state.searched != before)
        assert own.is_searching(state, 0) == (state.model is not None and state.pending.size > 0)
        at += n
    assert state.searched == 200


@pytest.mark.parametrize("n", [30, 90])
def test_sampled_rows_are_rows_of_the_stream_and_stand_for_all(n):
    own, X = core(), rows(n)
    X[::7, 2] = np.nan
    state, _ = learned(own, X)
    found, own_weights, stands_for = own.sample(state, 1000)
    whole = X[~np.isnan(X).any(axis=1)]
    assert len(found) == len(whole)
    distance = np.abs(found[:, None] - whole).max(axis=2).min(axis=1)
    assert distance.max() < 1e-5  # kept in single precision
    np.testing.assert_array_equal(own_weights, 1.0)
    np.testing.assert_allclose(stands_for, 1.0)
    assert len(own.sample(state, 5)[0]) == 5


def test_what_needs_matrices_is_refused():
    own = core()
    state, _ = learned(own, rows(60))
    with pytest.raises(InputError, match="covariance_type='low_rank'"):
        own.look(state)
    assert own.between_searches(state) is None


@pytest.mark.parametrize("n", [30, 700])
def test_columns_in_another_order_are_the_same_model(n):
    own, names = core(reservoir=0), list(range(D))
    state, _ = learned(own, rows(n))
    turned = core(reservoir=0).over_columns(state, names, names[::-1], [])
    for found, wanted in zip(core().column_moments(turned), own.column_moments(state), strict=True):
        np.testing.assert_allclose(found, wanted[::-1], rtol=1e-9)


def test_a_fresh_core_and_a_merge_leave_the_caches_behind():
    own = core()
    state, _ = learned(own, rows(80))
    own.answers(state)
    fresh = own.fresh()
    assert fresh.settings == own.settings
    assert fresh.asked.look is None
    merged = own.merge([own.part(state, 1.0), own.part(state, 1.0)], None, search=False, most=None)
    assert own.rows_seen(merged) == 160
    assert own.effective_samples(merged) == pytest.approx(160.0)
