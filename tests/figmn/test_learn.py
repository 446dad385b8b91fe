"""Learning one by one, screened and in blocks: the same decisions, and the same numbers up to rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.figmn import blocks
from everlearn.figmn import learn as learning
from everlearn.figmn import state as states
from everlearn.figmn.cost_model import LARGE, Method
from everlearn.figmn.kernels import rows as kernels
from everlearn.figmn.state import Rows
from everlearn.linalg.backend import HOST
from states import assert_same, learn, mixture, rows_from, settings_for

WAYS = [Method.SCREENED_ROWS, Method.BLOCKS, Method.SCREENED_BLOCKS]


CASES = {
    "plain": {},
    "creating": {"beta": 0.02},
    "creating and pruning": {"beta": 0.02, "min_age": 12.0, "min_count": 2.5},
    "forgetting": {"forgetting": 0.97},
    "creating, pruning, forgetting": {"beta": 0.02, "min_age": 15.0, "min_count": 2.0, "forgetting": 0.99},
}


@pytest.mark.parametrize("D", [3, 20, LARGE + 4])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", WAYS)
def test_one_block_equals_one_row_at_a_time(method, case, D):
    """From a shared state, with overlapping components: nothing may differ by more than rounding."""
    rng = np.random.default_rng(7)
    start = mixture(rng, D, 5, spread=0.3)
    X = rows_from(rng, start, 64, outliers=0.15 if "creating" in case else 0.0)
    settings = settings_for(D, **CASES[case])
    weights = rng.uniform(0.5, 2.0, 64)
    truth = learn(Method.ROWS, start, X, settings, weights)
    assert_same(learn(method, start, X, settings, weights), truth)


SINGLE = {
    "plain": {},
    "novelties": {"beta": 0.02},
    "forgetting": {"forgetting": 0.99, "min_age": 0.0, "min_count": 0.05},
    "hardly anything known": {"count": 1e-3},
}


@pytest.mark.parametrize("D", [3, LARGE + 4])
@pytest.mark.parametrize("case", SINGLE)
def test_a_single_component_is_learned_alike(case, D):
    """Rows that are novel, or that need care, end its blocks."""
    rng = np.random.default_rng(17)
    changes = dict(SINGLE[case])
    start = mixture(rng, D, 1, count=changes.pop("count", 30.0))
    X = rows_from(rng, start, 200, outliers=0.02 if case == "novelties" else 0.0)
    settings, weights = settings_for(D, **changes), rng.uniform(0.5, 2.0, 200)
    truth = learn(Method.ROWS, start, X, settings, weights)
    assert (truth[0].n_components > 1) == (case == "novelties")
    assert_same(learn(Method.BLOCKS, start, X, settings, weights), truth, rtol=1e-8)


def test_a_short_memory_ends_blocks_early():
    """So little is left of what a block began with that blocks end early."""
    rng = np.random.default_rng(19)
    start = mixture(rng, 1, 1)
    X, settings = rng.normal(size=(100, 1)), settings_for(1, forgetting=0.3)
    assert_same(learn(Method.BLOCKS, start, X, settings), learn(Method.ROWS, start, X, settings), rtol=1e-6)


def test_rows_of_no_weight_are_left_alone_alike():
    rng = np.random.default_rng(18)
    start = mixture(rng, 5, 1)
    X, weights = rows_from(rng, start, 64), np.where(rng.random(64) < 0.2, 1e-30, 1.0)
    truth = learn(Method.ROWS, start, X, settings_for(5), weights)
    assert_same(learn(Method.BLOCKS, start, X, settings_for(5), weights), truth)


def test_a_block_creates_and_prunes():
    """The cases above have creations and prunings inside a block, not only between blocks."""
    rng = np.random.default_rng(7)
    start = mixture(rng, 20, 5, spread=0.3)
    X = rows_from(rng, start, 64, outliers=0.15)
    settings = settings_for(20, **CASES["creating and pruning"])
    rows = Rows(X, np.ones(64), np.empty(64), np.empty(64))
    matrices = HOST.matrices(start.precisions)
    after, progress = blocks.learn_block(start, HOST, matrices, rows, rows.X, settings, None)
    created = (rows.distance[: progress.rows] >= settings.thresholds[20]).sum()
    ended = start.n_components + created - after.n_components
    assert progress.rows > 32
    assert created >= 3
    assert ended >= 3


@given(
    seed=st.integers(0, 10**6),
    D=st.integers(1, 6),
    K=st.integers(1, 4),
    n=st.integers(learning.MIN_ROWS, 70),
    beta=st.sampled_from([0.0, 0.01, 0.3]),
    method=st.sampled_from(WAYS),
    forgetting=st.sampled_from([1.0, 0.9]),
    prune=st.booleans(),
)
def test_any_short_stream_is_learned_alike(seed, D, K, n, beta, method, forgetting, prune):
    rng = np.random.default_rng(seed)
    start = mixture(rng, D, K, spread=rng.choice([0.2, 2.0]), count=rng.choice([2.0, 50.0]), room=rng.integers(1, 30))
    X = rows_from(rng, start, n, outliers=0.1)
    changes = {"min_age": 8.0, "min_count": 1.5} if prune else {}
    settings = settings_for(D, beta=beta, forgetting=forgetting, **changes)
    assert_same(learn(method, start, X, settings), learn(Method.ROWS, start, X, settings), rtol=1e-8)


@pytest.mark.parametrize("method", WAYS)
@pytest.mark.parametrize("D", [8, LARGE])
def test_a_long_stream_from_nothing_is_learned_alike(method, D):
    """Separated clusters, gaps, a far outlier, a repeated row, more clusters on the way."""
    rng = np.random.default_rng(3)
    centres = rng.normal(0, 8, (12, D))
    labels = np.sort(rng.integers(12, size=1500)) if D == 8 else rng.integers(12, size=600)
    X = centres[labels] + rng.normal(0, 0.5, (len(labels), D)) @ rng.normal(0, 1, (D, D)) / np.sqrt(D)
    X[300:310, ::3] = np.nan
    X[400] = 1e9
    X[450:453] = X[449]
    X[500] = np.nan
    settings = settings_for(D, beta=1e-6)
    start = states.empty(D)
    truth = learn(Method.ROWS, start, X, settings)
    assert truth[0].n_components > 10
    assert_same(learn(method, start, X, settings), truth, rtol=1e-8)


@pytest.mark.parametrize("method", WAYS)
def test_a_full_mixture_makes_room_alike(method):
    rng = np.random.default_rng(5)
    X = rng.normal(0, 5, (600, 4))
    settings = settings_for(4, beta=0.2, delta=0.3, max_components=12)
    truth = learn(Method.ROWS, states.empty(4), X, settings)
    assert truth[0].n_components == 12
    assert_same(learn(method, states.empty(4), X, settings), truth, rtol=1e-7)


@pytest.mark.parametrize("method", WAYS)
def test_thin_components_are_widened_alike(method):
    """Two constant columns and a short memory: the precision grows until the floor is reached, again and again."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(900, 3))
    X[:, 1] = 2.0
    settings = settings_for(3, forgetting=0.9)
    truth = learn(Method.ROWS, states.empty(3), X, settings)
    got = learn(method, states.empty(3), X, settings)
    assert np.all(np.diagonal(got[0].precisions[0]) * settings.initial_variance * kernels.FLOOR <= 1.0)
    np.testing.assert_allclose(got[1].log_density, truth[1].log_density, rtol=1e-5)


@pytest.mark.parametrize("size", [1e5, 1e20, 1e60])
@pytest.mark.parametrize("method", WAYS)
def test_outliers_of_any_size_leave_positive_definite_precisions(method, size):
    rng = np.random.default_rng(2)
    start = mixture(rng, 4, 3)
    X = rows_from(rng, start, 100)
    X[50] = size * np.array([1.0, -1.0, 0.5, 0.25])
    state, info = learn(method, start, X, settings_for(4))
    np.linalg.cholesky(state.precisions[: state.n_components])
    assert np.all(np.isfinite(info.log_density))
    assert state.n_rows == 100


def test_a_refused_row_leaves_the_state_as_it_was():
    rng = np.random.default_rng(4)
    start = mixture(rng, 4, 3)
    kept = states.with_arrays(start, np.copy)
    X = rows_from(rng, start, 20)
    X[0] = 1e30
    rows = Rows(X, np.ones(20), np.empty(20), np.empty(20))
    after, progress = blocks.learn_block(
        start, HOST, HOST.matrices(start.precisions), rows, rows.X, settings_for(4), None
    )
    assert progress.rows == 0
    for array, before in zip(after, kept, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("D", [5, LARGE])
def test_batches_of_any_size_give_the_same_model(D):
    """What `learn` chooses by itself, on the whole stream and on pieces of it."""
    rng = np.random.default_rng(8)
    start = mixture(rng, D, 20, spread=5.0)
    X = rows_from(rng, start, 400, outliers=0.02)
    settings = settings_for(D, beta=1e-4)
    weights = np.ones(400)
    whole = learning.learn(states.with_arrays(start, np.copy), X, weights, settings)
    state, parts = states.with_arrays(start, np.copy), []
    for i, j in zip([0, 1, 40, 41, 300], [1, 40, 41, 300, 400], strict=True):
        state, info = learning.learn(state, X[i:j], weights[i:j], settings)
        parts.append(info)
    merged = states.Info(*(np.concatenate([part[k] for part in parts]) for k in range(2)), 0)
    assert_same((state, merged), whole)


def test_a_screen_that_does_not_pay_is_given_up(monkeypatch):
    """All components matter to every row: after the first rows the screen is not tried again for long."""
    rng = np.random.default_rng(11)
    start = mixture(rng, 16, 75, spread=0.05, count=300.0)
    X = rows_from(rng, start, 2000)
    near, single = [], []

    def spy(calls, function):
        def call(state, rows, row, stop, *rest):
            result = function(state, rows, row, stop, *rest)
            calls.append(result[1].row - row)
            return result

        return call

    monkeypatch.setattr(learning, "learn_screened", spy(near, learning.learn_screened))
    monkeypatch.setattr(learning, "learn_one_by_one", spy(single, learning.learn_one_by_one))
    learning.learn(start, X, np.ones(2000), settings_for(16))
    assert sum(near) + sum(single) == 2000
    assert sum(near) <= 100
