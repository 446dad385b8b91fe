"""The cases that a user tries first, ten seeds each."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from everlearn import AnomalyDetector

pytestmark = pytest.mark.slow

SEEDS = range(10)
UNJUDGED = 500


def six_standard_deviations(seed):
    """30 of 6,000 rows have 6 standard deviations in one of four independent columns."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(6000, 4)), np.zeros(6000)
    rows = rng.choice(np.arange(UNJUDGED, 6000), 30, replace=False)
    X[rows, rng.integers(4, size=30)] = 6.0 * rng.choice([-1, 1], 30)
    y[rows] = 1
    return X, y


def broken_correlations(seed):
    """60 of 6,000 rows lack the correlations of the others: six columns of two factors."""
    rng = np.random.default_rng(seed)
    angles = np.arange(6) * np.pi / 6
    W, y = np.array([np.cos(angles), np.sin(angles)]), np.zeros(6000)
    X = rng.normal(size=(6000, 2)) @ W + 0.2 * rng.normal(size=(6000, 6))
    rows = rng.choice(np.arange(UNJUDGED, 6000), 60, replace=False)
    X[rows], y[rows] = rng.normal(size=(60, 6)) * np.sqrt(1.04), 1
    return X, y


def shifted(seed):
    """One of four columns is shifted by 3 standard deviations for 200 of 6,000 rows."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(6000, 4)), np.zeros(6000)
    first = rng.integers(1000, 5700)
    X[first : first + 200, rng.integers(4)] += 3.0
    y[first : first + 200] = 1
    return X, y


def frozen(seed):
    """A season in two columns; the second stays at one value for 100 of 8,000 rows."""
    rng = np.random.default_rng(seed)
    t, y = np.arange(8000)[:, None], np.zeros(8000)
    X = np.sin(2 * np.pi * (t / 100 + np.array([0.0, 0.25]))) + 0.1 * rng.normal(size=(8000, 2))
    first = rng.integers(1000, 7800)
    X[first : first + 100, 1] = X[first, 1]
    y[first : first + 100] = 1
    return X, y


CASES = {six_standard_deviations: 0.97, broken_correlations: 0.90, shifted: 0.90, frozen: 0.65}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_average_precision(case):
    """Far rows and frozen sensors are told apart from the rest; rows at 6 standard deviations raise alarms."""
    found, missed = [], []
    for seed in SEEDS:
        X, y = case(seed)
        detector = AnomalyDetector(false_alarm_rate=1e-3)
        scores = detector.prequential(X)
        found.append(average_precision_score(y[UNJUDGED:], -scores[UNJUDGED:]))
        if case is six_standard_deviations:
            missed += [seed] * np.count_nonzero(scores[y == 1] >= detector.offset_)
    assert not missed
    assert np.mean(found) >= CASES[case], np.round(found, 3)


def test_the_injected_column_is_blamed():
    """At 6 standard deviations of independent columns, and where one of six correlated columns is broken."""
    right = total = 0
    for seed in range(2):
        rng = np.random.default_rng(100 + seed)
        for usual, size in ((rng.normal(size=(2000, 4)), 6.0), (broken_correlations(seed)[0][:2000], 3.0)):
            detector = AnomalyDetector().fit(usual)
            rows, columns = usual[-20:].copy(), rng.integers(usual.shape[1], size=20)
            rows[np.arange(20), columns] += size * rng.choice([-1, 1], 20)
            right += (detector.explain(rows).blame.argmax(axis=1) == columns).sum()
            total += 20
    assert right >= 0.95 * total


def test_events_name_rows_and_column_of_a_shift():
    X, y = shifted(3)
    detector = AnomalyDetector()
    detector.prequential(X)
    first, last = np.flatnonzero(y)[[0, -1]]
    column = int(np.argmax(X[first : last + 1].mean(axis=0)))
    longest = max(
        (event for event in detector.events_ if event.kind == "anomaly"), key=lambda event: event.last - event.row
    )
    assert first <= longest.row <= first + 10
    assert longest.last >= last - 5
    assert longest.column == column


def test_a_lasting_change_becomes_the_new_normal_after_patience():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 3))
    X[3000:] += 8.0
    detector = AnomalyDetector(patience=300)
    scores = detector.prequential(X)
    (event,) = (event for event in detector.events_ if event.kind == "new_normal")
    assert 3000 <= event.row <= 3005
    assert 3290 <= event.last <= 3330
    assert (scores[3005:3290] < detector.offset_).mean() > 0.95
    assert (scores[4000:] < detector.offset_).mean() < 0.01


def test_a_fault_shorter_than_patience_is_not_learned():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5000, 3))
    X[3000:3250] += 8.0
    guarded, always = (AnomalyDetector(learning=learning, patience=500) for learning in ("guarded", "always"))
    for detector in (guarded, always):
        detector.prequential(X)
    fault = X[3200:3210]
    assert (guarded.score_samples(fault) < guarded.offset_).all()
    assert guarded.score_samples(fault).max() < always.score_samples(fault).min()
