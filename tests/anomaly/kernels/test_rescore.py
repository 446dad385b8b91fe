"""Rows that were learned, scored as if they had not been."""

import numpy as np
import pytest
from scipy.stats import chi2

from detectors import SETTINGS, low_rank_density, prepared_state, task_of
from everlearn.anomaly.kernels.density import atypicality
from everlearn.anomaly.kernels.memory import remember
from everlearn.anomaly.kernels.rescore import (
    combine,
    left_out_atypicality,
    refill,
    remember_released,
    rescore_sample,
    rescore_static,
)
from everlearn.anomaly.kernels.rows import ask_rows
from everlearn.anomaly.learn import _factorised, init, init_memory, no_info, scratch_for
from everlearn.anomaly.state import STATIC, Units
from naive import anomaly as naive


def density_of(X, weights=(1.0 - 1e-13, 1e-13)):
    """One Gaussian fitted to rows; the broad component has no weight to speak of."""
    means, covariance = np.array([X.mean(axis=0), X.mean(axis=0)]), np.cov(X.T, bias=True)
    units, D = Units(np.zeros(X.shape[1]), np.ones(X.shape[1])), X.shape[1]
    covariances = np.array([covariance, 4 * covariance])
    return _factorised(units, np.array(weights), means, covariances, np.full(D, 1e-9))


def test_a_row_is_left_out_of_its_component_without_fitting_it_again():
    """Against a Gaussian that is fitted to the other rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 3))
    density = density_of(X)
    scratch = scratch_for(init(3, SETTINGS)._replace(density=density))
    for i in range(30):
        found = left_out_atypicality(X[i], density, 30.0, scratch)
        assert found == pytest.approx(naive.left_out_atypicality(i, X), rel=1e-4)


def test_a_row_that_is_the_component_keeps_its_plain_value():
    """Nothing of the component would be left without it."""
    X = np.random.default_rng(1).normal(size=(30, 3))
    density, x = density_of(X), np.full(3, 2.0)
    scratch = scratch_for(init(3, SETTINGS)._replace(density=density))
    assert left_out_atypicality(x, density, 1.0, scratch) == pytest.approx(atypicality(x, density, scratch))
    # Of very many rows one changes nothing.
    assert left_out_atypicality(x, density, 1e9, scratch) == pytest.approx(atypicality(x, density, scratch), rel=1e-6)
    assert np.isnan(left_out_atypicality(np.full(3, np.nan), density, 30.0, scratch))


@pytest.mark.parametrize("n", [0, 3, 40, 100])
def test_as_many_rows_of_the_sample_are_scored_anew_as_there_is_room_for(n):
    rng = np.random.default_rng(4)
    state = prepared_state(rng)
    rows = rng.normal(size=(n, 3)) + np.linspace(0.0, 2.0, n)[:, None]
    state.sample.rows[:n], state.sample.size[0] = rows, n
    handle = task_of(state)[1]
    rescore_sample(handle, np.empty((40, STATIC)))
    chosen = rows[:40]
    expected = np.empty((len(chosen), STATIC))
    rescore_static(chosen, handle, expected)
    assert (state.among.size == len(chosen)).all()
    np.testing.assert_allclose(state.among.ordered[:, : len(chosen)], np.sort(expected.T), rtol=1e-12)


def test_statistics_that_do_not_depend_on_the_rows_before():
    """All but the first, which leaves the row out, are those of a row that is asked about."""
    rng = np.random.default_rng(2)
    state = prepared_state(rng)
    state.clock.learned[0] = 10**12
    task, handle = task_of(state)
    X, out = rng.normal(size=(4, 3)), np.full((4, len(SETTINGS.views)), np.nan)
    rescore_static(X, handle, out)
    for x, found in zip(X, out, strict=True):
        ask_rows(x[None], handle, no_info(1))
        np.testing.assert_allclose(found[:4], task.scratch.statistics[:4], rtol=1e-6)
    assert np.isnan(out[:, 4:]).all()


def test_a_refilled_memory_holds_what_is_due_by_the_number_of_its_row():
    rng = np.random.default_rng(3)
    values, numbers, strides = rng.exponential(size=(60, 2)), np.arange(7, 67), np.array([1, 4])
    values[5, 0] = np.nan
    memory = init_memory(np.ones(2), np.ones(2), 40)
    remember(memory, 0, 1e9)
    refill(memory, values, numbers, strides)
    first = values[~np.isnan(values[:, 0]), 0][-40:]
    np.testing.assert_array_equal(memory.ordered[0], np.sort(first))
    np.testing.assert_array_equal(memory.ordered[1, :15], np.sort(values[numbers % 4 == 0, 1]))
    assert memory.size.tolist() == [40, 15]
    assert memory.threshold[0] == pytest.approx(np.sort(first)[-11])  # the tail is that of the last values


def test_slow_statistics_of_released_rows_are_not_remembered_twice():
    rng = np.random.default_rng(4)
    state = prepared_state(rng)
    before = state.memory.size.copy()
    remember_released(np.full((8, len(before)), 0.5), np.arange(64, 72), task_of(state)[1])
    due = np.array([(np.arange(64, 72) % stride == 0).sum() for stride in SETTINGS.strides])
    np.testing.assert_array_equal(state.memory.size - before, np.where(SETTINGS.strides < 32, due, 0))
    assert (SETTINGS.strides >= 32).any()


def test_scores_are_those_of_the_rows_themselves():
    """Statistics of a row that is asked about give the score that it has."""
    rng = np.random.default_rng(5)
    state = prepared_state(rng)
    task, handle = task_of(state)
    info, out = no_info(1), np.zeros((1, 1))
    for x in (np.zeros((1, 3)), np.full((1, 3), 9.0)):
        ask_rows(x, handle, info)
        combine(task.scratch.statistics[None].copy(), handle, out)
        assert out[0, 0] == pytest.approx(info.score[0])


def test_a_row_left_out_of_a_low_rank_component_has_its_leverage():
    """Deviations grow by 1 / (1 - (1 + |expected factors|^2) / n), by the posterior of the component's factors."""
    rng, n = np.random.default_rng(7), 50.0
    low, _ = low_rank_density(rng, D=5, Q=2)
    low = low._replace(log_weights=np.array([0.0, -700.0, -700.0, -700.0]), heights=np.array([0.0, -1e4, -1e4, -1e4]))
    scratch = scratch_for(init(5, SETTINGS)._replace(density=low))
    W, psi = low.covariances[0], 1.0 / low.factors[0, 0]
    z = low.means[0] + rng.normal(size=5)
    factors = np.linalg.solve(np.eye(2) + (W / psi) @ W.T, (W / psi) @ (z - low.means[0]))
    leverage = (1.0 + factors @ factors) / (n - 1.0)
    square = (z - low.means[0]) @ np.linalg.solve(W.T @ W + np.diag(psi), z - low.means[0])
    found = left_out_atypicality(low.centre + low.scale * z, low, n, scratch)
    assert found == pytest.approx(-chi2.logsf(square / (1.0 - leverage) ** 2, 5), rel=1e-9)
