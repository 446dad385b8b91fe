"""Learning rows: when a search is due and adopted, what waits for it, and the density of each row before it came."""

import pickle

import numpy as np
import pytest

import naive
from everlearn.mixture import ask, learn
from everlearn.mixture.keep.by_moments import PARTS
from everlearn.mixture.keep.world import frame_of_spread
from everlearn.mixture.learn import Progress
from mixture_toys import groups, settings_for

D, M, WARMUP = 2, 200, 60
SETTINGS = settings_for(D, warmup=WARMUP, threshold=40.0)
X, _ = groups(np.random.default_rng(0), 700, D, 3)
ONES = np.ones(len(X))


def learned(n, sizes=None, settings=SETTINGS, room=M):
    state, progress, told, at = learn.init(D, room, settings), Progress(), [], 0
    for size in [n] if sizes is None else sizes:
        state, some = learn.learn(state, X[at : at + size], ONES[at : at + size], settings, progress)
        told.append(some)
        at += size
    return state, progress, np.concatenate([some[0] for some in told])


def leaves(value):
    """All arrays and numbers of a state."""
    if hasattr(value, "_fields"):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def assert_equal(a, b):
    for one, other in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sizes", [[1] * 330, [59, 1, 15, 5, 160, 90], [74, 136, 120]])
def test_packaging_makes_no_difference(sizes):
    whole, parts = learned(330), learned(330, sizes)
    assert_equal(whole[0], parts[0])
    np.testing.assert_array_equal(whole[2], parts[2])


def test_searches_are_due_and_adopted_at_the_rows_of_the_schedule():
    """At the warm-up, when the sample is full, then at twice the rows; each a quarter later."""
    state, progress, adopted = learn.init(D, M, SETTINGS), Progress(), {}
    for t in range(700):
        foreseen, before = learn.adopts_within(state, 1, SETTINGS, progress), state.searched
        state, _ = learn.learn(state, X[t : t + 1], ONES[:1], SETTINGS, progress)
        assert foreseen == (state.searched != before)
        if state.searched != before:
            adopted[state.searched] = t + 1
        assert learn.rows_seen(state) == t + 1
    assert adopted == {60: 75, 200: 250, 400: 500}


def test_without_a_sample_no_row_waits():
    settings = SETTINGS._replace(parts=PARTS)
    state, _, _ = learned(WARMUP, settings=settings, room=0)
    assert (state.n, state.searched, state.pending.size) == (WARMUP, WARMUP, 0)
    assert learn.lag_of(state, settings) == 0


@pytest.mark.parametrize("at", [90, 130, 220, 320])
def test_each_row_is_told_the_density_of_the_model_before_it(at):
    """A dense twin of the components as they are, the broad Gaussian behind them included."""
    state, progress, _ = learned(at)
    look = ask.components_as_they_are(state, SETTINGS, progress)
    wanted = np.logaddexp.reduce(naive.log_joint_with_gaps(X[at : at + 1], *ask.whole_mixture(look)), axis=1)
    _, told = learn.learn(state, X[at : at + 1], ONES[:1], SETTINGS, progress)
    # A factor is renewed when its component has grown by a fifth, the twin's at once.
    assert told[0, 0] == pytest.approx(wanted[0], abs=0.25)
    distance = min(
        naive.mahalanobis(X[at : at + 1], m, C)[0] for _, m, C in zip(*ask.components_mixture(look), strict=True)
    )
    assert told[1, 0] == pytest.approx(distance, rel=0.3)


def test_nothing_is_told_during_the_warm_up():
    _, _, told = learned(200)
    assert np.isnan(told[:75]).all()
    assert np.isfinite(told[75:]).all()


def test_the_rows_of_a_search_under_way_are_kept_beside_the_state_that_it_works_on():
    state, progress, _ = learned(220)
    assert (state.n, state.pending.size) == (200, 20)
    np.testing.assert_array_equal(state.pending.rows[:20], X[200:220])
    # The working copy has learned all, the state's own model those before.
    working = learn.working_model(state, SETTINGS, progress)
    assert working.components.total[0] == pytest.approx(220.0)
    assert state.model.components.total[0] == pytest.approx(200.0)
    # Worked out from the state alone, it is the same.
    assert_equal(learn.working_model(state, SETTINGS, Progress()).components, working.components)


def test_offering_the_pending_rows_to_a_sample_leaves_that_of_the_state():
    state, _, _ = learned(250, room=400)
    sampled = learn.with_pending_sampled(state, SETTINGS)
    assert (sampled.n, sampled.reservoir.size[0], state.reservoir.size[0]) == (250, 250, 240)
    assert learn.with_pending_sampled(learned(100)[0], SETTINGS) is not None
    raw = sampled.reservoir.rows[:250] / state.frame.inverse + state.frame.centre
    np.testing.assert_allclose(np.sort(raw[:, 0]), np.sort(X[:250, 0]), atol=1e-5)


def test_the_first_rows_are_opened_without_the_others():
    state, _, _ = learned(50)
    first = learn.opened(state, 30, SETTINGS)
    assert (first.n, first.reservoir.size[0]) == (30, 30)
    assert first.frame is not None
    assert (state.n, state.frame, state.reservoir.size[0]) == (0, None, 0)


def test_weights_count_rows_and_a_given_scale_is_the_frame():
    frame = frame_of_spread(np.zeros(D), np.array([3.0, 50.0]))
    state, weights = learn.init(D, M, SETTINGS, frame), np.random.default_rng(1).uniform(0.5, 2.0, 100)
    state, _ = learn.learn(state, X[:100], weights, SETTINGS, Progress())
    assert state.frame is frame
    assert state.model.components.total[0] == pytest.approx(weights.sum())


def test_what_can_be_worked_out_again_is_not_copied():
    _, progress, _ = learned(220)
    assert progress.working is not None
    assert pickle.loads(pickle.dumps(progress)).working is None


def test_an_interrupted_search_is_heard_between_slices():
    """`finish` works a generator out to its value."""

    def search():
        yield
        yield
        return "found"

    assert learn.finish(search(), D) == "found"
