"""Between the rows: units, one Gaussian before the mixture, a broad one behind it, and what is prepared once."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from detectors import SETTINGS, state_with_sample
from everlearn import AnomalyDetector
from everlearn.anomaly import learn
from everlearn.anomaly.state import Units


def test_a_gap_is_no_silence():
    """A sensor that is gone does not look like a frozen one: its activity stays what it was."""
    rng = np.random.default_rng(3)
    X = np.cumsum(rng.normal(size=(1500, 3)), axis=0) * 0.01 + rng.normal(size=(1500, 3))
    X[1300:, 1] = np.nan
    scores = AnomalyDetector().prequential(X)
    assert np.median(scores[1400:]) > -4.0


def test_any_split_of_a_stream_gives_the_same_scores():
    X = np.random.default_rng(0).normal(size=(700, 2))
    X[300:340] += 9.0
    whole = AnomalyDetector(patience=30, grace_period=100)
    expected = whole.prequential(X)
    parts = AnomalyDetector(patience=30, grace_period=100)
    found = [parts.prequential(X[start:stop]) for start, stop in ((0, 1), (1, 99), (99, 333), (333, 700))]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-9, atol=1e-12)
    assert parts.events_ == whole.events_


def test_one_gaussian_of_the_sample_has_its_variances_and_part_of_its_correlations():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 3)) * [1.0, 100.0, 0.01]
    weights, means, covariances = learn._one_gaussian(state_with_sample(rows).sample)
    expected = np.cov(rows.T, bias=True)
    off = ~np.eye(3, dtype=bool)
    assert weights.tolist() == [1.0]
    np.testing.assert_allclose(means[0], rows.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(np.diag(covariances[0]), np.diag(expected), rtol=1e-10)
    np.testing.assert_allclose(covariances[0][off], expected[off] * 40 / 44, rtol=1e-10)
    few = rng.normal(size=(3, 8))
    assert np.linalg.eigvalsh(learn._one_gaussian(state_with_sample(few).sample)[2][0])[0] > 0.0


def test_counts_have_the_width_of_their_step():
    """Sheppard's correction: 1/12 of the squared step for counts, nothing for real numbers and for a single value."""
    rng = np.random.default_rng(2)
    rows = np.column_stack([5.0 * rng.poisson(3, 200), rng.normal(size=200), np.full(200, 7.0)])
    sample = state_with_sample(rows).sample
    steps = learn.grid_steps(sample)
    assert steps[[0, 2]].tolist() == [5.0, 0.0]
    assert 0.0 < steps[1] < 1e-2
    found = learn.frozen(AnomalyDetector().fit(rows[:20]).mixture_, sample)
    assert found.covariances[0, 0, 0] * found.scale[0] ** 2 >= 25.0 / 12.0


def test_the_broad_component_has_half_a_row_and_four_times_the_covariance_of_all():
    """Against the moments of many draws of the mixture."""
    rng = np.random.default_rng(2)
    weights, means = np.array([0.3, 0.7]), np.array([[0.0, 0.0], [4.0, -2.0]])
    covariances = np.array([np.eye(2), [[2.0, 0.5], [0.5, 1.0]]])
    w, m, C = learn._with_broad(weights, means, covariances, 10.0)
    np.testing.assert_allclose(w, np.array([3.0, 7.0, 0.5]) / 10.5)
    drawn = [rng.multivariate_normal(means[k], covariances[k], size=int(1e5 * weights[k])) for k in range(2)]
    np.testing.assert_allclose(m[2], np.vstack(drawn).mean(axis=0), atol=0.05)
    np.testing.assert_allclose(C[2], 4 * np.cov(np.vstack(drawn).T), atol=0.3)


def test_heights_factors_and_precisions_are_those_of_the_components():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(2, 3, 3))
    weights, means, covariances = np.array([0.4, 0.6]), rng.normal(size=(2, 3)), A @ A.transpose(0, 2, 1) + np.eye(3)
    density = learn._factorised(Units(np.zeros(3), np.ones(3)), weights, means, covariances.copy(), np.ones(3))
    np.testing.assert_allclose(density.precisions @ covariances, np.tile(np.eye(3), (2, 1, 1)), atol=1e-7)
    for k in range(2):
        at_mean = np.log(weights[k]) + multivariate_normal(means[k], covariances[k]).logpdf(means[k])
        assert density.heights[k] == pytest.approx(at_mean, abs=1e-7)


def test_what_is_prepared_is_used_while_state_and_settings_stay():
    state, prepared = learn.init(2, SETTINGS), learn.Prepared()
    handle = prepared.of(state, SETTINGS)
    assert prepared.of(state, SETTINGS) is handle
    assert prepared.of(state._replace(clock=state.clock), SETTINGS) is not handle


def test_arrays_that_cannot_be_written_are_copied_and_others_are_not():
    state = learn.init(2, SETTINGS)
    assert learn.writeable(state) is state
    state.clock.rows.flags.writeable = False
    ready = learn.writeable(state)
    assert ready.clock.rows.flags.writeable
    assert ready.sample is state.sample


def test_a_late_column_is_one_that_had_no_units_and_has_ten_values():
    state = state_with_sample(np.random.default_rng(4).normal(5.0, 2.0, size=(60, 2)))
    assert learn.has_late_column(state)
    known = state._replace(past=learn.init_past(Units(*(a.copy() for a in state.sample.units))))
    assert not learn.has_late_column(known)
    state.sample.rows[9:60] = np.nan
    assert not learn.has_late_column(state)
