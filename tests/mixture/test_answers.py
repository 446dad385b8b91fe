"""The face of answers: each beside a dense twin, for full and for diagonal covariances."""

import numpy as np
import pytest

import naive
from everlearn.gaussian import conditional
from everlearn.mixture import ask, learn
from everlearn.mixture.answers import FullAnswers
from everlearn.mixture.ask import Asked
from everlearn.mixture.learn import Progress
from everlearn.mixture.shrinkage import conditional_mixture
from mixture_toys import groups, settings_for

D = 4
UNITS = np.array([1.0, 1e-6, 1e6, 3.0])
X = groups(np.random.default_rng(3), 260, D, 2)[0] @ (np.eye(D) + 0.4) * UNITS


@pytest.fixture(scope="module", params=[False, True], ids=["full", "diagonal"])
def answers(request):
    settings, progress = settings_for(D, warmup=60, diagonal=request.param), Progress()
    state, _ = learn.learn(learn.init(D, 300, settings), X[:200], np.ones(200), settings, progress)
    return FullAnswers(ask.answering_state(state, settings, progress, Asked()))


def whole(answers):
    """The mixture with the broad Gaussian behind it, covariances as matrices."""
    weights, means, covariances = ask.whole_mixture(answers.look)
    return weights, means, np.array([np.diag(C) if C.ndim == 1 else C for C in covariances])


def of_conditionals(answers):
    """The mixture that conditional answers come from, in the units of the data: correlations that are chance shrunk."""
    (weights, means, covariances), scale = conditional_mixture(answers.look)
    own = np.array([np.diag(C) if C.ndim == 1 else C for C in covariances])
    return weights, means * scale, own * scale * scale[:, None]


def test_conditionals_come_from_the_means_and_variances_of_the_density(answers):
    for found, wanted in zip(of_conditionals(answers)[:2], whole(answers)[:2], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    diagonals = (np.diagonal(mixture[2], axis1=1, axis2=2) for mixture in (of_conditionals(answers), whole(answers)))
    np.testing.assert_allclose(*diagonals, rtol=1e-9)


def test_precisions_are_inverses(answers):
    scale = np.outer(UNITS, UNITS)
    for C, P in zip(answers.covariances, answers.precisions, strict=True):
        if C.ndim == 1:
            np.testing.assert_allclose(C * P, np.ones(D), rtol=1e-10)
        else:
            np.testing.assert_allclose((C / scale) @ (P * scale), np.eye(D), atol=1e-8)


def test_parameters_are_counted(answers):
    """Means and free elements of each covariance, and weights that add up to one."""
    own = D if answers.look.model.shape.diagonal else D * (D + 1) // 2
    K = answers.n_components
    assert K == len(answers.weights) == len(answers.means) >= 2
    assert answers.n_parameters == K * (D + own) + K - 1


def test_gaps_are_filled_as_by_the_dense_mixture(answers):
    rows = X[200:206].copy()
    rows[np.random.default_rng(4).random(rows.shape) < 0.5] = np.nan
    rows[0] = np.nan
    filled, std = answers.impute(rows)
    for x, found, spread in zip(rows, filled, std, strict=True):
        gaps = np.isnan(x)
        mean, wanted = naive.impute(x, *of_conditionals(answers)) if not gaps.all() else _of_all(answers)
        np.testing.assert_allclose(found[gaps] / UNITS[gaps], mean / UNITS[gaps], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(spread[gaps], wanted, rtol=1e-6)
        np.testing.assert_array_equal(found[~gaps], x[~gaps])


def _of_all(answers):
    mean, covariance = naive.moment_match(*whole(answers))
    return mean, np.sqrt(np.diagonal(covariance))


@pytest.mark.parametrize("columns", [[1], [0, 3]])
def test_columns_given_the_others(answers, columns):
    """Weights, means and covariances of every component."""
    columns, rows = np.array(columns), X[200:205]
    others = np.setdiff1d(np.arange(D), columns)
    found, scale = answers.condition(rows, columns)
    weights, means, covariances = of_conditionals(answers)
    for k, (m, C) in enumerate(zip(means, covariances, strict=True)):
        mean, covariance = naive.condition(m, C, others, rows[:, others], columns)
        np.testing.assert_allclose(found.means[:, k] * scale, mean, rtol=1e-6)
        own = conditional.full_covariances(found)[k] * scale * scale[:, None]
        np.testing.assert_allclose(
            own / np.outer(scale, scale), covariance / np.outer(scale, scale), rtol=1e-6, atol=1e-8
        )
    known = rows.copy()
    known[:, columns] = np.nan
    joint = naive.log_joint_with_gaps(known, weights, means, covariances)
    np.testing.assert_allclose(found.weights, np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None]), atol=1e-8)


def test_draws_follow_the_components(answers):
    rows, label = answers.sample(3000, np.random.default_rng(5))
    again, _ = answers.sample(3000, np.random.default_rng(5))
    np.testing.assert_array_equal(rows, again)
    np.testing.assert_allclose(np.bincount(label) / 3000, answers.weights, atol=0.04)
    for k in range(answers.n_components):
        own = rows[label == k]
        error = (own.mean(axis=0) - answers.means[k]) / (own.std(axis=0) / np.sqrt(len(own)))
        assert np.abs(error).max() < 4.5


def test_densities_and_p_values_fall_together(answers):
    away = X[210] + np.arange(5.0)[:, None] * 8.0 * UNITS
    assert (np.diff(answers.log_density(away)) < 0.0).all()
    p = answers.p_values(away)
    assert (np.diff(p) <= 0.0).all()
    assert p[0] > 1e-3 > p[-1]
    np.testing.assert_allclose(answers.responsibilities(away).sum(axis=1), 1.0)
