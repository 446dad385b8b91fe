"""Learning in blocks: the same model by any split, gaps, and what stays exact."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.base.snapshot import copied
from everlearn.low_rank import learn
from everlearn.low_rank.ask import look_of
from everlearn.low_rank.keep.reconsider import flushed, reconsider
from everlearn.low_rank.learn import Progress, frame_of_rows
from everlearn.low_rank.state import Settings, readout_of
from examples import examples
from low_rank_toys import one, several

SETTINGS = Settings(4, 8, 50, 200, 16, 0, 64, 1.0, 2**60, 0)


def learned(X, sizes=None, rule=SETTINGS, weights=None):
    state, progress, found, at = learn.init(X.shape[1], rule), Progress(), [], 0
    weights = np.ones(len(X)) if weights is None else weights
    for size in sizes or [len(X)]:
        state, info = learn.learn(state, X[at : at + size], weights[at : at + size], rule, progress)
        found.append(info.log_density)
        at += size
    return state, np.concatenate(found)


def stream(gaps):
    rng = np.random.default_rng(0)
    X = several(rng, 360, 40, K=2)
    X[rng.random(X.shape) < gaps] = np.nan
    return X


STREAMS = {gaps: stream(gaps) for gaps in (0.0, 0.3)}


@functools.cache
def in_one_batch(gaps):
    return learned(STREAMS[gaps])


@pytest.mark.parametrize("gaps", STREAMS)
@examples(3)
@given(cuts=st.lists(st.integers(1, 359), max_size=6, unique=True))
def test_any_split_of_the_stream_gives_the_same_model(gaps, cuts):
    whole = in_one_batch(gaps)
    state, log_density = learned(STREAMS[gaps], np.diff([0, *sorted(cuts), 360]).tolist())
    np.testing.assert_allclose(log_density, whole[1], rtol=1e-8)
    for a, b in zip(flushed(state, SETTINGS), flushed(whole[0], SETTINGS), strict=True):
        assert a.shape == b.shape
    np.testing.assert_allclose(state.model.components.mean, whole[0].model.components.mean, atol=1e-8)
    np.testing.assert_array_equal(state.model.reservoir.rows, whole[0].model.reservoir.rows)


def test_row_by_row_is_the_same():
    X = STREAMS[0.3]
    np.testing.assert_allclose(learned(X, [1] * 360)[1], in_one_batch(0.3)[1], rtol=1e-8)


def test_no_split_matters_while_a_search_is_under_way():
    """From row 200, at which a search is due, to its adoption at row 250: at once, row by row and in between."""
    X = STREAMS[0.0]
    whole, _ = learned(X)
    for sizes in ([200, *[1] * 50, 110], [190, 40, 5, 125], [225, 135]):
        state, _ = learned(X, sizes)
        assert (state.n, state.searched, state.pending.size) == (360, 200, 0)
        np.testing.assert_allclose(state.model.components.mean, whole.model.components.mean, atol=1e-8)
        np.testing.assert_allclose(state.model.calibration, whole.model.calibration, rtol=1e-8)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_model_does_not_depend_on_the_time_that_a_search_takes(seed, monkeypatch):
    """Row by row, a search that is done at its first row and one that waits for its adoption: the same to the bit."""
    # Groups that overlap much: of rows that belong to one for certain, blocks of any size make the same sums.
    rng = np.random.default_rng(seed)
    X = rng.permutation(np.concatenate([one(rng, 180, 40), one(rng, 180, 40) + 0.15 * rng.normal(size=40)]))
    models = []
    for pace in (1e3, 0.0):
        monkeypatch.setattr(learn, "PACE", pace)
        models.append(learned(X, [1] * 360)[0].model)
    assert len(models[0].components.mean) == 2
    for early, late in zip(models[0].components, models[1].components, strict=True):
        np.testing.assert_array_equal(early, late)


def test_a_search_under_way_begins_again_where_only_the_state_is_known():
    X, w = STREAMS[0.3], np.ones(360)
    progress = Progress()
    state, _ = learn.learn(learn.init(40, SETTINGS), X[:230], w[:230], SETTINGS, progress)
    assert (state.n, state.pending.size) == (200, 30)
    working = learn.working_state(state, SETTINGS, progress)
    assert learn.rows_seen(working) == 230
    again = learn.working_state(state, SETTINGS, Progress())
    np.testing.assert_allclose(again.model.components.mean, working.model.components.mean, atol=1e-8)
    np.testing.assert_array_equal(again.model.reservoir.rows, working.model.reservoir.rows)
    on, _ = learn.learn(copied(state), X[230:], w[230:], SETTINGS, Progress())
    np.testing.assert_allclose(on.model.components.mean, in_one_batch(0.3)[0].model.components.mean, atol=1e-8)


@pytest.mark.parametrize("reservoir", [200, 1000])
def test_mean_and_trace_of_all_rows_are_exact(reservoir):
    # With 1,000 the reservoir, in single precision, holds all rows of the search at row 200.
    rng = np.random.default_rng(1)
    X = one(rng, 450, 60)
    rule = SETTINGS._replace(reservoir=reservoir)
    state, _ = learned(X, rule=rule)
    assert state.searched >= 200
    c = flushed(state, rule)
    assert len(c.n) == 1
    np.testing.assert_allclose(c.mean[0] / state.frame.inverse + state.frame.centre, X.mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(c.diagonal[0] / state.frame.inverse**2, len(X) * X.var(axis=0), rtol=1e-9)


def test_weights_count_rows():
    rng = np.random.default_rng(2)
    X = one(rng, 100, 30)
    state, _ = learned(X, weights=np.full(100, 2.0))
    assert flushed(state, SETTINGS).mass.sum() == pytest.approx(200.0)


def test_columns_of_other_units_take_their_own_scale():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 200))
    assert (np.unique(frame_of_rows(X).inverse).size) == 1
    X[:, :2] *= 1e6
    assert (frame_of_rows(X).inverse[:2] < 1e-5).all()
    assert (frame_of_rows(X).inverse[2:] > 0.2).all()


def test_a_model_of_rows_with_gaps_is_near_that_of_whole_rows():
    # With 40 % of the cells filled by means, covariances are 0.36 of the true ones: on this law 24 nats behind it.
    rng = np.random.default_rng(4)
    X = one(rng, 800, 60, variances=(400.0, 200.0, 100.0), noise=0.5)
    held, gone = X[600:], X[:600].copy()
    gone[rng.random(gone.shape) < 0.4] = np.nan
    filled = np.where(np.isnan(gone), np.nanmean(gone, axis=0), gone)
    whole, gaps, means = (look_of(learned(r)[0], SETTINGS).log_density(held).mean() for r in (X[:600], gone, filled))
    assert whole - gaps < 1.5
    assert gaps > means + 10.0


@pytest.mark.parametrize("kind", ["one", "shuffled", "in order"])
@pytest.mark.parametrize("seed", range(2))
def test_simplest_streams(kind, seed):
    rng = np.random.default_rng(seed)
    X = one(rng, 600, 400) if kind == "one" else several(rng, 600, 400)
    X = rng.permutation(X) if kind == "shuffled" else X
    rule = SETTINGS._replace(rank=8, warmup=60, reservoir=300)
    state, _ = learned(X, rule=rule)
    c = flushed(state, rule)
    ranks = readout_of(c, state.prior_noise).rank
    assert ((ranks >= 3) & (ranks <= 4)).all()
    # Counted over all rows, not over the half of them that is sampled.
    np.testing.assert_allclose(c.mass, 600.0 if kind == "one" else np.full(4, 150.0), atol=1.0)


def test_groups_that_filled_gaps_hide_are_found():
    rng = np.random.default_rng(0)
    X = rng.permutation(several(rng, 600, 120, K=3))
    X[rng.random(X.shape) < 0.45] = np.nan
    rule = SETTINGS._replace(rank=16, warmup=80, reservoir=600)
    state = reconsider(learned(X, rule=rule)[0], rule)
    np.testing.assert_allclose(state.model.components.mass, np.full(3, 200.0), atol=5.0)


def test_faded_groups_stay_whole():
    rng = np.random.default_rng(1)
    rule = SETTINGS._replace(rank=8, reservoir=600, fading=0.99, interval=100)
    state, _ = learned(rng.permutation(several(rng, 650, 120)), rule=rule)
    assert len(state.model.components.n) == 4
