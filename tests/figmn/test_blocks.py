"""Blocks and screens against one row at a time: the same decisions, and the same numbers up to rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.figmn import blocks as block
from everlearn.figmn import bounds as screen
from everlearn.figmn import cost_model as pace
from everlearn.figmn import learn as incremental
from everlearn.figmn import strategy as runs
from everlearn.figmn.blocks import Rows
from everlearn.figmn.cost_model import LARGE, Method
from everlearn.figmn.kernels import rows as kernels
from everlearn.figmn.kernels import single_component as alone
from everlearn.linalg.backend import HOST
from states import assert_same, learn, mixture, rows_from, settings_for

WAYS = [Method.NEAR_ROWS, Method.BLOCKS, Method.NEAR_BLOCKS]


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


ALONE = {
    "plain": {},
    "novelties": {"beta": 0.02},
    "forgetting": {"forgetting": 0.99, "min_age": 0.0, "min_count": 0.05},
    "hardly anything known": {"count": 1e-3},
}


@pytest.mark.parametrize("D", [3, LARGE + 4])
@pytest.mark.parametrize("case", ALONE)
def test_a_component_alone_is_learned_alike(case, D):
    """Its blocks are factorised at once; rows that are novel, or that need care, end them."""
    rng = np.random.default_rng(17)
    changes = dict(ALONE[case])
    start = mixture(rng, D, 1, count=changes.pop("count", 30.0))
    X = rows_from(rng, start, 200, outliers=0.02 if case == "novelties" else 0.0)
    settings, weights = settings_for(D, **changes), rng.uniform(0.5, 2.0, 200)
    truth = learn(Method.ROWS, start, X, settings, weights)
    assert (truth[0].n_components > 1) == (case == "novelties")
    assert_same(learn(Method.BLOCKS, start, X, settings, weights), truth, rtol=1e-8)


def test_a_component_alone_with_hardly_a_memory():
    """So little is left of what a block began with that blocks end early."""
    rng = np.random.default_rng(19)
    start = mixture(rng, 1, 1)
    X, settings = rng.normal(size=(100, 1)), settings_for(1, forgetting=0.3)
    assert len(alone.foresee(np.ones(16), 30.0, 0.3, 1e-8)[0]) < 16
    assert_same(learn(Method.BLOCKS, start, X, settings), learn(Method.ROWS, start, X, settings), rtol=1e-6)


def test_rows_of_no_weight_are_left_alone_alike():
    rng = np.random.default_rng(18)
    start = mixture(rng, 5, 1)
    X, weights = rows_from(rng, start, 64), np.where(rng.random(64) < 0.2, 1e-30, 1.0)
    truth = learn(Method.ROWS, start, X, settings_for(5), weights)
    assert_same(learn(Method.BLOCKS, start, X, settings_for(5), weights), truth)


def test_a_matrix_that_cannot_be_factorised_is_no_block():
    E = np.ones((1, 3, 2))
    assert np.isnan(HOST.factor(E, -5.0 * E, np.ones(3))[2]).all()


def test_a_block_creates_and_prunes():
    """The cases above have creations and prunings inside a block, not only between blocks."""
    rng = np.random.default_rng(7)
    start = mixture(rng, 20, 5, spread=0.3)
    X = rows_from(rng, start, 64, outliers=0.15)
    settings = settings_for(20, **CASES["creating and pruning"])
    rows = Rows(X, np.ones(64), np.empty(64), np.empty(64))
    matrices = HOST.adopt(start.precisions)
    after, progress = block.learn_block(start, HOST, matrices, rows, rows.X, settings, float(settings.thresholds[20]))
    born = (rows.distance[: progress.rows] >= settings.thresholds[20]).sum()
    ended = start.n_components + born - after.n_components
    assert progress.rows > 32
    assert born >= 3
    assert ended >= 3


@given(
    seed=st.integers(0, 10**6),
    D=st.integers(1, 6),
    K=st.integers(1, 4),
    n=st.integers(runs.MIN_ROWS, 70),
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
    start = incremental.empty(D)
    truth = learn(Method.ROWS, start, X, settings)
    assert truth[0].n_components > 10
    assert_same(learn(method, start, X, settings), truth, rtol=1e-8)


@pytest.mark.parametrize("method", WAYS)
@pytest.mark.parametrize("merging", [0.0, 0.1])
def test_a_full_mixture_makes_room_alike(method, merging):
    rng = np.random.default_rng(5)
    X = rng.normal(0, 5, (600, 4))
    settings = settings_for(4, beta=0.2, delta=0.3, max_components=12, max_merge_cost=merging)
    truth = learn(Method.ROWS, incremental.empty(4), X, settings)
    assert (truth[0].compacted_at > 0) == (merging > 0)
    assert_same(learn(method, incremental.empty(4), X, settings), truth, rtol=1e-7)


@pytest.mark.parametrize("method", WAYS)
def test_thin_components_are_widened_alike(method):
    """Two constant columns and a short memory: the precision grows until the floor is reached, again and again."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(900, 3))
    X[:, 1] = 2.0
    settings = settings_for(3, forgetting=0.9)
    truth = learn(Method.ROWS, incremental.empty(3), X, settings)
    got = learn(method, incremental.empty(3), X, settings)
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
    kept = incremental.with_arrays(start, np.copy)
    X = rows_from(rng, start, 20)
    X[0] = 1e30
    rows = Rows(X, np.ones(20), np.empty(20), np.empty(20))
    after, progress = block.learn_block(
        start, HOST, HOST.adopt(start.precisions), rows, rows.X, settings_for(4), np.inf
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
    whole = incremental.learn(incremental.with_arrays(start, np.copy), X, weights, settings)
    state, parts = incremental.with_arrays(start, np.copy), []
    for i, j in zip([0, 1, 40, 41, 300], [1, 40, 41, 300, 400], strict=True):
        state, info = incremental.learn(state, X[i:j], weights[i:j], settings)
        parts.append(info)
    merged = incremental.Info(*(np.concatenate([part[k] for part in parts]) for k in range(2)), 0)
    assert_same((state, merged), whole)


# -- the screen ---------------------------------------------------------------------------------------------------


def exact_distances(X, means, precisions):
    E = X[:, None].astype(np.longdouble) - means
    return np.einsum("nka,kab,nkb->nk", E, precisions.astype(np.longdouble), E)


@given(
    seed=st.integers(0, 10**6),
    D=st.integers(1, 50) | st.just(LARGE + 5),
    offset=st.sampled_from([0.0, 10.0, 1e4]),
    condition=st.sampled_from([1.0, 1e3, 1e8]),
    scale=st.sampled_from([1e-12, 1.0, 1e12]),
)
def test_bounds_of_the_screen_hold(seed, D, offset, condition, scale):
    rng = np.random.default_rng(seed)
    K, n = 4, 12
    Q = np.linalg.qr(rng.normal(size=(K, D, D)))[0]
    precisions = (Q * condition ** rng.uniform(-0.5, 0.5, (K, 1, D))) @ np.swapaxes(Q, 1, 2) / scale**2
    precisions = 0.5 * (precisions + np.swapaxes(precisions, 1, 2))
    means = scale * (offset + rng.normal(size=(K, D)))
    X = scale * (offset + rng.normal(0, 3, (n, D)))
    bounds = screen.screen_of(means.mean(axis=0) + scale * rng.normal(size=D), means, np.triu(precisions), K)
    d2, error = screen.squared_distances(bounds, X, K)
    truth = exact_distances(X, means, precisions)
    assert np.all(np.abs(d2 - truth) <= error)
    assert np.all(screen.lower_bounds(bounds, X, K) <= 1.0 + truth)


@pytest.mark.parametrize("D", [34, LARGE])
def test_the_screen_is_sharp_enough_to_be_of_use(D):
    rng = np.random.default_rng(0)
    state = mixture(rng, D, 20, spread=5.0, room=0)
    bounds = screen.screen_of(np.zeros(D), state.means, state.precisions, 20)
    X = rows_from(rng, state, 50)
    d2, error = screen.squared_distances(bounds, X, 20)
    assert np.median(error / d2) < 0.01


@pytest.mark.parametrize("D", [3, LARGE])
@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e60])
def test_sizes_beyond_single_precision_are_evaluated(scale, D):
    rng = np.random.default_rng(1)
    state = mixture(rng, D, 4, room=0)
    bounds = screen.screen_of(np.zeros(D), state.means, state.precisions, 4)
    X = scale * rng.normal(size=(10, D))
    truth = exact_distances(X, state.means, state.precisions)
    assert np.all(screen.lower_bounds(bounds, X, 4) <= 1.0 + truth)


def test_bounds_hold_while_components_learn():
    """After any updates 1 + d^2 is at least its bound times the product of 1/(1 + w d^2)."""
    rng = np.random.default_rng(9)
    state = mixture(rng, 6, 1, count=1.5, room=0)
    X = rng.normal(0, 3, (30, 6))
    first = 1.0 + exact_distances(X, state.means, state.precisions)[:, 0]
    shrink, settings = 1.0, settings_for(6)
    for t in range(30):
        d2 = exact_distances(X[t : t + 1], state.means, state.precisions)[0, 0]
        shrink /= 1.0 + d2 / (state.counts[0] + 1.0)
        state, _ = incremental.learn(state, X[t : t + 1], np.ones(1), settings)
        now = 1.0 + exact_distances(X, state.means, state.precisions)[:, 0]
        assert np.all(now >= first * shrink * (1.0 - 1e-9))
    assert shrink < 1e-3


def test_screens_pass_over_most_components_of_a_separated_mixture():
    rng = np.random.default_rng(10)
    start = mixture(rng, 16, 30, spread=8.0, count=300.0)
    X = rows_from(rng, start, 256)
    rows = Rows(X, np.ones(256), np.empty(256), np.empty(256))
    bounds = screen.screen_of(np.zeros(16), start.means, start.precisions, 30)
    _, progress = block.learn_block(
        start, HOST, HOST.adopt(start.precisions), rows, rows.X, settings_for(16), np.inf, bounds
    )
    assert progress.rows == 256
    assert progress.met < 0.1


def test_a_block_with_too_many_meetings_is_cut_short(monkeypatch):
    rng = np.random.default_rng(11)
    start = mixture(rng, 16, 3, spread=0.1, count=300.0)
    X = rows_from(rng, start, 256)
    rows = Rows(X, np.ones(256), np.empty(256), np.empty(256))
    bounds = screen.screen_of(np.zeros(16), start.means, start.precisions, 3)
    monkeypatch.setattr(block, "MOST_MEETINGS", 3 * 64**2)
    _, progress = block.learn_block(
        start, HOST, HOST.adopt(start.precisions), rows, rows.X, settings_for(16), np.inf, bounds
    )
    assert progress.rows == 64


# -- the choice ---------------------------------------------------------------------------------------------------


def test_the_cheapest_way_is_chosen():
    assert pace.choose(784, 0) == Method.ROWS
    assert pace.choose(4, 3) == Method.ROWS
    assert pace.choose(784, 1) == Method.BLOCKS
    assert pace.choose(34, 75) == Method.NEAR_ROWS
    assert pace.choose(34, 75, 1.0) == Method.ROWS
    assert pace.choose(784, 50).is_near
    assert pace.choose(784, 50, 1.0) == Method.BLOCKS
    assert not pace.choose(784, 50, near=False).is_near


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

    monkeypatch.setattr(runs, "learn_near", spy(near, runs.learn_near))
    monkeypatch.setattr(runs, "learn_singly", spy(single, runs.learn_singly))
    incremental.learn(start, X, np.ones(2000), settings_for(16))
    assert sum(near) + sum(single) == 2000
    assert sum(near) <= 100


# -- the device ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("D", [7, LARGE + 9])
@pytest.mark.parametrize("m", [1, 5, 70])
def test_operations_of_the_device(D, m):
    rng = np.random.default_rng(12)
    k, state = 2, mixture(rng, D, 3, room=0)
    X, whole = rng.normal(size=(m, D)), slice(1, 3)
    precisions = state.precisions.copy()
    matrices = HOST.adopt(state.precisions)
    E = HOST.deviations(X, state.means[whole])
    np.testing.assert_array_equal(E, X[None] - state.means[whole][:, None])
    Y = HOST.project(matrices, whole, E)
    np.testing.assert_allclose(Y, E @ precisions[whole], rtol=1e-11, atol=1e-11)
    P, expected = np.full((k, m, m), np.nan), 1.0 + E @ precisions[whole] @ np.swapaxes(E, 1, 2)
    HOST.gram(E, Y, P)
    np.testing.assert_allclose(np.triu(P), np.triu(expected), rtol=1e-10, atol=1e-10)
    P = expected
    R = np.swapaxes(np.linalg.cholesky(P + 5.0 * np.eye(m)), 1, 2)
    learned = np.ones((k, m), dtype=bool)
    Z = HOST.solve(np.ascontiguousarray(R), Y.copy(), learned)
    np.testing.assert_allclose(np.swapaxes(R, 1, 2) @ Z, Y, rtol=1e-9, atol=1e-9)
    HOST.downdate(matrices, whole, Z, np.array([0.5, 0.25]))
    HOST.release(matrices, 3)
    expected = (precisions[whole] - np.swapaxes(Z, 1, 2) @ Z) / np.array([0.5, 0.25])[:, None, None]
    np.testing.assert_allclose(state.precisions[whole], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(state.precisions[0], precisions[0])
