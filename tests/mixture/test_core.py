"""The cores behind the estimator: what is counted of rows, which state answers, and which model lends a column."""

import pickle

import numpy as np
import pytest

from everlearn.errors import ModelFileError
from everlearn.mixture.adaptive import Bank
from everlearn.mixture.core import AdaptiveCore, Donor, FullCore, _best_donor
from everlearn.mixture.keep.by_moments import PARTS
from everlearn.monitoring.event_log import UNWATCHED
from mixture_toys import groups, settings_for

D, M, WARMUP = 2, 150, 40
X = groups(np.random.default_rng(0), 400, D, 2, apart=8.0)[0] * [1.0, 100.0] + [3.0, -50.0]


def core(kind="full", **changes):
    settings = settings_for(D, warmup=WARMUP, threshold=40.0, **changes)
    room = 0 if settings.parts else M
    return AdaptiveCore(settings, room, D) if kind == "adaptive" else FullCore(settings, room)


def learned(own, n, weights=None, state=None, first=0):
    state = own.init(D, None) if state is None else state
    weights = np.ones(n) if weights is None else weights
    return own.learn(state, X[first : first + n], weights, UNWATCHED)[0]


KINDS = {"full": {}, "diagonal": {"diagonal": True}, "without rows": {"parts": PARTS}}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("n", [20, 45, 130])
def test_rows_and_weights_are_counted_at_every_stage(changes, n):
    own, weights = core(**changes), np.random.default_rng(1).uniform(0.5, 2.0, n)
    state = learned(own, n, weights)
    assert own.rows_seen(state) == n
    assert own.effective_samples(state) == pytest.approx(weights.sum())
    kept = own.rows_inside(state)
    assert own.keeps_rows(state) == (kept > 0 or "parts" not in changes)
    assert kept == (n if "parts" not in changes or n < WARMUP else 0)


@pytest.mark.parametrize("kind", ["full", "adaptive"])
@pytest.mark.parametrize("n", [20, 60, 95, 130])
def test_a_snapshot_stays_what_it_was_while_learning_goes_on(kind, n):
    """In the warm-up, in the lag of a search, between searches: no array that learning changes is shared."""
    own = core(kind)
    state = learned(own, n)
    before, kept = pickle.dumps(state), own.snapshot(state)
    assert pickle.dumps(kept) == before
    learned(own, 200, state=state, first=n)
    assert pickle.dumps(kept) == before


@pytest.mark.parametrize("n", [20, 60, 95])
def test_rows_of_components_are_all_rows_but_those_of_a_warm_up(n):
    own = core()
    assert own.rows_of_components(learned(own, n)).sum() == pytest.approx(n if n > WARMUP else 0.0, rel=0.01)


@pytest.mark.parametrize("n", [20, 60, 145])
def test_moments_of_columns_are_those_of_all_rows(n):
    """By the law of total variance, pending rows included, in the units of the data."""
    own = core()
    mean, std = own.column_moments(learned(own, n))
    np.testing.assert_allclose(mean, X[:n].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(std, X[:n].std(axis=0), rtol=1e-4)


def test_moments_of_a_column_that_was_never_seen_are_unknown():
    own, rows = core(), X[:20].copy()
    assert own.column_moments(own.init(D, None)) is None
    rows[:, 1] = np.nan
    state, _ = own.learn(own.init(D, None), rows, np.ones(20), UNWATCHED)
    assert own.column_moments(state) is None


@pytest.mark.parametrize("kind", ["full", "adaptive"])
def test_it_is_foreseen_when_a_search_is_under_way_and_when_it_ends(kind):
    own = core(kind)
    state, at = own.init(D, None), 0

    def searched(state):
        return [one.searched for one in (state.members if kind == "adaptive" else [state])]

    for n in (30, 9, 1, 10, 25, 6, 60):
        ends, runs, before = own.searches_within(state, n), own.is_searching(state, n), searched(state)
        state = learned(own, n, state=state, first=at)
        assert ends == (searched(state) != before)
        if runs and not ends:
            assert (state.members[0] if kind == "adaptive" else state).pending.size > 0
        at += n


def test_answers_between_searches_are_there_after_the_warm_up_only():
    own = core()
    early, late = learned(own, 20), learned(core(), 70)
    assert own.between_searches(early) is None
    assert own.n_between_searches(early) is None
    fresh = own.fresh()
    mixture = fresh.between_searches(late)
    assert mixture.weights.sum() == pytest.approx(1.0)
    # The broad Gaussian is behind those that are shown.
    assert len(mixture.weights) == fresh.n_between_searches(late) + 1
    assert fresh.answers(late).n_components == 2


def test_the_best_memory_answers_and_the_look_of_another_is_dropped():
    own = core("adaptive")
    state = learned(own, 60)
    assert isinstance(state, Bank)
    own.look(state)
    for best in (0, len(own.members) - 1):
        weights = np.full(len(own.members), -5.0)
        weights[best] = -0.1
        found = own.answering(state._replace(log_weights=weights))
        assert found.state is state.members[best]
        assert found.settings is own.members[best]
        assert found.progress is own.progresses[best]
        assert own.asked.look is None


def test_a_part_of_an_adaptive_model_forgets_nothing_from_here_on():
    own = core("adaptive")
    state = learned(own, 120)
    part = own.part(state, 2.0)
    assert part.share == 2.0
    assert part.state.pending.size == 0
    merged = own.merge([own.part(state, 1.0), own.part(state, 1.0)], None, search=False, most=None)
    assert isinstance(merged, Bank)
    assert len(merged.members) == len(own.members)


@pytest.mark.parametrize("most", [None, 1])
def test_merged_states_count_the_rows_of_all(most):
    own = core()
    a, b = learned(own, 120), learned(core(), 100, first=120)
    merged = own.merge([own.part(a, 1.0), core().part(b, 1.0)], ["a", "b"], search=True, most=most)
    assert own.rows_seen(merged) == 220
    assert own.effective_samples(merged) == pytest.approx(220.0)
    mean, _ = own.fresh().column_moments(merged)
    np.testing.assert_allclose(mean, X[:220].mean(axis=0), rtol=0.02)
    assert most is None or own.fresh().answers(merged).n_components == 1


def test_columns_in_another_order_are_the_same_model():
    own = core()
    state = learned(own, 120)
    turned = own.over_columns(state, ["a", "b"], ["b", "a"], [])
    np.testing.assert_allclose(core().column_moments(turned)[0], core().column_moments(state)[0][::-1])


def test_the_donor_of_a_column_shares_most_columns_and_then_has_most_rows():
    donors = [
        Donor(list("cz"), None, None, 900),
        Donor(list("abz"), None, None, 50),
        Donor(list("zba"), None, None, 60),
    ]
    donor, gap = _best_donor("z", list("abc"), donors)
    assert donor is donors[2]
    assert tuple(gap)[-1] == 0
    assert [list(part) for part in tuple(gap)[:2]] == [[0, 1], [2, 1]]


def test_models_are_ordered_by_what_they_hold():
    own = core()
    early, late = learned(own, 20), learned(core(), 120)
    assert own.content(early) == X[:20].tobytes()
    K = late.model.components.size[0]
    assert own.content(late) == late.model.components.means[:K].tobytes()


def test_banks_of_another_size_are_refused():
    own = core("adaptive")
    state = learned(own, 30)
    own.check_loaded(state, D)
    with pytest.raises(ModelFileError):
        own.check_loaded(state._replace(members=state.members[1:]), D)
    with pytest.raises(ModelFileError):
        core().check_loaded(learned(core(), 30), D + 1)
