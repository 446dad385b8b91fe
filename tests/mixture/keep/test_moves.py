"""Split and merge moves: what they say they change is what the whole evidence and score change by."""

import numpy as np
import pytest

from everlearn.mixture.keep import moves
from everlearn.mixture.keep.evidence import Fit, evidence
from everlearn.mixture.keep.problem import problem_of
from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import em
from everlearn.mixture.kernels.fitting import UNMARKED
from mixture_toys import finish, groups, settings_for, shape_of

D = 2


def case(R, Z):
    """A search on rows without a background, and the fit of responsibilities R."""
    world = world_of_rows(Z, np.ones(len(Z)), 1.0)
    n_columns = Z.shape[1]
    problem = problem_of(Z, np.ones(len(Z)), world, np.full(n_columns, 1e-3), settings_for(n_columns), 3)
    problem = problem._replace(rows=problem.rows._replace(background=np.full(len(Z), -np.inf)))
    return problem, fit_of(problem, np.ascontiguousarray(R))


def fit_of(problem, R):
    shape, moments, out = shape_of(problem.rows.Z.shape[1]), em.moments_of(problem.rows, R), np.empty(len(R))
    em.leave_one_out(
        problem.rows, R, em.parts_of(problem.rows, moments, em.gaussians_of(moments, shape), shape), out, 0, UNMARKED
    )
    return Fit(R, moments, shape, out, float(out.sum()), 0.0)


def evidence_of(problem, fit):
    return evidence(problem.rows, fit.R, fit.moments, moves.evidence_shape(fit.shape), problem.world)


@pytest.fixture
def rows():
    return groups(np.random.default_rng(0), 120, D, 3, apart=3.0)


def test_the_gain_of_a_merge_is_the_change_of_the_whole_evidence(rows):
    Z, _ = rows
    problem, fit = case(np.random.default_rng(1).dirichlet(np.full(3, 0.3), 120), Z)
    gains = moves.merge_gains(problem, fit)
    assert (gains[np.tril_indices(3)] == -np.inf).all()
    pairs = np.argwhere(gains > -np.inf)
    assert len(pairs)
    for pair in map(tuple, pairs):
        merged = fit_of(problem, moves.merge_responsibilities(fit, [pair]))
        change = evidence_of(problem, merged) - evidence_of(problem, fit)
        assert gains[pair] == pytest.approx(change, abs=1e-3)
        value = merged.log_density - fit.log_density + problem.price
        assert moves.merge_value(problem, fit, pair) == pytest.approx(value, abs=1e-2)


def test_two_halves_of_a_group_are_merged_and_two_groups_are_not(rows):
    Z, label = rows
    half = np.arange(120) // 3 % 2
    problem, fit = case(np.eye(4)[np.where(label == 0, 3 * half, label)], Z)
    gains = moves.merge_gains(problem, fit)
    assert np.unravel_index(gains.argmax(), gains.shape) == (0, 3)
    assert gains[0, 3] > 0.0
    assert moves.merge_value(problem, fit, (0, 3)) > 0.0
    assert moves.merge_value(problem, fit, (1, 2)) < 0.0


def test_two_components_without_rows_are_worth_joining(rows):
    Z, label = rows
    problem, fit = case(np.column_stack([np.eye(3)[label], np.zeros((120, 2))]), Z)
    gains = moves.merge_gains(problem, fit)
    assert not np.isnan(gains).any()
    assert gains[3, 4] > 0.0


def test_a_component_of_two_groups_is_split_between_them(rows):
    Z, label = rows
    problem, fit = case(np.eye(2)[np.minimum(label, 1)], Z)
    split = finish(moves.propose_split(problem, fit, 1))
    own = label > 0
    side = split.share[own] > 0.5
    assert abs((side == (label[own] == 1)).mean() - 0.5) > 0.47
    assert (split.share[~own] == 0.5).all()
    after = moves.split_responsibilities(fit, {1: split})
    np.testing.assert_allclose(after[:, 0], fit.R[:, 0])
    np.testing.assert_allclose(after[:, 1:].sum(axis=1), fit.R[:, 1])


def test_what_a_split_says_of_itself_is_the_change_of_the_whole(rows):
    """Exactly so where all rows are in the component: rows of others are left out of its account."""
    Z = np.ascontiguousarray(rows[0][rows[1] > 0])
    problem, fit = case(np.ones((80, 1)), Z)
    split = finish(moves.propose_split(problem, fit, 0))
    after = fit_of(problem, moves.split_responsibilities(fit, {0: split}))
    assert after.size == 2
    assert split.value == pytest.approx(after.log_density - fit.log_density - problem.price, abs=1e-3)
    assert split.gain == pytest.approx(evidence_of(problem, after) - evidence_of(problem, fit), abs=1e-3)
    assert split.value > 0.0


def test_one_group_does_not_pay_for_a_split_and_few_rows_are_not_split(rows):
    Z, label = rows
    problem, fit = case(np.eye(3)[label], Z)
    split = finish(moves.propose_split(problem, fit, 0))
    assert split is None or split.value < 0.0
    few, fit = case(np.eye(2)[(np.arange(120) < 5).astype(int)], Z)
    assert finish(moves.propose_split(few, fit, 1)) is None


def test_pairs_are_merged_together():
    _, fit = case(np.random.default_rng(2).dirichlet(np.ones(5), 60), np.random.default_rng(3).normal(size=(60, D)))
    found = moves.merge_responsibilities(fit, [(0, 3), (1, 4)])
    np.testing.assert_allclose(found, np.column_stack([fit.R[:, [0, 3]].sum(1), fit.R[:, [1, 4]].sum(1), fit.R[:, 2]]))


def test_the_prior_of_the_evidence_counts_for_two_rows_at_most():
    assert moves.evidence_shape(shape_of(D, tau=30.0)).tau == moves.MAX_TAU
    assert moves.evidence_shape(shape_of(D, tau=0.5)).tau == 0.5


@pytest.fixture
def steps(monkeypatch):
    """EM steps of the trials, in their order."""
    taken, evidence_of_divisions = [], moves.evidence_of_divisions

    def counted(*arguments):
        taken.append(arguments[4].steps)
        evidence_of_divisions(*arguments)

    monkeypatch.setattr(moves, "evidence_of_divisions", counted)
    return taken


def test_a_split_that_is_without_hope_after_more_steps_has_no_last_ones(steps):
    """One Gaussian of few columns loses less at first than the price and HOPELESS, and does not make up for it."""
    Z = np.random.default_rng(0).normal(size=(2000, 4))
    assert finish(moves.propose_split(*case(np.ones((2000, 1)), Z), 0)) is None
    assert set(steps) == {moves.STEPS, moves.MORE_STEPS}


def test_a_split_far_from_hope_is_left_after_its_first_steps(steps):
    """One Gaussian of many columns; two far groups in as many columns are divided as ever."""
    Z = np.random.default_rng(0).normal(size=(600, 20))
    assert finish(moves.propose_split(*case(np.ones((600, 1)), Z), 0)) is None
    assert set(steps) == {moves.STEPS}
    Z[300:] += 4.0
    split = finish(moves.propose_split(*case(np.ones((600, 1)), Z), 0))
    assert moves.LAST_STEPS in steps
    assert split.gain > 0.0
    assert np.abs(split.share[:300].mean() - split.share[300:].mean()) > 0.99


def test_two_rows_are_those_of_numpys_choice():
    for seed in range(50):
        p = np.random.default_rng(seed).dirichlet(np.full(4, 0.3))  # so that one row is often drawn twice
        found = moves._two_rows(p, np.random.default_rng([seed, 1]))
        assert found == tuple(np.random.default_rng([seed, 1]).choice(4, 2, replace=False, p=p))


def test_first_divisions_leave_both_halves_some_rows(rows):
    Z, _ = rows
    problem, _ = case(np.ones((120, 1)), Z)
    weights = np.full(120, 0.05)  # six rows: three of the tails are not enough
    whole = moves.whole_of(Z, weights)
    shares = moves._starts(whole, shape_of(D), problem)
    counts = (shares > 0.5) @ weights
    assert 0 < len(shares) < moves.STARTS
    assert (counts >= moves.LEAST).all()
    assert (counts <= 6.0 - moves.LEAST).all()


def test_components_after_a_move_know_what_they_were():
    """In the order of the columns of the responsibilities."""
    assert moves.parents_of_halves(3, [1]) == [[0], [1], [1], [2]]
    assert moves.parents_of_unions(5, [(0, 3), (1, 4)]) == [[0, 3], [1, 4], [2]]
