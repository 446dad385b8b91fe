"""Answers of a low-rank mixture beside dense matrices, one row and one component at a time."""

import numpy as np
import pytest
from scipy.stats import norm

import naive
from everlearn.gaussian import conditional
from everlearn.low_rank import ask
from everlearn.low_rank.ask import Asked
from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.state import Frame, Settings, readout_of, squared_distances
from everlearn.low_rank.subspace import Sketched, projected
from low_rank_toys import learned, one
from naive.low_rank import covariance

D, SETTINGS = 18, Settings(3, 8, 60, 150, 16, 2, 64, 1.0, 2**60, 0)
UNITS = 2.0 ** np.arange(D) / 50.0  # columns of very different units


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return (one(rng, n, D) + np.where(rng.random((n, 1)) < 0.4, 9.0, 0.0)) * UNITS + 5.0


STREAM = rows(800)  # all of one law; the model learns the first 200


@pytest.fixture(scope="module")
def state():
    return learned(STREAM[:200], SETTINGS)


@pytest.fixture(scope="module")
def look(state):
    return ask.look_of(state, SETTINGS)


@pytest.fixture(scope="module")
def mixture(look):
    """Weights, means and dense covariances in the units of the data."""
    weights, means, loadings, noise = look.mixture
    return weights, means, np.array([covariance(W, psi) for W, psi in zip(loadings, noise, strict=True)])


def with_gaps(X, seed=1):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < 0.4] = np.nan
    return X


@pytest.mark.parametrize("gaps", [False, True])
def test_densities_and_responsibilities_are_those_of_dense_matrices(look, mixture, gaps):
    X = rows(12, seed=2)
    X = with_gaps(X) if gaps else X
    joint = naive.log_joint_with_gaps(X, *mixture)
    total = np.logaddexp.reduce(joint, axis=1)
    np.testing.assert_allclose(look.log_density(X), total, rtol=1e-8)
    np.testing.assert_allclose(look.responsibilities(X), np.exp(joint - total[:, None]), atol=1e-8)


def test_a_row_without_values_has_the_density_one_and_is_usual(look):
    X = rows(3, seed=3)
    X[1] = np.nan
    assert look.log_density(X)[1] == 0.0
    assert look.p_values(X)[1] == 1.0


def test_covariances_and_precisions_are_inverses_of_each_other(look, mixture):
    np.testing.assert_allclose(look.covariances, mixture[2], rtol=1e-9)
    for C, P in zip(look.covariances / np.outer(UNITS, UNITS), look.precisions * np.outer(UNITS, UNITS), strict=True):
        np.testing.assert_allclose(C @ P, np.eye(D), atol=1e-7)


def test_gaps_are_filled_by_conditional_means(look, mixture):
    X = with_gaps(rows(6, seed=4))
    filled, std = look.impute(X)
    for x, found, spread in zip(X, filled, std, strict=True):
        gaps = np.isnan(x)
        mean, wanted = naive.impute(x, *mixture)
        np.testing.assert_allclose(found[gaps], mean, rtol=1e-6)
        np.testing.assert_allclose(spread[gaps], wanted, rtol=1e-5)
        np.testing.assert_allclose(found[~gaps], x[~gaps], rtol=1e-12)
        assert not spread[~gaps].any()


def test_columns_are_expected_as_they_are_conditioned(look, mixture):
    """By both ways, and by dense matrices with the asked columns unknown."""
    X, asked = rows(5, seed=5), np.array([3, 11])
    expected = look.expected_columns(X, asked)
    found, scale = look.condition(X, asked)
    np.testing.assert_allclose(conditional.mean(found) * scale, expected, rtol=1e-7)
    holes = X.copy()
    holes[:, asked] = np.nan
    wanted = [naive.impute(x, *mixture)[0] for x in holes]
    np.testing.assert_allclose(expected, wanted, rtol=1e-7)


def test_parameters_are_counted(look):
    """A mean and a noise for each column, and for r directions those of an orthonormal frame with variances."""
    r = look.readout.rank
    directions = [sum(D - q for q in range(k)) for k in r]  # each is orthogonal to those before it
    assert r.max() > 0
    assert look.n_parameters == 2 * (2 * D) + sum(directions) + 1


def test_draws_have_the_mean_of_the_mixture(look, mixture):
    X, label = look.sample(4000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(label) / 4000, mixture[0], atol=0.03)
    error = (X.mean(axis=0) - mixture[0] @ mixture[1]) / (X.std(axis=0) / np.sqrt(4000))
    assert np.abs(error).max() < 4.5


def test_p_values_of_fresh_rows_are_spread_evenly_and_fall_with_the_distance(look):
    p = look.p_values(STREAM[200:])
    assert abs(p.mean() - 0.5) < 0.1
    away = look.means.min(axis=0) - np.arange(5.0)[:, None] * 5.0 * UNITS
    assert (np.diff(look.p_values(away)) < 0.0).all()
    assert look.p_values(away)[-1] < 1e-6


def test_the_tail_is_that_of_the_sample_and_then_gaussian():
    sample = np.sort(np.random.default_rng(1).normal(3.0, 0.5, 400))
    middle = ask.tail_of_sample(sample[:380], sample)
    np.testing.assert_allclose(middle, 1.0 - (np.arange(380) + 0.5) / 400)
    far = np.array([4.5, 5.0, 6.0])
    found = ask.tail_of_sample(far, sample)
    assert np.abs(np.log(found / norm.sf(far, 3.0, 0.5))).max() < 5.0
    # The fitted Gaussian meets the sample where the tail begins.
    spread = (sample[380] - sample.mean()) / norm.isf(1.0 - 380.5 / 400)
    np.testing.assert_allclose(found, norm.sf(far, sample.mean(), spread))


def test_sampled_rows_are_as_far_as_from_a_component_without_them():
    """A twin that leaves each row out in turn; with the row inside, the distances are smaller by a sixth."""
    X = one(np.random.default_rng(9), 60, D)
    plain = SETTINGS._replace(reservoir=0)

    def readout(some):
        component = component_of_rows(some, np.ones(len(some)), plain)
        return component, readout_of(component, 1.0)

    without = [squared_distances(X[i : i + 1], readout(np.delete(X, i, axis=0))[1])[0, 0] for i in range(60)]
    component, whole = readout(X)
    frame = Frame(np.zeros(D), np.ones(D), np.zeros(D))
    found, _ = ask.left_out_roots(component, whole, projected(Sketched(component, whole, frame), 5, 1.0), X)
    inside = squared_distances(X, readout(X)[1])[:, 0]
    assert np.corrcoef(found, np.cbrt(without))[0, 1] > 0.9  # in the order of the rows
    wanted = np.cbrt(without).mean()
    assert found.mean() == pytest.approx(wanted, rel=0.02)
    assert np.cbrt(inside).mean() < 0.96 * wanted


@pytest.mark.parametrize(("n", "since", "grown"), [(5, 0, True), (11, 10, False), (104, 100, False), (105, 100, True)])
def test_a_question_is_worth_a_search_after_a_twentieth_more_rows(n, since, grown):
    assert ask.has_grown(n, since) is grown


def test_an_answer_is_remembered_until_the_next_row_and_changes_nothing(state):
    before = [array.copy() for array in state.model.components]
    asked = Asked()
    first = ask.answering(state, SETTINGS, asked)
    assert ask.answering(state, SETTINGS, asked) is first
    ask.follow(asked, rows(1, seed=8), np.ones(1), SETTINGS, state)
    assert asked.look is None
    for old, new in zip(before, state.model.components, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("reservoir", "fading", "asks_whole", "searches"),
    [(400, 1.0, True, True), (150, 1.0, True, False), (150, 0.9, True, True), (150, 1.0, False, True)],
)
def test_which_questions_are_preceded_by_a_search(reservoir, fading, asks_whole, searches):
    """With `asks_whole` only those where no row that counts was turned away."""
    settings = SETTINGS._replace(reservoir=reservoir, fading=fading, asks_whole=asks_whole)
    state, asked = learned(STREAM[:290], settings), Asked()
    assert state.searched < 270
    ask.answering(state, settings, asked)
    assert (asked.state is not None) is searches


def test_a_p_value_sees_one_quiet_column_and_all_columns_together():
    """A quiet column as far out as is usual of the others, and 1.7 times the usual noise in all of them."""
    rng = np.random.default_rng(3)
    X = one(rng, 900, 40)
    X[:, 0] = 0.01 * rng.normal(size=900)
    asked = ask.look_of(learned(X[:400], SETTINGS._replace(fixed=1, rank=3)), SETTINGS._replace(fixed=1, rank=3))
    quiet, loud = X[400:500].copy(), X[400:500].copy()
    quiet[:, 0] += 0.8
    loud[:, 1:] += 1.4 * rng.normal(size=(100, 39))
    assert (asked.p_values(quiet) < 0.01).mean() > 0.9
    assert (asked.p_values(loud) < 0.01).mean() > 0.9
    assert (asked.p_values(X[400:]) < 0.01).mean() < 0.02


def test_a_share_is_that_of_the_sample_and_in_proportion_below_it():
    sample = np.linspace(0.0, 1.0, 401)[1:] ** 2
    np.testing.assert_allclose(ask.share_below(sample[19:], sample), (np.arange(19, 400) + 0.5) / 400)
    np.testing.assert_allclose(ask.share_below(sample[19] * np.array([1e-9, 0.5]), sample), [19.5e-9 / 400, 9.75 / 400])
    # The harmonic mean is at most five times the first p-value.
    np.testing.assert_allclose(ask.harmonic_mean(np.array([0.3, 1e-6]), np.array([0.3, 1.0])), [0.3, 5e-6], rtol=1e-4)
