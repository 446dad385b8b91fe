"""The change test as a drift detector of river."""

import numpy as np
import pytest
from river.datasets import synth

from everlearn.errors import InputError
from everlearn.monitoring.page_hinkley import ChangeState, PageHinkley, detect
from everlearn.river import ChangeDetector
from river import drift, linear_model


def changes(detector, values):
    found = []
    for i, value in enumerate(values):
        detector.update(value)
        found += [i] if detector.drift_detected else []
    return found


def stream(step, n=800, seed=0):
    return np.random.default_rng(seed).normal(size=n) + step * (np.arange(n) >= n // 2)


def test_it_signals_where_the_test_does():
    values = stream(-2.0)
    _, fired = detect(PageHinkley(), ChangeState(), values)
    assert changes(ChangeDetector(mode="down"), values) == np.flatnonzero(fired).tolist()


@pytest.mark.parametrize(("mode", "step", "n"), [("both", 2, 1), ("both", -2, 1), ("up", -2, 0), ("down", 2, 0)])
def test_modes(mode, step, n):
    found = changes(ChangeDetector(mode=mode), stream(step))
    assert len(found) == n
    assert all(400 < i < 430 for i in found)


def test_units_do_not_matter():
    values = stream(1.5, seed=3)
    assert changes(ChangeDetector(), values) == changes(ChangeDetector(), 1e-6 * values + 1e3)


def test_river_retrains_by_it_and_clones_it():
    model = drift.DriftRetrainingClassifier(linear_model.LogisticRegression(), ChangeDetector(threshold=15.0), False)
    for x, y in synth.SEA(variant=0, seed=0).take(50):
        model.predict_one(x)
        model.learn_one(x, y)
    twin = ChangeDetector(threshold=7.0).clone({"mode": "up"})
    assert (twin.threshold, twin.mode, twin.drift_detected) == (7.0, "up", False)


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="mode must be"):
        ChangeDetector(mode="sideways")
    with pytest.raises(InputError, match="threshold > 0"):
        ChangeDetector(threshold=0.0)
