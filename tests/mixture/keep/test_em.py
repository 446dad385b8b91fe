"""EM in slices: sparse fits are dense ones, slices cover all, and components without rows go."""

import numpy as np
import pytest

from everlearn.mixture.keep import em
from everlearn.mixture.keep.problem import problem_of
from everlearn.mixture.keep.world import ridge_of, world_of_rows
from everlearn.mixture.kernels import fitting
from everlearn.mixture.kernels.near import Near
from mixture_toys import groups, settings_for, shape_of

D, K = 3, 12


def case(*, apart=8.0, n=360, columns=D, **settings):
    """A search on rows of K groups, with responsibilities that know which is which."""
    Z, label = groups(np.random.default_rng(columns), n, columns, K, apart)
    world = world_of_rows(Z, np.ones(n), 1.0)
    rule = settings_for(columns, **settings)
    problem = problem_of(Z, np.ones(n), world, np.full(columns, 1e-3), rule, 3)
    return problem, 0.99 * np.eye(K)[label] + 0.01 / K


def finish(steps):
    """What a generator returns, and how often it yielded."""
    slices = 0
    while True:
        try:
            next(steps)
            slices += 1
        except StopIteration as stop:
            return stop.value, slices


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_sparse_fit_is_the_dense_one(monkeypatch, diagonal):
    problem, R = case(diagonal=diagonal)
    shape = shape_of(D, diagonal=diagonal)
    found, _ = finish(em.fitted(problem, R, 12, shape))
    assert found.near is not None
    assert len(found.near.rows) < 0.3 * R.size
    monkeypatch.setattr(fitting, "may_be_sparse", lambda D, K: False)
    wanted, _ = finish(em.fitted(problem, R, 12, shape))
    assert wanted.near is None
    assert found.value == pytest.approx(wanted.value, abs=1e-3)
    np.testing.assert_allclose(found.R, wanted.R, atol=1e-5)
    np.testing.assert_allclose(found.left_out, wanted.left_out, atol=1e-4)


def test_what_a_move_inherits_is_used_from_its_first_step_on(monkeypatch):
    problem, R = case()
    fit, _ = finish(em.fitted(problem, R, 12, shape_of(D)))
    steps, expect = [], fitting.expect
    monkeypatch.setattr(fitting, "expect", lambda *arguments: steps.append(1) or expect(*arguments))
    again, _ = finish(em.fitted(problem, fit.R, 12, fit.shape, fit.value, fit.near))
    assert not steps, "no step with all components"
    assert again.value == pytest.approx(fit.value, abs=1.0)
    finish(em.fitted(problem, fit.R, 12, fit.shape, fit.value))
    assert steps


def test_a_trial_far_below_what_it_has_to_beat_is_left_half_way():
    problem, R = case()
    even = np.full(R.shape, 1.0 / K)
    good, _ = finish(em.fitted(problem, R, 12, shape_of(D)))
    (_, whole), (left, half) = (finish(em.fitted(problem, even, 12, good.shape, v)) for v in (-1e9, good.value + 1e6))
    assert half < whole
    assert left.value < good.value


def test_components_without_rows_are_dropped():
    problem, R = case()
    shape = shape_of(D)
    R = np.column_stack([R, np.zeros(len(R))])
    assert finish(em.fitted(problem, R, 12, shape))[0].size == K
    fixed = problem._replace(settings=problem.settings._replace(fixed=K + 1))
    assert finish(em.fitted(fixed, R, 12, shape))[0].size == K + 1


def test_a_row_that_was_near_a_dropped_component_only_goes_to_another():
    """Where nothing stands behind the components, too."""
    problem, R = case()
    rows = problem.rows
    Z = np.concatenate([rows.Z, [[300.0, 300.0, 300.0]]])
    problem = problem._replace(rows=rows._replace(Z=Z, weights=np.ones(361), background=np.full(361, -np.inf)))
    R = np.block([[R, np.zeros((360, 1))], [np.zeros((1, K)), np.ones((1, 1))]])
    found, _ = finish(em.fitted(problem, R, 12, shape_of(D)))
    assert found.size == K
    assert found.near is not None
    np.testing.assert_allclose(found.R.sum(axis=1), 1.0)
    assert np.isfinite(found.value)


@pytest.mark.parametrize("columns", [2, 40])
def test_slices_are_of_bounded_work_and_leave_nothing_out(columns):
    rng = np.random.default_rng(0)
    bounds = np.concatenate([[0], np.cumsum(rng.integers(0, 3000, 20))])
    near = Near(bounds, np.zeros(bounds[-1], np.int64), np.empty(bounds[-1]), np.empty(bounds[-1]))
    spans = list(em._component_spans(near, columns))
    assert [first for first, _ in spans] == [0, *(last for _, last in spans[:-1])]
    assert spans[-1][1] == 20
    for first, last in spans:
        work = (bounds[last] - bounds[first]) * (columns**2 // 2 + 8)
        assert work <= em.SLICE or last == first + 1
    assert all(bounds[min(b + 1, 20)] - bounds[a] > em.SLICE // (columns**2 // 2 + 8) for a, b in spans[:-1]), (
        "no slice could have taken one more"
    )


def test_few_rows_of_one_component_ask_for_a_prior():
    problem, _ = case()
    assert em.least_tau(problem, 1) == pytest.approx(2.0 * D**2 / 360.0)
    assert em.least_tau(problem, 2) == pytest.approx((D / 24.0) ** 2)
    few = problem._replace(rows=problem.rows._replace(weights=problem.rows.weights / 1e4))
    assert em.least_tau(few, 1) == em.MOST_TAU
    assert em.first_tau(problem, 2) == em.FIRST_TAU
    assert em.first_tau(problem, 200) == pytest.approx(200.0 * D**2 / 360.0)
    assert [em.has_few_rows(problem, K) for K in (12, 13)] == [False, True]
    diagonal, _ = case(diagonal=True)
    assert em.first_tau(diagonal, 200) == em.FIRST_TAU
    assert not em.has_few_rows(diagonal, 200)


def test_only_all_rows_may_shrink_the_correlations_of_one_component_away():
    problem, _ = case()
    assert em.most_tau(problem, 1) == 16.0 * 360.0
    assert em.most_tau(problem, 2) == em.MOST_TAU
    assert em.most_tau(problem._replace(is_part=True), 1) == em.MOST_TAU


@pytest.mark.parametrize("tau", [0.5, 8.0, 128.0])
def test_columns_that_do_not_vary_are_no_evidence(tau):
    """Left out, rows have the density of the other columns, times that of the ridge, which no choice changes."""
    narrow, R = case()
    Z = np.column_stack([narrow.rows.Z, np.zeros((len(R), 2))])
    world = world_of_rows(Z, np.ones(len(R)), 1.0, np.array([D + 1]))
    ridge = ridge_of(world.variance, world.smooth, 1.0)
    narrow = problem_of(Z[:, :D], np.ones(len(R)), narrow.world, ridge[:D], settings_for(D), 3)
    wide = problem_of(Z, np.ones(len(R)), world, ridge, settings_for(D + 2), 3)
    # Of several components a row has a part of one left out, for which a whole row is counted.
    for shares, tolerance in (R, 0.05), (np.ones((len(R), 1)), 1e-9):
        found = []
        for problem in (narrow, wide):
            moments = fitting.moments_of(problem.rows, shares)
            shape = em.shaped(problem, moments, tau)
            found.append(finish(em.judged(problem, em.Soft(shares, None, moments), shape))[0].left_out)
        constant = -0.5 * np.log(2.0 * np.pi * ridge[D:]).sum()
        np.testing.assert_allclose(found[1], found[0] + constant, atol=tolerance)
