"""AnomalyDetector keeps the contracts of scikit-learn and of streams."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.signal import lfilter
from sklearn.utils.estimator_checks import parametrize_with_checks

import everlearn
from everlearn import AnomalyDetector, IncrementalGaussianMixture
from everlearn.anomaly import learn
from everlearn.checks import stream_checks
from everlearn.experiments.peers.anomaly_clean import slow_cycle


@parametrize_with_checks([AnomalyDetector()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# Hundreds of rows again and again, or thousands.
LONG = (
    "check_memory_is_bounded",
    "check_failure_changes_nothing",
    "check_input_is_left_alone",
    "check_save_and_load",
    "check_merge",
)


def stream_cases():
    for name, check in stream_checks(AnomalyDetector()):
        slow = name in LONG
        yield pytest.param(check, id=name, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("check", list(stream_cases()))
def test_streaming_contract(check):
    check()


def test_held_rows_can_be_accepted_or_discarded():
    rng = np.random.default_rng(5)
    detector = AnomalyDetector(patience=10_000).fit(rng.normal(size=(1000, 2)))
    shifted = rng.normal(8.0, 1.0, size=(200, 2))
    assert detector.prequential(shifted).max() < -4.0
    assert detector.n_held_ > 150
    other = detector.copy()
    assert other.discard_held().n_held_ == 0
    assert other.prequential(shifted).max() < -4.0
    detector.accept_held()
    assert detector.n_held_ == 0
    assert [event.kind for event in detector.events_][-1] == "new_normal"
    assert np.median(detector.score_samples(rng.normal(8.0, 1.0, size=(100, 2)))) > -4.0
    assert detector.accept_held().n_held_ == 0


@pytest.mark.parametrize("learning", ["always", "guarded"])
def test_a_sensor_that_appears_late_is_taken_in_its_own_units(learning):
    """Its past is predicted in units of its own: in those of a column without values the prediction ran away."""
    for seed in range(7):
        X = np.random.default_rng(seed).normal(size=(2000, 3)) * [1.0, 1.0, 30.0] + [0.0, 0.0, 100.0]
        X[:800, 2] = np.nan
        model = AnomalyDetector(learning=learning).partial_fit(X)
        assert np.mean(model.p_value(X[-200:]) < 0.01) < 0.1
        # Who learns always remembers the first values of the new sensor as strange as they were.
        assert model.p_value([[0.0, 0.0, 1000.0]])[0] < (1e-3 if learning == "guarded" else 0.1)


def test_a_search_of_the_mixture_is_spread_over_single_rows(monkeypatch):
    """All of it in the row that refreshes the density would have that row wait for 300 ms."""
    X = np.random.default_rng(0).normal(size=(1300, 3))
    given, real = [], IncrementalGaussianMixture.partial_fit

    def spy(self, rows, *rest, **named):
        given.append((self._is_searching(0), len(rows)))
        return real(self, rows, *rest, **named)

    monkeypatch.setattr(IncrementalGaussianMixture, "partial_fit", spy)
    single = AnomalyDetector()
    for x in X:
        single.partial_fit(x[None])
    during = [n for searching, n in given if searching]
    assert len(during) > 50
    assert max(during) == 1
    assert max(n for _, n in given) > 10  # between searches they wait for each other: a call costs as much as ten rows
    whole = AnomalyDetector().partial_fit(X)
    np.testing.assert_allclose(single.p_value(X[:50]), whole.p_value(X[:50]), rtol=1e-6)


def test_a_file_from_before_far_rows_were_counted_goes_on():
    """Its p-values are those of the prior until far rows come."""
    detector = AnomalyDetector(grace_period=100).fit(np.random.default_rng(0).normal(size=(300, 2)))
    expected = detector.score_samples([[0.0, 0.0]])
    detector._state_ = detector._state_._replace(far=None)
    again = everlearn.loads(everlearn.dumps(detector))
    assert again.score_samples([[0.0, 0.0]]) == pytest.approx(expected)
    assert again.partial_fit([[0.0, 1.0]])._state_.far.rows[0] == 1


def test_a_file_from_before_its_memories_measured_independent_values_goes_on():
    X = np.random.default_rng(0).normal(size=(400, 2))
    detector = AnomalyDetector(grace_period=100).fit(X[:300])
    whole, state = detector.copy().partial_fit(X[300:]), detector._state_
    old = {name: getattr(state, name)._replace(least=None) for name in ("memory", "combined", "lasting")}
    detector._state_ = state._replace(**old)
    again = everlearn.loads(everlearn.dumps(detector)).partial_fit(X[300:])
    np.testing.assert_array_equal(again.score_samples(X), whole.score_samples(X))


def test_a_file_from_before_the_sample_was_scored_goes_on():
    """What its rows are as strange as is known from the next refresh on."""
    X = np.random.default_rng(0).normal(size=(2000, 2))
    detector = AnomalyDetector(grace_period=100).fit(X[:300])
    detector._state_ = detector._state_._replace(among=None)
    again = everlearn.loads(everlearn.dumps(detector))
    assert again._state_.among.size.max() == 0
    assert (again.partial_fit(X[300:])._state_.among.size == 400).all()


def test_a_file_with_a_smaller_sample_keeps_its_size(monkeypatch):
    """A reservoir that has begun with 400 places is uniform in these alone."""
    X = np.random.default_rng(0).normal(size=(2000, 2))
    monkeypatch.setattr(learn, "init", partial(learn.init, S=400))
    detector = AnomalyDetector().fit(X[:1000])
    monkeypatch.undo()
    again = everlearn.loads(everlearn.dumps(detector)).partial_fit(X[1000:])
    assert again._state_.sample.rows.shape == (400, 2)
    np.testing.assert_array_equal(again.score_samples(X), detector.partial_fit(X[1000:]).score_samples(X))
    assert again.merge(AnomalyDetector().fit(X))._state_.sample.size[0] == 400
    assert AnomalyDetector().fit(X).merge(again)._state_.sample.size[0] == 1200


def on_and_off(n):
    """A sensor of a machine that is on for two fifths of a day of 288 rows."""
    level = 20.0 + 60.0 * ((np.arange(n) - 100) % 288 < 110)
    return level[:, None] + 0.1 * np.random.default_rng(0).normal(size=(n, 1))


def factors_in_many_columns(n):
    rng = np.random.default_rng([0, 31])
    return rng.normal(size=(n, 10)) @ rng.normal(size=(10, 120)) + 0.5 * rng.normal(size=(n, 120))


@pytest.mark.parametrize("stream", [on_and_off, factors_in_many_columns])
def test_what_the_sample_is_full_of_raises_no_alarm(stream):
    """The memory holds scores of an earlier model, which had seen other shares of a cycle or fewer components."""
    log_p = AnomalyDetector().prequential(stream(3000))[500:]
    assert (log_p < np.log(1e-3)).sum() <= 10


def test_a_stream_that_wanders_slowly_has_the_alarms_that_were_asked_for():
    """One row in 39 is independent; a tail that is as sure as of independent rows has four times the alarms."""
    noise = np.random.default_rng([0, 77]).normal(size=(50_000, 4))
    X = lfilter([1.0], [1.0, -0.95], noise, axis=0)
    log_p = AnomalyDetector().prequential(X)[10_000:]
    for rate in (1e-2, 1e-3):
        assert 0.5 <= (log_p < np.log(rate)).mean() / rate <= 2.0


def test_a_cycle_that_comes_back_to_where_it_began_raises_no_alarms():
    """Units of the first rows make next to nothing of the noise far from these, so that theirs was an alarm again."""
    log_p = AnomalyDetector().prequential(slow_cycle(np.random.default_rng(2), 40_000))[20_000:]
    assert (log_p < np.log(1e-3)).mean() <= 2e-3


def test_a_switch_that_is_on_in_one_row_of_a_hundred_is_usual():
    """Of 30,000 rows 300 have it on; without the share of those that are remembered, nearly all of these are alarms."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=(30_000, 3)), rng.random(30_000) < 0.01])
    log_p = AnomalyDetector().prequential(X)[5000:]
    assert (log_p < np.log(1e-3)).mean() <= 2e-3
    assert AnomalyDetector().fit(X[:5000]).score_samples([[0.0, 0.0, 0.0, 30.0]]) < np.log(1e-6)


def test_far_rows_of_a_fault_that_lasted_are_not_remembered():
    X = np.random.default_rng(4).normal(size=(4000, 3))
    X[3000:3200, 1] += 8.0
    far = AnomalyDetector().fit(X)._state_.far
    assert far.size[0] > 0
    assert (far.excess[: far.size[0]] < 8.0).all()


def test_a_period_may_be_refined_until_the_ring_was_full_the_last_time(monkeypatch):
    looks = []
    monkeypatch.setattr(learn, "look_for_period", lambda *given: looks.append((int(given[2]), given[4])) or 0)
    AnomalyDetector().fit(np.random.default_rng(5).normal(size=(7000, 1)))
    assert [rows for rows, settled in looks if settled] == [4084, 6534]
    assert 2553 in [rows for rows, settled in looks if not settled]


def test_two_equal_values_of_a_sensor_with_few_decimals_are_no_alarm():
    """They come by chance, in one row of some hundred here: neither are they held back, nor do they hide others."""
    X = np.random.default_rng(5).normal(size=(4000, 3)).round(3)
    repeats = 1 + np.flatnonzero((X[1:] == X[:-1]).any(axis=1))
    repeats = repeats[repeats > 1000]
    log_p = AnomalyDetector().prequential(X)
    assert len(repeats) > 1
    assert (log_p[repeats] > np.log(1e-3)).all()


def test_without_the_discount_rows_that_last_keep_the_order_of_how_strange_they_are():
    X = np.random.default_rng(6).normal(size=(1500, 2))
    X[1300:, 0] += np.linspace(20.0, 40.0, 200)
    discounted = AnomalyDetector(random_state=0).prequential(X)
    others = AnomalyDetector(random_state=0)._prequential_undiscounted(X)
    np.testing.assert_array_equal(discounted[:1300], others[:1300])
    # By the discount later rows are less extreme although they are stranger.
    assert discounted[1310] < discounted[1490]
    assert others[1310] > others[1490]


def with_faults(n, seed, share=0.05):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[rng.random(n) < share] += 9.0
    return X


@pytest.mark.parametrize("seed", [0, 2])
def test_contamination_stays_the_quantile_of_the_scores_in_any_split(seed):
    """Not the log of the contamination, to which anomalies that go far beyond it say nothing."""
    X, later = with_faults(1500, seed), with_faults(1200, seed + 1)
    detector = AnomalyDetector(contamination=0.02, grace_period=100).fit(X)
    assert detector.offset_ == np.quantile(detector.score_samples(X), 0.02)
    before = detector.offset_
    detector.partial_fit(later[:1])
    assert detector.offset_ == before
    single = detector.copy()
    whole = detector.copy().partial_fit(later[1:])
    for start in range(1, len(later), 37):
        single.partial_fit(later[start : start + 37])
    assert whole.offset_ == single.offset_
    assert whole.events_ == single.events_
    assert before < np.log(0.02) - 1.5
    again = everlearn.loads(everlearn.dumps(whole))
    assert again.partial_fit(X).offset_ == whole.partial_fit(X).offset_


# One standard error of the scale of a tail from 140 scores is 8 %, at 22 nats 1.9: here the scale is 0.89 at first and
# 1.05 after the 1,200 rows.
FAR_OUT = pytest.mark.xfail(strict=True, reason="22 nats out the offset moves by 2.0 with the scale of the tail")


@pytest.mark.parametrize(("seed", "most"), [pytest.param(0, 1.5, marks=FAR_OUT), (2, 0.5)])
def test_contamination_keeps_its_offset_on_more_rows_of_the_same_stream(seed, most):
    detector = AnomalyDetector(contamination=0.02, grace_period=100).fit(with_faults(1500, seed))
    before = detector.offset_
    assert detector.partial_fit(with_faults(1200, seed + 1)).offset_ == pytest.approx(before, abs=most)


def test_contamination_of_a_stream_is_the_quantile_of_its_latest_scores():
    X = with_faults(900, 2)
    detector = AnomalyDetector(contamination=0.1)
    scores = detector.prequential(X)
    assert detector.offset_ == np.quantile(scores[:900], 0.1)
    assert detector.set_params(contamination=0.02).offset_ == np.quantile(scores[:900], 0.02)
    assert detector.set_params(contamination=None).offset_ == np.log(1e-3)


def test_parameters_set_after_fit_hold_at_once():
    rng = np.random.default_rng(3)
    detector = AnomalyDetector(grace_period=100).fit(rng.normal(size=(400, 2)))
    assert detector.set_params(false_alarm_rate=1e-5).offset_ == np.log(1e-5)
    detector.partial_fit(rng.normal(9.0, 1.0, size=(80, 2)))
    held = detector.held_rows_
    assert len(held) > 50
    np.testing.assert_array_equal(detector.set_params(patience=30).held_rows_, held[-30:])
    np.testing.assert_array_equal(detector.set_params(patience=700).held_rows_, held[-30:])
    more = rng.normal(9.0, 1.0, size=(40, 2))
    np.testing.assert_array_equal(detector.partial_fit(more).held_rows_, np.vstack([held[-30:], more]))
    assert everlearn.loads(everlearn.dumps(detector)).n_held_ == 70
    detector.patience = 20  # assigned, and not set
    assert everlearn.loads(everlearn.dumps(detector)).n_held_ == 20


@pytest.mark.parametrize(("patience", "word"), [(10**9, "GiB. Give"), (0, "patience")])
def test_a_patience_that_cannot_be_is_refused(patience, word):
    X = np.random.default_rng(4).normal(size=(50, 2))
    with pytest.raises(ValueError, match=word) as refused:
        AnomalyDetector(patience=patience).fit(X)
    assert "patience" in str(refused.value)
    detector = AnomalyDetector().fit(X)
    with pytest.raises(ValueError, match=word):
        detector.set_params(patience=patience)
    assert detector.partial_fit(X).patience == 500


def test_events_are_the_same_in_any_split_of_a_stream_that_becomes_a_new_normal():
    """An alarm right behind a new normal is no part of the anomaly before it."""
    X = np.random.default_rng(11).normal(size=(900, 2))
    X[500:] += 20.0
    X[[610, 615, 620]] = 90.0
    whole = AnomalyDetector(grace_period=200, patience=100).partial_fit(X)
    single = AnomalyDetector(grace_period=200, patience=100)
    for x in X:
        single.partial_fit(x[None])
    assert whole.events_ == single.events_
    kinds = [event.kind for event in whole.events_]
    assert "anomaly" in kinds[kinds.index("new_normal") :]


def nbytes(part):
    return part.nbytes if isinstance(part, np.ndarray) else sum(map(nbytes, part))


@pytest.mark.parametrize(("D", "patience"), [(3, 500), (8, 2000), (60, 500)])
def test_a_detector_holds_as_many_numbers_as_the_page_on_cost_says(D, patience):
    X = np.random.default_rng(0).normal(size=(300, D))
    state = AnomalyDetector(patience=patience).partial_fit(X)._state_
    assert nbytes(state) / 8 == pytest.approx(120_000 + 9200 * D + (patience - 500) * (D + 19), rel=0.05)
