"""learning="never" follows the stream without learning; blamed columns come with the scores."""

from __future__ import annotations

import numpy as np
import pytest

from everlearn import AnomalyDetector


@pytest.fixture(scope="module")
def detector():
    return AnomalyDetector(learning="never").fit(np.random.default_rng(0).normal(size=(1500, 3)))


def test_rows_after_fit_teach_nothing(detector):
    asleep, X = detector.copy(), np.random.default_rng(1).normal(size=(1200, 3))
    before = asleep.mixture_.n_samples_seen_, asleep._state_.clock.learned[0], asleep._state_.combined.ordered.copy()
    asleep.prequential(X + 9.0)
    assert asleep.n_samples_seen_ == 2700
    assert (asleep.mixture_.n_samples_seen_, asleep._state_.clock.learned[0]) == before[:2]
    assert np.array_equal(asleep._state_.combined.ordered, before[2])
    assert not any(event.kind == "new_normal" for event in asleep.events_)


def test_columns_to_blame_come_with_the_scores(detector):
    X = np.random.default_rng(2).normal(size=(20, 3))
    X[7, 2] = 12.0
    scores, columns = detector.copy().prequential(X, return_columns=True)
    assert columns[7] == 2
    assert scores[7] == scores.min()
    assert ((columns >= 0) == (scores < np.log(1e-3))).all()
