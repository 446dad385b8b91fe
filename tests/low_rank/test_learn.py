"""Learning in blocks: the same model by any split, gaps, and what stays exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlearn.low_rank import learn
from everlearn.low_rank.ask import look_of
from everlearn.low_rank.keep.reconsider import flushed
from everlearn.low_rank.learn import Progress, frame_of_rows
from everlearn.low_rank.state import Settings
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


STREAMS = {gaps: stream(gaps) for gaps in (0.0, 0.02)}
WHOLE = {}


@pytest.mark.parametrize("gaps", STREAMS)
@settings(max_examples=3, deadline=None)
@given(cuts=st.lists(st.integers(1, 359), max_size=6, unique=True))
def test_any_split_of_the_stream_gives_the_same_model(gaps, cuts):
    X = STREAMS[gaps]
    whole = WHOLE.setdefault(gaps, learned(X))
    state, log_density = learned(X, np.diff([0, *sorted(cuts), 360]).tolist())
    np.testing.assert_allclose(log_density, whole[1], rtol=1e-8)
    for a, b in zip(flushed(state, SETTINGS), flushed(whole[0], SETTINGS), strict=True):
        assert a.shape == b.shape
    np.testing.assert_allclose(state.model.components.mean, whole[0].model.components.mean, atol=1e-8)
    np.testing.assert_array_equal(state.model.reservoir.rows, whole[0].model.reservoir.rows)


def test_row_by_row_is_the_same():
    X = STREAMS[0.02]
    np.testing.assert_allclose(learned(X, [1] * 360)[1], learned(X)[1], rtol=1e-8)


def test_mean_and_trace_of_all_rows_are_exact():
    rng = np.random.default_rng(1)
    X = one(rng, 190, 60)
    state, _ = learned(X)
    c = flushed(state, SETTINGS)
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
    rng = np.random.default_rng(4)
    X = one(rng, 800, 60, noise=0.5)
    held, gone = X[600:], X[:600].copy()
    gone[rng.random(gone.shape) < 0.4] = np.nan
    scores = [look_of(learned(rows)[0], SETTINGS).log_density(held).mean() for rows in (X[:600], gone)]
    assert scores[0] - scores[1] < 3.0
    filled = np.where(np.isnan(gone), np.nanmean(gone, axis=0), gone)
    assert scores[1] > look_of(learned(filled)[0], SETTINGS).log_density(held).mean() + 1.0
