"""What makes a row strange, against integrals of the mixture and predictions that are known."""

import numpy as np
import pytest
from scipy.stats import hmean

from detectors import SETTINGS, frozen_density, low_rank_density, prepared_state
from everlearn import AnomalyDetector
from everlearn.anomaly.ask import Explanation, explain, given_others, given_past, score, view_parts
from everlearn.anomaly.learn import Prepared, init, scratch_for
from everlearn.anomaly.merge import _copied
from everlearn.anomaly.state import STATISTICS, VIEWS
from naive import anomaly as naive


def test_conditionals_agree_with_integrals_of_the_joint():
    rng = np.random.default_rng(2)
    density, mixture = frozen_density(rng, D=2)
    x = np.array([0.3, -0.8])
    p, mean, low, high = given_others(density, x)
    grid = np.linspace(-30, 30, 20001)
    weight = np.exp(-naive.surprisal(np.column_stack([np.full_like(grid, x[0]), grid]), *mixture))
    weight /= weight.sum()
    below = weight[grid < x[1]].sum()
    assert mean[1] == pytest.approx((weight * grid).sum(), abs=1e-3)
    assert p[1] == pytest.approx(2 * min(below, 1 - below), abs=2e-3)
    assert np.cumsum(weight)[np.searchsorted(grid, low[1])] == pytest.approx(0.05, abs=2e-3)
    assert np.cumsum(weight)[np.searchsorted(grid, high[1])] == pytest.approx(0.95, abs=2e-3)


def test_a_gap_is_left_out_of_what_the_others_say():
    """As if the mixture had never had the column."""
    density, (weights, means, covariances) = frozen_density(np.random.default_rng(3), D=3)
    x = np.array([0.5, np.nan, -1.0])
    found = np.array(given_others(density, x))
    assert np.isnan(found[:, 1]).all()
    grid = np.linspace(-30, 30, 20001)
    rows = np.column_stack([np.full_like(grid, x[0]), np.full_like(grid, np.nan), grid])
    weight = np.exp(-naive.surprisal(rows, weights, means, covariances))
    assert found[1, 2] == pytest.approx((weight * grid).sum() / weight.sum(), abs=1e-3)


def test_the_smaller_tail_is_not_lost_far_out():
    density, _ = frozen_density(np.random.default_rng(4), D=2)
    above, below = (given_others(density, np.array([0.0, value]))[0][1] for value in (30.0, -30.0))
    assert 0.0 < above < 1e-20
    assert 0.0 < below < 1e-20


def test_a_view_is_the_harmonic_mean_of_the_p_values_of_its_statistics():
    parts = np.random.default_rng(5).exponential(3.0, size=(4, len(STATISTICS)))
    parts[1, 6], parts[2] = np.nan, np.nan
    found = view_parts(parts)
    assert list(found) == list(VIEWS)
    names = list(STATISTICS)
    for view in VIEWS:
        own = parts[:, [i for i, name in enumerate(names) if STATISTICS[name] == view]]
        for t in (0, 1, 3):
            assert found[view][t] == pytest.approx(-np.log(hmean(np.exp(-own[t][~np.isnan(own[t])]))))
        assert found[view][2] == 0.0


def test_a_prediction_is_in_the_units_of_the_data():
    state = prepared_state(np.random.default_rng(6))
    units = state.past.units
    units.centre[:], units.scale[:] = [5.0, 0.0, -2.0], [2.0, 1.0, 0.1]
    scratch = scratch_for(state)
    predicted, p = given_past(state, np.zeros((1, 3)), scratch)
    # A row that is what was predicted has the p-value 1; one at 1.96 standard deviations that of 5 %.
    _, p = given_past(state, predicted, scratch)
    np.testing.assert_allclose(p, 1.0)
    u = np.arcsinh((predicted - units.centre) / units.scale) + 1.959964 * np.sqrt(state.past.variance)
    _, p = given_past(state, np.sinh(u) * units.scale + units.centre, scratch)
    np.testing.assert_allclose(p, 0.05, rtol=1e-5)
    assert np.isnan(given_past(init(3, SETTINGS), np.zeros((2, 3)), scratch)).all()


def test_asking_changes_neither_state_nor_rows():
    state = prepared_state(np.random.default_rng(7))
    before, X = _copied(state), np.array([[0.0, 60.0, np.nan]])
    X.flags.writeable = False
    info, told = score(state, X, SETTINGS, Prepared()), explain(state, X, SETTINGS, ["a", "b", "c"], Prepared())
    assert told.p_value[0] == pytest.approx(np.exp(info.log_p[0]))
    assert np.argmax(told.blame) == 1
    assert told.text().startswith(f"p = {told.p_value[0]:.2g}: b 60, expected")
    for part, copy in zip(state.past, before.past, strict=True):
        np.testing.assert_array_equal(part, copy)
    np.testing.assert_array_equal(state.combined.ordered, before.combined.ordered)


def test_the_text_names_what_contradicts_the_value_most():
    one, D = np.array([0.001]), np.ones((1, 2))
    told = Explanation(
        one, {}, np.array([[0.1, 9.0]]), 1e-9 * D, 2 * D, D, 3 * D, 7 * D, 1e-3 * D, np.array([[2.0, 42.0]]), ["a", "b"]
    )
    assert told.text() == "p = 0.001: b 42, expected 1 to 3 from the others"
    past = told._replace(p_given_past=1e-12 * D)
    assert past.text() == "p = 0.001: b 42, expected about 7 from its own past"
    assert past.sentence(column=0) == "a 2, expected about 7 from its own past"


def test_what_is_not_known_yet_is_not_told():
    """As nan: before the columns have units, or a value where there is none."""
    one, D, unknown = np.array([1.0]), np.ones((1, 2)), np.full((1, 2), np.nan)
    told = Explanation(
        one, {}, 0 * D, unknown, unknown, unknown, unknown, unknown, unknown, np.array([[2.0, np.nan]]), ["a", "b"]
    )
    assert told.text() == "p = 1: a 2; too few rows are learned to say what was expected"
    assert told.sentence(column=1) == "b was not observed"
    early = told._replace(p_given_others=D, low=D, high=3 * D)
    assert early.text() == "p = 1: a 2, expected 1 to 3 from the others"
    late = told._replace(p_given_past=D, predicted=7 * D)
    assert late.text() == "p = 1: a 2, expected about 7 from its own past"


def test_a_row_is_explained_after_the_rows_before_it():
    """As if it had been asked about before it came: its own past is not that of the latest row."""
    rng = np.random.default_rng(8)
    X = np.column_stack([50.0 + 10.0 * np.sin(np.arange(1400) / 20.0), np.zeros(1400)]) + rng.normal(size=(1400, 2))
    X[1300, 0] = 90.0
    detector = AnomalyDetector(grace_period=200).partial_fit(X[:1300])
    asked = detector.explain(X[1300:1301])
    detector.partial_fit(X[1300:1363])  # half a period later
    told = detector._explain_seen(1300)
    assert told.values[0, 0] == 90.0
    assert told.predicted[0, 0] == pytest.approx(asked.predicted[0, 0], abs=1.0)
    assert abs(detector.explain(X[1300:1301]).predicted[0, 0] - asked.predicted[0, 0]) > 3.0
    assert detector._explain_seen(1363) is None
    assert detector.partial_fit(np.tile(X[:1000], (2, 1)))._explain_seen(1300) is None


def test_columns_given_the_others_are_the_same_from_factors():
    """A low-rank density against the dense one of the same covariances, with a gap and without."""
    low, dense = low_rank_density(np.random.default_rng(6), D=5, Q=2)
    for x in (np.array([0.3, -0.8, 1.0, 0.0, 2.0]), np.array([0.3, np.nan, 1.0, 0.0, 2.0])):
        np.testing.assert_allclose(given_others(low, x), given_others(dense, x), rtol=1e-6, atol=1e-9)
