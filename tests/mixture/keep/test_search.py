"""The search for a structure: which start goes on, and what it remembers of components."""

import warnings

import numpy as np
import pytest

from everlearn.mixture.keep import em, search
from everlearn.mixture.keep.problem import problem_of
from everlearn.mixture.keep.search import Seen
from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import fitting
from everlearn.mixture.kernels.em import Moments
from mixture_toys import finish, groups, settings_for

D, K = 3, 12


def case(n=960):
    """A search on rows of twelve groups, and responsibilities that know which is which."""
    Z, label = groups(np.random.default_rng(2), n, D, K, 8.0)
    world = world_of_rows(Z, np.ones(n), 1.0)
    problem = problem_of(Z, np.ones(n), world, np.full(D, 1e-3), settings_for(D), 3)
    return problem, 0.99 * np.eye(K)[label] + 0.01 / K


@pytest.fixture
def rounds(monkeypatch):
    """Rounds of each climb, by the number of components that it began with."""
    made, seen, play = {}, [], search._round

    def counted(problem, climb):
        if climb.rounds == 0:
            seen.append((climb.seen, climb.fit.size))
        began = next(size for own, size in seen if own is climb.seen)
        made[began] = climb.rounds + 1
        return (yield from play(problem, climb))

    monkeypatch.setattr(search, "_round", counted)
    return made


def test_a_start_that_cannot_win_is_left_after_its_first_round(rounds):
    problem, _ = case()
    fit = finish(search.search(problem, None, None, crowd=True))
    assert fit.size == K
    assert rounds.pop(1) == 1
    assert max(rounds.values()) > 1
    alone = finish(search.search(problem, None, None, crowd=False))
    assert rounds[1] > 1, "it goes on where there is no other"
    assert fit.value >= alone.value


def test_the_start_that_knows_wins_over_a_crowd(rounds):
    problem, R = case()
    fit = finish(search.search(problem, R, None, crowd=True))
    assert fit.size == K
    assert rounds[K] <= 2
    assert (fit.R.argmax(axis=1) == R.argmax(axis=1)).mean() > 0.99


def test_a_start_with_credit_wins_over_a_crowd_that_is_better_by_less(rounds):
    problem, _ = case()
    start = np.ones((len(problem.rows.Z), 1))
    alone = finish(search.search(problem, start, None, crowd=False))
    fit = finish(search.search(problem, start, None, crowd=True, credit=1e9))
    # The random starts of its splits are others, with the same end.
    assert fit.size == alone.size
    assert fit.value == pytest.approx(alone.value, rel=1e-4)
    assert rounds[1] == max(rounds.values()), "the seeds, which cannot win, are left after their first round"


def test_the_work_of_a_round_is_that_of_rows_and_the_components_near_them(monkeypatch):
    problem, R = case()
    m = len(R)
    all_pairs = 2.0 * search.SPLIT_STEPS * m * K * D * D
    by_near = finish(search._begun(problem, R, 2.0))
    assert by_near.fit.size == K
    assert all_pairs / K <= by_near.work < 0.4 * all_pairs
    monkeypatch.setattr(fitting, "may_be_sparse", lambda D, K: False)
    assert finish(search._begun(problem, R, 2.0)).work == all_pairs


def test_the_ridge_is_the_same_by_all_components_and_by_the_near_ones(monkeypatch):
    problem, R = case()
    fit = finish(em.fitted(problem, R, 12, em.shaped(problem, fitting.moments_of(problem.rows, R), 2.0)))
    assert fit.near is not None
    found = finish(search.choose_fine(problem, fit, 1.0))
    monkeypatch.setattr(fitting, "may_be_sparse", lambda D, K: False)
    assert found == finish(search.choose_fine(problem, fit._replace(near=None), 1.0))


def test_a_component_without_rows_has_no_spread_and_no_warning():
    """EM in many columns may leave one: 0/0 was a RuntimeWarning on the user's screen."""
    counts, means = np.array([0.0, 40.0]), np.array([[1.0, 2.0], [3.0, 4.0]])
    moments = Moments(counts, means, np.array([np.zeros((2, 2)), 40.0 * np.eye(2)]))
    seen = Seen([], [], [])
    seen.add(moments, 1, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert seen.place(moments, 0) == -1
        assert seen.place(moments, 1) == 0


def test_a_component_that_hardly_changed_is_found_again():
    seen = Seen([], [], [])
    scatters = np.array([100.0 * np.eye(2), 50.0 * np.eye(2)])
    found = Moments(np.array([100.0, 50.0]), np.array([[0.0, 0.0], [9.0, 9.0]]), scatters)
    assert [seen.place(found, k) for k in range(2)] == [-1, -1]
    for k in range(2):
        seen.add(found, k, None)
    assert [seen.place(found, k) for k in (1, 0)] == [1, 0]
    moved = Moments(np.array([100.0, 60.0]), np.array([[0.5, 0.0], [9.0, 9.0]]), scatters)
    assert [seen.place(moved, k) for k in range(2)] == [-1, -1]
