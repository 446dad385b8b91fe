"""What a column's own past says about it: running numbers against all rows at once."""

import numpy as np
import pytest

from detectors import SETTINGS, task_of
from everlearn.anomaly.kernels.past import BEYOND_DOUBT, CONSTANT, SETTLED, TRUSTED, predictability
from everlearn.anomaly.kernels.rows import replay
from everlearn.anomaly.learn import init

ROWS = 80


def autoregressive(rng, n=ROWS, D=3, memory=0.7):
    X, noise = np.zeros((n, D)), rng.normal(size=(n, D)) @ rng.normal(size=(D, D))
    for t in range(1, n):
        X[t] = memory * X[t - 1] + noise[t]
    return X


def learn_one_by_one(X):
    """The state after all rows, and what was seen at each: before the row the precision, after it the rest."""
    state = init(X.shape[1], SETTINGS)
    task, handle = task_of(state)
    kept = {name: [] for name in ("precision", "variance", "regressors", "predicted", "error", "level", "own", "u")}
    kept |= {name: [] for name in ("joint_residual", "own_residual", "trusted", "statistics", "coefficients")}
    for t in range(len(X)):
        for name in ("precision", "variance"):
            kept[name].append(getattr(state.past, name).copy())
        replay(X[t : t + 1], handle)
        for name in ("regressors", "predicted", "error", "joint_residual", "trusted", "statistics", "u"):
            kept[name].append(getattr(task.scratch, name).copy())
        for name in ("level", "own", "coefficients"):
            kept[name].append(getattr(state.past, name).copy())
        kept["own_residual"].append(task.scratch.own.copy())
    return state, {name: np.array(values) for name, values in kept.items()}


@pytest.fixture(scope="module")
def learned():
    return learn_one_by_one(autoregressive(np.random.default_rng(0)))


def test_recursive_least_squares_is_ridge_regression(learned):
    """The targets are predictions and errors, which are clipped where they are far out."""
    state, seen = learned
    for j in range(3):
        R, y = seen["regressors"][:, j], seen["predicted"][:, j] + seen["error"][:, j]
        expected = np.linalg.solve(np.eye(R.shape[1]) + R.T @ R, R.T @ y)
        np.testing.assert_allclose(state.past.coefficients[j], expected, rtol=1e-8, atol=1e-10)
        # The history is of the values before, the newest first.
        np.testing.assert_allclose(R[5:, 1:4], np.stack([seen["trusted"][5 - k : -k, j] for k in (1, 2, 3)], axis=1))


def test_running_moments_are_those_of_all_rows(learned):
    """Up to 5,000 rows they are plain means."""
    state, seen = learned
    past, e = state.past, seen["error"]
    np.testing.assert_allclose(past.mean, seen["u"].mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(past.covariance, e.T @ e / ROWS, rtol=1e-8)
    np.testing.assert_allclose(past.level_moments, [seen["level"].mean(axis=0), seen["level"].var(axis=0)], rtol=1e-8)
    logs = np.log(seen["own"] + 1e-3)
    np.testing.assert_allclose(past.own_moments, [logs.mean(axis=0), logs.var(axis=0)], rtol=1e-8)


def test_residuals_are_the_conditional_z_values_of_a_gaussian(learned):
    _, seen = learned
    for t in (30, 60, 79):
        P, u = seen["precision"][t], seen["u"][t]
        e, C = u - seen["predicted"][t], np.linalg.inv(P)
        np.testing.assert_allclose(seen["own_residual"][t], e / np.sqrt(seen["variance"][t]), rtol=1e-10)
        assert seen["statistics"][t, 4] == pytest.approx(e @ np.linalg.solve(C, e))
        for j in range(3):
            others = np.arange(3) != j
            slope = np.linalg.solve(C[np.ix_(others, others)], C[others, j])
            z = (e[j] - slope @ e[others]) / np.sqrt(C[j, j] - slope @ C[others, j])
            assert seen["joint_residual"][t, j] == pytest.approx(z)


def test_statistics_are_untold_until_residuals_have_a_scale(learned):
    _, seen = learned
    assert np.isnan(seen["statistics"][: SETTLED + 1, 4:]).all()
    assert np.isfinite(seen["statistics"][SETTLED + 1 :, 4:]).all()


def test_residuals_beside_gaps_are_those_of_the_observed_columns_alone():
    """And a gap enters the history as its prediction and the mean of its error given those of the others."""
    X = autoregressive(np.random.default_rng(3))
    gaps = np.random.default_rng(4).random(X.shape) < 0.3
    gaps[50], gaps[51] = False, True
    _, seen = learn_one_by_one(np.where(gaps, np.nan, X))
    for t in range(30, 80):
        C, e, o = np.linalg.inv(seen["precision"][t]), seen["u"][t] - seen["predicted"][t], ~gaps[t]
        expected = np.zeros(3)
        for j in np.flatnonzero(o):
            others = o & (np.arange(3) != j)
            slope = np.linalg.solve(C[np.ix_(others, others)], C[others, j])
            spread = np.sqrt(C[j, j] - slope @ C[others, j])
            expected[j] = (e[j] - slope @ e[others]) / spread
        np.testing.assert_allclose(seen["joint_residual"][t], expected, rtol=1e-8, atol=1e-10)
        S_inverse = np.linalg.inv(C[np.ix_(o, o)])
        assert seen["statistics"][t, 4] == pytest.approx(e[o] @ S_inverse @ e[o])
        filled = C[np.ix_(~o, o)] @ S_inverse @ e[o]
        limit = TRUSTED * np.sqrt(seen["variance"][t, ~o])
        np.testing.assert_allclose(
            (seen["trusted"] - seen["predicted"])[t, ~o], np.clip(filled, -limit, limit), rtol=1e-8, atol=1e-10
        )
        assert (seen["own_residual"][t, ~o] == 0.0).all()


def test_gaps_do_not_shrink_the_covariance_of_the_errors():
    """Of columns of noise it is that of the noise, though a third of the values is missing."""
    rng = np.random.default_rng(5)
    mixing = np.array([[1.0, 0.0, 0.0], [0.9, 0.4, 0.0], [0.0, 0.3, 0.5]])
    X = 0.1 * rng.normal(size=(4000, 3)) @ mixing.T  # where asinh is nearly linear
    whole, _ = learn_one_by_one(X)
    gappy, _ = learn_one_by_one(np.where(rng.random(X.shape) < 0.3, np.nan, X))
    np.testing.assert_allclose(gappy.past.covariance, whole.past.covariance, atol=7e-4)


def test_an_outlier_enters_the_history_in_part_and_a_gap_teaches_nothing():
    X = autoregressive(np.random.default_rng(1))
    X[60, 0], X[70, 1] = 1e6, np.nan
    _, seen = learn_one_by_one(X)
    away = np.abs(seen["trusted"] - seen["predicted"])
    np.testing.assert_allclose(away[60, 0], TRUSTED * np.sqrt(seen["variance"][60, 0]))
    assert away[70, 1] > 0.0
    assert seen["own_residual"][70, 1] == seen["joint_residual"][70, 1] == 0.0
    np.testing.assert_array_equal(seen["coefficients"][70, 1], seen["coefficients"][69, 1])
    np.testing.assert_array_equal(seen["level"][70, :, 1], seen["level"][69, :, 1])


def test_repeated_values_are_as_surprising_as_their_runs_are_rare():
    """A Markov chain of two states: how often a value was repeated after a change, and after a repeat."""
    rng = np.random.default_rng(2)
    x = np.repeat(rng.normal(size=40), rng.choice([1, 1, 1, 2, 4], 40))
    x = np.r_[x, np.full(6, x[-1])]
    state, seen = learn_one_by_one(x[:, None])
    repeat = np.r_[False, x[1:] == x[:-1]]
    before = np.r_[False, repeat[:-1]]
    counts = [(~before).sum(), (repeat & ~before).sum(), before.sum(), (repeat & before).sum()]
    assert state.past.repeat_counts[0].tolist() == counts
    run = int(np.argmin(repeat[::-1]))  # repeats up to the last row
    known = repeat[:-1], before[:-1]
    first = (np.sum(known[0] & ~known[1]) + 0.5) / (np.sum(~known[1]) + 1)
    again = (np.sum(known[0] & known[1]) + 0.5) / (np.sum(known[1]) + 1)
    assert seen["statistics"][-1, -1] == pytest.approx(-np.log(first) - (run - 1) * np.log(again))


def test_a_row_that_comes_twice_is_more_surprising_than_a_value_that_does():
    X = autoregressive(np.random.default_rng(6), 60, 3)
    one, whole = X.copy(), X.copy()
    one[-1, 1], whole[-1] = one[-2, 1], whole[-2]
    last = [learn_one_by_one(rows)[1]["statistics"][-1, -1] for rows in (X, one, whole)]
    # 59 changes, and no repeat: (0 + 1/2) / (59 + 1) by the Markov chain.
    assert last == pytest.approx([0.0, np.log(120.0), BEYOND_DOUBT])
    for rows in (one, whole):
        rows[30, 2] = rows[29, 2]
    last = [learn_one_by_one(rows)[1]["statistics"][-1, -1] for rows in (one, whole)]
    # In the third column one of 58 changes was followed by a repeat.
    assert last == pytest.approx([np.log(120.0), 2.0 * np.log(120.0) + np.log(59.0 / 1.5)])
    # A stream of one column has no other sensor to tell chance from a row that was sent twice.
    alone = learn_one_by_one(np.ascontiguousarray(one[:, 1:2]))[1]["statistics"][-1, -1]
    assert alone == pytest.approx(np.log(120.0))


def test_predictability_is_that_of_the_order_of_rows():
    rng = np.random.default_rng(3)
    ordered, shuffled = (learn_one_by_one(X)[0] for X in (autoregressive(rng, 150, 2, 0.95), rng.normal(size=(150, 2))))
    assert predictability(ordered.past, ordered.clock) > 0.9
    assert predictability(shuffled.past, shuffled.clock) < 0.3


def test_one_other_value_of_a_column_that_never_varied_is_no_change_of_its_activity():
    """It has no scale: the mean over the latest rows would stay thousands of standard deviations away for dozens."""
    X = autoregressive(np.random.default_rng(4), 70, 2)
    with_constant = np.column_stack([X, np.zeros(70)])
    with_constant[60:, 2] = 1.0
    state, _ = learn_one_by_one(with_constant[:60])
    task, handle = task_of(state)
    state.past.own[:, 2], state.past.joint[:, 2] = 20.0, 20.0
    replay(with_constant[60:61], handle)
    assert task.scratch.own[2] ** 2 > 100.0
    departures = task.scratch.statistics[5:17]
    assert (departures < 100.0).all()


@pytest.mark.parametrize("visits", [1, 3])
def test_a_rare_other_value_of_a_column_is_no_change_of_its_activity(visits):
    """A column that has changed but a few times has no scale either: of its next visit one row is strange."""
    X = np.column_stack([autoregressive(np.random.default_rng(4), 400, 2), np.zeros(400)])
    X[np.linspace(80, 380, visits + 1).astype(int), 2] = 1.0
    state, _ = learn_one_by_one(X[:380])
    assert state.past.deviation[2] > CONSTANT
    task, handle = task_of(state)
    replay(X[380:381], handle)
    assert task.scratch.own[2] ** 2 > 25.0
    assert (task.scratch.statistics[5:17] < 20.0).all()
    assert task.scratch.statistics[4] > 25.0
